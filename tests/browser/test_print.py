"""Pages on paper, in a real Chromium: white in either theme, whole tables, and what is shown on every sheet."""

from __future__ import annotations

import pytest

from atlas.theme import TOKENS
from tests.browser.conftest import Browser

pytestmark = pytest.mark.browser

STYLE = "return getComputedStyle(document.querySelector(arguments[0])).getPropertyValue(arguments[1])"


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_page_prints_as_dark_ink_with_all_rows_of_its_tables(calm_related: Browser, theme: str) -> None:
    page = calm_related
    page.open(f"/attribution?theme={theme}&roster=27-way")
    page.until("return document.querySelectorAll('#source-grid .ag-row').length > 3")
    page.until("return document.querySelector('#budget-graph .main-svg')")
    page.run("window.dispatchEvent(new Event('beforeprint'))")  # the screen's rules hold until it is over
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        ink = TOKENS["light"]["ink"].lstrip("#")
        assert page.run(STYLE, "h1", "color") == f"rgb{tuple(int(ink[at : at + 2], 16) for at in (0, 2, 4))}"
        assert (page.run(STYLE, "#budget-graph .js-plotly-plot", "filter") == "none") == (theme == "light")
        assert page.run(STYLE, "#source-grid", "display") == "none"
        table = "document.querySelector('.grid-printed')"
        assert page.run(f"return {table}.tBodies[0].rows.length") == 27
        head, first = (page.run(f"return [...{table}.rows[{row}].cells].map(c => c.textContent)") for row in (1, 2))
        assert head[0] == "Source" and all(first[:3]) and len(first) == len(head)
        groups = page.run(f"return [...{table}.rows[0].cells].map(c => [c.textContent, c.colSpan])")
        assert dict(groups)["Accuracy at budget K"] > 1 and sum(span for _, span in groups) == len(head)
        assert page.run(STYLE, ".segmented", "display") == "none"
        foot = page.run(STYLE, ":root", "--foot")
        assert "Accuracy" in foot and "27-way" in foot and "/attribution" in foot
        page.run("window.dispatchEvent(new Event('afterprint'))")
        assert page.run("return document.querySelectorAll('.grid-printed').length") == 0
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_table_of_hundreds_of_rows_prints_its_first_ones_and_says_so(calm_related: Browser) -> None:
    page = calm_related
    page.open("/attribution?roster=27-way")
    page.until("return document.querySelectorAll('#source-grid .ag-row').length > 3")
    page.run(
        "const api = window.dash_ag_grid.getApi('source-grid'), rows = []; api.forEachNode(one => rows.push(one.data));"
        "api.setGridOption('rowData', Array.from({ length: 1001 }, (_, at) => ({ ...rows[at % rows.length] })));"
        "window.dispatchEvent(new Event('beforeprint'))"
    )
    table = "document.querySelector('#source-grid + .grid-printed')"
    assert page.run(f"return {table}.tBodies[0].rows.length") == 50
    assert page.run(f"return {table}.caption.textContent") == "The first 50 of 1,001 rows. The CSV holds all."
    page.run("window.dispatchEvent(new Event('afterprint'))")


def test_a_figure_keeps_its_legend_on_paper_and_what_is_folded_stays_out(calm_related: Browser) -> None:
    page = calm_related
    page.open("/relationships?protocol=pair")
    page.until("return document.querySelector('#kinship-graph .legend')")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.run(STYLE, "#kinship-graph .legend", "display") != "none"
        assert page.run(STYLE, "details:not([open])", "display") == "none"
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("dim", [2, 3])
def test_a_map_prints_as_it_is_seen_with_its_key(browser: Browser, dim: int) -> None:
    browser.open(f"/?dim={dim}&theme=dark")
    browser.until("return document.querySelectorAll('#names > .name-at').length > 2")
    # At once: media that are only emulated lay the page out anew, and names with it.
    seen, printed = browser.run(
        "window.dispatchEvent(new Event('beforeprint')); return ['#names', '.map-printed'].map(place =>"
        "[...document.querySelectorAll(`${place} .name-at`)].map(e => e.textContent))"
    )
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert printed == seen and len(seen) > 2
        assert browser.run("return document.querySelectorAll('#map').length") == 1
        note = browser.run("return document.querySelector('.map-printed-note').textContent")
        assert note.startswith(f"t-SNE, {dim}-D. ") and "ten nearest, drawn and original" in note
        box, title, key = (browser.run(f"return document.querySelector('{one}').getBoundingClientRect().toJSON()")
                           for one in (".map-printed", ".map-title", ".legend-rows"))  # fmt: skip
        assert title["bottom"] <= box["top"] and 200 < box["width"] <= 673
        assert box["bottom"] <= key["top"] or box["right"] <= key["left"]  # below it, or beside it where there is room
        if dim == 3:
            browser.until("const i = document.querySelector('.map-printed img'); return i && i.naturalWidth > 200")
            # Neither blank nor dark: the ground of the paper and some marks.
            shades = browser.run("""
                const image = document.querySelector('.map-printed img');
                const wide = image.naturalWidth, high = image.naturalHeight;
                const area = Object.assign(document.createElement('canvas'), { width: wide, height: high });
                const pen = area.getContext('2d');
                pen.drawImage(image, 0, 0);
                return new Set(new Uint32Array(pen.getImageData(0, 0, wide, high).data.buffer)).size""")
            assert shades > 20
        assert browser.run(STYLE, ".map-printed .js-plotly-plot", "filter") != "none"
        assert browser.run(STYLE, "#map-stage", "display") == "none"
        browser.run("window.dispatchEvent(new Event('afterprint'))")
        assert browser.run("return document.querySelectorAll('.map-printed').length") == 0
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})

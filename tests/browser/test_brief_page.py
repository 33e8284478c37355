"""The brief in a real Chromium: chosen figures, the link, and what comes out of the printer."""

from __future__ import annotations

import base64
import re

import pytest

from tests.browser.conftest import Browser

pytestmark = pytest.mark.browser

SHOWN = "return getComputedStyle(document.querySelector(arguments[0])).display !== 'none'"
PLATES = "return [...document.querySelectorAll('.plate')].map(e => e.id.replace('figure-brief-', ''))"


@pytest.fixture
def calm(calm_related: Browser) -> Browser:
    return calm_related


@pytest.mark.usefixtures("sized")
def test_figures_have_readable_letters_on_a_phone_and_sheets_fit_any_window(calm: Browser) -> None:
    calm.resize(390, 844)
    calm.open("/brief?theme=light&roster=27-way&figures=budget,confusion")
    letters = "[...document.querySelectorAll('.sheet-budget .xtick text, .sheet-confusion .annotation-text')]"
    calm.until(f"return new Set({letters}.map(e => e.closest('.sheet').className)).size === 2")
    assert calm.run(f"return Math.min(...{letters}.map(e => e.getBoundingClientRect().height))") >= 10
    calm.until("return [...document.querySelectorAll('.sheet')].every(e => e.scrollWidth <= e.clientWidth + 1)")
    right = "return document.querySelector('.sheet-confusion .main-svg').getBoundingClientRect().right"
    calm.until(right + " <= document.querySelector('.sheet-confusion .plate').getBoundingClientRect().right + 1")
    for size in ((820, 1180), (1280, 800)):
        calm.resize(*size)
        calm.settled()
        calm.until("return document.documentElement.scrollWidth <= window.innerWidth")
        calm.until("const s = document.querySelector('.content'); return s.scrollWidth <= s.clientWidth + 1")


def test_the_brief_holds_the_figures_of_its_link(calm: Browser) -> None:
    calm.open("/brief?theme=dark&roster=12-way&figures=purity,budget&k=5")
    assert calm.run(PLATES) == ["purity", "budget"]
    calm.until(
        "return [...document.querySelectorAll('.plate')].every(e => e.querySelector('.js-plotly-plot .main-svg'))"
    )
    assert "From 5 traces" in calm.text(".findings")
    assert calm.run("return document.querySelectorAll('.sheet').length") == 4
    assert calm.run("return getComputedStyle(document.querySelector('.sheet')).backgroundColor") == "rgb(255, 255, 255)"
    assert "python -m tests.invented_atlas" in calm.run("return document.querySelector('.sheet-builds').textContent")
    calm.run("document.querySelector('#brief-k input[value=\"1\"]').click()")
    calm.until("return document.querySelector('.findings').innerText.includes('From one trace')")
    assert calm.query()["figures"] == "purity,budget" and calm.query()["k"] == "1"


def test_a_figure_is_left_out_and_the_link_follows(calm: Browser) -> None:
    calm.open("/brief?theme=light&roster=12-way&figures=budget,readouts")
    calm.run("window.dash_clientside.set_props('brief-figures', {value: ['readouts', 'kinship']})")
    calm.wait(lambda: calm.run(PLATES) == ["readouts", "kinship"], "two other figures")
    calm.wait(lambda: calm.query()["figures"] == "readouts,kinship", "the choice in the link")
    calm.run("[...document.querySelectorAll('.sheet-readouts .tool')].find(b => b.innerText.includes('How')).click()")
    calm.until("return document.querySelector('.made .command') !== null")


def test_on_paper_there_are_sheets_and_nothing_else(calm: Browser) -> None:
    calm.open("/brief?theme=dark&roster=12-way&figures=windows,map,budget,confusion")
    calm.until(
        "return [...document.querySelectorAll('.plate')].every(e => e.querySelector('.js-plotly-plot .main-svg'))"
    )
    assert all(
        calm.run(SHOWN, selector) for selector in (".rail", ".bar", ".brief-controls", ".sheet .tools", ".sheet-absent")
    )
    calm.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        for hidden in (".rail", ".bar", ".brief-controls", ".sheet .tools", ".sheet-absent"):
            assert not calm.run(SHOWN, hidden), hidden
        assert calm.run("return getComputedStyle(document.querySelector('.content')).overflowY") == "visible"
        assert calm.run("return getComputedStyle(document.querySelector('.sheet')).breakAfter") == "page"
        drawn = calm.run(
            "return [...document.querySelectorAll('.plate')].map(e => {"
            "const b = e.querySelector('.main-svg').getBoundingClientRect(); return [b.width, b.height]})"
        )
        assert len(drawn) == 3 and all(300 < width <= 672 and height > 240 for width, height in drawn)
        # Vector marks, not a screenshot of them: only the cells of the matrix are an image inside their SVG.
        assert calm.run("return document.querySelectorAll('.sheet canvas').length") == 0
        assert calm.run("return document.querySelectorAll('.sheet .scatterlayer path.point').length") > 20
        printed = calm.driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"]
    finally:
        calm.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    pdf = base64.b64decode(printed)
    # The cover, two figures on a sheet, and the last one with what made the numbers.
    assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", pdf)) == 3
    sizes = {tuple(round(float(x)) for x in box.split()[2:]) for box in re.findall(rb"/MediaBox\s*\[([^\]]+)\]", pdf)}
    assert sizes and all(abs(width - 595) <= 1 and abs(height - 842) <= 1 for width, height in sizes)


def test_the_print_button_prints(calm: Browser) -> None:
    calm.open("/brief?theme=light&roster=12-way&figures=budget")
    calm.run("window.printed = 0; window.print = () => { window.printed += 1; }")
    calm.click("#brief-print")
    calm.until("return window.printed === 1")

"""Compare, Methods and a source in a real browser: the way to the readouts, their tables, downloads, paper."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import waitress
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

from atlas.application import create_application
from atlas.pages.compare import FIGURES, TABS
from atlas.state import TABS as TAB_NAMES
from tests.browser.conftest import Browser, published
from tests.invented_comparisons import publish_compared

pytestmark = pytest.mark.browser
LINK = "/compare?roster=12-way&reader=reader-paper/tiny/ur&theme="
HERE = "const e = document.querySelector(arguments[0] + '[aria-current]'); return e && e.innerText === arguments[1]"
SCREEN = 960
"""Pixels that a tab may be long."""


@pytest.fixture(scope="module")
def calm(driver: WebDriver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = published(tmp_path_factory, publish_compared)
    app = create_application(folder / "data", folder / "cache")
    server = waitress.create_server(app.server, host="127.0.0.1", port=0, threads=6)
    threading.Thread(target=server.run, daemon=True).start()
    view = Browser(driver, f"http://127.0.0.1:{server.effective_port}")
    view.complaints()
    yield view
    assert view.complaints() == []
    server.close()


def test_every_tab_is_one_screen_with_its_answer_on_top(calm: Browser) -> None:
    calm.open(f"{LINK}dark")
    for name, tab in TABS.items():
        calm.click(f".tabs a[data-choices*='\"{name}\"']")
        calm.until(HERE, ".tabs a", TAB_NAMES[name])
        assert "traces" in calm.text("#compare-answer") and calm.query().get("tab", "readers") == name
        for figure, words in tab.figures.items():
            calm.click(f'.questions a[data-choices*=\'"figure": "{figure}"\']')
            calm.until(HERE, ".questions a", words)
            calm.settled()
            heads = calm.run("return [...document.querySelectorAll('.figure h2')].map(e => e.innerText)")
            assert heads == [FIGURES[figure].question]
            assert calm.run("return document.querySelectorAll('.figure .empty').length") == 0
            assert calm.run("return document.querySelector('#content').scrollHeight") < SCREEN, figure
    assert calm.query()["roster"] == "12-way"
    assert calm.run("return document.documentElement.scrollWidth <= window.innerWidth")


def test_back_returns_to_the_tab_before_with_its_choices(calm: Browser) -> None:
    calm.open(f"{LINK}light&tab=cost")
    assert calm.text(".tabs a[aria-current]") == "Cost"
    calm.run("document.querySelector('#compare-k input[value=\"5\"]').click()")
    calm.wait(lambda: calm.query().get("k") == "5", "the budget in the link")
    calm.click(".tabs a[data-choices*='\"read\"']")
    calm.until(HERE, ".tabs a", "What is read")
    assert calm.query()["k"] == "5"
    calm.run("history.back()")
    calm.until(HERE, ".tabs a", "Cost")
    assert calm.query()["k"] == "5" and "With 5 traces" in calm.text("#compare-answer")


def test_enter_takes_the_first_length_that_fits(calm: Browser) -> None:
    calm.open(f"{LINK}light")
    field = calm.driver.find_element(By.ID, "condition")
    field.click()
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("64", Keys.ENTER)
    calm.wait(lambda: calm.query().get("condition") == "t64", "the length in the link")
    calm.until("return document.querySelector('#compare-answer').innerText.includes('(first 64 tokens)')")


def test_former_anchors_still_land(calm: Browser) -> None:
    anchors = (
        ("chapter-price", "cost", "dark"),
        ("figure-brings", "brings", "light"),
        ("chapter-readouts", "reached", "dark"),
    )
    for anchor, place, theme in anchors:  # in another theme than before: another anchor alone loads no page
        calm.open(f"{LINK}{theme}#{anchor}")
        calm.until("return document.querySelector(arguments[0]) !== null", f"#figure-{place}")


@pytest.mark.parametrize("keys", [False, True])
def test_a_researcher_compares_two_readers_under_cut_responses(calm: Browser, keys: bool) -> None:
    """At most four clicks; by keyboard alone too."""
    calm.open("/compare?roster=12-way&reader=reader-paper/tiny/ur&readers=reader-paper/tiny/ur&theme=dark")

    def press(element: WebElement) -> None:
        element.send_keys(Keys.ENTER) if keys else element.click()

    field = calm.driver.find_element(By.ID, "readers")
    press(field)
    field.send_keys("word n-grams every")
    calm.until("return [...document.querySelectorAll('[role=option]')].filter(o => o.offsetParent).length > 0")
    if keys:
        field.send_keys(Keys.ENTER)
    else:
        calm.run("[...document.querySelectorAll('[role=option]')].find(o => o.offsetParent).click()")
    calm.wait(lambda: calm.query()["readers"].count(",") == 1, "two readers in the link")
    field.send_keys(Keys.ESCAPE)
    press(calm.driver.find_element(By.CSS_SELECTOR, ".tabs a[data-choices*='\"conditions\"']"))
    calm.until(HERE, ".tabs a", "Conditions")
    answer = calm.text("#compare-answer")
    assert answer.startswith("With 20 traces, ") and "READER" in answer and "n-grams" in answer
    assert answer.count("%") >= 2


def test_the_budget_redraws_readouts_parts_and_capability(calm: Browser) -> None:
    axes = {"brings": "xaxis", "capability": "yaxis"}
    for figure, axis in axes.items():
        (calm.open if figure == "brings" else calm.move)(f"{LINK}light&figure={figure}")
        calm.run("document.querySelector('#compare-k input[value=\"100\"]').click()")
        title = f"return document.querySelector('#{figure}-graph .js-plotly-plot').layout.{axis}.title.text"
        calm.until(f"{title}.includes('100')")
        assert calm.query()["k"] == "100"


def test_a_row_of_all_readers_joins_the_others(calm: Browser) -> None:
    calm.driver.get(f"{calm.url}{LINK}light&figure=every")  # a table alone, without a figure to wait for
    calm.until("return document.querySelector('#every-grid [role=row]') !== null")
    calm.settled()
    chips = "return [...document.querySelectorAll('.compare-choice .mantine-Pill-label')].map(e => e.innerText)"
    chosen = set(calm.run(chips))
    calm.until("return document.querySelectorAll('#every-grid .ag-center-cols-container [role=row]').length > 3")
    rows = "return [...document.querySelectorAll('#every-grid .ag-center-cols-container [role=row]')]"
    names = calm.run(f"{rows}.map(r => r.querySelector('[col-id=name]').textContent)")
    place = next(number for number, name in enumerate(names) if name.removesuffix(" · prompt + response") not in chosen)
    calm.run(f"{rows}[arguments[0]].querySelector('[role=gridcell]').click()", place)
    calm.wait(lambda: len(calm.run(chips)) == len(chosen) + 1, "one reader more")


def test_table_csv_and_builds_of_the_readouts(calm: Browser, downloads: Path) -> None:
    calm.open(f"{LINK}dark&figure=reached")
    calm.run(
        "[...document.querySelectorAll('#figure-reached .tool')].find(b => b.innerText.trim() === 'Table').click()"
    )
    calm.until("return document.querySelectorAll('#figure-reached .figure-table [role=row]').length > 5")
    calm.move(f"{LINK}dark&figure=gains&k=100")
    calm.run("[...document.querySelectorAll('#figure-gains .tool')].find(b => b.innerText.trim() === 'CSV').click()")
    found = calm.wait(lambda: sorted(downloads.glob("atlas_gains*.csv")), "a downloaded CSV")
    with found[0].open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["series"], round(float(row["difference"]), 2)) for row in rows} == {
        ("accuracy@1", 0.14), ("accuracy@100", 0.02), ("accuracy@1", 0.07),
    }  # fmt: skip
    calm.move(f"{LINK}dark&figure=parts")
    calm.run("[...document.querySelectorAll('#figure-parts .tool')].find(b => b.innerText.includes('How')).click()")
    calm.until("return document.querySelectorAll('.made .build').length >= 2")


def test_a_picture_names_the_readers_that_it_compares(calm: Browser, downloads: Path) -> None:
    calm.open(f"{LINK}light&figure=curves&readers=reader-paper/tiny/ur,fused/tiny/ur")
    names = calm.run(
        "return [...document.querySelectorAll('.compare-choice .mantine-Pill-label')].map(e => e.innerText)"
    )
    calm.run("[...document.querySelectorAll('#figure-curves .tool')].find(b => b.innerText.trim() === 'SVG').click()")
    found = calm.wait(lambda: sorted(downloads.glob("atlas_curves*.svg")), "a downloaded picture")
    assert len(names) == 2 and f">Measured here · {', '.join(names)} · 12-way" in found[0].read_text(encoding="utf-8")


def test_numbers_are_taken_from_methods(calm: Browser, downloads: Path) -> None:
    calm.open("/methods?theme=light")
    calm.until("return document.querySelectorAll('.downloads tbody tr').length > 10")
    calm.click("#download-generation")
    found = calm.wait(lambda: sorted(downloads.glob("atlas-*.duckdb")), "the generation")
    assert found[0].stat().st_size > 10_000
    calm.click(".downloads a[href='/download/tables/sources.csv']")
    table = calm.wait(lambda: sorted(downloads.glob("atlas_sources_*.csv")), "a table")
    assert len(table[0].read_text("utf-8").splitlines()) == 28


@pytest.mark.usefixtures("sized")
def test_pages_fit_their_window(calm: Browser) -> None:
    """Pages are opened on a telephone, and their window then made wider and wider."""
    wide = "return document.querySelector('.content').scrollWidth <= document.querySelector('.content').clientWidth"
    for path in (f"{LINK}light", "/source/gpt_1?roster=27-way&theme=dark", "/family/GPT?roster=27-way"):
        for width, height in ((390, 844), (820, 1180), (1280, 800)):
            calm.resize(width, height)
            if width == 390:
                (calm.open if path == f"{LINK}light" else calm.move)(path)
            calm.until("return document.documentElement.scrollWidth <= window.innerWidth")
            calm.until(wide)
            calm.settled()
            assert calm.run("return document.documentElement.scrollWidth <= window.innerWidth"), (path, width)
            assert calm.run(wide), (path, width)


def test_a_narrow_screen_gives_its_width_to_the_drawing(calm: Browser) -> None:
    share = (
        "const p = document.querySelector('#reached-graph .js-plotly-plot');"
        "const s = p && p._fullLayout && p._fullLayout._size;"
    )
    folded = "return getComputedStyle(document.querySelector('.rail')).display === 'none'"
    override = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    calm.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", override)
    try:
        calm.open(f"{LINK}light&figure=reached")
        calm.until(f"{share} return s && s.w > 0.85 * p.clientWidth")
        names = "return document.querySelector('#reached-graph .js-plotly-plot').layout.annotations.map(a => a.text)"
        assert any(name.startswith("One trace") for name in calm.run(names))
        assert calm.run("return document.querySelector('.bar').offsetHeight") < 56 and calm.run(folded)
        words = "return document.querySelector('.readers-note').offsetHeight"
        assert calm.run(words) < 32  # one line, until it is unfolded
        calm.click("#readers-more")
        assert calm.run(words) > 32
        calm.click("#readers-more")
        ways = "return Math.max(...[...document.querySelectorAll('.questions a')].map(a => a.offsetHeight))"
        assert calm.run(ways) < 32  # one line of words each
        calm.click("#menu")
        assert not calm.run(folded)
        calm.click("#menu")
        assert calm.run(folded)
        # Ranks are no names: numbered anew they would name other rows of their table.
        ranks = (
            "const p = document.body.appendChild(document.createElement('div'));"
            "p.style.cssText = 'width: 400px; height: 360px';"
            "const marks = (text) => ({mode: 'markers+text', x: text.map((_, i) => i), y: text.map(() => 0), text});"
            "const layout = {margin: {l: 8, r: 8, t: 8, b: 8}, xaxis: {}, yaxis: {}};"
            "Plotly.react(p, [marks(['a name of some length']), marks(arguments[0])], layout);"
            "const shown = p.data.map(trace => trace.text); p.remove(); return shown"
        )
        numbers = [f"<b>{rank}</b>" for rank in range(9)]
        assert calm.run(ranks, numbers) == [["a name of some length"], numbers]
        # Names of a matrix that differ look different where they are cut.
        cut = (
            "const p = document.body.appendChild(document.createElement('div')), names = arguments[0];"
            "p.style.cssText = 'width: 360px; height: 360px';"
            "const places = names.map((_, i) => i), z = places.map(() => places);"
            "const yaxis = {tickvals: places, ticktext: names};"
            "Plotly.react(p, [{type: 'heatmap', z}], {margin: {l: 200, r: 8, t: 8, b: 8}, xaxis: {}, yaxis});"
            "const shown = p.layout.yaxis.ticktext; p.remove(); return shown"
        )
        models = [f"qwen-org/qwen2.5-{size}b-instruct-2025-{end}" for size in (3, 7, 72) for end in ("07-22", "09-23")]
        shown = calm.run(cut, [*models, "qwen-plus"])
        assert len(set(shown)) == 7 and shown[-1] == "qwen-plus" and not any("/" in name for name in shown)
        assert all("…" in name and name[-2:] == whole[-2:] for name, whole in zip(shown, models, strict=False))
    finally:
        calm.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    calm.until(f"{share} return s && p.layout.margin.l > 200 && s.w < 0.8 * p.clientWidth")


@pytest.mark.usefixtures("sized")
def test_choices_open_above_the_figure_on_a_phone(calm: Browser) -> None:
    top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    folded = "return ['#condition', '#readers'].every(e => document.querySelector(e).offsetParent === null)"
    calm.resize(390, 844)
    calm.open(f"{LINK}light")
    assert calm.run(folded) and calm.text(".choices-fold") == "Choices: readers, budget, metric, reduction, responses"
    assert calm.run(top, "#figure-curves h2") < 844
    calm.click(".choices-fold > summary")
    calm.wait(lambda: not calm.run(folded), "the choices")
    assert calm.run(top, ".choices-fold") < calm.run(top, "#readers") < calm.run(top, "#condition")
    assert calm.run(top, "#condition") < calm.run(top, "#figure-curves h2")
    calm.run("document.querySelector('#compare-k input[value=\"5\"]').click()")
    calm.wait(lambda: calm.query().get("k") == "5", "the budget in the link")
    assert not calm.run(folded)
    calm.move(f"{LINK}light&tab=cost")  # one choice alone needs no fold
    calm.until("return document.querySelector('#compare-k')?.offsetParent && document.querySelector('.choices-fold')")
    assert calm.run("return document.querySelector('.choices-fold').offsetParent === null")
    calm.resize(1280, 800)
    calm.move(f"{LINK}light&figure=curves")
    calm.until("return document.querySelector('#condition')?.offsetParent")
    assert calm.run("return document.querySelector('.choices-fold').offsetParent === null")


@pytest.mark.usefixtures("sized")
def test_the_reference_is_named_where_readers_are_chosen(calm: Browser) -> None:
    after = "return getComputedStyle(document.querySelector(arguments[0]), '::after').content"
    first, second = (f".compare-choice .mantine-Pill-root:nth-child({place}) > .mantine-Pill-label" for place in (1, 2))
    calm.open(f"{LINK}light&readers=reader-paper/tiny/ur,fused/tiny/ur")
    assert "reference" in calm.run(after, first) and "reference" not in calm.run(after, second)
    calm.resize(390, 844)
    assert "reference" not in calm.run(after, first)  # it would be cut there
    assert "the first is the reference" in calm.run(after, ".compare-choice > .choice-label")


def test_the_way_back_stands_in_the_row_of_figures(calm: Browser) -> None:
    calm.open(f"{LINK}dark&tab=read")
    tops = calm.run("return [...document.querySelectorAll('.questions a')].map(e => e.getBoundingClientRect().top)")
    assert calm.text(".questions .back").startswith("Back to ") and len(set(tops)) == 1


def test_of_names_that_would_meet_one_is_drawn(calm: Browser) -> None:
    calm.open(f"{LINK}light&figure=reached")
    draw = (
        "const done = arguments[arguments.length - 1];"
        "const p = document.body.appendChild(document.createElement('div'));"
        "p.style.cssText = 'width: 640px; height: 360px';"
        "const x = [0, 0.2, 5, 10, 15, 20], text = x.map((_, i) => 'a long name ' + i);"
        "const trace = {mode: 'markers+text', x, y: x.map(() => 0), text, textposition: 'top center'};"
        "Plotly.react(p, [trace], {margin: {l: 60, r: 60, t: 8, b: 30}, xaxis: {}, yaxis: {}}).then(() => {"
        "const shown = [...p.querySelectorAll('.textpoint text')].filter(t => t.style.visibility !== 'hidden');"
        "const names = shown.map(t => t.textContent); p.remove(); done(names); })"
    )
    shown = calm.driver.execute_async_script(draw)
    assert shown == [f"a long name {i}" for i in (0, 2, 3, 4, 5)]


def test_a_sentence_at_the_end_of_a_line_loses_whole_parts(calm: Browser) -> None:
    calm.open(f"{LINK}light&figure=reached")
    draw = (
        "const done = arguments[arguments.length - 1], root = document.documentElement;"
        "const p = document.body.appendChild(document.createElement('div'));"
        "p.style.cssText = 'width: 640px; height: 240px'; root.dataset.present = '1';"
        "const end = (text, y, name) => ({text, x: 1, xref: 'paper', xanchor: 'left', y, showarrow: false, name});"
        "const annotations = [end(arguments[0], 1, 'sentence'), end(arguments[1], 2, arguments[2])];"
        "const shapes = [{type: 'line', name: 'leader', xref: 'paper', x0: 0, x1: 1, y0: 1, y1: 1}];"
        "const layout = {margin: {l: 60, r: 60, t: 8, b: 30}, xaxis: {}, yaxis: {range: [0, 4]}, annotations, shapes};"
        "Plotly.react(p, [{x: [0, 1], y: [1, 1]}], layout).then(() => {"
        "const texts = p.layout.annotations.map(note => note.text), room = p.layout.margin.r;"
        "p.remove(); delete root.dataset.present; done([texts, room]); })"
    )
    sentence = "<b>about 780 to 1 for,<br>probability 82.6 %,<br>95 % needed</b>"
    family = "<b>its family:<br>about 1,800 to 1 for</b>"
    texts, room = calm.driver.execute_async_script(draw, sentence, family, "sentence")
    assert texts == ["<b>about 780 to 1 for</b>", "<b>its family: about 1,800 to 1 for</b>"]
    assert room < 0.4 * 640  # the drawing has what the labels need not
    name = "Discriminants, every length of the responses and their words .802"
    texts, _ = calm.driver.execute_async_script(draw, sentence, name, None)
    # A name loses its middle.
    assert texts[1].startswith("Discriminants, every … ") and texts[1].endswith(" words .802")

"""Compare, Methods and a source in a real browser: the way to the readouts, their tables, downloads, paper."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import waitress
from selenium.webdriver.remote.webdriver import WebDriver

from atlas.application import create_application
from atlas.pages.compare import CHAPTERS, FIGURES
from tests.browser.conftest import Browser
from tests.invented_comparisons import publish_compared

pytestmark = pytest.mark.browser
LINK = "/compare?roster=12-way&reader=reader-paper/tiny/ur&theme="


@pytest.fixture(scope="module")
def calm(driver: WebDriver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("compared")
    publish_compared(folder / "data")
    app = create_application(folder / "data", folder / "cache")
    server = waitress.create_server(app.server, host="127.0.0.1", port=0, threads=6)
    threading.Thread(target=server.run, daemon=True).start()
    view = Browser(driver, f"http://127.0.0.1:{server.effective_port}")
    view.complaints()
    yield view
    assert view.complaints() == []
    server.close()


def test_every_figure_is_drawn_and_the_way_to_its_chapter_is_short(calm: Browser) -> None:
    calm.open(f"{LINK}dark")
    calm.until("return document.querySelectorAll('.figure .main-svg').length >= 12")
    heads = calm.run("return [...document.querySelectorAll('.figure h2')].map(e => e.innerText)")
    assert heads == [figure.question for figure in FIGURES.values()]
    assert calm.run("return document.querySelectorAll('.figure .empty').length") == 0
    for name in CHAPTERS:
        calm.click(f".chapters a[href='#chapter-{name}']")
        place = "return Math.abs(document.querySelector(arguments[0]).getBoundingClientRect().top - 56) < 80"
        if name != "price":
            calm.until(place, f"#chapter-{name}")
    assert calm.query()["roster"] == "12-way"
    assert calm.run("return document.documentElement.scrollWidth <= window.innerWidth")


def test_the_budget_redraws_readouts_parts_and_capability(calm: Browser) -> None:
    calm.open(f"{LINK}light")
    calm.run("document.querySelector('#compare-k input[value=\"100\"]').click()")
    axis = "return document.querySelector('#brings-graph .js-plotly-plot').layout.xaxis.title.text"
    calm.wait(lambda: calm.run(axis) == "Accuracy at 100 traces", "members at 100 traces")
    calm.wait(
        lambda: (
            "K = 100"
            in calm.run("return document.querySelector('#capability-graph .js-plotly-plot').layout.yaxis.title.text")
        ),
        "capability at 100 traces",
    )
    assert calm.query()["k"] == "100"


def test_a_row_of_all_readers_joins_the_others(calm: Browser) -> None:
    calm.open(f"{LINK}light")
    before = calm.run("return document.querySelectorAll('#compare-key .reader-name').length")
    calm.run("document.querySelector('#figure-every').scrollIntoView()")
    calm.until("return document.querySelectorAll('#every-grid .ag-center-cols-container [role=row]').length > 3")
    # The text of what is not in sight has no innerText.
    chosen = set(calm.run("return [...document.querySelectorAll('#compare-key .reader-name')].map(e => e.textContent)"))
    rows = "return [...document.querySelectorAll('#every-grid .ag-center-cols-container [role=row]')]"
    names = calm.run(f"{rows}.map(r => r.querySelector('[col-id=name]').textContent)")
    place = next(number for number, name in enumerate(names) if name not in chosen)
    calm.run(f"{rows}[arguments[0]].querySelector('[role=gridcell]').click()", place)
    calm.wait(
        lambda: calm.run("return document.querySelectorAll('#compare-key .reader-name').length") == before + 1,
        "one reader more",
    )


def test_table_csv_and_builds_of_the_readouts(calm: Browser, downloads: Path) -> None:
    calm.open(f"{LINK}dark")
    calm.run(
        "[...document.querySelectorAll('#figure-reached .tool')].find(b => b.innerText.trim() === 'Table').click()"
    )
    calm.until("return document.querySelectorAll('#figure-reached .figure-table [role=row]').length > 5")
    calm.run("[...document.querySelectorAll('#figure-gains .tool')].find(b => b.innerText.trim() === 'CSV').click()")
    found = calm.wait(lambda: sorted(downloads.glob("atlas_gains*.csv")), "a downloaded CSV")
    with found[0].open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["series"], round(float(row["difference"]), 2)) for row in rows} == {
        ("accuracy@1", 0.14), ("accuracy@100", 0.02), ("accuracy@1", 0.07),
    }  # fmt: skip
    calm.run("[...document.querySelectorAll('#figure-parts .tool')].find(b => b.innerText.includes('How')).click()")
    calm.until("return document.querySelectorAll('.made .build').length >= 2")


def test_numbers_are_taken_from_methods(calm: Browser, downloads: Path) -> None:
    calm.open("/methods?theme=light")
    calm.until("return document.querySelectorAll('.downloads tbody tr').length > 10")
    calm.click("#download-generation")
    found = calm.wait(lambda: sorted(downloads.glob("atlas-*.duckdb")), "the generation")
    assert found[0].stat().st_size > 10_000
    calm.click(".downloads a[href='/download/tables/sources.csv']")
    table = calm.wait(lambda: sorted(downloads.glob("atlas_sources_*.csv")), "a table")
    assert len(table[0].read_text("utf-8").splitlines()) == 28


@pytest.mark.parametrize(
    "path", [f"{LINK}light", "/source/gpt_1?roster=27-way&theme=dark", "/family/GPT?roster=27-way"]
)
@pytest.mark.parametrize("size", [(1280, 800), (820, 1180)])
def test_pages_fit_their_window(calm: Browser, path: str, size: tuple[int, int]) -> None:
    override = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    calm.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", override)
    try:
        calm.open(path)
        assert calm.run("return document.documentElement.scrollWidth <= window.innerWidth")
        wide = "return document.querySelector('.content').scrollWidth <= document.querySelector('.content').clientWidth"
        assert calm.run(wide)
    finally:
        calm.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

"""Relationships in a real Chromium: a click on a pair, holdouts, tables, hostile names; and the presentation mode."""

from __future__ import annotations

import csv
import urllib.parse
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser
from tests.invented_atlas import MARKUP

pytestmark = pytest.mark.browser

PLOT = "const p = document.querySelector('#kinship-graph .js-plotly-plot');"
CLICK = (
    PLOT + "const t = p.data.find(t => t.name.startsWith('related')), i = arguments[0];"
    "p.emit('plotly_click', {points: [{curveNumber: p.data.indexOf(t), pointNumber: i, x: t.x[i], y: t.y[i], data: t,"
    " fullData: p._fullData[p.data.indexOf(t)], customdata: t.customdata[i]}]}); return t.customdata[i]"
)
SHOWN = "return getComputedStyle(document.querySelector(arguments[0])).display !== 'none'"


@pytest.fixture
def calm(calm_related: Browser) -> Browser:
    return calm_related


def test_a_click_on_a_pair_opens_every_readers_words(calm: Browser) -> None:
    calm.open("/relationships?theme=dark&protocol=pair")
    names = [trace["name"] for trace in calm.traces("#kinship-graph")]
    # The page has its own reader and models: the header offers nothing that changes nothing.
    assert not calm.run(SHOWN, ".bar .choice") and "chosen below" in calm.text("#readers-note")
    assert names[:3] == ["decision line", "unrelated (8)", "related (8)"]
    assert "An example" in calm.text("#kin-answer") and "left" not in calm.query()
    models = calm.run(CLICK, 1)
    calm.until("return document.querySelectorAll('#verdicts-place tbody tr').length === 3")
    heads = "return [...document.querySelectorAll('.kin-model > .marked .name')].map(e => e.textContent)"
    calm.wait(lambda: calm.run(heads) == models, "both models on the card")
    calm.until("return document.querySelector('#figure-verdicts .sentence').innerText.startsWith('In truth related')")
    assert "In truth related" in calm.text("#figure-verdicts .sentence")
    calm.wait(lambda: calm.query().get("left") == models[0], "the pair in the link")
    assert calm.query()["right"] == models[1]
    answer = calm.text("#kin-answer")
    assert answer.startswith("In truth related; ") and "readers say so" in answer
    calm.until("const r = document.querySelector('#kin-answer').getBoundingClientRect(); return r.top < innerHeight")
    halo = PLOT + "return p.data.find(t => t.name === 'selected').x.length === 1"
    calm.until(halo)


@pytest.mark.usefixtures("sized")
def test_a_link_opens_a_pair_under_a_holdout_and_fits_its_window(calm: Browser) -> None:
    query = {"protocol": "family", "left": "google/gemma-2b", "right": MARKUP, "measure": "auc", "theme": "light"}
    calm.open("/relationships?" + urllib.parse.urlencode(query))
    calm.until("return document.querySelectorAll('#verdicts-place tbody tr').length === 3")
    assert MARKUP in calm.run("return document.querySelector('#kin-answer').textContent")
    assert calm.run("return document.querySelectorAll('img').length") == 0
    assert calm.run("return document.title") != "owned"
    assert "AUC" in calm.text("#related-answer")
    traces = calm.traces("#readouts-graph")
    assert {trace["name"] for trace in traces} == {"both (DC–AC)", "drift (first AC)", "mean (DC)", "matching text"}
    kin = {trace["name"] for trace in calm.traces("#kinship-graph")}
    assert {"unrelated (20)", "related (8)"} <= kin
    inside = "return [...document.querySelectorAll('.kin-model')].every(e => e.scrollWidth <= e.clientWidth + 1)"
    for size in ((1280, 800), (820, 1180)):
        calm.resize(*size)
        calm.settled()
        calm.until("return document.documentElement.scrollWidth <= window.innerWidth")
        calm.until(inside)
    # A grid that goes on at the right says so. One out of sight is not laid out before it is scrolled to.
    shade = "getComputedStyle(document.querySelector('#mistaken-grid .ag-root'), '::after').opacity"
    calm.run("document.querySelector('#figure-mistaken').closest('details').open = true")
    calm.resize(1280, 800)
    calm.run("document.querySelector('#figure-mistaken').scrollIntoView()")
    calm.until(f"return document.querySelector('#mistaken-grid .ag-row') && {shade} === '0'")
    calm.resize(390, 844)
    top = "document.querySelector('{}').getBoundingClientRect().top"
    calm.until(f"return {top.format('#related-answer')} < {top.format('.kin-fields')}")
    calm.until(f"return {shade} === '1'")
    # Rules part the names of rows from the marks above them.
    calm.until(
        "const { shapes, yaxis } = document.querySelector('#readouts-graph .js-plotly-plot').layout;"
        "return shapes.filter(s => s.layer === 'below' && s.x1 === 1).length >= yaxis.tickvals.length - 1"
    )


def test_a_holdout_redraws_and_the_pair_split_leads_to_it(calm: Browser) -> None:
    calm.open("/relationships?theme=dark&protocol=pair")
    words = calm.run("return document.querySelector('#figure-tested').textContent")
    assert "The pair split has no tests; these are of families held out" in words
    calm.run("document.querySelector('#protocol input[value=family]').click()")
    calm.until("return !document.querySelector('#figure-tested').textContent.includes('The pair split')")
    calm.until("return document.querySelector('#contrasts-graph .js-plotly-plot').data.length >= 2")
    assert not calm.run("return document.querySelector('#figure-tested').checkVisibility()"), "details are folded"
    calm.run("document.querySelector('#figure-tested').closest('details').open = true")
    calm.until("return document.querySelectorAll('#tested-grid .ag-center-cols-container [role=row]').length > 2")
    assert "protocol" not in calm.query(), "families are the default"
    calm.until("return document.querySelector('#protocol-told').innerText.includes('whole families are new')")


def test_a_model_is_found_by_its_name_and_leads_to_its_pairs(calm: Browser) -> None:
    calm.open("/relationships?theme=dark&protocol=pair")
    field = calm.driver.find_element(By.ID, "left")
    calm.run("arguments[0].scrollIntoView({block: 'center'})", field)
    field.click()
    field.send_keys("gemma-2b/child-0")
    calm.until("return [...document.querySelectorAll('[role=option]')].some(o => o.innerText === 'gemma-2b/child-0')")
    field.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    calm.until("return document.querySelectorAll('#verdicts-place .kin-partner').length >= 2")
    calm.until(PLOT + "return p.data.find(t => t.name === 'pairs of the model').x.length >= 2")
    calm.click("#verdicts-place .kin-partner")
    calm.until("return document.querySelectorAll('#verdicts-place tbody tr').length === 3")
    assert calm.query()["left"] == "gemma-2b/child-0" and calm.query()["right"] == "google/gemma-2b"


def test_a_pair_that_was_not_tested_leads_to_one_with_scores(calm: Browser) -> None:
    calm.open("/relationships?theme=dark&protocol=pair&left=qwen2-1.5b/child-0&right=qwen2-1.5b/child-1")
    assert "No score: these two are not among the 28 pairs" in calm.text("#kin-answer")
    calm.until("return document.querySelectorAll('#verdicts-place .kin-partner').length >= 2")
    calm.click("#verdicts-place .kin-partner")
    calm.until("return document.querySelectorAll('#verdicts-place tbody tr').length === 3")
    assert calm.query()["right"] == "Qwen/Qwen2-1.5B" and "In truth related" in calm.text("#kin-answer")


def test_rows_csv_and_builds_of_the_page(calm: Browser, downloads: Path) -> None:
    calm.open("/relationships?theme=dark&protocol=pair")
    calm.run("document.querySelector('#figure-mistaken').closest('details').open = true")
    calm.until("return document.querySelectorAll('#mistaken-grid .ag-center-cols-container [role=row]').length > 3")
    calm.click("#mistaken-grid .ag-center-cols-container [role=row] [role=gridcell]")
    calm.until("return document.querySelectorAll('#verdicts-place tbody tr').length === 3")
    calm.run("document.querySelector('#figure-rates').closest('details').open = true")
    calm.run("[...document.querySelectorAll('#figure-rates .tool')].find(b => b.innerText.trim() === 'CSV').click()")
    found = calm.wait(lambda: sorted(downloads.glob("atlas_rates*.csv")), "a downloaded CSV")
    with found[0].open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["readout"] for row in rows} == {"dc", "ac", "dc-ac", "match"}
    assert {"accuracy", "accuracy_low", "auc_std", "splits", "origin"} <= set(rows[0])
    calm.run("[...document.querySelectorAll('#figure-readouts .tool')].find(b => b.innerText.includes('How')).click()")
    calm.until("return document.querySelectorAll('.made .build').length === 2")
    assert "python -m jobs relate" in calm.run("return document.querySelector('.made').textContent")


def test_presenting_hides_controls_and_enlarges_until_escape(calm: Browser) -> None:
    calm.open("/relationships?theme=dark&protocol=family")
    wide = calm.run("return document.querySelector('#figure-readouts h2').getBoundingClientRect().height")
    button = calm.driver.find_element(By.ID, "present")
    button.send_keys(Keys.ENTER)
    calm.wait(lambda: calm.query().get("present") == "1", "the mode in the link")
    for hidden in (".rail", ".bar", ".tools", ".controls"):
        assert not calm.run(SHOWN, hidden)
    assert calm.run("return document.querySelector('#figure-readouts h2').getBoundingClientRect().height") > 1.3 * wide
    assert calm.run("return document.activeElement.id") == "present-off"
    assert calm.run("return document.documentElement.scrollWidth <= window.innerWidth")
    step = "return document.querySelector('#figure-verdicts').getBoundingClientRect().top"
    ActionChains(calm.driver).send_keys(Keys.ARROW_RIGHT).perform()
    calm.wait(lambda: 0 <= calm.run(step) <= 40, "the first figure at the top")
    ActionChains(calm.driver).send_keys(Keys.ESCAPE).perform()
    calm.wait(lambda: "present" not in calm.query(), "a link without the mode")
    for shown in (".rail", ".bar", ".tools", ".controls"):
        assert calm.run(SHOWN, shown)
    assert calm.run("return document.activeElement.id") == "present"


@pytest.mark.usefixtures("sized")
def test_a_presented_brief_shows_a_sheet_a_screen_above_the_keys(calm: Browser) -> None:
    place = "return document.querySelector('.present-place').textContent"
    for width, height in ((1280, 720), (1920, 1080)):
        calm.resize(width, height)
        calm.open("/brief?theme=light&present=1&roster=12-way&figures=map,budget,confusion,readouts")
        calm.until("return document.querySelectorAll('.sheet .main-svg').length >= 4")
        calm.until("return document.querySelector('.sheet').clientWidth >= 0.9 * innerWidth / arguments[0]", 2.25)
        seen = (
            "const keys = document.querySelector('#present-keys').getBoundingClientRect().top;"
            "const parts = [...document.querySelectorAll('.sheet')[arguments[0] - 1].children];"
            "const boxes = parts.filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect());"
            "return boxes.length > 1 && boxes.every(box => box.top >= 0 && box.bottom <= keys + 1)"
        )
        for number in range(1, 6):
            calm.until(place + " === arguments[0]", f"{number} / 5")
            calm.until(seen, number)
            ActionChains(calm.driver).send_keys(Keys.ARROW_DOWN).perform()
        # The keys of the four slides would lead out of this deck.
        keys = calm.text("#present-keys")
        assert "1 to 9 Choose a sheet" in keys and "Accuracy" not in keys
        for number in (2, 4, 1):
            ActionChains(calm.driver).send_keys(str(number)).perform()
            calm.until(place + " === arguments[0]", f"{number} / 5")
            assert calm.run("return location.pathname") == "/brief"


@pytest.mark.parametrize("path", ["/", "/neighbourhoods", "/attribution", "/compare", "/source/gpt_1", "/methods"])
def test_every_page_can_be_presented_by_link(calm: Browser, path: str) -> None:
    calm.open(f"{path}?theme=light&present=1&roster=12-way")
    assert not calm.run(SHOWN, ".rail") and not calm.run(SHOWN, ".bar")
    assert calm.run("return document.documentElement.scrollWidth <= window.innerWidth")
    calm.wait(lambda: calm.query().get("present") == "1", "the mode in the link")


def test_the_mode_goes_along_to_the_next_page(calm: Browser) -> None:
    calm.open("/attribution?theme=dark&present=1&roster=12-way")
    calm.wait(
        lambda: "present=1" in str(calm.run("return document.querySelector('#nav-methods').getAttribute('href')")),
        "the mode in the navigation's links",
    )
    calm.click("#nav-methods")
    calm.until("return document.querySelector('.prose') !== null")
    assert calm.query()["present"] == "1" and not calm.run(SHOWN, ".rail")
    calm.click("#present-off")
    calm.wait(lambda: "present" not in calm.query(), "a link without the mode")

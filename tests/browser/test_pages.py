"""Neighbourhoods, Compare, the page of a source and that of a family, in a real Chromium."""

from __future__ import annotations

import itertools
import re
import urllib.parse
from typing import Any

import pytest

from atlas.application import PAGES
from tests.invented_atlas import ENDLESS, HOSTILE, MARKUP, RIGHT_TO_LEFT, invented_roster

pytestmark = pytest.mark.browser

ROW = (
    "const rows = [...document.querySelectorAll(arguments[0] + ' [role=row]')];"
    "const row = rows.find(r => r.textContent.includes(arguments[1]));"
)
CELL = "#pairs-grid .ag-center-cols-container [role=row] [role=gridcell]"

ENDS = "return document.querySelector('#ends-place').textContent"


def select_row(browser: Any, grid: str, words: str) -> None:
    """Click the first row of a grid that holds some words."""
    browser.until(ROW + "return !!row", grid, words)
    browser.run(ROW + "row.querySelector('[role=gridcell]').click()", grid, words)


def names(browser: Any, graph: str) -> list[str]:
    return [trace["name"] for trace in browser.traces(graph)]


def test_a_row_of_the_neighbours_selects_its_source_and_links_unfold_what_is_folded(browser: Any) -> None:
    browser.open("/neighbourhoods?theme=dark&roster=12-way")
    assert "sibling" in browser.text("#near-answer")
    assert "An example, the first row of the table" in browser.text("#figure-nearest .sentence")
    select_row(browser, "#neighbours-grid", "claude-org/claude-1")
    browser.wait(lambda: browser.query().get("source") == "claude_1", "the source in the link")
    browser.until("return document.querySelector('#nearest-graph .js-plotly-plot').data.length === 1")
    plot = "const p = document.querySelector('#nearest-graph .js-plotly-plot');"
    browser.until(plot + "return p.layout.yaxis.ticktext && p.layout.yaxis.ticktext.length === 10")
    assert browser.run("return document.querySelector('#pair-first').value") == "claude-org/claude-1"
    for figure in ("figure-pairs", "figure-tree"):  # links to what is folded unfold it
        folded = "return document.getElementById(arguments[0]).closest('details').open"
        assert not browser.run(folded, figure)
        browser.run("document.querySelector(`.chapters a[href='#${arguments[0]}']`).click()", figure)
        browser.until(folded, figure)
    # Off the screen only textContent has words.
    first = browser.until(f"const c = document.querySelector('{CELL}'); return c && c.textContent")
    browser.run(f"document.querySelector('{CELL}').click()")
    browser.until("return document.querySelectorAll('#pair-answer tbody tr').length === 3")
    assert browser.run("return document.querySelector('#pair-first').value") == first
    assert browser.query()["other"]
    assert len(browser.run("return document.querySelector('#tree-graph .js-plotly-plot').layout.yaxis.ticktext")) == 12
    browser.settled()
    browser.run("document.querySelector('#near-links a').click()")
    browser.until("return document.querySelector('.source-title') !== null")
    browser.settled()


def test_what_a_link_names_in_vain_is_told_until_another_choice(browser: Any) -> None:
    browser.open("/attribution?theme=dark&roster=12-way&domain=nowhere")
    told = browser.until("return document.querySelector('#link-note').innerText")
    assert told == "The link's domain, nowhere, is not in this atlas: Agent500 is shown."
    browser.run("dash_clientside.set_props('domain', { value: 'math100' })")
    browser.until("return document.querySelector('#link-note').innerText === ''")
    browser.settled()
    browser.open("/attribution?theme=dark&reader=reader-paper")
    told = browser.until("return document.querySelector('#link-note').innerText")
    assert re.match(r"The link's reader, reader-paper, names no reader fully; \d+ in the list above begin so\. ", told)
    count = (
        "return dash_component_api.getLayout('reader').props.data.flatMap(g => g.items).filter(r => r.value.startsWith"
    )
    for page in ("/attribution", "/"):  # the map offers some readers only
        browser.open(f"{page}?theme=dark&reader=reader-paper")
        browser.settled()
        told = browser.run("return document.querySelector('#link-note').innerText")
        many = browser.run(f"{count}('reader-paper')).length")
        assert f"; {many} in the list above begin so" in told if many else "can be chosen here" in told
    browser.open("/attribute?theme=dark&reader=reader-paper")  # which has no such list
    browser.settled()
    told = browser.run("return document.querySelector('#link-note').innerText")
    assert told == "The link's reader, reader-paper, is not used here: the ecosystem below brings its own."


LANDMARKS = {
    "/": "#map",
    "/neighbourhoods": "#near-answer",
    "/attribution": "#answer",
    "/compare": "#compare-answer",
    "/source/gpt_1": "#source-answer",
    "/family/GPT": "#family-answer",
    "/methods": ".prose",
    "/relationships": "#related-answer",
    "/brief": ".brief-controls",
    "/attribute": "#attr-root",
}


@pytest.mark.slow(35)
def test_every_page_can_be_left_at_any_time(browser: Any, slow: None) -> None:
    """A page is left as soon as it stands, while all of its figures are being drawn again in the other theme."""
    browser.open("/?theme=dark&roster=12-way")
    paths = list(LANDMARKS)
    # Steps without a common divisor with the number of pages: every page is left for two others.
    tour = [step * place % len(paths) for step in (1, 3) for place in range(1, len(paths) + 1)]
    assert len(set(itertools.pairwise([0, *tour]))) == 2 * len(paths) == len(tour)
    for place in tour:
        browser.click("#theme-toggle")
        browser.go(f"{paths[place]}?roster=12-way")
        browser.until("return document.querySelector(arguments[0]) !== null", LANDMARKS[paths[place]])
    browser.settled()
    assert browser.complaints() == []


ANSWER_ON_LEAVING = """
const [landmark] = arguments, real = window.unheld = window.unheld || window.fetch;
window.heldBack = 0;
window.fetch = async (url, init) => {
  const answer = await real(url, init);
  if (!String(url).includes('_dash-update-component') || init.body.includes('_pages_content.children')) return answer;
  const { status, headers } = answer, text = await answer.text();
  if (document.querySelector(landmark)) {
    window.heldBack += 1;
    await new Promise((gone) => {
      const see = (_, watch) => { if (!document.querySelector(landmark)) { watch.disconnect(); gone(); } };
      new MutationObserver(see).observe(document.body, { childList: true, subtree: true });
    });
  }
  return { status, headers, text: async () => text, json: async () => JSON.parse(text) };
};
"""
"""Answers are held back until the page they are for is taken out, and are there before the renderer has noticed."""


def test_a_page_is_left_at_the_very_moment_its_figures_arrive(browser: Any) -> None:
    browser.open("/methods?theme=dark&roster=12-way")
    for path in LANDMARKS:
        if path == "/methods":
            continue
        browser.move(f"{path}?roster=12-way")
        browser.until("return document.querySelector(arguments[0]) !== null", LANDMARKS[path])
        browser.run(ANSWER_ON_LEAVING, LANDMARKS[path])
        browser.click("#theme-toggle")
        browser.until("return window.heldBack > 0")
        browser.go("/methods?roster=12-way")
        browser.until("return document.querySelector(arguments[0]) !== null", LANDMARKS["/methods"])
        browser.settled()
        browser.run("window.fetch = window.unheld")
        assert browser.complaints() == [], path


def test_an_address_that_leads_nowhere_says_so_and_leads_back(browser: Any) -> None:
    browser.open("/nope?theme=dark")
    assert browser.text("h1") == "There is no such page"
    # The browser's own word that the answer's status was right, and nothing else.
    said = browser.wait(browser.complaints, "the browser's line of the status")
    assert len(said) == 1 and "/nope" in said[0] and "404" in said[0]
    browser.run("document.querySelector('.empty a').click()")
    browser.until("return document.querySelector(arguments[0]) !== null", LANDMARKS["/"])


def test_a_page_without_its_grids_still_takes_a_source(browser: Any) -> None:
    browser.open("/neighbourhoods?theme=dark&roster=12-way&reader=reader-paper/vast/ur")
    assert browser.run("return document.querySelector('#neighbours-grid')") is None
    browser.run("window.dash_clientside.set_props('near-source', {value: 'gpt_1'})")
    browser.wait(lambda: browser.query().get("source") == "gpt_1", "the source in the link")
    browser.until("return document.querySelector('#pair-first').value === 'gpt-org/gpt-1'")


def test_a_link_opens_the_page_of_a_source(browser: Any) -> None:
    browser.open("/source/gpt_1?theme=light&roster=27-way&k=5&other=qwen_1")
    assert browser.text("h1") == "gpt-org/gpt-1"
    assert "With 5 traces" in browser.text("#source-answer")
    assert {"qwen-org/qwen-1", "gpt-org/gpt-1"} <= set(names(browser, "#soon-graph"))
    assert "qwen-org/qwen-1" in browser.text("#versus")
    browser.wait(lambda: browser.query().get("source") == "gpt_1", "the source in the link")
    browser.run("document.querySelector('#source-k input[value=\"1\"]').click()")
    browser.until("return document.querySelector('#source-answer').innerText.includes('With one trace')")
    assert browser.query()["k"] == "1"
    browser.run("document.querySelector('.kicker a').click()")
    browser.until("const h = document.querySelector('h1'); return h && h.innerText.trim() === 'GPT'")


def test_a_family_page_leads_to_its_members(browser: Any) -> None:
    browser.open("/family/GPT?theme=dark&roster=27-way&k=1")
    assert "4 of 27 sources" in browser.text("#family-facts")
    assert "stay in the family" in browser.text("#family-answer")
    assert "GPT" in names(browser, "#reach-graph") and len(names(browser, "#reach-graph")) == 9
    browser.until("return document.querySelectorAll('#members-grid .ag-center-cols-container [role=row]').length === 4")
    browser.click("#members-grid .ag-center-cols-container a.name-link")
    browser.until("const h = document.querySelector('h1'); return h && h.innerText === 'gpt-org/gpt-1'")
    assert browser.query()["roster"] == "27-way"


def test_two_readers_stand_side_by_side_by_link(browser: Any) -> None:
    readers = urllib.parse.urlencode({"readers": "reader-paper/tiny/ur,ngram-word"})
    browser.open(f"/compare?theme=light&roster=12-way&{readers}")
    assert names(browser, "#curves-graph") == ["Word n-grams, band", "Word n-grams", "READER, band", "READER"]
    chips = browser.run("return [...document.querySelectorAll('.compare .mantine-Pill-label')].map(e => e.innerText)")
    assert len(chips) == 2 and chips[0].startswith("READER") and chips[1] == "Word n-grams"
    browser.click(".questions a[data-choices*='ends']")
    browser.until("return document.querySelector('#ends-place') !== null")
    ends = browser.run(ENDS).replace("\u00a0", " ")
    assert "corrected p = .004" in ends
    browser.click(".tabs a[data-choices*='conditions']")
    browser.until("return document.querySelector('.questions') && location.search.includes('tab=conditions')")
    browser.click(".questions a[data-choices*='every']")
    select_row(browser, "#every-grid", "published")
    browser.wait(lambda: "reader-paper/vast/ur" in browser.query()["readers"], "the third reader in the link")
    browser.click(".tabs a[data-choices*='readers']")
    browser.until("return document.querySelector('#curves-graph .js-plotly-plot') !== null")
    browser.until(
        "const p = document.querySelector('#curves-graph .js-plotly-plot');"
        "return p.data.some(t => t.name.includes('READER · Vast-70B') && t.line.dash === 'dash')"
    )
    browser.run("document.querySelector('#compare-metric input[value=nll]').click()")
    axis = "return document.querySelector('#curves-graph .js-plotly-plot').layout.yaxis.title.text.includes('NLL')"
    browser.until(axis)


def test_the_badge_follows_the_reader(browser: Any) -> None:
    browser.open("/attribution?theme=dark&roster=12-way")
    badge = "return document.querySelector('#figure-folds .origin').textContent"
    assert browser.run(badge) == "Measured here"
    browser.run("window.dash_clientside.set_props('reader', {value: 'reader-paper/vast/ur'})")
    browser.wait(lambda: browser.run(badge) == "Published", "a changed badge")
    assert "origin-published" in browser.run("return document.querySelector('#figure-folds .origin').className")
    # Curves of other readers stand beside it, so that both kinds are drawn there and both are told.
    browser.settled()
    drawn = browser.run("return [...document.querySelectorAll('#figure-budget .origin')].map(e => e.innerText.trim())")
    assert sorted(drawn) == ["Measured here", "Published"]


def test_pages_open_on_a_roster_that_has_results(browser: Any) -> None:
    browser.open("/attribution?theme=dark&roster=27-way&reader=ngram-word")
    browser.until("return document.querySelector('#roster').value.startsWith('12-way')")
    assert "12 sources" in browser.text("#answer") and browser.query()["roster"] == "12-way"


@pytest.mark.parametrize("turn", range(3))
def test_hostile_names_are_text_on_every_page(browser: Any, turn: int) -> None:
    """Every page, with a source selected and another beside it whose names are markup, endless or right to left."""
    labels = list(invented_roster()["label"])[-3:]
    label, other = labels[turn], labels[(turn + 1) % 3]
    name = HOSTILE[turn]
    query = {"source": label, "other": other, "truth": label, "answer": other, "left": label, "right": other}
    link = urllib.parse.urlencode({"theme": "dark", "roster": "27-way", "k": "1", **query})
    for page in PAGES:
        path = page.path.replace("<label>", urllib.parse.quote(label, safe=""))
        path = path.replace("<name>", urllib.parse.quote(MARKUP, safe=""))
        (browser.open if page is PAGES[0] else browser.move)(f"{path}?{link}")
        calm(browser)
        if page.name in ("map", "neighbourhoods", "attribution", "source"):
            text = str(browser.run("return document.body.textContent"))
            fields = browser.run("return [...document.querySelectorAll('input')].map(e => e.value)")
            assert name in text or name in fields
        if page.name == "map":
            card = "const name = document.querySelector('.card-name'); return name && name.textContent === arguments[0]"
            browser.until(card, name)
            families = browser.run("return [...document.querySelectorAll('.legend-name')].map(e => e.textContent)")
            assert MARKUP in families
        if page.name == "neighbourhoods":
            browser.until("return document.querySelectorAll('#pair-answer tbody tr').length === 3")
            tree = "return document.querySelector('#tree-graph .js-plotly-plot').layout.yaxis.ticktext.join()"
            ticks = browser.run(tree)
            assert "&lt;img" in ticks and "<img" not in ticks and RIGHT_TO_LEFT in ticks and ENDLESS not in ticks
        if page.name in ("source", "family"):
            assert browser.run("return document.querySelector('h1').textContent") == (
                name if page.name == "source" else MARKUP
            )
    browser.move("/source/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E?theme=dark")
    assert "There is no such source" in browser.text("h1")
    calm(browser)


def calm(browser: Any) -> None:
    """No markup ran, and nothing pushes the page wide."""
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.run("return document.title") != "owned"
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")

"""What people do with the atlas, in a real Chromium."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from atlas.application import PAGES
from atlas.figures.plots import rate_text
from atlas.theme import THEMES, TOKENS, Theme
from backend.store import queries
from backend.store.database import Generations
from tests.invented_atlas import MARKUP, publish_invented

pytestmark = pytest.mark.browser

SOURCES = 27
FIRST = 7
"""Seed of the generation that is served."""
OPEN = "const o = [...document.querySelectorAll('[role=option]')].filter(e => e.offsetParent);"
CARD = "const name = document.querySelector('.card-name');"
FRONT = "const p = document.querySelector('#map .js-plotly-plot');"
SHOWN = (
    "const shown = p.data.filter(t => t.customdata && t.name !== 'context').flatMap(t => "
    "t.customdata.map(([, family], i) => ({family, colour: t.marker.color[i]})));"
)
QWEN = SHOWN + "return shown.find(one => one.family === 'Qwen').colour"


COLOURS = """
const [picture, done] = arguments, image = new Image();
image.onload = () => {
  const canvas = document.createElement("canvas"), [x, y, w, h] = [380, 200, 260, 400];
  [canvas.width, canvas.height] = [image.width, image.height];
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const bytes = pen.getImageData(x, y, w, h).data, seen = new Set();
  for (let i = 0; i < bytes.length; i += 4) seen.add([0, 1, 2].map(c => bytes[i + c] >> 5).join());
  done(seen.size);
};
image.src = "data:image/png;base64," + picture;
"""
"""Distinct colours, eight steps a channel, in the middle of a screenshot of the map."""

SET_OFF = """
const [before, after, ground, done] = arguments;
const bytes = picture => new Promise(ready => {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    const pen = canvas.getContext("2d");
    pen.drawImage(image, 0, 0);
    ready(pen.getImageData(0, 0, image.width, image.height).data);
  };
  image.src = "data:image/png;base64," + picture;
});
Promise.all([bytes(before), bytes(after)]).then(([one, two]) => {
  let count = 0;
  const away = (pixels, i) => Math.max(...[0, 1, 2].map(c => Math.abs(pixels[i + c] - ground[c])));
  for (let i = 0; i < two.length; i += 4) count += away(one, i) < 8 && away(two, i) > 40;
  done(count);
});
"""
"""Pixels that are of the ground in a screenshot, and set off from it in another one."""


def camera(browser: Any) -> list[float]:
    """Eye, centre and up vector of the scene as it is drawn."""
    return list(
        browser.run(
            FRONT + "const c = p._fullLayout.scene.camera;return [c.eye, c.center, c.up].flatMap(v => [v.x, v.y, v.z])"
        )
    )


def selected_at(browser: Any) -> list[float]:
    return list(
        browser.until(
            FRONT + "const t = p.data.find(t => t.name === 'selected'); return t.x.length && [t.x[0], t.y[0]]"
        )
    )


def choose(browser: Any, control: str, value: str) -> None:
    """Press one part of a segmented control of the map."""
    browser.click(f"#{control} input[value='{value}']")


def turn(browser: Any, eye: tuple[float, float, float]) -> None:
    """Turn the scene as a drag does: Plotly then reports the camera."""
    browser.run(
        FRONT + "const c = JSON.parse(JSON.stringify(p._fullLayout.scene.camera));"
        "[c.eye.x, c.eye.y, c.eye.z] = arguments[0];"
        "Plotly.relayout(p, {'scene.camera': c});",
        list(eye),
    )


def test_the_map_shows_every_source_and_its_legend_isolates_families(browser: Any) -> None:
    browser.open("/?theme=dark")
    points = [
        t
        for t in browser.traces("#map")
        if t["name"] not in ("links", "own links", "pair link", "nearest", "second", "selected", "labels")
    ]
    assert sum(trace["n"] for trace in points) == SOURCES
    browser.until(FRONT + "return p.querySelector('canvas') !== null")
    picture = browser.driver.find_element(By.ID, "map").screenshot_as_base64
    assert browser.driver.execute_async_script(COLOURS, picture) > 4
    assert "27 sources" in browser.text(".map-title .sentence")

    # The legend counts and isolates.
    qwen = browser.run(
        "return [...document.querySelectorAll('.legend-row')].map(r => r.innerText.replace(/\\s+/g, ' '))"
    )
    assert qwen[0] == "Qwen 9 / 9"
    browser.run("[...document.querySelectorAll('.legend-row')].find(r => r.innerText.startsWith('GPT')).click()")
    browser.until(FRONT + "return p.data.find(t => t.name === 'context').x.length === 23")
    assert browser.run(FRONT + SHOWN + "return shown.map(one => one.family)") == ["GPT"] * 4
    assert browser.query()["families"] == "GPT"
    browser.until("return document.querySelector('.legend-row[aria-pressed=true]').innerText.startsWith('GPT')")
    browser.run("[...document.querySelectorAll('button')].find(b => b.innerText === 'Show all').click()")
    browser.until(FRONT + "return p.data.find(t => t.name === 'context').x.length === 0")
    assert "families" not in browser.query()


def test_search_by_keyboard_selects_and_fills_the_card(browser: Any) -> None:
    browser.open("/?theme=dark")
    browser.driver.find_element(By.TAG_NAME, "body").send_keys("/")
    field = browser.driver.switch_to.active_element
    assert field.get_attribute("id") == "search"
    field.send_keys("claude-2")
    browser.until("return [...document.querySelectorAll('[role=option]')].some(o => o.innerText.includes('claude-2'))")
    field.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    browser.until(CARD + "return name && name.textContent === 'claude-org/claude-2'")
    assert browser.query()["source"] == "claude_2"
    assert len(browser.driver.find_elements(By.CSS_SELECTOR, "#card button.near-row:not(.confused-row)")) == 5
    assert selected_at(browser)
    first = browser.until("return document.querySelector('#card button.near-row .name').title")
    browser.click("#card button.near-row")
    browser.until(CARD + "return name && name.textContent === arguments[0]", first)


def test_the_search_key_works_after_a_segmented_control(browser: Any) -> None:
    browser.open("/?theme=dark&roster=12-way")
    browser.driver.find_element(By.CSS_SELECTOR, "#projection input[value=pca] + label").click()
    browser.until("return document.activeElement.matches('#projection input')")
    browser.driver.switch_to.active_element.send_keys("/")
    assert browser.driver.switch_to.active_element.get_attribute("id") == "search"
    browser.settled()


def test_projection_and_reader_switches_keep_selection_and_camera(browser: Any) -> None:
    browser.open("/?theme=dark&source=gpt_1")
    turn(browser, (0.4, -1.6, 0.9))
    browser.wait(lambda: "camera" in browser.query(), "the camera in the link")
    turned = camera(browser)
    assert turned[:3] == [0.4, -1.6, 0.9]
    before = selected_at(browser)
    browser.run("document.querySelector('#projection input[value=umap]').click()")
    browser.until(
        FRONT + "const t = p.data.find(t => t.name === 'selected'); return t.x[0] !== arguments[0]", before[0]
    )
    assert camera(browser) == turned
    assert browser.query()["source"] == "gpt_1"
    assert "gpt-org/gpt-1" in browser.text(".card-name")
    browser.run("document.querySelector('#dim input[value=\"2\"]').click()")
    browser.until(FRONT + "return p.data[0].type === 'scatter'")
    browser.run("document.querySelector('#dim input[value=\"3\"]').click()")
    browser.until(FRONT + "return p.data[0].type === 'scatter3d' && !!p._fullLayout.scene")
    assert camera(browser) == pytest.approx(turned, abs=0.001)
    assert "gpt-org/gpt-1" in browser.text(".card-name")
    before = selected_at(browser)
    browser.run("window.dash_clientside.set_props('domain', {value: 'math100'})")
    browser.until(
        FRONT + "const t = p.data.find(t => t.name === 'selected'); return t.x[0] !== arguments[0]", before[0]
    )
    assert camera(browser) == pytest.approx(turned, abs=0.001) and browser.query()["source"] == "gpt_1"
    canvases = browser.run("return document.querySelectorAll('#map .gl-container canvas').length")
    assert canvases <= 1


def test_a_deep_link_reopens_the_view(browser: Any) -> None:
    browser.open(
        "/?theme=light&roster=12-way&domain=math100&projection=pca&dim=3&source=gpt_1&families=GPT,Qwen&links=off"
        "&camera=0.3,1.9,0.4,0,0,0,0,0,1"
    )
    browser.until("return document.querySelector('#roster').value.startsWith('12-way')")
    assert browser.run("return document.documentElement.dataset.theme") == "light"
    assert "12 sources" in browser.text(".map-title .sentence")
    assert camera(browser) == [0.3, 1.9, 0.4, 0, 0, 0, 0, 0, 1]
    assert browser.run("return document.querySelector('#projection input:checked').value") == "pca"
    assert browser.run("return [...document.querySelectorAll('.legend-row[aria-pressed=true]')].length") == 2
    browser.wait(lambda: browser.query().get("camera") == "0.3,1.9,0.4,0,0,0,0,0,1", "an unchanged link")
    assert browser.query()["links"] == "off"


def test_both_domains_on_one_map_and_outlines_on_a_flat_one(browser: Any) -> None:
    browser.open("/?theme=dark&roster=12-way&source=gpt_1")
    turn(browser, (0.4, -1.6, 0.9))
    browser.wait(lambda: "camera" in browser.query(), "the camera in the link")
    browser.run("document.querySelector('#space input[value=centred]').click()")
    browser.until(FRONT + "return p.data.some(t => / Math100$/.test(t.name) && t.x.length)")
    assert browser.query()["space"] == "centred" and camera(browser)[:3] == [0.4, -1.6, 0.9]
    assert {trace["name"]: trace["n"] for trace in browser.traces("#map")}["own links"] == 3
    assert "in both domains" in browser.text(".map-title .sentence")
    browser.run("document.querySelector('#projection input[value=pca]').click()")
    browser.until("return document.querySelector('#map-stage .empty') !== null")
    assert "no 3-D PCA map of both domains" in browser.text("#map-stage .empty")
    browser.run("document.querySelector('#projection input[value=tsne]').click()")
    browser.until(FRONT + "return p.data.length && p.layout.scene.aspectmode === 'cube'")
    assert camera(browser)[:3] == [0.4, -1.6, 0.9]
    browser.move("/?theme=dark&roster=12-way&dim=2&regions=families")
    browser.until(FRONT + "return p.layout.shapes.length === 1")
    browser.run("document.querySelector('#regions input[value=off]').click()")
    browser.until(FRONT + "return !p.layout.shapes.length")
    assert "regions" not in browser.query()


@pytest.mark.parametrize("theme", THEMES)
def test_lines_between_sources_are_seen(browser: Any, theme: Theme) -> None:
    ground = [int(TOKENS[theme]["ground"][at : at + 2], 16) for at in (1, 3, 5)]
    lines = FRONT + "return p.data.find(t => t.name === 'links').x.length > 0"

    def picture() -> str:
        return str(browser.driver.find_element(By.ID, "map").screenshot_as_base64)

    def at_rest(deep: int) -> str | bool:
        """A picture of what has been drawn, which another one equals; a scene is drawn later than its figure stands."""
        seen = picture()
        drawn = deep == 2 or browser.driver.execute_async_script(COLOURS, seen) > 4
        return drawn and seen == picture() and seen

    def set_off(before: str) -> bool:
        return int(browser.driver.execute_async_script(SET_OFF, before, picture(), ground)) > 500

    browser.open(f"/?theme={theme}&roster=27-way&links=off&dim=3")
    for space, deep in (("one", 3), ("centred", 3), ("one", 2)):
        choose(browser, "space", space)
        browser.until(FRONT + "return p.data.some(t => /, Math100$/.test(t.name)) === arguments[0]", space == "centred")
        choose(browser, "dim", str(deep))
        browser.until(FRONT + "return p.data[0].type === arguments[0]", "scatter3d" if deep == 3 else "scatter")
        browser.until(FRONT + "return p.querySelector('canvas, .points path') !== null")
        browser.settled()
        before = browser.wait(functools.partial(at_rest, deep), "a map without lines")
        choose(browser, "links", "all")
        browser.until(lines)
        browser.wait(functools.partial(set_off, before), "lines in sight")
        choose(browser, "links", "off")
        browser.wait(lambda: not browser.run(lines), "a map without lines again")


def test_clusters_are_drawn_counted_and_listed(browser: Any) -> None:
    sentence = "return document.querySelector('.map-title .sentence').textContent.includes(arguments[0])"
    browser.open("/?theme=dark&roster=27-way&projection=umap&regions=clusters")
    assert browser.run(FRONT + "return p.data.some(t => t.name === 'clusters' && t.type === 'scatter3d' && t.x.length)")
    browser.until(sentence, "2 clusters hold 19 of them")
    browser.run("document.querySelector('#dim input[value=\"2\"]').click()")
    browser.until(sentence, "No cluster is dense enough")
    browser.run("document.querySelector('#projection input[value=tsne]').click()")
    browser.until(sentence, "2 clusters hold 23 of them")
    browser.until(FRONT + "return p.layout.shapes.length === 2")
    browser.run("document.querySelector('#regions input[value=off]').click()")
    browser.until(FRONT + "return !p.layout.shapes.length")
    assert "cluster" not in browser.text(".map-title .sentence")


def test_a_second_source_stands_beside_the_first(browser: Any) -> None:
    browser.open("/?theme=dark&roster=12-way&source=gpt_1&other=claude_1")
    rows = "return [...document.querySelectorAll('#card .beside tbody tr')].map(r => r.textContent)"
    assert len(browser.run(rows)) == 3
    assert "claude-org/claude-1" in browser.text("#card")
    assert {trace["name"]: trace["n"] for trace in browser.traces("#map")}["second"] == 1
    browser.run("[...document.querySelectorAll('#card a')].find(a => a.innerText.includes('in full')).click()")
    browser.until("return document.querySelector('#versus') !== null")
    assert browser.query()["other"] == "claude_1"
    browser.settled()


def test_the_map_turns_until_it_is_told_to_stop(browser: Any) -> None:
    browser.open("/?theme=dark&roster=12-way")
    still = camera(browser)
    browser.click("#turn")
    browser.wait(lambda: camera(browser)[0] != still[0], "a turned scene")
    assert "camera" not in browser.query()
    browser.click("#turn")
    browser.wait(lambda: "camera" in browser.query(), "where it stopped in the link")
    stopped = camera(browser)
    assert (
        stopped[2] == pytest.approx(still[2])
        and browser.run("return document.querySelector('#turn').getAttribute('aria-pressed')") == "false"
    )


def test_the_theme_switch_recolours_the_figure_and_stays(browser: Any) -> None:
    browser.open("/?theme=dark")
    dark = browser.run(FRONT + QWEN)
    browser.click("#theme-toggle")
    browser.until("return document.documentElement.dataset.theme === 'light'")
    browser.until(FRONT + QWEN + " !== arguments[0]", dark)
    assert browser.query()["theme"] == "light"
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 249)"
    browser.click("#theme-toggle")


def test_back_keeps_the_theme_that_was_chosen_since(browser: Any) -> None:
    browser.open("/?theme=dark&roster=12-way")
    browser.click("#nav-attribution")
    browser.until("return document.querySelector('#budget-graph .main-svg') !== null")
    browser.click("#theme-toggle")
    browser.until("return new URL(location.href).searchParams.get('theme') === 'light'")
    browser.run("history.back()")
    browser.until("return document.querySelector('#map .main-svg') !== null")
    browser.settled()
    assert browser.query()["theme"] == browser.run("return document.documentElement.dataset.theme") == "light"
    light = browser.run(FRONT + QWEN)
    browser.click("#theme-toggle")
    browser.until(FRONT + QWEN + " !== arguments[0]", light)


def test_a_link_to_a_flat_map_reopens_what_was_seen(browser: Any) -> None:
    browser.open("/?theme=dark&roster=12-way&dim=2")
    edges = FRONT + "return p._fullLayout.xaxis.range"
    # Again and again, a little further each time: a figure is drawn before anybody listens to it, then fills its frame,
    # and a move to where it has been told to be is no news. Equal scales widen what is asked about its middle.
    moved = "Plotly.relayout(p, {'xaxis.range[0]': -0.5 - Math.random() / 100, 'xaxis.range[1]': 0.25}); "
    held = "const [left, right] = (new URL(location.href).searchParams.get('camera') || '').split(','); "
    middle = "return Math.abs((+left + +right) / 2 + 0.125) < 0.01"
    browser.until(FRONT + moved + held + middle)
    seen, link = browser.run(edges), browser.run("return location.search")
    browser.open("/" + link)
    assert browser.run(edges) == pytest.approx(seen, abs=0.05)
    browser.click("#reset-camera")
    browser.until("return !new URL(location.href).searchParams.has('camera')")


def test_navigation_carries_the_choices(browser: Any) -> None:
    browser.open("/?theme=dark&roster=12-way&source=gpt_1")
    browser.until("return document.querySelector('#nav-attribution').getAttribute('href').includes('roster=12-way')")
    browser.click("#nav-attribution")
    browser.until("return document.querySelector('#budget-graph .main-svg') !== null")
    assert browser.query()["roster"] == "12-way"
    assert "12 sources" in browser.text("#answer")
    assert browser.run("return document.querySelector('#nav-attribution').classList.contains('here')")
    browser.driver.back()
    browser.until("return document.querySelector('#map .main-svg') !== null")
    assert "gpt-org/gpt-1" in browser.text(".card-name")


def test_budget_metric_and_roster_change_the_attribution_page(browser: Any) -> None:
    browser.open("/attribution?theme=dark")
    before = browser.text("#answer")
    assert "With 20 traces" in before
    browser.run("document.querySelector('#k input[value=\"1\"]').click()")
    browser.until("return document.querySelector('#answer').innerText.includes('With one trace')")
    assert browser.query()["k"] == "1"
    browser.until("return document.querySelector('#figure-confusion .sentence').innerText.includes('at one trace')")
    browser.run("document.querySelector('#metric input[value=nll]').click()")
    axis = "return document.querySelector('#budget-graph .js-plotly-plot').layout.yaxis.title.text.includes('NLL')"
    browser.until(axis)
    names = [trace["name"] for trace in browser.traces("#budget-graph")]
    assert "mean evidence" in {name.rpartition(", ")[2] for name in names}


def test_confusion_zoom_and_click(browser: Any) -> None:
    browser.open("/attribution?theme=dark&k=1")
    plot = "const p = document.querySelector('#confusion-graph .js-plotly-plot');"
    assert len(browser.run(plot + "return p.data[0].y")) == SOURCES
    field = browser.driver.find_element(By.ID, "zoom")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", field)
    field.click()
    browser.until(OPEN + "return o.some(e => e.innerText.startsWith('Qwen'))")
    browser.run(OPEN + "o.find(e => e.innerText.startsWith('Qwen')).click()")
    browser.until(plot + "return p.data[0].y.length === 9 && p.data[0].x.length === 10")
    assert browser.query()["zoom"] == "Qwen"
    # A real click in the middle of the cell of the first row and second column.
    browser.settled()
    browser.run("document.querySelector('#confusion-graph').scrollIntoView({block: 'start'})")
    x, y = browser.run(
        plot + "const l = p._fullLayout, b = p.getBoundingClientRect();"
        "return [b.left + l.xaxis._offset + l.xaxis.c2p(1), b.top + l.yaxis._offset + l.yaxis.c2p(0)]"
    )
    hand = ActionBuilder(browser.driver)
    hand.pointer_action.move_to_location(round(x) - 3, round(y)).move_to_location(round(x), round(y)).click()
    hand.perform()
    browser.until("return document.querySelectorAll('#pair tbody tr').length === 6")
    heads = browser.run("return [...document.querySelectorAll('#pair .pair-heads .name')].map(e => e.textContent)")
    assert heads == ["qwen-org/qwen-1", "qwen-org/qwen-2"]
    assert browser.query()["truth"] == "qwen_1" and browser.query()["answer"] == "qwen_2"
    assert browser.run(plot + "return p.layout.shapes.length") == 1


def ask(served: Any, question: Any, *arguments: Any) -> Any:
    """Answer of the generation that is being served."""
    with Generations(served.data).current().cursor() as cursor:
        return question(cursor, *arguments)


def test_table_view_and_csv(browser: Any, served: Any, downloads: Path) -> None:
    browser.open("/attribution?theme=dark")
    height = browser.run("return document.querySelector('#figure-budget').offsetHeight")
    browser.click("#figure-budget .tool[aria-pressed]")
    rows = "return document.querySelectorAll('#figure-budget .ag-center-cols-container [role=row]').length"
    browser.wait(lambda: browser.run(rows) == 6, "six budgets in the table")
    assert browser.run("return document.querySelector('#figure-budget').offsetHeight") == height
    browser.run("[...document.querySelectorAll('#figure-confusion .tool')].find(b => b.innerText === 'CSV').click()")
    found = browser.wait(lambda: sorted(downloads.glob("atlas_confusion*.csv")), "a downloaded CSV")
    with found[0].open(encoding="utf-8", newline="") as stream:
        table = list(csv.DictReader(stream))
    # What was downloaded is what the store holds, cell by cell.
    stored = ask(served, queries.confusion, "reader-paper/tiny/ur", "27-way", 20, "agent500")
    cells = {(row["truth"], row["predicted"]): (int(row["count"]), float(row["share"])) for row in table}
    assert len(cells) == len(table) == len(stored)
    for row in stored.itertuples(index=False):
        assert cells[row.truth, row.predicted] == (row.count, pytest.approx(row.share))
    assert MARKUP in {row["truth_name"] for row in table}
    # And the table of the curve shows the stored accuracy to three digits.
    curve = ask(
        served, queries.metric_curve, "reader-paper/tiny/ur", "27-way", "agent500", "clean", "accuracy", "pooled"
    )
    texts = browser.run(
        "return [...document.querySelectorAll('#figure-budget .ag-center-cols-container [role=row]')].map(r => "
        "['k', 'value'].map(c => r.querySelector(`[col-id=${c}]`).textContent))"
    )
    expected = [[str(k), rate_text(value)] for k, value in zip(curve["k"], curve["value"], strict=True)]
    assert sorted(texts, key=lambda pair: int(pair[0])) == expected
    browser.run("[...document.querySelectorAll('#figure-budget .tool')].find(b => b.innerText.includes('How')).click()")
    browser.until("return document.querySelector('.made .command') !== null")
    assert "python -m tests.invented_atlas" in browser.text(".made .command")


def test_methods_lists_the_builds(browser: Any) -> None:
    browser.open("/methods?theme=light")
    browser.until("return document.querySelectorAll('#builds-grid .ag-center-cols-container [role=row]').length === 2")
    # The grid is below what is seen, where there is no innerText.
    assert "invented" in browser.run(
        "return document.querySelector('#builds-grid .ag-center-cols-container').textContent"
    )


TOP = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
APART = (
    "const parts = [...document.querySelectorAll(arguments[0])].map(e => e.getBoundingClientRect());"
    "const after = (a, b) => a.right <= b.left || a.bottom <= b.top;"
    "return parts.every((a, i) => parts.every((b, j) => i >= j || after(a, b) || after(b, a)))"
)


PATHS = [page.path.replace("<label>", "gpt_1").replace("<name>", "GPT") for page in PAGES]


@pytest.mark.slow(25)
@pytest.mark.usefixtures("sized")
def test_pages_fit_their_window(browser: Any) -> None:
    """A page is opened on a telephone, and its window then made wider and wider."""
    for path in PATHS:
        for width, height in ((390, 844), (820, 1180), (1280, 800), (1920, 1080)):
            browser.resize(width, height)
            if width == 390:
                (browser.open if path == "/" else browser.move)(f"{path}?theme=light&source=gpt_1")
            browser.until("return document.documentElement.scrollWidth <= window.innerWidth")
            browser.settled()
            assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), (path, width)
            assert browser.run(APART, ".bar .choice, .bar .icon-button"), (path, width)
            if path == "/":
                assert browser.run(APART, ".legend, .map-side, .projector, .map-title"), width
            if path == "/" and width == 390:  # the chosen source is read under the map, then what the colours stand for
                places = [browser.run(TOP, part) for part in (".map-stage", ".map-side > .card", ".legend")]
                assert places == sorted(places)
                assert browser.run("return document.querySelector('.legend-row').checkVisibility()")
                assert not browser.run("return document.querySelector('.legend-foot').checkVisibility()")


def test_a_reader_is_found_by_words_in_any_order(browser: Any) -> None:
    browser.open("/attribution?theme=dark&roster=12-way")
    field = browser.driver.find_element(By.ID, "reader")
    field.click()
    groups = browser.until(
        "const g = [...document.querySelectorAll('.mantine-Select-groupLabel')].filter(e => e.offsetParent)"
        ".map(e => e.innerText);"
        "return g.length > 1 && g"
    )
    few = "12-way only"  # readers with numbers for one of the rosters say so
    assert groups == [
        "Measured here · READER", f"Measured here · Baselines · {few}", f"Published · READER · {few}"
    ]  # fmt: skip
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(Keys.BACKSPACE, "published vast")
    options = "return [...document.querySelectorAll('[role=option]')].filter(o => o.offsetParent).map(o => o.innerText)"
    browser.wait(lambda: len(browser.run(options)) == 1, "one reader")
    assert "Vast-70B" in browser.run(options)[0]
    field.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    browser.wait(lambda: browser.query().get("reader") == "reader-paper/vast/ur", "the reader in the link")
    browser.click("#nav-map")
    browser.until("return document.querySelector('#link-note').innerText.includes('has no map of 12-way')")
    assert len(browser.traces("#map")) > 3


def test_two_sources_are_compared_by_keyboard(browser: Any) -> None:
    browser.open("/source/gpt_1?theme=dark&roster=12-way&k=1")
    field = browser.driver.find_element(By.ID, "source-other")
    field.click()
    field.send_keys("claude-1")
    browser.until("return [...document.querySelectorAll('[role=option]')].some(o => o.innerText.includes('claude-1'))")
    field.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    browser.wait(lambda: browser.query().get("other") == "claude_1", "the second source in the link")
    browser.until("return document.querySelector('#versus').innerText.includes('claude-org/claude-1')")
    browser.until(
        "const names = document.querySelector('#soon-graph .js-plotly-plot').data.map(t => t.name);"
        "return names.includes('claude-org/claude-1') && names.includes('gpt-org/gpt-1')"
    )


@pytest.fixture
def publish(served: Any) -> Iterator[Callable[[int], None]]:
    """Publishes a generation by its seed. The first one is served again after the test: others rely on its points."""
    seeds = [FIRST]

    def given(seed: int) -> None:
        seeds.append(seed)
        publish_invented(served.data, seed=seed)

    yield given
    if seeds[-1] != FIRST:
        given(FIRST)


def test_generations_are_published_while_a_map_and_numbers_are_open(
    browser: Any, publish: Callable[[int], None]
) -> None:
    browser.open("/?theme=dark&roster=12-way&source=gpt_1")
    browser.click("#figure-map .tool[aria-pressed]")
    browser.until("return document.querySelectorAll('#figure-map .ag-center-cols-container [role=row]').length > 0")
    before = selected_at(browser)
    publish(31)
    browser.run("document.querySelector('#projection input[value=pca]').click()")
    browser.until(
        FRONT + "const t = p.data.find(t => t.name === 'selected'); return t.x.length && t.x[0] !== arguments[0]",
        before[0],
    )
    browser.settled()
    assert browser.run("return document.querySelector('#trouble').innerText") == ""
    assert "gpt-org/gpt-1" in browser.text(".card-name")
    assert browser.run("return document.querySelectorAll('#figure-map .ag-root').length") == 1

    browser.open("/attribution?theme=dark")
    answer = browser.text("#answer strong")
    publish(FIRST)
    browser.run("document.querySelector('#k input[value=\"50\"]').click()")
    browser.until("return document.querySelector('#answer').innerText.includes('With 50 traces')")
    browser.run("document.querySelector('#k input[value=\"20\"]').click()")
    browser.until("return document.querySelector('#answer').innerText.includes('With 20 traces')")
    assert browser.text("#answer strong") != answer


def test_a_source_is_found_by_makers_typos_and_other_punctuation(browser: Any) -> None:
    browser.open("/?theme=dark&roster=27-way")
    field = browser.driver.find_element(By.ID, "search")
    field.click()
    for typed, name in (
        ("openai gpt 2", "gpt-org/gpt-2"), ("cluade 2", "claude-org/claude-2"), ("Gpt2", "gpt-org/gpt-2"),
    ):  # fmt: skip
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(typed)
        names = browser.run(OPEN + "return o.map(e => e.innerText)")
        assert name in names and len(names) < 4
    near = "return document.body.innerText.includes('No such name; near:')"
    assert not browser.run(near)
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("claude-2.7")
    browser.until(near)
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("zzzz qqq")
    browser.until("return document.body.innerText.includes('No source has this name')")
    field.send_keys(Keys.ESCAPE)
    browser.settled()

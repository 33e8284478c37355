"""Names, lasso, history and lists of the map, and two tasks of a researcher, in a real Chromium."""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.test_accessibility import axe, themed, violations

__all__ = ["axe"]
pytestmark = pytest.mark.browser

PLOT = "const p = document.querySelector('#map .js-plotly-plot');"
NAMES = "return [...document.querySelectorAll('#names .name-at')].map(e => [e.className, e.textContent, "
NAMES += "...['left', 'top', 'right', 'bottom'].map(side => e.getBoundingClientRect()[side])])"
SHIFTS = (
    "window.shift = 0; new PerformanceObserver(list => list.getEntries().forEach(e => { if (!e.hadRecentInput) "
    "window.shift += e.value; })).observe({type: 'layout-shift', buffered: true});"
)
MIDDLES = (
    PLOT + "const box = p.getBoundingClientRect(), {xaxis, yaxis} = p._fullLayout;"
    "return p.data.filter(t => t.customdata).flatMap(t => t.x.map((x, i) => [t.customdata[i][1], "
    "box.left + xaxis._offset + xaxis.l2p(x), box.top + yaxis._offset + yaxis.l2p(t.y[i])]))"
    ".filter(([family]) => arguments[0].includes(family)).map(([, ...place]) => place)"
)


class Person:
    """Somebody with a mouse, whose clicks are counted."""

    def __init__(self, browser: Any) -> None:
        self.browser, self.clicks = browser, 0

    def click(self, selector: str) -> None:
        self.browser.until("return document.querySelector(arguments[0]) !== null", selector)
        self.browser.driver.find_element(By.CSS_SELECTOR, selector).click()
        self.clicks += 1

    def type(self, text: str) -> None:
        self.browser.driver.switch_to.active_element.send_keys(text)

    def draw(self, corners: list[tuple[float, float]]) -> None:
        """One stroke through places of the window."""
        body = self.browser.driver.find_element(By.TAG_NAME, "html")
        width, height = self.browser.run("return [innerWidth, innerHeight]")
        for number, (x, y) in enumerate([*corners, corners[0]]):
            chain = ActionChains(self.browser.driver, duration=60)
            chain.move_to_element_with_offset(body, round(x - width / 2), round(y - height / 2))
            if number == 0:
                chain.click_and_hold()
            chain.perform()
            # A busy window joins moves that it has not drawn, and a corner would be lost.
            self.browser.run("return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        ActionChains(self.browser.driver).release().perform()
        self.clicks += 1


@pytest.fixture
def person(browser: Any) -> Iterator[Person]:
    yield Person(browser)


KEPT = "return JSON.parse(sessionStorage.getItem('atlas-map') || '[]').some(([name, value]) => name + '=' + value === "
KEPT += "arguments[0])"


def open_at_rest(browser: Any, path: str) -> None:
    """Open a flat map and wait for its names, the whole link, and what counts as the start of all steps back."""
    forget = "if (location.protocol === 'http:') sessionStorage.removeItem('atlas-map')"
    script = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": forget})
    browser.open(path)
    browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    browser.until("return document.querySelectorAll('#names .name-at').length > 0")
    browser.wait(lambda: {"reader", "domain"} <= set(browser.query()), "the reader in the link")
    browser.until(KEPT, "dim=2")
    browser.settled()


INSIDE = (
    "const [part, whole] = [...arguments].map(one => document.querySelector(one)?.getBoundingClientRect());"
    "return part && whole && part.top >= whole.top && part.bottom <= whole.bottom && whole.bottom <= innerHeight"
)
WINDOW = (1366, 757)


def overlap(one: list[Any], other: list[Any]) -> bool:
    return one[2] < other[4] and other[2] < one[4] and one[3] < other[5] and other[3] < one[5]


def test_what_the_pointer_is_on_is_read_over_the_names(browser: Any) -> None:
    open_at_rest(browser, "/?theme=dark&roster=27-way&dim=2")
    above = "const s = document.querySelector('#map .hoverlayer').parentElement, n = document.querySelector('#names');"
    above += "return [s, n].map(one => +getComputedStyle(one).zIndex)"
    box, names = browser.run(above)
    assert box > names > 0
    assert browser.run(above.replace("zIndex", "pointerEvents").replace("+get", "get")) == ["none", "none"]


def test_three_models_that_write_alike_are_found_explained_and_exported(person: Person, downloads: Path) -> None:
    browser = person.browser
    browser.open("/?theme=dark&roster=27-way")
    browser.run(SHIFTS)
    person.click("#search")
    person.type("gpt-1" + Keys.ARROW_DOWN + Keys.ENTER)
    browser.until("return document.querySelectorAll('#card .near-line').length === 5")
    person.click("#card .near-line .why")
    browser.until("return document.querySelectorAll('#card .beside tbody tr').length === 3")
    browser.until("return document.querySelectorAll('#axis .strip-dot').length === 27")
    assert "On this map, cosine" in browser.text("#card")
    assert re.search(
        r"\d of 3 readers ha(s|ve) gpt-org/gpt-\d among the 10 nearest of gpt-org/gpt-1\.", browser.text("#card")
    )
    assert " They are alike in " in browser.text("#card")
    browser.until(INSIDE, ".pair-head", ".map-side > .card")
    browser.until(INSIDE, "#card-pair", ".map-side > .card")
    person.click("#figure-map-pair .tool")
    (found,) = browser.wait(lambda: list(downloads.glob("atlas_map-pair_gpt_1_*.csv")), "a CSV of the two")
    assert found.read_text(encoding="utf-8").count("gpt_1,") == 3
    browser.run("document.querySelector('#figure-map-nearest').scrollIntoView()")
    person.click("#figure-map-nearest .tool")

    def written() -> list[Path]:
        return [file for file in downloads.glob("atlas_map-nearest*.csv") if file.stat().st_size]

    (found,) = browser.wait(written, "a downloaded CSV with its rows")
    with found.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    shown = browser.run("return [...document.querySelectorAll('#card .near-line .name')].map(e => e.title)")
    assert [row["name"] for row in rows] == shown and len(rows) == 5 and float(rows[0]["cosine"]) > 0
    assert person.clicks <= 6
    assert browser.run("return window.shift") <= 0.05


def test_a_cluster_is_lassoed_and_compared_with_chance(person: Person) -> None:
    browser = person.browser
    open_at_rest(browser, "/?theme=dark&roster=27-way&dim=2")
    browser.run(SHIFTS)
    person.click("#lasso")
    browser.until(PLOT + "return p._fullLayout.dragmode === 'lasso'")
    places = browser.run(MIDDLES, ["GPT"])
    left, right = min(x for x, _ in places) - 14, max(x for x, _ in places) + 14
    top, bottom = min(y for _, y in places) - 14, max(y for _, y in places) + 14
    person.draw([(left, top), (right, top), (right, bottom), (left, bottom)])
    browser.until("return document.querySelector('#chosen-content .mix') !== null")
    assert person.clicks <= 4
    chosen = browser.wait(lambda: browser.query().get("chosen"), "the selection in the link").split(",")
    assert {"gpt_1", "gpt_2", "gpt_3", "gpt_4"} <= set(chosen) and len(chosen) < 27
    assert "where chance gives" in browser.text("#chosen-content")
    grey = PLOT + "return p.data.find(t => t.name === 'context').x.length"
    browser.until(grey + " === arguments[0]", 27 - len(chosen))
    browser.until(PLOT + "return p._fullLayout.dragmode === 'pan' && !(p.layout.selections || []).length")
    names = browser.run("return [...document.querySelectorAll('.chosen-row .name')].map(e => e.textContent)")
    assert len(names) == len(chosen)
    assert browser.run("return window.shift") <= 0.05
    browser.driver.back()
    browser.until(grey + " === 0")
    assert "chosen" not in browser.query()


SAVED = "HTMLAnchorElement.prototype.click = function () {"
SAVED += " window.saved = [this.download, decodeURIComponent(this.href)]; }"


def test_a_picture_says_what_is_drawn(browser: Any) -> None:
    def saved(figure: str, kind: str) -> tuple[str, str]:
        browser.run("window.saved = null; " + SAVED)
        browser.click(f".tool[id*='\"{figure}\"'][id*={kind}]")
        name, picture = browser.until("return window.saved")
        return name, picture

    def words(picture: str) -> str:
        return html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)", picture))).replace("\u00a0", " ")

    browser.open("/?theme=light&roster=27-way&dim=2&source=gpt_1")
    browser.until("return document.querySelectorAll('#names .near').length > 0")
    generation = browser.run("return document.querySelector('[data-generation]').dataset.generation")
    name, picture = saved("map", "svg")
    assert name == f"atlas_map_27-way_agent500_{generation}.svg" and "@font-face" in picture
    for part in ("27 sources as seen by", "27-way", "Agent500", "t-SNE in 2-D", generation):
        assert part in words(picture)
    near = browser.run("return [...document.querySelectorAll('#card .near-line .name')].map(e => e.title)")
    below = words(picture).partition("Nearest of")[2]
    assert near and all(f"{rank} {one}" in below for rank, one in enumerate(near, 1))
    families = browser.run("return [...document.querySelectorAll('.legend-name')].map(e => e.textContent)")
    listed = re.findall(r'class="legendtext"[^>]*>([^<]*)', picture)
    assert set(families) <= set(map(html.unescape, listed))
    browser.run("window.dash_clientside.set_props('colour', {value: 'accuracy'})")
    browser.until("return document.querySelector('#scale .scale-bar') !== null")
    picture = saved("map", "svg")[1]
    assert "linearGradient" in picture and "Colour: Accuracy" in words(picture)
    listed = re.findall(r'class="legendtext"[^>]*>([^<]*)', picture)
    assert set(families) <= set(map(html.unescape, listed))  # marks keep the shapes of families
    browser.run("window.dash_clientside.set_props('released', {data: '2025-03..2026-06'})")
    browser.until("return document.querySelector('#undated p') !== null")
    assert "Shown: dated 2025-03 to 2026-06; faint:" in words(saved("map", "svg")[1])
    browser.open("/attribution?theme=light&roster=27-way")
    browser.until("return document.querySelector('#budget-graph .main-svg') !== null")
    title = browser.text("#title-budget")
    name, picture = saved("budget", "svg")
    assert name == f"atlas_budget_27-way_agent500_{generation}.svg"
    assert all(part in words(picture) for part in (title, "27-way", "n = ", generation))
    assert saved("budget", "png")[1].startswith("data:image/png;base64,")


def test_a_cluster_is_selected_by_keyboard_alone(browser: Any, downloads: Path) -> None:
    browser.open("/?theme=dark&roster=27-way&dim=2")
    browser.driver.find_element(By.ID, "group").send_keys("Cluster 1", Keys.ARROW_DOWN, Keys.ENTER)
    browser.until("return document.querySelector('#chosen-content .mix') !== null")
    count = len(browser.query()["chosen"].split(","))
    browser.driver.find_element(By.CSS_SELECTOR, "#figure-selection .tool").send_keys(Keys.ENTER)
    (found,) = browser.wait(lambda: sorted(downloads.glob("atlas_selection*.csv")), "a downloaded CSV")
    with found.open(encoding="utf-8", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == count
    browser.driver.find_element(By.ID, "unchoose").send_keys(Keys.ENTER)
    browser.until("return document.querySelector('#chosen-content').childElementCount === 0")
    assert "chosen" not in browser.query()


@pytest.mark.usefixtures("sized")
def test_a_selection_leaves_the_source_readable_and_its_own_end_in_reach(browser: Any) -> None:
    browser.resize(*WINDOW)
    browser.open("/?theme=dark&roster=27-way&dim=2&source=gpt_1")
    everyone = browser.run("return [...document.querySelectorAll('#map .js-plotly-plot')][0].data")
    chosen = [place[0] for trace in everyone for place in trace.get("customdata", [])]
    browser.move(f"/?theme=dark&roster=27-way&dim=2&source=gpt_1&chosen={','.join(chosen)}")
    browser.until("return document.querySelectorAll('.chosen-row').length === arguments[0]", len(chosen))
    high = "return document.querySelector(arguments[0]).clientHeight"
    assert len(chosen) > 19 and browser.run(high, ".map-side > .card") >= 160
    assert browser.run(high, "#figure-selection") >= 160
    browser.run("document.querySelector('.chosen-row:last-child').scrollIntoView({block: 'nearest'})")
    browser.until(INSIDE, ".chosen-row:last-child", "#figure-selection")
    assert browser.run(
        "const box = document.querySelector('.chosen-row:last-child').getBoundingClientRect();"
        "return document.elementFromPoint(box.left + 40, box.top + box.height / 2).closest('.chosen-row') !== null"
    )


def test_the_closest_name_is_chosen_by_enter_alone(browser: Any) -> None:
    browser.open("/?theme=dark&roster=27-way&dim=2")
    field = browser.driver.find_element(By.ID, "search")
    field.send_keys("gpt-2")
    browser.until("return [...document.querySelectorAll('[role=option]')].some(o => o.dataset.comboboxSelected)")
    field.send_keys(Keys.ENTER)
    browser.wait(lambda: browser.query().get("source") == "gpt_2", "the source in the link")
    names = ["other-gpt-4", "gpt-4-mini-2025-04-14", "gpt-4-2025-04-14", "org/gpt-4"]
    groups = [[{"group": "GPT", "items": [{"value": name, "label": name} for name in names]}]]
    order = "return window.dashMantineFunctions.closest({search: 'gpt-4', options: arguments[0]})[0].items"
    found = browser.run(order + ".map(item => item.label)", *groups)
    assert found == ["org/gpt-4", "gpt-4-2025-04-14", "gpt-4-mini-2025-04-14", "other-gpt-4"]


def test_no_spelling_of_a_name_lists_a_longer_one_that_holds_it_first(browser: Any) -> None:
    browser.open("/?theme=dark&roster=27-way&dim=2")
    families = {
        "GPT": ["gpt-4.1-mini-2025-04-14", "gpt-4.1-nano", "gpt-4.1-mini", "gpt-4.1", "gpt-4o-mini", "gpt-4o"],
        "DeepSeek": [*(f"deepseek-ai/DeepSeek-R1-Distill-Qwen-{size}B" for size in (7, 14)), "deepseek-ai/DeepSeek-V3"],
        "Claude": ["claude-sonnet-4-6", "claude-sonnet-4-20250514", "claude-sonnet-4-5-20250929"],
        "Qwen": ["Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B", "qwen3.5-flash-2026-02-23", "qwen3.5-flash"],
    }
    options = [
        {"group": family, "items": [{"value": name, "label": name} for name in names]}
        for family, names in families.items()
    ]
    listed = (
        "return arguments[0].map(search => window.dashMantineFunctions.closest({search, options: arguments[1]})"
        ".flatMap(entry => entry.items.map(item => item.label)))"
    )

    def bare(name: str) -> str:
        return re.sub(r"\W", "", name.rpartition("/")[2].lower())

    spellings = [
        (name, spelling)
        for names in families.values()
        for name in names
        for short in (name.rpartition("/")[2],)
        for spelling in (name, short, bare(name), short.replace("-", " "), re.sub(r"(.)\1", r"\1", short))
    ]
    found = browser.run(listed, [spelling for _, spelling in spellings], options)
    for (name, spelling), names in zip(spellings, found, strict=True):
        longer = [other for other in names if bare(name) in bare(other) and len(bare(other)) > len(bare(name))]
        assert name in names, spelling
        assert all(names.index(name) < names.index(other) for other in longer), spelling
    near, swapped, absent = browser.run(listed, ["deepsek", "gtp-4.1", "mistral"], options)
    assert near[0] == "deepseek-ai/DeepSeek-V3" and set(swapped) == {name for name in families["GPT"] if "4.1" in name}
    # The words of a heading spell no name.
    headed = [{"group": "Tested with the first model", "items": options[0]["items"]}]
    assert absent == [] and browser.run(listed, ["mistral"], headed) == [[]]
    # Without its date a name is that of its version, and not of a later one.
    undated = {name: re.sub(r"-20[\d-]+$", "", name) for names in families.values() for name in names}
    found = browser.run(listed, list(undated.values()), options)
    for spelling, (first, *_) in zip(undated.values(), found, strict=True):
        assert undated[first] == spelling


@pytest.mark.usefixtures("sized")
def test_names_overlap_neither_each_other_nor_panels(browser: Any) -> None:
    def apart() -> bool:
        names = browser.run(NAMES)
        panels = browser.run(
            "return [...document.querySelectorAll('.map-title, .legend, .map-side > .panel, .projector')]"
            ".filter(e => e.offsetParent).map(e => e.getBoundingClientRect())"
            ".map(b => [0, 0, b.left, b.top, b.right, b.bottom])"
        )
        return len(names) > 4 and not (
            any(overlap(a, b) for i, a in enumerate(names) for b in names[:i])
            or any(overlap(name, panel) for name in names for panel in panels)
        )

    for shown in ("dim=2", "dim=3", "dim=2&regions=clusters&projection=umap"):
        for size in ((1280, 800), (1920, 1080)):
            browser.resize(*size)
            if size[0] == 1280:
                go = browser.open if shown == "dim=2" else browser.move
                go(f"/?theme=light&roster=27-way&source=gpt_1&other=qwen_2&{shown}")
            browser.until("return document.querySelectorAll('#names .end').length === 2")
            browser.settled()
            browser.wait(apart, f"names that lie apart, with {shown} in {size}")


@pytest.mark.usefixtures("sized")
def test_the_table_of_the_flat_map_stands_beside_the_navigation(browser: Any) -> None:
    browser.resize(*WINDOW)
    browser.open("/?theme=light&roster=27-way&dim=2")
    browser.until("return document.getElementById('legend-panel').dataset.deep === 'false'")
    browser.click("#figure-map .map-title .tool[id*=table]")
    left = "return document.querySelector(arguments[0]).getBoundingClientRect()"
    for folded in (True, False):
        browser.run("document.getElementById('legend-panel').open = !arguments[0]", folded)
        table = browser.until(left + ".width && " + left[7:] + ".left", ".map-stage .figure-table")
        assert table >= browser.run(left + ".right", ".rail")


def test_names_of_a_presented_flat_map_stand_at_its_points(browser: Any) -> None:
    away = (
        "const boxes = which => [...document.querySelectorAll(which)].map(e => e.getBoundingClientRect());"
        "const points = boxes('#map .scatterlayer path.point'), names = boxes('#names .name-at.other');"
        "const gap = (a, b) => Math.hypot(Math.max(a.left - b.right, b.left - a.right, 0),"
        " Math.max(a.top - b.bottom, b.top - a.bottom, 0));"
        "return document.documentElement.dataset.present === arguments[0] && names.length > 3 && "
        "names.every(n => points.some(p => gap(n, p) < 8))"
    )
    browser.open("/?theme=dark&roster=27-way&dim=2&present=1")
    browser.until(away, "1")
    browser.click("#present-off")
    browser.until(away.replace("=== arguments[0]", "!== '1'"))
    browser.click("#present")
    browser.until(away, "1")


def test_names_of_two_chosen_sources_stand_close_to_their_points(browser: Any) -> None:
    browser.open("/?theme=dark&roster=27-way&dim=2&source=gpt_1&other=qwen_1")
    browser.until("return document.querySelectorAll('#names .name-at.end').length === 2")
    away = PLOT + (
        "const box = p.getBoundingClientRect(), {xaxis, yaxis} = p._fullLayout;"
        "const ends = [...document.querySelectorAll('#names .name-at.end')].map(e => e.getBoundingClientRect());"
        "return ['selected', 'second'].map((name, i) => {"
        "  const {x, y} = p.data.find(t => t.name === name), end = ends[i];"
        "  const at = [box.left + xaxis._offset + xaxis.l2p(x[0]), box.top + yaxis._offset + yaxis.l2p(y[0])];"
        "  return Math.hypot(Math.max(end.left - at[0], at[0] - end.right, 0),"
        "    Math.max(end.top - at[1], at[1] - end.bottom, 0)); })"
    )
    assert all(gap <= 60 for gap in browser.run(away))


def test_more_names_appear_as_a_flat_map_is_enlarged(browser: Any) -> None:
    browser.open("/?theme=dark&roster=27-way&dim=2")
    browser.until("return document.querySelectorAll('#names .group').length > 1")
    some = "return document.querySelectorAll('#names .other').length"
    before = browser.run(some)
    inside = PLOT + (
        "return p.data.filter(t => t.customdata && t.name !== 'context').flatMap(t => t.x.map((x, i) => [x, t.y[i]]))"
        ".filter(([x, y]) => x > -0.4 && x < 0.4 && y > -0.4 && y < 0.4).length"
    )
    browser.run(PLOT + "Plotly.relayout(p, {'xaxis.range': [-0.4, 0.4], 'yaxis.range': [-0.4, 0.4]})")
    browser.until("return document.querySelectorAll('#names .name-at').length > 0")
    browser.wait(lambda: browser.run(some) >= min(browser.run(inside) - 1, before), "names of what is enlarged")
    names = browser.run(NAMES)
    assert not any(overlap(a, b) for i, a in enumerate(names) for b in names[:i])


@pytest.fixture
def new_tab(browser: Any) -> Iterator[None]:
    """A tab without a past: of a full history, Chromium drops the oldest step that no gesture of a person made."""
    before = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    yield
    browser.driver.close()
    browser.driver.switch_to.window(before)


@pytest.mark.usefixtures("sized")
def test_the_list_of_families_says_how_many_are_out_of_sight(browser: Any) -> None:
    browser.resize(1280, 800)
    open_at_rest(browser, "/?theme=dark&roster=12-way&dim=2")
    said, rows = "return document.getElementById('legend-more').textContent", "document.getElementById('legend')"
    browser.run(f"{rows}.append(...Array.from({{length: 30}}, () => {rows}.firstElementChild.cloneNode(true)))")
    browser.run("window.dispatchEvent(new Event('resize'))")
    below = browser.run(said)
    assert re.fullmatch(r"\d+ more families below", below)
    browser.run(f"{rows}.scrollTop = {rows}.firstElementChild.offsetHeight * ({below.split()[0]} - 1)")
    browser.until(said + " === '1 more family below'")
    browser.run(f"{rows}.scrollTop = {rows}.scrollHeight")
    browser.until(said + f" === '{below.replace('below', 'above')}'")


@pytest.mark.usefixtures("new_tab")
def test_steps_back_undo_choices_and_another_page_keeps_them(browser: Any) -> None:
    chosen = "return document.querySelector('#projection input:checked')?.value"
    open_at_rest(browser, "/?theme=dark&roster=12-way&dim=2")
    browser.run("document.querySelector('#projection input[value=umap]').click()")
    browser.until(KEPT, "projection=umap")
    browser.settled()
    browser.run("[...document.querySelectorAll('.legend-row')].find(r => r.innerText.startsWith('GPT')).click()")
    browser.until(KEPT, "families=GPT")
    browser.driver.back()
    browser.until(PLOT + "return p.data.find(t => t.name === 'context').x.length === 0")
    assert browser.run(chosen) == "umap" and "families" not in browser.query()
    browser.driver.back()
    browser.until(chosen + " === 'tsne'")
    assert "projection" not in browser.query()
    browser.driver.forward()
    browser.until(chosen + " === 'umap'")
    browser.until(KEPT, "projection=umap")
    browser.settled()
    browser.click("#nav-attribution")
    browser.until("return document.querySelector('#budget-graph .main-svg') !== null")
    assert "projection" not in browser.query()
    browser.click("#nav-map")
    browser.until(PLOT + "return p && p.data[0].type === 'scatter'")
    assert browser.run(chosen) == "umap" and browser.query()["dim"] == "2"
    browser.settled()


def test_the_map_offers_readers_that_have_one(browser: Any) -> None:
    listed = "return document.querySelector('#reader') && [...document.querySelectorAll('[role=option]')]"
    listed += ".filter(o => o.offsetParent).map(o => o.textContent)"
    browser.open("/?theme=dark&roster=12-way")
    browser.driver.find_element(By.ID, "reader").click()
    options = browser.wait(lambda: len(found := browser.run(listed)) > 1 and found, "the list of readers")
    assert not any("Vast-70B" in one for one in options)
    assert [one for one in options if "python -m jobs map --roster 12-way --benchmark agent500" in one] == options[-1:]
    browser.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.ESCAPE)
    browser.click("#nav-attribution")
    browser.until("return document.querySelector('#budget-graph .main-svg') !== null")
    browser.driver.find_element(By.ID, "reader").click()
    browser.wait(lambda: any("Vast-70B" in one for one in browser.run(listed)), "every reader")
    browser.settled()


def test_colours_of_numbers_and_months(browser: Any) -> None:
    browser.open("/?theme=dark&roster=27-way&colour=accuracy&dim=2")
    several = PLOT + (
        "return p.data.filter(t => t.customdata && t.name !== 'context').flatMap(t => t.marker.color.filter((c, i) => "
        "t.customdata[i][1] === 'GPT')).filter((c, i, all) => all.indexOf(c) === i).length"
    )
    assert browser.run(several) > 1
    browser.run("document.getElementById('legend-panel').open = false")
    assert browser.run("return document.querySelector('#scale .scale-bar').checkVisibility()")
    browser.run("window.dash_clientside.set_props('colour', {value: 'family'})")
    browser.until(several + " === 1")
    assert "colour" not in browser.query()


def test_axe_finds_nothing_in_a_selection(browser: Any, axe: str) -> None:
    browser.open("/?theme=dark&roster=27-way&dim=2&source=gpt_1&other=gpt_2&chosen=gpt_1,qwen_1&colour=axis")
    browser.until("return document.querySelector('#chosen-content .mix') !== null")
    for theme in ("dark", "light"):
        themed(browser, theme)
        assert violations(browser, axe) == [], theme

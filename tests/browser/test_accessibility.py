"""Every page in both themes without a violation that axe can find, and by keyboard alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from atlas.application import PAGES

pytestmark = pytest.mark.browser

SCRIPTS = (("axe_playwright_python", "axe.min.js"), ("axe_selenium_python", "node_modules/axe-core/axe.min.js"))
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
PATHS = [page.path.replace("<label>", "gpt_1").replace("<name>", "GPT") for page in PAGES]
REACHABLE = "a[href], button:not([disabled]), input:not([disabled]):not([type=hidden]), summary"


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe, out of whichever package brings it; the newest one first."""
    for package, place in SCRIPTS:
        found = importlib.util.find_spec(package)
        if found and found.submodule_search_locations:
            return (Path(found.submodule_search_locations[0]) / place).read_text("utf-8")
    pytest.skip("axe is missing: pip install --no-deps axe-playwright-python")


def violations(browser: Any, axe: str) -> list[str]:
    """Rule, element and reason of everything that axe complains of, once every grid has been drawn."""
    grids = "const g = document.querySelectorAll('.atlas-grid')[arguments[0]];"
    for grid in range(browser.run("return document.querySelectorAll('.atlas-grid').length")):
        browser.run(grids + "g.scrollIntoView({block: 'center'})", grid)
        browser.until(
            grids + "return !g.offsetParent || (g.querySelector('.ag-header-cell') && g.querySelector('.ag-cell'))",
            grid,
        )
    # A grid that is scrolled away or drawn anew has rows of its head before it has their cells.
    browser.until(
        "return [...document.querySelectorAll('.atlas-grid .ag-header-row')]"
        ".every(row => !row.offsetParent || row.children.length)"
    )
    browser.run(axe)
    found = browser.driver.execute_async_script(
        "const [tags, done] = arguments;"
        "axe.run(document, {runOnly: {type: 'tag', values: tags}, resultTypes: ['violations']}).then(r => done("
        "r.violations.flatMap(v => v.nodes.map(n => v.id + ' ' + n.target.join(' ') + ': ' + n.failureSummary))))",
        RULES,
    )
    return list(found)


@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing(browser: Any, axe: str, path: str) -> None:
    browser.open(f"{path}?theme=dark&roster=12-way&source=gpt_1&other=gpt_2&truth=gpt_1&answer=gpt_2&k=1")
    for theme in ("dark", "light"):
        themed(browser, theme)
        assert violations(browser, axe) == [], theme
        assert figures_without_names(browser) == [], theme


def themed(browser: Any, theme: str) -> None:
    """Have the open page in a theme, with its figures drawn in it."""
    shown = "return document.documentElement.dataset.theme"
    if browser.run(shown) != theme:
        browser.click("#theme-toggle")
        browser.until(shown + " === arguments[0]", theme)
    browser.settled()


def figures_without_names(browser: Any) -> list[str]:
    """Figures, plots and sections that a reader of screens could not name."""
    # Folded figures are not rendered, and so have text without inner text.
    found = browser.run(
        "const unnamed = (kind, all) => all.filter(one => !one[1]).map(one => kind + ' ' + one[0].className);"
        "const each = (what) => [...document.querySelectorAll(what)];"
        "return [...unnamed('figure', each('[role=img]').map(e => [e, e.getAttribute('aria-label')])),"
        "  ...unnamed('plot', each('.js-plotly-plot').map(e => [e, e.closest('[role=img][aria-label]')])),"
        "  ...unnamed('section', each('section[aria-labelledby]').map(e =>"
        "    [e, (document.getElementById(e.getAttribute('aria-labelledby')) || {}).textContent]))]"
    )
    return list(found)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_finds_nothing_in_what_opens(browser: Any, axe: str, theme: str) -> None:
    browser.open(f"/attribution?theme={theme}&roster=12-way")
    browser.click("#figure-budget .tool[aria-pressed]")
    browser.until("return document.querySelectorAll('#figure-budget .ag-center-cols-container [role=row]').length > 0")
    browser.run("[...document.querySelectorAll('#figure-folds .tool')].find(b => b.innerText.includes('How')).click()")
    browser.until("return document.querySelector('.made .command') !== null")
    assert violations(browser, axe) == []
    browser.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.ESCAPE)
    browser.driver.find_element(By.ID, "reader").click()
    browser.until("return document.querySelectorAll('[role=option]').length > 1")
    assert violations(browser, axe) == []


WATCH_TABS = """
window.stops = [];
document.addEventListener('keyup', (event) => {
  const e = document.activeElement, near = [e, e.nextElementSibling, e.closest('.ag-cell')];
  const ring = near.some(n => n && getComputedStyle(n).outlineStyle !== 'none');
  const edge = e.matches('.mantine-Input-input, .ag-root-wrapper *');
  if (event.key === 'Tab') window.stops.push([e.dataset.stop, ring || edge, e.outerHTML.slice(0, 120)]);
}, true);
"""
"""Keeps what every press of Tab leads to: the number of the control, whether it shows, and what it is."""
AT_ONCE = 20


@pytest.mark.parametrize("path", ["/", "/attribution?roster=12-way"])
def test_every_control_is_reached_by_tab_and_shows_it(browser: Any, path: str) -> None:
    browser.open(path)
    # What is out of sight of the keyboard for good reason: rows of a grid are walked with the arrows.
    wanted = browser.run(
        "const all = [...document.querySelectorAll(arguments[0])].filter(e => e.offsetParent && e.tabIndex >= 0 &&"
        "!e.closest('.ag-root-wrapper') && !e.closest('.present-off') && getComputedStyle(e).visibility !== 'hidden');"
        "all.forEach((e, i) => e.dataset.stop = i); return all.length",
        REACHABLE,
    )
    assert wanted > 20
    browser.run(WATCH_TABS)
    browser.run("document.activeElement.blur(); getSelection().collapse(document.body, 0)")
    reached: set[int] = set()
    stops: list[tuple[str | None, bool, str]] = []
    for pressed in range(AT_ONCE, 4 * wanted + AT_ONCE, AT_ONCE):
        ActionChains(browser.driver).send_keys(*[Keys.TAB] * AT_ONCE).perform()
        stops = browser.until("return window.stops.length >= arguments[0] && window.stops", pressed)
        reached = {int(stop) for stop, _, _ in stops if stop is not None}
        if len(reached) == wanted:
            break
    bare = [told for _, seen, told in stops if not seen and told[:5] != "<body"]
    radios = browser.run(
        "return [...document.querySelectorAll('input[type=radio][data-stop]:not(:checked)')].map(e => +e.dataset.stop)"
    )
    missed = browser.run(
        "return arguments[0].map(i => document.querySelector(`[data-stop='${i}']`).outerHTML.slice(0, 160))",
        sorted(set(range(wanted)) - reached - set(radios)),
    )
    assert missed == [] and bare == []


def test_escape_closes_what_is_open(browser: Any) -> None:
    browser.open("/attribution?theme=dark&roster=12-way")
    browser.run("[...document.querySelectorAll('#figure-folds .tool')].find(b => b.innerText.includes('How')).focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.until("return document.querySelector('.made .command') !== null")
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    browser.until("return document.querySelector('.made') === null")
    assert "How" in browser.run("return document.activeElement.innerText")
    field = browser.driver.find_element(By.ID, "reader")
    field.send_keys(Keys.ARROW_DOWN)
    browser.until("return document.querySelectorAll('[role=option]').length > 1")
    field.send_keys(Keys.ESCAPE)
    browser.until("return [...document.querySelectorAll('[role=option]')].every(o => !o.offsetParent)")

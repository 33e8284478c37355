"""A server that is slow or down, as the browser shows it: a line while a page opens, a banner, controls as drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.browser

SHOWN = "return getComputedStyle(document.querySelector(arguments[0])).display !== 'none'"

SEE = """
const real = window.fetch;
window.fetch = (address, options) => {
  if (options && String(options.body).includes('_pages_content')) {
    setTimeout(() => { window.seen = getComputedStyle(document.querySelector('.opening')).display; }, 300);
  }
  return real(address, options);
};
"""
"""Looks 300 ms after a page was asked for whether the line is there; on a busy machine both timers are late."""


@pytest.fixture
def cut(browser: Any) -> Iterator[Any]:
    """A browser whose line to the server can be cut."""
    browser.driver.execute_cdp_cmd("Network.enable", {})
    yield lambda offline: browser.driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    browser.driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    browser.complaints()  # what failed while the line was cut


def choose(browser: Any, control: str, value: str) -> None:
    browser.until(
        "const e = document.querySelector(`#${arguments[0]} input[value='${arguments[1]}']`); if (e) e.click(); "
        "return e !== null",
        control, value,
    )  # fmt: skip


def chosen(browser: Any, control: str) -> str:
    return str(browser.run(f"return document.querySelector('#{control} input:checked').value"))


def drawn(browser: Any) -> str:
    """Where the first points of the map lie."""
    return json.dumps(
        browser.run("return document.querySelector('#map .js-plotly-plot').data.map(t => (t.x || [])[0])")
    )


def test_a_server_that_is_down_mislabels_no_map(browser: Any, cut: Any) -> None:
    browser.open("/?theme=dark&roster=27-way&projection=tsne")
    assert not browser.run(SHOWN, ".offline")
    before = drawn(browser)
    cut(True)
    choose(browser, "projection", "umap")
    browser.until(SHOWN, ".offline")
    assert "does not answer" in browser.text(".offline")
    browser.until("return document.querySelector('#projection input:checked').value === 'tsne'")
    browser.settled()
    assert drawn(browser) == before and browser.query().get("projection", "tsne") == "tsne"
    browser.click("#offline-retry")
    browser.until("return !document.getElementById('offline-retry').disabled")
    assert browser.run(SHOWN, ".offline") and chosen(browser, "projection") == "tsne"
    cut(False)
    browser.click("#offline-retry")
    browser.until("return document.querySelector('#projection input:checked').value === 'umap'")
    browser.wait(lambda: drawn(browser) != before, "the map is drawn again")
    assert not browser.run(SHOWN, ".offline") and browser.query()["projection"] == "umap"


def test_the_header_goes_back_to_what_is_drawn(browser: Any, cut: Any) -> None:
    browser.open("/?theme=dark&roster=12-way")
    cut(True)
    browser.run("window.dash_clientside.set_props('roster', { value: '27-way' })")
    browser.until(SHOWN, ".offline")
    browser.wait(lambda: browser.query()["roster"] == "12-way", "the roster goes back")
    cut(False)
    choose(browser, "projection", "umap")  # any answer ends the banner
    browser.wait(lambda: not browser.run(SHOWN, ".offline"), "the banner goes")
    assert browser.query()["projection"] == "umap" and browser.query()["roster"] == "12-way"


def test_a_page_that_does_not_come_is_opened_once_the_server_answers(browser: Any, cut: Any) -> None:
    browser.open("/?theme=dark&roster=12-way")
    cut(True)
    browser.go("/methods?theme=dark&roster=12-way")
    browser.until(SHOWN, ".offline")
    cut(False)
    browser.click("#offline-retry")
    browser.until("return document.querySelector('.prose') !== null")
    assert not browser.run(SHOWN, ".offline")


def test_a_page_that_opens_slowly_says_so(browser: Any, served: Any) -> None:
    browser.open("/?theme=dark&roster=12-way")
    served.slowed.seconds = 20.0
    try:
        browser.run(SEE)
        browser.go("/methods?theme=light&roster=12-way")
        assert browser.until("return window.seen") == "block"
    finally:
        served.slowed.seconds = 0.0
    browser.until("return document.querySelector('.prose') !== null")
    browser.wait(lambda: not browser.run(SHOWN, ".opening"), "the line goes")
    served.slowed.seconds = 5.0
    try:
        browser.driver.get(browser.url + "/methods?theme=dark")
        assert browser.until("return document.querySelector('._dash-loading, .opening') !== null")
        browser.until(
            "const e = document.querySelector('.opening'); return e && getComputedStyle(e).display !== 'none'"
        )
    finally:
        served.slowed.seconds = 0.0
    browser.until("return document.querySelector('.prose') !== null")

"""A served invented atlas and a real Chromium."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import waitress
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from atlas.application import create_application
from backend.errors import AtlasError
from backend.output_files import lock
from backend.proxies.reader import Reader
from jobs.screenshots import chromium
from tests.invented_atlas import publish_invented

PATIENCE = 300
"""Seconds to wait for something on a busy machine; an idle one needs a second or two. A virtual machine can stand still
for minutes when its host gives it no processor."""


DRAWN = "return document.querySelector('.js-plotly-plot .main-svg, .prose, .column > [role=note]') !== null"


class Slowed:
    """A server that lets callbacks wait, each another while, as a loaded machine does.

    Attributes
    ----------
    seconds : float
        The longest wait; 0 for none.
    """

    def __init__(self, application: Callable[..., Any]) -> None:
        self.application = application
        self.seconds = 0.0
        self._waits = random.Random(0)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if self.seconds and environ["PATH_INFO"].endswith("/_dash-update-component"):
            until = time.monotonic() + self._waits.uniform(0.1, 1) * self.seconds
            while self.seconds and time.monotonic() < until:  # nobody waits any longer once it is over
                time.sleep(0.02)
        return self.application(environ, start_response)


@dataclass(frozen=True)
class Served:
    """A running atlas."""

    url: str
    data: Path
    slowed: Slowed


def published(factory: pytest.TempPathFactory, publish: Callable[[Path], object]) -> Path:
    """A folder of its own whose ``data`` is what a function publishes.

    The first process of a run that asks publishes for all of them.
    """
    shared = factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    made = shared / publish.__name__
    with lock(shared / f"{publish.__name__}.lock"):
        if not made.exists():
            publish(shared / f"{publish.__name__}.part")
            (shared / f"{publish.__name__}.part").rename(made)
    folder = factory.mktemp("atlas")
    shutil.copytree(made, folder / "data")
    return folder


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = published(tmp_path_factory, publish_invented)
    app = create_application(folder / "data", folder / "cache")
    slowed = Slowed(app.server)
    server = waitress.create_server(slowed, host="127.0.0.1", port=0, threads=6)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield Served(f"http://127.0.0.1:{server.effective_port}", folder / "data", slowed)
    server.close()


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def driver(downloads: Path) -> Iterator[WebDriver]:
    with contextlib.ExitStack() as stack:
        try:
            # Pages are opened and left: to compile code again for its long run is never earned back.
            compiled = "--js-flags=--no-opt --no-flush-bytecode"
            running = stack.enter_context(chromium(downloads, "--window-size=1280,800", compiled))
        except AtlasError as error:
            pytest.skip(str(error))
        running.command_executor.client_config.timeout = 2 * PATIENCE
        running.set_script_timeout(PATIENCE)
        # Several browsers of one machine are not all in front; each acts as if it were.
        running.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
        yield running


@dataclass(frozen=True)
class Browser:
    """What a test does in the browser, with patience."""

    driver: WebDriver
    url: str

    def open(self, path: str) -> None:
        """Load a page and wait until it has drawn what it draws.

        A blank page in between would cost another process of the browser, which compiles every script anew.
        """
        self.driver.get(self.url + path)
        self.until(DRAWN)
        self.settled()

    def move(self, path: str) -> None:
        """Go to another page of the atlas that is open, which takes half of what loading it takes."""
        self.run("document.querySelector('#_pages_content > *').dataset.left = '1'")
        self.go(path)
        self.until("return document.querySelector('#_pages_content > [data-left]') === null")
        self.until(DRAWN)
        self.settled()

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        """Give the page a window of this size; the fixture ``sized`` takes it back."""
        override = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", override)
        self.until("return window.innerWidth === arguments[0]", width)

    def go(self, path: str) -> None:
        """Follow a link inside the atlas: no page is loaded, and nothing is waited for."""
        self.run(
            "history.pushState({}, '', arguments[0]); dispatchEvent(new CustomEvent('_dashprivate_pushstate'))", path
        )

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments: Any) -> Any:
        """Wait until a script returns something true, and return it."""
        return self.wait(lambda: self.run(script, *arguments), script)

    def wait(self, condition: Callable[[], Any], told: str) -> Any:
        patience = WebDriverWait(self.driver, PATIENCE, poll_frequency=0.1, ignored_exceptions=[])
        try:
            return patience.until(lambda _: condition())
        except TimeoutException:
            where = self.run(
                "const c = document.getElementById('content') || document.documentElement; "
                "return `${location.href}, scrolled to ${c.scrollTop} of ${c.scrollHeight}, window ${innerWidth} x "
                "${innerHeight}, ${document.querySelectorAll('[data-dash-is-loading=true]').length} loading`"
            )
            raise AssertionError(f"in vain: {told} ({where})") from None

    def settled(self) -> None:
        """Wait until no callback is under way."""
        self.until("return !document.querySelector('[data-dash-is-loading=true]') && document.title !== 'Updating...'")

    def click(self, selector: str) -> None:
        self.until("const e = document.querySelector(arguments[0]); if (e) e.click(); return e !== null", selector)

    def text(self, selector: str) -> str:
        return str(self.until("const e = document.querySelector(arguments[0]); return e && e.innerText", selector))

    def query(self) -> dict[str, str]:
        return dict(self.run("return Object.fromEntries(new URL(location.href).searchParams)"))

    def traces(self, graph: str) -> list[dict[str, Any]]:
        """Names, numbers of points and colours of what a figure draws now."""
        return list(
            self.run(
                "return document.querySelector(arguments[0] + ' .js-plotly-plot').data.map(t => ({name: t.name, "
                "n: (t.x || []).length, colour: t.marker && t.marker.color, symbol: t.marker && t.marker.symbol}))",
                graph,
            )
        )

    def complaints(self) -> list[str]:
        """Console errors since the last question. Warnings of the software renderer are no errors."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture
def slow(served: Served) -> Iterator[None]:
    """Callbacks of this test wait."""
    served.slowed.seconds = 0.4
    yield
    served.slowed.seconds = 0.0


@pytest.fixture
def browser(driver: WebDriver, served: Served) -> Iterator[Browser]:
    view = Browser(driver, served.url)
    view.complaints()
    yield view
    assert view.complaints() == []


@pytest.fixture
def sized(driver: WebDriver) -> Iterator[None]:
    """The window has its usual size again after the test."""
    yield
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(scope="module")
def related(driver: WebDriver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser on an invented atlas with relationships."""
    from tests.browser.related import browse_related  # which imports this module

    yield from browse_related(driver, tmp_path_factory)


@pytest.fixture
def calm_related(related: Browser) -> Iterator[Browser]:
    """The same, in which no page may complain."""
    related.complaints()
    yield related
    assert related.complaints() == []


@pytest.fixture(scope="module")
def samples_served(smollm2: Reader, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an atlas with the shipped sample ecosystem."""
    from tests.browser.attributing import serve_samples  # which imports this module

    yield from serve_samples(smollm2, tmp_path_factory)


@pytest.fixture
def samples_browser(driver: WebDriver, samples_served: str) -> Iterator[Browser]:
    """A browser on it, in which no page may complain."""
    view = Browser(driver, samples_served)
    view.complaints()
    yield view
    assert view.complaints() == []
    driver.get(f"{samples_served}/health")  # a test may end in a file, which has another storage
    driver.execute_script("sessionStorage.clear()")
    driver.delete_all_cookies()

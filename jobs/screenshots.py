"""Take the pictures of docs/screenshots: every page in both themes, from the served generation.

A view is a link, so a picture is a link and a name. The job starts the atlas on a free port, opens each link once in
a headless Chromium, takes both themes of it, and stops both when it is done. Pictures are
WebP files without loss, for git.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from backend.errors import AtlasError

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

ROOT = Path(__file__).resolve().parents[1]
START_S = 180.0  # Seconds that a server may take to start on a busy machine; an idle one needs a few.
COMMAND_S = 600.0  # Seconds that a browser may take for one command there.
WIDTH, HEIGHT = 1280, 800
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--enable-unsafe-swiftshader", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"),
)
AT_5 = {"roster": "100-way", "k": "5"}
PAGES: dict[str, tuple[str, dict[str, str]]] = {
    "map": ("/", {}),
    "map-source": ("/", {"source": "claude_sonnet46", "other": "claude_opus46"}),
    "map-domains": ("/", {"space": "centred"}),
    "neighbourhoods": ("/neighbourhoods", {"roster": "100-way", "source": "claude_sonnet46"}),
    "attribution": ("/attribution", {**AT_5, "truth": "claude_sonnet46", "answer": "claude_opus46"}),
    "compare": ("/compare", {"roster": "100-way"}),
    "source": ("/source/claude_sonnet46", AT_5),
    "family": ("/family/Claude", AT_5),
    "relationships": ("/relationships", {"protocol": "family"}),
    "attribute": ("/attribute", {}),
    "brief": ("/brief", {"roster": "100-way"}),
    "methods": ("/methods", {}),
}
"""Path and choices of the pictures that ``docs/web.md`` shows."""
SAMPLE = "[id*='attr-sample\"'][id*='\"figure\":2']"
"""The button of the sample whose claim is supported."""
PRESSED: dict[str, tuple[tuple[str, str], ...]] = {
    "attribute": ((SAMPLE, "#attr-go:not([disabled])"), ("#attr-go", "#figure-evidence .main-svg"))
}
"""What is pressed before a picture is taken, and what has to be there afterwards: the shipped sample, attributed."""
ANSWER_S = 180.0
SETTLE_S = 1.5  # What fonts, the WebGL scene and a new size need.
DRAWN = (
    "return document.querySelectorAll('.js-plotly-plot .main-svg, .prose').length > 0"
    " && !document.querySelector('[data-dash-is-loading=true]')"
)


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The address of an atlas that ``python app.py`` serves on a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "ATLAS_HOST": "127.0.0.1", "ATLAS_PORT": str(port)}
    server = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise AtlasError("The atlas did not start", "Run python app.py and read what it says") from None
                time.sleep(0.3)
        yield url
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def chromium(downloads: Path | None = None, *flags: str) -> Iterator[WebDriver]:
    """A browser with an empty profile that logs its console, and downloads into a folder if there is one."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError as error:
        raise AtlasError("selenium is not installed", "Run: pip install -e .[dev]") from error
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if not browser or not chromedriver:
        raise AtlasError("Chromium is not installed", "On Debian run: apt-get install chromium chromium-driver")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={profile}", *flags):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(chromedriver))
        try:
            assert not isinstance(driver.command_executor, str)
            driver.command_executor.client_config.timeout = COMMAND_S
            driver.set_page_load_timeout(COMMAND_S)
            if downloads is not None:
                allowed = {"behavior": "allow", "downloadPath": str(downloads)}
                driver.execute_cdp_cmd("Browser.setDownloadBehavior", allowed)
            yield driver
        finally:
            driver.quit()


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "screenshots", help="folder of the pictures")
    parser.add_argument("--only", default="", help="take the pictures whose name begins like this")


def run(arguments: argparse.Namespace) -> None:
    """Take the pictures."""
    arguments.to.mkdir(parents=True, exist_ok=True)
    with served() as url, chromium(None, "--hide-scrollbars") as driver:
        for name, (path, choices) in PAGES.items():
            if arguments.only and not name.startswith(arguments.only):
                continue
            link = f"{url}{path}?{urlencode({**choices, 'theme': 'dark'})}"
            driver.get("about:blank")
            driver.get(link)
            for button, then in PRESSED.get(name, ()):
                _until(driver, f"return document.querySelector({button!r}) !== null", link)
                driver.execute_script(f"document.querySelector({button!r}).click()")
                _until(driver, f"return document.querySelector({then!r}) !== null", link)
            _until(driver, DRAWN, link)
            for theme in ("dark", "light"):
                if driver.execute_script("return document.documentElement.dataset.theme") != theme:
                    driver.execute_script("document.querySelector('#theme-toggle').click()")
                file = arguments.to / f"{name}-{theme}-{WIDTH}x{HEIGHT}.webp"
                file.write_bytes(_picture(driver, link))
                print(file.name, flush=True)


def _picture(driver: WebDriver, url: str) -> bytes:
    """WebP of a page in a window of this size; one that scrolls is taken whole."""
    from PIL import Image

    size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    time.sleep(SETTLE_S)
    _until(driver, DRAWN, url)
    whole = driver.execute_script(
        "const c = document.querySelector('.content');"
        "return document.querySelector('.map-page') ? 0 : c.scrollHeight + c.getBoundingClientRect().top"
    )
    if whole > HEIGHT:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "height": int(whole)})
        time.sleep(SETTLE_S)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    with io.BytesIO(base64.b64decode(shot["data"])) as png, io.BytesIO() as webp:
        Image.open(png).convert("RGB").save(webp, "WEBP", lossless=True, method=6)
        return webp.getvalue()


def _until(driver: WebDriver, holds: str, url: str) -> None:
    deadline = time.monotonic() + ANSWER_S
    while not driver.execute_script(holds):
        if time.monotonic() > deadline:
            raise AtlasError(f"{url} was not drawn within {ANSWER_S:.0f} s", "Open it in a browser and look at it")
        time.sleep(0.2)

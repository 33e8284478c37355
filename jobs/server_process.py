"""A started atlas and a headless Chromium, for what has to be asked and seen as a person does."""

from __future__ import annotations

import contextlib
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

from backend.errors import AtlasError

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

ROOT = Path(__file__).resolve().parents[1]
START_S = 180.0  # Seconds that a server may take to start on a busy machine; an idle one needs a few.

ANSWER_S = 600.0  # Seconds that a browser may take for one command there.


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The address of an atlas that ``python app.py`` serves on a free port of this machine.

    Raises AtlasError if it does not start.
    """
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
    """A browser with an empty profile that keeps what its console says, for as long as it is needed.

    downloads : Folder that receives what is downloaded; nothing is kept without one.
    flags : Further ones of the command line.
    Raises AtlasError if selenium, Chromium or its driver is not installed.
    """
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
        for flag in (
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--enable-unsafe-swiftshader",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--disable-quic",
            f"--user-data-dir={profile}",
            *flags,
        ):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(chromedriver))
        try:
            driver.command_executor.client_config.timeout = ANSWER_S
            driver.set_page_load_timeout(ANSWER_S)
            if downloads is not None:
                allowed = {"behavior": "allow", "downloadPath": str(downloads)}
                driver.execute_cdp_cmd("Browser.setDownloadBehavior", allowed)
            yield driver
        finally:
            driver.quit()

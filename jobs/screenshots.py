"""Take the pictures of docs/screenshots: every page in both themes, from the served generation.

A view is a link, so a picture is a link and a name. The job starts the atlas on a free port, opens each link once in
a headless Chromium, takes both themes of it, and stops both when it is done. Pictures are
WebP files without loss: they are kept in git.
"""

from __future__ import annotations

import argparse
import base64
import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from backend.errors import AtlasError
from jobs.server_process import chromium, served

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

ROOT = Path(__file__).resolve().parents[1]
SIZE = (1280, 800)
PAGES: dict[str, tuple[str, dict[str, str]]] = {
    "map": ("/", {}),
    "map-source": ("/", {"source": "claude_sonnet46", "other": "claude_opus46"}),
    "map-domains": ("/", {"space": "centred"}),
    "neighbourhoods": ("/neighbourhoods", {"roster": "100-way", "source": "claude_sonnet46"}),
    "attribution": (
        "/attribution",
        {"roster": "100-way", "truth": "claude_sonnet46", "answer": "claude_opus46", "k": "5"},
    ),
    "compare": ("/compare", {"roster": "100-way"}),
    "source": ("/source/claude_sonnet46", {"roster": "100-way", "k": "5"}),
    "family": ("/family/Claude", {"roster": "100-way", "k": "5"}),
    "relationships": ("/relationships", {"protocol": "family"}),
    "attribute": ("/attribute", {}),
    "brief": ("/brief", {"roster": "100-way"}),
    "methods": ("/methods", {}),
}
"""Path and choices of the pictures that ``docs/web.md`` shows."""
PRESSED: dict[str, tuple[tuple[str, str], ...]] = {
    "attribute": (("#attr-sample", "#attr-go:not([disabled])"), ("#attr-go", "#figure-evidence .main-svg"))
}
"""What is pressed before a picture is taken, and what has to be there afterwards: the shipped sample, attributed."""
ANSWER_S = 180.0
SETTLE_S = 1.5  # What fonts, the WebGL scene and a new size need.
DRAWN = (
    "return document.querySelectorAll('.js-plotly-plot .main-svg, .prose').length > 0"
    " && !document.querySelector('[data-dash-is-loading=true]')"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "screenshots", help="folder of the pictures")
    parser.add_argument("--only", default="", help="take the pictures whose name begins like this")


def run(arguments: argparse.Namespace) -> int:
    """Take the pictures."""
    arguments.to.mkdir(parents=True, exist_ok=True)
    with served() as url, chromium(None, "--hide-scrollbars") as driver:
        for name, (path, choices) in PAGES.items():
            if arguments.only and not name.startswith(arguments.only):
                continue
            link = f"{url}{path}?{urlencode({**choices, 'theme': 'dark'})}"
            _open(driver, link, PRESSED.get(name, ()))
            for theme in ("dark", "light"):
                if driver.execute_script("return document.documentElement.dataset.theme") != theme:
                    driver.execute_script("document.querySelector('#theme-toggle').click()")
                width, height = SIZE
                file = arguments.to / f"{name}-{theme}-{width}x{height}.webp"
                file.write_bytes(_picture(driver, width, height, link))
                print(file.name, flush=True)
    return 0


def _open(driver: WebDriver, url: str, pressed: Sequence[tuple[str, str]] = ()) -> None:
    """Open a link and press what is pressed before the pictures are taken."""
    driver.get("about:blank")
    driver.get(url)
    for button, then in pressed:
        _until(driver, f"return document.querySelector({button!r}) !== null", url)
        driver.execute_script(f"document.querySelector({button!r}).click()")
        _until(driver, f"return document.querySelector({then!r}) !== null", url)
    _until(driver, DRAWN, url)


def _picture(driver: WebDriver, width: int, height: int, url: str) -> bytes:
    """The page as it stands in a window of this size; one that scrolls is taken whole."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    time.sleep(SETTLE_S)
    _until(driver, DRAWN, url)
    whole = driver.execute_script(
        "const c = document.querySelector('.content');"
        "return document.querySelector('.map-page') ? 0 : c.scrollHeight + c.getBoundingClientRect().top"
    )
    if whole > height:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "height": int(whole)})
        time.sleep(SETTLE_S)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return _compact(base64.b64decode(shot["data"]))


def _compact(picture: bytes) -> bytes:
    """A WebP with every pixel of a PNG."""
    from PIL import Image

    with io.BytesIO() as out:
        Image.open(io.BytesIO(picture)).convert("RGB").save(out, "WEBP", lossless=True, method=6)
        return out.getvalue()


def _until(driver: WebDriver, holds: str, url: str) -> None:
    deadline = time.monotonic() + ANSWER_S
    while not driver.execute_script(holds):
        if time.monotonic() > deadline:
            raise AtlasError(f"{url} was not drawn within {ANSWER_S:.0f} s", "Open it in a browser and look at it")
        time.sleep(0.2)

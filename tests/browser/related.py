"""An invented atlas with relationships, served for the browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import waitress
from selenium.webdriver.remote.webdriver import WebDriver

from atlas.application import create_application
from tests.browser.conftest import Browser
from tests.invented_relationships import publish_related


def browse_related(driver: WebDriver, folder: Path) -> Iterator[Browser]:
    """Serve the atlas and give a browser on it; the last one that asks stops the server."""
    publish_related(folder / "data")
    app = create_application(folder / "data", folder / "cache")
    server = waitress.create_server(app.server, host="127.0.0.1", port=0, threads=6)
    threading.Thread(target=server.run, daemon=True).start()
    yield Browser(driver, f"http://127.0.0.1:{server.effective_port}")
    server.close()

"""An invented atlas with relationships, served for the browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import waitress
from selenium.webdriver.remote.webdriver import WebDriver

from atlas.application import create_application
from tests.browser.conftest import Browser, published
from tests.invented_relationships import publish_related


def browse_related(driver: WebDriver, factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Serve the atlas and give a browser on it; the last one that asks stops the server."""
    folder = published(factory, publish_related)
    app = create_application(folder / "data", folder / "cache")
    server = waitress.create_server(app.server, host="127.0.0.1", port=0, threads=6)
    threading.Thread(target=server.run, daemon=True).start()
    yield Browser(driver, f"http://127.0.0.1:{server.effective_port}")
    server.close()

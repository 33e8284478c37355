"""Scripts on their way to the browser: packed in the background, sent packed, kept as long as their address lasts."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import brotli
import pytest
from dash import Dash
from plotly.offline import get_plotlyjs_version

from atlas.application import create_application
from atlas.bundles import OWN_PLOTLY, PLOTLY, YEAR, Packed, install, served
from tests.invented_atlas import publish_invented

PLOTLY_SHA256 = "379bf7c1ff10b5c6c3c7dffd5de6886d459d60c1259f050de381c463be5ddd00"
ACCEPTS = {"Accept-Encoding": "br, gzip"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    folder = tmp_path_factory.mktemp("atlas")
    publish_invented(folder / "data")
    return create_application(folder / "data", folder / "cache")


def script(app: Dash, part: str) -> str:
    """Address of a script that the first bytes name."""
    page = app.server.test_client().get("/").get_data(as_text=True)
    return next(text for text in page.split('"') if part in text)


def packed_in_time(packed: Packed, file: Path) -> bytes:
    deadline = time.monotonic() + 300
    while (body := packed.get(file)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return body


def test_nobody_waits_and_the_next_start_finds_it(tmp_path: Path) -> None:
    file = tmp_path / "large.js"
    file.write_bytes(b"const a = 1;\n" * 1000)
    calls: list[int] = []

    def pack(content: bytes) -> bytes:
        calls.append(len(content))
        return brotli.compress(content)

    packed = Packed(tmp_path / "packed", pack)
    assert packed.get(file) is None
    assert brotli.decompress(packed_in_time(packed, file)) == file.read_bytes()
    assert Packed(tmp_path / "packed", pack).get(file) is not None and calls == [13_000]
    # Another content under the same name is packed anew.
    file.write_bytes(b"const b = 2;\n" * 2000)
    assert packed.get(file) is None
    assert brotli.decompress(packed_in_time(packed, file)) == file.read_bytes()
    small = tmp_path / "small.js"
    small.write_bytes(b"1")
    assert packed.get(small) is None and not any(tmp_path.joinpath("packed").glob("*.tmp"))


def test_only_files_that_pages_name_are_served(app: Dash) -> None:
    app.server.test_client().get("/")
    assert served(app, PLOTLY) is not None
    found = served(app, "/assets/atlas.js")
    assert found is not None and found.name == "atlas.js"
    for path in (
        "/assets/../app.py",
        "/assets/LICENSES/IBM-Plex-OFL-1.1.txt",
        "/_dash-component-suites/dash/dash.py",
        "/_dash-component-suites/os/path.js",
        "/_dash-component-suites/plotly/../../../etc/passwd.js",
        "/source/x.js",
        "/assets/\0.js",
        f"/assets/{'a' * 5000}.js",
        f"/_dash-component-suites/{'a' * 5000}/\0.js",
    ):
        assert served(app, path) is None, path


def test_a_name_that_no_file_can_have_is_not_found(tmp_path: Path) -> None:
    app = create_application(tmp_path / "data", tmp_path / "cache")
    install(app, Packed(tmp_path / "packed", lambda content: content))
    for name in ("%00", "a" * 5000):
        assert app.server.test_client().get(f"/assets/{name}.js", headers=ACCEPTS).status_code == 404


def test_packed_scripts_are_sent_and_say_how_long_they_last(tmp_path: Path) -> None:
    app = create_application(tmp_path / "data", tmp_path / "cache")
    packed = Packed(tmp_path / "packed", lambda content: brotli.compress(content, quality=1))
    install(app, packed)
    client = app.server.test_client()
    path = script(app, "dash_renderer")
    file = served(app, path)
    assert file is not None
    first = client.get(path, headers=ACCEPTS)
    assert brotli.decompress(first.get_data()) == file.read_bytes()
    body = packed_in_time(packed, file)
    again = client.get(path, headers=ACCEPTS)
    assert again.get_data() == body and again.headers["Content-Encoding"] == "br"
    assert again.mimetype == "text/javascript" and "Accept-Encoding" in again.headers["Vary"]
    plain = client.get(path)
    assert "Content-Encoding" not in plain.headers and plain.get_data() == file.read_bytes()
    for answer in (first, again, plain):
        assert f"max-age={YEAR}" in answer.headers["Cache-Control"] and "immutable" in answer.headers["Cache-Control"]


def test_what_has_no_print_in_its_address_is_asked_for_again(app: Dash) -> None:
    client = app.server.test_client()
    client.get("/")
    assert "no-cache" in client.get(PLOTLY).headers["Cache-Control"]
    assert "no-cache" in client.get("/assets/atlas.css").headers["Cache-Control"]
    stamp = (Path(app.config.assets_folder) / "atlas.css").stat().st_mtime
    assert "immutable" in client.get(f"/assets/atlas.css?m={stamp}").headers["Cache-Control"]
    font = client.get("/assets/fonts/ibm-plex-sans-latin-400-normal.woff2").headers["Cache-Control"]
    assert "max-age" in font and "immutable" not in font
    assert "max-age" not in client.get("/health").headers.get("Cache-Control", "")
    again = client.get(PLOTLY, headers={"If-None-Match": client.get(PLOTLY).headers["ETag"]})
    assert again.status_code == 304


def test_plotly_is_the_small_build_of_the_version_that_figures_are_made_for(app: Dash) -> None:
    content = (Path(app.config.assets_folder) / OWN_PLOTLY).read_bytes()
    assert hashlib.sha256(content).hexdigest() == PLOTLY_SHA256
    assert f"plotly.js v{get_plotlyjs_version()}," in content[:200].decode()
    client = app.server.test_client()
    answer = client.get(PLOTLY)
    assert answer.get_data() == content and answer.mimetype == "text/javascript"
    assert len(client.get(PLOTLY, headers=ACCEPTS).get_data()) < 0.3 * len(content)
    assert OWN_PLOTLY not in client.get("/").get_data(as_text=True)  # Dash asks for it where a figure is drawn


def test_pages_with_figures_ask_for_plotly_at_once(app: Dash) -> None:
    page = app.server.test_client().get("/").get_data(as_text=True)
    head = page[: page.index("</head>")]
    assert PLOTLY in head and '["/attribute", "/methods"].indexOf(location.pathname)<0' in head
    assert script(app, "dash_renderer")

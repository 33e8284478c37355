"""Scripts and style sheets, packed once as small as Brotli can, and cached by the browser.

That takes seconds, so who asks first gets what the server packs in passing; meanwhile one thread of the lowest priority
packs the file into the cache folder for all that follow.
"""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import brotli
from dash import Dash
from dash.fingerprint import check_fingerprint
from flask import Flask, Response, request, send_file

SUITES = "/_dash-component-suites/"
PLOTLY = f"{SUITES}plotly/package_data/plotly.min.js"
"""Where the renderer of Dash asks for plotly.js, which the first bytes of a page tell the browser to fetch at once."""
OWN_PLOTLY = "plotly/plotly.min.js"
"""What is sent there: plotly.js with the kinds of traces that figures use, an asset that ``make plotly`` builds."""
BEST = 11
SMALLEST = 1_024  # bytes of a file that is worth packing
YEAR, MONTH = 31_536_000, 2_592_000
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


class Packed:
    """Files packed at the best level, in a folder and in memory; threads may share it."""

    def __init__(self, folder: Path, pack: Callable[[bytes], bytes] | None = None) -> None:
        self._folder = folder
        self._pack = pack or (lambda content: brotli.compress(content, quality=BEST))
        self._packed: dict[str, bytes] = {}
        self._queued: set[str] = set()
        self._waiting: queue.SimpleQueue[tuple[str, Path]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def get(self, file: Path) -> bytes | None:
        """The packed content of a file as it is now, or None; then it is packed in the background."""
        state = file.stat()
        if state.st_size < SMALLEST:
            return None
        name = hashlib.sha256(f"{file}\0{state.st_size}\0{state.st_mtime_ns}".encode()).hexdigest()[:32]
        if name in self._packed:
            return self._packed[name]
        stored = self._folder / f"{name}.br"
        if stored.is_file():
            with self._lock:
                return self._packed.setdefault(name, stored.read_bytes())
        with self._lock:
            if name not in self._queued:
                self._queued.add(name)
                self._waiting.put((name, file))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="packing", daemon=True)
                    self._thread.start()
        return None

    def _work(self) -> None:
        if sys.platform == "linux":  # other systems would slow the whole process
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while True:
            name, file = self._waiting.get()
            try:
                packed = self._pack(file.read_bytes())
                self._folder.mkdir(parents=True, exist_ok=True)
                written = self._folder / f"{name}.{os.getpid()}"
                written.write_bytes(packed)
                written.replace(self._folder / f"{name}.br")
            except OSError:
                logging.getLogger(__name__).warning("%s could not be packed into %s", file, self._folder, exc_info=True)
                continue
            with self._lock:
                self._packed[name] = packed


def install(app: Dash, packed: Packed | None) -> None:
    """Send packed files (None packs nothing ahead), and tell the browser what it may cache."""
    server: Flask = app.server

    @server.before_request
    def send() -> Response | None:
        file = served(app, request.path) if request.method == "GET" else None
        if file is None:
            return None
        accepts = packed is not None and "br" in request.headers.get("Accept-Encoding", "")
        body = packed.get(file) if packed is not None and accepts else None
        if body is None:  # Dash sends it, but for plotly.js, of which it would send all
            return send_file(file, "text/javascript", conditional=True) if request.path == PLOTLY else None
        answer = Response(body, headers={"Content-Type": TYPES[file.suffix], "Content-Encoding": "br"})
        answer.headers["Vary"] = "Accept-Encoding"
        answer.set_etag(f"{file.stat().st_mtime_ns:x}-br")
        answer.make_conditional(request)
        return answer

    @server.after_request
    def keep(response: Response) -> Response:
        if response.status_code not in (200, 304):
            return response
        if request.path.startswith(SUITES):
            _last(response, YEAR if check_fingerprint(request.path)[1] else 0)
        elif request.path.startswith("/assets/"):
            _last(response, YEAR if "m" in request.args else MONTH if request.path.endswith(".woff2") else 0)
        return response


def _last(response: Response, seconds: int) -> None:
    """Let the browser cache an answer: for a year, unchecked, where its address changes with its content."""
    control = response.cache_control
    control.public, control.max_age = bool(seconds), seconds or None
    control.no_cache = None if seconds else True
    if seconds == YEAR:
        control.immutable = True


def served(app: Dash, path: str) -> Path | None:
    """The script or style sheet that a path stands for, or None: only files that the pages themselves name."""
    try:
        file = _named(app, path)
        return file if file is not None and file.suffix in TYPES and file.is_file() else None
    except (OSError, ValueError):  # a name that no file can have
        return None


def is_registered(app: Dash, path: str) -> bool:
    """Whether a path of :data:`SUITES` is a file that some component brings."""
    package, inside = _inside(path)
    return inside in app.registered_paths.get(package, ())


def _inside(path: str) -> tuple[str, str]:
    """Package of a path of :data:`SUITES`, and the path inside it."""
    package, _, rest = path.removeprefix(SUITES).partition("/")
    return package, check_fingerprint(rest)[0]


def _named(app: Dash, path: str) -> Path | None:
    if path == PLOTLY:
        return Path(app.config.assets_folder) / OWN_PLOTLY
    if path.startswith(SUITES):
        package, inside = _inside(path)
        home = getattr(sys.modules.get(package), "__file__", None)
        return Path(home).parent / inside if home and is_registered(app, path) else None
    if path.startswith("/assets/"):
        root = Path(app.config.assets_folder).resolve()
        file = (root / path.removeprefix("/assets/")).resolve()
        return file if file.is_relative_to(root) else None
    return None

"""Log lines: time, level, request and message, one line each whatever the message holds."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from backend.errors import AtlasError
from backend.service import caller
from backend.service.caller import Caller

if TYPE_CHECKING:
    from flask import Flask, Response

CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
"""Characters that would begin a line of their own or steer a terminal."""
HEADER = "X-Request-ID"
FORM = "ATLAS_LOG"  # text or json
_REFERENCE = re.compile(r"[A-Za-z0-9_.-]{8,64}")


class LineFormatter(logging.Formatter):
    """Format a record; only the traceback of the code itself stands on further lines."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s [%(request)s] %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.request = caller.current().request
        record.message = record.message.translate(CONTROL)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"  {line.translate(CONTROL)}" for line in lines)


class JsonFormatter(LineFormatter):
    """Format a record as one JSON object in one line, its traceback included."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "request": caller.current().request,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = logging.Formatter.formatException(self, record.exc_info)
        return json.dumps(fields).replace("\x7f", "\\u007f")


def configure(level: int = logging.INFO) -> None:
    """Write what the process logs to the standard error stream, a line each, in the form that ``ATLAS_LOG`` names."""
    form = os.environ.get(FORM) or "text"
    if form not in ("text", "json"):
        raise AtlasError(f"{FORM} is '{form[:20]}'", "Set it to text or json")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    if form == "json":  # gunicorn has loggers of its own
        for own in logging.getLogger("gunicorn.error").handlers + logging.getLogger("gunicorn.access").handlers:
            own.setFormatter(handler.formatter)


def install(server: Flask, *, proxied: bool = False) -> None:
    """Give every request a reference, which its log lines and its answer name; to be called first.

    proxied : whether a reverse proxy may give it, in ``X-Request-ID``.
    """
    from flask import request

    @server.before_request
    def enter() -> None:
        caller.enter(Caller(new_reference(request.headers.get(HEADER) if proxied else None), request.remote_addr))

    @server.after_request
    def name(response: Response) -> Response:
        response.headers[HEADER] = caller.current().request
        return response

    @server.teardown_request
    def leave(_: BaseException | None) -> None:
        caller.enter(caller.UNKNOWN)


def new_reference(given: str | None = None) -> str:
    """A new reference of a request, or the given one where that is well-formed."""
    return given if given and _REFERENCE.fullmatch(given) else secrets.token_hex(6)


_failures: Counter[tuple[str, str, int]] = Counter()
_lock = threading.Lock()


def log_failure(what: str, error: BaseException) -> None:
    """Log an error in one line, counted by its place in the code; with its traceback when it is seen there first."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    file, line = (place.tb_frame.f_code.co_filename, place.tb_lineno) if place is not None else ("?", 0)
    key = (type(error).__name__, file, line)
    with _lock:
        _failures[key] += 1
        count = _failures[key]
    logging.getLogger(__name__).error(
        "%s: %s at %s:%d, time %d", what, *key, count, exc_info=error if count == 1 else None
    )

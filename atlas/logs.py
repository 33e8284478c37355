"""Log lines: time, level, request and message, one line each whatever the message holds."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter

from flask import Flask, Response, g, has_request_context

CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
"""Characters that would begin a line of their own or steer a terminal."""
HEADER = "X-Request-ID"


class LineFormatter(logging.Formatter):
    """Format a record; only the traceback of the code itself stands on further lines."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s [%(request)s] %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.request = g.get("request_id", "-") if has_request_context() else "-"
        record.message = record.message.translate(CONTROL)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"  {line.translate(CONTROL)}" for line in lines)


def configure(level: int = logging.INFO) -> None:
    """Write what the process logs to the standard error stream, a line each."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def install(server: Flask) -> None:
    """Give every request an id, which its log lines and its answer name; to be called first."""

    @server.before_request
    def number() -> None:
        g.request_id = secrets.token_hex(6)

    @server.after_request
    def name(response: Response) -> Response:
        response.headers[HEADER] = g.get("request_id", "-")
        return response


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

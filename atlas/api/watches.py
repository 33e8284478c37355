"""``POST /v1/traces``: spans of an application into a watch, as OTLP/JSON; and the files of a watch's alarms.

A span is taken as :mod:`backend.intake.spans` reads it, and waits in the watch's inbox for its next look.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import secrets
import time
import zlib
from pathlib import Path

from flask import Flask, Response, jsonify, request

from atlas.api import access
from atlas.api.access import BARE, FILE, TRACES_OF_SPANS
from atlas.api.problems import RefusedError
from atlas.api.requests import JSON, turn
from backend.errors import AtlasError
from backend.intake import Problem, inspect, walk
from backend.intake.layout import PAGE
from backend.service.uploads import BusyError, FullError, parsing
from backend.service.watch_state import INBOX, WatchState

HEADER = "X-Atlas-Watch"
GZIP = b"\x1f\x8b"
MOST_FILES = 1_000  # that wait in one inbox
MOST_BYTES = 250_000_000  # that wait there together
TYPES = {
    "html": "text/html; charset=utf-8", "json": JSON, "csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson",
}  # fmt: skip
FILES = "/watch/<name>/alarm-<int:number>.<form>"


def install(server: Flask) -> None:
    """Add the routes."""

    @server.post(TRACES_OF_SPANS)
    def take_spans() -> Response:
        _admit()
        name = request.headers.get(HEADER) or request.args.get("watch", "")
        if request.mimetype != JSON:
            remedy = "Set the exporter's protocol to http/json."
            raise RefusedError(415, "Spans are taken as OTLP/JSON alone.", remedy)
        if not name:
            raise RefusedError(422, "No watch is named.", f"Name one in the header {HEADER} or as ?watch=NAME.")
        inbox = WatchState.open(name).folder / INBOX
        with turn(request):
            content = _unpacked(request.get_data(cache=False))
            traces, problems = _count(content)
        if traces:
            _keep(inbox, content)
        rejected = {"rejectedSpans": str(len(problems)), "errorMessage": problems[0]} if problems else {}
        return jsonify({"partialSuccess": rejected})

    @server.get(FILES)
    def alarm_file(name: str, number: int, form: str) -> Response:
        _admit()
        if form == "jsonl" and access.exposed():
            raise RefusedError(403, "A server without a token shows no traces.", f"Start it with {access.TOKEN}.")
        answer = Response(WatchState.open(name).file(number, form).read_bytes(), content_type=TYPES[form])
        answer.headers["Cache-Control"] = "no-store"
        if form == "html":
            answer.headers["Content-Security-Policy"] = BARE
        else:
            answer.headers["Content-Disposition"] = f'attachment; filename="alarm-{number}.{form}"'
        return answer


def _admit() -> None:
    if not access.authorised(request):
        raise RefusedError(401, "The request has no valid token.", "Send it as: Authorization: Bearer TOKEN.")


def _unpacked(content: bytes) -> bytes:
    """A body as it was before an exporter packed it; RefusedError where that is too long, or no export of spans."""
    if content[:2] == GZIP:
        unpacking = zlib.decompressobj(wbits=31)
        try:
            content = unpacking.decompress(content, FILE)
        except zlib.error as error:
            raise RefusedError(400, "The body is a damaged gzip file.", "Send it again.") from error
        if unpacking.unconsumed_tail:
            raise RefusedError(413, f"The body has more than {FILE:,} bytes.", "Let the exporter send smaller batches.")
    if b'"resourceSpans"' not in content:
        raise RefusedError(400, "The body is no export of spans.", "Send OTLP/JSON, with resourceSpans.")
    return content


def _count(content: bytes) -> tuple[int, list[str]]:
    """Traces in a body, and why others gave none; RefusedError where it is no OTLP/JSON at all."""
    traces, problems = 0, list[str]()
    with parsing.turn("The server reads other files at this moment"):
        try:
            layout = inspect(io.BytesIO(content), "the body", None, PAGE)
            if layout.kind not in ("json", "jsonl"):
                raise RefusedError(400, "The body is no JSON.", "Send a JSON object.")
            for found in itertools.islice(walk(io.BytesIO(content), layout, PAGE), PAGE.traces):
                if isinstance(found, Problem):
                    problems.append(found.reason)
                else:
                    traces += 1
        except AtlasError as error:
            raise RefusedError(400, f"{error.problem}.", f"{error.remedy}.") from error
    return traces, problems


def _keep(inbox: Path, content: bytes) -> None:
    """Put a body into the inbox in one step; BusyError where too much waits there."""
    with contextlib.suppress(OSError):
        waiting = [path.stat().st_size for path in inbox.glob("[!.]*.json")]
        if len(waiting) >= MOST_FILES or sum(waiting) + len(content) > MOST_BYTES:
            raise BusyError("The watch has not read what it got before", "See whether its process runs")
    path = inbox / f"{time.time_ns():020d}-{secrets.token_hex(4)}.json"
    scratch = path.with_name(f".{path.name}")
    try:
        scratch.write_bytes(content)
        scratch.replace(path)
    except OSError as error:
        raise FullError(f"The inbox cannot be written ({error.strerror})", "Tell whoever runs the server") from error

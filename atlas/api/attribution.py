"""``/api/attribute`` and ``/api/jobs``: traces in, evidence out; at once, later, or as it comes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, jsonify, request

from atlas.api.problems import PREFIX, RefusedError, document, refused
from atlas.api.requests import received
from atlas.api.sites import BARE
from backend.errors import AtlasError
from backend.service.job import ENDED, Snapshot
from backend.service.service import Service
from backend.service.sessions import SHORT
from backend.service.uploads import BusyError

STREAM = "application/x-ndjson"
SECONDS = 60.0
"""For which a request waits for its answer; then it gets a job to ask about."""
STREAM_SECONDS = 1_800.0
WAITERS = 4
"""Requests that wait at a time; each holds one of the server's threads."""
PULSE = 2.0
"""Seconds after which a stream says how far it is, also where that is no further: nobody else notices who hung up."""
FORMS = {"html": "text/html; charset=utf-8", "json": "application/json", "csv": "text/csv; charset=utf-8"}


def add(routes: Blueprint, service: Service, waiters: threading.BoundedSemaphore) -> None:
    """Add the routes; ``waiters`` counts the requests that wait for an answer."""

    @routes.post("/attribute")
    def attribute() -> Response:
        session = secrets.token_hex(16)
        name, content, settings = received(request)
        wants_stream = request.accept_mimetypes.best_match(("application/json", STREAM)) == STREAM
        later = "respond-async" in request.headers.get("Prefer", "") and not wants_stream
        waits = not later and waiters.acquire(blocking=False)
        # What is left at the end: a place among those who wait, and, once it is answered, the session.
        with contextlib.ExitStack() as place, contextlib.ExitStack() as left:
            if waits:
                place.callback(waiters.release)
            left.callback(service.forget, session)
            try:
                if wants_stream and not waits:
                    raise BusyError("Too many requests wait for an answer already", "Ask for JSON, or try again later")
                upload = service.upload(session, name, content, passing=True)
                del content  # it would stay in memory while others are parsed
                job = service.start(session, upload.key, settings, discard=True, client=request.remote_addr)
            except AtlasError as error:
                raise unless_ready(service, error) from error
            if wants_stream:
                end = contextlib.ExitStack()
                end.enter_context(place.pop_all())
                end.enter_context(left.pop_all())
                # After the last line, or when somebody hangs up, also before the first; a second time does nothing.
                response = Response(_lines(service, session, job, end.close), content_type=STREAM)
                response.call_on_close(end.close)
                return response
            now = service.progress(session, job)
            if waits and now.total <= SHORT:
                now = service.wait(session, job, SECONDS)
            if now.state not in ENDED or not waits:
                left.pop_all()
                return accepted(_state(now, session) | {"evidence": _plain(now.points), "report": None}, "jobs")
            if not now.reported:
                raise failure(now)
            return jsonify(_told(service, session, now))

    @routes.get("/jobs/<identity>")
    def look(identity: str) -> Response:
        session, job = _parts(identity)
        return jsonify(_told(service, session, service.progress(session, job)))

    @routes.delete("/jobs/<identity>")
    def stop(identity: str) -> Response:
        session, job = _parts(identity)
        if service.forget_lost(session):
            return Response(status=HTTPStatus.NO_CONTENT)
        if service.progress(session, job).state in ENDED:
            service.forget(session)
            return Response(status=HTTPStatus.NO_CONTENT)
        service.cancel(session, job)
        return jsonify(_told(service, session, service.wait(session, job, SECONDS)))

    @routes.get("/jobs/<identity>/report")
    def report(identity: str) -> Response:
        session, job = _parts(identity)
        form = request.args.get("form", "json")
        if form not in FORMS:
            raise RefusedError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "There is no such form of a report.",
                f"Choose from {', '.join(FORMS)}.",
                [{"pointer": "form", "detail": f"One of {', '.join(FORMS)}"}],
            )
        answer = Response(service.export(session, job, form), content_type=FORMS[form])
        answer.headers["Cache-Control"] = "no-store"
        if form != "html":
            answer.headers["Content-Disposition"] = f'attachment; filename="report.{form}"'
        if form == "html":
            answer.headers["Content-Security-Policy"] = BARE
        return answer


def _lines(service: Service, session: str, job: str, end: Callable[[], None]) -> Iterator[bytes]:
    """Progress after every batch and every few seconds, then the report."""
    done, subject, ends = 0, None, time.monotonic() + STREAM_SECONDS
    try:
        while True:
            now = service.wait(session, job, PULSE, after=done)
            if now.done > done or now.state not in ENDED:
                fresh = [point for point in now.points if point.traces > done or point.subject != subject]
                yield _line({"event": "progress"} | _state(now, session) | {"evidence": _plain(fresh)})
                done, subject = now.done, now.points[-1].subject if now.points else None
            if now.state in ENDED:
                if now.reported:
                    yield _line({"event": "report", "report": service.report(session, job)})
                else:
                    yield _line({"event": "problem", "problem": document(failure(now))})
                return
            if time.monotonic() > ends:
                yield _line(
                    {"event": "problem", "problem": document(RefusedError(HTTPStatus.GATEWAY_TIMEOUT, "Too long."))}
                )
                return
    except AtlasError as error:
        yield _line({"event": "problem", "problem": document(refused(error))})
    finally:
        end()


def accepted(told: dict[str, Any], where: str) -> Response:
    """That a job will be answered later, below a path."""
    response = jsonify(told)
    response.status_code = HTTPStatus.ACCEPTED
    response.headers["Location"] = f"{PREFIX}/{where}/{told['job']}"
    response.headers["Retry-After"] = "2"
    return response


def _told(service: Service, session: str, now: Snapshot) -> dict[str, Any]:
    report = service.report(session, now.job) if now.reported and now.state in ENDED else None
    return _state(now, session) | {"evidence": _plain(now.points), "report": report}


def _state(now: Snapshot, session: str) -> dict[str, Any]:
    return {
        "job": f"{session}.{now.job}",
        "state": now.state,
        "done": now.done,
        "total": now.total,
        "seconds": now.seconds,
        "waiting": now.waiting,
        "enrolment": now.enrolment,
        "claimed": now.claimed,
        "nearest": list(now.nearest),
        "problem": None if now.problem is None else document(failure(now)),
    }


def _plain(points: Any) -> list[dict[str, Any]]:
    return [dataclasses.asdict(point) for point in points]


def _line(told: dict[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def failure(end: Snapshot) -> RefusedError:
    """Why a job has brought nothing."""
    if end.state == "cancelled":
        return RefusedError(HTTPStatus.CONFLICT, "The audit was cancelled before the first batch.")
    status = HTTPStatus.SERVICE_UNAVAILABLE if end.at_fault == "server" else HTTPStatus.UNPROCESSABLE_ENTITY
    return RefusedError(status, f"{end.problem}.", f"{end.remedy}." if end.remedy else None)


def unless_ready(service: Service, error: AtlasError) -> RefusedError:
    """Without any ecosystem it is the server that lacks something, not the request."""
    if service.state().status == "absent":
        return refused(error, HTTPStatus.SERVICE_UNAVAILABLE)
    return refused(error)


def _parts(identity: str) -> tuple[str, str]:
    session, _, job = identity.partition(".")
    if len(session) != 32 or not job:
        raise RefusedError(HTTPStatus.NOT_FOUND, "There is no such job.", "Jobs are deleted after 24 hours.")
    return session, job

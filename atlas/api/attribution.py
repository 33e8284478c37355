"""``/api/attribute``, ``/api/preview``, ``/api/jobs`` and ``/api/drift``: traces in, evidence out; at once or later."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, jsonify, request

from atlas.api.problems import PREFIX, RefusedError, document, refused
from atlas.api.requests import received, received_windows
from atlas.api.sites import BARE
from backend.errors import AtlasError, StoppedError
from backend.service.job import ENDED, Snapshot
from backend.service.service import Service
from backend.service.sessions import SHORT
from backend.service.uploads import BusyError, MissingError

STREAM = "application/x-ndjson"
SECONDS = 60.0  # for which a request waits for its answer; then it gets a job to ask about
STREAM_SECONDS = 1_800.0
WAITERS = 4  # requests that wait at a time; each holds one of the server's threads
PULSE = 2.0
"""Seconds after which a stream says how far it is, also where that is no further: nobody else notices who hung up."""
FORMS = {"html": "text/html; charset=utf-8", "json": "application/json", "csv": "text/csv; charset=utf-8"}


def add(routes: Blueprint, service: Service, waiters: threading.BoundedSemaphore) -> None:
    """Add the routes; ``waiters`` counts the requests that wait for an answer."""
    _add_attribute(routes, service, waiters)
    _add_jobs(routes, service)
    _add_drift(routes, service, waiters)

    @routes.post("/preview")
    def preview() -> Response:
        """Takes the body of ``POST /api/attribute``, and leaves nothing behind."""
        session = secrets.token_hex(16)
        name, content, settings = received(request)
        try:
            key = service.upload(session, name, content, passing=True).key
            del content  # it would stay in memory while others are parsed
            return jsonify(dataclasses.asdict(service.inspect(session, key, settings.columns, settings.encoding)))
        finally:
            service.forget(session)


def _add_attribute(routes: Blueprint, service: Service, waiters: threading.BoundedSemaphore) -> None:
    @routes.post("/attribute")
    def attribute() -> Response:
        session = secrets.token_hex(16)
        name, content, settings = received(request)
        wants_stream = request.accept_mimetypes.best_match(("application/json", STREAM)) == STREAM
        later = "respond-async" in request.headers.get("Prefer", "") and not wants_stream
        waits = not later and waiters.acquire(blocking=False)
        # What is released at the end: a place among those who wait, and, once it is answered, the session.
        with contextlib.ExitStack() as place, contextlib.ExitStack() as forget:
            if waits:
                place.callback(waiters.release)
            forget.callback(service.forget, session)
            try:
                if wants_stream and not waits:
                    raise BusyError("Too many requests wait for an answer already", "Ask for JSON, or try again later")
                upload = service.upload(session, name, content, passing=True)
                del content  # it would stay in memory while others are parsed
                job = service.start(session, upload.key, settings, discard=True, client=request.remote_addr)
            except AtlasError as error:
                raise _unless_ready(service, error) from error
            if wants_stream:
                end = contextlib.ExitStack()
                end.enter_context(place.pop_all())
                end.enter_context(forget.pop_all())
                # After the last line, or when somebody hangs up, also before the first; a second time does nothing.
                response = Response(_lines(service, session, job, end.close), content_type=STREAM)
                response.call_on_close(end.close)
                return response
            now = service.progress(session, job)
            if waits and now.total <= SHORT:
                now = service.wait(session, job, SECONDS)
            if now.state not in ENDED or not waits:
                forget.pop_all()
                return _accepted(_state(now, session) | {"evidence": _plain(now.points), "report": None}, "jobs")
            if not now.reported:
                raise _failure(now)
            return jsonify(_answer(service, session, now))


def _add_jobs(routes: Blueprint, service: Service) -> None:
    @routes.get("/jobs/<identity>")
    def look(identity: str) -> Response:
        session, job = _job(identity)
        return jsonify(_answer(service, session, service.progress(session, job)))

    @routes.delete("/jobs/<identity>")
    def stop(identity: str) -> Response:
        session, job = _job(identity)
        if service.forget_lost(session):
            return Response(status=HTTPStatus.NO_CONTENT)
        if service.progress(session, job).state in ENDED:
            service.forget(session)
            return Response(status=HTTPStatus.NO_CONTENT)
        service.cancel(session, job)
        return jsonify(_answer(service, session, service.wait(session, job, SECONDS)))

    @routes.get("/jobs/<identity>/report")
    def report(identity: str) -> Response:
        session, job = _job(identity)
        form = request.args.get("form", "json")
        if form not in FORMS:
            known = ", ".join(FORMS)
            errors = [{"pointer": "form", "detail": f"One of {known}"}]
            status = HTTPStatus.UNPROCESSABLE_ENTITY
            raise RefusedError(status, "There is no such form of a report.", f"Choose from {known}.", errors)
        answer = Response(service.export(session, job, form), content_type=FORMS[form])
        answer.headers["Cache-Control"] = "no-store"
        if form == "html":
            answer.headers["Content-Security-Policy"] = BARE
        else:
            answer.headers["Content-Disposition"] = f'attachment; filename="report.{form}"'
        return answer


def _add_drift(routes: Blueprint, service: Service, waiters: threading.BoundedSemaphore) -> None:
    @routes.post("/drift")
    def drift() -> Response:
        session = secrets.token_hex(16)
        files, settings = received_windows(request)
        waits = "respond-async" not in request.headers.get("Prefer", "") and waiters.acquire(blocking=False)
        with contextlib.ExitStack() as place, contextlib.ExitStack() as forget:
            if waits:
                place.callback(waiters.release)
            forget.callback(service.forget, session)
            try:
                keys = []
                while files:  # none stays in memory while others are parsed
                    keys.append(service.upload(session, *files.pop(0), passing=True).key)
                jobs = service.start_windows(session, keys, settings, request.remote_addr)
            except AtlasError as error:
                raise _unless_ready(service, error) from error
            now = [service.progress(session, job) for job in jobs]
            if waits and sum(one.total for one in now) <= SHORT:
                ends = time.monotonic() + SECONDS
                now = [service.wait(session, job, max(0.0, ends - time.monotonic())) for job in jobs]
            if not waits or _state_of_windows(now) not in ENDED:
                forget.pop_all()
                return _accepted(_windows(session, now) | {"answer": None}, "drift")
            if (wrong := next((one for one in now if one.state == "failed"), None)) is not None:
                raise _failure(wrong)
            return jsonify(_windows(session, now) | {"answer": service.drift(session, *jobs)})

    @routes.get("/drift/<identity>")
    def comparison(identity: str) -> Response:
        session, jobs = _comparison(identity)
        return jsonify(_drift_answer(service, session, [service.progress(session, job) for job in jobs]))

    @routes.delete("/drift/<identity>")
    def drop(identity: str) -> Response:
        session, jobs = _comparison(identity)
        if service.forget_lost(session):
            return Response(status=HTTPStatus.NO_CONTENT)
        if _state_of_windows([service.progress(session, job) for job in jobs]) in ENDED:
            service.forget(session)
            return Response(status=HTTPStatus.NO_CONTENT)
        for job in jobs:
            service.cancel(session, job)
        return jsonify(_drift_answer(service, session, [service.wait(session, job, SECONDS) for job in jobs]))


def _lines(service: Service, session: str, job: str, end: Callable[[], None]) -> Iterator[bytes]:
    """Progress after every batch and every few seconds, then the report."""

    def line(event: str, **parts: Any) -> bytes:
        return json.dumps({"event": event} | parts, separators=(",", ":")).encode() + b"\n"

    done, subject, ends = 0, None, time.monotonic() + STREAM_SECONDS
    try:
        while True:
            now = service.wait(session, job, PULSE, after=done)
            if now.done > done or now.state not in ENDED:
                fresh = [point for point in now.points if point.traces > done or point.subject != subject]
                yield line("progress", **_state(now, session), evidence=_plain(fresh))
                done, subject = now.done, now.points[-1].subject if now.points else None
            if now.state in ENDED:
                if now.reported:
                    yield line("report", report=service.report(session, job))
                else:
                    yield line("problem", problem=document(_failure(now)))
                return
            if time.monotonic() > ends:
                yield line("problem", problem=document(RefusedError(HTTPStatus.GATEWAY_TIMEOUT, "Too long.")))
                return
    except AtlasError as error:
        yield line("problem", problem=document(refused(error)))
    finally:
        end()


def _accepted(answer: dict[str, Any], where: str) -> Response:
    """That a job will be answered later, below a path."""
    response = jsonify(answer)
    response.status_code = HTTPStatus.ACCEPTED
    response.headers["Location"] = f"{PREFIX}/{where}/{answer['job']}"
    response.headers["Retry-After"] = "2"
    return response


def _answer(service: Service, session: str, now: Snapshot) -> dict[str, Any]:
    report = service.report(session, now.job) if now.reported and now.state in ENDED else None
    return _state(now, session) | {"evidence": _plain(now.points), "report": report}


def _state(now: Snapshot, session: str) -> dict[str, Any]:
    fields = ("state", "done", "total", "seconds", "waiting", "enrolment", "claimed")
    return {"job": f"{session}.{now.job}"} | {name: getattr(now, name) for name in fields} | {
        "nearest": list(now.nearest), "problem": None if now.problem is None else document(_failure(now))
    }  # fmt: skip


def _plain(points: Any) -> list[dict[str, Any]]:
    return [dataclasses.asdict(point) for point in points]


def _drift_answer(service: Service, session: str, now: Sequence[Snapshot]) -> dict[str, Any]:
    answer = _windows(session, now) | {"answer": None}
    if answer["state"] in ("done", "cancelled"):
        try:
            answer["answer"] = service.drift(session, *(one.job for one in now))
        except (MissingError, BusyError):
            raise
        except StoppedError as error:
            answer["problem"] = document(refused(error))
        except AtlasError as error:
            answer |= {"state": "failed", "problem": document(refused(error))}
    return answer


def _windows(session: str, now: Sequence[Snapshot]) -> dict[str, Any]:
    wrong = next((one for one in now if one.problem is not None), None)
    return {
        "job": ".".join([session, *(one.job for one in now)]),
        "state": _state_of_windows(now),
        **{name: sum(getattr(one, name) for one in now) for name in ("done", "total", "seconds")},
        "waiting": max(one.waiting for one in now),
        "enrolment": now[0].enrolment,
        "problem": None if wrong is None else document(_failure(wrong)),
    }


def _state_of_windows(now: Sequence[Snapshot]) -> str:
    """State of a comparison: one that was cancelled has ended when both of its windows have."""
    states = {one.state for one in now}
    if "failed" in states:
        return "failed"
    if "cancelled" in states and states <= set(ENDED):
        return "cancelled"
    return states.pop() if len(states) == 1 else "running"


def _failure(end: Snapshot) -> RefusedError:
    """Why a job has no result."""
    if end.state == "cancelled":
        return RefusedError(HTTPStatus.CONFLICT, "The audit was cancelled before the first batch.")
    status = HTTPStatus.SERVICE_UNAVAILABLE if end.at_fault == "server" else HTTPStatus.UNPROCESSABLE_ENTITY
    return RefusedError(status, f"{end.problem}.", f"{end.remedy}." if end.remedy else None)


def _unless_ready(service: Service, error: AtlasError) -> RefusedError:
    """Without any ecosystem it is the server that lacks something, not the request."""
    absent = service.state().status == "absent"
    return refused(error, HTTPStatus.SERVICE_UNAVAILABLE) if absent else refused(error)


def _job(identity: str) -> tuple[str, str]:
    session, _, job = identity.partition(".")
    if len(session) != 32 or not job:
        raise RefusedError(HTTPStatus.NOT_FOUND, "There is no such job.", "Jobs are deleted after 24 hours.")
    return session, job


def _comparison(identity: str) -> tuple[str, list[str]]:
    session, *jobs = identity.split(".")
    if len(session) != 32 or not 1 <= len(jobs) <= 2 or not all(jobs):
        remedy = "Comparisons are deleted after 24 hours."
        raise RefusedError(HTTPStatus.NOT_FOUND, "There is no such comparison.", remedy)
    return session, jobs

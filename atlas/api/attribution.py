"""``/api/attribute``, ``/api/preview``, ``/api/jobs``, ``/api/drift``, ``/api/reference``: traces in, evidence out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flask import Blueprint, Response, jsonify, request

from atlas.api.access import BARE
from atlas.api.problems import PREFIX, RefusedError, document, refused
from atlas.api.requests import Compared, File, Windows, received, received_windows
from backend.errors import AtlasError, StoppedError
from backend.service.job import ENDED, SHORT, Snapshot
from backend.service.service import Service
from backend.service.uploads import BusyError, MissingError

STREAM = "application/x-ndjson"
SECONDS = 60.0  # for which a request waits for its answer; then it gets a job to ask about
STREAM_SECONDS = 1_800.0
WAITERS = 4  # requests that wait at a time; each holds one of the server's threads
PULSE = 2.0
"""Seconds after which a stream says how far it is, also where that is no further: nobody else notices who hung up."""
FORMS = {"html": "text/html; charset=utf-8", "json": "application/json", "csv": "text/csv; charset=utf-8"}


class Audit:
    """One job of a session, as the routes below ``/api/jobs`` answer for it."""

    route, noun, most = "jobs", "job", 1  # path, word, and most jobs of one answer

    def __init__(self, service: Service, session: str, jobs: Sequence[str]) -> None:
        self.service, self.session, self.jobs = service, session, jobs

    def progress(self) -> list[Snapshot]:
        """Every job now."""
        return [self.service.progress(self.session, job) for job in self.jobs]

    def pending(self, now: Sequence[Snapshot]) -> dict[str, Any]:
        """The answer without its result."""
        evidence = [*map(dataclasses.asdict, now[0].points)]
        return _job_fields(self.session, now[0]) | {"evidence": evidence, "report": None}

    def finished(self, now: Sequence[Snapshot]) -> dict[str, Any]:
        """The answer of jobs that have ended; raises RefusedError or AtlasError where there is no result."""
        if not now[0].reported:
            raise _failure(now[0])
        return self.pending(now) | {"report": self.service.report(self.session, now[0].job)}

    def answer(self, now: Sequence[Snapshot]) -> dict[str, Any]:
        """The answer, with its result where there is one."""
        return self.finished(now) if now[0].reported and now[0].ended else self.pending(now)


class Comparison(Audit):
    """Two windows of traces, or one to halve, as the routes below ``/api/drift`` answer for them."""

    route, noun, most = "drift", "comparison", 2

    def pending(self, now: Sequence[Snapshot]) -> dict[str, Any]:
        sums = {name: sum(getattr(one, name) for one in now) for name in ("done", "total", "seconds")}
        waiting, problem = max(one.waiting for one in now), next(filter(None, map(_problem, now)), None)
        together = {"job": ".".join([self.session, *self.jobs]), "state": _state(now), "waiting": waiting}
        return together | sums | {"enrolment": now[0].enrolment, "problem": problem, "answer": None}

    def finished(self, now: Sequence[Snapshot]) -> dict[str, Any]:
        if (failed := next((one for one in now if one.state == "failed"), None)) is not None:
            raise _failure(failed)
        return self.pending(now) | {"answer": self.compared()}

    def compared(self) -> dict[str, Any]:
        """The answer of the comparison."""
        return self.service.drift(self.session, *self.jobs)

    def answer(self, now: Sequence[Snapshot]) -> dict[str, Any]:
        pending = self.pending(now)
        if pending["state"] not in ("done", "cancelled"):
            return pending
        try:
            return self.finished(now)
        except (MissingError, BusyError):
            raise
        except StoppedError as error:
            return pending | {"problem": document(refused(error))}
        except AtlasError as error:
            return pending | {"state": "failed", "problem": document(refused(error))}


class ReferenceCheck(Comparison):
    """Traces, a reference, and maybe a rival, as the routes below ``/api/reference`` answer for them."""

    route, most = "reference", 3

    def compared(self) -> dict[str, Any]:
        return self.service.reference_check(self.session, self.jobs)


def add(routes: Blueprint, service: Service, waiters: threading.BoundedSemaphore) -> None:
    """Add the routes; ``waiters`` counts the requests that wait for an answer."""

    @routes.post("/preview")
    def preview() -> Response:
        """Takes the body of ``POST /api/attribute``, and stores nothing."""
        session = secrets.token_hex(16)
        files, settings = received(request)
        try:
            key = service.upload(session, *files[0], passing=True).key
            del files  # they would stay in memory while others are parsed
            return jsonify(dataclasses.asdict(service.inspect(session, key, settings.columns, settings.encoding)))
        finally:
            service.forget(session)

    @routes.post("/attribute")
    def attribute() -> Response:
        files, settings = received(request)
        stream = request.accept_mimetypes.best_match(("application/json", STREAM)) == STREAM

        def start(session: str, keys: Sequence[str]) -> list[str]:
            pool = keys[1] if len(keys) > 1 else None
            client = request.remote_addr
            return [service.start(session, keys[0], settings, discard=True, client=client, background=pool)]

        return _respond(service, waiters, Audit, files, start, stream=stream)

    @routes.post("/drift")
    def drift() -> Response:
        files, settings = received_windows(request, Windows)

        def start(session: str, keys: Sequence[str]) -> list[str]:
            return service.start_windows(session, keys, settings, request.remote_addr)

        return _respond(service, waiters, Comparison, files, start)

    @routes.post("/reference")
    def reference() -> Response:
        files, settings = received_windows(request, Compared)

        def start(session: str, keys: Sequence[str]) -> list[str]:
            return service.start_reference_check(session, keys, settings, request.remote_addr)

        return _respond(service, waiters, ReferenceCheck, files, start)

    @routes.get("/jobs/<identity>/report")
    def report(identity: str) -> Response:
        session, (job,) = _jobs_of(identity, Audit)
        form = request.args.get("form", "json")
        if form not in FORMS:
            known = ", ".join(FORMS)
            errors = [{"pointer": "form", "detail": f"One of {known}"}]
            raise RefusedError(422, "There is no such form of a report.", f"Choose from {known}.", errors)
        answer = Response(service.export(session, job, form), content_type=FORMS[form])
        answer.headers["Cache-Control"] = "no-store"
        if form == "html":
            answer.headers["Content-Security-Policy"] = BARE
        else:
            answer.headers["Content-Disposition"] = f'attachment; filename="report.{form}"'
        return answer

    for kind in (Audit, Comparison, ReferenceCheck):
        _add_results(routes, service, kind)


def _add_results(routes: Blueprint, service: Service, kind: type[Audit]) -> None:
    @routes.get(f"/{kind.route}/<identity>", endpoint=f"{kind.route}_answer")
    def show(identity: str) -> Response:
        work = kind(service, *_jobs_of(identity, kind))
        return jsonify(work.answer(work.progress()))

    @routes.delete(f"/{kind.route}/<identity>", endpoint=f"{kind.route}_end")
    def end(identity: str) -> Response:
        session, jobs = _jobs_of(identity, kind)
        work = kind(service, session, jobs)
        if _state(work.progress()) in ENDED:
            service.forget(session)
            return Response(status=204)
        for job in jobs:
            service.cancel(session, job)
        return jsonify(work.answer([service.wait(session, job, SECONDS) for job in jobs]))


def _respond(
    service: Service, waiters: threading.BoundedSemaphore, kind: type[Audit], files: list[File],
    start: Callable[[str, Sequence[str]], list[str]], *, stream: bool = False,
) -> Response:  # fmt: skip
    """Start jobs on uploaded files and answer with their result, a job to ask about (202), or a stream of evidence."""
    session = secrets.token_hex(16)
    later = "respond-async" in request.headers.get("Prefer", "") and not stream
    waits = not later and waiters.acquire(blocking=False)
    # What is released at the end: a place among those who wait, and, once it is answered, the session.
    with contextlib.ExitStack() as place, contextlib.ExitStack() as forget:
        if waits:
            place.callback(waiters.release)
        forget.callback(service.forget, session)
        try:
            if stream and not waits:
                raise BusyError("Too many requests wait for an answer already", "Ask for JSON, or try again later")
            keys = []
            while files:  # none stays in memory while others are parsed
                keys.append(service.upload(session, *files.pop(0), passing=True).key)
            work = kind(service, session, start(session, keys))
        except AtlasError as error:
            # Without any ecosystem it is the server that lacks something, not the request.
            raise refused(error, 503 if service.state().status == "absent" else 422) from error
        if stream:
            end = contextlib.ExitStack()
            end.enter_context(place.pop_all())
            end.enter_context(forget.pop_all())
            # After the last line, or when somebody hangs up, also before the first; a second time does nothing.
            response = Response(_lines(service, session, work.jobs[0], end.close), content_type=STREAM)
            response.call_on_close(end.close)
            return response
        now = work.progress()
        if waits and sum(one.total for one in now) <= SHORT:
            ends = time.monotonic() + SECONDS
            now = [service.wait(session, job, max(0.0, ends - time.monotonic())) for job in work.jobs]
        if waits and _state(now) in ENDED:
            return jsonify(work.finished(now))
        forget.pop_all()
        service.keep(session)
        response = jsonify(work.pending(now))
        response.status_code = 202
        response.headers["Location"] = f"{PREFIX}/{kind.route}/{'.'.join([session, *work.jobs])}"
        response.headers["Retry-After"] = "2"
        return response


def _lines(service: Service, session: str, job: str, end: Callable[[], None]) -> Iterator[bytes]:
    """Progress after every batch and every few seconds, then the report."""

    def line(event: str, **parts: Any) -> bytes:
        return json.dumps({"event": event} | parts, separators=(",", ":")).encode() + b"\n"

    done, subject, ends = 0, None, time.monotonic() + STREAM_SECONDS
    try:
        while True:
            now = service.wait(session, job, PULSE, after=done)
            if now.done > done or not now.ended:
                fresh = [point for point in now.points if point.traces > done or point.subject != subject]
                yield line("progress", **_job_fields(session, now), evidence=[*map(dataclasses.asdict, fresh)])
                done, subject = now.done, now.points[-1].subject if now.points else None
            if now.ended:
                if now.reported:
                    yield line("report", report=service.report(session, job))
                else:
                    yield line("problem", problem=document(_failure(now)))
                return
            if time.monotonic() > ends:
                yield line("problem", problem=document(RefusedError(504, "Too long.")))
                return
    except AtlasError as error:
        yield line("problem", problem=document(refused(error)))
    finally:
        end()


def _jobs_of(identity: str, kind: type[Audit]) -> tuple[str, list[str]]:
    """Session and jobs of an identity; raises RefusedError 404 where it can be none."""
    session, _, rest = identity.partition(".")
    jobs = rest.split(".")
    if len(session) != 32 or len(jobs) > kind.most or not all(jobs):
        name = kind.noun
        raise RefusedError(404, f"There is no such {name}.", f"{name.capitalize()}s are deleted after 24 hours.")
    return session, jobs


def _state(now: Sequence[Snapshot]) -> str:
    """State of jobs together; a comparison that was cancelled has ended when both of its windows have."""
    states = {one.state for one in now}
    if "failed" in states:
        return "failed"
    if "cancelled" in states and states <= set(ENDED):
        return "cancelled"
    return states.pop() if len(states) == 1 else "running"


def _job_fields(session: str, now: Snapshot) -> dict[str, Any]:
    names = ("state", "done", "total", "seconds", "waiting", "enrolment", "claimed")
    fields = {name: getattr(now, name) for name in names}
    return {"job": f"{session}.{now.job}", **fields, "nearest": list(now.nearest), "problem": _problem(now)}


def _problem(now: Snapshot) -> dict[str, Any] | None:
    return None if now.problem is None else document(_failure(now))


def _failure(end: Snapshot) -> RefusedError:
    """Why a job has no result."""
    if end.state == "cancelled":
        return RefusedError(409, "The audit was cancelled before the first batch.")
    status = 503 if end.at_fault == "server" else 422
    return RefusedError(status, f"{end.problem}.", f"{end.remedy}." if end.remedy else None)

"""``/api/drift``: two windows of traces in, whether they differ out; at once, or later."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, jsonify, request

from atlas.api.attribution import SECONDS, accepted, failure, unless_ready
from atlas.api.problems import RefusedError, document, refused
from atlas.api.requests import received_windows
from backend.errors import AtlasError, StoppedError
from backend.service.job import ENDED, Snapshot
from backend.service.service import Service
from backend.service.sessions import SHORT
from backend.service.uploads import BusyError, MissingError


def add(routes: Blueprint, service: Service, waiters: threading.BoundedSemaphore) -> None:
    """Add the routes; ``waiters`` counts the requests that wait for an answer."""

    @routes.post("/drift")
    def drift() -> Response:
        session = secrets.token_hex(16)
        files, settings = received_windows(request)
        waits = "respond-async" not in request.headers.get("Prefer", "") and waiters.acquire(blocking=False)
        # What is left at the end: a place among those who wait, and, once it is answered, the session.
        with contextlib.ExitStack() as place, contextlib.ExitStack() as left:
            if waits:
                place.callback(waiters.release)
            left.callback(service.forget, session)
            try:
                keys = []
                while files:  # none stays in memory while others are parsed
                    keys.append(service.upload(session, *files.pop(0), passing=True).key)
                jobs = service.start_windows(session, keys, settings, request.remote_addr)
            except AtlasError as error:
                raise unless_ready(service, error) from error
            now = [service.progress(session, job) for job in jobs]
            if waits and sum(one.total for one in now) <= SHORT:
                ends = time.monotonic() + SECONDS
                now = [service.wait(session, job, max(0.0, ends - time.monotonic())) for job in jobs]
            if not waits or _state(now) not in ENDED:
                left.pop_all()
                return accepted(_progress(session, now) | {"answer": None}, "drift")
            if (wrong := next((one for one in now if one.state == "failed"), None)) is not None:
                raise failure(wrong)
            return jsonify(_progress(session, now) | {"answer": service.drift(session, *jobs)})

    @routes.get("/drift/<identity>")
    def comparison(identity: str) -> Response:
        session, jobs = _parts(identity)
        return jsonify(_told(service, session, [service.progress(session, job) for job in jobs]))

    @routes.delete("/drift/<identity>")
    def drop(identity: str) -> Response:
        session, jobs = _parts(identity)
        if service.forget_lost(session):
            return Response(status=HTTPStatus.NO_CONTENT)
        if _state([service.progress(session, job) for job in jobs]) in ENDED:
            service.forget(session)
            return Response(status=HTTPStatus.NO_CONTENT)
        for job in jobs:
            service.cancel(session, job)
        return jsonify(_told(service, session, [service.wait(session, job, SECONDS) for job in jobs]))


def _state(now: Sequence[Snapshot]) -> str:
    """State of a comparison: one that was cancelled has ended when both of its windows have."""
    states = {one.state for one in now}
    if "failed" in states:
        return "failed"
    if "cancelled" in states and states <= set(ENDED):
        return "cancelled"
    return states.pop() if len(states) == 1 else "running"


def _progress(session: str, now: Sequence[Snapshot]) -> dict[str, Any]:
    wrong = next((one for one in now if one.problem is not None), None)
    return {
        "job": ".".join([session, *(one.job for one in now)]),
        "state": _state(now),
        "done": sum(one.done for one in now),
        "total": sum(one.total for one in now),
        "seconds": sum(one.seconds for one in now),
        "waiting": max(one.waiting for one in now),
        "enrolment": now[0].enrolment,
        "problem": None if wrong is None else document(failure(wrong)),
    }


def _told(service: Service, session: str, now: Sequence[Snapshot]) -> dict[str, Any]:
    told = _progress(session, now) | {"answer": None}
    if told["state"] in ("done", "cancelled"):
        try:
            told["answer"] = service.drift(session, *(one.job for one in now))
        except (MissingError, BusyError):
            raise
        except StoppedError as error:
            told["problem"] = document(refused(error))
        except AtlasError as error:
            told |= {"state": "failed", "problem": document(refused(error))}
    return told


def _parts(identity: str) -> tuple[str, list[str]]:
    session, *jobs = identity.split(".")
    if len(session) != 32 or not 1 <= len(jobs) <= 2 or not all(jobs):
        raise RefusedError(
            HTTPStatus.NOT_FOUND, "There is no such comparison.", "Comparisons are deleted after 24 hours."
        )
    return session, jobs

"""The web interface: REST, who may ask, saved answers, and whether the atlas is well."""

from __future__ import annotations

import dataclasses
import threading

from flask import Blueprint, Flask, abort, request

from atlas.api import access, assistants, attribution, metrics, numbers, openapi, problems, watches
from atlas.api.access import authorised
from atlas.api.requests import LARGE
from atlas.data import QueryCache
from backend.service import caller
from backend.service.service import Service
from backend.service.uploads import release_memory

__all__ = ["authorised", "install"]

NAME = "api"
OPEN = frozenset({f"{NAME}.openapi_document", f"{NAME}.give_token", f"{NAME}.drop_token"})
"""Routes that ask for no token."""


def install(server: Flask, cache: QueryCache, service: Service) -> None:
    """Answer ``/api`` and what operators look at before anything else; ``server.extensions`` gets the service."""
    server.extensions["attribution"] = service
    access.grants.records = service.records
    metrics.install(server, service)

    @server.before_request
    def note_token() -> None:
        given = access.guarded() and authorised(request, counted=False)
        caller.enter(dataclasses.replace(caller.current(), token=given))

    access.install(server)
    server.before_request(lambda: access.check_length(request))
    numbers.add_health(server, cache, service)

    @server.teardown_request
    def give_back(_: BaseException | None) -> None:
        if (request.content_length or 0) > LARGE:
            release_memory()

    routes = Blueprint(NAME, __name__, url_prefix=problems.PREFIX)
    attribution.add(routes, service, threading.BoundedSemaphore(attribution.WAITERS))
    numbers.add(routes, cache, service)
    openapi.add(routes)
    access.add(routes)
    server.register_blueprint(routes)
    assistants.install(server)
    watches.install(server)
    problems.handle(server, NAME)

    @server.before_request
    def only_who_may() -> None:
        if problems.inside() and request.endpoint not in OPEN and not authorised(request):
            abort(401, "The request has no valid token. Send it as: Authorization: Bearer TOKEN.")

    @server.before_request
    def only_where_uploads_are_taken() -> None:
        if access.is_upload(request.method, request.path) and (address := access.exposed()):
            raise problems.RefusedError(403, f"{access.public_words(address)}.")

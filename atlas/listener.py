"""Waitress, which takes the body of a request only where its first lines may have one.

Of a refused one nothing is stored. What still arrives is thrown away for a moment, because a client that writes does
not read the answer when the line is cut.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from http import HTTPStatus
from typing import Any, ClassVar
from weakref import WeakSet

import waitress
from flask import Flask, Request
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.utilities import Error

from atlas import logs
from atlas.api import access, problems
from atlas.api.problems import RefusedError
from atlas.api.requests import LARGE, SMALL
from backend.service import caller, measurements
from backend.service.caller import Caller

CONNECTIONS = 800  # connections at a time; a process may usually open 1,024 files
IDLE_SECONDS = 30  # after which a connection is closed that sends nothing, and waits for no answer
LARGE_BODIES = 32  # large bodies that arrive at a time; each may lie in the temporary folder
CLIENT_BODIES = 4  # large bodies of one address that arrive at a time
LINGER = 64 * 2**20  # bytes that are thrown away after a refusal; then the line is cut


class Refusal(Error):  # type: ignore[misc]  # noqa: N818, as waitress calls its answers
    """A refusal in the words of the application."""

    def __init__(self, error: RefusedError) -> None:
        super().__init__(error.detail)
        number = logs.new_reference()
        with caller.on_behalf_of(Caller(number)):
            self._response = problems.answer(error)
        self._response.headers.extend({**access.HEADERS, logs.HEADER: number})

    def to_response(self, ident: object = None) -> tuple[str, list[tuple[str, str]], bytes]:
        headers = [(name, value) for name, value in self._response.headers if name != "Content-Length"]
        return self._response.status, headers, self._response.get_data()


class Parser(HTTPRequestParser):  # type: ignore[misc]
    """A request whose first lines decide whether its body is taken."""

    address: str | None = None
    refusal: Refusal | None = None
    most = SMALL
    arriving: ClassVar[WeakSet[Parser]] = WeakSet()

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        request = Request(self._environ())
        try:
            access.check_length(request)
            self.most = request.max_content_length or self.most
            if self.content_length > LARGE or self.chunked:
                self._check_room()
        except RefusedError as error:
            self._refuse(error)

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        if self.chunked and self.body_bytes_received > self.most and self.refusal is None:
            self._refuse(RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {self.most:,} bytes are taken."))
        if self.refusal is not None:
            self.error, self.completed = self.refusal, True
            return len(data)
        return consumed

    def _check_room(self) -> None:
        arriving = Counter(other.address for other in list(self.arriving) if not other.completed)
        if arriving.total() >= LARGE_BODIES or (self.address and arriving[self.address] >= CLIENT_BODIES):
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "Too many large bodies arrive at this moment.")
        self.arriving.add(self)

    def _refuse(self, error: RefusedError) -> None:
        measurements.count_refusal(error.status)
        self.refusal, self.expect_continue, self.connection_close = Refusal(error), False, True

    def _environ(self) -> dict[str, Any]:
        bare = ("CONTENT_LENGTH", "CONTENT_TYPE")
        headers = {name if name in bare else f"HTTP_{name}": value for name, value in self.headers.items()}
        if self.chunked:  # which the parser has taken out of the headers
            headers["HTTP_TRANSFER_ENCODING"] = "chunked"
        return headers | {
            "REQUEST_METHOD": self.command,
            "PATH_INFO": self.path,
            "QUERY_STRING": self.query,
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "wsgi.url_scheme": "http",
        }


class Channel(HTTPChannel):  # type: ignore[misc]
    """A connection that throws away what arrives after a refusal, until the client has read the answer."""

    refused = lingers = False
    thrown = 0
    proxied = False

    def parser_class(self, adj: Any) -> Parser:
        parser = Parser(adj)
        parser.address = None if self.proxied else self.addr[0]
        return parser

    def received(self, data: bytes) -> bool:
        taken: bool = super().received(data)
        self.refused = self.refused or any(one.refusal is not None for one in self.requests)
        return taken

    def readable(self) -> bool:
        return self.lingers or bool(super().readable())

    def writable(self) -> bool:
        return bool(self.will_close if self.lingers else super().writable())

    def handle_read(self) -> None:
        if not self.lingers:
            super().handle_read()
            return
        try:
            data = self.recv(self.adj.recv_bytes)
        except OSError:
            data = b""
        self.thrown += len(data)
        if not data or self.thrown > LINGER or time.time() - self.last_activity > IDLE_SECONDS:
            super().handle_close()

    def handle_close(self) -> None:
        if self.refused and self.connected and not self.lingers:
            try:
                self.socket.shutdown(socket.SHUT_WR)
            except OSError:
                super().handle_close()
                return
            self.lingers, self.will_close, self.last_activity = True, False, time.time()
            return
        super().handle_close()


def serve(server: Flask, host: str, port: int, *, proxied: bool) -> None:
    """Serve until somebody stops it; raises OSError if the address cannot be listened to."""
    Channel.proxied = proxied
    TcpWSGIServer.channel_class = Channel
    waitress.serve(
        server, host=host, port=port, threads=8, connection_limit=CONNECTIONS, channel_timeout=IDLE_SECONDS,
        cleanup_interval=5, asyncore_use_poll=True, max_request_body_size=access.PAGE_FILE + 1,
        clear_untrusted_proxy_headers=not proxied,
    )  # fmt: skip

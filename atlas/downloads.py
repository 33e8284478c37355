"""Downloads: the served generation as one DuckDB file, and its tables as CSV.

Guarded as REST is. No part of an address becomes part of a path or a query: file and tables are those that are open.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator

import duckdb
from flask import Blueprint, Flask, Response, abort, request, send_file

from atlas import logs
from atlas.api import authorised
from atlas.data import QueryCache, questions
from backend.output_files import plain_cell
from backend.store import result_queries

NAME = "downloads"
DAMAGED = "The published file was damaged since it was opened. Tell whoever runs the server."
FILE = "/download/generation.duckdb"
TABLES = "/download/tables"


def install(server: Flask) -> None:
    """Add the routes."""
    routes = Blueprint(NAME, __name__)

    @routes.get(FILE)
    def whole() -> Response:
        generation = _open().generation()
        try:
            if generation.path.stat().st_size != generation.size:
                abort(_plain(503, DAMAGED))
            sent = send_file(
                generation.path, mimetype="application/vnd.duckdb", as_attachment=True,
                download_name=f"atlas-{generation.name}.duckdb", conditional=True, etag=generation.name, max_age=0,
            )  # fmt: skip
        except OSError:
            abort(_plain(404, "This generation has just been replaced. Reload the page, and take the next one."))
        sent.direct_passthrough = True
        return sent

    @routes.get(f"{TABLES}/<table>.csv")
    def one(table: str) -> Response:
        cache = _open()
        if table not in set(cache.ask(result_queries.table_sizes)["table_name"]):
            abort(_plain(404, "The atlas has no such table. The page Methods lists the ones that it has."))
        generation = cache.generation()
        headers = {
            "Content-Disposition": f'attachment; filename="atlas_{table}_{generation.name}.csv"',
            "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff",
        }
        lines = _lines(generation.cursor(), table)
        try:
            first = [next(lines), *itertools.islice(lines, 1)]  # before the status says that all is well
        except duckdb.Error as error:
            logs.log_failure(f"Table {table} cannot be read", error)
            abort(_plain(503, DAMAGED))
        return Response(itertools.chain(first, lines), mimetype="text/csv", headers=headers)

    server.register_blueprint(routes)


def address(table: str = "") -> str:
    """Path of a table, or of the whole generation."""
    return f"{TABLES}/{table}.csv" if table else FILE


def _open() -> QueryCache:
    """The query cache of this server, for an authorised visitor."""
    if not authorised(request):
        abort(
            _plain(401, "This atlas asks for a token. Give it on the page Attribute, or send Authorization: Bearer …")
        )
    cache = questions()
    if (problem := cache.problem()) is not None:
        abort(_plain(503, str(problem)))
    return cache


def _plain(status: int, sentence: str) -> Response:
    return Response(f"{sentence}\n", status=status, mimetype="text/plain")


def _lines(cursor: duckdb.DuckDBPyConnection, table: str) -> Iterator[str]:
    """CSV of a table in pieces, in which no name is a formula to a spreadsheet."""
    with cursor:
        for rows in result_queries.table_rows(cursor, table):
            text = io.StringIO()
            csv.writer(text).writerows([[_cell(value) for value in row] for row in rows])
            yield text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list | tuple):
        return " ".join(f"{number:.7g}" for number in value)
    return plain_cell(value)

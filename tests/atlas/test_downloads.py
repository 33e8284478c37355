"""The numbers to take away: the served file byte by byte, tables as CSV, and who may have them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import duckdb
import pytest
from flask.testing import FlaskClient

from atlas import downloads
from atlas.application import create_application
from atlas.pages import methods
from backend.store import result_queries
from backend.store.database import Generations
from tests.invented_atlas import publish_invented


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taken")
    publish_invented(folder / "data")
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> FlaskClient:
    return create_application(folder / "data", folder / "cache").server.test_client()


def test_the_file_is_the_one_that_is_served(client: FlaskClient, folder: Path, tmp_path: Path) -> None:
    current = Generations(folder / "data").current()
    answer = client.get(downloads.address())
    assert answer.status_code == 200 and answer.get_data() == current.path.read_bytes()
    assert f"filename=atlas-{current.name}.duckdb" in answer.headers["Content-Disposition"].replace('"', "")
    taken = tmp_path / "taken.duckdb"
    taken.write_bytes(answer.get_data())
    with duckdb.connect(taken, read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM sources").fetchone() == (27,)
    again = client.get(downloads.address(), headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304


def test_every_table_is_the_stores_own(client: FlaskClient, folder: Path) -> None:
    with Generations(folder / "data").current().cursor() as cursor:
        sizes = result_queries.table_sizes(cursor)
        assert {"sources", "attribution_metrics", "builds"} <= set(sizes["table_name"])
        for name, rows, columns in sizes.itertuples(index=False):
            answer = client.get(downloads.address(name))
            assert answer.status_code == 200 and answer.mimetype == "text/csv", name
            held = list(csv.reader(io.StringIO(answer.get_data(as_text=True))))
            assert len(held) == rows + 1 and all(len(row) == columns for row in held), name
        found = list(csv.DictReader(io.StringIO(client.get(downloads.address("sources")).get_data(as_text=True))))
        stored = cursor.execute("SELECT source, name, responses FROM sources ORDER BY source").fetchall()
    assert sorted((row["source"], row["name"], int(row["responses"])) for row in found) == stored


def test_no_cell_is_a_formula() -> None:
    assert downloads._cell("=1+1") == "'=1+1" and downloads._cell("@x") == "'@x" and downloads._cell(-1.5) == -1.5
    assert downloads._cell([0.5, -2.0]) == "0.5 -2" and downloads._cell(None) is None


@pytest.mark.parametrize(
    "path", ["/download/tables/nothing.csv", "/download/tables/..%2Fcurrent.csv", "/download/tables/x;DROP.csv"]
)
def test_what_is_no_table_is_not_found(client: FlaskClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404 or answer.mimetype != "text/csv"
    assert "generation" not in answer.get_data(as_text=True)[:200]


def test_downloads_ask_for_the_token_that_guards_the_interface(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_TOKEN", "secret")
    for path in (downloads.address(), downloads.address("sources")):
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get(path, headers={"Authorization": "Bearer secret"}).status_code == 200


def test_nothing_to_take_is_a_sentence(tmp_path: Path) -> None:
    client = create_application(tmp_path / "data", tmp_path / "cache").server.test_client()
    answer = client.get(downloads.address())
    assert answer.status_code == 503 and "python -m jobs all" in answer.get_data(as_text=True)


def test_methods_leads_to_every_table(client: FlaskClient) -> None:
    application = client.application
    with application.test_request_context():
        asked = application.extensions["atlas"]
        rows = methods.PAGE.figures["downloads"].table(asked, asked.resolve_view(methods.View()))
    assert all(client.get(address).status_code == 200 for address in rows["address"])

"""The served atlas without a browser: health, an empty data folder, pages as JSON, tables and CSV, a new generation."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pandas as pd
import pytest
from dash import Dash

from atlas import shell
from atlas.application import create_application
from atlas.data import Questions
from atlas.pages import attribution, map, methods
from atlas.state import View
from backend.errors import AtlasError
from backend.store import queries
from backend.store.database import open_work, publish
from tests.invented_atlas import HOSTILE, MARKUP, publish_invented


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("invented")
    publish_invented(folder)
    return folder


@pytest.fixture
def app(data: Path, tmp_path: Path) -> Dash:
    return create_application(data, tmp_path / "cache")


@pytest.fixture
def asked(app: Dash) -> Questions:
    found: Questions = app.server.extensions["atlas"]
    return found


def test_health_names_the_generation(app: Dash) -> None:
    answer = app.server.test_client().get("/health")
    assert answer.status_code == 200 and answer.mimetype == "application/json"
    assert answer.json["status"] == "ok"
    assert answer.json["generation"] == app.server.extensions["atlas"].generation().name
    assert answer.json["version"]


def test_an_atlas_without_data_starts_and_names_the_command(tmp_path: Path) -> None:
    app = create_application(tmp_path / "nothing", tmp_path / "cache")
    answer = app.server.test_client().get("/health").json
    assert answer["status"] == "degraded" and answer["generation"] is None
    assert "python -m jobs" in answer["problem"]
    with app.server.test_request_context():
        for page in (map, attribution, methods):
            assert "python -m jobs" in json.dumps(page.layout().to_plotly_json(), default=_as_json)
    layout = app.server.test_client().get("/_dash-layout")
    assert layout.status_code == 200 and b"no data yet" in layout.data
    publish_invented(tmp_path / "nothing")
    assert app.server.test_client().get("/health").json["status"] == "ok"


def test_the_first_bytes_hold_the_tokens_and_nothing_from_elsewhere(app: Dash) -> None:
    page = app.server.test_client().get("/").get_data(as_text=True)
    assert "--ink:#E8ECF1" in page and 'lang="en"' in page
    for line in page.split('"'):
        assert not line.startswith(("http://", "https://", "//")), line


@pytest.mark.parametrize("page", [map, attribution, methods])
def test_pages_are_laid_out_for_any_query(app: Dash, page: object) -> None:
    with app.server.test_request_context():
        for query in ({}, {"roster": "12-way", "domain": "math100", "source": MARKUP}, {"reader": "none", "k": "x"}):
            text = json.dumps(page.layout(**query).to_plotly_json(), default=_as_json)  # type: ignore[attr-defined]
            assert "How was this made?" in text or page is methods


def test_choices_settle_on_what_there_is(asked: Questions) -> None:
    view = asked.settle(View(reader="gone", roster="gone", domain="gone", source="gone", families=("gone", "GPT")))
    assert view.reader == "reader-paper/tiny/ur"
    assert view.roster == "27-way" and view.domain == "agent500"
    assert view.source == "" and view.families == ("GPT",)
    assert asked.map_reader(view) == "reader-paper/tiny/r"
    assert asked.attribution_reader(view) == "reader-paper/tiny/ur"
    other = asked.settle(View(reader="reader-paper/tiny/r"))
    assert asked.attribution_reader(other) == "reader-paper/tiny/ur"
    assert asked.reader_words(other.reader) == "Tiny-1M, reading response alone"
    kept = asked.settle(View(roster="12-way", source=MARKUP))
    assert kept.source == MARKUP and kept.roster == "12-way"


def test_every_figure_has_rows_csv_and_builds(asked: Questions) -> None:
    view = asked.settle(View(source="gpt_1", truth="gpt_1", answer="gpt_2"))
    for page in (map, attribution, methods):
        for name, told in page.PAGE.figures.items():
            frame = told.table(asked, view)
            assert len(frame) > 0, name
            again = pd.read_csv(io.StringIO(shell.csv_text(frame)), keep_default_na=False)
            assert list(again.columns) == [str(column) for column in frame.columns] and len(again) == len(frame)
            if told.made is not None:
                table, key = told.made(asked, view)
                builds = asked.ask(queries.made_by, table, key)
                assert list(builds["command"]) == ["python -m tests.invented_atlas"], name


def test_the_map_table_holds_what_is_shown(asked: Questions) -> None:
    view = asked.settle(View(families=("GPT",), dim=2))
    frame = map.PAGE.figures["map"].table(asked, view)
    assert set(frame["family"]) == {"GPT"} and len(frame) == 4
    assert {"name", "nearest", "cosine", "x", "y"} <= set(frame.columns) and "z" not in frame
    near = asked.ask(queries.neighbors, asked.map_reader(view), view.roster, view.domain, "gpt_1", 1)
    assert frame.set_index("source").at["gpt_1", "nearest"] == near["name"].iloc[0]


def test_csv_has_no_formulas_and_keeps_hostile_names() -> None:
    frame = pd.DataFrame({"name": ["=1+1", "@x", *HOSTILE], "value": [-1.0, 2.0, 3.0, 4.0, 5.0]})
    again = pd.read_csv(io.StringIO(shell.csv_text(frame)))
    assert list(again["name"]) == ["'=1+1", "'@x", *HOSTILE]
    assert list(again["value"]) == [-1.0, 2.0, 3.0, 4.0, 5.0]


def test_tables_draw_names_as_text_and_numbers_to_the_right() -> None:
    grid = shell.table(pd.DataFrame({"name": [MARKUP], "count": [3], "share": [0.5]})).to_plotly_json()["props"]
    assert grid["rowData"] == [{"name": MARKUP, "count": 3, "share": 0.5}]
    kinds = {column["field"]: column.get("type") for column in grid["columnDefs"]}
    assert kinds == {"name": None, "count": "rightAligned", "share": "rightAligned"}
    assert not any("cellRenderer" in column for column in grid["columnDefs"])
    assert not grid.get("dangerously_allow_code")


def test_answers_are_cached_by_generation(tmp_path: Path) -> None:
    publish_invented(tmp_path / "data", seed=1)
    app = create_application(tmp_path / "data", tmp_path / "cache")
    asked: Questions = app.server.extensions["atlas"]
    calls = []

    def question(cursor: object, number: int) -> int:
        calls.append(number)
        return number

    assert asked.ask(question, 1) == asked.ask(question, 1) == 1
    assert asked.ask(question, 2) == 2
    assert calls == [1, 2]
    first = asked.generation().name
    publish_invented(tmp_path / "data", seed=2)
    assert asked.ask(question, 1) == 1
    assert calls == [1, 2, 1] and asked.generation().name != first


def test_a_damaged_pointer_leaves_the_old_generation_up(tmp_path: Path) -> None:
    publish_invented(tmp_path / "data")
    app = create_application(tmp_path / "data", tmp_path / "cache")
    client = app.server.test_client()
    before = client.get("/health").json["generation"]
    (tmp_path / "data" / "current.json").write_text("{", "utf-8")
    after = client.get("/health").json
    assert after["status"] == "degraded" and after["generation"] == before
    assert "current.json" in after["problem"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AtlasError("The file is gone", "Fetch it again"), "The file is gone. Fetch it again."),
        (ValueError("secret"), "The server could not answer this."),
    ],
)
def test_a_failing_callback_becomes_a_sentence(
    app: Dash, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(attribution, "_answer", fail)
    names = ("reader", "roster", "domain", "theme", "k")
    inputs = [{"id": name, "property": "data" if name == "theme" else "value", "value": "x"} for name in names]
    body = {
        "output": "answer.children",
        "outputs": {"id": "answer", "property": "children"},
        "inputs": inputs,
        "changedPropIds": ["k.value"],
    }
    answer = app.server.test_client().post("/_dash-update-component", json=body)
    assert answer.status_code in (200, 204)
    text = answer.get_data(as_text=True)
    assert told in text and "secret" not in text
    assert answer.json["sideUpdate"]["trouble"]["children"].startswith(told[:10])


def test_published_curves_are_drawn_behind_and_marked(asked: Questions, app: Dash) -> None:
    view = asked.settle(View(roster="12-way"))
    with app.server.test_request_context():
        drawn = attribution._budget(asked, view)
        alone = attribution._budget(asked, dataclasses.replace(view, others="off"))
    lines = {trace.name: trace for trace in drawn.figure.data}
    assert list(lines) == ["Vast-70B", "Tiny-1M ± std", "Tiny-1M"]
    assert lines["Vast-70B"].line.dash == "dash" and lines["Tiny-1M"].line.dash == "solid"
    assert ", published" in lines["Vast-70B"].text[0]
    assert "published" in str(drawn.sentence) and "published" not in str(alone.sentence)
    assert [trace.name for trace in alone.figure.data] == ["Tiny-1M ± std", "Tiny-1M"]
    table = attribution.PAGE.figures["budget"].table(asked, view)
    assert set(table["origin"]) == {"measured", "published"}


def test_a_published_reader_shows_what_it_has_and_says_what_it_lacks(asked: Questions, app: Dash) -> None:
    choice = {"reader": "reader-paper/vast/ur", "roster": "12-way"}
    with app.server.test_request_context():
        text = json.dumps(attribution.layout(**choice).to_plotly_json(), default=_as_json)
        assert "published without them" in text and "Vast-70B" in text
        nll = attribution._budget(asked, asked.settle(View.parse({**choice, "metric": "nll", "others": "off"})))
        assert [trace.name for trace in nll.figure.data] == ["mean evidence"]
        assert "There is no map" in json.dumps(map.layout(**choice).to_plotly_json(), default=_as_json)


def test_an_empty_figure_leads_to_a_view_that_has_something(tmp_path: Path) -> None:
    work = tmp_path / "work" / "work.duckdb"
    publish_invented(tmp_path)
    connection = open_work(work)
    for table, column in (("attribution_metrics", "benchmark"), ("projections", "domain")):
        connection.execute(f"DELETE FROM {table} WHERE roster = '27-way' AND {column} = 'agent500'")
    connection.close()
    publish(work, tmp_path)
    app = create_application(tmp_path, tmp_path / "cache")
    with app.server.test_request_context():
        for page in (map, attribution):
            text = json.dumps(page.layout(roster="27-way").to_plotly_json(), default=_as_json)
            assert "This reader has no" in text
            shown = [part for part in text.split('"') if part.startswith("Show ") and " on " in part][:3]
            assert shown == ["Show 12-way on Agent500", "Show 27-way on Math100", "Show 12-way on Math100"]


def test_an_empty_state_sets_its_command_apart() -> None:
    def words(remedy: str) -> list[str]:
        return [part.children for part in shell.empty("Nothing is here", remedy).children]

    assert words("Run: python -m jobs all, or point ATLAS_DATA elsewhere") == [
        "Nothing is here.",
        "Run:",
        "python -m jobs all",
        "Or point ATLAS_DATA elsewhere.",
    ]
    assert words("Choose another roster") == ["Nothing is here.", "Choose another roster"]
    assert words("Measure it with: python -m jobs evaluate")[-1] == "python -m jobs evaluate"


def _as_json(value: object) -> object:
    return value.to_plotly_json() if hasattr(value, "to_plotly_json") else str(value)

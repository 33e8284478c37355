"""The served atlas without a browser: health, an empty data folder, pages as JSON, tables and CSV, a new generation."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import re
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pytest
from dash import Dash

import atlas.data
from atlas import drawing, shell
from atlas.application import PAGES, create_application
from atlas.data import QueryCache
from atlas.pages import attribution, brief, family, map, neighbourhoods, relationships, source, validation, watch
from atlas.pages.compare import readers
from atlas.state import View
from backend.geometry.maps import METHODS as MAP_METHODS
from backend.methods.registry import group_of
from backend.store import queries
from backend.store.database import open_work, publish
from backend.store.page_queries import relationship_pairs
from tests.invented_atlas import HOSTILE, MARKUP, publish_invented
from tests.invented_relationships import publish_related

RELATED = ("brief-readouts", "brief-kinship")
"""Figures of the brief that relationships fill."""
DRAWN = tuple(page for page in PAGES if page.name != "attribute")
PATH = {"source": {"label": "gpt_1"}, "family": {"name": "GPT"}}
"""What the path of a page holds."""


def bare(name: str) -> str:
    """A name in a figure without the marks that isolate its direction."""
    return name.replace("\u2068", "").replace("\u2069", "")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("invented")
    publish_invented(folder)
    return folder


@pytest.fixture
def app(data: Path, tmp_path: Path) -> Dash:
    return create_application(data, tmp_path / "cache")


@pytest.fixture
def asked(app: Dash) -> QueryCache:
    found: QueryCache = app.server.extensions["atlas"]
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
        for page in DRAWN:
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


def test_pages_run_their_own_scripts_and_stand_in_no_frame(app: Dash) -> None:
    answer = app.server.test_client().get("/")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["frame-ancestors"] == "'none'" and policy["default-src"] == "'self'"
    assert "unsafe" not in policy["script-src"]
    inside = re.findall(r"<script(?: id=\"_dash-renderer\"[^>]*)?>(.*?)</script>", answer.get_data(as_text=True), re.S)
    assert len(inside) >= 2
    for script in inside:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy["script-src"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "Content-Security-Policy" not in app.server.test_client().get("/health").headers


@pytest.mark.parametrize(("proxy", "secure"), [("1", True), ("", False)])
def test_cookies_are_secure_behind_a_proxy_that_says_so(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str, secure: bool
) -> None:
    monkeypatch.setenv("ATLAS_PROXY", proxy)
    monkeypatch.setenv("ATLAS_TOKEN", "t")
    monkeypatch.setenv("ATLAS_HOSTS", "atlas.example" if secure else "")
    client = create_application(data, tmp_path / "cache").server.test_client()
    through = {"Host": "127.0.0.1:8050", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "atlas.example"}
    given = client.post("/api/session", json={"token": "t"}, headers=through)
    assert ("Secure" in given.headers["Set-Cookie"]) is secure
    assert given.headers["Set-Cookie"].startswith("__Host-") is secure
    assert ("Strict-Transport-Security" in given.headers) is secure
    own = client.post("/api/session", json={"token": "t"}, headers=through | {"Origin": "https://atlas.example"})
    assert own.status_code == (204 if secure else 403)


def test_numbers_for_programs_do_not_fill_the_disk(app: Dash, tmp_path: Path) -> None:
    client = app.server.test_client()
    client.get("/api/evaluations?limit=5")
    client.get("/api/neighbors/gpt_1?top=5")
    before = sorted((tmp_path / "cache").rglob("*"))
    for number in range(1, 5):
        assert client.get(f"/api/evaluations?limit=5&offset={number}").status_code == 200
        assert client.get(f"/api/neighbors/gpt_1?top={number}").status_code == 200
    assert sorted((tmp_path / "cache").rglob("*")) == before


@pytest.mark.parametrize("page", DRAWN, ids=lambda page: page.name)
def test_pages_are_laid_out_for_any_query(app: Dash, page: shell.Page) -> None:
    with app.server.test_request_context():
        for query in ({}, {"roster": "12-way", "domain": "math100", "source": MARKUP}, {"reader": "none", "k": "x"}):
            query = {**query, **PATH.get(page.name, {})}
            text = json.dumps(page.layout(**query).to_plotly_json(), default=_as_json)
            assert "How was this made?" in text or page.name in ("watch", "methods")


def test_choices_settle_on_what_there_is(asked: QueryCache) -> None:
    view = asked.resolve_view(
        View(reader="gone", roster="gone", domain="gone", source="gone", families=("gone", "GPT"))
    )
    assert view.reader == "reader-paper/tiny/ur"
    assert view.roster == "27-way" and view.domain == "agent500"
    assert view.source == "" and view.families == ("GPT",)
    assert asked.map_reader(view) == "reader-paper/tiny/r"
    assert asked.attribution_reader(view) == "reader-paper/tiny/ur"
    other = asked.resolve_view(View(reader="reader-paper/tiny/r"))
    assert asked.attribution_reader(other) == "reader-paper/tiny/ur"
    assert asked.reader_words(other.reader) == "Tiny-1M, reading response alone"
    kept = asked.resolve_view(View(roster="12-way", source=MARKUP))
    assert kept.source == MARKUP and kept.roster == "12-way"


def test_the_first_reader_is_the_one_that_covers_most(asked: QueryCache, monkeypatch: pytest.MonkeyPatch) -> None:
    held = asked.ask(queries.readers)
    more = pd.concat([held[held["reader"] == "reader-paper/tiny/ur"].assign(reader="reader-paper/a/r", view="r"), held])
    whole = asked.ask
    monkeypatch.setattr(asked, "ask", lambda about, *rest: more if about is queries.readers else whole(about, *rest))
    assert asked.resolve_view(View(reader="gone")).reader == "reader-paper/tiny/ur"


def test_an_enrolled_ecosystem_is_roster_and_domain_together(
    asked: QueryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "domains", lambda: ["agent500", "math100", "12-way"])
    chosen = [asked.resolve_view(View(roster=roster, domain=domain)) for roster, domain in
              (("12-way", "math100"), ("27-way", "12-way"), ("27-way", "math100"))]  # fmt: skip
    assert [view.domain for view in chosen] == ["12-way", "agent500", "math100"]


def test_every_figure_has_rows_csv_and_builds(asked: QueryCache) -> None:
    chosen = {"source": "gpt_1", "truth": "gpt_1", "answer": "gpt_2", "other": "qwen_1", "zoom": "GPT"}
    view = asked.resolve_view(View(**chosen, chosen=("gpt_1", "gpt_2"), k=1))
    for page in DRAWN:
        for name, told in page.figures.items():
            frame = told.table(asked, view)
            if frame.empty and (
                page.name in ("compare", "relationships") or name in (*RELATED, *validation.TABLES, *watch.MEASURED)
            ):
                continue  # needs more than this atlas holds: tests/atlas/pages/test_compare.py, and the test below
            assert len(frame) > 0, name
            again = pd.read_csv(io.StringIO(shell.csv_text(frame)), keep_default_na=False)
            assert list(again.columns) == [str(column) for column in frame.columns] and len(again) == len(frame)
            if told.key is not None:
                assert list(told.builds(asked, view)["command"]) == ["python -m tests.invented_atlas"], name


def test_a_map_names_what_made_its_clusters_where_they_are_drawn(asked: QueryCache) -> None:
    told, view = map.PAGE.figures["map"], asked.resolve_view(View(regions="clusters"))
    invented = "python -m tests.invented_atlas"
    assert list(told.builds(asked, view)["command"]) == [f"{invented} --compare", invented]
    for other in (dataclasses.replace(view, regions="families"), dataclasses.replace(view, space="raw")):
        assert list(told.builds(asked, other)["command"]) == [invented]


def test_an_empty_state_names_a_command_that_a_job_takes(asked: QueryCache) -> None:
    assert set(drawing.MAPPED) == set(MAP_METHODS)
    words = asked.resolve_view(View(reader="ngram-word", roster="27-way"))
    assert drawing.maps(asked, words) == "python -m jobs map --method ngram-word --roster 27-way, then publish it"
    read = asked.resolve_view(View(reader="reader-paper/wide/r", roster="12-way", domain="math100"))
    told = drawing.maps(asked, read)
    assert told.startswith("python -m jobs map --method reader-paper --proxy wide --view r --roster 12-way --benchmark")
    published = next(name for name in asked.ask(queries.readers)["reader"] if asked.origin(name) == "published")
    assert drawing.maps(asked, asked.resolve_view(View(reader=published))) == ""
    for reader in ("ngram-word", published, "reader-paper/wide/r"):
        view = asked.resolve_view(View(reader=reader, roster="27-way"))
        state = json.dumps(drawing.unmeasured(asked, view, "attribution").absent, default=lambda c: c.to_plotly_json())
        assert "nan" not in state and f"?{view.query()}" not in state, "no way leads to the view itself"


def test_a_reader_that_chooses_no_block_offers_one_that_does(asked: QueryCache) -> None:
    view = asked.resolve_view(View(reader="ngram-word", roster="12-way", domain="agent500"))
    state = json.dumps(attribution._layers(asked, view).absent, default=lambda c: c.to_plotly_json())
    assert "for the paper's readout alone" in state and asked.usual(view).reader != view.reader
    assert f"?{asked.usual(view).query()}" in state


def test_a_reader_without_geometry_is_told_from_an_atlas_without(asked: QueryCache) -> None:
    view = asked.resolve_view(View(reader="ngram-word", roster="12-way", domain="agent500"))
    assert asked.map_reader(view) == ""
    assert "This reader has no geometry" in neighbourhoods._answer(asked, view)[0]
    told = json.dumps(neighbourhoods._purity(asked, view).sentence, default=lambda c: c.to_plotly_json())
    assert "Highest at k = " in told


def test_no_two_pages_have_a_figure_of_one_name() -> None:
    # Its places carry the name as their id: Dash would ask one page for what stands on the other.
    names = [name for page in PAGES for name in page.figures]
    assert [name for name in names if names.count(name) > 1] == []


def test_every_table_of_relationships_has_rows(tmp_path: Path) -> None:
    publish_related(tmp_path / "data")
    app = create_application(tmp_path / "data", tmp_path / "cache")
    asked: QueryCache = app.server.extensions["atlas"]
    pair = asked.ask(relationship_pairs).iloc[0]
    view = asked.resolve_view(View(protocol="family", left=pair["model_a"], right=pair["model_b"]))
    figures = {**relationships.PAGE.figures, **{name: brief.PAGE.figures[name] for name in RELATED}}
    for name, told in figures.items():
        frame = told.table(asked, view)
        assert len(frame) > 0, name
        assert not {"build_id", "row"} & set(frame.columns), name


def test_the_map_table_holds_what_is_shown(asked: QueryCache) -> None:
    view = asked.resolve_view(View(families=("GPT",), dim=2))
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
    long = shell.table(pd.DataFrame({"name": ["word " * 20], "command": ["word " * 90]})).to_plotly_json()["props"]
    assert [column.get("wrapText", False) for column in long["columnDefs"]] == [True, False]
    assert long["defaultColDef"]["wrapHeaderText"]
    wide = shell.table(pd.DataFrame({"trainable_parameters": [2.4e10], "k": [1]})).to_plotly_json()["props"]
    assert [column["minWidth"] for column in wide["columnDefs"]] == [128, 92]
    frame, widths = pd.DataFrame({"name": ["n" * 24], "cosine": [0.5], "k": [1]}), {"name": 176, "cosine": 84}
    narrow = shell.table(frame, widths=widths).to_plotly_json()["props"]["columnDefs"]
    assert [column["minWidth"] for column in narrow] == [176, 84, 92] and narrow[0]["wrapText"]
    assert not grid.get("dangerously_allow_code")


def test_answers_are_cached_by_generation_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_invented(tmp_path / "data", seed=1)
    app = create_application(tmp_path / "data", tmp_path / "cache")
    asked: QueryCache = app.server.extensions["atlas"]
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
    # What another version of the code answered is no answer of this one.
    monkeypatch.setattr(atlas.data, "_questions_hash", lambda: "another version")
    assert asked.ask(question, 1) == 1 and calls == [1, 2, 1, 1]


def test_a_damaged_pointer_leaves_the_old_generation_up(tmp_path: Path) -> None:
    publish_invented(tmp_path / "data")
    app = create_application(tmp_path / "data", tmp_path / "cache")
    client = app.server.test_client()
    before = client.get("/health").json["generation"]
    (tmp_path / "data" / "current.json").write_text("{", "utf-8")
    after = client.get("/health").json
    assert after["status"] == "degraded" and after["generation"] == before
    assert "current.json" in after["problem"]


def test_published_curves_are_drawn_behind_and_marked(asked: QueryCache, app: Dash) -> None:
    view = asked.resolve_view(View(roster="12-way"))
    with app.server.test_request_context():
        drawn = attribution._budget(asked, view)
        alone = attribution._budget(asked, dataclasses.replace(view, others="off"))
    lines = {bare(trace["name"]): trace for trace in drawn.figure["data"]}
    assert list(lines) == ["Word n-grams", "READER · Vast-70B", "READER · Tiny-1M, band", "READER · Tiny-1M"]
    assert [lines[f"READER · {one}"]["line"]["dash"] for one in ("Vast-70B", "Tiny-1M")] == ["dash", "solid"]
    assert ", published" in lines["READER · Vast-70B"]["text"][0]
    assert "published" in str(drawn.sentence) and "published" not in str(alone.sentence)
    assert [trace["name"] for trace in alone.figure["data"]] == ["Tiny-1M, band", "Tiny-1M"]
    table = attribution.PAGE.figures["budget"].table(asked, view)
    assert set(table["origin"]) == {"measured", "published"}


def test_a_published_reader_shows_what_it_has_and_says_what_it_lacks(asked: QueryCache, app: Dash) -> None:
    choice = {"reader": "reader-paper/vast/ur", "roster": "12-way"}
    with app.server.test_request_context():
        text = json.dumps(attribution.layout(**choice).to_plotly_json(), default=_as_json)
        assert "published without them" in text and "Vast-70B" in text
        nll = attribution._budget(asked, asked.resolve_view(View.parse({**choice, "metric": "nll", "others": "off"})))
        assert [trace["name"] for trace in nll.figure["data"]] == ["Vast-70B, mean evidence"]
        placed = json.dumps(map.layout(**choice).to_plotly_json(), default=_as_json)
        assert "There is no map" not in placed and "Vast-70B" in placed
        assert "has no map of 12-way on Agent500 here: READER" in placed


def test_the_map_falls_back_to_the_nearest_reader_that_has_one(asked: QueryCache) -> None:
    def shown(**choices: object) -> tuple[object, ...]:
        view = asked.with_map(asked.resolve_view(View(roster="12-way", domain="agent500", **choices)))
        return view.reader, view.roster, view.domain, view.projection, view.dim

    here = "12-way", "agent500", "tsne", 3
    assert shown(reader="reader-paper/tiny/ur") == ("reader-paper/tiny/ur", *here)
    for reader in ("reader-paper/vast/ur", "ngram-word"):
        assert shown(reader=reader) == shown() == ("reader-paper/tiny/ur", *here)


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
        asked: QueryCache = app.server.extensions["atlas"]
        absent = attribution._budget(asked, asked.resolve_view(View(roster="27-way"))).absent
        text = json.dumps(absent, default=_as_json)
        assert "This reader has no" in text
        shown = [part for part in text.split('"') if part.startswith("Show ") and " on " in part][:3]
        assert shown == ["Show 12-way on Agent500", "Show 27-way on Math100", "Show 12-way on Math100"]
        placed = json.dumps(map.layout(roster="27-way").to_plotly_json(), default=_as_json)
        assert '"id": "settled", "data": {"domain": "math100", "text": ' in placed
        assert "has no map of 27-way on Agent500 here: 27-way on Math100 is shown." in placed
        # Opened from a link it shows the largest roster that has results, and the header follows.
        for page in (one for one in PAGES if one.name in ("attribution", "compare", "source", "family")):
            opened = json.dumps(
                page.layout(roster="27-way", **PATH.get(page.name, {})).to_plotly_json(), default=_as_json
            )
            assert '"id": "settled", "data": {"roster": "12-way", "text": "This reader' in opened
            assert "is not measured on 27-way here: 12-way is shown." in opened
            kept = json.dumps(
                page.layout(roster="12-way", **PATH.get(page.name, {})).to_plotly_json(), default=_as_json
            )
            assert '"id": "settled", "data": {}' in kept


def test_an_empty_state_sets_its_command_apart() -> None:
    def words(remedy: str) -> list[str]:
        return [part.children for part in shell.empty("Nothing is here", remedy).children]

    assert words("Run: python -m jobs all, or point ATLAS_DATA elsewhere") == [
        "Nothing is here.",
        "Run:",
        "python -m jobs all",
        "Or point ATLAS_DATA elsewhere.",
    ]
    assert words("Choose another roster") == ["Nothing is here.", "Choose another roster."]
    assert words("Measure it with: python -m jobs evaluate")[-1] == "python -m jobs evaluate"


def test_readers_are_grouped_by_method_and_the_papers_comes_first(asked: QueryCache) -> None:
    groups = dict(asked.reader_groups())
    # What has numbers for one roster alone says so.
    few = "12-way only"
    assert list(groups) == [
        "Measured here · READER",
        f"Measured here · Baselines · {few}",
        f"Published · READER · {few}",
    ]
    assert groups[f"Measured here · Baselines · {few}"] == ["ngram-word"]
    assert groups["Measured here · READER"][0].startswith("reader-paper/")
    kinds = {name: group_of(name) for name in ("reader-paper", "dc", "reader-dc", "dct-q4", "mean-final", "dna", "x")}
    assert kinds == {
        "reader-paper": "READER",
        "dc": "Parts of READER",
        "reader-dc": "Parts of READER",
        "dct-q4": "Temporal forms",
        "mean-final": "Temporal forms",
        "dna": "Baselines",
        "x": "Other readers",
    }
    assert asked.resolve_view(View()).reader == "reader-paper/tiny/ur"
    assert asked.conditions() == ["clean", "t64"]
    assert asked.resolve_view(View(condition="t9")).condition == "clean"


def test_compare_puts_the_reference_first_and_tells_tests(asked: QueryCache, app: Dash) -> None:
    chosen = ("reader-paper/tiny/ur", "ngram-word", "reader-paper/vast/ur")
    view = asked.resolve_view(View(roster="12-way", readers=chosen))
    assert view.readers == chosen
    with app.server.test_request_context():
        drawn = readers.curves(asked, view)
        ends = readers.end_rows(asked, view).set_index(["reader", "metric", "k"])
        table = json.dumps(readers.ends(asked, view)[0].to_plotly_json(), default=_as_json)
        elsewhere = readers.conditions(asked, view)
        default = readers.chosen(asked, asked.resolve_view(View(roster="12-way")))
    lines = {bare(trace["name"]): trace for trace in drawn.figure["data"]}
    assert list(lines) == [
        "READER · Vast-70B",
        "Word n-grams, band",
        "Word n-grams",
        "READER · Tiny-1M, band",
        "READER · Tiny-1M",
    ]
    assert [lines[f"READER · {one}"]["line"]["dash"] for one in ("Vast-70B", "Tiny-1M")] == ["dash", "solid"]
    tested = ends.loc[("ngram-word", "accuracy", 100)]
    first = ends.loc[("reader-paper/tiny/ur", "accuracy", 100)]
    assert tested["p_holm"] == 0.004 and tested["difference"] == pytest.approx(tested["value"] - first["value"])
    assert pd.isna(first["difference"]) and pd.isna(ends.loc[("reader-paper/vast/ur", "accuracy", 100), "p_holm"])
    assert (
        "corrected p = .004" in table
        and "before correction" in table
        and tested["together"] == 1
        and "Published" in table
        and table.index("Tiny-1M") < table.index("Word n-grams")
    )
    assert [bare(words) for words in elsewhere.figure["layout"]["yaxis"]["ticktext"]] == [
        "Agent500, whole responses",
        "Agent500, 64 tokens",
        "Math100, whole responses",
    ]
    assert default == ["reader-paper/tiny/ur", "reader-paper/vast/ur"]


def test_a_source_page_names_what_the_path_names(app: Dash, asked: QueryCache) -> None:
    with app.server.test_request_context():
        own = json.dumps(source.layout(label=quote(MARKUP, safe="")).to_plotly_json(), default=_as_json)
        gone = json.dumps(source.layout(label="%3Cb%3Enobody").to_plotly_json(), default=_as_json)
        other = json.dumps(family.layout(name=quote(MARKUP, safe="")).to_plotly_json(), default=_as_json)
        lost = json.dumps(family.layout(name="Nobody").to_plotly_json(), default=_as_json)
        named = json.dumps(source.layout(label="gpt-org%2Fgpt-1").to_plotly_json(), default=_as_json)
        near = json.dumps(source.layout(label="gpt-1.0").to_plotly_json(), default=_as_json)
    assert json.dumps(MARKUP) in own and json.dumps(MARKUP) in other
    assert "There is no such source" in gone and "<b>nobody" in gone and "There is no such family" in lost
    assert "/source/" not in gone and "Look it up on the map" in gone, "a name unlike all others gets no guesses"
    assert all(f"/family/{name}?" in lost for name in ("GPT", "Claude")) and "generations" not in lost
    assert "There is no such source" not in named and "/source/gpt_1?" in near
    assert "Did you mean one of these?" in near and "these?." not in near
    assert shell.source_path(View(theme="light"), "a/b c").startswith("/source/a%2Fb%20c?theme=light")
    view = asked.resolve_view(View(source="gpt_1", k=1))
    taken = source.PAGE.figures["taken"].table(asked, view)
    cells = asked.ask(queries.confusion, "reader-paper/tiny/ur", view.roster, 1)
    share = cells.set_index(["truth", "predicted"])["share"]
    for row in taken.itertuples(index=False):
        assert row.answered_as == pytest.approx(share.get(("gpt_1", row.source), 0.0))
        assert row.named_for == pytest.approx(share.get((row.source, "gpt_1"), 0.0))


def test_family_destinations_share_out_all_errors(asked: QueryCache) -> None:
    view = asked.resolve_view(View(zoom="GPT", k=1))
    frame = family.PAGE.figures["leave"].table(asked, view)
    assert frame["share"].sum() == pytest.approx(1.0) and frame["errors"].is_monotonic_decreasing
    assert frame.set_index("family").at["GPT", "expected"] == pytest.approx(3 / 26)
    assert frame.set_index("family").at["Qwen", "expected"] == pytest.approx(9 / 26)


def test_the_pass_rule_needs_three_readers(asked: QueryCache) -> None:
    frame = neighbourhoods.PAGE.figures["pairs"].table(asked, asked.resolve_view(View(roster="27-way")))
    passed = frame[frame["passes"] == "yes"]
    assert set(frame["readers"]) == {3} and len(passed)
    assert (passed["near"] == 3).all() and (passed["median_rank"] <= 10).all()
    assert (frame["family"] != frame["other_family"]).all()
    alone = neighbourhoods.PAGE.figures["pairs"].table(
        asked, asked.resolve_view(View(roster="27-way", domain="math100"))
    )
    assert set(alone["readers"]) == {1} and set(alone["passes"]) == {""}


def test_trust_shows_other_perplexities_below_the_maps(asked: QueryCache, app: Dash) -> None:
    with app.server.test_request_context():
        drawn = neighbourhoods._trust(asked, asked.resolve_view(View(roster="12-way")))
    rows = [f"{name}, {dims}-D" for name in ("t-SNE", "UMAP", "PCA") for dims in (3, 2)]
    swept = [f"t-SNE, perplexity {perplexity}, 2-D" for perplexity in (10, 50)]
    assert list(drawn.figure["layout"]["yaxis"]["ticktext"]) == [*rows, *swept]
    assert "4 other settings" in str(drawn.sentence)


def test_what_the_browser_gets_is_compressed(app: Dash) -> None:
    client = app.server.test_client()
    path = next(part for part in client.get("/").get_data(as_text=True).split('"') if "dash_renderer" in part)
    plain = client.get(path)
    packed = client.get(path, headers={"Accept-Encoding": "br, gzip"})
    assert packed.headers["Content-Encoding"] == "br"
    assert len(packed.get_data()) < 0.45 * len(plain.get_data())


def _as_json(value: object) -> object:
    return value.to_plotly_json() if hasattr(value, "to_plotly_json") else str(value)

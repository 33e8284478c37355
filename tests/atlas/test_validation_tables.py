"""Tables of what an audit's evidence is worth, on Methods and Watch, once they were measured."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flask import Flask

from atlas.application import create_application
from atlas.pages import methods, validation, watch
from backend.enrolment.catalogue import SAMPLES, Ecosystem, sample_labels
from backend.store.builds import recorded
from backend.store.database import open_work, publish
from backend.store.writers import replace_rows, write_reader
from tests.invented_atlas import publish_invented

TRANSFER = {"part": "transfer", "k": 5, "n": 960, "scenario": "unlabelled traffic, math100, 16 sources"}
PAIRED = {"metric": "alarms", "statistic": "energy-paired", "level": 0.05, "space": "fingerprints", "k": 20, "n": 100}
STREAM = {"part": "drift", "statistic": "e-process", "level": 0.01, "k": 1000, "n": 1000}
MIXTURE = {"part": "mixture", "k": 50, "n": 700, "scenario": "any"}
ROWS = [
    {**TRANSFER, "metric": "realised", "statistic": "clean", "value": 0.6},
    {**TRANSFER, "metric": "realised", "statistic": "background", "value": 0.71},
    {**TRANSFER, "metric": "false_unknown", "statistic": "background", "value": 0.96},
    {**PAIRED, "part": "repeated", "scenario": "same", "value": 0.04},
    {**PAIRED, "part": "repeated", "scenario": "sibling", "value": 0.74},
    {**PAIRED, "part": "drift", "scenario": "family", "value": 0.99},
    {**PAIRED, "part": "drift", "scenario": "family", "value": 0.5, "space": "log-posteriors"},
    {**MIXTURE, "metric": "share_coverage", "statistic": "claimed", "value": 0.951},
    {**MIXTURE, "metric": "share_coverage", "statistic": "claimed", "level": 0.2, "value": 0.9},
    {**MIXTURE, "metric": "found", "level": 0.0, "value": 0.06},
    {**MIXTURE, "metric": "found", "level": 0.2, "value": 0.6},
    {**MIXTURE, "metric": "detectable", "value": 0.26},
    {**STREAM, "scenario": "family", "metric": "alarms", "value": 1.0},
    {**STREAM, "scenario": "family", "metric": "delay_traces", "value": 5.0},
    {**STREAM, "scenario": "resampled", "metric": "alarms", "value": 0.001},
]
READER = "reader-paper/tiny/ur"


def shown(server: Flask) -> tuple[str, str]:
    """Methods and Watch as they are sent."""
    with server.test_request_context():
        pages = methods.layout(), watch.layout()
    return tuple(json.dumps(page.to_plotly_json(), default=lambda part: part.to_plotly_json()) for page in pages)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Flask:
    folder = tmp_path_factory.mktemp("measured")
    publish_invented(folder)
    before = shown(create_application(folder, folder / "cache").server)
    assert not any(table.question in page for table in validation.TABLES.values() for page in before)
    assert "#evidence" not in before[0]
    key = {"roster": "27-way", "condition": "clean"}
    with (
        contextlib.closing(open_work(folder / "work" / "work.duckdb")) as connection,
        recorded(connection, stage="audit", command="x") as build,
    ):
        twin = write_reader(connection, method="lda-live", name="Discriminants", proxy="tiny", view="ur")
        paired = [row for row in ROWS if row.get("statistic") == "energy-paired"]
        for reader, rows in ((READER, ROWS), (twin, paired)):  # both read the same fingerprints
            replace_rows(connection, "audit_validation", pd.DataFrame(rows), key | {"reader": reader}, build)
    publish(folder / "work" / "work.duckdb", folder)
    return create_application(folder, folder / "cache").server


def test_tables_are_shown_once_they_were_measured(measured: Flask) -> None:
    on_methods, on_watch = shown(measured)
    assert all(table.question in on_methods for table in validation.TABLES.values()) and "#evidence" in on_methods
    with measured.test_request_context():
        name = json.dumps(measured.extensions["atlas"].reader_name(READER))[1:-1]
    for result in (
        f"most on Math100, where {name} names 71 % right instead of 60 %",
        "tells 74 % of siblings and an unknown share of other families from the genuine model, and raises 4 % false",
        "(answers: our own, asked twice; n = 100 pairs of each kind)",
        f"With 50 traces, {name} finds a second source in 80 % of cases once it wrote 26 % of them (any other "
        "source of the roster, drawn at random; mean over sources, while Attribute states each one's); ",
        f"Half of the watches by {name} have seen a change after 5 traces where another family answers. Where",
    ):
        assert result in on_methods
    assert f"How soon does a watch by {name} on 27-way see a change?" in on_watch and "No terminal?" in on_watch
    assert "See a sample watch" in on_watch and "See a sample watch" not in on_methods


def test_a_watch_is_seen_at_a_glance() -> None:
    def cells(evidence: list[float], alarm: bool) -> list[Any]:
        question = SimpleNamespace(claimed="m-1", rate=0.01)
        state: Any = SimpleNamespace(
            name="a.b", question=question, alarm=alarm or None, looks=lambda: [SimpleNamespace(at=0.0)],
            evidence=lambda: np.log(evidence),
        )  # fmt: skip
        return [cell.children for cell in watch._glance(state).children]

    link, claimed, status, evidence, last = cells([2.0, 120.0, 150.0], True)
    assert (link.children, link.href, status.children) == ("a.b", "#watch-a-b", "Alarm") and claimed is not None
    assert (evidence, last) == ("150 to 1; alarm at 100 to 1", "1970-01-01 00:00")
    assert cells([2.0], False)[2].children == "No alarm" and cells([], False)[2].children == "Waiting"
    assert cells([120.0, 50.0], False)[2].children == "Alarm: its report is being made"


def test_rows_are_those_of_the_store_in_words(measured: Flask) -> None:
    with measured.test_request_context():
        cache = measured.extensions["atlas"]
        frames = {name: validation.rows(cache, table) for name, table in validation.TABLES.items()}
        builds = [told.builds(cache, methods.View()) for told in validation.figures(validation.TABLES).values()]
        assert set(frames["references"]["reader"]) == {cache.proxy_name(READER)}
        others = (frame for name, frame in frames.items() if name != "references")
        assert all(set(frame["reader"]) == {cache.reader_name(READER)} for frame in others)
    assert [len(frame) for frame in builds] == [1] * 4
    (pool,) = frames["pools"].itertuples()
    assert (pool.traffic, pool.right, pool.right_pool, pool.rejected_pool, pool.n) == ("Math100", 0.6, 0.71, 0.96, 960)
    assert pd.isna(pool.stated)
    twice, once = frames["references"].itertuples()
    assert (twice.asked_twice, twice.same, twice.sibling) == ("our own, asked twice", 0.04, 0.74)
    assert (once.asked_twice, once.family) == ("of the release", 0.99) and pd.isna(once.same)
    (mixture,) = frames["mixture"].itertuples()
    assert (mixture.k, mixture.claimed, mixture.false_alarms, mixture.detectable) == (50, 0.951, 0.06, 0.26)
    assert pd.isna(mixture.detectable_sibling) and mixture.mixtures == 700
    unchanged, family = frames["streams"].itertuples()
    assert (unchanged.scenario, unchanged.alarms) == ("nothing; answers may repeat", 0.001) and pd.isna(unchanged.delay)
    assert (family.scenario, family.level, family.delay, family.alarms) == ("another family", 0.01, 5.0, 1.0)


def test_a_watch_says_how_often_it_is_wrong_and_how_soon_right() -> None:
    columns = ["scenario", "k", "level", "alarms", "delay", "delay90", "n"]
    rows = [
        ("resampled", 1_000, 0.01, 0.001, None, None, 1_000),
        ("sibling", 1_000, 0.01, 0.979, 5.0, 54.0, 1_000),
        ("family", 1_000, 0.01, 1.0, 0.0, 8.0, 1_000),
    ]
    frame = pd.DataFrame(rows, columns=columns)
    assert watch.false_alarms(frame) == (
        "1 of 1,000 watches over 1,000 answers without a change raised a false alarm; 1 % were allowed to. "
    )
    assert watch.false_alarms(frame.iloc[1:]) == ""
    drawn = watch.figures.alarm_delays(frame, "light")
    half, most = drawn["data"]
    assert (half["x"], most["x"]) == ([1.0, 5.0], [8.0, 54.0]) and half["text"][0].strip() == "0"
    changes = [watch.figures.CHANGES[name] for name in ("family", "sibling", "resampled")]
    assert drawn["layout"]["yaxis"]["ticktext"] == changes
    uneven = watch.figures.alarm_delays(frame.assign(k=[250, 1_000, 1_000]), "light")
    assert uneven["layout"]["yaxis"]["ticktext"][2] == f"{changes[2]}<br>250 answers"
    shares = [note["text"] for note in drawn["layout"]["annotations"][1:]]
    assert [share.split("</b>")[0] for share in shares] == ["<b>100.0 %", "<b>97.9 %", "<b>0.1 %"]


def test_a_watch_shows_one_readers_streams_in_per_cent(measured: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    with measured.test_request_context():
        cache = measured.extensions["atlas"]
        monkeypatch.setattr(watch.visitor, "ecosystems", lambda: [])
        (meta,) = watch.PAGE.figures.values()
        unchanged, family = meta.table(cache, methods.View()).to_dict("records")
        assert (unchanged["What changes"], unchanged["Alarms, %"]) == ("nothing; answers may repeat", 0.1)
        assert (family["Allowed, %"], family["Half within"]) == (1.0, 5.0)
        sentence = str(watch._delays(cache, methods.View()).sentence)
        assert cache.reader_name(READER) in sentence and "of 27-way" in sentence and "not measured" not in sentence
        other = Ecosystem("other", "ngram-word", "tiny", "ur", ("a",), ("A",), "0" * 64, {"roster": "27-way"})
        monkeypatch.setattr(watch.visitor, "ecosystems", lambda: [other])
        sentence = str(watch._delays(cache, methods.View()).sentence)
        assert "on 27-way, which was not measured" in sentence
        assert watch._question(cache).endswith(" (for orientation)")


def test_a_claim_fills_the_commands_and_says_where_its_answers_are() -> None:
    def ecosystem(name: str, roster: str | None, *sources: str) -> Ecosystem:
        facts = {"roster": roster, "benchmark": "agent500"} if roster else {}
        return Ecosystem(name, "r", "tiny", "ur", sources, sources, "0" * 64, facts)

    own, sample = ecosystem("mine", "mine", "m-1", "m-2"), ecosystem("samples", None, "m-1", *sample_labels())
    release = ecosystem("100-way-r", "100-way", "gpt4o", "m-2")
    known = [release, own, sample]
    enrolled, endpoint, folder = watch._filled(known, "gpt4o")
    assert "responses/agent500/" in str(enrolled) and "--claimed gpt4o --reference enrolled.jsonl.gz" in endpoint
    assert "watch logs/ " in folder and "--claimed gpt4o" in folder
    enrolled, endpoint, _ = watch._filled(known, "m-1")
    assert "from which mine was enrolled" in str(enrolled) and endpoint.endswith("--reference enrolled.jsonl")
    assert "--reference sample" in watch._filled(known, sample.sources[1])[1]
    given = watch._filled(known, "m-1", address=" https://a.example/v1", model="my model", folder="")
    assert "https://a.example/v1 " in given[1] and "--model 'my model' " in given[1] and "watch logs/ " in given[2]
    assert "--claimed LABEL" in watch._filled([], None)[1] and "jobs enroll" in str(watch._filled([], None)[0])
    assert watch._lacking("m-1", address="https://a.example/v1", model=" ") == [
        "the model's name", "the folder",
    ]  # fmt: skip
    assert (
        watch._lacking("m-1", address="a", model="b", folder="c") == ["", ""]
        and "the claimed model" in watch._lacking(None)[1]
    )
    options = watch._claims(known, {})
    labels = [one["value"] for option in options for one in option.get("items", [option])]
    assert len(labels) == len(set(labels)) == len({source for one in known for source in one.sources})


def test_a_watch_calls_its_enrolment_what_people_call_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = SimpleNamespace(name="samples-tiny-ur", title=SAMPLES)
    monkeypatch.setattr(watch.visitor, "ecosystems", lambda: [known])
    assert watch._title(known.name) == "the samples" and watch._title("gone") == "gone"

"""The stage readouts on an invented release: members, stacks, stress, another domain, calibration, comparisons."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from backend.corpus.release import Release
from backend.corpus.roster_rows import describe_proxy
from backend.costs import stage as cost
from backend.enrolment.head_fits import Fits, heads_of
from backend.errors import AtlasError
from backend.evaluations import corpus
from backend.evaluations.artifacts import artifact_folder, keep, load_log_posteriors
from backend.evaluations.corpus import Corpus
from backend.evaluations.readouts import LENGTHS
from backend.evaluations.stages import EvaluateOptions, attribution, baselines, readout_members, readouts, stress
from backend.evaluations.stages.readout_live import evaluate_live, live_blocks, load_banks, load_ngram_banks
from backend.evaluations.stages.readout_members import Plan, scorer_of
from backend.evaluations.stages.readouts import plan_of, stacks_of
from backend.evaluations.stages.roster_run import RosterRun
from backend.fingerprints import cache_folder
from backend.methods.ensemble import HEAD_KINDS
from backend.methods.fine_tuning import FinetuneSettings
from backend.methods.network import NetworkSettings, fit_network
from backend.methods.ngrams import GRAMS
from backend.methods.registry import FUSED_LIVE, LDA_LIVE
from backend.protocol import FOLDS
from backend.statistics import holm
from backend.store.database import open_work
from backend.store.queries import metric_curve
from backend.store.writers import replace_rows, write_reader
from tests.evaluations.test_stress import write_store, write_world


def tokenizer(texts, **_):
    """Words with the space behind them are tokens."""
    return {"offset_mapping": [[found.span() for found in re.finditer(r"\S+\s*", text)] for text in texts]}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    lengths = {"full": 1.0, "t128": 0.9, "t64": 0.8, "t32": 0.6}
    return write_world(tmp_path_factory.mktemp("readouts"), lengths, {"full": 0.8})


@pytest.fixture
def world(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    for module in (corpus, readout_members):
        monkeypatch.setattr(module, "truncation_tokenizer", lambda: tokenizer)
    for module in (corpus, baselines, readout_members):
        monkeypatch.setattr(module, "proxy_hash", lambda name: "weights")
    monkeypatch.setattr(readouts, "NetworkSettings", lambda: NetworkSettings(hidden=8, epochs=6, batch=16, rate=0.02))
    with open_work(tmp_path / "work.duckdb") as connection:
        yield connection, Release(tmp_path / "release")


@pytest.mark.slow
def test_stage_measures_members_and_stacks_under_every_condition(world, capsys, monkeypatch):
    connection, release = world
    asked = EvaluateOptions("invented", ["ur"], ["165-way"], members="invented:1+2,network,regression,experts,word")
    attribution.run(connection, release, asked)
    readouts.run(connection, release, asked)

    def accuracy(reader, condition="clean", benchmark="agent500", metric="accuracy"):
        return metric_curve(connection, reader, "165-way", benchmark, condition, metric, "pooled").set_index("k")[
            "value"
        ]

    readers = ["lda-full/invented/ur", "lda/invented/ur", "network/invented/ur", "states/invented/ur"]
    readers += ["ngram-word-lengths", "fused/invented/ur", "lda-live/invented/ur", "fused-live/invented/ur"]
    readers += ["regression/invented/ur", "experts/invented/ur"]
    for reader in readers:
        assert accuracy(reader)[5] > 0.6, reader
        for condition in ("t128", "t64", "t32", "t32-global"):
            assert len(accuracy(reader, condition)) >= 2, (reader, condition)
            assert len(accuracy(reader, condition, metric="retained")) == 2
        states = () if reader == "ngram-word-lengths" else ("aligned",)
        for condition in ("clean", "background", *states):
            assert len(accuracy(reader, condition, "math100")) == 3
        assert states or accuracy(reader, "aligned", "math100").empty
        assert 0 <= accuracy(reader, metric="ece_calibrated")[1] < 0.35
        for condition in ("clean", "t64"):
            assert len(accuracy(reader, condition, metric="accuracy_low")) == 2
    assert accuracy("fused/invented/ur")[1] >= accuracy("reader-paper/invented/ur")[1]
    compared = connection.execute(
        "SELECT subject, reference FROM comparisons WHERE hypotheses = 'readouts/165-way' AND measure = 'accuracy@1'"
    ).fetchall()
    assert ("fused/invented/ur", "reader-paper/invented/ur") in compared
    assert ("lda/invented/ur", "fused/invented/ur") in compared
    assert len(compared) == len(set(compared)) == 13, "seven with the paper, six with the fused one"
    alone = connection.execute(
        "SELECT subject, reference FROM comparisons WHERE hypotheses = 'readouts-alone/165-way' "
        "AND measure = 'accuracy@1'"
    ).fetchall()
    names = ("lda-live", "fused-live", "regression", "experts")
    assert {(f"{name}/invented/ur", "reader-paper/invented/ur") for name in names} < set(alone)
    assert ("experts/invented/ur", "lda-full/invented/ur") in alone and len(alone) == 6
    kept = np.load(next((cache_folder() / "evaluations" / "fused" / "invented").rglob("log_posteriors.npy")))
    assert np.allclose(np.exp(kept).sum(1), 1, atol=1e-4)

    # Every member noted its fits, and a stack costs what they cost.
    monkeypatch.setattr(cost, "in_fresh_process", lambda path, records: {"latency_ms": 1.0})
    cost.run(connection, release, dataclasses.replace(asked, methods=["fused", "network", "fused-live"]))
    held = connection.execute("SELECT reader, value FROM costs WHERE measure = 'fit_seconds'").fetchall()
    seconds = dict(held)
    assert set(seconds) == {"fused/invented/ur", "network/invented/ur", "fused-live/invented/ur"}
    assert seconds["fused/invented/ur"] > seconds["network/invented/ur"] > 0
    assert seconds["fused-live/invented/ur"] > 0  # noted nowhere, so it was fitted
    told = fits_told(connection)
    assert set(told["fused-live/invented/ur"]["fits"]) == {"invented@bank", "word@coded"}
    assert not any("fit" in details for details in told.values())

    # What is kept is not fitted again, and the stage stress leaves these readers alone.
    before = connection.execute("SELECT count(*) FROM attribution_metrics WHERE metric = 'ece_calibrated'").fetchone()
    capsys.readouterr()
    readouts.run(connection, release, dataclasses.replace(asked, methods=["fused"]))
    assert "fit" not in capsys.readouterr().err
    again = connection.execute(
        "SELECT subject, reference FROM comparisons WHERE hypotheses = 'readouts/165-way' AND measure = 'accuracy@1'"
    ).fetchall()
    assert set(again) == set(compared), "all that is measured is compared, whatever was asked for"
    stress.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"]))
    after = connection.execute("SELECT count(*) FROM attribution_metrics WHERE metric = 'ece_calibrated'").fetchone()
    assert before == after


@pytest.mark.parametrize("method", [LDA_LIVE, FUSED_LIVE])
def test_a_corpus_is_fitted_as_a_roster_is(world, method):
    connection, release = world
    blocks, place = (1, 2), dict.fromkeys(range(FOLDS), 1)
    run = RosterRun(connection, release, "165-way")
    evaluate_live(run, "invented", blocks, "ur", method)
    scorer = scorer_of(run, Plan({"invented": blocks}, ()))
    rows = scorer.rows["invented"]
    corpus = Corpus(
        lambda block, condition: rows.load(block, "full" if condition == "clean" else condition),
        {condition: scorer.texts(condition) for condition in LENGTHS},
        scorer.tokens("clean"), scorer.labels, scorer.folds, scorer.classes,
    )  # fmt: skip
    folder = artifact_folder(method, "invented", "ur", "165-way", len(rows.prompt_ids))
    heads = {LDA_LIVE: load_banks, FUSED_LIVE: load_ngram_banks}[method](folder, "again")[0]
    fitted = heads_of(Fits(corpus, "invented", blocks, place), method)
    _, parts = HEAD_KINDS["bank" if method == LDA_LIVE else "worded"]
    for head in fitted.heads:
        for part in parts:
            own, roster = attrgetter(part)(head.probe), attrgetter(part)(heads[head.fold])
            assert own.dtype == roster.dtype
            np.testing.assert_array_equal(own, roster)
    np.testing.assert_array_equal(fitted.log_posteriors["clean"], load_log_posteriors(folder, "again"))


def fits_told(connection):
    rows = connection.execute(
        "SELECT reader, details FROM costs JOIN builds USING (build_id) WHERE measure = 'fit_seconds'"
    ).fetchall()
    return {reader: json.loads(details) for reader, details in rows}


def test_fits_that_nobody_noted_are_timed_on_random_numbers_where_fingerprints_are_elsewhere(
    world, monkeypatch, capsys
):
    connection, release = world
    asked = EvaluateOptions(
        "invented", ["ur"], ["165-way"], members="invented:1+2,network,experts,word,minilm-l6:tuned"
    )
    row = {"k": 1, "reduction": "pooled", "metric": "accuracy", "value": 0.5, "n": 9}
    key = {"roster": "165-way", "benchmark": "agent500", "condition": "clean"}
    methods = ("lda", "network", "experts", "ngram-word-lengths", "fused", "lda-live", "fused-live")
    for method in methods:
        proxy, view = (None, None) if method.startswith("ngram") else ("invented", "ur")
        reader = write_reader(connection, method=method, name=method, proxy=proxy, view=view)
        replace_rows(connection, "attribution_metrics", pd.DataFrame([row]), {"reader": reader, **key}, "build")
    tuned = write_reader(connection, method="encoder-lengths", name="tuned", proxy="minilm-l6", view="r")
    replace_rows(connection, "attribution_metrics", pd.DataFrame([row]), {"reader": tuned, **key}, "build")
    took = pd.DataFrame([{"measure": "fit_seconds", "value": 9.0, "unit": "s", "hardware": ""}])
    replace_rows(connection, "costs", took, {"reader": tuned, "roster": "165-way"}, "build")
    shutil.rmtree(cache_folder() / "fingerprints")
    monkeypatch.setattr(cost, "describe", lambda name: SimpleNamespace(hidden_size=3))
    monkeypatch.setattr(cost, "in_fresh_process", lambda path, records: {"latency_ms": 1.0})
    widths = []

    def fit_seen(*arguments, **settings):
        widths.append([copy.shape for copy in arguments[0]])
        return fit_network(*arguments, **settings)

    monkeypatch.setattr(readout_members, "fit_network", fit_seen)
    cost.run(connection, release, asked)
    told = fits_told(connection)
    assert set(told) == {
        f"{method}/invented/ur" for method in methods if method not in ("experts", "ngram-word-lengths")
    }.union({"ngram-word-lengths"})
    assert widths == 3 * [3 * [(150, 2 * 6)]]  # once for both stacks: three models on two blocks at three lengths
    for reader, details in told.items():
        assert details.get("fit") == (None if reader == "ngram-word-lengths" else cost.RANDOM)
    assert told["fused/invented/ur"]["fits"] == {
        name: told[reader]["fits"][name]
        for reader in ("lda/invented/ur", "network/invented/ur", "ngram-word-lengths")
        for name in told[reader]["fits"]
    }
    said = capsys.readouterr().out
    assert "experts/invented/ur: the fit is skipped. How long invented@experts" in said
    assert f"{tuned} on 165-way: stays as it was measured" in said
    assert ("encoder-lengths/minilm-l6/r", 9.0) in connection.execute(
        "SELECT reader, value FROM costs WHERE measure = 'fit_seconds'"
    ).fetchall()
    before = connection.execute("SELECT reader, build_id FROM costs").fetchall()
    cost.run(connection, release, asked)
    assert connection.execute("SELECT reader, build_id FROM costs").fetchall() == before
    connection.execute("DELETE FROM costs WHERE reader = 'ngram-word-lengths' AND measure = 'fit_seconds'")
    cost.run(connection, release, asked)
    assert fits_told(connection).keys() == told.keys()  # a fit that is missing is made up for

    # Where the fingerprints come back the fits are timed on them, and what is carried to a minimum is timed too.
    write_store(release, "agent500", {"full": 1.0, "t128": 0.9, "t64": 0.8, "t32": 0.6})
    cost.run(connection, release, asked)
    told = fits_told(connection)
    assert set(told["experts/invented/ur"]["fits"]) == {"invented@experts"}
    assert not any("fit" in details for details in told.values())


def test_missing_blocks_name_the_extraction_and_members_are_read_from_text(world):
    connection, release = world
    with pytest.raises(AtlasError, match="jobs extract --benchmark agent500 --roster 165-way --proxy invented"):
        readouts.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], members="invented:1+7"))
    for text in ("invented", "invented:", "network", "word,network", "word,experts", "invented:1,letters"):
        with pytest.raises(AtlasError, match=r"member|blocks"):
            plan_of(EvaluateOptions("invented", ["ur"], ["165-way"], members=text))
    plan = plan_of(EvaluateOptions("a", ["ur"], ["165-way"], members="a:2+1,minilm-l6:tuned,word"))
    assert (plan.blocks, plan.tuned, plan.texts) == ({"a": (1, 2)}, "minilm-l6", ["tuned-minilm-l6", "word"])
    names = stacks_of(plan)
    assert names["encoder-lengths", "minilm-l6"][1] == ["tuned-minilm-l6@pooled"]
    assert set(names["fused-tuned", "a"][1]) - set(names["fused", "a"][1]) == {"tuned-minilm-l6@pooled"}
    assert names["fused-text-tuned", None][1] == ["tuned-minilm-l6@pooled", "word@pooled"]
    assert {method for method, _ in names} <= set(readouts.READOUTS)
    plan = plan_of(EvaluateOptions("a", ["ur"], ["165-way"], members="a:2+1,b:3,word,char"))
    assert plan.blocks == {"a": (1, 2), "b": (3,)} and plan.grams == ("word", "char") and plan.network is None
    names = stacks_of(plan)
    assert set(names) >= {("lda", "a"), ("lda", "b"), ("fused-states", "a+b"), ("fused-text", None), ("fused", "a+b")}
    assert len(names["fused", "a+b"][1]) == 8
    assert {method for method, _ in names} <= set(readouts.READOUTS)
    texts = plan_of(EvaluateOptions("a", ["ur"], ["165-way"], members="word,minilm-l6:tuned"))
    assert not texts.blocks and list(stacks_of(texts)) == [
        ("ngram-word-lengths", None), ("encoder-lengths", "minilm-l6"), ("fused-text-tuned", None)
    ]  # fmt: skip
    default = plan_of(EvaluateOptions("smollm2-135m", ["ur"], ["165-way"]))
    assert default.network and default.grams == ("word", "style")
    assert default.blocks == {"smollm2-135m": (3, 9, 15, 21, 24)} and default.solved == ("regression", "experts")
    assert stacks_of(default)["experts", "smollm2-135m"][1] == ["smollm2-135m@experts"]
    fused, styled = (set(stacks_of(default)[method, "smollm2-135m"][1]) for method in ("fused", "fused-style"))
    assert not any("experts" in name for name in fused)
    assert styled - fused == {"style@pooled"} and fused < styled
    assert "style@pooled" not in stacks_of(default)["fused-linear", "smollm2-135m"][1]
    both = stacks_of(plan_of(EvaluateOptions("a", ["ur"], ["165-way"], members="a:1,style,word,minilm-l6:tuned")))
    assert {name for name, _ in both} >= {"fused", "fused-style", "fused-tuned", "fused-text-style", "fused-text-tuned"}
    assert both["fused-text-style", None][1] == ["style@pooled", "word@pooled"] and ("fused-text", None) not in both
    assert "style@pooled" not in both["fused-tuned", "a"][1]


def test_members_are_of_one_view_and_of_the_fingerprints_that_they_read(world):
    connection, release = world
    run = RosterRun(connection, release, "165-way")
    network = NetworkSettings(hidden=4, epochs=1, batch=64, rate=0.02)
    write_store(release, "agent500", {"full": 0.9, "t128": 0.8, "t64": 0.7, "t32": 0.5}, view="r", seed=5)
    write_store(release, "math100", {"full": 0.7}, view="r", seed=5)
    members = [f"invented@{part}" for part in ("clean", "t64", "t32", "network")]

    def said(view):
        scorer = scorer_of(run, Plan({"invented": (1, 2)}, (), view=view, network=network))
        scorer.complete(members)
        held = {(c, m): np.array(scorer.scores(c, m)) for c in ("clean", "math100", "math100-aligned") for m in members}
        return scorer, held

    scorer, first = said("ur")
    other, second = said("r")
    assert not any(np.array_equal(first[key], second[key]) for key in first)
    assert not {scorer.models(name) for name in members} & {other.models(name) for name in members}
    assert scorer.stack_member(members[0]).folder == scorer.models(members[0])
    assert all(np.array_equal(first[key], held) for key, held in said("ur")[1].items()), "the other view left it alone"

    # Fingerprints of Math100 that were read anew are scored anew; what was said of Agent500 stays.
    stamp = (scorer.models(members[0]).parent / "clean.npy").stat().st_mtime_ns
    write_store(release, "math100", {"full": 0.8}, span="prefix-count", seed=7)
    again = said("ur")[1]
    for condition, name in first:
        assert np.array_equal(first[condition, name], again[condition, name]) is (condition == "clean"), (
            condition,
            name,
        )
    assert (scorer.models(members[0]).parent / "clean.npy").stat().st_mtime_ns == stamp


def test_members_of_texts_keep_their_names_whatever_the_view(world, monkeypatch):
    connection, release = world
    run = RosterRun(connection, release, "165-way")
    settings = FinetuneSettings(epochs=7)
    monkeypatch.setattr(readout_members, "tuned_settings", lambda: settings)
    for view in ("ur", "r"):
        if view == "r":
            write_store(release, "agent500", {"full": 1.0, "t128": 0.9, "t64": 0.8, "t32": 0.6}, view="r")
        scorer = scorer_of(run, Plan({"invented": (1,)}, ("word",), view=view, tuned="minilm-l6"))
        members = cache_folder() / "evaluations" / "fused" / "165-way.25" / "members"
        for bank, own in (
            ("word", [GRAMS["word"].as_text(), "weights"]),
            ("tuned-minilm-l6", [settings.as_text(), "weights", "weights"]),
        ):
            assert scorer.models(f"{bank}@pooled") == members / bank / "pooled" / "models"
            told = json.dumps([json.dumps([release.manifest_hash, "165-way", None]), own])
            assert {scorer._identity(f"{bank}@pooled", c) for c in ("clean", "t32", "math100")} == {told}


def test_what_reads_text_alone_is_measured_without_fingerprints(world, tmp_path, monkeypatch):
    connection, release = world
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "empty"))
    readouts.run(connection, release, EvaluateOptions("smollm2-135m", ["ur"], ["165-way"], members="word,char,style"))
    readers = ("ngram-word-lengths", "ngram-char-lengths", "ngram-style-lengths")
    for reader in (*readers, "fused-text", "fused-text-style"):
        for benchmark, condition in (("agent500", "clean"), ("agent500", "t32"), ("math100", "background")):
            curve = metric_curve(connection, reader, "165-way", benchmark, condition, "accuracy", "pooled")
            assert curve.set_index("k")["value"][1] > 0.5, (reader, benchmark, condition)
    compared = connection.execute(
        "SELECT DISTINCT hypotheses, subject, reference FROM comparisons ORDER BY 1, 2, 3"
    ).fetchall()
    styled = {"ngram-style-lengths", "fused-text-style"}
    assert compared == sorted(
        (f"readouts-{'style' if reader in styled else 'text'}/165-way", reader, "fused-text")
        for reader in (*readers, "fused-text-style")
    )


def measure(connection, *readers):
    """Invented evidence of readers, kept and in the store."""
    for number, reader in enumerate(readers):
        method, proxy, view = [*reader.split("/"), None, None][:3]
        scores = np.random.default_rng(number).normal(size=(6 * 25, 6)).astype(np.float32)
        keep(artifact_folder(method, proxy, view, "165-way", 25) / "log_posteriors.npy", scores)
        for part in proxy.split("+") if proxy else ():
            describe_proxy(connection, part)
        describe_proxy(connection, proxy or "a")
        write_reader(connection, method=method, name=reader, proxy=proxy, view=view)
        key = {"reader": reader, "roster": "165-way", "benchmark": "agent500", "condition": "clean"}
        row = {"k": 1, "reduction": "pooled", "metric": "accuracy", "value": 0.5, "n": 9}
        replace_rows(connection, "attribution_metrics", pd.DataFrame([row]), key, "build")


def compared(connection, table="readouts/165-way"):
    query = "SELECT subject, reference FROM comparisons WHERE hypotheses = ? AND measure = 'accuracy@1'"
    rows = connection.execute(query, [table]).fetchall()
    assert len(rows) == len(set(rows))
    return set(rows)


A, B, GRAM = "reader-paper/a/ur", "reader-paper/b/ur", "ngram-word-lengths"
OF_A = {
    *((f"{name}/a/ur", A) for name in ("lda", "fused")),
    *((GRAM, A), ("lda/a/ur", "fused/a/ur"), (GRAM, "fused/a/ur")),
}
OF_B = {("lda/b/ur", B), ("fused/b/ur", B), (GRAM, B), ("lda/b/ur", "fused/b/ur"), (GRAM, "fused/b/ur")}
READERS = (A, B, GRAM, *(f"{name}/a/ur" for name in ("lda", "fused", "lda-live", "fused-live")))


def test_each_readout_is_compared_with_the_paper_s_of_its_proxy_and_no_plan_erases_another_s_pairs(world, capsys):
    connection, release = world
    measure(connection, *READERS, "lda/b/ur", "fused/b/ur", "fused/a+b/ur")
    both = {"a": (1,), "b": (1,)}

    def run(blocks):
        readouts.compare(RosterRun(connection, release, "165-way"), Plan(blocks, ("word",)))
        return compared(connection)

    assert run({"a": (1,)}) == OF_A
    live = {(f"{name}/a/ur", A) for name in ("lda-live", "fused-live")}
    assert compared(connection, "readouts-alone/165-way") == live
    assert run({"b": (1,)}) == OF_A | OF_B
    with_both = {(name, "fused/a+b/ur") for name in ("lda/a/ur", "fused/a/ur", "lda/b/ur", "fused/b/ur", GRAM)}
    assert run(both) == OF_A | OF_B | with_both | {("fused/a+b/ur", A)}
    assert run({"a": (1,)}) == OF_A | OF_B | with_both | {("fused/a+b/ur", A)}
    frame = connection.execute("SELECT p_value, p_holm FROM comparisons WHERE hypotheses = 'readouts/165-way'").df()
    np.testing.assert_allclose(frame["p_holm"], holm(frame["p_value"].to_numpy()))

    # A pair that cannot be computed any more leaves the whole table as it was measured.
    builds = "SELECT DISTINCT build_id FROM comparisons WHERE hypotheses = 'readouts/165-way'"
    before = connection.execute(builds).fetchall()
    (artifact_folder("lda", "b", "ur", "165-way", 25) / "log_posteriors.npy").unlink()
    assert "stays" not in capsys.readouterr().out
    run({"a": (1,)})
    assert connection.execute(builds).fetchall() == before
    assert "the table stays as it was measured" in capsys.readouterr().out

    # A reader that is not measured on the roster any more takes its pairs along, which is said.
    connection.execute("DELETE FROM attribution_metrics WHERE reader = 'lda/b/ur'")
    assert not any("lda/b/ur" in pair for pair in run({"a": (1,)}))
    assert "3 comparisons go" in capsys.readouterr().out


def test_what_has_a_tuned_encoder_is_a_set_of_its_own(world):
    connection, release = world
    encoder, whole = "encoder-lengths/minilm-l6/r", "fused-tuned/a/ur"
    measure(connection, *READERS, encoder, whole, "fused-text-tuned")
    plan = Plan({"a": (1,)}, ("word",), tuned="minilm-l6")
    readouts.compare(RosterRun(connection, release, "165-way"), plan)
    tuned = {*((reader, A) for reader in (encoder, whole, "fused-text-tuned"))}
    tuned |= {(reader, "fused/a/ur") for reader in (encoder, whole, "fused-text-tuned")}
    assert compared(connection, "readouts-tuned/165-way") == tuned
    assert compared(connection) == set()
    readouts.compare(RosterRun(connection, release, "165-way"), dataclasses.replace(plan, tuned=None))
    assert compared(connection) == OF_A
    assert compared(connection, "readouts-tuned/165-way") == tuned


def test_without_the_paper_s_readout_of_its_proxy_a_readout_has_that_of_the_first(world, capsys):
    connection, release = world
    measure(connection, A, "lda/a/ur", "lda/b/ur", "lda-live/b/ur")
    plan = Plan({"a": (1,), "b": (1,)}, ())
    readouts.compare(RosterRun(connection, release, "165-way"), plan)
    assert compared(connection) == {("lda/a/ur", A), ("lda/b/ur", A), ("lda/a/ur", "lda/b/ur")}
    assert compared(connection, "readouts-alone/165-way") == {("lda-live/b/ur", A)}
    (artifact_folder("reader-paper", "a", "ur", "165-way", 25) / "log_posteriors.npy").unlink()
    connection.execute("DELETE FROM attribution_metrics WHERE reader = ?", [A])
    readouts.compare(RosterRun(connection, release, "165-way"), plan)
    said = capsys.readouterr().out
    assert compared(connection) == {("lda/a/ur", "lda/b/ur")}
    assert "to compare lda-live/b/ur with" in said
    assert "readouts/165-way: 2 comparisons go; their readers are not measured on 165-way" in said


def test_live_attribution_reads_few_blocks():
    assert live_blocks("smollm2-135m") == (9, 15, 21)
    assert live_blocks("smollm2-135m", (3, 9, 15, 21, 24)) == (9, 15, 21)
    assert live_blocks("smollm2-135m", (20,)) == (20,)
    assert live_blocks("invented", (1, 2)) == (1, 2)


def test_a_network_learns_what_no_line_can_and_repeats_itself():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 2)).astype(np.float16)
    labels = ((x[:, 0] > 0) ^ (x[:, 1] > 0)).astype(int)
    settings = NetworkSettings(hidden=16, epochs=60, batch=64, rate=0.02, dropout=0.0)
    network = fit_network([x], np.arange(400), labels, 2, settings, seed=3)
    posterior = network.log_posterior(x[400:])
    assert (posterior.argmax(1) == labels[400:]).mean() > 0.9
    assert np.allclose(np.exp(posterior).sum(1), 1, atol=1e-5)
    again = fit_network([x], np.arange(400), labels, 2, settings, seed=3)
    assert np.array_equal(network.weight, again.weight)

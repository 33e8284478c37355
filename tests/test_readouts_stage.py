"""The stage readouts on an invented release: members, stacks, stress, another domain, calibration, comparisons."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.readouts.network import NetworkSettings, fit_network
from backend.release import Release
from backend.store.database import open_work
from backend.store.queries import metric_curve
from jobs import _common
from jobs._stages import Asked, attribution, baselines, readout_members, readouts, stress
from jobs._stages.readout_live import live_blocks
from jobs._stages.readouts import plan_of, stacks_of
from tests.fake_release import fake_release
from tests.test_stress import write_store


def tokenizer(texts, **_):
    """Words with the space behind them are tokens."""
    return {"offset_mapping": [[found.span() for found in re.finditer(r"\S+\s*", text)] for text in texts]}


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    for module in (baselines, readout_members):
        monkeypatch.setattr(module, "truncation_tokenizer", lambda: tokenizer)
        monkeypatch.setattr(module, "proxy_hash", lambda name: "weights")
    monkeypatch.setattr(readouts, "NetworkSettings", lambda: NetworkSettings(hidden=8, epochs=6, batch=16, rate=0.02))
    release = Release(fake_release(tmp_path / "release", prompts=25))
    write_store(release, "agent500", {"full": 1.0, "t128": 0.9, "t64": 0.8, "t32": 0.6})
    write_store(release, "math100", {"full": 0.8})
    with open_work(tmp_path / "work.duckdb") as connection:
        _common.write_release_sources(connection, release)
        yield connection, release


@pytest.mark.slow
def test_stage_measures_members_and_stacks_under_every_condition(world, capsys):
    connection, release = world
    asked = Asked("invented", ["ur"], ["165-way"], members="invented:1+2,network,word")
    attribution.run(connection, release, asked)
    readouts.run(connection, release, asked)

    def accuracy(reader, condition="clean", benchmark="agent500", metric="accuracy"):
        return metric_curve(connection, reader, "165-way", benchmark, condition, metric, "pooled").set_index("k")[
            "value"
        ]

    readers = ["lda-full/invented/ur", "lda/invented/ur", "network/invented/ur", "states/invented/ur"]
    readers += ["ngram-word-lengths", "fused/invented/ur", "lda-live/invented/ur", "fused-live/invented/ur"]
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
        assert len(accuracy(reader, metric="accuracy_low")) == 2
    assert accuracy("fused/invented/ur")[1] >= accuracy("reader-paper/invented/ur")[1]
    compared = connection.execute(
        "SELECT subject, reference FROM comparisons WHERE hypotheses = 'readouts/165-way' AND measure = 'accuracy@1'"
    ).fetchall()
    assert ("fused/invented/ur", "reader-paper/invented/ur") in compared
    assert ("lda/invented/ur", "fused/invented/ur") in compared
    assert len(compared) == len(set(compared)) == 11, "six stacks with the paper's, five with the last"
    kept = np.load(next((cache_folder() / "evaluations" / "fused" / "invented").rglob("log_posteriors.npy")))
    assert np.allclose(np.exp(kept).sum(1), 1, atol=1e-4)

    # What is kept is not fitted again, and the stage stress leaves these readers alone.
    before = connection.execute("SELECT count(*) FROM attribution_metrics WHERE metric = 'ece_calibrated'").fetchone()
    capsys.readouterr()
    readouts.run(connection, release, dataclasses.replace(asked, methods=["fused"]))
    assert "fit" not in capsys.readouterr().err
    again = connection.execute(
        "SELECT subject, reference FROM comparisons WHERE hypotheses = 'readouts/165-way' AND measure = 'accuracy@1'"
    ).fetchall()
    assert set(again) == set(compared), "all that is measured is compared, whatever was asked for"
    stress.run(connection, release, Asked("invented", ["ur"], ["165-way"]))
    after = connection.execute("SELECT count(*) FROM attribution_metrics WHERE metric = 'ece_calibrated'").fetchone()
    assert before == after


def test_missing_blocks_name_the_extraction_and_members_are_read_from_text(world):
    connection, release = world
    with pytest.raises(AtlasError, match="jobs extract --benchmark agent500 --roster 165-way --proxy invented"):
        readouts.run(connection, release, Asked("invented", ["ur"], ["165-way"], members="invented:1+7"))
    for text in ("invented", "invented:", "network", "word,network", "invented:1,letters"):
        with pytest.raises(AtlasError, match=r"member|blocks"):
            plan_of(Asked("invented", ["ur"], ["165-way"], members=text))
    plan = plan_of(Asked("a", ["ur"], ["165-way"], members="a:2+1,minilm-l6:tuned,word"))
    assert (plan.blocks, plan.tuned, plan.texts) == ({"a": (1, 2)}, "minilm-l6", ["tuned-minilm-l6", "word"])
    names = stacks_of(plan)
    assert names["encoder-lengths", "minilm-l6"][1] == ["tuned-minilm-l6@pooled"]
    assert set(names["fused", "a"][1]) - set(names["fused-untuned", "a"][1]) == {"tuned-minilm-l6@pooled"}
    assert {method for method, _ in names} <= set(readouts.METHODS)
    plan = plan_of(Asked("a", ["ur"], ["165-way"], members="a:2+1,b:3,word,char"))
    assert plan.blocks == {"a": (1, 2), "b": (3,)} and plan.grams == ("word", "char") and plan.network is None
    names = stacks_of(plan)
    assert set(names) >= {("lda", "a"), ("lda", "b"), ("fused-states", "a+b"), ("fused-text", None), ("fused", "a+b")}
    assert len(names["fused", "a+b"][1]) == 8
    assert {method for method, _ in names} <= set(readouts.METHODS)
    texts = plan_of(Asked("a", ["ur"], ["165-way"], members="word,minilm-l6:tuned"))
    assert not texts.blocks and list(stacks_of(texts)) == [
        ("ngram-word-lengths", None), ("encoder-lengths", "minilm-l6"), ("fused-text", None)
    ]  # fmt: skip
    default = plan_of(Asked("smollm2-135m", ["ur"], ["165-way"]))
    assert default.network and default.grams == ("word",)
    assert default.blocks == {"smollm2-135m": (3, 9, 15, 21, 24)}


def test_what_reads_text_alone_is_measured_without_fingerprints(world, tmp_path, monkeypatch):
    connection, release = world
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "empty"))
    readouts.run(connection, release, Asked("smollm2-135m", ["ur"], ["165-way"], members="word,char"))
    for reader in ("ngram-word-lengths", "ngram-char-lengths", "fused-text"):
        for benchmark, condition in (("agent500", "clean"), ("agent500", "t32"), ("math100", "background")):
            curve = metric_curve(connection, reader, "165-way", benchmark, condition, "accuracy", "pooled")
            assert curve.set_index("k")["value"][1] > 0.5, (reader, benchmark, condition)
    compared = connection.execute(
        "SELECT DISTINCT subject, reference FROM comparisons WHERE hypotheses = 'readouts-text/165-way'"
    ).fetchall()
    assert sorted(compared) == [("ngram-char-lengths", "fused-text"), ("ngram-word-lengths", "fused-text")]


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

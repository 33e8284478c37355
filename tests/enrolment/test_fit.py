"""Enrolments of a release: what they score on enrolled prompts is what the evaluation scored, row by row."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.attribution.drift_report import standardised
from backend.corpus.release import Release
from backend.corpus.roster_rows import slice_of, write_release_sources
from backend.enrolment import held_out_answers as _heads
from backend.enrolment.files import load_enrolment, save_enrolment
from backend.enrolment.fit import enrolment_of, shortened
from backend.enrolment.held_out_answers import answered, grouping
from backend.enrolment.validation_lookup import accuracy_of_one
from backend.errors import AtlasError
from backend.evaluations import corpus
from backend.evaluations.artifacts import artifact_folder
from backend.evaluations.stages import (
    EvaluateOptions,
    attribution,
    audit,
    baselines,
    controls,
    readout_members,
    readouts,
)
from backend.methods.stack import cells_of
from backend.protocol import fold_of_prompts
from backend.proxies.encoding import cut_responses
from backend.store.database import open_work
from backend.store.page_queries import validation
from backend.store.queries import metric_curve
from benchmarks.held_out_cases import cases, load_answers
from jobs.__main__ import main
from tests.evaluations.test_readouts_stage import tokenizer
from tests.evaluations.test_stress import write_store
from tests.fake_release import fake_release


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A release that the paper's readout was measured on; every test measures a reader of its own beside it."""
    root = tmp_path_factory.mktemp("fit")
    with pytest.MonkeyPatch.context() as patches, open_work(root / "work.duckdb") as connection:
        patches.setenv("ATLAS_CACHE", str(root / "cache"))
        release = Release(fake_release(root / "release", prompts=25))
        write_store(release, "agent500", {"full": 2.0, "t128": 1.9, "t64": 1.6, "t32": 1.2})
        write_store(release, "math100", {"full": 1.5})
        write_release_sources(connection, release)
        with pytest.raises(AtlasError, match="jobs evaluate --proxy invented --view ur --roster 165-way"):
            enrolment_of(release, "invented", "ur", "165-way", method="reader-paper")
        attribution.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"]))
        yield release


def test_enrolled_prompts_are_scored_as_the_evaluation_did(world: Release, tmp_path: Path) -> None:
    made = save_enrolment(
        enrolment_of(world, "invented", "ur", "165-way", method="reader-paper"), tmp_path / "made.npz"
    )
    made = load_enrolment(tmp_path / "made.npz")
    rows = slice_of(world, "agent500", "invented", "ur", "165-way")
    assert list(made.sources) == rows.sources
    assert list(made.families) == rows.families
    assert made.facts["data_hash"] == world.manifest_hash
    assert (made.name, len(made.heads)) == ("165-way-reader-paper-invented-ur", 5)
    prompts = [trace.prompt for trace in world.records("agent500").traces[: len(rows.prompt_ids)]]
    folds = made.folds_of(prompts)
    assert folds == [int(fold) for fold in rows.prompt_folds]
    assert made.folds_of(["never asked", ""]) == [None, None]
    out = np.empty((len(rows.labels), len(made.sources)), dtype=np.float32)
    for fold, head in enumerate(made.heads):
        assert made.heads_for(fold) == (head,)
        test = np.tile(np.array(folds) == fold, len(rows.sources))
        out[test] = head.probe.log_posterior(made.columns(rows.load(head.layers[0]).astype(np.float32)[test]))
    kept = np.load(artifact_folder("reader-paper", "invented", "ur", "165-way", 25) / "log_posteriors.npy")
    assert np.allclose(out, kept, atol=1e-5)
    assert made.heads_for(None) == made.heads
    assert {name.partition(".")[0] for name in made.attachments} == {
        "calibration", "unknown", "stop", "mixture", "domain-agent500", "signatures", "prompts",
    }  # fmt: skip
    assert made.attachments["signatures.vectors"].shape == (len(made.sources), 2 * made.hidden_size)


def test_answers_to_held_out_groups_are_those_of_the_evaluation(
    world: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_heads, "truncation_tokenizer", lambda: tokenizer)
    data, name = tmp_path / "data", "165-way-reader-paper-invented-ur"
    made = enrolment_of(world, "invented", "ur", "165-way", method="reader-paper")
    save_enrolment(made, data / "enrolments" / f"{name}.npz")
    without_folds = replace(made, name="all", heads=tuple(replace(head, fold=None) for head in made.heads[:1]))
    save_enrolment(without_folds, data / "enrolments" / "all.npz")
    command = ["cases", "--release", str(world.root), "--to", str(data)]
    assert main([*command, "--k", "5"]) == 0
    said = capsys.readouterr().out
    answers = load_answers(name, data)
    kept = np.load(artifact_folder("reader-paper", "invented", "ur", "165-way", 25) / "log_posteriors.npy")
    groups = grouping(len(made.sources), fold_of_prompts(world.records("agent500").prompt_ids), 5)
    source, score, lead = answered(kept, groups)
    assert (answers.truth == groups.truth).all() and (answers.source == source).all()
    assert np.allclose(answers.score, score, atol=0.01) and np.allclose(answers.lead, lead, atol=0.01)
    assert f"{answers.right:,} are attributed to their own source" in said and "no table is here" in said
    held = cases(answers, load_enrolment(data / "enrolments" / f"{name}.npz"), world.records("agent500"), 10)
    assert {case.source for case in held} == set(made.sources)
    for wrong, reason in ((["--k", "6"], "do not all hold 6 prompts"), (["--enrolment", "all"], "'all' is no publi")):
        assert main([*command, *wrong]) == 2
        assert reason in capsys.readouterr().err


def test_a_bank_scores_enrolled_prompts_as_its_evaluation_did(
    world: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (corpus, readout_members):
        monkeypatch.setattr(module, "truncation_tokenizer", lambda: tokenizer)
    for module in (corpus, baselines, readout_members):
        monkeypatch.setattr(module, "proxy_hash", lambda name: "weights")
    monkeypatch.setattr(_heads, "truncation_tokenizer", lambda: tokenizer)
    with pytest.raises(AtlasError, match="--roster 165-way --stage readouts --method lda-live"):
        enrolment_of(world, "invented", "ur", "165-way")
    asked = EvaluateOptions("invented", ["ur"], ["165-way"], methods=("lda-live",), members="invented:1+2")
    with open_work(world.root.parent / "work.duckdb") as connection:
        readouts.run(connection, world, asked)
        found = metric_curve(connection, "lda-live/invented/ur", "165-way", "agent500", "t64", "accuracy", "pooled")
        assert connection.execute("SELECT DISTINCT method FROM readers WHERE method LIKE 'lda%'").fetchall() == [
            ("lda-live",)
        ]
    made = save_enrolment(enrolment_of(world, "invented", "ur", "165-way"), tmp_path / "made.npz")
    made = load_enrolment(tmp_path / "made.npz")
    assert (made.reader, made.landing in (1, 2), made.heads[0].layers) == ("lda-live/invented/ur", True, (1, 2))
    assert (made.name, made.place_reader) == ("165-way-invented-ur", "reader-paper/invented/ur")
    rows = slice_of(world, "agent500", "invented", "ur", "165-way")
    folds = np.tile(rows.prompt_folds, len(rows.sources))
    with np.load(next((world.root.parent / "cache").rglob("tokens.clean.npz"))) as held:
        tokens = held["tokens"]
    traces = world.records("agent500").traces
    folder = artifact_folder("lda-live", "invented", "ur", "165-way", 25)
    for condition, variant, limit in (("log_posteriors.npy", "full", 10**9), ("log_posteriors.t32.npy", "t32", 32)):
        by_layer = {layer: rows.load(layer, variant) for layer in (1, 2)}
        short = cut_responses(tokenizer, traces, [limit])[limit]
        cells = cells_of(np.minimum(tokens, limit), [trace.response for trace in short])
        kept = np.load(folder / condition)
        for head in made.heads:
            test = folds == head.fold
            here = {layer: part[test] for layer, part in by_layer.items()}
            assert np.allclose(head.log_posterior(made.coordinates(head, here), cells[test]), kept[test], atol=1e-5)
            if variant == "full":
                said = _heads.of_states(made, rows, traces[: len(rows.labels)])(head, test)[0]
                assert np.allclose(said, kept[test], atol=1e-5)
    accuracy = found.set_index("k")["value"]
    held = np.load(folder / "log_posteriors.t64.npy")
    assert accuracy[1] == pytest.approx((held.argmax(1) == rows.labels).mean())
    assert {"calibration", "calibration-t32", "unknown-t64", "stop", "domain-agent500"} < {
        name.partition(".")[0] for name in made.attachments
    }


@pytest.mark.parametrize(
    "method", ["reader-dc", "reader-ac", "pca-64", "pca-64-unscaled", "centroid-svd", "centroid-svd-unscaled"]
)
def test_controls_score_enrolled_prompts_as_their_evaluation_did(
    world: Release, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AtlasError, match=f"--roster 165-way --stage controls --method {method}[.]$"):
        enrolment_of(world, "invented", "ur", "165-way", method=method)
    with open_work(world.root.parent / "work.duckdb") as connection:
        controls.run(connection, world, EvaluateOptions("invented", ["ur"], ["165-way"], methods=(method,)))
    made = save_enrolment(enrolment_of(world, "invented", "ur", "165-way", method=method), tmp_path / "made.npz")
    assert "differ by" in capsys.readouterr().out
    made = load_enrolment(tmp_path / "made.npz")
    assert (made.name, made.reader) == (f"165-way-{method}-invented-ur", f"{method}/invented/ur")
    assert (made.place_reader, made.landing) == ("reader-paper/invented/ur", made.place)
    assert made.block == {"reader-dc": "dc", "reader-ac": "ac"}.get(method, "dc-ac")
    rows = slice_of(world, "agent500", "invented", "ur", "165-way")
    folder = artifact_folder(method, "invented", "ur", "165-way", 25)
    kept = np.load(folder / "log_posteriors.npy")
    for head in made.heads:
        test = np.tile(rows.prompt_folds, len(rows.sources)) == head.fold
        read = made.coordinates(head, {layer: rows.load(layer)[test] for layer in head.layers})
        assert np.allclose(head.log_posterior(read, np.zeros(int(test.sum()), np.intp)), kept[test], atol=2e-3)
    assert {"calibration", "unknown", "stop", "mixture", "domain-agent500", "signatures", "prompts"} == {
        name.partition(".")[0] for name in made.attachments
    }
    assert standardised(rows.load(made.place), made).shape == (len(rows.labels), 6)
    np.save(folder / "log_posteriors.npy", np.roll(kept, 1, axis=1))
    with pytest.raises(AtlasError, match=f"{method}/invented/ur differ from .* Evaluate it again: python -m jobs"):
        enrolment_of(world, "invented", "ur", "165-way", method=method)


def test_n_grams_score_enrolled_prompts_as_their_evaluation_did(
    world: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "truncation_tokenizer", lambda: tokenizer)
    for module in (corpus, baselines):
        monkeypatch.setattr(module, "proxy_hash", lambda name: "weights")
    command = "Run: python -m jobs evaluate --roster 165-way --stage baselines --method ngram-word[.]$"
    with pytest.raises(AtlasError, match=command):
        enrolment_of(world, "invented", "ur", "165-way", method="ngram-word")
    with open_work(world.root.parent / "work.duckdb") as connection:
        write_release_sources(connection, world)
        baselines.run(connection, world, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("ngram-word",)))
        audit.run(connection, world, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("ngram-word",)))
        parts = set(validation(connection, "ngram-word", "165-way")["part"])
    assert parts == {"calibration", "unknown", "stop", "mixture", "drift"}
    made = save_enrolment(enrolment_of(world, "invented", "ur", "165-way", method="ngram-word"), tmp_path / "made.npz")
    made = load_enrolment(tmp_path / "made.npz")
    assert (made.name, made.reader, made.block) == ("165-way-ngram-word-invented-ur", "ngram-word", "text")
    assert (made.layers, made.hidden_size) == ([made.landing], 3)
    assert accuracy_of_one(made) is not None
    rows = slice_of(world, "agent500", "invented", "ur", "165-way")
    folder = artifact_folder("ngram-word", None, None, "165-way", 25)
    kept, traces = np.load(folder / "log_posteriors.npy"), world.records("agent500").traces
    counts = made.counts([trace.response for trace in traces[: len(kept)]])
    for head in made.heads:
        test = np.flatnonzero(np.tile(rows.prompt_folds, len(rows.sources)) == head.fold)
        assert np.allclose(head.log_posterior(counts[test], test), kept[test], atol=1e-5)
    (folder / "ngrams.3.npz").unlink()
    with pytest.raises(AtlasError, match=f"n-grams of fold 3 are missing .* {command}"):
        enrolment_of(world, "invented", "ur", "165-way", method="ngram-word")
    with open_work(world.root.parent / "work.duckdb") as connection:
        write_release_sources(connection, world)
        baselines.run(connection, world, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("ngram-word",)))
    assert enrolment_of(world, "invented", "ur", "165-way", method="ngram-word").sha256 == made.sha256


def test_numbers_are_shortened_but_keep_their_order() -> None:
    values = np.sort(np.random.default_rng(0).normal(size=(3, 500)) * 10.0 ** np.arange(3)[:, None]).astype(np.float32)
    short = shortened(values)
    assert np.allclose(short, values, rtol=1.3e-4)
    assert (np.diff(short) >= 0).all()
    assert len(zlib.compress(short.tobytes())) < 0.7 * len(zlib.compress(values.tobytes()))

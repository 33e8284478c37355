"""Stress evaluation against a slow, obvious version of the protocol, and the stage on an invented release."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from backend.corpus.release import Release
from backend.corpus.roster_rows import release_records, slice_of, write_release_sources
from backend.enrolment.fit import enrolment_of
from backend.errors import AtlasError
from backend.evaluations.artifacts import artifact_folder, keep
from backend.evaluations.attribution import attribution_frames
from backend.evaluations.stages import EvaluateOptions, attribution, controls, stress
from backend.evaluations.stages.roster_run import RosterRun
from backend.evaluations.stages.stress import (
    excluded_posteriors,
    global_frames,
    retained_shares,
    transfer_frames,
    transferred_posteriors,
)
from backend.fingerprints import FingerprintStore, StoreIdentity, StoreKey
from backend.geometry.maps import Texts, chart_of
from backend.methods.probe import LinearProbe, fit_probe
from backend.protocol import fold_of_prompts
from backend.store.database import open_work
from backend.store.queries import metric_curve
from tests.fake_release import fake_release
from tests.twins import decisions, posterior_of

SOURCES, PROMPTS = 5, 20
NAMES = [f"source{i}" for i in range(SOURCES)]
FAMILIES = ["a", "a", "b", "b", "c"]


@pytest.fixture(scope="module")
def probes():
    rng = np.random.default_rng(4)
    return {
        fold: LinearProbe(
            mean=rng.normal(size=6).astype(np.float32),
            scale=rng.uniform(0.5, 2, size=6).astype(np.float32),
            weight=rng.normal(size=(6, SOURCES)).astype(np.float32),
            bias=rng.normal(size=SOURCES).astype(np.float32),
        )
        for fold in range(5)
    }


@pytest.fixture(scope="module")
def scored():
    """Log-posteriors (F, n, C) of five fold models that lean towards the truth."""
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(5, SOURCES * PROMPTS, SOURCES))
    logits[:, np.arange(SOURCES * PROMPTS), np.repeat(np.arange(SOURCES), PROMPTS)] += 0.8
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)


def value(frame, **where):
    for name, wanted in where.items():
        frame = frame[frame[name].isna() if wanted is None else frame[name] == wanted]
    assert len(frame) == 1, (where, len(frame))
    return frame.iloc[0]


def test_a_shortened_row_is_scored_by_the_model_that_never_saw_its_prompt(probes):
    prompt_folds = fold_of_prompts([f"p{i:02d}" for i in range(PROMPTS)])
    layers = {0: 3, 1: 4, 2: 3, 3: 3, 4: 4}
    rows = {
        layer: np.random.default_rng(layer).normal(size=(SOURCES * PROMPTS, 6)).astype(np.float16) for layer in (3, 4)
    }
    got = excluded_posteriors(rows.__getitem__, layers, probes, np.tile(prompt_folds, SOURCES))
    for source in range(SOURCES):
        for prompt in range(PROMPTS):
            fold = prompt_folds[prompt]
            row = rows[layers[fold]][source * PROMPTS + prompt].astype(np.float64)
            np.testing.assert_allclose(got[source * PROMPTS + prompt], posterior_of(probes[fold], row), atol=1e-4)


def test_every_fold_model_scores_every_row_of_the_other_domain(probes):
    rows = {layer: np.random.default_rng(layer).normal(size=(8, 6)).astype(np.float16) for layer in (1, 2)}
    layers = {0: 1, 1: 2, 2: 2, 3: 1, 4: 1}
    got = transferred_posteriors(rows.__getitem__, layers, probes)
    assert got.shape == (5, 8, SOURCES)
    assert got.dtype == np.float32
    for fold in range(5):
        for i in range(8):
            wanted = posterior_of(probes[fold], rows[layers[fold]][i].astype(np.float64))
            np.testing.assert_allclose(got[fold, i], wanted, atol=1e-4)


def test_groups_over_all_folds_equal_the_slow_version(scored):
    frames = global_frames(scored[0], NAMES, FAMILIES)
    assert sorted(frames.metrics["k"].unique()) == [1, 5, 10, 20]
    assert set(frames.metrics["reduction"]) == {"pooled"}
    for k in (1, 5, 10, 20):
        accuracies, scores = [], []
        counts = np.zeros((SOURCES, SOURCES), dtype=int)
        for seed in (42, 43, 44):
            truth, predicted = decisions(scored[0], k, seed)
            accuracies.append(np.mean(truth == predicted))
            scores.append(f1_score(truth, predicted, average="macro", labels=range(SOURCES), zero_division=0))
            np.add.at(counts, (truth, predicted), 1)
            row = value(frames.metrics, k=k, metric="accuracy", seed=seed)
            assert row["value"] == pytest.approx(accuracies[-1])
            assert row["n"] == SOURCES * (PROMPTS // k)
        assert value(frames.metrics, k=k, metric="accuracy", seed=None)["value"] == pytest.approx(np.mean(accuracies))
        assert value(frames.metrics, k=k, metric="accuracy", seed=None)["std"] == pytest.approx(np.std(accuracies))
        assert value(frames.metrics, k=k, metric="macro_f1", seed=None)["value"] == pytest.approx(np.mean(scores))
        for i, source in enumerate(NAMES):
            assert value(frames.source_accuracy, k=k, source=source)["accuracy"] == counts[i, i] / counts[i].sum()
        cells = frames.confusion[frames.confusion["k"] == k]
        assert cells["count"].sum() == counts.sum()


def test_global_groups_are_other_groups_than_those_within_folds(scored):
    prompt_folds = fold_of_prompts([f"p{i:02d}" for i in range(PROMPTS)])
    local = attribution_frames(scored[0], NAMES, FAMILIES, prompt_folds).metrics
    both = global_frames(scored[0], NAMES, FAMILIES).metrics
    assert sorted(local["k"].unique()) == [1]  # a fold holds four prompts
    at = {"k": 1, "reduction": "pooled", "metric": "accuracy", "seed": None}
    assert value(local, **at)["value"] == value(both, **at)["value"]  # a trace alone has no group


def test_transfer_gives_five_fold_models_and_their_ensemble(scored):
    frames = transfer_frames(scored, NAMES, FAMILIES)
    for k in (1, 5, 20):
        by_model = []
        for model in range(5):
            outcomes = [decisions(scored[model], k, seed) for seed in (42, 43, 44)]
            by_model.append(np.mean([np.mean(truth == predicted) for truth, predicted in outcomes]))
            row = value(frames.metrics, k=k, reduction="fold", metric="accuracy", fold=model)
            assert row["value"] == pytest.approx(by_model[-1])
            assert row["n"] == SOURCES * (PROMPTS // k)
        summary = value(frames.metrics, k=k, reduction="fold", metric="accuracy", fold=None)
        assert summary["value"] == pytest.approx(np.mean(by_model))
        assert summary["std"] == pytest.approx(np.std(by_model))
        ensemble = [decisions(scored.astype(np.float64).mean(0), k, seed) for seed in (42, 43, 44)]
        got = value(frames.metrics, k=k, reduction="pooled", metric="accuracy", seed=None)["value"]
        assert got == pytest.approx(np.mean([np.mean(truth == predicted) for truth, predicted in ensemble]))


def test_retained_share_is_relative_to_the_clean_accuracy_of_the_same_reduction():
    nothing = {"seed": pd.NA, "fold": pd.NA, "std": 0.1, "n": 4}
    metrics = pd.DataFrame(
        [
            {"k": 5, "reduction": "fold", "metric": "accuracy", "value": 0.505, **nothing},
            {"k": 5, "reduction": "pooled", "metric": "accuracy", "value": 0.6, **nothing},
            {"k": 5, "reduction": "pooled", "metric": "accuracy", "value": 0.7, **nothing, "seed": 42},
            {"k": 10, "reduction": "fold", "metric": "accuracy", "value": 0.5, **nothing},
            {"k": 5, "reduction": "fold", "metric": "macro_f1", "value": 0.4, **nothing},
        ]
    )
    clean = pd.DataFrame({"k": [5, 5, 10], "reduction": ["fold", "pooled", "fold"], "value": [0.962, 0.8, 0.0]})
    got = retained_shares(metrics, clean)
    assert list(got.columns) == list(metrics.columns)
    assert got["metric"].tolist() == ["retained", "retained"]
    assert got["value"].tolist() == pytest.approx([0.525, 0.75], abs=1e-4)
    assert got["std"].isna().all()


def write_store(release, benchmark, signal, *, proxy="invented", view="ur", span="offsets", seed=1):
    """Invented fingerprints of every length, in place of others: the source shows less the shorter the response."""
    records = release.records(benchmark)
    store = FingerprintStore(StoreKey(benchmark, proxy, view))
    shutil.rmtree(store.path, ignore_errors=True)
    labels = np.repeat(np.arange(len(records.sources)), len(records.prompt_ids))
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(len(records.sources), 6))
    shards = slice_of(release, benchmark, proxy, view, "165-way").shards
    hashed = release_records(release, benchmark)
    with store.writing(StoreIdentity(len(labels), 3, hashed, "weights", "invented", 1024, span)):
        for layer in (1, 2):
            for variant, share in signal.items():
                rows = (centres[labels] * share * layer + rng.normal(size=(len(labels), 6))).astype(np.float16)
                for shard in shards:
                    store.write_shard(shard.name, shard.rows, {(layer, variant): rows[shard.rows]})


def write_world(root, agent500, math100):
    """A release, its fingerprints, and a work database that knows its sources, in a folder that tests copy."""
    with pytest.MonkeyPatch.context() as patches, open_work(root / "work.duckdb") as connection:
        patches.setenv("ATLAS_CACHE", str(root / "cache"))
        release = Release(fake_release(root / "release", prompts=25))
        write_store(release, "agent500", agent500)
        write_store(release, "math100", math100)
        write_release_sources(connection, release)
    return root


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    lengths = {"full": 2.0, "t128": 1.5, "t64": 0.8, "t32": 0.1}
    return write_world(tmp_path_factory.mktemp("stress"), lengths, {"full": 1.0})


@pytest.fixture
def world(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    with open_work(tmp_path / "work.duckdb") as connection:
        yield connection, Release(tmp_path / "release")


def test_stage_stresses_the_paper_s_readout_and_every_method_that_keeps_scores(world, capsys):
    connection, release = world
    asked = EvaluateOptions("invented", ["ur"], ["165-way"])
    attribution.run(connection, release, asked)
    stress.run(connection, release, asked)

    reader = "reader-paper/invented/ur"

    def curve(benchmark, condition, metric="accuracy", reduction="fold"):
        return metric_curve(connection, reader, "165-way", benchmark, condition, metric, reduction).set_index("k")

    clean = curve("agent500", "clean")["value"]
    values = [curve("agent500", condition)["value"][5] for condition in ("clean", "t128", "t64", "t32")]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.9
    assert values[3] < 0.6
    for condition in ("t128", "t64", "t32"):
        kept = curve("agent500", condition, "retained")["value"]
        np.testing.assert_allclose(kept, curve("agent500", condition)["value"] / clean)
        assert curve("agent500", f"{condition}-global").empty
        assert curve("agent500", f"{condition}-global", reduction="pooled").index.tolist() == [1, 5, 10, 20]
        assert curve("agent500", f"{condition}-global", "retained", "pooled").index.tolist() == [1, 5]
    assert curve("math100", "clean").index.tolist() == [1, 5, 10]
    models = connection.execute(
        "SELECT fold FROM attribution_metrics WHERE benchmark = 'math100' AND k = 10 AND reduction = 'fold' "
        "AND metric = 'accuracy' ORDER BY fold"
    ).fetchall()
    assert models == [(0,), (1,), (2,), (3,), (4,), (None,)]
    assert connection.execute("SELECT count(DISTINCT condition) FROM confusion").fetchone() == (4,)
    assert connection.execute("SELECT count(*) FROM confusion WHERE benchmark = 'math100'").fetchone()[0] > 0
    build = connection.execute("SELECT details, proxy_hash FROM builds WHERE stage = 'stress'").fetchone()
    assert build[1] == "weights"
    assert "t64-global" in build[0]
    assert "retained" in capsys.readouterr().out

    # A method without fingerprints takes part as soon as it has kept the files of the convention.
    folder = artifact_folder("word-count", None, None, "165-way", 25)
    kept = artifact_folder("reader-paper", "invented", "ur", "165-way", 25)
    for name in ("log_posteriors.npy", "log_posteriors.t64.npy", "math100.npy"):
        keep(folder / name, np.load(kept / name))
    connection.execute("INSERT INTO readers VALUES ('word-count', 'word-count', NULL, NULL, 'Words', 'measured')")
    connection.execute(
        "INSERT INTO attribution_metrics SELECT * REPLACE ('word-count' AS reader) FROM attribution_metrics "
        "WHERE condition = 'clean' AND benchmark = 'agent500'"
    )
    run = RosterRun(connection, release, "165-way", 25)
    assert [r.reader for r in run.measured_readers()] == [reader, "word-count"]
    assert run.measured_readers()[1].folder == folder
    stress.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("word-count",)))
    got = metric_curve(connection, "word-count", "165-way", "agent500", "t64", reduction="fold")
    np.testing.assert_array_equal(got["value"], curve("agent500", "t64")["value"])
    got = metric_curve(connection, "word-count", "165-way", "math100", "clean", reduction="pooled")
    np.testing.assert_array_equal(got["value"], curve("math100", "clean", reduction="pooled")["value"])
    assert metric_curve(connection, "word-count", "165-way", "agent500", "t32").empty

    keep(folder / "math100.npy", np.zeros((5, 3, 3), dtype=np.float32))
    with pytest.raises(AtlasError, match="shape"):
        stress.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("word-count",)))


def test_controls_of_fingerprints_are_stressed_by_probes_that_are_fitted_again(world, capsys):
    connection, release = world
    attribution.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"]))
    wanted = ("reader-dc", "reader-ac", "pca-64")
    controls.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=wanted))
    stress.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=wanted))
    rows, other = (slice_of(release, name, "invented", "ur", "165-way") for name in ("agent500", "math100"))
    folds = np.tile(rows.prompt_folds, len(rows.sources))
    layers = RosterRun(connection, release, "165-way").fold_layers("reader-dc/invented/ur", "again")
    folder = artifact_folder("reader-dc", "invented", "ur", "165-way", 25)
    short, elsewhere = np.load(folder / "log_posteriors.t64.npy"), np.load(folder / "math100.npy")
    for fold, layer in layers.items():
        whole, cut, math = (part.astype(np.float32)[:, :3] for part in (
            rows.load(layer), rows.load(layer, "t64"), other.load(layer)))  # fmt: skip
        probe = fit_probe(whole[folds != fold], rows.labels[folds != fold], len(rows.sources))
        np.testing.assert_allclose(short[folds == fold], probe.log_posterior(cut[folds == fold]), atol=1e-4)
        np.testing.assert_allclose(elsewhere[fold], probe.log_posterior(math), atol=1e-4)
    for method in wanted:
        for condition in ("t128", "t64", "t32"):
            curve = metric_curve(connection, f"{method}/invented/ur", "165-way", "agent500", condition)
            assert len(curve) == 2, (method, condition)
        assert len(metric_curve(connection, f"{method}/invented/ur", "165-way", "math100")) == 3

    (folder / "log_posteriors.npy").unlink()
    stress.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("reader-dc",)))
    assert "its evaluation is not on this machine" in capsys.readouterr().out
    store = FingerprintStore(StoreKey("agent500", "invented", "ur")).path / "shards.jsonl"
    store.write_text("".join(line for line in store.open() if '"full"' in line))
    (FingerprintStore(StoreKey("math100", "invented", "ur")).path / "shards.jsonl").unlink()
    again = artifact_folder("pca-64", "invented", "ur", "165-way", 25) / "math100.npy"
    before = again.stat().st_mtime_ns
    stress.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("pca-64",)))
    assert again.stat().st_mtime_ns == before, "nothing is here to score"


def test_stage_says_what_has_to_run_first(world, capsys):
    connection, release = world
    asked = EvaluateOptions("invented", ["ur"], ["165-way"])
    with pytest.raises(AtlasError, match="jobs evaluate --proxy invented --view ur --roster 165-way"):
        stress.run(connection, release, asked)
    attribution.run(connection, release, asked)
    (FingerprintStore(StoreKey("math100", "invented", "ur")).path / "shards.jsonl").unlink()
    stress.run(connection, release, asked)
    assert "jobs extract --benchmark math100 --roster 165-way --proxy invented" in capsys.readouterr().out
    assert metric_curve(connection, "reader-paper/invented/ur", "165-way", "math100").empty

    kept = artifact_folder("reader-paper", "invented", "ur", "165-way", 25) / "log_posteriors.npy"
    np.save(kept, np.load(kept)[:, ::-1])
    with pytest.raises(AtlasError, match="Evaluate again"):
        stress.run(connection, release, asked)
    np.save(kept, np.load(kept)[:, ::-1])

    journal = FingerprintStore(StoreKey("agent500", "invented", "ur")).path / "shards.jsonl"
    journal.write_text("".join(line for line in journal.open() if '"full"' in line))
    with pytest.raises(AtlasError, match=r"jobs extract --benchmark agent500 .* and: .* --benchmark math100"):
        stress.run(connection, release, asked)


def test_what_other_probes_said_of_conditions_does_not_stay(world):
    connection, release = world
    asked = EvaluateOptions("invented", ["ur"], ["165-way"])
    attribution.run(connection, release, asked)
    stress.run(connection, release, asked)
    folder = artifact_folder("reader-paper", "invented", "ur", "165-way", 25)
    conditions = [folder / f"log_posteriors.{length}.npy" for length in ("t128", "t64", "t32")]
    conditions.append(folder / "math100.npy")
    attribution.run(connection, release, asked)
    assert all(path.exists() for path in conditions), "the same probes once more"

    # What these probes have said stays, also where the fingerprints have made room for something else.
    journal = FingerprintStore(StoreKey("agent500", "invented", "ur")).path / "shards.jsonl"
    journal.write_text("".join(line for line in journal.open() if '"t64"' not in line))
    stress.run(connection, release, asked)
    assert all(path.exists() for path in conditions)

    def stored():
        told = connection.execute("SELECT DISTINCT benchmark, condition FROM attribution_metrics").fetchall()
        return {*told} - {("agent500", "clean")}

    assert {("agent500", "t64"), ("math100", "clean")} <= stored()
    stress_again = {"full": 2.0, "t128": 1.5, "t64": 0.8, "t32": 0.1}
    write_store(release, "agent500", stress_again, seed=2)
    attribution.run(connection, release, asked)
    assert not any(path.exists() for path in conditions) and not stored(), "other probes"


def test_a_layer_scan_is_of_the_present_fingerprints(world, capsys):
    connection, release = world
    asked = EvaluateOptions("invented", ["ur"], ["165-way"])

    def scanned():
        capsys.readouterr()
        attribution.run(connection, release, asked)
        return "Layer scan" in capsys.readouterr().err

    assert [scanned(), scanned()] == [True, False]
    write_store(release, "agent500", {"full": 2.0}, span="prefix-count", seed=2)
    with pytest.raises(AtlasError, match="no layer scan of the present fingerprints"):
        enrolment_of(release, "invented", "ur", "165-way", method="reader-paper")
    assert scanned()
    assert len(enrolment_of(release, "invented", "ur", "165-way", method="reader-paper").heads) == 5


def test_fingerprints_of_another_release_are_refused_and_a_part_of_this_one_is_not(world, tmp_path):
    connection, release = world
    for roster, limit in (("50-way", None), ("165-way", 10)):
        attribution.run(connection, release, EvaluateOptions("invented", ["ur"], [roster], limit=limit))
    other = Release(fake_release(tmp_path / "other", prompts=25, seed=1))
    store = FingerprintStore(StoreKey("agent500", "invented", "ur"))
    refused = rf"{store.path} were read from other records than those of agent500 in {other.root}.*jobs extract"
    with pytest.raises(AtlasError, match=refused):
        attribution.run(connection, other, EvaluateOptions("invented", ["ur"], ["165-way"]))
    rows = slice_of(other, "agent500", "invented", "ur", "50-way")
    with pytest.raises(AtlasError, match=refused):
        rows.load(1)
    with pytest.raises(AtlasError, match=refused):
        chart_of(connection, Texts(other), "reader-paper", "invented", "ur", "165-way", "agent500", "1")
    chart = chart_of(connection, Texts(release), "reader-paper", "invented", "ur", "165-way", "agent500", "1")
    assert chart.features().shape == (6 * 25, 6)


def test_the_release_is_hashed_once_a_process(world, monkeypatch):
    _, release = world
    rows = slice_of(release, "agent500", "invented", "ur", "165-way")
    rows.load(1)
    monkeypatch.setattr(Release, "records", None)
    rows.load(2)
    slice_of(Release(release.root), "agent500", "invented", "ur", "50-way").load(1)

"""Relationships: features against loops, readouts and intervals by hand and against published files, and the job."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.svm import SVC

from backend.evaluations.relationships import (
    READER_READOUTS,
    PairSplit,
    aligned_cosines,
    baseline_contrasts,
    compare,
    component_contrasts,
    read_pairs,
    summarise,
    task_of,
)
from backend.extraction import BENCH_A
from backend.fingerprints import FingerprintStore, StoreKey, cache_folder
from backend.methods.baselines import MATCHERS, match_rates
from backend.proxies.reader import Readout
from backend.statistics import holm
from jobs.__main__ import main as run_job
from tests.fake_release import fake_release
from tests.tiny_models import save_tiny
from tests.twins import cosine_table

TEST_KEY = ["subject", "reference", "protocol", "measure"]
SPLITS = [PairSplit(n, np.arange(0, 30), np.arange(30, 40)) for n in (0, 1)]


def test_cosines_equal_a_loop_and_states_without_change_count_as_zero():
    rng = np.random.default_rng(3)
    fingerprints = rng.normal(size=(4, 5, 12)).astype(np.float16)
    fingerprints[1, 2, 6:] = 0  # a response of one token has no AC
    fingerprints[2, :, 6:] = 0
    found, expected = aligned_cosines(fingerprints), cosine_table(fingerprints)
    assert set(found) == set(expected) == {name for names in READER_READOUTS.values() for name in names}
    for name, table in expected.items():
        np.testing.assert_allclose(found[name], table, rtol=1e-9, atol=1e-12)
    assert found["ac"][1, 1] == pytest.approx(0.8)
    assert found["ac"][2].tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="2 \\* d"):
        aligned_cosines(fingerprints[:, :, :11])


@pytest.mark.proxy
@pytest.mark.release
def test_cosines_of_real_responses_equal_a_loop(release, smollm2):
    records = release.bench_records()
    wanted = ["microsoft/phi-2", "google/gemma-2b", records.sources[0]]
    prompts = len(records.prompt_ids)
    traces = [records.traces[records.sources.index(m) * prompts + p] for m in wanted for p in range(3)]
    read = smollm2.read(smollm2.encode(traces, "ur", max_tokens=192), [12], Readout())
    fingerprints = read[12, "full"].reshape(3, 3, -1)
    found, expected = aligned_cosines(fingerprints), cosine_table(fingerprints)
    for name, table in expected.items():
        np.testing.assert_allclose(found[name], table, rtol=1e-7, atol=1e-9)
    assert 0.3 < found["dc"][0, 1] < 1
    assert abs(found["ac"][0, 1]) < found["dc"][0, 1]


def test_readout_by_hand_in_one_split():
    rng = np.random.default_rng(5)
    related = np.arange(40) % 2 == 0
    features = rng.normal(size=(40, 2)) * [1, 50] + related[:, None] * [1.0, 20.0] + [3, -400]
    reading = read_pairs(features, related, SPLITS)
    train, test = features[:30], features[30:]
    scaled = (train - train.mean(axis=0)) / train.std(axis=0)
    svm = SVC(kernel="linear", C=1).fit(scaled, related[:30])
    decision = svm.decision_function((test - train.mean(axis=0)) / train.std(axis=0))
    np.testing.assert_allclose(reading.decision[30:], decision)
    assert np.isnan(reading.decision[:30]).all()
    truth, said = related[30:], decision > 0
    hits = (truth & said).sum()
    pairs = [(p > n) + (p == n) / 2 for p in decision[truth] for n in decision[~truth]]
    expected = {
        "accuracy": (truth == said).mean(),
        "precision": hits / said.sum(),
        "recall": hits / truth.sum(),
        "f1": 2 * hits / (said.sum() + truth.sum()),
        "auc": np.mean(pairs),
    }
    split = reading.metrics[reading.metrics["split"] == 1].set_index("metric")
    summary = reading.metrics[reading.metrics["split"].isna()].set_index("metric")
    for metric, value in expected.items():
        assert split.loc[metric, "value"] == pytest.approx(value), metric
        assert summary.loc[metric, ["value", "std", "low", "high"]].tolist() == pytest.approx([value, 0, value, value])
    assert split["n"].unique() == [10]
    assert summary["n"].unique() == [2]


def test_a_readout_that_names_nobody_has_precision_zero():
    related = np.array([True, False] * 20)
    features = np.zeros((40, 1))
    reading = read_pairs(features, related, SPLITS[:1])
    values = reading.metrics[reading.metrics["split"] == 0].set_index("metric")["value"]
    assert values["auc"] == 0.5
    assert values["precision"] in (0.0, 0.5)
    with pytest.raises(ValueError, match="a split"):
        read_pairs(features, related, [])


def test_contrasts_are_named_by_reader_and_readout_and_need_the_same_splits():
    rows = [
        {"reader": reader, "protocol": protocol, "readout": readout, "metric": metric, "split": split, "value": value}
        for reader, readout, value in (
            ("a", "dc", 0.2),
            ("a", "ac", 0.6),
            ("a", "dc-ac", 0.7),
            ("phylolm", "match", 0.5),
        )
        for protocol in ("pair", "model", "family")
        for metric in ("accuracy", "precision", "f1", "auc")
        for split in range(6)
    ]
    read = pd.DataFrame(rows)
    assert component_contrasts(read) == [("a:dc-ac", "a:dc"), ("a:dc-ac", "a:ac")]
    assert baseline_contrasts(read) == [("a:dc-ac", "phylolm:match")]
    assert baseline_contrasts(read[read["reader"] == "a"]) == []
    found = compare(read, component_contrasts(read))
    assert len(found) == 2 * 2 * 3  # contrasts, strict protocols, metrics
    assert set(found["measure"]) == {"accuracy", "f1", "auc"}
    assert set(found["protocol"]) == {"model", "family"}
    first = found.iloc[0]
    assert (first["subject"], first["reference"], first["n"]) == ("a:dc-ac", "a:dc", 6)
    assert first[["difference", "low", "high"]].tolist() == pytest.approx([0.5, 0.5, 0.5])
    assert first["p_value"] == pytest.approx(2 / 2**6, abs=0.004)  # all signs equal, either way
    np.testing.assert_allclose(found["p_holm"], holm(found["p_value"]))
    assert compare(read, []).empty
    torn = read.drop(read.index[(read["reader"] == "phylolm") & (read["split"] == 5)])
    with pytest.raises(ValueError, match="same splits"):
        compare(torn, baseline_contrasts(torn))


def published_splits(root: Path) -> pd.DataFrame:
    """Metrics of single splits in the release's strict files."""
    names = {"dct_dc_fullrank": "dc", "dct_ac_fullrank": "ac", "dct_dc_ac_fullrank": "dc-ac"}
    rows = []
    for protocol in ("model", "family"):
        for path in sorted((root / "results" / "bench_a" / "disjoint" / protocol).glob("*.json")):
            for config, held in json.loads(path.read_text("utf-8"))["configs"].items():
                rows += [
                    {"reader": path.stem, "protocol": protocol, "readout": names[config], "metric": metric}
                    | {"split": split["split_id"], "value": split[metric]}
                    for split in held["splits"]
                    for metric in ("accuracy", "precision", "recall", "f1", "auc")
                ]
    return pd.DataFrame(rows)


def published_tests(root: Path, group: str) -> pd.DataFrame:
    """The release's paired comparisons, indexed as ours are named."""
    path = root / "results" / "bench_a" / "disjoint" / "statistics_primary.json"
    names = {"dct_dc_fullrank": "dc", "dct_ac_fullrank": "ac", "dct_dc_ac_fullrank": "dc-ac"}
    rows = []
    for entry in json.loads(path.read_text("utf-8"))["bench_a"][group].values():
        proxy, protocol = entry["proxy_tag"], entry["split_type"].split("_")[0]
        for pair in entry["comparisons"]:
            sides = [
                f"{proxy}:{names[m]}" if m in names else f"{m}:match" for m in (pair["method_a"], pair["method_b"])
            ]
            for metric, test in pair["metrics"].items():
                low, high = test["delta_split_bootstrap_95ci"]
                rows.append(
                    {"subject": sides[0], "reference": sides[1], "protocol": protocol, "measure": metric, "low": low}
                    | {"high": high, "difference": test["delta_a_minus_b"]}
                    | {"p_value": test["paired_split_signflip_p_raw"], "p_holm": test["paired_split_signflip_p_holm"]}
                )
    return pd.DataFrame(rows).set_index(TEST_KEY)


def assert_same_tests(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    ours = found.set_index(TEST_KEY)
    assert set(ours.index) == set(expected.index)
    ours = ours.loc[expected.index]
    np.testing.assert_allclose(ours["difference"], expected["difference"], atol=1e-12)
    np.testing.assert_allclose(ours["low"], expected["low"], atol=0.004)
    np.testing.assert_allclose(ours["high"], expected["high"], atol=0.004)
    # 50,000 flips: the standard error of a p value is at most 0.0023, and two such values are compared.
    np.testing.assert_allclose(ours["p_value"], expected["p_value"], atol=0.01)
    small = expected["p_value"] < 0.01
    np.testing.assert_allclose(ours["p_value"][small], expected["p_value"][small], atol=0.0016)
    clear = (expected["p_holm"] - 0.05).abs() > 0.01  # one corrected p value of the release, .054, is .046 in our draws
    assert ((ours["p_holm"] < 0.05) == (expected["p_holm"] < 0.05))[clear].all()


@pytest.mark.release
def test_published_tests_come_out_of_the_published_splits(release):
    if not (release.root / "results").is_dir():
        pytest.skip("the release has no result files")
    read = published_splits(release.root)
    components = compare(read, component_contrasts(read))
    assert len(components) == 48
    assert_same_tests(components, published_tests(release.root, "proxies"))

    task = task_of(release)
    rates = match_rates([t.response for t in task.records.traces], task.models, MATCHERS["phylolm"])
    feature = rates[tuple(task.places["disjoint_union"].T)][:, None]
    related = task.pairs["disjoint_union"]["related"].to_numpy(bool)
    parts = [read]
    for protocol in ("model", "family"):
        metrics = read_pairs(feature, related, task.splits[protocol]).metrics.dropna(subset="split")
        parts.append(metrics.assign(reader="phylolm", protocol=protocol, readout="match")[list(read.columns)])
    both = pd.concat(parts, ignore_index=True)
    found = compare(both, baseline_contrasts(both))
    assert len(found) == 24
    assert_same_tests(found, published_tests(release.root, "reader_vs_cached_baselines"))
    gemma = found.set_index(TEST_KEY).loc[("gemma4_12b:dc-ac", "phylolm:match", "family", "accuracy")]
    assert gemma["difference"] == pytest.approx(-0.082, abs=5e-4)
    assert gemma["p_holm"] == pytest.approx(0.012, abs=0.006)


@pytest.mark.release
def test_published_summaries_come_out_of_the_published_splits(release):
    folder = release.root / "results" / "bench_a" / "disjoint" / "family"
    if not folder.is_dir():
        pytest.skip("the release has no result files")
    read = published_splits(release.root)
    for path in sorted(folder.glob("*.json")):
        held = json.loads(path.read_text("utf-8"))["configs"]["dct_dc_ac_fullrank"]["summary"]
        part = read[(read["reader"] == path.stem) & (read["protocol"] == "family") & (read["readout"] == "dc-ac")]
        for row in summarise(part).itertuples():
            assert row.value == pytest.approx(held[f"{row.metric}_mean"], abs=1e-6)
            assert row.std == pytest.approx(held[f"{row.metric}_std"], abs=1e-6)
            np.testing.assert_allclose((row.low, row.high), held[f"{row.metric}_bootstrap_95ci"], atol=0.005)


@pytest.mark.release
def test_published_readouts_come_out_of_the_published_scores_of_every_pair(release):
    path = release.root / "results" / "bench_a" / "reader" / "qwen35_9b_prompt_response.json"
    if not path.exists():
        pytest.skip("the release has no result files")
    held = json.loads(path.read_text("utf-8"))["pair_metrics"]["cosine"]["configs"]["dct_dc_ac_fullrank"]
    task = task_of(release)
    scores = {pair["pair_id"]: (pair["dc_score"], pair["ac_score"]) for pair in held["pair_scores"]}
    pairs = task.pairs["pair_disjoint"]
    features = np.array([scores[pair] for pair in pairs["pair_id"]])
    reading = read_pairs(features, pairs["related"].to_numpy(bool), task.splits["pair"])
    metrics = reading.metrics.dropna(subset="split").pivot(index="split", columns="metric", values="value")
    for split in held["splits"]:
        for metric in ("accuracy", "precision", "recall", "f1", "auc"):
            assert metrics.loc[split["split_id"], metric] == pytest.approx(split[metric], abs=1e-9), (split, metric)
    assert np.isfinite(reading.decision).all()


@pytest.fixture
def job(tmp_path, monkeypatch):
    """``python -m jobs VERB`` on an invented release with a tiny decoder and a cache of its own."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    release = fake_release(tmp_path / "release", bench_models=8, bench_prompts=12)
    proxy = save_tiny(tmp_path / "tiny")

    def run(verb: str, *extra: str) -> int:
        named = {"extract": ["--benchmark", BENCH_A, "--proxy"], "relate": ["--encoder", str(proxy), "--proxy"]}[verb]
        return run_job([verb, "--release", str(release), *named, str(proxy), *extra])

    return run


def rows_of(sql: str) -> pd.DataFrame:
    with duckdb.connect(cache_folder() / "atlas-work.duckdb") as work:
        return work.execute(sql).df()


def test_job_without_a_proxy_writes_models_pairs_features_and_metrics(job, capsys):
    assert job("relate", "--method", "mpt,phylolm") == 0
    assert "phylolm" in capsys.readouterr().out
    models = rows_of("SELECT * FROM relationship_models ORDER BY model")
    assert len(models) == 8
    assert models["empty_responses"].tolist().count(12) == 1
    pairs = rows_of(
        "SELECT pair_set, count(*) AS n, sum(related::INTEGER) AS related FROM relationship_pairs GROUP BY 1"
    )
    assert sorted(pairs["pair_set"]) == ["disjoint_union", "pair_disjoint"]
    assert (pairs["n"] == 2 * pairs["related"]).all()
    features = rows_of("SELECT * FROM relationship_features JOIN relationship_pairs USING (pair_set, pair_id)")
    assert set(features["feature"]) == {"match", "decision", "decision-model", "decision-family"}
    assert set(features.loc[features["feature"] == "decision", "pair_set"]) == {"pair_disjoint"}
    assert features.loc[features["feature"] == "match", "value"].between(0, 1).all()
    metrics = rows_of("SELECT * FROM relationship_metrics WHERE reader = 'mpt' AND split IS NULL")
    assert len(metrics) == 3 * 5
    assert metrics[["std", "low", "high"]].notna().all(axis=None)
    assert set(rows_of("SELECT stage FROM builds")["stage"]) == {"relate"}
    count = rows_of("SELECT count(*) AS n FROM relationship_metrics")["n"][0]
    assert job("relate", "--method", "mpt,phylolm") == 0
    assert rows_of("SELECT count(*) AS n FROM relationship_metrics")["n"][0] == count


def test_job_refuses_fingerprints_of_another_bench_a(job, tmp_path, capsys):
    assert job("extract", "--view", "ur", "--layers", "2") == 0
    other = fake_release(tmp_path / "other", bench_models=8, bench_prompts=12, seed=1)
    asked = ("--method", "reader", "--view", "ur", "--layer", "2")
    assert job("relate", *asked, "--release", str(other)) == 2
    assert f"read from other records than those of bench-a in {other}" in capsys.readouterr().err
    assert job("relate", *asked) == 0


def test_job_reads_fingerprints_of_bench_a_and_compares_readouts(job, capsys):
    assert job("extract", "--view", "ur,r", "--layers", "2,4") == 0
    said = capsys.readouterr().out
    assert "bench-a, 8 models, tiny, view ur: 96 of 96 records to read at blocks 2,4 (full)" in said
    assert job("extract", "--view", "ur,r", "--layers", "2,4") == 0
    assert "everything is on disk already" in capsys.readouterr().out
    fingerprints = FingerprintStore(StoreKey(BENCH_A, "tiny", "ur")).load(2).reshape(8, 12, 64)
    assert job("relate", "--layer", "2", "--view", "ur") == 0
    readers = {"mpt", "phylolm", "reader-paper/tiny/ur", "dna/tiny/ur"}
    metrics = rows_of("SELECT * FROM relationship_metrics")
    assert set(metrics["reader"]) == readers
    assert set(metrics.loc[metrics["reader"] == "reader-paper/tiny/ur", "readout"]) == set(READER_READOUTS)
    held = rows_of(
        "SELECT * FROM relationship_features JOIN relationship_pairs USING (pair_set, pair_id) "
        "WHERE reader = 'reader-paper/tiny/ur' AND feature = 'ac' ORDER BY pair_set, pair_id"
    )
    models = rows_of("SELECT model FROM relationship_models")["model"].tolist()
    names = [f"Org{i // 2}/{'parent' if i % 2 == 0 else 'child'}{i // 2}" for i in range(8)]
    assert sorted(models) == sorted(names)
    table = cosine_table(fingerprints)["ac"]
    expected = [table[names.index(a), names.index(b)] for a, b in zip(held["model_a"], held["model_b"], strict=True)]
    np.testing.assert_allclose(held["value"], expected, rtol=1e-9)
    tests = rows_of("SELECT * FROM comparisons")
    assert tests.groupby("hypotheses").size().to_dict() == {
        "relationships/baselines/family": 3,
        "relationships/baselines/model": 3,
        "relationships/components/family": 6,
        "relationships/components/model": 6,
    }
    assert (tests["p_holm"] >= tests["p_value"]).all()
    builds = rows_of("SELECT details FROM builds WHERE proxy_hash IS NOT NULL AND stage = 'relate'")["details"]
    held = [json.loads(text) for text in builds]
    assert [(build.get("layer"), build.get("layer_from")) for build in held] == [(2, "asked"), (None, None)]


def test_static_dna_compares_embeddings_by_the_encoder_s_own_recipe(job):
    assert job("relate", "--method", "dna", "--view", "r") == 0
    (path,) = (cache_folder() / "embeddings").rglob("embeddings.npy")
    held = np.load(path).astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(held, axis=1), 1, atol=2e-3)
    matrix = np.random.default_rng(42).standard_normal((12 * held.shape[1], 128))
    vectors = [model.ravel() @ matrix / np.sqrt(128) for model in held.reshape(8, 12, -1)]
    found = rows_of(
        "SELECT * FROM relationship_features JOIN relationship_pairs USING (pair_set, pair_id) "
        "WHERE reader = 'dna/tiny/r' AND feature = 'distance'"
    )
    names = [f"Org{i // 2}/{'parent' if i % 2 == 0 else 'child'}{i // 2}" for i in range(8)]
    places = [(names.index(a), names.index(b)) for a, b in zip(found["model_a"], found["model_b"], strict=True)]
    expected = [np.linalg.norm(vectors[a] - vectors[b]) for a, b in places]
    np.testing.assert_allclose(found["value"], expected, rtol=1e-3)
    stamp = path.stat().st_mtime_ns
    assert job("relate", "--method", "dna", "--view", "r") == 0
    assert path.stat().st_mtime_ns == stamp, "what is kept is not embedded again"


def test_job_on_leading_prompts_and_what_it_refuses(job, capsys):
    assert job("extract", "--limit", "5", "--layers", "3", "--view", "r") == 0
    capsys.readouterr()
    assert job("relate", "--method", "reader", "--view", "r", "--layer", "3", "--limit", "5") == 0
    for extra, said in (
        (("--method", "reader", "--view", "r", "--layer", "3"), "extract --benchmark bench-a --proxy tiny --view r"),
        (("--method", "reader", "--view", "r"), "--layer"),
        (("--method", "reader", "--layer", "x"), "neither 'modal' nor"),
        (("--method", "guess"), "Choose from mpt, phylolm, reader, dna"),
        (("--method", "mpt", "--limit", "0"), "leaves no prompt"),
    ):
        assert job("relate", *extra) == 2, extra
        assert said in capsys.readouterr().err

"""Holm by hand, the vectorised resampling against one replicate at a time, and the comparisons of end points."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from backend.corpus.release import Release
from backend.corpus.roster_rows import write_release_sources
from backend.evaluations.artifacts import artifact_folder, keep
from backend.evaluations.attribution import accuracy_intervals, cluster_hits, compare_endpoints
from backend.evaluations.stages import EvaluateOptions, statistics
from backend.evaluations.stages.roster_run import MeasuredReader
from backend.protocol import fold_of_prompts
from backend.statistics import cluster_bootstrap, holm, sign_flip_p_values
from backend.store.database import open_work
from backend.store.writers import replace_rows, write_reader
from tests.fake_release import fake_release
from tests.twins import bootstrap, clusters, sign_flips


def test_holm_by_hand():
    # Sorted .005 .01 .03 .04 by 4 3 2 1: .02 .03 .06 .04, and the last may not fall below the one before it.
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.5, 0.6, 0.01]), [1.0, 1.0, 0.03])
    np.testing.assert_allclose(holm([0.2]), [0.2])
    assert holm([]).shape == (0,)


@pytest.mark.parametrize("wrong", [[0.1, np.nan], [1.2], [-0.1], [[0.1]]])
def test_holm_refuses_what_is_not_a_p_value(wrong):
    with pytest.raises(ValueError, match="p_values"):
        holm(wrong)


def test_bootstrap_equals_one_replicate_at_a_time():
    rng = np.random.default_rng(5)
    sizes = rng.integers(3, 9, size=(7, 2))
    sums = rng.integers(-2, 3, size=(7, 2))
    low, high = cluster_bootstrap(sums, sizes, replicates=300, seed=9)
    for column in range(2):
        stream, slow = np.random.default_rng(9), []
        for _ in range(300):
            top = bottom = 0
            for cluster in stream.integers(0, 7, size=7):
                top += sums[cluster, column]
                bottom += sizes[cluster, column]
            slow.append(top / bottom)
        assert low[column] == pytest.approx(np.quantile(slow, 0.025), abs=1e-12)
        assert high[column] == pytest.approx(np.quantile(slow, 0.975), abs=1e-12)


def test_bootstrap_does_not_depend_on_the_chunk(monkeypatch):
    sums, sizes = np.arange(12.0).reshape(6, 2), np.full((6, 2), 20.0)
    whole = cluster_bootstrap(sums, sizes, replicates=250, seed=1)
    monkeypatch.setattr("backend.statistics.CHUNK", 64)
    np.testing.assert_array_equal(whole, cluster_bootstrap(sums, sizes, replicates=250, seed=1))


def test_cluster_bootstrap_of_single_values_is_an_interval_of_their_mean():
    values = np.random.default_rng(2).normal(0.7, 0.1, size=36)
    (low,), (high,) = cluster_bootstrap(values[:, None], np.ones((36, 1)), replicates=20_000, seed=0)
    error = values.std() / 6
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)
    same = cluster_bootstrap(np.full((3, 1), 0.5), np.ones((3, 1)), replicates=100, seed=0)
    assert [edge.tolist() for edge in same] == [[0.5], [0.5]]


def test_sign_flips_equal_one_flip_at_a_time():
    differences = np.random.default_rng(3).normal(0.3, 1.0, size=(9, 3))
    got = sign_flip_p_values(differences, flips=400, seed=11)
    for column in range(3):
        stream, beyond = np.random.default_rng(11), 0
        observed = abs(differences[:, column].sum())
        for _ in range(400):
            signs = [1 if bit else -1 for bit in stream.integers(0, 2, size=9)]
            flipped = sum(sign * value for sign, value in zip(signs, differences[:, column], strict=True))
            beyond += abs(flipped) >= observed - 1e-9
        assert got[column] == pytest.approx((1 + beyond) / 401)


def test_sign_flips_count_ties_and_never_reach_zero():
    # Every one of the flips is as extreme as no difference at all; two of 2^20 are as extreme as twenty ones.
    got = sign_flip_p_values(np.column_stack([np.zeros(20), np.ones(20), np.r_[0.1, 0.2, -0.3, np.zeros(17)]]), 2_000)
    assert got[0] == 1.0
    assert got[1] == pytest.approx(1 / 2001)
    assert got[2] == 1.0


def test_sign_flips_are_close_to_the_exact_test():
    differences = np.array([3.0, 1.0, 2.0, 2.0, -1.0, 4.0, 1.0, 0.0])
    signs = 1 - 2 * ((np.arange(256)[:, None] >> np.arange(8)) & 1)
    exact = np.mean(np.abs(signs @ differences) >= abs(differences.sum()))
    assert sign_flip_p_values(differences[:, None], seed=0)[0] == pytest.approx(exact, abs=0.004)


def test_the_paper_s_number_of_draws_takes_seconds():
    differences = np.random.default_rng(0).integers(-20, 21, size=(500, 60)).astype(float)
    started = time.perf_counter()
    cluster_bootstrap(differences, np.full_like(differences, 300.0))
    sign_flip_p_values(differences)
    assert time.perf_counter() - started < 20


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="same shape"):
        cluster_bootstrap(np.ones((3, 2)), np.ones((3, 1)))
    with pytest.raises(ValueError, match="clusters"):
        sign_flip_p_values(np.ones(3))
    with pytest.raises(ValueError, match="clusters"):
        cluster_bootstrap(np.empty((0, 2)), np.empty((0, 2)))


SOURCES, PROMPTS = 4, 30


def leaning(strength, seed=0):
    """Log-posteriors that lean towards the truth."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(SOURCES * PROMPTS, SOURCES))
    logits[np.arange(SOURCES * PROMPTS), np.repeat(np.arange(SOURCES), PROMPTS)] += strength
    return logits.astype(np.float32)


@pytest.fixture(scope="module")
def prompt_folds():
    return fold_of_prompts([f"p{i:02d}" for i in range(PROMPTS)])


def test_clusters_are_counted_as_the_slow_version_counts(prompt_folds):
    log_posteriors = leaning(0.7)
    got = cluster_hits(log_posteriors, prompt_folds)
    assert list(got) == [1, 5]  # a fold holds six prompts
    for k, (hits, sizes) in got.items():
        slow_hits, slow_sizes = clusters(log_posteriors, prompt_folds, k)
        assert hits.tolist() == slow_hits
        assert sizes.tolist() == slow_sizes


def test_comparison_of_end_points_equals_the_slow_version(prompt_folds):
    posteriors = {"a": leaning(0.5, 1), "b": leaning(1.5, 2), "c": leaning(0.5, 1)}
    hits = {name: cluster_hits(array, prompt_folds) for name, array in posteriors.items()}
    frame = compare_endpoints(hits, [("b", "a"), ("c", "a")], replicates=200, flips=300, seed=3)
    assert frame["measure"].tolist() == ["accuracy@1", "accuracy@5"] * 2
    assert set(frame["n"]) == {5 * SOURCES}
    np.testing.assert_allclose(frame["p_holm"], holm(frame["p_value"]))
    for i, (subject, k) in enumerate([("b", 1), ("b", 5), ("c", 1), ("c", 5)]):
        subject_hits, sizes = clusters(posteriors[subject], prompt_folds, k)
        reference_hits, _ = clusters(posteriors["a"], prompt_folds, k)
        gap = np.subtract(subject_hits, reference_hits)
        assert frame["difference"][i] == pytest.approx(gap.sum() / np.sum(sizes))
        np.testing.assert_allclose((frame["low"][i], frame["high"][i]), bootstrap(gap, sizes, 200, seed=3))
        assert frame["p_value"][i] == pytest.approx(sign_flips(gap, 300, seed=3))
    assert frame["difference"][2:].tolist() == [0.0, 0.0]
    assert frame["p_value"][2:].tolist() == [1.0, 1.0]
    assert frame["p_holm"][0] < 0.05
    assert compare_endpoints(hits, []).empty


def test_intervals_of_accuracies_equal_the_slow_version(prompt_folds):
    log_posteriors = leaning(0.7)
    frame = accuracy_intervals(cluster_hits(log_posteriors, prompt_folds), replicates=150, seed=8)
    for k in (1, 5):
        hits, sizes = clusters(log_posteriors, prompt_folds, k)
        for metric, end in zip(("accuracy_low", "accuracy_high"), bootstrap(hits, sizes, 150, seed=8), strict=True):
            row = frame[(frame["k"] == k) & (frame["metric"] == metric)]
            assert row["value"].tolist() == pytest.approx([end])
            assert row["n"].tolist() == [20]


def kept_reader(method, proxy=None, view=None):
    name = "/".join(part for part in (method, proxy, view) if part)
    return MeasuredReader(name, method, proxy, view, Path(name))


def test_tables_of_comparisons():
    held = [
        kept_reader("dct-q2", "small", "ur"),
        kept_reader("dct-q4", "small", "ur"),
        kept_reader("dna", "encoder", "r"),
        kept_reader("fused"),
        kept_reader("lda", "small", "ur"),
        kept_reader("llmmap", "small", "ur"),
        kept_reader("ngram-word"),
        kept_reader("reader-dc", "small", "ur"),
        kept_reader("reader-paper", "small", "r"),
        kept_reader("reader-paper", "small", "ur"),
    ]
    ur, r = "reader-paper/small/ur", "reader-paper/small/r"
    chosen, fixed = (20, 20, 21, 20, 20), (18,) * 5
    blocks = {reader.reader: () for reader in held} | {
        **{ur: chosen, r: (19,) * 5, "reader-dc/small/ur": chosen},
        **{"dct-q2/small/ur": fixed, "dct-q4/small/ur": fixed},
    }
    assert statistics.comparison_tables(held, "100-way", blocks) == {
        "endpoints/100-way": [
            (ur, r),
            ("dna/encoder/r", r),
            ("llmmap/small/ur", r),  # a baseline is one, whatever it reads
            ("ngram-word", r),
            ("dna/encoder/r", ur),
            ("llmmap/small/ur", ur),
            ("ngram-word", ur),
            ("llmmap/small/ur", "dna/encoder/r"),
            ("ngram-word", "dna/encoder/r"),
            ("ngram-word", "llmmap/small/ur"),
        ],
        "ngrams/100-way": [("fused", "ngram-word"), ("lda/small/ur", "ngram-word")],
        "temporal/100-way/small/ur": [("dct-q4/small/ur", "dct-q2/small/ur")],
        "controls/100-way/small/ur": [("reader-dc/small/ur", ur)],
    }
    assert statistics.comparison_tables(held[:1], "100-way", blocks) == {}


def test_a_control_is_compared_at_its_own_block_or_not_at_all():
    paper, two, four, dc = (
        kept_reader(name, "small", "ur") for name in ("reader-paper", "dct-q2", "dct-q4", "reader-dc")
    )

    def reference(subject, known, **at):
        names = {"paper": paper, "two": two, "four": four, "dc": dc}
        blocks = {names[name].reader: (block,) * 5 for name, block in at.items()}
        return statistics.matched(subject, {reader.reader for reader in known}, blocks)

    assert reference(four, [paper, two, four], paper=20, two=18, four=18) == two.reader
    assert reference(four, [paper, two, four], paper=20, two=20, four=20) == two.reader
    # The paper's readout is two modes too, where its folds chose the block.
    assert reference(four, [paper, two, four], paper=18, two=20, four=18) == paper.reader
    assert reference(four, [paper, four], paper=20, four=18) is None
    assert reference(dc, [paper, two, dc], paper=20, two=18, dc=18) is None
    blocks = {paper.reader: (20,) * 5, four.reader: (18,) * 5, dc.reader: (20,) * 5}
    assert statistics.unmatched([paper, four, dc], blocks) == [four]
    said = statistics.missing_reference(four, "100-way", blocks[four.reader])
    assert "dct-q4/small/ur stands at block 18" in said
    assert said.endswith("--proxy small --view ur --roster 100-way --method dct-q2 --layers 18")


def test_tables_that_a_run_does_not_write_again_are_dropped():
    held = [kept_reader("dct-q4", "small", "ur")]
    stored = [
        "controls/100-way/small/ur",
        "controls/100-way/other/ur",
        "temporal/100-way/small/ur",
        "published/temporal",
    ]
    kept = {"temporal/100-way/small/ur": [("a", "b")]}
    assert statistics.stale_tables(stored, kept, held, "100-way") == ["controls/100-way/small/ur"]


def test_stage_compares_what_was_kept_and_correlates_published_accuracies(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    release = Release(fake_release(tmp_path / "release", sources=12, prompts=PROMPTS))
    scores = {"invented": leaning(0.5, 1), "other": leaning(2.0, 2), "gone": None}
    with open_work(tmp_path / "work.duckdb") as connection:
        write_release_sources(connection, release)

        def enter(proxy, value, origin):
            reader = write_reader(connection, method="reader-paper", name=proxy, proxy=proxy, view="ur", origin=origin)
            row = {"k": 1, "reduction": "pooled", "metric": "accuracy", "value": value, "n": 9}
            for roster in ("50-way", "100-way"):
                key = {"reader": reader, "roster": roster, "benchmark": "agent500", "condition": "clean"}
                replace_rows(connection, "attribution_metrics", pd.DataFrame([row]), key, "build")

        for proxy, array in scores.items():
            enter(proxy, 0.5, "measured")
            if array is not None:
                keep(artifact_folder("reader-paper", proxy, "ur", "50-way", PROMPTS) / "log_posteriors.npy", array)
        for proxy, value in {"qwen35_9b": 0.9, "gemma4_12b": 0.8, "qwen3_8b": 0.85, "llama31_8b_instruct": 0.6}.items():
            enter(proxy, value, "published")
        statistics.run(connection, release, EvaluateOptions("invented", ["ur"], ["50-way", "100-way"]))

        rows = connection.execute(
            "SELECT hypotheses, subject, reference, measure, difference, n FROM comparisons ORDER BY measure"
        ).fetchall()
        names = ("endpoints/50-way", "reader-paper/other/ur", "reader-paper/invented/ur")
        assert [row[:4] for row in rows] == [(*names, "accuracy@1"), (*names, "accuracy@5")]
        folds = fold_of_prompts(release.prompts("agent500")["sample_id"].tolist())
        gaps = [np.sum(clusters(scores["other"], folds, k)[0]) for k in (1, 5)]
        gaps = np.subtract(gaps, [np.sum(clusters(scores["invented"], folds, k)[0]) for k in (1, 5)])
        sizes = [np.sum(clusters(scores["other"], folds, k)[1]) for k in (1, 5)]
        np.testing.assert_allclose([row[4] for row in rows], gaps / sizes)
        assert connection.execute("SELECT count(*) FROM capability_scores WHERE score > 1").fetchone() == (16,)
        found = connection.execute("SELECT subject, reference, statistic, n FROM correlations ORDER BY ALL").fetchall()
        assert found == [
            (benchmark, "accuracy@1/ur", statistic, 4)
            for benchmark in ("GPQA-Diamond", "MMLU-Pro")
            for statistic in ("pearson", "spearman")
        ]
        printed = capsys.readouterr().out
        assert "reader-paper/gone/ur; they are skipped" in printed
        assert "100-way: no log-posteriors of a reader are here" in printed
        origins = connection.execute("SELECT origin FROM builds WHERE stage = 'statistics' ORDER BY origin").fetchall()
        assert origins == [("measured",), ("measured",), ("published",)]

        # A table that needs a reader whose log-posteriors are elsewhere is not written again without it.
        before = {"subject": "reader-paper/gone/ur", "reference": names[2], "measure": "accuracy@1", "difference": 0.1}
        earlier = pd.DataFrame([{**before, "p_value": 0.2, "p_holm": 0.2, "n": 9, "method": "earlier"}])
        replace_rows(connection, "comparisons", earlier, {"hypotheses": names[0]}, "build")
        statistics.run(connection, release, EvaluateOptions("invented", ["ur"], ["50-way"]))
        left = connection.execute("SELECT subject, method FROM comparisons WHERE hypotheses = ?", [names[0]]).fetchall()
        assert left == [("reader-paper/gone/ur", "earlier")]
        assert "endpoints/50-way: 1 of its comparisons need log-posteriors" in capsys.readouterr().out

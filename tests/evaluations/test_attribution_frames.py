"""Attribution frames against a slow, obvious evaluation, and the leak test."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from backend.evaluations.attribution import attribution_frames, out_of_fold
from backend.methods.probe import fit_probe
from backend.protocol import fold_of_prompts
from tests.twins import decisions

SOURCES, PROMPTS = 6, 50
NAMES = [f"source{i}" for i in range(SOURCES)]
FAMILIES = ["a", "a", "a", "b", "b", "c"]


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(SOURCES), PROMPTS)
    prompt_folds = fold_of_prompts([f"p{i:03d}" for i in range(PROMPTS)])
    features = (rng.normal(size=(SOURCES, 8))[labels] + rng.normal(size=(len(labels), 8)) * 2).astype(np.float32)
    return features, labels, np.tile(prompt_folds, SOURCES), prompt_folds


def test_out_of_fold_scores_come_from_probes_that_never_saw_the_prompt(world):
    features, labels, folds, _ = world
    got, probes = out_of_fold(lambda layer: features * layer, {f: 1 + f % 2 for f in range(5)}, labels, folds, SOURCES)
    for fold in range(5):
        scaled = features * (1 + fold % 2)
        probe = fit_probe(scaled[folds != fold], labels[folds != fold], SOURCES)
        np.testing.assert_allclose(got[folds == fold], probe.log_posterior(scaled[folds == fold]), atol=1e-6)
    assert sorted(probes) == [0, 1, 2, 3, 4]


def test_noise_in_the_test_fold_changes_no_other_score(world):
    features, labels, folds, _ = world
    clean, probes = out_of_fold(lambda _: features, dict.fromkeys(range(5), 1), labels, folds, SOURCES)
    spoiled = features.copy()
    spoiled[folds == 3] = np.random.default_rng(9).normal(size=spoiled[folds == 3].shape) * 100
    _, again = out_of_fold(lambda _: spoiled, dict.fromkeys(range(5), 1), labels, folds, SOURCES)
    np.testing.assert_array_equal(probes[3].weight, again[3].weight)
    np.testing.assert_array_equal(clean[folds == 3], again[3].log_posterior(features[folds == 3]))


def test_frames_equal_the_slow_evaluation(world):
    features, labels, folds, prompt_folds = world
    log_posteriors, _ = out_of_fold(lambda _: features, dict.fromkeys(range(5), 1), labels, folds, SOURCES)
    frames = attribution_frames(log_posteriors, NAMES, FAMILIES, prompt_folds)
    assert sorted(frames.metrics["k"].unique()) == [1, 5, 10]  # a fold holds ten prompts
    metrics = frames.metrics.set_index(["k", "reduction", "metric"]).sort_index()
    for k in (1, 5, 10):
        outcomes = {
            (seed, fold): decisions(log_posteriors, k, seed, prompt_folds, fold)
            for seed in (42, 43, 44)
            for fold in range(5)
        }
        pooled, f1, wrong, kin = [], [], [], []
        for seed in (42, 43, 44):
            truth = np.concatenate([outcomes[seed, fold][0] for fold in range(5)])
            predicted = np.concatenate([outcomes[seed, fold][1] for fold in range(5)])
            pooled.append((truth == predicted).mean())
            f1.append(f1_score(truth, predicted, average="macro", labels=range(SOURCES), zero_division=0))
            wrong.append((truth != predicted).sum())
            kin.append(sum(t != p and FAMILIES[t] == FAMILIES[p] for t, p in zip(truth, predicted, strict=True)))
        by_fold = [np.mean([np.mean(np.equal(*outcomes[seed, fold])) for seed in (42, 43, 44)]) for fold in range(5)]

        def summary(reduction, metric, k=k):
            rows = metrics.loc[(k, reduction, metric)]
            return rows[rows["seed"].isna() & rows["fold"].isna()].iloc[0]

        assert summary("pooled", "accuracy")["value"] == pytest.approx(np.mean(pooled))
        assert summary("pooled", "accuracy")["std"] == pytest.approx(np.std(pooled))
        assert summary("pooled", "macro_f1")["value"] == pytest.approx(np.mean(f1))
        assert summary("fold", "accuracy")["value"] == pytest.approx(np.mean(by_fold))
        assert summary("fold", "accuracy")["std"] == pytest.approx(np.std(by_fold))
        assert summary("pooled", "errors")["value"] == pytest.approx(np.mean(wrong))
        assert summary("pooled", "errors_within_family")["value"] == pytest.approx(np.mean(kin))


def test_every_fold_counts_its_own_groups():
    prompt_folds = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4])
    rng = np.random.default_rng(0)
    scores = np.log(rng.dirichlet(np.ones(SOURCES), SOURCES * len(prompt_folds))).astype(np.float32)
    metrics = attribution_frames(scores, NAMES, FAMILIES, prompt_folds).metrics
    held = metrics[(metrics["k"] == 1) & (metrics["metric"] == "accuracy") & (metrics["reduction"] == "fold")]
    groups = held.dropna(subset="fold").set_index("fold")["n"]
    assert groups.to_dict() == {fold: SOURCES * (prompt_folds == fold).sum() for fold in range(5)}
    assert held.loc[held["fold"].isna(), "n"].tolist() == [groups.sum()]


def test_confusion_and_source_table_agree_with_the_metrics(world):
    features, labels, folds, prompt_folds = world
    log_posteriors, _ = out_of_fold(lambda _: features, dict.fromkeys(range(5), 1), labels, folds, SOURCES)
    frames = attribution_frames(log_posteriors, NAMES, FAMILIES, prompt_folds)
    for k, part in frames.confusion.groupby("k"):
        hits = part.loc[part["truth"] == part["predicted"], "count"].sum()
        rows = frames.metrics[(frames.metrics["k"] == k) & (frames.metrics["metric"] == "accuracy")]
        pooled = rows[(rows["reduction"] == "pooled") & rows["seed"].isna()]["value"].iloc[0]
        assert hits / part["count"].sum() == pytest.approx(pooled)
        table = frames.source_accuracy[frames.source_accuracy["k"] == k]
        assert table["accuracy"].mean() == pytest.approx(pooled)
        for row in table.itertuples():
            wrong = part[(part["truth"] == row.source) & (part["predicted"] != row.source)]
            assert row.confused_count == (wrong["count"].max() if len(wrong) else 0)
            assert (row.confused_with in set(wrong["predicted"])) == bool(len(wrong))

"""Capability correlations against the formulas written out and against the paper's table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from backend.evaluations.stages.statistics import capability_correlations, published_scores
from tests.published import published_attribution

PAPER = {  # Table "Capability-attribution correlations at the endpoint budgets": value and p
    ("MMLU-Pro", "accuracy@1/ur", "pearson"): (0.695, 0.056),
    ("GPQA-Diamond", "accuracy@1/ur", "pearson"): (0.713, 0.047),
    ("MMLU-Pro", "accuracy@1/ur", "spearman"): (0.714, 0.047),
    ("GPQA-Diamond", "accuracy@1/ur", "spearman"): (0.714, 0.047),
    ("MMLU-Pro", "accuracy@100/ur", "pearson"): (0.838, 0.009),
    ("GPQA-Diamond", "accuracy@100/ur", "pearson"): (0.779, 0.023),
    ("MMLU-Pro", "accuracy@100/ur", "spearman"): (0.807, 0.015),
    ("GPQA-Diamond", "accuracy@100/ur", "spearman"): (0.807, 0.015),
}


def naive_pearson(x, y):
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    top = sum((a - x.mean()) * (b - y.mean()) for a, b in zip(x, y, strict=True))
    r = top / np.sqrt(sum((a - x.mean()) ** 2 for a in x) * sum((b - y.mean()) ** 2 for b in y))
    return r, 2 * student.sf(abs(r) * np.sqrt((len(x) - 2) / (1 - r * r)), len(x) - 2)


def ranks(values):
    """Mean rank of equals."""
    return [np.mean([i for i, other in enumerate(sorted(values)) if other == value]) for value in values]


def test_the_scores_are_those_of_the_eight_published_proxies():
    scores = published_scores()
    assert sorted(scores["benchmark"].unique()) == ["GPQA-Diamond", "MMLU-Pro"]
    assert scores.groupby("benchmark")["proxy"].nunique().tolist() == [8, 8]
    held = scores.set_index(["proxy", "benchmark"])["score"]
    assert held["qwen35_9b", "MMLU-Pro"] == pytest.approx(77.6512633)
    assert held["llama31_8b_instruct", "GPQA-Diamond"] == pytest.approx(25.9)


def test_correlations_equal_the_formulas():
    scores = pd.DataFrame({"proxy": list("abcde"), "benchmark": "B", "score": [10.0, 20.0, 35.0, 35.0, 80.0]})
    accuracies = pd.DataFrame({"proxy": list("edcba"), "view": "r", "k": 5, "value": [0.9, 0.5, 0.6, 0.4, 0.45]})
    got = capability_correlations(scores, accuracies).set_index("statistic")
    x, y = [10.0, 20.0, 35.0, 35.0, 80.0], [0.45, 0.4, 0.6, 0.5, 0.9]
    for statistic, (value, p) in {
        "pearson": naive_pearson(x, y),
        "spearman": naive_pearson(ranks(x), ranks(y)),
    }.items():
        row = got.loc[statistic]
        assert (row["subject"], row["reference"], row["n"]) == ("B", "accuracy@5/r", 5)
        assert row["value"] == pytest.approx(value)
        assert row["p_value"] == pytest.approx(p)


def test_views_and_budgets_are_correlated_apart_and_too_few_proxies_not_at_all():
    scores = pd.DataFrame({"proxy": list("abc"), "benchmark": "B", "score": [1.0, 2.0, 3.0]})
    rows = [(p, "ur", 1, v) for p, v in zip("abc", (0.1, 0.2, 0.4), strict=True)]
    rows += [(p, "ur", 5, v) for p, v in zip("abc", (0.4, 0.2, 0.1), strict=True)]
    rows += [("a", "r", 1, 0.1), ("b", "r", 1, 0.2), ("z", "r", 1, 0.4)]  # of z no score is known
    rows += [(p, "r", 5, 0.3) for p in "abc"]  # all the same
    got = capability_correlations(scores, pd.DataFrame(rows, columns=["proxy", "view", "k", "value"]))
    rank = got[got["statistic"] == "spearman"].set_index("reference")["value"]
    assert rank.to_dict() == pytest.approx({"accuracy@1/ur": 1.0, "accuracy@5/ur": -1.0})
    empty = capability_correlations(scores, pd.DataFrame(columns=["proxy", "view", "k", "value"]))
    assert empty.empty
    assert "p_value" in empty


@pytest.mark.release
def test_the_paper_s_correlations_come_out_of_the_published_accuracies(release):
    accuracies = []
    for published in published_attribution(release.root):
        rows = published.metrics
        keep = (rows["reduction"] == "pooled") & (rows["metric"] == "accuracy") & rows["seed"].isna()
        accuracies.append(rows[keep].assign(proxy=published.proxy, view=published.view))
    got = capability_correlations(published_scores(), pd.concat(accuracies))
    assert set(got["n"]) == {8}
    held = got.set_index(["subject", "reference", "statistic"])
    for key, (value, p) in PAPER.items():
        assert held.loc[key, "value"] == pytest.approx(value, abs=6e-4), key
        assert held.loc[key, "p_value"] == pytest.approx(p, abs=6e-4), key

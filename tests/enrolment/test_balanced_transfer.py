"""What a pool changes on other traffic: invented scores that lean to some sources, and the words of a small corpus."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from backend.enrolment.balanced_transfer import scenarios, transfer_rows
from backend.enrolment.head_fits import Tuning
from backend.methods.registry import WORDS
from tests.enrolment.test_left_out import debates

SOURCES, FOLDS, EACH = 8, 5, 20


def leaning(prompts: int, rng: np.random.Generator, kinds: np.ndarray) -> np.ndarray:
    """Log-posteriors (C * P, C) that lean to other sources with every kind (P,)."""
    shifts = rng.normal(0, 2.0, (int(kinds.max()) + 1, SOURCES))
    truth = np.repeat(np.arange(SOURCES), prompts)
    points = rng.normal(size=(len(truth), SOURCES)) + 1.5 * np.eye(SOURCES)[truth]
    return np.asarray(log_softmax(1.5 * points + shifts[np.tile(kinds, SOURCES)], axis=1), dtype=np.float32)


def test_a_pool_puts_leaning_scores_right_and_what_is_stated_holds() -> None:
    rng = np.random.default_rng(0)
    folds = np.repeat(np.arange(FOLDS), EACH)
    own, other = leaning(FOLDS * EACH, rng, folds), leaning(60, rng, np.zeros(60, dtype=np.intp))
    frame = transfer_rows(own, folds, other)
    found = frame.set_index(["statistic", "k", "metric"])["value"]
    assert set(frame["k"]) == {1, 5, 10, 20}
    for k in (5, 10, 20):
        assert found["background", k, "realised"] > found["clean", k, "realised"] + 0.1
        off = {
            name: abs(found[name, k, "probability"] - found[name, k, "realised"]) for name in ("clean", "background")
        }
        assert off["background"] < 0.1
        assert found["background", k, "auroc"] > found["clean", k, "auroc"]
        assert found["background", k, "false_unknown"] < 0.2


@pytest.mark.slow(60)
def test_categories_and_domains_are_measured_with_and_without_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """By word n-grams of a corpus of ten topics, of which two stand for the other benchmark."""
    monkeypatch.setattr("backend.enrolment.background.SMALLEST", 8)
    corpus, prompts, categories = debates()
    grid = np.arange(len(corpus.labels)).reshape(corpus.classes, -1)
    late = np.array([kind in ("topic 8", "topic 9") for kind in categories])
    parts = [corpus.take(grid[:, some].ravel()) for some in (~late, late)]
    texts = [[p for p, inside in zip(prompts, some, strict=True) if inside] for some in (~late, late)]
    corpora = {"agent500": (parts[0], texts[0], []), "math100": (parts[1], texts[1], [])}
    how = {"method": WORDS, "tuning": Tuning(epochs=5)}
    first, _ = next(scenarios(corpora, "domain", how))
    assert first == "math100"
    corpora["agent500"] = (parts[0], texts[0], [kind for kind in categories if kind < "topic 8"])
    ((name, frame),) = scenarios(corpora, "category", how)
    assert name == "category" and set(frame["statistic"]) == {"clean", "background"}
    assert frame["value"].between(0, 1).all() and set(frame["metric"]) >= {"realised", "auroc"}

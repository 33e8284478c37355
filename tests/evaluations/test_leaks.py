"""Nothing that answers for a fold has seen it: permuted labels give chance, noise in the test fold changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from backend.evaluations.readouts import (
    MODELS,
    fit_discriminants,
    fit_gram_models,
    fold_moments,
    fuse,
    models_of,
    score_alone,
    score_discriminants,
    score_grams,
    score_transfer,
    scores_shape,
    training_folds,
    transfer,
    validation,
)
from backend.evaluations.stages.readout_writing import Calibrator
from backend.methods.domain_adaptation import balanced, balancing_bias
from backend.methods.network import NetworkSettings, fit_network
from backend.methods.ngrams import SoftmaxSettings, count_grams
from backend.methods.probe import fit_experts, fit_regression
from backend.protocol import FOLDS

CLASSES, PROMPTS, WIDTH = 6, 40, 10
LABELS = np.repeat(np.arange(CLASSES), PROMPTS)
FOLD = np.tile(np.arange(PROMPTS) % FOLDS, CLASSES)
SETTINGS = SoftmaxSettings(features=500, epochs=4, batch=32)
UNITS = NetworkSettings(hidden=12, epochs=8, batch=32, rate=0.02, dropout=0.0)
MEMBERS = ["lda", "network", "word"]
FAMILIES = np.array([0, 0, 0, 1, 1, 1])
SOLVED = ("regression", "experts")
"""Carried to a minimum, and in no stack."""


def states(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    prompts = np.tile(3 * rng.standard_normal((PROMPTS, WIDTH)), (CLASSES, 1))
    return (
        prompts + 1.2 * rng.standard_normal((CLASSES, WIDTH))[LABELS] + rng.standard_normal((len(LABELS), WIDTH))
    ).astype(np.float32)


def texts(seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    habits = [rng.choice(list("abcdefghijkl"), 5) for _ in range(CLASSES)]
    return [" ".join([*rng.choice(habits[label], 6), *rng.choice(list("abcdefghijkl"), 6)]) for label in LABELS]


def scored(rows: np.ndarray, words: list[str], labels=LABELS, again=None, again_words=None):
    """Scores of all members, fitted on some rows and asked about the same or others."""
    again, again_words = rows if again is None else again, words if again_words is None else again_words
    moments = fold_moments(lambda some: rows[some], WIDTH, labels, FOLD, CLASSES)
    out = {name: np.empty(scores_shape(len(rows), CLASSES), dtype=np.float32) for name in (*MEMBERS, *SOLVED)}
    bank = {"lda": fit_discriminants(moments, 0.1, range(len(MODELS)))}
    score_discriminants(lambda some: again[some], FOLD, bank, out)
    counts = {True: count_grams(words, "word", (1, 2), 12), False: count_grams(again_words, "word", (1, 2), 12)}
    for model, readout in fit_gram_models([counts[True]], labels, FOLD, CLASSES, SETTINGS, range(len(MODELS))):
        score_grams(counts[False], FOLD, model, readout, out["word"])
    for model in range(len(MODELS)):
        train = np.flatnonzero(np.isin(FOLD, training_folds(model)))
        network = fit_network([rows.astype(np.float16)], train, labels, CLASSES, UNITS, seed=model)
        base, seen = bank["lda"][model], (rows[train], labels[train])
        alone = {
            "network": network,
            "regression": fit_regression(*seen, CLASSES, 0.01),
            "experts": fit_experts(*seen, FAMILIES, base, 0.01),
        }
        for name, readout in alone.items():
            for slot, values in score_alone(lambda some: again[some], FOLD, model, readout).items():
                fold = next(fold for fold in MODELS[model] if models_of(fold).index(model) == slot)
                out[name][slot, fold == FOLD] = values
    return out, bank


def fused(out, labels=LABELS, validated=None):
    cells = {"clean": np.zeros(len(labels), dtype=np.intp)}
    return fuse({"clean": out}, labels, FOLD, cells, 1, MEMBERS, validated)


def calibrated(out, labels=LABELS) -> Calibrator:
    """What makes the sums of traces probabilities, fitted as the stage does."""
    calibrator = Calibrator(FOLD[:PROMPTS], CLASSES, {"clean": np.full(len(LABELS), 60)})
    fused(out, labels, calibrator.fit)
    return calibrator


def test_every_row_is_scored_by_models_that_have_not_seen_its_fold():
    for fold in range(FOLDS):
        assert all(fold in MODELS[model] for model in models_of(fold))
        for slot, other in validation(fold):
            model = models_of(other)[slot]
            assert MODELS[model] == {fold, other}
            assert sorted(training_folds(model)) == sorted(set(range(FOLDS)) - {fold, other})


def test_a_stack_beats_its_members_and_all_are_far_above_chance():
    out, _ = scored(states(), texts())
    right = {name: (array[0].argmax(1) == LABELS).mean() for name, array in out.items()}
    together = (fused(out).posteriors["clean"].argmax(1) == LABELS).mean()
    assert min(right.values()) > 2.5 / CLASSES
    assert together > max(right[name] for name in MEMBERS)


def test_permuted_labels_give_chance():
    rng = np.random.default_rng(5)
    hits, alone = [], []
    for repeat in range(3):
        labels = rng.permutation(LABELS)
        out, _ = scored(states(repeat), texts(repeat), labels)
        hits.append((fused(out, labels).posteriors["clean"].argmax(1) == labels).mean())
        alone.append([(out[name][0].argmax(1) == labels).mean() for name in SOLVED])
    error = np.sqrt(1 / CLASSES * (1 - 1 / CLASSES) / (3 * len(LABELS)))
    assert abs(np.mean(hits) - 1 / CLASSES) < 4 * error
    assert np.abs(np.mean(alone, axis=0) - 1 / CLASSES).max() < 4 * error


@pytest.mark.parametrize("fold", [0, 3])
def test_noise_in_a_test_fold_changes_none_of_its_scores(fold):
    rows, words = states(), texts()
    rng = np.random.default_rng(9)
    spoilt, nonsense = rows.copy(), list(words)
    inside = fold == FOLD
    spoilt[inside] = 1e3 * rng.standard_normal((inside.sum(), WIDTH))
    for row in np.flatnonzero(inside):
        nonsense[row] = "zzz yyy " * 50
    shuffled = LABELS.copy()
    shuffled[inside] = rng.permutation(shuffled[inside])

    plain, _ = scored(rows, words)
    other, _ = scored(spoilt, nonsense, shuffled, rows, words)
    for name in plain:
        # All that serves the fold: its own outer scores, and those of its validation rows.
        assert np.array_equal(plain[name][0, inside], other[name][0, inside])
        for slot, held in validation(fold):
            assert np.array_equal(plain[name][slot, held == FOLD], other[name][slot, held == FOLD])
        assert not np.array_equal(plain[name][0, ~inside], other[name][0, ~inside])
    assert np.array_equal(fused(plain).posteriors["clean"][inside], fused(other, shuffled).posteriors["clean"][inside])
    before, after = calibrated(plain), calibrated(other, shuffled)
    assert {k for _, k in before.fitted} == {1, 5}
    for k in (1, 5):
        assert before.fitted[fold, k] == after.fitted[fold, k]
    assert before.fitted != after.fitted


def test_another_domain_is_scored_by_all_outer_models_and_a_pool_takes_a_shift_out():
    out, bank = scored(states(), texts())
    stacks = fused(out).stacks
    # Another domain: the same sources, everything moved, which favours some sources.
    moved = states() + 4 * np.random.default_rng(3).standard_normal(WIDTH).astype(np.float32)
    found = {"lda": np.empty((FOLDS, len(LABELS), CLASSES), dtype=np.float32)}
    score_transfer(lambda some: moved[some], len(LABELS), bank, found)
    found |= {name: np.full_like(found["lda"], -np.log(CLASSES)) for name in ("network", "word")}
    plain = transfer(found, stacks, np.zeros(len(LABELS), dtype=np.intp), MEMBERS)
    assert plain.shape == (FOLDS, len(LABELS), CLASSES)
    wanted = bank["lda"][2].log_posterior(moved)
    assert np.allclose(found["lda"][2], wanted, atol=1e-3)
    before = (plain.mean(0).argmax(1) == LABELS).mean()
    after = (balanced(plain.mean(0), FOLD).argmax(1) == LABELS).mean()
    assert after > before + 0.05


def test_a_bias_balances_the_pool_and_is_found_without_the_rows_that_it_serves():
    rng = np.random.default_rng(4)
    scores = log_softmax(2 * rng.standard_normal((400, 5)) + [3, 0, 0, -2, 1], axis=1).astype(np.float32)
    shares = np.exp(log_softmax(scores + balancing_bias(scores), axis=1)).mean(0)
    assert np.allclose(shares, 0.2, atol=2e-3)
    parts = np.arange(400) % 2
    other = scores.copy()
    other[1::20] = np.roll(other[1::20], 1, axis=1)
    changed = np.flatnonzero(np.abs(balanced(scores, parts) - balanced(other, parts)).max(1) > 1e-6)
    touched = np.arange(1, 400, 20)
    assert set(changed) == {*touched, *np.flatnonzero(parts == 0)}
    assert np.allclose(np.exp(balanced(scores, parts)).sum(1), 1, atol=1e-5)

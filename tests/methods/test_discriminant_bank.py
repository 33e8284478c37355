"""The bank that live attribution serves: it says what exact discriminants say, and no fold has seen its answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from backend.evaluations.readouts import BankRows, bank_posteriors, serve_banks
from backend.methods.discriminant import fit_discriminant, make_bank, moments_of
from backend.methods.probe import LinearReadout
from backend.methods.stack import CELLS, Stack
from backend.protocol import FOLDS

CLASSES, PROMPTS, WIDTH = 6, 60, 40
LABELS = np.repeat(np.arange(CLASSES), PROMPTS)
FOLD = np.tile(np.arange(PROMPTS) % FOLDS, CLASSES)


def states(seed: int = 0, share: float = 1.0) -> np.ndarray:
    """Rows of sources that answer the same prompts, in coordinates of very different size."""
    rng = np.random.default_rng(seed)
    prompts = np.tile(2 * rng.standard_normal((PROMPTS, WIDTH)), (CLASSES, 1))
    habit = share * rng.standard_normal((CLASSES, WIDTH))[LABELS]
    rows = prompts + habit + np.random.default_rng(seed + 100).standard_normal((len(LABELS), WIDTH))
    return (rows * 10.0 ** np.linspace(-2, 2, WIDTH) + 30).astype(np.float32)


def world() -> dict[str, np.ndarray]:
    return {"clean": states(0), "t64": states(0, 0.8), "t32": states(0, 0.6)}


def served(rows: dict[str, np.ndarray], labels: np.ndarray = LABELS, words=None):
    cells = {condition: np.full(len(labels), i) for i, condition in enumerate(rows)}
    loads = {condition: (lambda some, of=part: of[some]) for condition, part in rows.items()}
    return serve_banks(BankRows(loads, WIDTH, labels, FOLD, CLASSES), cells, words=words), loads, cells


def members(rows: list[np.ndarray]):
    moments = [moments_of([(part, LABELS)], CLASSES, WIDTH) for part in rows]
    return [fit_discriminant(m, 0.1) for m in moments], moments


def test_a_bank_says_what_its_exact_members_say():
    rows = world()
    exact, moments = members([rows["clean"], rows["t32"]])
    rng = np.random.default_rng(3)
    stack = Stack(rng.uniform(0.05, 0.3, (CELLS, 2)))
    bank = make_bank(exact, moments, stack)
    assert bank.codes.shape == (2, WIDTH, CLASSES - 1) and bank.codes.dtype == np.int8
    assert 8 < np.abs(bank.codes).max() <= 127
    cells = rng.integers(0, CELLS, len(LABELS))
    found = bank.log_posterior(rows["t64"], cells)
    parts = [member.log_posterior(rows["t64"]) for member in exact]
    wanted = log_softmax(sum(stack.weights[cells, m, None] * part for m, part in enumerate(parts)), axis=1)
    assert np.allclose(np.exp(found).sum(1), 1, atol=1e-5)
    assert (found.argmax(1) == wanted.argmax(1)).mean() > 0.95
    true = wanted[np.arange(len(LABELS)), LABELS] - found[np.arange(len(LABELS)), LABELS]
    assert abs(true.mean()) < 0.03
    standard = (rows["t64"].astype(np.float64) - bank.mean) / bank.scale
    for cell, source, rival in ((0, 1, 4), (7, 5, 0)):
        direction, constant = bank.odds(cell, source, rival)
        apart = bank.log_posterior(rows["t64"], np.full(len(LABELS), cell))
        assert standard @ direction + constant == pytest.approx(apart[:, source] - apart[:, rival], abs=1e-3)


def test_fewer_dimensions_than_sources_are_no_trouble():
    rng = np.random.default_rng(1)
    narrow = [
        LinearReadout(np.zeros(3, np.float32), rng.normal(size=(3, 8)).astype(np.float32), np.zeros(8, np.float32))
    ]
    rows = rng.normal(size=(200, 3)).astype(np.float32)
    bank = make_bank(narrow, [moments_of([(rows, np.arange(200) % 8)], 8, 3)], Stack(np.ones((CELLS, 1))))
    assert bank.codes.shape == (1, 3, 3)
    apart = np.abs(bank.log_posterior(rows, np.zeros(200, int)) - narrow[0].log_posterior(rows))
    assert apart.mean() < 0.3


def test_served_scores_are_those_of_the_bank_that_has_not_seen_the_fold():
    rows = world()
    found, loads, cells = served(rows)
    for condition, posterior in found.served.items():
        right = (posterior.argmax(1) == LABELS).mean()
        assert right > 2 / CLASSES
        assert abs(right - (found.exact[condition].argmax(1) == LABELS).mean()) < 0.05
        again = bank_posteriors(loads[condition], found.banks, FOLD, cells[condition])
        assert np.array_equal(again, posterior)
    assert len(found.banks[0].bias) == 2
    whole, _, _ = served({"clean": rows["clean"]})
    assert len(whole.banks[0].bias) == 1


@pytest.mark.parametrize("fold", [0, 3])
def test_noise_in_a_test_fold_changes_none_of_its_scores(fold: int):
    rows, rng = world(), np.random.default_rng(9)
    inside = fold == FOLD
    spoilt, labels = {}, LABELS.copy()
    for condition, part in rows.items():
        spoilt[condition] = part.copy()
        spoilt[condition][inside] = 1e3 * rng.standard_normal((inside.sum(), WIDTH))
    labels[inside] = rng.permutation(labels[inside])
    (plain, _, cells), (other, _, _) = served(rows), served(spoilt, labels)
    for condition, part in rows.items():
        again = bank_posteriors(lambda some, of=part: of[some], other.banks, FOLD, cells[condition])
        assert np.array_equal(again[inside], plain.served[condition][inside])
        assert not np.array_equal(again[~inside], plain.served[condition][~inside])


def test_permuted_labels_give_chance():
    hits = []
    for repeat in range(3):
        labels = np.random.default_rng(repeat).permutation(LABELS)
        found, _, _ = served({"clean": states(repeat)}, labels)
        hits.append((found.served["clean"].argmax(1) == labels).mean())
    error = np.sqrt(1 / CLASSES * (1 - 1 / CLASSES) / (3 * len(LABELS)))
    assert abs(np.mean(hits) - 1 / CLASSES) < 4 * error


def test_n_grams_beside_a_bank_are_weighed_where_nobody_saw_the_fold():
    rows, rng = world(), np.random.default_rng(5)
    told = {}
    for condition in rows:
        logits = rng.normal(size=(3, len(LABELS), CLASSES)) + 1.5 * np.eye(CLASSES)[LABELS]
        told[condition] = log_softmax(logits, axis=2).astype(np.float16)
    alone, _, _ = served(rows)
    found, loads, cells = served(rows, words=told)
    assert alone.shares == {} and set(found.shares) == set(range(FOLDS))
    for condition, posterior in found.served.items():
        assert np.allclose(np.exp(posterior).sum(1), 1, atol=1e-4)
        assert (posterior.argmax(1) == LABELS).mean() > (alone.served[condition].argmax(1) == LABELS).mean()
        for row in (0, 77, 359):
            fold = FOLD[row]
            share = found.shares[fold][cells[condition][row]]
            assert 0.1 < share < 3
            bank = found.banks[fold].log_posterior(loads[condition](np.array([row])), cells[condition][[row]])[0]
            wanted = log_softmax(bank + share * told[condition][0, row].astype(np.float64))
            assert posterior[row] == pytest.approx(wanted, abs=1e-4)
    noise = {condition: part.copy() for condition, part in told.items()}
    for part in noise.values():
        part[1:] = log_softmax(rng.normal(size=part[1:].shape), axis=2)  # what the inner models say decides the weights
    for share in served(rows, words=noise)[0].shares.values():
        assert np.abs(share).max() < 0.25

"""DC and first AC alone: the right columns, the paper's probe, and nothing learnt from held-out prompts."""

from __future__ import annotations

import numpy as np
import pytest

from backend.evaluations.attribution import out_of_fold
from backend.evaluations.controls import BLOCKS, block_columns, components, fixed, matched_evidence
from backend.methods.probe import fit_probe
from backend.protocol import fold_of_prompts

SOURCES, PROMPTS, D = 5, 40, 6


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(SOURCES), PROMPTS)
    folds = np.tile(fold_of_prompts([f"p{i:03d}" for i in range(PROMPTS)]), SOURCES)
    rows = rng.normal(size=(SOURCES, 2 * D))[labels] + rng.normal(size=(len(labels), 2 * D))
    return rows.astype(np.float16), labels, folds


def test_blocks_are_the_two_halves_of_a_fingerprint():
    row = np.arange(2 * D)
    assert {block: row[block_columns(block, 2 * D)].tolist() for block in BLOCKS} == {
        "dc": list(range(D)),
        "ac": list(range(D, 2 * D)),
        "dc-ac": list(range(2 * D)),
    }
    with pytest.raises(ValueError, match="width 7"):
        block_columns("dc", 7)


def test_each_component_is_the_papers_probe_on_its_columns_at_the_selected_block(world):
    rows, labels, folds = world
    layers = {f: 1 + f % 2 for f in range(5)}
    found = matched_evidence(lambda layer: rows * np.float16(layer), layers, labels, folds, SOURCES, components())
    assert set(found) == {"reader-dc", "reader-ac"}
    for fold, layer in layers.items():
        test = folds == fold
        for method, columns in (("reader-dc", slice(0, D)), ("reader-ac", slice(D, 2 * D))):
            x = (rows * np.float16(layer))[:, columns].astype(np.float32)
            expected = fit_probe(x[~test], labels[~test], SOURCES).log_posterior(x[test])
            np.testing.assert_allclose(found[method][test], expected, atol=1e-6)


def test_both_components_together_are_reader_paper(world):
    rows, labels, folds = world
    both = {"reader-paper": fixed(lambda x: x[:, block_columns("dc-ac", x.shape[1])].astype(np.float32))}
    layers = dict.fromkeys(range(5), 3)
    found = matched_evidence(lambda _: rows, layers, labels, folds, SOURCES, both)
    expected, _ = out_of_fold(lambda _: rows.astype(np.float32), layers, labels, folds, SOURCES)
    np.testing.assert_array_equal(found["reader-paper"], expected)


def test_a_representation_is_fitted_on_training_rows_only(world):
    rows, labels, folds = world
    seen = []

    def represent(train, train_labels):
        seen.append((train, train_labels))
        return lambda x: x.astype(np.float32)

    matched_evidence(lambda _: rows, dict.fromkeys(range(5), 1), labels, folds, SOURCES, {"spy": represent})
    for fold, (train, train_labels) in enumerate(seen):
        np.testing.assert_array_equal(train, rows[folds != fold])
        np.testing.assert_array_equal(train_labels, labels[folds != fold])


def test_permuted_labels_give_chance():
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(4), 250)
    folds = np.tile(np.arange(250) % 5, 4)
    rows = (rng.normal(size=(4, 2 * D))[labels] * 3 + rng.normal(size=(1000, 2 * D))).astype(np.float16)
    layers = dict.fromkeys(range(5), 1)
    told = matched_evidence(lambda _: rows, layers, labels, folds, 4, components())
    shuffled = rng.permutation(labels)
    blind = matched_evidence(lambda _: rows, layers, shuffled, folds, 4, components())
    for method in told:
        assert (told[method].argmax(1) == labels).mean() > 0.9
        assert abs((blind[method].argmax(1) == shuffled).mean() - 0.25) < 0.06

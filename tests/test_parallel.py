"""Steps that processes share give what one process gives."""

from __future__ import annotations

import os

import joblib
import numpy as np
import pytest
from scipy import sparse

from backend import statistics
from backend.evaluations.readouts import MODELS, fit_gram_models
from backend.evaluations.relationships import PairSplit, read_pairs
from backend.geometry import neighborhoods
from backend.inference import drift
from backend.methods.ngrams import SoftmaxSettings
from backend.parallel import each
from backend.protocol import FOLDS

CLASSES, PROMPTS = 4, 20


@pytest.mark.slow
def test_ngrams_are_the_same_when_processes_share_their_fits() -> None:
    rng = np.random.default_rng(3)
    labels, folds = np.repeat(np.arange(CLASSES), PROMPTS), np.tile(np.arange(PROMPTS) % FOLDS, CLASSES)
    counts = sparse.csr_matrix(rng.poisson(0.3, (len(labels), 300)).astype(np.float32))
    settings = SoftmaxSettings(features=200, epochs=2, batch=16)
    every = range(len(MODELS))

    def weights() -> np.ndarray:
        fitted = dict(fit_gram_models([counts], labels, folds, CLASSES, settings, every))
        assert list(fitted) == list(every)
        return np.stack([readout.weight for readout in fitted.values()])

    alone = weights()
    with joblib.parallel_config("loky", n_jobs=2):
        np.testing.assert_allclose(weights(), alone, rtol=1e-5, atol=1e-6)  # threads of a product move the last bits


@pytest.mark.slow
def test_pairs_are_read_the_same_when_processes_share_the_readouts() -> None:
    rng = np.random.default_rng(4)
    related = np.arange(60) % 2 == 0
    features = [rng.standard_normal((60, 2)) + related[:, None] for _ in range(4)]
    splits = [PairSplit(n, np.arange(60)[np.arange(60) % 3 != n], np.arange(n, 60, 3)) for n in range(3)]
    steps = [(one, related, splits) for one in features]
    alone = [reading.decision for reading in each(read_pairs, steps)]
    with joblib.parallel_config("loky", n_jobs=2):
        shared = [reading.decision for reading in each(read_pairs, steps)]
    np.testing.assert_array_equal(shared, alone)


def test_bootstrap_and_permutations_are_the_same_when_processes_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (drift, neighborhoods, statistics):
        monkeypatch.setattr(module, "PATIENCE", 0.0)
    rng = np.random.default_rng(5)
    table, sizes = rng.standard_normal((30, 3)), rng.integers(1, 9, (30, 3))
    order = neighborhoods.neighbor_order(rng.random((12, 12)))
    families, features = ["a", "b"] * 6, rng.standard_normal((4 * 24, 5))
    purity = neighborhoods.PuritySettings(permutations=600)

    def results() -> list[np.ndarray]:
        return [
            *statistics.cluster_bootstrap(table, sizes, replicates=5_000),
            statistics.sign_flip_p_values(table, flips=5_000),
            neighborhoods.permuted_hits(order, families, [1, 3], purity),
            drift.drift_frame(features, np.array([0, 0, 1, 1]), "x", [8], pairs=6)["value"].to_numpy(),
        ]

    alone = results()
    with joblib.parallel_config("loky", n_jobs=2):
        shared = results()
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, other)


def test_short_steps_stay_in_this_process() -> None:
    with joblib.parallel_config("loky", n_jobs=2):
        assert set(each(os.getpid, [()] * 4, 60.0)) == {os.getpid()}
        assert os.getpid() not in set(each(os.getpid, [()] * 4))
        assert list(each(os.getpid, [], 60.0)) == []

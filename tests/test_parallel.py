"""Steps that processes share give what one process gives."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
from scipy import sparse

from backend.evaluations.readouts import MODELS, fit_gram_models
from backend.evaluations.relationships import PairSplit, read_pairs
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

"""Word and character n-grams with logistic regression (beside the paper's Dynamic Baselines, which lack it).

What can be told from surface wording alone, without any model: hashed n-gram counts of the response, TF-IDF weights
from the training rows, and one convex fit that is run until it has converged. The prompt is left out, because
it is the same for all sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.feature_extraction.text import HashingVectorizer
from torch.nn.functional import embedding_bag

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
Counts = Any
"""scipy.sparse.csr_matrix, which has no types that agree with arrays."""


@dataclass(frozen=True)
class NgramSettings:
    """What is counted and how hard the fit is pulled to zero.

    Attributes
    ----------
    analyzer : {'word', 'char'}
    shortest, longest : int
        Length of the n-grams, in words or characters.
    pattern : str or None
        What is a word; case is kept.
    buckets : int
        Size of the hash.
    features : int
        Buckets that are used: those that occur in most training rows.
    c : float
        Inverse strength of the penalty ``||W||^2 / (2 C N)``.
    iterations : int
        Upper limit; the fit stops earlier, when it has converged.
    tolerance : float
        Converged when no component of the gradient is larger.
    """

    analyzer: Literal["word", "char"]
    shortest: int
    longest: int
    pattern: str | None = None
    buckets: int = 2**20
    features: int = 30_000
    c: float = 30.0
    iterations: int = 300
    tolerance: float = 3e-5

    def as_text(self) -> str:
        """Words by which kept files name these settings; they never change."""
        return (
            f"NgramSettings(analyzer={self.analyzer!r}, shortest={self.shortest!r}, longest={self.longest!r}, "
            f"pattern={self.pattern!r}, buckets={self.buckets!r}, features={self.features!r}, c={self.c!r}, "
            f"iterations={self.iterations!r}, tolerance={self.tolerance!r})"
        )


# Chosen on 60 training and 20 other prompts of outer fold 0's training side, 100 sources: accuracy at K = 1, 5, 20 is
# .287, .497, .67 with words alone, .342, .565, .74 with punctuation, .358, .610, .74 with line ends too (all with
# 20,000 features). 50,000 features (.360, .593, .72) or C = 100 (.355, .610, .74) change little.
WORDS = NgramSettings("word", 1, 3, r"\w+|[^\w\s]|\n+")
# Trigrams: .322, .540, .72; lengths 1 to 4 with 20,000 features .338, .562, .76 for more than three times the work.
CHARACTERS = NgramSettings("char", 3, 3, features=10_000)
SETTINGS = {"ngram-word": WORDS, "ngram-char": CHARACTERS}


@dataclass(frozen=True)
class NgramModel:
    """A fitted classifier.

    Attributes
    ----------
    columns : ndarray of shape (F,)
        Buckets in use, ascending.
    idf : ndarray of shape (F,), float32
    weight : ndarray of shape (F, C), float32
    bias : ndarray of shape (C,), float32
    iterations : int
        Steps until convergence, or until the limit.
    """

    columns: Ints
    idf: Floats
    weight: Floats
    bias: Floats
    iterations: int

    def log_posterior(self, counts: Counts) -> Floats:
        """Log-posteriors of hashed counts (n, buckets): (n, C), float32."""
        out: Floats = log_softmax(weigh(counts[:, self.columns], self.idf) @ self.weight + self.bias, axis=1)
        return out


def count(texts: Iterable[str], settings: NgramSettings) -> Counts:
    """Hashed n-gram counts; nothing is learnt, so every text may be counted at once.

    Parameters
    ----------
    texts : iterable of str, length n
    settings : NgramSettings

    Returns
    -------
    scipy.sparse.csr_matrix of shape (n, buckets), float32
    """
    return vectorizer(settings).transform(texts)


def vectorizer(settings: NgramSettings) -> HashingVectorizer:
    """What takes a text apart into n-grams and hashes them."""
    return HashingVectorizer(
        analyzer=settings.analyzer,
        ngram_range=(settings.shortest, settings.longest),
        token_pattern=settings.pattern,
        n_features=settings.buckets,
        alternate_sign=False,
        norm=None,
        lowercase=False,
        dtype=np.float32,
    )


def weigh(counts: Counts, idf: Floats) -> Counts:
    """TF-IDF with ``1 + log(tf)`` and rows of unit length (empty rows stay empty)."""
    rows = counts.tocsr(copy=True)
    rows.data = (1 + np.log(rows.data)) * idf[rows.indices]
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    norms = np.sqrt(np.bincount(owner, rows.data.astype(np.float64) ** 2, minlength=rows.shape[0]))
    rows.data = (rows.data / norms[owner]).astype(np.float32)
    return rows


def fit_ngrams(counts: Counts, labels: npt.NDArray[np.integer], classes: int, settings: NgramSettings) -> NgramModel:
    """Choose columns and weights on training rows and fit.

    Parameters
    ----------
    counts : scipy.sparse.csr_matrix of shape (n, buckets)
        From :func:`count`, training rows only.
    labels : ndarray of shape (n,)
    classes : int
    settings : NgramSettings

    Returns
    -------
    NgramModel
    """
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    # An n-gram of a single training row says nothing about other rows.
    columns = np.argsort(-documents, kind="stable")[: settings.features]
    columns = np.sort(columns[documents[columns] >= min(2, counts.shape[0])])
    idf = (np.log((1 + counts.shape[0]) / (1 + documents[columns])) + 1).astype(np.float32)
    rows = weigh(counts[:, columns], idf)
    weight, bias, steps = fit_softmax(
        rows, labels, classes, c=settings.c, iterations=settings.iterations, tolerance=settings.tolerance
    )
    return NgramModel(columns, idf, weight, bias, steps)


def fit_softmax(
    rows: Counts,
    labels: npt.NDArray[np.integer],
    classes: int,
    *,
    c: float,
    iterations: int = 300,
    tolerance: float = 3e-5,
) -> tuple[Floats, Floats, int]:
    """Minimise mean cross-entropy plus ``||W||^2 / (2 C N)`` over sparse rows by L-BFGS; the bias is not penalised.

    Parameters
    ----------
    rows : scipy.sparse matrix of shape (n, F)
    labels : ndarray of shape (n,)
    classes : int
    c : float
    iterations : int
    tolerance : float

    Returns
    -------
    weight : ndarray of shape (F, C), float32
    bias : ndarray of shape (C,), float32
    steps : int
    """
    n, width = rows.shape
    rows = rows.astype(np.float32).tocsr()
    forth, back = multiplier(rows), multiplier(rows.T.tocsr())
    order, truth = torch.arange(n), torch.from_numpy(np.asarray(labels, dtype=np.int64))
    pull = 1.0 / (c * n)

    def objective(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        # The products, which take most of the time, are in float32; the minimiser itself works in float64.
        single = torch.from_numpy(flat.astype(np.float32)).view(width + 1, classes)
        posterior = torch.log_softmax(forth(single[:width]).add_(single[width]), 1)
        loss = -float(posterior[order, truth].double().mean())
        error = posterior.exp_()
        error[order, truth] -= 1
        error /= n
        slope = np.concatenate([back(error).numpy().ravel(), error.sum(0).numpy()]).astype(np.float64)
        weight = flat[: width * classes]
        slope[: width * classes] += pull * weight
        return loss + 0.5 * pull * float(np.vdot(weight, weight)), slope

    found = minimize(
        objective,
        np.zeros((width + 1) * classes),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": iterations, "maxcor": 10, "gtol": tolerance, "ftol": 1e-7, "maxls": 30},
    )
    best = found.x.reshape(width + 1, classes).astype(np.float32)
    return best[:width].copy(), best[width].copy(), int(found.nit)


def multiplier(rows: Counts) -> Callable[[torch.Tensor], torch.Tensor]:
    """What multiplies sparse rows by a dense matrix: every row is a weighted bag of the matrix's rows.

    Bags are summed by vector instructions on all threads; benchmarks/fit_ngrams.py has it beside sparse products.
    """
    edges, columns = (torch.from_numpy(part.astype(np.int32)) for part in (rows.indptr, rows.indices))
    values = torch.from_numpy(rows.data)
    return lambda dense: embedding_bag(
        columns, dense, edges, mode="sum", per_sample_weights=values, include_last_offset=True
    )

"""N-gram classifiers in few bits: what is kept, measured and enrolled of a fit (beside the paper's Dynamic Baselines).

Five fold models of 30,000 n-grams and 100 sources are 60 MB in single precision. Weights are therefore kept as whole
numbers of steps of an eighth of their spread, which pack to 5 bits a number. It costs less than 0.001 nats a response,
and nothing where the same codes are measured and served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from backend.methods.ngrams import SETTINGS, Counts, NgramModel, NgramSettings, weigh
from backend.methods.readout import Arrays

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
STEPS = 8
"""Steps of a code within the standard deviation of the weights."""
_LARGEST = 2**15 - 1


@dataclass(frozen=True)
class CodedNgrams(Arrays):
    """A fitted classifier in few bits.

    Attributes
    ----------
    columns : ndarray of shape (F,), int32
        Buckets in use, ascending.
    idf : ndarray of shape (F,), float32
    codes : ndarray of shape (2, F, C), uint8
        Low and high bytes of the weights' numbers of steps, signs in the lowest bit: 0, -1, 1, -2, ...
    step : ndarray of shape (), float32
    bias : ndarray of shape (C,), float32
    method : str
        Says what is counted, one of :data:`backend.methods.ngrams.SETTINGS`.
    """

    SHAPES: ClassVar = {"columns": "F", "idf": "F", "codes": "BFC", "step": "", "bias": "C", "method": ""}
    TYPES: ClassVar = {"columns": np.int32, "codes": np.uint8, "method": str}
    columns: npt.NDArray[np.int32]
    idf: Floats
    codes: npt.NDArray[np.uint8]
    step: Floats
    bias: Floats
    method: str

    @property
    def settings(self) -> NgramSettings:
        """What is counted."""
        return SETTINGS[self.method]

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Every number by name, and the method."""
        return super().to_arrays() | {"method": np.array(self.method)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> CodedNgrams:
        """What :meth:`to_arrays` gave."""
        parts: dict[str, Any] = {**vars(super().from_arrays(arrays)), "method": str(arrays["method"])}
        return cls(**parts)

    @cached_property
    def weight(self) -> Floats:
        """Weights of the n-grams, (F, C), float32."""
        low, high = self.codes.astype(np.int32)
        number = low + 256 * high
        steps = np.where(number % 2, -(number + 1) // 2, number // 2)
        out: Floats = (steps * self.step).astype(np.float32)
        return out

    def log_posterior(self, counts: Counts) -> Floats:
        """Log-posteriors of hashed counts (n, buckets): (n, C), float32."""
        rows = weigh(counts[:, self.columns], self.idf)
        out: Floats = log_softmax(rows @ self.weight + self.bias, axis=1)
        return out

    def odds(self, counts: Counts, source: int, rival: int) -> tuple[Doubles, float]:
        """What a bucket adds to the log-odds of two sources, and their constant.

        Parameters
        ----------
        counts : scipy.sparse.csr_matrix of shape (1, buckets)
            Of one text.
        source, rival : int
            Columns of the weights.

        Returns
        -------
        values : ndarray of shape (F,), float64
            Of the buckets in use, for all occurrences of each; zero for those that the text does not have.
        constant : float
            Difference of the biases.
        """
        row = weigh(counts[:, self.columns], self.idf)
        values = np.zeros(len(self.columns))
        held = row.indices
        values[held] = row.data * (self.weight[held, source].astype(np.float64) - self.weight[held, rival])
        return values, float(self.bias[source]) - float(self.bias[rival])


def code_ngrams(model: NgramModel, method: str) -> CodedNgrams:
    """Round the weights of a classifier to steps."""
    step = np.float32(max(float(model.weight.std()), 1e-6) / STEPS)
    steps = np.clip(np.round(model.weight / step), -_LARGEST, _LARGEST).astype(np.int32)
    number = np.where(steps < 0, -2 * steps - 1, 2 * steps)
    codes = np.stack([number % 256, number // 256]).astype(np.uint8)
    return CodedNgrams(model.columns.astype(np.int32), model.idf, codes, np.asarray(step), model.bias, method)


def counted(method: str) -> dict[str, Any]:
    """What a method counts, for a file that has to know it later."""
    settings = SETTINGS[method]
    return {
        "analyzer": settings.analyzer,
        "shortest": settings.shortest,
        "longest": settings.longest,
        "pattern": settings.pattern,
        "buckets": settings.buckets,
    }


def ngram_file(fold: int) -> str:
    """Name of the kept classifier of an outer fold."""
    return f"ngrams.{fold}.npz"


def keep_ngrams(path: Path, model: CodedNgrams) -> None:
    """Write a classifier in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".partial.npz")
    arrays: dict[str, Any] = model.to_arrays()
    np.savez_compressed(scratch, **arrays)
    scratch.replace(path)


def read_ngrams(path: Path) -> CodedNgrams:
    """Read a classifier that :func:`keep_ngrams` wrote."""
    with np.load(path, allow_pickle=False) as held:
        return CodedNgrams.from_arrays({name: held[name] for name in held.files})

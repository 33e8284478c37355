"""Signatures without a neural proxy: what a bag of word or character n-grams sees of a source.

The simple counterpart to section "Model-Signature Geometry" of the paper: TF-IDF vectors of the responses, reduced by
truncated SVD (latent semantic analysis) and averaged a source. Weights and axes come from the responses alone; nobody
tells them which source wrote what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from backend.errors import AtlasError


@dataclass(frozen=True)
class TextSettings:
    """How responses become vectors.

    sample : Responses that the axes are fitted to, evenly spaced over all (the weights are fitted to all).
    """

    analyzer: Literal["word", "char_wb"] = "word"  # Words, or characters within words
    shortest: int = 1  # Length of the n-grams
    longest: int = 2
    buckets: int = 2**18  # Hash buckets; no vocabulary has to fit into memory, and any text of any domain has its place
    components: int = 128  # Dimensions after the reduction; fewer where the responses do not span them
    sample: int = 10_000
    seed: int = 42


WORDS = TextSettings()
CHARACTERS = TextSettings(analyzer="char_wb", shortest=2, longest=4)


class TextSpace:
    """Axes that responses are seen in.

    texts : Responses to fit to, at least three and not all empty.
    explained : Share of the sample's variance that the axes keep.
    fitted : (n, components), float32, the responses that the space was fitted to, in it.
    """

    def __init__(self, texts: Sequence[str], settings: TextSettings = WORDS) -> None:
        self.settings = settings
        self._hashing = HashingVectorizer(
            analyzer=settings.analyzer,
            ngram_range=(settings.shortest, settings.longest),
            n_features=settings.buckets,
            alternate_sign=False,
            norm=None,
            dtype=np.float32,
            # Case, punctuation and line breaks are habits of a source.
            lowercase=False,
            token_pattern=r"\w+|[^\w\s]|\n+" if settings.analyzer == "word" else None,
        )
        counts: csr_matrix[Any] = self._hashing.transform(texts)
        if counts.nnz == 0 or counts.shape[0] < 3:
            raise AtlasError("The responses hold no text to compare", "Give at least three responses with words")
        self._weights = TfidfTransformer(sublinear_tf=True).fit(counts)
        weighted = self._weights.transform(counts, copy=False)
        rows = np.unique(np.linspace(0, len(texts) - 1, min(settings.sample, len(texts))).round().astype(np.intp))
        components = min(settings.components, len(rows) - 1)
        self._axes = TruncatedSVD(components, random_state=settings.seed, n_iter=4).fit(weighted[rows])
        self.explained = float(self._axes.explained_variance_ratio_.sum())
        self.fitted = self._project(weighted)

    def features(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """See other responses in these axes.

        texts : length n. Returns (n, components), float32, a response without a known n-gram is zero.
        """
        return self._project(self._weights.transform(self._hashing.transform(texts), copy=False))

    def _project(self, weighted: csr_matrix[Any]) -> npt.NDArray[np.float32]:
        seen: npt.NDArray[np.float32] = self._axes.transform(weighted).astype(np.float32)
        return seen

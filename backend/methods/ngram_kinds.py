"""The kinds of hashed n-grams that members of a stack read, and how each is counted and fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.methods.ngram_counts import Counts, Kind, count_grams
from backend.methods.ngram_softmax import SoftmaxSettings


@dataclass(frozen=True)
class GramKind:
    """N-grams of one kind.

    Attributes
    ----------
    kind : {'word', 'char'}
    lengths : tuple of int
        Numbers of units in an n-gram.
    bits : int
        There are ``2 ** bits`` buckets.
    settings : SoftmaxSettings
    """

    kind: Kind
    lengths: tuple[int, ...]
    bits: int
    settings: SoftmaxSettings

    def as_text(self) -> str:
        """Words by which kept files name this kind; they never change."""
        return (
            f"GramKind(kind={self.kind!r}, lengths={self.lengths!r}, bits={self.bits!r}, "
            f"settings={self.settings.as_text()})"
        )

    def counts(self, texts: Sequence[str]) -> Counts:
        """Counts (n, buckets) of texts without lone surrogates."""
        return count_grams(texts, self.kind, self.lengths, self.bits)


GRAMS: Mapping[str, GramKind] = {
    "word": GramKind("word", (1, 2, 3), 22, SoftmaxSettings()),
    "char": GramKind("char", (2, 3, 4), 21, SoftmaxSettings()),
}

"""A corpus: labelled traces as methods read them, whole and cut short."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.corpus.release import BENCHMARKS, Records, Release
from backend.evaluations.readouts import LENGTHS, Load, loader
from backend.extraction import records_hash
from backend.intake.traces import whole
from backend.methods.ngrams import Counts, counts_of
from backend.methods.stack import cells_of
from backend.protocol import CLEAN
from backend.proxies.encoding import cut_responses
from backend.proxies.reader import Reader, Readout
from backend.proxies.registry import DEFAULT_PROXY, proxy_hash, tokenizer_of
from backend.traces import Trace, View

Floating = npt.NDArray[np.floating]
Ints = npt.NDArray[np.intp]
MATH = "math100"  # The panel of the other benchmark
CUT_SHARE = 0.5  # Share of the responses that a cut must shorten to be a condition of its own


@dataclass(frozen=True)
class Material:
    """The records of the longest roster and the leading prompts; a shorter roster has its first rows."""

    release: Release
    sources: int
    limit: int | None  # Only the first prompts

    @cached_property
    def _records(self) -> dict[str, Records]:
        return {benchmark: self.release.records(benchmark) for benchmark in BENCHMARKS}

    def prompts(self, panel: str) -> list[str]:
        """Ids of the prompts in use, ascending."""
        return self._of(panel).prompt_ids[: self.limit]

    def rows(self, panel: str) -> Ints:
        """Rows of the benchmark in use, in the order of this material's own rows."""
        width = len(self._of(panel).prompt_ids)
        inside = np.arange(min(self.limit or width, width))
        return (np.arange(self.sources)[:, None] * width + inside).ravel()

    def size(self, panel: str) -> int:
        """Records of the whole benchmark."""
        return len(self._of(panel).traces)

    def traces(self, panel: str) -> list[Trace]:
        """Records of a panel: 'clean', a truncation such as 't64', or 'math100'."""
        if panel in (CLEAN, MATH):
            traces = self._of(panel).traces
            return [traces[row] for row in self.rows(panel)]
        return self._cut[panel]

    def identity(self, panel: str) -> str:
        """Hash of the records, with the tokenizer of a truncation."""
        return self._hashes[self.benchmark(panel)] + ("" if panel in (CLEAN, MATH) else proxy_hash(DEFAULT_PROXY))

    @staticmethod
    def benchmark(panel: str) -> str:
        """Benchmark of a panel."""
        return MATH if panel == MATH else "agent500"

    def _of(self, panel: str) -> Records:
        return self._records[self.benchmark(panel)]

    @cached_property
    def _hashes(self) -> dict[str, str]:
        return {name: records_hash(records.keys, records.traces) for name, records in self._records.items()}

    @cached_property
    def _cut(self) -> dict[str, list[Trace]]:
        cut = cut_responses(truncation_tokenizer(), self.traces(CLEAN))
        return {f"t{limit}": traces for limit, traces in cut.items()}


def truncation_tokenizer() -> Any:
    """Tokenizer of the default proxy, in whose tokens responses are cut."""
    return tokenizer_of(DEFAULT_PROXY)


@dataclass(frozen=True)
class Corpus:
    """Labelled traces, in any order.

    texts : condition to sequence of str, length n; responses without lone surrogates; 'clean' at least.
    """

    fingerprints: Callable[[int, str], Floating]  # Block and condition to fingerprints of shape (n, 2 d)
    texts: Mapping[str, Sequence[str]]
    tokens: Ints  # (n,), response tokens of whole responses, as the proxy reads them
    labels: Ints  # (n,), source number
    folds: Ints  # (n,), prompt fold
    classes: int
    _counts: dict[str, Counts] = field(default_factory=dict, repr=False)

    def load(self, blocks: Sequence[int], condition: str = CLEAN) -> tuple[Load, int]:
        """Rows to coordinates at several blocks, (m, D), float32, and their width D."""
        return loader([self.fingerprints(block, condition) for block in blocks])

    def cells(self) -> dict[str, Ints]:
        """Cell of every trace under each condition; see :mod:`backend.methods.stack`."""
        return {c: cells_of(np.minimum(self.tokens, LENGTHS[c]), texts) for c, texts in self.texts.items()}

    def counts(self) -> dict[str, Counts]:
        """N-gram counts (n, buckets) under each condition, counted once."""
        for condition, texts in self.texts.items():
            if condition not in self._counts:
                self._counts[condition] = counts_of(texts)
        return {condition: self._counts[condition] for condition in self.texts}

    def take(self, rows: Ints) -> Corpus:
        """Some of the traces; what was counted is not counted again."""
        return replace(
            self,
            fingerprints=lambda block, condition: self.fingerprints(block, condition)[rows],
            texts={condition: [texts[row] for row in rows] for condition, texts in self.texts.items()},
            tokens=self.tokens[rows],
            labels=self.labels[rows],
            folds=self.folds[rows],
            _counts={condition: counts[rows] for condition, counts in self._counts.items()},
        )

    def with_conditions(self, conditions: Sequence[str]) -> Corpus:
        """The same under some of its conditions."""
        return replace(self, texts={condition: self.texts[condition] for condition in conditions})


def cuts_of(tokens: Ints) -> list[str]:
    """Cuts that shorten many of the responses, of so many tokens (n,)."""
    return [name for name, limit in LENGTHS.items() if name != CLEAN and (tokens > limit).mean() >= CUT_SHARE]


def read_corpus(
    traces: Sequence[Trace],
    reader: Reader,
    view: View,
    blocks: Sequence[int],
    labels: Ints,
    folds: Ints,
    classes: int,
    cuts: Sequence[str] | None = None,
) -> Corpus:
    """Read traces whole and cut short; the fingerprints stay in memory.

    traces : length n; labels, folds : (n,); cuts : By default those that shorten many of the responses.
    """
    encoded = reader.encode(traces, view)
    tokens = np.array([e.response_tokens for e in encoded], dtype=np.intp)
    # A proxy that is not causal would need a pass of its own for every cut.
    short = (cuts_of(tokens) if cuts is None else list(cuts)) if reader.causal else []
    read = reader.read(encoded, sorted(set(blocks)), Readout(limits=(None, *(LENGTHS[cut] for cut in short))))

    def fingerprints(block: int, condition: str) -> Floating:
        return read[block, "full" if condition == CLEAN else condition]

    return Corpus(fingerprints, cut_texts(traces, reader, short), tokens, labels, folds, classes)


def cut_texts(traces: Sequence[Trace], reader: Reader, cuts: Sequence[str]) -> dict[str, list[str]]:
    """Responses as they are and as every cut leaves them."""
    short = cut_responses(reader.tokenizer, traces, [LENGTHS[cut] for cut in cuts]) if cuts else {}
    texts = {CLEAN: traces, **{cut: short[LENGTHS[cut]] for cut in cuts}}
    return {condition: [whole(trace.response) for trace in responses] for condition, responses in texts.items()}

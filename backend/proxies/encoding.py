"""Traces as proxy tokens, the span of the response, and responses cut after some tokens (paper, Stage 1).

The response span starts at the first token whose text reaches past the prefix; where it is empty, the last token stands
in for it. Special tokens at the end are no part of it. Lone surrogates, which no tokenizer accepts, become U+FFFD.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from backend.traces import Trace, View, view_text, whole_text

MAX_TOKENS = 1024
Span = Literal["offsets", "prefix-count"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One trace in proxy tokens."""

    ids: list[int]  # tokens, at least one
    start: int  # first response token; the response is ``ids[start:stop]`` and never empty
    prompt: int  # traces with equal prompts carry the same number
    tail: int = 0  # special tokens behind the response (an encoder's end mark)

    @property
    def stop(self) -> int:
        """One past the last response token."""
        return len(self.ids) - self.tail

    @property
    def response_tokens(self) -> int:
        return self.stop - self.start

    def cut(self, limit: int | None) -> Encoded:
        """The same trace with at most ``limit`` response tokens; the special tokens behind them stay."""
        if limit is None or limit >= self.response_tokens:
            return self
        stop = self.start + limit
        return Encoded(self.ids[:stop] + self.ids[self.stop :], self.start, self.prompt, self.tail)


def encode(
    tokenizer: Any, traces: Sequence[Trace], view: View, *,
    max_tokens: int = MAX_TOKENS, span: Span = "offsets", special_tokens: bool = False,
) -> list[Encoded]:  # fmt: skip
    """Tokenise traces, cut on the right at ``max_tokens``, and find their response spans.

    span : 'prefix-count' counts tokens of the prefix alone, as the paper's release does; it can be off by one.
    special_tokens : let the tokenizer add its own (a bidirectional sentence encoder expects them).
    """
    pairs = [view_text(Trace(whole_text(trace.prompt), whole_text(trace.response)), view) for trace in traces]
    texts = [text for _, text in pairs]
    batch = tokenizer(
        texts, add_special_tokens=special_tokens, truncation=True, max_length=max_tokens, return_offsets_mapping=True,
        return_special_tokens_mask=True, return_attention_mask=False,
    )  # fmt: skip
    prompts: dict[str, int] = {}
    counts: dict[str, int] = {}
    encoded = []
    columns = zip(traces, pairs, batch["input_ids"], batch["offset_mapping"], batch["special_tokens_mask"], strict=True)
    for trace, (prefix, _), ids, offsets, special in columns:
        tail = len(list(takewhile(bool, reversed(special)))) if special_tokens else 0
        if not ids:
            ids, offsets = [_filler(tokenizer)], [(0, 0)]
        if span == "prefix-count":
            if prefix not in counts:
                counts[prefix] = len(tokenizer(prefix, add_special_tokens=special_tokens)["input_ids"]) - tail
            start = counts[prefix]
        else:
            start = next((i for i, (_, end) in enumerate(offsets) if end > len(prefix)), len(ids))
        tail = min(tail, len(ids) - 1)
        number = prompts.setdefault(trace.prompt, len(prompts))
        encoded.append(Encoded(list(ids), min(start, len(ids) - tail - 1), number, tail))
    return encoded


def _filler(tokenizer: Any) -> int:
    """A token for texts that tokenise to nothing (an encoder drops lone control characters)."""
    tokens = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    return int(next((token for token in tokens if token is not None), 0))


Ints = npt.NDArray[np.intp]
LIMITS = (128, 64, 32)


def cut_responses(
    tokenizer: Any, traces: Sequence[Trace], limits: Sequence[int] = LIMITS, chunk: int = 1000
) -> dict[int, list[Trace]]:
    """Traces cut after their first tokens in view ``ur``, for methods without that tokenizer; ``chunk`` at once."""
    out: dict[int, list[Trace]] = {limit: [] for limit in limits}
    for trace, ends in _token_ends(tokenizer, traces, chunk):
        for limit in limits:
            short = trace.response[: ends[limit - 1]] if len(ends) > limit else trace.response
            out[limit].append(Trace(trace.prompt, short))
    return out


def count_tokens(tokenizer: Any, traces: Sequence[Trace], chunk: int = 1000) -> Ints:
    """Response tokens of traces that a proxy keeps in view ``ur``; shape (n,)."""
    return np.array([len(ends) for _, ends in _token_ends(tokenizer, traces, chunk)], dtype=np.intp)


def _token_ends(tokenizer: Any, traces: Sequence[Trace], chunk: int) -> Iterator[tuple[Trace, list[int]]]:
    """Every trace as it can be written, and where its response tokens end in the response."""
    for low in range(0, len(traces), chunk):
        part = [Trace(whole_text(t.prompt), whole_text(t.response)) for t in traces[low : low + chunk]]
        pairs = [view_text(trace, "ur") for trace in part]
        found = tokenizer(
            [text for _, text in pairs], add_special_tokens=False, truncation=True, max_length=MAX_TOKENS,
            return_offsets_mapping=True, return_attention_mask=False,
        )["offset_mapping"]  # fmt: skip
        for trace, (prefix, _), offsets in zip(part, pairs, found, strict=True):
            yield trace, [end - len(prefix) for _, end in offsets if end > len(prefix)]

"""Which text of a trace a baseline sees, whole or cut short (paper, Robustness to Response Length).

Truncation counts the tokens of a proxy, as READER's stress test does, and goes back to text at the end of the last
kept token, so that a method without that tokenizer reads exactly what the proxy would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.proxies.encoding import MAX_TOKENS
from backend.traces import Trace, view_text

Ints = npt.NDArray[np.intp]
LIMITS = (128, 64, 32)


def whole_text(text: str) -> str:
    """Text that can be written as UTF-8: surrogate pairs become their character, lone surrogates U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def cut_responses(
    tokenizer: Any, traces: Sequence[Trace], limits: Sequence[int] = LIMITS, chunk: int = 1000
) -> dict[int, list[Trace]]:
    """Traces whose responses end behind their first tokens.

    tokenizer : of the proxy whose tokens are counted; the first response token is the first one whose text reaches past
        the prefix of view ``ur``.
    traces : length n
    chunk : traces tokenised at once.
    Returns length n; a response of no more tokens than the limit stays as it is.
    """
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
            [text for _, text in pairs],
            add_special_tokens=False,
            truncation=True,
            max_length=MAX_TOKENS,
            return_offsets_mapping=True,
            return_attention_mask=False,
        )["offset_mapping"]
        for trace, (prefix, _), offsets in zip(part, pairs, found, strict=True):
            yield trace, [end - len(prefix) for _, end in offsets if end > len(prefix)]

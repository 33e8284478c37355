"""From a trace to proxy tokens and the span of its response (paper, Dynamic Provenance Setting).

No special tokens, right truncation. The response span starts at the first token whose text reaches past the
prefix, so a token that straddles the boundary belongs to the response. Where the span is empty (a prompt that
fills the whole window, an empty response) the last kept token stands in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from backend.traces import Trace, View, view_text

MAX_TOKENS = 1024
Span = Literal["offsets", "prefix-count"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One trace in proxy tokens.

    Attributes
    ----------
    ids : list of int
        Kept tokens, at least one.
    start : int
        First response token; the response is ``ids[start:]`` and never empty.
    prompt : int
        Traces with equal prompts carry the same number.
    """

    ids: list[int]
    start: int
    prompt: int

    @property
    def response_tokens(self) -> int:
        """Number of response tokens ``T``."""
        return len(self.ids) - self.start


def encode(
    tokenizer: Any,
    traces: Sequence[Trace],
    view: View,
    *,
    max_tokens: int = MAX_TOKENS,
    span: Span = "offsets",
    special_tokens: bool = False,
) -> list[Encoded]:
    """Tokenise traces and find their response spans.

    Parameters
    ----------
    tokenizer : fast Hugging Face tokenizer
    traces : sequence of Trace, length n
    view : {'ur', 'r'}
    max_tokens : int
        Right truncation of the whole text.
    span : {'offsets', 'prefix-count'}
        How the first response token is found. 'prefix-count' counts the tokens of the separately tokenised
        prefix, as the paper's release does; it can be off by one where a token straddles the boundary.
    special_tokens : bool
        Let the tokenizer add its own (a bidirectional sentence encoder expects them).

    Returns
    -------
    list of Encoded, length n
    """
    pairs = [view_text(trace, view) for trace in traces]
    texts = [text for _, text in pairs]
    batch = tokenizer(
        texts,
        add_special_tokens=special_tokens,
        truncation=True,
        max_length=max_tokens,
        return_offsets_mapping=True,
        return_attention_mask=False,
    )
    prompts: dict[str, int] = {}
    counts: dict[str, int] = {}
    encoded = []
    for trace, (prefix, _), ids, offsets in zip(
        traces, pairs, batch["input_ids"], batch["offset_mapping"], strict=True
    ):
        if not ids:
            ids, offsets = [_filler(tokenizer)], [(0, 0)]
        if span == "prefix-count":
            if prefix not in counts:
                counts[prefix] = len(tokenizer(prefix, add_special_tokens=special_tokens)["input_ids"])
            start = counts[prefix]
        else:
            start = next((i for i, (_, end) in enumerate(offsets) if end > len(prefix)), len(ids))
        encoded.append(Encoded(list(ids), min(start, len(ids) - 1), prompts.setdefault(trace.prompt, len(prompts))))
    return encoded


def _filler(tokenizer: Any) -> int:
    """A token for texts that tokenise to nothing (an encoder drops lone control characters)."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id):
        if token is not None:
            return int(token)
    return 0

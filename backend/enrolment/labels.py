"""Search among labels: a model's name is often not the label that it was enrolled under."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

SHOWN = 8
OFFERED = 3  # labels in a question, in which eight would be too many to read
GRAMS = (2, 3)  # letters in a row that are compared
LEAST = 0.4
"""Smallest cosine of a match: of the names of 165 models every one then finds its label among the first three."""
WORDS: Mapping[str, str] = {
    **dict.fromkeys(("openai", "chatgpt"), "gpt"),
    **dict.fromkeys(("zai", "zhipu", "thudm"), "glm"),
    **dict.fromkeys(("alibaba", "tongyi"), "qwen"),
    **{"anthropic": "claude", "baidu": "ernie", "bytedance": "doubao", "liquidai": "lfm", "meta": "llama"},
    **{"microsoft": "phi", "mistralai": "mistral", "moonshotai": "kimi", "tencent": "hunyuan", "xai": "grok"},
    **{"ds": "deepseek", "inst": "instruct", "think": "thinking"},
}
"""Words that people write for others: makers for their models, and what labels shorten."""


def alike(typed: str, labels: Iterable[str]) -> list[str]:
    """Labels that a person may have meant, the likeliest first.

    Two and three letters or digits in a row are compared, and weigh the more the fewer labels have them; case, marks
    and words that no label has count for nothing. 'openai gpt 4o', 'GPT-4o' and 'gtp4o' all lead to 'gpt4o'. A label is
    never taken for another in silence, because a claim is about one source; this is for the words of an error.
    Returns at most eight; empty where none is like it.
    """
    spelled: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        spelled.setdefault(_spelling(label), []).append(label)
    spelled.pop("", None)
    counts = {spelling: _grams(spelling) for spelling in spelled}
    having = Counter(gram for grams in counts.values() for gram in grams)
    weights = {gram: math.log1p(len(counts) / labels_with) for gram, labels_with in having.items()}
    needed = _spelling(typed)
    query = _unit(_grams(needed), weights)
    likeness = {
        spelling: sum(share * query.get(gram, 0.0) for gram, share in _unit(grams, weights).items())
        for spelling, grams in counts.items()
    }
    found = sorted((one for one in likeness if likeness[one] >= LEAST), key=lambda one: -likeness[one])
    # Of a short name one wrong letter spoils most pairs.
    found = found or get_close_matches(needed, spelled, n=SHOWN, cutoff=0.7)
    return [label for one in found for label in spelled[one]][:SHOWN]


def did_you_mean(typed: str, labels: Iterable[str]) -> str:
    """The beginning of a remedy, such as 'Did you mean gpt4o? '; empty where no label is like it."""
    near = alike(typed, labels)[:OFFERED]
    return f"Did you mean {' or '.join(near)}? " if near else ""


def _spelling(text: str) -> str:
    """Letters and digits alone; a word stands once, as labels have it."""
    parts = [WORDS.get(part, part) for part in re.findall(r"[^\W\d_]+|\d+", text.casefold())]
    return "".join(part for i, part in enumerate(parts) if part.isdecimal() or part not in parts[:i])


def _grams(spelling: str) -> Counter[str]:
    marked = f"^{spelling}$"
    return Counter(marked[i : i + n] for n in GRAMS for i in range(len(marked) - n + 1)) if spelling else Counter()


def _unit(grams: Mapping[str, int], weights: Mapping[str, float]) -> dict[str, float]:
    """Weighted counts of unit length; of grams without a weight nothing."""
    weighted = {gram: count * weights[gram] for gram, count in grams.items() if gram in weights}
    length = math.sqrt(sum(value * value for value in weighted.values()))
    return {gram: value / length for gram, value in weighted.items()}

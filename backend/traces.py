"""Traces, observed prompt-response pairs, and how a proxy gets to see them (paper, Dynamic Provenance Setting).

Two input views exist: ``ur`` shows the proxy prompt and response, ``r`` the response alone, both without chat template.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

View = Literal["ur", "r"]
VIEWS: tuple[View, ...] = ("ur", "r")


@dataclass(frozen=True, slots=True)
class Trace:
    """One observed interaction."""

    prompt: str  # what was sent to the source; may be empty when only the response was observed
    response: str  # what came back; may be empty


def whole_text(text: str) -> str:
    """Text that can be written as UTF-8: surrogate pairs become their character, lone surrogates U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def view_text(trace: Trace, view: View) -> tuple[str, str]:
    """Serialise a trace: its prefix, which is context only, and the text of prefix and response.

    An empty response is one space in view ``r``.
    """
    if view == "ur":
        prefix = f"Prompt:\n{trace.prompt}\n\nResponse:\n"
        return prefix, prefix + trace.response
    return "", trace.response or " "

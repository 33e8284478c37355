"""A trace is one observed prompt-response pair; this module says how a proxy gets to see it.

Section "Dynamic Provenance Setting" of the paper. Two input views exist: ``ur`` shows the proxy the
prompt and the response, ``r`` the response alone. No chat template is applied in either.
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


def view_text(trace: Trace, view: View) -> tuple[str, str]:
    """Serialise a trace for the proxy.

    Returns prefix: The part of the text that is context only; its tokens carry no response state; text: Prefix and
        response together; an empty response is one space in view ``r``.
    """
    if view == "ur":
        prefix = f"Prompt:\n{trace.prompt}\n\nResponse:\n"
        return prefix, prefix + trace.response
    return "", trace.response or " "

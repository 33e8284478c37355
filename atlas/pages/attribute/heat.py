"""Token evidence as text: every token on a ground as strong as its log-odds, with the sum that must be the score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dash import html
from dash.development.base_component import Component

from atlas.pages.attribute import frames

STRONGEST = 5
"""Tokens that are named in words for each side."""


def heat_map(evidence: Mapping[str, Any]) -> Component:
    """The response of one trace as a heat map, with its legend and its sum.

    Parameters
    ----------
    evidence : mapping
        source, rival, log_odds, stored, pieces (text, start, stop, value) and rest (text beyond the proxy's window).
    """
    pieces = frames.pieces(evidence)
    largest = float(pieces["log_odds"].abs().max()) if len(pieces) else 0.0
    spans = [
        html.Span(
            token,
            title=f"{number(value, 4)} nats",
            className="token token-for" if value >= 0 else "token token-against",
            style={"--weight": f"{_strength(value, largest):.3f}"},
        )
        for token, value in zip(pieces["token"], pieces["log_odds"], strict=True)
    ]
    if evidence["rest"]:
        spans.append(html.Span(evidence["rest"], className="token-rest", title="Beyond what the proxy reads"))
    return html.Div(
        className="heat",
        children=[
            _legend(evidence, largest),
            html.Div(
                spans,
                className="heat-text",
                dir="auto",
                tabIndex=0,
                role="group",
                **{"aria-label": "Response with the evidence of its tokens"},
            ),
            html.P(sum_words(evidence), className="sentence", id="heat-sum"),
            *_strongest(evidence),
        ],
    )


def sum_words(evidence: Mapping[str, Any]) -> list[Component | str]:
    """The sum of the tokens beside the score that it must equal."""
    total, odds, stored = float(frames.pieces(evidence)["log_odds"].sum()), evidence["log_odds"], evidence["stored"]
    return [
        f"The {len(evidence['pieces']):,} pieces of text add up to ",
        html.Span(f"{number(total, 4)} nats", className="count"),
        f" ({number(total / math.log(10), 2)} in log10); the score's difference is ",
        html.Span(f"{number(float(odds), 4)} nats", className="count"),
        "." if odds == stored else f" ({number(float(stored), 4)} after the rounding of the stored fingerprint).",
    ]


def _legend(evidence: Mapping[str, Any], largest: float) -> Component:
    steps = [html.Span(className="token token-against", style={"--weight": f"{w:.2f}"}) for w in (1, 0.66, 0.33)]
    steps += [html.Span(className="token token-for", style={"--weight": f"{w:.2f}"}) for w in (0.33, 0.66, 1)]
    return html.Div(
        className="heat-legend",
        children=[
            html.Span(["speaks for ", html.Span(evidence["rival"], className="name", dir="auto")]),
            html.Span(steps, className="heat-steps", **{"aria-hidden": "true"}),
            html.Span(["speaks for ", html.Span(evidence["source"], className="name", dir="auto")]),
            html.Span(
                f"full colour at {number(largest, 2).lstrip('+')} nats; dotted below: for the rival", className="soft"
            ),
        ],
    )


def _strongest(evidence: Mapping[str, Any]) -> list[Component]:
    pieces = frames.pieces(evidence)
    said = []
    for sign, side in ((1, evidence["source"]), (-1, evidence["rival"])):
        weighed = pieces[pieces["log_odds"] * sign > 0].sort_values("log_odds", ascending=sign < 0).head(STRONGEST)
        if weighed.empty:
            continue
        words: list[Component | str] = ["Strongest for ", html.Span(side, className="name", dir="auto"), ": "]
        for token, value in zip(weighed["token"], weighed["log_odds"], strict=True):
            words += [html.Code(visible(token), dir="auto"), f" {number(value, 2)}  "]
        said.append(html.P(words, className="sentence"))
    return said


def visible(token: str) -> str:
    """A token with its blanks made visible."""
    return token.replace("\n", "↵").replace("\t", "⇥").replace(" ", "␣") or "(nothing)"


def number(value: float, digits: int) -> str:
    """A signed number with a real minus."""
    return f"{value:+,.{digits}f}".replace("-", "−")


def _strength(value: float, largest: float) -> float:
    return min(1.0, abs(value) / largest) if largest > 0 else 0.0

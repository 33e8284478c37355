"""Token evidence as text: every token on a ground as strong as its log-odds, with the sum that must be the score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dash import html
from dash.development.base_component import Component

from atlas.figures.evidence import number
from atlas.pages.attribute import frames

STRONGEST = 5  # tokens that are named in words for each side


def heat_map(evidence: Mapping[str, Any]) -> Component:
    """The response of one trace as a heat map, with its legend and its sum.

    evidence : source, rival, log_odds, stored, pieces (text, start, stop, value) and rest (text beyond the window).
    """
    pieces = frames.pieces(evidence)
    largest = float(pieces["log_odds"].abs().max()) if len(pieces) else 0.0
    spans = [
        html.Span(
            token,
            title=f"{number(value, 4)} nats",
            className="token token-for" if value >= 0 else "token token-against",
            style={"--weight": f"{abs(value) / largest if largest > 0 else 0.0:.3f}"},
        )
        for token, value in zip(pieces["token"], pieces["log_odds"], strict=True)
    ]
    if evidence["rest"]:
        spans.append(html.Span(evidence["rest"], className="token-rest", title="Beyond what the proxy reads"))
    label = "Response with the evidence of its tokens"
    text = html.Div(spans, className="heat-text", dir="auto", tabIndex=0, role="group", **{"aria-label": label})
    total = html.P(sum_words(evidence), className="sentence", id="heat-sum")
    return html.Div([_legend(evidence, largest), text, total, *_strongest(evidence)], className="heat")


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
    steps = [
        html.Span(className=f"token token-{side}", style={"--weight": f"{weight:.2f}"})
        for side, weights in (("against", (1, 0.66, 0.33)), ("for", (0.33, 0.66, 1)))
        for weight in weights
    ]
    rival, source = (html.Span(evidence[side], className="name", dir="auto") for side in ("rival", "source"))
    scale = f"full colour at {number(largest, 2).lstrip('+')} nats; dotted below: for the rival"
    children = [
        html.Span(["speaks for ", rival]),
        html.Span(steps, className="heat-steps", **{"aria-hidden": "true"}),
        html.Span(["speaks for ", source]),
        html.Span(scale, className="soft"),
    ]
    return html.Div(children, className="heat-legend")


def _strongest(evidence: Mapping[str, Any]) -> list[Component]:
    pieces = frames.pieces(evidence)
    lines = []
    for sign, side in ((1, evidence["source"]), (-1, evidence["rival"])):
        weighed = pieces[pieces["log_odds"] * sign > 0].sort_values("log_odds", ascending=sign < 0).head(STRONGEST)
        if weighed.empty:
            continue
        words: list[Component | str] = ["Strongest for ", html.Span(side, className="name", dir="auto"), ": "]
        for token, value in zip(weighed["token"], weighed["log_odds"], strict=True):
            words += [html.Code(visible(token), dir="auto"), f" {number(value, 2)}  "]
        lines.append(html.P(words, className="sentence"))
    return lines


def visible(token: str) -> str:
    """A token with its blanks made visible."""
    return token.replace("\n", "↵").replace("\t", "⇥").replace(" ", "␣") or "(nothing)"

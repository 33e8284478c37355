"""What the parts of the page are made of: a numbered step, the progress of a job, one number of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from atlas import shell

NOTHING = {"width": "0%"}  # style of a bar before anything has been read


def step(number: int, title: str, identity: str, children: Sequence[Component]) -> Component:
    """A numbered step with its heading on the left."""
    return html.Section(
        className="step",
        **{"aria-labelledby": identity},
        children=[
            html.H2([html.Span(f"{number}", className="step-number"), title], id=identity),
            html.Div(list(children), className="step-body"),
        ],
    )


def progress(prefix: str, said: Component | None = None, below: Sequence[Component] = ()) -> Component:
    """How far a job is: words, a way to cancel, and a bar.

    Parameters
    ----------
    prefix : str
        Of the ids: -progress, -words, -cancel, -bar.
    said : Component, optional
        What is said beside the button.
    below : sequence of Component
        What is shown under the bar.
    """
    return html.Div(
        id=f"{prefix}-progress",
        className="progress",
        hidden=True,
        children=[
            html.Div(
                className="progress-line",
                children=[
                    html.Span(id=f"{prefix}-words", role="status"),
                    html.Button("Cancel", id=f"{prefix}-cancel", className="button"),
                    *([] if said is None else [said]),
                ],
            ),
            html.Div(
                html.Div(id=f"{prefix}-bar", className="progress-fill", style=NOTHING),
                className="progress-track",
                **{"aria-hidden": "true"},
            ),
            *below,
        ],
    )


def bar(done: int, total: int) -> dict[str, str]:
    """Style of the bar of a job."""
    return {"width": f"{100 * done / max(total, 1):.1f}%"}


def fact(word: str, meaning: str, value: str, note: str) -> Component:
    """One number of an answer, with its name and what it says."""
    return html.Div(
        [
            html.Dt(shell.term(word, meaning) if meaning else word),
            html.Dd([html.Span(value, className="fact-value"), html.Span(note, className="fact-note")]),
        ]
    )

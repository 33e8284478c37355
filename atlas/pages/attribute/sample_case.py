"""A case of the shipped sample, run in place for somebody who has none of their own."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import request

from atlas.pages.attribute import visitor, work
from atlas.pages.attribute.sections import Clicks, Stored
from backend.attribution.settings import Settings
from backend.enrolment.stories import stories
from backend.errors import AtlasError

OUTCOME = "AGAINST"  # of the case that is preferred: a plain answer, of few traces
BEGUN = "The sample's traces are being read …"


def offer() -> list[Component]:
    """The button that runs the case, and its progress; nothing in an installation without samples."""
    try:
        stories("attribute")
    except AtlasError:
        return []
    return [
        html.Button("Show a sample case", id="sample-run", className="button button-main"),
        html.P(id="sample-so-far", className="sentence", role="status"),
        dcc.Store(id="sample-job"),
        dcc.Interval(id="sample-tick", interval=work.POLL_MS, disabled=True),
    ]


def register(app: Dash, shown: str) -> None:
    """Callbacks; ``shown`` is the field of a page whose value is set again once the case is answered."""

    @app.callback(
        Output("sample-job", "data"),
        Output("sample-so-far", "children"),
        Output("sample-run", "disabled"),
        Output("sample-tick", "disabled"),
        Input("sample-run", "n_clicks"),
        prevent_initial_call=True,
    )
    def run(clicks: Clicks) -> Any:
        if not clicks:
            return (no_update,) * 4
        try:
            return _started(), BEGUN, True, False
        except AtlasError as error:
            visitor.count_refusal(error)
            return None, visitor.refusal(error), False, True

    @app.callback(
        Output("sample-so-far", "children", allow_duplicate=True),
        Output("sample-run", "disabled", allow_duplicate=True),
        Output("sample-tick", "disabled", allow_duplicate=True),
        Output(shown, "value", allow_duplicate=True),
        Input("sample-tick", "n_intervals"),
        State("sample-job", "data"),
        State(shown, "value"),
        prevent_initial_call=True,
    )
    def follow(_ticks: int | None, job: Stored, value: Any) -> Any:
        if not job:
            return (no_update,) * 4
        service, key = visitor.service(), visitor.session()
        try:
            snapshot = service.progress(key, str(job))
            if snapshot.state in ("queued", "running"):
                return work.words(snapshot), no_update, no_update, no_update
            service.report(key, str(job))  # which says why one that failed did
        except AtlasError as error:
            return visitor.refusal(error), False, True, no_update
        return None, no_update, True, value


def _started() -> str:
    """Job of the first case whose ecosystem is enrolled here, in the visitor's session."""
    key, service = visitor.opened_session(), visitor.service()
    for story in sorted(stories("attribute"), key=lambda one: one.outcome != OUTCOME):
        (upload,) = service.tried(key, story)
        if upload.enrolment is not None:
            case = f"Sample: {story.name.removesuffix('.')}"
            settings = Settings(enrolment=upload.enrolment, claimed=story.claim, case=case)
            return service.start(key, upload.key, settings, client=request.remote_addr)
    raise AtlasError("No ecosystem of the samples is enrolled here", "Run: python -m jobs enroll --sample")

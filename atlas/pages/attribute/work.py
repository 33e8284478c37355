"""Step 3: the work. Start, progress with the first evidence after the first batch, cancel, and on to the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component
from flask import request

from atlas import shell
from atlas.data import questions
from atlas.drawing import blank
from atlas.figures.evidence import running_evidence
from atlas.figures.plots import count
from atlas.pages.attribute import intake, question, result, sections, verdict, visitor
from atlas.pages.attribute.sections import Clicks, Stored, Text
from atlas.state import View
from atlas.theme import Theme
from backend.errors import AtlasError
from backend.service.job import Snapshot
from backend.service.service import NO_WORKER
from backend.service.uploads import MissingError

POLL_MS = 600  # until the server is asked again for a job that has not ended
WARM_MS = 2_000  # the same for a proxy that is not there yet
STATES = {
    "absent": "No ecosystem is enrolled on this server",
    "loading": "The proxy {proxy} is being loaded; you can choose traces meanwhile",
    "ready": "Ready",
    "failed": "The proxy {proxy} cannot be loaded",
}


def step() -> Component:
    """The step's layout."""
    graph = sections.drawing("attr-live", blank("dark"))
    drawn = html.Div(graph, className="live-graph", role="img", **shell.aria(label="Evidence so far"))
    start = [
        html.Button(intake.RUN, id="attr-go", className="button button-main", disabled=True),
        sections.hint(None, id="attr-go-why"),
        html.Div("Looking at the proxy …", id="attr-ready", className="ready", role="status"),
        html.Div("Reading the file …", id="attr-starting", className="ready ready-loading", role="status", hidden=True),
    ]
    return sections.step(
        3,
        "Evidence",
        "attr",
        html.Div(start, className="row"),
        html.P(id="attr-judge", className="hint", role="status"),
        sections.notice("attr-go-problem"),
        sections.progress("attr", html.P(id="attr-so-far", className="sentence"), drawn, message={}),
    )


def too_few(traces: int) -> str:
    """What a run of fewer traces than the rule needs comes to; '' of enough."""
    if traces >= question.FEWEST:
        return ""
    return f"{traces:,} of the {question.FEWEST} traces needed: the answer will be INCONCLUSIVE, that we cannot say."


def words(snapshot: Snapshot) -> str:
    """How far a job is, in a sentence."""
    many = count(snapshot.total, "trace")
    if snapshot.state == "queued":
        ahead = f"; {snapshot.waiting:,} in front" if snapshot.waiting else ""
        return f"Waiting for the proxy{ahead}. {many} to read."
    if snapshot.state == "running" and snapshot.further and not snapshot.done:
        return f"{snapshot.further:,} responses of the added traffic are read, before {many}."
    if snapshot.state == "running" and not snapshot.done:
        return f"Reading the first of {many}."
    if snapshot.further_total and snapshot.done == snapshot.total:
        return f"{many} read; {snapshot.further:,} of {snapshot.further_total:,} with the further readers."
    return f"{snapshot.done:,} of {many} read{time_left(snapshot.done, snapshot.total, snapshot.seconds)}."


def time_left(done: int, total: int, seconds: float) -> str:
    """How long ``done`` of ``total`` traces took, and about how long the rest takes."""
    left = f", about {(total - done) * seconds / done:,.0f} s left" if seconds > 0 and done else ""
    return f", {seconds:,.0f} s{left}"


def so_far(snapshot: Snapshot, names: Mapping[str, str]) -> str:
    """What the traces so far say, in a sentence with readable names."""
    if not snapshot.nearest:
        return "The first evidence appears after the first batch."
    subject, *nearest = (names.get(one, one) for one in (snapshot.points[-1].subject, *snapshot.nearest[:3]))
    return (
        f"Nearest so far, by the plain sum and not yet calibrated: {', '.join(nearest)}. The curve is about {subject}."
    )


def _names_of(job: str) -> Mapping[str, str]:
    """Readable names of the sources that a job compares; none where its file was deleted."""
    try:
        _, settings = visitor.service().file_of(visitor.session(), job)
    except MissingError:
        return {}
    one = question.ecosystem(settings.enrolment)
    return {} if one is None else one.facts.get("names") or {}


def register(app: Dash) -> None:
    """Callbacks of the step and of the result."""
    sections.client(
        app, "follow", "attr-followed.data", "attr-progress.hidden attr-root.className", "attr-followed.data"
    )

    @sections.callback(
        app, "attr-ready.children attr-ready.className attr-warm.disabled", "attr-warm.n_intervals", prevent=False
    )
    def warm(_ticks: int | None) -> Any:
        state = visitor.service().state()
        text = STATES[state.status].format(proxy=state.proxy or "").replace("  ", " ")
        parts: list[Any] = [text, "."]
        if (state.problem, state.remedy) == NO_WORKER:
            return html.Span(f"{state.problem}; what you start waits for one."), "ready ready-failed", False
        if state.status in ("failed", "absent"):
            why = f" {state.problem}." if state.problem and state.status == "failed" else ""
            before, *command = visitor.remedy(state.remedy or "")
            parts += [f"{why} {before}", *command]
        return html.Span(parts), f"ready ready-{state.status}", state.status == "ready"

    @sections.callback(
        app,
        "attr-go.disabled attr-go.title attr-go-why.children attr-go-now.disabled attr-go-words.children "
        "attr-go.children attr-go-now.children attr-go-ask.disabled attr-go-ask.children",
        "attr-upload.data attr-columns.data attr-ecosystem.value attr-job.data attr-claim.value attr-prefilled.data",
        prevent=False,
    )
    def may_go(upload: Stored, columns: Stored, ecosystem: Text, job: Text, claim: Text, looked: Stored) -> Any:
        if job:
            reading = "These traces are being read"
            return True, reading, f"{reading}.", True, f"{reading}.", intake.RUN, intake.RUN, True, intake.RUN
        read = upload and (columns or {}).get("traces")
        missing = [word for word, there in (("traces", read), ("an ecosystem", ecosystem)) if not there]
        if upload and columns and not read:
            missing = ["the column of the responses"]
        why = f"Choose {' and '.join(missing)} first" if missing else ""
        key = (columns or {}).get("key")
        if (
            not missing
            and key
            and not claim
            and ((looked or {}).get("key"), (looked or {}).get("ecosystem")) != (key, ecosystem)
        ):
            why = "Looking for a model that the file names"
        asks = "Asks which enrolled source it is. To test a claim, name it in step 2 first."
        if claim:
            asks = f"Asks: is it {sections.known_sources(questions()).get(claim, claim)}?"
        few = too_few(read) if read else ""
        said, now = (f"{why}.", f"{why}.") if why else (few, few or asks)
        run = "Run anyway" if few and not why else intake.RUN
        return bool(why), why, said, bool(why), now, run, run, bool(why), run

    _running(app)
    _results(app)


def _running(app: Dash) -> None:
    @app.callback(
        output=sections.places(Output, "attr-job.data attr-go-problem.children attr-cancel-said.children"),
        inputs={"clicks": [Input(name, "n_clicks") for name in ("attr-go", "attr-go-now", "attr-go-ask")]},
        state={
            "upload": State("attr-upload", "data"),
            "columns": State("attr-columns", "data"),
            "mapped": [State(select, "value") for select in intake.SELECTS],
            "encoding": State("attr-encoding", "value"),
            "chosen": question.CHOICES,
            "pool": State("attr-background-key", "data"),
        },
        running=[(Output("attr-starting", "hidden"), False, True), (Output("attr-ready", "hidden"), True, False)],
        prevent_initial_call=True,
    )
    def start(
        clicks: list[Clicks], upload: Stored, columns: Stored, mapped: list[Text], encoding: Text,
        chosen: dict[str, Any], pool: Text,
    ) -> Any:  # fmt: skip
        if not any(clicks) or not upload:
            return (no_update,) * 3
        try:
            recognised = (columns or {}).get("recognised")
            settings = question.settings(chosen, intake.given(recognised, mapped), encoding or None)
            key = visitor.admitted()
            client = request.remote_addr
            job = visitor.service().start(key, upload["key"], settings, client=client, background=pool)
            return job, None, None
        except AtlasError as error:
            return no_update, visitor.refusal(error), no_update

    @sections.callback(
        app,
        "attr-progress.hidden attr-words.children attr-so-far.children attr-bar.style attr-live.figure "
        "attr-tick.disabled attr-ended.data attr-job.data* attr-go-problem.children*",
        "attr-tick.n_intervals attr-job.modified_timestamp",
        "attr-job.data attr-so-far.children theme.data attr-progress.hidden attr-ended.data",
        prevent="initial_duplicate",
    )
    def tick(
        _ticks: int | None, _changed: int | None, job: Text, before: Text, theme: Theme, hidden: bool, last: Text
    ) -> Any:
        over = (True, None, None, sections.NOTHING, no_update, True, None)  # progress hidden, and no further tick
        if not job:
            return *over, no_update, no_update
        try:
            snapshot = visitor.service().progress(visitor.session(), job)
        except MissingError:
            return *over, None, no_update
        names = _names_of(job)
        sentence = so_far(snapshot, names)
        drawn: Any = no_update
        if sentence != before:
            points = [asdict(point) | {"leader": names.get(point.leader, point.leader)} for point in snapshot.points]
            look: Theme = theme or "dark"
            drawn = running_evidence(points, theme=look, total=snapshot.total) if points else blank(look)
        ended = snapshot.ended
        if ended and not snapshot.reported:
            why = snapshot.problem or "The work was cancelled before the first batch"
            return *over, None, visitor.refusal(AtlasError(why, snapshot.remedy or visitor.PRESS))
        bar, result = sections.bar(snapshot), job if ended else None
        # What others wait for is given where it changes: each of them costs the browser as much as all of this.
        shown, told = (no_update if now == was else now for now, was in ((ended, hidden), (result, last)))
        return shown, words(snapshot), sentence, bar, drawn, ended, told, no_update, None

    cancelling(app, "attr", "job", "kept and answered")


def cancelling(app: Dash, prefix: str, jobs: str, then: str) -> None:
    """A callback that cancels the jobs of a part of the page; ``then`` says what becomes of what has been read."""

    @sections.callback(app, f"{prefix}-cancel-said.children*", f"{prefix}-cancel.n_clicks", f"{prefix}-{jobs}.data")
    def cancel(clicks: Clicks, job: str | list[str] | None) -> Any:
        if not clicks or not job:
            return no_update
        try:
            for one in [job] if isinstance(job, str) else job:
                visitor.service().cancel(visitor.session(), one)
        except AtlasError as error:
            return str(error)
        return f"Stopping after this batch; what has been read is {then}."


def _results(app: Dash) -> None:
    @sections.callback(
        app,
        "attr-result.children attr-root.className attr-again-words.children",
        "attr-ended.data",
        "reader.value roster.value domain.value theme.data",
        prevent=False,
    )
    def shown(job: Text, reader: str, roster: str, domain: str, theme: Theme) -> Any:
        if not job:
            return None, "attr", None
        service, key = visitor.service(), visitor.session()
        try:
            report, (upload, _) = service.report(key, job), service.file_of(key, job)
        except AtlasError as error:
            return visitor.refusal(error), "attr", None
        cache = questions()
        view = View(theme=theme or "dark")
        if cache.problem() is None:
            view = shell.shared_view(reader, roster, domain, theme)
        many, others = report["results"]["traces"], len(report["reference"]["sources"])
        what = f"{report['input']['name']} · {count(many, 'trace')} · compared with {others:,} sources"
        answer = intake.add_solution(
            result.result(report, cache, view), "attribute", [upload], report["reference"]["sources"]
        )
        return answer, "attr stage-result", what

    @sections.callback(
        app,
        "attr-job.data* attr-upload.data* attr-cancel-said.children* attr-claim.value* attr-wanted.data*",
        "attr-back.n_clicks attr-forget.n_clicks",
        "attr-wanted.data",
    )
    def again(back: Clicks, forget: Clicks, link: dict[str, str]) -> Any:
        if ctx.triggered_id == "attr-forget" and forget:
            if key := visitor.session():
                visitor.service().forget(key)
            return None, None, None, None, {**link, "claim": ""}
        return (None, no_update, None, no_update, no_update) if back else (no_update,) * 5

    @app.callback(
        Output("attr-download", "data"),
        Input({"type": "attr-export", "kind": ALL}, "n_clicks"),
        State("attr-job", "data"),
        prevent_initial_call=True,
    )
    def export(clicks: list[Clicks], job: Text) -> Any:
        if not any(clicks) or not job or not isinstance(ctx.triggered_id, dict):
            return no_update
        kind = str(ctx.triggered_id["kind"])
        text = visitor.service().export(visitor.session(), job, kind)
        name = verdict.file_name(visitor.service().report(visitor.session(), job))
        media = {"html": "text/html", "json": "application/json", "csv": "text/csv"}[kind]
        return {"content": text, "filename": f"{name}.{kind}", "type": media}

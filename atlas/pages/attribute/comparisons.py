"""Two windows of one endpoint (paper, Limitations: drift), traces against a reference, or a report to check.

Each part takes files, runs jobs on them, follows the jobs, and shows the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from flask import request

from atlas import shell
from atlas.data import questions
from atlas.figures.plots import count
from atlas.pages.attribute import intake, question, sections, visitor, work
from atlas.pages.attribute.comparison_answers import (
    check_answer,
    in_common_words,
    judged_by,
    other_result,
    power,
    reference_box,
    reference_text,
    to_compare_words,
    windows_answer,
    windows_text,
)
from atlas.pages.attribute.sections import Clicks, Stored, Text, live
from atlas.theme import Theme
from backend.attribution.comparison_page import write_comparison
from backend.attribution.drift_report import FEWEST, SAME_RESPONSES
from backend.attribution.report_words import verdict_words
from backend.attribution.settings import DEFAULTS, of_windows
from backend.enrolment.catalogue import title_of
from backend.enrolment.stories import stories
from backend.errors import AtlasError, OtherResultError
from backend.inference.drift import FEWEST_PAIRED, expected
from backend.intake import Columns
from backend.service.job import Snapshot
from backend.service.uploads import MissingError

if TYPE_CHECKING:
    pass
POLL_MS = 700
REFUSED = {"unread": True}
"""In place of a file: else a refused second window would leave the halves of the first one to be compared."""
LATER = " The answer states it for your traces and prompts."
TOO_FEW = "The files have too few prompts in common."
STORIES = {"win": "windows", "ref": "reference"}  # what the sample's stories call a part
SEVERAL = ("win", "before")  # the place that takes the files of both windows at once
OVER = (True, None, sections.NOTHING, True)  # progress hidden, and no further tick


@dataclass(frozen=True)
class Part:
    """One part of the page: its words, and the names of its components."""

    prefix: str  # of its ids
    job: str  # end of the id of the store of its jobs
    files: Mapping[str, Sequence[str]]  # kind of a file to the words of its place, and what may be dropped there
    steps: tuple[str, str]  # their titles
    button: str
    lead: str
    needed: int = 1  # so many of its files must be given
    compares: bool = True  # with an ecosystem of the reader's choice; can try a sample


def _describe_report(upload: Mapping[str, Any]) -> Component:
    """What a report says it is; nothing of it is believed yet."""
    report = visitor.service().read_report(visitor.session(), upload["key"])
    results = report["results"] if isinstance(report["results"], dict) else {}
    many = len(report["traces"]) if isinstance(report["traces"], list) else 0
    about = report["input"].get("name", "") if isinstance(report["input"], dict) else ""
    case = str(report.get("case", ""))
    question_of = str(report.get("question", ""))
    if isinstance(claimed := results.get("claimed"), str):
        asked = replace(DEFAULTS, claimed=claimed).question_text
        named_claim = sections.known_sources(questions()).get(claimed, claimed)
        if question_of == asked:
            question_of = replace(DEFAULTS, claimed=named_claim).question_text
    title = question_of if case == DEFAULTS.case else f"{case}:"
    parts = [
        html.Span(html.Strong(upload["name"], className="long", dir="auto")),
        html.Span(f"{title[:120]} {verdict_words({'verdict': '', **results})[:20]}", dir="auto"),
        html.Span(
            [html.Strong(count(many, "trace")), " of ", html.Span(str(about)[:120], className="long", dir="auto")]
        ),
    ]
    return html.Div(parts, className="preview-facts")


WINDOWS = Part(
    "win",
    "jobs",
    {
        "before": [
            "First window: drop a file",
            "Drop two files here to fill both windows, in the order of their names",
        ],
        "after": ["Second window: drop a file"],
    },
    ("Windows", "Test"),
    "Compare the windows",
    "Traces of one endpoint from two times. Use the same prompts in both windows, or a change of questions looks like "
    f"a change of model. Each window needs {FEWEST} traces at least; the model need not be enrolled. One file alone is "
    "split into its first and second half.",
)
REFERENCE = Part(
    "ref",
    "jobs",
    {
        "traces": ["Traces of the endpoint: drop a file"],
        "reference": ["Answers of the reference: drop a file", "The claimed model's, from an endpoint that you trust"],
        "rival": ["A rival's answers (optional)", "A sibling's or another model's, to the same prompts"],
    },
    ("Answers to the same prompts", "Test"),
    "Compare with the reference",
    "Ask the claimed model the very prompts of your traces, through an endpoint that you trust and with the same "
    f"settings. Answers are compared prompt by prompt, {FEWEST_PAIRED} prompts at least; the model needs no enrolment.",
    needed=2,
)
CHECK = Part(
    "check",
    "job",
    {
        "report": ["Drop the report", "As it was saved from its answer: HTML or JSON"],
        "traces": ["Drop its traces", "The file that the report is about, in any form that the atlas reads"],
    },
    ("Report", "Check"),
    "Check the report",
    "The report's hashes show whether it was changed after it was written. Its traces, read once more by the same "
    "ecosystem, show whether its numbers are right. Without traces only the hashes are checked, and so they are of a "
    "result of Two windows or Claim against reference.",
    compares=False,
)
PARTS = {"two": WINDOWS, "reference": REFERENCE, "check": CHECK}
"""The parts by the mode of the page that shows them; one that nobody has looked at is not in the page."""


def _stores(part: Part) -> list[Component]:
    """What a part remembers, and its clock."""
    names = [*(f"{kind}-{what}" for kind in part.files for what in ("upload", "file")), part.job, "done", "seen"]
    # Files and answer of two windows are there again when somebody comes back from another page.
    kept = [*(f"{kind}-upload" for kind in part.files), "done"] if part.compares else []
    if part.compares:
        names.append("few")
    if part is REFERENCE:
        names.append("taken")
    out: list[Component] = [
        dcc.Store(id=f"{part.prefix}-{name}", storage_type="session" if name in kept else "memory") for name in names
    ]
    out.append(dcc.Interval(id=f"{part.prefix}-tick", interval=POLL_MS, disabled=True))
    if part.compares:
        out.append(dcc.Download(id=f"{part.prefix}-download"))
    return [*out, dcc.Download(id="ref-prompts-file")] if part is REFERENCE else out


def page(part: Part) -> Component:
    """The steps of a part."""
    prefix = part.prefix
    drops = [
        intake.file_place(f"{prefix}-{kind}", *words, several=(prefix, kind) == SEVERAL)
        for kind, words in part.files.items()
    ]
    files = [html.P(part.lead, className="sentence"), sections.notice(f"{prefix}-problem")]
    files += [html.Div(drops, className="drops windows"), sections.hint(intake.STAYS)]
    if part is not WINDOWS:
        carry = html.Button(id=f"{prefix}-carry", className="button", hidden=True)
        files.insert(1, html.Div(carry, className="row"))
    if part is REFERENCE:
        name = dmc.TextInput(
            id="ref-claim", value="", size="sm", w=360, maw="100%", placeholder="Name of the claimed model (optional)",
            attributes={"input": {"maxLength": question.LONGEST, "dir": "auto", "aria-label": "Claimed model"}},
        )  # fmt: skip
        files.insert(1, html.Div(shell.labelled("Claimed model", "ref-claim", name), className="row"))
    if part.compares:
        # Previews of its files push the other one out of sight.
        now = html.Button(part.button, id=f"{prefix}-go-now", className="button button-main", hidden=True)
        files.insert(1, html.Div([now, sections.hint(None, id=f"{prefix}-common", role="status")], className="row"))
        files[2:2] = [_prompts()] if part is REFERENCE else []  # the sentence above asks for them
        sample = html.Button("Try a sample", id=f"{prefix}-sample", className="button")
        files.append(html.Div([sample, sections.hint("Nothing of yours is needed.")], className="row"))
        files.append(html.Div(id=f"{prefix}-sample-story", className="story", role="status"))
    main = "" if part.compares else " button-main"  # the one above the files is
    go = html.Button(part.button, id=f"{prefix}-go", className=f"button{main}", disabled=True)
    ecosystem = shell.select(
        f"{prefix}-ecosystem", "Compared by", size="sm", w=520, maw="100%",
        allowDeselect=False, placeholder="Looking for ecosystems …",
    )  # fmt: skip
    run = html.Div(
        [shell.labelled("Compared by", f"{prefix}-ecosystem", ecosystem), go, sections.hint(None, id=f"{prefix}-why")]
        if part.compares
        else go,
        className="row",
    )
    judge = [html.P(id=f"{prefix}-judge", className="hint", role="status")] if part.compares else []
    progress = sections.progress(prefix, message={"role": "status"} if part.compares else None)
    words = "Change files or settings" if part.compares else "Check another report"
    children = [
        html.Div(html.Button(words, id=f"{prefix}-back", className="quiet"), className="again"),
        sections.step(1, part.steps[0], prefix, *files),
        sections.step(2, part.steps[1], prefix, run, *judge, progress),
        sections.notice(f"{prefix}-result", "polite"),
        *_stores(part),
    ]
    return html.Div(children, className="comparison")


def _prompts() -> Component:
    """A download of the prompts that the reference has to be asked."""
    save = html.Button([shell.icon("download"), "Prompts to ask (JSONL)"], id="ref-prompts", className="button")
    words = "Exactly the prompts of these traces, each once. Ask them at the endpoint that you trust; drop its answers."
    return html.Div([save, sections.hint(words)], id="ref-prompts-place", className="row", hidden=True)


def register(app: Dash) -> None:
    """Callbacks of the parts."""
    for part in PARTS.values():
        for kind in part.files:
            _receive(app, part, kind)
            _show_file(app, part, kind)
        sections.client(
            app, "reveal", f"{part.prefix}-seen.data", f"{part.prefix}-result.children",
            f"{part.prefix}-result.id {part.prefix}-done.data {part.prefix}-seen.data",
        )  # fmt: skip
        sections.callback(app, f"{part.prefix}-done.data*", f"{part.prefix}-back.n_clicks")(_unfold)
        if part.compares:
            sections.client(
                app, "working", f"{part.prefix}-seen.data*", f"{part.prefix}-jobs.data", f"{part.prefix}-go.id"
            )
            text = f"{part.prefix}-text"
            sections.client(app, "copy", f"{text}-copy.children", f"{text}-copy.n_clicks", f"{text}.id")
            _sample(app, part)
            _run(app, part)
            _export(app, part)
    work.cancelling(app, "win", "jobs", "compared where it is enough")
    work.cancelling(app, "ref", "jobs", "not compared, since answers to a prompt belong together")
    _show_windows(app)
    _show_reference(app)
    _save_prompts(app)
    _carry(app)
    _check(app)


def _unfold(clicks: Clicks) -> Any:
    """Take the answer away, so that its form is there again."""
    return None if clicks else no_update


def _receive(app: Dash, part: Part, kind: str) -> None:
    place, both = f"{part.prefix}-{kind}", (part.prefix, kind) == SEVERAL
    outputs = f"{place}-upload.data* {place}.contents {part.prefix}-problem.children*"
    if both:
        outputs += f" {part.prefix}-{list(part.files)[1]}-upload.data*"

    @sections.callback(app, outputs, f"{place}.contents {place}-remove.n_clicks", f"{place}.filename attr-visit.data")
    def receive(contents: Any, _remove: Clicks, names: Any, visit: Text) -> Any:
        second = [no_update] if both else []
        if ctx.triggered_id == f"{place}-remove":
            return None, None, None, *second
        if not contents:
            return (no_update,) * (3 + len(second))
        given = sorted(zip(names, contents, strict=True)) if both else [(names or kind, contents)]
        try:
            if len(given) > 2:
                raise AtlasError(f"{len(given)} files were dropped, and there are two windows", "Drop two of them")
            session = visitor.opened_session(visit)
            stored = [
                intake.reference(visitor.service().upload(session, name, intake.decoded(content)))
                for name, content in given
            ]
            return stored[0], None, None, *(stored[1:] or second)
        except AtlasError as error:
            visitor.count_refusal(error)
            called = ", ".join(name for name, _ in given)
            return REFUSED, None, intake.refused(called, error), *second


def _show_file(app: Dash, part: Part, kind: str) -> None:
    """Say what a file is, let a person choose its columns, and show its first rows."""
    place, of_report = f"{part.prefix}-{kind}", part is CHECK and kind == "traces"
    places = [f"{part.prefix}-{one}" for one in part.files]
    roles = [f"{place}-{role}" for role in intake.CHOSEN]

    @app.callback(
        output={
            "file": Output(f"{place}-file", "data"),
            "head": Output(f"{place}-head", "children"),
            "take": Output(f"{place}-take", "children"),
            "untaken": Output(f"{place}-take", "hidden"),
            "unmapped": Output(f"{place}-mapping", "hidden"),
            "offered": [Output(role, "data") for role in roles],
            "values": [Output(role, "value") for role in roles],
            "rows": Output(f"{place}-rows", "children"),
            "empty": Output(f"{place}-remove", "hidden"),
            "problem": Output(f"{part.prefix}-problem", "children", allow_duplicate=True),
        },
        inputs={
            "upload": Input(f"{place}-upload", "data"),
            "takes": [Input(f"{one}-take", "n_clicks") for one in places],
            "values": [Input(role, "value") for role in roles],
            "report": Input("check-report-upload" if of_report else f"{place}-upload", "data"),
        },
        state={"files": [State(f"{one}-file", "data") for one in places]},
        prevent_initial_call=True,
    )
    def shown(upload: Stored, takes: list[Clicks], values: list[Text], report: Stored, files: list[Stored]) -> Any:
        pressed, last = str(ctx.triggered_id), files[places.index(place)]
        nothing: dict[str, Any] = {"head": None, "take": "", "untaken": True, "unmapped": True, "rows": None}
        nothing |= {"offered": [[], []], "values": [None, None], "problem": no_update}
        same: dict[str, Any] = dict.fromkeys((*nothing, "file", "empty"), no_update)
        same |= {"offered": [no_update] * 2, "values": [no_update] * 2}
        if not upload and pressed.startswith("check-report"):
            return same
        if not upload or upload == REFUSED:
            refused = "That file was not taken. Drop another one, or leave it out." if upload else None
            return nothing | {"file": upload, "head": refused, "empty": not upload}
        try:
            if part is CHECK and kind == "report":
                return nothing | {"file": upload, "head": _describe_report(upload), "empty": False, "problem": None}
            if pressed.endswith(("-upload", "None")) or not last or "recognised" not in last:
                found = intake.look(upload, *_given(upload, report if of_report else None))
                file = found["file"]
                if file.get("proposal") and any(one and one.get("shown") == file["proposal"] for one in files):
                    base = Columns(**file["base"])
                    found = intake.look(upload, base, file["encoding"], file["proposal"], file)
            else:
                chosen: list[Text] | None = values
                if pressed.endswith("-take"):
                    # Whoever takes columns in one file takes the same ones in the others.
                    proposal = (files[places.index(pressed.removesuffix("-take"))] or {}).get("proposal")
                    chosen = last.get("proposal") if any(takes) and last.get("proposal") == proposal else None
                if not chosen or chosen == last["shown"]:
                    return same
                found = intake.look(upload, Columns(**last["base"]), last["encoding"], chosen, last)
        except MissingError:
            return nothing | {"file": None, "head": "The file was deleted here. Drop it again.", "empty": True}
        except AtlasError as error:
            visitor.count_refusal(error)
            name, other = upload["name"], isinstance(error, OtherResultError)
            head = html.Strong(name, className="long", dir="auto")  # below, it is said that it was not taken
            told = other_result(name, error) if other else intake.refused(name, error)
            return nothing | {"file": REFUSED, "head": head, "empty": False, "problem": told}
        if of_report and report and "key" in report:
            found["head"] = [*found["head"], *_of_the_report(upload, report)]
        # What is wrong with the report is said in the same place.
        problem = no_update if pressed.startswith("check-report") else None
        return nothing | found | {"empty": False, "problem": problem}


def _given(upload: Mapping[str, Any], report: Stored) -> tuple[Columns, str | None]:
    """Columns and encoding that are known before a person chooses: those of a report, or of another place."""
    if report and "key" in report:
        try:
            return visitor.service().columns_for(visitor.session(), report["key"], upload["key"])
        except AtlasError:  # the report's own place says so
            pass
    return Columns(**upload.get("columns", {})), upload.get("encoding")


def _of_the_report(upload: Mapping[str, Any], report: Mapping[str, Any]) -> list[Component]:
    """Whether a file is the one that a report was made of."""
    try:
        about = visitor.service().read_report(visitor.session(), report["key"])["input"]
    except AtlasError:  # the report's own place says so
        return []
    if isinstance(about, dict) and about.get("sha256") == upload.get("sha256", upload["key"]):
        return [html.P("This is the file of the report, byte for byte.")]
    words = "This is not the report's own file, byte for byte; traces are compared one by one."
    return [html.P(words, className="flag")]


def _followed(look: Callable[[], Sequence[Snapshot]], failed: Sequence[str], failure: str, done: Any) -> Any:
    """Values of progress, words, bar, clock, ``done``, job and problem while jobs run and when they have ended."""
    try:
        jobs = look()
    except MissingError as error:
        return *OVER, None, None, visitor.refusal(error)
    wrong = next((job for job in jobs if job.state in failed), None)
    if wrong is not None:
        why = AtlasError(wrong.problem or failure, wrong.remedy or visitor.PRESS)
        return *OVER, None, None, visitor.refusal(why)
    if all(job.ended for job in jobs):
        return *OVER, done, None, None
    read, total = sum(job.done for job in jobs), sum(job.total for job in jobs)
    left = work.time_left(read, total, sum(job.seconds for job in jobs))
    words = f"{read:,} of {total:,} traces read{left}." if read else "Waiting for the proxy."
    return False, words, sections.bar(*jobs), False, no_update, no_update, None


def _sample(app: Dash, part: Part) -> None:
    prefix, sides = part.prefix, [f"{part.prefix}-{kind}" for kind in part.files][:2]
    outputs = " ".join(f"{side}-upload.data*" for side in sides)

    @sections.callback(
        app,
        f"{outputs} {prefix}-sample-story.children {prefix}-ecosystem.value* {prefix}-problem.children*",
        f"{prefix}-sample.n_clicks",
    )
    def sample(clicks: Clicks) -> Any:
        if not clicks:
            return (no_update,) * 5
        try:
            session = visitor.opened_session()
            (story,) = stories(STORIES[prefix])
            uploads = visitor.service().tried(session, story)
        except AtlasError as error:
            return *(no_update,) * 4, visitor.refusal(error)
        return *map(intake.reference, uploads), intake.told(story), uploads[0].enrolment or no_update, None


def _answer(part: Part, jobs: Sequence[str]) -> dict[str, Any]:
    service, session = visitor.service(), visitor.session()
    return service.drift(session, *jobs) if part is WINDOWS else service.reference_check(session, jobs)


def _with_solution(answer: Component, part: Part, jobs: Sequence[str]) -> Component:
    service, session = visitor.service(), visitor.session()
    return intake.add_solution(answer, STORIES[part.prefix], [service.file_of(session, job)[0] for job in jobs])


def _export(app: Dash, part: Part) -> None:
    kind, words = ("drift", windows_text) if part is WINDOWS else ("reference", reference_text)

    @app.callback(
        Output(f"{part.prefix}-download", "data"),
        Input(live(f"{part.prefix}-export", ALL), "n_clicks"),
        State(f"{part.prefix}-done", "data"),
        prevent_initial_call=True,
    )
    def export(clicks: list[Clicks], jobs: list[str] | None) -> Any:
        if not any(clicks) or not jobs or not isinstance(ctx.triggered_id, dict):
            return no_update
        test, form = _answer(part, jobs), str(ctx.triggered_id["figure"])
        writers: dict[str, Callable[[Mapping[str, Any]], str]] = {"txt": words, "html": write_comparison}
        text = writers[form](test) if form in writers else json.dumps(test, indent=1) + "\n"
        media = {"txt": "text/plain", "html": "text/html"}.get(form, "application/json")
        return {"content": text, "filename": f"{kind}-{test['sha256'][:8]}.{form}", "type": media}


def _by_fingerprints(option: Mapping[str, Any]) -> dict[str, Any]:
    """An ecosystem to choose, by what it compares with."""
    if "items" in option:
        return {**option, "items": [_by_fingerprints(one) for one in option["items"]]}
    one = question.ecosystem(option["value"])
    if one is None:
        return dict(option)
    proxy = sections.proxy_name(questions(), SimpleNamespace(reader=one.reader, proxy=one.proxy))
    return {**option, "label": f"Fingerprints of {proxy} (enrolled with {one.roster or one.name})"}


def _run(app: Dash, part: Part) -> None:
    """Callbacks that start the jobs of files, and follow them."""
    prefix = part.prefix
    files = " ".join(f"{prefix}-{kind}-file.data" for kind in part.files)

    @sections.callback(
        app,
        f"{prefix}-ecosystem.data {prefix}-ecosystem.value",
        "attr-ecosystem.data",
        "attr-ecosystem.value",
        prevent=False,
    )
    def offered(options: list[dict[str, str]] | None, chosen: Text) -> Any:
        return [_by_fingerprints(option) for option in options or []], chosen

    @sections.callback(app, f"{prefix}-judge.children", f"{prefix}-ecosystem.value {files}", prevent=False)
    def judge(ecosystem: Text, *given: Stored) -> Any:
        one = question.ecosystem(ecosystem)
        if one is None:
            return None
        power = visitor.service().brings(one.name).power
        rates = expected(power, paired=True)
        # Files have their own number of traces and prompts, of which the answer gives the rates.
        same = True if part is REFERENCE or not any(given) else None
        return judged_by(one.reader, one.proxy, same, rates + LATER * bool(power and any(given)))

    def missing(given: Sequence[Stored]) -> bool:
        return any(file and file["unread"] for file in given) or not all(given[: part.needed])

    def lacking(given: Sequence[Stored]) -> Text:
        titles = [words[0].partition(":")[0] for words in part.files.values()]
        for title, file, number in zip(titles, given, range(len(titles)), strict=True):
            if file == REFUSED:
                return f"{title}: drop another file."
            if file and file["unread"]:
                return f"{title}: choose its columns above, or drop another file."
            if not file and number < part.needed:
                return f"{title}: no file yet."
        return None

    @sections.callback(
        app,
        f"{prefix}-go.disabled {prefix}-why.children {prefix}-go-now.hidden",
        f"{prefix}-ecosystem.value {prefix}-jobs.data {prefix}-few.data {files}",
        prevent=False,
    )
    def may_go(ecosystem: Text, jobs: list[str] | None, few: Text, *given: Stored) -> tuple[bool, Text, bool]:
        not_yet = missing(given) or not ecosystem or bool(jobs) or bool(few)
        return not_yet, None if jobs else few or lacking(given), not_yet

    @sections.callback(app, f"{prefix}-common.children {prefix}-few.data", f"{prefix}-ecosystem.value {files}")
    def common(ecosystem: Text, *given: Stored) -> Any:
        one = question.ecosystem(ecosystem)
        if one is None or missing(given) or not all(given[:2]):
            return None, None
        service, session = visitor.service(), visitor.session()
        try:
            first, second = (
                service.prompts(session, file["key"], of_windows(None, Columns(**file["columns"]), file["encoding"]))
                for file in given[:2]
                if file
            )
        except AtlasError:  # its own place says so
            return None, None
        as_read = [(file["sha256"], file["columns"], file["encoding"]) for file in given[:2] if file]
        equal = [" ", html.Strong(SAME_RESPONSES, className="caution")] if as_read[0] == as_read[1] else []
        if part is WINDOWS:
            words = in_common_words(first, second)
            return [html.Span(words, className="flag" if words.startswith("0 of ") else ""), *equal], None
        words, enough = to_compare_words(first, second, service.brings(one.name).prompts_needed)
        return ([words, *equal], None) if enough else (html.Span(words, className="flag"), TOO_FEW)

    @sections.callback(
        app,
        f"{prefix}-jobs.data {prefix}-problem.children {prefix}-tick.disabled {prefix}-cancel-said.children",
        f"{prefix}-go.n_clicks {prefix}-go-now.n_clicks",
        f"{prefix}-ecosystem.value {'ref' if part is REFERENCE else 'attr'}-claim.value {files}",
    )
    def start(clicks: Clicks, now: Clicks, ecosystem: Text, claim: Text, *given: Stored) -> Any:
        if not (clicks or now) or missing(given):
            return (no_update,) * 4
        service = visitor.service()
        begin = service.start_windows if part is WINDOWS else service.start_reference_check
        try:
            one = question.ecosystem(ecosystem)
            if one is None:
                raise AtlasError("No ecosystem is enrolled here", "Run: python -m jobs enroll --sample")
            files = [file for file in given if file]
            settings = [of_windows(one.name, Columns(**file["columns"]), file["encoding"]) for file in files]
            if part is REFERENCE:
                settings = [replace(each, question=" ".join((claim or "").split()) or None) for each in settings]
            jobs = begin(visitor.admitted(), [file["key"] for file in files], settings, request.remote_addr)
        except AtlasError as error:
            return None, visitor.refusal(error), True, None
        return jobs, None, False, None

    @sections.callback(
        app,
        f"{prefix}-progress.hidden {prefix}-words.children {prefix}-bar.style {prefix}-tick.disabled* "
        f"{prefix}-done.data {prefix}-jobs.data* {prefix}-problem.children*",
        f"{prefix}-tick.n_intervals",
        f"{prefix}-jobs.data",
    )
    def tick(_ticks: int | None, jobs: list[str] | None) -> Any:
        if not jobs:
            return *OVER, no_update, no_update, no_update
        service, key = visitor.service(), visitor.session()
        return _followed(
            lambda: [service.progress(key, job) for job in jobs], ("failed",), "The comparison failed", jobs
        )


def _show_windows(app: Dash) -> None:
    @sections.callback(
        app,
        "win-result.children win-done.data*",
        "win-done.modified_timestamp theme.data",
        "win-done.data",
        prevent="initial_duplicate",
    )
    def shown(_changed: int | None, theme: Theme, jobs: list[str] | None) -> Any:
        if not jobs:
            return None, no_update
        try:
            test, report = _answer(WINDOWS, jobs), visitor.service().report(visitor.session(), jobs[0])
        except MissingError:
            return None, None
        except AtlasError as error:
            return visitor.refusal(error), no_update
        method, reference = report["method"], report["reference"]
        enrolled = title_of(reference["enrolment"], method["facts"].get("roster"), reference["sources"])
        rows = power(questions(), method["reader"], enrolled, test["validation"])
        return _with_solution(windows_answer(test, rows, theme or "dark"), WINDOWS, jobs), no_update

    @sections.callback(
        app,
        "attr-mode.value* attr-upload.data* attr-job.data* attr-claim.value* attr-sample-story.children* "
        "attr-carried.data",
        "win-whose:ALL.n_clicks",
        "win-done.data",
    )
    def go_on(clicks: list[Clicks], jobs: list[str] | None) -> Any:
        if not any(clicks) or not jobs:
            return (no_update,) * 6
        stored, settings = visitor.service().file_of(visitor.session(), jobs[-1])
        file = intake.reference(stored)
        if ctx.triggered_id["figure"] == "one":
            return "one", file, None, None, None, no_update
        known = {"columns": asdict(settings.columns), "encoding": settings.encoding}
        return "reference", *(no_update,) * 4, file | known

    @sections.callback(app, "ref-traces-upload.data* ref-done.data*", "attr-carried.data", prevent="initial_duplicate")
    def carried(file: Stored) -> Any:
        return (file, None) if file else (no_update, no_update)


def _show_reference(app: Dash) -> None:
    @sections.callback(app, "ref-result.children ref-done.data*", "ref-done.data")
    def shown(jobs: list[str] | None) -> Any:
        if not jobs:
            return None, no_update
        try:
            return _with_solution(reference_box(_answer(REFERENCE, jobs)), REFERENCE, jobs), no_update
        except MissingError:
            return None, None
        except AtlasError as error:
            return visitor.refusal(error), no_update


def _save_prompts(app: Dash) -> None:
    @sections.callback(app, "ref-prompts-place.hidden", "ref-traces-file.data")
    def offered(file: Stored) -> bool:
        return not file or file["unread"]

    @sections.callback(
        app, "ref-prompts-file.data ref-problem.children*", "ref-prompts.n_clicks", "ref-traces-file.data"
    )
    def save(clicks: Clicks, file: Stored) -> Any:
        if not clicks or not file or file["unread"]:
            return no_update, no_update
        settings = of_windows(None, Columns(**file["columns"]), file["encoding"])
        try:
            found = visitor.service().prompts(visitor.session(), file["key"], settings)
            if not any(found):
                raise AtlasError(f"{file['name']} names no prompts", "Choose the column that holds them")
        except AtlasError as error:
            return no_update, visitor.refusal(error)
        text = "".join(
            json.dumps({"prompt": prompt}, ensure_ascii=False) + "\n" for prompt in dict.fromkeys(found) if prompt
        )
        name = f"prompts-{file['name'].rpartition('.')[0] or file['name']}.jsonl"
        return {"content": text, "filename": name, "type": "application/jsonl"}, None


def _carry(app: Dash) -> None:
    """Offer the traces of One set of traces, and the report of its answer, where they are of use."""
    given = "attr-upload.data attr-columns.data attr-ended.data attr-job.data"

    @sections.callback(app, "ref-carry.children ref-carry.hidden", given, prevent=False)
    def traces(upload: Stored, columns: Stored, _ended: Text, job: Text) -> Any:
        file = _one_set(upload, columns, job)
        return _offered("Use the traces of One set of traces: ", file)

    @sections.callback(app, "check-carry.children check-carry.hidden", given, prevent=False)
    def report(upload: Stored, columns: Stored, ended: Text, job: Text) -> Any:
        file = _one_set(upload, columns, job) if ended and ended == job else None
        return _offered("Take the report just made of ", file)

    @sections.callback(app, "ref-traces-upload.data* ref-claim.value* ref-done.data* ref-reference-upload.data* "
                       "ref-rival-upload.data* ref-taken.data", "ref-carry.n_clicks ref-carry.hidden",
                       "attr-upload.data attr-columns.data attr-job.data attr-claim.value attr-wanted.data "
                       "ref-taken.data ref-traces-upload.data")  # fmt: skip
    def take(
        clicks: Clicks, hidden: bool, upload: Stored, columns: Stored, job: Text, claim: Text, link: dict[str, str],
        taken: bool | None, there: Stored,
    ) -> Any:  # fmt: skip
        # Whoever comes by the next step of an answer finds its traces here, and no answer about others.
        pressed = ctx.triggered[0]["prop_id"] == "ref-carry.n_clicks"
        wanted = clicks if pressed else link.get("carry") and not hidden and not taken
        file = _one_set(upload, columns, job) if wanted else None
        if file is None:
            return (no_update,) * 6
        claim = claim or file.get("claimed") or ""
        known = sections.known_sources(questions()).get(claim, claim)
        if pressed:
            return file, known, *(no_update,) * 4
        # Answers to the prompts of other traces are of no use.
        others = no_update if (there or {}).get("key") == file["key"] else None
        return file, known, None, others, others, True

    sections.client(app, "carried", "ref-taken.data*", "ref-taken.data")

    @sections.callback(app, "check-report-upload.data* check-traces-upload.data* check-problem.children*",
                       "check-carry.n_clicks", "attr-ended.data")  # fmt: skip
    def check(clicks: Clicks, job: Text) -> Any:
        if not clicks or not job:
            return (no_update,) * 3
        service, session = visitor.service(), visitor.session()
        try:
            report = service.upload(session, "report.json", service.export(session, job, "json").encode())
            return intake.reference(report), intake.reference(service.file_of(session, job)[0]), None
        except AtlasError as error:
            return no_update, no_update, visitor.refusal(error)


def _offered(words: str, file: Stored) -> tuple[Any, bool]:
    """Words of a button that takes a file along, and whether it is hidden."""
    return ([words, html.B(file["name"], className="long", dir="auto")], False) if file else ("", True)


def _one_set(upload: Stored, columns: Stored, job: Text) -> dict[str, Any] | None:
    """The file of One set of traces and how it is read; of its last answer where the page was opened anew."""
    if upload and (columns or {}).get("traces"):
        known = columns or {}
        chosen = intake.given(known["recognised"], list(known["shown"].values()))
        return upload | {"columns": asdict(chosen), "encoding": known["encoding"] or None}
    if upload or not job:
        return None
    try:
        stored, settings = visitor.service().file_of(visitor.session(), job)
    except AtlasError:
        return None
    known = {"columns": asdict(settings.columns), "encoding": settings.encoding, "claimed": settings.claimed}
    return intake.reference(stored) | known


def _check(app: Dash) -> None:
    files = "check-report-file.data check-traces-file.data"

    @sections.callback(app, "check-go.disabled", f"{files} check-job.data", prevent=False)
    def may_go(report: Stored, traces: Stored, job: Text) -> bool:
        return not report or any(file and file.get("unread") for file in (report, traces)) or bool(job)

    def about(report: Stored, traces: Stored) -> dict[str, Any]:
        return {"report": (report or {}).get("key"), "traces": (traces or {}).get("key")}

    @sections.callback(app, "check-done.data*", files, "check-done.data")
    def changed(report: Stored, traces: Stored, done: Stored) -> Any:
        # Another file takes the answer about the one before away.
        return no_update if done and about(report, traces).items() <= done.items() else None

    @sections.callback(
        app, "check-job.data check-done.data check-problem.children check-tick.disabled", "check-go.n_clicks", files
    )
    def start(clicks: Clicks, report: Stored, traces: Stored) -> Any:
        if not clicks or not report or (traces and traces["unread"]):
            return (no_update,) * 4
        try:
            if not traces:
                return None, about(report, traces) | {"click": clicks}, None, True
            chosen = None if traces["columns"] == traces["base"] else Columns(**traces["columns"])
            job = visitor.service().recompute(
                visitor.admitted(), report["key"], traces["key"], request.remote_addr, chosen
            )
        except AtlasError as error:
            return None, None, visitor.refusal(error), True
        return job, None, None, False

    @sections.callback(
        app,
        "check-progress.hidden check-words.children check-bar.style check-tick.disabled* check-done.data* "
        "check-job.data* check-problem.children*",
        "check-tick.n_intervals check-cancel.n_clicks",
        f"check-job.data {files}",
    )
    def tick(_ticks: int | None, _cancel: Clicks, job: Text, report: Stored, traces: Stored) -> Any:
        if not job or not report:
            return *OVER, no_update, no_update, no_update
        service, key = visitor.service(), visitor.session()
        look = service.cancel if ctx.triggered_id == "check-cancel" else service.progress
        done = about(report, traces) | {"job": job}
        return _followed(lambda: [look(key, job)], ("failed", "cancelled"), "The check was cancelled", done)

    @sections.callback(app, "check-result.children", "check-done.data")
    def shown(done: Stored) -> Any:
        if not done:
            return None
        service, key = visitor.service(), visitor.session()
        try:
            if "job" in done:
                return check_answer(service.checked(key, done["report"], done["job"]))
            return check_answer(service.agrees(key, done["report"]))
        except AtlasError as error:
            return visitor.refusal(error)

"""Step 1: the traces. A file, pasted text or a sample; what was recognised, every bad line, before anything runs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from atlas import shell
from atlas.figures import tables
from atlas.pages.attribute import sections, visitor
from atlas.pages.attribute.sections import Clicks, Stored, Text
from backend.enrolment.stories import Story, model_of, stories
from backend.errors import AtlasError
from backend.inference.verdict import Rule
from backend.intake import Columns, Layout, Preview
from backend.intake.traces import propose_columns, short
from backend.service.uploads import Upload

ROLES = {
    "response": ("Response", "The column that holds what the model answered"),
    "prompt": ("Prompt", "The column that holds what it was asked"),
    "time": ("Time", "When the response came"),
    "label": ("Model named in the file", "Whom the file says the response is from; it is noted and never believed"),
    "name": ("Name", "The file's own name of a trace"),
}
CHOSEN = ("response", "prompt")
"""Roles that can be chosen where files are compared: it asks for no other."""
FIRST, SHORTENED = 3, 90  # rows below a file place, and characters of a cell
KINDS = {"jsonl": "JSON lines", "json": "JSON document", "csv": "CSV", "parquet": "Parquet", "text": "plain text"}
NONE = ""
"""Value of a select whose role has no column, or of an encoding to recognise; no column without a name is offered."""
ENCODINGS = (
    *("utf-8", "utf-16-le", "utf-16-be", "cp1252", "latin-1", "cp1250", "iso8859-2", "cp1251", "koi8-r", "cp1253"),
    *("cp1254", "cp1255", "cp1256", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr", "mac-roman"),
)
"""What a page offers; command line and REST take any."""
TAKEN = "JSONL, CSV, Parquet, chat log or text, also as gzip; up to 25\u00a0MB"
SELECTS = tuple(f"attr-column-{role}" for role in ROLES)
GONE = {"hidden": True, "head": None, "body": None, "unmapped": True, "columns": None}
"""What the step shows without a file."""
PASTED = "pasted.txt"
RUN = "Run attribution"
STAYS = "What you give stays on this server for your session, 24 hours at most."


TRACE = (
    "A trace is a prompt and the answer that an endpoint gave to it. Enrolled sources are the models whose answers "
    "the atlas knows."
)


def step() -> Component:
    """The step's layout."""
    text = dmc.Textarea(
        id="attr-paste",
        value="",
        placeholder="Or paste responses here.\n\nPut --- between them. A line may begin with Prompt: or Response:",
        attributes={"input": {"aria-label": "Traces as text", "dir": "auto"}},
    )
    paste = html.Div([text, html.Button("Use this text", id="attr-use", className="button")], className="paste")
    sample = [
        html.Button(
            [story.name.removesuffix("."), html.Span(f" · {story.outcome}", className="soft")],
            id=sections.live("attr-sample", at),
            className="button",
        )
        for at, story in sorted(enumerate(_known("attribute")), key=lambda one: one[1].outcome != "SUPPORTS")
    ]
    encodings = [{"value": NONE, "label": "as recognised"}, *({"value": one, "label": one} for one in ENCODINGS)]
    charset = "The character set of the file's text"
    encoding = sections.choice("Encoding", "attr-encoding", f"Encoding: {charset}", encodings, value=NONE)
    roles = [
        html.Div(
            sections.choice(word, f"attr-column-{role}", f"{word}: {meaning}", [], placeholder="none"),
            id={"type": "attr-role", "role": role},
        )
        for role, (word, meaning) in ROLES.items()
    ]
    now = html.Button(RUN, id="attr-go-now", className="button button-main", disabled=True)
    words = html.Summary("Choose columns")
    choices = html.Details(
        [words, html.Div(roles, className="mapping")], id="attr-mapping", className="folded", open=True
    )
    read = [
        sections.notice("attr-preview-head", "polite"),
        html.Div([now, sections.hint(None, id="attr-go-words", role="status")], className="row"),
        html.Div(id="attr-claim-offer", className="row"),
        html.Div([choices, html.Div(encoding, id="attr-encoded")], className="mapping"),
        html.Div(id="attr-preview"),
    ]
    return sections.step(
        1,
        "Traces",
        "attr",
        sections.hint(TRACE),
        html.Div(
            [drop("attr-drop", f"Drop a file of at least {Rule.minimum_traces} traces"), paste], className="drops"
        ),
        sections.hint(STAYS),
        html.Div(
            [sections.hint("Or try a sample; after its name stands the answer that it gets:"), *sample],
            className="row samples",
        ),
        html.Div(id="attr-sample-story", className="story", role="status"),
        sections.notice("attr-problem"),
        shell.loading(html.Div(read, id="attr-read", hidden=True), "Reading the file …"),
        dcc.Download(id="attr-sample-file"),
    )


def drop(identity: str, words: str, taken: str = TAKEN, *, several: bool = False) -> Component:
    """A place to drop a file on, which also opens the file dialogue; ``several`` files at once where it says so."""
    content = [
        shell.icon("drop"),
        html.Div([f"{words}, or ", html.Span("choose one", className="drop-link")]),
        html.Small(taken),
    ]
    styles: dict[str, Any] = {f"style_{state}": {} for state in ("active", "reject", "disabled")}
    return dcc.Upload(
        html.Div(content), id=identity, className="drop", className_active="dropping", multiple=several, **styles
    )


def place(identity: str, words: str, taken: str = TAKEN) -> Component:
    """:func:`drop` with a line that describes the file below it, ``{identity}-head``."""
    head = html.Div(id=f"{identity}-head", className="hint", **shell.aria(live="polite"))
    return html.Div([drop(identity, words, taken), head])


def file_place(identity: str, words: str, taken: str = TAKEN, *, several: bool = False) -> Component:
    """:func:`drop` with what its file is, the choice of its columns, and its first rows below it; see :func:`look`."""
    selects = [
        sections.choice(word, f"{identity}-{role}", f"{word}: {meaning}", [], placeholder="none")
        for role, (word, meaning) in ROLES.items()
        if role in CHOSEN
    ]
    below = [
        html.Div(id=f"{identity}-head", className="hint", **shell.aria(live="polite")),
        html.Button("Take the proposed columns", id=f"{identity}-take", className="button", hidden=True),
        html.Div(selects, id=f"{identity}-mapping", className="mapping", hidden=True),
        html.Div(id=f"{identity}-rows", className="preview-table"),
        html.Button("Leave this file out", id=f"{identity}-remove", className="quiet", hidden=True),
    ]
    return html.Div([drop(identity, words, taken, several=several), html.Div(below, className="file-below")])


def look(
    upload: Mapping[str, Any], base: Columns, encoding: str | None, values: Sequence[Text] | None = None,
    last: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What a :func:`file_place` shows of a file, and under ``file`` how it is read.

    base : columns that are given already; values : what a person chose for :data:`CHOSEN` after ``last`` was shown.
    Raises AtlasError where the file gives no trace and has no column to choose from.
    """
    service, session = visitor.service(), visitor.session()
    columns = base
    if values is not None and last is not None:
        picked = dict(zip(CHOSEN, values, strict=True))
        changed = {role: column for role, column in picked.items() if column != last["recognised"][role]}
        columns = replace(base, **changed)
    file: dict[str, Any] = {"key": upload["key"], "sha256": upload.get("sha256"), "name": upload["name"]}
    file |= {"encoding": encoding, "unread": False}
    file |= {"base": asdict(base), "columns": asdict(columns)}
    try:
        found = service.inspect(session, upload["key"], columns, encoding)
    except AtlasError as error:
        try:
            layout, rows = service.uploads.peek(session, upload["key"], encoding)
        except AtlasError:
            raise error from None
        if not rows or not layout.fields or layout.kind == "text":
            raise
        shown = dict(zip(CHOSEN, values, strict=True)) if values else {r: getattr(layout.columns, r) for r in CHOSEN}
        proposal = propose_columns([record for _, record in rows])
        offer = layout.columns.response is None and values is None and proposal.response is not None
        problem = _without_response(layout.name, error, proposal if offer else None)
        kind = f" · {KINDS.get(layout.kind, layout.kind)} · no trace yet"
        head_words = html.Span([html.Strong(layout.name, className="long", dir="auto"), kind])
        records = [[column, *(record[column] for _, record in rows[:FIRST])] for column in layout.fields]
        heads = ["Column", *(f"{layout.unit} {at:,}".capitalize() for at, _ in rows[:FIRST])]
        file |= {"unread": True, "proposal": [proposal.response, proposal.prompt] if offer else None}
        view = {
            "head": [html.Div(head_words, className="preview-facts"), problem],
            "rows": _first_rows(heads, records, "The columns with their first values"),
            "take": _proposal(proposal) if offer else "",
        }
        return _with_choices(file, view, layout, (last or {}).get("recognised") or shown, shown)
    now = {role: getattr(found.columns, role) for role in CHOSEN}
    bad = [html.Li([f"{found.unit} {row['place']:,}: ", str(row["reason"])]) for row in found.problems[:5]]
    more = [html.Li(f"… and {len(found.problems) - 5:,} more")] if len(found.problems) > 5 else []
    records = [[f"{row['place']:,}", row["prompt"], row["response"]] for row in found.rows[:FIRST]]
    caption = f"The first {len(records)} of {found.traces:,} traces"
    view = {
        "head": [head(found), html.Ul(bad + more)],
        "rows": _first_rows([found.unit.capitalize(), "Prompt", "Response"], records, caption),
        "take": "",
    }
    return _with_choices(file, view, found, (last or {}).get("recognised") or now, now)


def _with_choices(
    file: dict[str, Any], view: dict[str, Any], layout: Preview | Layout, recognised: Mapping[str, Text],
    shown: Mapping[str, Text],
) -> dict[str, Any]:  # fmt: skip
    return view | {
        "file": file | {"recognised": dict(recognised), "shown": list(shown.values())},
        "untaken": not view["take"],
        "unmapped": not layout.fields or layout.kind == "text",
        "offered": [offered(role, layout.fields) for role in CHOSEN],
        "values": list(shown.values()),
    }


def _first_rows(heads: Sequence[str], records: Sequence[Sequence[str]], caption: str) -> Component:
    lines = [html.Tr([html.Td(short(str(text), SHORTENED), dir="auto") for text in record]) for record in records]
    kind = "small" if heads[0] == "Column" else "small by-line"
    return shell.small_table(heads, lines, caption, kind, caption)


def _proposal(proposal: Columns, *, time: bool = False) -> list[Component | str]:
    words: list[Component | str] = ["Take ", html.B(proposal.response, dir="auto"), " for responses"]
    words += [" and ", html.B(proposal.prompt, dir="auto"), " for prompts"] if proposal.prompt else []
    return words + ([" and ", html.B(proposal.time, dir="auto"), " for times"] if time and proposal.time else [])


def _without_response(name: str, error: AtlasError, proposal: Columns | None) -> Component:
    """What is wrong with a file whose columns are still to be chosen, and the proposal in the same sentence."""
    if proposal is None:
        return visitor.refusal(
            AtlasError(error.problem, "Choose the column that holds the response, by its values below")
        )
    problem = f"No column of {name} is named like a response, but {proposal.response} reads like one"
    return visitor.refusal(AtlasError(problem, "Take it, or choose another one"))


def decoded(contents: str) -> bytes:
    """Bytes of what the browser sent; raises AtlasError if they are damaged."""
    try:
        return base64.b64decode(contents.partition(",")[2], validate=True)
    except (binascii.Error, ValueError) as error:
        raise AtlasError("The file did not arrive whole", "Choose it again") from error


def reference(upload: Upload) -> dict[str, Any]:
    """What the browser stores of a file: its key, never its content."""
    about = {"name": upload.name, "enrolment": upload.enrolment, "label": upload.label}
    return {"key": upload.key, "sha256": upload.sha256, **about}


def given(recognised: Mapping[str, str | None] | None, values: Sequence[Text]) -> Columns:
    """What a person mapped, also to :data:`NONE`: only roles that differ from what was recognised, because naming the
    response switches the reading of chat logs off."""
    known = recognised or {}
    chosen = dict(zip(ROLES, values, strict=True))
    return Columns(**{role: value for role, value in chosen.items() if value is not None and value != known.get(role)})


def offered(role: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """What can be chosen for a role: the columns of the file, and none where the audit does without."""
    columns = [{"value": field, "label": field} for field in fields if field != NONE]
    return columns if role == "response" else [{"value": NONE, "label": "none"}, *columns]


def head(preview: Preview) -> Component:
    """What the file is, in one line."""
    kind = KINDS.get(preview.kind, preview.kind)
    form = (", gzip" if preview.packed else "") + (f", {preview.encoding}" if preview.encoding else "")
    facts = [html.Span([html.Strong(preview.name, className="long", dir="auto"), f" · {kind}{form}"])]
    facts.append(html.Span([html.Strong(f"{preview.traces:,}"), f" trace{'s' if preview.traces != 1 else ''}"]))
    for number, noun in ((len(preview.problems), f"bad {preview.unit}"), (len(preview.duplicates), "duplicate")):
        words: list[Component | str] = [html.Strong(f"{number:,}"), f" {noun}{'s' if number != 1 else ''}"]
        facts.append(html.Span(words, className="caution" if number else ""))
    return html.Div(facts, className="preview-facts")


def _note_class(notes: Sequence[str]) -> str:
    """How notes look: in amber, unless all say that the requested model was returned."""
    good = all(note.startswith("Requested ") and note.endswith(" traces.") for note in notes)
    return "note-list note-list-good" if good else "note-list"


def body(preview: Preview) -> list[Component]:
    """Notes, bad places with number and reason, duplicates, and the first traces."""
    parts: list[Component] = []
    if preview.notes:
        parts.append(html.Ul([html.Li(note) for note in preview.notes], className=_note_class(preview.notes)))

    def add(title: str, frame: pd.DataFrame, identity: str, most: int) -> None:
        grid, height = _grid(frame, preview.unit, identity), min(most, 48 + 34 * len(frame))
        parts.extend([html.H3(title), html.Div(grid, className="bad-grid", style={"height": height})])

    if preview.problems:
        bad = pd.DataFrame(preview.problems)[["place", "column", "reason"]]
        add(f"These {preview.unit}s give no trace and will be left out", bad, "attr-bad", 224)
    if preview.duplicates:
        again = pd.DataFrame(preview.duplicates)[["place", "first"]]
        again["reason"] = [f"repeats {preview.unit} {first}" for first in again["first"]]
        add("These repeat an earlier trace word for word", again[["place", "reason"]], "attr-again", 160)
    rows = pd.DataFrame(preview.rows)
    if len(rows):
        rows = rows[["place", "prompt", "response", *(c for c in ("time", "label", "name") if rows[c].notna().any())]]
        grid = html.Div(_grid(rows, preview.unit, "attr-rows"), className="preview-grid")
        parts += [html.H3(f"The first {len(rows):,} of {preview.traces:,} traces"), grid]
    return parts


def unread(
    upload: Mapping[str, Any], error: AtlasError, values: Sequence[Text] | None, encoding: str, last: Mapping[str, Any]
) -> dict[str, Any]:
    """What the step shows of a file that gives no trace: its columns to choose from, where it has any.

    values : what a person chose for every role; None where it is still to be recognised.
    """
    try:
        layout, rows = visitor.service().uploads.peek(visitor.session(), upload["key"], encoding or None)
    except AtlasError:
        layout, rows = None, []
    if layout is None or not rows or not layout.fields or layout.kind == "text":
        problem = {"problem": refused(upload["name"], error)}
        if last:  # another encoding can be chosen
            return problem | {"columns": {**last, "encoding": encoding, "traces": 0}}
        return problem | GONE
    recognised = {role: getattr(layout.columns, role) for role in ROLES}
    shown = recognised if values is None else dict(zip(ROLES, values, strict=True))
    name = html.Strong(layout.name, className="long", dir="auto")
    kind = f" · {KINDS.get(layout.kind, layout.kind)} · no trace yet"
    proposal = propose_columns([record for _, record in rows])
    offer = layout.columns.response is None and values is None and proposal.response is not None
    found = _readable(layout, recognised if values is None else last["recognised"], shown, encoding) | {
        "head": html.Div(html.Span([name, kind]), className="preview-facts"),
        "body": _columns(layout, rows),
        "problem": _without_response(layout.name, error, proposal if offer else None),
    }
    if offer:
        found["columns"]["proposal"] = [proposal.response, proposal.prompt, proposal.time]
        button = html.Button(
            html.Span(_proposal(proposal, time=True)), id="attr-propose", className="button button-main"
        )
        found |= {"problem": [found["problem"], html.Div(button, className="row")], "open": False}
    return found


def _readable(
    file: Preview | Layout, recognised: Mapping[str, Text], shown: Mapping[str, Text], encoding: str, traces: int = 0
) -> dict[str, Any]:
    """Choices for a file with columns, by the columns recognised and shown for every role."""
    return {
        "hidden": False,
        "unmapped": not file.fields or file.kind == "text",
        "open": True,
        "columns": {"recognised": recognised, "shown": shown, "encoding": encoding, "traces": traces},
        "offered": [offered(role, file.fields) for role in ROLES],
        "values": list(shown.values()),
        "unencoded": not file.encoding,
        "encoding": encoding,
    }


def _columns(layout: Layout, rows: Sequence[tuple[int, Mapping[str, str]]]) -> list[Component]:
    """Every column of a file with its first values, a line a column."""
    values: dict[str, Sequence[str]] = {"column": layout.fields}
    columns = [tables.words("column", "Column", 160)]
    for number, (place, record) in enumerate(rows):
        values[f"value{number}"] = [record[field] for field in layout.fields]
        columns.append(tables.words(f"value{number}", f"{layout.unit} {place:,}".capitalize(), 160, 1))
    plain = [column | {"floatingFilter": False} for column in columns]
    grid = html.Div(tables.grid("attr-peek", pd.DataFrame(values), plain), className="preview-grid")
    return [html.H3("The columns with their first values"), grid]


def refused(name: str, error: AtlasError) -> list[Component]:
    """What was not taken, and why."""
    return [html.P([html.Strong(name, className="long", dir="auto"), " was not taken."]), visitor.refusal(error)]


def _grid(frame: pd.DataFrame, unit: str, identity: str) -> Component:
    """Places of the file and their texts."""
    columns = [tables.number("place", unit.capitalize(), width=80)]
    columns += [
        {"field": name, "headerName": shell.header(name), "flex": 1, "minWidth": 120, "tooltipField": name}
        for name in frame.columns
        if name != "place"
    ]
    grid: Component = tables.grid(identity, frame, columns)
    return grid


def told(story: Story, place: shell.Children = None) -> list[Component]:
    """What is known of a story of the shipped sample before anything runs."""
    words = html.P([html.Strong(story.name), " ", story.text])
    return [words, *([sections.hint(place)] if place else [])]


def add_solution(
    answer: Component, part: str, uploads: Sequence[Upload], compared: Sequence[str] | None = None
) -> Component:
    """An answer with who wrote its traces below the verdict, folded away, where they are a story's of the sample.

    compared : the sources that the traces were held against.
    """
    files = {one.name: one.label for one in uploads}
    story = next((one for one in _known(part) if one.files == files), None)
    if story is None:
        return answer
    words: list[Component | str] = []
    for name, who in story.files.items():
        words += [
            html.Code(name),
            " was written by ",
            shell.source_name(who),
            f", a source of the samples ({model_of(who)})",
        ]
        if compared is not None and who not in compared:
            words.append(
                f", which is none of the {len(compared):,} that it was compared with: no name of theirs is right"
            )
        words.append(". ")
    words.append(f"The answer should be: {story.outcome}.")
    solution = html.Details([html.Summary("Show the sample's true answer"), html.P(words)], className="folded")
    answer.children.insert(1, solution)
    return answer


def _known(part: str) -> list[Story]:
    """Stories of a part; none in an installation without samples."""
    try:
        return stories(part)
    except AtlasError:
        return []


def register(app: Dash) -> None:
    """Callbacks of the step."""
    sections.client(app, "watch", "attr-watch.data", "attr-watch.id", prevent=False)
    sections.client(app, "given", "attr-watch.data*", "attr-preview-head.children attr-problem.children")

    @sections.callback(
        app,
        "attr-upload.data attr-problem.children attr-drop.contents attr-sample-story.children",
        "attr-drop.contents attr-use.n_clicks attr-sample:ALL.n_clicks",
        "attr-drop.filename attr-paste.value",
    )
    def receive(contents: Text, use: Clicks, samples: list[Clicks], name: Text, text: Text) -> Any:
        pressed = ctx.triggered_id
        if not (contents if pressed == "attr-drop" else use if pressed == "attr-use" else any(samples)):
            return (no_update,) * 4
        try:
            key, service = visitor.opened_session(), visitor.service()
            if isinstance(pressed, dict):
                story = stories("attribute")[pressed["figure"]]
                (upload,) = service.tried(key, story)
                save = html.Button("Download its traces", id="attr-sample-save", className="quiet")
                return reference(upload), None, no_update, told(story, save)
            if pressed == "attr-use":
                upload = service.upload(key, PASTED, (text or "").encode("utf-8", "surrogatepass"))
                return reference(upload), None, no_update, None
            upload = service.upload(key, name or "traces", decoded(str(contents)))
            return reference(upload), None, None, None
        except AtlasError as error:
            visitor.count_refusal(error)
            # The file before is not the one just chosen, and must not be weighed in its place.
            what = {"attr-drop": name or "traces", "attr-use": "The pasted text"}.get(str(pressed), "The sample")
            return None, refused(what, error), None if pressed == "attr-drop" else no_update, None

    @sections.callback(app, "attr-sample-file.data", "attr-sample-save.n_clicks", "attr-upload.data")
    def save(clicks: Clicks, upload: Stored) -> Any:
        if not clicks or not upload:
            return no_update
        saved, path = visitor.service().uploads.get(visitor.session(), upload["key"])
        return {"content": path.read_text("utf-8"), "filename": saved.name, "type": "application/jsonl"}

    @sections.callback(
        app,
        "attr-column-response.value* attr-column-prompt.value* attr-column-time.value*",
        "attr-propose.n_clicks",
        "attr-columns.data",
    )
    def propose(clicks: Clicks, known: Stored) -> Any:
        if not clicks or not known or "proposal" not in known:
            return (no_update,) * 3
        return tuple(no_update if column is None else column for column in known["proposal"])

    @app.callback(
        output={
            "hidden": Output("attr-read", "hidden"),
            "head": Output("attr-preview-head", "children"),
            "body": Output("attr-preview", "children"),
            "unmapped": Output("attr-mapping", "hidden"),
            "open": Output("attr-mapping", "open"),
            "columns": Output("attr-columns", "data"),
            "offered": [Output(select, "data") for select in SELECTS],
            "values": [Output(select, "value") for select in SELECTS],
            "unencoded": Output("attr-encoded", "hidden"),
            "encoding": Output("attr-encoding", "value"),
            "problem": Output("attr-problem", "children", allow_duplicate=True),
        },
        inputs={
            "upload": Input("attr-upload", "data"),
            "values": [Input(select, "value") for select in SELECTS],
            "encoding": Input("attr-encoding", "value"),
        },
        state={"known": State("attr-columns", "data")},
        prevent_initial_call=True,
    )
    def preview(upload: Stored, values: list[Text], encoding: Text, known: Stored) -> Any:
        same: dict[str, Any] = dict.fromkeys((*GONE, "open", "unencoded", "encoding", "problem"), no_update)
        same |= dict.fromkeys(("offered", "values"), [no_update] * len(SELECTS))
        if not upload:
            return same | GONE
        fresh = any(entry["prop_id"] == "attr-upload.data" for entry in ctx.triggered)
        last = known or {}
        chosen = NONE if fresh else encoding or NONE
        # Another encoding makes other names of columns, which are recognised anew.
        anew = fresh or chosen != last.get("encoding")
        if not fresh and (not known or (not anew and list(last["shown"].values()) == list(values))):
            return same
        columns = None if anew else given(last["recognised"], values)
        try:
            found = visitor.service().inspect(visitor.session(), upload["key"], columns, chosen or None)
        except AtlasError as error:
            return same | unread(upload, error, None if anew else values, chosen, {} if fresh else last)
        now = {role: getattr(found.columns, role) for role in ROLES}
        texts = {"head": head(found), "body": body(found), "problem": None}
        shown = _readable(found, now if anew else last["recognised"], now, chosen, found.traces) | texts
        shown["columns"] |= {"key": upload["key"], "models": found.models, "labels": found.labels}
        return shown

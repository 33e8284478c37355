"""Step 1: the traces. A file, pasted text or a sample; what was recognised, every bad line, before anything runs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from atlas import shell, tables
from atlas.pages.attribute import parts, visitor
from backend.errors import AtlasError
from backend.intake import Columns
from backend.intake.preview import Preview
from backend.service.uploads import Upload

ROLES = {
    "response": ("Response", "The column that holds what the model answered"),
    "prompt": ("Prompt", "The column that holds what it was asked"),
    "time": ("Time", "When the response came"),
    "label": ("Said source", "Whom the file says the response is from; it is noted and never believed"),
    "name": ("Name", "The file's own name of a trace"),
}
KINDS = {"jsonl": "JSON lines", "json": "JSON document", "csv": "CSV", "parquet": "Parquet", "text": "plain text"}
NONE = ""
"""Value of a select whose role is to have no column, or of an encoding that is to be recognised; no select offers a
column without a name."""
ENCODINGS = (
    *("utf-8", "utf-16-le", "utf-16-be", "cp1252", "latin-1", "cp1250", "iso8859-2", "cp1251", "koi8-r", "cp1253"),
    *("cp1254", "cp1255", "cp1256", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr", "mac-roman"),
)
"""What a page offers; command line and REST take any."""
PASTED = "pasted.txt"


def step() -> Component:
    """The step's layout."""
    return parts.step(
        1,
        "Traces",
        "attr-title-1",
        [
            html.Div(
                className="drops",
                children=[
                    drop("attr-drop", "Drop a file of traces"),
                    html.Div(
                        className="paste",
                        children=[
                            dmc.Textarea(
                                id="attr-paste",
                                value="",
                                placeholder="Or paste responses here.\n\nLines of --- part them; a line may "
                                "begin with Prompt: or Response:",
                                attributes={"input": {"aria-label": "Traces as text", "dir": "auto"}},
                            ),
                            html.Button("Use this text", id="attr-use", className="button"),
                        ],
                    ),
                ],
            ),
            html.Div(
                className="row",
                children=[
                    html.Button("Try a sample", id="attr-sample", className="button"),
                    html.Span(
                        "Ten answers of a small model that ships with the atlas; nothing of yours is needed.",
                        className="hint",
                    ),
                    html.Span(id="attr-sample-other"),
                ],
            ),
            html.Div(id="attr-problem", **{"aria-live": "assertive"}),
            dcc.Loading(
                html.Div(
                    id="attr-read",
                    hidden=True,
                    children=[
                        html.Div(id="attr-preview-head", **{"aria-live": "polite"}),
                        html.Div(
                            className="mapping",
                            children=[
                                html.Div([_role(role) for role in ROLES], id="attr-mapping", className="mapping"),
                                html.Div(_encoding(), id="attr-encoded"),
                            ],
                        ),
                        html.Div(id="attr-preview"),
                    ],
                ),
                delay_show=300,
                custom_spinner=html.Div("Reading the file …", className="working"),
                overlay_style={"visibility": "visible"},
            ),
            dcc.Download(id="attr-sample-file"),
        ],
    )


TAKEN = "JSONL, CSV, Parquet, chat-completions log or text; also as gzip; up to 25 MB"


def drop(identity: str, words: str, taken: str = TAKEN) -> Component:
    """A place to drop a file on, which also opens the file dialogue."""
    return dcc.Upload(
        id=identity,
        className="drop",
        className_active="dropping",
        style_active={},
        style_reject={},
        style_disabled={},
        multiple=False,
        children=html.Div(
            [
                shell.icon("drop"),
                html.Div([f"{words}, or ", html.Span("choose one", className="drop-link")]),
                html.Small(taken),
                html.Small("It stays on this server for your session, 24 hours at most."),
            ]
        ),
    )


def _role(role: str) -> Component:
    word, meaning = ROLES[role]
    return html.Div(
        id={"type": "attr-role", "role": role},
        children=shell.labelled(
            word,
            f"attr-column-{role}",
            dmc.Select(
                id=f"attr-column-{role}",
                data=[],
                size="xs",
                searchable=True,
                allowDeselect=False,
                placeholder="none",
                comboboxProps={"zIndex": 300},
                attributes=shell.named(f"{word}: {meaning}"),
            ),
        ),
    )


def _encoding() -> Component:
    return shell.labelled(
        "Encoding",
        "attr-encoding",
        dmc.Select(
            id="attr-encoding",
            data=[{"value": NONE, "label": "as recognised"}, *({"value": one, "label": one} for one in ENCODINGS)],
            value=NONE,
            size="xs",
            searchable=True,
            allowDeselect=False,
            comboboxProps={"zIndex": 300},
            attributes=shell.named("Encoding: The character set of the file's text"),
        ),
    )


SELECTS = tuple(f"attr-column-{role}" for role in ROLES)


def decoded(contents: str) -> bytes:
    """Bytes of what the browser sent.

    Raises
    ------
    AtlasError
        If they are damaged.
    """
    try:
        return base64.b64decode(contents.partition(",")[2], validate=True)
    except (binascii.Error, ValueError) as error:
        raise AtlasError("The file did not arrive whole", "Choose it again") from error


def held(upload: Upload) -> dict[str, Any]:
    """What the browser keeps of a file: its key, never its content."""
    return {"key": upload.key, "name": upload.name, "enrolment": upload.enrolment, "label": upload.label}


def given(recognised: Mapping[str, str | None] | None, values: Sequence[str | None]) -> Columns:
    """What a person mapped, also to :data:`NONE`: only roles that differ from what was recognised, because naming the
    response switches the reading of chat logs off."""
    known = recognised or {}
    told = dict(zip(ROLES, values, strict=True))
    return Columns(**{role: value for role, value in told.items() if value is not None and value != known.get(role)})


def offered(role: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """What can be chosen for a role: the columns of the file, and none where the audit does without."""
    columns = [{"value": field, "label": field} for field in fields if field != NONE]
    return columns if role == "response" else [{"value": NONE, "label": "none"}, *columns]


def read(key: str, columns: Columns | None = None, encoding: str | None = None) -> Preview:
    """Preview of one of the visitor's files."""
    return visitor.service().inspect(visitor.session(), key, columns, encoding)


def head(preview: Preview) -> Component:
    """What the file is, in one line."""
    kind = KINDS.get(preview.kind, preview.kind)
    many, bad, again = preview.traces, len(preview.problems), len(preview.duplicates)
    facts: list[Any] = [
        html.Span(
            [
                html.Strong(preview.name, className="long", dir="auto"),
                f" · {kind}"
                + (", gzip" if preview.packed else "")
                + (f", {preview.encoding}" if preview.encoding else ""),
            ]
        ),
        html.Span([html.Strong(f"{many:,}"), f" trace{'s' if many != 1 else ''}"]),
        html.Span(
            [html.Strong(f"{bad:,}"), f" bad {preview.unit}{'s' if bad != 1 else ''}"],
            className="caution" if bad else "",
        ),
        html.Span(
            [html.Strong(f"{again:,}"), f" duplicate{'s' if again != 1 else ''}"], className="caution" if again else ""
        ),
    ]
    return html.Div(facts, className="preview-facts")


def body(preview: Preview) -> list[Component]:
    """Notes, bad places with number and reason, duplicates, and the first traces."""
    said: list[Component] = []
    if preview.notes:
        said.append(html.Ul([html.Li(note) for note in preview.notes], className="note-list"))
    if preview.problems:
        bad = pd.DataFrame(preview.problems)[["place", "column", "reason"]]
        said += [
            html.H3(f"These {preview.unit}s give no trace and will be left out"),
            html.Div(
                _grid(bad, preview.unit, "attr-bad"),
                className="bad-grid",
                style={"height": min(224, 48 + 34 * len(bad))},
            ),
        ]
    if preview.duplicates:
        again = pd.DataFrame(preview.duplicates)[["place", "first"]]
        again["reason"] = [f"repeats {preview.unit} {first}" for first in again["first"]]
        said += [
            html.H3("These repeat an earlier trace word for word"),
            html.Div(
                _grid(again[["place", "reason"]], preview.unit, "attr-again"),
                className="bad-grid",
                style={"height": min(160, 48 + 34 * len(again))},
            ),
        ]
    rows = pd.DataFrame(preview.rows)
    if len(rows):
        rows = rows[["place", "prompt", "response", *(c for c in ("time", "label", "name") if rows[c].notna().any())]]
        said += [
            html.H3(f"The first {len(rows):,} of {preview.traces:,} traces"),
            html.Div(_grid(rows, preview.unit, "attr-rows"), className="preview-grid"),
        ]
    return said


def refused(name: str, error: AtlasError) -> list[Component]:
    """What was not taken, and why."""
    return [html.P([html.Strong(name, className="long", dir="auto"), " was not taken."]), visitor.said(error)]


def _grid(frame: pd.DataFrame, unit: str, identity: str) -> Component:
    """Places of the file and what is said of them."""
    columns = [tables.number("place", unit.capitalize(), width=80)]
    columns += [
        {"field": name, "headerName": shell.header(name), "flex": 1, "minWidth": 120, "tooltipField": name}
        for name in frame.columns
        if name != "place"
    ]
    return tables.grid(identity, frame, columns)


def register(app: Dash) -> None:
    """Callbacks of the step."""
    app.clientside_callback(
        ClientsideFunction("attribute", "watch"), Output("attr-watch", "data"), Input("attr-watch", "id")
    )

    @app.callback(
        Output("attr-upload", "data"),
        Output("attr-problem", "children"),
        Output("attr-drop", "contents"),
        Output("attr-sample-other", "children"),
        Input("attr-drop", "contents"),
        Input("attr-use", "n_clicks"),
        Input("attr-sample", "n_clicks"),
        State("attr-drop", "filename"),
        State("attr-paste", "value"),
        prevent_initial_call=True,
    )
    def take(contents: str | None, _use: int, clicks: int | None, name: str | None, text: str | None) -> Any:
        pressed = ctx.triggered_id
        if pressed == "attr-drop" and not contents:
            return no_update, no_update, no_update, no_update
        try:
            key, service = visitor.opened_session(), visitor.service()
            if pressed == "attr-sample":
                names = service.samples()
                number = ((clicks or 1) - 1) % len(names)
                upload = service.sample(key, number)
                other = html.Span(
                    [
                        f"Sample {number + 1} of {len(names)}, written by ",
                        shell.source_name(str(upload.label)),
                        "; click again for the next. ",
                        html.Button("Download it", id="attr-sample-save", className="quiet"),
                    ],
                    className="hint",
                )
                return held(upload), None, no_update, other
            if pressed == "attr-use":
                upload = service.upload(key, PASTED, (text or "").encode("utf-8", "surrogatepass"))
                return held(upload), None, no_update, None
            upload = service.upload(key, name or "traces", decoded(str(contents)))
            return held(upload), None, None, None
        except AtlasError as error:
            # What was there before is not what was asked for now, and must not be weighed in its place.
            what = {"attr-drop": name or "traces", "attr-use": "The pasted text"}.get(str(pressed), "The sample")
            return None, refused(what, error), None if pressed == "attr-drop" else no_update, None

    @app.callback(
        Output("attr-sample-file", "data"),
        Input("attr-sample-save", "n_clicks"),
        State("attr-upload", "data"),
        prevent_initial_call=True,
    )
    def save(clicks: int | None, upload: dict[str, Any] | None) -> Any:
        if not clicks or not upload:
            return no_update
        kept, path = visitor.service().uploads.get(visitor.session(), upload["key"])
        return {"content": path.read_text("utf-8"), "filename": kept.name, "type": "application/jsonl"}

    @app.callback(
        output={
            "hidden": Output("attr-read", "hidden"),
            "head": Output("attr-preview-head", "children"),
            "body": Output("attr-preview", "children"),
            "unmapped": Output("attr-mapping", "hidden"),
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
    def looked_at(
        upload: dict[str, Any] | None, values: list[str | None], encoding: str | None, known: dict[str, Any] | None
    ) -> Any:
        nothing: list[Any] = [no_update] * len(SELECTS)
        one = ("hidden", "head", "body", "unmapped", "columns", "unencoded", "encoding", "problem")
        same = dict.fromkeys(one, no_update) | {"offered": nothing, "values": nothing}
        gone = same | {"hidden": True, "head": None, "body": None, "unmapped": True, "columns": None}
        if not upload:
            return gone
        fresh = any(entry["prop_id"] == "attr-upload.data" for entry in ctx.triggered)
        told = known or {}
        said = NONE if fresh else encoding or NONE
        # Another encoding makes other names of columns, which are recognised anew.
        anew = fresh or said != told.get("encoding")
        if not fresh and (not known or (not anew and list(told["shown"].values()) == list(values))):
            return same
        try:
            preview = read(upload["key"], None if anew else given(told["recognised"], values), said or None)
        except AtlasError as error:
            return (gone if fresh else same) | {"problem": refused(upload["name"], error)}
        now = {role: getattr(preview.columns, role) for role in ROLES}
        return {
            "hidden": False,
            "head": head(preview),
            "body": body(preview),
            "unmapped": not preview.fields or preview.kind == "text",
            "columns": {"recognised": now if anew else told["recognised"], "shown": now, "encoding": said},
            "offered": [offered(role, preview.fields) for role in ROLES],
            "values": list(now.values()),
            "unencoded": not preview.encoding,
            "encoding": said,
            "problem": None,
        }

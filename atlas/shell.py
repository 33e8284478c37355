"""The frame around every page: navigation, header, and what each figure carries (table, CSV, link, picture, origin)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import dash_ag_grid as dag
import dash_mantine_components as dmc
import pandas as pd
from dash import (
    ALL,
    MATCH,
    ClientsideFunction,
    Dash,
    Input,
    Output,
    State,
    dcc,
    html,
    no_update,
    page_container,
)
from dash.development.base_component import Component

from atlas import answers
from atlas.data import DOMAIN_NAMES, Questions, questions
from atlas.state import View, join
from atlas.theme import MONO, SANS, Mark, Theme
from backend.errors import AtlasError
from backend.store import queries

Children = Component | str | Sequence[Component | str] | None
SHARED = (Input("reader", "value"), Input("roster", "value"), Input("domain", "value"), Input("theme", "data"))
"""What every figure depends on."""


@dataclasses.dataclass(frozen=True)
class Told:
    """What a figure says of itself beside the drawing.

    Attributes
    ----------
    table : callable
        Its rows, for the table view and the CSV.
    made : callable
        Table of the store and key of the rows behind it; None where the figure itself lists the builds.
    reader : callable
        The reader whose numbers are shown, which says whether they were measured here.
    """

    table: Callable[[Questions, View], pd.DataFrame]
    made: Callable[[Questions, View], tuple[str, dict[str, object]]] | None = None
    reader: Callable[[Questions, View], str] = Questions.attribution_reader


@dataclasses.dataclass(frozen=True)
class Page:
    """One page: where it is (a template with <label> where it is one page a source), how the navigation calls it (a
    page without an icon is not in it), and what it needs to work."""

    name: str
    path: str
    title: str
    icon: str
    layout: Callable[..., Component]
    register: Callable[[Dash], None]
    figures: Mapping[str, Told]


def shared_view(reader: str | None, roster: str | None, domain: str | None, theme: str | None, **own: Any) -> View:
    """A settled view of the header's choices and a page's own."""
    given = {"reader": reader, "roster": roster, "domain": domain, "theme": theme, **own}
    lists = {name: join(tuple(value)) for name, value in given.items() if isinstance(value, list)}
    return questions().settle(View.parse({name: value for name, value in (given | lists).items() if value is not None}))


# ---- the frame ------------------------------------------------------------------------------------------------------


def frame(asked: Questions, pages: Sequence[Page]) -> Component:
    """Navigation, header and the place for a page."""
    problem = asked.problem()
    readers: list[dict[str, Any]] = []
    rosters: list[dict[str, Any]] = []
    domains: list[dict[str, Any]] = []
    view = View()
    if problem is None:
        view = asked.settle(view)
        readers = reader_options(asked)
        rosters = [
            {"value": row.roster, "label": f"{row.roster} · {row.sources} sources"}
            for row in asked.ask(queries.rosters).itertuples(index=False)
        ]
        domains = [{"value": domain, "label": DOMAIN_NAMES.get(domain, domain)} for domain in asked.domains()]
    return dmc.MantineProvider(
        id="mantine",
        forceColorScheme="dark",
        theme={
            "fontFamily": SANS,
            "fontFamilyMonospace": MONO,
            "fontSizes": {"xs": "12px", "sm": "13px", "md": "15px", "lg": "18px", "xl": "24px"},
            "defaultRadius": 4,
            "respectReducedMotion": True,
        },
        children=[
            dcc.Store(id="theme"),
            dcc.Store(id="view", data={}),
            dcc.Store(id="tables"),
            html.A("Skip to the content", href="#content", className="skip"),
            html.Div(
                className="frame",
                children=[
                    _navigation(pages),
                    html.Div(
                        className="stage",
                        children=[
                            html.Header(
                                className="bar",
                                children=[
                                    _choice("reader", "Reader", readers, view.reader, READER_HELP, grow=True),
                                    _choice("roster", "Roster", rosters, view.roster, ROSTER_HELP),
                                    _choice("domain", "Domain", domains, view.domain, DOMAIN_HELP),
                                    html.Div(className="gap"),
                                    _icon_button("copy-view", "link", "Copy a link to this view"),
                                    _icon_button("present", "present", "Present: no controls, larger (Escape leaves)"),
                                    _icon_button("theme-toggle", "theme", "Switch between dark and light"),
                                ],
                            ),
                            html.Main(id="content", className="content", tabIndex=-1, children=page_container),
                        ],
                    ),
                ],
            ),
            html.Button("Leave the presentation", id="present-off", className="present-off"),
            html.Div(id="said", className="said", role="status", **{"aria-live": "polite"}),
            html.Div(id="trouble", className="trouble", role="alert"),
        ],
    )


BY_WORDS = {"function": "byWords"}
"""Options that hold every word that was typed, in their name or in that of their group, in any order."""
READER_HELP = "Who reads the traces: a method, the frozen proxy model it reads with, and the text that the proxy sees"
ROSTER_HELP = "The list of sources that an answer can name"
DOMAIN_HELP = "The prompts behind the traces: Agent500 (500 agent tasks) or Math100 (100 problems)"


def reader_options(asked: Questions) -> list[dict[str, Any]]:
    """Readers to choose from: measured here before published, by kind of method."""
    return [
        {"group": group, "items": [{"value": reader, "label": asked.reader_name(reader)} for reader in members]}
        for group, members in asked.reader_groups()
    ]


def _navigation(pages: Sequence[Page]) -> Component:
    return html.Nav(
        className="rail",
        **{"aria-label": "Pages"},
        children=[
            html.Div(
                className="brand",
                children=[html.Span(className="brand-mark"), html.Span("Provenance Atlas", className="rail-word")],
            ),
            *[
                dcc.Link(
                    id=f"nav-{page.name}",
                    href=page.path,
                    className="rail-link",
                    title=page.title,
                    children=[icon(page.icon), html.Span(page.title, className="rail-word")],
                )
                for page in pages
                if page.icon
            ],
            html.Div(className="gap"),
            html.Button(
                id="fold",
                className="rail-link",
                title="Fold or unfold the navigation",
                **{"aria-label": "Fold or unfold the navigation", "aria-expanded": "true"},
                children=[icon("fold"), html.Span("Fold", className="rail-word")],
            ),
        ],
    )


def _choice(
    name: str, label: str, options: list[dict[str, Any]], value: str, help_text: str, *, grow: bool = False
) -> Component:
    return html.Div(
        className="choice choice-wide" if grow else "choice",
        children=[
            html.Label([term(label, help_text)], htmlFor=name, className="choice-label"),
            dmc.Select(
                id=name,
                data=options,
                value=value or None,
                allowDeselect=False,
                disabled=not options,
                searchable=grow,
                nothingFoundMessage="No reader has this name" if grow else None,
                **({"filter": BY_WORDS} if grow else {}),
                maxDropdownHeight=420,
                placeholder="no data yet",
                size="sm",
                comboboxProps={"zIndex": 400, "width": "max-content", "position": "bottom-start"},
                attributes=named(label),
            ),
        ],
    )


def named(label: str) -> dict[str, dict[str, str]]:
    """The name of a list to choose from, for its field and for what opens below it."""
    return {"input": {"aria-label": label}, "options": {"aria-label": label}}


def icon(name: str) -> Component:
    """A drawn sign; always beside a word or inside something that has a label."""
    return html.Span(className=f"icon icon-{name}", **{"aria-hidden": "true"})


def _icon_button(identity: str | dict[str, str], sign: str, label: str) -> Component:
    return dmc.Tooltip(
        label=label,
        openDelay=300,
        children=html.Button(id=identity, className="icon-button", **{"aria-label": label}, children=icon(sign)),
    )


# ---- words ----------------------------------------------------------------------------------------------------------


def term(word: str, meaning: str) -> Component:
    """A word with a dotted underline that explains itself."""
    return dmc.Tooltip(
        label=meaning,
        multiline=True,
        w=280,
        openDelay=200,
        events={"hover": True, "focus": True, "touch": True},
        boxWrapperProps={"display": "inline"},
        children=html.Span(word, className="term", tabIndex=0),
    )


def source_name(name: str) -> Component:
    """A source's name as text, whatever its script or length."""
    return html.Span(str(name), className="name", title=str(name), dir="auto")


def source_options(asked: Questions, roster: str) -> list[dict[str, Any]]:
    """Sources of a roster to choose from, grouped by family, large families first."""
    members = asked.ask(queries.sources, roster)
    order = members.groupby("family")["source"].size().sort_values(ascending=False, kind="stable").index
    pairs = {family: members.loc[members["family"] == family, ["source", "name"]] for family in order}
    return [
        {"group": str(family), "items": [{"value": source, "label": name} for source, name in rows.to_numpy()]}
        for family, rows in pairs.items()
    ]


def source_search(identity: str, asked: Questions, roster: str, value: str, placeholder: str, label: str) -> Component:
    """A field that finds a source by its name, with suggestions, by keyboard."""
    return dmc.Select(
        id=identity,
        data=source_options(asked, roster),
        value=value or None,
        searchable=True,
        clearable=True,
        placeholder=placeholder,
        nothingFoundMessage="No source has this name",
        filter=BY_WORDS,
        limit=60,
        maxDropdownHeight=320,
        size="sm",
        comboboxProps={"zIndex": 300},
        attributes=named(label),
    )


def symbol(mark: Mark, theme: Theme) -> Component:
    """A family's mark as the figures draw it."""
    return html.Span(
        className="symbol", style={"color": mark.colour(theme)}, **{"data-symbol": mark.symbol, "aria-hidden": "true"}
    )


ORIGINS = {"measured": "Measured here", "published": "Published"}


def origin_badge(origin: str, figure: str = "") -> Component:
    """'Measured here' solid, 'published' hollow; that of a figure follows the reader.

    A figure that shows readers of both kinds has no badge of its own (an empty ``origin``).
    """
    if not origin:
        return html.Span()
    identity = {"id": {"type": "origin", "figure": figure}} if figure else {}
    return html.Span(ORIGINS[origin], className=f"origin origin-{origin}", **identity)


def source_link(view: View, source: str, name: str) -> Component:
    """A source's name that leads to its page."""
    return dcc.Link(source_name(name), href=source_path(view, source), className="name-link")


def source_path(view: View, source: str) -> str:
    """Link of a source's page with the header's choices."""
    return f"/source/{quote(source, safe='')}?{_shared_query(view)}"


def family_link(view: View, family: str) -> Component:
    """A family's name that leads to its page."""
    href = f"/family/{quote(family, safe='')}?{_shared_query(view)}"
    return dcc.Link(html.Span(family, dir="auto"), href=href, className="family-link")


def _shared_query(view: View) -> str:
    return View(reader=view.reader, roster=view.roster, domain=view.domain, theme=view.theme).query()


def settled(asked: View, shown: View) -> Component:
    """What a page shows instead of what its link asked for; the header follows."""
    data = {"roster": shown.roster} if shown.roster != asked.roster else {}
    return html.Div([dcc.Store(id="settled", data=data), dcc.Store(id="settled-told")])


def empty(problem: str, remedy: str, ways: Sequence[tuple[str, str]] = ()) -> Component:
    """What would be here, and what makes it. A command in the remedy is set apart.

    Parameters
    ----------
    problem, remedy : str
    ways : sequence of (words, link)
        Views close to this one that have something to show.
    """
    children: list[Component | str] = [html.P(problem.rstrip(".") + ".")]
    before, start, rest = remedy.partition("python -m ")
    command, _, after = rest.partition(", ")
    children.append(html.P(before.strip()))
    if start:
        children.append(html.Code(start + command, className="command"))
    if after:
        children.append(html.P(f"{after[0].upper()}{after[1:].rstrip('.')}."))
    children += [dcc.Link(words, href=link, className="forward way") for words, link in ways]
    return html.Div(children, className="empty", role="note")


def unknown(kind: str, name: str, view: View) -> Component:
    """The page of a source or family that the atlas does not hold."""
    return html.Div(
        className="column",
        children=[
            html.H1(f"There is no such {kind}"),
            html.P(
                ["The atlas has no ", kind, " called ", html.Span(name, dir="auto", className="long mono"), "."],
                className="sentence",
            ),
            empty("Names change between generations", "Look it up on the map", [("Open the map", f"/?{view.query()}")]),
        ],
    )


def no_generation(error: AtlasError) -> Component:
    """The page of an atlas without data."""
    return html.Div(
        className="column",
        children=[
            html.H1("Nothing has been published yet"),
            html.P(
                "The atlas shows numbers that its own jobs computed. This command fetches what it needs, "
                "computes them and publishes them; a page that is open shows them at the next click.",
                className="sentence",
            ),
            empty(error.problem, error.remedy),
        ],
    )


# ---- figures --------------------------------------------------------------------------------------------------------


def tools(name: str, *, picture: bool = True, table_view: bool = True, made: bool = True) -> Component:
    """Table, CSV, link, pictures, origin of one figure."""

    def tool(kind: str, sign: str, word: str, **more: str) -> Component:
        return html.Button([icon(sign), word], id={"type": kind, "figure": name}, className="tool", **more)

    buttons = [tool("table", "table", "Table", **{"aria-pressed": "false"})] if table_view else []
    buttons.append(tool("csv", "download", "CSV"))
    if picture:
        buttons += [tool("png", "picture", "PNG"), tool("svg", "picture", "SVG")]
    buttons.append(tool("link", "link", "Link"))
    origin = dmc.Popover(
        width=420,
        position="bottom-end",
        shadow="none",
        trapFocus=True,
        returnFocus=True,
        # Mantine would put the roles on a box around the button, which is no control.
        withRoles=False,
        withinPortal=True,
        zIndex=350,
        children=[
            dmc.PopoverTarget(tool("made", "origin", "How was this made?", **{"aria-haspopup": "dialog"})),
            dmc.PopoverDropdown(
                html.Div(
                    id={"type": "made-body", "figure": name},
                    className="made",
                    role="dialog",
                    tabIndex=0,
                    **{"aria-label": "How this was made", "data-autofocus": "true"},
                    children="Looking it up …",
                )
            ),
        ],
    )
    return html.Div(
        className="tools",
        role="group",
        **{"aria-label": "About this figure"},
        children=[*buttons, *([origin] if made else []), dcc.Download(id={"type": "download", "figure": name})],
    )


def figure_body(
    name: str, graph: Component, *, height: int | None, label: str, absent: Component | None = None
) -> Component:
    """The drawing, and above it, when asked for, its table; the box never changes its size."""
    return html.Div(
        id={"type": "body", "figure": name},
        className="figure-body",
        style={"height": height} if height else {},
        children=[
            html.Div(graph, className="figure-drawing", role="img", **{"aria-label": label}),
            html.Div(absent, id={"type": "absent", "figure": name}, className="figure-absent"),
            html.Div(id={"type": "rows", "figure": name}, className="figure-table"),
        ],
    )


def figure_section(
    name: str,
    question: str,
    sentence: Children,
    graph: Component,
    *,
    height: int,
    controls: Children = None,
    origin: str = "measured",
    beside: Component | None = None,
    absent: Component | None = None,
) -> Component:
    """A figure with its question, its sentence, its controls and what it says of itself."""
    return html.Section(
        id=f"figure-{name}",
        className="figure",
        **{"aria-labelledby": f"title-{name}"},
        children=[
            html.Div(
                className="figure-head",
                children=[
                    html.Div(
                        [html.H2(question, id=f"title-{name}"), origin_badge(origin, name)], className="figure-title"
                    ),
                    tools(name),
                ],
            ),
            html.P(sentence, id={"type": "sentence", "figure": name}, className="sentence"),
            html.Div(controls, className="controls") if controls else None,
            html.Div(
                [figure_body(name, graph, height=height, label=question, absent=absent), *([beside] if beside else [])],
                className="figure-row" if beside else "",
            ),
        ],
    )


def grid_section(
    name: str,
    question: str,
    content: Component,
    sentence: Children,
    *,
    origin: str = "measured",
    height: int | None = 480,
    controls: Children = None,
    below: Component | None = None,
) -> Component:
    """A figure that is a table: the same head, no picture and no second table."""
    return html.Section(
        id=f"figure-{name}",
        className="figure",
        **{"aria-labelledby": f"title-{name}"},
        children=[
            html.Div(
                className="figure-head",
                children=[
                    html.Div(
                        [html.H2(question, id=f"title-{name}"), origin_badge(origin, name)], className="figure-title"
                    ),
                    tools(name, picture=False, table_view=False),
                ],
            ),
            html.P(sentence, id={"type": "sentence", "figure": name}, className="sentence"),
            html.Div(controls, className="controls") if controls else None,
            html.Div(
                html.Div(content, id=f"{name}-place", className="figure-drawing"),
                id={"type": "body", "figure": name},
                className="figure-body",
                style={"height": height} if height else {},
            ),
            below,
        ],
    )


def labelled(label: str, identity: str, field: Component) -> Component:
    """A field with its label before it."""
    return html.Div([html.Label(label, htmlFor=identity, className="choice-label"), field], className="field")


def graph(identity: str, figure: Any, *, scroll_zoom: bool = False) -> Component:
    """A Plotly figure without a tool bar of its own, and a sign of life when it takes longer than 300 ms."""
    return dcc.Loading(
        dcc.Graph(
            id=identity,
            figure=figure,
            responsive=True,
            className="graph",
            config={"displayModeBar": False, "scrollZoom": scroll_zoom, "displaylogo": False, "doubleClick": False},
        ),
        delay_show=300,
        overlay_style={"visibility": "visible"},
        custom_spinner=html.Div("Drawing …", className="working"),
        parent_className="loading",
    )


def segmented(identity: str, options: Mapping[Any, str], value: Any, label: str) -> Component:
    """A few exclusive choices in a row."""
    return html.Div(
        className="segmented",
        role="group",
        **{"aria-label": label},
        children=[
            html.Span(label, className="choice-label"),
            dmc.SegmentedControl(
                id=identity,
                data=[{"value": str(key), "label": word} for key, word in options.items()],
                value=str(value),
                size="xs",
                transitionDuration=0,
            ),
        ],
    )


NUMBER_COLUMNS: Mapping[str, str] = {
    "cosine": "params.value == null ? '–' : d3.format('.3f')(params.value).replace(/^0/, '')",
    "rate": "params.value == null ? '–' : (params.value >= 1 ? '1' : d3.format('.3f')(params.value).replace(/^0/, ''))",
    "number": "params.value == null ? '–' : d3.format('.4~g')(params.value)",
    "count": "params.value == null ? '–' : d3.format(',')(params.value)",
}
RATES = ("accuracy", "share", "percentile", "value", "std", "low", "high", "purity")


def table(frame: pd.DataFrame, *, identity: str | dict[str, str] | None = None, **options: Any) -> Component:
    """Rows as an AG Grid: sortable, filterable, numbers right-aligned, names as text."""
    columns = []
    for name in frame.columns:
        column: dict[str, Any] = {"field": str(name), "headerName": header(str(name)), "minWidth": 92}
        if pd.api.types.is_float_dtype(frame[name]):
            rate = str(name).startswith(RATES) and float(frame[name].max()) <= 1
            kind = "cosine" if name == "cosine" else "rate" if rate else "number"
            column |= {"type": "rightAligned", "filter": "agNumberColumnFilter"}
            column["valueFormatter"] = {"function": NUMBER_COLUMNS[kind]}
        elif pd.api.types.is_integer_dtype(frame[name]):
            column |= {"type": "rightAligned", "filter": "agNumberColumnFilter"}
            column["valueFormatter"] = {"function": NUMBER_COLUMNS["count"]}
        else:
            column |= {"filter": "agTextColumnFilter", "minWidth": 140, "tooltipField": str(name)}
            column["flex"] = 1
            if name == "command":
                column["minWidth"] = 320
        columns.append(column)
    return dag.AgGrid(
        **({"id": identity} if identity is not None else {}),
        rowData=records(frame),
        columnDefs=columns,
        defaultColDef={"sortable": True, "resizable": True, "flex": 1},
        dashGridOptions={
            "rowHeight": 34,
            "headerHeight": 38,
            "tooltipShowDelay": 400,
            "ensureDomOrder": True,
            **options,
        },
        className="ag-theme-quartz atlas-grid",
        style={"height": "100%", "width": "100%"},
    )


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for the browser, with null for what is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", date_format="iso"))
    return rows


def header(column: str) -> str:
    """A column's name for people."""
    known = {
        "k": "K",
        "n": "Groups",
        "std": "Std",
        "predicted": "Answered",
        "confused_name": "Most confused with",
        "confused_count": "Times",
        "rank_back": "Rank back",
        "code_version": "Commit",
        "duration_s": "Seconds",
        "started_at": "Date (UTC)",
    }
    if column in known:
        return known[column]
    if column.startswith("accuracy_"):
        return f"Accuracy, K = {column.removeprefix('accuracy_')}"
    return column.replace("_", " ").capitalize()


def csv_text(frame: pd.DataFrame) -> str:
    """CSV in which no name is a formula to a spreadsheet."""
    safe = frame.copy()
    for column in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[column]):
            safe[column] = [
                f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
                for value in safe[column]
            ]
    return str(safe.to_csv(index=False))


def builds_told(builds: pd.DataFrame) -> Component:
    """Command, commit, hashes and date of the builds behind a figure."""
    if builds.empty:
        return html.P("No build is recorded for what this figure shows.")
    parts: list[Component] = []
    for build in builds.itertuples(index=False):
        facts = {
            "Date": f"{build.started_at:%Y-%m-%d %H:%M} UTC, {build.duration_s:,.0f} s",
            "Commit": build.code_version,
            "Data": _hash(build.data_hash),
            "Proxy": _hash(build.proxy_hash),
            "Seed": "" if pd.isna(build.seed) else str(build.seed),
            "Machine": build.host,
            "File": build.source_file if isinstance(build.source_file, str) and build.source_file else "",
        }
        parts.append(
            html.Div(
                className="build",
                children=[
                    html.Div([html.Strong(str(build.stage)), origin_badge(str(build.origin))], className="build-head"),
                    html.Code(str(build.command), className="command"),
                    html.Dl(
                        [piece for word, fact in facts.items() if fact for piece in (html.Dt(word), html.Dd(fact))]
                    ),
                ],
            )
        )
    return html.Div(parts)


def _hash(value: object) -> Component | str:
    if not isinstance(value, str) or not value:
        return ""
    return html.Code(f"sha256 {value[:16]}…", title=value)


# ---- what every page's figures do ------------------------------------------------------------------------------------


def register(app: Dash, pages: Sequence[Page]) -> None:
    """Callbacks of the frame, and those that all figures share."""
    told = {name: figure for page in pages for name, figure in page.figures.items()}

    def client(function: str) -> ClientsideFunction:
        return ClientsideFunction("atlas", function)

    app.clientside_callback(
        client("arrive"),
        Output("reader", "value"),
        Output("roster", "value"),
        Output("domain", "value"),
        Input("_pages_location", "search"),
        Input("_pages_location", "pathname"),
        State("reader", "data"),
        State("roster", "data"),
        State("domain", "data"),
        State("reader", "value"),
        State("roster", "value"),
        State("domain", "value"),
    )
    app.clientside_callback(client("header"), *SHARED)
    app.clientside_callback(
        client("theme"),
        Output("theme", "data"),
        Output("mantine", "forceColorScheme"),
        Input("theme-toggle", "n_clicks"),
        State("theme", "data"),
    )
    app.clientside_callback(client("fold"), Output("fold", "aria-expanded"), Input("fold", "n_clicks"))
    app.clientside_callback(client("copyLink"), Input("copy-view", "n_clicks"), prevent_initial_call=True)
    app.clientside_callback(
        client("copyLink"), Input({"type": "link", "figure": MATCH}, "n_clicks"), prevent_initial_call=True
    )
    app.clientside_callback(
        client("picture"),
        Input({"type": "png", "figure": MATCH}, "n_clicks"),
        Input({"type": "svg", "figure": MATCH}, "n_clicks"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        client("tableShown"),
        Output({"type": "body", "figure": MATCH}, "className"),
        Output({"type": "table", "figure": MATCH}, "aria-pressed"),
        Input({"type": "table", "figure": MATCH}, "n_clicks"),
        prevent_initial_call=True,
    )

    # A callback without an output is not called when its page opens, so this one has one.
    app.clientside_callback(client("settled"), Output("settled-told", "data"), Input("settled", "data"))

    @app.callback(
        Output({"type": "origin", "figure": ALL}, "children"),
        Output({"type": "origin", "figure": ALL}, "className"),
        *SHARED,
        State({"type": "origin", "figure": ALL}, "id"),
        prevent_initial_call=True,
    )
    @answers.pure
    def origins(reader: str, roster: str, domain: str, theme: str, identities: list[dict[str, str]]) -> Any:
        asked, view = questions(), shared_view(reader, roster, domain, theme)
        found = [asked.origin(told[identity["figure"]].reader(asked, view)) for identity in identities]
        return [ORIGINS[origin] for origin in found], [f"origin origin-{origin}" for origin in found]

    # Which tables are open is known in the browser, so that the server is asked for none where none is.
    app.clientside_callback(
        client("tables"),
        Output("tables", "data"),
        Input({"type": "table", "figure": ALL}, "n_clicks"),
        Input("view", "data"),
        State({"type": "table", "figure": ALL}, "id"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output({"type": "rows", "figure": ALL}, "children"),
        Input("tables", "data"),
        State({"type": "rows", "figure": ALL}, "id"),
        prevent_initial_call=True,
    )
    @answers.pure
    def rows(wanted: dict[str, Any], identities: list[dict[str, str]]) -> Any:
        view = questions().settle(View.parse(wanted["view"]))

        def shown(figure: str) -> Any:
            if figure not in wanted["figures"]:
                return no_update
            frame = told[figure].table(questions(), view)
            if frame.empty:
                return empty("There are no rows for this choice", "Choose another reader, roster or domain above")
            return table(frame, identity={"type": "grid", "figure": figure})

        return [shown(identity["figure"]) for identity in identities]

    @app.callback(
        Output({"type": "download", "figure": MATCH}, "data"),
        Input({"type": "csv", "figure": MATCH}, "n_clicks"),
        State("view", "data"),
        State({"type": "csv", "figure": MATCH}, "id"),
        prevent_initial_call=True,
    )
    def csv(clicks: int | None, given: dict[str, str], identity: dict[str, str]) -> Any:
        if not clicks:
            return no_update
        view = questions().settle(View.parse(given))
        text = csv_text(told[identity["figure"]].table(questions(), view))
        parts = ("atlas", identity["figure"], view.roster, view.domain, questions().generation().name)
        return {"content": text, "filename": "_".join(filter(None, parts)) + ".csv", "type": "text/csv"}

    @app.callback(
        Output({"type": "made-body", "figure": MATCH}, "children"),
        Input({"type": "made", "figure": MATCH}, "n_clicks"),
        State("view", "data"),
        State({"type": "made", "figure": MATCH}, "id"),
        prevent_initial_call=True,
    )
    def made(clicks: int | None, given: dict[str, str], identity: dict[str, str]) -> Any:
        if not clicks:
            return no_update
        find = told[identity["figure"]].made
        if find is None:
            return no_update
        name, key = find(questions(), questions().settle(View.parse(given)))
        return builds_told(questions().ask(queries.made_by, name, key))

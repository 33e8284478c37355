"""Parts of every page: figures and their frame, names and links, terms, empty states, fields, tables."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import dash_ag_grid as dag
import dash_mantine_components as dmc
import pandas as pd
from dash import Dash, Input, dcc, html
from dash.development.base_component import Component

from atlas.data import QueryCache, questions
from atlas.state import View, join
from atlas.theme import Mark, Theme
from backend.attribution.report_words import date_words
from backend.errors import AtlasError
from backend.output_files import plain_cell
from backend.store import queries

SHARED = (Input("reader", "value"), Input("roster", "value"), Input("domain", "value"), Input("theme", "data"))
ORIGINS = {"measured": "Measured here", "published": "Published"}
BY_WORDS = {"function": "byWords"}
"""Filter of options: every typed word occurs in the name or in its group's, in any order."""
CLOSEST = {"function": "closest"}
"""The same for names of sources, the closest one first."""
Children = Component | str | Sequence[Component | str] | None
NUMBER_COLUMNS: Mapping[str, str] = {
    "cosine": "params.value == null ? '–' : d3.format(params.value >= 0.9995 && params.value < 1 ? '.5f' : '.3f')"
    "(params.value).replace(/^0/, '')",
    "rate": "params.value == null ? '–' : (params.value >= 1 ? '1' : d3.format('.3f')(params.value).replace(/^0/, ''))",
    "number": "params.value == null ? '–' : d3.format(Math.abs(params.value) < 1000 ? '.3~g' : ',.0f')(params.value)",
    "p": "params.value == null ? '–' : params.value < 0.001 ? '< .001' : params.value >= 0.9995 ? '> .999'"
    " : d3.format('.3f')(params.value).replace(/^0/, '')",
    "percent": "params.value == null ? '–' : d3.format('.0%')(params.value).replace('%', ' %')",
    "signed": "params.value == null ? '–' : d3.format('+.3f')(params.value).replace(/^(.)0/, '$1')",
    "hundredths": "params.value == null ? '–' : d3.format(',.2f')(params.value)",
    "count": "params.value == null ? '–' : d3.format(',')(params.value)",
}
HEADERS = {
    **{"k": "K", "n": "Groups", "std": "Std", "predicted": "Answered", "rank_back": "Rank back"},
    **{"groups": "Groups drawn", "p_value": "p", "p_holm": "Holm p", "dc": "DC", "ac": "AC"},
    **{"confused_name": "Most confused with", "confused_count": "Times"},
    **{"code_version": "Commit", "duration_s": "Seconds", "started_at": "Date (UTC)"},
}
RATES = ("accuracy", "share", "percentile", "value", "std", "low", "high", "purity")

BuildKey = Callable[[QueryCache, View], tuple[str, dict[str, object]] | None]
"""A table of the store, and the key of its rows; None where there are none."""
FEW_NAMES = 6
"""So many names can be meant by another one; more are all that there are."""


@dataclasses.dataclass(frozen=True)
class FigureMeta:
    """What a figure shows besides its drawing."""

    table: Callable[[QueryCache, View], pd.DataFrame]  # its rows, for the table view and the CSV
    key: BuildKey | None = None  # None where the figure itself lists the builds
    reader: Callable[[QueryCache, View], str] = QueryCache.attribution_reader  # whose numbers are shown
    also: BuildKey = lambda _cache, _view: None  # a second table, which another build may have written
    heads: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of columns of its table view
    widths: Mapping[str, int] = dataclasses.field(default_factory=dict)  # of the same, in pixels, where not the usual

    def builds(self, cache: QueryCache, view: View) -> pd.DataFrame:
        """Rows of table ``builds`` behind the figure, each build once, newest first."""
        keys = [self.key(cache, view) if self.key else None, self.also(cache, view)]
        parts = [cache.ask(queries.builds_of, *key) for key in keys if key]
        frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["build_id", "started_at"])
        return frame.drop_duplicates("build_id").sort_values("started_at", ascending=False, kind="stable")


@dataclasses.dataclass(frozen=True)
class Page:
    """One page of the atlas."""

    name: str
    path: str  # a template with <label> where it is one page a source
    title: str
    icon: str  # '' keeps it out of the navigation
    layout: Callable[..., Component]
    register: Callable[[Dash], None]
    figures: Mapping[str, FigureMeta]


def shared_view(reader: str | None, roster: str | None, domain: str | None, theme: str | None, **own: Any) -> View:
    """A settled view of the header's choices and a page's own."""
    given = {"reader": reader, "roster": roster, "domain": domain, "theme": theme, **own}
    lists = {name: join(tuple(value)) for name, value in given.items() if isinstance(value, list)}
    choices = {name: value for name, value in (given | lists).items() if value is not None}
    return questions().resolve_view(View.parse(choices))


def aria(**values: str) -> dict[str, Any]:
    """Attributes for assistive technology: ``label`` sets ``aria-label``."""
    return {f"aria-{name}": value for name, value in values.items()}


def icon(name: str) -> Component:
    """A drawn sign; always next to a word or inside something that has a label."""
    return html.Span(className=f"icon icon-{name}", **aria(hidden="true"))


def term(word: str, meaning: str) -> Component:
    """A word with a dotted underline that explains itself."""
    tooltip: Component = dmc.Tooltip(
        html.Span(word, className="term", tabIndex=0), label=meaning, multiline=True, w=280, openDelay=200,
        events={"hover": True, "focus": True, "touch": True}, boxWrapperProps={"display": "inline"},
    )  # fmt: skip
    return tooltip


def source_name(name: str) -> Component:
    """A source's name as text, whatever its script or length."""
    return html.Span(str(name), className="name", title=str(name), dir="auto")


def symbol(mark: Mark, theme: Theme) -> Component:
    """A family's mark as the figures draw it."""
    drawn = {"data-symbol": mark.symbol, **aria(hidden="true")}
    return html.Span(className="symbol", style={"color": mark.colour(theme)}, **drawn)


def origin_badge(origin: str, figure: str = "") -> Component:
    """'Measured here' solid, 'published' hollow; nothing for readers of both kinds (an empty ``origin``)."""
    if not origin:
        return html.Span()
    identity: dict[str, Any] = {"id": {"type": "origin", "figure": figure}} if figure else {}
    return html.Span(ORIGINS[origin], className=f"origin origin-{origin}", **identity)


def origin_badges(origins: Iterable[str]) -> list[Component | str]:
    """The badges of a figure of several origins, at the head of its sentence."""
    drawn = set(origins)
    return [part for origin in ORIGINS if origin in drawn for part in (origin_badge(origin), " ")] + ["· "]


def source_link(view: View, source: str, name: str) -> Component:
    """A source's name that leads to its page."""
    return dcc.Link(source_name(name), href=source_path(view, source), className="name-link")


def source_path(view: View, label: str, page: str = "source") -> str:
    """Link of a source's or family's page with the header's choices."""
    shared = View(reader=view.reader, roster=view.roster, domain=view.domain, theme=view.theme)
    return f"/{page}/{quote(label, safe='')}?{shared.query()}"


def family_link(view: View, family: str) -> Component:
    """A family's name that leads to its page."""
    href = source_path(view, family, "family")
    return dcc.Link(html.Span(family, dir="auto"), href=href, className="family-link")


def of_generation(page: Component, name: str) -> Component:
    """A page that knows its generation, which pictures of its figures name."""
    setattr(page, "data-generation", name)
    return page


def settled(linked: View, shown: View, text: str = "") -> Component:
    """What a page shows in place of its link's choices; the header follows."""
    text = text or f"This reader's accuracy is not measured on {linked.roster} here: {shown.roster} is shown."
    return html.Div([dcc.Store(id="settled", data=replaced(linked, shown, text)), dcc.Store(id="settled-told")])


def told(text: str, shown: Mapping[str, str]) -> list[Component]:
    """Words on a link for the line below the header, until one of the ``shown`` choices changes."""
    words = {"text": text, "shown": shown}
    return [dcc.Store(id="link-words", data=words), dcc.Store(id="link-told")] if text else []


def replaced(linked: View, shown: View, text: str) -> dict[str, str]:
    """Choices that others stand in for, by the names of their controls, and the words that tell of it."""
    values = {name: str(getattr(shown, name)) for name in ("reader", "roster", "domain", "projection", "dim")}
    changed = {name: value for name, value in values.items() if value != str(getattr(linked, name))}
    return changed | {"text": text} if changed else {}


def unbroken(text: str) -> list[Component | str]:
    """A text whose words with hyphens, such as names and options, break only where a line is too short for them."""
    parts = re.split(r"(\S*-\S*)", text)
    return [html.Span(part, className="unbroken") if "-" in part else part for part in parts if part]


def empty(problem: str, remedy: str, ways: Sequence[tuple[str, str]] = ()) -> Component:
    """What would be here, and what makes it; a command in the remedy is set apart.

    ways : (words, link) of views close to this one that have something to show.
    """
    children: list[Component | str] = [html.P(problem.rstrip(".") + ".")]
    before, start, rest = remedy.partition("python -m ")
    command, _, after = rest.partition(", ")
    before = before.strip()
    children.append(html.P(before if start or before.endswith((".", "?", ":")) else f"{before}."))
    if start:
        children.append(html.Code(start + command, className="command"))
    if after:
        children.append(html.P(f"{after[0].upper()}{after[1:].rstrip('.')}."))
    links: list[Component | str] = [dcc.Link(words, href=link, className="forward way") for words, link in ways]
    children += [html.Div(links, className="many-ways")] if len(ways) > FEW_NAMES else links
    return html.Div(children, className="empty", role="note")


def nowhere(**_: str) -> Component:
    """The page of an address that leads nowhere."""
    ways = [("The map", "/"), ("Ask about your own traces", "/attribute"), ("What everything means", "/methods")]
    remedy = "It may have been cut, or come from another version"
    sentence = empty("The address leads to none of the atlas's pages", remedy, ways)
    return html.Div([html.H1("There is no such page"), sentence], className="column")


def unknown(kind: str, name: str, view: View, near: Sequence[tuple[str, str]]) -> Component:
    """The page of a source or family that the atlas does not hold; near : names and labels of some like it."""
    label = html.Span(name, dir="auto", className="long mono")
    sentence = html.P(["The atlas has no ", kind, " called ", label, "."], className="sentence")
    ways = [(called, source_path(view, label, kind)) for called, label in near]
    remedy = "Did you mean one of these?" if near else "Look it up on the map"
    remedy = f"The atlas has {len(near)}:" if kind == "family" and len(near) > FEW_NAMES else remedy
    way = "Open the map", f"/?{view.query()}"
    note = empty("Names are spelled as on the map", remedy, ways or [way])
    other = [html.P(dcc.Link(way[0], href=way[1], className="forward"))] if ways else []  # not one of the names
    return html.Div([html.H1(f"There is no such {kind}"), sentence, note, *other], className="column")


def no_generation(error: AtlasError) -> Component:
    """The page of an atlas without data."""
    sentence = (
        "The atlas shows numbers that its own jobs computed. This command fetches what it needs, computes them and "
        "publishes them; a page that is open shows them at the next click."
    )
    title, remedy = html.H1("Nothing has been published yet"), empty(error.problem, error.remedy)
    return html.Div([title, html.P(sentence, className="sentence"), remedy], className="column")


def reader_options(cache: QueryCache) -> list[dict[str, Any]]:
    """Readers to choose from: measured here before published, by kind of method."""
    return [
        {"group": group, "items": [{"value": reader, "label": cache.reader_name(reader)} for reader in members]}
        for group, members in cache.reader_groups()
    ]


def named(label: str) -> dict[str, dict[str, str]]:
    """The name of a list to choose from, for its field and for what opens below it."""
    return {"input": aria(label=label), "options": aria(label=label)}


def source_options(cache: QueryCache, roster: str) -> list[dict[str, Any]]:
    """Sources of a roster to choose from, grouped by family, large families first."""
    members = cache.ask(queries.sources, roster)
    order = members.groupby("family")["source"].size().sort_values(ascending=False, kind="stable").index
    pairs = {family: members.loc[members["family"] == family, ["source", "name"]] for family in order}
    return [
        {"group": str(family), "items": [{"value": source, "label": name} for source, name in rows.to_numpy()]}
        for family, rows in pairs.items()
    ]


def source_search(identity: str, cache: QueryCache, roster: str, value: str, placeholder: str, label: str) -> Component:
    """A field that finds a source by its name, with suggestions, by keyboard."""
    return select(
        identity, label, source_options(cache, roster), value=value or None, size="sm", searchable=True, clearable=True,
        placeholder=placeholder, nothingFoundMessage="No source has this name", filter=CLOSEST, limit=60,
        maxDropdownHeight=320, allowDeselect=False,
    )  # fmt: skip


def select(identity: str, label: str, data: Sequence[Any] = (), kind: Any = dmc.Select, **options: Any) -> Component:
    """A list to choose from, above the page; ``label`` is its name for assistive technology.

    kind : ``dmc.MultiSelect`` for several. Where names are searched, Enter takes the first hit.
    """
    first = {"selectFirstOptionOnChange": True} if options.get("searchable") else {}
    options = {"comboboxProps": {"zIndex": 300}, "attributes": named(label), **first, **options}
    field: Component = kind(id=identity, data=list(data), **options)
    return field


def labelled(label: str, identity: str, field: Component) -> Component:
    """A field with its label before it."""
    return html.Div([html.Label(label, htmlFor=identity, className="choice-label"), field], className="field")


def segmented(
    identity: str | dict[str, str], options: Mapping[Any, str], value: Any, label: str, meaning: str = ""
) -> Component:
    """A few exclusive choices in a row; their label says what they mean, where that is given."""
    data = [{"value": str(key), "label": word} for key, word in options.items()]
    control = dmc.SegmentedControl(id=identity, data=data, value=str(value), size="xs", transitionDuration=0)
    children = [html.Span(term(label, meaning) if meaning else label, className="choice-label"), control]
    return html.Div(children, className="segmented", role="group", **aria(label=label))


def tools(
    name: str, *, picture: bool = True, table_view: bool = True, builds: bool = True, csv: str = "CSV"
) -> Component:
    """Table, CSV, link, pictures, origin of one figure."""

    def tool(kind: str, sign: str, word: str, **more: Any) -> Component:
        return html.Button([icon(sign), word], id={"type": kind, "figure": name}, className="tool", **more)

    buttons = [tool("table", "table", "Table", **aria(pressed="false"))] if table_view else []
    buttons.append(tool("csv", "download", csv))
    if picture:
        buttons += [tool("png", "picture", "PNG"), tool("svg", "picture", "SVG")]
    buttons.append(tool("link", "link", "Link"))
    body = html.Div(
        "Looking it up …", id={"type": "made-body", "figure": name}, className="made", role="dialog", tabIndex=0,
        **aria(label="How this was made") | {"data-autofocus": "true"},
    )  # fmt: skip
    button = tool("made", "origin", "How was this made?", **aria(haspopup="dialog"))
    # Mantine would put the roles on a box around the button, which is no control.
    origin = dmc.Popover(
        [dmc.PopoverTarget(button), dmc.PopoverDropdown(body)], width=420, position="bottom-end", shadow="none",
        trapFocus=True, returnFocus=True, withRoles=False, withinPortal=True, zIndex=350,
    )  # fmt: skip
    children = [*buttons, *([origin] if builds else []), dcc.Download(id={"type": "download", "figure": name})]
    return html.Div(children, className="tools", role="group", **aria(label="About this figure"))


def figure_body(
    name: str, graph: Component, *, height: int | None, label: str, absent: Component | None = None
) -> Component:
    """The drawing, and above it, on request, its table; the box never changes its size."""
    parts = [
        html.Div(graph, className="figure-drawing", role="img", **aria(label=label)),
        html.Div(absent, id={"type": "absent", "figure": name}, className="figure-absent"),
        html.Div(id={"type": "rows", "figure": name}, className="figure-table"),
    ]
    return _body(name, parts, height)


def _body(name: str, children: Children, height: int | None) -> Component:
    style = {"height": height} if height else {}
    return html.Div(children, id={"type": "body", "figure": name}, className="figure-body", style=style)


def framed(name: str, title: Sequence[Component], offers: Component, *content: Component | None) -> Component:
    """A part of a page: a title that names it, what it offers next to the title, and its content below."""
    head = html.Div([html.Div(list(title), className="figure-title"), offers], className="figure-head")
    return html.Section([head, *content], id=f"figure-{name}", className="figure", **aria(labelledby=f"title-{name}"))


def _headed(
    name: str, question: str, sentence: Children, origin: str, controls: Children, offers: Component,
    *content: Component | None,
) -> Component:  # fmt: skip
    """A figure's question, origin, sentence and controls, and its content below."""
    return framed(
        name,
        [html.H2(question, id=f"title-{name}"), origin_badge(origin, name)],
        offers,
        html.P(sentence, id={"type": "sentence", "figure": name}, className="sentence"),
        html.Div(controls, className="controls") if controls else None,
        *content,
    )


def figure_section(
    name: str, question: str, sentence: Children, graph: Component, *, height: int, controls: Children = None,
    origin: str = "measured", aside: Component | None = None, absent: Component | None = None,
    below: Component | None = None,
) -> Component:  # fmt: skip
    """A figure with its question, sentence, controls and tools; ``aside`` stands at its right."""
    row = [figure_body(name, graph, height=height, label=question, absent=absent), *([aside] if aside else [])]
    body = html.Div(row, className="figure-row" if aside else "")
    return _headed(name, question, sentence, origin, controls, tools(name), body, below)


def grid_section(
    name: str, question: str, content: Component, sentence: Children, *, origin: str = "measured",
    height: int | None = 480, controls: Children = None, below: Component | None = None,
) -> Component:  # fmt: skip
    """A figure that is a table: the same head, no picture and no second table."""
    offers = tools(name, picture=False, table_view=False)
    body = _body(name, html.Div(content, id=f"{name}-place", className="figure-drawing"), height)
    return _headed(name, question, sentence, origin, controls, offers, body, below)


def graph(identity: str, figure: Any, *awaited: Component, scroll_zoom: bool = False) -> Component:
    """A Plotly figure without a tool bar of its own, and a sign of life when it, or a part it awaits, takes 300 ms."""
    config: Any = {"displayModeBar": False, "scrollZoom": scroll_zoom, "displaylogo": False, "doubleClick": False}
    plot = dcc.Graph(id=identity, figure=figure, responsive=True, className="graph", config=config)
    return loading([plot, *awaited], "Drawing …", parent_className="loading")


def loading(children: Any, words: str, **options: Any) -> Component:
    """Parts of a page with a sign of life when they take 300 ms."""
    spinner = html.Div(words, className="working")
    return dcc.Loading(
        children, delay_show=300, overlay_style={"visibility": "visible"}, custom_spinner=spinner, **options
    )


def small_table(
    heads: Sequence[Any], rows: Sequence[Component], name: str = "", kind: str = "small wide", caption: str = ""
) -> Component:
    """A table in the text, its first row the heads; ``name`` is its name for assistive technology."""
    head = html.Thead(html.Tr([html.Th(word, scope="col") for word in heads]))
    above = [html.Caption(caption)] if caption else []
    return html.Table([*above, head, html.Tbody(rows)], className=kind, **(aria(label=name) if name else {}))


def facts(pairs: Mapping[str, Any], **options: Any) -> Component:
    """Words with what they stand for; those that stand for nothing do not appear."""
    return html.Dl([part for word, fact in pairs.items() if fact for part in (html.Dt(word), html.Dd(fact))], **options)


def build(head: Children, command: str, pairs: Mapping[str, Any]) -> Component:
    """What made some numbers: its name, its command, and further facts."""
    children = [html.Div(head, className="build-head"), html.Code(command, className="command"), facts(pairs)]
    return html.Div(children, className="build")


def hashed(value: object) -> Component | str:
    """The beginning of a hash, whole on hover; '' without one."""
    return html.Code(f"sha256 {value[:16]}…", title=value) if isinstance(value, str) and value else ""


def table(
    frame: pd.DataFrame, *, identity: str | dict[str, str] | None = None, heads: Mapping[str, str] | None = None,
    widths: Mapping[str, int] | None = None, **options: Any,
) -> Component:  # fmt: skip
    """Rows as an AG Grid: sortable, filterable, numbers right-aligned, names as text.

    heads, widths : Of columns, other than usual; a width is the least one, in pixels.
    """
    columns = []
    for name, values in frame.items():
        head = (heads or {}).get(str(name)) or header(str(name))
        # A head breaks at its spaces; a number is whole.
        least = max(92, 8 * max(map(len, head.split()), default=0) + 32)
        if pd.api.types.is_numeric_dtype(values) and len(numbers := values.dropna()):
            least = max(least, 8 * len(f"{numbers.max():,.0f}") + 16)
        least = (widths or {}).get(str(name), least)
        column: dict[str, Any] = {"field": str(name), "headerName": head, "minWidth": least}
        if pd.api.types.is_float_dtype(values):
            rate = str(name).startswith(RATES) and float(values.max()) <= 1
            kind = "cosine" if name == "cosine" else "p" if str(name).startswith("p_") else "rate" if rate else "number"
            column |= number_column(kind)
        elif pd.api.types.is_integer_dtype(values):
            column |= number_column("count")
        else:
            longest = max((len(str(text)) for text in values.dropna()), default=0)
            width = 320 if name == "command" else min(216, max(120, 7 * longest + 24))  # a tooltip holds a long command
            width = (widths or {}).get(str(name), width)
            column |= {"filter": "agTextColumnFilter", "minWidth": width, "tooltipField": str(name), "flex": 1}
            column |= WRAPPED if name != "command" and 7 * longest + 24 > width else {}
        columns.append(column)
    heads_whole = {"wrapHeaderText": True, "autoHeaderHeight": True}
    return ag_grid(identity, frame, columns, {"flex": 1, **heads_whole}, {"ensureDomOrder": True, **options})


WRAPPED: Mapping[str, Any] = {
    "wrapText": True, "autoHeight": True,
    "cellStyle": {"lineHeight": "1.35", "paddingTop": "7px", "paddingBottom": "7px", "overflowWrap": "anywhere"},
}  # fmt: skip
"""What makes the rows of a grid grow with the text of a column."""


LEAVE = {"function": "false"}
"""What a grid asks when Tab is pressed in it: no next cell, so that the browser goes on."""


def ag_grid(
    identity: str | dict[str, str] | None, frame: pd.DataFrame, columns: Sequence[dict[str, Any]],
    every: Mapping[str, Any], options: Mapping[str, Any],
) -> Component:  # fmt: skip
    """Rows as an AG Grid in the atlas's look; ``every`` holds for all columns."""
    grid: Component = dag.AgGrid(
        **({"id": identity} if identity is not None else {}), rowData=records(frame), columnDefs=list(columns),
        defaultColDef={"sortable": True, "resizable": True, **every},
        dashGridOptions={
            "rowHeight": 34, "headerHeight": 38, "tooltipShowDelay": 400,
            # One stop for Tab, as for any list: arrows go on inside.
            "tabToNextCell": LEAVE, "tabToNextHeader": LEAVE, **options,
        },
        className="ag-theme-quartz atlas-grid", style={"height": "100%", "width": "100%"},
    )  # fmt: skip
    return grid


def number_column(kind: str) -> dict[str, Any]:
    """What makes a column one of numbers; kind is of :data:`NUMBER_COLUMNS`."""
    formatter = {"function": NUMBER_COLUMNS[kind]}
    return {"type": "rightAligned", "filter": "agNumberColumnFilter", "valueFormatter": formatter}


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for the browser, with null for what is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", date_format="iso"))
    return rows


def header(column: str) -> str:
    """A column's name for people."""
    if column in HEADERS:
        return HEADERS[column]
    if column.startswith("accuracy_"):
        return f"Accuracy, K = {column.removeprefix('accuracy_')}"
    return column.replace("_", " ").capitalize()


def csv_text(frame: pd.DataFrame) -> str:
    """CSV in which no name is a formula to a spreadsheet."""
    safe: Any = frame.copy()
    for column in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[column]):
            safe[column] = [plain_cell(value) for value in safe[column]]
    return str(safe.to_csv(index=False))


def builds_list(builds: pd.DataFrame) -> Component:
    """Command, commit, hashes and date of the builds behind a figure."""
    if builds.empty:
        return html.P("No build is recorded for what this figure shows.")
    parts: list[Component] = []
    row: Any
    for row in builds.itertuples(index=False):
        pairs = {
            "Date": f"{date_words(row.started_at)}, {row.started_at:%H:%M} UTC, {row.duration_s:,.0f} s",
            "Commit": row.code_version,
            "Data": hashed(row.data_hash),
            "Proxy": hashed(row.proxy_hash),
            "Seed": "" if pd.isna(row.seed) else str(row.seed),
            "Machine": row.host,
            "File": row.source_file if isinstance(row.source_file, str) else "",
        }
        head = [html.Strong(str(row.stage)), origin_badge(str(row.origin))]
        parts.append(build(head, str(row.command), pairs))
    return html.Div(parts)

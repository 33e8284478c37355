"""Step 2: the question. Ecosystem, claim, prior, names for the report, and what may be kept of the text."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from atlas import shell
from atlas.data import METHOD_NAMES, VIEW_READS, questions
from atlas.pages.attribute import parts, visitor
from atlas.pages.attribute.result import grouped, known_sources
from backend.attribution.settings import MOST_ALSO, STOP_LEVEL, Settings
from backend.enrolment.catalogue import Ecosystem
from backend.errors import AtlasError
from backend.intake import Columns
from backend.methods.registry import ENCODED, ENCODER, OF_TRACES, ONE_BLOCK, reads_text, why_not
from backend.store import queries

if TYPE_CHECKING:
    from backend.attribution.fitted_statistics import EnrolmentCapabilities

VIEW_TOLD = {"ur": "prompt and response", "r": "responses alone"}
PRIORS = {"even": "All alike", "claim": "The claim has", "own": "My own"}
KEPT_TEXT = 3
LONGEST = 300  # characters of a case or a question


def step() -> Component:
    """The step's layout; ecosystems and sources are filled in when the page has opened."""
    return parts.step(
        2,
        "Question",
        "attr-title-2",
        [
            html.Div(
                className="asks",
                children=[
                    _field(
                        "Claim to test",
                        "attr-claim",
                        dmc.Select(
                            id="attr-claim",
                            data=[],
                            searchable=True,
                            clearable=True,
                            size="sm",
                            placeholder="No claim: which source is it?",
                            limit=200,
                            maxDropdownHeight=320,
                            nothingFoundMessage="No enrolled source has this name",
                            comboboxProps={"zIndex": 300},
                            attributes=shell.named("Claim to test"),
                        ),
                        "“This is served by …”; without one the leading source is weighed.",
                    ),
                    _field(
                        "Ecosystem and reader",
                        "attr-ecosystem",
                        dmc.Select(
                            id="attr-ecosystem",
                            data=[],
                            size="sm",
                            allowDeselect=False,
                            placeholder="Looking for ecosystems …",
                            comboboxProps={"zIndex": 300, "width": 500, "position": "bottom-end"},
                            attributes=shell.named("Ecosystem and reader"),
                        ),
                        html.Span(id="attr-ecosystem-note"),
                    ),
                    _field(
                        "Case",
                        "attr-case",
                        dmc.TextInput(
                            id="attr-case",
                            value="",
                            size="sm",
                            placeholder="Untitled case",
                            attributes={"input": {"maxLength": LONGEST, "dir": "auto"}},
                        ),
                        "Goes into the report.",
                    ),
                    _field(
                        "Question",
                        "attr-question",
                        dmc.TextInput(
                            id="attr-question",
                            value="",
                            size="sm",
                            placeholder="Made from the claim",
                            attributes={"input": {"maxLength": LONGEST, "dir": "auto"}},
                        ),
                        "Goes into the report.",
                    ),
                ],
            ),
            html.Details(
                className="folded",
                children=[html.Summary("Prior, duplicates, text in the report, stop, further readers"), _more()],
            ),
        ],
    )


def _more() -> Component:
    return html.Div(
        className="asks",
        children=[
            html.Div(
                className="ask-field ask-wide",
                children=[
                    shell.segmented("attr-prior", PRIORS, "even", "Prior"),
                    html.Div(
                        id="attr-prior-claim",
                        className="row",
                        hidden=True,
                        children=[
                            dmc.NumberInput(
                                id="attr-prior-share",
                                value=50,
                                min=0.1,
                                max=99.9,
                                step=5,
                                suffix=" %",
                                w=120,
                                size="xs",
                                attributes={"input": {"aria-label": "Prior probability of the claim in percent"}},
                            ),
                            html.Span("The other sources share the rest alike.", className="hint"),
                        ],
                    ),
                    html.Div(
                        id="attr-prior-own",
                        hidden=True,
                        children=dmc.Textarea(
                            id="attr-prior-weights",
                            value="",
                            size="xs",
                            autosize=True,
                            minRows=4,
                            placeholder="One a line: source = weight. Sources that are not named share the smallest.",
                            attributes={"input": {"aria-label": "Weights of sources"}},
                        ),
                    ),
                    html.Div(
                        id="attr-prior-why",
                        hidden=True,
                        children=dmc.TextInput(
                            id="attr-prior-statement",
                            value="",
                            size="xs",
                            placeholder="Where this prior comes from",
                            attributes={"input": {"aria-label": "Where this prior comes from", "maxLength": LONGEST}},
                        ),
                    ),
                    html.Span(
                        "A prior of the claim alone moves probabilities, not its log10 ratio or the verdict on it. "
                        "Weights among the others move these too, and so does any prior where the answer is about a "
                        "family.",
                        className="hint",
                    ),
                ],
            ),
            html.Div(
                className="ask-field",
                children=[
                    dmc.Switch(id="attr-again-count", checked=False, size="sm", label="Count duplicates"),
                    html.Span("Word-for-word repeats are no new evidence; off leaves them out.", className="hint"),
                ],
            ),
            html.Div(
                className="ask-field",
                children=[
                    html.Div(
                        className="switch-row",
                        children=[
                            dmc.Switch(id="attr-keep", checked=False, size="sm", label="Show text in the report"),
                            dmc.NumberInput(
                                id="attr-keep-count",
                                value=KEPT_TEXT,
                                min=1,
                                max=10,
                                step=1,
                                w=96,
                                size="xs",
                                suffix=" traces",
                                disabled=True,
                                allowDecimal=False,
                                attributes={"input": {"aria-label": "Traces whose text the report shows"}},
                            ),
                        ],
                    ),
                    html.Span(
                        "Off: the report holds hashes and numbers, no text. On: it holds the prompts and responses of "
                        "the traces that weigh most, for whoever gets the file.",
                        className="hint",
                    ),
                ],
            ),
            html.Div(
                id="attr-stop-place",
                className="ask-field",
                children=[
                    shell.segmented(
                        "attr-stop-level", stop_words((STOP_LEVEL,)), f"{STOP_LEVEL:g}", "Error of the stop"
                    ),
                    html.Span(
                        "How often 'enough after so many traces' may name a wrong source. The result shows the "
                        "other measured rates too; looking at them does not change what each states.",
                        className="hint",
                        id="attr-stop-note",
                    ),
                ],
            ),
            _field(
                "Also read with",
                "attr-also",
                dmc.MultiSelect(
                    id="attr-also",
                    data=[],
                    value=[],
                    size="sm",
                    maxValues=MOST_ALSO,
                    placeholder="One reader only",
                    clearable=True,
                    comboboxProps={"zIndex": 300},
                    attributes=shell.named("Further ecosystems that read the same traces"),
                ),
                "Shows what hangs on the reader: each reads all traces once more, beside the answer.",
            ),
        ],
    )


def stop_words(levels: Sequence[float]) -> dict[str, str]:
    """Error rates of the stop to choose from."""
    return {f"{level:g}": f"{100 * level:g} %" for level in levels}


def _field(word: str, identity: str, field: Component, hint: shell.Children) -> Component:
    return html.Div(
        [html.Label(word, htmlFor=identity, className="choice-label"), field, html.Span(hint, className="hint")],
        className="ask-field",
    )


def ecosystem(name: str | None) -> Ecosystem | None:
    """An ecosystem by name, or the preferred one."""
    known = visitor.ecosystems()
    return next((one for one in known if one.name == name), known[0] if known else None)


def asked_for(known: Sequence[Ecosystem], wanted: Mapping[str, str]) -> Ecosystem | None:
    """The ecosystem that a link names, or the one of the reader and roster that stand in the header."""
    for one in known:
        if one.name == wanted.get("ecosystem"):
            return one
    reader, roster = wanted.get("reader"), wanted.get("roster")
    fitting = [one for one in known if one.reader == (reader or one.reader)]
    other = fitting[0] if reader and fitting else None
    return next((one for one in fitting if roster and one.roster == roster), other)


def not_enrolled(known: Sequence[Ecosystem], wanted: Mapping[str, str]) -> tuple[str, str] | None:
    """What to say where the reader or roster of the header scores nothing here, and the command if any."""
    reader, chosen = wanted.get("reader") or "", wanted.get("roster")
    rosters = {one.roster for one in known if one.reader == reader}
    if questions().problem() or not questions().knows(reader) or (rosters and chosen in {None, "", *rosters}):
        return None
    method, *read = reader.split("/")
    name = questions().reader_name(reader)
    what = f"{name}, the reader in the header, is not enrolled here. "
    if rosters:
        what = f"{chosen}, the roster in the header, is not enrolled here for {name}. "
    reason = why_not(method)
    if reason is not None:
        return what + f"It cannot score traces: {reason}.", ""
    options, roster = f" --proxy {read[0]} --view {read[1]}" if len(read) == 2 else "", chosen or "100-way"
    if roster in questions().domains():  # an ecosystem of one's own is a roster and a domain of one name
        if method not in OF_TRACES:
            return what + f"Labelled traces are scored by {', '.join(OF_TRACES)}.", ""
        return what, f"python -m jobs enroll LABELLED --name {shlex.quote(roster)} --readout {method}{options}"
    if method in ONE_BLOCK:
        layers = questions().ask(queries.selected_layers, reader, roster)["layer"]
        options += f" --layer {layers.iloc[0]}" if len(layers) else ""
    return what, f"python -m jobs enroll --readout {method}{options} --roster {roster}"


def ecosystem_options(known: Sequence[Ecosystem]) -> list[dict[str, str]]:
    """Ecosystems to choose from: what is enrolled, and who reads; the name as well where two would read the same."""
    words = [" · ".join((one.roster or one.name, *_reader_words(one))) for one in known]
    return [
        {"value": one.name, "label": word if words.count(word) == 1 else f"{word} · {one.name}"}
        for one, word in zip(known, words, strict=True)
    ]


def _reader_words(one: Ecosystem) -> tuple[str, ...]:
    """Method, what is read, and proxy: the end is what a narrow field cuts off."""
    method, *_ = one.reader.partition("/")
    known = questions().problem() is None and questions().knows(one.reader)
    if reads_text(method):
        return METHOD_NAMES.get(method, method), "text of the response"
    if method in ENCODED:
        _, encoder, view = one.reader.split("/")
        return METHOD_NAMES.get(method, method), VIEW_READS.get(view, view), encoder
    proxy = questions().proxy_name(one.reader) if known else one.proxy
    return METHOD_NAMES.get(method, method), VIEW_READS.get(one.view, one.view), proxy


def told(one: Ecosystem, brings: EnrolmentCapabilities) -> str:
    """What an ecosystem is, and what its answers are worth, in sentences."""
    read = VIEW_TOLD.get(one.view, one.view)
    method, *rest = one.reader.split("/")
    who = "The text of responses is scored" if reads_text(method) else f"{one.proxy} reads {read}"
    if method in ENCODED:
        who = f"{rest[0]}{', fine-tuned,' * (method == ENCODER)} embeds {VIEW_TOLD.get(rest[1], rest[1])}"
    elif rest and "+" in rest[0]:
        who = f"{rest[0].replace('+', ' and ')} read {read}"
    what = f"{who}; {len(one.sources)} sources of {len(set(one.families))} families. "
    if not brings.calibrated:
        return what + "Nothing is calibrated here: no claim can be decided."
    most = brings.budgets[-1] if brings.budgets else 0
    many = f"Calibrated up to {most:,} trace{'s' * (most > 1)}" if most else "Calibrated"
    if brings.validated:
        return what + f"{many} and validated on prompts that were held out."
    return what + f"{many}, but not validated: how often its answers are wrong has not been measured."


def weights(
    kind: str, one: Ecosystem, claim: str | None, share: float | str | None, text: str | None
) -> dict[str, float] | None:
    """The prior that a person chose, None for the same weight for every source.

    Raises
    ------
    AtlasError
        If a line of weights cannot be read, with its number, or a claim's share has no claim.
    """
    if kind == "claim":
        if not claim:
            raise AtlasError("The prior is about the claim, and no claim is chosen", "Choose a claim or another prior")
        if not isinstance(share, int | float) or not 0 < share < 100:
            raise AtlasError("The prior of the claim is no percentage between 0 and 100", "Give a number such as 50")
        rest = (100 - share) / max(len(one.sources) - 1, 1)
        return {source: share / 100 if source == claim else rest / 100 for source in one.sources}
    if kind != "own" or not (text or "").strip():
        return None
    out: dict[str, float] = {}
    for line_number, line in enumerate((text or "").splitlines(), start=1):
        if not line.strip():
            continue
        name, found, value = line.rpartition("=")
        try:
            weight = float(value)
        except ValueError:
            weight = math.nan
        if not found or not math.isfinite(weight) or weight <= 0:
            raise AtlasError(f"Line {line_number} of the prior is no 'source = weight'", "Write for example: gpt_5 = 3")
        out[name.strip()] = weight
    return out


CHOICES = {
    "ecosystem": State("attr-ecosystem", "value"),
    "claim": State("attr-claim", "value"),
    "prior": State("attr-prior", "value"),
    "share": State("attr-prior-share", "value"),
    "weights": State("attr-prior-weights", "value"),
    "statement": State("attr-prior-statement", "value"),
    "case": State("attr-case", "value"),
    "question": State("attr-question", "value"),
    "duplicates": State("attr-again-count", "checked"),
    "keep": State("attr-keep", "checked"),
    "count": State("attr-keep-count", "value"),
    "stop": State("attr-stop-level", "value"),
    "also": State("attr-also", "value"),
}
"""Where the choices of this step stand in the page."""


def settings(chosen: Mapping[str, Any], columns: Columns, encoding: str | None = None) -> Settings:
    """What the audit is asked for.

    Parameters
    ----------
    chosen : mapping
        Values of :data:`CHOICES`.
    columns : Columns
        What a person mapped.
    encoding : str, optional
        In place of the one that is recognised.

    Raises
    ------
    AtlasError
        If no ecosystem is there, or the prior cannot be read.
    """
    one = ecosystem(chosen["ecosystem"])
    if one is None:
        raise AtlasError("No ecosystem is enrolled here", "Run: python -m jobs enroll --sample")
    prior = weights(chosen["prior"], one, chosen["claim"], chosen["share"], chosen["weights"])
    return Settings(
        enrolment=one.name,
        claimed=chosen["claim"] or None,
        prior=prior,
        prior_statement=_line(chosen["statement"]) if prior else None,
        case=_line(chosen["case"]) or Settings.case,
        question=_line(chosen["question"]),
        columns=columns,
        encoding=encoding,
        keep_duplicates=bool(chosen["duplicates"]),
        show=int(chosen["count"] or KEPT_TEXT) if chosen["keep"] else 0,
        stop_level=float(chosen["stop"] or STOP_LEVEL),
        also=tuple(name for name in chosen["also"] or () if name != one.name),
    )


def _line(text: str | None) -> str | None:
    return " ".join((text or "").split())[:LONGEST] or None


def register(app: Dash) -> None:
    """Callbacks of the step."""
    app.clientside_callback(
        ClientsideFunction("attribute", "choices"),
        Output("attr-link", "data"),
        Input("attr-ecosystem", "value"),
        Input("attr-claim", "value"),
        Input("attr-mode", "value"),
    )

    @app.callback(
        Output("attr-ecosystem", "data"),
        Output("attr-ecosystem", "value"),
        Output("attr-ecosystem", "placeholder"),
        Input("attr-wanted", "data"),
        Input("attr-upload", "data"),
        Input("attr-admitted", "data"),
        State("attr-ecosystem", "value"),
    )
    def offered(wanted: dict[str, str], upload: dict[str, Any] | None, _admitted: int | None, now: str | None) -> Any:
        known = visitor.ecosystems()
        link = asked_for(known, wanted)
        asked = (upload or {}).get("enrolment") or now or (link.name if link else None)
        chosen = asked if asked in {one.name for one in known} else known[0].name if known else None
        empty = "Nothing is enrolled here" if visitor.known() else "Give the token first"
        return ecosystem_options(known), chosen, "Choose an ecosystem" if known else empty

    @app.callback(
        Output("attr-claim", "data"),
        Output("attr-claim", "value"),
        Output("attr-ecosystem-note", "children"),
        Output("attr-stop-level", "data"),
        Output("attr-stop-level", "value"),
        Output("attr-stop-place", "hidden"),
        Output("attr-also", "data"),
        Output("attr-also", "value"),
        Input("attr-ecosystem", "value"),
        State("attr-claim", "value"),
        State("attr-wanted", "data"),
        State("attr-stop-level", "value"),
        State("attr-also", "value"),
    )
    def sources(
        name: str | None, claim: str | None, wanted: dict[str, str], level: str | None, also: list[str] | None
    ) -> Any:
        if not name:
            why = (
                "Make one: python -m jobs enroll --sample" if visitor.known() else "Seen by people with the token only"
            )
            return [], None, why, no_update, no_update, True, [], []
        one = ecosystem(name)
        if one is None:
            return (no_update,) * 8
        kept = claim or wanted.get("claim")
        brings = visitor.service().brings(one.name)
        rates = stop_words(brings.stop_levels)
        usual = f"{STOP_LEVEL:g}"
        others = [other for other in visitor.ecosystems() if other.name != one.name]
        names = {other.name for other in others}
        lacking = not_enrolled([one, *others], wanted)
        return (
            grouped(one.sources, one.families, known_sources(questions())),
            kept if kept in one.sources else None,
            [told(one, brings), *([html.Br(), lacking[0], html.Code(lacking[1])] if lacking else [])],
            [{"value": rate, "label": word} for rate, word in (rates or {usual: "–"}).items()],
            level if level in rates else usual if usual in rates else next(iter(rates), usual),
            not rates,
            ecosystem_options(others),
            [held for held in also or () if held in names],
        )

    @app.callback(
        Output("attr-prior-claim", "hidden"),
        Output("attr-prior-own", "hidden"),
        Output("attr-prior-why", "hidden"),
        Input("attr-prior", "value"),
    )
    def prior_fields(kind: str) -> Any:
        return kind != "claim", kind != "own", kind == "even"

    @app.callback(Output("attr-keep-count", "disabled"), Input("attr-keep", "checked"))
    def keeps(checked: bool) -> bool:
        return not checked


def stores(wanted: dict[str, str]) -> list[Component]:
    """What the page remembers between its callbacks; no text of a trace."""
    return [
        dcc.Store(id="attr-wanted", data=wanted),
        dcc.Store(id="attr-upload"),
        dcc.Store(id="attr-admitted"),
        dcc.Store(id="attr-columns"),
        dcc.Store(id="attr-link"),
        dcc.Store(id="attr-watch"),
        dcc.Store(id="attr-followed"),
        dcc.Store(id="attr-job", storage_type="session"),
        dcc.Store(id="attr-ended"),
        dcc.Store(id="attr-heat-choice"),
    ]

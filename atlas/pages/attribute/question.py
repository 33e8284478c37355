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
from atlas.data import questions
from atlas.pages.attribute import sections, visitor
from backend.attribution.settings import MOST_ALSO, STOP_LEVEL, Settings
from backend.enrolment.catalogue import Ecosystem, default
from backend.errors import AtlasError
from backend.intake import Columns
from backend.methods.registry import ENCODED, ENCODER, OF_TRACES, ONE_BLOCK, reads_text, why_not
from backend.store import queries

if TYPE_CHECKING:
    from backend.attribution.decision import EnrolmentCapabilities

VIEW_TOLD = {"ur": "prompt and response", "r": "responses alone"}
PRIORS = {"even": "All alike", "claim": "The claim has", "own": "My own"}
KEPT_TEXT = 3
LONGEST = 300  # characters of a case or a question


def step() -> Component:
    """The step's layout; ecosystems and sources are filled in when the page has opened."""
    claim = shell.select(
        "attr-claim", "Claim to test", searchable=True, clearable=True, size="sm", limit=200, maxDropdownHeight=320,
        placeholder="No claim: which source is it?", nothingFoundMessage="No enrolled source has this name",
    )  # fmt: skip
    ecosystems = shell.select(
        "attr-ecosystem", "Ecosystem and reader", size="sm", allowDeselect=False,
        placeholder="Looking for ecosystems …",
        comboboxProps={"zIndex": 300, "width": 500, "position": "bottom-end"},
    )  # fmt: skip
    names = {"attributes": {"input": {"maxLength": LONGEST, "dir": "auto"}}, "value": "", "size": "sm"}
    case = dmc.TextInput(id="attr-case", placeholder="Untitled case", **names)
    wording = dmc.TextInput(id="attr-question", placeholder="Made from the claim", **names)
    weighed = "“This is served by …”; without one the leading source is weighed."
    fields = [
        _field("Claim to test", "attr-claim", claim, weighed),
        _field("Ecosystem and reader", "attr-ecosystem", ecosystems, html.Span(id="attr-ecosystem-note")),
        _field("Case", "attr-case", case, "Goes into the report."),
        _field("Question", "attr-question", wording, "Goes into the report."),
    ]
    summary = html.Summary("Prior, duplicates, text in the report, stop, further readers")
    more = html.Details([summary, _more()], className="folded")
    return sections.step(2, "Question", "attr-title-2", html.Div(fields, className="asks"), more)


def _more() -> Component:
    def aria(label: str, **more: Any) -> dict[str, Any]:
        return {"input": {"aria-label": label, **more}}

    share = dmc.NumberInput(
        id="attr-prior-share", value=50, min=0.1, max=99.9, step=5, suffix=" %", w=120, size="xs",
        attributes=aria("Prior probability of the claim in percent"),
    )  # fmt: skip
    own = dmc.Textarea(
        id="attr-prior-weights", value="", size="xs", autosize=True, minRows=4,
        placeholder="One a line: source = weight. Sources that are not named share the smallest.",
        attributes=aria("Weights of sources"),
    )  # fmt: skip
    why = "Where this prior comes from"
    statement = dmc.TextInput(
        id="attr-prior-statement", value="", size="xs", placeholder=why, attributes=aria(why, maxLength=LONGEST)
    )
    rest = sections.hint("The other sources share the rest alike.")
    prior = [
        shell.segmented("attr-prior", PRIORS, "even", "Prior"),
        html.Div([share, rest], id="attr-prior-claim", className="row", hidden=True),
        html.Div(own, id="attr-prior-own", hidden=True),
        html.Div(statement, id="attr-prior-why", hidden=True),
        sections.hint(
            "A prior of the claim alone moves probabilities, not its log10 ratio or the verdict on it. Weights among "
            "the others move these too, and so does any prior where the answer is about a family."
        ),
    ]
    duplicates = [
        dmc.Switch(id="attr-again-count", checked=False, size="sm", label="Count duplicates"),
        sections.hint("Word-for-word repeats are no new evidence; off leaves them out."),
    ]
    count = dmc.NumberInput(
        id="attr-keep-count", value=KEPT_TEXT, min=1, max=10, step=1, w=96, size="xs", suffix=" traces", disabled=True,
        allowDecimal=False, attributes=aria("Traces whose text the report shows"),
    )  # fmt: skip
    keep = dmc.Switch(id="attr-keep", checked=False, size="sm", label="Show text in the report")
    text = [
        html.Div([keep, count], className="switch-row"),
        sections.hint(
            "Off: the report holds hashes and numbers, no text. On: it holds the prompts and responses of the traces "
            "that weigh most, for whoever gets the file."
        ),
    ]
    stop = [
        shell.segmented("attr-stop-level", stop_words((STOP_LEVEL,)), f"{STOP_LEVEL:g}", "Error of the stop"),
        sections.hint(
            "How often 'enough after so many traces' may name a wrong source. The result shows the other measured "
            "rates too; looking at them does not change what each states.",
            id="attr-stop-note",
        ),
    ]
    also = dmc.MultiSelect(
        id="attr-also", data=[], value=[], size="sm", maxValues=MOST_ALSO, placeholder="One reader only",
        clearable=True, comboboxProps={"zIndex": 300},
        attributes=shell.named("Further ecosystems that read the same traces"),
    )  # fmt: skip
    further = "Shows what hangs on the reader: each reads all traces once more, beside the answer."
    children = [
        html.Div(prior, className="ask-field ask-wide"),
        html.Div(duplicates, className="ask-field"),
        html.Div(text, className="ask-field"),
        html.Div(stop, id="attr-stop-place", className="ask-field"),
        _field("Also read with", "attr-also", also, further),
    ]
    return html.Div(children, className="asks")


def stop_words(levels: Sequence[float]) -> dict[str, str]:
    """Error rates of the stop to choose from."""
    return {f"{level:g}": f"{100 * level:g} %" for level in levels}


def _field(word: str, identity: str, field: Component, hint: shell.Children) -> Component:
    label = html.Label(word, htmlFor=identity, className="choice-label")
    return html.Div([label, field, sections.hint(hint)], className="ask-field")


def ecosystem(name: str | None) -> Ecosystem | None:
    """An ecosystem by its name; another never stands in for one that is gone."""
    return next((one for one in visitor.ecosystems() if one.name == name), None)


def choose(
    known: Sequence[Ecosystem],
    header: Mapping[str, str | None],
    link: Mapping[str, str],
    sample: str | None = None,
    now: str | None = None,
    last: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The ecosystem to show (``shown``), and the one that a person named (``picked``); either may be None.

    header : its reader and roster; link : those of the address, and its ecosystem.
    sample : the ecosystem of a shipped sample, which serves the sample alone.
    now : the name in the field, a person's choice where it is not what was shown ``last``.
    A change of the header ends a choice: the ecosystem follows it, and the shipped sample's is never taken unasked.
    """
    names = {one.name for one in known}
    picked = last["picked"] if last else link.get("ecosystem")
    if last and now and now != last["shown"]:
        picked = now
    elif last and any(header[part] not in (last["header"][part], link.get(part)) for part in header):
        picked = None  # what the header takes from the address a moment later is no change
    best = default([one for one in known if not one.sample], None, header["reader"], header["roster"])
    shown = next((name for name in (sample, picked) if name in names), best.name if best else None)
    return {"shown": shown, "picked": picked, "header": dict(header)}


def not_enrolled(known: Sequence[Ecosystem], link: Mapping[str, str]) -> tuple[str, str] | None:
    """What to say where the reader or roster of the header scores nothing here, and the command if any."""
    reader, chosen = link.get("reader") or "", link.get("roster")
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
    words = [f"{one.roster or one.name} · {sections.reader_words(questions(), one)}" for one in known]
    return [
        {"value": one.name, "label": word if words.count(word) == 1 else f"{word} · {one.name}"}
        for one, word in zip(known, words, strict=True)
    ]


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

    Raises AtlasError if a line of weights cannot be read, with its number, or a claim's share has no claim.
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
    name: State(f"attr-{field}", "checked" if name in ("duplicates", "keep") else "value")
    for name, field in {
        **{"ecosystem": "ecosystem", "claim": "claim", "prior": "prior", "share": "prior-share"},
        **{"weights": "prior-weights", "statement": "prior-statement", "case": "case", "question": "question"},
        **{"duplicates": "again-count", "keep": "keep", "count": "keep-count", "stop": "stop-level", "also": "also"},
    }.items()
}
"""Where the choices of this step stand in the page."""


def settings(chosen: Mapping[str, Any], columns: Columns, encoding: str | None = None) -> Settings:
    """What the audit is asked for: values of :data:`CHOICES` and the columns that a person mapped.

    Raises AtlasError if no ecosystem is there, or the prior cannot be read.
    """
    one = ecosystem(chosen["ecosystem"])
    if one is None:
        raise AtlasError("No ecosystem is chosen", "Choose one, or make one: python -m jobs enroll --sample")
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


def _why_none() -> str:
    """Why no ecosystem is chosen, and what to do."""
    if not visitor.known():
        return "Seen by people with the token only"
    if visitor.ecosystems():
        return "The sample's ecosystem alone is enrolled here. Choose it, or make one: python -m jobs enroll"
    return "Make one: python -m jobs enroll --sample"


def _line(text: str | None) -> str | None:
    return " ".join((text or "").split())[:LONGEST] or None


def register(app: Dash) -> None:
    """Callbacks of the step."""
    app.clientside_callback(
        ClientsideFunction("attribute", "choices"),
        Output("attr-link", "data"),
        *sections.places(Input, "attr-ecosystem.value attr-claim.value attr-mode.value"),
        State("attr-picked", "data"),
    )

    @app.callback(
        *sections.places(
            Output, "attr-ecosystem.data attr-ecosystem.value attr-ecosystem.placeholder attr-picked.data"
        ),
        *sections.places(Input, "attr-wanted.data attr-upload.data attr-admitted.data reader.value roster.value"),
        *sections.places(State, "attr-ecosystem.value attr-picked.data"),
    )
    def offered(
        link: dict[str, str],
        upload: dict[str, Any] | None,
        _admitted: int | None,
        reader: str | None,
        roster: str | None,
        now: str | None,
        last: dict[str, Any] | None,
    ) -> Any:
        known = visitor.ecosystems()
        header = {"reader": reader, "roster": roster}
        choice = choose(known, header, link, (upload or {}).get("enrolment"), now, last)
        empty = "Nothing is enrolled here" if visitor.known() else "Give the token first"
        return ecosystem_options(known), choice["shown"], "Choose an ecosystem" if known else empty, choice

    @app.callback(
        *sections.places(
            Output,
            "attr-claim.data attr-claim.value attr-ecosystem-note.children attr-stop-level.data "
            "attr-stop-level.value attr-stop-place.hidden attr-also.data attr-also.value attr-judge.children",
        ),
        *sections.places(Input, "attr-ecosystem.value reader.value roster.value"),
        *sections.places(
            State, "attr-claim.value attr-wanted.data attr-stop-level.value attr-also.value attr-picked.data"
        ),
    )
    def sources(
        name: str | None,
        reader: str | None,
        roster: str | None,
        claim: str | None,
        link: dict[str, str],
        level: str | None,
        also: list[str] | None,
        choice: dict[str, Any] | None,
    ) -> Any:
        if not name:
            return [], None, _why_none(), no_update, no_update, True, [], [], None
        one = ecosystem(name)
        if one is None:
            return (no_update,) * 9
        wish = claim or link.get("claim")
        brings = visitor.service().brings(one.name)
        rates = stop_words(brings.stop_levels)
        usual = f"{STOP_LEVEL:g}"
        others = [other for other in visitor.ecosystems() if other.name != one.name]
        names = {other.name for other in others}
        followed = choice and choice["shown"] == name != choice["picked"] and not one.sample
        lacking = not_enrolled([one, *others], {"reader": reader or "", "roster": roster or ""}) if followed else None
        return (
            sections.grouped(one.sources, one.families, sections.known_sources(questions())),
            wish if wish in one.sources else None,
            [told(one, brings), *([html.Br(), lacking[0], html.Code(lacking[1])] if lacking else [])],
            [{"value": rate, "label": word} for rate, word in (rates or {usual: "–"}).items()],
            level if level in rates else usual if usual in rates else next(iter(rates), usual),
            not rates,
            ecosystem_options(others),
            [other for other in also or () if other in names],
            sections.judged_by(questions(), one.roster or one.name, len(one.sources), one, reader),
        )

    @app.callback(
        *sections.places(Output, "attr-prior-claim.hidden attr-prior-own.hidden attr-prior-why.hidden"),
        Input("attr-prior", "value"),
    )
    def prior_fields(kind: str) -> Any:
        return kind != "claim", kind != "own", kind == "even"

    @app.callback(Output("attr-keep-count", "disabled"), Input("attr-keep", "checked"))
    def keeps(checked: bool) -> bool:
        return not checked


def stores(link: dict[str, str]) -> list[Component]:
    """What the page remembers between its callbacks; no text of a trace."""
    names = (
        "wanted",
        "picked",
        "upload",
        "admitted",
        "columns",
        "link",
        "watch",
        "followed",
        "job",
        "ended",
        "heat-choice",
    )
    more: dict[str, dict[str, Any]] = {"wanted": {"data": link}, "job": {"storage_type": "session"}}
    return [dcc.Store(id=f"attr-{name}", **more.get(name, {})) for name in names]

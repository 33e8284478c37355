"""Step 2: the question. Ecosystem, claim, prior, names for the report, and text that it may show."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import Dash, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from atlas import shell
from atlas.data import questions
from atlas.pages.attribute import intake, sections, visitor
from atlas.pages.attribute.sections import Clicks, Stored, Text
from backend.attribution.settings import MOST_ALSO, STOP_LEVEL, Settings
from backend.enrolment.catalogue import FAMILY, NOT_LISTED, Ecosystem, candidate_numbers, default, did_you_mean
from backend.enrolment.claims import claims_of, enrolled_as, suggestion
from backend.errors import AtlasError
from backend.inference.verdict import Rule
from backend.intake import Columns, Preview
from backend.methods.registry import ENCODED, ENCODER, OF_TRACES, ONE_BLOCK, reads_text, why_not
from backend.store import queries

if TYPE_CHECKING:
    from backend.attribution.decision import EnrolmentCapabilities

FEWEST = Rule().minimum_traces
VIEW_WORDS = {"ur": "prompt and response", "r": "responses alone"}
PRIORS = {"even": "All alike", "claim": "The claim has", "own": "My own"}
CANDIDATES = {"all": "All enrolled", "family": "A family", "list": "A list"}
TEXTS_SHOWN = 3
OFFERED = 3  # claims out of the names in a file
LONGEST = 300  # characters of a case or a question


def step() -> Component:
    """The step's layout; ecosystems and sources are filled in when the page has opened."""
    claim = shell.select(
        "attr-claim", "Claim to test", searchable=True, clearable=True, size="sm", limit=200, maxDropdownHeight=320,
        placeholder="No claim: which source is it?", nothingFoundMessage="No enrolled source has this name",
        filter=shell.CLOSEST,
    )  # fmt: skip
    names = {"attributes": {"input": {"maxLength": LONGEST, "dir": "auto"}}, "value": "", "size": "sm"}
    case = dmc.TextInput(id="attr-case", placeholder="Untitled case", **names)
    wording = dmc.TextInput(id="attr-question", placeholder="Made from the claim", **names)
    meaning = "“This is served by …”. Leave empty to ask which model it is."
    unknown = html.Span(id="attr-claim-note", className="caution", role="status")
    suggested = html.Span(id="attr-claim-file", role="status")
    fields = [
        _field("Claim to test", "attr-claim", claim, [meaning, unknown, suggested]),
        html.Button(intake.RUN, id="attr-go-ask", className="button button-main", disabled=True),
        html.Div(
            [html.Span("Who compares", className="choice-label"), sections.hint(None, id="attr-ecosystem-note")],
            className="ask-field",
        ),
        html.Div(_candidates(), className="ask-field ask-wide"),
        html.Div(_background(), className="ask-field ask-wide"),
        _field("Case", "attr-case", case, "The title of the report."),
        _field("Wording of the question", "attr-question", wording, "What the report says it answers."),
    ]
    summary = html.Summary("More options: ecosystem and reader, prior, duplicates, stopping, other readers")
    more = html.Details([summary, _more()], className="folded")
    return sections.step(2, "Question", "attr", html.Div(fields, className="asks"), more)


def _candidates() -> list[Component]:
    """Which enrolled sources are in question, and what to do where the right one is not enrolled."""
    some = shell.select(
        "attr-candidates", "Candidates", [], dmc.MultiSelect, value=[], size="sm", searchable=True, clearable=True,
        limit=200, maxDropdownHeight=320, placeholder="Choose candidates", nothingFoundMessage="Nothing has this name",
        filter=shell.BY_WORDS,
    )  # fmt: skip
    missing = [
        html.Summary("My model is not in the list"),
        html.P("Collect its answers to the enrolled prompts and enrol them, then it can be named:"),
        *(html.P(html.Code(f"python -m jobs {verb}")) for verb in ("collect", "enroll LABELLED --name NAME")),
    ]
    return [
        shell.segmented("attr-candidates-kind", CANDIDATES, "all", "Candidates"),
        html.Div(some, id="attr-candidates-place", hidden=True),
        sections.hint(None, id="attr-candidates-note", role="status"),
        html.Details(missing, className="folded hint"),
    ]


def _background() -> Component:
    """Where unlabelled traffic is dropped that balances the scores."""
    why = "Are your prompts of another kind than the enrolled ones? Then 200 or more responses to such prompts, of any "
    why += "models and without labels, take away what those prompts alone change in the scores. A decision is stated "
    why += "where its error rates were measured on such prompts; elsewhere nothing is decided. UNKNOWN is "
    why += "never said then, because on such prompts many enrolled models fail that test too ("
    measured = html.A("measured here", href="/methods#figure-pools")
    columns = "). Columns that you choose for your traces are taken for this file too."
    dropped = intake.place("attr-background", "Drop traffic of the same kind")
    none = html.Button("Remove it", id="attr-background-none", className="quiet", hidden=True)
    words = html.Summary("Add traffic of the same kind"), html.P([why, measured, columns])
    more = html.Details([*words, dropped, none], className="folded")
    return html.Div([more, sections.notice("attr-background-problem")])


def candidate_options(kind: str, one: Ecosystem, known: Mapping[str, str]) -> list[dict[str, Any]]:
    """Families or sources to choose candidates from; nothing where all are in question."""
    if kind == "list":
        return sections.grouped(one.sources, one.families, known)
    members = Counter(one.families) if kind == "family" else {}
    return [{"value": f"{FAMILY}{name}", "label": f"{name} ({n})"} for name, n in sorted(members.items())]


def candidates_note(kind: str, one: Ecosystem, entries: Sequence[str], claim: str | None) -> str:
    """With how many sources the traces are compared, or what is wrong with the choice."""
    if kind == "all" or not entries:
        everyone = f"with all {len(one.sources):,} enrolled sources."
        return f"Nothing is chosen: compared {everyone}" if kind != "all" else f"Compared {everyone}"
    try:
        sources = among(one, entries).sources
    except AtlasError as error:
        return f"{error}"
    text = f"Compared with {len(sources):,} of the {len(one.sources):,} enrolled sources."
    return text if not claim or claim in sources else f"{text} The claim is none of them: add it."


def among(one: Ecosystem, entries: Sequence[str]) -> Ecosystem:
    """An ecosystem with chosen candidates alone; raises AtlasError where they are not enrolled, or too few."""
    numbers = candidate_numbers(one, entries)
    if numbers is None:
        return one
    sources, families = (tuple(part[i] for i in numbers) for part in (one.sources, one.families))
    return replace(one, sources=sources, families=families)


def _more() -> Component:
    def aria(label: str, **more: Any) -> dict[str, Any]:
        return {"input": {"aria-label": label, **more}}

    ecosystems = shell.select(
        "attr-ecosystem", "Ecosystem and reader", size="sm", allowDeselect=False,
        placeholder="Looking for ecosystems …",
        comboboxProps={"zIndex": 300, "width": 500, "position": "bottom-end"},
    )  # fmt: skip
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
        id="attr-keep-count", value=TEXTS_SHOWN, min=1, max=10, step=1, w=96, size="xs", suffix=" traces",
        disabled=True, allowDecimal=False, attributes=aria("Traces whose text the report shows"),
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
        shell.segmented(
            "attr-stop-level", sections.error_rates((STOP_LEVEL,)), f"{STOP_LEVEL:g}", "Risk of stopping too early"
        ),
        sections.hint(
            "How often 'enough after so many traces' may name a wrong source. The result shows the other measured "
            "rates too; checking later does not change that rate.",
            id="attr-stop-note",
        ),
    ]
    also = dmc.MultiSelect(
        id="attr-also", data=[], value=[], size="sm", maxValues=MOST_ALSO, placeholder="One reader only",
        clearable=True, comboboxProps={"zIndex": 300},
        attributes=shell.named("Further ecosystems that read the same traces"),
    )  # fmt: skip
    further = "Compare with other readers: each reads all traces once more."
    by_itself = "Without a choice, the one that is best for the roster of the header."
    children = [
        _field("Ecosystem and reader", "attr-ecosystem", ecosystems, by_itself),
        html.Div(prior, className="ask-field ask-wide"),
        html.Div(duplicates, className="ask-field"),
        html.Div(text, className="ask-field"),
        html.Div(stop, id="attr-stop-place", className="ask-field"),
        _field("Also read with", "attr-also", also, further),
    ]
    return html.Div(children, className="asks")


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
    what = f"{name}, the reader of the other pages, is not enrolled here. "
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


def _why_not(lacking: tuple[str, str] | None) -> list[Component | str]:
    """Why the reader of the other pages does not judge, on hover; nothing where there is no reason."""
    if lacking is None:
        return []
    words, command = lacking
    return [" ", shell.term("Why another reader?", f"{words}{f'Enrol it: {command}' if command else ''}")]


def ecosystem_options(known: Sequence[Ecosystem]) -> list[dict[str, str]]:
    """Ecosystems to choose from: what is enrolled, and how it is read; as much more as tells two apart."""
    short = [f"{one.title} · {sections.method_name(one.reader)}" for one in known]
    whole = [f"{one.title} · {sections.reader_words(questions(), one)}" for one in known]
    return [
        {
            "value": one.name,
            "label": words if short.count(words) == 1 else full if whole.count(full) == 1 else f"{full} · {one.name}",
        }
        for one, words, full in zip(known, short, whole, strict=True)
    ]


def describe(one: Ecosystem, brings: EnrolmentCapabilities) -> str:
    """What an ecosystem is, and what its answers are worth, in sentences."""
    read = VIEW_WORDS.get(one.view, one.view)
    method, *rest = one.reader.split("/")
    who = (
        "The text of responses is scored"
        if reads_text(method)
        else f"{sections.proxy_name(questions(), one)} reads {read}"
    )
    if method in ENCODED:
        who = f"{rest[0]}{', fine-tuned,' * (method == ENCODER)} embeds {VIEW_WORDS.get(rest[1], rest[1])}"
    elif rest and "+" in rest[0]:
        who = f"{rest[0].replace('+', ' and ')} read {read}"
    what = f"{who}; {len(one.sources)} sources of {len(set(one.families))} families"
    if not brings.calibrated:
        return f"{what}. Nothing is calibrated here: no claim can be decided."
    most = brings.budgets[-1] if brings.budgets else 0
    many = f"{what}; calibrated{f' up to {most:,} trace' + 's' * (most > 1) if most else ''}"
    if brings.validated:
        counted = f"; up to {most:,} trace{'s are' if most > 1 else ' is'} counted in full" if most else ""
        return f"{brings.named} It needs {FEWEST} traces. {what}. Best with prompts like those enrolled{counted}."
    return f"{many}, but not validated: how often its answers are wrong has not been measured."


def no_claim(wish: str | None, one: Ecosystem, claim: str = "") -> str | None:
    """A sentence where a claim is no source of an ecosystem, with those that are spelled alike."""
    if not wish or wish in one.sources:
        return None
    meant = did_you_mean(wish[:80], one.sources)
    then = f"the claim is still {claim}" if claim else "nothing is claimed"
    return f" No source here is called “{wish[:80]}”, so {then}. {meant}{NOT_LISTED}"


def source_called(typed: str, one: Ecosystem, known: Mapping[str, str]) -> str | None:
    """The source that is called exactly so, by its label or its readable name."""
    wish = typed.strip().casefold()
    found = [source for source in one.sources if wish in (source.casefold(), known.get(source, source).casefold())]
    return found[0] if len(found) == 1 else None


def named_sources(labels: Sequence[str], one: Ecosystem) -> list[str]:
    """Enrolled sources that labels of a file mean, each once; at most :data:`OFFERED`."""
    found = (enrolled_as(label, one.sources) for label in labels)
    return list(dict.fromkeys(source for source in found if source))[:OFFERED]


def prefill(
    columns: Mapping[str, Any], one: Ecosystem, claim: str | None, last: Mapping[str, Any]
) -> tuple[str | None, str | None] | None:
    """Claim and its reason out of the models that a file names; None where nothing is to change.

    columns : the file's key, traces and models; last : what was filled in before, for which file and ecosystem.
    A claim that a person chose or cleared stays as it is.
    """
    same = last.get("key") == columns["key"] and last.get("ecosystem") == one.name
    if same or (claim and claim != last.get("claim")):
        return None
    found = claims_of(columns["models"], one.sources)
    if not found:
        return None, None
    source = str(found[0]["source"])
    named = {**found[0], "source": (one.facts.get("names") or {}).get(source, source)}
    return source, f" From the file: {suggestion([named], columns['traces'])}."


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
    field: State(f"attr-{field}", "checked" if field in ("again-count", "keep") else "value")
    for field in (
        *(
            "ecosystem",
            "claim",
            "candidates",
            "candidates-kind",
            "prior",
            "prior-share",
            "prior-weights",
            "prior-statement",
            "case",
            "question",
        ),
        *("again-count", "keep", "keep-count", "stop-level", "also"),
    )
}
"""Where the choices of this step stand in the page."""


def settings(chosen: Mapping[str, Any], columns: Columns, encoding: str | None = None) -> Settings:
    """Settings of the attribution, from values of :data:`CHOICES` and the columns that a person mapped.

    Raises AtlasError if no ecosystem is there, or the prior cannot be read.
    """
    one = ecosystem(chosen["ecosystem"])
    if one is None:
        raise AtlasError("No ecosystem is chosen", "Choose one, or make one: python -m jobs enroll --sample")
    entries = tuple(chosen["candidates"] or ()) if chosen["candidates-kind"] != "all" else ()
    weighed = among(one, entries)
    prior = weights(chosen["prior"], weighed, chosen["claim"], chosen["prior-share"], chosen["prior-weights"])
    return Settings(
        enrolment=one.name,
        claimed=chosen["claim"] or None,
        candidates=entries,
        prior=prior,
        prior_statement=_line(chosen["prior-statement"]) if prior else None,
        case=_line(chosen["case"]) or Settings.case,
        question=_line(chosen["question"]),
        columns=columns,
        encoding=encoding,
        keep_duplicates=bool(chosen["again-count"]),
        show=int(chosen["keep-count"] or TEXTS_SHOWN) if chosen["keep"] else 0,
        stop_level=float(chosen["stop-level"] or STOP_LEVEL),
        also=tuple(name for name in chosen["also"] or () if name != one.name),
    )


def _line(text: str | None) -> str | None:
    return " ".join((text or "").split())[:LONGEST] or None


def register(app: Dash) -> None:
    """Callbacks of the step."""
    values = "attr-ecosystem.value attr-claim.value attr-mode.value"
    sections.client(app, "choices", "attr-link.data", values, "attr-picked.data", prevent=False)

    @sections.callback(
        app,
        "attr-ecosystem.data attr-ecosystem.value attr-ecosystem.placeholder attr-picked.data",
        "attr-wanted.data attr-upload.data attr-admitted.data reader.value roster.value",
        "attr-ecosystem.value attr-picked.data",
        prevent=False,
    )
    def offered(
        link: dict[str, str], upload: Stored, _admitted: int | None, reader: Text, roster: Text, now: Text, last: Stored
    ) -> Any:
        known = visitor.ecosystems()
        choice = choose(known, {"reader": reader, "roster": roster}, link, (upload or {}).get("enrolment"), now, last)
        empty = "Nothing is enrolled here" if visitor.known() else "Give the token first"
        return ecosystem_options(known), choice["shown"], "Choose an ecosystem" if known else empty, choice

    @sections.callback(
        app,
        "attr-claim.data attr-claim.value attr-ecosystem-note.children attr-stop-level.data "
        "attr-stop-level.value attr-stop-place.hidden attr-also.data attr-also.value attr-judge.children "
        "attr-claim-note.children",
        "attr-ecosystem.value reader.value roster.value",
        "attr-claim.value attr-wanted.data attr-stop-level.value attr-also.value attr-picked.data",
        prevent=False,
    )
    def sources(
        name: Text, reader: Text, roster: Text, claim: Text, link: dict[str, str], level: Text,
        also: list[str] | None, choice: Stored,
    ) -> Any:  # fmt: skip
        if not name:
            why = "Make one: python -m jobs enroll --sample"
            if not visitor.known():
                why = "Seen by people with the token only"
            elif visitor.ecosystems():
                why = "The sample's ecosystem alone is enrolled here. Choose it under More options, or make one: "
                why += "python -m jobs enroll"
            return [], None, why, no_update, no_update, True, [], [], None, None
        one = ecosystem(name)
        if one is None:
            return (no_update,) * 10
        wish = claim or link.get("claim")
        brings = visitor.service().brings(one.name)
        rates = sections.error_rates(brings.stop_levels)
        usual = f"{STOP_LEVEL:g}"
        others = [other for other in visitor.ecosystems() if other.name != one.name]
        names = {other.name for other in others}
        followed = choice and choice["shown"] == name != choice["picked"] and not one.sample
        picked = choice is None or choice["picked"] == name
        lacking = not_enrolled([one, *others], {"reader": reader or "", "roster": roster or ""}) if followed else None
        return (
            sections.grouped(one.sources, one.families, sections.known_sources(questions())),
            wish if wish in one.sources else None,
            [
                html.Strong(f"{one.title} · {sections.method_name(one.reader)}"),
                f"{', recommended' * (not picked)}. {describe(one, brings)} Another one stands under More options. ",
                *_why_not(lacking),
            ],
            [{"value": rate, "label": word} for rate, word in (rates or {usual: "–"}).items()],
            level if level in rates else usual if usual in rates else next(iter(rates), usual),
            not rates,
            ecosystem_options(others),
            [other for other in also or () if other in names],
            sections.judged_by(questions(), one.title, len(one.sources), one),
            no_claim(wish, one),
        )

    @sections.callback(
        app,
        "attr-claim-note.children* attr-claim.value*",
        "attr-claim-lost.data attr-claim.value",
        "attr-ecosystem.value",
    )
    def lost(lost: Stored, claim: Text, name: Text) -> Any:
        one = ecosystem(name)
        if one is None or ctx.triggered_id != "attr-claim-lost":
            return None if claim or one is None else no_update, no_update
        typed, known = str((lost or {}).get("typed", "")), sections.known_sources(questions())
        called = source_called(typed, one, known)
        return (None, called) if called else (no_claim(typed, one, known.get(claim or "", claim or "")), no_update)

    @sections.callback(
        app,
        "attr-claim.value* attr-claim-file.children attr-prefilled.data",
        "attr-columns.data attr-claim.data",
        "attr-claim.value attr-ecosystem.value attr-prefilled.data",
    )
    def suggested(columns: Stored, _options: Any, claim: Text, name: Text, last: Stored) -> Any:
        one = ecosystem(name)
        if one is None or not (columns or {}).get("key"):
            return (no_update,) * 3
        filled = prefill(columns or {}, one, claim, last or {})
        now = {
            "key": (columns or {})["key"],
            "ecosystem": one.name,
            "claim": (filled or [(last or {}).get("claim")])[0],
        }
        if filled is None:
            return no_update, no_update, now
        return filled[0] if filled[0] != claim else no_update, filled[1], now

    @sections.callback(
        app, "attr-claim-offer.children", "attr-columns.data attr-ecosystem.value attr-claim.value", prevent=False
    )
    def offer_claims(columns: Stored, name: Text, claim: Text) -> Any:
        one = ecosystem(name)
        if claim or one is None:
            return []
        known = sections.known_sources(questions())
        return [
            html.Button(
                html.Span(["The file names ", html.B(known.get(source, source), dir="auto"), ": test that claim"]),
                id=sections.live("attr-claim-take", source),
                className="button",
            )
            for source in named_sources((columns or {}).get("labels", ()), one)
        ]

    @sections.callback(app, "attr-claim.value*", "attr-claim-take:ALL.n_clicks")
    def take_claim(clicks: list[Clicks]) -> Any:
        return ctx.triggered_id["figure"] if any(clicks) else no_update

    @sections.callback(
        app,
        "attr-candidates.data attr-candidates.value attr-candidates-place.hidden",
        "attr-candidates-kind.value attr-ecosystem.value",
        "attr-candidates.value",
        prevent=False,
    )
    def candidates(kind: str, name: Text, now: list[str] | None) -> Any:
        one = ecosystem(name)
        options = [] if one is None else candidate_options(kind, one, sections.known_sources(questions()))
        offered = {item["value"] for option in options for item in option.get("items", [option])}
        return options, [entry for entry in now or () if entry in offered], kind == "all"

    @sections.callback(
        app,
        "attr-candidates-note.children",
        "attr-candidates.value attr-claim.value",
        "attr-candidates-kind.value attr-ecosystem.value",
        prevent=False,
    )
    def counted(entries: list[str] | None, claim: Text, kind: str, name: Text) -> Any:
        one = ecosystem(name)
        return None if one is None else candidates_note(kind, one, entries or (), claim)

    @sections.callback(
        app, "attr-prior-claim.hidden attr-prior-own.hidden attr-prior-why.hidden", "attr-prior.value", prevent=False
    )
    def prior_fields(kind: str) -> Any:
        return kind != "claim", kind != "own", kind == "even"

    _receive_background(app)

    @sections.callback(app, "attr-keep-count.disabled", "attr-keep.checked", prevent=False)
    def shows(checked: bool) -> bool:
        return not checked


def _receive_background(app: Dash) -> None:
    @sections.callback(
        app,
        "attr-background-key.data attr-background-head.children attr-background-problem.children "
        "attr-background.contents attr-background-none.hidden",
        "attr-background.contents attr-background-none.n_clicks",
        "attr-background.filename attr-columns.data",
    )
    def receive(contents: Text, clicks: int | None, name: Text, columns: Stored) -> Any:
        if ctx.triggered_id == "attr-background-none":
            return (None, None, None, None, True) if clicks else (no_update,) * 5
        if not contents:
            return (no_update,) * 5
        try:
            key, service = visitor.opened_session(), visitor.service()
            upload = service.upload(key, name or "traffic", intake.decoded(contents))
            return upload.key, intake.head(_inspect_traffic(key, upload.key, columns)), None, None, False
        except AtlasError as error:
            visitor.count_refusal(error)
            return None, None, intake.refused(name or "traffic", error), None, True


def _inspect_traffic(session: str, key: str, columns: Stored) -> Preview:
    """Preview of added traffic, by the columns of the traces where they fit; a report holds one choice of columns."""
    service = visitor.service()
    if columns and columns.get("traces"):
        chosen = intake.given(columns["recognised"], list(columns["shown"].values()))
        try:
            return service.inspect(session, key, chosen, columns["encoding"] or None)
        except AtlasError:  # recognised anew, as the attribution does
            pass
    try:
        return service.inspect(session, key)
    except AtlasError as error:
        raise AtlasError(error.problem, "Name its columns as those of your traces are named") from error


def stores(link: dict[str, str]) -> list[Component]:
    """What the page remembers between its callbacks; no text of a trace."""
    names = "wanted claim-lost prefilled picked upload admitted columns link watch followed job ended heat-choice "
    names += "background-key"
    more: dict[str, dict[str, Any]] = {"wanted": {"data": link}, "job": {"storage_type": "session"}}
    return [dcc.Store(id=f"attr-{name}", **more.get(name, {})) for name in names.split()]

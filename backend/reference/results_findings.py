"""Paired comparisons, validation of an audit, and findings: where paper, files and our numbers disagree.

Nothing here is a verdict by hand: every line is a stored number or a comparison of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backend.inference.validation import CURVES
from backend.protocol import READER_PAPER
from backend.reference.attribution import AVERAGE
from backend.reference.files import ROSTER
from backend.reference.paper import DECLARED, DIFFERS, EVALUATE, RELATE, Cell, attribution, question, relationship
from backend.reference.results_tables import ABSENT, Book, Number, as_printed, header, like, line, paragraphs, plain

ROUNDING = 1e-9  # shares of a few hundred groups that differ by a margin do so up to the last digits
PAIR = {"accuracy": "Acc.", "precision": "Precision", "recall": "Recall", "f1": "F1", "auc": "AUC"}
DYNAMIC = ("published-llmmap", "dna", "published-deberta", "dna-finetuned", "llmmap", "deberta", "encoder")
SIMPLE = ("ngram-word", "ngram-char")
STATIC = {"mpt": "MPT", "phylolm": "PhyloLM"}
TWO_MODES = "dct-q2"
END_POINTS = ("accuracy@1", "accuracy@100")  # measures that are printed; table ``comparisons`` has every budget
STATISTICS, READOUTS = f"{EVALUATE} statistics", f"{EVALUATE} readouts"
PAIRED = (
    ("endpoints", "Readers and baselines here", STATISTICS),
    ("readouts", "Other readouts less the paper's", READOUTS),
    ("readouts-alone", "Readouts in no stack (of live attribution, and carried to a minimum)", READOUTS),
    ("readouts-tuned", "With a fine-tuned encoder", "python -m jobs all --tune encoder"),
    ("readouts-text", "Readouts of texts alone", READOUTS),
    ("ngrams", "Other readouts less word n-grams", STATISTICS),
)
"""Sets of hypotheses of which every pair is printed: title, and what measures them."""
PARTS: Mapping[str, Mapping[str, str]] = DECLARED["validation"]
LEFT_OUT = ("scale", "bias", "cllr_pairwise_before", "cllr_pairwise_after", "accuracy_before", *CURVES)
"""Metrics that stay in the store only."""
QUALIFIERS = ("scenario", "statistic", "rule", "level", "space")
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Claim:
    """A direction that the paper claims: first above second, for every reader of a view."""

    sentence: str
    place: str  # where the paper makes it
    first: tuple[str, Cell]  # method and question
    second: tuple[str, Cell]
    view: str = "ur"  # of both sides, unless the second one has ``other_view``
    factor: float = 1.0  # what the second side is multiplied by
    margin: float = 0.0  # for claims of a tie: how far the two may be apart, whichever is ahead
    other_view: str = ""


def pooled(k: int, **where: Any) -> Cell:
    """Accuracy pooled over the folds."""
    return attribution("accuracy", k, "pooled", "value", **where)


def _side(method: str = READER_PAPER, **where: Any) -> tuple[str, Cell]:
    return method, question(**where)


CLAIMS = tuple(
    Claim(**claim | {side: _side(**claim[side]) for side in ("first", "second")}) for claim in DECLARED["claims"]
)
QUESTIONS = (
    ("K = 1", attribution("accuracy", 1, "fold")),
    ("K = 100", attribution("accuracy", 100, "fold")),
    ("64 tokens, K = 100", pooled(100, condition="t64-global")),
    ("32 tokens, K = 100", pooled(100, condition="t32-global")),
    ("Math100, K = 100", attribution("accuracy", 100, "fold", benchmark="math100")),
    ("family purity@5", question("family_purity", "purity", k=5)),
    ("Math100 by signature, top 1", question("cross_domain", metric="top1", variant="raw")),
    ("the same, centred", question("cross_domain", metric="top1", variant="centred")),
)
"""Questions on which n-grams are compared with the method."""


def findings(book: Book) -> Iterator[str]:
    """The section, line by line."""
    intro = "Every line compares two stored numbers; the superscripts are their builds."
    yield from paragraphs("## Where they disagree", intro)
    yield from _files(book)
    yield from _simple_methods(book)
    yield from _static(book)
    yield from paragraphs(
        "### The paper's directions, reader by reader",
        "*published*: how many of the release's readers show it. *measured*: left and right number of each of ours.",
        _claims(book),
    )


def _files(book: Book) -> Iterator[str]:
    yield from paragraphs("### The paper and its released files")
    rows = [(p, book.imported[p.key]) for p in book.paper if p.key in book.imported]
    if not rows:
        yield from paragraphs("Published numbers are not imported: `python -m jobs reference`.")
        return
    filed = [(p, row) for p, row in rows if row["file_value"] is not None]
    other = [(p, row) for p, row in filed if not p.agrees(row["file_value"])]
    noted = [(p, row) for p, row in filed if p.agrees(row["file_value"]) and " says " in (row["note"] or "")]
    yield from paragraphs(
        f"Of {len(rows)} printed numbers {len(filed)} have a counterpart in the files, and {len(filed) - len(other)} "
        f"of these agree as printed. {len(rows) - len(filed)} stand in no file."
    )
    for pairs, last in ((other, "files"), (noted, "the other file")):
        if pairs and pairs is noted:
            yield from paragraphs("Two files of the release hold the same quantity, and the paper prints one of them:")
        if pairs:
            yield from header(["place", "row", "column", "paper", last])
            for p, row in pairs:
                note = (row["note"] or "").replace(f"{DIFFERS}; ", "")
                text = (like(row["file_value"], p.text) if pairs is other else note) + book.cite([row["build_id"]])
                yield line([f"`{p.place}`", p.row, p.column, as_printed(p.text), text])
            yield ""


def _simple_methods(book: Book) -> Iterator[str]:
    """Where simple methods beat the paper's baselines, or the method: n-grams, one component, matched beginnings."""
    yield from paragraphs("### Simple methods that beat the paper's baselines, or the method")
    yield from _ngrams(book)
    if lines := _parts(book):
        yield from paragraphs(
            "One block of the spectrum against both, and matched beginnings against the method:",
            [*header(["where", "simple", "accuracy", "beats", "accuracy"]), *lines],
        )


def _ngrams(book: Book) -> Iterator[str]:
    simple = [row["reader"] for row in book.readers if row["method"] in SIMPLE]
    if not simple:
        command = "python -m jobs evaluate --stage baselines --roster 100-way"
        yield from paragraphs(f"N-grams are not measured: `{command}`.")
        return
    groups = {
        "published READERs": book.origin("published", (READER_PAPER,)),
        "published baselines": book.origin("published", DYNAMIC),
        "READERs here": book.origin("measured", (READER_PAPER,)),
        "baselines here": book.origin("measured", DYNAMIC),
    }
    yield from paragraphs(
        "N-grams need no model. How many readers they beat, and the best of those readers, beaten or not:"
    )
    yield from header(["where", "simple", "reaches", *groups])
    for where, cell in QUESTIONS:
        for reader in simple:
            if (reached := book.number(cell, reader)) is not None:
                cells = [_rivals(book, cell, reached, names) for names in groups.values()]
                yield line([where, f"`{reader}`", book.cited_number(reached), *cells])
    yield ""


def _rivals(book: Book, cell: Cell, reached: Number, rivals: list[str]) -> str:
    """'3 of 8; `reader` .581': how many fall short of a number, and the best of all."""
    known = [(number, rival) for rival in rivals if (number := book.number(cell, rival)) is not None]
    if not known:
        return ABSENT
    beaten = sum(number.value < reached.value for number, _ in known)
    best, name = max(known, key=lambda pair: pair[0].value)
    count = f"**{beaten} of {len(known)}**" if beaten else f"0 of {len(known)}"
    return f"{count}; `{name}` {book.cited_number(best)}"


def _parts(book: Book) -> list[str]:
    """The mean state against both blocks; first AC, MPT and PhyloLM against the joint readout of pairs."""
    lines = []
    readers = [row for row in book.readers if row["method"] == READER_PAPER and row["proxy"] is not None]
    for k in (1, 100):
        for row in readers:
            mean = row["reader"].replace(READER_PAPER, "reader-dc", 1)
            lines += _beaten(book, f"K = {k}, pooled", (mean, pooled(k)), (row["reader"], pooled(k)))
    for protocol in ("pair", "model", "family"):
        cells = {name: relationship(protocol, "accuracy", readout=name) for name in ("ac", "dc-ac", "match")}
        for reader in (row["reader"] for row in readers if row["view"] == "ur"):
            joint = (reader, cells["dc-ac"])
            lines += _beaten(book, f"{protocol} splits", (reader, cells["ac"]), joint, "first AC alone")
            for baseline in STATIC:
                known = baseline if book.number(cells["match"], baseline) is not None else f"published-{baseline}"
                lines += _beaten(book, f"{protocol} splits", (known, cells["match"]), joint)
    return lines


def _beaten(book: Book, where: str, first: tuple[str, Cell], second: tuple[str, Cell], part: str = "") -> list[str]:
    low, high = book.number(second[1], second[0]), book.number(first[1], first[0])
    if low is None or high is None or high.value <= low.value:
        return []
    name = f"`{first[0]}`{f' ({part})' if part else ''}"
    return [line([where, name, book.cited_number(high), f"`{second[0]}`", book.cited_number(low)])]


def _static(book: Book) -> Iterator[str]:
    yield from paragraphs("### Numbers that need no proxy, ours against the paper's")
    lines, agreeing = [], 0
    for reader, title in STATIC.items():
        for place, protocol, prefix in (
            ("tab:bench_a_full_std", "pair", ""),
            ("tab:bench_a_disjoint", "model", "Model "),
            ("tab:bench_a_disjoint", "family", "Family "),
        ):
            for metric, column in PAIR.items():
                number = book.number(relationship(protocol, metric, readout="match"), reader)
                cell = (place, title, prefix + column)
                printed = next((p for p in book.paper if p.key == cell), None)
                if number is not None and printed is not None and printed.agrees(number.value):
                    agreeing += 1
                elif number is not None and printed is not None:
                    cells = [title, prefix + column, as_printed(printed.text), book.cited_number(number)]
                    lines.append(line([f"`{place}`", *cells]))
    if agreeing or lines:
        yield from paragraphs(f"MPT and PhyloLM: {agreeing} of {agreeing + len(lines)} numbers agree as printed.")
    else:
        yield from paragraphs("MPT and PhyloLM are not measured: `python -m jobs relate --method mpt,phylolm`.")
    if lines:
        yield from paragraphs([*header(["place", "method", "column", "paper", "measured"]), *lines])


def _claims(book: Book) -> Iterator[str]:
    yield from header(["claim", "place", "published", "measured", "holds here"])
    for claim in CLAIMS:
        found = {"published": list[tuple[str, Number, Number]](), "measured": list[tuple[str, Number, Number]]()}
        for row in book.readers:
            if row["method"] == READER_PAPER and row["view"] == claim.view and row["proxy"] is not None:
                first, second = (
                    book.number(cell, f"{method}/{row['proxy']}/{view}")
                    for (method, cell), view in (
                        (claim.first, claim.view),
                        (claim.second, claim.other_view or claim.view),
                    )
                )
                if first is not None and second is not None:
                    found[row["origin"]].append((row["proxy"], first, second))
        published = [holds(claim, first, second) for _, first, second in found["published"]]
        counted = f"{sum(published)} of {len(published)}" if published else "in no file"
        ours = found["measured"]
        shown = "; ".join(f"{p}: {book.cited_number(first)} / {book.cited_number(second)}" for p, first, second in ours)
        verdicts = ", ".join("yes" if holds(claim, first, second) else "**no**" for _, first, second in ours)
        place = claim.place if " " in claim.place else f"`{claim.place}`"
        yield line([claim.sentence, place, counted, shown or "not measured", verdicts])


def holds(claim: Claim, first: Number, second: Number) -> bool:
    """Whether two numbers show what is claimed of them."""
    if claim.margin:
        return abs(first.value - second.value) < claim.margin + ROUNDING
    return first.value > claim.factor * second.value


def comparisons(book: Book, rows: Rows) -> Iterator[str]:
    """End points, readouts, temporal forms, components, and strict relationships, of the rows of ``comparisons``."""
    intro = "Differences of accuracy with 95 % intervals, and p after Holm's correction within each set of hypotheses."
    yield from paragraphs("## Paired comparisons", intro)
    for kind, title, command in PAIRED:
        found: dict[tuple[str, str], dict[str, str]] = {}
        for row in rows:
            if row["hypotheses"] == f"{kind}/{ROSTER}":
                found.setdefault((row["subject"], row["reference"]), {})[row["measure"]] = _difference(book, row)
        if found:
            yield from paragraphs(f"{title}, {ROSTER}. `{command}`.")
            yield from header(["reader", "less", *END_POINTS])
            for (subject, reference), cells in found.items():
                yield line([f"`{subject}`", f"`{reference}`", *(cells.get(measure, ABSENT) for measure in END_POINTS)])
            yield ""
    yield from paragraphs(
        "Two DCT modes less another representation of the same block. Published: mean of the four main proxies. "
        f"Ours: `{STATISTICS}`."
    )
    published: dict[tuple[str, str], str] = {}
    for row in rows:
        subject, reference = (row[name].split("/") for name in ("subject", "reference"))
        if row["hypotheses"] == f"published/temporal/{ROSTER}" and AVERAGE in subject and subject[0] == TWO_MODES:
            published[reference[0], row["measure"]] = _difference(book, row)
    yield from _end_points(book, rows, "temporal", published)
    yield from paragraphs(
        f"The paper's readout less its components and compressions, at the blocks of the folds: `{STATISTICS}`."
    )
    yield from _end_points(book, rows, "controls", {})
    yield from _relationships(book, rows)


def _end_points(book: Book, rows: Rows, kind: str, published: dict[tuple[str, str], str]) -> Iterator[str]:
    """Methods at the end points, published next to every proxy and view of ours."""
    ours: dict[tuple[str, str, str], str] = {}
    for row in rows:
        method, _, where = row["subject"].partition("/")
        if row["hypotheses"] == f"{kind}/{ROSTER}/{where}" and row["measure"] in END_POINTS:
            layer = book.blocks.get((row["subject"], ROSTER))
            head = where if layer is None else f"{where}, block {layer}"
            ours[method, row["measure"], head] = _difference(book, row, sign=-1.0)
    heads = sorted({where for *_, where in ours})
    keys = list(dict.fromkeys([*published, *((method, measure) for method, measure, _ in ours)]))
    if keys:
        yield from header(["less", "measure", *(["published"] if published else []), *heads])
    for method, measure in keys:
        mine = [ours.get((method, measure, where), ABSENT) for where in heads]
        theirs = [published.get((method, measure), ABSENT)] if published else []
        yield line([f"`{method}`", measure, *theirs, *mine])
    if keys:
        yield ""
    if not heads:
        yield from paragraphs(f"Not measured: `{STATISTICS}`.")


def _relationships(book: Book, rows: Rows) -> Iterator[str]:
    yield from paragraphs(
        "Relationships where models, or families, are held out: a reader and readout less another one."
    )
    yield from header(["", "splits", "reader", "less", "difference"])
    measured = False
    for protocol in ("model", "family"):
        ours = [f"relationships/{name}/{protocol}" for name in ("components", "baselines")]
        for origin, sets in (("published", [f"published/relationships/baselines/{protocol}"]), ("**measured**", ours)):
            for row in rows:
                if row["hypotheses"] in sets and row["measure"] == "accuracy":
                    measured = measured or origin != "published"
                    names = [f"`{row['subject']}`", f"`{row['reference']}`"]
                    yield line([origin, protocol, *names, _difference(book, row)])
    yield ""
    if not measured:
        yield from paragraphs(f"Not measured: `{RELATE}`.")


def _difference(book: Book, row: dict[str, Any], sign: float = 1.0) -> str:
    difference = sign * row["difference"]
    text = ("+" if difference > 0 else "") + plain(difference)
    if row["low"] is not None and row["high"] is not None:
        low, high = sorted((sign * row["low"], sign * row["high"]))
        text += f" [{plain(low)}, {plain(high)}]"
    p = row["p_holm"]
    return f"{text}, p {'< .001' if p < 0.001 else plain(p)}{book.cite([row['build_id']])}"


def audit_sections(book: Book, rows: Rows) -> Iterator[str]:
    """What the evidence of an audit is worth, a table a part, of the rows of ``audit_validation``."""
    yield from paragraphs("## What the evidence of an audit is worth")
    if not rows:
        yield from paragraphs(f"Not measured: `{EVALUATE} audit`.")
        return
    yield from paragraphs(f"Ours: `{EVALUATE} audit`. Budgets are columns; ± is over grouping seeds, folds or runs.")
    for part in dict.fromkeys([*PARTS, *(row["part"] for row in rows)]):
        shown = [row for row in rows if row["part"] == part and row["metric"] not in LEFT_OUT]
        if shown:
            about = PARTS.get(part, {"title": part.capitalize(), "text": ""})
            yield from paragraphs(f"### {about['title']}", about["text"], _validation(book, shown))


def _validation(book: Book, rows: Rows) -> Iterator[str]:
    budgets = sorted({row["k"] for row in rows})
    used = [name for name in QUALIFIERS if any(row[name] is not None for row in rows)]
    cells: dict[tuple[str, ...], dict[int, dict[str, Any]]] = {}
    for row in rows:
        about = (
            row["reader"],
            row["roster"],
            row["condition"],
            *(_qualifier(row[name]) for name in used),
            row["metric"],
        )
        cells.setdefault(about, {})[row["k"]] = row
    yield from header(["reader", "roster", "responses", *used, "metric", *(f"K = {k}" for k in budgets)], 4 + len(used))
    for about, found in cells.items():
        values = (_value(book, found[k]) if k in found else ABSENT for k in budgets)
        yield line([f"`{about[0]}`", *about[1:], *values])


def _qualifier(value: object) -> str:
    if value is None:
        return ""
    return plain(value, 2) if isinstance(value, float) else str(value)


def _value(book: Book, row: dict[str, Any]) -> str:
    def form(value: float) -> str:
        return f"{value:.1f}" if "traces" in row["metric"] else plain(value)

    return (
        form(row["value"]) + (f" ± {form(row['std'])}" if row["std"] is not None else "") + book.cite([row["build_id"]])
    )

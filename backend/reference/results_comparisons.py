"""Paired comparisons next to the release's, and the validation of an audit's statistics, as they stand in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backend.inference.validation import CURVES
from backend.reference.attribution import AVERAGE
from backend.reference.files import ROSTER
from backend.reference.paper import DECLARED, EVALUATE, RELATE
from backend.reference.results_book import ABSENT, Book, header, line, paragraphs, plain

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

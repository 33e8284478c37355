"""Paired comparisons, ours beside the release's: what a difference is worth after Holm's correction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backend.reference.controls import AVERAGE
from backend.reference.markdown import header, line
from backend.reference.results_book import ABSENT, Book, plain
from backend.reference.rows import ROSTER
from backend.reference.tables import EVALUATE, RELATE

TWO_MODES = "dct-q2"
END_POINTS = ("accuracy@1", "accuracy@100")  # Measures that are printed; table ``comparisons`` has every budget.
CONTRASTS = ("components", "baselines")
Rows = list[dict[str, Any]]


def comparisons(book: Book, rows: Rows) -> Iterator[str]:
    """Tables of end points, readouts, temporal forms, components, and relationships under the strict protocols.

    rows : Rows of table ``comparisons``.
    """
    yield "## Paired comparisons"
    yield ""
    yield "Differences of accuracy with 95 % intervals, and p after Holm's correction within each set of hypotheses."
    yield ""
    yield from _pairs(book, rows, "endpoints", f"Readers and baselines here, {ROSTER}.")
    yield from _pairs(book, rows, "readouts", f"Other readouts less the paper's, {ROSTER}.", f"{EVALUATE} readouts")
    alone = f"Readouts in no stack (of live attribution, and carried to a minimum), {ROSTER}."
    yield from _pairs(book, rows, "readouts-alone", alone, f"{EVALUATE} readouts")
    tuned = "python -m jobs all --tune encoder"
    yield from _pairs(book, rows, "readouts-tuned", f"With a fine-tuned encoder, {ROSTER}.", tuned)
    yield from _pairs(book, rows, "readouts-text", f"Readouts of texts alone, {ROSTER}.", f"{EVALUATE} readouts")
    yield from _pairs(book, rows, "ngrams", f"Other readouts less word n-grams, {ROSTER}.")
    yield from _temporal(book, rows)
    yield from _controls(book, rows)
    yield from _relationships(book, rows)


def _pairs(book: Book, rows: Rows, kind: str, title: str, command: str = f"{EVALUATE} statistics") -> Iterator[str]:
    """Every pair of a set at the end points; nothing where the set is empty."""
    held = [row for row in rows if row["hypotheses"] == f"{kind}/{ROSTER}"]
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in held:
        found.setdefault((row["subject"], row["reference"]), {})[row["measure"]] = _shown(book, row)
    if not found:
        return
    yield f"{title} `{command}`."
    yield ""
    yield from header(["reader", "less", *END_POINTS])
    for (subject, reference), cells in found.items():
        yield line([f"`{subject}`", f"`{reference}`", *(cells.get(measure, ABSENT) for measure in END_POINTS)])
    yield ""


def _temporal(book: Book, rows: Rows) -> Iterator[str]:
    yield (
        "Two DCT modes less another representation of the same block. Published: mean of the four main proxies. "
        f"Ours: `{EVALUATE} statistics`."
    )
    yield ""
    published: dict[tuple[str, str], str] = {}
    for row in rows:
        subject, reference = (row[name].split("/") for name in ("subject", "reference"))
        if row["hypotheses"] == f"published/temporal/{ROSTER}" and AVERAGE in subject and subject[0] == TWO_MODES:
            published[reference[0], row["measure"]] = _shown(book, row)
    yield from _beside(book, rows, "temporal", published)


def _controls(book: Book, rows: Rows) -> Iterator[str]:
    yield (
        "The paper's readout less its components and compressions, at the blocks of the folds: "
        f"`{EVALUATE} statistics`."
    )
    yield ""
    yield from _beside(book, rows, "controls", {})


def _beside(book: Book, rows: Rows, kind: str, published: dict[tuple[str, str], str]) -> Iterator[str]:
    """Methods at the end points, published beside every proxy and view of ours."""
    ours: dict[tuple[str, str, str], str] = {}
    for row in rows:
        method, _, where = row["subject"].partition("/")
        if row["hypotheses"] == f"{kind}/{ROSTER}/{where}" and row["measure"] in END_POINTS:
            ours[method, row["measure"], f"{where}{_block(book, row['subject'])}"] = _shown(book, row, sign=-1.0)
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
        yield f"Not measured: `{EVALUATE} statistics`."
        yield ""


def _block(book: Book, reader: str) -> str:
    """', block 18' for a reader that stands at one block."""
    layer = book.blocks.get((reader, ROSTER))
    return f", block {layer}" if layer is not None else ""


def _relationships(book: Book, rows: Rows) -> Iterator[str]:
    yield "Relationships where models, or families, are held out: a reader and readout less another one."
    yield ""
    yield from header(["", "splits", "reader", "less", "difference"])
    measured = False
    for protocol in ("model", "family"):
        ours = [f"relationships/{name}/{protocol}" for name in CONTRASTS]
        for origin, sets in (("published", [f"published/relationships/baselines/{protocol}"]), ("**measured**", ours)):
            for row in rows:
                if row["hypotheses"] in sets and row["measure"] == "accuracy":
                    measured = measured or origin != "published"
                    names = [f"`{row['subject']}`", f"`{row['reference']}`"]
                    yield line([origin, protocol, *names, _shown(book, row)])
    yield ""
    if not measured:
        yield f"Not measured: `{RELATE}`."
        yield ""


def _shown(book: Book, row: dict[str, Any], sign: float = 1.0) -> str:
    difference = sign * row["difference"]
    text = ("+" if difference > 0 else "") + plain(difference)
    if row["low"] is not None and row["high"] is not None:
        low, high = sorted((sign * row["low"], sign * row["high"]))
        text += f" [{plain(low)}, {plain(high)}]"
    p = row["p_holm"]
    return f"{text}, p {'< .001' if p < 0.001 else plain(p)}{book.cite([row['build_id']])}"

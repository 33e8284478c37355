"""Paired comparisons, ours beside the release's: what a difference is worth after Holm's correction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backend.reference.controls import AVERAGE
from backend.reference.rows import READER, ROSTER
from backend.reference.tables import EVALUATE, RELATE
from jobs._results.book import ABSENT, Book, plain

TWO_MODES = "dct-q2"


def comparisons(book: Book, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Two tables: temporal representations, and relationships under the strict protocols.

    Parameters
    ----------
    book : Book
    rows : list of dict
        Rows of table ``comparisons``.
    """
    yield "## Paired comparisons"
    yield ""
    yield "Differences of accuracy with 95 % intervals, and p after Holm's correction within each set of hypotheses."
    yield ""
    yield from _temporal(book, rows)
    yield from _relationships(book, rows)


def _temporal(book: Book, rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"DC–AC less another representation. Published: mean of the four main proxies. Ours: `{EVALUATE} statistics`."
    yield ""
    published: dict[tuple[str, str], str] = {}
    ours: dict[tuple[str, str, str], str] = {}
    for row in rows:
        subject, reference = (row[name].split("/") for name in ("subject", "reference"))
        if row["hypotheses"] == f"published/temporal/{ROSTER}" and AVERAGE in subject and subject[0] == TWO_MODES:
            published[reference[0], row["measure"]] = _shown(book, row)
        if row["hypotheses"].startswith(f"controls/{ROSTER}/") and reference[0] == READER and len(subject) == 3:
            ours[subject[0], row["measure"], "/".join(subject[1:])] = _shown(book, row, sign=-1.0)
    heads = sorted({where for *_, where in ours})
    keys = list(dict.fromkeys([*published, *((method, measure) for method, measure, _ in ours)]))
    yield from _header(["less", "measure", "published", *heads])
    for method, measure in keys:
        mine = [ours.get((method, measure, where), ABSENT) for where in heads]
        yield _line([f"`{method}`", measure, published.get((method, measure), ABSENT), *mine])
    yield ""
    if not heads:
        yield f"Not measured: `{EVALUATE} statistics`."
        yield ""


def _relationships(book: Book, rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "Relationships where models, or families, are held out: a reader and readout less another one."
    yield ""
    yield from _header(["", "splits", "reader", "less", "difference"])
    measured = False
    for protocol in ("model", "family"):
        for origin, hypotheses in (
            ("published", f"published/relationships/baselines/{protocol}"),
            ("**measured**", f"relationships/{protocol}"),
        ):
            for row in rows:
                if row["hypotheses"] == hypotheses and row["measure"] == "accuracy":
                    measured = measured or origin != "published"
                    names = [f"`{row['subject']}`", f"`{row['reference']}`"]
                    yield _line([origin, protocol, *names, _shown(book, row)])
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


def _header(names: list[str]) -> Iterator[str]:
    yield _line(names)
    yield _line(["---"] * len(names))


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"

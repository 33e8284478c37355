"""Where simple methods beat the paper's baselines, or the method: n-grams, one spectral block, matched beginnings."""

from __future__ import annotations

from collections.abc import Iterator

from backend.protocol import READER_PAPER
from backend.reference.layout import Cell, attribution, relationship
from backend.reference.markdown import header, line
from backend.reference.results_book import Book, Number, plain
from backend.reference.rows import ROSTER

DYNAMIC = ("published-llmmap", "dna", "published-deberta", "dna-finetuned", "llmmap", "deberta", "encoder")
SIMPLE = ("ngram-word", "ngram-char")
STATIC = {"mpt": "match", "phylolm": "match"}


def pooled(k: int, **where: object) -> Cell:
    """Accuracy pooled over the folds."""
    return attribution("accuracy", k, "pooled", "value", **where)


def purity(column: str) -> Cell:
    """A column of family purity@5 on Agent500."""
    return Cell("family_purity", column, (("roster", ROSTER), ("domain", "agent500"), ("k", 5)))


def retrieval(variant: str) -> Cell:
    """Share of Agent500 signatures whose own source comes first in Math100."""
    where = {"roster": ROSTER, "variant": variant, "query_domain": "agent500", "metric": "top1", "source": None}
    return Cell("cross_domain", "value", tuple(where.items()))


QUESTIONS = (
    ("K = 1", attribution("accuracy", 1, "fold")),
    ("K = 100", attribution("accuracy", 100, "fold")),
    ("64 tokens, K = 100", pooled(100, condition="t64-global")),
    ("32 tokens, K = 100", pooled(100, condition="t32-global")),
    ("Math100, K = 100", attribution("accuracy", 100, "fold", benchmark="math100")),
    ("family purity@5", purity("purity")),
    ("Math100 by signature, top 1", retrieval("raw")),
    ("the same, centred", retrieval("centred")),
)
"""What n-grams are asked as well as the method."""


def simple_methods(book: Book) -> Iterator[str]:
    """The section, line by line."""
    yield "### Simple methods that beat the paper's baselines, or the method"
    yield ""
    yield from _ngrams(book)
    lines = _parts(book)
    if lines:
        yield "One block of the spectrum against both, and matched beginnings against the method:"
        yield ""
        yield from header(["where", "simple", "accuracy", "beats", "accuracy"])
        yield from lines
        yield ""


def _ngrams(book: Book) -> Iterator[str]:
    simple = [row["reader"] for row in book.readers if row["method"] in SIMPLE]
    if not simple:
        command = "python -m jobs evaluate --stage baselines --roster 100-way"
        yield f"N-grams are not measured: `{command}`."
        yield ""
        return
    groups = {
        "published READERs": [r["reader"] for r in book.readers if _is(r, "published", (READER_PAPER,))],
        "published baselines": [r["reader"] for r in book.readers if _is(r, "published", DYNAMIC)],
        "READERs here": [r["reader"] for r in book.readers if _is(r, "measured", (READER_PAPER,))],
        "baselines here": [r["reader"] for r in book.readers if _is(r, "measured", DYNAMIC)],
    }
    yield "N-grams need no model. How many readers they beat, and the best of those readers, beaten or not:"
    yield ""
    yield from header(["where", "simple", "reaches", *groups])
    for where, cell in QUESTIONS:
        for reader in simple:
            reached = book.number(cell, reader)
            if reached is None:
                continue
            cells = [_rivals(book, cell, reached, rivals) for rivals in groups.values()]
            yield line([where, f"`{reader}`", cited(book, reached), *cells])
    yield ""


def _is(row: dict[str, str], origin: str, methods: tuple[str, ...]) -> bool:
    return row["origin"] == origin and row["method"] in methods


def _rivals(book: Book, cell: Cell, reached: Number, rivals: list[str]) -> str:
    """'3 of 8; `reader` .581': how many fall short of a number, and the best of all."""
    held = [(number, rival) for rival in rivals if (number := book.number(cell, rival)) is not None]
    if not held:
        return "–"
    beaten = sum(number.value < reached.value for number, _ in held)
    best, name = max(held, key=lambda pair: pair[0].value)
    count = f"**{beaten} of {len(held)}**" if beaten else f"0 of {len(held)}"
    return f"{count}; `{name}` {cited(book, best)}"


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
        for row in readers:
            if row["view"] != "ur":
                continue
            joint = (row["reader"], cells["dc-ac"])
            lines += _beaten(book, f"{protocol} splits", (row["reader"], cells["ac"]), joint, "first AC alone")
            for baseline in STATIC:
                known = baseline if book.number(cells["match"], baseline) is not None else f"published-{baseline}"
                lines += _beaten(book, f"{protocol} splits", (known, cells["match"]), joint)
    return lines


def _beaten(book: Book, where: str, first: tuple[str, Cell], second: tuple[str, Cell], said: str = "") -> list[str]:
    low, high = book.number(second[1], second[0]), book.number(first[1], first[0])
    if low is None or high is None or high.value <= low.value:
        return []
    name = f"`{first[0]}`{f' ({said})' if said else ''}"
    return [line([where, name, cited(book, high), f"`{second[0]}`", cited(book, low)])]


def cited(book: Book, number: Number) -> str:
    """A number with its builds."""
    return plain(number.value) + book.cite(number.builds)

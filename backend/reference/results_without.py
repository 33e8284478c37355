"""Tables of the paper that hold no result: what each says, and where the same stands here."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from backend.reference.markdown import header, line
from backend.reference.results_book import ABSENT, Book
from backend.store.result_queries import roster_families

ROSTER = "100-way"
SAID = {
    "`tab:agent500_prompt_examples`, `tab:math100_prompt_examples`": "Examples of prompts. They are text of the public "
    "release, which is read from there (`python -m jobs fetch`) and of which nothing is copied.",
    "`tab:reproduction_map`": "What every experiment takes. Here every table names its command and every number its "
    "build, and experiments.md says what a stage does.",
}


def without_results(book: Book, cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """The section, line by line."""
    yield "## Tables of the paper that hold no result"
    yield ""
    for place, words in SAID.items():
        yield f"* {place}: {words}"
    yield f"* `tab:target_roster`: the sources, by family and by how they were reached. Those of {ROSTER} here:"
    yield ""
    rows = roster_families(cursor, ROSTER)
    if not rows:
        yield "Not imported: `python -m jobs reference`."
        yield ""
        return
    ways = sorted({row["access"] for row in rows})
    yield from header(["family", *ways], 1)
    for family in dict.fromkeys(row["family"] for row in rows):
        held = {row["access"]: row for row in rows if row["family"] == family}
        cells = [
            f"{held[way]['sources']}{book.cite([held[way]['build_id']])}" if way in held else ABSENT for way in ways
        ]
        yield line([family, *cells])
    totals = [str(sum(row["sources"] for row in rows if row["access"] == way)) for way in ways]
    yield line(["**all**", *totals])
    yield ""

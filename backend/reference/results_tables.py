"""The paper's tables with our numbers, the rows that every section reads, and Markdown.

Our readers follow the paper's rows, or stand next to its conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from backend.methods.registry import METHODS
from backend.protocol import READER_PAPER
from backend.reference.files import ROSTER
from backend.reference.paper import CANDIDATES, EVALUATE, MAP, RELATE, Cell, Printed, Row, SummaryRows, Table, printed
from backend.store import result_queries as queries

LETTERS = {3: "K", 6: "M", 9: "B"}
ABSENT = "–"
ENDINGS = (" std", " low", " high", " p")  # columns that qualify the one before them
WITHOUT = (
    "* `tab:agent500_prompt_examples`, `tab:math100_prompt_examples`: Examples of prompts. They are text of the public "
    "release, which is read from there (`python -m jobs fetch`) and of which nothing is copied.",
    "* `tab:reproduction_map`: What every experiment takes. Here every table names its command and every number its "
    "build, and experiments.md says what a stage does.",
    "* `tab:target_roster`: the sources, by family and by how they were reached. Those of 100-way here:",
)
"""Tables of the paper that hold no result: what each says, and where the same stands here."""


@dataclass(frozen=True)
class Number:
    """A value with its builds."""

    value: float
    builds: tuple[str, ...]


@dataclass
class Book:
    """Everything that the tables and findings need."""

    summaries: SummaryRows  # summary rows of all result tables
    readers: list[dict[str, Any]]
    paper: list[Printed]
    imported: dict[tuple[str, str, str], dict[str, Any]]  # rows of the store for printed numbers, by their key
    builds: dict[str, dict[str, Any]]
    blocks: dict[tuple[str, str], int]  # block of a reader on a roster: the one that it stands at, or the modal one
    cited: dict[str, int] = field(default_factory=dict)  # builds in the order in which they are cited

    @classmethod
    def read(cls, cursor: duckdb.DuckDBPyConnection) -> Book:
        """Read a work database or a generation."""
        rows = {table: queries.summary_rows(cursor, table) for table in queries.SUMMARIES}
        imported = {(row["place"], row["row_name"], row["column_name"]): row for row in rows["paper_values"]}
        blocks = {(row["reader"], row["roster"]): row["layer"] for row in rows["layer_selection"]}
        readers, builds = queries.reader_rows(cursor), queries.build_rows(cursor)
        return cls(SummaryRows(rows), readers, printed(), imported, builds, blocks)

    def origin(self, origin: str, methods: Iterable[str]) -> list[str]:
        """Readers that were measured here or published, of some methods."""
        return [row["reader"] for row in self.readers if row["origin"] == origin and row["method"] in methods]

    def measured(self, pattern: str) -> list[dict[str, Any]]:
        """Our readers that a pattern means, e.g. ``reader-paper/{proxy}/ur``."""
        return [
            row
            for row in self.readers
            if row["origin"] == "measured" and pattern.format(proxy=row["proxy"], view=row["view"]) == row["reader"]
        ]

    def printed(self, place: str) -> dict[tuple[str, str], Printed]:
        """Numbers of one of the paper's tables, by row and column."""
        return {(number.row, number.column): number for number in self.paper if number.place == place}

    def number(self, cell: Cell | None, reader: str) -> Number | None:
        """The value of a reader for a question, None where there is no question or no value."""
        row = self.summaries.find(cell, reader) if cell is not None else None
        value = self.summaries.value(cell, (reader,)) if cell is not None else None
        if cell is None or row is None or value is None:
            return None
        whole = self.summaries.find(cell.per, reader) if cell.per is not None else None
        builds = (row["build_id"], *((whole["build_id"],) if whole is not None else ()))
        return Number(value, tuple(dict.fromkeys(builds)))

    def cite(self, builds: tuple[str, ...] | list[str]) -> str:
        """Superscript numbers of builds."""
        numbers = [self.cited.setdefault(build, len(self.cited) + 1) for build in dict.fromkeys(builds)]
        return f"<sup>{' '.join(str(number) for number in numbers)}</sup>" if numbers else ""

    def cited_number(self, number: Number) -> str:
        """A number with its builds."""
        return plain(number.value) + self.cite(number.builds)


class Uncited(Book):
    """The same for pages, which cite no builds."""

    def cite(self, builds: tuple[str, ...] | list[str]) -> str:
        """Nothing."""
        return ""


def plain(value: float, digits: int = 3) -> str:
    """A number without a leading zero: .481, 1.000, -.013."""
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def as_printed(text: str) -> str:
    """A number of the transcript as the paper prints it: 435.2M for 435.2e6."""
    digits, sign, power = text.partition("e")
    return f"{digits}{LETTERS[int(power)]}" if sign else plain(float(digits), len(digits.partition(".")[2]))


def like(value: float, text: str) -> str:
    """A number in the form of another one of its column."""
    digits, sign, _ = text.partition("e")
    if sign:
        power = next((power for power in (9, 6, 3) if abs(value) >= 10.0**power), 0)
        return f"{value / 10.0**power:.3g}{LETTERS.get(power, '')}"
    shown = len(digits.partition(".")[2])
    return f"{value:.0f}" if abs(float(digits)) >= 100 and shown == 0 else plain(value, max(shown, 1))


def line(cells: Sequence[str]) -> str:
    """One row of a table."""
    return "| " + " | ".join(cells) + " |"


def header(names: Sequence[str], numbers: int | None = None) -> Iterator[str]:
    """Names and the rule below them; from column ``numbers`` on cells are set to the right."""
    yield line(names)
    yield line(["---:" if numbers is not None and column >= numbers else "---" for column in range(len(names))])


def paragraphs(*parts: str | Iterable[str]) -> Iterator[str]:
    """Texts and tables with an empty line after each."""
    for part in parts:
        yield from [part] if isinstance(part, str) else part
        yield ""


def sections(book: Book, tables: tuple[Table, ...], cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """One section a table."""
    for table in tables:
        if table.place == "tab:cross_provider_neighborhoods":
            lines = _candidates(book, table, cursor)
        else:
            lines = _by_condition(book, table) if table.by_condition else _by_reader(book, table)
        source = f"Paper: `{table.place}`. Ours: `{table.command}`.{f' {table.note}' if table.note else ''}"
        yield from paragraphs(f"## {table.title}", source, lines)


def block_section(book: Book, cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Blocks that every outer fold of the paper's readout chose, and among how many; nothing where none was chosen."""
    rows = queries.chosen_blocks(cursor)
    if not rows:
        return
    yield from paragraphs(
        "## Blocks of READER",
        "Paper: nested selection over all blocks, on inner folds. Where there was one candidate nothing was chosen: "
        "the block was given beforehand, here that of the other view, and differences between the views are between a "
        "chosen block and a given one.",
    )
    yield from header(["", "", "candidates", "blocks of the outer folds"], 2)
    for row in rows:
        folds = ", ".join(map(str, row["layers"])) + (" (given)" if row["candidates"] == 1 else "")
        cells = [f"`{row['reader']}`", row["roster"], str(row["candidates"]), folds + book.cite([row["build_id"]])]
        yield line(cells)
    yield ""


def without_results(book: Book, cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Tables of the paper that hold no result, with the sources of the roster."""
    yield from paragraphs("## Tables of the paper that hold no result", WITHOUT)
    rows = queries.roster_families(cursor, ROSTER)
    if not rows:
        yield from paragraphs("Not imported: `python -m jobs reference`.")
        return
    ways = sorted({row["access"] for row in rows})
    yield from header(["family", *ways], 1)
    for family in dict.fromkeys(row["family"] for row in rows):
        found = {row["access"]: row for row in rows if row["family"] == family}
        counts = [
            f"{found[way]['sources']}{book.cite([found[way]['build_id']])}" if way in found else ABSENT for way in ways
        ]
        yield line([family, *counts])
    yield line(["**all**", *(str(sum(row["sources"] for row in rows if row["access"] == way)) for way in ways)])
    yield ""


def _by_reader(book: Book, table: Table) -> Iterator[str]:
    """Readers are rows: the paper's first, then ours."""
    columns = _base(table.columns)
    theirs = book.printed(table.place)
    yield from header(["", "", *columns], 1)
    for row in table.rows:
        if any((row.name, column) in theirs for column in table.columns):
            cells = [_paper_cell(book, table, row, column, theirs) for column in columns]
            yield line([row.name, "paper", *cells])
        elif row.published and any(book.number(cell, row.published[0]) for cell in table.columns.values()):
            numbers = (book.number(table.question(row, column), row.published[0]) for column in columns)
            yield line([row.name, "files", *(_shown(book, number, ".000") for number in numbers)])
    forms = {column: next((p.text for (_, c), p in theirs.items() if c == column), ".000") for column in table.columns}
    seen: set[str] = set()
    for row in table.rows:
        if not row.ours or row.ours in seen:
            continue
        seen.add(row.ours)
        found = [(reader, _our_cells(book, table, row, reader["reader"], forms)) for reader in book.measured(row.ours)]
        found = [(reader, cells) for reader, cells in found if any(cell != ABSENT for cell in cells)]
        for reader, cells in found:
            yield line([f"**{reader['name']}**", "measured", *cells])
        if not found:
            name = row.ours.partition("/")[0]
            yield line([name, "not measured", f"`{command_for(table, row.ours)}`", *([""] * (len(columns) - 1))])


def _by_condition(book: Book, table: Table) -> Iterator[str]:
    """Conditions are rows: the paper's number, then ours, column by column."""
    theirs = book.printed(table.place)
    names = list(dict.fromkeys(p.column for p in theirs.values()))
    columns = _base(dict.fromkeys(names))
    patterns = dict.fromkeys(row.ours for row in table.rows if row.ours not in ("", "*"))
    ours = [None] if any(row.ours == "*" for row in table.rows) else []
    proxies = sorted({row["proxy"] for pattern in patterns for row in book.measured(pattern) if row["proxy"]})
    answering: list[str | None] = [*ours, *(proxy for proxy in proxies if _answers(book, table, proxy))]
    heads = [f"{column} {kind}" for column in columns for kind in ("paper", *(a or "ours" for a in answering))]
    yield from header(["", *heads], 1)
    missing = not answering
    for name in dict.fromkeys(row.name for row in table.rows):
        cells = [name]
        for column in columns:
            row = _row_with(table, name, column)
            cells.append(_paper_cell(book, table, row, column, theirs) if row is not None else ABSENT)
            for proxy in answering:
                form = theirs.get((name, column))
                number = _our_number(book, table, row, column, proxy) if row is not None else None
                missing = missing or (number is None and form is not None)
                parts = _qualifiers(book, table, name, column, proxy, theirs)
                shape = form.text if form else ".000"
                cells.append(_shown(book, number, shape, signed=bool(row and row.minus), parts=parts))
        yield line(cells)
    if missing:
        yield ""
        yield f"Not measured here, or not all of it; `{table.command}` makes it."


def _candidates(book: Book, table: Table, cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    theirs = book.printed(table.place)
    mutual = queries.mutual_ranks(cursor, CANDIDATES.values(), ROSTER, "agent500")
    ranks = {(row["reader"], row["source"]): row for row in mutual}
    ours = [row["reader"] for row in book.readers if row["origin"] == "measured"]
    ours = [reader for reader in ours if any(key[0] == reader for key in ranks)]
    yield from header(["", "Top-10 of 4", "Med. rank", *(f"mutual rank, {reader}" for reader in ours)], 1)
    for name, (source, _) in CANDIDATES.items():
        cells = [_paper_cell(book, table, Row(name), column, theirs) for column in ("Top-10", "Med. rank")]
        for reader in ours:
            found = ranks.get((reader, source))
            cells.append(f"{found['rank']}{book.cite([found['build_id']])}" if found else ABSENT)
        yield line([name, *cells])
    if not ours:
        yield ""
        yield f"Not measured; `{table.command}` makes it."


def _row_with(table: Table, name: str, column: str) -> Row | None:
    return next((row for row in table.rows if row.name == name and (not row.only or column in row.only)), None)


def _qualifiers(
    book: Book, table: Table, name: str, column: str, proxy: str | None, theirs: dict[tuple[str, str], Printed]
) -> dict[str, str]:
    """What qualifies one of our numbers, where the paper qualifies its own."""
    parts = {}
    for ending in ENDINGS:
        form, row = theirs.get((name, column + ending)), _row_with(table, name, column + ending)
        found = _our_number(book, table, row, column + ending, proxy) if form and row else None
        if form and found:
            parts[ending] = like(found.value, form.text)
    return parts


def _our_number(book: Book, table: Table, row: Row, column: str, proxy: str | None) -> Number | None:
    cell = table.question(row, column, ours=True)
    if proxy is None or row.ours == "*":
        return book.number(cell, "") if row.ours == "*" else None
    for reader in book.measured(row.ours):
        if reader["proxy"] != proxy:
            continue
        number = book.number(cell, reader["reader"])
        if not row.minus or number is None:
            return number
        base = book.number(cell, row.minus.format(proxy=proxy))
        return Number(100 * (number.value - base.value), number.builds + base.builds) if base is not None else None
    return None


def _answers(book: Book, table: Table, proxy: str) -> bool:
    """Whether one of our proxies answers any question of a table."""
    names = {column for _, column in book.printed(table.place)}
    questions = [(row, name) for row in table.rows for name in names if not row.only or name in row.only]
    return any(_our_number(book, table, row, name, proxy) is not None for row, name in questions)


def _our_cells(book: Book, table: Table, row: Row, reader: str, forms: dict[str, str]) -> list[str]:
    out = []
    for column in _base(table.columns):
        names = {ending: column + ending for ending in ("", *ENDINGS)}
        found = {e: book.number(table.question(row, name, ours=True), reader) for e, name in names.items()}
        number = found.pop("")
        parts = {ending: like(one.value, forms[names[ending]]) for ending, one in found.items() if one is not None}
        out.append(_shown(book, number, forms[column], parts=parts))
    return out


def _paper_cell(book: Book, table: Table, row: Row, column: str, theirs: dict[tuple[str, str], Printed]) -> str:
    number = theirs.get((row.name, column))
    if number is None:
        return ABSENT
    parts = {e: as_printed(theirs[row.name, column + e].text) for e in ENDINGS if (row.name, column + e) in theirs}
    text = as_printed(number.text) + _qualified(parts)
    cell = table.question(row, column)
    builds: list[str] = []
    for reader in filter(None, row.published):
        found = book.number(cell, reader)
        builds += found.builds if found is not None else ()
    imported = book.imported.get(number.key, {})
    value = imported.get("file_value")
    if imported and not builds:
        builds = [imported["build_id"]]
    if value is not None and not number.agrees(value):
        return f"{text} (file {like(value, number.text)}{book.cite(builds)})"
    return text + book.cite(builds)


def command_for(table: Table, ours: str) -> str:
    """What measures a reader of ours, named by its pattern, for a table."""
    method = ours.partition("/")[0]
    if table.command == RELATE:
        return f"{RELATE} --method {'reader' if method == READER_PAPER else method}"
    if table.command == MAP and method != READER_PAPER:
        return f"{MAP} --method {method}"
    if table.command == MAP and ours.endswith("/ur"):
        return f"{MAP},ur"
    if method == READER_PAPER or EVALUATE not in table.command:
        return table.command.replace("attribution,baselines", "attribution")
    stage = "controls" if method in METHODS and METHODS[method].stage == "controls" else "baselines"
    return f"{EVALUATE} {stage}{',stress' if 'stress' in table.command else ''} --method {method}"


def _qualified(parts: Mapping[str, str]) -> str:
    text = f" ± {parts[' std']}" if " std" in parts else ""
    if " low" in parts and " high" in parts:
        text += f" [{parts[' low']}, {parts[' high']}]"
    return text + (f" (p {parts[' p']})" if " p" in parts else "")


def _shown(
    book: Book, number: Number | None, form: str, *, signed: bool = False, parts: Mapping[str, str] | None = None
) -> str:
    if number is None:
        return ABSENT
    text = plain(number.value, 2) if signed else like(number.value, form)
    return ("+" if signed and number.value > 0 else "") + text + _qualified(parts or {}) + book.cite(number.builds)


def _base(columns: Iterable[str]) -> list[str]:
    return [name for name in columns if not name.endswith(ENDINGS)]

"""Tables and sentences of the pages, as ``excerpts.toml`` declares them.

A *question* names a table of the store, a column (by default ``value``) and conditions on other columns. A condition
with several values asks one question for each. Conditions of the file, its entry, a row, a column and a value add up;
the later one wins. Text with ``*`` matches any text of that shape; ``pick`` then takes the largest, smallest or mean.
In a page ``<!-- results: NAME -->`` and ``<!-- /results -->`` stand on lines of their own; several names of sentences
make a paragraph. ``<!-- by hand: REASON -->`` stands before a table whose numbers are in no database.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import statistics
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from backend.errors import AtlasError
from backend.reference.results_readouts import ROSTERS, cost_sections, extraction_table, goal_table, measured_readouts
from backend.reference.results_scale import reading_table, scoring_table
from backend.reference.results_tables import Book, block_section, header, like, line, plain
from backend.store.result_queries import matching_rows

MARKED = re.compile(
    r"^<!-- results: (?P<names>\S[^\n]*) -->\n(?P<body>.*?)^<!-- /results -->$", re.DOTALL | re.MULTILINE
)
MARK = re.compile(r"^<!-- (?:results: .*|/results) -->$", re.MULTILINE)
BY_HAND = "<!-- by hand: "
DECLARED = Path(__file__).with_name("excerpts.toml")
NO_CONDITION = frozenset({"table", "column", "title", "form", "command", "pick", "origin"})
QUERIED = ("reader", "metric", "seed", "fold")
ATTRIBUTION = "attribution_metrics"
WIDTH = 130
FIRM = "\u00a0"  # A space at which no line ends.
Question = dict[str, Any]


class Value(float):
    """A number of the store that formats without a leading zero.

    A format is a count of decimals (3 by default), ``M`` (millions), ``p`` (a p-value), ``+`` (signed) or ends in
    ``%``. Other columns of its row are attributes, and ``file`` is the released file that it comes from.
    """

    row: Mapping[str, Any]

    def __new__(cls, value: float, row: Mapping[str, Any]) -> Value:
        """A value with the row that holds it."""
        number = super().__new__(cls, value)
        number.row = row
        return number

    def __format__(self, form: str) -> str:
        """Format as the pages do."""
        number = float(self)
        if form == "M":
            return like(number, "1e6")
        if form == "p":
            return "< .001" if number < 0.001 else f"= {plain(number)}"
        if form == "+":
            return ("+" if number > 0 else "") + plain(number)
        if form.endswith("%"):
            return f"{format(number, form)[:-1]}{FIRM}%"
        return plain(number, int(form or 3))

    def __getattr__(self, name: str) -> Any:
        """Another column of the row."""
        if name not in self.row:
            raise AttributeError(name)
        found = self.row[name]
        return Value(found, self.row) if isinstance(found, float) else found


PICKS: Mapping[str, Callable[[list[Value]], Value]] = {
    "max": max,
    "min": min,
    "mean": lambda values: Value(statistics.fmean(values), values[0].row),
    "sum": lambda values: Value(sum(values), values[0].row),
}
COMBINED: Mapping[str, Callable[[Value, Value], float]] = {
    "difference": lambda first, second: first - second,
    "ratio": lambda first, second: first / second,
}


class Excerpts:
    """What the pages show of a database, whose ``book`` cites no builds."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, book: Book, declared: Path = DECLARED) -> None:
        self._cursor, self._book, self._path = cursor, book, declared
        entries = tomllib.loads(declared.read_text("utf-8"))
        self._defaults, self._tables = entries["defaults"], entries["tables"]
        self._sentences = entries["sentences"]
        self._read: dict[tuple[str, tuple[tuple[str, object], ...]], list[dict[str, Any]]] = {}
        self._origins = {row["reader"]: row["origin"] for row in book.readers}
        readouts = measured_readouts(book)
        self._sections: dict[str, Callable[[], Iterator[str]]] = {
            "blocks": lambda: block_section(book, cursor),
            "costs": lambda: cost_sections(book),
            "extractions": lambda: extraction_table(cursor),
            "scale-reading": lambda: reading_table(cursor),
            "scale-scoring": lambda: scoring_table(cursor),
            **{f"goals-{roster}": partial(goal_table, book, readouts, roster) for roster in ROSTERS},
        }
        if len(set(self.names())) < len(self.names()):
            raise AtlasError(f"{declared.name} gives one name twice", "Rename a table or a sentence")

    def names(self) -> list[str]:
        """Everything that a mark may name."""
        return [*self._tables, *self._sentences, *self._sections]

    def text(self, names: str) -> str:
        """Generate a table or a section, or a paragraph of sentences. Raises KeyError for a name without an entry."""
        if names in self._sections:
            lines = [text for text in self._sections[names]() if not text.startswith("## ")]
            return "\n".join(lines).strip() or "Not measured: `python -m jobs all`."
        if names in self._tables:
            with self._declared(names):
                return "\n".join(self._table(self._tables[names]))
        entries = {name: self._sentences[name] for name in names.split()}
        sentences = []
        for name, entry in entries.items():
            with self._declared(name):
                sentences.append(self._sentence(entry))
        text = " ".join(sentences).replace(" = ", f"{FIRM}={FIRM}")
        return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False).replace(FIRM, " ")

    @contextlib.contextmanager
    def _declared(self, name: str) -> Iterator[None]:
        """Turn what is wrong in a declaration into a message that names it."""
        try:
            yield
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise AtlasError(
                f"{self._path.name}: {name} cannot be understood ({error})", "Correct its entry"
            ) from error

    def _table(self, entry: Question) -> Iterator[str]:
        columns = entry["columns"]
        base = {"form": "{value}"} | {n: v for n, v in entry.items() if n not in ("columns", "rows")}
        first = base.pop("title", "")
        yield from header([first, *(column["title"] for column in columns)], 1)
        for row in entry["rows"]:
            cells = []
            for column in columns:
                question = self._question(base | row | column)
                found = [self._one(question)] if "pick" in question else self._found(question)
                texts = [_formatted(question["form"], value) for value in found if value is not None]
                shown = " / ".join(texts) if len(texts) == len(found) else None
                cells.append((shown, question))
            yield line([row["title"], *_with_commands(cells)])

    def _sentence(self, entry: Question) -> str:
        base = {n: v for n, v in entry.items() if n not in ("text", "values")}
        values: dict[str, Value] = {}
        for name, question in entry["values"].items():
            complete = self._question(base | question)
            value = self._one(complete)
            if value is None:
                return f"Not measured: `{_command(complete)}`."
            values[name] = value
        return " ".join(str(entry["text"]).split()).format_map(values)

    def _question(self, conditions: Question) -> Question:
        table = conditions.get("table", ATTRIBUTION)
        defaults: Question = self._defaults.get(table, {})
        return {"table": table} | defaults | conditions

    def _one(self, question: Question) -> Value | None:
        """The single value of a question, or of two that are combined."""
        for name, combine in COMBINED.items():
            if name in question:
                rest = {key: value for key, value in question.items() if key != name}
                first, second = (self._one(rest | side) for side in question[name])
                return None if first is None or second is None else Value(combine(first, second), first.row)
        found = self._found(question)
        if "pick" in question:
            values = [value for value in found if value is not None]
            return PICKS[question["pick"]](values) if values else None
        if len(found) != 1:
            raise ValueError(f"{len(found)} values, and no pick")
        return found[0]

    def _found(self, question: Question) -> list[Value | None]:
        """Values of a question, None where nothing is stored."""
        table, column, origin = question["table"], question.get("column", "value"), question.get("origin")
        where = {name: value for name, value in question.items() if name not in NO_CONDITION}
        found: list[Value | None] = []
        lists = {name: value for name, value in where.items() if isinstance(value, list)}
        for chosen in itertools.product(*lists.values()):
            one = where | dict(zip(lists, chosen, strict=True))
            one = {name: None if value == "" else value for name, value in one.items()}
            rows = [row for row in self._rows(table, one) if row[column] is not None]
            rows = [row for row in rows if origin in (None, self._origins.get(row.get("reader", "")))]
            found += [Value(row[column], row | {"file": self._file(row)}) for row in rows] or [None]
        return found

    def _rows(self, table: str, where: Mapping[str, object]) -> list[dict[str, Any]]:
        """Rows of a table; what differs between neighbouring cells is chosen here, since a query costs milliseconds."""
        first = tuple((name, value) for name, value in where.items() if name in QUERIED)
        if (table, first) not in self._read:
            self._read[table, first] = matching_rows(self._cursor, table, dict(first))
        rest = {name: value for name, value in where.items() if name not in QUERIED}
        return [row for row in self._read[table, first] if all(row[name] == value for name, value in rest.items())]

    def _file(self, row: Mapping[str, Any]) -> str:
        return str(self._book.builds.get(row["build_id"], {}).get("source_file") or "")


def _formatted(form: str, value: Value) -> str:
    row = {name: Value(other, value.row) if isinstance(other, float) else other for name, other in value.row.items()}
    return form.format_map(row | {"value": value})


def _with_commands(cells: list[tuple[str | None, Question]]) -> Iterator[str]:
    """Cells of a row; the first that is missing names the command that makes it."""
    commands: set[str] = set()
    for shown, question in cells:
        if shown is not None:
            yield shown
            continue
        command = _command(question)
        yield "not measured" if command in commands else f"not measured: `{command}`"
        commands.add(command)


def _command(question: Question) -> str:
    """Command of an entry, its ``{condition}`` filled in."""
    first = {name: value[0] if isinstance(value, list) else value for name, value in question.items()}
    return re.sub(r"\{(\w+)\}", lambda found: str(first[found[1]]), question["command"])


def fill(page: Path, text: str, generate: Callable[[str], str]) -> str:
    """Replace what stands between the marks of a page by what ``generate`` makes of their names.

    Raises AtlasError if a mark names nothing, is not closed or was never opened.
    """
    remains = MARKED.sub(lambda found: "\n" * found[0].count("\n"), text)
    if stray := MARK.search(remains):
        raise AtlasError(
            f"{page}, line {_line(remains, stray.start())}: {stray[0]} has no counterpart",
            "Put <!-- results: NAME --> before the text and <!-- /results --> after it, each on a line of its own",
        )

    def filled(found: re.Match[str]) -> str:
        try:
            body = generate(found["names"])
        except KeyError as error:
            raise AtlasError(
                f"{page}, line {_line(text, found.start())}: nothing is called {error}",
                "Declare it in backend/reference/excerpts.toml, or remove the mark",
            ) from None
        return f"<!-- results: {found['names']} -->\n{body}\n<!-- /results -->"

    return MARKED.sub(filled, text)


def changed_marks(before: str, after: str) -> list[str]:
    """Names whose text differs between two states of a page."""
    pairs = zip(MARKED.finditer(before), MARKED.finditer(after), strict=True)
    return [old["names"] for old, new in pairs if old["body"] != new["body"]]


def unmarked_tables(text: str) -> Iterator[tuple[int, str]]:
    """Line and header of every table with decimals outside marks that no reason stands before."""
    lines = MARKED.sub(lambda found: "\n" * found[0].count("\n"), text).splitlines()
    tabular = [row.lstrip().startswith("|") for row in lines]
    for number, row in enumerate(lines):
        if not tabular[number] or (number and tabular[number - 1]):
            continue
        end = next((i for i in range(number, len(lines)) if not tabular[i]), len(lines))
        above = next((text for text in reversed(lines[:number]) if text.strip()), "")
        decimals = any(re.search(r"(?<![\w.])\d*\.\d", cell) for cell in lines[number:end])
        if decimals and not above.lstrip().startswith(BY_HAND):
            yield number + 1, row.lstrip()


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1

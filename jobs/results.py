"""Write every table of the paper with our numbers beside the published ones, each with the build that made it.

The report is a function of the database alone: the same work database, or generation, gives the same file.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

import duckdb

from backend.errors import AtlasError
from backend.reference.tables import TABLES
from backend.store.database import read_pointer
from backend.store.result_queries import open_reading, summary_rows
from jobs import _common
from jobs._results.audit import audit_sections
from jobs._results.blocks import block_section
from jobs._results.book import Book
from jobs._results.comparisons import comparisons
from jobs._results.costs import cost_sections
from jobs._results.findings import findings
from jobs._results.readouts import readout_sections
from jobs._results.tables import sections
from jobs._results.without import without_results
from jobs._stages import STAGES

INTRODUCTION = """# Results

Written by `python -m jobs results` from the database; not by hand. Rows and columns marked *paper* are printed there;
where the released files hold another number it follows in brackets. **Measured** rows were computed here. Superscripts
name the builds at the end: what was run, on which code and data, or which released file a number comes from. Retained
and difference columns cite both of their parts. Accuracies and shares are between 0 and 1.

What did not agree, between the paper, its files and here, is at the end: [Where they disagree](#where-they-disagree).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--to", type=Path, default=Path("docs/results.md"), metavar="FILE", help="file to write")
    parser.add_argument(
        "--data", type=Path, default=None, metavar="FOLDER", help="read the published generation of this data folder"
    )
    _common.add_work(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the database and write the report in one step."""
    if arguments.data is not None and arguments.work is not None:
        raise AtlasError("--data and --work name two databases", "Give one of them")
    path = _common.work_path(arguments) if arguments.data is None else read_pointer(arguments.data)[1]
    with contextlib.closing(open_reading(path)) as cursor:
        text = "\n".join(report(cursor)).rstrip() + "\n"
    target: Path = arguments.to
    scratch = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(text, "utf-8")
        scratch.replace(target)
    except OSError as error:
        raise AtlasError(
            f"{target} cannot be written ({error.strerror})", "Give a file with --to that you may write"
        ) from error
    print(f"{target}: {text.count(chr(10))} lines, {text.count('<sup>')} numbers with their builds")
    return 0


def report(cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Lines of the report."""
    book = Book.read(cursor)
    yield INTRODUCTION
    yield from sections(book, TABLES, cursor)
    yield from block_section(book, cursor)
    yield from readout_sections(book, wanted="readouts" in STAGES)
    yield from cost_sections(book)
    yield from comparisons(book, summary_rows(cursor, "comparisons"))
    yield from audit_sections(book, summary_rows(cursor, "audit_validation"))
    yield from findings(book)
    yield from without_results(book, cursor)
    yield from _builds(book)


def _builds(book: Book) -> Iterator[str]:
    yield "## Builds"
    yield ""
    yield "| | build | origin | command | code | data | proxy | date (UTC) |"
    yield "| ---: | --- | --- | --- | --- | --- | --- | --- |"
    for build_id, number in book.cited.items():
        build = book.builds.get(build_id, {})
        origin = f"published, `{build.get('source_file')}`" if build.get("origin") == "published" else "measured"
        hashes = [
            f"`{str(build.get(name) or '')[:12]}`" if build.get(name) else "" for name in ("data_hash", "proxy_hash")
        ]
        made = f"{build['started_at']:%Y-%m-%d %H:%M}" if build else "not recorded"
        command, code = f"`{build.get('command', '')}`", f"`{build.get('code_version', '')}`"
        yield f"| {number} | `{build_id}` | {origin} | {command} | {code} | {' | '.join(hashes)} | {made} |"

"""Write every table of the paper with our numbers next to the published ones, and the numbers of every page.

The report, and the text between the marks of a page, depend on the database alone.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb

from backend import output_files
from backend.errors import AtlasError
from backend.reference.paper import TABLES
from backend.reference.results_excerpts import MARKED, Excerpts, changed_marks, fill
from backend.reference.results_findings import audit_sections, comparisons, findings
from backend.reference.results_readouts import cost_sections, readout_sections
from backend.reference.results_tables import Book, Uncited, block_section, sections, without_results
from backend.store.database import default_data_folder, read_pointer
from backend.store.result_queries import open_reading, summary_rows

INTRODUCTION = """# Results

Written by `python -m jobs results` from the database; not by hand. Rows and columns marked *paper* are printed there;
where the released files hold another number it follows in brackets. **Measured** rows were computed here. Superscripts
name the builds at the end: what was run, on which code and data, or which released file a number comes from. Retained
and difference columns cite both of their parts. Accuracies and shares are between 0 and 1.

What did not agree, between the paper, its files and here, is at the end: [Where they disagree](#where-they-disagree).
"""
REPORT = Path("docs/results.md")


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    text = f"write the report there, and no page (default: {REPORT}, and the marks of README.md, docs/*.md)"
    parser.add_argument("--to", type=Path, metavar="FILE", help=text)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name what differs")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="generation (default: ATLAS_DATA or data)")
    parser.add_argument("--work", type=Path, metavar="FILE", help="a work database in its place")


def run(arguments: argparse.Namespace) -> int:
    """Read the database, then write the report and the pages, or compare them."""
    if arguments.data is not None and arguments.work is not None:
        raise AtlasError("--data and --work name two databases", "Give one of them")
    path = arguments.work or read_pointer(arguments.data or default_data_folder())[1]
    target: Path = arguments.to or REPORT
    with contextlib.closing(open_reading(path)) as cursor:
        texts = all_texts(cursor) if arguments.to is None else {target: _report_text(cursor)}
    if arguments.check:
        different = list(differences(texts))
        print("\n".join(different) or f"{len(texts)} files agree with {path.name}")
        return 1 if different else 0
    for file, text in texts.items():
        output_files.write(file, text)
    text = texts[target]
    print(f"{target}: {text.count(chr(10))} lines, {text.count('<sup>')} numbers with their builds")
    return 0


def all_texts(cursor: duckdb.DuckDBPyConnection) -> dict[Path, str]:
    """Report, and pages with their marks filled, by file below the current folder."""
    excerpts = Excerpts(cursor, Uncited.read(cursor))
    pages = [Path("README.md"), *sorted(REPORT.parent.glob("*.md"))]
    read = {page: page.read_text("utf-8") for page in pages if page != REPORT and page.exists()}
    return {REPORT: _report_text(cursor)} | {page: fill(page, text, excerpts.text) for page, text in read.items()}


def differences(texts: Mapping[Path, str]) -> Iterator[str]:
    """One line for every table or section of ``texts``, as the database has them, that a file has otherwise."""
    for file, text in texts.items():
        before = file.read_text("utf-8") if file.exists() else ""
        if before == text:
            continue
        if MARKED.search(text):
            yield from (f"{file}: {name} differs" for name in changed_marks(before, text))
            continue
        old, new = (dict(part.partition("\n")[::2] for part in content.split("\n## ")) for content in (before, text))
        yield from (f"{file}: section {name!r} differs" for name in new | old if new.get(name) != old.get(name))


def _report_text(cursor: duckdb.DuckDBPyConnection) -> str:
    return "\n".join(report(cursor)).rstrip() + "\n"


def report(cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Lines of the report."""
    book = Book.read(cursor)
    yield INTRODUCTION
    yield from sections(book, TABLES, cursor)
    yield from block_section(book, cursor)
    yield from readout_sections(book)
    yield from cost_sections(book)
    yield from comparisons(book, summary_rows(cursor, "comparisons"))
    yield from audit_sections(book, summary_rows(cursor, "audit_validation"))
    yield from findings(book)
    yield from without_results(book, cursor)
    yield from _builds(book)


def _builds(book: Book) -> Iterator[str]:
    yield from ("## Builds", "", "| | build | origin | command | code | data | proxy | date (UTC) |")
    yield "| ---: | --- | --- | --- | --- | --- | --- | --- |"
    for build_id, number in book.cited.items():
        build = book.builds.get(build_id, {})
        origin = f"published, `{build.get('source_file')}`" if build.get("origin") == "published" else "measured"
        hashes = [f"`{build[name][:12]}`" if build.get(name) else "" for name in ("data_hash", "proxy_hash")]
        date = f"{build['started_at']:%Y-%m-%d %H:%M}" if build else "not recorded"
        command, code = f"`{build.get('command', '')}`", f"`{build.get('code_version', '')}`"
        yield f"| {number} | `{build_id}` | {origin} | {command} | {code} | {' | '.join(hashes)} | {date} |"

"""Preview traces: what a file is, which columns were recognised, and every place of it that gives no trace.

TRACES is a file as python -m jobs attribute reads it; nothing is scored, and no proxy is loaded. --json FILE writes
what the page shows and POST /api/preview answers, with the beginnings of the first 20 traces.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from backend import output_files
from backend.intake import COMMAND_LINE, Preview, preview
from backend.intake.encoding import opened
from backend.intake.traces import short
from jobs.trace_options import NOTHING_SAVED, add_columns, columns_of, describe, say

STOPPED = NOTHING_SAVED
FIRST = 5  # Traces of which a line is printed.
WIDTH = 60  # Characters of a prompt or a response in it.


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("traces", type=Path, metavar="TRACES")
    add_columns(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all of it")


def run(arguments: argparse.Namespace) -> None:
    """Look, print what is there and write it. Raises AtlasError if the file cannot be read, or holds no trace."""
    written = [arguments.json] if arguments.json else []
    output_files.spare(written, [arguments.traces])
    output_files.writable(written)
    with opened(arguments.traces) as stream:
        found = preview(stream, arguments.traces.name, columns_of(arguments), COMMAND_LINE, arguments.encoding)
    claim = None
    if found.models:
        from backend.enrolment import claims  # imports the store, which a file without models does not need

        sources = claims.published_sources()
        found = claims.with_claims(found, sources)
        claim = claims.sentence(found, (source for some in sources for source in some))
    describe(found)
    for line in _lines(found):
        say(line)
    if claim:
        say(claim)
    for path in written:
        output_files.write(path, json.dumps(asdict(found), indent=1, ensure_ascii=True) + "\n")
        say(f"Written: {path}.")


def _lines(found: Preview) -> Iterator[str]:
    """What the page shows, in lines."""
    if found.fields:
        yield f"  columns: {', '.join(found.fields)}"
    counts = (("trace", found.traces), (f"bad {found.unit}", len(found.problems)), ("duplicate", len(found.duplicates)))
    yield ", ".join(f"{many:,} {what}{'s' if many != 1 else ''}" for what, many in counts)
    yield from found.notes
    for problem in found.problems:
        column = f", {problem['column']}" if problem["column"] else ""
        yield f"  {found.unit} {problem['place']:,}{column}: {problem['reason']}"
    for again in found.duplicates:
        yield f"  {found.unit} {again['place']:,}: repeats {found.unit} {again['first']:,}"
    if found.labels:
        yield f"The file names as sources: {', '.join(found.labels)}"
    yield f"The first of {found.traces:,} traces:" if found.traces > FIRST else "Its traces:"
    for row in found.rows[:FIRST]:
        prompt, response = (short(" ".join(row[role].split()), WIDTH) for role in ("prompt", "response"))
        yield f"  {found.unit} {row['place']:,}: {prompt} → {response}"

"""Test for drift: has an endpoint changed between two windows of its traces?

BEFORE and AFTER are files as python -m jobs attribute reads them, best with the same prompts: the test cannot tell
another model from other questions. One file alone is split into its first and its second half, in the order of arrival.
No enrolled source is asked for; an enrolment says by which proxy, and at which of its blocks, traces are read.
Ctrl-C compares what was read of both windows, where it is enough. --json FILE holds the hashes of files, traces and
enrolment, the seed and the settings, and no text.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from backend import output_files as _files
from backend.attribution.drift_report import Window, drift_answer, enough_read, long_enough, prompts_of
from backend.attribution.run import audit, counted, selection_of
from backend.attribution.scoring import Attributor, Models, Progress
from backend.attribution.settings import Settings, of_windows
from backend.enrolment.catalogue import find_enrolment, offer
from backend.enrolment.files import enrolments
from backend.inference.drift import named
from backend.intake import COMMAND_LINE, Layout, inspect
from backend.intake.encoding import opened
from backend.store.builds import command_line, portable
from jobs.trace_options import (
    ENROLMENT,
    NOTHING_KEPT,
    add,
    add_columns,
    columns_of,
    describe,
    excluded,
    plain_errors,
    say,
    stop_on_interrupt,
)

STOPPED = NOTHING_KEPT
COMPARED = "what was read of both windows is compared where it is enough"


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("before", type=Path, metavar="BEFORE", help="traces of the earlier window, or of both")
    parser.add_argument(
        "after", type=Path, nargs="?", metavar="AFTER", help="traces of the later window (default: half of BEFORE)"
    )
    default = "that of most sources, then the most accurate"
    parser.add_argument("--enrolment", metavar="NAME", help=ENROLMENT.format(default))
    add_columns(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the answer")
    add(parser, "device")


@plain_errors()
def run(arguments: argparse.Namespace) -> int:
    """Compare, print the answer and write it. Raises AtlasError if a file or what is asked of it makes no sense."""
    files = [arguments.before, *([arguments.after] if arguments.after else [])]
    written = [arguments.json] if arguments.json else []
    enrolled = [Path(arguments.enrolment)] if arguments.enrolment else []
    _files.spare(written, [*files, *enrolled, *enrolments().values()])
    _files.writable(written)
    enrolment = find_enrolment(arguments.enrolment)
    settings = of_windows(enrolment.name, columns_of(arguments), arguments.encoding)
    with ExitStack() as stack:
        streams = [stack.enter_context(opened(path)) for path in files]
        layouts = [
            inspect(stream, path.name, settings.columns, COMMAND_LINE, settings.encoding)
            for stream, path in zip(streams, files, strict=True)
        ]
        totals = []
        for stream, layout in zip(streams, layouts, strict=True):
            describe(layout)
            totals.append(counted(stream, layout, selection_of(settings, COMMAND_LINE), COMMAND_LINE))
        long_enough(totals, [path.name for path in files])
        say(f"  read at block {enrolment.place} of {enrolment.proxy}, as {enrolment.name} has it")
        if arguments.enrolment is None and (offered := offer(enrolment)):
            say(f"  {offered}")
        attributor = Models.on(arguments.device).attributor(enrolment)
        read: list[Window] = []
        with stop_on_interrupt(COMPARED) as stopped:
            for stream, layout, total in zip(streams, layouts, totals, strict=True):
                if not stopped():
                    read.append(_read(stream, layout, attributor, settings, total, stopped))
    if stopped():
        enough_read([*(window.read for window in read), *((0, total) for total in totals[len(read) :])])
    told = drift_answer(read, enrolment, settings, portable(command_line()))
    _answer(told, read)
    for path in written:
        _files.write(path, json.dumps(told, indent=1, ensure_ascii=True, allow_nan=False) + "\n")
        say(f"Written: {path}.")
    return 0


def _read(
    stream: BinaryIO,
    layout: Layout,
    attributor: Attributor,
    settings: Settings,
    total: int,
    stopped: Callable[[], bool],
) -> Window:
    def progress(step: Progress) -> None:
        print(f"  {step.done:,} of {total:,} traces, {step.seconds:.1f} s", file=sys.stderr, flush=True)

    found = audit(
        stream, layout, attributor, settings, progress=progress, cancelled=stopped, total=total, keep_fingerprints=True
    )
    assert found.scored.fingerprints is not None
    prompts = prompts_of(stream, layout, COMMAND_LINE, found.report["traces"])
    return Window(found.report, found.scored.fingerprints, prompts, total)


def _answer(told: dict[str, Any], read: list[Window]) -> None:
    first, second = (named(window) for window in told["windows"])
    print()
    say(f"{first} against {second}")
    say(f"{told['verdict']}: {told['sentence']}")
    print(
        f"  energy distance {told['statistic']:.3g}, p = {told['p_value']:.3g}, {told['permutations']:,} permutations, "
        f"seed {told['seed']}"
    )
    say(told["expected"])
    for note in told["notes"]:
        say(note)
    for window in read:
        excluded(window.report["input"], window.report["exclusions"], "the answer")
        for note in window.report["input"]["notes"]:
            say(note)

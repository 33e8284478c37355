"""Test for drift: has an endpoint changed between two windows of its traces?

BEFORE and AFTER are files as python -m jobs attribute reads them, best with the same prompts: the test cannot tell
another model from other questions. One file alone is split into its first and its second half, in the order of arrival.
No enrolled source is in question; an enrolment names the proxy and the block that read the traces.
Ctrl-C compares what was read of both windows, where it is enough. Columns and encodings are given once, or once a file;
auto is as recognised. --json FILE holds the hashes of files, traces and enrolment, the seed and the settings, and no
text.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from backend import output_files
from backend.attribution.drift_report import SAME_RESPONSES, Window, drift_answer, enough_read, long_enough
from backend.attribution.run import read_window
from backend.attribution.scoring import Attributor, Models, Progress, Selection
from backend.attribution.settings import Settings, of_windows
from backend.enrolment.catalogue import find_enrolment, offer
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments
from backend.inference.drift import named
from backend.intake import COMMAND_LINE, Columns, Layout, inspect
from backend.intake.encoding import opened
from backend.store.builds import command_line, portable
from jobs import trace_options as options
from jobs.trace_options import say

STOPPED = options.NOTHING_SAVED


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("before", type=Path, metavar="BEFORE", help="traces of the earlier window, or of both")
    parser.add_argument("after", type=Path, nargs="?", metavar="AFTER", help="later window (default: half of BEFORE)")
    add_windows(parser)


def run(arguments: argparse.Namespace) -> None:
    """Compare, print the answer and write it. Raises AtlasError if a file or an option makes no sense."""
    files = [arguments.before, *([arguments.after] if arguments.after else [])]
    with opened_windows(arguments, files) as (enrolment, windows):
        long_enough([total for *_, total in windows], [path.name for path in files])
        attributor = attributor_of(arguments, enrolment)
        read: list[Window] = []
        then = "what was read of both windows is compared where it is enough"
        with options.stop_on_interrupt(then) as stopped:
            for stream, layout, settings, total in windows:
                if stopped():
                    break
                read.append(window_of(stream, layout, attributor, settings, total, stopped))
    if stopped():
        enough_read([*(window.read for window in read), *((0, total) for *_, total in windows[len(read) :])])
    answer = drift_answer(read, enrolment, windows[0][2], portable(command_line()))
    _print(answer, read)
    write_answer(arguments, answer)


def add_windows(parser: argparse.ArgumentParser) -> None:
    """Options of verbs that compare files."""
    text = options.ENROLMENT.format("that of most sources, then the most accurate")
    parser.add_argument("--enrolment", metavar="NAME", help=text)
    options.add_columns(parser, of_each=True)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the answer")
    options.add(parser, "device")


@contextmanager
def opened_windows(
    arguments: argparse.Namespace, files: Sequence[Path]
) -> Iterator[tuple[Enrolment, list[tuple[BinaryIO, Layout, Settings, int]]]]:
    """The enrolment, and of each file its stream, its layout, how it is read and how many traces it has."""
    written = [arguments.json] if arguments.json else []
    enrolled = [Path(arguments.enrolment)] if arguments.enrolment else []
    output_files.spare(written, [*files, *enrolled, *enrolments().values()])
    output_files.writable(written)
    enrolment = find_enrolment(arguments.enrolment)
    roles = {role: options.values_of_files(arguments, f"{role}_column", len(files)) for role in options.ROLES}
    encodings, windows = options.values_of_files(arguments, "encoding", len(files)), []
    each = [
        of_windows(enrolment.name, Columns(**{role: values[at] for role, values in roles.items()}), encodings[at])
        for at in range(len(files))
    ]
    with ExitStack() as stack:
        streams = [stack.enter_context(opened(path)) for path in files]
        layouts = [
            inspect(stream, path.name, settings.columns, COMMAND_LINE, settings.encoding)
            for stream, path, settings in zip(streams, files, each, strict=True)
        ]
        if len(files) > 1 and each[0] == each[1] and filecmp.cmp(files[0], files[1], shallow=False):
            say(SAME_RESPONSES)
        for stream, layout, settings in zip(streams, layouts, each, strict=True):
            options.describe(layout)
            total = Selection.of(settings, COMMAND_LINE).count(stream, layout, COMMAND_LINE)
            windows.append((stream, layout, settings, total))
        yield enrolment, windows


def attributor_of(arguments: argparse.Namespace, enrolment: Enrolment) -> Attributor:
    """What reads the files; says so."""
    say(f"  read at block {enrolment.place} of {enrolment.proxy}, as {enrolment.name} has it")
    if arguments.enrolment is None and (offered := offer(enrolment)):
        say(f"  {offered}")
    return Models.on(arguments.device).attributor(enrolment)


def write_answer(arguments: argparse.Namespace, answer: Mapping[str, Any]) -> None:
    """Write the answer where a file is named."""
    if arguments.json:
        text = json.dumps(answer, indent=1, ensure_ascii=True, allow_nan=False)
        output_files.write(arguments.json, text + "\n")
        say(f"Written: {arguments.json}.")


def window_of(
    stream: BinaryIO,
    layout: Layout,
    attributor: Attributor,
    settings: Settings,
    total: int,
    stopped: Callable[[], bool],
) -> Window:
    """Read the traces of a file as a window, and say how far that is."""
    progress = partial(_progress, total)
    return read_window(stream, layout, attributor, settings, total=total, progress=progress, cancelled=stopped)


def _progress(total: int, step: Progress) -> None:
    print(f"  {step.done:,} of {total:,} traces, {step.seconds:.1f} s", file=sys.stderr, flush=True)


def _print(answer: dict[str, Any], read: list[Window]) -> None:
    first, second = (named(window) for window in answer["windows"])
    print()
    say(f"{first} against {second}")
    say(f"{answer['verdict']}: {answer['sentence']}")
    print(
        f"  energy distance {answer['statistic']:.3g}, p = {answer['p_value']:.3g}, "
        f"{answer['permutations']:,} permutations, seed {answer['seed']}"
    )
    say(answer["next_step"])
    say(answer["expected"])
    for note in answer["notes"]:
        say(note)
    for window in read:
        options.excluded(window.report["input"], window.report["exclusions"], "the answer")
        for note in window.report["input"]["notes"]:
            say(note)

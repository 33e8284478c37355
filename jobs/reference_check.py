"""Compare traces with the claimed source's own answers to the same prompts.

TRACES and the file of --reference are read as python -m jobs attribute reads them. The reference is asked for the
prompts of the traces with python -m jobs collect --prompts TRACES. Answers to the same prompt are swapped, so that
nothing of the prompts counts. --rival names answers of other sources to these prompts, which may be nearer. The
source needs no enrolment; an enrolment names the proxy that reads, and says what a test of this size sees. Columns and
encodings are given once for all files, or once a file: of TRACES, the reference and the rivals; auto is as recognised.
Exit status: 0 for SUPPORTS, 1 for AGAINST, 3 for INCONCLUSIVE.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.attribution.drift_report import Window
from backend.attribution.reference_check import AGAINST, SUPPORTS, odds_of, reference_answer
from backend.errors import StoppedError
from backend.store.builds import command_line, portable
from jobs import trace_options as options
from jobs.drift import add_windows, attributor_of, opened_windows, window_of, write_answer
from jobs.trace_options import say

STOPPED = options.NOTHING_SAVED
STATUS = {SUPPORTS: 0, AGAINST: 1}
UNDECIDED = 3  # 2 is that of an error


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("traces", type=Path, metavar="TRACES", help="traces of the endpoint in question")
    parser.add_argument("--reference", type=Path, required=True, metavar="FILE", help="answers of the claimed source")
    text = "answers of another source to the same prompts; may be given several times"
    parser.add_argument("--rival", type=Path, action="append", default=[], metavar="FILE", help=text)
    parser.add_argument("--claim", metavar="NAME", help="name of the claimed source, for the answer")
    add_windows(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, print the answer and write it; the exit status says which it is."""
    files = [arguments.traces, arguments.reference, *arguments.rival]
    read: list[Window] = []
    with opened_windows(arguments, files) as (enrolment, windows):
        attributor = attributor_of(arguments, enrolment)
        with options.stop_on_interrupt("nothing is compared, since answers to a prompt belong together") as stopped:
            for stream, layout, settings, total in windows:
                read.append(window_of(stream, layout, attributor, settings, total, stopped))
                if stopped():
                    raise StoppedError("The comparison was stopped", "Start it again; all files are read whole")
    claimed, reference, *rivals = read
    settings = replace(windows[0][2], question=arguments.claim)
    answer = reference_answer(claimed, reference, rivals, enrolment, settings, portable(command_line()))
    _print(answer)
    write_answer(arguments, answer)
    return STATUS.get(answer["verdict"], UNDECIDED)


def _print(answer: dict[str, Any]) -> None:
    print()
    say(f"{answer['verdict']}: {answer['sentence']}")
    for told in odds_of(answer):
        say("  {}: {}; {}".format(*told))
    print(f"  energy distance {answer['statistic']:.3g}, {answer['permutations']:,} swaps, seed {answer['seed']}")
    for sentence in (*(rival["sentence"] for rival in answer["rivals"]), answer["expected"], answer["next_step"]):
        say(sentence)
    for note in answer["notes"]:
        say(note)

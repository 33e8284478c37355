"""Write down what published enrolments say of held-out groups of the release, a group at a time.

The groups are those of the evaluation at one budget and its first grouping seed. For each the source that the heads
attribute it to goes to held-out/ of the data folder, with its score and its lead: what a running installation says of
twenty traces can then be held against the evaluation of these very traces (benchmarks/cases.py). Needs the stored
fingerprints of the roster, and heads that read them.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from backend.corpus.release import Release
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments, load_enrolment
from backend.enrolment.held_out_answers import BUDGET, Answers, answers_file, answers_of, reads_stored, save_answers
from backend.errors import AtlasError
from backend.store.database import Generation, default_data_folder
from backend.store.result_queries import seed_accuracy
from jobs import options


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("--enrolment", metavar="NAMES", help="comma separated (default: all that read whole rosters)")
    parser.add_argument("--k", type=int, default=BUDGET, help="traces a group (default: %(default)s)")
    options.add(parser, "to", "release")


def run(arguments: argparse.Namespace) -> int:
    """Write the answers of every enrolment that was named."""
    data, release = arguments.to or default_data_folder(), options.release_of(arguments)
    known = {name: load_enrolment(path) for name, path in enrolments(data).items()}
    fitting = [name for name, one in known.items() if reads_stored(one)]
    names = options.parts(arguments.enrolment) if arguments.enrolment else fitting
    unknown = [name for name in names if name not in fitting]
    if unknown or not names:
        raise AtlasError(
            f"'{', '.join(unknown)}' is no published enrolment of a roster whose heads read stored fingerprints",
            f"Choose from {', '.join(fitting)}" if fitting else "Run: python -m jobs enroll --roster 100-way",
        )
    for name in names:
        keep_answers(known[name], release, data, arguments.k)
    return 0


def keep_answers(enrolment: Enrolment, release: Release, data: Path, k: int = BUDGET) -> None:
    """Write what an enrolment of a roster answers about held-out groups, and print how the table compares."""
    answers, path = answers_of(enrolment, release, k), answers_file(enrolment.name, data)
    save_answers(answers, path)
    print(f"Written: {path.name}, {len(answers.truth):,} held-out groups of {k}, {path.stat().st_size / 1e3:.0f} kB")
    print(f"  {_beside_the_table(answers, data)}")


def _beside_the_table(answers: Answers, data: Path) -> str:
    """How many groups are attributed to their own source, here and in the evaluation table of the generation."""
    found = None
    with contextlib.suppress(AtlasError), Generation.open(data).cursor() as cursor:
        found = seed_accuracy(cursor, answers.facts["reader"], answers.facts["roster"], answers.k, answers.seed)
    table = (
        f"the table states {found[0]:.4f}, {found[0] * found[1]:,.0f} of {found[1]:,}" if found else "no table is here"
    )
    return f"{answers.right:,} are attributed to their own source, {answers.right / len(answers.truth):.4f}; {table}"

"""Write the answers of published enrolments to held-out groups of the release.

The groups are those of the evaluation at one budget and its first grouping seed. The source that the heads attribute
each to goes to held-out/ of the data folder, with its score and its lead, so that answers of a running installation can
be compared with the evaluation of the same traces (benchmarks/cases.py). Needs the stored fingerprints of the roster,
and heads that read them.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from backend.corpus.release import Release
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments, load_enrolment
from backend.enrolment.held_out_answers import BUDGET, answers_file, answers_of, reads_stored, save_answers
from backend.errors import AtlasError
from backend.store.database import Generation
from backend.store.result_queries import seed_accuracy
from jobs import options


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("--enrolment", metavar="NAMES", help="comma separated (default: all that read whole rosters)")
    parser.add_argument("--k", type=int, default=BUDGET, help="traces a group (default: %(default)s)")
    options.add(parser, "to", "release")


def run(arguments: argparse.Namespace) -> None:
    """Write the answers of every enrolment that was named."""
    data, release = options.data_of(arguments), options.release_of(arguments)
    known = {name: load_enrolment(path) for name, path in enrolments(data).items()}
    fitting = [name for name, one in known.items() if reads_stored(one)]
    what = "published enrolment of a roster whose heads read stored fingerprints"
    if not fitting:
        raise AtlasError(f"There is no {what}", "Run: python -m jobs enroll --roster 100-way")
    for name in options.named(arguments.enrolment or ",".join(fitting), fitting, f"'{{}}' is no {what}"):
        write_answers(known[name], release, data, arguments.k)


def write_answers(enrolment: Enrolment, release: Release, data: Path, k: int = BUDGET) -> None:
    """Write an enrolment's answers to held-out groups, and compare them with the evaluation table."""
    answers, path = answers_of(enrolment, release, k), answers_file(enrolment.name, data)
    save_answers(answers, path)
    print(f"Written: {path.name}, {len(answers.truth):,} held-out groups of {k}, {path.stat().st_size / 1e3:.0f} kB")
    found = None
    with contextlib.suppress(AtlasError), Generation.open(data).cursor() as cursor:
        found = seed_accuracy(cursor, answers.facts["reader"], answers.facts["roster"], answers.k, answers.seed)
    right = f"{answers.right:,} are attributed to their own source, {answers.right / len(answers.truth):.4f}"
    table = f"the table states {found[0]:.4f}, {found[0] * found[1]:,.0f} of {found[1]:,}" if found else None
    print(f"  {right}; {table or 'no table is here'}")

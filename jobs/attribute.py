"""Attribute traces: weigh whether responses come from a claimed source, another enrolled one, or none.

TRACES is JSONL, CSV, Parquet, a chat-completions log or plain text, also inside gzip; it is read a line at a time.
--report out.html writes out.html, out.json and out.csv; python -m jobs verify out.json --traces TRACES computes the
report again. No text is written without --keep-text.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from backend import output_files
from backend.attribution.background import background_sentences, opened_background
from backend.attribution.report import choice_sentences, with_confusions, write_csv, write_json
from backend.attribution.report_page import write_html
from backend.attribution.report_words import (
    answer_line,
    confusion_words,
    only_validated,
    reservation,
    steps_of,
    verdict_words,
)
from backend.attribution.run import audit, checked, others_of
from backend.attribution.scoring import Models, Progress
from backend.attribution.settings import STOP_LEVEL, Report, Settings, entries_of
from backend.enrolment.catalogue import candidate_numbers, find_enrolment, offer
from backend.enrolment.claims import claims_of, suggestion
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments, load_enrolment
from backend.errors import AtlasError
from backend.inference import Ints
from backend.inference.likelihood_ratios import ORDERS, SEED
from backend.intake import COMMAND_LINE, inspect
from backend.intake.encoding import opened
from backend.intake.traces import visible
from backend.store.builds import command_line, portable
from backend.store.database import default_data_folder
from jobs import trace_options as options
from jobs.trace_options import say

STOPPED = options.NOTHING_SAVED
NAMED = ("claimed", "prior_statement", "case", "question", "encoding", "keep_duplicates", "against", "orders", "seed")
"""Options that are fields of :class:`Settings` under the same name."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("traces", type=Path, nargs="?", metavar="TRACES")
    parser.add_argument("--claimed", metavar="LABEL", help="source that the traces are claimed to come from")
    text = "sources in question, comma separated (with a comma in quotes), or family:NAME (default: all enrolled)"
    parser.add_argument("--candidates", metavar="LABELS", help=text)
    text = "responses of the same kind of traffic, of any sources, that balance the scores (200 at least)"
    parser.add_argument("--background", type=Path, metavar="FILE", help=text)
    default = "of those that know the claim that of most sources, then the most accurate"
    parser.add_argument("--enrolment", metavar="NAME", help=options.ENROLMENT.format(default))
    parser.add_argument("--list", action="store_true", help="list the published enrolments and their sources")
    parser.add_argument("--report", type=Path, metavar="FILE", help="page to write, with JSON and CSV next to it")
    parser.add_argument("--case", default="Untitled case", help="name of the case")
    parser.add_argument("--question", help="the question, in a sentence")
    text = "JSON object of weights by source, or a report in JSON, whose prior is taken (default: all the same)"
    parser.add_argument("--prior", type=Path, metavar="FILE", help=text)
    parser.add_argument("--prior-statement", metavar="TEXT", help="where the prior comes from")
    options.add_columns(parser)
    parser.add_argument("--keep-duplicates", action="store_true", help="count traces that repeat an earlier one")
    text = "show text and token evidence of N traces (default: none)"
    parser.add_argument("--keep-text", type=int, default=0, metavar="N", help=text)
    parser.add_argument("--against", metavar="LABEL", help="rival in the token evidence (default: the strongest)")
    parser.add_argument("--orders", type=int, default=ORDERS, help="random orders (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="of the random orders (default: %(default)s)")
    text = "stated error rate of the sequential stop: .01, .05 or .1 (default: %(default)s)"
    parser.add_argument("--stop-level", type=float, default=STOP_LEVEL, metavar="RATE", help=text)
    parser.add_argument("--also", metavar="NAMES", help="further enrolments that read the traces, comma separated")
    options.add(parser, "device")


def run(arguments: argparse.Namespace) -> None:
    """Attribute, print the answer and write the report. Raises AtlasError where a file or an option makes no sense."""
    if arguments.list:
        for name, path in enrolments().items():
            enrolment = load_enrolment(path)
            say(f"{name}: {enrolment.reader}, {len(enrolment.sources)} sources: {', '.join(enrolment.sources)}")
        return
    if arguments.traces is None:
        raise AtlasError("No file of traces was given", "Run: python -m jobs attribute TRACES --claimed LABEL")
    also = tuple(options.parts(arguments.also))
    written: list[Path] = []
    if arguments.report is not None:
        output_files.writable([arguments.report])  # what is no name of a file has no other ending either
        written = [arguments.report.with_suffix(ending) for ending in (".json", ".csv", ".html")]
    named = [Path(name) for name in (arguments.enrolment, *also) if name]
    output_files.spare(
        written,
        [arguments.traces, *filter(None, [arguments.prior, arguments.background]), *named, *enrolments().values()],
    )
    output_files.writable(written)
    enrolment = find_enrolment(arguments.enrolment, arguments.claimed)
    columns = options.columns_of(arguments)
    further = [find_enrolment(name) for name in also]
    also = tuple(name if Path(name).is_file() else one.name for name, one in zip(also, further, strict=True))
    settings = Settings(
        enrolment=enrolment.name,
        prior=_prior(arguments.prior),
        candidates=entries_of(arguments.candidates),
        background=None if arguments.background is None else arguments.background.name,
        columns=columns,
        show=arguments.keep_text,
        stop_level=arguments.stop_level,
        also=also,
        **{name: getattr(arguments, name) for name in NAMED},
    )
    checked(enrolment, settings)
    candidates = candidate_numbers(enrolment, settings.candidates)
    others = others_of(enrolment, settings, dict(zip(also, further, strict=True)).__getitem__)
    with opened(arguments.traces) as stream, opened_background(arguments.background, settings) as background:
        layout = inspect(stream, arguments.traces.name, columns, COMMAND_LINE, arguments.encoding)
        options.describe(layout)
        some = "" if candidates is None else f"{len(candidates)} of "
        say(f"  weighed against {some}the {len(enrolment.sources)} sources of {enrolment.name}, by {enrolment.reader}")
        if arguments.enrolment is None and (offered := offer(enrolment, arguments.claimed)):
            say(f"  {offered}")
        attributor, *further_attributors = map(Models.on(arguments.device).attributor, (enrolment, *others))
        with options.stop_on_interrupt() as cancelled:
            report = audit(
                stream,
                layout,
                attributor,
                settings,
                progress=_progress(enrolment, np.arange(len(enrolment.sources)) if candidates is None else candidates),
                cancelled=cancelled,
                command=portable(command_line()),
                others=further_attributors,
                further_progress=_further,
                background=background,
            ).report
    report = with_confusions(report, default_data_folder())
    _answer(report)
    if written:
        for path, form in zip(written, (write_json, write_csv, write_html), strict=True):
            output_files.write(path, form(report))
        data, table, page = written
        print(f"Written: {page}, {data.name} and {table.name}.")


def _prior(path: Path | None) -> dict[str, float] | None:
    if path is None:
        return None
    try:
        weights = json.loads(path.read_text("utf-8"))
        if isinstance(reference := weights.get("reference"), dict):
            weights = dict(zip(reference["sources"], reference["prior"], strict=True))
        return {str(label): float(weight) for label, weight in weights.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise AtlasError(f"The prior in {path} cannot be read", 'Write JSON: {"source": 0.7, "other": 0.3}') from error


def _progress(enrolment: Enrolment, weighed: Ints) -> Any:
    total = np.zeros(len(enrolment.sources))

    def show(progress: Progress) -> None:
        nonlocal total
        total = total + (progress.log_posteriors - enrolment.log_prior).sum(0, dtype=np.float64)
        nearest = visible(enrolment.sources[weighed[total[weighed].argmax()]])
        text = f"  {progress.done:,} traces, {progress.seconds:.1f} s; nearest so far, not yet calibrated: {nearest}"
        print(text, file=sys.stderr, flush=True)

    return show


def _further(progress: Progress) -> None:
    print(f"  {progress.done:,} further responses, {progress.seconds:.1f} s", file=sys.stderr, flush=True)


def _answer(report: Report) -> None:
    report = only_validated(report)
    results = report["results"]
    print()
    say(" ".join(filter(None, (answer_line(report), reservation(report)))))
    for sentence in (*confusion_words(report), *choice_sentences(report), *background_sentences(report)):
        say(sentence)
    say(f"One source or several: {results['mixture']['outcome']}. {results['mixture']['sentence']}")
    for step in steps_of(report):
        say(f"Next: {step.by_command}")
    options.excluded(report["input"], report["exclusions"], "the report")
    for note in report["input"]["notes"]:
        say(note)
    found = claims_of(report["input"].get("models", []), report["reference"]["sources"])
    if found and results["claimed"] is None:
        say(f"Suggested claim: {suggestion(found, results['traces'])} (--claimed).")
    for row in results["candidates"][:5]:
        share = "      " if row["probability"] is None else f"{row['probability']:6.3f}"
        say(f"  {share}  {row['source']}")
    if (stop := results["stop"]) is not None and not stop.get("withheld"):
        after = f"after {stop['enough_after']:,} traces" if stop["enough_after"] else "not yet"
        only = f" It looks at the first {stop['looked']:,} traces only." if stop.get("looked") else ""
        print(f"Enough {after}, at a stated error rate of {100 * stop['error_rate']:g} %.{only}")
    for row in results["readers"][1:]:
        say(f"{row['enrolment']}: {verdict_words(row)}, {row['leader']} leads.")
    if report["validation"] is None:
        print("No validation is attached to this enrolment: how often such answers are wrong is not known.")

"""Verify a report: is it as it was written, who signed it, and do the traces give it again? Or a server's audit log.

Exit code 0 when everything is equal, 1 when something is not. Without --traces only the report itself is checked.
With --signed-by the signatures of an enrolment or a generation are checked too, in the place of a report.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.attribution.background import opened_background
from backend.attribution.run import AuditResult, audit
from backend.attribution.scoring import Models
from backend.attribution.settings import settings_of
from backend.attribution.signed_files import signature_sentences
from backend.attribution.verify import Check, alterations, compared, fitting, read_report, selection_for, with_page
from backend.enrolment.catalogue import find_enrolment
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments, load_enrolment
from backend.errors import AtlasError
from backend.intake import COMMAND_LINE
from backend.intake.encoding import opened
from backend.service import audit_log
from jobs.trace_options import NOTHING_SAVED, add, say

STOPPED = NOTHING_SAVED


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    checked = parser.add_mutually_exclusive_group(required=True)
    checked.add_argument("report", type=Path, metavar="FILE", nargs="?", help="report, or another signed file")
    checked.add_argument("--audit-log", type=Path, metavar="FILE", help="whether an audit log is as it was written")
    parser.add_argument("--traces", type=Path, metavar="FILE", help="the traces that the report is about")
    text = "the unlabelled traffic that balanced its scores, where some did"
    parser.add_argument("--background", type=Path, metavar="FILE", help=text)
    parser.add_argument("--enrolment", metavar="NAME", help="enrolment's name or file (default: found by its sha256)")
    text = "public key of somebody who must have signed the file; several times for several people"
    parser.add_argument("--signed-by", type=Path, action="append", default=[], metavar="KEY.pub", help=text)
    text = "certificates of the authority whose time stamp is checked"
    parser.add_argument("--authority", type=Path, action="append", default=[], metavar="CERT.pem", help=text)
    add(parser, "encoding", "device")


def run(arguments: argparse.Namespace) -> int:
    """Check, compute again, and say equal or not. Raises AtlasError if the report cannot be read or computed again."""
    if arguments.audit_log is not None:
        return _check_log(arguments.audit_log)
    for sentence in signature_sentences(arguments.report, arguments.signed_by, arguments.authority):
        say(sentence)
    if arguments.signed_by and arguments.traces is None and arguments.report.suffix != ".json":
        return 0
    try:
        text = arguments.report.read_text("utf-8")
        report = read_report(text, COMMAND_LINE.values)
    except (OSError, UnicodeDecodeError) as error:
        raise AtlasError(f"{arguments.report} cannot be read", "Give a report as it was saved, HTML or JSON") from error
    if arguments.traces is None:
        check = with_page(Check.of(report, alterations(report)), text, report)
        return _tell(check, "The report agrees with itself. Give --traces to compute it again.")
    enrolment, again = recomputed(
        report, arguments.traces, arguments.enrolment, arguments.device, arguments.encoding, arguments.background
    )
    result = compared(report, again.report, enrolment, again.scored.mean, again.background)
    return _tell(
        with_page(result, text, report),
        f"EQUAL: {result.traces:,} traces give the same answer ({result.verdict}); the largest difference of a "
        f"log-posterior is {result.largest:.2g} nats.",
    )


def recomputed(
    report: Mapping[str, Any],
    traces: Path,
    named: str | None = None,
    device: str = "auto",
    encoding: str | None = None,
    background: Path | None = None,
) -> tuple[Enrolment, AuditResult]:
    """The enrolment of a report, and the same audit once more from the traces, whose encoding it states or not.

    Raises AtlasError if the enrolment is not here, or none of the traces is in the file.
    """
    here: dict[str, Enrolment] = {}
    for path in enrolments().values():
        with contextlib.suppress(AtlasError):  # a damaged one is not the one of the report
            one = load_enrolment(path)
            here[one.sha256] = one
    sha256 = str(report["method"].get("enrolment_sha256") if isinstance(report["method"], dict) else None)
    if named is None and sha256 not in here:
        raise AtlasError(f"No published enrolment has the sha256 {sha256[:16]}…", "Give its file: --enrolment FILE")
    enrolment = here[sha256] if named is None else find_enrolment(named)
    settings = settings_of(report, enrolment.name, lambda sha256: sha256 if sha256 in here else None)
    with opened(traces) as stream, opened_background(background, settings) as pool:
        own = report["input"].get("sha256")
        settings, layout = fitting(settings, own, stream, traces.name, COMMAND_LINE, encoding)
        readers = [enrolment, *(here[sha256] for sha256 in settings.also)]
        attributor, *others = map(Models.on(device).attributor, readers)
        selection = selection_for(report, layout.sha256, COMMAND_LINE)
        return enrolment, audit(stream, layout, attributor, settings, selection, others=others, background=pool)


def _check_log(path: Path) -> int:
    result = audit_log.check(path)
    for note in result.notes:
        say(f"Note: {note}.")
    equal = f"EQUAL: {result.lines:,} lines follow each other as they were written; the last one is {result.last}."
    return _say(result.found, equal)


def _tell(check: Check, equal: str) -> int:
    for note in check.notes:
        say(note)
    for shown, expected in check.shown:
        say(f"The page shows: {shown}")
        say(f"{'This program says of its data' if check.page_unchecked else 'By its data it should be'}: {expected}")
    return _say(check.found, f"DATA UNCHANGED, PAGE NOT CHECKED. {equal}" if check.page_unchecked else equal)


def _say(found: tuple[str, ...], equal: str) -> int:
    """Print the differences, or ``equal``; 1 if there are any."""
    if not found:
        say(equal)
        return 0
    print("NOT EQUAL:")
    for sentence in found:
        say(f"  {sentence}.")
    return 1

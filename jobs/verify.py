"""Verify a report: is it as it was written, and do the traces give it again?

Exit code 0 when everything is equal, 1 when something is not. Without --traces only the report itself is checked.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.audit.attributor import Attributor
from backend.audit.enrolment import Enrolment
from backend.audit.enrolment_files import enrolments, load_enrolment
from backend.audit.inquiry import Selection, audit
from backend.audit.intake import COMMAND_LINE, Received, inspect
from backend.audit.settings import Settings
from backend.audit.verification import alterations, differences, largest_difference, read_report
from backend.errors import AtlasError
from backend.proxies.registry import load_reader, proxy_hash
from jobs._audit import columns_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("report", type=Path, metavar="REPORT.json")
    parser.add_argument("--traces", type=Path, metavar="FILE", help="the traces that the report is about")
    parser.add_argument("--enrolment", type=Path, metavar="FILE", help="enrolment file (default: found by its sha256)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Check, compute again, and say equal or not."""
    try:
        report = read_report(arguments.report.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise AtlasError(f"{arguments.report} cannot be read", "Give the .json file of a report") from error
    found = alterations(report)
    if arguments.traces is None:
        return _say(found, "The report agrees with itself. Give --traces to compute it again.")
    try:
        again = recomputed(report, arguments.traces, arguments.enrolment, arguments.device)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AtlasError(
            f"The report lacks what is needed to compute it again ({error})", "Give it unchanged"
        ) from error
    found += differences(report, again)
    return _say(
        found,
        f"EQUAL: {len(again['traces']):,} traces give the same answer ({again['results']['verdict']}); the largest "
        f"difference of a log-posterior is {largest_difference(report, again):.2g} nats.",
    )


def recomputed(
    report: Mapping[str, Any], traces: Path, enrolment_file: Path | None = None, device: str = "auto"
) -> dict[str, Any]:
    """The same audit once more, from the traces.

    Parameters
    ----------
    report : mapping
    traces : Path
    enrolment_file : Path, optional
    device : str

    Returns
    -------
    dict
        A report.

    Raises
    ------
    AtlasError
        If the enrolment is not here, or none of the traces is in the file.
    """
    enrolment = _enrolment(str(report["method"]["enrolment_sha256"]), enrolment_file)
    results = report["results"]
    settings = Settings(
        case=report["case"],
        question=report["question"],
        prior_statement=report["reference"]["prior_statement"],
        claimed=results["claimed"],
        prior=dict(zip(report["reference"]["sources"], report["reference"]["prior"], strict=True)),
        keep_duplicates=True,
        orders=int(results["spread"]["orders"]),
        seed=int(results["spread"]["seed"]),
    )
    left = Counter(trace["sha256"] for trace in report["traces"])

    def wanted(trace: Received) -> bool:
        left[trace.sha256] -= 1
        return left[trace.sha256] >= 0

    try:
        stream = traces.open("rb")
    except OSError as error:
        raise AtlasError(f"{traces} cannot be read ({error.strerror})", "Check the path") from error
    with stream:
        told = columns_of(report["input"]["columns"])
        if not report["input"]["mapped"]:
            told = replace(told, response=None)  # it was recognised, and is so again
        layout = inspect(stream, traces.name, told, COMMAND_LINE)
        reader = load_reader(enrolment.proxy, device)
        attributor = Attributor(reader, enrolment, proxy_hash(enrolment.proxy))
        return audit(stream, layout, attributor, settings, Selection(wanted=wanted)).report


def _enrolment(sha256: str, path: Path | None) -> Enrolment:
    if path is not None:
        return load_enrolment(path)
    for candidate in enrolments().values():
        enrolment = load_enrolment(candidate)
        if enrolment.sha256 == sha256:
            return enrolment
    raise AtlasError(f"No published enrolment has the sha256 {sha256[:16]}…", "Give its file: --enrolment FILE")


def _say(found: list[str], equal: str) -> int:
    if not found:
        print(equal)
        return 0
    print("NOT EQUAL:")
    for sentence in found:
        print(f"  {sentence}.")
    return 1

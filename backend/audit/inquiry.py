"""One audit from a file to its report: the road that the page, REST and the command line share.

A file is walked through once, a trace at a time; what is left out is listed with its reason; the scores, the answer and
the report follow (paper, Stage 1 and Stage 2).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from backend.audit.attributor import Attributor, Progress, Scored
from backend.audit.case import Companions, Findings, find, source_number, stated_prior
from backend.audit.chain import Chain
from backend.audit.companions import companions_of
from backend.audit.enrolment import Enrolment
from backend.audit.intake import COMMAND_LINE, Layout, Limits, Problem, Received, walk
from backend.audit.report import Question, Seen, build_report
from backend.audit.scores import ORDERS, SEED
from backend.audit.settings import Settings
from backend.audit.tokens import token_evidence
from backend.errors import AtlasError
from backend.store.builds import code_version
from backend.traces import Trace

Doubles = npt.NDArray[np.float64]


@dataclass
class Selection:
    """Which traces of a file are scored; fills while the file is walked through.

    Attributes
    ----------
    keep_duplicates : bool
    wanted : callable or None
        Says for a trace whether it is scored; by default all are.
    text : int
        Characters of text that are kept for token evidence; nothing is kept at 0.
    """

    keep_duplicates: bool = False
    wanted: Callable[[Received], bool] | None = None
    text: int = 0
    seen: list[Seen] = field(default_factory=list)
    texts: list[Trace] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    exclusions: list[dict[str, Any]] = field(default_factory=list)

    def traces(self, stream: BinaryIO, layout: Layout, limits: Limits) -> Iterator[Trace]:
        """Traces to score, one at a time."""
        first: dict[str, tuple[int, int]] = {}
        left = self.text
        for found in walk(stream, layout, limits):
            if isinstance(found, Problem):
                self.problems.append(found)
                continue
            at = first.setdefault(found.sha256, (found.place, found.turn))
            reason = None
            if self.wanted is not None:
                reason = None if self.wanted(found) else "not one of the traces asked for"
            elif at != (found.place, found.turn) and not self.keep_duplicates:
                reason = f"the same as {layout.unit} {at[0]}"
            if reason is not None:
                self.exclusions.append(
                    {"place": found.place, "turn": found.turn, "sha256": found.sha256, "reason": reason}
                )
                continue
            self.seen.append(Seen.of(found))
            if self.text:
                left -= len(found.prompt) + len(found.response)
                if left < 0:
                    raise AtlasError(
                        f"The traces hold more than {self.text:,} characters, too many to keep their text",
                        "Keep no text, or give fewer traces",
                    )
                self.texts.append(found.trace)
            yield found.trace


@dataclass(frozen=True)
class Inquiry:
    """What an audit found.

    Attributes
    ----------
    report : dict
        See :func:`backend.audit.report.build_report`.
    scored : Scored
    findings : Findings
    """

    report: dict[str, Any]
    scored: Scored
    findings: Findings


def audit(
    stream: BinaryIO,
    layout: Layout,
    attributor: Attributor,
    settings: Settings,
    selection: Selection | None = None,
    *,
    companions: Companions | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    limits: Limits = COMMAND_LINE,
    total: int | None = None,
    command: str | None = None,
    version: str | None = None,
    keep_fingerprints: bool = False,
) -> Inquiry:
    """Score a file and report.

    Parameters
    ----------
    stream, layout
        The file, and what :func:`backend.audit.intake.inspect` found it to be.
    attributor : Attributor
    settings : Settings
    selection : Selection, optional
        Filled on return. By default what the settings say.
    companions : Companions, optional
        By default what is attached to the enrolment.
    progress, cancelled, keep_fingerprints
        See :meth:`backend.audit.attributor.Attributor.score`.
    limits : Limits
    total : int, optional
        Traces that will be scored, for the progress.
    command : str, optional
        Written into the report; by default the one that would give it again.
    version : str, optional
        Of the code, by default looked up.

    Returns
    -------
    Inquiry

    Raises
    ------
    AtlasError
        If the settings name a source that is not enrolled, or no trace was scored.
    """
    enrolment = attributor.enrolment
    selection = selection or selection_of(settings, limits)
    prior, rival = checked(enrolment, settings)
    chain = Chain().append("file", {"sha256": layout.sha256, "size": layout.size, "columns": asdict(layout.columns)})
    chain = chain.append(
        "question",
        {
            "case": settings.case,
            "question": settings.asked,
            "claimed": settings.claimed,
            "prior": [float(value) for value in np.exp(prior)],
        },
    )
    chain = chain.append("enrolment", {"name": enrolment.name, "sha256": enrolment.sha256})
    scored = attributor.score(
        selection.traces(stream, layout, limits),
        total=total,
        progress=progress,
        cancelled=cancelled,
        keep_fingerprints=keep_fingerprints,
    )
    if not selection.seen:
        first = selection.problems[0] if selection.problems else None
        where = f" ({layout.unit} {first.place:,}: {first.reason})" if first else ""
        raise AtlasError(
            f"No trace of {layout.name} was scored{where}", "Check the file and the mapping of its columns"
        )
    chain = chain.append(
        "traces", {"sha256": [seen.sha256 for seen in selection.seen], "excluded": len(selection.exclusions)}
    )
    chain = chain.append(
        "scores", {"engine": scored.engine, "complete": scored.complete, "seconds": round(scored.seconds, 3)}
    )
    findings = find(
        scored,
        enrolment,
        settings.claimed,
        prior=prior,
        companions=companions or companions_of(enrolment),
        orders=settings.orders,
        seed=settings.seed,
    )
    maps = []
    for row in np.argsort(-np.abs(findings.contributions.log10_ratio), kind="stable")[: settings.show]:
        trace, other = selection.texts[row], findings.rival if rival is None else rival
        evidence = token_evidence(attributor.reader, enrolment, trace, findings.subject, other)
        maps.append((int(row) + 1, trace.prompt, evidence))
    report = build_report(
        Question(settings.case, settings.asked, settings.stated),
        layout,
        selection.problems,
        _notes(selection),
        selection.seen,
        selection.exclusions,
        enrolment,
        scored,
        findings,
        [float(value) for value in prior],
        chain,
        code_version=version or code_version(),
        command=command or command_of(layout, enrolment, settings),
        heat_maps=maps,
    )
    return Inquiry(report, scored, findings)


def checked(enrolment: Enrolment, settings: Settings) -> tuple[Doubles, int | None]:
    """Log of the stated prior and the number of the rival; a wrong name speaks before anything runs.

    Raises
    ------
    AtlasError
        If a source is named that is not enrolled, or a number makes no sense.
    """
    if settings.orders < 1 or settings.show < 0 or settings.seed < 0:
        raise AtlasError(
            "The number of orders must be at least 1, that of traces with text and the seed at least 0",
            "Change the number",
        )
    if settings.claimed is not None:
        source_number(enrolment, settings.claimed)
    rival = None if settings.against is None else source_number(enrolment, settings.against)
    return stated_prior(enrolment, settings.prior), rival


def selection_of(settings: Settings, limits: Limits) -> Selection:
    """The traces that the settings ask for."""
    return Selection(settings.keep_duplicates, text=limits.text if settings.show else 0)


def command_of(layout: Layout, enrolment: Enrolment, settings: Settings) -> str:
    """The command line that gives the same answer on a machine with the same enrolment."""
    told: list[tuple[str, Any]] = [
        ("--enrolment", enrolment.name),
        ("--claimed", settings.claimed),
        ("--case", settings.case),
        ("--question", settings.question),
        ("--prior", "prior.json" if settings.prior else None),
        ("--prior-statement", settings.prior_statement),
        *((f"--{role}-column", column) for role, column in settings.columns.named().items()),
        ("--keep-text", settings.show or None),
        ("--against", settings.against),
        ("--orders", settings.orders if settings.orders != ORDERS else None),
        ("--seed", settings.seed if settings.seed != SEED else None),
    ]
    words = ["python", "-m", "jobs", "attribute", layout.name]
    for option, value in told:
        if value is not None:
            words += [option, str(value)]
    return shlex.join([*words, *(["--keep-duplicates"] if settings.keep_duplicates else [])])


def _notes(selection: Selection) -> Sequence[str]:
    seen, notes = selection.seen, []
    if empty := sum(not trace.response_characters for trace in seen):
        notes.append(f"{empty:,} of {len(seen):,} traces have an empty response. They count as what they are.")
    if bare := sum(not trace.prompt_characters for trace in seen):
        notes.append(f"{bare:,} of {len(seen):,} traces have no prompt. A reader of view r needs none.")
    if len(labels := {trace.label for trace in seen if trace.label}) > 1:
        notes.append(f"The file names {len(labels):,} different sources or models. One audit asks about one endpoint.")
    return notes

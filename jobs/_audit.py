"""What ``attribute`` and ``verify`` share: walk through a file of traces, score it, and put the report together."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import numpy as np

from backend.audit.attributor import Attributor, Progress
from backend.audit.case import Companions, find, source_number, stated_prior
from backend.audit.chain import Chain
from backend.audit.companions import companions_of
from backend.audit.intake import COMMAND_LINE, Layout, Limits, Problem, Received, walk
from backend.audit.intake.model import Columns
from backend.audit.report import Question, Seen, build_report
from backend.audit.scores import ORDERS, SEED
from backend.audit.tokens import token_evidence
from backend.errors import AtlasError
from backend.store.builds import code_version, portable
from backend.traces import Trace
from jobs._common import command_line


@dataclass(frozen=True)
class Settings:
    """How an audit is run.

    Attributes
    ----------
    question : Question
    claimed : str or None
    prior : mapping of str to float, or None
        Weights of sources; None for the same weight for each.
    keep_duplicates : bool
        Count traces that repeat an earlier one word for word.
    show : int
        Traces whose text and token evidence the report shows; 0 keeps no text.
    against : str or None
        Rival of the token evidence; by default the strongest one.
    orders, seed : int
        Of the spread over random orders.
    """

    question: Question
    claimed: str | None = None
    prior: Mapping[str, float] | None = None
    keep_duplicates: bool = False
    show: int = 0
    against: str | None = None
    orders: int = ORDERS
    seed: int = SEED


@dataclass
class Selection:
    """Which traces of a file are scored; fills while the file is walked through.

    Attributes
    ----------
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
                        "Leave --keep-text out, or give fewer traces",
                    )
                self.texts.append(found.trace)
            yield found.trace


def audit(
    stream: BinaryIO,
    layout: Layout,
    attributor: Attributor,
    settings: Settings,
    selection: Selection,
    *,
    companions: Companions | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    limits: Limits = COMMAND_LINE,
) -> dict[str, Any]:
    """Score a file and report.

    Parameters
    ----------
    stream, layout
        The file, and what :func:`backend.audit.intake.inspect` found it to be.
    attributor : Attributor
    settings : Settings
    selection : Selection
        Filled on return.
    companions : Companions, optional
        By default what is attached to the enrolment.
    progress, cancelled, limits

    Returns
    -------
    dict
        See :func:`backend.audit.report.build_report`.
    """
    enrolment = attributor.enrolment
    if settings.claimed is not None:
        source_number(enrolment, settings.claimed)  # a wrong name speaks before anything runs
    rival = None if settings.against is None else source_number(enrolment, settings.against)
    prior = stated_prior(enrolment, settings.prior)
    chain = Chain().append("file", {"sha256": layout.sha256, "size": layout.size, "columns": asdict(layout.columns)})
    chain = chain.append(
        "question",
        {
            "case": settings.question.case,
            "question": settings.question.question,
            "claimed": settings.claimed,
            "prior": [float(value) for value in np.exp(prior)],
        },
    )
    chain = chain.append("enrolment", {"name": enrolment.name, "sha256": enrolment.sha256})
    scored = attributor.score(selection.traces(stream, layout, limits), progress=progress, cancelled=cancelled)
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
    return build_report(
        settings.question,
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
        code_version=code_version(),
        command=portable(command_line()),
        heat_maps=maps,
    )


@contextmanager
def stop_on_interrupt(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """A first Ctrl-C ends the work after the batch that runs, a second one at once."""
    asked: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        say("Stopping after this batch; what is done is kept.")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def columns_of(told: Mapping[str, Any]) -> Columns:
    """Columns as a report holds them."""
    return Columns(**{role: None if told.get(role) is None else str(told[role]) for role in asdict(Columns())})


def _notes(selection: Selection) -> Sequence[str]:
    seen, notes = selection.seen, []
    if empty := sum(not trace.response_characters for trace in seen):
        notes.append(f"{empty:,} of {len(seen):,} traces have an empty response. They count as what they are.")
    if bare := sum(not trace.prompt_characters for trace in seen):
        notes.append(f"{bare:,} of {len(seen):,} traces have no prompt. A reader of view r needs none.")
    if len(labels := {trace.label for trace in seen if trace.label}) > 1:
        notes.append(f"The file names {len(labels):,} different sources or models. One audit asks about one endpoint.")
    return notes


def write_beside(path: Path, text: str) -> None:
    """Write a file in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.partial")
        scratch.write_text(text, "utf-8")
        scratch.replace(path)
    except OSError as error:
        raise AtlasError(
            f"{path} cannot be written ({error.strerror})", "Choose a folder that you may write to"
        ) from error

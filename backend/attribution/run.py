"""One audit from a file to its report, for page, REST and command line (paper, Stage 1 and Stage 2).

A file is walked through once, a trace at a time; what is excluded is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from backend.attribution.decision import (
    Findings,
    FittedStatistics,
    capabilities_of,
    find,
    fitted_statistics_of,
    refuse_stop_level,
    source_number,
    stated_prior,
)
from backend.attribution.report import Chain, Question, Seen, build_report, digest, encoded, reader_row, session_of
from backend.attribution.scoring import Attributor, Progress, Scored
from backend.attribution.settings import MOST_ALSO, Settings, command_of, refuse_wrong_numbers
from backend.attribution.token_evidence import token_evidence
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.intake import COMMAND_LINE, Layout, Limits, Problem, Received, notes_about, walk
from backend.store.builds import code_version
from backend.traces import Trace

UNASKED = "not one of the traces asked for"
Doubles = npt.NDArray[np.float64]


@dataclass
class Selection:
    """Which traces of a file are scored; fills while the file is walked through."""

    keep_duplicates: bool = False
    wanted: Callable[[Received], bool] | None = None  # whether a trace that repeats no earlier one is scored; all are
    characters: int | None = None  # of one prompt or one response, where they are fewer than those of the limits
    text: int = 0  # characters of text that are stored for token evidence; nothing is stored at 0
    seen: list[Seen] = field(default_factory=list)
    texts: list[Trace] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    exclusions: list[dict[str, Any]] = field(default_factory=list)

    def traces(self, stream: BinaryIO, layout: Layout, limits: Limits) -> Iterator[Trace]:
        """Traces to score, one at a time."""
        first: dict[str, tuple[int, int]] = {}
        remaining = self.text
        for found in walk(stream, layout, replace(limits, characters=self.most(limits))):
            if isinstance(found, Problem):
                self.problems.append(found)
                continue
            place = {"place": found.place, "turn": found.turn, "sha256": found.sha256}
            at = first.setdefault(found.sha256, (found.place, found.turn))
            if at != (found.place, found.turn) and not self.keep_duplicates:
                self.exclusions.append(place | {"reason": f"the same as {layout.unit} {at[0]}"})
                continue
            if self.wanted is not None and not self.wanted(found):
                self.exclusions.append(place | {"reason": UNASKED})
                continue
            self.seen.append(Seen.of(found))
            if self.text:
                remaining -= len(found.prompt) + len(found.response)
                if remaining < 0:
                    raise AtlasError(
                        f"The traces hold more than {self.text:,} characters, too many to keep their text",
                        "Keep no text, or give fewer traces",
                    )
                self.texts.append(found.trace)
            yield found.trace

    def most(self, limits: Limits) -> int:
        """Characters of one prompt or one response beyond which a place gives no trace."""
        return limits.characters if self.characters is None else min(self.characters, limits.characters)

    def empty(self, message: str, layout: Layout) -> AtlasError:
        """The error where no trace was taken, with the first place that gives none."""
        first = self.problems[0] if self.problems else None
        where = f" ({layout.unit} {first.place:,}: {first.reason})" if first else ""
        return AtlasError(message + where, "Check the file and the mapping of its columns")

    def notes(self) -> list[str]:
        """Sentences a person should read about what was scored."""
        lengths = [(trace.prompt_characters, trace.response_characters) for trace in self.seen]
        names = [(trace.name, trace.turn) for trace in self.seen if trace.name is not None]
        return notes_about(lengths, names, {trace.label for trace in self.seen if trace.label})


def selection_of(settings: Settings, limits: Limits) -> Selection:
    """The traces that the settings select."""
    return Selection(settings.keep_duplicates, text=limits.text if settings.show else 0)


def counted(stream: BinaryIO, layout: Layout, selection: Selection, limits: Limits) -> int:
    """How many traces of a file a selection takes, before any is scored; an AtlasError if it takes none."""
    total = sum(1 for _ in selection.traces(stream, layout, limits))
    if not total:
        raise selection.empty(f"There is no trace in {layout.name}", layout)
    return total


@dataclass(frozen=True)
class Inquiry:
    """What an audit found."""

    report: dict[str, Any]  # see :func:`backend.attribution.report.build_report`
    scored: Scored
    findings: Findings


def audit(
    stream: BinaryIO,
    layout: Layout,
    attributor: Attributor,
    settings: Settings,
    selection: Selection | None = None,
    *,
    companions: FittedStatistics | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    limits: Limits = COMMAND_LINE,
    total: int | None = None,
    command: str | None = None,
    version: str | None = None,
    keep_fingerprints: bool = False,
    others: Sequence[Attributor] = (),
    beside: Callable[[Progress], None] | None = None,
    earlier: Sequence[str] = (),
) -> Inquiry:
    """Score a file and report.

    selection : filled on return; companions : statistics in place of those attached to the enrolment.
    total, progress, cancelled, keep_fingerprints : see :meth:`backend.attribution.scoring.Attributor.score`.
    command : written into the report, in place of the one that would give it again.
    others : further readers of the same traces, whose findings do not change the answer; beside : gets their progress.
    earlier : hashes of the last steps of earlier reports of the same session: the report says how many there are.
    """
    enrolment = attributor.enrolment
    selection = selection or selection_of(settings, limits)
    prior, rival = checked(enrolment, settings)
    session = session_of(earlier)
    chain = Chain()

    def step(title: str, /, **details: Any) -> None:
        nonlocal chain
        chain = chain.append(title, details)

    step("file", sha256=layout.sha256, size=layout.size, columns=asdict(layout.columns), session=session)
    shares = [float(value) for value in np.exp(prior)]
    step("question", case=settings.case, question=settings.question_text, claimed=settings.claimed, prior=shares)
    step("enrolment", name=enrolment.name, sha256=enrolment.sha256)
    scored = attributor.score(
        selection.traces(stream, layout, limits),
        total=total,
        progress=progress,
        cancelled=cancelled,
        keep_fingerprints=keep_fingerprints,
    )
    if not selection.seen:
        raise selection.empty(f"No trace of {layout.name} was scored", layout)
    step("traces", sha256=[seen.sha256 for seen in selection.seen], excluded=len(selection.exclusions))
    step(
        "scores",
        engine=scored.engine,
        complete=scored.complete,
        seconds=round(scored.seconds, 3),
        log_posteriors=digest(encoded(scored.log_posteriors)),
    )
    findings = answer(scored, enrolment, settings, prior, companions)
    places, readers = {(seen.place, seen.turn) for seen in selection.seen}, []
    for other in others:
        same = Selection(keep_duplicates=True, wanted=lambda trace: (trace.place, trace.turn) in places)
        again = other.score(same.traces(stream, layout, limits), progress=beside, cancelled=cancelled)
        if not again.complete:
            break
        readers.append(_row_of(other.enrolment, again, settings))
        step("scores", enrolment=other.enrolment.sha256, engine=again.engine, seconds=round(again.seconds, 3))
    maps = []
    for row in np.argsort(-np.abs(findings.contributions.log10_ratio), kind="stable")[: settings.show]:
        trace, against = selection.texts[row], findings.rival if rival is None else rival
        evidence = token_evidence(attributor.reader, enrolment, trace, findings.subject, against, attributor.others)
        maps.append((int(row) + 1, trace.prompt, evidence))
    report = build_report(
        Question(settings.case, settings.question_text, settings.stated),
        layout,
        selection.problems,
        selection.notes(),
        selection.seen,
        selection.exclusions,
        enrolment,
        scored,
        findings,
        [float(value) for value in prior],
        chain,
        code_version=version or code_version(),
        command=command or command_of(layout.name, enrolment.name, settings),
        heat_maps=maps,
        readers=readers,
        selection={"keep_duplicates": selection.keep_duplicates, "characters": selection.most(limits)},
        session=session,
    )
    return Inquiry(report, scored, findings)


def answer(
    scored: Scored, enrolment: Enrolment, settings: Settings, prior: Doubles, companions: FittedStatistics | None = None
) -> Findings:
    """The answer to the question of the settings, under the log of the stated prior (C,)."""
    return find(
        scored,
        enrolment,
        settings.claimed,
        prior=prior,
        companions=companions or fitted_statistics_of(enrolment, stop_level=settings.stop_level),
        orders=settings.orders,
        seed=settings.seed,
    )


def checked(enrolment: Enrolment, settings: Settings) -> tuple[Doubles, int | None]:
    """Log of the stated prior and the number of the rival; an AtlasError for wrong settings, before anything runs."""
    refuse_wrong_numbers(settings)
    refuse_stop_level(enrolment, settings.stop_level, capabilities_of(enrolment).stop_levels)
    if settings.claimed is not None:
        source_number(enrolment, settings.claimed)
    rival = None if settings.against is None else source_number(enrolment, settings.against)
    return stated_prior(enrolment, settings.prior), rival


def others_of(enrolment: Enrolment, settings: Settings, known: Callable[[str], Enrolment]) -> tuple[Enrolment, ...]:
    """Enrolments of the further readers; ``known`` finds one by its name, and raises where there is none."""
    excess = AtlasError(
        f"The same traces can be read with up to {MOST_ALSO} further enrolments, each named once", "Leave some out"
    )
    if len(settings.also) > MOST_ALSO or len({enrolment.name, *settings.also}) <= len(settings.also):
        raise excess
    found = tuple(known(name) for name in settings.also)
    if len({enrolment.name, *(one.name for one in found)}) <= len(found):  # one may be written in two ways
        raise excess
    return found


def _row_of(enrolment: Enrolment, scored: Scored, settings: Settings) -> dict[str, Any]:
    """What a further reader finds in the same traces."""
    levels = capabilities_of(enrolment).stop_levels
    level = settings.stop_level if settings.stop_level in levels or not levels else levels[0]
    claimed = settings.claimed if settings.claimed in enrolment.sources else None
    found = find(
        scored,
        enrolment,
        claimed,
        companions=fitted_statistics_of(enrolment, stop_level=level),
        orders=1,
        seed=settings.seed,
    )
    return reader_row(enrolment, scored, found)

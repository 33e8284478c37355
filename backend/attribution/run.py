"""One audit from a file to its report, for page, REST and command line (paper, Stage 1 and Stage 2).

A file is walked through once, a trace at a time; what is excluded is listed with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from backend.attribution import decision
from backend.attribution.background import Background, leader_of, questioned_hashes
from backend.attribution.decision import Findings, source_number
from backend.attribution.drift_report import Window
from backend.attribution.report import build_report, digest, encoded, next_step, reader_row
from backend.attribution.scoring import Attributor, Progress, Scored, Selection, listed_traces
from backend.attribution.settings import MOST_ALSO, Settings, command_of, refuse_wrong_numbers
from backend.attribution.token_evidence import heat_map, token_evidence
from backend.enrolment.catalogue import candidate_numbers
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.intake import COMMAND_LINE, Layout, Limits
from backend.protocol import BACKGROUND, CLEAN
from backend.store.builds import code_version

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AuditResult:
    """What an audit found."""

    report: dict[str, Any]  # see :func:`backend.attribution.report.build_report`
    scored: Scored
    seconds: dict[str, float]  # by stage: read, score, report
    background: Background | None = None  # where unlabelled traffic balanced the scores


def audit(
    stream: BinaryIO,
    layout: Layout,
    attributor: Attributor,
    settings: Settings,
    selection: Selection | None = None,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    limits: Limits = COMMAND_LINE,
    command: str | None = None,
    version: str | None = None,
    keep_fingerprints: bool = False,
    others: Sequence[Attributor] = (),
    further_progress: Callable[[Progress], None] | None = None,
    earlier: Sequence[str] = (),
    background: tuple[BinaryIO, Layout] | None = None,
) -> AuditResult:
    """Score a file and report.

    selection : filled on return.
    progress, cancelled, keep_fingerprints : see :meth:`backend.attribution.scoring.Attributor.score`.
    command : written into the report, in place of the one that would give it again.
    others : further readers of the same traces, whose findings do not change the answer.
    earlier : hashes of the last steps of earlier reports of the same session: the report says how many there are.
    background : unlabelled traffic, where the settings name some; it is read first, since it may be refused.
    """
    enrolment = attributor.enrolment
    selection = selection or Selection.of(settings, limits)
    prior, rival = checked(enrolment, settings)
    if (settings.background is None) != (background is None):
        raise AtlasError(
            "The unlabelled traffic that the scores are balanced by is missing", "Give it: --background FILE"
        )
    questioned = frozenset[str]() if background is None else questioned_hashes(stream, layout, limits)

    def pool_for(reads: Attributor) -> Background | None:
        if background is None:
            return None
        return Background.read(*background, reads, questioned, limits, further_progress, cancelled)

    session = {"earlier": len(earlier), "last_step": earlier[-1] if earlier else None}
    steps: list[dict[str, Any]] = []

    def step(title: str, /, **details: Any) -> None:
        steps.append(next_step(steps, title, details))

    step("file", sha256=layout.sha256, size=layout.size, columns=asdict(layout.columns), session=session)
    asks: dict[str, Any] = {"claimed": settings.claimed, "prior": [float(value) for value in np.exp(prior)]}
    if settings.candidates:
        asks["candidates"] = list(settings.candidates)
    step("question", case=settings.case, question=settings.question_text, **asks)
    step("enrolment", name=enrolment.name, sha256=enrolment.sha256)
    if (pool := pool_for(attributor)) is not None:
        about = {"responses": pool.responses, "repeated": pool.repeated, "questioned": pool.questioned}
        step("background", sha256=pool.sha256, **about)
    scored = attributor.score(
        selection.traces(stream, layout, limits),
        progress=progress,
        cancelled=cancelled,
        keep_fingerprints=keep_fingerprints,
        reference=None if pool is None else pool.prompts,
    )
    selection.refuse_empty(f"No trace of {layout.name} was scored", layout)
    without = leader_of(scored, enrolment, candidate_numbers(enrolment, settings.candidates))
    scored = scored if pool is None else pool.balanced(scored)
    step("traces", sha256=[seen.sha256 for seen in selection.seen], excluded=len(selection.exclusions))
    step(
        "scores",
        engine=scored.engine,
        complete=scored.complete,
        seconds=round(scored.seconds, 3),
        log_posteriors=digest(encoded(scored.log_posteriors)),
    )
    all_scored, begun = [scored], time.perf_counter()
    findings = answer(scored, enrolment, settings, prior, pool)
    places, readers = {(seen.place, seen.turn) for seen in selection.seen}, []
    for other in others:
        same = Selection(keep_duplicates=True, includes=lambda trace: (trace.place, trace.turn) in places)
        further = pool_for(other)
        judge = None if further is None else further.prompts
        traces = same.traces(stream, layout, limits)
        again = other.score(traces, progress=further_progress, cancelled=cancelled, reference=judge)
        again = again if further is None else further.balanced(again)
        all_scored.append(again)
        if not again.complete:
            break
        fitting = _fitting(settings, enrolment, other.enrolment)
        found = answer(again, other.enrolment, fitting, checked(other.enrolment, fitting)[0], further)
        readers.append(reader_row(other.enrolment, again, found))
        step("scores", enrolment=other.enrolment.sha256, engine=again.engine, seconds=round(again.seconds, 3))
    maps = []
    for row in np.argsort(-np.abs(findings.contributions.log10_ratio), kind="stable")[: settings.show]:
        trace, against = selection.texts[row], findings.rival if rival is None else rival
        evidence = token_evidence(attributor.reader, enrolment, trace, findings.subject, against, attributor.others)
        maps.append(heat_map(int(row) + 1, trace.prompt, evidence))
    report = build_report(
        settings,
        layout,
        selection,
        enrolment,
        scored,
        findings,
        prior,
        steps,
        code_version=version or code_version(),
        command=command or command_of(layout.name, enrolment.name, settings),
        heat_maps=maps,
        readers=readers,
        session=session,
        background=None if pool is None else pool.facts(without),
    )
    seconds = {
        "read": sum(one.reading for one in all_scored),
        "score": sum(one.scoring for one in all_scored),
        "report": time.perf_counter() - begun - sum(one.seconds for one in all_scored[1:]),
    }
    return AuditResult(report, scored, seconds, pool)


def read_window(
    stream: BinaryIO,
    layout: Layout,
    attributor: Attributor,
    settings: Settings,
    limits: Limits = COMMAND_LINE,
    total: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Window:
    """The traces of a file as a window to compare with others; ``total`` is how many it has."""
    found = audit(
        stream, layout, attributor, settings, limits=limits, progress=progress, cancelled=cancelled,
        keep_fingerprints=True,
    )  # fmt: skip
    assert found.scored.fingerprints is not None
    listed = list(listed_traces(stream, layout, limits, found.report["traces"]))
    prompts, responses = ([getattr(one, part) for one in listed] for part in ("prompt", "response"))
    return Window(found.report, found.scored.fingerprints, prompts, total, responses=responses)


def answer(
    scored: Scored, enrolment: Enrolment, settings: Settings, prior: Doubles, background: Background | None = None
) -> Findings:
    """The answer to the question of the settings, under the log of the stated prior (C,).

    background : that balanced the scores.
    """
    condition, moved = (CLEAN, None) if background is None else (BACKGROUND, background.mean)
    statistics = decision.fitted_statistics_of(enrolment, condition, settings.stop_level, moved)
    return decision.find(
        scored,
        enrolment,
        settings.claimed,
        candidates=candidate_numbers(enrolment, settings.candidates),
        prior=prior,
        companions=statistics,
        orders=settings.orders,
        seed=settings.seed,
    )


def checked(enrolment: Enrolment, settings: Settings) -> tuple[Doubles, int | None]:
    """Log of the stated prior (of candidates alone) and number of the rival; an AtlasError for wrong settings."""
    refuse_wrong_numbers(settings)
    levels = decision.stop_levels_of(enrolment)
    decision.refuse_stop_level(enrolment, settings.stop_level, levels)
    among = decision.among(enrolment, candidate_numbers(enrolment, settings.candidates))
    if settings.claimed is not None:
        source_number(enrolment, settings.claimed)
    for label in filter(None, (settings.claimed, *(settings.prior or ()))):
        if label in enrolment.sources and label not in among.sources:
            problem = f"'{label}' is claimed or has a prior, and is none of the candidates"
            raise AtlasError(problem, "Add it to the candidates, or leave it out of the question")
    rival = None if settings.against is None else source_number(enrolment, settings.against)
    return decision.stated_prior(among, settings.prior), rival


def others_of(enrolment: Enrolment, settings: Settings, known: Callable[[str], Enrolment]) -> tuple[Enrolment, ...]:
    """Enrolments of the further readers; ``known`` finds one by its name, and raises where there is none."""
    names, found = settings.also, tuple[Enrolment, ...]()
    if len(names) <= MOST_ALSO and len({enrolment.name, *names}) > len(names):
        found = tuple(known(name) for name in names)
    if len({enrolment.name, *(one.name for one in found)}) <= len(names):  # one may be written in two ways
        message = f"The same traces can be read with up to {MOST_ALSO} further enrolments, each named once"
        raise AtlasError(message, "Leave some out")
    return found


def _fitting(settings: Settings, own: Enrolment, enrolment: Enrolment) -> Settings:
    """The settings for a further reader, which may not know the claimed source, the error rate or all candidates.

    It weighs all of its sources where it knows fewer than two of the candidates.
    """
    among = decision.among(own, candidate_numbers(own, settings.candidates)).sources
    chosen = tuple(source for source in among if source in enrolment.sources) if settings.candidates else ()
    levels = decision.stop_levels_of(enrolment)
    level = settings.stop_level if settings.stop_level in levels or not levels else levels[0]
    claimed = settings.claimed if settings.claimed in enrolment.sources else None
    candidates = chosen if len(chosen) > 1 else ()
    return replace(
        settings, claimed=claimed, stop_level=level, orders=1, prior=None, candidates=candidates, against=None
    )

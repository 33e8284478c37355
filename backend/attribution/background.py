"""Unlabelled traffic of the kind of the traces: read, checked, and applied to their scores.

What is assumed of it, :mod:`backend.enrolment.background` explains. Only traces of its own kind are decided about, by
its own prompts, and only with error rates that were measured with such traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from backend.attribution.decision import Doubles, balanced_reference_of, measured_with_background
from backend.attribution.scoring import Attributor, Progress, Scored, Selection
from backend.attribution.settings import Report, Settings
from backend.enrolment.background import balance, effective_sources, fit_bias, pool_shares, refuse_few_sources
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.inference.domain_shift import CHARACTERS, FEWEST, PromptReference, Traffic, fit_prompt_reference
from backend.intake import COMMAND_LINE, Columns, Layout, Limits, Problem, inspect, walk
from backend.intake.encoding import opened
from backend.protocol import FOLDS
from backend.traces import Trace


@dataclass(frozen=True)
class Background:
    """A pool of unlabelled responses as an enrolment scores it."""

    name: str  # of its file
    sha256: str
    responses: int  # that count
    repeated: int  # that repeat an earlier one
    questioned: int  # that are traces in question
    shares: Doubles | None  # (C,) of sources as they spread; None where the enrolment cannot tell
    bias: Doubles  # (C,)
    mean: Doubles  # (2 d,) mean fingerprint
    prompts: PromptReference
    measured: bool  # whether the enrolment has error rates of scores that such traffic balanced

    @classmethod
    def read(
        cls,
        stream: BinaryIO,
        layout: Layout,
        attributor: Attributor,
        questioned: Collection[str],
        limits: Limits,
        progress: Callable[[Progress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Background:
        """Score a pool without the traces in question (their sha256); an AtlasError for one that cannot serve."""
        enrolment = attributor.enrolment
        selection = Selection(includes=lambda trace: trace.sha256 not in questioned)
        prompts: list[str] = []

        def noted() -> Iterator[Trace]:
            for trace in selection.traces(stream, layout, limits):
                prompts.append(trace.prompt[:CHARACTERS])
                yield trace

        scored = attributor.score(noted(), progress=progress, cancelled=cancelled)
        if not scored.complete:
            raise AtlasError("The unlabelled traffic was not read to its end", "Start again")
        same = sum(trace["sha256"] in questioned for trace in selection.exclusions)
        repeated = len(selection.exclusions) - same
        bias = fit_bias(scored.log_posteriors, _left_out(repeated, same, len(selection.problems)))
        reference, shares = balanced_reference_of(enrolment), None
        if reference is not None and reference.discriminant is not None:
            shares = pool_shares(balance(scored.log_posteriors, bias), reference.discriminant)
            refuse_few_sources(shares, enrolment.sources)
        distinct = sorted(set(prompts))
        known = fit_prompt_reference(distinct, np.arange(len(distinct)) % FOLDS)
        if known is None:
            raise AtlasError(
                f"The unlabelled traffic has fewer than {FEWEST} different prompts, so that nobody can tell whether "
                "the traces are of its kind",
                "Give responses with their prompts, to more of them",
            )
        return cls(
            layout.name, layout.sha256, len(prompts), repeated, same, shares, bias, scored.mean, known,
            measured_with_background(enrolment, distinct),
        )  # fmt: skip

    def balanced(self, scored: Scored) -> Scored:
        """Traces whose prompts :attr:`prompts` judged, with balanced scores and what their kind is to this pool."""
        kind = scored.traffic.kind
        if kind == "like" and not self.measured:
            kind = "unfitted pool"
        elif kind in ("other topic", "other language"):
            kind = "unlike pool"
        traffic = Traffic(kind, scored.traffic.p, scored.traffic.prompts)
        return replace(scored, log_posteriors=balance(scored.log_posteriors, self.bias), traffic=traffic)

    def facts(self, without: str) -> dict[str, Any]:
        """What a report says of it, as JSON; ``without`` is the source that leads without it."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "responses": self.responses,
            "repeated": self.repeated,
            "questioned": self.questioned,
            "effective_sources": None if self.shares is None else effective_sources(self.shares),
            "largest_share": None if self.shares is None else float(self.shares.max()),
            "measured": self.measured,
            "leader_without": without,
        }


def questioned_hashes(stream: BinaryIO, layout: Layout, limits: Limits) -> frozenset[str]:
    """sha256 of every trace of a file."""
    return frozenset(found.sha256 for found in walk(stream, layout, limits) if not isinstance(found, Problem))


def leader_of(scored: Scored, enrolment: Enrolment, candidates: Any = None) -> str:
    """The source that leads by plain sums, among candidates where some were chosen."""
    total = (scored.log_posteriors - enrolment.log_prior).sum(0, dtype=np.float64)
    known = np.arange(len(total)) if candidates is None else candidates
    return enrolment.sources[int(known[total[known].argmax()])]


def background_sentences(report: Report) -> list[str]:
    """What unlabelled traffic changed in a report, and what was checked of it; nothing where none was given."""
    if (pool := report.get("background")) is None:
        return []
    share, leader, without = pool["largest_share"], report["results"]["leader"], pool["leader_without"]
    left_out = _left_out(pool["repeated"], pool["questioned"], 0)
    return [
        f"Scores were balanced by {pool['responses']:,} unlabelled responses: over these, every source is as probable "
        "as the next. That assumes many sources, none of which wrote most of them.",
        "Whether one source wrote most of them cannot be checked with this enrolment."
        if share is None
        else f"Checked: they spread as those of {pool['effective_sources']:.1f} equal sources do, and the "
        f"largest share of one is about {100 * share:.0f} %.",
        *([f"Further ones do not count{left_out}."] if left_out else []),
        f"Without them {without} would lead in place of {leader}."
        if without != leader
        else f"Without them {leader} leads too.",
        "Error rates are those of such traffic, balanced alike."
        if pool["measured"]
        else "No error rates of scores that such traffic balanced are known, so that nothing is decided.",
    ]


@contextmanager
def opened_background(path: Path | None, settings: Settings) -> Iterator[tuple[BinaryIO, Layout] | None]:
    """An open file of unlabelled traffic and what it is; None where none is named."""
    if path is None:
        yield None
        return
    with opened(path) as stream:
        yield stream, layout_of(stream, path.name, settings, COMMAND_LINE)


def layout_of(stream: BinaryIO, name: str, settings: Settings, limits: Limits) -> Layout:
    """What a file of unlabelled traffic is: as the traces where their columns fit, else as it is recognised."""
    try:
        return inspect(stream, name, settings.columns, limits, settings.encoding)
    except AtlasError:
        return inspect(stream, name, Columns(), limits)


def _left_out(repeated: int, questioned: int, problems: int) -> str:
    """Which responses do not count, to go on a sentence; '' where all do."""
    parts = [(repeated, "repeat an earlier one"), (questioned, "are traces in question"), (problems, "cannot be read")]
    found = [f"{count:,} {words}" for count, words in parts if count]
    return f" ({', '.join(found)})" if found else ""

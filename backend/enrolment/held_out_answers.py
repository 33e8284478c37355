"""Answers of an enrolment about held-out groups, one group at a time (paper, Stage 2).

Source, score and lead of every group are saved in ``held-out/`` of the data folder, without text, so that an answer
about the same traces can be compared with the evaluation's. The groups are drawn again from the release.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.corpus.release import Records
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.evidence import accumulate
from backend.output_files import write
from backend.protocol import GROUPING_SEEDS, budget_groups, fold_of_prompts, grid_rows
from backend.store.database import default_data_folder
from backend.traces import Trace

Floating = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
BUDGET = 20
DRAW = 7  # seed of the draw of cases
OTHER_ENGINE = 0.5  # nats of rounding of a score on another processor (0.04 at most in ten cases)
MAKE = "Run: python -m jobs cases"


@dataclass(frozen=True)
class Grouping:
    """Groups of the protocol, fold by fold. truth, fold : (G,)."""

    rows: Ints  # (G, K); row = source * P + prompt
    truth: Ints
    fold: Ints


@dataclass(frozen=True)
class Answers:
    """What an enrolment says of every group (G,) of a budget and a grouping seed."""

    enrolment: str
    sha256: str
    k: int
    seed: int
    truth: Ints  # numbers of sources, in the order of the enrolment
    source: Ints  # that with the largest score
    score: Doubles  # nats, not calibrated
    lead: Doubles  # by how much it is above the next one
    facts: Mapping[str, Any] = field(default_factory=dict)  # how it was made; JSON

    @property
    def right(self) -> int:
        """Groups that are attributed to their own source."""
        return int((self.source == self.truth).sum())


@dataclass(frozen=True)
class Case:
    """A group with its traces; score and lead as in :class:`Answers`."""

    source: str  # whom the traces are from
    traces: tuple[Trace, ...]  # length K
    answer: str  # source that the evaluation attributes them to
    score: float
    lead: float

    def as_kept(self, report: Mapping[str, Any]) -> bool:
        """Whether a report attributes the traces as the evaluation does, with a score that differs by rounding only."""
        best = attributed(report)
        return bool(best["source"] == self.answer and abs(best["score"] - self.score) <= OTHER_ENGINE)


def grouping(sources: int, prompt_folds: Ints, k: int = BUDGET, seed: int = GROUPING_SEEDS[0]) -> Grouping:
    """Groups of ``k`` rows of ``sources`` sources inside every fold; ``prompt_folds`` of shape (P,)."""
    parts = []
    for fold in np.unique(prompt_folds):
        rows, truth = budget_groups(grid_rows(sources, len(prompt_folds), prompt_folds == fold), k, seed, int(fold))
        parts.append((rows, truth, np.full(len(truth), fold)))
    return Grouping(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def answered(log_posteriors: Floating, groups: Grouping) -> tuple[Ints, Doubles, Doubles]:
    """Source, score and lead of every group, each (G,), from out-of-fold log-posteriors (S * P, S)."""
    scores = accumulate(log_posteriors, groups.rows)
    second, first = np.sort(scores, axis=1)[:, -2:].T
    return scores.argmax(1), first, first - second


def drawn(groups: Grouping, count: int, seed: int = DRAW) -> Ints:
    """Numbers of some groups, drawn at random: every fold in turn, in each of a source that was drawn least so far."""
    if not 1 <= count <= len(groups.truth):
        raise AtlasError(f"{count:,} cases are asked for, of {len(groups.truth):,}", "Ask for fewer, and for one")
    place = np.random.default_rng(seed).permutation(len(groups.truth))
    of_fold, of_source = np.zeros(groups.fold.max() + 1), np.zeros(groups.truth.max() + 1)
    found: list[int] = []
    for _ in range(count):
        order = np.lexsort((place, of_source[groups.truth], of_fold[groups.fold]))
        found.append(next(int(number) for number in order if number not in found))
        of_fold[groups.fold[found[-1]]] += 1
        of_source[groups.truth[found[-1]]] += 1
    return np.array(found, dtype=np.intp)


def cases(answers: Answers, enrolment: Enrolment, records: Records, count: int, seed: int = DRAW) -> list[Case]:
    """Some groups with their traces, out of the records that were enrolled (Agent500).

    Raises AtlasError if the answers are of another enrolment, or the heads have seen these records in other folds.
    """
    folds, sources = fold_of_prompts(records.prompt_ids), enrolment.sources
    groups = grouping(len(sources), folds, answers.k, answers.seed)
    if answers.sha256 != enrolment.sha256 or not np.array_equal(answers.truth, groups.truth):
        raise AtlasError(f"What is kept of held-out groups is not of the enrolment '{enrolment.name}'", MAKE)
    enrolled = enrolment.folds_of([trace.prompt for trace in records.traces[: len(folds)]])
    if tuple(records.sources[: len(sources)]) != sources or enrolled != folds.tolist():
        problem = f"The enrolment '{enrolment.name}' was not made of these records"
        raise AtlasError(problem, "Give the release that it was made of (ATLAS_RELEASE)")
    found = []
    for n in drawn(groups, count, seed):
        traces = tuple(records.traces[row] for row in groups.rows[n])
        score, lead = float(answers.score[n]), float(answers.lead[n])
        found.append(Case(sources[groups.truth[n]], traces, sources[answers.source[n]], score, lead))
    return found


def attributed(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """The candidate that a report attributes its traces to as the evaluation does: by the score, not calibrated."""
    found: Mapping[str, Any] = max(report["results"]["candidates"], key=lambda row: row["score"])
    return found


def scores_of(report: Mapping[str, Any]) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """All scores of a report, to the last digit: log-posteriors of the traces, and what they come to, a source each."""
    return report["log_posteriors"], report["results"]["candidates"]


DIGITS = 3  # decimals of a score in nats


def answers_file(name: str, data_folder: Path | None = None) -> Path:
    """Where the answers of an enrolment lie."""
    return (data_folder or default_data_folder()) / "held-out" / f"{name}.json"


def save_answers(answers: Answers, path: Path) -> None:
    """Write answers in one step, scores to a thousandth of a nat. Raises AtlasError if the folder cannot be written."""
    content = {name: getattr(answers, name) for name in ("enrolment", "sha256", "k", "seed")}
    content["facts"] = dict(answers.facts)
    content |= {name: getattr(answers, name).tolist() for name in ("truth", "source")}
    content |= {name: getattr(answers, name).round(DIGITS).tolist() for name in ("score", "lead")}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(part)}" for name, part in content.items())
    write(path, f"{{{lines}}}\n")


def load_answers(name: str, data_folder: Path | None = None) -> Answers:
    """The saved answers of an enrolment. Raises AtlasError if there are none, or the file is damaged."""
    path = answers_file(name, data_folder)
    try:
        content = json.loads(path.read_text("utf-8"))
        truth, source = (np.array(content[name], dtype=np.intp) for name in ("truth", "source"))
        score, lead = (np.array(content[name], dtype=np.float64) for name in ("score", "lead"))
        enrolment, sha256 = str(content["enrolment"]), str(content["sha256"])
        k, seed, facts = int(content["k"]), int(content["seed"]), dict(content["facts"])
        return Answers(enrolment, sha256, k, seed, truth, source, score, lead, facts)
    except FileNotFoundError as error:
        problem = f"Nothing is kept of what '{name}' says of held-out groups"
        raise AtlasError(problem, f"{MAKE} --enrolment {name}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AtlasError(f"{path} is damaged ({type(error).__name__})", f"{MAKE} --enrolment {name}") from error

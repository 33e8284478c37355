"""Held-out groups with their traces, and the saved answers of an enrolment about them.

An installation that is given the traces of a case must answer as the evaluation did; ``python -m jobs cases`` saves
the answers of the evaluation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backend.corpus.release import Records
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.held_out_answers import Answers, Grouping, answers_file, grouping
from backend.errors import AtlasError
from backend.methods.readout import Ints
from backend.protocol import fold_of_prompts
from backend.traces import Trace

DRAW = 7  # seed of the draw of cases
OTHER_ENGINE = 0.5  # nats of rounding of a score on another processor (0.04 at most in ten cases)
MAKE = "Run: python -m jobs cases"


@dataclass(frozen=True)
class Case:
    """A group with its traces; score and lead as in :class:`Answers`."""

    source: str  # whom the traces are from
    traces: tuple[Trace, ...]  # length K
    answer: str  # source that the evaluation attributes them to
    score: float
    lead: float

    def as_evaluated(self, report: Mapping[str, Any]) -> bool:
        """Whether a report attributes the traces as the evaluation does, with a score that differs by rounding only."""
        best = attributed(report)
        return bool(best["source"] == self.answer and abs(best["score"] - self.score) <= OTHER_ENGINE)


def drawn(groups: Grouping, count: int, seed: int = DRAW) -> Ints:
    """Numbers of some groups, drawn at random: every fold in turn, in each of a source that was drawn least so far."""
    if not 1 <= count <= len(groups.truth):
        raise AtlasError(f"{count:,} cases are requested, of {len(groups.truth):,}", "Request at least one, and fewer")
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
    """Some groups with their traces, out of the records (Agent500) that were enrolled; AtlasError for any others."""
    folds, sources = fold_of_prompts(records.prompt_ids), enrolment.sources
    groups = grouping(len(sources), folds, answers.k, answers.seed)
    if answers.sha256 != enrolment.sha256 or not np.array_equal(answers.truth, groups.truth):
        raise AtlasError(f"The saved answers about held-out groups are not of the enrolment '{enrolment.name}'", MAKE)
    enrolled = enrolment.folds_of([trace.prompt for trace in records.traces[: len(folds)]])
    if tuple(records.sources[: len(sources)]) != sources or enrolled != folds.tolist():
        remedy = "Give its release (ATLAS_RELEASE)"
        raise AtlasError(f"The enrolment '{enrolment.name}' is not of these records", remedy)
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
    """All scores of a report, to the last digit: log-posteriors of the traces, and the sum of every source."""
    return report["log_posteriors"], report["results"]["candidates"]


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
        problem = f"There are no saved answers of '{name}' about held-out groups"
        raise AtlasError(problem, f"{MAKE} --enrolment {name}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AtlasError(f"{path} is damaged ({type(error).__name__})", f"{MAKE} --enrolment {name}") from error

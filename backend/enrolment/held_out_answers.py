"""Answers of an enrolment about held-out prompts, of rows and of groups (paper, Stage 2).

Answers about groups are saved in ``held-out/`` of the data folder, without text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice, slice_of
from backend.enrolment.enrolment import Enrolment, Others, read_auxiliary_models
from backend.errors import AtlasError
from backend.evaluations.corpus import truncation_tokenizer
from backend.evidence import accumulate
from backend.intake.traces import whole
from backend.methods.ensemble import Ensemble, Head
from backend.methods.readout import Doubles, Floats, Ints, Rows
from backend.methods.stack import cells_of
from backend.output_files import write
from backend.protocol import GROUPING_SEEDS, budget_groups, grid_rows
from backend.proxies.encoding import count_tokens
from backend.store.builds import code_version, command_line, host, portable
from backend.store.database import default_data_folder
from backend.traces import Trace

Scores = Callable[[Head, npt.NDArray[np.bool_]], tuple[Floats, Floats | float]]
"""Log-posteriors (m, C) of a head on chosen rows (n,), and by how much the saved ones may be rounded."""
ROUNDING = 5e-3  # nats by which a log-posterior may differ from that of the evaluation: half precision, codes
HALF = 2.0**-11  # share of a number by which half precision may round it
BUDGET = 20
DIGITS = 3  # decimals of a score in nats


def check_heads(
    enrolment: Enrolment, rows: Slice, evaluated: Floats, of_heads: Scores, rerun_command: str, some: Ints | None = None
) -> float:
    """Largest difference in nats between heads and evaluation on ``some`` rows; AtlasError if above rounding."""
    folds = np.tile(rows.prompt_folds, len(rows.sources))
    compared = np.isin(np.arange(len(folds)), np.arange(len(folds)) if some is None else some)
    furthest, allowed = 0.0, True
    for head in enrolment.heads:
        if not (test := (folds == head.fold) & compared).any():
            continue
        values, rounding = of_heads(head, test)
        apart = np.abs(values - evaluated[test])
        furthest, allowed = max(furthest, float(apart.max())), allowed and bool((apart <= ROUNDING + rounding).all())
    if not allowed:
        why = f"by {furthest:.2g} nats: they were fitted on something else"
        problem = f"The heads of {enrolment.reader} differ from the log-posteriors that its evaluation saved, {why}"
        raise AtlasError(problem, f"Evaluate it again: {rerun_command}")
    return furthest


def of_states(enrolment: Enrolment, rows: Slice, traces: Sequence[Trace] | None = None) -> Scores:
    """Log-posteriors of heads that read stored fingerprints, and with n-grams traces."""
    cells, counts = np.zeros(len(rows.labels), dtype=np.intp), None
    if traces is not None:
        texts = [whole(trace.response) for trace in traces]
        cells, counts = cells_of(count_tokens(truncation_tokenizer(), traces), texts), enrolment.counts(texts)

    def score(head: Head, chosen: npt.NDArray[np.bool_]) -> tuple[Floats, float]:
        variant = enrolment.form.variant if enrolment.form else "full"
        by_layer = {layer: rows.load(layer, variant)[chosen] for layer in head.layers}
        words = None if counts is None else counts[np.flatnonzero(chosen)]
        return head.log_posterior(enrolment.coordinates(head, by_layer, words), cells[chosen]), 0.0

    return score


def of_texts(enrolment: Enrolment, responses: Sequence[str]) -> Scores:
    """Log-posteriors of heads that read whole responses, length n in the order of the rows."""
    counts = enrolment.counts([whole(response) for response in responses])
    return lambda head, chosen: (head.log_posterior(counts[np.flatnonzero(chosen)], np.zeros(0, dtype=np.intp)), 0.0)


def of_members(enrolment: Enrolment, rows: Mapping[str, Slice], traces: Sequence[Trace], others: Others) -> Scores:
    """Log-posteriors of ensembles: stored fingerprints of every proxy, texts and embeddings."""

    def score(head: Head, chosen: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        some = [traces[row] for row in np.flatnonzero(chosen).tolist()]
        read = read_auxiliary_models(enrolment, some, others)
        for name, part in rows.items():
            layers = head.layers if name == enrolment.proxy else enrolment.auxiliary.get(name, ())
            read[name] = {layer: part.load(layer)[chosen] for layer in layers}
        cells = cells_of(count_tokens(truncation_tokenizer(), some), [whole(trace.response) for trace in some])
        assert isinstance(head.probe, Ensemble)
        # The evaluation saves scores of members in half precision, and weighs these.
        rounding = HALF * head.probe.magnitude(read, cells)
        values = head.log_posterior(read, cells)
        return values, rounding + (np.exp(values) * rounding).sum(1, keepdims=True)

    return score


class Grouping(NamedTuple):
    """Groups of the protocol, fold by fold."""

    rows: Ints  # (G, K); row = source * P + prompt
    truth: Ints  # (G,)
    fold: Ints  # (G,)


@dataclass(frozen=True)
class Answers:
    """Answers of an enrolment about every group (G,) of a budget and a grouping seed."""

    enrolment: str
    sha256: str
    k: int
    seed: int
    truth: Ints  # numbers of sources, in the order of the enrolment
    source: Ints  # that with the largest score
    score: Doubles  # nats, not calibrated
    lead: Doubles  # by how much it is above the next one
    facts: Mapping[str, Any] = field(default_factory=dict)  # of its creation; JSON

    @property
    def right(self) -> int:
        """Groups that are attributed to their own source."""
        return int((self.source == self.truth).sum())


def grouping(sources: int, prompt_folds: Ints, k: int, seed: int = GROUPING_SEEDS[0]) -> Grouping:
    """Groups of ``k`` rows of ``sources`` sources inside every fold; ``prompt_folds`` of shape (P,)."""
    parts = []
    for fold in np.unique(prompt_folds):
        rows, truth = budget_groups(grid_rows(sources, len(prompt_folds), prompt_folds == fold), k, seed, int(fold))
        parts.append((rows, truth, np.full(len(truth), fold)))
    return Grouping(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def answered(log_posteriors: Rows, groups: Grouping) -> tuple[Ints, Doubles, Doubles]:
    """Source, score and lead of every group, each (G,), from out-of-fold log-posteriors (S * P, S)."""
    scores = accumulate(log_posteriors, groups.rows)
    second, first = np.sort(scores, axis=1)[:, -2:].T
    return scores.argmax(1), first, first - second


def reads_stored(enrolment: Enrolment) -> bool:
    """Whether it is of a roster, with a head for every fold that reads states alone or with words."""
    whole_roster = any(head.fold is None for head in enrolment.heads)
    return "roster" in enrolment.facts and enrolment.form is not None and not whole_roster


def fills_groups(enrolment: Enrolment, k: int = BUDGET) -> bool:
    """Whether every fold holds the prompts of a group."""
    return int(np.bincount(enrolment.folds).min()) >= k


def answers_of(enrolment: Enrolment, release: Release, k: int = BUDGET) -> Answers:
    """Answers of a roster's enrolment to the first grouping; AtlasError without fingerprints."""
    roster = str(enrolment.facts["roster"])
    if not fills_groups(enrolment, k):
        raise AtlasError(f"The folds of '{enrolment.name}' do not all hold {k} prompts", "Give a smaller --k")
    rows = slice_of(release, "agent500", enrolment.proxy, enrolment.view, roster)
    groups = grouping(len(rows.sources), rows.prompt_folds, k)
    for layer in {layer for head in enrolment.heads for layer in head.layers}:
        rows.load(layer, enrolment.form.variant if enrolment.form else "full")  # fails before all texts are counted
    score_rows = of_states(enrolment, rows, release.records("agent500").traces[: len(rows.labels)])
    folds = np.tile(rows.prompt_folds, len(rows.sources))
    log_posteriors = np.empty((len(folds), len(rows.sources)), dtype=np.float32)
    for head in enrolment.heads:
        unseen = folds == head.fold
        log_posteriors[unseen] = score_rows(head, unseen)[0]
    identity = rows.store.identity()
    source, score, lead = answered(log_posteriors, groups)
    facts: dict[str, Any] = {"benchmark": "agent500", "roster": roster, "reader": enrolment.reader}
    facts |= {"data_hash": release.manifest_hash, "engine": identity.engine if identity else None, "host": host()}
    facts |= {"code_version": code_version(), "command": portable(command_line())}
    return Answers(enrolment.name, enrolment.sha256, k, GROUPING_SEEDS[0], groups.truth, source, score, lead, facts)


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

"""Choose a method for a corpus by inner prompt folds, for every outer fold on its own.

For an outer fold, candidates are compared on two other folds, by models that saw neither; the weights of members come
from one of them where the other is scored. Sources weigh alike, however many traces each has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from backend.enrolment.head_fits import METHODS, Fits, FittedHeads, Tuning, heads_of
from backend.evaluations.corpus import Corpus
from backend.evaluations.readout_bank import SETTINGS
from backend.evaluations.readouts import (
    MODELS,
    TRAINED,
    fit_discriminants,
    models_of,
    score_alone,
    scores_shape,
    validation,
)
from backend.methods.stack import CELLS, fit_stack
from backend.protocol import CLEAN, FOLDS

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
T = TypeVar("T")
AUTO = "auto"  # stands for the choice where a method is named
SHRINKAGES = (0.05, 0.1, 0.2, 0.4, 0.7)  # candidates for the share of the diagonal in the covariance of discriminants
STEPS = 900  # steps of the n-grams' fit on the largest rosters; with fewer traces more passes make as many


@dataclass(frozen=True)
class Choice:
    """What was chosen, and why; scores are of single traces on the inner folds of every outer fold."""

    methods: tuple[str, ...]  # length FOLDS; with the highest mean log score on the inner folds; the simpler of equals
    tunings: tuple[Tuning, ...]  # length FOLDS
    accuracy: dict[str, Doubles]
    log_score: dict[str, Doubles]

    @property
    def facts(self) -> dict[str, Any]:
        """For an enrolment; JSON."""
        return {
            "by": "mean log score on inner prompt folds",
            "methods": list(self.methods),
            "shrinkage": [tuning.shrinkage for tuning in self.tunings],
            "epochs": [tuning.epochs for tuning in self.tunings],
            "candidates": {
                method: {
                    "accuracy": [round(float(value), 4) for value in self.accuracy[method]],
                    "log_score": [round(float(value), 4) for value in self.log_score[method]],
                }
                for method in self.log_score
            },
        }

    @property
    def lines(self) -> list[str]:
        """Sentences: every candidate, then what was chosen."""
        said = [
            f"  {method}: accuracy {self.accuracy[method].mean():.3f} at K = 1, mean log score "
            f"{self.log_score[method].mean():.3f}"
            for method in self.log_score
        ]
        counts = {method: self.methods.count(method) for method in dict.fromkeys(self.methods)}
        folds = ", ".join(f"{method} in {count} of {FOLDS} folds" for method, count in counts.items())
        chosen = self.methods[0] if len(counts) == 1 else folds
        return ["Candidates, by inner prompt folds:", *said, f"Chosen by the higher log score: {chosen}"]


def choose(
    fits: Fits, shrinkages: Sequence[float] = SHRINKAGES, progress: Callable[[], object] | None = None
) -> Choice:
    """Compare all methods on the inner folds of every outer fold; ``progress`` is called after each of them."""
    corpus = fits.corpus
    passes = _best({one: _log_scores(fits.word_scores(one)[CLEAN], corpus) for one in passes_of(corpus)})
    tunings = tuple(map(Tuning, _choose_shrinkage(fits, shrinkages), passes))
    accuracy, log_score = ({method: np.empty(FOLDS) for method in METHODS} for _ in range(2))
    for method in METHODS:
        for fold in range(FOLDS):
            members = list(fits.scores(method, tunings[fold])[CLEAN].values())
            accuracy[method][fold], log_score[method][fold] = inner_scores(members, corpus, fits.cells[CLEAN], fold)
        if progress:
            progress()
    return Choice(_best(log_score), tunings, accuracy, log_score)


def passes_of(corpus: Corpus) -> tuple[int, ...]:
    """Candidates for the passes of n-grams: as for rosters, and as many as make :data:`STEPS` steps."""
    copies = sum(length in corpus.texts for length in TRAINED)
    rows = copies * len(corpus.labels) * (FOLDS - 1) / FOLDS
    enough = round(STEPS * SETTINGS.batch / max(rows, SETTINGS.batch))
    return (SETTINGS.epochs, enough) if enough > SETTINGS.epochs else (SETTINGS.epochs,)


def fit_chosen(fits: Fits, choice: Choice) -> FittedHeads:
    """Heads of what was chosen; where the folds do not agree, each is a stack of its own method's members."""
    if len(set(choice.methods)) == 1:
        return heads_of(fits, choice.methods[0], choice.tunings)
    return fits.stacked(choice.methods, choice.tunings)


def inner_scores(
    members: Sequence[npt.NDArray[np.floating]], corpus: Corpus, cells: Ints, outer: int
) -> tuple[float, float]:
    """Accuracy and mean log score of a weighted sum of members (SLOTS, n, C) on the inner folds of an outer one."""
    parts = [(slot, np.flatnonzero(corpus.folds == fold)) for slot, fold in validation(outer)]
    labels, said = [], []
    for (slot, rows), (other, fitted) in (parts, parts[::-1]):
        weighed = [np.asarray(member[other, fitted], dtype=np.float32) for member in members]
        stack = fit_stack(weighed, corpus.labels[fitted], cells[fitted], CELLS)
        scored = [np.asarray(member[slot, rows], dtype=np.float32) for member in members]
        said.append(stack.log_posterior(scored, cells[rows]))
        labels.append(corpus.labels[rows])
    truth, values = np.concatenate(labels), np.concatenate(said)
    right, score = values.argmax(1) == truth, values[np.arange(len(truth)), truth]
    seen = np.bincount(truth, minlength=corpus.classes)
    present = seen > 0
    means = [np.bincount(truth, part, corpus.classes)[present] / seen[present] for part in (right, score)]
    return float(means[0].mean()), float(means[1].mean())


def _choose_shrinkage(fits: Fits, shrinkages: Sequence[float]) -> tuple[float, ...]:
    """The shrinkage of every outer fold, by discriminants of whole responses."""
    corpus, (moments, *_) = fits.corpus, fits.moments.values()
    load, _ = corpus.load(fits.blocks)
    found = {}
    for value in shrinkages:
        scores = np.full(scores_shape(len(corpus.labels), corpus.classes), np.nan, dtype=np.float16)
        for model, readout in fit_discriminants(moments, value, range(FOLDS, len(MODELS))).items():
            for slot, part in score_alone(load, corpus.folds, model, readout).items():
                (fold,) = (fold for fold in MODELS[model] if models_of(fold)[slot] == model)
                scores[slot, corpus.folds == fold] = part
        found[value] = _log_scores(scores, corpus)
    return _best(found)


def _log_scores(scores: npt.NDArray[np.floating], corpus: Corpus) -> Doubles:
    """Mean log score (FOLDS,) of one member (SLOTS, n, C) by one weight."""
    alone = np.zeros(len(corpus.labels), dtype=np.intp)
    return np.array([inner_scores([scores], corpus, alone, fold)[1] for fold in range(FOLDS)])


def _best(found: Mapping[T, Doubles]) -> tuple[T, ...]:
    """What scores highest in every fold, the first of equals."""
    names, table = list(found), np.stack(list(found.values()))
    return tuple(names[row] for row in table.argmax(0))

"""Heads of a method, a prompt fold each, fitted to any corpus, and the choice of a method (paper, Stage 1).

Blocks, weights, n-grams and shares of members come from the other folds alone. A choice compares candidates for every
outer fold on two other folds, by models that saw neither. Sources weigh alike, however many traces each has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from backend.evaluations import readouts
from backend.evaluations.corpus import Corpus
from backend.methods.discriminant import DiscriminantBank, Moments, NgramBank
from backend.methods.ensemble import Ensemble, Head, Member
from backend.methods.ngrams import CodedGrams, GramReadout
from backend.methods.readout import Doubles, Floats, Half, Ints
from backend.methods.registry import FUSED_LIVE, LDA_LIVE, LINEAR, OF_TRACES, WORDS
from backend.methods.registry import METHODS as METHODS_BY_ID
from backend.methods.stack import CELLS, fit_stack
from backend.protocol import CLEAN, FOLDS, READER_PAPER, balance_rows

METHODS = OF_TRACES  # methods that any corpus can be enrolled by, the simplest first
T = TypeVar("T")
K = TypeVar("K")
AUTO = "auto"  # stands for the choice where a method is named
SHRINKAGES = (0.05, 0.1, 0.2, 0.4, 0.7)  # candidates for the share of the diagonal in the covariance of discriminants
STEPS = 900  # steps of the n-grams' fit on the largest rosters; with fewer traces more passes make as many


@dataclass(frozen=True)
class Tuning:
    """What inner folds may choose of a fit; as rosters are fitted by default."""

    shrinkage: float = readouts.SHRINKAGE  # of the discriminants
    epochs: int = readouts.WORD_SETTINGS.epochs  # passes of the n-grams over their rows


AS_ROSTERS = (Tuning(),) * FOLDS


@dataclass(frozen=True)
class FittedHeads:
    """Heads of a method, and their scores of traces that they have not seen."""

    method: str
    heads: tuple[Head, ...]  # one a fold
    log_posteriors: dict[str, Floats]  # by condition (n, C), out-of-fold, as the heads are served


def once(fit: Callable[[Fits, K], T]) -> Callable[[Fits, K], T]:
    """A method of :class:`Fits` whose result for a key is computed at the first call."""

    @wraps(fit)
    def known(fits: Fits, key: K) -> T:
        place = fit.__name__, key
        if place not in fits.known:
            fits.known[place] = fit(fits, key)
        found: T = fits.known[place]
        return found

    return known


class Fits:
    """Fitted models of a corpus: discriminants of ``blocks``, and a probe a fold at its layer."""

    def __init__(self, corpus: Corpus, proxy: str, blocks: Sequence[int], layer_of_fold: Mapping[int, int]) -> None:
        self.corpus, self.proxy = corpus, proxy
        self.blocks, self.layer_of_fold = tuple(blocks), dict(layer_of_fold)
        self.known: dict[tuple[str, object], Any] = {}

    @cached_property
    def cells(self) -> dict[str, Ints]:
        """Cell of every trace under each condition."""
        return self.corpus.cells()

    @cached_property
    def moments(self) -> dict[str, list[Moments]]:
        """Moments that discriminants are fitted to."""
        return self._rows.moments()

    @once
    def fitted(self, method: str) -> dict[int, Any]:
        """Readout of every outer fold of a method that reads one block."""
        return {fold: self._fit(method, (fold,), layer) for fold, layer in sorted(self.layer_of_fold.items())}

    @once
    def fitted_scores(self, method: str) -> dict[str, Half]:
        """Scores (SLOTS, n, C) by readouts of one block, each at the block of its outer fold."""
        corpus = self.corpus
        out = {c: np.empty(readouts.scores_shape(len(corpus.labels), corpus.classes), np.float16) for c in corpus.texts}
        for fold in range(FOLDS):
            rows = np.flatnonzero(corpus.folds == fold)
            for slot, model in enumerate(readouts.models_of(fold)):
                (outer,) = {fold} if model < FOLDS else readouts.MODELS[model] - {fold}
                layer, unseen = self.layer_of_fold[outer], tuple(readouts.MODELS[model])
                readout = self.fitted(method)[fold] if model < FOLDS else self._fit(method, unseen, layer)
                for condition, scores in out.items():
                    read = corpus.fingerprints(layer, condition)[rows].astype(np.float32)
                    scores[slot, rows] = readout.log_posterior(read)
        return out

    @once
    def banks(self, shrinkage: float) -> readouts.BankMembers:
        """Discriminants of all models with some shrinkage."""
        return readouts.fit_bank_members(self._rows, shrinkage, self.moments)

    @once
    def words(self, epochs: int) -> dict[int, CodedGrams]:
        """N-gram classifiers of all models after some passes."""
        settings = replace(readouts.WORD_SETTINGS, epochs=epochs)
        return dict(readouts.fit_words(self.corpus.counts(), *self._labels, settings=settings))

    @once
    def word_scores(self, epochs: int) -> dict[str, Half]:
        """Their scores (SLOTS, n, C) under every condition."""
        return readouts.score_words(self.corpus.counts(), *self._labels[1:], self.words(epochs))

    def scores(self, method: str, tuning: Tuning) -> dict[str, dict[str, npt.NDArray[np.floating]]]:
        """Scores (SLOTS, n, C) of a method's members under every condition."""
        out: dict[str, dict[str, npt.NDArray[np.floating]]] = {condition: {} for condition in self.corpus.texts}
        for condition, scores in out.items():
            for part in METHODS_BY_ID[method].parts:
                if part == LDA_LIVE:
                    scores.update(self.banks(tuning.shrinkage).scores[condition])
                elif part == WORDS:
                    scores[readouts.WORDS] = self.word_scores(tuning.epochs)[condition]
                else:
                    scores[part] = self.fitted_scores(part)[condition]
        return out

    def paper(self) -> FittedHeads:
        """Heads of the paper's probe."""
        layers = self.layer_of_fold
        heads = {f: Head(probe, (layers[f],), f) for f, probe in self.fitted(READER_PAPER).items()}

        def score(fold: int, condition: str, rows: npt.NDArray[np.bool_]) -> Floats:
            read = self.corpus.fingerprints(layers[fold], condition)[rows].astype(np.float32)
            return heads[fold].log_posterior(read, np.zeros(0, dtype=np.intp))

        return self._heads(READER_PAPER, heads, score)

    def live(self, method: str, tunings: Sequence[Tuning]) -> FittedHeads:
        """Heads of discriminants in few bits, each fold with its own tuning; for fused-live with n-grams."""
        with_words = method == FUSED_LIVE
        served, heads = {}, {}
        for tuning in dict.fromkeys(tunings):
            words, members = self.word_scores(tuning.epochs) if with_words else None, self.banks(tuning.shrinkage)
            served[tuning] = readouts.serve_banks(self._rows, self.cells, words=words, bank_members=members)
        for fold, tuning in enumerate(tunings):
            bank: DiscriminantBank | NgramBank = served[tuning].banks[fold]
            if with_words:
                shares = served[tuning].shares[fold]
                bank = NgramBank(served[tuning].banks[fold], self.words(tuning.epochs)[fold], shares)
            heads[fold] = Head(bank, self.blocks, fold)
        return self._heads(method, heads, lambda fold, c, rows: served[tunings[fold]].served[c][rows])

    def stacked(self, methods: Sequence[str], tunings: Sequence[Tuning]) -> FittedHeads:
        """Heads as stacks of exact members, each fold of a method of its own."""
        choices = list(zip(methods, tunings, strict=True))
        fused = {choice: self.fused(*choice) for choice in dict.fromkeys(choices)}
        heads = {}
        for fold, choice in enumerate(choices):
            members = self._members(*choice, fold)
            layers = tuple(sorted({layer for member in members for layer in member.layers}))
            heads[fold] = Head(Ensemble(members, fused[choice].stacks[fold].weights), layers, fold)
        name = methods[0] if len(set(methods)) == 1 else LINEAR
        return self._heads(name, heads, lambda fold, c, rows: fused[choices[fold]].posteriors[c][rows])

    def fused(self, method: str, tuning: Tuning) -> readouts.Fused:
        """A method's members weighed on validation rows of every outer fold."""
        scores = self.scores(method, tuning)
        return readouts.fuse(scores, self.corpus.labels, self.corpus.folds, self.cells, CELLS, list(scores[CLEAN]))

    def _heads(
        self, method: str, heads: Mapping[int, Head], score: Callable[[int, str, npt.NDArray[np.bool_]], Floats]
    ) -> FittedHeads:
        """Heads by fold, each with the scores of the rows of its own fold."""
        corpus = self.corpus
        out = {c: np.empty((len(corpus.labels), corpus.classes), np.float32) for c in corpus.texts}
        for fold in heads:
            test = corpus.folds == fold
            for condition, scores in out.items():
                scores[test] = score(fold, condition, test)
        return FittedHeads(method, tuple(heads.values()), out)

    def _members(self, method: str, tuning: Tuning, fold: int) -> tuple[Member, ...]:
        """Models behind :meth:`scores`, in its order."""
        members: list[Member] = []
        for part in METHODS_BY_ID[method].parts:
            if part == LDA_LIVE:
                fits = self.banks(tuning.shrinkage).fits.values()
                members += [Member(self.proxy, self.blocks, models[fold]) for models in fits]
            elif part == WORDS:
                words = self.words(tuning.epochs)[fold]
                grams = GramReadout(words.columns.astype(np.intp), words.idf, words.weight, words.bias)
                members.append(Member("word", (), grams))
            else:
                members.append(Member(self.proxy, (self.layer_of_fold[fold],), self.fitted(part)[fold]))
        return tuple(members)

    def _fit(self, method: str, unseen: tuple[int, ...], layer: int) -> Any:
        corpus = self.corpus
        train = np.flatnonzero(~np.isin(corpus.folds, unseen))
        train = train[balance_rows(corpus.labels[train])]
        rows = corpus.fingerprints(layer, CLEAN)[train].astype(np.float32)
        return METHODS_BY_ID[method].fitted(rows, corpus.labels[train], corpus.classes)

    @property
    def _rows(self) -> readouts.BankRows:
        loads = {condition: self.corpus.load(self.blocks, condition) for condition in self.corpus.texts}
        by_condition = {condition: load for condition, (load, _) in loads.items()}
        return readouts.BankRows(by_condition, loads[CLEAN][1], *self._labels)

    @property
    def _labels(self) -> tuple[Ints, Ints, int]:
        return self.corpus.labels, self.corpus.folds, self.corpus.classes


def heads_of(fits: Fits, method: str, tunings: Sequence[Tuning] = AS_ROSTERS) -> FittedHeads:
    """Heads of one of :data:`METHODS`; ValueError for another."""
    if method == READER_PAPER:
        return fits.paper()
    if method in (LDA_LIVE, FUSED_LIVE):
        return fits.live(method, tunings)
    if method in OF_TRACES:
        return fits.stacked((method,) * FOLDS, tunings)
    raise ValueError(f"{method} cannot be fitted to any corpus")


@dataclass(frozen=True)
class Choice:
    """A method for every outer fold; scores are of single traces on the inner folds of each."""

    methods: tuple[str, ...]  # of the highest mean log score; the simpler of equals
    tunings: tuple[Tuning, ...]
    accuracy: dict[str, Doubles]  # by method (FOLDS,)
    log_score: dict[str, Doubles]

    @property
    def facts(self) -> dict[str, Any]:
        """For an enrolment; JSON."""
        measured = {"accuracy": self.accuracy, "log_score": self.log_score}
        return {
            "by": "mean log score on inner prompt folds",
            "methods": list(self.methods),
            "shrinkage": [tuning.shrinkage for tuning in self.tunings],
            "epochs": [tuning.epochs for tuning in self.tunings],
            "candidates": {
                method: {name: [round(float(value), 4) for value in of[method]] for name, of in measured.items()}
                for method in self.log_score
            },
        }

    @property
    def lines(self) -> list[str]:
        """Sentences: every candidate, then what was chosen."""
        candidates = [
            f"  {method}: accuracy {self.accuracy[method].mean():.3f} at K = 1, mean log score {scores.mean():.3f}"
            for method, scores in self.log_score.items()
        ]
        counts = {method: self.methods.count(method) for method in dict.fromkeys(self.methods)}
        folds = ", ".join(f"{method} in {count} of {FOLDS} folds" for method, count in counts.items())
        chosen = self.methods[0] if len(counts) == 1 else folds
        return ["Candidates, by inner prompt folds:", *candidates, f"Chosen by the higher log score: {chosen}"]


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
    settings, copies = readouts.WORD_SETTINGS, sum(length in corpus.texts for length in readouts.TRAINED)
    rows = copies * len(corpus.labels) * (FOLDS - 1) / FOLDS
    enough = round(STEPS * settings.batch / max(rows, settings.batch))
    return (settings.epochs, enough) if enough > settings.epochs else (settings.epochs,)


def fit_chosen(fits: Fits, choice: Choice) -> FittedHeads:
    """Heads of a choice; where the folds do not agree, each is a stack of its own method's members."""
    if len(set(choice.methods)) == 1:
        return heads_of(fits, choice.methods[0], choice.tunings)
    return fits.stacked(choice.methods, choice.tunings)


def inner_scores(
    members: Sequence[npt.NDArray[np.floating]], corpus: Corpus, cells: Ints, outer: int
) -> tuple[float, float]:
    """Accuracy and mean log score of a weighted sum of members (SLOTS, n, C) on the inner folds of an outer one."""
    parts = [(slot, np.flatnonzero(corpus.folds == fold)) for slot, fold in readouts.validation(outer)]
    labels, log_posteriors = [], []
    for (slot, rows), (other, fitted) in (parts, parts[::-1]):
        weighed = [np.asarray(member[other, fitted], dtype=np.float32) for member in members]
        stack = fit_stack(weighed, corpus.labels[fitted], cells[fitted], CELLS)
        scored = [np.asarray(member[slot, rows], dtype=np.float32) for member in members]
        log_posteriors.append(stack.log_posterior(scored, cells[rows]))
        labels.append(corpus.labels[rows])
    truth, values = np.concatenate(labels), np.concatenate(log_posteriors)
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
        scores = np.full(readouts.scores_shape(len(corpus.labels), corpus.classes), np.nan, dtype=np.float16)
        for model, readout in readouts.fit_discriminants(moments, value, range(FOLDS, len(readouts.MODELS))).items():
            for slot, part in readouts.score_alone(load, corpus.folds, model, readout).items():
                (fold,) = (fold for fold in readouts.MODELS[model] if readouts.models_of(fold)[slot] == model)
                scores[slot, corpus.folds == fold] = part
        found[value] = _log_scores(scores, corpus)
    return _best(found)


def _log_scores(scores: npt.NDArray[np.floating], corpus: Corpus) -> Doubles:
    """Mean log score (FOLDS,) of one member (SLOTS, n, C) by one weight."""
    alone = np.zeros(len(corpus.labels), dtype=np.intp)
    return np.array([inner_scores([scores], corpus, alone, fold)[1] for fold in range(FOLDS)])


def _best(found: Mapping[T, Doubles]) -> tuple[T, ...]:
    """The key of the highest score in every fold, the first of equals."""
    names, table = list(found), np.stack(list(found.values()))
    return tuple(names[row] for row in table.argmax(0))

"""Heads of a method, a prompt fold each, fitted to any corpus (paper, Stage 1).

Blocks, weights, n-grams and shares of members come from the other folds alone. The out-of-fold log-posteriors are those
of the heads as they are served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.evaluations.corpus import Corpus
from backend.evaluations.readout_bank import (
    SETTINGS,
    SHRINKAGE,
    BankMembers,
    fit_bank_members,
    fit_words,
    member_moments,
    score_words,
    serve_banks,
)
from backend.evaluations.readout_bank import WORDS as MEMBER
from backend.evaluations.readouts import MODELS, Fused, Load, fuse, models_of, scores_shape
from backend.methods.discriminant import Moments
from backend.methods.discriminant_bank import NgramBank
from backend.methods.ensemble import Ensemble, Member
from backend.methods.head import Head
from backend.methods.ngram_readouts import CodedGrams, GramReadout
from backend.methods.registry import FUSED_LIVE, LDA_LIVE, LINEAR, OF_TRACES, WORDS
from backend.methods.registry import METHODS as METHODS_BY_ID
from backend.methods.stack import CELLS
from backend.protocol import CLEAN, FOLDS, READER_PAPER, balance_rows

Floats = npt.NDArray[np.float32]
Half = npt.NDArray[np.float16]
Ints = npt.NDArray[np.intp]
METHODS = OF_TRACES
"""Methods that any corpus can be enrolled by, the simplest first."""
KIND = "word"


@dataclass(frozen=True)
class Tuning:
    """What inner folds may choose of a fit; as rosters are fitted by default."""

    shrinkage: float = SHRINKAGE  # of the discriminants
    epochs: int = SETTINGS.epochs  # passes of the n-grams over their rows


AS_ROSTERS = (Tuning(),) * FOLDS


@dataclass(frozen=True)
class FittedHeads:
    """Heads and what they say of traces that they have not seen."""

    method: str
    heads: tuple[Head, ...]  # one a fold
    log_posteriors: dict[str, Floats]  # dict of condition to (n, C), float32; out-of-fold, as the heads are served


class Fits:
    """Fitted models of a corpus; each is fitted when it is first needed.

    blocks : those that discriminants read; ``layer_of_fold`` is that of the probe of every outer fold.
    """

    def __init__(self, corpus: Corpus, proxy: str, blocks: Sequence[int], layer_of_fold: Mapping[int, int]) -> None:
        self.corpus, self.proxy = corpus, proxy
        self.blocks, self.layer_of_fold = tuple(blocks), dict(layer_of_fold)
        self._fitted: dict[str, dict[int, Any]] = {}
        self._fitted_scores: dict[str, dict[str, Half]] = {}
        self._banks: dict[float, BankMembers] = {}
        self._words: dict[int, dict[int, CodedGrams]] = {}
        self._word_scores: dict[int, dict[str, Half]] = {}

    @cached_property
    def cells(self) -> dict[str, Ints]:
        """Cell of every trace under each condition."""
        return self.corpus.cells()

    def fitted(self, method: str) -> dict[int, Any]:
        """Readout of every outer fold of a method that reads one block."""
        if method not in self._fitted:
            of_fold = sorted(self.layer_of_fold.items())
            self._fitted[method] = {fold: self._fit(method, (fold,), layer) for fold, layer in of_fold}
        return self._fitted[method]

    @cached_property
    def moments(self) -> dict[str, list[Moments]]:
        """Moments that discriminants are fitted to."""
        loads, width = self._loads()
        corpus = self.corpus
        return member_moments(loads, width, corpus.labels, corpus.folds, corpus.classes)

    def fitted_scores(self, method: str) -> dict[str, Half]:
        """What readouts of one block say, (SLOTS, n, C), each at the block of the outer fold that it serves."""
        if method in self._fitted_scores:
            return self._fitted_scores[method]
        corpus = self.corpus
        out = {c: np.empty(scores_shape(len(corpus.labels), corpus.classes), np.float16) for c in corpus.texts}
        for fold in range(FOLDS):
            rows = np.flatnonzero(corpus.folds == fold)
            for slot, model in enumerate(models_of(fold)):
                (outer,) = {fold} if model < FOLDS else MODELS[model] - {fold}
                layer = self.layer_of_fold[outer]
                held_out = tuple(MODELS[model])
                readout = self.fitted(method)[fold] if model < FOLDS else self._fit(method, held_out, layer)
                for condition, scores in out.items():
                    read = corpus.fingerprints(layer, condition)[rows].astype(np.float32)
                    scores[slot, rows] = readout.log_posterior(read)
        self._fitted_scores[method] = out
        return out

    def banks(self, shrinkage: float) -> BankMembers:
        """Discriminants of all models with some shrinkage."""
        if shrinkage not in self._banks:
            loads, width = self._loads()
            corpus = self.corpus
            self._banks[shrinkage] = fit_bank_members(
                loads, width, corpus.labels, corpus.folds, corpus.classes, shrinkage, self.moments
            )
        return self._banks[shrinkage]

    def words(self, epochs: int) -> dict[int, CodedGrams]:
        """N-gram classifiers of all models after some passes."""
        if epochs not in self._words:
            corpus, settings = self.corpus, replace(SETTINGS, epochs=epochs)
            fitted = fit_words(corpus.counts(), corpus.labels, corpus.folds, corpus.classes, settings=settings)
            self._words[epochs] = dict(fitted)
        return self._words[epochs]

    def word_scores(self, epochs: int) -> dict[str, Half]:
        """What they say, (SLOTS, n, C), under every condition."""
        if epochs not in self._word_scores:
            corpus = self.corpus
            self._word_scores[epochs] = score_words(corpus.counts(), corpus.folds, corpus.classes, self.words(epochs))
        return self._word_scores[epochs]

    def scores(self, method: str, tuning: Tuning) -> dict[str, dict[str, npt.NDArray[np.floating]]]:
        """Scores (SLOTS, n, C) of a method's members under every condition."""
        out: dict[str, dict[str, npt.NDArray[np.floating]]] = {condition: {} for condition in self.corpus.texts}
        for condition, scores in out.items():
            for part in METHODS_BY_ID[method].parts:
                if part == LDA_LIVE:
                    scores.update(self.banks(tuning.shrinkage).scores[condition])
                elif part == WORDS:
                    scores[MEMBER] = self.word_scores(tuning.epochs)[condition]
                else:
                    scores[part] = self.fitted_scores(part)[condition]
        return out

    def paper(self) -> FittedHeads:
        """Heads of the paper's probe."""
        corpus, said = self.corpus, {}
        for condition in corpus.texts:
            said[condition] = np.empty((len(corpus.labels), corpus.classes), dtype=np.float32)
            for fold, probe in self.fitted(READER_PAPER).items():
                test = corpus.folds == fold
                rows = corpus.fingerprints(self.layer_of_fold[fold], condition)[test]
                said[condition][test] = probe.log_posterior(rows.astype(np.float32))
        heads = tuple(
            Head(probe, (self.layer_of_fold[fold],), fold) for fold, probe in self.fitted(READER_PAPER).items()
        )
        return FittedHeads(READER_PAPER, heads, said)

    def live(self, method: str, tunings: Sequence[Tuning]) -> FittedHeads:
        """Heads of discriminants in few bits, each fold with its own tuning; for fused-live with n-grams."""
        corpus, worded = self.corpus, method == FUSED_LIVE
        said = {c: np.empty((len(corpus.labels), corpus.classes), np.float32) for c in corpus.texts}
        heads: dict[int, Head] = {}
        loads, width = self._loads()
        for tuning in dict.fromkeys(tunings):
            served = serve_banks(
                loads,
                width,
                corpus.labels,
                corpus.folds,
                corpus.classes,
                self.cells,
                words=self.word_scores(tuning.epochs) if worded else None,
                bank_members=self.banks(tuning.shrinkage),
            )
            for fold in (fold for fold in range(FOLDS) if tunings[fold] == tuning):
                bank = served.banks[fold]
                heads[fold] = Head(bank, self.blocks, fold)
                if worded:
                    both = NgramBank(bank, self.words(tuning.epochs)[fold], served.shares[fold])
                    heads[fold] = Head(both, self.blocks, fold)
                test = corpus.folds == fold
                for condition, scores in said.items():
                    scores[test] = served.served[condition][test]
        return FittedHeads(method, tuple(heads[fold] for fold in range(FOLDS)), said)

    def stacked(self, methods: Sequence[str], tunings: Sequence[Tuning]) -> FittedHeads:
        """Heads as stacks of exact members, each fold of a method of its own."""
        corpus = self.corpus
        said = {c: np.empty((len(corpus.labels), corpus.classes), np.float32) for c in corpus.texts}
        heads: dict[int, Head] = {}
        fused: dict[tuple[str, Tuning], Fused] = {}
        for fold, one in enumerate(zip(methods, tunings, strict=True)):
            if one not in fused:
                fused[one] = self.fused(*one)
            members = self._members(*one, fold)
            own = tuple(sorted({layer for member in members for layer in member.layers}))
            heads[fold] = Head(Ensemble(members, fused[one].stacks[fold].weights), own, fold)
            test = corpus.folds == fold
            for condition, scores in said.items():
                scores[test] = fused[one].posteriors[condition][test]
        name = methods[0] if len(set(methods)) == 1 else LINEAR
        return FittedHeads(name, tuple(heads[fold] for fold in range(FOLDS)), said)

    def fused(self, method: str, tuning: Tuning) -> Fused:
        """A method's members weighed on validation rows of every outer fold."""
        given = self.scores(method, tuning)
        return fuse(given, self.corpus.labels, self.corpus.folds, self.cells, CELLS, list(given[CLEAN]))

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
                members.append(Member(KIND, (), grams))
            else:
                members.append(Member(self.proxy, (self.layer_of_fold[fold],), self.fitted(part)[fold]))
        return tuple(members)

    def _fit(self, method: str, unseen: tuple[int, ...], layer: int) -> Any:
        corpus = self.corpus
        train = np.flatnonzero(~np.isin(corpus.folds, unseen))
        train = train[balance_rows(corpus.labels[train])]
        rows = corpus.fingerprints(layer, CLEAN)[train].astype(np.float32)
        return METHODS_BY_ID[method].fitted(rows, corpus.labels[train], corpus.classes)

    def _loads(self) -> tuple[dict[str, Load], int]:
        loads = {condition: self.corpus.load(self.blocks, condition) for condition in self.corpus.texts}
        return {condition: load for condition, (load, _) in loads.items()}, loads[CLEAN][1]


def heads_of(fits: Fits, method: str, tunings: Sequence[Tuning] = AS_ROSTERS) -> FittedHeads:
    """Heads of one of :data:`METHODS`; ValueError for another."""
    if method == READER_PAPER:
        return fits.paper()
    if method in (LDA_LIVE, FUSED_LIVE):
        return fits.live(method, tunings)
    if method in OF_TRACES:
        return fits.stacked((method,) * FOLDS, tunings)
    raise ValueError(f"{method} cannot be fitted to any corpus")

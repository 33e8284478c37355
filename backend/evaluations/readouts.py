"""Fused readouts under the paper's folds: models, members, stacks and served banks.

Inner folds weigh the members of a stack. A model that saw neither of two folds validates each of them for the other
one; each outer fold takes the fold before and the fold after it, so that there are five such models next to the five
outer ones and every row is scored three times. Nothing that is fitted for an outer fold has seen a row of it.

The bank of live attribution has one member for whole responses and one for short ones, weighed as any stack is; word
n-grams may be a third. What is served for a fold is reduced to a basis in a few bits; the scores that are measured, and
that calibrate, are those of this served form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import log_softmax

from backend.methods.discriminant import DiscriminantBank, Moments, fit_discriminant, make_bank, merged, moments_of
from backend.methods.domain_adaptation import fit_alignments
from backend.methods.network import NetworkReadout
from backend.methods.ngrams import CodedGrams, GramReadout, SoftmaxSettings, coded, fit_grams
from backend.methods.probe import FamilyReadout, LinearReadout
from backend.methods.readout import Doubles, Floats, Half, Ints, Rows
from backend.methods.stack import CELLS, Stack, fit_stack
from backend.parallel import each
from backend.protocol import CLEAN, FOLDS, balance_rows
from backend.proxies.encoding import MAX_TOKENS

MODELS: tuple[frozenset[int], ...] = (
    *(frozenset({fold}) for fold in range(FOLDS)),
    *(frozenset({fold, (fold + 1) % FOLDS}) for fold in range(FOLDS)),
)
"""Folds that every model has not seen: the outer models, then the inner ones."""
SLOTS = 3
"""Scores of a row: by its outer model, by the inner model shared with the fold before, and by that with the next."""
Scores = Mapping[str, Mapping[str, Rows]]
"""Condition, then member: log-posteriors of shape (SLOTS, n, C)."""
Load = Callable[[Ints], Floats]  # Rows to their coordinates, (m, D), float32
Fitted = NetworkReadout | LinearReadout | FamilyReadout  # A model of fingerprints that is fitted and saved alone
LENGTHS: Mapping[str, int] = {CLEAN: MAX_TOKENS, "t128": 128, "t64": 64, "t32": 32}
"""Conditions, and the response tokens that they leave."""
TRAINED = (CLEAN, "t64", "t32")
"""Lengths of training rows; 128 tokens are so near to a whole response that they would bring nothing."""
CHUNK = 2500
LEAST = -60_000.0  # Scores are saved in half precision; a discriminant of a handful of rows is surer than that can hold
Block = tuple[Load, int]  # Rows of one block, and their width
# Chosen on rows of fold 1 by models that saw folds 2 to 4, next to the discriminants, 100 sources: 60,000, 20,000 and
# 10,000 buckets give .487, .486 and .486 at K = 1, .851, .839 and .843 at K = 10; one byte a weight changes none of it.
WORD_SETTINGS = SoftmaxSettings(features=10_000)
SHRINKAGE = 0.1  # Share of the diagonal in the covariance of discriminants
WORDS = "words"
BANK_MEMBERS: Mapping[str, tuple[str, ...]] = {"whole": ("clean",), "short": ("t64", "t32")}
"""What every member of a bank is fitted on: responses as they are, and copies of them that are cut short."""


def models_of(fold: int) -> tuple[int, int, int]:
    """Models that may score the rows of a fold, slot by slot."""
    return fold, FOLDS + (fold - 1) % FOLDS, FOLDS + fold


def training_folds(model: int) -> list[int]:
    """Folds that a model is fitted on."""
    return [fold for fold in range(FOLDS) if fold not in MODELS[model]]


def validation(outer: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Slot and fold of the rows that validate for an outer fold: those of the next fold and of the one before."""
    return (1, (outer + 1) % FOLDS), (2, (outer - 1) % FOLDS)


@dataclass(frozen=True)
class Fused:
    """Log-posteriors of a stack of members."""

    posteriors: dict[str, Floats]  # (n, C), float32; out-of-fold log-posteriors under every condition
    stacks: dict[int, Stack]  # Of every outer fold


def fuse(
    scores: Scores,
    labels: Ints,
    folds: Ints,
    cells: Mapping[str, Ints],
    cell_count: int,
    members: Sequence[str],
    validated: Callable[[int, dict[str, Floats]], None] | None = None,
) -> Fused:
    """Weigh members on validation rows, and fuse them on the rows of every outer fold.

    scores : condition to mapping of member to (SLOTS, n, C); labels, folds : (n,).
    cells : condition to (n,), cell of every row as it looks under that condition; members : Those that are used.
    validated : Called for every outer fold with the fused scores of its validation rows under every condition, (n, C)
        and NaN for other rows.
    """
    conditions = list(scores)
    shape = scores[conditions[0]][members[0]].shape[1:]
    posteriors = {condition: np.empty(shape, dtype=np.float32) for condition in conditions}
    stacks = {}

    def part(condition: str, slot: int, rows: Ints) -> list[Floats]:
        return [_part(scores[condition][member], slot, rows) for member in members]

    for outer in range(FOLDS):
        inner = [(slot, np.flatnonzero(folds == fold)) for slot, fold in validation(outer)]
        truth = np.concatenate([labels[rows] for _ in conditions for _, rows in inner])
        seen = np.concatenate([cells[condition][rows] for condition in conditions for _, rows in inner])
        parts = [part(condition, slot, rows) for condition in conditions for slot, rows in inner]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        stack = stacks[outer] = fit_stack(columns, truth, seen, cell_count)
        test = np.flatnonzero(folds == outer)
        for condition in conditions:
            posteriors[condition][test] = stack.log_posterior(part(condition, 0, test), cells[condition][test])
        if validated is None:
            continue
        fused = {condition: np.full(shape, np.nan, dtype=np.float32) for condition in conditions}
        for condition, scored in fused.items():
            for slot, rows in inner:
                scored[rows] = stack.log_posterior(part(condition, slot, rows), cells[condition][rows])
        validated(outer, fused)
    return Fused(posteriors, stacks)


def transfer(scores: Mapping[str, Rows], stacks: Mapping[int, Stack], cells: Ints, members: Sequence[str]) -> Floats:
    """Fused log-posteriors of another domain, by every fold model.

    scores : member to (FOLDS, n, C), by the outer models; cells : (n,). Returns (FOLDS, n, C), float32.
    """
    fused = [
        stacks[fold].log_posterior([_part(scores[member], fold, slice(None)) for member in members], cells)
        for fold in range(FOLDS)
    ]
    return np.stack(fused)


def _part(array: Rows, slot: int, rows: Ints | slice) -> Floats:
    return np.asarray(array[slot, rows], dtype=np.float32)


def loader(arrays: Sequence[Rows]) -> tuple[Load, int]:
    """Rows of several arrays side by side, read when they are needed, and their width."""
    edges = np.cumsum([0] + [array.shape[1] for array in arrays])

    def load(some: Ints) -> Floats:
        out = np.empty((len(some), edges[-1]), dtype=np.float32)
        for array, low, high in zip(arrays, edges, edges[1:], strict=False):
            out[:, low:high] = array[some]
        return out

    return load, int(edges[-1])


def fold_moments(load: Load, width: int, labels: Ints, folds: Ints, classes: int) -> list[Moments]:
    """Moments of every fold, in one pass. width : Coordinates, ``D``. labels, folds : (n,)."""

    def blocks(fold: int) -> Iterator[tuple[Floats, Ints]]:
        for rows in chunks(np.flatnonzero(folds == fold)):
            yield load(rows), labels[rows]

    return [moments_of(blocks(fold), classes, width) for fold in range(FOLDS)]


def fit_discriminants(moments: Sequence[Moments], shrinkage: float, models: Sequence[int]) -> dict[int, LinearReadout]:
    """Discriminants of some models, from the moments of every fold."""
    return {
        model: fit_discriminant(merged([moments[fold] for fold in training_folds(model)]), shrinkage)
        for model in models
    }


def score_discriminants(
    load: Load, folds: Ints, bank: Mapping[str, Mapping[int, LinearReadout]], out: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Score every row by the three models that have not seen its prompt.

    load : Rows as they look under the condition that is scored; folds : (n,); out : name to (SLOTS, n, C), filled in.
    """
    for fold in range(FOLDS):
        _score(load, np.flatnonzero(folds == fold), models_of(fold), bank, out)


def score_transfer(
    load: Load, rows: int, bank: Mapping[str, Mapping[int, LinearReadout]], out: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Score rows of another domain by all outer models, into arrays of shape (FOLDS, n, C)."""
    _score(load, np.arange(rows), range(FOLDS), bank, out)


def _score(
    load: Load,
    rows: Ints,
    models: Sequence[int],
    bank: Mapping[str, Mapping[int, LinearReadout]],
    out: Mapping[str, npt.NDArray[Any]],
) -> None:
    """Score rows by models; those, which take most of the room, are moved to each centre by a product."""
    for some in chunks(rows):
        read = load(some)
        for name, readouts in bank.items():
            for slot, model in enumerate(models):
                head = readouts[model]
                values = read @ head.weight
                values += head.bias - head.centre @ head.weight
                values -= values.max(1, keepdims=True)
                values -= np.log(np.exp(values).sum(1, keepdims=True))
                out[name][slot, some] = np.maximum(values, LEAST)


def fit_gram_models(
    counts: Sequence[Any], labels: Ints, folds: Ints, classes: int, settings: SoftmaxSettings, models: Sequence[int]
) -> Iterator[tuple[int, GramReadout]]:
    """Fit n-gram models on the rows of their training folds, as many of every source (:mod:`backend.parallel`).

    counts : sparse (n, buckets), of whole responses, and of copies that are cut short; labels, folds : (n,).
    """

    def steps() -> Iterator[tuple[Any, Ints, int, SoftmaxSettings, int]]:
        for model in models:
            rows = np.flatnonzero(np.isin(folds, training_folds(model)))
            rows = rows[balance_rows(labels[rows])]
            copies = sparse.vstack([part[rows] for part in counts], format="csr")
            yield copies, np.tile(labels[rows], len(counts)), classes, settings, model

    yield from zip(models, each(fit_grams, steps()), strict=True)


def score_grams(counts: Any, folds: Ints, model: int, readout: GramReadout | CodedGrams, out: npt.NDArray[Any]) -> None:
    """Score the rows that a model may score into an array of shape (SLOTS, n, C)."""
    for fold in MODELS[model]:
        rows = np.flatnonzero(folds == fold)
        out[models_of(fold).index(model), rows] = readout.log_posterior(counts[rows])


def score_alone(load: Load, folds: Ints, model: int, readout: Fitted) -> dict[int, Floats]:
    """Score the rows that a model may score: slot to log-posteriors of the rows of its fold, in their order."""
    out = {}
    for fold in sorted(MODELS[model]):
        rows = np.flatnonzero(folds == fold)
        out[models_of(fold).index(model)] = np.concatenate([readout.log_posterior(load(some)) for some in chunks(rows)])
    return out


def scores_shape(rows: int, classes: int) -> tuple[int, int, int]:
    """Shape of a member's scores of one condition."""
    return SLOTS, rows, classes


def chunks(rows: Ints) -> Iterator[Ints]:
    """Rows, a few at a time."""
    for low in range(0, len(rows), CHUNK):
        yield rows[low : low + CHUNK]


def aligned_load(trained: Sequence[Block], other: Sequence[Block], folds: Ints, parts: Ints) -> Load:
    """Rows of another domain to coordinates where the trained ones lie, all blocks side by side.

    trained, other : The same blocks of the domain that readouts were fitted on, and of the other one.
    folds, parts : (n,), (m,), prompt fold of every row of both; a row is moved by what the other folds' rows show.
    """

    def moments(block: Block, folds: Ints) -> list[Moments]:
        return fold_moments(*block, np.zeros(len(folds), dtype=np.intp), folds, 1)

    source = [merged(moments(block, folds)) for block in trained]
    pools = [moments(block, parts) for block in other]
    alignments = fit_alignments(
        [[merged([part for i, part in enumerate(pool) if i != fold]) for pool in pools] for fold in range(FOLDS)],
        source,
    )

    def load(rows: Ints) -> Floats:
        out = np.concatenate([block(rows) for block, _ in other], axis=1)
        for fold in np.unique(parts[rows]):
            inside = parts[rows] == fold
            out[inside] = alignments[fold].apply(out[inside])
        return out

    return load


def fit_words(
    counts: Mapping[str, Any],
    labels: Ints,
    folds: Ints,
    classes: int,
    models: Sequence[int] = range(len(MODELS)),
    settings: SoftmaxSettings = WORD_SETTINGS,
) -> Iterator[tuple[int, CodedGrams]]:
    """Fit some of the models on responses of all lengths; counts : condition to sparse (n, buckets)."""
    copies = [counts[length] for length in TRAINED if length in counts]
    for model, readout in fit_gram_models(copies, labels, folds, classes, settings, models):
        yield model, coded(readout)


def score_words(
    counts: Mapping[str, Any], folds: Ints, classes: int, models: Mapping[int, CodedGrams]
) -> dict[str, Half]:
    """Log-posteriors (SLOTS, n, C) of every condition by the models that may score each row."""
    out = {condition: np.empty(scores_shape(len(folds), classes), np.float16) for condition in counts}
    for model, readout in models.items():
        for condition, scores in out.items():
            score_grams(counts[condition], folds, model, readout, scores)
    return out


@dataclass(frozen=True)
class ServedBanks:
    """Banks of all folds, and their out-of-fold log-posteriors (n, C), float32, under every condition."""

    banks: dict[int, DiscriminantBank]  # By the fold that each has not seen
    exact: dict[str, Floats]  # Of the exact members
    served: dict[str, Floats]
    shares: dict[int, Doubles]  # (cells,), weights of the n-grams next to the bank of every fold; empty without them


@dataclass(frozen=True)
class BankRows:
    """Rows that banks are fitted to and score."""

    loads: Mapping[str, Load]  # By condition, 'clean' at least; a member without any of its conditions is skipped
    width: int  # Coordinates, ``D``
    labels: Ints  # (n,), source number
    folds: Ints  # (n,), prompt fold
    classes: int

    def moments(self) -> dict[str, list[Moments]]:
        """Moments that the members are fitted to, fold by fold."""
        moments = {}
        for name, lengths in BANK_MEMBERS.items():
            loads = [self.loads[condition] for condition in lengths if condition in self.loads]
            each = [fold_moments(load, self.width, self.labels, self.folds, self.classes) for load in loads]
            if each:
                moments[name] = [merged(parts) for parts in zip(*each, strict=True)]
        return moments


@dataclass(frozen=True)
class BankMembers:
    """Exact discriminants of all models, and their scores."""

    moments: Mapping[str, Sequence[Moments]]
    fits: Mapping[str, Mapping[int, LinearReadout]]
    scores: Mapping[str, Mapping[str, Half]]  # condition to mapping of member to (SLOTS, n, C), float16


def serve_banks(
    rows: BankRows,
    cells: Mapping[str, Ints],
    validated: Callable[[int, dict[str, Floats]], None] | None = None,
    words: Mapping[str, Rows] | None = None,
    bank_members: BankMembers | None = None,
) -> ServedBanks:
    """Fit, weigh, code and score the banks of all folds.

    cells : condition to (n,); validated : See :func:`fuse`; bank_members : Of these rows, in place of fitting them.
    words : condition to (SLOTS, n, C); log-posteriors of n-grams, as they are served, weighed with the discriminants.
    """
    members, folds = bank_members or fit_bank_members(rows), rows.folds
    fits, scores = members.fits, members.scores
    if words is not None:
        scores = {condition: {**scores[condition], WORDS: words[condition]} for condition in scores}
    fused = fuse(scores, rows.labels, folds, cells, CELLS, [*scores[CLEAN]], validated)
    weights = {fold: fused.stacks[fold].weights for fold in range(FOLDS)}
    banks = {
        fold: make_bank(
            [fits[name][fold] for name in fits],
            [merged([members.moments[name][other] for other in training_folds(fold)]) for name in fits],
            Stack(weights[fold][:, : len(fits)]),
        )
        for fold in range(FOLDS)
    }
    shares = {} if words is None else {fold: weights[fold][:, len(fits)] for fold in range(FOLDS)}
    served = {name: bank_posteriors(load, banks, folds, cells[name]) for name, load in rows.loads.items()}
    for condition, part in (words or {}).items():
        served[condition] = add_ngrams(served[condition], part[0], shares, folds, cells[condition])
    return ServedBanks(banks, fused.posteriors, served, shares)


def fit_banks(
    moments: Mapping[str, Sequence[Moments]], shrinkage: float = SHRINKAGE
) -> dict[str, dict[int, LinearReadout]]:
    """All models of the members, from :meth:`BankRows.moments`."""
    return {name: fit_discriminants(parts, shrinkage, range(len(MODELS))) for name, parts in moments.items()}


def fit_bank_members(
    rows: BankRows, shrinkage: float = SHRINKAGE, moments: Mapping[str, Sequence[Moments]] | None = None
) -> BankMembers:
    """Fit the members and score every row under every condition."""
    moments = moments or rows.moments()
    fits, shape = fit_banks(moments, shrinkage), scores_shape(len(rows.labels), rows.classes)
    scores = {condition: {name: np.empty(shape, np.float16) for name in fits} for condition in rows.loads}
    for condition, load in rows.loads.items():
        score_discriminants(load, rows.folds, fits, scores[condition])
    return BankMembers(moments, fits, scores)


def add_ngrams(states: Floats, words: Rows, shares: Mapping[int, Doubles], folds: Ints, cells: Ints) -> Floats:
    """Log-posteriors (n, C) of banks and of n-grams together, each row with the shares of its fold and cell."""
    share = np.stack([shares[fold] for fold in range(len(shares))])[folds, cells].astype(np.float32)
    out: Floats = log_softmax(states + share[:, None] * words.astype(np.float32), axis=1)
    return out


def bank_posteriors(load: Load, banks: Mapping[int, DiscriminantBank], folds: Ints, cells: Ints) -> Floats:
    """Log-posteriors (n, C) of rows, each by the bank that has not seen its fold."""
    out = np.empty((len(folds), banks[0].bias.shape[1]), dtype=np.float32)
    for fold, bank in banks.items():
        for rows in chunks(np.flatnonzero(folds == fold)):
            out[rows] = bank.log_posterior(load(rows), cells[rows])
    return out

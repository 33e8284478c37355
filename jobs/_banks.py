"""Banks of discriminants for traces that were just read, fitted as those of a roster are (stage readouts)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.audit.enrolment import Head
from backend.audit.intake.model import whole
from backend.baselines.texts import cut_responses
from backend.evaluations.readout_bank import ServedBanks, serve_banks
from backend.proxies.reader import Reader, Readout
from backend.readouts.stack import cells_of
from backend.traces import Trace, View
from jobs._stages.readout_members import CLEAN, LENGTHS, loader

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
CUT_SHARE = 0.5
"""Share of the responses that a cut must shorten to be a condition of its own."""


@dataclass(frozen=True)
class Banked:
    """Heads and their evidence.

    Attributes
    ----------
    heads : tuple of Head
        One a fold.
    log_posteriors : dict of condition to ndarray of shape (n, C)
        Out-of-fold, by the heads as they are served.
    placed : dict of condition to ndarray of shape (n, 2 d)
        Fingerprints at the block where traces are placed.
    read : tuple of ndarray of shape (n, 2 d)
        Those of whole responses at the blocks of the bank.
    """

    heads: tuple[Head, ...]
    log_posteriors: dict[str, Floats]
    placed: dict[str, Floats]
    read: tuple[npt.NDArray[np.float16], ...]


def cuts_of(tokens: Ints) -> list[str]:
    """Cuts that shorten many of the responses, of so many tokens (n,)."""
    return [name for name, limit in LENGTHS.items() if name != CLEAN and (tokens > limit).mean() >= CUT_SHARE]


def bank_of_traces(
    traces: Sequence[Trace],
    reader: Reader,
    view: View,
    blocks: tuple[int, ...],
    place: int,
    labels: Ints,
    folds: Ints,
    classes: int,
) -> Banked:
    """Bank of traces that are read here, whole and as far as many of them are shortened by a cut.

    Parameters
    ----------
    traces : sequence of Trace, length n
    reader : Reader
    view : {'ur', 'r'}
    blocks : tuple of int
    place : int
        Block whose fingerprints are wanted as well.
    labels, folds : ndarray of shape (n,)
    classes : int

    Returns
    -------
    Banked
    """
    encoded = reader.encode(traces, view)
    tokens = np.array([e.response_tokens for e in encoded], dtype=np.intp)
    cuts = cuts_of(tokens) if reader.causal else []  # an encoder would need a pass of its own for every cut
    short = cut_responses(reader.tokenizer, traces, [LENGTHS[cut] for cut in cuts])
    read = reader.read(encoded, sorted({*blocks, place}), Readout(limits=(None, *(LENGTHS[cut] for cut in cuts))))
    variants = {CLEAN: "full", **{cut: cut for cut in cuts}}
    texts = {CLEAN: traces, **{cut: short[LENGTHS[cut]] for cut in cuts}}
    found = serve(
        {c: [read[block, variant] for block in blocks] for c, variant in variants.items()},
        {c: cells_of(np.minimum(tokens, LENGTHS[c]), [whole(t.response) for t in texts[c]]) for c in variants},
        labels,
        folds,
        classes,
    )
    heads = tuple(Head(bank, blocks, fold) for fold, bank in found.banks.items())
    placed = {c: read[place, variant].astype(np.float32) for c, variant in variants.items()}
    return Banked(heads, found.served, placed, tuple(read[block, "full"] for block in blocks))


def serve(
    arrays: Mapping[str, Sequence[npt.NDArray[np.floating]]],
    cells: Mapping[str, Ints],
    labels: Ints,
    folds: Ints,
    classes: int,
) -> ServedBanks:
    """Banks of fingerprints (n, 2 d), condition by condition and block by block; cells (n,) by condition."""
    rows = {condition: loader(parts) for condition, parts in arrays.items()}
    loads = {condition: load for condition, (load, _) in rows.items()}
    return serve_banks(loads, rows[CLEAN][1], labels, folds, classes, cells)

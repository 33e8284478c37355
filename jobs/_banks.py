"""Banks of discriminants for enrolments: of a roster out of the feature store, of traces that were just read.

They are fitted as the reader ``lda`` is evaluated (stage readouts): the same blocks, lengths, folds and weights, so
that its rows say what an enrolment of this kind is worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from backend.audit.enrolment import Head
from backend.audit.intake.model import whole
from backend.baselines.texts import cut_responses
from backend.errors import AtlasError
from backend.evaluations.readout_bank import ServedBanks, serve_banks
from backend.proxies.reader import Reader, Readout
from backend.proxies.registry import registered
from backend.readouts.stack import cells_of
from backend.release import Release
from backend.traces import Trace, View
from jobs._common import METHOD
from jobs._stages.kept import kept_folder
from jobs._stages.readout_members import CLEAN, LENGTHS, Plan, loader
from jobs._stages.readouts import scorer_of

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
LDA = "lda"
READOUTS = (LDA, METHOD)
"""What an enrolment may score with, the default first."""
CUT_SHARE = 0.5
"""Share of the responses that a cut must shorten to be a condition of its own."""
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.8)
"""Blocks of a bank, as shares of the proxy's depth: 3, 9, 15, 21 and 24 of the default proxy's 30."""


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
        Fingerprints at the block where traces are placed; empty where they lie on disk.
    """

    heads: tuple[Head, ...]
    log_posteriors: dict[str, Floats]
    placed: dict[str, Floats] = field(default_factory=dict)


def default_blocks(proxy: str) -> tuple[int, ...]:
    """Blocks of a registered proxy that a bank reads.

    Raises
    ------
    AtlasError
        If the registry does not know the proxy.
    """
    known = registered().get(proxy)
    if known is None:
        raise AtlasError(f"How many blocks {proxy} has is not known", "Name those to read: --blocks 3+9+15+21+24")
    return tuple(sorted({max(1, round(share * known.depth)) for share in DEPTHS}))


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
    return Banked(heads, found.served, {c: read[place, v].astype(np.float32) for c, v in variants.items()})


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


def roster_bank(
    release: Release, proxy: str, view: View, roster: str, blocks: tuple[int, ...], limit: int | None
) -> Banked:
    """Bank of a roster, from its fingerprints at every length.

    Raises
    ------
    AtlasError
        If a block has not been read for all records at all lengths.
    """
    scorer = scorer_of(release, Plan({proxy: blocks}, (), view=view), roster, limit)
    rows = scorer.rows[proxy]
    arrays = {c: [rows.load(block, "full" if c == CLEAN else c) for block in blocks] for c in LENGTHS}
    cells = {condition: scorer.cells(condition) for condition in LENGTHS}
    found = serve(arrays, cells, scorer.labels, scorer.folds, scorer.classes)
    path = kept_folder(LDA, proxy, view, roster, len(scorer.any_rows.prompt_ids)) / "log_posteriors.npy"
    said = {"as served": found.served[CLEAN], "exact": found.exact[CLEAN]}
    if path.exists():
        said["as evaluated"] = np.load(path, mmap_mode="r", allow_pickle=False)
    right = {name: float((held.argmax(1) == scorer.labels).mean()) for name, held in said.items()}
    print(f"{roster}, K = 1: " + ", ".join(f"{name} {value:.4f}" for name, value in right.items()), flush=True)
    return Banked(tuple(Head(bank, blocks, fold) for fold, bank in found.banks.items()), found.served)

"""Heads of measured readers for enrolments: as their evaluation kept them, or fitted once more where it kept none.

Either way they have to say what the evaluation kept, row by row on the prompts that each did not see; a head that says
something else is not enrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backend.audit.enrollable import STATES
from backend.audit.enrolment import Enrolment, Head
from backend.audit.intake.model import whole
from backend.baselines.coded_ngrams import ngram_file, read_ngrams
from backend.errors import AtlasError
from backend.evaluations.components import block_columns
from backend.evaluations.compression import UNSCALED, Projection, collapsed, compressions
from backend.evaluations.matched import Represent, fixed, matched_probe
from backend.protocol import FOLDS
from jobs._common import Slice

Floats = npt.NDArray[np.float32]
Said = Callable[[Head, npt.NDArray[np.bool_]], Floats]
"""What a head says of the chosen rows (n,), as (m, C)."""
ROUNDING = 5e-3
"""Nats by which a log-posterior of an enrolment may lie beside the kept one: float32, half precision, codes."""


def control_heads(method: str, rows: Slice, layer_of_fold: Mapping[int, int]) -> tuple[Head, ...]:
    """Heads of a component or a compression, a fold each, fitted as the stage controls does.

    Parameters
    ----------
    method : str
        One of :data:`backend.audit.enrollable.STATES`.
    rows : Slice
        Fingerprints of whole responses.
    layer_of_fold : mapping of int to int
        Block of every outer fold.

    Returns
    -------
    tuple of Head
        Compressions are collapsed with their probes into one linear map.
    """
    folds = np.tile(rows.prompt_folds, len(rows.sources))
    represent: Represent = compressions().get(method) or fixed(lambda part: part.astype(np.float32))
    heads = []
    for fold in range(FOLDS):
        held = rows.load(layer_of_fold[fold])
        train = folds != fold
        seen = held[train][:, block_columns(STATES[method], held.shape[1])]
        encode, probe = matched_probe(
            seen, rows.labels[train], len(rows.sources), represent, unscaled=method in UNSCALED
        )
        if isinstance(encode, Projection):
            probe = collapsed(encode, probe)
        heads.append(Head(probe, (layer_of_fold[fold],), fold))
    return tuple(heads)


def text_heads(folder: Path, again: str) -> tuple[Head, ...]:
    """Heads that read text, a fold each, as their evaluation kept them.

    Raises
    ------
    AtlasError
        If one is missing; ``again`` is the command that makes them.
    """
    heads = []
    for fold in range(FOLDS):
        path = folder / ngram_file(fold)
        if not path.exists():
            raise AtlasError(f"The n-grams of fold {fold} are missing in {folder}", f"Run: {again}")
        heads.append(Head(read_ngrams(path), (), fold))
    return tuple(heads)


def checked(enrolment: Enrolment, rows: Slice, kept: Floats, said: Said, again: str) -> float:
    """Largest difference between what the heads say of enrolled prompts and what the evaluation kept, in nats.

    Parameters
    ----------
    enrolment : Enrolment
        As its file will hold it.
    rows : Slice
    kept : ndarray of shape (S * P, S)
        Out-of-fold log-posteriors of whole responses.
    said : callable
    again : str
        Command that evaluates the reader.

    Raises
    ------
    AtlasError
        If it is more than rounding.
    """
    folds = np.tile(rows.prompt_folds, len(rows.sources))
    furthest = 0.0
    for head in enrolment.heads:
        test = folds == head.fold
        furthest = max(furthest, float(np.abs(said(head, test) - kept[test]).max()))
    if not furthest <= ROUNDING:
        raise AtlasError(
            f"The heads of {enrolment.reader} differ from the log-posteriors that its evaluation kept, by "
            f"{furthest:.2g} nats: they were fitted on something else",
            f"Evaluate it again: {again}",
        )
    return furthest


def of_states(enrolment: Enrolment, rows: Slice) -> Said:
    """What heads say of stored fingerprints of whole responses."""

    def said(head: Head, chosen: npt.NDArray[np.bool_]) -> Floats:
        by_layer = {layer: rows.load(layer)[chosen] for layer in head.layers}
        cells = np.zeros(int(chosen.sum()), dtype=np.intp)
        return head.log_posterior(enrolment.coordinates(head, by_layer), cells)

    return said


def of_texts(enrolment: Enrolment, responses: Sequence[str]) -> Said:
    """What heads say of whole responses, length n in the order of the rows."""
    counts = enrolment.counts([whole(response) for response in responses])
    return lambda head, chosen: head.log_posterior(counts[np.flatnonzero(chosen)], np.zeros(0, dtype=np.intp))

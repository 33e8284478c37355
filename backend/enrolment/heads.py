"""Heads of measured readers for enrolments: as their evaluation kept them, or fitted once more where it kept none.

Either way they have to say what the evaluation kept, row by row on the prompts that each did not see; a head that says
something else is not enrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backend.corpus.roster_rows import Slice
from backend.enrolment.auxiliary_models import Others, read_auxiliary_models
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.evaluations.model_artifacts import holds_models, load_models, load_stacks
from backend.evaluations.stages.baseline_methods import truncation_tokenizer
from backend.intake.traces import whole
from backend.methods.ensemble import Ensemble, Member
from backend.methods.head import Head
from backend.methods.ngram_readouts import ngram_file, read_ngrams
from backend.methods.stack import CELLS, cells_of
from backend.methods.tuned_encoder import TUNED
from backend.protocol import FOLDS
from backend.proxies.truncation import count_tokens
from backend.traces import Trace

Floats = npt.NDArray[np.float32]
Said = Callable[[Head, npt.NDArray[np.bool_]], tuple[Floats, Floats | float]]
"""What a head says of the chosen rows (n,), as (m, C), and by how much what was kept of it may be rounded."""
ROUNDING = 5e-3
"""Nats by which a log-posterior of an enrolment may lie beside the kept one: float32, half precision, codes."""
HALF = 2.0**-11
"""Share of a number by which half precision may round it."""


def stacked_heads(folder: Path, proxy: str, rerun_command: str) -> tuple[Head, ...]:
    """Heads of a stacked reader, a fold each, as its evaluation kept the members and their weights.

    Parameters
    ----------
    folder : Path
        Of the evaluation.
    proxy : str
        The one that traces are placed by; of the others the heads read beside it.
    rerun_command : str
        Command that makes them.

    Raises
    ------
    AtlasError
        If something is missing.
    """
    members, shares = load_stacks(folder, rerun_command)
    for member in members:
        if member.reads.endswith(f":{TUNED}") and not holds_models(member.folder):
            raise AtlasError(
                f"Of {member.reads} only scores are kept in {member.folder.parent}, which is enough to stack them",
                f"To train it again, which takes hours, remove that folder and run: {rerun_command}",
            )
    models = [load_models(member.folder, rerun_command) for member in members]
    own = tuple(sorted({layer for member in members if member.reads == proxy for layer in member.layers}))
    return tuple(
        Head(
            Ensemble(
                tuple(Member(one.reads, one.layers, held[fold]) for one, held in zip(members, models, strict=True)),
                shares[fold],
            ),
            own,
            fold,
        )
        for fold in range(FOLDS)
    )


def encoded_heads(folder: Path, reads: str, rerun_command: str) -> tuple[Head, ...]:
    """Heads that read embeddings, a fold each, as their evaluation kept them.

    Raises
    ------
    AtlasError
        If one is missing; ``rerun_command`` is what makes them.
    """
    models, alone = load_models(folder, rerun_command), np.ones((CELLS, 1))
    return tuple(Head(Ensemble((Member(reads, (), models[fold]),), alone), (), fold) for fold in range(FOLDS))


def text_heads(folder: Path, rerun_command: str) -> tuple[Head, ...]:
    """Heads that read text, a fold each, as their evaluation kept them.

    Raises
    ------
    AtlasError
        If one is missing; ``rerun_command`` is what makes them.
    """
    heads = []
    for fold in range(FOLDS):
        path = folder / ngram_file(fold)
        if not path.exists():
            raise AtlasError(f"The n-grams of fold {fold} are missing in {folder}", f"Run: {rerun_command}")
        heads.append(Head(read_ngrams(path), (), fold))
    return tuple(heads)


def checked(
    enrolment: Enrolment,
    rows: Slice,
    kept: Floats,
    said: Said,
    rerun_command: str,
    some: npt.NDArray[np.intp] | None = None,
) -> float:
    """Largest difference between what the heads say of enrolled prompts and what the evaluation kept, in nats.

    Parameters
    ----------
    enrolment : Enrolment
        As its file will hold it.
    rows : Slice
    kept : ndarray of shape (S * P, S)
        Out-of-fold log-posteriors of whole responses.
    said : callable
    rerun_command : str
        Command that evaluates the reader.
    some : ndarray of shape (m,), optional
        Rows that are looked at; all by default.

    Raises
    ------
    AtlasError
        If it is more than rounding.
    """
    folds = np.tile(rows.prompt_folds, len(rows.sources))
    looked = np.isin(np.arange(len(folds)), np.arange(len(folds)) if some is None else some)
    furthest, allowed = 0.0, True
    for head in enrolment.heads:
        test = (folds == head.fold) & looked
        if not test.any():
            continue
        values, rounding = said(head, test)
        apart = np.abs(values - kept[test])
        furthest, allowed = max(furthest, float(apart.max())), allowed and bool((apart <= ROUNDING + rounding).all())
    if not allowed:
        raise AtlasError(
            f"The heads of {enrolment.reader} differ from the log-posteriors that its evaluation kept, by "
            f"{furthest:.2g} nats: they were fitted on something else",
            f"Evaluate it again: {rerun_command}",
        )
    return furthest


def of_states(enrolment: Enrolment, rows: Slice, traces: Sequence[Trace] | None = None) -> Said:
    """What heads say of stored fingerprints of whole responses.

    Banks, and heads with n-grams beside them, also ask for the traces, length n in the order of the rows.
    """
    cells, counts = np.zeros(len(rows.labels), dtype=np.intp), None
    if traces is not None:
        texts = [whole(trace.response) for trace in traces]
        cells, counts = cells_of(count_tokens(truncation_tokenizer(), traces), texts), enrolment.counts(texts)

    def said(head: Head, chosen: npt.NDArray[np.bool_]) -> tuple[Floats, float]:
        variant = enrolment.form.variant if enrolment.form else "full"
        by_layer = {layer: rows.load(layer, variant)[chosen] for layer in head.layers}
        words = None if counts is None else counts[np.flatnonzero(chosen)]
        return head.log_posterior(enrolment.coordinates(head, by_layer, words), cells[chosen]), 0.0

    return said


def of_texts(enrolment: Enrolment, responses: Sequence[str]) -> Said:
    """What heads say of whole responses, length n in the order of the rows."""
    counts = enrolment.counts([whole(response) for response in responses])
    return lambda head, chosen: (head.log_posterior(counts[np.flatnonzero(chosen)], np.zeros(0, dtype=np.intp)), 0.0)


def of_members(enrolment: Enrolment, rows: Mapping[str, Slice], traces: Sequence[Trace], others: Others) -> Said:
    """What ensembles say of stored fingerprints, and of texts and embeddings as they are read live.

    Parameters
    ----------
    enrolment : Enrolment
    rows : mapping of str to Slice
        Of every proxy.
    traces : sequence of Trace, length n
        Whole responses, in the order of the rows.
    others : mapping of str to SentenceEncoder
        Encoders, by what members read with them.
    """

    def said(head: Head, chosen: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        asked = [traces[row] for row in np.flatnonzero(chosen)]
        read = read_auxiliary_models(enrolment, asked, others)
        for name, part in rows.items():
            layers = head.layers if name == enrolment.proxy else enrolment.beside.get(name, ())
            read[name] = {layer: part.load(layer)[chosen] for layer in layers}
        cells = cells_of(count_tokens(truncation_tokenizer(), asked), [whole(trace.response) for trace in asked])
        assert isinstance(head.probe, Ensemble)
        # The evaluation keeps what members say in half precision, and weighs that.
        rounding = HALF * head.probe.magnitude(read, cells)
        values = head.log_posterior(read, cells)
        return values, rounding + (np.exp(values) * rounding).sum(1, keepdims=True)

    return said

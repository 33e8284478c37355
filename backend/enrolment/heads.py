"""Heads of measured readers for enrolments: those of their evaluation, or fitted once more where it saved none.

They have to give the log-posteriors of the evaluation on the prompts that each did not see, else none is enrolled.
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
from backend.evaluations.artifacts import holds_models, load_models, load_stacks
from backend.evaluations.stages.baseline_methods import truncation_tokenizer
from backend.intake.traces import whole
from backend.methods.ensemble import Ensemble, Member
from backend.methods.head import Head
from backend.methods.ngram_readouts import ngram_file, read_ngrams
from backend.methods.stack import CELLS, cells_of
from backend.methods.tuned_encoder import TUNED
from backend.protocol import FOLDS
from backend.proxies.encoding import count_tokens
from backend.traces import Trace

Floats = npt.NDArray[np.float32]
Said = Callable[[Head, npt.NDArray[np.bool_]], tuple[Floats, Floats | float]]
"""Log-posteriors (m, C) of a head on chosen rows (n,), and by how much the saved ones may be rounded."""
ROUNDING = 5e-3  # nats by which a log-posterior may differ from that of the evaluation: half precision, codes
HALF = 2.0**-11  # share of a number by which half precision may round it


def stacked_heads(folder: Path, proxy: str, rerun_command: str) -> tuple[Head, ...]:
    """Heads of a stacked reader, a fold each, out of the members and weights of its evaluation.

    proxy : the one that traces are placed by; of the others the heads read as well.
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
    heads = []
    for fold in range(FOLDS):
        parts = (Member(one.reads, one.layers, fitted[fold]) for one, fitted in zip(members, models, strict=True))
        heads.append(Head(Ensemble(tuple(parts), shares[fold]), own, fold))
    return tuple(heads)


def encoded_heads(folder: Path, reads: str, rerun_command: str) -> tuple[Head, ...]:
    """Heads that read embeddings, a fold each, out of their evaluation."""
    models, alone = load_models(folder, rerun_command), np.ones((CELLS, 1))
    return tuple(Head(Ensemble((Member(reads, (), models[fold]),), alone), (), fold) for fold in range(FOLDS))


def text_heads(folder: Path, rerun_command: str) -> tuple[Head, ...]:
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
    evaluated: Floats,
    of_heads: Said,
    rerun_command: str,
    some: npt.NDArray[np.intp] | None = None,
) -> float:
    """Largest difference between log-posteriors of the heads and of the evaluation, (S * P, S), in nats.

    some : (m,) rows that are compared; all by default.
    Raises AtlasError if it is more than rounding.
    """
    folds = np.tile(rows.prompt_folds, len(rows.sources))
    looked = np.isin(np.arange(len(folds)), np.arange(len(folds)) if some is None else some)
    furthest, allowed = 0.0, True
    for head in enrolment.heads:
        test = (folds == head.fold) & looked
        if not test.any():
            continue
        values, rounding = of_heads(head, test)
        apart = np.abs(values - evaluated[test])
        furthest, allowed = max(furthest, float(apart.max())), allowed and bool((apart <= ROUNDING + rounding).all())
    if not allowed:
        why = f"by {furthest:.2g} nats: they were fitted on something else"
        problem = f"The heads of {enrolment.reader} differ from the log-posteriors that its evaluation kept, {why}"
        raise AtlasError(problem, f"Evaluate it again: {rerun_command}")
    return furthest


def of_states(enrolment: Enrolment, rows: Slice, traces: Sequence[Trace] | None = None) -> Said:
    """Log-posteriors of heads that read stored fingerprints; with n-grams also the traces, in the order of the rows."""
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


def of_texts(enrolment: Enrolment, responses: Sequence[str]) -> Said:
    """What heads say of whole responses, length n in the order of the rows."""
    counts = enrolment.counts([whole(response) for response in responses])
    return lambda head, chosen: (head.log_posterior(counts[np.flatnonzero(chosen)], np.zeros(0, dtype=np.intp)), 0.0)


def of_members(enrolment: Enrolment, rows: Mapping[str, Slice], traces: Sequence[Trace], others: Others) -> Said:
    """Log-posteriors of ensembles, from stored fingerprints of every proxy, and from texts and embeddings read live."""

    def score(head: Head, chosen: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        some = [traces[row] for row in np.flatnonzero(chosen).tolist()]
        read = read_auxiliary_models(enrolment, some, others)
        for name, part in rows.items():
            layers = head.layers if name == enrolment.proxy else enrolment.beside.get(name, ())
            read[name] = {layer: part.load(layer)[chosen] for layer in layers}
        cells = cells_of(count_tokens(truncation_tokenizer(), some), [whole(trace.response) for trace in some])
        assert isinstance(head.probe, Ensemble)
        # The evaluation keeps what members say in half precision, and weighs that.
        rounding = HALF * head.probe.magnitude(read, cells)
        values = head.log_posterior(read, cells)
        return values, rounding + (np.exp(values) * rounding).sum(1, keepdims=True)

    return score

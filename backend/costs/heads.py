"""Heads of the fitted shape for whatever reads a proxy's states, and how many numbers they have.

Time does not depend on the values of a head, so these are zeros; what they read, and how, is what an enrolment of the
same reader does live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.enrolment.enrolment import Enrolment
from backend.evaluations.controls import DIMENSIONS
from backend.evaluations.cost import linear_parameters
from backend.evaluations.readout_bank import SETTINGS as LIVE_WORDS
from backend.evaluations.stages.readout_members import EXPERTS, NETWORK
from backend.intake.traces import whole
from backend.methods.discriminant import DiscriminantBank, NgramBank
from backend.methods.ensemble import Ensemble, Head, Member
from backend.methods.network import NetworkReadout, NetworkSettings
from backend.methods.ngrams import GRAMS, CodedGrams, Counts, GramReadout, counts_of
from backend.methods.probe import FamilyReadout, LinearProbe, LinearReadout
from backend.methods.registry import FUSED_LIVE, LDA_LIVE, block_of, form_of, reader_id
from backend.methods.representations import FORMS, MIXTURES, MODES
from backend.methods.stack import CELLS
from backend.spectral import FINGERPRINT_MODES
from backend.traces import Trace, View

LIVE_MEMBERS = 2  # One for whole and one for short responses
_COMPRESSED = ("pca-", "centroid-svd")
_POOLED = "positions-"
EXTRA_PARTS: Mapping[type, tuple[str, ...]] = {
    NetworkReadout: ("hidden_weight", "hidden_bias"),
    FamilyReadout: ("expert_weight", "expert_bias"),
}


def blank_enrolment(
    method: str,
    blocks: Mapping[str, tuple[int, ...]],
    members: Sequence[str],
    widths: Mapping[str, int],
    view: View,
    classes: int,
    traces: Sequence[Trace],
) -> Enrolment:
    """What scores traces as an enrolment of the method does, with zeros for weights.

    method : Of :data:`backend.methods.registry.STATES`, or a stack.
    blocks : Blocks of every proxy that is read, the enrolment's own first.
    members : Of a stack, as :meth:`backend.evaluations.stages.readout_members.Plan.members` has them.
    widths : Dimension d of every proxy.
    traces : Their n-grams are those in use, so that as many are looked up as in a fitted model.
    """
    proxy, layers = next(iter(blocks.items()))
    probe: Any
    if members:
        models = tuple(_member(name, blocks, widths, classes, traces) for name in members)
        probe = Ensemble(models, np.zeros((CELLS, len(members))))
    elif method in (LDA_LIVE, FUSED_LIVE):
        bank = _bank(len(layers) * FINGERPRINT_MODES * widths[proxy], classes)
        probe = NgramBank(bank, _words(classes, traces), np.zeros(CELLS)) if method == FUSED_LIVE else bank
    else:
        probe = blank_probe(len(FORMS[form_of(method)].vectors) * widths[proxy], classes)
    names = tuple(map(str, range(classes)))
    return Enrolment(
        name=method,
        reader=reader_id(method, proxy, view),
        proxy=proxy,
        view=view,
        block=block_of(method),
        sources=names,
        families=names,
        heads=(Head(probe, layers),),
        log_prior=np.full(classes, -np.log(classes)),
        prompts=np.empty(0, dtype=np.uint64),
        folds=np.empty(0, dtype=np.int16),
        width=widths[proxy],
    )


def blank_probe(width: int, classes: int) -> LinearProbe:
    """A probe of zeros on ``width`` coordinates."""
    return LinearProbe(zeros(width), ones(width), zeros(width, classes), zeros(classes))


def blank_grams(kind: str, classes: int, traces: Sequence[Trace]) -> GramReadout:
    """A classifier of n-grams with weights of zero for those of the traces that are most frequent."""
    grams = GRAMS[kind]
    columns = in_use(grams.counts([whole(trace.response) for trace in traces]), grams.settings.features)
    return GramReadout(columns, ones(len(columns)), zeros(len(columns), classes), zeros(classes))


def zeros(*shape: int) -> npt.NDArray[np.float32]:
    """Zeros in single precision."""
    return np.zeros(shape, dtype=np.float32)


def ones(*shape: int) -> npt.NDArray[np.float32]:
    """Ones in single precision."""
    return np.ones(shape, dtype=np.float32)


def in_use(counts: Counts, most: int) -> npt.NDArray[np.intp]:
    """The ``most`` buckets that most counts (n, buckets) fall into, ascending."""
    seen = np.bincount(counts.indices, minlength=counts.shape[1])
    return np.sort(np.argsort(-seen, kind="stable")[:most])


def trained_numbers(method: str, probe: Any, width: int, classes: int) -> int:
    """Numbers that fitting a method adjusts: those of its head, or fewer where the head was made from them.

    probe : What scores; width : Dimension d of the proxy.
    """
    if method in MIXTURES:
        return linear_parameters(MIXTURES[method] * width, classes) + MIXTURES[method] * MODES
    if method.startswith(_COMPRESSED):
        return linear_parameters(DIMENSIONS, classes)
    return linear_parameters(width, classes) if method.startswith(_POOLED) else numbers(probe)


def numbers(model: Any) -> int:
    """Numbers that a response is multiplied with or shifted by; the standardiser is not counted, it is not trained."""
    if isinstance(model, Ensemble):
        return sum(numbers(member.model) for member in model.members) + model.shares.size
    if isinstance(model, NgramBank):
        return numbers(model.bank) + numbers(model.words) + model.word_shares.size
    if isinstance(model, DiscriminantBank):
        return sum(head.size for head in model.heads) + model.bias.size + model.shares.size
    parts = ("weight", "bias", *EXTRA_PARTS.get(type(model), ()))
    return sum(int(getattr(model, part).size) for part in parts)


def _member(
    name: str, blocks: Mapping[str, tuple[int, ...]], widths: Mapping[str, int], classes: int, traces: Sequence[Trace]
) -> Member:
    reads, _, part = name.rpartition("@")
    if reads in GRAMS:
        return Member(reads, (), blank_grams(reads, classes, traces))
    width = len(blocks[reads]) * FINGERPRINT_MODES * widths[reads]
    mean, weight, bias = zeros(width), zeros(width, classes), zeros(classes)
    model: LinearReadout | FamilyReadout | NetworkReadout
    if part == NETWORK:
        units = NetworkSettings().hidden
        model = NetworkReadout(mean, ones(width), zeros(units, width), zeros(units), zeros(classes, units), bias)
    elif part == EXPERTS:
        model = FamilyReadout(mean, weight, bias, weight, bias, np.arange(classes, dtype=np.intp))
    else:
        model = LinearReadout(mean, weight, bias)
    return Member(reads, blocks[reads], model)


def _bank(width: int, classes: int) -> DiscriminantBank:
    rank = min(classes - 1, width)
    return DiscriminantBank(
        mean=zeros(width),
        scale=ones(width),
        codes=np.zeros((LIVE_MEMBERS, width, rank), dtype=np.int8),
        steps=ones(LIVE_MEMBERS, rank),
        weight=np.zeros((LIVE_MEMBERS, rank, classes), dtype=np.float16),
        bias=zeros(LIVE_MEMBERS, classes),
        shares=np.zeros((CELLS, LIVE_MEMBERS)),
    )


def _words(classes: int, traces: Sequence[Trace]) -> CodedGrams:
    columns = in_use(counts_of([whole(trace.response) for trace in traces]), LIVE_WORDS.features)
    scale, codes = ones(len(columns)), np.zeros((len(columns), classes), dtype=np.int8)
    return CodedGrams(columns.astype(np.int32), scale, codes, scale, zeros(classes))

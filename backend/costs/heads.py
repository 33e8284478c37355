"""Heads of the fitted shape for whatever reads a proxy's states, and how many numbers they have.

Time does not depend on the values of a head, so these are zeros; what they read, and how, is what an enrolment of the
same reader does live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.enrolment.enrolment import Enrolment
from backend.evaluations.compression import DIMENSIONS
from backend.evaluations.cost import linear_parameters
from backend.evaluations.readout_words import SETTINGS as LIVE_WORDS
from backend.evaluations.stages.readout_members import EXPERTS, NETWORK
from backend.intake.traces import whole
from backend.methods.discriminant import LinearReadout
from backend.methods.discriminant_bank import DiscriminantBank, NgramBank
from backend.methods.ensemble import Ensemble, Member
from backend.methods.family_experts import FamilyReadout
from backend.methods.head import Head
from backend.methods.network import NetworkReadout, NetworkSettings
from backend.methods.ngram_readouts import CodedGrams, GramReadout
from backend.methods.ngrams import GRAMS, Counts, counts_of
from backend.methods.probe import LinearProbe
from backend.methods.registry import FUSED_LIVE, LDA_LIVE, block_of, form_of, reader_id
from backend.methods.representations import FORMS, MIXTURES, MODES
from backend.methods.stack import CELLS
from backend.spectral import FINGERPRINT_MODES
from backend.traces import Trace, View

LIVE_MEMBERS = 2
"""One for whole and one for short responses."""
_COMPRESSED = ("pca-", "centroid-svd")
_POOLED = "positions-"


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

    Parameters
    ----------
    method : str
        Of :data:`backend.methods.registry.STATES`, or a stack.
    blocks : mapping of str to tuple of int
        Blocks of every proxy that is read, the enrolment's own first.
    members : sequence of str
        Of a stack, as :meth:`backend.evaluations.stages.readout_members.Plan.members` has them.
    widths : mapping of str to int
        Dimension d of every proxy.
    view : {'ur', 'r'}
    classes : int
    traces : sequence of Trace
        Their n-grams are those in use, so that as many are looked up as in a fitted model.

    Returns
    -------
    Enrolment
    """
    proxy, layers = next(iter(blocks.items()))
    probe: Any
    if members:
        probe = Ensemble(
            tuple(_member(name, blocks, widths, classes, traces) for name in members), np.zeros((CELLS, len(members)))
        )
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
    zeros, ones = np.zeros(width, dtype=np.float32), np.ones(width, dtype=np.float32)
    return LinearProbe(zeros, ones, np.zeros((width, classes), dtype=np.float32), np.zeros(classes, dtype=np.float32))


def blank_grams(kind: str, classes: int, traces: Sequence[Trace]) -> GramReadout:
    """A classifier of n-grams with weights of zero for those of the traces that are most frequent."""
    held = GRAMS[kind]
    columns = in_use(held.counts([whole(trace.response) for trace in traces]), held.settings.features)
    blank = np.zeros((len(columns), classes), dtype=np.float32)
    return GramReadout(columns, np.ones(len(columns), dtype=np.float32), blank, np.zeros(classes, dtype=np.float32))


def in_use(counts: Counts, most: int) -> npt.NDArray[np.intp]:
    """The ``most`` buckets that most counts (n, buckets) fall into, ascending."""
    seen = np.bincount(counts.indices, minlength=counts.shape[1])
    return np.sort(np.argsort(-seen, kind="stable")[:most])


def trained_numbers(method: str, probe: Any, width: int, classes: int) -> int:
    """Numbers that fitting a method adjusts: those of its head, or fewer where the head was made from them.

    Parameters
    ----------
    method : str
    probe : LinearProbe, DiscriminantBank, WordedBank or Ensemble
        What scores.
    width : int
        Dimension d of the proxy.
    classes : int
    """
    if method in MIXTURES:
        return linear_parameters(MIXTURES[method] * width, classes) + MIXTURES[method] * MODES
    if method.startswith(_COMPRESSED):
        return linear_parameters(DIMENSIONS, classes)
    return linear_parameters(width, classes) if method.startswith(_POOLED) else numbers(probe)


@singledispatch
def numbers(model: Any) -> int:
    """Numbers that a response is multiplied with or shifted by; the standardiser is not counted, it is not trained."""
    return int(model.weight.size + model.bias.size)


@numbers.register
def _(model: NetworkReadout) -> int:
    return int(model.hidden_weight.size + model.hidden_bias.size + model.weight.size + model.bias.size)


@numbers.register
def _(model: FamilyReadout) -> int:
    return int(model.weight.size + model.bias.size + model.expert_weight.size + model.expert_bias.size)


@numbers.register
def _(model: DiscriminantBank) -> int:
    return sum(head.size for head in model.heads) + model.bias.size + model.shares.size


@numbers.register
def _(model: NgramBank) -> int:
    return numbers(model.bank) + numbers(model.words) + model.word_shares.size


@numbers.register
def _(model: Ensemble) -> int:
    return sum(numbers(member.model) for member in model.members) + model.shares.size


def _member(
    name: str, blocks: Mapping[str, tuple[int, ...]], widths: Mapping[str, int], classes: int, traces: Sequence[Trace]
) -> Member:
    reads, _, part = name.rpartition("@")
    if reads in GRAMS:
        return Member(reads, (), blank_grams(reads, classes, traces))
    width = len(blocks[reads]) * FINGERPRINT_MODES * widths[reads]
    zeros, bias = np.zeros(width, dtype=np.float32), np.zeros(classes, dtype=np.float32)
    if part != NETWORK:
        weight = np.zeros((width, classes), dtype=np.float32)
        if part == EXPERTS:
            model = FamilyReadout(zeros, weight, bias, weight, bias, np.arange(classes, dtype=np.intp))
            return Member(reads, blocks[reads], model)
        return Member(reads, blocks[reads], LinearReadout(zeros, weight, bias))
    units = NetworkSettings().hidden
    inner, outer = (np.zeros(shape, dtype=np.float32) for shape in ((units, width), (classes, units)))
    network = NetworkReadout(zeros, np.ones_like(zeros), inner, np.zeros(units, dtype=np.float32), outer, bias)
    return Member(reads, blocks[reads], network)


def _bank(width: int, classes: int) -> DiscriminantBank:
    rank = min(classes - 1, width)
    return DiscriminantBank(
        mean=np.zeros(width, dtype=np.float32),
        scale=np.ones(width, dtype=np.float32),
        codes=np.zeros((LIVE_MEMBERS, width, rank), dtype=np.int8),
        steps=np.ones((LIVE_MEMBERS, rank), dtype=np.float32),
        weight=np.zeros((LIVE_MEMBERS, rank, classes), dtype=np.float16),
        bias=np.zeros((LIVE_MEMBERS, classes), dtype=np.float32),
        shares=np.zeros((CELLS, LIVE_MEMBERS)),
    )


def _words(classes: int, traces: Sequence[Trace]) -> CodedGrams:
    columns = in_use(counts_of([whole(trace.response) for trace in traces]), LIVE_WORDS.features)
    ones = np.ones(len(columns), dtype=np.float32)
    codes = np.zeros((len(columns), classes), dtype=np.int8)
    return CodedGrams(columns.astype(np.int32), ones, codes, ones, np.zeros(classes, dtype=np.float32))

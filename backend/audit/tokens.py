"""Which response tokens carry the evidence: the log-odds of two candidates, split exactly over the tokens.

A fingerprint is a weighted sum of token states (paper, Spectral Trajectory Encoding) and a head is linear in it, at one
block or at several, so the difference of two logits is a sum over tokens. Everything is computed in float32 states and
float64 sums. The live score goes through the feature store's half precision, as in the evaluation;
:attr:`TokenEvidence.stored` is that same difference, and it lies apart from the sum by the rounding of the fingerprint
(a few thousandths of a nat), not more.

A head that reads text is a sum over n-grams. What each adds is spread over the characters that it covers, and a token
gets what its characters have; text beyond the proxy's window is one more piece, since the head has read it.

An ensemble is a sum over members. What another proxy's tokens say goes to their characters. A network is split along
the plane through its scores at the trace and at the mean of the enrolled ones: its parts add up, though other planes
would serve as well. What an encoder's embedding says belongs to no token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from backend.audit.attributor import cells_of_traces
from backend.audit.beside import Others, read_beside
from backend.audit.enrolment import WHOLE, Enrolment, Head
from backend.audit.forms import FORMS, Form
from backend.audit.intake.model import whole
from backend.baselines.coded_ngrams import CodedNgrams
from backend.baselines.ngram import Counts
from backend.baselines.ngram_spans import character_odds
from backend.proxies.encoding import Encoded
from backend.proxies.reader import Reader
from backend.readouts.ensemble import Ensemble, Material
from backend.readouts.gram_kinds import GRAMS
from backend.readouts.worded import WordedBank
from backend.traces import Trace, view_text

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """Log-odds of two candidates over T response tokens, in nats.

    Attributes
    ----------
    dc : ndarray of shape (T,), float64
        Through the mean state, or through single states: how far this token's state lies from the enrolment's mean.
    ac : ndarray of shape (T,), float64
        Through the front-to-back change and higher modes: this token's state against the trace's own mean state.
    constant : float
        What belongs to no token: biases, and the enrolment's mean change.
    words : ndarray of shape (T,), float64, or None
        Through this token's characters: the n-grams that cover them, and tokens of further proxies; None where nothing
        else is read.
    """

    dc: Doubles
    ac: Doubles
    constant: float
    words: Doubles | None = None

    @property
    def tokens(self) -> Doubles:
        """Evidence of every token, (T,); the constant is shared out evenly, so the sum is the log-odds."""
        words = 0.0 if self.words is None else self.words
        shares: Doubles = self.dc + self.ac + words + self.constant / len(self.dc)
        return shares

    @property
    def total(self) -> float:
        """Log-odds of the two candidates."""
        words = 0.0 if self.words is None else float(self.words.sum())
        return float(self.dc.sum() + self.ac.sum()) + words + self.constant


@dataclass(frozen=True)
class TokenEvidence:
    """The heat map of one trace.

    Attributes
    ----------
    source, rival : str
        Positive evidence speaks for the source, negative for the rival.
    response : str
        The text that the offsets count in; lone surrogates are U+FFFD.
    starts, stops : tuple of int, length T
        Characters of every token in the response. Tokens of one character that takes several share its offsets; a
        token that straddles the border to the prompt starts at 0.
    split : Split
    log_odds : float
        The score difference from fingerprints that are not rounded; the sum of the tokens equals it to 1e-4.
    stored : float
        The score difference as the live score has it, from fingerprints in half precision; of text nothing is rounded.
    cut : int
        Characters at the end that were not read.
    """

    source: str
    rival: str
    response: str
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    split: Split
    log_odds: float
    stored: float
    cut: int


def split_log_odds(
    states: Mapping[int, npt.NDArray[np.floating]], head: Head, block: str, source: int, rival: int, cell: int = 0
) -> Split:
    """Split the log-odds of a trace over its tokens, summed over the blocks that a head reads.

    Parameters
    ----------
    states : mapping of int to ndarray of shape (T, d)
        Response states at every block of the head.
    head : Head
    block : str
        What the head reads of a block, a name of :data:`backend.audit.forms.FORMS`.
    source, rival : int
        Columns of the head.
    cell : int
        Cell of the text (:func:`backend.readouts.stack.cells_of`); a probe does not ask for it.

    Returns
    -------
    Split

    Raises
    ------
    ValueError
        If the head's width is not that of the states, or it reads text.
    """
    direction, constant = head.odds(cell, source, rival)
    centre, scale = head.standardiser or (direction, direction)
    return _split(states, head.layers, FORMS[block], (centre, direction / scale, constant))


def _split(
    states: Mapping[int, npt.NDArray[np.floating]],
    layers: Sequence[int],
    form: Form,
    plane: tuple[npt.NDArray[np.floating], Doubles, float],
) -> Split:
    """Split of what a plane (centre, direction, constant) says of a trajectory at some blocks."""
    centre, direction, constant = plane
    length, d = states[layers[0]].shape
    if len(centre) != len(layers) * len(form.vectors) * d:
        raise ValueError(
            f"a head of width {len(centre)} does not read {len(form.vectors)} vectors of {len(layers)} blocks, {d} wide"
        )
    level, change = np.zeros(length), np.zeros(length)
    shares = form.token_shares(length)
    for place, (layer, share) in enumerate((layer, share) for layer in layers for share in shares):
        trajectory = np.asarray(states[layer], dtype=np.float64)
        along, mean = direction[place * d : (place + 1) * d], centre[place * d : (place + 1) * d]
        if share is None:
            owner = trajectory.argmax(0)
            np.add.at(level, owner, (trajectory[owner, np.arange(d)] - mean) * along)
        # Weights sum to one, or (those of modes that change) to zero, so both subtractions leave the sum exact.
        elif share.sum() > 0.5:
            level += share * ((trajectory - mean) @ along)
        else:
            change += share * ((trajectory - trajectory.mean(0)) @ along)
            constant -= float(mean @ along)
    return Split(level, change, constant)


def token_evidence(
    reader: Reader, enrolment: Enrolment, trace: Trace, source: int, rival: int, others: Others | None = None
) -> TokenEvidence:
    """Evidence of every response token of a trace for one candidate against another.

    Parameters
    ----------
    reader : Reader
        With the proxy of the enrolment.
    enrolment : Enrolment
    trace : Trace
    source, rival : int
        Candidates, as columns of the enrolment.
    others : mapping of str to Reader or SentenceEncoder, optional
        Further proxies and encoders that members read with.

    Returns
    -------
    TokenEvidence
    """
    clean = Trace(whole(trace.prompt), whole(trace.response))
    (encoded,) = reader.encode([clean], enrolment.view)
    heads = enrolment.heads_for(enrolment.folds_of([trace.prompt])[0])
    starts, stops = _offsets(reader, clean, enrolment, encoded)
    layers = sorted({layer for head in heads for layer in head.layers})
    read = _Read(
        len(starts),
        reader.states(encoded, layers) if layers else {},
        enrolment.counts([clean.response]),
        read_beside(enrolment, [clean], others or {}),
        _elsewhere(enrolment, clean, others or {}),
        int(cells_of_traces([clean], [encoded], enrolment.cells_by)[0]),
    )
    parts = [_head_split(enrolment, head, clean, read, source, rival) for head in heads]
    if any(part.characters is not None for part in parts):
        starts, stops = _with_rest(starts, stops, len(clean.response))
    exact, stored = (
        float(np.mean([_said(enrolment, head, read, halved, source, rival) for head in heads]))
        for halved in (False, True)
    )
    return TokenEvidence(
        enrolment.sources[source],
        enrolment.sources[rival],
        clean.response,
        starts,
        stops,
        _together(parts, stops),
        exact,
        stored,
        max(0, len(clean.response) - max(stops, default=0)),
    )


@dataclass(frozen=True)
class _Foreign:
    """A trajectory by a further proxy, and the characters of its tokens in the response."""

    states: Mapping[int, Floats]
    starts: tuple[int, ...]
    stops: tuple[int, ...]


@dataclass(frozen=True)
class _Read:
    """One trace as the heads see it: tokens, states by block, counts, what members read besides, and its cell."""

    tokens: int
    states: Mapping[int, Floats]
    counts: Counts
    beside: Material
    foreign: Mapping[str, _Foreign]
    cell: int


@dataclass(frozen=True)
class _Part:
    """What a head says, by token of the proxy and by character."""

    split: Split
    characters: Doubles | None


def _elsewhere(enrolment: Enrolment, trace: Trace, others: Others) -> dict[str, _Foreign]:
    """The trace by every further proxy that members read with."""
    out = {}
    for name, layers in enrolment.beside.items():
        held = others.get(name)
        if isinstance(held, Reader) and layers:
            (encoded,) = held.encode([trace], enrolment.view)
            out[name] = _Foreign(held.states(encoded, layers), *_offsets(held, trace, enrolment, encoded))
    return out


def _head_split(enrolment: Enrolment, head: Head, trace: Trace, read: _Read, source: int, rival: int) -> _Part:
    nothing = Split(np.zeros(read.tokens), np.zeros(read.tokens), 0.0)
    if isinstance(head.probe, Ensemble):
        return _ensemble_split(enrolment, head.probe, nothing, trace, read, source, rival)
    if isinstance(head.probe, CodedNgrams):
        characters, constant = character_odds(trace.response, head.probe, source, rival)
        return _Part(replace(nothing, constant=constant), characters)
    split = split_log_odds(read.states, head, enrolment.block, source, rival, read.cell)
    if not isinstance(head.probe, WordedBank):
        return _Part(split, None)
    characters, constant = head.probe.spread(trace.response, read.cell, source, rival)
    return _Part(replace(split, constant=split.constant + constant), characters)


def _ensemble_split(
    enrolment: Enrolment, ensemble: Ensemble, nothing: Split, trace: Trace, read: _Read, source: int, rival: int
) -> _Part:
    """Sum over members, each by the share that it has in the trace's cell."""
    level, change, constant = nothing.dc, nothing.ac, 0.0
    characters: Doubles | None = None
    for share, member in zip(ensemble.shares[read.cell], ensemble.members, strict=True):
        share = float(share)
        if member.reads in GRAMS:
            values, fixed = member.spread(trace.response, source, rival)
        elif not member.layers:  # an embedding
            fixed = _apart(member.model.log_posterior(read.beside[member.reads]), source, rival)
            values = None
        else:
            own = member.reads == enrolment.proxy
            states = read.states if own else read.foreign[member.reads].states
            row = np.concatenate([FORMS[WHOLE].of_states(states[layer])[0] for layer in member.layers])
            split = _split(states, member.layers, FORMS[WHOLE], member.plane(row, source, rival))
            values, fixed = None, split.constant
            if own:
                level, change = level + share * split.dc, change + share * split.ac
            else:
                values, more = _on_characters(read.foreign[member.reads], split, len(trace.response))
                fixed += more
        constant += share * fixed
        if values is not None:
            characters = share * values if characters is None else characters + share * values
    return _Part(Split(level, change, constant), characters)


def _on_characters(foreign: _Foreign, split: Split, length: int) -> tuple[Doubles, float]:
    """A split of a further proxy's tokens over characters (length,); tokens without any go to the constant."""
    edges, rest = np.zeros(length + 1), 0.0
    for start, stop, value in zip(foreign.starts, foreign.stops, split.dc + split.ac, strict=True):
        if stop > start:
            edges[start] += value / (stop - start)
            edges[stop] -= value / (stop - start)
        else:
            rest += float(value)
    return np.cumsum(edges)[:-1], rest


def _said(enrolment: Enrolment, head: Head, read: _Read, halved: bool, source: int, rival: int) -> float:
    """Log-odds by a head, of fingerprints as they are or in half precision."""

    def rows(states: Mapping[int, Floats], form: Form) -> dict[int, npt.NDArray[np.floating]]:
        exact = {layer: form.of_states(found) for layer, found in states.items()}
        return {layer: row.astype(np.float16) for layer, row in exact.items()} if halved else {**exact}

    whole_form = FORMS[WHOLE]
    foreign = {name: rows(one.states, whole_form) for name, one in read.foreign.items()}
    by_layer = rows(read.states, (enrolment.form or whole_form).stored)
    material = enrolment.coordinates(head, by_layer, read.counts, {**read.beside, **foreign})
    return _apart(head.log_posterior(material, np.array([read.cell])), source, rival)


def _together(parts: Sequence[_Part], stops: Sequence[int]) -> Split:
    """Mean over heads; what belongs to characters goes to pieces that end at ``stops``, a shared end to the first."""
    level, change = (np.mean([getattr(part.split, of) for part in parts], axis=0) for of in ("dc", "ac"))
    constant = float(np.mean([part.split.constant for part in parts]))
    spread = [part.characters for part in parts if part.characters is not None]
    if not spread:
        return Split(level, change, constant)
    until = np.concatenate([[0.0], np.cumsum(np.mean(spread, axis=0))])
    edges = np.maximum.accumulate(np.array([0, *stops]))
    behind = np.zeros(len(stops) - len(level))  # no state was read of the text behind the window
    return Split(np.concatenate([level, behind]), np.concatenate([change, behind]), constant, np.diff(until[edges]))


def _with_rest(starts: tuple[int, ...], stops: tuple[int, ...], length: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tokens, and the text behind the last of them as one more piece."""
    end = max(stops, default=0)
    return (starts, stops) if end >= length else ((*starts, end), (*stops, length))


def _apart(log_posteriors: npt.NDArray[np.floating], source: int, rival: int) -> float:
    return float(log_posteriors[0, source]) - float(log_posteriors[0, rival])


def _offsets(
    reader: Reader, trace: Trace, enrolment: Enrolment, encoded: Encoded
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Characters of the response tokens, counted in the response."""
    prefix, text = view_text(trace, enrolment.view)
    batch = reader.tokenizer(
        text,
        add_special_tokens=not reader.causal,
        truncation=True,
        max_length=reader.max_tokens,
        return_offsets_mapping=True,
        return_attention_mask=False,
    )
    offsets = batch["offset_mapping"] or [(0, 0)]
    limit = len(trace.response)
    # Of a token that stands in for an empty response, nothing lies in the response.
    inside = [
        (min(max(0, start - len(prefix)), limit), min(max(0, stop - len(prefix)), limit))
        for start, stop in offsets[encoded.start : encoded.stop]
    ]
    return tuple(start for start, _ in inside), tuple(stop for _, stop in inside)

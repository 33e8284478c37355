"""Log-odds of two candidates, split over the response tokens of a trace.

A fingerprint is a weighted sum of token states (paper, Spectral Trajectory Encoding) and most heads are linear in it,
so the difference of two logits is a sum over tokens. N-grams are spread over the characters that they cover, and so are
tokens of further proxies; a token gets what its characters have, and text beyond the proxy's window is one more piece.
A network, and experts between families, are split along a plane through their scores at the trace and at the mean of
the enrolled ones. The share of an encoder's embedding belongs to no token.

States are float32, sums float64. The live score goes through half precision: :attr:`TokenEvidence.stored` differs from
the sum by the rounding of the fingerprint alone (a few thousandths of a nat).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.attribution.scoring import cells_of_traces
from backend.enrolment.enrolment import WHOLE, Enrolment, Others, read_auxiliary_models
from backend.intake.traces import whole
from backend.methods.discriminant import NgramBank
from backend.methods.ensemble import Ensemble, Head, Material, Member
from backend.methods.ngrams import GRAMS, CodedNgrams, Counts, character_odds
from backend.methods.representations import FORMS, Form
from backend.proxies.encoding import Encoded
from backend.proxies.reader import Reader
from backend.traces import Trace, view_text

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """Log-odds of two candidates over T response tokens, in nats."""

    states: Doubles  # (T,) through mean and single states from the enrolment's mean, and changes from the trace's own
    constant: float  # what belongs to no token: biases, and the enrolment's mean change
    words: Doubles | None = None  # (T,) through n-grams that cover its characters, and tokens of further proxies
    characters: Doubles | None = None  # (len(response),) the same by character, as long as no token has it

    @property
    def tokens(self) -> Doubles:
        """Evidence of every token, (T,); the constant is shared out evenly, so the sum is the log-odds."""
        words = 0.0 if self.words is None else self.words
        return self.states + words + self.constant / len(self.states)


@dataclass(frozen=True)
class Foreign:
    """A trajectory by a further proxy: states by block, each (T, d), and the characters of its tokens."""

    states: Mapping[int, Floats]
    starts: tuple[int, ...]
    stops: tuple[int, ...]


@dataclass(frozen=True)
class ReadTrace:
    """One trace as heads see it."""

    response: str
    tokens: int  # response tokens of the proxy
    states: Mapping[int, Floats]  # (T, d) by the proxy, of every block that heads read
    counts: Counts  # (1, buckets)
    auxiliary: Material  # what members read in addition, but for further proxies
    foreign: Mapping[str, Foreign]  # the trace by further proxies
    cell: int


def split_log_odds(
    states: Mapping[int, npt.NDArray[np.floating]], head: Head, block: str, source: int, rival: int, cell: int = 0
) -> Split:
    """Split the log-odds of a trace over its tokens, summed over the blocks that a head reads.

    states : (T, d) response states at every block of the head.
    block : what the head reads of a block, a name of :data:`backend.methods.representations.FORMS`.
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
    """Split of a plane (centre, direction, constant) over a trajectory at some blocks."""
    centre, direction, constant = plane
    length, d = states[layers[0]].shape
    if len(centre) != len(layers) * len(form.vectors) * d:
        raise ValueError(
            f"a head of width {len(centre)} does not read {len(form.vectors)} vectors of {len(layers)} blocks, {d} wide"
        )
    out = np.zeros(length)
    shares = form.token_shares(length)
    for place, (layer, share) in enumerate((layer, share) for layer in layers for share in shares):
        trajectory = np.asarray(states[layer], dtype=np.float64)
        along, mean = direction[place * d : (place + 1) * d], centre[place * d : (place + 1) * d]
        if share is None:
            owner = trajectory.argmax(0)
            np.add.at(out, owner, (trajectory[owner, np.arange(d)] - mean) * along)
        # Weights sum to one, or (those of modes that change) to zero, so both subtractions leave the sum exact.
        elif share.sum() > 0.5:
            out += share * ((trajectory - mean) @ along)
        else:
            out += share * ((trajectory - trajectory.mean(0)) @ along)
            constant -= float(mean @ along)
    return Split(out, constant)


def head_split(enrolment: Enrolment, head: Head, seen: ReadTrace, source: int, rival: int) -> Split:
    """Evidence by a head for one candidate against another, by token and by character."""
    nothing = Split(np.zeros(seen.tokens), 0.0)
    if isinstance(head.probe, Ensemble):
        parts = [_member_split(enrolment, member, nothing, seen, source, rival) for member in head.probe.members]
        return summed(parts, [float(share) for share in head.probe.shares[seen.cell]])
    if isinstance(head.probe, CodedNgrams):
        characters, constant = character_odds(seen.response, head.probe, source, rival)
        return replace(nothing, constant=constant, characters=characters)
    split = split_log_odds(seen.states, head, enrolment.block, source, rival, seen.cell)
    if not isinstance(head.probe, NgramBank):
        return split
    characters, constant = head.probe.spread(seen.response, seen.cell, source, rival)
    return replace(split, constant=split.constant + constant, characters=characters)


def summed(splits: Sequence[Split], shares: Sequence[float]) -> Split:
    """Splits of one trace together, each by its share."""
    both = list(zip(splits, shares, strict=True))
    spread = [share * split.characters for split, share in both if split.characters is not None]
    return Split(
        np.sum([share * split.states for split, share in both], axis=0),
        float(sum(share * split.constant for split, share in both)),
        characters=np.sum(spread, axis=0) if spread else None,
    )


def log_odds(enrolment: Enrolment, head: Head, seen: ReadTrace, source: int, rival: int, *, halved: bool) -> float:
    """The same by the head itself, of fingerprints as they are or rounded to half precision."""

    def rows(states: Mapping[int, Floats], form: Form) -> dict[int, npt.NDArray[np.floating]]:
        exact = {layer: form.of_states(found) for layer, found in states.items()}
        return {layer: row.astype(np.float16) for layer, row in exact.items()} if halved else {**exact}

    foreign = {name: rows(one.states, FORMS[WHOLE]) for name, one in seen.foreign.items()}
    by_layer = rows(seen.states, (enrolment.form or FORMS[WHOLE]).stored)
    material = enrolment.coordinates(head, by_layer, seen.counts, {**seen.auxiliary, **foreign})
    return _apart(head.log_posterior(material, np.array([seen.cell])), source, rival)


def _member_split(
    enrolment: Enrolment, member: Member, nothing: Split, seen: ReadTrace, source: int, rival: int
) -> Split:
    if member.reads in GRAMS:
        characters, constant = member.spread(seen.response, source, rival)
        return replace(nothing, constant=constant, characters=characters)
    if not member.layers:
        log_posteriors = member.model.log_posterior(seen.auxiliary[member.reads])
        return replace(nothing, constant=_apart(log_posteriors, source, rival))
    own = member.reads == enrolment.proxy
    states = seen.states if own else seen.foreign[member.reads].states
    row = np.concatenate([FORMS[WHOLE].of_states(states[layer])[0] for layer in member.layers])
    split = _split(states, member.layers, FORMS[WHOLE], member.plane(row, source, rival))
    return split if own else _on_characters(seen.foreign[member.reads], split, nothing, len(seen.response))


def _on_characters(foreign: Foreign, split: Split, nothing: Split, length: int) -> Split:
    """A split of a further proxy's tokens over characters (length,); tokens without any go to the constant."""
    edges, constant = np.zeros(length + 1), split.constant
    for start, stop, value in zip(foreign.starts, foreign.stops, split.states, strict=True):
        if stop > start:
            edges[start] += value / (stop - start)
            edges[stop] -= value / (stop - start)
        else:
            constant += float(value)
    return replace(nothing, constant=constant, characters=np.cumsum(edges)[:-1])


def _apart(log_posteriors: npt.NDArray[np.floating], source: int, rival: int) -> float:
    return float(log_posteriors[0, source]) - float(log_posteriors[0, rival])


@dataclass(frozen=True)
class TokenEvidence:
    """The heat map of one trace.

    starts, stops : characters of every token in the response. Tokens of one character that takes several share its
        offsets; a token that straddles the border to the prompt starts at 0.
    """

    source: str  # positive evidence speaks for it, negative for the rival
    rival: str
    response: str  # the text that the offsets count in; lone surrogates are U+FFFD
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    split: Split
    log_odds: float  # from fingerprints that are not rounded; the sum of the tokens equals it to 1e-4
    stored: float  # as the live score has it, from fingerprints in half precision
    cut: int  # characters at the end that were not read


def token_evidence(
    reader: Reader, enrolment: Enrolment, trace: Trace, source: int, rival: int, others: Others | None = None
) -> TokenEvidence:
    """Evidence of every response token of a trace for one candidate against another (columns of the enrolment)."""
    clean = Trace(whole(trace.prompt), whole(trace.response))
    (encoded,) = reader.encode([clean], enrolment.view)
    heads = enrolment.heads_for(enrolment.folds_of([trace.prompt])[0])
    starts, stops = _offsets(reader, clean, enrolment, encoded)
    layers = sorted({layer for head in heads for layer in head.layers})
    known = others or {}
    texts = {name: model for name, model in known.items() if not isinstance(model, Reader)}
    foreign = {}
    for name, blocks in enrolment.auxiliary.items():
        if blocks and isinstance(model := known.get(name), Reader):
            (further,) = model.encode([clean], enrolment.view)
            foreign[name] = Foreign(model.states(further, blocks), *_offsets(model, clean, enrolment, further))
    seen = ReadTrace(
        clean.response,
        len(starts),
        reader.states(encoded, layers) if layers else {},
        enrolment.counts([clean.response]),
        read_auxiliary_models(enrolment, [clean], texts),
        foreign,
        int(cells_of_traces([clean], [encoded], enrolment.cells_by)[0]),
    )
    splits = [head_split(enrolment, head, seen, source, rival) for head in heads]
    split = summed(splits, [1 / len(heads)] * len(heads))
    end = max(stops, default=0)
    if split.characters is not None and end < len(clean.response):  # the text behind the last token is one more piece
        starts, stops = (*starts, end), (*stops, len(clean.response))
    exact, stored = (
        float(np.mean([log_odds(enrolment, head, seen, source, rival, halved=halved) for head in heads]))
        for halved in (False, True)
    )
    return TokenEvidence(
        enrolment.sources[source],
        enrolment.sources[rival],
        clean.response,
        starts,
        stops,
        _on_tokens(split, stops),
        exact,
        stored,
        max(0, len(clean.response) - max(stops, default=0)),
    )


def _on_tokens(split: Split, stops: Sequence[int]) -> Split:
    """A split whose characters go to pieces that end at ``stops``, a shared end to the first of them."""
    if split.characters is None:
        return split
    until = np.concatenate([[0.0], np.cumsum(split.characters)])
    edges = np.maximum.accumulate(np.array([0, *stops]))
    behind = np.zeros(len(stops) - len(split.states))  # no state was read of the text behind the window
    return Split(np.concatenate([split.states, behind]), split.constant, np.diff(until[edges]))


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
    offsets = (batch["offset_mapping"] or [(0, 0)])[encoded.start : encoded.stop]
    # Of a token that stands in for an empty response, nothing lies in the response.
    starts, stops = (
        tuple(min(max(0, pair[side] - len(prefix)), len(trace.response)) for pair in offsets) for side in (0, 1)
    )
    return starts, stops


def heat_map(number: int, prompt: str, evidence: TokenEvidence) -> dict[str, Any]:
    """Tokens with their text; those that share a character are shown once, with their sum."""
    pieces: list[dict[str, Any]] = []
    at = 0
    for start, stop, value in zip(evidence.starts, evidence.stops, evidence.split.tokens, strict=True):
        if pieces and stop <= at:
            pieces[-1]["value"] += float(value)
            continue
        text = evidence.response[at:stop]
        pieces.append({"text": text, "start": min(at, start), "stop": stop, "value": float(value)})
        at = stop
    return {
        "number": number,
        "prompt": prompt,
        **{name: getattr(evidence, name) for name in ("source", "rival", "log_odds", "stored")},
        "pieces": pieces,
        "rest": evidence.response[at:],
    }

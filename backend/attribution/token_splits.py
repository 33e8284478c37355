"""The log-odds of two candidates as a sum over the tokens and characters of a trace, head by head.

A fingerprint is a weighted sum of token states (paper, Spectral Trajectory Encoding) and most heads are linear in it,
at one block or at several, so the difference of two logits is a sum over tokens. A head that reads text is a sum over
n-grams; what each adds is spread over the characters that it covers. An ensemble is a sum over members. What another
proxy's tokens say goes to their characters. A network, and experts between families, are split along a plane through
their scores at the trace and at the mean of the enrolled ones: the parts add up, though other planes would serve as
well. What an encoder's embedding says, fine-tuned or not, belongs to no token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from backend.enrolment.enrolment import WHOLE, Enrolment
from backend.methods.discriminant_bank import NgramBank
from backend.methods.ensemble import Ensemble, Material, Member
from backend.methods.head import Head
from backend.methods.ngram_readouts import CodedNgrams, character_odds
from backend.methods.ngrams import GRAMS, Counts
from backend.methods.representations import FORMS, Form

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
class Part:
    """What a head or a member says, by token of the proxy and by character.

    Attributes
    ----------
    split : Split
        Without words.
    characters : ndarray of shape (len(response),), float64, or None
        None where nothing of it belongs to characters.
    """

    split: Split
    characters: Doubles | None = None


@dataclass(frozen=True)
class Foreign:
    """A trajectory by a further proxy: states by block, each (T, d), and the characters of its tokens."""

    states: Mapping[int, Floats]
    starts: tuple[int, ...]
    stops: tuple[int, ...]


@dataclass(frozen=True)
class Seen:
    """One trace as heads see it.

    Attributes
    ----------
    response : str
    tokens : int
        Response tokens of the proxy.
    states : mapping of int to ndarray of shape (T, d)
        By the proxy, of every block that heads read.
    counts : scipy.sparse.csr_matrix of shape (1, buckets), or None
    beside : mapping
        What members read besides, but for further proxies.
    foreign : mapping of str to Foreign
        The trace by further proxies.
    cell : int
    """

    response: str
    tokens: int
    states: Mapping[int, Floats]
    counts: Counts
    beside: Material
    foreign: Mapping[str, Foreign]
    cell: int


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
        What the head reads of a block, a name of :data:`backend.methods.representations.FORMS`.
    source, rival : int
        Columns of the head.
    cell : int
        Cell of the text (:func:`backend.methods.stack.cells_of`); a probe does not ask for it.

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


def head_part(enrolment: Enrolment, head: Head, seen: Seen, source: int, rival: int) -> Part:
    """What a head says of a trace for one candidate against another."""
    nothing = Split(np.zeros(seen.tokens), np.zeros(seen.tokens), 0.0)
    if isinstance(head.probe, Ensemble):
        parts = [_member_part(enrolment, member, nothing, seen, source, rival) for member in head.probe.members]
        return summed(parts, [float(share) for share in head.probe.shares[seen.cell]])
    if isinstance(head.probe, CodedNgrams):
        characters, constant = character_odds(seen.response, head.probe, source, rival)
        return Part(replace(nothing, constant=constant), characters)
    split = split_log_odds(seen.states, head, enrolment.block, source, rival, seen.cell)
    if not isinstance(head.probe, NgramBank):
        return Part(split)
    characters, constant = head.probe.spread(seen.response, seen.cell, source, rival)
    return Part(replace(split, constant=split.constant + constant), characters)


def summed(parts: Sequence[Part], shares: Sequence[float]) -> Part:
    """Parts of one trace together, each by its share."""
    both = list(zip(parts, shares, strict=True))
    spread = [share * part.characters for part, share in both if part.characters is not None]
    return Part(
        Split(
            np.sum([share * part.split.dc for part, share in both], axis=0),
            np.sum([share * part.split.ac for part, share in both], axis=0),
            float(sum(share * part.split.constant for part, share in both)),
        ),
        np.sum(spread, axis=0) if spread else None,
    )


def log_odds(enrolment: Enrolment, head: Head, seen: Seen, source: int, rival: int, *, halved: bool) -> float:
    """The same by the head itself, of fingerprints as they are or rounded to half precision."""

    def rows(states: Mapping[int, Floats], form: Form) -> dict[int, npt.NDArray[np.floating]]:
        exact = {layer: form.of_states(found) for layer, found in states.items()}
        return {layer: row.astype(np.float16) for layer, row in exact.items()} if halved else {**exact}

    foreign = {name: rows(one.states, FORMS[WHOLE]) for name, one in seen.foreign.items()}
    by_layer = rows(seen.states, (enrolment.form or FORMS[WHOLE]).stored)
    material = enrolment.coordinates(head, by_layer, seen.counts, {**seen.beside, **foreign})
    return _apart(head.log_posterior(material, np.array([seen.cell])), source, rival)


def _member_part(enrolment: Enrolment, member: Member, nothing: Split, seen: Seen, source: int, rival: int) -> Part:
    if member.reads in GRAMS:
        characters, constant = member.spread(seen.response, source, rival)
        return Part(replace(nothing, constant=constant), characters)
    if not member.layers:
        said = member.model.log_posterior(seen.beside[member.reads])
        return Part(replace(nothing, constant=_apart(said, source, rival)))
    own = member.reads == enrolment.proxy
    states = seen.states if own else seen.foreign[member.reads].states
    row = np.concatenate([FORMS[WHOLE].of_states(states[layer])[0] for layer in member.layers])
    split = _split(states, member.layers, FORMS[WHOLE], member.plane(row, source, rival))
    return Part(split) if own else _on_characters(seen.foreign[member.reads], split, nothing, len(seen.response))


def _on_characters(foreign: Foreign, split: Split, nothing: Split, length: int) -> Part:
    """A split of a further proxy's tokens over characters (length,); tokens without any go to the constant."""
    edges, constant = np.zeros(length + 1), split.constant
    for start, stop, value in zip(foreign.starts, foreign.stops, split.dc + split.ac, strict=True):
        if stop > start:
            edges[start] += value / (stop - start)
            edges[stop] -= value / (stop - start)
        else:
            constant += float(value)
    return Part(replace(nothing, constant=constant), np.cumsum(edges)[:-1])


def _apart(log_posteriors: npt.NDArray[np.floating], source: int, rival: int) -> float:
    return float(log_posteriors[0, source]) - float(log_posteriors[0, rival])

"""Which response tokens carry the evidence: the log-odds of two candidates, split exactly over the tokens.

A fingerprint is a weighted sum of token states (paper, Spectral Trajectory Encoding) and a head is linear in it, at one
block or at several, so the difference of two logits is a sum over tokens. Everything is computed in float32 states and
float64 sums. The live score goes through the feature store's half precision, as in the evaluation;
:attr:`TokenEvidence.stored` is that same difference, and it lies apart from the sum by the rounding of the fingerprint
(a few thousandths of a nat), not more.

A head that reads text is a sum over n-grams. What each adds is spread over the characters that it covers, and a token
gets what its characters have; text beyond the proxy's window is one more piece, since the head has read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.audit.attributor import cells_of_traces
from backend.audit.enrollable import TEXT
from backend.audit.enrolment import BLOCKS, Enrolment, Head
from backend.audit.intake.model import whole
from backend.baselines.coded_ngrams import CodedNgrams
from backend.baselines.ngram import Counts
from backend.baselines.ngram_spans import character_odds
from backend.proxies.encoding import Encoded
from backend.proxies.reader import Reader
from backend.readouts.worded import WordedBank
from backend.spectral import FINGERPRINT_MODES, dct_weights
from backend.traces import Trace, view_text

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """Log-odds of two candidates over T response tokens, in nats.

    Attributes
    ----------
    dc : ndarray of shape (T,), float64
        Through the mean state: how far this token's state lies from the enrolment's mean.
    ac : ndarray of shape (T,), float64
        Through the front-to-back change: this token's state against the trace's own mean state.
    constant : float
        What belongs to no token: biases, and the enrolment's mean change.
    words : ndarray of shape (T,), float64, or None
        Through the n-grams that cover this token's characters; None where no text is read.
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
    block : {'dc', 'ac', 'dc-ac'}
        What the head reads of a block.
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
    modes = BLOCKS[block]
    length, d = states[head.layers[0]].shape
    if len(centre) != len(head.layers) * len(modes) * d:
        raise ValueError(
            f"a head of width {len(centre)} does not read {block} of {len(head.layers)} blocks of width {d}"
        )
    direction = direction / scale
    weights = dct_weights(length, FINGERPRINT_MODES)
    parts = {mode: np.zeros(length) for mode in range(FINGERPRINT_MODES)}
    for place, (layer, mode) in enumerate((layer, mode) for layer in head.layers for mode in modes):
        trajectory = np.asarray(states[layer], dtype=np.float64)
        along, mean = direction[place * d : (place + 1) * d], centre[place * d : (place + 1) * d]
        # The weights of mode 0 sum to one and those of mode 1 to zero, so both subtractions leave the sum exact.
        if mode == 0:
            parts[0] += weights[0] * ((trajectory - mean) @ along)
        else:
            parts[1] += weights[1] * ((trajectory - trajectory.mean(0)) @ along)
            constant -= float(mean @ along)
    return Split(parts[0], parts[1], constant)


def token_evidence(reader: Reader, enrolment: Enrolment, trace: Trace, source: int, rival: int) -> TokenEvidence:
    """Evidence of every response token of a trace for one candidate against another.

    Parameters
    ----------
    reader : Reader
        With the proxy of the enrolment.
    enrolment : Enrolment
    trace : Trace
    source, rival : int
        Candidates, as columns of the enrolment.

    Returns
    -------
    TokenEvidence
    """
    clean = Trace(whole(trace.prompt), whole(trace.response))
    (encoded,) = reader.encode([clean], enrolment.view)
    heads = enrolment.heads_for(enrolment.folds_of([trace.prompt])[0])
    starts, stops = _offsets(reader, clean, enrolment, encoded)
    counts = enrolment.counts([clean.response])
    cell = int(cells_of_traces([clean], [encoded])[0])
    if counts is not None:
        starts, stops = _with_rest(starts, stops, len(clean.response))
    if enrolment.block == TEXT:
        said = [_apart(head.log_posterior(counts, np.array([cell])), source, rival) for head in heads]
        split, exact = Split(np.zeros(len(stops)), np.zeros(len(stops)), 0.0), float(np.mean(said))
        stored = exact
    else:
        split, exact, stored = _state_split(reader, enrolment, heads, encoded, counts, cell, source, rival)
    if counts is not None:
        split = _with_words(split, heads, clean.response, stops, cell, source, rival)
    return TokenEvidence(
        enrolment.sources[source],
        enrolment.sources[rival],
        clean.response,
        starts,
        stops,
        split,
        exact,
        stored,
        max(0, len(clean.response) - max(stops, default=0)),
    )


def _state_split(
    reader: Reader,
    enrolment: Enrolment,
    heads: Sequence[Head],
    encoded: Encoded,
    counts: Counts,
    cell: int,
    source: int,
    rival: int,
) -> tuple[Split, float, float]:
    """Mean split over states; log-odds from exact fingerprints, and from those in half precision, words included."""
    states = reader.states(encoded, sorted({layer for head in heads for layer in head.layers}))
    splits = [split_log_odds(states, head, enrolment.block, source, rival, cell) for head in heads]
    together = Split(
        np.mean([split.dc for split in splits], axis=0),
        np.mean([split.ac for split in splits], axis=0),
        float(np.mean([split.constant for split in splits])),
    )
    exact: list[float] = []
    stored: list[float] = []
    fingerprints = {layer: _fingerprint(found) for layer, found in states.items()}
    halved = {layer: found.astype(np.float16) for layer, found in fingerprints.items()}
    for head in heads:
        for kept, out in ((fingerprints, exact), (halved, stored)):
            read = enrolment.coordinates(head, kept, counts)
            out.append(_apart(head.log_posterior(read, np.array([cell])), source, rival))
    return together, float(np.mean(exact)), float(np.mean(stored))


def _with_words(
    split: Split, heads: Sequence[Head], response: str, stops: Sequence[int], cell: int, source: int, rival: int
) -> Split:
    """The same with what n-grams say of pieces that end at ``stops``; a shared end belongs to the first of them."""
    parts = []
    for head in heads:
        if isinstance(head.probe, CodedNgrams):
            parts.append(character_odds(response, head.probe, source, rival))
        elif isinstance(head.probe, WordedBank):
            parts.append(head.probe.spread(response, cell, source, rival))
    until = np.concatenate([[0.0], np.cumsum(np.mean([values for values, _ in parts], axis=0))])
    edges = np.maximum.accumulate(np.array([0, *stops]))
    behind = np.zeros(len(stops) - len(split.dc))  # no state was read of the text behind the window
    return Split(
        np.concatenate([split.dc, behind]),
        np.concatenate([split.ac, behind]),
        split.constant + float(np.mean([constant for _, constant in parts])),
        np.diff(until[edges]),
    )


def _with_rest(starts: tuple[int, ...], stops: tuple[int, ...], length: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tokens, and the text behind the last of them as one more piece."""
    end = max(stops, default=0)
    return (starts, stops) if end >= length else ((*starts, end), (*stops, length))


def _apart(log_posteriors: npt.NDArray[np.floating], source: int, rival: int) -> float:
    return float(log_posteriors[0, source]) - float(log_posteriors[0, rival])


def _fingerprint(states: Floats) -> Doubles:
    """DC and first AC of a trajectory (T, d), (1, 2 d)."""
    weights = dct_weights(len(states), FINGERPRINT_MODES)
    out: Doubles = (weights @ states.astype(np.float64)).reshape(1, -1)
    return out


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

"""Which response tokens carry the evidence: the log-odds of two candidates, split exactly over the tokens.

A fingerprint is a weighted sum of token states (paper, Spectral Trajectory Encoding) and a head is linear in it, at one
block or at several, so the difference of two logits is a sum over tokens. Everything is computed in float32 states and
float64 sums. The live score goes through the feature store's half precision, as in the evaluation;
:attr:`TokenEvidence.stored` is that same difference, and it lies apart from the sum by the rounding of the fingerprint
(a few thousandths of a nat), not more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.audit.attributor import cells_of_traces
from backend.audit.enrolment import BLOCKS, Enrolment, Head
from backend.audit.intake.model import whole
from backend.proxies.encoding import Encoded
from backend.proxies.reader import Reader
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
    """

    dc: Doubles
    ac: Doubles
    constant: float

    @property
    def tokens(self) -> Doubles:
        """Evidence of every token, (T,); the constant is shared out evenly, so the sum is the log-odds."""
        shares: Doubles = self.dc + self.ac + self.constant / len(self.dc)
        return shares

    @property
    def total(self) -> float:
        """Log-odds of the two candidates."""
        return float(self.dc.sum() + self.ac.sum() + self.constant)


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
        The score difference as the live score has it, from fingerprints in half precision.
    cut : int
        Characters at the end that lie beyond the proxy's window.
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
        If the head's width is not that of the states.
    """
    probe, modes = head.probe, BLOCKS[block]
    length, d = states[head.layers[0]].shape
    if len(probe.mean) != len(head.layers) * len(modes) * d:
        raise ValueError(
            f"a head of width {len(probe.mean)} does not read {block} of {len(head.layers)} blocks of width {d}"
        )
    direction, constant = head.odds(cell, source, rival)
    direction = direction / probe.scale
    weights = dct_weights(length, FINGERPRINT_MODES)
    parts = {mode: np.zeros(length) for mode in range(FINGERPRINT_MODES)}
    for place, (layer, mode) in enumerate((layer, mode) for layer in head.layers for mode in modes):
        trajectory = np.asarray(states[layer], dtype=np.float64)
        along, mean = direction[place * d : (place + 1) * d], probe.mean[place * d : (place + 1) * d]
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
    fold = enrolment.folds_of([trace.prompt])[0]
    heads = enrolment.heads_for(fold)
    states = reader.states(encoded, sorted({layer for head in heads for layer in head.layers}))
    cells = cells_of_traces([clean], [encoded])
    splits = [split_log_odds(states, head, enrolment.block, source, rival, int(cells[0])) for head in heads]
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
            log_posterior = head.log_posterior(enrolment.coordinates(head, kept), cells)[0]
            out.append(float(log_posterior[source]) - float(log_posterior[rival]))
    starts, stops = _offsets(reader, clean, enrolment, encoded)
    return TokenEvidence(
        enrolment.sources[source],
        enrolment.sources[rival],
        clean.response,
        starts,
        stops,
        together,
        float(np.mean(exact)),
        float(np.mean(stored)),
        max(0, len(clean.response) - max(stops, default=0)),
    )


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

"""Which response tokens carry the evidence: the log-odds of two candidates, split over the tokens of a trace.

How a head splits is said in :mod:`backend.attribution.token_splits`. Everything is computed in float32 states and
float64 sums. The live score goes through the feature store's half precision, as in the evaluation;
:attr:`TokenEvidence.stored` is that same difference, and it lies apart from the sum by the rounding of the fingerprint
alone (a few thousandths of a nat). A token gets what its characters have; text beyond the proxy's window is one more
piece where a head has read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.attribution.scoring import cells_of_traces
from backend.attribution.token_splits import Foreign, Part, Seen, Split, head_part, log_odds, summed
from backend.enrolment.auxiliary_models import Others, read_auxiliary_models
from backend.enrolment.enrolment import Enrolment
from backend.intake.traces import whole
from backend.proxies.encoding import Encoded
from backend.proxies.reader import Reader
from backend.traces import Trace, view_text


@dataclass(frozen=True)
class TokenEvidence:
    """The heat map of one trace.

    source, rival : positive evidence speaks for the source, negative for the rival.
    starts, stops : length T characters of every token in the response. Tokens of one character that takes several share
        its offsets; a token that straddles the border to the prompt starts at 0.
    log_odds : the score difference from fingerprints that are not rounded; the sum of the tokens equals it to 1e-4.
    stored : the score difference as the live score has it, from fingerprints in half precision; of text nothing is
        rounded.
    """

    source: str
    rival: str
    response: str  # the text that the offsets count in; lone surrogates are U+FFFD
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    split: Split
    log_odds: float
    stored: float
    cut: int  # characters at the end that were not read


def token_evidence(
    reader: Reader, enrolment: Enrolment, trace: Trace, source: int, rival: int, others: Others | None = None
) -> TokenEvidence:
    """Evidence of every response token of a trace for one candidate against another.

    reader : with the proxy of the enrolment.
    source, rival : candidates, as columns of the enrolment.
    others : further proxies and encoders that members read with.
    """
    clean = Trace(whole(trace.prompt), whole(trace.response))
    (encoded,) = reader.encode([clean], enrolment.view)
    heads = enrolment.heads_for(enrolment.folds_of([trace.prompt])[0])
    starts, stops = _offsets(reader, clean, enrolment, encoded)
    layers = sorted({layer for head in heads for layer in head.layers})
    known = others or {}
    texts = {name: held for name, held in known.items() if not isinstance(held, Reader)}
    seen = Seen(
        clean.response,
        len(starts),
        reader.states(encoded, layers) if layers else {},
        enrolment.counts([clean.response]),
        read_auxiliary_models(enrolment, [clean], texts),
        _elsewhere(enrolment, clean, known),
        int(cells_of_traces([clean], [encoded], enrolment.cells_by)[0]),
    )
    share = 1 / len(heads)
    part = summed([head_part(enrolment, head, seen, source, rival) for head in heads], [share] * len(heads))
    if part.characters is not None:
        starts, stops = _with_rest(starts, stops, len(clean.response))
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
        _on_tokens(part, stops),
        exact,
        stored,
        max(0, len(clean.response) - max(stops, default=0)),
    )


def _elsewhere(enrolment: Enrolment, trace: Trace, others: Others) -> dict[str, Foreign]:
    """The trace by every further proxy that members read with."""
    out = {}
    for name, layers in enrolment.beside.items():
        held = others.get(name)
        if isinstance(held, Reader) and layers:
            (encoded,) = held.encode([trace], enrolment.view)
            out[name] = Foreign(held.states(encoded, layers), *_offsets(held, trace, enrolment, encoded))
    return out


def _on_tokens(part: Part, stops: Sequence[int]) -> Split:
    """A part whose characters go to pieces that end at ``stops``, a shared end to the first of them."""
    if part.characters is None:
        return part.split
    until = np.concatenate([[0.0], np.cumsum(part.characters)])
    edges = np.maximum.accumulate(np.array([0, *stops]))
    behind = np.zeros(len(stops) - len(part.split.dc))  # no state was read of the text behind the window
    level, change = (np.concatenate([held, behind]) for held in (part.split.dc, part.split.ac))
    return Split(level, change, part.split.constant, np.diff(until[edges]))


def _with_rest(starts: tuple[int, ...], stops: tuple[int, ...], length: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tokens, and the text behind the last of them as one more piece."""
    end = max(stops, default=0)
    return (starts, stops) if end >= length else ((*starts, end), (*stops, length))


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

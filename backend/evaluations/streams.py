"""Watched streams of held-out responses: false alarms, and the delay until a change is seen.

A stream is of one source, scored by models that never saw the prompt. Null streams come in two kinds: ``resampled``,
where the reference and as long a stream as is wanted are drawn with replacement from all held-out responses of the
source, and ``parted``, where every response is drawn once and the stream ends with them. After a change the responses
are another source's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.inference import Doubles, Ints
from backend.inference.e_process import log_capital, oddness, smoothed_ranks

STREAMS = 1_000
TRACES = 1_000
CHANGE = 200  # traces before a change
LEVELS = (0.01, 0.05)
MIXED = 0.3  # share of another source's responses in a mixture
SEED = 42
STATISTIC = "e-process"
CHANGES = ("sibling", "family", "mixture")
Rows = npt.NDArray[np.floating]


def measure(
    log_posteriors: Rows, families: Sequence[str], streams: int = STREAMS, traces: int = TRACES,
    progress: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:  # fmt: skip
    """Rows of the table ``audit_validation``.

    log_posteriors : (C * P, C), out-of-fold, row = source * P + prompt. families : length C.
    Metrics: ``alarms``, the share of streams with one by their end; ``early``, that with one before the change;
    ``delay_traces`` and ``delay90_traces``, median and 90 % quantile of traces from the change to the alarm among the
    other streams. Where there is none it counts as the end of the stream.
    """
    family, sources = np.unique(families, return_inverse=True)[1], len(families)
    each = len(log_posteriors) // sources
    prior = np.full(sources, -np.log(sources))
    cells = np.asarray(log_posteriors, dtype=np.float64).reshape(sources, each, sources)
    siblings = [np.flatnonzero((family == family[c]) & (np.arange(sources) != c)) for c in range(sources)]
    strangers = [np.flatnonzero(family != family[c]) for c in range(sources)]

    def scores(source: int, claimed: int, prompts: Ints) -> Doubles:
        return oddness(cells[source, prompts], prior, claimed)

    rows: list[dict[str, Any]] = []
    for scenario in ("resampled", "parted", *CHANGES):
        rng = np.random.default_rng([SEED, len(rows)])
        able = [c for c in range(sources) if scenario != "sibling" or len(siblings[c])]
        length = each - each // 2 if scenario == "parted" else traces
        ranks = np.empty((streams, length))
        for number in range(streams):
            claimed = int(rng.choice(able))
            if scenario == "parted":
                order = rng.permutation(each)
                reference, stream = (scores(claimed, claimed, part) for part in np.split(order, [each // 2]))
            else:
                reference = scores(claimed, claimed, rng.integers(0, each, size=each))
                stream = scores(claimed, claimed, rng.integers(0, each, size=length))
            if scenario in CHANGES:
                other = int(rng.choice((siblings if scenario == "sibling" else strangers)[claimed]))
                swapped = np.arange(length) >= CHANGE
                if scenario == "mixture":
                    swapped &= rng.random(length) < MIXED
                stream[swapped] = scores(other, claimed, rng.integers(0, each, size=int(swapped.sum())))
            ranks[number] = smoothed_ranks(reference, stream, 1.0 - rng.random(length))
        log_e = log_capital(ranks)
        progress(scenario)
        for level in LEVELS:
            about = {"k": length, "statistic": STATISTIC, "scenario": scenario, "level": level, "n": streams}
            rows += [about | one for one in _measured(log_e, level, scenario in CHANGES)]
    return pd.DataFrame(rows)


def _measured(log_e: Doubles, level: float, changes: bool) -> list[dict[str, Any]]:
    """Metrics of streams (N, n) at one rate."""
    over = log_e >= -np.log(level)
    at = np.where(over.any(1), over.argmax(1) + 1, log_e.shape[1])
    found = {"alarms": float(over.any(1).mean())}
    if changes:
        early = over[:, :CHANGE].any(1)
        delays = at[~early] - CHANGE
        found |= {"early": float(early.mean()), "delay_traces": float(np.median(delays))}
        found["delay90_traces"] = float(np.quantile(delays, 0.9))
    return [{"metric": metric, "value": value} for metric, value in found.items()]

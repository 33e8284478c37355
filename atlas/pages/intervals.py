"""How sure a curve is: the stored 95 % interval, else the spread over the folds.

The spread over the seeds of the grouping is neither: they group the same answers anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from atlas.data import QueryCache
from atlas.state import View
from backend.store import queries

INTERVAL = "95 % interval"
FOLDS = "one standard deviation over the folds"


def curves(
    cache: QueryCache,
    view: View,
    readers: str | Sequence[str],
    metric: str,
    reduction: str = "pooled",
    condition: str = "clean",
) -> pd.DataFrame:
    """A metric of some readers against the budget, with what it may be off by.

    Columns of :func:`backend.store.queries.metric_curve`, low, high (NaN where neither is stored), and band (what these
    are: ``INTERVAL``, ``FOLDS`` or ''). Means over the folds have the folds' spread.
    """

    def stored(name: str, kind: str) -> pd.DataFrame:
        return cache.ask(queries.metric_curve, readers, view.roster, view.domain, condition, name, kind)

    frame = stored(metric, reduction)
    at = pd.MultiIndex.from_frame(frame[["reader", "k"]])

    def column(name: str, kind: str, field: str) -> pd.Series:
        return stored(name, kind).set_index(["reader", "k"])[field].reindex(at).set_axis(frame.index).astype(float)

    spread = column(metric, "fold", "std")
    low, high = (column(f"{metric}_{end}", "pooled", "value") for end in ("low", "high"))
    exact = low.notna() & high.notna() & (reduction == "pooled")
    return frame.assign(
        low=low.where(exact, frame["value"] - spread),
        high=high.where(exact, frame["value"] + spread),
        band=np.select([exact, spread.notna()], [INTERVAL, FOLDS], ""),
    )


def over_folds(frame: pd.DataFrame) -> pd.DataFrame:
    """Summaries whose ``std`` is the spread over the folds, also of what pools them; NaN where none is stored.

    frame : rows of :func:`backend.store.queries.summaries`, both reductions; of two spreads the first counts.
    """
    keys = ["reader", "benchmark", "condition", "metric", "k"]
    spread = frame[frame["reduction"] == "fold"].drop_duplicates(keys).set_index(keys)["std"]
    return frame.assign(std=spread.reindex(pd.MultiIndex.from_frame(frame[keys])).to_numpy(dtype=float))


def bare(frame: pd.DataFrame) -> pd.DataFrame:
    """Curves as :func:`curves` gives them, for lines that are drawn without a band."""
    return frame.assign(low=np.nan, high=np.nan, band="")


def around(row: pd.Series) -> str:
    """What a share of :func:`curves` may be off by, in percent: ' (95 % interval 47.1 to 50.3)'; '' where unknown."""
    return {
        INTERVAL: f" ({INTERVAL} {100 * row['low']:.1f} to {100 * row['high']:.1f})",
        FOLDS: f" (± {100 * (row['high'] - row['value']):.1f}, {FOLDS})",
    }.get(row["band"], "")


def note(frame: pd.DataFrame) -> str:
    """What the bands of some curves are, as a part of a sentence; '' without any."""
    kinds = [kind for kind in (INTERVAL, FOLDS) if (frame["band"] == kind).any()]
    return f"; bands: {', else '.join(kinds)}" if kinds else ""

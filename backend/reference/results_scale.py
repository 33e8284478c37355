"""What a day of many traces takes: machines, core-hours, storage and money, from measured speeds.

Only speeds that a build has measured enter. Machines are those of the build; a price is an assumption and is printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import duckdb

from backend.methods.registry import FUSED_LIVE, LDA_LIVE
from backend.protocol import READER_PAPER
from backend.reference.results_tables import header, line
from backend.spectral import FINGERPRINT_MODES
from backend.store.result_queries import matching_rows

TRACES = 100_000_000  # a day
SECONDS = 86_400
CORE_HOUR, CARD_HOUR = 0.04, 3.5  # assumed prices of a processor core and of a graphics card for an hour, in US dollars
METHODS = ("ngram-word", LDA_LIVE, FUSED_LIVE, READER_PAPER)
COLUMNS = ("machine", "traces/s", "machines", "machine-hours a day", "US$ a day")


def reading_table(cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """A day of traces read by each proxy, at the best speed that was measured to its depth."""
    rows = [_timed(cursor, row) for row in matching_rows(cursor, "extractions", {}) if row["records_per_s"]]
    if not rows:
        yield "Not measured: `python -m jobs extract`."
        return
    widths = {row["proxy"]: row["hidden_size"] for row in matching_rows(cursor, "proxies", {})}
    best: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["records_per_s"]):
        best[row["proxy"], row["input_view"], row["last"]] = row
    yield from header(["proxy", "view", "through block", *COLUMNS, "fingerprints, GB a day"], 4)
    for (proxy, view, last), row in sorted(best.items()):
        stored = TRACES * FINGERPRINT_MODES * widths[proxy] * 2 / 1e9
        yield line([f"`{proxy}`", f"`{view}`", str(last), *_day(row["host"], row["records_per_s"]), f"{stored:,.0f}"])


def scoring_table(cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """A day of traces from text to the scores of all sources, in one process."""
    rows = [row for row in matching_rows(cursor, "costs", {"measure": "latency_ms"}) if row["value"]]
    rows = [row for row in rows if row["reader"].split("/")[0] in METHODS]
    origins = {row["reader"]: row["origin"] for row in matching_rows(cursor, "readers", {})}
    if not rows:
        yield "Not measured: `python -m jobs evaluate --stage cost`."
        return
    yield from header(["reader", "origin", "sources", *COLUMNS], 4)
    for row in sorted(rows, key=lambda row: (row["value"], row["reader"], row["roster"])):
        sources = row["roster"].removesuffix("-way")
        reader = row["reader"]
        yield line([f"`{reader}`", origins[reader], sources, *_day(row["hardware"], 1000 / row["value"])])


def _timed(cursor: duckdb.DuckDBPyConnection, row: dict[str, Any]) -> dict[str, Any]:
    """An extraction with its machine and the last block that it read."""
    (build,) = matching_rows(cursor, "builds", {"build_id": row["build_id"]})
    return row | {"host": build["host"], "last": int(re.findall(r"\d+", row["layers"])[-1])}


def _day(machine: str, speed: float) -> list[str]:
    """The cells of COLUMNS at so many traces a second of one machine."""
    cores = int(found[1]) if (found := re.search(r"(\d+) cores?", machine)) else None
    hours = TRACES / speed / 3600
    price = hours * (CARD_HOUR if cores is None else CORE_HOUR * cores)
    numbers = (speed, math.ceil(TRACES / SECONDS / speed), hours, price)
    return [machine, *(f"{number:,.1f}" if number < 10 and number % 1 else f"{number:,.0f}" for number in numbers)]

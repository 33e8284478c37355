"""Which block a reader without folds is read at: the modal one of a layer selection, or the one that a person names."""

from __future__ import annotations

import duckdb

from backend.errors import AtlasError
from backend.protocol import READER_PAPER
from backend.store.queries import selected_layers
from backend.traces import View

MODAL = "modal"


def modal_block(connection: duckdb.DuckDBPyConnection, reader: str, roster: str) -> int | None:
    """The block that the evaluation of a reader on a roster chose for everything without folds, if it did."""
    chosen = selected_layers(connection, reader, roster)
    modal = chosen.loc[chosen["outer_fold"].isna(), "layer"]
    return int(modal.iloc[0]) if len(modal) else None


def block_of(connection: duckdb.DuckDBPyConnection, proxy: str, view: View, roster: str, layer: str) -> tuple[int, str]:
    """Block that READER reads at, and where it comes from: 'asked', or the reader whose modal block it is.

    proxy : Short key.
    view : Where it was never evaluated, view ur speaks for it.
    layer : Block number or 'modal'.
    Raises AtlasError if no block was selected, or ``layer`` is neither 'modal' nor a number.
    """
    if layer != MODAL:
        if not layer.isdecimal() or int(layer) < 1:
            raise AtlasError(f"--layer {layer} is neither 'modal' nor a block number", "Give a number from 1 up")
        return int(layer), "asked"
    for candidate in dict.fromkeys((view, "ur")):
        reader = f"{READER_PAPER}/{proxy}/{candidate}"
        modal = modal_block(connection, reader, roster)
        if modal is not None:
            return modal, reader
    raise AtlasError(
        f"No block has been selected for {proxy} on {roster}",
        f"Run: python -m jobs evaluate --proxy {proxy} --roster {roster}, or name a block with --layer",
    )

"""What a reader costs: parameters, fitting, and the audit of one response (paper, Computational Profile).

The audit path is what has to be computed for a response: the text embedding, the Transformer blocks up to the one that
is read, and the linear head; later blocks, the language-model head and vision modules are not run. Latency covers
tokenisation, the early-exit pass and the scores of all sources, after loading: the median of three warmed runs over 256
responses. Fit time is one outer fold from stored fingerprints, standardiser included, which is what the release timed;
the paper's text adds the selection of the block, which is given apart.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

RECORDS = 256
RUNS = 3
UNITS = {
    "trainable_parameters": "parameters",
    "audit_parameters": "parameters",
    "fit_seconds": "s",
    "selection_seconds": "s",
    "latency_ms": "ms",
    "peak_memory_gb": "GB",
}
"""Measures in the order of the paper's table, and their units."""
SAMPLED_S = 0.01
STATM = Path("/proc/self/statm")


@dataclass(frozen=True)
class Timing:
    """Repeated runs of the same work."""

    seconds: tuple[float, ...]  # One a run, without the warming ones
    peak_bytes: int  # Most memory in use during them: of the device where it has its own, else of the whole process

    @property
    def median(self) -> float:
        """Median of the runs in seconds."""
        return float(np.median(self.seconds))


def timed(work: Callable[[], object], runs: int = RUNS, warm: int = 1, device: str = "cpu") -> Timing:
    """Run work repeatedly, after warming up.

    runs, warm : Measured runs, and runs before them; device : 'cpu' or 'cuda', whose memory is watched.
    """
    for _ in range(warm):
        work()
    seconds = []
    with _peak_memory(device) as peak:
        for _ in range(runs):
            started = time.perf_counter()
            work()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
    return Timing(tuple(seconds), peak[0])


def linear_parameters(width: int, classes: int) -> int:
    """Weights and biases of a linear head; the standardiser is not counted, because it is not trained."""
    return (width + 1) * classes


def audit_parameters(model: Any, depth: int, layer: int) -> int:
    """Parameters of the text embedding and of the blocks up to the one that is read.

    model : Base model or text decoder; depth : Number of its Transformer blocks.
    layer : Block that is read, 1 .. depth.
    Raises ValueError if the model has no list of as many blocks, or the layer lies outside.
    """
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == depth]
    if not lists or not 1 <= layer <= depth:
        raise ValueError(f"no block {layer} among {depth} blocks of {type(model).__name__}")
    # An encoder adds position and type embeddings to those of the words.
    embedding = getattr(model, "embeddings", None) or model.get_input_embeddings()
    parts = [embedding, *lists[0][:layer]]
    return sum(parameter.numel() for parameter in {p for part in parts for p in part.parameters()})


def cost_frame(measures: Mapping[str, float], hardware: str) -> pd.DataFrame:
    """Measures as rows.

    measures : Names of :data:`UNITS`; those that were not measured are absent.
    Returns columns measure, value, unit, hardware; in the order of :data:`UNITS`.
    """
    unknown = sorted(set(measures) - set(UNITS))
    if unknown:
        raise ValueError(f"there is no measure {unknown[0]!r}")
    names = [name for name in UNITS if name in measures]
    return pd.DataFrame(
        {
            "measure": names,
            "value": [float(measures[name]) for name in names],
            "unit": [UNITS[name] for name in names],
            "hardware": hardware,
        }
    )


@contextlib.contextmanager
def _peak_memory(device: str) -> Iterator[list[int]]:
    """Watch memory; the list holds the peak in bytes when the block has ended."""
    peak = [0]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        yield peak
        peak[0] = int(torch.cuda.max_memory_allocated())
        return
    if not STATM.exists():  # the peak since the process began is all that other systems tell
        yield peak
        peak[0] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return
    done = threading.Event()

    def watch() -> None:
        while True:
            peak[0] = max(peak[0], int(STATM.read_text("ascii").split()[1]) * resource.getpagesize())
            if done.wait(SAMPLED_S):
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()

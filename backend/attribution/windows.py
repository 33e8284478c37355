"""Two windows of traces from one endpoint, brought to a form that the drift test compares (paper, Limitations).

Fingerprints are standardised as the enrolment does, so that no coordinate speaks louder for its scale. Where
both windows answer the same prompts, and enough of them, answers are put side by side and swapped within prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from backend.enrolment.enrolment import WHOLE, Enrolment
from backend.errors import AtlasError, StoppedError
from backend.inference.drift import FEWEST_PAIRED, DriftTest, Method, drift_test
from backend.inference.drift_wording import so_far
from backend.intake import Layout, Limits, Problem, walk

Floating = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]
FEWEST = 5  # traces that a window must have at least: with fewer, no permutation is rare enough
MOST = 1_000  # traces of a window that are compared; of a longer one, as many in even steps


def standardised(fingerprints: Floating, enrolment: Enrolment) -> Doubles:
    """Fingerprints (n, 2 d) at the block where the enrolment places traces, (n, D), as its heads see them.

    Where no head reads that block, or all of a fingerprint there, the spread of the enrolled domain stands in.

    Raises AtlasError if there is neither.
    """
    if enrolment.landing is None:
        mean, scale = _of_heads(enrolment) or _of_domain(enrolment)
        columns = np.asarray(enrolment.columns(fingerprints), dtype=np.float64)
    else:  # the validation compares whole fingerprints there, whatever part of them is scored
        mean, scale = (_of_heads(enrolment) if enrolment.block == WHOLE else None) or _of_domain(enrolment)
        columns = np.asarray(fingerprints, dtype=np.float64)
    out: Doubles = (columns - mean) / scale
    return out


def _of_heads(enrolment: Enrolment) -> tuple[Floating, Floating] | None:
    """Mean and spread by the first head that reads where traces are placed."""
    for head in enrolment.heads:
        if enrolment.place in head.layers:
            mean, scale = head.standardiser or (np.empty(0), np.empty(0))
            width = len(mean) // len(head.layers)
            inside = slice(head.layers.index(enrolment.place) * width, (head.layers.index(enrolment.place) + 1) * width)
            return mean[inside], scale[inside]
    return None


def _of_domain(enrolment: Enrolment) -> tuple[Floating, Floating]:
    """Mean and spread of the enrolled domain."""
    for name in sorted(enrolment.attachments):
        part, _, array = name.partition(".")
        if part.startswith("domain-") and array == "mean":
            mean, scale = (np.asarray(enrolment.attachments[f"{part}.{of}"]) for of in ("mean", "scale"))
            return mean, scale
    raise AtlasError(
        f"The enrolment '{enrolment.name}' brings no spread at block {enrolment.place}", "Make it again with its domain"
    )


def side_by_side(before: Sequence[str], after: Sequence[str]) -> npt.NDArray[np.intp] | None:
    """Order of the second window that puts the same prompts side by side.

    before, after : prompts.
    Returns (n,), None where the windows do not answer the same prompts, or answer one twice.
    """
    place = {prompt: i for i, prompt in enumerate(after)}
    if len(place) != len(after) or len(set(before)) != len(before) or set(place) != set(before) or "" in place:
        return None
    return np.array([place[prompt] for prompt in before], dtype=np.intp)


def in_common(before: Sequence[str], after: Sequence[str]) -> tuple[list[int], list[int]] | None:
    """Rows of two windows that answer the same prompts.

    before, after : prompts.
    Returns None where the windows have too few prompts in common for a paired test, or answer one of them twice.
    """
    both = set(before) & set(after) - {""}
    first, second = ([i for i, prompt in enumerate(prompts) if prompt in both] for prompts in (before, after))
    return (first, second) if FEWEST_PAIRED <= len(both) == len(first) == len(second) else None


def compare(
    before: Floating,
    after: Floating,
    prompts: tuple[Sequence[str], Sequence[str]],
    enrolment: Enrolment,
    method: Method = "energy",
) -> DriftTest:
    """Test two windows for drift.

    before, after : (n, 2 d) and (m, 2 d) fingerprints at the block where the enrolment places traces.
    prompts : lengths n and m.
    Returns paired where the windows answer the same prompts, and at least as many as such a test needs.
    Raises AtlasError if a window has fewer than :data:`FEWEST` traces.
    """
    long_enough((len(before), len(after)))
    order = side_by_side(*prompts) if FEWEST_PAIRED <= max(len(before), len(after)) <= MOST else None
    first, second = (standardised(window, enrolment) for window in (thinned(before), thinned(after)))
    return drift_test(first, second if order is None else second[order], method, paired=order is not None)


def long_enough(counts: Sequence[int], files: Sequence[str] = ()) -> None:
    """Refuse windows that are too short to be compared.

    counts : traces of the two windows, or of the one file whose halves they are.
    files : what the files are called.
    Raises AtlasError if a window has fewer than :data:`FEWEST` traces.
    """
    sizes = of_both([(count, count) for count in counts])
    for number, (name, (size, _)) in enumerate(zip(("first", "second"), sizes, strict=True)):
        if size < FEWEST:
            where = f" ({files[min(number, len(files) - 1)]})" if files else ""
            raise AtlasError(
                f"The {name} window has {size} trace{'s' if size != 1 else ''}{where}",
                f"Give at least {FEWEST} traces in each window",
            )


def of_both(read: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """How much was read of both windows, which may be the halves of one file.

    read : length 1 or 2 traces of a file that were read, in its order, and that it has.
    Returns length 2, the same of the windows. Where the halves part does not depend on how much was read.
    """
    if len(read) == 2:
        return list(read)
    ((done, total),) = read
    middle = total // 2
    return [(min(done, middle), middle), (max(done - middle, 0), total - middle)]


def enough_read(read: Sequence[tuple[int, int]]) -> None:
    """Refuse to compare what was read when somebody stopped, where it is too little.

    read : length 1 or 2 see :func:`of_both`.
    Raises StoppedError if fewer than :data:`FEWEST` traces of a window were read.
    """
    windows = of_both(read)
    if min(done for done, _ in windows) < FEWEST:
        raise StoppedError(
            f"The comparison was stopped when {so_far(windows)}",
            f"Start it again; {FEWEST} traces of each window are the least that can be compared",
        )


def thinned(window: Floating) -> Floating:
    """At most :data:`MOST` rows, in even steps."""
    if len(window) <= MOST:
        return window
    return window[np.linspace(0, len(window) - 1, MOST).astype(np.intp)]


def prompts_of(stream: BinaryIO, layout: Layout, limits: Limits, traces: Sequence[Mapping[str, Any]]) -> list[str]:
    """Prompts of the traces that a report lists, in its order, out of their file."""
    needed = {(trace["place"], trace["turn"]) for trace in traces}
    return [
        entry.prompt
        for entry in walk(stream, layout, limits)
        if not isinstance(entry, Problem) and (entry.place, entry.turn) in needed
    ]

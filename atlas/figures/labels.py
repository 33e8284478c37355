"""Names beside marks: on which side of its mark a name stands so that names and marks do not cover one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LETTER = 6.2
"""Width of a letter in pixels, at a size of 11."""
TALL = 14.0
REACH = 7.0
"""Half the size of a mark, and the gap to its name."""
RING = 13.0
"""The same of a mark with a ring around it."""
BOLD = 7.0
"""Width of a bold letter in pixels, at a size of 12."""
SIDES = ("top center", "bottom center", "middle right", "middle left")
Box = tuple[float, float, float, float]


def sides(across: Sequence[float], heights: Sequence[float], names: Sequence[str], wide: float) -> list[str]:
    """Plotly's text position of every mark.

    across, heights : Places of the marks in pixels, upwards.
    names : In their order one after another finds the first side that is free; where none is, the least covered
        one.
    wide : Width of the drawing; what hangs over its ends counts as covered.
    """
    taken: list[Box] = [(x - REACH, y - REACH, x + REACH, y + REACH) for x, y in zip(across, heights, strict=True)]
    ends: list[Box] = [(-1e6, -1e6, 0.0, 1e6), (wide, -1e6, 1e6, 1e6)]
    found = []
    for place, (x, y, name) in enumerate(zip(across, heights, names, strict=True)):
        others = [*ends, *(box for number, box in enumerate(taken) if number != place)]
        boxes = {side: _box(x, y, LETTER * len(name), side) for side in SIDES}
        side = min(SIDES, key=lambda side: sum(_shared(boxes[side], box) for box in others))
        found.append(side)
        taken.append(boxes[side])
    return found


def free_sides(
    places: npt.NDArray[np.float64], names: Sequence[str], marks: npt.NDArray[np.float64], half: float, *, kept: int
) -> list[str]:
    """Plotly's text position of labels beside ringed marks, none of which stands on an earlier one.

    places : (n, 2); Ringed marks in pixels from the middle of the drawing, upwards.
    names : Their labels, the most important one first.
    marks : (m, 2); All marks: a label takes the side on which it covers the fewest.
    half : Half the width of the drawing.
    kept : So many of the first labels always find a place; of the others, '' stands for one without room.
    """
    dots = np.hstack([marks - REACH, marks + REACH])
    ends = np.array([[-1e6, -1e6, -half, 1e6], [half, -1e6, 1e6, 1e6]])
    taken: list[Box] = []
    found = []
    for (x, y), name in zip(places, names, strict=True):
        boxes = {side: _box(x, y, BOLD * len(name), side, RING) for side in SIDES}
        free = {side: box for side, box in boxes.items() if not any(_shared(box, other) for other in taken)}
        if not free and len(found) >= kept:
            found.append("")
            continue
        covers = {side: _covered(box, np.vstack([dots, ends])) for side, box in (free or boxes).items()}
        side = min(covers, key=lambda side: covers[side])
        found.append(side)
        taken.append(boxes[side])
    return found


def _box(x: float, y: float, wide: float, side: str, reach: float = REACH) -> Box:
    if side == "top center":
        return x - wide / 2, y + reach, x + wide / 2, y + reach + TALL
    if side == "bottom center":
        return x - wide / 2, y - reach - TALL, x + wide / 2, y - reach
    left = x + reach if side == "middle right" else x - reach - wide
    return left, y - TALL / 2, left + wide, y + TALL / 2


def _shared(one: Box, other: Box) -> float:
    """Area that two boxes share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0.0) * max(tall, 0.0)


def _covered(box: Box, others: npt.NDArray[np.float64]) -> float:
    """Area that a box shares with others of shape (m, 4)."""
    shared = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    return float(shared.clip(min=0).prod(axis=1).sum())

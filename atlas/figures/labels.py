"""Names beside marks: on which side of its mark a name stands so that names and marks do not cover one another."""

from __future__ import annotations

from collections.abc import Sequence

LETTER = 6.2
"""Width of a letter in pixels, at a size of 11."""
TALL = 14.0
REACH = 7.0
"""Half the size of a mark, and the gap to its name."""
SIDES = ("top center", "bottom center", "middle right", "middle left")
Box = tuple[float, float, float, float]


def sides(across: Sequence[float], heights: Sequence[float], names: Sequence[str], wide: float) -> list[str]:
    """Plotly's text position of every mark.

    Parameters
    ----------
    across, heights : sequence of float
        Places of the marks in pixels, upwards.
    names : sequence of str
        In their order one after another finds the first side that is free; where none is, the least covered one.
    wide : float
        Width of the drawing; what hangs over its ends counts as covered.
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


def _box(x: float, y: float, wide: float, side: str) -> Box:
    if side == "top center":
        return x - wide / 2, y + REACH, x + wide / 2, y + REACH + TALL
    if side == "bottom center":
        return x - wide / 2, y - REACH - TALL, x + wide / 2, y - REACH
    left = x + REACH if side == "middle right" else x - REACH - wide
    return left, y - TALL / 2, left + wide, y + TALL / 2


def _shared(one: Box, other: Box) -> float:
    """Area that two boxes share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0.0) * max(tall, 0.0)

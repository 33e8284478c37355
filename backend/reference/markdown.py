"""Tables as the report writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def line(cells: Sequence[str]) -> str:
    """One row."""
    return "| " + " | ".join(cells) + " |"


def header(names: Sequence[str], numbers: int | None = None) -> Iterator[str]:
    """Names and the rule below them.

    numbers : From which column on cells are set to the right; none without it.
    """
    yield line(names)
    yield line(["---:" if numbers is not None and column >= numbers else "---" for column in range(len(names))])


def spoken(names: Sequence[str]) -> str:
    """Names as a person lists them: a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)

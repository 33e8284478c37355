"""Lines of a text with their numbers; however many are blank, they cost next to nothing."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from backend.errors import AtlasError
from backend.intake.traces import Clock, Limits

Line = tuple[int, str | None]  # number from 1, and text; None where it is too long
PIECE = 1 << 16
_END = re.compile(r"\r\n?|\n")
_SPACE, _ENDS = re.compile(r"\s*+"), re.compile(r"[\r\n]*+")


def filled_lines(text: io.TextIOWrapper, most: int, limits: Limits, clock: Clock) -> Iterator[Line]:
    """Lines that are not blank, without their ends.

    text : opened with ``newline=""``.
    most : characters of a line; only so many are ever in memory.
    Raises AtlasError if there are more lines than the limits allow, or reading takes too long.
    """
    for number, line in _lines(text, most, limits, clock, _SPACE):
        if line is None or not line.isspace():
            yield number, line
        del line  # it may be large, and whoever has it now decides how long it stays


def table_lines(text: io.TextIOWrapper, most: int, limits: Limits, clock: Clock) -> Iterator[Line]:
    """Lines with their ends; empty ones in succession come together, under the number of the first.

    text, most, limits, clock : see :func:`filled_lines`.
    Raises AtlasError: as :func:`filled_lines`.
    """
    return _lines(text, most, limits, clock, _ENDS)


def _lines(text: io.TextIOWrapper, most: int, limits: Limits, clock: Clock, blank: re.Pattern[str]) -> Iterator[Line]:
    number, filled, size = 1, 0, 0
    parts: list[str] = []
    for piece in _pieces(text):
        clock.check(number, "line", len(piece))
        at, returns = 0, "\r" in piece
        while at < len(piece):
            if filled > limits.lines:
                raise AtlasError(
                    f"The file has more than {limits.lines:,} lines that are not blank (the last is line {number:,})",
                    "Cut it into parts",
                )
            if not parts and piece[at].isspace() and (stop := _end_of_blanks(piece, at, blank)) > at:
                if blank is _ENDS:
                    yield number, piece[at:stop]
                number += sum(piece.count(end, at, stop) for end in "\r\n") - piece.count("\r\n", at, stop)
                at = stop
                continue
            stop, after = _end_of_line(piece, at, returns)
            size += stop - at
            parts.append(piece[at : after if blank is _ENDS else stop])
            if size > most:
                parts = [""]
            at = after
            if after > stop:
                line = "".join(parts) if size <= most else None
                number, filled, size, parts = number + 1, filled + 1, 0, []
                yield number - 1, line
                del line
    if parts:
        yield number, "".join(parts) if size <= most else None


def _end_of_blanks(piece: str, at: int, blank: re.Pattern[str]) -> int:
    """Where the line begins that is not blank."""
    found = blank.match(piece, at)
    end = at if found is None else found.end()
    return at if end == at else max(at, piece.rfind("\n", at, end) + 1, piece.rfind("\r", at, end) + 1)


def _end_of_line(piece: str, at: int, returns: bool) -> tuple[int, int]:
    """Where a line ends without its end and with it; the same where the piece ends before."""
    if returns:
        found = _END.search(piece, at)
        return found.span() if found else (len(piece), len(piece))
    stop = piece.find("\n", at)
    return (len(piece), len(piece)) if stop < 0 else (stop, stop + 1)


def _pieces(text: io.TextIOWrapper) -> Iterator[str]:
    """The text in pieces, none of which ends between a carriage return and a line feed."""
    rest = ""
    while (fresh := text.read(PIECE)) or rest:
        piece = rest + fresh
        rest = "\r" if fresh and piece.endswith("\r") else ""
        yield piece[: len(piece) - len(rest)]

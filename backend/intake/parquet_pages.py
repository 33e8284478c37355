"""Pages of a Parquet file: what they unpack to, read from their headers before anything is unpacked.

The footer says sizes too, but nothing holds it to the truth; the headers are what a reader allocates memory by. Both
are read here: asked for a column whose statistics are damaged, pyarrow ends the process.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

Fields = dict[tuple[int, int], Any]
"""Values of a struct by type and number: a field of another type is not what a reader takes for it."""
_I32, _I64, _LIST, _STRUCT = 5, 6, 9, 12
_ROW_GROUPS, _COLUMNS, _META = (_LIST, 4), (_LIST, 1), (_STRUCT, 3)
_PACKED, _DATA_PAGE, _DICTIONARY_PAGE = (_I64, 7), (_I64, 9), (_I64, 11)
_DELTA_BYTE_ARRAY = 7
_ENCODINGS = {5: 2, 7: 2, 8: 4}
"""Where the headers of data, of a dictionary and of data of the second version say how values are encoded."""
_WINDOWS = (1 << 12, 1 << 16, 1 << 20, 1 << 24)


@dataclass(frozen=True)
class Page:
    """One page: bytes when it is unpacked, values, and whether one may repeat the beginning of the one before it."""

    unpacked: int
    values: int
    repeats: bool


def footer_length(stream: BinaryIO) -> int:
    """Bytes of the footer, as the end of the file states them."""
    stream.seek(-8, io.SEEK_END)
    return int.from_bytes(stream.read(4), "little")


def chunks_of(stream: BinaryIO) -> list[list[tuple[int, int]]]:
    """Where the pages of a file lie: a list for every row group, with first byte and end of every leaf column.

    Raises ValueError if the footer is damaged.
    """
    length = footer_length(stream)
    stream.seek(-8 - length, io.SEEK_END)
    try:
        footer, _ = _struct(stream.read(length), 0)
        groups = [[column[_META] for column in group[_COLUMNS]] for group in footer[_ROW_GROUPS]]
        return [[_extent(column) for column in group] for group in groups]
    except (LookupError, TypeError) as error:
        raise ValueError("the footer is damaged") from error


def pages_of(stream: BinaryIO, start: int, end: int) -> Iterator[Page]:
    """Pages between two places of a file; the stream is moved.

    start, end : bytes from the start of the file.
    Raises ValueError if there is no header of a page where one should be.
    """
    while start < end:
        header, length = _header(stream, start)
        unpacked, packed = header[_I32, 2], header[_I32, 3]
        # All of them count: which one holds is for the reader to say.
        kinds = [(header.get((_STRUCT, kind), {}), encoding) for kind, encoding in _ENCODINGS.items()]
        values = max(told.get((_I32, 1), 0) for told, _ in kinds)
        if min(unpacked, packed) < 0:
            raise ValueError(f"the page at byte {start:,} has a negative size")
        yield Page(unpacked, values, any(told.get((_I32, at)) == _DELTA_BYTE_ARRAY for told, at in kinds))
        start += length + packed


def _extent(column: Fields) -> tuple[int, int]:
    start, first = column[_DATA_PAGE], column.get(_DICTIONARY_PAGE, 0)
    start = first if 0 < first < start else start
    return start, start + column[_PACKED]


def _header(stream: BinaryIO, start: int) -> tuple[Fields, int]:
    """Header of a page and its length in bytes."""
    for window in _WINDOWS:
        stream.seek(start)
        raw = stream.read(window)
        try:
            header, length = _struct(raw, 0)
            if {(_I32, 2), (_I32, 3)} <= header.keys():
                return header, length
            break
        except IndexError:
            if len(raw) < window:
                break
    raise ValueError(f"there is no page at byte {start:,}")


def _struct(raw: bytes, at: int) -> tuple[Fields, int]:
    """A struct in Thrift's compact form, and where it ends."""
    found: Fields = {}
    number = 0
    while raw[at]:
        step, kind = raw[at] >> 4, raw[at] & 15
        at += 1
        if step:
            number += step
        else:
            number, at = _integer(raw, at)
        if (kind, number) in found:
            raise ValueError("a field is there twice")
        if kind in (1, 2):  # true and false
            continue
        found[kind, number], at = _value(raw, at, kind)
    return found, at + 1


def _value(raw: bytes, at: int, kind: int) -> tuple[Any, int]:
    """A value of a struct or a list, and where it ends; None for bytes and texts."""
    if kind == _STRUCT:
        return _struct(raw, at)
    if kind in (4, _I32, _I64):
        return _integer(raw, at, 64 if kind == _I64 else 32)
    if kind == 8:
        length, at = _varint(raw, at)
        return None, at + length
    if kind in (1, 2, 3, 7):  # true, false and byte, double
        after = at + (8 if kind == 7 else 1)
        if after > len(raw):
            raise IndexError("the header is cut")
        return None, after
    if kind != _LIST:
        raise ValueError("a field has an unknown type")
    length, inner = raw[at] >> 4, raw[at] & 15
    at += 1
    if length == 15:
        length, at = _varint(raw, at)
    values = []
    for _ in range(length):
        value, at = _value(raw, at, inner)
        values.append(value)
    return values, at


def _integer(raw: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    value, at = _varint(raw, at)
    value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1), at


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (raw[at] & 127) << shift
        at += 1
        if raw[at - 1] < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")

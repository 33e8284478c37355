"""Parquet: the columns that are needed, a few rows at a time, and never more in memory than the limits allow.

A few hundred bytes can mean a gigabyte, so sizes are added up before a page is unpacked, and a row is weighed before it
is turned into Python. They come from the headers of the pages, because nothing holds the footer to the truth; both are
read here, because pyarrow ends the process at damaged statistics.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import AtlasError
from backend.intake.encoding import PIECE, too_large
from backend.intake.layout import Layout, Limits, Problem
from backend.intake.log_formats import format_keys
from backend.intake.traces import Clock, check_names, short

ROWS = 256  # rows that are decoded at a time, where their pages are small
BATCH = 32_000_000  # bytes of a batch that is turned into Python at once; a larger one goes row by row
_PAGE, _CHUNK, _VALUE, _OBJECT = 1_000, 10_000, 8, 100  # bytes that each counts for, whatever is in it
SPREAD = 4  # times what a file may unpack to that its rows may hold: a text that stands in it once may be meant by many
FOOTER = 25  # part of what a file may unpack to that its footer may take, which takes many times its bytes in memory
_ERRORS = (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError)
Record = tuple[int, dict[str, Any]]


def parquet_fields(stream: BinaryIO, limits: Limits) -> list[str]:
    """Columns of a Parquet file; AtlasError if it is damaged, its footer too long, or its columns too many."""
    try:
        if footer_length(stream) > limits.unpacked // FOOTER:
            raise AtlasError("The footer of the Parquet file is too long", "Write it with fewer and larger row groups")
        names = [str(name) for name in _opened(stream).schema_arrow.names]
    except _ERRORS as error:
        raise _damaged(error) from error
    check_names(names)
    return names


def read_parquet(stream: BinaryIO, layout: Layout, limits: Limits, clock: Clock) -> Iterator[Record | Problem]:
    """Of every row the columns that the layout maps, and those of a log format.

    Raises AtlasError if the file is damaged, or larger than the limits when it is unpacked.
    """
    number = unpacked = decoded = 0
    most = 10 * limits.characters  # prompt and response, of four bytes a character, and what stands next to them
    needed = _needed(layout)
    try:
        file = _opened(stream)
        roots = tuple(f"{column}." for column in needed)
        leaves = [i for i in range(len(file.schema)) if f"{file.schema.column(i).path}.".startswith(roots)]
        listed = [file.schema.column(i) for i in leaves if file.schema.column(i).max_repetition_level]
        file = _opened(stream, file.metadata, [leaf.path for leaf in listed if leaf.physical_type == "BYTE_ARRAY"])
        for group, chunks in enumerate(chunks_of(stream)):
            largest = 1
            for leaf in leaves:
                for size, page in _sizes(stream, file.schema.column(leaf), *chunks[leaf]):
                    clock.check(number + 1, "row")
                    unpacked += size
                    largest = max(largest, page)
                    if unpacked > limits.unpacked:
                        raise too_large(limits)
            if largest > limits.unpacked // 2:  # it is in memory twice, packed and as rows
                raise AtlasError("A page of the Parquet file is too large", "Write it with smaller pages")
            # Of what stands once in a page every row of a batch may hold a copy.
            rows = min(ROWS, max(1, BATCH // largest))
            for batch in file.iter_batches(rows, row_groups=[group], columns=needed, use_threads=False):
                decoded += (weight := sum(map(_weight, batch.columns)))
                clock.check(number + 1, "row", weight)
                if decoded > SPREAD * limits.unpacked:
                    raise too_large(limits)
                for record in batch.to_pylist() if weight <= BATCH else _one_by_one(batch, most):
                    number += 1
                    clock.check(number, "row")
                    if record is None:
                        yield Problem(number, None, f"the row is longer than {most:,} bytes")
                    else:
                        yield number, record
    except _ERRORS as error:
        raise _damaged(error, number) from error


def _opened(stream: BinaryIO, metadata: Any = None, encoded: Sequence[str] = ()) -> pq.ParquetFile:
    stream.seek(0)
    # A row group may be the whole file: with a buffer its pages come one by one.
    return pq.ParquetFile(stream, metadata=metadata, read_dictionary=list(encoded), buffer_size=PIECE, pre_buffer=False)


def _needed(layout: Layout) -> list[str]:
    named = [*layout.columns.named().values(), layout.group]
    mapped = {column if column in layout.fields else column.split(".", 1)[0] for column in named}
    keys = frozenset() if layout.mapped else format_keys()
    return [field for field in layout.fields if field in mapped or field in keys]


def _sizes(stream: BinaryIO, column: Any, start: int, end: int) -> Iterator[tuple[int, int]]:
    """What the pages of a column count for, and the bytes that a row may copy of each (0 in lists, which do not)."""
    yield _CHUNK, 0
    for page in pages_of(stream, start, end):
        if not column.max_repetition_level:
            yield _PAGE + page.unpacked + _VALUE * page.values, page.unpacked
            continue
        # A row may be a list of any length, so what is no number of a dictionary counts for every value.
        copied = column.length if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else page.unpacked * page.repeats
        yield _PAGE + page.unpacked + (_VALUE + copied) * page.values, 0


def _one_by_one(batch: pa.RecordBatch, most: int) -> Iterator[dict[str, Any] | None]:
    for i in range(batch.num_rows):
        row = batch.slice(i, 1)
        yield None if sum(map(_weight, row.columns)) > most else row.to_pylist()[0]


def _weight(array: pa.Array) -> int:
    """Bytes of an array when nothing in it is shared; what is in lists counts for the objects that it becomes."""
    if pa.types.is_dictionary(array.type):
        lengths = pc.binary_length(array.dictionary)
        return int(pc.sum(lengths.take(array.indices)).as_py() or 0)
    if pa.types.is_struct(array.type):
        return sum(map(_weight, array.flatten()))
    if pa.types.is_nested(array.type):
        inner = array.flatten()
        return _weight(inner) + _OBJECT * len(inner)
    return int(array.nbytes)


def _damaged(error: BaseException, after: int = 0) -> AtlasError:
    reason = short((str(error) or type(error).__name__).splitlines()[0], 120)
    where = f" after row {after:,}" if after else ""
    return AtlasError(f"The Parquet file cannot be read{where} ({reason})", "Write it again, or export JSONL or CSV")


Fields = dict[tuple[int, int], Any]  # a struct by type and number: a field of another type is another field
_I32, _I64, _LIST, _STRUCT = 5, 6, 9, 12
_SIZES = {1: 1, 2: 1, 3: 1, 7: 8}  # of true, false, byte and double in a list or a field
_ROW_GROUPS, _COLUMNS, _META = (_LIST, 4), (_LIST, 1), (_STRUCT, 3)
_PACKED, _DATA_PAGE, _DICTIONARY_PAGE = (_I64, 7), (_I64, 9), (_I64, 11)
_DELTA_BYTE_ARRAY = 7
_ENCODINGS = {5: 2, 7: 2, 8: 4}  # headers of data, dictionary and data of version 2: where their encoding stands
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
    """First byte and end of the pages of every leaf column, a list for every row group; ValueError if damaged."""
    length = footer_length(stream)
    stream.seek(-8 - length, io.SEEK_END)
    try:
        footer = _Thrift(stream.read(length)).struct()
        return [[_extent(column[_META]) for column in group[_COLUMNS]] for group in footer[_ROW_GROUPS]]
    except (LookupError, TypeError) as error:
        raise ValueError("the footer is damaged") from error


def pages_of(stream: BinaryIO, start: int, end: int) -> Iterator[Page]:
    """Pages between two bytes of a file; the stream is moved. ValueError where there is no header of a page."""
    while start < end:
        header, length = _header(stream, start)
        unpacked, packed = header[_I32, 2], header[_I32, 3]
        # All of them count: which one holds is for the reader to say.
        kinds = [(header.get((_STRUCT, kind), {}), encoding) for kind, encoding in _ENCODINGS.items()]
        values = max(part.get((_I32, 1), 0) for part, _ in kinds)
        if min(unpacked, packed) < 0:
            raise ValueError(f"the page at byte {start:,} has a negative size")
        yield Page(unpacked, values, any(part.get((_I32, at)) == _DELTA_BYTE_ARRAY for part, at in kinds))
        start += length + packed


def _extent(column: Fields) -> tuple[int, int]:
    start, first = column[_DATA_PAGE], column.get(_DICTIONARY_PAGE, 0)
    start = first if 0 < first < start else start
    return start, start + column[_PACKED]


def _header(stream: BinaryIO, start: int) -> tuple[Fields, int]:
    for window in _WINDOWS:
        stream.seek(start)
        thrift = _Thrift(stream.read(window))
        try:
            header = thrift.struct()
            if {(_I32, 2), (_I32, 3)} <= header.keys():
                return header, thrift.at
            break
        except IndexError:
            if len(thrift.raw) < window:
                break
    raise ValueError(f"there is no page at byte {start:,}")


class _Thrift:
    """Thrift's compact form; IndexError where the bytes end, ValueError where they are damaged."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def struct(self) -> Fields:
        found: Fields = {}
        number = 0
        while head := self.raw[self.at]:
            self.at += 1
            step, kind = head >> 4, head & 15
            number = number + step if step else self.integer()
            if (kind, number) in found:
                raise ValueError("a field is there twice")
            if kind not in (1, 2):  # true and false
                found[kind, number] = self.value(kind)
        self.at += 1
        return found

    def value(self, kind: int) -> Any:
        """A value of a struct or a list; None for bytes and texts."""
        if kind == _STRUCT:
            return self.struct()
        if kind in (4, _I32, _I64):
            return self.integer(64 if kind == _I64 else 32)
        if kind == _LIST:
            length, inner = self.raw[self.at] >> 4, self.raw[self.at] & 15
            self.at += 1
            length = self.varint() if length == 15 else length
            return [self.value(inner) for _ in range(length)]
        if kind == 8:
            length = self.varint()  # where it ends beyond the bytes, the next field does not begin
        elif kind in _SIZES:
            length = _SIZES[kind]
            if self.at + length > len(self.raw):
                raise IndexError("the header is cut")
        else:
            raise ValueError("a field has an unknown type")
        self.at += length
        return None

    def integer(self, bits: int = 32) -> int:
        value = self.varint() & ((1 << bits) - 1)
        return (value >> 1) ^ -(value & 1)

    def varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self.raw[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number is too long")

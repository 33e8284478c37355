"""Parquet: the columns that are needed, a few rows at a time, and never more in memory than the limits allow.

A few hundred bytes can say a gigabyte: a page may pack well, a text stand once in a dictionary and be meant a million
times, a list hold any number of nothings. So sizes are added up before a page is unpacked, texts in lists are kept as
numbers of their dictionary, and a row is weighed before it is turned into Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import AtlasError
from backend.intake.deadline import Clock
from backend.intake.encoding import PIECE, too_large
from backend.intake.log_formats import KEYS
from backend.intake.parquet_pages import chunks_of, footer_length, pages_of
from backend.intake.tables import check_names
from backend.intake.traces import Layout, Limits, Problem, short

ROWS = 256  # rows that are decoded at a time, where their pages are small
BATCH = 32_000_000  # bytes of a batch that is turned into Python at once; a larger one goes row by row
_PAGE, _CHUNK, _VALUE, _OBJECT = 1_000, 10_000, 8, 100
"""Bytes that a page, a column of a row group, a value and a Python object count for, whatever is in them."""
SPREAD = 4  # times what a file may unpack to that its rows may hold: a text that stands in it once may be meant by many
FOOTER = 25
"""Part of what a file may unpack to that its footer may take; a reader holds the footer in many times its bytes."""
_ERRORS = (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError)
Record = tuple[int, dict[str, Any]]


def parquet_fields(stream: BinaryIO, limits: Limits) -> list[str]:
    """Columns of a Parquet file.

    Raises AtlasError if it is damaged, its footer is too long, or it has too many columns or two of one name.
    """
    try:
        if footer_length(stream) > limits.unpacked // FOOTER:
            raise AtlasError("The footer of the Parquet file is too long", "Write it with fewer and larger row groups")
        names = [str(name) for name in _opened(stream).schema_arrow.names]
    except _ERRORS as error:
        raise _damaged(error) from error
    check_names(names)
    return names


def read_parquet(stream: BinaryIO, layout: Layout, limits: Limits, clock: Clock) -> Iterator[Record | Problem]:
    """Records of a Parquet file: of every row the columns that the layout maps, and those of a chat log.

    Raises AtlasError if it is damaged, or larger than the limits when it is unpacked.
    """
    number = unpacked = decoded = 0
    most = 10 * limits.characters  # prompt and response, of four bytes a character, and what stands beside them
    needed = _needed(layout)
    try:
        file = _opened(stream)
        leaves = [i for i in range(len(file.schema)) if _belongs(file.schema.column(i).path, needed)]
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
            if largest > limits.unpacked // 2:  # it is in memory twice, packed and as rows beside it
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
    mapped = {
        column if column in layout.fields else column.split(".", 1)[0] for column in layout.columns.named().values()
    }
    return [field for field in layout.fields if field in mapped or (field in KEYS and not layout.mapped)]


def _belongs(path: str, columns: Sequence[str]) -> bool:
    return any(path == column or path.startswith(f"{column}.") for column in columns)


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
    """Rows of a batch; None for one that is too large."""
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

"""From bytes to text: gzip, encodings, and what is refused at the door.

The file is walked through once, a piece at a time: hash, size and encoding are known before the first trace is read.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import io
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from zlib_ng import gzip_ng, zlib_ng

from backend.errors import AtlasError
from backend.intake.layout import Limits
from backend.intake.traces import Clock, short

DAMAGED: tuple[type[Exception], ...] = (EOFError, cast(Any, zlib_ng.error), gzip_ng.BadGzipFile)
PIECE = 1 << 20
_GZIP = b"\x1f\x8b"
_REFUSED = {
    b"PK\x03\x04": ("a ZIP archive or an Excel workbook", "Save the table as CSV, or unpack the archive"),
    b"%PDF": ("a PDF document", "Export the traces as JSONL or CSV"),
    b"SQLite format 3": ("an SQLite database", "Export the table as CSV"),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", "Unpack it first"),
    b"BZh": ("a bzip2 archive", "Unpack it first"),
    b"\xfd7zXZ": ("an xz archive", "Unpack it first"),
}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8 with byte order mark"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
# Codecs that Python has for text and that are no character sets; some take the square of a file's length.
_UNFIT = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"})
_GIVEN = " (as given)"
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b\b\a\0"))


@dataclass(frozen=True)
class Arrived:
    """What the walk through a file found, as received; no codec for Parquet."""

    size: int
    sha256: str
    packed: bool
    codec: str
    encoding: str


def codec_of(encoding: str) -> str:
    """Python's name of a character encoding; AtlasError if there is none of that name."""
    try:
        codec = codecs.lookup(encoding).name
        io.TextIOWrapper(io.BytesIO(), encoding=encoding)  # refuses what turns no bytes into text, such as hex
    except (LookupError, ValueError):
        codec = None
    if codec is None or codec in _UNFIT:
        known = "utf-8, utf-16-le, cp1252, cp1251, latin-1, gb18030, big5 or shift_jis"
        remedy = f"Name one such as {known}, or leave it out to have it recognised"
        raise AtlasError(f"There is no encoding '{short(encoding)}'", remedy)
    return codec


def encoding_given(words: str) -> str | None:
    """The encoding that a person named, out of the words of a layout or a report; None where it was recognised."""
    return words.removesuffix(_GIVEN) if words.endswith(_GIVEN) else None


def arrive(stream: BinaryIO, limits: Limits, clock: Clock, encoding: str | None = None) -> Arrived:
    """Walk through a seekable file once; ``encoding`` stands in place of the one that would be recognised.

    Raises AtlasError if it is empty, too large, packed wrongly, no text and no Parquet, or not in that encoding.
    """
    codec = None if encoding is None else codec_of(encoding)
    digest, size = hashlib.sha256(), 0
    stream.seek(0)
    while piece := stream.read(PIECE):
        digest.update(piece)
        size += len(piece)
        if size > limits.bytes:
            problem = f"The file is larger than {_megabytes(limits.bytes)}"
            remedy = "Run it by command line: python -m jobs attribute FILE; it has no limit of size by the page"
            raise AtlasError(problem, remedy)
    if not size:
        raise AtlasError("The file is empty", "Give a file with at least one trace")
    stream.seek(0)
    head = stream.read(4096)
    packed = head.startswith(_GZIP)
    with unpacked(stream, packed, clock) as inner:
        if packed:
            head = inner.read(4096)
            inner.seek(0)
        for magic, (what, remedy) in _REFUSED.items():
            if head.startswith(magic):
                raise AtlasError(f"The file is {what}", remedy)
        if head.startswith(b"PAR1"):
            if packed:
                raise AtlasError("The file is a Parquet file inside a gzip file", "Unpack it first")
            return Arrived(size, digest.hexdigest(), False, "", "")
        inner.seek(0)
        if codec is None:
            codec, encoding = _recognised(inner, head, limits, clock)
        else:
            remedy = "Name another encoding, or none to have it recognised"
            _check(inner, codec, f"The file cannot be read as {codec}", remedy, limits, clock)
            encoding = f"{codec}{_GIVEN}"
    return Arrived(size, digest.hexdigest(), packed, codec, encoding)


@contextlib.contextmanager
def unpacked(stream: BinaryIO, packed: bool, clock: Clock) -> Iterator[BinaryIO]:
    """The file from its start, unpacked if it is a gzip file; errors of gzip become sentences."""
    stream.seek(0)
    try:
        if packed:
            with cast(Any, gzip_ng.GzipNGFile)(fileobj=_Clocked(stream, clock), mode="rb") as inner:
                yield inner
        else:
            yield stream
    except DAMAGED as error:
        raise AtlasError(f"The gzip file is damaged ({error})", "Make or fetch it again") from error


class _Clocked(io.RawIOBase):
    """A packed file; a million empty gzip members are walked through within one call of ``read``."""

    def __init__(self, stream: BinaryIO, clock: Clock) -> None:
        self._stream, self._clock, self._place = stream, clock, 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(len(buffer))
        buffer[: len(piece)] = piece
        self._place += len(piece)
        self._clock.check(self._place, "byte", len(piece))
        return len(piece)


@contextlib.contextmanager
def text_of(
    stream: BinaryIO, packed: bool, codec: str, newline: str | None, clock: Clock
) -> Iterator[io.TextIOWrapper]:
    """The decoded file from its start; the stream itself stays open."""
    with unpacked(stream, packed, clock) as inner:
        wrapper = io.TextIOWrapper(inner, encoding=codec, newline=newline)
        try:
            yield wrapper
        finally:
            with contextlib.suppress(ValueError, OSError, *DAMAGED):
                wrapper.detach()


def too_large(limits: Limits) -> AtlasError:
    """The refusal of a file that is small only as long as it is packed."""
    problem = f"The file is larger than {_megabytes(limits.unpacked)} when it is unpacked"
    return AtlasError(problem, "Run it by command line: python -m jobs attribute FILE, or cut it into parts")


def _recognised(inner: BinaryIO, head: bytes, limits: Limits, clock: Clock) -> tuple[str, str]:
    named = next(((codec, words) for mark, codec, words in _MARKS if head.startswith(mark)), None)
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if named is None and max(even, odd) > len(head) // 8 and min(even, odd) <= max(even, odd) // 8:
        words = "UTF-16 (no byte order mark, found by its zero bytes)"
        named = f"utf-16-{'le' if odd > even else 'be'}", words
    if named is not None:
        codec, words = named
        _check(inner, codec, f"The file says that it is {words}, and is not", "Save it as UTF-8", limits, clock)
        return named
    if len(head.translate(None, _CONTROL)) < 0.9 * len(head) or head.count(0) > len(head) // 8:
        raise AtlasError("The file is binary, not text", "Give JSONL, CSV, Parquet, a chat log in JSON, or plain text")
    try:
        _decode(inner, "utf-8", limits, clock)
    except UnicodeDecodeError as error:
        guess = f"(a guess: byte {error.start + 1:,} is no UTF-8)"
    else:
        return "utf-8", "UTF-8"
    inner.seek(0)
    try:
        _decode(inner, "cp1252", limits, clock)  # what spreadsheets write; five of its bytes stand for nothing
    except UnicodeDecodeError:
        return "latin-1", f"Latin-1 {guess}"
    return "cp1252", f"Windows-1252 {guess}"


def _check(inner: BinaryIO, codec: str, problem: str, remedy: str, limits: Limits, clock: Clock) -> None:
    try:
        _decode(inner, codec, limits, clock)
    except UnicodeError as error:
        where = f" at byte {error.start + 1:,}" if isinstance(error, UnicodeDecodeError) else ""
        raise AtlasError(f"{problem}{where}", remedy) from error


def _decode(inner: BinaryIO, codec: str, limits: Limits, clock: Clock) -> None:
    """Decode everything once; errors count bytes from the start of the file."""
    decoder, done = codecs.getincrementaldecoder(codec)(), 0
    while piece := inner.read(PIECE):
        before = done - len(decoder.getstate()[0])
        try:
            decoder.decode(piece)
        except UnicodeDecodeError as error:
            error.start += before
            raise
        done += len(piece)
        clock.check(done, "byte", len(piece))
        if done > limits.unpacked:
            raise too_large(limits)
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        error.start += max(0, done - len(error.object))
        raise


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count < 10e9 else f"{count / 1e9:,.0f} GB"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file that can be read again from its start; a pipe is copied to a nameless temporary file meanwhile."""
    with contextlib.ExitStack() as stack:
        try:
            stream: BinaryIO = stack.enter_context(path.open("rb"))
            if not stream.seekable():
                copy = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(stream, copy)
                stream = copy
        except OSError as error:
            raise AtlasError(f"{path} cannot be read ({error.strerror})", "Check the path") from error
        yield stream

"""Files of traces as a command line names them: read from their start as often as wanted, also when they are pipes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from backend.errors import AtlasError


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file that can be read again from its start.

    path : what gives its bytes only once, such as ``<(zcat traces.gz)``, is kept in a nameless temporary file
        meanwhile.
    Raises AtlasError if it cannot be read.
    """
    with contextlib.ExitStack() as held:
        try:
            stream: BinaryIO = held.enter_context(path.open("rb"))
            if not stream.seekable():
                kept = held.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(stream, kept)
                stream = kept
        except OSError as error:
            raise AtlasError(f"{path} cannot be read ({error.strerror})", "Check the path") from error
        yield stream

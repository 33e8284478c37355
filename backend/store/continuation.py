"""Go on from what is served: a work database that begins with the published generation, and what it would lose.

What the atlas ships was measured over days; publishing a new, nearly empty work database would take it all away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from backend.errors import AtlasError
from backend.store.database import read_pointer
from backend.store.result_queries import holdings, open_reading


def served(data_folder: Path) -> tuple[str, Path] | None:
    """Name and file of the current generation, None where there is none."""
    with contextlib.suppress(AtlasError):
        name, path = read_pointer(data_folder)
        return (name, path) if path.exists() else None
    return None


def begin_work(path: Path, data_folder: Path) -> str | None:
    """Copy the current generation to where there is no work database yet, and name it.

    None, and nothing is copied, where the file is there or nothing is published. AtlasError if it cannot be written.
    """
    found = served(data_folder)
    if path.exists() or found is None:
        return None
    name, generation = found
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(generation, scratch)
        with contextlib.suppress(FileExistsError):  # another job was quicker
            os.link(scratch, path)
    except OSError as error:
        problem = f"The work database {path} cannot be begun ({error.strerror})"
        remedy = "Check the free space and the permissions of that folder, or point ATLAS_CACHE, or --work, elsewhere"
        raise AtlasError(problem, remedy) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()
    return name


def missing_results(work: Path, data_folder: Path) -> list[str]:
    """What the current generation has measured and a work database has not, as 'READER on ROSTER', sorted.

    A generation that this code cannot read has nothing to lose.
    """
    found = served(data_folder)
    if found is None:
        return []
    try:
        before = _measured(found[1])
    except AtlasError:
        return []
    return sorted(before - _measured(work))


def _measured(path: Path) -> set[str]:
    with contextlib.closing(open_reading(path)) as cursor:
        measured = [(row["reader"], row["roster"]) for row in holdings(cursor) if row["family"] != "statistics"]
    return {f"{reader} on {roster}" if roster else reader for reader, roster in measured}

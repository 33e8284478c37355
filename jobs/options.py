"""What the shared options mean: the release, the work database, rosters and views."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import duckdb

from backend.corpus.release import ROSTERS, Release, default_release
from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.store.database import WORK_FILE, InUseError, begin_work, default_data_folder, open_work
from backend.traces import VIEWS, View
from jobs.trace_options import add, aligned, parts

__all__ = [
    "add",
    "aligned",
    "chosen",
    "data_of",
    "parts",
    "release_of",
    "rosters_of",
    "views_of",
    "work_of",
    "work_path",
]

PATIENCE = 6 * 3600.0
"""Seconds that a job waits for another one to let go of the work database; evaluations hold it for an hour or more."""
LOOK_AGAIN = 2.0
Name = TypeVar("Name", bound=str)


def release_of(arguments: argparse.Namespace) -> Release:
    """The release that the arguments name."""
    return Release(arguments.release or default_release())


def home(arguments: argparse.Namespace) -> Path:
    """Folder of the work database: the cache folder, and ``look/`` in it for what only the first prompts are in."""
    return cache_folder() / "look" if getattr(arguments, "limit", None) is not None else cache_folder()


def work_path(arguments: argparse.Namespace) -> Path:
    """File of the work database that the arguments name."""
    return arguments.work or home(arguments) / WORK_FILE


def data_of(arguments: argparse.Namespace) -> Path:
    """Data folder that the arguments name; a look never gets into what is served, unless it is sent there."""
    return arguments.to or (default_data_folder() if arguments.limit is None else home(arguments) / "data")


def work_of(arguments: argparse.Namespace) -> duckdb.DuckDBPyConnection:
    """The work database that the arguments name, migrated; while another job holds it, this one waits.

    The one in the cache folder begins with what is served, so that what is measured next stands beside it. One that is
    named, and that of a look, begins empty. Raises InUseError if it is still held after :data:`PATIENCE`.
    """
    path = work_path(arguments)
    if arguments.work is None and home(arguments) == cache_folder():
        begun = begin_work(path, default_data_folder())
        if begun is not None:
            print(f"The work database begins with what is served, generation {begun}.", flush=True)
    until, said = time.monotonic() + PATIENCE, False
    while True:
        try:
            return open_work(path)
        except InUseError as error:
            if time.monotonic() >= until:
                raise
            if not said:
                print(f"{error.problem}. Waiting for it.", flush=True)
            said = True
            time.sleep(LOOK_AGAIN)


def chosen(text: str, known: Sequence[Name], unknown: str) -> list[Name]:
    """Comma-separated names in their usual order; ``unknown`` describes any other one."""
    names = parts(text)
    found = [name for name in known if name in names]
    if len(found) != len(names) or not found:
        raise AtlasError(f"'{text}' names {unknown}", f"Choose from {', '.join(known)}")
    return found


def rosters_of(text: str) -> list[str]:
    """Comma-separated roster names."""
    names = parts(text)
    unknown = [name for name in names if name not in ROSTERS]
    if unknown or not names:
        raise AtlasError(f"There is no roster '{', '.join(unknown)}'", f"Choose from {', '.join(ROSTERS)}")
    return names


def views_of(text: str) -> list[View]:
    """Comma-separated input views."""
    return chosen(text, VIEWS, "an input view that does not exist")

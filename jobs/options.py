"""Meaning of shared options: release, databases, rosters, views."""

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
from jobs.trace_options import add as add
from jobs.trace_options import aligned as aligned
from jobs.trace_options import parts as parts

PATIENCE = 6 * 3600.0  # seconds to wait for the work database, which evaluations lock for an hour or more
LOOK_AGAIN = 2.0  # seconds
Name = TypeVar("Name", bound=str)


def check_engine(arguments: argparse.Namespace) -> None:
    """Refuse options of a cluster without one, and numbers of workers below 1."""
    named = {"address": "ray", "store": "ray", "workers": "ray" if hasattr(arguments, "store") else arguments.engine}
    for name, engine in named.items():
        value = getattr(arguments, name, None)
        if value is not None and engine != arguments.engine:
            raise AtlasError(f"--{name} {value} belongs to --engine ray", "Add --engine ray, or leave it out")
    if arguments.workers is not None and arguments.workers < 1:
        raise AtlasError(f"--workers {arguments.workers} leaves nobody to work", "Give a number from 1 up")


def release_of(arguments: argparse.Namespace) -> Release:
    """The release that the arguments name."""
    return Release(arguments.release or default_release())


def home(arguments: argparse.Namespace) -> Path:
    """Folder of the work database: the cache folder; with ``--limit``, ``look/`` in it."""
    return cache_folder() / "look" if getattr(arguments, "limit", None) is not None else cache_folder()


def work_path(arguments: argparse.Namespace) -> Path:
    """File of the work database that the arguments name."""
    return arguments.work or home(arguments) / WORK_FILE


def data_of(arguments: argparse.Namespace) -> Path:
    """Data folder that the arguments name; with ``--limit`` by default one that is not served."""
    limited = getattr(arguments, "limit", None) is not None
    return arguments.to or (home(arguments) / "data" if limited else default_data_folder())


def work_of(arguments: argparse.Namespace) -> duckdb.DuckDBPyConnection:
    """The work database that the arguments name, migrated; waits while another job uses it.

    The one in the cache folder begins with what is served; one that is named, and that of a quick run, begins empty.
    Raises InUseError if it is still in use after :data:`PATIENCE`.
    """
    path = work_path(arguments)
    if arguments.work is None and home(arguments) == cache_folder():
        begun = begin_work(path, default_data_folder())
        if begun is not None:
            print(f"The work database begins with what is served, generation {begun}.", flush=True)
    until, printed = time.monotonic() + PATIENCE, False
    while True:
        try:
            return open_work(path)
        except InUseError as error:
            if time.monotonic() >= until:
                raise
            if not printed:
                print(f"{error.problem}. Waiting for it.", flush=True)
            printed = True
            time.sleep(LOOK_AGAIN)


def named(text: str, known: Sequence[Name], problem: str) -> list[Name]:
    """Comma-separated names as given. Raises AtlasError with ``problem``, where {} is what is not ``known``."""
    names = parts(text)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise AtlasError(problem.format(", ".join(unknown)), f"Choose from {', '.join(known)}")
    return [one for name in names for one in known if one == name]


def chosen(text: str, known: Sequence[Name], problem: str) -> list[Name]:
    """As :func:`named`, in their usual order."""
    names = named(text, known, problem)
    return [name for name in known if name in names]


def rosters_of(text: str) -> list[str]:
    """Comma-separated roster names."""
    return named(text, ROSTERS, "There is no roster '{}'")


def views_of(text: str) -> list[View]:
    """Comma-separated input views."""
    return chosen(text, VIEWS, "'{}' names an input view that does not exist")

"""Options that the verbs share, and what they mean: the release, the work database, rosters and views."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import duckdb

from backend.corpus.release import ROSTERS, Release, default_release
from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.store.continuation import begin_work
from backend.store.database import WORK_FILE, InUseError, default_data_folder, open_work
from backend.traces import VIEWS, View

PATIENCE = 6 * 3600.0
"""Seconds that a job waits for another one to let go of the work database; evaluations hold it for an hour or more."""
LOOK_AGAIN = 2.0


def add_release(parser: argparse.ArgumentParser) -> None:
    """``--release FOLDER``."""
    parser.add_argument(
        "--release", type=Path, default=None, help="folder of the public release (default: where fetch put it)"
    )


def add_work(parser: argparse.ArgumentParser) -> None:
    """``--work FILE``."""
    parser.add_argument("--work", type=Path, default=None, help="work database (default: in the cache folder)")


def add_limit(parser: argparse.ArgumentParser) -> None:
    """``--limit N``."""
    parser.add_argument(
        "--limit",
        type=int,
        default=None,
        metavar="N",
        help="only the first N prompts: a look, in a work database and a data folder of its own",
    )


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


def rosters_of(text: str) -> list[str]:
    """Comma-separated roster names."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in ROSTERS]
    if unknown or not names:
        raise AtlasError(f"There is no roster '{', '.join(unknown)}'", f"Choose from {', '.join(ROSTERS)}")
    return names


def views_of(text: str) -> list[View]:
    """Comma-separated input views."""
    asked = [name.strip() for name in text.split(",") if name.strip()]
    views: list[View] = [view for view in VIEWS if view in asked]
    if len(views) != len(asked) or not views:
        raise AtlasError(f"'{text}' names an input view that does not exist", f"Choose from {', '.join(VIEWS)}")
    return views

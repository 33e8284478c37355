"""Publish the work database as a new generation of the atlas.

Running web processes pick it up by themselves; the generation before it stays where it is. What is served and has no
row in the work database would be gone: that is refused, unless --replace says that it is meant.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.errors import AtlasError
from backend.store.database import default_data_folder, publish
from backend.store.result_queries import missing_results
from jobs import options

SHOWN = 3  # Readers that a refusal names.


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add(parser, "work")
    options.add(parser, "to")
    parser.add_argument("--prune", action="store_true", help="remove the older generations")
    parser.add_argument("--replace", action="store_true", help="publish even where that takes measured readers out")


def run(arguments: argparse.Namespace) -> int:
    """Publish and say what was published."""
    work, data = options.work_path(arguments), arguments.to or default_data_folder()
    if not arguments.replace and (loss := lost(work, data)):
        raise AtlasError(
            loss,
            "Move that work database away (a job begins the next one with what is served), publish to another folder "
            "with --to, or give --replace to take them out",
        )
    put_out(work, data, prune=arguments.prune)
    return 0


def lost(work: Path, data: Path) -> str | None:
    """What a publication would take out of a data folder, in a sentence; None where it is nothing."""
    gone = missing_results(work, data) if work.exists() else []
    more = f" and {len(gone) - SHOWN} more" if len(gone) > SHOWN else ""
    text = f"What is served in {data} has been measured, and {work} lacks it: {', '.join(gone[:SHOWN])}{more}"
    return text if gone else None


def put_out(work: Path, data: Path, *, prune: bool = False) -> None:
    """Publish a work database into a data folder, and say so."""
    path = publish(work, data, prune=prune)
    print(f"Published {path} ({path.stat().st_size / 1e6:.1f} MB).")

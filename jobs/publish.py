"""Publish the work database as a new generation of the atlas.

Running web processes pick it up by themselves; the generation before it stays where it is. Removing results that are
served and not in the work database is refused without --replace.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.errors import AtlasError
from backend.store.database import publish
from backend.store.result_queries import missing_results
from jobs import options

SHOWN = 3  # Readers that a refusal names.


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    options.add(parser, "work", "to")
    parser.add_argument("--prune", action="store_true", help="remove the older generations")
    parser.add_argument("--replace", action="store_true", help="publish even where that removes measured readers")


def run(arguments: argparse.Namespace) -> None:
    """Publish and say what was published."""
    work, data = options.work_path(arguments), options.data_of(arguments)
    if not arguments.replace and (loss := lost(work, data)):
        raise AtlasError(
            loss,
            "Move that work database away (a job begins the next one with what is served), publish to another folder "
            "with --to, or give --replace to take them out",
        )
    publish_work(work, data, prune=arguments.prune)


def lost(work: Path, data: Path) -> str | None:
    """Results that publishing would remove from a data folder, in a sentence; None where there are none."""
    gone = missing_results(work, data) if work.exists() else []
    more = f" and {len(gone) - SHOWN} more" if len(gone) > SHOWN else ""
    text = f"What is served in {data} has been measured, and {work} lacks it: {', '.join(gone[:SHOWN])}{more}"
    return text if gone else None


def publish_work(work: Path, data: Path, *, prune: bool = False) -> None:
    """Publish a work database into a data folder, and say so."""
    path = publish(work, data, prune=prune)
    print(f"Published {path} ({path.stat().st_size / 1e6:.1f} MB).")

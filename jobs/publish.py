"""Publish the work database as a new generation of the atlas.

Running web processes pick it up by themselves; the generation before it stays where it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.fingerprints import cache_folder
from backend.store.database import WORK_FILE, default_data_folder, publish


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("--work", type=Path, metavar="PATH", help="work database (default: in the cache folder)")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="data folder (default: ATLAS_DATA, else data/)")
    parser.add_argument("--prune", action="store_true", help="remove the older generations")


def run(arguments: argparse.Namespace) -> int:
    """Publish and say what was published."""
    work = arguments.work or cache_folder() / WORK_FILE
    path = publish(work, arguments.to or default_data_folder(), prune=arguments.prune)
    print(f"Published {path} ({path.stat().st_size / 1e6:.1f} MB).")
    return 0

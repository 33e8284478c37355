"""Enrol sources: from labelled traces, from a roster of the release, or the shipped sample.

The enrolment is one file in ``enrolments/`` of the data folder; it holds numbers, names and hashes, and no text.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.audit.enrolment import Enrolment
from backend.audit.enrolment_files import save_enrolment
from backend.errors import AtlasError
from backend.proxies.registry import DEFAULT_PROXY, load_reader, proxy_key
from backend.store.database import default_data_folder
from jobs._enrolments import sample_enrolment


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("--sample", action="store_true", help="enrol the responses that are shipped with the atlas")
    parser.add_argument("--proxy", default=DEFAULT_PROXY, help="proxy that reads the traces (default: %(default)s)")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="data folder (default: ATLAS_DATA, else data/)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Enrol and write the file."""
    folder = (arguments.to or default_data_folder()) / "enrolments"
    if not arguments.sample:
        raise AtlasError("Nothing to enrol was named", "Run: python -m jobs enroll --sample")
    proxy = proxy_key(arguments.proxy)
    made, left = sample_enrolment(load_reader(proxy, arguments.device), proxy)
    _write(made, folder)
    print(f"{len(left)} responses to prompts that were left out are there to try it on.")
    return 0


def _write(enrolment: Enrolment, folder: Path) -> Path:
    path = folder / f"{enrolment.name}.npz"
    kept = save_enrolment(enrolment, path)
    print(
        f"Written: {path.name}, {len(kept.sources)} sources, {len(kept.heads)} probes, "
        f"{path.stat().st_size / 1e6:.1f} MB, sha256 {kept.sha256[:12]}"
    )
    return path

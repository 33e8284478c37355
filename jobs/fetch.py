"""Fetch the public release and check every hash of its manifest.

Without --from it comes from the public repository. Files that are there and right are not copied again, so the
same command continues an interrupted fetch and repairs a damaged release.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from backend.corpus import ProgressReporter
from backend.corpus.download import PUBLIC_RELEASE, fetch
from backend.corpus.release import Release, default_release


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    text = f"folder, .tar.gz or .zip archive, or address of one (default: {PUBLIC_RELEASE})"
    parser.add_argument("--from", dest="source", metavar="PATH|URL", help=text)
    text = "where the release goes (default: ATLAS_RELEASE, else in the cache)"
    parser.add_argument("--to", type=Path, metavar="FOLDER", help=text)
    parser.add_argument("--recheck", action="store_true", help="read every file again, also those checked before")


def run(arguments: argparse.Namespace) -> None:
    """Fetch, check and print what is where."""
    target = arguments.to or default_release()
    meter = _Meter()
    reporter = ProgressReporter(meter.say, meter.progress)
    fetched = fetch(arguments.source, target, reporter, remember=not arguments.recheck)
    found = fetched.inventory
    meter.say(
        f"Release in {target}: {found.files:,} files as in the manifest, {found.responses:,} responses, "
        f"{found.size / 1e6:.1f} MB, {fetched.results:,} result files; {fetched.copied:,} files copied now."
    )
    meter.say(f"Data hash: {Release(target).manifest_hash}")


class _Meter:
    """Sentences on lines of their own, and on a terminal one line that counts."""

    def __init__(self) -> None:
        self._open = False

    def say(self, sentence: str) -> None:
        if self._open:
            print(file=sys.stderr)
            self._open = False
        print(sentence, flush=True)

    def progress(self, unit: str, done: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        scale, name = (1e6, "MB") if unit == "bytes" else (1, unit)
        of = f" of {total / scale:,.0f}" if total else ""
        print(f"\r  {done / scale:,.0f}{of} {name} ", end="", file=sys.stderr, flush=True)
        self._open = True

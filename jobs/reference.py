"""Import published numbers from the release's result files, marked as published, each with its file."""

from __future__ import annotations

import argparse
import contextlib

from backend.reference import published_attribution
from backend.store.builds import recorded
from backend.store.writers import replace_rows, write_reader
from jobs import _common
from jobs._common import METHOD, describe_proxy, write_release_sources


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    _common.add_release(parser)
    _common.add_work(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write every published attribution result to the work database."""
    release = _common.release_of(arguments)
    written = 0
    with contextlib.closing(_common.work_of(arguments)) as connection:
        write_release_sources(connection, release)
        for published in published_attribution(release.root):
            with recorded(
                connection,
                stage="reference",
                command=_common.command_line(),
                data_hash=release.manifest_hash,
                origin="published",
                source_file=", ".join(published.files),
            ) as build:
                describe_proxy(connection, published.proxy)
                reader = write_reader(
                    connection,
                    method=METHOD,
                    name=f"READER · {published.proxy} · {published.view}",
                    proxy=published.proxy,
                    view=published.view,
                    origin="published",
                )
                key = {"reader": reader, "roster": "100-way", "benchmark": "agent500", "condition": "clean"}
                written += replace_rows(connection, "attribution_metrics", published.metrics, key, build)
    print(f"{written:,} published numbers")
    return 0

"""Run every stage in order and publish: extract, evaluate, map, reference; each is resumable on its own.

The stages are ordinary verbs and are printed as they run, so any of them can be repeated by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import time
from pathlib import Path

from backend.errors import AtlasError
from backend.proxies.registry import proxy_key
from backend.store.queries import selected_layers
from jobs import __main__ as verbs
from jobs import _common
from jobs._common import METHOD


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--proxy", default="smollm2-135m")
    parser.add_argument("--roster", default="100-way,165-way", help="rosters, comma separated")
    parser.add_argument(
        "--layers", default="all", help="candidate blocks, comma separated (default: all blocks of the proxy)"
    )
    parser.add_argument("--to", type=Path, default=None, help="data folder to publish to (default: ATLAS_DATA or data)")
    parser.add_argument("--keep", action="store_true", help="keep earlier generations in that folder")
    _common.add_limit(parser)
    _common.add_release(parser)
    _common.add_work(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the stages; the first that fails ends the run with its own message and exit code."""
    rosters = _common.rosters_of(arguments.roster)
    longest = max(rosters, key=lambda name: int(name.removesuffix("-way")))
    proxy = ["--proxy", arguments.proxy]
    release = ["--release", str(arguments.release)] if arguments.release else []
    limit = ["--limit", str(arguments.limit)] if arguments.limit else []
    work = ["--work", str(arguments.work)] if arguments.work else []
    read = ["extract", *proxy, "--roster", longest, *release, *limit, *work]
    shared = [*proxy, "--roster", arguments.roster, *release, *limit, *work]
    _stage([*read, "--benchmark", "agent500", "--view", "ur", "--layers", arguments.layers])
    _stage(["evaluate", *shared, "--view", "ur", "--layers", arguments.layers])
    layer = str(modal_layer(arguments, longest))
    _stage([*read, "--benchmark", "math100", "--view", "ur,r", "--layers", layer])
    _stage([*read, "--benchmark", "agent500", "--view", "r", "--layers", layer])
    _stage(["evaluate", *shared, "--view", "r", "--layers", layer])
    _stage(["map", *shared, "--view", "r,ur", "--benchmark", "agent500,math100", "--layer", layer])
    if (_common.release_of(arguments).root / "results").is_dir():
        _stage(["reference", *release, *work])
    else:
        print("\nThe release has no result files, so no published numbers are imported.")
    prune = [] if arguments.keep else ["--prune"]
    target = ["--to", str(arguments.to)] if arguments.to else []
    _stage(["publish", *work, *target, *prune])
    return 0


def modal_layer(arguments: argparse.Namespace, roster: str) -> int:
    """The block that the evaluation of a roster chose for everything without folds."""
    with contextlib.closing(_common.work_of(arguments)) as connection:
        chosen = selected_layers(connection, f"{METHOD}/{proxy_key(arguments.proxy)}/ur", roster)
    modal = chosen.loc[chosen["outer_fold"].isna(), "layer"]
    if modal.empty:
        raise AtlasError(f"No block is selected for {arguments.proxy} on {roster}", "Run: python -m jobs evaluate")
    return int(modal.iloc[0])


def _stage(command: list[str]) -> None:
    print(f"\n$ python -m jobs {shlex.join(command)}", flush=True)
    started = time.perf_counter()
    code = verbs.main(command)
    if code:
        raise SystemExit(code)
    print(f"  done in {(time.perf_counter() - started) / 60:.1f} min", flush=True)

"""Run every stage in order and publish; each is resumable on its own, and --from goes on at one of them.

The stages are ordinary verbs and are printed as they run, so any of them can be repeated by hand. What needs the
sentence encoder runs where it is installed (python -m jobs proxies install minilm-l6); `status` lists what is missing.
With --limit N all is computed from the first N prompts, without budgets above a fifth of N, in a work database and a
data folder of its own, so that nothing of it is served.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from backend.errors import AtlasError
from backend.geometry.maps import modal_block
from backend.methods.discriminant import blocks_at
from backend.methods.registry import BASELINES, DNA, ENCODED, MAPPED, QUICK
from backend.protocol import READER_PAPER
from backend.proxies.registry import DEFAULT_PROXY, blocks_of, describe, installed, proxy_key
from jobs import __main__ as verbs
from jobs import options
from jobs.pipeline import STAGES
from jobs.relate import ENCODER
from jobs.relate import METHODS as RELATED

TUNED = tuple(reversed([method for method in BASELINES if method not in QUICK]))  # hours a fold without a GPU
CONTROLLED = "100-way"  # Roster of the controls that need arrays of their own.


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--proxy", default="smollm2-135m")
    options.add(parser, "roster")
    parser.add_argument("--layers", default="all", help="candidate blocks, comma separated (default: all of the proxy)")
    parser.add_argument("--from", dest="first", choices=tuple(STAGES), default="extract", help="stage to begin with")
    parser.add_argument("--results", type=Path, help="file for the tables of results (default: none)")
    text = "fine-tuned baselines to train: deberta, and encoder, also as member of a stack (hours a fold without a GPU)"
    parser.add_argument("--tune", default="", metavar="METHODS", help=text)
    parser.add_argument("--keep", action="store_true", help="keep earlier generations of the data folder")
    options.add(parser, "to", "limit", "release", "work")


def run(arguments: argparse.Namespace) -> None:
    """Run the stages; the first that fails ends the run with its own message and exit code."""
    skipped = before(arguments.first)
    for name, command in plan(arguments):
        if name in skipped:
            continue
        print(f"\n$ python -m jobs {shlex.join(command)}", flush=True)
        started = time.perf_counter()
        if code := verbs.main(command):
            raise SystemExit(code)
        print(f"  done in {(time.perf_counter() - started) / 60:.1f} min", flush=True)
    if arguments.limit and not arguments.to:
        print(f"\nTo see it: ATLAS_DATA={shlex.quote(str(options.data_of(arguments)))} python app.py")


def before(stage: str) -> tuple[str, ...]:
    """Stages that come before another one."""
    return tuple(itertools.takewhile(lambda name: name != stage, STAGES))


def plan(arguments: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Stages with their commands; modal blocks are queried only before the first stage that needs them.

    Every roster has its own; what is read once for all rosters is read at each of these blocks.
    """
    rosters = options.rosters_of(arguments.roster)
    tuned = options.named(arguments.tune, TUNED, "'{}' is no fine-tuned baseline") if arguments.tune else []
    longest = max(rosters, key=lambda name: int(name.removesuffix("-way")))
    release = ["--release", str(arguments.release)] if arguments.release else []
    limit = ["--limit", str(arguments.limit)] if arguments.limit else []
    work = ["--work", str(options.work_path(arguments))] if arguments.work or arguments.limit else []
    tail = [*release, *limit, *work]
    proxy, on = ["--proxy", arguments.proxy], ["--roster", arguments.roster]
    encoder = installed(describe(ENCODER)) is not None

    def extract(benchmark: str, view: str, *more: str, by: str = arguments.proxy, roster: str = longest) -> list[str]:
        what = ["--benchmark", benchmark, "--proxy", by, "--view", view, "--roster", roster]
        return ["extract", *what, *more, *tail, "--rank", "0", "--world", "1"]  # whatever Slurm has set

    def evaluate(stage: str, view: str, *more: str, there: str = arguments.roster) -> list[str]:
        return ["evaluate", "--stage", stage, *proxy, "--view", view, "--roster", there, *more, *tail]

    yield "extract", extract("agent500", "ur", "--layers", arguments.layers)
    yield "attribution", evaluate("attribution", "ur", "--layers", arguments.layers)
    later = "attribution-r" in before(arguments.first)
    modal = {} if later else {roster: modal_layer(arguments, roster) for roster in rosters}
    depth = describe(arguments.proxy).depth
    members = list(blocks_at(depth)) if arguments.layers == "all" else blocks_of(arguments.layers, depth)
    layer = ["--layers", numbers(modal.values())]
    deeper = ["--layers", numbers([*modal.values(), *members]), "--lengths", "full"]
    yield "extract-modal", extract("math100", "ur", *deeper)
    yield "extract-modal", extract("math100", "r", *layer, "--lengths", "full")
    yield "extract-modal", extract("agent500", "r", *layer)
    yield "extract-modal", extract("bench-a", "ur,r", *layer)
    if CONTROLLED in rosters:
        block = str(modal.get(CONTROLLED, ""))
        arrays = ["--layers", block, "--lengths", "full", "--temporal", block, "--positions", block]
        yield "extract-modal", extract("agent500", "ur", *arrays, roster=CONTROLLED)
    if encoder:
        last = ["--layers", str(describe(ENCODER).depth), "--lengths", "full"]
        for benchmark in ("agent500", "math100"):
            yield "extract-modal", extract(benchmark, "r", *last, by=ENCODER)
    for one in sorted(set(modal.values())):  # in view r no block is compared with another
        there = ",".join(roster for roster in rosters if modal[roster] == one)
        yield "attribution-r", evaluate("attribution", "r", "--layers", str(one), there=there)
    yield "controls", evaluate("controls", "ur")
    yield "controls", evaluate("controls", "r", "--method", "components,compression,variance")
    quick = [name for name in QUICK if name != DNA and (encoder or name not in ENCODED)]
    yield "baselines", evaluate("baselines", "ur", "--method", ",".join(quick))
    if encoder:  # as the published files of frozen DNA, which read responses alone
        yield "baselines", evaluate("baselines", "r", "--method", DNA)
    for name in tuned:
        yield "baselines", evaluate("baselines", "ur", "--method", name)
    fused = f"{arguments.proxy}:{'+'.join(map(str, members))},network,word,style"
    fused += f",{ENCODER}:tuned" if "encoder" in tuned else ""
    yield "readouts", evaluate("readouts", "ur", "--members", fused)
    yield "stress", evaluate("stress", "ur,r")
    yield "audit", evaluate("audit", "ur")
    yield "audit", evaluate("audit", "r", "--method", f"{READER_PAPER},calibration,stop")
    target = ["--to", str(options.data_of(arguments))] if arguments.to or arguments.limit else []
    yield "enroll", ["enroll", *proxy, *on, *tail, *target]
    yield "enroll", ["enroll", *proxy, *on, "--view", "ur,r", "--readout", READER_PAPER, *tail, *target]
    if proxy_key(arguments.proxy) == DEFAULT_PROXY:
        yield "enroll", ["enroll", "--sample", *target]
    if (options.release_of(arguments).root / "results").is_dir():
        yield "reference", ["reference", *release, *work]
    else:
        print("\nThe release has no result files, so no published numbers are imported.")
    yield "statistics", evaluate("statistics", "ur,r")
    yield "cost", evaluate("cost", "ur,r", "--members", fused)
    related = [name for name in RELATED if encoder or name != DNA]
    chosen = ["--roster", CONTROLLED if CONTROLLED in rosters else longest]
    yield "relate", ["relate", *proxy, *chosen, "--method", ",".join(related), *tail]
    domains = ["--benchmark", "agent500,math100"]
    sweep = [] if arguments.limit else ["--sweep"]  # 20 maps each, of no use in a quick run
    yield "map", ["map", *proxy, *on, *tail, "--view", "r,ur", *domains, *sweep]
    texts = [name for name in MAPPED if name != READER_PAPER and (encoder or name != DNA)]
    yield "map", ["map", *on, *tail, "--view", "r", *domains, "--method", ",".join(texts)]
    prune = [] if arguments.keep else ["--prune"]
    yield "publish", ["publish", *work, *target, *prune]
    if arguments.results:
        yield "results", ["results", "--data", str(options.data_of(arguments)), "--to", str(arguments.results)]


def numbers(blocks: Iterable[int]) -> str:
    """Blocks as ``--layers`` takes them, each once."""
    return ",".join(map(str, sorted(set(blocks))))


def modal_layer(arguments: argparse.Namespace, roster: str) -> int:
    """The block that the evaluation of a roster chose for everything without folds."""
    with options.work_of(arguments) as connection:
        modal = modal_block(connection, f"{READER_PAPER}/{proxy_key(arguments.proxy)}/ur", roster)
    if modal is None:
        raise AtlasError(f"No block is selected for {arguments.proxy} on {roster}", "Run: python -m jobs evaluate")
    return modal

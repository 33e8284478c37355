"""Map the sources: signatures, neighbours, family purity and projections of a roster, without any training.

READER is read at the modal block of the layer selection (of the roster itself; where view r was never evaluated, that
of view ur) unless --layer names one. Two benchmarks in one call are also compared with each other, and all readers
that have a map of the same roster and benchmark are compared at the end (--compare does only that).
"""

from __future__ import annotations

import argparse
import contextlib

from backend.corpus.release import BENCHMARKS, Benchmark
from backend.errors import AtlasError
from backend.geometry.map_comparison import Pair, compare, relate_domains
from backend.geometry.maps import METHODS, MODAL, TEXT_METHODS, Texts, chart_of, make
from backend.geometry.purity import PuritySettings
from backend.protocol import READER_PAPER
from jobs import options


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--method", default=READER_PAPER, help=f"readers, comma separated ({', '.join(METHODS)})")
    parser.add_argument("--proxy", default=None, help="proxy or encoder (default: smollm2-135m; minilm-l6 for dna)")
    parser.add_argument("--view", default="r", help="input views, comma separated (ur, r)")
    parser.add_argument("--roster", default="100-way,165-way", help="rosters, comma separated")
    parser.add_argument("--benchmark", default="agent500", help="benchmarks, comma separated (agent500, math100)")
    parser.add_argument("--layer", default=MODAL, help="READER's block, a number or 'modal' (default)")
    parser.add_argument("--sweep", action="store_true", help="also 20 t-SNE maps over seeds and perplexities")
    parser.add_argument(
        "--shuffle",
        choices=("eligible", "all"),
        default="eligible",
        help="labels that the purity test permutes: of the averaged families (the paper) or all (its released code)",
    )
    parser.add_argument("--compare", action="store_true", help="only compare the readers that have a map already")
    parser.add_argument(
        "--pair", action="append", default=[], metavar="A,B", help="two sources to rank for each other (repeatable)"
    )
    options.add_limit(parser)
    options.add_release(parser)
    options.add_work(parser)


def run(arguments: argparse.Namespace) -> int:
    """Map every asked reader, roster and benchmark, and write the results to the work database."""
    release = options.release_of(arguments)
    rosters, benchmarks = options.rosters_of(arguments.roster), benchmarks_of(arguments.benchmark)
    pairs = [pair_of(text) for text in arguments.pair]
    with contextlib.closing(options.work_of(arguments)) as connection:
        if not arguments.compare:
            texts = Texts(release, arguments.limit)
            # All are looked up before the first is made, so that a missing one speaks at once.
            charts = [
                [
                    chart_of(
                        connection,
                        texts,
                        method,
                        arguments.proxy,
                        view,
                        roster,
                        benchmark,
                        arguments.layer,
                        arguments.limit,
                    )
                    for benchmark in benchmarks
                ]
                for method in methods_of(arguments.method)
                for view in options.views_of(arguments.view)[: 1 if method in TEXT_METHODS else None]
                for roster in rosters
            ]
            settings = PuritySettings(shuffle=arguments.shuffle)
            for domains in charts:
                made = [
                    (chart, make(connection, release, chart, with_sweep=arguments.sweep, purity_settings=settings))
                    for chart in domains
                ]
                if len(made) == len(BENCHMARKS):
                    relate_domains(connection, release, *made)
        for roster in rosters:
            for benchmark in benchmarks:
                compare(connection, release, roster, benchmark, pairs)
    return 0


def benchmarks_of(text: str) -> list[Benchmark]:
    """Comma-separated benchmarks."""
    asked = [name.strip() for name in text.split(",") if name.strip()]
    known: list[Benchmark] = [name for name in BENCHMARKS if name in asked]
    if len(known) != len(asked) or not known:
        raise AtlasError(f"'{text}' names a benchmark that does not exist", f"Choose from {', '.join(BENCHMARKS)}")
    return known


def methods_of(text: str) -> list[str]:
    """Comma-separated methods of reading."""
    asked = [name.strip() for name in text.split(",") if name.strip()]
    known = [name for name in METHODS if name in asked]
    if len(known) != len(asked) or not known:
        raise AtlasError(f"'{text}' names a method that makes no map", f"Choose from {', '.join(METHODS)}")
    return known


def pair_of(text: str) -> Pair:
    """Two sources with a comma between them."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise AtlasError(f"--pair {text} does not name two sources", "Write --pair A,B")
    return parts[0], parts[1]

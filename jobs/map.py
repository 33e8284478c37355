"""Map the sources: signatures, neighbours, family purity and projections of a roster, without any training.

READER is read at the modal block of the layer selection (of the roster itself; where view r was never evaluated, that
of view ur) unless --layer names one. Two benchmarks in one call are also compared with each other, and all readers
that have a map of the same roster and benchmark are compared at the end (--compare does only that).
"""

from __future__ import annotations

import argparse
from functools import partial

from backend.cluster import fits
from backend.corpus.release import BENCHMARKS, Benchmark
from backend.errors import AtlasError
from backend.geometry.maps import METHODS, MODAL, TEXT_METHODS, Pair, Texts, chart_of, compare, make, relate_domains
from backend.geometry.neighborhoods import PuritySettings
from backend.protocol import READER_PAPER
from jobs import options


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--method", default=READER_PAPER, help=f"readers, comma separated ({', '.join(METHODS)})")
    parser.add_argument("--proxy", default=None, help="proxy or encoder (default: smollm2-135m; minilm-l6 for dna)")
    parser.add_argument("--view", default="r", help="input views, comma separated (ur, r)")
    options.add(parser, "roster")
    parser.add_argument("--benchmark", default="agent500", help="benchmarks, comma separated (agent500, math100)")
    parser.add_argument("--layer", default=MODAL, help="READER's block, a number or 'modal' (default)")
    parser.add_argument("--sweep", action="store_true", help="also 20 t-SNE maps over seeds and perplexities")
    text = "labels that the purity test permutes: of the averaged families (the paper) or all (its released code)"
    parser.add_argument("--shuffle", choices=("eligible", "all"), default="eligible", help=text)
    parser.add_argument("--compare", action="store_true", help="only compare the readers that have a map already")
    text = "two sources to rank for each other (repeatable)"
    parser.add_argument("--pair", action="append", default=[], metavar="A,B", help=text)
    options.add(parser, "engine", "address", "workers", "limit", "release", "work")


def run(arguments: argparse.Namespace) -> None:
    """Map every reader, roster and benchmark that is named, and write the results to the work database."""
    options.check_engine(arguments)
    release = options.release_of(arguments)
    rosters, benchmarks = options.rosters_of(arguments.roster), benchmarks_of(arguments.benchmark)
    pairs = [pair_of(text) for text in arguments.pair]
    with fits(arguments.engine, arguments.address, arguments.workers), options.work_of(arguments) as connection:
        if not arguments.compare:
            texts, layer, limit = Texts(release, arguments.limit), arguments.layer, arguments.limit
            # All are found before the first is computed, so that a missing one is reported at once.
            charts = [
                [
                    chart_of(connection, texts, method, arguments.proxy, view, roster, benchmark, layer, limit)
                    for benchmark in benchmarks
                ]
                for method in methods_of(arguments.method)
                for view in options.views_of(arguments.view)[: 1 if method in TEXT_METHODS else None]
                for roster in rosters
            ]
            settings = PuritySettings(shuffle=arguments.shuffle)
            for domains in charts:
                draw = partial(make, connection, release, with_sweep=arguments.sweep, purity_settings=settings)
                maps = [(chart, draw(chart)) for chart in domains]
                if len(maps) == len(BENCHMARKS):
                    relate_domains(connection, release, *maps)
        for roster in rosters:
            for benchmark in benchmarks:
                compare(connection, release, roster, benchmark, pairs)


def benchmarks_of(text: str) -> list[Benchmark]:
    """Comma-separated benchmarks."""
    return options.chosen(text, BENCHMARKS, "'{}' names a benchmark that does not exist")


def methods_of(text: str) -> list[str]:
    """Comma-separated methods of reading."""
    return options.chosen(text, METHODS, "'{}' names a method that makes no map")


def pair_of(text: str) -> Pair:
    """Two sources with a comma between them."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise AtlasError(f"--pair {text} does not name two sources", "Write --pair A,B")
    return parts[0], parts[1]

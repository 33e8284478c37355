"""Relate the models of Bench-A: pair features, linear readouts under three protocols, paired comparisons.

MPT and PhyloLM read text alone. READER needs fingerprints (extract --benchmark bench-a) and reads at the modal block of
its layer selection on Agent500 (where view r was never evaluated, that of view ur) unless --layer names one. Static
LLM-DNA embeds the responses by the recipe of its encoder, and caches the embeddings. The comparisons cover every reader
in the work database.
"""

from __future__ import annotations

import argparse

import duckdb

from backend.cluster import fits
from backend.evaluations import relationships
from backend.geometry.maps import MODAL, block_of
from backend.methods.registry import DNA, RELATED
from backend.protocol import READER_PAPER
from backend.proxies.registry import describe, proxy_key
from jobs import options

METHODS = tuple("reader" if method == READER_PAPER else method for method in RELATED)
ENCODER = "minilm-l6"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--proxy", default="smollm2-135m", help="proxies of reader, comma separated")
    parser.add_argument("--encoder", default=ENCODER, help=f"proxy that embeds for dna (default: {ENCODER})")
    parser.add_argument("--view", default="ur,r", help="input views of reader and dna, comma separated (default: ur,r)")
    parser.add_argument("--method", default=",".join(METHODS), help="comma separated (default: all four)")
    parser.add_argument("--layer", default=MODAL, help="block of reader, a number or 'modal' (default)")
    parser.add_argument("--roster", default="100-way", help="roster whose layer selection counts (default: 100-way)")
    options.add(parser, "engine", "address", "workers", "limit", "release", "work")


def run(arguments: argparse.Namespace) -> None:
    """Measure every reader that is named, write its rows, and compare all readers of the work database."""
    options.check_engine(arguments)
    release = options.release_of(arguments)
    with fits(arguments.engine, arguments.address, arguments.workers), options.work_of(arguments) as connection:
        subjects = subjects_of(connection, arguments)
        task = relationships.task_of(release, arguments.limit)
        # All are read before work begins, so that a missing one is reported at once.
        loaded = [relationships.read_of(task, subject, arguments.encoder) for subject in subjects]
        relationships.write_task(connection, release, task)
        print(f"{'reader':<34} {'protocol':<8} {'readout':<13} accuracy      [95 %]         P     R     F1    AUC")
        for subject, read in zip(subjects, loaded, strict=True):
            relationships.measure(connection, release, task, subject, read)
        relationships.write_comparisons(connection, release)


def methods_of(text: str) -> list[str]:
    """Comma-separated methods."""
    return options.chosen(text, METHODS, "'{}' names a method that does not exist")


def subjects_of(connection: duckdb.DuckDBPyConnection, arguments: argparse.Namespace) -> list[relationships.Subject]:
    """Readers that the arguments name, each with its block."""
    methods, views = methods_of(arguments.method), options.views_of(arguments.view)
    subjects = list(relationships.text_subjects(methods))
    if "reader" in methods:
        for proxy in map(proxy_key, options.parts(arguments.proxy)):
            for view in views:
                layer, origin = block_of(connection, proxy, view, arguments.roster, arguments.layer)
                subjects.append(relationships.reader_subject(proxy, view, layer, origin))
    if DNA in methods:
        encoder = describe(arguments.encoder).key
        subjects += [relationships.dna_subject(encoder, view) for view in views]
    return subjects

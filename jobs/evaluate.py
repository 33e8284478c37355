"""Evaluate readers: clean attribution, stress, controls, baselines, statistics and cost, a stage at a time.

Scans of blocks and out-of-fold log-posteriors are cached, so that any budget can be regrouped without new fits.
"""

from __future__ import annotations

import argparse
import importlib

from backend.cluster import fits
from backend.corpus.roster_rows import write_release_sources
from backend.evaluations.stages import EvaluateOptions
from backend.methods.registry import FUSED
from backend.proxies.registry import proxies_key
from jobs import options
from jobs.pipeline import evaluated


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--stage", default="attribution", help=f"stages, comma separated ({', '.join(evaluated())})")
    parser.add_argument("--proxy", default="smollm2-135m")
    parser.add_argument("--view", default="ur", help="input views, comma separated (ur, r)")
    options.add(parser, "roster")
    parser.add_argument("--layers", default="all", help="candidate blocks, comma separated (default: all on disk)")
    parser.add_argument("--method", default="", help="methods of a stage, comma separated (default: all)")
    parser.add_argument("--model", help="hub id or folder of the model that a fine-tuned baseline starts from")
    text = "baselines: whole Agent500 responses alone, for an encoder a third of the time"
    parser.add_argument("--clean-only", action="store_true", help=text)
    parser.add_argument("--readout", choices=(FUSED,), help="a readout other than the paper's, in place of --stage")
    text = "members of a fused readout: blocks of proxies, kinds of n-grams (smollm2-135m:9+18,word,char)"
    parser.add_argument("--members", default="", help=text)
    options.add(parser, "engine", "address", "workers", "limit", "release", "work")


def run(arguments: argparse.Namespace) -> None:
    """Run the named stages in their order, and write the results to the work database."""
    options.check_engine(arguments)
    settings = EvaluateOptions(
        proxy=proxies_key(arguments.proxy),
        views=options.views_of(arguments.view),
        rosters=options.rosters_of(arguments.roster),
        layers=arguments.layers,
        limit=arguments.limit,
        methods=tuple(options.parts(arguments.method)),
        model=arguments.model,
        clean_only=arguments.clean_only,
        members=arguments.members,
    )
    stages = ["readouts"] if arguments.readout else stages_of(arguments.stage)
    release = options.release_of(arguments)
    with fits(arguments.engine, arguments.address, arguments.workers), options.work_of(arguments) as connection:
        write_release_sources(connection, release)
        for stage in stages:
            module = "backend.costs.stage" if stage == "cost" else f"backend.evaluations.stages.{stage}"
            importlib.import_module(module).run(connection, release, settings)


def stages_of(text: str) -> list[str]:
    """Comma-separated stages, in their order."""
    return options.chosen(text, evaluated(), "There is no stage '{}'")

"""Measure what verdicts are worth on labelled responses: of the enrolled prompts, and of another kind of traffic.

The rule itself answers on groups of K traces, with the true source as the claim, with the nearest other one and without
a claim. Enrolments that are named are asked as they are served, and carry the rows along. With ``--refit`` a part of
the release is enrolled anew and asked about the rest: one benchmark about the other, and nine categories of prompts
about the tenth. All of that is tokenised and counted once; only heads and their calibration are fitted for every part.
Needs stored fingerprints.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace

import duckdb
import pandas as pd

from backend.attribution.transfer import PART, TRANSFERS, Part, measure, transfers, with_bounds, with_prompts
from backend.corpus.release import BENCHMARKS, Benchmark, Release
from backend.enrolment.files import enrolments, load_enrolment, save_enrolment
from backend.enrolment.validation_lookup import validation_of
from backend.errors import AtlasError
from backend.inference.validation import validation_arrays
from backend.methods.registry import OF_TRACES, STATES, reader_id
from backend.protocol import CLEAN
from backend.proxies.registry import DEFAULT_PROXY, proxy_hash
from backend.store.builds import recorded
from backend.store.database import default_data_folder
from backend.store.writers import replace_rows, write_reader
from jobs import options

REFITTED = tuple(method for method in OF_TRACES if method in STATES)  # refitted to parts of the release


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("enrolment", metavar="NAMES", nargs="?", help="enrolments of the data folder, comma separated")
    parser.add_argument("--benchmark", default=",".join(BENCHMARKS), help="that answer (default: %(default)s)")
    parser.add_argument("--refit", metavar="METHODS", help=f"enrol a part, ask about the rest: {', '.join(REFITTED)}")
    parser.add_argument("--roster", default="100-way,165-way", help="of --refit (default: %(default)s)")
    text = "what --refit asks about (default: %(default)s)"
    parser.add_argument("--scenario", metavar="NAMES", default=",".join(TRANSFERS), help=text)
    parser.add_argument("--proxy", default=DEFAULT_PROXY, help="of --refit (default: %(default)s)")
    options.add(parser, "to")
    # The rows stay with all others, unlike those of a quick run.
    text = "only the first prompts: 100, or agent500:100,math100:50; the build says how many"
    parser.add_argument("--limit", dest="prompts", metavar="N", help=text)
    options.add(parser, "release", "work")


def run(arguments: argparse.Namespace) -> int:
    """Validate what was asked for."""
    arguments.prompts = limits_of(arguments.prompts)
    if bool(arguments.enrolment) == bool(arguments.refit):
        raise AtlasError("It is not clear what to validate", "Name enrolments, or give --refit METHODS")
    release = options.release_of(arguments)
    with contextlib.closing(options.work_of(arguments)) as connection:
        if arguments.refit:
            return _refit(arguments, release, connection)
        return _served(arguments, release, connection)


def _served(arguments: argparse.Namespace, release: Release, connection: duckdb.DuckDBPyConnection) -> int:
    folder = (arguments.to or default_data_folder()) / "enrolments"
    known = enrolments(folder.parent)
    for name in options.parts(arguments.enrolment):
        if name not in known:
            raise AtlasError(f"There is no enrolment '{name}'", f"Choose from {', '.join(known)}")
        enrolment = with_bounds(
            with_prompts(load_enrolment(known[name]), release), release, arguments.prompts.get("agent500")
        )
        rows = validation_of(enrolment)
        for benchmark in arguments.benchmark.split(","):
            began = time.perf_counter()
            frame = measure(enrolment, release, benchmark_of(benchmark), arguments.prompts.get(benchmark.strip()))
            rows = rows[~(rows["part"].eq(PART) & rows["scenario"].eq(frame["scenario"].iloc[0]))]
            rows = pd.concat([rows, frame.assign(part=PART, condition=CLEAN)], ignore_index=True)
            roster, weights = str(enrolment.facts["roster"]), str(enrolment.facts["proxy_hash"])
            took = time.perf_counter() - began
            _write(connection, release, enrolment.reader, roster, weights, frame, arguments.prompts, took)
        attachments = {**enrolment.attachments, **validation_arrays(rows)}
        save_enrolment(replace(enrolment, attachments=attachments), known[name])
        print(f"Written: {known[name].name}, {known[name].stat().st_size / 1e6:.1f} MB")
    return 0


def _refit(arguments: argparse.Namespace, release: Release, connection: duckdb.DuckDBPyConnection) -> int:
    methods = options.parts(arguments.refit)
    if unknown := sorted(set(methods) - set(REFITTED)):
        problem = f"'{unknown[0]}' is not refitted to a part of the release"
        raise AtlasError(problem, f"Choose from {', '.join(REFITTED)}")
    scenarios = options.parts(arguments.scenario)
    if unknown := sorted(set(scenarios) - set(TRANSFERS)):
        raise AtlasError(f"There is no scenario '{unknown[0]}'", f"Choose from {', '.join(TRANSFERS)}")
    proxy, weights = arguments.proxy, proxy_hash(arguments.proxy)
    for roster in options.rosters_of(arguments.roster):
        parts = {name: Part.of(release, name, proxy, roster, arguments.prompts.get(name)) for name in BENCHMARKS}
        for method in methods:
            reader = write_reader(connection, method=method, name=f"{method} · {proxy}", proxy=proxy, view="ur")
            assert reader == reader_id(method, proxy, "ur")
            began = time.perf_counter()
            for scenario, frame in transfers(parts, method, release, arguments.prompts.get("agent500"), scenarios):
                named, took = frame.assign(scenario=scenario), time.perf_counter() - began
                _write(connection, release, reader, roster, weights, named, arguments.prompts, took)
                began = time.perf_counter()
    return 0


def limits_of(text: str | None) -> dict[str, int]:
    """First prompts of every benchmark from '100' or 'agent500:100,math100:50'; empty for all prompts."""
    out: dict[str, int] = {}
    for part in (text or "").split(",") if text else ():
        name, _, number = part.rpartition(":")
        if not number.isdecimal() or not int(number):
            raise AtlasError(f"'{text}' is no number of prompts", "Write 100, or agent500:100,math100:50")
        out |= dict.fromkeys([benchmark_of(name)] if name else BENCHMARKS, int(number))
    return out


def benchmark_of(name: str) -> Benchmark:
    """A benchmark of the release by its name."""
    found = next((known for known in BENCHMARKS if known == name.strip()), None)
    if found is None:
        raise AtlasError(f"There is no benchmark '{name}'", f"Choose from {', '.join(BENCHMARKS)}")
    return found


def _write(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    reader: str,
    roster: str,
    weights: str,
    frame: pd.DataFrame,
    limit: Mapping[str, int],
    took: float,
) -> None:
    scenario = str(frame["scenario"].iloc[0])
    key = {"reader": reader, "roster": roster, "condition": CLEAN, "part": PART, "scenario": scenario}
    data, details = release.manifest_hash, {"prompts": dict(limit) or "all", "scenario": scenario}
    with recorded(
        connection, stage="validate", data_hash=data, proxy_hash=weights, details=details, earlier_s=took
    ) as build:
        replace_rows(connection, "audit_validation", frame.drop(columns="scenario"), key, build)
    wide = frame.pivot(index="metric", columns="k", values="value").round(3)
    print(f"{reader} on {roster}, {scenario}:\n{wide.to_string()}", flush=True)

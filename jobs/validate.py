"""Measure verdicts on labelled responses: of the enrolled prompts, and of another kind of traffic.

The rule itself answers on groups of K traces, with the true source as the claim, with the nearest other one and without
a claim. Named enrolments answer as they are served, and get the rows as attachments; with ``--background`` they get
error rates of scores that unlabelled responses of the other benchmark balanced, and with ``--mixtures`` what is stated
about several sources and about chosen candidates. With ``--refit`` a part of the release
is enrolled anew and answers about the rest: one benchmark about the other, and nine categories of prompts about the
tenth. All of that is tokenised and counted once; only heads and their calibration are fitted for every part. Needs
stored fingerprints. With ``--by category`` it measures what an enrolment of nine categories states of the tenth, as its
folds part single prompts, and as they part groups of them; text alone needs no fingerprints. With ``--background`` it
measures what unlabelled responses change, on a category or (``--by domain``) the other benchmark. With ``--by stream``
it measures false alarms and delays of a watch on streams of held-out responses, of methods that were evaluated. With
``--draws`` enrolments' paired test of drift meets sources that answered the same prompts twice.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from backend.attribution import repeated_draws
from backend.attribution.scoring import Models
from backend.attribution.transfer import (
    MIXTURE,
    PART,
    PLACE,
    TRANSFERS,
    Part,
    measure,
    transfers,
    with_balanced_scores,
    with_held_out_mixtures,
)
from backend.corpus.collection import read_collected
from backend.corpus.labelled import read_families
from backend.corpus.release import BENCHMARKS, Release
from backend.enrolment import balanced_transfer
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments, load_enrolment, save_enrolment
from backend.enrolment.fit import name_facts
from backend.enrolment.left_out import SCENARIO, release_corpus, summary
from backend.enrolment.left_out import measure as left_out
from backend.enrolment.validation_lookup import validation_of
from backend.errors import AtlasError
from backend.evaluations import streams
from backend.evaluations.artifacts import enrolled_folder, evaluation, load_log_posteriors
from backend.evaluations.corpus import Corpus
from backend.evaluations.stages.readout_live import live_blocks
from backend.evaluations.stages.roster_run import RosterRun
from backend.inference.validation import validation_arrays
from backend.methods.registry import BASELINES, ENROLLABLE, OF_TRACES, STATES, reader_id, reads_text, title_of
from backend.protocol import BACKGROUND, CLEAN
from backend.proxies.registry import DEFAULT_PROXY, proxy_hash
from backend.store.builds import recorded
from backend.store.writers import RELEASE_ROSTERS, replace_rows, write_reader
from jobs import options

REFITTED = tuple(method for method in OF_TRACES if method in STATES)  # refitted to parts of the release
STREAMED = {"streams": streams.STREAMS, "traces": streams.TRACES, "change": streams.CHANGE, "seed": streams.SEED}
Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("enrolment", metavar="NAMES", nargs="?", help="enrolments of the data folder, comma separated")
    parser.add_argument("--benchmark", default=",".join(BENCHMARKS), help="that answer (default: %(default)s)")
    parser.add_argument("--refit", metavar="METHODS", help=f"enrol a part, test on the rest: {', '.join(REFITTED)}")
    parser.add_argument("--roster", default="100-way,165-way", help="of --refit (default: %(default)s)")
    text = "parts that --refit tests on (default: %(default)s)"
    parser.add_argument("--scenario", metavar="NAMES", default=",".join(TRANSFERS), help=text)
    parser.add_argument("--proxy", default=DEFAULT_PROXY, help="of --refit (default: %(default)s)")
    text = "with --refit: accuracy on every category of prompts that is left out, or a watch on streams"
    parser.add_argument("--by", choices=("category", "domain", "stream"), help=text)
    text = "error rates of balanced scores for enrolments; with --by: what unlabelled responses of the traffic change"
    parser.add_argument("--background", action="store_true", help=text)
    text = "shares of several sources, and choices of candidates, of enrolled prompts, for enrolments"
    parser.add_argument("--mixtures", action="store_true", help=text)
    text = "two collections of the same sources and prompts, for false alarms of the paired test of drift"
    parser.add_argument("--draws", type=Path, nargs=2, metavar="FILE", help=text)
    parser.add_argument("--families", type=Path, metavar="FILE", help="of --draws; JSON object: source to family")
    parser.add_argument("--sources", type=int, metavar="N", help="of --by: so many of the roster, evenly drawn")
    options.add(parser, "to")
    # The rows go to the usual work database, unlike those of a quick run.
    text = "only the first prompts: 100, or agent500:100,math100:50; the build records how many"
    parser.add_argument("--limit", dest="prompts", metavar="N", help=text)
    options.add(parser, "release", "work")


def run(arguments: argparse.Namespace) -> None:
    """Validate enrolments, or methods refitted to parts of the release."""
    arguments.prompts = limits_of(arguments.prompts)
    if bool(arguments.enrolment) == bool(arguments.refit):
        raise AtlasError("It is not clear what to validate", "Name enrolments, or give --refit METHODS")
    if arguments.by and not arguments.refit:
        raise AtlasError("--by is about parts of the release", "Give --refit METHODS as well")
    of_parts = arguments.refit and arguments.by != "category"
    if of_parts and arguments.background != (arguments.by == "domain"):
        raise AtlasError("--by domain and --background do not fit", "Give --by domain --background, or --by category")
    release = options.release_of(arguments)
    with options.work_of(arguments) as connection:
        by = {"category": _by_category, "stream": _by_stream}.get(arguments.by, _refit)
        by = _with_background if arguments.background else by
        served = _balanced if arguments.background or arguments.mixtures else _served
        measured = by if arguments.refit else _twice if arguments.draws else served
        measured(arguments, release, connection)


def _served(arguments: argparse.Namespace, release: Release, connection: duckdb.DuckDBPyConnection) -> None:
    known = enrolments(options.data_of(arguments))
    for name in options.named(arguments.enrolment, list(known), "There is no enrolment '{}'"):
        enrolment = _of_roster(load_enrolment(known[name]))
        rows = validation_of(enrolment)
        for benchmark in options.named(arguments.benchmark, BENCHMARKS, "There is no benchmark '{}'"):
            began = time.perf_counter()
            frame = measure(enrolment, release, benchmark, arguments.prompts.get(benchmark))
            rows = rows[~(rows["part"].eq(PART) & rows["scenario"].eq(frame["scenario"].iloc[0]))]
            rows = pd.concat([rows, frame.assign(part=PART, condition=CLEAN)], ignore_index=True)
            key: Row = {"reader": enrolment.reader, "roster": enrolment.facts["roster"]}
            about: Row = {"data_hash": release.manifest_hash, "proxy_hash": enrolment.facts["proxy_hash"]}
            about["earlier_s"] = time.perf_counter() - began
            _write(connection, key, frame, arguments.prompts, about)
        attachments = {**enrolment.attachments, **validation_arrays(rows)}
        save_enrolment(_with_names(replace(enrolment, attachments=attachments), release), known[name])
        print(f"Written: {known[name].name}, {known[name].stat().st_size / 1e6:.1f} MB")


def _balanced(arguments: argparse.Namespace, release: Release, connection: duckdb.DuckDBPyConnection) -> None:
    """Attach error rates of balanced scores, or with --mixtures what is stated about several sources and candidates."""
    known, mixtures = enrolments(options.data_of(arguments)), arguments.mixtures
    part, condition = (MIXTURE, CLEAN) if mixtures else ("calibration", BACKGROUND)
    for name in options.named(arguments.enrolment, list(known), "There is no enrolment '{}'"):
        enrolment, began = _of_roster(load_enrolment(known[name])), time.perf_counter()
        own = enrolment.facts.get("benchmark")
        (traffic,) = (benchmark for benchmark in BENCHMARKS if (benchmark == own) == mixtures)
        attach = with_held_out_mixtures if mixtures else with_balanced_scores
        found = attach(enrolment, release, traffic, arguments.prompts.get(traffic))
        rows = validation_of(found)
        rows = rows[rows["part"].eq(part) & rows["condition"].eq(condition)]
        rows = rows.drop(columns=["part", "condition"]).replace({"": None})
        place: Row = {"reader": enrolment.reader, "roster": enrolment.facts["roster"], "condition": condition}
        about: Row = {"data_hash": release.manifest_hash, "proxy_hash": enrolment.facts["proxy_hash"]}
        timed = {**about, "earlier_s": time.perf_counter() - began}
        details = dict(found.facts[MIXTURE if mixtures else BACKGROUND])
        with recorded(connection, stage="validate", **timed, details=details) as build:
            replace_rows(connection, "audit_validation", rows, place | {"part": part}, build)
        save_enrolment(_with_names(found, release), known[name])
        for row in rows[rows["metric"].eq("accuracy_after")].sort_values("k").itertuples():
            print(f"  K = {row.k:>3.0f}: accuracy {row.value:.3f} with a pool of {traffic} ({row.n:,.0f} answers)")
        for row in rows[rows["metric"].eq("share_coverage") & rows["level"].isna()].sort_values("k").itertuples():
            words = f"{row.value:.3f} of the intervals hold the {row.statistic} source's share"
            print(f"  K = {row.k:>3.0f}: {words} ({row.n:,.0f} mixtures)")
        print(f"Written: {known[name].name}, {known[name].stat().st_size / 1e6:.1f} MB")


def _twice(arguments: argparse.Namespace, release: Release, connection: duckdb.DuckDBPyConnection) -> None:
    del release
    known = enrolments(options.data_of(arguments))
    first, second = map(read_collected, arguments.draws)
    families = read_families(arguments.families) or {}
    data_hash = hashlib.sha256(b"".join(path.read_bytes() for path in arguments.draws)).hexdigest()
    for name in options.named(arguments.enrolment, list(known), "There is no enrolment '{}'"):
        enrolment, began = _of_roster(load_enrolment(known[name])), time.perf_counter()
        frame = repeated_draws.measure(Models.on("cpu").attributor(enrolment), first, second, families)
        place: Row = {"reader": enrolment.reader, "roster": enrolment.facts["roster"], "condition": CLEAN}
        about: Row = {"data_hash": data_hash, "proxy_hash": enrolment.facts["proxy_hash"]}
        details = {"draws": [path.name for path in arguments.draws]}
        timed = {**about, "earlier_s": time.perf_counter() - began}
        with recorded(connection, stage="validate", **timed, details=details) as build:
            replace_rows(connection, "audit_validation", frame, place | {"part": repeated_draws.PART}, build)
        print(frame.pivot(index="scenario", columns="k", values="value").to_string())


def _with_names(enrolment: Enrolment, release: Release) -> Enrolment:
    """The enrolment with the readable names of a roster's sources; a corpus of one's own has its own."""
    if enrolment.facts["roster"] not in RELEASE_ROSTERS:
        return enrolment
    return replace(enrolment, facts={**enrolment.facts, **name_facts(release, enrolment.sources)})


def _of_roster(enrolment: Enrolment) -> Enrolment:
    """The enrolment, unless its rows would have no place."""
    if "roster" in enrolment.facts:
        return enrolment
    problem = f"'{enrolment.name}' is of no roster, and what is measured is written by roster"
    raise AtlasError(problem, "Validate one that was made with a roster or a name: python -m jobs enroll --help")


def _refit(arguments: argparse.Namespace, release: Release, connection: duckdb.DuckDBPyConnection) -> None:
    methods = options.named(arguments.refit, REFITTED, "'{}' is not refitted to a part of the release")
    scenarios = options.named(arguments.scenario, TRANSFERS, "There is no scenario '{}'")
    proxy, about = arguments.proxy, {"data_hash": release.manifest_hash, "proxy_hash": proxy_hash(arguments.proxy)}
    for roster in options.rosters_of(arguments.roster):
        parts = {name: Part.of(release, name, proxy, roster, arguments.prompts.get(name)) for name in BENCHMARKS}
        for method in methods:
            reader = write_reader(connection, method=method, name=f"{method} · {proxy}", proxy=proxy, view="ur")
            assert reader == reader_id(method, proxy, "ur")
            began = time.perf_counter()
            for scenario, frame in transfers(parts, method, release, arguments.prompts.get("agent500"), scenarios):
                timed = {**about, "earlier_s": time.perf_counter() - began}
                key = {"reader": reader, "roster": roster}
                _write(connection, key, frame.assign(scenario=scenario), arguments.prompts, timed)
                began = time.perf_counter()


def _reader(connection: duckdb.DuckDBPyConnection, method: str, proxy: str) -> str:
    """Id of a method's reader, which is written where there is none: its evaluation gave it the name that it has."""
    reader, reads = reader_id(method, proxy, "ur"), {} if reads_text(method) else {"proxy": proxy, "view": "ur"}
    if not connection.execute("SELECT 1 FROM readers WHERE reader = ?", [reader]).fetchall():
        write_reader(connection, method=method, name=" · ".join((title_of(method), *reads.values())), **reads)
    return reader


def _by_category(arguments: argparse.Namespace, release: Release, connection: duckdb.DuckDBPyConnection) -> None:
    methods = options.named(arguments.refit, OF_TRACES, "'{}' is not refitted to a part of the release")
    proxy, limit = arguments.proxy, arguments.prompts.get("agent500")
    about = {"data_hash": release.manifest_hash, "proxy_hash": proxy_hash(proxy)}
    for roster in options.rosters_of(arguments.roster):
        for method in methods:
            began = time.perf_counter()
            reader = _reader(connection, method, proxy)
            corpus, prompts, categories = release_corpus(release, roster, proxy, arguments.sources, limit)
            frames = []
            for category, frame in left_out(corpus, prompts, categories, method, proxy, live_blocks(proxy), PLACE):
                frames.append(frame)
                print(f"{category}:\n{_wide(frame)}", flush=True)
            rows = pd.concat([*frames, summary(frames)]).assign(scenario=f"{SCENARIO}, {corpus.classes} sources")
            timed = {**about, "earlier_s": time.perf_counter() - began}
            _write(connection, {"reader": reader, "roster": roster}, rows, arguments.prompts, timed)


def _with_background(arguments: argparse.Namespace, release: Release, connection: duckdb.DuckDBPyConnection) -> None:
    methods = options.named(arguments.refit, OF_TRACES, "'{}' is not refitted to a part of the release")
    proxy, about = arguments.proxy, {"data_hash": release.manifest_hash}
    for roster in options.rosters_of(arguments.roster):
        corpora: dict[str, tuple[Corpus, list[str], list[str]]] = {
            name: release_corpus(release, roster, proxy, arguments.sources, arguments.prompts.get(name), name)
            for name in BENCHMARKS
        }
        for method in methods:
            reader = _reader(connection, method, proxy)
            of_method = {"method": method, "proxy": proxy, "blocks": live_blocks(proxy), "layer": PLACE}
            began = time.perf_counter()
            for traffic, frame in balanced_transfer.scenarios(corpora, arguments.by, of_method):
                timed = {**about, "proxy_hash": proxy_hash(proxy), "earlier_s": time.perf_counter() - began}
                classes = corpora["agent500"][0].classes
                rows = frame.assign(scenario=f"{balanced_transfer.SCENARIO}, {traffic}, {classes} sources")
                _write(connection, {"reader": reader, "roster": roster}, rows, arguments.prompts, timed)
                began = time.perf_counter()


def _by_stream(arguments: argparse.Namespace, release: Release, connection: duckdb.DuckDBPyConnection) -> None:
    methods = options.named(arguments.refit, [*BASELINES, *ENROLLABLE], "'{}' is not measured on streams")
    proxy, limit = arguments.proxy, arguments.prompts.get("agent500")
    for roster in options.rosters_of(arguments.roster):
        run = RosterRun(connection, release, roster, limit)
        for method in methods:
            began = time.perf_counter()
            folder = enrolled_folder(method, proxy, "ur", roster, run.prompts)
            log_posteriors = load_log_posteriors(folder, evaluation(method, proxy, "ur", roster, limit))
            reader = _reader(connection, method, proxy)
            frame = streams.measure(log_posteriors, release.roster(roster)["plot_family"].tolist(), progress=print)
            about: Row = {"data_hash": release.manifest_hash, "earlier_s": time.perf_counter() - began}
            with recorded(connection, stage="validate", **about, details={"by": "stream", **STREAMED}) as build:
                place = {"reader": reader, "roster": roster, "condition": CLEAN, "part": "drift"}
                replace_rows(connection, "audit_validation", frame, place | {"statistic": streams.STATISTIC}, build)
            print(f"{reader} on {roster}:\n{frame.to_string(index=False)}", flush=True)


def limits_of(text: str | None) -> dict[str, int]:
    """First prompts of every benchmark from '100' or 'agent500:100,math100:50'; empty for all prompts."""
    out: dict[str, int] = {}
    for part in (text or "").split(",") if text else ():
        name, _, number = part.rpartition(":")
        if not number.isdecimal() or not int(number):
            raise AtlasError(f"'{text}' is no number of prompts", "Write 100, or agent500:100,math100:50")
        names = options.named(name, BENCHMARKS, "There is no benchmark '{}'") if name else BENCHMARKS
        out |= dict.fromkeys(names, int(number))
    return out


def _write(
    connection: duckdb.DuckDBPyConnection, key: Row, frame: pd.DataFrame, limits: Mapping[str, int], about: Row
) -> None:
    """Write and print the measures of a reader in one scenario."""
    scenario = str(frame["scenario"].iloc[0])
    details = {"prompts": dict(limits) or "all", "scenario": scenario}
    with recorded(connection, stage="validate", **about, details=details) as build:
        place = {**key, "condition": CLEAN, "part": PART, "scenario": scenario}
        replace_rows(connection, "audit_validation", frame.drop(columns="scenario"), place, build)
    print(f"{key['reader']} on {key['roster']}, {scenario}:\n{_wide(frame)}", flush=True)


def _wide(frame: pd.DataFrame) -> str:
    about = [name for name in ("rule", "statistic") if name in frame]
    return str(frame.pivot(index=[*about, "metric"], columns="k", values="value").round(3).to_string())

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
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.attribution.scoring import Attributor
from backend.attribution.transfer import PART, LabelledScores, held_out_prompts, pooled, transfer_frame
from backend.corpus.release import BENCHMARKS, Benchmark, Release
from backend.corpus.roster_rows import slice_of
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments, load_enrolment, save_enrolment
from backend.enrolment.fit import enrolment_of_traces
from backend.enrolment.statistics import measured_attachments, prompt_attachments
from backend.enrolment.validation_lookup import validation_of
from backend.errors import AtlasError
from backend.evaluations.corpus import Corpus, cuts_of, read_corpus
from backend.evaluations.readout_members import LENGTHS
from backend.evaluations.stages.readout_live import live_blocks
from backend.inference.validation import validation_arrays
from backend.methods.registry import OF_TRACES, STATES, reader_id
from backend.protocol import CLEAN, READER_PAPER
from backend.proxies.reader import Reader
from backend.proxies.registry import DEFAULT_PROXY, describe, proxy_hash, tokenizer_of
from backend.proxies.stored import StoredReader
from backend.store.builds import command_line, recorded
from backend.store.database import default_data_folder
from backend.store.writers import replace_rows, write_reader
from backend.traces import Trace
from jobs import options

Ints = npt.NDArray[np.intp]
REFITTED = tuple(method for method in OF_TRACES if method in STATES)
"""Methods that are refitted to a part of the release."""
PLACE = 20
"""Modal block of the paper's probe of the default proxy, where traces are placed."""
SAME, CATEGORY = "same", "category"
"""Scenarios: held-out prompts of the enrolled kind; prompts of a category that was left out."""
FEWEST = 10
"""Prompts of a category that is left out."""
BATCH = (512,)


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("enrolment", metavar="NAMES", nargs="?", help="enrolments of the data folder, comma separated")
    parser.add_argument("--benchmark", default=",".join(BENCHMARKS), help="that answer (default: %(default)s)")
    parser.add_argument("--refit", metavar="METHODS", help=f"enrol a part, ask about the rest: {', '.join(REFITTED)}")
    parser.add_argument("--roster", default="100-way,165-way", help="of --refit (default: %(default)s)")
    parser.add_argument("--proxy", default=DEFAULT_PROXY, help="of --refit (default: %(default)s)")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="data folder (default: ATLAS_DATA, else data/)")
    parser.add_argument(
        "--limit",
        dest="prompts",  # the rows stay with all others, unlike those of a quick run
        metavar="N",
        help="only the first prompts: 100, or agent500:100,math100:50; the build says how many",
    )
    options.add_release(parser)
    options.add_work(parser)


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
    for name in (part.strip() for part in arguments.enrolment.split(",")):
        if name not in known:
            raise AtlasError(f"There is no enrolment '{name}'", f"Choose from {', '.join(known)}")
        enrolment = with_bounds(
            with_prompts(load_enrolment(known[name]), release), release, arguments.prompts.get("agent500")
        )
        rows = validation_of(enrolment)
        for benchmark in arguments.benchmark.split(","):
            frame = measure(enrolment, release, benchmark_of(benchmark), arguments.prompts.get(benchmark.strip()))
            rows = rows[~(rows["part"].eq(PART) & rows["scenario"].eq(frame["scenario"].iloc[0]))]
            rows = pd.concat([rows, frame.assign(part=PART, condition=CLEAN)], ignore_index=True)
            roster, weights = str(enrolment.facts["roster"]), str(enrolment.facts["proxy_hash"])
            _write(connection, release, enrolment.reader, roster, weights, frame, arguments.prompts)
        attachments = {**enrolment.attachments, **validation_arrays(rows)}
        save_enrolment(replace(enrolment, attachments=attachments), known[name])
        print(f"Written: {known[name].name}, {known[name].stat().st_size / 1e6:.1f} MB")
    return 0


def _refit(arguments: argparse.Namespace, release: Release, connection: duckdb.DuckDBPyConnection) -> int:
    methods = [method.strip() for method in arguments.refit.split(",")]
    if unknown := sorted(set(methods) - set(REFITTED)):
        raise AtlasError(
            f"'{unknown[0]}' is not refitted to a part of the release", f"Choose from {', '.join(REFITTED)}"
        )
    proxy, weights = arguments.proxy, proxy_hash(arguments.proxy)
    for roster in options.rosters_of(arguments.roster):
        parts = {name: Part.of(release, name, proxy, roster, arguments.prompts.get(name)) for name in BENCHMARKS}
        for method in methods:
            reader = write_reader(connection, method=method, name=f"{method} · {proxy}", proxy=proxy, view="ur")
            assert reader == reader_id(method, proxy, "ur")
            for scenario, frame in transfers(parts, method, release, arguments.prompts.get("agent500")):
                _write(connection, release, reader, roster, weights, frame.assign(scenario=scenario), arguments.prompts)
    return 0


def transfers(
    parts: dict[Benchmark, Part], method: str, release: Release, limit: int | None
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of every pair of what is enrolled and what is asked about, with the name of its scenario."""
    agent, math = parts["agent500"], parts["math100"]
    for enrolled, asked, scenario in ((agent, math, "math100"), (math, agent, "agent500")):
        yield scenario, ask(enrolled.enrol(method), asked, scenario)
    kinds = release.prompts("agent500")["category"].to_numpy()[:limit]
    frames = []
    for kind in sorted(set(kinds)):
        tenth = kinds == kind
        if tenth.sum() >= FEWEST:
            frames.append(ask(agent.some(~tenth).enrol(method), agent.some(tenth), CATEGORY))
    if frames:
        yield CATEGORY, pooled(frames)


class Part:
    """Responses of a roster to some prompts, with their fingerprints; row = source * P + prompt."""

    def __init__(
        self,
        proxy: str,
        engine: str,
        sources: list[str],
        families: list[str],
        traces: list[Trace],
        arrays: dict[tuple[int, str], npt.NDArray[np.float16]],
        corpus: Corpus | None = None,
    ) -> None:
        self.proxy, self.engine, self.sources, self.families = proxy, engine, sources, families
        self.traces, self.arrays = traces, arrays
        self.labels: Ints = np.repeat(np.arange(len(sources)), len(traces) // len(sources))
        self._corpus = corpus

    @classmethod
    def of(cls, release: Release, benchmark: Benchmark, proxy: str, roster: str, limit: int | None) -> Part:
        """All responses of a roster, of the first prompts where a limit says so."""
        rows = slice_of(release, benchmark, proxy, "ur", roster, limit)
        identity, records = rows.store.identity(), release.records(benchmark)
        width, layers = len(records.prompt_ids), sorted({*live_blocks(proxy), PLACE})
        arrays = {(layer, v): rows.load(layer, v) for layer in layers for v in ("full", "t128", "t64", "t32")}
        traces = [
            records.traces[source * width + prompt]
            for source in range(len(rows.sources))
            for prompt in range(len(rows.prompt_ids))
        ]
        return cls(proxy, identity.engine if identity else "", rows.sources, rows.families, traces, arrays)

    def some(self, prompts: npt.NDArray[np.bool_]) -> Part:
        """The responses to some prompts, a mask of shape (P,)."""
        rows = np.flatnonzero(np.tile(prompts, len(self.sources)))
        arrays = {key: array[rows] for key, array in self.arrays.items()}
        traces = [self.traces[row] for row in rows]
        return Part(self.proxy, self.engine, self.sources, self.families, traces, arrays, self.corpus.take(rows))

    @property
    def corpus(self) -> Corpus:
        """The traces at all lengths, tokenised once."""
        if self._corpus is None:
            cuts, layers = [name for name in LENGTHS if name != CLEAN], sorted({layer for layer, _ in self.arrays})
            folds = np.zeros(len(self.traces), dtype=np.intp)  # set where it is enrolled
            self._corpus = read_corpus(
                self.traces, self.reader(), "ur", layers, self.labels, folds, len(self.sources), cuts
            )
        return self._corpus

    def reader(self) -> Reader:
        """Reads these traces from the disk."""
        stored = StoredReader(self.arrays, tokenizer_of(self.proxy), self.engine, describe(self.proxy).depth)
        return cast(Reader, stored)

    def enrol(self, method: str) -> Enrolment:
        """Enrolment of all of them; says how long it takes."""
        started, corpus = time.perf_counter(), self.corpus
        conditions = (CLEAN, *(() if method == READER_PAPER else cuts_of(corpus.tokens)))
        enrolment = enrolment_of_traces(
            self.traces,
            [self.sources[label] for label in self.labels],
            self.reader(),
            name="part",
            proxy=self.proxy,
            weights_hash=proxy_hash(self.proxy),
            view="ur",
            layer=PLACE,
            families=dict(zip(self.sources, self.families, strict=True)),
            blocks=live_blocks(self.proxy),
            validated=False,
            method=method,
            corpus=corpus.with_conditions(conditions),
        )
        seconds, sources = time.perf_counter() - started, len(self.sources)
        print(f"{method} on {len(self.traces):,} traces of {sources} sources: {seconds:.0f} s", flush=True)
        return enrolment


def ask(enrolment: Enrolment, part: Part, scenario: str) -> pd.DataFrame:
    """Rows of an enrolment that is asked about other responses of its sources."""
    scored = Attributor(part.reader(), enrolment).score(part.traces, keep_fingerprints=True, sizes=BATCH)
    column = np.array([enrolment.sources.index(source) for source in part.sources])
    reference = enrolment.prompt_reference
    assert reference is not None
    prompts = reference.score([trace.prompt for trace in part.traces])
    return transfer_frame(enrolment, LabelledScores(scored, column[part.labels], prompts), scenario)


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


def with_prompts(enrolment: Enrolment, release: Release) -> Enrolment:
    """The enrolment with the reference of its prompts, where it has none and the release has their text."""
    if enrolment.prompt_reference is not None:
        return enrolment
    prompts = release.prompts("agent500")["prompt"].astype(str).tolist()
    folds = enrolment.folds_of(prompts)
    if any(fold is None for fold in folds):
        raise AtlasError(
            f"The prompts of '{enrolment.name}' are not those of agent500", "Make it again: python -m jobs enroll"
        )
    found = prompt_attachments(prompts, np.array(folds, dtype=np.intp))
    return replace(enrolment, attachments={**enrolment.attachments, **found})


def with_bounds(enrolment: Enrolment, release: Release, limit: int | None) -> Enrolment:
    """The enrolment with bounds of its ratios and realised p values, where it has none."""
    held = enrolment.attachments
    if "calibration.bounds" in held and "unknown.realised" in held:
        return enrolment
    part = Part.of(release, "agent500", enrolment.proxy, str(enrolment.facts["roster"]), limit)
    scored = Attributor(part.reader(), enrolment).score(part.traces, sizes=BATCH)
    each = len(part.traces) // len(part.sources)
    folds = np.array(scored.folds[:each], dtype=np.intp)
    found = measured_attachments(held, scored.log_posteriors, folds, part.families)
    facts = {**enrolment.facts, "measured_prompts": each}
    return replace(enrolment, attachments={**held, **found}, facts=facts)


def measure(enrolment: Enrolment, release: Release, benchmark: Benchmark, limit: int | None = None) -> pd.DataFrame:
    """Rows of a served enrolment on one benchmark.

    Raises
    ------
    AtlasError
        If the enrolment is of no roster, or fingerprints are not on disk.
    """
    roster = enrolment.facts.get("roster")
    if not isinstance(roster, str):
        raise AtlasError(f"'{enrolment.name}' is of no roster of the release", "Name one that is")
    part = Part.of(release, benchmark, enrolment.proxy, roster, limit)
    if enrolment.facts.get("benchmark") != benchmark:
        return ask(enrolment, part, benchmark)
    scored = Attributor(part.reader(), enrolment).score(part.traces, keep_fingerprints=True, sizes=BATCH)
    everything = release.prompts(benchmark)["prompt"].astype(str).tolist()
    folds = np.array(enrolment.folds_of(everything), dtype=np.intp)
    held_out, reference = held_out_prompts(everything, folds)
    each = len(part.traces) // len(part.sources)
    prompts = held_out.take(np.tile(np.arange(each), len(part.sources)))
    return transfer_frame(enrolment, LabelledScores(scored, part.labels, prompts), SAME, reference=reference)


def _write(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    reader: str,
    roster: str,
    weights: str,
    frame: pd.DataFrame,
    limit: Mapping[str, int],
) -> None:
    scenario = str(frame["scenario"].iloc[0])
    key = {"reader": reader, "roster": roster, "condition": CLEAN, "part": PART, "scenario": scenario}
    with recorded(
        connection,
        stage="validate",
        command=command_line(),
        data_hash=release.manifest_hash,
        proxy_hash=weights,
        details={"prompts": dict(limit) or "all", "scenario": scenario},
    ) as build:
        replace_rows(connection, "audit_validation", frame.drop(columns="scenario"), key, build)
    wide = frame.pivot(index="metric", columns="k", values="value").round(3)
    print(f"{reader} on {roster}, {scenario}:\n{wide.to_string()}", flush=True)

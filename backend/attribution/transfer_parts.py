"""How an enrolment of a part of the release answers about the rest of it, from stored fingerprints.

One benchmark is asked about the other, and nine categories of prompts about the tenth. Texts are tokenised and counted
once; only heads and their calibration are fitted for every part.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.attribution.scoring import Attributor
from backend.attribution.transfer import LabelledScores, held_out_prompts, pooled, transfer_frame
from backend.corpus.release import Benchmark, Release
from backend.corpus.roster_rows import slice_of
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import enrolment_of_traces
from backend.enrolment.statistics import measured_attachments, prompt_attachments
from backend.errors import AtlasError
from backend.evaluations.corpus import Corpus, cuts_of, read_corpus
from backend.evaluations.readouts import LENGTHS
from backend.evaluations.stages.readout_live import live_blocks
from backend.protocol import CLEAN, READER_PAPER
from backend.proxies.reader import Reader, StoredReader
from backend.proxies.registry import describe, proxy_hash, tokenizer_of
from backend.traces import Trace

Ints = npt.NDArray[np.intp]
PLACE = 20  # modal block of the paper's probe of the default proxy, where traces are placed
SAME, CATEGORY = "same", "category"
"""Scenarios: held-out prompts of the enrolled kind; prompts of a category that was left out."""
FEWEST = 10  # prompts of a category that is left out
BATCH = (512,)


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

    Raises AtlasError if the enrolment is of no roster, or fingerprints are not on disk.
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

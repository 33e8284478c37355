"""Measure what an enrolment's verdicts are worth on labelled responses: of its own prompts, and of another domain.

The rule itself answers on groups of K traces, with the true source as the claim, with the nearest other one and without
a claim. The rows go to ``audit_validation`` and into the enrolment, so that its reports show them.
"""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from backend.audit.attributor import Attributor
from backend.audit.enrolment import Enrolment
from backend.audit.enrolment_files import enrolments, load_enrolment, save_enrolment
from backend.audit.fitted import prompt_attachments
from backend.audit.matched import CLEAN, validation_arrays, validation_of
from backend.audit.transfer import PART, LabelledScores, held_out_prompts, transfer_frame
from backend.errors import AtlasError
from backend.proxies.reader import Reader
from backend.proxies.registry import describe, tokenizer_of
from backend.proxies.stored import StoredReader
from backend.release import BENCHMARKS, Benchmark, Release
from backend.store.builds import recorded
from backend.store.writers import replace_rows
from jobs import _common

SAME = "same"
"""Scenario of an enrolment's own prompts, each scored by the head that has not seen it."""
BATCH = (512,)


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("enrolment", metavar="NAMES", help="enrolments of the data folder, comma separated")
    parser.add_argument(
        "--benchmark", default="agent500,math100", help="benchmarks of the release that answer (default: %(default)s)"
    )
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="data folder (default: ATLAS_DATA, else data/)")
    _common.add_limit(parser)
    _common.add_release(parser)
    _common.add_work(parser)


def run(arguments: argparse.Namespace) -> int:
    """Validate every enrolment that was named on every benchmark."""
    release, folder = _common.release_of(arguments), _common.data_of(arguments) / "enrolments"
    known = enrolments(folder.parent)
    for name in (part.strip() for part in arguments.enrolment.split(",")):
        if name not in known:
            raise AtlasError(f"There is no enrolment '{name}'", f"Choose from {', '.join(known)}")
        enrolment = with_prompts(load_enrolment(known[name]), release)
        frames = [validation_of(enrolment)]
        with contextlib.closing(_common.work_of(arguments)) as connection:
            for benchmark in arguments.benchmark.split(","):
                frame = measure(enrolment, release, cast(Benchmark, benchmark), arguments.limit)
                scenario = frame["scenario"].iloc[0]
                frames = [part[~(part["part"].eq(PART) & part["scenario"].eq(scenario))] for part in frames]
                frames.append(frame)
                _write(connection, release, enrolment, frame, scenario, arguments.limit)
        rows = pd.concat(frames, ignore_index=True)
        attachments = {**enrolment.attachments, **validation_arrays(rows)}
        save_enrolment(replace(enrolment, attachments=attachments), known[name])
        print(f"Written: {known[name].name}, {known[name].stat().st_size / 1e6:.1f} MB")
    return 0


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


def measure(enrolment: Enrolment, release: Release, benchmark: Benchmark, limit: int | None = None) -> pd.DataFrame:
    """Rows of the validation on one benchmark, from stored fingerprints.

    Raises
    ------
    AtlasError
        If the enrolment is of no roster, the benchmark is unknown, or its fingerprints are not on disk.
    """
    roster = enrolment.facts.get("roster")
    if not isinstance(roster, str) or benchmark not in BENCHMARKS:
        raise AtlasError(
            f"'{enrolment.name}' cannot be validated on {benchmark}",
            f"Name an enrolment of a roster, and one of {', '.join(BENCHMARKS)}",
        )
    rows = _common.slice_of(release, benchmark, enrolment.proxy, enrolment.view, roster, limit)
    identity = rows.store.identity()
    arrays = {(layer, "full"): rows.load(layer) for layer in enrolment.layers}
    records, width = release.records(benchmark), len(release.records(benchmark).prompt_ids)
    traces = [
        records.traces[source * width + prompt]
        for source in range(len(rows.sources))
        for prompt in range(len(rows.prompt_ids))
    ]
    proxy = enrolment.proxy
    engine = identity.engine if identity else ""
    reader = StoredReader(arrays, tokenizer_of(proxy), engine, describe(proxy).depth)
    scored = Attributor(cast(Reader, reader), enrolment).score(traces, keep_fingerprints=True, sizes=BATCH)
    prompts = [trace.prompt for trace in traces[: len(rows.prompt_ids)]]
    scenario, reference = benchmark, enrolment.prompt_reference
    if enrolment.facts.get("benchmark") == benchmark:
        everything = [trace.prompt for trace in records.traces[:width]]
        folds = np.array(enrolment.folds_of(everything), dtype=np.intp)
        held_out, reference = held_out_prompts(everything, folds)
        scores, scenario = held_out.take(np.arange(len(prompts))), SAME
    else:
        assert reference is not None
        scores = reference.score(prompts)
    spread = scores.take(np.tile(np.arange(len(prompts)), len(rows.sources)))
    frame = transfer_frame(enrolment, LabelledScores(scored, rows.labels, spread), scenario, reference=reference)
    return frame.assign(part=PART, condition=CLEAN)


def _write(
    connection: Any, release: Release, enrolment: Enrolment, frame: pd.DataFrame, scenario: str, limit: int | None
) -> None:
    key = {
        "reader": enrolment.reader,
        "roster": str(enrolment.facts["roster"]),
        "condition": CLEAN,
        "part": PART,
        "scenario": scenario,
    }
    with recorded(
        connection,
        stage="validate",
        command=_common.command_line(),
        data_hash=release.manifest_hash,
        proxy_hash=str(enrolment.facts["proxy_hash"]),
        details={"enrolment": enrolment.name, "prompts": limit, "scenario": scenario},
    ) as build:
        replace_rows(connection, "audit_validation", frame.drop(columns=["part", "condition", "scenario"]), key, build)
    wide = frame.pivot(index="metric", columns="k", values="value").round(3)
    print(f"{enrolment.name}, {scenario}:\n{wide.to_string()}", flush=True)

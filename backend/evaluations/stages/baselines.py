"""Dynamic baselines under READER's folds, groups and accumulator (paper, Dynamic Baselines).

Every method is fitted five times. A fold model scores the responses that it has not seen, the same ones cut to 128, 64
and 32 proxy tokens, and all of Math100; the stress stage evaluates what is kept here. A fold that is done is not fitted
again after an interruption, and a finished evaluation is only repeated when something that it depends on has changed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from backend.corpus.release import Benchmark, Records, Release
from backend.corpus.roster_rows import describe_proxy
from backend.errors import AtlasError
from backend.evaluations.artifacts import artifact_folder, keep, keep_arrays, report_accuracy, write_log_posteriors
from backend.evaluations.attribution import attribution_frames
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.baseline_methods import (
    CHECKPOINTS,
    Fit,
    Method,
    Notes,
    assemble,
    method_of,
    score_fold,
    truncation_tokenizer,
)
from backend.extraction import records_hash
from backend.methods.registry import BASELINES, QUICK
from backend.output_files import write
from backend.protocol import CLEAN, FOLDS, SPLIT_SEED, fold_of_prompts
from backend.proxies.encoding import LIMITS, cut_responses
from backend.proxies.registry import DEFAULT_PROXY, proxy_hash
from backend.store.writers import stage_rows, write_reader
from backend.traces import Trace

Floats = npt.NDArray[np.float32]


MATH = "math100"


@dataclass(frozen=True)
class Material:
    """The records of the longest roster and the leading prompts; a shorter roster has its first rows."""

    release: Release
    sources: int
    limit: int | None  # Only the first prompts

    @cached_property
    def _records(self) -> dict[str, Records]:
        benchmarks: tuple[Benchmark, ...] = ("agent500", "math100")
        return {benchmark: self.release.records(benchmark) for benchmark in benchmarks}

    def prompts(self, panel: str) -> list[str]:
        """Ids of the prompts in use, ascending."""
        return self._of(panel).prompt_ids[: self.limit]

    def rows(self, panel: str) -> npt.NDArray[np.intp]:
        """Rows of the benchmark in use, in the order of this material's own rows."""
        width = len(self._of(panel).prompt_ids)
        inside = np.arange(min(self.limit or width, width))
        return (np.arange(self.sources)[:, None] * width + inside).ravel()

    def size(self, panel: str) -> int:
        """Records of the whole benchmark."""
        return len(self._of(panel).traces)

    def traces(self, panel: str) -> list[Trace]:
        """Records of a panel: 'clean', a truncation such as 't64', or 'math100'."""
        if panel in (CLEAN, MATH):
            traces = self._of(panel).traces
            return [traces[row] for row in self.rows(panel)]
        return self._cut[panel]

    def identity(self, panel: str) -> str:
        """Hash of the records, with the tokenizer of a truncation."""
        return self._hashes[self.benchmark(panel)] + ("" if panel in (CLEAN, MATH) else proxy_hash(DEFAULT_PROXY))

    @staticmethod
    def benchmark(panel: str) -> str:
        """Benchmark of a panel."""
        return MATH if panel == MATH else "agent500"

    def _of(self, panel: str) -> Records:
        return self._records[self.benchmark(panel)]

    @cached_property
    def _hashes(self) -> dict[str, str]:
        return {name: records_hash(records.keys, records.traces) for name, records in self._records.items()}

    @cached_property
    def _cut(self) -> dict[str, list[Trace]]:
        cut = cut_responses(truncation_tokenizer(), self.traces(CLEAN))
        return {f"t{limit}": traces for limit, traces in cut.items()}


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Evaluate the methods on every roster; without ``--method`` those that need no fine-tuning."""
    unknown = [name for name in options.methods if name not in BASELINES]
    if unknown:
        raise AtlasError(f"There is no baseline '{', '.join(unknown)}'", f"Choose from {', '.join(BASELINES)}")
    rosters = sorted(options.rosters, key=lambda name: len(release.roster(name)))
    material = Material(release, len(release.roster(rosters[-1])), options.limit)
    for name in options.methods or QUICK:
        for method in method_of(name, options.views, options.model):
            for roster in rosters:
                evaluate(connection, release, material, method, roster)


def evaluate(
    connection: duckdb.DuckDBPyConnection, release: Release, material: Material, method: Method, roster: str
) -> None:
    """Score and evaluate one method on one roster, and write its rows."""
    frame = release.roster(roster)
    sources, families = frame["label"].tolist(), frame["plot_family"].tolist()
    prompt_folds = fold_of_prompts(material.prompts(CLEAN))
    prompts = len(prompt_folds)
    folder = artifact_folder(method.method, method.proxy, method.view, roster, prompts)
    details: dict[str, Any] = {"sources": len(sources), "prompts": prompts, "settings": method.settings}
    key = {"reader": method.reader, "roster": roster}
    data, weights = release.manifest_hash, method.model_hash
    with stage_rows(connection, "evaluate", details, data, weights, SPLIT_SEED, key=key) as build:
        clean, details["folds"] = _scores(release, material, method, len(sources), prompt_folds, folder)
        frames = attribution_frames(clean, sources, families, prompt_folds)
        if method.proxy:
            describe_proxy(connection, method.proxy)
        write_reader(connection, method=method.method, name=method.name, proxy=method.proxy, view=method.view)
        write_log_posteriors(build, clean, frames, prompt_folds)
    report_accuracy(build.key, frames.metrics)


def _scores(
    release: Release, material: Material, method: Method, sources: int, prompt_folds: npt.NDArray[np.intp], folder: Path
) -> tuple[Floats, list[Notes]]:
    """Out-of-fold log-posteriors, computed or kept, and what the fits cost."""
    folds = np.tile(prompt_folds, sources)
    labels = np.repeat(np.arange(sources), len(prompt_folds))
    transfer = {MATH: sources * len(material.prompts(MATH))}
    cut = [f"t{limit}" for limit in LIMITS]
    files = {CLEAN: "log_posteriors.npy", MATH: "math100.npy"} | {name: f"log_posteriors.{name}.npy" for name in cut}
    identity = json.dumps([release.manifest_hash, method.settings, method.model_hash, proxy_hash(DEFAULT_PROXY)])
    finished = _finished(folder, identity, [*files.values(), *method.keeps])
    if finished is None:
        fit: Fit | None = None
        by_fold: dict[int, Mapping[str, Floats]] = {}
        notes: list[Notes] = []
        for fold in tqdm(range(FOLDS), desc=f"{method.reader} {sources}", unit="fold"):
            kept = folder / "folds" / f"{fold}.npz"
            scores, note = _kept_fold(kept, identity)
            if scores is None:
                fit = fit or method.prepare(material, labels, sources, folder, notes.append)
                scores = score_fold(fit, folds, fold, cut, transfer)
                note = notes.pop()
                keep_arrays(kept, **scores, about=np.array([identity, json.dumps(note)]))
                shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
            by_fold[fold] = scores
            notes.append(note)
        for panel, array in assemble(by_fold, folds, transfer).items():
            keep(folder / files[panel], array)
        write(folder / "finished.json", json.dumps({"identity": identity, "folds": notes}))
        shutil.rmtree(folder / "folds")
        finished = notes
    clean: Floats = np.load(folder / files[CLEAN], mmap_mode="r")
    return clean, finished


def _finished(folder: Path, identity: str, files: list[str]) -> list[Notes] | None:
    """Notes of a finished evaluation with the same identity."""
    path = folder / "finished.json"
    if not path.exists() or not all((folder / name).exists() for name in files):
        return None
    finished = json.loads(path.read_text("utf-8"))
    if finished["identity"] != identity:
        path.unlink()
        return None
    notes: list[Notes] = finished["folds"]
    return notes


def _kept_fold(path: Path, identity: str) -> tuple[dict[str, Floats] | None, Notes]:
    if not path.exists():
        return None, {}
    with np.load(path, allow_pickle=False) as arrays:
        of, note = arrays["about"]
        if of != identity:
            return None, {}
        return {name: arrays[name] for name in arrays.files if name != "about"}, json.loads(str(note))

"""Clean attribution by the paper's readout: nested layer selection, evidence, every budget.

The scan of a block and the out-of-fold log-posteriors go to the cache: a scan is not repeated, any budget regrouped.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice
from backend.errors import AtlasError
from backend.evaluations.artifacts import CLEAN_FILE, extraction, keep, keep_probes, write_log_posteriors
from backend.evaluations.attribution import (
    SCAN_COLUMNS,
    attribution_frames,
    layer_scans,
    out_of_fold,
    select_layers,
    summaries,
)
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.roster_run import RosterRun
from backend.methods.readout import Ints
from backend.protocol import READER_PAPER
from backend.proxies.reader import best_dtype
from backend.store.database import storage
from backend.traces import View


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Evaluate every view and roster, and write the results to the work database."""
    for view in options.views:
        for roster in options.rosters:
            evaluate(RosterRun(connection, release, roster, options.limit), options.proxy, view, options.layers)


def evaluate(run: RosterRun, proxy: str, view: View, layers: str) -> None:
    """Select blocks, fit the fold probes, evaluate every budget and write the rows of one reader."""
    rows = run.rows(proxy, view)
    identity, available = rows.store.identity(), rows.layers()
    needed = available if layers == "all" else [int(part) for part in layers.split(",")]
    if identity is None or not needed or not set(needed) <= set(available):
        raise AtlasError(
            f"The fingerprints of agent500 by {proxy} in view {view} are not complete for {run.roster}",
            f"Run: {extraction('agent500', run.roster, proxy, view, limit=run.limit)}",
        )
    rows.check()
    prompt_folds = rows.prompt_folds
    folds = np.tile(prompt_folds, len(rows.sources))
    folder = run.folder(READER_PAPER, proxy, view)
    details = {"layers": needed, "prompts": len(rows.prompt_ids), "sources": len(rows.sources), "folder": folder.name}
    key = {"reader": f"{READER_PAPER}/{proxy}/{view}", "roster": run.roster}
    with run.build("evaluate", details, identity.proxy_hash, reader=key["reader"], roster=run.roster) as build:
        started = time.perf_counter()
        scores = _scan(rows, needed, folds, folder, identity.as_text())
        details["scan_minutes"] = round((time.perf_counter() - started) / 60, 2)
        chosen = select_layers(scores)
        outer = chosen.dropna(subset="outer_fold").astype(int)
        of_fold = dict(zip(outer["outer_fold"].tolist(), outer["layer"].tolist(), strict=True))
        started = time.perf_counter()
        log_posteriors, probes = out_of_fold(rows.load, of_fold, rows.labels, folds, len(rows.sources))
        details["refit_seconds"] = round(time.perf_counter() - started, 2)
        keep(folder / CLEAN_FILE, log_posteriors)
        if keep_probes(folder, probes):  # rows of the earlier probes under every other condition are out of date
            for table in ("attribution_metrics", "source_accuracy", "confusion"):
                other = "reader = ? AND roster = ? AND (benchmark != 'agent500' OR condition != 'clean')"
                run.connection.execute(f"DELETE FROM {storage(table)} WHERE {other}", [key["reader"], key["roster"]])
        frames = attribution_frames(log_posteriors, rows.sources, rows.families, prompt_folds)
        run.enter_reader(READER_PAPER, proxy, view, f"READER · {proxy} · {view}")
        write_log_posteriors(build, log_posteriors, frames, prompt_folds)
        build.replace("layer_scores", scores)
        build.replace("layer_selection", chosen)
    _report(frames.metrics, chosen, key)


def _scan(rows: Slice, layers: list[int], folds: Ints, folder: Path, identity: str) -> pd.DataFrame:
    """Inner accuracies of every block; those of an earlier, interrupted run on the same fingerprints stay."""
    path = folder / "scan.jsonl"
    known: dict[int, list[dict[Hashable, Any]]] = {}
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # a line torn by an interruption
                entry = json.loads(line)
                if entry["identity"] == identity:
                    known[entry["layer"]] = entry["scores"]
    folder.mkdir(parents=True, exist_ok=True)
    dtype = best_dtype(torch.device("cpu"))
    todo = [layer for layer in layers if layer not in known]
    scans = layer_scans(rows.load, todo, rows.labels, folds, len(rows.sources), dtype)
    for layer, scores in tqdm(scans, total=len(todo), desc="Layer scan", unit="block", disable=not todo):
        known[layer] = pd.DataFrame(scores, columns=list(SCAN_COLUMNS)).to_dict("records")
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"identity": identity, "layer": layer, "scores": known[layer]}) + "\n")
    return pd.DataFrame([row for layer in layers for row in known[layer]]).astype(
        {"outer_fold": int, "inner_fold": int, "layer": int}
    )


def _report(metrics: pd.DataFrame, chosen: pd.DataFrame, key: dict[str, str]) -> None:
    print(
        f"{key['reader']} on {key['roster']}: blocks {chosen['layer'].tolist()[:-1]}, modal {chosen['layer'].iloc[-1]}"
    )
    for k, part in summaries(metrics).groupby("k"):
        value = {(row.reduction, row.metric): row for row in part.itertuples()}
        accuracy, macro = value["fold", "accuracy"], value["pooled", "macro_f1"]
        over_folds = f"{accuracy.value:.3f} ± {accuracy.std:.3f} over folds"
        print(f"  K = {k:>3}: accuracy {over_folds}, macro-F1 {macro.value:.3f} pooled")

"""Evaluate attribution: nested layer selection, out-of-fold evidence, every budget.

Everything that is expensive is kept in the cache: the scan of a block is not repeated, and the out-of-fold
log-posteriors stay, so that any budget can be regrouped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from tqdm import tqdm

from backend.errors import AtlasError
from backend.evaluations.attribution import attribution_frames, out_of_fold
from backend.evaluations.selection import scan_layers, select_layers
from backend.fingerprints import cache_folder
from backend.protocol import SPLIT_SEED
from backend.proxies.reader import best_dtype
from backend.proxies.registry import proxy_key, registered
from backend.release import BENCHMARKS, ROSTERS, Release
from backend.store.builds import recorded
from backend.store.writers import replace_rows, write_proxies, write_reader, write_sources
from backend.traces import View
from jobs import _common

METHOD = "reader-paper"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--proxy", default="smollm2-135m")
    parser.add_argument("--view", default="ur", help="input views, comma separated (ur, r)")
    parser.add_argument("--roster", default="100-way,165-way", help="rosters, comma separated")
    parser.add_argument("--layers", default="all", help="candidate blocks, comma separated (default: all on disk)")
    _common.add_limit(parser)
    _common.add_release(parser)
    _common.add_work(parser)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate every asked view and roster, and write the results to the work database."""
    release = _common.release_of(arguments)
    with contextlib.closing(_common.work_of(arguments)) as connection:
        write_release_sources(connection, release)
        for view in _common.views_of(arguments.view):
            for roster in _common.rosters_of(arguments.roster):
                evaluate(
                    connection, release, proxy_key(arguments.proxy), view, roster, arguments.layers, arguments.limit
                )
    return 0


def write_release_sources(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    """Write the release's sources, families and rosters once."""
    roster = release.roster("165-way")
    per_source = sum(len(release.prompts(benchmark)) for benchmark in BENCHMARKS)
    with recorded(
        connection, stage="sources", command=_common.command_line(), data_hash=release.manifest_hash
    ) as build:
        sizes = dict(zip(ROSTERS, release.roster_sizes(), strict=True))
        write_sources(connection, roster, dict.fromkeys(roster["label"], per_source), build, rosters=sizes)


def evaluate(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    proxy: str,
    view: View,
    roster: str,
    layers: str = "all",
    limit: int | None = None,
) -> None:
    """Select blocks, fit the fold probes, evaluate every budget and write the rows of one reader and roster."""
    rows = _common.slice_of(release, "agent500", proxy, view, roster, limit)
    identity = rows.store.identity()
    held = rows.layers()
    wanted = held if layers == "all" else [int(part) for part in layers.split(",")]
    if identity is None or not wanted or not set(wanted) <= set(held):
        raise AtlasError(
            f"The fingerprints of agent500 by {proxy} in view {view} are not complete for {roster}",
            f"Run: python -m jobs extract --benchmark agent500 --roster {roster} --proxy {proxy} --view {view}"
            + (f" --limit {limit}" if limit else ""),
        )
    labels, prompt_folds = rows.labels, rows.prompt_folds
    folds = np.tile(prompt_folds, len(rows.sources))
    folder = cache_folder() / "evaluations" / METHOD / proxy / view / f"{roster}.{len(rows.prompt_ids)}"
    details = {"layers": wanted, "prompts": len(rows.prompt_ids), "sources": len(rows.sources), "folder": folder.name}
    key = {"reader": f"{METHOD}/{proxy}/{view}", "roster": roster}
    with recorded(
        connection,
        stage="evaluate",
        command=_common.command_line(),
        data_hash=release.manifest_hash,
        proxy_hash=identity.proxy_hash,
        seed=SPLIT_SEED,
        details=details,
    ) as build:
        started = time.perf_counter()
        scores = _scan(rows, wanted, labels, folds, folder, f"{identity.records}/{identity.proxy_hash}")
        details["scan_minutes"] = round((time.perf_counter() - started) / 60, 2)
        chosen = select_layers(scores)
        of_fold = {
            int(f): int(ly) for f, ly in zip(chosen["outer_fold"], chosen["layer"], strict=True) if f is not pd.NA
        }
        started = time.perf_counter()
        log_posteriors, probes = out_of_fold(
            lambda layer: rows.load(layer).astype(np.float32), of_fold, labels, folds, len(rows.sources)
        )
        details["refit_seconds"] = round(time.perf_counter() - started, 2)
        _keep(folder / "log_posteriors.npy", log_posteriors)
        for fold, probe in probes.items():
            _keep(folder / f"probe.{fold}.npy", np.vstack([probe.mean, probe.scale, probe.weight.T]))
        frames = attribution_frames(log_posteriors, rows.sources, rows.families, prompt_folds)
        describe_proxy(connection, proxy)
        write_reader(connection, method=METHOD, name=f"READER · {proxy} · {view}", proxy=proxy, view=view)
        measured = {**key, "benchmark": "agent500", "condition": "clean"}
        replace_rows(connection, "attribution_metrics", frames.metrics, measured, build)
        replace_rows(connection, "source_accuracy", frames.source_accuracy, measured, build)
        replace_rows(connection, "confusion", frames.confusion, measured, build)
        replace_rows(connection, "layer_scores", scores, key, build)
        replace_rows(connection, "layer_selection", chosen, key, build)
    _report(frames.metrics, chosen, key)


def _scan(
    rows: _common.Slice,
    layers: list[int],
    labels: npt.NDArray[np.intp],
    folds: npt.NDArray[np.intp],
    folder: Path,
    identity: str,
) -> pd.DataFrame:
    """Inner accuracies of every block; those of an earlier, interrupted run on the same fingerprints are kept."""
    path = folder / "scan.jsonl"
    known: dict[int, list[dict[str, float]]] = {}
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # a line torn by an interruption
                entry = json.loads(line)
                if entry["identity"] == identity:
                    known[entry["layer"]] = entry["scores"]
    folder.mkdir(parents=True, exist_ok=True)
    dtype = best_dtype(torch.device("cpu"))
    todo = [layer for layer in layers if layer not in known]
    for layer in tqdm(todo, desc="Layer scan", unit="block", disable=not todo):
        frame = scan_layers(rows.load, [layer], labels, folds, len(rows.sources), dtype=dtype)
        known[layer] = frame.to_dict("records")
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"identity": identity, "layer": layer, "scores": known[layer]}) + "\n")
    return pd.DataFrame([row for layer in layers for row in known[layer]]).astype(
        {"outer_fold": int, "inner_fold": int, "layer": int}
    )


def _keep(path: Path, array: npt.NDArray[np.float32]) -> None:
    """Write an array in one step."""
    scratch = path.with_suffix(".partial.npy")
    np.save(scratch, array)
    scratch.replace(path)


def describe_proxy(connection: duckdb.DuckDBPyConnection, proxy: str) -> None:
    """Write what the registry knows of a proxy; a folder or hub id that it does not list goes by its own name."""
    known = registered().get(proxy)
    row: dict[str, object] = {"proxy": proxy, "name": known.name if known else proxy}
    if known:
        row |= {"hub_id": known.hub_id, "package": known.package, "licence": known.licence}
        row |= {"depth": known.depth, "hidden_size": known.hidden_size, "causal": known.causal}
    write_proxies(connection, pd.DataFrame([row]))


def _report(metrics: pd.DataFrame, chosen: pd.DataFrame, key: dict[str, str]) -> None:
    summary = metrics[metrics["seed"].isna() & metrics["fold"].isna()]
    print(
        f"{key['reader']} on {key['roster']}: blocks {chosen['layer'].tolist()[:-1]}, modal {chosen['layer'].iloc[-1]}"
    )
    for k, part in summary.groupby("k"):
        value = part.set_index(["reduction", "metric"])
        print(
            f"  K = {k:>3}: accuracy {value.loc[('fold', 'accuracy'), 'value']:.3f} "
            f"± {value.loc[('fold', 'accuracy'), 'std']:.3f} over folds, "
            f"macro-F1 {value.loc[('pooled', 'macro_f1'), 'value']:.3f} pooled"
        )

"""What stages keep for each other: log-posteriors and fold probes in the cache, attribution rows in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.errors import AtlasError
from backend.evaluations.attribution import AttributionFrames
from backend.evaluations.endpoints import accuracy_intervals, cluster_hits
from backend.evaluations.stress import LENGTHS, TRANSFER_FILE, length_file
from backend.fingerprints import cache_folder
from backend.methods.discriminant_bank import blocks_at
from backend.methods.probe import LinearProbe
from backend.methods.registry import EMBEDDED, ENCODER, FUSED_TUNED, METHODS, TEXT_TUNED, reads_text
from backend.methods.sentence_encoder import DEFAULT_ENCODER, reads_of
from backend.methods.tuned_encoder import TUNED
from backend.protocol import FOLDS, READER_PAPER
from backend.proxies.registry import describe
from backend.store.writers import replace_rows

Floats = npt.NDArray[np.float32]
PROBE_PARTS: Mapping[str, float] = {"mean": 1e-6, "scale": 1e-6, "weight": 1e-3, "bias": 1e-3}
"""Parts of a probe, and by which share of its length each may differ when the same probe is fitted again."""


def artifact_folder(method: str, proxy: str | None, view: str | None, roster: str, prompts: int) -> Path:
    """Folder of one reader's evaluation on a roster and a number of prompts."""
    parts = [part for part in (method, proxy, view) if part is not None]
    return cache_folder().joinpath("evaluations", *parts, f"{roster}.{prompts}")


def enrolled_folder(method: str, proxy: str, view: str, roster: str, prompts: int) -> Path:
    """Folder of the evaluation behind an enrolment; one of texts is the same for every proxy."""
    return artifact_folder(method, *((None, None) if reads_text(method) else (proxy, view)), roster, prompts)


def evaluation(method: str, proxy: str, view: str, roster: str, limit: int | None = None) -> str:
    """The command that makes what an enrolment of a method is made of."""
    read = "" if reads_text(method) or method == ENCODER else f" --proxy {proxy.partition('+')[0]} --view {view}"
    if method in EMBEDDED:
        read = f" --model {proxy} --view {view}"
    named = METHODS[method].stage if method != READER_PAPER else ""
    members = members_of(method, proxy)
    return (
        f"python -m jobs evaluate{read} --roster {roster}"
        + (f" --limit {limit}" if limit else "")
        + (f" --stage {named} --method {method}" if named else "")
        + (f" --members {members}" if members else "")
    )


def members_of(method: str, proxy: str) -> str:
    """Usual members of a method, as ``--members`` takes them; nothing where it has those that nobody names."""
    tuned = reads_of(DEFAULT_ENCODER, TUNED)
    texts = {ENCODER: reads_of(proxy, TUNED), "fused-text": "word,char", TEXT_TUNED: f"word,{tuned}"}
    if method in texts or not ("+" in proxy or method == FUSED_TUNED):
        return texts.get(method, "")
    blocks = {key: "+".join(map(str, blocks_at(describe(key).depth))) for key in proxy.split("+")}
    states = [f"{key}:{named}" for key, named in blocks.items()]
    return ",".join([*states, "network", "word", *([tuned] if method == FUSED_TUNED else [])])


def keep(path: Path, array: npt.NDArray[np.floating]) -> None:
    """Write an array in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".partial.npy")
    np.save(scratch, array)
    scratch.replace(path)


def keep_probes(folder: Path, probes: Mapping[int, LinearProbe]) -> bool:
    """Keep the probe of every outer fold, standardiser included.

    What other probes said of shortened responses and of Math100 goes before they do.

    Returns
    -------
    bool
        Whether there were other probes, so that what is stored of them under other conditions is out of date.
    """
    folder.mkdir(parents=True, exist_ok=True)
    others = (folder / "probe.0.npz").exists() and not _same_probes(folder, probes)
    if others:
        for name in (*map(length_file, LENGTHS), TRANSFER_FILE):
            (folder / name).unlink(missing_ok=True)
    for fold, probe in probes.items():
        scratch = folder / f"probe.{fold}.partial.npz"
        np.savez(scratch, mean=probe.mean, scale=probe.scale, weight=probe.weight, bias=probe.bias)
        scratch.replace(folder / f"probe.{fold}.npz")
    return others


def _same_probes(folder: Path, probes: Mapping[int, LinearProbe]) -> bool:
    """Whether these probes are the kept ones: standardisers of the same rows, weights but for the order of sums."""
    try:
        held = load_probes(folder, "")
    except AtlasError:
        return False
    return all(
        _close(getattr(held[fold], part), getattr(probe, part), share)
        for fold, probe in probes.items()
        for part, share in PROBE_PARTS.items()
    )


def _close(left: Floats, right: Floats, share: float) -> bool:
    return left.shape == right.shape and bool(np.linalg.norm(left - right) <= share * np.linalg.norm(right))


def load_probes(folder: Path, rerun_command: str) -> dict[int, LinearProbe]:
    """Probes of all outer folds.

    Raises
    ------
    AtlasError
        If one is missing; ``rerun_command`` is what makes them.
    """
    probes = {}
    for fold in range(FOLDS):
        path = folder / f"probe.{fold}.npz"
        if not path.exists():
            raise AtlasError(f"The probe of fold {fold} is missing in {folder}", f"Run: {rerun_command}")
        with np.load(path, allow_pickle=False) as held:
            probes[fold] = LinearProbe(held["mean"], held["scale"], held["weight"], held["bias"])
    return probes


def load_log_posteriors(folder: Path, rerun_command: str) -> Floats:
    """Out-of-fold log-posteriors of shape (S * P, S), mapped into memory.

    Raises
    ------
    AtlasError
        If they are missing; ``rerun_command`` is what makes them.
    """
    path = folder / "log_posteriors.npy"
    if not path.exists():
        raise AtlasError(f"There are no log-posteriors in {folder}", f"Run: {rerun_command}")
    array: Floats = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def write_log_posteriors(
    connection: duckdb.DuckDBPyConnection,
    key: Mapping[str, object],
    log_posteriors: Floats,
    frames: AttributionFrames,
    prompt_folds: npt.NDArray[np.intp],
    build_id: str,
) -> None:
    """Write the attribution of responses grouped inside their folds, whole or cut, with the accuracies' intervals."""
    write_attribution(connection, key, with_intervals(frames, log_posteriors, prompt_folds), build_id)


def with_intervals(
    frames: AttributionFrames, log_posteriors: Floats, prompt_folds: npt.NDArray[np.intp]
) -> AttributionFrames:
    """The same results with the intervals of their accuracies, of groups inside the folds."""
    intervals = accuracy_intervals(cluster_hits(log_posteriors, prompt_folds))
    return replace(frames, metrics=pd.concat([frames.metrics, intervals], ignore_index=True))


def write_attribution(
    connection: duckdb.DuckDBPyConnection, key: Mapping[str, object], frames: AttributionFrames, build_id: str
) -> None:
    """Write metrics, accuracy a source and confusion counts of one reader, roster, benchmark and condition."""
    replace_rows(connection, "attribution_metrics", frames.metrics, key, build_id)
    replace_rows(connection, "source_accuracy", frames.source_accuracy, key, build_id)
    replace_rows(connection, "confusion", frames.confusion, key, build_id)

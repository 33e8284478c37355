"""Artifacts of stages: log-posteriors and fold models in the cache, attribution rows in the store.

Any method can be stressed that saves float32 arrays of these names in its :func:`artifact_folder`:

* ``log_posteriors.npy`` and ``log_posteriors.t128.npy``, ``.t64``, ``.t32`` of shape (S * P, S): every Agent500
  response, whole and shortened, by the fold model that excluded its prompt;
* ``math100.npy`` of shape (5, S * P100, S): every Math100 response by every fold model, in the order of the folds.

Rows are source * prompts + prompt, prompts ascending; sources and columns are in roster order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.corpus.roster_rows import Slice
from backend.errors import AtlasError
from backend.evaluations.attribution import AttributionFrames, accuracy_intervals, cluster_hits, summaries
from backend.fingerprints import cache_folder
from backend.methods.discriminant import blocks_at
from backend.methods.ensemble import KINDS, model_of
from backend.methods.fine_tuning import TUNED
from backend.methods.probe import LinearProbe
from backend.methods.readout import Doubles, Floats, Ints, Model
from backend.methods.registry import (
    EMBEDDED,
    ENCODER,
    FUSED_STYLE,
    FUSED_TUNED,
    METHODS,
    TEXT_STYLE,
    TEXT_TUNED,
    reads_text,
)
from backend.methods.sentence_encoder import DEFAULT_ENCODER, reads_of
from backend.methods.stack import Stack
from backend.protocol import CLEAN, FOLDS, READER_PAPER
from backend.proxies.registry import describe
from backend.store.writers import StageRows, replace_rows

STACKS = "stacks.npz"  # What the members of a stacked reader count, fold by fold
CUTS = ("t128", "t64", "t32")  # Response lengths in proxy tokens, as the feature store names them
CLEAN_FILE, TRANSFER_FILE = "log_posteriors.npy", "math100.npy"
PROBE_PARTS: Mapping[str, float] = {"mean": 1e-6, "scale": 1e-6, "weight": 1e-3, "bias": 1e-3}
"""Parts of a probe, and by which share of its length each may differ when the same probe is fitted again."""


def posterior_file(condition: str) -> str:
    """File of the log-posteriors of responses, whole or of one of :data:`CUTS`."""
    return CLEAN_FILE if condition == CLEAN else f"log_posteriors.{condition}.npy"


def artifact_folder(method: str, proxy: str | None, view: str | None, roster: str, prompts: int) -> Path:
    """Folder of one reader's evaluation on a roster and a number of prompts."""
    parts = [part for part in (method, proxy, view) if part is not None]
    return cache_folder().joinpath("evaluations", *parts, f"{roster}.{prompts}")


def enrolled_folder(method: str, proxy: str, view: str, roster: str, prompts: int) -> Path:
    """Folder of the evaluation behind an enrolment; one of texts is the same for every proxy."""
    read: tuple[str | None, str | None] = (None, None) if reads_text(method) else (proxy, view)
    return artifact_folder(method, *read, roster, prompts)


def evaluation(method: str, proxy: str, view: str, roster: str, limit: int | None = None) -> str:
    """The command that evaluates a method, as its enrolment needs."""
    read = "" if reads_text(method) or method == ENCODER else f" --proxy {proxy.partition('+')[0]} --view {view}"
    if method in EMBEDDED:
        read = f" --model {proxy} --view {view}"
    stage = METHODS[method].stage if method != READER_PAPER else ""
    return f"python -m jobs evaluate{read} --roster {roster}" + _options(
        limit=limit, stage=stage, method=stage and method, members=members_of(method, proxy)
    )


def _options(**options: object) -> str:
    """Options of a command; empty ones are absent."""
    return "".join(f" --{name} {value}" for name, value in options.items() if value)


def members_of(method: str, proxy: str) -> str:
    """Usual members of a method, as ``--members`` takes them; nothing where it has those that nobody names."""
    tuned = reads_of(DEFAULT_ENCODER, TUNED)
    texts = {ENCODER: reads_of(proxy, TUNED), "fused-text": "word,char", TEXT_TUNED: f"word,{tuned}"}
    texts |= {TEXT_STYLE: "word,style"}
    if method in texts or not ("+" in proxy or method == FUSED_TUNED):
        return texts.get(method, "")
    blocks = {key: "+".join(map(str, blocks_at(describe(key).depth))) for key in proxy.split("+")}
    states = [f"{key}:{named}" for key, named in blocks.items()]
    more = {FUSED_TUNED: [tuned], FUSED_STYLE: ["style"]}.get(method, [])
    return ",".join([*states, "network", "word", *more])


def extraction(
    benchmark: str,
    roster: str,
    proxy: str,
    view: str,
    layers: Iterable[int] = (),
    options: str = "",
    limit: int | None = None,
) -> str:
    """The command that reads the responses of a roster."""
    read = _options(benchmark=benchmark, roster=roster, proxy=proxy, view=view, layers=",".join(map(str, layers)))
    return f"python -m jobs extract{read}{options}{_options(limit=limit)}"


def weights_of(rows: Slice) -> str | None:
    """Hash of the proxy that read these rows, None where none are here."""
    identity = rows.store.identity()
    return identity.proxy_hash if identity else None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file that stands in place of ``path`` once it is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.stem}.partial{path.suffix}")
    yield scratch
    scratch.replace(path)


def keep(path: Path, array: npt.NDArray[np.floating]) -> None:
    """Write an array in one step."""
    with replacing(path) as scratch:
        np.save(scratch, array)


def keep_arrays(path: Path, **arrays: Any) -> None:
    """Write named arrays into one file, in one step."""
    with replacing(path) as scratch:
        np.savez(scratch, **arrays)


def saved_arrays(path: Path, identity: str) -> dict[str, npt.NDArray[Any]] | None:
    """Arrays of a file that was written with the same ``identity``, None where there is none."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        if str(arrays["identity"]) != identity:
            return None
        return {name: arrays[name] for name in arrays.files if name != "identity"}


def drop_altered_scores(folder: Path) -> None:
    """Delete the scores of cut responses and of Math100, which are of an earlier fit."""
    for name in (*map(posterior_file, CUTS), TRANSFER_FILE):
        (folder / name).unlink(missing_ok=True)


def keep_probes(folder: Path, probes: Mapping[int, LinearProbe]) -> bool:
    """Write the probe of every outer fold, standardiser included.

    Scores of shortened responses and Math100 by other probes are deleted first. Returns whether there were any: their
    rows in the store are out of date too.
    """
    others = (folder / "probe.0.npz").exists() and not _same_probes(folder, probes)
    if others:
        drop_altered_scores(folder)
    for fold, probe in probes.items():
        keep_arrays(folder / f"probe.{fold}.npz", **probe.to_arrays())
    return others


def _same_probes(folder: Path, probes: Mapping[int, LinearProbe]) -> bool:
    """Whether these probes are the saved ones: standardisers of the same rows, weights but for the order of sums."""

    def close(old: Floats, new: Floats, share: float) -> bool:
        return old.shape == new.shape and bool(np.linalg.norm(old - new) <= share * np.linalg.norm(new))

    try:
        known = load_probes(folder, "")
    except AtlasError:
        return False
    return all(
        close(getattr(known[fold], part), getattr(probe, part), share)
        for fold, probe in probes.items()
        for part, share in PROBE_PARTS.items()
    )


def load_folds(
    folder: Path, stem: str, subject: str, rerun_command: str
) -> Iterator[tuple[int, dict[str, npt.NDArray[Any]]]]:
    """Arrays of the file ``STEM.FOLD.npz`` of every outer fold. Raises AtlasError if one is missing."""
    for fold in range(FOLDS):
        path = folder / f"{stem}.{fold}.npz"
        if not path.exists():
            raise AtlasError(f"{subject.format(fold)} missing in {folder}", f"Run: {rerun_command}")
        with np.load(path, allow_pickle=False) as stored:
            yield fold, {name: stored[name] for name in stored.files}


def load_probes(folder: Path, rerun_command: str) -> dict[int, LinearProbe]:
    """Probes of all outer folds. Raises AtlasError if one is missing."""
    folds = load_folds(folder, "probe", "The probe of fold {} is", rerun_command)
    return {fold: LinearProbe(**{part: arrays[part] for part in PROBE_PARTS}) for fold, arrays in folds}


def load_log_posteriors(folder: Path, rerun_command: str) -> Floats:
    """Out-of-fold log-posteriors (S * P, S), mapped into memory. Raises AtlasError if they are missing."""
    path = folder / CLEAN_FILE
    if not path.exists():
        raise AtlasError(f"There are no log-posteriors in {folder}", f"Run: {rerun_command}")
    array: Floats = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def write_log_posteriors(
    build: StageRows, log_posteriors: Floats, frames: AttributionFrames, prompt_folds: Ints, condition: str = CLEAN
) -> None:
    """Write the attribution of responses grouped inside their folds, whole or cut, with the accuracies' intervals."""
    key = {**build.key, "benchmark": "agent500", "condition": condition}
    write_attribution(build.connection, key, with_intervals(frames, log_posteriors, prompt_folds), build.build_id)


def with_intervals(frames: AttributionFrames, log_posteriors: Floats, prompt_folds: Ints) -> AttributionFrames:
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


def model_file(fold: int) -> str:
    """File of the model of an outer fold."""
    return f"model.{fold}.npz"


def keep_model(path: Path, model: Model) -> None:
    """Write a model in one step."""
    kind = next(kind for kind, model_type in KINDS.items() if isinstance(model, model_type))
    keep_arrays(path, kind=np.array(kind), **model.to_arrays())


def load_models(folder: Path, rerun_command: str) -> dict[int, Model]:
    """Models of all outer folds. Raises AtlasError if one is missing."""
    folds = load_folds(folder, "model", "The model of fold {} is", rerun_command)
    return {fold: model_of(str(arrays.pop("kind")), arrays) for fold, arrays in folds}


def holds_models(folder: Path) -> bool:
    """Whether the models of all outer folds are there."""
    return all((folder / model_file(fold)).exists() for fold in range(FOLDS))


@dataclass(frozen=True)
class StackMember:
    """A member of a stacked reader: what it reads, at which blocks, and where its models lie."""

    reads: str
    layers: tuple[int, ...]
    folder: Path


def keep_stacks(folder: Path, members: Sequence[StackMember], stacks: Mapping[int, Stack]) -> None:
    """Write the weights of a stacked reader, and where the models of its members lie."""
    paths = [{"reads": one.reads, "layers": list(one.layers), "folder": str(one.folder)} for one in members]
    weights = {f"fold{fold}": stack.weights for fold, stack in stacks.items()}
    keep_arrays(folder / STACKS, members=np.array(json.dumps(paths)), **weights)


def load_stacks(folder: Path, rerun_command: str) -> tuple[list[StackMember], dict[int, Doubles]]:
    """Members of a stacked reader, and their weights (cells, M) by fold. Raises AtlasError if they are missing."""
    if not (folder / STACKS).exists():
        raise AtlasError(f"The weights of the stack are missing in {folder}", f"Run: {rerun_command}")
    with np.load(folder / STACKS, allow_pickle=False) as arrays:
        paths = json.loads(str(arrays["members"]))
        members = [StackMember(one["reads"], tuple(one["layers"]), Path(one["folder"])) for one in paths]
        return members, {fold: arrays[f"fold{fold}"] for fold in range(FOLDS)}


def report_accuracy(key: Mapping[str, object], metrics: pd.DataFrame, note: str = "") -> None:
    """Print the mean accuracy over the folds at every budget."""
    part = summaries(metrics, "accuracy")
    part = part[part["reduction"] == "fold"]
    values = ", ".join(
        f"K = {k} {value:.3f} ± {std:.3f}" for k, value, std in zip(part["k"], part["value"], part["std"], strict=True)
    )
    where = f", {key['benchmark']} {key['condition']}" if "condition" in key else ""
    print(f"{key['reader']} on {key['roster']}{where}: accuracy {values}{note}", flush=True)

"""Networks of a fused readout: the member that takes longest to fit, kept model by model (stage readouts)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from backend.evaluations.readout_members import score_network
from backend.evaluations.readouts import MODELS, training_folds
from backend.protocol import FOLDS
from backend.readouts.network import NetworkReadout, NetworkSettings, fit_network
from jobs._stages.kept_models import keep_model, model_file

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
Load = Callable[[Ints], Floats]
CHUNK = 2500


def complete_networks(
    loads: Mapping[str, Load],
    trained: tuple[str, ...],
    labels: Ints,
    folds: Ints,
    classes: int,
    transfer: Mapping[str, tuple[Load, int]],
    out: Mapping[str, npt.NDArray[Any]],
    settings: NetworkSettings,
    folder: Path,
    identity: str,
) -> float:
    """Fit the networks of all models and fill in their scores; a model that is kept is not fitted again.

    Parameters
    ----------
    loads : mapping of condition to callable
        Rows of Agent500 as they look under every condition.
    trained : tuple of str
        Conditions that are training rows.
    labels, folds : ndarray of shape (n,)
    classes : int
    transfer : mapping of condition to callable and number of rows
        Rows of another domain, scored by the outer models.
    out : mapping of condition to ndarray
        As for any member: (3, n, C), of another domain (5, n, C).
    settings : NetworkSettings
    folder : Path
        Where finished models keep their scores.
    identity : str
        Of the rows and the settings.

    Returns
    -------
    float
        Seconds of fitting, of kept models too.
    """
    copies: list[npt.NDArray[np.float16]] = []
    seconds = 0.0
    for model in tqdm(range(len(MODELS)), desc=f"Networks · {folder.parent.name}", unit="fit"):
        path = folder / f"{model}.npz"
        asked = [*loads, *(transfer if model < FOLDS else ())]
        parts = kept_model(path, identity, asked)
        if parts is None or (model < FOLDS and not (folder / model_file(model)).exists()):
            if not copies:
                every = np.arange(len(labels))
                copies = [_half(loads[length], every) for length in trained]
            started = time.perf_counter()
            rows = np.flatnonzero(np.isin(folds, training_folds(model)))
            network = fit_network(copies, rows, labels, classes, settings, seed=model)
            took = time.perf_counter() - started
            parts = _score(network, model, loads, folds, transfer if model < FOLDS else {})
            parts["seconds"] = np.array(took)
            folder.mkdir(parents=True, exist_ok=True)
            if model < FOLDS:
                keep_model(folder / model_file(model), network)
            scratch = path.with_suffix(".partial.npz")
            np.savez(scratch, identity=np.array(identity), **parts)
            scratch.replace(path)
        seconds += float(parts["seconds"])
        for name, values in parts.items():
            condition, _, slot = name.partition("/")
            if not slot:
                continue
            if condition not in out:
                continue
            if condition in transfer:
                out[condition][model] = values
            else:
                fold = next(f for f in MODELS[model] if _slot(f, model) == int(slot))
                out[condition][int(slot), folds == fold] = values
    return seconds


def _score(
    network: NetworkReadout,
    model: int,
    loads: Mapping[str, Load],
    folds: Ints,
    transfer: Mapping[str, tuple[Load, int]],
) -> dict[str, npt.NDArray[Any]]:
    parts: dict[str, npt.NDArray[Any]] = {}
    for condition, load in loads.items():
        for slot, values in score_network(load, folds, model, network).items():
            parts[f"{condition}/{slot}"] = values.astype(np.float16)
    for condition, (load, rows) in transfer.items():
        chunks = [np.arange(low, min(low + CHUNK, rows)) for low in range(0, rows, CHUNK)]
        parts[f"{condition}/0"] = np.concatenate([network.log_posterior(load(some)) for some in chunks]).astype(
            np.float16
        )
    return parts


def _slot(fold: int, model: int) -> int:
    return 0 if model < FOLDS else (2 if model - FOLDS == fold else 1)


def _half(load: Load, rows: Ints) -> npt.NDArray[np.float16]:
    return np.concatenate([load(rows[low : low + CHUNK]).astype(np.float16) for low in range(0, len(rows), CHUNK)])


def kept_model(path: Path, identity: str, asked: Iterable[str]) -> dict[str, npt.NDArray[Any]] | None:
    """What a model said of all asked conditions, None where something is not there."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as held:
        if str(held["identity"]) != identity or not set(asked) <= {name.partition("/")[0] for name in held.files}:
            return None
        return {name: held[name] for name in held.files if name != "identity"}

"""Members of a fused readout that take minutes to fit, kept model by model (stage readouts)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from backend.evaluations.model_artifacts import keep_model, model_file
from backend.evaluations.readout_members import LEAST, Fitted, Load, score_alone
from backend.evaluations.readouts import MODELS
from backend.protocol import FOLDS

Ints = npt.NDArray[np.intp]
CHUNK = 2500


def complete_fits(
    fit: Callable[[int], Fitted],
    loads: Mapping[str, Load],
    folds: Ints,
    transfer: Mapping[str, tuple[Load, int]],
    out: Mapping[str, npt.NDArray[Any]],
    folder: Path,
    identity: str,
) -> float:
    """Fit all models and fill in their scores; a model that is kept is not fitted again.

    fit : Model number, of :data:`backend.evaluations.readouts.MODELS`, to the model fitted on its training folds.
    loads : Rows of Agent500 as they look under every condition.
    folds : (n,).
    transfer : Rows of another domain, scored by the outer models.
    out : As for any member: (3, n, C), of another domain (5, n, C).
    folder : Where finished models keep their scores.
    identity : Of the rows and the settings.
    Returns seconds of fitting, of kept models too.
    """
    seconds = 0.0
    for model in tqdm(range(len(MODELS)), desc=f"{folder.parent.name.capitalize()}", unit="fit"):
        path = folder / f"{model}.npz"
        asked = [*loads, *(transfer if model < FOLDS else ())]
        parts = load_model_of(path, identity, asked)
        if parts is None or (model < FOLDS and not (folder / model_file(model)).exists()):
            started = time.perf_counter()
            fitted = fit(model)
            took = time.perf_counter() - started
            parts = _score(fitted, model, loads, folds, transfer if model < FOLDS else {})
            parts["seconds"] = np.array(took)
            folder.mkdir(parents=True, exist_ok=True)
            if model < FOLDS:
                keep_model(folder / model_file(model), fitted)
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
    fitted: Fitted, model: int, loads: Mapping[str, Load], folds: Ints, transfer: Mapping[str, tuple[Load, int]]
) -> dict[str, npt.NDArray[Any]]:
    parts: dict[str, npt.NDArray[Any]] = {}
    for condition, load in loads.items():
        for slot, values in score_alone(load, folds, model, fitted).items():
            parts[f"{condition}/{slot}"] = _kept(values)
    for condition, (load, rows) in transfer.items():
        chunks = [np.arange(low, min(low + CHUNK, rows)) for low in range(0, rows, CHUNK)]
        parts[f"{condition}/0"] = _kept(np.concatenate([fitted.log_posterior(load(some)) for some in chunks]))
    return parts


def _kept(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float16]:
    return np.maximum(values, LEAST).astype(np.float16)


def _slot(fold: int, model: int) -> int:
    return 0 if model < FOLDS else (2 if model - FOLDS == fold else 1)


def load_model_of(path: Path, identity: str, asked: Iterable[str]) -> dict[str, npt.NDArray[Any]] | None:
    """What a model said of all asked conditions, None where something is not there."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as held:
        if str(held["identity"]) != identity or not set(asked) <= {name.partition("/")[0] for name in held.files}:
            return None
        return {name: held[name] for name in held.files if name != "identity"}

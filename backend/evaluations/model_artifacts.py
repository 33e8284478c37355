"""Fitted models that evaluations keep in the cache, so that what was measured can be enrolled as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backend.errors import AtlasError
from backend.methods.ensemble import KINDS, model_arrays, model_of
from backend.methods.readout import Model
from backend.methods.stack import Stack
from backend.protocol import FOLDS

STACKS = "stacks.npz"
"""What the members of a stacked reader count, fold by fold."""


def model_file(fold: int) -> str:
    """Name of the kept model of an outer fold."""
    return f"model.{fold}.npz"


def keep_model(path: Path, model: Model) -> None:
    """Write a model in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".partial.npz")
    kind = next(kind for kind, made in KINDS.items() if isinstance(model, made))
    np.savez(scratch, kind=np.array(kind), **model_arrays(model))  # type: ignore[arg-type]
    scratch.replace(path)


def load_models(folder: Path, rerun_command: str) -> dict[int, Model]:
    """Models of all outer folds.

    Raises
    ------
    AtlasError
        If one is missing; ``rerun_command`` is what makes them.
    """
    models = {}
    for fold in range(FOLDS):
        path = folder / model_file(fold)
        if not path.exists():
            raise AtlasError(f"The model of fold {fold} is missing in {folder}", f"Run: {rerun_command}")
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files if name != "kind"}
            models[fold] = model_of(str(held["kind"]), arrays)
    return models


def holds_models(folder: Path) -> bool:
    """Whether the models of all outer folds are there."""
    return all((folder / model_file(fold)).exists() for fold in range(FOLDS))


@dataclass(frozen=True)
class KeptMember:
    """A member of a stacked reader: what it reads, at which blocks, and where its models lie."""

    reads: str
    layers: tuple[int, ...]
    folder: Path


def keep_stacks(folder: Path, members: Sequence[KeptMember], stacks: Mapping[int, Stack]) -> None:
    """Keep the weights of a stacked reader, and where the models of its members lie."""
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".partial.{STACKS}"
    told = [{"reads": one.reads, "layers": list(one.layers), "folder": str(one.folder)} for one in members]
    weights = {f"fold{fold}": stack.weights for fold, stack in stacks.items()}
    np.savez(scratch, members=np.array(json.dumps(told)), **weights)  # type: ignore[arg-type]
    scratch.replace(folder / STACKS)


def load_stacks(folder: Path, rerun_command: str) -> tuple[list[KeptMember], dict[int, npt.NDArray[np.float64]]]:
    """Members of a stacked reader, and their weights (cells, M), fold by fold.

    Raises
    ------
    AtlasError
        If they are missing; ``rerun_command`` is what makes them.
    """
    if not (folder / STACKS).exists():
        raise AtlasError(f"The weights of the stack are missing in {folder}", f"Run: {rerun_command}")
    with np.load(folder / STACKS, allow_pickle=False) as held:
        told = json.loads(str(held["members"]))
        members = [KeptMember(one["reads"], tuple(one["layers"]), Path(one["folder"])) for one in told]
        return members, {fold: held[f"fold{fold}"] for fold in range(FOLDS)}

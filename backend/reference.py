"""Published numbers: what the release's result files say, in the columns that measured numbers have.

They stand for the eight proxies of the paper that need a GPU and a model hub. Nothing here is computed again; each
frame carries the file that it came from, and what the store keeps of it is marked *published*.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from backend.errors import AtlasError
from backend.traces import VIEWS, View

FINGERPRINT = "dct_dc_ac_fullrank"
METRICS = {"accuracy": "accuracy", "macro_f1": "macro_f1", "nll": "nll_mean", "ece": "ece_mean"}
"""Names in the files and in the store; the release normalises the mean log-posterior."""


@dataclass(frozen=True)
class PublishedAttribution:
    """Attribution of one published reader on Agent500, 100-way.

    Attributes
    ----------
    proxy : str
        Tag of the proxy in the release.
    view : {'ur', 'r'}
    files : tuple of str
        Result files under the release's folder.
    metrics : DataFrame
        Columns k, reduction, metric, seed, fold, value, std, n; the row without seed and fold is the summary.
    """

    proxy: str
    view: View
    files: tuple[str, ...]
    metrics: pd.DataFrame


def published_attribution(root: Path) -> Iterator[PublishedAttribution]:
    """Read the budget curves of every published proxy and view, and the fold-wise end points where there are some.

    Parameters
    ----------
    root : Path
        The release's folder.

    Yields
    ------
    PublishedAttribution
        Ordered by proxy, then view.

    Raises
    ------
    AtlasError
        If the folder holds no result files, or one of them cannot be understood.
    """
    folder = root / "results" / "reader" / "agent500"
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise AtlasError(
            f"There are no result files in {folder}", "Fetch the release with its results: python -m jobs fetch"
        )
    for path in paths:
        proxy, _, suffix = path.stem.rpartition("_")
        view = next((view for view in VIEWS if view == suffix), None)
        if view is None:
            raise AtlasError(f"{path} does not name an input view", "Fetch the release again: python -m jobs fetch")
        files = [path]
        rows = _read(path, lambda data: _pooled(data["configs"][FINGERPRINT]["cv_metrics_by_grouping_seed"]))
        folds = root / "results" / "statistics" / "fold_variation" / f"reader_{proxy}.json"
        if view == "ur" and folds.exists():  # the fold-wise files were made from the prompt-response view only
            files.append(folds)
            rows += _read(folds, lambda data: _by_fold(data["agent500"]))
        frame = pd.DataFrame(rows).astype({"seed": "Int64", "fold": "Int64"})
        yield PublishedAttribution(proxy, view, tuple(str(f.relative_to(root)) for f in files), frame)


def _read(path: Path, take: Any) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = take(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AtlasError(
            f"{path} cannot be understood ({type(error).__name__}: {error})",
            "Fetch the release again: python -m jobs fetch",
        ) from error
    return rows


def _row(k: int, reduction: str, metric: str, value: float, n: int, **where: Any) -> dict[str, Any]:
    empty = {"seed": None, "fold": None, "std": None}
    return {"k": k, "reduction": reduction, "metric": metric, "value": value, "n": n, **empty, **where}


def _pooled(by_seed: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    rows = []
    for k in sorted({int(k) for budgets in by_seed.values() for k in budgets}):
        cells = {int(seed): budgets[str(k)] for seed, budgets in by_seed.items() if str(k) in budgets}
        for name, metric in METRICS.items():
            values = {seed: float(cell[name]) for seed, cell in cells.items() if _number(cell.get(name))}
            n = int(next(iter(cells.values()))["n_fingerprints"])
            rows += [_row(k, "pooled", metric, value, n, seed=seed) for seed, value in values.items()]
            if values:
                spread = list(values.values())
                rows.append(_row(k, "pooled", metric, float(np.mean(spread)), n, std=float(np.std(spread))))
    return rows


def _by_fold(budgets: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for budget, cell in budgets.items():
        folds = {int(part["fold"]): part["metrics"][budget] for part in cell["per_fold"]}
        for metric in ("accuracy", "macro_f1"):
            rows += [
                _row(int(budget), "fold", metric, float(part[metric]), int(part["n_fingerprints"]), fold=fold)
                for fold, part in folds.items()
            ]
            total = sum(int(part["n_fingerprints"]) for part in folds.values())
            mean, std = float(cell[f"{metric}_mean"]), float(cell[f"{metric}_std_across_folds"])
            rows.append(_row(int(budget), "fold", metric, mean, total, std=std))
    return rows


def _number(value: Any) -> bool:
    """Whether a value of a file is a number; the release writes bare NaN for what it did not compute."""
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))

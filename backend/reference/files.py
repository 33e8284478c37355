"""The release's result files, and published rows on their way to the store.

A ledger says which numbers of the files were imported. A bare NaN is a number that the release did not compute. The
release repeats numbers (clean attribution stands in three files a proxy): a repetition that agrees is one row, and one
that differs is reported and not imported.
"""

from __future__ import annotations

import contextlib
import json
import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from backend.errors import AtlasError
from backend.methods.registry import form_of, of_part
from backend.protocol import READER_PAPER

_DECLARED = tomllib.loads(Path(__file__).with_name("unimported.toml").read_text("utf-8"))
UNREAD: Mapping[str, str] = _DECLARED["unread"]  # files without results, and what they are
UNIMPORTED: Mapping[str, str] = {name: why for why, names in _DECLARED["numbers"].items() for name in names.split()}
"""Names in the files to why their numbers stay there."""
AGAIN = "Fetch the release again: python -m jobs fetch"
Step = str | int


def _number(value: Any) -> bool:
    """Whether a value of a file is a number; the release writes bare NaN for what it did not compute."""
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


@dataclass(frozen=True)
class Node:
    """A place in a JSON file. Reading a number from it enters the number into the ledger."""

    value: Any
    file: str  # relative to the release's folder
    where: tuple[Step, ...] = ()  # keys and positions on the way there
    read: set[tuple[Step, ...]] = field(default_factory=set)  # places whose numbers were read

    def __getitem__(self, key: Step) -> Node:
        if isinstance(key, str) and not isinstance(self.value, dict):
            raise self.broken("is no set of names")
        try:
            return Node(self.value[key], self.file, (*self.where, key), self.read)
        except (KeyError, IndexError, TypeError) as error:
            raise self.broken(f"lacks '{key}'") from error

    def __contains__(self, key: Step) -> bool:
        return isinstance(self.value, dict) and self.value.get(key) is not None

    def items(self) -> Iterator[tuple[str, Node]]:
        """Names and what stands under them."""
        if not isinstance(self.value, dict):
            raise self.broken("is no set of names")
        for key in self.value:
            yield key, self[key]

    def parts(self) -> list[Node]:
        """Elements of a list."""
        if not isinstance(self.value, list):
            raise self.broken("is no list")
        return [self[position] for position in range(len(self.value))]

    def number(self, key: Step) -> float | None:
        """The number under a key, None for NaN and for what is absent."""
        value = self.value.get(key) if isinstance(self.value, dict) else self[key].value
        if value is None or not _number(value):
            return None
        self.read.add((*self.where, key))
        return float(value)

    def required(self, key: Step) -> float:
        """The number under a key, which must be there."""
        value = self.number(key)
        if value is None:
            raise self.broken(f"has no number under '{key}'")
        return value

    def text(self, key: Step) -> str:
        """The text under a key."""
        value = self[key].value
        if not isinstance(value, str):
            raise self.broken(f"has no text under '{key}'")
        return value

    def broken(self, why: str) -> AtlasError:
        """What a person reads when this place is not as it should be."""
        place = ".".join(map(str, self.where)) or "the file"
        return AtlasError(f"{self.file} cannot be understood ({place} {why})", AGAIN)


@dataclass(frozen=True)
class Ledger:
    """How much of the result files was imported."""

    numbers: int  # finite ones in all files
    imported: int
    unread: list[str]  # files of which no importer read anything
    remaining: Counter[str]  # numbers that were not imported, by their name


class Results:
    """The folder ``results`` of a release."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.last = ""  # the file that was opened last
        self._read: dict[str, set[tuple[Step, ...]]] = {}

    def files(self, pattern: str = "**/*") -> list[str]:
        """Files below ``results`` that match, relative to the release's folder, sorted."""
        found = (self.root / "results").glob(pattern)
        return sorted(path.relative_to(self.root).as_posix() for path in found if path.is_file())

    def json(self, file: str) -> Node:
        """Open a JSON file. Raises AtlasError if it is missing, cut short, or no JSON."""
        self.last = file
        return Node(_json(self.root, file), file, (), self._read.setdefault(file, set()))

    def table(self, file: str, columns: tuple[str, ...]) -> pd.DataFrame:
        """Read columns of a CSV file. Raises AtlasError if it is missing, cut short, or lacks a column."""
        self.last = file
        frame = _csv(self.root, file)
        missing = [name for name in columns if name not in frame]
        if missing:
            raise AtlasError(f"{file} cannot be understood (it lacks the column '{missing[0]}')", AGAIN)
        read = self._read.setdefault(file, set())
        read |= {(row, name) for name in columns for row in range(len(frame))}
        return frame[list(columns)]

    def ledger(self) -> Ledger:
        """Go through all files again and count."""
        numbers, unread, remaining = 0, [], Counter[str]()
        for file in self.files():
            if file not in self._read or Path(file).suffix not in (".json", ".csv"):
                unread.append(file)
            if Path(file).suffix in (".json", ".csv"):
                content = _json(self.root, file) if file.endswith(".json") else _csv(self.root, file).to_dict("index")
                places = list(_places(content, ()))
                numbers += len(places)
                read = self._read.get(file, set())
                remaining.update(_name(place) for place in places if place not in read)
        return Ledger(numbers, numbers - remaining.total(), unread, remaining)


def _json(root: Path, file: str) -> Any:
    with _understood(file):
        return json.loads((root / file).read_text("utf-8"))


def _csv(root: Path, file: str) -> pd.DataFrame:
    with _understood(file):
        return pd.read_csv(root / file)


@contextlib.contextmanager
def _understood(file: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # what pandas raises for a broken file is a ValueError
        raise AtlasError(f"{file} cannot be understood ({type(error).__name__}: {error})", AGAIN) from error


def _places(value: Any, where: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(part, (*where, key))
    elif _number(value):
        yield where


def _name(place: tuple[Any, ...]) -> str:
    """The innermost name on the way to a number; of names that are families, the one above them."""
    names = [step for step in place if isinstance(step, str)]
    return "family_counts" if "family_counts" in names else names[-1] if names else ""


NAMES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))
COMPONENTS = NAMES["components"]
BLOCKS = {method: form_of(method) for method in (READER_PAPER, *of_part("components"))}
ROSTER = "100-way"
MAIN = ("llama31_8b_instruct", "gemma4_12b", "ministral3_8b", "qwen35_9b")  # The paper's four main proxies.
ENCODERS: Mapping[str, tuple[str, str | None]] = NAMES["encoders"]
"""Sentence encoders by their name in the files: tag, and name for people."""
ACCURACIES = ("accuracy", "macro_f1")
METRICS = {"accuracy": "accuracy", "macro_f1": "macro_f1", "nll": "nll_mean", "ece": "ece_mean"}
"""Names in the files and in the store; the release normalises the mean log-posterior."""
RENAMED = METRICS | NAMES["geometry"]
SAME = 2e-6  # The release rounds some repeated numbers to single precision.

IDENTITY: Mapping[str, list[str]] = NAMES["identity"]
"""Columns that identify a row of a table."""


@dataclass(frozen=True)
class PublishedReader:
    """A reader that somebody else measured."""

    reader: str  # method/proxy/view without absent parts
    method: str
    name: str  # for people
    proxy: str | None = None
    proxy_name: str | None = None
    view: str | None = None


@dataclass
class Collected:
    """Rows of all tables as they are read, by identity."""

    readers: dict[str, PublishedReader] = field(default_factory=dict)
    rows: dict[str, dict[tuple[object, ...], dict[str, object]]] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)  # repeated numbers that do not agree, a sentence each

    def reader(self, method: str, proxy: str | None = None, view: str | None = None) -> str:
        """Enter a reader; for an encoder by its name in the files, the proxy gets its own tag."""
        proxy, proxy_name = ENCODERS.get(proxy or "", (proxy, None))
        reader = "/".join(part for part in (method, proxy, view) if part is not None)
        shown = "READER" if method == READER_PAPER else method
        name = " · ".join(part for part in (shown, proxy_name or proxy, view) if part is not None)
        self.readers.setdefault(reader, PublishedReader(reader, method, name, proxy, proxy_name, view))
        return reader

    def add(self, table: str, file: str, **row: object) -> None:
        """Enter a row, unless the same one is there."""
        identity = tuple(row.get(name) for name in IDENTITY[table])
        first = self.rows.setdefault(table, {}).setdefault(identity, {**row, "source_file": file})
        for name, value in row.items():
            before = first.get(name)
            if isinstance(value, float) and isinstance(before, float):
                if not math.isclose(value, before, rel_tol=SAME, abs_tol=SAME):
                    about = ", ".join(str(part) for part in identity if part is not None)
                    self.differing.append(
                        f"{table} ({about}): {name} is {before:.6g} in {first['source_file']}, {value:.6g} in {file}"
                    )
            elif value is not None and before is None:
                first[name] = value

    def metric(self, file: str, reader: str, value: float | None, n: float, **about: object) -> None:
        """Enter a number of attribution, unless it is None (NaN in the file)."""
        if value is not None:
            empty: dict[str, object] = {"roster": ROSTER, "seed": None, "fold": None, "std": None}
            self.add("attribution_metrics", file, reader=reader, value=value, n=int(n), **{**empty, **about})

    def metrics(
        self,
        cell: Node,
        reader: str,
        n: float,
        names: Iterable[str] = ACCURACIES,
        *,
        value: str = "{}",
        std: str = "",
        required: bool = True,
        **about: object,
    ) -> None:
        """Enter several numbers of a cell.

        names : Of the numbers in the files. ``value`` and ``std`` are the keys that they and their spread stand under.
        """
        read = cell.required if required else cell.number
        for name in names:
            spread = read(std.format(name)) if std else None
            metric = RENAMED.get(name, name)
            self.metric(cell.file, reader, read(value.format(name)), n, metric=metric, **about | {"std": spread})

    def add_budgets(
        self, reader: str, part: Node, benchmark: str = "agent500", condition: str = "clean", prefix: str = ""
    ) -> None:
        """Budget curves of one condition: every grouping seed, and the summary over them.

        part : ``{metrics_by_grouping_seed: {seed: {K: {accuracy, macro_f1, nll, ece, n_fingerprints}}}}`` and
            ``{metrics_across_grouping_seeds: {K: {accuracy_mean, accuracy_std, ...}}}``; where the names have a prefix
            and the latter is missing, it is computed from the seeds.
        """
        by_seed, name = part[f"{prefix}metrics_by_grouping_seed"], f"{prefix}metrics_across_grouping_seeds"
        across = part[name] if name in part or not prefix else None
        values: dict[tuple[int, str], list[float]] = defaultdict(list)
        counts: dict[int, float] = {}
        for seed, budgets in by_seed.items():
            for budget, cell in budgets.items():
                k = int(budget)
                counts.setdefault(k, cell.required("n_fingerprints"))
                cell.number("K")
                about = at(k, "pooled", benchmark, condition)
                self.metrics(cell, reader, counts[k], METRICS, required=False, seed=int(seed), **about)
                for name in METRICS:
                    if (value := cell.number(name)) is not None:
                        values[k, name].append(value)
        for (k, name), spread in values.items():
            mean, std = float(np.mean(spread)), float(np.std(spread))
            if across is not None:
                cell = across[str(k)]
                mean, std = cell.number(f"{name}_mean") or mean, cell.required(f"{name}_std")
            about = at(k, "pooled", benchmark, condition)
            self.metric(by_seed.file, reader, mean, counts[k], std=std, metric=METRICS[name], **about)

    def add_external(self, reader: str, part: Node) -> None:
        """Budget curves of every evaluation on other traces; the release groups over all folds at once."""
        for name, shifted in part["external_evaluations"].items():
            cut = ("agent500", f"{name.replace('length', 't')}-global")
            self.add_budgets(reader, shifted, *(("math100", "clean") if name == "math100" else cut))

    def add_folds(self, reader: str, budgets: Node, benchmark: str) -> None:
        """End points fold by fold, with mean and spread over the folds.

        budgets : ``{K: {accuracy_mean, accuracy_std_across_folds, per_fold: [{fold, metrics: {K: ...}}]}}``.
        """
        for budget, cell in budgets.items():
            about, total = at(int(budget), "fold", benchmark), 0.0
            for part in cell["per_fold"].parts():
                number, group = int(part.required("fold")), part["metrics"][budget]
                total += group.required("n_fingerprints")
                self._add_groups(reader, group, fold=number, **about)
            self.metrics(cell, reader, total, value="{}_mean", std="{}_std_across_folds", **about)

    def add_ensemble(self, reader: str, budgets: Node, benchmark: str) -> None:
        """Numbers of the ensemble of the fold models (mean log-posterior), pooled.

        budgets : ``{K: {accuracy, accuracy_grouping_std, by_grouping_seed: ...}}``.
        """
        for budget, cell in budgets.items():
            about = at(int(budget), "pooled", benchmark)
            if "by_grouping_seed" not in cell:
                raise cell.broken("lacks 'by_grouping_seed'")
            self._add_groups(reader, cell, **about)

    def _add_groups(self, reader: str, cell: Node, **about: Any) -> None:
        """Accuracy and macro-F1 of a cell with their spread over the grouping seeds, and of every seed."""
        n = cell.required("n_fingerprints")
        for metric in ACCURACIES:
            std = cell.number(f"{metric}_grouping_std")
            self.metric(cell.file, reader, cell.required(metric), n, std=std, metric=metric, **about)
        if "by_grouping_seed" in cell:
            for seed, group in cell["by_grouping_seed"].items():
                self.metrics(group, reader, group.required("n_fingerprints"), seed=int(seed), **about)

    def frame(self, table: str) -> pd.DataFrame:
        """Rows of a table with their file in ``source_file``."""
        frame = pd.DataFrame(list(self.rows.get(table, {}).values()))
        counted = [name for name in ("seed", "fold", "outer_fold", "split") if name in frame]
        return frame.astype(dict.fromkeys(counted, "Int64"))


def at(k: int, reduction: str, benchmark: str = "agent500", condition: str = "clean") -> dict[str, Any]:
    """Benchmark, condition, budget and reduction of a number of attribution."""
    return {"benchmark": benchmark, "condition": condition, "k": k, "reduction": reduction}

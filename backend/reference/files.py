"""The release's result files, read with a ledger: which of their numbers were taken, and which were left.

Stands for the files behind every table of the paper (``results/paper_map.json``). Anything that cannot be understood
is one sentence that names the file and the place in it; a bare NaN is a number that the release did not compute.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from backend.errors import AtlasError

_UNTAKEN = tomllib.loads(Path(__file__).with_name("left.toml").read_text("utf-8"))
UNREAD: Mapping[str, str] = _UNTAKEN["unread"]  # files without results, and what they are
LEFT: Mapping[str, str] = {name: why for why, names in _UNTAKEN["left"].items() for name in names.split()}
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
    taken: set[tuple[Step, ...]] = field(default_factory=set)  # places whose numbers were read

    def __getitem__(self, key: Step) -> Node:
        if isinstance(key, str) and not isinstance(self.value, dict):
            raise self.broken("is no set of names")
        try:
            return Node(self.value[key], self.file, (*self.where, key), self.taken)
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
        held = self.value.get(key) if isinstance(self.value, dict) else self[key].value
        if held is None or not _number(held):
            return None
        self.taken.add((*self.where, key))
        return float(held)

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
    """What was taken of the result files."""

    numbers: int  # finite ones in all files
    taken: int
    unread: list[str]  # files of which no importer read anything
    left: Counter[str]  # numbers that were not taken, by the name that they stand under


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
        numbers, taken, unread, left = 0, 0, [], Counter[str]()
        for file in self.files():
            if Path(file).suffix not in (".json", ".csv"):
                unread.append(file)
                continue
            content = _json(self.root, file) if file.endswith(".json") else _csv(self.root, file).to_dict("index")
            places = list(_places(content, ()))
            read = self._read.get(file, set())
            here = [place for place in places if place in read]
            numbers, taken = numbers + len(places), taken + len(here)
            left.update(_name(place) for place in places if place not in read)
            if file not in self._read:
                unread.append(file)
        return Ledger(numbers, taken, unread, left)


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

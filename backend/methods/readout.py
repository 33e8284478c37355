"""Readouts: what methods fit, and how their numbers become arrays and come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Half = npt.NDArray[np.float16]
Rows = npt.NDArray[np.floating]
Labels = npt.NDArray[np.integer]


@runtime_checkable
class Readout(Protocol):
    """What tells sources apart once it is fitted."""

    def log_posterior(self, *features: Any, **options: Any) -> Floats:
        """Log-posteriors (n, C) of what the method reads of n traces."""

    def to_arrays(self) -> dict[str, Array]:
        """Every number, by name."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """The readout of these numbers; KeyError, TypeError or ValueError where they do not belong together."""

    @property
    def n_parameters(self) -> int:
        """Numbers that a response is multiplied with or shifted by; a standardiser is not counted."""


@runtime_checkable
class Model(Readout, Protocol):
    """A readout that can be a member of a stack."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of coordinates, or of n-grams, that it reads, and of sources that it knows."""


@runtime_checkable
class Attributable(Model, Protocol):
    """A readout of states whose log-odds split over tokens."""

    def plane(self, row: npt.NDArray[np.floating], source: int, rival: int) -> tuple[Doubles, Doubles, float]:
        """Centre and direction, each (D,), and constant, whose sum is the log-odds of two sources at a row (D,)."""


class Arrays:
    """A dataclass whose fields are arrays."""

    SHAPES: ClassVar[Mapping[str, str]]  # a letter a dimension for every field; equal letters are equal numbers
    TYPES: ClassVar[Mapping[str, type[np.generic]]] = {}  # of fields that are not float32
    TRAINED: ClassVar[Sequence[str]] = ("weight", "bias")  # fields that count as parameters

    def to_arrays(self) -> dict[str, Array]:
        """Every number, by name."""
        return {name: getattr(self, name) for name in self.SHAPES}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """What :meth:`to_arrays` gave; KeyError, TypeError or ValueError where the arrays do not belong together."""
        check_shapes(cls.SHAPES, arrays)
        return cls(**{name: array.astype(cls.TYPES.get(name, np.float32)) for name, array in arrays.items()})

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of coordinates (D), or of n-grams (F), that it reads, and of sources (C) that it knows."""
        sizes = check_shapes(self.SHAPES, self.to_arrays())
        return sizes["D" if "D" in sizes else "F"], sizes["C"]

    @property
    def n_parameters(self) -> int:
        """Numbers that a response is multiplied with or shifted by."""
        return sum(int(getattr(self, name).size) for name in self.TRAINED)


def check_shapes(shapes: Mapping[str, str], arrays: Mapping[str, Array]) -> dict[str, int]:
    """Sizes behind the letters of some shapes; KeyError or ValueError where an array is missing or does not fit."""
    sizes: dict[str, int] = {}
    for name, letters in shapes.items():
        if arrays[name].ndim != len(letters):
            raise ValueError(f"the {name} of a member has the wrong shape")
        for letter, size in zip(letters, arrays[name].shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"the {name} of a member has the wrong shape")
    if "scale" in arrays and not (arrays["scale"] > 0).all():
        raise ValueError("the scale of a member is not positive")
    return sizes


def inside(arrays: Mapping[str, T], start: str) -> dict[str, T]:
    """Arrays whose names begin so, by the rest of the name."""
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


class Settings:
    """Settings of a dataclass; files on disk name them by words that never change, whatever fields are called."""

    WORDS: ClassVar[str]  # kind, then fields in their order

    def as_text(self) -> str:
        kind, *names = self.WORDS.split()
        return f"{kind}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

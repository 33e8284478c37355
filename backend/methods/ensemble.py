"""Heads: a fitted readout and where it reads; and ensembles, heads of members that read different things.

What a member counts depends on the cell of a text (:mod:`backend.methods.stack`). Log-odds of two candidates are a sum
over members, and split over what a member with a plane reads, but not over embeddings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.methods.discriminant import DiscriminantBank, NgramBank
from backend.methods.fine_tuning import TunedEncoder
from backend.methods.llmmap import LLMmapModel
from backend.methods.network import NetworkReadout
from backend.methods.ngrams import GRAMS, CodedGrams, CodedNgrams, GramReadout, spread
from backend.methods.probe import FamilyReadout, LinearProbe, LinearReadout
from backend.methods.readout import Attributable, Doubles, Floats, Ints, Model, Rows, inside
from backend.methods.registry import METHODS
from backend.methods.stack import Stack

KINDS: Mapping[str, Any] = {
    "probe": LinearProbe,
    "discriminant": LinearReadout,
    "experts": FamilyReadout,
    "network": NetworkReadout,
    "grams": GramReadout,
    "llmmap": LLMmapModel,
    "tuned": TunedEncoder,
}
"""Kinds of members in a file; any other kind is the id of a method."""
Material = Mapping[str, Any]
"""What was read of n texts, by the name that members read it by: of a proxy block to fingerprints (n, 2 d), of n-grams
counts (n, buckets), of an encoder features (n, D), of one that was tuned the texts."""


@dataclass(frozen=True)
class Member:
    """One fitted model and what it reads: a proxy, a kind of GRAMS, or an encoder before a colon (``reads_of``)."""

    reads: str
    layers: tuple[int, ...]  # blocks of the proxy, in the order of the coordinates; none for anything else
    model: Model

    def rows(self, material: Material) -> Any:
        """What the model reads, (n, D)."""
        if not self.layers:
            return material[self.reads]
        rows = np.concatenate([material[self.reads][layer] for layer in self.layers], axis=1)
        return rows.astype(np.result_type(rows.dtype, np.float32), copy=False)

    def plane(self, row: Rows, source: int, rival: int) -> tuple[Doubles, Doubles, float]:
        """Log-odds of two sources as :meth:`Attributable.plane`; of a model without a plane all is constant."""
        if not self.layers:
            raise ValueError("only what reads states is split over them")
        if isinstance(self.model, Attributable):
            return self.model.plane(row, source, rival)
        (found,) = self.model.log_posterior(np.asarray(row, dtype=np.float32)[None])
        nothing = np.zeros(len(row))
        return nothing, nothing, float(found[source]) - float(found[rival])

    def spread(self, text: str, source: int, rival: int) -> tuple[Doubles, float]:
        """Log-odds of two sources by n-grams: values (len(text),) of the characters, and constant."""
        if not isinstance(self.model, GramReadout):
            raise ValueError("only n-grams are spread over characters")
        return spread(self.model, text, GRAMS[self.reads], source, rival)


@dataclass(frozen=True)
class Ensemble:
    """M members, and what each counts."""

    members: tuple[Member, ...]
    shares: Doubles  # (cells, M)

    def log_posterior(self, material: Material, cells: Ints) -> Floats:
        """Log-posteriors (n, C), float32, of what was read of n texts in ``cells`` (n,)."""
        scores = [member.model.log_posterior(member.rows(material)) for member in self.members]
        return Stack(self.shares).log_posterior(scores, cells)

    def magnitude(self, material: Material, cells: Ints) -> Floats:
        """Sum of the members' log-posteriors and shares, all without their signs, (n, C)."""
        scores = [np.abs(member.model.log_posterior(member.rows(material))) for member in self.members]
        out: Floats = np.einsum("nm,mnc->nc", np.abs(self.shares[cells]).astype(np.float32), np.stack(scores))
        return out

    @property
    def n_parameters(self) -> int:
        return sum(int(member.model.n_parameters) for member in self.members) + self.shares.size

    def described(self) -> list[dict[str, Any]]:
        """Kind of every member and what it reads; JSON."""
        return [
            {"reads": member.reads, "layers": list(member.layers), "kind": kind_of_model(member.model)}
            for member in self.members
        ]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        out: dict[str, npt.NDArray[Any]] = {"shares": self.shares}
        for number, member in enumerate(self.members):
            out |= {f"member{number}.{name}": array for name, array in member.model.to_arrays().items()}
        return out

    @classmethod
    def of(cls, described: list[Mapping[str, Any]], arrays: Mapping[str, npt.NDArray[Any]]) -> Ensemble:
        """What :meth:`described` and :meth:`arrays` gave; KeyError, TypeError or ValueError where they disagree."""
        members = []
        for number, one in enumerate(described):
            layers, own = tuple(int(layer) for layer in one["layers"]), inside(arrays, f"member{number}.")
            members.append(Member(str(one["reads"]), layers, model_of(str(one["kind"]), own)))
        return cls(tuple(members), arrays["shares"].astype(np.float64))

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Every number by name, and :meth:`described` as JSON."""
        text = json.dumps(self.described()).encode()
        return self.arrays() | {"described": np.frombuffer(text, dtype=np.uint8)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Ensemble:
        return cls.of(json.loads(arrays["described"].tobytes()), arrays)


def model_of(kind: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Model:
    """The model of a kind; KeyError, TypeError or ValueError where the numbers are not those of such a model."""
    if kind not in KINDS and not METHODS[kind].fit:
        raise KeyError(kind)
    model: Model = (KINDS[kind] if kind in KINDS else METHODS[kind].readout_class).from_arrays(arrays)
    return model


def kind_of_model(model: Model) -> str:
    """Kind of a model in a file: one of :data:`KINDS`, or the method that it is the readout of."""
    for kind, known in KINDS.items():
        if isinstance(model, known):
            return kind
    return next(method.id for method in METHODS.values() if method.fit and type(model) is method.readout_class)


@dataclass(frozen=True)
class Head:
    """A fitted readout, and where it reads."""

    probe: LinearProbe | DiscriminantBank | NgramBank | CodedNgrams | Ensemble
    layers: tuple[int, ...]  # of the proxy, from 1, in the order of the coordinates; none where no state is read
    fold: int | None = None  # of the prompts that it was not trained on; None for one fitted on everything

    def log_posterior(self, rows: Any, cells: Ints) -> Floats:
        """Log-posteriors (n, C) of texts in ``cells`` (n,), which only banks and ensembles read.

        rows : (n, D) coordinates, (n, buckets) n-gram counts, a pair of them, or for an ensemble :data:`Material`.
        """
        features = rows if isinstance(self.probe, NgramBank) else (rows,)
        by_cell = isinstance(self.probe, DiscriminantBank | NgramBank | Ensemble)
        return self.probe.log_posterior(*features, *((cells,) if by_cell else ()))

    @property
    def standardiser(self) -> tuple[Floats, Floats] | None:
        """Mean and spread of the coordinates, each (D,); None where the text is read, or members have their own."""
        probe = self.probe.bank if isinstance(self.probe, NgramBank) else self.probe
        return None if isinstance(probe, CodedNgrams | Ensemble) else (probe.mean, probe.scale)

    def odds(self, cell: int, source: int, rival: int) -> tuple[Doubles, float]:
        """Direction (D,) in standardised coordinates, and constant, of the log-odds of two sources, words aside.

        ValueError if the head reads text, or is an ensemble, whose members have directions of their own.
        """
        probe = self.probe
        if isinstance(probe, CodedNgrams | Ensemble):
            raise ValueError("this head has no direction among states")
        if isinstance(probe, DiscriminantBank | NgramBank):
            return probe.odds(cell, source, rival)
        direction: Doubles = probe.weight[:, source].astype(np.float64) - probe.weight[:, rival]
        return direction, float(probe.bias[source]) - float(probe.bias[rival])


PROBE_PARTS, BANK_PARTS, WORD_PARTS = (tuple(kind.SHAPES) for kind in (LinearProbe, DiscriminantBank, CodedGrams))
HEAD_KINDS: Mapping[str, tuple[type, tuple[str, ...]]] = {
    "probe": (LinearProbe, PROBE_PARTS),
    "bank": (DiscriminantBank, BANK_PARTS),
    "worded": (
        NgramBank,
        (*(f"bank.{part}" for part in BANK_PARTS), *(f"words.{part}" for part in WORD_PARTS), "word_shares"),
    ),
    "ngrams": (CodedNgrams, ("columns", "idf", "codes", "step", "bias")),
    "ensemble": (Ensemble, ()),
}
"""Kinds of heads in a file, and the arrays of each; a dot reaches inside."""


def kind_of(head: Head) -> str:
    """What a file calls a head."""
    return next(kind for kind, (known, _) in HEAD_KINDS.items() if isinstance(head.probe, known))

"""Members that read different things, as one head: a stacked readout where traces are scored live.

A member reads blocks of a proxy, n-grams of the response, embeddings, or the response itself with an encoder that was
fine-tuned; what it counts depends on the cell of a text (:mod:`backend.methods.stack`). The log-odds of two candidates
are a sum over members. Of a member with a plane they split over what it reads, exactly where it is linear; an
embedding, tuned or not, is not split.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.methods.discriminant import LinearReadout
from backend.methods.family_experts import FamilyReadout
from backend.methods.llmmap import LLMmapModel
from backend.methods.network import NetworkReadout
from backend.methods.ngram_readouts import GramReadout, spread
from backend.methods.ngrams import GRAMS
from backend.methods.probe import LinearProbe
from backend.methods.readout import Attributable, Doubles, Floats, Ints, Model, Rows
from backend.methods.registry import METHODS
from backend.methods.stack import Stack
from backend.methods.tuned_encoder import TunedEncoder

KINDS: Mapping[str, Any] = {
    "probe": LinearProbe,
    "discriminant": LinearReadout,
    "experts": FamilyReadout,
    "network": NetworkReadout,
    "grams": GramReadout,
    "llmmap": LLMmapModel,
    "tuned": TunedEncoder,
}
"""Kinds of models in a file; any other kind is the id of a method."""
Material = Mapping[str, Any]
"""What was read of n texts, by the name under which members ask for it: of a proxy block to fingerprints (n, 2 d), of
n-grams counts (n, buckets), of an encoder features (n, D), of one that was tuned the texts."""


@dataclass(frozen=True)
class Member:
    """One fitted model and what it reads.

    reads : key of a proxy; a kind of n-grams, of :data:`backend.methods.ngrams.GRAMS`; or, with a colon, an
        encoder and what is embedded, as in :mod:`backend.methods.sentence_encoder`, or that it was tuned.
    layers : blocks of the proxy, in the order of the coordinates; none for anything else.
    """

    reads: str
    layers: tuple[int, ...]
    model: Model

    def rows(self, material: Material) -> Any:
        """What the model reads, (n, D)."""
        if not self.layers:
            return material[self.reads]
        rows = np.concatenate([material[self.reads][layer] for layer in self.layers], axis=1)
        return rows.astype(np.result_type(rows.dtype, np.float32), copy=False)

    def plane(self, row: Rows, source: int, rival: int) -> tuple[Doubles, Doubles, float]:
        """Centre and direction, each (D,), and constant, whose sum is the log-odds of two sources at a row (D,).

        Of a model without a plane all of it is constant.
        """
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
        kind = GRAMS[self.reads]
        return spread(self.model, text, kind.kind, kind.lengths, kind.bits, source, rival)


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
        """Numbers that a response is multiplied with or shifted by."""
        return sum(int(member.model.n_parameters) for member in self.members) + self.shares.size

    def described(self) -> list[dict[str, Any]]:
        """Kind of every member and what it reads; JSON."""
        return [
            {"reads": member.reads, "layers": list(member.layers), "kind": kind_of_model(member.model)}
            for member in self.members
        ]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Every number, by name."""
        out: dict[str, npt.NDArray[Any]] = {"shares": self.shares}
        for number, member in enumerate(self.members):
            out |= {f"member{number}.{name}": array for name, array in model_arrays(member.model).items()}
        return out

    @classmethod
    def of(cls, described: list[Mapping[str, Any]], arrays: Mapping[str, npt.NDArray[Any]]) -> Ensemble:
        """What :meth:`described` and :meth:`arrays` gave; KeyError, TypeError or ValueError where they disagree."""
        members = []
        for number, one in enumerate(described):
            start = f"member{number}."
            own = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
            layers = tuple(int(layer) for layer in one["layers"])
            members.append(Member(str(one["reads"]), layers, model_of(str(one["kind"]), own)))
        return cls(tuple(members), arrays["shares"].astype(np.float64))

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Every number by name, and what :meth:`described` says."""
        text = json.dumps(self.described()).encode()
        return self.arrays() | {"described": np.frombuffer(text, dtype=np.uint8)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Ensemble:
        """What :meth:`to_arrays` gave."""
        return cls.of(json.loads(arrays["described"].tobytes()), arrays)


def model_arrays(model: Model) -> dict[str, npt.NDArray[Any]]:
    """Every number of a model, by name."""
    return model.to_arrays()


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


def sources_of(model: Model) -> int:
    """Number of sources that a model knows."""
    return model.shape[1]


def width_of(model: Model) -> int:
    """Number of coordinates that a model reads, or of n-grams that it weighs."""
    return model.shape[0]

"""Members that read different things, as one head: what a stacked readout is where traces are scored live.

A member reads blocks of a proxy, n-grams of the response, embeddings, or the response itself with an encoder that was
fine-tuned; what it counts is a matter of the cell of a text (:mod:`backend.methods.stack`). The log-odds of two
candidates are therefore a sum over members. Of a linear member they split exactly over what it reads; of a network and
of experts within families so does the plane through their score and that of an average response
(:meth:`backend.methods.network.NetworkReadout.plane`); an embedding, tuned or not, is not split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from backend.methods.discriminant import LinearReadout
from backend.methods.family_experts import FamilyReadout
from backend.methods.llmmap import LLMmapHead, LLMmapModel, LLMmapSettings
from backend.methods.network import NetworkReadout
from backend.methods.ngram_kinds import GRAMS
from backend.methods.ngram_softmax import GramReadout, spread
from backend.methods.probe import LinearProbe
from backend.methods.stack import Stack
from backend.methods.tuned_encoder import TunedEncoder

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Model = LinearProbe | LinearReadout | FamilyReadout | NetworkReadout | GramReadout | LLMmapModel | TunedEncoder
KINDS: Mapping[str, type] = {
    "probe": LinearProbe,
    "discriminant": LinearReadout,
    "experts": FamilyReadout,
    "network": NetworkReadout,
    "grams": GramReadout,
    "llmmap": LLMmapModel,
    "tuned": TunedEncoder,
}
"""Kinds of models in a file."""
_SHAPES: Mapping[str, Mapping[str, str]] = {
    "probe": {"mean": "D", "scale": "D", "weight": "DC", "bias": "C"},
    "discriminant": {"centre": "D", "weight": "DC", "bias": "C"},
    "experts": {
        **{"centre": "D", "weight": "DC", "bias": "C"},
        **{"expert_weight": "DC", "expert_bias": "C", "families": "C"},
    },
    "network": {"mean": "D", "scale": "D", "hidden_weight": "HD", "hidden_bias": "H", "weight": "CH", "bias": "C"},
    "grams": {"columns": "F", "idf": "F", "weight": "FC", "bias": "C"},
    "llmmap": {"mean": "D", "scale": "D", "head.enter.weight": "WD", "head.leave.weight": "CW", "head.leave.bias": "C"},
    "tuned": {"head.weight": "CD", "head.bias": "C", "max_tokens": ""},
}
"""Shape of a model's arrays; equal letters are equal numbers."""
_WHOLE = ("columns", "families")
"""Arrays of whole numbers."""
Material = Mapping[str, Any]
"""What was read of n texts, by the name under which members ask for it: of a proxy block to fingerprints (n, 2 d), of
n-grams counts (n, buckets), of an encoder features (n, D), of one that was tuned the texts."""


@dataclass(frozen=True)
class Member:
    """One fitted model and what it reads.

    Attributes
    ----------
    reads : str
        Key of a proxy; a kind of n-grams, of :data:`backend.methods.ngram_kinds.GRAMS`; or, with a colon, an encoder
        and what is embedded, as in :mod:`backend.methods.embedded`, or that it was tuned.
    layers : tuple of int
        Blocks of the proxy, in the order of the coordinates; none for anything else.
    model : Model
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

    def plane(self, row: npt.NDArray[np.floating], source: int, rival: int) -> tuple[Doubles, Doubles, float]:
        """Centre and direction, each (D,), and constant, whose sum is the log-odds of two sources at a row (D,).

        Raises
        ------
        ValueError
            If the model has no such plane.
        """
        model = self.model
        if isinstance(model, NetworkReadout | FamilyReadout):
            return model.plane(row, source, rival)
        if not isinstance(model, LinearProbe | LinearReadout):
            raise ValueError("only what reads states is split over them")
        centre, scale = (model.mean, model.scale) if isinstance(model, LinearProbe) else (model.centre, np.float32(1))
        direction = (model.weight[:, source].astype(np.float64) - model.weight[:, rival]) / scale
        return centre.astype(np.float64), direction, float(model.bias[source]) - float(model.bias[rival])

    def spread(self, text: str, source: int, rival: int) -> tuple[Doubles, float]:
        """Log-odds of two sources by n-grams: values (len(text),) of the characters, and constant.

        Raises
        ------
        ValueError
            If the model reads no n-grams.
        """
        if not isinstance(self.model, GramReadout):
            raise ValueError("only n-grams are spread over characters")
        kind = GRAMS[self.reads]
        return spread(self.model, text, kind.kind, kind.lengths, kind.bits, source, rival)


@dataclass(frozen=True)
class Ensemble:
    """Members and what each counts.

    Attributes
    ----------
    members : tuple of Member, length M
    shares : ndarray of shape (cells, M), float64
    """

    members: tuple[Member, ...]
    shares: Doubles

    def log_posterior(self, material: Material, cells: Ints) -> Floats:
        """Log-posteriors (n, C), float32, of what was read of n texts in ``cells`` (n,)."""
        said = [member.model.log_posterior(member.rows(material)) for member in self.members]
        return Stack(self.shares).log_posterior(said, cells)

    def magnitude(self, material: Material, cells: Ints) -> Floats:
        """Sum of the members' log-posteriors and shares, all without their signs, (n, C)."""
        said = [np.abs(member.model.log_posterior(member.rows(material))) for member in self.members]
        out: Floats = np.einsum("nm,mnc->nc", np.abs(self.shares[cells]).astype(np.float32), np.stack(said))
        return out

    def described(self) -> list[dict[str, Any]]:
        """Kind of every member and what it reads; JSON."""
        return [
            {"reads": member.reads, "layers": list(member.layers), "kind": _kind(member.model)}
            for member in self.members
        ]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Every number, by name."""
        out: dict[str, npt.NDArray[Any]] = {"shares": self.shares}
        for number, member in enumerate(self.members):
            out |= {f"member{number}.{name}": array for name, array in model_arrays(member.model).items()}
        return out

    @classmethod
    def of(cls, told: list[Mapping[str, Any]], arrays: Mapping[str, npt.NDArray[Any]]) -> Ensemble:
        """What :meth:`described` and :meth:`arrays` told.

        Raises
        ------
        KeyError, TypeError or ValueError
            If they do not belong together.
        """
        members = []
        for number, one in enumerate(told):
            start = f"member{number}."
            held = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
            layers = tuple(int(layer) for layer in one["layers"])
            members.append(Member(str(one["reads"]), layers, model_of(str(one["kind"]), held)))
        return cls(tuple(members), arrays["shares"].astype(np.float64))


def model_arrays(model: Model) -> dict[str, npt.NDArray[Any]]:
    """Every number of a model, by name."""
    if isinstance(model, TunedEncoder):
        return model.arrays()
    if not isinstance(model, LLMmapModel):
        kind = next(kind for kind, made in KINDS.items() if type(model) is made)
        return {name: getattr(model, name) for name in _SHAPES[kind]}
    weights = {f"head.{name}": value.cpu().numpy() for name, value in model.head.state_dict().items()}
    return {"mean": model.mean, "scale": model.scale, **weights}


def model_of(kind: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Model:
    """The model of a kind from its numbers.

    Raises
    ------
    KeyError, TypeError or ValueError
        If the numbers are not those of such a model.
    """
    sizes: dict[str, int] = {}
    for name, letters in _SHAPES[kind].items():
        if arrays[name].ndim != len(letters):
            raise ValueError(f"the {name} of a member has the wrong shape")
        for letter, size in zip(letters, arrays[name].shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"the {name} of a member has the wrong shape")
    if "scale" in arrays and not (arrays["scale"] > 0).all():
        raise ValueError("the scale of a member is not positive")
    if kind == "tuned":
        return TunedEncoder.from_arrays(arrays)
    kept: dict[str, Any] = {
        name: array.astype(np.intp if name in _WHOLE else np.float32) for name, array in arrays.items()
    }
    if kind != "llmmap":
        made: Model = KINDS[kind](**kept)
        return made
    weights = {name.removeprefix("head."): torch.tensor(arrays[name]) for name in arrays if name.startswith("head.")}
    blocks = {name.split(".")[1] for name in weights if name.startswith("blocks.")}
    try:
        head = LLMmapHead(sizes["D"], sizes["C"], LLMmapSettings(width=sizes["W"], blocks=len(blocks)))
        head.load_state_dict(weights)
    except (RuntimeError, AssertionError) as error:
        raise ValueError("a member of kind llmmap has other parts") from error
    return LLMmapModel(head.eval(), kept["mean"], kept["scale"])


def sources_of(model: Model) -> int:
    """Number of sources that a model knows."""
    return int(model.head.leave.out_features) if isinstance(model, LLMmapModel) else len(model.bias)


def width_of(model: Model) -> int:
    """Number of coordinates that a model reads, or of n-grams that it weighs."""
    if isinstance(model, LLMmapModel):
        return int(model.head.enter.in_features)
    return int(model.hidden_weight.shape[1] if isinstance(model, NetworkReadout) else model.weight.shape[0])


def _kind(model: Model) -> str:
    return next(kind for kind, made in KINDS.items() if isinstance(model, made))

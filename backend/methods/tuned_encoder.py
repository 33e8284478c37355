"""A small encoder that was fine-tuned from end to end, as a member of a stack (paper, fine-tuned rows of the table).

Of such an encoder its weights are kept, in half precision and under their names; what reads with them is the registered
encoder that it started from, whose tokenizer and pooling it shares. Products are in single precision on every machine,
so that live attribution says what the evaluation kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from backend.methods.fine_tuning import TrainedClassifier, log_posteriors
from backend.methods.readout import Floats, Half, check_shapes
from backend.methods.sentence_encoder import SentenceEncoder, pool

TUNED = "tuned"
"""What is asked of an encoder, in place of an embedding (:func:`backend.methods.sentence_encoder.reads_of`)."""
_INNER, _WEIGHT, _BIAS, _CUT = "encoder.", "head.weight", "head.bias", "max_tokens"


@dataclass(frozen=True)
class Texts:
    """What a tuned encoder reads: n texts, and the encoder that it started from."""

    encoder: SentenceEncoder
    texts: Sequence[str]  # length n

    def __getitem__(self, rows: npt.NDArray[np.intp]) -> Texts:
        """Some of the texts."""
        return Texts(self.encoder, [self.texts[row] for row in rows])


@dataclass(frozen=True)
class TunedEncoder:
    """Weights of a fine-tuned encoder of width d, and of the linear head on its pooled states."""

    weights: Mapping[str, Half]  # of the encoder by name; a pooling layer that nobody reads is left out
    weight: Half  # (C, d)
    bias: Half  # (C,)
    max_tokens: int  # where texts are cut, special tokens counted

    @classmethod
    def of(cls, trained: TrainedClassifier) -> TunedEncoder:
        """What training left, rounded to half precision."""
        arrays: dict[str, npt.NDArray[Any]] = {
            name: value.detach().cpu().numpy().astype(np.float16)
            for name, value in trained.model.named_parameters()
            if value.requires_grad
        }
        return cls.from_arrays(arrays | {_CUT: np.array(trained.settings.max_tokens)})

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Every number, by name."""
        inner = {f"{_INNER}{name}": array for name, array in self.weights.items()}
        return {**inner, _WEIGHT: self.weight, _BIAS: self.bias, _CUT: np.array(self.max_tokens)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> TunedEncoder:
        """What :meth:`to_arrays` gave; KeyError or ValueError where there are other parts, or of other types."""
        check_shapes({_WEIGHT: "CD", _BIAS: "C", _CUT: ""}, arrays)
        weight, bias, cut = (arrays[name] for name in (_WEIGHT, _BIAS, _CUT))
        inner = {name.removeprefix(_INNER): held for name, held in arrays.items() if name.startswith(_INNER)}
        if len(arrays) != len(inner) + 3:
            raise ValueError("a member of kind tuned has other parts")
        if any(held.dtype != np.float16 for held in (weight, bias, *inner.values())) or cut.dtype.kind != "i":
            raise ValueError("a member of kind tuned has parts of the wrong type")
        return cls(inner, weight, bias, int(cut))

    @property
    def shape(self) -> tuple[int, int]:
        """Width of the encoder, and number of sources."""
        return self.weight.shape[1], self.weight.shape[0]

    @property
    def n_parameters(self) -> int:
        """Trained weights."""
        return sum(array.size for array in (*self.weights.values(), self.weight, self.bias))

    def fits(self, encoder: SentenceEncoder) -> bool:
        """Whether an encoder has weights of these names and shapes, and room for a text."""
        own = {name: tuple(held.shape) for name, held in encoder.model.named_parameters() if "pooler" not in name}
        return (
            own == {name: held.shape for name, held in self.weights.items()}
            and self.weight.shape[1] == encoder.width
            and self.max_tokens > encoder.tokenizer.num_special_tokens_to_add()
        )

    def log_posterior(self, read: Texts) -> Floats:
        """Log-posteriors (n, C), float32, of n texts by an encoder that fits."""
        encoder = read.encoder

        def single(array: Half) -> torch.Tensor:
            return torch.from_numpy(array).to(encoder.device, torch.float32)

        weights = {name: single(held) for name, held in self.weights.items()}
        weight, bias = single(self.weight), single(self.bias)

        def logits(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            asked = {"input_ids": ids, "attention_mask": mask}
            states = torch.func.functional_call(encoder.model, weights, (), asked).last_hidden_state
            return torch.nn.functional.linear(pool(states, mask, encoder.recipe), weight, bias)

        return log_posteriors(logits, encoder.tokenizer, read.texts, self.max_tokens, encoder.device)

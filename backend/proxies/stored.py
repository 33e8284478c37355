"""A reader whose fingerprints were read before: texts are tokenised, and states come from arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from backend.proxies.encoding import MAX_TOKENS, Encoded, encode
from backend.proxies.reader import Readout
from backend.traces import Trace, View

Half = npt.NDArray[np.float16]


class StoredReader:
    """Stands for a proxy while traces are scored whose fingerprints are at hand, in the same order.

    arrays : mapping of (layer, variant) to (n, m * d), float16
    tokenizer : of the proxy.
    engine : how the fingerprints were computed.
    depth : blocks of the proxy.
    """

    def __init__(self, arrays: Mapping[tuple[int, str], Half], tokenizer: Any, engine: str, depth: int) -> None:
        self.arrays, self.tokenizer, self.engine, self.depth = dict(arrays), tokenizer, engine, depth
        self.hidden_size = next(iter(arrays.values())).shape[1] // 2
        self.device, self.dtype, self.causal, self.max_tokens = torch.device("cpu"), torch.float32, True, MAX_TOKENS
        self._next = 0

    def encode(self, traces: Sequence[Trace], view: View) -> list[Encoded]:
        """Tokenise traces as the proxy wants them."""
        return encode(self.tokenizer, traces, view, max_tokens=self.max_tokens)

    def read(
        self,
        encoded: Sequence[Encoded],
        layers: Sequence[int],
        readout: Readout | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> dict[tuple[int, str], Half]:
        """The next fingerprints, as many as there are traces; see :meth:`backend.proxies.reader.Reader.read`."""
        rows = slice(self._next, self._next + len(encoded))
        self._next = (rows.stop) % len(next(iter(self.arrays.values())))  # after the last comes the first again
        names = {(layer, name) for layer in layers for name in (readout or Readout()).variants(layer)}
        return {key: np.asarray(array[rows]) for key, array in self.arrays.items() if key in names}

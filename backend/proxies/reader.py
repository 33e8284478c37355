"""Frozen proxies read traces: one forward pass gives every block and response length (paper, Stage 1).

States are projected block by block while the pass runs, so no trajectory is ever in memory, and the pass ends at the
last block that is needed. Traces that answer the same prompt share the work on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from backend.proxies.decoder import FusedDecoder, GemmaDecoder, KeyValue, LlamaDecoder
from backend.proxies.encoding import MAX_TOKENS, Encoded, Span, encode
from backend.spectral import FINGERPRINT_MODES, POSITION_POOLS, POSITIONS, position_weights, project, span_weights
from backend.traces import Trace, View

Half = npt.NDArray[np.float16]
TEMPORAL_MODES = 8
SHARE_FROM = 256  # tokens that sharing a prefix must save before it pays for batches of its own
HALF_LIMIT = 65_504.0  # the largest float16; coefficients beyond it are stored as this
_FUSED: tuple[type[FusedDecoder], ...] = (LlamaDecoder, GemmaDecoder)
Visit = Callable[[int, torch.Tensor], None]  # receives a block's number and its states, (B, T, d)
Arrays = dict[tuple[int, str], Half]  # by layer and variant
Prefix = list[KeyValue] | None
Texts = Sequence[Encoded]
Progress = Callable[[int, int], None] | None  # gets traces and tokens of every batch


@dataclass(frozen=True)
class Readout:
    """What to keep of a trajectory.

    temporal : blocks with eight DCT modes, the maximum and the final state (temporal controls of the paper).
    positions : blocks with 16 states and means over more (its aggregation alternatives): 20 vectors a record.
    """

    limits: tuple[int | None, ...] = (None,)  # response lengths in proxy tokens; None is the whole response
    temporal: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()

    def variants(self, layer: int) -> dict[str, int]:
        """Stored variants of a block and how many d-sized vectors each holds."""
        out = {variant_name(limit): FINGERPRINT_MODES for limit in self.limits}
        if layer in self.temporal:
            out["temporal"] = TEMPORAL_MODES + 2
        if layer in self.positions:
            out["positions"] = POSITIONS + len(POSITION_POOLS)
        return out


def variant_name(limit: int | None) -> str:
    """Name of a response length: 'full', or 't64' for the first 64 proxy tokens."""
    return "full" if limit is None else f"t{limit}"


def best_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the processor multiplies it natively, else float32."""
    if device.type == "cuda":
        return torch.bfloat16
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if native else torch.float32


class Reader:
    """A proxy on a device, ready to read.

    model : base model (without language-model head); it must not be used for anything else afterwards.
    causal : whether a state depends on earlier tokens only; a bidirectional encoder reads each length in its own pass.
    batch_tokens : padded tokens a batch; small on a CPU, where activations should stay in the cache.
    precise : leading blocks whose products stay in float32. max_tokens : where texts are cut, at most 1,024.
    engine : 'fused', 'fused-compiled' or 'transformers', with the precise blocks behind it ('fused-compiled-precise7').
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, device: str | torch.device = "cpu", dtype: torch.dtype | None = None,
        causal: bool = True, fused: bool = True, compile_blocks: bool = True, batch_tokens: int | None = None,
        precise: int = 0,
    ) -> None:  # fmt: skip
        self.device = torch.device(device)
        self.dtype = dtype or best_dtype(self.device)
        self.tokenizer = tokenizer
        self.causal = causal
        text_config = model.config.get_text_config()
        self.depth = int(text_config.num_hidden_layers)
        self.hidden_size = int(text_config.hidden_size)
        fast = next((kind for kind in _FUSED if kind.supports(model.config)), None) if fused and causal else None
        on_cpu = fast.batch_tokens if fast else FusedDecoder.batch_tokens
        self.batch_tokens = batch_tokens or (65_536 if self.device.type == "cuda" else on_cpu)
        self.max_tokens: int = min(MAX_TOKENS, int(getattr(text_config, "max_position_embeddings", None) or MAX_TOKENS))
        if not causal:
            self.max_tokens = min(self.max_tokens, tokenizer.model_max_length)
        self._pad = tokenizer.pad_token_id or 0
        self._engine: FusedDecoder | _Hooked
        if fast:
            self._engine = fast(model, self.dtype, self.device, compile_blocks, precise)
            self.engine = "fused-compiled" if self._engine.compiled else "fused"
        else:
            self._engine = _Hooked(model, self.device, self.dtype, self.depth, causal, precise)
            self.engine = "transformers"
        if precise:
            self.engine += f"-precise{precise}"

    def encode(
        self, traces: Sequence[Trace], view: View, *, max_tokens: int | None = None, span: Span = "offsets"
    ) -> list[Encoded]:
        """Tokenise traces as this proxy needs them; see :func:`backend.proxies.encoding.encode`."""
        limit = min(max_tokens or self.max_tokens, self.max_tokens)
        return encode(self.tokenizer, traces, view, max_tokens=limit, span=span, special_tokens=not self.causal)

    @torch.inference_mode()
    def read(
        self, encoded: Texts, layers: Sequence[int], readout: Readout | None = None, progress: Progress = None
    ) -> Arrays:
        """Fingerprint traces at several blocks (1 .. depth) and response lengths, (n, m * d) by layer and variant.

        m is 2 (DC and first AC), 10 for 'temporal', 20 for 'positions' (:func:`backend.spectral.position_weights`).
        Values beyond float16 are stored as its largest number. ``progress`` gets no traces where more passes follow.
        """
        needed, readout = self._check_layers(layers), readout or Readout()
        n, d = len(encoded), self.hidden_size
        sizes = [(layer, name, m) for layer in needed for name, m in readout.variants(layer).items()]
        out = {(layer, name): np.empty((n, m * d), dtype=np.float16) for layer, name, m in sizes}
        if self.causal:
            self._read_pass(encoded, needed, readout, out, progress)
            return out
        limits = readout.limits
        if None not in limits and (readout.temporal or readout.positions):
            limits = (None, *limits)  # these describe the whole response, whatever lengths are read
        for limit in limits:
            name, one = variant_name(limit), replace(readout, limits=(None,)) if limit is None else Readout()
            empty = np.empty((n, FINGERPRINT_MODES * d), np.float16)
            part = {(ly, "full"): out.get((ly, name), empty) for ly in needed}
            if limit is None:
                part |= {key: array for key, array in out.items() if key[1] in ("temporal", "positions")}
            step = progress if limit == readout.limits[-1] else progress and (lambda _, tokens: progress(0, tokens))
            self._read_pass([e.cut(limit) for e in encoded], needed, one, part, step)
        return out

    @torch.inference_mode()
    def states(self, encoded: Encoded, layers: Sequence[int]) -> dict[int, npt.NDArray[np.float32]]:
        """States (T, d) of the response tokens of one trace by layer, which a fingerprint is a weighted sum of."""
        needed = self._check_layers(layers)
        found: dict[int, npt.NDArray[np.float32]] = {}

        def keep(layer: int, states: torch.Tensor) -> None:
            if layer in needed:
                found[layer] = states[0, encoded.start : encoded.stop].float().cpu().numpy()

        self._walk(torch.tensor([encoded.ids]), torch.tensor([len(encoded.ids)]), needed[-1], keep)
        return found

    def _check_layers(self, layers: Sequence[int]) -> list[int]:
        needed = sorted(set(layers))
        if not needed or needed[0] < 1 or needed[-1] > self.depth:
            raise ValueError(f"layers must lie in 1..{self.depth}, got {list(layers)}")
        return needed

    def _walk(self, ids: torch.Tensor, lengths: torch.Tensor, last: int, visit: Visit, prefix: Prefix = None) -> None:
        """Run the pass and show every block's states; see :meth:`_Hooked.walk`."""
        if isinstance(self._engine, FusedDecoder):
            for layer, states in self._engine.walk(ids.to(self.device), last, prefix):
                visit(layer, states)
        else:
            self._engine.walk(ids.to(self.device), lengths.to(self.device), last, visit)

    def tokens_run(self, encoded: Texts) -> int:
        """Tokens that one pass over these traces computes: shared prefixes once, padding not counted."""
        lengths = np.array([len(e.ids) for e in encoded])
        return sum(shared + int((lengths[members] - shared).sum()) for shared, members in self._pools(encoded))

    def _read_pass(self, encoded: Texts, layers: list[int], readout: Readout, out: Arrays, progress: Progress) -> None:
        for shared, members in self._pools(encoded):
            prefix = self._prefix(encoded[members[0]].ids[:shared], layers[-1]) if shared else None
            if progress and shared:
                progress(0, shared)
            for rows in _batches(encoded, members, shared, self.batch_tokens):
                self._read_batch({i: encoded[i] for i in rows}, shared, prefix, layers, readout, out)
                if progress:
                    progress(len(rows), sum(len(encoded[i].ids) - shared for i in rows))

    def _pools(self, encoded: Texts) -> Iterator[tuple[int, list[int]]]:
        """Traces that are batched together, with the number of leading tokens that they share as a prefix."""
        alone: list[int] = []
        groups: dict[int, list[int]] = {}
        for i, e in enumerate(encoded):
            groups.setdefault(e.prompt, []).append(i)
        for members in groups.values():
            shared = _common_prefix([encoded[i] for i in members]) if isinstance(self._engine, FusedDecoder) else 0
            if (len(members) - 1) * shared >= SHARE_FROM:
                yield shared, members
            else:
                alone += members
        if alone:
            yield 0, alone

    def _prefix(self, ids: list[int], last: int) -> list[KeyValue]:
        assert isinstance(self._engine, FusedDecoder)
        keep: list[KeyValue] = []
        for _ in self._engine.walk(torch.tensor([ids], device=self.device), last, keep=keep):
            pass
        return keep

    def _read_batch(
        self, by_row: dict[int, Encoded], shared: int, prefix: Prefix, layers: list[int], readout: Readout, out: Arrays
    ) -> None:
        rows, batch = list(by_row), list(by_row.values())
        width = max(len(e.ids) for e in batch) - shared
        ids = torch.full((len(batch), width), self._pad)
        for i, e in enumerate(batch):
            ids[i, : len(e.ids) - shared] = torch.tensor(e.ids[shared:])
        lengths = torch.tensor([len(e.ids) - shared for e in batch])
        starts = [e.start - shared for e in batch]
        stops = [e.stop - shared for e in batch]
        weights = span_weights(starts, stops, width, readout.limits).to(self.device)
        eight = span_weights(starts, stops, width, (None,), TEMPORAL_MODES if readout.temporal else 1).to(self.device)
        sampled = position_weights(starts, stops, width).to(self.device) if readout.positions else None
        needed, names = set(layers), [variant_name(limit) for limit in readout.limits]

        def keep(layer: int, states: torch.Tensor) -> None:
            if layer not in needed:
                return
            spectra = _half(project(states, weights)).reshape(len(batch), len(names), -1)
            for v, name in enumerate(names):
                out[layer, name][rows] = spectra[:, v]
            if layer in readout.temporal:
                out[layer, "temporal"][rows] = _temporal(states, eight, starts, stops)
            if sampled is not None and layer in readout.positions:
                out[layer, "positions"][rows] = _half(project(states, sampled).flatten(1))

        self._walk(ids, lengths, layers[-1], keep, prefix)


class _Hooked:
    """Any transformers model: hooks take the states as the blocks produce them and end the pass early.

    Only matrix products leave float32, as in :class:`FusedDecoder`: a residual stream in bfloat16 loses the small
    front-to-back changes that the AC mode is about.
    """

    def __init__(
        self, model: Any, device: torch.device, dtype: torch.dtype, depth: int, causal: bool, precise: int
    ) -> None:
        self.device, self.dtype, self.depth, self.causal = device, dtype, depth, causal
        self.model = model.eval().to(device)
        self.blocks = _find_blocks(model, depth)
        products = {m.weight for m in model.modules() if isinstance(m, torch.nn.Linear)}
        for block in self.blocks[:precise]:
            products -= set(block.parameters())
            _keep_precise(block, device)
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
            parameter.data = parameter.data.to(dtype if parameter in products else torch.float32)

    def walk(self, ids: torch.Tensor, lengths: torch.Tensor, last: int, visit: Visit) -> None:
        """Run the pass and show every block's states up to ``last``; those of the model's last block after its norm.

        ids : (B, T), int64, right-padded tokens; ``lengths`` (B,) counts them.
        """

        def hook(number: int) -> Callable[[Any, Any, Any], None]:
            def take(_module: Any, _inputs: Any, output: Any) -> None:
                visit(number, output[0] if isinstance(output, tuple) else output)
                if number == last:
                    raise _Done

            return take

        numbers = range(1, min(last, self.depth - 1) + 1)
        handles = [self.blocks[number - 1].register_forward_hook(hook(number)) for number in numbers]
        arguments: dict[str, Any] = {"input_ids": ids}
        if self.causal:
            # Right padding is out of sight of a causal state, and without a mask the fast attention kernels apply.
            arguments["use_cache"] = False
        else:
            arguments["attention_mask"] = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
        mixed = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        try:
            with mixed, contextlib.suppress(_Done):
                visit(self.depth, self.model(**arguments).last_hidden_state)
        finally:
            for handle in handles:
                handle.remove()


def _keep_precise(module: Any, device: torch.device) -> None:
    """Let a module compute in float32 inside a pass of mixed types."""
    inner = module.forward

    def forward(*values: Any, **named: Any) -> Any:
        with torch.autocast(device.type, enabled=False):
            return inner(*values, **named)

    module.forward = forward


class _Done(Exception):  # noqa: N818 - no error
    """Raised inside a hook to leave the forward pass behind the last needed block."""


def _find_blocks(model: Any, depth: int) -> Any:
    """The list of Transformer blocks of a base model, also inside a multimodal wrapper."""
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == depth]
    if not lists:
        raise ValueError(f"no list of {depth} Transformer blocks found in {type(model).__name__}")
    return lists[0]


def _common_prefix(members: Sequence[Encoded]) -> int:
    """Leading tokens that all members share and that lie before every response span."""
    first, stop = members[0].ids, min(e.start for e in members)
    return next((i for i in range(stop) if any(e.ids[i] != first[i] for e in members)), stop)


def _batches(encoded: Texts, members: list[int], shared: int, budget: int) -> Iterator[list[int]]:
    """Cut members, longest first, into batches of at most ``budget`` padded tokens."""
    rest = sorted(members, key=lambda i: (-len(encoded[i].ids), i))
    while rest:
        size = max(1, budget // (len(encoded[rest[0]].ids) - shared))
        yield rest[:size]
        rest = rest[size:]


def _temporal(states: torch.Tensor, weights: torch.Tensor, starts: list[int], stops: list[int]) -> Half:
    """Eight modes, coordinate-wise maximum and final state of every response, (B, 10 * d)."""
    column = torch.arange(states.shape[1], device=states.device)
    low, high = (torch.tensor(ends, device=states.device)[:, None] for ends in (starts, stops))
    inside = (column >= low) & (column < high)
    peak = states.float().masked_fill(~inside[..., None], -torch.inf).amax(1, keepdim=True)
    final = states.float()[torch.arange(len(stops)), torch.tensor(stops) - 1][:, None]
    return _half(torch.cat([project(states, weights), peak, final], 1).flatten(1))


def _half(values: torch.Tensor) -> Half:
    """To float16 in main memory, without infinities."""
    result: Half = values.clamp(-HALF_LIMIT, HALF_LIMIT).to(torch.float16).cpu().numpy()
    return result


class StoredReader:
    """Stands for a proxy while traces are scored whose fingerprints are at hand, in the same order."""

    def __init__(self, arrays: Mapping[tuple[int, str], Half], tokenizer: Any, engine: str, depth: int) -> None:
        self.arrays, self.tokenizer, self.engine, self.depth = dict(arrays), tokenizer, engine, depth
        self.hidden_size = next(iter(arrays.values())).shape[1] // 2
        self.device, self.dtype, self.causal, self.max_tokens = torch.device("cpu"), torch.float32, True, MAX_TOKENS
        self._next = 0

    def encode(self, traces: Sequence[Trace], view: View) -> list[Encoded]:
        return encode(self.tokenizer, traces, view, max_tokens=self.max_tokens)

    def read(
        self, encoded: Texts, layers: Sequence[int], readout: Readout | None = None, progress: Progress = None
    ) -> Arrays:
        """The next fingerprints, as many as there are traces; see :meth:`backend.proxies.reader.Reader.read`."""
        rows = slice(self._next, self._next + len(encoded))
        self._next = (rows.stop) % len(next(iter(self.arrays.values())))  # after the last comes the first again
        names = {(layer, name) for layer in layers for name in (readout or Readout()).variants(layer)}
        return {key: np.asarray(array[rows]) for key, array in self.arrays.items() if key in names}

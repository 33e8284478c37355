"""Fused forward passes of decoders, the fast path of the embedded proxies: Llama, Qwen2 and Gemma 3.

The arithmetic of ``transformers``, but query, key and value (and gate and up) are one product, the residual stream is
float32 while products run in bfloat16, a shared prefix is computed once, and ``torch.compile`` fuses what lies between
products. Right padding needs no mask, because a causal state never sees what follows it.
"""

from __future__ import annotations

import abc
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

KeyValue = tuple[Tensor, Tensor]  # keys and values of a prefix, each of shape (B, P, n_kv_heads, head_dim)
Advance = Callable[[Tensor, KeyValue | None], tuple[Tensor, KeyValue]]
"""One block: (B, T, d) float32 states and the prefix's keys and values to states and the new keys and values."""


class FusedDecoder(abc.ABC):
    """Blocks of a decoder, ready to be walked one at a time.

    model : one that :meth:`supports` accepts; its weights are copied.
    dtype : of matrix products; the residual stream is always float32.
    precise : leading blocks whose products stay in float32.
    """

    batch_tokens: ClassVar[int] = 2_560  # padded tokens of a batch whose activations stay in a CPU's cache
    final_norm: Tensor

    def __init__(
        self, model: Any, dtype: torch.dtype, device: torch.device, compile_blocks: bool = True, precise: int = 0
    ) -> None:
        config = model.config
        self.device = device
        self.depth = int(config.num_hidden_layers)
        self.heads = int(config.num_attention_heads)
        self.kv_heads = int(config.num_key_value_heads)
        self.head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // self.heads)
        self.eps = float(config.rms_norm_eps)
        self.compiled = compile_blocks and can_compile(device)
        self.embedding = self.whole(model.embed_tokens)
        self.dtypes = [torch.float32] * precise + [dtype] * (self.depth - precise)
        self.prepare(model)

    @abc.abstractmethod
    def prepare(self, model: Any) -> None:
        """Copy the weights of the blocks and of the final norm."""

    @staticmethod
    @abc.abstractmethod
    def supports(config: Any) -> bool:
        """Whether a model configuration is one that this pass computes exactly."""

    @abc.abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """States in front of the first block, (B, T, d) float32."""

    @abc.abstractmethod
    def advances(self, before: int, width: int) -> Iterator[Advance]:
        """The blocks, ready for ``width`` tokens behind ``before`` others."""

    def walk(
        self, ids: Tensor, last: int, prefix: list[KeyValue] | None = None, *, keep: list[KeyValue] | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield number and states (B, T, d), float32, of every block up to ``last`` (the deepest normed).

        ids : (B, T), int64, right-padded tokens that follow the prefix.
        prefix : keys and values a block, each (1, P, n_kv_heads, head_dim); ``keep`` receives those of these tokens.
        """
        before = prefix[0][0].shape[1] if prefix else 0
        states = self.embed(ids)
        for number, advance in enumerate(self.advances(before, ids.shape[1]), start=1):
            states, new = advance(states, prefix[number - 1] if prefix else None)
            if keep is not None:
                keep.append(new)
            yield number, (rms_norm(states, self.final_norm, self.eps) if number == self.depth else states)
            if number == last:
                return

    def rotation(self, theta: float, before: int, width: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the rotary embedding, each of shape (T, 1, head_dim)."""
        exponent = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=self.device) / self.head_dim
        position = torch.arange(before, before + width, dtype=torch.float32, device=self.device)
        angle = torch.outer(position, 1.0 / theta**exponent).repeat(1, 2)
        return angle.cos()[:, None], angle.sin()[:, None]

    def whole(self, module: Any) -> Tensor:
        return module.weight.detach().to(self.device, torch.float32)  # type: ignore[no-any-return]

    def fused(self, piece: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(piece, dynamic=True) if self.compiled else piece

    def joined(self, dtype: torch.dtype, *modules: Any) -> Tensor:
        """The weights of modules that read the same input, as one matrix."""
        return torch.cat([m.weight.detach() for m in modules]).to(self.device, dtype).contiguous()


def can_compile(device: torch.device) -> bool:
    """Whether ``torch.compile`` can build kernels here (``ATLAS_COMPILE=0`` says no)."""
    if os.environ.get("ATLAS_COMPILE") == "0":
        return False
    return device.type == "cuda" or shutil.which(os.environ.get("CXX", "g++")) is not None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divide by the root mean square of the last axis, times a weight."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary embedding to (B, T, heads, head_dim)."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class _LlamaBlock(NamedTuple):
    norm1: Tensor
    qkv: Tensor
    out: Tensor
    norm2: Tensor
    gate_up: Tensor
    down: Tensor
    bias: Tensor | None  # of query, key and value (Qwen2)


class LlamaDecoder(FusedDecoder):
    """Llama-shaped blocks, and Qwen2's, which add a bias to query, key and value; see :class:`FusedDecoder`."""

    batch_tokens: ClassVar[int] = 1_280  # a quarter faster than 2,560 on cores with 1 MiB of cache each

    def prepare(self, model: Any) -> None:
        self.final_norm = self.whole(model.norm)
        self.theta = float(model.config.rope_parameters["rope_theta"])
        self.blocks = [self._pack(layer, kind) for layer, kind in zip(model.layers, self.dtypes, strict=True)]
        step = functools.partial(_step, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim, eps=self.eps)
        self.step = self.fused(step)

    @staticmethod
    def supports(config: Any) -> bool:
        rope = getattr(config, "rope_parameters", None) or {}
        if config.model_type not in ("llama", "qwen2") or config.hidden_act != "silu":
            return False
        if rope.get("rope_type", "default") != "default":
            return False
        if config.model_type == "qwen2":
            return set(config.layer_types) == {"full_attention"}
        return not config.attention_bias and not config.mlp_bias

    def _pack(self, layer: Any, dtype: torch.dtype) -> _LlamaBlock:
        attention, mlp = layer.self_attn, layer.mlp
        inward = (attention.q_proj, attention.k_proj, attention.v_proj)
        biases = [m.bias.detach() for m in inward if m.bias is not None]
        return _LlamaBlock(
            norm1=self.whole(layer.input_layernorm),
            qkv=self.joined(dtype, *inward),
            bias=torch.cat(biases).to(self.device, torch.float32) if biases else None,
            out=self.joined(dtype, attention.o_proj),
            norm2=self.whole(layer.post_attention_layernorm),
            gate_up=self.joined(dtype, mlp.gate_proj, mlp.up_proj),
            down=self.joined(dtype, mlp.down_proj),
        )

    def embed(self, ids: Tensor) -> Tensor:
        return self.embedding[ids]

    def advances(self, before: int, width: int) -> Iterator[Advance]:
        cos, sin = self.rotation(self.theta, before, width)
        mask = torch.full((width, before + width), -torch.inf, device=self.device).triu(before + 1)

        def advance(block: _LlamaBlock, states: Tensor, past: KeyValue | None) -> tuple[Tensor, KeyValue]:
            empty = torch.empty((1, 0, self.kv_heads, self.head_dim), dtype=block.qkv.dtype, device=self.device)
            past_k, past_v = past or (empty, empty)
            states, k, v = self.step(states, past_k, past_v, cos, sin, mask, *block)
            return states, (k, v)

        for block in self.blocks:
            yield functools.partial(advance, block)


def _step(
    x: Tensor, past_k: Tensor, past_v: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, norm1: Tensor, w_qkv: Tensor,
    w_out: Tensor, norm2: Tensor, w_gate_up: Tensor, w_down: Tensor, bias: Tensor | None,
    *, heads: int, kv_heads: int, head_dim: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """One block (the fields of :class:`_LlamaBlock`): (B, T, d) float32 in and out, with the new keys and values."""
    batch, width, _ = x.shape
    share, dtype = heads // kv_heads, w_qkv.dtype
    qkv = F.linear(rms_norm(x, norm1, eps).to(dtype), w_qkv)
    if bias is not None:  # in float32: some of Qwen2's biases are hundreds of times what is added to them
        qkv = qkv + bias
    qkv = qkv.view(batch, width, heads + 2 * kv_heads, head_dim)
    qk = turned(qkv[:, :, : heads + kv_heads].float(), cos, sin).to(dtype)
    k, v = qk[:, :, heads:], qkv[:, :, heads + kv_heads :].to(dtype)
    keys = torch.cat([past_k.expand(batch, -1, -1, -1), k], 1)
    values = torch.cat([past_v.expand(batch, -1, -1, -1), v], 1)
    total = keys.shape[1]
    # Query heads of one group see the same keys: fold them into the rows of a single product.
    q = qk[:, :, :heads].reshape(batch, width, kv_heads, share, head_dim).permute(0, 2, 3, 1, 4)
    q = q.reshape(batch * kv_heads, share * width, head_dim)
    scores = torch.bmm(q, keys.permute(0, 2, 3, 1).reshape(batch * kv_heads, head_dim, total))
    scores = scores.view(batch * kv_heads, share, width, total).float() * head_dim**-0.5 + mask
    weights = torch.softmax(scores, -1).to(dtype).view(batch * kv_heads, share * width, total)
    mixed = torch.bmm(weights, values.transpose(1, 2).reshape(batch * kv_heads, total, head_dim))
    mixed = mixed.view(batch, kv_heads, share, width, head_dim).permute(0, 3, 1, 2, 4)
    x = x + F.linear(mixed.reshape(batch, width, heads * head_dim), w_out)
    gate, up = F.linear(rms_norm(x, norm2, eps).to(dtype), w_gate_up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, w_down), k, v


_KINDS = ("sliding_attention", "full_attention")


class _Product:
    """``x @ weight.T`` with a weight that never changes."""

    def __init__(self, weight: Tensor) -> None:
        self.dtype = weight.dtype
        self.packed = weight.device.type == "cpu" and _packs(weight.dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight) if self.packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, None, "none", [], "")  # type: ignore[no-any-return]
        return F.linear(x, self.weight)


def _packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN packs weights of this type on this processor."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


@dataclass(frozen=True)
class _GemmaBlock:
    kind: str
    norm1: Tensor
    qkv: _Product
    norm_q: Tensor
    norm_k: Tensor
    out: _Product
    norm2: Tensor
    norm3: Tensor
    gate_up: _Product
    down: _Product
    norm4: Tensor


class GemmaDecoder(FusedDecoder):
    """Blocks of a Gemma 3 text model: queries and keys normed, four norms a block, sliding windows.

    Products use weights that oneDNN has packed once: some processors run its float32 twice as fast as PyTorch's.
    """

    batch_tokens: ClassVar[int] = 1_024

    def prepare(self, model: Any) -> None:
        config = model.config
        self.scale = model.embed_tokens.embed_scale.to(self.device, torch.float32)
        self.final_norm = self._norm(model.norm)
        self.window = int(config.sliding_window or 0)
        self.theta = {kind: float(config.rope_parameters[kind]["rope_theta"]) for kind in set(config.layer_types)}
        self.score_scale = float(config.query_pre_attn_scalar) ** -0.5
        self.blocks = [
            self._pack(layer, kind, number)
            for layer, kind, number in zip(model.layers, config.layer_types, self.dtypes, strict=True)
        ]
        pieces: tuple[Callable[..., Any], ...] = (_enter, _heads, _weigh, _gate, _join)
        self._enter, self._heads, self._weigh, self._gate, self._join = map(self.fused, pieces)

    @staticmethod
    def supports(config: Any) -> bool:
        if config.model_type != "gemma3_text":
            return False
        kinds, ropes = set(config.layer_types), config.rope_parameters
        return (
            config.hidden_activation == "gelu_pytorch_tanh"
            and not config.attention_bias
            and config.attn_logit_softcapping is None
            and not config.use_bidirectional_attention
            and kinds <= set(_KINDS)
            and ("sliding_attention" not in kinds or bool(config.sliding_window))
            and all(ropes[kind]["rope_type"] == "default" for kind in kinds)
        )

    def _norm(self, module: Any) -> Tensor:
        return 1.0 + self.whole(module)

    def _pack(self, layer: Any, kind: str, dtype: torch.dtype) -> _GemmaBlock:
        attention, mlp = layer.self_attn, layer.mlp
        return _GemmaBlock(
            kind=kind,
            norm1=self._norm(layer.input_layernorm),
            qkv=_Product(self.joined(dtype, attention.q_proj, attention.k_proj, attention.v_proj)),
            norm_q=self._norm(attention.q_norm) * self.score_scale,
            norm_k=self._norm(attention.k_norm),
            out=_Product(self.joined(dtype, attention.o_proj)),
            norm2=self._norm(layer.post_attention_layernorm),
            norm3=self._norm(layer.pre_feedforward_layernorm),
            gate_up=_Product(self.joined(dtype, mlp.gate_proj, mlp.up_proj)),
            down=_Product(self.joined(dtype, mlp.down_proj)),
            norm4=self._norm(layer.post_feedforward_layernorm),
        )

    def embed(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.embedding[ids] * self.scale
        return rows

    def advances(self, before: int, width: int) -> Iterator[Advance]:
        rotations = {kind: self.rotation(theta, before, width) for kind, theta in self.theta.items()}
        masks = {kind: self._mask(kind, before, width) for kind in self.theta}
        for block in self.blocks:
            yield functools.partial(self._advance, block, *rotations[block.kind], masks[block.kind])

    def _mask(self, kind: str, before: int, width: int) -> Tensor:
        """What is added to the scores, (T, before + T)."""
        position = torch.arange(before + width, device=self.device)
        distance = position[before:, None] - position
        hidden = distance < 0
        if kind == "sliding_attention":
            hidden |= distance >= self.window
        return torch.zeros(hidden.shape, device=self.device).masked_fill(hidden, -torch.inf)

    def _advance(
        self, block: _GemmaBlock, cos: Tensor, sin: Tensor, mask: Tensor, states: Tensor, past: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        batch, width, _ = states.shape
        groups, share, dtype = self.kv_heads, self.heads // self.kv_heads, block.qkv.dtype
        qkv = block.qkv(self._enter(states, block.norm1, self.eps, dtype)).view(batch, width, -1, self.head_dim)
        q, k, v = self._heads(qkv, block.norm_q, block.norm_k, cos, sin, groups, self.eps)
        keys, values = (k, v) if past is None else (_behind(past[0], k), _behind(past[1], v))
        total = keys.shape[1]
        # Query heads of one group see the same keys: fold them into the rows of a single product.
        q = q.reshape(batch * groups, share * width, self.head_dim)
        scores = torch.bmm(q, keys.transpose(1, 2).reshape(batch * groups, total, self.head_dim).transpose(1, 2))
        weights = self._weigh(scores.view(-1, width, total), mask)
        weights = weights.view(batch * groups, share * width, total)
        mixed = torch.bmm(weights, values.transpose(1, 2).reshape(batch * groups, total, self.head_dim))
        mixed = mixed.view(batch, groups * share, width, self.head_dim).transpose(1, 2).reshape(batch, width, -1)
        states = self._join(states, block.out(mixed), block.norm2, self.eps)
        gated = self._gate(block.gate_up(self._enter(states, block.norm3, self.eps, dtype)))
        return self._join(states, block.down(gated), block.norm4, self.eps), (k, v)


def _behind(past: Tensor, new: Tensor) -> Tensor:
    return torch.cat([past.expand(new.shape[0], -1, -1, -1), new], 1)


def _enter(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    return rms_norm(x, weight, eps).to(dtype)


def _heads(
    qkv: Tensor, norm_q: Tensor, norm_k: Tensor, cos: Tensor, sin: Tensor, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (B, heads, T, head_dim), scaled; keys and values (B, T, kv_heads, head_dim)."""
    heads = qkv.shape[2] - 2 * groups
    q = turned(rms_norm(qkv[:, :, :heads].float(), norm_q, eps), cos, sin).to(qkv.dtype)
    k = turned(rms_norm(qkv[:, :, heads : heads + groups].float(), norm_k, eps), cos, sin).to(qkv.dtype)
    return q.transpose(1, 2).contiguous(), k.contiguous(), qkv[:, :, heads + groups :].contiguous()


def _weigh(scores: Tensor, mask: Tensor) -> Tensor:
    """Attention weights out of (n, T, total) scores."""
    return torch.softmax(scores.float() + mask, -1).to(scores.dtype)


def _gate(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.float().chunk(2, -1)
    return (F.gelu(gate, approximate="tanh") * up).to(gate_up.dtype)


def _join(x: Tensor, found: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Add the normed output of a half block to the residual stream."""
    return x + rms_norm(found.float(), weight, eps)

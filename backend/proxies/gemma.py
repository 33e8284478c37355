"""The fused forward pass for Gemma 3: queries and keys normed, four norms a block, sliding windows.

Products use weights that oneDNN has packed once: its float32 kernels run at twice the rate of PyTorch's on some
processors, so a block in float32 costs two in bfloat16 and not four.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812

from backend.proxies.decoder import Advance, FusedDecoder, KeyValue, rms_norm, turned

_KINDS = ("sliding_attention", "full_attention")


class _Product:
    """``x @ weight.T`` with a weight that never changes."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.dtype = weight.dtype
        self.packed = weight.device.type == "cpu" and _packs(weight.dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight) if self.packed else weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, None, "none", [], "")  # type: ignore[no-any-return]
        return F.linear(x, self.weight)


def _packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN packs weights of this type on this processor."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


@dataclass(frozen=True)
class _Block:
    kind: str
    norm1: torch.Tensor
    qkv: _Product
    norm_q: torch.Tensor
    norm_k: torch.Tensor
    out: _Product
    norm2: torch.Tensor
    norm3: torch.Tensor
    gate_up: _Product
    down: _Product
    norm4: torch.Tensor


class GemmaDecoder(FusedDecoder):
    """Blocks of a Gemma 3 text model; see :class:`FusedDecoder`."""

    batch_tokens: ClassVar[int] = 1_024

    def __init__(
        self, model: Any, dtype: torch.dtype, device: torch.device, compile_blocks: bool = True, precise: int = 0
    ) -> None:
        super().__init__(model, dtype, device, compile_blocks, precise)
        config = model.config
        self.scale = model.embed_tokens.embed_scale.to(device, torch.float32)
        self.final_norm = self._norm(model.norm)
        self.window = int(config.sliding_window or 0)
        self.theta = {kind: float(config.rope_parameters[kind]["rope_theta"]) for kind in set(config.layer_types)}
        self.score_scale = float(config.query_pre_attn_scalar) ** -0.5
        self.blocks = [
            self._pack(layer, kind, number)
            for layer, kind, number in zip(model.layers, config.layer_types, self.dtypes, strict=True)
        ]
        self._enter = self._fused(_enter)
        self._heads = self._fused(_heads)
        self._weigh = self._fused(_weigh)
        self._gate = self._fused(_gate)
        self._join = self._fused(_join)

    def _fused(self, piece: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(piece, dynamic=True) if self.compiled else piece

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

    def _norm(self, module: Any) -> torch.Tensor:
        return 1.0 + self.whole(module)

    def _pack(self, layer: Any, kind: str, dtype: torch.dtype) -> _Block:
        attention, mlp = layer.self_attn, layer.mlp
        return _Block(
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

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.embedding[ids] * self.scale
        return rows

    def finish(self, states: torch.Tensor) -> torch.Tensor:
        return rms_norm(states, self.final_norm, self.eps)

    def advances(self, before: int, width: int) -> Iterator[Advance]:
        rotations = {kind: self.rotation(theta, before, width) for kind, theta in self.theta.items()}
        masks = {kind: self._mask(kind, before, width) for kind in self.theta}
        for block in self.blocks:
            yield functools.partial(self._advance, block, *rotations[block.kind], masks[block.kind])

    def _mask(self, kind: str, before: int, width: int) -> torch.Tensor:
        """What is added to the scores, (T, before + T)."""
        position = torch.arange(before + width, device=self.device)
        distance = position[before:, None] - position
        hidden = distance < 0
        if kind == "sliding_attention":
            hidden |= distance >= self.window
        return torch.zeros(hidden.shape, device=self.device).masked_fill(hidden, -torch.inf)

    def _advance(
        self,
        block: _Block,
        cos: torch.Tensor,
        sin: torch.Tensor,
        mask: torch.Tensor,
        states: torch.Tensor,
        past: KeyValue | None,
    ) -> tuple[torch.Tensor, KeyValue]:
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


def _behind(past: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.cat([past.expand(new.shape[0], -1, -1, -1), new], 1)


def _enter(x: torch.Tensor, weight: torch.Tensor, eps: float, dtype: torch.dtype) -> torch.Tensor:
    return rms_norm(x, weight, eps).to(dtype)


def _heads(
    qkv: torch.Tensor,
    norm_q: torch.Tensor,
    norm_k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries (B, heads, T, head_dim), scaled; keys and values (B, T, kv_heads, head_dim)."""
    heads = qkv.shape[2] - 2 * groups
    q = turned(rms_norm(qkv[:, :, :heads].float(), norm_q, eps), cos, sin).to(qkv.dtype)
    k = turned(rms_norm(qkv[:, :, heads : heads + groups].float(), norm_k, eps), cos, sin).to(qkv.dtype)
    return q.transpose(1, 2).contiguous(), k.contiguous(), qkv[:, :, heads + groups :].contiguous()


def _weigh(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attention weights out of (n, T, total) scores."""
    return torch.softmax(scores.float() + mask, -1).to(scores.dtype)


def _gate(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.float().chunk(2, -1)
    return (F.gelu(gate, approximate="tanh") * up).to(gate_up.dtype)


def _join(x: torch.Tensor, found: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Add the normed output of a half block to the residual stream."""
    return x + rms_norm(found.float(), weight, eps)

"""A fused forward pass for Llama-shaped decoders, the fast path of the embedded proxies.

The same arithmetic as ``transformers``' Llama block with four differences that only change speed: query, key and value
(and gate and up) are one matrix product, the residual stream stays in float32 while products run in bfloat16, the
keys and values of a shared prompt prefix are computed once and broadcast, and ``torch.compile`` fuses what lies
between the products. Right padding needs no mask, because a causal state never sees what follows it.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

KeyValue = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of a prefix, each of shape (B, P, n_kv_heads, head_dim)."""


@dataclass(frozen=True)
class _Block:
    norm1: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    norm2: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


def supported(config: Any) -> bool:
    """Whether a model configuration is one that this pass computes exactly."""
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type == "llama"
        and config.hidden_act == "silu"
        and not config.attention_bias
        and not config.mlp_bias
        and rope.get("rope_type", "default") == "default"
    )


class FusedDecoder:
    """Blocks of a Llama-shaped decoder, ready to be walked one at a time.

    Parameters
    ----------
    model : transformers.LlamaModel
        Its weights are copied, the model may be dropped afterwards.
    dtype : torch.dtype
        Type of matrix products; the residual stream is always float32.
    device : torch.device
    compile_blocks : bool
        Fuse with ``torch.compile`` where a C++ compiler is at hand.
    """

    def __init__(self, model: Any, dtype: torch.dtype, device: torch.device, compile_blocks: bool = True) -> None:
        config = model.config
        self.depth = int(config.num_hidden_layers)
        self.heads = int(config.num_attention_heads)
        self.kv_heads = int(config.num_key_value_heads)
        self.head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // self.heads)
        self.eps = float(config.rms_norm_eps)
        self.dtype, self.device = dtype, device
        self.embedding = model.embed_tokens.weight.detach().to(device, torch.float32)
        self.final_norm = model.norm.weight.detach().to(device, torch.float32)
        theta = float(config.rope_parameters["rope_theta"])
        exponent = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device) / self.head_dim
        self.inverse_frequency = 1.0 / theta**exponent
        self.blocks = [self._pack(layer) for layer in model.layers]
        step = functools.partial(
            _step, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim, eps=self.eps, dtype=dtype
        )
        self.compiled = compile_blocks and can_compile(device)
        self.step: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = (
            torch.compile(step, dynamic=True) if self.compiled else step
        )

    def _pack(self, layer: Any) -> _Block:
        def weight(*modules: Any) -> torch.Tensor:
            return torch.cat([m.weight.detach() for m in modules]).to(self.device, self.dtype).contiguous()

        attention, mlp = layer.self_attn, layer.mlp
        return _Block(
            norm1=layer.input_layernorm.weight.detach().to(self.device, torch.float32),
            qkv=weight(attention.q_proj, attention.k_proj, attention.v_proj),
            out=weight(attention.o_proj),
            norm2=layer.post_attention_layernorm.weight.detach().to(self.device, torch.float32),
            gate_up=weight(mlp.gate_proj, mlp.up_proj),
            down=weight(mlp.down_proj),
        )

    def walk(
        self, ids: torch.Tensor, last: int, prefix: list[KeyValue] | None = None, *, keep: list[KeyValue] | None = None
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the states after every block up to ``last``.

        Parameters
        ----------
        ids : Tensor of shape (B, T), int64
            Right-padded tokens that follow the prefix.
        last : int
            Last block wanted (1 .. depth); nothing behind it is computed.
        prefix : list of (keys, values) a block, optional
            Shared prefix, each of shape (1, P, n_kv_heads, head_dim).
        keep : list, optional
            Receives the keys and values of these tokens, a pair a block.

        Yields
        ------
        block : int
            1 .. last.
        states : Tensor of shape (B, T, d), float32
            After the final norm for the last block of the model, as ``hidden_states[-1]`` of transformers.
        """
        width = ids.shape[1]
        before = prefix[0][0].shape[1] if prefix else 0
        position = torch.arange(before, before + width, dtype=torch.float32, device=self.device)
        angle = torch.outer(position, self.inverse_frequency).repeat(1, 2)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        mask = torch.full((width, before + width), -torch.inf, device=self.device).triu(before + 1)
        empty = torch.empty((1, 0, self.kv_heads, self.head_dim), dtype=self.dtype, device=self.device)
        states = self.embedding[ids]
        for number, block in enumerate(self.blocks[:last], start=1):
            past_k, past_v = prefix[number - 1] if prefix else (empty, empty)
            states, k, v = self.step(
                states, past_k, past_v, cos, sin, mask,
                block.norm1, block.qkv, block.out, block.norm2, block.gate_up, block.down,
            )  # fmt: skip
            if keep is not None:
                keep.append((k, v))
            yield number, (_norm(states, self.final_norm, self.eps) if number == self.depth else states)


def can_compile(device: torch.device) -> bool:
    """Whether ``torch.compile`` can build kernels here (``ATLAS_COMPILE=0`` says no)."""
    if os.environ.get("ATLAS_COMPILE") == "0":
        return False
    return device.type == "cuda" or shutil.which(os.environ.get("CXX", "g++")) is not None


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def _step(
    x: torch.Tensor,
    past_k: torch.Tensor,
    past_v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    mask: torch.Tensor,
    norm1: torch.Tensor,
    w_qkv: torch.Tensor,
    w_out: torch.Tensor,
    norm2: torch.Tensor,
    w_gate_up: torch.Tensor,
    w_down: torch.Tensor,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    eps: float,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One block: (B, T, d) float32 in and out, with the new keys and values beside it."""
    batch, width, _ = x.shape
    share = heads // kv_heads
    qkv = F.linear(_norm(x, norm1, eps).to(dtype), w_qkv).view(batch, width, heads + 2 * kv_heads, head_dim)
    qk = qkv[:, :, : heads + kv_heads].float()
    half = head_dim // 2
    turned = torch.cat([-qk[..., half:], qk[..., :half]], -1)
    qk = (qk * cos + turned * sin).to(dtype)
    k, v = qk[:, :, heads:], qkv[:, :, heads + kv_heads :]
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
    gate, up = F.linear(_norm(x, norm2, eps).to(dtype), w_gate_up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, w_down), k, v

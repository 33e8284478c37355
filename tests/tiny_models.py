"""Language models of a few thousand random weights, and a tokenizer for them, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

CORPUS = [
    "Prompt:\nHow do I restart the queue?\n\nResponse:\nCertainly! First stop the service, then start it again.",
    "Describe the backup, the sensor log and the price table. 1234 <b>naïve</b> — été 北京 🚀",
    "def value(index):\n    return buffer[index] + 1\n\n```python\nprint('hello world')\n```",
    "One\n\n\nTwo\n\n\nThree\n\n\nFour",
]
_SHAPE: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 0,
}
KINDS = ("llama", "qwen2", "qwen3", "gemma3", "olmo3", "ministral3", "qwen3_5", "gemma4")


def tiny_tokenizer(*, encoder: bool = False) -> Any:
    """A byte-level tokenizer with 400 tokens; as ``encoder`` it frames texts with [CLS] and [SEP]."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<|im_start|>", "[CLS]", "[SEP]"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if encoder:
        ends = [("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<pad>", model_max_length=256
    )


def tiny_config(kind: str) -> Any:
    """Configuration of a decoder of that kind, four blocks deep."""
    if kind == "llama":
        return transformers.LlamaConfig(**_SHAPE)
    if kind == "qwen2":
        return transformers.Qwen2Config(**{k: v for k, v in _SHAPE.items() if k != "head_dim"})
    if kind == "qwen3":
        return transformers.Qwen3Config(**_SHAPE)
    if kind == "olmo3":
        return transformers.Olmo3Config(**{k: v for k, v in _SHAPE.items() if k != "head_dim"}, sliding_window=16)
    if kind == "gemma3":
        types = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
        return transformers.Gemma3TextConfig(**_SHAPE, sliding_window=16, layer_types=types, query_pre_attn_scalar=8)
    if kind == "ministral3":
        return transformers.Ministral3Config(**_SHAPE)
    if kind == "qwen3_5":
        types = ["linear_attention", "full_attention", "linear_attention", "full_attention"]
        linear = {f"linear_{n}": 8 for n in ("key_head_dim", "value_head_dim")}
        heads = {f"linear_num_{n}_heads": 2 for n in ("key", "value")}
        return transformers.Qwen3_5TextConfig(**_SHAPE, **linear, **heads, layer_types=types)
    if kind == "gemma4":
        types = ["sliding_attention", "sliding_attention", "full_attention", "full_attention"]
        return transformers.Gemma4TextConfig(
            **_SHAPE, sliding_window=16, layer_types=types, global_head_dim=8, num_kv_shared_layers=0,
            hidden_size_per_layer_input=0,
        )  # fmt: skip
    raise ValueError(kind)


def tiny_decoder(kind: str = "llama", seed: int = 0) -> Any:
    """A base model with weights large enough that every part of a block matters."""
    torch.manual_seed(seed)
    return _stir(transformers.AutoModel.from_config(tiny_config(kind)))


def tiny_encoder(seed: int = 0) -> Any:
    """A bidirectional encoder of three blocks and 64 positions."""
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=400, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, pad_token_id=0,
    )  # fmt: skip
    return _stir(transformers.BertModel(config, add_pooling_layer=False))


def save_tiny(folder: Path, kind: str = "llama", seed: int = 0) -> Path:
    """A folder as transformers saves one, with model and tokenizer."""
    torch.manual_seed(seed)
    _stir(transformers.AutoModelForCausalLM.from_config(tiny_config(kind))).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def _stir(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6.0)
            else:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()

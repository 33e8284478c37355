"""Sentence embeddings by a frozen encoder: the representation of LLM-DNA and LLMmap (paper, LLMmap and LLM-DNA).

Pooling, normalisation and longest input are those of the encoder's files or card (:data:`CARDS`), or mean pooling.
Embeddings are saved row by row, so that an interrupted run is continued.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from backend.errors import AtlasError
from backend.methods.llmmap import RESPONSE_CHARACTERS
from backend.methods.readout import Floats, Ints, Settings
from backend.proxies.reader import best_dtype
from backend.proxies.registry import Proxy, describe, load_model, locate, proxy_hash
from backend.traces import VIEWS, Trace, view_text, whole_text

Pooling = Literal["mean", "cls", "last"]
MAX_TOKENS = 512
DEFAULT_ENCODER = "minilm-l6"


@dataclass(frozen=True)
class Recipe(Settings):
    """How states become one vector."""

    WORDS: ClassVar = "Recipe pooling normalise max_tokens"
    pooling: Pooling = "mean"  # over all tokens, special ones too, the first or the last
    normalise: bool = True  # to unit length
    max_tokens: int = MAX_TOKENS  # where texts are cut, special tokens counted


CARDS = {"minilm-l6": Recipe("mean", True, 256), "mpnet-base": Recipe("mean", True, 384)}
"""Encoders whose folders leave the recipe out."""


def recipe_of(key: str, folder: Path) -> Recipe:
    """The recipe of a registered encoder in its model folder; AtlasError if it pools in an unknown way."""
    if key in CARDS:
        return CARDS[key]
    if not (folder / "modules.json").is_file():
        return Recipe()
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    pooling: Pooling = "mean"
    for module in modules:
        if module["type"].rpartition(".")[2] == "Pooling":
            pooling = _pooling(json.loads((folder / module["path"] / "config.json").read_text("utf-8")), folder)
    limits = folder / "sentence_bert_config.json"
    limit = json.loads(limits.read_text("utf-8")).get("max_seq_length") if limits.is_file() else None
    normalise = any(module["type"].rpartition(".")[2] == "Normalize" for module in modules)
    return Recipe(pooling, normalise, min(int(limit or MAX_TOKENS), MAX_TOKENS))


def _pooling(config: dict[str, Any], folder: Path) -> Pooling:
    names: dict[str, Pooling] = {"mean_tokens": "mean", "cls_token": "cls", "lasttoken": "last"}
    start = "pooling_mode_"
    needed = [name.removeprefix(start) for name, on in config.items() if name.startswith(start) and on]
    # Newer files name the mode in one field.
    if isinstance(config.get("pooling_mode"), str):
        needed = [{"mean": "mean_tokens", "cls": "cls_token"}.get(config["pooling_mode"], config["pooling_mode"])]
    if len(needed) != 1 or needed[0] not in names:
        problem = f"The encoder in {folder} pools by {', '.join(needed) or 'nothing'}, which is not supported"
        raise AtlasError(problem, f"Choose an encoder that pools by one of {', '.join(names)}")
    return names[needed[0]]


def pool(states: torch.Tensor, mask: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """One vector a text, (B, d), float32, of states (B, T, d) where the mask (B, T) is 1; padding is on the right."""
    states = states.float()
    if recipe.pooling == "cls":
        vectors = states[:, 0]
    elif recipe.pooling == "last":
        vectors = states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]
    else:
        weights = mask[..., None].to(states.dtype)
        vectors = (states * weights).sum(1) / weights.sum(1).clamp_min(1e-9)
    return torch.nn.functional.normalize(vectors, dim=1) if recipe.normalise else vectors


def padded(rows: Sequence[list[int]], tokenizer: Any, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask (B, T) of rows; of an empty row one padding token is read."""
    ids = torch.full((len(rows), max(1, *map(len, rows))), tokenizer.pad_token_id or 0)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.int64)
        mask[i, : max(1, len(row))] = 1
    return ids.to(device), mask.to(device)


class SentenceEncoder:
    """A frozen encoder; device 'auto' takes CUDA where there is one, ``dtype`` is that of the matrix products."""

    def __init__(
        self, name_or_path: str = DEFAULT_ENCODER, device: str = "auto", dtype: torch.dtype | None = None
    ) -> None:
        self.proxy: Proxy = describe(name_or_path)
        self.name = name_or_path
        self.device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        self.dtype = dtype or best_dtype(self.device)
        self.model, self.tokenizer = load_model(self.proxy)
        self.model.float().to(self.device).eval()
        recipe = recipe_of(self.proxy.key, locate(self.proxy))
        self.recipe = replace(recipe, max_tokens=min(recipe.max_tokens, self.tokenizer.model_max_length))
        self.width = self.proxy.hidden_size
        self.batch_tokens = 65_536 if self.device.type == "cuda" else 4_096

    @property
    def parameters(self) -> int:
        """Number of weights on the audit path (without a pooling layer that nobody reads)."""
        return sum(p.numel() for name, p in self.model.named_parameters() if "pooler" not in name)

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> Floats:
        """Embeddings (n, d), float32, of texts."""
        clean = [whole_text(text) for text in texts]
        ids = self.tokenizer(clean, truncation=True, max_length=self.recipe.max_tokens)["input_ids"]
        out = np.empty((len(texts), self.width), dtype=np.float32)
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        mixed = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        while order:
            size = max(1, self.batch_tokens // max(1, len(ids[order[0]])))
            rows, order = order[:size], order[size:]
            batch, mask = padded([ids[i] for i in rows], self.tokenizer, self.device)
            with mixed:
                states = self.model(input_ids=batch, attention_mask=mask).last_hidden_state
            out[rows] = pool(states, mask, self.recipe).cpu().numpy()
        return out


@dataclass(frozen=True)
class EmbeddingKey:
    """Contents of a saved array."""

    benchmark: str
    panel: str  # which text of a record, e.g. 'ur.full', 'response650.t64', 'prompt'
    texts: str  # hash over all texts in row order
    rows: int  # number of texts


class EmbeddingCache:
    """Embeddings of texts by one encoder on disk: an array, and a byte a row that says whether it is there."""

    def __init__(self, encoder: SentenceEncoder, key: EmbeddingKey, root: Path) -> None:
        self.encoder, self.key = encoder, key
        self.path = root / "embeddings" / encoder.proxy.key / key.benchmark / key.panel
        self._array, self._done = self.path / "embeddings.npy", self.path / "done.npy"
        identity = {
            **{name: getattr(key, name) for name in ("benchmark", "panel", "texts", "rows")},
            **{name: getattr(encoder.recipe, name) for name in ("pooling", "normalise", "max_tokens")},
            **{"encoder": proxy_hash(encoder.name), "dtype": str(encoder.dtype), "width": encoder.width},
        }
        manifest = self.path / "manifest.json"
        if not manifest.exists() or json.loads(manifest.read_text("utf-8")) != identity:
            self.path.mkdir(parents=True, exist_ok=True)
            manifest.unlink(missing_ok=True)
            np.lib.format.open_memmap(self._array, "w+", np.float16, (key.rows, encoder.width)).flush()
            np.lib.format.open_memmap(self._done, "w+", np.uint8, (key.rows,)).flush()
            scratch = manifest.with_suffix(".partial")
            scratch.write_text(json.dumps(identity), "utf-8")
            scratch.replace(manifest)  # last, so that a torn beginning begins again

    def complete(
        self, texts: Sequence[str], rows: Ints, progress: Callable[[int], object] | None = None, chunk: int = 512
    ) -> None:
        """Compute and save the missing rows (n,); ``progress`` is called with numbers of rows that are there."""
        array, done = np.load(self._array, mmap_mode="r+"), np.load(self._done, mmap_mode="r+")
        todo = np.flatnonzero(done[rows] == 0)
        if progress:
            progress(len(rows) - len(todo))
        for low in range(0, len(todo), chunk):
            part = todo[low : low + chunk]
            array[rows[part]] = self.encoder.embed([texts[i] for i in part])
            array.flush()
            done[rows[part]] = 1
            done.flush()
            if progress:
                progress(len(part))

    def take(self, rows: Ints) -> Floats:
        """Embeddings (n, d) of rows (n,), rounded to float16 as on disk; ValueError if one is not there yet."""
        if not np.load(self._done, mmap_mode="r")[rows].all():
            raise ValueError(f"some of {len(rows)} embeddings are missing in {self.path}")
        out: Floats = np.load(self._array, mmap_mode="r")[rows].astype(np.float32)
        return out


PAIR = "pair"  # prompt and beginning of the response, one after the other


def reads_of(encoder: str, what: str) -> str:
    """Name of embeddings that a reader reads: the encoder, and an input view or :data:`PAIR`."""
    return f"{encoder}:{what}"


def beginning(trace: Trace) -> str:
    """The part of a response that LLMmap reads."""
    return trace.response[:RESPONSE_CHARACTERS]


def embed(encoder: SentenceEncoder, what: str, traces: Sequence[Trace]) -> Floats:
    """Embeddings of an input view (n, d), or of :data:`PAIR` (n, 2 d), rounded as on disk; else ValueError."""
    if what == PAIR:
        prompts = list(dict.fromkeys(trace.prompt for trace in traces))
        place = {prompt: i for i, prompt in enumerate(prompts)}
        first = encoder.embed(prompts)[[place[trace.prompt] for trace in traces]]
        return np.concatenate([first, _rounded(encoder.embed([beginning(trace) for trace in traces]))], axis=1)
    view = next((view for view in VIEWS if view == what), None)
    if view is None:
        raise ValueError(f"'{what}' of a trace is not embedded")
    return _rounded(encoder.embed([view_text(trace, view)[1] for trace in traces]))


def _rounded(values: Floats) -> Floats:
    return values.astype(np.float16).astype(np.float32)

"""Fine-tuned text encoders as source classifiers (paper, Fine-tuned DeBERTa, and the fine-tuned rows of its table).

An encoder is trained end to end, as the sequence classifier of its architecture or with a linear layer on its pooled
states. As a member of a stack it is its weights in half precision, computed in single precision on every machine.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from backend.errors import AtlasError
from backend.methods.readout import Floats, Half, Labels, Settings, check_shapes, inside
from backend.methods.sentence_encoder import Recipe, SentenceEncoder, padded, pool, recipe_of
from backend.proxies.reader import best_dtype
from backend.proxies.registry import describe, load_model, locate, proxy_key, registered
from backend.traces import whole_text

DEBERTA = "microsoft/deberta-v3-large"


@dataclass(frozen=True)
class FinetuneSettings(Settings):
    """How an encoder is trained; the defaults are the paper's for DeBERTa-v3-large."""

    WORDS: ClassVar = (
        "FinetuneSettings kind max_tokens epochs batch learning_rate head_rate weight_decay warmup clip autocast "
        "checkpoint bucket dropout"
    )
    kind: Literal["classifier", "encoder"] = "classifier"  # the architecture's own, or pooled states and a linear layer
    max_tokens: int = 256
    epochs: int = 2
    batch: int = 32
    learning_rate: float = 6e-6  # a classifier has one rate for all
    head_rate: float = 6e-6  # of the linear layer on an encoder
    weight_decay: float = 0.01  # not applied to biases and norms
    warmup: float = 0.06  # share of the steps in which the rate rises; it falls linearly to zero afterwards
    clip: float = 1.0  # largest norm of the gradient
    autocast: bool = False  # matrix products in bfloat16; the paper trains in float32
    checkpoint: int = 250  # steps between checkpoints
    bucket: int = 1  # batches that are drawn together and sorted by length, for less padding; 1 does not sort
    dropout: float | None = None  # in place of the model's published rates


CLASSIFIER = FinetuneSettings()
# The released settings of the fine-tuned MPNet.
ENCODER = replace(CLASSIFIER, kind="encoder", batch=64, learning_rate=1e-5, head_rate=1e-3)


def affordable(settings: FinetuneSettings) -> FinetuneSettings:
    """The paper's float32 on a GPU; bfloat16 products on a processor that has them, where float32 takes days."""
    slow = not torch.cuda.is_available()
    return replace(settings, autocast=slow and best_dtype(torch.device("cpu")) == torch.bfloat16)


class EncoderClassifier(nn.Module):
    """A sentence encoder with a linear layer on its pooled states."""

    def __init__(self, encoder: Any, recipe: Recipe, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.recipe = recipe
        self.head = nn.Linear(encoder.config.get_text_config().hidden_size, classes)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Tokens (B, T) to logits (B, classes)."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        logits: torch.Tensor = self.head(pool(states, attention_mask, self.recipe))
        return logits


class SequenceClassifier(nn.Module):
    """An architecture's own classifier, reduced to its logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Tokens (B, T) to logits (B, classes)."""
        logits: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits


def load_classifier(name_or_path: str, classes: int, settings: FinetuneSettings, seed: int) -> tuple[nn.Module, Any]:
    """A model on the CPU, new layers by ``seed``, and its tokenizer; AtlasError if there is no such encoder."""
    if settings.kind == "encoder":
        proxy = describe(name_or_path)
        encoder, tokenizer = load_model(proxy)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model: nn.Module = EncoderClassifier(encoder.float(), recipe_of(proxy.key, locate(proxy)), classes)
        return model, tokenizer
    key = proxy_key(name_or_path)
    where = str(locate(registered()[key])) if key in registered() else str(Path(name_or_path).expanduser())
    import transformers

    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            # Hub models that hold pickled weights only are taken in the hub's own conversion to safetensors.
            inner = transformers.AutoModelForSequenceClassification.from_pretrained(
                where, num_labels=classes, dtype=torch.float32, use_safetensors=True, trust_remote_code=False,
                ignore_mismatched_sizes=True,
            )  # fmt: skip
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        why = str(error).strip().splitlines()[0].rstrip(".")
        remedy = "Give a hub id that can be reached, or a folder with a safetensors model and its tokenizer, by --model"
        raise AtlasError(f"The model '{name_or_path}' cannot be loaded as a classifier ({why})", remedy) from error
    return SequenceClassifier(inner), tokenizer


@dataclass(frozen=True)
class TrainedClassifier:
    """A trained model that answers."""

    model: nn.Module
    tokenizer: Any
    settings: FinetuneSettings
    device: torch.device

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    def log_posterior(self, texts: Sequence[str], batch: int = 64) -> Floats:
        """Log-posteriors of texts (n,): (n, C), float32."""
        with _mixed(self.settings, self.device):
            return log_posteriors(self.model, self.tokenizer, texts, self.settings.max_tokens, self.device, batch)


@torch.inference_mode()
def log_posteriors(
    logits: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], tokenizer: Any, texts: Sequence[str], max_tokens: int,
    device: torch.device, batch: int = 64,
) -> Floats:  # fmt: skip
    """Log-posteriors (n, C) of texts, cut at ``max_tokens``, by ``logits`` of ids and mask; equal ones read once."""
    places: dict[tuple[int, ...], int] = {}
    which = [places.setdefault(tuple(row), len(places)) for row in tokenise(tokenizer, texts, max_tokens)]
    different = [list(row) for row in places]
    order = sorted(range(len(different)), key=lambda i: -len(different[i]))
    parts = []
    for low in range(0, len(order), batch):
        inputs = padded([different[i] for i in order[low : low + batch]], tokenizer, device)
        parts.append(torch.log_softmax(logits(*inputs).float(), -1).cpu().numpy())
    scattered = np.concatenate(parts)
    out = np.empty_like(scattered)
    out[order] = scattered
    return out[which]


def tokenise(tokenizer: Any, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Token ids with the special tokens of the model, cut on the right, where the model ends at the latest."""
    limit = min(max_tokens, tokenizer.model_max_length)
    encoded = tokenizer([whole_text(text) for text in texts], truncation=True, max_length=limit)
    return [row or [tokenizer.pad_token_id or 0] for row in encoded["input_ids"]]


def fine_tune(
    name_or_path: str, texts: Sequence[str], labels: Labels, classes: int, *, settings: FinetuneSettings, seed: int,
    copies: Sequence[Sequence[str]] = (), checkpoint: Path | None = None, device: str | torch.device = "cpu", progress:
    Callable[[int, int], None] | None = None,
) -> TrainedClassifier:  # fmt: skip
    """Train an encoder on texts, from its checkpoint where there is one.

    A batch takes one of ``copies``, the same texts cut short say, at random; ``progress`` is called with (steps done,
    steps). AtlasError if the model cannot be loaded, or the checkpoint is of another training.
    """
    where = torch.device(device)
    model, tokenizer = load_classifier(name_or_path, classes, settings, seed)
    for part in model.modules():
        if isinstance(part, nn.Dropout) and settings.dropout is not None:
            part.p = settings.dropout
        attend = getattr(part, "set_attn_implementation", None)
        if where.type == "cpu" and callable(attend):  # there, fused attention goes backwards slower than plain products
            attend("eager")
    model.to(where).train()
    optimiser = torch.optim.AdamW(_groups(model, settings), fused=True)
    begun = weights_hash(model) if checkpoint else ""
    steps = settings.epochs * math.ceil(len(texts) / settings.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_share(step, steps, settings.warmup))
    forms = [tokenise(tokenizer, form, settings.max_tokens) for form in (texts, *copies)]
    truth = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    read = [sum(map(sum, form)) for form in forms]
    identity = f"{proxy_key(name_or_path)} {begun} {settings.as_text()} {seed} {len(texts)} {classes} {read}"
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        torch.manual_seed(seed)
        start = _resume(checkpoint, identity, model, optimiser, where) if checkpoint else 0
        schedule.last_epoch = start
        for group, base, share in zip(optimiser.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True):
            group["lr"] = base * share(start)
        lengths = torch.tensor([len(row) for row in forms[0]])
        drawn = torch.randint(len(forms), (steps,), generator=torch.Generator().manual_seed(seed))
        for step, rows in enumerate(batches(lengths, settings, seed)):
            if step < start:
                continue
            inputs = padded([forms[int(drawn[step])][i] for i in rows], tokenizer, where)
            optimiser.zero_grad()
            with _mixed(settings, where):
                logits = model(*inputs)
            torch.autograd.backward(nn.functional.cross_entropy(logits.float(), truth[rows].to(where)))
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimiser.step()
            schedule.step()
            if checkpoint and (step + 1) % settings.checkpoint == 0:
                _save(checkpoint, identity, model, optimiser, step + 1, where)
            if progress:
                progress(step + 1, steps)
    return TrainedClassifier(model.eval(), tokenizer, settings, where)


def weights_hash(model: nn.Module) -> str:
    """sha256 over the weights that are trained, new layers included; a pooler that nobody reads may be random."""
    digest = hashlib.sha256()
    for name, value in sorted(model.named_parameters()):
        if value.requires_grad:
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def batches(lengths: torch.Tensor, settings: FinetuneSettings, seed: int) -> Iterator[torch.Tensor]:
    """Rows of every step, the same in every run with that seed; ``lengths`` (n,) are those of the texts."""
    order = torch.Generator().manual_seed(seed)
    for _ in range(settings.epochs):
        shuffled = torch.randperm(len(lengths), generator=order)
        if settings.bucket == 1:
            yield from torch.split(shuffled, settings.batch)
            continue
        for drawn in torch.split(shuffled, settings.bucket * settings.batch):
            alike = torch.split(drawn[torch.argsort(lengths[drawn], stable=True)], settings.batch)
            yield from (alike[i] for i in torch.randperm(len(alike), generator=order).tolist())


def rate_share(step: int, steps: int, warmup: float) -> float:
    """Share of the full learning rate: a linear rise over the first part of the steps, then a linear fall to zero."""
    rise = math.ceil(warmup * steps)
    if step < rise:
        return step / max(1, rise)
    return max(0.0, (steps - step) / max(1, steps - rise))


def _groups(model: nn.Module, settings: FinetuneSettings) -> list[dict[str, Any]]:
    """Parameters by learning rate and decay."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if "pooler" in name and settings.kind == "encoder":
            parameter.requires_grad_(False)  # no loss reaches it
            continue
        rate = settings.head_rate if name.startswith("head.") else settings.learning_rate
        groups.setdefault((rate, settings.weight_decay if parameter.dim() > 1 else 0.0), []).append(parameter)
    return [{"params": members, "lr": rate, "weight_decay": decay} for (rate, decay), members in groups.items()]


def _mixed(settings: FinetuneSettings, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.autocast)


def _save(
    path: Path, identity: str, model: nn.Module, optimiser: torch.optim.Optimizer, step: int, device: torch.device
) -> None:
    """Write weights, moments and random state in one step; plain tensors, so that nothing is ever unpickled."""
    tensors = {f"model/{name}": value.detach().contiguous().clone() for name, value in model.state_dict().items()}
    for index, state in optimiser.state_dict()["state"].items():
        tensors |= {f"moment/{index}/{name}": value.detach().clone() for name, value in state.items()}
    tensors["random"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["random/device"] = torch.cuda.get_rng_state(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".partial")
    save_file(tensors, scratch, {"identity": identity, "step": str(step)})
    scratch.replace(path)


def _resume(path: Path, identity: str, model: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device) -> int:
    """Load a checkpoint and give its number of steps; 0 without one."""
    if not path.exists():
        return 0
    with safe_open(path, "pt", device="cpu") as file:
        described = file.metadata() or {}
        if described.get("identity") != identity:
            problem = f"The checkpoint {path} belongs to another training, of other texts, settings or starting weights"
            raise AtlasError(problem, "Remove it, or give what it was trained with")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    model.load_state_dict(inside(tensors, "model/"))
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in inside(tensors, "moment/").items():
        index, moment = name.split("/")
        moments.setdefault(int(index), {})[moment] = tensor
    optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["random"])
    if "random/device" in tensors:
        torch.cuda.set_rng_state(tensors["random/device"], device)
    return int(described["step"])


TUNED = "tuned"
"""What is read by an encoder, in place of an embedding (:func:`backend.methods.sentence_encoder.reads_of`)."""
_INNER, _WEIGHT, _BIAS, _CUT = "encoder.", "head.weight", "head.bias", "max_tokens"


@dataclass(frozen=True)
class Texts:
    """What a tuned encoder reads: n texts, and the encoder that it started from."""

    encoder: SentenceEncoder
    texts: Sequence[str]

    def __getitem__(self, rows: npt.NDArray[np.intp]) -> Texts:
        """Some of the texts."""
        return Texts(self.encoder, [self.texts[row] for row in rows])


@dataclass(frozen=True)
class TunedEncoder:
    """Weights of a fine-tuned encoder of width d, and of the linear head on its pooled states."""

    weights: Mapping[str, Half]  # of the encoder by name; without a pooling layer that nobody reads
    weight: Half  # (C, d)
    bias: Half  # (C,)
    max_tokens: int  # where texts are cut, special tokens counted

    @classmethod
    def of(cls, trained: TrainedClassifier) -> TunedEncoder:
        """The trained weights, rounded to half precision."""
        arrays: dict[str, npt.NDArray[Any]] = {
            name: value.detach().cpu().numpy().astype(np.float16)
            for name, value in trained.model.named_parameters()
            if value.requires_grad
        }
        return cls.from_arrays(arrays | {_CUT: np.array(trained.settings.max_tokens)})

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        inner = {f"{_INNER}{name}": array for name, array in self.weights.items()}
        return {**inner, _WEIGHT: self.weight, _BIAS: self.bias, _CUT: np.array(self.max_tokens)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> TunedEncoder:
        """What :meth:`to_arrays` gave; KeyError or ValueError where there are other parts, or of other types."""
        check_shapes({_WEIGHT: "CD", _BIAS: "C", _CUT: ""}, arrays)
        weight, bias, cut = (arrays[name] for name in (_WEIGHT, _BIAS, _CUT))
        inner = inside(arrays, _INNER)
        if len(arrays) != len(inner) + 3:
            raise ValueError("a member of kind tuned has other parts")
        if any(array.dtype != np.float16 for array in (weight, bias, *inner.values())) or cut.dtype.kind != "i":
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
        own = {name: tuple(value.shape) for name, value in encoder.model.named_parameters() if "pooler" not in name}
        return (
            own == {name: array.shape for name, array in self.weights.items()}
            and self.weight.shape[1] == encoder.width
            and self.max_tokens > encoder.tokenizer.num_special_tokens_to_add()
        )

    def log_posterior(self, read: Texts) -> Floats:
        """Log-posteriors (n, C), float32, of n texts by an encoder that fits."""
        encoder = read.encoder

        def single(array: Half) -> torch.Tensor:
            return torch.from_numpy(array).to(encoder.device, torch.float32)

        weights = {name: single(array) for name, array in self.weights.items()}
        weight, bias = single(self.weight), single(self.bias)

        def logits(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            inputs = {"input_ids": ids, "attention_mask": mask}
            states = torch.func.functional_call(encoder.model, weights, (), inputs).last_hidden_state
            return nn.functional.linear(pool(states, mask, encoder.recipe), weight, bias)

        return log_posteriors(logits, encoder.tokenizer, read.texts, self.max_tokens, encoder.device)

"""Sources that answer prompts: local models, and endpoints that speak the OpenAI chat protocol.

The same weights with another temperature or system prompt are another source (paper, Dynamic Provenance Setting).
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import os
import random
import re
import threading
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit, urlunsplit

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from backend.errors import AtlasError
from backend.intake.traces import whole

Kind = Literal["local", "api"]
_NUMBERS = {"temperature": float, "top_p": float, "top_k": int, "max_new_tokens": int, "seed": int}
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0), "top_p": (1e-6, 1.0), "top_k": (1, 1e9), "max_new_tokens": (1, 1e6),
    "seed": (0, 2**63 - 1),
}  # fmt: skip
_LEAST: Mapping[str, float] = {"per_minute": 1e-3, "concurrency": 1, "timeout": 1e-3, "retries": 0}
_TEXTS = ("system", "template", "base_url", "key_env", "token_field")
_KEYS = (*_NUMBERS, *_TEXTS)
_KINDS: tuple[Kind, ...] = ("local", "api")
_SETTINGS = f"The settings are {', '.join(_KEYS)}"
_NEXT_KEY = re.compile(rf",(?=(?:{'|'.join(_KEYS)})=)")
_NAME = re.compile(r"[A-Za-z0-9][\w.:@+-]*")
_ANSWER_LIMIT = 32_000_000
_LONGEST_PAUSE = 600.0


@dataclass(frozen=True)
class Sampling:
    temperature: float | None = None  # 0 takes the likeliest; None is 1 for a local model, else the server's default
    top_p: float | None = None  # share of probability to draw from
    top_k: int | None = None  # number of tokens to draw from (local models only)
    max_new_tokens: int = 128  # longest response
    seed: int | None = None  # none is 42 for a local model, and is not sent to an endpoint

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise AtlasError(f"{name} is {value}", f"Give a value from {low:g} to {high:g}")


@dataclass(frozen=True)
class Source:
    """A source that answers prompts."""

    name: str  # label of its responses
    kind: Kind
    model: str  # registry name, hub id or folder of a local model; model name at an endpoint
    system: str | None = None  # system prompt
    template: str | None = None  # what a local model reads instead of its chat template, with ``{prompt}`` in it
    base_url: str | None = None  # of an endpoint, without ``/chat/completions``
    key_env: str | None = None  # environment variable that holds the endpoint's key
    token_field: str = "max_tokens"  # the endpoint's name for the longest response
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            remedy = "Use letters, digits and . _ - + : @, without spaces"
            raise AtlasError(f"'{self.name}' cannot be the name of a source", remedy)
        if not self.model:
            raise AtlasError(f"The source '{self.name}' names no model", "Give it, as in NAME=local:MODEL")
        if self.kind == "api":
            if not self.base_url:
                raise AtlasError(f"The source '{self.name}' has no address", "Give it with base_url= or --base-url")
            chat_address(self.base_url)
            if self.template is not None or self.sampling.top_k is not None:
                what = "template" if self.template is not None else "top_k"
                raise AtlasError(f"The source '{self.name}' is an endpoint, which takes no {what}", f"Leave {what} out")
        elif self.base_url or self.key_env:
            remedy = "Write NAME=api:MODEL"
            raise AtlasError(f"The source '{self.name}' is a local model, which has no address or key", remedy)
        if self.template is not None and ("{prompt}" not in self.template or self.system is not None):
            problem = f"The template of the source '{self.name}' must hold {{prompt}} and stands in for a system prompt"
            raise AtlasError(problem, "Write for example: template=Question: {prompt} Answer:")

    def settings(self) -> dict[str, Any]:
        """Sampling, as it is recorded."""
        chosen = {name: getattr(self.sampling, name) for name in ("temperature", "top_p", "top_k", "max_new_tokens")}
        if self.kind == "local":
            chosen |= {name: 1.0 for name in ("temperature", "top_p") if chosen[name] is None}
        return chosen

    @property
    def seed(self) -> int | None:
        return 42 if self.sampling.seed is None and self.kind == "local" else self.sampling.seed


def parse_source(text: str, defaults: Mapping[str, Any] | None = None) -> Source:
    """Read ``NAME=local:MODEL[,KEY=VALUE...]`` or ``NAME=api:MODEL[,KEY=VALUE...]``; texts may hold commas."""
    name, equals, rest = text.partition("=")
    kind_name, colon, rest = rest.partition(":")
    kind = next((kind for kind in _KINDS if kind == kind_name), None)
    if not equals or not colon or kind is None:
        problem = f"'{text}' is not a source"
        raise AtlasError(problem, "Write NAME=local:MODEL or NAME=api:MODEL, then ,temperature=0.7 and the like")
    model, *parts = _NEXT_KEY.split(rest)
    values: dict[str, Any] = {}
    for part in parts:
        key, _, value = part.partition("=")
        if key in values:
            raise AtlasError(f"The source '{name}' gives {key} twice", "Give it once")
        values[key] = value
    if "," in model:
        stray = model.partition(",")[2].partition("=")[0]
        raise AtlasError(f"The source '{name}' has no setting '{stray}'", _SETTINGS)
    return _source(name.strip(), kind, model.strip(), values, defaults)


def read_sources(path: Path, defaults: Mapping[str, Any] | None = None) -> list[Source]:
    """Read a TOML file of tables ``[sources.NAME]``: local or api = "MODEL", and keys as in :func:`parse_source`."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise AtlasError(f"{path} cannot be read ({error.strerror})", "Check its name and permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AtlasError(f"{path} is not valid TOML ({error})", "Correct that line") from error
    tables = content.get("sources")
    if not isinstance(tables, dict) or not tables:
        raise AtlasError(f"{path} holds no table [sources.NAME]", "Add one for every source")
    out = []
    for name, table in tables.items():
        kinds: list[Kind] = [k for k in _KINDS if isinstance(table, dict) and isinstance(table.get(k), str)]
        if len(kinds) != 1:
            raise AtlasError(f"{path}, source '{name}', must say either local or api", 'Write local = "MODEL"')
        values = {k: v for k, v in table.items() if k != kinds[0]}
        if unknown := sorted(set(values) - set(_KEYS)):
            raise AtlasError(f"{path}, source '{name}', has no setting '{unknown[0]}'", _SETTINGS)
        out.append(_source(name, kinds[0], table[kinds[0]], values, defaults))
    return out


def _source(name: str, kind: Kind, model: str, values: Mapping[str, Any], defaults: Mapping[str, Any] | None) -> Source:
    given = {k: v for k, v in (defaults or {}).items() if v is not None and (kind == "api" or k not in _TEXTS)}
    given |= values
    numbers = {}
    for key in (key for key in _NUMBERS if key in given):
        try:
            numbers[key] = _NUMBERS[key](str(given[key]))
        except ValueError as error:
            problem = f"The source '{name}' has {key} '{given[key]}', which is not a number"
            raise AtlasError(problem, "Give a number") from error
    texts = {key: str(given[key]) for key in _TEXTS if key in given}
    return Source(name, kind, model, sampling=Sampling(**numbers), **texts)


@dataclass(frozen=True)
class Answer:
    text: str
    finish_reason: str | None  # 'stop' or 'length', or what the endpoint says
    prompt_tokens: int | None
    response_tokens: int | None
    engine: dict[str, Any]  # how it was computed: type and device, or the model that the endpoint says it is


class LocalModel:
    """A causal language model on this machine, loaded when needed; AtlasError if it is unknown or cannot write."""

    def __init__(self, name: str, device: str = "auto") -> None:
        from backend.proxies.registry import describe, proxy_hash

        self.requested, self._device = name, device
        self._proxy = describe(name)
        if not self._proxy.causal:
            raise AtlasError(f"'{name}' reads both ways and cannot write", "Choose a causal language model")
        self.name = self._proxy.key
        self.weights_sha256 = proxy_hash(name)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        from backend.proxies.reader import best_dtype
        from backend.proxies.registry import find_device, load_model

        device = find_device(self._device)
        model, tokenizer = load_model(self._proxy, head=True)
        return model.to(device, best_dtype(device)), tokenizer

    def generate(self, prompts: Sequence[str], source: Source, batch: int) -> list[Answer]:
        """Answer a batch of prompts; its number and the source's seed decide the random draws, so it can be repeated.

        Raises AtlasError if a prompt does not fit, or a system prompt was given to a model without chat template.
        """
        import torch
        from transformers import GenerationConfig

        model, tokenizer = self._loaded
        texts = [self._serialise(prompt, source) for prompt in prompts]
        chat = source.template is None and tokenizer.chat_template is not None
        padding: dict[str, Any] = {"return_tensors": "pt", "padding": True, "padding_side": "left"}
        encoded = tokenizer(texts, add_special_tokens=not chat, **padding).to(model.device)
        settings = source.settings()
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        longest = int(encoded["attention_mask"].sum(1).max())
        if limit and longest + settings["max_new_tokens"] > limit:
            tokens = f"{longest:,} tokens and {settings['max_new_tokens']:,} new ones"
            problem = f"A prompt of {tokens} exceed the {limit:,} tokens of '{self.name}'"
            raise AtlasError(problem, "Shorten the prompt, or ask for fewer new tokens")
        given = model.generation_config.eos_token_id
        ends = {*([given] if isinstance(given, int) else given or []), tokenizer.eos_token_id}
        stops = sorted(token for token in ends if token is not None)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else stops[0]
        chosen: dict[str, Any] = {"do_sample": False}
        if settings["temperature"] > 0:
            # top_k 0 switches off the library's own default of 50.
            chosen = {"do_sample": True} | {k: settings[k] or 0 for k in ("temperature", "top_p", "top_k")}
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=settings["max_new_tokens"], eos_token_id=stops, pad_token_id=pad, **chosen
        )
        cuda = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(cuda), torch.inference_mode():
            torch.manual_seed((source.seed or 0) * 1_000_003 + batch)
            inputs = {name: encoded[name] for name in ("input_ids", "attention_mask")}
            written = model.generate(**inputs, generation_config=config)
        answers = []
        engine = {"dtype": str(model.dtype).removeprefix("torch."), "device": model.device.type}
        new = written[:, encoded["input_ids"].shape[1] :].tolist()
        for row, mask in zip(new, encoded["attention_mask"], strict=True):
            end = next((i for i, token in enumerate(row) if token in stops), None)
            text = tokenizer.decode(row[:end], skip_special_tokens=True)
            reason = "length" if end is None else "stop"
            answers.append(Answer(text, reason, int(mask.sum()), len(row[:end]), engine))
        return answers

    def _serialise(self, prompt: str, source: Source) -> str:
        _, tokenizer = self._loaded
        if source.template is not None:
            return source.template.replace("{prompt}", prompt)
        if tokenizer.chat_template is None:
            if source.system is not None:
                what = f"'{self.name}' has no chat template, so the source '{source.name}' cannot have a system prompt"
                raise AtlasError(what, "Use template= with {prompt} in it")
            return prompt
        messages = _messages(prompt, source)
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _messages(prompt: str, source: Source) -> list[dict[str, str]]:
    system = [] if source.system is None else [{"role": "system", "content": source.system}]
    return [*system, {"role": "user", "content": prompt}]


@dataclass(frozen=True)
class RateLimits:
    per_minute: float | None = None  # most requests a minute, repetitions included
    concurrency: int = 4  # requests under way at a time
    timeout: float = 120.0  # seconds for a whole answer
    retries: int = 6  # repetitions of a request that the server was too busy for, or that got lost
    first_pause: float = 1.0  # seconds before the first repetition; doubled for each further one, up to a minute

    def __post_init__(self) -> None:
        for name, low in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= low:
                raise AtlasError(f"{name.replace('_', '-')} is {value}", f"Give at least {low:g}")


class AskError(Exception):
    """One prompt got no answer; others may."""


class Pace:
    """Spaces requests, also across threads, and lets a server ask all of them to wait. stop : ends all waiting."""

    def __init__(self, per_minute: float | None, stop: threading.Event) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._free_at = 0.0
        self._lock = threading.Lock()
        self._stop = stop

    def turn(self) -> None:
        """Wait until the next request may go out."""
        with self._lock:
            at = max(self._free_at, time.monotonic())
            self._free_at = at + self._gap
        self.rest(at - time.monotonic())

    def hold(self, seconds: float) -> None:
        """Let no request go out for a while."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic() + seconds)

    def rest(self, seconds: float) -> None:
        """Wait, unless everything was stopped."""
        if (seconds > 0 and self._stop.wait(seconds)) or self._stop.is_set():
            raise AskError("stopped")


class Endpoint:
    """An endpoint that speaks the OpenAI chat protocol; safe to use from several threads."""

    def __init__(self, source: Source, limits: RateLimits, stop: threading.Event) -> None:
        assert source.base_url is not None
        self.source, self.limits = source, limits
        self.address, self.host = chat_address(source.base_url), endpoint_host(source)
        self._key = endpoint_key(source)
        self._pace = Pace(limits.per_minute, stop)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        timeout = httpx.Timeout(limits.timeout, connect=min(20.0, limits.timeout), pool=None)
        connections = httpx.Limits(max_connections=limits.concurrency)
        self._client = httpx.Client(headers=headers, timeout=timeout, limits=connections)
        self.close = self._client.close

    def ask(self, prompt: str) -> Answer:
        """Ask for one response.

        Raises AskError if this prompt got no answer, also after all repetitions; AtlasError if no prompt will get one.
        """
        attempts = self.limits.retries + 1
        retrying = Retrying(
            retry=retry_if_exception_type(_TryAgainError), stop=stop_after_attempt(attempts), wait=self._pause,
            sleep=self._pace.rest, reraise=True,
        )  # fmt: skip
        try:
            return retrying(self._ask_once, prompt)
        except _TryAgainError as error:
            raise AskError(f"{error} ({attempts} attempts)") from None

    def _pause(self, state: RetryCallState) -> float:
        """Seconds until the next attempt; where the server names them, all requests wait instead."""
        assert state.outcome is not None
        wait = getattr(state.outcome.exception(), "wait", None)
        if wait is None:
            return min(60.0, self.limits.first_pause * 2.0 ** (state.attempt_number - 1)) * random.uniform(0.75, 1.25)
        if state.attempt_number <= self.limits.retries:
            self._pace.hold(wait)
        return 0.0

    def _ask_once(self, prompt: str) -> Answer:
        self._pace.turn()
        try:
            status, headers, raw = self._post(self._request(prompt))
        except httpx.TimeoutException:
            raise _TryAgainError(f"no whole answer within {self.limits.timeout:g} s") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _TryAgainError(self._clean(str(error) or type(error).__name__)) from None
        if status != 200:
            problem = f"{self.host} answered {status}{self._message(raw)}"
            if status in (408, 409, 425, 429) or status >= 500:
                wait = retry_after(headers)
                if wait is not None and wait > _LONGEST_PAUSE:
                    raise AskError(f"{problem}, and asks for {wait:,.0f} s of patience")
                raise _TryAgainError(problem, wait)
            if status in (401, 403):
                where = f"the variable {self.source.key_env}" if self.source.key_env else "--key-env"
                raise AtlasError(problem, f"Check the key in {where} and what it may use")
            if 300 <= status < 400 or status in (404, 405):
                address = urlunsplit(urlsplit(self.address)._replace(query=""))
                raise AtlasError(problem, f"Check the address {address} and the model name '{self.source.model}'")
            raise AskError(problem)
        try:
            content = json.loads(raw)
            choice = content["choices"][0]
            text = choice["message"].get("content")
            usage = content.get("usage") or {}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise _TryAgainError(f"{self.host} sent something that is no chat completion") from error
        if text is not None and not isinstance(text, str):
            raise _TryAgainError(f"{self.host} sent a response that is no text")
        engine = {k: content[k] for k in ("model", "system_fingerprint") if isinstance(content.get(k), str)}
        reason = choice.get("finish_reason")
        counts = (usage.get(key) if isinstance(usage, dict) else None for key in ("prompt_tokens", "completion_tokens"))
        sent, written = (count if isinstance(count, int) else None for count in counts)
        return Answer(whole(text or ""), reason if isinstance(reason, str) else None, sent, written, engine)

    def _request(self, prompt: str) -> dict[str, Any]:
        source, chosen = self.source, self.source.sampling
        body = {"model": source.model, "messages": _messages(prompt, source), source.token_field: chosen.max_new_tokens}
        optional = {"temperature": chosen.temperature, "top_p": chosen.top_p, "seed": chosen.seed}
        return body | {k: v for k, v in optional.items() if v is not None}

    def _post(self, body: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and body; the time limit is for all of it, since a server may also drip."""
        deadline = time.monotonic() + self.limits.timeout
        raw = bytearray()
        with self._client.stream("POST", self.address, json=body) as answer:
            for block in answer.iter_bytes():
                raw += block
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the answer was too slow")
                if len(raw) > _ANSWER_LIMIT:
                    raise AskError(f"{self.host} sent more than {_ANSWER_LIMIT / 1e6:.0f} MB")
            return answer.status_code, answer.headers, bytes(raw)

    def _message(self, raw: bytes) -> str:
        """The server's own words, on one line and without the key."""
        text = raw.decode("utf-8", "replace")
        with contextlib.suppress(ValueError, RecursionError):
            content = json.loads(raw)
            if isinstance(content, dict):
                error = content.get("error", content)
                text = str(error.get("message", error) if isinstance(error, dict) else error)
        text = self._clean(text)
        return f" ({text})" if text else ""

    def _clean(self, text: str) -> str:
        if self._key:
            text = text.replace(self._key, "[key]")
        text = " ".join(text.split())
        return text if len(text) <= 200 else text[:199] + "…"


class _TryAgainError(Exception):
    """The server may answer later; ``wait`` is what it requested, in seconds."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


def endpoint_key(source: Source) -> str:
    """The key of an endpoint, from the environment; empty if the source names no variable."""
    if not source.key_env:
        return ""
    key = os.environ.get(source.key_env, "").strip()
    if not key:
        problem = f"The environment variable {source.key_env} holds no key for the source '{source.name}'"
        raise AtlasError(problem, f"Set it: export {source.key_env}=...")
    if not key.isascii() or not key.isprintable() or " " in key:
        problem = f"What the environment variable {source.key_env} holds cannot be a key (spaces or unusual characters)"
        raise AtlasError(problem, "Set it again")
    return key


def endpoint_host(source: Source) -> str:
    """Host and port of an endpoint: all of its address that is ever recorded."""
    return urlsplit(source.base_url or "").netloc


def chat_address(base_url: str) -> str:
    """Address of the chat completions below a base URL, http or https and without a password."""
    parts = urlsplit(base_url)
    named = False
    with contextlib.suppress(ValueError):  # a port that is no number, or none there is
        named = bool(parts.hostname) and parts.port != 0
    if parts.scheme not in ("http", "https") or not named:
        raise AtlasError(f"'{base_url}' is not the address of an endpoint", "Write http://... or https://...")
    if parts.username or parts.password:
        problem = f"The address of {parts.hostname} holds a name or password"
        raise AtlasError(problem, "Put the key into a variable and name it")
    path = parts.path.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
    return urlunsplit(SplitResult(parts.scheme, parts.netloc, path, parts.query, ""))


def exposes_key(source: Source) -> bool:
    """Whether a key would travel unencrypted to another machine."""
    parts = urlsplit(source.base_url or "")
    near = parts.hostname in ("localhost", "127.0.0.1", "::1")
    return bool(source.key_env) and parts.scheme == "http" and not near


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from a number or a date; None if it says nothing that can be read."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return None

"""Proxies and encoders that are in memory, and the attributors that read with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from backend.attribution.scoring import Attributor
from backend.enrolment.auxiliary_models import models_beside, named
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.methods.sentence_encoder import SentenceEncoder
from backend.proxies.reader import Reader
from backend.proxies.registry import load_reader, proxy_hash

MODELS = 2  # proxies, and encoders, that are in memory at a time, unless an enrolment asks for more
Model = TypeVar("Model")
Loaded = tuple[Reader, str | None]


def from_registry(proxy: str, device: str = "auto") -> Loaded:
    """A registered proxy and the hash of its weights."""
    return load_reader(proxy, device), proxy_hash(proxy)


def encoder_from_registry(name: str, device: str = "auto") -> tuple[SentenceEncoder, str | None]:
    """A registered encoder and the hash of its weights."""
    return SentenceEncoder(name, device), proxy_hash(name)


@dataclass
class Models:
    """What is loaded; used from one thread only.

    encode : the same of a sentence encoder.
    """

    load: Callable[[str], Loaded] = from_registry  # name of a proxy to its reader and the hash of its weights
    encode: Callable[[str], tuple[SentenceEncoder, str | None]] = encoder_from_registry
    _readers: dict[str, Loaded] = field(default_factory=dict, repr=False)
    _encoders: dict[str, tuple[SentenceEncoder, str | None]] = field(default_factory=dict, repr=False)

    @classmethod
    def on(cls, device: str) -> Models:
        """Of the registry, on a device."""
        return cls(lambda proxy: from_registry(proxy, device), lambda name: encoder_from_registry(name, device))

    def attributor(self, enrolment: Enrolment) -> Attributor:
        """An enrolment with all that it reads with; what was used longest ago makes room.

        Raises AtlasError if weights are not here, or are others.
        """
        known = enrolment.facts.get("hashes_beside") or {}
        others: dict[str, Reader | SentenceEncoder] = {}
        asked = models_beside(enrolment)
        for reads, encodes in asked.items():
            name = named(reads)
            held, found = _taken(name, self._encoders, self.encode) if encodes else self._reader(name)
            if found and known.get(name) and found != known[name]:
                raise AtlasError(
                    f"The weights of {name} here are not those that the enrolment '{enrolment.name}' was made with "
                    f"({found[:12]} and {str(known[name])[:12]})",
                    f"Run: python -m jobs proxies install {name}, or make the enrolment again",
                )
            others[reads] = held
        reader, found = self._reader(enrolment.proxy)
        for cache, needed in ((self._readers, 1 + len(asked)), (self._encoders, len(asked))):
            while len(cache) > max(MODELS, needed):
                cache.pop(next(iter(cache)))
        return Attributor(reader, enrolment, found, others)

    def _reader(self, name: str) -> Loaded:
        return _taken(name, self._readers, self.load)


def _taken(name: str, cache: dict[str, Model], load: Callable[[str], Model]) -> Model:
    """The model of a name, loaded where it is not held; the last one that was asked for stands last."""
    held = cache.pop(name) if name in cache else load(name)
    cache[name] = held
    return held

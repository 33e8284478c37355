"""Proxies and encoders that are in memory, and the attributors that read with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from backend.audit.attributor import Attributor
from backend.audit.beside import models_beside
from backend.audit.enrolment import Enrolment
from backend.baselines.embeddings import SentenceEncoder
from backend.errors import AtlasError
from backend.proxies.reader import Reader
from backend.proxies.registry import load_reader, proxy_hash

PROXIES = 2
"""Models that are in memory at a time, unless an enrolment asks for more."""
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

    Attributes
    ----------
    load : callable
        Name of a proxy to its reader and the hash of its weights.
    encode : callable
        The same of a sentence encoder.
    """

    load: Callable[[str], Loaded] = from_registry
    encode: Callable[[str], tuple[SentenceEncoder, str | None]] = encoder_from_registry
    _held: dict[tuple[str, bool], tuple[Reader | SentenceEncoder, str | None]] = field(default_factory=dict, repr=False)

    @classmethod
    def on(cls, device: str) -> Models:
        """Of the registry, on a device."""
        return cls(lambda proxy: from_registry(proxy, device), lambda name: encoder_from_registry(name, device))

    def attributor(self, enrolment: Enrolment) -> Attributor:
        """An enrolment with all that it reads with; what was used longest ago makes room.

        Raises
        ------
        AtlasError
            If weights are not here, or are others.
        """
        beside = models_beside(enrolment)
        known = enrolment.facts.get("hashes_beside") or {}
        others = {}
        for name, encodes in beside.items():
            others[name], found = self._one(name, encodes)
            if found and known.get(name) and found != known[name]:
                raise AtlasError(
                    f"The weights of {name} here are not those that the enrolment '{enrolment.name}' was made with "
                    f"({found[:12]} and {str(known[name])[:12]})",
                    f"Run: python -m jobs proxies install {name}, or make the enrolment again",
                )
        reader, found = self._one(enrolment.proxy, False)
        assert isinstance(reader, Reader)
        while len(self._held) > max(PROXIES, 1 + len(beside)):
            self._held.pop(next(iter(self._held)))
        return Attributor(reader, enrolment, found, others)

    def _one(self, name: str, encodes: bool) -> tuple[Reader | SentenceEncoder, str | None]:
        held = self._held.pop((name, encodes), None) or (self.encode if encodes else self.load)(name)
        self._held[name, encodes] = held
        return held

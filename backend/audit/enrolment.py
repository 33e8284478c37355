"""An enrolment: everything that is needed to score traces against known sources (paper, Stage 1 and Stage 2).

Frozen sources, blocks, linear probes, prior and hashes in one small file without any text of the responses it was made
from. Where it holds a probe for every prompt fold, a trace whose prompt was enrolled is scored by the probe that never
saw that prompt, and any other trace by the mean of the fold probes' log-posteriors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.probe import LinearProbe
from backend.traces import View

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
FORMAT = 1
BLOCKS: Mapping[str, tuple[int, ...]] = {"dc": (0,), "ac": (1,), "dc-ac": (0, 1)}
"""Modes of every spectral block that a probe may read."""


@dataclass(frozen=True)
class Head:
    """One fitted probe and where it reads.

    Attributes
    ----------
    probe : LinearProbe
    layer : int
        Block of the proxy, from 1.
    fold : int or None
        Prompt fold that it was not trained on; None for a probe fitted on everything.
    """

    probe: LinearProbe
    layer: int
    fold: int | None = None


@dataclass(frozen=True)
class Enrolment:
    """Known sources, ready to be compared with.

    Attributes
    ----------
    name : str
    reader : str
        Reader id, ``reader-paper/smollm2-135m/ur``.
    proxy : str
    view : {'ur', 'r'}
    block : str
        Spectral block that the probes read: dc, ac, dc-ac.
    sources, families : tuple of str, length C
        In the order of the probes' columns.
    heads : tuple of Head
    log_prior : ndarray of shape (C,), float64
        Log of the sources' shares in training; the score divides by it.
    prompts : ndarray of shape (P,), uint64
        First 8 bytes of the sha256 of every enrolled prompt, ascending.
    folds : ndarray of shape (P,), int16
        Fold of each of them.
    facts : mapping
        proxy_hash, data_hash, code_version, records, seed, created and whatever else says how it was made; JSON.
    attachments : mapping of str to ndarray
        Numbers that other parts of an audit fitted on the same enrolment (calibration, unknown-source reference);
        nothing here reads them.
    """

    name: str
    reader: str
    proxy: str
    view: View
    block: str
    sources: tuple[str, ...]
    families: tuple[str, ...]
    heads: tuple[Head, ...]
    log_prior: Doubles
    prompts: npt.NDArray[np.uint64]
    folds: npt.NDArray[np.int16]
    facts: Mapping[str, Any] = field(default_factory=dict)
    attachments: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    @property
    def layers(self) -> list[int]:
        """Blocks that have to be read, ascending; the pass ends at the last."""
        return sorted({head.layer for head in self.heads})

    @property
    def hidden_size(self) -> int:
        """Dimension d of the proxy."""
        return len(self.heads[0].probe.mean) // len(BLOCKS[self.block])

    def folds_of(self, prompts: Sequence[str]) -> list[int | None]:
        """Fold of every prompt that was enrolled, None for others."""
        hashes = np.array([prompt_hash(prompt) for prompt in prompts], dtype=np.uint64)
        if not len(self.prompts):
            return [None] * len(hashes)
        at = np.minimum(np.searchsorted(self.prompts, hashes), len(self.prompts) - 1)
        return [int(self.folds[i]) if self.prompts[i] == h else None for i, h in zip(at, hashes, strict=True)]

    def heads_for(self, fold: int | None) -> tuple[Head, ...]:
        """Probes that score a trace: the one that has not seen its prompt's fold, else all of them."""
        unseen = tuple(head for head in self.heads if fold is not None and head.fold == fold)
        return unseen or self.heads

    def columns(self, fingerprints: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """The part of fingerprints (n, 2 d) that the probes read."""
        d, modes = fingerprints.shape[1] // 2, BLOCKS[self.block]
        return fingerprints[:, modes[0] * d : (modes[-1] + 1) * d]

    @property
    def sha256(self) -> str:
        """Hash of all that enters an answer: names, blocks, prior, the numbers of every probe, and attachments."""
        digest = hashlib.sha256()
        digest.update(json.dumps(described(self), sort_keys=True).encode())
        arrays = arrays_of(self) | {f"attached.{name}": array for name, array in self.attachments.items()}
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def prompt_hash(prompt: str) -> int:
    """First 8 bytes of the sha256 of a prompt without spaces around it, as a number."""
    stripped = prompt.strip().encode("utf-8", "replace")
    return int.from_bytes(hashlib.sha256(stripped).digest()[:8], "big")


def prompt_table(prompts: Sequence[str], folds: Sequence[int]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int16]]:
    """Hashes, ascending, and folds of enrolled prompts; each of shape (P,)."""
    hashes = np.array([prompt_hash(prompt) for prompt in prompts], dtype=np.uint64)
    order = np.argsort(hashes, kind="stable")
    return hashes[order], np.asarray(folds, dtype=np.int16)[order]


def described(enrolment: Enrolment) -> dict[str, Any]:
    """What a file says in JSON; the facts are added there, and do not enter the hash."""
    return {
        "format": FORMAT,
        "name": enrolment.name,
        "reader": enrolment.reader,
        "proxy": enrolment.proxy,
        "view": enrolment.view,
        "block": enrolment.block,
        "sources": list(enrolment.sources),
        "families": list(enrolment.families),
        "heads": [{"layer": head.layer, "fold": head.fold} for head in enrolment.heads],
    }


def arrays_of(enrolment: Enrolment) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {
        "log_prior": enrolment.log_prior,
        "prompts": enrolment.prompts,
        "folds": enrolment.folds,
    }
    for i, head in enumerate(enrolment.heads):
        probe = head.probe
        parts = {"mean": probe.mean, "scale": probe.scale, "weight": probe.weight, "bias": probe.bias}
        arrays |= {f"head{i}.{part}": array for part, array in parts.items()}
    return arrays

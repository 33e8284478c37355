"""An enrolment: everything that is needed to score traces against known sources (paper, Stage 1 and Stage 2).

Frozen sources, blocks, linear probes, prior and hashes in one small file without any text of the responses it was made
from. Where it holds a probe for every prompt fold, a trace whose prompt was enrolled is scored by the probe that never
saw that prompt, and any other trace by the mean of the fold probes' log-posteriors.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.errors import AtlasError
from backend.probe import LinearProbe
from backend.store.database import default_data_folder
from backend.traces import VIEWS, View

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
FORMAT = 1
SIZE_LIMIT = 2_000_000
"""Bytes of a published file; beyond, weights are stored in half precision."""
BLOCKS: Mapping[str, tuple[int, ...]] = {"dc": (0,), "ac": (1,), "dc-ac": (0, 1)}
"""Modes of every spectral block that a probe may read."""
_REMEDY = "Make it again, or take another one from the data folder"


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
        digest.update(json.dumps(_description(self), sort_keys=True).encode())
        arrays = _arrays(self) | {f"attached.{name}": array for name, array in self.attachments.items()}
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


def rounded(enrolment: Enrolment) -> Enrolment:
    """The same enrolment with weights that half precision holds exactly, so that file and memory agree."""
    heads = []
    for head in enrolment.heads:
        weight = head.probe.weight.astype(np.float16).astype(np.float32)
        heads.append(replace(head, probe=replace(head.probe, weight=weight)))
    return replace(enrolment, heads=tuple(heads))


def save_enrolment(enrolment: Enrolment, path: Path) -> Enrolment:
    """Write an enrolment in one step.

    Parameters
    ----------
    enrolment : Enrolment
    path : Path
        Ends in ``.npz``.

    Returns
    -------
    Enrolment
        As the file holds it: float32 weights where that stays below 2 MB, else rounded to half precision.

    Raises
    ------
    AtlasError
        If the folder cannot be written.
    """
    bytes_single = sum(array.nbytes for array in _arrays(enrolment).values())
    half = bytes_single > SIZE_LIMIT
    kept = rounded(enrolment) if half else enrolment
    arrays = _arrays(kept) | {f"attached.{name}": array for name, array in kept.attachments.items()}
    if half:
        arrays = {
            name: array.astype(np.float16) if name.endswith(".weight") else array for name, array in arrays.items()
        }
    text = json.dumps(_description(kept) | {"facts": dict(kept.facts)}, sort_keys=True, ensure_ascii=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.stem}.partial.npz")
        np.savez_compressed(scratch, description=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
        scratch.replace(path)
    except OSError as error:
        raise AtlasError(
            f"The enrolment cannot be written to {path} ({error.strerror})", "Choose a folder that you may write to"
        ) from error
    return kept


def load_enrolment(path: Path) -> Enrolment:
    """Read an enrolment; nothing in it is executed or unpickled.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Enrolment

    Raises
    ------
    AtlasError
        If there is no such file, or it is not a whole enrolment.
    """
    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        told = json.loads(arrays.pop("description").tobytes().decode())
        if told["format"] != FORMAT:
            raise AtlasError(
                f"The enrolment {path.name} has format {told['format']}, and this program knows {FORMAT}",
                "Update the program, or make the enrolment again",
            )
        heads = tuple(
            Head(
                LinearProbe(
                    *(arrays[f"head{i}.{part}"].astype(np.float32) for part in ("mean", "scale", "weight", "bias"))
                ),
                int(entry["layer"]),
                None if entry["fold"] is None else int(entry["fold"]),
            )
            for i, entry in enumerate(told["heads"])
        )
        enrolment = Enrolment(
            name=str(told["name"]),
            reader=str(told["reader"]),
            proxy=str(told["proxy"]),
            view=next(view for view in VIEWS if view == told["view"]),
            block=str(told["block"]),
            sources=tuple(map(str, told["sources"])),
            families=tuple(map(str, told["families"])),
            heads=heads,
            log_prior=arrays["log_prior"].astype(np.float64),
            prompts=arrays["prompts"].astype(np.uint64),
            folds=arrays["folds"].astype(np.int16),
            facts=dict(told["facts"]),
            attachments={n.removeprefix("attached."): a for n, a in arrays.items() if n.startswith("attached.")},
        )
        _check(enrolment)
    except FileNotFoundError as error:
        raise AtlasError(
            f"There is no enrolment {path}", "Name one that exists: python -m jobs attribute --list"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, StopIteration, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise AtlasError(f"The enrolment {path.name} is damaged ({reason})", _REMEDY) from error
    return enrolment


def enrolments(data_folder: Path | None = None) -> dict[str, Path]:
    """Enrolments of a data folder: name to file."""
    folder = (data_folder or default_data_folder()) / "enrolments"
    return {path.stem: path for path in sorted(folder.glob("[!.]*.npz"))}


def find_enrolment(name: str | None, claimed: str | None = None, data_folder: Path | None = None) -> Enrolment:
    """Load an enrolment by name or file; without a name the only one, or the only one that knows the claimed source.

    Raises
    ------
    AtlasError
        If there is none, or more than one would do.
    """
    known = enrolments(data_folder)
    if name is not None:
        return load_enrolment(known.get(name) or Path(name))
    loaded = {key: load_enrolment(path) for key, path in known.items()}
    fitting = [key for key, one in loaded.items() if claimed is None or claimed in one.sources]
    if len(fitting) == 1:
        return loaded[fitting[0]]
    if not known:
        raise AtlasError("No enrolment is published here", "Run: python -m jobs publish, or give --enrolment FILE")
    if fitting:
        raise AtlasError(f"{len(fitting)} enrolments would do", f"Give --enrolment, one of {', '.join(fitting)}")
    raise AtlasError(
        f"No enrolment knows the source '{claimed}'", f"Look at python -m jobs attribute --list ({', '.join(known)})"
    )


def _check(enrolment: Enrolment) -> None:
    c, width = len(enrolment.sources), enrolment.hidden_size * len(BLOCKS[enrolment.block])
    if len(enrolment.families) != c or len(set(enrolment.sources)) != c or c < 2 or not enrolment.heads:
        raise ValueError("sources, families and probes do not belong together")
    numbers: list[npt.NDArray[np.floating]] = [enrolment.log_prior]
    for head in enrolment.heads:
        probe = head.probe
        shapes = (probe.mean.shape, probe.scale.shape, probe.weight.shape, probe.bias.shape)
        if shapes != ((width,), (width,), (width, c), (c,)) or head.layer < 1:
            raise ValueError("a probe has the wrong shape")
        numbers += [probe.mean, probe.scale, probe.weight, probe.bias]
    if enrolment.log_prior.shape != (c,) or enrolment.prompts.shape != enrolment.folds.shape:
        raise ValueError("the prior or the prompts have the wrong shape")
    if not all(np.isfinite(array).all() for array in numbers) or any(
        (h.probe.scale <= 0).any() for h in enrolment.heads
    ):
        raise ValueError("it holds numbers that are not finite")


def _description(enrolment: Enrolment) -> dict[str, Any]:
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


def _arrays(enrolment: Enrolment) -> dict[str, npt.NDArray[Any]]:
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

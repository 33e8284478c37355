"""Enrolments on disk: one ``.npz`` each in ``enrolments/`` of the data folder, read without ever unpickling."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.enrolment.enrolment import FORMATS, Enrolment, arrays_of, described
from backend.errors import AtlasError
from backend.methods.discriminant import DiscriminantBank, NgramBank
from backend.methods.ensemble import PROBE_PARTS, Ensemble, Head
from backend.methods.fine_tuning import TUNED, TunedEncoder
from backend.methods.ngrams import BITS, GRAMS, SETTINGS, CodedGrams, CodedNgrams, GramReadout, counted
from backend.methods.probe import LinearProbe
from backend.methods.readout import Arrays, check_shapes, inside
from backend.methods.registry import SEVERAL, TEXT
from backend.methods.stack import CELLS
from backend.spectral import FINGERPRINT_MODES
from backend.store.database import default_data_folder
from backend.traces import VIEWS

ARRAYS = {"log_prior": np.float64, "prompts": np.uint64, "folds": np.int16}
SIZE_LIMIT = 2_000_000  # bytes of a published file; beyond, weights of probes are stored in half precision


def as_stored(enrolment: Enrolment) -> Enrolment:
    """The content of a file: weights of probes in half precision where single precision would take more than 2 MB."""
    if not _halved(enrolment):
        return enrolment
    heads = [
        replace(head, probe=replace(head.probe, weight=head.probe.weight.astype(np.float16).astype(np.float32)))
        if isinstance(head.probe, LinearProbe)
        else head
        for head in enrolment.heads
    ]
    return replace(enrolment, heads=tuple(heads))


def _halved(enrolment: Enrolment) -> bool:
    return sum(array.nbytes for array in arrays_of(enrolment).values()) > SIZE_LIMIT


def save_enrolment(enrolment: Enrolment, path: Path) -> Enrolment:
    """Write an enrolment (``.npz``) in one step, and return it as the file holds it; see :func:`as_stored`."""
    half, stored = _halved(enrolment), as_stored(enrolment)
    arrays = arrays_of(stored) | {f"attached.{name}": array for name, array in stored.attachments.items()}
    if half:
        probes = {f"head{i}.weight" for i, head in enumerate(stored.heads) if isinstance(head.probe, LinearProbe)}
        arrays = {name: array.astype(np.float16) if name in probes else array for name, array in arrays.items()}
    text = json.dumps(described(stored) | {"facts": dict(stored.facts)}, sort_keys=True, ensure_ascii=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.stem}.partial.npz")
        np.savez_compressed(scratch, description=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
        scratch.replace(path)
    except OSError as error:
        problem = f"The enrolment cannot be written to {path} ({error.strerror})"
        raise AtlasError(problem, "Choose a folder that you may write to") from error
    return stored


def load_enrolment(path: Path) -> Enrolment:
    """Read an enrolment of any known format; AtlasError if it is missing, of another format or damaged."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        text = json.loads(arrays.pop("description").tobytes().decode())
        if text["format"] not in FORMATS:
            known = f"and this program knows {' and '.join(map(str, FORMATS))}"
            problem = f"The enrolment {path.name} has format {str(text['format'])[:20]}, {known}"
            raise AtlasError(problem, "Update the program, or make the enrolment again")
        parts: dict[str, Any] = {part: str(text[part]) for part in ("name", "reader", "proxy", "block")}
        parts |= {part: tuple(map(str, text[part])) for part in ("sources", "families")}
        parts |= {part: int(text[part]) for part in ("landing", "width") if text.get(part) is not None}
        parts |= {part: arrays[part].astype(kind) for part, kind in ARRAYS.items()}
        enrolment = Enrolment(
            view=next(view for view in VIEWS if view == text["view"]),
            heads=tuple(_head(arrays, i, entry) for i, entry in enumerate(text["heads"])),
            facts=dict(text["facts"]),
            attachments=inside(arrays, "attached."),
            **parts,
        )
        _check(enrolment)
    except FileNotFoundError as error:
        remedy = "Name one that exists: python -m jobs attribute --list"
        raise AtlasError(f"There is no enrolment {path}", remedy) from error
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration, EOFError, OverflowError,
        RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        remedy = "Make it again, or take another one from the data folder"
        raise AtlasError(f"The enrolment {path.name} is damaged ({reason})", remedy) from error
    return enrolment


def enrolments(data_folder: Path | None = None) -> dict[str, Path]:
    """Enrolments of a data folder: name to file."""
    folder = (data_folder or default_data_folder()) / "enrolments"
    return {path.stem: path for path in sorted(folder.glob("[!.]*.npz"))}


def _head(arrays: Mapping[str, npt.NDArray[Any]], number: int, entry: Mapping[str, Any]) -> Head:
    own, kind = inside(arrays, f"head{number}."), entry.get("kind", "probe")
    fold = None if entry["fold"] is None else int(entry["fold"])
    layers = (int(entry["layer"]),) if "layer" in entry else tuple(int(layer) for layer in entry["layers"])
    probe: LinearProbe | DiscriminantBank | NgramBank | CodedNgrams | Ensemble
    if kind == "probe":
        probe = LinearProbe(*(own[part].astype(np.float32) for part in PROBE_PARTS))
    elif kind == "bank":
        probe = DiscriminantBank(**_parts(own, DiscriminantBank))
    elif kind == "worded":
        words = CodedGrams(**_parts(inside(own, "words."), CodedGrams))
        bank = DiscriminantBank(**_parts(inside(own, "bank."), DiscriminantBank))
        probe = NgramBank(bank, words, _typed(own, "word_shares", np.float64))
    elif kind == "ensemble":
        probe = Ensemble.of(entry["members"], own)
    elif kind == "ngrams":
        known = [method for method in SETTINGS if counted(method) == entry["counts"]]
        if not known or layers:
            raise ValueError("a head counts n-grams in a way that is not known")
        probe = CodedNgrams(**_parts(own, CodedNgrams), method=known[0])
    else:
        raise ValueError(f"a head is a {str(kind)[:20]}")
    return Head(probe, layers, fold)


def _parts(arrays: Mapping[str, npt.NDArray[Any]], readout: type[Arrays]) -> dict[str, Any]:
    """Arrays of a readout; a name of what n-grams count is none."""
    kinds = {part: readout.TYPES.get(part, np.float32) for part in readout.SHAPES}
    return {part: _typed(arrays, part, kind) for part, kind in kinds.items() if kind is not np.str_}


def _typed(arrays: Mapping[str, npt.NDArray[Any]], name: str, kind: type[np.generic]) -> npt.NDArray[Any]:
    if arrays[name].dtype != kind:
        raise ValueError(f"the {name} of a head have the wrong type")
    return arrays[name]


def _check(enrolment: Enrolment) -> None:
    """Raise ValueError where the parts do not belong together."""
    c = len(enrolment.sources)
    if len(enrolment.families) != c or len(set(enrolment.sources)) != c or c < 2 or not enrolment.heads:
        raise ValueError("sources, families and probes do not belong together")
    if not enrolment.layers or enrolment.layers[0] < 1:
        raise ValueError("a probe has the wrong shape")
    if enrolment.log_prior.shape != (c,) or enrolment.prompts.shape != enrolment.folds.shape:
        raise ValueError("the prior or the prompts have the wrong shape")
    for head in enrolment.heads:
        if isinstance(head.probe, CodedNgrams):
            _check_sizes(head.probe, "a classifier of n-grams", B=2, C=c)
            _check_columns(head.probe.columns, head.probe.settings.buckets)
        elif isinstance(head.probe, Ensemble):
            _check_ensemble(enrolment, head.probe, head.layers)
        else:
            _check_states(enrolment, head)
    methods = {head.probe.method if isinstance(head.probe, CodedNgrams) else None for head in enrolment.heads}
    kinds = {type(head.probe) for head in enrolment.heads}
    if (
        len(methods) > 1
        or len(kinds) > 1
        or (methods == {None}) == (enrolment.block == TEXT)
        or (kinds == {Ensemble}) != (enrolment.block == SEVERAL)
        or enrolment.hidden_size < 1
    ):
        raise ValueError("the heads do not read the same")
    if not all(np.isfinite(array).all() for array in arrays_of(enrolment).values() if array.dtype.kind == "f"):
        raise ValueError("it holds numbers that are not finite")


def _check_states(enrolment: Enrolment, head: Head) -> None:
    probe = head.probe.bank if isinstance(head.probe, NgramBank) else head.probe
    if not isinstance(probe, Arrays) or not enrolment.form or not head.layers or min(head.layers) < 1:
        raise ValueError("a probe has the wrong shape")
    width, c = enrolment.hidden_size * len(enrolment.form.vectors) * len(head.layers), len(enrolment.sources)
    _check_sizes(probe, "a probe", D=width, C=c, L=CELLS)
    if isinstance(head.probe, NgramBank):
        _check_sizes(head.probe.words, "a classifier of n-grams", C=c)
        _check_columns(head.probe.words.columns, 1 << BITS)
        if head.probe.word_shares.shape != (CELLS,):
            raise ValueError("a classifier of n-grams has the wrong shape")


def _check_ensemble(enrolment: Enrolment, ensemble: Ensemble, layers: tuple[int, ...]) -> None:
    """See that the members know the sources, and read what there is."""
    own = set[int]()
    if ensemble.shares.shape != (CELLS, len(ensemble.members)):
        raise ValueError("the members of a head have the wrong weights")
    for member in ensemble.members:
        if member.model.shape[1] != len(enrolment.sources) or (min(member.layers, default=1) < 1):
            raise ValueError("a member of a head has the wrong shape")
        if isinstance(member.model, GramReadout):
            if member.reads not in GRAMS or member.layers:
                raise ValueError("a member of a head counts n-grams in a way that is not known")
            _check_columns(member.model.columns, 1 << GRAMS[member.reads].bits)
        elif isinstance(member.model, TunedEncoder) != member.reads.endswith(f":{TUNED}"):
            raise ValueError("a member of a head reads in a way that is not known")
        elif member.reads == enrolment.proxy:
            own.update(member.layers)
            if member.model.shape[0] != FINGERPRINT_MODES * enrolment.hidden_size * len(member.layers):
                raise ValueError("a member of a head has the wrong shape")
        elif bool(member.layers) == (":" in member.reads):
            raise ValueError("a member of a head reads in a way that is not known")
    if own != set(layers):
        raise ValueError("a head does not read the blocks that its members do")


def _check_sizes(readout: Arrays, name: str, **expected: int) -> None:
    """See that arrays fit together, and that the letters of their shapes are these numbers where they occur."""
    sizes = check_shapes(readout.SHAPES, readout.to_arrays())
    if any(sizes.get(letter, size) != size for letter, size in expected.items()):
        raise ValueError(f"{name} has the wrong shape")


def _check_columns(columns: npt.NDArray[np.integer], buckets: int) -> None:
    if columns.ndim != 1 or not len(columns):
        raise ValueError("a classifier of n-grams has the wrong shape")
    if columns[0] < 0 or columns[-1] >= buckets or (np.diff(columns) <= 0).any():
        raise ValueError("the n-grams of a head are in no order")

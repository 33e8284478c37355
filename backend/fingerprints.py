"""Fingerprints on disk, written in shards, resumable, read without copying.

One float16 array a (benchmark, proxy, view, layer, variant), in the row order of the benchmark. A shard of rows is done
when its line stands in the journal, which is written after its bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.errors import AtlasError
from backend.output_files import lock
from backend.traces import View

Half = npt.NDArray[np.float16]
Ints = npt.NDArray[np.intp]
_IDENTITY = ("rows", "hidden_size", "records", "proxy_hash", "engine", "max_tokens", "span")  # names in a manifest


def cache_folder() -> Path:
    """The folder for everything that can be computed again (``ATLAS_CACHE``, else the user's cache folder)."""
    given = os.environ.get("ATLAS_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "provenance-atlas"


@dataclass(frozen=True)
class StoreKey:
    """What a store holds: fingerprints of one benchmark, read by one proxy in one view."""

    benchmark: str
    proxy: str
    view: View

    @property
    def folder(self) -> Path:
        """Where the arrays lie under the cache folder."""
        return Path("fingerprints") / self.benchmark / self.proxy / self.view


@dataclass(frozen=True)
class StoreIdentity:
    """Everything that must agree before two runs may write into one store."""

    rows: int  # number of records of the benchmark
    hidden_size: int  # proxy dimension ``d``
    records: str  # hash over the record keys and texts in row order
    proxy_hash: str  # hash of the proxy's weight file
    engine: str  # how the forward pass was computed (type of products, fused or not)
    max_tokens: int
    span: str

    def as_dict(self) -> dict[str, Any]:
        """Names and values in a manifest; the names never change."""
        return {name: getattr(self, name) for name in _IDENTITY}

    @classmethod
    def from_dict(cls, manifest: Mapping[str, Any]) -> StoreIdentity:
        """The inverse of :meth:`as_dict`; KeyError or ValueError where names are missing or unknown."""
        if unknown := manifest.keys() - {*_IDENTITY}:
            raise ValueError(f"unknown names {', '.join(sorted(unknown))}")
        return cls(**{name: manifest[name] for name in _IDENTITY})

    def as_text(self) -> str:
        """Words by which saved scores name their fingerprints; they never change."""
        return f"StoreIdentity({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"


class FingerprintStore:
    """Arrays of one (benchmark, proxy, view) on disk.

    root : cache folder, by default :func:`cache_folder`. part : rank and number of ranks, for the share of one rank.
    """

    def __init__(self, key: StoreKey, root: Path | None = None, part: tuple[int, int] | None = None) -> None:
        self.key, self.part, self._root = key, part, root
        self.path = (root or cache_folder()) / key.folder / ("part-{}-of-{}".format(*part) if part else "")

    @property
    def whole(self) -> FingerprintStore:
        """The store that a part is merged into; the store itself where it is no part."""
        return FingerprintStore(self.key, self._root) if self.part else self

    def parts(self, ranks: int | None = None) -> list[FingerprintStore]:
        """Parts of so many ranks, by default of as many as their folders name; AtlasError where those disagree."""
        names = (re.fullmatch(r"part-\d+-of-([1-9]\d*)", folder.name) for folder in self.path.glob("part-*"))
        worlds = sorted({int(name[1]) for name in names if name})
        ranks = worlds[0] if ranks is None and len(worlds) == 1 else ranks
        if ranks not in worlds:
            found = f"parts of {' and of '.join(map(str, worlds))} ranks" if worlds else "no parts of ranks"
            remedy = "Name one of these with --world" if worlds else f"{self._command()} --rank 0 --world 2"
            raise AtlasError(f"There are {found} in {self.path}", remedy)
        return [FingerprintStore(self.key, self._root, (rank, ranks)) for rank in range(ranks)]

    @property
    def _manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def _journal(self) -> Path:
        return self.path / "shards.jsonl"

    def identity(self) -> StoreIdentity | None:
        """The identity that the store was opened with, None for an empty store."""
        if not self._manifest.exists():
            return None
        try:
            return StoreIdentity.from_dict(json.loads(self._manifest.read_text("utf-8")))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise AtlasError(f"{self._manifest} is damaged ({error})", f"Remove the folder {self.path}") from error

    @contextlib.contextmanager
    def writing(self, identity: StoreIdentity) -> Iterator[None]:
        """Lock the store; AtlasError if it is locked, cannot be written, or holds fingerprints of something else."""
        problem = f"Another process is writing fingerprints to {self.path}"
        busy = AtlasError(problem, "Wait until it has finished, or set ATLAS_CACHE to another folder")
        with contextlib.ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock(self.path / "lock", busy))
                self.agree(identity.as_dict())
                self.whole.agree(identity.as_dict())  # a part that cannot be merged is refused before it is read
                if self.identity() is None:
                    scratch = self._manifest.with_name(f"{self._manifest.name}.{os.getpid()}")
                    scratch.write_text(json.dumps(identity.as_dict(), indent=1), "utf-8")
                    scratch.replace(self._manifest)
            except OSError as error:
                raise self._unwritable(error) from error
            yield

    def agree(self, needed: Mapping[str, object]) -> None:
        """Refuse a store whose identity differs in one of these names; an empty one agrees with everything."""
        identity = self.identity()
        present = identity.as_dict() if identity else {}
        changed = [name for name, value in needed.items() if present and present[name] != value]
        if changed:
            problem = f"The fingerprints in {self.path} were made from something else ({', '.join(changed)} differ)"
            raise AtlasError(problem, self._again("set ATLAS_CACHE to another one"))

    def check_records(self, records: str, where: Path) -> None:
        """Refuse fingerprints of other records than those in a folder, by their hash; an empty store passes."""
        present = self.identity()
        if present and present.records != records:
            command = self._command().removeprefix("Run")
            problem = f"The fingerprints in {self.path} were read from other records than those of {self.key.benchmark}"
            remedy = f"Remove that folder and run{command}, or name the release that they were read from with --release"
            raise AtlasError(f"{problem} in {where}", remedy)

    def done(self) -> dict[str, dict[str, list[str]]]:
        """Finished shards: name to {layer: variants}; a torn last line of the journal is ignored."""
        out: dict[str, dict[str, list[str]]] = {}
        for entry in self._lines():
            of_shard = out.setdefault(entry["shard"], {})
            for layer, variants in entry["arrays"].items():
                of_shard[layer] = sorted({*of_shard.get(layer, []), *variants})
        return out

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self._journal.exists():
            return
        for line in self._journal.read_text("utf-8", errors="replace").splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # torn by a process that died
                yield json.loads(line)

    def journal(self) -> dict[str, dict[str, Any]]:
        """Last line of every finished shard, with the sha256 of its arrays in a part."""
        out: dict[str, dict[str, Any]] = {}
        for entry in self._lines():
            earlier = out.get(entry["shard"], {}).get("sha256", {})
            out[entry["shard"]] = entry | {"sha256": earlier | entry.get("sha256", {})}
        return out

    def read_shard(self, shard: str, rows: Ints, layer: int, variant: str, sha256: Mapping[str, str]) -> Half:
        """Array (m, width) of one shard of a part; AtlasError if its bytes are not those of ``sha256``."""
        path = self.array_path(layer, variant)
        with contextlib.suppress(AtlasError, ValueError, IndexError):  # the file is missing or cut off
            block = np.ascontiguousarray(self.load(layer, variant)[rows])
            if hashlib.sha256(block.tobytes()).hexdigest() == sha256.get(f"{layer}.{variant}"):
                return block
        problem = f"{path.name} in {self.path} was changed after shard {shard} was read (sha256 differs)"
        raise AtlasError(problem, self._again())

    def incomplete(self, missing: int, shards: int) -> AtlasError:
        """The error where a rank has not read all of its share."""
        problem = f"{missing} of {shards} shards of this rank are missing in {self.path}"
        return AtlasError(problem, f"{self._command()}; it continues where it stopped")

    def seconds(self, shards: Sequence[str], layers: Sequence[int]) -> tuple[int, float]:
        """Records and seconds of the passes that read exactly these blocks of these shards, over all runs."""
        named, needed = set(shards), {str(layer) for layer in layers}
        lines = [e for e in self._lines() if e["shard"] in named and set(e["arrays"]) == needed and "seconds" in e]
        return sum(e["rows"] for e in lines), sum(e["seconds"] for e in lines)

    def write_shard(
        self, name: str, rows: Ints, arrays: Mapping[tuple[int, str], Half], seconds: float | None = None
    ) -> None:
        """Write the arrays (m, width) of one shard with ascending rows (m,), then its journal line."""
        identity = self.identity()
        assert identity is not None, "write_shard needs writing()"
        runs = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) != 1) + 1)
        variants: dict[str, list[str]] = {}
        digests: dict[str, str] = {}
        try:
            for (layer, variant), array in arrays.items():
                block = np.ascontiguousarray(array, dtype=np.float16)
                stride = block.shape[1] * block.itemsize
                handle = os.open(self.array_path(layer, variant), os.O_WRONLY | os.O_CREAT, 0o644)
                with os.fdopen(handle, "wb") as file:
                    if os.fstat(handle).st_size != identity.rows * stride:
                        file.truncate(identity.rows * stride)
                    for run in runs:
                        _pwrite(handle, block[run[0] : run[-1] + 1].tobytes(), int(rows[run[0]]) * stride)
                variants.setdefault(str(layer), []).append(variant)
                if self.part:
                    digests[f"{layer}.{variant}"] = hashlib.sha256(block.tobytes()).hexdigest()
            entry: dict[str, Any] = {"shard": name, "rows": len(rows), "arrays": variants}
            if seconds is not None:
                entry["seconds"] = round(seconds, 3)
            if digests:
                entry["sha256"] = digests  # a merge compares them
            _append_line(self._journal, json.dumps(entry))
        except OSError as error:
            raise self._unwritable(error) from error

    def _command(self) -> str:
        key = self.key
        run, end = "Run", ""
        if self.part:
            run, end = "Run with the options of the other ranks", " --rank {} --world {}".format(*self.part)
        return f"{run}: python -m jobs extract --benchmark {key.benchmark} --proxy {key.proxy} --view {key.view}{end}"

    def _again(self, otherwise: str = "") -> str:
        return "Remove that folder" + (f". {self._command()}" if self.part else f", or {otherwise}")

    def _unwritable(self, error: OSError) -> AtlasError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "Free some space, or set ATLAS_CACHE to a larger disk, and run the same command again"
            return AtlasError(f"The disk that holds {self.path} is full; finished shards are kept", remedy)
        problem = f"Fingerprints cannot be written to {self.path} ({error.strerror})"
        return AtlasError(problem, "Point ATLAS_CACHE to a folder that you may write to")

    def array_path(self, layer: int, variant: str) -> Path:
        """File of one array."""
        return self.path / f"L{layer:02d}.{variant}.f16"

    def load(self, layer: int, variant: str = "full") -> Half:
        """Map one array (rows, m * d), float16, into memory, read-only and without copying."""
        identity, path = self.identity(), self.array_path(layer, variant)
        if identity is None or not path.exists():
            problem = f"There are no fingerprints '{variant}' of block {layer} in {self.path}"
            raise AtlasError(problem, f"{self._command()} --layers {layer}")
        mapped: Half = np.memmap(path, dtype=np.float16, mode="r").reshape(identity.rows, -1)
        return mapped

    def require(self, shards: Sequence[str], layer: int, variant: str = "full") -> Half:
        """Like :meth:`load`, after checking that every named shard holds the array."""
        done = self.done()
        missing = [s for s in shards if variant not in done.get(s, {}).get(str(layer), [])]
        if missing:
            what = f"{len(missing)} of {len(shards)} shards of block {layer} ('{variant}')"
            raise AtlasError(f"{what} are missing in {self.path}", f"{self._command()}; it continues where it stopped")
        return self.load(layer, variant)


def check_room(folder: Path, needed: int) -> None:
    """Refuse work that needs more bytes than the disk has free beyond a reserve of 1 GB."""
    probe = folder
    while not probe.exists():
        probe = probe.parent
    free = shutil.disk_usage(probe).free
    if needed + 1_000_000_000 > free:
        problem = f"This needs {needed / 1e9:.1f} GB in {folder}, and {free / 1e9:.1f} GB are free"
        remedy = "Ask for fewer layers (--layers) or lengths (--lengths), or set ATLAS_CACHE to a larger disk"
        raise AtlasError(f"{problem} (1 GB stays in reserve)", remedy)


def _pwrite(handle: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written


def _append_line(path: Path, line: str) -> None:
    with path.open("a+b") as file:
        size = file.tell()
        torn = size and os.pread(file.fileno(), 1, size - 1) != b"\n"  # a line of a killed process ends here
        file.write((b"\n" if torn else b"") + f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def describe(value: Any) -> str:
    """A byte count for people."""
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"

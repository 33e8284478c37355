"""The public release on disk: prompts, rosters, responses, Bench-A, and their hashes (paper, Data).

The key of a record is (benchmark, source, sample_id). Rows are in roster order, prompts ascending; every roster is a
prefix of the longest one.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pandas as pd

from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.traces import Trace

Benchmark = Literal["agent500", "math100"]
BENCHMARKS: tuple[Benchmark, ...] = ("agent500", "math100")
ROSTERS = ("50-way", "100-way", "165-way")

PairSet = Literal["pair_disjoint", "disjoint_union"]
SplitSet = Literal["pair_disjoint", "model_disjoint", "family_disjoint"]
SPLIT_PAIRS: Mapping[SplitSet, PairSet] = {
    "pair_disjoint": "pair_disjoint", "model_disjoint": "disjoint_union", "family_disjoint": "disjoint_union"
}  # fmt: skip
SCHEMA_VERSION = 1
_FETCH = "Run: python -m jobs fetch, or give the release's folder with --release"
_AGAIN = "Run: python -m jobs fetch, which replaces damaged files"


@dataclass(frozen=True)
class Records:
    """All records of one benchmark for the longest roster, in row order."""

    benchmark: str
    sources: list[str]  # length S; labels in roster order (Bench-A: models in the order of its list)
    prompt_ids: list[str]  # length P; ascending
    traces: list[Trace]  # length S * P; row = source * P + prompt
    keys: list[str]  # length S * P; ``benchmark/source/sample_id``


@dataclass(frozen=True, slots=True)
class ListedFile:
    path: str  # below ``data/``, with forward slashes
    sha256: str  # of the file as it lies on disk
    jsonl_sha256: str | None = None  # of the uncompressed lines, for gzipped JSONL
    records: int | None = None  # number of lines, for gzipped JSONL
    size: int | None = None  # bytes on disk

    @property
    def responses(self) -> int:
        """Records that are responses of a source (not prompts, not pairs)."""
        return (self.records or 0) if "responses" in PurePosixPath(self.path).parts[:-1] else 0


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a check found: files of the manifest, all of them right."""

    files: int
    responses: int  # prompt-response records in them
    size: int  # bytes on disk
    hashed: int  # files read in this check; the others were unchanged since an earlier one


@dataclass(frozen=True)
class Split:
    """One division of Bench-A's pairs, by their ids."""

    number: int
    train: list[str]
    test: list[str]
    held_out_families: list[str]  # not in train (family-disjoint), or their child models are not (model-disjoint)


@dataclass(frozen=True)
class Release:
    """A folder that holds the public release. root : folder with ``data/`` and, optionally, ``results/``."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def manifest_path(self) -> Path:
        return self.data / "manifests" / "release.json"

    @cached_property
    def manifest(self) -> dict[str, Any]:
        try:
            raw = self.manifest_path.read_bytes()
        except OSError as error:
            problem = f"There is no release in {self.root} ({self.manifest_path.relative_to(self.root)} cannot be read)"
            raise AtlasError(problem, "Run: python -m jobs fetch, or give its folder with --release") from error
        return parse_manifest(raw, self.manifest_path)

    @cached_property
    def manifest_hash(self) -> str:
        """sha256 of the manifest file: the identity of the data."""
        self.manifest  # noqa: B018 - a missing release speaks first
        return hashlib.sha256(self.manifest_path.read_bytes()).hexdigest()

    @cached_property
    def listed(self) -> list[ListedFile]:
        """Files of the manifest, each once, in its order."""
        return listed_files(self.manifest, self.manifest_path)

    def roster(self, name: str = "165-way") -> pd.DataFrame:
        """Sources of a roster, in its order; ``plot_family`` is the one for grouping; missing values are None."""
        if name not in ROSTERS:
            raise AtlasError(f"There is no roster '{name}'", f"Choose one of {', '.join(ROSTERS)}")
        columns = ["label", "repo_id", "family", "plot_family", "source", "model_id"]
        rows = _read_list(self.data / "rosters" / f"{name}.json", ("label", "plot_family"), str)
        return pd.DataFrame([{c: row.get(c) for c in columns} for row in rows], columns=columns, dtype=object)

    def roster_sizes(self) -> tuple[int, ...]:
        return tuple(len(_read_list(self.data / "rosters" / f"{name}.json")) for name in ROSTERS)

    def prompts(self, benchmark: Benchmark) -> pd.DataFrame:
        """Prompts of a benchmark, ascending; category has ten values on Agent500, else it is None."""
        return _read_prompts(self.data / "prompts" / f"{benchmark}.jsonl.gz", "category")

    def records(self, benchmark: Benchmark) -> Records:
        """Read all responses of a benchmark: one response of every source to every prompt."""
        prompts, folder = self.prompts(benchmark), self.data / "responses" / benchmark
        files = {label: folder / f"{label}.jsonl.gz" for label in self.roster("165-way")["label"]}
        return _grid(benchmark, files, prompts)

    def bench_models(self) -> pd.DataFrame:
        """Models of Bench-A, in the order of its list; ``response_path`` is below ``data/``."""
        columns = ["model", "parent_family", "is_parent", "response_path"]
        rows = _read_list(self.data / "bench_a" / "models.json", columns)
        return pd.DataFrame([{c: row[c] for c in columns} for row in rows], columns=columns)

    def bench_prompts(self) -> pd.DataFrame:
        """Prompts of Bench-A, ascending by sample id."""
        return _read_prompts(self.data / "bench_a" / "prompts.jsonl.gz")

    def bench_records(self) -> Records:
        """Read all responses of Bench-A; sources are its models, empty responses stay."""
        prompts, models = self.bench_prompts(), self.bench_models()
        files = {m: self.data / p for m, p in zip(models["model"], models["response_path"], strict=True)}
        return _grid("bench_a", files, prompts)

    def pairs(self, name: PairSet) -> pd.DataFrame:
        """Pairs of models: 116 of the main protocol, or 1,647 of the two strict ones, with ids of their own."""
        path = self.data / "bench_a" / "pairs" / f"{name}.jsonl.gz"
        columns, rows = ["pair_id", "model_a", "model_b", "parent_a", "parent_b"], []
        for number, row in read_jsonl_gz(path):
            rows.append({c: _text(path, number, row, c) for c in columns} | {"related": row.get("label") == 1})
            if row.get("label") not in (0, 1):
                raise AtlasError(f"{path}, line {number}, has no label 0 or 1", _AGAIN)
        frame = pd.DataFrame(rows, columns=[*columns, "related"])
        if len(twice := frame["pair_id"][frame["pair_id"].duplicated()]):
            raise AtlasError(f"{path} holds the pair '{twice.iloc[0]}' twice", _AGAIN)
        return frame

    def splits(self, name: SplitSet) -> list[Split]:
        """Splits of Bench-A's pairs; :data:`SPLIT_PAIRS` names the pairs that they divide."""
        path = self.data / "bench_a" / "splits" / f"{name}.json"
        known = set(self.pairs(SPLIT_PAIRS[name])["pair_id"])
        content = _read_json(path)
        if not isinstance(content, dict) or not isinstance(content.get("splits"), list):
            raise AtlasError(f"{path} does not hold a list of splits", _AGAIN)
        out = []
        for number, row in enumerate(content["splits"]):
            try:
                lists = row["train_pair_ids"], row["test_pair_ids"], row.get("held_out_parent_families", [])
                split = Split(int(row["split_id"]), *map(list, lists))
            except (KeyError, TypeError, ValueError) as error:
                raise AtlasError(f"{path}, split {number}, is not complete ({error})", _AGAIN) from error
            if unknown := {*split.train, *split.test} - known:
                raise AtlasError(f"{path}, split {number}, names the unknown pair '{min(unknown)}'", _AGAIN)
            if both := set(split.train) & set(split.test):
                raise AtlasError(f"{path}, split {number}, has the pair '{min(both)}' on both sides", _AGAIN)
            out.append(split)
        return out

    def verify(self, progress: Callable[[int, int], None] | None = None, *, remember: bool = True) -> Inventory:
        """Check every file of the manifest; AtlasError names the first one that is missing or wrong.

        A file that was right at an earlier check and has not changed is not read again, unless ``remember`` is False;
        that memory lies in the cache folder. ``progress`` gets (files done, files).
        """
        stamps = Stamps(self.root)
        hashed = size = 0
        try:
            for number, listed in enumerate(self.listed, start=1):
                path = self.data / listed.path
                if not (remember and stamps.right(path, listed)):
                    check_file(path, listed)
                    stamps.add(path, listed)
                    hashed += 1
                size += path.stat().st_size
                if progress:
                    progress(number, len(self.listed))
        finally:
            stamps.save()
        return Inventory(len(self.listed), sum(f.responses for f in self.listed), size, hashed)


def default_release() -> Path:
    """Where the release lies: ``ATLAS_RELEASE``, else ``release/`` in the cache folder."""
    given = os.environ.get("ATLAS_RELEASE")
    return Path(given).expanduser() if given else cache_folder() / "release"


def read_jsonl_gz(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a gzipped JSONL file; AtlasError names file and line."""
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise AtlasError(f"{path}, line {number}, is not a JSON object", _AGAIN)
                    yield number, row
    except FileNotFoundError as error:
        raise AtlasError(f"{path} does not exist", _FETCH) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise AtlasError(f"{path} is damaged after line {number} (truncated or corrupt gzip)", _AGAIN) from error
    except UnicodeDecodeError as error:
        raise AtlasError(f"{path} is not UTF-8 after line {number}", _AGAIN) from error
    except ValueError as error:
        raise AtlasError(f"{path}, line {number}, is not valid JSON ({error})", _AGAIN) from error
    except OSError as error:
        raise AtlasError(f"{path} cannot be read ({error.strerror or error})", _FETCH) from error


def parse_manifest(raw: bytes, path: Path | str) -> dict[str, Any]:
    """The manifest of some bytes; AtlasError if it is not a JSON object, or of a newer schema."""
    try:
        manifest = json.loads(raw)
    except ValueError as error:
        raise AtlasError(f"{path} is not valid JSON ({error})", _AGAIN) from error
    except RecursionError as error:
        raise AtlasError(f"{path} is nested too deeply for a manifest", _AGAIN) from error
    if not isinstance(manifest, dict):
        raise AtlasError(f"{path} is not a JSON object", _AGAIN)
    version = manifest.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        problem = f"{path} has schema version {version}, and this program reads up to {SCHEMA_VERSION}"
        raise AtlasError(problem, "Update the program, or fetch an older release")
    return manifest


def listed_files(manifest: Mapping[str, Any], path: Path | str = "release.json") -> list[ListedFile]:
    """Every file that a manifest lists, wherever it stands in it.

    An entry has ``path`` and ``sha256`` (or ``gzip_sha256`` and ``jsonl_sha256``), or ``roster`` and ``roster_sha256``.
    Raises AtlasError without a hash, for a path outside the data folder or two hashes of one file.
    """
    found: dict[str, ListedFile] = {}
    for entry in _entries(manifest, path):
        parts = PurePosixPath(entry.path).parts
        if not parts or entry.path.startswith("/") or ".." in parts or "\\" in entry.path or "\0" in entry.path:
            raise AtlasError(f"{path} lists '{entry.path}', which is not a path inside the data folder", _AGAIN)
        if found.setdefault(entry.path, entry) != entry:
            raise AtlasError(f"{path} lists {entry.path} twice with different hashes", _AGAIN)
    if not found:
        raise AtlasError(f"{path} lists no files", _AGAIN)
    return list(found.values())


def _entries(node: Any, path: Path | str) -> Iterator[ListedFile]:
    if isinstance(node, Mapping):
        name, roster = node.get("path"), node.get("roster")
        if isinstance(roster, str):
            yield ListedFile(roster, _hash(node, "roster_sha256", roster, path))
        if isinstance(name, str) and name.endswith(".jsonl.gz"):
            packed, lines = (_hash(node, key, name, path) for key in ("gzip_sha256", "jsonl_sha256"))
            yield ListedFile(name, packed, lines, node.get("records"), node.get("bytes"))
        elif isinstance(name, str):
            yield ListedFile(name, _hash(node, "sha256", name, path), size=node.get("bytes"))
        node = list(node.values())
    for value in node if isinstance(node, list) else ():
        yield from _entries(value, path)


def check_file(path: Path, listed: ListedFile, name: Path | str | None = None) -> None:
    """Check one file against the manifest; AtlasError calls it ``name``, by default its path."""
    name = name or path
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        lines = _line_hash(path) if listed.jsonl_sha256 is not None else None
    except FileNotFoundError as error:
        raise AtlasError(f"{name} is missing, and the manifest lists it", _AGAIN) from error
    except EOFError as error:
        raise AtlasError(f"{name} is a truncated gzip file ({size:,} bytes)", _AGAIN) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise AtlasError(f"{name} is not an intact gzip file ({error})", _AGAIN) from error
    except OSError as error:
        raise AtlasError(f"{name} cannot be read ({error.strerror or error})", _FETCH) from error
    if listed.size is not None and size != listed.size:
        raise AtlasError(f"{name} has {size:,} bytes, and the manifest says {listed.size:,}", _AGAIN)
    if found != listed.sha256:
        raise AtlasError(f"{name} has the wrong checksum (sha256 {found[:12]}…, not {listed.sha256[:12]}…)", _AGAIN)
    if lines is not None:
        line_hash, count = lines
        if line_hash != listed.jsonl_sha256:
            raise AtlasError(f"The uncompressed content of {name} has the wrong checksum", _AGAIN)
        if listed.records is not None and count != listed.records:
            raise AtlasError(f"{name} holds {count:,} records, and the manifest says {listed.records:,}", _AGAIN)


class Stamps:
    """Memory of checks that succeeded, in the cache folder. root : folder of the release."""

    def __init__(self, root: Path) -> None:
        name = hashlib.sha256(str(root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self.path = cache_folder() / "verified" / f"{name}.json"
        self._changed = False
        try:
            content = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError):
            content = {}
        self._stamps: dict[str, Any] = content if isinstance(content, dict) else {}

    def right(self, path: Path, listed: ListedFile) -> bool:
        """Whether the file was right at an earlier check and has not changed since."""
        stamp = _stamp(path, listed)
        return stamp is not None and self._stamps.get(listed.path) == stamp

    def add(self, path: Path, listed: ListedFile) -> None:
        self._stamps[listed.path] = _stamp(path, listed)
        self._changed = True

    def save(self) -> None:
        """Write the memory; where that cannot be, the next check takes longer."""
        if not self._changed:
            return
        scratch = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(json.dumps(self._stamps), "utf-8")
            scratch.replace(self.path)


def _stamp(path: Path, listed: ListedFile) -> list[Any] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, listed.sha256, listed.jsonl_sha256, listed.records]


def _hash(node: Mapping[str, Any], key: str, name: str, path: Path | str) -> str:
    value = node.get(key)
    if not isinstance(value, str) or len(value) != 64:
        raise AtlasError(f"{path} lists {name} without its {key}", _AGAIN)
    return value


def _line_hash(path: Path) -> tuple[str, int]:
    digest, count, last = hashlib.sha256(), 0, b"\n"
    with gzip.open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
            count += block.count(b"\n")
            last = block[-1:]
    return digest.hexdigest(), count + (last != b"\n")


def _read_prompts(path: Path, *more: str) -> pd.DataFrame:
    """Prompts of a file, ascending by sample id, and what else its lines may hold."""
    rows = []
    for number, row in read_jsonl_gz(path):
        texts = {column: _text(path, number, row, column) for column in ("sample_id", "prompt")}
        rows.append(texts | {column: row.get(column) for column in more})
    frame = pd.DataFrame(rows, columns=["sample_id", "prompt", *more], dtype=object)
    return frame.sort_values("sample_id", ignore_index=True)


def _grid(benchmark: str, files: Mapping[str, Path], panel: pd.DataFrame) -> Records:
    """Read one file a source, each with one response to every prompt."""
    prompts = dict(zip(panel["sample_id"], panel["prompt"], strict=True))
    prompt_ids = list(prompts)
    traces: list[Trace] = []
    for label, path in files.items():
        found: dict[str, Trace] = {}
        for number, row in read_jsonl_gz(path):
            sample, prompt = _text(path, number, row, "sample_id"), _text(path, number, row, "prompt")
            if row.get("label") != label:
                raise AtlasError(f"{path}, line {number}, is labelled '{row.get('label')}', not '{label}'", _AGAIN)
            if prompts.get(sample) != prompt:
                raise AtlasError(f"{path}, line {number}, does not hold the prompt '{sample}' of the panel", _AGAIN)
            if sample in found:
                raise AtlasError(f"{path}, line {number}, answers the prompt '{sample}' a second time", _AGAIN)
            # The panel's own string: one copy of a prompt serves all sources.
            found[sample] = Trace(prompts[sample], _text(path, number, row, "response"))
        if missing := [i for i in prompt_ids if i not in found]:
            problem = f"{path} lacks {len(missing)} of the {len(prompt_ids)} prompts, the first is '{missing[0]}'"
            raise AtlasError(problem, _AGAIN)
        traces += [found[i] for i in prompt_ids]
    keys = [f"{benchmark}/{label}/{i}" for label in files for i in prompt_ids]
    return Records(benchmark, list(files), prompt_ids, traces, keys)


def _text(path: Path, number: int, row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise AtlasError(f"{path}, line {number}, has no text '{key}'", _AGAIN)
    return value


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise AtlasError(f"{path} cannot be read ({error.strerror})", _FETCH) from error
    except ValueError as error:
        raise AtlasError(f"{path} is not valid JSON ({error})", _AGAIN) from error


def _read_list(path: Path, columns: Sequence[str] = (), kind: type = object) -> list[dict[str, Any]]:
    """Objects of a list, each with values of that kind in some columns."""
    rows = _read_json(path)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise AtlasError(f"{path} does not hold a list of objects", _AGAIN)
    for number, row in enumerate(rows):
        if missing := [column for column in columns if column not in row or not isinstance(row[column], kind)]:
            raise AtlasError(f"{path}, entry {number}, has no '{missing[0]}'", _AGAIN)
    return rows

"""The public release on disk: prompts, rosters, responses, Bench-A, and the hashes that prove them.

Record key is (benchmark, source, sample_id), because sample ids of the two benchmarks collide. Rows are in roster
order, prompts ascending, and every roster is a prefix of the longest one.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.traces import Trace

Benchmark = Literal["agent500", "math100"]
BENCHMARKS: tuple[Benchmark, ...] = ("agent500", "math100")
ROSTERS = ("50-way", "100-way", "165-way")
ROSTER_SIZES = (50, 100, 165)


@dataclass(frozen=True)
class Records:
    """All records of one benchmark for the longest roster, in row order.

    Attributes
    ----------
    benchmark : str
    sources : list of str, length S
        Labels in roster order.
    prompt_ids : list of str, length P
        Ascending.
    traces : list of Trace, length S * P
        Row = source * P + prompt.
    keys : list of str, length S * P
        ``benchmark/source/sample_id``.
    """

    benchmark: str
    sources: list[str]
    prompt_ids: list[str]
    traces: list[Trace]
    keys: list[str]


@dataclass(frozen=True)
class Release:
    """A folder that holds the public release.

    Parameters
    ----------
    root : Path
        Folder with ``data/`` and, optionally, ``results/``.
    """

    root: Path

    @property
    def data(self) -> Path:
        """Folder of prompts, responses, rosters and manifests."""
        return self.root / "data"

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The release's own list of files and hashes."""
        path = self.data / "manifests" / "release.json"
        try:
            manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise AtlasError(
                f"There is no release in {self.root} ({path.name} cannot be read)",
                "Run: python -m jobs fetch, or give its folder with --release",
            ) from error
        except ValueError as error:
            raise AtlasError(f"{path} is not valid JSON ({error})", "Fetch the release again") from error
        return manifest

    @cached_property
    def manifest_hash(self) -> str:
        """sha256 of the manifest file: the identity of the data."""
        self.manifest  # noqa: B018 - a missing release speaks first
        return hashlib.sha256((self.data / "manifests" / "release.json").read_bytes()).hexdigest()

    def roster(self, name: str = "165-way") -> pd.DataFrame:
        """Sources of a roster, in its order.

        Returns
        -------
        DataFrame
            Columns label, repo_id, family, plot_family, source, model_id (missing values None).
        """
        if name not in ROSTERS:
            raise AtlasError(f"There is no roster '{name}'", f"Choose one of {', '.join(ROSTERS)}")
        path = self.data / "rosters" / f"{name}.json"
        rows = _read_json(path)
        columns = ["label", "repo_id", "family", "plot_family", "source", "model_id"]
        return pd.DataFrame([{c: row.get(c) for c in columns} for row in rows], columns=columns)

    def prompts(self, benchmark: Benchmark) -> pd.DataFrame:
        """Prompts of a benchmark, ascending by sample id (columns sample_id, prompt, category)."""
        rows = [row for _, row in read_jsonl_gz(self.data / "prompts" / f"{benchmark}.jsonl.gz")]
        frame = pd.DataFrame(
            [{"sample_id": r["sample_id"], "prompt": r["prompt"], "category": r.get("category")} for r in rows]
        )
        return frame.sort_values("sample_id", ignore_index=True)

    def records(self, benchmark: Benchmark) -> Records:
        """Read all responses of a benchmark.

        Raises
        ------
        AtlasError
            If a file is missing, damaged, or does not hold one response to every prompt.
        """
        sources = self.roster("165-way")["label"].tolist()
        prompt_ids = self.prompts(benchmark)["sample_id"].tolist()
        traces: list[Trace] = []
        for label in sources:
            path = self.data / "responses" / benchmark / f"{label}.jsonl.gz"
            found = {row["sample_id"]: Trace(row["prompt"], row["response"]) for _, row in read_jsonl_gz(path)}
            if sorted(found) != prompt_ids:
                raise AtlasError(
                    f"{path} does not hold exactly one response to each of the {len(prompt_ids)} prompts",
                    "Fetch the release again",
                )
            traces += [found[i] for i in prompt_ids]
        keys = [f"{benchmark}/{label}/{i}" for label in sources for i in prompt_ids]
        return Records(benchmark, sources, prompt_ids, traces, keys)


def default_release() -> Path:
    """Where the release lies: ``ATLAS_RELEASE``, else ``release/`` in the cache folder."""
    given = os.environ.get("ATLAS_RELEASE")
    return Path(given).expanduser() if given else cache_folder() / "release"


def read_jsonl_gz(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a gzipped JSONL file.

    Raises
    ------
    AtlasError
        Names the file and the line of what cannot be read.
    """
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield number, json.loads(line)
    except FileNotFoundError as error:
        raise AtlasError(
            f"{path} does not exist", "Run: python -m jobs fetch, or give the release's folder with --release"
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise AtlasError(
            f"{path} is damaged after line {number} (truncated or corrupt gzip)", "Fetch the release again"
        ) from error
    except UnicodeDecodeError as error:
        raise AtlasError(f"{path} is not UTF-8 after line {number}", "Fetch the release again") from error
    except ValueError as error:
        raise AtlasError(f"{path}, line {number}, is not valid JSON ({error})", "Fetch the release again") from error


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise AtlasError(
            f"{path} cannot be read ({error.strerror})",
            "Run: python -m jobs fetch, or give the release's folder with --release",
        ) from error
    except ValueError as error:
        raise AtlasError(f"{path} is not valid JSON ({error})", "Fetch the release again") from error


def roster_rows(sources: int, prompts: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Rows of the first ``sources`` sources: a prefix, because rosters nest."""
    return np.arange(sources * prompts)

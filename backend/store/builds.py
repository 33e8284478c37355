"""Which command, code, data, proxy and machine a number comes from (paper, reproducibility statement)."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from backend import __version__
from backend.store.database import transaction

# Flags of a processor and the arithmetic of its products, the fastest first.
ARITHMETIC = {"amx_bf16": "AMX BF16", "avx512_bf16": "AVX-512 BF16", "avx512f": "AVX-512", "avx2": "AVX2"}


@contextlib.contextmanager
def recorded(
    connection: duckdb.DuckDBPyConnection,
    *,
    stage: str,
    command: str | None = None,
    data_hash: str | None = None,
    proxy_hash: str | None = None,
    seed: int | None = None,
    origin: str = "measured",
    source_file: str | None = None,
    details: Mapping[str, Any] | None = None,
    earlier_s: float = 0.0,
) -> Iterator[str]:
    """Record a build around the work that makes its rows, and give their build_id.

    command : by default the running one, without its paths.
    data_hash, proxy_hash : sha256 of the release's manifest and of the proxy's weight file.
    origin : 'measured', or 'published' for numbers that somebody else computed, with their ``source_file``.
    details : settings and counts that JSON can hold, read when the block ends. earlier_s : seconds before the block.
    When the block raises there is no build, and a database with rows of it cannot be published.
    """
    started, clock = datetime.now(UTC) - timedelta(seconds=earlier_s), time.perf_counter() - earlier_s
    version = running_version()
    build_id = f"{stage}-{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
    yield build_id
    with transaction(connection):
        row = {
            "build_id": build_id,
            "stage": stage,
            "command": portable(command or command_line()),
            "code_version": version,
            "data_hash": data_hash,
            "proxy_hash": proxy_hash,
            "seed": seed,
            "host": host(),
            "started_at": started.replace(tzinfo=None),
            "duration_s": time.perf_counter() - clock,
            "origin": origin,
            "source_file": source_file,
            "details": json.dumps(dict(details or {}), sort_keys=True, ensure_ascii=False),
        }
        marks = ", ".join(f"${name}" for name in row)
        connection.execute(f"INSERT INTO builds ({', '.join(row)}) VALUES ({marks})", row)


def code_version(root: Path | None = None) -> str:
    """Short commit of a checkout, with '+changes' when tracked files differ from it; else the package's version."""
    root = root or Path(__file__).resolve().parents[2]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        # An enclosing checkout of something else says nothing about this code.
        if Path(_git(root, "rev-parse", "--show-toplevel")).resolve() == root.resolve():
            changed = _git(root, "status", "--porcelain", "--untracked-files=no")
            return _git(root, "rev-parse", "--short=10", "HEAD") + ("+changes" if changed else "")
    return __version__


@functools.cache
def running_version() -> str:
    """The version of the code that this process has loaded; what changes on disk later is not what runs."""
    return code_version()


def host() -> str:
    """Processor model, cores and fastest arithmetic (virtual machines of one name can differ in that); no host name."""
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    model = fields.get("model name") or platform.processor() or platform.machine()
    flags = set(fields.get("flags", "").split())
    arithmetic = [name for flag, name in ARITHMETIC.items() if flag in flags][:1]
    return ", ".join([model, f"{os.cpu_count()} cores", *arithmetic])


def portable(command: str) -> str:
    """A command line without the paths of this machine: of a file or folder its name."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command

    def cut(word: str) -> str:
        option, sign, value = word.partition("=") if word.startswith("--") else ("", "", word)
        path = value.startswith(("/", "./", "../", "~/")) or ("/" in value and Path(value).exists())
        return f"{option}{sign}{(Path(value).name or '/') if path else value}"

    return shlex.join(cut(word) for word in words)


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def command_line() -> str:
    """The command that runs now, as a person would type it."""
    return shlex.join(["python", "-m", "jobs", *sys.argv[1:]])

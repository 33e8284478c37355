"""Record anew what the system computes: ``python -m tests.golden [PART ...]``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.golden.computed import PARTS

REPOSITORY = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).parent / "record"
SETTLED = {"ATLAS_COMPILE": "0"} | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""One thread and no compiled blocks, since both decide about last bits."""


def record(part: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Compute a part in a process of its own and write it into a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "ATLAS_DATA"} | SETTLED
    command = [sys.executable, "-m", "tests.golden.computed", part, str(folder.resolve())]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)


def main() -> None:
    """Compute parts and write each into the folder of the record."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description="Record anew what is computed.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--to", type=Path, default=RECORD, metavar="FOLDER", help="default: tests/golden/record")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    for part in arguments.parts or PARTS:
        started = time.perf_counter()
        done = record(part, arguments.to)
        if done.returncode:
            sys.exit(f"{part} was not computed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        print(f"{part}: {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""Trial: what would the blocks of a larger proxy bring beside those of the usual one and the words?

    python benchmarks/larger_proxy.py [--larger qwen25-coder-1.5b] [--blocks 2,4,6] [--sources 20] [--prompts 50]

Discriminants on DCT modes 0 and 1 of whole responses, as for the usual proxy. What was read is kept part by part
(``--keep FOLDER``), so that hours of reading can be taken up again. benchmarks/trial_rows.py says on which rows it is
tried.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.proxies.registry import load_reader
from benchmarks.trial_rows import Floats, TrialRows, parser_of, rows_of

PART = 200  # responses that are kept at once


def states_of(rows: TrialRows, proxy: str, blocks: tuple[int, ...], keep: Path | None) -> dict[int, Floats]:
    """Modes 0 and 1 of every response at some blocks of a proxy, (n, 2d) each."""
    reader, started = load_reader(proxy), time.perf_counter()
    found: dict[int, list[Floats]] = {block: [] for block in blocks}
    for low in range(0, len(rows.traces), PART):
        part = keep / f"{proxy}-{'-'.join(map(str, blocks))}-{low}.npz" if keep else None
        if part and part.exists():
            with np.load(part) as stored:
                read = {block: stored[str(block)] for block in blocks}
        else:
            states = reader.read(reader.encode(rows.traces[low : low + PART], "ur"), blocks)
            read = {block: states[block, "full"] for block in blocks}
            if part:
                part.parent.mkdir(parents=True, exist_ok=True)
                np.savez(part, **{str(block): values for block, values in read.items()})
            print(f"{low + PART:,} of {len(rows.traces):,}, {time.perf_counter() - started:.0f} s", flush=True)
        for block in blocks:
            found[block].append(read[block].astype(np.float32))
    return {block: np.concatenate(parts) for block, parts in found.items()}


def main() -> int:
    """Run the trial and print it."""
    parser = parser_of(__doc__)
    parser.add_argument("--larger", default="qwen25-coder-1.5b")
    parser.add_argument("--blocks", default="2,4,6")
    arguments = parser.parse_args()
    blocks = tuple(int(block) for block in arguments.blocks.split(","))
    rows = rows_of(arguments)
    states = states_of(rows, arguments.larger, blocks, arguments.keep)
    print(f"{len(rows.traces):,} responses of {rows.sources} sources")
    members = {f"{arguments.larger}, block {block}": rows.fitted(states[block]) for block in blocks}
    members["larger"] = rows.fitted(np.concatenate([states[block] for block in blocks], axis=1))
    rows.tell(members, ("larger",))
    return 0


if __name__ == "__main__":
    sys.exit(main())

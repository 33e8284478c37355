"""Trial: what would a proxy's surprise at every token bring beside what its states and the words say?

    python benchmarks/surprisal.py [--proxy smollm2-135m] [--sources 30] [--prompts 60] [--release FOLDER]

One more product, with the proxy's own head, gives each response token its log-probability, its rank and the entropy of
what was expected, behind the prompt and without it. A response becomes quantiles, means by kind of token and
correlations of neighbours; benchmarks/trial_rows.py says on which rows they are tried.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.proxies.encoding import Encoded, encode
from backend.proxies.reader import best_dtype
from backend.proxies.registry import describe, load_model
from backend.traces import Trace
from benchmarks.trial_rows import Floats, parser_of, rows_of

QUANTILES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
BATCH_TOKENS, STEP, HEAD_ROWS = 3_000, 32, 128  # few different shapes: every one keeps packed weights of its own


def told(head: Any, states: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Log-probability, log of the rank and entropy at some tokens, (3, t), from the states in front of them."""
    padded = torch.nn.functional.pad(states, (0, 0, 0, HEAD_ROWS - len(states)))
    likely = torch.log_softmax(head(padded)[: len(states)].float(), -1)
    found = likely.gather(1, ids[:, None])
    return torch.stack([found[:, 0], torch.log1p((likely > found).sum(1).float()), -(likely.exp() * likely).sum(1)])


@torch.inference_mode()
def surprise(model: Any, encoded: list[Encoded]) -> list[Floats]:
    """Log-probability, log of the rank and entropy of every response token that has one before it, (3, t) a trace."""
    out: list[Floats] = [np.empty((3, 0), dtype=np.float32)] * len(encoded)
    order = sorted(range(len(encoded)), key=lambda row: len(encoded[row].ids))
    started, low = time.perf_counter(), 0
    while low < len(order):
        high = low + 1
        while high < len(order) and (high + 1 - low) * len(encoded[order[high]].ids) <= BATCH_TOKENS:
            high += 1
        rows = order[low:high]
        width = -(-max(len(encoded[row].ids) for row in rows) // STEP) * STEP
        ids = torch.zeros((len(rows), width), dtype=torch.int64)
        for place, row in enumerate(rows):
            ids[place, : len(encoded[row].ids)] = torch.tensor(encoded[row].ids)
        states = model.model(ids).last_hidden_state
        for place, row in enumerate(rows):
            first, stop = max(encoded[row].start, 1), encoded[row].stop
            if stop <= first:
                continue
            before, after = states[place, first - 1 : stop - 1], ids[place, first:stop]
            pairs = zip(before.split(HEAD_ROWS), after.split(HEAD_ROWS), strict=True)
            out[row] = torch.cat([told(model.lm_head, *pair) for pair in pairs], dim=1).numpy()
        low = high
        if time.perf_counter() - started > 60:
            print(f"{low:,} of {len(order):,}", flush=True)
            started = time.perf_counter()
    return out


def kinds_of(tokenizer: Any, ids: list[int], known: dict[int, int]) -> npt.NDArray[np.intp]:
    """Kind of every token: line end, number, mark, capital, beginning of a word, rest of a word."""
    for token in set(ids) - known.keys():
        text = tokenizer.decode([token])
        bare = text.strip()
        if "\n" in text:
            known[token] = 0
        elif bare[:1].isdigit():
            known[token] = 1
        elif not bare[:1].isalpha():
            known[token] = 2
        elif bare[:1].isupper():
            known[token] = 3
        else:
            known[token] = 4 if text[:1] == " " else 5
    return np.array([known[token] for token in ids], dtype=np.intp)


def described(values: Floats, kinds: npt.NDArray[np.intp]) -> Floats:
    """Features of one response: quantiles, shares of ranks, means by kind and place, correlations of neighbours."""
    likely, rank, entropy = values
    odd = likely + entropy  # how much likelier than expected
    out: list[float] = []
    for part in (likely, rank, entropy, odd):
        out += [*np.quantile(part, QUANTILES), part.mean(), part.std()]
        centred = part - part.mean()
        scale = float((centred**2).mean()) + 1e-6
        out += [
            float((centred[lag:] * centred[:-lag]).mean()) / scale if len(part) > lag else 0.0 for lag in (1, 2, 4, 8)
        ]
        for kind in range(6):
            some = part[kinds == kind]
            out.append(float(some.sum() / (len(some) + 3) + 3 * part.mean() / (len(some) + 3)))
        for low, high in ((0, 1), (1, 4), (4, 16), (16, 64), (64, 256), (256, 1024)):
            some = part[low:high]
            out.append(float(some.mean()) if len(some) else float(part.mean()))
    out += [float((rank < bound).mean()) for bound in (0.1, 0.8, 1.7, 3.1, 4.7)]
    out += [float(np.corrcoef(likely, entropy)[0, 1]) if len(likely) > 2 else 0.0, float(np.log1p(len(likely)))]
    return np.nan_to_num(np.array(out, dtype=np.float32))


def features(model: Any, tokenizer: Any, traces: list[Trace]) -> tuple[Floats, Floats, Floats]:
    """What is known behind the prompt, without it, and of the difference by token; (n, f) each."""
    known: dict[int, int] = {}
    found: dict[str, list[Floats]] = {}
    kinds: dict[str, list[npt.NDArray[np.intp]]] = {}
    for view in ("ur", "r"):
        encoded = encode(tokenizer, traces, view)  # type: ignore[arg-type]
        found[view] = surprise(model, encoded)
        kinds[view] = [kinds_of(tokenizer, one.ids[max(one.start, 1) : one.stop], known) for one in encoded]
    empty = np.zeros((3, 1), dtype=np.float32)
    out: list[list[Floats]] = [[], [], []]
    for row in range(len(traces)):
        one, two = found["ur"][row], found["r"][row]
        shared = min(one.shape[1], two.shape[1])
        gap = one[:, one.shape[1] - shared :] - two[:, two.shape[1] - shared :]
        gap_kinds = kinds["ur"][row][one.shape[1] - shared :]
        for place, (values, kind) in enumerate(((one, kinds["ur"][row]), (two, kinds["r"][row]), (gap, gap_kinds))):
            if not values.shape[1]:
                values, kind = empty, np.zeros(1, dtype=np.intp)
            out[place].append(described(values, kind))
    return tuple(np.stack(part) for part in out)  # type: ignore[return-value]


def main() -> int:
    """Run the trial and print it."""
    arguments = parser_of(__doc__).parse_args()
    rows, started = rows_of(arguments), time.perf_counter()
    if arguments.keep and arguments.keep.exists():
        with np.load(arguments.keep) as stored:
            parts = [stored[name] for name in ("ur", "r", "gap")]
    else:
        model, tokenizer = load_model(describe(arguments.proxy), head=True)
        parts = list(features(model.to(best_dtype(torch.device("cpu"))).eval(), tokenizer, rows.traces))
        if arguments.keep:
            np.savez(arguments.keep, ur=parts[0], r=parts[1], gap=parts[2])
    print(f"{len(rows.traces):,} responses of {rows.sources} sources, read in {time.perf_counter() - started:.0f} s")
    members = {
        "behind the prompt": rows.fitted(parts[0]),
        "without the prompt": rows.fitted(parts[1]),
        "difference": rows.fitted(parts[2]),
        "all three": rows.fitted(np.concatenate(parts, axis=1)),
        "blocks and all three, one discriminant": rows.fitted(np.concatenate([rows.states, *parts], axis=1)),
    }
    rows.tell(members, ("behind the prompt", "all three"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Trial: what would a proxy's surprise at every token bring beside what its states and the words say?

    python benchmarks/surprisal.py [--proxy smollm2-135m] [--sources 30] [--prompts 60] [--release FOLDER]

One more product, with the proxy's own head, gives each response token its log-probability, its rank and the entropy of
what was expected, behind the prompt and without it. A response becomes quantiles, means by kind of token and
correlations of neighbours. Fitted on prompts of folds 2 to 4 and asked about fold 1, as all trials of docs/readouts.md,
on some of the sources and prompts; blocks, words and surprise are weighed on the very rows that are asked, so what is
printed is what a member could bring at most.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import log_softmax

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.corpus.release import Release, default_release
from backend.corpus.roster_rows import slice_of
from backend.methods.estimators import ShrinkageDiscriminant
from backend.methods.ngrams import BITS, GRAMS, count_grams, fit_grams
from backend.methods.probe import standardiser
from backend.proxies.encoding import Encoded, encode
from backend.proxies.reader import best_dtype
from backend.proxies.registry import describe, load_model
from backend.traces import Trace
from benchmarks.readouts import TEST, TRAIN
from benchmarks.text_readouts import weighed

Floats = npt.NDArray[np.float32]
QUANTILES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
BATCH_TOKENS = 3_000
BLOCKS = (3, 9, 15, 21, 24)


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
        width = max(len(encoded[row].ids) for row in rows)
        ids = torch.zeros((len(rows), width), dtype=torch.int64)
        for place, row in enumerate(rows):
            ids[place, : len(encoded[row].ids)] = torch.tensor(encoded[row].ids)
        states = model.model(ids).last_hidden_state
        for place, row in enumerate(rows):
            first, stop = max(encoded[row].start, 1), encoded[row].stop
            if stop <= first:
                continue
            logits = model.lm_head(states[place, first - 1 : stop - 1]).float()
            likely = torch.log_softmax(logits, -1)
            told = likely.gather(1, ids[place, first:stop, None])
            rank = (likely > told).sum(1)
            entropy = -(likely.exp() * likely).sum(1)
            out[row] = torch.stack([told[:, 0], torch.log1p(rank.float()), entropy]).numpy()
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxy", default="smollm2-135m")
    parser.add_argument("--sources", type=int, default=30)
    parser.add_argument("--prompts", type=int, default=60, help="of every fold")
    parser.add_argument("--keep", type=Path, default=None, help="file for the features, read where it is there")
    parser.add_argument("--release", type=Path, default=None)
    arguments = parser.parse_args()
    release = Release(arguments.release or default_release())
    rows = slice_of(release, "agent500", arguments.proxy, "ur", "100-way", None)
    traces = release.records("agent500").traces[: len(rows.labels)]
    random, prompts = np.random.default_rng(0), len(rows.prompt_folds)
    sources = np.sort(random.permutation(len(rows.sources))[: arguments.sources])
    chosen = np.concatenate(
        [random.permutation(np.flatnonzero(rows.prompt_folds == fold))[: arguments.prompts] for fold in (TEST, *TRAIN)]
    )
    some = np.concatenate([source * prompts + np.sort(chosen) for source in sources])
    truth = np.searchsorted(sources, rows.labels[some])
    asked = rows.prompt_folds[some % prompts] == TEST
    read = [traces[row] for row in some]
    started = time.perf_counter()
    if arguments.keep and arguments.keep.exists():
        with np.load(arguments.keep) as stored:
            parts = [stored[name] for name in ("ur", "r", "gap")]
    else:
        model, tokenizer = load_model(describe(arguments.proxy), head=True)
        parts = list(features(model.to(best_dtype(torch.device("cpu"))).eval(), tokenizer, read))
        if arguments.keep:
            np.savez(arguments.keep, ur=parts[0], r=parts[1], gap=parts[2])
    print(f"{len(some):,} responses of {len(sources)} sources, read in {time.perf_counter() - started:.0f} s")

    def fitted(values: Floats, shrinkage: float = 0.1) -> Floats:
        mean, scale = standardiser(values[~asked])
        values = (values - mean) / scale
        scores = ShrinkageDiscriminant(shrinkage).fit(values[~asked], truth[~asked]).readout_.scores(values[asked])
        return log_softmax(scores, axis=1).astype(np.float32)

    texts = [trace.response for trace in read]
    counts = count_grams(texts, "word", (1, 2, 3), BITS)
    words = fit_grams(counts[~asked], truth[~asked], len(sources), GRAMS["word"].settings, 0).log_posterior(
        counts[asked]
    )
    states = np.concatenate([rows.load(block)[some] for block in BLOCKS], axis=1).astype(np.float32)
    blocks = fitted(states)
    members = {
        "behind the prompt": fitted(parts[0]),
        "without the prompt": fitted(parts[1]),
        "difference": fitted(parts[2]),
        "all three": fitted(np.concatenate(parts, axis=1)),
        "blocks": blocks,
        "blocks and all three, one discriminant": fitted(np.concatenate([states, *parts], axis=1)),
        "words": words.astype(np.float32),
    }
    for name, scores in members.items():
        print(f"{name:<44} {(scores.argmax(1) == truth[asked]).mean():.4f}")
    for base in (("blocks",), ("words",), ("blocks", "words")):
        for more in ((), ("behind the prompt",), ("all three",)):
            scores = weighed([members[name] for name in (*base, *more)], truth[asked].astype(np.int64))
            right = scores.argmax(1) == truth[asked]
            likely = scores[np.arange(len(scores)), truth[asked]].mean()
            print(f"{' + '.join((*base, *more)):<44} {right.mean():.4f}   mean log posterior {likely:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

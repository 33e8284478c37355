"""Trials that read text alone, beside the word n-grams of a stack: what would a further member bring?

    python benchmarks/text_readouts.py [--roster 100-way] [--release FOLDER]

Fitted on prompt folds 2 to 4 and asked about fold 1, as all trials of docs/readouts.md. A generative model counts
n-grams of every source and smooths them as Kneser and Ney do (interpolated, one discount); a response's evidence is the
sum of its tokens' log-probabilities. Each is printed alone and beside the word n-grams, with weights of the highest
likelihood on the very rows that are asked: what such a member could bring at most.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.corpus.release import Release, default_release
from backend.corpus.roster_rows import slice_of
from backend.methods.ngrams import BITS, GRAMS, count_grams, fit_grams
from backend.proxies.registry import tokenizer_of
from benchmarks.readouts import TEST, TRAIN, curve

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Part = Callable[[str], str]
Reading = Callable[[list[str]], list[str]]
UNIT = re.compile(r"\w+|[^\w\s]|\n+")
FUNCTION_WORDS = 400  # the most frequent units, which a model of style keeps; the others become their kind
DISCOUNT = 0.75
PROXY = "smollm2-135m"
CHUNK = 20_000  # tokens whose probabilities are in memory at once


# ---- a generative model of every source ------------------------------------------------------------------------------


def grams(units: Ints, owner: Ints, length: int) -> tuple[Ints, Ints]:
    """Key and place of every n-gram inside a text; the key of its first n - 1 units is the key that is one shorter."""
    starts = max(len(units) - length + 1, 0)
    inside = np.flatnonzero(owner[:starts] == owner[length - 1 : length - 1 + starts])
    key = np.zeros(len(inside), dtype=np.uint64)
    for place in range(length):
        key = (key ^ units[inside + place].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key.astype(np.int64), inside + length - 1


class Order:
    """Counts of n-grams by source, of one length: sparse (n-grams, S), and the sums of their contexts."""

    def __init__(self, keys: Ints, context: Ints, sources: Ints, classes: int) -> None:
        self.keys, place = np.unique(keys, return_inverse=True)
        self.contexts, above = np.unique(context, return_inverse=True)
        ones = np.ones(len(keys), dtype=np.float32)
        self.counts = sparse.csr_matrix((ones, (place, sources)), shape=(len(self.keys), classes))
        self.total = sparse.csr_matrix((ones, (above, sources)), shape=(len(self.contexts), classes))
        parent = np.zeros(len(self.keys), dtype=np.int64)
        parent[place] = above
        pairs = self.counts.tocoo()
        one = np.ones(pairs.nnz, dtype=np.float32)
        self.kinds = sparse.csr_matrix((one, (parent[pairs.row], pairs.col)), shape=(len(self.contexts), classes))

    def lookup(self, keys: Ints, known: Ints, table: sparse.csr_matrix) -> Floats:
        """Dense rows (m, S) of keys; zeros where a key was never seen."""
        place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        out = np.asarray(table[place].toarray(), dtype=np.float32)
        out[known[place] != keys] = 0
        return out


def kneser_ney(units: Ints, owner: Ints, sources: Ints, train: npt.NDArray[np.bool_], top: int, classes: int) -> Floats:
    """Sums of log-probabilities (texts, S) by models of the training texts; rows of training texts stay zero."""
    token_train = train[owner]
    orders = []
    for length in range(top, 0, -1):
        keys, last = grams(units, owner, length)
        context = grams(units, owner, length - 1)[0] if length > 1 else np.zeros(len(units), dtype=np.int64)
        if length > 1:  # the context of an n-gram ends one unit before it
            where = np.zeros(len(units), dtype=np.int64)
            where[grams(units, owner, length - 1)[1]] = context
            context = where[last - 1]
        else:
            context = context[last]
        chosen = token_train[last]
        if length < top:  # continuations: an n-gram counts once for every unit before it
            longer, end = grams(units, owner, length + 1)
            here = token_train[end]
            pair = np.unique(np.stack([longer[here], sources[owner[end[here]]]]), axis=1, return_index=True)[1]
            end = end[here][pair]
            inverse = np.full(len(units), -1, dtype=np.int64)
            inverse[last] = np.arange(len(last))
            some = inverse[end]
        else:
            some = np.flatnonzero(chosen)
            end = last[some]
        orders.append((Order(keys[some], context[some], sources[owner[end]], classes), keys, context, last))
    inner = np.append(False, owner[1:] == owner[:-1])  # all units but the mark that begins a text
    asked = np.flatnonzero(~token_train & inner)
    lowest = orders[-1][0]
    shared = np.bincount(np.searchsorted(lowest.keys, orders[-1][1][token_train & inner]), minlength=len(lowest.keys))
    base = (shared + 0.5) / (shared.sum() + 0.5 * (len(shared) + 1))
    unknown = 0.5 / (shared.sum() + 0.5 * (len(shared) + 1))
    out = np.zeros((len(train), classes))
    places = []
    for _, _, _, last in orders:
        inverse = np.full(len(units), -1, dtype=np.int64)
        inverse[last] = np.arange(len(last))
        places.append(inverse)
    for low in range(0, len(asked), CHUNK):
        some = asked[low : low + CHUNK]
        keys = orders[-1][1][places[-1][some]]
        place = np.minimum(np.searchsorted(lowest.keys, keys), len(lowest.keys) - 1)
        likely = np.where(lowest.keys[place] == keys, base[place], unknown)[:, None].repeat(classes, axis=1)
        for (order, all_keys, contexts, _), where in zip(orders[::-1], places[::-1], strict=True):
            at = where[some]
            key, context = all_keys[at], contexts[at]
            total = order.lookup(context, order.contexts, order.total)
            kinds = order.lookup(context, order.contexts, order.kinds)
            count = order.lookup(key, order.keys, order.counts)
            seen = (total > 0) & (at >= 0)[:, None]
            total = np.maximum(total, 1)
            mixed = np.maximum(count - DISCOUNT, 0) / total + DISCOUNT * kinds / total * likely
            likely = np.where(seen, mixed, likely)
        np.add.at(out, owner[some], np.log(np.maximum(likely, 1e-12)))
    return out.astype(np.float32)


# ---- what is read ----------------------------------------------------------------------------------------------------


def numbered(texts: list[list[str]]) -> tuple[Ints, Ints]:
    """Number of every unit, and the text that it is in; every text begins with a mark of its own."""
    number: dict[str, int] = {}
    flat = np.array([number.setdefault(unit, len(number)) for text in texts for unit in ("\0", *text)], dtype=np.int64)
    return flat, np.repeat(np.arange(len(texts)), [len(text) + 1 for text in texts])


def styled(texts: list[list[str]]) -> list[list[str]]:
    """Frequent units as they are, the others as their kind: number, name, long or short word."""
    seen: dict[str, int] = {}
    for text in texts:
        for unit in text:
            seen[unit] = seen.get(unit, 0) + 1
    kept = set(sorted(seen, key=lambda unit: -seen[unit])[:FUNCTION_WORDS])

    def kind(unit: str) -> str:
        if unit in kept:
            return unit
        return "0" if unit.isnumeric() else "A" if unit[:1].isupper() else "a" if len(unit) < 7 else "aa"

    return [[kind(unit) for unit in text] for text in texts]


def layout(text: str) -> str:
    """Every word one letter and every number a zero: marks, line ends and the order of them stay."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", text))


def tokens(texts: list[str]) -> list[list[str]]:
    """Tokens of the default proxy."""
    tokenizer = tokenizer_of(PROXY)
    return [[str(number) for number in tokenizer(text, add_special_tokens=False)["input_ids"]] for text in texts]


def layouts(texts: list[str]) -> list[str]:
    """The layout of every text."""
    return [layout(text) for text in texts]


def masked(texts: list[str]) -> list[str]:
    """The texts with content words masked."""
    return [" ".join(units) for units in styled([UNIT.findall(text) for text in texts])]


def part_of(first: float, last: float) -> Part:
    """A share of a text."""
    return lambda text: text[int(first * len(text)) : int(last * len(text))]


BEGINNINGS: Sequence[Part] = (lambda text: text[:280], lambda text: text[:140])  # About 64 and 32 tokens
HALVES = (part_of(0, 0.5), part_of(0.5, 1))
QUARTERS = tuple(part_of(n / 4, (n + 1) / 4) for n in range(4))


# ---- the trials ------------------------------------------------------------------------------------------------------


def weighed(members: list[Floats], truth: Ints) -> Floats:
    """Sum of the members with the weights of the highest likelihood on these rows."""

    def loss(weights: npt.NDArray[np.float64]) -> float:
        scores = sum(w * m for w, m in zip(weights, members, strict=True))
        return float(-log_softmax(scores, axis=1)[np.arange(len(truth)), truth].mean())

    start = np.full(len(members), 0.5)
    best = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 120, "xatol": 1e-3, "fatol": 1e-5}).x
    return log_softmax(sum(w * m for w, m in zip(best, members, strict=True)), axis=1).astype(np.float32)


def main() -> int:
    """Run the trials and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roster", default="100-way")
    parser.add_argument("--release", type=Path, default=None)
    arguments = parser.parse_args()
    release = Release(arguments.release or default_release())
    rows = slice_of(release, "agent500", PROXY, "ur", arguments.roster, None)
    traces = release.records("agent500").traces[: len(rows.labels)]
    folds, labels, classes = np.tile(rows.prompt_folds, len(rows.sources)), rows.labels, len(rows.sources)
    used = np.isin(folds, (*TRAIN, TEST))
    texts = [trace.response for trace, here in zip(traces, used, strict=True) if here]
    train, sources = np.isin(folds[used], TRAIN), labels[used].astype(np.int64)
    asked, truth = ~train, sources[~train]

    def told(name: str, make: Callable[[], Floats]) -> Floats:
        started = time.perf_counter()
        made = make()
        alone = curve(weighed([made], truth), rows.prompt_folds)
        beside = curve(weighed([words, made], truth), rows.prompt_folds) if words is not None else ""
        print(f"{name:<58} {alone}   beside words {beside}   {time.perf_counter() - started:6.0f} s", flush=True)
        return made

    def bag(read: Reading, parts: Sequence[Part], lengths: tuple[int, ...] = (1, 2, 3)) -> Callable[[], Floats]:
        """A classifier of the n-grams of what is read, fitted on whole responses and on parts of them."""

        def fit() -> Floats:
            rows_of = [sources[train], *(sources[train] for _ in parts)]
            kept = [text for text, here in zip(texts, train, strict=True) if here]
            cut = [part(text) for part in parts for text in kept]
            counts = count_grams(read([*kept, *cut, *(texts[i] for i in np.flatnonzero(asked))]), "word", lengths, BITS)
            known = np.concatenate(rows_of)
            model = fit_grams(counts[: len(known)], known, classes, GRAMS["word"].settings, 0)
            return model.log_posterior(counts[len(known) :])

        return fit

    def generative(units: list[list[str]], top: int) -> Callable[[], Floats]:
        flat, owner = numbered(units)
        lengths = np.bincount(owner)[asked, None]
        return lambda: (kneser_ney(flat, owner, sources, train, top, classes)[asked] / np.sqrt(lengths)).astype(
            np.float32
        )

    words: Floats | None = None
    whole = told("word n-grams", bag(list, ()))
    told("... of whole responses and their beginnings", bag(list, BEGINNINGS))
    words = told("... and of their halves too (the words of what follows)", bag(list, (*BEGINNINGS, *HALVES)))
    told("... and quarters", bag(list, (*BEGINNINGS, *HALVES, *QUARTERS)))
    told("words fitted on whole responses alone", lambda: whole)
    told("layout alone, 1 to 3", bag(layouts, BEGINNINGS))
    told("layout alone, 1 to 6", bag(layouts, BEGINNINGS, (1, 2, 3, 4, 5, 6)))
    plain = told("layout alone, 1 to 6, halves too", bag(layouts, (*BEGINNINGS, *HALVES), (1, 2, 3, 4, 5, 6)))
    style = told("content words masked, 1 to 5, halves too", bag(masked, (*BEGINNINGS, *HALVES), (1, 2, 3, 4, 5)))
    units = [UNIT.findall(text) for text in texts]
    for top in (2, 3):
        told(f"generative, words, n = {top}", generative(units, top))
    born = told("generative, content words masked, n = 4", generative(styled(units), 4))
    told("generative, tokens of the proxy, n = 3", generative(tokens(texts), 3))
    for name, more in {"layout, masked": [plain, style], "layout, masked, generative": [plain, style, born]}.items():
        print(f"{'words, ' + name:<58} {curve(weighed([words, *more], truth), rows.prompt_folds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

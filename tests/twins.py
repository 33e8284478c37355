"""Slow, obvious versions of evaluations: one group, row or pair at a time, written from their definitions.

Tests hold the vectorised functions against them, on invented numbers and on a slice of the real release alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch


def probe_by_autograd(x: np.ndarray, y: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias of the paper's probe by torch's own Adam and schedule, on standardised rows."""
    mean, std = x.mean(0), np.maximum(x.std(0), 1e-6)
    z = torch.tensor((x - mean) / std)
    weight = torch.zeros(x.shape[1], classes, dtype=z.dtype, requires_grad=True)
    bias = torch.zeros(classes, dtype=z.dtype, requires_grad=True)
    optimiser = torch.optim.Adam([weight, bias], lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=100, eta_min=1e-5)
    for _ in range(40):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(z @ weight + bias, torch.tensor(y))
        loss = loss + weight.square().sum() / (2 * len(y))
        loss.backward()
        optimiser.step()
        schedule.step()
    return weight.detach().numpy(), bias.detach().numpy()


def mixture_by_autograd(x, y, classes, heads, settings, modes=8):
    """Mixtures made row by row and trained as the paper says, with torch's own Adam and autograd."""
    n, d = len(x), x.shape[1] // modes
    blocks = x.double().view(n, modes, d)
    a = torch.eye(modes, dtype=torch.float64)[:heads].clone().requires_grad_()
    weight = torch.zeros(heads * d, classes, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([a, weight, bias], lr=settings.learning_rate)
    for step in range(settings.steps):
        mixed = torch.einsum("hm,nmd->nhd", a / a.norm(dim=1, keepdim=True), blocks).reshape(n, heads * d)
        loss = torch.nn.functional.cross_entropy(mixed @ weight + bias, y) + weight.square().sum() / (
            2 * settings.c * n
        )
        for group in optimizer.param_groups:
            group["lr"] = settings.rate(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (a / a.norm(dim=1, keepdim=True)).detach(), weight.detach(), bias.detach()


def posterior_of(probe, row: np.ndarray) -> np.ndarray:
    """Log-posterior of one fingerprint, coordinate by coordinate."""
    logits = probe.bias.astype(np.float64)
    for value, mean, scale, weight in zip(row, probe.mean, probe.scale, probe.weight, strict=True):
        logits = logits + (float(value) - float(mean)) / float(scale) * weight.astype(np.float64)
    return logits - np.log(np.sum(np.exp(logits)))


def groups(
    log_posteriors: np.ndarray, k: int, seed: int, folds: np.ndarray | None = None, fold: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Source and summed log-posteriors of every group; within a fold, or over all prompts at once."""
    classes = log_posteriors.shape[1]
    prompts = len(log_posteriors) // classes
    rng = np.random.default_rng(seed + 100 + 7919 * k + (0 if fold is None else 31 * fold))
    for source in range(classes):
        rows = np.array([source * prompts + p for p in range(prompts) if fold is None or folds[p] == fold])
        rng.shuffle(rows)
        for start in range(0, len(rows) - k + 1, k):
            total = np.zeros(classes)
            for row in rows[start : start + k]:
                total += log_posteriors[row]
            yield source, total


def decisions(*asked) -> tuple[np.ndarray, np.ndarray]:
    """Truth and answer of every group of :func:`groups`."""
    told = [(source, int(total.argmax())) for source, total in groups(*asked)]
    return np.array([source for source, _ in told]), np.array([answer for _, answer in told])


def clusters(log_posteriors: np.ndarray, folds: np.ndarray, k: int) -> tuple[list[int], list[int]]:
    """Right answers and groups of every (fold, source), over the three seeds."""
    order = [(fold, source) for fold in range(5) for source in range(log_posteriors.shape[1])]
    hits, sizes = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
    for seed in (42, 43, 44):
        for fold in range(5):
            for source, total in groups(log_posteriors, k, seed, folds, fold):
                sizes[fold, source] += 1
                hits[fold, source] += int(total.argmax() == source)
    return [hits[c] for c in order], [sizes[c] for c in order]


def effects(grid: np.ndarray) -> np.ndarray:
    """Source, prompt and residual variance of every coordinate of (S, P, D), by sums over every cell."""
    s, p, d = grid.shape
    out = np.zeros((3, d))
    for j in range(d):
        mean = sum(grid[a, b, j] for a in range(s) for b in range(p)) / (s * p)
        alpha = [sum(grid[a, b, j] for b in range(p)) / p - mean for a in range(s)]
        beta = [sum(grid[a, b, j] for a in range(s)) / s - mean for b in range(p)]
        for a in range(s):
            for b in range(p):
                rest = grid[a, b, j] - mean - alpha[a] - beta[b]
                out[:, j] += np.array([alpha[a] ** 2, beta[b] ** 2, rest**2]) / (s * p)
    return out


def positions(length: int, count: int) -> list[int]:
    """Evenly spaced tokens, the first and the last included, rounded half up."""
    return [int(np.floor(m * (length - 1) / (count - 1) + 0.5 + 1e-9)) for m in range(count)]


def signature(rows: np.ndarray) -> np.ndarray:
    """Mean fingerprint of a source, each of its two blocks of length one."""
    width = rows.shape[1]
    total = [0.0] * width
    for row in rows:
        for i, value in enumerate(row):
            total[i] += float(value)
    mean = [value / len(rows) for value in total]
    out = []
    for block in (mean[: width // 2], mean[width // 2 :]):
        norm = sum(v * v for v in block) ** 0.5
        out += [v / norm for v in block]
    return np.array(out)


def family_hits(order: np.ndarray, families: Sequence[str], k: int, min_members: int) -> int:
    """Same-family neighbours among the k nearest, summed over the sources of large enough families."""
    count = 0
    for source, family in enumerate(families):
        if list(families).count(family) >= min_members:
            count += sum(families[other] == family for other in order[source][:k])
    return count


def permuted_family_hits(order, families, ks, moving, permutations, seed, min_members):
    """The same for labels that are permuted one permutation after the other, among the sources that move."""
    names, rng = np.array(families), np.random.default_rng(seed)
    for low in range(0, permutations, 250):  # the random stream is drawn in rounds of 250
        rows = rng.permuted(np.tile(moving, (min(250, permutations - low), 1)), axis=1)
        for row in rows:
            labels = names.copy()
            labels[moving] = names[row]
            yield [family_hits(order, labels.tolist(), k, min_members) for k in ks]


def tf_idf(corpus: Sequence[str], longest: int = 2) -> np.ndarray:
    """TF-IDF of words and runs of words in loops, rows of length one."""
    grams = []
    for text in corpus:
        words = re.findall(r"\w+|[^\w\s]|\n+", text)
        runs = [" ".join(words[i : i + n]) for n in range(1, longest + 1) for i in range(len(words) - n + 1)]
        grams.append(Counter(runs))
    vocabulary = {gram: i for i, gram in enumerate(sorted(set().union(*grams)))}
    documents = Counter(gram for counts in grams for gram in counts)
    rows = np.zeros((len(corpus), len(vocabulary)))
    for i, counts in enumerate(grams):
        for gram, count in counts.items():
            idf = np.log((1 + len(corpus)) / (1 + documents[gram])) + 1
            rows[i, vocabulary[gram]] = (1 + np.log(count)) * idf
        rows[i] /= np.linalg.norm(rows[i])
    return rows


def dna(embeddings: np.ndarray, components: int, seed: int) -> np.ndarray:
    """Flattened embeddings times one whole Gaussian matrix."""
    matrix = np.random.default_rng(seed).standard_normal((embeddings[0].size, components))
    return np.stack([model.astype(np.float64).flatten() @ matrix for model in embeddings]) / np.sqrt(components)


def cosine_table(fingerprints: np.ndarray, components: int = 128) -> dict[str, np.ndarray]:
    """Mean prompt-aligned cosines of models (M, P, 2 d), one pair and one prompt at a time."""
    models, prompts, width = fingerprints.shape
    half = width // 2
    matrix = np.random.default_rng(42).standard_normal((half, components)) / np.sqrt(components)
    views = {
        "dc": lambda z: z[:half],
        "ac": lambda z: z[half:],
        "concat": lambda z: z,
        "grp128-dc": lambda z: z[:half] @ matrix,
        "grp128-ac": lambda z: z[half:] @ matrix,
    }
    out = {}
    for name, view in views.items():
        table = np.zeros((models, models))
        for a in range(models):
            for b in range(models):
                cosines = []
                for p in range(prompts):
                    x, y = (view(fingerprints[m, p].astype(np.float64)) for m in (a, b))
                    product = np.linalg.norm(x) * np.linalg.norm(y)
                    cosines.append(float(x @ y / product) if product > 1e-12 else 0.0)
                table[a, b] = np.mean(cosines)
        out[name] = table
    return out


def two_samples(before: np.ndarray, after: np.ndarray, method: str) -> float:
    """Energy distance, or squared MMD with biased estimates, pair by pair."""
    pooled = np.concatenate([before, after])
    squares = [((a - b) ** 2).sum() for i, a in enumerate(pooled) for b in pooled[i + 1 :]]
    width = 2 * np.median(squares)

    def mean(xs: np.ndarray, ys: np.ndarray) -> float:
        if method == "energy":
            return float(np.mean([[np.linalg.norm(x - y) for y in ys] for x in xs]))
        return float(np.mean([[np.exp(-((x - y) ** 2).sum() / width) for y in ys] for x in xs]))

    sign = 1 if method == "mmd" else -1
    return sign * (mean(before, before) + mean(after, after) - 2 * mean(before, after))


def bootstrap(sums: Sequence[float], sizes: Sequence[float], replicates: int, seed: int) -> np.ndarray:
    """Ends of the 95 % interval of a ratio of sums, one replicate of the clusters after the other."""
    rng, ratios = np.random.default_rng(seed), []
    for _ in range(replicates):
        drawn = rng.integers(0, len(sums), size=len(sums))
        ratios.append(sum(sums[c] for c in drawn) / sum(sizes[c] for c in drawn))
    return np.quantile(ratios, [0.025, 0.975])


def sign_flips(differences: np.ndarray, flips: int, seed: int) -> float:
    """p value of a sum of differences, one flip of all clusters after the other."""
    rng = np.random.default_rng(seed)
    flipped = [abs(sum(differences * (rng.integers(0, 2, size=len(differences)) * 2 - 1))) for _ in range(flips)]
    return (1 + sum(f >= abs(differences.sum()) - 1e-9 for f in flipped)) / (1 + flips)


def linkage(cosine: np.ndarray) -> list[float]:
    """Heights of average linkage on cosine distance: the two nearest clusters are merged until one is left."""
    held, heights = [[i] for i in range(len(cosine))], []
    while len(held) > 1:
        pairs = [(a, b) for a in range(len(held)) for b in range(a)]
        means = [np.mean([1 - cosine[i, j] for i in held[a] for j in held[b]]) for a, b in pairs]
        a, b = pairs[int(np.argmin(means))]
        heights.append(float(min(means)))
        held[b] += held.pop(a)
    return heights


def consecutive(edges: Sequence[float], values: np.ndarray) -> Iterator[np.ndarray]:
    """Which values lie in each half-open bin (low, high]."""
    for low, high in pairwise(edges):
        yield (values > low) & (values <= high)


def calibration_error(log_probabilities: np.ndarray, truth: np.ndarray, bins: int = 15) -> float:
    """Top-label calibration error, bin by bin."""
    confidence, right = np.exp(log_probabilities).max(1), log_probabilities.argmax(1) == truth
    gaps = [
        inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
        for inside in consecutive(np.arange(bins + 1) / bins, confidence)
        if inside.any()
    ]
    return float(sum(gaps))

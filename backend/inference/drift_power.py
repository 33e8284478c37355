"""How often the drift test speaks on real pairs: one source split in two, two of a family, two of different families.

The first is the false-alarm rate, which must stay at the level; the others are the power against a silent change of
version and against a change of provider.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.inference.drift import FEWEST_PAIRED, Method, drift_test

Floating = npt.NDArray[np.floating]
Ints = npt.NDArray[np.intp]
WINDOWS = (10, 20, 50)
PAIRS = 100
PERMUTATIONS = 199
LEVEL = 0.05
SEED = 42
KINDS = ("same", "sibling", "family")


def pairs_of_kind(family: Ints, kind: str, count: int, rng: np.random.Generator) -> Ints:
    """Random ordered pairs of sources (count, 2); families weigh by their number of sources.

    Raises ValueError if there is no such pair.
    """
    first, second = np.meshgrid(np.arange(len(family)), np.arange(len(family)), indexing="ij")
    alike = family[first] == family[second]
    fits = {"same": first == second, "sibling": alike & (first != second), "family": ~alike}[kind]
    allowed = np.argwhere(fits)
    if not len(allowed):
        raise ValueError(f"the sources hold no pair of kind {kind!r}")
    out: Ints = allowed[rng.integers(0, len(allowed), size=count)]
    return out


def held_kinds(family: Ints) -> list[str]:
    """Kinds of pairs that sources of these families (C,) have."""
    sizes = np.bincount(np.unique(family, return_inverse=True)[1])
    held = {"same": True, "sibling": bool((sizes > 1).any()), "family": len(sizes) > 1}
    return [kind for kind in KINDS if held[kind]]


def drift_frame(
    features: Floating,
    family: Ints,
    space: str,
    windows: Sequence[int] = WINDOWS,
    methods: Sequence[Method] = ("energy", "mmd"),
    pairs: int = PAIRS,
    permutations: int = PERMUTATIONS,
    level: float = LEVEL,
    seed: int = SEED,
) -> pd.DataFrame:
    """Share of pairs of windows that the drift test calls different.

    features : (C * P, D) row = source * P + prompt; standardised fingerprints, or log-posteriors.
    family : (C,).
    space : what the features are, e.g. 'fingerprints'.
    windows : traces a window; the two windows of a pair answer different prompts, or (paired) the same ones.
    Returns columns k (traces a window), metric ``alarms``, scenario (same, sibling, family), statistic (energy, mmd,
        and these with ``-paired``), level, space, value, std (binomial standard error) and n (pairs). Pairs of kind
        'same' have no paired form: an endpoint that is asked twice answers anew, and the data hold one answer a prompt.
        Nor have windows with fewer prompts than a paired test needs. A kind of which the sources hold no pair is
        absent.
    """
    prompts = len(features) // len(family)
    rows: list[dict[str, object]] = []
    for window in windows:
        for kind in held_kinds(family):
            rng = np.random.default_rng([seed, window, KINDS.index(kind)])
            chosen = pairs_of_kind(family, kind, pairs, rng)
            orders = [rng.permutation(prompts)[: 2 * window] for _ in chosen]
            for method in methods:
                for paired in (False, True) if kind != "same" and window >= FEWEST_PAIRED else (False,):
                    alarms = []
                    for (a, b), order in zip(chosen, orders, strict=True):
                        before = features[a * prompts + order[:window]]
                        after = features[b * prompts + (order[:window] if paired else order[window:])]
                        test = drift_test(before, after, method, paired, permutations, seed)
                        alarms.append(test.p_value <= level)
                    share = float(np.mean(alarms))
                    spread = float(np.sqrt(share * (1 - share) / pairs))
                    about = {"scenario": kind, "statistic": f"{method}{'-paired' if paired else ''}", "space": space}
                    row = {"k": window, "metric": "alarms", **about, "level": level}
                    rows.append({**row, "value": share, "std": spread, "n": pairs})
    return pd.DataFrame(rows)

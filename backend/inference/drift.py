"""Drift between two windows of traces: test, power and words (paper, Limitations).

Two-sample permutation tests on fingerprints, by the energy distance or the maximum mean discrepancy with a Gaussian
kernel. Where both windows answered the same prompts, answers are swapped within prompts, which removes the variance
between these. The power is measured on real pairs of windows: of one source, of one family, and of two families.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from backend.inference import Doubles, Floating, Ints
from backend.parallel import PATIENCE, each
from backend.statistics import FLIPS

Method = Literal["energy", "mmd"]
PERMUTATIONS, POWER_PERMUTATIONS = 999, 199
SEED = 42
LEVEL = 0.05  # windows are called different at this p value or below
ROUNDING = 1e-12  # relative error of sums and products
FEWEST_PAIRED = 6  # prompts that paired windows need at 5 %: with 5, the rarest of 16 swaps has p = .0625
SUPPORTING = 1.0  # log10 ratio against a sibling from which no difference speaks for an unchanged source
WINDOWS = (10, 20, 50)
PAIRS = 100
KINDS = {"same": "an unchanged source", "sibling": "a sibling of its family", "family": "another family"}
DIFFERENT, ALIKE = "DIFFERENT", "NO DIFFERENCE SEEN"
MEANING = {
    DIFFERENT: ("differ", "Something between prompt and answer changed."),
    ALIKE: (
        "do not differ",
        "That is no proof that nothing changed; below is what a test of this size would have seen.",
    ),
}
UNPAIRED = (
    "The windows do not answer the same prompts one by one. Questions of another kind can look like another model: "
    "compare windows with the same prompts where you can."
)
NOT_LIKE = (
    "These prompts are not known to be of the enrolled kind. How often such a test misses another model was measured "
    "on that kind alone, so seeing no difference supports nothing here. A difference between answers to the same "
    "prompts counts all the same."
)
UNMEASURED = "What a test with windows of this size is worth is no part of this enrolment's validation."


@dataclass(frozen=True)
class DriftTest:
    """Result of a two-sample test."""

    statistic: float  # energy distance, or squared MMD with biased estimates; 0 for equal windows
    p_value: float  # ``(1 + permutations at least as extreme) / (1 + permutations)``
    method: Method
    paired: bool  # whether answers were swapped within prompts
    before: int  # traces of the window
    after: int
    permutations: int  # drawn; of paired windows with so few prompts that all swaps are tried, their number
    seed: int  # of what was drawn
    chance_95: float  # 95 % of the statistics of what was drawn are at most this
    chance_largest: float


def drift_test(
    before: Floating,
    after: Floating,
    method: Method = "energy",
    paired: bool = False,
    permutations: int = PERMUTATIONS,
    seed: int = SEED,
) -> DriftTest:
    """Test whether two windows of traces come from the same distribution.

    before, after : (n, D) and (m, D) standardised fingerprints, or log-posteriors, of prompts that are alike.
    method : the kernel width of MMD is the median distance of the pooled traces.
    paired : row i of both windows answers the same prompt.
    Raises ValueError if a window has fewer than two traces, or paired windows differ in length.
    """
    n, m = len(before), len(after)
    if n < 2 or m < 2:
        raise ValueError(f"each window needs at least two traces, got {n} and {m}")
    if paired and n != m:
        raise ValueError(f"paired windows must have as many traces, got {n} and {m}")
    similarity = similarities(np.concatenate([before, after]).astype(np.float64), method)
    observed = np.r_[np.full(n, 1.0 / n), np.full(m, -1.0 / m)]
    rng = np.random.default_rng(seed)
    if paired:
        if 2 ** (n - 1) > permutations:
            stays = rng.integers(0, 2, size=(permutations, n))
        else:  # all swaps but the observed one; the first prompt stays, since swapping all others is the same
            stays = 1 - (np.arange(1, 2 ** (n - 1))[:, None] >> np.arange(n)[::-1] & 1)
        signs = np.where(stays, 1.0, -1.0)
        drawn = np.concatenate([signs, -signs], axis=1) / n
    else:
        drawn = rng.permuted(np.broadcast_to(observed, (permutations, n + m)), axis=1)
    weights = np.concatenate([observed[None], drawn])
    statistics = ((weights @ similarity) * weights).sum(1)
    # The same partition met again must count as a tie, whatever the order of its sums.
    slack = max(1e-9 * abs(float(statistics[0])), ROUNDING * float(np.abs(similarity).max()))
    extreme = statistics[1:] >= statistics[0] - slack
    p_value = (1 + int(extreme.sum())) / len(statistics)
    chance = float(np.quantile(statistics[1:], 0.95)), float(statistics[1:].max())
    return DriftTest(float(statistics[0]), p_value, method, paired, n, m, len(drawn), seed, *chance)


def similarities(rows: Doubles, method: Method) -> Doubles:
    """Matrix (N, N) whose quadratic form in 1/n and -1/m is the statistic: minus a distance, or a Gaussian kernel."""
    squares = (rows**2).sum(1)
    both = squares[:, None] + squares
    distances = both - 2 * rows @ rows.T
    distances[distances <= ROUNDING * both] = 0.0  # equal rows, of which the product leaves a rest
    if method == "energy":
        out: Doubles = -np.sqrt(distances)
        return out
    width = float(np.median(distances[np.triu_indices(len(rows), 1)]))
    return np.exp(-distances / (2 * width)) if width > 0 else np.ones_like(distances)


def pairs_of_kind(family: Ints, kind: str, count: int, rng: np.random.Generator) -> Ints:
    """Random ordered pairs of sources (count, 2)."""
    alike, same = family[:, None] == family, np.eye(len(family), dtype=bool)
    allowed = np.argwhere({"same": same, "sibling": alike & ~same, "family": ~alike}[kind])
    if not len(allowed):
        raise ValueError(f"the sources hold no pair of kind {kind!r}")
    return allowed[rng.integers(0, len(allowed), size=count)]


def pair_kinds(family: Ints) -> list[str]:
    """Kinds of pairs that sources of these families (C,) have."""
    sizes = np.unique(family, return_counts=True)[1]
    has = {"same": True, "sibling": (sizes > 1).any(), "family": len(sizes) > 1}
    return [kind for kind in KINDS if has[kind]]


def drift_frame(
    features: Floating,
    family: Ints,
    space: str,
    windows: Sequence[int] = WINDOWS,
    methods: Sequence[Method] = ("energy", "mmd"),
    pairs: int = PAIRS,
    permutations: int = POWER_PERMUTATIONS,
    seed: int = SEED,
) -> pd.DataFrame:
    """Share of pairs of windows that the drift test calls different.

    features : (C * P, D) row = source * P + prompt; standardised fingerprints, or log-posteriors; family : (C,).
    space : what the features are, e.g. 'fingerprints'; windows : traces a window.
    Returns columns k (traces a window), metric ``alarms``, scenario (same, sibling, family), statistic (energy, mmd,
        and these with ``-paired``), level, space, value, std (binomial standard error) and n (pairs). A kind without
        pairs is absent; 'same' has no paired form, since the data hold one answer a prompt.
    """
    prompts = len(features) // len(family)
    rows: list[dict[str, object]] = []
    for window in windows:
        for kind in pair_kinds(family):
            rng = np.random.default_rng([seed, window, list(KINDS).index(kind)])
            chosen = pairs_of_kind(family, kind, pairs, rng)
            orders = [rng.permutation(prompts)[: 2 * window] for _ in chosen]
            for method in methods:
                for paired in (False, True) if kind != "same" and window >= FEWEST_PAIRED else (False,):
                    windowed = (
                        (
                            features[a * prompts + order[:window]],
                            features[b * prompts + (order[:window] if paired else order[window:])],
                            *(method, paired, permutations, seed),
                        )
                        for (a, b), order in zip(chosen, orders, strict=True)
                    )
                    alarms = [test.p_value <= LEVEL for test in each(drift_test, windowed, PATIENCE)]
                    share = float(np.mean(alarms))
                    spread = float(np.sqrt(share * (1 - share) / pairs))
                    about = {"scenario": kind, "statistic": f"{method}{'-paired' if paired else ''}", "space": space}
                    measured = {"level": LEVEL, "value": share, "std": spread, "n": pairs}
                    rows.append({"k": window, "metric": "alarms", **about, **measured})
    return pd.DataFrame(rows)


def repeated_frame(
    first: Floating,
    second: Floating,
    family: Ints,
    space: str,
    windows: Sequence[int] = WINDOWS,
    pairs: int = PAIRS,
    permutations: int = POWER_PERMUTATIONS,
    seed: int = SEED,
) -> pd.DataFrame:
    """As :func:`drift_frame` for two draws (C * P, D) of the same sources on the same prompts, paired only.

    'same' is the first draw of a source against its second one, on the same prompts: its share is that of false alarms.
    """
    prompts = len(first) // len(family)
    rows: list[dict[str, object]] = []
    for window in (one for one in windows if one <= prompts):
        for kind in pair_kinds(family):
            rng = np.random.default_rng([seed, window, list(KINDS).index(kind)])
            chosen = [(a, b, rng.permutation(prompts)[:window]) for a, b in pairs_of_kind(family, kind, pairs, rng)]
            steps = (
                (first[a * prompts + order], second[b * prompts + order], "energy", True, permutations, seed)
                for a, b, order in chosen
            )
            alarms = [test.p_value <= LEVEL for test in each(drift_test, steps, PATIENCE)]
            share = float(np.mean(alarms))
            about = {"scenario": kind, "statistic": "energy-paired", "space": space, "level": LEVEL}
            spread = float(np.sqrt(share * (1 - share) / pairs))
            rows.append({"k": window, "metric": "alarms", **about, "value": share, "std": spread, "n": pairs})
    return pd.DataFrame(rows)


def outcome_ratios(test: Mapping[str, Any], power: Mapping[str, Any] | None) -> dict[str, float]:
    """Log10 likelihood ratio of the outcome under an unchanged source against a sibling, and another family.

    test, power : as of :func:`expected`. Shares are those of :data:`PAIRS` real pairs and one more of either outcome,
    so that no ratio is beyond what so many could have shown. Swaps within prompts alarm at their level exactly.
    """
    if power is None:
        return {}

    def chance(share: float) -> float:
        alarms = (share * PAIRS + 1) / (PAIRS + 2)
        return alarms if verdict(test) == DIFFERENT else 1 - alarms

    level = float(power["level"])
    unchanged = level if power.get("same") is None else (float(power["same"]) * PAIRS + 1) / (PAIRS + 2)
    same = unchanged if verdict(test) == DIFFERENT else 1 - unchanged
    kinds = (kind for kind in KINDS if kind != "same" and power.get(kind) is not None)
    return {kind: float(np.log10(same / chance(power[kind]))) for kind in kinds}


def verdict(test: Mapping[str, Any]) -> str:
    """Whether the windows are called different."""
    return DIFFERENT if test["p_value"] <= LEVEL else ALIKE


def p_text(p_value: float) -> str:
    """A p value to three digits, never as nought or one: '.012', '< .001', '> .999'; '–' without one."""
    if np.isnan(p_value):
        return "–"
    if p_value < 0.001:
        return "< .001"
    return "> .999" if p_value >= 0.9995 else f"{p_value:.3f}".removeprefix("0")


def p_words(p_value: float) -> str:
    """A p value in a sentence: 'p = .012', 'p < .001'."""
    return _in_words(p_text(p_value))


def _in_words(text: str) -> str:
    return f"p {text if text[0] in '<>≤' else f'= {text}'}"


def is_smallest(test: Mapping[str, Any]) -> bool:
    """Whether the draws of a :class:`DriftTest` can give no smaller p value, and not all swaps were tried."""
    drawn = test["permutations"] + 1
    all_swaps = test["paired"] and drawn == 2 ** (test["before"] - 1)
    return not all_swaps and test["p_value"] * drawn <= 1 + ROUNDING


def p_text_of(test: Mapping[str, Any]) -> str:
    """The p value of a :class:`DriftTest`: at most so much, '≤ .001', where its draws can give no smaller one."""
    text = p_text(test["p_value"])
    return f"≤ {text}" if is_smallest(test) and text[0] not in "<>" else text


def p_words_of(test: Mapping[str, Any]) -> str:
    """:func:`p_text_of` in a sentence."""
    return _in_words(p_text_of(test))


def corrected_words(raw: float, corrected: float) -> str:
    """A corrected p of sign flips in a sentence: at most so much, 'p ≤ .001', where they can give no smaller one."""
    words = p_words(corrected)
    return words.replace("=", "≤").replace("<", "≤") if raw <= (1 + ROUNDING) / (1 + FLIPS) else words


def level_text(level: float) -> str:
    """A level of significance without a leading zero: '.05'."""
    return f"{level:g}".removeprefix("0")


def sentence(test: Mapping[str, Any]) -> str:
    """The answer of a :class:`DriftTest`, with its ``power``, for people; :func:`expected` belongs below it."""
    differ, means = MEANING[verdict(test)]
    windows = f"{test['before']:,} and {test['after']:,} traces"
    if differ == "differ" and not test["paired"]:
        same = (test.get("power") or {}).get("same")
        alone = "how often other questions alone do so was not measured"
        if same is not None:
            alone = (
                "whether both windows ask questions of one kind was not tested. Where both do, "
                f"{100 * same:.0f} % of unchanged sources are called different, at p ≤ {level_text(LEVEL)}"
            )
        means = f"Something between prompt and answer changed, or the questions did: {alone}."
    return f"The two windows of {windows} {differ} by more than chance ({p_words_of(test)}). {means}"


def expected(power: Mapping[str, Any] | None, paired: bool) -> str:
    """What such a test is worth, by :func:`backend.enrolment.validation_lookup.expected_power`, in a sentence."""
    if power is None:
        return UNMEASURED
    prompts = f"{'the same' if paired else 'different'} enrolled prompts"
    return (
        f"Of real pairs of windows of {power['window']:,} traces to {prompts} it calls different: {shares_text(power)}."
    )


def shares_text(power: Mapping[str, Any]) -> str:
    """How often each kind of pair is called different."""
    return ", ".join(
        f"{words} {100 * power[kind]:.0f} %" for kind, words in KINDS.items() if power.get(kind) is not None
    )


def so_far(read: Sequence[tuple[int, int]]) -> str:
    """How much was read of both windows, of each (read, total), as a part of a sentence."""
    (one, of_one), (two, of_two) = read
    return f"{one:,} of {of_one:,} traces of the first window and {two:,} of {of_two:,} of the second were read"


def named(window: Mapping[str, Any]) -> str:
    """Name of a window: its file, and which half of it."""
    return f"{window['name']}, {window['part']}" if window["part"] else str(window["name"])

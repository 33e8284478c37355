"""Every evaluation against its slow, obvious version on real responses, as the real proxy reads them.

Six sources answer the first twenty prompts of Agent500 and the first ten of Math100; they are read once, in few tokens
and at two shallow blocks. What is compared is arithmetic: nothing here says how good a reader is. Relationships,
capability and cost have their real records in tests of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax
from scipy.stats import beta, spearmanr
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from backend.corpus.release import Release, read_jsonl_gz
from backend.evaluations.attribution import (
    accuracy_intervals,
    attribution_frames,
    cluster_hits,
    compare_endpoints,
    out_of_fold,
    scan_layers,
    select_layers,
)
from backend.evaluations.controls import UNSCALED, components, compressions, matched_evidence, poolings, variance_ratios
from backend.evaluations.readouts import (
    BankRows,
    aligned_load,
    fit_discriminants,
    fit_gram_models,
    fold_moments,
    fuse,
    score_discriminants,
    score_grams,
    score_transfer,
    scores_shape,
    serve_banks,
    transfer,
)
from backend.evaluations.stages.baselines import assemble, score_fold
from backend.evaluations.stages.stress import (
    excluded_posteriors,
    global_frames,
    retained_shares,
    transfer_frames,
    transferred_posteriors,
)
from backend.geometry.maps import TextSettings, TextSpace
from backend.geometry.neighborhoods import (
    PuritySettings,
    directed_ranks,
    family_purity,
    neighbor_frame,
    neighbor_order,
    pair_ranks,
    passing_pairs,
    permuted_hits,
    reader_agreement,
)
from backend.geometry.neighborhoods import prompt_stability as stability_of_prompts
from backend.geometry.projections import (
    bandwidth,
    density_grid,
    level_of_mass,
    map_distances,
    neighborhood_overlap,
    project,
    trustworthiness,
)
from backend.geometry.signatures import (
    cosine_similarity,
    cross_domain,
    dendrogram,
    dendrogram_frame,
    signatures,
    source_means,
    unit_rows,
)
from backend.inference.calibration import fit_calibration, fit_scale, held_out_groups
from backend.inference.domain_shift import fit_domain
from backend.inference.drift import drift_frame, drift_test
from backend.inference.likelihood_ratios import log_likelihood_ratios
from backend.inference.sequential_stop import (
    CLAIM_THRESHOLDS,
    THRESHOLDS,
    fit_stop_rule,
    nearest_sources,
    ordered_sessions,
    running_ratios,
)
from backend.inference.unknown_source import (
    RIDGES,
    LeftOut,
    choose_ridge,
    fit_discriminant,
    fit_unknown,
    unknown_frame,
    unknown_p_values,
    without_columns,
)
from backend.inference.validation import calibration_frame
from backend.methods.baselines import MATCHERS, distances, dna_vectors, match_rates
from backend.methods.domain_adaptation import balanced
from backend.methods.ngrams import WORDS, SoftmaxSettings, count, count_grams, fit_grams, fit_ngrams
from backend.methods.probe import ProbeSettings, descend, fit_probe
from backend.methods.representations import MIXTURES, MODES, REPRESENTATIONS, temporal_evidence
from backend.methods.stack import CELLS, EDGES, ENDINGS, Confidence, cells_of, fit_confidence
from backend.protocol import CLEAN, fold_of_prompts
from backend.proxies.encoding import Encoded, cut_responses
from backend.proxies.reader import Reader, Readout
from backend.spectral import dct_weights
from backend.traces import Trace, view_text
from tests import twins

pytestmark = [pytest.mark.release, pytest.mark.proxy, pytest.mark.slow]

SOURCES = {
    "qwen25_3b": "Qwen",
    "qwen25_7b": "Qwen",
    "llama3_8b": "Llama",
    "llama31_8b": "Llama",
    "mistral7b_v03": "Mistral",
    "gemma3_27b": "Gemma",
}
NAMES, FAMILIES = list(SOURCES), list(SOURCES.values())
S, PROMPTS, MATH = len(SOURCES), 20, 10
LABELS = np.repeat(np.arange(S), PROMPTS)
TOKENS, D = 96, 576
FIRST, SECOND = LAYERS = (1, 3)
LAYER_OF_FOLD = {0: 3, 1: 1, 2: 3, 3: 3, 4: 1}
BUDGETS, SEEDS = (1, 2, 4), (42, 43, 44)
FEW = np.r_[np.arange(0, 20), np.arange(D, D + 20)]
"""Coordinates of both spectral blocks, for what takes the inverse of a covariance or loops over coordinates."""


@dataclass(frozen=True)
class Slice:
    """Traces as text, in tokens, and as fingerprints by block and variant."""

    traces: list[Trace]
    math: list[Trace]
    encoded: list[Encoded]
    read: dict[tuple[int, str], np.ndarray]
    math_read: dict[tuple[int, str], np.ndarray]
    prompt_folds: np.ndarray

    @property
    def folds(self) -> np.ndarray:
        return np.tile(self.prompt_folds, S)

    @property
    def math_folds(self) -> np.ndarray:
        return np.tile(np.arange(MATH) % 5, S)

    def load(self, layer: int) -> np.ndarray:
        return self.read[layer, "full"].astype(np.float32)

    def few(self, layer: int = SECOND, variant: str = "full") -> np.ndarray:
        return self.read[layer, variant][:, FEW].astype(np.float32)


@pytest.fixture(scope="module")
def real(release: Release, smollm2: Reader) -> Slice:
    def responses(benchmark: str, prompts: int) -> tuple[list[str], list[Trace]]:
        rows = [
            sorted((row["sample_id"], row["prompt"], row["response"]) for _, row in read_jsonl_gz(path))[:prompts]
            for path in (release.data / "responses" / benchmark / f"{name}.jsonl.gz" for name in SOURCES)
        ]
        assert len({tuple(sample for sample, _, _ in part) for part in rows}) == 1
        return [sample for sample, _, _ in rows[0]], [Trace(p, r) for part in rows for _, p, r in part]

    (ids, traces), (_, math) = responses("agent500", PROMPTS), responses("math100", MATH)
    encoded = smollm2.encode(traces, "ur", max_tokens=TOKENS)
    kept = Readout((None, 64, 32), temporal=(SECOND,), positions=(SECOND,))
    read = smollm2.read(encoded, LAYERS, kept)
    math_read = smollm2.read(smollm2.encode(math, "ur", max_tokens=TOKENS), LAYERS)
    return Slice(traces, math, encoded, read, math_read, fold_of_prompts(ids))


@pytest.fixture(scope="module")
def evidence(real: Slice):
    """Out-of-fold log-posteriors and the probes behind them."""
    return out_of_fold(real.load, LAYER_OF_FOLD, LABELS, real.folds, S)


def value(frame: pd.DataFrame, **where) -> pd.Series:
    for name, wanted in where.items():
        frame = frame[frame[name].isna() if wanted is None else frame[name] == wanted]
    assert len(frame) == 1, (where, len(frame))
    return frame.iloc[0]


def summary(metrics: pd.DataFrame, k: int, reduction: str, metric: str) -> pd.Series:
    return value(metrics, k=k, reduction=reduction, metric=metric, seed=None, fold=None)


# ---- reading, probes, attribution ------------------------------------------------------------------------------------


def test_what_is_kept_of_a_trajectory_is_what_its_states_say(real: Slice, smollm2: Reader):
    for i in (0, 47, 119):
        states = smollm2.states(real.encoded[i], [SECOND])[SECOND].astype(np.float64)
        length = len(states)

        def mode(r: int, h: np.ndarray) -> np.ndarray:
            angle = [np.cos(np.pi * r * (t + 0.5) / len(h)) for t in range(len(h))]
            return (np.sqrt(2) if r else 1) / len(h) * sum(a * state for a, state in zip(angle, h, strict=True))

        wanted = {
            "full": [mode(r, states) for r in (0, 1)],
            "t64": [mode(r, states[:64]) for r in (0, 1)],
            "t32": [mode(r, states[:32]) for r in (0, 1)],
            "temporal": [*(mode(r, states) for r in range(8)), states.max(0), states[-1]],
            "positions": [
                *states[twins.positions(length, 16)],
                *(states[twins.positions(length, m)].mean(0) for m in (32, 64)),
                states[::-1][::4].mean(0),
                states[::-1][::4][:32].mean(0),
            ],
        }
        for variant, vectors in wanted.items():
            got = real.read[SECOND, variant][i].astype(np.float64).reshape(len(vectors), D)
            for ours, vector in zip(got, vectors, strict=True):
                size = np.linalg.norm(ours) * np.linalg.norm(vector)
                assert ours @ vector / size > 0.999, (i, variant)
        np.testing.assert_allclose(dct_weights(length, 2) @ states, wanted["full"], rtol=1e-9, atol=1e-9)


def test_probe_is_autograd_with_adam(real: Slice):
    train = np.flatnonzero(real.folds != 0)[1:]  # balanced classes would leave the bias's first step to rounding
    x = real.load(SECOND)[train]
    probe = fit_probe(x, LABELS[train], S)
    weight, bias = twins.probe_by_autograd(x.astype(np.float64), LABELS[train], S)
    np.testing.assert_allclose(probe.weight, weight, atol=2e-4)
    np.testing.assert_allclose(probe.bias, bias, atol=2e-4)
    row = real.load(SECOND)[3]
    np.testing.assert_allclose(probe.log_posterior(row[None])[0], twins.posterior_of(probe, row), atol=1e-4)


def test_attribution(real: Slice, evidence):
    log_posteriors, probes = evidence
    for fold, layer in LAYER_OF_FOLD.items():
        test, x = real.folds == fold, real.load(layer)
        again = fit_probe(x[~test], LABELS[~test], S)
        np.testing.assert_allclose(probes[fold].weight, again.weight, atol=1e-6)
        for row in np.flatnonzero(test)[::5]:
            np.testing.assert_allclose(log_posteriors[row], twins.posterior_of(again, x[row]), atol=1e-4)
    frames = attribution_frames(log_posteriors, NAMES, FAMILIES, real.prompt_folds, BUDGETS)
    assert set(frames.metrics["k"]) == set(BUDGETS)
    for k in BUDGETS:
        told = {
            (seed, fold): list(twins.groups(log_posteriors, k, seed, real.prompt_folds, fold))
            for seed in SEEDS
            for fold in range(5)
        }
        pooled: dict[str, list[float]] = {}
        by_fold = []
        for seed in SEEDS:
            cases = [case for fold in range(5) for case in told[seed, fold]]
            truth = np.array([source for source, _ in cases])
            scores = {"sum": np.array([t for _, t in cases]), "mean": np.array([t / k for _, t in cases])}
            answer = scores["sum"].argmax(1)
            kin = [t != a and FAMILIES[t] == FAMILIES[a] for t, a in zip(truth, answer, strict=True)]
            found = {
                "accuracy": np.mean(truth == answer),
                "macro_f1": f1_score(truth, answer, average="macro", labels=range(S), zero_division=0),
                "errors": np.sum(truth != answer),
                "errors_within_family": np.sum(kin),
            }
            for name, part in scores.items():
                told_of = log_softmax(part, axis=1)
                found[f"nll_{name}"] = -np.mean([told_of[i, t] for i, t in enumerate(truth)])
                found[f"ece_{name}"] = twins.calibration_error(told_of, truth)
            for name, number in found.items():
                pooled.setdefault(name, []).append(float(number))
        for fold in range(5):
            hits = [np.mean([source == total.argmax() for source, total in told[seed, fold]]) for seed in SEEDS]
            by_fold.append(np.mean(hits))
        for name, numbers in pooled.items():
            row = summary(frames.metrics, k, "pooled", name)
            assert (row["value"], row["std"]) == pytest.approx((np.mean(numbers), np.std(numbers)), abs=1e-9), name
        row = summary(frames.metrics, k, "fold", "accuracy")
        assert (row["value"], row["std"]) == pytest.approx((np.mean(by_fold), np.std(by_fold)))
        counts = Counter((t, int(total.argmax())) for cases in told.values() for t, total in cases)
        cells = frames.confusion[frames.confusion["k"] == k]
        assert {(NAMES[a], NAMES[b]): n for (a, b), n in counts.items()} == {
            (row.truth, row.predicted): row.count for row in cells.itertuples(index=False)
        }
        for i, name in enumerate(NAMES):
            row = value(frames.source_accuracy, k=k, source=name)
            assert row["accuracy"] == pytest.approx(counts[i, i] / sum(n for (t, _), n in counts.items() if t == i))


def test_selection(real: Slice):
    scores = scan_layers(real.load, LAYERS, LABELS, real.folds, S)
    assert len(scores) == 2 * 20
    for row in scores.itertuples():
        test = real.folds == row.inner_fold
        train = ~test & (real.folds != row.outer_fold)
        x = real.load(row.layer)
        probe = fit_probe(x[train], LABELS[train], S)
        right = (probe.log_posterior(x[test]).argmax(1) == LABELS[test]).sum()
        assert abs(row.accuracy * test.sum() - right) < 1.01  # one row may sit on a boundary
    votes = []
    for outer in range(5):
        mean = {
            layer: np.mean([r.accuracy for r in scores.itertuples() if (r.outer_fold, r.layer) == (outer, layer)])
            for layer in LAYERS
        }
        votes.append(min(LAYERS, key=lambda layer, mean=mean: (-mean[layer], layer)))
    counted = Counter(votes)
    most = [layer for layer, n in counted.items() if n == max(counted.values())]
    overall = {layer: scores.loc[scores["layer"] == layer, "accuracy"].mean() for layer in LAYERS}
    modal = min(most, key=lambda layer: (-overall[layer], layer))
    assert select_layers(scores)["layer"].tolist() == [*votes, modal]


def test_stress(real: Slice, evidence):
    clean, probes = evidence
    math = {layer: real.math_read[layer, "full"].astype(np.float32) for layer in LAYERS}
    for length in ("t64", "t32"):
        cut = {layer: real.read[layer, length].astype(np.float32) for layer in LAYERS}
        found = excluded_posteriors(cut.__getitem__, LAYER_OF_FOLD, probes, real.folds)
        for row in range(0, S * PROMPTS, 7):
            fold = real.folds[row]
            wanted = twins.posterior_of(probes[fold], cut[LAYER_OF_FOLD[fold]][row])
            np.testing.assert_allclose(found[row], wanted, atol=1e-4)
    frames = global_frames(found, NAMES, FAMILIES, (1, 5, 20))
    for k in (1, 5, 20):
        told = [np.mean(np.equal(*twins.decisions(found, k, seed))) for seed in SEEDS]
        row = summary(frames.metrics, k, "pooled", "accuracy")
        assert (row["value"], row["std"]) == pytest.approx((np.mean(told), np.std(told)))
    whole = attribution_frames(clean, NAMES, FAMILIES, real.prompt_folds, BUDGETS).metrics
    whole = whole[(whole["metric"] == "accuracy") & whole["seed"].isna() & whole["fold"].isna()]
    kept = retained_shares(frames.metrics, whole)
    share = np.mean(np.equal(*twins.decisions(found, 1, 42))) / np.mean(np.equal(*twins.decisions(clean, 1, 42)))
    assert (kept["k"].tolist(), kept["value"].tolist()) == ([1], pytest.approx([share]))

    moved = transferred_posteriors(math.__getitem__, LAYER_OF_FOLD, probes)
    for fold, layer in LAYER_OF_FOLD.items():
        for row in range(0, S * MATH, 11):
            wanted = twins.posterior_of(probes[fold], math[layer][row])
            np.testing.assert_allclose(moved[fold, row], wanted, atol=1e-4)
    frames = transfer_frames(moved, NAMES, FAMILIES, (1, 5, 10))
    for k in (1, 5, 10):
        each = [np.mean([np.mean(np.equal(*twins.decisions(m, k, s))) for s in SEEDS]) for m in moved]
        row = summary(frames.metrics, k, "fold", "accuracy")
        assert (row["value"], row["std"]) == pytest.approx((np.mean(each), np.std(each)))
        ensemble = moved.astype(np.float64).mean(0)
        told = [np.mean(np.equal(*twins.decisions(ensemble, k, seed))) for seed in SEEDS]
        assert summary(frames.metrics, k, "pooled", "accuracy")["value"] == pytest.approx(np.mean(told))


def test_end_points(real: Slice, evidence):
    posteriors = {
        "mixed": evidence[0],
        "first": out_of_fold(real.load, dict.fromkeys(range(5), FIRST), LABELS, real.folds, S)[0],
    }
    hits = {name: cluster_hits(array, real.prompt_folds, BUDGETS) for name, array in posteriors.items()}
    frame = compare_endpoints(hits, [("mixed", "first")], replicates=200, flips=300, seed=3)
    intervals = accuracy_intervals(hits["mixed"], replicates=200, seed=3)
    for i, k in enumerate(BUDGETS):
        told = {name: twins.clusters(array, real.prompt_folds, k) for name, array in posteriors.items()}
        for name, (right, sizes) in told.items():
            assert [part.tolist() for part in hits[name][k]] == [right, sizes]
        (right, sizes), (other, _) = told["mixed"], told["first"]
        gap = np.subtract(right, other)
        assert frame["difference"][i] == pytest.approx(gap.sum() / sum(sizes))
        np.testing.assert_allclose((frame["low"][i], frame["high"][i]), twins.bootstrap(gap, sizes, 200, seed=3))
        assert frame["p_value"][i] == pytest.approx(twins.sign_flips(gap, 300, seed=3))
        ends = intervals[intervals["k"] == k].set_index("metric")["value"]
        wanted = twins.bootstrap(right, sizes, 200, seed=3)
        np.testing.assert_allclose(ends.loc[["accuracy_low", "accuracy_high"]], wanted)
    order = frame["p_value"].argsort().tolist()
    stepped = [min(1.0, frame["p_value"][i] * (len(order) - rank)) for rank, i in enumerate(order)]
    np.testing.assert_allclose(frame["p_holm"][order], [max(stepped[: rank + 1]) for rank in range(len(order))])


# ---- controls --------------------------------------------------------------------------------------------------------


def test_components_and_poolings_are_the_probe_on_their_vectors(real: Slice):
    states = real.read[SECOND, "positions"].astype(np.float64).reshape(-1, 20, D)
    halves = real.load(SECOND).reshape(-1, 2, D)
    found = matched_evidence(real.load, {4: SECOND}, LABELS, real.folds, S, components())
    stored = real.read[SECOND, "positions"]
    found |= matched_evidence(lambda _: stored, {4: SECOND}, LABELS, real.folds, S, poolings())
    test = real.folds == 4
    scores = []
    for m in range(16):
        x = states[~test, m]
        groups = [x[LABELS[~test] == c] for c in range(S)]
        between = sum(len(g) * (g.mean(0) - x.mean(0)) ** 2 for g in groups) / (S - 1)
        within = sum(((g - g.mean(0)) ** 2).sum(0) for g in groups) / (len(x) - S)
        scores.append((between / within).mean())
    fisher = np.array(scores) / sum(scores)
    expected = {
        "reader-dc": halves[:, 0],
        "reader-ac": halves[:, 1],
        "positions-16": states[:, :16].mean(1),
        "positions-32": states[:, 16],
        "positions-64": states[:, 17],
        "positions-stride4": states[:, 18],
        "positions-stride4-32": states[:, 19],
        "positions-fisher": sum(fisher[m] * states[:, m] for m in range(16)),
        "positions-fisher25": sum((0.25 * fisher[m] + 0.75 / 16) * states[:, m] for m in range(16)),
    }
    assert set(found) == set(expected)
    for method, x in expected.items():
        x = x.astype(np.float32)
        wanted = fit_probe(x[~test], LABELS[~test], S).log_posterior(x[test])
        np.testing.assert_allclose(found[method][test], wanted, atol=2e-3, err_msg=method)


def test_compressions(real: Slice):
    found = matched_evidence(real.load, {2: SECOND}, LABELS, real.folds, S, compressions(), unscaled=UNSCALED)
    test = real.folds == 2
    x = real.load(SECOND).astype(np.float64)
    x = (x - x[~test].mean(0)) / x[~test].std(0)
    centroids = np.array([x[~test & (c == LABELS)].mean(0) for c in range(S)])
    axes = {
        "pca-64": np.linalg.svd(x[~test], full_matrices=False)[2][:64],
        "centroid-svd": np.linalg.svd(centroids - centroids.mean(0), full_matrices=False)[2][: S - 1],
    }
    for method, directions in axes.items():
        seen, unseen = ((x[rows] @ directions.T).astype(np.float32) for rows in (~test, test))
        wanted = fit_probe(seen, LABELS[~test], S).log_posterior(unseen)
        np.testing.assert_allclose(found[method][test], wanted, atol=5e-3, err_msg=method)
        weight, bias = descend(torch.from_numpy(seen), torch.from_numpy(LABELS[~test]), S, ProbeSettings())
        wanted = torch.log_softmax(torch.from_numpy(unseen) @ weight + bias, -1).numpy()
        np.testing.assert_allclose(found[f"{method}-unscaled"][test], wanted, atol=5e-3, err_msg=method)


def test_temporal_controls(real: Slice):
    rows = real.read[SECOND, "temporal"]
    found = temporal_evidence(rows, LABELS, real.folds, S)
    vectors = rows.reshape(len(rows), 10, D).astype(np.float32)
    test = real.folds == 1
    for method, parts in {
        "temporal-mean": [0],
        "temporal-final": [9],
        "temporal-max": [8],
        "temporal-mean-final": [0, 9],
        "temporal-mean-max": [0, 8],
        "temporal-final-max": [9, 8],
        "dct-q2": [0, 1],
        "dct-q4": list(range(4)),
        "dct-q8": list(range(8)),
    }.items():
        assert set(parts) == set(REPRESENTATIONS[method])
        x = np.concatenate([vectors[:, part] for part in parts], 1)
        wanted = fit_probe(x[~test], LABELS[~test], S).log_posterior(x[test])
        np.testing.assert_allclose(found.log_posteriors[method][test], wanted, atol=2e-3, err_msg=method)
    modes = vectors[:, :MODES].reshape(len(rows), -1)
    x = torch.from_numpy((modes - modes[~test].mean(0)) / modes[~test].std(0))
    y = torch.from_numpy(LABELS)
    for method, heads in MIXTURES.items():
        a, weight, bias = twins.mixture_by_autograd(x[~test], y[~test], S, heads, ProbeSettings())
        table = found.mixtures[method]
        got = table[table["fold"] == 1].pivot(index="head", columns="mode", values="weight").to_numpy()
        np.testing.assert_allclose(got, a.numpy(), atol=5e-4)
        mixed = torch.einsum("hm,nmd->nhd", a, x[test].double().view(-1, MODES, D)).reshape(-1, heads * D)
        wanted = torch.log_softmax(mixed @ weight + bias, -1).numpy()
        np.testing.assert_allclose(found.log_posteriors[method][test], wanted, atol=5e-3, err_msg=method)


def test_variance(real: Slice):
    x = real.few()
    frame = variance_ratios(x, S, real.prompt_folds)
    half = len(FEW) // 2
    for block, columns in {"dc": slice(0, half), "ac": slice(half, None), "dc-ac": slice(None)}.items():
        ratios = []
        for fold in range(5):
            test = real.folds == fold
            held = (x[test].astype(np.float64) - x[~test].mean(0)) / x[~test].astype(np.float64).std(0)
            source, prompt, _ = twins.effects(held.reshape(S, -1, len(FEW)))
            row = value(frame, block=block, fold=fold)
            ratios.append(source[columns].sum() / prompt[columns].sum())
            assert row["source_variance"] == pytest.approx(source[columns].mean(), rel=1e-5)
            assert row["prompt_variance"] == pytest.approx(prompt[columns].mean(), rel=1e-5)
            assert row["ratio"] == pytest.approx(ratios[-1], rel=1e-5)
        assert value(frame, block=block, fold=None)["ratio"] == pytest.approx(np.mean(ratios), rel=1e-5)


# ---- baselines -------------------------------------------------------------------------------------------------------


def test_cut_texts_are_what_the_proxy_reads_of_short_responses(real: Slice, smollm2: Reader):
    whole = smollm2.encode(real.traces, "ur")
    cut = cut_responses(smollm2.tokenizer, real.traces, (64, 32))
    compared = 0
    for limit, short in cut.items():
        for trace, encoded, kept in zip(short, whole, real.traces, strict=True):
            text = smollm2.tokenizer.decode(encoded.cut(limit).ids, clean_up_tokenization_spaces=False)
            assert kept.response.startswith(trace.response)
            if "\N{REPLACEMENT CHARACTER}" not in text:  # the last token may end inside a character
                assert text == view_text(trace, "ur")[1]
                compared += 1
    assert compared > 200


def test_baselines_are_scored_fold_by_fold(real: Slice, smollm2: Reader):
    settings = replace(WORDS, longest=2, buckets=2**18, features=800, tolerance=1e-7, iterations=3000)
    short = cut_responses(smollm2.tokenizer, real.traces, (32,))[32]
    texts = {CLEAN: real.traces, "t32": short, "math100": real.math}
    counts = {panel: count([trace.response for trace in traces], settings) for panel, traces in texts.items()}

    def fit(rows, fold):
        model = fit_ngrams(counts[CLEAN][rows], LABELS[rows], S, settings)
        return lambda panel, wanted: model.log_posterior(counts[panel][wanted])

    by_fold = {fold: score_fold(fit, real.folds, fold, ["t32"], {"math100": S * MATH}) for fold in range(5)}
    scores = assemble(by_fold, real.folds, ["math100"])
    dense = {panel: part.toarray().astype(np.float64) for panel, part in counts.items()}
    for fold in range(5):
        train = np.flatnonzero(real.folds != fold)
        seen = dense[CLEAN][train]
        documents = (seen > 0).sum(0)
        columns = sorted(np.argsort(-documents, kind="stable")[:800])
        columns = [c for c in columns if documents[c] >= 2]
        idf = np.array([np.log((1 + len(train)) / (1 + documents[c])) + 1 for c in columns])

        def weighed(part: np.ndarray, columns=columns, idf=idf) -> np.ndarray:
            out = np.zeros((len(part), len(columns)))
            for row, held in zip(out, part[:, columns], strict=True):
                row[held > 0] = (1 + np.log(held[held > 0])) * idf[held > 0]
                row /= np.linalg.norm(row) or 1
            return out

        model = LogisticRegression(C=settings.c, tol=1e-9, max_iter=5000).fit(weighed(seen), LABELS[train])
        test = real.folds == fold
        for panel, got, rows in (
            (CLEAN, scores[CLEAN][test], test),
            ("t32", scores["t32"][test], test),
            ("math100", scores["math100"][fold], slice(None)),
        ):
            wanted = model.predict_proba(weighed(dense[panel][rows]))
            np.testing.assert_allclose(np.exp(got), wanted, atol=5e-3, err_msg=f"{panel} {fold}")


def test_beginnings_and_static_vectors(real: Slice):
    responses = [trace.response for trace in real.traces]
    alike = {"mpt": lambda text: (text.split() or [""])[0], "phylolm": lambda text: text.lstrip(" ").lstrip("\n")[:4]}
    for method, beginning in alike.items():
        rates = match_rates(responses, S, MATCHERS[method])
        for a in range(S):
            for b in range(S):
                pairs = [
                    beginning(responses[a * PROMPTS + p]) == beginning(responses[b * PROMPTS + p])
                    for p in range(PROMPTS)
                ]
                assert rates[a, b] == pytest.approx(np.mean(pairs))
    states = real.read[SECOND, "full"][:, :D].reshape(S, PROMPTS, D)
    vectors = dna_vectors(states)
    np.testing.assert_allclose(vectors, twins.dna(states, 128, seed=42), rtol=1e-9, atol=1e-9)
    for a, b in combinations(range(S), 2):
        assert distances(vectors)[a, b] == pytest.approx(np.sqrt(sum((vectors[a] - vectors[b]) ** 2)))


# ---- readouts --------------------------------------------------------------------------------------------------------


def discriminant(rows: np.ndarray, labels: np.ndarray, shrinkage: float = 0.1):
    """Scores of rows by sources' means in an inverted covariance."""
    x = rows.astype(np.float64)
    means = np.array([x[labels == c].mean(0) for c in range(S)])
    residuals = x - means[labels]
    within = residuals.T @ residuals / (len(x) - S)
    shrunk = (1 - shrinkage) * within + shrinkage * np.diag(np.diag(within))
    inverse = np.linalg.inv(shrunk)

    def scores(asked: np.ndarray) -> np.ndarray:
        logits = [[-0.5 * (row - m) @ inverse @ (row - m) for m in means] for row in asked.astype(np.float64)]
        return log_softmax(np.array(logits), axis=1)

    return scores


def unseen_by(fold: int) -> list[set[int]]:
    """Folds that the three models have not seen that score the rows of a fold."""
    return [{fold}, {fold, (fold - 1) % 5}, {fold, (fold + 1) % 5}]


def weights_by_search(members: list[np.ndarray], truth: np.ndarray, prior: np.ndarray, pull: float) -> np.ndarray:
    """Weights with the highest penalised likelihood, found without derivatives."""

    def loss(weights: np.ndarray) -> float:
        fused = log_softmax(sum(w * m for w, m in zip(weights, members, strict=True)), axis=1)
        return -sum(fused[i, t] for i, t in enumerate(truth)) + pull * ((weights - prior) ** 2).sum() / 2

    options = {"xatol": 1e-7, "fatol": 1e-9, "maxiter": 4000}
    return minimize(loss, prior, method="Nelder-Mead", options=options).x


@pytest.fixture(scope="module")
def members(real: Slice):
    """Scores of a discriminant and of word n-grams under two conditions, what is behind them, and the cells."""
    rows = {"clean": real.few(), "t64": real.few(variant="t64")}
    loads = {name: part.__getitem__ for name, part in rows.items()}
    moments = fold_moments(loads["clean"], len(FEW), LABELS, real.folds, S)
    bank = {"lda": fit_discriminants(moments, 0.1, range(10))}
    counts = count_grams([trace.response for trace in real.traces], "word", (1, 2), 14)
    settings = SoftmaxSettings(features=400, epochs=2, batch=32)
    grams = dict(fit_gram_models([counts], LABELS, real.folds, S, settings, range(10)))
    scores = {}
    for name in rows:
        scores[name] = {member: np.empty(scores_shape(len(LABELS), S), np.float32) for member in ("lda", "word")}
        score_discriminants(loads[name], real.folds, bank, {"lda": scores[name]["lda"]})
        for model, readout in grams.items():
            score_grams(counts, real.folds, model, readout, scores[name]["word"])
    tokens = np.array([e.response_tokens for e in real.encoded])
    texts = [trace.response for trace in real.traces]
    cells = {"clean": cells_of(tokens, texts), "t64": cells_of(np.minimum(tokens, 64), texts)}
    return rows, bank, (counts, grams, settings), scores, cells


def test_members_of_a_stack(real: Slice, members):
    rows, _, (counts, grams, settings), scores, cells = members
    for fold in range(5):
        test = real.folds == fold
        for slot, unseen in enumerate(unseen_by(fold)):
            train = ~np.isin(real.folds, list(unseen))
            told = discriminant(rows["clean"][train], LABELS[train])
            for name, part in rows.items():
                wanted = told(part[test])
                np.testing.assert_allclose(scores[name]["lda"][slot, test], wanted, rtol=2e-3, atol=2e-2)
    for i, trace in enumerate(real.traces):
        units = re.findall(r"\w+|[^\w\s]|\n+", trace.response)
        wanted = Counter([*units, *(f"{a} {b}" for a, b in pairwise(units))])
        assert counts[i].sum() == sum(wanted.values())
        length = sum(real.encoded[i].response_tokens >= edge for edge in EDGES)
        finished = trace.response.rstrip()[-1:] in ENDINGS
        assert cells["clean"][i] == length + (0 if finished else len(EDGES) + 1)
    exact = count_grams([trace.response for trace in real.traces[:10]], "char", (1, 2, 3), 30)
    for row, trace in zip(exact, real.traces, strict=False):
        text = trace.response
        wanted = Counter(text[i : i + n] for n in (1, 2, 3) for i in range(len(text) - n + 1))
        assert sorted(row.data.tolist()) == sorted(map(float, wanted.values()))

    train = np.flatnonzero(~np.isin(real.folds, [2]))
    seen = counts[train].toarray().astype(np.float64)
    documents = (seen > 0).sum(0)
    columns = np.sort([c for c in np.argsort(-documents, kind="stable") if documents[c] >= 3][: settings.features])
    idf = np.log((1 + len(train)) / (1 + documents[columns])) + 1

    def weighed(part: np.ndarray) -> np.ndarray:
        out = np.where(part[:, columns] > 0, (1 + np.log(np.maximum(part[:, columns], 1))) * idf, 0)
        return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-300)

    x, y, rng = weighed(seen), LABELS[train], np.random.default_rng(2)
    weight, bias, first, second = np.zeros((len(columns), S)), np.zeros(S), 0.0, 0.0
    batches = round(len(train) / settings.batch)
    for epoch in range(settings.epochs):
        for number, some in enumerate(np.array_split(rng.permutation(len(train)), batches)):
            step = epoch * batches + number
            rate = settings.rate * 0.5 * (1 + np.cos(np.pi * step / (settings.epochs * batches)))
            error = np.exp(log_softmax(x[some] @ weight + bias, axis=1)) - np.eye(S)[y[some]]
            slope = (
                sum(np.outer(x[i], e) for i, e in zip(some, error, strict=True)) / len(some) + settings.decay * weight
            )
            first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
            weight = weight - rate / (1 - 0.9 ** (step + 1)) * first / (
                np.sqrt(second / (1 - 0.99 ** (step + 1))) + 1e-7
            )
            bias = bias - 0.3 * rate * error.mean(0)
    np.testing.assert_array_equal(grams[2].columns, columns)
    np.testing.assert_allclose(grams[2].weight, weight, atol=2e-3)
    again = fit_grams(counts[train], y, S, settings, seed=2)
    np.testing.assert_allclose(again.bias, bias, atol=1e-4)
    test = real.folds == 2
    wanted = log_softmax(weighed(counts[test].toarray().astype(np.float64)) @ weight + bias, axis=1)
    np.testing.assert_allclose(scores["clean"]["word"][0, test], wanted, atol=5e-3)


def test_stacks_and_transfer(real: Slice, members):
    rows, bank, _, scores, cells = members
    names = ["lda", "word"]
    fused = fuse(scores, LABELS, real.folds, cells, CELLS, names)
    for outer in range(5):
        held = [(1, (outer + 1) % 5), (2, (outer - 1) % 5)]  # scored by models that saw neither that fold nor this one
        asked = [(c, slot, row) for c in scores for slot, fold in held for row in np.flatnonzero(real.folds == fold)]
        parts = [np.array([scores[c][name][slot, row] for c, slot, row in asked], dtype=np.float64) for name in names]
        truth = np.array([LABELS[row] for _, _, row in asked])
        place = np.array([cells[c][row] for c, _, row in asked])
        shared = weights_by_search(parts, truth, np.full(2, 0.5), 1.0)
        weights = np.tile(shared, (CELLS, 1))
        for cell in set(place):
            inside = place == cell
            weights[cell] = weights_by_search([part[inside] for part in parts], truth[inside], shared, 200.0)
        np.testing.assert_allclose(fused.stacks[outer].weights, weights, atol=2e-3)
        for condition in scores:
            for row in np.flatnonzero(real.folds == outer):
                sides = [scores[condition][name][0, row] for name in names]
                logits = sum(fused.stacks[outer].weights[cells[condition][row], i] * s for i, s in enumerate(sides))
                np.testing.assert_allclose(fused.posteriors[condition][row], log_softmax(logits), atol=1e-3)

    math = real.math_read[SECOND, "full"][:, FEW].astype(np.float32)
    told = {name: np.empty((5, S * MATH, S), np.float32) for name in ("lda",)}
    score_transfer(math.__getitem__, S * MATH, bank, told)
    moved = transfer(told, fused.stacks, np.zeros(S * MATH, dtype=np.intp), ["lda"])
    for fold in range(5):
        train = real.folds != fold
        wanted = discriminant(rows["clean"][train], LABELS[train])(math)
        np.testing.assert_allclose(told["lda"][fold], wanted, rtol=2e-3, atol=3e-2)
        share = fused.stacks[fold].weights[0, 0]
        np.testing.assert_allclose(moved[fold], log_softmax(share * told["lda"][fold], axis=1), atol=1e-3)

    even = balanced(moved[0], real.math_folds)
    for part in range(5):
        inside = real.math_folds == part
        pool, bias = moved[0][~inside].astype(np.float64), np.zeros(S)
        for _ in range(3000):
            bias -= 0.3 * np.log(np.exp(log_softmax(pool + bias, axis=1)).mean(0) * S)
        wanted = log_softmax(moved[0][inside] + bias, axis=1)
        np.testing.assert_allclose(even[inside], wanted, atol=1e-2)


def test_alignment_of_another_domain(real: Slice):
    blocks = {layer: np.arange(15) for layer in LAYERS}
    trained = [(real.load(layer)[:, columns], len(columns)) for layer, columns in blocks.items()]
    math = [(real.math_read[layer, "full"][:, columns].astype(np.float32), 15) for layer, columns in blocks.items()]
    load = aligned_load(
        [(rows.__getitem__, width) for rows, width in trained],
        [(rows.__getitem__, width) for rows, width in math],
        real.folds,
        real.math_folds,
    )
    got = load(np.arange(S * MATH))
    for fold in range(5):
        inside, at = real.math_folds == fold, 0
        for (home, width), (away, _) in zip(trained, math, strict=True):
            pool, home = away[~inside].astype(np.float64), home.astype(np.float64)
            roots = [np.real(sqrtm(0.9 * np.corrcoef(rows.T) + 0.1 * np.eye(width))) for rows in (pool, home)]
            turned = (away[inside] - pool.mean(0)) / pool.std(0) @ np.linalg.inv(roots[0]) @ roots[1]
            wanted = turned * home.std(0) + home.mean(0)
            scale = home.std(0)
            np.testing.assert_allclose(got[inside, at : at + width] / scale, wanted / scale, atol=5e-3)
            at += width


def test_banks_say_what_their_codes_say(real: Slice):
    rows = {name: real.few(variant=name) for name in ("full", "t64", "t32")}
    conditions = {"clean": rows["full"], "t64": rows["t64"], "t32": rows["t32"]}
    loads = {name: part.__getitem__ for name, part in conditions.items()}
    cells = {name: LABELS * 0 + number for number, name in enumerate(conditions)}
    served = serve_banks(BankRows(loads, len(FEW), LABELS, real.folds, S), cells)
    fits, exact = {"whole": ["clean"], "short": ["t64", "t32"]}, {}
    for condition, part in conditions.items():
        exact[condition] = {member: np.empty((3, len(LABELS), S)) for member in fits}
        for member, lengths in fits.items():
            for fold in range(5):
                for slot, unseen in enumerate(unseen_by(fold)):
                    train = ~np.isin(real.folds, list(unseen))
                    copies = np.concatenate([conditions[name][train] for name in lengths])
                    told = discriminant(copies, np.tile(LABELS[train], len(lengths)))
                    test = real.folds == fold
                    exact[condition][member][slot, test] = told(part[test])
    again = fuse(exact, LABELS, real.folds, cells, CELLS, list(fits))
    for condition, part in conditions.items():
        np.testing.assert_allclose(
            np.exp(served.exact[condition]), np.exp(again.posteriors[condition]), atol=2e-2, err_msg=condition
        )
        for row in range(0, len(LABELS), 9):
            bank = served.banks[real.folds[row]]
            standard = (part[row].astype(np.float64) - bank.mean) / bank.scale
            logits = np.zeros(S)
            for m, share in enumerate(bank.shares[cells[condition][row]]):
                basis = bank.codes[m].astype(np.float64) * bank.steps[m]
                logits += share * (standard @ basis @ bank.weight[m].astype(np.float64) + bank.bias[m])
            np.testing.assert_allclose(served.served[condition][row], log_softmax(logits), atol=5e-3)


# ---- geometry --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes(real: Slice):
    """Signatures by block, and of Math100 at the second block."""
    held = {
        layer: signatures(source_means(real.read[layer, "full"], sources=S, prompts=PROMPTS)[0]) for layer in LAYERS
    }
    math = signatures(source_means(real.math_read[SECOND, "full"], sources=S, prompts=MATH)[0])
    return held, math


def plain_cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def nearest_first(cosine: np.ndarray) -> list[list[int]]:
    return [sorted((j for j in range(S) if j != i), key=lambda j, i=i: (-cosine[i, j], j)) for i in range(S)]


def test_signatures_neighbours_and_purity(real: Slice, shapes):
    held, _ = shapes
    for layer, found in held.items():
        for source in range(S):
            rows = real.read[layer, "full"][source * PROMPTS : (source + 1) * PROMPTS]
            np.testing.assert_allclose(found[source], twins.signature(rows), atol=1e-10)
    cosine = cosine_similarity(held[SECOND])
    for a, b in combinations(range(S), 2):
        assert cosine[a, b] == pytest.approx(plain_cosine(held[SECOND][a], held[SECOND][b]), abs=1e-11)
    order, near = neighbor_order(cosine), nearest_first(cosine)
    assert order.tolist() == near
    frame = neighbor_frame(cosine, NAMES)
    pairs = [cosine[p] for p in combinations(range(S), 2)]
    for row in frame.itertuples():
        i, j = NAMES.index(row.source), NAMES.index(row.neighbor)
        assert (row.rank, row.cosine) == (near[i].index(j) + 1, round(cosine[i, j], 6))
        assert row.percentile == round(sum(p < cosine[i, j] for p in pairs) / len(pairs), 6)
    settings = PuritySettings(min_members=2, permutations=300, bootstraps=100)
    purity = family_purity(order, FAMILIES, (1, 3), settings)
    large = [i for i, family in enumerate(FAMILIES) if FAMILIES.count(family) >= 2]
    assert (purity["sources"].unique().tolist(), purity["families"].unique().tolist()) == ([4], [2])
    for shuffle, moving in (("eligible", large), ("all", list(range(S)))):
        chosen = replace(settings, shuffle=shuffle)
        slow = list(twins.permuted_family_hits(order, FAMILIES, (1, 3), np.array(moving), 300, settings.seed, 2))
        assert permuted_hits(order, FAMILIES, (1, 3), chosen).tolist() == slow
        p_values = family_purity(order, FAMILIES, (1, 3), chosen)["p_value"]
        for column, k in enumerate((1, 3)):
            hits = twins.family_hits(order, FAMILIES, k, 2)
            assert p_values[column] == pytest.approx((1 + sum(row[column] >= hits for row in slow)) / 301)
    for column, k in enumerate((1, 3)):
        shares = [np.mean([FAMILIES[j] == FAMILIES[i] for j in near[i][:k]]) for i in large]
        assert purity["purity"][column] == pytest.approx(np.mean(shares))
        relatives = [FAMILIES.count(FAMILIES[i]) - 1 for i in large]
        assert purity["expectation"][column] == pytest.approx(np.mean(relatives) / (S - 1))
        drawn = np.random.default_rng(settings.seed).integers(0, len(large), (100, len(large)))
        means = [np.mean([shares[i] for i in row]) for row in drawn]
        ends = (purity["low"][column], purity["high"][column])
        np.testing.assert_allclose(ends, np.quantile(means, [0.025, 0.975]))


def test_agreement_stability_and_candidates(real: Slice, shapes):
    held, _ = shapes
    cosines = {f"block {layer}": cosine_similarity(found) for layer, found in held.items()}
    left, right = cosines.values()
    near = [nearest_first(cosine) for cosine in (left, right)]
    pairs = list(combinations(range(S), 2))

    def alike(one: np.ndarray, other: np.ndarray, k: int) -> tuple[float, float]:
        shared = zip(nearest_first(one), nearest_first(other), strict=True)
        jaccard = np.mean([len({*a[:k]} & {*b[:k]}) / len({*a[:k]} | {*b[:k]}) for a, b in shared])
        return spearmanr([1 - one[p] for p in pairs], [1 - other[p] for p in pairs]).statistic, float(jaccard)

    assert reader_agreement(cosines, k=2)["value"].tolist() == pytest.approx(alike(left, right, 2))

    panels = [np.flatnonzero(real.prompt_folds == fold) for fold in range(5)]
    means = source_means(real.read[SECOND, "full"], sources=S, prompts=PROMPTS, panels=panels)
    geometries = [cosine_similarity(part) for part in signatures(means)]
    frame = stability_of_prompts(right, geometries, FAMILIES, k=2, purity_k=3, min_members=2)
    for fold in range(5):
        rows = [[source * PROMPTS + p for p in range(PROMPTS) if real.prompt_folds[p] == fold] for source in range(S)]
        slow = cosine_similarity(np.array([twins.signature(real.read[SECOND, "full"][some]) for some in rows]))
        found = frame[frame["fold"] == fold].set_index("metric")["value"]
        order = nearest_first(geometries[fold])
        np.testing.assert_allclose(geometries[fold], slow, atol=1e-10)
        assert found[["spearman", "jaccard_2"]].tolist() == pytest.approx(alike(right, geometries[fold], 2))
        assert found["purity_3"] == pytest.approx(twins.family_hits(np.array(order), FAMILIES, 3, 2) / (3 * 4))

    asked = [(NAMES[a], NAMES[b]) for a, b in pairs]
    told = {}
    for order, cosine in zip(near, cosines.values(), strict=True):
        ranks = pair_ranks(cosine, NAMES, asked)
        for (a, b), row in zip(pairs, ranks.itertuples(), strict=True):
            forth, back = order[a].index(b) + 1, order[b].index(a) + 1
            assert (row.left_to_right, row.right_to_left, row.mutual_rank) == (forth, back, max(forth, back))
            assert (directed_ranks(cosine)[a, b], row.cosine) == (forth, cosine[a, b])
            told.setdefault((a, b), []).append(max(forth, back))
    expected = {
        (NAMES[a], NAMES[b]): (sum(w <= 3 for w in worst), np.median(worst))
        for (a, b), worst in told.items()
        if FAMILIES[a] != FAMILIES[b] and sum(w <= 3 for w in worst) >= 2 and np.median(worst) <= 3
    }
    found = passing_pairs(cosines, NAMES, FAMILIES, within=3)
    assert expected == {(row.left, row.right): (row.within, row.median_rank) for row in found.itertuples()}


def test_domains(shapes):
    held, math = shapes
    frame = cross_domain(held[SECOND], math, NAMES, FAMILIES)
    for space in ("raw", "centred"):
        query, gallery = (
            [v - part.mean(0) for v in part] if space == "centred" else list(part) for part in (held[SECOND], math)
        )
        cosines = [[plain_cosine(q, g) for g in gallery] for q in query]
        ranks = [1 + sum(other > row[i] + 1e-12 for other in row) for i, row in enumerate(cosines)]
        wins = [row[i] > other for i, row in enumerate(cosines) for j, other in enumerate(row) if j != i]
        part = frame[frame["variant"] == space]
        of_source = part[part["metric"] == "rank"].set_index("source")["value"]
        assert of_source.loc[NAMES].tolist() == ranks
        told = part[part["source"].isna()].set_index("metric")["value"]
        assert told["top1"] == pytest.approx(np.mean([rank == 1 for rank in ranks]))
        assert told["top5"] == pytest.approx(np.mean([rank <= 5 for rank in ranks]))
        assert told["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
        assert told["wins_other"] == pytest.approx(np.mean(wins))
        assert told["cosine_same_median"] == pytest.approx(np.median([cosines[i][i] for i in range(S)]))
        kin = [FAMILIES[int(np.argmax(row))] == FAMILIES[i] for i, row in enumerate(cosines)]
        assert told["nearest_family_match"] == pytest.approx(np.mean(kin))


def test_maps_trees_and_regions(shapes):
    held, _ = shapes
    cosine = cosine_similarity(held[SECOND])
    projection = project(cosine, "pca", 2)
    theirs = PCA(2, svd_solver="full").fit_transform(unit_rows(held[SECOND]))
    points = projection.coordinates
    np.testing.assert_allclose(
        map_distances(points) * projection.settings["scale"], map_distances(theirs), rtol=1e-5, atol=1e-9
    )
    near = nearest_first(cosine)
    drawn = [
        sorted((j for j in range(S) if j != i), key=lambda j, i=i: np.hypot(*(points[i] - points[j]))) for i in range(S)
    ]
    excess = sum(max(near[i].index(j) + 1 - 2, 0) for i in range(S) for j in drawn[i][:2])
    assert trustworthiness(cosine, points, 2) == pytest.approx(1 - excess * 2 / (S * 2 * (2 * S - 3 * 2 - 1)))
    shared = [len({*near[i][:2]} & {*drawn[i][:2]}) / len({*near[i][:2]} | {*drawn[i][:2]}) for i in range(S)]
    assert neighborhood_overlap(cosine, points, 2) == pytest.approx(np.mean(shared))
    assert dendrogram_frame(dendrogram(cosine))["height"].tolist() == pytest.approx(twins.linkage(cosine))
    width = bandwidth(points)
    third = [sorted(np.hypot(*(a - b)) for b in points)[3] for a in points]
    assert width == pytest.approx(np.median(third))
    x, y, density = density_grid(points, width, cells=25)
    for i, j in ((4, 5), (12, 12), (20, 9)):
        gaps = [(x[j] - a) ** 2 + (y[i] - b) ** 2 for a, b in points]
        slow = np.mean([np.exp(-gap / (2 * width**2)) for gap in gaps]) / (2 * np.pi * width**2)
        assert density[i, j] == pytest.approx(slow)
    inside = 0.0
    for level in sorted(density.ravel().tolist(), reverse=True):
        inside += level
        if inside >= 0.5 * density.sum():
            break
    assert level_of_mass(density, 0.5) == pytest.approx(level)


def test_text_signatures(real: Slice):
    corpus = [trace.response for trace in real.traces[::5]]
    rows = twins.tf_idf(corpus)
    space = TextSpace(corpus, TextSettings(components=len(corpus) - 1, buckets=2**18))
    strength = np.linalg.svd(rows, compute_uv=False)
    kept = np.linalg.svd(space.fitted.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(kept[:10], strength[:10], rtol=5e-3)
    # One axis is missing, the weakest.
    np.testing.assert_allclose(space.fitted @ space.fitted.T, rows @ rows.T, atol=strength[-1] ** 2 + 2e-2)


# ---- audit -----------------------------------------------------------------------------------------------------------


def held_groups(log_posteriors: np.ndarray, folds: np.ndarray, k: int) -> list[tuple[int, int, int, np.ndarray]]:
    """Seed, fold, truth and normalised sum of every group; single traces have one seed."""
    return [
        (seed, fold, source, log_softmax(total))
        for seed in (SEEDS if k > 1 else SEEDS[:1])
        for fold in range(5)
        for source, total in twins.groups(log_posteriors, k, seed, folds, fold)
    ]


def cost_of(scale: float, groups: list[tuple[int, int, int, np.ndarray]]) -> float:
    """Negative log-likelihood where half a group of a seed, of the average kind, goes to its second place."""
    seen = len(groups) / len({seed for seed, *_ in groups})
    told = [(truth, int(np.argsort(scores)[-2]), log_softmax(scale * scores)) for _, _, truth, scores in groups]
    right, wrong = (-np.mean([p[[truth, second][which]] for truth, second, p in told]) for which in (0, 1))
    return (seen * right + 0.5 * wrong) / (seen + 0.5)


def scale_by_search(groups: list[tuple[int, int, int, np.ndarray]]) -> float:
    at = minimize_scalar(
        lambda a: cost_of(np.exp(a), groups), bounds=(-6, 6), method="bounded", options={"xatol": 1e-9}
    )
    return float(np.exp(at.x))


def test_calibration(real: Slice, evidence):
    log_posteriors, folds = evidence[0], real.prompt_folds
    held = {k: held_groups(log_posteriors, folds, k) for k in BUDGETS}
    by_budget = {k: held_out_groups(log_posteriors, folds, k) for k in BUDGETS}
    for k, groups in by_budget.items():
        assert groups.truth.tolist() == [truth for _, _, truth, _ in held[k]]
        assert groups.fold.tolist() == [fold for _, fold, _, _ in held[k]]
        np.testing.assert_allclose(groups.scores, [scores for *_, scores in held[k]], atol=1e-5)
        found = fit_scale(groups.scores, groups.truth, len(np.unique(groups.seed)))
        assert found == pytest.approx(scale_by_search(held[k]), rel=1e-3)
    fitted = fit_calibration(by_budget)
    slow = [scale_by_search(held[k]) for k in BUDGETS]
    np.testing.assert_allclose(fitted.scale, [min(scale, slow[0]) for scale in slow], rtol=1e-3)
    frame = calibration_frame(log_posteriors, folds, BUDGETS).set_index(["k", "metric"])["value"]
    for k in BUDGETS:
        calibrated = []
        for fold in range(5):
            others = {b: [group for group in held[b] if group[1] != fold] for b in BUDGETS}
            scale = min(scale_by_search(others[k]), scale_by_search(others[1]))
            calibrated += [(s, t, log_softmax(scale * p)) for s, f, t, p in held[k] if f == fold]
        measured: dict[str, list[float]] = {}
        for seed in sorted({s for s, _, _ in calibrated}):
            mine = [(t, p) for s, t, p in calibrated if s == seed]
            target, other, pairs = [], [], []
            for truth, p in mine:
                share = np.exp(p)
                for c in range(S):
                    ratio = share[c] / np.mean([share[o] for o in range(S) if o != c])
                    (target if c == truth else other).append(np.log2(1 + (1 / ratio if c == truth else ratio)))
                    if c != truth:
                        pairs.append(np.log2(1 + share[c] / share[truth]))
            costs = [np.mean([-p[t] for t, p in mine if t == c]) for c in range(S)]
            for name, number in {
                "accuracy": np.mean([p.argmax() == t for t, p in mine]),
                "nll": -np.mean([p[t] for t, p in mine]),
                "ece": twins.calibration_error(np.array([p for _, p in mine]), np.array([t for t, _ in mine])),
                "cllr_claim": (np.mean(target) + np.mean(other)) / 2,
                "cllr_pairwise": np.mean(pairs),
                "cllr_multiclass": np.mean(costs) / np.log(S),
            }.items():
                measured.setdefault(name, []).append(float(number))
        for name, numbers in measured.items():
            assert frame[k, f"{name}_after"] == pytest.approx(np.mean(numbers), abs=2e-3), (k, name)


def test_confidence(real: Slice, evidence):
    groups = held_out_groups(evidence[0], real.prompt_folds, 2)

    def loss(at: np.ndarray) -> float:
        misread = 1 / (1 + np.exp(-at[1]))
        share = np.exp([log_softmax(np.exp(at[0]) * row) for row in groups.scores])
        return -np.mean([np.log((1 - misread) * p[t] + misread / S) for p, t in zip(share, groups.truth, strict=True)])

    slow = minimize(loss, (0.0, -4.0), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10}).fun
    found = fit_confidence(groups.scores, groups.truth)
    told = -np.mean(found.log_posterior(groups.scores)[np.arange(len(groups.truth)), groups.truth])
    assert told == pytest.approx(slow, abs=2e-4)
    assert isinstance(found, Confidence)


def test_sequential_stop(real: Slice, evidence):
    log_posteriors = evidence[0]
    calibration = fit_calibration({k: held_out_groups(log_posteriors, real.prompt_folds, k) for k in BUDGETS})
    sessions = ordered_sessions(np.arange(S * PROMPTS).reshape(S, PROMPTS), 3, seed=1)
    ratios = running_ratios(log_posteriors, sessions.rows, calibration)
    for n in range(0, len(sessions.rows), 5):
        total = np.zeros(S)
        for k, row in enumerate(sessions.rows[n], start=1):
            total = total + log_posteriors[row]
            share = np.exp(calibration.apply(total[None], k))[0]
            odds = [np.log(share[c] / np.mean([share[o] for o in range(S) if o != c])) for c in range(S)]
            np.testing.assert_allclose(ratios[n, k - 1], odds, atol=1e-6)
    means = [[np.mean(log_posteriors[c == LABELS, o]) for o in range(S)] for c in range(S)]
    nearest = nearest_sources(log_posteriors, LABELS)
    assert nearest.tolist() == [max((o for o in range(S) if o != c), key=lambda o, c=c: means[c][o]) for c in range(S)]

    level = 0.45  # six clusters bear no lower one
    rule = fit_stop_rule(ratios, sessions, nearest, level)

    def lenient(thresholds: np.ndarray, count) -> float:
        kept = np.inf
        for threshold in thresholds:
            errors, trials = count(threshold)
            if trials <= 0 or beta.ppf(0.95, 1, trials) > level:
                continue
            if errors >= trials or beta.ppf(0.95, errors + 1, trials - errors) > level:
                break
            kept = float(threshold)
        return kept

    def named(threshold: float) -> tuple[float, float]:
        errors = stops = 0.0
        for path, truth in zip(ratios, sessions.truth, strict=True):
            for moment in path:
                if moment.max() - np.log(S - 1) >= threshold:
                    stops += 1 / 3
                    errors += (moment.argmax() != truth) / 3
                    break
        return errors, stops

    def claimed(sign: int, of):
        def count(threshold: float) -> tuple[float, float]:
            pairs = zip(ratios, sessions.truth, strict=True)
            reached = [max(sign * moment[of(truth)] for moment in path) >= threshold for path, truth in pairs]
            return sum(reached) / 3, float(S)

        return count

    assert rule.name == lenient(THRESHOLDS, named)
    assert rule.support == lenient(CLAIM_THRESHOLDS, claimed(1, lambda truth: nearest[truth]))
    assert rule.against == lenient(CLAIM_THRESHOLDS, claimed(-1, lambda truth: truth))
    for path, at, who in zip(ratios, *rule.named_at(ratios), strict=True):
        over = [k for k, moment in enumerate(path, start=1) if moment.max() - np.log(S - 1) >= rule.name]
        assert at == (over[0] if over else 0)
        assert not over or who == path[over[0] - 1].argmax()


def test_drift(real: Slice):
    x = real.few().astype(np.float64)
    x = (x - x.mean(0)) / x.std(0)
    before, after = x[:8], x[2 * PROMPTS : 2 * PROMPTS + 8]  # a Qwen and a Llama on the same prompts
    for method in ("energy", "mmd"):
        test = drift_test(before, after, method, permutations=40, seed=8)
        assert test.statistic == pytest.approx(twins.two_samples(before, after, method), abs=1e-9)
        pooled, weights = np.concatenate([before, after]), np.r_[np.full(8, 1 / 8), np.full(8, -1 / 8)]
        drawn = np.random.default_rng(8).permuted(np.broadcast_to(weights, (40, 16)), axis=1)
        far = [twins.two_samples(pooled[row > 0], pooled[row < 0], method) >= test.statistic - 1e-9 for row in drawn]
        assert test.p_value == pytest.approx((1 + sum(far)) / 41)
        paired = drift_test(before, after, method, paired=True, permutations=30, seed=5)
        signs = np.random.default_rng(5).integers(0, 2, size=(30, 8)) * 2 - 1
        swaps = [
            (np.where(row[:, None] > 0, before, after), np.where(row[:, None] > 0, after, before)) for row in signs
        ]
        far = [twins.two_samples(one, two, method) >= paired.statistic - 1e-9 for one, two in swaps]
        assert paired.p_value == pytest.approx((1 + sum(far)) / 31)
    family = np.array([FAMILIES.index(name) for name in FAMILIES])
    frame = drift_frame(x, family, "fingerprints", (6,), ("energy",), pairs=6, permutations=29, seed=3)
    for number, kind in enumerate(("same", "sibling", "family")):
        rng = np.random.default_rng([3, 6, number])
        fits = {
            "same": [(a, a) for a in range(S)],
            "sibling": [(a, b) for a in range(S) for b in range(S) if a != b and family[a] == family[b]],
            "family": [(a, b) for a in range(S) for b in range(S) if family[a] != family[b]],
        }[kind]
        chosen = [fits[i] for i in rng.integers(0, len(fits), size=6)]
        orders = [rng.permutation(PROMPTS)[:12] for _ in chosen]
        for paired in (False, True) if kind != "same" else (False,):
            alarms = []
            for (a, b), order in zip(chosen, orders, strict=True):
                second = order[:6] if paired else order[6:]
                test = drift_test(x[a * PROMPTS + order[:6]], x[b * PROMPTS + second], "energy", paired, 29, 3)
                alarms.append(test.p_value <= 0.05)
            name = "energy-paired" if paired else "energy"
            assert value(frame, scenario=kind, statistic=name)["value"] == pytest.approx(np.mean(alarms))


def test_conformal_rejection(real: Slice, evidence):
    log_posteriors, folds = evidence[0].astype(np.float64), real.folds
    reference = fit_unknown(log_posteriors, LABELS, folds, "max-logit", (1, 2), draws=50)
    rng, nulls = np.random.default_rng(42), {}
    for block in range(5):
        for source in range(S):
            rows = log_posteriors[(folds == block) & (source == LABELS)]
            for k in (1, 2):
                shorter = np.sqrt(1 - min((k - 1) / len(rows), 0.25))
                for drawn in rng.integers(0, len(rows), size=(10, k)):
                    mean = rows.mean(0) + (np.mean([rows[i] for i in drawn], axis=0) - rows.mean(0)) * shorter
                    nulls.setdefault((k, source), []).append(mean[source])
    for number, k in enumerate((1, 2)):
        for source in range(S):
            np.testing.assert_allclose(reference.nulls[number, source], sorted(nulls[k, source]), rtol=1e-5)
        asked = log_posteriors[::17]
        found = reference.p_values(asked, k)
        for g, row in enumerate(asked):
            for c in range(S):
                below = sum(null <= row[c] + 1e-5 * max(abs(row[c]), 1) for null in nulls[k, c])
                assert abs(found[g, c] - (1 + below) / 51) < 1.01 / 51  # a null of the same trace ties
        seen = reference.realised[number]
        counted = [(1 + sum(one <= max(row) * (1 + 1e-6) for one in seen)) / (1 + len(seen)) for row in found]
        np.testing.assert_allclose(reference.p_none(asked, k), counted)

    x = real.few()[:, ::4].astype(np.float64)
    costs = dict.fromkeys(RIDGES, 0.0)
    for block in range(5):
        train, test = folds != block, folds == block
        means = np.array([x[train & (c == LABELS)].mean(0) for c in range(S)])
        inner = x[train] - means[LABELS[train]]
        within = inner.T @ inner / (train.sum() - S)
        std = np.sqrt(np.diag(within))
        held = (x[test] - means[LABELS[test]]) / std
        for ridge in RIDGES:
            matrix = (within / np.outer(std, std) + ridge * np.eye(len(std))) / (1 + ridge)
            squares = [row @ np.linalg.inv(matrix) @ row for row in held]
            costs[ridge] += len(held) * np.linalg.slogdet(matrix)[1] + sum(squares)
    chosen = choose_ridge(x, LABELS, folds)
    assert chosen == min(costs, key=costs.__getitem__)

    fitted = fit_discriminant(x, LABELS, S, chosen)
    means = np.array([x[c == LABELS].mean(0) for c in range(S)])
    residuals = x - means[LABELS]
    within = residuals.T @ residuals / (len(x) - S)
    within += chosen * np.diag(np.diag(within))
    spread = (means - means.mean(0)).T @ (means - means.mean(0)) / S
    for k in (1, 4):
        scores = fitted.score(fitted.project(x[::13]), k)
        background = np.linalg.inv(within / k + spread)
        for row, got in zip(x[::13], scores, strict=True):
            away = (row - means.mean(0)) @ background @ (row - means.mean(0))
            own = [k * (row - m) @ np.linalg.inv(within) @ (row - m) for m in means]
            np.testing.assert_allclose(got, away - own, rtol=2e-3, atol=1e-2)


def test_sources_left_out(real: Slice, evidence):
    kept = np.arange(S - 1)
    shown = without_columns(evidence[0], kept)
    for row, told in zip(evidence[0].astype(np.float64), shown, strict=True):
        np.testing.assert_allclose(np.exp(told), np.exp(row[:-1]) / np.exp(row[:-1]).sum(), rtol=1e-5)
    run = LeftOut(shown, LABELS, np.tile(np.arange(PROMPTS), S), kept)
    found = unknown_p_values(run, real.prompt_folds, (2,), "max-logit")[2]
    slow = []
    for fold in range(5):
        train = (real.folds != fold) & (LABELS < S - 1)
        reference = fit_unknown(shown[train], LABELS[train], real.folds[train], "max-logit", [2])
        rng = np.random.default_rng(42 + 100 + 7919 * 2 + 31 * fold)
        for source in range(S):
            rows = np.flatnonzero((real.folds == fold) & (source == LABELS))
            rng.shuffle(rows)
            for pair in rows.reshape(-1, 2):
                mean = (shown[pair[0]] + shown[pair[1]]) / 2
                largest, seen = max(reference.p_values(mean[None], 2)[0]), reference.realised[0]
                below = sum(one <= largest * (1 + 1e-6) for one in seen)
                slow.append(((1 + below) / (1 + len(seen)), source))
    np.testing.assert_allclose(found[0], [p for p, _ in slow])
    assert found[1].tolist() == [source for _, source in slow]
    frame = unknown_frame([run], real.prompt_folds, "sibling", "max-logit", (2,), level=0.2)
    known, others = ([p for p, s in slow if (s < S - 1) == side] for side in (True, False))
    told = frame.set_index("metric")["value"]
    assert told["auroc"] == pytest.approx(np.mean([(a > b) + 0.5 * (a == b) for a in known for b in others]))
    assert told["false_acceptance"] == pytest.approx(np.mean([p > 0.2 for p in others]))
    assert told["false_rejection"] == pytest.approx(np.mean([p <= 0.2 for p in known]))


def test_domain_distance(real: Slice):
    x = real.few().astype(np.float64)
    domain = fit_domain(x, LABELS, (1, 5), draws=60)
    rng = np.random.default_rng(42)
    for place, k in enumerate((1, 5)):
        sources = rng.integers(0, S, size=60)
        shares = rng.random((60, k))
        slow = []
        for source, row in zip(sources, shares, strict=True):
            traces = [x[source * PROMPTS + int(share * PROMPTS)] for share in row]
            away = (np.mean(traces, axis=0) - x.mean(0)) / x.std(0)
            slow.append(np.sqrt(np.mean(away**2)))
        np.testing.assert_allclose(domain.nulls[place], sorted(slow))
        mean = real.math_read[SECOND, "full"][: k * 2 : 2, FEW].astype(np.float64).mean(0)
        distance = np.sqrt(np.mean(((mean - x.mean(0)) / x.std(0)) ** 2))
        assert domain.p_value(mean, k) == pytest.approx((1 + sum(null >= distance for null in slow)) / 61)


def test_ratios(evidence):
    posteriors = evidence[0].astype(np.float64)
    ratios = log_likelihood_ratios(posteriors)
    for row, told in zip(np.exp(posteriors), ratios, strict=True):
        others = [np.mean([row[o] for o in range(S) if o != c]) for c in range(S)]
        np.testing.assert_allclose(told, np.log(row / others), atol=1e-5)

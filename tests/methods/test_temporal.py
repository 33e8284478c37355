"""Temporal controls against a plain autograd loop, and that eleven names mean what the paper says."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from backend.evaluations.attribution import out_of_fold
from backend.methods.probe import ProbeSettings, fit_probe
from backend.methods.representations import (
    MIXTURES,
    MODES,
    REPRESENTATIONS,
    VECTORS,
    descend_mixture,
    spread,
    temporal_evidence,
)
from backend.protocol import fold_of_prompts
from backend.proxies.reader import TEMPORAL_MODES, Reader, Readout
from backend.traces import Trace
from tests.tiny_models import tiny_decoder, tiny_tokenizer
from tests.twins import mixture_by_autograd

SOURCES, PROMPTS, D = 4, 30, 5


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(SOURCES), PROMPTS)
    folds = np.tile(fold_of_prompts([f"p{i:03d}" for i in range(PROMPTS)]), SOURCES)
    rows = rng.normal(size=(SOURCES, VECTORS * D))[labels] + 1.5 * rng.normal(size=(len(labels), VECTORS * D)) + 2
    return rows.astype(np.float16), labels, folds


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("settings", [ProbeSettings(), ProbeSettings(steps=25, learning_rate=0.05, c=0.02)])
def test_mixture_equals_autograd_with_adam(heads, settings):
    torch.manual_seed(heads)
    x = torch.randn(90, MODES * D)
    y = (torch.arange(90) % 6).clamp_max(2)  # balanced classes would leave the bias's first step to rounding
    x += 2 * torch.randn(3, MODES * D)[y]
    found = descend_mixture(x, y, 3, heads, MODES, settings)
    expected = mixture_by_autograd(x, y, 3, heads, settings)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=2e-3, atol=2e-5)
    torch.testing.assert_close(found[0].norm(dim=1), torch.ones(heads))
    assert (found[0] - torch.eye(MODES)[:heads]).abs().max() > 0.005


def test_a_spread_probe_does_what_mixing_first_does():
    torch.manual_seed(0)
    x, mixture, weight = torch.randn(7, MODES * D), torch.randn(2, MODES), torch.randn(2 * D, 3)
    mixed = torch.einsum("hm,nmd->nhd", mixture, x.view(7, MODES, D)).reshape(7, 2 * D)
    torch.testing.assert_close(x @ spread(mixture, weight), mixed @ weight, rtol=1e-4, atol=1e-4)


def test_every_fixed_control_is_the_papers_probe_on_its_vectors(world):
    rows, labels, folds = world
    found = temporal_evidence(rows, labels, folds, SOURCES, REPRESENTATIONS).log_posteriors
    vectors = rows.reshape(len(rows), VECTORS, D).astype(np.float32)
    expected = {
        "temporal-mean": vectors[:, 0],
        "temporal-max": vectors[:, 8],
        "temporal-final": vectors[:, 9],
        "temporal-mean-final": np.concatenate([vectors[:, 0], vectors[:, 9]], 1),
        "temporal-mean-max": np.concatenate([vectors[:, 0], vectors[:, 8]], 1),
        "temporal-final-max": np.concatenate([vectors[:, 9], vectors[:, 8]], 1),
        "dct-q2": rows[:, : 2 * D].astype(np.float32),
        "dct-q4": rows[:, : 4 * D].astype(np.float32),
        "dct-q8": rows[:, : 8 * D].astype(np.float32),
    }
    assert set(found) == set(expected)
    for method, x in expected.items():
        for fold in range(5):
            test = folds == fold
            wanted = fit_probe(x[~test], labels[~test], SOURCES).log_posterior(x[test])
            np.testing.assert_allclose(found[method][test], wanted, atol=2e-5)


def test_mixtures_are_fitted_on_training_prompts_and_their_weights_are_reported(world):
    rows, labels, folds = world
    found = temporal_evidence(rows, labels, folds, SOURCES, MIXTURES)
    modes = rows[:, : MODES * D].astype(np.float32)
    for method, heads in MIXTURES.items():
        table = found.mixtures[method]
        assert len(table) == 5 * heads * MODES
        for fold in range(5):
            test = folds == fold
            mean, scale = modes[~test].mean(0), modes[~test].std(0)
            x = torch.from_numpy((modes - mean) / scale)
            y = torch.from_numpy(labels)
            a, weight, bias = mixture_by_autograd(x[~test], y[~test], SOURCES, heads, ProbeSettings())
            got = table[table["fold"] == fold].pivot(index="head", columns="mode", values="weight").to_numpy()
            np.testing.assert_allclose(got, a.numpy(), atol=1e-4)
            mixed = torch.einsum("hm,nmd->nhd", a, x[test].double().view(-1, MODES, D)).reshape(-1, heads * D)
            wanted = torch.log_softmax(mixed @ weight + bias, -1)
            np.testing.assert_allclose(found.log_posteriors[method][test], wanted.numpy(), atol=1e-3)


def test_mean_is_mode_zero_and_two_modes_are_the_fingerprint_of_reader_paper():
    assert TEMPORAL_MODES == MODES
    reader = Reader(tiny_decoder(), tiny_tokenizer(), dtype=torch.float32, compile_blocks=False)
    words = ("restart", "backup", "queue", "sensor")
    traces = [Trace(f"Prompt {p}", f"{words[s]} {'log ' * (p % 4 + s)}price {p}") for s in range(4) for p in range(10)]
    encoded = reader.encode(traces, "ur")
    found = reader.read(encoded, [2], Readout((None,), temporal=(2,)))
    temporal, fingerprint = found[2, "temporal"], found[2, "full"]
    with torch.inference_mode():
        hidden = tiny_decoder()(input_ids=torch.tensor([encoded[5].ids]), output_hidden_states=True).hidden_states[2]
    states = hidden[0, encoded[5].start : encoded[5].stop].numpy()
    np.testing.assert_allclose(temporal[5, :32], states.mean(0), rtol=3e-3, atol=3e-3)
    np.testing.assert_allclose(temporal[:, :64], fingerprint, rtol=2e-3, atol=2e-3)
    labels, folds = np.repeat(np.arange(4), 10), np.tile(np.arange(10) % 5, 4)
    held = temporal_evidence(temporal, labels, folds, 4, ["dct-q2", "temporal-mean"]).log_posteriors
    paper, _ = out_of_fold(lambda _: fingerprint.astype(np.float32), dict.fromkeys(range(5), 2), labels, folds, 4)
    np.testing.assert_allclose(held["dct-q2"], paper, atol=2e-3)


@pytest.mark.release
def test_released_reports_describe_the_same_eleven(release):
    """Dimensions, and mixtures whose heads have unit length and stay near the mode that they start at."""
    names = {
        "mean_pool": "temporal-mean",
        "final_token": "temporal-final",
        "max_pool": "temporal-max",
        "mean_final_pool": "temporal-mean-final",
        "mean_max_pool": "temporal-mean-max",
        "final_max_pool": "temporal-final-max",
        "dct_q2": "dct-q2",
        "dct_q4": "dct-q4",
        "dct_q8": "dct-q8",
        "learned_temporal_h1": "mixture-1",
        "learned_temporal_h2": "mixture-2",
    }
    vectors = {method: len(columns) for method, columns in REPRESENTATIONS.items()} | dict(MIXTURES)
    assert sorted(names.values()) == sorted(vectors)
    steps = ProbeSettings()
    reach = sum(steps.rate(step) for step in range(steps.steps))
    for path in (release.root / "results" / "ablations" / "temporal" / "reports").glob("*.json"):
        content = json.loads(path.read_text("utf-8"))
        d = content["configs"]["mean_pool"]["feature_dimension"]
        assert {names[c]: part["feature_dimension"] // d for c, part in content["configs"].items()} == vectors
        for fold in content["folds"]:
            for config in ("learned_temporal_h1", "learned_temporal_h2"):
                weights = np.array(fold["configs"][config]["fit_diagnostics"]["normalized_mode_weights"])
                np.testing.assert_allclose(np.linalg.norm(weights, axis=1), 1, rtol=1e-5)
                # Forty steps at the probe's own rates reach no further, so the rates are shared.
                assert np.abs(weights - np.eye(MODES)[: len(weights)]).max() < 1.2 * reach


def test_permuted_labels_give_chance():
    rng = np.random.default_rng(4)
    labels = np.repeat(np.arange(4), 250)
    folds = np.tile(np.arange(250) % 5, 4)
    rows = rng.normal(size=(4, VECTORS * 6))[labels] * 3 + rng.normal(size=(1000, VECTORS * 6))
    told = temporal_evidence(rows, labels, folds, 4).log_posteriors
    shuffled = rng.permutation(labels)
    blind = temporal_evidence(rows, shuffled, folds, 4).log_posteriors
    assert len(told) == 11
    for method in told:
        assert (told[method].argmax(1) == labels).mean() > 0.75, method
        assert abs((blind[method].argmax(1) == shuffled).mean() - 0.25) < 0.06, method

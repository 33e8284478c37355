"""Position pooling: which tokens are sampled, what the reader keeps of them, Fisher weights, and that nothing leaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_selection import f_classif

from backend.evaluations.controls import fisher_weights, matched_evidence, poolings
from backend.methods.probe import fit_probe
from backend.proxies.reader import Reader, Readout
from backend.spectral import POSITIONS, position_weights, stride_positions, uniform_positions
from backend.traces import Trace
from tests.tiny_models import tiny_decoder, tiny_encoder, tiny_tokenizer
from tests.twins import positions

TRACES = [
    Trace("How do I restart the queue?", "Certainly! First stop the service, then start it again."),
    Trace("How do I restart the queue?", "x"),
    Trace("Describe the backup.", "The sensor log and the price table. 1234 <b>naïve</b> — été 北京 🚀"),
    Trace("", ""),
]


@given(st.integers(1, 1024), st.sampled_from([16, 32, 64]))
def test_uniform_positions_run_evenly_from_the_first_token_to_the_last(length, count):
    tokens = uniform_positions(length, count)
    assert tokens.tolist() == positions(length, count)
    assert (tokens[0], tokens[-1]) == (0, length - 1)
    if length >= count:
        assert len(set(tokens.tolist())) == count


def test_strides_count_from_the_response_end():
    assert stride_positions(10, 4).tolist() == [9, 5, 1]
    assert stride_positions(1, 4).tolist() == [0]
    assert stride_positions(1000, 4, 32).tolist() == list(range(999, 999 - 4 * 32, -4))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 300)), min_size=1, max_size=3))
def test_weights_are_means_over_sampled_tokens_of_the_span(spans):
    starts, stops = [s for s, _ in spans], [s + n for s, n in spans]
    weights = position_weights(starts, stops, max(stops) + 2).numpy()
    np.testing.assert_allclose(weights.sum(2), 1, rtol=1e-5)
    for i, (start, length) in enumerate(spans):
        expected = np.zeros_like(weights[i])
        for m, t in enumerate(positions(length, 16)):
            expected[m, start + t] = 1
        for row, tokens in (
            (16, positions(length, 32)),
            (17, positions(length, 64)),
            (18, list(range(length - 1, -1, -4))),
            (19, list(range(length - 1, -1, -4))[:32]),
        ):
            for t in tokens:
                expected[row, start + t] += 1 / len(tokens)
        np.testing.assert_allclose(weights[i], expected, rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_reader_keeps_states_at_relative_positions_and_means_over_more(causal):
    model = tiny_decoder if causal else tiny_encoder
    reader = Reader(
        model(), tiny_tokenizer(encoder=not causal), dtype=torch.float32, causal=causal, compile_blocks=False
    )
    encoded = reader.encode(TRACES, "ur")
    readout = Readout((None, 6), temporal=(3,), positions=(2, 3))
    assert readout.variants(2) == {"full": 2, "t6": 2, "positions": 20}
    found = reader.read(encoded, [1, 2, 3], readout)
    assert (1, "positions") not in found
    reference = model()
    for i, e in enumerate(encoded):
        with torch.inference_mode():
            hidden = reference(input_ids=torch.tensor([e.ids]), output_hidden_states=True).hidden_states
        for layer in (2, 3):
            states = hidden[layer][0, e.start : e.stop].numpy()
            got = found[layer, "positions"][i].reshape(20, -1)
            sampled = states[positions(len(states), POSITIONS)]
            np.testing.assert_allclose(got[:16], sampled, rtol=3e-3, atol=3e-3)
            means = [states[positions(len(states), m)].mean(0) for m in (32, 64)]
            means += [states[::-1][::4].mean(0), states[::-1][::4][:32].mean(0)]
            np.testing.assert_allclose(got[16:], means, rtol=3e-3, atol=3e-3)
        np.testing.assert_array_equal(found[3, "positions"][i].reshape(20, -1)[15], found[3, "temporal"][i][9 * 32 :])


def test_encoder_reads_whole_responses_for_positions_although_only_short_ones_are_kept():
    reader = Reader(tiny_encoder(), tiny_tokenizer(encoder=True), dtype=torch.float32, causal=False)
    encoded = reader.encode(TRACES, "ur")
    whole = reader.read(encoded, [2, 3], Readout((None, 6), temporal=(3,), positions=(3,)))
    short = reader.read(encoded, [2, 3], Readout((6,), temporal=(3,), positions=(3,)))
    assert set(whole) - set(short) == {(2, "full"), (3, "full")}
    for key, array in short.items():
        np.testing.assert_array_equal(array, whole[key])


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(9)
    labels, folds = np.repeat(np.arange(4), 50), np.tile(np.arange(50) % 5, 4)
    signal = rng.normal(size=(4, 1, 3))[labels] * np.linspace(0, 2, 20)[:, None]
    return (signal + rng.normal(size=(200, 20, 3))).reshape(200, 60).astype(np.float16), labels, folds


def test_fisher_weights_are_mean_anova_scores_of_a_position(world):
    rows, labels, _ = world
    weights = fisher_weights(rows, labels)
    states = rows.reshape(200, 20, 3).astype(float)
    scores = [f_classif(states[:, position], labels)[0].mean() for position in range(16)]
    np.testing.assert_allclose(weights, np.array(scores) / np.sum(scores), rtol=1e-6)
    assert weights.argmax() > 10
    constant = rows.copy()
    constant[:, 0] = 1
    assert np.isfinite(fisher_weights(constant, labels)).all()


def test_fisher_weights_by_hand():
    # Two sources of two rows, d = 1. Position 0: groups (0, 2) and (4, 6): between 16, within 4, F = 16 / (4 / 2) = 8.
    # Every other position: groups (0, 2) and (0, 2): F = 0.
    rows = np.tile(np.array([[0.0], [2], [0], [2]]), (1, 20))
    rows[:, 0] = [0, 2, 4, 6]
    rows[:, 1] = [0, 2, 2, 4]  # between 4, within 4, F = 2
    weights = fisher_weights(rows, np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(weights, [0.8, 0.2] + [0.0] * 14)


def test_every_pooling_is_the_papers_probe_on_a_mean_of_states(world):
    rows, labels, folds = world
    found = matched_evidence(lambda _: rows, dict.fromkeys(range(5), 1), labels, folds, 4, poolings())
    states = rows.reshape(200, 20, 3).astype(np.float32)
    for fold in range(5):
        test = folds == fold
        fisher = fisher_weights(rows[~test], labels[~test])
        mixed = 0.25 * fisher + 0.75 / 16
        expected = {
            "positions-16": states[:, :16].mean(1),
            "positions-32": states[:, 16],
            "positions-64": states[:, 17],
            "positions-stride4": states[:, 18],
            "positions-stride4-32": states[:, 19],
            "positions-fisher": sum(fisher[m] * states[:, m] for m in range(16)),
            "positions-fisher25": sum(mixed[m] * states[:, m] for m in range(16)),
        }
        assert set(found) == set(expected)
        for method, x in expected.items():
            x = x.astype(np.float32)
            wanted = fit_probe(x[~test], labels[~test], 4).log_posterior(x[test])
            np.testing.assert_allclose(found[method][test], wanted, atol=1e-4)


def test_permuted_labels_give_chance_although_fisher_uses_them(world):
    rows, labels, folds = world
    rng = np.random.default_rng(10)
    rows, labels, folds = np.tile(rows, (4, 1)), np.tile(labels, 4), np.tile(folds, 4)
    rows = (rows + rng.normal(size=rows.shape)).astype(np.float16)
    shuffled = rng.permutation(labels)
    layers = dict.fromkeys(range(5), 1)
    told = matched_evidence(lambda _: rows, layers, labels, folds, 4, poolings())
    blind = matched_evidence(lambda _: rows, layers, shuffled, folds, 4, poolings())
    for method in told:
        assert (told[method].argmax(1) == labels).mean() > 0.6, method
        assert abs((blind[method].argmax(1) == shuffled).mean() - 0.25) < 0.07, method

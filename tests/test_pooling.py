"""Position pooling: which tokens are sampled, what the reader keeps of them, Fisher weights, and that nothing leaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.proxies.reader import Reader, Readout
from backend.spectral import POSITIONS, position_weights, stride_positions, uniform_positions
from backend.traces import Trace
from tests.tiny_models import tiny_decoder, tiny_encoder, tiny_tokenizer

TRACES = [
    Trace("How do I restart the queue?", "Certainly! First stop the service, then start it again."),
    Trace("How do I restart the queue?", "x"),
    Trace("Describe the backup.", "The sensor log and the price table. 1234 <b>naïve</b> — été 北京 🚀"),
    Trace("", ""),
]


def slow_positions(length: int, count: int) -> list[int]:
    return [int(np.floor(m * (length - 1) / (count - 1) + 0.5 + 1e-9)) for m in range(count)]


@given(st.integers(1, 1024), st.sampled_from([16, 32, 64]))
def test_uniform_positions_run_evenly_from_the_first_token_to_the_last(length, count):
    tokens = uniform_positions(length, count)
    assert tokens.tolist() == slow_positions(length, count)
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
        for m, t in enumerate(slow_positions(length, 16)):
            expected[m, start + t] = 1
        for row, tokens in (
            (16, slow_positions(length, 32)),
            (17, slow_positions(length, 64)),
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
            sampled = states[slow_positions(len(states), POSITIONS)]
            np.testing.assert_allclose(got[:16], sampled, rtol=3e-3, atol=3e-3)
            means = [states[slow_positions(len(states), m)].mean(0) for m in (32, 64)]
            means += [states[::-1][::4].mean(0), states[::-1][::4][:32].mean(0)]
            np.testing.assert_allclose(got[16:], means, rtol=3e-3, atol=3e-3)
        np.testing.assert_array_equal(found[3, "positions"][i].reshape(20, -1)[15], found[3, "temporal"][i][9 * 32 :])

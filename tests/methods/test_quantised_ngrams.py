"""N-grams as they are served: one byte a weight, and every text's log-odds character by character."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.methods.discriminant import NgramBank, fit_discriminant, make_bank, moments_of
from backend.methods.ngrams import (
    BITS,
    KIND,
    LENGTHS,
    SoftmaxSettings,
    coded,
    count_grams,
    counts_of,
    fit_grams,
    gram_spans,
)
from backend.methods.stack import CELLS, Stack

WORDS = ("alpha", "beta", "gamma", "delta", "…", "\n\n", "\U0001f600", "née", "it's")


def texts_of(source: int, count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    share = np.roll(np.array([5, 3, 2, 1, 1, 1, 1, 1, 1]) / 16, source)
    return [" ".join(rng.choice(WORDS, 12, p=share)) for _ in range(count)]


@pytest.fixture(scope="module")
def fitted():
    texts = [text for source in range(3) for text in texts_of(source, 80, source)]
    labels = np.repeat(np.arange(3), 80)
    return texts, labels, fit_grams(counts_of(texts), labels, 3, SoftmaxSettings(epochs=10, batch=32), seed=0)


def test_one_byte_a_weight_says_what_the_exact_weights_say(fitted):
    texts, labels, exact = fitted
    served = coded(exact)
    assert served.codes.dtype == np.int8 and np.abs(served.codes).max() == 127
    counts = counts_of(texts)
    apart = np.abs(served.log_posterior(counts) - exact.log_posterior(counts))
    assert 0 < apart.max() < 0.1
    assert (served.log_posterior(counts).argmax(1) == labels).mean() > 0.9


@pytest.mark.parametrize("kind", ["word", "char"])
@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("ab \n.é\U0001f600\u0301'_9"), max_size=40))
def test_spans_are_the_occurrences_that_are_counted(kind, text):
    starts, stops, buckets = gram_spans(text, kind, (1, 2, 3), 18)
    counts = count_grams([text], kind, (1, 2, 3), 18)
    found, times = np.unique(buckets, return_counts=True)
    assert counts.indices.tolist() == found.tolist()
    assert counts.data.tolist() == times.tolist()
    assert ((starts >= 0) & (starts < stops) & (stops <= len(text))).all()
    if kind == "char":
        assert (stops - starts).max(initial=0) <= 3


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.sampled_from([*WORDS, "unseen", " ", "."]), max_size=30),
    source=st.integers(0, 2),
    rival=st.integers(0, 2),
)
def test_characters_and_constant_add_up_to_the_log_odds(fitted, parts, source, rival):
    served = coded(fitted[2])
    text = " ".join(parts)
    values, constant = served.spread(text, source, rival)
    said = served.log_posterior(counts_of([text]))[0].astype(np.float64)
    assert values.sum() + constant == pytest.approx(said[source] - said[rival], abs=1e-4)
    assert len(values) == len(text)


def test_a_text_without_a_known_n_gram_has_the_constant_alone(fitted):
    served = coded(fitted[2])
    for text in ("", "   ", "entirely new"):
        values, constant = served.spread(text, 0, 2)
        assert len(values) == len(text) and not values.any()
        assert constant == pytest.approx(float(fitted[2].bias[0] - fitted[2].bias[2]))
    assert counts_of(["a b"]).shape == (1, 1 << BITS)
    assert count_grams(["a b"], KIND, LENGTHS, BITS).nnz == 3


def test_a_bank_with_words_splits_over_states_and_characters(fitted):
    texts, labels, exact = fitted
    rng = np.random.default_rng(4)
    rows = (rng.normal(size=(240, 8)) + 2 * np.eye(3, 8)[labels]).astype(np.float32)
    moments = moments_of([(rows, labels)], 3, 8)
    bank = make_bank([fit_discriminant(moments, 0.1)], [moments], Stack(np.full((CELLS, 1), 0.7)))
    head = NgramBank(bank, coded(exact), np.linspace(0.2, 1.1, CELLS))
    cells = rng.integers(0, CELLS, 240)
    said = head.log_posterior(rows, counts_of(texts), cells)
    assert np.allclose(np.exp(said).sum(1), 1, atol=1e-5)
    assert (said.argmax(1) == labels).mean() >= (bank.log_posterior(rows, cells).argmax(1) == labels).mean()
    for row in (0, 100, 239):
        cell = int(cells[row])
        direction, constant = head.odds(cell, 2, 0)
        standard = (rows[row].astype(np.float64) - bank.mean) / bank.scale
        values, rest = head.spread(texts[row], cell, 2, 0)
        total = standard @ direction + constant + values.sum() + rest
        assert total == pytest.approx(float(said[row, 2]) - float(said[row, 0]), abs=1e-4)

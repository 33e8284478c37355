"""Readouts beside the paper's: moments, discriminants, n-gram counts, softmax regression, stacking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from backend.methods.discriminant import fit_discriminant, merged, moments_of, within_scatter
from backend.methods.estimators import GramClassifier, NetworkClassifier, ShrinkageDiscriminant, StackClassifier
from backend.methods.network import NetworkSettings
from backend.methods.ngrams import SoftmaxSettings, count_grams, fit_grams, weigh
from backend.methods.stack import cells_of, fit_stack, fit_weights


def clouds(seed: int = 0, n: int = 240, width: int = 7, classes: int = 4, far: float = 2.0):
    """Rows around class means, with coordinates of very different size."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % classes)
    mix = rng.standard_normal((width, width))
    rows = rng.standard_normal((n, width)) @ mix + far * rng.standard_normal((classes, width))[labels]
    return (rows * 10.0 ** np.linspace(-2, 2, width) + 50).astype(np.float32), labels


def lower(matrix):
    return np.tril(matrix.astype(np.float64))


def test_moments_are_those_of_all_rows_however_they_are_cut():
    rows, labels = clouds()
    whole = moments_of([(rows, labels)], 4, 7)
    parts = [moments_of([(rows[a:b], labels[a:b])], 4, 7) for a, b in ((0, 50), (50, 51), (51, 240))]
    blocks = moments_of([(rows[:30], labels[:30]), (rows[30:], labels[30:])], 4, 7)
    centred = rows.astype(np.float64) - rows.mean(0, dtype=np.float64)
    size = np.sqrt((centred**2).sum(0))
    for found in (whole, merged(parts), blocks):
        assert np.allclose(found.centre, rows.mean(0, dtype=np.float64), rtol=1e-6)
        assert found.counts.tolist() == [60.0] * 4
        wanted = np.stack([centred[labels == c].sum(0) for c in range(4)])
        assert np.allclose(found.offsets / size, wanted / size, atol=1e-4)
        assert np.allclose(
            lower(found.scatter) / np.outer(size, size), lower(centred.T @ centred) / np.outer(size, size), atol=1e-5
        )


def test_weights_of_parts_count_rows_several_times():
    rows, labels = clouds()
    twice = moments_of(
        [(np.concatenate([rows[:40], rows[:40], rows[40:]]), np.concatenate([labels[:40], labels[:40], labels[40:]]))],
        4,
        7,
    )
    parts = [moments_of([(rows[:40], labels[:40])], 4, 7), moments_of([(rows[40:], labels[40:])], 4, 7)]
    found = merged(parts, [2.0, 1.0])
    size = np.sqrt(np.diag(twice.scatter))
    assert np.allclose(found.counts, twice.counts)
    assert np.allclose(
        lower(found.scatter) / np.outer(size, size), lower(twice.scatter) / np.outer(size, size), atol=1e-5
    )


def test_within_scatter_takes_the_class_means_out_and_columns_are_a_corner_of_it():
    rows, labels = clouds()
    moments = moments_of([(rows, labels)], 4, 7)
    centred = (
        rows.astype(np.float64) - np.stack([rows[labels == c].mean(0, dtype=np.float64) for c in range(4)])[labels]
    )
    size = np.sqrt((centred**2).sum(0))
    assert np.allclose(
        lower(within_scatter(moments)) / np.outer(size, size),
        lower(centred.T @ centred) / np.outer(size, size),
        atol=1e-4,
    )
    some = np.array([1, 4, 5])
    corner = within_scatter(moments.columns(some))
    assert np.allclose(lower(corner), lower(within_scatter(moments))[np.ix_(some, some)], rtol=1e-3)
    with pytest.raises(ValueError, match="no row"):
        moments_of([(rows[:0], labels[:0])], 4, 7)


def test_a_hardly_shrunk_discriminant_is_the_classical_one():
    rows, labels = clouds()
    ours = ShrinkageDiscriminant(1e-6).fit(rows, labels).predict_log_proba(rows)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", priors=np.full(4, 0.25)).fit(rows.astype(np.float64), labels)
    # scikit-learn divides by n, here it is n - C
    wanted = log_softmax(theirs.decision_function(rows.astype(np.float64)) * (240 - 4) / 240, axis=1)
    assert np.allclose(ours, wanted, atol=0.02)


def test_shrinkage_ignores_the_units_of_coordinates_and_moves():
    rows, labels = clouds()
    units = 10.0 ** np.linspace(3, -3, 7)
    moved = (rows * units + 3 * units).astype(np.float32)
    plain = ShrinkageDiscriminant(0.3).fit(rows, labels).predict_log_proba(rows)
    other = ShrinkageDiscriminant(0.3).fit(moved, labels).predict_log_proba(moved)
    assert np.allclose(plain, other, atol=5e-3)


def test_a_class_without_rows_is_never_named():
    rows, labels = clouds()
    readout = fit_discriminant(moments_of([(rows, labels)], 6, 7), 0.1)
    assert readout.log_posterior(rows).argmax(1).max() <= 3
    with pytest.raises(ValueError, match="shrinkage"):
        fit_discriminant(moments_of([(rows, labels)], 4, 7), 0.0)
    with pytest.raises(ValueError, match="more rows"):
        fit_discriminant(moments_of([(rows[:4], np.arange(4))], 4, 7), 0.1)


TEXT = st.text(alphabet="ab \n.é", max_size=12)


@settings(max_examples=25, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=5))
def test_character_grams_are_counted_within_a_text(texts):
    counts = count_grams(texts, "char", (1, 2, 3), 30)
    for row, text in enumerate(texts):
        grams: dict[str, int] = {}
        for length in (1, 2, 3):
            for start in range(len(text) - length + 1):
                gram = text[start : start + length]
                grams[gram] = grams.get(gram, 0) + 1
        assert sorted(counts[row].data.tolist()) == sorted(float(n) for n in grams.values())


def test_word_grams_know_case_marks_and_line_ends_and_do_not_depend_on_company():
    texts = ["Hello hello, world", "a\n\nb", "", "Hello hello, world"]
    counts = count_grams(texts, "word", (1, 2), 24)
    assert counts.sum(1).ravel().tolist() == [[4 + 3, 3 + 2, 0, 4 + 3]]
    assert (counts[0] != counts[3]).nnz == 0
    assert (count_grams(texts[1:2], "word", (1, 2), 24) != counts[1]).nnz == 0
    assert count_grams([], "word", (1,), 10).shape == (0, 1024)


def test_rows_are_weighed_to_unit_length_and_empty_ones_stay_empty():
    counts = count_grams(["a a b", "", "c"], "word", (1,), 12)
    rows = weigh(counts, np.ones(counts.shape[1], dtype=np.float32))
    assert np.allclose(np.sqrt(rows.multiply(rows).sum(1)).ravel(), [1, 0, 1])
    tied = np.sort(rows[0].data)
    assert tied[1] / tied[0] == pytest.approx(1 + np.log(2), rel=1e-5)


def test_softmax_regression_learns_who_says_what():
    rng = np.random.default_rng(1)
    words = [["alpha", "beta"], ["gamma", "beta"], ["delta", "alpha"]]
    labels = rng.integers(0, 3, 300)
    texts = [" ".join(rng.choice(words[label] + ["the", "of", "and"], 16)) for label in labels]
    counts = count_grams(texts, "word", (1, 2), 16)
    model = fit_grams(counts[:200], labels[:200], 3, SoftmaxSettings(epochs=20, batch=32), seed=0)
    posterior = model.log_posterior(counts[200:])
    assert (posterior.argmax(1) == labels[200:]).mean() > 0.9
    assert np.allclose(np.exp(posterior).sum(1), 1, atol=1e-5)
    again = fit_grams(counts[:200], labels[:200], 3, SoftmaxSettings(epochs=20, batch=32), seed=0)
    assert np.array_equal(model.weight, again.weight)


def posteriors(truth, sharpness, seed, classes=5):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((len(truth), classes))
    logits[np.arange(len(truth)), truth] += sharpness
    return log_softmax(logits, axis=1).astype(np.float32)


def test_weights_are_those_of_bayes_for_independent_members():
    truth = np.random.default_rng(0).integers(0, 5, 20_000)
    rng = np.random.default_rng(1)
    # Logits with unit normal noise and mean 1 at the truth are exact log-likelihoods: their best weight is 1.
    noise = [rng.standard_normal((20_000, 5)) for _ in range(2)]
    for part in noise:
        part[np.arange(20_000), truth] += 1.0
    members = [
        log_softmax(part * scale, axis=1).astype(np.float32) for part, scale in zip(noise, (1.0, 4.0), strict=True)
    ]
    weights = fit_weights(members, truth, np.full(2, 0.5), 1.0)
    assert weights == pytest.approx([1.0, 0.25], abs=0.05)


def test_a_stack_has_weights_for_every_cell_and_the_shared_ones_for_an_empty_cell():
    truth = np.random.default_rng(2).integers(0, 5, 4000)
    cells = np.arange(4000) % 2
    good, bad = posteriors(truth, 3.0, 3), posteriors(truth, 0.0, 4)
    first, second = np.where(cells[:, None] == 0, good, bad), np.where(cells[:, None] == 0, bad, good)
    stack = fit_stack([first, second], truth, cells, 3, pull=1.0)
    assert stack.weights[0, 0] > 5 * abs(stack.weights[0, 1]) and stack.weights[1, 1] > 5 * abs(stack.weights[1, 0])
    assert 0.1 < stack.weights[2, 0] / stack.weights[2, 1] < 10
    fused = stack.log_posterior([first, second], cells)
    assert (fused.argmax(1) == truth).mean() > (first.argmax(1) == truth).mean() + 0.2
    assert np.allclose(np.exp(fused).sum(1), 1, atol=1e-5)


def test_cells_see_length_and_how_a_text_ends():
    cells = cells_of(np.array([3, 24, 500, 500]), ["Yes.", "and then", "Done.\n", "so the"])
    assert cells.tolist() == [0, 5 + 1, 4, 5 + 4]


def test_estimators_stack_what_each_says_of_rows_that_it_has_not_seen():
    rng = np.random.default_rng(2)
    labels = np.tile(np.arange(4), 90)
    centres = rng.standard_normal((4, 6))
    rows = (centres[labels] + rng.standard_normal((360, 6))).astype(np.float32)
    habits = [rng.choice(list("abcdefgh"), 3) for _ in range(4)]
    words = np.array([" ".join([*rng.choice(habits[label], 2), *rng.choice(list("abcdefgh"), 6)]) for label in labels])
    fit, weigh, ask = np.split(np.arange(360), 3)
    network = NetworkClassifier(NetworkSettings(hidden=8, epochs=20, batch=32, rate=0.02))
    members = [
        (ShrinkageDiscriminant().fit(rows[fit], labels[fit]), rows),
        (network.fit(rows[fit], labels[fit], [rows[fit] / 2]), rows),
        (GramClassifier().fit(list(words[fit]), labels[fit], [[text[:5] for text in words[fit]]]), words),
    ]
    said = [[member.predict_log_proba(read[some]) for member, read in members] for some in (weigh, ask)]
    right = [(member.predict(read[ask]) == labels[ask]).mean() for member, read in members]
    stack = StackClassifier(pull=1.0).fit(said[0], labels[weigh])
    assert min(right) > 0.35
    assert (stack.predict(said[1]) == labels[ask]).mean() > max(right)
    np.testing.assert_allclose(np.exp(stack.predict_log_proba(said[1])).sum(1), 1, atol=1e-5)

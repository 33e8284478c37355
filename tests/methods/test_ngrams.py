"""N-grams: what is counted, how it is weighed, and a sparse fit that agrees with scikit-learn's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression

from backend.methods.ngrams import (
    CHARACTERS,
    GRAMS,
    SETTINGS,
    WORDS,
    count,
    fit_ngrams,
    fit_softmax,
    gram_spans,
    halves,
    masked,
    multiplier,
    weigh,
)  # fmt: skip
from tests.fake_release import _HABITS, _VOCABULARIES

SMALL = replace(WORDS, buckets=2**14, features=2000)


def invented(sources: int = 4, each: int = 30, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Texts of sources that differ in habits, and their labels."""
    rng = np.random.default_rng(seed)
    words = _VOCABULARIES[0][1].split()
    texts = [_HABITS[s](list(rng.choice(words, rng.integers(3, 9)))) for s in range(sources) for _ in range(each)]
    return texts, np.repeat(np.arange(sources), each)


def test_words_keep_case_punctuation_and_line_ends():
    def grams(text: str) -> int:
        return count([text], replace(WORDS, longest=1)).nnz

    assert grams("Yes yes") == 2
    assert grams("yes, yes!") == 3
    assert grams("one\n\ntwo\nthree") == 5  # a blank line is another word than a line end
    assert count([""], WORDS).nnz == 0


def test_style_keeps_function_words_and_marks_and_the_kind_of_other_words():
    units = ["The", "the", "Paris", "river", "rivers", "extraordinary", "42", "3rd", "_x", "—", "\n\n", "**", "Ünder"]
    assert [masked(unit) for unit in units] == [
        "The", "the", "A", "a", "a", "aa", "0", "0", "a", "—", "\n\n", "**", "A",
    ]  # fmt: skip
    style = GRAMS["style"]
    same, other = style.counts(["The river is wide.", "The house is tall.", "The river was wide!"])[:2]
    assert (same != other).nnz == 0, "the subject is not read"
    assert (style.counts(["the river is wide."]) != same).nnz > 0, "case of a function word is"
    assert (GRAMS["word"].counts(["The river is wide."]) != GRAMS["word"].counts(["The house is tall."])).nnz > 0


@pytest.mark.parametrize("kind", GRAMS)
def test_every_counted_n_gram_has_a_place_in_the_text(kind):
    grams, text = GRAMS[kind], "On the one hand,\nthe 3 rivers; on the other ‑ Ünder_x!"
    starts, stops, buckets = gram_spans(text, grams.kind, grams.lengths, grams.bits)
    found, times = np.unique(buckets, return_counts=True)
    counts = grams.counts([text])
    assert np.array_equal(found, counts.indices)
    assert np.array_equal(times, counts.data)
    assert (starts < stops).all()
    assert stops.max() == len(text)


def test_halves_are_the_text():
    for text in ("", "a", "abc", "abcd"):
        first, second = halves(text)
        assert first + second == text
        assert 0 <= len(second) - len(first) <= 1


def test_counts_are_those_of_a_vocabulary_in_another_order():
    texts = invented()[0][::30]  # few enough that no two n-grams meet in one bucket
    for settings in (WORDS, CHARACTERS):
        own = count(texts, settings)
        vocabulary = CountVectorizer(
            analyzer=settings.analyzer,
            ngram_range=(settings.shortest, settings.longest),
            token_pattern=settings.pattern,
            lowercase=False,
        )
        slow = vocabulary.fit_transform(texts).toarray()
        assert own.sum() == slow.sum()
        used = own[:, np.unique(own.indices)].toarray()
        np.testing.assert_array_equal(used[:, np.lexsort(used)].astype(int), slow[:, np.lexsort(slow)].astype(int))


def test_weights_are_those_of_scikit_learn():
    texts, _ = invented()
    counts = count([*texts, ""], SMALL)
    columns = np.unique(counts.indices)
    theirs = TfidfTransformer(sublinear_tf=True).fit(counts[:, columns])
    ours = weigh(counts[:, columns], theirs.idf_.astype(np.float32))
    np.testing.assert_allclose(ours.toarray(), theirs.transform(counts[:, columns]).toarray(), atol=2e-6)
    assert ours[len(texts)].nnz == 0, "an empty response stays empty"


def test_fit_reaches_the_minimum_that_scikit_learn_finds():
    texts, labels = invented()
    counts = count(texts, SMALL)
    rows = weigh(counts[:, np.unique(counts.indices)], np.ones(len(np.unique(counts.indices)), np.float32))
    weight, bias, _ = fit_softmax(rows, labels, 4, c=3.0, tolerance=1e-7, iterations=2000)
    theirs = LogisticRegression(C=3.0, tol=1e-9, max_iter=5000).fit(rows.astype(np.float64), labels)
    np.testing.assert_allclose(weight, theirs.coef_.T, atol=2e-3)
    probabilities = np.exp(rows @ weight + bias)
    probabilities /= probabilities.sum(1, keepdims=True)
    np.testing.assert_allclose(probabilities, theirs.predict_proba(rows), atol=1e-3)


def test_default_tolerance_is_as_good_as_the_minimum_for_unseen_texts():
    texts, labels = invented(each=40)
    rows = count(texts, SMALL)
    train = np.arange(len(texts)) % 4 != 0
    loose = fit_ngrams(rows[train], labels[train], 4, SMALL)
    tight = fit_ngrams(rows[train], labels[train], 4, replace(SMALL, tolerance=1e-8, iterations=5000))
    assert loose.iterations <= tight.iterations
    a, b = loose.log_posterior(rows[~train]), tight.log_posterior(rows[~train])
    assert np.abs(np.exp(a) - np.exp(b)).max() < 0.02
    assert (a.argmax(1) == labels[~train]).mean() > 0.9


def test_columns_and_their_weights_come_from_training_rows_only():
    texts, labels = invented()
    unseen = ["Quixotic zephyrs jinx my vows."] * 3
    counts = count([*texts, *unseen], SMALL)
    alone = fit_ngrams(count(texts, SMALL), labels, 4, SMALL)
    model = fit_ngrams(counts[: len(texts)], labels, 4, SMALL)
    np.testing.assert_array_equal(model.columns, alone.columns)
    np.testing.assert_array_equal(model.weight, alone.weight)
    few = fit_ngrams(counts[: len(texts)], labels, 4, replace(SMALL, features=7))
    documents = np.bincount(counts[: len(texts)].indices, minlength=SMALL.buckets)
    assert len(few.columns) == 7
    assert documents[few.columns].min() >= np.sort(documents)[::-1][6]


def test_posteriors_are_normalised_and_an_empty_response_gets_one_too():
    texts, labels = invented()
    model = fit_ngrams(count(texts, SMALL), labels, 4, SMALL)
    log_posterior = model.log_posterior(count(["", "never seen before", texts[0]], SMALL))
    assert log_posterior.dtype == np.float32
    np.testing.assert_allclose(np.exp(log_posterior).sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(np.exp(log_posterior[0]), np.exp(model.bias) / np.exp(model.bias).sum(), atol=1e-5)


def test_permuted_labels_teach_nothing():
    texts, labels = invented(each=60)
    rows = count(texts, SMALL)
    shuffled = np.random.default_rng(3).permutation(labels)
    train = np.arange(len(texts)) % 2 == 0
    model = fit_ngrams(rows[train], shuffled[train], 4, SMALL)
    accuracy = (model.log_posterior(rows[~train]).argmax(1) == shuffled[~train]).mean()
    assert abs(accuracy - 0.25) < 4 * np.sqrt(0.25 * 0.75 / (~train).sum())


def test_characters_are_enough_for_the_invented_habits():
    texts, labels = invented(each=20)
    settings = replace(CHARACTERS, buckets=2**14, features=2000)
    rows = count(texts, settings)
    train = np.arange(len(texts)) % 4 != 0
    model = fit_ngrams(rows[train], labels[train], 4, settings)
    assert (model.log_posterior(rows[~train]).argmax(1) == labels[~train]).mean() > 0.9


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_fit_into_the_memory_that_the_minimiser_needs(name):
    assert SETTINGS[name].features * 165 * 8 * 25 < 3e9, "L-BFGS keeps about 25 vectors of float64"


def test_weighted_bags_are_the_sparse_product():
    rng = np.random.default_rng(5)
    held = np.where(rng.random((40, 30)) < 0.2, rng.standard_normal((40, 30)), 0).astype(np.float32)
    held[[7, 39]] = 0
    rows = sparse.csr_matrix(held)
    for classes in (1, 7, 100):
        dense = rng.standard_normal((30, classes)).astype(np.float32)
        ours = multiplier(rows)(torch.from_numpy(dense)).numpy()
        np.testing.assert_allclose(ours, held @ dense, atol=1e-5)
        assert not ours[[7, 39]].any(), "rows without an entry"


def test_sparse_rows_may_be_of_any_layout():
    rows = sparse.coo_matrix(np.eye(4, dtype=np.float32))
    weight, bias, _ = fit_softmax(rows, np.arange(4), 4, c=10.0)
    assert ((rows @ weight + bias).argmax(1) == np.arange(4)).all()

"""N-gram signatures against TF-IDF written out, and what they must not know."""

from __future__ import annotations

import numpy as np
import pytest

from backend.errors import AtlasError
from backend.geometry.maps import CHARACTERS, TextSettings, TextSpace
from backend.geometry.signatures import cosine_similarity
from tests.twins import tf_idf

HABITS = ("Certainly! the {a} and the {b}.", "- {a}\n- {b}\n", "{a};{b};{a};", "WELL, {a} {b}?")
WORDS = ("queue", "backup", "sensor", "price", "mail", "index", "login", "cache")


def texts(n: int = 48) -> list[str]:
    rng = np.random.default_rng(0)
    return [HABITS[i % 4].format(a=rng.choice(WORDS), b=rng.choice(WORDS)) for i in range(n)]


def test_with_all_axes_the_cosines_are_those_of_tf_idf() -> None:
    corpus = texts(30)
    rows = tf_idf(corpus)
    space = TextSpace(corpus, TextSettings(components=29, seed=1, buckets=2**16))
    assert space.fitted.shape == (30, 29)
    np.testing.assert_allclose(space.fitted @ space.fitted.T, rows @ rows.T, atol=2e-2)
    values = np.linalg.svd(rows, compute_uv=False)
    np.testing.assert_allclose(np.linalg.norm(space.fitted, axis=0)[:5], values[:5], rtol=1e-3)


def test_habits_make_neighbours_and_labels_play_no_part() -> None:
    corpus = texts()
    space = TextSpace(corpus, TextSettings(components=8, buckets=2**12))
    means = np.stack([space.fitted[source::8].mean(axis=0) for source in range(8)])  # sources 0 and 4 share a habit
    near = cosine_similarity(means.astype(np.float64))
    np.fill_diagonal(near, -1)
    assert near.argmax(axis=1).tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


def test_other_texts_are_seen_in_the_same_axes() -> None:
    corpus = texts()
    space = TextSpace(corpus, TextSettings(buckets=2**12))
    np.testing.assert_allclose(space.features(corpus[:5]), space.fitted[:5], atol=1e-5)
    assert not space.features([""]).any()
    again = TextSpace(corpus, TextSettings(buckets=2**12))
    np.testing.assert_array_equal(space.fitted, again.fitted)


@pytest.mark.filterwarnings("error")
def test_characters_and_a_sample_to_fit_to() -> None:
    settings = TextSettings(analyzer="char_wb", shortest=2, longest=3, components=6, sample=20, buckets=2**12)
    space = TextSpace(texts(), settings)
    assert space.fitted.shape == (48, 6)
    assert 0 < space.explained < 1
    assert CHARACTERS.analyzer == "char_wb"


def test_nothing_to_read_is_said() -> None:
    with pytest.raises(AtlasError, match="no text to compare"):
        TextSpace(["", " ", "\t"])

"""First words and first characters: what is compared, how often it agrees, and the release's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.evaluations.relationships import METRICS, SPLITS, read_pairs, task_of
from backend.methods.baselines import MATCHERS, first_characters, first_word, match_rates

TEXTS = st.text(alphabet=st.sampled_from(" \n\tab,\u00a0é"), max_size=12)

PUBLISHED = {
    "mpt": {
        "pair": ((0.742, 0.942, 0.521, 0.660, 0.746), (0.061, 0.082, 0.123, 0.105, 0.085)),
        "model": ((0.622, None, None, 0.611, 0.909), (0.571, 0.675)),
        "family": ((0.677, None, None, 0.674, 0.901), (0.639, 0.716)),
    },
    "phylolm": {
        "pair": ((0.758, 0.944, 0.554, 0.690, 0.793), (0.057, 0.073, 0.113, 0.093, 0.078)),
        "model": ((0.664, None, None, 0.623, 0.913), (0.615, 0.715)),
        "family": ((0.706, None, None, 0.683, 0.904), (0.661, 0.753)),
    },
}
"""Means of accuracy, precision, recall, F1 and AUC; then, for pair splits, their standard deviations, and for the
strict protocols the interval of accuracy (its third decimal depends on the draws)."""


@pytest.mark.parametrize(
    ("response", "word", "characters"),
    [
        ("Hello, world", "Hello,", "Hell"),
        ("  \n\n Yes. No", "Yes.", " Yes"),  # blanks behind a line end stay
        ("\n  Yes", "Yes", "  Ye"),
        (" \t1. One", "1.", "\t1. "),
        ("ab", "ab", "ab"),
        ("", "", ""),
        (" \n ", "", " "),
    ],
)
def test_what_is_compared_of_a_response(response, word, characters):
    assert first_word(response) == word
    assert first_characters(response) == characters


@given(TEXTS)
def test_first_word_is_that_of_split_and_first_characters_are_found_in_the_response(text):
    assert first_word(text) == (text.split() or [""])[0]
    short = first_characters(text)
    assert len(short) <= 4
    assert short in text
    assert not short.startswith("\n")


@given(st.lists(TEXTS, min_size=12, max_size=12), st.sampled_from(sorted(MATCHERS)))
def test_rates_equal_a_count_by_hand(responses, method):
    rates = match_rates(responses, 4, MATCHERS[method])
    for a in range(4):
        for b in range(4):
            pairs = zip(responses[a * 3 : a * 3 + 3], responses[b * 3 : b * 3 + 3], strict=True)
            alike = [MATCHERS[method](x) == MATCHERS[method](y) for x, y in pairs]
            assert rates[a, b] == pytest.approx(sum(alike) / 3)


def test_two_silent_models_are_alike_and_an_uneven_grid_is_refused():
    assert match_rates(["", "", "", "a"], 2, first_word).tolist() == [[1.0, 0.5], [0.5, 1.0]]
    with pytest.raises(ValueError, match="do not divide"):
        match_rates(["a", "b", "c"], 2, first_word)


@pytest.mark.release
def test_published_numbers_come_out_of_the_text_in_all_protocols(release):
    task = task_of(release)
    responses = [trace.response for trace in task.records.traces]
    assert (task.models, len(responses)) == (67, 67 * 600)
    silent = np.array([not text for text in responses]).reshape(67, 600).sum(axis=1)
    assert sorted(silent[silent > 0]) == [1, 600]
    for method, protocols in PUBLISHED.items():
        rates = match_rates(responses, task.models, MATCHERS[method])
        for protocol, (means, spread) in protocols.items():
            pair_set = "pair_disjoint" if protocol == "pair" else "disjoint_union"
            related = task.pairs[pair_set]["related"].to_numpy(bool)
            reading = read_pairs(rates[tuple(task.places[pair_set].T)][:, None], related, task.splits[protocol])
            summary = reading.metrics[reading.metrics["split"].isna()].set_index("metric").loc[list(METRICS)]
            assert (summary["n"] == (36 if protocol == "family" else 20)).all()
            for metric, mean in zip(METRICS, means, strict=True):
                if mean is not None:
                    assert summary.loc[metric, "value"] == pytest.approx(mean, abs=5.01e-4), (method, protocol, metric)
            if protocol == "pair":
                np.testing.assert_allclose(summary["std"], spread, atol=5.01e-4)
            else:
                np.testing.assert_allclose(summary.loc["accuracy", ["low", "high"]].astype(float), spread, atol=2e-3)
    assert set(SPLITS) == {"pair", "model", "family"}

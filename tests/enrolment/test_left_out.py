"""What an enrolment states of a topic that it has not seen, and what happens there."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from backend.enrolment.head_fits import Tuning
from backend.enrolment.left_out import BY, METRICS, SCENARIO, left_out, summary
from backend.evaluations.corpus import Corpus
from backend.methods.registry import WORDS
from backend.protocol import CLEAN

SOURCES, TOPICS, TURNS, WIDTH = 4, 10, 8, 40


def debates() -> tuple[Corpus, list[str], list[str]]:
    """Sources that take a side a topic: their words tell them apart within a topic, and hardly across topics."""
    rng = np.random.default_rng(7)
    prompts, categories, texts = [], [], [[] for _ in range(SOURCES)]
    common = [f"common{i}" for i in range(60)]
    for topic in range(TOPICS):
        words = [f"subject{topic}x{i}" for i in range(12)]
        sides = [[f"side{topic}s{source}w{i}" for i in range(6)] for source in range(SOURCES)]
        for turn in range(TURNS):
            prompts.append(" ".join([*rng.choice(words, 8), f"turn{turn}"]))
            categories.append(f"topic {topic}")
            for source in range(SOURCES):
                own = [f"habit{source}"] * int(rng.random() < 0.35)
                parts = [*rng.choice(sides[source], 8), *rng.choice(words, 8), *rng.choice(common, WIDTH), *own]
                texts[source].append(" ".join(rng.permutation(parts)))
    everything = [text for of_source in texts for text in of_source]
    labels = np.repeat(np.arange(SOURCES), len(prompts))
    tokens = np.full(len(labels), 60, dtype=np.intp)

    def unread(*_: object) -> np.ndarray:
        raise AssertionError("text needs no fingerprints")

    return Corpus(unread, {CLEAN: everything}, tokens, labels, np.zeros_like(labels), SOURCES), prompts, categories


@pytest.mark.slow(60)
def test_groups_state_what_happens_on_a_new_topic_and_prompts_do_not() -> None:
    corpus, prompts, categories = debates()
    off, sure = {}, {}
    for by in BY:
        inside = np.flatnonzero(np.array(categories) != "topic 3")
        answers = left_out(corpus, prompts, inside, by, WORDS, "", (), 1, Tuning(epochs=60))[1]
        off[by] = answers.stated - answers.right.mean()
        sure[by] = answers.probability.mean() - answers.right.mean()
    assert off["prompts"] > 0.4 and sure["prompts"] > 0.2
    assert abs(off["groups"]) < 0.2 and abs(sure["groups"]) < 0.1


def test_a_summary_weighs_categories_by_their_answers() -> None:
    about = {"statistic": "groups", "k": 1, "scenario": SCENARIO}
    values = {"small": (2, 0.9, 0.8, 0.5), "large": (6, 0.9, 0.9, 0.86)}
    frames = [
        pd.DataFrame(
            [about | {"rule": kind, "n": n, "metric": m, "value": v} for m, v in zip(METRICS, row, strict=True)]
        )
        for kind, (n, *row) in values.items()
    ]
    found = summary(frames)
    assert set(found["n"]) == {8} and set(found["rule"]) == {"all"}
    values_of = found.set_index("metric")["value"]
    assert values_of[["stated", "realised", "within"]].tolist() == pytest.approx([0.9, 0.77, 0.5])

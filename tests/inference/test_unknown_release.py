"""Sources that a small file has not enrolled, on responses of the release made into such a file."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from backend.corpus.release import Release
from backend.enrolment.head_fits import Fits, heads_of
from backend.evaluations.corpus import Corpus
from backend.inference.unknown_source import LeftOut, unknown_frame, without_columns
from backend.intake.traces import whole
from backend.protocol import CLEAN, fold_of_prompts

SOURCES, PROMPTS = 60, 100


@pytest.mark.release
@pytest.mark.slow
def test_other_families_are_told_from_those_of_a_small_file(release: Release) -> None:
    roster, records = release.roster("100-way"), release.records("agent500")
    drawn = np.linspace(0, len(roster) - 1, SOURCES).astype(np.intp)
    texts = [whole(records.traces[s * len(records.prompt_ids) + p].response) for s in drawn for p in range(PROMPTS)]
    folds = fold_of_prompts(records.prompt_ids[:PROMPTS])
    source, prompt = np.repeat(np.arange(SOURCES), PROMPTS), np.tile(np.arange(PROMPTS), SOURCES)

    def unread(block: int, condition: str) -> npt.NDArray[np.floating]:
        raise AssertionError("n-grams read no states")

    corpus = Corpus(unread, {CLEAN: texts}, np.full(len(texts), 500), source, folds[prompt], SOURCES)
    said = heads_of(Fits(corpus, "none", (), {}), "ngram-word-lengths").log_posteriors[CLEAN]
    family = np.unique(roster["plot_family"].to_numpy()[drawn], return_inverse=True)[1]
    runs = []
    for one in np.unique(family):
        enrolled = np.flatnonzero(family != one)
        runs.append(LeftOut(without_columns(said, enrolled), source, prompt, enrolled))
    frame = unknown_frame(runs, folds, "family", "relative-mahalanobis", (10, 20)).set_index(["metric", "k"])["value"]
    # The n-grams alone, which need no proxy; benchmarks/labelled_file.py measures what files are enrolled by.
    assert frame["auroc", 20] > 0.84 and frame["auroc", 20] > frame["auroc", 10] > 0.75
    assert max(frame["false_rejection", 10], frame["false_rejection", 20]) <= 0.05

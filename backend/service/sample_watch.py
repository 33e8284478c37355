"""A watch of the shipped sample, whose endpoint another model takes over.

Scores, evidence, alarm and report are made as for every watch; only the answers were recorded before.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from backend.attribution.scoring import Attributor
from backend.corpus.labelled import read_labelled
from backend.enrolment.stories import stories
from backend.service.watch import RATE, Watch
from backend.service.watch_sources import Arrival
from backend.service.watch_state import SAMPLE, Question, Watched, WatchState, known_watch, sample_source

SEED = 42


@dataclass(frozen=True)
class RecordedLooks:
    """Traces of every look, which were recorded before."""

    looks: Sequence[Sequence[Watched]]
    kind: str

    def take(self, state: WatchState) -> Arrival:
        """Traces of the next look."""
        return Arrival(list(self.looks[state.look_number - 1]))


def watch_sample(attributor: Attributor) -> None:
    """Look at the sample's answers until the alarm stands; goes on where it was interrupted.

    The claimed model's enrolled answers are the reference. Its answers to prompts that nobody enrolled come first,
    then those of the model that takes over.
    """
    (story,) = stories("watch")
    before, after = story.files.values()
    enrolment, corpus = attributor.enrolment, read_labelled(Path("sample"))
    enrolled = np.array([fold is not None for fold in enrolment.folds_of(corpus.prompts)])
    new = [row for row in np.flatnonzero(~enrolled) if corpus.sources[corpus.labels[row]] == before]
    taken = [row for row in np.argsort(enrolled, kind="stable") if corpus.sources[corpus.labels[row]] == after]
    watched = [Watched(str(row), corpus.traces[row].prompt, corpus.traces[row].response) for row in [*new, *taken]]
    arrivals = RecordedLooks(
        [watched[i : i + story.traces] for i in range(0, len(watched), story.traces)], sample_source()
    )
    question = Question(story.claim, enrolment.name, enrolment.sha256, RATE, SEED, arrivals.kind)
    if (known := known_watch(SAMPLE)) is not None and known.question != question:
        known.close()
        shutil.rmtree(known.folder)
    rows = np.flatnonzero(enrolled)
    reference = replace(corpus, traces=tuple(corpus.traces[row] for row in rows), labels=corpus.labels[rows])
    with WatchState.begin(SAMPLE, question) as state:
        watch = Watch(state, attributor, say=lambda _: None)
        watch.refer_to(reference)
        watch.settle()
        while state.alarm is None and state.look_number <= len(arrivals.looks):
            watch.look(arrivals)

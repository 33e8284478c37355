"""Stories of the shipped sample: what they say happens, with the shipped ecosystem and its proxy."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from backend.attribution.drift_report import drift_answer
from backend.attribution.reference_check import reference_answer
from backend.attribution.run import audit, read_window
from backend.attribution.scoring import Attributor
from backend.attribution.settings import Settings, of_windows
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments, load_enrolment
from backend.enrolment.stories import Story, model_of, stories, story_files
from backend.intake import inspect
from backend.proxies.reader import Reader
from backend.service import watch_state
from backend.service.sample_watch import watch_sample
from backend.service.watch_state import SAMPLE, WatchState, sample_watch_of, watches

PARTS = ("attribute", "windows", "reference")


def ecosystem_of(story: Story) -> Enrolment:
    """The shipped ecosystem that answers."""
    return load_enrolment(enrolments()[story.ecosystem or "samples-smollm2-135m-ur"])


def test_every_story_has_answers_that_name_what_was_claimed() -> None:
    told = [story for part in PARTS for story in stories(part)]
    assert sorted(story.outcome for story in told) == ["AGAINST", "AGAINST", "DIFFERENT", "SUPPORTS", "UNKNOWN"]
    for story in told:
        shipped = ecosystem_of(story)
        assert story.claim in shipped.sources and all(map(model_of, story.files.values()))
        for content in story_files(story, shipped).values():
            rows = [json.loads(line) for line in content.splitlines()]
            assert {row["response"]["model"] for row in rows} == {shipped.name_of(story.claim)}
            prompts = [row["request"]["messages"][0]["content"] for row in rows]
            assert len(set(prompts)) == story.traces and shipped.folds_of(prompts) == [None] * story.traces


@pytest.mark.proxy
def test_the_watch_of_the_sample_ends_in_its_alarm(
    smollm2: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path))
    (story,) = stories("watch")
    watch_sample(Attributor(smollm2, ecosystem_of(story)))
    state = WatchState.open(SAMPLE)
    assert state.question.claimed == story.claim and state.file(1, "html").exists()
    assert state.alarm.leader == story.files["after.jsonl"] and state.alarm.traces > story.traces
    sha256 = state.question.enrolment_sha256
    state.close()
    assert watches() == []  # it is nobody's watch
    shown = sample_watch_of(sha256)
    assert shown is not None and sample_watch_of("0" * 64) is None
    shown.close()
    monkeypatch.setattr(watch_state, "running_version", lambda: "another")
    assert sample_watch_of(sha256) is None, "what other code has written is made anew"


@pytest.mark.proxy
@pytest.mark.parametrize("story", stories("attribute"), ids=lambda story: story.outcome)
def test_a_claim_has_the_answer_that_its_story_states(smollm2: Reader, story: Story) -> None:
    shipped = ecosystem_of(story)
    ((name, content),) = story_files(story, shipped).items()
    stream = io.BytesIO(content)
    result = audit(stream, inspect(stream, name), Attributor(smollm2, shipped), Settings(claimed=story.claim))
    assert result.report["results"]["verdict"] == story.outcome


@pytest.mark.proxy
@pytest.mark.parametrize("story", [one for part in PARTS[1:] for one in stories(part)], ids=lambda story: story.part)
def test_files_are_as_different_as_their_story_states(smollm2: Reader, story: Story) -> None:
    shipped = ecosystem_of(story)
    attributor, settings, windows = Attributor(smollm2, shipped), of_windows(shipped.name), []
    for name, content in story_files(story, shipped).items():
        stream = io.BytesIO(content)
        windows.append(read_window(stream, inspect(stream, name), attributor, settings))
    if story.part == "windows":
        found = drift_answer(windows, shipped, settings)
    else:
        found = reference_answer(*windows, [], shipped, settings)
    assert found["verdict"] == story.outcome

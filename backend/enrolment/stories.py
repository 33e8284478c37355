"""Stories of the shipped sample: what was claimed, what was recorded, and what an audit answers.

Nobody enrolled the prompts of their files. Each file is a log of a gateway that names the claimed model.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.errors import AtlasError

if TYPE_CHECKING:
    from backend.enrolment.enrolment import Enrolment


@dataclass(frozen=True)
class Story:
    """A case that can be tried without files of one's own."""

    name: str
    part: str  # of the page Attribute: attribute, windows or reference
    text: str  # what is known before anything runs
    claim: str
    outcome: str  # the answer
    traces: int  # of every file
    files: Mapping[str, str]  # name of a file to the source that wrote its answers
    ecosystem: str = ""  # of the answer; '' for that of the samples
    category: str = ""  # of the prompts; '' for all


def stories(part: str) -> list[Story]:
    """Stories of a part of the page, in their order. Raises AtlasError in an installation without samples."""
    from backend.corpus.collection import SAMPLES  # imports the client of endpoints

    path = SAMPLES / "stories.toml"
    try:
        rows = tomllib.loads(path.read_text("utf-8"))["story"]
    except OSError as error:
        raise AtlasError(f"{path} cannot be read ({error})", "Install the package again") from error
    return [story for story in (Story(**row) for row in rows) if story.part == part]


def model_of(source: str) -> str:
    """The model whose answers a source of the shipped sample gives, with its settings."""
    from backend.corpus.collection import SAMPLES

    return str(tomllib.loads((SAMPLES / "sources.toml").read_text("utf-8"))["sources"][source]["local"])


def story_files(story: Story, enrolment: Enrolment | None) -> dict[str, bytes]:
    """JSONL of every file of a story: answers to the prompts that an enrolment has not seen."""
    from backend.corpus.collection import RESPONSES, SAMPLES, read_collected

    lines = (SAMPLES / "prompts.jsonl").read_text("utf-8").splitlines()
    asked = {row["sample_id"] for row in map(json.loads, lines) if story.category in ("", row["category"])}
    collected = [line for line in read_collected(RESPONSES) if line.sample_id in asked]
    model = story.claim if enrolment is None else enrolment.name_of(story.claim)  # as a gateway calls it
    out = {}
    for name, source in story.files.items():
        answers = [line for line in collected if line.source == source]
        unseen = answers[-story.traces :]
        if enrolment is not None:
            folds = enrolment.folds_of([line.prompt for line in answers])
            unseen = [line for line, fold in zip(answers, folds, strict=True) if fold is None] or unseen
        some = unseen[: story.traces]
        out[name] = "".join(_logged(model, line.prompt, line.response) for line in some).encode()
    return out


def _logged(model: str, prompt: str, response: str) -> str:
    asked = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    answered = {"model": model, "choices": [{"message": {"role": "assistant", "content": response}}]}
    return json.dumps({"request": asked, "response": answered}) + "\n"

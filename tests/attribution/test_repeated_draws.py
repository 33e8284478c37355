"""Sources that were asked the same prompts twice, under the paired test of drift."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from backend.attribution.repeated_draws import measure
from backend.attribution.scoring import Attributor
from backend.corpus.collection import Collected, read_collected
from backend.errors import AtlasError
from tests.attribution.test_run import STYLES
from tests.served_api import tiny_enrolment, tiny_reader

FAMILIES = {"plain": "words", "shout": "words"}


def draw(path: Path, number: int, sources: tuple[str, ...] = tuple(STYLES), prompts: int = 20) -> list[Collected]:
    """Answers whose wording varies with the draw, apart from those of the greedy source."""
    rows: list[dict[str, Any]] = []
    empty = dict.fromkeys(field.name for field in fields(Collected))
    about = {"model": "m", "settings": {}, "engine": {}, "software": {}, "timestamp": "2026-01-01T00:00:00+00:00"}
    for source in (*sources, "greedy"):
        for i in range(prompts):
            text = "Always this." if source == "greedy" else STYLES[source].format(i=(7 * i + 13 * number) % 50)
            rows.append(
                {**empty, **about, "source": source, "sample_id": f"p{i}", "prompt": f"Q {i}?", "response": text}
            )
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return read_collected(path)


def test_the_same_sources_alarm_less_than_others_and_greedy_ones_are_left_out(tmp_path: Path) -> None:
    reader = tiny_reader()
    draws = [draw(tmp_path / f"{number}.jsonl", number) for number in (1, 2)]
    frame = measure(Attributor(reader, tiny_enrolment()), *draws, FAMILIES)
    shares = frame.set_index(["k", "scenario"])["value"].unstack("scenario")
    assert list(shares.index) == [10, 20]
    assert (shares["same"] < 0.2).all() and (shares["family"] == 1).all() and (shares["sibling"] == 1).all()


@pytest.mark.parametrize(
    ("sources", "prompts", "said"), [(("plain",), 20, "share 1 sources"), (("plain", "shout"), 9, "9 prompts")]
)
def test_too_little_is_refused(tmp_path: Path, sources: tuple[str, ...], prompts: int, said: str) -> None:
    reader = tiny_reader()
    draws = [draw(tmp_path / f"{number}.jsonl", number, sources, prompts) for number in (1, 2)]
    with pytest.raises(AtlasError, match=said):
        measure(Attributor(reader, tiny_enrolment()), *draws, FAMILIES)

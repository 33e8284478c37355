"""A fine-tuned encoder as a member, on an encoder of a few thousand weights: what it fills in, and what it has seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.evaluations.readouts import validation
from backend.protocol import FOLDS
from jobs._stages import readout_tuned
from jobs._stages.readout_tuned import TUNED, complete_tuned
from tests.tiny_models import tiny_encoder, tiny_tokenizer

WORDS = ("Certainly!", "def value():")
PROMPTS = 15
LABELS = np.repeat(np.arange(2), PROMPTS)
FOLD = np.tile(np.arange(PROMPTS) % FOLDS, 2)
SETTINGS = replace(TUNED, epochs=12, batch=8, learning_rate=5e-3, head_rate=5e-3, max_tokens=32, autocast=False)
Scores = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("encoder")
    tiny_encoder().save_pretrained(folder)
    tiny_tokenizer(encoder=True).save_pretrained(folder)
    return folder


def tuned(encoder: Path, folder: Path, noisy: int | None = None) -> Scores:
    """Scores of all rows; the texts of one fold are replaced by noise."""
    things = ("queue", "backup", "index", "sensor", "log")
    texts = [f"{WORDS[label]} the {things[i % 5]}" for i, label in enumerate(LABELS)]
    texts = ["the the the" if fold == noisy else text for text, fold in zip(texts, FOLD, strict=True)]
    short = [text.split()[0] for text in texts]
    out = {name: np.full((3, len(LABELS), 2), np.nan, dtype=np.float16) for name in ("clean", "t32")}
    out["math100"] = np.full((FOLDS, 2, 2), np.nan, dtype=np.float16)
    seconds = complete_tuned(
        str(encoder), {"clean": texts, "t32": short}, ("clean", "t32"), LABELS, FOLD, 2, list(WORDS), out, SETTINGS,
        folder, "identity",
    )  # fmt: skip
    assert seconds > 0
    return out


def test_every_row_is_scored_by_models_that_have_not_seen_its_prompt(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tuned(encoder, tmp_path / "a")
    for name, scores in out.items():
        assert np.isfinite(scores).all(), name
        truth = np.arange(2) if name == "math100" else LABELS
        assert (scores.argmax(2) == truth).mean() > 0.9, name
    assert np.array_equal(out["clean"][0], out["clean"][2])  # the outer model of a fold is the one shared with the next
    other = tuned(encoder, tmp_path / "b", noisy=3)
    test = FOLD != 3
    for slot, fold in validation(3):
        assert np.array_equal(out["clean"][slot, fold == FOLD], other["clean"][slot, fold == FOLD])
    assert not np.array_equal(out["clean"][0, test], other["clean"][0, test])

    # What is kept is not trained again, and checkpoints go when their model has spoken.
    monkeypatch.setattr(readout_tuned, "fine_tune", None)
    again = tuned(encoder, tmp_path / "a")
    assert all(np.array_equal(out[name], again[name]) for name in out)
    assert {path.suffix for path in (tmp_path / "a").iterdir()} == {".npz"}

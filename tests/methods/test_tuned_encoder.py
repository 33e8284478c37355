"""A fine-tuned encoder as a member, on an encoder of a few thousand weights: what it says, has seen, and is kept as."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.enrolment.fit import stacked_heads
from backend.errors import AtlasError
from backend.evaluations.artifacts import StackMember, keep_stacks, load_models, model_file
from backend.evaluations.readouts import validation
from backend.evaluations.stages import readout_members
from backend.evaluations.stages.readout_members import TUNED_SETTINGS as TUNED
from backend.evaluations.stages.readout_members import TunedRows, complete_tuned
from backend.methods.fine_tuning import Texts, TunedEncoder
from backend.methods.sentence_encoder import SentenceEncoder
from backend.methods.stack import CELLS, Stack
from backend.protocol import FOLDS
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


THINGS = ("queue", "backup", "index", "sensor", "log")
TEXTS = [f"{WORDS[label]} the {THINGS[i % 5]}" for i, label in enumerate(LABELS)]


def tuned(encoder: Path, folder: Path, noisy: int | None = None) -> Scores:
    """Scores of all rows; the texts of one fold are replaced by noise."""
    texts = ["the the the" if fold == noisy else text for text, fold in zip(TEXTS, FOLD, strict=True)]
    short = [text.split()[0] for text in texts]
    out = {name: np.full((3, len(LABELS), 2), np.nan, dtype=np.float16) for name in ("clean", "t32")}
    out["math100"] = np.full((FOLDS, 2, 2), np.nan, dtype=np.float16)
    rows = TunedRows({"clean": texts, "t32": short}, ("clean", "t32"), LABELS, FOLD, 2, list(WORDS))
    seconds = complete_tuned(str(encoder), rows, out, SETTINGS, folder, "identity")
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

    # The model of a fold says of its rows what was kept of them, and no row of it had a part in that model.
    base = SentenceEncoder(str(encoder))
    models, others = (load_models(tmp_path / name, "") for name in ("a", "b"))
    for fold, model in models.items():
        assert isinstance(model, TunedEncoder)
        rows = np.flatnonzero(fold == FOLD)
        said = model.log_posterior(Texts(base, TEXTS)[rows])
        np.testing.assert_allclose(said, out["clean"][0, rows], atol=1e-4, rtol=2.0**-11)
    assert np.array_equal(models[3].bias, others[3].bias) and not np.array_equal(models[1].bias, others[1].bias)

    # What is kept is not trained again, and checkpoints go when their model has spoken.
    monkeypatch.setattr(readout_members, "fine_tune", None)
    again = tuned(encoder, tmp_path / "a")
    assert all(np.array_equal(out[name], again[name]) for name in out)
    assert {path.suffix for path in (tmp_path / "a").iterdir()} == {".npz"}

    # Scores of before models were kept serve a stack, and an enrolment says what makes the models.
    keep_stacks(
        tmp_path, [StackMember("bert:tuned", (), tmp_path / "a")], dict.fromkeys(range(5), Stack(np.ones((CELLS, 1))))
    )
    assert len(stacked_heads(tmp_path, "tiny", "evaluate")) == FOLDS
    (tmp_path / "a" / model_file(2)).unlink()
    assert np.array_equal(tuned(encoder, tmp_path / "a")["clean"], out["clean"])
    with pytest.raises(AtlasError, match=r"Of bert:tuned only scores are saved.*remove that folder and run: evaluate"):
        stacked_heads(tmp_path, "tiny", "evaluate")

"""Fine-tuning for real, on encoders of a few thousand weights and on the packaged sentence encoder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from backend.errors import AtlasError
from backend.methods.fine_tuning import (
    CLASSIFIER,
    ENCODER,
    FinetuneSettings,
    TrainedClassifier,
    batches,
    fine_tune,
    load_classifier,
    rate_share,
)
from tests.tiny_models import tiny_encoder, tiny_tokenizer

TEXTS = [f"{a} the {b}" for a in ("Certainly!", "def value():") for b in ("queue", "backup", "index", "sensor log")] * 2
LABELS = np.array([0, 0, 0, 0, 1, 1, 1, 1] * 2)
FAST = replace(CLASSIFIER, epochs=6, batch=8, learning_rate=5e-3, head_rate=5e-3, checkpoint=3, max_tokens=32)


@pytest.fixture(scope="module")
def deberta(tmp_path_factory) -> Path:
    """A DeBERTa-v2 of two blocks with the parts of version 3, randomly initialised."""
    folder = tmp_path_factory.mktemp("deberta")
    torch.manual_seed(0)
    config = transformers.DebertaV2Config(
        vocab_size=400, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, type_vocab_size=0, relative_attention=True, position_biased_input=False,
        pos_att_type=["p2c", "c2p"], share_att_key=True, norm_rel_ebd="layer_norm", position_buckets=8,
        pad_token_id=0, pooler_hidden_size=32,
    )  # fmt: skip
    transformers.DebertaV2Model(config).save_pretrained(folder)
    tiny_tokenizer(encoder=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    tiny_encoder().save_pretrained(folder)
    tiny_tokenizer(encoder=True).save_pretrained(folder)
    return folder


def train(folder: Path, settings: FinetuneSettings = FAST, **options) -> TrainedClassifier:
    return fine_tune(str(folder), TEXTS, LABELS, 2, settings=settings, seed=42, **options)


def weights(trained: TrainedClassifier) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trained.model.parameters() if p.requires_grad])


def test_defaults_are_those_of_the_paper_and_its_release():
    assert (CLASSIFIER.max_tokens, CLASSIFIER.epochs, CLASSIFIER.batch) == (256, 2, 32)
    assert (CLASSIFIER.learning_rate, CLASSIFIER.weight_decay, CLASSIFIER.warmup) == (6e-6, 0.01, 0.06)
    assert not CLASSIFIER.autocast, "float32"
    assert (ENCODER.learning_rate, ENCODER.head_rate, ENCODER.batch) == (1e-5, 1e-3, 64)


def test_rate_rises_then_falls_to_zero():
    shares = [rate_share(step, 100, 0.06) for step in range(101)]
    assert shares[0] == 0
    assert shares[3] == 0.5
    assert shares[6] == 1 == max(shares)
    assert shares[53] == 0.5
    assert shares[100] == 0


@pytest.mark.parametrize("bucket", [1, 2, 50])
def test_every_epoch_holds_every_row_once(bucket):
    settings, lengths = replace(FAST, batch=4, epochs=3, bucket=bucket), torch.arange(10, 0, -1)
    steps = list(batches(lengths, settings, 1))
    assert sorted(len(rows) for rows in steps) == [2] * 3 + [4] * 6
    for epoch in range(3):
        assert sorted(torch.cat(steps[3 * epoch : 3 * epoch + 3]).tolist()) == list(range(10))
    assert [r.tolist() for r in steps] == [r.tolist() for r in batches(lengths, settings, 1)]


def test_batches_that_are_drawn_together_pad_less():
    lengths = torch.randint(1, 256, (640,), generator=torch.Generator().manual_seed(0))
    plain, sorted_ = (
        sum(int(lengths[rows].max()) * len(rows) for rows in batches(lengths, replace(FAST, bucket=bucket), 1))
        for bucket in (1, 16)
    )
    assert sorted_ < 0.65 * plain
    assert sorted_ >= FAST.epochs * int(lengths.sum())


def test_forms_of_a_text_are_all_learnt(encoder):
    """Of texts that were never seen whole in training their short form says nothing; trained on both, both do."""
    short = [text.split()[0] if label else "the" for text, label in zip(TEXTS, LABELS, strict=True)]
    settings = replace(FAST, kind="encoder", epochs=12)
    both = fine_tune(str(encoder), TEXTS, LABELS, 2, settings=settings, seed=42, copies=[short])
    again = fine_tune(str(encoder), TEXTS, LABELS, 2, settings=settings, seed=42, copies=[short])
    for texts in (TEXTS, short):
        assert (both.log_posterior(texts).argmax(1) == LABELS).all()
    torch.testing.assert_close(weights(both), weights(again), rtol=0, atol=0)


def test_deberta_learns_and_its_posteriors_are_normalised(deberta):
    trained = train(deberta)
    log_posterior = trained.log_posterior([*TEXTS, ""], batch=3)
    assert log_posterior.shape == (17, 2)
    np.testing.assert_allclose(np.exp(log_posterior).sum(1), 1, atol=1e-5)
    assert (log_posterior[:16].argmax(1) == LABELS).all()
    np.testing.assert_allclose(log_posterior[5], trained.log_posterior([TEXTS[5]])[0], atol=1e-4)
    assert trained.parameters == sum(p.numel() for p in trained.model.parameters())
    untouched, _ = load_classifier(str(deberta), 2, FAST, 42)
    before = dict(untouched.named_parameters())
    moved = [name for name, p in trained.model.named_parameters() if not torch.equal(p, before[name])]
    assert any("embeddings" in name for name in moved), "trained from end to end"
    assert any("classifier" in name for name in moved)


@pytest.mark.parametrize("kind", ["classifier", "encoder"])
def test_a_killed_training_ends_with_the_same_weights(kind, deberta, encoder, tmp_path):
    folder = deberta if kind == "classifier" else encoder
    settings = replace(FAST, kind=kind)
    whole = train(folder, settings)
    path = tmp_path / "checkpoints" / "0.safetensors"

    def kill(done: int, steps: int) -> None:
        assert steps == 12
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder, settings, checkpoint=path, progress=kill)
    assert path.exists()
    taken: list[int] = []
    resumed = train(folder, settings, checkpoint=path, progress=lambda done, steps: taken.append(done))
    assert taken == [7, 8, 9, 10, 11, 12], "from the checkpoint of step 6"
    torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=0)


def test_a_checkpoint_of_another_training_is_refused(encoder, tmp_path):
    settings = replace(FAST, kind="encoder", epochs=2)
    train(encoder, settings, checkpoint=tmp_path / "0.safetensors")
    with pytest.raises(AtlasError, match="belongs to another training"):
        train(encoder, replace(settings, learning_rate=1e-5), checkpoint=tmp_path / "0.safetensors")


@pytest.mark.parametrize("kind", ["encoder", "classifier"])
def test_a_checkpoint_of_other_weights_in_a_folder_of_the_same_name_is_refused(encoder, deberta, tmp_path, kind):
    settings = replace(FAST, kind=kind, epochs=2)
    path, again = tmp_path / "0.safetensors", tmp_path / "again" / "model"
    first = shutil.copytree(encoder if kind == "encoder" else deberta, tmp_path / "model")
    train(first, settings, checkpoint=path)
    train(shutil.copytree(first, again), settings, checkpoint=path)
    held = load_file(again / "model.safetensors")
    name = next(name for name, value in held.items() if value.dim() > 1 and "embed" in name)
    save_file(held | {name: held[name] + 0.01}, again / "model.safetensors", {"format": "pt"})
    with pytest.raises(AtlasError, match="belongs to another training"):
        train(again, settings, checkpoint=path)


def test_autocast_leaves_weights_and_posteriors_in_float32(encoder):
    trained = train(encoder, replace(FAST, kind="encoder", epochs=1, autocast=True))
    assert {p.dtype for p in trained.model.parameters()} == {torch.float32}
    log_posterior = trained.log_posterior(TEXTS)
    assert log_posterior.dtype == np.float32
    np.testing.assert_allclose(np.exp(log_posterior).sum(1), 1, atol=1e-5)


def test_dropout_can_be_taken_out(encoder):
    """Without it a step in training is the step in evaluation: two draws of the same batch say the same."""
    trained = train(encoder, replace(FAST, kind="encoder", epochs=1, dropout=0.0))
    usual = train(encoder, replace(FAST, kind="encoder", epochs=1))
    inputs = torch.arange(5, 21).reshape(2, 8), torch.ones(2, 8, dtype=torch.int64)
    for model, same in ((trained.model, True), (usual.model, False)):
        assert torch.equal(model.train()(*inputs), model(*inputs)) is same


def test_texts_that_are_the_same_to_the_model_are_read_once(encoder, monkeypatch):
    trained = train(encoder, replace(FAST, kind="encoder", epochs=1, max_tokens=4))
    long = ["the queue the queue the backup", "the queue the queue the sensor", "def value()", "the queue the queue"]
    read: list[int] = []
    forward = trained.model.forward
    monkeypatch.setattr(trained.model, "forward", lambda ids, mask: read.append(len(ids)) or forward(ids, mask))
    said = trained.log_posterior([*long, *long])
    assert sum(read) == 2
    for text, row in zip([*long, *long], said, strict=True):
        np.testing.assert_allclose(row, trained.log_posterior([text])[0], atol=1e-5)


def test_what_cannot_be_loaded_is_said_in_one_sentence(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(AtlasError, match="cannot be loaded as a classifier"):
        load_classifier(str(tmp_path), 2, CLASSIFIER, 0)


@pytest.mark.proxy
def test_the_real_sentence_encoder_learns_from_a_handful_of_texts():
    settings = replace(ENCODER, epochs=4, batch=8, learning_rate=2e-4, head_rate=2e-2, max_tokens=32)
    try:
        trained = fine_tune("minilm-l6", TEXTS, LABELS, 2, settings=settings, seed=42)
    except AtlasError as error:
        pytest.skip(f"the weights of minilm-l6 are missing: {error}")
    unseen = ["Certainly! the mail filter", "def value(): the price table"]
    assert trained.log_posterior(unseen).argmax(1).tolist() == [0, 1]

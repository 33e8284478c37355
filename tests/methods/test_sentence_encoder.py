"""Sentence embeddings: pooling as the encoder's own files say, and a cache that goes on where it stopped."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from backend.errors import AtlasError
from backend.methods.sentence_encoder import EmbeddingCache, EmbeddingKey, Recipe, SentenceEncoder, pool, recipe_of
from backend.proxies.encoding import cut_responses, encode
from backend.proxies.registry import describe, locate
from backend.traces import Trace, view_text, whole_text
from tests.tiny_models import tiny_encoder, tiny_tokenizer

TEXTS = ["One two three.", "", "Certainly! " * 40, "été 北京 🚀", "x", "a lone \ud800 surrogate", "Four\n\n\nfive"]
SENTENCES = [
    f"{a} the {b}{c}" for a in ("Restart", "Describe", "Test", "Move") for b in ("queue", "backup") for c in (".", "?!")
]


@pytest.fixture
def folder(tmp_path):
    """A tiny encoder as a folder."""
    tiny_encoder().save_pretrained(tmp_path / "tiny")
    tokenizer = tiny_tokenizer(encoder=True)
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def describe_as(folder, pooling: dict[str, object], *, normalise: bool, limit: int = 48) -> None:
    """Write the files by which sentence-transformers describes an encoder."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalise else [])]
    modules = [
        {"type": f"sentence_transformers.models.{k}", "path": f"{i}_{k}" if i else ""} for i, k in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": limit}))


def plain(model, tokenizer, text: str, recipe: Recipe) -> np.ndarray:
    """One text at a time, without padding."""
    ids = tokenizer(whole_text(text), truncation=True, max_length=recipe.max_tokens)["input_ids"]
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    vector = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[recipe.pooling]
    return (vector / vector.norm() if recipe.normalise else vector).numpy()


def test_pooling_leaves_padding_out():
    states = torch.arange(24, dtype=torch.float32).reshape(2, 4, 3)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    expected = {"mean": states[0, :2].mean(0), "cls": states[0, 0], "last": states[0, 1]}
    for pooling, vector in expected.items():
        torch.testing.assert_close(pool(states, mask, Recipe(pooling, False))[0], vector)
        torch.testing.assert_close(pool(states, mask, Recipe(pooling, True))[0], vector / vector.norm())


@pytest.mark.parametrize(
    ("pooling", "recipe"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, Recipe("mean", True, 48)),
        ({"pooling_mode_cls_token": True, "word_embedding_dimension": 32}, Recipe("cls", True, 48)),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, Recipe("last", True, 48)),
        ({"pooling_mode": "cls"}, Recipe("cls", True, 48)),
    ],
)
def test_recipe_is_read_from_the_encoders_own_files(folder, pooling, recipe):
    describe_as(folder, pooling, normalise=True)
    assert recipe_of("tiny", folder) == recipe


def test_other_recipes(folder):
    assert recipe_of("tiny", folder) == Recipe("mean", True, 512), "no files: mean pooling"
    describe_as(folder, {"pooling_mode_mean_tokens": True}, normalise=False, limit=100_000)
    assert recipe_of("tiny", folder) == Recipe("mean", False, 512)
    assert recipe_of("minilm-l6", folder) == Recipe("mean", True, 256), "as its card says"
    describe_as(folder, {"pooling_mode_max_tokens": True}, normalise=True)
    with pytest.raises(AtlasError, match="max_tokens"):
        recipe_of("tiny", folder)


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token", "lasttoken"])
def test_batches_give_what_single_texts_give(folder, pooling):
    describe_as(folder, {f"pooling_mode_{pooling}": True}, normalise=pooling != "cls_token")
    encoder = SentenceEncoder(str(folder), device="cpu", dtype=torch.float32)
    encoder.batch_tokens = 100
    got = encoder.embed(TEXTS)
    assert got.shape == (len(TEXTS), 32)
    expected = [plain(encoder.model, encoder.tokenizer, text, encoder.recipe) for text in TEXTS]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    pooler = sum(p.numel() for p in encoder.model.pooler.parameters())
    assert encoder.parameters == sum(p.numel() for p in encoder.model.parameters()) - pooler


def test_cache_computes_each_row_once_and_goes_on_after_an_interruption(folder, tmp_path):
    encoder = SentenceEncoder(str(folder), device="cpu", dtype=torch.float32)
    key = EmbeddingKey("agent500", "ur.full", "hash", 16)
    asked: list[str] = []
    embed = encoder.embed

    def counted(texts):
        if len(asked) + len(texts) > 10:
            raise KeyboardInterrupt
        asked.extend(texts)
        return embed(texts)

    encoder.embed = counted
    rows = np.arange(15, -1, -1)
    texts = [SENTENCES[row] for row in rows]
    with pytest.raises(KeyboardInterrupt):
        EmbeddingCache(encoder, key, tmp_path).complete(texts, rows, chunk=4)
    assert asked == texts[:8]
    with pytest.raises(ValueError, match="missing"):
        EmbeddingCache(encoder, key, tmp_path).take(np.arange(16))

    encoder.embed = embed
    seen: list[int] = []
    cache = EmbeddingCache(encoder, key, tmp_path)
    cache.complete(texts, rows, seen.append, chunk=4)
    assert seen == [8, 4, 4]
    np.testing.assert_allclose(cache.take(np.arange(16)), embed(SENTENCES), atol=2e-3)
    np.testing.assert_array_equal(cache.take(rows[:3]), cache.take(np.arange(16))[rows[:3]])

    encoder.embed = counted  # would raise
    EmbeddingCache(encoder, key, tmp_path).complete(texts, rows)
    with pytest.raises(KeyboardInterrupt):
        EmbeddingCache(encoder, EmbeddingKey("agent500", "ur.full", "other texts", 16), tmp_path).complete(texts, rows)


def test_cut_responses_hold_the_tokens_that_the_proxy_would_keep():
    tokenizer = tiny_tokenizer()
    traces = [Trace("Ask.", text) for text in [*TEXTS, "Two words and then some more of them, 北京 🚀🚀🚀 end"]]
    cut = cut_responses(tokenizer, traces, (8, 3), chunk=2)
    assert sorted(cut) == [3, 8]
    for limit, short in cut.items():
        encoded = encode(tokenizer, traces, "ur", max_tokens=1024)
        for whole, one, tokens in zip(traces, short, encoded, strict=True):
            response = whole_text(whole.response)
            assert response.startswith(one.response)
            if tokens.response_tokens <= limit:
                assert one.response == response
            else:
                kept = tokenizer.decode(tokens.cut(limit).ids)
                text = view_text(one, "ur")[1]
                # A token can end inside a character, which the text then has whole.
                assert text.startswith(kept.rstrip("\N{REPLACEMENT CHARACTER}"))
                assert len(text) <= len(kept) + 1


@pytest.mark.proxy
def test_the_real_encoder_agrees_with_a_plain_loop():
    try:
        encoder = SentenceEncoder("minilm-l6", device="cpu", dtype=torch.float32)
    except AtlasError as error:
        pytest.skip(f"the weights of minilm-l6 are missing: {error}")
    import transformers

    folder = locate(describe("minilm-l6"))
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [*SENTENCES[:15], "A long one. " * 200]
    expected = np.stack([plain(model, tokenizer, text, Recipe("mean", True, 256)) for text in texts])
    got = encoder.embed(texts)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)
    alike = encoder.embed(["How do I restart the queue?", "Restarting a queue, step by step", "Butter and flour"])
    assert alike[0] @ alike[1] > 0.5 > alike[0] @ alike[2]

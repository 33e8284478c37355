"""LLMmap's head: its shape, that it learns, and that a run can be repeated."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from backend.methods.llmmap import LLMmapHead, LLMmapSettings, fit_llmmap

SMALL = LLMmapSettings(width=16, blocks=2, heads=2, epochs=30, batch=20, learning_rate=3e-3)


def pairs(classes: int = 4, each: int = 25, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Prompt and response embeddings; only the response knows its source, far away from the origin."""
    rng = np.random.default_rng(seed)
    centres = 2 * np.random.default_rng(99).standard_normal((classes, 6))
    labels = np.repeat(np.arange(classes), each)
    responses = centres[labels] + rng.standard_normal((len(labels), 6)) + 50
    return np.concatenate([rng.standard_normal((len(labels), 6)), responses], 1).astype(np.float32), labels


def test_with_a_1024_dimensional_encoder_the_head_has_the_released_number_of_weights():
    assert sum(p.numel() for p in LLMmapHead(2 * 1024, 100).parameters()) == 3_047_908


def test_head_computes_what_its_description_says():
    head = LLMmapHead(12, 3, SMALL).eval()
    x = torch.randn(5, 12)
    y = torch.cat([head.token.expand(5, -1, -1), torch.nn.functional.gelu(head.enter(x))[:, None]], 1)
    for block in head.blocks:
        for norm in (block.before_attention, block.before_dense):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
        calm = torch.stack([block.before_attention(y[:, t]) for t in range(2)], 1)
        q, k, v = (calm @ block.attention.in_proj_weight.T + block.attention.in_proj_bias).split(16, -1)
        heads = [
            torch.softmax(q[..., h] @ k[..., h].transpose(1, 2) / 8**0.5, -1) @ v[..., h]
            for h in (slice(0, 8), slice(8, 16))
        ]
        y = y + block.attention.out_proj(torch.cat(heads, -1))
        calm = torch.stack([block.before_dense(y[:, t]) for t in range(2)], 1)
        y = y + torch.nn.functional.gelu(block.dense(calm))
    torch.testing.assert_close(head(x), head.leave(y[:, 0]), rtol=1e-4, atol=1e-5)


def test_it_learns_from_responses_and_gives_normalised_posteriors():
    train, labels = pairs()
    test, truth = pairs(seed=1)
    model = fit_llmmap(train, labels, 4, seed=1, settings=SMALL)
    log_posterior = model.log_posterior(test, chunk=7)
    assert log_posterior.shape == (100, 4)
    assert log_posterior.dtype == np.float32
    np.testing.assert_allclose(np.exp(log_posterior).sum(1), 1, atol=1e-5)
    assert (log_posterior.argmax(1) == truth).mean() > 0.85
    np.testing.assert_allclose(log_posterior, model.log_posterior(test), atol=1e-5)


def test_same_seed_same_weights_and_the_callers_random_state_stays():
    train, labels = pairs()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    a = fit_llmmap(train, labels, 4, seed=7, settings=SMALL)
    torch.testing.assert_close(torch.rand(3), expected)
    b = fit_llmmap(train, labels, 4, seed=7, settings=SMALL)
    c = fit_llmmap(train, labels, 4, seed=8, settings=SMALL)
    np.testing.assert_array_equal(a.log_posterior(train), b.log_posterior(train))
    assert np.abs(a.log_posterior(train) - c.log_posterior(train)).max() > 1e-3
    assert a.parameters == sum(p.numel() for p in LLMmapHead(12, 4, SMALL).parameters())


def test_permuted_labels_teach_nothing():
    train, labels = pairs(each=60)
    test, truth = pairs(each=60, seed=1)
    shuffled = np.random.default_rng(0).permutation(labels)
    accuracy = (fit_llmmap(train, shuffled, 4, seed=1, settings=SMALL).log_posterior(test).argmax(1) == truth).mean()
    # The rows of a source are alike, so that chance moves by sources more than by rows.
    assert accuracy < 0.6


def test_no_batch_of_one_is_left_over():
    train, labels = pairs(classes=3, each=7)
    model = fit_llmmap(train, labels, 3, seed=1, settings=LLMmapSettings(8, 1, 2, epochs=1, batch=10))
    assert np.isfinite(model.log_posterior(train[:1])).all()
    with pytest.raises(ValueError, match="at least two"):
        fit_llmmap(train[:1], labels[:1], 3, seed=1, settings=SMALL)

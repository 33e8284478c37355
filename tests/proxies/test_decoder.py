"""The fused pass of Gemma 3 against transformers in float32, on small random weights and on hard real records."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from backend.corpus.release import read_jsonl_gz
from backend.errors import AtlasError
from backend.proxies.decoder import GemmaDecoder, LlamaDecoder
from backend.proxies.reader import Reader, Readout
from backend.proxies.registry import describe, installed, load_model, load_reader
from backend.spectral import dct_weights
from backend.traces import Trace
from tests.tiny_models import tiny_config, tiny_decoder

CPU = torch.device("cpu")
WIDTH, WINDOW = 60, 16
HARD = ((124, 474), (54, 112), (136, 48), (60, 317), (81, 478), (24, 2), (94, 136), (159, 286))
"""Source and prompt of records of Agent500 that change most when products are rounded."""


def gemma(**changes) -> torch.nn.Module:
    """Four blocks, the third of them global, with a scale of the scores that is not the one of head_dim."""
    config = tiny_config("gemma3")
    for name, value in {"query_pre_attn_scalar": 5, **changes}.items():
        setattr(config, name, value)
    torch.manual_seed(3)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model


def decoder(model: torch.nn.Module, dtype: torch.dtype = torch.float32, precise: int = 0) -> GemmaDecoder:
    return GemmaDecoder(model, dtype, CPU, compile_blocks=False, precise=precise)


@torch.inference_mode()
def hidden(model: torch.nn.Module, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return model(input_ids=ids, output_hidden_states=True).hidden_states


@pytest.fixture(scope="module")
def ids() -> torch.Tensor:
    return torch.randint(1, 400, (3, WIDTH), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "changes",
    [{}, {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"layer_types": ["full_attention"] * 4}],
    ids=["as-it-is", "one-kv-head", "four-kv-heads", "global-only"],
)
@torch.inference_mode()
def test_every_block_equals_transformers_with_windows_shorter_than_the_text(changes, ids):
    model = gemma(**changes)
    expected = hidden(model, ids)
    found = dict(decoder(model).walk(ids, 4))
    assert list(found) == [1, 2, 3, 4]
    for number, states in found.items():
        torch.testing.assert_close(states, expected[number], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shared", [1, WINDOW - 1, WINDOW, 40, WIDTH - 1])
@torch.inference_mode()
def test_a_shared_prefix_changes_nothing_on_either_side_of_the_window(shared, ids):
    model = gemma()
    ids = torch.cat([ids[:1, :shared].expand(3, -1), ids[:, shared:]], 1)
    expected = hidden(model, ids)
    fused, prefix = decoder(model), []
    for number, states in fused.walk(ids[:1, :shared], 4, keep=prefix):
        torch.testing.assert_close(states, expected[number][:1, :shared], rtol=1e-4, atol=1e-4)
    assert [k.shape for k, _ in prefix] == [(1, shared, 2, 8)] * 4
    for number, states in fused.walk(ids[:, shared:], 4, prefix):
        torch.testing.assert_close(states, expected[number][:, shared:], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_window_is_seen_to_the_token_and_not_beyond(ids):
    model = gemma(layer_types=["sliding_attention"] * 4)
    other = ids.clone()
    other[:, 10] = (other[:, 10] + 7) % 399 + 1
    (_, a), (_, b) = next(decoder(model).walk(ids, 1)), next(decoder(model).walk(other, 1))
    changed = (a - b).abs().amax((0, 2)) > 1e-6
    assert changed[10 : 10 + WINDOW].all()
    assert not changed[:10].any()
    assert not changed[10 + WINDOW :].any()


@torch.inference_mode()
def test_early_exit_stops_behind_the_wanted_block_and_without_the_final_norm(ids, monkeypatch):
    fused = decoder(gemma())
    whole = dict(fused.walk(ids, 4))
    counted, advance = [], fused._advance
    monkeypatch.setattr(fused, "_advance", lambda *a: counted.append(1) or advance(*a))
    part = dict(fused.walk(ids, 2))
    assert list(part) == [1, 2]
    assert len(counted) == 2
    torch.testing.assert_close(part[2], whole[2], rtol=0, atol=0)
    root = whole[4] / (1 + gemma().norm.weight)
    torch.testing.assert_close(root.pow(2).mean(-1), torch.ones(3, WIDTH), rtol=1e-3, atol=1e-3)


@torch.inference_mode()
def test_right_padding_is_out_of_sight(ids):
    fused = decoder(gemma())
    padded = torch.cat([ids, torch.zeros(3, 9, dtype=torch.long)], 1)
    for (_, a), (_, b) in zip(fused.walk(ids, 4), fused.walk(padded, 4), strict=True):
        torch.testing.assert_close(a, b[:, :WIDTH], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["gemma3", "llama"])
@torch.inference_mode()
def test_leading_blocks_in_float32_are_exact_and_later_ones_are_rounded(kind, ids):
    model = gemma() if kind == "gemma3" else tiny_decoder(kind)
    expected = hidden(model, ids)
    made = GemmaDecoder if kind == "gemma3" else LlamaDecoder
    mixed = made(model, torch.bfloat16, CPU, compile_blocks=False, precise=2)
    error = {n: (s - expected[n]).abs().max().item() for n, s in mixed.walk(ids, 4)}
    assert max(error[1], error[2]) < 1e-4
    assert 1e-3 < error[3] < 1
    prefix: list = []
    assert len(list(mixed.walk(ids[:1, :20], 4, keep=prefix))) == 4
    assert [k.dtype for k, _ in prefix] == [torch.float32] * 2 + [torch.bfloat16] * 2
    for number, states in mixed.walk(ids[:1, 20:], 2, prefix):
        torch.testing.assert_close(states, expected[number][:1, 20:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_type", "gemma2"),
        ("hidden_activation", "gelu"),
        ("attention_bias", True),
        ("attn_logit_softcapping", 50.0),
        ("use_bidirectional_attention", True),
        ("layer_types", ["chunked_attention"] * 4),
        ("sliding_window", None),
        ("rope_parameters", {k: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4} for k in
                             ("full_attention", "sliding_attention")}),
    ],
)  # fmt: skip
def test_only_what_is_computed_exactly_is_supported(name, value):
    config = tiny_config("gemma3")
    assert GemmaDecoder.supports(config)
    assert not LlamaDecoder.supports(config)
    object.__setattr__(config, name, value)
    assert not GemmaDecoder.supports(config)


@pytest.fixture(scope="module")
def hard(release) -> list[Trace]:
    labels, prompts = release.roster("165-way")["label"].tolist(), release.prompts("agent500")
    wanted = {labels[source]: prompts.iloc[prompt]["sample_id"] for source, prompt in HARD}
    out = []
    for label, sample in wanted.items():
        rows = read_jsonl_gz(release.data / "responses" / "agent500" / f"{label}.jsonl.gz")
        row = next(row for _, row in rows if row["sample_id"] == sample)
        out.append(Trace(row["prompt"], row["response"]))
    return out


@pytest.fixture(scope="module")
def gemma3() -> Reader:
    try:
        if installed(describe("gemma3-270m")) is None:
            pytest.skip("the weights of gemma3-270m are missing: python -m jobs proxies install gemma3-270m")
        return load_reader("gemma3-270m", "cpu", compile_blocks=False)
    except AtlasError as error:
        pytest.skip(f"gemma3-270m cannot be read: {error}")


@pytest.mark.release
@pytest.mark.proxy
@pytest.mark.slow
def test_the_hardest_real_records_keep_their_direction_in_all_blocks(hard, gemma3):
    assert gemma3.engine == "fused-precise7"
    model = load_model(describe("gemma3-270m"))[0].float()
    encoded = gemma3.encode(hard, "ur")
    found = gemma3.read(encoded, range(1, 19), Readout((None, 32)))
    worst = 1.0
    for i, e in enumerate(encoded):
        states = hidden(model, torch.tensor([e.ids]))
        for layer in range(1, 19):
            for name, stop in (("full", e.stop), ("t32", min(e.stop, e.start + 32))):
                span = states[layer][0, e.start : stop].double().numpy()
                expected = np.clip(dct_weights(len(span)) @ span, -65_504, 65_504).ravel()
                got = found[layer, name][i].astype(float)
                worst = min(worst, got @ expected / np.linalg.norm(got) / np.linalg.norm(expected))
    assert worst >= 0.9998

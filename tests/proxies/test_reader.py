"""Fingerprints against a reference that keeps every hidden state and asks SciPy for the transform."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.corpus.release import read_jsonl_gz
from backend.proxies import reader as reader_module
from backend.proxies.decoder import FusedDecoder
from backend.proxies.encoding import Encoded
from backend.proxies.reader import HALF_LIMIT, Reader, Readout, _batches, _common_prefix
from backend.proxies.registry import describe, load_model
from backend.traces import Trace
from tests.tiny_models import KINDS, tiny_decoder, tiny_encoder, tiny_tokenizer

TRACES = [
    Trace("How do I restart the queue?", "Certainly! First stop the service, then start it again."),
    Trace("How do I restart the queue?", "x"),
    Trace("Describe the backup.", "The sensor log and the price table. 1234 <b>naïve</b> — été 北京 🚀"),
    Trace("How do I restart the queue?", ""),
    Trace("Describe the backup.", "def value(index):\n    return buffer[index] + 1"),
    Trace("", "\n\n\nOne"),
]
FUSED = ("llama", "qwen2", "gemma3")
LIMITS = (None, 6, 1)


def transform(states: np.ndarray, modes: int) -> np.ndarray:
    """Length-normalised DCT-II of (T, d) states, modes flattened."""
    out = np.zeros((modes, states.shape[1]))
    found = scipy.fft.dct(states, type=2, axis=0, norm="ortho")[:modes] / math.sqrt(len(states))
    out[: len(found)] = found
    return out.ravel()


def naive(model, encoded: Encoded, layer: int, limit: int | None = None, modes: int = 2) -> np.ndarray:
    """One trace, one pass in float32, all hidden states."""
    cut = encoded.cut(limit)
    with torch.inference_mode():
        hidden = model(input_ids=torch.tensor([cut.ids]), output_hidden_states=True).hidden_states
    return transform(hidden[layer][0, cut.start : cut.stop].double().numpy(), modes)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(float), b.astype(float)
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def small_reader(kind: str = "llama", fused: bool = True, dtype: torch.dtype = torch.float32, **options) -> Reader:
    return Reader(tiny_decoder(kind), tiny_tokenizer(), dtype=dtype, fused=fused, compile_blocks=False, **options)


@pytest.fixture(scope="module")
def fused() -> Reader:
    return small_reader()


@pytest.fixture(scope="module")
def encoder() -> Reader:
    return Reader(tiny_encoder(), tiny_tokenizer(encoder=True), dtype=torch.float32, causal=False)


@pytest.mark.parametrize(
    ("kind", "fast"), [("llama", True), ("qwen2", True), ("gemma3", True), *[(kind, False) for kind in KINDS]]
)
def test_fingerprints_equal_the_naive_reference(kind, fast):
    reader, reference = small_reader(kind, fast), tiny_decoder(kind)
    assert (reader.engine == "fused") == fast
    encoded = reader.encode(TRACES, "ur")
    found = reader.read(encoded, [1, 2, 3, 4], Readout(LIMITS))
    for layer in (1, 2, 3, 4):
        for limit, name in zip(LIMITS, ("full", "t6", "t1"), strict=True):
            expected = np.array([naive(reference, e, layer, limit) for e in encoded])
            np.testing.assert_allclose(found[layer, name], expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_products_in_bfloat16_keep_the_direction_of_every_fingerprint(kind):
    fast = kind in FUSED
    exact, rounded = small_reader(kind, fast), small_reader(kind, fast, torch.bfloat16)
    encoded = exact.encode(TRACES, "ur")
    a, b = exact.read(encoded, [1, 4]), rounded.read(encoded, [1, 4])
    # Random decay rates of a linear attention amplify any rounding.
    least = 0.98 if kind == "qwen3_5" else 0.999
    assert min(cosine(x, y) for key in a for x, y in zip(a[key], b[key], strict=True)) > least


def test_last_block_is_taken_after_the_final_norm(fused):
    reference = tiny_decoder()
    encoded = fused.encode(TRACES[:1], "ur")
    with torch.inference_mode():
        last = reference(input_ids=torch.tensor([encoded[0].ids])).last_hidden_state
    expected = transform(last[0, encoded[0].start :].numpy(), 2)
    np.testing.assert_allclose(fused.read(encoded, [4])[4, "full"][0], expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("fast", [True, False])
def test_early_exit_gives_what_the_whole_pass_gives_and_computes_no_more(fast, monkeypatch):
    reader = small_reader("llama", fast)
    encoded = reader.encode(TRACES, "ur")
    whole = reader.read(encoded, [1, 2, 3, 4])
    counted = []
    if fast:
        step = reader._engine.step
        monkeypatch.setattr(reader._engine, "step", lambda *a, **k: counted.append(1) or step(*a, **k))
    else:
        for block in reader._engine.blocks:
            block.register_forward_pre_hook(lambda *_: counted.append(1))
    part = reader.read(encoded, [2])
    np.testing.assert_array_equal(part[2, "full"], whole[2, "full"])
    assert len(counted) % 2 == 0
    passes = len(counted) // 2
    counted.clear()
    reader.read(encoded, [2, 4])
    assert len(counted) == 4 * passes


def test_hooks_are_gone_after_a_read_and_after_an_early_exit():
    reader = small_reader("qwen3", fused=False)
    encoded = reader.encode(TRACES, "ur")
    reader.read(encoded, [1])
    reader.read(encoded, [4])
    assert not any(block._forward_hooks for block in reader._engine.blocks)


def test_truncations_out_of_one_pass_equal_reading_the_truncated_response(fused):
    encoded = fused.encode(TRACES, "ur")
    together = fused.read(encoded, [1, 3], Readout(LIMITS))
    for limit in LIMITS[1:]:
        apart = fused.read([e.cut(limit) for e in encoded], [1, 3])
        for layer in (1, 3):
            np.testing.assert_allclose(together[layer, f"t{limit}"], apart[layer, "full"], rtol=2e-3, atol=1e-3)


def test_shared_prefix_gives_the_same_fingerprints_and_is_used(fused, monkeypatch):
    encoded = fused.encode(TRACES, "ur")
    prefixes = []
    walk = FusedDecoder.walk

    def watched(self, ids, last, prefix=None, **options):
        prefixes.append(prefix[0][0].shape[1] if prefix else 0)
        return walk(self, ids, last, prefix, **options)

    monkeypatch.setattr(FusedDecoder, "walk", watched)
    monkeypatch.setattr(reader_module, "SHARE_FROM", 1_000_000)
    apart = fused.read(encoded, [1, 4], Readout(LIMITS, (4,)))
    assert not any(prefixes)
    monkeypatch.setattr(reader_module, "SHARE_FROM", 1)
    shared = fused.read(encoded, [1, 4], Readout(LIMITS, (4,)))
    assert any(prefixes)
    assert set(shared) == set(apart)
    for key, array in apart.items():
        np.testing.assert_allclose(shared[key], array, rtol=2e-3, atol=1e-3)


def test_a_trace_is_read_alike_alone_and_in_company(fused):
    encoded = fused.encode(TRACES, "ur")
    together = fused.read(encoded, [2, 4])
    for i, e in enumerate(encoded):
        alone = fused.read([e], [2, 4])
        for key, array in alone.items():
            np.testing.assert_allclose(array[0], together[key][i], rtol=2e-3, atol=1e-3)


def test_temporal_readout_holds_eight_modes_maximum_and_final_state(fused):
    reference = tiny_decoder()
    encoded = fused.encode(TRACES, "ur")
    found = fused.read(encoded, [2, 3], Readout((None,), temporal=(3,)))
    assert set(found) == {(2, "full"), (3, "full"), (3, "temporal")}
    for i, e in enumerate(encoded):
        with torch.inference_mode():
            hidden = reference(input_ids=torch.tensor([e.ids]), output_hidden_states=True).hidden_states
        states = hidden[3][0, e.start : e.stop].numpy()
        expected = np.concatenate([transform(states, 8), states.max(0), states[-1]])
        np.testing.assert_allclose(found[3, "temporal"][i], expected, rtol=2e-3, atol=2e-3)


def test_encoder_equals_the_naive_reference_with_a_pass_for_every_length(encoder):
    reference = tiny_encoder()
    encoded = encoder.encode(TRACES, "ur")
    found = encoder.read(encoded, [1, 2, 3], Readout(LIMITS))
    for layer in (1, 2, 3):
        for limit, name in zip(LIMITS, ("full", "t6", "t1"), strict=True):
            expected = np.array([naive(reference, e, layer, limit) for e in encoded])
            np.testing.assert_allclose(found[layer, name], expected, rtol=3e-3, atol=3e-3)


def test_encoder_sees_what_follows(encoder):
    encoded = encoder.encode(TRACES[:1], "ur")
    together = encoder.read(encoded, [2], Readout((None, 6)))
    with torch.inference_mode():
        hidden = tiny_encoder()(input_ids=torch.tensor([encoded[0].ids]), output_hidden_states=True).hidden_states[2]
    start = encoded[0].start
    sliced = transform(hidden[0, start : start + 6].numpy(), 2)
    assert np.abs(together[2, "t6"][0] - sliced).max() > 0.01


def test_encoder_cuts_texts_at_its_own_positions(encoder):
    assert encoder.max_tokens == 64
    encoded = encoder.encode([Trace("restart " * 100, "unseen")], "ur", max_tokens=1024)
    assert len(encoded[0].ids) == 64
    assert np.isfinite(encoder.read(encoded, [3])[3, "full"]).all()


def test_progress_counts_every_trace_once_and_every_token_that_is_read(fused, encoder):
    for reader, readout in ((fused, Readout(LIMITS)), (encoder, Readout((None, 6))), (encoder, Readout((6,)))):
        seen, encoded = Counter(), reader.encode(TRACES, "ur")
        reader.read(encoded, [1], readout, lambda traces, tokens, to=seen: to.update(traces=traces, tokens=tokens))
        passes = (None,) if reader.causal else readout.limits
        expected = sum(reader.tokens_run([one.cut(limit) for one in encoded]) for limit in passes)
        assert seen == {"traces": len(TRACES), "tokens": expected}


@pytest.mark.parametrize("fast", [True, False])
def test_states_beyond_float16_are_stored_as_its_largest_number(fast):
    model = tiny_decoder()
    with torch.no_grad():
        model.embed_tokens.weight.mul_(1e8)
    reader = Reader(model, tiny_tokenizer(), dtype=torch.float32, fused=fast, compile_blocks=False)
    found = reader.read(reader.encode(TRACES, "ur"), [1], Readout((None,), (1,)))
    for array in found.values():
        assert np.isfinite(array).all()
        assert np.abs(array.astype(float)).max() == HALF_LIMIT


@pytest.mark.parametrize("layers", [[], [0], [5], [1, 9]])
def test_blocks_that_do_not_exist_are_refused(fused, layers):
    with pytest.raises(ValueError, match=r"layers must lie in 1\.\.4"):
        fused.read(fused.encode(TRACES, "ur"), layers)


def test_no_traces_give_empty_arrays(fused):
    assert fused.read([], [2])[2, "full"].shape == (0, 64)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(1, 600))
def test_batches_hold_everything_once_within_the_budget(lengths, budget):
    encoded = [Encoded([0] * n, 0, 0) for n in lengths]
    batches = list(_batches(encoded, list(range(len(lengths))), 0, budget))
    assert sorted(i for b in batches for i in b) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.integers(0, 7)), min_size=1, max_size=5)
)
def test_common_prefix_is_shared_and_ends_before_every_response(members):
    encoded = [Encoded(ids, min(start, len(ids) - 1), 0) for ids, start in members]
    shared = _common_prefix(encoded)
    assert all(e.ids[:shared] == encoded[0].ids[:shared] for e in encoded)
    assert shared <= min(e.start for e in encoded)
    longer = shared + 1
    assert longer > min(e.start for e in encoded) or any(e.ids[:longer] != encoded[0].ids[:longer] for e in encoded)


@pytest.mark.release
@pytest.mark.proxy
def test_golden_eight_real_records_against_a_naive_float32_reference(release, smollm2):
    labels = release.roster("165-way")["label"].tolist()[:160:20]
    traces = []
    for i, label in enumerate(labels):
        rows = read_jsonl_gz(release.data / "responses" / "agent500" / f"{label}.jsonl.gz")
        _, row = next(itertools.islice(rows, 17 * i, None))
        traces.append(Trace(row["prompt"], row["response"]))
    model = load_model(describe("smollm2-135m"))[0].float()
    encoded = smollm2.encode(traces, "ur")
    found = smollm2.read(encoded, [1, 15, 30], Readout((None, 32)))
    worst = 1.0
    for i, e in enumerate(encoded):
        with torch.inference_mode():
            hidden = model(input_ids=torch.tensor([e.ids]), output_hidden_states=True).hidden_states
        for layer in (1, 15, 30):
            states = hidden[layer][0, e.start :].double().numpy()
            worst = min(worst, cosine(found[layer, "full"][i], transform(states, 2)))
            worst = min(worst, cosine(found[layer, "t32"][i], transform(states[:32], 2)))
    assert worst >= 0.9995

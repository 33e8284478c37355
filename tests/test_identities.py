"""Texts by which kept files are found: they are on disks, so no rename may change a letter of them."""

from __future__ import annotations

import json
from dataclasses import astuple, fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from backend.corpus.collection import Collected
from backend.enrolment.fit import _selected
from backend.errors import AtlasError
from backend.evaluations.readouts import WORD_SETTINGS as SERVED
from backend.evaluations.stages.baselines import method_of
from backend.evaluations.stages.readout_members import TUNED_SETTINGS as TUNED
from backend.evaluations.stages.readout_members import Plan, Scorer
from backend.fingerprints import FingerprintStore, StoreIdentity, StoreKey
from backend.methods.discriminant import DiscriminantBank
from backend.methods.ensemble import BANK_PARTS, WORD_PARTS
from backend.methods.fine_tuning import CLASSIFIER, ENCODER
from backend.methods.llmmap import LLMmapSettings
from backend.methods.network import NetworkSettings
from backend.methods.ngrams import CHARACTERS, GRAMS, WORDS, CodedGrams, counted
from backend.methods.probe import LinearProbe, LinearReadout, ProbeSettings
from backend.methods.sentence_encoder import CARDS, EmbeddingCache, EmbeddingKey, Recipe
from backend.proxies.registry import proxy_hash
from backend.service.uploads import Upload

IDENTITY = StoreIdentity(82500, 576, "bfb7", "b179", "fused-compiled-bfloat16-cpu", 1024, "offsets")
STORE = (
    "StoreIdentity(rows=82500, hidden_size=576, records='bfb7', proxy_hash='b179', "
    "engine='fused-compiled-bfloat16-cpu', max_tokens=1024, span='offsets')"
)
MANIFEST = """{
 "rows": 82500,
 "hidden_size": 576,
 "records": "bfb7",
 "proxy_hash": "b179",
 "engine": "fused-compiled-bfloat16-cpu",
 "max_tokens": 1024,
 "span": "offsets"
}"""
NETWORK = "NetworkSettings(hidden=512, epochs=14, batch=512, rate=0.001, decay=0.05, dropout=0.4, smoothing=0.05)"
SOFTMAX = "SoftmaxSettings(features=60000, epochs=4, batch=512, rate=0.05, decay=3e-06)"
WORD = f"GramKind(kind='word', lengths=(1, 2, 3), bits=22, settings={SOFTMAX})"
WORD_NGRAMS = (
    "NgramSettings(analyzer='word', shortest=1, longest=3, pattern='\\\\w+|[^\\\\w\\\\s]|\\\\n+', buckets=1048576, "
    "features=30000, c=30.0, iterations=300, tolerance=3e-05)"
)
CHARACTER_NGRAMS = (
    "NgramSettings(analyzer='char', shortest=3, longest=3, pattern=None, buckets=1048576, features=10000, c=30.0, "
    "iterations=300, tolerance=3e-05)"
)
LLMMAP = "LLMmapSettings(width=384, blocks=3, heads=4, epochs=6, batch=64, learning_rate=0.0001)"
PROBE = "ProbeSettings(steps=40, horizon=100, learning_rate=0.001, final_share=0.01, c=1.0)"
RECIPE = "Recipe(pooling='mean', normalise=True, max_tokens=256)"
FINETUNE = (
    "FinetuneSettings(kind='classifier', max_tokens=256, epochs=2, batch=32, learning_rate=6e-06, head_rate=6e-06, "
    "weight_decay=0.01, warmup=0.06, clip=1.0, autocast=False, checkpoint=250, bucket=1, dropout=None)"
)
FINETUNE_ENCODER = (
    "FinetuneSettings(kind='encoder', max_tokens=256, epochs=2, batch=64, learning_rate=1e-05, head_rate=0.001, "
    "weight_decay=0.01, warmup=0.06, clip=1.0, autocast=False, checkpoint=250, bucket=1, dropout=None)"
)
FINETUNE_TUNED = (
    "FinetuneSettings(kind='encoder', max_tokens=128, epochs=2, batch=32, learning_rate=0.0001, head_rate=0.002, "
    "weight_decay=0.01, warmup=0.06, clip=1.0, autocast=True, checkpoint=250, bucket=16, dropout=0.0)"
)
SPELLED: list[tuple[Any, str]] = [
    (IDENTITY, STORE),
    (NetworkSettings(), NETWORK),
    (GRAMS["word"], WORD),
    (GRAMS["char"], f"GramKind(kind='char', lengths=(2, 3, 4), bits=21, settings={SOFTMAX})"),
    (GRAMS["style"], f"GramKind(kind='style', lengths=(1, 2, 3, 4, 5), bits=22, settings={SOFTMAX}, halves=True)"),
    (SERVED, "SoftmaxSettings(features=10000, epochs=4, batch=512, rate=0.05, decay=3e-06)"),
    (WORDS, WORD_NGRAMS),
    (CHARACTERS, CHARACTER_NGRAMS),
    (LLMmapSettings(), LLMMAP),
    (ProbeSettings(), PROBE),
    (CARDS["minilm-l6"], RECIPE),
    (CLASSIFIER, FINETUNE),
    (ENCODER, FINETUNE_ENCODER),
    (replace(TUNED, autocast=True), FINETUNE_TUNED),
]


@pytest.mark.parametrize(("value", "text"), SPELLED, ids=lambda value: type(value).__name__)
def test_texts_of_today(value: Any, text: str) -> None:
    assert value.as_text() == text


@pytest.mark.parametrize("value", [value for value, _ in SPELLED], ids=lambda value: type(value).__name__)
def test_a_renamed_class_keeps_its_text(value: Any) -> None:
    renamed = type("Renamed", (type(value),), {})(*(getattr(value, field.name) for field in fields(value)))
    assert repr(renamed).startswith("Renamed(")
    assert renamed.as_text() == value.as_text()


@pytest.mark.parametrize("value", [value for value, _ in SPELLED], ids=lambda value: type(value).__name__)
def test_every_field_counts(value: Any) -> None:
    for field in fields(value):
        if not is_dataclass(getattr(value, field.name)):
            assert replace(value, **{field.name: "other"}).as_text() != value.as_text(), field.name


def test_a_manifest_of_today_is_found_and_written(tmp_path: Path) -> None:
    store = FingerprintStore(StoreKey("agent500", "smollm2-135m", "ur"), tmp_path)
    path = tmp_path / "fingerprints/agent500/smollm2-135m/ur/manifest.json"
    with store.writing(IDENTITY):
        assert path.read_text("utf-8") == MANIFEST
    assert store.identity() == IDENTITY
    store.agree({"engine": "fused-compiled-bfloat16-cpu", "rows": 82500})
    with pytest.raises(AtlasError, match=r"\(span differ\)"):
        store.agree({"span": "boundary"})


@pytest.mark.parametrize("text", ["[]", "{}", MANIFEST.replace('"span"', '"stretch"'), MANIFEST[:-2] + ', "more": 1}'])
def test_a_damaged_manifest(tmp_path: Path, text: str) -> None:
    store = FingerprintStore(StoreKey("agent500", "smollm2-135m", "ur"), tmp_path)
    store.path.mkdir(parents=True)
    (store.path / "manifest.json").write_text(text, "utf-8")
    with pytest.raises(AtlasError, match=r"manifest\.json is damaged"):
        store.identity()


def test_a_layer_scan_of_today_is_found(tmp_path: Path) -> None:
    scores = [
        {"outer_fold": outer, "inner_fold": inner, "layer": 7, "accuracy": 0.5}
        for outer in range(5)
        for inner in range(5)
        if inner != outer
    ]
    line = json.dumps({"identity": STORE, "layer": 7, "scores": scores})
    (tmp_path / "scan.jsonl").write_text(line + "\n", "utf-8")
    assert set(_selected(tmp_path, IDENTITY.as_text(), "again").values()) == {7}
    with pytest.raises(AtlasError, match="no layer scan of the present fingerprints"):
        _selected(tmp_path, replace(IDENTITY, records="other").as_text(), "again")


def test_members_scores_of_today_are_found(tmp_path: Path) -> None:
    store = FingerprintStore(StoreKey("agent500", "smollm2-135m", "ur"), tmp_path)
    with store.writing(IDENTITY):
        pass
    rows: Any = SimpleNamespace(store=store, families=["Qwen", "Llama"])
    blocks = {"smollm2-135m": (9, 18)}
    plan = Plan(blocks, ("word",), network=NetworkSettings(), tuned="minilm-l6", solved=("regression", "experts"))
    material: Any = None
    scorer = Scorer({"smollm2-135m": rows}, {"smollm2-135m": rows}, material, plan, tmp_path, '["hash", "12-way", 20]')
    default, encoder = proxy_hash("smollm2-135m"), proxy_hash("minilm-l6")
    expected: dict[tuple[str, str], list[object]] = {
        ("smollm2-135m@clean", "clean"): ["ur", STORE, [9, 18], 0.1],
        ("smollm2-135m@clean", "math100"): ["ur", STORE, STORE, [9, 18], 0.1],
        ("smollm2-135m@network", "t64"): ["ur", STORE, [9, 18], NETWORK],
        ("smollm2-135m@regression", "clean"): ["ur", STORE, [9, 18], [0.1, 0.01, []]],
        ("smollm2-135m@experts", "clean"): ["ur", STORE, [9, 18], [0.1, 0.01, ["Qwen", "Llama"]]],
        ("word@pooled", "clean"): [WORD, default],
    }
    for (member, condition), own in expected.items():
        path = scorer._path(condition, member)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".json").write_text(json.dumps(['["hash", "12-way", 20]', own]), "utf-8")
        assert scorer._done(condition, member), (member, condition)
    tuned = json.loads(scorer._identity("tuned-minilm-l6@pooled"))[1]
    own_text = FINETUNE_TUNED.replace("autocast=True", f"autocast={'autocast=True' in tuned[0]}")
    assert tuned == [own_text, encoder, default]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("random", "uniform on the simplex"),
        ("ngram-word", f"{WORD_NGRAMS}, 8 steps"),
        ("ngram-char", f"{CHARACTER_NGRAMS}, 8 steps"),
        ("llmmap", f"{LLMMAP}, 650 characters, {RECIPE}"),
        ("dna", f"{PROBE}, {RECIPE}"),
        ("encoder", f"{FINETUNE_ENCODER}, {RECIPE}"),
        ("deberta", f"microsoft/deberta-v3-large {FINETUNE}"),
    ],
)
def test_settings_of_baselines_of_today(method: str, settings: str) -> None:
    (made,) = method_of(method, ["ur"], None if method == "deberta" else "minilm-l6")
    assert made.settings.replace("autocast=True", "autocast=False") == settings


def test_embeddings_of_today_are_found(tmp_path: Path) -> None:
    encoder: Any = SimpleNamespace(
        name="minilm-l6", proxy=SimpleNamespace(key="minilm-l6"), recipe=Recipe("mean", True, 256),
        dtype=torch.float32, width=384,
    )  # fmt: skip
    manifest = {
        "benchmark": "agent500", "panel": "ur.clean", "texts": "hash", "rows": 2, "pooling": "mean", "normalise": True,
        "max_tokens": 256, "encoder": proxy_hash("minilm-l6"), "dtype": "torch.float32", "width": 384,
    }  # fmt: skip
    folder = tmp_path / "embeddings/minilm-l6/agent500/ur.clean"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    np.save(folder / "embeddings.npy", np.full((2, 384), 0.25, np.float16))
    np.save(folder / "done.npy", np.ones(2, np.uint8))
    found = EmbeddingCache(encoder, EmbeddingKey("agent500", "ur.clean", "hash", 2), tmp_path)
    np.testing.assert_array_equal(found.take(np.arange(2)), np.full((2, 384), 0.25, np.float32))


def test_names_of_arrays_in_kept_models() -> None:
    assert [field.name for field in fields(CodedGrams)] == [*WORD_PARTS] == ["columns", "idf", "codes", "steps", "bias"]
    parts = ["mean", "scale", "codes", "steps", "weight", "bias", "shares"]
    assert [field.name for field in fields(DiscriminantBank)] == [*BANK_PARTS] == parts
    probe = LinearProbe(
        np.zeros(2, np.float32), np.ones(2, np.float32), np.eye(2, dtype=np.float32), np.zeros(2, np.float32)
    )
    assert list(probe.to_arrays()) == ["mean", "scale", "weight", "bias"]
    assert list(LinearReadout(*astuple(probe)[1:]).to_arrays()) == ["centre", "weight", "bias"]
    pattern = "\\w+|[^\\w\\s]|\\n+"
    assert counted("ngram-word") == {
        "analyzer": "word", "shortest": 1, "longest": 3, "pattern": pattern, "buckets": 1048576,
    }  # fmt: skip


def test_names_in_lines_of_collected_responses_and_of_uploads() -> None:
    """Attributes are written as they are called: one that is renamed needs its name of today in the file."""
    names = "source sample_id prompt response model weights_sha256 endpoint system template settings seed "
    names += "finish_reason prompt_tokens response_tokens engine timestamp software"
    assert [field.name for field in fields(Collected)] == names.split()
    assert [field.name for field in fields(Upload)] == ["key", "name", "size", "enrolment", "label", "of_bytes"]

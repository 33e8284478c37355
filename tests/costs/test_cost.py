"""Parameter counts against the paper's table, timing, and the stage on an invented release."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

from backend.corpus.release import Release
from backend.corpus.roster_rows import write_release_sources
from backend.costs import paths as audit_paths
from backend.costs import stage as cost
from backend.costs.paths import AuditPath, audit_parameters, cost_frame, linear_parameters, measure, timed
from backend.errors import AtlasError
from backend.evaluations.artifacts import artifact_folder, keep
from backend.evaluations.readouts import WORD_SETTINGS as LIVE_WORDS
from backend.evaluations.stages import EvaluateOptions, attribution
from backend.evaluations.stages.readout_members import Plan, fit_seconds, member_folder
from backend.evaluations.stages.roster_run import MeasuredReader
from backend.methods.network import NetworkSettings
from backend.methods.ngrams import GRAMS
from backend.store.database import open_work
from backend.store.writers import replace_rows, write_reader
from backend.traces import Trace
from tests.evaluations.test_stress import write_store
from tests.fake_release import fake_release
from tests.tiny_models import save_tiny, tiny_decoder, tiny_encoder, tiny_tokenizer

TRACES = [Trace(f"Question {i}?", f"Answer number {i}, in a few words. " * (1 + i % 3)) for i in range(8)]


def test_trainable_parameters_are_those_of_the_paper():
    assert linear_parameters(2 * 4096, 100) == 819_300
    assert linear_parameters(2 * 3840, 100) == 768_100
    assert linear_parameters(2 * 5120, 100) == 1_024_100


def test_audit_parameters_are_those_of_the_paper():
    # What lies behind the second block does not count, so three blocks stand for all of them.
    shape = {"hidden_size": 4096, "num_hidden_layers": 3, "num_attention_heads": 32, "num_key_value_heads": 8}
    llama = transformers.LlamaConfig(**shape, vocab_size=128_256, intermediate_size=14_336)
    qwen = transformers.Qwen3Config(**shape, vocab_size=151_936, intermediate_size=12_288, head_dim=128)
    with torch.device("meta"):
        assert audit_parameters(transformers.AutoModel.from_config(llama), 3, 2) == 961_560_576
        assert audit_parameters(transformers.AutoModel.from_config(qwen), 3, 2) == 1_008_222_720


def test_audit_parameters_grow_block_by_block():
    model = tiny_decoder()
    sizes = [audit_parameters(model, 4, layer) for layer in (1, 2, 3, 4)]
    block = sum(p.numel() for p in model.layers[0].parameters())
    assert np.diff(sizes).tolist() == [block] * 3
    assert sizes[0] == 400 * 32 + block
    encoder = tiny_encoder()
    assert audit_parameters(encoder, 3, 3) == sum(p.numel() for p in encoder.parameters())
    for depth, layer in ((5, 1), (4, 5), (4, 0)):
        with pytest.raises(ValueError, match="no block"):
            audit_parameters(model, depth, layer)


def test_timing_leaves_the_warming_run_out(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(audit_paths, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    calls = []
    timing = timed(lambda: calls.append(1))
    assert timing.seconds == (3.0, 1.0, 2.0)
    assert timing.median == 2.0
    assert len(calls) == 4


def test_the_peak_of_memory_is_seen_though_it_is_given_back():
    # In a process of its own, as every path: what other tests have left behind may be given back at any time.
    told = """
import time
import numpy as np
from backend.costs.paths import timed
print(timed(lambda: None).peak_bytes, timed(lambda: (np.ones(25_000_000), time.sleep(0.05))).peak_bytes)
"""
    run = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    before, peak = map(int, run.stdout.split())
    assert before + 100e6 < peak < before + 600e6


def test_cost_frame_has_units_and_the_paper_s_order():
    frame = cost_frame({"latency_ms": 3.5, "trainable_parameters": 10}, "a machine")
    assert frame.to_dict("list") == {
        "measure": ["trainable_parameters", "latency_ms"],
        "value": [10.0, 3.5],
        "unit": ["parameters", "ms"],
        "hardware": ["a machine", "a machine"],
    }
    with pytest.raises(ValueError, match="price"):
        cost_frame({"price": 1.0}, "a machine")


def test_audit_path_of_the_paper_s_readout(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    folder = save_tiny(tmp_path / "tiny")
    got = measure(AuditPath("reader-paper", str(folder), "ur", 7, {str(folder): (2,)}), TRACES)
    model = tiny_decoder()
    assert got["audit_parameters"] == audit_parameters(model, 4, 2) + linear_parameters(64, 7)
    assert got["latency_ms"] > 0
    assert got["peak_memory_gb"] > 0.05
    (score,) = audit_paths._parts(AuditPath("reader-paper", str(folder), "r", 7, {str(folder): (2,)}), TRACES)
    np.testing.assert_allclose(score(TRACES), np.log(1 / 7), rtol=1e-5)


@pytest.mark.parametrize(
    ("method", "read", "trained"),
    [
        ("reader-dc", 1, linear_parameters(32, 7)),
        ("reader-ac", 1, linear_parameters(32, 7)),
        ("dct-q4", 4, linear_parameters(128, 7)),
        ("temporal-max", 1, linear_parameters(32, 7)),
        ("temporal-mean-final", 2, linear_parameters(64, 7)),
        ("mixture-2", 8, linear_parameters(64, 7) + 2 * 8),
        ("pca-64", 2, linear_parameters(64, 7)),
        ("positions-16", 16, linear_parameters(32, 7)),
        ("positions-fisher", 16, linear_parameters(32, 7)),
        ("positions-64", 1, linear_parameters(32, 7)),
    ],
)
def test_audit_path_of_every_form_reads_what_its_head_asks_for(tmp_path, monkeypatch, method, read, trained):
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    folder = str(save_tiny(tmp_path / "tiny"))
    path = AuditPath(method, folder, "ur", 7, {folder: (3,)})
    (score,) = audit_paths._parts(path, TRACES)
    np.testing.assert_allclose(score(TRACES), np.log(1 / 7), rtol=1e-5)
    got = measure(path, TRACES)
    assert got["audit_parameters"] == audit_parameters(tiny_decoder(), 4, 3) + linear_parameters(32 * read, 7)
    assert got["trainable_parameters"] == trained


def test_audit_path_of_live_readouts_is_read_block_by_block_and_word_by_word(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    folder = str(save_tiny(tmp_path / "tiny"))
    path = AuditPath("lda-live", folder, "ur", 7, {folder: (1, 3)})
    (score,) = audit_paths._parts(path, TRACES)
    np.testing.assert_allclose(score(TRACES), np.log(1 / 7), rtol=1e-5)
    got = measure(path, TRACES)
    # Two members, and what each counts in ten cells.
    bank = 2 * linear_parameters(2 * 64, 7) + 2 * 10
    assert got["trainable_parameters"] == bank
    assert got["audit_parameters"] == audit_parameters(tiny_decoder(), 4, 3) + bank
    worded = measure(replace(path, method="fused-live"), TRACES)
    assert worded["trainable_parameters"] == bank + linear_parameters(LIVE_WORDS.features, 7) + 10


def test_audit_path_of_a_stack_runs_every_proxy_and_every_text_once(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    first, second = str(save_tiny(tmp_path / "first")), str(save_tiny(tmp_path / "second"))
    members = (f"{first}@clean", f"{first}@network", f"{second}@t32", "word@pooled")
    path = AuditPath("fused", f"{first}+{second}", "ur", 7, {first: (1, 3), second: (2,)}, members)
    (score,) = audit_paths._parts(path, TRACES)
    np.testing.assert_allclose(score(TRACES), np.log(1 / 7), rtol=1e-5)
    got = measure(path, TRACES)
    units = NetworkSettings().hidden
    words = linear_parameters(GRAMS["word"].settings.features, 7)
    network = linear_parameters(2 * 64, units) + linear_parameters(units, 7)
    heads = linear_parameters(2 * 64, 7) + network + linear_parameters(64, 7) + words + 4 * 10
    assert got["trainable_parameters"] == heads
    assert got["audit_parameters"] == heads + sum(audit_parameters(tiny_decoder(), 4, layer) for layer in (3, 2))


def test_audit_path_of_what_reads_text_alone_has_an_encoder_and_ngrams(tmp_path):
    folder = str(tmp_path / "tiny")
    tiny_encoder().save_pretrained(folder)
    tiny_tokenizer(encoder=True).save_pretrained(folder)
    path = AuditPath("fused-text", None, None, 5, members=(f"tuned-{folder}@pooled", "char@pooled"))
    short = [Trace(trace.prompt, trace.response[:30]) for trace in TRACES]
    encoder, grams = audit_paths._parts(path, short)
    assert encoder(short).shape == (8, 5)
    np.testing.assert_allclose(grams(short), np.log(1 / 5), rtol=1e-5)
    got = measure(path, short)
    chars = linear_parameters(GRAMS["char"].settings.features, 5)
    weights = sum(p.numel() for p in tiny_encoder().parameters())
    assert got["audit_parameters"] == got["trainable_parameters"] > chars + weights


@pytest.mark.parametrize("method", ["ngram-word", "ngram-char"])
def test_audit_path_of_ngrams_looks_up_every_ngram(method):
    (score,) = audit_paths._parts(AuditPath(method, None, None, 5), TRACES)
    np.testing.assert_allclose(score(TRACES), np.log(1 / 5), rtol=1e-5)
    assert set(measure(AuditPath(method, None, None, 5), TRACES)) == {"latency_ms", "peak_memory_gb"}


def test_audit_path_of_guessing_draws_for_every_response():
    path = AuditPath("random", None, None, 5)
    (score,) = audit_paths._parts(path, TRACES)
    np.testing.assert_allclose(np.exp(score(TRACES)).sum(1), 1, rtol=1e-5)
    assert set(measure(path, TRACES)) == {"latency_ms", "peak_memory_gb"}


def test_sampled_records_repeat_neither_source_nor_prompt_before_they_must(tmp_path):
    release = Release(fake_release(tmp_path, prompts=9, sources=6))
    records = release.records("agent500")
    place = {id(trace): row for row, trace in enumerate(records.traces)}
    assert len(place) == 54
    taken = cost.sample(release, 4, count=8)
    rows = [records.traces.index(trace) for trace in taken]
    assert [row // 9 for row in rows] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [row % 9 for row in rows] == list(range(8))
    assert len(cost.sample(release, 4)) == 36


def test_stage_measures_the_readout_and_takes_over_what_a_baseline_noted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cost, "in_fresh_process", measure)
    release = Release(fake_release(tmp_path / "release", prompts=25))
    write_store(release, "agent500", {"full": 2.0})
    asked = EvaluateOptions("invented", ["ur"], ["165-way"])
    with open_work(tmp_path / "work.duckdb") as connection:
        write_release_sources(connection, release)
        attribution.run(connection, release, asked)
        folder = artifact_folder("ngram-word", None, None, "165-way", 25)
        keep(folder / "log_posteriors.npy", np.zeros((150, 6), dtype=np.float32))
        notes = [{"fit_seconds": s, "trainable_parameters": 70, "audit_parameters": 71} for s in (1, 9, 2, 3, 4)]
        (folder / "finished.json").write_text(json.dumps({"identity": "", "folds": notes}), "utf-8")
        for method, proxy, view in (
            *(("ngram-word", None, None), ("without-notes", None, None)),
            *((method, "invented", "ur") for method in ("reader-dc", "temporal-max")),
        ):
            reader = write_reader(connection, method=method, name=method, proxy=proxy, view=view)
            row = {"k": 1, "reduction": "pooled", "metric": "accuracy", "value": 0.5, "n": 9}
            key = {"reader": reader, "roster": "165-way", "benchmark": "agent500", "condition": "clean"}
            replace_rows(connection, "attribution_metrics", pd.DataFrame([row]), key, "build")
            if proxy:
                block, where = pd.DataFrame([{"layer": 2}]), {"reader": reader, "roster": "165-way"}
                replace_rows(connection, "layer_selection", block, where, "build")
        cost.run(connection, release, asked)

        rows = connection.execute("SELECT reader, measure, value, unit FROM costs").fetchall()
        held = {(reader, name): value for reader, name, value, _ in rows}
        ours = "reader-paper/invented/ur"
        assert held[ours, "trainable_parameters"] == 7 * 6
        assert held[ours, "fit_seconds"] > 0
        assert held[ours, "selection_seconds"] > 0
        # The invented proxy has no weights to run, which is said and leaves the rest standing.
        assert (ours, "latency_ms") not in held
        assert "latency is skipped" in capsys.readouterr().out
        assert held["ngram-word", "fit_seconds"] == 3
        assert held["ngram-word", "trainable_parameters"] == 70
        assert held["ngram-word", "audit_parameters"] == 71
        assert held["ngram-word", "latency_ms"] > 0
        assert held["ngram-word", "peak_memory_gb"] > 0.05
        # A control is fitted where its arrays are; those of temporal forms were not read.
        assert held["reader-dc/invented/ur", "fit_seconds"] > 0
        assert {reader for reader, *_ in rows} == {ours, "ngram-word", "reader-dc/invented/ur"}
        assert {name: unit for _, name, _, unit in rows}["peak_memory_gb"] == "GB"
        details = connection.execute("SELECT details FROM builds WHERE stage = 'cost' ORDER BY started_at").fetchall()
        assert json.loads(details[1][0])["layer"] in (1, 2)
        assert "invented" in json.loads(details[1][0])["latency"]

        def measured():
            made = connection.execute("SELECT build_id, reader FROM costs").fetchall()
            return {reader: build for build, reader in made}

        before = measured()
        cost.run(connection, release, asked)
        after = measured()
        assert after["ngram-word"] == before["ngram-word"]
        assert after[ours] != before[ours]  # its latency is still missing
        assert "ngram-word on 165-way: measured before" in capsys.readouterr().out
        cost.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("ngram-word",)))
        assert measured()["ngram-word"] != before["ngram-word"]
        (folder / "finished.json").write_text(json.dumps({"identity": "", "folds": notes[1:]}), "utf-8")
        again = measured()["ngram-word"]
        cost.run(connection, release, asked)
        assert measured()["ngram-word"] != again  # it was fitted anew

        shutil.rmtree(tmp_path / "cache" / "fingerprints")
        capsys.readouterr()
        before = measured()
        cost.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("reader-paper",)))
        assert measured() == before
        assert f"{ours} on 165-way: stays as it was measured" in capsys.readouterr().out
        connection.execute("DELETE FROM costs WHERE reader = ?", [ours])
        monkeypatch.setattr(cost, "in_fresh_process", lambda path, records: {"latency_ms": 1.0})
        cost.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("reader-paper",)))
        rows = connection.execute("SELECT measure, value FROM costs WHERE reader = ?", [ours]).fetchall()
        assert rows == [("latency_ms", 1.0)]

        # Where fingerprints are elsewhere a probe is fitted to random numbers; its latency stands as it was measured.
        monkeypatch.setattr(cost, "describe", lambda name: SimpleNamespace(hidden_size=3))
        monkeypatch.setattr(cost, "in_fresh_process", lambda path, records: {"latency_ms": 2.0})
        cost.run(connection, release, asked)
        told = connection.execute(
            "SELECT reader, measure, value, details FROM costs JOIN builds USING (build_id) WHERE reader LIKE '%/ur'"
        ).fetchall()
        fits = {reader: json.loads(details).get("fit") for reader, name, _, details in told if name == "fit_seconds"}
        assert fits[ours] == fits["temporal-max/invented/ur"] == cost.RANDOM
        latencies = {reader: value for reader, name, value, _ in told if name == "latency_ms"}
        assert (latencies[ours], latencies["temporal-max/invented/ur"]) == (1.0, 2.0)
        before = measured()
        cost.run(connection, release, asked)
        assert measured() == before


def test_random_rows_are_as_many_and_as_wide_as_fingerprints(monkeypatch):
    monkeypatch.setattr(cost, "DRAWN", 3)
    rows = cost.random_rows(7, 5)
    assert rows.shape == (7, 5) and rows.dtype == np.float16 and len(np.unique(rows, axis=0)) == 7
    assert abs(float(cost.random_rows(2000, 5).std()) - 1) < 0.05


def test_the_fit_of_a_stack_is_that_of_its_members_of_one_fold(tmp_path):
    plan = Plan({"small": (3,)}, ("word",))
    names = [*plan.members("small"), *plan.members("word")]
    for name in names:
        assert fit_seconds(tmp_path, plan, names) is None
        folder = member_folder(tmp_path, plan, name) / "models"
        folder.mkdir(parents=True)
        (folder / "took.json").write_text(json.dumps({"seconds": 30.0, "models": 10, "a_fold": 3}), "utf-8")
    assert fit_seconds(tmp_path, plan, names) == pytest.approx(9.0 * len(names))
    assert len({member_folder(tmp_path, plan, name) for name in names}) == len(names)
    assert fit_seconds(tmp_path, replace(plan, view="r"), names) is None


def test_paths_of_stacks_are_those_of_the_asked_members(tmp_path):
    def path_of(method, proxy="big", view="ur", limit=None):
        reader = MeasuredReader(method, method, proxy, view, tmp_path)
        asked = EvaluateOptions("big", ["ur"], ["100-way"], limit=limit, members="big:1+2+9,small:3,network,word")
        with open_work(tmp_path / "work.duckdb") as connection:
            return cost.path_of(connection, reader, "100-way", 5, asked)

    fused = path_of("fused", "big+small")
    assert fused.blocks == {"big": (1, 2, 9), "small": (3,)}
    assert fused.members[-1] == "word@pooled" and len(fused.members) == 9
    assert path_of("states", "small").blocks == {"small": (3,)}
    assert path_of("states", "small").members == ("small@clean", "small@t64", "small@t32", "small@network")
    words = path_of("ngram-word-lengths", None, None)
    assert (words.blocks, words.members) == ({}, ("word@pooled",))
    assert path_of("fused-live").blocks == {"big": (1, 2, 9)}
    assert path_of("fused-live", "other") is None
    assert path_of("fused", "big") is None  # another stack
    assert path_of("states", "small", "r") is None
    assert path_of("reader-dc", "small") is None  # another proxy is asked for
    assert path_of("dna", "encoder", "r") is None  # nothing is noted of its fits
    assert path_of("reader-dc", limit=20) is None
    with pytest.raises(AtlasError, match="No block is selected"):
        path_of("reader-dc")


@pytest.mark.slow
def test_a_fresh_process_brings_measures_and_problems_back():
    got = cost.in_fresh_process(AuditPath("ngram-word", None, None, 5), TRACES)
    assert got["peak_memory_gb"] > 0.05
    with pytest.raises(AtlasError, match="no-such-method") as told:
        cost.in_fresh_process(AuditPath("no-such-method", None, None, 5), TRACES)
    assert told.value.remedy == "Measure its cost where it is fitted"


@pytest.mark.slow
@pytest.mark.proxy
def test_audit_path_of_the_real_proxy(smollm2, monkeypatch):
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    got = measure(AuditPath("reader-paper", "smollm2-135m", "ur", 100, {"smollm2-135m": (9,)}), TRACES)
    # 49,152 tokens of width 576, nine blocks of 3,540,096 and a head of 1,153 x 100.
    assert got["audit_parameters"] == 49_152 * 576 + 9 * 3_540_096 + 115_300
    assert got["latency_ms"] > 0

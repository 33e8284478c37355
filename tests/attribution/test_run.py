"""Live attribution with tiny proxies: enrolment files, batches, cancelling, token evidence, report and verification."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import backend.attribution.scoring
from backend.attribution import report as landing
from backend.attribution.decision import find, fitted_statistics_of
from backend.attribution.drift_report import compare, standardised
from backend.attribution.report import START, digest, encoded, log_posteriors_of, next_step, write_csv, write_json
from backend.attribution.report_page import write_html
from backend.attribution.scoring import BATCHES, Attributor, Progress, cells_of_traces
from backend.attribution.token_evidence import split_log_odds, token_evidence
from backend.attribution.verify import alterations, broken_step, differences, read_report
from backend.enrolment.catalogue import Ecosystems, find_enrolment
from backend.enrolment.enrolment import Enrolment, prompt_table
from backend.enrolment.files import enrolments, load_enrolment, save_enrolment
from backend.enrolment.fit import Sample, attached, enrolment_of_traces
from backend.errors import AtlasError
from backend.evaluations.corpus import Corpus
from backend.inference.domain_shift import fit_domain
from backend.inference.sequential_stop import StopRule
from backend.methods.ensemble import Head
from backend.methods.probe import LinearProbe
from backend.proxies.reader import Reader
from backend.proxies.registry import proxy_hash
from backend.spectral import dct_weights
from backend.traces import Trace
from jobs.__main__ import main
from tests.damaged_enrolments import refuses_damage
from tests.shipped_samples import some_samples
from tests.tiny_models import tiny_decoder, tiny_encoder, tiny_tokenizer

PROMPTS = [f"How do I restart queue {i}?" for i in range(12)]
STYLES = {
    "plain": "First stop the service {i}, then start it again.",
    "shout": "STOP THE SERVICE {i} AND START IT AGAIN! 🚀 1234",
    "code": "```python\nqueue[{i}].restart()\n```\n\n\nprint('été')",
}


def labelled(prompts: list[str] = PROMPTS) -> tuple[list[Trace], list[str]]:
    pairs = [(Trace(p, text.format(i=i)), s) for s, text in STYLES.items() for i, p in enumerate(prompts)]
    return [trace for trace, _ in pairs], [label for _, label in pairs]


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)


@pytest.fixture(scope="module")
def enrolment(reader: Reader) -> Enrolment:
    traces, labels = labelled()
    return enrolment_of_traces(
        traces, labels, reader, name="tiny", proxy="tiny", weights_hash="f" * 64, view="ur", layer=2,
        families={"plain": "words", "shout": "words"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def banked(reader: Reader) -> Enrolment:
    """Discriminants over two blocks, placed at the first."""
    return bank(reader)


def bank(reader: Reader) -> Enrolment:
    traces, labels = labelled()
    return enrolment_of_traces(
        traces, labels, reader, name="banked", proxy="tiny", weights_hash="f" * 64, view="ur", layer=1, blocks=(1, 2)
    )


def with_block(enrolment: Enrolment, block: str, d: int) -> Enrolment:
    """The same enrolment with a probe on part of the fingerprint."""
    columns = {"dc": slice(0, d), "ac": slice(d, 2 * d), "dc-ac": slice(0, 2 * d)}[block]
    heads = []
    for head in enrolment.heads:
        p = head.probe
        heads.append(
            replace(head, probe=LinearProbe(p.mean[columns], p.scale[columns], p.weight[columns], p.bias + 0.25))
        )
    return replace(enrolment, block=block, heads=tuple(heads))


# Enrolments


def test_an_enrolment_survives_its_file(enrolment: Enrolment, tmp_path: Path) -> None:
    path = tmp_path / "enrolments" / "tiny.npz"
    kept = save_enrolment(enrolment, path)
    again = load_enrolment(path)
    assert again.sha256 == kept.sha256 == enrolment.sha256
    assert again.sources == ("code", "plain", "shout")
    assert again.families == ("code", "words", "words")
    assert [head.fold for head in again.heads] == [0, 1, 2, 3, 4]
    assert again.facts["records"] == 36
    assert {f"calibration.{n}" for n in ("budgets", "scale", "bias", "groups")} < set(again.attachments)
    assert "unknown.nulls" in again.attachments
    assert list(enrolments(tmp_path)) == ["tiny"]
    save_enrolment(replace(enrolment, name="again", attachments={}), tmp_path / "enrolments" / "again.npz")
    assert find_enrolment("again", None, tmp_path).name == "again"
    preferred = Ecosystems(tmp_path).all()[0].name  # what the page and the API take
    assert find_enrolment(None, "shout", tmp_path).name == find_enrolment(None, None, tmp_path).name == preferred
    with pytest.raises(AtlasError, match="No ecosystem knows"):
        find_enrolment(None, "zz", tmp_path)
    with pytest.raises(AtlasError, match="There is no enrolment"):
        find_enrolment("zz", None, tmp_path)
    assert not any(PROMPTS[0].encode() in file.read_bytes() for file in tmp_path.rglob("*.npz"))


def test_a_bank_survives_its_file(banked: Enrolment, tmp_path: Path) -> None:
    kept = save_enrolment(banked, tmp_path / "banked.npz")
    again = load_enrolment(tmp_path / "banked.npz")
    assert again.sha256 == kept.sha256 == banked.sha256
    assert (again.reader, again.layers, again.landing) == ("lda-live/tiny/ur", [1, 2], 1)
    assert [(head.layers, head.fold) for head in again.heads] == [((1, 2), fold) for fold in range(5)]
    assert again.hidden_size == banked.hidden_size
    assert (again.place, again.place_reader) == (1, "reader-paper/tiny/ur")
    assert again.attachments["signatures.vectors"].shape == (3, 2 * again.hidden_size)
    assert replace(banked, landing=2).sha256 != banked.sha256


def test_formats_that_are_not_known_are_refused_in_words(
    enrolment: Enrolment, banked: Enrolment, tmp_path: Path
) -> None:
    for one, number in ((enrolment, 1), (banked, 2)):
        path = tmp_path / f"{one.name}.npz"
        save_enrolment(one, path)
        with np.load(path) as held:
            arrays = {name: held[name] for name in held.files}
        told = json.loads(arrays["description"].tobytes())
        assert told["format"] == number
        for wrong, words in (
            (told | {"format": 3}, "has format 3, and this program knows 1 and 2"),
            (told | {"heads": [head | {"kind": "oracle"} for head in told["heads"]]}, "damaged"),
            (told | {"heads": [head | {"layers": [], "layer": 0} for head in told["heads"]]}, "damaged"),
            (told | {"sources": told["sources"][:2]}, "damaged"),
        ):
            text = np.frombuffer(json.dumps(wrong).encode(), dtype=np.uint8)
            np.savez(path, **(arrays | {"description": text}))
            with pytest.raises(AtlasError, match=words):
                load_enrolment(path)


def test_large_weights_are_halved_and_agree_with_their_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    d, classes = 576, 100
    probe = LinearProbe(
        rng.normal(size=2 * d).astype(np.float32), np.ones(2 * d, np.float32),
        rng.normal(0, 0.02, (2 * d, classes)).astype(np.float32), np.zeros(classes, np.float32),
    )  # fmt: skip
    hashes, folds = prompt_table(PROMPTS, [i % 5 for i in range(len(PROMPTS))])
    big = Enrolment(
        name="big", reader="r", proxy="p", view="ur", block="dc-ac", sources=tuple(f"s{i}" for i in range(classes)),
        families=("f",) * classes, heads=tuple(Head(probe, (12,), fold) for fold in range(5)),
        log_prior=np.full(classes, -np.log(classes)), prompts=hashes, folds=folds,
    )  # fmt: skip
    kept = save_enrolment(big, tmp_path / "big.npz")
    assert (tmp_path / "big.npz").stat().st_size < 2_000_000
    assert load_enrolment(tmp_path / "big.npz").sha256 == kept.sha256 != big.sha256
    assert np.abs(kept.heads[0].probe.weight - probe.weight).max() < 1e-4


def test_damaged_enrolments_are_refused(enrolment: Enrolment, tmp_path: Path) -> None:
    refuses_damage(enrolment, tmp_path)()


@pytest.mark.parametrize(("place", "value"), [(8, 1), (10, 97)])
def test_an_enrolment_that_says_it_is_packed_otherwise_is_refused(
    enrolment: Enrolment, tmp_path: Path, place: int, value: int
) -> None:
    """Of its first member: encrypted, or by a method that nobody knows; zipfile raises no error of its own then."""
    path = tmp_path / "odd.npz"
    save_enrolment(enrolment, path)
    held = bytearray(path.read_bytes())
    held[held.index(b"PK\x01\x02") + place] = value  # of the directory
    held[place - 2] = value  # of the member
    path.write_bytes(held)
    with pytest.raises(AtlasError, match=r"odd[.]npz is damaged"):
        load_enrolment(path)


def test_what_cannot_be_enrolled(reader: Reader) -> None:
    traces, labels = labelled(PROMPTS[:9])
    made: dict[str, Any] = {"name": "x", "proxy": "tiny", "weights_hash": "0", "view": "ur", "layer": 1}
    with pytest.raises(AtlasError, match="has 9 traces"):
        enrolment_of_traces(traces, labels, reader, **made)
    with pytest.raises(AtlasError, match="1 source is not enough"):
        enrolment_of_traces(traces, ["one"] * len(traces), reader, **made)


# Scoring


def test_scores_are_those_of_the_reader_and_the_probes(reader: Reader, enrolment: Enrolment) -> None:
    traces, _ = labelled()
    new = [Trace(f"{trace.prompt} Now?", trace.response) for trace in traces]
    seen: list[Progress] = []
    scored = Attributor(reader, enrolment).score([*new, *traces], progress=seen.append, keep_fingerprints=True)
    fingerprints = reader.read(reader.encode([*new, *traces], "ur"), [2])[2, "full"].astype(np.float32)
    assert scored.fingerprints is not None
    assert np.allclose(scored.fingerprints, fingerprints, atol=2e-2)
    each = [head.probe.log_posterior(scored.fingerprints.astype(np.float32)) for head in enrolment.heads]
    assert np.allclose(scored.log_posteriors[: len(new)], np.mean(each, axis=0)[: len(new)], atol=1e-5)
    for row in range(len(new), 2 * len(new)):
        fold = scored.folds[row]
        assert fold is not None
        assert np.allclose(scored.log_posteriors[row], each[fold][row], atol=1e-5)
    assert scored.folds[: len(new)] == (None,) * len(new)
    assert [p.done for p in seen] == [BATCHES[0], BATCHES[0] + BATCHES[1], 72]
    assert np.array_equal(np.concatenate([p.log_posteriors for p in seen]), scored.log_posteriors)
    total = scored.fingerprints.sum(0, dtype=np.float64)
    assert np.allclose(scored.signature[:32], total[:32] / np.linalg.norm(total[:32]))
    assert scored.complete


def test_a_score_that_is_not_finite_names_its_trace_at_once(
    reader: Reader, enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributor, seen = Attributor(reader, enrolment), list[Progress]()
    score = Attributor._log_posteriors

    def damaged(self: Attributor, *arguments: Any) -> np.ndarray:
        out = score(self, *arguments)
        out[1, 0] = np.nan if seen else out[1, 0]
        return out

    monkeypatch.setattr(Attributor, "_log_posteriors", damaged)
    with pytest.raises(AtlasError, match=f"score of trace {BATCHES[0] + 2} is not a finite number"):
        attributor.score(labelled()[0], progress=seen.append)
    assert [one.done for one in seen] == [BATCHES[0]]


def test_a_bank_scores_what_its_evidence_was_fitted_on(reader: Reader, banked: Enrolment) -> None:
    traces, labels = labelled()
    scored = Attributor(reader, banked).score(traces, keep_fingerprints=True)
    order = sorted(range(len(traces)), key=lambda i: labels[i])
    read = reader.read(reader.encode([traces[i] for i in order], "ur"), [1, 2])
    rows = np.concatenate([read[layer, "full"] for layer in (1, 2)], axis=1).astype(np.float32)
    for head in banked.heads:
        inside = [n for n, i in enumerate(order) if scored.folds[i] == head.fold]
        cells = cells_of_traces(
            [traces[order[n]] for n in inside], reader.encode([traces[order[n]] for n in inside], "ur")
        )
        found = scored.log_posteriors[[order[n] for n in inside]]
        assert np.allclose(found, head.log_posterior(rows[inside], cells), atol=5e-2)
    truth = np.array([banked.sources.index(label) for label in labels])
    assert (scored.log_posteriors.argmax(1) == truth).mean() > 0.9
    assert scored.fingerprints is not None
    assert np.allclose(scored.fingerprints[order], read[1, "full"], atol=2e-2)
    assert np.allclose(scored.mean, scored.fingerprints.mean(0, dtype=np.float64), atol=1e-6)
    new = Attributor(reader, banked).score([Trace("Another question?", trace.response) for trace in traces[12:24]])
    assert (new.log_posteriors.argmax(1) == banked.sources.index("shout")).mean() > 0.9
    found = find(new, banked, "shout", companions=fitted_statistics_of(banked), orders=20)
    assert found.calibrated
    assert found.unknown_p is not None
    assert found.leader == banked.sources.index("shout")


def test_windows_are_compared_at_the_block_of_the_landing(reader: Reader, banked: Enrolment) -> None:
    traces, _ = labelled()
    scored = Attributor(reader, banked).score(traces, keep_fingerprints=True)
    assert scored.fingerprints is not None
    parts = scored.fingerprints[:12], scored.fingerprints[12:24]
    bank = banked.heads[0].probe
    wanted = (scored.fingerprints - bank.mean[: parts[0].shape[1]]) / bank.scale[: parts[0].shape[1]]
    assert np.allclose(standardised(scored.fingerprints, banked), wanted, atol=1e-4)
    prompts = [trace.prompt for trace in traces[:12]]
    assert compare(*parts, (prompts, prompts), banked).p_value < 0.05
    elsewhere = replace(banked, heads=tuple(replace(head, layers=(2, 3)) for head in banked.heads))
    stand_in = standardised(scored.fingerprints, elsewhere)
    assert np.allclose(stand_in.mean(0), 0, atol=1e-2)
    with pytest.raises(AtlasError, match="no spread at block 1"):
        standardised(scored.fingerprints, replace(elsewhere, attachments={}))


def test_cancel_keeps_what_is_done(reader: Reader, enrolment: Enrolment) -> None:
    traces, _ = labelled()
    taken: list[int] = []

    def arriving() -> Iterator[Trace]:
        for number, trace in enumerate(traces):
            taken.append(number)
            yield trace

    batches: list[Progress] = []
    scored = Attributor(reader, enrolment).score(arriving(), progress=batches.append, cancelled=lambda: bool(batches))
    assert not scored.complete
    assert len(scored.log_posteriors) == len(taken) == BATCHES[0]
    empty = Attributor(reader, enrolment).score([], keep_fingerprints=True)
    assert empty.log_posteriors.shape == (0, 3)
    assert empty.complete


def test_another_proxy_is_refused(reader: Reader, enrolment: Enrolment) -> None:
    with pytest.raises(AtlasError, match="are not those"):
        Attributor(reader, enrolment, "0" * 64)
    with pytest.raises(AtlasError, match="another proxy"):
        Attributor(Reader(tiny_encoder(), tiny_tokenizer(encoder=True), causal=False), with_block(enrolment, "dc", 16))


# Token evidence


@pytest.mark.parametrize("block", ["dc", "ac", "dc-ac"])
def test_a_split_by_plain_sums(block: str) -> None:
    rng = np.random.default_rng(1)
    d, modes = 6, {"dc": [0], "ac": [1], "dc-ac": [0, 1]}[block]
    width = d * len(modes)
    probe = LinearProbe(*(rng.normal(size=s).astype(np.float32) for s in ((width,), (width,), (width, 3), (3,))))
    probe = replace(probe, scale=np.abs(probe.scale) + 0.5)
    for length in (1, 2, 17):
        states = rng.normal(size=(length, d)) + 5
        fingerprint = (dct_weights(length, 2)[modes] @ states).reshape(1, -1)
        expected = probe.log_posterior(fingerprint)[0]
        split = split_log_odds({1: states}, Head(probe, (1,)), block, 0, 2)
        assert split.tokens.sum() == pytest.approx(float(expected[0] - expected[2]), abs=1e-4)
        assert split.tokens.shape == (length,)
    with pytest.raises(ValueError, match="does not read"):
        split_log_odds({1: np.zeros((3, d + 1))}, Head(probe, (1,)), block, 0, 2)


@pytest.mark.parametrize("block", ["dc", "ac", "dc-ac"])
@pytest.mark.parametrize("kind", ["fused", "hooked", "encoder"])
def test_tokens_add_up_to_the_score(kind: str, block: str, reader: Reader) -> None:
    if kind == "hooked":
        reader = Reader(tiny_decoder("qwen3"), tiny_tokenizer(), compile_blocks=False)
    if kind == "encoder":
        reader = Reader(tiny_encoder(), tiny_tokenizer(encoder=True), causal=False)
    traces, labels = labelled()
    made = enrolment_of_traces(traces, labels, reader, name="x", proxy="tiny", weights_hash="0", view="ur", layer=2)
    made = with_block(made, block, reader.hidden_size)
    adds_up(reader, made, traces)


@pytest.mark.parametrize("kind", ["fused", "hooked", "encoder"])
def test_tokens_add_up_over_several_blocks(kind: str, reader: Reader) -> None:
    if kind == "hooked":
        reader = Reader(tiny_decoder("qwen3"), tiny_tokenizer(), compile_blocks=False)
    if kind == "encoder":
        reader = Reader(tiny_encoder(), tiny_tokenizer(encoder=True), causal=False)
    made, d = bank(reader), reader.hidden_size
    # Texts that repeat one another word for word leave hardly any spread, so that log-odds are in the hundreds.
    adds_up(reader, made, labelled()[0], rough=0.2)
    for block, modes in (("dc", [0]), ("ac", [1])):
        columns = np.concatenate([np.arange(d) + (2 * b + m) * d for b in range(2) for m in modes])
        heads = [
            replace(h, probe=replace(h.probe, mean=h.probe.mean[columns], scale=h.probe.scale[columns],
                                     codes=h.probe.codes[:, columns]))
            for h in made.heads
        ]  # fmt: skip
        adds_up(reader, replace(made, block=block, heads=tuple(heads)), labelled()[0], rough=0.2)


def adds_up(reader: Reader, made: Enrolment, traces: list[Trace], rough: float = 2e-2) -> None:
    """The tokens' evidence equals the score, for plain and for hostile texts; half precision is ``rough``."""
    hostile = ["", "x", "naïve 北京 🚀 \ud800 end", "<script>alert(1)</script>" * 60]
    for trace in [traces[0], traces[30], *(Trace("new", text) for text in hostile)]:
        evidence = token_evidence(reader, made, trace, 2, 0)
        assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, abs=1e-4)
        scored = Attributor(reader, made).score([trace]).log_posteriors[0]
        assert evidence.stored == pytest.approx(float(scored[2] - scored[0]), abs=rough, rel=rough)
        assert evidence.stored == pytest.approx(evidence.log_odds, abs=rough, rel=rough)
        assert (evidence.source, evidence.rival) == (made.sources[2], made.sources[0])
        assert len(evidence.starts) == len(evidence.stops) == len(evidence.split.tokens)
        covered = "".join(
            evidence.response[max(start, at) : stop]
            for start, stop, at in zip(evidence.starts, evidence.stops, (0, *evidence.stops[:-1]), strict=True)
        )
        assert evidence.response.startswith(covered)
        assert len(covered) + evidence.cut == len(evidence.response)


# Chain and report


def test_a_chain_shows_every_change() -> None:
    steps: list[dict[str, Any]] = []
    assert next_step(steps, "step", {})["previous"] == START
    for number in range(4):
        steps.append(next_step(steps, "step", {"n": number, "x": [1.5, None]}))
    assert broken_step(steps) is None
    assert broken_step([steps[0], *steps[2:]]) == 2
    assert broken_step([*steps[:2], steps[3], steps[2]]) == 3
    assert broken_step([*steps[:2], {**steps[2], "details": {"n": 9}}, steps[3]]) == 3
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    with pytest.raises(ValueError, match="JSON"):
        next_step(steps, "nan", {"x": float("nan")})


@pytest.fixture
def published(reader: Reader, enrolment: Enrolment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the tiny enrolment, and verbs that load the tiny proxy."""
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.attribution.scoring, "proxy_hash", lambda proxy: "f" * 64)
    return tmp_path


def trace_file(path: Path) -> Path:
    lines = [json.dumps({"prompt": p, "response": STYLES["shout"].format(i=i)}) for i, p in enumerate(PROMPTS)]
    hostile = {"prompt": "How do I restart queue <b>p</b>?", "response": "<script>alert(1)</script>"}
    lines[3:3] = ["{broken", lines[0], json.dumps(hostile)]
    path.write_text("\n".join(lines), "utf-8")
    return path


def test_attribute_and_verify(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces, page = trace_file(published / "t.jsonl"), published / "out.html"
    asked = ["attribute", str(traces), "--claimed", "shout", "--report", str(page), "--keep-text", "13"]
    assert main([*asked, "--case", "<i>case</i>", "--orders", "20"]) == 0
    said = capsys.readouterr().out
    assert "line 4" in said
    assert "the same as line 1" in said
    report = read_report(page.with_suffix(".json").read_text("utf-8"))
    assert alterations(report) == []
    assert len(report["traces"]) == 13
    assert report["results"]["leader"] == "shout"
    assert report["results"]["calibrated"]
    assert (report["results"]["traffic"]["kind"], report["results"]["traffic"]["prompts"]) == ("like", 13)
    assert [step["step"] for step in report["steps"]] == ["file", "question", "enrolment", "traces", "scores", "report"]
    assert sum(row["probability"] for row in report["results"]["candidates"]) == pytest.approx(1)
    assert [e["place"] for e in report["exclusions"]] == [5]
    html = page.read_text("utf-8")
    landed = report["results"]["lands"]
    assert (landed["layer"], len(landed["rows"])) == (2, 3)
    assert str(landing.landing_sentence(report["results"])) in html
    assert f"{landed['rows'][0]['source']} ({landed['rows'][0]['cosine']:.3f})" in html
    assert "<script" not in html
    assert "<i>case" not in html
    assert "&lt;b&gt;p&lt;/b&gt;" in html
    assert "http" not in html.replace("http-equiv", "")
    for shown in report["heat_maps"]:
        assert sum(piece["value"] for piece in shown["pieces"]) == pytest.approx(shown["log_odds"], abs=1e-4)
    assert page.with_suffix(".csv").read_text("utf-8").count("\n") == 14
    assert str(published) not in page.with_suffix(".json").read_text("utf-8")

    for saved in (page.with_suffix(".json"), page):
        assert main(["verify", str(saved)]) == 0
        assert main(["verify", str(saved), "--traces", str(traces)]) == 0
        assert "EQUAL: 13 traces" in (said := capsys.readouterr().out)
    assert "character for character" in said


def test_prompts_of_another_kind_state_nothing(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces, page = published / "t.jsonl", published / "out.html"
    other = "Describe the taste of a ripe mango to somebody who has never eaten fruit, part {i}."
    for prompt, kind, step in ((other, "other topic", "candidates enrolled"), ("", "no prompts", "--prompt-column")):
        lines = [json.dumps({"prompt": prompt.format(i=i), "response": STYLES["shout"].format(i=i)}) for i in range(12)]
        traces.write_text("\n".join(lines), "utf-8")
        asked = ["attribute", str(traces), "--claimed", "shout", "--report", str(page), "--orders", "20"]
        assert main(asked) == 0
        said = capsys.readouterr().out
        assert "INCONCLUSIVE: We cannot say whether the 12 traces come from shout" in said
        assert step in said and "Enough after" not in said and "0." not in said.split("Next:")[0]
        report = read_report(page.with_suffix(".json").read_text("utf-8"))
        assert report["results"]["traffic"]["kind"] == kind
        assert {row["probability"] for row in report["results"]["candidates"]} == {None}
        assert (report["results"]["stated"], report["results"]["in_words"]) == (False, None)
        assert main(["verify", str(page.with_suffix(".json")), "--traces", str(traces)]) == 0
        assert "EQUAL: 12 traces" in capsys.readouterr().out


def test_verify_sees_what_was_changed(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces, page = trace_file(published / "t.jsonl"), published / "out.html"
    assert main(["attribute", str(traces), "--claimed", "code", "--report", str(page), "--orders", "20"]) == 0
    path = page.with_suffix(".json")
    report = json.loads(path.read_text("utf-8"))
    assert report["heat_maps"] == []
    assert "alert(1)" not in path.read_text("utf-8") + page.read_text("utf-8")
    rest = {key: value for key, value in report.items() if key != "sha256"}
    rest["results"] = {**rest["results"], "verdict": "SUPPORTS", "log10_ratio_others": 5.0}
    path.write_text(json.dumps(rest | {"sha256": digest(rest)}), "utf-8")
    assert main(["verify", str(path), "--traces", str(traces)]) == 1
    said = capsys.readouterr().out
    assert "NOT EQUAL" in said
    assert "not those that the last step recorded" in said
    assert "In this file SUPPORTS, computed again INCONCLUSIVE (results, verdict)" in said
    path.write_text(write_json(report), "utf-8")
    traces.write_text(traces.read_text("utf-8").replace("AGAIN", "again"), "utf-8")
    assert main(["verify", str(path), "--traces", str(traces)]) in (1, 2)
    for wrong in ("no json", "[]", "{}", json.dumps(report | {"format": 99})):
        path.write_text(wrong, "utf-8")
        assert main(["verify", str(path)]) == 2


def test_what_is_printed_moves_no_cursor(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile, page = "\x1b[2J\x1b[HEQUAL: 9 traces\x1b[8m\u202e", published / "out.html"
    traces = published / "t.jsonl"
    rows = [{f"answer{hostile}": "LOUD", "prompt": f"{i}?", f"id{hostile}": i} for i in range(5)]
    traces.write_text("\n".join([*map(json.dumps, rows), json.dumps({"prompt": "p"})]), "utf-8")
    mapped = ["--response-column", f"answer{hostile}", "--name-column", f"id{hostile}", "--time-column", "none"]
    asked = ["attribute", str(traces), *mapped, "--report", str(page), "--orders", "20", "--keep-duplicates"]
    assert main(asked) == 0
    said = capsys.readouterr()
    assert "response from 'answer\\x1b[2J" in said.out and "time from" not in said.out
    path = page.with_suffix(".json")
    report = json.loads(path.read_text("utf-8"))
    checked = ["verify", str(path), "--traces", str(traces)]
    assert main(checked) == 0
    path.write_text(json.dumps(report | {hostile: 1}), "utf-8")
    assert main(checked) == 1
    for part, value in (("reference", {"prior": ["x", 0.5, 0.5]}), ("results", {"claimed": hostile})):
        path.write_text(json.dumps(report | {part: report[part] | value}), "utf-8")
        assert main(checked) == 2
    told = capsys.readouterr()
    assert "\\x1b[2J" in told.out and "lacks what is needed" in told.err and "is not enrolled" in told.err
    for stream in (*said, *told):
        assert not any(character in stream for character in "\x1b\u202e")


def test_what_attribute_refuses(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = trace_file(published / "t.jsonl")
    assert main(["attribute", "--list"]) == 0
    assert "3 sources: code, plain, shout" in capsys.readouterr().out
    for wrong, words in (
        ([], "No file of traces"),
        ([str(published / "none.jsonl")], "cannot be read"),
        ([str(traces), "--claimed", "zz"], "No ecosystem knows"),
        ([str(traces), "--claimed", "zz", "--enrolment", "tiny"], "not enrolled"),
        ([str(traces), "--orders", "0"], "number of orders"),
        ([str(traces), "--prior", str(traces)], "prior"),
        ([str(traces), "--response-column", "zz"], "no column 'zz'"),
    ):
        assert main(["attribute", *wrong]) == 2
        assert words in capsys.readouterr().err


def test_a_report_is_never_written_over_what_is_read(
    published: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.attribute.audit", lambda *_, **__: pytest.fail("it was scored"))
    table, prior = published / "traces.csv", published / "prior.json"
    table.write_text("prompt,response\na,b\n", "utf-8")
    prior.write_text('{"code": 1}', "utf-8")
    (published / "linked.json").symlink_to(table)
    (published / "mine.json").write_bytes((published / "data" / "enrolments" / "tiny.npz").read_bytes())
    before = {path: path.read_bytes() for path in published.rglob("*") if path.is_file()}
    for page, more in (
        ("traces.html", []),
        ("traces.csv", []),
        ("../%s/traces.json", []),
        ("linked.html", []),
        ("prior.html", ["--prior", str(prior)]),
        ("mine.html", ["--enrolment", str(published / "mine.json")]),
        ("mine.html", ["--also", f"tiny, {published / 'mine.json'}"]),
    ):
        path = published / (page % published.name if "%" in page else page)
        assert main(["attribute", str(table), "--report", str(path), *more]) == 2
        assert "would be written over" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in published.rglob("*") if path.is_file()} == before


def test_a_report_that_cannot_be_written_is_told_before_anything_is_scored(
    published: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.attribute.audit", lambda *_, **__: pytest.fail("it was scored"))
    monkeypatch.chdir(published)
    traces = trace_file(published / "t.jsonl")
    (published / "out.csv").mkdir()
    for page, words in (
        (".", "is a folder"),
        ("..", "is a folder"),
        ("/", "is a folder"),
        ("out.html", "out.csv is a folder"),
        ("t.jsonl/out.html", "cannot be written"),
        ("/proc/none/out.html", "cannot be written"),
        (f"{'a' * 300}.html", "cannot be written"),
    ):
        assert main(["attribute", str(traces), "--report", page]) == 2
        assert words in capsys.readouterr().err


def test_traces_out_of_a_pipe(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces, page = trace_file(published / "t.jsonl"), published / "out.html"
    pipe = published / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_bytes, args=(traces.read_bytes(),), daemon=True)
    writing.start()
    assert main(["attribute", str(pipe), "--claimed", "shout", "--report", str(page), "--orders", "20"]) == 0
    assert main(["verify", str(page.with_suffix(".json")), "--traces", str(traces)]) == 0
    assert "EQUAL: 13 traces" in capsys.readouterr().out


def test_a_report_compared_with_itself_and_with_another(published: Path) -> None:
    traces, page = trace_file(published / "t.jsonl"), published / "out.html"
    assert main(["attribute", str(traces), "--report", str(page), "--orders", "20"]) == 0
    report = read_report(page.with_suffix(".json").read_text("utf-8"))
    assert differences(report, report) == []
    other = json.loads(json.dumps(report))
    scores = log_posteriors_of(report).copy()
    scores[2, 0] += 0.05
    other["log_posteriors"] = encoded(scores)
    assert any("for trace 3 differs" in sentence for sentence in differences(report, other))
    other["method"]["engine"] = "another"
    other["results"]["readers"][0]["engine"] = "another"
    assert differences(report, other, {"results": report["results"]}) == []
    other["traces"].pop()
    assert any("are not the" in sentence for sentence in differences(report, other))
    formula = json.loads(json.dumps(report))
    formula["traces"][0]["label"] = "=HYPERLINK(1)"
    assert "'=HYPERLINK" in write_csv(formula)
    formula["results"]["unknown_p"], formula["results"]["stop"] = 0.2, {"enough_after": 3}
    assert "p = .200" in write_html(formula) and "traces only" not in " ".join(write_html(formula).split())
    formula["results"]["stop"]["looked"] = 10
    assert "looks at the first 10 traces only" in " ".join(write_html(formula).split())


def test_attachments_become_companions(reader: Reader, enrolment: Enrolment) -> None:
    traces, labels = labelled()
    scored = Attributor(reader, enrolment).score(traces, keep_fingerprints=True)
    assert scored.fingerprints is not None
    numbers = np.array([enrolment.sources.index(label) for label in labels])
    domain = fit_domain(scored.fingerprints.astype(np.float32), numbers, budgets=(1, 5), draws=50)
    rule = StopRule(0.05, 1.0, 1.0, 1.0)
    attachments = {**enrolment.attachments, **attached({"stop": rule, "domain-queues": domain})}
    companions = fitted_statistics_of(replace(enrolment, attachments=attachments))
    assert companions.calibrate is not None
    assert companions.unknown_p is not None
    one = Attributor(reader, enrolment).score(traces[12:20])
    found = find(one, enrolment, "shout", companions=companions, orders=20)
    assert found.leader == enrolment.sources.index("shout")
    assert found.unknown_p is not None
    assert 0 < found.unknown_p <= 1
    assert found.stop is not None
    assert found.stop["error_rate"] == 0.05
    assert found.verdict.reason
    assert companions.log10_bounds is not None
    low, high = companions.log10_bounds(8)
    assert low <= found.log10_others <= high
    assert found.flags is not None
    short = find(
        Attributor(reader, enrolment).score([Trace("x", "y")] * 6), enrolment, companions=companions, orders=20
    )
    assert short.flags is not None
    assert "short" in short.flags
    assert (short.verdict.outcome, short.verdict.validated) == ("INCONCLUSIVE", False)
    assert fitted_statistics_of(replace(enrolment, attachments={})).calibrate is None
    with pytest.raises(AtlasError, match="damaged"):
        fitted_statistics_of(replace(enrolment, attachments={"calibration.scale": np.ones(1)}))


# The real proxy on the shipped samples


@pytest.mark.proxy
@pytest.mark.slow(20)
def test_samples_are_told_apart(smollm2: Reader, sample: tuple[Enrolment, list[Sample]]) -> None:
    made, rest = sample
    assert made.layers == [12]
    assert told_apart(smollm2, made, rest) >= 3  # of 4; chance is 1


@pytest.mark.proxy
@pytest.mark.slow(30)
def test_samples_are_told_apart_by_discriminants(
    smollm2: Reader, samples_read: tuple[Corpus, Path], sample: tuple[Enrolment, list[Sample]]
) -> None:
    made = some_samples(smollm2, samples_read[0], blocks=(9, 15, 21))
    assert made.layers == [9, 12, 15, 21]
    assert told_apart(smollm2, made, sample[1]) >= 3  # of 4; chance is 1


def told_apart(reader: Reader, made: Enrolment, rest: list[Sample]) -> int:
    """Sources whose held-out responses are theirs; what single tokens say adds up on some of them."""
    attributor = Attributor(reader, made, proxy_hash("smollm2-135m"))
    right = 0
    for source in made.sources:
        scored = attributor.score([row.trace for row in rest if row.source == source])
        found = find(scored, made, source, companions=fitted_statistics_of(made), orders=20)
        assert found.calibrated
        right += made.sources[found.leader] == source
    for row in rest[:: len(rest) // 4]:
        evidence = token_evidence(reader, made, row.trace, 0, 1)
        assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, abs=1e-4)
        assert evidence.stored == pytest.approx(evidence.log_odds, abs=5e-2)
    return right

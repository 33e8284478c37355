"""N-grams as a head of an enrolment: codes, spans that add up, files, live scores and token evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import backend.attribution.scoring
from backend.attribution.drift_report import standardised
from backend.attribution.scoring import Attributor
from backend.attribution.token_evidence import heat_map, split_log_odds, token_evidence
from backend.attribution.verify import alterations, read_report
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import load_enrolment, save_enrolment
from backend.enrolment.fit import Sample, enrolment_of_traces, split_samples
from backend.errors import AtlasError
from backend.methods.ensemble import Head
from backend.methods.ngrams import (
    SETTINGS,
    CodedNgrams,
    NgramModel,
    character_odds,
    code_ngrams,
    count,
    counted,
    fit_ngrams,
    keep_ngrams,
    occurrences,
    read_ngrams,
)
from backend.proxies.reader import Reader
from backend.proxies.registry import proxy_hash
from backend.traces import Trace
from jobs.__main__ import main
from tests.damaged_enrolments import refuses_damage
from tests.tiny_models import tiny_decoder, tiny_encoder, tiny_tokenizer

STYLES = {
    "code": "```python\nqueue[{i}].restart()\n```\n\n\nprint('été')",
    "plain": "First stop the service {i}, then start it again.",
    "shout": "STOP THE SERVICE {i} AND START IT AGAIN! 🚀 1234",
}
PROMPTS = [f"How do I restart queue {i}?" for i in range(12)]
HOSTILE = ("", "   \n\t ", "x", "naïve 北京 🚀🚀 end", "a  b\n\n\nc", "<script>alert(1)</script>" * 60)


def labelled() -> tuple[list[Trace], list[str]]:
    pairs = [(Trace(p, text.format(i=i)), s) for s, text in STYLES.items() for i, p in enumerate(PROMPTS)]
    return [trace for trace, _ in pairs], [label for _, label in pairs]


def fitted(method: str, texts: list[str], labels: np.ndarray, features: int = 400) -> NgramModel:
    few = replace(SETTINGS[method], features=features)
    return fit_ngrams(count(texts, few), labels, int(labels.max()) + 1, few)


@pytest.fixture(scope="module", params=["ngram-word", "ngram-char"])
def model(request: pytest.FixtureRequest) -> CodedNgrams:
    traces, labels = labelled()
    numbers = np.array([list(STYLES).index(label) for label in labels])
    return code_ngrams(fitted(request.param, [trace.response for trace in traces], numbers), request.param)


def with_texts(made: Enrolment, traces: list[Trace], labels: list[str]) -> Enrolment:
    """The same enrolment with heads that read the responses of other folds than their own."""
    numbers = np.array([made.sources.index(label) for label in labels])
    folds = np.array(made.folds_of([trace.prompt for trace in traces]))
    heads = []
    for fold in range(5):
        rows = np.flatnonzero(folds != fold)
        seen = fitted("ngram-word", [traces[row].response for row in rows], numbers[rows])
        heads.append(Head(code_ngrams(seen, "ngram-word"), (), fold))
    return replace(
        made, name="texts", reader="ngram-word", block="text", heads=tuple(heads), landing=2, width=made.hidden_size
    )


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)


@pytest.fixture(scope="module")
def enrolment(reader: Reader) -> Enrolment:
    traces, labels = labelled()
    made = enrolment_of_traces(
        traces, labels, reader, name="tiny", proxy="tiny", weights_hash="f" * 64, view="ur", layer=2
    )
    return with_texts(made, traces, labels)


# Codes


def test_codes_are_the_weights_but_for_half_a_step(tmp_path: Path) -> None:
    traces, labels = labelled()
    exact = fitted("ngram-word", [t.response for t in traces], np.array([list(STYLES).index(one) for one in labels]))
    wild = replace(exact, weight=exact.weight * np.where(np.arange(len(exact.weight)) % 50, 1, -80)[:, None])
    for one in (exact, wild.__class__(wild.columns, wild.idf, wild.weight.astype(np.float32), wild.bias, 1)):
        coded = code_ngrams(one, "ngram-word")
        assert coded.codes.dtype == np.uint8
        assert np.abs(coded.weight - one.weight).max() <= 0.501 * float(coded.step)
        keep_ngrams(tmp_path / "ngrams.0.npz", coded)
        again = read_ngrams(tmp_path / "ngrams.0.npz")
        assert again.method == "ngram-word"
        np.testing.assert_array_equal(again.weight, coded.weight)
    counts = count([trace.response for trace in traces], SETTINGS["ngram-word"])
    near = code_ngrams(exact, "ngram-word").log_posterior(counts)
    assert np.abs(near - exact.log_posterior(counts)).max() < 0.2
    assert code_ngrams(replace(exact, weight=exact.weight * 0), "ngram-word").weight.any() == np.False_


# Spans


def test_occurrences_are_where_the_words_are() -> None:
    buckets, starts, stops = occurrences("one  two\n\none", SETTINGS["ngram-word"])
    spans = list(zip(starts.tolist(), stops.tolist(), strict=True))
    words = [(0, 3), (5, 8), (8, 10), (10, 13)]
    assert spans == [*words, (0, 8), (5, 10), (8, 13), (0, 10), (5, 13)]
    assert buckets[0] == buckets[3]
    _, starts, stops = occurrences("ab \n c", SETTINGS["ngram-char"])
    assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == [(0, 5), (1, 6)]


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(
        st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" \n\tTHEstop!1🚀é")), max_size=200
    )
)
@example(text="")
@example(text=" \n ")
@example(text="STOP THE SERVICE 🚀🚀\n\n\nSTOP THE SERVICE")
def test_characters_and_constant_are_the_log_odds(text: str, model: CodedNgrams) -> None:
    values, constant = character_odds(text, model, 2, 0)
    assert values.shape == (len(text),)
    said = model.log_posterior(count([text], model.settings))[0]
    assert values.sum() + constant == pytest.approx(float(said[2] - said[0]), abs=1e-4)


def test_a_slow_walk_over_the_words_gives_the_same_characters() -> None:
    traces, labels = labelled()
    numbers = np.array([list(STYLES).index(label) for label in labels])
    model = code_ngrams(fitted("ngram-word", [trace.response for trace in traces], numbers), "ngram-word")
    text = "STOP THE SERVICE 7, then STOP THE SERVICE again."
    counts = count([text], model.settings).toarray()[0]
    held = {int(bucket): at for at, bucket in enumerate(model.columns)}
    weighed = {b: (1 + np.log(counts[b])) * model.idf[at] for b, at in held.items() if counts[b]}
    norm = np.sqrt(sum(value**2 for value in weighed.values()))
    expected = np.zeros(len(text))
    for bucket, start, stop in zip(*occurrences(text, model.settings), strict=True):
        if int(bucket) in weighed:
            apart = model.weight[held[int(bucket)], 2] - model.weight[held[int(bucket)], 1]
            expected[start:stop] += weighed[int(bucket)] / norm * apart / counts[bucket] / (stop - start)
    np.testing.assert_allclose(character_odds(text, model, 2, 1)[0], expected, atol=1e-6)


# Files


def test_n_grams_survive_their_file(enrolment: Enrolment, tmp_path: Path) -> None:
    kept = save_enrolment(enrolment, tmp_path / "texts.npz")
    again = load_enrolment(tmp_path / "texts.npz")
    assert again.sha256 == kept.sha256 == enrolment.sha256
    assert (again.reader, again.block, again.layers, again.place) == ("ngram-word", "text", [2], 2)
    assert again.hidden_size == enrolment.hidden_size > 0
    assert again.place_reader == "reader-paper/tiny/ur"
    assert [(head.layers, head.fold) for head in again.heads] == [((), fold) for fold in range(5)]
    head = again.heads[0].probe
    assert isinstance(head, CodedNgrams)
    raw = (tmp_path / "texts.npz").read_bytes()
    assert b"SERVICE" not in raw
    changed = replace(again, heads=(replace(again.heads[0], probe=replace(head, step=head.step * 2)), *again.heads[1:]))
    assert changed.sha256 != again.sha256
    assert replace(again, width=8).sha256 != again.sha256


def test_files_of_n_grams_that_do_not_fit_together_are_refused(enrolment: Enrolment, tmp_path: Path) -> None:
    path = tmp_path / "texts.npz"
    save_enrolment(enrolment, path)
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    told = json.loads(arrays["description"].tobytes())
    assert (told["format"], told["heads"][0]["kind"], told["heads"][0]["counts"]) == (
        2,
        "ngrams",
        counted("ngram-word"),
    )
    columns, other = arrays["head0.columns"], counted("ngram-word") | {"pattern": "(a+)+$"}
    for wrong in (
        {"head0.columns": columns[::-1].copy()},
        {"head0.columns": columns.astype(np.int64)},
        {"head0.columns": np.where(np.arange(len(columns)) < len(columns) - 1, columns, 2**20)},
        {"head0.codes": arrays["head0.codes"][:, :, :2]},
        {"head0.idf": np.where(np.arange(len(columns)), arrays["head0.idf"], np.nan).astype(np.float32)},
        {"head0.step": arrays["head0.bias"]},
        {"description": told | {"heads": [head | {"counts": other} for head in told["heads"]]}},
        {"description": told | {"heads": [head | {"layers": [1]} for head in told["heads"]]}},
        {"description": told | {"block": "dc"}},
        {"description": told | {"landing": None}},
        {"description": {key: value for key, value in told.items() if key != "width"}},
        {"description": told | {"width": 0}},
    ):
        if "description" in wrong:
            wrong = {"description": np.frombuffer(json.dumps(wrong["description"]).encode(), dtype=np.uint8)}
        np.savez(path, **(arrays | wrong))
        with pytest.raises(AtlasError, match="damaged"):
            load_enrolment(path)


def test_damaged_files_of_n_grams_are_refused(enrolment: Enrolment, tmp_path: Path) -> None:
    refuses_damage(enrolment, tmp_path)()


# Scores and evidence


def test_live_scores_are_those_of_the_classifier_that_did_not_see_the_prompt(
    reader: Reader, enrolment: Enrolment
) -> None:
    traces, labels = labelled()
    new = [Trace("Another question?", text) for text in (traces[0].response, traces[20].response, *HOSTILE, "\ud800")]
    scored = Attributor(reader, enrolment).score([*traces, *new], keep_fingerprints=True)
    counts = count([trace.response.replace("\ud800", "�") for trace in [*traces, *new]], SETTINGS["ngram-word"])
    each = np.stack([head.probe.log_posterior(counts) for head in enrolment.heads])
    folds = [fold for fold in scored.folds if fold is not None]
    assert len(folds) == len(traces)
    for row, fold in enumerate(folds):
        np.testing.assert_allclose(scored.log_posteriors[row], each[fold, row], atol=1e-5)
    np.testing.assert_allclose(scored.log_posteriors[len(traces) :], each[:, len(traces) :].mean(0), atol=1e-5)
    truth = [enrolment.sources.index(label) for label in labels]
    assert (scored.log_posteriors[: len(traces)].argmax(1) == truth).mean() > 0.9
    assert scored.fingerprints is not None
    fingerprints = reader.read(reader.encode(traces, "ur"), [2])[2, "full"]
    np.testing.assert_allclose(scored.fingerprints[: len(traces)], fingerprints, atol=2e-2)
    assert standardised(fingerprints, enrolment).shape == fingerprints.shape


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_pieces_of_text_add_up_to_the_score(kind: str, reader: Reader, enrolment: Enrolment) -> None:
    if kind == "encoder":
        reader = Reader(tiny_encoder(), tiny_tokenizer(encoder=True), causal=False)
        enrolment = replace(enrolment, width=reader.hidden_size)
    traces, _ = labelled()
    long = Trace("long", "STOP THE SERVICE now. " * 2000)
    for trace in [traces[0], traces[30], *(Trace("new", text) for text in (*HOSTILE, "lone \ud800 half")), long]:
        evidence = token_evidence(reader, enrolment, trace, 2, 0)
        assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, abs=1e-4)
        assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, abs=1e-4)
        scored = Attributor(reader, enrolment).score([trace]).log_posteriors[0]
        assert evidence.stored == pytest.approx(float(scored[2] - scored[0]), abs=1e-5)
        assert evidence.stored == evidence.log_odds
        assert len(evidence.starts) == len(evidence.stops) == len(evidence.split.tokens)
        drawn = heat_map(1, trace.prompt, evidence)
        assert "".join(piece["text"] for piece in drawn["pieces"]) == evidence.response
        assert sum(piece["value"] for piece in drawn["pieces"]) == pytest.approx(evidence.log_odds, abs=1e-4)
        assert (drawn["rest"], evidence.cut) == ("", 0)


def test_a_head_of_text_has_no_direction_among_states(enrolment: Enrolment) -> None:
    with pytest.raises(ValueError, match="no direction"):
        split_log_odds({1: np.zeros((3, 4))}, enrolment.heads[0], "dc", 0, 1)
    assert enrolment.heads[0].standardiser is None


def test_attribute_and_verify_by_n_grams(
    reader: Reader, enrolment: Enrolment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "texts.npz")
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.attribution.scoring, "proxy_hash", lambda proxy: "f" * 64)
    traces, page = tmp_path / "t.jsonl", tmp_path / "out.html"
    lines = [json.dumps({"prompt": f"New {i}?", "response": STYLES["shout"].format(i=i)}) for i in range(12)]
    traces.write_text("\n".join(lines), "utf-8")
    asked = ["attribute", str(traces), "--claimed", "shout", "--report", str(page), "--keep-text", "2"]
    assert main([*asked, "--orders", "20"]) == 0
    report = read_report(page.with_suffix(".json").read_text("utf-8"))
    assert alterations(report) == []
    assert (report["results"]["leader"], report["method"]["reader"]) == ("shout", "ngram-word")
    html = page.read_text("utf-8")
    assert "ngram-word</span>), text of the responses, traces placed at" in html
    assert "after the rounding" not in html
    assert main(["verify", str(page.with_suffix(".json")), "--traces", str(traces)]) == 0


@pytest.mark.proxy
@pytest.mark.slow
def test_samples_are_told_apart_by_their_n_grams(smollm2: Reader, sample: tuple[Enrolment, list[Sample]]) -> None:
    made, rest = sample
    rows = [row for row in split_samples()[0] if row.source in made.sources]
    texts = with_texts(made, [row.trace for row in rows], [row.source for row in rows])
    texts = replace(texts, landing=12)
    attributor = Attributor(smollm2, texts, proxy_hash("smollm2-135m"))
    right = 0
    for number, source in enumerate(texts.sources):
        scored = attributor.score([row.trace for row in rest if row.source == source])
        right += int(scored.log_posteriors.sum(0).argmax() == number)
    assert right >= 3  # of 4; chance is 1
    for row in rest[:: len(rest) // 4]:
        evidence = token_evidence(smollm2, texts, row.trace, 0, 1)
        assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, abs=1e-4)
        assert evidence.response == "".join(p["text"] for p in heat_map(1, row.trace.prompt, evidence)["pieces"])

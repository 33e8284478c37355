"""A fine-tuned encoder in an enrolment: its file, what is refused, live scores, and evidence on every token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from backend.attribution.scoring import Attributor, Models
from backend.attribution.token_evidence import token_evidence
from backend.enrolment.enrolment import Enrolment, auxiliary_models, read_auxiliary_models
from backend.enrolment.files import load_enrolment, save_enrolment
from backend.enrolment.fit import enrolment_of_traces
from backend.errors import AtlasError
from backend.methods.ensemble import Ensemble, Head, Member, model_of
from backend.methods.fine_tuning import ENCODER, Texts, TrainedClassifier, TunedEncoder, fine_tune
from backend.methods.ngrams import GRAMS, SoftmaxSettings, fit_grams
from backend.methods.probe import fit_probe
from backend.methods.sentence_encoder import SentenceEncoder
from backend.methods.stack import CELLS
from backend.proxies.reader import Reader
from backend.traces import Trace, whole_text
from tests.methods.test_ngram_storage import HOSTILE, labelled
from tests.tiny_models import tiny_decoder, tiny_encoder, tiny_tokenizer

READS = "bert:tuned"
SETTINGS = replace(ENCODER, epochs=3, batch=16, learning_rate=5e-3, head_rate=5e-3, max_tokens=40, autocast=True)
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> SentenceEncoder:
    folder: Path = tmp_path_factory.mktemp("bert")
    tiny_encoder().save_pretrained(folder)
    tiny_tokenizer(encoder=True).save_pretrained(folder)
    return SentenceEncoder(str(folder))


@pytest.fixture(scope="module")
def trained(bert: SentenceEncoder) -> TrainedClassifier:
    traces, labels = labelled()
    numbers = np.unique(labels, return_inverse=True)[1]
    return fine_tune(bert.name, [trace.response for trace in traces], numbers, 3, settings=SETTINGS, seed=0)


@pytest.fixture(scope="module")
def enrolment(reader: Reader, trained: TrainedClassifier) -> Enrolment:
    """Every head holds the tuned encoder, with a bias of its own, and words."""
    traces, labels = labelled()
    made = enrolment_of_traces(
        traces, labels, reader, name="tuned", proxy="tiny", weights_hash="f" * 64, view="ur", layer=2
    )
    numbers = np.array([made.sources.index(label) for label in labels])
    counts = GRAMS["word"].counts([trace.response for trace in traces])
    words = fit_grams(counts, numbers, 3, SoftmaxSettings(epochs=5, batch=16, features=200), seed=0)
    tuned = TunedEncoder.of(trained)
    heads = []
    for fold in range(5):
        moved = replace(tuned, bias=tuned.bias + np.float16(fold / 8))
        shares = np.tile([0.4, 0.7], (CELLS, 1))
        heads.append(Head(Ensemble((Member(READS, (), moved), Member("word", (), words)), shares), (), fold))
    return replace(
        made, heads=tuple(heads), reader="fused-text-tuned", block="several", landing=2, width=made.hidden_size
    )


def tuned_of(enrolment: Enrolment, head: int = 0) -> TunedEncoder:
    ensemble = enrolment.heads[head].probe
    assert isinstance(ensemble, Ensemble)
    model = ensemble.members[0].model
    assert isinstance(model, TunedEncoder)
    return model


def test_it_says_what_training_left_but_for_the_rounding(bert: SentenceEncoder, trained: TrainedClassifier) -> None:
    texts = [trace.response for trace in labelled()[0]] + ["", "naïve \ud800 北京"]
    before = torch.get_rng_state()
    tuned = TunedEncoder.of(trained)
    said = tuned.log_posterior(Texts(bert, texts))
    assert torch.equal(before, torch.get_rng_state()), "nothing is drawn"
    exact = replace(trained, settings=replace(SETTINGS, autocast=False)).log_posterior(texts)
    np.testing.assert_allclose(said, exact, atol=0.02, rtol=0.01)
    np.testing.assert_allclose(said[3:4], tuned.log_posterior(Texts(bert, texts[3:4])), atol=1e-4)
    np.testing.assert_allclose(np.exp(said).sum(1), 1, atol=1e-5)


def test_a_file_gives_the_same_enrolment_again(enrolment: Enrolment, bert: SentenceEncoder, tmp_path: Path) -> None:
    kept = save_enrolment(enrolment, tmp_path / "tuned.npz")
    again = load_enrolment(tmp_path / "tuned.npz")
    assert again.sha256 == kept.sha256 == enrolment.sha256
    assert (again.layers, again.auxiliary, auxiliary_models(again)) == ([2], {READS: (), "word": ()}, {READS: True})
    read = Texts(bert, ["One answer.", "def value():"])
    assert np.array_equal(tuned_of(again, 3).log_posterior(read), tuned_of(enrolment, 3).log_posterior(read))


Change = Callable[[Arrays], Any]
CHANGES: dict[str, Change] = {
    "no head": lambda held: held.pop("head.bias"),
    "no limit": lambda held: held.pop("max_tokens"),
    "other sources": lambda held: held.update({"head.bias": held["head.bias"][:-1]}),
    "flat head": lambda held: held.update({"head.weight": held["head.weight"].ravel()}),
    "precision": lambda held: held.update({"head.weight": held["head.weight"].astype(np.float32)}),
    "letters": lambda held: held.update({name: held[name].astype("U8") for name in held if "word_emb" in name}),
    "a part more": lambda held: held.update({"pooler.weight": held["head.bias"]}),
    "limits": lambda held: held.update({"max_tokens": np.array([40])}),
    "half a limit": lambda held: held.update({"max_tokens": np.array(40.5)}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_arrays_of_something_else_are_refused(enrolment: Enrolment, change: Change) -> None:
    held = dict(tuned_of(enrolment).to_arrays())
    assert isinstance(model_of("tuned", dict(held)), TunedEncoder)
    change(held)
    with pytest.raises((KeyError, ValueError)):
        model_of("tuned", held)


def test_what_is_not_tuned_does_not_read_as_if_it_were(enrolment: Enrolment, tmp_path: Path) -> None:
    probe = fit_probe(np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32), np.arange(30) % 3, 3)
    tuned = tuned_of(enrolment)
    infinite = replace(tuned, bias=tuned.bias * np.float16(np.inf))
    for member in (
        Member(READS, (), probe), Member("bert:r", (), tuned), Member("bert", (1,), tuned), Member(READS, (1,), tuned),
        Member("tiny", (), tuned), Member(READS, (), infinite),
    ):  # fmt: skip
        head = Head(Ensemble((member,), np.ones((CELLS, 1))), (), None)
        save_enrolment(replace(enrolment, heads=(head,)), tmp_path / "wrong.npz")
        with pytest.raises(AtlasError, match=r"wrong\.npz is damaged"):
            load_enrolment(tmp_path / "wrong.npz")


def test_the_encoder_has_to_be_the_one_that_it_started_from(
    reader: Reader, enrolment: Enrolment, bert: SentenceEncoder, tmp_path: Path
) -> None:
    with pytest.raises(AtlasError, match="also reads with bert"):
        Attributor(reader, enrolment)
    config = transformers.BertConfig(
        vocab_size=400, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, pad_token_id=0,
    )  # fmt: skip
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
    tiny_tokenizer(encoder=True).save_pretrained(tmp_path)
    with pytest.raises(AtlasError, match="was made with another bert"):
        Attributor(reader, enrolment, others={READS: SentenceEncoder(str(tmp_path))})
    narrow = replace(enrolment.heads[0], probe=_alone(replace(tuned_of(enrolment), max_tokens=2)))
    with pytest.raises(AtlasError, match="was made with another bert"):
        Attributor(reader, replace(enrolment, heads=(narrow,)), others={READS: bert})
    noted = replace(enrolment, facts={**enrolment.facts, "hashes_beside": {"bert": "a" * 64}})
    models = Models(lambda _: (reader, "f" * 64), lambda _: (bert, "b" * 64))
    with pytest.raises(AtlasError, match="weights of bert here are not those"):
        models.attributor(noted)
    assert models.attributor(enrolment).others == {READS: bert}


def test_live_scores_are_those_of_the_texts_that_an_evaluation_reads(
    reader: Reader, enrolment: Enrolment, bert: SentenceEncoder
) -> None:
    traces = labelled()[0]
    broken = [*traces[:5], Trace("New?", "lone \ud800 half"), Trace("New?", "\ud83d\ude80 pair"), Trace("New?", "")]
    read = read_auxiliary_models(enrolment, broken, {READS: bert})[READS]
    assert list(read.texts) == [whole_text(trace.response) for trace in broken]
    single = tuple(replace(head, probe=_alone(tuned_of(enrolment, head.fold or 0))) for head in enrolment.heads)
    alone = replace(enrolment, heads=single, reader="encoder-lengths/bert/r")
    scored = Attributor(reader, alone, others={READS: bert}).score(traces)
    for fold in range(5):
        rows = np.array([held == fold for held in scored.folds])
        said = tuned_of(enrolment, fold).log_posterior(Texts(bert, [t.response for t in traces])[np.flatnonzero(rows)])
        np.testing.assert_allclose(scored.log_posteriors[rows], said, atol=1e-4)


def test_tokens_add_up_though_an_encoder_has_none(reader: Reader, enrolment: Enrolment, bert: SentenceEncoder) -> None:
    others = {READS: bert}
    for trace in [labelled()[0][0], *(Trace("New?", text) for text in HOSTILE)]:
        evidence = token_evidence(reader, enrolment, trace, 2, 0, others)
        live = Attributor(reader, enrolment, others=others).score([trace]).log_posteriors[0]
        assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, abs=1e-4, rel=1e-5)
        assert evidence.stored == pytest.approx(float(live[2] - live[0]), abs=1e-3, rel=1e-3)


def test_an_encoder_may_be_a_further_proxy_as_well(reader: Reader, enrolment: Enrolment, bert: SentenceEncoder) -> None:
    traces, labels = labelled()
    both = Reader(tiny_encoder(), tiny_tokenizer(encoder=True), causal=False, compile_blocks=False)
    states = both.read(both.encode(traces, "ur"), [1])[1, "full"]
    probe = fit_probe(states, np.unique(labels, return_inverse=True)[1], 3)
    members = (Member(READS, (), tuned_of(enrolment)), Member("bert", (1,), probe))
    head = Head(Ensemble(members, np.tile([0.5, 0.5], (CELLS, 1))), (), None)
    made = replace(enrolment, heads=(head,))
    models = Models(lambda name: (both if name == "bert" else reader, None), lambda _: (bert, None))
    attributor = models.attributor(made)
    assert attributor.others == {READS: bert, "bert": both}
    said = probe.log_posterior(states.astype(np.float32)) + tuned_of(enrolment).log_posterior(
        Texts(bert, [trace.response for trace in traces])
    )
    scored = attributor.score(traces).log_posteriors
    np.testing.assert_allclose(scored[:, 1] - scored[:, 0], (said[:, 1] - said[:, 0]) / 2, atol=5e-3)


def _alone(model: TunedEncoder) -> Ensemble:
    return Ensemble((Member(READS, (), model),), np.ones((CELLS, 1)))

"""Ensembles as heads of an enrolment: files, damage, planes of networks, live scores, and evidence on every token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from backend.attribution.scoring import Attributor
from backend.attribution.token_evidence import token_evidence
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import load_enrolment, save_enrolment
from backend.enrolment.fit import enrolment_of_traces
from backend.errors import AtlasError
from backend.methods.ensemble import Ensemble, Head, Member
from backend.methods.estimators import ShrinkageDiscriminant
from backend.methods.llmmap import LLMmapSettings, fit_llmmap
from backend.methods.network import LIMIT, NetworkReadout, NetworkSettings, fit_network
from backend.methods.ngrams import GRAMS, SoftmaxSettings, fit_grams
from backend.methods.probe import LinearProbe, LinearReadout, fit_probe
from backend.methods.representations import FORMS, STORED
from backend.methods.sentence_encoder import PAIR, beginning, embed, reads_of
from backend.methods.stack import CELLS
from backend.proxies.encoding import Encoded
from backend.proxies.reader import Reader, Readout
from backend.traces import Trace
from tests.damaged_enrolments import refuses_damage
from tests.methods.test_ngram_storage import HOSTILE, labelled
from tests.tiny_models import tiny_decoder, tiny_tokenizer

EVEN = np.full((CELLS, 1), 1.0)


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)


@pytest.fixture(scope="module")
def other() -> Reader:
    return Reader(tiny_decoder("gemma3", seed=1), tiny_tokenizer(), compile_blocks=False)


@pytest.fixture(scope="module")
def enrolment(reader: Reader, other: Reader) -> Enrolment:
    """Every head holds a discriminant, a network, a further proxy's probe and both kinds of n-grams."""
    traces, labels = labelled()
    made = enrolment_of_traces(
        traces, labels, reader, name="several", proxy="tiny", weights_hash="f" * 64, view="ur", layer=2
    )
    numbers = np.array([made.sources.index(label) for label in labels])
    read = reader.read(reader.encode(traces, "ur"), [1, 2])
    own = np.concatenate([read[1, "full"], read[2, "full"]], axis=1)
    far = other.read(other.encode(traces, "ur"), [3])[3, "full"]
    fold = np.array(made.folds_of([trace.prompt for trace in traces]))
    heads = []
    for number in range(5):
        seen = np.flatnonzero(fold != number)
        discriminant = ShrinkageDiscriminant().fit(own[seen].astype(np.float32), numbers[seen]).readout_
        shape = NetworkSettings(hidden=6, epochs=20, batch=16, rate=0.01)
        members = [
            Member("tiny", (1, 2), discriminant),
            Member("tiny", (1, 2), fit_network([own], seen, numbers, 3, shape, seed=number)),
            Member("other", (3,), fit_probe(far[seen], numbers[seen], 3)),
        ]
        for kind, grams in GRAMS.items():
            counts = grams.counts([traces[i].response for i in seen])
            few = SoftmaxSettings(epochs=10, batch=16, features=500)
            members.append(Member(kind, (), fit_grams(counts, numbers[seen], 3, few, seed=0)))
        shares = np.linspace(0.1, 0.9, CELLS * len(members)).reshape(CELLS, -1)
        heads.append(Head(Ensemble(tuple(members), shares), (1, 2), number))
    return replace(
        made, heads=tuple(heads), reader="fused/tiny+other/ur", block="several", landing=2, width=made.hidden_size
    )


def test_a_file_gives_the_same_enrolment_again(enrolment: Enrolment, tmp_path: Path) -> None:
    kept = save_enrolment(enrolment, tmp_path / "several.npz")
    again = load_enrolment(tmp_path / "several.npz")
    assert again.sha256 == kept.sha256 == enrolment.sha256
    assert (again.block, again.layers, again.hidden_size, again.place) == ("several", [1, 2], 32, 2)
    assert again.auxiliary == {"other": (3,), **dict.fromkeys(GRAMS, ())}
    for head in again.heads:
        assert isinstance(head.probe, Ensemble)
        assert [type(member.model).__name__ for member in head.probe.members] == [
            "LinearReadout", "NetworkReadout", "LinearProbe", *["GramReadout"] * len(GRAMS),
        ]  # fmt: skip
        assert head.standardiser is None
        with pytest.raises(ValueError, match="no direction"):
            head.odds(0, 0, 1)


def test_damage_is_named(enrolment: Enrolment, tmp_path: Path) -> None:
    small = replace(enrolment, heads=enrolment.heads[:1])
    refuses_damage(small, tmp_path)()


@pytest.mark.parametrize("change", ["kind", "layers", "reads", "shares", "width", "scale", "parts", "block"])
def test_members_that_do_not_belong_together_are_refused(enrolment: Enrolment, tmp_path: Path, change: str) -> None:
    ensemble = enrolment.heads[0].probe
    assert isinstance(ensemble, Ensemble)
    first, network, probe, *texts = ensemble.members
    assert isinstance(probe.model, LinearProbe) and isinstance(first.model, LinearReadout)
    made, layers, block = ensemble, (1, 2), "several"
    if change == "kind":
        made = replace(ensemble, members=(replace(first, layers=()), network, probe, *texts))
    elif change == "layers":
        layers = (1, 2, 3)
    elif change == "reads":
        made = replace(ensemble, members=(first, network, probe, replace(texts[0], reads="letters"), texts[1]))
    elif change == "shares":
        made = replace(ensemble, shares=ensemble.shares[:, :3])
    elif change == "width":
        narrow = replace(first.model, centre=first.model.centre[:-1], weight=first.model.weight[:-1])
        made = replace(ensemble, members=(replace(first, model=narrow), network, probe, *texts))
    elif change == "scale":
        flat = replace(probe.model, scale=probe.model.scale * 0)
        made = replace(ensemble, members=(first, network, replace(probe, model=flat), *texts))
    elif change == "parts":
        short = replace(probe.model, bias=probe.model.bias[:-1])
        made = replace(ensemble, members=(first, network, replace(probe, model=short), *texts))
    else:
        block = "text"
    wrong = replace(enrolment, heads=(Head(made, layers, 0),), block=block)
    save_enrolment(wrong, tmp_path / "wrong.npz")
    with pytest.raises(AtlasError, match=r"wrong.npz is damaged"):
        load_enrolment(tmp_path / "wrong.npz")


def test_scores_are_the_weighed_sum_of_the_members(reader: Reader, other: Reader, enrolment: Enrolment) -> None:
    traces, _ = labelled()
    scored = Attributor(reader, enrolment, others={"other": other}).score(traces).log_posteriors
    first = Attributor(reader, enrolment, others={"other": other}).score(traces[:1]).log_posteriors
    assert np.allclose(first, scored[:1], atol=2e-3)
    read, far = reader.read(reader.encode(traces, "ur"), [1, 2]), other.read(other.encode(traces, "ur"), [3])
    own = np.concatenate([read[1, "full"], read[2, "full"]], axis=1).astype(np.float32)
    fold = enrolment.folds_of([trace.prompt for trace in traces])[7]
    head = enrolment.heads_for(fold)[0]
    assert isinstance(head.probe, Ensemble)
    rows = {
        "tiny": own, "other": far[3, "full"].astype(np.float32),
        **{kind: GRAMS[kind].counts([t.response for t in traces]) for kind in GRAMS},
    }  # fmt: skip
    said = [member.model.log_posterior(rows[member.reads])[7].astype(np.float64) for member in head.probe.members]
    possible = log_softmax(head.probe.shares @ np.array(said), axis=1)
    assert np.abs(possible - scored[7]).max(1).min() < 1e-3
    with pytest.raises(AtlasError, match="also reads with other"):
        Attributor(reader, enrolment)


def test_tokens_add_up_whatever_the_members_read(reader: Reader, other: Reader, enrolment: Enrolment) -> None:
    traces, _ = labelled()
    for trace in [traces[0], traces[-1], *(Trace("New?", text) for text in (*HOSTILE, "lone \ud800 half"))]:
        evidence = token_evidence(reader, enrolment, trace, 2, 0, {"other": other})
        live = Attributor(reader, enrolment, others={"other": other}).score([trace]).log_posteriors[0]
        assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, abs=1e-4, rel=1e-5)
        assert evidence.stored == pytest.approx(float(live[2] - live[0]), abs=1e-3, rel=1e-3)
        assert len(evidence.starts) == len(evidence.stops) == len(evidence.split.tokens)
        assert evidence.cut == 0, "n-grams read all of the text"


def test_a_plane_meets_the_network_at_the_row_and_at_the_mean() -> None:
    rng = np.random.default_rng(3)
    parts = ((20,), (9, 20), (9,), (4, 9), (4,))
    mean, first, inner, last, outer = (rng.normal(size=shape).astype(np.float32) for shape in parts)
    network = NetworkReadout(mean, np.abs(mean) + np.float32(0.3), first, inner, last, outer)
    for factor in (0.0, 1e-9, 0.5, 3.0, 40.0):  # beyond LIMIT deviations coordinates are held
        row = (mean + factor * rng.normal(size=20)).astype(np.float32)
        centre, direction, constant = network.plane(row, 3, 1)
        for at in (row, mean):
            here = network.log_posterior(at[None])[0]
            told = constant if at is mean else float((row - centre) @ direction) + constant
            assert told == pytest.approx(float(here[3] - here[1]), abs=1e-4, rel=1e-5)
    assert (np.abs((row - mean) / network.scale) > LIMIT).any()


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_forms_are_what_the_reader_stores(reader: Reader, length: int) -> None:
    ids = list(np.random.default_rng(length).integers(5, 399, size=length + 3))
    encoded = Encoded([int(i) for i in ids], 3, 0)
    read = reader.read([encoded], [2], Readout(temporal=(2,), positions=(2,)))
    states = reader.states(encoded, [2])[2].astype(np.float64)
    assert {form.variant for form in FORMS.values()} == set(STORED)
    for name, form in FORMS.items():
        stored = read[2, form.variant].astype(np.float64)
        exact = form.of_states(states)
        assert np.allclose(form.columns(stored), exact, atol=2e-3 * np.abs(stored).max()), name
        assert np.array_equal(form.columns(form.stored.of_states(states)), exact), name
        for share in form.token_shares(length):
            assert share is None or share.sum() == pytest.approx(round(float(share.sum())), abs=1e-6), name


def test_embeddings_are_those_of_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    class Letters:
        """An encoder that counts letters."""

        def embed(self, texts: list[str]) -> np.ndarray:
            return np.array([[len(text), text.count("e")] for text in texts], dtype=np.float32)

    traces = [Trace("Same prompt", "e" * 700), Trace("Same prompt", "short"), Trace("Else", "")]
    pairs = embed(Letters(), PAIR, traces)  # type: ignore[arg-type]
    assert pairs.tolist() == [[11, 1, 650, 650], [11, 1, 5, 0], [4, 1, 0, 0]]
    assert embed(Letters(), "r", traces)[:, 0].tolist() == [700, 5, 1]  # type: ignore[arg-type]
    assert (beginning(traces[0]), reads_of("minilm-l6", PAIR)) == ("e" * 650, "minilm-l6:pair")
    with pytest.raises(ValueError, match="not embedded"):
        embed(Letters(), "whole", traces)  # type: ignore[arg-type]


def test_llmmap_is_the_same_out_of_a_file(enrolment: Enrolment, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs, labels = rng.normal(size=(30, 10)).astype(np.float32), np.arange(30) % 3
    model = fit_llmmap(pairs, labels, 3, seed=1, settings=LLMmapSettings(8, 2, 4, epochs=1, batch=10))
    head = Head(Ensemble((Member("bert:pair", (), model),), EVEN), (), None)
    made = replace(enrolment, heads=(head,), reader="llmmap/bert/ur")
    save_enrolment(made, tmp_path / "llmmap.npz")
    again = load_enrolment(tmp_path / "llmmap.npz")
    assert again.sha256 == made.sha256
    kept = again.heads[0].probe
    assert isinstance(kept, Ensemble)
    assert np.array_equal(kept.members[0].model.log_posterior(pairs), model.log_posterior(pairs))
    assert again.layers == [2]


def test_what_rounding_may_change_grows_with_every_share_whatever_its_sign(enrolment: Enrolment) -> None:
    ensemble = enrolment.heads[0].probe
    assert isinstance(ensemble, Ensemble)
    texts, cells = ["One answer.", "another one"], np.array([0, 7])
    read = {"tiny": dict.fromkeys((1, 2), np.ones((2, 64))), "other": {3: np.ones((2, 64))}}
    read |= {kind: GRAMS[kind].counts(texts) for kind in GRAMS}
    turned = replace(ensemble, shares=-ensemble.shares)
    assert (ensemble.magnitude(read, cells) > 0).all()
    assert np.array_equal(turned.magnitude(read, cells), ensemble.magnitude(read, cells))

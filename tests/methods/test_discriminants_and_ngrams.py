"""Discriminants with words beside them as heads of an enrolment: files, live scores, and evidence on every token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from backend.attribution.scoring import Attributor, cells_of_traces
from backend.attribution.token_evidence import heat_map, token_evidence
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import load_enrolment, save_enrolment
from backend.enrolment.fit import enrolment_of_traces
from backend.errors import AtlasError
from backend.methods.discriminant import DiscriminantBank, NgramBank
from backend.methods.ngrams import SoftmaxSettings, coded, counts_of, fit_grams
from backend.methods.stack import CELLS
from backend.proxies.reader import Reader
from backend.traces import Trace
from tests.damaged_enrolments import refuses_damage
from tests.methods.test_ngram_storage import HOSTILE, labelled
from tests.tiny_models import tiny_decoder, tiny_tokenizer


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)


@pytest.fixture(scope="module")
def enrolment(reader: Reader) -> Enrolment:
    traces, labels = labelled()
    made = enrolment_of_traces(
        traces, labels, reader, name="worded", proxy="tiny", weights_hash="f" * 64, view="ur", layer=2, blocks=(1, 2)
    )
    numbers = np.array([made.sources.index(label) for label in labels])
    settings, heads = SoftmaxSettings(epochs=20, batch=8), []
    for head in made.heads:
        fold = np.array(made.folds_of([trace.prompt for trace in traces]))
        seen = np.flatnonzero(fold != head.fold)
        words = coded(fit_grams(counts_of([traces[i].response for i in seen]), numbers[seen], 3, settings, seed=0))
        assert isinstance(head.probe, DiscriminantBank)
        heads.append(replace(head, probe=NgramBank(head.probe, words, np.linspace(0.3, 1.2, CELLS))))
    return replace(made, heads=tuple(heads), reader="fused-live/tiny/ur")


def test_a_file_gives_the_same_enrolment_again(enrolment: Enrolment, tmp_path: Path) -> None:
    path = tmp_path / "worded.npz"
    kept = save_enrolment(enrolment, path)
    again = load_enrolment(path)
    assert again.sha256 == kept.sha256 == enrolment.sha256
    assert all(isinstance(head.probe, NgramBank) for head in again.heads)
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    rows, columns = arrays["head0.words.codes"].shape[0], arrays["head0.words.columns"]
    for wrong in (
        {"head0.words.codes": arrays["head0.words.codes"][:-1]},
        {"head0.words.codes": arrays["head0.words.codes"].astype(np.int16)},
        {"head0.words.columns": columns[::-1].copy()},
        {"head0.words.columns": np.arange(rows, dtype=np.int32) - 1},
        {"head0.words.steps": np.full(rows, np.nan, np.float32)},
        {"head1.word_shares": np.ones(CELLS - 1)},
        {"head2.bank.scale": np.zeros_like(arrays["head2.bank.scale"])},
    ):
        np.savez(path, **(arrays | wrong))
        with pytest.raises(AtlasError, match="damaged"):
            load_enrolment(path)
    mixed = [enrolment.heads[0], replace(enrolment.heads[1], probe=enrolment.heads[1].probe.bank)]
    save_enrolment(replace(enrolment, heads=tuple(mixed)), path)
    with pytest.raises(AtlasError, match="do not read the same"):
        load_enrolment(path)


def test_damaged_files_of_words_are_refused(enrolment: Enrolment, tmp_path: Path) -> None:
    refuses_damage(enrolment, tmp_path)()


def test_live_scores_are_those_of_both_parts(reader: Reader, enrolment: Enrolment) -> None:
    traces, labels = labelled()
    new = [Trace("Another question?", text) for text in (*HOSTILE, "lone \ud800 half")]
    both = [*traces, *new]
    scored = Attributor(reader, enrolment).score(both)
    encoded = reader.encode(both, "ur")
    states = reader.read(encoded, [1, 2])
    rows = np.concatenate([states[1, "full"], states[2, "full"]], axis=1).astype(np.float32)
    cells = cells_of_traces(both, encoded)
    counts = counts_of([trace.response.replace("\ud800", "�") for trace in both])
    each = np.stack(
        [
            log_softmax(
                head.probe.bank.log_posterior(rows, cells)
                + head.probe.word_shares[cells][:, None] * head.probe.words.log_posterior(counts),
                axis=1,
            )
            for head in enrolment.heads
        ]
    )
    for row, fold in enumerate(scored.folds):
        expected = each[:, row].mean(0) if fold is None else each[fold, row]
        np.testing.assert_allclose(scored.log_posteriors[row], expected, atol=0.02)  # batches are padded differently
    truth = [enrolment.sources.index(label) for label in labels]
    assert (scored.log_posteriors[: len(traces)].argmax(1) == truth).mean() > 0.9


def test_tokens_and_the_text_behind_the_window_add_up_to_the_score(reader: Reader, enrolment: Enrolment) -> None:
    traces, _ = labelled()
    long = Trace("long", "STOP THE SERVICE now. " * 2000)
    for trace in [traces[0], traces[30], *(Trace("new", text) for text in (*HOSTILE, "lone \ud800 half")), long]:
        evidence = token_evidence(reader, enrolment, trace, 2, 0)
        assert evidence.split.words is not None
        assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, abs=1e-4)
        assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, abs=1e-4)
        scored = Attributor(reader, enrolment).score([trace]).log_posteriors[0]
        assert evidence.stored == pytest.approx(float(scored[2] - scored[0]), abs=2e-2)
        assert len(evidence.starts) == len(evidence.stops) == len(evidence.split.tokens)
        drawn = heat_map(1, trace.prompt, evidence)
        assert "".join(piece["text"] for piece in drawn["pieces"]) == evidence.response
        assert sum(piece["value"] for piece in drawn["pieces"]) == pytest.approx(evidence.log_odds, abs=1e-4)
        assert (drawn["rest"], evidence.cut) == ("", 0)
    assert evidence.split.states[-1] == 0.0
    assert evidence.split.words is not None and evidence.split.words[-1] != 0.0

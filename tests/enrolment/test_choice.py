"""Any labelled traces get the best method: chosen without the held-out prompts, as rosters are fitted, and served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.attribution.scoring import Attributor
from backend.attribution.token_evidence import token_evidence
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import load_enrolment, save_enrolment
from backend.enrolment.fit import enrolment_of_traces, reading_of
from backend.enrolment.head_fits import (
    AS_ROSTERS,
    AUTO,
    METHODS,
    STEPS,
    Choice,
    Fits,
    choose,
    fit_chosen,
    heads_of,
    inner_scores,
    passes_of,
)
from backend.enrolment.validation_lookup import validation_of
from backend.evaluations.corpus import Corpus, read_corpus
from backend.evaluations.readouts import scores_shape
from backend.methods.ensemble import Ensemble
from backend.methods.ngrams import counts_of
from backend.protocol import FOLDS, balance_rows
from backend.proxies.reader import Reader
from backend.traces import Trace
from tests.methods.test_ngram_storage import HOSTILE, labelled
from tests.tiny_models import tiny_decoder, tiny_tokenizer

PAPER, LDA_LIVE, WORDS, FUSED_LIVE, LINEAR = METHODS
CLASSES, PROMPTS, WIDTH = 4, 25, 6
CLEAN, CUT = "clean", "t64"


def invented(seed: int = 0) -> Corpus:
    """Sources that differ a little in their states and in their words; row = source * P + prompt."""
    rng = np.random.default_rng(seed)
    labels, prompts = np.repeat(np.arange(CLASSES), PROMPTS), np.tile(np.arange(PROMPTS), CLASSES)
    shared, habits = rng.normal(size=(2, PROMPTS, WIDTH)), rng.normal(size=(2, CLASSES, WIDTH))
    noise = rng.normal(size=(2, 2, len(labels), WIDTH))
    rows = {
        (block + 1, condition): shared[block][prompts] + 0.7 * habits[block][labels] + noise[block, cut]
        for block in range(2)
        for cut, condition in enumerate((CLEAN, CUT))
    }
    words = rng.integers(0, 12, (len(labels), 9)) + 4 * labels[:, None]
    texts = [" ".join(f"word{number}" for number in row) + "." for row in words]
    return Corpus(
        lambda block, condition: rows[block, condition].astype(np.float16),
        {CLEAN: texts, CUT: [text[:40] for text in texts]},
        rng.integers(20, 300, len(labels)),
        labels,
        prompts % FOLDS,
        CLASSES,
    )


def fits_of(corpus: Corpus) -> Fits:
    return Fits(corpus, "tiny", (1, 2), {0: 1, 1: 2, 2: 1, 3: 2, 4: 2})


@pytest.fixture(scope="module")
def plain() -> Fits:
    return fits_of(invented())


@pytest.fixture(scope="module")
def choice(plain: Fits) -> Choice:
    return choose(plain)


def spoilt(corpus: Corpus, fold: int) -> Corpus:
    """The same with noise for states, nonsense for texts and other labels in one fold."""
    rng, inside = np.random.default_rng(9), corpus.folds == fold
    labels = corpus.labels.copy()
    labels[inside] = rng.permutation(labels[inside])

    def fingerprints(block: int, condition: str) -> np.ndarray:
        rows = corpus.fingerprints(block, condition).copy()
        rows[inside] = 50 * rng.normal(size=(inside.sum(), rows.shape[1]))
        return rows

    texts = {c: ["xyz" if inside[row] else text for row, text in enumerate(held)] for c, held in corpus.texts.items()}
    return replace(corpus, fingerprints=fingerprints, texts=texts, labels=labels, _counts={})


@pytest.mark.parametrize("fold", [0, 3])
def test_neither_choice_nor_heads_have_seen_their_fold(plain: Fits, choice: Choice, fold: int) -> None:
    corpus, other = plain.corpus, fits_of(spoilt(plain.corpus, fold))
    again = choose(other)
    assert (choice.methods[fold], choice.tunings[fold]) == (again.methods[fold], again.tunings[fold])
    for method in METHODS:
        assert choice.accuracy[method][fold] == again.accuracy[method][fold]
        assert choice.log_score[method][fold] == again.log_score[method][fold]
        assert not np.array_equal(choice.log_score[method], again.log_score[method])
    enrolment = enrolled(plain)
    for method in METHODS:
        first, second = (heads_of(fits, method).heads[fold] for fits in (plain, other))
        test = corpus.take(np.flatnonzero(corpus.folds == fold))
        by_layer = {layer: test.fingerprints(layer, CLEAN) for layer in (1, 2)}
        counts, cells = counts_of(test.texts[CLEAN]), test.cells()[CLEAN]
        said = [
            head.log_posterior(enrolment.coordinates(head, by_layer, counts, {"word": counts}), cells)
            for head in (first, second)
        ]
        np.testing.assert_array_equal(*said)


def enrolled(fits: Fits) -> Enrolment:
    """Something whose heads read two blocks of a proxy; its own heads are of no interest."""
    heads = fits.paper().heads
    nothing = np.zeros(0)
    return Enrolment(
        "x", "reader-paper/tiny/ur", "tiny", "ur", "dc-ac", tuple("abcd"), tuple("abcd"), heads, np.zeros(CLASSES),
        nothing.astype(np.uint64), nothing.astype(np.int16),
    )  # fmt: skip


def test_out_of_fold_scores_are_those_of_the_served_heads(plain: Fits) -> None:
    corpus, enrolment = plain.corpus, enrolled(plain)
    for method in METHODS:
        fitted = heads_of(plain, method)
        assert [head.fold for head in fitted.heads] == list(range(FOLDS))
        for condition, said in fitted.log_posteriors.items():
            np.testing.assert_allclose(np.exp(said).sum(1), 1, atol=1e-4)
            for head in fitted.heads:
                test = corpus.take(np.flatnonzero(corpus.folds == head.fold))
                by_layer = {layer: test.fingerprints(layer, condition) for layer in (1, 2)}
                counts = test.counts()[condition]
                coordinates = enrolment.coordinates(head, by_layer, counts, {"word": counts})
                served = head.log_posterior(coordinates, test.cells()[condition])
                np.testing.assert_allclose(served, said[corpus.folds == head.fold], atol=0.02)
        right = fitted.log_posteriors[CLEAN].argmax(1) == corpus.labels
        assert right.mean() > 1.5 / CLASSES, method


def test_candidates_are_compared_by_known_scores() -> None:
    """A member that is right with probability p for sure has log score log p; sources weigh alike."""
    labels = np.repeat([0, 1], [40, 10])
    corpus = Corpus(
        lambda *_: np.zeros((50, 2)), {CLEAN: ["a."] * 50}, np.full(50, 9), labels, np.arange(50) % FOLDS, 2
    )
    cells = np.zeros(50, dtype=np.intp)
    even = np.full(scores_shape(50, 2), np.log(0.5))
    accuracy, score = inner_scores([even], corpus, cells, 0)
    assert (accuracy, score) == (0.5, pytest.approx(np.log(0.5)))
    biased = even.copy()
    biased[:] = np.log([0.9, 0.1])  # right for the large source alone
    accuracy, _ = inner_scores([biased], corpus, cells, 0)
    assert accuracy == 0.5
    sure = even.copy()
    sure[:, np.arange(50), labels], sure[:, np.arange(50), 1 - labels] = np.log(0.9), np.log(0.1)
    accuracy, score = inner_scores([even, sure], corpus, cells, 0)
    assert accuracy == 1 and score > np.log(0.9)


def test_the_choice_is_the_highest_log_score_and_is_told(plain: Fits, choice: Choice) -> None:
    for fold, method in enumerate(choice.methods):
        assert choice.log_score[method][fold] == max(scores[fold] for scores in choice.log_score.values())
    assert choice.facts["methods"] == list(choice.methods)
    assert set(choice.facts["candidates"]) == set(METHODS)
    assert all(method in line for method, line in zip(METHODS, choice.lines[1:], strict=False))
    assert set(choice.methods) <= set(choice.lines[-1].replace(",", "").split())
    assert len(fit_chosen(plain, choice).heads) == FOLDS


def test_few_traces_get_as_many_steps_as_many() -> None:
    few = invented()
    assert passes_of(few)[0] == 4 and passes_of(few)[1] == STEPS  # a batch holds them all
    rows = np.arange(100).repeat(3000)
    many = replace(
        few, labels=few.labels[rows], texts={c: [held[row] for row in rows] for c, held in few.texts.items()}
    )
    assert passes_of(many) == (4,)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**16), st.lists(st.integers(1, 5), min_size=CLASSES, max_size=CLASSES))
def test_uneven_sources_and_missing_prompts(seed: int, per_fold: list[int]) -> None:
    corpus, rng = invented(seed % 7), np.random.default_rng(seed)
    rows = np.concatenate(
        [
            rng.permutation(np.flatnonzero((corpus.labels == source) & (corpus.folds == fold)))[:n]
            for source, n in enumerate(per_fold)
            for fold in range(FOLDS)
        ]
    )
    some = corpus.take(rng.permutation(rows))
    for method in (PAPER, LDA_LIVE, WORDS):
        said = heads_of(Fits(some, "tiny", (1, 2), dict.fromkeys(range(FOLDS), 1)), method).log_posteriors
        for values in said.values():
            assert values.shape == (len(rows), CLASSES)
            np.testing.assert_allclose(np.exp(values).sum(1), 1, atol=1e-4)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_every_source_gets_as_many_rows(labels: list[int]) -> None:
    numbers = np.array(labels)
    rows = balance_rows(numbers)
    counts = np.bincount(numbers[rows])
    assert set(counts[counts > 0]) == {np.bincount(numbers).max()}
    assert set(rows) == set(range(len(labels))) and (np.diff(rows) >= 0).all()


def test_part_of_a_corpus_is_counted_once() -> None:
    corpus = invented()
    whole, rows = corpus.counts(), np.arange(0, 100, 3)
    part = corpus.take(rows)
    assert (part._counts[CUT] != whole[CUT][rows]).nnz == 0
    assert (part.counts()[CLEAN] != counts_of(part.texts[CLEAN])).nnz == 0
    assert list(part.with_conditions((CLEAN,)).counts()) == [CLEAN]


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)


def enrol(reader: Reader, method: str) -> Enrolment:
    traces, labels = labelled()
    return enrolment_of_traces(
        traces, labels, reader, name="any", proxy="tiny", weights_hash="f" * 64, view="ur", layer=2, blocks=(1, 2),
        method=method,
    )  # fmt: skip


@pytest.mark.parametrize("method", [*METHODS, AUTO])
def test_traces_are_enrolled_and_attributed_by_any_method(reader: Reader, tmp_path: Path, method: str) -> None:
    made = enrol(reader, method)
    kept = save_enrolment(made, tmp_path / "any.npz")
    again = load_enrolment(tmp_path / "any.npz")
    assert again.sha256 == kept.sha256
    chosen = set(made.facts["choice"]["methods"]) if method == AUTO else {method}
    assert made.reader.partition("/")[0] in ({LINEAR} if len(chosen) > 1 else chosen)
    assert {"calibration", "unknown", "stop", "signatures", "validation"} <= {
        n.partition(".")[0] for n in made.attachments
    }
    assert len(validation_of(again)) and made.place == 2
    traces, labels = labelled()
    scored = Attributor(reader, again, "f" * 64).score(traces)
    truth = [made.sources.index(label) for label in labels]
    assert (scored.log_posteriors.argmax(1) == truth).mean() > 0.9
    adds_up(reader, again)


def test_folds_that_choose_differently_are_stacks_of_their_own(reader: Reader, tmp_path: Path) -> None:
    made, (traces, labels) = enrol(reader, PAPER), labelled()
    numbers = np.array([made.sources.index(label) for label in labels])
    folds = np.array(made.folds_of([trace.prompt for trace in traces]))
    corpus = read_corpus(traces, reader, "ur", (1, 2), numbers, folds, len(made.sources))
    fitted = Fits(corpus, "tiny", (1, 2), dict.fromkeys(range(FOLDS), 2)).stacked(METHODS, AS_ROSTERS)
    assert fitted.method == LINEAR
    mixed = replace(made, heads=fitted.heads, **reading_of(LINEAR, "tiny", "ur", 2, reader.hidden_size))
    assert [len(head.probe.members) for head in mixed.heads if isinstance(head.probe, Ensemble)] == [1, 1, 1, 2, 3]
    save_enrolment(mixed, tmp_path / "mixed.npz")
    again = load_enrolment(tmp_path / "mixed.npz")
    scored = Attributor(reader, again, "f" * 64).score(traces)
    np.testing.assert_allclose(scored.log_posteriors, fitted.log_posteriors[CLEAN], rtol=1e-3, atol=0.05)
    adds_up(reader, again)


def adds_up(reader: Reader, enrolment: Enrolment) -> None:
    """Evidence of the tokens of enrolled and of other traces is that of the score."""
    traces, _ = labelled()
    for trace in (traces[0], traces[30], *(Trace("new", text) for text in HOSTILE[:4])):
        evidence = token_evidence(reader, enrolment, trace, 2, 0)
        assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, rel=1e-6, abs=1e-4)
        scored = Attributor(reader, enrolment).score([trace]).log_posteriors[0]
        assert evidence.stored == pytest.approx(float(scored[2] - scored[0]), rel=1e-3, abs=2e-2)

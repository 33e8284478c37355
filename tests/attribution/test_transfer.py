"""Verdicts on labelled traffic: groups, counts, stored fingerprints, and p values that keep their level."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax

from backend.attribution.decision import fitted_statistics_of, measured_with_background
from backend.attribution.scoring import Scored
from backend.attribution.transfer import (
    CLAIMS,
    OUTCOMES,
    LabelledScores,
    Part,
    groups_of,
    held_out_prompts,
    pooled,
    transfer_frame,
    with_balanced_scores,
    with_held_out_mixtures,
)
from backend.corpus.release import Benchmark, Release
from backend.enrolment.enrolment import Enrolment, prompt_table
from backend.enrolment.fit import attached, fit_attachments, prompt_attachments
from backend.enrolment.validation_lookup import matched_validation, validation_of
from backend.errors import AtlasError
from backend.inference.calibration import held_out_groups
from backend.inference.mixture_validation import mixture_frame
from backend.inference.unknown_source import fit_unknown
from backend.inference.validation import validation_arrays
from backend.methods.ensemble import Head
from backend.methods.probe import LinearProbe
from backend.protocol import CLEAN
from backend.proxies.reader import StoredReader
from backend.traces import Trace
from jobs.validate import limits_of
from tests.fake_release import fake_release
from tests.tiny_models import tiny_tokenizer

PROMPTS, CLASSES = 60, 5
FOLDS = np.arange(PROMPTS) % 5
VERBS = ("deploy", "review", "profile", "refactor", "document")
THINGS = ("shell script", "pull request", "database query", "container image")
PLACES = ("on the build server", "for the release branch", "without any downtime")
ASKED = [
    f"How would you {VERBS[i % 5]} the {THINGS[i // 5 % 4]} {PLACES[i // 20]}?"
    for i in np.random.default_rng(9).permutation(PROMPTS)
]
FAMILIES = ("a", "a", "b", "c", "d")


def evidence(shift: float = 0.0, seed: int = 0) -> np.ndarray:
    """Log-posteriors (C * P, C) of sources that are told apart, all moved alike by another topic."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1, (CLASSES * PROMPTS, CLASSES)) + shift * np.array([1, -1, 1, -1, 1])
    logits[np.arange(len(logits)), np.repeat(np.arange(CLASSES), PROMPTS)] += 2.0
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)


def enrolment() -> Enrolment:
    probe = LinearProbe(
        np.zeros(4, np.float32),
        np.ones(4, np.float32),
        np.zeros((4, CLASSES), np.float32),
        np.zeros(CLASSES, np.float32),
    )
    found = fit_attachments({"clean": evidence()}, FOLDS, families=FAMILIES) | prompt_attachments(ASKED, FOLDS)
    return Enrolment(
        name="five", reader="reader-paper/tiny/ur", proxy="tiny", view="ur", block="dc-ac",
        sources=tuple("vwxyz"), families=FAMILIES, heads=(Head(probe, (1,)),),
        log_prior=np.full(CLASSES, -np.log(CLASSES)), prompts=np.empty(0, np.uint64), folds=np.empty(0, np.int16),
        attachments=found,
    )  # fmt: skip


def labelled(known: Enrolment, prompts: list[str], scores: np.ndarray) -> LabelledScores:
    labels = np.repeat(np.arange(CLASSES), PROMPTS)
    reference = known.prompt_reference
    assert reference is not None
    scored = Scored(
        scores, np.full(len(scores), 80), (None,) * len(scores), np.zeros(4), np.zeros((len(scores), 4), np.float16),
        True, 1.0, "tiny",
    )  # fmt: skip
    return LabelledScores(scored, labels, reference.score(prompts * CLASSES))


def test_groups_are_of_one_source_and_fill() -> None:
    labels = np.array([0] * 7 + [1] * 12 + [2] * 3)
    groups = groups_of(labels, 4, 42)
    assert [source for _, source in groups] == [0, 1, 1, 1]
    for rows, source in groups:
        assert len(set(rows.tolist())) == 4 and (labels[rows] == source).all()


def test_runs_are_pooled_by_their_groups() -> None:
    one = pd.DataFrame({"k": [5], "metric": ["wrong"], "scenario": ["category"], "value": [0.5], "n": [10]})
    out = pooled([one, one.assign(value=0.1, n=30)])
    assert out.to_dict("records") == [
        {"k": 5, "metric": "wrong", "scenario": "category", "value": pytest.approx(0.2), "n": 40}
    ]


def test_another_topic_is_flagged_and_nothing_is_said_there() -> None:
    known = enrolment()
    maths = [
        f"Prove that the integral of x to the power {i} over a compact set converges uniformly" for i in range(PROMPTS)
    ]
    rows = labelled(known, maths, evidence(shift=4.0, seed=1))
    frame = transfer_frame(known, rows, "math100", budgets=(1, 5, 10)).set_index(["k", "metric"])["value"]
    for k in (5, 10):
        assert frame[k, "flagged"] == 1.0 and frame[k, "false_unknown"] == frame[k, "wrong"] == 0.0
        assert frame[k, "rejected"] > 0.5, "the test of the responses alone calls enrolled sources unknown"
        for claim in CLAIMS:
            assert sum(frame[k, f"{claim}_{outcome}"] for outcome in OUTCOMES) == pytest.approx(1)
            assert frame[k, f"{claim}_INCONCLUSIVE"] == 1.0


def test_the_enrolled_kind_is_answered() -> None:
    known = enrolment()
    scores, reference = held_out_prompts(ASKED, FOLDS)
    rows = replace(labelled(known, ASKED, evidence(seed=2)), prompts=scores.take(np.tile(np.arange(PROMPTS), CLASSES)))
    frame = transfer_frame(known, rows, "same", budgets=(1, 5, 10), reference=reference)
    value = frame.set_index(["k", "metric"])["value"]
    assert value[1, "true_INCONCLUSIVE"] == 1.0, "one trace is never enough"
    assert value[10, "flagged"] <= 0.1 and value[10, "false_unknown"] <= 0.2
    assert value[10, "leader"] > 0.9 and value[10, "wrong"] == 0.0


def test_p_values_of_enrolled_groups_keep_their_level() -> None:
    labels, blocks = np.repeat(np.arange(CLASSES), PROMPTS), np.tile(FOLDS, CLASSES)
    shares = []
    for seed in range(4):
        fitted = fit_unknown(evidence(seed=seed), labels, blocks, budgets=[5], draws=200)
        drawn = [evidence(seed=100 + one).reshape(CLASSES, -1, 5, CLASSES).mean(2) for one in range(20)]
        groups = np.concatenate(drawn).reshape(-1, CLASSES)
        shares.append((fitted.p_none(groups, 5) <= 0.05).mean())
    assert 0.02 < np.mean(shares) < 0.1
    plain = replace(fitted, realised=None)
    order = np.argsort(plain.p_none(groups, 5), kind="stable")
    assert (np.diff(fitted.p_none(groups, 5)[order]) >= 0).all(), "the order of groups stays"
    again = type(fitted).from_arrays(fitted.to_arrays())
    np.testing.assert_array_equal(again.p_none(groups, 5), fitted.p_none(groups, 5))


def test_reports_say_what_verdicts_are_worth_on_other_traffic() -> None:
    rows = [
        {"condition": "clean", "part": "calibration", "k": 10, "metric": "accuracy_after", "value": 0.9, "n": 50},
        *(
            {"condition": "clean", "part": "transfer", "k": 10, "metric": metric, "scenario": "math100", "value": 0.25,
             "n": 8}
            for metric in ("false_unknown", "rejected")
        ),
    ]  # fmt: skip
    known = replace(enrolment(), attachments=validation_arrays(pd.DataFrame(rows)))
    told = matched_validation(known, np.full(10, 80), 10)
    assert told is not None
    said = [row["sentence"] for row in told["rows"] if row["part"] == "transfer"]
    assert said == [
        "Of 8 answers on 10 traces to mathematical problems, which were not enrolled, 25.0 % were UNKNOWN although the "
        "source is enrolled.",
        None,
    ]


def test_stored_fingerprints_are_read_in_their_order_and_again() -> None:
    arrays = {(1, "full"): np.arange(24, dtype=np.float16).reshape(6, 4), (2, "full"): np.zeros((6, 4), np.float16)}
    reader = StoredReader(arrays, tiny_tokenizer(), "fused", 3)
    encoded = reader.encode([Trace("a prompt", "an answer")] * 4, "ur")
    assert all(one.response_tokens >= 1 for one in encoded)
    assert reader.read(encoded, [1])[1, "full"].tolist() == arrays[1, "full"][:4].tolist()
    assert reader.read(encoded[:2], [1])[1, "full"].tolist() == arrays[1, "full"][4:].tolist()
    assert reader.read(encoded, [1])[1, "full"].tolist() == arrays[1, "full"][:4].tolist()


def read_by_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, benchmark: Benchmark, moved: tuple[int, ...]
) -> tuple[Enrolment, Release, list[str], np.ndarray]:
    """An enrolment of a release that has its sources' scores for states, its prompts, and those states."""
    release, rng = Release(fake_release(tmp_path, prompts=60, math_prompts=60)), np.random.default_rng(3)
    asked = [str(prompt) for prompt in release.prompts(benchmark)["prompt"]]
    states = rng.normal(moved, 1, (CLASSES * len(asked), CLASSES))
    states[np.arange(len(states)), np.repeat(np.arange(CLASSES), len(asked))] += 3
    traces = [Trace(prompt, "an answer") for _ in range(CLASSES) for prompt in asked]
    arrays = {(1, "full"): np.pad(states, ((0, 0), (0, 5))).astype(np.float16)}
    part = Part("tiny", "fused", list("vwxyz"), list(FAMILIES), traces, arrays)
    eye = np.concatenate([np.eye(CLASSES, dtype=np.float32), np.zeros((5, CLASSES), np.float32)])
    probe = LinearProbe(np.zeros(10, np.float32), np.ones(10, np.float32), eye, np.zeros(CLASSES, np.float32))
    facts = {"roster": "165-way", "benchmark": "agent500"}
    known = replace(enrolment(), heads=(Head(probe, (1,)),), facts=facts)
    monkeypatch.setattr(Part, "of", lambda *_: part)
    monkeypatch.setattr(Part, "reader", lambda self: StoredReader(self.arrays, tiny_tokenizer(), self.engine, 3))
    return known, release, asked, states


def test_an_enrolment_answers_with_a_pool_once_another_benchmark_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heads score the responses to prompts that nobody enrolled; the rest of it stays what it was."""
    moved = (3, -3, 3, -3, 3)  # another topic moves all alike
    known, release, asked, _ = read_by_identity(tmp_path, monkeypatch, "math100", moved)
    assert not measured_with_background(known, asked)
    found = with_balanced_scores(known, release, "math100")
    assert measured_with_background(found, asked) and not measured_with_background(found, ASKED)
    assert found.facts["background"] | {"benchmark": "math100", "prompts": len(asked)} == found.facts["background"]
    assert all(np.array_equal(found.attachments[name], array) for name, array in known.attachments.items())
    rows = validation_of(found).query("condition == 'background' and metric == 'accuracy_after'")
    assert rows["value"].max() > 0.9
    again = with_balanced_scores(found, release, "math100")
    for name, array in found.attachments.items():
        np.testing.assert_array_equal(again.attachments[name], array, name)
    with pytest.raises(AtlasError, match="not of other prompts and the same sources as agent500"):
        with_balanced_scores(known, release, "agent500")


def test_an_enrolment_weighs_mixtures_and_choices_once_enrolled_prompts_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every prompt is scored by the head of its fold, and by none that saw it."""
    known, release, asked, states = read_by_identity(tmp_path, monkeypatch, "agent500", (0,) * CLASSES)
    hashes, folds = prompt_table(asked, FOLDS[: len(asked)].tolist())
    turned = [np.roll(np.eye(10, CLASSES, dtype=np.float32), fold, axis=1) for fold in range(5)]
    probes = [
        LinearProbe(np.zeros(10, np.float32), np.ones(10, np.float32), one, np.zeros(CLASSES, np.float32))
        for one in turned
    ]
    known = replace(known, prompts=hashes, folds=folds, heads=tuple(Head(one, (1,), f) for f, one in enumerate(probes)))
    columns = (np.arange(CLASSES) - np.tile(FOLDS, CLASSES)[:, None]) % CLASSES
    scores = log_softmax(np.take_along_axis(states, columns, axis=1), axis=1)
    before = fit_attachments({CLEAN: scores}, FOLDS)
    known = replace(known, attachments={n: a for n, a in before.items() if not n.startswith("mixture")})
    assert fitted_statistics_of(known).mixture is None and fitted_statistics_of(known).groups is None
    found = with_held_out_mixtures(known, release, "agent500")
    for name in ("nulls", "detectable", "margins"):
        np.testing.assert_allclose(
            found.attachments[f"mixture.{name}"], before[f"mixture.{name}"], rtol=2e-2, atol=2e-2
        )
    statistics = fitted_statistics_of(found)
    assert statistics.mixture is not None and statistics.groups is not None
    chosen = statistics.groups.among(np.array([0, 2]), 10)
    assert chosen is not None and chosen["groups"] > 3
    assert found.facts["mixture"]["prompts"] == len(asked)
    groups, family = {k: held_out_groups(scores, FOLDS, k) for k in (1, 5, 10)}, np.array([0, 0, 1, 2, 3])
    twin, rows = mixture_frame(scores, FOLDS, groups, family), validation_of(found).query("part == 'mixture'")
    assert rows["metric"].tolist() == twin["metric"].tolist() and rows["k"].tolist() == twin["k"].tolist()
    shares = rows["metric"].str.startswith("share_")
    np.testing.assert_allclose(rows[shares]["value"], twin[shares.to_numpy()]["value"], atol=0.03)
    again = with_held_out_mixtures(found, release, "agent500")
    assert len(validation_of(again)) == len(validation_of(found))
    with pytest.raises(AtlasError, match="need two prompts of every fold"):
        with_held_out_mixtures(replace(known, heads=known.heads[:1]), release, "agent500")


def test_numbers_of_prompts() -> None:
    assert limits_of(None) == {}
    assert limits_of("7") == {"agent500": 7, "math100": 7}
    assert limits_of("agent500:100,math100:50") == {"agent500": 100, "math100": 50}
    for wrong in ("x", "agent500:0", "other:3"):
        with pytest.raises(AtlasError):
            limits_of(wrong)


def test_the_reference_of_prompts_travels_with_an_enrolment() -> None:
    known = enrolment()
    assert known.prompt_reference is not None
    assert attached({"prompts": known.prompt_reference}).keys() == prompt_attachments(ASKED, FOLDS).keys()

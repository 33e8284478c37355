"""A choice of candidates: what is weighed among them, what guards it, and the way through report and verification."""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from backend.attribution.decision import Findings, among, find, fitted_statistics_of
from backend.attribution.report import UNVALIDATED_CHOICE, choice_sentences
from backend.attribution.report_page import headline, write_html
from backend.attribution.run import checked
from backend.attribution.settings import Settings, command_of, entries_of, joined, settings_of
from backend.enrolment.catalogue import candidate_numbers
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import attached, fit_attachments
from backend.errors import AtlasError
from backend.inference.calibration import Calibration, cross_fitted, held_out_groups, normalised
from backend.inference.candidates import UNVALIDATED_CHOICE as REASON
from backend.inference.candidates import HeldOutGroups, weigh_choice
from jobs import attribute
from tests.attribution.test_fitted_statistics import FAMILIES, SOURCES, enrolment, scored
from tests.attribution.test_verify import ENROLMENT, run, sealed, validation, verified

BIAS = np.linspace(-0.3, 0.3, 8)
CALIBRATED = Calibration(
    np.array([1, 5, 10]), np.array([0.9, 0.7, 0.5]), np.outer([0.9, 3.5, 5.0], BIAS), np.array([9000, 1800, 900])
)


def groups_of(rng: np.random.Generator, sure: float, k: int = 10) -> HeldOutGroups:
    """Groups of ten whose posteriors lead to their source, as surely as is said."""
    truth = np.repeat(np.arange(8), 40)
    logits = rng.normal(0, 1, (len(truth), 8))
    logits[np.arange(len(truth)), truth] += sure
    return HeldOutGroups({k: truth.astype(np.int16)}, {k: normalised(logits).astype(np.float16)})


def known(groups: HeldOutGroups | None = None) -> Enrolment:
    made = validation(enrolment(calibration=CALIBRATED))
    parts = {} if groups is None else attached({"groups": groups})
    return replace(made, attachments={**made.attachments, **parts})


def rows_of(*means: float, n: int = 10, seed: int = 0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 0.1, (n, 8)) + np.array(means)
    return logits - logsumexp(logits, axis=1, keepdims=True)


def weighed(rows: np.ndarray, entries: tuple[str, ...], claimed: str | None = None, **more: Any) -> Findings:
    made = known(more.pop("groups", None))
    numbers = candidate_numbers(made, entries)
    return find(
        scored(rows), made, claimed, candidates=numbers, companions=fitted_statistics_of(made), orders=20, **more
    )


def test_posteriors_among_candidates_are_those_of_all_renormalised() -> None:
    """By hand, from scale, bias and sums of three sources, in the order of the enrolment whatever was typed."""
    rows = rows_of(1, 0.9, 0.8, 0, 0, 0, 0, 0)
    found, every = weighed(rows, ("f", "a", "c")), weighed(rows, ())
    chosen = np.array([0, 2, 5])
    assert found.candidates is not None and found.candidates.tolist() == chosen.tolist()
    single = rows.astype(np.float32).astype(np.float64)
    logits = 0.5 * (single + np.log(8)).sum(0)[chosen] + 5.0 * BIAS[chosen]
    expected = np.exp(logits - logsumexp(logits))
    assert np.exp(found.log_posterior[chosen]) == pytest.approx(expected, abs=1e-9)
    assert np.exp(every.log_posterior[chosen] - logsumexp(every.log_posterior[chosen])) == pytest.approx(expected)
    assert np.isneginf(np.delete(found.log_posterior, chosen)).all()
    assert np.isnan(np.delete(found.scores, chosen)).all()
    assert found.scores[chosen] == pytest.approx(every.scores[chosen])
    assert found.log10_ratios[chosen] == pytest.approx(every.log10_ratios[chosen]), "of two sources it is the same"
    assert {found.subject, found.leader, found.rival, found.contributions.rival} <= set(chosen.tolist())
    assert set(found.running[:, 3].astype(int)) | set(found.contributions.leader_without.tolist()) <= set(chosen)
    assert found.running[-1, 1] == pytest.approx(found.log10_others) and len(found.running) == 10
    assert sum(found.family.probabilities) == pytest.approx(1)
    assert found.unknown_p == every.unknown_p and found.stop == every.stop


def test_a_prior_is_one_of_the_candidates() -> None:
    rows, made = rows_of(1, 1, 1, 0, 0, 0, 0, 0), known()
    settings = Settings(candidates=("a", "b", "c"), prior={"a": 3.0, "b": 1.0})
    prior, _ = checked(made, settings)
    assert np.exp(prior) == pytest.approx([0.6, 0.2, 0.2])
    found, even = (weighed(rows, settings.candidates, prior=one) for one in (prior, None))
    assert found.log_posterior[0] - found.log_posterior[1] == pytest.approx(
        even.log_posterior[0] - even.log_posterior[1] + np.log(3)
    )
    for wrong in ({"claimed": "d"}, {"prior": {"d": 1.0}}):
        with pytest.raises(AtlasError, match="none of the candidates"):
            checked(made, replace(settings, **wrong))  # type: ignore[arg-type]


def test_traces_of_a_source_outside_are_held_against_all_candidates() -> None:
    """'h' wrote them; of the candidates 'a' is ahead by far."""
    rows = rows_of(2, 0, 0, 0, 0, 0, 0, 5)
    for claimed in (None, "a", "b"):
        found = weighed(rows, ("a", "b", "c"), claimed, groups=groups_of(np.random.default_rng(0), 3.0))
        assert (found.verdict.outcome, found.verdict.level, found.verdict.outside) == ("AGAINST", "candidates", "h")
        assert "outside of the candidates (h)" in found.verdict.reason
        assert (
            "speak against all candidates" in found.statements.sentence
            and "h, which is none of them, scores highest" in found.statements.sentence
        )
        assert not found.statements.stated and found.statements.strength is None
        assert "Add h to the candidates" in found.statements.next_steps[0]


def test_a_better_source_outside_lets_no_candidate_be_supported() -> None:
    rows = rows_of(3, 0, 0, 0, 0, 0, 0, 3.2)
    found = weighed(rows, ("a", "b", "c"), groups=groups_of(np.random.default_rng(0), 3.0))
    assert np.exp(found.log_posterior[0]) > 0.99, "among the candidates it is clear"
    assert (found.verdict.outcome, found.verdict.level) == ("INCONCLUSIVE", "candidates")
    assert "a source outside of the candidates fits better (h)" in found.statements.sentence
    refuted = weighed(rows, ("a", "b", "c"), "b", groups=groups_of(np.random.default_rng(0), 3.0))
    assert (refuted.verdict.outcome, refuted.verdict.level) == ("AGAINST", "source"), "a claim may still be refuted"


def test_few_candidates_are_not_refuted_by_traces_that_say_nothing() -> None:
    """Two of eight have a share of a quarter, and two of 165 one of .012, before any trace is read."""
    found = weighed(rows_of(*[0] * 8), ("a", "b"))
    assert found.verdict.outcome == "INCONCLUSIVE"
    names = tuple(map(str, range(165)))
    even = weigh_choice(np.full(165, -np.log(165)), names, np.array([3, 4]), -9.0)
    assert even.share < 0.05 and even.log10_lr == pytest.approx(0, abs=1e-9)


def test_without_held_out_groups_nothing_more_is_supported_than_among_all() -> None:
    close = rows_of(3, 0, 2.5, 0, 0, 0, 0, 0)
    assert weighed(close, ()).verdict.outcome == "INCONCLUSIVE"
    found = weighed(close, ("a", "b"))
    assert (found.verdict.outcome, found.verdict.reason) == ("INCONCLUSIVE", REASON)
    assert "--held-out" in found.statements.next_steps[0]
    measured = weighed(close, ("a", "b"), groups=groups_of(np.random.default_rng(0), 3.0))
    assert measured.verdict.outcome == "SUPPORTS" and "the other candidates" in measured.statements.sentence
    clear = weighed(rows_of(5, 0, 0, 0, 0, 0, 0, 0), ("a", "b"))
    assert clear.verdict.outcome == "SUPPORTS" and clear.among is None


def test_stated_and_realised_are_counted_among_just_the_candidates() -> None:
    groups = groups_of(np.random.default_rng(1), 1.0)
    chosen = np.array([1, 4, 6])
    found = groups.among(chosen, 12)
    assert found is not None and (found["candidates"], found["traces"], found["groups"]) == (3, 10, 120)
    own = np.isin(groups.truth[10], chosen)
    logits = groups.log_posteriors[10][own][:, chosen].astype(np.float64)
    share = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert found["stated"] == pytest.approx(share.max(1).mean())
    assert found["realised"] == pytest.approx((chosen[share.argmax(1)] == groups.truth[10][own]).mean())
    assert found["sentence"].startswith(f"Among these 3 candidates: stated {found['stated']:.3f}, realised ")
    again = HeldOutGroups.from_arrays(groups.to_arrays(), 8).among(chosen, 19)
    assert again is not None and again["traces"] == 10 and groups.among(chosen, 9) is None, "no more than were given"
    assert again is not None and again["realised"] == found["realised"] and again["groups"] == 120
    assert again["stated"] == pytest.approx(found["stated"], abs=2e-3)
    earlier = {f"{part}-10": getattr(groups, part)[10] for part in ("truth", "log_posteriors")}
    assert HeldOutGroups.from_arrays(earlier, 8).among(chosen, 12) == groups.among(chosen, 12)
    with pytest.raises(ValueError, match="not of these sources"):
        HeldOutGroups.from_arrays(groups.to_arrays(), 7)
    damaged = replace(known(), attachments={**known().attachments, "groups.truth-10": np.array([1])})
    with pytest.raises(AtlasError, match="is damaged"):
        fitted_statistics_of(damaged)


def test_enrolling_keeps_calibrated_answers_of_other_folds_where_it_is_told_to() -> None:
    rng = np.random.default_rng(2)
    folds = np.repeat(np.arange(5), 6)
    truth = np.repeat(np.arange(4), 30)
    logits = rng.normal(0, 1, (120, 4))
    logits[np.arange(120), truth] += 1.5
    scores = {"clean": normalised(logits).astype(np.float32)}
    plain, more = (fit_attachments(scores, folds, held_out=held_out) for held_out in (False, True))
    assert {name for name in more if name not in plain} == {
        "groups.truth-5", "groups.codes-5",
    }  # fmt: skip
    assert all(np.array_equal(more[name], plain[name]) for name in plain), "nothing else changes"
    by_budget = {k: held_out_groups(scores["clean"], folds, k) for k in (1, 5)}
    expected = cross_fitted(by_budget, None)[5][: len(more["groups.truth-5"])]
    kept = HeldOutGroups.from_arrays({name.removeprefix("groups."): more[name] for name in more}, 4).log_posteriors[5]
    assert np.exp(kept.astype(np.float64)) == pytest.approx(np.exp(expected), abs=0.01)
    assert np.bincount(more["groups.truth-5"]).tolist() == [5, 5, 5, 5]


def test_names_that_nobody_enrolled_are_refused_with_the_nearest() -> None:
    made = replace(
        known(), sources=("gpt_4o", "gpt_5", "claude_3", *SOURCES[3:]), families=("gpt", "gpt", *FAMILIES[2:])
    )
    for entries, words in (
        (("gpt-4o", "gpt_5"), "'gpt-4o' is not enrolled"),
        (("family:gtp", "gpt_5"), "'family:gtp' is not enrolled"),
        (("gpt_5", "gpt_5"), "the only candidate"),
    ):
        with pytest.raises(AtlasError, match=words) as refused:
            candidate_numbers(made, entries)
        assert "enrol it: python -m jobs collect, then python -m jobs enroll" in refused.value.remedy
    with pytest.raises(AtlasError) as refused:
        candidate_numbers(made, ("gpt 4o", "gpt_5"))
    assert "such as gpt_4o" in refused.value.remedy
    numbers = candidate_numbers(made, ("claude_3", "family:gpt"))
    assert numbers is not None and numbers.tolist() == [0, 1, 2]
    assert among(made, numbers).sources == ("gpt_4o", "gpt_5", "claude_3")
    assert candidate_numbers(made, ()) is None and among(made, None) is made


@pytest.mark.parametrize("entries", [("a", "b"), ("a, or b", 'say "c"', "family:x y"), ("=1+1", "b,"), ()])
def test_labels_with_commas_go_through_the_command_line(entries: tuple[str, ...]) -> None:
    assert entries_of(joined(entries)) == entries
    parser = argparse.ArgumentParser()
    attribute.configure(parser)
    words = shlex.split(command_of("t.jsonl", "mine", Settings(candidates=entries)))
    assert ("--candidates" in words) == bool(entries)
    assert entries_of(parser.parse_args(words[4:]).candidates) == entries
    assert entries_of(" a , b ,") == ("a", "b")


CHOSEN = Settings(enrolment="invented", orders=20, candidates=("c-three", "family:A"))


@pytest.mark.parametrize(
    "settings", [CHOSEN, replace(CHOSEN, claimed="two", prior={"two": 3.0, "a-one": 0.7}, also=("further",))]
)
def test_a_report_of_candidates_is_computed_again(settings: Settings) -> None:
    report = run(settings).report
    reference = report["reference"]
    assert reference["sources"] == ["a-one", "two", "c-three"] and reference["left_out"] == ["d-four"]
    assert reference["candidates"] == ["c-three", "family:A"] and len(reference["prior"]) == 3
    assert {row["source"] for row in report["results"]["candidates"]} == set(reference["sources"])
    assert all(row["sources"] == 3 for row in report["results"]["readers"])
    assert {trace["nearest"] for trace in report["traces"]} <= set(reference["sources"])
    assert choice_sentences(report) == [
        "Weighed among 3 of the 4 enrolled sources, which were chosen beforehand.", UNVALIDATED_CHOICE,
    ]  # fmt: skip
    assert UNVALIDATED_CHOICE in report["limits"]
    read = settings_of(report, "invented", lambda _: "further")
    assert read.candidates == settings.candidates
    page = write_html(report)
    assert "1 enrolled sources are no candidates: d-four." in page and "Compared with 3 candidates." in page
    assert verified(report).found == ()
    forged = json.loads(json.dumps(report))
    forged["reference"]["left_out"] = []
    assert any("left out" in sentence for sentence in verified(sealed(forged)).found)


def test_a_report_among_all_sources_does_not_change() -> None:
    report = run(Settings(enrolment="invented", orders=20)).report
    assert choice_sentences(report) == []
    assert set(report["reference"]) == {"enrolment", "sources", "families", "prior", "prior_statement"}
    assert "candidates" not in json.dumps(report["steps"]) and "no candidate" not in json.dumps(report["propositions"])
    assert len(ENROLMENT.sources) == len(report["reference"]["sources"])


def test_a_source_outside_is_the_headline() -> None:
    results = {"level": "candidates", "verdict": "AGAINST", "claimed": "a", "subject": "a", "candidates": []}
    assert headline({"results": results}) == "No: none of the candidates"

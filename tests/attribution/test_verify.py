"""Everything in a report is compared with a second run, and no report that somebody wrote by hand breaks that."""

from __future__ import annotations

import copy
import io
import itertools
import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dash import html
from hypothesis import given, settings
from hypothesis import strategies as st

import backend.attribution.run
from atlas.pages.attribute.comparison_answers import PAGE_UNSEEN, QUOTED, check_answer
from backend.attribution import verify as differences
from backend.attribution.report import (
    digest,
    encoded,
    log_posteriors_of,
    next_step,
    with_confusions,
    write_csv,
    write_json,
)
from backend.attribution.report_page import write_html
from backend.attribution.report_words import confusion_words, in_words, verdict_words, with_names
from backend.attribution.run import AuditResult, audit
from backend.attribution.scoring import Scored, Selection
from backend.attribution.settings import Settings, settings_of
from backend.attribution.token_evidence import Split, TokenEvidence
from backend.attribution.verify import (
    OWN_HASH,
    PAGE,
    Check,
    alterations,
    compared,
    fitting,
    read_report,
    selection_for,
    steps_of,
    unlike,
    with_page,
)
from backend.enrolment.enrolment import Enrolment, prompt_table
from backend.enrolment.fit import attached
from backend.errors import AtlasError
from backend.inference.calibration import Calibration
from backend.inference.domain_shift import Traffic
from backend.inference.sequential_stop import StopRule
from backend.inference.validation import validation_arrays
from backend.intake import COMMAND_LINE, Columns, Limits, inspect
from backend.methods.ensemble import Head
from backend.methods.probe import LinearProbe
from backend.store.database import Generation, default_data_folder
from backend.traces import Trace

Report = dict[str, Any]
Forgery = Callable[[Report], Any]
SOURCES, FAMILIES = ("a-one", "two", "c-three", "d-four"), ("A", "A", "C", "D")
CLAIMED = "two"
D = 3
ENGINE, OTHER = "tiny, float32, cpu", "tiny, bfloat16, cuda"
GOOD, BAD = 9, 6


def line(response: str | None, number: int) -> str:
    return json.dumps({"prompt": f"p{number}", "response": response, "time": f"2026-01-{number + 1:02}"})


LINES = [
    *(line(f"for, and long enough {i}", i) for i in range(GOOD)),
    "{broken",
    *(line(f"against it {i}", GOOD + i) for i in range(BAD)),
    line("for, and long enough 0", 0),
    line(None, 20),
]
FILE = "\n".join(LINES).encode()


def validation(enrolment: Enrolment) -> Enrolment:
    rows = [
        {"condition": "clean", "part": "calibration", "metric": metric, "k": 5, "n": 40, "value": value}
        for metric, value in (("accuracy_after", 0.7), ("ece_after", 0.1))
    ]
    frame = pd.DataFrame(rows).assign(scenario="", statistic="", rule="", space="", level=np.nan, std=0.01)
    return replace(enrolment, attachments={**enrolment.attachments, **validation_arrays(frame)})


def invented(name: str) -> Enrolment:
    rng = np.random.default_rng(1)
    probe = LinearProbe(
        rng.normal(size=2 * D).astype(np.float32), np.full(2 * D, 2.0, np.float32),
        rng.normal(size=(2 * D, 4)).astype(np.float32), np.zeros(4, np.float32),
    )  # fmt: skip
    hashes, folds = prompt_table(["p1"], [0])
    fitted = Calibration(np.array([1, 5, 20]), np.full(3, 0.8), np.zeros((3, 4)), np.full(3, 500))
    return validation(
        Enrolment(
            name=name, reader="reader-paper/tiny/ur", proxy="tiny", view="ur", block="dc-ac", sources=SOURCES,
            families=FAMILIES, heads=(Head(probe, (2,)),), log_prior=np.full(4, -np.log(4)), prompts=hashes,
            folds=folds,
            attachments=attached({"calibration": fitted, "stop": StopRule(0.05, 3.0, 1.0, 1.0)})
            | {"signatures.vectors": rng.normal(0.5, 1.0, size=(4, 2 * D))},
        )
    )  # fmt: skip


class Invented:
    """An attributor whose scores are made of the texts; another engine adds noise, and somebody may stop it."""

    def __init__(self, enrolment: Enrolment, engine: str = ENGINE, noise: float = 0.0, most: int | None = None) -> None:
        self.enrolment, self.reader = enrolment, None
        self.others: dict[str, Any] = {}
        self._engine, self._noise, self._most = engine, noise, most

    def score(self, traces: Iterable[Trace], **_: Any) -> Scored:
        read = list(itertools.islice(traces, self._most))
        logits = np.empty((len(read), 4))
        for row, trace in zip(logits, read, strict=True):
            rng = np.random.default_rng(zlib.crc32(trace.response.encode()))
            row[:] = rng.normal(0, 0.4, 4) + ([0.8, 2.1, 0, 0] if "for" in trace.response else [1.6, 0, 0.6, 0])
            row += self._noise * rng.choice([-1, 1], 4)
        scores = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        folds = self.enrolment.folds_of([trace.prompt for trace in read])
        return Scored(
            scores.astype(np.float32), np.full(len(read), 40), tuple(folds), np.ones(2 * D), None,
            self._most is None, 1.0, self._engine, Traffic("like", 0.5, len(read)),
        )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _token_evidence() -> Any:
    """Two tokens of every trace that is shown."""

    def evidence(_: Any, enrolment: Enrolment, trace: Trace, source: int, rival: int, __: Any) -> TokenEvidence:
        half, end = 4, len(trace.response)
        split = Split(np.array([0.5, 0.25]), 0.0)
        names = enrolment.sources[source], enrolment.sources[rival]
        return TokenEvidence(*names, trace.response, (0, half), (half, end), split, 0.75, 0.75, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend.attribution.run, "token_evidence", evidence)
        yield


ENROLMENT, FURTHER = invented("invented"), invented("further")


def run(
    asked: Settings, content: bytes = FILE, selection: Selection | None = None, limits: Limits = COMMAND_LINE,
    **how: Any,
) -> AuditResult:  # fmt: skip
    others = [Invented(FURTHER)] if asked.also else []
    stream = io.BytesIO(content)
    layout = inspect(stream, "t.jsonl", asked.columns, limits, asked.encoding)
    return audit(  # type: ignore[arg-type]
        stream, layout, Invented(ENROLMENT, **how), asked, selection, limits=limits, version="v", command="attribute",
        others=others,
    )  # fmt: skip


ASKED = Settings(enrolment="invented", claimed=CLAIMED, orders=20, show=2, also=("further",))


@pytest.fixture(scope="module")
def report() -> Report:
    return run(ASKED).report


def verified(
    report: Report, content: bytes = FILE, limits: Limits = COMMAND_LINE, encoding: str | None = None
) -> Check:
    """As the page and the verb verify."""
    known = {FURTHER.sha256: FURTHER.name}
    own = settings_of(report, ENROLMENT.name, known.get)
    asked, layout = fitting(own, report["input"].get("sha256"), io.BytesIO(content), "t.jsonl", limits, encoding)
    again = run(asked, content, selection_for(report, layout.sha256, limits), limits)
    return compared(report, again.report, ENROLMENT, again.scored.mean)


def chained(report: Report, steps: list[tuple[str, Any]]) -> Report:
    """With these steps, and hashes that fit."""
    chain: list[dict[str, Any]] = []
    for name, details in steps:
        chain.append(next_step(chain, name, details, datetime.fromisoformat(report["created"])))
    body = {**report, "steps": chain}
    return {**body, "sha256": digest({key: value for key, value in body.items() if key != "sha256"})}


def timed(report: Report) -> list[tuple[str, Any]]:
    return [(name, {**held, "seconds": 1.0} if name == "scores" else held) for name, held in steps_of(report)]


def sealed(report: Report) -> Report:
    """With a chain and hashes that fit again, as somebody would forge them."""
    return chained(report, timed(report))


def at(place: str, value: Any) -> Forgery:
    """Sets the value at a path with dots."""

    def change(report: Report) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in place.split(".")]
        held: Any = report
        for part in way:
            held = held[part]
        held[last] = value

    return change


def without(place: str, key: Any) -> Forgery:
    """Deletes what is under a key."""

    def change(report: Report) -> None:
        held: Any = report
        for part in place.split(".") if place else []:
            held = held[int(part) if part.isdigit() else part]
        del held[key]

    return change


def nudged(report: Report, by: float = 0.015) -> None:
    """One log-posterior is changed wherever the report holds it."""
    held = log_posteriors_of(report).copy()
    held[0, 0] += by
    report["log_posteriors"] = encoded(held)
    report["traces"][0]["log_posterior_rival"] = float(held[0, 0])


def engine_named(report: Report) -> None:
    """The report says that another engine computed it."""
    report["method"]["engine"] = OTHER
    report["results"]["readers"][0]["engine"] = OTHER


def both(*forgeries: Forgery) -> Forgery:
    def change(report: Report) -> None:
        for forge in forgeries:
            forge(report)

    return change


def changed(report: Report, *forgeries: Forgery) -> Report:
    forged = copy.deepcopy(report)
    both(*forgeries)(forged)
    return sealed(forged)


def assert_found(forged: Report, content: bytes = FILE) -> None:
    try:
        assert verified(forged, content).found
    except AtlasError as error:
        assert "lacks what is needed" in str(error) or "not enrolled" in str(error)


# Honest reports


def test_an_honest_report_is_given_again(report: Report) -> None:
    found = verified(report)
    assert found.found == ()
    assert (found.traces, found.largest, found.verdict) == (GOOD + BAD, 0.0, verdict_words(report["results"]))
    assert found.notes[:2] == (
        "The file of traces is the one of the report, byte for byte.",
        "Of the 16 traces of the file 15 were scored; 1 repeats an earlier one; 2 places of the file give no trace.",
    )
    assert alterations(sealed(report)) == []
    assert [entry["reason"] for entry in report["exclusions"]] == ["the same as line 1"]
    assert report["results"]["calibrated"] and report["validation"]["rows"] and len(report["heat_maps"]) == 2


@pytest.mark.parametrize(
    "asked",
    [
        Settings(enrolment="invented"),
        replace(ASKED, claimed="c-three", prior={"two": 3.0, "a-one": 0.7}, show=0, also=()),
        replace(ASKED, keep_duplicates=True, orders=1, seed=3),
        replace(ASKED, columns=Columns(response="response", label="time")),
    ],
)
def test_whatever_was_asked_is_asked_again(asked: Settings) -> None:
    assert verified(run(asked).report).found == ()


def test_a_report_of_the_page_is_given_again_where_longer_texts_are_read() -> None:
    page = Limits()
    content = FILE + b"\n" + line("for " * 250_001, 21).encode()
    told = run(ASKED, content, limits=page).report
    assert "longer than 1,000,000" in told["input"]["problems"][-1]["reason"]
    for limits in (page, COMMAND_LINE):
        assert verified(told, content, limits).found == ()
    assert verified(run(ASKED).report, limits=page).found == ()
    low = changed(run(ASKED).report, at("input.selection.characters", 10))
    assert any("no audit does that" in sentence for sentence in alterations(low))


def test_a_report_that_was_stopped_is_given_again(report: Report) -> None:
    for most in (1, GOOD, GOOD + 1, GOOD + BAD):
        told = run(replace(ASKED, also=()), most=most).report
        assert not told["results"]["complete"]
        found = verified(told)
        assert found.found == ()
        unread = GOOD + BAD - most
        assert any(
            f"; {unread:,} {'is' if unread == 1 else 'are'} not in the report (" in note for note in found.notes
        ) == bool(unread)
        assert any(f"stopped it after {most:,} traces" in note for note in found.notes)
    whole = copy.deepcopy(report)
    assert verified(sealed(whole)).found == ()


def test_other_files_with_the_same_traces(report: Report) -> None:
    more = FILE + b"\n" + line("one more", 30).encode()
    found = verified(report, more)
    assert found.found == ()
    assert "not the one of the report" in found.notes[0]
    assert "15 were scored; 1 repeats an earlier one; 1 is not in the report (" in found.notes[1]
    assert any("are not the" in sentence for sentence in verified(report, "\n".join(LINES[1:-2]).encode()).found)


def test_a_file_whose_encoding_was_named() -> None:
    text = FILE.decode().replace("long enough", "довольно долго")
    lines = [json.dumps(json.loads(one), ensure_ascii=False) for one in text.split("\n") if one != "{broken"]
    content = "\n".join(lines).encode("cp1251")
    told = run(replace(ASKED, encoding="windows-1251"), content).report
    assert told["input"]["encoding"] == "cp1251 (as given)"
    assert verified(told, content).found == ()
    # What the report's own file was decoded with says nothing of another one.
    assert verified(told, "\n".join(lines).encode()).found == ()
    assert verified(told, "\n".join(lines).encode("utf-16-le")).found == ()
    assert verified(told, "\n".join(lines).encode("koi8-r"), encoding="koi8-r").found == ()
    with pytest.raises(AtlasError, match="not the file of this report"):
        verified(told, "\n".join(lines[:GOOD]).encode("koi8-r"))
    assert verified(changed(told, at("input.encoding", "koi8-r (as given)")), content).found


@pytest.mark.parametrize("most", [None, GOOD])
def test_another_engine_may_differ_a_little(most: int | None) -> None:
    told = run(ASKED if most is None else replace(ASKED, also=()), engine=OTHER, noise=0.02, most=most).report
    found = verified(told)
    assert found.found == ()
    assert 0 < found.largest < 0.25
    assert any(f"computed by {OTHER}" in note for note in found.notes)
    far = run(ASKED, engine=OTHER, noise=0.3).report
    assert any("differs by" in sentence for sentence in verified(far).found)


def test_noise_that_leans_to_one_side_adds_up(report: Report) -> None:
    def leaning(forged: Report) -> None:
        held = log_posteriors_of(forged).copy()
        held[:, 1] += 0.2
        forged["log_posteriors"] = encoded(held)

    assert any("in all" in sentence for sentence in verified(changed(report, engine_named, leaning)).found)


def test_pieces_of_another_engine_may_differ_a_little_and_not_be_repainted(report: Report) -> None:
    """The pieces are 0.5 and 0.25 nats."""

    def painted(first: float, second: float) -> list[str]:
        def paint(forged: Report) -> None:
            for piece, value in zip(forged["heat_maps"][0]["pieces"], (first, second), strict=True):
                piece["value"] = value

        forged = changed(report, engine_named, paint)
        return [sentence for sentence in verified(forged).found if "heat map" in sentence]

    assert painted(0.515, 0.235) == []
    for first, second in ((0.25, 0.5), (0.75, 0.0), (0.375, 0.375), (0.56, 0.19), (-0.25, 1.0)):
        found = painted(first, second)
        assert any("on the whole" in sentence for sentence in found)
        assert any("in a piece" in sentence for sentence in found)
    bent = changed(report, engine_named, at("heat_maps.0.pieces.0.value", float("0.5")), at("heat_maps.0.stored", 1.2))
    assert verified(bent).found == ()
    more = changed(report, engine_named, at("heat_maps.0.pieces.0.proof", 1))
    assert any("piece 1, proof is no part" in sentence for sentence in verified(more).found)


def test_where_traces_land_by_another_engine(report: Report) -> None:
    """Cosines may differ by .005, and ranks follow from them."""
    near = [row["cosine"] for row in report["results"]["lands"]["rows"]]
    assert min(a - b for a, b in itertools.pairwise(near)) > 0.02
    for by, equal in ((0.004, True), (-0.004, True), (0.006, False), (-0.006, False)):
        forged = changed(report, engine_named, at("results.lands.rows.1.cosine", near[1] + by))
        assert (verified(forged).found == ()) is equal
        assert verified(changed(report, at("results.lands.rows.1.cosine", near[1] + by))).found

    close = copy.deepcopy(report)
    rows = close["results"]["lands"]["rows"]
    rows[1]["cosine"] = rows[0]["cosine"] - 0.001
    swapped = copy.deepcopy(close)
    first, second, *rest = swapped["results"]["lands"]["rows"]
    swapped["results"]["lands"]["rows"] = [
        second | {"rank": 1, "cosine": first["cosine"] + 0.001}, first | {"rank": 2}, *rest,
    ]  # fmt: skip
    engine_named(swapped)
    assert list(differences._landing(swapped, close)) == []
    swapped["results"]["lands"]["rows"][0]["rank"] = 2
    assert any("row 1, rank" in sentence for sentence in differences._landing(swapped, close))


def test_ratios_of_a_further_reader_by_another_engine(report: Report) -> None:
    """0.25 √n nats each way are 0.84 of a log10 ratio of 15 traces, however large it is."""
    now = report["results"]["readers"][1]["log10_ratio_others"]
    for by, equal in ((0.8, True), (-0.8, True), (0.9, False), (-0.9, False)):
        forged = changed(
            report, at("results.readers.1.engine", OTHER), at("results.readers.1.log10_ratio_others", now + by)
        )
        assert (verified(forged).found == ()) is equal
    large = {"readers": [{}, {"enrolment_sha256": "x", "enrolment": "x", "engine": "a", "log10_ratio_others": 30.0}]}
    small = copy.deepcopy(large)
    small["readers"][1] |= {"engine": "b", "log10_ratio_others": 20.0}
    traces = [{}] * 4
    assert list(differences._readers({"results": large, "traces": traces}, {"results": small}))


def test_a_report_of_before_readers_said_what_their_answer_is_about(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(older: Report) -> None:
        del older["answer"], older["in_words"]
        older["validation"].pop("prompts_needed")
        del older["input"]["prompts"]
        for row in older["results"]["readers"]:
            del row["level"]

    assert report["answer"] == verdict_words(report["results"])
    assert verified(changed(report, forget)).found == ()
    assert_found(changed(report, at("answer", "certain")))
    forged = changed(report, at("in_words.sentence", "It is certain."))
    assert verified(forged).found == (), "other code may have put it otherwise"
    monkeypatch.setattr(differences, "code_version", lambda: report["method"]["code_version"])
    assert_found(forged)
    assert report["in_words"] == in_words(report) and verified(report).found == ()
    assert_found(changed(report, at("input.prompts", 60)))
    assert_found(changed(report, at("results.readers.1.level", "candidates")))


def test_a_report_of_two_siblings_tells_how_often_they_are_confused(report: Report) -> None:
    """Out of the shipped generation; a report that was made without it is checked as before."""
    data = default_data_folder()
    cursor = Generation.open(data).cursor()
    reader, roster = cursor.execute("SELECT reader, roster FROM confusion WHERE k = 10 LIMIT 1").fetchall()[0]
    pairs = cursor.execute(
        "SELECT truth, predicted, count FROM confusion WHERE reader = ? AND roster = ? AND k = 10 "
        "AND truth != predicted AND benchmark = 'agent500' AND condition = 'clean' ORDER BY count DESC LIMIT 1",
        [reader, roster],
    ).fetchall()  # fmt: skip
    ((one, other, count),) = pairs
    results = report["results"] | {"verdict": "SUPPORTS", "level": "family", "subject": one, "siblings": [other, one]}
    method = report["method"] | {"reader": reader, "condition": "clean", "facts": {"roster": roster}}
    named = report | {"results": results, "method": method}
    found = with_confusions(named, data)
    first, second = found["confusions"]
    assert first == {"source": one, "named": other, "traces": 10, "count": count, "groups": first["groups"]}
    assert (second["source"], second["named"]) == (other, one) and second["groups"] > 0
    sentence = f"{one} is taken for {other} in {count:,} of {first['groups']:,} groups of 10 traces ("
    assert confusion_words(found)[0].startswith(sentence)
    assert confusion_words(named) == [] and with_confusions(named, data / "nowhere") is named

    honest = sealed({**report, "confusions": [first, second]})
    assert verified(honest).found == () == verified(report).found
    assert any("was not checked" in note and "siblings" in note for note in verified(honest).notes)
    assert sentence in write_html(honest).replace("\xa0", " ")
    for wrong in ([first], [first, {**second, "count": "1"}], [first, {**second, "more": 1}]):
        assert_found(sealed({**report, "confusions": wrong}))


# Forged reports

WORDS = [
    at("results.sentence", "The traces come from two; this is proved beyond doubt."),
    at("results.in_words", "extremely strong support for the named source"),
    at("results.reason", "the traces point to this source and to no other"),
    at("results.flags", ["none"]),
    at("results.calibrated", 1),
    at("results.siblings", ["nobody"]),
    at("results.next_steps", []),
    at("results.next_steps", ["Nothing is left to do."]),
    at("results.stated", False),
    at("results.traffic", {"kind": "like", "p": 1.0, "prompts": 999}),
    at("results.traffic.kind", "other topic"),
    at("results.traffic.p", None),
    at("results.unknown_words", "compatible with an enrolled source"),
    at("results.running.3.probability", 0.123),
    at("results.running.3.log10_ratio_others", 9.0),
    at("method.rule.prompts_p", 0.5),
    at("results.rival", "nobody"),
    at("results.interval", None),
    at("results.stop.enough_after", 1),
    at("results.stop.decided", "for the claim, twice"),
    at("results.unknown_p", 0.9),
    at("results.leave_one_out.leader_changes", 7),
    at("results.running.3.leader", "d-four"),
    at("results.spread.points.0.leads", 0.123),
    at("results.interval.probability_low", 0.99),
    at("results.candidates.1.probability", 0.5),
    at("results.candidates.0.bias", 3.0),
    at("results.log10_ratio_others", 3.5),
    at("results.families.0.probability", 0.1),
    at("results.readers", []),
    at("results.readers.0.verdict", "PROVED"),
    at("results.readers.1.verdict", "PROVED"),
    at("results.readers.1.low", 5.0),
    at("results.lands.rows.0.cosine", 0.999),
    at("results.lands.rows.2.cosine", -1.0),
    at("results.lands.rows.1.rank", 1),
    at("results.lands.rows.0.source", "nobody"),
    at("results.lands.rows.0.family", "Z"),
    at("results.lands.layer", 9),
    at("results.lands.proxy", "another"),
    at("results.lands.proof", "certified"),
    at("results.lands.rows.0.proof", "certified"),
    at("results.lands", None),
    lambda report: report["results"]["lands"]["rows"].reverse(),
    lambda report: report["results"]["lands"]["rows"].append(report["results"]["lands"]["rows"][-1] | {"rank": 5}),
]
PARTS = [
    without("results", "flags"),
    without("results", "unknown_p"),
    without("results", "interval"),
    without("results", "siblings"),
    without("results", "lands"),
    without("results.lands", "rows"),
    without("results.lands.rows", 3),
    without("results", "leave_one_out"),
    without("results", "running"),
    without("results.candidates", 3),
    without("results.families", 1),
    without("results.candidates.0", "family"),
    without("reference", "families"),
    without("method", "rule"),
    without("", "validation"),
    without("", "limits"),
    at("results.proof", "certified"),
    at("certified", True),
    at("traces.3.certified", True),
    lambda report: report["results"]["candidates"].insert(0, report["results"]["candidates"][0] | {"probability": 1.0}),
    lambda report: report["results"]["families"].append(report["results"]["families"][0]),
    at("traces.4.nearest", "d-four"),
    at("traces.4.log10_ratio", 9.9),
    at("traces.4.log10_without", 9.9),
    at("traces.1.enrolled_prompt", False),
    at("traces.4.time", "2020-01-01"),
    at("traces.4.response_characters", 99),
    at("traces.4.tokens", 1),
    at("traces.4.number", 40),
    at("traces.4.place", 40),
    at("method.rule", {"decided_log10": 6.0}),
    at("method.condition", "t64"),
    at("method.probes", 99),
    at("method.batches", [1]),
    at("method.reader", "another"),
    at("method.proxy", "another"),
    at("method.facts", {"proxy_hash": "x"}),
    at("method.enrolment_sha256", "0" * 64),
    at("reference.enrolment", "another"),
    at("reference.families.0", "Z"),
    at("reference.sources.0", "z"),
    at("validation", None),
    at("validation.rows.0.value", 1.0),
    at("limits", ["This report is certified."]),
    at("propositions", []),
    at("verbal_scale", []),
    at("text_kept", False),
    at("input.notes", ["The file was certified."]),
    at("input.unit", "page"),
    at("input.columns.prompt", None),
    at("heat_maps", []),
    lambda report: report["heat_maps"][0].update(source="d-four"),
    lambda report: (
        report["heat_maps"][0]["pieces"][0].update(value=-0.5) or report["heat_maps"][0]["pieces"][1].update(value=1.25)
    ),
    at("heat_maps.0.stored", 99.0),
]


@pytest.mark.parametrize("number", range(len(WORDS)))
@pytest.mark.parametrize("how", ["alone", "nudged", "engine"])
def test_a_word_or_a_number_of_the_answer(report: Report, number: int, how: str) -> None:
    more: dict[str, list[Forgery]] = {"alone": [], "nudged": [nudged], "engine": [engine_named]}
    forged = changed(report, *more[how], WORDS[number])
    assert alterations(forged) == []
    assert_found(forged)


@pytest.mark.parametrize("number", range(len(PARTS)))
@pytest.mark.parametrize("how", ["alone", "elsewhere"])
def test_a_part_that_is_rewritten_deleted_or_added(report: Report, number: int, how: str) -> None:
    elsewhere = [engine_named, at("method.code_version", "fdf5266b3f")]
    try:
        forged = changed(report, *([] if how == "alone" else elsewhere), PARTS[number])
    except KeyError:  # what the chain repeats cannot be left out
        return
    assert_found(forged)


def test_a_score_that_the_same_engine_does_not_give(report: Report) -> None:
    assert any("differs by 0.015 nats" in sentence for sentence in verified(changed(report, nudged)).found)
    code = changed(report, at("method.code_version", "fdf5266b3f"))
    assert verified(code).found == ()
    assert any("made by code fdf5266b3f" in note for note in verified(code).notes)


def test_scores_of_another_engine_bear_their_own_answer(report: Report) -> None:
    """A changed log-posterior within the tolerance leads to other numbers, which have to be those of the report."""
    found = verified(changed(report, nudged, engine_named)).found
    assert found and all("(results, " in sentence or "more differences" in sentence for sentence in found)


def picked(content: bytes = FILE) -> Report:
    """A report about the favourable traces alone."""
    return run(ASKED, content, Selection(includes=lambda trace: "for" in trace.response, text=10_000)).report


def reasons(report: Report) -> None:
    for entry in report["exclusions"]:
        entry["reason"] = "the same as line 1"


def as_bad_lines(report: Report) -> None:
    left = [entry["place"] for entry in report["exclusions"]][:BAD]
    gone = [{"place": place, "column": "response", "reason": "there is no response"} for place in left]
    report["input"]["problems"] = sorted([*report["input"]["problems"], *gone], key=lambda entry: entry["place"])
    report["exclusions"] = report["exclusions"][BAD:]


def as_stopped(report: Report) -> None:
    report["results"]["complete"] = False


def silent(report: Report) -> None:
    report["exclusions"] = report["exclusions"][BAD:]


@pytest.mark.parametrize(
    "disguise",
    [reasons, as_bad_lines, silent, both(reasons, as_stopped), both(silent, as_stopped), lambda _: None],
    ids=["duplicates", "bad lines", "not named", "duplicates of one that was stopped", "stopped", "as they are"],
)
@pytest.mark.parametrize("engine", [lambda _: None, engine_named], ids=["same engine", "other engine"])
def test_traces_that_were_picked(disguise: Forgery, engine: Forgery) -> None:
    """Those that speak against the claim come first."""
    content = "\n".join([*LINES[GOOD:], *LINES[:GOOD]]).encode()
    whole = run(ASKED, content).report
    assert verified(whole, content).found == ()
    told = picked(content)
    assert len(told["traces"]) == GOOD < len(whole["traces"])
    found = verified(changed(told, disguise, engine), content).found
    assert any("traces of the report are not the" in sentence for sentence in found)
    assert not any("byte for byte" in sentence for sentence in found)


def test_what_was_left_out_for_another_reason(report: Report) -> None:
    for forge in (
        at("exclusions.0.reason", "the same as line 2"),
        at("exclusions.0.sha256", report["traces"][4]["sha256"]),
        at("exclusions", []),
        at("input.problems.0.reason", "there is no response"),
        at("input.problems", []),
        at("input.selection.keep_duplicates", True),
        at("input.selection.more", 1),
    ):
        assert_found(changed(report, forge))


def test_a_picked_report_in_another_file_is_told_from_the_whole() -> None:
    forged = changed(picked(), silent, at("input.sha256", "0" * 64))
    found = verified(forged)
    assert "is not the one of the report" in found.notes[0]
    assert f"{GOOD} were scored; 1 repeats an earlier one; {BAD} are not in the report" in found.notes[1]
    assert any("repeat none" in sentence for sentence in alterations(changed(picked(), reasons)))


# The chain


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("file", "sha256", "0" * 64),
        ("file", "size", 1),
        ("file", "columns", {}),
        ("question", "case", "another"),
        ("question", "question", "another"),
        ("question", "claimed", "d-four"),
        ("question", "prior", [0.1, 0.7, 0.1, 0.1]),
        ("enrolment", "name", "another"),
        ("enrolment", "sha256", "f" * 64),
        ("traces", "sha256", []),
        ("traces", "excluded", 0),
        ("scores", "engine", "another"),
        ("scores", "complete", False),
        ("scores", "log_posteriors", "0" * 64),
        ("report", "results", "0" * 64),
        ("report", "verdict", "PROVED"),
    ],
)
def test_a_step_says_what_the_report_says(report: Report, name: str, key: str, value: Any) -> None:
    steps = timed(report)
    number = [step for step, _ in steps].index(name)
    details = steps[number][1]
    for other in (details | {key: value}, {k: v for k, v in details.items() if k != key}, details | {"more": 1}):
        assert alterations(chained(report, [*steps[:number], (name, other), *steps[number + 1 :]]))


def test_a_report_has_all_its_steps(report: Report) -> None:
    steps = timed(report)
    assert [name for name, _ in steps] == [
        "file", "question", "enrolment", "traces", "scores", "scores", "report",
    ]  # fmt: skip
    for number in range(len(steps)):
        assert alterations(chained(report, [*steps[:number], *steps[number + 1 :]]))
    assert alterations(chained(report, steps[-1:]))
    assert alterations(chained(report, [*steps, steps[-1]]))
    assert alterations(chained(report, [("file", {}), *steps[1:]]))
    later = {**report, "created": "2020-01-01T00:00:00.000+00:00"}
    later |= {"sha256": digest({key: value for key, value in later.items() if key != "sha256"})}
    assert alterations(later) == ["The report was not made at the time of its last step"]
    bare = copy.deepcopy(report)
    del bare["steps"][2]["sha256"]
    assert any("Step 3" in sentence for sentence in alterations(bare))


def test_a_step_holds_nothing_else(report: Report) -> None:
    def rewritten(change: dict[str, Any], number: int = 2) -> Report:
        steps, previous = [], "0" * 64
        for step in copy.deepcopy(report["steps"]):
            held = step | (change if step["number"] == number else {}) | {"previous": previous}
            held["sha256"] = previous = digest({key: value for key, value in held.items() if key != "sha256"})
            steps.append(held)
        body = {key: value for key, value in report.items() if key != "sha256"} | {"steps": steps}
        return {**body, "sha256": digest(body)}

    assert alterations(rewritten({})) == []
    assert alterations(rewritten({"proof": "certified"})) == ["step 2 (question), proof is no part of a report"]
    assert alterations(rewritten({"at": "certified"})) == ["The time of step 2 (question) is none"]
    scored = report["steps"][4]["details"]
    for seconds in ("certified", True, None):
        (sentence,) = alterations(rewritten({"details": scored | {"seconds": seconds}}, number=5))
        assert "(step 5 (scores), seconds)" in sentence


# The page of a report


def checked_page(text: str) -> Check:
    read = read_report(text)
    return with_page(Check.of(read, alterations(read)), text, read)


def test_a_page_is_checked_by_the_data_in_it(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data are the report; what it shows has to be what they give."""
    monkeypatch.setattr(differences, "code_version", lambda: "v")
    page = write_html(changed(report, at("case", "<script>1</script></template>")))
    assert page.count("<template") == page.count("</template") == 1 and "<script" not in page
    page = write_html(report)
    assert read_report(page) == report
    whole = checked_page(page.replace("\n", "\r\n"))
    assert (whole.equal, whole.sha256) == (True, report["sha256"])
    assert any("character for character" in note for note in whole.notes)
    shown = page.replace(report["input"]["name"], "other.jsonl", 1)
    assert checked_page(shown).found == (PAGE,) and checked_page(shown).page_alone
    head, body = page.split("<body", 1)
    ((seen, expected),) = checked_page(f"{head}<body{body.replace(report['input']['name'], 'other.jsonl', 1)}").shown
    assert "other.jsonl" in seen and seen == expected.replace(report["input"]["name"], "other.jsonl", 1)
    word = verdict_words(report["results"])
    assert page.count(f">{word}<") > 1
    assert checked_page(page.replace(f">{word}<", ">AUTHENTIC<")).shown == (("AUTHENTIC", word),)
    inside = page.replace(json.dumps(report["question"]), '"Who?"')
    assert OWN_HASH in checked_page(inside).found and PAGE in checked_page(inside).found
    assert not checked_page(inside).page_alone
    older = changed(report, at("method.code_version", "0000000000"))
    assert PAGE not in checked_page(write_html(older)).found
    word = verdict_words(older["results"])
    unseen = checked_page(write_html(older).replace(f'">{word}</strong>', '">AUTHENTIC</strong>'))
    assert unseen.equal and unseen.page_unchecked and not whole.page_unchecked
    assert any("Other code wrote this page" in note for note in unseen.notes)
    ((shown, by_data),) = unseen.shown
    assert shown == by_data.replace(word, "AUTHENTIC", 1)
    said = str(check_answer(unseen))
    assert PAGE_UNSEEN in said and "verdict-UNKNOWN" in said and "'UNCHANGED'" not in said
    for nothing in (page[: page.index("<template")], "<!doctype html>"):
        with pytest.raises(AtlasError, match="no data of a report"):
            read_report(nothing)


@pytest.mark.parametrize("before", [0, 20, 300])
@pytest.mark.parametrize(
    "was, now, seen, due",
    [("4 pass", "47 pass", ["4"], ["47"]), ("", "and so", [], ["and so"]), ("x" * 900, "x" * 890, ["x"], ["x"])],
)
def test_the_words_that_differ_are_shown_and_marked(before: int, was: str, now: str, seen: Any, due: Any) -> None:
    texts = [f"{'they do ' * before}{text} as enrolled. {'The rest is alike. ' * 60}" for text in (was, now)]
    check = Check((PAGE,), shown=((texts[0], texts[1]),))
    row = [part for part in check_answer(check)._traverse() if isinstance(part, html.Td)]
    for cell, words in zip(row, (seen, due), strict=True):
        marked = [part.children for part in cell.children if isinstance(part, html.Mark)]
        assert len(marked) == len(words) and all(map(str.startswith, marked, words))
    shown = ["".join(getattr(part, "children", part) for part in cell.children) for cell in row]
    assert shown[0] != shown[1] and all(len(text) <= QUOTED + 2 for text in shown)


def test_a_difference_is_told_with_both_values_and_its_place() -> None:
    was, now = ({"rows": [{"value": value}], "name": name} for value, name in ((0.7913264, None), (-0.39132, "a")))
    assert list(unlike(was, now, "validation")) == [
        "In this file .791, computed again -.391 (validation table, row 1, value)",
        "In this file nothing, computed again a (validation, name)",
    ]
    (close,) = unlike(0.70001, 0.7, "p")
    assert close == "In this file .70001, computed again .7 (p)"
    (late,) = unlike("So many groups of traces: 92.6 %", "So many groups of traces: 82.6 %", "row")
    assert late.values == ("row", "…y groups of traces: 92.6 %", "…y groups of traces: 82.6 %")


def test_a_changed_candidate_goes_by_its_name_and_its_hash_follows(report: Report) -> None:
    at("results.candidates.1.probability", 0.5)(forged := copy.deepcopy(report))
    check = verified(forged)
    name = with_names(report)["results"]["candidates"][1]["source"]
    first, *rest = [one for one in check.differences if one not in check.follow]
    assert not rest and first.endswith(f"(results, {name}, probability)") and check.follow
    answer = check_answer(check)
    assert f"1 difference, and from it {len(check.follow)} more, at the hash" in str(answer)
    (place,) = (part for part in answer._traverse() if getattr(part, "id", None) == "check-found")
    parts = [part for part in place._traverse() if isinstance(part, html.Tr | html.Li)]
    heads = sum(isinstance(part, html.Thead) for part in place._traverse())
    assert len(parts) - heads == 1 + len(check.follow)


# What the file of a report may hold

HOSTILE = "\x1b[2J\x1b[HEQUAL: 15 traces give the same answer\x1b[8m\u202e"


def test_no_sentence_moves_the_cursor(report: Report) -> None:
    for forge in (
        at(HOSTILE, 1),
        at(f"results.{HOSTILE}", 1),
        at("results.leader", HOSTILE),
        at("results.readers.1.enrolment", HOSTILE),
        at("heat_maps.0.source", HOSTILE),
    ):
        found = verified(changed(report, forge)).found
        assert any("\\x1b[2J" in sentence for sentence in found)
        assert not any("\x1b" in sentence or "\u202e" in sentence for sentence in found)


@pytest.mark.parametrize("weight", ["x", "0.25", None, True, 0.0, -1.0, 10**400, [], float("nan")])
def test_a_prior_that_is_none_is_an_unreadable_report(report: Report, weight: Any) -> None:
    forged = copy.deepcopy(report)
    forged["reference"]["prior"][0] = weight
    with pytest.raises(AtlasError, match="lacks what is needed"):
        settings_of(forged, "here")


PASSAGE = "Once upon a time there was a passage that belongs to somebody, and no report may hold a word of it. " * 3


def test_a_report_says_the_models_that_were_requested_and_returned() -> None:
    """Short names only; a file that does not name them has the same traces."""
    bodies = [{"messages": [{"role": "user", "content": f"p{i}"}], "model": "gpt-4o"} for i in range(6)]
    replies = ["gpt-4o-2024-08-06", *["gpt-4o-mini"] * 4, PASSAGE]
    answers = [{"model": model, "choices": [{"text": f"for {i}"}]} for i, model in enumerate(replies)]
    records = [{"request": body, "response": answer} for body, answer in zip(bodies, answers, strict=True)]
    content = "\n".join(map(json.dumps, records)).encode()
    told = run(replace(ASKED, show=0), content).report
    assert told["input"]["models"] == [
        {"requested": "gpt-4o", "returned": "gpt-4o-mini", "traces": 4},
        {"requested": "gpt-4o", "returned": "gpt-4o-2024-08-06", "traces": 1},
        {"requested": "gpt-4o", "returned": None, "traces": 1},
    ]
    mismatch = "Requested gpt-4o, returned gpt-4o-mini in 4 of 6 traces, which is another model than was requested."
    version = "Requested gpt-4o, returned gpt-4o-2024-08-06 in 1 of 6 traces, a version of it."
    assert told["input"]["notes"][:2] == [mismatch, version] and mismatch in write_html(told)
    named = [(trace["requested"], trace.get("returned")) for trace in told["traces"]]
    assert named == [("gpt-4o", None if model == PASSAGE else model) for model in replies]
    assert "Once upon" not in write_json(told) and verified(told, content).found == ()
    assert verified(changed(told, at("traces.0.returned", "gpt-4o")), content).found
    plain = "\n".join(json.dumps({"prompt": f"p{i}", "response": f"for {i}"}) for i in range(6)).encode()
    assert verified(told, plain).found == ()
    other = run(replace(ASKED, show=0), plain).report
    assert "models" not in other["input"] and not {"requested", "returned"} & set(other["traces"][0])


def test_a_label_that_may_be_text_is_no_part_of_a_report() -> None:
    records = [
        {"prompt": f"p{i}", "response": f"for {i}", "source": PASSAGE if i else "gpt-x", "id": f"{i}\nSECRET"}
        for i in range(6)
    ]
    content = "\n".join(json.dumps(record) for record in records).encode()
    told = run(replace(ASKED, show=0), content).report
    assert [trace["label"] for trace in told["traces"]] == ["gpt-x", *[None] * 5]
    assert [trace["name"] for trace in told["traces"]] == [None] * 6
    assert [note[:25] for note in told["input"]["notes"]] == ["5 traces have a label tha", "6 traces have a name that"]
    assert not any(word in text for word in ("Once upon", "SECRET") for text in (write_json(told), write_csv(told)))
    assert verified(told, content).found == ()
    off = run(replace(ASKED, columns=Columns(label="none", name="none"), show=0), content).report
    assert off["input"]["notes"] == [] and {trace["label"] for trace in off["traces"]} == {None}
    assert verified(off, content).found == ()


def test_text_of_a_heat_map_belongs_to_its_trace(report: Report) -> None:
    shown = report["heat_maps"][0]
    for wrong in ({**shown, "prompt": "q"}, {**shown, "log_odds": 2.0}):
        assert len(alterations(sealed({**report, "heat_maps": [wrong]}))) == 1
    rounded = changed(report, at("heat_maps.0.log_odds", shown["log_odds"] + 5e-4))
    assert alterations(rounded) == []
    assert any("log odds)" in sentence for sentence in verified(rounded).found)


def test_settings_give_the_report_again(report: Report) -> None:
    held = settings_of(report, "here")
    assert (held.enrolment, held.claimed, held.orders, held.stop_level, held.show) == ("here", CLAIMED, 20, 0.05, 2)
    assert held.columns.response is None  # it was recognised, and is so again
    assert not held.keep_duplicates


def test_earlier_formats_are_refused_in_words(report: Report) -> None:
    assert read_report(json.dumps(report)) == report
    for number in (1, 2, 3, 4):
        with pytest.raises(AtlasError, match=f"has format {number}: it was made before mixtures of sources") as refused:
            read_report(json.dumps(report | {"format": number}))
        assert "Make it again: python -m jobs attribute" in str(refused.value)
    for number in (6, "5", 5.5, []):
        with pytest.raises(AtlasError, match="this program knows 5"):
            read_report(json.dumps(report | {"format": number}))
    with pytest.raises(AtlasError, match="no report"):
        read_report(json.dumps({key: value for key, value in report.items() if key != "log_posteriors"}))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a report, from the top."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, held in inner for place in places(held, (*path, key)))]


@settings(max_examples=100, deadline=None)
@given(
    st.data(),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({}),
    st.booleans(),
)
def test_no_report_breaks_the_check(report: Report, data: st.DataObject, value: Any, other: bool) -> None:
    forged = copy.deepcopy(report)
    if other:
        engine_named(forged)
    way = data.draw(st.sampled_from(places(report)[1:]))
    held: Any = forged
    for part in way[:-1]:
        held = held[part]
    held[way[-1]] = value
    for ask in (
        lambda: alterations(read_report(json.dumps(forged))),
        lambda: settings_of(forged, "here"),
        lambda: selection_for(forged, "0" * 64, COMMAND_LINE),
        lambda: compared(forged, report, ENROLMENT, np.ones(2 * D)).found,
    ):
        try:
            told = ask()
        except AtlasError as error:
            assert str(error)
            continue
        if isinstance(told, tuple | list):
            assert all(isinstance(sentence, str) for sentence in told)

"""REST with the real proxy: the shipped samples, and cases of the public release against the evaluation of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

import backend.attribution.scoring
from backend.attribution.settings import Settings
from backend.attribution.verify import alterations, differences, read_report
from backend.corpus.release import Release
from backend.enrolment.catalogue import Ecosystems
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments, load_enrolment, save_enrolment
from backend.enrolment.fit import Sample
from backend.enrolment.held_out_answers import Answers
from backend.protocol import FOLDS
from backend.proxies.reader import Reader
from backend.proxies.registry import proxy_hash
from backend.service.service import Service
from backend.store.database import Generation, default_data_folder
from backend.store.result_queries import seed_accuracy
from backend.traces import Trace
from benchmarks.held_out_cases import Case, attributed, cases, load_answers, scores_of
from jobs.__main__ import main
from tests.served_api import serve

PROXY, ROSTER = "smollm2-135m", "165-way"
Sampled = tuple[FlaskClient, Enrolment, dict[str, list[Trace]], Path]


@pytest.fixture(scope="module")
def sampled(
    smollm2: Reader, sample: tuple[Enrolment, list[Sample]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sampled]:
    folder, (made, rest) = tmp_path_factory.mktemp("sampled"), sample
    kept = save_enrolment(made, folder / "data" / "enrolments" / f"{made.name}.npz")
    server, _ = serve(folder / "data", folder / "cache", lambda proxy: (smollm2, proxy_hash(proxy)))
    fresh = {source: [row.trace for row in rest if row.source == source] for source in kept.sources}
    yield server.test_client(), kept, fresh, folder


def posted(client: FlaskClient, traces: Sequence[Trace], **settings: Any) -> dict[str, Any]:
    """The report at the end of the stream, which waits longer than a plain answer where the machine is busy."""
    body = {"traces": [{"prompt": t.prompt, "response": t.response} for t in traces], "orders": 20} | settings
    answer = client.post("/api/attribute", json=body, headers={"Accept": "application/x-ndjson"})
    last = json.loads(answer.get_data().splitlines()[-1])
    assert (answer.status_code, last.get("event")) == (200, "report"), json.dumps(last)[:500]
    report: dict[str, Any] = last["report"]
    return report


@pytest.mark.proxy
@pytest.mark.slow(10)
def test_samples_by_rest_by_command_line_and_verified(
    sampled: Sampled,
    smollm2: Reader,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client, enrolment, fresh, folder = sampled
    source = enrolment.sources[0]
    report = posted(client, fresh[source], claimed=source)
    assert alterations(report) == []
    assert report["results"]["calibrated"]
    assert report["method"]["proxy"] == PROXY

    monkeypatch.setenv("ATLAS_DATA", str(folder / "data"))
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: smollm2)
    lines = [json.dumps({"prompt": t.prompt, "response": t.response}) for t in fresh[source]]
    (tmp_path / "t.jsonl").write_text("\n".join(lines), "utf-8")
    page = tmp_path / "out.html"
    asked = ["attribute", str(tmp_path / "t.jsonl"), "--claimed", source, "--orders", "20", "--report", str(page)]
    assert main(asked) == 0
    told = read_report(page.with_suffix(".json").read_text("utf-8"))
    assert told["results"] == report["results"]
    assert told["traces"] == report["traces"]
    assert differences(told, report) == []
    (tmp_path / "rest.json").write_text(json.dumps(report), "utf-8")
    assert main(["verify", str(tmp_path / "rest.json"), "--traces", str(tmp_path / "t.jsonl")]) == 0
    assert "EQUAL: 10 traces" in capsys.readouterr().out


@pytest.mark.proxy
@pytest.mark.slow(5)
def test_a_stream_of_samples_has_evidence_after_one_batch(sampled: Sampled) -> None:
    client, _, fresh, _ = sampled
    # Answers that are repeated count once.
    traces = list(dict.fromkeys((trace.prompt, trace.response) for some in fresh.values() for trace in some))
    assert len(traces) > 32
    body = {"traces": [{"prompt": prompt, "response": response} for prompt, response in traces]}
    answer = client.post("/api/attribute", json=body, headers={"Accept": "application/x-ndjson"})
    lines = [json.loads(line) for line in answer.get_data().splitlines()]
    assert {line["event"] for line in lines[:-1]} == {"progress"}
    # A slow machine's first lines only say that work goes on.
    first = next(line for line in lines if line["evidence"])
    assert 0 < first["done"] <= 32  # at most two batches
    assert sorted(first["nearest"]) == sorted(fresh)  # names alone: nothing is known yet of what may be stated
    assert not any(line["nearest"] for line in lines[: lines.index(first)])
    assert not any("probability" in json.dumps(line) for line in lines[:-1])
    assert lines[-1]["report"]["results"]["traces"] == len(traces)


def held_out_cases(release: Release, roster: str, count: int) -> tuple[Enrolment, Answers, list[Case]]:
    """The preferred enrolment of a roster, what it says of all held-out groups, and some of these with their traces."""
    data = default_data_folder()
    name = next(one.name for one in Ecosystems(data).all() if one.roster == roster and one.proxy == PROXY)
    enrolment, answers = load_enrolment(enrolments(data)[name]), load_answers(name)
    return enrolment, answers, cases(answers, enrolment, release.records("agent500"), count)


def enrolled(roster: str) -> list[Enrolment]:
    """The published enrolments of a roster that the test's proxy reads."""
    held = [load_enrolment(path) for path in enrolments(default_data_folder()).values()]
    found = [one for one in held if one.facts.get("roster") == roster and one.proxy == PROXY]
    if not found:
        pytest.skip(f"no enrolment of {roster} is published (python -m jobs enroll --roster {roster})")
    return found


def answered_alike(
    client: FlaskClient, service: Service, enrolment: Enrolment, case: Case, folder: Path
) -> dict[str, Any]:
    """The results by REST, after the page's service and the command line gave just the same."""
    source, traces = case.source, case.traces
    report = posted(client, traces, enrolment=enrolment.name, claimed=source, keep_duplicates=True)
    file, page, session = folder / "case.jsonl", folder / "case.html", "session-of-the-page-1"
    lines = [json.dumps({"prompt": t.prompt, "response": t.response}) for t in traces]
    file.write_text("\n".join(lines), "utf-8")
    upload = service.upload(session, file.name, file.read_bytes())
    asked = Settings(enrolment=enrolment.name, claimed=source, keep_duplicates=True, orders=20)
    job = service.start(session, upload.key, asked)
    assert service.wait(session, job, 300).state == "done"
    options = ["--enrolment", enrolment.name, "--claimed", source, "--keep-duplicates", "--orders", "20"]
    assert main(["attribute", str(file), *options, "--report", str(page)]) == 0
    told = read_report(page.with_suffix(".json").read_text("utf-8"))
    shown = service.report(session, job)
    assert shown["results"] == report["results"] == told["results"]
    assert scores_of(shown) == scores_of(report) == scores_of(told)
    service.forget(session)
    return report


@pytest.mark.release
@pytest.mark.proxy
@pytest.mark.slow(40)
def test_release_cases_are_answered_as_the_evaluation_answered_them(
    release: Release, smollm2: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case of every fold, each against what is kept of it; the first by every reader, page and command line too."""
    data, found = default_data_folder(), enrolled(ROSTER)
    enrolment, answers, held = held_out_cases(release, ROSTER, FOLDS)
    with Generation.open(data).cursor() as cursor:
        stated = seed_accuracy(cursor, enrolment.reader, ROSTER, answers.k, answers.seed)
    assert stated == (pytest.approx(answers.right / len(answers.truth)), len(answers.truth))
    server, service = serve(data, tmp_path / "cache", lambda proxy: (smollm2, proxy_hash(proxy)))
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: smollm2)
    client, reports = server.test_client(), []
    for one in found:
        reports.append(answered_alike(client, service, one, held[0], tmp_path))
        assert (reports[-1]["method"]["reader"], reports[-1]["results"]["calibrated"]) == (one.reader, True)
        assert reports[-1]["results"]["candidates"][0]["source"] == reports[-1]["results"]["leader"], one.name
    assert {one.reader for one in found} == {"fused-live/smollm2-135m/ur"}
    reports = [report for one, report in zip(found, reports, strict=True) if one.name == enrolment.name]
    for case in held[1:]:
        reports.append(posted(client, case.traces, enrolment=enrolment.name, claimed=case.source, keep_duplicates=True))
    right = 0
    for case, report in zip(held, reports, strict=True):
        assert all(trace["enrolled_prompt"] for trace in report["traces"])
        assert case.as_evaluated(report), (case.source, case.answer, case.score, case.lead, attributed(report))
        right += attributed(report)["source"] == case.source
    assert right == sum(case.answer == case.source for case in held)

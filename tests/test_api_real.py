"""REST with the real proxy: the shipped samples, and cases of the public release against its evaluation table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flask.testing import FlaskClient

import backend.audit.loaded
from backend.audit.ecosystems import Ecosystems
from backend.audit.enrolment import Enrolment
from backend.audit.enrolment_files import enrolments, load_enrolment, save_enrolment
from backend.audit.service import Service
from backend.audit.settings import Settings
from backend.audit.verification import alterations, differences, read_report
from backend.protocol import GROUPING_SEEDS, budget_groups, fold_of_prompts, grid_rows
from backend.proxies.reader import Reader
from backend.proxies.registry import proxy_hash
from backend.release import Release
from backend.store.api_queries import evaluations
from backend.store.database import Generation, default_data_folder
from backend.traces import Trace
from jobs.__main__ import main
from jobs._enrolments import Sample
from tests.served_api import serve

PROXY = "smollm2-135m"
CASES, BUDGET = 50, 20
ALSO = 3
"""Cases that go by page and by command line too."""
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


def posted(client: FlaskClient, traces: list[Trace], **settings: Any) -> dict[str, Any]:
    body = {"traces": [{"prompt": t.prompt, "response": t.response} for t in traces], "orders": 20} | settings
    answer = client.post("/api/attribute", json=body)
    assert answer.status_code == 200, answer.get_data(as_text=True)[:500]
    report: dict[str, Any] = answer.get_json()["report"]
    return report


@pytest.mark.proxy
@pytest.mark.slow
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
    monkeypatch.setattr(backend.audit.loaded, "load_reader", lambda proxy, device: smollm2)
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
@pytest.mark.slow
def test_a_stream_of_samples_has_evidence_after_one_batch(sampled: Sampled) -> None:
    client, _, fresh, _ = sampled
    traces = [trace for some in fresh.values() for trace in some][:40]
    body = {"traces": [{"prompt": t.prompt, "response": t.response} for t in traces]}
    answer = client.post("/api/attribute", json=body, headers={"Accept": "application/x-ndjson"})
    lines = [json.loads(line) for line in answer.get_data().splitlines()]
    assert {line["event"] for line in lines[:-1]} == {"progress"}
    # A slow machine's first lines only say that work goes on.
    first = next(line for line in lines if line["evidence"])
    assert 0 < first["done"] <= 32  # at most two batches
    assert sum(share["probability"] for share in first["posterior"]) == pytest.approx(1)
    assert not any(line["posterior"] for line in lines[: lines.index(first)])
    assert lines[-1]["report"]["results"]["traces"] == 40


def held_out_cases(release: Release, sources: tuple[str, ...]) -> list[tuple[str, list[Trace]]]:
    """Source and twenty traces of a prompt fold, drawn as the evaluation table draws its groups, in a fixed order."""
    records = release.records("agent500")
    assert tuple(records.sources[: len(sources)]) == sources
    prompts, folds = len(records.prompt_ids), fold_of_prompts(records.prompt_ids)
    drawn = []
    for fold in np.unique(folds):
        grid = grid_rows(len(sources), prompts, folds == fold)
        groups, truth = budget_groups(grid, BUDGET, GROUPING_SEEDS[0], int(fold))
        drawn += [(sources[t], [records.traces[row] for row in group]) for group, t in zip(groups, truth, strict=True)]
    return [drawn[at] for at in np.random.default_rng(7).permutation(len(drawn))[:CASES]]


def enrolled(roster: str) -> list[Enrolment]:
    """The published enrolments of a roster that the test's proxy reads."""
    held = [load_enrolment(path) for path in enrolments(default_data_folder()).values()]
    found = [one for one in held if one.facts.get("roster") == roster and one.proxy == PROXY]
    if not found:
        pytest.skip(f"no enrolment of {roster} is published (python -m jobs enroll --roster {roster})")
    return found


def answered_alike(
    client: FlaskClient, service: Service, enrolment: Enrolment, case: tuple[str, list[Trace]], folder: Path
) -> dict[str, Any]:
    """The results by REST, after the page's service and the command line gave just the same."""
    source, traces = case
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
    assert service.report(session, job)["results"] == report["results"] == told["results"]
    service.forget(session)
    return report


@pytest.mark.release
@pytest.mark.proxy
@pytest.mark.slow
def test_release_cases_have_the_accuracy_of_the_table(
    release: Release, smollm2: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty cases of twenty held-out traces; some by page and command line too."""
    roster, data = "100-way", default_data_folder()
    enrolled(roster)
    preferred = next(one.name for one in Ecosystems(data).all() if one.roster == roster and one.proxy == PROXY)
    enrolment = load_enrolment(enrolments(data)[preferred])
    with Generation.open(data).cursor() as cursor:
        rows, _ = evaluations(
            cursor, reader=enrolment.reader, roster=roster, benchmark="agent500", condition="clean", reduction="pooled",
            metric="accuracy", k=BUDGET,
        )  # fmt: skip
    stated, right = float(rows["value"].iloc[0]), 0
    server, service = serve(data, tmp_path / "cache", lambda proxy: (smollm2, proxy_hash(proxy)))
    monkeypatch.setattr(backend.audit.loaded, "load_reader", lambda proxy, device: smollm2)
    client = server.test_client()
    for number, case in enumerate(held_out_cases(release, enrolment.sources)):
        if number < ALSO:
            report = answered_alike(client, service, enrolment, case, tmp_path)
        else:
            report = posted(client, case[1], enrolment=enrolment.name, claimed=case[0], keep_duplicates=True)
        assert all(trace["enrolled_prompt"] for trace in report["traces"])
        # The table takes the largest accumulated score, without calibration.
        best = max(report["results"]["candidates"], key=lambda row: row["score"])
        right += best["source"] == case[0]
    spread = 3 * math.sqrt(stated * (1 - stated) / CASES)
    assert abs(right / CASES - stated) <= spread, (right / CASES, stated)


@pytest.mark.release
@pytest.mark.proxy
@pytest.mark.slow
@pytest.mark.parametrize("roster", ["100-way", "165-way"])
def test_every_enrolled_reader_answers_alike_by_page_rest_and_command_line(
    release: Release, smollm2: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roster: str
) -> None:
    server, service = serve(default_data_folder(), tmp_path / "cache", lambda proxy: (smollm2, proxy_hash(proxy)))
    monkeypatch.setattr(backend.audit.loaded, "load_reader", lambda proxy, device: smollm2)
    found = enrolled(roster)
    source, traces = held_out_cases(release, found[0].sources)[0]
    for enrolment in found:
        report = answered_alike(server.test_client(), service, enrolment, (source, traces), tmp_path)
        assert (report["method"]["reader"], report["results"]["calibrated"]) == (enrolment.reader, True)
        results = report["results"]
        assert results["candidates"][0]["source"] == results["leader"], enrolment.name
    measured = {"fused-live/smollm2-135m/ur"}
    if roster == "100-way":  # of the 165 sources only the default is shipped: all that travels stays below 60 MB
        measured |= {"reader-paper/smollm2-135m/ur", "reader-paper/smollm2-135m/r"}
    assert {one.reader for one in found} == measured

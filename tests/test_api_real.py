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

import jobs.attribute
from backend.audit.enrolment import Enrolment
from backend.audit.enrolment_files import enrolments, load_enrolment, save_enrolment
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
from jobs._enrolments import sample_enrolment
from tests.served_api import serve

PROXY = "smollm2-135m"
CASES, BUDGET = 50, 20
ALSO = 3
"""Cases that go by page and by command line too."""
Sampled = tuple[FlaskClient, Enrolment, dict[str, list[Trace]], Path]


@pytest.fixture(scope="module")
def sampled(smollm2: Reader, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sampled]:
    folder = tmp_path_factory.mktemp("sampled")
    made, rest = sample_enrolment(smollm2)
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
    for module in (jobs.attribute, jobs.verify):
        monkeypatch.setattr(module, "load_reader", lambda proxy, device: smollm2)
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
    assert lines[0]["event"] == "progress"
    assert lines[0]["done"] <= 32  # at most two batches
    assert sum(share["probability"] for share in lines[0]["posterior"]) == pytest.approx(1)
    assert lines[-1]["report"]["results"]["traces"] == 40


@pytest.mark.release
@pytest.mark.proxy
@pytest.mark.slow
def test_release_cases_have_the_accuracy_of_the_table(
    release: Release, smollm2: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty cases of twenty held-out traces, drawn as the table draws its groups; some by page and command line too."""
    data = default_data_folder()
    roster = "100-way"
    found = [load_enrolment(path) for name, path in enrolments(data).items() if name.startswith(f"{roster}-{PROXY}-ur")]
    if not found:
        pytest.skip(f"the enrolment of {roster} is not published (python -m jobs enroll --roster {roster})")
    enrolment = found[0]
    with Generation.open(data).cursor() as cursor:
        rows, _ = evaluations(
            cursor, reader=enrolment.reader, roster=roster, benchmark="agent500", condition="clean", reduction="pooled",
            metric="accuracy", k=BUDGET,
        )  # fmt: skip
    stated = float(rows["value"].iloc[0])
    records = release.records("agent500")
    labels = records.sources[: len(enrolment.sources)]
    assert tuple(labels) == enrolment.sources
    prompts, folds = len(records.prompt_ids), fold_of_prompts(records.prompt_ids)
    drawn = []
    for fold in np.unique(folds):
        groups, truth = budget_groups(
            grid_rows(len(labels), prompts, folds == fold), BUDGET, GROUPING_SEEDS[0], int(fold)
        )
        drawn += list(zip(groups, truth, strict=True))
    chosen = np.random.default_rng(7).permutation(len(drawn))[:CASES]
    server, service = serve(data, tmp_path / "cache", lambda proxy: (smollm2, proxy_hash(proxy)))
    monkeypatch.setattr(jobs.attribute, "load_reader", lambda proxy, device: smollm2)
    client, right = server.test_client(), 0
    for number, case in enumerate(chosen):
        group, truth = drawn[case]
        traces = [records.traces[row] for row in group]
        report = posted(client, traces, enrolment=enrolment.name, claimed=labels[truth], keep_duplicates=True)
        assert all(trace["enrolled_prompt"] for trace in report["traces"])
        # The table takes the largest accumulated score, without calibration.
        best = max(report["results"]["candidates"], key=lambda row: row["score"])
        right += best["source"] == labels[truth]
        if number >= ALSO:
            continue
        file, page, session = tmp_path / f"{number}.jsonl", tmp_path / f"{number}.html", "session-of-the-page-1"
        lines = [json.dumps({"prompt": t.prompt, "response": t.response}) for t in traces]
        file.write_text("\n".join(lines), "utf-8")
        upload = service.upload(session, file.name, file.read_bytes())
        asked = Settings(enrolment=enrolment.name, claimed=labels[truth], keep_duplicates=True, orders=20)
        job = service.start(session, upload.key, asked)
        assert service.wait(session, job, 120).state == "done"
        options = ["--enrolment", enrolment.name, "--claimed", labels[truth], "--keep-duplicates", "--orders", "20"]
        assert main(["attribute", str(file), *options, "--report", str(page)]) == 0
        told = read_report(page.with_suffix(".json").read_text("utf-8"))
        assert service.report(session, job)["results"] == report["results"] == told["results"]
    spread = 3 * math.sqrt(stated * (1 - stated) / CASES)
    assert abs(right / CASES - stated) <= spread, (right / CASES, stated)

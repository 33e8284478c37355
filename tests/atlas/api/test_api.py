"""REST: the same answer as the command line, as JSON, later, or as a stream; problems as documents; the token."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

import atlas.api.attribution
import backend.attribution.scoring
from atlas.api import authorised
from atlas.api.access import ADDRESS
from atlas.api.openapi import document
from backend.attribution.verify import alterations, differences
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import save_enrolment
from backend.errors import AtlasError
from backend.proxies.reader import Reader
from backend.service.service import Service
from jobs.__main__ import main
from tests.invented_atlas import publish_invented
from tests.served_api import HASH, lines_of, occupied, serve, tiny_enrolment, tiny_reader, traces_of

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def reader() -> Reader:
    return tiny_reader()


@pytest.fixture(scope="module")
def enrolment(reader: Reader) -> Enrolment:
    return tiny_enrolment()


@pytest.fixture(scope="module")
def served(
    reader: Reader, enrolment: Enrolment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Flask, Service, Path]]:
    folder = tmp_path_factory.mktemp("api")
    publish_invented(folder / "data")
    save_enrolment(enrolment, folder / "data" / "enrolments" / "tiny.npz")
    server, service = serve(folder / "data", folder / "cache", lambda proxy: (reader, HASH))
    yield server, service, folder


@pytest.fixture
def client(served: tuple[Flask, Service, Path]) -> FlaskClient:
    return served[0].test_client()


def problem(response: Any, status: int) -> dict[str, Any]:
    """The problem document of a response, checked."""
    assert response.status_code == status, response.get_data(as_text=True)[:500]
    assert response.content_type == PROBLEM
    told: dict[str, Any] = response.get_json(force=True)
    assert told["status"] == status
    assert told["title"]
    assert told["detail"]
    return told


# Attribution


def test_json_gives_what_the_command_line_gives(
    served: tuple[Flask, Service, Path], reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _, folder = served
    body = {"traces": traces_of("shout", 40), "claimed": "shout", "prior": {"shout": 2, "code": 1.5}, "orders": 20}
    answer = server.test_client().post("/api/attribute", json=body)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    told = answer.get_json()
    assert (told["state"], told["done"], told["total"]) == ("done", 40, 40)
    assert alterations(told["report"]) == []

    (tmp_path / "prior.json").write_text(json.dumps(body["prior"]))
    (tmp_path / "traces.jsonl").write_bytes(lines_of("shout", 40))
    monkeypatch.setenv("ATLAS_DATA", str(folder / "data"))
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.attribution.scoring, "proxy_hash", lambda proxy: HASH)
    page = tmp_path / "out.html"
    asked = ["attribute", str(tmp_path / "traces.jsonl"), "--claimed", "shout", "--prior", str(tmp_path / "prior.json")]
    assert main([*asked, "--orders", "20", "--report", str(page)]) == 0
    report = json.loads(page.with_suffix(".json").read_text("utf-8"))
    assert report["results"] == told["report"]["results"]
    assert [row["rank"] for row in told["report"]["results"]["lands"]["rows"]] == [1, 2, 3]
    assert report["traces"] == told["report"]["traces"]
    assert differences(report, told["report"]) == []
    # The report's own command takes the prior out of the report.
    assert "--prior report.json" in told["report"]["command"]
    asked[asked.index("--prior") + 1] = str(page.with_suffix(".json"))
    again = tmp_path / "again.html"
    assert main([*asked, "--orders", "20", "--report", str(again)]) == 0
    assert differences(report, json.loads(again.with_suffix(".json").read_text("utf-8"))) == []
    # Nothing is left of what was sent.
    assert not list((folder / "cache" / "uploads").glob("*/*"))
    assert not [file for file in (folder / "cache").rglob("*") if file.is_file() and b"STOP THE" in file.read_bytes()]
    assert problem(server.test_client().get(f"/api/jobs/{told['job']}"), 404)["remedy"]


def test_candidates_are_those_of_the_command_line(
    served: tuple[Flask, Service, Path], reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _, folder = served
    client = server.test_client()
    body = {"traces": traces_of("shout", 40), "candidates": ["family:words"], "orders": 20}
    told = client.post("/api/attribute", json=body).get_json()
    report = told["report"]
    assert set(told["nearest"]) == {"plain", "shout"} == set(report["reference"]["sources"])
    assert report["reference"]["left_out"] == ["code"] and "--candidates family:words" in report["command"]
    assert alterations(report) == []
    (tmp_path / "traces.jsonl").write_bytes(lines_of("shout", 40))
    monkeypatch.setenv("ATLAS_DATA", str(folder / "data"))
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.attribution.scoring, "proxy_hash", lambda proxy: HASH)
    page, traces = tmp_path / "out.html", str(tmp_path / "traces.jsonl")
    asked = ["attribute", traces, "--candidates", "family:words", "--orders", "20", "--report", str(page)]
    assert main(asked) == 0
    assert differences(json.loads(page.with_suffix(".json").read_text("utf-8")), report) == []
    assert main(["verify", str(page.with_suffix(".json")), "--traces", traces]) == 0
    form = {"file": (io.BytesIO(lines_of("shout")), "t.jsonl"), "candidates": json.dumps(["shout", "code"])}
    assert client.post("/api/attribute", data=form).get_json()["report"]["reference"]["left_out"] == ["plain"]
    for entries, words in ((["shot", "code"], "such as shout"), (["code"], "python -m jobs enroll")):
        refused = problem(client.post("/api/attribute", json=body | {"candidates": entries}), 422)
        assert words in refused["remedy"]
    assert main([*asked[:2], "--candidates", "shot,code"]) == 2
    problem(client.post("/api/attribute", json=body | {"candidates": [1]}), 422)


def test_unlabelled_traffic_is_that_of_the_command_line(
    served: tuple[Flask, Service, Path], reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, service, folder = served
    client = server.test_client()
    pool = [one for style in ("shout", "plain", "code") for one in traces_of(style, 80)]
    asked = traces_of("shout", 10)
    told = client.post("/api/attribute", json={"traces": asked, "background": pool, "orders": 20}).get_json()
    if told["report"] is None:
        session, _, job = told["job"].partition(".")
        assert service.wait(session, job, 120).further_total == 240
        told = client.get(f"/api/jobs/{told['job']}").get_json()
    report = told["report"]
    assert report["background"]["responses"] == 230 and report["background"]["questioned"] == 10
    assert report["results"]["traffic"]["kind"] == "unfitted pool" and alterations(report) == []
    assert "--background background.jsonl" in report["command"]
    traces, unlabelled, page = (tmp_path / name for name in ("traces.jsonl", "background.jsonl", "out.html"))
    for path, rows in ((traces, asked), (unlabelled, pool)):
        path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    monkeypatch.setenv("ATLAS_DATA", str(folder / "data"))
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.attribution.scoring, "proxy_hash", lambda proxy: HASH)
    words = ["attribute", str(traces), "--background", str(unlabelled), "--orders", "20", "--report", str(page)]
    assert main(words) == 0
    (other,) = differences(json.loads(page.with_suffix(".json").read_text("utf-8")), report)
    assert other.endswith("(background, sha256)"), "the same responses in another file"
    check = ["verify", str(page.with_suffix(".json")), "--traces", str(traces)]
    assert main([*check, "--background", str(unlabelled)]) == 0
    assert main(check) == 2, "without the pool it cannot be computed again"
    form = {"file": (io.BytesIO(traces.read_bytes()), "t.jsonl"), "background": (io.BytesIO(b"x\ny"), "few.txt")}
    assert "200 are needed" in problem(client.post("/api/attribute", data=form), 422)["detail"]
    uploaded = service.upload("somebody-0123456789", "out.json", page.with_suffix(".json").read_bytes())
    again = service.upload("somebody-0123456789", "traces.jsonl", traces.read_bytes())
    with pytest.raises(AtlasError, match="made with unlabelled traffic") as refused:
        service.recompute("somebody-0123456789", uploaded.key, again.key)
    assert "jobs verify" in str(refused.value.remedy)
    service.forget("somebody-0123456789")


def test_a_file_with_its_columns(client: FlaskClient) -> None:
    rows = [{"q": t["prompt"], "a": t["response"]} for t in traces_of("code")]
    packed = gzip.compress("\n".join(["{broken", *map(json.dumps, rows)]).encode())
    form = {
        "file": (io.BytesIO(packed), "../x.jsonl.gz"), "claimed": "code", "keep_text": "2", "case": "=1+1",
        "columns": json.dumps({"response": "a", "prompt": "q"}), "prior": json.dumps({"code": 1}),
    }  # fmt: skip
    told = client.post("/api/attribute", data=form).get_json()
    report = told["report"]
    assert report["input"]["name"] == "x.jsonl.gz"
    assert report["input"]["columns"]["response"] == "a"
    assert [entry["place"] for entry in report["input"]["problems"]] == [1]
    assert len(report["traces"]) == 12
    assert report["text_kept"]
    assert len(report["heat_maps"]) == 2
    for shown in report["heat_maps"]:
        assert sum(piece["value"] for piece in shown["pieces"]) == pytest.approx(shown["log_odds"], abs=1e-4)


def test_later_and_its_report(client: FlaskClient) -> None:
    answer = client.post("/api/attribute", json={"traces": traces_of("plain")}, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    told = answer.get_json()
    where = answer.headers["Location"]
    assert where == f"/api/jobs/{told['job']}"
    session, _, job = told["job"].partition(".")
    service: Service = client.application.extensions["attribution"]
    assert service.wait(session, job, 300).state == "done"
    held = client.get(where).get_json()
    assert (held["state"], held["report"]["results"]["leader"]) == ("done", "plain")
    assert [point["traces"] for point in held["evidence"]] == list(range(1, 13))
    assert "<!doctype html>" in client.get(f"{where}/report?form=html").get_data(as_text=True)
    assert client.get(f"{where}/report?form=csv").get_data(as_text=True).count("\n") == 13
    assert client.get(f"{where}/report").get_json()["sha256"] == held["report"]["sha256"]
    problem(client.get(f"{where}/report?form=pdf"), 422)
    assert client.delete(where).status_code == 204
    problem(client.get(where), 404)
    problem(client.delete(where), 404)
    problem(client.get(f"/api/jobs/{'0' * 32}.{job}"), 404)


def test_a_stream_begins_after_the_first_batch(client: FlaskClient) -> None:
    answer = client.post(
        "/api/attribute", json={"traces": traces_of("shout", 40)}, headers={"Accept": "application/x-ndjson"}
    )
    assert answer.content_type == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.get_data().splitlines()]
    assert [line["event"] for line in lines] == ["progress"] * (len(lines) - 1) + ["report"]
    assert sum(len(line["evidence"]) for line in lines[:-1]) == 40
    batches = [line for line in lines[:-1] if line["evidence"]]
    assert batches[0]["done"] == 8 or len(batches) == 1
    assert lines[-1]["report"]["results"]["leader"] == "shout"


def test_whoever_hangs_up_leaves_nothing(client: FlaskClient) -> None:
    service: Service = client.application.extensions["attribution"]
    for _ in range(atlas.api.attribution.WAITERS + 2):
        answer = client.post(
            "/api/attribute", json={"traces": traces_of("plain", 100)}, headers={"Accept": "application/x-ndjson"}
        )
        assert answer.status_code == 200  # the place of the one before is free again
        answer.close()  # without a line being read
    assert not list(service.uploads.folder.glob("*/*.file"))


def test_a_stream_that_waits_says_so_and_lets_go(
    served: tuple[Flask, Service, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server notices that somebody hung up only when it sends them something."""
    monkeypatch.setattr(atlas.api.attribution, "PULSE", 0.01)
    server, service, _ = served
    with occupied(service):
        answers = [
            server.test_client().post(
                "/api/attribute",
                json={"traces": traces_of("plain", 4)},
                headers={"Accept": "application/x-ndjson"},
                buffered=False,
            )
            for _ in range(atlas.api.attribution.WAITERS)
        ]
        for answer in answers:
            told = json.loads(next(answer.response))
            assert (told["event"], told["state"], told["done"], told["evidence"]) == ("progress", "queued", 0, [])
            answer.close()  # as a server does whose line turns out to be cut
        assert not list(service.uploads.folder.glob("*/*.file"))
    assert server.test_client().post("/api/attribute", json={"traces": traces_of("plain", 4)}).status_code == 200


def test_more_than_a_few_do_not_wait(client: FlaskClient) -> None:
    stream = {"Accept": "application/x-ndjson"}
    body = {"traces": traces_of("plain", 4)}
    open_ones = [client.post("/api/attribute", json=body, headers=stream) for _ in range(atlas.api.attribution.WAITERS)]
    problem(client.post("/api/attribute", json=body, headers=stream), 429)
    assert client.post("/api/attribute", json=body).status_code == 202
    for answer in open_ones:
        assert answer.get_data().count(b'"event":"report"') == 1
        answer.close()
    assert client.post("/api/attribute", json=body).status_code == 200


def test_cancel_keeps_what_is_done(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = client.post("/api/attribute", json={"traces": traces_of("plain", 3_000)})
    assert answer.status_code == 202  # more than 200 traces are not waited for
    where = answer.headers["Location"]
    session, _, job = answer.get_json()["job"].partition(".")
    client.application.extensions["attribution"].wait(session, job, 300, after=0)
    told = client.delete(where).get_json()
    assert told["state"] == "cancelled"
    assert 0 < told["done"] < 3_000
    assert told["report"]["results"]["traces"] == told["done"]
    assert client.delete(where).status_code == 204


# Drift


def test_drift_is_what_the_command_line_says(
    served: tuple[Flask, Service, Path], reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _, folder = served
    before = set((folder / "cache" / "uploads").glob("*/*"))
    body = {"before": traces_of("plain"), "after": traces_of("shout")}
    answer = server.test_client().post("/api/drift", json=body)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    told = answer.get_json()
    assert (told["state"], told["done"], told["total"], told["enrolment"]) == ("done", 24, 24, "tiny")
    assert told["answer"]["verdict"] == "DIFFERENT"
    # Nothing is left of what was sent.
    assert set((folder / "cache" / "uploads").glob("*/*")) <= before
    assert problem(server.test_client().get(f"/api/drift/{told['job']}"), 404)["remedy"]

    monkeypatch.setenv("ATLAS_DATA", str(folder / "data"))
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.attribution.scoring, "proxy_hash", lambda proxy: HASH)
    paths = []
    for name, style in (("before", "plain"), ("after", "shout")):
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_bytes(lines_of(style))

    def by_verb(*files: Path) -> dict[str, Any]:
        assert main(["drift", *map(str, files), "--json", str(tmp_path / "out.json")]) == 0
        return comparable(json.loads((tmp_path / "out.json").read_text("utf-8")))

    form = {side: (io.BytesIO(path.read_bytes()), path.name) for side, path in zip(body, paths, strict=True)}
    assert comparable(server.test_client().post("/api/drift", data=form).get_json()["answer"]) == by_verb(*paths)
    halves = server.test_client().post("/api/drift", json={"before": body["before"], "enrolment": "tiny"})
    for asked, verb in ((told, by_verb(*paths)), (halves.get_json(), by_verb(paths[0]))):
        answer = comparable(asked["answer"])
        for window in [*answer["windows"], *verb["windows"]]:  # a body is written down with fewer spaces than the file
            window["file"] |= {"sha256": "", "size": 0}
        assert answer == verb


def comparable(told: dict[str, Any]) -> dict[str, Any]:
    """An answer without what two runs do not share; the command line reads longer texts than a server does."""
    for window in told["windows"]:
        del window["file"]["selection"]["characters"]
    return {key: value for key, value in told.items() if key not in ("created", "command", "sha256")}


def test_drift_later_and_cancelled(client: FlaskClient) -> None:
    body = {"before": traces_of("plain"), "after": traces_of("code")}
    answer = client.post("/api/drift", json=body, headers={"Prefer": "respond-async"})
    assert (answer.status_code, answer.get_json()["answer"]) == (202, None)
    where = answer.headers["Location"]
    session, *jobs = answer.get_json()["job"].split(".")
    assert where == f"/api/drift/{answer.get_json()['job']}"
    service: Service = client.application.extensions["attribution"]
    assert [service.wait(session, job, 300).state for job in jobs] == ["done", "done"]
    held = client.get(where).get_json()
    assert (held["state"], held["answer"]["verdict"]) == ("done", "DIFFERENT")
    assert client.get(where).get_json()["answer"]["statistic"] == held["answer"]["statistic"]
    assert client.delete(where).status_code == 204
    problem(client.get(where), 404)
    problem(client.delete(where), 404)
    for wrong in ("x", f"{session}.", f"{session}.a.b.c", f"{'0' * 32}.{jobs[0]}"):
        problem(client.get(f"/api/drift/{wrong}"), 404)
    assert not list(service.uploads.folder.glob("*/*.file"))

    with occupied(service):
        where = client.post("/api/drift", json=body, headers={"Prefer": "respond-async"}).headers["Location"]
        assert client.get(where).get_json()["state"] == "queued"
        told = client.delete(where).get_json()
        assert (told["state"], told["answer"]) == ("cancelled", None)
        assert "0 of 12 traces of the first window" in told["problem"]["detail"]
        assert client.delete(where).status_code == 204


def test_a_cancelled_comparison_keeps_what_was_read(client: FlaskClient) -> None:
    service: Service = client.application.extensions["attribution"]
    for before, enough in ((12, True), (3_000, False)):
        body = {"before": traces_of("plain", before), "after": traces_of("shout", 3_000)}
        answer = client.post("/api/drift", json=body)
        assert answer.status_code == 202  # more than 200 traces are not waited for
        where = answer.headers["Location"]
        session, *jobs = answer.get_json()["job"].split(".")
        service.wait(session, jobs[1 if enough else 0], 300, after=0)
        told = client.delete(where).get_json()
        assert told["state"] == "cancelled"
        assert 0 < told["done"] < told["total"]
        if enough:
            assert (told["answer"]["verdict"], told["problem"]) == ("DIFFERENT", None)
            assert (
                f"12 of 12 traces of the first window and {told['done'] - 12:,} of 3,000" in told["answer"]["notes"][0]
            )
        else:
            assert told["answer"] is None
            assert told["problem"]["status"] == 409
            assert f"{told['done']:,} of 3,000 traces of the first window and 0 of 3,000" in told["problem"]["detail"]
        assert (client.get(where).get_json()["answer"] is not None) == enough
        assert client.delete(where).status_code == 204


def test_drift_of_what_makes_no_sense(client: FlaskClient) -> None:
    good, four = traces_of("plain"), traces_of("shout", 4)
    for body, words in (
        ({"before": good, "after": four}, "second window has 4 traces"),
        ({"before": four}, "first window has 2 traces"),
        ({"before": good, "after": []}, "/after"),
        ({"after": good}, "/before"),
        ({"before": good, "traces": good}, "/traces"),
        ({"before": [*good, {"response": "x", "zz": 1}]}, "/before/12/zz"),
        ({"before": good, "after": [{"prompt": "only"}]}, "/after/0/response"),
        ({"before": good, "after": good, "enrolment": "zz"}, "no ecosystem 'zz'"),
    ):
        assert words in problem(client.post("/api/drift", json=body), 422)["detail"]
    problem(client.post("/api/drift", data=b"{", content_type="application/json"), 400)
    problem(client.post("/api/drift", data=b"x", content_type="text/plain"), 415)

    def form(**files: bytes) -> dict[str, Any]:
        return {name: (io.BytesIO(content), f"{name}.jsonl") for name, content in files.items()}

    lines = lines_of("plain")
    for data, words in (
        (form(after=lines), "no file named 'before'"),
        (form(before=lines, after=lines, file=lines), "/file"),
        (form(before=lines, after=b""), "'after' is empty"),
        (form(before=lines, after=b"{broken\n{"), "no trace in after.jsonl (line 1"),
        (form(before=lines) | {"columns": "{"}, "no JSON"),
        (form(before=lines) | {"claimed": "plain"}, "/claimed"),
    ):
        assert words in problem(client.post("/api/drift", data=data), 422)["detail"]
    secret = "Sesame, open up <script>"
    hostile = [{"prompt": f"{secret} {i}", "response": f"{secret}\x1b[2J {i}", "id": secret} for i in range(12)]
    answer = client.post("/api/drift", json={"before": hostile, "after": good})
    assert answer.status_code == 200 and secret[:6] not in answer.get_data(as_text=True)
    service: Service = client.application.extensions["attribution"]
    assert not list(service.uploads.folder.glob("*/*.file"))


# Reference


def test_a_reference_is_compared_as_by_the_command_line(
    served: tuple[Flask, Service, Path], reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, service, folder = served
    client = server.test_client()
    body = {"traces": traces_of("plain"), "reference": traces_of("shout"), "rival": traces_of("code")}
    told = client.post("/api/reference", json=body).get_json()
    assert (told["state"], told["done"], told["total"]) == ("done", 36, 36)
    answer = told["answer"]
    assert answer["verdict"] == "AGAINST" and answer["prompts"] == 12 and answer["next_step"]
    assert [window["name"] for window in answer["windows"]] == ["traces.jsonl", "reference.jsonl", "rival.jsonl"]
    assert "rival.jsonl" in answer["rivals"][0]["sentence"]
    assert "reference-check traces.jsonl --reference reference.jsonl --rival rival.jsonl" in answer["command"]
    monkeypatch.setenv("ATLAS_DATA", str(folder / "data"))
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.attribution.scoring, "proxy_hash", lambda proxy: HASH)
    paths = {name: tmp_path / f"{name}.jsonl" for name in body}
    for path, style in zip(paths.values(), ("plain", "shout", "code"), strict=True):
        path.write_bytes(lines_of(style))
    words = [str(paths["traces"]), "--reference", str(paths["reference"]), "--rival", str(paths["rival"])]
    assert main(["reference-check", *words, "--json", str(tmp_path / "out.json")]) == 1
    form = {name: (io.BytesIO(path.read_bytes()), path.name) for name, path in paths.items()}
    again = client.post("/api/reference", data=form).get_json()["answer"]
    assert comparable(again) == comparable(json.loads((tmp_path / "out.json").read_text("utf-8")))
    same = client.post("/api/reference", json={"traces": body["traces"], "reference": body["traces"]}).get_json()
    assert same["answer"]["verdict"] in ("SUPPORTS", "INCONCLUSIVE") and same["answer"]["p_value"] == 1.0
    assert not list(service.uploads.folder.glob("*/*.file"))


def test_a_reference_with_other_prompts_is_refused_before_anything_is_read(client: FlaskClient) -> None:
    good, other = traces_of("plain"), [{"prompt": f"Other {i}?", "response": "Yes."} for i in range(12)]
    for body, words in (
        ({"traces": good, "reference": other}, "0 prompts are answered by both sides"),
        ({"traces": good, "reference": [{"response": one["response"]} for one in good]}, "0 prompts are answered"),
        ({"traces": good}, "/reference"),
        ({"traces": good, "reference": good, "before": good}, "/before"),
    ):
        assert words in problem(client.post("/api/reference", json=body), 422)["detail"]
    service: Service = client.application.extensions["attribution"]
    with occupied(service):
        body = {"traces": good, "reference": good}
        where = client.post("/api/reference", json=body, headers={"Prefer": "respond-async"}).headers["Location"]
        told = client.delete(where).get_json()
        assert (told["state"], told["answer"]) == ("cancelled", None)
        assert "The comparison was stopped" in told["problem"]["detail"]
        assert client.delete(where).status_code == 204
    assert not list(service.uploads.folder.glob("*/*.file"))


# Problems


def test_problems_are_documents(client: FlaskClient) -> None:
    some = traces_of("plain", 2)
    for body, pointer in (
        ({}, "/traces"),
        ({"traces": []}, "/traces"),
        ({"traces": [{"prompt": "p"}]}, "/traces/0/response"),
        ({"traces": [*some, {"response": 7}]}, "/traces/2/response"),
        ({"traces": some, "zz": 1}, "/zz"),
        ({"traces": some, "prior": {"code": 0}}, "/prior/code"),
        ({"traces": some, "orders": 0}, "/orders"),
        ({"traces": some, "keep_text": 51}, "/keep_text"),
        ([], ""),
    ):
        told = problem(client.post("/api/attribute", json=body), 422)
        assert told["errors"][0]["pointer"] == pointer
    for settings, words in (
        ({"claimed": "zz"}, "No ecosystem knows"),
        ({"enrolment": "zz"}, "no ecosystem 'zz'"),
        ({"enrolment": "tiny", "claimed": "zz"}, "not enrolled"),
        ({"prior": {"zz": 1}}, "not enrolled"),
    ):
        assert words in problem(client.post("/api/attribute", json={"traces": some} | settings), 422)["detail"]
    for raw in (b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"traces": NaN}'):
        problem(client.post("/api/attribute", data=raw, content_type="application/json"), 400)
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        problem(client.post("/api/attribute", data=b"x=1", content_type=kind), 415)
    forms: list[dict[str, Any]] = [
        {},
        {"file": (io.BytesIO(b""), "t.jsonl")},
        {"file": (io.BytesIO(b"%PDF"), "t.jsonl")},
        {"file": (io.BytesIO(b"{}"), "t"), "prior": "["},
        {"file": (io.BytesIO(b"{}"), "t"), "zz": "1"},
    ]
    for form in forms:
        problem(client.post("/api/attribute", data=form, content_type="multipart/form-data"), 422)


def test_paths_and_methods_that_do_not_exist(client: FlaskClient) -> None:
    for path in ("/api", "/api/", "/api/zz", "/api/jobs", "/api/jobs/a/b", "/api/openapi.json/x"):
        problem(client.get(path), 404)
    for path in ("/api/sources/", "/api//sources", "/api/sources//", "/api/jobs/x/", "/api/neighbors//x"):
        problem(client.get(path), 404)
    problem(client.post("/api/attribute/", json={"traces": traces_of("plain", 2)}), 404)
    for method, path, allowed in (
        ("GET", "/api/attribute", "POST"),
        ("PUT", "/api/jobs/x", "DELETE"),
        ("POST", "/api/sources", "GET"),
        ("TRACE", "/api/ecosystems", "GET"),
    ):
        answer = client.open(path, method=method)
        problem(answer, 405)
        assert allowed in answer.headers["Allow"]
    assert client.get("/apiary").get_data(as_text=True) == "the page of apiary"


def test_too_large(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    big = json.dumps({"traces": [{"response": "x" * 1_000_000}] * 28}).encode()
    told = problem(client.post("/api/attribute", data=big, content_type="application/json"), 413)
    assert "Large" in told["title"]
    monkeypatch.setattr(client.application.extensions["attribution"].uploads, "limits", _limits(1000))
    form = {"file": (io.BytesIO(lines_of("plain", 100)), "t.jsonl")}
    assert "command line" in problem(client.post("/api/attribute", data=form), 413)["remedy"]


def _limits(size: int) -> Any:
    from backend.intake import Limits

    return Limits(bytes=size)


def test_busy(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    service: Service = client.application.extensions["attribution"]
    monkeypatch.setattr("backend.service.records.LIVE_JOBS", 0)
    answer = client.post("/api/attribute", json={"traces": traces_of("plain", 2)})
    problem(answer, 429)
    assert int(answer.headers["Retry-After"]) > 0
    assert not list(service.uploads.folder.glob("*/*.file"))


def test_what_the_server_lacks(tmp_path: Path, enrolment: Enrolment) -> None:
    def load(proxy: str) -> tuple[Reader, str | None]:
        raise AtlasError("The weights of tiny are not here", "Run: python -m jobs proxies install tiny")

    server, _ = serve(tmp_path / "data", tmp_path / "cache", load)
    client = server.test_client()
    body = {"traces": traces_of("plain", 2)}
    assert "enroll" in problem(client.post("/api/attribute", json=body), 503)["remedy"]
    for path in ("/api/sources", "/api/neighbors/x", "/api/evaluations"):
        assert problem(client.get(path), 503)["remedy"]
    told = client.get("/api/ecosystems").get_json()
    assert (told["ecosystems"], told["proxy"]["status"]) == ([], "absent")
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    assert "proxies install tiny" in problem(client.post("/api/attribute", json=body), 503)["remedy"]


def test_a_fault_of_ours_says_nothing_of_itself(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atlas.api.attribution, "received", lambda request: 1 / 0)
    client.application.config["PROPAGATE_EXCEPTIONS"] = False
    told = problem(client.post("/api/attribute", json={"traces": traces_of("plain", 2)}), 500)
    assert "division" not in json.dumps(told)


# The token


def test_a_token_guards_what_is_below_api(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_TOKEN", "s3cret-ünïcode")
    body = {"traces": traces_of("plain", 2)}
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic s3cret"},
        {"Authorization": "Bearer"},
    ):
        answer = client.post("/api/attribute", json=body, headers=headers)
        problem(answer, 401)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        problem(client.get("/api/sources", headers=headers), 401)
    right = {"Authorization": "Bearer " + "s3cret-ünïcode".encode().decode("latin-1")}
    assert client.post("/api/attribute", json=body, headers=right).status_code == 200
    assert client.get("/api/openapi.json").status_code == 200
    assert client.get("/health").status_code == 200
    problem(client.post("/api/session", json={"token": "wrong"}), 401)
    given = client.post("/api/session", json={"token": "s3cret-ünïcode"})
    assert given.status_code == 204
    assert "HttpOnly" in given.headers["Set-Cookie"]
    assert "SameSite=Strict" in given.headers["Set-Cookie"]
    assert "s3cret" not in given.headers["Set-Cookie"]
    assert client.get("/api/sources").status_code == 200  # by its cookie now
    monkeypatch.setenv("ATLAS_TOKEN", "another")
    problem(client.get("/api/sources"), 401)
    assert client.delete("/api/session").status_code == 204


def test_pages_ask_who_may_upload(served: tuple[Flask, Service, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from flask import request

    with served[0].test_request_context("/"):
        assert authorised(request)
        monkeypatch.setenv("ATLAS_TOKEN", "t")
        assert not authorised(request)
    with served[0].test_request_context("/", headers={"Authorization": "bearer t"}):
        assert authorised(request)


# Other sites


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
    ],
    ids=str,
)
def test_pages_of_other_sites_send_nothing(client: FlaskClient, headers: dict[str, str]) -> None:
    body = {"traces": traces_of("plain", 2)}
    assert "another site" in problem(client.post("/api/attribute", json=body, headers=headers), 403)["detail"]
    problem(client.delete(f"/api/jobs/{'0' * 32}.x", headers=headers), 403)
    problem(client.post("/_dash-update-component", json={}, headers=headers), 403)
    assert client.get("/api/sources", headers=headers).status_code == 200  # which their browser keeps from them


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Host": "127.0.0.1:8443", "Origin": "https://127.0.0.1:8443"},
    ],
    ids=str,
)
def test_programs_and_its_own_pages_go_on(client: FlaskClient, headers: dict[str, str]) -> None:
    assert client.post("/api/attribute", json={"traces": traces_of("plain", 2)}, headers=headers).status_code == 200


def test_a_proxy_may_call_the_server_by_another_name(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"traces": traces_of("plain", 2)}
    through = {"Host": "127.0.0.1:8050", "Origin": "https://atlas.example"}
    problem(client.post("/api/attribute", json=body, headers=through), 403)
    monkeypatch.setenv("ATLAS_HOSTS", "one.example, Atlas.example")
    assert client.post("/api/attribute", json=body, headers=through).status_code == 200
    problem(client.post("/api/attribute", json=body, headers=through | {"Origin": "https://a.atlas.example"}), 403)


def test_a_server_goes_by_names_of_its_own_machine(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's name can be made to mean this machine; their pages could then read what stands here."""
    strange = ("evil.example", "evil.example:8050", "127.0.0.1.evil.example", "192.0.2.7", "[2001:db8::1]:80", "[")
    near = ("localhost", "LOCALHOST:8050", "127.0.0.1:8050", "127.1.2.3", "[::1]:8050", "atlas.localhost")
    for address in (None, "127.0.0.1", "0.0.0.0", "::"):  # whatever it listens to, and however it was started
        monkeypatch.setitem(client.application.config, ADDRESS, address)
        for host in strange:
            for path in ("/api/sources", "/health", "/"):
                own = {"Host": host, "Origin": f"http://{host}"}
                assert "go by the name" in problem(client.get(path, headers=own), 403)["detail"]
        for host in near:
            assert client.get("/api/sources", headers={"Host": host}).status_code == 200
    monkeypatch.setitem(client.application.config, ADDRESS, "192.0.2.7")
    assert client.get("/api/sources", headers={"Host": "192.0.2.7:8050"}).status_code == 200
    problem(client.get("/api/sources", headers={"Host": "192.0.2.8:8050"}), 403)
    monkeypatch.setenv("ATLAS_HOSTS", "atlas.example:8443")
    assert client.get("/api/sources", headers={"Host": "atlas.example:8443"}).status_code == 200
    problem(client.get("/api/sources", headers={"Host": "evil.example"}), 403)


def test_answers_are_what_they_say_and_nobody_frames_them(client: FlaskClient) -> None:
    for answer in (client.get("/api/sources"), client.get("/api/zz"), client.get("/health"), client.get("/x")):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
    told = client.post("/api/attribute", json={"traces": traces_of("plain")}, headers={"Prefer": "respond-async"})
    session, _, job = told.get_json()["job"].partition(".")
    client.application.extensions["attribution"].wait(session, job, 300)
    page = client.get(f"{told.headers['Location']}/report?form=html")
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "script" not in page.headers["Content-Security-Policy"]


# Numbers


def test_sources_neighbours_and_evaluations(client: FlaskClient) -> None:
    held = client.get("/api/sources").get_json()
    assert len(held["sources"]) == 27
    few = client.get("/api/sources?roster=12-way").get_json()["sources"]
    assert len(few) == 12
    assert all("12-way" in source["rosters"] for source in few)
    label = few[0]["source"]
    near = client.get(f"/api/neighbors/{label}?top=3").get_json()
    assert [row["rank"] for row in near["neighbors"]] == [1, 2, 3]
    assert near["source"] == label
    problem(client.get("/api/neighbors/zz"), 404)
    for query in ("reader=zz", "roster=zz", "domain=zz", "top=0", "top=x", "top=-1", "top=99999999999999"):
        problem(client.get(f"/api/neighbors/{label}?{query}"), 422)
    numbers = client.get("/api/evaluations?metric=accuracy&limit=5").get_json()
    assert len(numbers["evaluations"]) == 5 < numbers["total"]
    assert {row["metric"] for row in numbers["evaluations"]} == {"accuracy"}
    rest = client.get("/api/evaluations?metric=accuracy&limit=10000&offset=5").get_json()
    assert len(rest["evaluations"]) == numbers["total"] - 5
    only = client.get("/api/evaluations?k=20&roster=12-way&reduction=pooled").get_json()["evaluations"]
    assert {(row["k"], row["roster"], row["reduction"]) for row in only} == {(20, "12-way", "pooled")}
    ecosystems = client.get("/api/ecosystems").get_json()["ecosystems"]
    assert [(one["name"], one["sources"]) for one in ecosystems] == [("tiny", ["code", "plain", "shout"])]


def test_the_document_names_every_route(client: FlaskClient) -> None:
    told = client.get("/api/openapi.json").get_json()
    assert told == json.loads(json.dumps(document()))
    rules = {
        (rule.rule.replace("<path:", "{").replace("<", "{").replace(">", "}"), method.lower())
        for rule in client.application.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if rule.endpoint.startswith("api.")
    }
    assert rules == {(path, m) for path, item in told["paths"].items() for m in item if m != "parameters"}

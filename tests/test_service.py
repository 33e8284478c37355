"""The service behind page and REST: sessions, jobs, cancelling, token evidence, and what is deleted when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.audit.enrolment import Enrolment
from backend.audit.enrolment_files import save_enrolment
from backend.audit.service import Service
from backend.audit.settings import Settings
from backend.audit.uploads import MissingError
from backend.audit.verification import alterations
from backend.errors import AtlasError
from backend.proxies.reader import Reader
from jobs._enrolments import enrolment_of_traces
from tests.test_audit_attributor import STYLES, labelled
from tests.tiny_models import tiny_decoder, tiny_tokenizer

ANN, BEN = "session-of-ann-0001", "session-of-ben-0002"
PATIENCE = 60


def file_of(style: str, count: int = 12) -> bytes:
    lines = [json.dumps({"prompt": f"New {i}?", "response": STYLES[style].format(i=i)}) for i in range(count)]
    return "\n".join(lines).encode()


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)


@pytest.fixture(scope="module")
def enrolment(reader: Reader) -> Enrolment:
    traces, labels = labelled()
    return enrolment_of_traces(
        traces, labels, reader, name="tiny", proxy="tiny", weights_hash="f" * 64, view="ur", layer=2,
        families={"plain": "words", "shout": "words"},
    )  # fmt: skip


@pytest.fixture
def service(reader: Reader, enrolment: Enrolment, tmp_path: Path) -> Iterator[Service]:
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    yield Service(tmp_path / "data", tmp_path / "cache", load=lambda proxy: (reader, "f" * 64))


def test_a_file_becomes_a_report(service: Service) -> None:
    service.warm()
    upload = service.upload(ANN, "../../etc/traces.jsonl", file_of("shout"))
    assert upload.name == "traces.jsonl"
    preview = service.inspect(ANN, upload.key)
    assert (preview.kind, preview.traces, preview.columns.response) == ("jsonl", 12, "response")
    assert preview.rows[0]["prompt"] == "New 0?"
    job = service.start(ANN, upload.key, Settings(claimed="shout", case="<case>", orders=20))
    end = service.wait(ANN, job, PATIENCE)
    assert (end.state, end.done, end.total, end.reported) == ("done", 12, 12, True)
    assert service.state().status == "ready"
    report = service.report(ANN, job)
    assert alterations(report) == []
    assert report["case"] == "<case>"
    assert report["results"]["leader"] == "shout" == end.posterior[0][0]
    assert report["command"].startswith("python -m jobs attribute traces.jsonl --enrolment tiny --claimed shout")
    # The running evidence is that of the report, which counts in the same order.
    assert end.points[-1].log10_ratio_others == pytest.approx(report["results"]["running"][-1]["log10_ratio_others"])
    assert [point.traces for point in end.points] == list(range(1, 13))
    assert sum(share for _, share in end.posterior) == pytest.approx(1)
    assert "&lt;case&gt;" in service.export(ANN, job, "html")
    assert service.export(ANN, job, "csv").count("\n") == 13
    assert json.loads(service.export(ANN, job, "json"))["sha256"] == report["sha256"]
    assert "STOP THE SERVICE" not in service.export(ANN, job, "json")
    with pytest.raises(AtlasError, match="no form"):
        service.export(ANN, job, "pdf")


def test_tokens_sum_to_the_score(service: Service) -> None:
    upload = service.upload(ANN, "t.jsonl", file_of("shout"))
    job = service.start(ANN, upload.key, Settings(orders=20))
    service.wait(ANN, job, PATIENCE)
    evidence = service.tokens(ANN, job, 3, "shout", "code")
    assert "".join(piece["text"] for piece in evidence["pieces"]) + evidence["rest"] == STYLES["shout"].format(i=2)
    assert sum(piece["value"] for piece in evidence["pieces"]) == pytest.approx(evidence["log_odds"], abs=1e-4)
    usual = service.tokens(ANN, job, 1)
    assert (usual["source"], usual["number"]) == ("shout", 1)
    for row, source, words in ((99, None, "no trace 99"), (1, "zz", "not enrolled")):
        with pytest.raises(AtlasError, match=words):
            service.tokens(ANN, job, row, source)
    with pytest.raises(AtlasError, match="the same"):
        service.tokens(ANN, job, 1, "code", "code")


def test_two_sessions_do_not_see_each_other(service: Service) -> None:
    key = service.upload(ANN, "t.jsonl", file_of("shout")).key
    job = service.start(ANN, key, Settings(orders=20))
    service.wait(ANN, job, PATIENCE)
    for ask in (
        lambda: service.inspect(BEN, key),
        lambda: service.start(BEN, key, Settings()),
        lambda: service.progress(BEN, job),
        lambda: service.cancel(BEN, job),
        lambda: service.report(BEN, job),
        lambda: service.export(BEN, job, "html"),
        lambda: service.tokens(BEN, job, 1),
        lambda: service.lands(BEN, job),
        lambda: service.inspect(ANN, "../" + key),
    ):
        with pytest.raises(MissingError):
            ask()
    assert service.jobs(BEN) == []
    assert [held.job for held in service.jobs(ANN)] == [job]
    service.forget(BEN)
    assert service.report(ANN, job)["results"]["leader"] == "shout"
    service.forget(ANN)
    with pytest.raises(MissingError):
        service.report(ANN, job)
    assert list(service.uploads.folder.rglob("*.*")) == []
    with pytest.raises(AtlasError, match="no key"):
        service.upload("short", "t.jsonl", b"x")

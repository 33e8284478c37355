"""The audit log: what stands in it and what never does, its chain, rotation, several processes, a full disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from backend.enrolment.files import save_enrolment
from backend.errors import AtlasError
from backend.service import caller
from backend.service.audit_log import VARIABLE, AuditLog, check, files_of, settings_hash
from backend.service.caller import Caller
from backend.service.service import Service
from jobs import verify
from jobs.__main__ import main
from tests.served_api import HASH, lines_of, serve, tiny_enrolment, tiny_reader, traces_of

SESSION = "s" * 32
REPOSITORY = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl", tmp_path / "key")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[FlaskClient, Service]]:
    reader = tiny_reader()
    save_enrolment(tiny_enrolment(), tmp_path / "data" / "enrolments" / "tiny.npz")
    server, service = serve(tmp_path / "data", tmp_path / "cache", lambda proxy: (reader, HASH))
    yield server.test_client(), service
    service.close()


def lines(log: AuditLog) -> list[dict[str, Any]]:
    assert log.path is not None
    return [json.loads(line) for file in files_of(log.path) for line in file.read_text("ascii").splitlines()]


def test_an_attribution_is_told_from_upload_to_deletion(
    api: tuple[FlaskClient, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, service = api
    monkeypatch.setenv("ATLAS_TOKEN", "right")
    right = {"Authorization": "Bearer right"}
    body = {"traces": traces_of("shout"), "claimed": "shout", "case": "the-secret-case"}
    job = client.post("/api/attribute", json=body, headers=right | {"Prefer": "respond-async"}).get_json()["job"]
    session, _, name = job.partition(".")
    service.wait(session, name, 300)
    report = client.get(f"/api/jobs/{job}/report", headers=right).get_json()
    assert client.delete(f"/api/jobs/{job}", headers=right).status_code == 204

    found = lines(service.audit_log)
    assert [line["action"] for line in found] == ["upload", "start", "decision", "report", "delete"]
    upload, start, decision, exported, deletion = found
    assert {line["session"] for line in found} == {upload["session"]} and len(upload["session"]) == 32
    assert len({line["client"] for line in found}) == 1
    assert start["job"] == decision["job"] == exported["job"] and start["request"] == decision["request"]
    assert start["request"] != deletion["request"] and start["token"] is True and "token" not in decision
    assert upload["file"] == start["file"] == decision["file"] == report["input"]["sha256"]
    assert start["settings"] == decision["settings"] and len(start["settings"]) == 64
    assert start["enrolment"] == decision["enrolment"] == report["method"]["enrolment_sha256"]
    assert decision["verdict"] == report["results"]["verdict"] and decision["report"] == report["sha256"]
    assert exported["report"] == report["sha256"]
    text = service.audit_log.path.read_text("ascii")
    for secret in (session, name, "127.0.0.1", "the-secret-case", traces_of("shout")[0]["response"], "right"):
        assert secret not in text
    assert check(service.audit_log.path).found == ()
    assert service.audit_log.path.stat().st_mode & 0o077 == 0


def test_comparisons_and_checks_stand_in_it(api: tuple[FlaskClient, Service]) -> None:
    client, service = api
    windows = {"before": traces_of("shout"), "after": traces_of("plain"), "enrolment": "tiny"}
    answer = client.post("/api/drift", json=windows).get_json()["answer"]
    found = lines(service.audit_log)
    assert [line["action"] for line in found] == ["upload", "upload", "start", "start", "comparison", "delete"]
    assert found[4]["verdict"] == answer["verdict"] and found[4]["report"] == answer["sha256"]
    report = client.post("/api/attribute", json={"traces": traces_of("shout")}).get_json()["report"]
    for changed, verdict in (({}, "equal"), ({"case": "another"}, "not equal")):
        upload = service.upload(SESSION, "report.json", json.dumps(report | changed).encode())
        service.agrees(SESSION, upload.key)
        last = lines(service.audit_log)[-1]
        assert (last["action"], last["verdict"], last["report"]) == ("verify", verdict, report["sha256"])
    traces = service.upload(SESSION, "t.jsonl", "\n".join(map(json.dumps, traces_of("shout"))).encode())
    upload = service.upload(SESSION, "report.json", json.dumps(report).encode())
    job = service.recompute(SESSION, upload.key, traces.key)
    service.wait(SESSION, job, 300)
    assert service.checked(SESSION, upload.key, job).equal
    assert [line["action"] for line in lines(service.audit_log)][-2:] == ["start", "verify"]
    service.forget(SESSION)
    service.forget(SESSION)  # which deletes nothing any more
    assert [line["action"] for line in lines(service.audit_log)][-2:] == ["verify", "delete"]


def test_hashes_of_people_need_the_secret_of_the_server(tmp_path: Path) -> None:
    one, other = (AuditLog(tmp_path / f"{name}.jsonl", tmp_path / f"key-{name}") for name in "ab")
    for log in (one, other, one):
        with caller.on_behalf_of(Caller("r" * 12, "192.0.2.7", token=False)):
            log.write("upload", SESSION)
    first, again = lines(one)
    assert first["client"] == again["client"] != lines(other)[0]["client"]
    assert first["session"] == again["session"] != lines(other)[0]["session"]
    assert first["token"] is False and first["request"] == "r" * 12


def test_the_first_line_that_breaks_is_named(log: AuditLog, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        log.write("upload", SESSION, file=f"{number}" * 64)
    assert log.path is not None
    whole = log.path.read_bytes().splitlines(keepends=True)
    result = check(log.path)
    assert result.found == () and result.lines == 5 and result.last == json.loads(whole[-1])["sha256"]
    assert main(["verify", "--audit-log", str(log.path)]) == 0
    assert (
        f"EQUAL: 5 lines follow each other as they were written; the last one is {result.last}"
        in capsys.readouterr().out
    )

    def broken(*parts: bytes) -> str:
        log.path.write_bytes(b"".join(parts))
        (sentence,) = check(log.path).found
        return sentence

    changed = whole[2].replace(b"222", b"322", 1)
    assert broken(*whole[:2], changed, *whole[3:]) == "line 3 of audit.jsonl is not as it was written"
    assert main(["verify", "--audit-log", str(log.path)]) == 1
    assert "NOT EQUAL:\n  line 3 of audit.jsonl is not as it was written." in capsys.readouterr().out
    follows = "does not follow the line before: one was removed, added or written anew"
    assert broken(*whole[:2], *whole[3:]) == f"line 3 of audit.jsonl {follows}"
    assert broken(whole[0], whole[2], whole[1], *whole[3:]) == f"line 2 of audit.jsonl {follows}"
    assert broken(*whole[:2], whole[1], *whole[2:]) == f"line 3 of audit.jsonl {follows}"
    assert broken(*whole, b"no line\n") == "line 6 of audit.jsonl is not as it was written"
    forged = AuditLog(log.path.with_name("forged.jsonl"), log.path.with_name("key"))
    forged.write("upload", SESSION, file="9" * 64)
    assert forged.path is not None
    assert broken(forged.path.read_bytes(), *whole[1:]) == f"line 2 of audit.jsonl {follows}"
    with pytest.raises(AtlasError, match="There is no audit log"):
        check(log.path.with_name("none.jsonl"))
    with pytest.raises(SystemExit):
        main(["verify", "report.json", "--audit-log", str(log.path)])
    assert verify.__doc__ and "audit log" in verify.__doc__


def test_a_killed_process_leaves_a_part_of_a_line_and_the_chain_goes_on(log: AuditLog) -> None:
    log.write("upload", SESSION, file="1" * 64)
    log.write("upload", SESSION, file="2" * 64)
    assert log.path is not None
    os.truncate(log.path, log.path.stat().st_size - 40)
    assert check(log.path).found == () and check(log.path).lines == 1
    log.write("upload", SESSION, file="3" * 64)
    result = check(log.path)
    assert result.found == () and result.lines == 2
    assert result.notes == ("line 2 of audit.jsonl is incomplete: the server was stopped while it wrote",)


def test_files_are_renamed_by_size_and_the_chain_goes_on(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", tmp_path / "key", file_bytes=2_000, files=3)
    for number in range(60):
        log.write("upload", SESSION, file=f"{number:064d}")
    files = files_of(tmp_path / "audit.jsonl")
    assert len(files) == 4 and files[-1].name == "audit.jsonl" and sum(map(os.path.getsize, files)) < 4 * 2_600
    found = lines(log)
    assert [line["number"] for line in found] == list(range(found[0]["number"], 61))
    result = check(tmp_path / "audit.jsonl")
    assert result.found == () and result.lines == len(found)
    assert result.notes == (f"the first {found[0]['number'] - 1} lines were in files that are gone",)
    files[1].unlink()
    assert "line 1 of " in check(tmp_path / "audit.jsonl").found[0]


WRITER = """
import sys
from pathlib import Path
from backend.service.audit_log import AuditLog
folder = Path(sys.argv[1])
log = AuditLog(folder / "audit.jsonl", folder / "key", file_bytes=4_000, files=100)
for number in range(40):
    log.write("upload", "s" * 32, file=f"{number:064d}")
assert log.problem is None, log.problem
"""


def test_several_processes_write_one_chain(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    running = [subprocess.Popen(command, cwd=REPOSITORY) for _ in range(3)]
    assert [one.wait(300) for one in running] == [0, 0, 0]
    result = check(tmp_path / "audit.jsonl")
    assert result.found == () and result.lines == 120 and result.notes == ()
    assert len(files_of(tmp_path / "audit.jsonl")) > 3


def test_the_environment_says_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert AuditLog.of(tmp_path).path == tmp_path / "audit.jsonl"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "logs" / "atlas.log"))
    log = AuditLog.of(tmp_path)
    log.write("upload", SESSION)
    assert check(tmp_path / "logs" / "atlas.log").lines == 1
    monkeypatch.setenv(VARIABLE, "0")
    log = AuditLog.of(tmp_path / "off")
    log.write("upload", SESSION)
    assert log.path is None and not (tmp_path / "off").exists()


def test_what_cannot_be_written_is_said_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file" / "audit.jsonl"))
    (tmp_path / "file").touch()
    server, service = serve(tmp_path / "data", tmp_path / "cache", lambda proxy: (tiny_reader(), HASH))
    upload = service.upload(SESSION, "t.jsonl", lines_of("plain"))
    assert service.inspect(SESSION, upload.key).traces == 12
    assert "'upload' is missing in it" in caplog.text
    problems = server.test_client().get("/health").get_json()["problems"]
    assert any("audit.jsonl cannot be written" in problem and "ATLAS_AUDIT" in problem for problem in problems)
    (tmp_path / "file").unlink()
    service.upload(SESSION, "t.jsonl", lines_of("plain"))
    assert service.audit_log.problem is None


def test_settings_have_one_hash_whatever_the_order_of_their_prior() -> None:
    from backend.attribution.settings import Settings

    one, other = Settings(prior={"a": 1.0, "b": 2.0}), Settings(prior={"b": 2.0, "a": 1.0})
    assert settings_hash(one) == settings_hash(other) != settings_hash(Settings())

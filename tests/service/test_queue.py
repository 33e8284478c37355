"""The queue in SQLite, Redis and PostgreSQL: order, signatures, and what is said where it cannot be reached."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.errors import AtlasError, ServerError
from backend.service.queue import Queue, SignedJson
from backend.service.records import Records
from tests.daemons import postgres, redis
from tests.service.test_records import job_of

SECRET = b"s" * 32


@pytest.fixture(params=["sqlite", "redis", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | None]:
    if request.param == "sqlite":
        yield None
        return
    with {"redis": redis, "postgresql": postgres}[request.param](tmp_path) as url:
        yield url


def test_short_ones_first_then_by_priority(address: str | None, tmp_path: Path) -> None:
    done, web, worker = list[str](), Queue(address, tmp_path, SECRET), Queue(address, tmp_path, SECRET)
    worker.tasks.update(audit=lambda name: done.append(f"audit {name}"), tokens=lambda name: done.append(name))
    for name, short, priority in (("a", False, -1.0), ("b", True, -3.0), ("c", True, -2.5), ("d", False, -0.5)):
        web.put("audit", name, short=short, priority=priority)
    web.put("tokens", "t", short=True, priority=-4.0)
    assert worker.records() == {"a", "b", "c", "d", "t"}
    while (task := worker.take(short=True)) is not None:
        task()
    assert done == ["audit c", "audit b", "t"]
    while (task := worker.take()) is not None:
        task()
    assert done[3:] == ["audit d", "audit a"]
    assert worker.records() == set()


def test_two_processes_share_records(address: str | None, tmp_path: Path) -> None:
    url = address if (address or "").startswith("postgres") else None
    one, other = Records(url, tmp_path), Records(url, tmp_path)
    one.add(job_of(one, "job"), passing=False)
    one.beat("w", works=True, status="ready", details={})
    one.beat("w", works=True, status="ready", details={})
    job = other.claim("job", "w")
    assert job is not None and one.claim("job", "w") is None
    assert other.end(job, lambda: None, state="done", details='{"problem": "ü\\u0000"}')
    assert one.of_session("ann")[0].snapshot().problem == "ü\0"
    one.grant("cookie", "token", 1.0, most=1)
    one.over(0.0)
    assert other.granted("cookie") == (0.0, "") and [process.name for process in other.alive()] == ["w"]
    other.leave("w")
    one.forget("ann")
    assert other.of_session("ann") == [] and other.alive() == []


def test_foreign_tasks_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    done, queue = list[str](), Queue(None, tmp_path, SECRET)
    queue.tasks["audit"] = done.append
    Queue(None, tmp_path, b"other").put("audit", "forged", short=True, priority=0.0)
    for raw in (pickle.dumps(["audit"]), b"", b"0" * 80):
        queue._hueys[True].storage.enqueue(raw)
    queue.put("audit", "own", short=True, priority=-1.0)
    while (task := queue.take()) is not None:
        task()
    assert done == ["own"]
    assert caplog.text.count("signed with another secret") == 4


def test_messages_are_json() -> None:
    serializer = SignedJson(SECRET)
    data = serializer.serialize(("id", "audit", None))
    assert data[64:] == b'["id","audit",null]' and serializer.deserialize(data).name == "audit"
    with pytest.raises(ValueError, match="another secret"):
        serializer.deserialize(data.replace(b"audit", b"other"))


def test_a_queue_that_is_not_there_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    queue = Queue(f"redis://127.0.0.1:{port}/0", tmp_path, SECRET)
    with pytest.raises(ServerError, match="cannot be reached"):
        queue.put("audit", "job", short=True, priority=0.0)
    with pytest.raises(AtlasError, match="ATLAS_QUEUE names no queue"):
        Queue("amqp://somewhere", tmp_path, SECRET)

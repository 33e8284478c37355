"""Files and bodies that no honest client sends: none may break the server, lose a session, or grow its memory."""

from __future__ import annotations

import gzip
import io
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flask import Flask

from backend.attribution.settings import Settings
from backend.enrolment.files import save_enrolment
from backend.errors import AtlasError
from backend.service.service import Service
from tests.served_api import HASH, lines_of, serve, tiny_enrolment, tiny_reader, traces_of

ANN, EVE = "session-of-ann-0001", "session-of-eve-0003"
GROWTH = 120_000_000
Maker = Callable[[random.Random], bytes]


def made(folder: Path) -> tuple[Flask, Service]:
    """A server whose proxy multiplies for the first time after the service was made, as in production."""
    server, service = serve(folder / "data", folder / "cache", lambda proxy: (reader, HASH))
    reader = tiny_reader()
    save_enrolment(tiny_enrolment(), folder / "data" / "enrolments" / "tiny.npz")
    return server, service


def parquet() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(traces_of("code", 6)), stream)
    return stream.getvalue()


def table() -> bytes:
    return b"prompt,response\n" + b"".join(b'"New %d?","say ""%d"""\n' % (i, i) for i in range(6))


WHOLE: dict[str, bytes] = {
    "t.jsonl": lines_of("plain", 6),
    "t.json": json.dumps({"data": traces_of("plain", 6)}).encode(),
    "chat.jsonl": b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"model":"m"}\n' * 3,
    "t.csv": table(),
    "t.parquet": parquet(),
    "t.jsonl.gz": gzip.compress(lines_of("shout", 6)),
    "t.txt": b"Prompt: a\nResponse: b\n---\nPrompt: c\nResponse: d\n",
    "t16.csv": table().decode().encode("utf-16"),
}
BITS = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b"\\ud800", b"{", b"[" * 3_000, b"\n" * 50, b"PAR1", b"\x1f\x8b",
    b",,,,", b'{"response":', b"NaN", b"1e999", b'{"response":{"a":[]}}\n', b"'; DROP TABLE", b"\xc3\x28",
    b"9" * 5_000, b"PK\x03\x04", b'{"messages":[1]}\n', b'{"choices":[{}]}\n', b'"a":"b","a":', "🚀\u202e".encode(),
)  # fmt: skip


def damaged(rng: random.Random) -> tuple[str, bytes]:
    """A file of some kind with a few things wrong, under a name that may not fit it."""
    name = rng.choice(list(WHOLE))
    content = bytearray(WHOLE[name])
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(content) + 1)
        match rng.randrange(5):
            case 0:
                content[at:at] = rng.choice(BITS)
            case 1:
                del content[at : at + rng.randint(1, 40)]
            case 2:
                content[at : at + 1] = rng.randbytes(1)
            case 3:
                content[at:at] = content[: rng.randint(1, 60)]
            case _:
                del content[at:]
    if rng.random() < 0.1:
        content = bytearray(rng.randbytes(rng.randint(1, 400)))
    packed = gzip.compress(bytes(content)) if rng.random() < 0.05 else bytes(content)
    return (name if rng.random() < 0.8 else rng.choice([*WHOLE, "../../x", "", "a" * 300, "n\0l"])), packed


def body(rng: random.Random) -> bytes:
    """A JSON body with something wrong in it."""
    values: list[object] = [None, 7, "", "x" * 500, [], {}, True, -1, 1e308, "\ud800", {"code": "1"}, [[]], {"": 1}]
    told: dict[str, object] = {"traces": traces_of("plain", 2)}
    for _ in range(rng.randint(1, 3)):
        fields = ("traces", "claimed", "enrolment", "prior", "orders", "seed", "keep_text", "case", "zz", "against")
        told[rng.choice(fields)] = rng.choice(values)
    if rng.random() < 0.3:
        told["traces"] = [rng.choice([*values, {"response": rng.choice(values)}]) for _ in range(rng.randint(0, 4))]
    raw = bytearray(json.dumps(told).encode())
    if rng.random() < 0.5:
        at = rng.randrange(len(raw))
        raw[at : at + rng.randint(0, 9)] = rng.choice(BITS)
    return bytes(raw)


def memory() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def attack(served: tuple[Flask, Service], count: int, seed: int) -> None:
    """Send malformed uploads by REST and by the page's way; memory grows little after the first tenth."""
    server, service = served
    client, rng = server.test_client(), random.Random(seed)
    kept = service.upload(ANN, "t.jsonl", lines_of("shout"))
    job = service.start(ANN, kept.key, Settings(orders=1))
    assert service.wait(ANN, job, 300).state == "done"
    before, seen = 0, dict.fromkeys(("200", "400", "413", "415", "422"), 0)
    for number in range(count):
        if number == count // 10:
            before = memory()
        if number % 4 == 0:
            name, content = damaged(rng)
            try:
                service.inspect(EVE, service.upload(EVE, name, content).key)
            except AtlasError as error:
                assert error.problem
                assert error.remedy
            if number % 100 == 0:
                service.forget(EVE)
            continue
        if number % 4 == 1:
            answer = client.post("/api/attribute", data=body(rng), content_type="application/json")
        else:
            name, content = damaged(rng)
            form = {"file": (io.BytesIO(content), name.replace("\0", "") or "x"), "orders": "1"}
            answer = client.post("/api/attribute", data=form, content_type="multipart/form-data")
        assert answer.status_code < 500, (number, answer.get_data(as_text=True)[:300])
        seen[str(answer.status_code)] += 1
        if answer.status_code != 200:
            assert answer.content_type == "application/problem+json"
    assert memory() - before < GROWTH
    assert seen["200"]  # some of what was damaged still holds traces
    assert seen["400"]
    assert seen["422"]
    assert service.report(ANN, job)["results"]["leader"] == "shout"
    assert service.inspect(ANN, kept.key).traces == 12
    service.forget(EVE)
    assert [file.name for file in service.uploads.folder.rglob("*.file")] == [f"{kept.key}.file"]


@pytest.mark.slow(35)
def test_eight_hundred_malformed_uploads(tmp_path: Path) -> None:
    """In a process of its own, so that the memory is that of a server."""
    program = (
        "from pathlib import Path; from tests.atlas.api.test_malformed import attack, made; "
        f"attack(made(Path({str(tmp_path)!r})), 800, seed=2)"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]

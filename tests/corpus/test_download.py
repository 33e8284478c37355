"""Fetching a release: from folders, archives and a server that misbehaves; whole or not at all."""

from __future__ import annotations

import errno
import gzip
import http.server
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

import backend.corpus.download as retrieval
from backend.corpus import ProgressReporter
from backend.corpus.download import MANIFEST, fetch
from backend.corpus.release import Release
from backend.errors import AtlasError
from jobs.__main__ import main
from tests.fake_release import fake_release, rewrite_manifest

FILES = 30
PREFIX = "READER-main"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ATLAS_RELEASE", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    return fake_release(tmp_path / "fake")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def tarball(folder: Path, to: Path, prefix: str = PREFIX) -> Path:
    with tarfile.open(to, "w:gz") as tar:
        tar.add(folder, arcname=prefix)
    return to


def zipped(folder: Path, to: Path, prefix: str = PREFIX) -> Path:
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"{prefix}/{path.relative_to(folder)}")
    return to


# Sources on this machine


def test_from_a_folder(fake: Path, target: Path) -> None:
    fetched = fetch(str(fake), target)
    assert (fetched.inventory.files, fetched.copied, fetched.results) == (FILES, FILES, 1)
    assert fetched.inventory.responses == 6 * 20 + 6 * 10 + 6 * 5
    assert contents(target) == contents(fake)


@pytest.mark.parametrize(
    ("make", "prefix"), [(tarball, PREFIX), (tarball, "a/b/c"), (tarball, "."), (zipped, PREFIX), (zipped, "a/b/c")]
)
def test_from_an_archive(
    fake: Path, target: Path, tmp_path: Path, make: Callable[[Path, Path, str], Path], prefix: str
) -> None:
    (fake / "site").mkdir()
    (fake / "site" / "huge.html").write_text("not part of a release", "utf-8")
    fetched = fetch(str(make(fake, tmp_path / "archive", prefix)), target)
    assert fetched.copied == FILES
    assert contents(target) == {k: v for k, v in contents(fake).items() if not k.startswith("site")}


@pytest.mark.parametrize("below", ["", "one", "one/two"])
def test_the_release_may_lie_in_a_subfolder(fake: Path, target: Path, tmp_path: Path, below: str) -> None:
    outer = tmp_path / "outer" / below
    outer.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(fake, outer)
    assert fetch(str(tmp_path / "outer"), target).inventory.files == FILES
    assert fetch(str(outer / "data"), target).copied == 0


def test_a_second_fetch_copies_nothing_and_a_damaged_file_is_replaced(fake: Path, target: Path) -> None:
    fetch(str(fake), target)
    path = target / "data" / "prompts" / "math100.jsonl.gz"
    before = {p: p.stat().st_mtime_ns for p in target.rglob("*") if p.is_file()}
    assert fetch(str(fake), target).copied == 0
    assert {p: p.stat().st_mtime_ns for p in target.rglob("*") if p.is_file()} == before
    path.write_bytes(path.read_bytes()[:-4])
    assert fetch(str(fake), target).copied == 1
    assert contents(target) == contents(fake)


def test_a_release_can_be_fetched_onto_itself(fake: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in fake.rglob("*")}
    assert fetch(str(fake), fake).copied == 0
    assert {p: p.stat().st_mtime_ns for p in fake.rglob("*")} == before


def test_another_release_replaces_the_one_that_lies_there(fake: Path, target: Path, tmp_path: Path) -> None:
    fetch(str(fake_release(tmp_path / "older", seed=7)), target)
    fetched = fetch(str(fake), target)
    assert 0 < fetched.copied < FILES  # rosters are the same in both
    assert Release(target).manifest_hash == Release(fake).manifest_hash


def test_an_interrupted_copy_is_no_release_and_is_continued(
    fake: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []

    def stop(unit: str, done: int, total: int) -> None:
        copied.append(unit)
        if len(copied) == FILES + 12:  # every file is looked for first, then copied
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(str(fake), target, ProgressReporter(progress=stop))
    with pytest.raises(AtlasError, match="There is no release"):
        Release(target).verify()
    assert not any(target.rglob("*.part"))
    assert all(contents(fake)[name] == raw for name, raw in contents(target).items())
    assert fetch(str(fake), target).copied == FILES - 12


def test_kill_leaves_no_half_file_in_place(fake: Path, target: Path) -> None:
    """kill -9 in the middle of writing: what stands under its own name is whole, and the next fetch finishes."""
    code = (
        "import sys, time, backend.corpus.download as r\n"
        "from pathlib import Path\n"
        "inner = r.check_file\n"
        "def slow(path, *rest):\n"
        "    if path.name.endswith('.part'):\n"
        "        seen.append(path)\n"
        "        if len(seen) == 5: print('now', flush=True); time.sleep(60)\n"
        "    inner(path, *rest)\n"
        "seen = []; r.check_file = slow\n"
        "r.fetch(sys.argv[1], Path(sys.argv[2]))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(fake), str(target)], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"now\n"
    child.kill()
    child.wait()
    child.stdout.close()
    whole = contents(fake)
    names = {name for name in contents(target) if not name.endswith(".part")}
    assert len(names) == 4 and all(contents(target)[n] == whole[n] for n in names)
    assert fetch(str(fake), target).copied == FILES - 4
    assert contents(target) == whole


# What a source may not do


def hostile(kind: str, fake: Path, to: Path, outside: Path) -> Path:
    """An archive with a good release and a member that would like to be written elsewhere."""
    tarball(fake, to.with_suffix(".plain"))
    with tarfile.open(to.with_suffix(".plain")) as good, tarfile.open(to, "w:gz") as tar:
        evil = tarfile.TarInfo()
        evil.size = 5
        if kind == "dots":
            evil.name = f"{PREFIX}/data/../../../{outside.name}"
        elif kind == "absolute":
            evil.name = str(outside)
        elif kind == "result":
            evil.name = f"{PREFIX}/results/../../{outside.name}.json"
        else:
            evil.name, evil.size = f"{PREFIX}/results/link", 0
            evil.type, evil.linkname = tarfile.SYMTYPE, str(outside.parent)
        tar.addfile(evil, io.BytesIO(b"evil!"[: evil.size]))
        if kind == "link":
            through = tarfile.TarInfo(f"{PREFIX}/results/link/{outside.name}.txt")
            through.size = 5
            tar.addfile(through, io.BytesIO(b"evil!"))
        for member in good:
            tar.addfile(member, good.extractfile(member) if member.isreg() else None)
    return to


@pytest.mark.parametrize("kind", ["dots", "absolute", "result", "link"])
def test_names_in_an_archive_decide_nothing(fake: Path, target: Path, tmp_path: Path, kind: str) -> None:
    outside = tmp_path / "outside" / "evil"
    outside.parent.mkdir()
    before = set(tmp_path.rglob("evil*"))
    fetch(str(hostile(kind, fake, tmp_path / "hostile", outside)), target)
    assert contents(target) == contents(fake)
    assert set(tmp_path.rglob("evil*")) == before and not any(p.is_symlink() for p in target.rglob("*"))


@pytest.mark.parametrize("make", ["tar", "zip"])
def test_a_link_in_place_of_a_file_is_refused(fake: Path, target: Path, tmp_path: Path, make: str) -> None:
    name = "data/rosters/50-way.json"
    path = fake / name
    path.unlink()
    path.symlink_to("/etc/hostname")
    archive = tmp_path / "archive"
    if make == "tar":
        tarball(fake, archive)
    else:
        with zipfile.ZipFile(archive, "w") as out:
            for p in sorted(fake.rglob("*")):
                if p.is_symlink():
                    info = zipfile.ZipInfo(name)
                    info.external_attr = (stat.S_IFLNK | 0o777) << 16
                    out.writestr(info, "/etc/hostname")
                elif p.is_file():
                    out.write(p, p.relative_to(fake).as_posix())
    with pytest.raises(AtlasError, match=r"50-way.json in .*archive is a link"):
        fetch(str(archive), target)
    assert not (target / MANIFEST).exists()


@pytest.mark.parametrize("name", ["data/rosters/50-way.json", "data/rosters", "data", MANIFEST])
def test_a_link_in_a_folder_leads_nowhere(fake: Path, target: Path, tmp_path: Path, name: str) -> None:
    path, outside = fake / name, tmp_path / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(AtlasError, match=r"is a link|lacks|no release"):
        fetch(str(fake), target)
    assert not (target / MANIFEST).exists()


def test_a_deep_manifest_is_one_sentence(fake: Path, target: Path) -> None:
    (fake / MANIFEST).write_bytes(b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(AtlasError, match="nested too deeply"):
        fetch(str(fake), target)


def test_a_cache_that_cannot_be_written_is_one_sentence(
    fake: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder", "utf-8")
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "file"))
    with pytest.raises(AtlasError, match=r"cannot be written .*ATLAS_CACHE"):
        fetch(str(fake), target)


def test_a_link_in_the_target_is_replaced_not_followed(fake: Path, target: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine", "utf-8")
    place = target / "data" / "rosters" / "50-way.json"
    place.parent.mkdir(parents=True)
    place.symlink_to(precious)
    place.with_name(".100-way.json.part").symlink_to(precious)
    fetch(str(fake), target)
    assert precious.read_text("utf-8") == "mine" and not place.is_symlink()


def test_a_file_longer_than_its_manifest_is_not_copied_on(fake: Path, target: Path) -> None:
    path = fake / "data" / "prompts" / "math100.jsonl.gz"
    path.write_bytes(path.read_bytes() + b"\0" * 5_000_000)
    with pytest.raises(AtlasError, match=r"math100.jsonl.gz in .*fake"):
        fetch(str(fake), target)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def recompress(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"{}\n", mtime=0))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "is a truncated gzip file"),
        (recompress, "the manifest says"),
        (Path.unlink, "lacks 1 of the files in its manifest, the first is data/prompts/math100.jsonl.gz"),
    ],
)
@pytest.mark.parametrize("kind", ["folder", "tar", "zip"])
def test_a_damaged_source_names_the_file(
    fake: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage, message: str, kind: str
) -> None:
    damage(fake / "data" / "prompts" / "math100.jsonl.gz")
    sources = {
        "folder": lambda: fake,
        "tar": lambda: tarball(fake, tmp_path / "a.tar.gz"),
        "zip": lambda: zipped(fake, tmp_path / "a.zip"),
    }
    source = sources[kind]()
    assert main(["fetch", "--from", str(source), "--to", str(target)]) == 2
    said = capsys.readouterr().err
    assert message in said and "math100.jsonl.gz" in said and "--from" in said
    assert said.count("\n") == 1
    assert not (target / MANIFEST).exists()


@pytest.mark.parametrize("keep", [0, 5, 60, 500, -400])
@pytest.mark.parametrize("make", [tarball, zipped])
def test_a_truncated_archive_is_one_sentence(fake: Path, target: Path, tmp_path: Path, make, keep: int) -> None:
    archive = make(fake, tmp_path / "archive")
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(AtlasError, match="archive") as caught:
        fetch(str(archive), target)
    assert "\n" not in str(caught.value) and not (target / MANIFEST).exists()


def test_a_flipped_byte_in_an_archive_is_found(fake: Path, target: Path, tmp_path: Path) -> None:
    for make in (tarball, zipped):
        archive = make(fake, tmp_path / "archive")
        raw = bytearray(archive.read_bytes())
        for place in range(200, len(raw), len(raw) // 7):
            changed = raw.copy()
            changed[place] ^= 0x55
            archive.write_bytes(changed)
            try:
                fetch(str(archive), target)
            except AtlasError as error:
                assert "\n" not in str(error)  # else the byte lay in padding, or in a file that is not the release's
            if (target / MANIFEST).exists():
                assert Release(target).verify(remember=False).files == FILES


@pytest.mark.parametrize(
    ("content", "message"), [(b"just text", "neither a folder nor an intact .tar.gz or .zip"), (None, "does not exist")]
)
def test_not_an_archive(target: Path, tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "thing"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AtlasError, match=message):
        fetch(str(path), target)


def test_no_release_inside(target: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    (empty / "data").mkdir(parents=True)
    for source in (empty, tarball(empty, tmp_path / "a.tar.gz"), zipped(empty, tmp_path / "a.zip")):
        with pytest.raises(AtlasError, match=r"There is no release in .*data/manifests/release\.json"):
            fetch(str(source), target)


def test_a_bad_manifest_is_refused_before_anything_is_copied(fake: Path, target: Path) -> None:
    manifest = json.loads((fake / MANIFEST).read_text("utf-8"))
    manifest["bench_a"]["model_roster"]["path"] = "../../escaped.json"
    (fake / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(AtlasError, match=r"escaped\.json', which is not a path inside"):
        fetch(str(fake), target)
    assert not target.exists()


# What a target may do


def test_full_disk_is_one_sentence_and_finished_files_stay(
    fake: Path, target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class FullDisk(io.BufferedWriter):
        def write(self, block: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def small_disk(handle: int, mode: str) -> io.BufferedWriter:
        full = Path(f"/proc/self/fd/{handle}").readlink().name.startswith(".100-way")
        return (FullDisk if full else io.BufferedWriter)(io.FileIO(handle, mode))

    monkeypatch.setattr(retrieval.os, "fdopen", small_disk)
    assert main(["fetch", "--from", str(fake), "--to", str(target)]) == 2
    said = capsys.readouterr().err
    assert "The disk is full" in said and "100-way.json" in said and said.count("\n") == 1
    monkeypatch.undo()
    monkeypatch.setenv("ATLAS_CACHE", str(target.parent / "cache"))
    assert 0 < fetch(str(fake), target).copied < FILES


def test_a_release_that_does_not_fit_is_refused_first(
    fake: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1_000))
    with pytest.raises(AtlasError, match=r"needs 0 MB at .*target, and 0 MB are free"):
        fetch(str(fake), target)
    assert not target.exists()


def test_a_target_that_cannot_be_written(fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way", "utf-8")
    assert main(["fetch", "--from", str(fake), "--to", str(blocked / "release")]) == 2
    said = capsys.readouterr().err
    assert "cannot be written" in said and "--to" in said and said.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(fake: Path, target: Path) -> None:
    target.mkdir(mode=0o555)
    with pytest.raises(AtlasError, match=r"cannot be written \(Permission denied\)"):
        fetch(str(fake), target)


def test_two_fetches_do_not_mix(fake: Path, target: Path) -> None:
    with retrieval._lock(str(target.resolve())), pytest.raises(AtlasError, match="Another fetch is writing"):
        fetch(str(fake), target)


# The network


@dataclass
class Server:
    """An archive behind a server with a list of misdeeds, one a request, then it behaves."""

    body: bytes
    misdeeds: list[str] = field(default_factory=list)
    etag: str = '"one"'
    ranges: bool = True
    requests: list[dict[str, str]] = field(default_factory=list)
    address: str = ""
    redirected: bool = False


@pytest.fixture
def server(fake: Path, tmp_path: Path) -> Iterator[Server]:
    state = Server(tarball(fake, tmp_path / "served.tar.gz").read_bytes())

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/archive.tar.gz")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if self.path == "/round":
                self.send_response(302)
                self.send_header("Location", "/round")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            state.requests.append(dict(self.headers))
            misdeed = state.misdeeds.pop(0) if state.misdeeds else ""
            if misdeed.isdigit():
                self.send_response(int(misdeed))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if misdeed == "hang":
                time.sleep(1.5)
                self.close_connection = True
                return
            body, start = state.body, 0
            asked = self.headers.get("Range")
            if asked and state.ranges and self.headers.get("If-Range") == state.etag:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(body) - start))
            if state.etag:
                self.send_header("ETag", state.etag)
            self.end_headers()
            stop = start + (len(body) - start) // 2 if misdeed == "break" else len(body)
            self.wfile.write(body[start:stop])
            self.close_connection = misdeed == "break"

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as live:
        threading.Thread(target=live.serve_forever, daemon=True).start()
        state.address = f"http://127.0.0.1:{live.server_port}/archive.tar.gz"
        yield state
        live.shutdown()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> tuple[ProgressReporter, list[str], list[float]]:
    """A listener that keeps what it hears and does not wait; reading times out soon."""
    monkeypatch.setattr(retrieval, "_TIMEOUT", httpx.Timeout(0.5))
    said: list[str] = []
    pauses: list[float] = []
    return ProgressReporter(said.append, pause=pauses.append), said, pauses


def test_from_a_url(server: Server, fake: Path, target: Path, cache: Path) -> None:
    assert fetch(server.address, target).copied == FILES
    assert contents(target) == contents(fake)
    assert not any((cache / "downloads").iterdir()), "the archive is not kept beside the release"
    assert fetch(server.address, target).copied == 0 and len(server.requests) == 1, "no download of what is there"


def test_redirects_are_followed(server: Server, target: Path) -> None:
    assert fetch(server.address.replace("/archive.tar.gz", "/moved"), target).copied == FILES


def test_redirects_without_end_are_one_sentence(server: Server, target: Path) -> None:
    with pytest.raises(AtlasError, match="from one address to the next without end"):
        fetch(server.address.replace("/archive.tar.gz", "/round"), target)


def test_a_broken_download_continues_with_range(server: Server, target: Path, patient) -> None:
    listener, said, pauses = patient
    server.misdeeds = ["break", "break", "503", "429", ""]
    assert fetch(server.address, target, listener).copied == FILES
    starts = [r.get("Range") for r in server.requests]
    half = len(server.body) // 2
    quarter = half + (len(server.body) - half) // 2
    assert starts == [None, f"bytes={half}-", *[f"bytes={quarter}-"] * 3]
    assert pauses == [1, 2, 4, 8]
    assert any(s.startswith("Continuing after") for s in said)


def test_a_later_run_continues_too(server: Server, target: Path, patient) -> None:
    listener, _, _ = patient
    server.misdeeds = ["break"] + ["503"] * 4
    with pytest.raises(AtlasError, match="broke off 5 times") as caught:
        fetch(server.address, target, listener)
    assert "Run the same command again" in caught.value.remedy and not target.exists()
    assert fetch(server.address, target, listener).copied == FILES
    assert server.requests[-1]["Range"] == f"bytes={len(server.body) // 2}-"


def test_another_file_on_the_server_is_not_mixed_in(server: Server, target: Path, patient, tmp_path: Path) -> None:
    listener, _, _ = patient
    server.misdeeds = ["break"] + ["503"] * 4
    with pytest.raises(AtlasError):
        fetch(server.address, target, listener)
    other = fake_release(tmp_path / "other", seed=3)
    server.body, server.etag = tarball(other, tmp_path / "other.tar.gz").read_bytes(), '"two"'
    assert fetch(server.address, target, listener).copied == FILES
    assert contents(target) == contents(other)


@pytest.mark.parametrize("case", ["no ranges", "no etag", "weak etag", "416"])
def test_servers_that_cannot_continue(server: Server, target: Path, patient, case: str) -> None:
    listener, _, _ = patient
    server.misdeeds = ["break"]
    if case == "no ranges":
        server.ranges = False
    elif case == "no etag":
        server.etag = ""
    elif case == "weak etag":
        server.etag = 'W/"one"'
    else:
        server.misdeeds.append("416")
    assert fetch(server.address, target, listener).copied == FILES
    if case in ("no etag", "weak etag"):
        assert "Range" not in server.requests[1]


def test_a_server_that_hangs(server: Server, target: Path, patient) -> None:
    listener, _, _ = patient
    server.misdeeds = ["hang"]
    assert fetch(server.address, target, listener).copied == FILES
    assert len(server.requests) == 2


def test_what_the_server_refuses_is_not_tried_again(server: Server, target: Path, patient) -> None:
    listener, _, pauses = patient
    server.misdeeds = ["404"]
    with pytest.raises(AtlasError, match="answered 404 Not Found"):
        fetch(server.address, target, listener)
    assert len(server.requests) == 1 and not pauses


def test_a_page_instead_of_an_archive(server: Server, target: Path, cache: Path) -> None:
    whole, server.body = server.body, b"<html>Please log in</html>"
    with pytest.raises(AtlasError, match=r"127.0.0.1.* is neither a folder nor an intact"):
        fetch(server.address, target)
    server.body = whole
    assert fetch(server.address, target).copied == FILES, "the page was not kept"


def test_unreachable_network(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as gone:
        port = gone.server_port
    assert main(["fetch", "--from", f"http://127.0.0.1:{port}/x.tar.gz", "--to", str(target)]) == 2
    said = capsys.readouterr().err
    assert "127.0.0.1 cannot be reached" in said and "--from PATH" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "address"),
    [
        (None, "https://github.com/LeoJeshua/READER/archive/HEAD.tar.gz"),
        ("https://github.com/a/b", "https://github.com/a/b/archive/HEAD.tar.gz"),
        ("https://www.github.com/a/b.c.git/", "https://github.com/a/b.c/archive/HEAD.tar.gz"),
        ("https://github.com/a/b/archive/v1.zip", "https://github.com/a/b/archive/v1.zip"),
        ("https://example.org/x.tar.gz", "https://example.org/x.tar.gz"),
        ("some/folder", None),
        ("/some/folder", None),
    ],
)
def test_addresses(source: str | None, address: str | None) -> None:
    assert retrieval._address(source) == address


# The verb


def test_the_verb_says_what_it_did(fake: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "--from", str(fake)]) == 0
    said = capsys.readouterr().out
    assert "30 files: 0 are here and right, 30 are to be copied" in said
    assert "30 files as in the manifest, 210 responses" in said and "30 files copied now" in said
    assert Release(fake).manifest_hash in said
    assert (cache / "release" / MANIFEST).exists()
    assert main(["fetch", "--from", str(fake), "--recheck"]) == 0
    assert "0 files copied now" in capsys.readouterr().out


def test_recheck_reads_again(fake: Path, target: Path) -> None:
    """A change that keeps size and time is found by --recheck alone: that is what the memory costs."""
    fetch(str(fake), target)
    path = target / "data" / "rosters" / "50-way.json"
    status = path.stat()
    path.write_text(path.read_text("utf-8").replace("invented", "INVENTED"), "utf-8")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fetch(str(fake), target).copied == 0
    assert fetch(str(fake), target, remember=False).copied == 1
    rewrite_manifest(target)
    assert Release(target).manifest_hash == Release(fake).manifest_hash


@pytest.mark.release
def test_the_real_release_travels_as_an_archive(release: Release, target: Path, tmp_path: Path) -> None:
    archive = tarball(release.root, tmp_path / "READER-main.tar.gz")
    fetched = fetch(str(archive), target)
    assert (fetched.inventory.files, fetched.inventory.responses, fetched.copied) == (409, 139_200, 409)
    assert fetched.results == 205
    assert Release(target).manifest_hash == release.manifest_hash

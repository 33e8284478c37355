"""Bring a release from a folder, an archive or the network into a folder, and prove that it arrived whole.

Only the manifest, files that it lists and the authors' result files are ever written. Each is checked before it takes
its place, the manifest last: an interrupted copy never looks like a release.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from backend.corpus import ProgressReporter
from backend.corpus.release import Inventory, ListedFile, Release, Stamps, check_file, listed_files, parse_manifest
from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.output_files import lock

PUBLIC_RELEASE = "https://github.com/LeoJeshua/READER"
MANIFEST = "data/manifests/release.json"
_RESULT = re.compile(r"results(/[\w.+-]+)+\.(json|csv)")
_RESULT_LIMIT = 64_000_000
_MANIFEST_LIMIT = 64_000_000
_ATTEMPTS = 5
_TIMEOUT = httpx.Timeout(60.0, connect=20.0)
_BLOCK = 1 << 20
_REPOSITORY = re.compile(r"/[\w.-]+/[\w.-]+?(\.git)?/?")

_OTHER_SOURCE = "Name another source with --from, or leave --from out for the public release"
_DAMAGED = (
    tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fetched:
    inventory: Inventory  # the release as it now lies there
    copied: int  # listed files that were copied; the others were right already
    results: int  # result files of the authors in the release


def fetch(
    source: str | None, target: Path, reporter: ProgressReporter | None = None, *, remember: bool = True
) -> Fetched:
    """Bring a release into a folder; files that are there and right are not copied again.

    source : a folder, a .tar.gz or .zip archive, the address of one or of a GitHub repository; None is PUBLIC_RELEASE.
    remember : False reads every file that is already there, even if an earlier check found it right.
    Raises AtlasError if the source cannot be reached, is damaged or no release, or the target cannot be written.
    """
    reporter = reporter or ProgressReporter()
    address = _address(source)
    with _lock(str(target.resolve())):
        if address is None:
            return _copy_release(_open(Path(str(source)).expanduser()), target, reporter, remember)
        if (whole := _already_whole(target, reporter, remember)) is not None:
            reporter.say(f"The release in {target} is whole already; nothing needs to be fetched from {address}.")
            return whole
        with _lock(address):
            archive = download(address, cache_folder() / "downloads", reporter)
            try:
                fetched = _copy_release(_open(archive, address), target, reporter, remember)
            except _BadSourceError as error:
                archive.unlink(missing_ok=True)
                raise AtlasError(error.problem, "Run the same command again, or name another source") from error
            archive.unlink(missing_ok=True)
            return fetched


def download(address: str, folder: Path, reporter: ProgressReporter) -> Path:
    """Download a file into a folder, under a name of the address; an interrupted one continues."""
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    whole, part, about = folder / f"{name}.archive", folder / f"{name}.part", folder / f"{name}.json"
    if whole.exists():
        return whole
    reporter.say(f"Downloading {address}.")
    with _writing(part):
        folder.mkdir(parents=True, exist_ok=True)

    def announce(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        reporter.say(f"The download broke off ({_reason(error)}); trying again.")

    interrupted = (httpx.TransportError, _BusyError)
    retrying = Retrying(
        retry=retry_if_exception_type(interrupted), stop=stop_after_attempt(_ATTEMPTS), wait=wait_exponential(),
        before_sleep=announce, sleep=reporter.pause, reraise=True,
    )  # fmt: skip
    headers = {"Accept-Encoding": "identity"}
    with httpx.Client(timeout=_TIMEOUT, follow_redirects=True, headers=headers) as client, _writing(part):
        try:
            retrying(_download_once, client, address, part, about, reporter)
        except httpx.TooManyRedirects as error:
            problem = f"{address} leads from one address to the next without end"
            raise AtlasError(problem, "Check the address, or name a folder or archive with --from") from error
        except interrupted as error:
            problem = f"The download of {address} broke off {_ATTEMPTS} times ({_reason(error)})"
            remedy = "Run the same command again; it continues where it stopped if the server can do that"
            raise AtlasError(problem, remedy) from error
        part.replace(whole)
        about.unlink(missing_ok=True)
    return whole


def _reason(error: BaseException | None) -> str:
    return str(error) or type(error).__name__


class _BusyError(Exception):
    """The server asks to try again later."""


class _BadSourceError(AtlasError):
    """What the source holds is wrong, not the place where it should go."""


def _download_once(client: httpx.Client, address: str, part: Path, about: Path, reporter: ProgressReporter) -> None:
    have, validator = part.stat().st_size if part.exists() else 0, _validator(about)
    headers = {"Range": f"bytes={have}-", "If-Range": validator} if have and validator else {}
    with contextlib.ExitStack() as stack:
        try:
            answer = stack.enter_context(client.stream("GET", address, headers=headers))
        except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            problem = f"{urlsplit(address).hostname or address} cannot be reached ({_reason(error)})"
            remedy = "Check the network and the address, or bring the archive by other means and name it: "
            raise AtlasError(problem, f"{remedy}python -m jobs fetch --from PATH") from error
        status = answer.status_code
        if status == 416:
            part.unlink(missing_ok=True)
            raise _BusyError("the server has another file now")
        if status == 429 or status >= 500:
            raise _BusyError(f"the server answered {status}")
        if status not in (200, 206):
            problem = f"{address} answered {status} {answer.reason_phrase}".rstrip()
            raise AtlasError(problem, "Check the address, or name a folder or archive with --from")
        resumed = status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if status == 206 and not resumed:
            part.unlink(missing_ok=True)
            raise _BusyError("the server sent another part than requested")
        done = have if resumed else 0
        if resumed:
            reporter.say(f"Continuing after {done / 1e6:.1f} MB.")
        expected = int(answer.headers.get("Content-Length") or 0)
        _check_room(part, expected)
        tag = answer.headers.get("ETag", "")
        strong = tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")
        about.write_text(json.dumps({"validator": strong}), "utf-8")
        with part.open("ab" if resumed else "wb") as stream:
            for block in answer.iter_raw():
                stream.write(block)
                done += len(block)
                reporter.progress("bytes", done, (have if resumed else 0) + expected if expected else 0)


def _validator(about: Path) -> str:
    """What tells that the server still has the same file: a strong ETag or a date, or nothing."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return str(json.loads(about.read_text("utf-8")).get("validator", ""))
    return ""


def _address(source: str | None) -> str | None:
    """The address to download, None for something on this machine."""
    address = source if source is not None else PUBLIC_RELEASE
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https"):
        return None
    if parts.hostname in ("github.com", "www.github.com") and _REPOSITORY.fullmatch(parts.path):
        repository = parts.path.rstrip("/").removesuffix(".git")
        return f"https://github.com{repository}/archive/HEAD.tar.gz"
    return address


def _already_whole(target: Path, reporter: ProgressReporter, remember: bool) -> Fetched | None:
    release = Release(target)
    if not release.manifest_path.exists():
        return None
    reporter.say(f"Checking what lies in {target}.")
    try:
        inventory = release.verify(lambda n, of: reporter.progress("files", n, of), remember=remember)
    except AtlasError as error:
        reporter.say(f"It is not whole: {error.problem}.")
        return None
    return Fetched(inventory, 0, sum(1 for p in (target / "results").rglob("*") if p.is_file()))


@dataclass(frozen=True, slots=True)
class _Member:
    path: str  # inside the release
    size: int  # bytes; -1 of a link or special file
    stream: IO[bytes]


@dataclass(frozen=True)
class _Folder:
    name: str
    root: Path

    def members(self, needed: Callable[[str], bool]) -> Iterator[_Member]:
        for path in (path for top in ("data", "results") for path in sorted((self.root / top).rglob("*"))):
            name = path.relative_to(self.root).as_posix()
            if not needed(name):
                continue
            self._check_plain(path)
            if path.is_file():
                try:
                    stream = path.open("rb")
                except OSError as error:
                    problem = f"{path} cannot be read ({error.strerror})"
                    raise _BadSourceError(problem, "Check its permissions") from error
                with stream:
                    yield _Member(name, path.stat().st_size, stream)

    def _check_plain(self, path: Path) -> None:
        """Refuse what a link leads to: it may be any file of whoever fetches."""
        inside = path.relative_to(self.root)
        within = [self.root / part for part in (inside, *inside.parents)]
        if (link := next((part for part in within[:-1] if part.is_symlink()), None)) is not None:
            raise _BadSourceError(f"{link} is a link, and a release holds plain files only", _OTHER_SOURCE)


@dataclass(frozen=True)
class _Archive:
    name: str
    path: Path
    prefix: str

    def members(self, needed: Callable[[str], bool]) -> Iterator[_Member]:
        for member in _archived(self.path, self.name):
            if member.path.startswith(self.prefix) and needed(inside := member.path.removeprefix(self.prefix)):
                if member.size < 0:
                    what = f"{inside} in {self.name} is a link or a special file"
                    raise _BadSourceError(f"{what}, and a release holds plain files only", _OTHER_SOURCE)
                yield _Member(inside, member.size, member.stream)


def _manifest(source: _Folder | _Archive) -> bytes:
    for member in source.members(MANIFEST.__eq__):
        if member.size > _MANIFEST_LIMIT:
            raise _BadSourceError(f"The manifest in {source.name} is larger than any manifest", _OTHER_SOURCE)
        with _reading(source.name):
            return member.stream.read()
    raise _BadSourceError(f"{source.name} holds no {MANIFEST}", _OTHER_SOURCE)


def _open(path: Path, name: str | None = None) -> _Folder | _Archive:
    name = name or str(path)
    if path.is_dir():
        above = [path.parent] if path.name == "data" else []
        for root in (path, *above, *sorted(path.glob("*")), *sorted(path.glob("*/*"))):
            if any(part.is_symlink() for part in (root, root.parent) if part.is_relative_to(path) and part != path):
                continue
            if (root / MANIFEST).is_file():
                return _Folder(str(root), root)
        raise _BadSourceError(f"There is no release in {name} (no {MANIFEST}, also not in a subfolder)", _OTHER_SOURCE)
    if not path.exists():
        raise AtlasError(f"{name} does not exist", _OTHER_SOURCE)
    found = [m.path for m in _archived(path, name) if m.path == MANIFEST or m.path.endswith(f"/{MANIFEST}")]
    if not found:
        raise _BadSourceError(f"There is no release in {name} (no {MANIFEST} inside)", _OTHER_SOURCE)
    manifest = min(found, key=lambda p: (p.count("/"), p))
    return _Archive(name, path, manifest.removesuffix(MANIFEST))


def _archived(path: Path, name: str) -> Iterator[_Member]:
    """Members of an archive in its order; links and special files have size -1, folders are skipped."""
    with _reading(name):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for info in (one for one in archive.infolist() if not one.is_dir()):
                    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
                        yield _Member(info.filename, -1, io.BytesIO())
                    else:
                        with archive.open(info) as stream:
                            yield _Member(info.filename, info.file_size, stream)
        elif tarfile.is_tarfile(path):
            with tarfile.open(path, "r:*") as tar:
                for entry in (one for one in tar if not one.isdir()):
                    stream_or_none = tar.extractfile(entry) if entry.isreg() else None
                    plain = entry.name.removeprefix("./")
                    yield _Member(plain, entry.size if stream_or_none else -1, stream_or_none or io.BytesIO())
        else:
            raise _BadSourceError(f"{name} is neither a folder nor an intact .tar.gz or .zip archive", _OTHER_SOURCE)


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise _BadSourceError(f"The archive {name} is damaged ({error})", _OTHER_SOURCE) from error
    except OSError as error:
        if isinstance(error, PermissionError) or error.errno == errno.EIO:
            raise AtlasError(f"{name} cannot be read ({error.strerror})", "Check its permissions") from error
        if error.errno is None:  # gzip.BadGzipFile and the like
            raise _BadSourceError(f"The archive {name} is damaged ({error})", _OTHER_SOURCE) from error
        raise


def _copy_release(source: _Folder | _Archive, target: Path, reporter: ProgressReporter, remember: bool) -> Fetched:
    raw = _manifest(source)
    try:
        listed = {f"data/{f.path}": f for f in listed_files(parse_manifest(raw, MANIFEST), MANIFEST)}
    except AtlasError as error:
        raise _BadSourceError(f"{source.name}: {error.problem}", _OTHER_SOURCE) from error
    place = target / MANIFEST
    if place.exists() and place.read_bytes() != raw:
        reporter.say(f"{target} holds another release; its files are replaced.")
        with _writing(place):
            place.unlink()
    stamps = Stamps(target)
    try:
        todo = _missing(listed, target, stamps, reporter, remember)
        size = sum(f.size or 0 for f in todo.values())
        _check_room(target, size)
        reporter.say(
            f"The manifest of {source.name} lists {len(listed):,} files: {len(listed) - len(todo):,} are here and "
            f"right, {len(todo):,} are to be copied ({size / 1e6:.1f} MB)."
        )
        results = _copy(source, todo, target, stamps, reporter)
        if not place.exists():
            _write(io.BytesIO(raw), place, len(raw))
    finally:
        stamps.save()
    return Fetched(Release(target).verify(), len(todo), results)


def _missing(
    listed: dict[str, ListedFile], target: Path, stamps: Stamps, reporter: ProgressReporter, remember: bool
) -> dict[str, ListedFile]:
    out = {}
    for number, (name, entry) in enumerate(listed.items(), start=1):
        path = target / name
        if not (remember and stamps.right(path, entry)):
            try:
                check_file(path, entry)
                stamps.add(path, entry)
            except AtlasError:
                out[name] = entry
        reporter.progress("files", number, len(listed))
    return out


def _copy(
    source: _Folder | _Archive, todo: dict[str, ListedFile], target: Path, stamps: Stamps, reporter: ProgressReporter
) -> int:
    """Copy what is missing and the result files; return the number of result files."""
    remaining, results = dict(todo), 0
    for member in source.members(lambda name: name in todo or _is_result(name)):
        path = target / member.path
        if member.path in remaining:
            entry, name = remaining.pop(member.path), f"{member.path} in {source.name}"
            if entry.size is not None and member.size > entry.size:
                size = f"{member.size:,} bytes, and the manifest says {entry.size:,}"
                raise _BadSourceError(f"{name} has {size}", _OTHER_SOURCE)
            with _reading(source.name):
                _write(member.stream, path, member.size, entry, name)
            stamps.add(path, entry)
            reporter.progress("files", len(todo) - len(remaining), len(todo))
        elif member.path not in todo:
            with _reading(source.name):
                content = member.stream.read(_RESULT_LIMIT + 1)
            if len(content) > _RESULT_LIMIT:
                raise _BadSourceError(f"{member.path} in {source.name} is larger than any result file", _OTHER_SOURCE)
            if not path.is_file() or path.read_bytes() != content:
                _write(io.BytesIO(content), path, len(content))
            results += 1
    if remaining:
        what = f"{len(remaining):,} of the files in its manifest, the first is {min(remaining)}"
        raise _BadSourceError(f"{source.name} lacks {what}", _OTHER_SOURCE)
    return results


def _is_result(name: str) -> bool:
    return _RESULT.fullmatch(name) is not None and ".." not in PurePosixPath(name).parts


def _write(stream: IO[bytes], path: Path, limit: int, entry: ListedFile | None = None, name: str = "") -> None:
    """Write at most ``limit`` bytes next to the place of a file, check them, then put them there in one step."""
    scratch = path.with_name(f".{path.name}.part")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.unlink(missing_ok=True)
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with os.fdopen(handle, "wb") as out:
            while limit > 0 and (block := stream.read(min(_BLOCK, limit))):
                limit -= len(block)
                with _writing(path):
                    out.write(block)
            with _writing(path):
                out.flush()
        if entry:
            try:
                check_file(scratch, entry, name)
            except AtlasError as error:
                raise _BadSourceError(error.problem, _OTHER_SOURCE) from error
        with _writing(path):
            scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say in one sentence that a file cannot be written."""
    try:
        yield
    except OSError as error:
        problem = f"{path} cannot be written ({error.strerror or error})"
        remedy = "Choose a folder that you may write to (--to, ATLAS_CACHE)"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            problem = f"The disk is full, {path} could not be written; finished files stay"
            remedy = "Free some space, or choose another folder (--to, ATLAS_CACHE), and run the same command again"
        raise AtlasError(problem, remedy) from error


def _check_room(path: Path, needed: int) -> None:
    probe = path
    while not probe.exists() and probe != probe.parent:
        probe = probe.parent
    free = shutil.disk_usage(probe).free
    if needed > free:
        problem = f"The release needs {needed / 1e6:.0f} MB at {path}, and {free / 1e6:.0f} MB are free"
        raise AtlasError(problem, "Free some space, or choose another folder (--to, ATLAS_CACHE)")


def _lock(what: str) -> contextlib.ExitStack:
    """A lock in the cache, so that two fetches never write one thing at the same time."""
    name = hashlib.sha256(what.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    path = cache_folder() / "locks" / f"fetch-{name}"
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return lock(path, AtlasError(f"Another fetch is writing {what}", "Wait until it has finished"))

"""Files that verbs read and write: pipes are read like files, and nothing that is read is written over."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from backend import output_files as _files
from backend.corpus.labelled import read_labelled
from backend.errors import AtlasError
from backend.intake.encoding import opened


def pipe_of(folder: Path, content: bytes) -> Path:
    """A pipe that gives its content once."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(content,), daemon=True).start()
    return pipe


def test_a_pipe_is_read_as_often_as_a_file(tmp_path: Path) -> None:
    file, content = tmp_path / "file", b"x" * 3_000_000
    file.write_bytes(content)
    for path in (file, pipe_of(tmp_path, content)):
        with opened(path) as stream:
            for _ in range(2):
                stream.seek(0)
                assert stream.read() == content
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(AtlasError, match="cannot be read"), opened(path):
            pass


def test_labelled_traces_out_of_a_pipe(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{i}", "response": f"r{i}", "label": name} for name in ("a", "b") for i in range(20)]
    found = read_labelled(pipe_of(tmp_path, "\n".join(map(json.dumps, rows)).encode()))
    assert (found.sources, len(found.traces)) == (("a", "b"), 40)


def test_what_is_read_is_spared(tmp_path: Path) -> None:
    read, link, hard, other = (tmp_path / name for name in ("read", "link", "hard", "other"))
    read.write_text("x", "utf-8")
    other.write_text("x", "utf-8")
    link.symlink_to(read)
    hard.hardlink_to(read)
    for target in (read, link, hard, tmp_path / ".." / tmp_path.name / "read"):
        with pytest.raises(AtlasError, match=f"{read} is read"):
            _files.spare([other, target], [other.with_name("none"), read])
    _files.spare([other, tmp_path / "new"], [read, tmp_path / "new"])


def test_what_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "out.html"
    _files.writable([path])
    assert path.parent.is_dir() and not any(path.parent.iterdir())
    _files.write(path, "old")
    _files.writable([path])
    assert path.read_text("utf-8") == "old" and list(path.parent.iterdir()) == [path]

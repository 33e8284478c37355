"""Signing from the command line: a report of real traces, the shipped enrolment and generation."""

from __future__ import annotations

import json
import shutil

import pytest

from backend.attribution.report import digest
from backend.enrolment.files import enrolments, load_enrolment
from backend.enrolment.stories import stories, story_files
from backend.store.database import default_data_folder, read_pointer
from jobs.__main__ import main


@pytest.fixture
def keys(tmp_path):
    """Private and public key."""
    assert main(["sign", "--new-key", str(tmp_path / "auditor")]) == 0
    return tmp_path / "auditor", tmp_path / "auditor.pub"


@pytest.mark.proxy
def test_a_report_is_signed_and_a_change_of_it_is_found(tmp_path, keys, monkeypatch, capsys):
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    private, public = keys
    enrolment = load_enrolment(enrolments()["samples-smollm2-135m-ur"])
    (content,) = story_files(stories("attribute")[0], enrolment).values()
    traces, page = tmp_path / "traces.jsonl", tmp_path / "report.html"
    traces.write_bytes(content)
    options = ["--enrolment", enrolment.name, "--report", str(page), "--orders", "20"]
    assert main(["attribute", str(traces), *options]) == 0
    report = page.with_suffix(".json")
    assert main(["sign", str(report), "--key", str(private)]) == 0
    capsys.readouterr()
    assert main(["verify", str(report)]) == 0
    assert "report.json is signed. Give --signed-by KEY.pub to check by whom." in capsys.readouterr().out
    assert main(["verify", str(report), "--signed-by", str(public), "--traces", str(traces)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Signed (report) by ")
    assert "EQUAL: " in said
    # Somebody who computes all hashes of a changed report again still has no key.
    changed = json.loads(report.read_text("utf-8"))
    changed["limits"] = []
    changed["sha256"] = digest({name: value for name, value in changed.items() if name != "sha256"})
    report.write_text(json.dumps(changed), "utf-8")
    assert main(["verify", str(report)]) == 0
    assert main(["verify", str(report), "--signed-by", str(public)]) == 2
    assert "is not the file that was signed" in capsys.readouterr().err


def test_enrolment_and_generation_are_signed(tmp_path, keys, capsys):
    private, public = keys
    for path, words in (
        (enrolments()["samples-smollm2-135m-ur"], "Signed (enrolment) by "),
        (read_pointer(default_data_folder())[1], "Signed (generation) by "),
    ):
        copy = tmp_path / path.name
        shutil.copy(path, copy)
        assert main(["verify", str(copy), "--signed-by", str(public)]) == 2  # nobody signed it
        assert main(["sign", str(copy), "--key", str(private)]) == 0
        capsys.readouterr()
        assert main(["verify", str(copy), "--signed-by", str(public)]) == 0
        assert capsys.readouterr().out.startswith(words)
        with copy.open("ab") as file:
            file.write(b"\0")
        assert main(["verify", str(copy), "--signed-by", str(public)]) == 2
        assert "is not the file that was signed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "There is nothing to sign"),
        (["report.json"], "Without a key nothing is signed"),
        (["absent.json", "--key", "auditor"], "absent.json cannot be read"),
    ],
)
def test_what_is_missing_is_named(tmp_path, keys, monkeypatch, capsys, arguments, problem):
    monkeypatch.chdir(tmp_path)
    assert main(["sign", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_a_statement_about_something_else_is_found(tmp_path, keys, capsys):
    from backend import attestation

    private, public = keys
    path = enrolments()["samples-smollm2-135m-ur"]
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    attestation.sign(copy, "enrolment", {"name": "another"}, private)
    assert main(["verify", str(copy), "--signed-by", str(public)]) == 2
    assert "says something else" in capsys.readouterr().err

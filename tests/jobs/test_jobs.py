"""The verbs as a person meets them: every stage on a small invented release, and one sentence for every problem."""

from __future__ import annotations

import argparse
import functools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from backend.costs import paths
from backend.costs import stage as cost
from backend.costs.paths import measure
from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.proxies.registry import load_model
from backend.store.database import WORK_FILE, Generation
from backend.store.queries import metric_curve, neighbors, projection, sources
from jobs import all as everything
from jobs import enroll, extract
from jobs.__main__ import main, verbs
from jobs.pipeline import STAGES
from tests.commands import check
from tests.fake_release import fake_release

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Run a verb that must refuse: exit code 2 and one sentence, never a traceback."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))

    def run(*arguments: str) -> str:
        assert main(list(arguments)) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len([line for line in lines if line.startswith("Error: ")]) == 1
        assert not any("Traceback" in line for line in lines)
        return next(line for line in lines if line.startswith("Error: "))

    return run


def test_help_lists_every_verb_with_a_summary(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    listed = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.split()}
    for verb in ("all", "collect", "evaluate", "extract", "fetch", "map", "proxies", "publish"):
        assert len(listed[verb]) > 2, verb


def test_every_stage_comes_after_what_it_needs():
    names = list(STAGES)
    for name, stage in STAGES.items():
        assert all(names.index(needed) < names.index(name) for needed in stage.needs), name
        assert stage.verb in verbs() and stage.cost in ("seconds", "minutes", "hours", "days")


def test_documents_name_files_that_are_there():
    """A file is named from the root, from ``backend`` or ``atlas``, or by its own name."""
    rooms = ("atlas", "backend", "jobs", "benchmarks", "tests", "assets")
    names = {path.name for room in rooms for path in (REPOSITORY / room).rglob("*.*")}
    for document in (*(REPOSITORY / "docs").glob("*.md"), *REPOSITORY.glob("*.md")):
        for file in re.findall(r"`((?:[\w*]+/)*[\w*]+\.(?:py|toml|js|css))`", document.read_text("utf-8")):
            found = [*REPOSITORY.glob(file), *(one for room in rooms[:2] for one in (REPOSITORY / room).glob(file))]
            assert found or file in names, (document, file)


@pytest.mark.parametrize(
    "document",
    ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md"))],
)
def test_documents_name_commands_that_the_jobs_take(document):
    text = (REPOSITORY / document).read_text("utf-8").replace("\\\n", " ")
    fenced = re.findall(r"^python -m jobs [a-z][^\n]*", text, re.MULTILINE)
    inline = [said for said in re.findall(r"`(python -m jobs [a-z]+ [^`]+)`", text) if not set("[…") & set(said)]
    for command in dict.fromkeys([*fenced, *inline]):
        check(command)


def test_a_problem_is_one_sentence_and_exit_code_2_in_a_process_of_its_own(tmp_path):
    command = [sys.executable, "-m", "jobs", "publish", "--work", str(tmp_path / "nothing.duckdb")]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("Error: ")
    assert "nothing.duckdb" in result.stderr


def test_missing_release_names_the_command_that_brings_it(tmp_path, refused):
    message = refused("evaluate", "--release", str(tmp_path / "nowhere"))
    assert "nowhere" in message
    assert "python -m jobs fetch" in message


def test_unknown_roster_and_view_list_the_choices(tmp_path, refused):
    release = str(fake_release(tmp_path / "release"))
    assert "165-way" in refused("evaluate", "--release", release, "--roster", "7-way")
    assert "ur, r" in refused("evaluate", "--release", release, "--view", "both")


def test_unknown_proxy_lists_the_known_ones(tmp_path, refused):
    release = str(fake_release(tmp_path / "release"))
    assert "smollm2-135m" in refused("extract", "--release", release, "--proxy", "smollm3")


def test_evaluation_without_fingerprints_names_the_extraction(tmp_path, refused):
    release = str(fake_release(tmp_path / "release"))
    message = refused("evaluate", "--release", release, "--roster", "165-way")
    assert "python -m jobs extract --benchmark agent500 --roster 165-way" in message


def test_newer_work_database_is_refused_with_both_versions(tmp_path, refused):
    work = tmp_path / "work.duckdb"
    with duckdb.connect(str(work)) as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER, applied_at TIMESTAMP)")
        connection.execute("INSERT INTO schema_version VALUES (9999, now()::TIMESTAMP)")
    release = str(fake_release(tmp_path / "release"))
    assert "9999" in refused("evaluate", "--release", release, "--work", str(work))


def test_a_look_runs_the_commands_of_the_real_thing_in_a_place_of_its_own_but_the_sweep(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    release = fake_release(tmp_path / "release", prompts=2)
    monkeypatch.setattr(everything, "modal_layer", lambda arguments, roster: 9)
    parser = argparse.ArgumentParser()
    everything.configure(parser)

    def commands(*more: str) -> list[list[str]]:
        stages = list(everything.plan(parser.parse_args(["--release", str(release), "--layers", "3,9", *more])))
        assert list(dict.fromkeys(name for name, _ in stages)) == [s for s in everything.STAGES if s != "results"]
        return [command for _, command in stages]

    whole, look = commands(), commands("--limit", "20")
    for command in whole:
        check(f"python -m jobs {shlex.join(command)}")
    place = tmp_path / "cache" / "look"
    extra = {"--limit", "20", "--work", str(place / WORK_FILE), "--to", str(place / "data")}
    assert [[word for word in command if word != "--sweep"] for command in whole] == [
        [word for word in command if word not in extra] for command in look
    ]
    for verb, *words in look:
        assert "--work" in words or "--sample" in words, words
        assert verb not in ("enroll", "publish") or "--to" in words, words
    assert sum("--sweep" in command for command in whole) == 1
    assert not any("--limit" in command for command in whole)
    tuned = [command for command in commands("--tune", "encoder,deberta") if command not in whole]
    for command in tuned:
        check(f"python -m jobs {shlex.join(command)}")
    methods = [command[command.index("--method") + 1] for command in tuned if "--method" in command]
    members = [command[command.index("--members") + 1] for command in tuned if "--members" in command]
    assert methods == ["encoder", "deberta"]
    assert len(members) == 2 and all(text.endswith(",minilm-l6:tuned") for text in members)
    with pytest.raises(AtlasError, match="'bert' is no fine-tuned baseline"):
        commands("--tune", "bert")


def test_frozen_dna_reads_responses_alone_as_the_published_one(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(everything, "modal_layer", lambda arguments, roster: 9)
    monkeypatch.setattr(everything, "installed", lambda proxy: tmp_path)
    parser = argparse.ArgumentParser()
    everything.configure(parser)
    release = str(fake_release(tmp_path / "release", prompts=2))
    stages = everything.plan(parser.parse_args(["--release", release]))
    read = {
        command[command.index("--method") + 1]: command[command.index("--view") + 1]
        for name, command in stages
        if name == "baselines"
    }
    assert read == {"random,ngram-word,ngram-char,llmmap": "ur", "dna": "r"}


def test_every_roster_is_read_at_its_own_modal_block(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    release = fake_release(tmp_path / "release", prompts=2)
    modal = {"50-way": 9, "100-way": 9, "165-way": 3}
    monkeypatch.setattr(everything, "modal_layer", lambda arguments, roster: modal[roster])
    parser = argparse.ArgumentParser()
    everything.configure(parser)

    def commands(rosters: str) -> list[list[str]]:
        arguments = ["--release", str(release), "--layers", "12", "--roster", rosters]
        return [command for _, command in everything.plan(parser.parse_args(arguments))]

    def said(command: list[str], option: str) -> str | None:
        return command[command.index(option) + 1] if option in command else None

    found = commands("50-way,100-way,165-way")
    for command in found:
        check(f"python -m jobs {shlex.join(command)}")
    read = {
        (said(c, "--benchmark"), said(c, "--view")): said(c, "--layers")
        for c in found
        if c[0] == "extract" and said(c, "--proxy") == "smollm2-135m" and "--temporal" not in c
    }
    assert read == {
        ("agent500", "ur"): "12", ("math100", "ur"): "3,9,12", ("math100", "r"): "3,9", ("agent500", "r"): "3,9",
        ("bench-a", "ur,r"): "3,9",
    }  # fmt: skip
    (arrays,) = (c for c in found if "--temporal" in c)
    assert [said(arrays, option) for option in ("--layers", "--temporal", "--positions")] == ["9"] * 3
    of_r = [c for c in found if said(c, "--stage") == "attribution" and said(c, "--view") == "r"]
    assert [(said(c, "--roster"), said(c, "--layers")) for c in of_r] == [("165-way", "3"), ("50-way,100-way", "9")]
    assert not any("--layer" in c for c in found), "map and relate take the modal block of their roster"
    assert [said(c, "--roster") for c in found if c[0] == "relate"] == ["100-way"]
    assert [said(c, "--roster") for c in commands("50-way,165-way") if c[0] == "relate"] == ["165-way"]

    # Stages that read at no block need none, so that a database without some roster can be published.
    monkeypatch.undo()
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    late = parser.parse_args(["--release", str(release), "--layers", "12", "--from", "publish"])
    assert "publish" in [name for name, _ in everything.plan(late)]


@pytest.mark.slow(130)
@pytest.mark.proxy
def test_every_stage_on_an_invented_release(tmp_path, smollm2, sample, monkeypatch, capsys):
    release = fake_release(tmp_path / "release", prompts=25)
    cache = tmp_path / "cache"
    (cache / "proxies").mkdir(parents=True)
    (cache / "proxies" / "smollm2-135m").symlink_to(cache_folder() / "proxies" / "smollm2-135m")
    command = ["all", "--release", str(release), "--layers", "2,4", "--limit", "25", "--to", str(tmp_path / "data")]
    command += ["--roster", "165-way"]
    monkeypatch.setenv("ATLAS_CACHE", str(cache))
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    # A process of its own for each of forty audit paths is mostly start; test_cost.py has one.
    monkeypatch.setattr(cost, "in_fresh_process", measure)
    monkeypatch.setattr(cost, "QUICK_RECORDS", 2)
    # The proxy is loaded once, and not by every stage and audit path.
    for module in (enroll, extract, paths):
        monkeypatch.setattr(module, "load_reader", lambda *_: smollm2)
    monkeypatch.setattr(paths, "load_model", functools.cache(load_model))
    # The shipped samples were read by the same proxy for other tests.
    monkeypatch.setattr(enroll, "sample_enrolment", lambda *_, **__: sample)
    assert main(command) == 0
    assert "Layer scan" in capsys.readouterr().err

    generation = Generation.open(tmp_path / "data")
    cursor = generation.cursor()
    reader = "reader-paper/smollm2-135m/ur"
    roster = sources(cursor, "165-way")
    labels = [row["label"] for row in json.loads((release / "data/rosters/165-way.json").read_text("utf-8"))]
    assert roster["source"].tolist() == labels
    curve = metric_curve(cursor, reader, "165-way", "agent500", "clean", "accuracy", "pooled")
    assert curve["k"].tolist() == [1, 5]
    assert curve["value"].iloc[0] > 2 / len(labels)  # the invented sources have habits that any reader sees
    for view in ("ur", "r"):
        for domain in ("agent500", "math100"):
            points = projection(cursor, f"reader-paper/smollm2-135m/{view}", "165-way", domain, "tsne", 3)
            assert sorted(points["source"]) == sorted(labels)
    unsure = cursor.execute(
        "SELECT reader FROM attribution_metrics JOIN builds USING (build_id) WHERE origin = 'measured' AND "
        "benchmark = 'agent500' AND condition = 'clean' GROUP BY reader, roster, k HAVING "
        "count(*) FILTER (metric IN ('accuracy_low', 'accuracy_high')) <> 2"
    ).fetchall()
    assert unsure == []
    published = metric_curve(cursor, "reader-paper/invented/ur", "100-way", "agent500", "clean", "accuracy", "pooled")
    assert published[["k", "value"]].to_numpy().tolist() == [[1, 0.5]]
    near = neighbors(cursor, reader, "165-way", "agent500", labels[0])
    assert labels[0] not in set(near["neighbor"])
    built = cursor.execute("SELECT count(*) FROM builds WHERE proxy_hash IS NOT NULL").fetchone()[0]
    assert built >= 4
    text = " ".join(map(str, cursor.execute("SELECT command, details FROM builds").fetchall()))
    assert str(tmp_path) not in text

    parser = argparse.ArgumentParser()
    everything.configure(parser)
    for name, words in everything.plan(parser.parse_args(command[1:])):
        if name in ("extract", "attribution", "extract-modal", "cost"):
            assert main(words) == 0
    said = capsys.readouterr()
    assert "Layer scan" not in said.err  # nothing expensive is done twice
    assert re.findall(r"(\d+) of \d+ records to read", said.out)
    assert not any(map(int, re.findall(r"(\d+) of \d+ records to read", said.out)))
    assert "latency_ms" not in said.out and "measured before" in said.out

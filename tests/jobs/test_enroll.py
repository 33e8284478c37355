"""Labelled traces become an ecosystem: file, rows and map; what cannot work is refused in words; names stay text."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import backend.attribution.scoring
import jobs.enroll
import jobs.publish
from backend.attribution.decision import find, fitted_statistics_of
from backend.attribution.scoring import Attributor
from backend.corpus.labelled import Labelled, labelled
from backend.enrolment.files import load_enrolment
from backend.enrolment.own_traces import slug
from backend.enrolment.validation_lookup import matched_validation, validation_of
from backend.errors import AtlasError
from backend.evaluations.corpus import Corpus
from backend.intake import Received, trace_hash
from backend.methods.probe import fit_probe
from backend.protocol import balance_rows
from backend.proxies.reader import Reader
from backend.proxies.registry import proxy_hash
from backend.store import queries
from backend.store.database import Generation, open_work, publish
from backend.store.page_queries import validation
from backend.traces import Trace
from jobs.__main__ import main
from tests.shipped_samples import enrolled_samples
from tests.store.test_continuation import measure
from tests.tiny_models import tiny_decoder, tiny_tokenizer

STYLES = {
    "plain": "First stop the service {i}, then start it again.",
    "shout": "STOP THE SERVICE {i} AND START IT AGAIN! 🚀 1234",
    "code": "```python\nqueue[{i}].restart()\n```\n\n\nprint('été')",
    "list": "1. stop {i}\n2. wait\n3. start {i}\n4. look",
}
HOSTILE = '"><img src=x onerror=alert(1)> ../../etc'
QUICK = ("--layer", "1", "--readout", "reader-paper")  # where neither block nor method is the point
UNSERVED = (*QUICK, "--no-publish")
Run = Callable[..., int]


def lines(prompts: int = 12, styles: dict[str, str] = STYLES) -> list[dict[str, object]]:
    return [
        {"source": source, "prompt": f"How do I restart queue {i}?", "response": text.format(i=i)}
        for source, text in styles.items()
        for i in range(prompts)
    ]


def write_lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return path


@pytest.fixture
def enroll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    reader = Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)
    monkeypatch.setattr(jobs.enroll, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(jobs.enroll, "proxy_hash", lambda proxy: "f" * 64)
    monkeypatch.setattr(jobs.enroll, "proxy_key", lambda proxy: "tiny")

    def run(rows: list[dict[str, object]], *options: str, name: str = "acme") -> int:
        path = write_lines(tmp_path / "labelled.jsonl", rows)
        return main(["enroll", str(path), "--name", name, *options])

    return run


@pytest.mark.parametrize("option", [("--readout", "network"), ("--view", "ur,r"), ("--limit", "5")])
def test_what_labelled_traces_cannot_have_is_refused(
    enroll: Run, capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    assert enroll(lines(), *option) != 0
    assert "scored by reader-paper" in capsys.readouterr().err


def received(label: str | None, prompt: str, response: str) -> Received:
    return Received(1, 0, prompt, response, None, label, None, trace_hash(prompt, response))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_ecosystem_stands_in_file_and_store(
    enroll: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    families = tmp_path / "families.json"
    families.write_text(json.dumps({"plain": "words", "shout": "words"}), "utf-8")
    assert enroll(lines(), "--families", str(families)) == 0
    said = capsys.readouterr().out
    assert "K =   1: accuracy" in said
    assert "Candidates, by inner prompt folds:" in said and "Chosen by the higher log score: " in said
    ended = [line for line in re.split(r"[\r\n]+", terminal.getvalue()) if "100%" in line and "48" in line]
    assert ended[0].startswith("Counting tokens: 100%") and any(line.startswith("100%") for line in ended)
    for stage in ("Selecting the block", "Fitting the probes", "Comparing methods", "Validating"):
        assert f"{stage}: 100%" in terminal.getvalue()
    made = load_enrolment(tmp_path / "data" / "enrolments" / "acme-tiny-ur.npz")
    assert made.sources == ("code", "list", "plain", "shout")
    assert made.families == ("code", "list", "words", "words")
    assert (made.facts["roster"], len(made.heads), len(made.prompts)) == ("acme", 5, 12)
    assert {"calibration", "unknown", "stop", "mixture", "domain-acme", "signatures", "validation", "prompts"} == {
        name.partition(".")[0] for name in made.attachments
    }
    work = tmp_path / "cache" / "atlas-work.duckdb"
    with open_work(work) as connection:
        assert queries.rosters(connection)["roster"].tolist() == ["acme"]
        members = queries.sources(connection, "acme")
        assert members["source"].tolist() == list(made.sources)
        assert members["responses"].tolist() == [12] * 4
        reader = made.reader
        rows = connection.execute("SELECT DISTINCT benchmark, condition, k FROM attribution_metrics").fetchall()
        assert set(rows) == {("acme", "clean", 1)}
        paper = "reader-paper/tiny/ur"
        both = connection.execute("SELECT DISTINCT reader FROM attribution_metrics").fetchall()
        assert {name for (name,) in both} == {paper, reader}
        assert (made.place_reader, made.facts["choice"]["by"]) == (paper, "mean log score on inner prompt folds")
        assert len(queries.neighbors(connection, paper, "acme", "acme")) == 12
        points = connection.execute("SELECT DISTINCT method, dimensions FROM projections WHERE roster = 'acme'")
        assert set(points.fetchall()) == {(m, d) for m in ("tsne", "umap", "pca") for d in (2, 3)}
        selected = queries.selected_layers(connection, paper, "acme")
        assert set(selected["layer"]) <= {1, 2}
        checked = validation(connection, reader, "acme")
        assert set(checked["part"]) == {"calibration", "unknown", "stop", "drift"}
        assert len(validation_of(made)) == len(checked)
    with contextlib.closing(Generation.open(tmp_path / "data").cursor()) as cursor:
        assert queries.rosters(cursor)["roster"].tolist() == ["acme"]
        assert len(queries.neighbors(cursor, paper, "acme", "acme")) == 12
    traces = [Trace(f"New {i}?", STYLES["shout"].format(i=i)) for i in range(8)]
    scored = Attributor(Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False), made, "f" * 64).score(traces)
    findings = find(scored, made, "shout", companions=fitted_statistics_of(made))
    assert made.sources[findings.leader] == "shout"
    assert findings.calibrated
    near = made.attachments["signatures.vectors"].astype(np.float32) @ scored.signature
    assert made.sources[int(near.argmax())] == "shout"
    told = matched_validation(made, scored.tokens, 8)
    assert told is not None
    assert (told["condition"], told["traces"], told["groups"]) == ("clean", 1, 48)
    assert {row["part"] for row in told["rows"]} == {"calibration", "unknown", "stop", "drift"}


@pytest.mark.parametrize("method", ["reader-paper", "fused-live", "ngram-word-lengths"])
def test_an_ecosystem_by_a_named_method(enroll: Run, tmp_path: Path, method: str) -> None:
    rows = [row for i, row in enumerate(lines(20)) if i % 7]  # no source answers every prompt
    assert enroll(rows, "--readout", method, "--layer", "2", "--no-publish") == 0
    made = load_enrolment(tmp_path / "data" / "enrolments" / "acme-tiny-ur.npz")
    assert made.reader.partition("/")[0] == method
    assert "choice" not in made.facts and made.place == 2
    assert {"calibration", "unknown", "stop", "domain-acme", "signatures", "validation"} <= {
        name.partition(".")[0] for name in made.attachments
    }
    traces = [Trace(f"New {i}?", STYLES["shout"].format(i=i)) for i in range(8)]
    scored = Attributor(Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False), made, "f" * 64).score(traces)
    assert made.sources[int(scored.log_posteriors.sum(0).argmax())] == "shout"
    with open_work(tmp_path / "cache" / "atlas-work.duckdb") as connection:
        assert set(validation(connection, made.reader, "acme")["part"]) >= {"calibration", "unknown", "stop", "drift"}


def test_groups_of_a_column_and_the_last_fifth_of_the_time_are_stated(
    enroll: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row | {"case": f"case {i % 20 // 2}", "time": f"2026-05-{1 + i % 20:02d}"} for i, row in enumerate(lines(20))
    ]
    assert enroll(rows, *UNSERVED, "--group-column", "case") == 0
    printed = capsys.readouterr().out
    sentence = "Validated on 10 groups of prompts that belong together (column 'case')."
    assert sentence in printed and "on the last fifth of the time" in printed
    made = load_enrolment(tmp_path / "data" / "enrolments" / "acme-tiny-ur.npz")
    assert made.facts["grouping"] == {"kinds": ["column 'case'"], "groups": 10, "validates": True}
    folds = made.folds_of([f"How do I restart queue {i}?" for i in range(20)])
    assert folds[::2] == folds[1::2] and set(folds) == set(range(5))
    rates = matched_validation(made, np.array([9]), 1)
    assert rates is not None and rates["grouping"] == sentence
    later = [row for row in rates["rows"] if row["scenario"] == "time"]
    assert [(row["k"], row["metric"]) for row in later] == [(1, "accuracy")]
    assert "the last fifth of the time" in later[0]["sentence"]


def test_too_few_groups_state_nothing(enroll: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row | {"case": f"case {i % 3}"} for i, row in enumerate(lines())]
    assert enroll(rows, *UNSERVED, "--group-column", "case") == 0
    printed = capsys.readouterr().out
    assert "Not validated: 3 groups" in printed and "every verdict will be INCONCLUSIVE" in printed
    assert "accuracy" not in printed
    made = load_enrolment(tmp_path / "data" / "enrolments" / "acme-tiny-ur.npz")
    assert {"domain-acme", "signatures", "prompts"} == {name.partition(".")[0] for name in made.attachments}
    reader = Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)
    traces = [Trace(f"New {i}?", STYLES["shout"].format(i=i)) for i in range(8)]
    scored = Attributor(reader, made, "f" * 64).score(traces)
    findings = find(scored, made, "shout", companions=fitted_statistics_of(made))
    assert not findings.calibrated and findings.verdict.outcome == "INCONCLUSIVE" and findings.validation is None
    with open_work(tmp_path / "cache" / "atlas-work.duckdb") as connection:
        for table in ("audit_validation", "attribution_metrics"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_a_column_for_groups_has_to_be_there(enroll: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert enroll(lines(), "--group-column", "case") == 2
    assert "no column 'case' for the group" in capsys.readouterr().err


def test_auto_is_for_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["enroll", "--roster", "100-way", "--readout", "auto"]) == 2
    assert "chooses for labelled traces" in capsys.readouterr().err


def served(data: Path) -> list[str]:
    """Rosters of the generation that is served."""
    with contextlib.closing(Generation.open(data).cursor()) as cursor:
        rosters: list[str] = queries.rosters(cursor)["roster"].tolist()
    return rosters


def test_several_in_a_row_are_published_with_the_last(
    enroll: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert enroll(lines(), *UNSERVED, name="first") == 0
    assert "in the header of the atlas after: python -m jobs publish" in capsys.readouterr().out
    assert not list((tmp_path / "data").glob("atlas-*"))
    assert enroll(lines(), *QUICK, name="second") == 0
    assert "Published " in capsys.readouterr().out
    assert sorted(served(tmp_path / "data")) == ["first", "second"]


def test_nothing_that_is_served_is_lost_to_an_ecosystem(
    enroll: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    publish(measure(tmp_path / "elsewhere.duckdb", "shipped", "2-way"), data)
    own = tmp_path / "own.duckdb"
    assert enroll(lines(), *QUICK, "--work", str(own)) == 2
    said = capsys.readouterr()
    assert "The enrolment acme-tiny-ur is written, and its ecosystem not published." in said.err
    assert "own.duckdb lacks it: shipped/r on 2-way" in said.err
    assert "Written: acme-tiny-ur.npz" in said.out
    assert (data / "enrolments" / "acme-tiny-ur.npz").exists()
    assert served(data) == ["2-way"]
    # Both remedies: a work database that begins with what is served, and the command that takes it out.
    assert enroll(lines(), *QUICK) == 0
    assert sorted(served(data)) == ["2-way", "acme"]
    command = shlex.split(said.err.partition("or take them out: ")[2].strip().rstrip("."))
    assert command[:3] == ["python", "-m", "jobs"]
    assert main(command[3:]) == 0
    assert served(data) == ["acme"]


def test_a_folder_that_cannot_be_published_to(
    enroll: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise AtlasError("The atlas cannot be published", "Check the free space")

    monkeypatch.setattr(jobs.publish, "publish", full)
    assert enroll(lines(), *QUICK) == 2
    said = capsys.readouterr().err
    assert "The enrolment acme-tiny-ur is written, and its ecosystem not published. The atlas cannot be" in said
    assert "Check the free space. Then run: python -m jobs publish --work " in said
    assert (tmp_path / "data" / "enrolments" / "acme-tiny-ur.npz").exists()


def test_labelled_traces_in_a_named_encoding(enroll: Run, tmp_path: Path) -> None:
    path = tmp_path / "labelled.csv"
    rows = [f"источник-{s};вопрос {i};{text.format(i=i)}" for s, text in (("а", "стоп {i}"), ("б", "Ещё раз {i}!"))
            for i in range(12)]  # fmt: skip
    path.write_bytes("\n".join(["source;prompt;response", *rows]).encode("cp1251"))
    asked = ["enroll", str(path), "--name", "acme", *UNSERVED, "--encoding", "cp1251"]
    assert main(asked) == 0
    made = load_enrolment(tmp_path / "data" / "enrolments" / "acme-tiny-ur.npz")
    assert made.sources == ("источник-а", "источник-б")
    assert main([*asked[:-1], "klingon"]) == 2


def test_enrolling_again_replaces_and_does_not_read_again(enroll: Run, tmp_path: Path) -> None:
    assert enroll(lines(), *UNSERVED) == 0
    path = tmp_path / "data" / "enrolments" / "acme-tiny-ur.npz"
    first = load_enrolment(path).sha256
    shards = next((tmp_path / "cache" / "fingerprints").rglob("shards.jsonl"))
    journal = shards.read_text("utf-8")
    assert enroll(lines(), *UNSERVED) == 0
    assert load_enrolment(path).sha256 == first
    assert shards.read_text("utf-8") == journal
    with open_work(tmp_path / "cache" / "atlas-work.duckdb") as connection:
        count = connection.execute("SELECT count(*) FROM roster_members").fetchone()
        assert count == (4,)
        builds = connection.execute("SELECT count(DISTINCT build_id) FROM attribution_metrics").fetchone()
        assert builds == (1,)


def test_hostile_names_stay_text(enroll: Run, tmp_path: Path) -> None:
    styles = {f"{source}<script>{'x' * 30}": text for source, text in STYLES.items()}
    assert enroll(lines(styles=styles), *UNSERVED, name=HOSTILE) == 0
    (path,) = (tmp_path / "data" / "enrolments").glob("*.npz")
    assert path.stem == f"{slug(HOSTILE)}-tiny-ur"
    assert path.stem.replace("-", "").isalnum()
    made = load_enrolment(path)
    assert set(made.sources) == set(styles)
    assert made.facts["roster"] == HOSTILE
    fitted_statistics_of(made)
    with open_work(tmp_path / "cache" / "atlas-work.duckdb") as connection:
        assert queries.rosters(connection)["roster"].tolist() == [HOSTILE]
        assert set(queries.sources(connection, HOSTILE)["source"]) == set(styles)


def test_a_known_label_is_the_same_source(enroll: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert enroll(lines(), *UNSERVED, name="first") == 0
    families = tmp_path / "families.json"
    families.write_text(json.dumps({"plain": "other"}), "utf-8")
    assert enroll(lines(11), *UNSERVED, "--families", str(families), name="second") == 0
    assert "'plain' is known here already; it keeps its family 'plain'." in capsys.readouterr().out
    with open_work(tmp_path / "cache" / "atlas-work.duckdb") as connection:
        for roster in ("first", "second"):
            held = queries.sources(connection, roster).set_index("source").loc["plain"]
            assert (held["family"], held["responses"]) == ("plain", 12)


@pytest.mark.parametrize(
    ("rows", "options", "name", "reason"),
    [
        (lines(styles={"one": "a {i}"}), [], "acme", "one source only"),
        (lines(9), [], "acme", "has 9 traces"),
        ([{**row, "source": None} for row in lines()], [], "acme", "No trace says whom it is from"),
        ([{**row, "prompt": "the same"} | {"response": f"{row['response']} {i}"} for i, row in enumerate(lines())],
         [], "acme", "answer 1 different prompts"),
        (lines(), [], "100-way", "built-in"),
        (lines(), [], " Agent500 ", "built-in"),
        (lines(), [], "  ", "cannot be shown"),
        (lines(), ["--layer", "9"], "acme", "no block 9"),
        (lines(), ["--label-column", "nobody"], "acme", "no column 'nobody'"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(
    enroll: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, rows, options, name, reason
) -> None:
    assert enroll(rows, *options, name=name) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "data" / "enrolments").exists()


def test_other_questions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for asked, reason in (
        (["enroll"], "what to enrol"),
        (["enroll", "x.jsonl", "--sample"], "what to enrol"),
        (["enroll", "x.jsonl"], "no name"),
        (["enroll", str(tmp_path / "none.jsonl"), "--name", "a"], "cannot be read"),
    ):
        assert main(asked) == 2
        assert reason in capsys.readouterr().err


def ragged(seed: int = 0) -> Labelled:
    """Sources with many and few traces, prompts of their own, repeated and absent ones."""
    rng = np.random.default_rng(seed)
    traces = [received("a", f"shared {i % 25}", f"a {i}") for i in range(60)]
    traces += [received("b", f"own {i}", f"b {i}") for i in range(31)]
    traces += [received("c", "" if i % 2 else f" shared {i} ", f"c {i}") for i in range(14)]
    return labelled([traces[i] for i in rng.permutation(len(traces))], "0" * 64)


def test_folds_keep_prompts_together_and_are_filled() -> None:
    found = ragged()
    by_prompt = pd.DataFrame({"prompt": found.prompts, "fold": found.folds}).groupby("prompt")["fold"].nunique()
    assert (by_prompt == 1).all()
    assert not found.complete
    counts = np.array([np.bincount(found.folds[found.labels == c], minlength=5) for c in range(3)])
    assert counts.sum() == 105
    assert counts.min() >= 1 and (counts.min(1) >= 0.25 * counts.mean(1)).all()
    rows, folds = found.grid()
    assert rows.shape == (3, len(folds)) == (3, counts.min(0).sum())
    for c in range(3):
        assert set(found.labels[rows[c]]) == {c}
        np.testing.assert_array_equal(found.folds[rows[c]], folds)
        assert len(set(rows[c])) == len(folds)


def test_a_complete_grid_has_a_column_a_prompt() -> None:
    prompts = [f"p{i:02d}" for i in range(12)]
    found = labelled([received(s, p, f"{s} {p}") for p in prompts[::-1] for s in ("b", "a")], "0" * 64)
    assert found.complete
    rows, folds = found.grid()
    assert set(folds.tolist()) == set(range(5))
    assert [[found.traces[i].response for i in row] for row in rows] == [[f"{s} {p}" for p in prompts] for s in "ab"]


def test_what_is_left_out_is_said() -> None:
    traces = [received(s, f"p{i}", f"{s} {i}") for s in "ab" for i in range(10)]
    found = labelled([*traces, traces[0], received(None, "p", "r")], "0" * 64)
    assert len(found.traces) == 20
    assert "without a source" in " ".join(found.notes)
    assert "word for word" in " ".join(found.notes)
    with pytest.raises(AtlasError, match="family is given for 'z'"):
        labelled(traces, "0" * 64, {"z": "y"})


def test_many_traces_of_a_source_do_not_favour_it() -> None:
    rng = np.random.default_rng(3)
    labels = np.repeat([0, 1], [600, 60])
    rows = (rng.normal(size=(660, 4)) + labels[:, None] * 0.4).astype(np.float32)
    probe = fit_probe(rows, labels, 2)
    fresh = (rng.normal(size=(4000, 4)) + np.repeat([0, 1], 2000)[:, None] * 0.4).astype(np.float32)
    even = fit_probe(rows[balance_rows(labels)], labels[balance_rows(labels)], 2)
    share, evenly = ((one.log_posterior(fresh).argmax(1) == 0).mean() for one in (probe, even))
    assert share > 0.6
    assert evenly == pytest.approx(0.5, abs=0.05)
    assert balance_rows(np.array([1, 0, 1, 1, 0])).tolist() == [0, 1, 1, 2, 3, 4]
    np.testing.assert_array_equal(balance_rows(np.array([0, 1, 1, 0])), np.arange(4))


@pytest.mark.proxy
@pytest.mark.slow(60)
def test_the_sample_ecosystem_with_a_real_proxy(
    smollm2: Reader, samples_read: tuple[Corpus, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = proxy_hash("smollm2-135m")
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    for module in (jobs.enroll, backend.attribution.scoring):
        monkeypatch.setattr(module, "load_reader", lambda proxy, device: smollm2)
        monkeypatch.setattr(module, "proxy_hash", lambda proxy: weights)
    monkeypatch.setattr("backend.fingerprints.cache_folder", lambda: tmp_path / "cache")
    # These traces were read by the same proxy for other tests.
    shutil.copytree(samples_read[1] / "fingerprints", tmp_path / "cache" / "fingerprints")
    (journal,) = (tmp_path / "cache").rglob("shards.jsonl")
    read, work = journal.read_text("utf-8"), tmp_path / "work.duckdb"
    asked = ["enroll", str(samples_read[1] / "samples.jsonl"), "--name", "small models", "--layer", "12"]
    assert main([*asked, "--access", "local", "--work", str(work)]) == 0
    assert journal.read_text("utf-8") == read
    (path,) = (tmp_path / "data" / "enrolments").glob("small-models-*.npz")
    made = load_enrolment(path)
    assert made.facts["roster"] == "small models"
    with open_work(work) as connection:
        members = queries.sources(connection, "small models")
        assert set(members["source"]) == set(made.sources)
        assert set(members["access"]) == {"local"}
        accuracy = dict(
            connection.execute(
                "SELECT k, value FROM attribution_metrics WHERE roster = 'small models' AND condition = 'clean' "
                "AND metric = 'accuracy' AND reduction = 'pooled' AND seed IS NULL AND fold IS NULL"
            ).fetchall()
        )
        assert accuracy[10] > accuracy[1] > 1.5 / len(made.sources)
        near = queries.neighbors(connection, made.place_reader, "small models", "small models")
        assert len(near) == len(members) * (len(members) - 1)
        checked = validation(connection, made.reader, "small models", "clean", 10, "calibration")
        assert float(checked.set_index("metric")["value"]["accuracy_after"]) == pytest.approx(accuracy[10], abs=0.15)
    # A report by the chosen method is made and computed again from the command line.
    traces, page = tmp_path / "traces.jsonl", tmp_path / "report.html"
    own = [row.trace for row in enrolled_samples() if row.source == made.sources[0]][:12]
    write_lines(traces, [asdict(trace) for trace in own])
    assert main(["attribute", str(traces), "--enrolment", path.stem, "--report", str(page), "--orders", "20"]) == 0
    assert json.loads(page.with_suffix(".json").read_text("utf-8"))["results"]["leader"] == made.sources[0]
    assert main(["verify", str(page.with_suffix(".json")), "--traces", str(traces)]) == 0

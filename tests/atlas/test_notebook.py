"""Attribution from Python: the answers of the command line, errors with a remedy, and what the documents show."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pandas as pd
import plotly.graph_objects as go
import pytest
from nbclient import NotebookClient

import atlas
import atlas.notebook
import backend.enrolment.own_traces
from atlas import Attributor, Corpus
from backend.attribution.report_words import answer_line
from backend.corpus.collection import SAMPLES
from backend.enrolment.files import load_enrolment
from backend.errors import AtlasError
from backend.proxies.reader import Reader
from jobs.__main__ import main
from tests.conftest import REPOSITORY
from tests.jobs.test_enroll import STYLES, lines, write_lines
from tests.tiny_models import tiny_decoder, tiny_tokenizer

NAME = "samples-smollm2-135m-ur"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Corpus]:
    """A corpus of four styles, and a proxy without training that reads it."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    reader = Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)
    monkeypatch.setattr(atlas.notebook, "_loaded", lambda proxy, device: (reader, "f" * 64))
    monkeypatch.setattr(backend.enrolment.own_traces, "proxy_hash", lambda proxy: "f" * 64)
    atlas.notebook._models.cache_clear()
    yield Corpus.from_file(write_lines(tmp_path / "acme.jsonl", lines()))
    atlas.notebook._models.cache_clear()


def table(style: str, many: int = 6) -> pd.DataFrame:
    return pd.DataFrame(lines(40, {style: STYLES[style]})[-many:])[["prompt", "response"]]


def test_the_classes_are_imported_when_they_are_named() -> None:
    names = "import sys, atlas; a = 'torch' in sys.modules; atlas.Corpus; print(a, 'dash' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", names], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert not hasattr(atlas, "Corpora")


def test_a_corpus_is_fitted_saved_loaded_and_asked(tiny: Corpus, tmp_path: Path) -> None:
    assert (tiny.name, len(tiny), tiny.sources) == ("acme", 48, tuple(sorted(STYLES)))
    fitted = Attributor.fit(tiny)
    assert fitted.notes, "the choice says why"
    assert fitted.sources == tiny.sources and fitted.name in repr(fitted)
    again = Attributor.load(fitted.save(tmp_path / "acme.npz"))
    assert again.enrolment.sha256 == fitted.enrolment.sha256
    shout = table("shout")
    first = fitted.attribute(shout, claimed="shout")
    pairs = list(shout.itertuples(index=False, name=None))
    for other in (again.attribute(shout, claimed="shout"), again.attribute(pairs, claimed="shout")):
        assert other.candidates.equals(first.candidates) and other.verdict == first.verdict
    assert first.candidates["source"][0] == "shout" and set(first.candidates["source"]) == set(tiny.sources)
    assert repr(first) == answer_line(first.report)
    for kind in ("evidence", "contributions", "leave-one-out"):
        assert isinstance(first.figure(kind, theme="dark"), go.Figure)
    with pytest.raises(AtlasError, match="Choose from evidence"):
        first.figure("pie")
    told = fitted.compare(shout, table("code"), [table("shout").iloc[::-1]])
    assert told["verdict"] == "AGAINST" and told["prompts"] == 6 and "code" not in told["sentence"]
    assert told["rivals"][0]["nearer"] == 0, "the rival is the source itself"
    with pytest.raises(AtlasError, match="0 prompts are answered by both sides"):
        fitted.compare(shout, [("Another question?", "Yes.")])


def test_the_command_line_says_the_same(
    tiny: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = Attributor.fit(tiny, readout="reader-paper", layer=2)
    path = fitted.save(tmp_path / "acme.npz")
    found = fitted.attribute(table("code"), case="A case")
    found.save(tmp_path / "out.html", traces=True)
    reader = atlas.notebook._loaded("smollm2-135m", "auto")
    monkeypatch.setattr("backend.attribution.scoring.from_registry", lambda proxy, device="auto": reader)
    words = ["attribute", str(tmp_path / "out.jsonl"), "--enrolment", str(path), "--case", "A case"]
    assert main([*words, "--report", str(tmp_path / "cli.html")]) == 0
    assert found.verdict in capsys.readouterr().out
    ours, theirs = (json.loads(tmp_path.joinpath(f"{name}.json").read_text("utf-8")) for name in ("out", "cli"))
    assert ours["results"] == theirs["results"] and ours["traces"] == theirs["traces"]
    assert found.report == ours
    of_file = fitted.attribute(tmp_path / "out.jsonl", case="A case")
    assert of_file.report["results"] == ours["results"] and of_file.traces is None


def test_a_corpus_may_be_a_table(tiny: Corpus) -> None:
    rows = pd.DataFrame(lines()).rename(columns={"source": "who"})
    found = Corpus.from_frame(rows, name="acme", label="who", families={"plain": "calm", "list": "calm"})
    assert found.sources == tiny.sources and found.labelled.families == ("code", "calm", "calm", "shout")
    assert (found.labelled.folds == tiny.labelled.folds).all()


def test_any_cell_of_a_table_can_be_read(tiny: Corpus) -> None:
    frame = (
        table("list")
        .astype(object)
        .assign(time=pd.date_range("2026-01-01", periods=6), n=range(6), share=0.5, path=Path("x"), nothing=None)
    )
    frame.iloc[0, 0] = float("nan")
    frame.iloc[1, 1] += "\ud800"
    found = Attributor.fit(tiny, "reader-paper", layer=2).attribute(frame)
    traces = found.report["traces"]
    assert [trace["time"] for trace in traces[:2]] == ["2026-01-01 00:00:00", "2026-01-02 00:00:00"]
    assert traces[0]["prompt_characters"] == 0 and len(traces) == 6


@pytest.mark.parametrize(
    ("traces", "words"),
    [
        ([], "There are no traces"),
        (pd.DataFrame({"prompt": [], "response": []}), "There are no traces"),
        ([("a", "b"), ("a",)], "Trace 2 is no pair"),
        (["ab"], "Trace 1 is no pair"),
        ([("a", None)], "Trace 1 is no pair"),
        (pd.DataFrame({"x": ["1"], "y": ["2"]}), r"No column of the table .*\(it has x, y\)\. Name it"),
        (pd.DataFrame([["1", "2"]], columns=["x", "x"]), "same name"),
        ("nowhere.jsonl", "nowhere.jsonl"),
    ],
)
def test_traces_that_are_none_are_refused(traces: object, words: str) -> None:
    with pytest.raises(AtlasError, match=words):
        Attributor.load(NAME).attribute(traces)


def test_names_that_do_not_exist_are_refused(tiny: Corpus, tmp_path: Path) -> None:
    loaded = Attributor.load(NAME)
    with pytest.raises(AtlasError, match=r"is not enrolled .* such as smol-greedy"):
        loaded.attribute([("a", "b")], claimed="smol-greed")
    with pytest.raises(AtlasError, match="There is no column 'answer'"):
        loaded.attribute([("a", "b")], response="answer")
    with pytest.raises(AtlasError, match="no enrolment and no ecosystem 'nobody'"):
        Attributor.load("nobody")
    with pytest.raises(AtlasError, match="There is no enrolment"):
        Attributor.load(tmp_path / "none.npz")
    with pytest.raises(AtlasError, match=r"Name it NAME\.npz"):
        loaded.save(tmp_path / "acme")
    for options, words in (
        ({"readout": "network"}, "Choose from auto, reader-paper"),
        ({"view": "x"}, "Choose from ur, r"),
        ({"layer": 99}, "has no block 99"),
    ):
        with pytest.raises(AtlasError, match=words):
            Attributor.fit(tiny, **options)
    with pytest.raises(AtlasError, match=r"No trace .* was scored"):
        Attributor.fit(tiny, "reader-paper", layer=2).attribute(pd.DataFrame({"prompt": ["a"], "response": [None]}))
    with pytest.raises(AtlasError, match="No trace says whom it is from"):
        Corpus.from_frame(table("code"), name="acme")


def test_shipped_enrolments_are_found_by_name() -> None:
    assert Attributor.load("165-way-fused-live-smollm2-135m-ur").sources == Attributor.load("165-way").sources
    path = SAMPLES.parent / "enrolments" / f"{NAME}.npz"
    assert Attributor.load(path).enrolment.sha256 == load_enrolment(path).sha256


@pytest.mark.slow
def test_the_examples_of_the_documents_run(smollm2: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    text = REPOSITORY.joinpath("docs", "python.md").read_text("utf-8")
    for name, examples in (("docs/python.md", text), ("atlas/notebook.py", str(atlas.notebook.__doc__))):
        test = doctest.DocTestParser().get_doctest(examples, {}, name, name, 0)
        assert test.examples and doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.slow
def test_the_notebook_runs(smollm2: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    path = REPOSITORY / "docs" / "notebook.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert path.stat().st_size < 20_000 and not any(cell.outputs for cell in cells), "outputs are not committed"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [str(output.get("data", {}).get("text/plain", "")) for cell in cells for output in cell.outputs]
    assert any(text.startswith("SUPPORTS: ") for text in shown), shown

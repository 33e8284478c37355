"""Every registered method keeps the protocol, and one that only a test knows goes from labelled traces to a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import log_softmax

from backend.enrolment.files import load_enrolment
from backend.methods.discriminant import DiscriminantBank, NgramBank
from backend.methods.ensemble import KINDS, Ensemble, Member, kind_of_model, model_of
from backend.methods.fine_tuning import TunedEncoder
from backend.methods.llmmap import LLMmapModel, fit_llmmap
from backend.methods.network import NetworkReadout
from backend.methods.ngrams import CodedGrams, CodedNgrams, GramReadout
from backend.methods.probe import FamilyReadout, LinearProbe, LinearReadout
from backend.methods.readout import Arrays, Attributable, Model, Readout
from backend.methods.registry import CONTROLS, ENROLLABLE, METHODS, OF_TRACES, READOUTS, Method, register
from backend.methods.representations import FORMS
from backend.methods.stack import CELLS
from backend.store.database import open_work
from jobs.__main__ import main
from tests.commands import use_tiny_proxy
from tests.jobs.test_enroll import STYLES, lines, write_lines

TOY = "nearest-centroid"
D, C, F, M, H = 6, 3, 5, 2, 4


@dataclass(frozen=True)
class Centroids(Arrays):
    """A source is as likely as its mean fingerprint is near."""

    SHAPES: ClassVar = {"centres": "CD", "spread": "D"}
    TRAINED: ClassVar = ("centres",)
    centres: npt.NDArray[np.float32]
    spread: npt.NDArray[np.float32]

    def log_posterior(self, rows: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
        """Log-posteriors (n, C) of rows (n, D)."""
        apart = (rows[:, None] - self.centres) / self.spread
        out: npt.NDArray[np.float32] = log_softmax(-(apart**2).sum(2) / 2, axis=1).astype(np.float32)
        return out


def fit_centroids(rows: npt.NDArray[np.float32], labels: npt.NDArray[np.intp], classes: int) -> Centroids:
    """Mean of every source, and the spread of all."""
    centres = np.stack([rows[labels == label].mean(0) for label in range(classes)])
    return Centroids(centres, rows.std(0) + np.float32(1e-3))


def of(model: type[Arrays], **sizes: int) -> Arrays:
    """Random numbers of the right shapes; a scale is positive, and columns ascend."""
    rng = np.random.default_rng(0)
    arrays = {}
    for name, letters in model.SHAPES.items():
        shape = tuple(sizes[letter] for letter in letters)
        kind = np.dtype(model.TYPES.get(name, np.float32))
        arrays[name] = rng.random(shape) + 0.5 if kind.kind == "f" else rng.integers(0, 3, shape)
        arrays[name] = arrays[name].astype(kind)
    if "columns" in arrays:
        arrays["columns"] = np.arange(sizes["F"]).astype(arrays["columns"].dtype)
    return model.from_arrays(arrays)


def examples() -> dict[type, Readout]:
    sizes = {"D": D, "C": C, "F": F, "M": M, "H": H, "Q": 2, "L": CELLS, "B": 2}
    plain = (LinearProbe, LinearReadout, FamilyReadout, NetworkReadout, GramReadout, DiscriminantBank, CodedGrams)
    made: dict[type, Readout] = {model: of(model, **sizes) for model in plain}
    codes = np.zeros((2, F, C), dtype=np.uint8)
    ones = np.ones(F, dtype=np.float32)
    columns = np.arange(F, dtype=np.int32)
    made[CodedNgrams] = CodedNgrams(columns, ones, codes, np.asarray(np.float32(1)), ones[:C], "ngram-word")
    made[NgramBank] = NgramBank(made[DiscriminantBank], made[CodedGrams], np.ones(CELLS))
    members = (Member("tiny", (1, 2), made[LinearProbe]), Member("word", (), made[GramReadout]))
    made[Ensemble] = Ensemble(members, np.ones((CELLS, 2)))
    half = np.ones((C, D), dtype=np.float16)
    made[TunedEncoder] = TunedEncoder({"layer.weight": half}, half, half[:, 0], 16)
    rows = np.random.default_rng(0).normal(size=(8, D)).astype(np.float32)
    made[LLMmapModel] = fit_llmmap(rows, np.arange(8) % C, C, seed=0)
    return made


def test_every_registered_readout_keeps_the_protocol() -> None:
    known = examples()
    needed = {method.readout_class for method in METHODS.values() if method.readout} | set(KINDS.values())
    assert needed <= set(known)
    for readout in known.values():
        assert isinstance(readout, Readout)
        arrays = readout.to_arrays()
        assert all(isinstance(array, np.ndarray) for array in arrays.values())
        again = type(readout).from_arrays(arrays).to_arrays()
        assert list(again) == list(arrays)
        for name, array in arrays.items():
            assert again[name].dtype == np.asarray(array).dtype, name
            np.testing.assert_array_equal(again[name], array)
        assert readout.n_parameters > 0
    for kind, model in KINDS.items():
        assert isinstance(known[model], Model)
        assert known[model].shape[1] == C
        assert kind_of_model(known[model]) == kind
        assert isinstance(model_of(kind, known[model].to_arrays()), model)
    for model in (LinearProbe, LinearReadout, FamilyReadout, NetworkReadout):
        readout, row = known[model], np.linspace(-1, 1, D).astype(np.float32)
        assert isinstance(readout, Attributable)
        centre, direction, constant = readout.plane(row, 2, 0)
        (found,) = readout.log_posterior(row[None])
        assert (row - centre) @ direction + constant == pytest.approx(float(found[2] - found[0]), abs=1e-4)


def test_the_table_is_consistent() -> None:
    assert list(METHODS) == [method.id for method in METHODS.values()]
    for method in METHODS.values():
        assert not method.form or method.form in FORMS
        assert method.enrollable == bool(method.readout)
        assert set(method.parts) <= set(METHODS)
        assert bool(method.place) == (method.stage == "controls") == bool(method.part)
    assert [METHODS[method].place for method in CONTROLS] == list(range(1, 25))
    assert OF_TRACES[:2] == [OF_TRACES[0], OF_TRACES[1]] and len(OF_TRACES) == 5
    assert set(OF_TRACES) <= set(ENROLLABLE) and set(READOUTS) <= set(ENROLLABLE)
    with pytest.raises(ValueError, match="already"):
        register(Method("lda-live"))


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A method that only this file knows, and a folder to work in."""
    fit, readout = f"{__name__}:fit_centroids", f"{__name__}:Centroids"
    register(Method(TOY, "Nearest centroid", reads="several", readout=readout, fit=fit, simplicity=6))
    use_tiny_proxy(tmp_path, monkeypatch)
    yield tmp_path
    del METHODS[TOY]


@pytest.mark.parametrize("method", [TOY, "auto"])
def test_a_method_of_ones_own_goes_from_labelled_traces_to_a_verified_report(
    toy: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_lines(toy / "labelled.jsonl", lines(15))
    options = ["--name", "acme", "--readout", method, "--layer", "2", "--no-publish"]
    assert main(["enroll", str(path), *options]) == 0
    enrolment = load_enrolment(toy / "data" / "enrolments" / "acme-tiny-ur.npz")
    if method == "auto":
        assert TOY in enrolment.facts["choice"]["candidates"]
        return
    assert enrolment.reader == f"{TOY}/tiny/ur"
    assert all(isinstance(head.probe.members[0].model, Centroids) for head in enrolment.heads)
    with open_work(toy / "cache" / "atlas-work.duckdb") as connection:
        rows = "SELECT value FROM attribution_metrics WHERE reader = ? AND metric = 'accuracy' AND k = 1"
        (accuracy, *_), *_ = connection.execute(rows, [enrolment.reader]).fetchall()
        assert accuracy > 0.8
        name = connection.execute("SELECT name FROM readers WHERE reader = ?", [enrolment.reader]).fetchone()
        assert name == ("Nearest centroid · tiny",)
    new = [{"prompt": f"New {i}?", "response": STYLES["shout"].format(i=i)} for i in range(6)]
    traces, report = write_lines(toy / "new.jsonl", new), toy / "report.html"
    capsys.readouterr()
    assert (
        main(["attribute", str(traces), "--enrolment", "acme-tiny-ur", "--claimed", "shout", "--report", str(report)])
        == 0
    )
    written = json.loads(report.with_suffix(".json").read_text("utf-8"))
    assert written["method"]["reader"] == enrolment.reader
    assert main(["verify", str(report.with_suffix(".json")), "--traces", str(traces)]) == 0

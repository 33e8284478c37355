"""The stage audit on an invented release: every part writes its metrics, keeps what it fitted, and refuses in words."""

from __future__ import annotations

import numpy as np
import pytest

from backend.audit.calibration import Calibration, normalised
from backend.audit.sequential import StopRule
from backend.audit.unknown import UnknownReference
from backend.errors import AtlasError
from backend.release import Release
from backend.store.database import open_work
from backend.store.writers import write_reader
from jobs import _common
from jobs._stages import Asked, audit
from jobs._stages.kept import keep, kept_folder
from tests.fake_release import fake_release

PROMPTS, SOURCES = 30, 12


def invented(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    logits = 2 * np.repeat(np.eye(SOURCES), PROMPTS, axis=0) + rng.normal(size=(SOURCES * PROMPTS, SOURCES))
    return normalised(logits).astype(np.float32)


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(audit, "SIBLING_DRAWS", 1)
    release = Release(fake_release(tmp_path / "release", sources=SOURCES, prompts=PROMPTS))
    folder = kept_folder("reader-paper", "invented", "ur", "165-way", PROMPTS)
    keep(folder / "log_posteriors.npy", invented(0))
    keep(folder / "log_posteriors.t32.npy", invented(1))
    with open_work(tmp_path / "work.duckdb") as connection:
        _common.write_release_sources(connection, release)
        write_reader(connection, method="reader-paper", name="invented", proxy="invented", view="ur")
        yield connection, release, folder


def test_stage_writes_and_keeps_every_part(prepared, capsys):
    connection, release, folder = prepared
    audit.run(connection, release, Asked("invented", ["ur"], ["165-way"]))
    assert "no fingerprints" in capsys.readouterr().out
    rows = connection.execute("SELECT condition, k, metric, value, n, reduction FROM attribution_metrics").df()
    assert set(rows["reduction"]) == {"pooled"}
    clean = set(rows.loc[rows["condition"] == "clean", "metric"])
    for metric in ("ece_after", "auroc/sibling-columns/max-logit", "auroc/family-columns/relative-mahalanobis"):
        assert metric in clean
    assert {"stop_error/controlled/0.05", "drift/same/energy/log-posteriors"} <= clean
    assert "ece_after" in set(rows.loc[rows["condition"] == "t32", "metric"])
    assert connection.execute("SELECT DISTINCT stage FROM builds WHERE stage = 'audit'").fetchall() == [("audit",)]
    for name, kind in (("calibration.clean", Calibration), ("unknown", UnknownReference), ("stop.0.05", StopRule)):
        with np.load(folder / f"{name}.npz", allow_pickle=False) as held:
            kind.from_arrays(held)
    before = len(rows)
    audit.run(connection, release, Asked("invented", ["ur"], ["165-way"], methods=("calibration",)))
    assert connection.execute("SELECT count(*) FROM attribution_metrics").fetchone() == (before,)


def test_refitted_probes_never_met_what_is_left_out():
    rng = np.random.default_rng(2)
    folds = np.repeat(np.arange(5), 10)
    fingerprints = (np.repeat(rng.normal(size=(4, 6)), 50, axis=0) * 2 + rng.normal(size=(200, 6))).astype(np.float32)
    left = audit._refitted(fingerprints, folds, np.array([1]))
    assert left.enrolled.tolist() == [0, 2, 3]
    assert left.features.shape == (4 * 20, 3)
    assert set(left.prompt) == set(range(20))  # folds 0 and 1
    changed = fingerprints.copy()
    changed[50:100] = 99  # the left-out source
    changed[:20] = -99  # held-out prompts of an enrolled one
    again = audit._refitted(changed, folds, np.array([1]))
    others = left.source >= 2
    np.testing.assert_array_equal(left.features[others], again.features[others])


def test_stage_refuses_in_words(prepared):
    connection, release, folder = prepared
    with pytest.raises(AtlasError, match="no part 'guess'"):
        audit.run(connection, release, Asked("invented", ["ur"], ["165-way"], methods=("guess",)))
    (folder / "log_posteriors.npy").unlink()
    with pytest.raises(AtlasError, match="evaluate --proxy invented"):
        audit.run(connection, release, Asked("invented", ["ur"], ["165-way"]))

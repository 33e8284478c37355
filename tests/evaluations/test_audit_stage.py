"""The stage audit on an invented release: every part writes its rows, and refuses in words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from backend.corpus.release import Release
from backend.corpus.roster_rows import write_release_sources
from backend.enrolment.fit import fit_attachments
from backend.errors import AtlasError
from backend.evaluations.artifacts import artifact_folder, keep
from backend.evaluations.stages import EvaluateOptions, audit
from backend.evaluations.stages.audit import Rediscriminated
from backend.inference.calibration import WITH_BIAS, fit_calibration, held_out_groups, normalised
from backend.inference.sequential_stop import StopRule, fit_stop_rule, nearest_sources, running_ratios
from backend.inference.validation import SESSION_ORDERS, fold_calibrations, fold_sessions, stop_frame
from backend.methods.estimators import ShrinkageDiscriminant
from backend.store.database import open_work
from backend.store.page_queries import validated, validation
from backend.store.writers import write_reader
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
    folder = artifact_folder("reader-paper", "invented", "ur", "165-way", PROMPTS)
    keep(folder / "log_posteriors.npy", invented(0))
    keep(folder / "log_posteriors.t32.npy", invented(1))
    with open_work(tmp_path / "work.duckdb") as connection:
        write_release_sources(connection, release)
        write_reader(connection, method="reader-paper", name="invented", proxy="invented", view="ur")
        yield connection, release, folder


def test_stage_writes_every_part_to_its_columns(prepared, capsys):
    connection, release, folder = prepared
    audit.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"]))
    assert "no fingerprints" in capsys.readouterr().out
    reader = "reader-paper/invented/ur"
    assert connection.execute("SELECT count(*) FROM attribution_metrics").fetchone() == (0,)
    rows = validation(connection, reader, "165-way")
    assert set(zip(rows["condition"], rows["part"], strict=True)) == {
        ("clean", "calibration"), ("t32", "calibration"), ("clean", "unknown"), ("clean", "stop"), ("clean", "mixture"),
        ("clean", "drift"),
    }  # fmt: skip
    unknown = rows[rows["part"] == "unknown"]
    assert set(unknown["scenario"]) == {"family", "sibling"}
    assert set(unknown["statistic"]) == {"max-logit", "relative-mahalanobis"}
    stop = rows[rows["part"] == "stop"]
    assert set(zip(stop["rule"], stop["level"], strict=True)) >= {("controlled", 0.01), ("plain", 0.1)}
    drift = rows[rows["part"] == "drift"]
    assert (set(drift["space"]), set(drift["metric"])) == ({"log-posteriors"}, {"alarms"})
    assert set(drift["k"]) == {10}
    near = validation(connection, reader, "165-way", "clean", 4, "calibration")
    assert set(near["k"]) == {5}
    assert "ece_after" in set(near["metric"])
    assert validation(connection, reader, "50-way").empty
    held = validated(connection).set_index(["condition", "part"])
    assert held.loc[("clean", "calibration"), "smallest"] == 1
    assert connection.execute("SELECT DISTINCT stage FROM builds WHERE stage = 'audit'").fetchall() == [("audit",)]
    with np.load(folder / audit.VALIDATION, allow_pickle=False) as kept:
        assert len(kept["validation.value"]) == len(rows)
        assert kept["validation.part"].tolist() == rows["part"].tolist()
    audit.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("calibration",)))
    assert len(validation(connection, reader, "165-way")) == len(rows)


def test_served_statistics_are_the_validated_ones():
    """What an enrolment brings is fitted as what was tested: the same bias choice, the same stop rule."""
    log_posteriors, folds = invented(0), np.repeat(np.arange(5), PROMPTS // 5)
    groups = {k: held_out_groups(log_posteriors, folds, k) for k in (1, 5)}
    arrays = fit_attachments({"clean": log_posteriors}, folds)
    expected = fit_calibration(groups, with_bias=WITH_BIAS)
    np.testing.assert_array_equal(arrays["calibration.scale"], expected.scale)
    np.testing.assert_array_equal(arrays["calibration.bias"], expected.bias)
    tested = fold_calibrations(groups, WITH_BIAS)
    given = stop_frame(log_posteriors, folds, levels=(0.2,), calibrations=tested)
    pd.testing.assert_frame_equal(given, stop_frame(log_posteriors, folds, levels=(0.2,), with_bias=WITH_BIAS))
    sessions = fold_sessions(folds, range(5), SOURCES, SESSION_ORDERS, 42)
    ratios = running_ratios(log_posteriors, sessions.rows, expected)
    nearest = nearest_sources(log_posteriors, np.repeat(np.arange(SOURCES), PROMPTS))
    served = StopRule.from_arrays({name: arrays[f"stop.{name}"] for name in ("thresholds", "traces")}, 0.1)
    assert served == fit_stop_rule(ratios, sessions, nearest, 0.1)
    assert served.traces == PROMPTS // 5


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


def test_discriminants_refitted_never_met_what_is_left_out():
    rng = np.random.default_rng(2)
    folds = np.repeat(np.arange(5), 10)
    rows = (np.repeat(rng.normal(size=(4, 6)), 50, axis=0) * 2 + rng.normal(size=(200, 6))).astype(np.float32)
    left = Rediscriminated.of([rows[:, :4], rows[:, 4:]], folds)(np.array([1]))
    assert left.enrolled.tolist() == [0, 2, 3]
    assert left.features.shape == (4 * 20, 3)
    assert np.allclose(np.exp(left.features).sum(1), 1, atol=1e-5)
    known = left.source != 1
    assert (left.enrolled[left.features.argmax(1)][known] == left.source[known]).mean() > 0.8
    source, fold = np.repeat(np.arange(4), 50), np.tile(folds, 4)
    train = np.flatnonzero((fold > 1) & (source != 1))
    plain = ShrinkageDiscriminant(0.1).fit(rows[train], np.searchsorted([0, 2, 3], source[train]))
    wanted = plain.readout_.scores(rows[fold < 2])
    again = Rediscriminated.of([rows], folds)
    apart = again.scale * (wanted - wanted[:, :1])
    assert np.allclose(left.features - left.features[:, :1], apart, atol=0.02 * np.abs(apart).max())


def test_readouts_can_be_asked_for(prepared):
    connection, release, folder = prepared
    live = artifact_folder("lda-live", "invented", "ur", "165-way", PROMPTS)
    write_reader(connection, method="lda-live", name="live", proxy="invented", view="ur")
    keep(live / "log_posteriors.npy", invented(3))
    audit.run(
        connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("lda-live", "calibration"))
    )
    assert validation(connection, "reader-paper/invented/ur", "165-way").empty
    rows = validation(connection, "lda-live/invented/ur", "165-way")
    assert set(rows["part"]) == {"calibration"}
    assert (live / audit.VALIDATION).exists() and not (folder / audit.VALIDATION).exists()
    audit.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("calibration",)))
    assert not validation(connection, "reader-paper/invented/ur", "165-way").empty


def test_stage_refuses_in_words(prepared):
    connection, release, folder = prepared
    with pytest.raises(AtlasError, match="no part 'guess'"):
        audit.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"], methods=("guess",)))
    (folder / "log_posteriors.npy").unlink()
    with pytest.raises(AtlasError, match="evaluate --proxy invented"):
        audit.run(connection, release, EvaluateOptions("invented", ["ur"], ["165-way"]))

"""Enrolments of a release: what they score on enrolled prompts is what the evaluation scored, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from backend.audit.enrolment_files import load_enrolment, save_enrolment
from backend.errors import AtlasError
from backend.release import Release
from backend.store.database import open_work
from jobs import _common
from jobs._enrolments import enrolment_of
from jobs._stages import Asked, attribution
from jobs._stages.kept import kept_folder
from tests.fake_release import fake_release
from tests.test_stress import write_store


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    release = Release(fake_release(tmp_path / "release", prompts=25))
    write_store(release, "agent500", {"full": 2.0})
    with open_work(tmp_path / "work.duckdb") as connection:
        _common.write_release_sources(connection, release)
        with pytest.raises(AtlasError, match="jobs evaluate --proxy invented --view ur --roster 165-way"):
            enrolment_of(release, "invented", "ur", "165-way")
        attribution.run(connection, release, Asked("invented", ["ur"], ["165-way"]))
        yield release


def test_enrolled_prompts_are_scored_as_the_evaluation_did(world: Release, tmp_path: Path) -> None:
    made = save_enrolment(enrolment_of(world, "invented", "ur", "165-way"), tmp_path / "made.npz")
    made = load_enrolment(tmp_path / "made.npz")
    rows = _common.slice_of(world, "agent500", "invented", "ur", "165-way")
    assert list(made.sources) == rows.sources
    assert list(made.families) == rows.families
    assert made.facts["data_hash"] == world.manifest_hash
    assert len(made.heads) == 5
    prompts = [trace.prompt for trace in world.records("agent500").traces[: len(rows.prompt_ids)]]
    folds = made.folds_of(prompts)
    assert folds == [int(fold) for fold in rows.prompt_folds]
    assert made.folds_of(["never asked", ""]) == [None, None]
    out = np.empty((len(rows.labels), len(made.sources)), dtype=np.float32)
    for fold, head in enumerate(made.heads):
        assert made.heads_for(fold) == (head,)
        test = np.tile(np.array(folds) == fold, len(rows.sources))
        out[test] = head.probe.log_posterior(made.columns(rows.load(head.layers[0]).astype(np.float32)[test]))
    kept = np.load(kept_folder("reader-paper", "invented", "ur", "165-way", 25) / "log_posteriors.npy")
    assert np.allclose(out, kept, atol=1e-5)
    assert made.heads_for(None) == made.heads
    assert {name.partition(".")[0] for name in made.attachments} == {
        "calibration", "unknown", "stop", "domain-agent500", "signatures",
    }  # fmt: skip
    assert made.attachments["signatures.vectors"].shape == (len(made.sources), 2 * made.hidden_size)


def test_one_probe_on_everything(world: Release) -> None:
    made = enrolment_of(world, "invented", "ur", "165-way", refit=True, name="all")
    assert (made.name, len(made.heads), made.heads[0].fold, dict(made.attachments)) == ("all", 1, None, {})
    assert made.heads_for(3) == made.heads
    assert made.layers in ([1], [2])
    assert enrolment_of(world, "invented", "ur", "165-way", refit=True, layer=1).layers == [1]

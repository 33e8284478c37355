"""The stage as a person meets it: every control on an invented release with a tiny proxy, and what it says when not."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from backend.errors import AtlasError
from backend.evaluations.stages.controls import GROUPS, NAMES, STEPS, needed_groups
from backend.fingerprints import FingerprintStore, StoreKey, cache_folder
from backend.store.queries import selected_layers
from jobs.__main__ import main
from tests.fake_release import fake_release
from tests.tiny_models import save_tiny


def test_every_control_has_a_name_and_a_group_and_every_group_a_step():
    assert {name for members in GROUPS.values() for name in members} == set(NAMES)
    assert set(GROUPS) == set(STEPS)


def test_methods_are_groups_or_single_controls():
    assert needed_groups(()) == dict(GROUPS)
    assert needed_groups(("variance",)) == {"variance": ()}
    assert needed_groups(("dct-q4", "reader-dc", "mixture-1")) == {
        "components": ("reader-dc",),
        "temporal": ("dct-q4", "mixture-1"),
    }
    assert needed_groups(("positions", "positions-16")) == {"positions": GROUPS["positions"]}
    with pytest.raises(AtlasError, match=r"no control 'dct-q5'.*positions-fisher25"):
        needed_groups(("dct-q4", "dct-q5"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A tiny proxy's fingerprints and its clean evaluation; a function that runs the stage on them."""
    root = tmp_path_factory.mktemp("controls")
    release, proxy = fake_release(root / "release", sources=6, prompts=25), save_tiny(root / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATLAS_CACHE", str(root / "cache"))
        patch.setenv("ATLAS_DATA", str(root / "data"))
        patch.setenv("ATLAS_COMPILE", "0")
        shared = ["--release", str(release), "--proxy", str(proxy), "--roster", "165-way"]
        read = ["extract", *shared, "--layers", "2-3", "--lengths", "full"]
        assert main([*read, "--temporal", "3", "--positions", "3"]) == 0
        assert main(["evaluate", *shared]) == 0
        yield lambda *extra: main(["evaluate", "--stage", "controls", *shared, *extra])


def test_every_control_is_measured_at_a_named_block(measured, capsys):
    assert measured("--layers", "3") == 0
    assert "skipped" not in capsys.readouterr().out
    assert FingerprintStore(StoreKey("agent500", "tiny", "ur")).load(3, "positions").shape == (150, 20 * 32)
    with duckdb.connect(cache_folder() / "atlas-work.duckdb") as work:
        metrics = work.execute(
            "SELECT m.*, method FROM attribution_metrics m JOIN readers USING (reader) WHERE metric = 'accuracy' "
            "AND seed IS NULL AND fold IS NULL AND reduction = 'pooled'"
        ).df()
        assert set(metrics["method"]) == {*NAMES, "reader-paper"}
        value = metrics.set_index(["method", "k"])["value"]
        assert value["dct-q8", 1] > 2 / 6
        assert (metrics.groupby("method")["k"].apply(list).map(lambda ks: ks == [1, 5])).all()
        weights = work.execute("SELECT reader, fold, head, sum(weight * weight) AS n FROM mixture_weights GROUP BY ALL")
        lengths = weights.df()
        assert len(lengths) == 5 * (1 + 2)
        np.testing.assert_allclose(lengths["n"], 1, rtol=1e-5)
        ratios = work.execute("SELECT * FROM variance_ratios").df()
        assert set(zip(ratios["reader"], ratios["layer"], strict=True)) == {("reader-paper/tiny/ur", 3)}
        assert len(ratios) == 18
        assert selected_layers(work, "mixture-2/tiny/ur", "165-way")["layer"].tolist() == [3] * 6
        paper = selected_layers(work, "reader-paper/tiny/ur", "165-way")["layer"].tolist()
        assert selected_layers(work, "reader-ac/tiny/ur", "165-way")["layer"].tolist()[:5] == paper[:5]
        builds = work.execute("SELECT details FROM builds WHERE stage = 'controls'").df()["details"]
        assert builds.str.contains('"layers": [3]', regex=False).sum() >= 3
        unexplained = work.execute(
            "SELECT count(*) FROM attribution_metrics WHERE build_id NOT IN (SELECT build_id FROM builds)"
        ).fetchone()
        assert unexplained == (0,)
    folder = cache_folder() / "evaluations"
    held = {m: np.load(folder / m / "tiny" / "ur" / "165-way.25" / "log_posteriors.npy") for m in ("dct-q2", "dct-q4")}
    assert held["dct-q2"].shape == (150, 6)
    np.testing.assert_allclose(np.exp(held["dct-q4"]).sum(1), 1, rtol=1e-4)


def test_missing_arrays_are_named_with_the_command_that_makes_them(measured, capsys):
    assert measured("--method", "dct-q4", "--layers", "2") == 2
    said = capsys.readouterr().err
    assert "The 'temporal' arrays of block 2" in said
    assert "--layers 2 --lengths full --temporal 2, or name a block that has them with --layers (3)" in said
    assert measured("--layers", "2", "--method", "variance,reader-dc") == 0
    assert measured("--layers", "9") == 2
    assert "There are no blocks 9" in capsys.readouterr().err
    assert measured("--view", "r") == 2
    assert "No blocks are selected for reader-paper/tiny/r" in capsys.readouterr().err


def test_a_form_brings_what_it_is_compared_with_at_its_block(measured, capsys):
    assert measured("--method", "dct-q2", "--layers", "2") == 0  # fingerprints are enough for two modes
    with duckdb.connect(cache_folder() / "atlas-work.duckdb") as work:
        assert selected_layers(work, "dct-q2/tiny/ur", "165-way")["layer"].tolist() == [2] * 6
    folder = cache_folder() / "evaluations" / "dct-q2" / "tiny" / "ur" / "165-way.25"
    before = np.load(folder / "log_posteriors.npy")
    assert measured("--method", "positions-16", "--layers", "3") == 0
    with duckdb.connect(cache_folder() / "atlas-work.duckdb") as work:
        assert selected_layers(work, "dct-q2/tiny/ur", "165-way")["layer"].tolist() == [3] * 6
    from_fingerprints = np.load(folder / "log_posteriors.npy")
    assert np.abs(from_fingerprints - before).max() > 0.1
    assert measured("--method", "temporal", "--layers", "3") == 0
    np.testing.assert_allclose(np.load(folder / "log_posteriors.npy"), from_fingerprints, atol=0.02)
    said = capsys.readouterr().out
    assert said.count("dct-q2/tiny/ur on 165-way: accuracy") == 3
    assert measured("--method", "dct-q8", "--layers", "3") == 0
    assert "dct-q2/tiny/ur on" not in capsys.readouterr().out  # it stands at this block already


def test_without_a_method_what_cannot_be_measured_is_left_out_and_said(measured, capsys):
    assert measured("--layers", "2") == 0
    said = capsys.readouterr().out
    assert "temporal of tiny/ur on 165-way are skipped" in said
    assert "--positions 2" in said
    assert "Source-to-prompt variance of tiny/ur on 165-way, block 2" in said

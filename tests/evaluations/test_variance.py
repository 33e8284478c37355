"""Source-to-prompt variance against loops over cells, and against what the released files say of themselves."""

from __future__ import annotations

import json

import numpy as np
import pytest

from backend.evaluations.controls import effects, variance_ratios
from tests import twins

S, P, D = 4, 10, 3


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(7)
    grid = rng.normal(size=(S, 1, 2 * D)) + 2 * rng.normal(size=(1, P, 2 * D)) + rng.normal(size=(S, P, 2 * D))
    return (grid * [1, 5, 25, 1, 5, 25] + 100).astype(np.float32), np.arange(P) % 5


def test_effects_equal_loops_and_add_up_to_the_variance(world):
    grid, _ = world
    found = np.array(effects(grid))
    np.testing.assert_allclose(found, twins.effects(grid.astype(float)), rtol=1e-6)
    np.testing.assert_allclose(found.sum(0), grid.astype(float).var((0, 1)), rtol=1e-6)


def test_ratios_use_the_held_out_prompts_in_units_of_the_training_folds(world):
    grid, prompt_folds = world
    frame = variance_ratios(grid.reshape(S * P, 2 * D), S, prompt_folds)
    assert len(frame) == 3 * 6
    blocks = {"dc": slice(0, D), "ac": slice(D, 2 * D), "dc-ac": slice(0, 2 * D)}
    for block, columns in blocks.items():
        ratios = []
        for fold in range(5):
            train = grid[:, prompt_folds != fold].reshape(-1, 2 * D).astype(float)
            held = (grid[:, prompt_folds == fold] - train.mean(0)) / train.std(0)
            source, prompt, _ = twins.effects(held)
            row = frame[(frame["block"] == block) & (frame["fold"] == fold)].iloc[0]
            assert row["source_variance"] == pytest.approx(source[columns].mean(), rel=1e-5)
            assert row["prompt_variance"] == pytest.approx(prompt[columns].mean(), rel=1e-5)
            ratios.append(source[columns].sum() / prompt[columns].sum())
            assert row["ratio"] == pytest.approx(ratios[-1], rel=1e-5)
        summary = frame[(frame["block"] == block) & frame["fold"].isna()].iloc[0]
        assert summary["ratio"] == pytest.approx(np.mean(ratios), rel=1e-5)


def test_known_effects_are_found():
    rng = np.random.default_rng(8)
    source, prompt = rng.normal(size=(60, 1, 2)), rng.normal(size=(1, 500, 2)) * 2
    grid = source + prompt + 0.1 * rng.normal(size=(60, 500, 2))
    frame = variance_ratios(grid.reshape(-1, 2), 60, np.arange(500) % 5)
    summary = frame[frame["fold"].isna()].set_index("block")
    expected = source.var((0, 1)) / prompt.var((0, 1))
    np.testing.assert_allclose(summary.loc[["dc", "ac"], "ratio"], expected, rtol=0.1)


@pytest.mark.release
def test_released_files_define_the_ratio_as_we_do(release):
    for path in sorted((release.root / "results" / "reader" / "variance").glob("*.json")):
        content = json.loads(path.read_text("utf-8"))
        for name, summary in content["summary"].items():
            folds = [fold["metrics"][name] for fold in content["folds"]]
            for fold in folds:
                ratio = fold["source_variance"] / fold["prompt_variance"]
                assert fold["source_prompt_ratio"] == pytest.approx(ratio)
            mean = np.mean([fold["source_prompt_ratio"] for fold in folds])
            assert summary["source_prompt_ratio_fold_mean"] == pytest.approx(mean)
        for fold in content["folds"]:
            dc, ac, both = (fold["metrics"][f"dct_{block}_fullrank"] for block in ("dc", "ac", "dc_ac"))
            for measure in ("source_variance", "prompt_variance", "residual_variance"):
                assert both[measure] == pytest.approx((dc[measure] + ac[measure]) / 2), "variances are coordinate means"

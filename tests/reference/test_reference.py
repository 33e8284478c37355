"""Published numbers arrive as they stand in the paper's tables."""

import json

import pytest

from backend.errors import AtlasError
from backend.reference.paper import TABLES
from backend.reference.results_tables import command_for
from tests.commands import check
from tests.published import published_attribution

# Paper, table "Agent500 accuracy across all query budgets and proxies".
ACCURACY = {
    "llama31_8b_instruct": (0.456, 0.743, 0.826, 0.877, 0.927, 0.948),
    "gemma4_12b": (0.460, 0.756, 0.834, 0.885, 0.932, 0.958),
    "ministral3_8b": (0.483, 0.779, 0.849, 0.893, 0.929, 0.952),
    "qwen35_9b": (0.504, 0.792, 0.865, 0.905, 0.942, 0.962),
    "olmo3_7b_instruct": (0.463, 0.751, 0.828, 0.878, 0.918, 0.942),
    "qwen3_8b": (0.447, 0.735, 0.816, 0.869, 0.925, 0.948),
    "qwen3_32b": (0.509, 0.795, 0.865, 0.902, 0.939, 0.964),
    "qwen35_27b": (0.523, 0.806, 0.873, 0.910, 0.947, 0.962),
}
# Paper, table "Agent500 attribution and computational profile": K = 1 and K = 100, accuracy and macro-F1 with spread.
END_POINTS = {
    "qwen35_9b": {
        (1, "accuracy"): (0.504, 0.011),
        (1, "macro_f1"): (0.503, 0.010),
        (100, "accuracy"): (0.962, 0.024),
        (100, "macro_f1"): (0.952, 0.029),
    },
    "qwen3_32b": {
        (1, "accuracy"): (0.509, 0.011),
        (100, "accuracy"): (0.964, 0.021),
        (100, "macro_f1"): (0.955, 0.024),
    },
}


def summary(frame, reduction):
    rows = frame[(frame["reduction"] == reduction) & frame["seed"].isna() & frame["fold"].isna()]
    return rows.set_index(["k", "metric"])


@pytest.mark.release
def test_budget_curves_equal_the_papers_table(release):
    found = {(p.proxy, p.view): summary(p.metrics, "pooled") for p in published_attribution(release.root)}
    assert set(found) == {(proxy, view) for proxy in ACCURACY for view in ("ur", "r")}
    for proxy, row in ACCURACY.items():
        for k, expected in zip((1, 5, 10, 20, 50, 100), row, strict=True):
            assert found[proxy, "ur"].loc[(k, "accuracy"), "value"] == pytest.approx(expected, abs=6e-4), (proxy, k)


@pytest.mark.release
def test_end_points_keep_their_spread_over_folds(release):
    found = {p.proxy: summary(p.metrics, "fold") for p in published_attribution(release.root) if p.view == "ur"}
    for proxy, cells in END_POINTS.items():
        for cell, (value, std) in cells.items():
            assert found[proxy].loc[cell, "value"] == pytest.approx(value, abs=6e-4)
            assert found[proxy].loc[cell, "std"] == pytest.approx(std, abs=6e-4)


def write(root, data):
    path = root / "results" / "reader" / "agent500" / "tiny_ur.json"
    path.parent.mkdir(parents=True)
    path.write_text(data, "utf-8")
    return path


def test_nan_is_left_out_and_the_rest_kept(tmp_path):
    cell = {"accuracy": 0.5, "macro_f1": 0.4, "nll": float("nan"), "ece": None, "n_fingerprints": 10}
    by_seed = {"42": {"1": cell}, "43": {"1": {**cell, "accuracy": 0.7}}}
    configs = {"dct_dc_ac_fullrank": {"cv_metrics_by_grouping_seed": by_seed}}
    write(tmp_path, json.dumps({"configs": configs}))
    (published,) = published_attribution(tmp_path)
    rows = summary(published.metrics, "pooled")
    assert rows.loc[(1, "accuracy"), "value"] == pytest.approx(0.6)
    assert rows.loc[(1, "accuracy"), "std"] == pytest.approx(0.1)
    assert set(published.metrics["metric"]) == {"accuracy", "macro_f1"}
    assert published.files == ("results/reader/agent500/tiny_ur.json",)


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(AtlasError, match="no result files"):
        list(published_attribution(tmp_path))
    path = write(tmp_path, '{"configs": {}}')
    with pytest.raises(AtlasError, match=r"tiny_ur\.json"):
        list(published_attribution(tmp_path))
    path.write_text("{", "utf-8")
    with pytest.raises(AtlasError, match="cannot be understood"):
        list(published_attribution(tmp_path))


def test_tables_name_commands_that_the_jobs_take():
    commands = {table.place: table.command for table in TABLES}
    assert (
        commands["tab:capability_budget_correlations"] == "python -m jobs evaluate --roster 100-way --stage statistics"
    )
    for table in TABLES:
        check(table.command)
        for row in table.rows:
            if row.ours and not table.by_condition:  # rows that are missing name a command of their own
                check(command_for(table, row.ours))

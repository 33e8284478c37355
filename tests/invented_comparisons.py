"""Invented readouts, parts, forms, capability and cost in the tables of a work database: what Compare shows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from backend.store.builds import recorded
from backend.store.database import open_work, publish
from backend.store.writers import replace_rows, write_proxies, write_reader
from tests.invented_atlas import BUDGETS, publish_invented

ROSTER = "12-way"
MEMBERS = {"fused": 0.52, "states": 0.47, "lda": 0.45, "network": 0.44}
FORMS = {"temporal-mean": 0.30, "temporal-final": 0.1, "dct-q2": 0.36, "dct-q4": 0.37}
PROXIES = {"vast": ("Vast-70B", 80.0), "mid": ("Mid-2M", 40.0), "huge": ("Huge-400B", 90.0), "odd": ("Odd-7B", 60.0)}


def write_comparisons(work: Path) -> None:
    """Add what Compare shows beside curves: measured here for the proxy ``tiny``, published for four others."""
    connection = open_work(work)
    for stage, origin in (("evaluate", "measured"), ("reference", "published")):
        with recorded(
            connection, stage=stage, command=f"python -m jobs {stage}", data_hash="d" * 64, origin=origin
        ) as build:
            if origin == "measured":
                _measured(connection, build)
            else:
                _published(connection, build)
    connection.close()


def curve(start: float, std: float | None = 0.01, shift: float = 0.0) -> pd.DataFrame:
    """An accuracy curve that rises with the budget, with macro-F1 and, at one trace and at 100, an interval."""
    rows = []
    for place, k in enumerate(BUDGETS):
        value = min(0.99, start + 0.09 * place) - shift
        rows += [(k, "pooled", "accuracy", value, std), (k, "pooled", "macro_f1", value - 0.01, std)]
        rows += [(k, "fold", "accuracy", value - 0.005, std)]
        if std is not None and k in (1, 100):
            rows += [(k, "pooled", f"accuracy_{end}", value + by, None) for end, by in (("low", -0.02), ("high", 0.02))]
    frame = pd.DataFrame(rows, columns=["k", "reduction", "metric", "value", "std"])
    return frame.assign(seed=None, fold=None, n=600)


def _metrics(connection, build, reader, start, *, std=0.01, elsewhere=True):
    where = [("agent500", "clean", 0.0)]
    if elsewhere:
        where += [("agent500", f"t{n}{ending}", 0.2) for n in (64, 32) for ending in ("", "-global")]
        where += [("math100", "clean", 0.3)]
    for benchmark, condition, shift in where:
        key = {"reader": reader, "roster": ROSTER, "benchmark": benchmark, "condition": condition}
        shift += 0.02 * condition.endswith("-global")
        replace_rows(connection, "attribution_metrics", curve(start, std, shift), key, build)


def _measured(connection, build):
    write_proxies(connection, pd.DataFrame([{"proxy": "tiny", "name": "Tiny-1M", "depth": 12}]))
    for method, start in MEMBERS.items():
        reader = write_reader(connection, method=method, name=method, proxy="tiny", view="ur")
        _metrics(connection, build, reader, start)
        if method == "fused":
            ece = pd.DataFrame(
                {"k": BUDGETS, "reduction": "pooled", "metric": "ece_calibrated", "value": 0.02, "n": 600}
            )
            key = {"reader": reader, "roster": ROSTER, "benchmark": "agent500", "condition": "clean"}
            key |= {"metric": "ece_calibrated"}
            replace_rows(connection, "attribution_metrics", ece.assign(seed=None, fold=None, std=None), key, build)
    grams = write_reader(connection, method="ngram-word-lengths", name="Word n-grams, every length")
    _metrics(connection, build, grams, 0.46)
    for method, start in {"reader-dc": 0.3, "reader-ac": 0.25}.items():
        reader = write_reader(connection, method=method, name=method, proxy="tiny", view="ur")
        _metrics(connection, build, reader, start, elsewhere=False)
    seen = write_reader(
        connection, method="reader-paper", name="READER on Tiny-1M, response only", proxy="tiny", view="r"
    )
    _metrics(connection, build, seen, 0.33, elsewhere=False)
    for method, start in FORMS.items():
        reader = write_reader(connection, method=method, name=method, proxy="tiny", view="ur")
        _metrics(connection, build, reader, start, elsewhere=False)
    tests = [
        ("fused/tiny/ur", "reader-paper/tiny/ur", "accuracy@1", 0.14, 0.12, 0.16, 0.001),
        ("fused/tiny/ur", "reader-paper/tiny/ur", "accuracy@100", 0.02, -0.01, 0.05, 1.0),
        ("lda/tiny/ur", "fused/tiny/ur", "accuracy@1", -0.07, -0.09, -0.05, 0.001),
    ]
    columns = ["subject", "reference", "measure", "difference", "low", "high", "p_holm"]
    frame = pd.DataFrame(tests, columns=columns).assign(n=60, method="cluster bootstrap and sign flips")
    frame["p_value"] = frame["p_holm"]
    replace_rows(connection, "comparisons", frame, {"hypotheses": f"readouts/{ROSTER}"}, build)
    _variance(connection, build, "reader-paper/tiny/ur", 0.4)
    cost = [("trainable_parameters", 1_200, "parameters"), ("audit_parameters", 2e6, "parameters"),
            ("fit_seconds", 0.5, "s"), ("latency_ms", 12.0, "ms")]  # fmt: skip
    frame = pd.DataFrame(cost, columns=["measure", "value", "unit"]).assign(hardware="two cores")
    for method in ("reader-paper", "reader-dc"):
        replace_rows(connection, "costs", frame, {"reader": f"{method}/tiny/ur", "roster": ROSTER}, build)
    related = pd.DataFrame(
        [("accuracy@20/ur", "pearson", 0.9, 0.04, 4), ("accuracy@20/ur", "spearman", 0.8, 0.2, 4)],
        columns=["reference", "statistic", "value", "p_value", "n"],
    )
    replace_rows(connection, "correlations", related, {"subject": "MMLU-Pro"}, build)


def _published(connection, build):
    write_proxies(connection, pd.DataFrame([{"proxy": proxy, "name": name} for proxy, (name, _) in PROXIES.items()]))
    for place, proxy in enumerate(PROXIES):
        for method in ("reader-paper", "reader-dc", "reader-ac", "dct-q2"):
            reader = write_reader(connection, method=method, name=method, proxy=proxy, view="ur", origin="published")
            _metrics(connection, build, reader, 0.4 + 0.03 * place - 0.05 * (method == "reader-ac"), elsewhere=False)
        cut = {
            "reader": f"reader-paper/{proxy}/ur",
            "roster": ROSTER,
            "benchmark": "agent500",
            "condition": "t64-global",
        }
        replace_rows(connection, "attribution_metrics", curve(0.4, None, 0.25), cut, build)
    scores = pd.DataFrame([{"proxy": proxy, "score": score} for proxy, (_, score) in PROXIES.items()])
    replace_rows(connection, "capability_scores", scores, {"benchmark": "MMLU-Pro"}, build)
    _variance(connection, build, "reader-paper/vast/ur", 1.4)
    cost = pd.DataFrame({"measure": ["audit_parameters"], "value": [5e9], "unit": "parameters", "hardware": "a GPU"})
    replace_rows(connection, "costs", cost, {"reader": "reader-paper/vast/ur", "roster": ROSTER}, build)
    printed = pd.DataFrame(
        [("READER / Vast", "Acc.@1", 0.52), ("READER / Odd", "Acc.@1", 0.5), ("FT DNA", "Acc.@1", 0.55)],
        columns=["row_name", "column_name", "value"],
    )
    replace_rows(connection, "paper_values", printed, {"place": "tab:agent500_full_std"}, build)


def _variance(connection, build, reader, ratio):
    rows = [
        (7, block, fold, ratio + 0.1 * place, 1.0, ratio + 0.1 * place + 0.01 * (fold or 0))
        for place, block in enumerate(("dc", "ac", "dc-ac"))
        for fold in (None, 0, 1)
    ]
    columns = ["layer", "block", "fold", "source_variance", "prompt_variance", "ratio"]
    frame = pd.DataFrame(rows, columns=columns).astype({"fold": "Int64"})
    replace_rows(connection, "variance_ratios", frame, {"reader": reader, "roster": ROSTER}, build)


def publish_compared(folder: Path) -> Path:
    """Publish an invented atlas with everything that Compare shows into ``folder`` and return its file."""
    publish_invented(folder)
    work = folder / "work" / "work.duckdb"
    write_comparisons(work)
    return publish(work, folder)

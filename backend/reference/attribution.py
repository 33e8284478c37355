"""Published attribution by READER: clean budget curves, end points, layer scans and stress.

Files ``reader/agent500``, ``reader/layer_scan``, ``reader/stress`` and ``statistics/fold_variation/reader_*``: the
paper's Dynamic 100-Way Attribution, Stress Tests, and the appendix Complete Attribution Results. The release scanned
the blocks without nesting: a fold's value is the accuracy on that fold of a probe trained on the four others, so it is
stored as the fold's own inner fold.
"""

from __future__ import annotations

from backend.errors import AtlasError
from backend.protocol import READER_PAPER
from backend.reference.files import Node, Results
from backend.reference.rows import ROSTER, Collected, add_budgets, add_ensemble, add_folds
from backend.traces import VIEWS, View

FINGERPRINT = "dct_dc_ac_fullrank"
COMPONENTS = {FINGERPRINT: READER_PAPER, "dct_dc_fullrank": "reader-dc", "dct_ac_fullrank": "reader-ac"}
"""Configurations of the files as methods."""
SCANS = {
    "dct_q2_linear_probe": READER_PAPER,
    "dct_dc_linear_probe": "reader-dc",
    "dct_ac_linear_probe": "reader-ac",
    "last_token_linear_probe": "temporal-final",
}


def read_clean(results: Results, into: Collected) -> None:
    """Every published proxy and view, and the fold-wise end points where there are some."""
    files = results.files("reader/agent500/*.json")
    if not files:
        raise AtlasError(
            f"There are no result files in {results.root / 'results' / 'reader' / 'agent500'}",
            "Fetch the release with its results: python -m jobs fetch",
        )
    for file in files:
        proxy, view = named(results, file)
        _components(results.json(file), into, proxy, view)
        folds = f"results/statistics/fold_variation/reader_{proxy}.json"
        if view == "ur" and (results.root / folds).exists():  # these were made from the prompt-response view only
            _end_points(results.json(folds), into, proxy)


def read_scans(results: Results, into: Collected) -> None:
    """Accuracy and macro-F1 of every block, and the block that the release chose."""
    for file in results.files("reader/layer_scan/*.json"):
        held = results.json(file)
        proxy = held.text("method_tag")
        for scan, method in SCANS.items():
            if scan not in held["methods"]:
                continue
            reader = into.reader(method, proxy, "ur")
            about: dict[str, object] = {"reader": reader, "roster": ROSTER}
            for block in held["methods"][scan]["layer_results"].parts():
                layer = int(block.required("layer_index"))
                for part in block["fold_metrics"].parts():
                    fold = int(part.required("fold"))
                    where = {**about, "outer_fold": fold, "inner_fold": fold, "layer": layer}
                    into.add("layer_scores", file, **where, **{m: part.required(m) for m in ("accuracy", "macro_f1")})
            best = int(held["best_layers"].required(scan))
            into.add("layer_selection", file, **about, outer_fold=None, layer=best)


def read_stress(results: Results, into: Collected) -> None:
    """Truncated, masked and mathematical responses, scored by the probes of the clean ones."""
    for file in results.files("reader/stress/*/*.json"):
        held = results.json(file)
        _components(held, into, file.rpartition("/")[2].removesuffix(".json"), "ur")


def condition_of(name: str) -> tuple[str, str]:
    """Benchmark and condition of an external evaluation; the release groups over all folds at once."""
    if name == "math100":
        return "math100", "clean"
    short = name.replace("length", "t")
    return "agent500", f"{short}-global"


def named(results: Results, file: str) -> tuple[str, View]:
    """Proxy and view that a file name ends with."""
    proxy, _, suffix = file.rpartition("/")[2].removesuffix(".json").rpartition("_")
    view = next((view for view in VIEWS if view == suffix), None)
    if view is None:
        raise AtlasError(
            f"{results.root / file} does not name an input view", "Fetch the release again: python -m jobs fetch"
        )
    return proxy, view


def _components(held: Node, into: Collected, proxy: str, view: str) -> None:
    configs = held["configs"]
    for config, method in COMPONENTS.items():
        if config != FINGERPRINT and config not in configs:
            continue
        part = configs[config]
        reader = into.reader(method, proxy, view)
        across = part.get("cv_metrics_across_grouping_seeds")
        clean = part["cv_metrics_by_grouping_seed"]
        add_budgets(into, reader, clean, across, benchmark="agent500", condition="clean")
        for name, shifted in part["external_evaluations"].items() if "external_evaluations" in part else ():
            benchmark, condition = condition_of(name)
            add_budgets(
                into,
                reader,
                shifted["metrics_by_grouping_seed"],
                shifted["metrics_across_grouping_seeds"],
                benchmark=benchmark,
                condition=condition,
            )


def _end_points(held: Node, into: Collected, proxy: str) -> None:
    reader = into.reader(READER_PAPER, proxy, "ur")
    add_folds(into, reader, held["agent500"], benchmark="agent500")
    if "math100" in held:
        add_folds(into, reader, held["math100"], benchmark="math100")
        add_ensemble(into, reader, held["math100_fold_logposterior_ensemble"], benchmark="math100")

"""Published attribution by READER: clean budget curves, end points, layer scans, stress, and its controls.

Files ``reader/agent500``, ``reader/layer_scan``, ``reader/stress`` and ``statistics/fold_variation/reader_*``: the
paper's Dynamic 100-Way Attribution, Stress Tests, and the appendix Complete Attribution Results. ``ablations/temporal``
and ``reader/variance``: matched temporal representations and source-to-prompt variance. The release scanned
the blocks without nesting: a fold's value is the accuracy on that fold of a probe trained on the four others, so it is
stored as the fold's own inner fold.
"""

from __future__ import annotations

import re

from backend.errors import AtlasError
from backend.methods.registry import form_of, of_part
from backend.protocol import READER_PAPER
from backend.reference.files import (
    ACCURACIES,
    NAMES,
    ROSTER,
    VARIANCES,
    Collected,
    Node,
    Results,
    add_budgets,
    add_ensemble,
    add_external,
    add_folds,
    at,
)
from backend.traces import VIEWS, View

FINGERPRINT = "dct_dc_ac_fullrank"
COMPONENTS = NAMES["components"]
SCANS = NAMES["scans"]
TEMPORAL = NAMES["temporal"]
BLOCKS = {method: form_of(method) for method in (READER_PAPER, *of_part("components"))}
AVERAGE = "mean4"  # Stands for the proxy where the release compares means over the four main ones.


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


def named(results: Results, file: str) -> tuple[str, View]:
    """Proxy and view that a file name ends with."""
    proxy, _, suffix = file.rpartition("/")[2].removesuffix(".json").rpartition("_")
    view = next((view for view in VIEWS if view == suffix), None)
    if view is None:
        raise AtlasError(
            f"{results.root / file} does not name an input view", "Fetch the release again: python -m jobs fetch"
        )
    return proxy, view


def _components(part: Node, into: Collected, proxy: str, view: str) -> None:
    for config, method in COMPONENTS.items():
        if config == FINGERPRINT or config in part["configs"]:
            found, reader = part["configs"][config], into.reader(method, proxy, view)
            add_budgets(into, reader, found, names=("cv_metrics_by_grouping_seed", "cv_metrics_across_grouping_seeds"))
            if "external_evaluations" in found:
                add_external(into, reader, found)


def _end_points(part: Node, into: Collected, proxy: str) -> None:
    reader = into.reader(READER_PAPER, proxy, "ur")
    add_folds(into, reader, part["agent500"], "agent500")
    if "math100" in part:
        add_folds(into, reader, part["math100"], "math100")
        add_ensemble(into, reader, part["math100_fold_logposterior_ensemble"], "math100")


def read_temporal(results: Results, into: Collected) -> None:
    """Budget curves, folds and learned weights of the eleven representations."""
    for file in results.files("ablations/temporal/reports/*.json"):
        held = results.json(file)
        proxy = held.text("method_tag")
        for config, part in held["configs"].items():
            reader = into.reader(TEMPORAL[config], proxy, "ur")
            add_budgets(into, reader, part)
        for fold in held["folds"].parts():
            _fold(fold, into, proxy)


def read_statistics(results: Results, into: Collected) -> None:
    """Cluster bootstrap and sign flips between the representations, a proxy at a time and over the four."""
    for file in results.files("ablations/temporal/statistics.json"):
        dynamic = results.json(file)["dynamic"]
        for proxy, budgets in dynamic["proxies"].items():
            for budget, cell in budgets.items():
                for name, found in cell["methods"].items():
                    _interval(found, into, TEMPORAL[name], proxy, int(budget))
                for pair in cell["comparisons"].parts():
                    _comparison(pair, into, proxy, int(budget))
        for _, pair in dynamic["four_proxy_aggregate"].items():
            _comparison(pair, into, AVERAGE, int(pair.required("K")))


def read_variance(results: Results, into: Collected) -> None:
    """How much of a fingerprint varies with the source, and how much with the prompt."""
    for file in results.files("reader/variance/*.json"):
        held = results.json(file)
        proxy, view = named(results, file)
        layer = re.search(r"_L(\d+)_", held.text("source"))
        if layer is None:
            raise held["source"].broken("does not name a block")
        for config, method in COMPONENTS.items():
            reader = into.reader(READER_PAPER, proxy, view)
            about = {"reader": reader, "roster": ROSTER, "layer": int(layer[1]), "block": BLOCKS[method]}
            for fold in held["folds"].parts():
                part = fold["metrics"][config]
                values = {name: part.required(name) for name in VARIANCES} | {
                    "ratio": part.required("source_prompt_ratio")
                }
                into.add("variance_ratios", file, **about, fold=int(fold.required("fold")), **values)
            mean = held["summary"][config]
            values = {name: mean.required(f"{name}_mean") for name in VARIANCES}
            ratio = mean.required("source_prompt_ratio_fold_mean")
            into.add("variance_ratios", file, **about, fold=None, **values, ratio=ratio)


def _fold(fold: Node, into: Collected, proxy: str) -> None:
    number, n = int(fold.required("fold")), fold.required("n_test")
    for config, part in fold["configs"].items():
        reader = into.reader(TEMPORAL[config], proxy, "ur")
        for metric in ACCURACIES:
            into.metric(fold.file, reader, part.required(metric), n, metric=metric, fold=number, **at(1, "fold"))
        fitted = part["fit_diagnostics"]
        if "normalized_mode_weights" in fitted:
            for head, weights in enumerate(fitted["normalized_mode_weights"].parts()):
                for mode in range(len(weights.value)):
                    where = {"reader": reader, "roster": ROSTER, "fold": number, "head": head, "mode": mode}
                    into.add("mixture_weights", fold.file, **where, weight=weights.number(mode))


def _interval(found: Node, into: Collected, method: str, proxy: str, k: int) -> None:
    """Accuracy of the one grouping that the release tests, and its interval over clusters of fold and source."""
    reader, clusters = into.reader(method, proxy, "ur"), found.required("n_fold_source_clusters")
    about = at(k, "pooled")
    for position, metric in enumerate(("accuracy_low", "accuracy_high")):
        bound = found["accuracy_cluster_bootstrap_95ci"].number(position)
        into.metric(found.file, reader, bound, clusters, metric=metric, **about)
    n = found.required("n_predictions") / k
    for metric in ACCURACIES:
        into.metric(found.file, reader, found.number(metric), n, metric=metric, seed=42, **about)


def _comparison(pair: Node, into: Collected, proxy: str, k: int) -> None:
    interval = pair["delta_cluster_bootstrap_95ci"]
    into.add(
        "comparisons",
        pair.file,
        hypotheses=f"published/temporal/{ROSTER}",
        subject=f"{TEMPORAL[pair.text('method_a')]}/{proxy}/ur",
        reference=f"{TEMPORAL[pair.text('method_b')]}/{proxy}/ur",
        measure=f"accuracy@{k}",
        difference=pair.required("accuracy_delta_a_minus_b"),
        low=interval.number(0),
        high=interval.number(1),
        p_value=pair.required("paired_cluster_signflip_p_raw"),
        p_holm=pair.required("paired_cluster_signflip_p_holm"),
        n=int(pair.required("n_fold_source_clusters")),
        method="cluster bootstrap and sign flips over fold and source",
    )

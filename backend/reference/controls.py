"""Published controls: temporal representations, their paired statistics, and source-to-prompt variance.

Files ``ablations/temporal`` and ``reader/variance``: the paper's appendix on matched temporal representations and on
source-to-prompt variance.
"""

from __future__ import annotations

import re

from backend.methods.registry import form_of, of_part
from backend.protocol import READER_PAPER
from backend.reference.attribution import COMPONENTS, named
from backend.reference.files import Node, Results
from backend.reference.rows import ROSTER, Collected, add_budgets

TEMPORAL = {
    "mean_pool": "temporal-mean",
    "final_token": "temporal-final",
    "max_pool": "temporal-max",
    "mean_final_pool": "temporal-mean-final",
    "mean_max_pool": "temporal-mean-max",
    "final_max_pool": "temporal-final-max",
    "dct_q2": "dct-q2",
    "dct_q4": "dct-q4",
    "dct_q8": "dct-q8",
    "learned_temporal_h1": "mixture-1",
    "learned_temporal_h2": "mixture-2",
}
"""Temporal representations as methods."""
BLOCKS = {method: form_of(method) for method in (READER_PAPER, *of_part("components"))}
AVERAGE = "mean4"
"""Stands for the proxy where the release compares means over the four main ones."""


def read_temporal(results: Results, into: Collected) -> None:
    """Budget curves, folds and learned weights of the eleven representations."""
    for file in results.files("ablations/temporal/reports/*.json"):
        held = results.json(file)
        proxy = held.text("method_tag")
        for config, part in held["configs"].items():
            reader = into.reader(TEMPORAL[config], proxy, "ur")
            by_seed, across = part["metrics_by_grouping_seed"], part["metrics_across_grouping_seeds"]
            add_budgets(into, reader, by_seed, across, benchmark="agent500", condition="clean")
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
                into.add(
                    "variance_ratios",
                    file,
                    **about,
                    fold=int(fold.required("fold")),
                    source_variance=part.required("source_variance"),
                    prompt_variance=part.required("prompt_variance"),
                    residual_variance=part.required("residual_variance"),
                    ratio=part.required("source_prompt_ratio"),
                )
            mean = held["summary"][config]
            into.add(
                "variance_ratios",
                file,
                **about,
                fold=None,
                source_variance=mean.required("source_variance_mean"),
                prompt_variance=mean.required("prompt_variance_mean"),
                residual_variance=mean.required("residual_variance_mean"),
                ratio=mean.required("source_prompt_ratio_fold_mean"),
            )


def _fold(fold: Node, into: Collected, proxy: str) -> None:
    number, n = int(fold.required("fold")), fold.required("n_test")
    for config, part in fold["configs"].items():
        reader = into.reader(TEMPORAL[config], proxy, "ur")
        about = {"benchmark": "agent500", "condition": "clean", "k": 1, "reduction": "fold", "fold": number}
        for metric in ("accuracy", "macro_f1"):
            into.metric(fold.file, reader, part.required(metric), n, metric=metric, **about)
        fitted = part["fit_diagnostics"]
        if "normalized_mode_weights" in fitted:
            for head, weights in enumerate(fitted["normalized_mode_weights"].parts()):
                for mode in range(len(weights.value)):
                    where = {"reader": reader, "roster": ROSTER, "fold": number, "head": head, "mode": mode}
                    into.add("mixture_weights", fold.file, **where, weight=weights.number(mode))


def _interval(found: Node, into: Collected, method: str, proxy: str, k: int) -> None:
    """Accuracy of the one grouping that the release tests, and its interval over clusters of fold and source."""
    reader, clusters = into.reader(method, proxy, "ur"), found.required("n_fold_source_clusters")
    about = {"benchmark": "agent500", "condition": "clean", "k": k, "reduction": "pooled"}
    for position, metric in enumerate(("accuracy_low", "accuracy_high")):
        bound = found["accuracy_cluster_bootstrap_95ci"].number(position)
        into.metric(found.file, reader, bound, clusters, metric=metric, **about)
    n = found.required("n_predictions") / k
    for metric in ("accuracy", "macro_f1"):
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

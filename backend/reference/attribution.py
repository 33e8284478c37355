"""Published attribution by READER and its baselines, and all costs.

The release scanned the blocks without nesting: a fold's value is the accuracy on that fold of a probe trained on the
four others, so it is stored as the fold's own inner fold. It fine-tuned two encoders twice; the paper's table is the
second run (``controlled_length.json``), the first one is stored as ``dna-finetuned-first``. LLMmap groups inside the
folds, all others over all folds at once. Variances of a fine-tuned embedding stand with the accuracies.

The release's fit time is that of one outer fold; the paper says that it includes the layer selection. Batch sizes other
than the validated one go into the name of the measure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np

from backend.errors import AtlasError
from backend.protocol import READER_PAPER
from backend.reference.files import (
    ACCURACIES,
    AGAIN,
    BLOCKS,
    COMPONENTS,
    ENCODERS,
    METRICS,
    NAMES,
    ROSTER,
    Collected,
    Node,
    Results,
    at,
)
from backend.traces import VIEWS, View

FINGERPRINT = "dct_dc_ac_fullrank"
TEMPORAL = NAMES["temporal"]
COSTS = NAMES["costs"]
VARIANCES = ("source_variance", "prompt_variance", "residual_variance")
AVERAGE = "mean4"  # Stands for the proxy where the release compares means over the four main ones.
DEBERTA, LLMMAP, RANDOM = "published-deberta", "published-llmmap", "published-random"
FROZEN, FINETUNED, FIRST_RUN = "dna", "dna-finetuned", "dna-finetuned-first"
PROFILED = {
    "reader": (READER_PAPER, "ur"),
    "llm_dna_dynamic": (FROZEN, "r"),
    "llmmap_dynamic": (LLMMAP, None),
    "finetuned_deberta": (DEBERTA, None),
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
        if view == "ur" and (results.root / folds).exists():  # of the prompt-response view only
            part, reader = results.json(folds), into.reader(READER_PAPER, proxy, "ur")
            _variation(part, into, reader, ("agent500", "math100") if "math100" in part else ("agent500",))


def read_scans(results: Results, into: Collected) -> None:
    """Accuracy and macro-F1 of every block, and the block that the release chose."""
    for file in results.files("reader/layer_scan/*.json"):
        content = results.json(file)
        for scan, method in NAMES["scans"].items():
            if scan not in content["methods"]:
                continue
            about = {"reader": into.reader(method, content.text("method_tag"), "ur"), "roster": ROSTER}
            for block in content["methods"][scan]["layer_results"].parts():
                layer = int(block.required("layer_index"))
                for part in block["fold_metrics"].parts():
                    fold = int(part.required("fold"))
                    where = {**about, "outer_fold": fold, "inner_fold": fold, "layer": layer}
                    into.add("layer_scores", file, **where, **{m: part.required(m) for m in ACCURACIES})
            best = int(content["best_layers"].required(scan))
            into.add("layer_selection", file, **about, outer_fold=None, layer=best)


def read_stress(results: Results, into: Collected) -> None:
    """Truncated, masked and mathematical responses, scored by the probes of the clean ones."""
    for file in results.files("reader/stress/*/*.json"):
        _components(results.json(file), into, file.rpartition("/")[2].removesuffix(".json"), "ur")


def named(results: Results, file: str) -> tuple[str, View]:
    """Proxy and view that a file name ends with."""
    proxy, _, suffix = file.rpartition("/")[2].removesuffix(".json").rpartition("_")
    view = next((view for view in VIEWS if view == suffix), None)
    if view is None:
        raise AtlasError(f"{results.root / file} does not name an input view", AGAIN)
    return proxy, view


def _components(part: Node, into: Collected, proxy: str, view: str) -> None:
    for config, method in COMPONENTS.items():
        if config == FINGERPRINT or config in part["configs"]:
            found, reader = part["configs"][config], into.reader(method, proxy, view)
            into.add_budgets(reader, found, prefix="cv_")
            if "external_evaluations" in found:
                into.add_external(reader, found)


def read_temporal(results: Results, into: Collected) -> None:
    """Budget curves, folds and learned weights of the eleven representations."""
    for file in results.files("ablations/temporal/reports/*.json"):
        content = results.json(file)
        proxy = content.text("method_tag")
        for config, part in content["configs"].items():
            into.add_budgets(into.reader(TEMPORAL[config], proxy, "ur"), part)
        for fold in content["folds"].parts():
            number, n = int(fold.required("fold")), fold.required("n_test")
            for config, part in fold["configs"].items():
                reader = into.reader(TEMPORAL[config], proxy, "ur")
                into.metrics(part, reader, n, fold=number, **at(1, "fold"))
                if "normalized_mode_weights" in (fitted := part["fit_diagnostics"]):
                    for head, weights in enumerate(fitted["normalized_mode_weights"].parts()):
                        where = {"reader": reader, "roster": ROSTER, "fold": number, "head": head}
                        for mode in range(len(weights.value)):
                            into.add("mixture_weights", file, **where, mode=mode, weight=weights.number(mode))


def read_statistics(results: Results, into: Collected) -> None:
    """Cluster bootstrap and sign flips between the representations, a proxy at a time and over the four."""
    for file in results.files("ablations/temporal/statistics.json"):
        dynamic = results.json(file)["dynamic"]
        for proxy, budgets in dynamic["proxies"].items():
            for budget, cell in budgets.items():
                for name, found in cell["methods"].items():
                    _interval(found, into, into.reader(TEMPORAL[name], proxy, "ur"), int(budget))
                for pair in cell["comparisons"].parts():
                    _comparison(pair, into, proxy, int(budget))
        for _, pair in dynamic["four_proxy_aggregate"].items():
            _comparison(pair, into, AVERAGE, int(pair.required("K")))


def _interval(found: Node, into: Collected, reader: str, k: int) -> None:
    """Accuracy of the one grouping that the release tests, and its interval over clusters of fold and source."""
    clusters, about = found.required("n_fold_source_clusters"), at(k, "pooled")
    for position, metric in enumerate(("accuracy_low", "accuracy_high")):
        bound = found["accuracy_cluster_bootstrap_95ci"].number(position)
        into.metric(found.file, reader, bound, clusters, metric=metric, **about)
    into.metrics(found, reader, found.required("n_predictions") / k, required=False, seed=42, **about)


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


def read_variance(results: Results, into: Collected) -> None:
    """How much of a fingerprint varies with the source, and how much with the prompt."""
    for file in results.files("reader/variance/*.json"):
        content = results.json(file)
        proxy, view = named(results, file)
        layer = re.search(r"_L(\d+)_", content.text("source"))
        if layer is None:
            raise content["source"].broken("does not name a block")
        for config, method in COMPONENTS.items():
            reader = into.reader(READER_PAPER, proxy, view)
            about = {"reader": reader, "roster": ROSTER, "layer": int(layer[1]), "block": BLOCKS[method]}
            for fold in content["folds"].parts():
                part = fold["metrics"][config]
                values = {name: part.required(name) for name in VARIANCES}
                ratio, number = part.required("source_prompt_ratio"), int(fold.required("fold"))
                into.add("variance_ratios", file, **about, fold=number, **values, ratio=ratio)
            mean = content["summary"][config]
            values = {name: mean.required(f"{name}_mean") for name in VARIANCES}
            ratio = mean.required("source_prompt_ratio_fold_mean")
            into.add("variance_ratios", file, **about, fold=None, **values, ratio=ratio)


def read_random(results: Results, into: Collected) -> None:
    """Uniform guesses over 20,000 trials; the spread is over trials, not folds."""
    for file in results.files("statistics/fold_variation/random.json"):
        content, reader = results.json(file), into.reader(RANDOM)
        for benchmark in ("agent500", "math100"):
            for budget, cell in content[benchmark].items():
                about, n = at(int(budget), "fold", benchmark), cell.required("n_fingerprints")
                into.metrics(cell, reader, n, value="{}_mean", std="{}_std", **about)


def read_llmmap(results: Results, into: Collected) -> None:
    """LLMmap fold by fold and seed by seed, clean, masked, and on Math100."""
    names = (*ACCURACIES, "top5_accuracy")
    counts: dict[tuple[str, str], int] = {}
    for file in results.files("baselines/llmmap/fold-*.json"):
        content, reader = results.json(file), into.reader(LLMMAP)
        fold = int(content.required("fold_index"))
        for name, budgets in content["evaluations"].items():
            for budget, seeds in budgets.items():
                for seed, cell in seeds.items():
                    counts[name, budget] = n = int(cell.required("episodes"))
                    into.metrics(cell, reader, n, names, seed=int(seed), fold=fold, **_shifted(name, budget))
    for file in results.files("baselines/llmmap/summary.json"):
        reader = into.reader(LLMMAP)
        for name, budgets in results.json(file)["summary"].items():
            for budget, cell in budgets.items():
                n, about, folds = counts.get((name, budget), 0), _shifted(name, budget), cell["per_fold"].parts()
                for part in folds:
                    number = int(part.required("fold"))
                    into.metrics(part, reader, n, names, std="{}_grouping_std", fold=number, **about)
                for metric in names:
                    mean, std = cell[metric].required("mean"), cell[metric].required("std_across_folds")
                    into.metric(file, reader, mean, n * len(folds), metric=metric, std=std, **about)


def _shifted(name: str, budget: str) -> dict[str, Any]:
    return at(int(budget), "fold", *(("math100", "clean") if name == "math100" else ("agent500", name)))


def read_deberta(results: Results, into: Collected) -> None:
    """DeBERTa fine-tuned end to end."""
    for file in results.files("baselines/deberta/aggregate.json"):
        _evaluations(results.json(file), into, into.reader(DEBERTA))
    spread: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    files = results.files("baselines/deberta/fold-*.json")
    for file in files:
        content, reader = results.json(file), into.reader(DEBERTA)
        fold = int(content.required("fold"))
        for budget, cell in content["metrics"].items():
            k, n = int(budget.removeprefix("K")), cell.required("n_fingerprints")
            into.metrics(cell, reader, n, METRICS, fold=fold, **at(k, "fold"))
            for name, metric in METRICS.items():
                spread[k, metric].append((cell.required(name), n))
    for (k, metric), values in spread.items():
        numbers, counts = zip(*values, strict=True)
        mean, std = float(np.mean(numbers)), float(np.std(numbers))
        into.metric(files[0], into.reader(DEBERTA), mean, sum(counts), std=std, metric=metric, **at(k, "fold"))
    for file in results.files("statistics/fold_variation/deberta.json"):
        _math(results.json(file), into, into.reader(DEBERTA))


def read_dna(results: Results, into: Collected) -> None:
    """LLM-DNA with frozen encoders, a file a budget."""
    for file in results.files("baselines/dna_dynamic/*.json"):
        content = results.json(file)
        encoder, _, _ = content.text("method").partition("_crossK")
        reader, k, n = into.reader(FROZEN, encoder, "r"), int(content.required("K")), content.required("n_fingerprints")
        pooled, inner = at(k, "pooled"), "classification_{}"
        fold = {"value": f"{inner}_fold_mean", "std": f"{inner}_fold_std"} | at(k, "fold")
        into.metrics(content, reader, n, value=inner, required=False, **pooled)
        into.metrics(content, reader, n, required=False, **fold)
        into.metrics(content, reader, n, ("nll", "ece", "alpha_calib"), required=False, **pooled)
        into.metrics(content, reader, content.required("n_fp_geom"), NAMES["geometry"], required=False, **pooled)
        about = {"benchmark": "agent500", "condition": "clean", "k": k}
        for source, _ in content["per_class_f1"].items():
            f1 = content["per_class_f1"].number(source)
            if f1 is not None:
                into.add("source_f1", file, reader=reader, roster=ROSTER, source=source, f1=f1, **about)
        n, math = content.required("math_n_fingerprints"), at(k, "pooled", "math100")
        into.metrics(content, reader, n, value=f"math_{inner}", required=False, **math)
        into.metrics(content, reader, n, ("nll", "ece"), value="math_{}", required=False, **math)
    for file in results.files("statistics/fold_variation/frozen_*.json"):
        encoder = file.rpartition("_")[2].removesuffix(".json")
        _math(results.json(file), into, into.reader(FROZEN, encoder, "r"))


def read_finetuned(results: Results, into: Collected) -> None:
    """LLM-DNA with fine-tuned encoders: the run of the paper's table, and the one before it."""
    for encoder in ENCODERS:
        folder = f"baselines/dna_finetuned/{encoder}"
        second = results.files(f"{folder}/controlled_length.json")
        method = FIRST_RUN if any("agent500" in results.json(file) for file in second) else FINETUNED
        for run, name in ((FINETUNED, "controlled_length"), (method, "aggregate")):
            for file in results.files(f"{folder}/{name}.json"):
                content, reader = results.json(file), into.reader(run, encoder, "r")
                _evaluations(content, into, reader)
                _variances(content, into, reader)
        for file in results.files(f"statistics/fold_variation/finetuned_{encoder}.json"):
            _variation(results.json(file), into, into.reader(FINETUNED, encoder, "r"), ("agent500", "math100"))
        for file in results.files(f"{folder}/fold-*.json"):
            content = results.json(file)
            reader, n = into.reader(method, encoder, "r"), content.required("test_samples")
            into.metrics(content["clean_k1"], reader, n, fold=int(content.required("fold")), **at(1, "fold"))


def _evaluations(content: Node, into: Collected, reader: str) -> None:
    if "agent500" in content:
        into.add_budgets(reader, content["agent500"])
    into.add_external(reader, content)


def _variances(content: Node, into: Collected, reader: str) -> None:
    """What standardised embeddings of held-out prompts vary with, fold by fold; their ratio and their means."""
    if "source_prompt_variance" not in content:
        return
    found, total, about, ratio = content["source_prompt_variance"], 0.0, at(1, "fold"), "source_prompt_ratio"
    for part in found["folds"].parts():
        n = part["metrics"].required("n_samples")
        total += n
        fold = int(part.required("fold"))
        into.metrics(part["metrics"], reader, n, (*VARIANCES, ratio), fold=fold, **about)
    into.metrics(found["summary"], reader, total, VARIANCES, value="{}_mean", std="{}_std", **about)
    into.metrics(found["summary"], reader, total, (ratio,), value="{}_fold_mean", std="{}_fold_std", **about)


def _variation(content: Node, into: Collected, reader: str, benchmarks: tuple[str, ...]) -> None:
    for benchmark in benchmarks:
        into.add_folds(reader, content[benchmark], benchmark)
    if "math100" in benchmarks:
        into.add_ensemble(reader, content["math100_fold_logposterior_ensemble"], "math100")


def _math(content: Node, into: Collected, reader: str) -> None:
    into.add_folds(reader, content["fold_summary"], "math100")
    into.add_ensemble(reader, content["fold_logposterior_ensemble"], "math100")


def read_costs(results: Results, into: Collected) -> None:
    """Parameters, fit time and latency: training profiles give the fit time, inference profiles the latency."""
    for file in results.files("efficiency/profiles/*.json"):
        content = results.json(file)
        name, tag = content.text("method"), content.text("tag")
        method, view = PROFILED[name]
        reader = into.reader(method, tag if view else None, view)
        batch = re.search(r"_bs(\d+)$", file.removesuffix(".json"))
        ending = f"_batch{batch[1]}" if batch else ""
        about = {"reader": reader, "roster": ROSTER, "hardware": content.text("hardware")}
        for part, names in COSTS.items():
            if part != "profile" and part not in content:
                continue
            for name, (measure, unit) in names.items():
                value = content.number(name) if part == "profile" else content[part].required(name)
                if value is not None:
                    into.add("costs", file, **about, measure=measure.format(batch=ending), value=value, unit=unit)


READERS = (
    *(read_clean, read_scans, read_stress, read_temporal, read_statistics, read_variance),
    *(read_random, read_llmmap, read_deberta, read_dna, read_finetuned, read_costs),
)

"""Published baselines (random guessing, LLMmap, LLM-DNA with frozen and fine-tuned encoders, DeBERTa), and all costs.

Files ``baselines`` and ``statistics/fold_variation``: the paper's Dynamic 100-Way Attribution and its appendix. The
release fine-tuned two encoders twice; the paper's table is the second run (``controlled_length.json``), the first one
stays beside it as ``dna-finetuned-first``. LLMmap groups inside the folds, all others over all folds at once.
What a fine-tuned embedding varies with has no spectral block, so that it stands with the accuracies.

``efficiency/profiles``: the paper's Computational Profile. The release's fit time is that of one outer fold; the paper
says that it includes the layer selection. Batch sizes other than the validated one go into the name of the measure.
"""

from __future__ import annotations

import re

import numpy as np

from backend.protocol import READER_PAPER
from backend.reference.files import (
    ACCURACIES,
    ENCODERS,
    METRICS,
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

DEBERTA, LLMMAP, RANDOM = "published-deberta", "published-llmmap", "published-random"
FROZEN, FINETUNED, FIRST_RUN = "dna", "dna-finetuned", "dna-finetuned-first"
GEOMETRY = NAMES["geometry"]
MEASURES = NAMES["measures"]
EXITS = NAMES["exits"]
TIMING = NAMES["timing"]


def read_random(results: Results, into: Collected) -> None:
    """Uniform guesses over 20,000 trials; the spread is over trials, not folds."""
    for file in results.files("statistics/fold_variation/random.json"):
        held, reader = results.json(file), into.reader(RANDOM)
        for benchmark in ("agent500", "math100"):
            for budget, cell in held[benchmark].items():
                n = cell.required("n_fingerprints")
                for metric in ACCURACIES:
                    mean, std = cell.required(f"{metric}_mean"), cell.required(f"{metric}_std")
                    into.metric(file, reader, mean, n, std=std, metric=metric, **at(int(budget), "fold", benchmark))


def read_llmmap(results: Results, into: Collected) -> None:
    """LLMmap fold by fold and seed by seed, clean, masked, and on Math100."""
    names = ("accuracy", "macro_f1", "top5_accuracy")
    counts: dict[tuple[str, int], int] = {}
    for file in results.files("baselines/llmmap/fold-*.json"):
        held, reader = results.json(file), into.reader(LLMMAP)
        fold = int(held.required("fold_index"))
        for name, budgets in held["evaluations"].items():
            for budget, seeds in budgets.items():
                about = at(int(budget), "fold", *_shift(name)) | {"fold": fold}
                for seed, cell in seeds.items():
                    n = int(cell.required("episodes"))
                    counts[name, int(budget)] = n
                    for metric in names:
                        into.metric(file, reader, cell.required(metric), n, metric=metric, seed=int(seed), **about)
    for file in results.files("baselines/llmmap/summary.json"):
        reader = into.reader(LLMMAP)
        for name, budgets in results.json(file)["summary"].items():
            for budget, cell in budgets.items():
                n = counts.get((name, int(budget)), 0)
                about = at(int(budget), "fold", *_shift(name))
                folds = cell["per_fold"].parts()
                for metric in names:
                    for part in folds:
                        fold, std = int(part.required("fold")), part.required(f"{metric}_grouping_std")
                        into.metric(file, reader, part.required(metric), n, metric=metric, fold=fold, std=std, **about)
                    mean, std = cell[metric].required("mean"), cell[metric].required("std_across_folds")
                    into.metric(file, reader, mean, n * len(folds), metric=metric, std=std, **about)


def read_deberta(results: Results, into: Collected) -> None:
    """DeBERTa fine-tuned end to end."""
    reader = DEBERTA
    for file in results.files("baselines/deberta/aggregate.json"):
        reader, held = into.reader(DEBERTA), results.json(file)
        _evaluations(held, into, reader)
    spread: dict[tuple[int, str], list[tuple[float, float]]] = {}
    files = results.files("baselines/deberta/fold-*.json")
    for file in files:
        held, reader = results.json(file), into.reader(DEBERTA)
        fold = int(held.required("fold"))
        for budget, cell in held["metrics"].items():
            k, n = int(budget.removeprefix("K")), cell.required("n_fingerprints")
            for name, metric in METRICS.items():
                value = cell.required(name)
                spread.setdefault((k, metric), []).append((value, n))
                into.metric(file, reader, value, n, metric=metric, fold=fold, **at(k, "fold"))
    for (k, metric), values in spread.items():
        numbers, counts = zip(*values, strict=True)
        mean, std = float(np.mean(numbers)), float(np.std(numbers))
        into.metric(files[0], reader, mean, sum(counts), std=std, metric=metric, **at(k, "fold"))
    for file in results.files("statistics/fold_variation/deberta.json"):
        _math(results.json(file), into, into.reader(DEBERTA))


def read_dna(results: Results, into: Collected) -> None:
    """LLM-DNA with frozen encoders, a file a budget."""
    for file in results.files("baselines/dna_dynamic/*.json"):
        held = results.json(file)
        encoder, _, _ = held.text("method").partition("_crossK")
        reader, k, n = into.reader(FROZEN, encoder, "r"), int(held.required("K")), held.required("n_fingerprints")
        about = {"benchmark": "agent500", "condition": "clean", "k": k}
        for metric in ACCURACIES:
            name = f"classification_{metric}"
            into.metric(file, reader, held.number(name), n, metric=metric, reduction="pooled", **about)
            mean, std = held.number(f"{name}_fold_mean"), held.number(f"{name}_fold_std")
            into.metric(file, reader, mean, n, metric=metric, reduction="fold", std=std, **about)
        for name, metric in (("nll", "nll_mean"), ("ece", "ece_mean"), ("alpha_calib", "alpha_calib")):
            into.metric(file, reader, held.number(name), n, metric=metric, reduction="pooled", **about)
        for name, metric in GEOMETRY.items():
            count = held.required("n_fp_geom")
            into.metric(file, reader, held.number(name), count, metric=metric, reduction="pooled", **about)
        for source, _ in held["per_class_f1"].items():
            f1 = held["per_class_f1"].number(source)
            if f1 is not None:
                into.add("source_f1", file, reader=reader, roster=ROSTER, source=source, f1=f1, **about)
        count = held.required("math_n_fingerprints")
        for name, metric in METRICS.items():
            inner = f"classification_{name}" if name in ("accuracy", "macro_f1") else name
            into.metric(file, reader, held.number(f"math_{inner}"), count, metric=metric, **at(k, "pooled", "math100"))
    for file in results.files("statistics/fold_variation/frozen_*.json"):
        encoder = file.rpartition("_")[2].removesuffix(".json")
        _math(results.json(file), into, into.reader(FROZEN, encoder, "r"))


def read_finetuned(results: Results, into: Collected) -> None:
    """LLM-DNA with fine-tuned encoders: the run of the paper's table, and the one before it."""
    for encoder in ENCODERS:
        second = results.files(f"baselines/dna_finetuned/{encoder}/controlled_length.json")
        repeated = False
        for file in second:
            held = results.json(file)
            repeated, reader = "agent500" in held, into.reader(FINETUNED, encoder, "r")
            _evaluations(held, into, reader)
            _variances(held, into, reader)
        method = FIRST_RUN if repeated else FINETUNED
        for file in results.files(f"baselines/dna_finetuned/{encoder}/aggregate.json"):
            held, reader = results.json(file), into.reader(method, encoder, "r")
            _evaluations(held, into, reader)
            _variances(held, into, reader)
        for file in results.files(f"statistics/fold_variation/finetuned_{encoder}.json"):
            held, reader = results.json(file), into.reader(FINETUNED, encoder, "r")
            add_folds(into, reader, held["agent500"], "agent500")
            add_folds(into, reader, held["math100"], "math100")
            add_ensemble(into, reader, held["math100_fold_logposterior_ensemble"], "math100")
        for file in results.files(f"baselines/dna_finetuned/{encoder}/fold-*.json"):
            held = results.json(file)
            reader, n = into.reader(method, encoder, "r"), held.required("test_samples")
            for metric in ACCURACIES:
                value, fold = held["clean_k1"].required(metric), int(held.required("fold"))
                into.metric(file, reader, value, n, metric=metric, fold=fold, **at(1, "fold"))


def _shift(name: str) -> tuple[str, str]:
    return ("math100", "clean") if name == "math100" else ("agent500", name)


def _evaluations(held: Node, into: Collected, reader: str) -> None:
    if "agent500" in held:
        add_budgets(into, reader, held["agent500"])
    add_external(into, reader, held)


def _variances(held: Node, into: Collected, reader: str) -> None:
    """What standardised embeddings of held-out prompts vary with, fold by fold; their ratio and their means."""
    if "source_prompt_variance" not in held:
        return
    found, total = held["source_prompt_variance"], 0.0
    about = at(1, "fold")
    for part in found["folds"].parts():
        fold, metrics = int(part.required("fold")), part["metrics"]
        n = metrics.required("n_samples")
        total += n
        for metric in (*VARIANCES, "source_prompt_ratio"):
            into.metric(held.file, reader, metrics.required(metric), n, metric=metric, fold=fold, **about)
    mean = found["summary"]
    for metric in VARIANCES:
        std = mean.required(f"{metric}_std")
        into.metric(held.file, reader, mean.required(f"{metric}_mean"), total, metric=metric, std=std, **about)
    ratio, std = (mean.required(f"source_prompt_ratio_fold_{name}") for name in ("mean", "std"))
    into.metric(held.file, reader, ratio, total, metric="source_prompt_ratio", std=std, **about)


def _math(held: Node, into: Collected, reader: str) -> None:
    add_folds(into, reader, held["fold_summary"], "math100")
    add_ensemble(into, reader, held["fold_logposterior_ensemble"], "math100")


def read_costs(results: Results, into: Collected) -> None:
    """Parameters, fit time and latency: training profiles give the fit time, inference profiles the latency."""
    for file in results.files("efficiency/profiles/*.json"):
        held = results.json(file)
        reader = _profiled(held, into)
        batch = re.search(r"_bs(\d+)$", file.removesuffix(".json"))
        ending = f"_batch{batch[1]}" if batch else ""
        about = {"reader": reader, "roster": ROSTER, "hardware": held.text("hardware")}
        found = [
            (measure + ("" if name.endswith("parameters") else ending), held.number(name), unit)
            for name, (measure, unit) in MEASURES.items()
        ]
        if "timing" in held:
            for name, (measure, unit) in TIMING.items():
                found.append((measure + ending, held["timing"].required(name), unit))
        if "early_exit_validation" in held:
            found += [(measure, held["early_exit_validation"].required(name), "1") for name, measure in EXITS.items()]
        if "median_seconds" in held:
            found.append(("fit_seconds", held.required("median_seconds"), "s"))
        for measure, value, unit in found:
            if value is not None:
                into.add("costs", file, **about, measure=measure, value=value, unit=unit)


def _profiled(held: Node, into: Collected) -> str:
    method, tag = held.text("method"), held.text("tag")
    if method == "reader":
        return into.reader(READER_PAPER, tag, "ur")
    if method == "llm_dna_dynamic":
        return into.reader(FROZEN, tag, "r")
    return into.reader({"llmmap_dynamic": LLMMAP, "finetuned_deberta": DEBERTA}[method])

"""Published cost: parameters, fit time and latency of every reader (the paper's Computational Profile).

Files ``efficiency/profiles``. The release's fit time is that of one outer fold; the paper's caption says that it
includes the layer selection. Batch sizes beside the validated one go into the name of the measure.
"""

from __future__ import annotations

import re

from backend.protocol import READER_PAPER
from backend.reference.baselines import DEBERTA, FROZEN, LLMMAP
from backend.reference.files import Node, Results
from backend.reference.rows import ROSTER, Collected

MEASURES = {
    "trainable_parameters": ("trainable_parameters", "parameters"),
    "encoder_parameters": ("encoder_parameters", "parameters"),
    "head_parameters": ("head_parameters", "parameters"),
    "inference_parameters": ("audit_parameters", "parameters"),
    "loaded_checkpoint_parameters": ("loaded_parameters", "parameters"),
    "batch_size": ("batch_size", "responses"),
}
EXITS = {"max_absolute_error": "early_exit_error_max", "mean_absolute_error": "early_exit_error_mean"}
"""How far states of the pass that ends at the block lie from those of the whole pass."""
TIMING = {"median_ms_per_response": ("latency_ms", "ms"), "median_responses_per_second": ("responses_per_s", "1/s")}


def read_costs(results: Results, into: Collected) -> None:
    """Every profile; training profiles give the fit time, inference profiles the latency."""
    for file in results.files("efficiency/profiles/*.json"):
        held = results.json(file)
        reader, ending = _reader(held, into), ""
        batch = re.search(r"_bs(\d+)$", file.removesuffix(".json"))
        if batch:
            ending = f"_batch{batch[1]}"
        about = {"reader": reader, "roster": ROSTER, "hardware": held.text("hardware")}
        for name, (measure, unit) in MEASURES.items():
            value = held.number(name)
            if value is not None:
                shared = "" if name.endswith("parameters") else ending
                into.add("costs", file, **about, measure=f"{measure}{shared}", value=value, unit=unit)
        if "timing" in held:
            for name, (measure, unit) in TIMING.items():
                value = held["timing"].required(name)
                into.add("costs", file, **about, measure=f"{measure}{ending}", value=value, unit=unit)
        for name, measure in EXITS.items() if "early_exit_validation" in held else ():
            value = held["early_exit_validation"].required(name)
            into.add("costs", file, **about, measure=measure, value=value, unit="1")
        if "median_seconds" in held:
            value = held.required("median_seconds")
            into.add("costs", file, **about, measure="fit_seconds", value=value, unit="s")


def _reader(held: Node, into: Collected) -> str:
    method, tag = held.text("method"), held.text("tag")
    if method == "reader":
        return into.reader(READER_PAPER, tag, "ur")
    if method == "llm_dna_dynamic":
        return into.reader(FROZEN, tag, "r")
    return into.reader({"llmmap_dynamic": LLMMAP, "finetuned_deberta": DEBERTA}[method])

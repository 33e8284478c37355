"""Published relationships on Bench-A: splits, summaries, scores of every pair, strict protocols and their tests.

Files ``bench_a``: the paper's Static Relationship Auditing and its appendix. ``reader`` holds the readout at the block
that the release's own scan selected; ``components`` holds another set of blocks for two proxies (Llama at 12 instead
of 2), which the paper's table prints, so that its readouts are marked ``@best`` and ``@last``.
"""

from __future__ import annotations

from backend.methods.registry import form_of, of_part
from backend.protocol import READER_PAPER
from backend.reference.attribution import COMPONENTS
from backend.reference.files import Node, Results
from backend.reference.rows import ENCODERS, Collected

METRICS = ("accuracy", "precision", "recall", "f1", "auc")
READOUTS = {method: form_of(method) for method in (READER_PAPER, *of_part("components"))}
DISTANCES = {"cosine": "", "euclidean": "-euclidean"}
PROFILES = {"full500_best_layer": "@best", "last_layer": "@last"}
FEATURES = {
    "fullrank_dc": "dc",
    "fullrank_ac": "ac",
    "fullrank_dc_ac_score_fusion": "dc-ac",
    "fullrank_dc_ac_concat": "concat",
    "grp128_dc": "grp128-dc",
    "grp128_ac": "grp128",
    "grp128_dc_ac_score_fusion": "grp128-dc-ac",
}
PROTOCOLS = {"model_disjoint_family_visible": "model", "family_disjoint_leave_two_out": "family"}
TEXT = {"MPT": "published-mpt", "PhyloLM": "published-phylolm"}
STATISTICS = {
    "bench_a/disjoint/statistics.json": "published/relationships/components",
    "bench_a/disjoint/statistics_primary.json": "published/relationships/primary",
    "bench_a/disjoint/statistics_with_baselines.json": "published/relationships/baselines",
    "ablations/temporal/statistics.json": "published/relationships/temporal",
}
MEAN = "reader-mean4"
"""The release's macro average over the four main proxies."""


def read_pairs(results: Results, into: Collected) -> None:
    """READER on the 116 pairs: 20 splits, their mean, and what it sees of every pair."""
    for file in results.files("bench_a/reader/*.json"):
        held = results.json(file)
        view = "ur" if held.text("input_view") == "prompt_response" else "r"
        reader = into.reader(READER_PAPER, held.text("proxy_tag"), view)
        for distance, ending in DISTANCES.items():
            for config, part in held["pair_metrics"][distance]["configs"].items():
                readout = READOUTS[COMPONENTS[config]] + ending
                _summary(part["summary"], into, reader, "pair", readout)
                _splits(part["splits"], into, reader, "pair", readout)
                for pair in part["pair_scores"].parts():
                    for feature, value in _scores(pair, readout).items():
                        where = {"pair_set": "pair_disjoint", "pair_id": pair.text("pair_id")}
                        into.add(
                            "relationship_features",
                            file,
                            reader=reader,
                            **where,
                            feature=f"{feature}{ending}",
                            value=value,
                        )


def read_components(results: Results, into: Collected) -> None:
    """Blocks, concatenation and random projections, at the best and at the last block."""
    for file in results.files("bench_a/components.json"):
        for profile, features in results.json(file)["profiles"].items():
            for feature, part in features.items():
                readout = FEATURES[feature] + PROFILES[profile]
                for proxy, summary in part["by_proxy"].items():
                    _summary(summary, into, into.reader(READER_PAPER, proxy, "ur"), "pair", readout)
                mean, reader = part["macro_average"], into.reader(MEAN, None, "ur")
                for metric in METRICS:
                    about = {"reader": reader, "protocol": "pair", "readout": readout, "metric": metric}
                    into.add("relationship_metrics", file, **about, split=None, value=mean.required(metric), n=20)


def read_baselines(results: Results, into: Collected) -> None:
    """MPT, PhyloLM, and DNA with its encoders, on the 116 pairs."""
    for file in results.files("bench_a/baselines/*.json"):
        for summary in results.json(file).parts():
            name = summary.text("method")
            if name.startswith("LLM-DNA"):
                encoder = next(tag for tag in ENCODERS if file.endswith(f"_{tag}.json"))
                readout = "distance" if name.endswith("-LINEAR") else "distance-rbf"
                _summary(summary, into, into.reader("dna", encoder, "r"), "pair", readout)
            else:
                method = next(method for start, method in TEXT.items() if name.startswith(start))
                _summary(summary, into, into.reader(method), "pair", "match")


def read_disjoint(results: Results, into: Collected) -> None:
    """READER where models, or whole families, are held out."""
    for file in results.files("bench_a/disjoint/*/*.json"):
        if "/protocol/" in file:
            continue
        held = results.json(file)
        protocol = PROTOCOLS[held.text("split_type")]
        reader = into.reader(READER_PAPER, held.text("proxy_tag"), "ur")
        for config, part in held["configs"].items():
            readout = READOUTS[COMPONENTS[config]]
            _summary(part["summary"], into, reader, protocol, readout, n=held.required("n_splits"))
            _splits(part["splits"], into, reader, protocol, readout)


def read_tests(results: Results, into: Collected) -> None:
    """Paired comparisons under the strict protocols; every file corrects over its own set of hypotheses."""
    for name, hypotheses in STATISTICS.items():
        for file in results.files(name):
            for _, groups in results.json(file)["bench_a"].items():
                for _, group in groups.items():
                    for pair in group["comparisons"].parts():
                        _tests(pair, into, group, hypotheses)


def _tests(pair: Node, into: Collected, group: Node, hypotheses: str) -> None:
    proxy, protocol = group.text("proxy_tag"), PROTOCOLS[group.text("split_type")]
    for metric, found in pair["metrics"].items():
        interval = found["delta_split_bootstrap_95ci"]
        into.add(
            "comparisons",
            pair.file,
            hypotheses=f"{hypotheses}/{protocol}",
            subject=compared(pair.text("method_a"), proxy),
            reference=compared(pair.text("method_b"), proxy),
            measure=metric,
            difference=found.required("delta_a_minus_b"),
            low=interval.number(0),
            high=interval.number(1),
            p_value=found.required("paired_split_signflip_p_raw"),
            p_holm=found.required("paired_split_signflip_p_holm"),
            n=int(pair.required("n_splits")),
            method="split bootstrap and sign flips; Holm over both protocols and all metrics",
        )


def compared(name: str, proxy: str) -> str:
    """Reader and readout that a name in the statistics means."""
    if name in COMPONENTS:
        return f"{READER_PAPER}/{proxy}/ur:{READOUTS[COMPONENTS[name]]}"
    if name.startswith("llm_dna_"):
        return f"dna/{ENCODERS[name.removeprefix('llm_dna_')][0]}/r:distance"
    return f"published-{name}:match"


def _summary(summary: Node, into: Collected, reader: str, protocol: str, readout: str, n: float | None = None) -> None:
    for metric in METRICS:
        interval = f"{metric}_bootstrap_95ci"
        low, high = (summary[interval].number(0), summary[interval].number(1)) if interval in summary else (None, None)
        about = {"reader": reader, "protocol": protocol, "readout": readout, "metric": metric, "split": None}
        into.add(
            "relationship_metrics",
            summary.file,
            **about,
            value=summary.required(f"{metric}_mean"),
            std=summary.required(f"{metric}_std"),
            low=low,
            high=high,
            n=int(n if n is not None else summary.required("n_splits")),
        )


def _splits(splits: Node, into: Collected, reader: str, protocol: str, readout: str) -> None:
    for split in splits.parts():
        number, n = int(split.required("split_id")), int(split.required("n_test"))
        for metric in METRICS:
            about = {"reader": reader, "protocol": protocol, "readout": readout, "metric": metric, "split": number}
            into.add("relationship_metrics", splits.file, **about, value=split.required(metric), n=n)


def _scores(pair: Node, readout: str) -> dict[str, float]:
    """What the pair looks like to a readout: one score, or both that the joint readout takes."""
    if "score" in pair:
        return {readout.partition("-")[0]: pair.required("score")}
    return {"dc": pair.required("dc_score"), "ac": pair.required("ac_score")}

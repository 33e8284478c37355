"""Published relationships between sources: pairs of Bench-A, and the geometry of signatures.

Files ``bench_a/reader`` hold the readout at the block that the release's own scan selected; ``components`` holds other
blocks for two proxies (Llama at 12 instead of 2), which the paper's table prints, so that its readouts are marked
``@best`` and ``@last``. Ranks of the four candidate pairs are no rows of ``neighbors``, which needs all pairs.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from backend.protocol import READER_PAPER
from backend.reference.files import BLOCKS, COMPONENTS, ENCODERS, MAIN, NAMES, ROSTER, Collected, Node, Results

METRICS = ("accuracy", "precision", "recall", "f1", "auc")
DISTANCES = {"cosine": "", "euclidean": "-euclidean"}
PROFILES = {"full500_best_layer": "@best", "last_layer": "@last"}
PROTOCOLS = NAMES["protocols"]
TEXT = {"MPT": "published-mpt", "PhyloLM": "published-phylolm"}
MEAN = "reader-mean4"  # The release's macro average over the four main proxies.
FOLDER, CROSS = "geometry/agent500", "geometry/cross_domain"
QWEN = "qwen35_9b"  # The proxy of the displayed maps and of both domains.


def read_pairs(results: Results, into: Collected) -> None:
    """READER on the 116 pairs: 20 splits, their mean, and the scores of every pair."""
    for file in results.files("bench_a/reader/*.json"):
        content = results.json(file)
        view = "ur" if content.text("input_view") == "prompt_response" else "r"
        reader = into.reader(READER_PAPER, content.text("proxy_tag"), view)
        for distance, ending in DISTANCES.items():
            for config, part in content["pair_metrics"][distance]["configs"].items():
                readout = BLOCKS[COMPONENTS[config]] + ending
                _summary(part["summary"], into, reader, "pair", readout)
                _splits(part["splits"], into, reader, "pair", readout)
                for pair in part["pair_scores"].parts():
                    about = {"reader": reader, "pair_set": "pair_disjoint", "pair_id": pair.text("pair_id")}
                    # A readout of one component has one score, the joint one has both.
                    one, both = {readout.partition("-")[0]: "score"}, {"dc": "dc_score", "ac": "ac_score"}
                    for feature, name in (one if "score" in pair else both).items():
                        value = pair.required(name)
                        into.add("relationship_features", file, **about, feature=f"{feature}{ending}", value=value)


def read_components(results: Results, into: Collected) -> None:
    """Blocks, concatenation and random projections, at the best and at the last block."""
    for file in results.files("bench_a/components.json"):
        for profile, features in results.json(file)["profiles"].items():
            for feature, part in features.items():
                readout = NAMES["features"][feature] + PROFILES[profile]
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
        content = results.json(file)
        protocol = PROTOCOLS[content.text("split_type")]
        reader = into.reader(READER_PAPER, content.text("proxy_tag"), "ur")
        for config, part in content["configs"].items():
            readout = BLOCKS[COMPONENTS[config]]
            _summary(part["summary"], into, reader, protocol, readout, n=content.required("n_splits"))
            _splits(part["splits"], into, reader, protocol, readout)


def read_tests(results: Results, into: Collected) -> None:
    """Paired comparisons under the strict protocols; every file corrects over its own set of hypotheses."""
    for name, hypotheses in NAMES["statistics"].items():
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
        return f"{READER_PAPER}/{proxy}/ur:{BLOCKS[COMPONENTS[name]]}"
    if name.startswith("llm_dna_"):
        return f"dna/{ENCODERS[name.removeprefix('llm_dna_')][0]}/r:distance"
    return f"published-{name}:match"


def _summary(summary: Node, into: Collected, reader: str, protocol: str, readout: str, n: float | None = None) -> None:
    count = int(n if n is not None else summary.required("n_splits"))
    for metric in METRICS:
        interval = f"{metric}_bootstrap_95ci"
        low, high = (summary[interval].number(0), summary[interval].number(1)) if interval in summary else (None, None)
        about = {"reader": reader, "protocol": protocol, "readout": readout, "metric": metric, "split": None}
        mean, std = (summary.required(f"{metric}_{name}") for name in ("mean", "std"))
        into.add("relationship_metrics", summary.file, **about, value=mean, std=std, low=low, high=high, n=count)


def _splits(splits: Node, into: Collected, reader: str, protocol: str, readout: str) -> None:
    for split in splits.parts():
        number, n = int(split.required("split_id")), int(split.required("n_test"))
        for metric in METRICS:
            about = {"reader": reader, "protocol": protocol, "readout": readout, "metric": metric, "split": number}
            into.add("relationship_metrics", splits.file, **about, value=split.required(metric), n=n)


def read_original_space(results: Results, into: Collected) -> None:
    """Family purity, agreement of proxies, stability over prompt subsets, and the blocks that were read."""
    purity = NAMES["purity"]
    for file in results.files(f"{FOLDER}/neighbor_purity.csv"):
        summary = results.json(_only(results, f"{FOLDER}/validation_summary.json"))
        families = [
            summary["family_counts"].required(name) for name, _ in summary["family_counts"].items() if name != "Others"
        ]
        counts = {"sources": int(summary.required("eligible_major_family_models")), "families": len(families)}
        for row in _rows(results.table(file, ("proxy", "k", *purity))):
            values = {ours: row[name] for name, ours in purity.items()}
            into.add("family_purity", file, **_at(into, str(row["proxy"])), k=int(row["k"]), **values, **counts)
    sides, names = ("proxy_left", "proxy_right"), {"distance_spearman": "spearman", "knn_jaccard_at_10": "jaccard_10"}
    for file in results.files(f"{FOLDER}/proxy_agreement.csv"):
        for row in _rows(results.table(file, (*sides, *names))):
            reader, other = sorted(into.reader(READER_PAPER, str(row[side]), "r") for side in sides)
            about = {"reader": reader, "other": other, "roster": ROSTER, "domain": "agent500"}
            _measures(into, "reader_agreement", file, row, names, about)
    names = {"distance_spearman_with_full500": "spearman", "family_purity_at_5": "purity_5"}
    for file in results.files(f"{FOLDER}/prompt_split_stability.csv"):
        for row in _rows(results.table(file, ("proxy", "split", *names))):
            about = _at(into, str(row["proxy"])) | {"fold": int(row["split"])}
            _measures(into, "prompt_stability", file, row, names, about)
    for file in results.files(f"{FOLDER}/validation_summary.json"):
        for proxy, part in results.json(file)["proxy_metadata"].items():
            reader, layer = into.reader(READER_PAPER, proxy, "r"), int(part.required("layer"))
            into.add("layer_selection", file, reader=reader, roster=ROSTER, outer_fold=None, layer=layer)


def read_candidates(results: Results, into: Collected) -> None:
    """How every proxy ranks the sources of the four candidate pairs for each other."""
    columns = ("proxy", "left_label", "right_label", "left_to_right_rank", "right_to_left_rank", "cosine_distance")
    for file in results.files(f"{FOLDER}/cross_provider_ranks.csv"):
        for row in _rows(results.table(file, columns)):
            about = _at(into, str(row["proxy"])) | {"source": row["left_label"], "neighbor": row["right_label"]}
            ranks = {"rank": int(row["left_to_right_rank"]), "back": int(row["right_to_left_rank"])}
            into.add("pair_ranks", file, **about, **ranks, cosine=1 - row["cosine_distance"])


def read_projections(results: Results, into: Collected) -> None:
    """The displayed t-SNE maps, those of both domains together, and the sweep over seeds and perplexities."""
    flat: dict[str, Any] = {"method": "tsne", "dimensions": 2}
    maps = {f"{FOLDER}/canonical_embedding.csv": "agent500", f"{CROSS}/*_math100_model_*.csv": "math100"}
    for name, domain in maps.items():
        for file in results.files(name):
            about = _at(into, _proxy(file, results), domain) | flat
            for row in _rows(results.table(file, ("label", "tsne_x", "tsne_y"))):
                into.add("projections", file, **about, source=row["label"], x=row["tsne_x"], y=row["tsne_y"], z=None)
    for file in results.files(f"{CROSS}/*_joint_*.csv"):
        variant = "centred" if "domain_centered" in file else "raw"
        reader = into.reader(READER_PAPER, _proxy(file, results), "r")
        for row in _rows(results.table(file, ("label", "domain", "tsne_x", "tsne_y"))):
            about = {"reader": reader, "roster": ROSTER, "variant": variant, "domain": row["domain"], **flat}
            into.add("joint_projections", file, **about, source=row["label"], x=row["tsne_x"], y=row["tsne_y"], z=None)
    for file in results.files(f"{FOLDER}/tsne_stability.csv"):
        for row in _rows(results.table(file, ("seed", "perplexity", *NAMES["swept"]))):
            settings = json.dumps({"perplexity": row["perplexity"], "seed": int(row["seed"])}, sort_keys=True)
            about = _at(into, QWEN) | {"method": "tsne-sweep", "dimensions": 2, "settings": settings}
            _measures(into, "projection_quality", file, row, NAMES["swept"], about)


def read_domains(results: Results, into: Collected) -> None:
    """Agent500 signatures that look for their source among the Math100 signatures."""
    for file in results.files(f"{CROSS}/cross_domain_signature_summary.json"):
        content = results.json(file)
        reader = into.reader(READER_PAPER, QWEN, "r")
        signatures = results.table(_only(results, f"{FOLDER}/canonical_embedding.csv"), ("label",))["label"]
        for name, variant in (("statistics", "raw"), ("domain_centered_statistics", "centred")):
            part = content[name]
            about = {"reader": reader, "roster": ROSTER, "variant": variant}
            about |= {"query_domain": "agent500", "gallery_domain": "math100"}
            for key, metric in NAMES["summary"].items():
                into.add("cross_domain", file, **about, source=None, metric=metric, value=part.required(key))
            ranks = part["same_source_ranks"]
            if len(ranks.value) != len(signatures):
                raise ranks.broken(f"has {len(ranks.value)} ranks for {len(signatures)} sources")
            for position, label in enumerate(map(str, signatures)):
                into.add("cross_domain", file, **about, source=label, metric="rank", value=ranks.required(position))


def candidate_pairs(results: Results) -> dict[tuple[str, str], float]:
    """Main proxies with a pair among their ten nearest, 'Top-10', and its 'Med. rank', by the pair's printed name."""
    found: dict[tuple[str, str], float] = {}
    directions = ["left_to_right_rank", "right_to_left_rank"]
    for file in results.files(f"{FOLDER}/cross_provider_ranks.csv"):
        frame = results.table(file, ("pair_id", "proxy", *directions, "mutual_rank"))
        for pair, rows in frame[frame["proxy"].isin(MAIN)].groupby("pair_id"):
            name = NAMES["pairs"].get(str(pair), str(pair))
            found[name, "Top-10"] = float((rows[directions].max(axis=1) <= 10).sum())
            found[name, "Med. rank"] = float(rows["mutual_rank"].median())
    return found


def _at(into: Collected, proxy: str, domain: str = "agent500") -> dict[str, Any]:
    return {"reader": into.reader(READER_PAPER, proxy, "r"), "roster": ROSTER, "domain": domain}


def _measures(
    into: Collected, table: str, file: str, row: dict[str, Any], names: dict[str, str], about: dict[str, Any]
) -> None:
    for name, metric in names.items():
        into.add(table, file, **about, metric=metric, value=row[name])


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    plain = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]


def _only(results: Results, name: str) -> str:
    """The file of that name, which must be there."""
    if not (found := results.files(name)):
        raise Node({}, f"results/{name}").broken("is missing")
    return found[0]


def _proxy(file: str, results: Results) -> str:
    if file.endswith("canonical_embedding.csv"):
        return str(results.table(file, ("proxy",))["proxy"].iloc[0])
    name = file.rpartition("/")[2]
    return next(proxy for proxy in MAIN if name.startswith(f"{proxy}_"))


READERS = (
    *(read_pairs, read_components, read_baselines, read_disjoint, read_tests),
    *(read_original_space, read_candidates, read_projections, read_domains),
)

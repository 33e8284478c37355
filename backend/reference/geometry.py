"""Published geometry: purity, agreement, stability, projections, and the same source in two domains.

Files ``geometry``: the paper's Model-Signature Geometry and Cross-Domain Model-Signature Geometry. Ranks of the four
candidate pairs are no rows of ``neighbors``, which asks for all pairs and their percentiles; the counts and medians
that the paper's table prints are derived from them.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from backend.protocol import READER_PAPER
from backend.reference.files import MAIN, NAMES, ROSTER, Collected, Node, Results

FOLDER = "geometry/agent500"
CROSS = "geometry/cross_domain"
PAIRS = NAMES["pairs"]
PURITY = NAMES["purity"]
SWEPT = NAMES["swept"]
SUMMARY = NAMES["summary"]


def read_original_space(results: Results, into: Collected) -> None:
    """Family purity, agreement of proxies, stability over prompt subsets, and the blocks that served."""
    for file in results.files(f"{FOLDER}/neighbor_purity.csv"):
        counts = _counts(results)
        for row in _rows(results.table(file, ("proxy", "k", *PURITY))):
            values = {ours: row[name] for name, ours in PURITY.items()}
            into.add("family_purity", file, **_at(into, str(row["proxy"])), k=int(row["k"]), **values, **counts)
    for file in results.files(f"{FOLDER}/proxy_agreement.csv"):
        measured = {"distance_spearman": "spearman", "knn_jaccard_at_10": "jaccard_10"}
        for row in _rows(results.table(file, ("proxy_left", "proxy_right", *measured))):
            pair = sorted(into.reader(READER_PAPER, str(row[side]), "r") for side in ("proxy_left", "proxy_right"))
            about = {"reader": pair[0], "other": pair[1], "roster": ROSTER, "domain": "agent500"}
            for name, metric in measured.items():
                into.add("reader_agreement", file, **about, metric=metric, value=row[name])
    for file in results.files(f"{FOLDER}/prompt_split_stability.csv"):
        measured = {"distance_spearman_with_full500": "spearman", "family_purity_at_5": "purity_5"}
        for row in _rows(results.table(file, ("proxy", "split", *measured))):
            about = _at(into, str(row["proxy"])) | {"fold": int(row["split"])}
            for name, metric in measured.items():
                into.add("prompt_stability", file, **about, metric=metric, value=row[name])
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
        for row in _rows(results.table(file, ("seed", "perplexity", *SWEPT))):
            settings = json.dumps({"perplexity": row["perplexity"], "seed": int(row["seed"])}, sort_keys=True)
            about = _at(into, "qwen35_9b") | {"method": "tsne-sweep", "dimensions": 2, "settings": settings}
            for name, metric in SWEPT.items():
                into.add("projection_quality", file, **about, metric=metric, value=row[name])


def read_domains(results: Results, into: Collected) -> None:
    """Agent500 signatures that look for their source among the Math100 signatures."""
    for file in results.files(f"{CROSS}/cross_domain_signature_summary.json"):
        held = results.json(file)
        reader = into.reader(READER_PAPER, "qwen35_9b", "r")
        names = _labels(results)
        for name, variant in (("statistics", "raw"), ("domain_centered_statistics", "centred")):
            part = held[name]
            about = {"reader": reader, "roster": ROSTER, "variant": variant}
            about |= {"query_domain": "agent500", "gallery_domain": "math100"}
            for key, metric in SUMMARY.items():
                into.add("cross_domain", file, **about, source=None, metric=metric, value=part.required(key))
            ranks = part["same_source_ranks"]
            if len(ranks.value) != len(names):
                raise ranks.broken(f"has {len(ranks.value)} ranks for {len(names)} sources")
            for position, label in enumerate(names):
                into.add("cross_domain", file, **about, source=label, metric="rank", value=ranks.required(position))


def candidate_pairs(results: Results) -> dict[tuple[str, str], float]:
    """How many main proxies put each candidate pair among their ten nearest, and the median mutual rank.

    Values by name of the pair as the paper prints it, and 'Top-10' or 'Med. rank'.
    """
    found: dict[tuple[str, str], float] = {}
    for file in results.files(f"{FOLDER}/cross_provider_ranks.csv"):
        columns = ("pair_id", "proxy", "left_to_right_rank", "right_to_left_rank", "mutual_rank")
        frame = results.table(file, columns)
        for pair, rows in frame[frame["proxy"].isin(MAIN)].groupby("pair_id"):
            directed = rows[["left_to_right_rank", "right_to_left_rank"]].max(axis=1)
            name = PAIRS.get(str(pair), str(pair))
            found[name, "Top-10"] = float((directed <= 10).sum())
            found[name, "Med. rank"] = float(rows["mutual_rank"].median())
    return found


def _at(into: Collected, proxy: str, domain: str = "agent500") -> dict[str, Any]:
    return {"reader": into.reader(READER_PAPER, proxy, "r"), "roster": ROSTER, "domain": domain}


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    plain = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]


def _counts(results: Results) -> dict[str, object]:
    """Sources and families behind the purities."""
    for file in results.files(f"{FOLDER}/validation_summary.json"):
        held = results.json(file)
        sizes = [held["family_counts"].required(name) for name, _ in held["family_counts"].items() if name != "Others"]
        return {"sources": int(held.required("eligible_major_family_models")), "families": len(sizes)}
    raise Node({}, f"results/{FOLDER}/validation_summary.json").broken("is missing")


def _labels(results: Results) -> list[str]:
    """Sources in the order of the release's signatures."""
    for file in results.files(f"{FOLDER}/canonical_embedding.csv"):
        return [str(label) for label in results.table(file, ("label",))["label"]]
    raise Node({}, f"results/{FOLDER}/canonical_embedding.csv").broken("is missing")


def _proxy(file: str, results: Results) -> str:
    if file.endswith("canonical_embedding.csv"):
        return str(results.table(file, ("proxy",))["proxy"].iloc[0])
    name = file.rpartition("/")[2]
    return next(proxy for proxy in (*MAIN,) if name.startswith(f"{proxy}_"))

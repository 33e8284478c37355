"""A small invented atlas, written through the store's own writers: plausible numbers that nobody measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from backend.geometry.projections import cluster_frame
from backend.store.builds import recorded
from backend.store.database import open_work, publish
from backend.store.writers import replace_rows, write_proxies, write_reader, write_sources

BUDGETS = (1, 5, 10, 20, 50, 100)
MARKUP = "<img src=x onerror=\"document.title='owned'\">"
ENDLESS = "endless-" + "x" * 292
RIGHT_TO_LEFT = "نموذج-لغوي-كبير"
HOSTILE = (MARKUP, ENDLESS, RIGHT_TO_LEFT)
ROSTERS = {"12-way": 12, "27-way": 27}
_FAMILIES = {
    "Qwen": 7, "GPT": 4, "Claude": 3, "DeepSeek": 3, "Llama": 2, "GLM": 1, "Mistral": 1, "Doubao": 1, "Kimi": 1,
    "Grok": 1,
}  # fmt: skip


def invented_roster() -> pd.DataFrame:
    """27 sources of eleven families in a roster's columns; the last three have hostile names."""
    queues = {family: [f"{family.lower()}_{place + 1}" for place in range(size)] for family, size in _FAMILIES.items()}
    rows = []
    while any(queues.values()):
        for family, labels in queues.items():
            if labels:
                rows.append((labels.pop(0), family))
    entries = [
        {
            "label": label,
            "repo_id": f"{family.lower()}-org/{label.replace('_', '-')}",
            "family": label.rsplit("_", 1)[0],
            "plot_family": family,
            "source": "api50" if place % 3 else "original50",
        }
        for place, (label, family) in enumerate(rows)
    ]
    for place, name in enumerate(HOSTILE):
        family = MARKUP if place == 0 else "Qwen"
        entries.append(
            {
                "label": f"hostile_{place}" if place else MARKUP,
                "repo_id": name,
                "family": family,
                "plot_family": family,
                "source": "api50",
            }
        )
    return pd.DataFrame(entries)


def publish_invented(
    folder: Path, *, roster: pd.DataFrame | None = None, rosters: Mapping[str, int] = ROSTERS, seed: int = 7
) -> Path:
    """Publish a generation into ``folder`` and return its file.

    The reader ``tiny/ur`` has attribution on agent500 (whole and cut to 64 tokens) and math100, ``tiny/r`` the geometry
    of both domains; two more proxies have geometry on agent500, word n-grams and a published reader have attribution of
    the shortest roster on agent500 and nothing else.
    """
    roster = invented_roster() if roster is None else roster
    rng = np.random.default_rng(seed)
    work = folder / "work" / "work.duckdb"
    connection = open_work(work)
    with recorded(
        connection,
        stage="invented",
        command="python -m tests.invented_atlas",
        data_hash="d" * 64,
        proxy_hash="9" * 64,
        seed=seed,
    ) as build:
        write_sources(connection, roster, dict.fromkeys(roster["label"], 600), build, rosters=rosters)
        proxy = {"proxy": "tiny", "name": "Tiny-1M", "depth": 12, "hidden_size": 16, "causal": True}
        write_proxies(connection, pd.DataFrame([proxy]))
        reads = write_reader(
            connection, method="reader-paper", name="READER on Tiny-1M, prompt and response", proxy="tiny", view="ur"
        )
        sees = write_reader(
            connection, method="reader-paper", name="READER on Tiny-1M, response only", proxy="tiny", view="r"
        )
        _published(connection, build, next(iter(rosters)))
        centres = {family: rng.normal(size=16) for family in roster["plot_family"].unique()}
        for benchmark, noise in (("agent500", 0.7), ("math100", 1.0)):
            vectors = np.stack([centres[family] + noise * rng.normal(size=16) for family in roster["plot_family"]])
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            for name, size in rosters.items():
                part = roster.iloc[:size]
                _geometry(connection, build, part, vectors[:size], reader=sees, roster=name, domain=benchmark, rng=rng)
                _attribution(
                    connection, build, part, vectors[:size], reader=reads, roster=name, benchmark=benchmark, rng=rng
                )
        for name in rosters:
            _layers(connection, build, reader=reads, roster=name, rng=rng)
        _others(connection, build, roster, rosters, reads=reads, sees=sees, rng=rng)
    with recorded(connection, stage="compare", command="python -m tests.invented_atlas --compare") as later:
        connection.execute("UPDATE clusters SET build_id = ?", [later])
    connection.close()
    return publish(work, folder)


def _published(connection, build, roster):
    """A second reader whose curve somebody else published."""
    write_proxies(connection, pd.DataFrame([{"proxy": "vast", "name": "Vast-70B"}]))
    reader = write_reader(
        connection, method="reader-paper", name="READER on Vast-70B", proxy="vast", view="ur", origin="published"
    )
    values = np.array([0.3, 0.6, 0.8, 0.9, 0.95, 0.99])
    metrics = {"accuracy": values, "macro_f1": values, "nll_mean": 1 - values, "ece_mean": 0.2 * values}
    frame = pd.concat(
        [
            pd.DataFrame({"k": BUDGETS, "reduction": "pooled", "metric": metric, "value": column, "n": 600})
            for metric, column in metrics.items()
        ]
    )
    key = {"reader": reader, "roster": roster, "benchmark": "agent500", "condition": "clean"}
    replace_rows(connection, "attribution_metrics", frame.assign(seed=None, fold=None, std=np.nan), key, build)


def _geometry(connection, build, part, vectors, *, reader, roster, domain, rng):
    labels = part["label"].to_numpy()
    key = {"reader": reader, "roster": roster, "domain": domain}
    cosine = vectors @ vectors.T
    off = cosine[~np.eye(len(labels), dtype=bool)]
    rows = []
    for one in range(len(labels)):
        order = [other for other in np.argsort(-cosine[one], kind="stable") if other != one]
        for rank, other in enumerate(order, start=1):
            below = float((off < cosine[one, other]).mean())
            rows.append((labels[one], labels[other], rank, cosine[one, other], below))
    frame = pd.DataFrame(rows, columns=["source", "neighbor", "rank", "cosine", "percentile"])
    replace_rows(connection, "neighbors", frame, key, build)
    frames, quality = [], []
    for method, scale in (("tsne", 14.0), ("umap", 5.0), ("pca", 1.0)):
        for dimensions in (2, 3):
            plane = np.linalg.qr(rng.normal(size=(16, 3)))[0]
            flat = scale * (vectors @ plane + 0.02 * rng.normal(size=(len(labels), 3)))
            frames.append(
                pd.DataFrame(
                    {
                        "method": method,
                        "dimensions": dimensions,
                        "source": labels,
                        "x": flat[:, 0],
                        "y": flat[:, 1],
                        "z": flat[:, 2] if dimensions == 3 else np.nan,
                    }
                )
            )
            for metric in ("trustworthiness_5", "trustworthiness_10", "knn_jaccard_10"):
                quality.append((method, dimensions, metric, rng.uniform(0.7, 0.95), json.dumps({"seed": 42})))
    replace_rows(connection, "projections", pd.concat(frames, ignore_index=True), key, build)
    quality += [
        ("tsne-sweep", 2, metric, 0.9, json.dumps({"seed": seed, "perplexity": perplexity}))
        for metric in ("trustworthiness_5", "trustworthiness_10", "knn_jaccard_10")
        for perplexity in (10.0, 50.0)
        for seed in (0, 1)
    ]
    columns = ["method", "dimensions", "metric", "value", "settings"]
    replace_rows(connection, "projection_quality", pd.DataFrame(quality, columns=columns), key, build)
    flat = frames[0]
    square = {"x": [[-9.0, 9.0, 9.0, -9.0, -9.0]], "y": [[-9.0, -9.0, 9.0, 9.0, -9.0]]}
    outline = pd.DataFrame({"method": [flat["method"].iloc[0]], "family": ["Qwen"], "mass": 0.5, "ring": 0, **square})
    replace_rows(connection, "density_regions", outline, key, build)
    replace_rows(connection, "clusters", cluster_frame(pd.concat(frames, ignore_index=True)), key, build)
    purity = pd.DataFrame(
        {"k": [1, 3, 5, 10], "purity": [0.7, 0.6, 0.5, 0.4], "expectation": 0.2, "p_value": 0.0001, "low": 0.3,
         "high": 0.8, "sources": len(labels), "families": 5}
    )  # fmt: skip
    replace_rows(connection, "family_purity", purity, key, build)


def _others(connection, build, roster, rosters, *, reads, sees, rng):
    """Other readers, another condition, and what lies beside plain attribution and geometry."""
    shortest = next(iter(rosters))
    size = rosters[shortest]
    words = write_reader(connection, method="ngram-word", name="Word n-grams")
    for name, (reader, condition) in {"words": (words, "clean"), "cut": (reads, "t64")}.items():
        part, own = roster.iloc[:size], np.random.default_rng(len(name))
        vectors = own.normal(size=(size, 16)) / 4
        _attribution(
            connection, build, part, vectors, reader=reader, roster=shortest, benchmark="agent500", rng=own,
            condition=condition,
        )  # fmt: skip
    test = {
        "subject": words,
        "reference": reads,
        "measure": "accuracy@100",
        "difference": -0.12,
        "low": -0.2,
        "high": -0.05,
        "p_value": 0.001,
        "p_holm": 0.004,
        "n": 60,
        "method": "cluster bootstrap and sign flips",
    }
    replace_rows(connection, "comparisons", pd.DataFrame([test]), {"hypotheses": f"endpoints/{shortest}"}, build)
    seen = [sees]
    for proxy in ("mid", "wide"):
        write_proxies(connection, pd.DataFrame([{"proxy": proxy, "name": f"{proxy.title()}-2M", "depth": 6}]))
        seen.append(write_reader(connection, method="reader-paper", name=f"READER on {proxy}", proxy=proxy, view="r"))
        vectors = rng.normal(size=(len(roster), 16))
        vectors += np.stack([np.full(16, float(len(family))) for family in roster["plot_family"]]) / 2
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        for name, count in rosters.items():
            part = roster.iloc[:count]
            _geometry(
                connection, build, part, vectors[:count], reader=seen[-1], roster=name, domain="agent500", rng=rng
            )
    for name, count in rosters.items():
        key = {"roster": name, "domain": "agent500"}
        agreement = [
            (one, other, metric, rng.uniform(0.4, 0.9))
            for place, one in enumerate(sorted(seen))
            for other in sorted(seen)[place + 1 :]
            for metric in ("spearman", "jaccard_10")
        ]
        columns = ["reader", "other", "metric", "value"]
        replace_rows(connection, "reader_agreement", pd.DataFrame(agreement, columns=columns), key, build)
        stability = [
            (fold, metric, rng.uniform(0.7, 0.95))
            for fold in range(5)
            for metric in ("spearman", "jaccard_10", "purity_5")
        ]
        frame = pd.DataFrame(stability, columns=["fold", "metric", "value"])
        replace_rows(connection, "prompt_stability", frame, {**key, "reader": sees}, build)
        # A chain: every source joins the cluster of those before it.
        steps = pd.DataFrame(
            {
                "step": range(count - 1),
                "left_node": [0, *range(count, 2 * count - 2)],
                "right_node": range(1, count),
                "height": np.linspace(0.1, 0.9, count - 1),
                "size": range(2, count + 1),
            }
        )
        replace_rows(connection, "dendrogram", steps, {**key, "reader": sees}, build)
        labels = list(roster["label"][:count])
        crossed = [
            (variant, "agent500", "math100", source, metric, value, labels[place - 1])
            for variant in ("raw", "centred")
            for place, source in enumerate(labels)
            for metric, value in (("rank", float(place + 1)), ("cosine", 0.8), ("best_other_cosine", 0.7))
        ]
        crossed += [
            (variant, "agent500", "math100", None, metric, rng.uniform(0.3, 0.9), None)
            for variant in ("raw", "centred")
            for metric in ("top1", "top5", "mrr", "wins_other")
        ]
        columns = ["variant", "query_domain", "gallery_domain", "source", "metric", "value", "best_other"]
        frame = pd.DataFrame(crossed, columns=columns)
        replace_rows(connection, "cross_domain", frame, {"reader": sees, "roster": name}, build)
        joint = [
            (
                variant,
                "tsne",
                dimensions,
                domain,
                source,
                *rng.normal(size=2),
                rng.normal() if dimensions == 3 else None,
            )
            for variant in ("raw", "centred")
            for dimensions in (2, 3)
            for domain in ("agent500", "math100")
            for source in labels
        ]
        columns = ["variant", "method", "dimensions", "domain", "source", "x", "y", "z"]
        frame = pd.DataFrame(joint, columns=columns)
        replace_rows(connection, "joint_projections", frame, {"reader": sees, "roster": name}, build)


def _attribution(connection, build, part, vectors, *, reader, roster, benchmark, rng, condition="clean"):
    labels = part["label"].to_numpy()
    families = part["plot_family"].to_numpy()
    key = {"reader": reader, "roster": roster, "benchmark": benchmark, "condition": condition}
    metrics, accuracies, confusions = [], [], []
    ease = rng.normal(size=len(labels))
    for k in BUDGETS:
        groups = 3 * 500 // k
        cells = np.zeros((len(labels), len(labels)), dtype=int)
        for one in range(len(labels)):
            logits = (vectors @ vectors[one]) * (1.2 + 0.4 * np.log(k))
            logits[one] += 0.6 + 0.5 * ease[one] + 1.25 * np.log(k)
            cells[one] = rng.multinomial(groups, np.exp(logits) / np.exp(logits).sum())
        right = np.diag(cells) / groups
        wrong = cells - np.diag(np.diag(cells))
        within = int(wrong[families[:, None] == families[None, :]].sum())
        for one, label in enumerate(labels):
            worst = int(wrong[one].argmax())
            any_wrong = wrong[one, worst] > 0
            accuracies.append(
                (k, label, right[one], groups // 3, labels[worst] if any_wrong else None, int(wrong[one, worst]))
            )
        confusions += [(k, labels[i], labels[j], int(cells[i, j])) for i, j in zip(*np.nonzero(cells), strict=True)]
        accuracy = float(right.mean())
        loss = -np.log(max(accuracy, 0.02))
        values = {
            "accuracy": accuracy, "macro_f1": accuracy * 0.98, "nll_sum": loss * 1.3, "nll_mean": loss * 2 + 0.3,
            "ece_sum": 0.08 + 0.1 * (1 - accuracy), "ece_mean": 0.3, "errors": int(wrong.sum()) / 3,
            "errors_within_family": within / 3,
        }  # fmt: skip
        for reduction in ("pooled", "fold"):
            for metric, value in values.items():
                spread = abs(value) * 0.02
                metrics.append((k, reduction, metric, None, None, value, spread, len(labels) * groups // 3))
                if reduction == "fold":
                    for fold in range(5):
                        drawn = value + spread * rng.normal()
                        metrics.append((k, reduction, metric, None, fold, drawn, None, len(labels) * groups // 15))
    columns = ["k", "reduction", "metric", "seed", "fold", "value", "std", "n"]
    replace_rows(connection, "attribution_metrics", pd.DataFrame(metrics, columns=columns), key, build)
    columns = ["k", "source", "accuracy", "n", "confused_with", "confused_count"]
    replace_rows(connection, "source_accuracy", pd.DataFrame(accuracies, columns=columns), key, build)
    columns = ["k", "truth", "predicted", "count"]
    replace_rows(connection, "confusion", pd.DataFrame(confusions, columns=columns), key, build)


def _layers(connection, build, *, reader, roster, rng):
    scores = [
        (outer, inner, layer, 0.1 + 0.3 * np.exp(-(((layer - 7) / 5) ** 2)) + 0.005 * rng.normal())
        for outer in range(5)
        for inner in range(5)
        if inner != outer
        for layer in range(1, 13)
    ]
    key = {"reader": reader, "roster": roster}
    frame = pd.DataFrame(scores, columns=["outer_fold", "inner_fold", "layer", "accuracy"])
    replace_rows(connection, "layer_scores", frame, key, build)
    chosen = pd.DataFrame({"outer_fold": [0, 1, 2, 3, 4, None], "layer": [7, 7, 8, 7, 6, 7]})
    replace_rows(connection, "layer_selection", chosen, key, build)

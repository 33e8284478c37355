"""Invented relationships in the tables of a work database: two families, readers measured here and published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from backend.store.builds import recorded
from backend.store.database import open_work, publish
from backend.store.writers import replace_rows, write_proxies, write_reader
from tests.invented_atlas import MARKUP, publish_invented

FAMILIES = {"Qwen/Qwen2-1.5B": 4, "google/gemma-2b": 4}
METRICS = ("accuracy", "precision", "recall", "f1", "auc")
METHOD = "split bootstrap and sign flips"
SETS = {"pair_disjoint": 8, "disjoint_union": 20}
BLOCKS = {"dc": ("dc",), "ac": ("ac",), "dc-ac": ("dc", "ac")}
DECISIONS = {"pair_disjoint": ("decision",), "disjoint_union": ("decision-model", "decision-family")}


def invented_models() -> pd.DataFrame:
    """Two parents with four children each; one child's name is markup, one answered nothing."""
    rows = []
    for parent, children in FAMILIES.items():
        rows.append((parent, parent, True, 0))
        for child in range(children):
            name = (
                MARKUP
                if (parent.startswith("google") and child == 3)
                else f"{parent.split('/')[1].lower()}/child-{child}"
            )
            rows.append((name, parent, False, 600 if child == 2 else 0))
    return pd.DataFrame(rows, columns=["model", "parent_family", "is_parent", "empty_responses"])


def invented_pairs(pair_set: str, unrelated: int) -> pd.DataFrame:
    """Every parent with each of its children, and as many strangers as asked for."""
    models = invented_models()
    one, other = (models[models["parent_family"] == parent]["model"].tolist() for parent in FAMILIES)
    related = [(family[0], child, True) for family in (one, other) for child in family[1:]]
    strangers = [(a, b, False) for a in one for b in other][:unrelated]
    frame = pd.DataFrame([*related, *strangers], columns=["model_a", "model_b", "related"])
    return frame.assign(pair_id=[f"{pair_set}-{place}" for place in range(len(frame))])


def write_relationships(work: Path, *, reader: bool = True) -> None:
    """Add relationships to a work database.

    MPT is measured under all protocols; READER on Tiny-1M, where asked for, too. READER on Vast-70B is published: the
    scores of the pair split and no decision. MPT has a published number beside its measured one.
    """
    connection = open_work(work)
    rng = np.random.default_rng(3)
    for stage, origin in (("relate", "measured"), ("reference", "published")):
        with recorded(
            connection, stage=stage, command=f"python -m jobs {stage}", data_hash="d" * 64, origin=origin
        ) as build:
            if stage == "relate":
                for parent, frame in invented_models().groupby("parent_family"):
                    replace_rows(connection, "relationship_models", frame, {"parent_family": parent}, build)
                for pair_set, count in SETS.items():
                    frame = invented_pairs(pair_set, count)
                    replace_rows(connection, "relationship_pairs", frame, {"pair_set": pair_set}, build)
                mpt = write_reader(connection, method="mpt", name="MPT")
                _reader(connection, build, mpt, {"match": ("match",)}, SETS, True, rng)
                if reader:
                    write_proxies(connection, pd.DataFrame([{"proxy": "tiny", "name": "Tiny-1M", "depth": 12}]))
                    tiny = write_reader(connection, method="reader-paper", name="READER", proxy="tiny", view="ur")
                    _reader(connection, build, tiny, BLOCKS, SETS, True, rng)
                    _tests(connection, build, f"{tiny}", "mpt", "")
            else:
                write_proxies(connection, pd.DataFrame([{"proxy": "vast", "name": "Vast-70B"}]))
                vast = write_reader(
                    connection, method="reader-paper", name="READER", proxy="vast", view="ur", origin="published"
                )
                _reader(connection, build, vast, BLOCKS, {"pair_disjoint": 8}, False, rng)
                again = write_reader(connection, method="published-mpt", name="published-mpt", origin="published")
                _metrics(connection, build, again, "match", ("pair",), 0.7, False)
                _tests(connection, build, vast, "published-mpt", "published/")
    connection.close()


def _reader(connection, build, reader, readouts, sets, decides, rng):
    names = sorted({name for held in readouts.values() for name in held})
    parts = []
    for pair_set, count in sets.items():
        pairs = invented_pairs(pair_set, count)
        related = pairs["related"].to_numpy(float)
        scores = {name: 0.4 + 0.4 * related + 0.1 * rng.random(len(pairs)) for name in names}
        # One related pair that looks like a stranger, one stranger that looks related.
        for name in names:
            scores[name][0], scores[name][-1] = 0.41, 0.95
        if decides:
            lead = 4 * (sum(scores.values()) / len(scores) - 0.65)
            scores |= dict.fromkeys(DECISIONS[pair_set], lead)
        parts += [
            pd.DataFrame({"pair_set": pair_set, "pair_id": pairs["pair_id"], "feature": name, "value": value})
            for name, value in scores.items()
        ]
    key = {"reader": reader}
    replace_rows(connection, "relationship_features", pd.concat(parts, ignore_index=True), key, build)
    protocols = ("pair", "model", "family") if decides else ("pair", "family")
    for place, readout in enumerate(readouts):
        _metrics(connection, build, reader, readout, protocols, 0.6 + 0.08 * place, decides)


def _metrics(connection, build, reader, readout, protocols, value, ranged):
    for protocol in protocols:
        rows = [(metric, None, value, 0.05, value - 0.04 if ranged else None, value + 0.04 if ranged else None, 20)
                for metric in METRICS]  # fmt: skip
        rows += [(metric, split, value, None, None, None, 24) for metric in METRICS for split in range(2)]
        frame = pd.DataFrame(rows, columns=["metric", "split", "value", "std", "low", "high", "n"])
        key = {"reader": reader, "protocol": protocol, "readout": readout}
        replace_rows(connection, "relationship_metrics", frame.astype({"split": "Int64"}), key, build)


def _tests(connection, build, reader, text, prefix):
    for protocol in ("model", "family"):
        for name, references in (("components", (f"{reader}:dc", f"{reader}:ac")), ("baselines", (f"{text}:match",))):
            rows = [
                (f"{reader}:dc-ac", reference, measure, 0.1 - 0.15 * place, -0.1, 0.2, 0.004, 0.012, 20, METHOD)
                for place, reference in enumerate(references)
                for measure in ("accuracy", "f1", "auc")
            ]
            columns = [
                "subject",
                "reference",
                "measure",
                "difference",
                "low",
                "high",
                "p_value",
                "p_holm",
                "n",
                "method",
            ]
            key = {"hypotheses": f"{prefix}relationships/{name}/{protocol}"}
            replace_rows(connection, "comparisons", pd.DataFrame(rows, columns=columns), key, build)


def publish_related(folder: Path, *, reader: bool = True) -> Path:
    """Publish an invented atlas with relationships into ``folder`` and return its file."""
    publish_invented(folder)
    work = folder / "work" / "work.duckdb"
    write_relationships(work, reader=reader)
    return publish(work, folder)

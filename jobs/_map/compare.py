"""Several readers on one roster: agreement, Holm's correction, and candidate pairs under everybody's ranks.

Works on what the single maps have written, so it can be repeated without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from backend.errors import AtlasError
from backend.geometry.candidates import PAPER_PAIRS, pair_ranks, passing_pairs, rank_rule
from backend.geometry.neighborhoods import reader_agreement
from backend.geometry.purity import HOLM_KS, holm_over_readers
from backend.geometry.signatures import Float
from backend.release import Benchmark, Release
from backend.store import queries
from backend.store.builds import recorded
from backend.store.writers import replace_rows
from jobs import _common

PUBLISHED_RANKS = Path("results") / "geometry" / "agent500" / "cross_provider_ranks.csv"
PUBLISHED_FOR = ("100-way", "agent500")
"""Roster and domain that the paper ranked its candidates on."""
PURITY_COLUMNS = [
    "reader",
    "k",
    "purity",
    "expectation",
    "p_value",
    "low",
    "high",
    "sources",
    "families",
    "build_id",
]
KEPT = 50
"""Passing pairs of different families that a build's details name."""
Pair = tuple[str, str]


def compare(
    connection: duckdb.DuckDBPyConnection, release: Release, roster: str, domain: Benchmark, pairs: Sequence[Pair] = ()
) -> None:
    """Write what can be said about all measured readers of a roster and domain.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
    release : Release
        Its published ranks of the paper's candidates stand beside ours.
    roster, domain : str
    pairs : sequence of (str, str)
        Pairs asked for beside the paper's.

    Raises
    ------
    AtlasError
        If a pair names a source that the roster does not have, or there is no map to compare.
    """
    members = queries.sources(connection, roster)
    names, families = members["source"].tolist(), members["family"].tolist()
    for pair in pairs:
        if unknown := [source for source in pair if source not in names]:
            raise AtlasError(f"{roster} has no source '{unknown[0]}'", "Name sources by their label in the roster")
        if pair[0] == pair[1]:
            raise AtlasError(f"'{pair[0]}' is asked to be compared with itself", "Name two different sources")
    cosines = stored_cosines(connection, roster, domain, names)
    if not cosines:
        raise AtlasError(f"There is no map of {domain} on {roster}", f"Run: python -m jobs map --roster {roster}")
    asked = [pair for pair in PAPER_PAIRS if set(pair) <= set(names)]
    asked += [pair for pair in pairs if pair not in asked and pair[::-1] not in asked]
    details: dict[str, object] = {"roster": roster, "domain": domain, "readers": sorted(cosines)}
    print(f"{len(cosines)} measured readers on {domain}, {roster}")
    with recorded(
        connection, stage="compare", command=_common.command_line(), data_hash=release.manifest_hash, details=details
    ) as build:
        agreement = reader_agreement(cosines)
        for (reader, other), part in agreement.groupby(["reader", "other"]):
            key = {"reader": reader, "other": other, "roster": roster, "domain": domain}
            replace_rows(connection, "reader_agreement", part, key, build)
        _report_agreement(agreement)
        purity = _correct(connection, roster, domain, sorted(cosines))
        details["hypotheses"] = int(purity["p_holm"].notna().sum())
        ranks = candidate_ranks(cosines, names, asked)
        if (roster, domain) == PUBLISHED_FOR:
            ranks = pd.concat([ranks, published_ranks(release.root, asked)], ignore_index=True)
        rules = candidate_rules(ranks)
        _report_rules(purity, rules)
        details["candidates"] = {"ranks": ranks.to_dict("records"), "rules": rules.to_dict("records")}
        if len(cosines) > 1:  # one reader agrees with itself
            passing = passing_pairs(cosines, names, families)
            details["passing_pairs"] = {"count": len(passing), "first": passing.head(KEPT).to_dict("records")}
            print(f"  {len(passing)} pairs of different families pass under the {len(cosines)} measured readers")


def stored_cosines(
    connection: duckdb.DuckDBPyConnection, roster: str, domain: str, names: Sequence[str]
) -> dict[str, Float]:
    """Cosine matrices of all measured readers with a complete map, in roster order."""
    known = queries.readers(connection)
    cosines = {}
    order = pd.Index(names)
    for reader in known.loc[known["origin"] == "measured", "reader"]:
        near = queries.neighbors(connection, reader, roster, domain)
        if len(near) == len(names) * (len(names) - 1) > 0:
            wide = near.pivot(index="source", columns="neighbor", values="cosine").reindex(index=order, columns=order)
            cosine = wide.to_numpy(dtype=np.float64, copy=True)
            np.fill_diagonal(cosine, 1.0)
            cosines[str(reader)] = cosine
    return cosines


def candidate_ranks(cosines: Mapping[str, Float], names: Sequence[str], pairs: Sequence[Pair]) -> pd.DataFrame:
    """Ranks of pairs under measured readers (columns reader, role 'measured' and those of ``pair_ranks``)."""
    columns = ["reader", "role", "left", "right", "left_to_right", "right_to_left", "mutual_rank", "cosine"]
    frames = [
        pair_ranks(cosine, names, pairs).assign(reader=reader, role="measured") for reader, cosine in cosines.items()
    ]
    return pd.concat(frames, ignore_index=True)[columns]


def published_ranks(root: Path, pairs: Sequence[Pair]) -> pd.DataFrame:
    """Ranks of the paper's pairs under its eight proxies; empty without result files.

    Returns
    -------
    DataFrame
        Columns of :func:`candidate_ranks`; role is 'published-main' or 'published-full'.
    """
    columns = ["reader", "role", "left", "right", "left_to_right", "right_to_left", "mutual_rank", "cosine"]
    path = root / PUBLISHED_RANKS
    if not path.is_file():
        return pd.DataFrame(columns=columns)
    table = pd.read_csv(path)
    frame = pd.DataFrame(
        {
            "reader": table["proxy"],
            "role": "published-" + table["role"],
            "left": table["left_label"],
            "right": table["right_label"],
            "left_to_right": table["left_to_right_rank"],
            "right_to_left": table["right_to_left_rank"],
            "mutual_rank": table["mutual_rank"],
            "cosine": 1.0 - table["cosine_distance"],
        }
    )
    wanted = [pair in set(pairs) for pair in zip(frame["left"], frame["right"], strict=True)]
    return frame[wanted].reset_index(drop=True)


def candidate_rules(ranks: pd.DataFrame) -> pd.DataFrame:
    """The rule over the paper's main proxies, over all of its proxies, over the measured readers, and over everybody.

    Returns
    -------
    DataFrame
        Column over ('published-main', 'published', 'measured', 'all') and those of ``rank_rule``; sets without a
        reader are absent.
    """
    published = ranks["role"].str.startswith("published")
    sets = {
        "published-main": ranks["role"] == "published-main",
        "published": published,
        "measured": ~published,
        "all": pd.Series(published.any(), index=ranks.index),
    }
    frames = [rank_rule(ranks[chosen]).assign(over=name) for name, chosen in sets.items() if chosen.any()]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["over"])


def _correct(connection: duckdb.DuckDBPyConnection, roster: str, domain: str, readers: Sequence[str]) -> pd.DataFrame:
    """Write Holm's correction over measured readers x k in {1, 5}; the rows stay with the build of their map."""
    purity = queries.family_purity(connection, roster, domain)
    purity = purity.loc[purity["reader"].isin(list(readers)), PURITY_COLUMNS].reset_index(drop=True)
    purity["p_holm"] = holm_over_readers(purity)
    for reader, part in purity.groupby("reader"):
        key = {"reader": reader, "roster": roster, "domain": domain}
        for build, rows in part.groupby("build_id"):
            replace_rows(connection, "family_purity", rows, {**key, "build_id": build}, str(build))
    return purity


def _report_agreement(agreement: pd.DataFrame) -> None:
    for (reader, other), part in agreement.groupby(["reader", "other"]):
        value = part.set_index("metric")["value"]
        print(
            f"  {reader} and {other}: Spearman {value.get('spearman', np.nan):.3f}, "
            f"ten nearest {value['jaccard_10']:.3f} in common"
        )


def _report_rules(purity: pd.DataFrame, rules: pd.DataFrame) -> None:
    tested = purity[purity["p_holm"].notna()]
    if len(tested):
        print(
            f"  purity at k = {', '.join(map(str, HOLM_KS))}: {len(tested)} tests, "
            f"largest Holm p = {tested['p_holm'].max():.2g}"
        )
    for row in rules.itertuples():
        verdict = "passes" if row.passes else "does not pass"
        print(
            f"  {row.left} / {row.right} over {row.over}: {row.within}/{row.readers} within ten, "
            f"median {row.median_rank:.1f}, {verdict}"
        )

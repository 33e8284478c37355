"""Questions that one page each asks: Attribute, Map, Compare and Relationships."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from backend.store import Cursor, frame_of, select

# ---- Attribute: what the evidence of an audit is worth --------------------------------------------------------------

COLUMNS = (
    *("condition", "part", "k", "metric", "scenario", "statistic", "rule", "level", "space"),
    *("value", "std", "n", "build_id"),
)


def validation(
    cursor: Cursor,
    reader: str,
    roster: str,
    condition: str | None = None,
    k: int | None = None,
    part: str | None = None,
) -> pd.DataFrame:
    """Validation of a reader's audit on a roster, columns :data:`COLUMNS`, in a fixed order.

    k : traces; of every part and condition the rows of the nearest measured number are given, in its logarithm.
    """
    filters = {"reader": reader, "roster": roster, "condition": condition, "part": part}
    given: dict[str, object] = {name: value for name, value in filters.items() if value is not None}
    where = " AND ".join(f"{name} = ${name}" for name in given)
    if k is not None:
        given["k"] = k
        where += " QUALIFY abs(ln(k / $k)) = min(abs(ln(k / $k))) OVER (PARTITION BY condition, part)"
    sql = f"SELECT {', '.join(COLUMNS)} FROM audit_validation WHERE {where} ORDER BY {', '.join(COLUMNS[:-4])}"
    return cursor.execute(sql, given).df()


def validated(cursor: Cursor) -> pd.DataFrame:
    """What was validated, of which numbers of traces."""
    sql = """
        SELECT reader, roster, condition, part, min(k) AS smallest, max(k) AS largest, count(*) AS rows
        FROM audit_validation GROUP BY ALL ORDER BY ALL"""
    return cursor.execute(sql).df()


def mixtures(cursor: Cursor) -> pd.DataFrame:
    """Coverage of 95 % intervals of shares by the role of a source, false alarms, and the smallest detectable share."""
    sql = """
        SELECT reader, roster, k,
            max(value) FILTER (metric = 'share_coverage' AND statistic = 'claimed' AND level IS NULL) AS claimed,
            max(value) FILTER (metric = 'share_coverage' AND statistic = 'leading' AND level IS NULL) AS leading,
            max(value) FILTER (metric = 'share_coverage' AND statistic = 'other' AND level IS NULL) AS other,
            max(value) FILTER (metric = 'found' AND scenario = 'any' AND level = 0) AS false_alarms,
            max(value) FILTER (metric = 'detectable' AND scenario = 'any') AS detectable,
            max(value) FILTER (metric = 'detectable' AND scenario = 'sibling') AS detectable_sibling,
            max(n) FILTER (metric = 'share_coverage') AS mixtures, any_value(build_id) AS build_id
        FROM audit_validation WHERE part = 'mixture' GROUP BY reader, roster, k ORDER BY reader, roster, k"""
    return cursor.execute(sql).df()


def drift(cursor: Cursor, reader: str) -> pd.DataFrame:
    """Alarms of the drift test on undamaged responses, the longest roster first: share of n pairs, k traces each."""
    sql = """
        SELECT roster, condition, k, scenario, statistic, space, level, value, std, v.n
        FROM audit_validation v WHERE part = 'drift' AND condition = 'clean' AND reader = ?
        ORDER BY (SELECT count(*) FROM roster_members m WHERE m.roster = v.roster) DESC, roster, scenario,
            statistic, k"""
    return cursor.execute(sql, [reader]).df()


def pools(cursor: Cursor) -> pd.DataFrame:
    """What unlabelled traffic changes, by kind of traffic and number of traces.

    Of scores as they are and of balanced ones (suffix ``_pool``): the share that is named right, the probability that
    is stated of it, and the share of enrolled sources that the unknown-source test rejects.
    """
    names = {"realised": "right", "probability": "stated", "false_unknown": "rejected"}
    values = ", ".join(
        f"max(value) FILTER (metric = '{metric}' AND statistic = '{statistic}') AS {name}{suffix}"
        for metric, name in names.items()
        for statistic, suffix in (("clean", ""), ("background", "_pool"))
    )
    sql = f"""
        SELECT reader, roster, split_part(scenario, ', ', 2) AS traffic, k, {values}, max(n) AS n
        FROM audit_validation WHERE part = 'transfer' AND starts_with(scenario, 'unlabelled traffic')
        GROUP BY reader, roster, scenario, k ORDER BY reader, roster, scenario, k"""
    return cursor.execute(sql).df()


def references(cursor: Cursor) -> pd.DataFrame:
    """Alarms of the paired test against a reference: a source asked twice, a sibling, another family.

    The test reads a proxy's fingerprints and no readout: readers of one proxy share their rows, whose ``reader`` is
    the proxy's name. ``asked_twice``: of two draws of the same sources; else of the release.
    """
    values = ", ".join(
        f"max(value) FILTER (scenario = '{scenario}') AS {scenario}" for scenario in ("same", "sibling", "family")
    )
    sql = f"""
        WITH shares AS (
            SELECT reader, roster, part = 'repeated' AS asked_twice, k, {values}, max(n) AS n
            FROM audit_validation
            WHERE part IN ('repeated', 'drift') AND statistic = 'energy-paired' AND space = 'fingerprints'
            GROUP BY reader, roster, part, k)
        SELECT DISTINCT coalesce(proxies.name, reader) AS reader, roster, asked_twice, k, same, sibling, family, n
        FROM shares LEFT JOIN readers USING (reader) LEFT JOIN proxies USING (proxy)
        ORDER BY asked_twice DESC, reader, roster, k"""
    return cursor.execute(sql).df()


def streams(cursor: Cursor) -> pd.DataFrame:
    """Watched streams of held-out traces: share with an alarm, and how many traces after a change it comes."""
    sql = """
        SELECT reader, roster, scenario, k, level, max(value) FILTER (metric = 'alarms') AS alarms,
            round(max(value) FILTER (metric = 'delay_traces')) AS delay,
            round(max(value) FILTER (metric = 'delay90_traces')) AS delay90, max(n) AS n
        FROM audit_validation WHERE part = 'drift' AND statistic = 'e-process'
        GROUP BY reader, roster, scenario, k, level
        ORDER BY reader, roster, level,
            list_position(['resampled', 'parted', 'mixture', 'sibling', 'family'], scenario), k"""
    return cursor.execute(sql).df()


# ---- Map: both domains in one space, where it is dense, and who else agrees -----------------------------------------


def joint_projection(
    cursor: Cursor, reader: str, roster: str, variant: str, method: str = "tsne", dimensions: int = 3
) -> pd.DataFrame:
    """Sources of both domains on one map (variant: signatures as they are, or less the mean of their domain)."""
    sql = """
        SELECT m.position, p.domain, source, name, family, access, x, y, z
        FROM joint_projections p JOIN roster_members m USING (roster, source) JOIN sources USING (source)
        WHERE reader = ? AND roster = ? AND variant = ? AND method = ? AND dimensions = ?
        ORDER BY p.domain, m.position"""
    return frame_of(cursor, sql, [reader, roster, variant, method, dimensions])


def projection_sweep(cursor: Cursor, reader: str, roster: str, domain: str) -> pd.DataFrame:
    """How far maps of other settings can be trusted, one row a map and metric."""
    sql = """
        SELECT method, dimensions, (settings->>'perplexity')::DOUBLE AS perplexity, metric, value, settings, build_id
        FROM projection_quality WHERE {where} AND method LIKE '%-sweep'
        ORDER BY method, dimensions, perplexity, settings->>'seed', metric"""
    return select(cursor, sql, reader=reader, roster=roster, domain=domain)


def density_regions(
    cursor: Cursor, reader: str, roster: str, domain: str, method: str, mass: float = 0.5
) -> pd.DataFrame:
    """Outlines within which a share of every large family lies on a 2-D map; x, y are lists."""
    sql = "SELECT family, ring, x, y FROM density_regions WHERE {where} ORDER BY family, ring"
    return select(cursor, sql, reader=reader, roster=roster, domain=domain, method=method, mass=mass)


def clusters(
    cursor: Cursor, reader: str, roster: str, domain: str, method: str = "tsne", dimensions: int = 3
) -> pd.DataFrame:
    """Which sources lie close together on a map; those in no cluster are absent."""
    sql = "SELECT source, cluster FROM clusters WHERE {where} AND cluster IS NOT NULL ORDER BY cluster, source"
    return select(cursor, sql, reader=reader, roster=roster, domain=domain, method=method, dimensions=dimensions)


def neighbor_votes(
    cursor: Cursor, roster: str, domain: str, source: str, within: int = 10, readers: Sequence[str] | None = None
) -> pd.DataFrame:
    """How many readers, and proxies, by default all that ranked the two, have each source among the nearest of one."""
    sql = """
        SELECT neighbor, count(*)::INTEGER AS readers, (count(*) FILTER (rank <= $within))::INTEGER AS near,
            count(DISTINCT proxy)::INTEGER AS proxies,
            (count(DISTINCT proxy) FILTER (rank <= $within))::INTEGER AS near_proxies
        FROM neighbors JOIN readers USING (reader) WHERE roster = $roster AND domain = $domain AND source = $source
            AND ($readers::VARCHAR[] IS NULL OR list_contains($readers::VARCHAR[], reader))
        GROUP BY neighbor ORDER BY near DESC, neighbor"""
    chosen = None if readers is None else list(readers)
    about = {"roster": roster, "domain": domain, "source": source, "within": within, "readers": chosen}
    return frame_of(cursor, sql, about)


def domain_ranks(cursor: Cursor, reader: str, roster: str) -> pd.DataFrame:
    """Median rank of a source among the signatures of another domain, by variant and the domain it is sought from."""
    sql = """
        SELECT variant, query_domain, median(value) AS median FROM cross_domain
        WHERE reader = ? AND roster = ? AND metric = 'rank' AND source IS NOT NULL GROUP BY ALL ORDER BY ALL"""
    return frame_of(cursor, sql, [reader, roster])


def voting_proxies(cursor: Cursor, roster: str, domain: str, source: str) -> pd.DataFrame:
    """Proxies of the readers that :func:`neighbor_votes` counts (columns proxy, name)."""
    sql = """
        SELECT DISTINCT r.proxy, coalesce(p.name, r.proxy) AS name
        FROM neighbors JOIN readers r USING (reader) LEFT JOIN proxies p ON p.proxy = r.proxy
        WHERE roster = $roster AND domain = $domain AND source = $source AND r.proxy IS NOT NULL ORDER BY name"""
    return frame_of(cursor, sql, {"roster": roster, "domain": domain, "source": source})


# ---- Compare: parts, variance, capability, cost, and what the paper printed -----------------------------------------


def variance_ratios(cursor: Cursor, roster: str) -> pd.DataFrame:
    """Source-to-prompt variance of readers at the block that they read: means over n folds, std of their ratios."""
    sql = """
        WITH chosen AS (
            SELECT reader, max(layer) AS layer FROM layer_selection WHERE outer_fold IS NULL AND roster = $roster
            GROUP BY reader
        ), read_at AS (
            SELECT v.reader, coalesce(max(own.layer), max(with_prompt.layer)) AS layer FROM variance_ratios v
            LEFT JOIN chosen own ON own.reader = v.reader
            LEFT JOIN chosen with_prompt ON with_prompt.reader = regexp_replace(v.reader, '/r$', '/ur')
            WHERE v.roster = $roster GROUP BY v.reader
        ), spread AS (
            SELECT reader, layer, block, stddev_pop(ratio) AS std, count(*)::INTEGER AS n FROM variance_ratios
            WHERE roster = $roster AND fold IS NOT NULL GROUP BY reader, layer, block
        )
        SELECT v.reader, r.origin, p.name AS proxy_name, input_view AS view, v.layer, v.block, source_variance,
            prompt_variance, ratio, std, coalesce(n, 0)::INTEGER AS n, v.build_id
        FROM variance_ratios v JOIN readers r ON r.reader = v.reader JOIN read_at ON read_at.reader = v.reader
        LEFT JOIN proxies p ON p.proxy = r.proxy
        LEFT JOIN spread s ON s.reader = v.reader AND s.layer = v.layer AND s.block = v.block
        WHERE v.roster = $roster AND fold IS NULL AND v.layer = coalesce(read_at.layer, v.layer)
        ORDER BY r.origin, v.reader, v.layer, v.block"""
    return frame_of(cursor, sql, {"roster": roster})


def capability(cursor: Cursor, readers: Sequence[str], roster: str, k: int) -> pd.DataFrame:
    """General capability of proxies (score in percent) and pooled accuracy of readers with them on whole Agent500."""
    sql = """
        SELECT c.benchmark, c.proxy, p.name AS proxy_name, input_view AS view, r.reader, origin, score, a.value,
            c.build_id
        FROM capability_scores c JOIN readers r ON r.proxy = c.proxy
        JOIN attribution_metrics a ON a.reader = r.reader AND a.roster = $roster AND a.benchmark = 'agent500'
            AND condition = 'clean' AND metric = 'accuracy' AND reduction = 'pooled' AND seed IS NULL AND fold IS NULL
            AND k = $k
        LEFT JOIN proxies p ON p.proxy = c.proxy
        WHERE list_contains($readers::VARCHAR[], r.reader) ORDER BY c.benchmark, score, r.reader"""
    return frame_of(cursor, sql, {"readers": list(readers), "roster": roster, "k": k})


def correlations(cursor: Cursor) -> pd.DataFrame:
    """Correlations over proxies."""
    columns = "subject, reference, statistic, value, p_value, n, build_id"
    return frame_of(cursor, f"SELECT {columns} FROM correlations ORDER BY subject, reference, statistic")


def costs(cursor: Cursor, roster: str) -> pd.DataFrame:
    """What readers cost."""
    sql = """
        SELECT reader, origin, method, measure, value, unit, hardware, c.build_id
        FROM costs c JOIN readers USING (reader) WHERE roster = ? ORDER BY origin, reader, measure"""
    return frame_of(cursor, sql, [roster])


# ---- Relationships: is one model derived from the other (paper, Transfer to Unseen Models)? -------------------------

SCORES = ("dc", "ac", "match", "distance", "decision", "decision-model", "decision-family")
"""Features that pages show: cosines of the two blocks, a matcher's rate, a distance, mean decision by protocol."""


def measured_splits(cursor: Cursor) -> pd.DataFrame:
    """Metrics of single splits that were measured here."""
    sql = """
        SELECT reader, protocol, readout, metric, split, value FROM relationship_metrics JOIN readers USING (reader)
        WHERE origin = 'measured' AND split IS NOT NULL ORDER BY reader, protocol, readout, metric, split"""
    return frame_of(cursor, sql)


def relationship_readers(cursor: Cursor) -> pd.DataFrame:
    """Readers with relationships, measured ones first; pairs : of which a score is stored."""
    sql = """
        SELECT reader, r.name, method, r.proxy, p.name AS proxy_name, input_view AS view, origin,
            (SELECT count(DISTINCT (pair_set, pair_id)) FROM relationship_features f WHERE f.reader = r.reader)
                ::INTEGER AS pairs
        FROM readers r LEFT JOIN proxies p ON p.proxy = r.proxy
        WHERE reader IN (SELECT reader FROM relationship_metrics)
        ORDER BY origin, method = 'reader-paper' DESC, method, r.proxy, input_view DESC, reader"""
    return frame_of(cursor, sql)


def relationship_summaries(cursor: Cursor, protocol: str) -> pd.DataFrame:
    """Means over the n splits of a protocol; low and high are NaN where no interval is stored."""
    sql = """
        SELECT reader, origin, readout, metric, value, std, low, high, n, m.build_id
        FROM relationship_metrics m JOIN readers USING (reader)
        WHERE protocol = ? AND split IS NULL ORDER BY origin, reader, readout, metric"""
    return frame_of(cursor, sql, [protocol])


def relationship_models(cursor: Cursor) -> pd.DataFrame:
    """Models of the task by parent, parents first."""
    sql = """
        SELECT model, parent_family, is_parent, empty_responses FROM relationship_models
        ORDER BY lower(parent_family), is_parent DESC, lower(model)"""
    return frame_of(cursor, sql)


def relationship_pairs(cursor: Cursor) -> pd.DataFrame:
    """Pairs with their truth; parents are families."""
    sql = """
        SELECT pair_set, pair_id, model_a, model_b, a.parent_family AS parent_a, b.parent_family AS parent_b, related
        FROM relationship_pairs LEFT JOIN relationship_models a ON a.model = model_a
        LEFT JOIN relationship_models b ON b.model = model_b ORDER BY pair_set, pair_id"""
    return frame_of(cursor, sql)


def relationship_scores(cursor: Cursor, pair_set: str, reader: str | None = None) -> pd.DataFrame:
    """Scores of one reader, or of every one, for every pair of a set, by :data:`SCORES` with '_' for '-'."""
    wide = ", ".join(f"max(value) FILTER (feature = '{name}') AS {name.replace('-', '_')}" for name in SCORES)
    sql = f"""
        SELECT reader, pair_id, {wide} FROM relationship_features
        WHERE pair_set = ? AND reader = coalesce(?, reader) GROUP BY reader, pair_id ORDER BY reader, pair_id"""
    return frame_of(cursor, sql, [pair_set, reader])


def relationship_tests(cursor: Cursor, protocol: str) -> pd.DataFrame:
    """Paired comparisons of readouts under a protocol, each once in every set that corrected it."""
    sql = """
        SELECT hypotheses, regexp_extract(subject, '^(.*):', 1) AS subject,
            regexp_extract(subject, '([^:]*)$', 1) AS subject_readout,
            regexp_extract(reference, '^(.*):', 1) AS reference,
            regexp_extract(reference, '([^:]*)$', 1) AS reference_readout,
            measure, difference, low, high, p_value, p_holm, n, method, origin, build_id
        FROM comparisons JOIN builds USING (build_id)
        WHERE regexp_matches(hypotheses, '(^|/)relationships/[^/]+/' || ? || '$')
        ORDER BY origin, hypotheses, measure, p_holm, p_value, subject, reference"""
    return frame_of(cursor, sql, [protocol])

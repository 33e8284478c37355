"""Questions of the web, one function each, in the order of its pages; one page's own are in ``page_queries``.

An answer is a tidy frame, empty where nothing was measured. Sources come in roster order unless a function says
otherwise; ``position`` is their place in it. Accuracies and shares lie between 0 and 1, NLL is in nats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from backend.protocol import BUDGETS
from backend.store import Cursor, frame_of, select, with_lists
from backend.store.database import key_table
from backend.store.writers import columns_of, matching


def readers(cursor: Cursor) -> pd.DataFrame:
    """Readers of which something is stored, with lists of where: rosters (shortest first), domains with a map."""
    sql = """
        WITH seen AS (
            SELECT DISTINCT reader, roster, benchmark, condition, NULL::VARCHAR AS domain FROM attribution_metrics
            UNION SELECT DISTINCT reader, roster, benchmark, condition, NULL FROM source_accuracy_lists
            UNION SELECT DISTINCT reader, roster, NULL, NULL, domain FROM projections
            UNION SELECT DISTINCT reader, roster, NULL, NULL, domain FROM neighbors_lists
        ), sizes AS (
            SELECT roster, count(*) AS size FROM roster_members GROUP BY roster
        ), rosters AS (
            SELECT reader, list(roster ORDER BY size NULLS LAST, roster) AS rosters
            FROM (SELECT DISTINCT reader, roster FROM seen) LEFT JOIN sizes USING (roster) GROUP BY reader
        )
        SELECT reader, r.name, method, r.proxy, p.name AS proxy_name, input_view AS view, origin,
            any_value(o.rosters) AS rosters,
            coalesce(list(DISTINCT benchmark ORDER BY benchmark) FILTER (benchmark IS NOT NULL), []) AS benchmarks,
            coalesce(list(DISTINCT condition ORDER BY condition) FILTER (condition IS NOT NULL), []) AS conditions,
            coalesce(list(DISTINCT domain ORDER BY domain) FILTER (domain IS NOT NULL), []) AS domains
        FROM readers r JOIN seen USING (reader) JOIN rosters o USING (reader) LEFT JOIN proxies p ON r.proxy = p.proxy
        GROUP BY ALL ORDER BY origin, method, r.proxy, view"""
    return with_lists(frame_of(cursor, sql), "rosters", "benchmarks", "conditions", "domains")


def rosters(cursor: Cursor) -> pd.DataFrame:
    """Rosters, shortest first."""
    sql = """
        SELECT roster, count(*)::INTEGER AS sources, count(DISTINCT family)::INTEGER AS families,
            count(*) FILTER (access = 'local')::INTEGER AS local, count(*) FILTER (access = 'api')::INTEGER AS api,
            sum(responses)::BIGINT AS responses
        FROM roster_members JOIN sources USING (source) GROUP BY roster ORDER BY sources, roster"""
    return frame_of(cursor, sql)


def sources(cursor: Cursor, roster: str) -> pd.DataFrame:
    """Sources of a roster."""
    sql = """
        SELECT m.position, source, name, family, subfamily, access, responses, f.position AS family_position
        FROM roster_members m JOIN sources USING (source) JOIN families f USING (family)
        WHERE roster = ? ORDER BY m.position"""
    return frame_of(cursor, sql, [roster])


def measurements(cursor: Cursor) -> pd.DataFrame:
    """What attribution numbers exist; budgets is a list."""
    sql = """
        SELECT reader, roster, benchmark, condition, reduction, metric, list(DISTINCT k ORDER BY k) AS budgets
        FROM attribution_metrics GROUP BY ALL ORDER BY ALL"""
    return with_lists(frame_of(cursor, sql), "budgets")


def maps(cursor: Cursor, reader: str | None = None, roster: str | None = None) -> pd.DataFrame:
    """Maps that exist, all or of one reader or roster."""
    sql = """
        SELECT reader, roster, domain, method, dimensions, count(*)::INTEGER AS sources FROM projections
        WHERE reader = coalesce(?, reader) AND roster = coalesce(?, roster) GROUP BY ALL ORDER BY ALL"""
    return frame_of(cursor, sql, [reader, roster])


def projection(
    cursor: Cursor, reader: str, roster: str, domain: str, method: str = "tsne", dimensions: int = 3
) -> pd.DataFrame:
    """Where the sources lie on a map; z is NaN in 2-D."""
    sql = """
        SELECT m.position, source, name, family, access, x, y, z
        FROM projections p JOIN roster_members m USING (roster, source) JOIN sources USING (source)
        WHERE reader = ? AND roster = ? AND domain = ? AND method = ? AND dimensions = ? ORDER BY m.position"""
    return frame_of(cursor, sql, [reader, roster, domain, method, dimensions])


def projection_quality(cursor: Cursor, reader: str, roster: str, domain: str) -> pd.DataFrame:
    """How far maps can be trusted; settings are JSON."""
    sql = """
        SELECT method, dimensions, metric, value, settings, build_id FROM projection_quality
        WHERE reader = ? AND roster = ? AND domain = ? AND method NOT LIKE '%-sweep' ORDER BY ALL"""
    return frame_of(cursor, sql, [reader, roster, domain])


def neighbors(
    cursor: Cursor, reader: str, roster: str, domain: str, source: str | None = None, top: int | None = None
) -> pd.DataFrame:
    """Neighbours in the original space, nearest first, of one source or of every one, all or the ``top`` ones.

    rank_back : of the source, seen from the neighbour; percentile : share of all pairs that are less similar.
    """
    sql = """
        SELECT h.source, h.neighbor, s.name, s.family, h.rank, h.back AS rank_back, h.cosine, h.percentile
        FROM ranked_pairs() h JOIN sources s ON s.source = h.neighbor
        JOIN roster_members m ON m.source = h.source AND m.roster = $roster
        WHERE h.reader = $reader AND h.roster = $roster AND h.domain = $domain
            AND h.source = coalesce($source, h.source) AND h.rank <= coalesce($top, h.rank)
        ORDER BY m.position, h.rank, h.neighbor"""
    return frame_of(cursor, sql, {"reader": reader, "roster": roster, "domain": domain, "source": source, "top": top})


@dataclass(frozen=True)
class SourceProfile:
    source: str
    name: str
    family: str
    subfamily: str | None
    access: str
    responses: int
    rosters: list[str]  # shortest first
    accuracy: pd.DataFrame  # k, accuracy, n, confused_with, confused_name, confused_count
    confusions: pd.DataFrame  # at the smallest budget, most frequent first: predicted, name, family, count, share


def source_profile(
    cursor: Cursor, source: str, reader: str, roster: str, benchmark: str = "agent500", condition: str = "clean"
) -> SourceProfile | None:
    """Profile of a source as one reader sees it; None for a source that is not in the atlas."""
    sql = "SELECT name, family, subfamily, access, responses FROM sources WHERE source = ?"
    row = cursor.execute(sql, [source]).fetchone()
    if row is None:
        return None
    sql = "SELECT roster FROM roster_members GROUP BY roster HAVING bool_or(source = ?) ORDER BY count(*), roster"
    rosters = cursor.execute(sql, [source]).fetchall()
    sql = """
        SELECT k, accuracy, n, confused_with, s.name AS confused_name, confused_count
        FROM source_accuracy a LEFT JOIN sources s ON s.source = a.confused_with
        WHERE a.source = ? AND reader = ? AND roster = ? AND benchmark = ? AND condition = ? ORDER BY k"""
    accuracy = frame_of(cursor, sql, [source, reader, roster, benchmark, condition])
    sql = """
        WITH answers AS (
            SELECT predicted, count, count / sum(count) OVER () AS share FROM confusion
            WHERE truth = $source AND reader = $reader AND roster = $roster AND benchmark = $benchmark
                AND condition = $condition AND k = (
                    SELECT min(k) FROM confusion_lists WHERE reader = $reader AND roster = $roster
                    AND benchmark = $benchmark AND condition = $condition)
        )
        SELECT predicted, name, family, count, share FROM answers JOIN sources ON source = predicted
        WHERE predicted <> $source ORDER BY count DESC, predicted"""
    about = {"reader": reader, "roster": roster, "benchmark": benchmark, "condition": condition}
    confusions = frame_of(cursor, sql, {"source": source, **about})
    name, family, subfamily, access, responses = row
    member_of = [roster for (roster,) in rosters]
    return SourceProfile(source, name, family, subfamily, access, responses, member_of, accuracy, confusions)


def source_table(
    cursor: Cursor,
    reader: str,
    roster: str,
    benchmark: str = "agent500",
    condition: str = "clean",
    budgets: Sequence[int] = BUDGETS,
) -> pd.DataFrame:
    """All sources of a roster, their accuracy at every budget, and what each is taken for most often.

    Columns accuracy_1 ... (one a budget) are NaN where it was not measured; confusions are those at the smallest one.
    """
    wide = ", ".join(f"max(accuracy) FILTER (k = {int(k)}) AS accuracy_{int(k)}" for k in budgets)
    sql = f"""
        WITH here AS (
            SELECT * FROM source_accuracy WHERE reader = ? AND roster = ? AND benchmark = ? AND condition = ?
        ), wide AS (
            SELECT source, {wide}, max(confused_with) FILTER (k = first_k) AS confused_with,
                max(confused_count) FILTER (k = first_k) AS confused_count
            FROM (SELECT *, min(k) OVER () AS first_k FROM here) GROUP BY source
        )
        SELECT position, source, s.name, s.family, s.access, s.responses, wide.* EXCLUDE (source, confused_with,
            confused_count), confused_with, c.name AS confused_name, confused_count
        FROM wide JOIN roster_members m USING (source) JOIN sources s USING (source)
        LEFT JOIN sources c ON c.source = confused_with WHERE m.roster = ? ORDER BY position"""
    return frame_of(cursor, sql, [reader, roster, benchmark, condition, roster])


def metric_curve(
    cursor: Cursor,
    readers: str | Sequence[str],
    roster: str,
    benchmark: str = "agent500",
    condition: str = "clean",
    metric: str = "accuracy",
    reduction: str = "pooled",
) -> pd.DataFrame:
    """A metric against the budget, readers in the order given; std is NaN where there is none, n are groups."""
    chosen = [readers] if isinstance(readers, str) else list(readers)
    about = {"benchmark": benchmark, "condition": condition, "metric": metric, "reduction": reduction}
    sql = """
        SELECT reader, name, origin, k, value, std, n, build_id
        FROM attribution_metrics a JOIN readers r USING (reader)
        WHERE list_contains($readers::VARCHAR[], reader) AND roster = $roster AND benchmark = $benchmark
            AND condition = $condition AND metric = $metric AND reduction = $reduction AND seed IS NULL AND fold IS NULL
        ORDER BY list_position($readers::VARCHAR[], reader), k"""
    return frame_of(cursor, sql, {"readers": chosen, "roster": roster, **about})


def fold_spread(
    cursor: Cursor,
    reader: str,
    roster: str,
    benchmark: str = "agent500",
    condition: str = "clean",
    metric: str = "accuracy",
) -> pd.DataFrame:
    """A metric fold by fold, as the mean over the seeds; n : groups a seed."""
    sql = """
        SELECT k, fold, coalesce(max(value) FILTER (seed IS NULL), avg(value)) AS value, max(n)::INTEGER AS n
        FROM attribution_metrics
        WHERE {where} AND reduction = 'fold' AND fold IS NOT NULL GROUP BY k, fold ORDER BY k, fold"""
    return select(cursor, sql, reader=reader, roster=roster, benchmark=benchmark, condition=condition, metric=metric)


def confusion(
    cursor: Cursor, reader: str, roster: str, k: int, benchmark: str = "agent500", condition: str = "clean"
) -> pd.DataFrame:
    """Confusion counts at a budget, summed over the seeds, cells without a count absent.

    share : of all answers for the truth. In roster order of the truth, then of the prediction.
    """
    sql = """
        SELECT truth, predicted, count, count / sum(count) OVER (PARTITION BY truth) AS share
        FROM confusion c JOIN roster_members t ON t.source = truth AND t.roster = c.roster
        JOIN roster_members p ON p.source = predicted AND p.roster = c.roster
        WHERE reader = ? AND c.roster = ? AND k = ? AND benchmark = ? AND condition = ?
        ORDER BY t.position, p.position"""
    return frame_of(cursor, sql, [reader, roster, k, benchmark, condition])


def layer_curve(cursor: Cursor, reader: str, roster: str) -> pd.DataFrame:
    """Inner validation accuracy of every block over all folds; std (population), low, high over outer folds' means."""
    sql = """
        SELECT layer, avg(accuracy) AS accuracy, stddev_pop(accuracy) AS std, min(accuracy) AS low,
            max(accuracy) AS high, sum(fits)::INTEGER AS fits
        FROM (
            SELECT layer, outer_fold, avg(accuracy) AS accuracy, count(*) AS fits FROM layer_scores
            WHERE reader = ? AND roster = ? GROUP BY layer, outer_fold
        ) GROUP BY layer ORDER BY layer"""
    return frame_of(cursor, sql, [reader, roster])


def selected_layers(cursor: Cursor, reader: str, roster: str) -> pd.DataFrame:
    """Selected blocks; the modal one comes last and has no outer fold (NA)."""
    sql = "SELECT outer_fold, layer FROM layer_selection WHERE reader = ? AND roster = ? ORDER BY outer_fold NULLS LAST"
    return frame_of(cursor, sql, [reader, roster]).astype({"outer_fold": "Int64"})


def family_purity(cursor: Cursor, roster: str, domain: str, reader: str | None = None) -> pd.DataFrame:
    """Share of same-family neighbours, of all readers or of one."""
    sql = """
        SELECT reader, name, origin, k, purity, expectation, p_value, p_holm, low, high, sources, families, build_id
        FROM family_purity JOIN readers USING (reader)
        WHERE roster = ? AND domain = ? AND reader = coalesce(?, reader) ORDER BY reader, k"""
    return frame_of(cursor, sql, [roster, domain, reader])


def neighbor_table(
    cursor: Cursor, reader: str, roster: str, domain: str, tops: Sequence[int] = (1, 3, 5, 10)
) -> pd.DataFrame:
    """Every source of a roster with its nearest one, and how many of its nearest are of its family.

    kin : other sources of the family in the roster; same_1 ... : how many of the k nearest are kin.
    """
    wide = ", ".join(f"count(*) FILTER (h.rank <= {int(k)} AND n.family = s.family) AS same_{int(k)}" for k in tops)
    sql = f"""
        WITH counted AS (
            SELECT h.source, max(h.neighbor) FILTER (h.rank = 1) AS nearest,
                max(h.cosine) FILTER (h.rank = 1) AS cosine, max(h.percentile) FILTER (h.rank = 1) AS percentile,
                max(h.back) FILTER (h.rank = 1) AS rank_back, count(*) FILTER (n.family = s.family) AS kin, {wide}
            FROM ranked_pairs() h JOIN sources s ON s.source = h.source JOIN sources n ON n.source = h.neighbor
            WHERE h.reader = $reader AND h.roster = $roster AND h.domain = $domain GROUP BY h.source
        )
        SELECT m.position, s.source, s.name, s.family, s.access, nearest, n.name AS nearest_name,
            n.family AS nearest_family, counted.* EXCLUDE (source, nearest)
        FROM counted JOIN sources s ON s.source = counted.source JOIN sources n ON n.source = nearest
        JOIN roster_members m ON m.source = s.source AND m.roster = $roster ORDER BY m.position"""
    return frame_of(cursor, sql, {"reader": reader, "roster": roster, "domain": domain})


def pair_ranks(cursor: Cursor, roster: str, domain: str, source: str, neighbor: str) -> pd.DataFrame:
    """How every reader sees a pair of sources; mutual_rank is the worse of both directions."""
    sql = """
        SELECT reader, r.name, r.origin, a.rank, a.back AS rank_back, greatest(a.rank, a.back) AS mutual_rank, a.cosine,
            a.percentile
        FROM ranked_pairs() a JOIN readers r USING (reader)
        WHERE a.roster = ? AND a.domain = ? AND a.source = ? AND a.neighbor = ? ORDER BY reader"""
    return frame_of(cursor, sql, [roster, domain, source, neighbor])


def cross_family_pairs(
    cursor: Cursor, readers: Sequence[str], roster: str, domain: str, within: int = 10, top: int = 200
) -> pd.DataFrame:
    """Pairs of sources of two families that several readers put next to each other, most readers first.

    within : largest mutual rank (the worse of both directions) that counts as near; means are over ``readers``.
    """
    sql = """
        WITH ranked AS (
            SELECT reader, source, neighbor AS other, greatest(rank, back) AS mutual_rank, cosine FROM ranked_pairs()
            WHERE list_contains($readers::VARCHAR[], reader) AND roster = $roster AND domain = $domain
                AND back IS NOT NULL
        )
        SELECT ranked.source, s.name, s.family, ranked.other, o.name AS other_name, o.family AS other_family,
            count(*)::INTEGER AS readers, (count(*) FILTER (mutual_rank <= $within))::INTEGER AS near,
            median(mutual_rank) AS median_rank, avg(ranked.cosine) AS cosine
        FROM ranked JOIN sources s ON s.source = ranked.source JOIN sources o ON o.source = ranked.other
        WHERE s.family <> o.family AND ranked.source < ranked.other
        GROUP BY ALL HAVING count(*) FILTER (mutual_rank <= $within) > 0
        ORDER BY near DESC, median_rank, cosine DESC, ranked.source, ranked.other LIMIT $top"""
    about = {"readers": list(readers), "roster": roster, "domain": domain, "within": within, "top": top}
    return frame_of(cursor, sql, about)


def reader_agreement(cursor: Cursor, roster: str, domain: str) -> pd.DataFrame:
    """How far readers see the same geometry; a pair of readers stands once."""
    sql = """
        SELECT reader, other, metric, value, build_id FROM reader_agreement
        WHERE roster = ? AND domain = ? ORDER BY metric, reader, other"""
    return frame_of(cursor, sql, [roster, domain])


def prompt_stability(cursor: Cursor, roster: str, domain: str, reader: str | None = None) -> pd.DataFrame:
    """The geometry of every fold's prompts compared with that of all."""
    sql = """
        SELECT reader, name, fold, metric, value, build_id FROM prompt_stability JOIN readers USING (reader)
        WHERE roster = ? AND domain = ? AND reader = coalesce(?, reader) ORDER BY metric, reader, fold"""
    return frame_of(cursor, sql, [roster, domain, reader])


def dendrogram(cursor: Cursor, reader: str, roster: str, domain: str) -> pd.DataFrame:
    """Average-linkage tree; nodes are sources in roster order, their number plus i is the node of step i."""
    sql = "SELECT step, left_node, right_node, height, size FROM dendrogram WHERE {where} ORDER BY step"
    return select(cursor, sql, reader=reader, roster=roster, domain=domain)


def cross_domain(cursor: Cursor, reader: str, roster: str, source: str | None = None) -> pd.DataFrame:
    """Signatures of one domain sought in another: of one source, or over all; best_other is the nearest other one."""
    sql = """
        SELECT variant, query_domain, gallery_domain, metric, value, best_other, s.name AS best_other_name, c.build_id
        FROM cross_domain c LEFT JOIN sources s ON s.source = best_other
        WHERE reader = ? AND roster = ? AND c.source IS NOT DISTINCT FROM ?
        ORDER BY variant DESC, query_domain, metric"""
    return frame_of(cursor, sql, [reader, roster, source])


def summaries(
    cursor: Cursor, readers: Sequence[str], roster: str, metrics: Sequence[str] = ("accuracy", "macro_f1")
) -> pd.DataFrame:
    """Summaries over seeds and folds of several readers, in the order given, under every benchmark and condition."""
    sql = """
        SELECT reader, name, origin, benchmark, condition, metric, k, reduction, value, std, n, build_id
        FROM attribution_metrics a JOIN readers r USING (reader)
        WHERE list_contains($readers::VARCHAR[], reader) AND roster = $roster
            AND list_contains($metrics::VARCHAR[], metric) AND seed IS NULL AND fold IS NULL
        ORDER BY list_position($readers::VARCHAR[], reader), benchmark, condition, metric, k, reduction"""
    return frame_of(cursor, sql, {"readers": list(readers), "roster": roster, "metrics": list(metrics)})


def paired_tests(cursor: Cursor, reader: str, readers: Sequence[str], roster: str) -> pd.DataFrame:
    """Paired tests of other readers against one, whichever of the two the test called its subject.

    difference : the other one less ``reader``; together : tests in its set of hypotheses, the largest first. Sets that
    name another roster are excluded.
    """
    sql = """
        WITH sets AS (SELECT *, count(*) OVER (PARTITION BY hypotheses) AS together FROM comparisons), directed AS (
            SELECT subject AS reader, measure, difference, low, high, p_value, p_holm, n, method, hypotheses, together,
                build_id
            FROM sets WHERE reference = $reader
            UNION ALL
            SELECT reference, measure, -difference, -high, -low, p_value, p_holm, n, method, hypotheses, together,
                build_id
            FROM sets WHERE subject = $reader
        )
        SELECT * FROM directed WHERE list_contains($readers::VARCHAR[], reader)
            AND (contains(hypotheses, $roster) OR NOT regexp_matches(hypotheses, '[0-9]-way'))
        ORDER BY list_position($readers::VARCHAR[], reader), measure, together DESC, hypotheses"""
    return frame_of(cursor, sql, {"reader": reader, "readers": list(readers), "roster": roster})


def proxies(cursor: Cursor) -> pd.DataFrame:
    """Proxy models; depth is in blocks."""
    return frame_of(cursor, "SELECT proxy, name, depth, hidden_size FROM proxies ORDER BY proxy")


def builds(cursor: Cursor, build_id: str | None = None) -> pd.DataFrame:
    """Builds, newest first, or one of them; times are UTC."""
    sql = "SELECT * FROM builds WHERE build_id = coalesce(?, build_id) ORDER BY started_at DESC, build_id"
    return frame_of(cursor, sql, [build_id]).astype({"seed": "Int64"})


def builds_of(cursor: Cursor, table: str, key: Mapping[str, object]) -> pd.DataFrame:
    """Builds of the rows of a table that match a key, newest first; None matches missing values.

    Raises ValueError if there is no such table or column, or the table has no ``build_id``.
    """
    columns = columns_of(cursor, table)
    if "build_id" not in columns:
        raise ValueError(f"table {table!r} has no builds")
    condition, values = matching(columns, table, key)
    used = f'SELECT build_id FROM "{key_table(table, key)}" WHERE {condition}'
    sql = f"SELECT * FROM builds WHERE build_id IN ({used}) ORDER BY started_at DESC, build_id"
    return frame_of(cursor, sql, values).astype({"seed": "Int64"})

-- One row a key with lists, where three tables had a row a cell: 2.2 million rows shrink to a third of their bytes.
-- The tables of before are views, and pack_TABLE(rows) makes the lists from rows like theirs. Lists are text where ZSTD
-- packs the digits closer than DuckDB packs integers; the long sorted lists of neighbors are closer as integers.

-- Numbers stand for sources in the lists. They never change, whatever happens to sources and rosters.
CREATE TABLE labels (
    number INTEGER NOT NULL,
    label VARCHAR NOT NULL
);
INSERT INTO labels
SELECT row_number() OVER (ORDER BY position NULLS LAST, label) - 1, label
FROM (
    SELECT truth AS label FROM confusion UNION SELECT predicted FROM confusion
    UNION SELECT source FROM source_accuracy UNION SELECT confused_with FROM source_accuracy
    UNION SELECT source FROM neighbors UNION SELECT neighbor FROM neighbors
) LEFT JOIN (SELECT source, min(position) AS position FROM roster_members GROUP BY source) ON source = label
WHERE label IS NOT NULL;

CREATE TABLE confusion_lists (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,
    k INTEGER NOT NULL,
    truth VARCHAR USING COMPRESSION zstd NOT NULL,       -- '0 1 2': numbers of the true sources
    predicted VARCHAR USING COMPRESSION zstd NOT NULL,   -- '0 7|1|2 9': of each of them the answers' numbers
    count VARCHAR USING COMPRESSION zstd NOT NULL,       -- '8 2|10|9 1': and how often each was given
    cells INTEGER NOT NULL,                              -- rows of the view
    build_id VARCHAR NOT NULL
);
-- A ZSTD vector is unpacked as a whole, so a key has a row for every sixteen sources.
CREATE MACRO pack_confusion(rows) AS TABLE
SELECT reader, roster, benchmark, condition, k, string_agg(number, ' ' ORDER BY number) AS truth,
    string_agg(answers, '|' ORDER BY number) AS predicted, string_agg(counts, '|' ORDER BY number) AS count,
    sum(cells)::INTEGER AS cells, build_id
FROM (
    SELECT r.reader, r.roster, r.benchmark, r.condition, r.k, t.number, r.build_id, count(*) AS cells,
        string_agg(p.number, ' ' ORDER BY p.number, r.count) AS answers,
        string_agg(r.count::INTEGER, ' ' ORDER BY p.number, r.count) AS counts
    FROM query_table(rows) r JOIN labels t ON t.label = r.truth::VARCHAR JOIN labels p ON p.label = r.predicted::VARCHAR
    GROUP BY ALL
) GROUP BY reader, roster, benchmark, condition, k, build_id, number // 16;

CREATE TABLE source_accuracy_lists (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,
    k INTEGER NOT NULL,
    seeds INTEGER,                                       -- accuracy lists hits among n x seeds groups; NULL: accuracies
    source VARCHAR USING COMPRESSION zstd NOT NULL,
    accuracy VARCHAR USING COMPRESSION zstd NOT NULL,
    n VARCHAR USING COMPRESSION zstd NOT NULL,
    confused_with VARCHAR USING COMPRESSION zstd NOT NULL, -- numbers, -1 for none
    confused_count VARCHAR USING COMPRESSION zstd NOT NULL,
    cells INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);
CREATE MACRO pack_source_accuracy(rows) AS TABLE
WITH numbered AS (
    SELECT r.*, s.number, c.number AS wrong, row_number() OVER (ORDER BY s.number) AS place
    FROM query_table(rows) r JOIN labels s ON s.label = r.source::VARCHAR
    LEFT JOIN labels c ON c.label = r.confused_with::VARCHAR
), divided AS (
    SELECT reader, roster, benchmark, condition, k, build_id, min(tried) AS seeds FROM (
        SELECT reader, roster, benchmark, condition, k, build_id, tried FROM numbered, range(1, 11) seeds(tried)
        GROUP BY ALL
        HAVING bool_and(coalesce(round(accuracy * n * tried) / (n::BIGINT * tried) = accuracy::DOUBLE, false))
    ) GROUP BY ALL
)
SELECT reader, roster, benchmark, condition, k, seeds::INTEGER AS seeds,
    string_agg(number, ' ' ORDER BY place) AS source,
    string_agg(CASE WHEN seeds IS NULL THEN accuracy::DOUBLE::VARCHAR
        ELSE round(accuracy * n * seeds)::BIGINT::VARCHAR END, ' ' ORDER BY place) AS accuracy,
    string_agg(n::INTEGER, ' ' ORDER BY place) AS n,
    string_agg(coalesce(wrong, -1), ' ' ORDER BY place) AS confused_with,
    string_agg(confused_count::INTEGER, ' ' ORDER BY place) AS confused_count, count(*)::INTEGER AS cells, build_id
FROM numbered LEFT JOIN divided USING (reader, roster, benchmark, condition, k, build_id)
GROUP BY reader, roster, benchmark, condition, k, seeds, build_id, number // 64;

-- A pair once, least similar first, with the ranks of both directions; NULL where one is missing.
CREATE TABLE neighbors_lists (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    source SMALLINT[] NOT NULL,
    neighbor SMALLINT[] NOT NULL,
    rank SMALLINT[] NOT NULL,
    back SMALLINT[] NOT NULL,                            -- rank of the source as seen from the neighbour
    cosine INTEGER[] NOT NULL,                           -- in millionths
    percentile INTEGER[] NOT NULL,                       -- in millionths
    cells INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);
CREATE MACRO pack_neighbors(rows) AS TABLE
SELECT reader, roster, domain, list(source ORDER BY place) AS source, list(neighbor ORDER BY place) AS neighbor,
    list(rank ORDER BY place) AS rank, list(back ORDER BY place) AS back, list(cosine ORDER BY place) AS cosine,
    list(percentile ORDER BY place) AS percentile, (count(rank) + count(back))::INTEGER AS cells, build_id
FROM (
    SELECT *, row_number() OVER (ORDER BY percentile, cosine, source, neighbor) AS place
    FROM (
        SELECT r.reader, r.roster, r.domain, r.build_id, least(s.number, n.number) AS source,
            greatest(s.number, n.number) AS neighbor, max(r.rank) FILTER (s.number <= n.number) AS rank,
            max(r.rank) FILTER (s.number > n.number) AS back, round(r.cosine * 1e6)::INTEGER AS cosine,
            round(r.percentile * 1e6)::INTEGER AS percentile
        FROM query_table(rows) r JOIN labels s ON s.label = r.source::VARCHAR
        JOIN labels n ON n.label = r.neighbor::VARCHAR GROUP BY ALL
    )
) GROUP BY ALL;

INSERT INTO confusion_lists
SELECT * FROM pack_confusion('confusion') ORDER BY benchmark, roster, condition, k, reader, truth;
INSERT INTO source_accuracy_lists
SELECT * FROM pack_source_accuracy('source_accuracy') ORDER BY benchmark, roster, condition, reader, k, source;
INSERT INTO neighbors_lists SELECT * FROM pack_neighbors('neighbors') ORDER BY roster, domain, reader;
DROP TABLE confusion;
DROP TABLE source_accuracy;
DROP TABLE neighbors;

CREATE VIEW confusion AS
SELECT reader, roster, benchmark, condition, k, t.label AS truth, p.label AS predicted, count, build_id
FROM (
    SELECT reader, roster, benchmark, condition, k, truth, build_id,
        unnest(string_split(predicted, ' ')::INTEGER[]) AS predicted, unnest(string_split(count, ' ')::INTEGER[]) AS count
    FROM (
        SELECT reader, roster, benchmark, condition, k, build_id, unnest(string_split(truth, ' ')::INTEGER[]) AS truth,
            unnest(string_split(predicted, '|')) AS predicted, unnest(string_split(count, '|')) AS count
        FROM confusion_lists
    )
) JOIN labels t ON t.number = truth JOIN labels p ON p.number = predicted;

CREATE VIEW source_accuracy AS
SELECT reader, roster, benchmark, condition, k, s.label AS source,
    CASE WHEN seeds IS NULL THEN accuracy ELSE accuracy / (n::BIGINT * seeds) END AS accuracy, n,
    c.label AS confused_with, confused_count, build_id
FROM (
    SELECT reader, roster, benchmark, condition, k, seeds, build_id,
        unnest(string_split(source, ' ')::INTEGER[]) AS source, unnest(string_split(accuracy, ' ')::DOUBLE[]) AS accuracy,
        unnest(string_split(n, ' ')::INTEGER[]) AS n, unnest(string_split(confused_with, ' ')::INTEGER[]) AS wrong,
        unnest(string_split(confused_count, ' ')::INTEGER[]) AS confused_count
    FROM source_accuracy_lists
) JOIN labels s ON s.number = source LEFT JOIN labels c ON c.number = wrong;

-- Neighbours with both ranks: back is NULL where the other direction is missing.
CREATE MACRO ranked_pairs() AS TABLE
SELECT reader, roster, domain, s.label AS source, n.label AS neighbor, rank, back, cosine / 1e6 AS cosine,
    percentile / 1e6 AS percentile, build_id
FROM (
    SELECT reader, roster, domain, build_id, unnest(source || neighbor) AS source,
        unnest(neighbor || source) AS neighbor, unnest(rank || back)::INTEGER AS rank,
        unnest(back || rank)::INTEGER AS back, unnest(cosine || cosine) AS cosine,
        unnest(percentile || percentile) AS percentile
    FROM neighbors_lists
) JOIN labels s ON s.number = source JOIN labels n ON n.number = neighbor WHERE rank IS NOT NULL;
CREATE VIEW neighbors AS
SELECT reader, roster, domain, source, neighbor, rank, cosine, percentile, build_id FROM ranked_pairs();

-- No page, answer or job reads the vectors: they stay in the work database, and are NULL in what is published.
ALTER TABLE signatures ALTER vector DROP NOT NULL;

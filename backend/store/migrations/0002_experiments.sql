-- The experiments beside clean attribution: relationships, stress and controls, geometry across readers and domains,
-- statistics, cost, and what the paper printed. Stress, components, temporal forms, poolings and baselines are readers
-- or conditions of attribution_metrics; only what does not fit there has a table of its own.

-- Bench-A models; a parent names itself as its family.
CREATE TABLE relationship_models (
    model VARCHAR PRIMARY KEY,
    parent_family VARCHAR NOT NULL,
    is_parent BOOLEAN NOT NULL,
    empty_responses INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);

-- One row a pair: the truth that every reader is asked for.
CREATE TABLE relationship_pairs (
    pair_set VARCHAR NOT NULL,           -- pair_disjoint (116 pairs), disjoint_union (1,647 pairs)
    pair_id VARCHAR NOT NULL,
    model_a VARCHAR NOT NULL,
    model_b VARCHAR NOT NULL,
    related BOOLEAN NOT NULL,
    build_id VARCHAR NOT NULL,
    PRIMARY KEY (pair_set, pair_id)
);

-- What a reader sees of a pair: dc, ac, distance, match; decision is the mean SVM score over splits that tested the pair.
CREATE TABLE relationship_features (
    reader VARCHAR NOT NULL,
    pair_set VARCHAR NOT NULL,
    pair_id VARCHAR NOT NULL,
    feature VARCHAR NOT NULL,
    value DOUBLE NOT NULL,
    build_id VARCHAR NOT NULL
);

-- split NULL: the mean over splits, std with ddof 0, percentile bootstrap over splits in low and high.
CREATE TABLE relationship_metrics (
    reader VARCHAR NOT NULL,
    protocol VARCHAR NOT NULL CHECK (protocol IN ('pair', 'model', 'family')),
    readout VARCHAR NOT NULL,            -- dc, ac, dc-ac, grp128, match, distance
    metric VARCHAR NOT NULL,             -- accuracy, precision, recall, f1, auc
    split INTEGER,
    value DOUBLE NOT NULL,
    std DOUBLE,
    low DOUBLE,
    high DOUBLE,
    n INTEGER NOT NULL,                  -- splits, or test pairs of the split
    build_id VARCHAR NOT NULL
);

-- Paired comparisons, a row a test; p_holm is corrected within its hypotheses.
CREATE TABLE comparisons (
    hypotheses VARCHAR NOT NULL,         -- the set that Holm corrects over, e.g. 'endpoints/100-way', 'relationships/family'
    subject VARCHAR NOT NULL,            -- a reader, or reader:readout
    reference VARCHAR NOT NULL,
    measure VARCHAR NOT NULL,            -- accuracy@1, accuracy@100, accuracy, auc, ...
    difference DOUBLE NOT NULL,          -- subject minus reference
    low DOUBLE,
    high DOUBLE,
    p_value DOUBLE NOT NULL,
    p_holm DOUBLE NOT NULL,
    n INTEGER NOT NULL,                  -- clusters, or splits
    method VARCHAR NOT NULL,             -- cluster bootstrap and sign flips, ...
    build_id VARCHAR NOT NULL
);

-- Source and prompt variance of the standardised coordinates on the held-out fold; fold NULL is the mean over folds.
CREATE TABLE variance_ratios (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    layer INTEGER NOT NULL,
    block VARCHAR NOT NULL CHECK (block IN ('dc', 'ac', 'dc-ac')),
    fold INTEGER,
    source_variance DOUBLE NOT NULL,
    prompt_variance DOUBLE NOT NULL,
    ratio DOUBLE NOT NULL,
    build_id VARCHAR NOT NULL
);

-- Learned mixtures of modes; the weights of a head have unit length.
CREATE TABLE mixture_weights (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    fold INTEGER NOT NULL,
    head INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    weight DOUBLE NOT NULL,
    build_id VARCHAR NOT NULL
);

CREATE TABLE capability_scores (
    proxy VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,          -- MMLU-Pro, GPQA-Diamond
    score DOUBLE NOT NULL,               -- percent
    build_id VARCHAR NOT NULL
);

CREATE TABLE correlations (
    subject VARCHAR NOT NULL,            -- what is correlated, e.g. 'MMLU-Pro'
    reference VARCHAR NOT NULL,          -- with what, e.g. 'accuracy@100/ur'
    statistic VARCHAR NOT NULL CHECK (statistic IN ('pearson', 'spearman')),
    value DOUBLE NOT NULL,
    p_value DOUBLE NOT NULL,
    n INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);

CREATE TABLE costs (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    measure VARCHAR NOT NULL,            -- trainable_parameters, audit_parameters, fit_seconds, latency_ms, peak_memory_gb, ...
    value DOUBLE NOT NULL,
    unit VARCHAR NOT NULL,
    hardware VARCHAR NOT NULL,
    build_id VARCHAR NOT NULL
);

-- Do two readers see the same geometry? The pair is stored once, in alphabetical order.
CREATE TABLE reader_agreement (
    reader VARCHAR NOT NULL,
    other VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,             -- spearman (upper triangles), jaccard_10 (mean over sources)
    value DOUBLE NOT NULL,
    build_id VARCHAR NOT NULL
);

CREATE TABLE prompt_stability (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    fold INTEGER NOT NULL,
    metric VARCHAR NOT NULL,             -- spearman with all prompts, jaccard_10, purity_5
    value DOUBLE NOT NULL,
    build_id VARCHAR NOT NULL
);

-- The same source seen in two domains; source NULL: summary over sources (top1, top5, mrr, wins_other).
CREATE TABLE cross_domain (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    variant VARCHAR NOT NULL CHECK (variant IN ('raw', 'centred')),
    query_domain VARCHAR NOT NULL,
    gallery_domain VARCHAR NOT NULL,
    source VARCHAR,
    metric VARCHAR NOT NULL,             -- rank, cosine, best_other_cosine; or top1, top5, mrr, wins_other
    value DOUBLE NOT NULL,
    best_other VARCHAR,                  -- nearest source that is not the same one
    build_id VARCHAR NOT NULL
);

-- Both domains in one map; variant raw or centred.
CREATE TABLE joint_projections (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    variant VARCHAR NOT NULL CHECK (variant IN ('raw', 'centred')),
    method VARCHAR NOT NULL,
    dimensions INTEGER NOT NULL,
    domain VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    x DOUBLE NOT NULL,
    y DOUBLE NOT NULL,
    z DOUBLE,
    build_id VARCHAR NOT NULL
);

-- Outlines of where a family is dense in a 2-D map (kernel density, share of its mass inside).
CREATE TABLE density_regions (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    family VARCHAR NOT NULL,
    mass DOUBLE NOT NULL,                -- 0.5, 0.8
    ring INTEGER NOT NULL,
    x DOUBLE[] NOT NULL,
    y DOUBLE[] NOT NULL,
    build_id VARCHAR NOT NULL
);

-- Average-linkage tree of cosine distances; nodes below the number of sources are sources in leaf order.
CREATE TABLE dendrogram (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    left_node INTEGER NOT NULL,          -- 0 .. S-1: sources in roster order; S + i: the node made in step i
    right_node INTEGER NOT NULL,
    height DOUBLE NOT NULL,
    size INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);

-- Purity of the neighbourhoods in other spaces and readers, with the correction over a set of hypotheses.
ALTER TABLE family_purity ADD COLUMN p_holm DOUBLE;

-- What the paper printed, cell by cell; file_value is the released files' own number where they hold one.
CREATE TABLE paper_values (
    place VARCHAR NOT NULL,              -- table or figure label of the paper
    row_name VARCHAR NOT NULL,
    column_name VARCHAR NOT NULL,
    value DOUBLE NOT NULL,
    file_value DOUBLE,
    note VARCHAR,
    build_id VARCHAR NOT NULL
);

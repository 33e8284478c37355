-- The spine: who was measured, by what, with which result, and which build says so.
-- References between tables are checked when a generation is published, not by FOREIGN KEY: DuckDB refuses to correct
-- a referenced row in the transaction that also rewrites the rows that refer to it.

CREATE TABLE builds (
    build_id VARCHAR PRIMARY KEY,
    stage VARCHAR NOT NULL,              -- sources, evaluate, map, ...
    command VARCHAR NOT NULL,            -- the command line that made the rows
    code_version VARCHAR NOT NULL,       -- commit, with '+changes' when the tree was not clean
    data_hash VARCHAR,                   -- sha256 of the release's manifest
    proxy_hash VARCHAR,                  -- sha256 of the proxy's weight file
    seed INTEGER,
    host VARCHAR NOT NULL,               -- processor and core count, no host name
    started_at TIMESTAMP NOT NULL,       -- UTC
    duration_s DOUBLE NOT NULL,
    origin VARCHAR NOT NULL CHECK (origin IN ('measured', 'published')),
    source_file VARCHAR,                 -- file of a published number
    details VARCHAR NOT NULL DEFAULT '{}' -- JSON: settings, record counts
);

CREATE TABLE families (
    family VARCHAR PRIMARY KEY,
    position INTEGER NOT NULL            -- order of first appearance in the longest roster
);

CREATE TABLE sources (
    source VARCHAR PRIMARY KEY,          -- label
    name VARCHAR NOT NULL,               -- identifier that people know
    family VARCHAR NOT NULL,
    subfamily VARCHAR,
    access VARCHAR NOT NULL,             -- local, api
    responses INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);

CREATE TABLE roster_members (
    roster VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    source VARCHAR NOT NULL,
    PRIMARY KEY (roster, source)
);

CREATE TABLE proxies (
    proxy VARCHAR PRIMARY KEY,
    name VARCHAR NOT NULL,
    hub_id VARCHAR,
    package VARCHAR,
    licence VARCHAR,
    depth INTEGER,
    hidden_size INTEGER,
    causal BOOLEAN
);

-- A reader is a method with a proxy and an input view; everything measured hangs on one.
CREATE TABLE readers (
    reader VARCHAR PRIMARY KEY,          -- e.g. 'reader-paper/smollm2-135m/ur'
    method VARCHAR NOT NULL,             -- 'reader-paper', ...
    proxy VARCHAR,
    input_view VARCHAR,                  -- ur, r
    name VARCHAR NOT NULL,               -- for people
    origin VARCHAR NOT NULL CHECK (origin IN ('measured', 'published'))
);

-- One row a number. seed and fold NULL: the summary over them, with its spread in std.
CREATE TABLE attribution_metrics (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,          -- clean, t128, t64, t32, ...
    k INTEGER NOT NULL,
    reduction VARCHAR NOT NULL CHECK (reduction IN ('pooled', 'fold')),
    metric VARCHAR NOT NULL,             -- accuracy, macro_f1, nll_sum, ece_sum, nll_mean, ece_mean, errors, errors_within_family
    seed INTEGER,
    fold INTEGER,
    value DOUBLE NOT NULL,
    std DOUBLE,
    n INTEGER NOT NULL,                  -- groups behind the number
    build_id VARCHAR NOT NULL
);

CREATE TABLE source_accuracy (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,
    k INTEGER NOT NULL,
    source VARCHAR NOT NULL,
    accuracy DOUBLE NOT NULL,            -- mean over seeds
    n INTEGER NOT NULL,                  -- groups a seed
    confused_with VARCHAR,               -- most frequent wrong answer, NULL without errors
    confused_count INTEGER NOT NULL,     -- over all seeds
    build_id VARCHAR NOT NULL
);

-- Sparse: cells without a count are absent. Counts are summed over the seeds.
CREATE TABLE confusion (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,
    k INTEGER NOT NULL,
    truth VARCHAR NOT NULL,
    predicted VARCHAR NOT NULL,
    count INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);

CREATE TABLE layer_scores (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    outer_fold INTEGER NOT NULL,
    inner_fold INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    accuracy DOUBLE NOT NULL,            -- inner validation, K = 1
    build_id VARCHAR NOT NULL
);

-- outer_fold NULL: the modal layer, which serves geometry and live attribution.
CREATE TABLE layer_selection (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    outer_fold INTEGER,
    layer INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);

CREATE TABLE extractions (
    benchmark VARCHAR NOT NULL,
    proxy VARCHAR NOT NULL,
    input_view VARCHAR NOT NULL,
    layers VARCHAR NOT NULL,
    records INTEGER NOT NULL,
    records_per_s DOUBLE,
    minutes DOUBLE,
    engine VARCHAR NOT NULL,
    build_id VARCHAR NOT NULL
);

CREATE TABLE signatures (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,             -- agent500, math100
    layer INTEGER NOT NULL,
    source VARCHAR NOT NULL,
    vector FLOAT[] NOT NULL,             -- blocks L2-normalised, concatenated
    build_id VARCHAR NOT NULL
);

-- Every ordered pair, rank 1 = nearest in the original space.
CREATE TABLE neighbors (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    neighbor VARCHAR NOT NULL,
    rank INTEGER NOT NULL,
    cosine DOUBLE NOT NULL,
    percentile DOUBLE NOT NULL,          -- share of all pairs that are less similar, 0..1
    build_id VARCHAR NOT NULL
);

CREATE TABLE projections (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    method VARCHAR NOT NULL,             -- tsne, umap, pca
    dimensions INTEGER NOT NULL,         -- 2, 3
    source VARCHAR NOT NULL,
    x DOUBLE NOT NULL,
    y DOUBLE NOT NULL,
    z DOUBLE,
    build_id VARCHAR NOT NULL
);

CREATE TABLE projection_quality (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    dimensions INTEGER NOT NULL,
    metric VARCHAR NOT NULL,             -- trustworthiness_5, trustworthiness_10, knn_jaccard_10
    value DOUBLE NOT NULL,
    settings VARCHAR NOT NULL,           -- JSON
    build_id VARCHAR NOT NULL
);

CREATE TABLE family_purity (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    k INTEGER NOT NULL,
    purity DOUBLE NOT NULL,
    expectation DOUBLE NOT NULL,
    p_value DOUBLE,
    low DOUBLE,
    high DOUBLE,
    sources INTEGER NOT NULL,
    families INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);

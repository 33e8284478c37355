-- What the release's result files hold and no table had a place for. NULL where it was not kept, as in all that is measured here.
ALTER TABLE layer_scores ADD COLUMN macro_f1 DOUBLE;           -- of the same fold and block as the accuracy
ALTER TABLE variance_ratios ADD COLUMN residual_variance DOUBLE;
ALTER TABLE family_purity ADD COLUMN null_mean DOUBLE;         -- mean purity of the permuted labels

-- F1 of every source against the rest, pooled over the folds; source_accuracy asks for an accuracy, which F1 has not.
CREATE TABLE source_f1 (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,
    k INTEGER NOT NULL,
    source VARCHAR NOT NULL,
    f1 DOUBLE NOT NULL,
    build_id VARCHAR NOT NULL
);

-- Ranks of single pairs by readers whose other neighbours nobody has published.
CREATE TABLE pair_ranks (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    domain VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    neighbor VARCHAR NOT NULL,
    rank INTEGER NOT NULL,               -- of the neighbour among those of the source
    back INTEGER NOT NULL,               -- of the source among those of the neighbour
    cosine DOUBLE NOT NULL,
    build_id VARCHAR NOT NULL
);

-- Two further parts: shares of several sources in simulated mixtures, and sources that were asked twice. A CHECK can
-- only be made anew.
CREATE TABLE audit_validation_with_mixtures (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,          -- clean, t128, t64, t32
    part VARCHAR NOT NULL CHECK (part IN ('calibration', 'unknown', 'refit', 'stop', 'drift', 'transfer',
        'mixture', 'repeated')),
    k INTEGER NOT NULL,                  -- budget, longest session, or traces a window
    metric VARCHAR NOT NULL,             -- ece_before, ece_after, cllr_before, auroc, false_acceptance, false_unknown, ...
    scenario VARCHAR,                    -- family, sibling; for drift same, sibling, family; for transfer the traffic; for mixture what is mixed in
    statistic VARCHAR,                   -- max-logit, relative-mahalanobis; for drift energy, mmd, energy-paired, mmd-paired; for mixture the role of a source
    rule VARCHAR,                        -- plain, calibrated, controlled
    level DOUBLE,                        -- stated error rate; for mixture the share from elsewhere
    space VARCHAR,                       -- log-posteriors, fingerprints
    value DOUBLE NOT NULL,
    std DOUBLE,
    n INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);
INSERT INTO audit_validation_with_mixtures SELECT * FROM audit_validation;
DROP TABLE audit_validation;
ALTER TABLE audit_validation_with_mixtures RENAME TO audit_validation;

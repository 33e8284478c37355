-- A sixth part: verdicts on labelled traffic of the enrolled kind and of another one. A CHECK can only be made anew.
CREATE TABLE audit_validation_wider (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,          -- clean, t128, t64, t32
    part VARCHAR NOT NULL CHECK (part IN ('calibration', 'unknown', 'refit', 'stop', 'drift', 'transfer')),
    k INTEGER NOT NULL,                  -- budget, longest session, or traces a window
    metric VARCHAR NOT NULL,             -- ece_before, ece_after, cllr_before, auroc, false_acceptance, false_unknown, ...
    scenario VARCHAR,                    -- family, sibling; for drift same, sibling, family; for transfer the traffic
    statistic VARCHAR,                   -- max-logit, relative-mahalanobis; for drift energy, mmd, energy-paired, mmd-paired
    rule VARCHAR,                        -- plain, calibrated, controlled
    level DOUBLE,                        -- stated error rate
    space VARCHAR,                       -- log-posteriors, fingerprints
    value DOUBLE NOT NULL,
    std DOUBLE,
    n INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);
INSERT INTO audit_validation_wider SELECT * FROM audit_validation;
DROP TABLE audit_validation;
ALTER TABLE audit_validation_wider RENAME TO audit_validation;

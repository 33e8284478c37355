-- What the evidence of an audit is worth: validation of the audit's statistics on out-of-fold evidence. What a part does not need is NULL.
CREATE TABLE audit_validation (
    reader VARCHAR NOT NULL,
    roster VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,          -- clean, t128, t64, t32
    part VARCHAR NOT NULL CHECK (part IN ('calibration', 'unknown', 'refit', 'stop', 'drift')),
    k INTEGER NOT NULL,                  -- budget, longest session, or traces a window
    metric VARCHAR NOT NULL,             -- ece_before, ece_after, cllr_before, auroc, false_acceptance, stop_error, alarms, ...
    scenario VARCHAR,                    -- family, sibling; for drift same, sibling, family
    statistic VARCHAR,                   -- max-logit, relative-mahalanobis; for drift energy, mmd, energy-paired, mmd-paired
    rule VARCHAR,                        -- plain, calibrated, controlled
    level DOUBLE,                        -- stated error rate
    space VARCHAR,                       -- log-posteriors, fingerprints
    value DOUBLE NOT NULL,
    std DOUBLE,
    n INTEGER NOT NULL,
    build_id VARCHAR NOT NULL
);

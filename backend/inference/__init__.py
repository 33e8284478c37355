"""Inference from log-posteriors: ratios, calibration, tests, verdict."""

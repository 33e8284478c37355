"""Uncertainty and tests that the experiments share (paper, statistical protocol)."""

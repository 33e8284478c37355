"""Costs of reading, fitting and scoring."""

"""Frozen proxy language models: which exist, how their weights are found, how they read a trace."""

"""Labelled traces of any sources: what methods read of them, and the heads that are fitted to it.

A roster of the release and a file of one's own are fitted by the same functions, under the same prompt folds.
"""

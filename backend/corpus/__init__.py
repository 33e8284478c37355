"""Labelled traces of any sources: the release, a file of one's own, collected responses, the sample."""

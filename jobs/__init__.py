"""The verbs of the atlas: ``python -m jobs VERB``."""

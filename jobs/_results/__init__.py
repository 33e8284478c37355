"""Parts of ``python -m jobs results``: numbers with their builds, the paper's tables, and where they disagree."""

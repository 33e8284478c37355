"""Published numbers: the release's result files, in the columns that measured numbers have.

Nothing here is computed again, and every row carries its file. What follows from other numbers stays in the files, and
so do settings, sizes and training logs, which ``unimported.toml`` names.
"""

from __future__ import annotations

from backend.errors import AtlasError
from backend.reference import attribution, paper, relationships
from backend.reference.files import AGAIN, UNIMPORTED, UNREAD, Collected, Ledger, PublishedReader, Results

__all__ = ["UNIMPORTED", "UNREAD", "Collected", "Ledger", "PublishedReader", "Results", "collect"]


def collect(results: Results) -> Collected:
    """Read every result file. Raises AtlasError if there are no result files, or one of them cannot be understood."""
    into = Collected()
    for read in (*attribution.READERS, *relationships.READERS, paper.read_paper):
        try:
            read(results, into)
        except (KeyError, ValueError, TypeError, StopIteration) as error:  # a name or form that no reader knows
            raise AtlasError(f"{results.last} cannot be understood ({type(error).__name__}: {error})", AGAIN) from error
    return into

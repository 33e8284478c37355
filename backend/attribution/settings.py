"""How an audit is run: the same for the page, for REST and for the command line (paper, Dynamic Provenance Setting)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.inference.likelihood_ratios import ORDERS, SEED
from backend.intake.traces import Columns

EVEN_PRIOR = "Every enrolled source is as likely as the next."
STOP_LEVEL = 0.05
"""Stated error rate of the sequential stop where nobody chose one."""
MOST_ORDERS = 10_000
MOST_ALSO = 3
"""Further readers of one audit; each reads all traces once more."""


@dataclass(frozen=True)
class Settings:
    """What a person chooses.

    Attributes
    ----------
    enrolment : str or None
        Name of a published enrolment; None for the only one that fits.
    claimed : str or None
        Source that the traces are said to come from.
    prior : mapping of str to float, or None
        Weights of sources; None for the same weight for each.
    prior_statement : str or None
        Where the prior comes from.
    case : str
        Name of the case, for people.
    question : str or None
        By default made from the claim.
    columns : Columns
        What a person mapped; the rest is recognised.
    encoding : str or None
        Of the file, as a person names it; None where it is recognised.
    keep_duplicates : bool
        Count traces that repeat an earlier one word for word.
    show : int
        Traces whose text and token evidence the report shows; 0 keeps no text.
    against : str or None
        Rival of the token evidence; by default the strongest one.
    orders, seed : int
        Of the spread over random orders.
    stop_level : float
        Stated error rate of the sequential stop; one of those that the enrolment was fitted for.
    also : tuple of str
        Further enrolments that read the same traces, to see what hangs on the reader.
    """

    enrolment: str | None = None
    claimed: str | None = None
    prior: Mapping[str, float] | None = None
    prior_statement: str | None = None
    case: str = "Untitled case"
    question: str | None = None
    columns: Columns = field(default_factory=Columns)
    encoding: str | None = None
    keep_duplicates: bool = False
    show: int = 0
    against: str | None = None
    orders: int = ORDERS
    seed: int = SEED
    stop_level: float = STOP_LEVEL
    also: tuple[str, ...] = ()

    @property
    def asked(self) -> str:
        """The question, in a sentence."""
        if self.question:
            return self.question
        return f"Do these traces come from {self.claimed}?" if self.claimed else "Where do these traces come from?"

    @property
    def stated(self) -> str:
        """Where the prior comes from, in a sentence."""
        return self.prior_statement or ("As given." if self.prior else EVEN_PRIOR)


def of_windows(enrolment: str | None, columns: Columns | None = None, encoding: str | None = None) -> Settings:
    """How windows of traces are read that are tested for drift: repeated traces count, and nothing is asked of sources.

    Parameters
    ----------
    enrolment : str or None
    columns : Columns, optional
        What a person mapped.
    encoding : str, optional
        Of the files.
    """
    return Settings(
        enrolment=enrolment,
        case="Two windows",
        columns=columns or Columns(),
        encoding=encoding,
        keep_duplicates=True,
        orders=20,
    )

"""How an audit is run: the same for the page, for REST and for the command line (paper, Dynamic Provenance Setting)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.inference.likelihood_ratios import ORDERS, SEED
from backend.intake.traces import Columns

EVEN_PRIOR = "Every enrolled source is as likely as the next."
STOP_LEVEL = 0.05  # stated error rate of the sequential stop where nobody chose one
MOST_ORDERS = 10_000
MOST_ALSO = 3  # further readers of one audit; each reads all traces once more


@dataclass(frozen=True)
class Settings:
    """What a person chooses."""

    enrolment: str | None = None  # name of a published enrolment; None for the only one that fits
    claimed: str | None = None  # source that the traces are said to come from
    prior: Mapping[str, float] | None = None  # weights of sources; None for the same weight for each
    prior_statement: str | None = None  # where the prior comes from
    case: str = "Untitled case"  # name of the case, for people
    question: str | None = None  # by default made from the claim
    columns: Columns = field(default_factory=Columns)  # what a person mapped; the rest is recognised
    encoding: str | None = None  # of the file, as a person names it; None where it is recognised
    keep_duplicates: bool = False  # count traces that repeat an earlier one word for word
    show: int = 0  # traces whose text and token evidence the report shows; 0 keeps no text
    against: str | None = None  # rival of the token evidence; by default the strongest one
    orders: int = ORDERS  # random orders of the traces
    seed: int = SEED
    stop_level: float = STOP_LEVEL  # of those that the enrolment was fitted for
    also: tuple[str, ...] = ()  # further enrolments that read the same traces, to see whether they agree

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
    """How windows of traces are read that are tested for drift: repeated traces count, and no source is in question."""
    mapped = columns or Columns()
    return Settings(enrolment, case="Two windows", columns=mapped, encoding=encoding, keep_duplicates=True, orders=20)

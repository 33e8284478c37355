"""The settings of a question, and what a report says of them (paper, Dynamic Provenance Setting)."""

from __future__ import annotations

import csv
import io
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from backend.errors import AtlasError
from backend.inference.likelihood_ratios import ORDERS, SEED
from backend.intake.encoding import encoding_given
from backend.intake.layout import RECOGNISED, Columns
from backend.intake.traces import short, visible

Report = Mapping[str, Any]  # JSON of :func:`backend.attribution.report.build_report`
EVEN_PRIOR = "Every {} is as likely as the next."
STOP_LEVEL = 0.05  # stated error rate of the sequential stop where nobody chose one
MOST_ORDERS = 10_000
MOST_ALSO = 3  # further readers of one audit; each reads all traces once more
Orders = Annotated[int, Field(ge=1, le=MOST_ORDERS)]
Natural = Annotated[int, Field(ge=0)]
NUMBERS = {"orders": TypeAdapter(Orders), "show": TypeAdapter(Natural), "seed": TypeAdapter(Natural)}
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Settings:
    """What a person chooses; ``TypeAdapter(Settings)`` gives its schema.

    An alias, else the name of a field, is also the name of its option on the command line; options stand in this order.
    """

    enrolment: Annotated[str | None, Field(description="Published enrolment; None for the only one that fits.")] = None
    claimed: Annotated[str | None, Field(description="Source that the traces are claimed to come from.")] = None
    candidates: Annotated[
        tuple[str, ...], Field(description="Enrolled sources in question, or 'family:NAME'; none for all of them.")
    ] = ()
    background: Annotated[
        str | None, Field(description="File of unlabelled responses of the same kind of traffic; none by default.")
    ] = None
    case: Annotated[str, Field(description="Name of the case, for the report.")] = "Untitled case"
    question: Annotated[str | None, Field(description="The question; by default that of the claim.")] = None
    prior: Annotated[
        Mapping[str, float] | None, Field(description="Weights of sources; None for the same weight for each.")
    ] = None
    prior_statement: Annotated[str | None, Field(description="Where the prior comes from.")] = None
    columns: Annotated[Columns, Field(description="Columns that a person mapped; the rest is recognised.")] = field(
        default_factory=Columns
    )
    encoding: Annotated[str | None, Field(description="Of the file; None where it is recognised.")] = None
    show: Annotated[
        Natural, Field(alias="keep_text", description="Traces whose text and token evidence the report shows.")
    ] = 0
    against: Annotated[str | None, Field(description="Rival of the token evidence; by default the strongest.")] = None
    orders: Annotated[Orders, Field(description="Random orders of the traces.")] = ORDERS
    seed: Annotated[Natural, Field(description="Of the random orders.")] = SEED
    stop_level: Annotated[
        float, Field(gt=0, lt=1, description="Error rate of the sequential stop, of those that the enrolment has.")
    ] = STOP_LEVEL
    also: Annotated[
        tuple[str, ...], Field(max_length=MOST_ALSO, description="Further enrolments that read the same traces.")
    ] = ()
    keep_duplicates: Annotated[bool, Field(description="Count traces that repeat an earlier one word for word.")] = (
        False
    )

    @property
    def question_text(self) -> str:
        """The question, in a sentence."""
        if self.question:
            return self.question
        return f"Do these traces come from {self.claimed}?" if self.claimed else "Where do these traces come from?"

    @property
    def stated(self) -> str:
        """Where the prior comes from, in a sentence."""
        even = EVEN_PRIOR.format("candidate" if self.candidates else "enrolled source")
        return self.prior_statement or ("As given." if self.prior else even)


HINTS = get_type_hints(Settings, include_extras=True)
DEFAULTS = Settings()


def option_of(name: str) -> str:
    """Option of a field on the command line: '--keep-text' of 'show'."""
    info: FieldInfo = HINTS[name].__metadata__[-1]
    return f"--{(info.alias or name).replace('_', '-')}"


def of_windows(enrolment: str | None, columns: Columns | None = None, encoding: str | None = None) -> Settings:
    """Settings for windows of traces that are tested for drift: repeated traces count, and no source is in question."""
    mapped = columns or Columns()
    return Settings(enrolment, case="Two windows", columns=mapped, encoding=encoding, keep_duplicates=True, orders=20)


def refuse_wrong_numbers(settings: Settings) -> None:
    """Refuse numbers of orders, of traces with text, or a seed outside their bounds."""
    try:
        for name, bounds in NUMBERS.items():
            bounds.validate_python(getattr(settings, name))
    except ValidationError as error:
        raise AtlasError(
            f"The number of orders must be at least 1 and at most {MOST_ORDERS:,}, that of traces with text and the "
            "seed at least 0",
            "Change the number",
        ) from error


def command_of(file: str, enrolment: str, settings: Settings) -> str:
    """The command line that gives the same answer on a machine with the same enrolment.

    A stated prior is taken from the report itself, which holds it.
    """
    words = ["python", "-m", "jobs", "attribute", file]
    replaced = {
        "enrolment": enrolment,
        "prior": "report.json" if settings.prior else None,
        "also": ",".join(settings.also) or None,
        "candidates": joined(settings.candidates) or None,
    }
    for name in HINTS:
        value = replaced.get(name, getattr(settings, name))
        if name == "columns":
            words += column_words(settings.columns)
        elif value is not None and value != getattr(DEFAULTS, name):
            words += [option_of(name)] if value is True else [option_of(name), str(value)]
    return shlex.join(words)


def joined(entries: Sequence[str]) -> str:
    """Entries as one word of a command line, comma separated; one with a comma in quotes, as in CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(entries)
    return line.getvalue()


def entries_of(text: str | None) -> tuple[str, ...]:
    """The inverse of :func:`joined`; blanks around an entry do not count."""
    row = next(csv.reader([text or ""], skipinitialspace=True), [])
    return tuple(entry.strip() for entry in row if entry.strip())


def column_words(columns: Columns) -> list[str]:
    """Columns that a person mapped, as words of a command line."""
    named = ((f"--{role}-column", column) for role, column in asdict(columns).items() if column is not None)
    return [word for pair in named for word in pair]


def words_of_files(each: Sequence[Settings]) -> list[str]:
    """Columns and encodings of the files of one command line: once where all share one, else once a file."""
    rows = [{role: getattr(one.columns, role) for role in asdict(Columns())} for one in each]
    options = {f"--{role}-column": [row[role] for row in rows] for role in rows[0]}
    options["--encoding"] = [one.encoding for one in each]
    words: list[str] = []
    for option, values in options.items():
        for value in () if set(values) == {None} else values[:1] if len(set(values)) == 1 else values:
            words += [option, RECOGNISED if value is None else value]
    return words


@contextmanager
def unreadable_if_damaged() -> Iterator[None]:
    """An AtlasError in place of what a report that somebody wrote by hand may cause."""
    try:
        yield
    except DAMAGED as error:
        why = visible(short(str(error) or type(error).__name__, 80))
        message = f"The report lacks what is needed to compute it again ({why})"
        raise AtlasError(message, "Give it unchanged") from error


@unreadable_if_damaged()
def settings_of(report: Report, enrolment: str, known: Callable[[str], str | None] = lambda _: None) -> Settings:
    """Settings that give a report again.

    enrolment : name of the enrolment that has the report's sha256.
    known : sha256 of an enrolment of a further reader to its name here; None where it is not here.
    """
    results, names, shown = report["results"], report["input"]["columns"], report["heat_maps"]
    columns = Columns(**{role: None if names.get(role) is None else str(names[role]) for role in asdict(Columns())})
    others = [known(str(row["enrolment_sha256"])) for row in results["readers"][1:]]
    return Settings(
        enrolment=enrolment,
        case=str(report["case"]),
        question=str(report["question"]),
        prior_statement=str(report["reference"]["prior_statement"]),
        claimed=None if results["claimed"] is None else str(results["claimed"]),
        prior=_weights(report["reference"]),
        candidates=tuple(map(str, report["reference"].get("candidates", ()))),
        background=str(report["background"]["name"]) if "background" in report else None,
        keep_duplicates=bool(report["input"]["selection"]["keep_duplicates"]),
        # A response column that was recognised is recognised again: naming it would switch chat logs off.
        columns=columns if report["input"]["mapped"] else replace(columns, response=None),
        encoding=encoding_given(str(report["input"].get("encoding"))),
        show=len(shown),
        against=str(shown[0]["rival"]) if shown else None,
        orders=int(results["spread"]["orders"]),
        seed=int(results["spread"]["seed"]),
        stop_level=float((results["stop"] or {}).get("error_rate", STOP_LEVEL)),
        also=tuple(name for name in others if name is not None),
    )


def _weights(reference: Mapping[str, Any]) -> dict[str, float]:
    """The stated prior of a report, by source; ValueError or OverflowError for what is no positive number."""
    weights = {}
    for source, weight in zip(map(str, reference["sources"]), reference["prior"], strict=True):
        if type(weight) not in (int, float) or not 0 < float(weight) < math.inf:
            raise ValueError(f"the prior of {short(source)} is {short(weight)} and no positive number")
        weights[source] = float(weight)
    return weights

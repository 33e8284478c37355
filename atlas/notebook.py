"""Attribution from Python: labelled traces to an attributor, traces to a verdict.

>>> from atlas import Attributor
>>> attributor = Attributor.load("samples-smollm2-135m-ur")
>>> attributor.attribute([("Say hello.", "Hello! How can I help you today?")]).verdict
'INCONCLUSIVE'
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pandas as pd

from backend import output_files
from backend.attribution.background import layout_of
from backend.attribution.reference_check import reference_answer
from backend.attribution.report import write_csv, write_json
from backend.attribution.report_page import write_html
from backend.attribution.report_words import answer_line, only_validated
from backend.attribution.run import audit, checked, read_window
from backend.attribution.scoring import Models, from_registry
from backend.attribution.settings import Settings, of_windows
from backend.corpus.labelled import Labelled, labelled, read_labelled
from backend.enrolment.catalogue import find_enrolment
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import as_stored, save_enrolment
from backend.enrolment.head_fits import AUTO
from backend.enrolment.own_traces import PROXY, fit, options_for
from backend.errors import AtlasError
from backend.intake import COMMAND_LINE, Columns, inspect, receive
from backend.intake.encoding import opened
from backend.traces import View

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from atlas.theme import Theme

Traces = pd.DataFrame | Sequence[tuple[str, str]] | str | Path
"""A table with a column of responses, pairs of prompt and response, or a file."""
FIGURES = {"evidence": "evidence_curve", "contributions": "contributions", "leave-one-out": "leave_one_out"}
"""Figures of a result, and their functions in :mod:`atlas.figures.evidence`."""
_GIVEN = "traces.jsonl"  # name, in a report, of traces that came without a file


@dataclass(frozen=True)
class Corpus:
    """Labelled traces: who wrote what, checked and laid into folds."""

    name: str
    labelled: Labelled = field(repr=False)

    @classmethod
    def from_file(
        cls, path: str | Path, *, name: str | None = None, families: Mapping[str, str] | None = None,
        response: str | None = None, prompt: str | None = None, label: str | None = None, group: str = "",
        encoding: str | None = None,
    ) -> Corpus:  # fmt: skip
        """Labelled traces of a file: JSONL, CSV, Parquet or a chat log, also inside gzip.

        ``name`` is the file's by default, ``families`` maps sources to families, and ``response``, ``prompt`` and
        ``label`` name columns that are not recognised, ``group`` one whose rows of one value belong together. Raises
        AtlasError where the file cannot be enrolled.
        """
        path = Path(path)
        columns = Columns(response=response, prompt=prompt, label=label)
        found = read_labelled(path, columns, families, encoding=encoding, group=group)
        return cls(name or path.name.partition(".")[0], found)

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, *, name: str, families: Mapping[str, str] | None = None,
        response: str | None = None, prompt: str | None = None, label: str | None = None, group: str = "",
    ) -> Corpus:  # fmt: skip
        """Labelled traces of a table; the columns as in :meth:`from_file`."""
        columns = Columns(response=response, prompt=prompt, label=label)
        intake = receive(io.BytesIO(_lines(frame)), _GIVEN, columns, COMMAND_LINE, group=group)
        return cls(name, labelled(intake.traces, intake.layout.sha256, families, group=group))

    @property
    def sources(self) -> tuple[str, ...]:
        """Who wrote the traces, ascending."""
        return self.labelled.sources

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was excluded."""
        return self.labelled.notes

    def __len__(self) -> int:
        return len(self.labelled.traces)


@dataclass(frozen=True)
class Attribution:
    """The answer to one question, and the report that anybody can compute again."""

    report: dict[str, Any] = field(repr=False)
    traces: bytes | None = field(default=None, repr=False)  # as they were read; None where they came from a file

    @property
    def verdict(self) -> str:
        """SUPPORTS, AGAINST, UNKNOWN or INCONCLUSIVE."""
        return str(self.report["results"]["verdict"])

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        return str(self.report["results"]["sentence"])

    @property
    def candidates(self) -> pd.DataFrame:
        """Every enrolled source, the most probable first: source, family, probability, score, bias, log10_ratio.

        The probability is empty where nothing was validated that bears it.
        """
        return pd.DataFrame(only_validated(self.report)["results"]["candidates"]).astype({"probability": "float64"})

    @property
    def mixture(self) -> str:
        """Whether all traces come from one source: 'one source', 'mixture' or 'cannot tell'."""
        return str(self.report["results"]["mixture"]["outcome"])

    @property
    def shares(self) -> pd.DataFrame:
        """Share of the traces from every source (source, family, share, low, high); empty where none is stated."""
        columns = ["source", "family", "share", "low", "high"]
        return pd.DataFrame(self.report["results"]["mixture"]["shares"] or [], columns=columns)

    def figure(self, kind: str = "evidence", *, theme: Theme = "light") -> go.Figure:
        """A Plotly figure: how the evidence grows, what each trace adds ('contributions'), or 'leave-one-out'."""
        from atlas.figures import evidence

        if kind not in FIGURES:
            raise AtlasError(f"There is no figure '{kind}'", f"Choose from {', '.join(FIGURES)}")
        figure: go.Figure = getattr(evidence, FIGURES[kind])(only_validated(self.report), theme=theme)
        return figure

    def save(self, path: str | Path, *, traces: bool = False) -> None:
        """Write the report as page, JSON and CSV; with ``traces`` also, as JSONL, the text that ``verify`` needs."""
        page = Path(path).with_suffix(".html")
        written = {page: write_html, page.with_suffix(".json"): write_json, page.with_suffix(".csv"): write_csv}
        output_files.writable([*written])
        for target, form in written.items():
            output_files.write(target, form(self.report))
        if traces and self.traces is not None:
            output_files.write(page.with_suffix(".jsonl"), self.traces.decode())

    def __repr__(self) -> str:
        return answer_line(self.report)


@dataclass(frozen=True)
class Attributor:
    """An enrolment with all that it reads with."""

    enrolment: Enrolment = field(repr=False)
    device: str = "auto"
    notes: tuple[str, ...] = ()  # why a readout was chosen

    @classmethod
    def load(cls, name: str | Path | None = None, *, device: str = "auto") -> Attributor:
        """An enrolment of the data folder by its name or that of its ecosystem, or any file; by default the largest.

        Raises AtlasError where there is none, or its file is damaged.
        """
        return cls(find_enrolment(None if name is None else str(name)), device)

    @classmethod
    def fit(
        cls, corpus: Corpus, readout: str = AUTO, *, proxy: str = PROXY, view: View = "ur",
        layer: int | None = None, device: str = "auto",
    ) -> Attributor:  # fmt: skip
        """Enrol the sources of a corpus; 'auto' takes the best readout on inner prompt folds.

        Fingerprints are read into the cache folder, so that a second fit on the same traces reads none. Nothing is
        written into the data folder. Raises AtlasError for a readout, view or layer that does not exist.
        """
        options = options_for(corpus.name, proxy, view, layer=layer, method=readout)
        fitted = fit(corpus.labelled, _loaded(proxy, device)[0], options)
        return cls(as_stored(fitted.enrolment), device, tuple(fitted.choice.lines) if fitted.choice else ())

    def save(self, path: str | Path) -> Path:
        """Write the enrolment into a file (``.npz``) that page, CLI and :meth:`load` read."""
        path = Path(path)
        if path.suffix != ".npz":
            raise AtlasError(f"An enrolment is a .npz file, and {path.name or path} is none", "Name it NAME.npz")
        save_enrolment(self.enrolment, path)
        return path

    @property
    def name(self) -> str:
        """Of the enrolment."""
        return self.enrolment.name

    @property
    def reader(self) -> str:
        """Readout, proxy and view."""
        return self.enrolment.reader

    @property
    def sources(self) -> tuple[str, ...]:
        """Whom it knows."""
        return self.enrolment.sources

    def attribute(
        self, traces: Traces, claimed: str | None = None, *, response: str | None = None, prompt: str | None = None,
        case: str = "Untitled case", prior: Mapping[str, float] | None = None, keep_duplicates: bool = False,
        candidates: Sequence[str] = (), background: Traces | None = None,
    ) -> Attribution:  # fmt: skip
        """Weigh whether traces come from the claimed source, another enrolled one, or none.

        ``response`` and ``prompt`` name columns that are not recognised; ``candidates`` are the enrolled sources in
        question, or 'family:NAME', by default all; ``background`` is unlabelled traffic of the same kind that balances
        the scores. Raises AtlasError for a claim or candidate that is not enrolled, traces without a column of
        responses, or none at all.
        """
        columns = Columns(response=response, prompt=prompt)
        settings = Settings(
            enrolment=self.name, claimed=claimed, prior=prior, case=case, columns=columns,
            keep_duplicates=keep_duplicates, candidates=tuple(candidates),
        )  # fmt: skip
        checked(self.enrolment, settings)
        with _opened(traces) as (stream, name, text):
            layout = inspect(stream, name, settings.columns, COMMAND_LINE)
            if isinstance(traces, pd.DataFrame) and layout.columns.response is None:
                raise AtlasError(
                    f"No column of the table is one of responses (it has {', '.join(map(str, traces.columns[:20]))})",
                    "Name it: attribute(table, response='COLUMN', prompt='COLUMN')",
                )
            attributor = _models(self.device).attributor(self.enrolment)
            if background is None:
                return Attribution(audit(stream, layout, attributor, settings).report, text)
            with _opened(background) as (pool, name, _):
                settings = replace(settings, background=name)
                given = pool, layout_of(pool, name, settings, COMMAND_LINE)
                return Attribution(audit(stream, layout, attributor, settings, background=given).report, text)

    def compare(
        self, traces: Traces, reference: Traces, rivals: Sequence[Traces] = (), *, response: str | None = None,
        prompt: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Compare traces with the claimed source's answers to the same prompts.

        ``rivals`` are other sources' answers to them, which may be nearer. Returns what ``python -m jobs
        reference-check --json`` writes: 'verdict', 'sentence', 'p_value', 'power' and more, without any text. Raises
        AtlasError where fewer than six prompts are answered by both sides.
        """
        settings = of_windows(self.name, Columns(response=response, prompt=prompt))
        attributor, read = _models(self.device).attributor(self.enrolment), []
        for given in (traces, reference, *rivals):
            with _opened(given) as (stream, name, _):
                layout = inspect(stream, name, settings.columns, COMMAND_LINE)
                read.append(read_window(stream, layout, attributor, settings))
        return reference_answer(read[0], read[1], read[2:], self.enrolment, settings)

    def __repr__(self) -> str:
        return f"Attributor({self.name!r}, {self.reader}, {len(self.sources)} sources)"


@lru_cache(maxsize=2)
def _loaded(proxy: str, device: str) -> Any:
    return from_registry(proxy, device)


@lru_cache(maxsize=2)
def _models(device: str) -> Models:
    return Models(lambda proxy: _loaded(proxy, device), Models.on(device).encode)


@contextmanager
def _opened(traces: Traces) -> Iterator[tuple[BinaryIO, str, bytes | None]]:
    """Traces as a file, its name, and what is in it where no file was named."""
    if isinstance(traces, str | Path):
        with opened(Path(traces)) as stream:
            yield stream, Path(traces).name, None
    else:
        text = _lines(traces)
        yield io.BytesIO(text), _GIVEN, text


def _lines(traces: pd.DataFrame | Sequence[tuple[str, str]]) -> bytes:
    """A table or pairs as JSONL, in their order."""
    if not len(traces):
        raise AtlasError("There are no traces", "Give a table or a list with at least one prompt and response")
    rows = _rows(traces) if isinstance(traces, pd.DataFrame) else _pairs(traces)
    return "".join(json.dumps(row, default=str) + "\n" for row in rows).encode()


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    if not frame.columns.is_unique:
        raise AtlasError("Two columns of the table have the same name", "Rename one of them")
    cells = frame.astype(object).where(frame.notna(), None)
    return [dict(zip(map(str, frame.columns), row, strict=True)) for row in cells.itertuples(index=False, name=None)]


def _pairs(traces: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    for number, pair in enumerate(traces, start=1):
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise AtlasError(
                f"Trace {number:,} is no pair of texts", "Give pairs (prompt, response), with '' for no prompt"
            )
        yield {"prompt": pair[0], "response": pair[1]}

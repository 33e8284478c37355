"""Shipped traces to try the atlas on: of each small model that answered the sample prompts, what was not enrolled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from backend.corpus.collection import sample_records
from backend.errors import AtlasError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backend.enrolment.enrolment import Enrolment

LEFT_OUT = 10  # prompts of a sample where no enrolment says which ones it has not seen


def sample_labels() -> list[str]:
    """Models of the shipped samples, by name."""
    return sorted(sample_records().sources)


def sample_enrolment_of(enrolments: Iterable[Enrolment]) -> Enrolment | None:
    """The enrolment that was made from the samples, where there is one."""
    needed = set(sample_labels())
    return next((one for one in enrolments if needed <= set(one.sources)), None)


def sample_file(number: int, enrolment: Enrolment | None) -> tuple[str, bytes]:
    """Label and JSONL (prompt, response) of one shipped model, by its number, on prompts that were not enrolled."""
    records, labels = sample_records(), sample_labels()
    if not 0 <= number < len(labels):
        raise AtlasError(f"There is no sample {number}", f"Choose 0 to {len(labels) - 1}")
    at, count = records.sources.index(labels[number]), len(records.prompt_ids)
    traces = records.traces[at * count : (at + 1) * count]
    fresh = traces[-LEFT_OUT:]
    if enrolment is not None:
        folds = enrolment.folds_of([trace.prompt for trace in traces])
        fresh = [trace for trace, fold in zip(traces, folds, strict=True) if fold is None] or fresh
    lines = [json.dumps({"prompt": trace.prompt, "response": trace.response}) for trace in fresh]
    return labels[number], ("\n".join(lines) + "\n").encode()

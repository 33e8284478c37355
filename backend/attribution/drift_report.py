"""Has an endpoint changed? The answer as JSON, the same for the page, the command line and REST (paper, Limitations).

It holds the hashes of files, traces and enrolment, the seed and the settings, and no text of any trace.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.attribution.audit_log import digest
from backend.attribution.fitted_statistics import drift_rows
from backend.attribution.settings import Settings, of_windows
from backend.attribution.windows import compare, enough_read, in_common, of_both
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.validation_lookup import expected_power
from backend.errors import AtlasError
from backend.inference.drift_wording import LEVEL, UNPAIRED, expected, sentence, so_far, verdict

FORMAT = 1
HALVES = ("first half", "second half")


@dataclass(frozen=True)
class Window:
    """The traces of a window, or of a file whose halves are compared."""

    report: Mapping[str, Any]  # of the audit that read them (:func:`backend.attribution.report.build_report`)
    fingerprints: npt.NDArray[np.floating]  # (n, 2 d) where the enrolment places traces, in the order of arrival
    prompts: Sequence[str]  # length n
    total: int | None = None  # traces that the window has; None where all of them were read
    part: str | None = None  # which half of its file this is; None for all of it
    first: int = 0  # where in the report its traces begin, from 0

    @property
    def traces(self) -> Sequence[Mapping[str, Any]]:
        """What the report says of these traces."""
        held: Sequence[Mapping[str, Any]] = self.report["traces"]
        return held[self.first : self.first + len(self.prompts)]

    @property
    def read(self) -> tuple[int, int]:
        """Traces that were read, and that the window has."""
        return len(self.prompts), len(self.prompts) if self.total is None else self.total


def drift_answer(
    read: Sequence[Window], enrolment: Enrolment, settings: Settings | None = None, command: str | None = None
) -> dict[str, Any]:
    """Compare two windows, or the halves of one in the order of arrival, and say what the comparison is worth.

    Of windows that somebody stopped before all was read, what answers the same prompts is compared where there is
    enough of it: without it the rest of one window would look like another model.

    read : length 1 or 2 the earlier one first; read with the same enrolment.
    settings : how the windows were read, from :func:`backend.attribution.settings.of_windows`.
    command : by default the one that gives this answer.
    Returns JSON: verdict, sentence, expected and notes in words; the test (:class:`backend.inference.drift.DriftTest`)
        and its level; power (:func:`backend.enrolment.validation_lookup.expected_power`, or None); validation
        (:func:`backend.attribution.fitted_statistics.drift_rows`); windows (name, part, total, the file with its
        columns and bad places, hashes of the traces that were read); reading (enrolment, reader, block, engine and
        their hashes, code version); settings; created, command and the sha256 of all else.
    Raises AtlasError StoppedError where too little was read; or if a window is too short, or they were read with
        different enrolments.
    """
    if {window.report["method"]["enrolment_sha256"] for window in read} != {enrolment.sha256}:
        raise AtlasError("The windows were read with different ecosystems", "Compare them again with one")
    asked = settings or of_windows(enrolment.name)
    before, after = read if len(read) == 2 else _halves(read[0])
    stopped = any(read < total for read, total in (before.read, after.read))
    if stopped:
        enough_read((before.read, after.read))
    rows = in_common(before.prompts, after.prompts) if stopped else None
    first, second = rows or (range(len(before.prompts)), range(len(after.prompts)))
    prompts = [before.prompts[i] for i in first], [after.prompts[i] for i in second]
    test = asdict(compare(before.fingerprints[first], after.fingerprints[second], prompts, enrolment))
    power = expected_power(enrolment, min(test["before"], test["after"]), test["paired"])
    body = {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": verdict(test),
        "sentence": sentence(test),
        "expected": expected(power),
        "notes": [
            *([f"This was stopped when {so_far((before.read, after.read))}."] if stopped else []),
            *([] if test["paired"] else [UNPAIRED]),
            *_left(test, before, after, "that answer prompts of both" if rows else "in even steps"),
        ],
        **test,
        "level": LEVEL,
        "power": power,
        "validation": [{name: _told(value) for name, value in row.items()} for row in drift_rows(enrolment)],
        "windows": [_window(window) for window in (before, after)],
        "reading": _reading(before.report, enrolment),
        "settings": {
            "columns": asdict(asked.columns),
            "encoding": asked.encoding,
            "keep_duplicates": read[0].report["input"]["selection"]["keep_duplicates"],
        },
        "command": command or _command(read, enrolment, asked),
    }
    answer: dict[str, Any] = json.loads(json.dumps(body, allow_nan=False))
    return answer | {"sha256": digest(answer)}


def _halves(whole: Window) -> tuple[Window, Window]:
    (middle, of_first), (_, of_second) = of_both([whole.read])
    before, after = (
        Window(whole.report, whole.fingerprints[rows], whole.prompts[rows], total, part, rows.start)
        for part, rows, total in zip(
            HALVES, (slice(0, middle), slice(middle, None)), (of_first, of_second), strict=True
        )
    )
    return before, after


def _left(test: Mapping[str, Any], before: Window, after: Window, which: str) -> list[str]:
    """Sentences about traces that were read and not compared."""
    return [
        f"Of the {len(window.traces):,} traces of the {name} window {test[side]:,} {which} were compared."
        for name, side, window in (("first", "before", before), ("second", "after", after))
        if len(window.traces) > test[side]
    ]


def _window(window: Window) -> dict[str, Any]:
    return {
        "name": window.report["input"]["name"],
        "part": window.part,
        "total": window.read[1],
        "file": {key: value for key, value in window.report["input"].items() if key != "name"},
        "traces": [{key: trace[key] for key in ("place", "turn", "sha256")} for trace in window.traces],
    }


def _reading(report: Mapping[str, Any], enrolment: Enrolment) -> dict[str, Any]:
    told = {key: report["method"][key] for key in ("reader", "proxy", "view", "enrolment_sha256", "engine")}
    version = {"proxy_hash": enrolment.facts.get("proxy_hash"), "code_version": report["method"]["code_version"]}
    return {"enrolment": enrolment.name, "layer": enrolment.place, **told, **version}


def _told(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _command(read: Sequence[Window], enrolment: Enrolment, settings: Settings) -> str:
    """The command line that gives the same answer on a machine with the same enrolment."""
    words = ["python", "-m", "jobs", "drift", *(window.report["input"]["name"] for window in read)]
    words += ["--enrolment", enrolment.name]
    for role, column in asdict(settings.columns).items():
        words += [] if column is None else [f"--{role}-column", str(column)]
    words += [] if settings.encoding is None else ["--encoding", settings.encoding]
    return shlex.join(words)

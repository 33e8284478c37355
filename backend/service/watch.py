"""Watch an endpoint: does it still answer as the claimed source, at a stated rate of false alarms over all looks?

Every look scores what came, adds it to the evidence (:mod:`backend.inference.e_process`), and at 1/rate raises one
alarm with the report of an ordinary audit. Traces whose prompts are of another kind than those enrolled are no
evidence: their oddness may be that of the prompts. A new round begins when somebody accepts an alarm.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from backend.attribution.decision import source_number
from backend.attribution.report import with_alarm, write_csv, write_json
from backend.attribution.report_page import write_html
from backend.attribution.report_words import verdict_words
from backend.attribution.run import audit
from backend.attribution.scoring import Attributor, Models
from backend.attribution.settings import Settings
from backend.corpus.labelled import Labelled
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.inference import Doubles
from backend.inference.domain_shift import hash_of
from backend.inference.e_process import LN10, change_before, evidence_text, oddness
from backend.intake import COMMAND_LINE, inspect
from backend.output_files import write
from backend.service import webhook
from backend.service.watch_sources import Arrival, Arrivals, Inbox, Lines
from backend.service.watch_state import COUNTED, INBOX, KINDS, Watched, WatchState, alarm_sentence
from backend.traces import Trace

FEWEST = 10  # traces of the claimed source that a reference must have
BATCH = 200  # traces that are scored and written at a time
PATIENCE = 0.2  # seconds between two looks for a person who wants to stop
RATE = 0.01  # stated rate of false alarms where nobody gives one


class OneHeadEnrolment(Enrolment):
    """An enrolment in which a prompt that was not enrolled is scored by one head, as an enrolled one is.

    Traces of the reference and of the watch are then scored alike: by the head of a fold that never saw their prompt.
    """

    @classmethod
    def of(cls, enrolment: Enrolment) -> OneHeadEnrolment:
        """The same enrolment."""
        return cls(**{one.name: getattr(enrolment, one.name) for one in fields(enrolment)})

    def folds_of(self, prompts: Sequence[str]) -> list[int | None]:
        """Fold of every prompt; of one that was not enrolled, by its hash."""
        known, heads = super().folds_of(prompts), len(self.heads)
        return [hash_of(prompt) % heads if fold is None else fold for prompt, fold in zip(prompts, known, strict=True)]


@dataclass
class Watch:
    """A state, and what scores its traces."""

    state: WatchState
    attributor: Attributor
    say: Callable[[str], None] = print
    address: str | None = None  # of the webhook
    first_pause: float = webhook.FIRST_PAUSE
    exact: Attributor = field(init=False)

    def __post_init__(self) -> None:
        enrolment = self.attributor.enrolment
        self.claimed = source_number(enrolment, self.state.question.claimed)
        self.exact = Attributor(self.attributor.reader, OneHeadEnrolment.of(enrolment), None, self.attributor.others)

    @classmethod
    def on(cls, state: WatchState, enrolment: Enrolment, device: str = "auto", **options: Any) -> Watch:
        """A watch that scores with models of the registry."""
        return cls(state, Models.on(device).attributor(enrolment), **options)

    def refer_to(self, labelled: Labelled) -> None:
        """Score the claimed source's traces of labelled ones, as the reference; done once."""
        if self.state.reference is not None:
            return
        claimed = self.state.question.claimed
        if claimed not in labelled.sources:
            raise AtlasError(f"The reference has no trace of '{claimed}'", "Give the file that was enrolled")
        number = labelled.sources.index(claimed)
        traces = [trace for trace, label in zip(labelled.traces, labelled.labels, strict=True) if label == number]
        if len(traces) < FEWEST:
            raise AtlasError(f"The reference has {len(traces)} traces of '{claimed}'", f"Give at least {FEWEST}")
        scores, _ = self._scored(traces)
        self.state.set_reference(scores)
        self.say(f"Reference: {len(traces):,} traces of {claimed}.")

    def look(self, arrivals: Arrivals) -> Arrival:
        """Take what came, add it to the evidence, and tell of an alarm. Raises AtlasError where nothing can be read."""
        arrival = arrivals.take(self.state)
        for problem in arrival.problems[:5]:
            self.say(f"Excluded: {problem}")
        if more := arrival.problems[5:]:
            self.say(f"Excluded: {len(more):,} further places")
        fresh = self.state.new(arrival.traces)
        if arrival.problems and not arrival.traces and not self.state.looks():
            raise AtlasError(f"Nothing could be read: {arrival.problems[0]}", "Correct it, or name another source")
        for start in range(0, max(len(fresh), 1), BATCH):
            batch = fresh[start : start + BATCH]
            last = start + BATCH >= len(fresh)
            self._add(batch, arrival.cursors if last else {})
        for path in arrival.read:
            path.unlink(missing_ok=True)
        self.settle()
        return arrival

    def settle(self) -> None:
        """Raise the alarm that is due, and tell of those that nobody was told of; also what a killed process left."""
        log_e, at = self.state.due()
        if at and self.state.alarm is None:
            self._raise(log_e, at)
        for alarm in reversed(self.state.alarms()):
            if not alarm.delivered and self.address is not None:
                try:
                    webhook.send(self.address, message_of(self.state, alarm), first_pause=self.first_pause)
                    self.state.deliver(alarm.number)
                    self.say(f"Told of alarm {alarm.number}.")
                except AtlasError as error:
                    self.say(str(error))

    def _add(self, traces: Sequence[Watched], cursors: Mapping[str, Sequence[int]]) -> None:
        if not traces:
            self.state.add((), (), "unchecked", None, cursors)
            return
        scores, traffic = self._scored([Trace(trace.prompt, trace.response) for trace in traces])
        self.state.add(traces, list(scores), traffic.kind, traffic.p, cursors)
        evidence = self.state.evidence()
        now = f"evidence {evidence_text(float(evidence[-1]) / LN10)}" if len(evidence) else "no evidence yet"
        kind = "" if traffic.kind in COUNTED else f" Other traffic, not counted: the prompts are {KINDS[traffic.kind]}."
        self.say(f"{len(traces):,} new traces, {now}, alarm at {1 / self.state.question.rate:g}.{kind}")

    def _scored(self, traces: Sequence[Trace]) -> tuple[Doubles, Any]:
        scored = self.exact.score(traces)
        return oddness(scored.log_posteriors, self.exact.enrolment.log_prior, self.claimed), scored.traffic

    def _raise(self, log_e: Doubles, at: int) -> None:
        """Write the report of the traces since the evidence began to rise, then the alarm."""
        question, number = self.state.question, len(self.state.alarms()) + 1
        first, texts = self.state.texts(change_before(log_e, at) + 1)
        lines = "".join(json.dumps({"prompt": prompt, "response": response}) + "\n" for prompt, response in texts)
        stem = self.state.folder / f"alarm-{number}"
        traces = stem.with_suffix(".jsonl")
        write(traces, lines)
        traces.chmod(0o600)
        name, case = self.attributor.enrolment.name, f"Watch {self.state.name}, alarm {number}"
        settings = Settings(name, claimed=question.claimed, case=case, keep_duplicates=True)
        stream = io.BytesIO(lines.encode())
        layout = inspect(stream, traces.name, None, COMMAND_LINE)
        report = with_alarm(
            audit(stream, layout, self.attributor, settings).report,
            {"watch": self.state.name, "number": number, "traces": at, "first": first,
             "log10_e": float(log_e[at - 1]) / LN10, "rate": question.rate},
        )  # fmt: skip
        for ending, form in ((".json", write_json), (".csv", write_csv), (".html", write_html)):
            write(stem.with_suffix(ending), form(report))
        results = report["results"]
        alarm = self.state.raise_alarm(
            traces=at, log10_e=float(log_e[at - 1]) / LN10, first=first, verdict=verdict_words(report["results"]),
            leader=results["leader"], sha256=report["sha256"],
        )  # fmt: skip
        self.say(f"ALARM {alarm.number}: {alarm_sentence(self.state, alarm)} Report: {stem.with_suffix('.html')}")


def run(
    watch: Watch, arrivals: Arrivals, every: float, *, once: bool = False, stopped: Callable[[], bool] = lambda: False
) -> int:
    """Look again and again, also at what REST received; 1 where an alarm stands at the end, else 0."""
    watch.settle()
    while not stopped():
        began, ended = time.monotonic(), False
        try:
            ended = watch.look(arrivals).ended
            if not isinstance(arrivals, Inbox) and any((watch.state.folder / INBOX).glob("[!.]*.json")):
                watch.look(Inbox())
        except AtlasError as error:
            if once or not watch.state.looks():
                raise
            watch.say(f"{error} The next look tries again.")
        if once or ended:
            break
        if isinstance(arrivals, Lines):  # it has waited for them itself
            continue
        wait = threading.Event()
        while not stopped() and time.monotonic() - began < every:
            wait.wait(min(PATIENCE, every))
    return 1 if watch.state.alarm is not None else 0


def message_of(state: WatchState, alarm: Any) -> dict[str, Any]:
    """What a webhook gets; no text of any trace."""
    question = state.question
    return {
        "event": "alarm",
        "id": f"{state.name}/{alarm.number}",  # the same where it is sent again
        "watch": state.name,
        "claimed": question.claimed,
        "enrolment": question.enrolment,
        "enrolment_sha256": question.enrolment_sha256,
        "at": datetime.fromtimestamp(alarm.at, UTC).isoformat(timespec="seconds"),
        "traces": alarm.traces,
        "log10_e": round(alarm.log10_e, 4),
        "rate": question.rate,
        "verdict": alarm.verdict,
        "leader": alarm.leader,
        "report": f"/watch/{state.name}/alarm-{alarm.number}.html",
        "report_sha256": alarm.sha256,
        "sentence": alarm_sentence(state, alarm),
    }

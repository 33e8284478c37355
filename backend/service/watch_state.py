"""What a watch has seen, in a folder of its own: settings, scores, looks and alarms in SQL, reports as files.

A look is one transaction: a process that dies between two looks, or in one, neither loses a trace nor counts it twice.
Of texts only the last :data:`TEXTS` traces are there, out of which an alarm's report is written.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peewee import AutoField, BooleanField, CharField, DoubleField, IntegerField, Model, PeeweeException, SqliteDatabase
from peewee import TextField as Text

from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.inference import Doubles
from backend.inference.e_process import LN10, evidence_text, first_alarm, log_evidence
from backend.output_files import lock
from backend.service.records import PRAGMAS
from backend.service.uploads import MissingError
from backend.store.builds import running_version

VARIABLE = "ATLAS_WATCHES"
FILE = "watch.sqlite"
SAMPLE = "sample-watch"  # name of the watch of the shipped sample, which lies apart
INBOX = "inbox"  # folder of what REST received and nobody has read yet
TEXTS = 100  # traces whose text is there, and of an alarm's report at most
COUNTED = ("like", "unchecked")  # kinds of traffic that are evidence
FORMS = ("html", "json", "csv", "jsonl")  # files of an alarm: its report, and the traces that it is about
KINDS = {
    "like": "like the enrolled ones", "unchecked": "not checked, since the enrolment has no reference of its prompts",
    "other topic": "of another topic", "other language": "in another language", "no prompts": "missing",
}  # fmt: skip
"""What a look says of its prompts."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")


@dataclass(frozen=True)
class Question:
    """What is watched for; another question is another watch."""

    claimed: str
    enrolment: str
    enrolment_sha256: str
    rate: float  # stated rate of false alarms, over all looks
    seed: int
    source: str  # kind of it, and of an endpoint its host; never more of an address


@dataclass(frozen=True)
class Watched:
    """One trace to look at."""

    key: str  # the same for the same trace, wherever it is read
    prompt: str
    response: str


class Fact(Model):
    name = CharField(primary_key=True)
    value = Text()  # JSON


class Look(Model):
    number = AutoField()
    round = IntegerField()
    at = DoubleField()
    traces = IntegerField()
    kind = CharField()  # of the traffic
    p = DoubleField(null=True)  # of the prompts


class Seen(Model):
    number = AutoField()
    key = CharField(unique=True)
    look = IntegerField()
    round = IntegerField()
    score = DoubleField(null=True)  # oddness in nats; null where it is no evidence
    text = Text(null=True)  # JSON: prompt and response


class Alarm(Model):
    number = AutoField()
    round = IntegerField(unique=True)
    at = DoubleField()
    traces = IntegerField()  # counted in its round when it came
    log10_e = DoubleField()
    first = IntegerField()  # trace of the round that its report begins with
    verdict = CharField()
    leader = CharField()
    sha256 = CharField()  # of its report
    delivered = BooleanField(default=False)


class WatchState:
    """The state of one watch; a process that watches has it open alone, others read it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self._db: Any = SqliteDatabase(str(folder / FILE), pragmas=PRAGMAS, timeout=30)
        meta = type("Meta", (), {"database": self._db})
        facts, looks, seen, alarms = (
            type(table.__name__, (table,), {"Meta": meta, "__module__": __name__})
            for table in (Fact, Look, Seen, Alarm)
        )
        self._facts: Any = facts
        self._looks: Any = looks
        self._seen: Any = seen
        self._alarms: Any = alarms

    @classmethod
    def open(cls, name: str, folder: Path | None = None) -> WatchState:
        """A watch that was started before. Raises MissingError where there is none of that name."""
        place = (folder or watches_folder(name)) / name
        if not _NAME.fullmatch(name) or not (place / FILE).exists():
            raise MissingError(
                f"There is no watch '{name[:60]}'", "Start it: python -m jobs watch SOURCE --claimed LABEL --name NAME"
            )
        return cls(place)

    @classmethod
    @contextlib.contextmanager
    def begin(cls, name: str, question: Question, folder: Path | None = None) -> Iterator[WatchState]:
        """A watch, new or as it was, for one process; AtlasError if its question is another or it runs elsewhere."""
        if not _NAME.fullmatch(name):
            raise AtlasError(f"'{name}' is no name of a watch", "Use up to 60 letters, digits and . _ -")
        place = (folder or watches_folder(name)) / name
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            (place / INBOX).mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            remedy = f"Name another folder by --state or {VARIABLE}"
            raise AtlasError(f"{place} cannot be written ({error.strerror})", remedy) from error
        busy = AtlasError(f"Another process watches '{name}'", "Stop that one, or choose another --name")
        with lock(place / "lock", busy):
            state = cls(place)
            with state._alone():
                state._db.create_tables([state._facts, state._looks, state._seen, state._alarms])
                known = state._fact("question")
                if known is None:
                    state._remember(question=vars(question), round=1)
            for field, value in vars(question).items():
                if known is not None and known.get(field) != value:
                    problem = f"The watch '{name}' was started with another {field} ({known.get(field)}, not {value})"
                    raise AtlasError(problem, "Choose another --name, or start it as it was")
            try:
                yield state
            finally:
                state.close()

    def close(self) -> None:
        """Close the connection of this thread."""
        self._db.close()

    # What a watch knows

    @property
    def question(self) -> Question:
        """What is watched for."""
        return Question(**self._fact("question"))

    @property
    def round(self) -> int:
        """Number of the round: each begins without evidence."""
        return int(self._fact("round"))

    @property
    def look_number(self) -> int:
        """Number of the next look, of all rounds."""
        with self._open():
            return int(self._looks.select().count()) + 1

    @property
    def reference(self) -> Doubles | None:
        """Scores (r,) of the claimed source's reference; None before they are known."""
        known = self._fact("reference")
        return None if known is None else np.array(known, dtype=np.float64)

    def set_reference(self, scores: Doubles) -> None:
        """Remember the scores of the reference."""
        self._remember(reference=[float(score) for score in scores])

    def cursor(self, file: str) -> Sequence[int]:
        """Where reading of a file ended; empty for a file that was not read."""
        return tuple((self._fact("cursors") or {}).get(file, ()))

    def new(self, traces: Sequence[Watched]) -> list[Watched]:
        """Those that were not looked at, each once."""
        with self._open():
            rows = self._seen.select(self._seen.key).tuples()
            known = {key for (key,) in rows}
        return [trace for key, trace in {trace.key: trace for trace in traces}.items() if key not in known]

    def evidence(self) -> Doubles:
        """Log e-value after every counted trace of the round, (n,); computed again from the scores."""
        reference = self.reference
        scores = np.array([score for _, score in self._scores()], dtype=np.float64)
        if reference is None or not len(scores):
            return np.empty(0)
        return _log_evidence(reference.tobytes(), scores.tobytes(), self.question.seed + self.round)

    def looks(self) -> list[Any]:
        """All looks of the round, the earliest first."""
        with self._open():
            return list(self._looks.select().where(self._looks.round == self.round).order_by(self._looks.number))

    def alarms(self) -> list[Any]:
        """All alarms, the newest first."""
        with self._open():
            return list(self._alarms.select().order_by(self._alarms.number.desc()))

    @property
    def alarm(self) -> Any | None:
        """The alarm of the round, which stands until somebody accepts it."""
        return next((alarm for alarm in self.alarms() if alarm.round == self.round), None)

    def counts(self) -> Mapping[str, int]:
        """Traces of all rounds: counted as evidence, and of other traffic."""
        with self._open():
            every, scored = self._seen.select().count(), self._seen.select().where(~self._seen.score.is_null()).count()
        return {"counted": scored, "other": every - scored}

    def measured(self) -> dict[str, float]:
        """Numbers for Prometheus."""
        log_e, looks, counts = self.evidence(), self.looks(), self.counts()
        found = {"evidence_log10": float(log_e[-1]) / LN10 if len(log_e) else 0.0, "alarms": float(len(self.alarms()))}
        found |= {"alarm": float(self.alarm is not None), "last_look": looks[-1].at if looks else 0.0}
        return found | {f"traces_{kind}": float(count) for kind, count in counts.items()}

    # What happens to it

    def add(
        self, traces: Sequence[Watched], scores: Sequence[float], kind: str, p: float | None,
        cursors: Mapping[str, Sequence[int]] = {},
    ) -> None:  # fmt: skip
        """Write a look with its traces, and where reading of each file ended."""
        counted = kind in COUNTED
        with self._alone():
            look = self._looks.create(round=self.round, at=time.time(), traces=len(traces), kind=kind, p=p)
            for trace, score in zip(traces, scores, strict=True):
                text = json.dumps([trace.prompt, trace.response]) if counted else None
                self._seen.create(
                    key=trace.key, look=look.number, round=self.round, score=float(score) if counted else None,
                    text=text,
                )  # fmt: skip
            if cursors:
                self._remember(cursors={**(self._fact("cursors") or {}), **cursors})
            table = self._seen
            with_text = table.select(table.number).where(~table.text.is_null()).order_by(table.number.desc())
            old = [row.number for row in with_text.offset(TEXTS).limit(-1)]
            for start in range(0, len(old), 500):
                table.update(text=None).where(table.number.in_(old[start : start + 500])).execute()

    def due(self) -> tuple[Doubles, int]:
        """Log evidence of the round, and the trace at which it reaches the line; 0 where it never does."""
        log_e = self.evidence()
        return log_e, first_alarm(log_e, self.question.rate)

    def texts(self, first: int) -> tuple[int, list[tuple[str, str]]]:
        """Prompts and responses of the round from its counted trace ``first`` on; with what is there of them."""
        table, counted = self._seen, self._scores()
        with self._open():
            rows = table.select(table.number, table.text).where(table.round == self.round, ~table.text.is_null())
            texts = {row.number: tuple(json.loads(row.text)) for row in rows}
        there = [(place, texts[number]) for place, (number, _) in enumerate(counted, start=1) if number in texts]
        found = [(place, text) for place, text in there if place >= first]
        return found[0][0] if found else first, [text for _, text in found]

    def raise_alarm(self, **fields: Any) -> Any:
        """Write the alarm of the round; the one that stands there already stays."""
        with self._alone():
            if (known := self.alarm) is not None:
                return known
            return self._alarms.create(round=self.round, at=time.time(), **fields)

    def deliver(self, number: int) -> None:
        """Note that an alarm was told."""
        with self._open():
            self._alarms.update(delivered=True).where(self._alarms.number == number).execute()

    def accept(self) -> None:
        """Begin a round anew: an alarm was looked into."""
        with self._alone():
            self._remember(round=self.round + 1)

    def file(self, number: int, form: str) -> Path:
        """A file of an alarm. Raises MissingError for another form or where there is none."""
        path = self.folder / f"alarm-{number}.{form}"
        if form not in FORMS or not path.exists():
            raise MissingError(f"There is no such file of the watch '{self.name}'", "See the page Watch for its alarms")
        return path

    def _scores(self) -> list[tuple[int, float]]:
        table = self._seen
        with self._open():
            counted = table.round == self.round, ~table.score.is_null()
            return list(table.select(table.number, table.score).where(*counted).order_by(table.number).tuples())

    def _fact(self, name: str) -> Any:
        with self._open():
            found = self._facts.get_or_none(self._facts.name == name)
        return None if found is None else json.loads(found.value)

    def _remember(self, **facts: Any) -> None:
        with self._open():
            for name, value in facts.items():
                self._facts.replace(name=name, value=json.dumps(value)).execute()

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        try:
            yield
        except (PeeweeException, ValueError, TypeError) as error:
            problem = f"The state of the watch '{self.name}' cannot be used ({str(error)[:80]})"
            raise AtlasError(problem, "See whether the disk is full, or choose another --name") from error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with self._open(), self._db.atomic("IMMEDIATE"):
            yield


@functools.lru_cache(maxsize=64)
def _log_evidence(reference: bytes, scores: bytes, seed: int) -> Doubles:
    """The same as :func:`log_evidence`; what stands on a page is computed once."""
    return log_evidence(np.frombuffer(reference), np.frombuffer(scores), seed)


def watches_folder(name: str = "") -> Path:
    """Where watches lie: ``ATLAS_WATCHES``, else in the cache folder; that of the sample always lies there, apart."""
    given = os.environ.get(VARIABLE)
    if name == SAMPLE:
        return cache_folder() / "samples"
    return Path(given) if given else cache_folder() / "watches"


def known_watch(name: str) -> WatchState | None:
    """A watch that was started before, or None."""
    try:
        return WatchState.open(name)
    except MissingError:
        return None


def sample_source() -> str:
    """Source of the sample's watch: other code makes another watch, so that its report is as reports are now."""
    return f"recorded answers of the sample, read by code {running_version()}"


def sample_watch_of(enrolment_sha256: str) -> WatchState | None:
    """The sample's watch by this code and an ecosystem, once it has looked."""
    state = known_watch(SAMPLE)
    if state is None:
        return None
    question = state.question
    if (question.enrolment_sha256, question.source) == (enrolment_sha256, sample_source()) and state.looks():
        return state
    state.close()
    return None


def watches(folder: Path | None = None) -> list[WatchState]:
    """All watches, by name."""
    place = folder or watches_folder()
    return [WatchState(file.parent) for file in sorted(place.glob(f"*/{FILE}"))]


def alarm_sentence(state: WatchState, alarm: Any) -> str:
    """What an alarm says, in a sentence or two."""
    question = state.question
    # Chance moves the lowest evidence some traces away from the change.
    nearest = (
        f"the answers since the evidence was lowest, from about number {alarm.first:,}, are nearest to {alarm.leader}"
    )
    if alarm.verdict == "INCONCLUSIVE":
        nearest = f"Which model answers now is not certain; {nearest}"
    elif alarm.verdict == "UNKNOWN":
        nearest = f"No enrolled model fits what answers now; {nearest}"
    else:
        nearest = f"{alarm.verdict}: {nearest}"
    return (
        f"After {alarm.traces:,} answers the evidence against {question.claimed} is {evidence_text(alarm.log10_e)}; an "
        f"endpoint that did not change gets there in at most {100 * question.rate:g} % of all watches. "
        f"{nearest}."
    )

"""Jobs of all sessions, processes and grants in SQL, for any number of web processes and workers.

A worker that takes a job gets a lease. Whatever it writes, it writes under that lease: where the job was given to
somebody else meanwhile, nothing is written. A process that has not said for a while that it lives is dead.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from peewee import (
    AutoField,
    BooleanField,
    CharField,
    Database,
    DatabaseError,
    DoubleField,
    IntegerField,
    InterfaceError,
    Model,
    SqliteDatabase,
    TextField,
)
from playhouse.db_url import connect

from backend.errors import AtlasError, ServerError
from backend.output_files import lock
from backend.service.caller import NOBODY
from backend.service.job import ENDED, Point, Snapshot
from backend.service.uploads import BusyError

VARIABLE = "ATLAS_STATE"
VERSION = 1  # of the tables; those of another version are left alone
BEAT = 2.0  # seconds after which a process says again that it lives
DEAD = 15.0  # seconds of silence after which its jobs go to others
GONE = 60.0  # the same until its requests under way are taken for gone, and their files are deleted
ATTEMPTS = 3  # workers that may die of one job
POLL = 0.1  # seconds between two looks for what another process has written
STEP = 30.0  # seconds by which each further job of a session waits longer, as if it had come later
LOST = 5.0  # seconds after which a job without a task in the queue gets a new one
SESSION_JOBS = 4  # jobs of one session that wait or run at a time
LIVE_JOBS = 32  # jobs of all sessions that wait or run at a time
CLIENT_JOBS = LIVE_JOBS // 2  # jobs of one client, whatever its sessions, that wait or run at a time
KNOWN_JOBS = 1_000  # those that ended longest ago are deleted beyond it
PRAGMAS = {"journal_mode": "wal", "synchronous": 1, "secure_delete": 1}
_ALONE = 0x61746C61  # key of PostgreSQL's lock: who counts jobs and adds one is alone


class Job(Model):
    """An audit that somebody requested."""

    number = AutoField()
    name = CharField(unique=True)
    place = CharField(index=True)  # folder of its session
    key = CharField()  # of its file
    settings = TextField()  # JSON
    enrolment = TextField()
    enrolment_sha256 = CharField()
    others = TextField()  # JSON: name and sha256 of each further enrolment
    total = IntegerField()
    short = BooleanField()
    discard = BooleanField()
    fingerprints = BooleanField()
    report = CharField(null=True)  # key of the uploaded report whose traces are scored once more
    client = TextField(null=True)  # address of whoever sent the request
    request = CharField(default=NOBODY)  # reference of the request that started it
    priority = DoubleField(default=0.0)
    created = DoubleField()
    queued = DoubleField()  # when its task was put into the queue
    state = CharField(default="queued", index=True)
    done = IntegerField(default=0)
    further = IntegerField(default=0)
    seconds = DoubleField(default=0.0)
    details = TextField(default="{}")  # JSON: nearest, points, problem, remedy, at_fault
    reported = BooleanField(default=False)
    stop = BooleanField(default=False)
    last_step = CharField(default="")  # of its report
    worker = CharField(null=True)
    lease = CharField(null=True)
    attempts = IntegerField(default=0)

    @property
    def files(self) -> list[str]:
        """Keys of what was uploaded for the job: its traces, and unlabelled traffic."""
        pool = json.loads(self.settings).get("pool")
        return [self.key, *([] if pool is None else [pool["key"]])]

    def snapshot(self, waiting: int = 0) -> Snapshot:
        """The job at this moment."""
        details, settings, others = json.loads(self.details), json.loads(self.settings), len(json.loads(self.others))
        return Snapshot(
            self.name,
            self.enrolment,
            self.total,
            settings["claimed"],
            further_total=self.total * others + settings.get("pool", {}).get("traces", 0) * (1 + others),
            state=self.state,
            waiting=waiting,
            done=self.done,
            further=self.further,
            seconds=self.seconds,
            nearest=tuple(details.get("nearest", ())),
            points=tuple(Point(*point) for point in details.get("points", ())),
            reported=self.reported,
            **{name: details.get(name) for name in ("problem", "remedy", "at_fault")},
        )


class Process(Model):
    """A web process or a worker."""

    name = CharField(primary_key=True)
    beat = DoubleField()
    works = BooleanField()
    status = CharField()  # of a worker: loading, ready, failed
    details = TextField()  # JSON: proxy, problem, remedy


class Answer(Model):
    """A short question about a trace; what a worker answers lies in a file of the session."""

    name = CharField(primary_key=True)
    place = CharField(index=True)
    question = TextField()  # JSON
    created = DoubleField()
    ended = BooleanField(default=False)
    error = TextField(null=True)  # JSON: kind, problem, remedy


class Grant(Model):
    """A cookie that was given for the token, by its hash."""

    cookie = CharField(primary_key=True)
    token = CharField()
    until = DoubleField()


class Records:
    """The tables; every method may be called from any thread.

    address : URL of PostgreSQL or an SQLite file; without one, a file in ``folder``.
    """

    def __init__(self, address: str | None, folder: Path) -> None:
        self.changed = threading.Condition()  # this process has written something
        self._db: Any = _database(address, folder)
        self._is_sqlite = isinstance(self._db, SqliteDatabase)
        self.jobs, self.processes, self.answers, self.grants = map(self._bound, (Job, Process, Answer, Grant))
        with contextlib.ExitStack() as first:
            if self._is_sqlite:  # which refuses at once, whatever its timeout, to be made by two processes
                first.enter_context(lock(_turn(Path(self._db.database))))
            first.enter_context(self._alone())
            self._db.create_tables([self.jobs, self.processes, self.answers, self.grants])

    # Jobs

    def add(self, job: Job, *, passing: bool) -> None:
        """Add a job that waits; a BusyError where its session, its client or all have too many.

        passing : whether the session is a single request's, whose turn then depends on its client's jobs.
        """
        table = self.jobs
        with self._alone():
            rows = table.select(table.place, table.client).where(table.state.not_in(ENDED)).tuples()
            live = [(place, client) for place, client in rows]
            session = sum(place == job.place for place, _ in live)
            client = 0 if job.client is None else sum(other == job.client for _, other in live)
            if len(live) >= LIVE_JOBS or session >= SESSION_JOBS or client >= CLIENT_JOBS:
                raise BusyError("Too many audits wait or run already", "Wait until one has ended, or cancel it")
            job.priority = -(job.created + STEP * (max(session, client) if passing else session))
            job.save(force_insert=True)

    def find(self, place: str, name: str) -> Job | None:
        """A job of a session."""
        with self._open():
            return cast("Job | None", self.jobs.get_or_none(self.jobs.name == name, self.jobs.place == place))

    def of_session(self, place: str) -> list[Job]:
        """Jobs of a session, the newest first."""
        with self._open():
            return list(self.jobs.select().where(self.jobs.place == place).order_by(self.jobs.number.desc()))

    def last_steps(self, place: str) -> list[str]:
        """Last steps of a session's reports, the earliest first."""
        return [job.last_step for job in reversed(self.of_session(place)) if job.last_step]

    def ahead(self, job: Job) -> int:
        """Jobs that wait in front of a waiting one."""
        table = self.jobs
        earlier = (table.short == job.short) & (
            (table.priority > job.priority) | ((table.priority == job.priority) & (table.number < job.number))
        )
        if not job.short:
            earlier |= table.short
        with self._open():
            return int(table.select().where((table.state == "queued") & earlier).count())

    def wait(self, place: str, name: str, seconds: float, after: int | None = None) -> None:
        """Wait until a job has ended, or has scored more traces than ``after``, or the time is over."""
        table, until = self.jobs, time.monotonic() + seconds
        with self.changed:
            while True:
                with self._open():
                    query = table.select(table.state, table.done).where(table.name == name, table.place == place)
                    now = query.tuples().first()
                remaining = until - time.monotonic()
                if now is None or now[0] in ENDED or (after is not None and now[1] > after) or remaining <= 0:
                    return
                self.changed.wait(min(remaining, POLL))

    def claim(self, name: str, worker: str) -> Job | None:
        """Take a job that waits; None where somebody else has it, or it has ended."""
        table, lease = self.jobs, secrets.token_hex(8)
        taken = {"state": "running", "worker": worker, "lease": lease, "attempts": table.attempts + 1}
        with self._alone():
            if not table.update(**taken).where(table.name == name, table.state == "queued").execute():
                return None
            job = cast("Job", table.get(table.name == name))
        self._tell()
        return job

    def update(self, job: Job, **fields: Any) -> bool:
        """Write fields of a job that runs; False where its lease is over."""
        return self.end(job, lambda: None, **fields)

    def end(self, job: Job, publish: Callable[[], None], **fields: Any) -> bool:
        """As :meth:`update`; ``publish`` runs before anybody sees the fields, and not where the lease is over."""
        table = self.jobs
        with self._alone():
            own = (table.name == job.name, table.lease == job.lease, table.state == "running")
            written = bool(table.update(**fields).where(*own).execute())
            if written:
                publish()
        self._tell()
        return written

    def give_back(self, job: Job) -> None:
        """Let a job that runs wait again, for a worker that leaves; it is begun anew."""
        self.update(job, **_AGAIN, attempts=job.attempts - 1)

    def must_stop(self, job: Job) -> bool | None:
        """Whether somebody cancelled a job that runs; None where the lease is over."""
        table = self.jobs
        with self._open():
            query = table.select(table.stop).where(table.name == job.name, table.lease == job.lease)
            row = query.where(table.state == "running").tuples().first()
        return None if row is None else bool(row[0])

    def cancel(self, name: str) -> None:
        """End a job after the batch that runs; at once where none does."""
        table = self.jobs
        with self._alone():
            table.update(state="cancelled").where(table.name == name, table.state == "queued").execute()
            table.update(stop=True).where(table.name == name, table.state == "running").execute()
        self._tell()

    def remove(self, names: Sequence[str]) -> None:
        """Delete jobs."""
        with self._alone():
            self.jobs.delete().where(self.jobs.name.in_(names)).execute()
        self._tell()

    def forget(self, place: str) -> None:
        """Delete what a session has."""
        with self._alone():
            for table in (self.jobs, self.answers):
                table.delete().where(table.place == place).execute()
        self._tell()

    def load(self) -> dict[str, int]:
        """How many jobs wait and run."""
        table = self.jobs
        with self._open():
            return {state: int(table.select().where(table.state == state).count()) for state in ("queued", "running")}

    def running(self) -> list[Job]:
        """Jobs that run."""
        with self._open():
            return list(self.jobs.select().where(self.jobs.state == "running"))

    def over(self, created: float) -> list[Job]:
        """Jobs that ended, and were created before a moment or are more than are remembered."""
        table = self.jobs
        with self._open():
            ended = list(table.select().where(table.state.in_(ENDED)).order_by(table.number))
            surplus = max(0, int(table.select().count()) - KNOWN_JOBS)
            self.answers.delete().where(self.answers.created < created).execute()
            self.grants.delete().where(self.grants.until < time.time()).execute()
        return [job for place, job in enumerate(ended) if place < surplus or job.created < created]

    # Processes

    def beat(self, process: str, *, works: bool, status: str, details: dict[str, str | None]) -> None:
        """Say that a process lives."""
        row = {"name": process, "beat": time.time(), "works": works, "status": status, "details": json.dumps(details)}
        with self._open():
            query = self.processes.insert(**row)
            query.on_conflict(conflict_target=[self.processes.name], update=row).execute()

    def release(self, process: str) -> None:
        """Let all jobs of a worker wait for others."""
        with self._alone():
            self.jobs.update(**_AGAIN).where(self.jobs.worker == process, self.jobs.state == "running").execute()
        self._tell()

    def leave(self, process: str) -> None:
        """A process ends; its jobs wait for others."""
        self.release(process)
        with self._open():
            self.processes.delete().where(self.processes.name == process).execute()

    def alive(self, silence: float = DEAD) -> list[Process]:
        """Processes that said so in the last seconds."""
        with self._open():
            return list(self.processes.select().where(self.processes.beat > time.time() - silence))

    def revive(self, *, but: str | None = None) -> None:
        """Give back what dead processes were at; with ``but``, what all other ones were.

        A job of which several workers died fails.
        """
        table, alive = self.jobs, [process.name for process in self.alive()] if but is None else [but]
        with self._open():
            if not table.select().where(table.state == "running", table.worker.not_in(alive)).exists():
                return
        fault = {"problem": "The server failed while it scored these traces", "at_fault": "server"}
        failed = fault | {"remedy": "Try again with fewer traces, or tell whoever runs the server"}
        with self._alone():
            orphans = table.state == "running", table.worker.not_in(alive)
            ended = {"state": "failed", "details": json.dumps(failed)}
            table.update(**ended).where(*orphans, table.attempts >= ATTEMPTS).execute()
            table.update(**_AGAIN).where(*orphans).execute()
            self.processes.delete().where(self.processes.beat < time.time() - 10 * DEAD).execute()
        self._tell()

    def unqueued(self, waiting: Callable[[], set[str]]) -> list[Job]:
        """Jobs that wait without a task, which went with its worker; ``waiting`` are the records that have one."""
        table, since = self.jobs, time.time() - LOST
        with self._open():
            late = list(table.select().where(table.state == "queued", table.queued < since))
        if not late:
            return []
        known, found = waiting(), []
        for job in late:
            if job.name not in known:
                with self._open():
                    own = table.name == job.name, table.queued == job.queued
                    if table.update(queued=time.time()).where(*own).execute():
                        found.append(job)
        return found

    # Questions

    def ask(self, place: str, name: str, question: dict[str, Any]) -> None:
        """Add a question."""
        with self._open():
            self.answers.create(name=name, place=place, question=json.dumps(question), created=time.time())

    def question(self, name: str) -> Answer | None:
        """A question that waits for its answer."""
        with self._open():
            return cast("Answer | None", self.answers.get_or_none(self.answers.name == name, ~self.answers.ended))

    def answer(self, name: str, error: tuple[str, str, str] | None = None) -> None:
        """Say that a question is answered, or why it cannot be."""
        fields = {"ended": True, "error": None if error is None else json.dumps(error)}
        with self._open():
            self.answers.update(**fields).where(self.answers.name == name).execute()
        self._tell()

    def wait_answer(self, name: str, seconds: float) -> Answer | None:
        """A question when it is answered, and deleted from here; None where that takes longer."""
        until = time.monotonic() + seconds
        with self.changed:
            while True:
                with self._open():
                    found = self.answers.get_or_none(self.answers.name == name)
                remaining = until - time.monotonic()
                if found is None or found.ended or remaining <= 0:
                    break
                self.changed.wait(min(remaining, POLL))
        with self._open():
            self.answers.delete().where(self.answers.name == name).execute()
        return cast("Answer", found) if found is not None and found.ended else None

    # Grants

    def grant(self, cookie: str, token: str, until: float, most: int) -> None:
        """Remember a cookie; the oldest go beyond ``most``."""
        table = self.grants
        with self._alone():
            table.create(cookie=cookie, token=token, until=until)
            surplus = int(table.select().count()) - most
            if surplus > 0:
                oldest = [row.cookie for row in table.select().order_by(table.until).limit(surplus)]
                table.delete().where(table.cookie.in_(oldest)).execute()

    def granted(self, cookie: str) -> tuple[float, str]:
        """Until when a cookie is good, and for which token; a time long ago for an unknown one."""
        with self._open():
            found = self.grants.get_or_none(self.grants.cookie == cookie)
        return (0.0, "") if found is None else (found.until, found.token)

    def revoke(self, cookie: str) -> None:
        """Forget a cookie."""
        with self._open():
            self.grants.delete().where(self.grants.cookie == cookie).execute()

    def _bound(self, table: type[Model]) -> Any:
        """A table of this database: several may be open in one process."""
        meta = type("Meta", (), {"database": self._db, "table_name": f"atlas_{table.__name__.lower()}_{VERSION}"})
        return type(table.__name__, (table,), {"Meta": meta, "__module__": __name__})

    def _tell(self) -> None:
        with self.changed:
            self.changed.notify_all()

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """A connection of this thread; PostgreSQL's goes back into the pool."""
        try:
            with contextlib.ExitStack() as end:
                if not self._is_sqlite and self._db.is_closed():
                    end.enter_context(self._db.connection_context())
                yield
        except (DatabaseError, InterfaceError) as error:
            problem = f"The records of audits cannot be reached ({type(error).__name__}: {str(error)[:80].strip()})"
            raise ServerError(problem, f"Correct {VARIABLE}, or see whether the disk is full") from error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """A transaction that no other writes beside."""
        with self._open(), self._db.atomic(*(["IMMEDIATE"] if self._is_sqlite else [])):
            if not self._is_sqlite:
                self._db.execute_sql("SELECT pg_advisory_xact_lock(%s)", (_ALONE,))
            yield


_AGAIN = {
    "state": "queued", "worker": None, "lease": None, "done": 0, "further": 0, "seconds": 0.0, "details": "{}",
    "queued": 0.0,
}  # fmt: skip


def _turn(file: Path) -> Path:
    """What is locked while the tables of a SQLite file are made."""
    return file.with_name(f".{file.name}.lock")


def _database(address: str | None, folder: Path) -> Database:
    if address is None or address.startswith("sqlite:"):
        file = folder / "service.sqlite" if address is None else Path(address.partition(":///")[2])
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            for one in (file, _turn(file)):
                one.touch(mode=0o600)
        except OSError as error:
            raise AtlasError(
                f"{file} cannot be written ({error.strerror})", "Set ATLAS_CACHE to another folder"
            ) from error
        return SqliteDatabase(str(file), pragmas=PRAGMAS, timeout=30)
    if not address.startswith(("postgres://", "postgresql://")):
        raise AtlasError(
            f"{VARIABLE} names no database", "Give an address that begins with postgresql:// or sqlite:///"
        )
    pooled = address.replace("://", "+pool://", 1)
    options = {"prefer_psycopg3": True, "max_connections": 32, "stale_timeout": 300, "timeout": 30}
    try:
        return cast("Database", connect(pooled, unquote_user=True, unquote_password=True, **options))
    except (ImportError, RuntimeError, ValueError) as error:
        raise AtlasError(f"{VARIABLE} cannot be used ({error})", "Install provenance-atlas[postgres]") from error

"""Two kinds of DuckDB file: the work database that jobs write, and the published generations that the web reads.

A writer keeps other processes out of a DuckDB file, so nothing is ever written into one that is served: publishing
copies the work database into an immutable ``atlas-<generation>.duckdb`` and swaps a pointer, which readers follow.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from backend.errors import AtlasError
from backend.output_files import lock
from backend.shipped import shipped

WORK_FILE = "atlas-work.duckdb"
POINTER = "current.json"
MIGRATIONS = Path(__file__).with_name("migrations")
STORAGE_VERSION = "v1.5.0"  # Storage format of published files: the oldest DuckDB that can read them.
HASH_DIGITS = 8
GENERATION = re.compile(r"atlas-\d{8}T\d{6}Z-[0-9a-f]{8}\.duckdb")  # Names of published files.
_FILE = re.compile(r"[\w.+-]{1,200}", re.ASCII)
BLOCK_SIZE = 32_768  # Bytes: most columns here are short, and smaller blocks cannot hold packed integers.
PUBLISHED = {  # What a generation holds of a table: nobody reads vectors, a third of it, or an eighth digit.
    "signatures": "* REPLACE (NULL AS vector)",
    "attribution_metrics": "* REPLACE (round(value, 7) AS value, round(std, 7) AS std)",
}
STORED = {  # The order of rows in a generation: values that are alike lie together, which takes a quarter less room.
    "attribution_metrics": "seed IS NULL AND fold IS NULL, roster, benchmark, condition, metric, reduction, k, reader, "
    "seed, fold"
}
_REMAKE = "Move it away, and run: python -m jobs all"
_REPUBLISH = "Run: python -m jobs publish"
SERVED_FROM = 9  # schema version of a generation; later ones only widen what a row may hold
_REFERENCES = {  # What a column of any table refers to.
    "build_id": ("builds", "build_id"),
    "reader": ("readers", "reader"),
    "proxy": ("proxies", "proxy"),
    "family": ("families", "family"),
    "roster": ("roster_members", "roster"),
    **dict.fromkeys(("source", "neighbor", "truth", "predicted", "confused_with"), ("sources", "source")),
}


class InUseError(AtlasError):
    """Another process holds the file."""


def default_data_folder() -> Path:
    """Where the served atlas lies: ``ATLAS_DATA``, else the ``data/`` that is shipped."""
    given = os.environ.get("ATLAS_DATA")
    return Path(given).expanduser() if given else shipped("data")


@dataclass(frozen=True)
class Migration:
    version: int  # 1, 2, ... without gaps
    name: str  # file name without the ending
    sql: str


def migrations(folder: Path = MIGRATIONS) -> list[Migration]:
    """Steps of the schema in order (``0001_name.sql``, ...); ValueError unless numbered from 1 without gaps."""
    steps = [Migration(int(p.stem[:4]), p.stem, p.read_text("utf-8")) for p in sorted(folder.glob("[0-9]*.sql"))]
    if [step.version for step in steps] != list(range(1, len(steps) + 1)):
        raise ValueError(f"migrations in {folder} must be numbered from 1 without gaps: {[s.name for s in steps]}")
    return steps


def schema_version(connection: duckdb.DuckDBPyConnection) -> int:
    """Version of the schema in the connected database, 0 when it has none."""
    known = connection.execute(
        "SELECT 1 FROM duckdb_tables() WHERE database_name = current_database() AND table_name = 'schema_version'"
    ).fetchall()
    if not known:
        return 0
    # Read to the end: a connection that holds an unread result refuses to register frames.
    ((version,),) = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchall()
    return int(version)


@contextlib.contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Everything in the block happens, or nothing, without nesting; AtlasError if the file cannot be written."""
    connection.execute("BEGIN TRANSACTION")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        # A failed COMMIT may have ended the transaction already.
        with contextlib.suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        unwritten = isinstance(error, duckdb.Error) and "Could not write file" in str(error)
        if unwritten or isinstance(error, duckdb.IOException | duckdb.FatalException):
            problem = f"The work database cannot be written ({_first_line(error)})"
            raise AtlasError(problem, "Free some space on that disk, and run the same command again") from error
        raise


def migrate(connection: duckdb.DuckDBPyConnection, steps: list[Migration] | None = None) -> int:
    """Bring a database to the newest schema and count the steps; AtlasError if it is newer, or another program's."""
    steps = migrations() if steps is None else steps
    present = schema_version(connection)
    if present > len(steps):
        problem = f"The database has schema version {present}, and this atlas knows versions up to {len(steps)}"
        raise AtlasError(problem, "Update the atlas, or use a database that this version wrote")
    if present == 0 and connection.execute("SELECT 1 FROM duckdb_tables() WHERE NOT temporary LIMIT 1").fetchall():
        raise AtlasError("The database holds tables of something else", "Choose another file for the work database")
    for step in steps[present:]:
        with transaction(connection):
            connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_version "
                "(version INTEGER PRIMARY KEY, name VARCHAR NOT NULL, applied_at TIMESTAMP NOT NULL)"
            )
            connection.execute(step.sql)
            now = datetime.now(UTC).replace(tzinfo=None)
            connection.execute("INSERT INTO schema_version VALUES (?, ?, ?)", [step.version, step.name, now])
    return len(steps) - present


def open_work(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the work database for writing; make it, its folders and its schema where needed.

    As long as it is open no other process can read the file. Raises AtlasError if it cannot be written, is in use, is
    no DuckDB database, or its schema is newer than this code.
    """
    remedy = "Point ATLAS_CACHE, or --work, to a folder that you may write to"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"The folder {path.parent} of the work database cannot be made ({error.strerror})"
        raise AtlasError(problem, remedy) from error
    for needed in (path.parent, path):
        if needed.exists() and not os.access(needed, os.W_OK, effective_ids=True):
            problem = f"The work database {path} cannot be written (no permission to write to {needed})"
            raise AtlasError(problem, remedy)
    # Changes that still stand in the write-ahead log (a killed job, another connection) are not in the file yet.
    settled = not path.with_name(f"{path.name}.wal").exists()
    connection = _connect(path)
    try:
        if settled:
            _check_length(connection, path)
        try:
            migrate(connection)
        except AtlasError as error:
            raise AtlasError(f"{path}: {error.problem}", error.remedy) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _only_publisher(folder: Path) -> contextlib.ExitStack:
    """Lock the data folder, so that one process at a time publishes into it."""
    busy = AtlasError(f"Another process is publishing into {folder}", "Wait until it has finished and run it again")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return lock(folder, busy)
    except OSError as error:
        problem = f"The data folder {folder} cannot be opened ({error.strerror})"
        raise AtlasError(problem, "Point ATLAS_DATA, or --to, to a folder that you may write to") from error


def publish(work_path: Path, data_folder: Path, *, prune: bool = False) -> Path:
    """Copy the work database into a new file ``atlas-<UTC time>-<hash of its bytes>.duckdb`` and point readers to it.

    prune : remove the older generations; a process that still reads one keeps reading it.
    Raises AtlasError if there is no work database, a row names what is not recorded, or the folder cannot be written.
    """
    if not work_path.exists():
        raise AtlasError(f"There is no work database {work_path}", "Run: python -m jobs all")
    with _only_publisher(data_folder):
        work = open_work(work_path)
        try:
            check(work)
            for leftover in data_folder.glob(".publishing-*"):
                leftover.unlink()  # of a process that was killed
            scratch = data_folder / ".publishing-atlas.duckdb"
            _copy(work, scratch)
            content = hashlib.sha256(scratch.read_bytes()).hexdigest()
            generation = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{content[:HASH_DIGITS]}"
            path = data_folder / f"atlas-{generation}.duckdb"
            scratch.chmod(0o444)
            scratch.replace(path)
            _replace_text(data_folder / POINTER, json.dumps({"generation": generation, "file": path.name}) + "\n")
            if prune:
                for old in data_folder.glob("atlas-*.duckdb"):  # a work database may lie next to them
                    if old != path and GENERATION.fullmatch(old.name):
                        old.unlink()
        except (OSError, duckdb.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else _first_line(error)
            problem = f"The atlas cannot be published into {data_folder} ({reason})"
            remedy = "Check the free space and the permissions of that folder, or give another one with --to"
            raise AtlasError(problem, remedy) from error
        finally:
            work.close()
            for leftover in data_folder.glob(".publishing-*"):
                with contextlib.suppress(OSError):
                    leftover.unlink()
    return path


def check(connection: duckdb.DuckDBPyConnection) -> None:
    """Raise AtlasError if a row names something that is not recorded, a build above all."""
    columns = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns() "
        "WHERE database_name = current_database() AND schema_name = 'main' ORDER BY table_name, column_index"
    ).fetchall()
    # A label that is no source any more: rows in lists may name a source that is not recorded.
    lost = connection.execute("SELECT 1 FROM labels WHERE label NOT IN (SELECT source FROM sources) LIMIT 1")
    unpack = lost.fetchone() is not None
    for place, column in columns:
        table = view_of(place)
        target, key = _REFERENCES.get(column, (table, column))
        listed = column in PACKED.get(table, ())
        if target == table or (table in PACKED and (place == table) != listed) or (listed and not unpack):
            continue
        rows = "count(*)" if place == table else "sum(cells)"
        orphans = connection.execute(
            f'SELECT "{column}", {rows} FROM "{place}" '
            f'WHERE "{column}" IS NOT NULL AND "{column}" NOT IN (SELECT "{key}" FROM "{target}") '
            "GROUP BY ALL ORDER BY ALL LIMIT 1"
        ).fetchall()
        for orphan, rows in orphans:
            problem = f"{rows} rows of table '{table}' name the {column} '{orphan}', which table '{target}' lacks"
            remedy = "Run the job that writes these rows again (it was interrupted, or did not record what it used)"
            raise AtlasError(problem, remedy)


class Generation:
    """A published database, open for reading; every thread takes a :meth:`cursor`, which keeps the file open."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._lock = threading.Lock()
        try:
            raw = path.read_bytes()
            self.size, content = len(raw), hashlib.sha256(raw).hexdigest()
        except OSError as error:
            raise AtlasError(f"The published file {path} cannot be read ({error.strerror})", _REPUBLISH) from error
        if not name.endswith(f"-{content[:HASH_DIGITS]}"):
            raise AtlasError(f"The published file {path} is not what was published", _REPUBLISH)
        self._connection = _connect(path, serve=True)
        present, known = schema_version(self._connection), len(migrations())
        if present > known:
            problem = f"{path} has schema version {present}, and this atlas knows versions up to {known}"
            raise AtlasError(problem, "Update the atlas, or point ATLAS_DATA to a generation that this version wrote")
        if present < SERVED_FROM:
            problem = f"{path} has schema version {present}, and this atlas reads version {known}"
            raise AtlasError(problem, "Publish it again with: python -m jobs publish")

    @classmethod
    def open(cls, folder: Path) -> Generation:
        """Open the generation that the folder's pointer names; AtlasError if this code cannot."""
        name, path = read_pointer(folder)
        if not path.exists():
            name, path = read_pointer(folder)  # pruned between the two looks
        return cls(name, path)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection for one thread and one request."""
        with self._lock:
            return self._connection.cursor()


class Generations:
    """Follow the pointer of a data folder from one generation to the next.

    ``problem`` is why the newest generation cannot be served; the one before it is served instead.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problem: AtlasError | None = None
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._current = Generation.open(folder)

    def current(self) -> Generation:
        """The newest generation that can be served; costs one look at the pointer file."""
        if self._look() != self._stamp:
            with self._lock:
                stamp = self._look()
                if stamp != self._stamp:
                    try:
                        self._current, self.problem = Generation.open(self.folder), None
                    except AtlasError as error:
                        self.problem = error
                    self._stamp = stamp
        return self._current

    def _look(self) -> tuple[int, int, int] | None:
        try:
            seen = (self.folder / POINTER).stat()
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns, seen.st_size


def read_pointer(folder: Path) -> tuple[str, Path]:
    """Name and file of the current generation; AtlasError if there is no pointer that can be understood."""
    pointer = folder / POINTER
    try:
        entry = json.loads(pointer.read_text("utf-8"))
        name, file = str(entry["generation"]), str(entry["file"])
    except OSError as error:
        problem = f"There is no published atlas in {folder} ({POINTER}: {error.strerror})"
        remedy = "Run: python -m jobs all, or point ATLAS_DATA to the folder that holds one"
        raise AtlasError(problem, remedy) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise AtlasError(f"{pointer} does not name a generation", _REPUBLISH) from error
    if Path(file).name != file:
        raise AtlasError(f"{pointer} names a file outside its folder ({ascii(file)[:200]})", _REPUBLISH)
    if not _FILE.fullmatch(file):  # which no file system takes, or not in a path
        raise AtlasError(f"{pointer} names no file of a generation ({ascii(file)[:200]})", _REPUBLISH)
    return name, folder / file


def served(data_folder: Path) -> tuple[str, Path] | None:
    """Name and file of the current generation, None where there is none."""
    with contextlib.suppress(AtlasError):
        name, path = read_pointer(data_folder)
        return (name, path) if path.exists() else None
    return None


def begin_work(path: Path, data_folder: Path) -> str | None:
    """Copy the current generation to where there is no work database yet, and name it.

    None, and nothing is copied, where the file is there or nothing is published. AtlasError if it cannot be written.
    """
    found = served(data_folder)
    if path.exists() or found is None:
        return None
    name, generation = found
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(generation, scratch)
        with contextlib.suppress(FileExistsError):  # another job was quicker
            os.link(scratch, path)
    except OSError as error:
        problem = f"The work database {path} cannot be begun ({error.strerror})"
        remedy = "Check the free space and the permissions of that folder, or point ATLAS_CACHE, or --work, to another"
        raise AtlasError(problem, remedy) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()
    return name


def _connect(path: Path, *, serve: bool = False) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {}
    if serve:
        config = {"enable_external_access": False, "lock_configuration": True}
    try:
        return duckdb.connect(path, read_only=serve, config=config)
    except (OSError, duckdb.Error) as error:
        raise _explained(path, error, _REPUBLISH if serve else _REMAKE) from error


def _check_length(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """DuckDB opens a file that lost its end, and fails only when it comes to what is missing."""
    ((used,),) = connection.execute("SELECT block_size * used_blocks FROM pragma_database_size()").fetchall()
    if path.stat().st_size < used:
        raise AtlasError(f"{path} is damaged (its end is missing)", _REMAKE)


def _explained(path: Path, error: Exception, remedy: str) -> AtlasError:
    """What DuckDB says about a file, in one sentence; ``remedy`` is for a file that is of no use."""
    text = _first_line(error)
    if "Could not set lock on file" in text:
        holder = re.search(r"\(PID (\d+)\)", text)
        who = f"process {holder[1]}" if holder else "another process"
        return InUseError(f"{path} is in use by {who}", "Wait until it has finished, then run this again")
    if "we can only read version" in text:
        return AtlasError(f"{path} was written by a newer DuckDB than {duckdb.__version__}", "Update DuckDB")
    damage = ("is not a valid DuckDB database file", "Corrupt database file", "Could not read enough bytes")
    if any(sign in text for sign in damage):
        return AtlasError(f"{path} is damaged, or is no DuckDB database", remedy)
    return AtlasError(f"{path} cannot be opened ({text})", "Check that file and its folder")


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".")


def _copy(work: duckdb.DuckDBPyConnection, target: Path) -> None:
    """Copy the connected database into a new file that DuckDB 1.5 and later can read."""
    ((current,),) = work.execute("SELECT current_database()").fetchall()
    literal = str(target).replace("'", "''")
    name = str(current).replace('"', '""')
    tables = work.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = ?", [current]).fetchall()
    work.execute(f"ATTACH '{literal}' AS generation (STORAGE_VERSION '{STORAGE_VERSION}', BLOCK_SIZE {BLOCK_SIZE})")
    try:
        work.execute(f'COPY FROM DATABASE "{name}" TO generation (SCHEMA)')
        for (table,) in tables:
            columns = PUBLISHED.get(table, "*")
            order = f" ORDER BY {STORED[table]}" if table in STORED else ""
            work.execute(f'INSERT INTO generation."{table}" SELECT {columns} FROM "{name}"."{table}"{order}')
    finally:
        work.execute("DETACH generation")


def _replace_text(path: Path, text: str) -> None:
    scratch = path.with_name(f".publishing-{path.name}")
    with scratch.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    scratch.replace(path)


# ---- Tables whose rows lie in lists, a row a key ---------------------------------------------------------------------
# ``TABLE_lists`` holds the lists, the view ``TABLE`` its rows, and the macro ``pack_TABLE`` makes lists from rows
# (migration 9). Sources stand in lists by their number in ``labels``.

PACKED: Mapping[str, tuple[str, ...]] = {  # views, and their columns that are numbers of labels in the lists
    "confusion": ("truth", "predicted"),
    "source_accuracy": ("source", "confused_with"),
    "neighbors": ("source", "neighbor"),
}
KEY = frozenset({"reader", "roster", "benchmark", "condition", "domain", "k", "build_id"})  # a value a row of lists
NULLABLE = frozenset({"confused_with"})  # Columns of the views that may be NULL; DuckDB says of a view that all may.


def storage(table: str) -> str:
    """The table that holds the rows of a table or view."""
    return f"{table}_lists" if table in PACKED else table


def key_table(table: str, key: Iterable[str]) -> str:
    """The table in which a key finds its rows: that with the lists, unless the key names something inside them."""
    return storage(table) if set(key) <= KEY else table


def view_of(table: str) -> str:
    """The view over a table of lists; any other name as it is."""
    view = table.removesuffix("_lists")
    return view if view in PACKED else table


def insert_lists(connection: duckdb.DuckDBPyConnection, table: str, rows: str) -> None:
    """Add the rows of a relation, with all columns of a view, to its table of lists; new sources get numbers."""
    for column in PACKED[table]:
        connection.execute(
            f"""
            INSERT INTO labels
            SELECT (SELECT coalesce(max(number) + 1, 0) FROM labels) + row_number() OVER (ORDER BY first) - 1, label
            FROM (
                SELECT label, min(place) AS first
                FROM (SELECT "{column}"::VARCHAR AS label, row_number() OVER () AS place FROM {rows}) GROUP BY label
            ) WHERE label IS NOT NULL AND label NOT IN (SELECT label FROM labels)
            """
        )
    connection.execute(f"INSERT INTO {storage(table)} BY NAME SELECT * FROM pack_{table}('{rows}')")


def stored_rows(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    """Rows of a table or view of the schema."""
    rows = "coalesce(sum(cells), 0)" if table in PACKED else "count(*)"
    ((count,),) = connection.execute(f'SELECT {rows} FROM "{storage(table)}"').fetchall()
    return int(count)

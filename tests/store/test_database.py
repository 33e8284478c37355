"""The work database, its migrations, and generations that are published while others read."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from backend.errors import AtlasError
from backend.store.builds import recorded
from backend.store.database import (
    MIGRATIONS,
    POINTER,
    SERVED_FROM,
    WORK_FILE,
    Generation,
    Generations,
    default_data_folder,
    migrate,
    migrations,
    open_work,
    publish,
    read_pointer,
    schema_version,
)
from backend.store.writers import replace_rows, write_reader, write_sources
from jobs.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
NEWEST = len(migrations())


def sample_work(path: Path, value: float = 0.5) -> Path:
    """A work database with two sources, one reader and one number."""
    roster = pd.DataFrame(
        {
            "label": ["one", "two"],
            "repo_id": ["org/one", "org/two"],
            "family": ["a", "b"],
            "plot_family": ["A", "B"],
            "source": ["original50", "api50"],
        }
    )
    with open_work(path) as connection, recorded(connection, stage="test", command="pytest") as build:
        write_sources(connection, roster, {"one": 3, "two": 3}, build, rosters={"2-way": 2})
        reader = write_reader(connection, method="m", view="r", name="M")
        number = pd.DataFrame({"k": [1], "reduction": "pooled", "metric": "accuracy", "value": value, "n": 6})
        key = {"reader": reader, "roster": "2-way", "benchmark": "agent500", "condition": "clean"}
        replace_rows(connection, "attribution_metrics", number, key, build)
    return path


def value_in(cursor: duckdb.DuckDBPyConnection) -> float:
    return cursor.execute("SELECT value FROM attribution_metrics").fetchone()[0]


def dump(connection: duckdb.DuckDBPyConnection) -> dict[str, list[tuple]]:
    tables = [t for (t,) in connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall()]
    return {table: connection.execute(f'SELECT * FROM "{table}" ORDER BY ALL').fetchall() for table in tables}


def columns(connection: duckdb.DuckDBPyConnection) -> list[tuple]:
    return connection.execute(
        "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() "
        "WHERE schema_name = 'main' AND NOT internal ORDER BY table_name, column_index"
    ).fetchall()


def open_files(path: Path) -> int:
    """How often this process has a file open."""
    held = 0
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            held += handle.readlink() == path.resolve()
    return held


@contextlib.contextmanager
def holding(path: Path, *, read_only: bool) -> Iterator[Callable[[str], str]]:
    """Another process that has a database open; it answers SQL."""
    code = textwrap.dedent(
        """
        import sys, duckdb
        connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "True")
        print("ready", flush=True)
        for line in sys.stdin:
            print(connection.execute(line).fetchone()[0], flush=True)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(read_only)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"

    def ask(sql: str) -> str:
        process.stdin.write(sql + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    try:
        yield ask
    finally:
        process.stdin.close()
        assert process.wait(timeout=300) == 0
        process.stdout.close()


@contextlib.contextmanager
def unwritable_folder() -> Iterator[Path]:
    """A folder that this process may not write to, whoever runs the tests."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            try:
                os.seteuid(65534)
            except OSError:
                pytest.skip("this machine does not let the tests give up their rights")
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)


# ---- migrations -----------------------------------------------------------------------------------------------------


def test_a_new_work_database_has_every_migration(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / WORK_FILE
    with open_work(path) as connection:
        assert schema_version(connection) == NEWEST
        rows = connection.execute("SELECT version, name FROM schema_version ORDER BY version").fetchall()
        assert rows == [(step.version, step.name) for step in migrations()]
        assert rows[0] == (1, "0001_spine")
        assert dump(connection)["builds"] == []


@pytest.mark.parametrize("older", range(NEWEST))
def test_every_older_file_arrives_at_the_same_schema(tmp_path: Path, older: int) -> None:
    path = tmp_path / WORK_FILE
    with duckdb.connect(path) as connection:
        assert migrate(connection, migrations()[:older]) == older
        assert schema_version(connection) == older
        if older:
            connection.execute("INSERT INTO families VALUES ('kept', 7)")
    with open_work(tmp_path / "new.duckdb") as new, open_work(path) as connection:
        assert schema_version(connection) == NEWEST
        assert columns(connection) == columns(new)
        assert connection.execute("SELECT * FROM families").fetchall() == ([("kept", 7)] if older else [])


def test_migrations_keep_data_and_are_taken_once(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    steps.mkdir()
    for number, file in enumerate(sorted(MIGRATIONS.glob("*.sql")), start=1):
        (steps / f"{number:04}_{number}.sql").write_text(file.read_text("utf-8"), "utf-8")
    (steps / f"{NEWEST + 1:04}_more.sql").write_text(
        "ALTER TABLE families ADD COLUMN hue DOUBLE DEFAULT 0.25;", "utf-8"
    )
    work = sample_work(tmp_path / WORK_FILE)
    with duckdb.connect(work) as connection:
        assert migrate(connection, migrations(steps)) == 1
        assert migrate(connection, migrations(steps)) == 0
        assert connection.execute("SELECT * FROM families ORDER BY ALL").fetchall() == [("A", 0, 0.25), ("B", 1, 0.25)]
        assert value_in(connection) == 0.5


def test_percentiles_and_cosines_that_were_written_before_are_shortened(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / WORK_FILE) as connection:
        migrate(connection, migrations()[:3])
        row = {"reader": "r", "roster": "o", "domain": "d", "source": "a", "neighbor": "b", "rank": 1, "build_id": "x"}
        row |= {"cosine": 1 / 7, "percentile": 2 / 3}
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO neighbors ({names}) VALUES ({marks})", list(row.values()))
        migrate(connection)
        assert connection.execute("SELECT cosine, percentile FROM neighbors").fetchall() == [(0.142857, 0.666667)]


def test_a_failing_migration_leaves_the_version_before_it(tmp_path: Path) -> None:
    (tmp_path / "0001_good.sql").write_text("CREATE TABLE good (i INTEGER);", "utf-8")
    (tmp_path / "0002_bad.sql").write_text("CREATE TABLE half (i INTEGER); INSERT INTO good VALUES ('x');", "utf-8")
    with duckdb.connect(tmp_path / "f.duckdb") as connection:
        with pytest.raises(duckdb.ConversionException):
            migrate(connection, migrations(tmp_path))
        assert schema_version(connection) == 1
        assert sorted(dump(connection)) == ["good", "schema_version"]


def test_migrations_without_gaps(tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text("", "utf-8")
    (tmp_path / "0003_c.sql").write_text("", "utf-8")
    with pytest.raises(ValueError, match=r"without gaps.*0003_c"):
        migrations(tmp_path)


# ---- what a person may meet -----------------------------------------------------------------------------------------


def make_newer(path: Path) -> None:
    with duckdb.connect(path) as connection:
        connection.execute(f"INSERT INTO schema_version VALUES ({NEWEST + 4}, 'later', now()::TIMESTAMP)")


def test_a_newer_work_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = sample_work(tmp_path / WORK_FILE)
    make_newer(path)
    before = path.read_bytes()
    with pytest.raises(AtlasError, match=rf"schema version {NEWEST + 4}, .* up to {NEWEST}\. Update the atlas") as told:
        open_work(path)
    assert str(path) in told.value.problem
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "other.duckdb") as connection:
        connection.execute("CREATE TABLE invoices (i INTEGER)")
    with pytest.raises(AtlasError, match=r"something else\. Choose another file"):
        open_work(tmp_path / "other.duckdb")
    with duckdb.connect(tmp_path / "other.duckdb") as connection:
        assert list(dump(connection)) == ["invoices"]


@pytest.mark.parametrize("content", [b"", b"not a database", b"\x00" * 20_000])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / WORK_FILE
    path.write_bytes(content)
    with pytest.raises(
        AtlasError, match=r"damaged, or is no DuckDB database\. Move it away, and run: python -m jobs all"
    ):
        open_work(path)
    assert path.read_bytes() == content


def test_a_truncated_work_database(tmp_path: Path) -> None:
    path = sample_work(tmp_path / WORK_FILE)
    os.truncate(path, path.stat().st_size * 2 // 3)
    with pytest.raises(AtlasError, match="is damaged"):
        open_work(path)


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match=r"cannot be opened \(.*directory.*\)\. Check that file"):
        open_work(tmp_path)


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AtlasError, match=r"folder .*file of the work database cannot be made"):
        open_work(tmp_path / "file" / WORK_FILE)


def test_a_work_database_that_another_process_holds(tmp_path: Path) -> None:
    path = sample_work(tmp_path / WORK_FILE)
    with holding(path, read_only=False) as ask:
        with pytest.raises(AtlasError, match=r"in use by process \d+\. Wait until it has finished"):
            open_work(path)
        with pytest.raises(AtlasError, match="in use by process"):
            publish(path, tmp_path / "data")
        assert ask("SELECT count(*) FROM sources") == "2"
    assert not (tmp_path / "data" / POINTER).exists()
    open_work(path).close()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with unwritable_folder() as folder:
        with pytest.raises(AtlasError, match=r"no permission to write .*Point ATLAS_CACHE"):
            open_work(folder / WORK_FILE)
        with pytest.raises(AtlasError, match=r"cannot be made \(Permission denied\)"):
            open_work(folder / "deeper" / WORK_FILE)
        assert list(folder.iterdir()) == []


def test_a_data_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = migrations()  # the checkout may lie where only root can read
    monkeypatch.setattr("backend.store.database.migrations", lambda: steps)
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        work = sample_work(Path(made) / WORK_FILE)
        Path(made).chmod(0o777)
        work.chmod(0o666)
        with unwritable_folder() as folder:
            with pytest.raises(AtlasError, match=r"cannot be published into .*Permission denied.*--to"):
                publish(work, folder)
            assert list(folder.iterdir()) == []
        open_work(work).close()


FULL_DISK = """
import resource, sys
from pathlib import Path
import duckdb, numpy as np, pandas as pd
from backend.errors import AtlasError
from backend.store.database import open_work, publish
from backend.store.writers import replace_rows
work, data = Path(sys.argv[1]), Path(sys.argv[2])
connection = open_work(work)
big = pd.DataFrame(np.random.rand(100_000, 2), columns=["x", "y"])
big = big.assign(domain="d", method="m", dimensions=2, source="one")
key = {"reader": "m/r", "roster": "2-way"}
build = connection.execute("SELECT build_id FROM builds").fetchone()[0]
if sys.argv[3] == "publish":
    replace_rows(connection, "projections", big, key, build)
connection.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
try:
    if sys.argv[3] == "publish":
        publish(work, data)
    else:
        replace_rows(open_work(work), "projections", big, key, build)
except AtlasError as error:
    print(error)
"""


@pytest.mark.parametrize("step", ["write", "publish"])
def test_a_full_disk(tmp_path: Path, step: str) -> None:
    work, data = sample_work(tmp_path / WORK_FILE), tmp_path / "data"
    first = publish(work, data)
    pointer = (data / POINTER).read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(work), str(data), step],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "cannot be published into" in done.stdout if step == "publish" else "Free some space" in done.stdout
    assert sorted(file.name for file in data.iterdir()) == sorted([first.name, POINTER])
    assert (data / POINTER).read_bytes() == pointer
    with open_work(work) as connection:
        assert value_in(connection) == 0.5
        rows = connection.execute("SELECT count(*) FROM projections").fetchone()[0]
        assert rows == (100_000 if step == "publish" else 0)


# ---- publishing -----------------------------------------------------------------------------------------------------


def test_a_generation_holds_what_the_work_database_holds(tmp_path: Path) -> None:
    work, data = sample_work(tmp_path / WORK_FILE), tmp_path / "new" / "data"
    path = publish(work, data)
    assert json.loads((data / POINTER).read_text()) == {
        "generation": path.stem.removeprefix("atlas-"),
        "file": path.name,
    }
    assert sorted(file.name for file in data.iterdir()) == [path.name, POINTER]
    assert path.stat().st_mode & 0o777 == 0o444
    generation = Generation.open(data)
    assert (generation.name, generation.path) == read_pointer(data)
    with open_work(work) as connection, generation.cursor() as cursor:
        assert dump(cursor) == dump(connection)
        assert columns(cursor) == columns(connection)


def test_published_files_are_in_the_old_storage_format(tmp_path: Path) -> None:
    publish(sample_work(tmp_path / WORK_FILE), tmp_path)
    with Generation.open(tmp_path).cursor() as cursor:
        tags = cursor.execute("SELECT tags FROM duckdb_databases() WHERE NOT internal").fetchone()[0]
    assert tags["storage_version"].startswith("v1.5.0")


def test_publishing_beside_an_open_connection_of_the_same_process(tmp_path: Path) -> None:
    work = sample_work(tmp_path / WORK_FILE)
    with open_work(work) as connection:
        connection.execute("UPDATE attribution_metrics SET value = 0.75")
        publish(work, tmp_path)
        assert value_in(connection) == 0.75
    with Generation.open(tmp_path).cursor() as cursor:
        assert value_in(cursor) == 0.75


def test_publishing_without_a_work_database(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match=r"no work database .*\. Run: python -m jobs all\."):
        publish(tmp_path / WORK_FILE, tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_a_number_without_a_build_is_refused(tmp_path: Path) -> None:
    work = sample_work(tmp_path / WORK_FILE)
    with (
        pytest.raises(RuntimeError),
        open_work(work) as connection,
        recorded(connection, stage="s", command="c") as build,
    ):
        row = pd.DataFrame({"k": [1], "purity": 0.1, "expectation": 0.1, "sources": 2, "families": 2})
        replace_rows(connection, "family_purity", row, {"reader": "m/r", "roster": "2-way", "domain": "d"}, build)
        raise RuntimeError("interrupted")
    with pytest.raises(AtlasError, match=rf"1 rows of table 'family_purity' name the build_id '{build}'.*'builds'"):
        publish(work, tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("DELETE FROM readers", r"'attribution_metrics' name the reader 'm/r'.*'readers'"),
        ("UPDATE readers SET proxy = 'p'", r"'readers' name the proxy 'p'.*'proxies'"),
        ("DELETE FROM families WHERE family = 'B'", r"'sources' name the family 'B'.*'families'"),
        ("DELETE FROM sources WHERE source = 'two'", r"'roster_members' name the source 'two'.*'sources'"),
        ("UPDATE attribution_metrics SET roster = '9-way'", r"'attribution_metrics' name the roster '9-way'"),
    ],
)
def test_rows_that_name_what_is_not_recorded_are_refused(tmp_path: Path, change: str, told: str) -> None:
    work = sample_work(tmp_path / WORK_FILE)
    with open_work(work) as connection:
        connection.execute(change)
    with pytest.raises(AtlasError, match=told):
        publish(work, tmp_path / "data")


def test_old_generations_stay_unless_pruned(tmp_path: Path) -> None:
    work, data = sample_work(tmp_path / WORK_FILE), tmp_path / "data"
    first = publish(work, data)
    sample_work(work, 0.6)
    second = publish(work, data)
    assert first.exists() and second.exists() and first != second
    (data / "README.md").write_text("not ours")
    (data / WORK_FILE).write_text("a work database in the same folder")
    (data / ".publishing-atlas.duckdb").write_text("left by a process that was killed")
    sample_work(work, 0.7)
    third = publish(work, data, prune=True)
    assert sorted(file.name for file in data.iterdir()) == sorted([third.name, POINTER, "README.md", WORK_FILE])


def test_one_process_at_a_time_publishes(tmp_path: Path) -> None:
    work = sample_work(tmp_path / WORK_FILE)
    code = (
        "import fcntl, os, sys\n"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n"
        "print(1, flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"1\n"
        with pytest.raises(AtlasError, match="Another process is publishing"):
            publish(work, tmp_path)
        other.communicate(b"\n")
    publish(work, tmp_path)


# ---- serving --------------------------------------------------------------------------------------------------------


def test_publishing_while_another_process_reads_the_old_generation(tmp_path: Path) -> None:
    work, data = sample_work(tmp_path / WORK_FILE, 0.25), tmp_path / "data"
    first = publish(work, data)
    with holding(first, read_only=True) as ask:
        assert ask("SELECT value FROM attribution_metrics") == "0.25"
        sample_work(work, 0.5)
        second = publish(work, data, prune=True)
        assert not first.exists() and second.exists()
        assert ask("SELECT value + 1 FROM attribution_metrics") == "1.25"
    with Generation.open(data).cursor() as cursor:
        assert value_in(cursor) == 0.5


def test_a_follower_takes_up_the_next_generation_and_lets_running_requests_end(tmp_path: Path) -> None:
    work, data = sample_work(tmp_path / WORK_FILE, 0.25), tmp_path / "data"
    first = publish(work, data)
    follower = Generations(data)
    old = follower.current()
    assert follower.current() is old and old.path == first
    running = old.cursor()
    sample_work(work, 0.5)
    second = publish(work, data)
    new = follower.current()
    assert new.path == second and new.name != old.name and follower.current() is new
    with new.cursor() as cursor:
        assert value_in(cursor) == 0.5
    del old
    gc.collect()
    assert value_in(running) == 0.25
    assert open_files(first) == 1
    running.close()
    gc.collect()
    assert open_files(first) == 0 and open_files(second) == 1


def test_a_follower_keeps_what_it_has_when_the_next_generation_is_of_no_use(tmp_path: Path) -> None:
    work, data = sample_work(tmp_path / WORK_FILE, 0.25), tmp_path / "data"
    publish(work, data)
    follower = Generations(data)
    first = follower.current()
    good = (data / POINTER).read_bytes()
    for bad in (b"{", b'{"generation": "g-00000000", "file": "atlas-g.duckdb"}', None):
        (data / POINTER).unlink()
        if bad is not None:
            (data / POINTER).write_bytes(bad)
        assert follower.current() is first
        assert isinstance(follower.problem, AtlasError)
        (data / POINTER).write_bytes(good)
        first = follower.current()
        assert follower.problem is None
        with first.cursor() as cursor:
            assert value_in(cursor) == 0.25


def test_threads_read_through_cursors_of_their_own(tmp_path: Path) -> None:
    work, data = sample_work(tmp_path / WORK_FILE), tmp_path / "data"
    publish(work, data)
    follower = Generations(data)
    seen: list[float] = []
    failed: list[BaseException] = []
    start = threading.Barrier(3)

    def ask() -> None:
        try:
            start.wait(300)
            for _ in range(40):
                with follower.current().cursor() as cursor:
                    seen.append(value_in(cursor))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    start.wait(300)
    sample_work(work, 0.75)
    publish(work, data, prune=True)
    for thread in threads:
        thread.join(300)
    assert failed == []
    assert len(seen) == 80 and set(seen) <= {0.5, 0.75}
    with follower.current().cursor() as cursor:
        assert value_in(cursor) == 0.75


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO families VALUES ('x', 9)",
        "UPDATE attribution_metrics SET value = 1",
        "DELETE FROM sources",
        "DROP TABLE builds",
        "CREATE TABLE extra (i INTEGER)",
        "ATTACH '{folder}/other.duckdb'",
        "COPY sources TO '{folder}/sources.csv'",
        "SELECT * FROM read_text('{folder}/secret')",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "INSTALL httpfs",
    ],
)
def test_a_published_file_cannot_be_written_nor_left(tmp_path: Path, sql: str) -> None:
    data = tmp_path / "data"
    path = publish(sample_work(tmp_path / WORK_FILE), data)
    before = path.read_bytes()
    (data / "secret").write_text("secret")
    with Generation.open(data).cursor() as cursor, pytest.raises(duckdb.Error):
        cursor.execute(sql.format(folder=data))
    assert path.read_bytes() == before
    assert sorted(file.name for file in data.iterdir()) == sorted([path.name, POINTER, "secret"])


def test_no_pointer(tmp_path: Path) -> None:
    for opening in (Generation.open, Generations):
        with pytest.raises(
            AtlasError, match=r"no published atlas in .*\. Run: python -m jobs all, or point ATLAS_DATA"
        ):
            opening(tmp_path / "missing")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"generation": "g"}', '{"generation": "g", "file": "../../etc/passwd"}', "\udcff"]
)
def test_a_pointer_that_points_nowhere(tmp_path: Path, text: str) -> None:
    (tmp_path / POINTER).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(AtlasError, match="Run: python -m jobs publish"):
        Generation.open(tmp_path)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 5_000, "", ".", "a b", "é"])
def test_a_pointer_that_no_file_system_takes_keeps_the_old_generation(tmp_path: Path, name: str) -> None:
    path = publish(sample_work(tmp_path / WORK_FILE), tmp_path)
    held = Generations(tmp_path)
    for content in ({"generation": "g", "file": name}, {"generation": name, "file": path.name}):
        (tmp_path / POINTER).write_text(json.dumps(content), "utf-8")
        os.utime(tmp_path / POINTER, ns=(0, hash((name, str(content))) % 10**18))
        assert held.current().path == path
        assert held.problem is not None and "jobs publish" in held.problem.remedy
        str(held.problem).encode()
    (tmp_path / POINTER).write_bytes(b"[" * 100_000)
    assert held.current().path == path and held.problem is not None


def test_a_missing_or_changed_file_is_not_served(tmp_path: Path) -> None:
    path = publish(sample_work(tmp_path / WORK_FILE), tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    with pytest.raises(AtlasError, match=r"cannot be read \(No such file or directory\)\. Run: python -m jobs publish"):
        Generation.open(tmp_path)
    path.write_bytes(content)
    with pytest.raises(AtlasError, match="is not what was published"):
        Generation.open(tmp_path)


@pytest.mark.parametrize("difference", [SERVED_FROM - NEWEST - 1, 3])
def test_a_generation_of_another_schema_is_refused(tmp_path: Path, difference: int) -> None:
    work = sample_work(tmp_path / WORK_FILE)
    path = publish(work, tmp_path)
    path.chmod(0o644)
    with duckdb.connect(path) as connection:
        connection.execute(f"DELETE FROM schema_version WHERE version >= {NEWEST + min(difference, 0)}")
        connection.execute("INSERT OR IGNORE INTO schema_version VALUES (?, 'other', now())", [NEWEST + difference])
    name = f"g-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    (tmp_path / POINTER).write_text(json.dumps({"generation": name, "file": path.name}))
    with pytest.raises(AtlasError, match=rf"schema version {NEWEST + difference}, .* {NEWEST}\.") as told:
        Generation.open(tmp_path)
    assert told.value.remedy.startswith("Update the atlas" if difference > 0 else "Publish it again")


# ---- the verb -------------------------------------------------------------------------------------------------------


def test_the_verb_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    assert default_data_folder() == tmp_path / "data"
    assert main(["publish"]) == 2
    assert "Error: There is no work database" in capsys.readouterr().err
    sample_work(tmp_path / "cache" / WORK_FILE)
    assert main(["publish"]) == 0
    name, path = read_pointer(tmp_path / "data")
    assert f"Published {path} (" in capsys.readouterr().out
    assert (
        main(["publish", "--work", str(tmp_path / "cache" / WORK_FILE), "--to", str(tmp_path / "data"), "--prune"]) == 0
    )
    newer, _ = read_pointer(tmp_path / "data")
    assert newer != name or not path.exists()
    assert len(list((tmp_path / "data").glob("atlas-*"))) == 1


def test_the_data_folder_is_beside_the_code_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATLAS_DATA", raising=False)
    assert default_data_folder() == ROOT / "data"


def test_a_work_file_with_changes_in_its_log_is_not_taken_for_damaged(tmp_path):
    path = tmp_path / "work.duckdb"
    with contextlib.closing(open_work(path)) as first:
        first.execute("CREATE TABLE wide AS SELECT range AS n, repeat('x', 500) AS t FROM range(20000)")
        with contextlib.closing(open_work(path)) as second:  # the file itself is still short
            assert second.execute("SELECT count(*) FROM wide").fetchone() == (20000,)

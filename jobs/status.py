"""Say what has been made: stages with age and duration, what is missing, and the command that makes it.

Reads the work database without writing to it, and the feature store on disk. It never waits: while a job holds the
database it says so.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from backend.corpus.release import BENCHMARKS, Release, default_release
from backend.corpus.roster_rows import slice_of
from backend.errors import AtlasError
from backend.evaluations.stages import STAGES
from backend.fingerprints import FingerprintStore, StoreKey
from backend.methods.registry import CONTROLS, FUSED, FUSED_LIVE, MAPPED, QUICK, RELATED
from backend.protocol import READER_PAPER
from backend.proxies.registry import DEFAULT_PROXY
from backend.store.continuation import served
from backend.store.database import default_data_folder, read_pointer
from backend.store.result_queries import holdings, made_rows, open_reading
from backend.traces import VIEWS
from jobs import options

STRESSED = ("agent500 t128-global", "agent500 t64-global", "agent500 t32-global", "math100 clean")
PROTOCOLS = ("pair", "model", "family")
VALIDATED = ("calibration", "unknown", "refit", "stop", "drift")
"""Parts of the audit's validation."""
ROSTERS = "100-way,165-way"


@dataclass(frozen=True)
class Item:
    """Something that a stage makes.

    Attributes
    ----------
    stage : str
    what : str
    state : str
        'done', 'missing', or how much of it is there.
    command : str
        What makes it.
    made : datetime or None
        When, UTC.
    took_s : float or None
        Seconds.
    """

    stage: str
    what: str
    state: str
    command: str
    made: datetime | None = None
    took_s: float | None = None


@dataclass(frozen=True)
class Record:
    """What the work database says.

    Attributes
    ----------
    builds : dict of str to dict
        Builds by id.
    held : dict
        Newest build of every holding (family, reader, roster, about).
    """

    builds: dict[str, dict[str, Any]]
    held: dict[tuple[str, str, str, str], str]

    def item(self, stage: str, what: str, command: str, wanted: Iterable[tuple[str, str, str, str]]) -> Item:
        """State of a set of holdings."""
        asked = list(wanted)
        found = [self.builds[self.held[key]] for key in asked if key in self.held]
        if not found:
            return Item(stage, what, "missing", command)
        newest = max(found, key=lambda build: (build["started_at"], build["build_id"]))
        took = sum(build["duration_s"] for build in {build["build_id"]: build for build in found}.values())
        state = "done" if len(found) == len(asked) else f"{len(found)} of {len(asked)}"
        return Item(stage, what, state, command, newest["started_at"], took)


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--proxy", default="smollm2-135m", help="proxies, comma separated")
    parser.add_argument("--roster", default=ROSTERS, help="rosters, comma separated")
    parser.add_argument("--to", type=Path, default=None, help="data folder (default: ATLAS_DATA or data)")
    options.add_release(parser)
    options.add_work(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the state of every stage; 0 even where something is missing."""
    proxies = [name.strip() for name in arguments.proxy.split(",") if name.strip()]
    if not proxies:
        raise AtlasError("--proxy names no proxy", "Give one, such as smollm2-135m")
    rosters = options.rosters_of(arguments.roster)
    work, data = options.work_path(arguments), arguments.to or default_data_folder()
    begins = served(data) if arguments.work is None and not work.exists() else None
    record = recorded_in(begins[1] if begins else work)
    release = Release(arguments.release or default_release())
    items = [*extracted(proxies, rosters, release), *measured(record, proxies, rosters)]
    items += [reference(record), *enrolled(data, proxies, rosters), published(record, data)]
    now = datetime.now(UTC).replace(tzinfo=None)
    begun = f"; it will begin with {begins[0]}, which is shown" if begins else ""
    print(f"Work database: {work}{'' if work.exists() else f' (there is none yet{begun})'}")
    for line in table(items, now):
        print(line)
    missing = [item for item in items if item.state != "done"]
    print(f"\n{len(items) - len(missing)} of {len(items)} are done." + ("" if missing else " Nothing is missing."))
    for command in dict.fromkeys(item.command for item in missing):
        print(f"  {command}")
    return 0


def recorded_in(work: Path) -> Record:
    """What a work database says; nothing where there is none.

    Raises
    ------
    AtlasError
        If another process holds it, or it cannot be read.
    """
    if not work.exists():
        return Record({}, {})
    with contextlib.closing(open_reading(work)) as connection:
        builds = {row["build_id"]: row for row in made_rows(connection)}
        held = {
            (row["family"], row["reader"], row["roster"], row["about"]): row["build_id"]
            for row in holdings(connection)
            if row["build_id"] in builds
        }
    return Record(builds, held)


def extracted(proxies: list[str], rosters: list[str], release: Release) -> Iterator[Item]:
    """Fingerprints on disk: records of the longest roster that are there."""
    longest = max(rosters, key=lambda name: int(name.removesuffix("-way")))
    for proxy in proxies:
        for benchmark in BENCHMARKS:
            for view in VIEWS:
                what = f"{benchmark} · {proxy} · {view}"
                command = f"python -m jobs extract --benchmark {benchmark} --roster {longest} --proxy {proxy}"
                command += f" --view {view}"
                store = FingerprintStore(StoreKey(benchmark, proxy, view))
                if store.identity() is None:
                    yield Item("extract", what, "missing", command)
                    continue
                journal = store.path / "shards.jsonl"
                made = datetime.fromtimestamp(journal.stat().st_mtime, UTC) if journal.exists() else None
                needed: set[str] | None = None
                if release.manifest_path.exists():
                    needed = {s.name for s in slice_of(release, benchmark, proxy, view, longest).shards}
                yield _shards(store, needed, what, command, made.replace(tzinfo=None) if made else None)


def _shards(store: FingerprintStore, wanted: set[str] | None, what: str, command: str, made: datetime | None) -> Item:
    done = store.done()
    names = set(done) if wanted is None else wanted & set(done)
    layers = sorted(set.intersection(*({int(layer) for layer in done[name]} for name in names))) if names else []
    _, seconds = store.seconds(sorted(names), layers)
    complete = bool(names) and (wanted is None or names == wanted)
    state = "done" if complete else f"{len(names)} of {len(wanted or ())} shards"
    shown = f"{what}, blocks {_spans(layers)}" if layers else what
    return Item("extract", shown, state, command, made, seconds or None)


def measured(record: Record, proxies: list[str], rosters: list[str]) -> Iterator[Item]:
    """Everything that evaluate, relate and map make."""
    for proxy in proxies:
        reader = {view: f"{READER_PAPER}/{proxy}/{view}" for view in VIEWS}
        evaluate = f"python -m jobs evaluate --proxy {proxy} --stage"
        for roster in rosters:
            for view in VIEWS:
                command = f"{evaluate} attribution --view {view} --roster {roster}"
                needed = [("attribution", reader[view], roster, "agent500 clean")]
                yield record.item("evaluate attribution", f"{proxy} · {view} · {roster}", command, needed)
            for view in VIEWS:
                needed = [("attribution", reader[view], roster, name) for name in STRESSED]
                command = f"{evaluate} stress --view {view} --roster {roster}"
                yield record.item("evaluate stress", f"{proxy} · {view} · {roster}", command, needed)
            needed = [("audit", reader["ur"], roster, part) for part in VALIDATED]
            command = f"{evaluate} audit --roster {roster}"
            yield record.item("evaluate audit", f"{proxy} · ur · {roster}", command, needed)
        needed = [("attribution", f"{name}/{proxy}/ur", "100-way", "agent500 clean") for name in CONTROLS]
        needed += [("variance", reader[view], "100-way", "") for view in VIEWS]
        command = f"{evaluate} controls --view ur,r --roster 100-way"
        yield record.item("evaluate controls", f"{proxy} · 100-way", command, needed)
        for view in VIEWS:
            needed = [("relationships", reader[view], "", name) for name in PROTOCOLS]
            command = f"python -m jobs relate --proxy {proxy} --view {view}"
            yield record.item("relate", f"READER · {proxy} · {view}", command, needed)
        for roster in rosters:
            needed = [("maps", reader[view], roster, name) for view in VIEWS for name in BENCHMARKS]
            command = f"python -m jobs map --proxy {proxy} --view r,ur --roster {roster} --benchmark agent500,math100"
            yield record.item("map", f"{proxy} · {roster}", command, needed)
    for roster in rosters:
        present = {key[1].partition("/")[0]: key for key in record.held if key[0] == "attribution" and key[2] == roster}
        needed = [present.get(name, ("attribution", name, roster, "agent500 clean")) for name in QUICK]
        command = f"python -m jobs evaluate --stage baselines --roster {roster}"
        yield record.item("evaluate baselines", roster, command, needed)
        about = [("attribution", key[1], roster, name) for key in needed for name in STRESSED]
        command = f"python -m jobs evaluate --stage stress --roster {roster}"
        yield record.item("evaluate stress", f"baselines · {roster}", command, about)
        clean = [key[1] for key in record.held if (key[0], *key[2:]) == ("attribution", roster, "agent500 clean")]
        command = f"python -m jobs evaluate --stage cost --view ur,r --roster {roster}"
        yield record.item("evaluate cost", roster, command, [("cost", name, roster, "") for name in clean or [""]])
        compared = [name for name in clean if name.partition("/")[0] in (READER_PAPER, *QUICK)]
        needed = [("statistics", name, "", f"endpoints/{roster}") for name in compared or [""]]
        command = f"python -m jobs evaluate --stage statistics --roster {roster}"
        yield record.item("evaluate statistics", roster, command, needed)
        if "readouts" in STAGES:
            needed = [present.get(FUSED, ("attribution", FUSED, roster, "agent500 clean"))]
            command = f"python -m jobs evaluate --stage readouts --roster {roster}"
            yield record.item("evaluate readouts", roster, command, needed)
        for name in (name for name in MAPPED if name != READER_PAPER):
            reader_of = next((key[1] for key in record.held if key[0] == "maps" and key[1].startswith(name)), name)
            needed = [("maps", reader_of, roster, benchmark) for benchmark in BENCHMARKS]
            command = f"python -m jobs map --method {name} --view r --roster {roster} --benchmark agent500,math100"
            yield record.item("map", f"{name} · {roster}", command, needed)
    for name in (name for name in RELATED if name != READER_PAPER):
        readers = [key[1] for key in record.held if key[0] == "relationships" and key[1].partition("/")[0] == name]
        needed = [("relationships", (readers or [name])[0], "", protocol) for protocol in PROTOCOLS]
        yield record.item("relate", name, f"python -m jobs relate --method {name}", needed)


def reference(record: Record) -> Item:
    """Published numbers."""
    builds = [build for build in record.builds.values() if build["stage"] == "reference"]
    command = "python -m jobs reference"
    if not builds:
        return Item("reference", "published numbers", "missing", command)
    newest = max(build["started_at"] for build in builds)
    # The builds of one import run side by side.
    took = max(build["duration_s"] for build in builds)
    return Item("reference", f"published numbers of {len(builds)} files", "done", command, newest, took)


def enrolled(folder: Path, proxies: list[str], rosters: list[str]) -> Iterator[Item]:
    """Enrolments that attribution can be asked of: the shipped sample, and every roster by every proxy and readout."""
    needed = {f"samples-{DEFAULT_PROXY}-ur": "python -m jobs enroll --sample"}
    for proxy in proxies:
        for roster in rosters:
            needed[f"{roster}-{proxy}-ur"] = f"python -m jobs enroll --roster {roster} --proxy {proxy}"
            for method, view in ((FUSED_LIVE, "ur"), *((READER_PAPER, view) for view in VIEWS)):
                command = f"{needed[f'{roster}-{proxy}-ur']} --readout {method} --view {view}"
                needed[f"{roster}-{method}-{proxy}-{view}"] = command
    for name, command in needed.items():
        path = folder / "enrolments" / f"{name}.npz"
        made = datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(tzinfo=None) if path.exists() else None
        yield Item("enroll", name, "done" if made else "missing", command, made)


def published(record: Record, folder: Path) -> Item:
    """The generation that the web serves, and whether it knows the newest build."""
    command = "python -m jobs publish"
    try:
        name, _ = read_pointer(folder)
        made = datetime.strptime(name.partition("-")[0], "%Y%m%dT%H%M%SZ")
    except (AtlasError, ValueError):
        return Item("publish", f"no generation in {folder}", "missing", command)
    ends = [build["started_at"] + timedelta(seconds=build["duration_s"]) for build in record.builds.values()]
    later = sum(end.replace(microsecond=0) > made for end in ends)  # a name has whole seconds
    return Item("publish", name, f"{later} build{'s' * (later > 1)} behind" if later else "done", command, made)


def table(items: Iterable[Item], now: datetime) -> Iterator[str]:
    """Lines of the report."""
    rows = [("stage", "what", "state", "age", "took")]
    for item in items:
        age = span((now - item.made).total_seconds()) if item.made else ""
        rows.append((item.stage, item.what, item.state, age, "" if item.took_s is None else span(item.took_s)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def span(seconds: float) -> str:
    """A length of time in its largest unit: '12 s', '3.5 min', '2.0 h', '4.2 days'."""
    seconds = max(0.0, seconds)
    for unit, size in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _spans(numbers: list[int]) -> str:
    """Ascending numbers as ranges: 1-3, 7."""
    out: list[list[int]] = []
    for number in numbers:
        if out and number == out[-1][1] + 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)

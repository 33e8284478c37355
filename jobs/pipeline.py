"""Stages of the pipeline in one table, and their state."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from backend.corpus.release import BENCHMARKS, Release
from backend.corpus.roster_rows import slice_of
from backend.errors import AtlasError
from backend.fingerprints import FingerprintStore, StoreKey
from backend.methods.registry import CONTROLS, FUSED, FUSED_LIVE, MAPPED, QUICK, RELATED
from backend.protocol import READER_PAPER
from backend.proxies.registry import DEFAULT_PROXY
from backend.store.database import read_pointer
from backend.store.result_queries import build_history, holdings, open_reading
from backend.traces import VIEWS

Holding = tuple[str, str, str, str]  # family, reader, roster, about
Row = tuple[str, str, str, Sequence[Holding]]  # stage, what, command, and the holdings that it needs


@dataclass(frozen=True)
class Stage:
    """A stage: its verb, the stages that it needs, what it makes, and how long that takes on a few cores."""

    verb: str
    needs: tuple[str, ...]
    makes: str
    cost: str  # seconds, minutes, hours or days


STAGES = {
    "extract": Stage("extract", (), "fingerprints of every block", "days"),
    "attribution": Stage("evaluate", ("extract",), "accuracies, and the block of every fold", "hours"),
    "extract-modal": Stage("extract", ("attribution",), "other domains and views at the modal block", "hours"),
    "attribution-r": Stage("evaluate", ("extract-modal",), "accuracies of responses without their prompts", "hours"),
    "controls": Stage("evaluate", ("extract-modal",), "components, poolings, compressions and variances", "hours"),
    "baselines": Stage("evaluate", ("extract-modal",), "n-grams, LLMmap and DNA", "hours"),
    "readouts": Stage("evaluate", ("extract-modal",), "readouts other than the paper's, and their fusion", "hours"),
    "stress": Stage("evaluate", ("attribution", "baselines"), "accuracies of shortened and other responses", "hours"),
    "audit": Stage("evaluate", ("attribution",), "validation of an audit's statistics", "hours"),
    "enroll": Stage("enroll", ("attribution", "readouts"), "enrolments of the rosters and of the sample", "minutes"),
    "reference": Stage("reference", (), "published numbers", "seconds"),
    "statistics": Stage("evaluate", ("attribution", "baselines"), "paired comparisons and correlations", "minutes"),
    "cost": Stage("evaluate", ("attribution", "baselines"), "parameters, times and memory", "minutes"),
    "relate": Stage("relate", ("extract-modal",), "relationships of the models of Bench-A", "minutes"),
    "map": Stage("map", ("extract-modal",), "maps, neighbours and purity", "minutes"),
    "publish": Stage("publish", ("attribution",), "the generation that is served", "seconds"),
    "results": Stage("results", ("publish",), "the tables of results", "seconds"),
}
"""In the order in which ``all`` runs them."""
STRESSED = ("agent500 t128-global", "agent500 t64-global", "agent500 t32-global", "math100 clean")
CLEAN = ("agent500 clean",)
PROTOCOLS = ("pair", "model", "family")
BOTH = f"--benchmark {','.join(BENCHMARKS)}"
VALIDATED = ("calibration", "unknown", "refit", "stop", "mixture", "drift")  # parts of the audit's validation


def evaluated() -> list[str]:
    """Stages of ``evaluate``, each a module; a view or a block is an option of theirs."""
    return [name for name, stage in STAGES.items() if stage.verb == "evaluate" and "-" not in name]


@dataclass(frozen=True)
class Item:
    """A result of a stage."""

    stage: str
    what: str
    state: str  # 'done', 'missing', or how much of it is there
    command: str  # that computes it, after ``python -m jobs``
    written: datetime | None = None  # UTC
    seconds: float | None = None  # duration


@dataclass(frozen=True)
class Record:
    """Contents of a work database: builds by id, and the newest build of every holding."""

    builds: dict[str, dict[str, Any]]
    holdings: dict[Holding, str]

    def item(self, stage: str, what: str, command: str, needed: Sequence[Holding]) -> Item:
        """State of a set of holdings."""
        ids = {self.holdings[key] for key in needed if key in self.holdings}
        if not ids:
            return Item(stage, what, "missing", command)
        found = sum(key in self.holdings for key in needed)
        state = "done" if found == len(needed) else f"{found} of {len(needed)}"
        builds = [self.builds[build] for build in ids]
        newest = max(build["started_at"] for build in builds)
        return Item(stage, what, state, command, newest, sum(build["duration_s"] for build in builds))

    def reader(self, family: str, name: str) -> str:
        """A reader that the database has of a method; the method where it has none."""
        return next((key[1] for key in self.holdings if key[0] == family and key[1].partition("/")[0] == name), name)


def recorded_in(work: Path) -> Record:
    """Contents of a work database, if there is one. Raises AtlasError if another process uses it."""
    if not work.exists():
        return Record({}, {})
    with contextlib.closing(open_reading(work)) as connection:
        builds = {row["build_id"]: row for row in build_history(connection)}
        found = {
            (row["family"], row["reader"], row["roster"], row["about"]): row["build_id"]
            for row in holdings(connection)
            if row["build_id"] in builds
        }
    return Record(builds, found)


def extracted(proxies: list[str], rosters: list[str], release: Release) -> Iterator[Item]:
    """Fingerprints on disk: records of the longest roster that are there."""
    longest = max(rosters, key=lambda name: int(name.removesuffix("-way")))
    for proxy, benchmark, view in itertools.product(proxies, BENCHMARKS, VIEWS):
        what = f"{benchmark} · {proxy} · {view}"
        command = f"extract --benchmark {benchmark} --roster {longest} --proxy {proxy} --view {view}"
        store = FingerprintStore(StoreKey(benchmark, proxy, view))
        if store.identity() is None:
            yield Item("extract", what, "missing", command)
            continue
        done = store.done()
        needed = names = set(done)  # without a release nobody knows what is needed
        if release.manifest_path.exists():
            needed = {shard.name for shard in slice_of(release, benchmark, proxy, view, longest).shards}
            names = needed & set(done)
        layers = sorted(set.intersection(*({int(layer) for layer in done[name]} for name in names))) if names else []
        _, seconds = store.seconds(sorted(names), layers)
        state = "done" if names and names == needed else f"{len(names)} of {len(needed)} shards"
        what += f", blocks {ranges(layers, ', ')}" if layers else ""
        yield Item("extract", what, state, command, _changed(store.path / "shards.jsonl"), seconds or None)


def _changed(path: Path) -> datetime | None:
    """When a file was written, UTC; None where there is none."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(tzinfo=None) if path.exists() else None


def measured(record: Record, proxies: list[str], rosters: list[str]) -> Iterator[Item]:
    """Results of evaluate, relate and map."""
    rows = [row for proxy in proxies for row in _of_proxy(proxy, rosters)]
    rows += [row for roster in rosters for row in _of_roster(record, roster)]
    for name in (name for name in RELATED if name != READER_PAPER):
        reader = record.reader("relationships", name)
        needed = [("relationships", reader, "", protocol) for protocol in PROTOCOLS]
        rows.append(("relate", name, f"relate --method {name}", needed))
    return (record.item(*row) for row in rows)


def _of_proxy(proxy: str, rosters: list[str]) -> Iterator[Row]:
    """Results of the paper's reader with one proxy."""
    readers = {view: f"{READER_PAPER}/{proxy}/{view}" for view in VIEWS}
    evaluate = f"evaluate --proxy {proxy} --stage"
    for roster in rosters:
        for stage, conditions in (("attribution", CLEAN), ("stress", STRESSED)):
            for view, reader in readers.items():
                command = f"{evaluate} {stage} --view {view} --roster {roster}"
                needed = [("attribution", reader, roster, name) for name in conditions]
                yield f"evaluate {stage}", f"{proxy} · {view} · {roster}", command, needed
        needed = [("audit", readers["ur"], roster, part) for part in VALIDATED]
        yield "evaluate audit", f"{proxy} · ur · {roster}", f"{evaluate} audit --roster {roster}", needed
    needed = [("attribution", f"{name}/{proxy}/ur", "100-way", *CLEAN) for name in CONTROLS]
    needed += [("variance", reader, "100-way", "") for reader in readers.values()]
    yield "evaluate controls", f"{proxy} · 100-way", f"{evaluate} controls --view ur,r --roster 100-way", needed
    for view, reader in readers.items():
        needed = [("relationships", reader, "", name) for name in PROTOCOLS]
        yield "relate", f"READER · {proxy} · {view}", f"relate --proxy {proxy} --view {view}", needed
    for roster in rosters:
        needed = [("maps", reader, roster, name) for reader in readers.values() for name in BENCHMARKS]
        yield "map", f"{proxy} · {roster}", f"map --proxy {proxy} --view r,ur --roster {roster} {BOTH}", needed


def _of_roster(record: Record, roster: str) -> Iterator[Row]:
    """Results that depend on no single proxy."""
    present = {key[1].partition("/")[0]: key for key in record.holdings if (key[0], key[2]) == ("attribution", roster)}
    *baselines, fused = (present.get(name, ("attribution", name, roster, *CLEAN)) for name in (*QUICK, FUSED))
    clean = [key[1] for key in record.holdings if (key[0], *key[2:]) == ("attribution", roster, *CLEAN)]
    compared = [name for name in clean if name.partition("/")[0] in (READER_PAPER, *QUICK)]
    stressed = [("attribution", key[1], roster, condition) for key in baselines for condition in STRESSED]
    for stage, what, options, needed in (
        ("baselines", roster, "", baselines),
        ("stress", f"baselines · {roster}", "", stressed),
        ("cost", roster, " --view ur,r", [("cost", name, roster, "") for name in clean or [""]]),
        ("statistics", roster, "", [("statistics", name, "", f"endpoints/{roster}") for name in compared or [""]]),
        ("readouts", roster, "", [fused]),
    ):
        yield f"evaluate {stage}", what, f"evaluate --stage {stage}{options} --roster {roster}", needed
    for name in (name for name in MAPPED if name != READER_PAPER):
        needed = [("maps", record.reader("maps", name), roster, benchmark) for benchmark in BENCHMARKS]
        yield "map", f"{name} · {roster}", f"map --method {name} --view r --roster {roster} {BOTH}", needed


def reference(record: Record) -> Item:
    """Published numbers; the builds of one import ran at the same time."""
    builds = [build for build in record.builds.values() if build["stage"] == "reference"]
    if not builds:
        return Item("reference", "published numbers", "missing", "reference")
    what = f"published numbers of {len(builds)} files"
    newest, seconds = (max(build[name] for build in builds) for name in ("started_at", "duration_s"))
    return Item("reference", what, "done", "reference", newest, seconds)


def enrolled(folder: Path, proxies: list[str], rosters: list[str]) -> Iterator[Item]:
    """Enrolments: the shipped sample, and every roster by every proxy and readout."""
    needed = {f"samples-{DEFAULT_PROXY}-ur": "enroll --sample"}
    for proxy, roster in itertools.product(proxies, rosters):
        command = f"enroll --roster {roster} --proxy {proxy}"
        needed[f"{roster}-{proxy}-ur"] = command
        for method, view in ((FUSED_LIVE, "ur"), *((READER_PAPER, view) for view in VIEWS)):
            needed[f"{roster}-{method}-{proxy}-{view}"] = f"{command} --readout {method} --view {view}"
    for name, command in needed.items():
        written = _changed(folder / "enrolments" / f"{name}.npz")
        yield Item("enroll", name, "done" if written else "missing", command, written)


def published(record: Record, folder: Path) -> Item:
    """The generation that the web serves, and whether it has the newest build."""
    try:
        name, _ = read_pointer(folder)
        written = datetime.strptime(name.partition("-")[0], "%Y%m%dT%H%M%SZ")
    except (AtlasError, ValueError):
        return Item("publish", f"no generation in {folder}", "missing", "publish")
    ends = [build["started_at"] + timedelta(seconds=build["duration_s"]) for build in record.builds.values()]
    later = sum(end.replace(microsecond=0) > written for end in ends)  # a name has whole seconds
    return Item("publish", name, f"{later} build{'s' * (later > 1)} behind" if later else "done", "publish", written)


def ranges(numbers: Iterable[int], comma: str = ",") -> str:
    """Ascending numbers as '1-12,15'."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return comma.join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)

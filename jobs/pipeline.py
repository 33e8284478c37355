"""The stages of the pipeline in one table, and what of each is there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
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
VALIDATED = ("calibration", "unknown", "refit", "stop", "drift")  # parts of the audit's validation


def evaluated() -> list[str]:
    """Stages of ``evaluate``, each a module; a view or a block is an option of theirs."""
    return [name for name, stage in STAGES.items() if stage.verb == "evaluate" and "-" not in name]


@dataclass(frozen=True)
class Item:
    """Something that a stage makes."""

    stage: str
    what: str
    state: str  # 'done', 'missing', or how much of it is there
    command: str  # what makes it
    made: datetime | None = None  # UTC
    took_s: float | None = None


@dataclass(frozen=True)
class Record:
    """What the work database holds: builds by id, and the newest build of every holding."""

    builds: dict[str, dict[str, Any]]
    holdings: dict[Holding, str]

    def item(self, stage: str, what: str, command: str, needed: list[Holding]) -> Item:
        """State of a set of holdings."""
        found = [self.builds[self.holdings[key]] for key in needed if key in self.holdings]
        if not found:
            return Item(stage, what, "missing", command)
        newest = max(found, key=lambda build: (build["started_at"], build["build_id"]))
        took = sum(build["duration_s"] for build in {build["build_id"]: build for build in found}.values())
        state = "done" if len(found) == len(needed) else f"{len(found)} of {len(needed)}"
        return Item(stage, what, state, command, newest["started_at"], took)


def recorded_in(work: Path) -> Record:
    """What a work database holds; nothing where there is none. Raises AtlasError if another process holds it."""
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
    for proxy in proxies:
        for benchmark in BENCHMARKS:
            for view in VIEWS:
                what = f"{benchmark} · {proxy} · {view}"
                command = (
                    f"python -m jobs extract --benchmark {benchmark} --roster {longest} --proxy {proxy} --view {view}"
                )
                store = FingerprintStore(StoreKey(benchmark, proxy, view))
                if store.identity() is None:
                    yield Item("extract", what, "missing", command)
                    continue
                needed: set[str] | None = None
                if release.manifest_path.exists():
                    needed = {s.name for s in slice_of(release, benchmark, proxy, view, longest).shards}
                yield _shards(store, needed, what, command)


def _shards(store: FingerprintStore, needed: set[str] | None, what: str, command: str) -> Item:
    done = store.done()
    names = set(done) if needed is None else needed & set(done)
    layers = sorted(set.intersection(*({int(layer) for layer in done[name]} for name in names))) if names else []
    _, seconds = store.seconds(sorted(names), layers)
    complete = bool(names) and (needed is None or names == needed)
    state = "done" if complete else f"{len(names)} of {len(needed or ())} shards"
    shown = f"{what}, blocks {ranges(layers, ', ')}" if layers else what
    return Item("extract", shown, state, command, _changed(store.path / "shards.jsonl"), seconds or None)


def _changed(path: Path) -> datetime | None:
    """When a file was written, UTC; None where there is none."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(tzinfo=None) if path.exists() else None


def measured(record: Record, proxies: list[str], rosters: list[str]) -> Iterator[Item]:
    """Everything that evaluate, relate and map make."""
    for proxy in proxies:
        readers = {view: f"{READER_PAPER}/{proxy}/{view}" for view in VIEWS}
        evaluate = f"python -m jobs evaluate --proxy {proxy} --stage"
        for roster in rosters:
            for stage, conditions in (("attribution", CLEAN), ("stress", STRESSED)):
                for view, reader in readers.items():
                    command = f"{evaluate} {stage} --view {view} --roster {roster}"
                    needed = [("attribution", reader, roster, name) for name in conditions]
                    yield record.item(f"evaluate {stage}", f"{proxy} · {view} · {roster}", command, needed)
            needed = [("audit", readers["ur"], roster, part) for part in VALIDATED]
            yield record.item(
                "evaluate audit", f"{proxy} · ur · {roster}", f"{evaluate} audit --roster {roster}", needed
            )
        needed = [("attribution", f"{name}/{proxy}/ur", "100-way", *CLEAN) for name in CONTROLS]
        needed += [("variance", reader, "100-way", "") for reader in readers.values()]
        command = f"{evaluate} controls --view ur,r --roster 100-way"
        yield record.item("evaluate controls", f"{proxy} · 100-way", command, needed)
        for view, reader in readers.items():
            needed = [("relationships", reader, "", name) for name in PROTOCOLS]
            command = f"python -m jobs relate --proxy {proxy} --view {view}"
            yield record.item("relate", f"READER · {proxy} · {view}", command, needed)
        for roster in rosters:
            needed = [("maps", reader, roster, name) for reader in readers.values() for name in BENCHMARKS]
            command = f"python -m jobs map --proxy {proxy} --view r,ur --roster {roster} --benchmark agent500,math100"
            yield record.item("map", f"{proxy} · {roster}", command, needed)
    for roster in rosters:
        yield from _of_roster(record, roster)
    for name in (name for name in RELATED if name != READER_PAPER):
        readers_of = (
            key[1] for key in record.holdings if key[0] == "relationships" and key[1].partition("/")[0] == name
        )
        reader = next(readers_of, name)
        needed = [("relationships", reader, "", protocol) for protocol in PROTOCOLS]
        yield record.item("relate", name, f"python -m jobs relate --method {name}", needed)


def _of_roster(record: Record, roster: str) -> Iterator[Item]:
    """What no single proxy makes."""
    present = {key[1].partition("/")[0]: key for key in record.holdings if (key[0], key[2]) == ("attribution", roster)}
    missing = {name: ("attribution", name, roster, *CLEAN) for name in (*QUICK, FUSED)}
    *baselines, fused = (present.get(name, key) for name, key in missing.items())
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
        command = f"python -m jobs evaluate --stage {stage}{options} --roster {roster}"
        yield record.item(f"evaluate {stage}", what, command, needed)
    for name in (name for name in MAPPED if name != READER_PAPER):
        reader = next((key[1] for key in record.holdings if key[0] == "maps" and key[1].startswith(name)), name)
        command = f"python -m jobs map --method {name} --view r --roster {roster} --benchmark agent500,math100"
        yield record.item("map", f"{name} · {roster}", command, [("maps", reader, roster, b) for b in BENCHMARKS])


def reference(record: Record) -> Item:
    """Published numbers."""
    builds = [build for build in record.builds.values() if build["stage"] == "reference"]
    command = "python -m jobs reference"
    if not builds:
        return Item("reference", "published numbers", "missing", command)
    newest = max(build["started_at"] for build in builds)
    # The builds of one import run at the same time.
    took = max(build["duration_s"] for build in builds)
    return Item("reference", f"published numbers of {len(builds)} files", "done", command, newest, took)


def enrolled(folder: Path, proxies: list[str], rosters: list[str]) -> Iterator[Item]:
    """Enrolments that attribution can be asked of: the shipped sample, and every roster by every proxy and readout."""
    needed = {f"samples-{DEFAULT_PROXY}-ur": "python -m jobs enroll --sample"}
    for proxy in proxies:
        for roster in rosters:
            command = f"python -m jobs enroll --roster {roster} --proxy {proxy}"
            needed[f"{roster}-{proxy}-ur"] = command
            for method, view in ((FUSED_LIVE, "ur"), *((READER_PAPER, view) for view in VIEWS)):
                needed[f"{roster}-{method}-{proxy}-{view}"] = f"{command} --readout {method} --view {view}"
    for name, command in needed.items():
        made = _changed(folder / "enrolments" / f"{name}.npz")
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


def ranges(numbers: Iterable[int], comma: str = ",") -> str:
    """Ascending numbers as '1-12,15'."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return comma.join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)

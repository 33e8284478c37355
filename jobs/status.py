"""List stages with age and duration, what is missing, and the commands for it.

Reads the work database without writing to it, and the feature store on disk. It never waits for another job.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from backend.errors import AtlasError
from backend.store.database import served
from jobs import options
from jobs.pipeline import Item, enrolled, extracted, measured, published, recorded_in, reference


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--proxy", default="smollm2-135m", help="proxies, comma separated")
    options.add(parser, "roster", "to", "release", "work")


def run(arguments: argparse.Namespace) -> None:
    """Print the state of every stage; 0 even where something is missing."""
    proxies, rosters = options.parts(arguments.proxy), options.rosters_of(arguments.roster)
    if not proxies:
        raise AtlasError("--proxy names no proxy", "Give one, such as smollm2-135m")
    work, data = options.work_path(arguments), options.data_of(arguments)
    begins = served(data) if arguments.work is None and not work.exists() else None
    record = recorded_in(begins[1] if begins else work)
    items = [*extracted(proxies, rosters, options.release_of(arguments)), *measured(record, proxies, rosters)]
    items += [reference(record), *enrolled(data, proxies, rosters), published(record, data)]
    begun = f"; it will begin with {begins[0]}, which is shown" if begins else ""
    print(f"Work database: {work}{'' if work.exists() else f' (there is none yet{begun})'}")
    for line in table(items, datetime.now(UTC).replace(tzinfo=None)):
        print(line)
    missing = [item for item in items if item.state != "done"]
    print(f"\n{len(items) - len(missing)} of {len(items)} are done." + ("" if missing else " Nothing is missing."))
    for command in dict.fromkeys(item.command for item in missing):
        print(f"  python -m jobs {command}")


def table(items: Iterable[Item], now: datetime) -> Iterator[str]:
    """Lines of the report."""
    rows = [("stage", "what", "state", "age", "duration")]
    for item in items:
        age = span((now - item.written).total_seconds()) if item.written else ""
        rows.append((item.stage, item.what, item.state, age, "" if item.seconds is None else span(item.seconds)))
    yield from options.aligned(rows)


def span(seconds: float) -> str:
    """A length of time in its largest unit: '12 s', '3.5 min', '2.0 h', '4.2 days'."""
    seconds = max(0.0, seconds)
    for unit, size in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"

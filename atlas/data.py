"""Cached queries of the served generation, and what a link's names mean in it.

Keys of the cache carry the generation's name: a new one is seen at the next query, and never mixed with the old one.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import numpy as np
import pandas as pd
from flask import Flask, current_app, has_request_context, request
from flask_caching import Cache
from flask_caching.backends.filesystemcache import FileSystemCache

from atlas.state import PROJECTIONS, View
from atlas.theme import Mark, family_marks
from backend.errors import AtlasError
from backend.methods.registry import GROUPS, group_of, names
from backend.protocol import READER_PAPER
from backend.store import queries
from backend.store.database import Generation, Generations

T = TypeVar("T")

DOMAIN_NAMES = {"agent500": "Agent500", "math100": "Math100"}
METHOD_NAMES = names()  # display names of methods; others go by their own name
GLOBAL = "-global"
"""Ending of conditions whose groups were drawn across folds; the released files have no others."""
CONDITION_NAMES = {
    "clean": "whole responses",
    **{
        f"{short}{ending}": f"{words}{groups}"
        for short, words in (
            *((f"t{length}", f"first {length} tokens") for length in (128, 64, 32)),
            *((f"mask{share}", f"{share} % masked") for share in (10, 20, 30, 40, 50)),
        )
        for ending, groups in (("", ""), (GLOBAL, ", groups across folds"))
    },
    "background": "scores balanced with unlabelled responses",
    "aligned": "fingerprints adapted with unlabelled responses",
}
VIEW_READS = {"ur": "prompt + response", "r": "response"}
USUALLY_READ = f" · {VIEW_READS['ur']}"  # ending of the names of readers that read what most do
VIEW_NAMES = {"ur": "prompt and response", "r": "response alone"}
DAY = 86_400
PINNED = "atlas.generation"
RECORDS: dict[str, Any] = {one.__name__: one for one in (queries.SourceProfile,)}
"""Answers that are neither a table nor a plain value."""
_NUMERIC = "biufMm"  # kinds of numbers, dates and durations, which are written as their bytes
NEAR = 256  # tables that also stay in memory: every page needs readers, rosters and sources several times


@functools.cache
def _questions_hash() -> str:
    """Hash of the code of the queries: another version of it has answers of its own."""
    folder = Path(queries.__file__).parent
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()


class QueryCache:
    """Queries of the pages on a data folder; where that is empty or missing, every page shows what to do."""

    def __init__(self, folder: Path, cache: Cache) -> None:
        self.folder = folder
        self._cache = cache
        self._followed: Generations | None = None
        self._lock = threading.Lock()
        self._near: dict[str, pd.DataFrame] = {}
        self._derived: dict[str, tuple[str, Any]] = {}

    def generation(self) -> Generation:
        """The generation that answers a request to its end; raises AtlasError if there is none that can be read."""
        if self._followed is None:
            with self._lock:
                if self._followed is None:
                    self._followed = Generations(self.folder)
        if not has_request_context():
            return self._followed.current()
        pinned: Generation | None = request.environ.get(PINNED)
        if pinned is None:
            pinned = request.environ[PINNED] = self._followed.current()
        return pinned

    def once(self, what: str, compute: Callable[[], T]) -> T:
        """A value that is computed once a generation."""
        name, found = self.generation().name, self._derived.get(what)
        if found is None or found[0] != name:
            found = self._derived[what] = (name, compute())
        return cast(T, found[1])

    def problem(self) -> AtlasError | None:
        """Why there is nothing to show, or None."""
        try:
            self.generation()
        except AtlasError as error:
            return error
        return None

    def warning(self) -> AtlasError | None:
        """Why the newest generation is not the one that is shown, or None."""
        return self._followed.problem if self._followed is not None else None

    def ask(self, question: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Answer of one of :mod:`backend.store.queries`, from the cache where it is there."""
        generation = self.generation()
        whose = f"{_questions_hash()}\0{question.__module__}.{question.__name__}"
        text = f"{generation.name}\0{whose}\0{arguments!r}\0{sorted(named.items())!r}"
        key = hashlib.sha256(text.encode()).hexdigest()
        near = self._near.get(key)
        answer = self._cache.get(key) if near is None else near
        if answer is None:
            with generation.cursor() as cursor:
                answer = question(cursor, *arguments, **named)
            self._cache.set(key, answer, timeout=DAY)
        if not isinstance(answer, pd.DataFrame):
            return answer
        if near is None:
            with self._lock:
                while len(self._near) >= NEAR:
                    self._near.pop(next(iter(self._near)))
                self._near[key] = answer
        # A shallow copy: what is written into it stays in it.
        return cast(T, answer.copy(deep=False))

    def ask_anew(self, question: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The same without the cache, for questions with so many forms that they would fill it."""
        with self.generation().cursor() as cursor:
            return question(cursor, *arguments, **named)

    # ---- names ------------------------------------------------------------------------------------------------------

    def marks(self) -> dict[str, Mark]:
        """Colour and symbol of every family of the generation, whatever the roster."""

        def compute() -> dict[str, Mark]:
            rosters = self.ask(queries.rosters)["roster"]
            members = [self.ask(queries.sources, roster)[["family", "family_position"]] for roster in rosters]
            if not members:
                return {}
            families = pd.concat(members).drop_duplicates().sort_values("family_position")["family"]
            return family_marks(list(families))

        return dict(self.once("marks", compute))

    def domains(self) -> list[str]:
        """Domains of which anything is stored."""

        def compute() -> list[str]:
            readers = self.ask(queries.readers)
            stored = {domain for column in ("benchmarks", "domains") for names in readers[column] for domain in names}
            return sorted(stored, key=lambda domain: (domain not in DOMAIN_NAMES, domain))

        return self.once("domains", compute)

    def holds_own_sources(self) -> bool:
        """Whether the generation holds sources that were enrolled here: they are roster and domain of one name."""
        return not set(self.domains()).isdisjoint(self.ask(queries.rosters)["roster"])

    def resolve_view(self, view: View) -> View:
        """Replace names that the generation does not know; a selected source survives a switch of rosters."""
        readers = self.ask(queries.readers)
        rosters = list(self.ask(queries.rosters)["roster"])
        names = self._rows()
        if view.reader not in names:
            best: Any = min(readers.itertuples(index=False), key=_preference, default=None)
            view = dataclasses.replace(view, reader="" if best is None else str(best.reader))
        if view.roster not in rosters:
            own = [roster for row in readers["rosters"][readers["reader"] == view.reader] for roster in row]
            view = dataclasses.replace(view, roster=(own or rosters or [""])[-1])
        domains = self.domains()
        # An ecosystem that was enrolled here is a roster and a domain of one name, and neither goes with another one.
        if view.roster in domains:
            view = dataclasses.replace(view, domain=view.roster)
        elif view.domain not in domains or view.domain in rosters:
            shared = [domain for domain in domains if domain not in rosters]
            view = dataclasses.replace(view, domain=shared[0] if shared else "")
        known = self.sources()
        families = set(self.marks())
        fixed: dict[str, Any] = {
            field: "" for field in ("source", "truth", "answer", "other") if getattr(view, field) not in known
        }
        fixed |= {} if view.zoom in families else {"zoom": ""}
        fixed |= {} if view.condition in self.conditions() else {"condition": View.condition}
        fixed["readers"] = tuple(reader for reader in view.readers if reader in names)
        fixed["families"] = tuple(family for family in view.families if family in families)
        return dataclasses.replace(view, **fixed)

    def sources(self) -> Collection[str]:
        """Labels of the sources of all rosters."""
        rosters = self.ask(queries.rosters)["roster"]
        return self.once(
            "known", lambda: {source for roster in rosters for source in self.ask(queries.sources, roster)["source"]}
        )

    def conditions(self) -> list[str]:
        """Conditions under which anything was measured, the clean one first, then by how much of a trace remains."""

        def compute() -> list[str]:
            measured = set(self.ask(queries.measurements)["condition"])
            known = list(CONDITION_NAMES)
            return sorted(measured, key=lambda name: (known.index(name) if name in known else len(known), name))

        return self.once("conditions", compute)

    def opened(self, view: View) -> View:
        """The view, or its reader's largest roster with attribution where it has none here."""
        if self.attribution_reader(view):
            return view
        sizes = self.ask(queries.rosters).sort_values("sources", ascending=False, kind="stable")
        views = (dataclasses.replace(view, roster=roster) for roster in sizes["roster"])
        return next((near for near in views if self.attribution_reader(near)), view)

    def with_map(self, view: View) -> View:
        """The view, or the nearest one with a map: of its roster and domain, its reader, else its proxy and input."""
        if not self.knows(view.reader):
            return view
        maps, joint = self.ask(queries.maps), view.space != "one"
        here = maps[["reader", "roster", "domain"]].eq([self.map_reader(view), view.roster, view.domain]).all(axis=1)
        if (here & (joint | maps[["method", "dimensions"]].eq([view.projection, view.dim]).all(axis=1))).any():
            return view
        usual = self.usual(view).reader
        own, standard = self.reader_row(view.reader), self.reader_row(usual)

        def kin(row: dict[str, Any], of: dict[str, Any]) -> bool:
            return bool(
                row["reader"] == of["reader"] or (row["method"] == of["method"] and row["proxy"] == of["proxy"])
            )

        def distance(drawn: Any) -> tuple[Any, ...]:
            row = self.reader_row(drawn.reader)
            shape = drawn.method != view.projection, drawn.dimensions != view.dim
            return (
                drawn.roster != view.roster, drawn.domain != view.domain, not kin(row, own),
                row["proxy"] != own["proxy"], not kin(row, standard), row["view"] != own["view"], not joint and shape,
                drawn.reader != view.reader, -drawn.sources,
            )  # fmt: skip

        rows = maps[maps["method"].isin(PROJECTIONS)].itertuples(index=False)
        drawn: Any = min(rows, key=distance, default=None)
        if drawn is None:
            return view
        shape = {} if joint else {"projection": drawn.method, "dim": drawn.dimensions}
        near = dataclasses.replace(view, roster=drawn.roster, domain=drawn.domain, **shape)
        views = (dataclasses.replace(near, reader=reader) for reader in (view.reader, usual, drawn.reader))
        return next(one for one in views if self.map_reader(one) == drawn.reader)

    def usual(self, view: View) -> View:
        """The view with the reader that a link without one would show."""
        return self.resolve_view(dataclasses.replace(view, reader=""))

    def map_reader(self, view: View) -> str:
        """The reader whose map is shown: the chosen one, else its sibling that reads the other text, else ''."""

        def compute() -> set[str]:
            maps = self.ask(queries.maps)
            return set(maps["reader"][(maps["roster"] == view.roster) & (maps["domain"] == view.domain)])

        return self._with(view, self.once(f"mapped {view.roster} {view.domain}", compute))

    def attribution_reader(self, view: View) -> str:
        """The reader whose attribution is shown: as :meth:`map_reader`."""

        def compute() -> set[str]:
            rows = self.ask(queries.measurements)
            here = (rows["roster"] == view.roster) & (rows["benchmark"] == view.domain) & (rows["condition"] == "clean")
            return set(rows["reader"][here])

        return self._with(view, self.once(f"measured {view.roster} {view.domain}", compute))

    def knows(self, reader: str) -> bool:
        """Whether a reader has rows in the generation."""
        return reader in self._rows()

    def reader_row(self, reader: str) -> dict[str, Any]:
        """Row of :func:`backend.store.queries.readers`; a page names dozens of them, so they are split once."""
        return self._rows()[reader]

    def _rows(self) -> dict[str, dict[str, Any]]:
        def compute() -> dict[str, dict[str, Any]]:
            readers = self.ask(queries.readers)
            rows = (dict(zip(map(str, readers), row, strict=True)) for row in readers.itertuples(index=False))
            return {str(row["reader"]): row for row in rows}

        return self.once("rows", compute)

    def origin(self, reader: str) -> str:
        """'measured' or 'published'."""
        return str(self.reader_row(reader)["origin"]) if reader else "measured"

    def proxy_name(self, reader: str) -> str:
        """The proxy of a reader, or the reader's name where it has none."""
        row = self.reader_row(reader)
        return str(row["proxy_name"] if isinstance(row["proxy_name"], str) and row["proxy_name"] else row["name"])

    def reader_name(self, reader: str) -> str:
        """A reader's name in lists and next to lines: method, proxy and what it reads."""

        def compute() -> dict[str, str]:
            names = {one: _row_name(row) for one, row in self._rows().items()}
            given = Counter(names.values())
            # One that was measured here and published under another id has one name twice.
            twice = {one for one, name in names.items() if given[name] > 1 and self.origin(one) == "published"}
            return {one: f"{name} · published" if one in twice else name for one, name in names.items()}

        return self.once("reader names", compute)[reader]

    def short_name(self, reader: str) -> str:
        """A reader's name next to a line: its proxy where it is READER in its usual form, else its method too."""
        row = self.reader_row(reader)
        if row["method"] != READER_PAPER:
            return self.reader_name(reader)
        reads = VIEW_READS.get(row["view"])
        # The usual form has the proxy's name to itself, whoever else is named next to it.
        return f"{self.proxy_name(reader)}{f' · {reads}' if reads else ''}".removesuffix(USUALLY_READ)

    def short_names(self, readers: Sequence[str]) -> dict[str, str]:
        """Short names of several readers, and whole ones where two would read the same."""
        short = {reader: self.short_name(reader) for reader in readers}
        given = list(short.values())
        usual = f"{METHOD_NAMES[READER_PAPER]} · "
        return {
            reader: name if given.count(name) == 1 else self.reader_name(reader).removeprefix(usual)
            for reader, name in short.items()
        }

    def reader_groups(self) -> list[tuple[str, list[str]]]:
        """Readers for a list: all that were measured here, then the published ones; the paper's method comes first.

        A group that has numbers for few rosters says for which: those of most rosters say nothing.
        """
        place = {group: number for number, group in enumerate(GROUPS)}
        groups: dict[tuple[bool, int, str, str], list[str]] = {}
        readers = self.ask(queries.readers)
        most = readers["rosters"].map(len).max()
        row: Any
        for row in readers.itertuples(index=False):
            kind, only = group_of(row.method), f" · {', '.join(row.rosters)} only" if len(row.rosters) < most else ""
            key = row.origin != "measured", place.get(kind, len(place)), kind, only
            groups.setdefault(key, []).append(str(row.reader))
        origins = {False: "Measured here", True: "Published"}
        return [
            (f"{origins[published]} · {kind}{only}", members)
            for (published, _, kind, only), members in sorted(groups.items())
        ]

    def reader_words(self, reader: str) -> str:
        """A reader in words: method and proxy, and what it reads."""
        reads = VIEW_NAMES.get(self.reader_row(reader)["view"], "")
        proxy = self.proxy_name(reader)
        return f"{proxy}, reading {reads}" if reads else proxy

    def _with(self, view: View, holders: set[str]) -> str:
        if view.reader in holders:
            return view.reader
        own = self._rows().get(view.reader, {})
        same = own.get("method"), own.get("proxy")
        alike = (reader for reader, row in self._rows().items() if (row["method"], row["proxy"]) == same)
        return next((reader for reader in alike if reader in holders), "") if isinstance(same[1], str) else ""


def _row_name(row: dict[str, Any]) -> str:
    if not isinstance(row["proxy_name"], str) or not row["proxy_name"]:
        return METHOD_NAMES.get(row["method"], str(row["name"]))
    reads = VIEW_READS.get(row["view"])
    parts = (METHOD_NAMES.get(row["method"], row["method"]), row["proxy_name"], reads)
    return " · ".join(part for part in parts if part)


def _preference(reader: Any) -> tuple[bool, bool, bool, int, bool]:
    """Order of readers for a link that names none; the least comes first."""
    named, measured = reader.method == READER_PAPER, reader.origin == "measured"
    return not named, not reader.benchmarks, not measured, -len(reader.rosters), reader.view != "ur"


def install(server: Flask, cache: QueryCache) -> None:
    """Let :func:`questions` find the cache of this server."""
    server.extensions["atlas"] = cache


def questions() -> QueryCache:
    """The cache of the server that handles this request."""
    found: QueryCache = current_app.extensions["atlas"]
    return found


# ---- answers on disk ------------------------------------------------------------------------------------------------


class Serializer:
    """Tables, arrays and plain values to bytes and back; anything else is not stored."""

    def dump(self, value: Any, f: BinaryIO) -> None:
        """Write a value, or nothing that would be read again."""
        f.write(self.dumps(value))

    def dumps(self, value: Any) -> bytes:
        """A value as bytes; those of None where it is of a type that no answer has."""
        try:
            return json.dumps(_packed(value), separators=(",", ":")).encode()
        except TypeError as error:
            logging.getLogger(__name__).warning("An answer is not stored (%s)", error)
            return b"null"

    def load(self, f: BinaryIO) -> Any:
        """Read a value; None where the file is none of ours."""
        return self.loads(f.read())

    def loads(self, bvalue: bytes) -> Any:
        """A value out of bytes; None where they are none of ours."""
        try:
            return json.loads(bvalue, object_hook=_unpacked)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            logging.getLogger(__name__).warning("A stored answer cannot be read (%s)", error)
            return None


class TableCache(FileSystemCache):
    """A folder of answers for flask-caching."""

    serializer: Any = Serializer()


def _packed(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return {
            "frame": [_packed(value[name]) for name in value.columns],
            "columns": _packed(list(value.columns)),
            "index": _packed_index(value.index),
        }
    if isinstance(value, pd.Series):  # a column, whose name and index the table holds
        if value.dtype.kind in _NUMERIC and isinstance(value.dtype, np.dtype):
            return _packed(value.to_numpy())
        return {"objects": [_packed(one) for one in value], "dtype": str(value.dtype)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _NUMERIC:
            return {"array": [_packed(one) for one in value.ravel()], "shape": value.shape}
        raw = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"bytes": raw, "dtype": value.dtype.str, "shape": value.shape}
    if isinstance(value, pd.Timestamp):
        return {"time": value.isoformat()}
    if isinstance(value, np.generic):
        return {"number": _packed(np.asarray(value))}
    if (name := type(value).__name__) in RECORDS:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"record": name, "fields": _packed(fields)}
    if isinstance(value, tuple):
        return {"tuple": [_packed(one) for one in value]}
    if isinstance(value, list):
        return [_packed(one) for one in value]
    if isinstance(value, dict):
        return {"dict": [[_packed(key), _packed(one)] for key, one in value.items()]}
    if value is pd.NA or value is pd.NaT:
        return {"missing": "NA" if value is pd.NA else "NaT"}
    if value is None or type(value) in (str, bool, int, float):
        return value
    raise TypeError(f"{type(value).__name__} is not stored")


def _packed_index(index: pd.Index[Any]) -> Any:
    if isinstance(index, pd.RangeIndex):
        return {"range": [index.start, index.stop, index.step], "name": index.name}
    if isinstance(index, pd.MultiIndex):
        raise TypeError("an index of several levels is not stored")
    return {"values": _packed(index.to_series()), "name": index.name}


def _unpacked(packed: dict[str, Any]) -> Any:
    """The value of one object of JSON, whose parts have been unpacked."""
    match packed:
        case {"frame": columns, "columns": names, "index": index}:
            parts = [pd.Series(column).set_axis(index) for column in columns]
            frame = pd.concat(parts, axis=1) if parts else pd.DataFrame(index=index)
            frame.index, frame.columns = index, pd.Index(names)
            return frame
        case {"range": (start, stop, step), "name": name}:
            return pd.RangeIndex(start, stop, step, name=name)
        case {"values": values, "name": name}:
            return pd.Index(values, name=name)
        case {"objects": objects, "dtype": dtype}:
            return pd.Series(_objects(objects)).astype(dtype)
        case {"bytes": raw, "dtype": dtype, "shape": shape}:
            return np.frombuffer(base64.b64decode(raw), np.dtype(dtype)).reshape(shape).copy()
        case {"array": values, "shape": shape}:
            return _objects(values).reshape(shape)
        case {"time": time}:
            return pd.Timestamp(time)
        case {"number": number}:
            return number[()]
        case {"record": name, "fields": values}:
            return RECORDS[name](**values)
        case {"tuple": values}:
            return tuple(values)
        case {"dict": pairs}:
            return dict(pairs)
        case _:
            return {"NA": pd.NA, "NaT": pd.NaT}[packed["missing"]]


def _objects(values: list[Any]) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = np.empty(len(values), object)
    array[:] = values
    return array

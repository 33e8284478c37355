"""Cached questions to the served generation, and what a link's names mean in it.

Every cache key carries the generation's name, so a newly published one is seen at the next question and nothing of the
old one is ever shown next to it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import pandas as pd
from flask import Flask, current_app, has_request_context, request
from flask_caching import Cache

from atlas.state import View
from atlas.theme import Mark, family_marks
from backend.errors import AtlasError
from backend.methods.registry import GROUPS, group_of, names
from backend.protocol import READER_PAPER
from backend.store import queries
from backend.store.database import Generation, Generations

T = TypeVar("T")

DOMAIN_NAMES = {"agent500": "Agent500", "math100": "Math100"}
METHOD_NAMES = names()
"""What methods are called; others go by their own name."""
CONDITION_NAMES = {
    "clean": "whole responses",
    **{
        f"t{length}{ending}": f"first {length} tokens{words}"
        for length in (128, 64, 32)
        for ending, words in (("", ""), ("-global", ", groups over all folds"))
    },
    **{f"mask{share}-global": f"{share} % masked, groups over all folds" for share in (10, 20, 30, 40, 50)},
    "background": "with unlabelled responses of that domain",
    "aligned": "moved by unlabelled responses of that domain",
}
VIEW_READS = {"ur": "prompt + response", "r": "response"}
VIEW_NAMES = {"ur": "prompt and response", "r": "response alone"}
DAY = 86_400
PINNED = "atlas.generation"
NEAR = 256  # tables that are also kept in memory; every page asks for readers, rosters and sources several times


@functools.cache
def _questions_hash() -> str:
    """Of the code that asks: what another version of it answered is kept apart."""
    folder = Path(queries.__file__).parent
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()


class QueryCache:
    """What pages ask.

    folder : data with the pointer to a generation; may be empty or missing, then every page shows what to do.
    """

    def __init__(self, folder: Path, cache: Cache) -> None:
        self.folder = folder
        self._cache = cache
        self._followed: Generations | None = None
        self._lock = threading.Lock()
        self._near: dict[str, pd.DataFrame] = {}
        self._marks: tuple[str, dict[str, Mark]] = ("", {})
        self._reader_rows: tuple[str, dict[str, pd.Series]] = ("", {})

    def generation(self) -> Generation:
        """The generation to answer from; a request is answered from one to its end.

        Raises AtlasError if none has been published, or it cannot be read.
        """
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
        """Answer of one of :mod:`backend.store.queries`, from the cache where it was asked before."""
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
        name = self.generation().name
        generation, held = self._marks
        if generation != name:
            held = self._all_marks()
            self._marks = name, held
        return dict(held)

    def _all_marks(self) -> dict[str, Mark]:
        rosters = self.ask(queries.rosters)["roster"]
        members = [self.ask(queries.sources, roster)[["family", "family_position"]] for roster in rosters]
        if not members:
            return {}
        families = pd.concat(members).drop_duplicates().sort_values("family_position")["family"]
        return family_marks(list(families))

    def domains(self) -> list[str]:
        """Domains of which anything is stored."""
        readers = self.ask(queries.readers)
        held = {domain for column in ("benchmarks", "domains") for names in readers[column] for domain in names}
        return sorted(held, key=lambda domain: (domain not in DOMAIN_NAMES, domain))

    def holds_own_sources(self) -> bool:
        """Whether the generation holds sources that were enrolled here: they are roster and domain of one name."""
        return not set(self.domains()).isdisjoint(self.ask(queries.rosters)["roster"])

    def resolve_view(self, view: View) -> View:
        """Replace names that the generation does not know by those that it has most of.

        A selected source is kept as long as any roster holds it, because it survives a switch of rosters.
        """
        readers = self.ask(queries.readers)
        rosters = list(self.ask(queries.rosters)["roster"])
        names = set(readers["reader"])
        if view.reader not in names:
            ranked = sorted(
                range(len(readers)),
                key=lambda row: (
                    readers["method"].iloc[row] != READER_PAPER,
                    not readers["benchmarks"].iloc[row],
                    readers["origin"].iloc[row] != "measured",
                    -len(readers["rosters"].iloc[row]),
                    readers["view"].iloc[row] != "ur",
                    row,
                ),
            )
            view = dataclasses.replace(view, reader=readers["reader"].iloc[ranked[0]] if ranked else "")
        if view.roster not in rosters:
            held = [roster for row in readers["rosters"][readers["reader"] == view.reader] for roster in row]
            view = dataclasses.replace(view, roster=(held or rosters or [""])[-1])
        domains = self.domains()
        # An ecosystem that was enrolled here is a roster and a domain of one name, and neither goes with another one.
        if view.roster in domains:
            view = dataclasses.replace(view, domain=view.roster)
        elif view.domain not in domains or view.domain in rosters:
            shared = [domain for domain in domains if domain not in rosters]
            view = dataclasses.replace(view, domain=shared[0] if shared else "")
        known = {source for roster in rosters for source in self.ask(queries.sources, roster)["source"]}
        families = set(self.marks())
        return dataclasses.replace(
            view,
            source=view.source if view.source in known else "",
            truth=view.truth if view.truth in known else "",
            answer=view.answer if view.answer in known else "",
            other=view.other if view.other in known else "",
            readers=tuple(reader for reader in view.readers if reader in names),
            condition=view.condition if view.condition in self.conditions() else View.condition,
            zoom=view.zoom if view.zoom in families else "",
            families=tuple(family for family in view.families if family in families),
        )

    def conditions(self) -> list[str]:
        """Conditions under which anything was measured, the clean one first, then those that keep most of a trace."""
        held = set(self.ask(queries.measurements)["condition"])
        known = list(CONDITION_NAMES)
        return sorted(held, key=lambda name: (known.index(name) if name in known else len(known), name))

    def opened(self, view: View) -> View:
        """The view, or its reader's largest roster with attribution where it has none here."""
        if self.attribution_reader(view):
            return view
        sizes = self.ask(queries.rosters).sort_values("sources", ascending=False, kind="stable")
        views = (dataclasses.replace(view, roster=roster) for roster in sizes["roster"])
        return next((near for near in views if self.attribution_reader(near)), view)

    def usual(self, view: View) -> View:
        """The view with the reader that a link without one would show."""
        return self.resolve_view(dataclasses.replace(view, reader=""))

    def map_reader(self, view: View) -> str:
        """The reader whose map is shown: the chosen one, else its sibling that reads the other text, else ''."""
        maps = self.ask(queries.maps)
        return self._with(view, set(maps["reader"][(maps["roster"] == view.roster) & (maps["domain"] == view.domain)]))

    def attribution_reader(self, view: View) -> str:
        """The reader whose attribution is shown: as :meth:`map_reader`."""
        held = self.ask(queries.measurements)
        fitting = (held["roster"] == view.roster) & (held["benchmark"] == view.domain) & (held["condition"] == "clean")
        return self._with(view, set(held["reader"][fitting]))

    def knows(self, reader: str) -> bool:
        """Whether a reader has rows in the generation."""
        return reader in set(self.ask(queries.readers)["reader"])

    def reader_row(self, reader: str) -> pd.Series:
        """Row of :func:`backend.store.queries.readers`; a page names dozens of them, so they are taken apart once."""
        generation, held = self._reader_rows
        if generation != self.generation().name:
            readers = self.ask(queries.readers)
            generation, held = self.generation().name, {row["reader"]: row for _, row in readers.iterrows()}
            self._reader_rows = generation, held
        return held[reader]

    def origin(self, reader: str) -> str:
        """'measured' or 'published'."""
        return str(self.reader_row(reader)["origin"]) if reader else "measured"

    def proxy_name(self, reader: str) -> str:
        """The proxy of a reader, or the reader's name where it has none."""
        row = self.reader_row(reader)
        return str(row["proxy_name"] if isinstance(row["proxy_name"], str) and row["proxy_name"] else row["name"])

    def reader_name(self, reader: str) -> str:
        """A reader's name in lists and beside lines: method, proxy and what it reads."""
        row = self.reader_row(reader)
        if not isinstance(row["proxy_name"], str) or not row["proxy_name"]:
            return METHOD_NAMES.get(row["method"], str(row["name"]))
        reads = VIEW_READS.get(row["view"])
        parts = (METHOD_NAMES.get(row["method"], row["method"]), row["proxy_name"], reads)
        return " · ".join(part for part in parts if part)

    def short_name(self, reader: str) -> str:
        """A reader's name beside a line: its proxy where it is READER in its usual form, else its method too."""
        row = self.reader_row(reader)
        return self.proxy_name(reader) if row["method"] == READER_PAPER else self.reader_name(reader)

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
        """Readers for a list: all that were measured here, then the published ones; the paper's method comes first."""
        readers = self.ask(queries.readers)
        kinds = [group_of(method) for method in readers["method"]]
        known = list(GROUPS)
        order = sorted(
            range(len(readers)),
            key=lambda row: (
                readers["origin"].iloc[row] != "measured",
                known.index(kinds[row]) if kinds[row] in known else len(known),
                kinds[row],
                row,
            ),
        )
        groups: dict[str, list[str]] = {}
        for row in order:
            origin = "Measured here" if readers["origin"].iloc[row] == "measured" else "Published"
            groups.setdefault(f"{origin} · {kinds[row]}", []).append(str(readers["reader"].iloc[row]))
        return list(groups.items())

    def reader_words(self, reader: str) -> str:
        """A reader in words: method and proxy, and what it reads."""
        reads = VIEW_NAMES.get(self.reader_row(reader)["view"], "")
        proxy = self.proxy_name(reader)
        return f"{proxy}, reading {reads}" if reads else proxy

    def _with(self, view: View, holders: set[str]) -> str:
        if view.reader in holders:
            return view.reader
        readers = self.ask(queries.readers)
        chosen = readers[readers["reader"] == view.reader]
        if not len(chosen):
            return ""
        same = (readers["method"] == chosen["method"].iloc[0]) & (readers["proxy"] == chosen["proxy"].iloc[0])
        return next((reader for reader in readers["reader"][same] if reader in holders), "")


def install(server: Flask, questions: QueryCache) -> None:
    """Let :func:`questions` find the questions of this server."""
    server.extensions["atlas"] = questions


def questions() -> QueryCache:
    """The questions of the server that handles this request."""
    found: QueryCache = current_app.extensions["atlas"]
    return found

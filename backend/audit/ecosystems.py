"""The published enrolments, as a server offers them: read once, and again when a file changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.audit.enrollable import SEVERAL
from backend.audit.labels import alike
from backend.audit.uploads import ServerError
from backend.errors import AtlasError
from backend.store.database import default_data_folder

if TYPE_CHECKING:
    from backend.audit.enrolment import Enrolment


class DamagedError(ServerError):
    """A published enrolment cannot be read, so that no answer may stand in its place."""


@dataclass(frozen=True)
class Ecosystem:
    """A set of enrolled sources.

    Attributes
    ----------
    name, reader, proxy, view : str
    sources, families : tuple of str, length C
    sha256 : str
        Of the enrolment: names, probes, prior, attachments.
    facts : mapping
        How it was made; JSON.
    accuracy : float or None
        Of one whole response to a prompt that was held out; None where it was not validated.
    live : bool
        Whether it was made to answer while somebody waits; an ensemble reads more than that allows.
    """

    name: str
    reader: str
    proxy: str
    view: str
    sources: tuple[str, ...]
    families: tuple[str, ...]
    sha256: str
    facts: Mapping[str, Any]
    accuracy: float | None = None
    live: bool = True

    @property
    def roster(self) -> str | None:
        """Roster of the release that was enrolled, None for any other set."""
        roster = self.facts.get("roster")
        return roster if isinstance(roster, str) else None

    @property
    def rank(self) -> tuple[int, bool, float]:
        """What an ecosystem is preferred by where none is named: how many sources it knows, how soon, then how well."""
        return len(self.sources), self.live, self.accuracy or 0.0


class Ecosystems:
    """The enrolments of a data folder.

    Parameters
    ----------
    data : Path
        Data folder; new files in its ``enrolments/`` are seen at the next look.
    """

    def __init__(self, data: Path) -> None:
        self.data = data
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[tuple[int, int], Enrolment, Ecosystem]] = {}
        self._broken: dict[Path, tuple[tuple[int, int], AtlasError]] = {}

    def empty(self) -> bool:
        """Whether no enrolment is published here; reads none."""
        return not any((self.data / "enrolments").glob("[!.]*.npz"))

    def all(self) -> list[Ecosystem]:
        """Every enrolment that can be read, the preferred one first; one that cannot is named in the log."""
        return sorted((entry[2] for entry in self._read().values()), key=lambda one: one.rank, reverse=True)

    def damaged(self) -> dict[str, AtlasError]:
        """Names of the enrolments that could not be read when they were last needed, and why; reads none."""
        return {path.stem: error for path, (_, error) in list(self._broken.items()) if path.exists()}

    def enrolment(self, name: str | None, claimed: str | None = None) -> Enrolment:
        """An enrolment by name; without one the preferred one of those that know the claimed source.

        Raises
        ------
        AtlasError
            If there is none; DamagedError if it cannot be read, or if none is named while one cannot be read: that one
            may be the preferred one, and another would answer in its place.
        """
        known = self._read().values()
        held = {entry[2].name: entry[1] for entry in known}
        if (damaged := self.damaged()) and name not in held and (name is None or name in damaged):
            which = name or min(damaged)
            instead = f", or name one of {', '.join(held)}" if held else ""
            raise DamagedError(
                f"The enrolment '{which}' is damaged ({damaged[which].problem})", f"{damaged[which].remedy}{instead}"
            )
        if not held:
            raise AtlasError("No ecosystem is enrolled here", "Run: python -m jobs enroll --sample")
        if name is not None:
            if name not in held:
                raise AtlasError(f"There is no ecosystem '{name[:80]}'", f"Choose from {', '.join(held)}")
            return held[name]
        fitting = [entry for entry in known if claimed is None or claimed in entry[2].sources]
        if not fitting:
            near = alike(str(claimed)[:80], (source for entry in known for source in entry[2].sources))
            meant = f"Did you mean {' or '.join(near)}? " if near else ""
            raise AtlasError(
                f"No ecosystem knows the source '{str(claimed)[:80]}'",
                f"{meant}Look at GET /api/ecosystems or python -m jobs attribute --list, or claim no source",
            )
        return max(fitting, key=lambda entry: entry[2].rank)[1]

    def _read(self) -> dict[Path, tuple[tuple[int, int], Enrolment, Ecosystem]]:
        if self.empty():
            return {}
        from backend.audit.enrolment_files import enrolments, load_enrolment  # brings torch, which takes seconds
        from backend.audit.matched import accuracy_of_one

        with self._lock:
            found = {}
            for path in enrolments(self.data).values():
                try:
                    stat = path.stat()
                    stamp = (stat.st_mtime_ns, stat.st_size)
                    if path in self._broken and self._broken[path][0] == stamp:
                        continue
                    if path not in self._known or self._known[path][0] != stamp:
                        enrolment = load_enrolment(path)
                        self._known[path] = (stamp, enrolment, _described(enrolment, accuracy_of_one(enrolment)))
                        self._broken.pop(path, None)
                    found[path] = self._known[path]
                except OSError:
                    continue  # replaced at this moment, and seen at the next look
                except AtlasError as error:
                    self._broken[path] = stamp, error
                    logging.getLogger(__name__).warning("%s", error)
            self._known = dict(found)
            return found


def find_enrolment(name: str | None, claimed: str | None = None, data_folder: Path | None = None) -> Enrolment:
    """An enrolment by name or file; without a name the preferred one of those that know the claimed source.

    Raises
    ------
    AtlasError
        If there is none, or the file is damaged.
    """
    from backend.audit.enrolment_files import enrolments, load_enrolment  # brings torch, which takes seconds

    data = data_folder or default_data_folder()
    if name is None:
        return Ecosystems(data).enrolment(None, claimed)
    return load_enrolment(enrolments(data).get(name) or Path(name))


def _described(enrolment: Enrolment, accuracy: float | None) -> Ecosystem:
    return Ecosystem(
        enrolment.name,
        enrolment.reader,
        enrolment.proxy,
        enrolment.view,
        enrolment.sources,
        enrolment.families,
        enrolment.sha256,
        dict(enrolment.facts),
        accuracy,
        enrolment.block != SEVERAL,
    )

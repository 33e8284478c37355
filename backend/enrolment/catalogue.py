"""Published enrolments, labels that people mean, and the shipped sample."""

from __future__ import annotations

import functools
import logging
import math
import re
import shlex
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from backend.errors import AtlasError, ServerError
from backend.methods.registry import SEVERAL
from backend.store.database import default_data_folder
from backend.store.writers import RELEASE_ROSTERS

if TYPE_CHECKING:
    from backend.corpus.release import Records
    from backend.enrolment.enrolment import Enrolment

_SAME = ("name", "reader", "proxy", "view", "sources", "families", "sha256")


class DamagedError(ServerError):
    """A published enrolment cannot be read, so that no answer may stand in its place."""


@dataclass(frozen=True)
class Ecosystem:
    """A set of enrolled sources."""

    name: str
    reader: str
    proxy: str
    view: str
    sources: tuple[str, ...]
    families: tuple[str, ...]
    sha256: str  # of the enrolment: names, probes, prior, attachments
    facts: Mapping[str, Any]  # of its creation; JSON
    accuracy: float | None = None  # of one whole response to a held-out prompt; None where it was not validated
    live: bool = True  # whether it answers while somebody waits; an ensemble reads more than that allows

    @property
    def roster(self) -> str | None:
        """Roster of the release that was enrolled, None for any other set."""
        roster = self.facts.get("roster")
        return roster if isinstance(roster, str) else None

    @property
    def own(self) -> bool:
        """Whether it is of labelled traces under a name of their own."""
        return self.roster is not None and self.roster not in RELEASE_ROSTERS

    @property
    def sample(self) -> bool:
        """Whether the shipped sample was enrolled: it is there to try, and judges nobody's traces unless chosen."""
        return self.roster is None and _holds_samples(self.sources)

    @property
    def title(self) -> str:
        """What people call it: its roster, the samples, or the name it was given."""
        return title_of(self.name, self.roster, self.sources)

    @property
    def rank(self) -> tuple[bool, int, bool, float]:
        """Order of preference where none is named: no sample, how many sources it knows, how soon, then how well."""
        return not self.sample, len(self.sources), self.live, self.accuracy or 0.0


def title_of(name: str, roster: str | None, sources: Iterable[str]) -> str:
    """What people call an enrolment: its roster, the samples, or the name it was given."""
    return roster or (SAMPLES if _holds_samples(sources) else name)


def _holds_samples(sources: Iterable[str]) -> bool:
    samples = _sample_sources()
    return bool(samples) and samples.issubset(sources)


class Ecosystems:
    """The enrolments of a data folder; new files in its ``enrolments/`` are found at the next call."""

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
        return [one for _, one in self._ranked()]

    def damaged(self) -> dict[str, AtlasError]:
        """Names of the enrolments that could not be read when they were last needed, and why; reads none."""
        return {path.stem: error for path, (_, error) in list(self._broken.items()) if path.exists()}

    def enrolment(self, name: str | None, claimed: str | None = None) -> Enrolment:
        """An enrolment by name (:func:`named`), else the preferred one that knows the claim.

        Raises AtlasError if there is none, or the name fits several ecosystems; DamagedError if it, or without a name
        any that may be the preferred one, cannot be read.
        """
        known = self._ranked()
        ecosystems = [one for _, one in known]
        names = [one.name for one in ecosystems]
        if (damaged := self.damaged()) and name not in names and (name is None or name in damaged):
            which = name or min(damaged)
            instead = f", or name one of {', '.join(names)}" if names else ""
            problem = f"The enrolment '{which}' is damaged ({damaged[which].problem})"
            raise DamagedError(problem, f"{damaged[which].remedy}{instead}")
        if not known:
            raise AtlasError("No ecosystem is enrolled here", "Run: python -m jobs enroll --sample")
        chosen = default(ecosystems, claimed) if name is None else named(name, ecosystems)
        if chosen is None:
            meant = did_you_mean(str(claimed)[:80], (source for one in ecosystems for source in one.sources))
            remedy = f"{meant}Look at GET /api/ecosystems or python -m jobs attribute --list, or claim no source"
            raise AtlasError(f"No ecosystem knows the source '{str(claimed)[:80]}'", remedy)
        return next(enrolment for enrolment, one in known if one is chosen)

    def _ranked(self) -> list[tuple[Enrolment, Ecosystem]]:
        """Enrolments and what they are, the preferred one first."""
        known = [(enrolment, one) for _, enrolment, one in self._read().values()]
        return sorted(known, key=lambda entry: entry[1].rank, reverse=True)

    def _read(self) -> dict[Path, tuple[tuple[int, int], Enrolment, Ecosystem]]:
        if self.empty():
            return {}
        from backend.enrolment.files import enrolments, load_enrolment  # imports torch, which takes seconds
        from backend.enrolment.validation_lookup import accuracy_of_one

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
                        ecosystem = Ecosystem(
                            **{part: getattr(enrolment, part) for part in _SAME}, facts=dict(enrolment.facts),
                            accuracy=accuracy_of_one(enrolment), live=enrolment.block != SEVERAL,
                        )  # fmt: skip
                        self._known[path] = stamp, enrolment, ecosystem
                        self._broken.pop(path, None)
                    found[path] = self._known[path]
                except OSError:
                    continue  # replaced at this moment, and found at the next call
                except AtlasError as error:
                    self._broken[path] = stamp, error
                    logging.getLogger(__name__).warning("%s", error)
            self._known = dict(found)
            return found


def default(
    known: Sequence[Ecosystem], claimed: str | None = None, reader: str | None = None, roster: str | None = None
) -> Ecosystem | None:
    """The ecosystem that judges traces where nobody names one; None where none knows the claim.

    known : the preferred one first; reader, roster : of a page's header. The shipped sample comes last.
    """
    fitting = [one for one in known if claimed is None or claimed in one.sources]
    return max(
        fitting,
        key=lambda one: (not one.sample, bool(roster) and one.roster == roster, bool(reader) and one.reader == reader),
        default=None,
    )


def named(name: str, known: Sequence[Ecosystem]) -> Ecosystem:
    """The ecosystem of a name, or of the beginning of a name, in any case.

    Of several readers of one ecosystem the first of ``known``, the preferred one, is taken.
    """
    typed = name.strip().casefold()
    names = [(one, {one.name.casefold(), (one.roster or one.name).casefold()}) for one in known]
    if exact := [one for one in known if one.name == name] or [one for one, own in names if typed in own]:
        return exact[0]
    begun = [one for one, own in names if typed and any(text.startswith(typed) for text in own)]
    if len({one.roster or one.name for one in begun}) == 1:
        return begun[0]
    if begun:
        problem = f"Several ecosystems have names that begin with '{name[:80]}'"
        raise AtlasError(problem, f"Choose from {', '.join(one.name for one in begun)}")
    short = {text for one in known for text in (one.name, one.roster) if text}
    roster = next((one for one in RELEASE_ROSTERS if typed == one or typed.startswith(f"{one}-")), None)
    make = f"Make it: python -m jobs enroll --roster {roster}, or choose from" if roster else "Choose from"
    problem = f"There is no enrolment and no ecosystem '{name[:80]}'"
    raise AtlasError(problem, f"{did_you_mean(name[:80], sorted(short))}{make} {', '.join(one.name for one in known)}")


def find_enrolment(name: str | None, claimed: str | None = None, data_folder: Path | None = None) -> Enrolment:
    """An enrolment by its file in the data folder, any other file, or a name."""
    from backend.enrolment.files import enrolments, load_enrolment  # imports torch, which takes seconds

    data = data_folder or default_data_folder()
    if name is not None:
        path = enrolments(data).get(name) or Path(name)
        if path.is_file() or path.suffix == ".npz":
            return load_enrolment(path)
    return Ecosystems(data).enrolment(name, claimed)


def offer(taken: Enrolment, claimed: str | None = None, data_folder: Path | None = None) -> str | None:
    """A sentence that offers the newest own ecosystem that knows the claim."""
    known = Ecosystems(data_folder or default_data_folder()).all()
    fitting = [one for one in known if one.own and (claimed is None or claimed in one.sources)]
    if not fitting:
        return None
    newest = max(fitting, key=lambda one: str(one.facts.get("created") or ""))
    if taken.facts.get("roster") == newest.roster:
        return None
    word = newest.roster if next(one for one in known if one.roster == newest.roster) is newest else newest.name
    return f"Your newest ecosystem is {newest.roster}; use --enrolment {shlex.quote(word or newest.name)}"


FAMILY = "family:"  # begins a candidate that stands for all sources of a family
ENROL = "enrol it: python -m jobs collect, then python -m jobs enroll"
SHOWN = 8
OFFERED = 3  # labels in a question, in which eight would be too many to read
SAMPLES = "the samples"
NOT_LISTED = "Is your model not in the list? Enrol it: python -m jobs enroll LABELLED --name NAME."
GRAMS = (2, 3)  # letters in a row that are compared
LEAST = 0.4  # smallest cosine of a match: of 165 names every one then finds its label among the first three
WORDS: Mapping[str, str] = {  # words that people write for others: makers for their models, and what labels shorten
    **dict.fromkeys(("openai", "chatgpt"), "gpt"),
    **dict.fromkeys(("zai", "zhipu", "thudm"), "glm"),
    **dict.fromkeys(("alibaba", "tongyi"), "qwen"),
    **{"anthropic": "claude", "baidu": "ernie", "bytedance": "doubao", "liquidai": "lfm", "meta": "llama"},
    **{"microsoft": "phi", "mistralai": "mistral", "moonshotai": "kimi", "tencent": "hunyuan", "xai": "grok"},
    **{"ds": "deepseek", "inst": "instruct", "think": "thinking"},
}


class Known(Protocol):
    """Sources of an enrolment or an ecosystem."""

    @property
    def name(self) -> str: ...
    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def families(self) -> tuple[str, ...]: ...


def candidate_numbers(known: Known, entries: Sequence[str]) -> npt.NDArray[np.intp] | None:
    """Numbers of chosen sources, ascending, by labels and 'family:NAME'; None where nothing is chosen.

    Raises AtlasError for what is not enrolled, or fewer than two sources.
    """
    if not entries:
        return None
    chosen: set[int] = set()
    for entry in entries:
        family = entry.removeprefix(FAMILY)
        found = [i for i, source in enumerate(known.sources) if source == entry]
        if not found and family != entry:
            found = [i for i, name in enumerate(known.families) if name == family]
        if not found:
            labels = list(dict.fromkeys(known.sources if family == entry else known.families))
            near = ", ".join(alike(family, labels) or labels[:SHOWN])
            problem = f"The candidate '{entry[:80]}' is not enrolled in '{known.name}'"
            raise AtlasError(problem, f"Choose from those that are, such as {near}, or {ENROL}")
        chosen.update(found)
    if len(chosen) < 2:
        (only,) = chosen
        problem = f"'{known.sources[only]}' is the only candidate, so that there is nothing to weigh it against"
        raise AtlasError(problem, f"Name another one, or {ENROL}")
    return np.array(sorted(chosen), dtype=np.intp)


def alike(typed: str, labels: Iterable[str], least: float = LEAST) -> list[str]:
    """Labels that a person may have meant, at most eight: those that begin so first, then the likeliest.

    Two and three letters or digits in a row are compared, rare ones weigh more: 'openai gpt 4o', 'GPT-4o' and 'gtp4o'
    all lead to 'gpt4o'.
    """
    spelled: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        spelled.setdefault(spelling(label), []).append(label)
    spelled.pop("", None)
    counts = {spelling: _grams(spelling) for spelling in spelled}
    having = Counter(gram for grams in counts.values() for gram in grams)
    weights = {gram: math.log1p(len(counts) / labels_with) for gram, labels_with in having.items()}
    needed = spelling(typed)
    query = _unit(_grams(needed), weights)
    likeness = {
        spelling: sum(share * query.get(gram, 0.0) for gram, share in _unit(grams, weights).items())
        for spelling, grams in counts.items()
    }
    near = (one for one in likeness if likeness[one] >= least)
    found = sorted(near, key=lambda one: (not one.startswith(needed), -likeness[one]))
    # Of a short name one wrong letter spoils most pairs.
    found = found or get_close_matches(needed, spelled, n=SHOWN, cutoff=0.7)
    return [label for one in found for label in spelled[one]][:SHOWN]


def did_you_mean(typed: str, labels: Iterable[str]) -> str:
    """The beginning of a remedy, such as 'Did you mean gpt4o? '; empty where no label is like it."""
    near = alike(typed, labels)[:OFFERED]
    return f"Did you mean {' or '.join(near)}? " if near else ""


def spelling(text: str) -> str:
    """Letters and digits alone; a word stands once, as labels have it."""
    parts = [WORDS.get(part, part) for part in re.findall(r"[^\W\d_]+|\d+", text.casefold())]
    return "".join(part for i, part in enumerate(parts) if part.isdecimal() or part not in parts[:i])


def _grams(spelling: str) -> Counter[str]:
    marked = f"^{spelling}$"
    return Counter(marked[i : i + n] for n in GRAMS for i in range(len(marked) - n + 1)) if spelling else Counter()


def _unit(grams: Mapping[str, int], weights: Mapping[str, float]) -> dict[str, float]:
    """Weighted counts of unit length; of grams without a weight nothing."""
    weighted = {gram: count * weights[gram] for gram, count in grams.items() if gram in weights}
    length = math.sqrt(sum(value * value for value in weighted.values()))
    return {gram: value / length for gram, value in weighted.items()}


def _samples() -> Records:
    from backend.corpus.collection import sample_records  # imports the client of endpoints

    return sample_records()


def sample_labels() -> list[str]:
    return sorted(_samples().sources)


@functools.cache
def _sample_sources() -> frozenset[str]:
    """Sources of the shipped sample; none in an installation without it."""
    try:
        return frozenset(sample_labels())
    except AtlasError:
        return frozenset()


def sample_enrolment_of(enrolments: Iterable[Enrolment]) -> Enrolment | None:
    """The enrolment of the samples, where there is one."""
    needed = set(sample_labels())
    return next((one for one in enrolments if needed <= set(one.sources)), None)

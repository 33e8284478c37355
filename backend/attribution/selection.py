"""Which traces of a file an audit scores, and what it keeps of them (paper, Dynamic Provenance Setting).

A file is walked through once, a trace at a time; whatever is left out is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from backend.attribution.report import Seen
from backend.attribution.settings import Settings
from backend.errors import AtlasError
from backend.intake import Layout, Limits, Problem, Received, notes_about, walk
from backend.traces import Trace

UNASKED = "not one of the traces asked for"


@dataclass
class Selection:
    """Which traces of a file are scored; fills while the file is walked through.

    wanted : says for a trace that repeats no earlier one whether it is scored; by default all are.
    """

    keep_duplicates: bool = False
    wanted: Callable[[Received], bool] | None = None
    characters: int | None = None  # of one prompt or one response, where they are fewer than those of the limits
    text: int = 0  # characters of text that are kept for token evidence; nothing is kept at 0
    seen: list[Seen] = field(default_factory=list)
    texts: list[Trace] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    exclusions: list[dict[str, Any]] = field(default_factory=list)

    def traces(self, stream: BinaryIO, layout: Layout, limits: Limits) -> Iterator[Trace]:
        """Traces to score, one at a time."""
        first: dict[str, tuple[int, int]] = {}
        left = self.text
        for found in walk(stream, layout, replace(limits, characters=self.most(limits))):
            if isinstance(found, Problem):
                self.problems.append(found)
                continue
            at = first.setdefault(found.sha256, (found.place, found.turn))
            reason = None
            if at != (found.place, found.turn) and not self.keep_duplicates:
                reason = f"the same as {layout.unit} {at[0]}"
            elif self.wanted is not None and not self.wanted(found):
                reason = UNASKED
            if reason is not None:
                self.exclusions.append(
                    {"place": found.place, "turn": found.turn, "sha256": found.sha256, "reason": reason}
                )
                continue
            self.seen.append(Seen.of(found))
            if self.text:
                left -= len(found.prompt) + len(found.response)
                if left < 0:
                    raise AtlasError(
                        f"The traces hold more than {self.text:,} characters, too many to keep their text",
                        "Keep no text, or give fewer traces",
                    )
                self.texts.append(found.trace)
            yield found.trace

    def most(self, limits: Limits) -> int:
        """Characters of one prompt or one response beyond which a place gives no trace."""
        return limits.characters if self.characters is None else min(self.characters, limits.characters)


def selection_of(settings: Settings, limits: Limits) -> Selection:
    """The traces that the settings ask for."""
    return Selection(settings.keep_duplicates, text=limits.text if settings.show else 0)


def notes_on(selection: Selection) -> list[str]:
    """Sentences a person should read about what was scored."""
    seen = selection.seen
    lengths = [(trace.prompt_characters, trace.response_characters) for trace in seen]
    names = [(trace.name, trace.turn) for trace in seen if trace.name is not None]
    return notes_about(lengths, names, {trace.label for trace in seen if trace.label})


def counted(stream: BinaryIO, layout: Layout, selection: Selection, limits: Limits) -> int:
    """How many traces of a file a selection takes, before any is scored.

    Raises AtlasError if it takes none, with the first place that gives no trace.
    """
    total = sum(1 for _ in selection.traces(stream, layout, limits))
    if not total:
        first = selection.problems[0] if selection.problems else None
        where = f" ({layout.unit} {first.place:,}: {first.reason})" if first else ""
        raise AtlasError(f"There is no trace in {layout.name}{where}", "Check the file and the mapping of its columns")
    return total

"""Drift of an endpoint between two windows of its traces (paper, Limitations).

Where both windows answer the same prompts, and enough of them, answers are swapped within prompts. The answer is JSON
with the hashes of files, traces and enrolment, the seed and the settings, and no text of any trace.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.attribution.report import digest
from backend.attribution.report_words import TESTED
from backend.attribution.settings import Report, Settings, of_windows, words_of_files
from backend.enrolment.enrolment import WHOLE, Enrolment
from backend.enrolment.validation_lookup import expected_power, prompts_needed, validation_of
from backend.errors import AtlasError, StoppedError
from backend.inference import drift
from backend.inference.drift import FEWEST_PAIRED, DriftTest, Method, so_far
from backend.inference.validation import SPACE
from backend.intake.layout import RECOGNISED
from backend.protocol import CLEAN

Floating = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]
FEWEST = 5  # traces that a window must have at least: with fewer, no permutation is rare enough
MOST = 1_000  # traces of a window that are compared; of a longer one, as many in even steps
FORMAT = 2  # of comparisons of windows and with a reference
MARKDOWN = re.compile(r"^(#{1,6} |\s*[-*+] |\s*\d+\. |```|\|.*\|)|\*\*\S|`[^`\n]+`", re.MULTILINE)
MEASURES = {
    "words": "Length of a response, median",
    "markdown": "Responses with Markdown",
    "alike": "Most common opening of each (first two words)",
}
MEASURE_MEANINGS = {
    "words": "Half of the responses have fewer words, half have more.",
    "markdown": "Responses with a heading, a list, a table, code or bold text in Markdown.",
    "alike": "Each file has its own most common opening, which is not named: no text of any trace is kept. A large "
    "share shows a fixed way to begin.",
}
"""What each of :data:`MEASURES` is."""
SAME_RESPONSES = "Both files hold the same responses. They will be found alike, whatever model wrote them."
"""What is said before equal files are compared."""
ROLE = re.compile(r" \((the traces|the reference|rival \d+|(first|second) window)\)$")
OTHER_WINDOW = "Choose the file of the other window: these two hold the same responses."


def standardised(fingerprints: Floating, enrolment: Enrolment) -> Doubles:
    """Fingerprints (n, 2 d) at the block where the enrolment places traces, (n, D), as its heads see them.

    Where no head reads that block, or all of a fingerprint there, the spread of the enrolled domain stands in.
    """
    # At a block of its own the validation compares whole fingerprints, whatever part of them is scored.
    rows = enrolment.columns(fingerprints) if enrolment.landing is None else fingerprints
    heads = enrolment.heads if enrolment.landing is None or enrolment.block == WHOLE else ()
    head = next((head for head in heads if enrolment.place in head.layers), None)
    if head is None:
        mean, scale = _spread_of_domain(enrolment)
    else:
        blocks, place = len(head.layers), head.layers.index(enrolment.place)
        both = head.standardiser or (np.empty(0), np.empty(0))
        mean, scale = (values.reshape(blocks, -1)[place] for values in both)
    return (np.asarray(rows, dtype=np.float64) - mean) / scale


def _spread_of_domain(enrolment: Enrolment) -> tuple[Floating, Floating]:
    """Mean and spread of the enrolled domain."""
    for name in sorted(enrolment.attachments):
        part, _, array = name.partition(".")
        if part.startswith("domain-") and array == "mean":
            return np.asarray(enrolment.attachments[name]), np.asarray(enrolment.attachments[f"{part}.scale"])
    raise AtlasError(
        f"The enrolment '{enrolment.name}' brings no spread at block {enrolment.place}", "Make it again with its domain"
    )


def side_by_side(before: Sequence[str], after: Sequence[str]) -> npt.NDArray[np.intp] | None:
    """Order (n,) of the second window's prompts that equals the first's; None unless all match one by one."""
    place = {prompt: i for i, prompt in enumerate(after)}
    if len(place) != len(after) or len(set(before)) != len(before) or set(place) != set(before) or "" in place:
        return None
    return np.array([place[prompt] for prompt in before], dtype=np.intp)


def in_common(before: Sequence[str], after: Sequence[str]) -> tuple[list[int], list[int]] | None:
    """Rows of two windows that answer the same prompts; None where they are too few, or one is answered twice."""
    both = set(before) & set(after) - {""}
    first, second = ([i for i, prompt in enumerate(prompts) if prompt in both] for prompts in (before, after))
    return (first, second) if FEWEST_PAIRED <= len(both) == len(first) == len(second) else None


def compare(
    before: Floating,
    after: Floating,
    prompts: tuple[Sequence[str], Sequence[str]],
    enrolment: Enrolment,
    method: Method = "energy",
) -> DriftTest:
    """Test windows (n, 2 d) and (m, 2 d) of fingerprints for drift, paired where they answer the same prompts."""
    long_enough((len(before), len(after)))
    order = side_by_side(*prompts) if FEWEST_PAIRED <= max(len(before), len(after)) <= MOST else None
    first, second = (standardised(window, enrolment) for window in (thinned(before), thinned(after)))
    return drift.drift_test(first, second if order is None else second[order], method, paired=order is not None)


def long_enough(counts: Sequence[int], files: Sequence[str] = ()) -> None:
    """Refuse windows of fewer than :data:`FEWEST` traces, or one file whose halves they are."""
    sizes = of_both([(count, count) for count in counts])
    for number, (name, (size, _)) in enumerate(zip(("first", "second"), sizes, strict=True)):
        if size < FEWEST:
            where = f" ({files[min(number, len(files) - 1)]})" if files else ""
            raise AtlasError(
                f"The {name} window has {size} trace{'s' if size != 1 else ''}{where}",
                f"Give at least {FEWEST} traces in each window",
            )


def of_both(read: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Traces read and in all of two windows, out of those of one or two files; one file is halved by its total."""
    if len(read) == 2:
        return list(read)
    ((done, total),) = read
    middle = total // 2
    return [(min(done, middle), middle), (max(done - middle, 0), total - middle)]


def enough_read(read: Sequence[tuple[int, int]]) -> None:
    """Raise a StoppedError where somebody stopped before windows of (read, total) traces can be compared."""
    windows = of_both(read)
    if min(done for done, _ in windows) < FEWEST:
        raise StoppedError(
            f"The comparison was stopped when {so_far(windows)}",
            f"Start it again; {FEWEST} traces of each window are the least that can be compared",
        )


def thinned(window: Floating) -> Floating:
    """At most :data:`MOST` rows, in even steps."""
    if len(window) <= MOST:
        return window
    return window[np.linspace(0, len(window) - 1, MOST).astype(np.intp)]


@dataclass(frozen=True)
class Window:
    """The traces of a window, or of a file whose halves are compared."""

    report: Report  # of the audit that read them
    fingerprints: npt.NDArray[np.floating]  # (n, 2 d) where the enrolment places traces, in the order of arrival
    prompts: Sequence[str]  # length n
    total: int | None = None  # traces that the window has; None where all of them were read
    part: str | None = None  # which half of its file this is; None for all of it
    first: int = 0  # where in the report its traces begin, from 0
    settings: Settings | None = None  # how its file was read; None where as all others
    responses: Sequence[str] = ()  # length n
    role: str = ""  # in a comparison, where another file of it has the same name

    @property
    def name(self) -> str:
        """Name of its file, and its role where the name alone would be another's too."""
        return f"{self.report['input']['name']}{self.role and f' ({self.role})'}"

    @property
    def traces(self) -> Sequence[Mapping[str, Any]]:
        """These traces in the report."""
        traces: Sequence[Mapping[str, Any]] = self.report["traces"]
        return traces[self.first : self.first + len(self.prompts)]

    @property
    def read(self) -> tuple[int, int]:
        """Traces that were read, and that the window has."""
        return len(self.prompts), len(self.prompts) if self.total is None else self.total


def share_fingerprints(windows: Sequence[Window]) -> list[Window]:
    """The windows, in which equal traces have the same fingerprint, that of the first.

    A batch moves the last bits, which a test of windows that repeat each other would take for a difference.
    """
    first: dict[str, npt.NDArray[np.floating]] = {}
    out = []
    for window in windows:
        rows = [
            first.setdefault(trace["sha256"], row)
            for trace, row in zip(window.traces, window.fingerprints, strict=False)
        ]
        out.append(replace(window, fingerprints=np.stack(rows)) if rows else window)
    return out


def tell_apart(windows: Sequence[Window], roles: Sequence[str]) -> list[Window]:
    """The windows, each of a name that another one has with its role."""
    many = Counter(window.name for window in windows)
    return [
        replace(window, role=role) if many[window.name] > 1 else window
        for window, role in zip(windows, roles, strict=True)
    ]


def drift_answer(
    read: Sequence[Window], enrolment: Enrolment, settings: Settings | None = None, command: str | None = None
) -> dict[str, Any]:
    """Compare two windows, or the halves of one in the order of arrival; the answer as JSON.

    Of windows that somebody stopped, answers to the same prompts are compared where there are enough: the rest of one
    window would look like another model.

    read : the earlier one first; settings : how they were read; command : by default the one that gives this answer.
    """
    if {window.report["method"]["enrolment_sha256"] for window in read} != {enrolment.sha256}:
        raise AtlasError("The windows were read with different ecosystems", "Compare them again with one")
    settings = settings or of_windows(enrolment.name)
    read = tell_apart(read, ("first window", "second window")[: len(read)])
    before, after = share_fingerprints(read if len(read) == 2 else _halves(read[0]))
    stopped = any(read < total for read, total in (before.read, after.read))
    if stopped:
        enough_read((before.read, after.read))
    rows = in_common(before.prompts, after.prompts) if stopped else None
    first, second = rows or (range(len(before.prompts)), range(len(after.prompts)))
    prompts = [before.prompts[i] for i in first], [after.prompts[i] for i in second]
    test = asdict(compare(before.fingerprints[first], after.fingerprints[second], prompts, enrolment))
    worth = worth_of(test, enrolment, before)
    hashes = [[trace["sha256"] for trace in window.traces] for window in read]
    body = {
        "format": FORMAT,
        "verdict": drift.verdict(test),
        "sentence": drift.sentence(test | worth),
        "next_step": OTHER_WINDOW if _are_same(hashes) else _next_step(test | worth),
        "expected": drift.expected(worth["power"], test["paired"]),
        "notes": [
            *([f"This was stopped when {so_far((before.read, after.read))}."] if stopped else []),
            # A difference says so in its sentence.
            *([] if test["paired"] or drift.verdict(test) == drift.DIFFERENT else [drift.UNPAIRED]),
            *([] if all(one.report["results"]["traffic"]["kind"] == "like" for one in read) else [drift.NOT_LIKE]),
            *_skipped(test, before, after, "that answer prompts of both" if rows else "in even steps"),
        ],
        **test,
        "level": drift.LEVEL,
        "prompts_in_both": len(set(prompts[0]) & set(prompts[1]) - {""}),
        **worth,
        **facts_of((before, after), enrolment, settings, (first, second)),
        "command": command or _command(read, enrolment, settings),
    }
    return signed(body)


def _next_step(test: Mapping[str, Any]) -> str:
    """What to do after a comparison of two windows."""
    if drift.verdict(test) == drift.DIFFERENT and not test["paired"]:
        return "To rule the questions out, collect both windows again with the same prompts, and compare those."
    if drift.verdict(test) == drift.DIFFERENT:
        return (
            "Collect the same prompts once more with the same settings: a change that lasts is seen again. Then ask "
            "whoever serves the endpoint what changed, and send them this result."
        )
    needed = test["prompts_needed"]
    if needed is not None and (more := needed - min(test["before"], test["after"])) > 0:
        return f"Ask {more} prompts more in each window: {advised_words(test)}."
    return "Nothing has to be done now. Ask the same prompts in the next window, and compare again."


def advised_words(test: Mapping[str, Any]) -> str:
    """What is seen with the advised number of prompts."""
    needed = test["prompts_needed"]
    shares = _shares_at(test, needed)
    kind = next(kind for kind in ("sibling", "family") if kind in shares)
    return f"with {needed:,}, {100 * shares[kind]:.0f} % of such tests call {drift.KINDS[kind]} different"


def _statistic(test: Mapping[str, Any]) -> str:
    return f"energy{'-paired' if test['paired'] else ''}"


def _shares_at(test: Mapping[str, Any], window: int) -> dict[str, float]:
    """Share of real pairs of windows of so many traces that are called different, by their kind."""
    rows = [row for row in test["validation"] if row["statistic"] == _statistic(test)]
    return {row["scenario"]: row["value"] for row in rows if row["k"] == window}


def expected_words(test: Mapping[str, Any]) -> str:
    """What such a test is worth, by the tested numbers of traces below and above its own."""
    window, smaller = (test["power"] or {}).get("window"), min(test["before"], test["after"])
    if window in (None, smaller):
        return str(test["expected"])
    larger = [
        int(row["k"]) for row in test["validation"] if row["k"] > smaller and row["statistic"] == _statistic(test)
    ]
    if not larger:
        return f"{test['expected']} {window:,} traces are{TESTED.removeprefix(',')}."
    above = drift.shares_text(_shares_at(test, min(larger)))
    return f"{test['expected']} Of {min(larger):,} traces: {above}. Your {smaller:,} lie between."


def size_text(test: Mapping[str, Any]) -> str:
    """The energy distance, without what rounding makes of none."""
    return _rounded(test["statistic"])


def _rounded(distance: float) -> str:
    return f"{round(distance, 9) + 0.0:.3g}"


def cause_open(test: Mapping[str, Any]) -> str:
    """Why a difference of two windows may be one of questions; '' where it is not, or none was seen."""
    both, smaller = test.get("prompts_in_both"), min(test["before"], test["after"])
    if test["verdict"] != drift.DIFFERENT or test["paired"] or both is None or both >= smaller:
        return ""
    return "not every prompt is once in both windows" if both else "no prompt is the same"


def headline(test: Mapping[str, Any]) -> str:
    """What two windows leave open, or that both are the same, in a line to show; '' of neither."""
    if why := cause_open(test):
        return f"But {why}: the model or the questions changed, this cannot say which"
    hashes = [[trace["sha256"] for trace in window["traces"]] for window in test["windows"][:2]]
    copies = "Both files hold the same responses: they are alike, whatever model wrote them"
    return copies if test["verdict"] != drift.DIFFERENT and _are_same(hashes) else ""


def _are_same(hashes: Sequence[Sequence[str]]) -> bool:
    """Whether two windows hold the same traces, in any order."""
    return len(hashes) == 2 and len(hashes[0]) > 0 and sorted(hashes[0]) == sorted(hashes[1])


def verdict_words(test: Mapping[str, Any]) -> str:
    """The verdict of a comparison to show, with what a difference of other prompts leaves open."""
    return f"{test['verdict']}{', CAUSE OPEN' * ('rivals' not in test and cause_open(test) != '')}"


def columns_words(test: Mapping[str, Any]) -> str:
    """How a command states columns, encodings and files that differ from file to file; '' where it states none so."""
    words = []
    if RECOGNISED in shlex.split(test["command"]):
        words.append(
            f"Columns and encodings are given once a file, in the order of the files; {RECOGNISED}: recognised."
        )
    if any(ROLE.search(window["name"]) for window in test["windows"]):
        words.append("Files of one name are taken from folders that are called after their roles: put them there.")
    return " ".join(words)


def is_copied(identical: int, prompts: int) -> bool:
    """Whether so many answers are the same letter for letter that one file may be a copy of the other."""
    return 2 * identical >= prompts


def further_step(test: Mapping[str, Any]) -> str:
    """Who would tell whose answers the second window holds; of a reference copied, how many prompts to ask; or ''."""
    if "rivals" in test:
        needed, copied = test["prompts_needed"], is_copied(test.get("identical", 0), test["prompts"])
        fewer = needed and test["before"] < needed and copied and test["verdict"] != "AGAINST"
        return f"Ask {needed:,} prompts at least: fewer cannot end in SUPPORTS." if fewer else ""
    if test["verdict"] != drift.DIFFERENT:
        return ""
    name, reference = drift.named(test["windows"][-1]), "compare it with a reference of the claimed model"
    if drift.NOT_LIKE in test["notes"]:  # of such prompts no error rate was measured
        return f"To learn about the model behind {name}, {reference}."
    return f"To learn whose answers {name} holds, give that file alone to Attribute, or {reference}."


def size_words(test: Mapping[str, Any]) -> str:
    """How large a difference is among those that chance gives the very same traces."""
    if float(_rounded(test["statistic"])) == 0:
        return "no difference at all"
    drawn = int(test["permutations"])
    smaller = drawn + 1 - round(test["p_value"] * (drawn + 1))
    how = "swaps of answers within prompts" if test["paired"] else "shuffles of all traces into two windows"
    reached = f"{_rounded(test['chance_95'])} or less in 95 of 100, {_rounded(test['chance_largest'])} at most"
    return f"chance alone gives {reached}; larger than in {smaller:,} of {drawn:,} random {how}"


def p_scale(test: Mapping[str, Any]) -> str:
    """What a p value is compared with, and that no smaller one was possible where that is so."""
    at_level = f"called different at {drift.level_text(drift.LEVEL)} or below"
    return (
        f"the smallest that {test['permutations']:,} {'swaps' if test['paired'] else 'shuffles'} can give; {at_level}"
        if drift.is_smallest(test)
        else at_level
    )


def measures_of(responses: Sequence[str]) -> dict[str, float] | None:
    """Values of :data:`MEASURES` of a window's responses; None without any."""
    if not responses:
        return None
    begins = Counter(" ".join(response.casefold().split()[:2]) for response in responses)
    return {
        "words": float(np.median([len(response.split()) for response in responses])),
        "markdown": float(np.mean([MARKDOWN.search(response) is not None for response in responses])),
        "alike": max(begins.values()) / len(responses),
    }


def compare_measures(test: Mapping[str, Any]) -> list[list[str]]:
    """Plain measures of the compared traces of windows that differ, one a row with its name first; else empty."""
    found = [window.get("measures") for window in test["windows"]]
    if drift.verdict(test) != drift.DIFFERENT or not all(found[:2]):  # of a rival, nothing may have been compared
        return []

    sizes = [_compared(test, window) for window in test["windows"]]

    def text(one: Mapping[str, float] | None, size: int, name: str) -> str:
        if one is None:
            return "–"
        if name == "words":
            return f"{f'{one[name]:,.1f}'.removesuffix('.0')} words"
        many = round(size * one[name])
        counted = all(sizes) and math.isclose(many, size * one[name], abs_tol=1e-6)
        return f"{many:,} of {size:,} responses" if counted else f"{100 * one[name]:.3g} % of responses"

    return [
        [words, *(text(one, size, name) for one, size in zip(found, sizes, strict=True))]
        for name, words in MEASURES.items()
    ]


def _compared(test: Mapping[str, Any], window: Mapping[str, Any]) -> int:
    """Responses of a window that were measured; 0 where an answer does not say how many."""
    if test.get("rivals"):  # those that answer the prompts of all three
        return 0
    whole = len(window["traces"]) == window["total"]
    return min(int(test.get("prompts", len(window["traces"]) * whole)), MOST)


def worth_of(test: Mapping[str, Any], enrolment: Enrolment, window: Window) -> dict[str, Any]:
    """What the validation says of a test of this size, and of its outcome; JSON.

    Returns the power, the log10 ratios of an unchanged source against others, the fewest validated prompts with which
    no difference would speak for it, and the validation's rows. Ratios and prompts need the enrolled kind of prompts.
    """
    like = window.report["results"]["traffic"]["kind"] == "like"
    power = expected_power(enrolment, min(test["before"], test["after"]), test["paired"])

    return {
        "power": power,
        "log10_ratios": drift.outcome_ratios(test, power) if like else {},
        "prompts_needed": prompts_needed(enrolment, test["paired"]) if like else None,
        "validation": _validation_rows(enrolment),
    }


def facts_of(
    windows: Sequence[Window], enrolment: Enrolment, settings: Settings, rows: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """What was read, by what, and under which settings, as JSON without texts.

    rows : of each window that is compared, in the order of the windows; measures are of their traces alone.
    """
    method = windows[0].report["method"]
    return {
        # When the last window was read: asking for the answer again makes no other one.
        "created": max(window.report["created"] for window in windows),
        "windows": [_window(window, some) for window, some in zip(windows, rows, strict=True)],
        "reading": {
            "enrolment": enrolment.name,
            "layer": enrolment.place,
            **{key: method[key] for key in ("reader", "proxy", "view", "enrolment_sha256", "engine")},
            "proxy_hash": enrolment.facts.get("proxy_hash"),
            "code_version": method["code_version"],
        },
        "settings": {
            "columns": asdict(settings.columns),
            "encoding": settings.encoding,
            "keep_duplicates": windows[0].report["input"]["selection"]["keep_duplicates"],
        },
    }


def signed(body: Mapping[str, Any]) -> dict[str, Any]:
    """An answer as JSON with its own sha256."""
    answer: dict[str, Any] = json.loads(json.dumps(body, allow_nan=False))
    return answer | {"sha256": digest(answer)}


def _validation_rows(enrolment: Enrolment) -> list[dict[str, Any]]:
    """Alarms of the drift test on real pairs of fingerprints, as the enrolment's own validation measured them."""
    rows = validation_of(enrolment)
    rows = rows[rows["part"].eq("drift") & rows["space"].eq(SPACE) & rows["condition"].eq(CLEAN)]
    records = rows[["k", "scenario", "statistic", "value", "std", "n"]].to_dict("records")
    return [{str(name): None if value != value else value for name, value in row.items()} for row in records]


def _halves(whole: Window) -> tuple[Window, Window]:
    (middle, of_first), (_, of_second) = of_both([whole.read])

    def half(part: str, rows: slice, total: int) -> Window:
        texts = whole.prompts[rows], whole.responses[rows]
        return Window(whole.report, whole.fingerprints[rows], texts[0], total, part, rows.start, responses=texts[1])

    return half("first half", slice(0, middle), of_first), half("second half", slice(middle, None), of_second)


def _skipped(test: Mapping[str, Any], before: Window, after: Window, which: str) -> list[str]:
    """Sentences about traces that were read and not compared."""
    return [
        f"Of the {len(window.traces):,} traces of the {name} window {test[side]:,} {which} were compared."
        for name, side, window in (("first", "before", before), ("second", "after", after))
        if len(window.traces) > test[side]
    ]


def _window(window: Window, rows: Sequence[int]) -> dict[str, Any]:
    responses = [window.responses[row] for row in thinned(np.asarray(rows))] if window.responses else []
    return {
        "name": window.name,
        "part": window.part,
        "total": window.read[1],
        "file": {key: value for key, value in window.report["input"].items() if key != "name"},
        "measures": measures_of(responses),
        "traces": [{key: trace[key] for key in ("place", "turn", "sha256")} for trace in window.traces],
    }


def file_word(window: Window) -> str:
    """A window's file in a command; of one name with another one, in a folder that is called after its role."""
    folder = f"{window.role.removeprefix('the ').replace(' ', '-')}/" if window.role else ""
    return f"{folder}{window.report['input']['name']}"


def _command(read: Sequence[Window], enrolment: Enrolment, settings: Settings) -> str:
    """The command line that gives the same answer on a machine with the same enrolment."""
    words = ["python", "-m", "jobs", "drift", *map(file_word, read)]
    words += ["--enrolment", enrolment.name, *words_of_files([window.settings or settings for window in read])]
    return shlex.join(words)

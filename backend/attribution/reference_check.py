"""Traces of a claimed source against that source's own answers to the same prompts.

The strongest evidence there is: what prompts bring along is the same on both sides. Answers are swapped within prompts
(:func:`backend.inference.drift.drift_test`), which is exact for two draws from one source, whatever they are about.
What a test of that size tells apart is in the enrolment's validation; its outcome is weighed by it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.stats import binomtest

from backend.attribution.drift_report import (
    FORMAT,
    MOST,
    Doubles,
    Window,
    advised_words,
    facts_of,
    file_word,
    is_copied,
    share_fingerprints,
    signed,
    standardised,
    tell_apart,
    thinned,
    worth_of,
)
from backend.attribution.settings import Settings, words_of_files
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.inference import drift
from backend.inference.drift import DIFFERENT, FEWEST_PAIRED, KINDS, drift_test, p_words
from backend.inference.verdict import Rule

AGAINST, SUPPORTS, INCONCLUSIVE = "AGAINST", "SUPPORTS", "INCONCLUSIVE"
MEANINGS = {
    AGAINST: f"The answers differ from the reference's by more than chance (p of {drift.level_text(drift.LEVEL)} or "
    "below). Whose they are is not said.",
    SUPPORTS: "No difference was seen, and by the ecosystem's validation the same model gives such an outcome at "
    f"least {10**drift.SUPPORTING:g} times as often as a sibling or another family does.",
    INCONCLUSIVE: "No difference was seen, but a sibling may give such an outcome too, or how often was not measured. "
    "Files of which half the answers or more are the same letter for letter may be copies.",
}
"""What the answers mean in a comparison with a reference."""
SAME = "the same model"  # nobody compares before and after
SAME_SETTINGS = (
    "A system prompt, a temperature or a limit of tokens that the reference does not share looks like another model: "
    "ask it as the endpoint is asked."
)

COPIES = "they may be copies of one recording, or of the answers of one model that was asked without randomness"
REFERENCE = "the reference"  # its role, where the traces' file has the same name
MAKE_SURE = (
    "First make sure that two endpoints were asked, and that neither file is a copy of the other. If so, ask both "
    "sides other prompts, with a temperature above 0, and compare those answers."
)


def reference_answer(
    claimed: Window,
    reference: Window,
    rivals: Sequence[Window],
    enrolment: Enrolment,
    settings: Settings,
    command: str | None = None,
) -> dict[str, Any]:
    """Whether traces are like a reference's answers to their prompts; the answer as JSON without texts.

    rivals : answers of other sources to the same prompts, which may be nearer than the reference.
    settings : how the files are read; their question is the name of the claimed source, where one is given.
    Raises AtlasError where fewer than six prompts are answered by both sides.
    """
    roles = "the traces", REFERENCE, *(f"rival {number}" for number in range(1, len(rivals) + 1))
    windows = claimed, reference, *rivals = share_fingerprints(tell_apart((claimed, reference, *rivals), roles))
    rows = in_pairs(claimed, reference)
    first, second = (
        standardised(thinned(window.fingerprints[list(part)]), enrolment)
        for window, part in zip((claimed, reference), rows, strict=True)
    )
    test = asdict(drift_test(first, second, paired=True))
    worth, traffic = worth_of(test, enrolment, claimed), claimed.report["results"]["traffic"]["kind"]
    verdict = verdict_of(test, worth["log10_ratios"])
    identical = sum(claimed.responses[i] == reference.responses[j] for i, j in zip(*rows, strict=True))
    copied = is_copied(identical, len(first)) and verdict != AGAINST
    compared = [*rows, *(_in_three(claimed, reference, rival)[2] for rival in rivals)]
    body = {
        "format": FORMAT,
        "verdict": verdict,
        "claimed": settings.question,
        "sentence": _sentence(verdict, test, settings.question, copied),
        "next_step": MAKE_SURE if copied else _next_step(verdict, test | worth),
        "expected": drift.expected(worth["power"], paired=True),
        "prompts": len(first),
        "identical": identical,
        "notes": [
            *_unused(windows[:2], len(rows[0])),
            *([] if traffic == "like" else [drift.NOT_LIKE]),
            *([SAME_SETTINGS] if verdict == AGAINST else []),  # what it names makes answers differ, never like
        ],
        **test,
        "level": drift.LEVEL,
        **worth,
        "rivals": [_rival(claimed, reference, rival, enrolment) for rival in rivals],
        **facts_of(windows, enrolment, settings, compared),
        "command": command or _command(windows, enrolment, settings),
    }
    return signed(body)


def in_pairs(claimed: Window, reference: Window) -> tuple[list[int], list[int]]:
    """Rows of both windows that answer the same prompts, the first answer to each."""
    first, second = _first_answers(claimed), _first_answers(reference)
    refuse_few_pairs(first, second, claimed.report["input"]["name"])
    both = [prompt for prompt in first if prompt in second]
    return [first[prompt] for prompt in both], [second[prompt] for prompt in both]


def refuse_few_pairs(claimed: Iterable[str], reference: Iterable[str], name: str) -> None:
    """Refuse prompts of which both sides answer fewer than six; ``name`` is the file of the claimed side."""
    both = len((set(claimed) & set(reference)) - {""})
    if both < FEWEST_PAIRED:
        raise AtlasError(
            f"{both} prompts are answered by both sides, and a comparison needs {FEWEST_PAIRED}",
            "Press 'Prompts to ask (JSONL)' on the page, ask these where you trust the answers, and give those. "
            f"In a terminal: python -m jobs collect --prompts {name} --source … --to reference.jsonl",
        )


def verdict_of(test: Mapping[str, Any], ratios: Mapping[str, float]) -> str:
    """AGAINST where windows differ; SUPPORTS where a sibling would have been seen ten times as often as not."""
    if drift.verdict(test) == DIFFERENT:
        return AGAINST
    return SUPPORTS if ratios and min(ratios.values()) >= drift.SUPPORTING else INCONCLUSIVE


def nearer(claimed: Doubles, reference: Doubles, rival: Doubles) -> tuple[int, int, float]:
    """Prompts (n,) of which a trace is nearer to the reference than to the rival, those that differ, and the p value.

    The p value is that of a two-sided sign test.
    """
    gaps = np.linalg.norm(claimed - rival, axis=1) - np.linalg.norm(claimed - reference, axis=1)
    decided = int((gaps != 0).sum())
    wins = int((gaps > 0).sum())
    return wins, decided, float(binomtest(wins, decided).pvalue) if decided else 1.0


def _rival(claimed: Window, reference: Window, rival: Window, enrolment: Enrolment) -> dict[str, Any]:
    """Whether traces are nearer to the reference than to another source that answers the same prompts."""
    rows, name = _in_three(claimed, reference, rival), rival.name
    if (shared := len(rows[0])) < FEWEST_PAIRED:
        sentence = f"{name} answers too few of the same prompts."
        return {"name": name, "prompts": shared, "nearer": None, "p_value": None, "sentence": sentence}
    three = [
        standardised(window.fingerprints[part], enrolment)
        for window, part in zip((claimed, reference, rival), rows, strict=True)
    ]
    wins, decided, p = nearer(*three)
    side = "the reference" if 2 * wins >= decided else name
    means = f"nearer to {side}" if p <= drift.LEVEL else "about as near to both"
    sentence = f"Against {name}: {wins} of {decided} answers are nearer to the reference ({p_words(p)}): {means}."
    return {"name": name, "prompts": decided, "nearer": wins, "p_value": p, "sentence": sentence}


def _in_three(*windows: Window) -> list[list[int]]:
    """Rows of each window that answer the prompts of all, the first answer to each; at most :data:`MOST`."""
    answers = [_first_answers(window) for window in windows]
    shared = [prompt for prompt in answers[0] if all(prompt in rows for rows in answers)][:MOST]
    return [[rows[prompt] for prompt in shared] for rows in answers]


def odds_of(test: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, odds and meaning of every ratio of a comparison, of the same model against another kind of pair."""
    return [_odds(kind, ratio, test) for kind, ratio in test["log10_ratios"].items()]


def _odds(kind: str, ratio: float, test: Mapping[str, Any]) -> tuple[str, str, str]:
    more, less = (SAME, KINDS[kind]) if ratio >= 0 else (KINDS[kind], SAME)
    text = odds_text(ratio)
    sign = f"log10 ratio {ratio:+.2f}, {'for' if ratio >= 0 else 'below 0: against'} {SAME}".replace("-", "−")
    means = f"such an outcome comes about {text.partition(' ')[0]} times as often from {more} as from {less} ({sign})"
    window, fewer = test["power"]["window"], ""
    by_design = " (by design: no such pair was measured)" if test["power"].get("same") is None else ""
    if test["before"] > window:
        fewer = f", the largest tested number up to your {test['before']:,},"
    counts = f"{_count(test, 'same')} of {SAME}{by_design} and {_count(test, kind)} of {KINDS[kind]}"
    return (f"{more} over {less}".capitalize(), text, f"{means}: with {window:,} prompts{fewer} {counts} come out so")


def _count(test: Mapping[str, Any], kind: str) -> str:
    """How many tests of a kind of pair come out as this one, as :func:`drift.outcome_ratios` counts them."""
    power, different = test["power"], drift.verdict(test) == DIFFERENT
    if power.get(kind) is None:  # swaps within prompts alarm at their level exactly
        return f"{100 * (power['level'] if different else 1 - power['level']):g} % of tests"
    share = power[kind] if different else 1 - power[kind]
    found = round(share * drift.PAIRS)
    return f"{found} of {drift.PAIRS} tests (taken as {found + 1} of {drift.PAIRS + 2}, so that no rate is 0 or 1)"


def odds_text(ratio: float) -> str:
    """A log10 ratio as odds of either side: '9.7 to 1'."""
    return f"{float(f'{10 ** abs(ratio):.2g}'):,g} to 1"


def headline(test: Mapping[str, Any]) -> str:
    """The answer in a line to show, with the weakest of its odds where all of them speak its way."""
    traces, reference, *_ = map(drift.named, test["windows"])
    who, ratios, against = test["claimed"] or reference, test["log10_ratios"].values(), test["verdict"] == AGAINST
    text = f"{traces} differs from {who}" if against else f"{traces} answers as {who} does"
    if (copied := copied_words(test)) is not None:
        return f"{copied}: {traces} may be a copy of {reference}"
    agree = ratios and all((ratio < 0) == against for ratio in ratios)
    if test["verdict"] == INCONCLUSIVE:
        return f"{text}, but so may a sibling"
    if not agree:
        return text
    return f"{text}: {odds_text(min(ratios, key=abs))} {'against' if against else 'for'} {SAME}"


def copied_words(test: Mapping[str, Any]) -> str | None:
    """How many answers are the same letter for letter, where one file may be a copy of the other; else None."""
    same = test.get("identical")  # an older answer has none
    if same is None or test["verdict"] == AGAINST or not is_copied(same, test["prompts"]):
        return None
    return f"{same:,} of {test['prompts']:,} answers are the same letter for letter"


def rule_words(test: Mapping[str, Any]) -> str:
    """What an answer's word rests on here, next to the rule of the same word for one set of traces."""
    verdict, level, least = test["verdict"], drift.level_text(drift.LEVEL), 10 ** Rule().log10_lr
    supports = f"p above {level} and {10**drift.SUPPORTING:g} to 1 for {SAME}"
    if verdict == INCONCLUSIVE:
        ratios = test["log10_ratios"].values()
        found = f"it is {10 ** min(ratios):.2g} to 1" if ratios else "that was not measured in such a case"
        needs = f"SUPPORTS needs {supports}; here {found}."
        if (copied := copied_words(test)) is None:
            return needs
        return f"Two reasons against SUPPORTS: (1) {copied}. (2) {needs}"
    needs = f"p of {level} or below" if verdict == AGAINST else supports
    return f"A weaker rule than elsewhere: here {verdict} needs {needs}. In One set of traces it needs {least:g} to 1."


def _first_answers(window: Window) -> dict[str, int]:
    """Row of the first answer to every prompt."""
    rows: dict[str, int] = {}
    for row, prompt in enumerate(window.prompts):
        if prompt:
            rows.setdefault(prompt, row)
    return rows


def _sentence(verdict: str, test: Mapping[str, Any], claimed: str | None, copied: bool) -> str:
    p, reference = drift.p_words_of(test), f"the reference for {claimed}" if claimed else "the reference"
    how = f"on {test['before']} prompts that both answered ({p})"
    if copied:
        return f"The traces are like {reference} {how}: {COPIES}."
    return {
        AGAINST: f"The traces differ from {reference} by more than chance {how}.",
        SUPPORTS: f"The traces are like {reference} {how}; a sibling would rarely be.",
        INCONCLUSIVE: f"The traces are like {reference} {how}, but so might a sibling's be.",
    }[verdict]


def _next_step(verdict: str, test: Mapping[str, Any]) -> str:
    if verdict == AGAINST:
        return (
            "Ask the reference the same prompts once more, with the endpoint's own settings, and compare its first "
            "answers with its second. If these two do not differ, send this result to the provider."
        )
    if verdict == SUPPORTS:
        return f"Compare a sibling's answers as well: {', '.join(list(KINDS.values())[1:])} can be given as a rival."
    if test["prompts_needed"] is None:
        return "No validated number of prompts decides with this ecosystem; compare with rivals on the same prompts."
    before, ratios, reach = test["before"], test["log10_ratios"].values(), ""
    more = max(test["prompts_needed"] - before, 1)
    if ratios:
        tests = f": the tests had {window:,}" if (window := test["power"]["window"]) < before else ""
        reach = (
            f"{before:,} prompts reach {10 ** min(ratios):.2g} to 1 at most{tests}. {before + more:,} can reach the "
            f"{10**drift.SUPPORTING:g} to 1 that SUPPORTS needs. "
        )
    return f"{reach}Ask both sides {more} prompts more: {advised_words(test)}."


def _unused(windows: Sequence[Window], pairs: int) -> list[str]:
    return [
        f"Of the {len(window.traces):,} traces of {window.name} {pairs:,} were compared: the first "
        "answer to every prompt that both sides answered."
        for window in windows
        if len(window.traces) > pairs
    ]


def _command(windows: Sequence[Window], enrolment: Enrolment, settings: Settings) -> str:
    traces, reference, *rivals = map(file_word, windows)
    words = ["python", "-m", "jobs", "reference-check", traces, "--reference", reference]
    words += [word for rival in rivals for word in ("--rival", rival)]
    words += ["--claim", settings.question] if settings.question else []
    words += ["--enrolment", enrolment.name, *words_of_files([window.settings or settings for window in windows])]
    return shlex.join(words)

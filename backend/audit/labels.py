"""Labels that look like what somebody typed: a model's name is often not the label that it was enrolled under."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

SHOWN = 8


def alike(typed: str, labels: Iterable[str]) -> list[str]:
    """Labels that a person may have meant, the likeliest first, at most eight.

    Letters and digits alone are compared: 'gpt-4o' and 'GPT 4o' are like 'gpt4o'. A label is never taken for another in
    silence, because a claim is about one source; this is for the words of an error.

    Parameters
    ----------
    typed : str
    labels : iterable of str

    Returns
    -------
    list of str
        Empty where none is like it.
    """
    by_letters: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        by_letters.setdefault(_letters(label), []).append(label)
    wanted = _letters(typed)
    close = get_close_matches(wanted, by_letters, n=SHOWN, cutoff=0.7)
    within = [one for one in by_letters if wanted and one and (wanted in one or one in wanted)]
    return [label for one in dict.fromkeys([*close, *within]) for label in by_letters[one]][:SHOWN]


def _letters(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalnum())

"""Names of models: whether two of them name one model, and which versions are alike."""

from __future__ import annotations

import re

# A date at the end, also of month and day alone or with a year of two digits, the number of a version, or "latest".
_MONTH, _DAY = r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
_VERSION = re.compile(rf"[-_@:.](?:(?:20)?2\d[-_.]?{_MONTH}[-_.]?{_DAY}|{_MONTH}-?{_DAY}|00\d|latest)$")


def plain_name(model: str) -> str:
    """The name of a model without its provider's path, in small letters: ``openai/GPT-4o`` is ``gpt-4o``."""
    return model.strip().casefold().rstrip("/").rpartition("/")[2]


def without_version(model: str) -> str:
    """The plain name without date, number of a version or ``latest`` at its end."""
    return _VERSION.sub("", plain_name(model))


def compare_names(requested: str, returned: str) -> str:
    """Whether a model was returned that was requested: ``same``, a ``version`` of it, or ``another``.

    A version is what the undated name that was requested stands for, not another date than was requested.
    """
    if plain_name(requested) == plain_name(returned):
        return "same"
    stem = without_version(requested)
    undated = plain_name(requested) in (stem, f"{stem}-latest")
    return "version" if undated and stem == without_version(returned) else "another"

"""Marks in Markdown pages and the generated text between them.

``<!-- results: NAME -->`` and ``<!-- /results -->`` stand on lines of their own; several names of sentences make a
paragraph. ``<!-- by hand: REASON -->`` stands before a table whose numbers are in no database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from backend.errors import AtlasError

MARKED = re.compile(
    r"^<!-- results: (?P<names>\S[^\n]*) -->\n(?P<body>.*?)^<!-- /results -->$", re.DOTALL | re.MULTILINE
)
MARK = re.compile(r"^<!-- (?:results: .*|/results) -->$", re.MULTILINE)
BY_HAND = "<!-- by hand: "


def fill(page: Path, text: str, generate: Callable[[str], str]) -> str:
    """Replace what stands between the marks of a page.

    page : For messages.
    generate : Text of the names of a mark; ``KeyError`` for one that is not declared.
    Raises AtlasError if a mark names nothing, is not closed or was never opened.
    """
    remains = MARKED.sub(lambda found: "\n" * found[0].count("\n"), text)
    if stray := MARK.search(remains):
        raise AtlasError(
            f"{page}, line {_line(remains, stray.start())}: {stray[0]} has no counterpart",
            "Put <!-- results: NAME --> before the text and <!-- /results --> after it, each on a line of its own",
        )

    def filled(found: re.Match[str]) -> str:
        try:
            body = generate(found["names"])
        except KeyError as error:
            raise AtlasError(
                f"{page}, line {_line(text, found.start())}: nothing is called {error}",
                "Declare it in backend/reference/excerpts.toml, or remove the mark",
            ) from None
        return f"<!-- results: {found['names']} -->\n{body}\n<!-- /results -->"

    return MARKED.sub(filled, text)


def changed_marks(before: str, after: str) -> list[str]:
    """Names whose text differs between two states of a page."""
    pairs = zip(MARKED.finditer(before), MARKED.finditer(after), strict=True)
    return [old["names"] for old, new in pairs if old["body"] != new["body"]]


def unmarked_tables(text: str) -> Iterator[tuple[int, str]]:
    """Line and header of every table with decimals outside marks that no reason stands before."""
    blank = MARKED.sub(lambda found: "\n" * found[0].count("\n"), text)
    lines = blank.splitlines()
    for number, line in enumerate(lines):
        row = line.lstrip()
        if not row.startswith("|") or (number and lines[number - 1].lstrip().startswith("|")):
            continue
        end = next((i for i in range(number, len(lines)) if not lines[i].lstrip().startswith("|")), len(lines))
        above = next((text for text in reversed(lines[:number]) if text.strip()), "")
        decimals = any(re.search(r"(?<![\w.])\d*\.\d", cell) for cell in lines[number:end])
        if decimals and not above.lstrip().startswith(BY_HAND):
            yield number + 1, row


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1

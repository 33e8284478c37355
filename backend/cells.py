"""Cells of CSV files, which a spreadsheet must take for text where they are text."""

from __future__ import annotations

FORMULAS = frozenset("=+-@＝＋－＠\t\r")  # first characters of what a spreadsheet takes for a formula
UNSEEN = " \n\v\f\0\u00a0\u2000\u2003\u200b\u202f\u3000\ufeff"  # what some of them drop before that


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may run a cell, also behind blanks, which some of them drop."""
    return text[:1] in FORMULAS or text.strip(UNSEEN)[:1] in FORMULAS


def plain_cell(value: object) -> object:
    """The value of a cell; a text that may be run begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and is_formula(value) else value

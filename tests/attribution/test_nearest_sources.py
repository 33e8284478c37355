"""Where traces land: the page and the page of a report say what the results say, whatever sources are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flask import Flask
from flask_caching import Cache

from atlas.data import QueryCache
from atlas.figures.plots import rate_text
from atlas.pages.attribute import result
from atlas.state import View
from backend.attribution.report import cosines_to, landing_sentence

HOSTILE = "<b>one</b>"
SOURCES = (HOSTILE, "two", "three", "four", "five")


def report_of(rows: list[dict[str, Any]] | None, subject: str = "two") -> dict[str, Any]:
    """What the page asks of a report."""
    place = {"proxy": "tiny", "view": "ur", "layer": 7, "reader": "reader-paper/tiny/ur", "roster": "x", "domain": ""}
    return {
        "results": {
            "lands": None if rows is None else place | {"rows": rows}, "subject": subject, "claimed": None, "traces": 9,
            "spread": {"orders": 1, "seed": 1}, "stated": True,
        },
        "reference": {"sources": list(SOURCES), "families": ["A"] * len(SOURCES), "enrolment": "x"},
        "method": {
            "enrolment_sha256": "0" * 64, "facts": {}, "reader": "r", "block": "dc-ac", "layers": [7], "proxy": "tiny",
            "view": "ur", "engine": "e", "code_version": "v", "probes": 5,
        },
        "input": {"name": "t.jsonl", "sha256": "1" * 64}, "command": "python -m jobs attribute t.jsonl",
        "created": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return [
        {"rank": rank, "source": source, "family": "A", "cosine": 0.987 - 0.1 * rank}
        for rank, source in enumerate(SOURCES, start=1)
    ]


def test_the_page_shows_what_the_results_say(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    server = Flask("page")
    asked = QueryCache(tmp_path, Cache(server, config={"CACHE_TYPE": "SimpleCache"}))
    report = report_of(rows)
    assert result.rows("lands", report).to_dict("records") == rows
    with server.test_request_context():
        shown = str(result.landing(report, asked, View(theme="light")))
        for row in rows:
            assert row["source"] in shown and f"'{rate_text(row['cosine'])}'" in shown
        assert f"n = {len(rows)} sources" in shown
        far = [rows[0] | {"rank": rank, "source": f"source {rank}"} for rank in range(1, 15)]
        listed = str(result.landing(report_of(far, "source 13"), asked, View(theme="light")))
        assert "source 8" in listed and "source 9" not in listed and "source 12" not in listed
        assert "source 13" in listed and "Td(children='13'" in listed and "source 14" not in listed
        other = report_of(far, "source 13")
        other["results"]["leader"] = "source 14"
        assert "source 14" in str(result.landing(other, asked, View(theme="light")))
        bare = str(result.landing(report_of(None), asked, View(theme="light")))
        assert "brings no signatures" in bare
        assert result.landing_figure(asked, report_of(None), "light") is None
    assert result.rows("lands", report_of(None)).empty


def test_a_sentence_names_the_nearest_and_the_subject(rows: list[dict[str, Any]]) -> None:
    told = landing_sentence(report_of(rows)["results"])
    assert told is not None
    assert f"{HOSTILE} (0.887), two (0.787), three (0.687). Nearness" in told
    assert "layer 7 of tiny (view ur)" in told and "5 signatures" in told
    far = landing_sentence(report_of(rows, "five")["results"])
    assert far is not None and "three (0.687); five comes as number 5 (0.487)." in far
    assert landing_sentence(report_of(None)["results"]) is None
    assert landing_sentence({"subject": "two"}) is None  # a report of before


def test_cosines_by_plain_loops() -> None:
    rng = np.random.default_rng(2)
    signature, vectors = rng.normal(size=6), rng.normal(size=(4, 6))
    slow = [
        sum(a * b for a, b in zip(signature, row, strict=True)) / np.sqrt(sum(signature**2)) / np.sqrt(sum(row**2))
        for row in vectors
    ]
    assert np.allclose(cosines_to(signature, vectors), slow)
    assert np.array_equal(cosines_to(np.zeros(6), vectors), np.zeros(4))

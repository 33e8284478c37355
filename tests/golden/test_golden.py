"""What the system computes is what was recorded; a difference is named by its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from backend.proxies.registry import describe, installed
from tests.golden.__main__ import RECORD, record
from tests.golden.computed import PARTS, machine
from tests.golden.normal import components, differences, digest, digests, normal

MOST = 40
"""Differences that are listed."""
LIMIT = 300_000
"""Bytes of the whole record."""


def compare(part: str, folder: Path) -> None:
    """Compute a part in a process of its own, as the record was, and compare it with the record."""
    recorded = json.loads((RECORD / f"{part}.json").read_text("utf-8"))
    if "machine" in recorded and recorded["machine"] != machine():
        pytest.skip(f"recorded on {recorded['machine']}, and this is {machine()}: record it anew before a change")
    done = record(part, folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads((folder / f"{part}.json").read_text("utf-8"))
    unlike = list(differences(recorded, found))
    listed = "\n".join(unlike[:MOST])
    assert not unlike, (
        f"{len(unlike)} differences from the record of {part}:\n{listed}\n"
        f"Where they are meant: python -m tests.golden {part}, and the commit says which and why"
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", ["pages", "rest", "jobs"])
def test_pages_and_answers_are_the_recorded_ones(part: str, tmp_path: Path) -> None:
    compare(part, tmp_path)


@pytest.mark.golden
@pytest.mark.proxy
@pytest.mark.usefixtures("smollm2")
@pytest.mark.parametrize("part", ["sample", "labelled"])
def test_enrolments_and_reports_are_the_recorded_ones(part: str, tmp_path: Path) -> None:
    compare(part, tmp_path)


@pytest.mark.golden
@pytest.mark.proxy
@pytest.mark.release
@pytest.mark.usefixtures("smollm2", "release")
def test_tables_of_the_release_are_the_recorded_ones(tmp_path: Path) -> None:
    compare("release", tmp_path)


@pytest.mark.golden
@pytest.mark.proxy
@pytest.mark.usefixtures("smollm2")
def test_tables_of_an_invented_release_are_the_recorded_ones(tmp_path: Path) -> None:
    if installed(describe("minilm-l6")) is None:
        pytest.skip("the weights of minilm-l6 are missing: python -m jobs proxies install minilm-l6")
    compare("invented", tmp_path)


def test_the_record_is_whole_and_small() -> None:
    files = {path.stem: path.stat().st_size for path in RECORD.glob("*.json")}
    assert files.keys() == PARTS.keys()
    assert sum(files.values()) < LIMIT


def test_time_place_and_version_do_not_count() -> None:
    one = {"built": "on 2026-11-24 13:50, 0.1.0", "seconds": 1.5, "at": "atlas-20261124T135040Z-b359eb69", "k": 5}
    other = {"built": "on 2027-01-01 01:02, 1.2.0", "seconds": 2.5, "at": "atlas-20270101T000000Z-00000000", "k": 5}
    assert normal(one) == normal(other)
    assert digest(one) != digest(one | {"k": 6})


def test_numbers_count_to_six_digits() -> None:
    assert digest([1 / 3, np.float64(2.0)]) == digest([1 / 3 + 1e-12, 2.0])
    assert digest(0.123456) != digest(0.123457)
    assert digest(float("nan")) == digest(np.nan) != digest(float("inf"))
    packed = {"bdata": "AAAAAAAA8D8AAAAAAAAAQA==", "dtype": "f8"}
    assert digest(packed) == digest([1.0, 2.0])
    assert normal(pd.Timestamp("2026-11-24")) == "DATE"


def test_a_difference_is_named_by_its_place() -> None:
    recorded = {"tables": {"confusion": {"lda": "10 a", "fused": "5 b"}}}
    found = {"tables": {"confusion": {"lda": "10 c", "new": "1 d"}}}
    assert list(differences(recorded, found)) == [
        "tables › confusion › fused is gone",
        "tables › confusion › lda: '10 a' was recorded, '10 c' is found",
        "tables › confusion › new is new",
    ]
    assert list(differences(recorded, recorded)) == []


def test_parts_of_documents_and_components_of_layouts() -> None:
    assert list(digests({"a": {"b": 1, "seconds": 2}, "c": []})) == ["a.b", "c"]
    inner: dict[str, Any] = {"props": {"id": {"type": "x", "figure": "y"}, "children": None}, "type": "Div"}
    outer = {"props": {"id": "place", "children": [inner]}, "type": "Div"}
    assert [name for name, _ in components(outer)] == ["place", '{"figure":"y","type":"x"}']

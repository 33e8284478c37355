"""What a day of traces takes follows from speeds that builds have measured."""

import contextlib
import math

import pytest

from backend.reference.results_scale import COLUMNS, SECONDS, TRACES, reading_table, scoring_table
from backend.store.database import default_data_folder, open_work, read_pointer
from backend.store.result_queries import matching_rows, open_reading


@pytest.fixture(scope="module")
def served():
    with contextlib.closing(open_reading(read_pointer(default_data_folder())[1])) as cursor:
        yield cursor


def cells(table):
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def number(text):
    return float(text.replace(",", ""))


def test_a_reader_needs_as_many_machines_as_its_latency_says(served):
    rows = {(row["reader"], row["sources"]): row for row in cells(scoring_table(served))}
    for cost in matching_rows(served, "costs", {"measure": "latency_ms"}):
        row = rows.pop((f"`{cost['reader']}`", cost["roster"].removesuffix("-way")), None)
        if row is not None:
            assert number(row["machines"]) == math.ceil(TRACES / SECONDS * cost["value"] / 1000)
            hours = TRACES * cost["value"] / 3.6e6
            assert number(row["machine-hours a day"]) == pytest.approx(hours, rel=0.05, abs=0.6)
            price = 3.5 if "NVIDIA" in cost["hardware"] else 0.08
            assert number(row["US$ a day"]) == pytest.approx(hours * price, rel=0.05, abs=0.6)
    assert rows == {}


def test_the_fastest_extraction_of_a_depth_counts(served):
    rows = cells(reading_table(served))
    assert {tuple(row)[3:] for row in rows} == {(*COLUMNS, "fingerprints, GB a day")}
    found = next(
        row for row in rows if (row["proxy"], row["view"], row["through block"]) == ("`smollm2-135m`", "`ur`", "20")
    )
    timed = list(matching_rows(served, "extractions", {"proxy": "smollm2-135m", "layers": "20", "input_view": "ur"}))
    assert number(found["traces/s"]) == round(max(row["records_per_s"] for row in timed))
    assert number(found["fingerprints, GB a day"]) == round(1e8 * 2 * 576 * 2 / 1e9)


def test_an_empty_store_names_the_command(tmp_path):
    with contextlib.closing(open_work(tmp_path / "work.duckdb")) as connection:
        assert [*reading_table(connection)] == ["Not measured: `python -m jobs extract`."]
        assert [*scoring_table(connection)] == ["Not measured: `python -m jobs evaluate --stage cost`."]

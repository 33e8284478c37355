"""Every number of a report is compared with a second run, and no report that somebody wrote by hand breaks that."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.audit.chain import digest
from backend.audit.enrolment import Enrolment
from backend.audit.verification import alterations, compared, read_report, selection_for, settings_of
from backend.errors import AtlasError
from tests.test_figures_evidence import enrolment as invented
from tests.test_figures_evidence import written

Report = dict[str, Any]
enrolment = invented


@pytest.fixture(scope="module")
def report(enrolment: Enrolment) -> Report:
    return written(enrolment)


def sealed(report: Report) -> Report:
    """With hashes that fit again, as somebody would forge them."""
    steps = report["steps"]
    last = {**steps[-1], "details": {**steps[-1]["details"], "results": digest(report["results"])}}
    last["sha256"] = digest({key: value for key, value in last.items() if key != "sha256"})
    body = {**report, "steps": [*steps[:-1], last]}
    return {**body, "sha256": digest({key: value for key, value in body.items() if key != "sha256"})}


def at(place: str) -> Callable[[Report, Any], None]:
    """Sets the value at a path with dots."""

    def change(report: Report, value: Any) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in place.split(".")]
        held: Any = report
        for part in way:
            held = held[part]
        held[last] = value

    return change


def test_a_report_is_equal_to_itself(report: Report) -> None:
    found = compared(report, report)
    assert found.found == ()
    assert (found.traces, found.largest) == (12, 0.0)
    assert alterations(sealed(report)) == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("results.unknown_p", 0.9),
        ("results.log10_ratio_others", 3.5),
        ("results.candidates.1.probability", 0.5),
        ("results.running.3.leader", "d four"),
        ("results.spread.points.0.leads", 0.1),
        ("results.leave_one_out.leader_changes", 7),
        ("results.interval.low", -4.0),
        ("results.stop.enough_after", 9),
        ("results.families.0.probability", 0.1),
        ("results.sentence", "proved"),
        ("results.readers.0.verdict", "AGAINST"),
        ("results.flags", []),
        ("traces.4.time", "2020-01-01"),
        ("traces.4.response_characters", 99),
        ("traces.4.tokens", 1),
        ("reference.families.0", "Z"),
        ("method.facts", {"proxy_hash": "x"}),
        ("limits", []),
        ("validation", {"rows": []}),
        ("exclusions.0.sha256", "y"),
    ],
)
def test_a_forger_with_the_right_hashes_is_found(report: Report, place: str, value: Any) -> None:
    forged = copy.deepcopy(report)
    at(place)(forged, value)
    forged = sealed(forged)
    assert alterations(forged) == []
    assert compared(forged, report).found


def test_a_little_noise_of_another_engine_is_allowed(report: Report) -> None:
    other = copy.deepcopy(report)
    other["method"]["engine"] = "another"
    for trace in other["traces"]:
        trace["log_posterior_subject"] += 0.01
    other["results"]["log10_ratio_others"] += 0.02
    other["results"]["spread"]["points"][0]["leads"] = 0.3
    found = compared(other, report)
    assert not [sentence for sentence in found.found if "hash" not in sentence and "sha256" not in sentence
                and "last step" not in sentence]  # fmt: skip
    other["results"]["log10_ratio_others"] += 5
    assert any("log10_ratio_others" in sentence for sentence in compared(other, report).found)


def test_text_of_a_heat_map_belongs_to_its_trace(report: Report) -> None:
    shown = {"number": 1, "prompt": "p", "rest": "", "log_odds": 1.0, "pieces": [{"text": "0", "value": 1.0}]}
    held = sealed({**report, "heat_maps": [shown]})
    assert alterations(held) == []
    for wrong in ({**shown, "prompt": "q"}, {**shown, "log_odds": 2.0}):
        assert len(alterations(sealed({**report, "heat_maps": [wrong]}))) == 1


def test_settings_give_the_report_again(report: Report) -> None:
    held = settings_of(report, "here")
    assert (held.enrolment, held.claimed, held.orders, held.stop_level) == ("here", "<b>two</b>", 20, 0.05)
    assert held.columns.response is None  # it was recognised, and is so again
    assert held.keep_duplicates


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a report, from the top."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, held in inner for place in places(held, (*path, key)))]


@settings(max_examples=200, deadline=None)
@given(
    st.data(),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({}),
)
def test_no_report_breaks_the_check(report: Report, data: st.DataObject, value: Any) -> None:
    forged = copy.deepcopy(report)
    way = data.draw(st.sampled_from(places(report)[1:]))
    held: Any = forged
    for part in way[:-1]:
        held = held[part]
    held[way[-1]] = value
    for ask in (
        lambda: alterations(read_report(json.dumps(forged))),
        lambda: settings_of(forged, "here"),
        lambda: selection_for(forged),
        lambda: compared(forged, report).found,
    ):
        try:
            told = ask()
        except AtlasError as error:
            assert str(error)
            continue
        if isinstance(told, tuple | list):
            assert all(isinstance(sentence, str) for sentence in told)

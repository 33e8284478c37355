"""Readable names of sources: what an enrolment of the release knows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd

from backend.enrolment.fit import name_facts
from jobs.validate import _with_names
from tests.attribution.test_fitted_statistics import enrolment


def release_of(**names: str | None) -> Any:
    roster = pd.DataFrame({"label": list(names), "repo_id": list(names.values())})
    return SimpleNamespace(roster=lambda: roster)


def test_names_are_those_of_the_store_where_they_differ_and_are_clear() -> None:
    release = release_of(gpt4o="gpt-4o", own=None, same="same", one="org/twin", two="org/twin", other="org/other")
    assert name_facts(release, ["gpt4o", "own", "same", "one", "two", "new"]) == {"names": {"gpt4o": "gpt-4o"}}
    assert name_facts(release, ["one", "own"]) == {"names": {"one": "org/twin"}}
    assert name_facts(release, ["own", "same"]) == {}


def test_a_served_enrolment_gets_names_and_keeps_its_hash() -> None:
    known, release = enrolment(), release_of(a="org/A", b="b")
    served = replace(known, facts={"roster": "165-way"})
    named = _with_names(served, release)
    assert named.names == {"a": "org/A"} and (named.name_of("a"), named.name_of("b")) == ("org/A", "b")
    assert named.sha256 == served.sha256
    own = replace(known, facts={"roster": "acme"})
    assert _with_names(own, release) == own and own.name_of("a") == "a"

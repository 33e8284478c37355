"""Answers that are kept on disk: they come back as they were, and a file of the cache runs nothing."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dash import Dash
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas.application import create_application
from atlas.data import QueryCache, Serializer
from tests.invented_atlas import publish_invented

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
)


def again(value: Any) -> Any:
    stream = io.BytesIO()
    Serializer().dump(value, stream)
    return Serializer().load(io.BytesIO(stream.getvalue()))


@settings(deadline=None)
@given(VALUES)
def test_plain_values_come_back(value: Any) -> None:
    assert again(value) == value and repr(again(value)) == repr(value)


def test_tables_come_back_with_their_types() -> None:
    frame = pd.DataFrame(
        {
            "text": pd.array(["a", None, "=x"], "str"),
            "number": [1.5, np.nan, np.inf],
            "count": np.array([1, 2, 3], np.int32),
            "rosters": [["a"], [], ["b", "c"]],
            "vector": [np.array([1.0, 2.0], np.float32)] * 3,
            "flag": [True, False, True],
            "day": pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
            "any": [None, 1, "x"],
        }
    )
    held = again(frame)
    pd.testing.assert_frame_equal(held, frame)
    assert type(held["rosters"][0]) is list and held["vector"][0].dtype == np.float32
    pd.testing.assert_frame_equal(again(frame.set_index("count")), frame.set_index("count"))
    pd.testing.assert_frame_equal(again(frame.iloc[:0]), frame.iloc[:0])


def test_a_file_of_the_cache_runs_nothing(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    assert Serializer().loads(pickle.dumps(Trap())) is None
    assert again(Trap()) is None and not (tmp_path / "ran").exists()
    for raw in (b"", b"{", b'{"frame": 1}', b'{"missing": "x"}', b"[" * 100_000):
        assert Serializer().loads(raw) is None


def test_every_answer_of_the_pages_is_kept_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_invented(tmp_path / "data")
    app: Dash = create_application(tmp_path / "data", tmp_path / "cache")
    asked: QueryCache = app.server.extensions["atlas"]
    kept: list[Any] = []
    monkeypatch.setattr(asked._cache, "set", lambda key, value, timeout: kept.append(value))
    client = app.server.test_client()
    assert client.get("/_dash-layout").status_code == 200
    with app.server.test_request_context():
        from atlas.application import PAGES

        for page in PAGES:
            page.layout(**{"label": "gpt_1", "name": "GPT"} if "<" in page.path else {})
    assert len(kept) > 10
    for value in kept:
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(again(value), value)
            for name in value.columns:
                assert list(map(type, again(value)[name])) == list(map(type, value[name])), name
        else:
            assert repr(again(value)) == repr(value)

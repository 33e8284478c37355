"""How well shares of several sources are known, on Methods."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pandas as pd

from atlas.application import create_application
from atlas.pages import methods
from backend.store.builds import recorded
from backend.store.database import open_work, publish
from backend.store.writers import replace_rows
from tests.invented_atlas import publish_invented


def test_methods_shows_mixtures_once_they_were_measured(tmp_path: Path) -> None:
    publish_invented(tmp_path)
    about = {"part": "mixture", "k": 50, "n": 700}
    rows = [
        {"metric": "share_coverage", "scenario": "any", "statistic": "claimed", "value": 0.951},
        {"metric": "share_coverage", "scenario": "any", "statistic": "claimed", "level": 0.2, "value": 0.9},
        {"metric": "found", "scenario": "any", "level": 0.0, "value": 0.06},
        {"metric": "found", "scenario": "any", "level": 0.2, "value": 0.6},
        {"metric": "detectable", "scenario": "any", "value": 0.26},
    ]
    key = {"reader": "reader-paper/tiny/ur", "roster": "27-way", "condition": "clean"}
    question = "Does one endpoint serve several models?"
    for measured in (False, True):
        if measured:
            with (
                contextlib.closing(open_work(tmp_path / "work" / "work.duckdb")) as connection,
                recorded(connection, stage="audit", command="x") as build,
            ):
                replace_rows(connection, "audit_validation", pd.DataFrame([about | row for row in rows]), key, build)
            publish(tmp_path / "work" / "work.duckdb", tmp_path)
        server = create_application(tmp_path, tmp_path / "cache").server
        with server.test_request_context():
            cache = server.extensions["atlas"]
            frame = methods.mixture_rows(cache, cache.resolve_view(methods.View()))
            assert (
                question in json.dumps(methods.layout().to_plotly_json(), default=lambda c: c.to_plotly_json())
            ) is (measured)
    row = frame.iloc[0]
    assert (len(frame), row["k"], row["claimed"], row["false_alarms"], row["detectable"]) == (1, 50, 0.951, 0.06, 0.26)
    assert pd.isna(row["detectable_sibling"]) and row["mixtures"] == 700

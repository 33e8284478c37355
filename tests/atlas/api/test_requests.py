"""Bodies of requests to attribute: what becomes of them, and what is refused before it costs anything."""

from __future__ import annotations

import io
import json
import tracemalloc
from http import HTTPStatus
from typing import Any

import pytest
from flask import Flask, request
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas.api.problems import RefusedError
from atlas.api.requests import Form, Traces, checked, received
from backend.intake import receive


def sent(raw: bytes) -> bytes:
    """The file that a JSON body becomes."""
    with Flask("bodies").test_request_context(
        "/api/attribute", method="POST", data=raw, content_type="application/json"
    ):
        return received(request)[0][0][1]


def refused(model: type[Any], told: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        checked(model, told, strict=True)
    assert caught.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
    return caught.value


@pytest.mark.parametrize("text", ["é" * 1_000, "中" * 1_000, "🚀" * 1_000, "a\u2028b\u0085\x7f\x00\n" * 50])
def test_a_body_is_no_longer_as_a_file(text: str) -> None:
    for ascii_ in (False, True):
        raw = json.dumps({"traces": [{"prompt": text, "response": text}]}, ensure_ascii=ascii_).encode()
        content = sent(raw)
        assert len(content) <= len(raw)
        (trace,) = receive(io.BytesIO(content), "traces.jsonl").traces
        assert (trace.prompt, trace.response) == (text, text)


TRACE = st.fixed_dictionaries(
    {"response": st.text() | st.sampled_from(['{"choices": [{"text": "x"}]}', '{"body": 1}'])},
    optional={"prompt": st.text()},
)


@settings(max_examples=100, deadline=None)
@given(st.lists(TRACE, min_size=1, max_size=5))
def test_traces_arrive_as_they_were_sent(traces: list[dict[str, str]]) -> None:
    intake = receive(io.BytesIO(sent(json.dumps({"traces": traces}).encode())), "traces.jsonl")
    assert [(t.prompt, t.response) for t in intake.traces] == [(t.get("prompt", ""), t["response"]) for t in traces]


def test_lone_surrogates() -> None:
    """Escaped they become U+FFFD; as bytes they are no UTF-8."""
    (trace,) = receive(io.BytesIO(sent(b'{"traces":[{"response":"a\\ud800"}]}')), "traces.jsonl").traces
    assert trace.response == "a\ufffd"
    with pytest.raises(RefusedError):
        sent(b'{"traces":[{"response":"a\xed\xa0\x80"}]}')


@pytest.mark.parametrize(
    ("told", "pointer"),
    [
        ({f"k{i}": 0 for i in range(50_000)}, "/k0"),
        ({"traces": [{"response": "a"}, {f"k{i}": 0 for i in range(50_000)}]}, "/traces/1/k0"),
        ({"traces": [dict.fromkeys(("response", "prompt", "time", "label", "id"), 7)] * 20_000}, "/traces/0/response"),
        ({"traces": [{"response": "a"}], "prior": {str(i): 0 for i in range(50_000)}}, "/prior"),
        ({"traces": [{"response": "a"}], "also": [0] * 50_000}, "/also"),
    ],
)
def test_a_great_many_wrong_values_are_refused_at_the_first(told: Any, pointer: str) -> None:
    tracemalloc.start()
    error = refused(Traces, told)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert error.errors[0]["pointer"] == pointer
    assert len(error.errors) <= 5


def test_a_wrong_trace_is_named_by_its_place_in_the_whole_list() -> None:
    told = {"traces": [{"response": "a"}] * 2_500 + [{"response": 7}]}
    assert [entry["pointer"] for entry in refused(Traces, told).errors] == ["/traces/2500/response"]


def test_a_prior_may_be_left_out_and_not_be_empty() -> None:
    told = {"traces": [{"response": "a"}]}
    for prior in (None, {"a": 1}, {str(i): 1 for i in range(1_000)}):
        assert checked(Traces, told | {"prior": prior}, strict=True).prior == prior
    for wrong in ({}, {str(i): 1 for i in range(1_001)}, [], {"a": 0}):
        assert refused(Traces, told | {"prior": wrong}).errors[0]["pointer"].startswith("/prior")


def test_an_unknown_key_of_any_length() -> None:
    assert refused(Form, {"~/" * 1_000: 1}).errors[0]["pointer"].startswith("/~0~1~0~1")
    assert len(str(refused(Form, {"x" * 1_000_000: 1}))) < 1_000

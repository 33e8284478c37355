"""Columns on the page: what can be chosen for a role, and what of it is passed on."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from flask import Flask, Response

from atlas.pages.attribute import visitor
from atlas.pages.attribute.intake import NONE, ROLES, given, offered
from backend.intake import Columns, peek

RECOGNISED = {"response": "response", "prompt": "prompt", "time": None, "label": "source", "name": None}


def values(**chosen: str | None) -> list[str | None]:
    return [(RECOGNISED | chosen)[role] for role in ROLES]


def test_only_what_a_person_changed_is_passed_on() -> None:
    assert given(RECOGNISED, values()) == Columns()
    assert given(RECOGNISED, values(label="model")) == Columns(label="model")
    assert given(RECOGNISED, values(label=NONE)) == Columns(label="")
    assert given(None, values(label=None)) == Columns(response="response", prompt="prompt")


def test_none_can_be_chosen_for_all_roles_but_the_response() -> None:
    fields = ["response", "source", ""]
    assert [entry["value"] for entry in offered("response", fields)] == ["response", "source"]
    for role in ("prompt", "time", "label", "name"):
        assert offered(role, fields)[0] == {"value": NONE, "label": "none"}
        assert [entry["value"] for entry in offered(role, fields)] == [NONE, "response", "source"]


def test_columns_are_shown_as_they_are_where_none_is_recognised() -> None:
    lines = ["asked,place,said", *(f"Why {i}?,here,Because {i}." for i in range(5))]
    layout, rows = peek(io.BytesIO("\n".join(lines).encode()), "odd.csv")
    assert layout.columns.response is None and layout.fields == ("asked", "place", "said")
    assert len(rows) == 3
    assert rows[0][1] == {"asked": "Why 0?", "place": "here", "said": "Because 0."}


def test_files_that_arrive_together_begin_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that were sent before an answer brought the cookie; the page's secret is in all of them."""
    server = Flask("page")
    server.extensions["attribution"] = SimpleNamespace(secret=b"of this server")

    def begun(visit: str | None, cookie: str = "") -> tuple[str, str]:
        response = Response()
        monkeypatch.setattr(visitor, "ctx", SimpleNamespace(response=response))
        with server.test_request_context(headers={"Cookie": cookie} if cookie else {}):
            key = visitor.opened_session(visit)
        return key, response.headers.get("Set-Cookie", "").partition(";")[0]

    first, second, other = begun("0a" * 16), begun("0a" * 16), begun("0b" * 16)
    assert first == second and first[1] and other[0] != first[0]
    assert begun("0b" * 16, cookie=first[1]) == (first[0], ""), "a session that there is stays"
    for unfit in (None, "", "short", "0A" * 16, "0a" * 17):
        assert begun(unfit)[0] != begun(unfit)[0]

"""What a page asks of the server: few requests at a time, answers that are kept, and none of a gone generation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from dash import Dash

from atlas.api.answers import OPENED, Answer, Answers
from atlas.application import PAGES, create_application
from atlas.pages import attribute, attribution, compare
from backend.errors import AtlasError
from benchmarks.web import Page
from tests.invented_atlas import publish_invented

AT_A_TIME = 12
"""Callbacks that the browser has under way at once (dash-renderer, prioritizedCallbacks)."""
OWN = 9
"""Requests that a change in the header and a link may make: with twelve none ever waits, three are left for clicks."""
PATHS = {page.name: page.path.replace("<label>", "gpt_1").replace("<name>", "GPT") for page in PAGES}


class Line:
    """The benchmark's connection, without a network."""

    def __init__(self, app: Dash) -> None:
        self._client = app.server.test_client()

    def json(self, path: str, body: Any = None) -> Any:
        answer = self._client.get(path) if body is None else self._client.post(path, json=body)
        assert answer.status_code in (200, 204), path
        return answer.get_json()


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("invented")
    publish_invented(folder)
    return folder


@pytest.fixture
def data(invented: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(invented, tmp_path / "data"))


@pytest.fixture
def app(data: Path, tmp_path: Path) -> Dash:
    return create_application(data, tmp_path / "cache")


@pytest.mark.parametrize("name", PATHS)
def test_no_callback_of_a_page_ever_waits_for_its_turn(app: Dash, name: str) -> None:
    """One that waits when its page is left would run without its outputs and complain in the console."""
    page = Page(Line(app), PATHS[name])
    asked = page.together({"reader", "roster", "domain", "theme", "_pages_location"})
    assert 2 <= len(asked) <= OWN < AT_A_TIME, asked


def test_a_switch_is_answered_and_answered_again_from_memory(app: Dash, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(app)
    page = Page(line, "/attribution")
    page.set("k", "value", "1")
    jobs = page.requests("k", "value")
    assert len(jobs) == 3
    first = [line.json("/_dash-update-component", job) for job in jobs]
    assert any("With one trace" in json.dumps(answer["response"].get("answer")) for answer in first)

    def never(*_: object) -> None:
        raise AssertionError("asked twice")

    for name in ("_answer", "_budget", "_confusion"):
        monkeypatch.setattr(attribution, name, never)
    again = [line.json("/_dash-update-component", job) for job in jobs]
    assert again == first


def opened(line: Line, path: str) -> str:
    """The page of a link, as text."""
    ask = {
        "output": OPENED,
        "outputs": [{"id": "_pages_content", "property": "children"}, {"id": "_pages_store", "property": "data"}],
        "inputs": [
            {"id": "_pages_location", "property": "pathname", "value": path},
            {"id": "_pages_location", "property": "search", "value": "?theme=dark"},
        ],
        "changedPropIds": ["_pages_location.pathname"],
        "state": [],
    }
    return json.dumps(line.json("/_dash-update-component", ask)["response"]["_pages_content"])


def test_a_link_is_laid_out_once_a_day_and_generation(app: Dash, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(app)
    first = opened(line, "/compare")

    def fail(*_: object) -> None:
        raise ValueError("secret")

    with monkeypatch.context() as broken:
        broken.setattr(compare, "_head", fail)
        assert opened(line, "/compare") == first
        with broken.context() as tomorrow:
            tomorrow.setattr("atlas.api.answers.today", lambda: "2999-01-01")
            assert "The server could not answer this." in opened(line, "/compare")
        publish_invented(data, seed=99)
        told = opened(line, "/compare")
        assert "The server could not answer this." in told and "secret" not in told
    assert opened(line, "/compare") not in (first, told), "a failure is not kept"


def test_the_page_that_knows_its_visitor_is_laid_out_for_each(app: Dash, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(app)
    assert "attr-token-place" not in opened(line, "/attribute")
    monkeypatch.setattr(attribute.access, "guarded", lambda: True)
    assert "attr-token-place" in opened(line, "/attribute")


def test_a_new_generation_is_answered_anew(app: Dash, data: Path) -> None:
    line = Line(app)
    page = Page(line, "/attribution")
    page.set("k", "value", "50")
    job = next(job for job in page.requests("k", "value") if "answer.children" in job["output"])
    before = line.json("/_dash-update-component", job)
    publish_invented(data, seed=99)
    after = line.json("/_dash-update-component", job)
    assert before["response"]["answer"] != after["response"]["answer"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AtlasError("The file is gone", "Fetch it again"), "The file is gone. Fetch it again."),
        (ValueError("secret"), "The server could not answer this."),
    ],
)
def test_a_failing_callback_becomes_a_sentence_and_is_not_kept(
    app: Dash, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    line = Line(app)
    page = Page(line, "/attribution")
    page.set("k", "value", "5")
    job = next(job for job in page.requests("k", "value") if "pair.children" in job["output"])

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr("atlas.shell.shared_view", fail)
        text = json.dumps(line.json("/_dash-update-component", job))
    assert told in text and "secret" not in text
    healed = line.json("/_dash-update-component", job)
    assert "sideUpdate" not in healed and "pair" in healed["response"]


@pytest.mark.parametrize("body", ["[1]", "null", "1", '"x"', "{}", '{"output": []}', '{"output": "x"}', "{", ""])
def test_a_callback_that_there_is_not_is_refused(app: Dash, body: str) -> None:
    answer = app.server.test_client().post("/_dash-update-component", data=body, content_type="application/json")
    assert answer.status_code == 400


def test_the_least_recently_sent_answers_go_first() -> None:
    held = Answers(limit=10)
    for key, size in (("a", 4), ("b", 4)):
        held.keep(key, Answer(b"x" * size, ()))
    assert held.get("a") is not None
    held.keep("c", Answer(b"x" * 4, ()))
    assert held.get("b") is None and held.get("a") is not None and held.get("c") is not None
    held.keep("c", Answer(b"x" * 6, ()))
    assert held.get("a") is not None
    held.keep("d", Answer(b"x" * 11, ()))
    assert [held.get(key) for key in "abcd"] == [None] * 4

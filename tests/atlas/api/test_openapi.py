"""The OpenAPI document against the server, by schemathesis: what it promises holds, what it forbids is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from atlas.api.openapi import document
from backend.enrolment.files import save_enrolment
from tests.invented_atlas import publish_invented
from tests.served_api import HASH, serve, tiny_enrolment, tiny_reader

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed (pip install schemathesis)")
OPERATIONS = [(path, method) for path, item in document()["paths"].items() for method in item if method != "parameters"]
EXAMPLES = 20


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("schema")
    publish_invented(folder / "data")
    reader = tiny_reader()
    save_enrolment(tiny_enrolment(), folder / "data" / "enrolments" / "tiny.npz")
    server, _ = serve(folder / "data", folder / "cache", lambda proxy: (reader, HASH))
    return schemathesis.openapi.from_wsgi("/api/openapi.json", server)


@pytest.mark.slow(1)
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_the_server_keeps_its_promises(schema: Any, path: str, method: str, mode: str) -> None:
    operation = schema[path][method.upper()]
    cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode])
    # Names of sources and ecosystems are data: the document cannot say which ones there are.
    knows = [schemathesis.checks.positive_data_acceptance]

    @given(case=cases)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def holds(case: Any) -> None:
        response = case.call()
        # What schemathesis takes for accepted: a body that is refused unread because it is too long, and a file that is
        # no string, which it sends as text: every text is a file.
        body = case.body if case.media_type == "multipart/form-data" and isinstance(case.body, dict) else {}
        sound = response.status_code == 413 or any(
            not isinstance(body[name], str | bytes) for name in ("file", "before", "after") if name in body
        )
        others = [schemathesis.checks.negative_data_rejection] if sound else []
        case.validate_response(response, excluded_checks=[*knows, *others])

    if mode == "NEGATIVE" and not _can_be_wrong(path, method):
        pytest.skip("there is nothing that could be sent wrongly")
    holds()


def _can_be_wrong(path: str, method: str) -> bool:
    item = document()["paths"][path]
    given_parameters = [*item.get("parameters", []), *item[method].get("parameters", [])]
    return "requestBody" in item[method] or any(entry["in"] == "query" for entry in given_parameters)

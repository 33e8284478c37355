"""Logs of gateways: the standard log of LiteLLM, and Helicone's exports and manual logger.

https://docs.litellm.ai/docs/proxy/logging_spec, https://docs.helicone.ai/tools/export
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.intake.chat_logs import TIME, ChatError, Turn, first_of, opened, turns

_REDACTED = "redacted-by-litellm"
LITELLM_KEYS = frozenset({"litellm_call_id", "call_type", "model_group", "model", "messages", "response", "status"})
HELICONE_KEYS = frozenset({"request_body", "response_body", "request_path", "response_status", "request_created_at"})


def is_litellm(record: Mapping[str, Any]) -> bool:
    """Whether a record is a call as LiteLLM logs it."""
    return "messages" in record and ("litellm_call_id" in record or {"call_type", "model_group"} <= record.keys())


def turns_of_litellm(record: Mapping[str, Any]) -> list[Turn]:
    """Answers of a call; ``model`` is what LiteLLM requested, not its alias ``model_group``."""
    if record.get("status") == "failure":
        raise ChatError("status", "the call failed, and there is no answer; leave it out")
    messages, response = opened(record["messages"]), opened(record.get("response"))
    found = _exchange({"model": record.get("model"), "messages": messages}, response, first_of(record, None, *TIME))
    if any(turn.response == _REDACTED for turn in found):
        raise ChatError("response", "LiteLLM left the text out; log it (turn_off_message_logging: false)")
    return found


def is_helicone(record: Mapping[str, Any]) -> bool:
    """Whether a record is a request of an export, or what the manual logger sends."""
    if "providerRequest" in record:
        return isinstance(record["providerRequest"], dict) and isinstance(record.get("providerResponse"), dict)
    return (
        "request_body" in record
        and "response_body" in record
        and bool({"request_path", "response_status"} & record.keys())
    )


def turns_of_helicone(record: Mapping[str, Any]) -> list[Turn]:
    """Answers of a request."""
    if "providerRequest" in record:
        request, response = record["providerRequest"].get("json"), record["providerResponse"].get("json")
        response = response or record["providerResponse"].get("textBody")
        return _exchange(request, opened(response), None)
    request, response = opened(record["request_body"]), opened(record["response_body"])
    if not isinstance(response, dict) or not response:
        raise ChatError("response_body", "there is no body of the response; export it again with --include-body")
    return _exchange(request, response, first_of(record, None, *TIME))


def _exchange(request: Any, response: Any, time: Any) -> list[Turn]:
    """Answers of a request and its response, both as the endpoint had them."""
    if not isinstance(request, dict):
        raise ChatError("request", "there is no body of the request; export it again with bodies")
    return turns({"request": request, "response": response, "time": time})

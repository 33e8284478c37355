"""Completions of HELM: the request states of a scenario, each with an instance, a request and its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backend.intake.chat_logs import ChatError, Found, Turn, last_asked, text_at


def is_helm(record: Mapping[str, Any]) -> bool:
    if isinstance(record.get("request_states"), list):
        return True
    result = record.get("result")
    return isinstance(record.get("request"), dict) and (
        (isinstance(result, dict) and "completions" in result) or ("result" in record and "instance" in record)
    )


def turns_of_helm(record: Mapping[str, Any]) -> Iterator[Found]:
    """Completions, each with the prompt that the model was given. record : for which :func:`is_helm` holds."""
    states = record.get("request_states", [record])
    if not states:
        raise ChatError("request_states", "there is no request state; export the scenario again")
    for number, state in enumerate(states):
        where = f"request_states[{number}]." if states != [record] else ""
        try:
            yield from _completions(state, where)
        except ChatError as error:
            yield error


def _completions(state: Any, where: str) -> list[Turn]:
    if not isinstance(state, dict) or not isinstance(request := state.get("request"), dict):
        raise ChatError(f"{where}request", "a request state has no request; export the scenario again")
    result = state.get("result")
    if not isinstance(result, dict) or result.get("success") is False:
        raise ChatError(f"{where}result", "the request failed; run it again, or leave it out")
    completions = result.get("completions")
    if not isinstance(completions, list) or not completions:
        raise ChatError(f"{where}result.completions", "there is no completion; run it again, or leave it out")
    instance = state.get("instance")
    instance = instance if isinstance(instance, dict) else {}
    given = request.get("prompt") or last_asked(request)
    if not given and isinstance(source := instance.get("input"), dict):
        given = source.get("text")
    prompt = text_at(given, f"{where}request.prompt") or ""
    found = []
    for number, completion in enumerate(completions):
        column = f"{where}result.completions[{number}].text"
        text = text_at(completion.get("text") if isinstance(completion, dict) else None, column)
        if text is None:
            raise ChatError(column, "a completion has no text; run it again, or leave it out")
        found.append(Turn(prompt, text, result.get("request_datetime"), request.get("model"), instance.get("id")))
    return found

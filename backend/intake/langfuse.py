"""Langfuse: observations of its exports, of its API, and as its clients send them in spans.

https://langfuse.com/docs/api-and-data-platform/features/observations-api
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backend.intake import chat_logs
from backend.intake.chat_logs import TIME, ChatError, Found, Turn, first_of, is_talk, last_prompt, opened

_MODEL = ("providedModelName", "provided_model_name", "model", "modelId")
_TRACE = ("traceId", "trace_id")
_KINDS = frozenset(  # of observations; only a generation is an answer of a model
    {"GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"}
)
KEYS = frozenset({"id", "type", "input", "output", "observations", *_MODEL, *_TRACE, *TIME})


def is_observation(record: Mapping[str, Any]) -> bool:
    """Whether a record is an observation, or a trace with its observations."""
    inner = record.get("observations")
    if isinstance(inner, list) and inner:
        return all(isinstance(one, dict) and _kind(one) in _KINDS for one in inner)
    return "type" in record and "input" in record and any(key in record for key in _TRACE) and _kind(record) in _KINDS


def _kind(row: Mapping[str, Any]) -> str:
    kind = row.get("type")
    return kind.upper() if isinstance(kind, str) else ""


def turns_of_observations(record: Mapping[str, Any]) -> Iterator[Found]:
    """Answers of generations; other observations are passed over."""
    inner = record.get("observations")
    rows = inner if isinstance(inner, list) and inner else [record]
    for number, row in enumerate(rows):
        if _kind(row) == "GENERATION":
            try:
                yield from turns_of_generation(row)
            except ChatError as error:
                where = f"observations[{number}]." if rows is inner else ""
                yield ChatError(f"{where}{error.column}", error.reason)


def turns_of_generation(row: Mapping[str, Any]) -> list[Turn]:
    """Answers of one generation; its input is a list of messages, an object with one, or text.

    Raises ChatError if there is none.
    """
    given = opened(row.get("input"), "messages", "prompt")
    output = opened(row.get("output"), "role", "choices", "messages")
    if output in (None, "", {}, []):
        raise ChatError("output", "the generation has no output; leave it out")
    if isinstance(given, dict) and isinstance(given.get("messages"), str):
        given = given | {"messages": opened(given["messages"])}
    if isinstance(output, dict) and is_talk(output.get("messages")):
        output = output["messages"]
    request = {"messages": given} if is_talk(given) else given if isinstance(given, dict) else {}
    prompt = given if isinstance(given, str) else last_prompt(request)
    try:
        found = chat_logs.turns({"request": request, "response": output, "time": first_of(row, None, *TIME)})
    except ChatError as error:
        raise ChatError("output", error.reason) from error
    named, name = first_of(row, None, *_MODEL), first_of(row, None, "id")
    return [one._replace(prompt=prompt, label=named or one.label, name=name, returned=named) for one in found]

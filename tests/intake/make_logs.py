"""Logs as the client libraries write them: ``python -m tests.intake.make_logs [FOLDER [NAME]]``, without any network.

A server on this machine answers as OpenAI and Anthropic do, under another model than was requested, and takes in what
the libraries send away. Install langfuse, litellm, openai, anthropic, helicone-helpers, opentelemetry-sdk,
opentelemetry-exporter-otlp-proto-http, opentelemetry-instrumentation-openai-v2 (2.4b0 needs opentelemetry-util-genai
0.4b0) and openinference-instrumentation-openai into an environment of their own.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "logs"
REQUESTED, RETURNED = "gpt-4o", "gpt-4o-mini-2024-07-18"
CLAUDE, CLAUDE_RETURNED = "claude-sonnet-4-5", "claude-sonnet-4-5-20250929"
SAID = (("Why is the sky blue?", "Because air scatters blue light."), ("Who are you?", 'A model, they say: "so".'))
MADE_WITH = {
    "otlp.jsonl": "opentelemetry-instrumentation-openai-v2",
    "openinference.jsonl": "openinference-instrumentation-openai",
    "langfuse-otlp.jsonl": "langfuse",
    "langfuse-observations.json": "langfuse",
    "litellm.jsonl": "litellm",
    "helicone-logger.jsonl": "helicone-helpers",
    "helicone-export.jsonl": "openai",
    "openai-batch.jsonl": "openai",
    "anthropic-batch.jsonl": "anthropic",
}
"""Every file, and the library that wrote it, or whose types it has."""


class Endpoint(ThreadingHTTPServer):
    """Answers chat requests, and stores the bodies of all others."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.chats: list[tuple[dict[str, Any], dict[str, Any]]] = []  # requests and replies
        self.others: list[tuple[str, bytes]] = []  # paths and bodies

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        body = gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body
        reply: dict[str, Any] = {}
        if self.path.endswith(("/chat/completions", "/messages")):
            request = json.loads(body)
            reply = (claude if self.path.endswith("/messages") else chat)(request["messages"][-1]["content"])
            self.server.chats.append((request, reply))
        else:
            self.server.others.append((self.path, body))
        content = b"" if not reply and "traces" in self.path else json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if content else "application/x-protobuf")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def chat(prompt: str) -> dict[str, Any]:
    number = [question for question, _ in SAID].index(prompt)
    message = {"role": "assistant", "content": SAID[number][1], "refusal": None}
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {
        "id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1_760_000_000 + number, "model": RETURNED,
        "choices": [choice], "usage": usage, "system_fingerprint": "fp_1",
    }  # fmt: skip


def claude(prompt: str) -> dict[str, Any]:
    number = [question for question, _ in SAID].index(prompt)
    content, usage = [{"type": "text", "text": SAID[number][1]}], {"input_tokens": 9, "output_tokens": 7}
    return {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": CLAUDE_RETURNED, "content": content,
        "stop_reason": "end_turn", "stop_sequence": None, "usage": usage,
    }  # fmt: skip


@contextmanager
def serving() -> Iterator[Endpoint]:
    server = Endpoint()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def messages(prompt: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}]


def converse(server: Endpoint) -> None:
    """Two requests by OpenAI's client, which an instrumentation may listen to."""
    from openai import OpenAI

    with OpenAI(api_key="none", base_url=f"{server.url}/v1") as client:
        for prompt, _ in SAID:
            client.chat.completions.create(model=REQUESTED, messages=messages(prompt))  # type: ignore[arg-type]


def as_otlp_json(body: bytes) -> dict[str, Any]:
    """A request of OTLP as OTLP/JSON has it: ids in hexadecimal, where JSON of protocol buffers has base64."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = MessageToDict(ExportTraceServiceRequest.FromString(body), use_integers_for_enums=True)
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                ids = {
                    key: base64.b64decode(span[key]).hex()
                    for key in span.keys() & {"traceId", "spanId", "parentSpanId"}
                }
                span.update(ids)
    return request


def exports(server: Endpoint) -> list[dict[str, Any]]:
    return [as_otlp_json(body) for path, body in server.others if path.endswith("/traces")]


def collected(server: Endpoint) -> Any:
    """A provider of tracers whose spans the server takes in."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{server.url}/v1/traces")))
    return provider


def instrumented(server: Endpoint, instrumentor: Any) -> list[dict[str, Any]]:
    """What an instrumentation of OpenAI's client sends to a collector."""
    provider = collected(server)
    instrumentor.instrument(tracer_provider=provider)
    with provider.get_tracer("tests").start_as_current_span("a request of the shop"):
        converse(server)
    instrumentor.uninstrument()
    provider.shutdown()
    return exports(server)


def otlp(server: Endpoint) -> list[dict[str, Any]]:
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "span_only"
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

    return instrumented(server, OpenAIInstrumentor())


def openinference(server: Endpoint) -> list[dict[str, Any]]:
    from openinference.instrumentation.openai import OpenAIInstrumentor

    return instrumented(server, OpenAIInstrumentor())


def langfuse(server: Endpoint) -> list[dict[str, Any]]:
    """Generations as the client sends them, the model requested and the one that answered."""
    from langfuse import Langfuse

    client = Langfuse(public_key="pk-lf-1", secret_key="sk-lf-1", base_url=server.url)
    for prompt, answer in SAID:
        settings = {"temperature": 0.5}
        with client.start_as_current_observation(
            name="shop", as_type="generation", model=RETURNED, input=messages(prompt), model_parameters=settings
        ) as generation:
            generation.update(output={"role": "assistant", "content": answer}, metadata={"requested": REQUESTED})
    client.flush()
    client.shutdown()
    return exports(server)


def langfuse_observations(_: Endpoint) -> list[dict[str, Any]]:
    """Rows of the observations API, which the export of a table has as well; input as list, object and text."""
    from langfuse.api.commons.types.observation_v2 import ObservationV2
    from langfuse.api.core.pydantic_utilities import parse_obj_as

    inputs = [messages(SAID[0][0]), {"messages": messages(SAID[1][0])}, SAID[0][0]]
    outputs = [{"role": "assistant", "content": SAID[0][1]}, SAID[1][1], {"content": SAID[0][1], "role": "assistant"}]
    rows = []
    for number, (given, output) in enumerate(zip(inputs, outputs, strict=True)):
        fields = {
            "id": f"obs-{number}", "traceId": "trace-1", "type": "GENERATION", "name": "shop", "level": "DEFAULT",
            "startTime": "2026-01-02T03:04:05Z", "endTime": "2026-01-02T03:04:06Z", "projectId": "p",
            "input": given, "output": output, "providedModelName": RETURNED, "modelParameters": {"temperature": 0.5},
            "parentObservationId": "span-1", "metadata": {}, "usageDetails": {"total": 16}, "environment": "default",
        }  # fmt: skip
        rows.append(json.loads(parse_obj_as(ObservationV2, fields).json()))
    span = {
        "id": "span-1",
        "type": "SPAN",
        "name": "shop",
        "input": {"question": "x"},
        "output": None,
        "parentObservationId": None,
    }
    return [{**rows[0], **span, "providedModelName": None}, *rows]


def litellm(server: Endpoint) -> list[dict[str, Any]]:
    """What a callback gets for every call: the payload of the standard log."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm as library
    from litellm.integrations.custom_logger import CustomLogger

    payloads: list[dict[str, Any]] = []

    class Log(CustomLogger):
        async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            payloads.append(kwargs["standard_logging_object"])

        async_log_failure_event = async_log_success_event

    library.callbacks = [Log()]
    setting = {"model": f"openai/{REQUESTED}", "api_base": f"{server.url}/v1", "api_key": "none"}
    router = library.Router([{"model_name": "shop-chat", "litellm_params": setting}])

    async def ask() -> None:
        for prompt, _ in SAID:
            await router.acompletion(model="shop-chat", messages=messages(prompt))
            await asyncio.sleep(1)
        with_error = {"model": REQUESTED, "messages": messages("No?"), "mock_response": Exception("no answer")}
        try:
            await library.acompletion(**with_error)
        except Exception:
            await asyncio.sleep(1)

    asyncio.run(ask())
    for payload in payloads:  # it names folders of this machine
        payload["error_information"] = {**(payload.get("error_information") or {}), "traceback": ""}
    return [json.loads(json.dumps(payload, default=str)) for payload in payloads]


def helicone_logger(server: Endpoint) -> list[dict[str, Any]]:
    from helicone_helpers import HeliconeManualLogger

    converse(server)
    logger = HeliconeManualLogger(api_key="none", logging_endpoint=server.url)
    for request, reply in server.chats:
        logger.log_request(request, lambda recorder, reply=reply: recorder.append_results(reply), provider="openai")
    return [json.loads(body) for _, body in server.others]


def helicone_export(server: Endpoint) -> list[dict[str, Any]]:
    """Rows of the requests API with the bodies of OpenAI's client."""
    converse(server)
    return [
        {
            "response_id": f"r-{number}", "response_created_at": "2026-01-02T03:04:06.000Z", "response_body": reply,
            "response_status": 200, "response_model": reply["model"], "request_id": f"q-{number}",
            "request_created_at": "2026-01-02T03:04:05.000Z", "request_body": request,
            "request_path": "https://api.openai.com/v1/chat/completions", "request_model": request["model"],
            "request_properties": {}, "model_override": None, "provider": "OPENAI", "model": reply["model"],
        }
        for number, (request, reply) in enumerate(server.chats)
    ]  # fmt: skip


def openai_batch(server: Endpoint) -> list[dict[str, Any]]:
    """The file of requests and then that of results, which come in any order."""
    from openai.types.chat import ChatCompletion

    converse(server)
    requests, results = [], []
    for number, (request, reply) in enumerate(server.chats):
        key = f"request-{number}"
        requests.append({"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": request})
        body = ChatCompletion.model_validate(reply).model_dump(mode="json", exclude_unset=True)
        response = {"status_code": 200, "request_id": f"req-{number}", "body": body}
        results.append({"id": f"batch_req_{number}", "custom_id": key, "response": response, "error": None})
    return [*requests, *reversed(results)]


def anthropic_batch(server: Endpoint) -> list[dict[str, Any]]:
    """The body that creates a batch, and the file of its results; one of them is an error."""
    from anthropic import Anthropic
    from anthropic.types.messages import MessageBatchIndividualResponse

    with Anthropic(api_key="none", base_url=server.url) as client:
        for prompt, _ in SAID:
            client.messages.create(model=CLAUDE, max_tokens=64, messages=[{"role": "user", "content": prompt}])
        requests = [{"custom_id": f"request-{n}", "params": request} for n, (request, _) in enumerate(server.chats)]
        requests.append({"custom_id": "request-2", "params": requests[0]["params"]})
        chats = list(server.chats)
        try:
            client.messages.batches.create(requests=requests)  # type: ignore[arg-type]
        except Exception:
            assert server.others  # the reply of this server is no batch
    bodies = [json.loads(body) for _, body in server.others]
    error = {"type": "error", "request_id": None, "error": {"type": "invalid_request_error", "message": "no"}}
    results = [{"type": "succeeded", "message": reply} for _, reply in chats] + [{"type": "errored", "error": error}]
    rows = [{"custom_id": f"request-{number}", "result": result} for number, result in enumerate(results)]
    return bodies + [
        MessageBatchIndividualResponse.model_validate(row).model_dump(mode="json", exclude_unset=True) for row in rows
    ]


MAKERS = {
    "otlp.jsonl": otlp,
    "openinference.jsonl": openinference,
    "langfuse-otlp.jsonl": langfuse,
    "langfuse-observations.json": langfuse_observations,
    "litellm.jsonl": litellm,
    "helicone-logger.jsonl": helicone_logger,
    "helicone-export.jsonl": helicone_export,
    "openai-batch.jsonl": openai_batch,
    "anthropic-batch.jsonl": anthropic_batch,
}


def make(name: str, folder: Path) -> None:
    """Write one of the files; a process makes one only, since instrumentations listen to all that comes later."""
    with serving() as server:
        rows = MAKERS[name](server)
    text = json.dumps(rows, indent=1) if name.endswith(".json") else "\n".join(map(json.dumps, rows))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text + "\n", "utf-8")


def main() -> None:
    folder, names = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER, sys.argv[2:]
    if names:
        make(names[0], folder)
        return
    for name in MAKERS:
        subprocess.run([sys.executable, "-m", "tests.intake.make_logs", str(folder), name], check=True)
    rows = [f"| {name} | {library} {version(library)} |" for name, library in MADE_WITH.items()]
    head = "Written by `python -m tests.intake.make_logs`, never by hand.\n\n| file | made with |\n|---|---|\n"
    (folder / "README.md").write_text(head + "\n".join(rows) + "\n", "utf-8")


if __name__ == "__main__":
    main()

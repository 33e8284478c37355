"""Measurements of a server for Prometheus: requests, jobs, traces, verdicts, seconds by stage, refused uploads.

Labels take few values: no path, name of a source, session or address stands in one. Web processes of gunicorn count
together (:mod:`backend.service.process_group`); a worker process counts its own jobs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from backend.errors import AtlasError
from backend.service.process_group import FOLDER
from backend.service.watch_state import watches

if TYPE_CHECKING:
    from backend.attribution.run import AuditResult

QUICK = (0.005, 0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)
LONG = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0)
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "DELETE", "PUT", "PATCH"})
NOWHERE = "none"
"""Route of a request that none answers."""
REASONS = {
    400: "malformed", 401: "token", 403: "not admitted", 409: "cancelled", 413: "size", 415: "type", 422: "content",
    429: "busy", 503: "server", 504: "time", 507: "disk",
}  # fmt: skip
"""Why an upload was refused, by the status of the answer."""

REQUESTS = Counter("atlas_requests", "Requests by route, method and class of status.", ("route", "method", "status"))
REQUEST_SECONDS = Histogram(
    "atlas_request_seconds", "Seconds to the first byte of an answer.", ("route",), buckets=QUICK
)
TRACES = Counter("atlas_traces_scored", "Traces that were scored, once for every reader.")
STAGES = Histogram(
    "atlas_stage_seconds", "Seconds of a job: parse, wait, read, score, report.", ("stage",), buckets=LONG
)
JOBS = Counter("atlas_jobs_ended", "Jobs that ended, by state.", ("state",))
VERDICTS = Counter("atlas_verdicts", "Answers, by verdict.", ("verdict",))
REFUSED = Counter("atlas_uploads_refused", "Requests with traces or a report that were refused.", ("reason",))
AUDIT_FAILURES = Counter("atlas_audit_log_failures", "Lines that the audit log could not take.")


class Depth(Collector):
    """The queue at the moment at which somebody looks."""

    def __init__(self, load: Callable[[], Mapping[str, int]]) -> None:
        self._load = load

    def collect(self) -> Iterator[GaugeMetricFamily]:
        depth = GaugeMetricFamily("atlas_jobs", "Jobs that wait or run now.", labels=["state"])
        for state, count in self._load().items():
            depth.add_metric([state], count)
        yield depth


class Watches(Collector):
    """Every watch at the moment at which somebody looks; labels are the names that people gave them."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        words = {
            "evidence_log10": "Log10 of the e-value against the claimed source.", "alarms": "Alarms so far.",
            "alarm": "Whether an alarm stands.", "traces_counted": "Traces that were counted as evidence.",
            "traces_other": "Traces of other traffic.", "last_look": "Seconds since 1970 of the last look.",
        }  # fmt: skip
        gauges = {
            name: GaugeMetricFamily(f"atlas_watch_{name}", text, labels=["watch"]) for name, text in words.items()
        }
        known = watches()
        for state in known:
            with contextlib.closing(state), contextlib.suppress(AtlasError):  # a damaged one is on the page
                for name, value in state.measured().items():
                    gauges[name].add_metric([state.name], value)
        yield from gauges.values() if known else ()


def registry(load: Callable[[], Mapping[str, int]] | None = None) -> CollectorRegistry:
    """Everything that was measured, with the depth of the queue where ``load`` counts it by state."""
    every = CollectorRegistry()
    if FOLDER in os.environ:
        MultiProcessCollector(every)  # type: ignore[no-untyped-call]
    else:
        every.register(REGISTRY)
    every.register(Watches())
    if load is not None:
        every.register(Depth(load))
    return every


def exposition(accept: str, load: Callable[[], Mapping[str, int]] | None = None) -> tuple[bytes, str]:
    """The measurements as text and its type, in the version that a client accepts."""
    encode, content_type = choose_encoder(accept)
    return encode(registry(load)), content_type


def serve(
    port: int, address: str = "127.0.0.1", load: Callable[[], Mapping[str, int]] | None = None
) -> Callable[[], None]:
    """Answer with the measurements of a process without web pages, in the background.

    Returns what ends it. Raises OSError where the address cannot be listened to.
    """
    server, thread = start_http_server(port, address, registry(load))

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def count_request(route: str | None, method: str, status: int, seconds: float) -> None:
    """Count an answered request; ``route`` is the template of its address."""
    known = method if method in METHODS else "other"
    REQUESTS.labels(route or NOWHERE, known, f"{status // 100}xx").inc()
    REQUEST_SECONDS.labels(route or NOWHERE).observe(seconds)


def count_refusal(status: int) -> None:
    """Count an upload that was refused with a status of HTTP."""
    REFUSED.labels(REASONS.get(status, "other")).inc()


def time_stage(stage: str, since: float) -> None:
    """Note the seconds of a stage that began at a time of :func:`time.time` and ends now."""
    STAGES.labels(stage).observe(max(0.0, time.time() - since))


def count_result(result: AuditResult, *, question: bool) -> None:
    """Note the seconds of an audit's stages, and its verdict where it answers a question."""
    if question:
        VERDICTS.labels(str(result.report["results"]["verdict"])).inc()
    for stage, seconds in result.seconds.items():
        STAGES.labels(stage).observe(max(0.0, seconds))

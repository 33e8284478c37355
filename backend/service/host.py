"""The proxy of a server: loaded in the background by the one thread that uses it, and whether it is there yet."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.enrolment.catalogue import Ecosystems
from backend.errors import AtlasError
from backend.intake import Limits
from backend.service.worker import Worker

if TYPE_CHECKING:
    from backend.attribution.models import Loaded
    from backend.service.engine import Engine

CACHES = {"LRU_CACHE_CAPACITY": "32", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32"}
"""Torch builds a product in bfloat16 for every shape of a batch, and by default keeps 1,024 of them twice over: 850 MB
after a thousand batches of other lengths; one batch needs five. Read when it multiplies for the first time."""
REMEDY = "Tell whoever runs the server; its log says more"


@dataclass(frozen=True)
class Readiness:
    """Whether the proxy of the default ecosystem is in memory.

    problem, remedy : sentences without a full stop.
    """

    status: str  # absent (no ecosystem is enrolled here), loading, ready, failed
    proxy: str | None = None
    problem: str | None = None
    remedy: str | None = None


class Host:
    """The worker, its engine, and how far loading is.

    load : name of a proxy to its reader and the hash of its weights; by default out of the registry.
    """

    def __init__(self, ecosystems: Ecosystems, load: Callable[[str], Loaded] | None, limits: Limits) -> None:
        for name, capacity in CACHES.items():
            os.environ.setdefault(name, capacity)
        self.worker = Worker("attribution")
        self._ecosystems = ecosystems
        self._load = load
        self._limits = limits
        self._made: Engine | None = None
        self._lock = threading.Lock()
        self._readiness = Readiness(
            "absent", None, "No ecosystem is enrolled here", "Run: python -m jobs enroll --sample"
        )

    def state(self) -> Readiness:
        """How far loading is; begins it where an ecosystem appeared since."""
        if self._readiness.status == "absent" and not self._ecosystems.empty():
            self.warm()
        return self._readiness

    def warm(self) -> None:
        """Load the default ecosystem's proxy in the background; without an ecosystem nothing happens."""
        with self._lock:
            if self._ecosystems.empty() or self._readiness.status in ("loading", "ready"):
                return
            self._readiness = Readiness("loading")
        self.worker.submit(self._warm, short=True)

    def retry(self) -> None:
        """Load again where that failed; weights may have come since."""
        if self._readiness.status == "failed":
            self.warm()

    def _warm(self) -> None:
        proxy = None
        try:
            enrolment = self._ecosystems.enrolment(None)
            proxy = enrolment.proxy
            self._readiness = Readiness("loading", proxy)
            self.engine().warm(enrolment)
            self._readiness = Readiness("ready", proxy)
        except AtlasError as error:
            self._readiness = Readiness("failed", proxy, error.problem, error.remedy)
        except Exception as error:
            logging.getLogger(__name__).exception("The proxy could not be loaded")
            self._readiness = Readiness(
                "failed", proxy, f"The proxy could not be loaded ({type(error).__name__})", REMEDY
            )

    def engine(self) -> Engine:
        """Made in the worker's thread, because it brings torch and transformers."""
        if self._made is None:
            from backend.attribution.models import from_registry
            from backend.service.engine import Engine

            self._made = Engine(self._load or from_registry, self._limits)
        return self._made

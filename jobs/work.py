"""Score what the web processes queue, until it is told to stop: run as many as there is memory for.

``ATLAS_QUEUE`` names the queue. SIGTERM and Ctrl-C finish a short audit, and give a longer one back to others.
"""

from __future__ import annotations

import argparse
import os
import signal

from backend.errors import AtlasError
from backend.service.queue import VARIABLE
from backend.store.database import default_data_folder


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb; the variables are those of the web processes."""
    text = "answer Prometheus with the measurements of this worker at this port of the machine itself"
    parser.add_argument("--metrics-port", type=int, metavar="N", help=text)


def run(arguments: argparse.Namespace) -> None:
    """Work until a signal comes."""
    if not os.environ.get(VARIABLE):
        problem = f"{VARIABLE} is not set, so the web process scores what it takes"
        raise AtlasError(problem, f"Give both the same queue, such as {VARIABLE}=redis://127.0.0.1:6379/0")
    from atlas import logs
    from backend.service import measurements
    from backend.service.service import Service
    from backend.service.uploads import share_arena

    logs.configure()
    share_arena()
    service = Service(default_data_folder())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.leave())
    if arguments.metrics_port is not None:
        try:
            measurements.serve(arguments.metrics_port, load=service.load)
        except OSError as error:
            problem = f"Port {arguments.metrics_port} cannot be listened to ({error.strerror})"
            raise AtlasError(problem, "Give another --metrics-port") from error
    print(f"Worker {service.process} takes audits.", flush=True)
    service.work()

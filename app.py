"""Start the atlas: ``python app.py`` for one person, ``gunicorn app:server`` for many."""

from __future__ import annotations

import argparse
import atexit
import functools
import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dash import Dash

VARIABLES = """\
environment variables:
  ATLAS_HOST     where to listen (default: 127.0.0.1)
  ATLAS_PORT     at which port (default: 8050)
  ATLAS_HOSTS    names by which the server may be called, comma separated
  ATLAS_TOKEN    bearer token that uploads and the REST interface ask for
  ATLAS_OPEN     1 lets strangers upload where there is no token
  ATLAS_PROXY    1 believes the X-Forwarded headers of one reverse proxy
  ATLAS_DATA     folder of the published generation (default: data/)
  ATLAS_CACHE    folder of weights, fingerprints and uploads (default: in the user's cache folder)
  ATLAS_LOG      json writes one JSON object a line (default: text)
  ATLAS_AUDIT    file of the audit log, 0 for none (default: audit.jsonl in the cache folder)
  ATLAS_COMPILE  0 keeps the forward pass uncompiled
  ATLAS_QUEUE    queue from which workers take audits (default: this process scores them)
  ATLAS_STATE    database of jobs and cookies (default: a file in the cache folder)
  ATLAS_WATCHES  folder of watches that the page Watch shows (default: watches/ in the cache folder)

Many readers at once: gunicorn --workers 4 --threads 8 --graceful-timeout 90 app:server. See docs/deployment.md."""


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of the command line; those that are not given come from the environment."""
    parser = argparse.ArgumentParser(
        prog="python app.py",
        description="Serve the Provenance Atlas to the machine's own browser, or wherever the host says.",
        epilog=VARIABLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    host, port = os.environ.get("ATLAS_HOST", "127.0.0.1"), os.environ.get("ATLAS_PORT", "8050")
    parser.add_argument("--host", default=host, metavar="NAME", help="where to listen (default: ATLAS_HOST)")
    parser.add_argument("--port", default=port, metavar="N", help="at which port (default: ATLAS_PORT)")
    return parser.parse_args(arguments)


@functools.cache
def application() -> Dash:
    """The atlas; imported when it is asked for, so that help needs no second."""
    from backend.fingerprints import cache_folder
    from backend.service.process_group import share_measurements

    share_measurements(cache_folder() / "measurements")  # before anything imports what counts
    from atlas import logs
    from atlas.application import create_application
    from backend.service.uploads import share_arena

    logs.configure()
    share_arena()
    made = create_application()
    gc.collect()
    atexit.register(gc.unfreeze)
    gc.freeze()  # a collection holds every request for as long as it looks through what is never freed
    atexit.register(made.server.extensions["attribution"].close)
    return made


def __getattr__(name: str) -> Any:
    """``app`` and ``server``, which WSGI servers look for."""
    if name == "app":
        return application()
    if name == "server":
        return application().server
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def main() -> None:
    """Serve until somebody stops it."""
    options = parse_arguments()
    host, port = options.host, options.port
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        sys.exit(f"Error: '{port}' is no port. Give ATLAS_PORT or --port a number from 1 to 65535.")
    from atlas import listener
    from atlas.api import access
    from backend.errors import AtlasError

    try:
        server = application().server
    except AtlasError as error:
        sys.exit(f"Error: {error}")
    server.config[access.ADDRESS] = host
    print(f"The atlas is open at http://{host}:{port}", flush=True)
    if not access.is_near(host) and not access.guarded():
        print(f"Warning: {access.public_words(host)}", file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        listener.serve(server, host, int(port), proxied=access.behind_proxy())
    except OSError as error:
        sys.exit(f"Error: {host}:{port} cannot be listened to ({error.strerror}). Give another host or port.")


if __name__ == "__main__":
    main()

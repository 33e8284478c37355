"""Start the atlas: ``python app.py`` for one person, ``gunicorn app:server`` for many."""

from __future__ import annotations

import atexit
import os
import signal
import sys

from atlas import listener, logs
from atlas.api import access, sites
from atlas.application import create_application

logs.configure()
app = create_application()
server = app.server
atexit.register(server.extensions["attribution"].close)


def main() -> None:
    """Serve until somebody stops it."""
    host, port = os.environ.get("ATLAS_HOST", "127.0.0.1"), os.environ.get("ATLAS_PORT", "8050")
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        sys.exit(f"Error: ATLAS_PORT is '{port}', which is no port. Give a number from 1 to 65535.")
    server.config[sites.ADDRESS] = host
    print(f"The atlas is open at http://{host}:{port}", flush=True)
    if not sites.is_near(host) and not access.guarded():
        print(f"Warning: {access.public_words(host)}", file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        listener.serve(server, host, int(port), proxied=sites.behind_proxy())
    except OSError as error:
        sys.exit(f"Error: {host}:{port} cannot be listened to ({error.strerror}). Change ATLAS_HOST or ATLAS_PORT.")


if __name__ == "__main__":
    main()

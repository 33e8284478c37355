"""Start the atlas: ``python app.py`` for one person, ``gunicorn app:server`` for many."""

from __future__ import annotations

import os
import sys

import waitress

from atlas.api import sites
from atlas.application import UPLOAD_LIMIT, behind_proxy, create_application

app = create_application()
server = app.server
REFUSED = 4 * UPLOAD_LIMIT
"""Bytes of a request that are still read, in order to say in words that they are too many; then the line is cut."""


def main() -> None:
    """Serve until somebody stops it."""
    host, port = os.environ.get("ATLAS_HOST", "127.0.0.1"), os.environ.get("ATLAS_PORT", "8050")
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        sys.exit(f"Error: ATLAS_PORT is '{port}', which is no port. Give a number from 1 to 65535.")
    server.config[sites.NEAR] = sites.is_near(host)
    print(f"The atlas is open at http://{host}:{port}", flush=True)
    try:
        waitress.serve(
            server,
            host=host,
            port=int(port),
            threads=8,
            max_request_body_size=REFUSED,
            clear_untrusted_proxy_headers=not behind_proxy(),
        )
    except OSError as error:
        sys.exit(f"Error: {host}:{port} cannot be listened to ({error.strerror}). Change ATLAS_HOST or ATLAS_PORT.")


if __name__ == "__main__":
    main()

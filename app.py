"""Start the atlas: ``python app.py`` for one person, ``gunicorn app:server`` for many."""

from __future__ import annotations

import os

import waitress

from atlas.application import UPLOAD_LIMIT, create_application

app = create_application()
server = app.server

if __name__ == "__main__":
    host, port = os.environ.get("ATLAS_HOST", "127.0.0.1"), int(os.environ.get("ATLAS_PORT", "8050"))
    print(f"The atlas is open at http://{host}:{port}", flush=True)
    waitress.serve(server, host=host, port=port, threads=8, max_request_body_size=UPLOAD_LIMIT)

"""The secret of a server, in its cache folder: what it signs and hashes with."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from pathlib import Path

KEY_FILE = "session-key"


def server_key(file: Path) -> bytes:
    """The secret in a file, new where there is none; one that cannot be saved lasts as long as the process."""
    secret = secrets.token_bytes(32)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
        scratch.touch(mode=0o600, exist_ok=False)
        scratch.write_bytes(secret)
        with contextlib.suppress(FileExistsError):
            os.link(scratch, file)
        scratch.unlink()
        return file.read_bytes() or secret
    except OSError:
        logging.getLogger(__name__).warning("%s cannot be written; sessions end with this process", file)
        return secret

"""``python app.py``: what is wrong with where it should listen is one sentence."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def test_an_address_that_cannot_be_listened_to_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port, words in (("abc", "is no port"), ("70000", "is no port"), (str(taken.getsockname()[1]), "in use")):
            result = subprocess.run(
                [sys.executable, "app.py"],
                cwd=REPOSITORY,
                env={**os.environ, "ATLAS_PORT": port, "ATLAS_DATA": str(tmp_path), "ATLAS_CACHE": str(tmp_path)},
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            assert result.returncode == 1
            assert result.stderr.startswith("Error: ") and words in result.stderr
            assert len(result.stderr.splitlines()) == 1

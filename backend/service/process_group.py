"""Web processes of one server, which count their requests together."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from pathlib import Path

from backend.output_files import lock

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder of counts to prometheus_client, which looks at it when it is imported."""


def share_measurements(folder: Path) -> None:
    """Count together with the other processes of gunicorn, in a folder of their parent below ``folder``.

    Alone, or with a folder that the environment names already, nothing happens. Folders that no process uses are
    deleted. To be called before :mod:`backend.service.measurements` is imported.
    """
    if FOLDER in os.environ or not os.environ.get("SERVER_SOFTWARE", "").startswith("gunicorn"):
        return
    own = folder / str(os.getppid())
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with lock(folder):  # a folder that is not locked yet is unused to others that start now
            own.mkdir(exist_ok=True, mode=0o700)
            for place in folder.iterdir():
                _clear(place, delete=place != own)
            # Locked for as long as the process lives, so that the next server of this name or another one sees that.
            fcntl.flock(os.open(own, os.O_RDONLY), fcntl.LOCK_SH)
    except OSError as error:
        logging.getLogger(__name__).warning("%s cannot be used; every process counts alone (%s)", own, error.strerror)
        return
    os.environ[FOLDER] = str(own)


def _clear(place: Path, *, delete: bool) -> None:
    """Empty a folder that no process uses, or delete it."""
    handle = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if delete:
            shutil.rmtree(place, ignore_errors=True)
        else:
            for file in place.iterdir():
                file.unlink()
    except BlockingIOError:
        pass
    finally:
        os.close(handle)

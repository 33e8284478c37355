"""Messages of a watch to somebody else's address, with retries; no part of the address but its host is ever written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from backend.errors import AtlasError

ATTEMPTS = 5
FIRST_PAUSE = 1.0  # seconds before the second attempt; each further pause is twice as long
TIMEOUT = 10.0  # seconds for an answer
PASSING = frozenset({408, 425, 429})


class _TryAgainError(Exception):
    """The address may take it later."""


def check_address(address: str) -> None:
    """Refuse what is no address of http or https."""
    try:
        parts = urlsplit(address)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise AtlasError("The webhook is no address", "Write --webhook https://...")


def send(address: str, message: Mapping[str, Any], *, first_pause: float = FIRST_PAUSE) -> None:
    """Post a message as JSON. Raises AtlasError, with the host alone, where it was refused or nobody took it."""
    check_address(address)
    retrying = Retrying(
        retry=retry_if_exception_type(_TryAgainError), stop=stop_after_attempt(ATTEMPTS), reraise=True,
        wait=wait_exponential(multiplier=first_pause, min=first_pause, max=60.0),
    )  # fmt: skip
    host = urlsplit(address).hostname
    try:
        with httpx.Client(timeout=TIMEOUT, follow_redirects=False) as client:
            retrying(_post, client, address, message)
    except _TryAgainError as error:
        problem = f"{host} took no message of the watch in {ATTEMPTS} attempts ({error})"
        raise AtlasError(problem, "It is sent again at the next look; see whether the receiver runs") from None


def _post(client: httpx.Client, address: str, message: Mapping[str, Any]) -> None:
    try:
        status = client.post(address, json=dict(message)).status_code
    except httpx.HTTPError as error:
        raise _TryAgainError(type(error).__name__) from None  # its words may hold the address
    if status >= 500 or status in PASSING:
        raise _TryAgainError(f"it answered {status}")
    if status >= 300:
        problem = f"{urlsplit(address).hostname} refused the message of the watch ({status})"
        raise AtlasError(problem, "Check the address of --webhook")

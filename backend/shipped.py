"""Files that come with the code: in a checkout next to it, of a wheel where the wheel put them."""

from __future__ import annotations

import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARE = Path("share", "provenance-atlas")
"""Where a wheel puts them, below the folder of an installation (``pyproject.toml``, data-files)."""


def shipped(name: str) -> Path:
    """The folder ``data`` or ``assets``, whether or not it is there."""
    if (ROOT / "pyproject.toml").is_file():
        return ROOT / name
    user = sysconfig.get_preferred_scheme("user")
    places = [sysconfig.get_path("data"), sysconfig.get_path("data", user), str(ROOT)]  # ROOT: pip install --target
    found = [folder for place in places if (folder := Path(place) / SHARE / name).is_dir()]
    return found[0] if found else Path(places[0]) / SHARE / name

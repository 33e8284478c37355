"""Which installed packages run the atlas, and which only test it: ``python -m tests.locked_packages runtime|dev``."""

from __future__ import annotations

import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
ELSEWHERE = {"torch", "pip", "uv", "provenance-atlas"}  # locked in files of their own, or not at all
MARKERS = {"backports-zstd": 'python_full_version < "3.14"'}
# Never installed where the locks are written.
OTHER_SYSTEMS = {
    "appnope": ("1.0.0", 'sys_platform == "darwin"'),
    "async-timeout": ("5.0.1", 'python_full_version < "3.11.3"'),  # redis, on Debian's Python
}


def installed() -> dict[str, metadata.Distribution]:
    """Packages of the environment, without those that setuptools carries along and puts on the path when imported."""
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return {canonicalize_name(one.metadata["Name"]): one for one in metadata.distributions(path=places)}


def runtime() -> set[str]:
    """Names of what the project requires, and what that requires, as far as it is installed."""
    declared = tomllib.loads(PROJECT.read_text("utf-8"))
    waiting = [*map(Requirement, [*declared["project"]["dependencies"], *declared["build-system"]["requires"]])]
    found: set[str] = set()
    here = installed()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in found or (one.marker and not any(one.marker.evaluate({"extra": e}) for e in ("", *one.extras))):
            continue
        if name not in here:
            continue
        found.add(name)
        for text in here[name].requires or []:
            further = Requirement(text)
            if further.marker is None or any(further.marker.evaluate({"extra": e}) for e in ("", *one.extras)):
                further.marker = None
                waiting.append(further)
    return found - ELSEWHERE


def pins(kind: str) -> list[str]:
    """Requirements of a lock, 'runtime' or 'dev', as they are installed."""
    here, ours = installed(), runtime()
    names = ours if kind == "runtime" else set(here) - ours - ELSEWHERE - OTHER_SYSTEMS.keys()
    lines = [f"{n}=={here[n].version}" + (f"; {MARKERS[n]}" if n in MARKERS else "") for n in names]
    if kind == "dev":
        lines += [f"{name}=={version}; {marker}" for name, (version, marker) in OTHER_SYSTEMS.items()]
    return sorted(lines)


if __name__ == "__main__":
    print("\n".join(pins(sys.argv[1])))

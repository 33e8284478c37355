"""Fixtures that many tests share: the public release and a real proxy, where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backend.errors import AtlasError
from backend.proxies.reader import Reader
from backend.proxies.registry import load_reader
from backend.release import Release

REPOSITORY = Path(__file__).resolve().parent.parent


def release_folder() -> Path | None:
    """Where the public release lies, None without one."""
    given = os.environ.get("ATLAS_RELEASE")
    folder = Path(given) if given else REPOSITORY.parent / "shared" / "reader-release"
    return folder if (folder / "data" / "manifests" / "release.json").exists() else None


@pytest.fixture(scope="session")
def release() -> Release:
    folder = release_folder()
    if folder is None:
        pytest.skip("the public release is missing: python -m jobs fetch, then set ATLAS_RELEASE to its folder")
    return Release(folder)


@pytest.fixture(scope="session")
def smollm2() -> Reader:
    try:
        return load_reader("smollm2-135m", compile_blocks=False)
    except AtlasError as error:
        pytest.skip(f"the weights of smollm2-135m are missing: {error}")

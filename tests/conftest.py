"""Fixtures that many tests share, the public release and a real proxy where they are at hand; the order of tests."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from dash import Dash

from atlas.data import QueryCache
from backend.corpus.release import Release
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import save_enrolment
from backend.enrolment.fit import Sample, split_samples
from backend.errors import AtlasError
from backend.evaluations.corpus import Corpus
from backend.output_files import lock
from backend.proxies.reader import Reader
from backend.proxies.registry import load_reader
from tests.shipped_samples import read_samples, some_samples

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


@pytest.fixture(scope="session")
def samples_read(smollm2: Reader, tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Path]:
    """Some sources of the shipped samples as read here, and the cache with their fingerprints, which is not written to.

    The first process of a run that asks reads for all of them.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "samples"
    folder.mkdir(exist_ok=True)
    with lock(folder / "read.lock"):
        return read_samples(smollm2, folder), folder


@pytest.fixture(scope="session")
def sample(
    smollm2: Reader, samples_read: tuple[Corpus, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Enrolment, list[Sample]]:
    """Enrolment of some sources of the shipped samples, and the responses that were left out of it."""
    made = save_enrolment(some_samples(smollm2, samples_read[0]), tmp_path_factory.mktemp("sample") / "sample.npz")
    return made, [row for row in split_samples()[1] if row.source in made.sources]


@pytest.fixture
def asked(app: Dash) -> Iterator[QueryCache]:
    """What the pages ask of the atlas of a module (its fixture ``app``), within a request."""
    with app.server.test_request_context():
        yield app.server.extensions["atlas"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests first, slow ones after them, a browser last: what is broken shows early.

    Quick tests that share a fixture of their module with a slow one wait for it, so that nothing is made twice. Of each
    kind the longest files come first, so that no worker is alone with one at the end.
    """
    shared = {name for item in items if item.get_closest_marker("slow") for name in _of_module(item)}

    def late(item: pytest.Item) -> int:
        if item.get_closest_marker("browser"):
            return 2
        return int(item.get_closest_marker("slow") is not None or not shared.isdisjoint(_of_module(item)))

    takes = Counter[tuple[int, Path]]()
    for item in items:
        takes[late(item), item.path] += _seconds(item)
    items.sort(key=lambda item: (late(item), -takes[late(item), item.path]))


def _seconds(item: pytest.Item) -> int:
    """What a slow test says that it takes, ``slow(90)``; 20 where it does not say, and 1 for any other test."""
    marker = item.get_closest_marker("slow")
    return marker.args[0] if marker and marker.args else 20 if marker else 1


def _of_module(item: pytest.Item) -> set[tuple[str, str]]:
    """Fixtures of an item that live as long as its module."""
    known = getattr(item, "_fixtureinfo", None)
    made = known.name2fixturedefs.items() if known else ()
    return {(item.nodeid.partition("::")[0], name) for name, found in made if found[-1].scope == "module"}

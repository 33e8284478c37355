"""What a clone carries."""

from tests.conftest import REPOSITORY

MOST = 30_000_000
"""Bytes of ``data/``."""


def test_the_shipped_data_stays_small() -> None:
    sizes = {path: path.stat().st_size for path in (REPOSITORY / "data").rglob("*") if path.is_file()}
    largest = sorted(sizes, key=lambda path: -sizes[path])[:3]
    assert sum(sizes.values()) <= MOST, [(path.name, sizes[path]) for path in largest]

"""A smaller ecosystem of the shipped samples: a processor without wide products reads all of them for minutes."""

from __future__ import annotations

from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import enrolment_of_traces, split_samples
from backend.proxies.reader import Reader
from backend.proxies.registry import proxy_hash

SOME = ("gemma-answer", "smol-greedy", "smol-markdown", "smol-terse")


def half_of_samples(reader: Reader, blocks: tuple[int, ...] | None = None) -> Enrolment:
    """Enrolment of some sources of the shipped samples."""
    known, _ = split_samples()
    rows = [row for row in known if row.source in SOME]
    return enrolment_of_traces(
        [row.trace for row in rows], [row.source for row in rows], reader, name="samples", proxy="smollm2-135m",
        weights_hash=proxy_hash("smollm2-135m"), view="ur", layer=12, blocks=blocks,
        families={source: source.partition("-")[0] for source in SOME},
    )  # fmt: skip

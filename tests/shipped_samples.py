"""A smaller ecosystem of the shipped samples: a processor without wide products reads all of them for minutes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from backend.corpus.labelled import read_labelled
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import Sample, enrolment_of_traces, split_samples
from backend.enrolment.own_traces import _fingerprints, _tokens, options_for
from backend.evaluations.corpus import Corpus, cut_texts, cuts_of
from backend.evaluations.stages.readout_live import live_blocks
from backend.proxies.reader import Reader
from backend.proxies.registry import DEFAULT_PROXY, proxy_hash

SOME = ("gemma-answer", "smol-markdown", "smol-pirate", "smol-warm")
BLOCK = 12
"""Where the paper's probe of the samples stands."""


def enrolled_samples() -> list[Sample]:
    """Responses of some sources to the prompts that are enrolled, source by source as a labelled file is read."""
    return sorted((row for row in split_samples()[0] if row.source in SOME), key=lambda row: row.source)


def write_samples(path: Path) -> Path:
    """The same as a labelled file."""
    lines = [{"source": row.source, **dataclasses.asdict(row.trace)} for row in enrolled_samples()]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return path


def read_samples(reader: Reader, folder: Path) -> Corpus:
    """These responses at all blocks that an enrolment needs; a cache in ``folder`` keeps them, as enrolling would."""
    options = options_for("samples", DEFAULT_PROXY, layer=BLOCK)
    path = folder / "samples.jsonl"
    found = read_labelled(path if path.exists() else write_samples(path))  # another process may be reading it
    tokens, work = _tokens(found, reader, options.view)
    cuts, blocks = cuts_of(tokens), sorted({BLOCK, *live_blocks(DEFAULT_PROXY)})
    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("ATLAS_CACHE", str(folder))
        store = _fingerprints(found, reader, options, blocks, cuts, work)

    def load(block: int, condition: str) -> np.ndarray:
        return store.load(block, "full" if condition == "clean" else condition)

    texts = cut_texts(found.traces, reader, cuts)
    return Corpus(load, texts, tokens, found.labels, found.folds, len(found.sources))


def some_samples(reader: Reader, corpus: Corpus, blocks: tuple[int, ...] | None = None) -> Enrolment:
    """Enrolment of what was read, by the paper's probe, or by discriminants at some blocks."""
    rows = enrolled_samples()
    return enrolment_of_traces(
        [row.trace for row in rows], [row.source for row in rows], reader, name="samples", proxy=DEFAULT_PROXY,
        weights_hash=proxy_hash(DEFAULT_PROXY), view="ur", layer=BLOCK, blocks=blocks,
        families={source: source.partition("-")[0] for source in SOME},
        corpus=corpus if blocks else corpus.with_conditions(["clean"]), validated=not blocks,
    )  # fmt: skip

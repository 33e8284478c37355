"""The time left follows the work: shards of very different lengths, records that are read longest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backend.progress
from backend.extraction import Shard, characters_of, extract, grid_shards, list_shards
from backend.fingerprints import FingerprintStore, StoreKey
from backend.progress import ReadingBar, TimeLeft, stage_bar
from backend.proxies.encoding import Encoded
from backend.proxies.reader import Reader, Readout
from backend.traces import Trace, View
from tests.tiny_models import tiny_decoder, tiny_encoder, tiny_tokenizer

LENGTHS = (1, 60, 4, 2, 30, 90, 1, 15, 45, 8)
"""Words of a response, source by source."""
TRACES = [
    Trace(f"How do I restart queue {i}? " * 5, " ".join(["restart the queue"] * length))
    for length in LENGTHS
    for i in range(12)
]


class Clock:
    """A clock that stands still unless something is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedReader(Reader):
    """Takes a tenth of a second a token, and more in long rows, as attention does."""

    clock: Clock

    def read(
        self,
        encoded: Sequence[Encoded],
        layers: Sequence[int],
        readout: Readout | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Any:
        def timed(records: int, tokens: int) -> None:
            self.clock.now += 0.1 * tokens * (1 + tokens / max(records, 1) / 1000)
            assert progress is not None
            progress(records, tokens)

        return super().read(encoded, layers, readout, timed)


@pytest.fixture(scope="module", params=["decoder", "encoder"])
def reader(request: pytest.FixtureRequest) -> TimedReader:
    if request.param == "encoder":
        return TimedReader(tiny_encoder(), tiny_tokenizer(encoder=True), causal=False, batch_tokens=256)
    return TimedReader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False, batch_tokens=256)


@pytest.mark.parametrize("view", ["ur", "r"])
@pytest.mark.parametrize("kind", ["tokens of sources", "tokens of a mixture", "characters of a grid"])
def test_the_time_left_is_right_after_a_fifth_of_the_work(
    reader: TimedReader, view: View, kind: str, tmp_path: Path
) -> None:
    if kind == "characters of a grid":
        shards = grid_shards((3, 7, 10), 10, 12)
        work = characters_of(TRACES, shards, view, reader.max_tokens)
    else:
        shards = list_shards(len(TRACES), 12 if kind == "tokens of sources" else 50)
        work = {s.name: reader.tokens_run(reader.encode([TRACES[i] for i in s.rows], view)) for s in shards}
    reader.clock = Clock()
    total, records, done = sum(work.values()), 0, 0.0
    left = TimeLeft(total, reader.clock)
    told: list[tuple[float, float]] = []

    def step(count: int, part: float) -> None:
        nonlocal records, done
        records, done = records + count, done + part
        left.add(part)
        seconds = left.seconds()
        if done >= 0.2 * total and seconds is not None:
            told.append((reader.clock.now, seconds))

    store = FingerprintStore(StoreKey("labelled", "tiny", view), tmp_path)
    readout = Readout((None, 4) if reader.causal else (None,))
    extract(
        reader, store, TRACES, shards, view=view, layers=[2], readout=readout, records="r", proxy_hash="p", work=work,
        progress=step,
    )  # fmt: skip
    assert (records, done) == (len(TRACES), pytest.approx(total))
    assert len(told) > 3 and told[0][0] < 0.4 * reader.clock.now, "it speaks early enough"
    for now, seconds in told:
        assert seconds == pytest.approx(reader.clock.now - now, rel=0.25, abs=0.01 * reader.clock.now)


def test_a_warm_up_is_forgotten_and_time_runs_on_between_batches() -> None:
    clock = Clock()
    left = TimeLeft(100.0, clock)
    assert left.seconds() is None
    clock.now += 50.0  # compiling
    left.add(1.0)
    for _ in range(49):
        clock.now += 1.0
        left.add(1.0)
    assert left.seconds() == pytest.approx(50.0, rel=0.15)
    before = left.seconds()
    clock.now += 2.0
    assert before is not None and left.seconds() == pytest.approx(before - 2.0)
    clock.now += 1e6
    assert left.seconds() == 0.0


@given(st.lists(st.tuples(st.floats(0.1, 50), st.floats(0, 100)), min_size=1, max_size=40))
def test_at_a_steady_speed_the_time_left_is_exact(steps: list[tuple[float, float]]) -> None:
    clock = Clock()
    total = sum(work for work, _ in steps)
    left = TimeLeft(total, clock)
    for work, _ in steps:
        clock.now += 3.0 * work
        left.add(work)
        assert left.seconds() == pytest.approx(3.0 * total - clock.now, abs=1e-6 * total)


def test_work_counts_shared_prompts_once_and_long_texts_as_far_as_they_are_read() -> None:
    def work(traces: list[Trace], view: View = "ur") -> float:
        return characters_of(traces, [Shard("s", np.arange(len(traces)))], view)["s"]

    assert work([Trace("ab", "cde")]) == 5
    assert work([Trace("ab", "cde")], "r") == 3
    assert work([Trace("p" * 2000, "cde"), Trace("p" * 2000, "f")]) == 2004
    assert work([Trace("p" * 20, "cde"), Trace("p" * 20, "f")]) == 44, "sharing would not pay"
    assert work([Trace("", "c" * 100_000)]) == 4096


def test_the_bar_counts_records_and_shows_the_time_of_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(backend.progress, "TimeLeft", lambda work: TimeLeft(work, clock))
    with ReadingBar(100, 1000.0, "traces") as bar:
        assert "<?," in str(bar)
        clock.now += 60.0
        bar.step(10, 500.0)
        assert "10/100" in str(bar) and "<01:00," in str(bar) and "traces/s" in str(bar)
    assert "10/100" in capsys.readouterr().err


def test_stages_have_no_bar_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with stage_bar("Validating", 2, "parts") as bar:
        bar.update(2)
    assert capsys.readouterr().err == ""

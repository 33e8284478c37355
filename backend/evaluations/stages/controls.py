"""Controls next to the paper's readout: components, temporal forms, poolings, compression, variance.

Components and compressions use each fold's selected block, as ``reader-paper`` does, which is their reference. Temporal
representations and position poolings need arrays of their own and stand at one block, the modal one unless ``--layers``
names another; their reference is two DCT modes at that block. The variance is measured at any number of blocks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from tqdm import tqdm

from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice
from backend.errors import AtlasError
from backend.evaluations import artifacts, controls
from backend.evaluations.attribution import attribution_frames
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.roster_run import RosterRun
from backend.methods.readout import Floats, Ints
from backend.methods.registry import CONTROLS, title_of
from backend.methods.representations import MIXTURES, REPRESENTATIONS, temporal_evidence
from backend.protocol import FOLDS, READER_PAPER
from backend.proxies.registry import blocks_of
from backend.store.queries import selected_layers
from backend.store.writers import StageRows
from backend.traces import View

NAMES: Mapping[str, str] = {method: title_of(method) for method in CONTROLS}
"""Controls for people."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "components": tuple(controls.COMPONENTS),
    "compression": tuple(controls.compressions()),
    "variance": (),
    "temporal": (*REPRESENTATIONS, *MIXTURES),
    "positions": tuple(controls.poolings()),
}
"""What is computed together; ``--method`` takes these names or those of single controls."""
AT_ONE_BLOCK = frozenset({*GROUPS["temporal"], *GROUPS["positions"]})  # Controls that stand at one block in every fold
TWO_MODES = "dct-q2"  # The paper's representation at one block: what temporal forms and poolings are compared with


@dataclass(frozen=True)
class Bench:
    """What every control of one proxy, view and roster shares."""

    run: RosterRun
    rows: Slice
    proxy: str
    view: View
    of_fold: dict[int, int]  # Selected block of every outer fold
    block: int  # Where controls with one block stand
    blocks: list[int]  # Blocks of the variance decomposition

    @classmethod
    def of(cls, run: RosterRun, options: EvaluateOptions, view: View) -> Bench:
        """Look up the selected blocks of the paper's readout. Raises AtlasError if it was not evaluated yet."""
        reader = f"{READER_PAPER}/{options.proxy}/{view}"
        of_fold = run.fold_layers(reader, run.command(READER_PAPER, options.proxy, view))
        modal = int(selected_layers(run.connection, reader, run.roster)["layer"].iloc[-1])
        rows = run.rows(options.proxy, view)
        deepest = max(rows.layers(), default=modal)
        blocks = [modal] if options.layers == "all" else blocks_of(options.layers, deepest) or [modal]
        block = modal if modal in blocks else blocks[0]
        return cls(run, rows, options.proxy, view, of_fold, block, blocks)

    @property
    def where(self) -> str:
        """Proxy, view and roster for people."""
        return f"{self.proxy}/{self.view} on {self.run.roster}"

    @property
    def folds(self) -> Ints:
        """Outer fold of every row."""
        return np.tile(self.rows.prompt_folds, len(self.rows.sources))

    @property
    def at_block(self) -> dict[int, int]:
        """The one block, for every outer fold."""
        return dict.fromkeys(range(FOLDS), self.block)

    def reader(self, method: str) -> str:
        """Reader id of a control."""
        return f"{method}/{self.proxy}/{self.view}"

    def posteriors(self, method: str) -> Path:
        """File of a control's log-posteriors."""
        return self.run.folder(method, self.proxy, self.view) / artifacts.CLEAN_FILE

    def lacking(self, variant: str, needed: set[int]) -> AtlasError | None:
        """What to say when arrays of that kind are not on disk at some blocks, None when they are."""
        available = set(self.rows.layers(variant))
        if needed <= available:
            return None
        missing = sorted(needed - available)
        blocks = ",".join(map(str, missing))
        problem = f"The '{variant}' arrays of block {blocks} by {self.proxy} in view {self.view} are not on disk"
        lengths = " --lengths full" + ("" if variant == "full" else f" --{variant} {blocks}")
        command = artifacts.extraction(
            "agent500", self.run.roster, self.proxy, self.view, missing, lengths, self.run.limit
        )
        named = ", ".join(map(str, sorted(available)))
        other = f", or name a block that has them with --layers ({named})" if available else ""
        return AtlasError(problem, f"Run: {command}{other}")


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Evaluate controls; without ``--method`` a group whose arrays are missing is named and skipped."""
    groups = needed_groups(options.methods)
    for view in options.views:
        for roster in options.rosters:
            bench = Bench.of(RosterRun(connection, release, roster, options.limit), options, view)
            for group, methods in groups.items():
                variant = group if group in ("temporal", "positions") else "full"
                at = {bench.block} if group in ("temporal", "positions") else {*bench.of_fold.values(), *bench.blocks}
                step = STEPS[group]
                if methods == (TWO_MODES,):  # which every fingerprint holds
                    variant, step = "full", _two_modes
                lacking = bench.lacking(variant, at)
                if lacking is None:
                    step(bench, methods)
                    _reference(bench, methods)
                elif options.methods:
                    raise lacking
                else:
                    print(f"{group} of {bench.where} are skipped. {lacking}")


def needed_groups(methods: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Named groups with their controls; all where nothing is named. Raises AtlasError for an unknown name."""
    unknown = [name for name in methods if name not in GROUPS and name not in NAMES]
    if unknown:
        raise AtlasError(f"There is no control '{', '.join(unknown)}'", f"Choose from {', '.join((*GROUPS, *NAMES))}")
    chosen = {
        group: members if not methods or group in methods else tuple(name for name in members if name in methods)
        for group, members in GROUPS.items()
    }
    return {group: members for group, members in chosen.items() if members or not methods or group in methods}


@contextmanager
def _built(bench: Bench, details: dict[str, Any], fits: int = 0) -> Iterator[tuple[StageRows, Callable[..., object]]]:
    """A build of this stage, timed, and what to call after each of its ``fits``."""
    details |= {"prompts": len(bench.rows.prompt_ids), "sources": len(bench.rows.sources)}
    seldom, title = 0.5 if sys.stderr.isatty() else 15.0, f"Controls of {bench.where}"
    with (
        bench.run.build("controls", details, artifacts.weights_of(bench.rows), roster=bench.run.roster) as build,
        tqdm(total=fits, desc=title, unit="fit", mininterval=seldom, disable=not fits) as bar,
    ):
        started = time.perf_counter()
        yield build, lambda *_: bar.update()
        details["seconds"] = round(time.perf_counter() - started, 1)


def _write(build: StageRows, bench: Bench, evidence: Mapping[str, Floats], of_fold: Mapping[int, int]) -> None:
    """Save log-posteriors, and write metrics, accuracy a source and the blocks behind them."""
    folds, layers = list[Any](of_fold), list(of_fold.values())
    if len(set(layers)) == 1:  # the modal block, which has no fold
        folds, layers = [*folds, pd.NA], [*layers, layers[0]]
    blocks = pd.DataFrame({"outer_fold": pd.array(folds, dtype="Int64"), "layer": layers})
    for method, log_posteriors in evidence.items():
        artifacts.keep(bench.posteriors(method), log_posteriors)
        frames = attribution_frames(log_posteriors, bench.rows.sources, bench.rows.families, bench.rows.prompt_folds)
        # Only the paper's readout needs its confusions; of two dozen controls they would fill the store.
        frames = replace(frames, confusion=frames.confusion.iloc[:0])
        name = f"{NAMES[method]} · {bench.proxy} · {bench.view}"
        reader = bench.run.enter_reader(method, bench.proxy, bench.view, name)
        own = replace(build, key={**build.key, "reader": reader})
        artifacts.write_log_posteriors(own, log_posteriors, frames, bench.rows.prompt_folds)
        own.replace("layer_selection", blocks)
        artifacts.report_accuracy(own.key, frames.metrics)


def _represented(
    bench: Bench,
    methods: tuple[str, ...],
    representations: Mapping[str, controls.Represent],
    variant: str = "full",
    *,
    at_block: bool = False,
) -> None:
    """Fit representations at the selected blocks, or at the one block."""
    needed = {name: represent for name, represent in representations.items() if name in methods}
    of_fold = bench.at_block if at_block else bench.of_fold
    details: dict[str, Any] = {"methods": list(needed), "layers": sorted(set(of_fold.values())), "variant": variant}
    with _built(bench, details, len(needed) * FOLDS) as (build, progress):
        evidence = controls.matched_evidence(
            lambda layer: bench.rows.load(layer, variant),
            of_fold,
            bench.rows.labels,
            bench.folds,
            len(bench.rows.sources),
            needed,
            unscaled=controls.UNSCALED,
            progress=progress,
        )
        _write(build, bench, evidence, of_fold)


def _two_modes(bench: Bench, methods: tuple[str, ...] = (TWO_MODES,)) -> None:
    _represented(bench, methods, {TWO_MODES: controls.fixed(lambda rows: rows.astype(np.float32))}, at_block=True)


def _reference(bench: Bench, methods: tuple[str, ...]) -> None:
    """Make what temporal forms and poolings are compared with, unless it stands at their block."""
    if not methods or not set(methods) <= AT_ONE_BLOCK - {TWO_MODES}:
        return
    blocks = selected_layers(bench.run.connection, bench.reader(TWO_MODES), bench.run.roster)["layer"]
    if set(blocks) == {bench.block} and bench.posteriors(TWO_MODES).exists():
        return
    lacking = bench.lacking("full", {bench.block})
    if lacking is None:
        _two_modes(bench)
    else:
        print(f"{', '.join(methods)} of {bench.where} stay without a reference at block {bench.block}. {lacking}")


def _temporal(bench: Bench, methods: tuple[str, ...]) -> None:
    details: dict[str, Any] = {"methods": list(methods), "layers": [bench.block], "variant": "temporal"}
    with _built(bench, details, len(methods) * FOLDS) as (build, progress):
        found = temporal_evidence(
            bench.rows.load(bench.block, "temporal"),
            bench.rows.labels,
            bench.folds,
            len(bench.rows.sources),
            methods,
            progress=progress,
        )
        _write(build, bench, found.log_posteriors, bench.at_block)
        for method, weights in found.mixtures.items():
            build.replace("mixture_weights", weights, reader=bench.reader(method))


def _variance(bench: Bench, _methods: tuple[str, ...]) -> None:
    with _built(bench, {"layers": bench.blocks, "of": "variance"}) as (build, _):
        for layer in bench.blocks:
            frame = controls.variance_ratios(bench.rows.load(layer), len(bench.rows.sources), bench.rows.prompt_folds)
            build.replace("variance_ratios", frame, reader=bench.reader(READER_PAPER), layer=layer)
            ratios = frame[frame["fold"].isna()].set_index("block")["ratio"]
            values = ", ".join(f"{block} {ratio:.3f}" for block, ratio in ratios.items())
            print(f"Source-to-prompt variance of {bench.where}, block {layer}: {values}")


STEPS: Mapping[str, Callable[[Bench, tuple[str, ...]], None]] = {
    "components": partial(_represented, representations=controls.components()),
    "compression": partial(_represented, representations=controls.compressions()),
    "variance": _variance,
    "temporal": _temporal,
    "positions": partial(_represented, representations=controls.poolings(), variant="positions", at_block=True),
}

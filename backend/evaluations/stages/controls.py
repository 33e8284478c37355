"""Controls beside the paper's readout: components, temporal representations, position pooling, compression, variance.

Components and compressions use each fold's selected block, as ``reader-paper`` does, which is their reference. Temporal
representations and position poolings need arrays of their own and stand at one block, the modal one unless ``--layers``
names another; their reference is two DCT modes at that block, which is made with them. The variance is measured at any
number of blocks. Which block it was stands in the build and, for readers, in table ``layer_selection``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
from tqdm import tqdm

from backend.corpus.release import Release
from backend.corpus.stored import describe_proxy
from backend.errors import AtlasError
from backend.evaluations.artifacts import artifact_folder, keep, write_log_posteriors
from backend.evaluations.attribution import AttributionFrames, attribution_frames
from backend.evaluations.components import COMPONENTS, components
from backend.evaluations.compression import UNSCALED, compressions
from backend.evaluations.matched import Represent, fixed, matched_evidence
from backend.evaluations.pooling import poolings
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.bench import Bench
from backend.evaluations.variance import variance_ratios
from backend.methods.registry import CONTROLS, title_of
from backend.methods.representations import MIXTURES, REPRESENTATIONS, temporal_evidence
from backend.protocol import FOLDS, READER_PAPER, SPLIT_SEED
from backend.store.builds import command_line, recorded
from backend.store.queries import selected_layers
from backend.store.writers import replace_rows, write_reader

Floats = npt.NDArray[np.float32]
NAMES: Mapping[str, str] = {method: title_of(method) for method in CONTROLS}
"""Controls for people."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "components": tuple(COMPONENTS),
    "compression": tuple(compressions()),
    "variance": (),
    "temporal": (*REPRESENTATIONS, *MIXTURES),
    "positions": tuple(poolings()),
}
"""What is computed together; ``--method`` takes these names or those of single controls."""
AT_ONE_BLOCK = frozenset({*GROUPS["temporal"], *GROUPS["positions"]})
"""Controls that stand at one block in every fold."""
TWO_MODES = "dct-q2"
"""The paper's representation at one block: what temporal forms and poolings are compared with."""


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Evaluate the asked controls; without ``--method`` a group whose arrays are missing is named and left out."""
    needed = wanted_groups(options.methods)
    for view in options.views:
        for roster in options.rosters:
            bench = Bench.of(connection, release, options, view, roster)
            for group, methods in needed.items():
                variant = group if group in ("temporal", "positions") else "full"
                at = {bench.block} if group in ("temporal", "positions") else {*bench.of_fold.values(), *bench.blocks}
                if methods == (TWO_MODES,):  # which every fingerprint holds
                    variant, step = "full", _two_modes
                else:
                    step = STEPS[group]
                lacking = bench.lacking(variant, at)
                if lacking is None:
                    step(connection, bench, methods)
                    _reference(connection, bench, methods)
                elif options.methods:
                    raise lacking
                else:
                    print(f"{group} of {bench.where} are left out. {lacking}")


def wanted_groups(methods: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Asked groups with the controls of each; all of them where nothing is named.

    Raises
    ------
    AtlasError
        If a name is neither a group nor a control.
    """
    unknown = [name for name in methods if name not in GROUPS and name not in NAMES]
    if unknown:
        raise AtlasError(f"There is no control '{', '.join(unknown)}'", f"Choose from {', '.join((*GROUPS, *NAMES))}")
    if not methods:
        return dict(GROUPS)
    out = {}
    for group, members in GROUPS.items():
        chosen = members if group in methods else tuple(name for name in members if name in methods)
        if chosen or group in methods:
            out[group] = chosen
    return out


@contextmanager
def _built(connection: duckdb.DuckDBPyConnection, bench: Bench, details: dict[str, Any]) -> Iterator[str]:
    """A build of this stage; what the block adds to ``details`` is kept with it."""
    identity = bench.rows.store.identity()
    details |= {"prompts": len(bench.rows.prompt_ids), "sources": len(bench.rows.sources)}
    with recorded(
        connection,
        stage="controls",
        command=command_line(),
        data_hash=bench.release.manifest_hash,
        proxy_hash=identity.proxy_hash if identity else None,
        seed=SPLIT_SEED,
        details=details,
    ) as build:
        started = time.perf_counter()
        yield build
        details["seconds"] = round(time.perf_counter() - started, 1)


def _write(
    connection: duckdb.DuckDBPyConnection,
    bench: Bench,
    evidence: Mapping[str, Floats],
    of_fold: Mapping[int, int],
    build: str,
) -> None:
    """Keep log-posteriors, and write metrics, accuracy a source and the blocks behind them."""
    describe_proxy(connection, bench.proxy)
    blocks = pd.DataFrame({"outer_fold": pd.array(list(of_fold), dtype="Int64"), "layer": list(of_fold.values())})
    if len(set(of_fold.values())) == 1:
        fixed = pd.DataFrame({"outer_fold": pd.array([pd.NA], dtype="Int64"), "layer": [*set(of_fold.values())]})
        blocks = pd.concat([blocks, fixed], ignore_index=True)
    for method, log_posteriors in evidence.items():
        folder = artifact_folder(method, bench.proxy, bench.view, bench.roster, len(bench.rows.prompt_ids))
        keep(folder / "log_posteriors.npy", log_posteriors)
        frames = attribution_frames(log_posteriors, bench.rows.sources, bench.rows.families, bench.rows.prompt_folds)
        # Who is confused with whom is asked of the paper's readout; for two dozen controls it would fill the store.
        frames = AttributionFrames(frames.metrics, frames.source_accuracy, frames.confusion.iloc[:0])
        name = f"{NAMES[method]} · {bench.proxy} · {bench.view}"
        write_reader(connection, method=method, name=name, proxy=bench.proxy, view=bench.view)
        key = bench.key(method)
        about = {**key, "benchmark": "agent500", "condition": "clean"}
        write_log_posteriors(connection, about, log_posteriors, frames, bench.rows.prompt_folds, build)
        replace_rows(connection, "layer_selection", blocks, key, build)
        _report(method, bench, frames.metrics)


def _represented(
    connection: duckdb.DuckDBPyConnection,
    bench: Bench,
    methods: tuple[str, ...],
    representations: Mapping[str, Represent],
    of_fold: Mapping[int, int],
    variant: str = "full",
) -> None:
    needed = {name: represent for name, represent in representations.items() if name in methods}
    details: dict[str, Any] = {"methods": list(needed), "layers": sorted(set(of_fold.values())), "variant": variant}
    with _built(connection, bench, details) as build, _bar(bench, len(needed) * FOLDS) as bar:
        evidence = matched_evidence(
            lambda layer: bench.rows.load(layer, variant),
            of_fold,
            bench.rows.labels,
            bench.folds,
            len(bench.rows.sources),
            needed,
            unscaled=UNSCALED,
            progress=lambda _: bar.update(),
        )
        _write(connection, bench, evidence, of_fold, build)


def _components(connection: duckdb.DuckDBPyConnection, bench: Bench, methods: tuple[str, ...]) -> None:
    _represented(connection, bench, methods, components(), bench.of_fold)


def _compression(connection: duckdb.DuckDBPyConnection, bench: Bench, methods: tuple[str, ...]) -> None:
    _represented(connection, bench, methods, compressions(), bench.of_fold)


def _positions(connection: duckdb.DuckDBPyConnection, bench: Bench, methods: tuple[str, ...]) -> None:
    _represented(connection, bench, methods, poolings(), dict.fromkeys(range(FOLDS), bench.block), "positions")


def _two_modes(connection: duckdb.DuckDBPyConnection, bench: Bench, methods: tuple[str, ...]) -> None:
    whole = {TWO_MODES: fixed(lambda rows: rows.astype(np.float32))}
    _represented(connection, bench, methods, whole, dict.fromkeys(range(FOLDS), bench.block))


def _reference(connection: duckdb.DuckDBPyConnection, bench: Bench, methods: tuple[str, ...]) -> None:
    """Make what temporal forms and poolings are compared with, unless it stands at their block."""
    if not methods or not set(methods) <= AT_ONE_BLOCK - {TWO_MODES}:
        return
    stands = selected_layers(connection, str(bench.key(TWO_MODES)["reader"]), bench.roster)["layer"]
    folder = artifact_folder(TWO_MODES, bench.proxy, bench.view, bench.roster, len(bench.rows.prompt_ids))
    if set(stands) == {bench.block} and (folder / "log_posteriors.npy").exists():
        return
    lacking = bench.lacking("full", {bench.block})
    if lacking is None:
        _two_modes(connection, bench, (TWO_MODES,))
    else:
        print(f"{', '.join(methods)} of {bench.where} stay without a reference at block {bench.block}. {lacking}")


def _temporal(connection: duckdb.DuckDBPyConnection, bench: Bench, methods: tuple[str, ...]) -> None:
    details: dict[str, Any] = {"methods": list(methods), "layers": [bench.block], "variant": "temporal"}
    with _built(connection, bench, details) as build, _bar(bench, len(methods) * FOLDS) as bar:
        found = temporal_evidence(
            bench.rows.load(bench.block, "temporal"),
            bench.rows.labels,
            bench.folds,
            len(bench.rows.sources),
            methods,
            progress=lambda _: bar.update(),
        )
        _write(connection, bench, found.log_posteriors, dict.fromkeys(range(FOLDS), bench.block), build)
        for method, weights in found.mixtures.items():
            replace_rows(connection, "mixture_weights", weights, bench.key(method), build)


def _variance(connection: duckdb.DuckDBPyConnection, bench: Bench, _methods: tuple[str, ...]) -> None:
    with _built(connection, bench, {"layers": bench.blocks, "of": "variance"}) as build:
        for layer in bench.blocks:
            frame = variance_ratios(bench.rows.load(layer), len(bench.rows.sources), bench.rows.prompt_folds)
            replace_rows(connection, "variance_ratios", frame, {**bench.key(READER_PAPER), "layer": layer}, build)
            ratios = frame[frame["fold"].isna()].set_index("block")["ratio"]
            said = ", ".join(f"{block} {ratio:.3f}" for block, ratio in ratios.items())
            print(f"Source-to-prompt variance of {bench.where}, block {layer}: {said}")


STEPS: Mapping[str, Callable[[duckdb.DuckDBPyConnection, Bench, tuple[str, ...]], None]] = {
    "components": _components,
    "compression": _compression,
    "variance": _variance,
    "temporal": _temporal,
    "positions": _positions,
}


def _bar(bench: Bench, total: int) -> tqdm:
    seldom = 0.5 if sys.stderr.isatty() else 15.0
    return tqdm(total=total, desc=f"Controls of {bench.where}", unit="fit", mininterval=seldom)


def _report(method: str, bench: Bench, metrics: pd.DataFrame) -> None:
    summary = metrics[metrics["seed"].isna() & metrics["fold"].isna()]
    part = summary[(summary["metric"] == "accuracy") & (summary["reduction"] == "fold")]
    values = ", ".join(f"K = {k} {value:.3f}" for k, value in zip(part["k"], part["value"], strict=True))
    print(f"{method}/{bench.where}: accuracy {values}")

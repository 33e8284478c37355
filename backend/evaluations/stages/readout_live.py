"""The readouts of live attribution: discriminants over few blocks, as they are served (stage readouts).

They read three blocks of the proxy, the highest at about that of the paper's readout, with one member for whole and one
for short responses; word n-grams of the response may stand beside them. What is measured, kept and enrolled is the
same: banks and n-grams in few bits, a fold each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from backend.corpus.release import Release
from backend.corpus.stored import describe_proxy
from backend.errors import AtlasError
from backend.evaluations.artifacts import artifact_folder
from backend.evaluations.readout_bank import ServedBanks, bank_posteriors, beside, serve_banks
from backend.evaluations.readout_members import LENGTHS, loader
from backend.evaluations.stages.readout_calibration import Calibrator
from backend.evaluations.stages.readout_members import ELSEWHERE, Plan, Scorer, scorer_of
from backend.evaluations.stages.readout_words import Words, load_words, words_of
from backend.evaluations.stages.readout_writing import write_lengths, write_transfer
from backend.methods.discriminant_bank import DiscriminantBank, NgramBank
from backend.methods.head import BANK_PARTS
from backend.methods.registry import FUSED_LIVE, LDA_LIVE, title_of
from backend.protocol import CLEAN, FOLDS, SPLIT_SEED
from backend.proxies.registry import describe, registered
from backend.store.builds import command_line, recorded
from backend.store.writers import write_reader
from backend.traces import View

Ints = npt.NDArray[np.intp]
DEPTHS = (0.3, 0.5, 0.7)
"""Where in a proxy the blocks lie: 9, 15 and 21 of 30."""


def live_blocks(proxy: str, among: tuple[int, ...] = (), depth: int | None = None) -> tuple[int, ...]:
    """Blocks of a proxy that live attribution reads.

    Parameters
    ----------
    proxy : str
    among : tuple of int
        Blocks that are read anyway. Where none of the usual ones is among them, or the registry does not know how deep
        the proxy is, these are taken.
    depth : int, optional
        Of the proxy, where it is loaded.
    """
    if depth is None:
        known = registered().get(proxy)
        depth = known.depth if known else (0 if among else describe(proxy).depth)
    needed = {max(1, round(share * depth)) for share in DEPTHS} if depth else set()
    return tuple(sorted(needed & set(among) or among or needed))


def evaluate_live(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    proxy: str,
    blocks: tuple[int, ...],
    view: View,
    roster: str,
    limit: int | None = None,
    method: str = LDA_LIVE,
) -> None:
    """Fit, keep, measure and write the banks of one roster, with n-grams beside them or without."""
    scorer = scorer_of(release, Plan({proxy: blocks}, (), view=view), roster, limit)
    rows, others = scorer.rows[proxy], scorer.others[proxy]
    describe_proxy(connection, proxy)
    reader = write_reader(connection, method=method, name=f"{title_of(method)} · {proxy}", proxy=proxy, view=view)
    folder = artifact_folder(method, proxy, view, roster, len(rows.prompt_ids))
    key = {"reader": reader, "roster": roster}
    cells = {condition: scorer.cells(condition) for condition in LENGTHS}
    tokens = {condition: scorer.tokens(condition) for condition in LENGTHS}
    loads = {c: loader([rows.load(block, "full" if c == CLEAN else c) for block in blocks]) for c in LENGTHS}
    identity = rows.store.identity()
    details: dict[str, Any] = {"blocks": list(blocks)}
    with recorded(
        connection,
        stage="readouts",
        command=command_line(),
        data_hash=release.manifest_hash,
        proxy_hash=identity.proxy_hash if identity else None,
        seed=SPLIT_SEED,
        details=details,
    ) as build:
        calibrator = Calibrator(rows.prompt_folds, len(rows.sources), tokens)
        words = words_of(scorer, folder) if method == FUSED_LIVE else None
        found = serve_banks(
            {condition: load for condition, (load, _) in loads.items()},
            loads[CLEAN][1],
            scorer.labels,
            scorer.folds,
            scorer.classes,
            cells,
            validated=calibrator.fit,
            words=None if words is None else words.scores,
        )
        keep_banks(folder, found, blocks)
        right = {
            kind: round(float((held[CLEAN].argmax(1) == scorer.labels).mean()), 4)
            for kind, held in (("exact", found.exact), ("served", found.served))
        }
        details |= {"accuracy_of_one": right, "shares": np.mean([b.shares for b in found.banks.values()], 0).tolist()}
        if words is not None:
            details["shares_of_words"] = np.mean(list(found.shares.values()), 0).tolist()
        clean = write_lengths(
            connection, scorer, {"reader": reader, "roster": roster}, folder, found.served, calibrator, build
        )
        if set(blocks) <= set(others.layers()):
            plain, aligned = (_elsewhere(scorer, proxy, condition, found, words) for condition in ELSEWHERE)
            write_transfer(connection, scorer, key, folder, plain, aligned, clean, build)
        else:
            details["math100"] = "not all blocks are read"


def _elsewhere(
    scorer: Scorer, proxy: str, condition: str, found: ServedBanks, words: Words | None
) -> npt.NDArray[np.float32]:
    load, cells = scorer.elsewhere(proxy, condition), scorer.cells(condition)
    same = np.zeros(scorer.size(condition), dtype=np.intp)
    parts = [bank_posteriors(load, {0: found.banks[fold]}, same, cells) for fold in range(FOLDS)]
    if words is not None:
        parts = [
            beside(part, words.elsewhere[fold], {0: found.shares[fold]}, same, cells) for fold, part in enumerate(parts)
        ]
    return np.stack(parts)


def keep_banks(folder: Path, found: ServedBanks, blocks: tuple[int, ...]) -> None:
    """Keep the bank of every outer fold, and what n-grams count beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for fold, bank in found.banks.items():
        parts: dict[str, Any] = {name: getattr(bank, name) for name in BANK_PARTS}
        beside_it = {"word_shares": found.shares[fold]} if fold in found.shares else {}
        scratch = folder / f"bank.{fold}.partial.npz"
        np.savez(scratch, blocks=np.array(blocks), **parts, **beside_it)
        scratch.replace(folder / f"bank.{fold}.npz")


def load_banks(folder: Path, rerun_command: str) -> tuple[dict[int, DiscriminantBank], tuple[int, ...]]:
    """Banks of all outer folds, and the blocks that they read.

    Raises
    ------
    AtlasError
        If one is missing; ``rerun_command`` is what makes them.
    """
    banks, blocks = {}, set()
    for fold in range(FOLDS):
        path = folder / f"bank.{fold}.npz"
        if not path.exists():
            raise AtlasError(f"The discriminants of fold {fold} are missing in {folder}", f"Run: {rerun_command}")
        with np.load(path, allow_pickle=False) as held:
            blocks.add(tuple(int(block) for block in held["blocks"]))
            banks[fold] = DiscriminantBank(**{name: held[name] for name in BANK_PARTS})
    if len(blocks) > 1:
        raise AtlasError(f"The discriminants in {folder} were fitted on different blocks", f"Run: {rerun_command}")
    return banks, blocks.pop()


def load_ngram_banks(folder: Path, rerun_command: str) -> tuple[dict[int, NgramBank], tuple[int, ...]]:
    """Banks of all outer folds with their n-grams, and the blocks that they read.

    Raises
    ------
    AtlasError
        If a part of one is missing; ``rerun_command`` is what makes them.
    """
    banks, blocks = load_banks(folder, rerun_command)
    words = load_words(folder, rerun_command)
    found = {}
    for fold, bank in banks.items():
        with np.load(folder / f"bank.{fold}.npz", allow_pickle=False) as held:
            found[fold] = NgramBank(bank, words[fold], held["word_shares"])
    return found, blocks

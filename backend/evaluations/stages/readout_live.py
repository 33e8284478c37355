"""Readouts of live attribution: discriminants over few blocks, as they are served (stage readouts).

They read three blocks of the proxy, the highest at about that of the paper's readout, with one member for whole and one
for short responses; word n-grams of the response may be added. What is measured, saved and enrolled is the same: banks
and n-grams in few bits, a fold each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from backend.corpus.roster_rows import describe_proxy
from backend.errors import AtlasError
from backend.evaluations.artifacts import keep_arrays, load_folds, weights_of
from backend.evaluations.readouts import (
    LENGTHS,
    MODELS,
    WORD_SETTINGS,
    ServedBanks,
    add_ngrams,
    bank_posteriors,
    fit_words,
    score_words,
    serve_banks,
)
from backend.evaluations.stages.baselines import MATH
from backend.evaluations.stages.readout_members import TRANSFER, Plan, Scorer, scorer_of
from backend.evaluations.stages.readout_writing import Calibrator, write_lengths, write_transfer
from backend.evaluations.stages.roster_run import RosterRun
from backend.methods.discriminant import DiscriminantBank, NgramBank
from backend.methods.ngrams import CodedGrams, counts_of
from backend.methods.readout import Floats, Half
from backend.methods.registry import FUSED_LIVE, title_of
from backend.protocol import CLEAN, FOLDS
from backend.proxies.registry import describe, registered
from backend.store.writers import write_reader
from backend.traces import View

DEPTHS = (0.3, 0.5, 0.7)  # Where in a proxy the blocks lie: 9, 15 and 21 of 30


@dataclass(frozen=True)
class Words:
    """Word n-grams and their scores."""

    models: dict[int, CodedGrams]  # By the fold that each has not seen
    scores: Mapping[str, Half]  # condition to (SLOTS, n, C), float16
    transfer: Half  # (FOLDS, m, C), float16, of Math100


def words_of(scorer: Scorer, folder: Path) -> Words:
    """Fit whatever model is not saved in the folder, and score every condition."""
    counts = {condition: counts_of(scorer.texts(condition)) for condition in (*LENGTHS, MATH)}
    identity = json.dumps([scorer.identity, WORD_SETTINGS.as_text()])
    saved = {model: _saved_words(folder / f"words.{model}.npz", identity) for model in range(len(MODELS))}
    models = {model: readout for model, readout in saved.items() if readout is not None}
    missing = [model for model in saved if model not in models]
    read = {condition: counts[condition] for condition in LENGTHS}
    fits = fit_words(read, scorer.labels, scorer.folds, scorer.classes, missing)
    for model, fitted in tqdm(fits, desc="Fits · words", total=len(missing), unit="fit", disable=not missing):
        models[model] = fitted
        keep_arrays(folder / f"words.{model}.npz", identity=np.array(identity), **fitted.to_arrays())
    scores = score_words(read, scorer.folds, scorer.classes, dict(sorted(models.items())))
    transfer = np.empty((FOLDS, scorer.size(MATH), scorer.classes), np.float16)
    for fold in range(FOLDS):
        transfer[fold] = models[fold].log_posterior(counts[MATH])
    return Words({fold: models[fold] for fold in range(FOLDS)}, scores, transfer)


def load_words(folder: Path, rerun_command: str) -> dict[int, CodedGrams]:
    """Models of all outer folds. Raises AtlasError if one is missing; ``rerun_command`` is what makes them."""
    found = {fold: _saved_words(folder / f"words.{fold}.npz") for fold in range(FOLDS)}
    models = {fold: readout for fold, readout in found.items() if readout is not None}
    if len(models) < FOLDS:
        raise AtlasError(f"The n-grams of a fold are missing in {folder}", f"Run: {rerun_command}")
    return models


def _saved_words(path: Path, identity: str | None = None) -> CodedGrams | None:
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        if identity is not None and arrays["identity"].item() != identity:
            return None
        return CodedGrams(**{name: arrays[name] for name in CodedGrams.SHAPES})


def live_blocks(proxy: str, among: tuple[int, ...] = (), depth: int | None = None) -> tuple[int, ...]:
    """Blocks of a proxy that live attribution reads.

    among : Blocks that are read anyway. Where none of the usual ones is among them, or the registry does not know how
        deep the proxy is, these are taken.
    depth : Of the proxy, where it is loaded.
    """
    if depth is None:
        known = registered().get(proxy)
        depth = known.depth if known else (0 if among else describe(proxy).depth)
    needed = {max(1, round(share * depth)) for share in DEPTHS} if depth else set()
    return tuple(sorted(needed & set(among) or among or needed))


def evaluate_live(run: RosterRun, proxy: str, blocks: tuple[int, ...], view: View, method: str) -> None:
    """Fit, save, measure and write the banks of one roster, with n-grams or without."""
    scorer = scorer_of(run, Plan({proxy: blocks}, (), view=view))
    rows, others = scorer.rows[proxy], scorer.others[proxy]
    describe_proxy(run.connection, proxy)
    reader = write_reader(run.connection, method=method, name=f"{title_of(method)} · {proxy}", proxy=proxy, view=view)
    folder = run.folder(method, proxy, view)
    loads = {condition: scorer.load(proxy, condition) for condition in LENGTHS}
    details: dict[str, Any] = {"blocks": list(blocks)}
    with run.build("readouts", details, weights_of(rows), reader=reader, roster=run.roster) as build:
        calibrator = Calibrator(rows.prompt_folds, scorer.classes, {c: scorer.tokens(c) for c in LENGTHS})
        words = words_of(scorer, folder) if method == FUSED_LIVE else None
        found = serve_banks(
            {condition: load for condition, (load, _) in loads.items()},
            loads[CLEAN][1],
            scorer.labels,
            scorer.folds,
            scorer.classes,
            {condition: scorer.cells(condition) for condition in LENGTHS},
            validated=calibrator.fit,
            words=None if words is None else words.scores,
        )
        for fold, bank in found.banks.items():
            shares = {"word_shares": found.shares[fold]} if fold in found.shares else {}
            keep_arrays(folder / f"bank.{fold}.npz", blocks=np.array(blocks), **bank.to_arrays(), **shares)
        accuracies = {
            kind: round(float((posteriors[CLEAN].argmax(1) == scorer.labels).mean()), 4)
            for kind, posteriors in (("exact", found.exact), ("served", found.served))
        }
        shares_of_banks = np.mean([bank.shares for bank in found.banks.values()], 0).tolist()
        details |= {"accuracy_of_one": accuracies, "shares": shares_of_banks}
        if words is not None:
            details["shares_of_words"] = np.mean(list(found.shares.values()), 0).tolist()
        clean = write_lengths(build, scorer, folder, found.served, calibrator)
        if set(blocks) <= set(others.layers()):
            plain, aligned = (_transferred(scorer, proxy, condition, found, words) for condition in TRANSFER)
            write_transfer(build, scorer, folder, plain, aligned, clean)
        else:
            details["math100"] = "not all blocks are read"


def _transferred(scorer: Scorer, proxy: str, condition: str, found: ServedBanks, words: Words | None) -> Floats:
    """Log-posteriors (FOLDS, m, C) of Math100 by the bank of every fold."""
    load, cells = scorer.transfer_load(proxy, condition), scorer.cells(condition)
    same = np.zeros(scorer.size(condition), dtype=np.intp)
    parts = [bank_posteriors(load, {0: found.banks[fold]}, same, cells) for fold in range(FOLDS)]
    if words is not None:
        parts = [
            add_ngrams(part, words.transfer[fold], {0: found.shares[fold]}, same, cells)
            for fold, part in enumerate(parts)
        ]
    return np.stack(parts)


def load_banks(folder: Path, rerun_command: str) -> tuple[dict[int, DiscriminantBank], tuple[int, ...]]:
    """Banks of all outer folds, and the blocks that they read.

    Raises AtlasError if one is missing; ``rerun_command`` is what makes them.
    """
    folds = dict(load_folds(folder, "bank", "The discriminants of fold {} are", rerun_command))
    blocks = {tuple(int(block) for block in arrays["blocks"]) for arrays in folds.values()}
    if len(blocks) > 1:
        raise AtlasError(f"The discriminants in {folder} were fitted on different blocks", f"Run: {rerun_command}")
    names = DiscriminantBank.SHAPES
    banks = {fold: DiscriminantBank(**{name: arrays[name] for name in names}) for fold, arrays in folds.items()}
    return banks, blocks.pop()


def load_ngram_banks(folder: Path, rerun_command: str) -> tuple[dict[int, NgramBank], tuple[int, ...]]:
    """Banks of all outer folds with their n-grams, and the blocks that they read.

    Raises AtlasError if a part of one is missing; ``rerun_command`` is what makes them.
    """
    banks, blocks = load_banks(folder, rerun_command)
    words = load_words(folder, rerun_command)
    folds = load_folds(folder, "bank", "The discriminants of fold {} are", rerun_command)
    return {fold: NgramBank(banks[fold], words[fold], arrays["word_shares"]) for fold, arrays in folds}, blocks

"""Readouts of live attribution: discriminants over few blocks, as they are served (stage readouts).

They read three blocks of the proxy, the highest at about that of the paper's readout. What is measured, saved and
enrolled is the same: banks and n-grams in few bits, a fold each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from backend.errors import AtlasError
from backend.evaluations import readouts
from backend.evaluations.artifacts import keep_arrays, load_folds, saved_arrays, weights_of
from backend.evaluations.corpus import MATH
from backend.evaluations.stages.readout_members import TRANSFER, Plan, Scorer, scorer_of
from backend.evaluations.stages.readout_writing import Calibrator, write_lengths, write_transfer
from backend.evaluations.stages.roster_run import RosterRun
from backend.methods.discriminant import DiscriminantBank, NgramBank
from backend.methods.ngrams import CodedGrams, counts_of
from backend.methods.readout import Floats, Half
from backend.methods.registry import FUSED_LIVE, title_of
from backend.protocol import CLEAN, FOLDS
from backend.proxies.registry import describe, registered
from backend.traces import View

DEPTHS = (0.3, 0.5, 0.7)  # Where in a proxy the blocks lie: 9, 15 and 21 of 30


def score_ngrams(scorer: Scorer, folder: Path) -> tuple[dict[str, Half], Half]:
    """Scores of word n-grams, whose models are fitted where the folder lacks them.

    Returns condition to (SLOTS, n, C), float16, and those of Math100 (FOLDS, m, C), float16.
    """
    counts = {condition: counts_of(scorer.texts(condition)) for condition in (*readouts.LENGTHS, MATH)}
    identity = json.dumps([scorer.identity, readouts.WORD_SETTINGS.as_text()])
    saved = {model: saved_arrays(folder / f"words.{model}.npz", identity) for model in range(len(readouts.MODELS))}
    models = {model: CodedGrams(**arrays) for model, arrays in saved.items() if arrays is not None}
    missing = [model for model in saved if model not in models]
    read = {condition: counts[condition] for condition in readouts.LENGTHS}
    fits = readouts.fit_words(read, scorer.labels, scorer.folds, scorer.classes, missing)
    for model, fitted in tqdm(fits, desc="Fits · words", total=len(missing), unit="fit", disable=not missing):
        models[model] = fitted
        keep_arrays(folder / f"words.{model}.npz", identity=np.array(identity), **fitted.to_arrays())
    scores = readouts.score_words(read, scorer.folds, scorer.classes, dict(sorted(models.items())))
    transfer = [models[fold].log_posterior(counts[MATH]).astype(np.float16) for fold in range(FOLDS)]
    return scores, np.stack(transfer)


def live_blocks(proxy: str, among: tuple[int, ...] = (), depth: int | None = None) -> tuple[int, ...]:
    """Blocks of a proxy that live attribution reads.

    among : Blocks that are read anyway; they are taken where none of the usual ones is among them, or the registry does
        not know how deep the proxy is.
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
    reader = run.enter_reader(method, proxy, view, f"{title_of(method)} · {proxy}")
    folder, bank_rows = run.folder(method, proxy, view), scorer.bank_rows(proxy, readouts.LENGTHS)
    details: dict[str, Any] = {"blocks": list(blocks)}
    with run.build("readouts", details, weights_of(rows), reader=reader, roster=run.roster) as build:
        calibrator = Calibrator(rows.prompt_folds, scorer.classes, {c: scorer.tokens(c) for c in readouts.LENGTHS})
        words, math_words = score_ngrams(scorer, folder) if method == FUSED_LIVE else (None, None)
        cells = {condition: scorer.cells(condition) for condition in readouts.LENGTHS}
        found = readouts.serve_banks(bank_rows, cells, calibrator.fit, words)
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
            plain, aligned = (_transferred(scorer, proxy, condition, found, math_words) for condition in TRANSFER)
            write_transfer(build, scorer, folder, plain, aligned, clean)
        else:
            details["math100"] = "not all blocks are read"


def _transferred(scorer: Scorer, proxy: str, condition: str, found: readouts.ServedBanks, words: Half | None) -> Floats:
    """Log-posteriors (FOLDS, m, C) of Math100 by the bank of every fold."""
    load, cells = scorer.transfer_load(proxy, condition), scorer.cells(condition)
    same = np.zeros(scorer.size(condition), dtype=np.intp)
    parts = [readouts.bank_posteriors(load, {0: found.banks[fold]}, same, cells) for fold in range(FOLDS)]
    if words is not None:
        parts = [
            readouts.add_ngrams(part, words[fold], {0: found.shares[fold]}, same, cells)
            for fold, part in enumerate(parts)
        ]
    return np.stack(parts)


def load_banks(folder: Path, rerun_command: str) -> tuple[dict[int, DiscriminantBank], tuple[int, ...]]:
    """Banks of all outer folds, and the blocks that they read. Raises AtlasError if one is missing."""
    folds = dict(load_folds(folder, "bank", "The discriminants of fold {} are", rerun_command))
    blocks = {tuple(int(block) for block in arrays["blocks"]) for arrays in folds.values()}
    if len(blocks) > 1:
        raise AtlasError(f"The discriminants in {folder} were fitted on different blocks", f"Run: {rerun_command}")
    names = DiscriminantBank.SHAPES
    banks = {fold: DiscriminantBank(**{name: arrays[name] for name in names}) for fold, arrays in folds.items()}
    return banks, blocks.pop()


def load_ngram_banks(folder: Path, rerun_command: str) -> tuple[dict[int, NgramBank], tuple[int, ...]]:
    """Banks of all outer folds with their n-grams, and their blocks. Raises AtlasError if a part of one is missing."""
    banks, blocks = load_banks(folder, rerun_command)
    words = {
        fold: CodedGrams(**{name: arrays[name] for name in CodedGrams.SHAPES})
        for fold, arrays in load_folds(folder, "words", "The n-grams of a fold are", rerun_command)
    }
    folds = load_folds(folder, "bank", "The discriminants of fold {} are", rerun_command)
    return {fold: NgramBank(banks[fold], words[fold], arrays["word_shares"]) for fold, arrays in folds}, blocks

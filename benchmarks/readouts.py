"""Trials beside the discriminants: regression carried to its minimum, and experts for the siblings of a family.

    python benchmarks/readouts.py [--roster 100-way] [--proxy smollm2-135m] [--blocks 3,9,15,21,24] [--one 20]

Fitted on prompt folds 2 to 4 and asked about fold 1, as all trials of docs/readouts.md: training rows of outer fold 0.
Regression is multinomial, its weights penalised, by L-BFGS until nothing moves. Experts add weights of their own
to the discriminants' scores of the siblings of a family, and leave what the discriminants say of families as it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.corpus.release import Release, default_release
from backend.corpus.roster_rows import Slice, slice_of
from backend.evidence import accumulate
from backend.methods.estimators import ShrinkageDiscriminant
from backend.methods.probe import fit_experts, fit_regression, standardiser
from backend.protocol import GROUPING_SEEDS, budget_groups, grid_rows

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
TRAIN, TEST = (2, 3, 4), 1
BUDGETS = (1, 10, 50)


def curve(log_posteriors: Floats, prompt_folds: Ints) -> str:
    """Accuracy at the budgets on the test fold, mean over the grouping seeds."""
    classes, prompts = log_posteriors.shape[1], int((prompt_folds == TEST).sum())
    here = grid_rows(classes, prompts, np.ones(prompts, dtype=bool))
    out = []
    for k in BUDGETS:
        right = []
        for seed in GROUPING_SEEDS:
            groups, truth = budget_groups(here, k, seed, TEST)
            right.append((accumulate(log_posteriors, groups).argmax(1) == truth).mean())
        out.append(f"{np.mean(right):.3f}")
    return " / ".join(out)


def told(name: str, scores: Floats, prompt_folds: Ints, started: float) -> None:
    """One line."""
    said = curve(log_softmax(scores, axis=1).astype(np.float32), prompt_folds)
    print(f"{name:<58} {said}   {time.perf_counter() - started:6.0f} s", flush=True)


def trial(rows: Slice, blocks: Sequence[int], penalties: Sequence[float]) -> None:
    """Discriminants, regression and experts on some blocks."""
    folds, labels, classes = np.tile(rows.prompt_folds, len(rows.sources)), rows.labels, len(rows.sources)
    train, test = np.isin(folds, TRAIN), folds == TEST
    print(f"blocks {'+'.join(map(str, blocks))}: accuracy at {', '.join(map(str, BUDGETS))} traces")
    loaded = [rows.load(block) for block in blocks]
    seen, asked = (np.concatenate([part[some] for part in loaded], axis=1, dtype=np.float32) for some in (train, test))
    mean, scale = standardiser(seen)
    seen, asked, truth = (seen - mean) / scale, (asked - mean) / scale, labels[train]
    started = time.perf_counter()
    discriminant = ShrinkageDiscriminant(0.1).fit(seen, truth).readout_
    told("discriminants", discriminant.scores(asked), rows.prompt_folds, started)
    for penalty in penalties:
        started = time.perf_counter()
        found = fit_regression(seen, truth, classes, penalty)
        told(f"regression, penalty {penalty:g}", found.scores(asked), rows.prompt_folds, started)
    families = np.unique(rows.families, return_inverse=True)[1]
    for penalty in penalties:
        started = time.perf_counter()
        out = fit_experts(seen, truth, families, discriminant, penalty).log_posterior(asked)
        told(f"discriminants, experts within families, penalty {penalty:g}", out, rows.prompt_folds, started)


def main() -> int:
    """Run the trials and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roster", default="100-way")
    parser.add_argument("--proxy", default="smollm2-135m")
    parser.add_argument("--view", default="ur", choices=("ur", "r"))
    parser.add_argument("--blocks", default="3,9,15,21,24")
    parser.add_argument("--one", default="20", help="the single block")
    parser.add_argument("--penalties", default="1e-4,1e-3,1e-2")
    parser.add_argument("--release", type=Path, default=None)
    arguments = parser.parse_args()
    release = Release(arguments.release or default_release())
    rows = slice_of(release, "agent500", arguments.proxy, arguments.view, arguments.roster, None)
    penalties = [float(part) for part in arguments.penalties.split(",")]
    for blocks in (arguments.one, arguments.blocks):
        trial(rows, [int(block) for block in blocks.split(",")], penalties)
    return 0


if __name__ == "__main__":
    sys.exit(main())

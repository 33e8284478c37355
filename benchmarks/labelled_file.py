"""What methods are worth on a file of labelled traces: the release's, as if they were somebody's own.

    python benchmarks/labelled_file.py [--sources 60] [--prompts 100] [--release FOLDER]

Evenly drawn sources answer the first prompts of Agent500. Every method is fitted as python -m jobs enroll FILE fits it,
from stored fingerprints of the blocks that live attribution reads and of the probe's; all are measured on the same
folds. Prints accuracy and calibration error at every budget, what was chosen, and seconds; of the paper's probe and of
what was chosen also how well families that are not enrolled are told from those that are (each family's columns left
out), and how often an enrolled one is rejected.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.attribution.transfer import Part
from backend.corpus.release import Release, default_release
from backend.enrolment.head_fits import METHODS, Fits, FittedHeads, choose, fit_chosen, heads_of
from backend.errors import AtlasError
from backend.evaluations.attribution import scan_layers, select_layers
from backend.evaluations.corpus import cuts_of
from backend.evaluations.stages.readout_live import live_blocks
from backend.inference.calibration import WITH_BIAS
from backend.inference.unknown_source import LeftOut, unknown_frame, without_columns
from backend.inference.validation import calibration_frame
from backend.protocol import CLEAN, FOLDS, fold_of_prompts
from backend.proxies.registry import DEFAULT_PROXY


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=60)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--release", type=Path)
    arguments = parser.parse_args()
    release, n = Release(arguments.release or default_release()), arguments.sources
    part = Part.of(release, "agent500", DEFAULT_PROXY, "100-way", arguments.prompts)
    prompts = len(part.traces) // len(part.sources)
    drawn = np.linspace(0, len(part.sources) - 1, n).astype(np.intp)
    rows = (drawn[:, None] * prompts + np.arange(prompts)).ravel()
    texts = [trace.prompt.strip() for trace in part.traces[:prompts]]
    fold_of = dict(zip(sorted(texts), fold_of_prompts(sorted(texts)).tolist(), strict=True))
    folds = np.array([fold_of[text] for text in texts], dtype=np.intp)
    labels = np.repeat(np.arange(n), prompts)
    corpus = replace(part.corpus.take(rows), labels=labels, folds=np.tile(folds, n), classes=n)
    corpus = corpus.with_conditions((CLEAN, *cuts_of(corpus.tokens)))

    def load(layer: int) -> npt.NDArray[np.floating]:
        return corpus.fingerprints(layer, CLEAN)

    layers = sorted({layer for layer, _ in part.arrays})
    chosen = select_layers(scan_layers(load, layers, labels, corpus.folds, n)).dropna()
    of_fold = {int(fold): int(layer) for fold, layer in zip(chosen["outer_fold"], chosen["layer"], strict=True)}
    print(f"{n} sources, {prompts} prompts; the probe reads blocks {[of_fold[fold] for fold in range(FOLDS)]}")
    fits = Fits(corpus, DEFAULT_PROXY, live_blocks(DEFAULT_PROXY), of_fold)
    started = time.perf_counter()
    choice = choose(fits)
    best = fit_chosen(fits, choice)
    print(*choice.lines, *choice.tunings, f"{time.perf_counter() - started:.0f} s to choose and fit", sep="\n")
    probe = heads_of(fits, METHODS[0])
    paper = report("reader-paper", probe, folds)
    for method in METHODS[1:]:
        report(method, heads_of(fits, method), folds)
    print(f"auto has {report('auto', best, folds) / paper:.3f} times the accuracy of reader-paper at K = 1")
    families = np.array(part.families)[drawn]
    for name, fitted in (("reader-paper", probe), ("auto", best)):
        report_unknown(name, fitted, folds, families)
    return 0


def report(name: str, fitted: FittedHeads, folds: npt.NDArray[np.intp]) -> float:
    """Print accuracy and calibration error at every budget; gives the accuracy of single traces."""
    frame = calibration_frame(fitted.log_posteriors[CLEAN], folds, with_bias=WITH_BIAS)
    found = {
        metric: frame[frame["metric"].eq(metric)].set_index("k")["value"] for metric in ("accuracy_before", "ece_after")
    }
    for metric, values in found.items():
        print(f"{name:20s} {metric:16s}", *(f"K = {k}: {value:.3f}" for k, value in values.items()), flush=True)
    return float(found["accuracy_before"].loc[1])


def report_unknown(name: str, fitted: FittedHeads, folds: npt.NDArray[np.intp], families: npt.NDArray[np.str_]) -> None:
    """Print how families that are not enrolled are told from those that are."""
    sources, prompts = len(families), len(folds)
    source, prompt = np.repeat(np.arange(sources), prompts), np.tile(np.arange(prompts), sources)
    runs = []
    for family in np.unique(families):
        enrolled = np.flatnonzero(families != family)
        runs.append(LeftOut(without_columns(fitted.log_posteriors[CLEAN], enrolled), source, prompt, enrolled))
    frame = unknown_frame(runs, folds, "family", "relative-mahalanobis", (5, 10, 20))
    for metric in ("auroc", "false_rejection", "false_acceptance"):
        values = frame[frame["metric"].eq(metric)].set_index("k")["value"]
        print(f"{name:20s} {metric:16s}", *(f"K = {k}: {value:.3f}" for k, value in values.items()), flush=True)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except AtlasError as error:
        raise SystemExit(f"{error}") from error

"""Some sources and prompts of Agent500 for trials of new members, and what they bring beside blocks and words.

Fitted on prompts of folds 2 to 4 and asked about fold 1, as all trials of docs/readouts.md. Members are weighed on the
very rows that are asked, so what is printed is what a member could bring at most.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from backend.corpus.release import Release, default_release
from backend.methods.estimators import ShrinkageDiscriminant
from backend.methods.ngrams import BITS, GRAMS, count_grams, fit_grams
from backend.methods.probe import standardiser
from backend.protocol import fold_of_prompts
from backend.proxies.registry import load_reader
from backend.traces import Trace
from benchmarks.readouts import TEST, TRAIN
from benchmarks.text_readouts import weighed

Floats = npt.NDArray[np.float32]
BLOCKS = (3, 9, 15, 21, 24)


@dataclass(frozen=True)
class TrialRows:
    """Responses of a trial: their source, which of them are asked, and their states at the usual blocks (n, f)."""

    traces: list[Trace]
    truth: npt.NDArray[np.int64]
    asked: npt.NDArray[np.bool_]
    states: Floats

    @property
    def sources(self) -> int:
        return int(self.truth.max()) + 1

    def fitted(self, values: Floats) -> Floats:
        """Log-posteriors of the rows that are asked, by discriminants of the others."""
        mean, scale = standardiser(values[~self.asked])
        values = (values - mean) / scale
        model = ShrinkageDiscriminant(0.1).fit(values[~self.asked], self.truth[~self.asked])
        return log_softmax(model.readout_.scores(values[self.asked]), axis=1).astype(np.float32)

    def words(self) -> Floats:
        """Log-posteriors of the rows that are asked, by word n-grams of the others."""
        counts = count_grams([trace.response for trace in self.traces], "word", (1, 2, 3), BITS)
        model = fit_grams(counts[~self.asked], self.truth[~self.asked], self.sources, GRAMS["word"].settings, 0)
        return model.log_posterior(counts[self.asked]).astype(np.float32)

    def tell(self, members: Mapping[str, Floats], more: Sequence[str]) -> None:
        """Print what every member has alone, and some of them beside blocks, words and both."""
        known = {"blocks": self.fitted(self.states), "words": self.words(), **members}
        truth = self.truth[self.asked]
        for name, scores in known.items():
            print(f"{name:<44} {(scores.argmax(1) == truth).mean():.4f}")
        for base in (("blocks",), ("words",), ("blocks", "words")):
            for names in (base, *((*base, name) for name in more)):
                scores = weighed([known[name] for name in names], truth)
                likely = scores[np.arange(len(scores)), truth].mean()
                right = (scores.argmax(1) == truth).mean()
                print(f"{' + '.join(names):<44} {right:.4f}   mean log posterior {likely:.4f}")


def parser_of(document: str | None) -> argparse.ArgumentParser:
    """The options of a trial."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxy", default="smollm2-135m")
    parser.add_argument("--sources", type=int, default=30)
    parser.add_argument("--prompts", type=int, default=60, help="of every fold")
    parser.add_argument("--keep", type=Path, default=None, help="file for what was read, used where it is there")
    parser.add_argument("--release", type=Path, default=None)
    return parser


def rows_of(arguments: argparse.Namespace) -> TrialRows:
    """The same random sources and prompts for every trial of these options, read by the proxy."""
    release = Release(arguments.release or default_release())
    records, ids = release.records("agent500").traces, release.prompts("agent500")["sample_id"].tolist()
    random, prompts, folds = np.random.default_rng(0), len(ids), fold_of_prompts(ids)
    sources = np.sort(random.permutation(len(release.roster("100-way")))[: arguments.sources])
    chosen = np.concatenate(
        [random.permutation(np.flatnonzero(folds == fold))[: arguments.prompts] for fold in (TEST, *TRAIN)]
    )
    chosen.sort()
    traces = [records[source * prompts + prompt] for source in sources for prompt in chosen]
    reader = load_reader(arguments.proxy)
    read = reader.read(reader.encode(traces, "ur"), BLOCKS)
    return TrialRows(
        traces,
        np.repeat(np.arange(len(sources)), len(chosen)),
        np.tile(folds[chosen] == TEST, len(sources)),
        np.concatenate([read[block, "full"] for block in BLOCKS], axis=1).astype(np.float32),
    )

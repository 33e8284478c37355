"""How fast n-gram classifiers are fitted: weighted bags against sparse products, on real responses.

    python benchmarks/fit_ngrams.py [--prompts 60] [--sources 100] [--method ngram-word] [--release FOLDER]

Both take the same rows and weights through the two products that one step of the fit needs. What the classifier then
takes to converge is printed too. Counting the n-grams is not counted.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.corpus.release import BENCHMARKS, Release, default_release
from backend.errors import AtlasError
from backend.methods.ngrams import SETTINGS, Counts, count, fit_ngrams, multiplier, weigh

ROUNDS = 3


def sparse(rows: Counts) -> Callable[[torch.Tensor], torch.Tensor]:
    """The product by torch's own sparse matrix."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks)")
        edges, columns = (torch.from_numpy(part.astype(np.int32)) for part in (rows.indptr, rows.indices))
        matrix = torch.sparse_csr_tensor(edges, columns, torch.from_numpy(rows.data), size=rows.shape)
    return lambda dense: matrix @ dense


def seconds(make: Callable[[Counts], Callable[[torch.Tensor], torch.Tensor]], rows: Counts, classes: int) -> float:
    """Of one product forth and one back, the best of a few."""
    forth, back = make(rows), make(rows.T.tocsr())
    weight, error = torch.randn(rows.shape[1], classes), torch.randn(rows.shape[0], classes)
    took = []
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        forth(weight)
        back(error)
        took.append(time.perf_counter() - started)
    return min(took[1:])


def real(release: Release, prompts: int, sources: int) -> tuple[list[str], npt.NDArray[np.intp]]:
    """Responses of the first prompts, and their sources."""
    records = release.records(BENCHMARKS[0])
    rows = np.arange(sources)[:, None] * len(records.prompt_ids) + np.arange(prompts)
    return [records.traces[i].response for i in rows.ravel()], np.repeat(np.arange(sources), prompts)


def main() -> int:
    """Run both and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--sources", type=int, default=100)
    parser.add_argument("--method", choices=tuple(SETTINGS), default="ngram-word")
    parser.add_argument("--release", type=Path, default=None)
    asked = parser.parse_args()
    try:
        texts, labels = real(Release(asked.release or default_release()), asked.prompts, asked.sources)
    except AtlasError as found:
        print(found, file=sys.stderr)
        return 1
    settings = SETTINGS[asked.method]
    counts = count(texts, settings)
    started = time.perf_counter()
    model = fit_ngrams(counts, labels, asked.sources, settings)
    fit = time.perf_counter() - started
    rows = weigh(counts[:, model.columns], model.idf)
    bags, matrix = seconds(multiplier, rows, asked.sources), seconds(sparse, rows, asked.sources)
    n, width = rows.shape
    print(f"{n} rows, {width} n-grams, {rows.nnz / n:.0f} a row, {asked.sources} sources")
    print(f"weighted bags {bags:.3f} s a step, sparse products {matrix:.3f} s, ratio {matrix / bags:.2f}")
    print(f"whole fit {fit:.1f} s, {model.iterations} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())

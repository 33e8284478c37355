"""Is UNKNOWN false outside the benchmark? Verdicts on traces of enrolled sources about other prompts than enrolled.

    python benchmarks/transfer.py [--groups 20] [--category NAME --limit 100]

Groups of Math100 go through the served default ecosystem, trace by trace, as an auditor's would. With ``--category`` a
category of Agent500 is left out, the others are enrolled anew from stored fingerprints, and it is asked about. The exit
status is 1 where more than 5 % of the groups are called UNKNOWN.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.attribution.decision import find, fitted_statistics_of
from backend.attribution.scoring import Attributor
from backend.attribution.transfer import CATEGORY, Part, ask
from backend.corpus.release import Release, default_release
from backend.enrolment.catalogue import Ecosystems
from backend.proxies.registry import load_reader
from backend.store.database import default_data_folder

MOST = 0.05
K, SEED = 20, 7


def served(release: Release, groups: int) -> float:
    """Share of UNKNOWN among groups of 20 Math100 traces, by the default ecosystem; prints every answer's count."""
    enrolment = Ecosystems(default_data_folder()).enrolment(None)
    attributor = Attributor(load_reader(enrolment.proxy), enrolment)
    records = release.records("math100")
    width, rng = len(records.prompt_ids), np.random.default_rng(SEED)
    tally, companions = Counter[str](), fitted_statistics_of(enrolment)
    for number in rng.choice(len(enrolment.sources), groups, replace=False).tolist():
        rows = number * width + rng.choice(width, K, replace=False)
        scored = attributor.score([records.traces[row] for row in rows])
        found = find(scored, enrolment, companions=companions, orders=1)
        tally[found.verdict.outcome] += 1
        tally[f"because {found.verdict.reason}"] += 1
        tally["leader right"] += found.leader == number
        tally["right family"] += enrolment.families[found.leader] == enrolment.families[number]
    print(f"Math100 by {enrolment.name}, {groups} groups of {K}:")
    for name, count in tally.most_common():
        print(f"  {count / groups:6.2f}  {name}")
    return tally["UNKNOWN"] / groups


def excluded(release: Release, kind: str, roster: str, method: str, limit: int | None) -> float:
    """Share of UNKNOWN among groups of a category that was not enrolled, at the largest K of at least 5."""
    part = Part.of(release, "agent500", "smollm2-135m", roster, limit)
    kinds = release.prompts("agent500")["category"].to_numpy()[:limit]
    frame = ask(part.some(kinds != kind).enrol(method), part.some(kinds == kind), CATEGORY)
    wide = frame.pivot(index="metric", columns="k", values="value")
    print(f"{kind}, left out, {method} on {roster}:\n{wide.round(3).to_string()}")
    return float(wide.loc["false_unknown", [k for k in wide if k >= 5]].max())


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--category", help="also leave this category out, e.g. 'Documentation and communication'")
    parser.add_argument("--roster", default="100-way")
    parser.add_argument("--method", default="reader-paper")
    parser.add_argument("--limit", type=int, help="only the first prompts of Agent500")
    options = parser.parse_args()
    release = Release(default_release())
    shares = [served(release, options.groups)]
    if options.category:
        shares.append(excluded(release, options.category, options.roster, options.method, options.limit))
    return int(max(shares) > MOST)


if __name__ == "__main__":
    sys.exit(main())

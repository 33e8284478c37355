"""What an enrolment of a roster answers about held-out groups of the release, from stored fingerprints."""

from __future__ import annotations

import numpy as np

from backend.corpus.release import Release
from backend.corpus.roster_rows import slice_of
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.heads import of_states
from backend.enrolment.held_out_answers import BUDGET, Answers, answered, grouping
from backend.errors import AtlasError
from backend.protocol import GROUPING_SEEDS
from backend.store.builds import code_version, command_line, host, portable


def reads_stored(enrolment: Enrolment) -> bool:
    """Whether it is of a roster, with a head for every fold that reads states alone, or words beside them."""
    whole = any(head.fold is None for head in enrolment.heads)
    return "roster" in enrolment.facts and enrolment.form is not None and not whole


def fills_groups(enrolment: Enrolment, k: int = BUDGET) -> bool:
    """Whether every fold holds the prompts of a group."""
    return int(np.bincount(enrolment.folds).min()) >= k


def answers_of(enrolment: Enrolment, release: Release, k: int = BUDGET) -> Answers:
    """What an enrolment of a roster says of the groups of the first grouping seed, from stored fingerprints.

    Raises AtlasError if fingerprints are missing, or a fold does not hold so many prompts.
    """
    roster = str(enrolment.facts["roster"])
    if not fills_groups(enrolment, k):
        raise AtlasError(f"The folds of '{enrolment.name}' do not all hold {k} prompts", "Give a smaller --k")
    rows = slice_of(release, "agent500", enrolment.proxy, enrolment.view, roster)
    groups = grouping(len(rows.sources), rows.prompt_folds, k)
    for layer in {layer for head in enrolment.heads for layer in head.layers}:
        rows.load(layer, enrolment.form.variant if enrolment.form else "full")  # speaks before all texts are counted
    said = of_states(enrolment, rows, release.records("agent500").traces[: len(rows.labels)])
    folds = np.tile(rows.prompt_folds, len(rows.sources))
    log_posteriors = np.empty((len(folds), len(rows.sources)), dtype=np.float32)
    for head in enrolment.heads:
        unseen = folds == head.fold
        log_posteriors[unseen] = said(head, unseen)[0]
    identity = rows.store.identity()
    source, score, lead = answered(log_posteriors, groups)
    facts = {
        "benchmark": "agent500",
        "roster": roster,
        "reader": enrolment.reader,
        "data_hash": release.manifest_hash,
        "engine": identity.engine if identity else None,
        "host": host(),
        "code_version": code_version(),
        "command": portable(command_line()),
    }
    return Answers(enrolment.name, enrolment.sha256, k, GROUPING_SEEDS[0], groups.truth, source, score, lead, facts)

"""Where do traces land? Their signature among those of the enrolled sources (paper, signatures in the original space).

The signatures are those that the enrolment brings along: its sha256 covers them, and a report needs no database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.attribution.scoring import Scored
from backend.enrolment.enrolment import Enrolment

NEAREST = 3  # sources that the sentence names


def landing_of(scored: Scored, enrolment: Enrolment) -> dict[str, Any] | None:
    """Cosine between the signature of traces and that of every enrolled source.

    scored : their mean fingerprint lies at the block where the enrolment places traces.
    Returns proxy, view and layer (the block of the proxy) at which traces were placed; reader, roster and domain, by
        which the atlas finds a map of them; rows (rank, source, family, cosine), the nearest first. None where the
        enrolment brings no signatures.
    """
    vectors = enrolment.attachments.get("signatures.vectors")
    if vectors is None or vectors.shape != (len(enrolment.sources), len(scored.signature)):
        return None
    cosines = cosines_to(scored.signature, vectors.astype(np.float64))
    return {
        "proxy": enrolment.proxy,
        "view": enrolment.view,
        "layer": enrolment.place,
        "reader": enrolment.place_reader,
        "roster": str(enrolment.facts.get("roster", enrolment.name)),
        "domain": str(enrolment.facts.get("benchmark", "")),
        "rows": [
            {"rank": rank, "source": enrolment.sources[i], "family": enrolment.families[i], "cosine": float(cosines[i])}
            for rank, i in enumerate(np.argsort(-cosines, kind="stable"), start=1)
        ],
    }


def cosines_to(signature: npt.NDArray[np.floating], vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Cosine of a signature (2 d,) to every vector (C, 2 d); 0 where one of them is all zeros."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(signature)
    out: npt.NDArray[np.float64] = vectors @ signature / np.where(lengths > 0, lengths, 1.0)
    return out


def sentence(results: Mapping[str, Any]) -> str | None:
    """Where the traces land, for people; None for a report that does not say it.

    results : of a report.
    """
    landed = results.get("lands")
    if not landed:
        return None
    rows, subject = landed["rows"], results["subject"]
    near = ", ".join(f"{row['source']} ({row['cosine']:.3f})" for row in rows[:NEAREST])
    own = next((row for row in rows[NEAREST:] if row["source"] == subject), None)
    far = f"; {subject} comes as number {own['rank']:,} ({own['cosine']:.3f})" if own else ""
    return (
        f"Nearest of the {len(rows):,} signatures, by the cosine to the mean fingerprint of these traces at block "
        f"{landed['layer']} of {landed['proxy']} (view {landed['view']}): {near}{far}. Nearness says what the traces "
        "are like, the ratio says who made them."
    )

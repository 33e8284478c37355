"""False alarms of the paired drift test, on sources that were asked the same prompts twice.

Swapping answers within prompts is exact for two draws of one source; here it is measured, next to the power against
other sources of the same collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from backend.attribution.drift_report import standardised
from backend.attribution.scoring import Attributor
from backend.corpus.collection import Collected
from backend.errors import AtlasError
from backend.inference.drift import repeated_frame
from backend.inference.validation import SPACE
from backend.traces import Trace

PART = "repeated"
FEWEST = 10  # prompts that sources must share


def measure(
    attributor: Attributor, first: Sequence[Collected], second: Sequence[Collected], families: Mapping[str, str]
) -> pd.DataFrame:
    """Shares of pairs that the paired test calls different, columns as of :func:`repeated_frame`.

    first, second : two collections of the same sources and prompts. families : source to family; each its own else.
    Sources of which both draws are the same text (greedy ones) are left out, since nothing could differ.
    """
    answers = [{(one.source, one.prompt): one.response for one in draw} for draw in (first, second)]
    named = dict.fromkeys(source for source, _ in answers[0])
    sources = [source for source in named if _differ(source, *answers)]
    prompts = _shared(sources, *answers)
    features = []
    for draw in answers:
        traces = [Trace(prompt, draw[source, prompt]) for source in sources for prompt in prompts]
        found = attributor.score(traces, keep_fingerprints=True).fingerprints
        assert found is not None
        features.append(standardised(found, attributor.enrolment))
    family = np.unique([families.get(source, source) for source in sources], return_inverse=True)[1]
    return repeated_frame(features[0], features[1], family, SPACE)


def _differ(source: str, first: Mapping[tuple[str, str], str], second: Mapping[tuple[str, str], str]) -> bool:
    return any(second.get(key, text) != text for key, text in first.items() if key[0] == source)


def _shared(sources: Sequence[str], *draws: Mapping[tuple[str, str], str]) -> list[str]:
    """Prompts that every source has answered in both draws."""
    every = [{prompt for name, prompt in draw if name == source} for draw in draws for source in sources]
    shared = set.intersection(*every) if every else set()
    if len(sources) < 2 or len(shared) < FEWEST:
        raise AtlasError(
            f"Two draws share {len(sources)} sources whose answers vary, and {len(shared)} prompts that all answered",
            f"Collect the same sources twice, with another --seed: two sources and {FEWEST} prompts at least",
        )
    return sorted(shared)

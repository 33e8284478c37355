"""Claims: which enrolled source the models that a log names are."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from backend.enrolment.catalogue import NOT_LISTED, did_you_mean, spelling
from backend.intake import Preview
from backend.intake.model_names import plain_name, without_version
from backend.store.database import default_data_folder

ROLES = ("returned", "requested")  # how a log names a model; what an endpoint says it is comes first


def enrolled_as(model: str, sources: Iterable[str]) -> str | None:
    """The one source that a name of a model means: the same letters and digits, or the same but for its version.

    Two versions that are both named are two models. None where there is none, or there are several.
    """
    labels = list(dict.fromkeys(sources))
    name, stem = plain_name(model), without_version(model)
    exact = [label for label in labels if spelling(plain_name(label)) == spelling(name)]
    if exact or not spelling(stem):
        return exact[0] if exact else None
    undated = name in (stem, f"{stem}-latest")
    named = without_version if undated else plain_name  # another version of a dated name is another model
    versions = [label for label in labels if spelling(named(label)) == spelling(stem)]
    return versions[0] if len(versions) == 1 else None


def claims_of(models: Sequence[Mapping[str, Any]], sources: Iterable[str]) -> list[dict[str, Any]]:
    """Enrolled sources that models of a file are (:func:`backend.intake.models_of`), the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for role in ROLES:
        for row in models:
            if row[role]:
                counts[role, row[role]] += row["traces"]
    labels, found = list(sources), {}
    for (role, model), traces in counts.most_common():
        source = enrolled_as(model, labels)
        if source is not None and source not in found:
            found[source] = {"source": source, "model": model, "named": role, "traces": traces}
    return list(found.values())


def with_claims(preview: Preview, ecosystems: Iterable[Sequence[str]]) -> Preview:
    """A preview with claims; ``ecosystems`` are the sources of each, the preferred one first, read where needed."""
    if not preview.models:
        return preview
    return replace(preview, claims=tuple(claims_of(preview.models, (one for some in ecosystems for one in some))))


def suggestion(claims: Sequence[Mapping[str, Any]], traces: int) -> str:
    """The first of claims (:func:`claims_of`) of a file of so many traces, with its reason."""
    first = claims[0]
    return f"{first['source']}, since {first['model']} was {first['named']} in {first['traces']:,} of {traces:,} traces"


def sentence(preview: Preview, sources: Iterable[str]) -> str | None:
    """The claim that a file suggests, or what its model may be, for a command line; None where it names no model."""
    if not preview.models:
        return None
    if preview.claims:
        return f"Suggested claim: {suggestion(preview.claims, preview.traces)} (--claimed)."
    model = preview.models[0]["returned"] or preview.models[0]["requested"]
    return f"No enrolled source is called {model}. {did_you_mean(model[:80], sources)}{NOT_LISTED}"


def published_sources(data_folder: Path | None = None) -> list[tuple[str, ...]]:
    """Sources of every published enrolment that can be read, the largest first, without reading what it learned."""
    found = []
    for path in sorted(((data_folder or default_data_folder()) / "enrolments").glob("[!.]*.npz")):
        try:
            with np.load(path, allow_pickle=False) as stored:
                found.append(tuple(map(str, json.loads(stored["description"].tobytes().decode())["sources"])))
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error):
            continue  # loading it says why
    return sorted(found, key=len, reverse=True)

"""What the members of an enrolment read besides its proxy: other proxies, n-grams, embeddings, texts by an encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.intake.traces import whole
from backend.methods.ensemble import Ensemble
from backend.methods.ngrams import GRAMS
from backend.methods.sentence_encoder import SentenceEncoder, embed
from backend.methods.tuned_encoder import TUNED, Texts, TunedEncoder
from backend.proxies.reader import Reader
from backend.traces import Trace

Others = Mapping[str, Reader | SentenceEncoder]
"""Further proxies and encoders, by what is read with them: an encoder may be a further proxy as well."""


def models_beside(enrolment: Enrolment) -> dict[str, bool]:
    """What members read with further proxies and encoders, :func:`named` before a colon; True for an encoder."""
    return {reads: ":" in reads for reads in enrolment.beside if reads not in GRAMS}


def named(reads: str) -> str:
    """The model that something is read with."""
    return reads.partition(":")[0]


def check_others(enrolment: Enrolment, others: Others) -> None:
    """Raise AtlasError if a proxy or an encoder of the members is missing, or is another one."""
    for reads, encodes in models_beside(enrolment).items():
        name, model, layers = named(reads), others.get(reads), enrolment.beside[reads]
        if not isinstance(model, SentenceEncoder if encodes else Reader):
            raise AtlasError(f"The enrolment '{enrolment.name}' also reads with {name}, which is not loaded", "Load it")
        shallow = isinstance(model, Reader) and layers and model.depth < layers[-1]
        if shallow or (isinstance(model, SentenceEncoder) and not _fit(enrolment, reads, model)):
            raise AtlasError(f"The enrolment '{enrolment.name}' was made with another {name}", f"Load {name}")


def _fit(enrolment: Enrolment, reads: str, encoder: SentenceEncoder) -> bool:
    """Whether an encoder has room for the weights of all members that were tuned from it."""
    members = (one for head in enrolment.heads if isinstance(head.probe, Ensemble) for one in head.probe.members)
    tuned = (one.model for one in members if one.reads == reads and isinstance(one.model, TunedEncoder))
    return all(model.fits(encoder) for model in tuned)


def read_auxiliary_models(enrolment: Enrolment, traces: Sequence[Trace], others: Others) -> dict[str, Any]:
    """What members ask for, by name (:data:`backend.methods.ensemble.Material`); empty where only the proxy is read."""
    out: dict[str, Any] = {}
    for reads, layers in enrolment.beside.items():
        model = others.get(reads)
        if reads in GRAMS:
            out[reads] = GRAMS[reads].counts([whole(trace.response) for trace in traces])
        elif isinstance(model, Reader):
            read = model.read(model.encode(traces, enrolment.view), layers)
            out[reads] = {layer: read[layer, "full"] for layer in layers}
        elif isinstance(model, SentenceEncoder):
            what, clean = reads.partition(":")[2], [Trace(whole(t.prompt), whole(t.response)) for t in traces]
            tuned = what == TUNED
            out[reads] = Texts(model, [t.response for t in clean]) if tuned else embed(model, what, clean)
    return out


def some_of(material: Mapping[str, Any], rows: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """The same for some of the traces."""
    place = np.flatnonzero(rows)
    return {
        name: {layer: part[place] for layer, part in one.items()} if isinstance(one, Mapping) else one[place]
        for name, one in material.items()
    }

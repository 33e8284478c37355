"""Enrolments: what scores traces against known sources, without any text (paper, Stages 1 and 2).

A trace whose prompt was enrolled is scored by the head that never saw that prompt, any other by the mean of all
log-posteriors. Members of ensembles also read with auxiliary models: other proxies, n-grams, encoders.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.errors import AtlasError
from backend.inference.domain_shift import PromptReference, hash_of, reference_of
from backend.intake.traces import whole
from backend.methods.discriminant import NgramBank
from backend.methods.ensemble import HEAD_KINDS, Ensemble, Head, kind_of
from backend.methods.fine_tuning import TUNED, Texts, TunedEncoder
from backend.methods.ngrams import GRAMS, CodedNgrams, Counts, count, counted, counts_of
from backend.methods.probe import LinearProbe
from backend.methods.readout import Doubles
from backend.methods.registry import SEVERAL, TEXT
from backend.methods.representations import FORMS, Form
from backend.methods.sentence_encoder import SentenceEncoder, embed
from backend.protocol import READER_PAPER
from backend.proxies.reader import Reader
from backend.traces import Trace, View

Others = Mapping[str, Reader | SentenceEncoder]
"""Further proxies and encoders, by what is read with them: an encoder may be a further proxy as well."""
FORMATS = (1, 2)
"""1: probes of one block each. 2: any heads. What fits into 1 is written as 1, so that hashes of old files stay."""
WHOLE = "dc-ac"  # block of a whole fingerprint


@dataclass(frozen=True)
class Enrolment:
    """Known sources, ready to be compared with."""

    name: str
    reader: str  # ``reader-paper/smollm2-135m/ur``; of texts without a proxy, of an encoder with that
    proxy: str
    view: View
    block: str  # of :data:`backend.methods.representations.FORMS`; 'text' without states, 'several' for members
    sources: tuple[str, ...]
    families: tuple[str, ...]
    heads: tuple[Head, ...]
    log_prior: Doubles  # (C,), float64; log of the sources' shares in training; the score divides by it
    prompts: npt.NDArray[np.uint64]  # (P,), uint64; first 8 bytes of the sha256 of every enrolled prompt, ascending
    folds: npt.NDArray[np.int16]  # (P,), int16; fold of each of them
    facts: Mapping[str, Any] = field(default_factory=dict)  # proxy_hash, data_hash, records, created and more; JSON
    attachments: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # calibration and other statistics
    landing: int | None = None  # block at which traces are placed, and windows compared; None for the heads' deepest
    width: int | None = None  # dimension d of the proxy where no linear head has it

    @property
    def layers(self) -> list[int]:
        """Blocks that have to be read, ascending; the pass ends at the last."""
        landing = () if self.landing is None else (self.landing,)
        return sorted({*(layer for head in self.heads for layer in head.layers), *landing})

    @property
    def place(self) -> int:
        """Block at which traces are placed among the sources."""
        return self.layers[-1] if self.landing is None else self.landing

    @property
    def place_reader(self) -> str:
        """Reader whose map and stored signatures are those of that block."""
        return self.reader if self.landing is None else f"{READER_PAPER}/{self.proxy}/{self.view}"

    @property
    def hidden_size(self) -> int:
        """Dimension d of the proxy."""
        read = self.heads[0].standardiser
        if read is None or self.form is None:
            return self.width or 0
        return len(read[0]) // (len(self.form.vectors) * len(self.heads[0].layers))

    @property
    def form(self) -> Form | None:
        """What linear heads read of a block; None where they read no states, or members read different things."""
        return None if self.block in (TEXT, SEVERAL) else FORMS[self.block]

    @property
    def names(self) -> dict[str, str]:
        """Readable names of sources that are known by another one than their label."""
        names = self.facts.get("names")
        return dict(names) if isinstance(names, Mapping) else {}

    def name_of(self, source: str) -> str:
        """A source's readable name, by default the source itself."""
        return self.names.get(source, source)

    @property
    def cells_by(self) -> str | None:
        """Proxy whose tokens say how long a text is where that is not the enrolment's own."""
        proxy = self.facts.get("cells_by")
        return proxy if isinstance(proxy, str) else None

    @property
    def auxiliary(self) -> dict[str, tuple[int, ...]]:
        """What members read with other models than the proxy, to its blocks; names as in a :class:`Member`."""
        out: dict[str, set[int]] = {}
        for head in self.heads:
            for member in head.probe.members if isinstance(head.probe, Ensemble) else ():
                out.setdefault(member.reads, set()).update(member.layers)
        return {reads: tuple(sorted(layers)) for reads, layers in out.items() if reads != self.proxy}

    def folds_of(self, prompts: Sequence[str]) -> list[int | None]:
        """Fold of every prompt that was enrolled, None for others."""
        hashes = np.array([hash_of(prompt) for prompt in prompts], dtype=np.uint64)
        if not len(self.prompts):
            return [None] * len(hashes)
        at = np.minimum(np.searchsorted(self.prompts, hashes), len(self.prompts) - 1)
        return [int(self.folds[i]) if self.prompts[i] == h else None for i, h in zip(at, hashes, strict=True)]

    def heads_for(self, fold: int | None) -> tuple[Head, ...]:
        """Heads that score a trace: the one that has not seen its prompt's fold, else all of them."""
        unseen = tuple(head for head in self.heads if fold is not None and head.fold == fold)
        return unseen or self.heads

    def columns(self, rows: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """The part of stored rows at a block, of the variant that the heads read, that they read."""
        return rows if self.form is None else self.form.columns(rows)

    def counts(self, responses: Sequence[str]) -> Counts:
        """N-gram counts (n, buckets) of responses without lone surrogates; None where no head reads text."""
        probe = self.heads[0].probe
        if isinstance(probe, NgramBank):
            return counts_of(responses)
        return count(responses, probe.settings) if isinstance(probe, CodedNgrams) else None

    def coordinates(
        self, head: Head, by_layer: Mapping[int, npt.NDArray[np.floating]], counts: Counts = None,
        auxiliary: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """What a head reads: stored rows (n, V d) of blocks, counts of the texts, or both."""
        if isinstance(head.probe, CodedNgrams):
            return counts
        if isinstance(head.probe, Ensemble):
            return {self.proxy: by_layer, **(auxiliary or {})}
        rows = np.concatenate([self.columns(by_layer[layer]) for layer in head.layers], axis=1)
        rows = rows.astype(np.result_type(rows.dtype, np.float32), copy=False)
        return (rows, counts) if isinstance(head.probe, NgramBank) else rows

    @cached_property
    def prompt_reference(self) -> PromptReference | None:
        """For telling whether prompts are of the enrolled kind; None where it is not attached."""
        return reference_of(self.attachments)

    @cached_property
    def sha256(self) -> str:
        """Hash of all that enters an answer: names, blocks, prior, the numbers of every head, and attachments."""
        digest = hashlib.sha256()
        digest.update(json.dumps(described(self), sort_keys=True).encode())
        arrays = arrays_of(self) | {f"attached.{name}": array for name, array in self.attachments.items()}
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def prompt_table(prompts: Sequence[str], folds: Sequence[int]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int16]]:
    """Hashes, ascending, and folds of enrolled prompts; each of shape (P,)."""
    hashes = np.array([hash_of(prompt) for prompt in prompts], dtype=np.uint64)
    order = np.argsort(hashes, kind="stable")
    return hashes[order], np.asarray(folds, dtype=np.int16)[order]


def described(enrolment: Enrolment) -> dict[str, Any]:
    """The JSON of a file; the facts are added there, and do not enter the hash."""
    text: dict[str, Any] = {part: getattr(enrolment, part) for part in ("name", "reader", "proxy", "view", "block")}
    text |= {part: list(getattr(enrolment, part)) for part in ("sources", "families")}
    simple = all(isinstance(head.probe, LinearProbe) and len(head.layers) == 1 for head in enrolment.heads)
    if simple and enrolment.landing is None:
        heads: list[dict[str, Any]] = [{"layer": head.layers[0], "fold": head.fold} for head in enrolment.heads]
        return text | {"format": 1, "heads": heads}
    entries: list[dict[str, Any]] = []
    for head in enrolment.heads:
        entries.append({"kind": kind_of(head), "layers": list(head.layers), "fold": head.fold})
        if isinstance(head.probe, CodedNgrams):
            entries[-1]["counts"] = counted(head.probe.method)
        if isinstance(head.probe, Ensemble):
            entries[-1]["members"] = head.probe.described()
    if enrolment.width is not None:
        text["width"] = enrolment.width
    return text | {"format": 2, "heads": entries, "landing": enrolment.landing}


def arrays_of(enrolment: Enrolment) -> dict[str, npt.NDArray[Any]]:
    """Every number that scores traces, by name."""
    arrays: dict[str, npt.NDArray[Any]] = {n: getattr(enrolment, n) for n in ("log_prior", "prompts", "folds")}
    for i, head in enumerate(enrolment.heads):
        arrays |= {f"head{i}.{part}": attrgetter(part)(head.probe) for part in HEAD_KINDS[kind_of(head)][1]}
        if isinstance(head.probe, Ensemble):
            arrays |= {f"head{i}.{name}": array for name, array in head.probe.arrays().items()}
    return arrays


def auxiliary_models(enrolment: Enrolment) -> dict[str, bool]:
    """What members read with further proxies and encoders; True for an encoder."""
    return {reads: ":" in reads for reads in enrolment.auxiliary if reads not in GRAMS}


def named(reads: str) -> str:
    """The model behind what is read."""
    return reads.partition(":")[0]


def check_others(enrolment: Enrolment, others: Others) -> None:
    """Raise AtlasError if a proxy or an encoder of the members is missing, or is another one."""
    for reads, encodes in auxiliary_models(enrolment).items():
        name, model, layers = named(reads), others.get(reads), enrolment.auxiliary[reads]
        if not isinstance(model, SentenceEncoder if encodes else Reader):
            raise AtlasError(f"The enrolment '{enrolment.name}' also reads with {name}, which is not loaded", "Load it")
        shallow = isinstance(model, Reader) and layers and model.depth < layers[-1]
        members = (one for head in enrolment.heads if isinstance(head.probe, Ensemble) for one in head.probe.members)
        tuned = (one.model for one in members if one.reads == reads and isinstance(one.model, TunedEncoder))
        if shallow or (isinstance(model, SentenceEncoder) and not all(one.fits(model) for one in tuned)):
            raise AtlasError(f"The enrolment '{enrolment.name}' was made with another {name}", f"Load {name}")


def read_auxiliary_models(enrolment: Enrolment, traces: Sequence[Trace], others: Others) -> dict[str, Any]:
    """What members read, by name: :data:`backend.methods.ensemble.Material`."""
    out: dict[str, Any] = {}
    for reads, layers in enrolment.auxiliary.items():
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

"""How long an outer fold of a stack or of a readout of live attribution is fitted, where nobody noted it (stage cost).

What a fold needs is fitted here, every member once: to its fingerprints or, where these are not on the machine, to
random numbers of their shape. That takes as long, since discriminants, networks and n-grams do as many steps whatever
they are fitted to; members that are carried to a minimum do not, and are left out without their fingerprints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice, slice_of
from backend.costs.paths import AuditPath
from backend.errors import AtlasError
from backend.evaluations.cost import timed
from backend.evaluations.readout_bank import SETTINGS as LIVE_WORDS
from backend.evaluations.readout_bank import fit_banks, member_moments
from backend.evaluations.readouts import MODELS, TRAINED, fit_gram_models, models_of, training_folds
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.baselines import Material
from backend.evaluations.stages.readout_members import (
    A_FOLD,
    NETWORK,
    SOLVED,
    Plan,
    Scorer,
    fit_seconds,
    members_folder,
)
from backend.evaluations.stages.readouts import plan_of
from backend.methods.discriminant import make_bank, merged
from backend.methods.ngrams import GRAMS, SoftmaxSettings, counts_of
from backend.methods.registry import FUSED_LIVE, LDA_LIVE
from backend.methods.representations import STORED
from backend.methods.stack import CELLS, Stack
from backend.protocol import CLEAN
from backend.proxies.registry import DEFAULT_PROXY, describe

Half = npt.NDArray[np.float16]
RANDOM = "random numbers, as many as fingerprints, which are not here"  # What was fitted to
DRAWN = 5_000  # Rows of random numbers that are drawn at a time
FOLD = 0
NEEDED = models_of(FOLD)  # Models that an outer fold needs: its own, and two that validate for it


def random_rows(rows: int, width: int) -> Half:
    """Numbers (rows, width) that a fit takes as long for as for fingerprints."""
    draw, out = np.random.default_rng(0), np.empty((rows, width), dtype=np.float16)
    for low in range(0, rows, DRAWN):
        part = out[low : low + DRAWN]
        part[:] = draw.standard_normal(part.shape, dtype=np.float32)
    return out


@dataclass(frozen=True)
class RandomSlice(Slice):
    """Rows whose fingerprints are not here: random numbers, the same at every block and length."""

    drawn: Half

    def load(self, layer: int, variant: str = "full") -> Half:
        """Numbers of the shape that fingerprints have."""
        return self.drawn


@dataclass(frozen=True)
class FitClock:
    """Times the fits of one roster; a member of several stacks is fitted once."""

    release: Release
    options: EvaluateOptions
    roster: str
    _seconds: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _scorers: dict[tuple[str, tuple[int, ...]], Scorer] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def plan(self) -> Plan:
        """What the stacks are made of."""
        return plan_of(self.options)

    def reads(self, path: AuditPath) -> bool:
        """Whether all that a fit needs is on the machine: of every member its note, its text or its fingerprints."""
        if path.method in (LDA_LIVE, FUSED_LIVE):
            return all(self._on_disk(self._rows(proxy), blocks) for proxy, blocks in path.blocks.items())
        return all(self._noted(name) is not None or self._fits(name) for name in path.members)

    def seconds(self, path: AuditPath) -> dict[str, float]:
        """Seconds that one outer fold takes, by member; of a readout of live attribution, by what is fitted.

        Raises AtlasError if a member can be timed only where it was fitted.
        """
        if path.method in (LDA_LIVE, FUSED_LIVE):
            ((proxy, blocks),) = path.blocks.items()
            parts = {f"{proxy}@bank": partial(self._bank, proxy, blocks)}
            if path.method == FUSED_LIVE:
                parts["word@coded"] = partial(self._grams, counts_of, LIVE_WORDS)
        else:
            parts = {name: partial(self._member, name) for name in path.members}
        for name, part in parts.items():
            if name not in self._seconds:
                self._seconds[name] = part()
        return {name: round(self._seconds[name], 2) for name in parts}

    def _member(self, name: str) -> float:
        noted = self._noted(name)
        if noted is not None:
            return noted
        bank, _, part = name.rpartition("@")
        if bank in self.plan.grams:
            return self._grams(GRAMS[bank].counts, GRAMS[bank].settings)
        blocks = self.plan.blocks.get(bank, ())
        if not blocks or (part in SOLVED and not self._fits(name)):
            raise AtlasError(
                f"How long {name} is fitted was not noted on this machine, and depends on what it is fitted to",
                "Evaluate the stack here: python -m jobs evaluate --stage readouts",
            )
        scorer = self._scorer(bank, blocks)
        if part in (NETWORK, *SOLVED):
            fit = scorer.fits(bank, part)
            return _seconds(lambda: [fit(model) for model in NEEDED])
        return _seconds(lambda: scorer.discriminants(bank, part)) * A_FOLD / len(MODELS)

    def _bank(self, proxy: str, blocks: Sequence[int]) -> float:
        scorer = self._scorer(proxy, tuple(blocks))
        loads = {length: scorer.load(proxy, length)[0] for length in TRAINED}
        width = scorer.load(proxy, CLEAN)[1]
        fitted = []

        def fit() -> None:
            moments = member_moments(loads, width, scorer.labels, scorer.folds, scorer.classes)
            fitted.append((moments, fit_banks(moments)))

        fitting = _seconds(fit)
        ((moments, fits),) = fitted
        seen = [merged([parts[fold] for fold in training_folds(FOLD)]) for parts in moments.values()]
        equal = Stack(np.ones((CELLS, len(fits))))
        own = [parts[FOLD] for parts in fits.values()]
        return fitting * A_FOLD / len(MODELS) + _seconds(lambda: make_bank(own, seen, equal))

    def _grams(self, counts: Callable[[Sequence[str]], object], settings: SoftmaxSettings) -> float:
        scorer = self._scorer(DEFAULT_PROXY, ())
        copies = [counts(scorer.texts(length)) for length in TRAINED]
        models = fit_gram_models(copies, scorer.labels, scorer.folds, scorer.classes, settings, NEEDED)
        return _seconds(lambda: list(models))

    def _noted(self, name: str) -> float | None:
        prompts = len(self._rows(name.rpartition("@")[0]).prompt_ids)
        return fit_seconds(members_folder(self.roster, prompts), self.plan, [name])

    def _fits(self, name: str) -> bool:
        """Whether what a member reads is here; a tuned encoder takes hours, and is fitted where it is evaluated."""
        bank = name.rpartition("@")[0]
        blocks = self.plan.blocks.get(bank, ())
        return bank in self.plan.grams or (bool(blocks) and self._on_disk(self._rows(bank), blocks))

    def _rows(self, bank: str) -> Slice:
        proxy = bank if bank in self.plan.blocks else DEFAULT_PROXY
        return slice_of(self.release, "agent500", proxy, self.plan.view, self.roster, self.options.limit)

    def _on_disk(self, rows: Slice, blocks: Sequence[int]) -> bool:
        return all(set(blocks) <= set(rows.layers("full" if c == CLEAN else c)) for c in TRAINED)

    def _scorer(self, proxy: str, blocks: tuple[int, ...]) -> Scorer:
        """What a proxy's members are fitted with; fingerprints that are not here stand as random numbers."""
        if (proxy, blocks) not in self._scorers:
            rows = self._rows(proxy)
            if not self._on_disk(rows, blocks):
                width = STORED["full"] * describe(proxy).hidden_size
                rows = RandomSlice(**vars(rows), drawn=random_rows(len(rows.labels), width))
            self._scorers[proxy, blocks] = Scorer(
                {proxy: rows},
                {},
                Material(self.release, len(rows.sources), self.options.limit),
                replace(self.plan, blocks={proxy: blocks}, grams=()),
                members_folder(self.roster, len(rows.prompt_ids)),
                self.release.manifest_hash,
            )
        return self._scorers[proxy, blocks]


def _seconds(work: Callable[[], object]) -> float:
    return timed(work, runs=1, warm=0).median

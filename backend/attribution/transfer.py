"""Verdicts on traffic of another kind, from stored fingerprints of labelled traces.

Groups of K traces of enrolled sources meet the rule as an auditor's traces do: with the true source as the claim, with
the nearest other one, and without a claim. An enrolment of one benchmark meets the other one, and one of nine
categories of prompts meets the tenth. Texts are tokenised and counted once; heads and calibration are fitted anew.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.attribution.decision import GroupEvidence, fitted_statistics_of
from backend.attribution.scoring import Attributor, Scored
from backend.corpus.release import Benchmark, Release
from backend.corpus.roster_rows import slice_of
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import creation_facts, enrolment_of_traces, with_background, with_mixtures_and_choices
from backend.errors import AtlasError
from backend.evaluations.corpus import Corpus, cuts_of, read_corpus
from backend.evaluations.readouts import LENGTHS
from backend.evaluations.stages.readout_live import live_blocks
from backend.inference.domain_shift import UNCHECKED, PromptReference, PromptScores, fit_prompt_reference
from backend.inference.sequential_stop import nearest_sources
from backend.inference.verdict import Rule
from backend.protocol import BACKGROUND, BUDGETS, CLEAN, GROUPING_SEEDS, READER_PAPER, fold_of_prompts
from backend.proxies.reader import Reader, StoredReader
from backend.proxies.registry import describe, proxy_hash, tokenizer_of
from backend.traces import Trace

Ints = npt.NDArray[np.intp]
PART, MIXTURE = "transfer", "mixture"
OUTCOMES = ("SUPPORTS", "AGAINST", "UNKNOWN", "INCONCLUSIVE")
CLAIMS = ("true", "nearest", "none")
MOST_GROUPS = 1_000  # of a budget, evenly drawn over the sources: a share of 5 % is known to 0.7 points then
PLACE = 20  # modal block of the paper's probe of the default proxy, where traces are placed
SAME, CATEGORY = "same", "category"
"""Scenarios: held-out prompts of the enrolled kind; prompts of a category that was excluded."""
TRANSFERS = ("math100", "agent500", CATEGORY)  # traffic for an enrolment of other prompts
BATCH = (512,)


@dataclass(frozen=True)
class LabelledScores:
    """Scored traces whose source is known."""

    scored: Scored  # with the fingerprints of every trace
    labels: Ints  # (n,) column of the true source in the enrolment
    prompts: PromptScores  # by the enrolment's reference, or by one that has not seen these prompts

    def take(self, group: Ints, reference: PromptReference | None) -> Scored:
        """Scores of some traces, whose prompts a reference judges."""
        every = self.scored
        assert every.fingerprints is not None
        return replace(
            every,
            log_posteriors=every.log_posteriors[group],
            tokens=every.tokens[group],
            folds=tuple(every.folds[i] for i in group),
            mean=every.fingerprints[group].mean(0, dtype=np.float64),
            fingerprints=None,
            traffic=UNCHECKED if reference is None else reference.judge(self.prompts.take(group)),
        )


def transfer_frame(
    enrolment: Enrolment,
    rows: LabelledScores,
    scenario: str,
    budgets: Sequence[int] = BUDGETS,
    seed: int = GROUPING_SEEDS[0],
    reference: PromptReference | None = None,
) -> pd.DataFrame:
    """Shares of every answer on groups of one source each.

    scenario : how the traces relate to the enrolment: 'math100', 'category', 'same'.
    budgets : those above the number of traces of every source are skipped.
    reference : judges the prompts in place of the enrolment's own, where that has seen them.
    Returns columns k, metric, scenario, value, n. Metrics: ``CLAIM_OUTCOME`` of :data:`CLAIMS`, ``flagged`` (prompts of
        another kind), ``rejected`` (by the unknown-source test alone), ``false_unknown`` (UNKNOWN without a claim),
        ``wrong`` (a decision for a wrong source or family, or against the true claim), ``leader`` and
        ``leading_family`` (the best match is right).
    """
    companions = fitted_statistics_of(enrolment)
    nearest = nearest_sources(rows.scored.log_posteriors, rows.labels)
    own = reference or enrolment.prompt_reference
    family = np.unique(np.array(enrolment.families), return_inverse=True)[1]
    names = ["flagged", "rejected", "false_unknown", "leader", "leading_family", "wrong"]
    names += [f"{claim}_{outcome}" for claim in CLAIMS for outcome in OUTCOMES]
    out: list[dict[str, object]] = []
    for k in budgets:
        groups = groups_of(rows.labels, k, seed)
        if not groups:
            continue
        tally, n = Counter[str](), min(len(groups), MOST_GROUPS)
        for group, source in (groups[i] for i in np.linspace(0, len(groups) - 1, n).astype(np.intp)):
            scored = rows.take(group, own)
            evidence = GroupEvidence(scored, enrolment, companions.for_condition(scored))
            leader = int(evidence.even.argmax())
            tally["flagged"] += evidence.traffic.kind != "like"
            tally["rejected"] += evidence.p is not None and evidence.p <= Rule.unknown_level
            tally["leader"] += leader == source
            tally["leading_family"] += bool(family[leader] == family[source])
            for claim, named in (("true", source), ("nearest", int(nearest[source])), ("none", None)):
                verdict = evidence.decide(named)
                tally[f"{claim}_{verdict.outcome}"] += 1
                subject = leader if named is None else named
                right = bool(subject == source if verdict.level == "source" else family[subject] == family[source])
                tally["wrong"] += (verdict.outcome, right) in (("SUPPORTS", False), ("AGAINST", True))
        tally["false_unknown"] = tally["none_UNKNOWN"]
        for name in names:
            of = n * len(CLAIMS) if name == "wrong" else n
            out.append({"k": k, "metric": name, "scenario": scenario, "value": tally[name] / of, "n": of})
    return pd.DataFrame(out, columns=["k", "metric", "scenario", "value", "n"])


def groups_of(labels: Ints, k: int, seed: int) -> list[tuple[Ints, int]]:
    """Groups of K rows of one source each, as many as fill; the remainder is dropped."""
    rng = np.random.default_rng(seed + 100 + 7919 * k)
    out = []
    for source in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == source))
        out += [(rows[low : low + k], int(source)) for low in range(0, len(rows) - k + 1, k)]
    return out


def held_out_prompts(prompts: Sequence[str], folds: npt.NDArray[np.integer]) -> tuple[PromptScores, PromptReference]:
    """Distinct prompts as references without their fold (P,) see them, and the reference that judges them."""
    parts: list[PromptScores] = []
    for fold in np.unique(folds):
        inside, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        whole = fit_prompt_reference([prompts[i] for i in rest.tolist()], folds[rest])
        if whole is None:
            raise ValueError("there are too few prompts for a reference")
        parts.append(whole.score([prompts[i] for i in inside.tolist()]))
    assert whole is not None
    return PromptScores.joined(parts).take(np.argsort(np.argsort(folds, kind="stable"))), whole


def pooled(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows of several runs of one scenario as those of all their groups together."""
    rows = pd.concat(frames, ignore_index=True)
    rows["value"] *= rows["n"]
    sums = rows.groupby(["k", "metric", "scenario"], as_index=False)[["value", "n"]].sum()
    return sums.assign(value=sums["value"] / sums["n"])[["k", "metric", "scenario", "value", "n"]]


@dataclass
class Part:
    """Responses of a roster to some prompts, with their fingerprints; row = source * P + prompt."""

    proxy: str
    engine: str
    sources: list[str]
    families: list[str]
    traces: list[Trace]
    arrays: dict[tuple[int, str], npt.NDArray[np.float16]]  # by block and length

    @classmethod
    def of(cls, release: Release, benchmark: Benchmark, proxy: str, roster: str, limit: int | None) -> Part:
        """All responses of a roster, of the first prompts where there is a limit."""
        rows = slice_of(release, benchmark, proxy, "ur", roster, limit)
        identity, records = rows.store.identity(), release.records(benchmark)
        width, layers = len(records.prompt_ids), sorted({*live_blocks(proxy), PLACE})
        arrays = {(layer, v): rows.load(layer, v) for layer in layers for v in ("full", "t128", "t64", "t32")}
        traces = [
            records.traces[source * width + prompt]
            for source in range(len(rows.sources))
            for prompt in range(len(rows.prompt_ids))
        ]
        return cls(proxy, identity.engine if identity else "", rows.sources, rows.families, traces, arrays)

    def some(self, prompts: npt.NDArray[np.bool_]) -> Part:
        """The responses to some prompts, a mask of shape (P,)."""
        rows = np.flatnonzero(np.tile(prompts, len(self.sources)))
        arrays = {key: array[rows] for key, array in self.arrays.items()}
        part = replace(self, traces=[self.traces[row] for row in rows], arrays=arrays)
        part.corpus = self.corpus.take(rows)
        return part

    @property
    def labels(self) -> Ints:
        """Source of every row."""
        return np.repeat(np.arange(len(self.sources)), len(self.traces) // len(self.sources))

    @functools.cached_property
    def corpus(self) -> Corpus:
        """The traces at all lengths, tokenised once."""
        cuts, layers = [name for name in LENGTHS if name != CLEAN], sorted({layer for layer, _ in self.arrays})
        folds = np.zeros(len(self.traces), dtype=np.intp)  # set where it is enrolled
        return read_corpus(self.traces, self.reader(), "ur", layers, self.labels, folds, len(self.sources), cuts)

    def reader(self) -> Reader:
        """Reads these traces from the disk."""
        stored = StoredReader(self.arrays, tokenizer_of(self.proxy), self.engine, describe(self.proxy).depth)
        return cast(Reader, stored)

    def enrol(self, method: str) -> Enrolment:
        """Enrolment of all of them; prints how long it takes."""
        started, corpus = time.perf_counter(), self.corpus
        conditions = (CLEAN, *(() if method == READER_PAPER else cuts_of(corpus.tokens)))
        enrolment = enrolment_of_traces(
            self.traces,
            [self.sources[label] for label in self.labels],
            self.reader(),
            name="part",
            proxy=self.proxy,
            weights_hash=proxy_hash(self.proxy),
            view="ur",
            layer=PLACE,
            families=dict(zip(self.sources, self.families, strict=True)),
            blocks=live_blocks(self.proxy),
            validated=False,
            method=method,
            corpus=corpus.with_conditions(conditions),
        )
        seconds, sources = time.perf_counter() - started, len(self.sources)
        print(f"{method} on {len(self.traces):,} traces of {sources} sources: {seconds:.0f} s", flush=True)
        return enrolment


def transfers(
    parts: dict[Benchmark, Part], method: str, release: Release, limit: int | None, scenarios: Sequence[str] = TRANSFERS
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of pairs of enrolled and other traffic, with the name of the scenario."""
    agent, math = parts["agent500"], parts["math100"]
    if "math100" in scenarios:
        yield "math100", ask(agent.enrol(method), math, "math100")
    if "agent500" in scenarios:
        yield "agent500", ask(math.enrol(method), agent, "agent500")
    if CATEGORY in scenarios:
        kinds = release.prompts("agent500")["category"].to_numpy()[:limit]
        excluded = [kinds == kind for kind in sorted(set(kinds))]
        yield CATEGORY, pooled([ask(agent.some(~kind).enrol(method), agent.some(kind), CATEGORY) for kind in excluded])


def ask(enrolment: Enrolment, part: Part, scenario: str) -> pd.DataFrame:
    """Rows of an enrolment about other responses of its sources."""
    scored = Attributor(part.reader(), enrolment).score(part.traces, keep_fingerprints=True, sizes=BATCH)
    column = np.array([enrolment.sources.index(source) for source in part.sources])
    reference = enrolment.prompt_reference
    if reference is None:
        problem = f"'{enrolment.name}' was enrolled with too few prompts to tell whether others are of their kind"
        raise AtlasError(problem, "Enrol more of them: python -m jobs enroll")
    prompts = reference.score([trace.prompt for trace in part.traces])
    return transfer_frame(enrolment, LabelledScores(scored, column[part.labels], prompts), scenario)


def measure(enrolment: Enrolment, release: Release, benchmark: Benchmark, limit: int | None = None) -> pd.DataFrame:
    """Rows of a served enrolment on one benchmark.

    Raises AtlasError if the enrolment is of no roster, or fingerprints are not on disk.
    """
    part = part_of(enrolment, release, benchmark, limit)
    if enrolment.facts.get("benchmark") != benchmark:
        return ask(enrolment, part, benchmark)
    scored = Attributor(part.reader(), enrolment).score(part.traces, keep_fingerprints=True, sizes=BATCH)
    everything, folds = _enrolled_prompts(enrolment, release, benchmark)
    held_out, reference = held_out_prompts(everything, folds)
    each = len(part.traces) // len(part.sources)
    prompts = held_out.take(np.tile(np.arange(each), len(part.sources)))
    return transfer_frame(enrolment, LabelledScores(scored, part.labels, prompts), SAME, reference=reference)


def _enrolled_prompts(enrolment: Enrolment, release: Release, benchmark: Benchmark) -> tuple[list[str], Ints]:
    """Prompts of a benchmark that was enrolled, and their folds."""
    prompts = release.prompts(benchmark)["prompt"].astype(str).tolist()
    folds = enrolment.folds_of(prompts)
    if None in folds:
        problem = f"The prompts of '{enrolment.name}' are not those of {benchmark}"
        raise AtlasError(problem, "Make it again: python -m jobs enroll")
    return prompts, np.array(folds, dtype=np.intp)


def part_of(enrolment: Enrolment, release: Release, benchmark: Benchmark, limit: int | None = None) -> Part:
    """Responses of an enrolment's roster to a benchmark; AtlasError if it is of none."""
    roster = enrolment.facts.get("roster")
    if not isinstance(roster, str):
        raise AtlasError(f"'{enrolment.name}' is of no roster of the release", "Name one that is")
    return Part.of(release, benchmark, enrolment.proxy, roster, limit)


def with_balanced_scores(
    enrolment: Enrolment, release: Release, benchmark: Benchmark, limit: int | None = None
) -> Enrolment:
    """A served enrolment with error rates of scores that unlabelled responses balanced.

    benchmark : traffic that no head has seen; a fifth of its prompts is balanced by responses to the others.
    Raises AtlasError as :func:`measure`, and if the heads saw that benchmark, or it has too few prompts.
    """
    part = part_of(enrolment, release, benchmark, limit)
    if enrolment.facts.get("benchmark") == benchmark or tuple(part.sources) != enrolment.sources:
        problem = f"The heads of '{enrolment.name}' are not of other prompts and the same sources as {benchmark}"
        raise AtlasError(problem, "Name the benchmark that it was not made of, or make it again: python -m jobs enroll")
    scored = Attributor(part.reader(), enrolment).score(part.traces, sizes=BATCH)
    table = release.prompts(benchmark).iloc[: len(part.traces) // len(part.sources)].astype(str)
    prompts, folds = table["prompt"].tolist(), fold_of_prompts(table["sample_id"].tolist())
    attachments = with_background(enrolment.attachments, scored.log_posteriors, prompts, folds, enrolment.families)
    if f"calibration-{BACKGROUND}.budgets" not in attachments:
        raise AtlasError(f"{len(prompts)} prompts of {benchmark} are too few to measure anything", "Read more of them")
    measured = {"benchmark": benchmark, "prompts": len(prompts), "engine": part.engine} | creation_facts()
    return replace(enrolment, attachments=attachments, facts={**enrolment.facts, BACKGROUND: measured})


def with_held_out_mixtures(
    enrolment: Enrolment, release: Release, benchmark: Benchmark, limit: int | None = None
) -> Enrolment:
    """A served enrolment with mixtures and choices of candidates, simulated of responses that its heads did not see.

    benchmark : the enrolled one; every prompt is scored by the head of its fold. Raises AtlasError as :func:`measure`,
    and where the heads are not of folds, or the prompts too few.
    """
    part = part_of(enrolment, release, benchmark, limit)
    folds = _enrolled_prompts(enrolment, release, benchmark)[1][: len(part.traces) // len(part.sources)]
    own, each = np.unique(folds, return_counts=True)
    if {head.fold for head in enrolment.heads} != set(own.tolist()) or each.min() < 2:
        problem = f"The heads of '{enrolment.name}' need two prompts of every fold, and {len(folds)} prompts were read"
        raise AtlasError(problem, "Read more of them: python -m jobs extract")
    scored = Attributor(part.reader(), enrolment).score(part.traces, sizes=BATCH)
    attachments = with_mixtures_and_choices(enrolment.attachments, scored.log_posteriors, folds, enrolment.families)
    measured = {"benchmark": benchmark, "prompts": len(folds), "engine": part.engine} | creation_facts()
    return replace(enrolment, attachments=attachments, facts={**enrolment.facts, MIXTURE: measured})

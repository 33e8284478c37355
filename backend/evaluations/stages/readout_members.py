"""Members of a fused readout: their fits and their scores (stage readouts).

A member is fitted once a response length; its scores of every row under every condition are saved as float16 arrays of
shape (3, n, C), and the models of the outer folds with them, so that a stack can be enrolled. An interrupted run goes
on with the first member and length that is not there; members that take minutes to fit are saved model by model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from backend.corpus.release import BENCHMARKS
from backend.corpus.roster_rows import Slice
from backend.errors import AtlasError
from backend.evaluations import artifacts, readouts
from backend.evaluations.corpus import MATH, Material, truncation_tokenizer
from backend.evaluations.stages.roster_run import RosterRun
from backend.methods.fine_tuning import ENCODER, TUNED, FinetuneSettings, Texts, TunedEncoder, affordable, fine_tune
from backend.methods.network import NetworkReadout, NetworkSettings, fit_network
from backend.methods.ngrams import GRAMS, halves
from backend.methods.probe import LinearReadout, fit_experts, fit_regression
from backend.methods.readout import Floats, Half, Ints
from backend.methods.sentence_encoder import SentenceEncoder, reads_of
from backend.methods.stack import cells_of
from backend.progress import step_bar
from backend.protocol import CLEAN, FOLDS, fold_of_prompts
from backend.proxies.encoding import MAX_TOKENS, count_tokens
from backend.proxies.registry import DEFAULT_PROXY, proxy_hash
from backend.traces import View, whole_text

POOLED, NETWORK, FUSED = "pooled", "network", "fused"
REGRESSION, EXPERTS = "regression", "experts"
SOLVED = (REGRESSION, EXPERTS)
"""Members that are carried to the minimum of a penalised loss; each stands alone, in no stack of others."""
ALIGNED = f"{MATH}-aligned"
"""Math100 after its features were moved to where those of Agent500 lie; text has none, and stays as it is."""
TRANSFER = (MATH, ALIGNED)
PIECES = 20
TIMING_FILE = "took.json"
"""Next to a member's models: the seconds of its fits, how many there were, and how many an outer fold needs."""
A_FOLD = 3  # Models that an outer fold needs: its own, and two that validate for it
TUNED_SETTINGS = replace(
    ENCODER, epochs=2, batch=32, learning_rate=1e-4, head_rate=2e-3, max_tokens=128, bucket=16, dropout=0.0
)
"""An epoch takes every response once, in one of its three lengths. Two short epochs are what two cores do in hours."""


def bank_of(member: str) -> str:
    """What a member reads: a proxy, a kind of n-grams or a tuned encoder."""
    return member.rpartition("@")[0]


@dataclass(frozen=True)
class Plan:
    """Members of a fused readout."""

    blocks: Mapping[str, tuple[int, ...]]  # Blocks of every proxy whose discriminants are members
    grams: tuple[str, ...] = ("word", "char")  # Kinds of n-grams, from :data:`GRAMS`
    view: View = "ur"
    shrinkage: float = 0.1
    network: NetworkSettings | None = None  # Of the networks that read the same blocks, None for none
    tuned: str | None = None  # Encoder that is fine-tuned on the responses, None for none
    solved: tuple[str, ...] = ()  # Of :data:`SOLVED`, on the same blocks
    penalty: float = 1e-2  # Theirs

    def members(self, what: str) -> list[str]:
        """Members of a bank: discriminants of every length and a network of a proxy, else one for all lengths."""
        if what not in self.blocks:
            return [f"{what}@{POOLED}"]
        return [f"{what}@{part}" for part in (*readouts.TRAINED, *([NETWORK] if self.network else []))]

    @property
    def texts(self) -> list[str]:
        """Banks that read text alone: a tuned encoder, then kinds of n-grams."""
        return [*([f"{TUNED}-{self.tuned}"] if self.tuned else []), *self.grams]

    @property
    def banks(self) -> list[str]:
        """Proxies, then what reads text alone."""
        return [*self.blocks, *self.texts]


@dataclass(frozen=True)
class Scorer:
    """Members' scores of one roster, computed or saved.

    rows : Fingerprints of every proxy, Agent500; where all members read text, only the names of the rows.
    """

    rows: Mapping[str, Slice]
    others: Mapping[str, Slice]  # The same of Math100
    material: Material  # Texts of all conditions
    plan: Plan
    folder: Path
    identity: str  # Everything that the scores depend on, apart from the plan's part for a member
    costs: dict[str, float] = field(default_factory=dict)
    _aligned: dict[str, readouts.Load] = field(default_factory=dict, init=False, repr=False)

    @property
    def any_rows(self) -> Slice:
        """Some slice, for what all have in common."""
        return next(iter(self.rows.values()))

    @cached_property
    def labels(self) -> Ints:
        """Source number of every row."""
        return self.any_rows.labels

    @cached_property
    def folds(self) -> Ints:
        """Outer fold of every row."""
        return np.tile(self.any_rows.prompt_folds, self.classes)

    @property
    def classes(self) -> int:
        """Number of sources."""
        return len(self.any_rows.sources)

    def size(self, condition: str) -> int:
        """Rows of a condition."""
        return self.classes * len(self.material.prompts(MATH)) if condition in TRANSFER else len(self.labels)

    def scores(self, condition: str, member: str) -> Half:
        """Saved scores of a member under a condition, mapped into memory."""
        text = bank_of(member) in self.plan.texts
        path = self._path(MATH if text and condition == ALIGNED else condition, member)
        array: Half = np.load(path, mmap_mode="r")
        return array

    def has_transfer(self, bank: str) -> bool:
        """Whether a bank can score Math100 here."""
        return bank not in self.others or set(self.plan.blocks[bank]) <= set(self.others[bank].layers())

    def conditions(self, bank: str) -> list[str]:
        """Conditions that a bank can be scored under here."""
        if bank in self.plan.blocks:
            return [*readouts.LENGTHS, *(TRANSFER if self.has_transfer(bank) else ())]
        return [*readouts.LENGTHS, MATH]

    def complete(self, members: Collection[str]) -> None:
        """Fit and score whatever of these members is not saved."""
        for proxy in self.plan.blocks:
            self._discriminants(proxy, [length for length in readouts.TRAINED if f"{proxy}@{length}" in members])
        for kind in self.plan.grams:
            if f"{kind}@{POOLED}" in members:
                self._grams(kind)
        if self.plan.tuned and f"{TUNED}-{self.plan.tuned}@{POOLED}" in members:
            self._tuned(self.plan.tuned)
        for proxy in self.plan.blocks:
            for part in (NETWORK, *SOLVED):
                if f"{proxy}@{part}" in members:
                    self._fits(proxy, part)

    def models(self, member: str) -> Path:
        """Folder of a member's fitted models."""
        return self._path(CLEAN, member).parent / "models"

    def stack_member(self, member: str) -> artifacts.StackMember:
        """What a member reads, and where its models lie."""
        bank = bank_of(member)
        reads = reads_of(str(self.plan.tuned), TUNED) if bank == f"{TUNED}-{self.plan.tuned}" else bank
        return artifacts.StackMember(reads, self.plan.blocks.get(bank, ()), self.models(member))

    def cells(self, condition: str) -> Ints:
        """Cell of every row as it looks under a condition."""
        return cells_of(self.tokens(condition), self.texts(condition))

    def tokens(self, condition: str) -> Ints:
        """Response tokens of every row under a condition."""
        return np.minimum(
            self._tokens(MATH if condition in TRANSFER else CLEAN), readouts.LENGTHS.get(condition, MAX_TOKENS)
        )

    def bank_rows(self, proxy: str, lengths: Iterable[str]) -> readouts.BankRows:
        """Rows of Agent500 by a proxy at several lengths, 'clean' among them."""
        loads = {length: self.load(proxy, length) for length in lengths}
        by_length = {length: load for length, (load, _) in loads.items()}
        return readouts.BankRows(by_length, loads[CLEAN][1], self.labels, self.folds, self.classes)

    def load(self, proxy: str, length: str) -> tuple[readouts.Load, int]:
        """Rows of Agent500 by a proxy at a length, and their width."""
        return self._load(self.rows[proxy], proxy, length)

    def discriminants(self, proxy: str, length: str) -> dict[int, LinearReadout]:
        """Discriminants of a length, fitted: all models."""
        load, width = self.load(proxy, length)
        moments = readouts.fold_moments(load, width, self.labels, self.folds, self.classes)
        return readouts.fit_discriminants(moments, self.plan.shrinkage, range(len(readouts.MODELS)))

    def fits(self, proxy: str, part: str) -> Callable[[int], readouts.Fitted]:
        """Model number to the model fitted: of a network, or of one of :data:`SOLVED`."""
        return self._network(proxy) if part == NETWORK else self._solved(proxy, part)

    def _discriminants(self, proxy: str, lengths: Sequence[str]) -> None:
        conditions, needed = self.conditions(proxy), {}
        for name in (f"{proxy}@{length}" for length in lengths):
            fitted = artifacts.holds_models(self.models(name))
            needed[name] = [c for c in conditions if not (fitted and self._done(c, name))]
        if not any(needed.values()):
            return
        bank = {}
        for name in tqdm([name for name in needed if needed[name]], desc=f"Moments · {proxy}", unit="length"):
            started = time.perf_counter()
            bank[name] = self.discriminants(proxy, name.rpartition("@")[2])
            for fold in range(FOLDS):
                artifacts.keep_model(self.models(name) / artifacts.model_file(fold), bank[name][fold])
            self._note_seconds(name, time.perf_counter() - started)
        for condition in tqdm(conditions, desc=f"Scores · {proxy}", unit="condition"):
            some = {name: models for name, models in bank.items() if condition in needed[name]}
            if not some:
                continue
            out = {name: self._empty(condition) for name in some}
            if condition in TRANSFER:
                readouts.score_transfer(self.transfer_load(proxy, condition), self.size(condition), some, out)
            else:
                readouts.score_discriminants(self.load(proxy, condition)[0], self.folds, some, out)
            for name in some:
                self._keep(condition, name, out[name])

    def _complete(self, member: str, fill: Callable[[dict[str, Half]], float], *, tuned: bool = False) -> None:
        """Save a member's scores of all conditions, unless they are there; ``fill`` returns the seconds of its fits."""
        conditions = self.conditions(bank_of(member))
        # Scores of a tuned encoder serve stacks without its models.
        there = tuned or artifacts.holds_models(self.models(member))
        if there and all(self._done(condition, member) for condition in conditions):
            return
        out = {condition: self._empty(condition) for condition in conditions}
        self._note_seconds(member, fill(out), tuned=tuned)
        for condition in conditions:
            self._keep(condition, member, out[condition])

    def _grams(self, kind: str) -> None:
        name, grams = f"{kind}@{POOLED}", GRAMS[kind]

        def fill(out: dict[str, Half]) -> float:
            conditions = tqdm(out, desc=f"Counts · {kind}", unit="condition")
            counts = {condition: grams.counts(self.texts(condition)) for condition in conditions}
            copies = [counts[length] for length in readouts.TRAINED]
            if grams.halves:
                copies += map(grams.counts, zip(*map(halves, self.texts(CLEAN)), strict=True))
            started, seconds = time.perf_counter(), 0.0
            models = readouts.fit_gram_models(
                copies, self.labels, self.folds, self.classes, grams.settings, range(len(readouts.MODELS))
            )
            for model, readout in tqdm(models, desc=f"Fits · {name}", total=len(readouts.MODELS), unit="fit"):
                seconds += time.perf_counter() - started
                for condition in readouts.LENGTHS:
                    readouts.score_grams(counts[condition], self.folds, model, readout, out[condition])
                if model < FOLDS:
                    artifacts.keep_model(self.models(name) / artifacts.model_file(model), readout)
                    out[MATH][model] = readout.log_posterior(counts[MATH])
                started = time.perf_counter()
            return seconds

        self._complete(name, fill)

    def _fits(self, proxy: str, part: str) -> None:
        """A member that is saved model by model: a network, or one of :data:`SOLVED`."""
        name = f"{proxy}@{part}"

        def fill(out: dict[str, Half]) -> float:
            fit, loads = self.fits(proxy, part), {length: self.load(proxy, length)[0] for length in readouts.LENGTHS}
            others = {other: self.transfer_load(proxy, other) for other in TRANSFER if other in out}
            identity = self._identity(name, list(out)[-1])  # a model saves its scores of Math100 with the rest
            seconds, folder = 0.0, self.models(name)
            for model in tqdm(range(len(readouts.MODELS)), desc=part.capitalize(), unit="fit"):
                path, own = folder / f"{model}.npz", folder / artifacts.model_file(model)
                transfer = others if model < FOLDS else {}
                parts = load_scores(path, identity, [*loads, *transfer])
                if parts is None or (model < FOLDS and not own.exists()):
                    started = time.perf_counter()
                    fitted = fit(model)
                    parts = {"seconds": np.array(time.perf_counter() - started)}
                    for condition, load in loads.items():
                        scored = readouts.score_alone(load, self.folds, model, fitted)
                        parts |= {f"{condition}/{slot}": _half(values) for slot, values in scored.items()}
                    for condition, load in transfer.items():
                        rows = readouts.chunks(np.arange(self.size(condition)))
                        scores = np.concatenate([fitted.log_posterior(load(some)) for some in rows])
                        parts[f"{condition}/0"] = _half(scores)
                    if model < FOLDS:
                        artifacts.keep_model(own, fitted)
                    artifacts.keep_arrays(path, identity=np.array(identity), **parts)
                seconds += float(parts["seconds"])
                for condition in transfer:
                    out[condition][model] = parts[f"{condition}/0"]
                _fill(out, loads, parts, self.folds, model)
            return seconds

        self._complete(name, fill)

    def _network(self, proxy: str) -> Callable[[int], NetworkReadout]:
        assert self.plan.network
        settings, copies = self.plan.network, list[Half]()

        def fit(model: int) -> NetworkReadout:
            if not copies:
                pieces = np.array_split(np.arange(len(self.labels)), PIECES)
                for load in (self.load(proxy, length)[0] for length in readouts.TRAINED):
                    copies.append(np.concatenate([load(some).astype(np.float16) for some in pieces]))
            return fit_network(copies, self._seen(model), self.labels, self.classes, settings, seed=model)

        return fit

    def _solved(self, proxy: str, part: str) -> Callable[[int], readouts.Fitted]:
        load, _ = self.load(proxy, CLEAN)
        families = np.unique(self.any_rows.families, return_inverse=True)[1]
        bases: dict[int, LinearReadout] = {}

        def fit(model: int) -> readouts.Fitted:
            seen = self._seen(model)
            if part == EXPERTS:
                if not bases:
                    bases.update(self.discriminants(proxy, CLEAN))
                return fit_experts(load(seen), self.labels[seen], families, bases[model], self.plan.penalty)
            return fit_regression(load(seen), self.labels[seen], self.classes, self.plan.penalty)

        return fit

    def _seen(self, model: int) -> Ints:
        return np.flatnonzero(np.isin(self.folds, readouts.training_folds(model)))

    def _tuned(self, encoder: str) -> None:
        name = f"{TUNED}-{encoder}@{POOLED}"

        def fill(out: dict[str, Half]) -> float:
            texts = {length: self.texts(length) for length in readouts.LENGTHS}
            rows = TunedRows(texts, readouts.TRAINED, self.labels, self.folds, self.classes, self.texts(MATH))
            return complete_tuned(encoder, rows, out, tuned_settings(), self.models(name), self._identity(name))

        self._complete(name, fill, tuned=True)

    def _note_seconds(self, member: str, seconds: float, *, tuned: bool = False) -> None:
        """Note the seconds of a member's fits; a tuned model that serves a fold also validates for it."""
        self.costs[member] = round(seconds, 1)
        self.models(member).mkdir(parents=True, exist_ok=True)
        models, a_fold = (FOLDS, 2) if tuned else (len(readouts.MODELS), A_FOLD)
        note = {"seconds": seconds, "models": models, "a_fold": a_fold}
        (self.models(member) / TIMING_FILE).write_text(json.dumps(note), "utf-8")

    def _load(self, rows: Slice, proxy: str, length: str) -> tuple[readouts.Load, int]:
        variant = "full" if length == CLEAN else length
        return readouts.loader([rows.load(layer, variant) for layer in self.plan.blocks[proxy]])

    def transfer_load(self, proxy: str, condition: str) -> readouts.Load:
        """Rows of Math100 by a proxy, as they are or aligned."""
        if condition == MATH:
            return self._load(self.others[proxy], proxy, CLEAN)[0]
        if proxy not in self._aligned:
            blocks = [
                [readouts.loader([rows.load(layer)]) for layer in self.plan.blocks[proxy]]
                for rows in (self.rows[proxy], self.others[proxy])
            ]
            self._aligned[proxy] = readouts.aligned_load(blocks[0], blocks[1], self.folds, self.pools)
        return self._aligned[proxy]

    @property
    def pools(self) -> Ints:
        """Prompt fold of every row of Math100: what is known of the domain comes from the other folds."""
        return np.tile(fold_of_prompts(self.material.prompts(MATH)), self.classes)

    def texts(self, condition: str) -> list[str]:
        """Responses under a condition, as they are read."""
        traces = self.material.traces(MATH if condition == ALIGNED else condition)
        return [whole_text(trace.response) for trace in traces[: self.size(condition)]]

    def _tokens(self, panel: str) -> Ints:
        """Response tokens that the default proxy reads, counted once."""
        path = self.folder.parent / f"tokens.{panel}.npz"
        saved = artifacts.saved_arrays(path, self.identity)
        if saved is not None:
            return saved["tokens"]
        found = count_tokens(truncation_tokenizer(), self.material.traces(panel)[: self.size(panel)])
        artifacts.keep_arrays(path, identity=np.array(self.identity), tokens=found)
        return found

    def _empty(self, condition: str) -> Half:
        rows, classes = self.size(condition), self.classes
        shape = (FOLDS, rows, classes) if condition in TRANSFER else readouts.scores_shape(rows, classes)
        return np.empty(shape, dtype=np.float16)

    def _path(self, condition: str, member: str) -> Path:
        return member_folder(self.folder, self.plan, member) / f"{condition}.npy"

    def _identity(self, member: str, condition: str = CLEAN) -> str:
        """Everything that a member's scores of a condition depend on; of Math100 by a proxy, its fingerprints too."""
        bank, _, part = member.rpartition("@")
        own: list[object]
        if bank in self.plan.blocks:
            settings: object = self.plan.shrinkage
            if part == NETWORK:
                assert self.plan.network
                settings = self.plan.network.as_text()
            if part in SOLVED:
                families = self.any_rows.families if part == EXPERTS else ()
                settings = [self.plan.shrinkage, self.plan.penalty, list(families)]
            read = [self.rows[bank], *([self.others[bank]] if condition in TRANSFER else [])]
            stores = [identity.as_text() if (identity := rows.store.identity()) else "None" for rows in read]
            own = [self.plan.view, *stores, list(self.plan.blocks[bank]), settings]
        elif bank in GRAMS:
            own = [GRAMS[bank].as_text(), proxy_hash(DEFAULT_PROXY)]
        else:
            own = [tuned_settings().as_text(), proxy_hash(bank.removeprefix(f"{TUNED}-")), proxy_hash(DEFAULT_PROXY)]
        return json.dumps([self.identity, own])

    def _done(self, condition: str, member: str) -> bool:
        note = self._path(condition, member).with_suffix(".json")
        return note.exists() and note.read_text("utf-8") == self._identity(member, condition)

    def _keep(self, condition: str, member: str, array: Half) -> None:
        path = self._path(condition, member)
        artifacts.keep(path, array)
        path.with_suffix(".json").write_text(self._identity(member, condition), "utf-8")


def members_folder(run: RosterRun) -> Path:
    """Folder of the members of all stacks of a roster."""
    return run.folder(FUSED, None, None) / "members"


def member_folder(members: Path, plan: Plan, member: str) -> Path:
    """Folder of one member: by what it reads, at which blocks and in which view, and how it was fitted."""
    bank, _, part = member.rpartition("@")
    blocks = plan.blocks.get(bank)
    read = [plan.view, "+".join(map(str, blocks))] if blocks else []
    return members.joinpath(bank, *read, part)


def fit_seconds(members: Path, plan: Plan, names: Sequence[str]) -> float | None:
    """Seconds of all the members' fits that one outer fold needs; None where a member did not note its own."""
    total = 0.0
    for name in names:
        note = member_folder(members, plan, name) / "models" / TIMING_FILE
        if not note.exists():
            return None
        noted = json.loads(note.read_text("utf-8"))
        total += noted["seconds"] * noted["a_fold"] / noted["models"]
    return total


def scorer_of(run: RosterRun, plan: Plan) -> Scorer:
    """The members' scores of a roster. Raises AtlasError if a block has not been read for all records and lengths."""
    proxies = [*plan.blocks] or [DEFAULT_PROXY]
    rows, others = ({proxy: run.rows(proxy, plan.view, name) for proxy in proxies} for name in BENCHMARKS)
    for proxy, layers in plan.blocks.items():
        for length in readouts.LENGTHS:
            missing = set(layers) - set(rows[proxy].layers("full" if length == CLEAN else length))
            if missing:
                raise AtlasError(
                    f"Blocks {', '.join(map(str, sorted(missing)))} of {proxy} are not complete for {run.roster}",
                    f"Run: {artifacts.extraction('agent500', run.roster, proxy, plan.view, layers)}",
                )
        rows[proxy].check()
    material = Material(run.release, len(rows[proxies[0]].sources), run.limit)
    identity = json.dumps([run.release.manifest_hash, run.roster, run.limit])
    return Scorer(rows, others, material, plan, members_folder(run), identity)


def _half(scores: Floats) -> Half:
    """Scores in half precision, which holds no lower ones."""
    return np.maximum(scores, readouts.LEAST).astype(np.float16)


def _fill(
    out: Mapping[str, npt.NDArray[Any]],
    conditions: Iterable[str],
    parts: Mapping[str, npt.NDArray[Any]],
    folds: Ints,
    model: int,
) -> None:
    """Put the scores of a model's folds into the arrays of each condition."""
    for condition in conditions:
        for fold in readouts.MODELS[model]:
            slot = readouts.models_of(fold).index(model)
            out[condition][slot, folds == fold] = parts[f"{condition}/{slot}"]


def load_scores(path: Path, identity: str, conditions: Iterable[str]) -> dict[str, npt.NDArray[Any]] | None:
    """A model's scores of all conditions, None where something is not there."""
    parts = artifacts.saved_arrays(path, identity)
    complete = parts and set(conditions) <= {name.partition("/")[0] for name in parts}
    return parts if complete else None


def tuned_settings() -> FinetuneSettings:
    """How an encoder is tuned on this machine."""
    return affordable(TUNED_SETTINGS)


@dataclass(frozen=True)
class TunedRows:
    """Texts that an encoder is tuned on and scores."""

    texts: Mapping[str, Sequence[str]]  # By condition, length n
    trained: Sequence[str]  # Conditions that are training rows, the whole responses first
    labels: Ints  # (n,), source number
    folds: Ints  # (n,), prompt fold
    classes: int
    others: Sequence[str]  # Texts of another domain


def complete_tuned(
    encoder: str,
    rows: TunedRows,
    out: Mapping[str, npt.NDArray[Any]],
    settings: FinetuneSettings,
    folder: Path,
    identity: str,
) -> float:
    """Tune the inner models and fill in their scores; a model whose scores are saved is not tuned again.

    Training takes hours, so there are no outer models: an inner one misses two neighbouring folds, serves one of them
    and validates for it on the other. It is saved in half precision and then scored, as an enrolment serves it.

    out : (3, n, C) of every condition of the rows, and (5, n, C) of one more: the other domain.
    identity : Of the rows and the settings. Returns seconds of training, of saved models too.
    """
    texts, folds = rows.texts, rows.folds
    (other,) = set(out) - set(texts)
    seconds = 0.0
    for model in tqdm(range(FOLDS, 2 * FOLDS), desc=f"Tuning · {encoder}", unit="model"):
        path = folder / f"{model}.npz"
        parts = load_scores(path, identity, [*texts, other])
        if parts is None:
            started = time.perf_counter()
            seen = np.flatnonzero(np.isin(folds, readouts.training_folds(model)))
            whole, *copies = ([texts[condition][row] for row in seen.tolist()] for condition in rows.trained)
            with step_bar(f"model {model}") as progress:
                classifier = fine_tune(
                    encoder,
                    whole,
                    rows.labels[seen],
                    rows.classes,
                    settings=settings,
                    seed=model,
                    copies=copies,
                    checkpoint=folder / f"{model}.safetensors",
                    device="cuda" if torch.cuda.is_available() else "cpu",
                    progress=progress,
                )
            tuned = TunedEncoder.of(classifier)
            parts = {"seconds": np.array(time.perf_counter() - started)}
            base = SentenceEncoder(encoder)
            parts[f"{other}/0"] = tuned.log_posterior(Texts(base, rows.others)).astype(np.float16)
            for fold in readouts.MODELS[model]:
                inside = np.flatnonzero(folds == fold).tolist()
                # All conditions at once: a short response is the same under several, and is read once.
                read = Texts(base, [part[row] for part in texts.values() for row in inside])
                scores = tuned.log_posterior(read)
                for condition, values in zip(texts, np.split(scores, len(texts)), strict=True):
                    parts[f"{condition}/{readouts.models_of(fold).index(model)}"] = values.astype(np.float16)
            artifacts.keep_model(folder / artifacts.model_file(model - FOLDS), tuned)
            artifacts.keep_arrays(path, identity=np.array(identity), **parts)
            (folder / f"{model}.safetensors").unlink(missing_ok=True)
        seconds += float(parts["seconds"])
        out[other][model - FOLDS] = parts[f"{other}/0"]
        _fill(out, texts, parts, folds, model)
        own, slot = folds == model - FOLDS, readouts.models_of(model - FOLDS).index(model)
        for condition in texts:  # there is no outer model; this one serves the fold
            out[condition][0, own] = parts[f"{condition}/{slot}"]
    return seconds

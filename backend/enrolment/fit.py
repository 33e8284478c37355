"""Enrolments of a roster, from its evaluation, and of collected responses.

Heads of a roster are those of its evaluation, or fitted again where it saved none, and must give its log-posteriors on
the prompts that each did not see. Calibration and reference statistics are fitted on out-of-fold evidence of the
enrolled prompts; the validation (:mod:`backend.inference.validation`) measures them on prompts they did not see.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.corpus.collection import RESPONSES, sample_records
from backend.corpus.labelled import SMALLEST
from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice, slice_of
from backend.enrolment.background import OF_BALANCED, balance_held_out
from backend.enrolment.enrolment import Enrolment, auxiliary_models, named, prompt_table
from backend.enrolment.files import as_stored
from backend.enrolment.head_fits import AUTO, Fits, choose, fit_chosen, heads_of
from backend.enrolment.held_out_answers import check_heads, of_members, of_states, of_texts
from backend.enrolment.validation_lookup import whole_tokens
from backend.errors import AtlasError
from backend.evaluations import artifacts
from backend.evaluations.attribution import select_layers
from backend.evaluations.controls import control_heads
from backend.evaluations.corpus import Corpus, read_corpus, truncation_tokenizer
from backend.evaluations.stages.audit import PARTS, VALIDATION, Rediscriminated, load_conditions, validation_rows
from backend.evaluations.stages.readout_live import load_banks, load_ngram_banks
from backend.geometry.signatures import signatures, source_means
from backend.inference import calibration, domain_shift, mixture, sequential_stop, unknown_source, validation
from backend.inference.candidates import MOST, HeldOutGroups
from backend.inference.mixture_validation import mixture_frame
from backend.inference.verdict import Rule
from backend.methods import registry as methods
from backend.methods.ensemble import Ensemble, Head, Member
from backend.methods.fine_tuning import TUNED
from backend.methods.ngrams import GRAMS, ngram_file, read_ngrams
from backend.methods.probe import fit_probe
from backend.methods.readout import Ints, inside
from backend.methods.readout import Rows as Floating
from backend.methods.sentence_encoder import PAIR, SentenceEncoder, reads_of
from backend.methods.stack import CELLS
from backend.protocol import BACKGROUND, CLEAN, FOLDS, READER_PAPER, SPLIT_SEED, fold_of_prompts
from backend.proxies.encoding import count_tokens
from backend.proxies.reader import Reader
from backend.proxies.registry import DEFAULT_PROXY, describe, installed, proxy_hash
from backend.spectral import FINGERPRINT_MODES
from backend.store.builds import code_version
from backend.traces import Trace, View

UNKNOWN_DRAWS = 200  # a source and budget: p values down to 1/201, and 165 sources below 8 MB
DOMAIN_DRAWS = 499
FEWER = 10  # groups of a source that are attached to a file that is served already: 165 sources in .7 MB
MOST_REALISED, QUANTILES = 4_000, 500  # groups whose p value is computed, and the quantiles that are saved


def fit_attachments(
    log_posteriors: Mapping[str, Floating], prompt_folds: Ints, fingerprints: Mapping[str, Floating] | None = None,
    domain: str = "enrolled", *, families: Sequence[str] | None = None, held_out: bool = False,
) -> dict[str, npt.NDArray[Any]]:  # fmt: skip
    """Attachments of an enrolment: parts calibration, unknown, stop, mixture, domain-DOMAIN, and signatures.

    log_posteriors : by condition (C * P, C), out-of-fold, row = source * P + prompt; parts of a cut end in ``-CUT``.
    prompt_folds : (P,) folds 0, 1, ..; each needs at least two prompts.
    fingerprints : by condition (C * P, 2 d), at the block where traces are placed; for domain and signatures.
    families : length C, for the bounds of a family's likelihood ratio.
    held_out : also attach part groups, which measures any choice of candidates.
    """
    out: dict[str, npt.NDArray[Any]] = {}
    budgets, prompts = calibration.budgets_of(prompt_folds), len(prompt_folds)
    family = None if families is None else np.unique(families, return_inverse=True)[1]
    tails = {condition: "" if condition == CLEAN else f"-{condition}" for condition in log_posteriors}
    for condition, scores in log_posteriors.items():
        tail, classes = tails[condition], scores.shape[1]
        labels, blocks = np.repeat(np.arange(classes), prompts), np.tile(prompt_folds, classes)
        groups = {k: calibration.held_out_groups(scores, prompt_folds, k) for k in budgets}
        fits, biased = calibration.CalibrationFits(), calibration.WITH_BIAS
        calibrated = calibration.fit_calibration(groups, biased, family, fits)
        unknown = unknown_source.fit_unknown(scores, labels, blocks, budgets=budgets, draws=UNKNOWN_DRAWS)
        out |= attached({f"calibration{tail}": calibrated, f"unknown{tail}": unknown})
        for name in ("transform", "centres"):  # distances need no more, and a file of 165 sources is to be small
            out[f"unknown{tail}.{name}"] = out[f"unknown{tail}.{name}"].astype(np.float32)
        out[f"unknown{tail}.nulls"] = shortened(out[f"unknown{tail}.nulls"])
        if condition == CLEAN:
            out |= {f"stop.{name}": array for name, array in stop_rules(scores, prompt_folds, calibrated).items()}
            out |= _mixtures(calibrated.apply(scores, 1))
            out |= _choices(groups, fits) if held_out else {}
    for condition, rows in (fingerprints or {}).items():
        sources = len(rows) // prompts
        reference = domain_shift.fit_domain(rows, np.repeat(np.arange(sources), prompts), budgets, DOMAIN_DRAWS)
        out |= attached({f"domain-{domain}{tails[condition]}": reference})
        if condition == CLEAN:
            means = source_means(rows, sources=sources, prompts=prompts)[0]
            out["signatures.vectors"] = signatures(means).astype(np.float16)
    return out


def with_background(
    attachments: Mapping[str, npt.NDArray[Any]],
    log_posteriors: Floating,
    prompts: Sequence[str],
    prompt_folds: Ints,
    families: Sequence[str],
) -> dict[str, npt.NDArray[Any]]:
    """Attachments with the statistics and the validation of scores that unlabelled responses balanced.

    log_posteriors : (C * P, C) of another kind of traffic than the heads saw, row = source * P + prompt.
    prompts, prompt_folds : (P,); a fold is balanced by the others, and on other kinds of traffic than that of these
        prompts nothing holds: at ten traces, topics of Math100 state .2 more than is realised on Agent500.
    """
    scores = balance_held_out(log_posteriors, prompt_folds, unseen=True)
    reference = prompt_attachments(prompts, prompt_folds, OF_BALANCED)
    if scores is None or not reference:
        return dict(attachments)
    family = np.unique(families, return_inverse=True)[1]
    frame = validation.calibration_frame(scores, prompt_folds, with_bias=calibration.WITH_BIAS, family=family)
    rows = _with_rows(attachments, frame.assign(part="calibration", condition=BACKGROUND))
    fitted = fit_attachments({BACKGROUND: scores}, prompt_folds, families=families)
    return {**attachments, **fitted, **rows, **reference}


def with_mixtures_and_choices(
    attachments: Mapping[str, npt.NDArray[Any]], log_posteriors: Floating, prompt_folds: Ints, families: Sequence[str]
) -> dict[str, npt.NDArray[Any]]:
    """Attachments with parts mixture and groups of some enrolled prompts, and the validation of mixtures.

    log_posteriors : (C * P, C) by heads that did not see them, row = source * P + prompt. prompt_folds : (P,); each
        needs two prompts. Mixtures are weighed with the calibration that is attached, choices by one of other folds.
    """
    groups = {
        k: calibration.held_out_groups(log_posteriors, prompt_folds, k) for k in calibration.budgets_of(prompt_folds)
    }
    calibrated = calibration.Calibration.from_arrays(inside(attachments, "calibration."))
    family = np.unique(families, return_inverse=True)[1]
    frame = mixture_frame(log_posteriors, prompt_folds, groups, family)
    rows = {} if frame.empty else _with_rows(attachments, frame.assign(part="mixture", condition=CLEAN))
    fitted = _mixtures(calibrated.apply(log_posteriors, 1)) | _choices(groups, calibration.CalibrationFits(), FEWER)
    return {**attachments, **fitted, **rows}


def _mixtures(calibrated: Floating) -> dict[str, npt.NDArray[Any]]:
    """The part mixture from calibrated log-posteriors of single traces; empty for too few prompts."""
    reference = mixture.fit_mixture(calibrated)
    if reference is None:
        return {}
    return attached({"mixture": replace(reference, nulls=shortened(reference.nulls))})


def _choices(
    groups: Mapping[int, calibration.Groups], fits: calibration.CalibrationFits, most: int = MOST
) -> dict[str, npt.NDArray[Any]]:
    """The part groups, calibrated by folds that are not theirs."""
    cross_fitted = calibration.cross_fitted(groups, calibration.WITH_BIAS, fits)
    return attached({"groups": HeldOutGroups.of(groups, cross_fitted, Rule.minimum_traces, most)})


def _with_rows(attachments: Mapping[str, npt.NDArray[Any]], frame: pd.DataFrame) -> dict[str, npt.NDArray[Any]]:
    """Attached rows of the validation with those of a frame, in place of earlier ones of its part and condition."""
    rows = validation.validation_arrays(frame)
    if "validation.part" not in attachments:
        return rows
    others = np.zeros(len(attachments["validation.part"]), dtype=bool)
    for column in ("part", "condition"):
        others |= attachments[f"validation.{column}"] != frame[column].iloc[0]
    return {name: np.concatenate([attachments[name][others], part]) for name, part in rows.items()}


def prompt_attachments(
    prompts: Sequence[str], folds: npt.NDArray[np.integer], part: str = domain_shift.PART
) -> dict[str, npt.NDArray[Any]]:
    """A part from prompts, which may repeat, and folds (P,); empty for too few."""
    fold_of = dict(zip(prompts, folds.tolist(), strict=True))
    reference = domain_shift.fit_prompt_reference(list(fold_of), np.array(list(fold_of.values()), dtype=np.intp))
    return {} if reference is None else attached({part: reference})


def shortened(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Numbers with 12 bits of mantissa: at most one part in 8,000 off, packed smaller."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x400)) & np.uint32(0xFFFFF800)).view(np.float32)


def stop_rules(
    log_posteriors: Floating, prompt_folds: Ints, calibrated: calibration.Calibration
) -> dict[str, npt.NDArray[Any]]:
    """Stop rules of every level on sessions of all folds."""
    classes, folds = log_posteriors.shape[1], np.unique(prompt_folds).tolist()
    sessions = validation.fold_sessions(prompt_folds, folds, classes, validation.SESSION_ORDERS, SPLIT_SEED)
    ratios = sequential_stop.running_ratios(log_posteriors, sessions.rows, calibrated)
    nearest = sequential_stop.nearest_sources(log_posteriors, np.repeat(np.arange(classes), len(prompt_folds)))
    levels = validation.STOP_LEVELS
    return sequential_stop.stop_arrays(
        [sequential_stop.fit_stop_rule(ratios, sessions, nearest, level) for level in levels]
    )


def attached(parts: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Attachments of an enrolment out of fitted statistics, by the name of their part."""
    return {f"{part}.{name}": array for part, fitted in parts.items() for name, array in fitted.to_arrays().items()}


CHECKED = 400  # evenly drawn rows on which an ensemble is compared: embeddings are computed again
PLACED: tuple[str, View] = DEFAULT_PROXY, "ur"  # places traces of readers with an encoder of their own
LOOKED_AT = 25  # responses of a source whose lengths are looked at


def enrolment_of(
    release: Release, proxy: str, view: View, roster: str, *, layer: int | None = None, limit: int | None = None,
    name: str | None = None, method: str = methods.LDA_LIVE, held_out: bool = False,
) -> Enrolment:  # fmt: skip
    """Enrolment of a roster of the release.

    proxy : that of the reader; several are joined by '+', and an encoder stands in its place.
    layer : block of a control that stands at one block; by default the modal one.
    method : of :data:`backend.methods.registry.ENROLLABLE`. Traces are placed at the modal block of the paper's probes,
        of the first of several proxies, or of the default one where an encoder reads.
    held_out : as of :func:`fit_attachments`.
    Raises AtlasError if fingerprints, layer scan or evaluation are not on disk, or heads differ from the evaluation.
    """
    by, read = PLACED if method in methods.ENCODED else (proxy.partition("+")[0], view)
    rows = slice_of(release, "agent500", by, read, roster, limit)
    identity = rows.store.identity()
    rerun_command = artifacts.evaluation(READER_PAPER, by, read, roster, limit)
    folder = artifacts.artifact_folder(READER_PAPER, by, read, roster, len(rows.prompt_ids))
    if identity is None:
        raise AtlasError(f"There are no fingerprints of {by} in view {read}", f"Run: {rerun_command}")
    rows.check()
    selected = _selected(folder, identity.as_text(), rerun_command)
    known_prompts = release.prompts("agent500").set_index("sample_id")["prompt"]
    prompts = [str(known_prompts[i]) for i in rows.prompt_ids]
    folder = artifacts.enrolled_folder(method, proxy, view, roster, len(rows.prompt_ids))
    rerun_command = artifacts.evaluation(method, proxy, view, roster, limit)
    scores = load_conditions(folder, rerun_command)
    if method in methods.ONE_BLOCK:
        selected = {None: selected[None]} | dict.fromkeys(range(FOLDS), layer or selected[None])
    embedded = reads_of(proxy, PAIR if method == methods.LLMMAP else view)
    heads = _heads(method, rows, selected, folder, rerun_command, by, embedded)
    place = max(selected[fold] for fold in range(FOLDS)) if method == READER_PAPER else selected[None]
    variants = {condition: "full" if condition == CLEAN else condition for condition in scores}
    fingerprints = {c: rows.load(place, part) for c, part in variants.items() if place in rows.layers(part)}
    fitted = fit_attachments(
        scores, rows.prompt_folds, fingerprints, "agent500", families=rows.families, held_out=held_out
    )
    fitted |= _validation(folder, method)
    if (folder / artifacts.TRANSFER_FILE).exists():
        transferred = np.load(folder / artifacts.TRANSFER_FILE, allow_pickle=False).mean(0, dtype=np.float64)
        asked = release.prompts("math100").iloc[: len(transferred) // len(rows.sources)]
        other_folds = fold_of_prompts(asked["sample_id"].astype(str).tolist())
        fitted = with_background(fitted, transferred, asked["prompt"].tolist(), other_folds, rows.families)
    attachments = prompt_attachments(prompts, rows.prompt_folds) | fitted
    hashes, folds = prompt_table(prompts, rows.prompt_folds.tolist())
    probe = heads[0].probe
    further = {named(one.reads) for one in (probe.members if isinstance(probe, Ensemble) else ())} - {by, *GRAMS}
    facts: dict[str, Any] = {part: getattr(identity, part) for part in ("proxy_hash", "engine", "max_tokens")}
    facts |= {"data_hash": release.manifest_hash, "records": len(rows.labels), "roster": roster}
    facts |= {"benchmark": "agent500"} | _lengths(release, rows) | name_facts(release, rows.sources) | creation_facts()
    if method in methods.READOUTS and by != DEFAULT_PROXY:
        facts["cells_by"] = DEFAULT_PROXY
    if further:
        facts["hashes_beside"] = {one: proxy_hash(one) for one in sorted(further)}
    width = 0 if method in methods.STATES else rows.load(selected[None]).shape[1] // FINGERPRINT_MODES
    enrolment = Enrolment(
        name=name or "-".join((roster, *(() if method == methods.LDA_LIVE else (method,)), proxy, view)), proxy=by,
        view=read, sources=tuple(rows.sources), families=tuple(rows.families), heads=heads,
        log_prior=np.full(len(rows.sources), -np.log(len(rows.sources))), prompts=hashes, folds=folds, facts=facts,
        attachments=attachments, **reading_of(method, proxy, view, selected[None], width),
    )  # fmt: skip
    if method in (methods.LDA_LIVE, methods.FUSED_LIVE):  # a bank is stored as it was evaluated
        return enrolment
    enrolment, some = as_stored(enrolment), None
    if enrolment.block == methods.TEXT:
        of_heads = of_texts(enrolment, [trace.response for trace in _traces(release, rows)])
    elif enrolment.block == methods.SEVERAL:
        needed = auxiliary_models(enrolment)
        proxies = (by, *(reads for reads, encodes in needed.items() if not encodes))
        known = {one: slice_of(release, "agent500", one, read, roster, limit) for one in proxies}
        others = {reads: SentenceEncoder(named(reads)) for reads, encodes in needed.items() if encodes}
        of_heads = of_members(enrolment, known, _traces(release, rows), others)
        some = np.linspace(0, len(rows.labels) - 1, min(CHECKED, len(rows.labels))).astype(np.intp)
    else:
        of_heads = of_states(enrolment, rows)
    furthest = check_heads(enrolment, rows, scores[CLEAN], of_heads, rerun_command, some)
    print(f"{enrolment.name}: log-posteriors of enrolled prompts differ by {furthest:.1e} nats at most")
    return enrolment


def _heads(
    method: str, rows: Slice, selected: Mapping[int | None, int], folder: Path, rerun_command: str, by: str,
    embedded: str,
) -> tuple[Head, ...]:  # fmt: skip
    """Heads of a method, a fold each: saved by its evaluation, or fitted again where it saved none."""
    if method in methods.EMBEDDED:
        models, alone = artifacts.load_models(folder, rerun_command), np.ones((CELLS, 1))
        return tuple(Head(Ensemble((Member(embedded, (), models[fold]),), alone), (), fold) for fold in range(FOLDS))
    if methods.block_of(method) == methods.SEVERAL:
        return stacked_heads(folder, by, rerun_command)
    if method in (methods.LDA_LIVE, methods.FUSED_LIVE):
        banks, blocks = (load_banks if method == methods.LDA_LIVE else load_ngram_banks)(folder, rerun_command)
        return tuple(Head(banks[fold], blocks, fold) for fold in range(FOLDS))
    if method == READER_PAPER:
        probes = artifacts.load_probes(folder, rerun_command)
        return tuple(Head(probes[fold], (selected[fold],), fold) for fold in range(FOLDS))
    if methods.block_of(method) != methods.TEXT:
        return control_heads(method, rows, {fold: selected[fold] for fold in range(FOLDS)})
    for fold in range(FOLDS):
        if not (folder / ngram_file(fold)).exists():
            raise AtlasError(f"The n-grams of fold {fold} are missing in {folder}", f"Run: {rerun_command}")
    return tuple(Head(read_ngrams(folder / ngram_file(fold)), (), fold) for fold in range(FOLDS))


def stacked_heads(folder: Path, proxy: str, rerun_command: str) -> tuple[Head, ...]:
    """Heads of a stacked reader, a fold each; their layers are those of ``proxy``."""
    members, shares = artifacts.load_stacks(folder, rerun_command)
    for member in members:
        if member.reads.endswith(f":{TUNED}") and not artifacts.holds_models(member.folder):
            raise AtlasError(
                f"Of {member.reads} only scores are saved in {member.folder.parent}, which is enough to stack them",
                f"To train it again, which takes hours, remove that folder and run: {rerun_command}",
            )
    models = [artifacts.load_models(member.folder, rerun_command) for member in members]
    own = tuple(sorted({layer for member in members if member.reads == proxy for layer in member.layers}))
    heads = []
    for fold in range(FOLDS):
        parts = (Member(one.reads, one.layers, fitted[fold]) for one, fitted in zip(members, models, strict=True))
        heads.append(Head(Ensemble(tuple(parts), shares[fold]), own, fold))
    return tuple(heads)


def _traces(release: Release, rows: Slice, most: int | None = None) -> list[Trace]:
    """Traces of the rows, in their order; of the first ``most`` prompts of a source."""
    records = release.records("agent500")
    width, prompts = len(records.prompt_ids), range(len(rows.prompt_ids))[:most]
    return [records.traces[s * width + p] for s in range(len(rows.sources)) for p in prompts]


def _validation(folder: Path, method: str) -> dict[str, npt.NDArray[Any]]:
    """Rows of the validation that the stage audit saved, as attachments; none where it has not run."""
    if not (folder / VALIDATION).exists():
        command = f"python -m jobs evaluate --stage audit --method {method}"
        print(f"No validation is attached: run {command} first ({folder.name})")
        return {}
    with np.load(folder / VALIDATION, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _selected(folder: Path, identity: str, rerun_command: str) -> dict[int | None, int]:
    """Selected block of every outer fold, and the modal one under None, from the scan of these fingerprints."""
    rows: list[dict[str, Any]] = []
    path = folder / "scan.jsonl"
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            entry = json.loads(line)
            rows += entry["scores"] if entry["identity"] == identity else []
    if not rows:
        raise AtlasError(f"There is no layer scan of the present fingerprints in {folder}", f"Run: {rerun_command}")
    keys = ["outer_fold", "inner_fold", "layer"]
    chosen = select_layers(pd.DataFrame(rows).astype(dict.fromkeys(keys, int)).drop_duplicates(keys, keep="last"))
    pairs = zip(chosen["outer_fold"], chosen["layer"], strict=True)
    return {None if pd.isna(fold) else int(fold): int(layer) for fold, layer in pairs}


def _lengths(release: Release, rows: Slice) -> dict[str, float]:
    """Where whole responses end, by the first few of each source; empty without tokenizer."""
    if installed(describe(DEFAULT_PROXY)) is None:
        return {}
    tokens = count_tokens(truncation_tokenizer(), _traces(release, rows, LOOKED_AT))
    sources = np.repeat(np.arange(len(rows.sources)), min(LOOKED_AT, len(rows.prompt_ids)))
    return {"whole_tokens": whole_tokens(tokens, sources)}


def enrolment_of_traces(
    traces: Sequence[Trace], labels: Sequence[str], reader: Reader, *, name: str, proxy: str, weights_hash: str, view:
    View, layer: int, families: Mapping[str, str] | None = None, data_hash: str | None = None, blocks: tuple[int, ...] |
    None = None, validated: bool = True, method: str | None = None, corpus: Corpus | None = None,
    held_out: bool = False,
) -> Enrolment:  # fmt: skip
    """Enrolment of labelled traces: a head a prompt fold, calibrated on held-out prompts.

    With fewer than five prompts there is one probe on everything; where a source lacks a prompt, nothing is calibrated.
    blocks : those that discriminants read, where there are prompts for all folds; traces are placed at ``layer``.
    validated : measure it on its own prompts.
    method : of :data:`backend.enrolment.head_fits.METHODS`, or 'auto'; by default discriminants where blocks are given.
    corpus : the traces as they were read before, in their order; labels and folds are set here.
    held_out : as of :func:`fit_attachments`.
    """
    counts = Counter(labels)
    sources = sorted(counts)
    if len(sources) < 2:
        raise AtlasError(f"{len(sources)} source is not enough to tell sources apart", "Give at least two")
    few = min(sources, key=counts.__getitem__)
    if counts[few] < SMALLEST:
        raise AtlasError(f"'{few}' has {counts[few]} traces", f"Give at least {SMALLEST} of every source")
    known = tuple((families or {}).get(source, source) for source in sources)
    numbers = np.array([sources.index(label) for label in labels])
    prompts = sorted({trace.prompt for trace in traces})
    attachments, facts = dict[str, npt.NDArray[Any]](), dict[str, Any]()
    if few_prompts := len(prompts) < FOLDS:
        method, blocks = READER_PAPER, None
    method = method or (methods.LDA_LIVE if blocks else READER_PAPER)
    of_prompt = np.zeros(len(prompts), dtype=np.intp) if few_prompts else fold_of_prompts(prompts)
    place = {prompt: i for i, prompt in enumerate(prompts)}
    rows = np.array([place[trace.prompt] for trace in traces])
    if corpus is None:
        cuts, read = (() if method == READER_PAPER else None), (*(blocks or ()), layer)
        corpus = read_corpus(traces, reader, view, read, numbers, of_prompt[rows], len(sources), cuts)
    else:
        corpus = replace(corpus, labels=numbers, folds=of_prompt[rows], classes=len(sources))
    prior = np.log(np.bincount(numbers) / len(numbers))
    if few_prompts:
        probe = fit_probe(corpus.fingerprints(layer, CLEAN).astype(np.float32), numbers, len(sources))
        heads: tuple[Head, ...] = (Head(probe, (layer,)),)
    else:
        attachments |= prompt_attachments(prompts, of_prompt)
        fits = Fits(corpus, proxy, blocks or (layer,), dict.fromkeys(range(FOLDS), layer))
        choice = choose(fits) if method == AUTO else None
        fitted = fit_chosen(fits, choice) if choice else heads_of(fits, method)
        method, heads, scores = fitted.method, fitted.heads, fitted.log_posteriors
        facts = {"choice": choice.facts} if choice else {}
        if method == READER_PAPER:
            prior = np.log(np.full(len(sources), 1 / len(sources)))
        order = np.lexsort((rows, numbers))
        if len(order) == len(sources) * len(prompts) == len(set(zip(numbers, rows, strict=True))):
            scores = {c: part[order] for c, part in scores.items()}
            placed = {c: corpus.fingerprints(layer, c)[order].astype(np.float32) for c in scores}
            attachments |= fit_attachments(scores, of_prompt, placed, families=known, held_out=held_out)
            if validated:
                refit, parts = refit_of(method, [corpus.fingerprints(b, CLEAN)[order] for b in fits.blocks], of_prompt)
                measured = validation_rows(scores, of_prompt, known, placed[CLEAN], refit, parts)
                attachments |= validation.validation_arrays(measured)
    facts |= {"data_hash": data_hash, "records": len(numbers), "whole_tokens": whole_tokens(corpus.tokens, numbers)}
    enrolment = assemble(
        reader, method, heads, name, (proxy, weights_hash), view, layer, tuple(sources), known,
        dict(zip(prompts, of_prompt.tolist(), strict=True)), facts, attachments,
    )  # fmt: skip
    return replace(enrolment, log_prior=prior) if method == READER_PAPER else enrolment


def assemble(
    reader: Reader, method: str, heads: tuple[Head, ...], name: str, proxy: tuple[str, str], view: View, layer: int,
    sources: tuple[str, ...], families: tuple[str, ...], fold_of: Mapping[str, int], facts: Mapping[str, Any],
    attachments: Mapping[str, npt.NDArray[Any]],
) -> Enrolment:  # fmt: skip
    """Enrolment of what a reader read, with an even prior; ``proxy`` is its key and the hash of its weights."""
    hashes, folds = prompt_table(list(fold_of), list(fold_of.values()))
    facts = {
        "proxy_hash": proxy[1],
        "engine": f"{reader.engine}-{str(reader.dtype).removeprefix('torch.')}-{reader.device.type}",
        "max_tokens": reader.max_tokens,
        **facts,
        **creation_facts(),
    }
    return Enrolment(
        name=name, proxy=proxy[0], view=view, sources=sources, families=families, heads=heads,
        log_prior=np.full(len(sources), -np.log(len(sources))), prompts=hashes, folds=folds, facts=facts,
        attachments=attachments, **reading_of(method, proxy[0], view, layer, reader.hidden_size),
    )  # fmt: skip


def reading_of(method: str, proxy: str, view: View, layer: int, hidden_size: int) -> dict[str, Any]:
    """Fields of an enrolment about how a method reads: reader, block, place and width."""
    return {
        "reader": methods.reader_id(method, proxy, view),
        "block": methods.block_of(method),
        "landing": None if method == READER_PAPER else layer,
        "width": None if method in methods.STATES else hidden_size,
    }


def refit_of(
    method: str, arrays: Sequence[npt.NDArray[np.floating]], folds: npt.NDArray[np.intp]
) -> tuple[Rediscriminated | None, tuple[str, ...]]:
    """Refits a method by rows (C * P, 2 d) of every block; and parts of its validation."""
    if method == methods.LDA_LIVE:
        return Rediscriminated.of(arrays, folds), PARTS
    return None, PARTS if method == READER_PAPER else tuple(part for part in PARTS if part != "refit")


class Sample(NamedTuple):
    """One shipped response."""

    source: str
    prompt_id: str
    trace: Trace


def sample_enrolment(
    reader: Reader, proxy: str = "smollm2-135m", blocks: tuple[int, ...] | None = None, held_out: bool = False
) -> tuple[Enrolment, list[Sample]]:
    """Enrolment of 50 of the 60 shipped prompts, and the responses to the other 10, to try it on."""
    known, rest = split_samples()
    families = {row.source: row.source.partition("-")[0] for row in known}
    data_hash = hashlib.sha256(gzip.decompress(RESPONSES.read_bytes())).hexdigest()
    enrolment = enrolment_of_traces(
        [row.trace for row in known], [row.source for row in known], reader, name=f"samples-{proxy}-ur", proxy=proxy,
        weights_hash=proxy_hash(proxy), view="ur", layer=12, families=families, data_hash=data_hash, blocks=blocks,
        held_out=held_out,
    )  # fmt: skip
    return enrolment, rest


def split_samples() -> tuple[list[Sample], list[Sample]]:
    """The shipped responses: those to the prompts that are enrolled, and those to the others."""
    records = sample_records()
    enrolled = set(split_prompts(records.prompt_ids)[0])
    keys = [(source, prompt) for source in records.sources for prompt in records.prompt_ids]
    rows = [Sample(*key, trace) for key, trace in zip(keys, records.traces, strict=True)]
    return [row for row in rows if row.prompt_id in enrolled], [row for row in rows if row.prompt_id not in enrolled]


def split_prompts(prompt_ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Prompts to enrol, and the sixth of them to try: fold 0 of the protocol's shuffle."""
    ids = sorted(set(prompt_ids))
    fold = fold_of_prompts(ids, 6)
    return [i for i, f in zip(ids, fold, strict=True) if f], [i for i, f in zip(ids, fold, strict=True) if not f]


def name_facts(release: Release, sources: Sequence[str]) -> dict[str, Any]:
    """Readable names of a roster's sources, as the store has them, where these are others than their labels."""
    roster = release.roster()
    names = dict(zip(roster["label"], roster["repo_id"].fillna(roster["label"]), strict=True))
    known = Counter(names.get(source, source) for source in sources)
    shown = {one: names[one] for one in sources if names.get(one, one) != one and known[names[one]] == 1}
    return {"names": shown} if shown else {}


def creation_facts() -> dict[str, Any]:
    """Facts of every new enrolment."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {"seed": SPLIT_SEED, "code_version": code_version(), "created": created}

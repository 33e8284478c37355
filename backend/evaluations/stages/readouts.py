"""Fused readouts: discriminants over several blocks and n-grams, stacked (stage readouts).

One reader a stack (the fused readout and its ablations), with shortened responses and Math100, calibration at every
budget, and paired comparisons with the paper's readout. Math100 is reported as it is (condition clean), and with what
unlabelled responses to other prompts of the new domain show: a bias a source (background), or fingerprints moved as
well (aligned).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from backend.corpus.release import Release
from backend.errors import AtlasError
from backend.evaluations.artifacts import CLEAN_FILE, keep_stacks, load_log_posteriors
from backend.evaluations.attribution import cluster_hits, compare_endpoints
from backend.evaluations.readouts import LENGTHS, TRAINED, fuse, transfer
from backend.evaluations.stages import EvaluateOptions, readout_members
from backend.evaluations.stages.readout_live import evaluate_live, live_blocks
from backend.evaluations.stages.readout_members import NETWORK, SOLVED, Plan, Scorer, bank_of, scorer_of
from backend.evaluations.stages.readout_writing import Calibrator, write_lengths, write_transfer
from backend.evaluations.stages.roster_run import RosterRun
from backend.methods.discriminant import blocks_at
from backend.methods.fine_tuning import TUNED
from backend.methods.network import NetworkSettings
from backend.methods.ngrams import GRAMS, STYLE
from backend.methods.readout import Ints
from backend.methods.registry import (
    ENCODER,
    FUSED_LIVE,
    FUSED_TUNED,
    LDA_LIVE,
    LINEAR,
    METHODS,
    READOUTS,
    STYLED,
    TEXT_TUNED,
)
from backend.methods.stack import CELLS
from backend.protocol import CLEAN, READER_PAPER
from backend.proxies.registry import DEFAULT_PROXY, describe, proxy_key
from backend.statistics import SEED
from backend.store.writers import StageRows
from backend.traces import View

Pairs = list[tuple[str, str]]  # Subject and reference
READ: View = "r"  # Input view of what reads text alone and has a proxy
LIVE = (LDA_LIVE, FUSED_LIVE)
ALONE = (*LIVE, *SOLVED)  # Readers of this stage that are a member of no other
_MEMBER = re.compile(rf"([^:,]+)(?::(\d+(?:\+\d+)*|{TUNED}))?")


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Fit, stack and evaluate on every roster."""
    plan = plan_of(options)
    rosters = sorted(options.rosters, key=lambda name: len(release.roster(name)))
    for roster in rosters:
        run = RosterRun(connection, release, roster, options.limit)
        if not options.methods or set(options.methods) - {*LIVE}:
            evaluate(run, plan, options.methods)
        for method in (method for method in LIVE if method in (options.methods or LIVE)):
            for proxy, blocks in plan.blocks.items():
                evaluate_live(run, proxy, live_blocks(proxy, blocks), plan.view, method)
        if plan.blocks and plan.tuned:
            compare(run, replace(plan, tuned=None))
        compare(run, plan)


def plan_of(options: EvaluateOptions) -> Plan:
    """The members that the options name, or the default ones. Raises AtlasError if these cannot be read."""
    if not options.members:
        usual = {options.proxy: blocks_at(describe(options.proxy).depth)}
        return Plan(usual, ("word", STYLE), view=options.views[0], network=NetworkSettings(), solved=SOLVED)
    blocks: dict[str, tuple[int, ...]] = {}
    grams: list[str] = []
    network, tuned, solved = None, None, []
    for part in options.members.split(","):
        found = _MEMBER.fullmatch(part.strip())
        if part.strip() == NETWORK:
            network = NetworkSettings()
        elif part.strip() in SOLVED:
            solved.append(part.strip())
        elif found and not found[2] and found[1] in GRAMS:
            grams.append(found[1])
        elif found and found[2] == TUNED:
            tuned = proxy_key(found[1])
        elif found and found[2]:
            blocks[proxy_key(found[1])] = tuple(sorted({int(layer) for layer in found[2].split("+")}))
        else:
            raise AtlasError(
                f"'{part}' is no member of a fused readout",
                f"Write a proxy and its blocks, such as smollm2-135m:9+18, an encoder to be tuned, such as "
                f"minilm-l6:{TUNED}, or one of {', '.join((*GRAMS, NETWORK, *SOLVED))}",
            )
    if not blocks and (network or solved or not (grams or tuned)):
        lacking = ([NETWORK] if network else solved) or [NETWORK]
        raise AtlasError(f"'{lacking[0]}' needs the blocks of a proxy", "Add some, such as smollm2-135m:9+18")
    return Plan(blocks, tuple(grams), view=options.views[0], network=network, tuned=tuned, solved=tuple(solved))


def stacks_of(plan: Plan) -> dict[tuple[str, str | None], tuple[str, list[str]]]:
    """Readers (method, proxy) to their name and members: every bank, text alone, states alone, everything."""
    out: dict[tuple[str, str | None], tuple[str, list[str]]] = {}
    together = "+".join(plan.blocks)

    def members(banks: Iterable[str]) -> list[str]:
        return [member for bank in banks for member in plan.members(bank)]

    solved = {readout_members.REGRESSION: "Regression", readout_members.EXPERTS: "Experts within families"}
    for proxy in plan.blocks:
        out["lda-full", proxy] = (f"Discriminants, whole responses · {proxy}", [f"{proxy}@{CLEAN}"])
        out["lda", proxy] = (f"Discriminants, every length · {proxy}", [f"{proxy}@{length}" for length in TRAINED])
        for part, name in solved.items():
            if part in plan.solved:
                out[part, proxy] = (f"{name}, whole responses · {proxy}", [f"{proxy}@{part}"])
        if plan.network:
            out[NETWORK, proxy] = (f"Network · {proxy}", [f"{proxy}@{NETWORK}"])
            out["states", proxy] = (f"Discriminants and network · {proxy}", plan.members(proxy))
    for kind in plan.grams:
        method = f"ngram-{kind}-lengths"
        out[method, None] = (METHODS[method].name, plan.members(kind))
    if plan.tuned:
        name = f"Fine-tuned encoder, every length · {plan.tuned}"
        out[ENCODER, plan.tuned] = (name, plan.members(plan.texts[0]))
    if len(plan.blocks) > 1:
        out["fused-states", together] = (f"Fused states · {together}", members(plan.blocks))
    grams = [kind for kind in plan.grams if kind != STYLE]
    if plan.network and grams:
        linear = [one for one in members((*plan.blocks, *grams)) if not one.endswith(f"@{NETWORK}")]
        out[LINEAR, together] = (f"Fused without networks · {together}", linear)
    encoder = f"{TUNED}-{plan.tuned}"
    by: str | None
    for banks, method, by, name in (
        (plan.texts, "fused-text", None, "Fused texts"),
        (plan.banks if plan.blocks else [], readout_members.FUSED, together, f"Fused · {together}"),
    ):
        plain = [bank for bank in banks if bank not in (encoder, STYLE)]
        if grams and len(plain) > 1:
            out[method, by] = (name, members(plain))
        for more, bank, words in ((TUNED, encoder, f"{plan.tuned}, tuned"), (STYLE, STYLE, "style n-grams")):
            if plain and bank in banks:
                among = [one for one in banks if one in (*plain, bank)]
                out[f"{method}-{more}", by] = (f"{name} · with {words}", members(among))
    return out


def evaluate(run: RosterRun, plan: Plan, methods: tuple[str, ...]) -> None:
    """Make the members' scores, and evaluate every stack of them on one roster; of ``methods`` where some are named."""
    scorer = scorer_of(run, plan)
    stacks = {key: stack for key, stack in stacks_of(plan).items() if key[0] in (methods or READOUTS)}
    scorer.complete({member for _, members in stacks.values() for member in members})
    cells = {condition: scorer.cells(condition) for condition in (*LENGTHS, *readout_members.TRANSFER)}
    tokens = {condition: scorer.tokens(condition) for condition in LENGTHS}
    for (method, proxy), (name, members) in stacks.items():
        view = view_of(plan, method, proxy)
        reader = run.enter_reader(method, proxy, view, name)
        details: dict[str, Any] = {"members": members, "fit_seconds": dict(scorer.costs)}
        with run.build("readouts", details, reader=reader, roster=run.roster) as build:
            calibrator = Calibrator(scorer.any_rows.prompt_folds, scorer.classes, tokens)
            details |= _stack(build, scorer, members, run.folder(method, proxy, view), cells, calibrator)


def view_of(plan: Plan, method: str, proxy: str | None) -> View | None:
    """Input view of a reader of :func:`stacks_of`; None for one of texts."""
    return READ if method == ENCODER else plan.view if proxy else None


def _stack(
    build: StageRows, scorer: Scorer, names: list[str], folder: Path, cells: Mapping[str, Ints], calibrator: Calibrator
) -> dict[str, object]:
    """Fuse, save, measure and write one reader. Returns its weights, for the build."""
    scores = {length: {member: scorer.scores(length, member) for member in names} for length in LENGTHS}
    fused = fuse(scores, scorer.labels, scorer.folds, cells, CELLS, names, calibrator.fit)
    keep_stacks(folder, [scorer.stack_member(member) for member in names], fused.stacks)
    weights = np.mean([stack.weights for stack in fused.stacks.values()], axis=0).round(3).tolist()
    clean = write_lengths(build, scorer, folder, fused.posteriors, calibrator)
    if not all(scorer.has_transfer(bank_of(member)) for member in names):
        return {"weights": weights, "math100": "not all blocks are read"}
    plain, aligned = (
        transfer({m: scorer.scores(condition, m) for m in names}, fused.stacks, cells[condition], names)
        for condition in readout_members.TRANSFER
    )
    states = any(bank_of(member) in scorer.plan.blocks for member in names)
    write_transfer(build, scorer, folder, plain, aligned if states else None, clean)
    return {"weights": weights}


def compare(run: RosterRun, plan: Plan) -> None:
    """Write the paired comparisons of the plan's readers that are measured, and of those that were compared before.

    Every stack and readout of live attribution is compared with the paper's readout, every stack with the fused one,
    what is carried to a minimum with plain discriminants. The fused readout of each proxy alone shows what another
    proxy adds.
    """
    prompt_folds = run.rows(next(iter(plan.blocks), DEFAULT_PROXY), plan.view).prompt_folds
    own, folders = plan_pairs(run, plan)
    for kind, among in sets_of(plan, own).items():
        hypotheses = f"{kind}/{run.roster}"
        if not run.comparable(hypotheses):
            continue
        pairs, others = run.with_stored(hypotheses, among)
        compared = {reader: folders[reader] for pair in among for reader in pair} | others
        hits = {
            reader: cluster_hits(load_log_posteriors(path, "python -m jobs evaluate"), prompt_folds)
            for reader, path in compared.items()
        }
        with run.build("readouts", {"readers": sorted(compared)}, seed=SEED, hypotheses=hypotheses) as build:
            build.replace("comparisons", compare_endpoints(hits, pairs))


def sets_of(plan: Plan, pairs: Pairs) -> dict[str, Pairs]:
    """Pairs by the set of hypotheses that Holm's correction runs in: what can be measured on one machine together.

    Stacks of texts alone need no fingerprints, a tuned encoder takes hours, what is in no stack needs the fingerprints
    of no other proxy, and style n-grams were added to stacks that stood.
    """
    out: dict[str, Pairs] = {}
    kind: str | None
    for pair in pairs:
        methods = {reader.partition("/")[0] for reader in pair}
        if methods & {*STYLED}:
            kind = None if plan.tuned else "readouts-style"
        elif not plan.blocks:
            kind = "readouts-text"
        elif plan.tuned:
            kind = "readouts-tuned" if methods & {ENCODER, FUSED_TUNED, TEXT_TUNED} else None
        else:
            kind = "readouts-alone" if methods & {*ALONE} else "readouts"
        if kind:
            out.setdefault(kind, []).append(pair)
    return out


def plan_pairs(run: RosterRun, plan: Plan) -> tuple[Pairs, dict[str, Path]]:
    """Pairs (subject, reference) of a plan, and the folders of their readers."""
    measured = {reader for (reader,) in run.connection.execute("SELECT reader FROM readers").fetchall()}
    live = [(method, proxy) for proxy in plan.blocks for method in LIVE]
    folders: dict[str, Path] = {}
    papers: dict[str, tuple[str, Path]] = {}
    for method, proxy in [*live, *((readout_members.FUSED, proxy) for proxy in plan.blocks), *stacks_of(plan)]:
        parts = method, proxy, view_of(plan, method, proxy)
        reader, folder = "/".join(part for part in parts if part), run.folder(*parts)
        if reader in measured and (folder / CLEAN_FILE).exists():
            folders.pop(reader, None)  # one of the plan's own stands in its order
            folders[reader] = folder
            papers |= {reader: paper} if (paper := paper_of(run, plan, method, proxy)) else {}
    for reader in [reader for reader in folders if reader not in papers]:
        print(f"{run.roster}: no log-posteriors of the paper's readout are here to compare {reader} with")
    pairs = [(reader, papers[reader][0]) for reader in folders if reader in papers]
    stacks = [reader for reader in folders if reader.partition("/")[0] not in ALONE]
    fused = [reader for reader in stacks if reader.partition("/")[0] == readout_members.FUSED]
    texts = [reader for reader in stacks if reader == "fused-text"]
    whole = (fused or texts or stacks or [""])[-1]
    pairs += [(reader, whole) for reader in stacks if reader != whole]
    for reader in folders:
        method, _, rest = reader.partition("/")
        if method in SOLVED and (plain := f"lda-full/{rest}") in folders:
            pairs.append((reader, plain))
    return pairs, folders | dict(papers.values())


def paper_of(run: RosterRun, plan: Plan, method: str, proxy: str | None) -> tuple[str, Path] | None:
    """The paper's readout of a reader's own proxy or, where it is not here, of the plan's first one; its folder."""
    known = [(next(iter(plan.blocks), DEFAULT_PROXY), plan.view)]
    if proxy and plan.blocks:
        known.insert(0, (proxy, view_of(plan, method, proxy) or plan.view))
    for one, view in known:
        folder = run.folder(READER_PAPER, one, view)
        if (folder / CLEAN_FILE).exists():
            return f"{READER_PAPER}/{one}/{view}", folder
    return None

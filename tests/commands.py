"""Commands as tests need them: those that documents and messages name, checked, and verbs with a tiny proxy."""

from __future__ import annotations

import argparse
import importlib
import shlex
from pathlib import Path

import pytest

import backend.attribution.scoring
import jobs.enroll
from backend.evaluations.stages.controls import needed_groups
from backend.methods.registry import BASELINES
from backend.proxies.reader import Reader
from jobs import evaluate, options, relate
from jobs import map as maps
from jobs.__main__ import verbs
from tests.tiny_models import tiny_decoder, tiny_tokenizer

PROGRAM = ["python", "-m", "jobs"]


def check(command: str) -> None:
    """Parse a command by the parser of its verb, and every list in it by what the verb itself reads it with."""
    words = shlex.split(command, comments=True)
    assert words[:3] == PROGRAM, command
    assert words[3] in verbs(), command
    verb = importlib.import_module(f"jobs.{words[3].replace('-', '_')}")
    parser = argparse.ArgumentParser()
    verb.configure(parser)
    try:
        asked = parser.parse_args(words[4:])
    except SystemExit as left:
        assert left.code == 0, f"the jobs do not take: {command}"  # --help leaves as well
        return
    if words[3] in ("evaluate", "map", "status", "all"):
        options.rosters_of(asked.roster)
    if words[3] in ("evaluate", "map", "extract", "relate"):
        options.views_of(asked.view)
    if words[3] == "relate":
        relate.methods_of(asked.method)
    if words[3] == "map":
        maps.methods_of(asked.method)
        maps.benchmarks_of(asked.benchmark)
    if words[3] == "evaluate":
        _check_methods(evaluate.stages_of(asked.stage), [part for part in asked.method.split(",") if part])


def _check_methods(stages: list[str], methods: list[str]) -> None:
    if "baselines" in stages:
        assert set(methods) <= set(BASELINES), methods
    if "controls" in stages:
        needed_groups(tuple(methods))


def use_tiny_proxy(folder: Path, patches: pytest.MonkeyPatch) -> None:
    """Let the verbs enrol and attribute with a tiny decoder, their cache and data in a folder."""
    patches.setenv("ATLAS_CACHE", str(folder / "cache"))
    patches.setenv("ATLAS_DATA", str(folder / "data"))
    reader = Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)
    for name, value in (("load_reader", reader), ("proxy_hash", "f" * 64), ("proxy_key", "tiny")):
        patches.setattr(jobs.enroll, name, lambda *_, value=value: value)
    patches.setattr(backend.attribution.scoring, "from_registry", lambda *_: (reader, "f" * 64))

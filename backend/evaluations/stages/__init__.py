"""Stages of ``python -m jobs evaluate``, one a module; each has ``run(connection, release, options)``."""

from __future__ import annotations

from dataclasses import dataclass

from backend.traces import View

STAGES = ("attribution", "controls", "baselines", "readouts", "stress", "audit", "statistics", "cost")
"""In the order in which one builds on another."""


@dataclass(frozen=True)
class EvaluateOptions:
    """What to evaluate."""

    proxy: str  # Short key of the proxy
    views: list[View]
    rosters: list[str]
    layers: str = "all"  # Candidate blocks, comma separated, or 'all' for those on disk
    limit: int | None = None  # Only the first prompts
    methods: tuple[str, ...] = ()  # Baselines or readouts, where a stage has several; empty for all
    model: str | None = None  # Hub id or folder of the model that a fine-tuned baseline starts from
    clean_only: bool = False  # Baselines: whole responses alone, none cut and no Math100
    members: str = ""  # Members of a fused readout, empty for the default ones

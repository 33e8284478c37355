"""Stages of ``python -m jobs evaluate``, one a module; each has ``run(connection, release, asked)``."""

from __future__ import annotations

from dataclasses import dataclass

from backend.traces import View

STAGES = ("attribution", "controls", "baselines", "readouts", "stress", "audit", "statistics", "cost")
"""In the order in which one builds on another."""


@dataclass(frozen=True)
class EvaluateOptions:
    """What a person asked to evaluate.

    Attributes
    ----------
    proxy : str
        Short key of the proxy.
    views : list of {'ur', 'r'}
    rosters : list of str
    layers : str
        Candidate blocks, comma separated, or 'all' for those on disk.
    limit : int or None
        Only the first prompts.
    methods : list of str
        Baselines or readouts, where a stage has several; empty for all.
    model : str or None
        Hub id or folder of the model that a fine-tuned baseline starts from.
    members : str
        Members of a fused readout, empty for the default ones.
    """

    proxy: str
    views: list[View]
    rosters: list[str]
    layers: str = "all"
    limit: int | None = None
    methods: tuple[str, ...] = ()
    model: str | None = None
    members: str = ""

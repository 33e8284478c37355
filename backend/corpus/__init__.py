"""Labelled traces of any sources: the release, a file of one's own, collected responses, the sample."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ProgressReporter:
    """Where messages and progress of long work go."""

    say: Callable[[str], None] = field(default=lambda _: None)  # gets one sentence a step
    progress: Callable[[str, int, int], None] = field(default=lambda *_: None)  # unit, done, total (0 while unknown)
    pause: Callable[[float], None] = time.sleep  # waits a number of seconds between two attempts

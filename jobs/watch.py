"""Watch an endpoint: raise an alarm when it no longer answers as the claimed source.

SOURCE is the address of an OpenAI-compatible endpoint, a folder of logs, - for JSONL on standard input, or posted for
what POST /v1/traces brings alone. The rate is that of a false alarm over all looks together, however many there are.
The state is kept: the same command goes on after any interruption, and counts no trace twice. --reference is the file
that was enrolled. Exit code 0 without an alarm, 1 while one stands (--accept begins anew), 2 where it cannot watch.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

from backend.corpus.collection import read_prompts
from backend.corpus.endpoints import RateLimits, parse_source
from backend.corpus.labelled import read_labelled
from backend.enrolment.catalogue import find_enrolment
from backend.errors import AtlasError
from backend.service import measurements, webhook
from backend.service.watch import RATE, Watch
from backend.service.watch import run as watch_on
from backend.service.watch_sources import (
    PER_LOOK,
    POSTED,
    STANDARD_INPUT,
    Arrivals,
    EndpointAnswers,
    FolderOfLogs,
    Inbox,
    Lines,
)
from backend.service.watch_state import VARIABLE, Question, WatchState
from jobs import trace_options as options
from jobs.trace_options import say

UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
WEBHOOK = "ATLAS_WEBHOOK"
WHOLE = 1e6  # seconds that one look waits for the end of standard input


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("source", metavar="SOURCE", help="address, folder, - or posted")
    parser.add_argument("--claimed", required=True, metavar="LABEL", help="source that it is said to be")
    parser.add_argument("--enrolment", metavar="NAME", help=options.ENROLMENT.format("the best that knows the claim"))
    text = "labelled traces that were enrolled, or the name of a corpus; needed at the first start only"
    parser.add_argument("--reference", type=Path, metavar="FILE", help=text)
    parser.add_argument("--name", metavar="NAME", help="of the watch (default: that of the claimed source)")
    parser.add_argument("--every", default="1h", metavar="TIME", help="30s, 10m, 1h, 1d (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help="one look, for CI")
    text = "false alarms over all looks (default: %(default)s)"
    parser.add_argument("--rate", type=float, default=RATE, metavar="SHARE", help=text)
    parser.add_argument("--seed", type=int, default=42, help="of drawn prompts, and of ties (default: %(default)s)")
    parser.add_argument("--accept", action="store_true", help="begin anew after an alarm that was looked into")
    parser.add_argument("--state", type=Path, metavar="FOLDER", help="of all watches (default: in the cache folder)")
    text = f"address that gets every alarm as JSON; or the variable {WEBHOOK}, which no list of processes shows"
    parser.add_argument("--webhook", metavar="URL", help=text)
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help="answer Prometheus at /metrics")
    group = parser.add_argument_group("endpoints")
    group.add_argument("--model", metavar="NAME", help="model, with settings behind it: gpt-9,temperature=0.7")
    group.add_argument("--prompts", type=Path, metavar="FILE", help="one a line, or JSONL with prompt")
    text = "prompts of a look, or lines of standard input (default: %(default)s)"
    group.add_argument("--per-look", type=int, default=PER_LOOK, metavar="N", help=text)
    group.add_argument("--key-env", metavar="VARIABLE", help="environment variable with the key")
    group.add_argument("--max-new-tokens", type=int, metavar="N", help="longest response (default: 128)")
    group.add_argument("--per-minute", type=float, metavar="N", help="most requests a minute")
    options.add_columns(parser)
    options.add(parser, "device")


def run(arguments: argparse.Namespace) -> int:
    """Watch until told to stop."""
    every = interval(arguments.every)
    if not 0 < arguments.rate < 1:
        raise AtlasError(f"A rate of {arguments.rate:g} is no share", "Give one between 0 and 1, such as .01")
    address = arguments.webhook or os.environ.get(WEBHOOK) or None
    if address is not None:
        webhook.check_address(address)
    if arguments.state is not None:
        os.environ[VARIABLE] = str(arguments.state)  # for its measurements as well
    arrivals, enrolment = arrivals_of(arguments, every), find_enrolment(arguments.enrolment, arguments.claimed)
    about = (arguments.claimed, enrolment.name, enrolment.sha256, arguments.rate, arguments.seed, arrivals.kind)
    name = arguments.name or re.sub(r"[^A-Za-z0-9_.-]+", "-", arguments.claimed).strip("-.")[:60]
    with ExitStack() as stack:
        state = stack.enter_context(WatchState.begin(name, Question(*about)))
        if arguments.accept:
            state.accept()
        if state.reference is None and arguments.reference is None:
            remedy = "Give the labelled traces that were enrolled: --reference FILE"
            raise AtlasError(f"The watch '{name}' has no traces of '{arguments.claimed}' to compare with", remedy)
        if arguments.metrics_port is not None:
            stack.callback(measurements.serve(arguments.metrics_port))
        watch = Watch.on(state, enrolment, arguments.device, say=say, address=address)
        if arguments.reference is not None:
            watch.refer_to(read_labelled(arguments.reference))
        stopped = stack.enter_context(options.stop_on_interrupt("the state is kept"))
        status = watch_on(watch, arrivals, every, once=arguments.once, stopped=stopped)
        sys.stdout.flush()
        say(f"{name}: {'an alarm stands; --accept begins anew' if status else 'no alarm'}.")
    return status


def arrivals_of(arguments: argparse.Namespace, every: float) -> Arrivals:
    """The source that the arguments name."""
    if arguments.per_look < 1:
        raise AtlasError(f"--per-look is {arguments.per_look}", "Give at least 1")
    columns = options.columns_of(arguments)
    if arguments.source == POSTED:
        return Inbox()
    if arguments.source == STANDARD_INPUT:
        waits, most = (WHOLE, sys.maxsize) if arguments.once else (every, arguments.per_look)
        return Lines(sys.stdin.fileno(), waits, most, columns)
    if "://" not in arguments.source:
        return FolderOfLogs(Path(arguments.source), columns)
    if arguments.model is None or arguments.prompts is None:
        raise AtlasError("An endpoint needs a model and prompts", "Give --model NAME --prompts FILE")
    defaults = {name: getattr(arguments, name) for name in ("max_new_tokens", "key_env")}
    source = parse_source(f"watched=api:{arguments.model}", defaults | {"base_url": arguments.source, "seed": None})
    limits = RateLimits(per_minute=arguments.per_minute)
    return EndpointAnswers(source, read_prompts(arguments.prompts), arguments.per_look, limits)


def interval(text: str) -> float:
    """Seconds of '30s', '10m', '1h' or '1d'."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not found or float(found[1]) <= 0:
        raise AtlasError(f"'{text}' is no time between two looks", "Write 30s, 10m, 1h or 1d")
    return float(found[1]) * UNITS[found[2]]

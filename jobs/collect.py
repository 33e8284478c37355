"""Ask sources for responses: local models, or endpoints that speak the OpenAI chat protocol.

A source is NAME=local:MODEL or NAME=api:MODEL with settings behind it, for example
terse=local:smollm2-135m,temperature=0.7,top_p=0.95,system=Answer in one sentence. The same command continues an
interrupted collection: responses that are in the file are not requested again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from backend import output_files
from backend.corpus import ProgressReporter
from backend.corpus.collection import collect, read_prompts
from backend.corpus.endpoints import RateLimits, Source, parse_source, read_sources
from backend.errors import AtlasError
from jobs import options


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    usual = RateLimits()
    parser.add_argument("--prompts", type=Path, required=True, metavar="FILE", help="one a line, or JSONL with prompt")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="JSONL file that grows")
    group = parser.add_argument_group("sources")
    group.add_argument("--source", action="append", default=[], metavar="SPEC", help="may be given several times")
    group.add_argument("--sources", type=Path, metavar="FILE", help="TOML file with a table [sources.NAME] each")
    group.add_argument("--limit", type=int, metavar="N", help="only the first N prompts")
    group.add_argument("--max-new-tokens", type=int, metavar="N", help="longest response (default: 128)")
    group.add_argument("--seed", type=int, help="where a source gives none (default: 42 for local models)")
    local = parser.add_argument_group("local models")
    local.add_argument("--batch", type=int, default=16, metavar="N", help="prompts at once (default: %(default)s)")
    options.add(local, "device")
    remote = parser.add_argument_group("endpoints")
    remote.add_argument("--base-url", metavar="URL", help="address of endpoints whose source gives none")
    remote.add_argument("--model", metavar="NAME", help="one endpoint without --source; also its name")
    remote.add_argument("--key-env", metavar="VARIABLE", help="environment variable with the key")
    remote.add_argument("--per-minute", type=float, metavar="N", help="most requests a minute")
    text = "requests at a time (%(default)s)"
    remote.add_argument("--concurrency", type=int, default=usual.concurrency, metavar="N", help=text)
    text = "seconds for an answer (%(default)s)"
    remote.add_argument("--timeout", type=float, default=usual.timeout, metavar="S", help=text)
    remote.add_argument("--retries", type=int, default=usual.retries, metavar="N", help="repetitions (%(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Collect, and say what is missing."""
    sources = sources_of(arguments)
    if arguments.limit is not None and arguments.limit < 1:
        raise AtlasError(f"limit is {arguments.limit}", "Give at least 1, or leave it out for all prompts")
    output_files.spare([arguments.to], filter(None, [arguments.prompts, arguments.sources]))
    prompts = read_prompts(arguments.prompts)[: arguments.limit]
    limits = RateLimits(arguments.per_minute, arguments.concurrency, arguments.timeout, arguments.retries)
    summary = collect(
        sources,
        prompts,
        arguments.to,
        batch_size=arguments.batch,
        device=arguments.device,
        manners=limits,
        hearer=ProgressReporter(lambda sentence: print(sentence, flush=True), _progress),
    )
    print(f"{arguments.to}: {summary.collected:,} responses collected now, {summary.present:,} were there.")
    if summary.missing:
        (source, sample_id), reason = next(iter(summary.missing.items()))
        raise AtlasError(
            f"{len(summary.missing):,} responses are missing, the first is '{sample_id}' of '{source}' ({reason})",
            "Run the same command again to ask for them once more",
        )


def sources_of(arguments: argparse.Namespace) -> list[Source]:
    """Sources of the command line and of the file."""
    defaults = {name: getattr(arguments, name) for name in ("max_new_tokens", "seed", "base_url", "key_env")}
    sources = [parse_source(text, defaults) for text in arguments.source]
    if arguments.sources:
        sources += read_sources(arguments.sources, defaults)
    if arguments.model:
        name = arguments.model.replace("/", "-")
        sources.append(parse_source(f"{name}=api:{arguments.model}", defaults))
    if not sources:
        raise AtlasError("No source was named", "Give --source NAME=local:smollm2-135m, --sources FILE or --model NAME")
    return sources


def _progress(source: str, done: int, needed: int) -> None:
    if sys.stderr.isatty():
        print(f"\r  {source}: {done} of {needed} ", end="\n" if done == needed else "", file=sys.stderr, flush=True)

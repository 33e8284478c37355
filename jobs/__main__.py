"""``python -m jobs VERB``: one verb a module; a problem that a person can solve is one sentence and exit code 2."""

from __future__ import annotations

import argparse
import ast
import importlib
import pkgutil
import sys
from pathlib import Path

import jobs
from backend.errors import AtlasError

STOPPED = "Stopped. Finished work is kept; the same command continues."
"""What is printed after Ctrl-C, unless a verb has a sentence of its own under this name."""
SHARED = ("options", "pipeline", "trace_options")  # modules that are no verbs


def verbs() -> list[str]:
    """Verbs, which are the modules of this package."""
    names = (module.name for module in pkgutil.iter_modules(jobs.__path__))
    return sorted(name for name in names if not name.startswith("_") and name not in SHARED)


def main(argv: list[str] | None = None) -> int:
    """Run one verb.

    Each verb is a module with ``configure(parser)`` and ``run(arguments) -> int``; its docstring is its help. It may
    have a sentence ``STOPPED`` for Ctrl-C.
    """
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python -m jobs", description="Jobs of the Provenance Atlas.")
    chosen = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    named = arguments[0] if arguments and arguments[0] in verbs() else None
    for verb in [named] if named else verbs():
        if named:
            module = importlib.import_module(f"jobs.{verb}")
            module.configure(chosen.add_parser(verb, description=module.__doc__))
        else:
            chosen.add_parser(verb, help=_summary(verb))
    parsed = parser.parse_args(arguments)
    chosen_verb = importlib.import_module(f"jobs.{parsed.verb}")
    try:
        return int(chosen_verb.run(parsed))
    except AtlasError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(getattr(chosen_verb, "STOPPED", STOPPED), file=sys.stderr)
        return 130


def _summary(verb: str) -> str:
    """First line of a verb's docstring, read without importing what the verb needs."""
    tree = ast.parse(Path(jobs.__path__[0], f"{verb}.py").read_text("utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())

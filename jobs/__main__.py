"""``python -m jobs VERB``: one verb a module; a problem that a person can solve is one sentence and exit code 2."""

from __future__ import annotations

import argparse
import ast
import importlib
import io
import pkgutil
import sys
from pathlib import Path
from typing import Any

import jobs
from backend.errors import AtlasError

STOPPED = "Stopped. Finished work is saved; the same command continues."
"""Message after Ctrl-C; a verb may have its own under this name."""
SHARED = ("options", "pipeline", "trace_options")  # modules that are no verbs


def verbs() -> list[str]:
    """Verbs, which are the modules of this package, with hyphens."""
    names = (module.name for module in pkgutil.iter_modules(jobs.__path__))
    return sorted(name.replace("_", "-") for name in names if not name.startswith("_") and name not in SHARED)


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return the exit code.

    Each verb is a module with ``configure(parser)`` and ``run(arguments)``, which returns an exit code or None for 0;
    its docstring is its help. It may have a sentence ``STOPPED`` for Ctrl-C.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # who reads a pipe waits for a line while the verb waits for hours
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python -m jobs", description="Jobs of the Provenance Atlas.")
    chosen = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    if arguments and arguments[0] in verbs():
        module = _module(arguments[0])
        module.configure(chosen.add_parser(arguments[0], description=module.__doc__))
    else:
        for verb in verbs():  # summaries, without importing what the verbs need
            tree = ast.parse(Path(jobs.__path__[0], f"{_file(verb)}.py").read_text("utf-8"))
            chosen.add_parser(verb, help=(ast.get_docstring(tree) or "").partition("\n")[0])
    parsed = parser.parse_args(arguments)
    chosen_verb = _module(parsed.verb)
    try:
        return chosen_verb.run(parsed) or 0
    except AtlasError as error:
        from backend.intake.traces import visible  # a message may quote a file, which a terminal must not obey

        print(f"Error: {visible(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(getattr(chosen_verb, "STOPPED", STOPPED), file=sys.stderr)
        return 130


def _file(verb: str) -> str:
    return verb.replace("-", "_")


def _module(verb: str) -> Any:
    return importlib.import_module(f"jobs.{_file(verb)}")


if __name__ == "__main__":
    sys.exit(main())

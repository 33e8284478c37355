"""Sign a report, an enrolment or a generation with an Ed25519 key.

The signed statement is written next to the file as FILE.intoto.json. python -m jobs verify FILE --signed-by KEY.pub
checks it. A second person signs with the same command and another key.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from backend import attestation
from backend.attribution.signed_files import describe_file
from backend.errors import AtlasError


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="report (.json), enrolment, generation")
    parser.add_argument("--key", type=Path, metavar="KEY", help="private key that signs")
    parser.add_argument("--new-key", type=Path, metavar="KEY", help="make a key: KEY and KEY.pub")
    text = "have the signatures stamped by this RFC 3161 authority; it gets a hash, nothing else"
    parser.add_argument("--timestamp", metavar="URL", help=text)


def run(arguments: argparse.Namespace) -> None:
    """Make a key, sign a file, or have its signatures stamped."""
    if arguments.new_key is not None:
        public = attestation.make_key(arguments.new_key)
        print(f"Written: {arguments.new_key} (keep it secret) and {public} (give it to whoever checks).")
    if arguments.file is None:
        if arguments.new_key is None:
            raise AtlasError("There is nothing to sign", "Give a FILE and --key KEY, or make a key: --new-key KEY")
        return
    key = arguments.key or arguments.new_key
    if key is None and arguments.timestamp is None:
        raise AtlasError("Without a key nothing is signed", "Give --key KEY, or make one: --new-key KEY")
    if key is not None:
        path, name = attestation.sign(arguments.file, *describe_file(arguments.file), key)
        print(f"Signed by {name}: {path}")
    if arguments.timestamp is not None:
        print(f"Stamped: {attestation.stamp(arguments.file, arguments.timestamp)}")

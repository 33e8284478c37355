"""What a signed statement says of a report, an enrolment or a generation, and whether it still holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from backend import attestation
from backend.attribution.verify import read_report
from backend.enrolment.files import load_enrolment
from backend.errors import AtlasError
from backend.intake import COMMAND_LINE


def describe_file(file: Path) -> tuple[str, dict[str, Any]]:
    """Kind of a file and the facts that are signed with its sha256; a damaged report or enrolment is refused."""
    if file.suffix == ".json":
        try:
            report = read_report(file.read_text("utf-8"), COMMAND_LINE.values)
        except (OSError, UnicodeDecodeError) as error:
            raise AtlasError(f"{file} cannot be read", "Give the .json file of a report") from error
        results = report["results"]
        facts = {name: report[name] for name in ("case", "created", "sha256")}
        facts |= {name: results[name] for name in ("verdict", "claimed", "leader", "traces")}
        return "report", facts | {"enrolment_sha256": report["method"]["enrolment_sha256"]}
    if file.suffix == ".npz":
        enrolment = load_enrolment(file)
        return "enrolment", {
            "name": enrolment.name, "reader": enrolment.reader, "sha256": enrolment.sha256,
            "sources": len(enrolment.sources), "proxy_hash": enrolment.facts.get("proxy_hash"),
        }  # fmt: skip
    if file.suffix == ".duckdb":
        return "generation", {"name": file.stem}
    return "file", {}


def signature_sentences(file: Path, public: Sequence[Path], authorities: Sequence[Path] = ()) -> Iterator[str]:
    """Sentences on who signed a file and when; without keys, only that it is signed. Raises AtlasError if it is not."""
    if not public:
        if attestation.envelope_path(file).exists():
            yield f"{file.name} is signed. Give --signed-by KEY.pub to check by whom."
        return
    found = attestation.verify(file, public, authorities)
    if found.kind != "file" and (found.kind, dict(found.facts)) != describe_file(file):
        raise AtlasError(f"The signed statement says something else of {file.name} than it holds", "Ask the signer")
    for name in found.signers:
        yield f"Signed ({found.kind}) by {name}."
    if found.others:
        yield f"Not checked, because their keys were not given: {', '.join(name[:16] for name in found.others)}."
    if found.stamped is not None:
        yield f"An authority saw these signatures on {found.stamped:%Y-%m-%d at %H:%M:%S} UTC."

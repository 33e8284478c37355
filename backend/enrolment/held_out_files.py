"""Answers to held-out groups on disk: one JSON file an enrolment in ``held-out/`` of the data folder, without text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from backend.enrolment.held_out_answers import MAKE, Answers
from backend.errors import AtlasError
from backend.store.database import default_data_folder

DIGITS = 3  # decimals of a score in nats


def answers_file(name: str, data_folder: Path | None = None) -> Path:
    """Where the answers of an enrolment lie."""
    return (data_folder or default_data_folder()) / "held-out" / f"{name}.json"


def save_answers(answers: Answers, path: Path) -> None:
    """Write answers in one step, scores to a thousandth of a nat. Raises AtlasError if the folder cannot be written."""
    told = {
        "enrolment": answers.enrolment,
        "sha256": answers.sha256,
        "k": answers.k,
        "seed": answers.seed,
        "facts": dict(answers.facts),
        "truth": answers.truth.tolist(),
        "source": answers.source.tolist(),
        "score": answers.score.round(DIGITS).tolist(),
        "lead": answers.lead.round(DIGITS).tolist(),
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(part)}" for name, part in told.items())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.partial")
        scratch.write_text(f"{{{lines}}}\n", "utf-8")
        scratch.replace(path)
    except OSError as error:
        raise AtlasError(
            f"{path} cannot be written ({error.strerror})", "Choose a folder that you may write to"
        ) from error


def load_answers(name: str, data_folder: Path | None = None) -> Answers:
    """The kept answers of an enrolment. Raises AtlasError if there are none, or the file is damaged."""
    path = answers_file(name, data_folder)
    try:
        told = json.loads(path.read_text("utf-8"))
        return Answers(
            str(told["enrolment"]),
            str(told["sha256"]),
            int(told["k"]),
            int(told["seed"]),
            np.array(told["truth"], dtype=np.intp),
            np.array(told["source"], dtype=np.intp),
            np.array(told["score"], dtype=np.float64),
            np.array(told["lead"], dtype=np.float64),
            dict(told["facts"]),
        )
    except FileNotFoundError as error:
        raise AtlasError(
            f"Nothing is kept of what '{name}' says of held-out groups", f"{MAKE} --enrolment {name}"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AtlasError(f"{path} is damaged ({type(error).__name__})", f"{MAKE} --enrolment {name}") from error

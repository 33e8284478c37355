"""Settings are declared once: the schema describes them, and the verb understands the command that is printed."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import fields

import pytest
from pydantic import TypeAdapter, ValidationError

from backend.attribution.settings import Settings, command_of, entries_of, option_of, refuse_wrong_numbers
from backend.errors import AtlasError
from backend.intake import Columns
from jobs import attribute

CHOSEN = Settings(
    claimed="a b", case="<case>", question="Who?", prior={"a b": 0.5}, prior_statement="By hand.",
    columns=Columns(response="out", time="none"), encoding="cp1251", show=3, against="c", orders=7, seed=1,
    stop_level=0.1, also=("x", "y"), keep_duplicates=True, candidates=("a b", "c, or d", "family:e"),
)  # fmt: skip


def parsed(command: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    attribute.configure(parser)
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "jobs", "attribute"]
    return parser.parse_args(words[4:])


def test_the_verb_understands_the_printed_command() -> None:
    read = parsed(command_of("my traces.jsonl", "mine", CHOSEN))
    assert (str(read.traces), read.enrolment, str(read.prior)) == ("my traces.jsonl", "mine", "report.json")
    assert (read.response_column, read.time_column, read.prompt_column) == ("out", "none", None)
    assert read.also == "x,y" and entries_of(read.candidates) == CHOSEN.candidates
    for name in {one.name for one in fields(Settings)} - {"enrolment", "prior", "columns", "also", "candidates"}:
        assert getattr(read, option_of(name)[2:].replace("-", "_")) == getattr(CHOSEN, name), name


def test_defaults_need_no_option() -> None:
    command = command_of("t.jsonl", "mine", Settings())
    assert command == "python -m jobs attribute t.jsonl --enrolment mine"
    plain, chosen = vars(parsed("python -m jobs attribute t.jsonl --enrolment mine")), vars(parsed(command))
    assert plain == chosen


def test_the_schema_describes_every_field() -> None:
    schema = TypeAdapter(Settings)
    properties = schema.json_schema()["properties"]
    assert all(one["description"].endswith(".") for one in properties.values())
    assert len(properties) == len(fields(Settings)) and "keep_text" in properties
    assert schema.validate_python({"keep_text": 2, "claimed": "a"}) == Settings(claimed="a", show=2)
    with pytest.raises(ValidationError, match="less than or equal to 10000"):
        schema.validate_python({"orders": 10_001})


@pytest.mark.parametrize("wrong", [{"orders": 0}, {"orders": 10_001}, {"show": -1}, {"seed": -1}])
def test_numbers_out_of_bounds_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(AtlasError, match=r"at least 1 and at most 10,000"):
        refuse_wrong_numbers(Settings(**wrong))  # type: ignore[arg-type]

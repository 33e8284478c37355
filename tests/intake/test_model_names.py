"""Names of models: what was requested and what came back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.intake.model_names import compare_names, plain_name, without_version


@pytest.mark.parametrize(
    ("requested", "returned", "compared"),
    [
        ("gpt-4o", "gpt-4o", "same"),
        ("openai/GPT-4o", "gpt-4o", "same"),
        ("gpt-4o", "gpt-4o-2024-08-06", "version"),
        ("gpt-4", "gpt-4-0613", "version"),
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "version"),
        ("gemini-1.5-pro", "models/gemini-1.5-pro-002", "version"),
        ("qwen-plus-latest", "qwen-plus-2025-01-25", "version"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-08-06", "another"),
        ("gpt-4o-2024-05-13", "gpt-4o", "another"),
        ("gpt-4o", "gpt-4o-mini-2024-07-18", "another"),
        ("claude-opus-4-5", "claude-sonnet-4-5-20250929", "another"),
    ],
)
def test_requested_and_returned(requested: str, returned: str, compared: str) -> None:
    assert compare_names(requested, returned) == compared


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_two_names(one: str, other: str) -> None:
    assert compare_names(one, one) == "same"
    assert (compare_names(one, other) == "same") == (plain_name(one) == plain_name(other))
    assert plain_name(one).startswith(without_version(one))

"""Enrolment files with wrong bytes: each is refused in a sentence that names it, or happens to be whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import load_enrolment, save_enrolment
from backend.errors import AtlasError


def refuses_damage(enrolment: Enrolment, folder: Path) -> Callable[[], None]:
    """A property to call: bytes of the enrolment's file are changed and its end is cut off."""
    save_enrolment(enrolment, folder / "whole.npz")
    whole, scratch = (folder / "whole.npz").read_bytes(), folder / "damaged.npz"

    @settings(max_examples=40, deadline=None)
    @given(data=st.data())
    def damaged(data: st.DataObject) -> None:
        held = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 6))):
            held[data.draw(st.integers(0, len(held) - 1))] = data.draw(st.integers(0, 255))
        scratch.write_bytes(bytes(held[: data.draw(st.integers(0, len(held)))]))
        try:
            load_enrolment(scratch)
        except AtlasError as error:
            assert scratch.name in str(error)

    return damaged

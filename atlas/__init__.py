"""What a person sees: pages, figures, notebooks, and the state that a link holds. It knows frames and no SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atlas.notebook import Attribution, Attributor, Corpus

__all__ = ["Attribution", "Attributor", "Corpus"]


def __getattr__(name: str) -> Any:
    """The classes of :mod:`atlas.notebook`, imported when they are first named: they bring torch."""
    if name in __all__:
        from atlas import notebook

        return getattr(notebook, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

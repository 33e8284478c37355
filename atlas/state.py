"""Choices in the URL, so that a link reopens the exact view.

Choices of fixed sets are checked here; names stay as they came, because only :mod:`atlas.data` knows the generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlencode

from atlas.theme import THEMES, Theme

PROJECTIONS = {"tsne": "t-SNE", "umap": "UMAP", "pca": "PCA"}
DIMENSIONS = (3, 2)
ACCESS = {"all": "All", "local": "Local", "api": "API"}
LINKS = {"selected": "Selected", "all": "All", "off": "None"}
SIZES = {"all": "All", "small": "≤4B", "middle": "5–20B", "large": ">20B"}
SPACES = {"one": "One", "raw": "Both", "centred": "Both, less means"}
REGIONS = {"off": "Off", "families": "Families", "clusters": "Clusters"}
COLOURS = {
    "family": "Family", "access": "Access", "size": "Size", "date": "Release date", "accuracy": "Accuracy, K = 20",
    "nearest": "Cosine to the nearest", "kin": "Same family among the 10 nearest", "axis": "Axis between two sources",
}  # fmt: skip
"""What the points of the map can be coloured by."""
METRICS = {"accuracy": "Accuracy", "macro_f1": "Macro-F1", "nll": "NLL", "ece": "ECE"}
OTHERS = {"on": "Other readers", "off": "Alone"}
REDUCTIONS = {"pooled": "Pooled", "fold": "By fold"}
PROTOCOLS = {"pair": "Pairs", "model": "Models", "family": "Families"}
MEASURES = {"accuracy": "Accuracy", "precision": "Precision", "recall": "Recall", "f1": "F1", "auc": "AUC"}
BUDGETS = (1, 5, 10, 20, 50, 100)
TABS = {"readers": "Readers", "conditions": "Conditions", "read": "What is read", "cost": "Cost"}
MOST_READERS = 6  # readers that one figure can hold side by side
LONGEST_NAME = 400  # characters of a name in a link; longer ones are no name of a source


_OFFERED: Mapping[str, Iterable[Any]] = {
    **{"theme": THEMES, "projection": PROJECTIONS, "dim": DIMENSIONS, "access": ACCESS, "size": SIZES, "links": LINKS},
    **{"space": SPACES, "regions": REGIONS, "colour": COLOURS, "k": BUDGETS, "metric": METRICS, "unsized": ("", "on")},
    **{"reduction": REDUCTIONS, "others": OTHERS, "protocol": PROTOCOLS, "measure": MEASURES, "tab": TABS},
}


@dataclass(frozen=True)
class View:
    """One view of the atlas; names stay as they came until they are settled against the data."""

    reader: str = ""
    roster: str = ""
    domain: str = ""
    theme: Theme = "dark"
    projection: str = "tsne"
    dim: int = 3
    source: str = ""  # label of the selected source
    families: tuple[str, ...] = ()  # isolated families, empty when all are shown
    access: str = "all"
    size: str = "all"  # sources whose name states so many parameters
    unsized: str = ""  # "on" keeps those whose name states none, too
    links: str = "selected"  # which neighbour links of the original space are drawn
    space: str = "one"  # whether the map holds both domains, and if so whether each domain's mean is taken away
    regions: str = "off"  # outlines: where families are dense, on a flat map, or which points lie close together
    colour: str = "family"
    released: str = ""  # first and last month that names state, '2024-07..2026-02'; ',undated' keeps the others
    chosen: tuple[str, ...] = ()  # labels of the sources that are selected together
    camera: tuple[float, ...] = ()  # eye, centre and up vector of the scene (nine numbers), empty for the default
    k: int = 20  # budget of traces
    metric: str = "accuracy"
    reduction: str = "pooled"
    others: str = "on"  # whether other readers of the same roster and domain are drawn behind
    zoom: str = ""  # family that the confusion matrix shows alone
    truth: str = ""  # with answer: the clicked cell of the confusion matrix
    answer: str = ""
    other: str = ""  # label of the source that the selected one is compared with
    readers: tuple[str, ...] = ()  # readers to compare, with the first; empty for those that the data offer
    condition: str = "clean"  # what was done to the traces before they were read
    tab: str = "readers"  # part of the comparison of readers
    figure: str = ""  # its figure, empty for the first one of the tab that has something to show
    back: str = ""  # roster of the reader, where a figure stands for another one; what is opened next returns to it
    protocol: str = "family"  # what test pairs of a relationship share with the training pairs' models
    measure: str = "accuracy"  # metric of relationships
    relates: str = ""  # reader whose scores of pairs are shown, empty for the one that the data offer
    left: str = ""  # with right: the two models of the selected pair; one of them alone, or neither
    right: str = ""
    figures: tuple[str, ...] = ()  # figures of the brief in their order; empty for the usual ones

    @classmethod
    def parse(cls, query: Mapping[str, object] | None) -> View:
        """The view of a decoded query string; what it does not understand keeps its default."""
        given = {str(name): str(value) for name, value in (query or {}).items() if isinstance(value, str | int)}
        values: dict[str, Any] = {}
        for one in fields(cls):
            text = given.get(one.name, "")
            if one.name in _OFFERED:
                values[one.name] = {str(value): value for value in _OFFERED[one.name]}.get(text, one.default)
            elif one.name == "camera":
                values[one.name] = _numbers(text)
            elif one.default == ():
                values[one.name] = tuple(part for part in dict.fromkeys(split(text)) if part)
            else:
                values[one.name] = text if text and len(text) <= LONGEST_NAME else one.default
        return cls(**values | {"readers": values["readers"][:MOST_READERS]})

    def query(self) -> str:
        """Query string without the leading '?', holding what differs from the defaults."""
        pairs = []
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name == "camera":
                value = ",".join(f"{number:g}" for number in value)
            elif isinstance(value, tuple):
                value = join(value)
            if getattr(self, one.name) != one.default:
                pairs.append((one.name, str(value)))
        return urlencode(pairs)


def join(names: tuple[str, ...]) -> str:
    """Names in one string; a comma inside a name is escaped."""
    return ",".join(name.replace("\\", "\\\\").replace(",", "\\,") for name in names)


def split(text: str) -> list[str]:
    """Inverse of :func:`join`."""
    names, current, escaped = [], "", False
    for character in text[: 64 * LONGEST_NAME]:
        if escaped or character not in "\\,":
            current, escaped = current + character, False
        elif character == "\\":
            escaped = True
        else:
            names.append(current)
            current = ""
    return [*names, current]


def _numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(round(float(part), 3) for part in text[:200].split(","))
    except ValueError:
        return ()
    return numbers if len(numbers) in (4, 9) and all(abs(number) <= 50 for number in numbers) else ()

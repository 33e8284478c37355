"""What the URL holds: every choice that a person made, so that a link reopens the exact view.

Choices with a fixed set of answers are checked here; names (reader, roster, domain, source, family) are kept as they
came and settled against the data by :mod:`atlas.data`, because only the served generation knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from urllib.parse import urlencode

from atlas.theme import Theme

PROJECTIONS = {"tsne": "t-SNE", "umap": "UMAP", "pca": "PCA"}
DIMENSIONS = (3, 2)
ACCESS = {"all": "All", "local": "Local", "api": "API"}
LINKS = {"selected": "Selection", "all": "Everyone", "off": "Off"}
SIZES = {"all": "All", "small": "≤4B", "middle": "≤20B", "large": ">20B"}
SPACES = {"one": "One", "raw": "Both", "centred": "Centred"}
REGIONS = {"off": "Off", "families": "Families", "clusters": "Clusters"}
METRICS = {"accuracy": "Accuracy", "macro_f1": "Macro-F1", "nll": "NLL", "ece": "ECE"}
OTHERS = {"on": "Other readers", "off": "Alone"}
REDUCTIONS = {"pooled": "Pooled", "fold": "By fold"}
PROTOCOLS = {"pair": "Pairs", "model": "Models", "family": "Families"}
MEASURES = {"accuracy": "Accuracy", "precision": "Precision", "recall": "Recall", "f1": "F1", "auc": "AUC"}
BUDGETS = (1, 5, 10, 20, 50, 100)
MOST_READERS = 6
"""Readers that one figure can hold side by side."""
LONGEST_NAME = 400  # characters of a name in a link; longer ones are no name of a source


@dataclass(frozen=True)
class View:
    """One view of the atlas.

    Attributes
    ----------
    reader, roster, domain : str
        Empty until settled against the data.
    theme : {'dark', 'light'}
    projection : {'tsne', 'umap', 'pca'}
    dim : {3, 2}
    source : str
        Label of the selected source, empty without one.
    families : tuple of str
        Isolated families, empty when all are shown.
    access : {'all', 'local', 'api'}
    size : {'all', 'small', 'middle', 'large'}
        Sources whose name states so many parameters.
    links : {'selected', 'all', 'off'}
        Which neighbour links of the original space are drawn.
    space : {'one', 'raw', 'centred'}
        Whether the map holds both domains, and if so whether each domain's mean is taken away.
    regions : {'off', 'families', 'clusters'}
        What is outlined: where families are dense, on a flat map, or which points lie close together.
    camera : tuple of float
        Eye, centre and up vector of the 3-D scene (nine numbers), empty for the default.
    k : int
        Budget of traces.
    metric, reduction : str
    others : {'on', 'off'}
        Whether other readers of the same roster and domain are drawn behind the chosen one.
    zoom : str
        Family that the confusion matrix shows alone, empty for all.
    truth, answer : str
        Clicked cell of the confusion matrix.
    other : str
        Label of the source that the selected one is held against, empty without one.
    readers : tuple of str
        Readers side by side, the first is what the others are compared with; empty for those that the data offer.
    condition : str
        What was done to the traces before they were read, 'clean' for nothing.
    protocol : {'pair', 'model', 'family'}
        What the test pairs of a relationship share with the training pairs' models: anything, no model, no family.
    measure : str
        Metric of relationships.
    relates : str
        Reader whose scores of pairs are shown, empty for the one that the data offer.
    left, right : str
        The two models of the pair that is asked for; one of them alone, or neither.
    figures : tuple of str
        Figures of the brief in their order; empty for the usual ones.
    """

    reader: str = ""
    roster: str = ""
    domain: str = ""
    theme: Theme = "dark"
    projection: str = "tsne"
    dim: int = 3
    source: str = ""
    families: tuple[str, ...] = ()
    access: str = "all"
    size: str = "all"
    links: str = "selected"
    space: str = "one"
    regions: str = "off"
    camera: tuple[float, ...] = ()
    k: int = 20
    metric: str = "accuracy"
    reduction: str = "pooled"
    others: str = "on"
    zoom: str = ""
    truth: str = ""
    answer: str = ""
    other: str = ""
    readers: tuple[str, ...] = ()
    condition: str = "clean"
    protocol: str = "pair"
    measure: str = "accuracy"
    relates: str = ""
    left: str = ""
    right: str = ""
    figures: tuple[str, ...] = ()

    @classmethod
    def parse(cls, query: Mapping[str, object] | None) -> View:
        """The view that a query string means; what it does not understand keeps its default.

        Parameters
        ----------
        query : mapping of str to str
            Decoded pairs of the query string.
        """
        given = {str(name): value for name, value in (query or {}).items() if isinstance(value, str | int)}

        def name(field: str) -> str:
            value = str(given.get(field, ""))
            return value if len(value) <= LONGEST_NAME else ""

        def names(field: str) -> tuple[str, ...]:
            return tuple(part for part in dict.fromkeys(split(str(given.get(field, "")))) if part)

        def choice(field: str, offered: Mapping[str, str]) -> str:
            value = str(given.get(field, ""))
            return value if value in offered else str(getattr(cls, field))

        def number(field: str, offered: tuple[int, ...]) -> int:
            value = str(given.get(field, ""))
            return int(value) if value in {str(n) for n in offered} else int(getattr(cls, field))

        theme: Theme = "light" if given.get("theme") == "light" else "dark"
        return cls(
            reader=name("reader"),
            roster=name("roster"),
            domain=name("domain"),
            theme=theme,
            projection=choice("projection", PROJECTIONS),
            dim=number("dim", DIMENSIONS),
            source=name("source"),
            families=names("families"),
            access=choice("access", ACCESS),
            size=choice("size", SIZES),
            links=choice("links", LINKS),
            space=choice("space", SPACES),
            regions=choice("regions", REGIONS),
            camera=_numbers(str(given.get("camera", ""))),
            k=number("k", BUDGETS),
            metric=choice("metric", METRICS),
            reduction=choice("reduction", REDUCTIONS),
            others=choice("others", OTHERS),
            zoom=name("zoom"),
            truth=name("truth"),
            answer=name("answer"),
            other=name("other"),
            readers=names("readers")[:MOST_READERS],
            condition=name("condition") or cls.condition,
            protocol=choice("protocol", PROTOCOLS),
            measure=choice("measure", MEASURES),
            relates=name("relates"),
            left=name("left"),
            right=name("right"),
            figures=names("figures"),
        )

    def query(self) -> str:
        """Query string without the leading '?', holding what differs from the defaults."""
        pairs = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if field.name in ("families", "readers", "figures"):
                value = join(value)
            elif field.name == "camera":
                value = ",".join(f"{number:g}" for number in value)
            pairs.append((field.name, str(value)))
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

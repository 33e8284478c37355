"""One set of tokens for both themes: colours, type, and the mark of every family.

The style sheet gets them as CSS variables, figures as a Plotly template; nothing else names a colour. Large families
have hues that stay apart under simulated deuteranopia and protanopia, small ones share muted hues and differ by symbol.
Every mark has a contrast of at least 3 : 1.
"""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

Theme = Literal["dark", "light"]
Plot = dict[str, Any]
"""A figure as the browser gets it: data and layout. Tests have Plotly check it (``go.Figure(plot)``); at every request
that would take longer than everything else."""
THEMES: tuple[Theme, ...] = ("dark", "light")

SANS = "'IBM Plex Sans', 'Helvetica Neue', Arial, sans-serif"
MONO = "'IBM Plex Mono', Menlo, monospace"

_PAIRS: Mapping[str, tuple[str, str]] = {
    "ink": ("#E8ECF1", "#1A2129"),
    "soft": ("#A3AFBD", "#55616E"),
    "ground": ("#0E1218", "#FBFBF9"),
    "panel": ("#161C25", "#FFFFFF"),
    "raised": ("#1D2530", "#F2F4F5"),
    "line": ("#2A3441", "#DFE3E8"),
    "edge": ("#66758A", "#7C8896"),
    "context": ("#3B4757", "#C3CAD2"),
    "accent": ("#3BA7C9", "#0F7EA3"),
    "accent-ink": ("#56BBDB", "#0B6C8C"),
    "accent-wash": ("#14303C", "#E0F0F5"),
    "on-accent": ("#0A1116", "#FFFFFF"),
    "caution": ("#E0A83F", "#8F5F00"),
    "against": ("#E07A72", "#B23A32"),
    "supports": ("#6CC08B", "#1E7A45"),
    "inconclusive": ("#A3AFBD", "#55616E"),
    "unknown": ("#B79CEB", "#6B48B8"),
}
TOKENS: Mapping[Theme, Mapping[str, str]] = {
    theme: {name: pair[place] for name, pair in _PAIRS.items()} for place, theme in enumerate(THEMES)
}

# Hue per large family; the most distant ones, found by search under the simulations that the tests repeat.
LARGE_FAMILIES: Mapping[str, Mapping[Theme, str]] = {
    "Qwen": {"dark": "#9676C4", "light": "#723EAC"},
    "GPT": {"dark": "#49E499", "light": "#038D57"},
    "GLM": {"dark": "#E082B9", "light": "#870D61"},
    "DeepSeek": {"dark": "#5289F4", "light": "#4E83EE"},
    "Llama": {"dark": "#64C9FA", "light": "#0886B5"},
    "Mistral": {"dark": "#C19D08", "light": "#A58809"},
    "Claude": {"dark": "#EE7E51", "light": "#A53900"},
    "Doubao": {"dark": "#B7E35B", "light": "#758F40"},
}
MUTED: tuple[Mapping[Theme, str], ...] = (
    {"dark": "#8FA3B5", "light": "#5F7483"},
    {"dark": "#B8A58A", "light": "#85714F"},
    {"dark": "#92AA8E", "light": "#5F7A5C"},
    {"dark": "#B398B2", "light": "#7E6580"},
)
# What Plotly draws in three dimensions, less its x, which is an emoji glyph that many machines lack.
SYMBOLS = ("circle", "square", "diamond", "circle-open", "square-open", "diamond-open", "cross")
RINGED = "circle-ringed"  # a disc with a rim of ink: Plotly has no eighth symbol in three dimensions
# Readers side by side, apart from one another for every vision, and no family's.
READER_COLOURS: Mapping[Theme, tuple[str, ...]] = {
    "dark": ("#3BA7C9", "#E8C15A", "#A98BF0", "#F4F6F8", "#D96C4F", "#7FD9A8", "#AC5353"),
    "light": ("#0F7EA3", "#B08410", "#7B3FC4", "#14202B", "#A83A20", "#2F9E73", "#691616"),
}
INK = 3
"""Place there of the colour that no reader owns."""
OWN_COLOURS: Mapping[str, int] = {
    "reader-paper/smollm2-135m/ur": 0, "READER": 0,
    "fused": 1, "Other readouts of a proxy": 1,
    "fused-style": 2, "reader-paper/qwen35_27b/ur": 2,
    "ngram-word": 4, "Baselines": 4,
    "fused-live": 5,
    "lda": 6, "reader-paper/qwen3_32b/ur": 6,
}  # fmt: skip
"""Place of the colour that a reader, a method or a group of readers has in every figure; those of one are seldom in
one figure."""

# Rates from nothing (the ground) to one; lightness runs one way in each theme.
RATE_RAMP: Mapping[Theme, tuple[str, ...]] = {
    "dark": ("#16202E", "#1C3A5E", "#31557B", "#5A6F80", "#8A8876", "#BBA564", "#E6C84F", "#FDEA6B"),
    "light": ("#EEF1F3", "#D6DCD0", "#C5BF94", "#A69C78", "#7F7E78", "#586478", "#314B73", "#0B2A5C"),
}


@dataclass(frozen=True)
class Mark:
    """How one family is drawn everywhere: its colour in each theme and its symbol."""

    dark: str
    light: str
    symbol: str

    def colour(self, theme: Theme) -> str:
        """Colour in a theme."""
        return self.dark if theme == "dark" else self.light

    @property
    def plotted(self) -> str:
        """Plotly's name of the symbol; a ringed disc is a disc whose outline the figure draws."""
        return "circle" if self.symbol == RINGED else self.symbol


def own_places(readers: Sequence[str]) -> dict[str, int]:
    """Places in :data:`READER_COLOURS` of readers with a colour of their own that no earlier one has."""
    places: dict[str, int] = {}
    for reader in readers:
        place = OWN_COLOURS.get(reader, OWN_COLOURS.get(reader.partition("/")[0]))
        if place is not None and place not in places.values():
            places[reader] = place
    return places


def reader_places(readers: Sequence[str]) -> dict[str, int]:
    """:func:`own_places` of all readers; the others have what is free, ink first."""
    own = own_places(readers)
    every = (INK, *range(len(READER_COLOURS["light"])))
    free = [place for place in dict.fromkeys(every) if place not in own.values()]
    rest = [reader for reader in readers if reader not in own]
    return own | {reader: free[number % len(free)] for number, reader in enumerate(rest)}


def family_marks(families: Sequence[str]) -> dict[str, Mark]:
    """Colour and symbol of every family, unique for the first 28 small ones.

    families : all of the atlas in their stored order, so that a family keeps its mark in every roster.
    """
    marks = {
        family: Mark(shades["dark"], shades["light"], symbol)
        for (family, shades), symbol in zip(LARGE_FAMILIES.items(), (*SYMBOLS, RINGED), strict=True)
    }
    small = [family for family in dict.fromkeys(families) if family not in marks]
    for place, family in enumerate(small):
        shades = MUTED[place % len(MUTED)]
        marks[family] = Mark(shades["dark"], shades["light"], SYMBOLS[(place + 3) % len(SYMBOLS)])
    return {family: marks[family] for family in dict.fromkeys(families)}


def plain(text: str, longest: int = 60) -> str:
    """A name as Plotly may draw it: markup shown as text, one line, cut in the middle, direction isolated."""
    line = " ".join(str(text).split())
    if len(line) > longest:
        head = longest * 2 // 3
        line = f"{line[:head]}…{line[-(longest - head - 1) :]}"
    escaped = html.escape(line, quote=False)
    return escaped if line.isascii() else f"\u2068{escaped}\u2069"


def rate_colours(theme: Theme) -> list[list[float | str]]:
    """Plotly colour scale for rates in 0..1, steeper near zero, where errors live."""
    ramp = RATE_RAMP[theme]
    return [[(step / (len(ramp) - 1)) ** 2, colour] for step, colour in enumerate(ramp)]


def readable(rate: float, theme: Theme) -> str:
    """Ink for a number on a cell of :func:`rate_colours`: whichever has more contrast there."""
    ramp, at = RATE_RAMP[theme], (len(RATE_RAMP[theme]) - 1) * max(0.0, min(1.0, rate)) ** 0.5
    low = min(int(at), len(ramp) - 2)
    pairs = zip(_channels(ramp[low]), _channels(ramp[low + 1]), strict=True)
    cell = _luminance([one + (at - low) * (other - one) for one, other in pairs])
    inks = (TOKENS[theme]["ink"], TOKENS[theme]["ground"])
    light = {ink: _luminance(_channels(ink)) for ink in inks}
    return max(inks, key=lambda ink: (max(light[ink], cell) + 0.05) / (min(light[ink], cell) + 0.05))


def _channels(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]


def _luminance(channels: Sequence[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in channels)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def translucent(colour: str, alpha: float) -> str:
    """``#RRGGBB`` with an alpha, as Plotly reads it."""
    red, green, blue = _channels(colour)
    return f"rgba({red},{green},{blue},{alpha:g})"


def faded(colour: str, share: float, theme: Theme) -> str:
    """A share of ``#RRGGBB`` over the theme's ground: WebGL would add a translucent line to what is behind it."""
    pairs = zip(_channels(colour), _channels(TOKENS[theme]["ground"]), strict=True)
    return "#" + "".join(f"{round(share * over + (1 - share) * under):02x}" for over, under in pairs)


@functools.cache
def template(theme: Theme) -> go.layout.Template:
    """Plotly template: transparent ground, quiet axes, words in the hover box."""
    token = TOKENS[theme]
    soft, bare = {"size": 12, "color": token["soft"]}, "rgba(0,0,0,0)"
    axis = {
        **{"gridcolor": token["line"], "linecolor": token["edge"], "zeroline": False, "automargin": False},
        **{"ticks": "outside", "ticklen": 4, "tickcolor": token["edge"], "tickfont": soft},
        "title": {"font": {"size": 13, "color": token["soft"]}, "standoff": 12},
    }
    scene_axis = {
        **{"showbackground": False, "showticklabels": False, "showspikes": False, "gridcolor": token["line"]},
        **{"zeroline": False, "showline": False, "title": {"text": ""}},
    }
    font = {"family": SANS, "size": 13, "color": token["ink"]}
    hover = {"bgcolor": token["raised"], "bordercolor": token["edge"], "font": font, "align": "left", "namelength": -1}
    return go.layout.Template(
        layout={
            **{"font": font, "paper_bgcolor": bare, "plot_bgcolor": bare, "hoverlabel": hover, "showlegend": False},
            "colorway": [shades[theme] for shades in LARGE_FAMILIES.values()],
            **{"margin": {"l": 64, "r": 96, "t": 16, "b": 52}, "xaxis": axis, "yaxis": axis},
            "scene": {"xaxis": scene_axis, "yaxis": scene_axis, "zaxis": scene_axis, "bgcolor": bare},
        }
    )


@functools.cache
def dress(theme: Theme) -> dict[str, Any]:
    """:func:`template` as plain values, which nobody changes."""
    plain_values: dict[str, Any] = template(theme).to_plotly_json()
    return plain_values


def style_variables() -> str:
    """The tokens as CSS variables, one block a theme; paper is white whatever the theme."""
    blocks = []
    for theme in THEMES:
        pairs = "".join(f"--{name}:{value};" for name, value in TOKENS[theme].items())
        block = f":root[data-theme={theme}]{{color-scheme:{theme};{pairs}}}"
        blocks += [f"@media screen{{{block}}}"] + [f"@media print{{:root{{{pairs}}}}}"] * (theme == "light")
    # A presentation shows the brief's case in its theme; paper and the sheets of figures stay light.
    own = "".join(f"--{name}:inherit!important;" for name in TOKENS["light"])
    blocks.append(f"@media screen{{:root[data-present] .sheet-case{{color-scheme:inherit!important;{own}}}}}")
    return f":root{{--sans:{SANS};--mono:{MONO};}}" + "".join(blocks)

"""The tokens: contrast in both themes, families told apart with and without full colour vision, names made harmless."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from atlas.state import MOST_READERS
from atlas.theme import (
    LARGE_FAMILIES,
    MUTED,
    RATE_RAMP,
    READER_COLOURS,
    RINGED,
    SYMBOLS,
    THEMES,
    TOKENS,
    Theme,
    family_marks,
    own_places,
    plain,
    rate_colours,
    readable,
    reader_places,
    style_variables,
    template,
    translucent,
)

# Machado, Oliveira & Fernandes (2009), severity 1, on linear RGB.
MACHADO = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, vision: str) -> np.ndarray:
    seen = np.clip(MACHADO[vision] @ linear(colour), 0, 1)
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    scaled = to_xyz @ seen / [0.95047, 1.0, 1.08883]
    root = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("vision", MACHADO)
@pytest.mark.parametrize("theme", THEMES)
def test_large_families_stay_apart_for_every_vision(theme: Theme, vision: str) -> None:
    seen = {family: lab(shades[theme], vision) for family, shades in LARGE_FAMILIES.items()}
    distance = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in itertools.combinations(seen, 2)}
    closest = min(distance, key=distance.__getitem__)
    # 2.3 is just noticeable; 15 is seen at a glance between small marks.
    assert distance[closest] > 15, (closest, distance[closest])


@pytest.mark.parametrize("theme", THEMES)
def test_large_families_are_far_from_the_grey_context(theme: Theme) -> None:
    context = lab(TOKENS[theme]["context"], "none")
    for shades in LARGE_FAMILIES.values():
        assert np.linalg.norm(lab(shades[theme], "none") - context) > 30


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", ["ground", "panel"])
def test_marks_have_contrast(theme: Theme, ground: str) -> None:
    for shades in (*LARGE_FAMILIES.values(), *MUTED):
        assert contrast(shades[theme], TOKENS[theme][ground]) >= 3, shades[theme]
    for name in ("accent", "edge"):
        assert contrast(TOKENS[theme][name], TOKENS[theme][ground]) >= 3, name


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", ["ground", "panel", "raised"])
def test_text_has_contrast(theme: Theme, ground: str) -> None:
    token = TOKENS[theme]
    for name in ("ink", "soft", "accent-ink", "caution", "against", "supports", "inconclusive", "unknown"):
        assert contrast(token[name], token[ground]) >= 4.5, name
    for name in ("ink", "accent-ink"):
        assert contrast(token[name], token["accent-wash"]) >= 4.5, name


@pytest.mark.parametrize("theme", THEMES)
def test_the_rate_ramp_runs_one_way_in_lightness_for_every_vision(theme: Theme) -> None:
    for vision in MACHADO:
        steps = np.diff([lab(colour, vision)[0] for colour in RATE_RAMP[theme]])
        assert (steps > 0).all() or (steps < 0).all(), (theme, vision, steps)
    stops = [stop for stop, _ in rate_colours(theme)]
    assert stops[0] == 0 and stops[-1] == 1 and stops == sorted(stops)


@pytest.mark.parametrize("theme", THEMES)
def test_numbers_on_rate_cells_can_be_read(theme: Theme) -> None:
    stops = rate_colours(theme)
    for stop, colour in stops:
        assert contrast(readable(float(stop), theme), str(colour)) >= 3.5, (stop, colour)


def test_a_family_has_one_mark_and_no_two_share_colour_and_symbol() -> None:
    names = ["Qwen", "Phi", "GPT", "Kimi", *(f"small-{place}" for place in range(26))]
    marks = family_marks(names)
    assert list(marks) == names
    assert len({(mark.dark, mark.symbol) for mark in marks.values()}) == len(names)
    assert len({(mark.light, mark.symbol) for mark in marks.values()}) == len(names)
    assert marks["Qwen"] == family_marks(["Qwen"])["Qwen"]
    assert marks["Qwen"].colour("dark") == LARGE_FAMILIES["Qwen"]["dark"]
    assert marks["Phi"].colour("light") in {shades["light"] for shades in MUTED}


def test_no_two_large_families_share_a_symbol() -> None:
    marks = family_marks(list(LARGE_FAMILIES))
    assert len({mark.symbol for mark in marks.values()}) == len(LARGE_FAMILIES)
    assert marks["Doubao"].symbol == RINGED != marks["Qwen"].symbol
    assert {mark.plotted for mark in marks.values()} == set(SYMBOLS)


@pytest.mark.parametrize("theme", THEMES)
def test_readers_side_by_side_stay_apart_for_every_vision(theme: Theme) -> None:
    colours = READER_COLOURS[theme]
    assert len(colours) >= MOST_READERS and colours[0] == TOKENS[theme]["accent"]
    for vision in MACHADO:
        for one, other in itertools.combinations(colours, 2):
            assert np.linalg.norm(lab(one, vision) - lab(other, vision)) > 15, (vision, one, other)
    for ground in ("ground", "panel"):
        assert min(contrast(colour, TOKENS[theme][ground]) for colour in colours) >= 3


def test_a_reader_has_one_colour_whoever_else_is_drawn() -> None:
    usual = ["reader-paper/smollm2-135m/ur", "fused/smollm2-135m/ur", "reader-paper/qwen35_27b/ur", "ngram-word"]
    alone = {reader: reader_places([reader])[reader] for reader in usual}
    for readers in itertools.permutations([*usual, "dct-q2/smollm2-135m/ur", "fused/gemma3-270m/ur"]):
        places = reader_places(readers)
        assert len(set(places.values())) == len(readers) == MOST_READERS
        assert {reader: places[reader] for reader in usual if reader != usual[1]}.items() <= alone.items()
        assert usual[1] not in own_places(readers) or places[usual[1]] == alone[usual[1]]
    assert "dct-q2/smollm2-135m/ur" not in own_places(["dct-q2/smollm2-135m/ur"])


def test_names_become_harmless_text() -> None:
    assert plain("<img src=x onerror=alert(1)>") == "&lt;img src=x onerror=alert(1)&gt;"
    assert plain("a & b\n c") == "a &amp; b c"
    long = plain("x" * 300)
    assert len(long) <= 64 and "…" in long
    assert plain("نموذج") == "\u2068نموذج\u2069"


def test_styles_and_templates_take_every_colour_from_the_tokens() -> None:
    style = style_variables()
    for theme in THEMES:
        for name, value in TOKENS[theme].items():
            assert f"--{name}:{value};" in style
        layout = template(theme).layout
        assert layout.font.color == TOKENS[theme]["ink"]
        assert layout.xaxis.gridcolor == TOKENS[theme]["line"]
    assert set(TOKENS["dark"]) == set(TOKENS["light"])
    assert translucent("#0F7EA3", 0.5) == "rgba(15,126,163,0.5)"


def test_every_class_of_a_page_has_a_rule() -> None:
    """A rule that goes with its page leaves links in a row as one word."""
    root = Path(__file__).parents[2]
    files = (path for kind in ("css", "js") for path in (root / "assets").glob(f"*.{kind}"))
    styles = "".join(path.read_text("utf-8") for path in files)
    pages = "".join(path.read_text("utf-8") for path in sorted((root / "atlas").rglob("*.py")))
    names = {name for names in re.findall(r'className="([^"{}]+)"', pages) for name in names.split()}
    assert len(names) > 100
    assert [name for name in sorted(names) if not re.search(rf"\.{re.escape(name)}(?![\w-])", styles)] == []


def test_no_rule_has_a_browser_style_every_element_at_each_change() -> None:
    """As a :has() of the root does, or one before a rule for any element: hundreds of changes draw one page."""
    rules = "".join(path.read_text("utf-8") for path in sorted((Path(__file__).parents[2] / "assets").glob("*.css")))
    assert ":has(" in rules
    assert re.findall(r":root[^\s>~+{]*:has\([^{]*", rules) == []
    assert re.findall(r"[^\n{}]*:has\([^{}]*\)\s*[\s>~+]\s*(?:\*|:not\([^()]*\))\s*[,{]", rules) == []

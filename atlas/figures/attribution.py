"""Evidence that names a source, and its failures (paper: evidence budgets, confusions, layer selection)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from atlas.figures import plots, tables
from atlas.figures.plots import End, Line, figure_text, rate_text
from atlas.theme import TOKENS, Plot, Theme, plain, rate_colours, readable, translucent

MATRIX_HEIGHT = 760
NAME_HEIGHT = 15  # pixels of a family's name beside its rows
NARROW_CELLS = 24  # sources from which names and numbers of a family are small
TURNED_WIDTH = 24  # pixels from one family's name above its columns to the next
HEAD_PIXELS = 72  # of the names above the columns, turned
MATRIX_PIXELS = MATRIX_HEIGHT - HEAD_PIXELS - 76  # without its margins, which the names next to it need to know
TOGETHER = 0.02  # of the axis: lines that end no further apart look like one
LOW = 0.5  # shares below which the axis ends above the highest line
CROWD = 12  # lines without a name from which on they are drawn faint
LEADER = 22  # pixels from the ends of lines to their labels
CATEGORY_AXIS = plots.titled("Traces a group (K)", type="category", showgrid=False)


def budget_curves(
    frame: pd.DataFrame, lines: Sequence[Line], *, theme: Theme, axis: str, k: int, chance: float | None, unit: bool,
    values: bool = False, height: int = 400,
) -> Plot:  # fmt: skip
    """A metric against the budget of traces, with bands around lines in front; bars where only some have an interval.

    frame : columns line (key), k, value, low, high (NaN without), band (what these are, in words), n, origin.
    The line in front comes last; chance is drawn dotted; unit says that values lie in 0..1. values: labels end with
    the value at k; height: pixels that it is drawn at, which labels at its end share.
    """
    token = TOKENS[theme]
    budgets = sorted(int(budget) for budget in frame["k"].unique())
    shapes: list[Plot] = []
    if chance is not None and budgets:
        shapes.append(plots.level(chance, token["edge"], 1, "dot"))
    if k in budgets:
        shapes.append(plots.upright(k, token["accent"], xref="x"))
    data: list[Plot] = []
    ends: list[End] = []
    printed: list[float] = []
    crowd = sum(not line.named for line in lines) > CROWD
    for _, line, rows, published in plots.by_line(frame, lines, "line"):
        name = plain(line.label)
        banded = rows.dropna(subset=["low", "high"]) if line.front else rows[:0]
        if len(banded) == len(rows):
            data.append(plots.band(f"{name}, band", banded["k"], banded["low"], banded["high"], line.colour, 0.18))
        words = [
            f"{plots.heading(line.label, published)}{plots.count(row.k, 'trace')}: {figure_text(row.value)}"
            + (f"<br>{row.band}: {figure_text(row.low)} to {figure_text(row.high)}" if row.band else "")
            + f"<br>{int(row.n):,} groups"
            for row in tables.rows(rows, "k", "value", "band", "low", "high", "n")
        ]
        fill, size = token["panel"] if published else line.colour, 8 if line.front else 6
        width, faint = 2.5 if line.front else 1.25, translucent(line.colour, 0.4)
        dash = "dash" if published else line.dash
        look: Plot = {
            "mode": "lines+markers" if line.named else "lines",
            "line": plots.pen(faint if crowd and not line.named else line.colour, width, dash),
            "marker": plots.outlined(size, fill, line.colour, 2 if line.front else 1.25),
        }
        if 0 < len(banded) < len(rows):  # a band would run straight past the values between
            over, under = (end.fillna(0) for end in (rows["high"] - rows["value"], rows["value"] - rows["low"]))
            look["error_y"] = plots.bars(over, under, line.colour, 1.5)
        data.append(plots.scatter(name, rows["k"], rows["value"], text=words, hovertemplate=plots.TEXT, **look))
        if line.named:
            # The colour of lines in the background is too faint for words.
            ink = token["soft"] if line.colour == token["edge"] else line.colour
            here = [value for value in rows.loc[rows["k"] == k, "value"] if values]
            printed.append(float([rows["value"].iloc[-1], *here][-1]))
            parts = plots.in_two_lines(line.label, [figure_text(value) for value in here], 29 if values else 27)
            ends.append((float(rows["value"].iloc[-1]), "<br>".join(map(plain, parts)), ink))
    low, high = 0.0, 1.02
    tops = frame[["value", "high"]].max(axis=1)
    top = float(tops.max()) if len(frame) else 1.0
    if unit and top < LOW:  # lines of a hard task would lie on the axis
        high = max(1.15 * top, 4 * (chance or 0.0))
    if not unit:
        named = tops[frame["line"].isin([line.key for line in lines if line.named])]
        high = 1.06 * max(float(named.max()) if len(named) else 1.0, chance or 0.0)
    own = {text: height for height, text, _ in ends}
    ends = _in_order(ends, printed, TOGETHER * (high - low))
    if chance is not None and budgets:
        ends.append((chance, "chance", token["soft"]))
    room = 0.075 if values else 0.05  # of a line of text
    apart = [400 / height * (room + 0.065 * text.count("<br>")) * (high - low) for _, text, _ in ends]
    headed = values and k in budgets
    # Labels leave the head of their column free.
    notes = plots.end_notes(ends, apart, high - 0.06 * (high - low) * headed, LEADER)
    shapes += plots.leaders([own.get(text, height) for height, text, _ in ends], notes, LEADER)
    if top > high:
        notes.append(
            plots.page_note(0, 1, "↑ grey lines go on above", 11, token["soft"], xanchor="left", yanchor="bottom")
        )
    if headed:
        where = {"yref": "paper", "yanchor": "bottom"}
        notes.append(plots.note(math.log10(k), 1, f"K = {k}", 12, token["accent-ink"], **where))
        head = f"numbers: at K = {k}"  # leaders go to the ends of lines
        notes.append(plots.end_note(high, head, token["accent-ink"], 12, LEADER, yanchor="bottom", name="head"))
    x, y = plots.budget_axis(budgets), plots.titled(axis, range=[low, high], tickformat=".2~f" if unit else None)
    margins = (64, 224, 24, 52) if values else (64, 192, 12, 52)
    return plots.plot(theme, margins, data, x, y, shapes=shapes, annotations=notes)


def _in_order(ends: Sequence[End], printed: Sequence[float], together: float) -> list[End]:
    """Labels from the lowest up; those of lines that end together in the order of the values that they print."""
    heights = np.array([end[0] for end in ends])
    order = np.argsort(heights, kind="stable")
    groups = np.cumsum(np.diff(heights[order], prepend=heights[order][:1]) > together)
    labels = order[np.lexsort((np.array(printed)[order], groups))]
    return [(float(heights[at]), *ends[label][1:]) for at, label in zip(order, labels, strict=True)]


def confusion_order(sources: pd.DataFrame) -> pd.DataFrame:
    """Sources by family, large families first, roster order inside a family."""
    size = sources.groupby("family")["source"].transform("size")
    keyed = sources.assign(_size=-size)
    return keyed.sort_values(["_size", "family_position", "position"]).drop(columns="_size").reset_index(drop=True)


def sibling_order(cells: pd.DataFrame, order: pd.DataFrame, family: str) -> pd.DataFrame:
    """A family's sources, those taken for each other together.

    The order of the leaves of a tree of shares, by average linkage (scipy's optimal leaf ordering), from 3 sources on.
    """
    rows = _zoomed(order, family)
    if len(rows) < 3:
        return rows
    labels = rows["source"].tolist()
    shares = cells.pivot_table(index="truth", columns="predicted", values="share", aggfunc="sum")
    there = shares.reindex(index=labels, columns=labels).fillna(0.0).to_numpy()
    apart = 1 - (there + there.T) / 2
    np.fill_diagonal(apart, 0)
    leaves = leaves_list(linkage(squareform(apart), "average", optimal_ordering=True))
    return rows.iloc[leaves if leaves[0] < leaves[-1] else leaves[::-1]].reset_index(drop=True)


def confusion_matrix(
    cells: pd.DataFrame,
    order: pd.DataFrame,
    *,
    theme: Theme,
    zoom: str = "",
    clicked: tuple[str, str] = ("", ""),
    apart: int = TURNED_WIDTH,
) -> Plot:
    """Confusions with the truth in rows and the answer in columns, by family.

    cells : columns truth, predicted, count, share (of the truth's groups); what never happened is background.
    order : from :func:`confusion_order` or :func:`sibling_order`. zoom : a family to show alone, with a column for
    answers outside it.
    clicked : truth and answer of the outlined cell. apart : pixels from one name above the columns to the next.
    """
    token = TOKENS[theme]
    rows = _zoomed(order, zoom)
    labels = rows["source"].tolist()
    size, many = len(labels), len(labels) > 40
    place = {source: index for index, source in enumerate(labels)}
    z: list[list[float | None]] = [[None] * (size + bool(zoom)) for _ in labels]
    for truth, predicted, part in tables.rows(cells, "truth", "predicted", "share"):
        column = place.get(predicted, size if zoom else -1)
        if truth in place and column >= 0:
            z[place[truth]][column] = round((z[place[truth]][column] or 0.0) + part, 4)
    names = _distinct(rows["name"].tolist())
    across = [*names, "any other family"] if zoom else names
    gap = 1 if size <= 70 else 0
    space = "<br>" if zoom else " "  # names of sources leave a narrow screen little room
    scale = {
        **{"orientation": "h", "thickness": 8, "len": 0.44, "x": 1, "xanchor": "right", "y": 0, "yanchor": "top"},
        **{"ypad": 14, "xpad": 0, "outlinewidth": 0, "ticklabelposition": "outside bottom"},
        **{"tickvals": [0.1, 0.25, 0.5, 1], "ticktext": [".10", ".25", ".50", "1"]},
        "tickfont": {"size": 12, "color": token["soft"]},
        "title": {"text": f"share of the true{space}source's groups", "side": "bottom", "font": {"size": 12}},
    }
    heat = {
        **{"type": "heatmap", "z": z, "x": across, "y": names, "zmin": 0, "zmax": 1, "xgap": gap, "ygap": gap},
        **{"colorscale": rate_colours(theme), "colorbar": scale, "showscale": not zoom or many, "hoverongaps": False},
        "hovertemplate": "%{y}<br>was answered <b>%{x}</b><br>in %{z:.1%} of its groups<extra></extra>",
    }
    shapes: list[Plot] = []
    annotations: list[Plot] = []
    if zoom and not many:
        annotations = [
            plots.note(column, row, _cell_text(share, size), 10, readable(share, theme))
            for row, line in enumerate(z)
            for column, share in enumerate(line)
            if share is not None and share >= 0.01
        ]
    if not zoom:
        blocks = _blocks(rows["family"])
        sides = [(start - 0.5, stop - start) for start, stop, _ in blocks if stop - start > 1]
        shapes = [_box(start, start, side, plots.pen(token["edge"])) for start, side in sides]
        annotations = [*_block_names(blocks, size, token, apart)]
    if many or not zoom:  # the scale stands at the right of it
        words, side = ("Named source,<br>in the order<br>of the rows", "right") if zoom else ("Named source", "left")
        aside = {"xanchor": side, "yanchor": "top", "yshift": -12, "align": side}
        annotations.append(plots.page_note(0, 0, words, 13, token["soft"], **aside))
    if clicked[0] in place and (clicked[1] in place or (zoom and clicked[1])):
        reach = 0.5 if size <= 70 else 1.2
        row, column = place[clicked[0]], place.get(clicked[1], size)
        shapes.append(_box(column - reach, row - reach, 2 * reach, plots.pen(token["accent"], 2)))
    font = {"size": 10 if size > NARROW_CELLS else 12, "color": token["soft"]}
    axis = {"type": "category", "showgrid": False, "showline": False, "fixedrange": True, "ticks": "", "tickfont": font}
    cut = [plain(name, 42) for name in rows["name"]]
    short = [re.sub(r"^[\w.-]+/", "", name) for name in cut]  # columns without the maker, which the rows name
    heads = short if len(set(short)) == len(set(cut)) else cut
    x = plots.titled(
        "Named source" if zoom and not many else "", **axis,
        showticklabels=bool(zoom) and not many, tickvals=across, tickangle=-60,
        range=[-0.5, len(across) - 0.5],  # else it makes room for the names
        ticktext=[*heads, "other family"] if zoom else across,
    )  # fmt: skip
    named = {"showticklabels": bool(zoom), "tickvals": names, "ticktext": cut, "ticklabelstandoff": 6}
    y = {**axis, **named, "autorange": "reversed"}
    letters = max(map(len, cut), default=0)  # of the longest name, which the margins hold
    turned = max(map(len, [*heads, "other family"]))
    below = round(48 + 5.2 * turned) if zoom and not many else 76
    left = 84 + 5 * letters if zoom else 112
    aside = {"xanchor": "right", "xshift": 20 - left, "textangle": -90}
    annotations.append(plots.page_note(0, 0.5, "True source", 13, token["soft"], **aside))
    x["title"] |= {"standoff": 8, "font": {"size": 13, "color": token["soft"]}}
    margin = (left, 16 if zoom else 34, 24 if zoom else HEAD_PIXELS, below)
    more = {"shapes": shapes, "annotations": annotations, "hovermode": None, "dragmode": False}
    return plots.plot(theme, margin, [heat], x, y, **more)


def _cell_text(share: float, size: int) -> str:
    """A share in a cell of a family of so many; in narrow cells with two digits."""
    return "1" if share == 1 else f"{share:.2f}".lstrip("0") if size > NARROW_CELLS else rate_text(share)


def _zoomed(order: pd.DataFrame, zoom: str) -> pd.DataFrame:
    return order[order["family"] == zoom].reset_index(drop=True) if zoom else order


def _box(x: float, y: float, side: float, line: Mapping[str, object]) -> Plot:
    return {"type": "rect", "x0": x, "x1": x + side, "y0": y, "y1": y + side, "line": line}


def cell_at(order: pd.DataFrame, zoom: str, x: str, y: str) -> tuple[str, str]:
    """Truth and answer of a clicked cell (x, y) of :func:`confusion_matrix`, empty strings where there is none."""
    rows = _zoomed(order, zoom)
    sources = dict(zip(_distinct(rows["name"].tolist()), rows["source"], strict=True))
    return (sources.get(y, ""), sources.get(x, "")) if x in sources and y in sources else ("", "")


def family_errors(frame: pd.DataFrame, *, theme: Theme, expectation: float, k: int) -> Plot:
    """Share of the errors that stay inside the family: columns k, errors, errors_within_family.

    expectation : share if wrong answers fell on any other source alike.
    """
    token = TOKENS[theme]
    rows = frame[frame["errors"] > 0].sort_values("k")
    share = rows["errors_within_family"] / rows["errors"]
    bars = {
        "type": "bar", "x": [str(int(budget)) for budget in rows["k"]], "y": share.tolist(), "width": 0.56,
        "cliponaxis": False,
        "marker": {"color": [token["accent"] if budget == k else token["edge"] for budget in rows["k"]]},
        "text": [rate_text(value) if value < 1 else "1" for value in share], "textposition": "outside",
        "textfont": {"size": 13, "color": token["ink"]},
        "hovertext": [
            f"{plots.count(int(budget), 'trace')}: {within:,.0f} of {errors:,.0f} errors stay in the family"
            for budget, errors, within in tables.rows(rows, "k", "errors", "errors_within_family")
        ],
        "hovertemplate": plots.HOVER,
    }  # fmt: skip
    y = plots.titled("Share of errors", range=[0, 1.1], tickformat=".1~f", dtick=0.2)
    blind = [plots.level(expectation, token["soft"], 1, "dot")]
    notes = plots.end_notes([(expectation, "chance", token["soft"])], shift=8)
    more = {"shapes": blind, "annotations": notes, "hovermode": None}
    x = {**CATEGORY_AXIS, "range": [-0.5, len(rows) + 0.3]}  # a narrow drawing has the word right of the last bar
    return plots.plot(theme, (64, 72, 20, 52), [bars], x, y, **more)


def layer_curve(curve: pd.DataFrame, selected: pd.DataFrame, *, theme: Theme) -> Plot:
    """Inner validation accuracy of every block, and which blocks were chosen.

    curve : columns layer, accuracy, std, low, high. selected : columns outer_fold (NA for the modal one), layer.
    """
    token = TOKENS[theme]
    height = dict(zip(curve["layer"], curve["accuracy"], strict=True))
    folds = selected[selected["outer_fold"].notna()]
    counted = folds.groupby("layer").size()
    modal = {int(layer) for layer in selected.loc[selected["outer_fold"].isna(), "layer"]}
    hover = [
        f"Layer {layer}, chosen by {count} of {len(folds)} folds" + (", modal" if layer in modal else "")
        for layer, count in counted.items()
    ]
    mean: Plot = {
        "mode": "lines+markers", "line": plots.pen(token["accent"], 2), "marker": {"size": 5},
        "hovertemplate": "Layer %{x}<br>accuracy %{y:.3f} at one trace<extra></extra>",
    }  # fmt: skip
    counts = [f"<b>{count}</b>" if layer in modal else str(count) for layer, count in counted.items()]
    chosen: Plot = {
        "mode": "markers+text", "textposition": "top center", "textfont": {"size": 12, "color": token["ink"]},
        "marker": {"size": 14, "symbol": "circle-open", "color": token["ink"], "line": {"width": 2}},
        "text": [f"{len(folds)} of {len(folds)} folds"] if len(counted) == 1 else counts,
    }  # fmt: skip
    layers = [int(layer) for layer in counted.index]
    wash = curve["layer"], curve["low"], curve["high"], token["accent"], 0.18
    data = [
        plots.band("range over the outer folds", *wash),
        plots.scatter("mean accuracy", curve["layer"], curve["accuracy"], **mean),
        plots.scatter("selected", layers, [height.get(layer) for layer in counted.index], hover, **chosen),
    ]
    reach = [curve["layer"].min() - 0.6, curve["layer"].max() + 0.6]
    dtick = 2 if len(curve) <= 32 else 5
    x = plots.titled("Layer of the proxy", showgrid=False, dtick=dtick, range=reach)
    y = plots.titled("Accuracy at one trace", tickformat=".2~f")
    return plots.plot(theme, (64, 32, 24, 52), data, x, y, hovermode=None)


def fold_spread(frame: pd.DataFrame, *, theme: Theme, axis: str, k: int) -> Plot:
    """How far every fold lies from the folds' mean (columns k, fold, value, n)."""
    token = TOKENS[theme]
    rows = frame.sort_values(["k", "fold"])
    apart = rows["value"] - rows.groupby("k")["value"].transform("mean")
    widest = float(apart.abs().max()) if len(apart) else 0.0
    colours = [token["accent"] if budget == k else token["soft"] for budget in rows["k"]]
    fills = [translucent(colour, 0.35) for colour in colours]
    words = [
        f"Fold {int(fold) + 1}, {plots.count(int(budget), 'trace')}: {figure_text(value)}<br>{int(n):,} groups a seed"
        for budget, fold, value, n in tables.rows(rows, "k", "fold", "value", "n")
    ]
    look = plots.outlined(10, fills, colours, 1.5)
    budgets = [str(int(budget)) for budget in rows["k"]]
    folds = plots.scatter("folds", budgets, apart, text=words, hovertemplate=plots.TEXT, marker=look)
    reach = 1.15 * widest if widest > 0 else 0.01
    y = plots.titled(f"{axis} less its mean", range=[-reach, reach], tickformat="+.2~g", nticks=6)
    zero = plots.level(0, token["edge"])
    return plots.plot(theme, (64, 16, 12, 52), [folds], CATEGORY_AXIS, y, shapes=[zero], hovermode=None)


def blind_share(families: pd.Series) -> float:
    """Share of errors inside the family if they fell on any other source alike."""
    sizes = families.map(families.value_counts())
    return float((sizes - 1).mean() / (len(families) - 1)) if len(families) > 1 else float("nan")


def named_families(families: pd.Series) -> tuple[list[str], int]:
    """Families that a matrix has room to name, and how many others.

    families : of its sources, in the order of :func:`confusion_order`.
    """
    blocks = _blocks(families)
    named = [family for start, stop, family in blocks if _has_room(stop - start, len(families))]
    return named, len(blocks) - len(named)


def _has_room(members: int, size: int) -> bool:
    """Whether a family's rows are as high as its name, among ``size`` sources."""
    return members * MATRIX_PIXELS / max(size, 1) >= NAME_HEIGHT


def _blocks(families: pd.Series) -> list[tuple[int, int, str]]:
    """Runs of one family as (first, one past the last, family)."""
    starts = [0, *(np.flatnonzero(families.to_numpy()[1:] != families.to_numpy()[:-1]) + 1), len(families)]
    return [(int(start), int(stop), families.iloc[start]) for start, stop in itertools.pairwise(starts) if stop > start]


def _block_names(blocks: list[tuple[int, int, str]], size: int, token: Mapping[str, str], apart: int) -> list[Plot]:
    """Family names left of rows and above columns, where a block has room for one; how many others follow them."""
    most = [block for block in blocks if _has_room(block[1] - block[0], size)]
    rest = [block for block in blocks if block not in most]
    named = [((start + stop - 1) / 2, plain(family, 14)) for start, stop, family in most]
    if rest:
        named.append(((rest[0][0] + rest[-1][1] - 1) / 2, f"{len(rest)} smaller"))
    above: list[tuple[float, str]] = []
    for middle, text in named:
        if not above or (middle - above[-1][0]) * MATRIX_PIXELS / max(size, 1) >= apart:
            above.append((middle, text))
    look = (12, token["soft"])
    turned: Plot = {"yref": "paper", "xanchor": "left", "yanchor": "bottom", "textangle": -45, "xshift": -6}
    return [
        *(plots.note(-0.5, middle, text, *look, xanchor="right", xshift=-6) for middle, text in named),
        *(plots.note(middle, 1, text, *look, **turned) for middle, text in above),
    ]


def _distinct(names: Sequence[str]) -> list[str]:
    """Names for an axis of categories: escaped, and numbered where two would read the same."""
    texts = [plain(name) for name in names]
    places = [texts[: at + 1].count(text) for at, text in enumerate(texts)]
    return [text if place == 1 else f"{text} ({place})" for text, place in zip(texts, places, strict=True)]

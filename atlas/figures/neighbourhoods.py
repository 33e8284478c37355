"""Nearest sources in the original space, and whether another reader or panel of prompts agrees.

Paper: Model-Signature Geometry, Prompt and Projection Stability, Candidate Cross-Provider Neighborhoods.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from atlas.figures import compare, plots, tables
from atlas.figures.plots import Line, rate_text
from atlas.theme import TOKENS, Mark, Plot, Theme, plain, rate_colours, readable, translucent
from backend.inference.drift import p_words

ONE_LINE = 27  # letters of a name beside a matrix of many rows
FEW, MANY = 8, 16  # readers up to which the cells of a matrix show large numbers, and numbers at all
OTHERS = (
    "diamond",
    "square",
    "triangle-up",
    "star",
    "cross",
    "triangle-down",
    "hexagon",
    "pentagon",
    "bowtie",
    "hourglass",
    "diamond-wide",
    "x",
)  # symbols of readers beside the shown one; so many of one origin are told apart
LONGEST = 42  # letters of a name beside its row
LEAF_PIXELS = 15  # height of a leaf of the tree, so that its name can be read
TREE_MARGIN = 64


def mark_style(marks: Sequence[Mark], theme: Theme, size: float) -> Plot:
    """Plotly marker for points that carry the marks of their families."""
    colours, symbols = [mark.colour(theme) for mark in marks], [mark.symbol for mark in marks]
    rims = {
        "color": [plots.rim(*look, theme) for look in zip(symbols, colours, strict=True)],
        "width": list(map(plots.rim_width, symbols)),
    }
    return {"size": size, "symbol": [mark.plotted for mark in marks], "color": colours, "line": rims}


def family_purity(frame: pd.DataFrame, lines: Sequence[Line], *, theme: Theme) -> go.Figure:
    """Share of the k nearest sources of the same family, with intervals and chance.

    frame : Columns reader, origin, k, purity, low, high (NaN where there is no interval), expectation, p_value, p_holm;
    most_possible, where that line is drawn too.
    The front line comes last.
    """
    token = TOKENS[theme]
    sizes = sorted(int(k) for k in frame["k"].unique())
    place = {k: index for index, k in enumerate(sizes)}
    step = min(0.1, 0.6 / max(len(lines), 1))  # a number finds room before the next group, on a narrow screen too
    data: list[Plot] = []
    drawn = {False: 0, True: 0}  # others of each origin, which filled and hollow marks tell apart
    for number, line, rows, published in plots.by_line(frame, lines):
        aside = (number - (len(lines) - 1) / 2) * step
        over, under = rows["high"] - rows["purity"], rows["purity"] - rows["low"]
        ends = plots.bars(over.fillna(0), under.fillna(0), line.colour, 2 if line.front else 1.25)
        symbol = "circle" if line.front else OTHERS[drawn[published] % len(OTHERS)]
        drawn[published] += 1
        fill = token["panel"] if published else line.colour
        look = plots.outlined(11 if line.front else 8, fill, line.colour, symbol=symbol)
        words = {
            "mode": "markers+text" if line.front else "markers",
            "text": [rate_text(value) for value in rows["purity"]] if line.front else None,
            "textposition": "middle right",
            "textfont": {"size": 13, "color": token["ink"]},
            "cliponaxis": False,
        }
        hover = [_purity_words(line, row, published) for row in rows.to_dict("records")]
        x = [place[int(k)] + aside for k in rows["k"]]
        error = {"symmetric": False, **ends}
        data.append(plots.scatter(plain(line.label), x, rows["purity"], hover, error_y=error, marker=look, **words))
    chance = float(frame["expectation"].iloc[0])
    shapes = [plots.level(chance, token["soft"], 1, "dot")]
    labels = [(chance, "chance", token["soft"])]
    several = len(data) > 1
    if "most_possible" in frame:
        most = frame.groupby("k")["most_possible"].first().sort_index().tolist()
        x, y = [-0.5, *place.values(), len(sizes) - 0.5], [most[0], *most, most[-1]]
        look = {"mode": "lines", "line": {**plots.pen(token["soft"], 1, "dot"), "shape": "hvh"}, "showlegend": False}
        data.insert(0, plots.scatter("most possible", x, y, **look))
        labels.append((most[-1], "most<br>possible", token["soft"]))
    notes = plots.end_notes(labels, 0.15, shift=8)
    x_axis = plots.titled(
        "Nearest sources looked at (k)", tickvals=list(place.values()), ticktext=[str(k) for k in sizes],
        range=[-0.5, len(sizes) - 0.5], showgrid=False,
    )  # fmt: skip
    y_axis = plots.titled("Share of the same family", range=[0, 1.02], tickformat=".1~f", dtick=0.2)
    legend = {**plots.LEGEND, "entrywidth": 0.5, "entrywidthmode": "fraction"}  # two columns in any window
    more = {"shapes": shapes, "annotations": notes, "showlegend": several, "legend": legend}
    return plots.figure(theme, (64, 72, 44 if several else 12, 52), data, x_axis, y_axis, **more)


def nearest_sources(frame: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme) -> go.Figure:
    """The nearest sources of one: columns name, family, rank, rank_back, cosine, percentile; nearest first."""
    token = TOKENS[theme]
    low = max(-1.0, float(frame["cosine"].min()) - 0.25 * (1 - float(frame["cosine"].min())))
    shapes = [
        plots.segment((low, float(cosine)), (row, row), token["line"], layer="below")
        for row, cosine in enumerate(frame["cosine"])
    ]
    hover = [
        f"{plots.heading(row['name'])}{plain(row['family'])}<br>rank {row['rank']:.0f} from here, "
        + ("no rank" if pd.isna(row["rank_back"]) else f"rank {row['rank_back']:.0f}")
        + f" from there<br>nearer than {row['percentile']:.1%} of all pairs"
        for row in frame.to_dict("records")
    ]
    look = mark_style([marks[family] for family in frame["family"]], theme, 11)
    numbers = _numbers([plots.cosine_text(cosine) for cosine in frame["cosine"]], theme)
    points = plots.scatter("nearest", frame["cosine"], range(len(frame)), hover, marker=look, **numbers)
    # Without a format of its own, the axis writes as many decimals as its steps need.
    x = plots.titled("Cosine of the signatures", range=[low, 1 + 0.04 * (1 - low)], nticks=6)
    y = plots.rows_axis([plain(name, LONGEST) for name in frame["name"]], 0.4, 0.6, showgrid=False)
    return plots.figure(theme, (280, 56, 8, 48), [points], x, y, shapes=shapes)


def _numbers(texts: Iterable[str], theme: Theme) -> Plot:
    """Numbers right of their marks."""
    text = [f"  {words}" for words in texts]
    font = {"size": 13, "color": TOKENS[theme]["ink"]}
    return {"mode": "markers+text", "text": text, "textposition": "middle right", "textfont": font, "cliponaxis": False}


def agreement_matrix(frame: pd.DataFrame, names: Mapping[str, str], *, theme: Theme) -> Plot:
    """Agreement of readers: Spearman above the diagonal, shared nearest ten below it.

    frame : Columns reader, other, metric (spearman, jaccard_10), value.
    """
    order = [reader for reader in names if reader in set(frame["reader"]) | set(frame["other"])]
    place = {reader: index for index, reader in enumerate(order)}
    cells: list[list[float | None]] = [[None] * len(order) for _ in order]
    words: list[list[str]] = [[""] * len(order) for _ in order]
    for row in frame[frame["metric"].isin(["spearman", "jaccard_10"])].to_dict("records"):
        first, second = sorted((place[row["reader"]], place[row["other"]]))
        spearman = row["metric"] == "spearman"
        y, x = (first, second) if spearman else (second, first)
        cells[y][x] = float(row["value"])
        text = "Spearman of all distances" if spearman else "shared among the nearest ten (Jaccard)"
        pair = f"{plain(names[row['reader']])} and {plain(names[row['other']])}"
        words[y][x] = f"{pair}<br>{text}: {rate_text(float(row['value']))}"
    # Rows have a number and their name, columns the number alone: names above them would have to lie aslant.
    few = len(order) <= FEW

    def lines(name: str) -> list[str]:
        # Many rows have no room for two lines each.
        short = name if few else compare.short(name)
        return [short] if not few and len(short) <= ONE_LINE else name.split(" · ", -1 if few else 1)

    labels = [
        f"<b>{number}</b>  {'<br>'.join(plain(part, 36) for part in lines(names[reader]))}"
        for number, reader in enumerate(order, start=1)
    ]
    scale = {
        **{"orientation": "h", "thickness": 8, "len": 0.62, "x": 1, "xanchor": "right", "y": 0, "yanchor": "top"},
        **{"ypad": 10, "xpad": 0, "outlinewidth": 0, "tickvals": [0, 0.5, 1], "ticktext": ["0", ".5", "1"]},
        "tickfont": {"size": 12, "color": TOKENS[theme]["soft"]},
    }
    heat = {
        "type": "heatmap", "z": cells, "zmin": 0, "zmax": 1, "colorscale": rate_colours(theme), "xgap": 2, "ygap": 2,
        "colorbar": scale, "hoverongaps": False, "customdata": words,
        "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip
    numbers = [
        plots.note(column, row, rate_text(value), 13 if len(order) <= FEW else 10, readable(value, theme))
        for row, line in enumerate(cells)
        for column, value in enumerate(line)
        if value is not None and len(order) <= MANY
    ]
    more: Plot = {"showgrid": False, "showline": False, "tickfont": {"size": 12 if len(order) <= FEW else 11}}
    columns = [f"<b>{number}</b>" for number in range(1, len(order) + 1)]
    x_axis = {"tickvals": list(range(len(order))), "ticktext": columns, "ticks": "", "side": "top", **more}
    y_axis = plots.rows_axis(labels, **more)
    return plots.plot(theme, (196, 16, 28, 48), [heat], x_axis, y_axis, annotations=numbers, hovermode=None)


def fold_stability(frame: pd.DataFrame, words: Mapping[str, str], *, theme: Theme) -> go.Figure:
    """Prompts of every fold against all (columns fold, metric, value): measures in rows, folds as points."""
    token = TOKENS[theme]
    measured = [metric for metric in words if metric in set(frame["metric"])]
    look = plots.outlined(11, translucent(token["accent"], 0.35), token["accent"], 1.5)
    data, shapes, notes = [], [], []
    for row, metric in enumerate(measured):
        part = frame[frame["metric"] == metric].sort_values("fold")
        mean = float(part["value"].mean())
        hover = [
            f"{words[metric]}<br>prompts of fold {int(fold) + 1}: {rate_text(value)}"
            for fold, value in tables.rows(part, "fold", "value")
        ]
        data.append(plots.scatter(metric, part["value"], [row] * len(part), hover, marker=look))
        shapes.append(plots.segment((mean, mean), (row - 0.22, row + 0.22), token["ink"], 2))
        notes.append(plots.note(mean, row - 0.22, rate_text(mean), 13, token["ink"], yanchor="bottom"))
    x = plots.titled("Agreement with all prompts (1 is the same)", range=[0, 1.02], tickformat=".1~f", dtick=0.2)
    y = plots.rows_axis([words[metric] for metric in measured], 0.4, 0.7, showgrid=False)
    return plots.figure(theme, (176, 24, 16, 48), data, x, y, shapes=shapes, annotations=notes)


def map_trust(frame: pd.DataFrame, names: Mapping[str, str], metrics: Mapping[str, str], *, theme: Theme) -> go.Figure:
    """Trust in every map: a row a map, a point a measure.

    frame : Columns method, dimensions, metric, value; a sweep gives several rows of one map.
    """
    token = TOKENS[theme]
    stored = set(zip(frame["method"], frame["dimensions"], strict=True))
    maps = [(method, dimensions) for method in names for dimensions in (3, 2) if (method, dimensions) in stored]
    place = {key: row for row, key in enumerate(maps)}
    looks = (("circle", token["accent"]), ("circle-open", token["accent"]), ("diamond", token["caution"]))
    data = []
    for (metric, words), (symbol, colour) in zip(metrics.items(), looks, strict=False):
        rows = frame[(frame["metric"] == metric) & frame["method"].isin(list(names))]
        if rows.empty:
            continue
        hover = [
            f"{names[method]}, {dimensions}-D<br>{words}: {rate_text(value)}"
            for method, dimensions, value in tables.rows(rows, "method", "dimensions", "value")
        ]
        heights = [place[key] for key in zip(rows["method"], rows["dimensions"], strict=True)]
        look = plots.outlined(10, colour, colour, symbol=symbol)
        data.append(plots.scatter(words, rows["value"], heights, hover, marker=look))
    least = float(int(10 * frame["value"].min())) / 10 if len(frame) else 0.5
    x = plots.titled("Share kept (1 is all)", tickformat=".2~f", range=[min(0.5, least), 1.01])
    y = plots.rows_axis([f"{names[method]}, {dimensions}-D" for method, dimensions in maps])
    return plots.figure(theme, (176, 24, 64, 48), data, x, y, showlegend=True, legend=dict(plots.HEAD_LEGEND))


def domain_search(frame: pd.DataFrame, words: Mapping[str, str], *, theme: Theme) -> go.Figure:
    """How often a source is found in the other domain: columns variant (raw filled, centred hollow), metric, value."""
    accent = TOKENS[theme]["accent"]
    measured = [metric for metric in words if metric in set(frame["metric"])]
    data = []
    for variant, name, symbol, aside in (  # so far apart that the line of a row runs between its two numbers
        ("raw", "as it is", "circle", -0.25),
        ("centred", "domain's mean taken away", "circle-open", 0.25),
    ):
        rates = frame[frame["variant"] == variant].drop_duplicates("metric").set_index("metric")["value"]
        drawn = [metric for metric in measured if metric in rates.index]
        values = [float(rates[metric]) for metric in drawn]
        heights = [measured.index(metric) + aside for metric in drawn]
        look = plots.outlined(11, accent, accent, symbol=symbol)
        texts = {"hovertemplate": "%{x:.3f}<extra></extra>", **_numbers(map(rate_text, values), theme)}
        data.append(plots.scatter(name, values, heights, marker=look, **texts))
    x = plots.titled("Share of sources, or mean of 1/rank", range=[0, 1.02], tickformat=".1~f", dtick=0.2)
    y = plots.rows_axis([words[metric] for metric in measured])
    return plots.figure(theme, (176, 48, 64, 48), data, x, y, showlegend=True, legend=dict(plots.HEAD_LEGEND))


def tree_height(sources: int) -> int:
    """Height in pixels of a tree of so many sources."""
    return LEAF_PIXELS * sources + TREE_MARGIN


def tree(
    steps: pd.DataFrame, sources: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme, selected: str = ""
) -> Plot:
    """Average-linkage tree; a branch has the colour of a family while all sources under it are of it.

    steps : Columns step, left_node, right_node, height; nodes below the number of sources are sources.
    sources : Columns source, name, family; row i is node i.
    """
    count = len(sources)
    children: dict[int, tuple[int, int]] = {}
    heights: dict[int, float] = {}
    for step, *pair, height in tables.rows(steps, "step", "left_node", "right_node", "height"):
        children[count + int(step)], heights[count + int(step)] = (int(pair[0]), int(pair[1])), float(height)
    order = _leaves(children, count)
    y: dict[int, float] = {leaf: float(row) for row, leaf in enumerate(order)}
    families: dict[int, str] = dict(enumerate(sources["family"]))
    paths: dict[str, tuple[list[float | None], list[float | None]]] = {}
    for node in sorted(children):
        one, two = children[node]
        y[node] = (y[one] + y[two]) / 2
        families[node] = families[one] if families[one] == families[two] else ""
        xs, ys = paths.setdefault(families[node], ([], []))
        xs += [heights.get(one, 0.0), heights[node], heights[node], heights.get(two, 0.0), None]
        ys += [y[one], y[one], y[two], y[two], None]
    data: list[Plot] = []
    for family, (xs, ys) in sorted(paths.items()):
        colour = marks[family].colour(theme) if family else TOKENS[theme]["edge"]
        name = plain(family) if family else "several families"
        data.append(plots.scatter(name, xs, ys, mode="lines", line=plots.pen(colour, 1.5 if family else 1)))
    leaves = sources.iloc[order]
    hover = [f"{plots.heading(name)}{plain(family)}" for name, family in tables.rows(leaves, "name", "family")]
    look = mark_style([marks[family] for family in leaves["family"]], theme, 9)
    more = {"customdata": [[source] for source in leaves["source"]], "cliponaxis": False}
    data.append(plots.scatter("sources", [0.0] * count, range(count), hover, marker=look, **more))
    top = max(heights.values(), default=1.0)
    names = [
        f"<b>{plain(name, LONGEST)}</b>" if source == selected else plain(name, LONGEST)
        for name, source in tables.rows(leaves, "name", "source")
    ]
    x = plots.titled("Cosine distance at which two clusters join", range=[1.02 * top, -0.012 * top])
    style: Plot = {"side": "right", "tickfont": {"size": 11}, "showgrid": False, "showline": False}
    return plots.plot(theme, (16, 292, 12, 52), data, x, plots.rows_axis(names, 0.4, 0.6, **style))


def _leaves(children: Mapping[int, tuple[int, int]], count: int) -> list[int]:
    """Sources from top to bottom of the tree; those outside it come last."""
    order: list[int] = []
    waiting = [max(children, default=-1)]
    while waiting:
        node = waiting.pop()
        if node in children:
            waiting += [children[node][1], children[node][0]]
        elif node >= 0:
            order.append(node)
    return order + [leaf for leaf in range(count) if leaf not in set(order)]


def _purity_words(line: Line, row: Mapping[Hashable, Any], published: bool) -> str:
    words = f"{plots.heading(line.label, published)}k = {row['k']:.0f}: {rate_text(row['purity'])}"
    words += f"{plots.interval(row['low'], row['high'])}<br>{row['purity'] / row['expectation']:.1f} times chance"
    for key, name in (("p_value", ""), ("p_holm", "Holm ")):
        if pd.notna(row.get(key)):
            words += f"<br>{name}{p_words(row[key])}"
    return words

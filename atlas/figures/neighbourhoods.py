"""Who stands beside whom in the original space, and whether another reader or panel of prompts agrees.

Sections "Model-Signature Geometry", "Prompt and Projection Stability" and "Candidate Cross-Provider Neighborhoods" of
the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from atlas.figures.attribution import Line, rate_text
from atlas.theme import RINGED, TOKENS, Mark, Plot, Theme, dress, plain, rate_colours, readable, template, translucent

HEAD_LEGEND = {
    "orientation": "h",
    "x": 0,
    "xref": "container",
    "y": 1,
    "yref": "container",
    "yanchor": "top",
    "font": {"size": 12},
    "itemclick": False,
}
FEW, MANY = 8, 16
"""Readers up to which the cells of a matrix hold large numbers, and numbers at all."""
LEAF_PIXELS = 15
"""Height of a leaf of the tree, so that its name can be read."""
TREE_MARGIN = 64


def mark_style(marks: Sequence[Mark], theme: Theme, size: float) -> dict[str, object]:
    """Plotly marker for points that carry the marks of their families."""
    rims = [
        TOKENS[theme]["ink"]
        if mark.symbol == RINGED
        else mark.colour(theme)
        if mark.symbol.endswith("-open")
        else TOKENS[theme]["ground"]
        for mark in marks
    ]
    return {
        "size": size,
        "symbol": [mark.plotted for mark in marks],
        "color": [mark.colour(theme) for mark in marks],
        "line": {
            "color": rims,
            "width": [2 if mark.symbol == RINGED or mark.symbol.endswith("-open") else 0.75 for mark in marks],
        },
    }


def family_purity(frame: pd.DataFrame, lines: Sequence[Line], *, theme: Theme) -> go.Figure:
    """Share of the k nearest that are of the source's family, with intervals, beside what blind neighbours would give.

    frame : Columns reader, origin, k, purity, low, high (NaN where there is no interval), expectation, p_value,
        p_holm.
    lines : Readers by key; front line last.
    """
    token = TOKENS[theme]
    figure = go.Figure()
    sizes = sorted(int(k) for k in frame["k"].unique())
    place = {k: index for index, k in enumerate(sizes)}
    step = min(0.14, 0.6 / max(len(lines), 1))
    for number, line in enumerate(lines):
        rows = frame[frame["reader"] == line.key].sort_values("k")
        if rows.empty:
            continue
        published = bool((rows["origin"] == "published").all())
        apart = (number - (len(lines) - 1) / 2) * step
        figure.add_trace(
            go.Scatter(
                name=plain(line.label),
                x=[place[int(k)] + apart for k in rows["k"]],
                y=rows["purity"].tolist(),
                mode="markers+text" if line.front else "markers",
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": (rows["high"] - rows["purity"]).fillna(0).tolist(),
                    "arrayminus": (rows["purity"] - rows["low"]).fillna(0).tolist(),
                    "color": line.colour,
                    "thickness": 2 if line.front else 1.25,
                    "width": 0,
                },
                marker={
                    "size": 11 if line.front else 8,
                    "color": token["panel"] if published else line.colour,
                    "line": {"color": line.colour, "width": 2},
                },
                text=[rate_text(value) for value in rows["purity"]] if line.front else None,
                textposition="middle right",
                textfont={"size": 13, "color": token["ink"]},
                hovertext=[_purity_words(line, row, published) for row in rows.to_dict("records")],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    expectation = float(frame["expectation"].iloc[0])
    figure.add_hline(y=expectation, line={"color": token["soft"], "width": 1, "dash": "dot"})
    figure.add_annotation(
        x=1, xref="paper", y=expectation, text="chance", showarrow=False, xanchor="left", xshift=8,
        font={"size": 13, "color": token["soft"]},
    )  # fmt: skip
    figure.update_layout(template=template(theme), margin={"l": 64, "r": 72, "t": 12, "b": 52}, hovermode="closest")
    figure.update_xaxes(
        title="Nearest sources looked at (k)",
        tickvals=list(place.values()),
        ticktext=[str(k) for k in sizes],
        range=[-0.6, len(sizes) - 0.4],
        showgrid=False,
    )
    figure.update_yaxes(title="Share of the same family", range=[0, 1.02], tickformat=".1~f", dtick=0.2)
    return figure


def nearest_sources(frame: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme) -> go.Figure:
    """The nearest sources of one, by cosine, with the marks of their families.

    frame : Columns name, family, rank, rank_back, cosine, percentile; nearest first.
    """
    token = TOKENS[theme]
    rows = list(range(len(frame)))
    low = max(-1.0, float(frame["cosine"].min()) - 0.25 * (1 - float(frame["cosine"].min())))
    figure = go.Figure()
    for row, cosine in zip(rows, frame["cosine"], strict=True):
        figure.add_shape(
            type="line", layer="below", x0=low, x1=float(cosine), y0=row, y1=row,
            line={"color": token["line"], "width": 1},
        )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            name="nearest",
            x=frame["cosine"].tolist(),
            y=rows,
            mode="markers+text",
            marker=mark_style([marks[family] for family in frame["family"]], theme, 11),
            text=[f"  {rate_text(value)}" for value in frame["cosine"]],
            textposition="middle right",
            textfont={"size": 13, "color": token["ink"]},
            cliponaxis=False,
            hovertext=[
                f"<b>{plain(row['name'])}</b><br>{plain(row['family'])}<br>rank {row['rank']:.0f} from here, "
                f"{_back(row['rank_back'])}<br>nearer than {row['percentile']:.1%} of all pairs"
                for row in frame.to_dict("records")
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    figure.update_layout(template=template(theme), margin={"l": 236, "r": 56, "t": 8, "b": 48}, hovermode="closest")
    figure.update_xaxes(
        title="Cosine of the signatures", range=[low, 1 + 0.04 * (1 - low)], tickformat=".2~f", nticks=6
    )
    figure.update_yaxes(
        tickvals=rows,
        ticktext=[plain(name, 32) for name in frame["name"]],
        range=[len(rows) - 0.4, -0.6],
        showgrid=False,
        ticks="",
    )
    return figure


def agreement_matrix(frame: pd.DataFrame, names: Mapping[str, str], *, theme: Theme) -> Plot:
    """Two measures of agreement in one matrix: Spearman above the diagonal, shared nearest ten below it.

    frame : Columns reader, other, metric (spearman, jaccard_10), value.
    names : In the order of the rows.
    """
    order = [reader for reader in names if reader in set(frame["reader"]) | set(frame["other"])]
    place = {reader: index for index, reader in enumerate(order)}
    cells: list[list[float | None]] = [[None] * len(order) for _ in order]
    words: list[list[str]] = [[""] * len(order) for _ in order]
    for row in frame.to_dict("records"):
        first, second = sorted((place[row["reader"]], place[row["other"]]))
        spearman = row["metric"] == "spearman"
        if not spearman and row["metric"] != "jaccard_10":
            continue
        at = (first, second) if spearman else (second, first)
        cells[at[0]][at[1]] = float(row["value"])
        text = "Spearman of all distances" if spearman else "shared among the nearest ten (Jaccard)"
        pair = f"{plain(names[row['reader']])} and {plain(names[row['other']])}"
        words[at[0]][at[1]] = f"{pair}<br>{text}: {rate_text(float(row['value']))}"
    # Rows have their name and a number, columns the number alone: names below them would have to lie aslant.
    labels = [
        f"{'<br>'.join(plain(part, 36) for part in names[reader].split(' · ', 1))}  <b>{number}</b>"
        for number, reader in enumerate(order, start=1)
    ]
    heat = {
        "type": "heatmap",
        "z": cells,
        "zmin": 0,
        "zmax": 1,
        "colorscale": rate_colours(theme),
        "xgap": 2,
        "ygap": 2,
        "showscale": False,
        "hoverongaps": False,
        "customdata": words,
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    numbers = [
        {"x": column, "y": row, "text": rate_text(value), "showarrow": False,
         "font": {"size": 13 if len(order) <= FEW else 10, "color": readable(value, theme)}}
        for row, line in enumerate(cells)
        for column, value in enumerate(line)
        if value is not None and len(order) <= MANY
    ]  # fmt: skip
    axis = {"tickvals": list(range(len(order))), "showgrid": False, "ticks": "", "showline": False}
    small = {"size": 12 if len(order) <= FEW else 11}
    columns = [f"<b>{number}</b>" for number in range(1, len(order) + 1)]
    layout = {
        "template": dress(theme),
        "annotations": numbers,
        "margin": {"l": 196, "r": 16, "t": 12, "b": 40},
        "xaxis": {**axis, "ticktext": columns, "tickfont": small},
        "yaxis": {**axis, "ticktext": labels, "tickfont": small, "range": [len(order) - 0.5, -0.5]},
    }
    return {"data": [heat], "layout": layout}


def fold_stability(frame: pd.DataFrame, words: Mapping[str, str], *, theme: Theme) -> go.Figure:
    """Every fold's prompts against all prompts, one row a measure, one point a fold, the mean as a bar.

    frame : Columns fold, metric, value.
    words : In the order of the rows.
    """
    token = TOKENS[theme]
    shown = [metric for metric in words if metric in set(frame["metric"])]
    figure = go.Figure()
    for row, metric in enumerate(shown):
        part = frame[frame["metric"] == metric].sort_values("fold")
        mean = float(part["value"].mean())
        figure.add_trace(
            go.Scatter(
                name=metric,
                x=part["value"].tolist(),
                y=[row] * len(part),
                mode="markers",
                marker={
                    "size": 11,
                    "color": translucent(token["accent"], 0.35),
                    "line": {"width": 1.5, "color": token["accent"]},
                },
                hovertext=[
                    f"{words[metric]}<br>prompts of fold {int(fold) + 1}: {rate_text(value)}"
                    for fold, value in part[["fold", "value"]].itertuples(index=False)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
        figure.add_shape(
            type="line", x0=mean, x1=mean, y0=row - 0.22, y1=row + 0.22, line={"color": token["ink"], "width": 2}
        )
        figure.add_annotation(
            x=mean, y=row - 0.22, text=rate_text(mean), showarrow=False, yanchor="bottom",
            font={"size": 13, "color": token["ink"]},
        )  # fmt: skip
    figure.update_layout(template=template(theme), margin={"l": 176, "r": 24, "t": 16, "b": 48}, hovermode="closest")
    figure.update_xaxes(
        title="Agreement with all prompts (1 is the same)", range=[0, 1.02], tickformat=".1~f", dtick=0.2
    )
    figure.update_yaxes(
        tickvals=list(range(len(shown))),
        ticktext=[words[metric] for metric in shown],
        range=[len(shown) - 0.4, -0.7],
        showgrid=False,
        ticks="",
    )
    return figure


def map_trust(frame: pd.DataFrame, names: Mapping[str, str], metrics: Mapping[str, str], *, theme: Theme) -> go.Figure:
    """How far every map can be trusted: one row a map, one point a measure.

    frame : Columns method, dimensions, metric, value; a sweep gives several rows of one map.
    names : In the order of the rows; two and three dimensions stand under each other.
    metrics : In the order of their symbols.
    """
    token = TOKENS[theme]
    figure = go.Figure()
    maps = [
        (method, dimensions)
        for method in names
        for dimensions in (3, 2)
        if len(frame[(frame["method"] == method) & (frame["dimensions"] == dimensions)])
    ]
    place = {key: row for row, key in enumerate(maps)}
    looks = (("circle", token["accent"]), ("circle-open", token["accent"]), ("diamond", token["caution"]))
    for (metric, words), (symbol, colour) in zip(metrics.items(), looks, strict=False):
        rows = frame[(frame["metric"] == metric) & frame["method"].isin(list(names))]
        if rows.empty:
            continue
        figure.add_trace(
            go.Scatter(
                name=words,
                x=rows["value"].tolist(),
                y=[place[key] for key in zip(rows["method"], rows["dimensions"], strict=True)],
                mode="markers",
                marker={"size": 10, "symbol": symbol, "color": colour, "line": {"width": 2, "color": colour}},
                hovertext=[
                    f"{names[method]}, {dimensions}-D<br>{words}: {rate_text(value)}"
                    for method, dimensions, value in rows[["method", "dimensions", "value"]].itertuples(index=False)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    figure.update_layout(
        template=template(theme),
        margin={"l": 176, "r": 24, "t": 64, "b": 48},
        showlegend=True,
        legend=HEAD_LEGEND,
        hovermode="closest",
    )
    figure.update_xaxes(title="Share kept (1 is all)", tickformat=".2~f", range=[min(0.5, _low(frame)), 1.01])
    figure.update_yaxes(
        tickvals=list(place.values()),
        ticktext=[f"{names[method]}, {dimensions}-D" for method, dimensions in maps],
        range=[len(maps) - 0.5, -0.5],
        ticks="",
    )
    return figure


def domain_search(frame: pd.DataFrame, words: Mapping[str, str], *, theme: Theme) -> go.Figure:
    """How often the same source is found in the other domain: raw signatures filled, centred ones hollow.

    frame : Columns variant (raw, centred), metric, value; one direction.
    words : In the order of the rows.
    """
    token = TOKENS[theme]
    shown = [metric for metric in words if metric in set(frame["metric"])]
    figure = go.Figure()
    for variant, symbol, apart in (("raw", "circle", -0.13), ("centred", "circle-open", 0.13)):
        rows = frame[frame["variant"] == variant].drop_duplicates("metric").set_index("metric")["value"]
        held = [metric for metric in shown if metric in rows.index]
        figure.add_trace(
            go.Scatter(
                name="as it is" if variant == "raw" else "domain's mean taken away",
                x=[float(rows[metric]) for metric in held],
                y=[shown.index(metric) + apart for metric in held],
                mode="markers+text",
                marker={
                    "size": 11,
                    "symbol": symbol,
                    "color": token["accent"],
                    "line": {"width": 2, "color": token["accent"]},
                },
                text=[f"  {rate_text(float(rows[metric]))}" for metric in held],
                textposition="middle right",
                textfont={"size": 13, "color": token["ink"]},
                cliponaxis=False,
                hovertemplate="%{x:.3f}<extra></extra>",
            )
        )
    figure.update_layout(
        template=template(theme),
        margin={"l": 176, "r": 48, "t": 64, "b": 48},
        showlegend=True,
        legend=HEAD_LEGEND,
        hovermode="closest",
    )
    figure.update_xaxes(title="Share of sources, or mean of 1/rank", range=[0, 1.02], tickformat=".1~f", dtick=0.2)
    figure.update_yaxes(
        tickvals=list(range(len(shown))),
        ticktext=[words[metric] for metric in shown],
        range=[len(shown) - 0.5, -0.5],
        ticks="",
    )
    return figure


def tree_height(sources: int) -> int:
    """Height in pixels of a tree of so many sources."""
    return LEAF_PIXELS * sources + TREE_MARGIN


def tree(
    steps: pd.DataFrame, sources: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme, selected: str = ""
) -> Plot:
    """Average-linkage tree: sources at the right with the marks of their families, joins where their clusters meet.

    A branch has the colour of a family as long as all sources under it are of that family.

    steps : Columns step, left_node, right_node, height, size; nodes below the number of sources are sources.
    sources : Columns source, name, family; row i is node i.
    selected : Label of the source whose name is marked.
    """
    token = TOKENS[theme]
    count = len(sources)
    children = {
        count + int(step): (int(left), int(right))
        for step, left, right in steps[["step", "left_node", "right_node"]].itertuples(index=False)
    }
    heights = {count + int(step): float(height) for step, height in steps[["step", "height"]].itertuples(index=False)}
    order = _leaves(children, count)
    y: dict[int, float] = {leaf: float(row) for row, leaf in enumerate(order)}
    families: dict[int, str] = dict(enumerate(sources["family"]))
    paths: dict[str, tuple[list[float | None], list[float | None]]] = {}
    for node in sorted(children):
        left, right = children[node]
        y[node] = (y[left] + y[right]) / 2
        families[node] = families[left] if families[left] == families[right] else ""
        xs, ys = paths.setdefault(families[node], ([], []))
        xs += [heights.get(left, 0.0), heights[node], heights[node], heights.get(right, 0.0), None]
        ys += [y[left], y[left], y[right], y[right], None]
    data: list[Plot] = []
    for family, (xs, ys) in sorted(paths.items()):
        colour = marks[family].colour(theme) if family else token["edge"]
        line = {"color": colour, "width": 1.5 if family else 1}
        name = plain(family) if family else "several families"
        data.append(
            {"type": "scatter", "name": name, "x": xs, "y": ys, "mode": "lines", "line": line, "hoverinfo": "skip"}
        )
    leaves = sources.iloc[order]
    data.append(
        {
            "type": "scatter",
            "name": "sources",
            "x": [0.0] * count,
            "y": list(range(count)),
            "mode": "markers",
            "marker": mark_style([marks[family] for family in leaves["family"]], theme, 9),
            "customdata": [[source] for source in leaves["source"]],
            "hovertext": [
                f"<b>{plain(name)}</b><br>{plain(family)}"
                for name, family in zip(leaves["name"], leaves["family"], strict=True)
            ],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "cliponaxis": False,
        }
    )
    top = max(heights.values(), default=1.0)
    title = {"text": "Cosine distance at which two clusters join"}
    layout = {
        "template": dress(theme),
        "margin": {"l": 16, "r": 264, "t": 12, "b": 52},
        "hovermode": "closest",
        "xaxis": {"title": title, "range": [1.02 * top, -0.012 * top]},
        "yaxis": {
            "side": "right",
            "tickvals": list(range(count)),
            "ticktext": [
                f"<b>{plain(name, 36)}</b>" if source == selected else plain(name, 36)
                for name, source in zip(leaves["name"], leaves["source"], strict=True)
            ],
            "tickfont": {"size": 11},
            "range": [count - 0.4, -0.6],
            "showgrid": False,
            "showline": False,
            "ticks": "",
        },
    }
    return {"data": data, "layout": layout}


def _leaves(children: Mapping[int, tuple[int, int]], count: int) -> list[int]:
    """Sources from top to bottom as the tree holds them; those it does not hold come last."""
    order: list[int] = []
    waiting = [max(children, default=-1)]
    while waiting:
        node = waiting.pop()
        if node in children:
            waiting += [children[node][1], children[node][0]]
        elif node >= 0:
            order.append(node)
    held = set(order)
    return order + [leaf for leaf in range(count) if leaf not in held]


def _purity_words(line: Line, row: Mapping[str, float], published: bool) -> str:
    words = f"<b>{plain(line.label)}</b>{', published' if published else ''}<br>"
    words += f"k = {row['k']:.0f}: {rate_text(row['purity'])}"
    if pd.notna(row["low"]) and pd.notna(row["high"]):
        words += f" [{rate_text(row['low'])}, {rate_text(row['high'])}]"
    words += f"<br>{row['purity'] / row['expectation']:.1f} times chance"
    for key, name in (("p_value", "p"), ("p_holm", "Holm p")):
        if pd.notna(row.get(key)):
            words += f"<br>{name} {p_text(row[key])}"
    return words


def p_text(value: float) -> str:
    """A p value to three digits, never as nought or one: '.012', '< .001', '> .999'."""
    if value < 0.001:
        return "< .001"
    return "> .999" if value >= 0.9995 else rate_text(value)


def _back(rank: float) -> str:
    return "no rank from there" if pd.isna(rank) else f"rank {rank:.0f} from there"


def _low(frame: pd.DataFrame) -> float:
    return float(int(10 * frame["value"].min())) / 10 if len(frame) else 0.5

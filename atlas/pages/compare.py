"""Compare: up to six readers side by side, over budgets, blocks, domains and conditions."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
import numpy as np
import pandas as pd
from dash import Dash, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell, tables
from atlas.data import CONDITION_NAMES, DOMAIN_NAMES, PAPER_METHOD, Questions, questions
from atlas.drawing import Drawn
from atlas.figures import attribution, compare
from atlas.figures.attribution import Line, rate_text
from atlas.figures.neighbourhoods import p_text
from atlas.state import BUDGETS, METRICS, MOST_READERS, REDUCTIONS, View
from atlas.theme import READER_COLOURS
from backend.store import queries

QUESTIONS = {
    "curves": "Which reader needs the fewest traces?",
    "ends": "Where do they end, and is the difference real?",
    "elsewhere": "What is left on other prompts and shorter responses?",
    "depths": "Where in the proxy does the knowledge sit?",
    "every": "How does every reader do?",
}
AXES = {"accuracy": "Accuracy", "macro_f1": "Macro-F1", "nll": "NLL of the mean evidence (nats)", "ece": "ECE"}
STORED = {"accuracy": "accuracy", "macro_f1": "macro_f1", "nll": "nll_mean", "ece": "ece_mean"}
FIRST = 4
"""Readers that stand side by side before anybody chose some."""


def layout(**query: str) -> Component:
    """The page for a query string."""
    asked = questions()
    problem = asked.problem()
    if problem is not None:
        return shell.no_generation(problem)
    wanted = asked.settle(View.parse(query))
    view = asked.opened(wanted)

    def section(name: str, drawn: Drawn, height: int, **more: Any) -> Component:
        plot = shell.graph(f"{name}-graph", drawn.figure)
        return shell.figure_section(
            name, QUESTIONS[name], drawn.sentence, plot, height=height, absent=drawn.absent, origin="", **more
        )

    conditions = [{"value": name, "label": CONDITION_NAMES.get(name, name)} for name in asked.conditions()]
    return html.Div(
        className="column",
        children=[
            shell.settled(wanted, view),
            drawing.remembered(PAGE.name),
            html.Div(
                className="page-head",
                children=[
                    html.H1("Compare"),
                    html.Div(
                        _answer(asked, view), id="compare-answer", className="answer alone", **{"aria-live": "polite"}
                    ),
                    html.Div(
                        className="compare-choice",
                        children=[
                            html.Label(
                                [
                                    "Readers side by side ",
                                    html.Span(f"(up to {MOST_READERS}; the first is the reference)", className="soft"),
                                ],
                                htmlFor="readers",
                                className="choice-label",
                            ),
                            dmc.MultiSelect(
                                id="readers",
                                data=shell.reader_options(asked),
                                value=_chosen(asked, view),
                                maxValues=MOST_READERS,
                                searchable=True,
                                clearable=True,
                                hidePickedOptions=True,
                                nothingFoundMessage="No reader has this name",
                                filter=shell.BY_WORDS,
                                maxDropdownHeight=420,
                                size="sm",
                                comboboxProps={"zIndex": 300},
                                attributes=shell.named("Readers side by side"),
                            ),
                            html.Div(_key_of(asked, view), id="compare-key", className="reader-key"),
                        ],
                    ),
                    html.Div(
                        className="controls",
                        children=[
                            shell.segmented("compare-k", {k: str(k) for k in BUDGETS}, view.k, "Budget K"),
                            shell.segmented("compare-metric", METRICS, view.metric, "Metric"),
                            shell.segmented("compare-reduction", REDUCTIONS, view.reduction, "Reduction"),
                            shell.labelled(
                                "Traces",
                                "condition",
                                dmc.Select(
                                    id="condition",
                                    data=conditions,
                                    value=view.condition,
                                    allowDeselect=False,
                                    size="xs",
                                    w=220,
                                    comboboxProps={"zIndex": 300},
                                    attributes=shell.named("What was done to the traces"),
                                ),
                            ),
                        ],
                    ),
                ],
            ),
            section("curves", _curves(asked, view), 420),
            shell.grid_section("ends", QUESTIONS["ends"], *_ends(asked, view), origin="", height=None),
            section("elsewhere", _elsewhere(asked, view), 380),
            section("depths", _depths(asked, view), 360),
            shell.grid_section("every", QUESTIONS["every"], *_every(asked, view), origin="", height=480),
        ],
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    readers, k = Input("readers", "value"), Input("compare-k", "value")
    metric, reduction = Input("compare-metric", "value"), Input("compare-reduction", "value")
    condition = Input("condition", "value")
    drawing.remember(app, PAGE.name, readers=readers, k=k, metric=metric, reduction=reduction, condition=condition)
    drawing.follow(app, drawing.place("compare-key", _key_of), drawing.figure("depths", _depths), readers=readers)
    drawing.follow(
        app,
        drawing.place("compare-answer", _answer),
        drawing.grid("ends", _ends),
        readers=readers,
        k=k,
        condition=condition,
    )
    choices = {"readers": readers, "k": k, "metric": metric, "reduction": reduction, "condition": condition}
    drawing.follow(app, drawing.figure("curves", _curves), **choices)
    drawing.follow(app, drawing.figure("elsewhere", _elsewhere), readers=readers, k=k, metric=metric)
    drawing.follow(app, drawing.grid("every", _every), k=k, condition=condition)

    @app.callback(
        Output("readers", "value"),
        Input("every-grid", "selectedRows", allow_optional=True),
        Input("reader", "value"),
        State("readers", "value"),
        prevent_initial_call=True,
    )
    def added(rows: list[dict[str, Any]] | None, reader: str | None, now: list[str] | None) -> Any:
        chosen = list(now or [])
        if ctx.triggered_id == "every-grid" and rows and rows[0]["reader"] not in chosen:
            return [*chosen[: MOST_READERS - 1], rows[0]["reader"]]
        # The header's reader is the reference: it moves to the front.
        if ctx.triggered_id == "reader" and reader and chosen and chosen[0] != reader:
            return [reader, *[other for other in chosen if other != reader]][:MOST_READERS]
        return no_update


# ---- what is drawn --------------------------------------------------------------------------------------------------


def _chosen(asked: Questions, view: View) -> list[str]:
    """Readers side by side: those of the link, else the header's and the best others of the paper's method."""
    if view.readers:
        return list(view.readers)
    first = asked.attribution_reader(view) or view.reader
    frame = _measured(asked, view)
    top = frame[frame["k"] == frame["k"].max()].sort_values("value", ascending=False, kind="stable")
    readers = asked.ask(queries.readers).set_index("reader")
    alike = [
        reader
        for reader in dict.fromkeys(top["reader"])
        if reader != first
        and readers.at[reader, "method"] == PAPER_METHOD
        and (first not in readers.index or readers.at[reader, "view"] == readers.at[first, "view"])
    ]
    return [first, *alike][:FIRST] if first else alike[:FIRST]


def _measured(asked: Questions, view: View) -> pd.DataFrame:
    """Accuracy of every reader in the roster and domain of the view, one row a reader and budget."""
    everyone = list(asked.ask(queries.readers)["reader"])
    frame = asked.ask(queries.summaries, everyone, view.roster)
    here = (frame["benchmark"] == view.domain) & (frame["condition"] == view.condition)
    return frame[here & (frame["metric"] == "accuracy") & (frame["reduction"] == "pooled")]


def _lines(asked: Questions, view: View) -> list[Line]:
    """One line a chosen reader; the reference is drawn last, on top."""
    colours = READER_COLOURS[view.theme]
    names = asked.short_names(_chosen(asked, view))
    return [Line(reader, names[reader], colour) for reader, colour in zip(names, colours, strict=False)][::-1]


def _key_of(asked: Questions, view: View) -> list[Component]:
    return [
        html.Span(
            [
                html.Span(className="swatch", style={"background": line.colour}, **{"aria-hidden": "true"}),
                html.Span(asked.reader_name(line.key), className="reader-name"),
                shell.origin_badge(asked.origin(line.key)),
            ],
            className="marked",
        )
        for line in _lines(asked, view)[::-1]
    ]


def _answer(asked: Questions, view: View) -> list[Component | str]:
    chosen = _chosen(asked, view)
    frame = _measured(asked, view)
    here = frame[(frame["k"] == view.k) & frame["reader"].isin(chosen)].set_index("reader")["value"]
    if not len(here):
        return [f"None of these readers has been measured for {drawing.choice_words(view)}."]
    names = asked.short_names(chosen)
    best = str(here.idxmax())
    traces = "one trace" if view.k == 1 else f"{view.k} traces"
    told: list[Component | str] = [
        f"With {traces}, ",
        html.Strong(names[best]),
        f" names {100 * here[best]:.1f} % of the groups",
    ]
    if chosen[0] in here.index and best != chosen[0]:
        told.append(f", the reference {names[chosen[0]]} {100 * here[chosen[0]]:.1f} %")
    return [*told, "."]


def _curves(asked: Questions, view: View) -> Drawn:
    lines = _lines(asked, view)
    frame = asked.ask(
        queries.metric_curve,
        [line.key for line in lines],
        view.roster,
        view.domain,
        view.condition,
        STORED[view.metric],
        view.reduction,
    )
    if frame.empty:
        what = f"{METRICS[view.metric].lower()} ({CONDITION_NAMES.get(view.condition, view.condition)})"
        return drawing.unmeasured(asked, view, what, PAGE.path)
    size = len(asked.ask(queries.sources, view.roster))
    chance = {"accuracy": 1 / max(size, 1), "nll": float(np.log(max(size, 1)))}.get(view.metric)
    figure = attribution.budget_curves(
        frame.assign(line=frame["reader"]),
        lines,
        theme=view.theme,
        axis=AXES[view.metric],
        k=view.k,
        chance=chance,
        unit=view.metric != "nll",
    )
    how = "folds pooled, mean over the seeds" if view.reduction == "pooled" else "mean over the folds"
    missing = len(lines) - frame["reader"].nunique()
    absent = f" {missing} of the readers have no such curve." if missing else ""
    sentence = (
        f"{METRICS[view.metric]} on {DOMAIN_NAMES.get(view.domain, view.domain)}, "
        f"{CONDITION_NAMES.get(view.condition, view.condition)}; {how}; bands are one standard deviation. "
        f"n = {int(frame['n'].max()):,} groups a seed at the smallest K. Dashed and hollow: published, not measured "
        f"here.{absent}"
    )
    return Drawn(figure, sentence)


def _end_rows(asked: Questions, view: View) -> pd.DataFrame:
    """End points: smallest and largest budget, by fold where there is such a summary, and tests against the first."""
    chosen = _chosen(asked, view)
    frame = asked.ask(queries.summaries, chosen, view.roster)
    frame = frame[(frame["benchmark"] == view.domain) & (frame["condition"] == view.condition)]
    order = {"fold": 0, "pooled": 1}
    frame = frame.assign(preferred=frame["reduction"].map(order)).sort_values("preferred", kind="stable")
    frame = frame.drop_duplicates(["reader", "metric", "k"])
    ends = sorted({int(frame["k"].min()), int(frame["k"].max())}) if len(frame) else []
    rows = []
    tests = asked.ask(queries.paired_tests, chosen[0] if chosen else "", chosen, view.roster)
    tests = tests.drop_duplicates(["reader", "measure"]).set_index(["reader", "measure"])
    for reader in chosen:
        for metric in ("accuracy", "macro_f1"):
            for k in ends:
                part = frame[(frame["metric"] == metric) & (frame["k"] == k)].set_index("reader")
                if reader not in part.index:
                    continue
                own = part.loc[reader]
                difference = own["value"] - part.at[chosen[0], "value"] if chosen[0] in part.index else np.nan
                test = tests.loc[(reader, f"{metric}@{k}")] if (reader, f"{metric}@{k}") in tests.index else None
                rows.append(
                    {
                        "reader": reader,
                        "name": asked.reader_name(reader),
                        "origin": own["origin"],
                        "metric": metric,
                        "k": k,
                        "value": own["value"],
                        "std": own["std"],
                        "reduction": own["reduction"],
                        "difference": np.nan if reader == chosen[0] else difference,
                        "low": np.nan if test is None else test["low"],
                        "high": np.nan if test is None else test["high"],
                        "p_holm": np.nan if test is None else test["p_holm"],
                        "n": int(own["n"]),
                    }
                )
    columns = ["reader", "name", "origin", "metric", "k", "value", "std", "reduction", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=[*columns, "p_holm", "n"])


def _ends(asked: Questions, view: View) -> tuple[Component, shell.Children]:
    frame = _end_rows(asked, view)
    if frame.empty:
        return drawing.absent(drawing.unmeasured(asked, view, "end points", PAGE.path))
    pairs = list(dict.fromkeys(zip(frame["metric"], frame["k"], strict=True)))
    colours = {line.key: line.colour for line in _lines(asked, view)}
    names = asked.short_names(_chosen(asked, view))
    body = []
    for reader, rows in frame.groupby("reader", sort=False):
        cells: list[Component] = [
            html.Th(
                html.Span(
                    [
                        html.Span(
                            className="swatch",
                            style={"background": colours.get(str(reader))},
                            **{"aria-hidden": "true"},
                        ),
                        html.Span(names[str(reader)], className="reader-name", title=rows["name"].iloc[0]),
                        shell.origin_badge(rows["origin"].iloc[0]),
                    ],
                    className="marked",
                ),
                scope="row",
            )
        ]
        held = {(row["metric"], row["k"]): row for row in rows.to_dict("records")}
        for pair in pairs:
            row = held.get(pair)
            cells.append(html.Td("–" if row is None else _value(row)))
            if pair[0] == "accuracy":
                cells.append(html.Td("" if row is None else _difference(row)))
        body.append(html.Tr(cells, className="published-row" if rows["origin"].iloc[0] == "published" else ""))
    heads: list[Component] = [html.Th("Reader", scope="col")]
    for metric, k in pairs:
        heads.append(html.Th(f"{METRICS[metric]}, K = {k}", scope="col"))
        if metric == "accuracy":
            heads.append(html.Th("less the first", scope="col"))
    tested = int(frame["p_holm"].notna().sum())
    told = (
        f"{tested} differences were tested in pairs (clusters of fold and source, sign flips); p is Holm-corrected."
        if tested
        else "No difference has been tested yet: python -m jobs evaluate tests readers that were measured here."
    )
    folds = (
        "mean ± standard deviation over the folds where there is one" if (frame["reduction"] == "fold").any() else ""
    )
    sentence = (
        f"{drawing.choice_words(view)}, {CONDITION_NAMES.get(view.condition, view.condition)}; "
        f"{folds or 'folds pooled'}. {told} n = {frame['reader'].nunique()} readers."
    )
    table = html.Table([html.Thead(html.Tr(heads)), html.Tbody(body)], className="small wide")
    return html.Div(table, className="scroll-x"), sentence


def _value(row: dict[str, Any]) -> list[Component | str]:
    value = "1" if row["value"] >= 1 else rate_text(row["value"])
    return [value] if pd.isna(row["std"]) else [value, html.Span(f" ± {rate_text(row['std'])}", className="soft")]


def _difference(row: dict[str, Any]) -> list[Component | str]:
    if pd.isna(row["difference"]):
        return ["–"]
    sign = "+" if row["difference"] >= 0 else ""
    told: list[Component | str] = [f"{sign}{rate_text(row['difference'])}"]
    if pd.notna(row["low"]) and pd.notna(row["high"]):
        told.append(html.Span(f" [{rate_text(row['low'])}, {rate_text(row['high'])}]", className="soft"))
    if pd.notna(row["p_holm"]):
        told.append(html.Span(f" p {p_text(row['p_holm'])}", className="soft"))
    return told


def _elsewhere_rows(asked: Questions, view: View) -> pd.DataFrame:
    """The metric at K under every domain and condition, and what share of the clean Agent500 value is kept."""
    stored = STORED[view.metric]
    frame = asked.ask(queries.summaries, _chosen(asked, view), view.roster, (stored,))
    frame = frame[(frame["k"] == view.k) & (frame["reduction"] == "pooled")]
    clean = frame[(frame["benchmark"] == "agent500") & (frame["condition"] == "clean")].set_index("reader")["value"]
    kept = frame["value"] / frame["reader"].map(clean.to_dict()).astype(float)
    return frame.assign(kept=kept).drop(columns="build_id").reset_index(drop=True)


def _columns(frame: pd.DataFrame, asked: Questions) -> dict[tuple[str, str], str]:
    domains, conditions = asked.domains(), asked.conditions()
    held = set(zip(frame["benchmark"], frame["condition"], strict=True))
    order = [(domain, condition) for domain in domains for condition in conditions if (domain, condition) in held]
    return {
        (domain, condition): f"{DOMAIN_NAMES.get(domain, domain)}, "
        + CONDITION_NAMES.get(condition, condition).removeprefix("first ")
        for domain, condition in order
    }


def _elsewhere(asked: Questions, view: View) -> Drawn:
    frame = _elsewhere_rows(asked, view)
    if frame.empty:
        return drawing.unmeasured(asked, view, f"{METRICS[view.metric].lower()} at K = {view.k}", PAGE.path)
    columns = _columns(frame, asked)
    figure = compare.condition_dots(frame, columns, _lines(asked, view), theme=view.theme)
    figure.update_yaxes(title=AXES[view.metric], rangemode="tozero")
    if view.metric != "nll":
        top = float((frame["value"] + frame["std"].fillna(0.0)).max())
        figure.update_yaxes(range=[0, min(1.02, 1.12 * top)], tickformat=".1~f")
    lost = [
        words
        for name, words in (("math100", "Math100"), ("t64", "64 tokens"), ("t32", "32 tokens"))
        if not any(name in key for key in columns)
    ]
    missing = f" Not measured yet: {', '.join(lost)} (python -m jobs evaluate)." if lost else ""
    kept = frame[(frame["kept"].notna()) & (frame["kept"] < 1)]
    least = (
        f" The least that is kept of the clean value is {100 * kept['kept'].min():.0f} %."
        if len(kept) and view.metric in ("accuracy", "macro_f1")
        else ""
    )
    traces = "one trace" if view.k == 1 else f"{view.k} traces"
    sentence = (
        f"{METRICS[view.metric]} at {traces}, one column a domain and condition; the probe was trained on whole "
        f"responses of Agent500.{least}{missing} n = {len(frame)} numbers."
    )
    return Drawn(figure, sentence)


def _depth_frames(asked: Questions, view: View) -> tuple[dict[str, pd.DataFrame], dict[str, int]]:
    depth = asked.ask(queries.proxies).set_index("proxy")["depth"]
    curves, modal = {}, {}
    for reader in _chosen(asked, view):
        curve = asked.ask(queries.layer_curve, reader, view.roster)
        if curve.empty:
            continue
        blocks = depth.get(asked.reader_row(reader)["proxy"])
        whole = float(blocks) if blocks is not None and pd.notna(blocks) else float(curve["layer"].max())
        curves[reader] = curve.assign(depth=curve["layer"] / whole)
        selected = asked.ask(queries.selected_layers, reader, view.roster)
        for layer in selected.loc[selected["outer_fold"].isna(), "layer"]:
            modal[reader] = int(layer)
    return curves, modal


def _depths(asked: Questions, view: View) -> Drawn:
    curves, modal = _depth_frames(asked, view)
    if not curves:
        return drawing.unmeasured(asked, view, "layer curves", PAGE.path)
    lines = _lines(asked, view)
    figure = compare.layer_curves(curves, modal, lines, theme=view.theme)
    fits = int(sum(curve["fits"].sum() for curve in curves.values()))
    missing = len(lines) - len(curves)
    absent = f" {missing} of the readers have none: published ones came without, and text readers have no blocks."
    sentence = (
        "Accuracy on the inner validation folds along the blocks of each proxy; the ring is the block that most outer "
        f"folds chose, the band is their range. n = {fits:,} fits.{absent if missing else ''}"
    )
    return Drawn(figure, sentence)


def _every_rows(asked: Questions, view: View) -> pd.DataFrame:
    everyone = list(asked.ask(queries.readers)["reader"])
    frame = asked.ask(queries.summaries, everyone, view.roster)
    here = (frame["benchmark"] == view.domain) & (frame["condition"] == view.condition) & (frame["k"] == view.k)
    frame = frame[here & (frame["reduction"] == "pooled")]
    wide = frame.pivot_table(index="reader", columns="metric", values="value").reindex(columns=["accuracy", "macro_f1"])
    readers = asked.ask(queries.readers).set_index("reader")
    wide = wide.join(readers[["method", "proxy_name", "view", "origin"]]).reset_index()
    wide["name"] = [asked.reader_name(reader) for reader in wide["reader"]]
    wide = wide.sort_values("accuracy", ascending=False, kind="stable").reset_index(drop=True)
    return wide[["name", "method", "proxy_name", "view", "origin", "accuracy", "macro_f1", "reader"]]


def _every(asked: Questions, view: View) -> tuple[Component, shell.Children]:
    frame = _every_rows(asked, view)
    if frame.empty:
        return drawing.absent(drawing.unmeasured(asked, view, f"results at K = {view.k}", PAGE.path))
    columns = [
        tables.words("name", "Reader", 180, 1),
        tables.words("method", "Method", 108),
        tables.words("view", "Reads", 66),
        tables.words("origin", "Origin", 96),
        tables.number("accuracy", "Accuracy", "rate", 86),
        tables.number("macro_f1", "Macro-F1", "rate", 86),
    ]
    traces = "one trace" if view.k == 1 else f"{view.k} traces"
    sentence = (
        f"Every reader at {traces}, {drawing.choice_words(view)}, "
        f"{CONDITION_NAMES.get(view.condition, view.condition)}; select a row to set it beside the others. "
        f"n = {len(frame)} readers."
    )
    return tables.grid("every-grid", frame, columns, selectable=True), sentence


# ---- what the figures say of themselves -----------------------------------------------------------------------------


def _curve_rows(asked: Questions, view: View) -> pd.DataFrame:
    stored = STORED[view.metric]
    frame = asked.ask(queries.summaries, _chosen(asked, view), view.roster, (stored,))
    here = (frame["benchmark"] == view.domain) & (frame["condition"] == view.condition)
    return frame[here & (frame["reduction"] == view.reduction)].reset_index(drop=True)


def _depth_rows(asked: Questions, view: View) -> pd.DataFrame:
    curves, _ = _depth_frames(asked, view)
    parts = [curve.assign(reader=reader) for reader, curve in curves.items()]
    columns = ["reader", "layer", "depth", "accuracy", "std", "low", "high", "fits"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _first(asked: Questions, view: View) -> str:
    return (_chosen(asked, view) or [""])[0]


def _told(table: Any, store: str, *fields: str) -> shell.Told:
    def made(asked: Questions, view: View) -> tuple[str, dict[str, object]]:
        known = {"roster": view.roster, "benchmark": view.domain, "condition": view.condition}
        return store, {name: known[name] for name in fields}

    return shell.Told(table, made, _first)


PAGE = shell.Page(
    name="compare",
    path="/compare",
    title="Compare",
    icon="compare",
    layout=layout,
    register=register,
    figures={
        "curves": _told(_curve_rows, "attribution_metrics", "roster", "benchmark", "condition"),
        "ends": _told(_end_rows, "attribution_metrics", "roster", "benchmark", "condition"),
        "elsewhere": _told(_elsewhere_rows, "attribution_metrics", "roster"),
        "depths": _told(_depth_rows, "layer_scores", "roster"),
        "every": _told(_every_rows, "attribution_metrics", "roster", "benchmark", "condition"),
    },
)

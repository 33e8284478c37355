"""What a reader keeps of a response, on the page Compare: blocks, parts, views, forms over time, and what varies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pandas as pd

from atlas import drawing, shell
from atlas.data import METHOD_NAMES, QueryCache
from atlas.drawing import FigureView, traces
from atlas.figures import compare, dots
from atlas.figures.dots import Level, Series
from atlas.pages import intervals
from atlas.pages.compare_chosen import PATH, accuracies, chosen, lines
from atlas.state import View
from backend.methods.registry import of_part
from backend.protocol import READER_PAPER
from backend.store import comparison_queries, queries

PARTS: Mapping[str, Series] = {
    READER_PAPER: Series("both (DC–AC)", "circle", 1, 0),
    "reader-ac": Series("drift (first AC)", "diamond", 0, 1),
    "reader-dc": Series("mean (DC)", "square", -1, 2),
}
BLOCKS: Mapping[str, Series] = {"dc-ac": PARTS[READER_PAPER], "ac": PARTS["reader-ac"], "dc": PARTS["reader-dc"]}
VIEWS: Mapping[str, Series] = {
    "ur": Series("prompt and response", "circle", 1, 0),
    "r": Series("response alone", "diamond", -1, 1),
}
FORMS = tuple(sorted(of_part("temporal"), key=lambda method: method.startswith("dct-")))
"""Forms over time in the order of the paper's table."""
FORM_NAMES = {**METHOD_NAMES, "dct-q2": "DC–AC (2 DCT modes)"}
CONTROLS = "python -m jobs evaluate --stage controls"
CLEAN = ("agent500", "clean")


def _home(cache: QueryCache, view: View) -> str:
    return view.roster if view.roster in cache.domains() else CLEAN[0]


def _held(cache: QueryCache, methods: Sequence[str]) -> pd.DataFrame:
    readers = cache.ask(queries.readers)
    return readers[readers["method"].isin(list(methods)) & readers["proxy"].notna()]


def _at_k(cache: QueryCache, view: View, methods: Sequence[str]) -> pd.DataFrame:
    """Clean accuracy at K of the readers of some methods, with method, proxy and view."""
    held = _held(cache, methods)
    frame = accuracies(cache, list(held["reader"]), view.roster, _home(cache, view), "clean", view.k)
    return frame.merge(held[["reader", "method", "proxy", "proxy_name", "view"]], on="reader")


def _names(frame: pd.DataFrame, lead: Sequence[str]) -> dict[str, str]:
    """Rows of a figure with the names of their proxies: measured here first, then by the leading series."""
    rank = {name: place for place, name in enumerate(lead)}
    ordered = frame.assign(
        away=frame["origin"] == "published", rank=frame["series"].map(rank).fillna(len(rank)), down=-frame["value"]
    ).sort_values(["away", "rank", "down"], kind="stable")
    return dict(ordered.drop_duplicates("row")[["row", "name"]].itertuples(index=False))


def part_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy of the mean, the drift and both, by proxy; prompt and response are read."""
    frame = _at_k(cache, view, list(PARTS))
    frame = frame[frame["view"] == "ur"].assign(series=frame["method"], row=frame["proxy"], name=frame["proxy_name"])
    several = frame.groupby("row")["series"].transform("nunique") > 1
    return frame[several].reset_index(drop=True)


def parts(cache: QueryCache, view: View) -> FigureView:
    """What the two halves of a fingerprint bring."""
    frame = part_rows(cache, view)
    if frame.empty:
        return _missing(cache, view, "parts of a fingerprint", f"{CONTROLS} --method components --roster {view.roster}")
    names = _names(frame, list(PARTS))
    axis = f"Accuracy at {traces(view.k)}"
    figure = dots.dot_rows(frame, names, PARTS, theme=view.theme, axis=axis, usual=list(PARTS), unit="groups")
    sentence = [
        "The mean of the proxy's states over a response (",
        shell.term("DC", "Mode 0 of a cosine transform over the response: the mean state"),
        "), how they drift from its start to its end (",
        shell.term("first AC", "Mode 1 of a cosine transform over the response: its smoothest change"),
        f"), and both, each with a probe of its own. {_told(frame)}",
    ]
    return FigureView(figure, sentence)


def view_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy with and without the prompt, by proxy."""
    frame = _at_k(cache, view, [READER_PAPER])
    frame = frame[frame["view"].isin(list(VIEWS))]
    frame = frame.assign(series=frame["view"], row=frame["proxy"], name=frame["proxy_name"])
    several = frame.groupby("row")["series"].transform("nunique") > 1
    return frame[several].reset_index(drop=True)


def views(cache: QueryCache, view: View) -> FigureView:
    """Does it matter whether the proxy sees the prompt?"""
    frame = view_rows(cache, view)
    if frame.empty:
        command = f"python -m jobs evaluate --view ur,r --roster {view.roster}"
        return _missing(cache, view, "reader that was measured with and without the prompt", command)
    names = _names(frame, list(VIEWS))
    axis = f"Accuracy at {traces(view.k)}"
    figure = dots.dot_rows(frame, names, VIEWS, theme=view.theme, axis=axis, usual=list(VIEWS), unit="groups")
    return FigureView(figure, f"The same proxy with the prompt before the response, and without it. {_told(frame)}")


def form_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy of the eleven forms over time: proxies measured here, and the mean of the published ones."""
    frame = _at_k(cache, view, FORMS)
    frame = frame[frame["view"].eq("ur")]
    here = frame[frame["origin"] == "measured"].assign(series=lambda own: own["proxy"], proxies=1)
    away = frame[frame["origin"] == "published"]
    means = away.groupby("method", sort=False).agg(
        value=("value", "mean"), n=("n", "sum"), proxies=("proxy", "nunique"), least=("value", "min"),
        most=("value", "max"),
    )  # fmt: skip
    published = means.reset_index().assign(series="published", origin="published", proxy_name="published")
    out = pd.concat([here, published], ignore_index=True)
    out = out.assign(row=out["method"], name=[FORM_NAMES.get(method, method) for method in out["method"]])
    return out.sort_values("row", key=lambda rows: rows.map({name: at for at, name in enumerate(FORMS)}), kind="stable")


def forms_told(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
    """Rows behind the forms: those of every proxy that the means are over."""
    readers = tuple(_at_k(cache, view, FORMS)["reader"])
    return "attribution_metrics", {"reader": readers, "roster": view.roster, "metric": "accuracy"}


def forms(cache: QueryCache, view: View) -> FigureView:
    """Forms over time."""
    frame = form_rows(cache, view)
    if frame.empty:
        return _missing(cache, view, "forms over time", f"{CONTROLS} --method temporal --roster {view.roster}")
    here = [proxy for proxy in dict.fromkeys(frame["series"]) if proxy != "published"]
    proxies = frame.set_index("series")["proxy_name"].to_dict()
    count = (
        int(frame.loc[frame["series"] == "published", "proxies"].max()) if "published" in set(frame["series"]) else 0
    )
    series = {
        proxy: Series(str(proxies[proxy]), "circle", 1 - 2 * place / max(len(here), 1), 2 * place % 6)
        for place, proxy in enumerate(here)
    }
    if count:
        series["published"] = Series(f"mean of {count} larger proxies", "square", -1, 2)
    names = dict(frame.drop_duplicates("row")[["row", "name"]].itertuples(index=False))
    axis = f"Accuracy at {traces(view.k)}"
    figure = dots.dot_rows(frame, names, series, theme=view.theme, axis=axis, usual=list(series), unit="groups")
    sentence = [
        "What is kept of the states of a response, all else alike: a mean, the last token, a ",
        shell.term("maximum", "Of every coordinate over the tokens of the response"),
        ", two to eight modes of a ",
        shell.term("cosine transform", "DCT-II along the response: mode 0 is the mean, mode 1 its smoothest change"),
        f", or a learned mixture of them. {_told(frame)}",
    ]
    return FigureView(figure, sentence)


def variance_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Source-to-prompt variance by reader and block."""
    frame = cache.ask(comparison_queries.variance_ratios, view.roster)
    names = [
        f"{name} + prompt" if reads == "ur" else str(name)
        for name, reads in zip(frame["proxy_name"], frame["view"], strict=True)
    ]
    return frame.assign(series=frame["block"], row=frame["reader"], name=names, value=frame["ratio"])


def variance(cache: QueryCache, view: View) -> FigureView:
    """Do fingerprints vary with the source or with the prompt?"""
    frame = variance_rows(cache, view)
    if frame.empty:
        return _missing(cache, view, "variance", f"{CONTROLS} --method variance --view ur,r --roster {view.roster}")
    names = _names(frame, list(BLOCKS))
    figure = dots.dot_rows(
        frame.assign(low=float("nan"), high=float("nan")), names, BLOCKS, theme=view.theme,
        axis="Variance between sources, as a multiple of the variance between prompts", usual=list(BLOCKS),
        level=Level(1.0, "as much as prompts"), top=None, unit="folds",
    )  # fmt: skip
    sentence = (
        "How much a fingerprint changes with the source that answers, beside how much it changes with the prompt, on "
        "held-out prompts; the proxy read the response alone or, where it says so, the prompt too. Bars: one standard "
        "deviation over the folds. Right of the dotted line the source counts for more. Filled: measured here; hollow: "
        f"published. n = {frame['row'].nunique()} readers, {int(frame['n'].max())} folds each."
    )
    return FigureView(figure, sentence)


def depth_frames(cache: QueryCache, view: View) -> tuple[dict[str, pd.DataFrame], dict[str, int]]:
    """Accuracy of every block of the chosen readers' proxies, and the block that most folds chose."""
    depth = cache.ask(queries.proxies).set_index("proxy")["depth"]
    found, modal = {}, {}
    for reader in chosen(cache, view):
        curve = cache.ask(queries.layer_curve, reader, view.roster)
        if curve.empty:
            continue
        blocks = depth.get(cache.reader_row(reader)["proxy"])
        whole = float(blocks) if blocks is not None and pd.notna(blocks) else float(curve["layer"].max())
        found[reader] = curve.assign(depth=curve["layer"] / whole)
        selected = cache.ask(queries.selected_layers, reader, view.roster)
        for layer in selected.loc[selected["outer_fold"].isna(), "layer"]:
            modal[reader] = int(layer)
    return found, modal


def depths(cache: QueryCache, view: View) -> FigureView:
    """Where in the proxy the knowledge sits."""
    found, modal = depth_frames(cache, view)
    if not found:
        return drawing.unmeasured(cache, view, "layer curves", PATH)
    drawn = lines(cache, view)
    figure = compare.layer_curves(found, modal, drawn, theme=view.theme)
    fits = int(sum(curve["fits"].sum() for curve in found.values()))
    missing = len(drawn) - len(found)
    absent = (
        f" {missing} of the readers {'has' if missing == 1 else 'have'} none: there is no scan of words, nor of "
        "several blocks read at once, and not every scan was published."
    )
    sentence = (
        "Accuracy on the inner validation folds along the blocks of each proxy; the ring is the block that most outer "
        f"folds chose, the band is their range. n = {fits:,} fits.{absent if missing else ''}"
    )
    return FigureView(figure, sentence)


def depth_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Rows of the layer curves."""
    found, _ = depth_frames(cache, view)
    held = [curve.assign(reader=reader) for reader, curve in found.items()]
    columns = ["reader", "layer", "depth", "accuracy", "std", "low", "high", "fits"]
    return pd.concat(held, ignore_index=True)[columns] if held else pd.DataFrame(columns=columns)


def _told(frame: pd.DataFrame) -> str:
    ranged = bool(frame["low"].notna().any()) if "low" in frame else False
    count = frame["row"].nunique()
    bars = f"Thick bars are 95 % intervals, thin ones {intervals.FOLDS}" if ranged else f"Bars: {intervals.FOLDS}"
    return (
        f"{bars}. Filled: measured here; hollow: published. n = {int(frame['n'].max()):,} groups, "
        f"{count} {'line' if count == 1 else 'lines'}."
    )


def _missing(cache: QueryCache, view: View, what: str, command: str) -> FigureView:
    ways = [("Show the 100-way roster", f"{PATH}?{dataclasses.replace(view, roster='100-way').query()}")]
    near = ways if view.roster != "100-way" and "100-way" in set(cache.ask(queries.rosters)["roster"]) else []
    return drawing.nothing(
        view, f"There are no numbers of {what} for {view.roster}", f"Measure it with: {command}", near
    )

"""Where they disagree: the paper and its files, simple methods and the method, the paper's claims and our numbers.

Nothing here is a verdict by hand: every line is a comparison of two stored numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backend.protocol import READER_PAPER
from backend.reference.layout import Cell, attribution, relationship
from backend.reference.markdown import header, line
from backend.reference.paper import DIFFERS
from backend.reference.results_book import Book, Number, as_printed, like
from backend.reference.results_simple import STATIC, cited, pooled, purity, retrieval, simple_methods
from backend.reference.rows import ROSTER

ROUNDING = 1e-9  # Shares of a few hundred groups that differ by a margin do so up to the last digits.
PAIR = {"accuracy": "Acc.", "precision": "Precision", "recall": "Recall", "f1": "F1", "auc": "AUC"}


@dataclass(frozen=True)
class Claim:
    """A direction that the paper claims: left above right, for every reader of a view.

    sentence, place : The claim, and where the paper makes it.
    view : Of both sides, unless the right one has ``other_view``.
    factor : What the right side is multiplied by.
    margin : For claims of a tie: how far the two may be apart, whichever is ahead. 0 for none.
    other_view : View of the right side where it is another one; empty where it is not.
    """

    sentence: str
    place: str
    left: tuple[str, Cell]
    right: tuple[str, Cell]
    view: str = "ur"
    factor: float = 1.0
    margin: float = 0.0
    other_view: str = ""


def _variance(block: str) -> Cell:
    return Cell("variance_ratios", "ratio", (("roster", ROSTER), ("block", block), ("fold", None)))


CLAIMS = (
    *(
        Claim(
            f"K = {more} beats K = {less}",
            "tab:agent500_allk",
            (READER_PAPER, pooled(more)),
            (READER_PAPER, pooled(less)),
        )
        for less, more in ((1, 5), (5, 10), (10, 20), (20, 50), (50, 100))
    ),
    Claim(
        "DC beats first AC at K = 1", "tab:representation_ablation", ("reader-dc", pooled(1)), ("reader-ac", pooled(1))
    ),
    Claim(
        "DC–AC is within one point of DC at K = 100",
        "tab:representation_ablation",
        (READER_PAPER, pooled(100)),
        ("reader-dc", pooled(100)),
        margin=0.01,
    ),
    Claim(
        "first AC beats DC on pairs",
        "tab:component_static_detail",
        (READER_PAPER, relationship("pair", "accuracy", readout="ac")),
        (READER_PAPER, relationship("pair", "accuracy", readout="dc")),
    ),
    Claim(
        "first AC beats DC–AC where families are held out",
        "Appendix, Transfer to Unseen Models and Families",
        (READER_PAPER, relationship("family", "accuracy", readout="ac")),
        (READER_PAPER, relationship("family", "accuracy")),
    ),
    *(
        Claim(
            f"two modes beat {name} at K = 1",
            "tab:matched_temporal_controls",
            ("dct-q2", pooled(1)),
            (method, pooled(1)),
        )
        for name, method in (
            ("four", "dct-q4"),
            ("eight", "dct-q8"),
            ("the final state", "temporal-final"),
            ("the maximum", "temporal-max"),
        )
    ),
    Claim(
        "two modes are within one point of the mean at K = 1",
        "tab:matched_temporal_controls",
        ("dct-q2", pooled(1)),
        ("temporal-mean", pooled(1)),
        margin=0.01,
    ),
    Claim(
        "two modes beat eight at K = 100",
        "tab:matched_temporal_controls",
        ("dct-q2", pooled(100)),
        ("dct-q8", pooled(100)),
    ),
    Claim(
        "the response alone beats prompt and response at K = 1",
        "Proxy input",
        (READER_PAPER, pooled(1)),
        (READER_PAPER, pooled(1)),
        view="r",
        other_view="ur",
    ),
    Claim(
        "prompt and response beat the response alone at K = 100",
        "Proxy input",
        (READER_PAPER, pooled(100)),
        (READER_PAPER, pooled(100)),
        other_view="r",
    ),
    *(
        Claim(
            f"{words} at K = {k}", "tab:aggregation_design_pilot", (left, pooled(k)), (right, pooled(k)), margin=margin
        )
        for words, left, right, margin in (
            ("64 uniform positions beat 16", "positions-64", "positions-16", 0.0),
            ("every fourth token is within one point of 32 positions", "positions-stride4", "positions-32", 0.01),
            ("equal weights beat Fisher weights", "positions-16", "positions-fisher", 0.0),
            ("25 % Fisher weights are within one point of equal ones", "positions-fisher25", "positions-16", 0.01),
        )
        for k in (1, 50, 100)
    ),
    Claim(
        "a supervised projection to 64 dimensions beats the full fingerprint at K = 100",
        "Appendix, Projection Pilot",
        ("centroid-svd", pooled(100)),
        (READER_PAPER, pooled(100)),
    ),
    Claim(
        "two modes are within one point of two learned mixtures at K = 1",
        "tab:matched_temporal_controls",
        ("dct-q2", pooled(1)),
        ("mixture-2", pooled(1)),
        margin=0.01,
    ),
    Claim(
        "every error at K = 100 stays in the family",
        "Where do the remaining errors concentrate?",
        (READER_PAPER, attribution("errors_within_family", 100, "pooled")),
        (READER_PAPER, attribution("errors", 100, "pooled")),
        margin=0.5,
    ),
    Claim(
        "64 tokens beat 32",
        "tab:stress_tests_full",
        (READER_PAPER, pooled(100, condition="t64-global")),
        (READER_PAPER, pooled(100, condition="t32-global")),
    ),
    Claim(
        "clean traces beat Math100",
        "tab:stress_tests_full",
        (READER_PAPER, attribution("accuracy", 100, "fold")),
        (READER_PAPER, attribution("accuracy", 100, "fold", benchmark="math100")),
    ),
    Claim(
        "family purity@5 is more than twice chance",
        "tab:signature_family_purity",
        (READER_PAPER, purity("purity")),
        (READER_PAPER, purity("expectation")),
        view="r",
        factor=2.0,
    ),
    Claim(
        "centring the domains raises Top-1",
        "tab:cross_domain_signature_retrieval",
        (READER_PAPER, retrieval("centred")),
        (READER_PAPER, retrieval("raw")),
        view="r",
    ),
    Claim(
        "first AC varies more with the source, against the prompt, than DC",
        "Appendix, Source-to-Prompt Variance",
        (READER_PAPER, _variance("ac")),
        (READER_PAPER, _variance("dc")),
    ),
)


def findings(book: Book) -> Iterator[str]:
    """The section, line by line."""
    yield "## Where they disagree"
    yield ""
    yield "Every line compares two stored numbers; the superscripts are their builds."
    yield ""
    yield from _files(book)
    yield from simple_methods(book)
    yield from _static(book)
    yield from _claims(book)


def _files(book: Book) -> Iterator[str]:
    kept = [(p, book.kept[p.place, p.row, p.column]) for p in book.paper if (p.place, p.row, p.column) in book.kept]
    yield "### The paper and its released files"
    yield ""
    if not kept:
        yield "Published numbers are not imported: `python -m jobs reference`."
        yield ""
        return
    held = [(p, row) for p, row in kept if row["file_value"] is not None]
    other = [(p, row) for p, row in held if not p.agrees(row["file_value"])]
    noted = [(p, row) for p, row in held if p.agrees(row["file_value"]) and " says " in (row["note"] or "")]
    yield (
        f"Of {len(kept)} printed numbers {len(held)} have a counterpart in the files, and {len(held) - len(other)} of "
        f"these agree as printed. {len(kept) - len(held)} stand in no file."
    )
    yield ""
    if other:
        yield from header(["place", "row", "column", "paper", "files"])
        for p, row in other:
            value = like(row["file_value"], p.text) + book.cite([row["build_id"]])
            yield line([f"`{p.place}`", p.row, p.column, as_printed(p.text), value])
        yield ""
    if noted:
        yield "Two files of the release hold the same quantity, and the paper prints one of them:"
        yield ""
        yield from header(["place", "row", "column", "paper", "the other file"])
        for p, row in noted:
            note = (row["note"] or "").replace(f"{DIFFERS}; ", "") + book.cite([row["build_id"]])
            yield line([f"`{p.place}`", p.row, p.column, as_printed(p.text), note])
        yield ""


def _static(book: Book) -> Iterator[str]:
    yield "### Numbers that need no proxy, ours against the paper's"
    yield ""
    lines, agreeing = [], 0
    titles = {"mpt": "MPT", "phylolm": "PhyloLM"}
    for reader, readout in STATIC.items():
        for place, protocol, prefix in (
            ("tab:bench_a_full_std", "pair", ""),
            ("tab:bench_a_disjoint", "model", "Model "),
            ("tab:bench_a_disjoint", "family", "Family "),
        ):
            for metric, column in PAIR.items():
                number = book.number(relationship(protocol, metric, readout=readout), reader)
                asked = (place, titles[reader], prefix + column)
                printed = next((p for p in book.paper if (p.place, p.row, p.column) == asked), None)
                if number is None or printed is None:
                    continue
                if printed.agrees(number.value):
                    agreeing += 1
                else:
                    cells = [titles[reader], f"{prefix}{column}", as_printed(printed.text), cited(book, number)]
                    lines.append(line([f"`{place}`", *cells]))
    if not agreeing and not lines:
        yield "MPT and PhyloLM are not measured: `python -m jobs relate --method mpt,phylolm`."
    else:
        yield f"MPT and PhyloLM: {agreeing} of {agreeing + len(lines)} numbers agree as printed."
    if lines:
        yield ""
        yield from header(["place", "method", "column", "paper", "measured"])
        yield from lines
    yield ""


def _claims(book: Book) -> Iterator[str]:
    yield "### The paper's directions, reader by reader"
    yield ""
    yield "*published*: how many of the release's readers show it. *measured*: left and right number of each of ours."
    yield ""
    yield from header(["claim", "place", "published", "measured", "holds here"])
    for claim in CLAIMS:
        known = {"published": list[tuple[str, Number, Number]](), "measured": list[tuple[str, Number, Number]]()}
        for row in book.readers:
            if row["method"] != READER_PAPER or row["view"] != claim.view or row["proxy"] is None:
                continue
            right_view = claim.other_view or claim.view
            sides = [
                book.number(cell, f"{method}/{row['proxy']}/{view}")
                for (method, cell), view in ((claim.left, claim.view), (claim.right, right_view))
            ]
            if sides[0] is not None and sides[1] is not None:
                known[row["origin"]].append((row["proxy"], sides[0], sides[1]))
        held = [holds(claim, left, right) for _, left, right in known["published"]]
        ours = [(proxy, left, right, holds(claim, left, right)) for proxy, left, right in known["measured"]]
        shown = "; ".join(f"{p}: {cited(book, left)} / {cited(book, right)}" for p, left, right, _ in ours)
        verdict = {True: "yes", False: "**no**"}
        if ours:
            said = ", ".join(verdict[holds] for *_, holds in ours)
        else:
            shown, said = "not measured", ""
        counted = f"{sum(held)} of {len(held)}" if held else "in no file"
        yield line([claim.sentence, claim.place if " " in claim.place else f"`{claim.place}`", counted, shown, said])
    yield ""


def holds(claim: Claim, left: Number, right: Number) -> bool:
    """Whether two numbers show what is claimed of them."""
    if claim.margin:
        return abs(left.value - right.value) < claim.margin + ROUNDING
    return left.value > claim.factor * right.value

"""Every table of the paper, cell by cell, as questions to the store (see :mod:`backend.reference.layout`)."""

from __future__ import annotations

from collections.abc import Mapping

from backend.protocol import READER_PAPER
from backend.reference.entries import (
    ALLK,
    BASELINES,
    CLEAN,
    COMPONENT_ROWS,
    FULL_BASELINES,
    LONG,
    MAIN_READERS,
    MAIN_UR,
    MAPPED,
    OURS,
    PURITY,
    STATIC,
    STATIC_BASELINES,
    STATIC_READERS,
    STRESS_COLUMNS,
    STRESSED_PARTS,
    TEMPORAL_ROWS,
)
from backend.reference.layout import Cell, Row, Table, attribution, cost, end_points, reader, relationship
from backend.reference.rows import MAIN, ROSTER

BUDGETS = (1, 5, 10, 20, 50, 100)
EVALUATE = "python -m jobs evaluate --roster 100-way --stage"
RELATE = "python -m jobs relate"
GROUPED = (
    "Groups of shortened responses are drawn from all folds at once, as in the release; the readouts' tables below "
    "draw them inside the folds."
)
CANDIDATES: Mapping[str, tuple[str, str]] = {
    "R1-Distill-Qwen-32B / QwQ-32B": ("ds_distill_qwen_32b", "qwq_32b"),
    "Claude-Sonnet-4 / DeepSeek-V4-Pro": ("claude_sonnet4", "deepseek_v4_pro"),
    "Gemma-4-31B / Gemini-3.1-Flash-Lite": ("gemma4_31b", "gemini31_flash_lite"),
    "MiniMax-M3 / Claude-Sonnet-4.6": ("minimax_m3", "claude_sonnet46"),
}
"""Candidate pairs of sources, as the paper prints them."""
MAP = "python -m jobs map --roster 100-way --view r"


def _correlation(subject: str, statistic: str, k: int, column: str) -> Cell:
    where = {"subject": subject, "reference": f"accuracy@{k}/ur", "statistic": statistic}
    return Cell("correlations", column, tuple(where.items()))


def _pairs() -> tuple[Row, ...]:
    """Rows of the component table: its readouts, averaged over the main proxies."""
    readouts = {
        "DC cosine": "dc",
        "First-AC cosine": "ac",
        "DC–AC score readout": "dc-ac",
        "GRP-128 first-AC cosine": "grp128",
    }
    return tuple(
        Row(name, ("reader-mean4/ur",), OURS, where={"readout": f"{readout}@best"}, ours_where={"readout": readout})
        for name, readout in readouts.items()
    )


def _components() -> tuple[Row, ...]:
    rows = []
    for name, (method, readout) in COMPONENT_ROWS.items():
        everyone = tuple(reader(proxy, method=method) for proxy in MAIN)
        rows.append(Row(name, everyone, f"{method}/{{proxy}}/ur", only=("Acc.@1", "Acc.@100")))
        at, ours = {"readout": f"{readout}@best"}, {"readout": readout}
        rows.append(Row(name, MAIN_UR, OURS, where=at, ours_where=ours, only=("Pair Acc.", "Pair AUC")))
    for name, view in (("Response only (r)", "r"), ("Prompt–response (ur)", "ur")):
        everyone = tuple(reader(proxy, view) for proxy in MAIN)
        rows.append(Row(name, everyone, f"{READER_PAPER}/{{proxy}}/{view}", only=tuple(end_points("pooled"))))
    return tuple(rows)


def _domains() -> dict[str, Cell]:
    metrics = {
        "Median cosine same": "cosine_same_median",
        "Median cosine other": "cosine_other_median",
        "Top-1": "top1",
        "Top-5": "top5",
        "MRR": "mrr",
        "Wins other": "wins_other",
    }
    about = {"roster": ROSTER, "query_domain": "agent500", "gallery_domain": "math100", "source": None}
    return {name: Cell("cross_domain", "value", tuple({**about, "metric": m}.items())) for name, m in metrics.items()}


TABLES = (
    Table(
        "tab:agent500_main",
        "Agent500, 100-way attribution (mean over folds)",
        end_points("fold"),
        (*BASELINES, *MAIN_READERS),
        False,
        f"{EVALUATE} attribution,baselines",
    ),
    Table(
        "tab:agent500_full_std",
        "Attribution with its spread over folds, and cost",
        end_points("fold", spread=True)
        | {
            "Trainable params": cost("trainable_parameters"),
            "Fit time (s)": cost("fit_seconds"),
            "Audit-path params": cost("audit_parameters"),
            "Latency (s)": cost("latency_ms", 1e-3),
        },
        (*FULL_BASELINES, *(Row(f"READER / {name}", (reader(proxy),), OURS) for proxy, name in LONG.items())),
        False,
        f"{EVALUATE} attribution,baselines,cost",
    ),
    Table(
        "tab:agent500_allk",
        "Agent500 accuracy at every budget (pooled over folds)",
        {f"K={k}": attribution("accuracy", k, "pooled") for k in BUDGETS},
        tuple(Row(name, (reader(proxy),), OURS) for proxy, name in ALLK.items()),
        False,
        f"{EVALUATE} attribution",
    ),
    Table(
        "tab:capability_budget_correlations",
        "Capability of the proxy against its accuracy",
        {},
        tuple(
            Row(f"K={k}", ("",), "*", only=(name,), cell=_correlation(subject, statistic, k, column))
            for k in (1, 100)
            for name, subject, statistic, column in (
                ("MMLU-Pro r", "MMLU-Pro", "pearson", "value"),
                ("MMLU-Pro r p", "MMLU-Pro", "pearson", "p_value"),
                ("GPQA-Diamond r", "GPQA-Diamond", "pearson", "value"),
                ("GPQA-Diamond r p", "GPQA-Diamond", "pearson", "p_value"),
                ("Shared rho", "MMLU-Pro", "spearman", "value"),
                ("Shared rho p", "MMLU-Pro", "spearman", "p_value"),
            )
        ),
        True,
        f"{EVALUATE} statistics",
    ),
    Table(
        "tab:stress_tests",
        "Stress at K = 100, published by Qwen3.5-9B",
        {
            "Acc.": attribution("accuracy", 100, "fold"),
            "M-F1": attribution("macro_f1", 100, "fold"),
            "Retained": Cell("attribution_metrics", "value", CLEAN.where, CLEAN),
        },
        tuple(
            Row(name, (reader("qwen35_9b"),), OURS, where=where)
            for name, where in (
                ("Agent500 (clean)", {}),
                ("Agent500 (64 tokens)", {"condition": "t64-global", "reduction": "pooled"}),
                ("Agent500 (32 tokens)", {"condition": "t32-global", "reduction": "pooled"}),
                ("Math100", {"benchmark": "math100"}),
            )
        ),
        True,
        f"{EVALUATE} stress",
        note=GROUPED,
    ),
    Table(
        "tab:stress_tests_full",
        "Stress at K = 100, all methods",
        STRESS_COLUMNS,
        (*BASELINES, *MAIN_READERS, *STRESSED_PARTS),
        False,
        f"{EVALUATE} stress",
        note=GROUPED,
    ),
    Table(
        "tab:bench_a_main",
        "Relationships on Bench-A (20 pair splits)",
        {name: relationship("pair", metric) for name, metric in STATIC.items()},
        (*STATIC_BASELINES, *STATIC_READERS),
        False,
        RELATE,
    ),
    Table(
        "tab:bench_a_full_std",
        "Relationships on Bench-A with their spread over splits",
        {
            f"{name}{ending}": relationship("pair", metric, column)
            for name, metric in STATIC.items()
            for ending, column in (("", "value"), (" std", "std"))
        },
        (*STATIC_BASELINES, *STATIC_READERS),
        False,
        RELATE,
    ),
    Table(
        "tab:bench_a_disjoint",
        "Relationships where models, or families, are held out",
        {
            f"{title} {name}{ending}": relationship(protocol, metric, column)
            for title, protocol in (("Model", "model"), ("Family", "family"))
            for name, metric in (("Acc.", "accuracy"), ("F1", "f1"), ("AUC", "auc"))
            for ending, column in (("", "value"), (" low", "low"), (" high", "high"))
            if not ending or name == "Acc."
        },
        (*STATIC_BASELINES, *(Row(row.name, row.published, OURS) for row in STATIC_READERS)),
        False,
        RELATE,
    ),
    Table(
        "tab:representation_ablation",
        "Spectral components and input views, mean of the four main proxies",
        end_points("pooled") | {"Pair Acc.": relationship("pair", "accuracy"), "Pair AUC": relationship("pair", "auc")},
        _components(),
        True,
        f"{EVALUATE} attribution,controls --view ur,r",
    ),
    Table(
        "tab:component_static_detail",
        "Spectral components on the pair task, mean of the four main proxies",
        {name: relationship("pair", metric) for name, metric in STATIC.items() if name in ("Acc.", "F1", "AUC")},
        _pairs(),
        True,
        RELATE,
    ),
    Table(
        "tab:matched_temporal_controls",
        "Temporal representations, mean of the four main proxies",
        end_points("pooled"),
        tuple(
            Row(name, tuple(reader(proxy, method=method) for proxy in MAIN), f"{method}/{{proxy}}/ur")
            for name, method in TEMPORAL_ROWS.items()
        ),
        True,
        f"{EVALUATE} controls --method temporal",
    ),
    Table(
        "tab:aggregation_design_pilot",
        "Position pooling, change of accuracy in percentage points",
        {f"K={k}": attribution("accuracy", k, "pooled") for k in (1, 50, 100)},
        tuple(
            Row(name, (), f"positions-{better}/{{proxy}}/ur", f"positions-{base}/{{proxy}}/ur")
            for name, better, base in (
                ("Uniform: M64 vs. M16", "64", "16"),
                ("Stride-4 vs. uniform M32", "stride4", "32"),
                ("Fisher vs. uniform (M16)", "fisher", "16"),
                ("25% Fisher vs. uniform (M16)", "fisher25", "16"),
            )
        ),
        True,
        f"{EVALUATE} controls --method positions",
    ),
    Table(
        "tab:signature_family_purity",
        "Same-family neighbours in the original space",
        {
            f"Top-{k}": Cell("family_purity", "purity", (("roster", ROSTER), ("domain", "agent500"), ("k", k)))
            for k in (1, 3, 5, 10)
        },
        (*(Row(name, (reader(proxy, "r"),), f"{READER_PAPER}/{{proxy}}/r") for proxy, name in PURITY.items()), *MAPPED),
        False,
        MAP,
    ),
    Table(
        "tab:cross_domain_signature_retrieval",
        "Agent500 signatures that look for their source in Math100, published by Qwen3.5-9B",
        _domains(),
        tuple(
            Row(name, (reader("qwen35_9b", "r"),), f"{READER_PAPER}/{{proxy}}/r", where={"variant": variant})
            for name, variant in (("Raw", "raw"), ("Centered", "centred"))
        ),
        True,
        f"{MAP} --benchmark agent500,math100",
    ),
    Table(
        "fig:source_prompt_input_full",
        "Source-to-prompt variance ratio (a figure in the paper: numbers of its files)",
        {
            name: Cell("variance_ratios", "ratio", (("roster", ROSTER), ("block", block), ("fold", None)))
            for name, block in (("DC", "dc"), ("First AC", "ac"), ("DC–AC", "dc-ac"))
        },
        tuple(
            Row(f"{name} · {view}", (reader(proxy, view),), f"{READER_PAPER}/{{proxy}}/{view}")
            for view in ("ur", "r")
            for proxy, name in LONG.items()
        ),
        False,
        f"{EVALUATE} controls --view ur,r --method variance",
    ),
    Table(
        "tab:cross_provider_neighborhoods",
        "Candidate pairs: main proxies that see both among ten nearest, median mutual rank",
        {},
        (),
        True,
        MAP,
    ),
)

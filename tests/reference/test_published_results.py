"""Every family of published results against the paper's tables, on the real release."""

import json

import numpy as np
import pandas as pd
import pytest

from backend.reference import UNIMPORTED, UNREAD, Results, collect
from backend.reference.paper import DIFFERS, Cell, SummaryRows, attribution, printed, relationship

pytestmark = pytest.mark.release
LLAMA, GEMMA, MINISTRAL, QWEN = MAIN = ("llama31_8b_instruct", "gemma4_12b", "ministral3_8b", "qwen35_9b")


@pytest.fixture(scope="module")
def results(release):
    return Results(release.root)


@pytest.fixture(scope="module")
def collected(results):
    return collect(results)


@pytest.fixture(scope="module")
def held(collected):
    return SummaryRows({table: list(rows.values()) for table, rows in collected.rows.items()})


def at(table, column="value", **where):
    return Cell(table, column, tuple(where.items()))


def ids(method, view="ur", proxies=MAIN):
    return tuple(f"{method}/{proxy}/{view}" for proxy in proxies)


def math(metric, column="value"):
    return attribution(metric, 100, "fold", column, benchmark="math100")


def purity(k, column="purity"):
    return at("family_purity", column, roster="100-way", domain="agent500", k=k)


def retrieval(variant, metric):
    return at("cross_domain", variant=variant, metric=metric, source=None)


def cost(measure):
    return at("costs", measure=measure)


ACC, F1 = "accuracy", "macro_f1"
# Typed from the paper's tables by hand, not from the transcript: (question, readers, printed value).
PRINTED = [
    # tab:stress_tests_full, Math100
    (math(ACC), ids("reader-paper", proxies=[LLAMA]), 0.262),
    (math(ACC, "std"), ids("reader-paper", proxies=[LLAMA]), 0.022),
    (math(ACC), ids("reader-paper", proxies=[GEMMA]), 0.204),
    (math(F1), ids("reader-paper", proxies=[MINISTRAL]), 0.191),
    (math(ACC), ids("reader-paper", proxies=[QWEN]), 0.330),
    (math(F1), ids("reader-paper", proxies=[QWEN]), 0.242),
    (math(ACC), ("published-llmmap",), 0.128),
    (math(ACC), ("published-deberta",), 0.232),
    (math(ACC, "std"), ("published-deberta",), 0.018),
    (math(ACC), ("dna/mpnet/r",), 0.046),
    (math(ACC), ("dna/bge-large/r",), 0.102),
    (math(F1), ("dna/qwen3-embedding-8b/r",), 0.077),
    (math(ACC), ("published-random",), 0.010),
    # tab:agent500_full_std, baselines
    (attribution(ACC, 1, "fold"), ("published-llmmap",), 0.212),
    (attribution(F1, 100, "fold"), ("published-llmmap",), 0.423),
    (attribution(ACC, 1, "fold"), ("published-deberta",), 0.330),
    (attribution(F1, 1, "fold"), ("published-deberta",), 0.295),
    (attribution(ACC, 100, "fold", "std"), ("published-deberta",), 0.029),
    (attribution(ACC, 100, "fold"), ("dna/bge-large/r",), 0.790),
    (attribution(F1, 100, "fold"), ("dna/mpnet/r",), 0.644),
    (attribution(ACC, 1, "fold"), ("dna-finetuned/qwen3-embedding-8b/r",), 0.554),
    (attribution(F1, 100, "fold", "std"), ("dna-finetuned/qwen3-embedding-8b/r",), 0.022),
    (attribution(ACC, 100, "fold"), ("dna-finetuned/bge-large/r",), 0.458),
    (attribution(ACC, 1, "fold"), ("dna-finetuned/mpnet/r",), 0.230),
    # tab:bench_a_full_std
    (relationship("pair", "accuracy", readout="match"), ("published-mpt",), 0.742),
    (relationship("pair", "precision", "std", readout="match"), ("published-mpt",), 0.082),
    (relationship("pair", "auc", readout="match"), ("published-phylolm",), 0.793),
    (relationship("pair", "accuracy", readout="distance"), ("dna/qwen3-embedding-8b/r",), 0.704),
    (relationship("pair", "recall", readout="distance"), ("dna/bge-large/r",), 0.646),
    (relationship("pair", "accuracy", readout="dc-ac@best"), ids("reader-paper", proxies=[LLAMA]), 0.781),
    (relationship("pair", "auc", readout="dc-ac@best"), ids("reader-paper", proxies=[GEMMA]), 0.768),
    (relationship("pair", "f1", readout="dc-ac"), ids("reader-paper", proxies=[QWEN]), 0.714),
    # tab:bench_a_disjoint
    (relationship("model", "accuracy"), ids("reader-paper", proxies=[LLAMA]), 0.756),
    (relationship("model", "accuracy", "low"), ids("reader-paper", proxies=[LLAMA]), 0.689),
    (relationship("family", "accuracy"), ids("reader-paper", proxies=[QWEN]), 0.732),
    (relationship("family", "accuracy", "high"), ids("reader-paper", proxies=[QWEN]), 0.771),
    (relationship("family", "auc"), ids("reader-paper", proxies=[MINISTRAL]), 0.813),
    # tab:component_static_detail
    (relationship("pair", "accuracy", readout="ac@best"), ("reader-mean4/ur",), 0.749),
    (relationship("pair", "auc", readout="dc@best"), ("reader-mean4/ur",), 0.621),
    (relationship("pair", "f1", readout="grp128@best"), ("reader-mean4/ur",), 0.701),
    # tab:representation_ablation, tab:matched_temporal_controls
    (attribution(ACC, 1, "pooled"), ids("reader-dc"), 0.475),
    (attribution(ACC, 100, "pooled"), ids("reader-ac"), 0.939),
    (attribution(F1, 1, "pooled"), ids("reader-paper", "r"), 0.479),
    (attribution(ACC, 1, "pooled"), ids("temporal-final"), 0.159),
    (attribution(F1, 100, "pooled"), ids("temporal-final-max"), 0.881),
    (attribution(ACC, 1, "pooled"), ids("temporal-mean-max"), 0.478),
    (attribution(ACC, 100, "pooled"), ids("dct-q8"), 0.919),
    (attribution(ACC, 1, "pooled"), ids("mixture-2"), 0.478),
    # tab:signature_family_purity and the text below it
    (purity(1), ids("reader-paper", "r", [LLAMA]), 0.816),
    (purity(5), ids("reader-paper", "r", [GEMMA]), 0.540),
    (purity(10), ids("reader-paper", "r", ["qwen35_27b"]), 0.426),
    (purity(5, "expectation"), ids("reader-paper", "r", [QWEN]), 0.184),
    # tab:cross_domain_signature_retrieval
    (retrieval("raw", "top1"), ids("reader-paper", "r", [QWEN]), 0.090),
    (retrieval("raw", "wins_other"), ids("reader-paper", "r", [QWEN]), 0.851),
    (retrieval("centred", "mrr"), ids("reader-paper", "r", [QWEN]), 0.428),
    (retrieval("centred", "cosine_other_median"), ids("reader-paper", "r", [QWEN]), -0.013),
]


@pytest.mark.parametrize(("cell", "readers", "expected"), PRINTED)
def test_equals_the_papers_tables(held, cell, readers, expected):
    assert held.value(cell, readers) == pytest.approx(expected, abs=5.1e-4)


def test_statements_of_the_text(held, collected):
    rows = collected.rows["comparisons"].values()
    found = {(r["hypotheses"], r["subject"], r["reference"], r["measure"]): r for r in rows}
    temporal = found["published/temporal/100-way", "dct-q2/mean4/ur", "temporal-mean/mean4/ur", "accuracy@1"]
    assert temporal["difference"] == pytest.approx(0.0012, abs=5e-5)
    assert (temporal["low"], temporal["high"]) == pytest.approx((-0.0010, 0.0033), abs=6e-5)
    gemma = (f"reader-paper/{GEMMA}/ur:dc-ac", "published-phylolm:match", "accuracy")
    primary = found["published/relationships/primary/family", *gemma]
    assert primary["difference"] == pytest.approx(-0.082, abs=5e-4)
    assert primary["p_holm"] == pytest.approx(0.012, abs=5e-4)
    assert held.value(cost("latency_ms"), (f"reader-paper/{QWEN}/ur",)) == pytest.approx(6.50, abs=5e-3)
    assert held.value(cost("audit_parameters"), (f"reader-paper/{QWEN}/ur",)) == pytest.approx(4.91e9, abs=5e6)
    spearman = [
        r["value"]
        for r in collected.rows["reader_agreement"].values()
        if r["metric"] == "spearman" and all(any(p in str(r[s]) for p in MAIN) for s in ("reader", "other"))
    ]
    assert len(spearman) == 6
    assert (min(spearman), max(spearman)) == pytest.approx((0.770, 0.933), abs=5e-4)


def test_paper_and_files_disagree_only_where_responses_are_cut(collected):
    rows = list(collected.rows["paper_values"].values())
    assert len(rows) == len(printed()) == 753
    held = [row for row in rows if row["file_value"] is not None]
    other = [row for row in held if DIFFERS in (row["note"] or "")]
    assert len(held) == 676
    assert {row["place"] for row in other} == {"tab:stress_tests", "tab:stress_tests_full"}
    assert all("64" in name or "32" in name for name in (f"{r['row_name']} {r['column_name']}" for r in other))
    qwen = next(r for r in rows if (r["row_name"], r["column_name"]) == ("READER / Qwen", "64 Acc."))
    assert (qwen["value"], qwen["file_value"]) == (0.505, pytest.approx(0.581, abs=5e-4))


def test_components_hold_another_block_than_the_scan(collected):
    note = next(
        row["note"]
        for row in collected.rows["paper_values"].values()
        if (row["place"], row["row_name"], row["column_name"]) == ("tab:bench_a_main", "READER / Llama", "Acc.")
    )
    assert note.endswith("llama31_8b_instruct_prompt_response.json says 0.762")


def test_every_pair_scan_and_fold_is_there(collected):
    pairs = [r for r in collected.rows["relationship_features"].values() if r["feature"] == "ac"]
    assert len(pairs) == 116 * 16
    scans = [r for r in collected.rows["layer_scores"].values() if r["reader"] == f"reader-paper/{QWEN}/ur"]
    assert {r["layer"] for r in scans} == set(range(33))
    assert len(scans) == 33 * 5
    best = [r for r in scans if r["layer"] == 18]
    assert np.mean([r["accuracy"] for r in best]) == pytest.approx(0.50414)
    assert np.mean([r["macro_f1"] for r in best]) == pytest.approx(0.5030890431906777)
    splits = [
        r for r in collected.rows["relationship_metrics"].values() if r["protocol"] == "family" and r["split"] == 35
    ]
    assert len(splits) == 4 * 3 * 5
    ratios = [r for r in collected.rows["variance_ratios"].values() if r["fold"] is None]
    assert len(ratios) == 8 * 2 * 3
    parts = [r["source_variance"] + r["prompt_variance"] + r["residual_variance"] for r in ratios]
    assert np.mean(parts) == pytest.approx(1, abs=0.01)  # standardised coordinates, on other prompts
    assert collected.differing == []


def test_f1_of_sources_is_what_macro_f1_is_the_mean_of(held, collected):
    rows = pd.DataFrame(list(collected.rows["source_f1"].values()))
    assert len(rows) == 3 * 6 * 100
    for (reader, k), part in rows.groupby(["reader", "k"]):
        whole = held.value(attribution(F1, k, "pooled"), (reader,))
        assert (len(part), part["f1"].mean()) == (100, pytest.approx(whole, abs=1e-12))


def test_small_results_have_their_places(collected):
    found = {
        name: pd.DataFrame(list(collected.rows[name].values())) for name in ("pair_ranks", "family_purity", "costs")
    }
    ranks = found["pair_ranks"].set_index(["source", "neighbor", "reader"])
    assert len(ranks) == 4 * 8
    qwen = ranks.loc[("ds_distill_qwen_32b", "qwq_32b", f"reader-paper/{QWEN}/r")]
    assert (qwen["rank"], qwen["back"], qwen["cosine"]) == (4, 3, pytest.approx(1 - 0.020122494173552274))
    purity = found["family_purity"]
    np.testing.assert_allclose(purity["null_mean"], purity["expectation"], atol=0.003)
    exits = found["costs"][found["costs"]["measure"].str.startswith("early_exit_error")]
    assert (len(exits), exits["value"].abs().max()) == (2 * 8, 0)
    bge = {
        r["metric"]: (r["value"], r["std"])
        for r in collected.rows["attribution_metrics"].values()
        if r["reader"] == "dna-finetuned/bge-large/r" and "variance" in r["metric"] and r["fold"] is None
    }
    assert bge["source_variance"] == pytest.approx((0.7898779742410443, 0.010500895042141935))
    assert set(bge) == {"source_variance", "prompt_variance", "residual_variance"}


def test_nothing_is_left_unseen(results, collected, release):
    ledger = results.ledger()
    assert ledger.numbers > 200_000
    assert ledger.imported > 120_000
    assert set(ledger.remaining) <= set(UNIMPORTED), "numbers that no importer takes and no reason names"
    assert set(ledger.unread) == set(UNREAD)
    places = json.loads((release.root / "results" / "paper_map.json").read_text("utf-8"))["results"]
    read = set(results.files()) - set(ledger.unread)
    for name, folder in places.items():
        if name != "rendered_figures":  # the release does not hold them
            assert any(file.startswith(f"results/{folder}") for file in read), name

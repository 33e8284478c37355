"""Result files that are cut short, lack something or hold NaN: a sentence that names the file, or nothing taken."""

import json

import pytest

from backend.errors import AtlasError
from backend.reference import Results, collect
from backend.reference.attribution import read_costs, read_dna, read_random, read_variance
from backend.reference.files import Collected
from backend.reference.paper import Printed, printed
from backend.reference.relationships import read_baselines, read_disjoint, read_domains, read_original_space
from tests.fake_release import fake_release

NAN = float("nan")


def write(root, name, content):
    path = root / "results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def read(reader, root):
    into, results = Collected(), Results(root)
    reader(results, into)
    return into, results


DNA = {
    "method": "bge_crossK5",
    "K": 5,
    "n_fingerprints": 10,
    "classification_accuracy": 0.5,
    "classification_accuracy_fold_mean": 0.5,
    "classification_accuracy_fold_std": 0.1,
    "classification_macro_f1": NAN,
    "nll": NAN,
    "ece": 0.2,
    "n_fp_geom": 0,
    "clustering_ari": NAN,
    "math_n_fingerprints": 4,
    "math_classification_accuracy": 0.25,
    "per_class_f1": {"one": 0.5, "two": NAN},
}


def test_bare_nan_is_no_number(tmp_path):
    write(tmp_path, "baselines/dna_dynamic/bge_crossK5.json", DNA)
    into, results = read(read_dna, tmp_path)
    frame = into.frame("attribution_metrics").set_index(["benchmark", "reduction", "metric"])
    assert dict(frame["value"]) == {
        ("agent500", "pooled", "accuracy"): 0.5,
        ("agent500", "fold", "accuracy"): 0.5,
        ("agent500", "pooled", "ece_mean"): 0.2,
        ("math100", "pooled", "accuracy"): 0.25,
    }
    assert frame.loc[("agent500", "fold", "accuracy"), "std"] == 0.1
    assert into.readers["dna/bge-large/r"].proxy_name == "BGE-large-en-v1.5"
    ledger = results.ledger()
    assert not ledger.remaining
    assert ledger.numbers == ledger.imported
    assert into.frame("source_f1").set_index("source")["f1"].to_dict() == {"one": 0.5}


SPLITS = {"split_type": "family_disjoint_leave_two_out"}


@pytest.mark.parametrize(
    ("reader", "name", "content", "message"),
    [
        (read_dna, "baselines/dna_dynamic/bge_crossK5.json", "{", r"bge_crossK5\.json cannot be understood \(JSON"),
        (read_dna, "baselines/dna_dynamic/bge_crossK5.json", {**DNA, "K": NAN}, "no number under 'K'"),
        (read_dna, "baselines/dna_dynamic/bge_crossK5.json", {"K": 5}, "the file lacks 'method'"),
        (read_random, "statistics/fold_variation/random.json", {"agent500": [1]}, "agent500 is no set of names"),
        (read_variance, "reader/variance/x_ur.json", {"source": "no block"}, "does not name a block"),
        (read_variance, "reader/variance/x.json", {}, "does not name an input view"),
        (read_costs, "efficiency/profiles/a.json", {"method": "reader", "tag": "x"}, "lacks 'hardware'"),
        (read_baselines, "bench_a/baselines/summary_all__text_baselines.json", {}, "is no list"),
        (
            read_disjoint,
            "bench_a/disjoint/model/x.json",
            {"split_type": "family_disjoint_leave_two_out"},
            "'proxy_tag'",
        ),
        (read_original_space, "geometry/agent500/neighbor_purity.csv", "proxy,k\nx,1\n", "missing"),
        (read_original_space, "geometry/agent500/proxy_agreement.csv", "proxy_left\nx\n", "column 'proxy_right'"),
        (read_original_space, "geometry/agent500/proxy_agreement.csv", "", "cannot be understood"),
        (read_domains, "geometry/cross_domain/cross_domain_signature_summary.json", {}, "is missing"),
    ],
)
def test_broken_files_are_named(tmp_path, reader, name, content, message):
    write(tmp_path, name, content)
    with pytest.raises(AtlasError, match=message) as caught:
        read(reader, tmp_path)
    assert "results/" in caught.value.problem
    assert "python -m jobs fetch" in caught.value.remedy


def test_a_repetition_that_differs_is_said_and_not_taken():
    into = Collected()
    about = {"reader": "a", "roster": "100-way", "measure": "latency_ms", "hardware": "h", "unit": "ms"}
    into.add("costs", "results/one.json", **about, value=1.0)
    into.add("costs", "results/two.json", **about, value=1.0 + 1e-7)
    assert into.differing == []
    into.add("costs", "results/three.json", **about, value=1.5)
    assert into.frame("costs")["value"].tolist() == [1.0]
    (sentence,) = into.differing
    assert "1 in results/one.json, 1.5 in results/three.json" in sentence


def test_an_invented_release_is_read_as_far_as_it_goes(tmp_path):
    root = fake_release(tmp_path)
    collected = collect(Results(root))
    assert set(collected.readers) == {"reader-paper/invented/ur"}
    rows = collected.rows["paper_values"].values()
    assert all(row["file_value"] is None for row in rows)


def test_names_that_no_reader_knows_are_said(tmp_path):
    root = fake_release(tmp_path)
    write(root, "efficiency/profiles/a.json", {"method": "astrology", "tag": "x", "hardware": "h"})
    with pytest.raises(AtlasError, match=r"profiles/a\.json cannot be understood \(KeyError: 'astrology'"):
        collect(Results(root))


@pytest.mark.parametrize(
    ("text", "value", "yes"),
    [
        (".481", 0.4805, True),
        (".481", 0.4822, False),
        ("435.2e6", 435_164_260.0, True),
        ("435.2e6", 435_300_000.0, False),
        ("438", 438.4, True),
        ("-.013", -0.0128, True),
    ],
)
def test_a_number_agrees_as_it_is_printed(text, value, yes):
    assert Printed("tab", "row", "column", text).agrees(value) is yes


def test_a_broken_transcript_is_said(tmp_path):
    path = tmp_path / "paper.csv"
    path.write_text("place,row,column,value\ntab,row,column,high\n", "utf-8")
    with pytest.raises(AtlasError, match=r"paper\.csv cannot be understood"):
        printed(path)
    with pytest.raises(AtlasError, match="FileNotFoundError"):
        printed(tmp_path / "none.csv")

"""The report: deterministic, every number with its build, disagreements from the rows, absences with a command."""

import contextlib
import re

import pandas as pd
import pytest

from backend.costs.paths import cost_frame
from backend.reference.paper import printed
from backend.reference.results_findings import Claim, holds, pooled
from backend.reference.results_tables import Number, as_printed, like, plain
from backend.store.builds import recorded
from backend.store.database import open_work, publish
from backend.store.result_queries import open_reading
from backend.store.writers import replace_rows, write_proxies, write_reader
from jobs import __main__ as verbs
from jobs.results import report
from tests.fake_release import fake_release

SUPERSCRIPT = re.compile(r"<sup>([\d ]+)</sup>")


def metrics(**cells):
    """Fold and pooled accuracy at K, by keyword k1, k100, ..."""
    rows = []
    for name, value in cells.items():
        about = {"k": int(name[1:]), "metric": "accuracy", "seed": None, "fold": None, "std": 0.01, "n": 500}
        rows += [{**about, "reduction": reduction, "value": value} for reduction in ("fold", "pooled")]
    return pd.DataFrame(rows).astype({"seed": "Int64", "fold": "Int64"})


def write(connection, method, frame, *, proxy=None, view=None, origin="measured", build="b", condition="clean"):
    reader = write_reader(connection, method=method, name=f"{method} here", proxy=proxy, view=view, origin=origin)
    key = {"reader": reader, "roster": "100-way", "benchmark": "agent500", "condition": condition}
    replace_rows(connection, "attribution_metrics", frame, key, build)
    return reader


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A store with published numbers of an invented release and a few measured ones."""
    folder = tmp_path_factory.mktemp("results")
    path = folder / "work.duckdb"
    release = fake_release(folder / "release")
    assert verbs.main(["reference", "--release", str(release), "--work", str(path)]) == 0
    with contextlib.closing(open_work(path)) as connection:
        write_proxies(connection, pd.DataFrame([{"proxy": "smollm2-135m", "name": "SmolLM2"}]))
        with recorded(connection, stage="reference", command="x", origin="published", source_file="f.json") as theirs:
            write(
                connection,
                "dna",
                metrics(k1=0.119, k100=0.706),
                proxy="mpnet",
                view="r",
                origin="published",
                build=theirs,
            )
            write_proxies(connection, pd.DataFrame([{"proxy": "mpnet", "name": "MPNet"}]))
            row = {"subject": "dct-q2/mean4/ur", "reference": "temporal-mean/mean4/ur", "measure": "accuracy@1"}
            tested = {"low": -0.001, "high": 0.0033, "p_value": 0.3, "p_holm": 1.0, "n": 2000, "method": "m"}
            about = {"hypotheses": "published/temporal/100-way"}
            row = {**row, **tested, "difference": 0.0012}
            replace_rows(connection, "comparisons", pd.DataFrame([row]), about, theirs)
        with recorded(connection, stage="evaluate", command="python -m jobs evaluate") as ours:
            here = {"proxy": "smollm2-135m", "view": "ur", "build": ours}
            write(connection, "reader-paper", metrics(k1=0.31, k5=0.30, k100=0.85), **here)
            write(connection, "reader-dc", metrics(k1=0.32, k100=0.80), **here)
            write(connection, "positions-64", metrics(k1=0.300), **here)
            write(connection, "positions-16", metrics(k1=0.262), **here)
            write(connection, "ngram-word", metrics(k1=0.35, k100=0.90), build=ours)
            tested = {"low": -0.001, "high": 0.02, "p_value": 0.01, "p_holm": 0.02, "n": 500, "method": "m"}
            here = "smollm2-135m/ur"
            for hypotheses, subject, reference, measure in (
                (f"temporal/100-way/{here}", f"temporal-mean/{here}", f"dct-q2/{here}", "accuracy@1"),
                (f"temporal/100-way/{here}", f"temporal-mean/{here}", f"dct-q2/{here}", "accuracy@5"),
                (f"controls/100-way/{here}", f"reader-dc/{here}", f"reader-paper/{here}", "accuracy@100"),
                ("endpoints/100-way", "ngram-word", f"reader-paper/{here}", "accuracy@1"),
                ("ngrams/100-way", "fused/smollm2-135m/ur", "ngram-word", "accuracy@100"),
            ):
                row = {"subject": subject, "reference": reference, "measure": measure, "difference": 0.012}
                rows = pd.DataFrame([{**row, **tested}])
                replace_rows(connection, "comparisons", rows, {"hypotheses": hypotheses, "measure": measure}, ours)
            for subject, p_value in (("MMLU-Pro", 0.0561), ("GPQA-Diamond", 0.0009)):
                row = {"reference": "accuracy@1/ur", "statistic": "pearson", "value": 0.695, "p_value": p_value, "n": 8}
                replace_rows(connection, "correlations", pd.DataFrame([row]), {"subject": subject}, ours)
            blocks = pd.DataFrame({"outer_fold": pd.array([0, None], dtype="Int64"), "layer": [18, 18]})
            for method in ("temporal-mean", "dct-q2"):
                reader = write_reader(connection, method=method, name=method, proxy="smollm2-135m", view="ur")
                replace_rows(connection, "layer_selection", blocks, {"reader": reader, "roster": "100-way"}, ours)
            paper = write_reader(
                connection, method="reader-paper", name="reader-paper here", proxy="smollm2-135m", view="ur"
            )
            other = write_reader(
                connection, method="reader-paper", name="reader-paper here", proxy="smollm2-135m", view="r"
            )
            for reader, candidates, layers in ((paper, (17, 18, 19), (18, 19)), (other, (18,), (18, 18))):
                key = {"reader": reader, "roster": "100-way"}
                tried = pd.DataFrame({"layer": candidates, "outer_fold": 0, "inner_fold": 1, "accuracy": 0.3})
                replace_rows(connection, "layer_scores", tried, key, ours)
                chosen = pd.DataFrame({"outer_fold": pd.array([0, 1], dtype="Int64"), "layer": layers})
                replace_rows(connection, "layer_selection", chosen, key, ours)
            row = {"subject": f"reader-paper/{here}:dc-ac", "reference": "phylolm:match", "measure": "accuracy"}
            tested |= {"low": None, "high": None, "p_holm": 0.0001, "difference": -0.043}
            about = {"hypotheses": "relationships/baselines/family"}
            replace_rows(connection, "comparisons", pd.DataFrame([{**row, **tested}]), about, ours)
            for method, k1, t64, error in (("fused", 0.57, 0.98, 0.02), ("lda", 0.44, 0.60, 0.05)):
                about = {"proxy": "smollm2-135m", "view": "ur", "build": ours}
                write(connection, method, metrics(k1=k1, k10=0.91, k20=0.93, k100=0.99), **about)
                write(connection, method, metrics(k100=t64), condition="t64", **about)
                errors = metrics(k1=0.01, k5=0.01, k10=error, k20=0.01, k50=0.01, k100=0.01)
                key = {"reader": f"{method}/{here}", "roster": "100-way", "benchmark": "agent500"}
                key |= {"condition": "clean", "metric": "ece_calibrated"}
                replace_rows(connection, "attribution_metrics", errors.assign(metric="ece_calibrated"), key, ours)
            validation = [
                {"part": "calibration", "k": 1, "metric": "ece_before", "value": 0.31, "std": 0.01, "n": 9},
                {"part": "calibration", "k": 5, "metric": "ece_before", "value": 0.21, "std": 0.01, "n": 9},
                {"part": "calibration", "k": 5, "metric": "scale", "value": 0.77, "std": 0.01, "n": 9},
                {"part": "stop", "k": 5, "metric": "stop_traces", "rule": "plain", "level": 0.05, "value": 4.0, "n": 9},
            ]
            key = {"reader": f"reader-paper/{here}", "roster": "100-way", "condition": "clean"}
            replace_rows(connection, "audit_validation", pd.DataFrame(validation), key, ours)
            spent = cost_frame({"audit_parameters": 126.4e6, "latency_ms": 48.3, "peak_memory_gb": 1.72}, "a machine")
            key = {"reader": f"fused/{here}", "roster": "100-way"}
            replace_rows(connection, "costs", spent, key, ours)
            mpt = write_reader(connection, method="mpt", name="MPT")
            rows = pd.DataFrame(
                {
                    "metric": ["accuracy", "auc"],
                    "split": pd.Series([None, None], dtype="Int64"),
                    "value": [0.7417, 0.7],
                    "std": [0.061, 0.08],
                    "n": [20, 20],
                }
            )
            replace_rows(
                connection, "relationship_metrics", rows.assign(protocol="pair", readout="match"), {"reader": mpt}, ours
            )
    return path


@pytest.fixture(scope="module")
def text(work):
    with contextlib.closing(open_reading(work)) as cursor:
        return "\n".join(report(cursor))


def lines_with(text, *parts):
    return [line for line in text.splitlines() if all(part in line for part in parts)]


def section(text, title):
    return text.partition(f"## {title}")[2].partition("\n## ")[0]


def test_the_same_store_gives_the_same_report(work, text, tmp_path):
    targets = [tmp_path / "one.md", tmp_path / "new" / "two.md"]
    for target in targets:
        assert verbs.main(["results", "--work", str(work), "--to", str(target)]) == 0
    assert targets[0].read_bytes() == targets[1].read_bytes()
    assert targets[0].read_text("utf-8").rstrip() == text.rstrip()
    publish(work, tmp_path / "data")
    assert verbs.main(["results", "--data", str(tmp_path / "data"), "--to", str(targets[1])]) == 0
    assert targets[1].read_text("utf-8") == targets[0].read_text("utf-8")
    assert not list(tmp_path.rglob("*.partial"))


def test_every_table_of_the_paper_is_there(text):
    for place in {number.place for number in printed()}:
        assert f"`{place}`" in text


def test_measured_follows_printed_and_cites_its_build(text):
    table = section(text, "Agent500, 100-way attribution")
    (printed,) = lines_with(table, "| DNA / MPNet | paper |")
    assert ".119<sup>" in printed
    (ours,) = lines_with(table, "reader-paper here", "measured")
    assert ".310<sup>" in ours
    assert ".850<sup>" in ours
    builds = section(text, "Builds")
    for numbers in SUPERSCRIPT.findall(text):
        for number in numbers.split():
            assert len(lines_with(builds, f"| {number} | `")) == 1
    assert lines_with(builds, "published, `f.json`")
    assert lines_with(builds, "| measured | `python -m jobs evaluate` |")
    assert "not recorded" not in builds


def test_conditions_stand_beside_ours(text):
    (row,) = lines_with(section(text, "Position pooling"), "| Uniform: M64 vs. M16 |")
    assert re.search(r"\| 5\.28\S* \| \+3\.80<sup>", row)
    (head,) = lines_with(section(text, "Position pooling"), "K=1 paper")
    assert "K=1 smollm2-135m" in head


def test_our_correlations_have_their_p_values_too(text):
    (row,) = lines_with(section(text, "Capability of the proxy"), "| K=1 |")
    assert row.count("| .695 (p .056)<sup>") == 2  # the paper's and ours
    assert ".695 (p .001)<sup>" in row
    (empty,) = lines_with(section(text, "Capability of the proxy"), "| K=100 |")
    assert empty.count("(p ") == 3  # the paper's alone


def test_comparisons_stand_side_by_side(text):
    found = section(text, "Paired comparisons")
    assert lines_with(found, "| published | smollm2-135m/ur, block 18 |")
    (row,) = lines_with(found, "| `temporal-mean` | accuracy@1 |")
    assert re.search(r"\| \+\.001 \[-\.001, \.003\], p 1\.000\S* \| -\.012 \[-\.020, \.001\], p \.020<sup>", row)
    assert not lines_with(found, "accuracy@5")  # the store has every budget, the report the end points
    (row,) = lines_with(found, "| `reader-dc` | accuracy@100 |")
    assert "| -.012 [-.020, .001], p .020<sup>" in row
    (row,) = lines_with(found, "| `ngram-word` | `reader-paper/smollm2-135m/ur` |")
    assert re.search(r"\| \+\.012 \[-\.001, \.020\], p \.020\S* \| – \|", row)
    (row,) = lines_with(found, "| `fused/smollm2-135m/ur` | `ngram-word` |")
    assert re.search(r"\| – \| \+\.012 \[-\.001, \.020\], p \.020", row)
    (row,) = lines_with(found, "| **measured** | family |")
    assert "-.043, p < .001<sup>" in row


def test_readouts_stand_beside_what_was_aimed_for(text):
    found = section(text, "Readouts next to the paper's")
    first, *_ = lines_with(found, "| K = 1 |")
    assert re.search(
        r"\| \.523\S* READER / Qwen3\.5-27B \| \.554\S* FT DNA / Qwen3-Emb-8B "
        r"\| \.310\S* `reader-paper/smollm2-135m/ur` "
        r"\| \.350\S* `ngram-word` \| ≥ \.560 \| \.570\S* `fused/smollm2-135m/ur` \| yes "
        r"\| \.570\S* `fused/smollm2-135m/ur` \|$",
        first,
    )
    twenty, *_ = lines_with(found, "| K = 20 |")
    assert "| **no** |" in twenty
    sixty_four, *_ = lines_with(found, "| 64 tokens, K = 100 |")
    assert re.search(r"\| \.505<sup>\d+</sup> READER / Qwen \|", sixty_four)
    assert ".980" in sixty_four
    error, *_ = lines_with(found, "| calibration error")
    assert re.search(r"≤ \.030 \| \.020\S* `fused/smollm2-135m/ur` \| yes \| ", error)
    assert "Missed at 100-way: K = 20." in found
    (lda,) = lines_with(found, "| `lda/smollm2-135m/ur` | .440")
    assert ".050" in lda  # the worst budget counts
    assert "165-way:" not in found


def test_what_readers_cost_is_a_section(text):
    found = section(text, "What a reader costs")
    (row,) = lines_with(found, "`fused/smollm2-135m/ur`")
    assert re.search(
        r"ur` \| – \| 126M<sup>\d+</sup> \| – \| 48<sup>\d+</sup> \| 1\.72<sup>\d+</sup> \| a machine \|$", row
    )
    assert "165-way:" not in found


def test_the_validation_of_an_audit_is_a_section(text):
    found = section(text, "What the evidence of an audit is worth")
    (row,) = lines_with(found, "| ece_before |")
    assert re.search(r"\| 100-way \| clean \| ece_before \| \.310 ± \.010\S* \| \.210 ± \.010\S* \|$", row)
    assert not lines_with(found, "| scale |")
    (row,) = lines_with(found, "| stop_traces |")
    assert re.search(r"\| plain \| \.05 \| stop_traces \| 4\.0<sup>", row)


def test_what_is_missing_comes_with_its_command(text):
    assert lines_with(
        text, "| llmmap | not measured | `python -m jobs evaluate --roster 100-way --stage baselines --method llmmap` |"
    )
    assert lines_with(text, "| phylolm | not measured | `python -m jobs relate --method phylolm` |")
    assert (
        "Not measured here, or not all of it; `python -m jobs evaluate --roster 100-way --stage controls "
        "--method temporal` makes it." in text
    )


def test_disagreements_come_from_the_rows(text):
    found = section(text, "Where they disagree")
    (first,) = lines_with(found, "| K = 1 |", "`ngram-word` | .350<sup>")
    # The invented READER has no mean over folds, mpnet's DNA reaches .119, ours .310.
    assert re.search(
        r"\.350\S* \| – \| \*\*1 of 1\*\*; `dna/mpnet/r` \.119\S* "
        r"\| \*\*1 of 1\*\*; `reader-paper/smollm2-135m/ur` \.310\S* \| – \|$",
        first,
    )
    (last,) = lines_with(found, "| K = 100 |", "`ngram-word` | .900<sup>")
    assert "**1 of 1**; `dna/mpnet/r` .706<sup>" in last
    assert "**1 of 1**; `reader-paper/smollm2-135m/ur` .850<sup>" in last
    assert lines_with(found, "K = 1, pooled |", "`reader-dc/smollm2-135m/ur` | .320<sup>")
    assert not lines_with(found, "K = 100, pooled |")
    assert "MPT and PhyloLM: 1 of 2 numbers agree as printed." in found
    assert lines_with(found, "| MPT | AUC | .746 | .700<sup>")
    (grows,) = lines_with(found, "K = 5 beats K = 1")
    assert "smollm2-135m: .300<sup>" in grows
    assert grows.endswith("| **no** |")
    (tie,) = lines_with(found, "DC–AC is within one point of DC at K = 100")
    assert tie.endswith("| **no** |")
    (absent,) = lines_with(found, "64 tokens beat 32")
    assert "not measured" in absent


def test_a_block_that_was_given_is_not_called_chosen(text):
    found = section(text, "Blocks of READER")
    (chosen,) = lines_with(found, "`reader-paper/smollm2-135m/ur`")
    assert re.search(r"\| 3 \| 18, 19<sup>", chosen)
    (given,) = lines_with(found, "`reader-paper/smollm2-135m/r`")
    assert re.search(r"\| 1 \| 18, 18 \(given\)<sup>", given)
    assert not lines_with(found, "temporal-mean")


def test_shortened_responses_say_how_they_are_grouped(text):
    assert len(lines_with(text, "Paper: `tab:stress_tests", "drawn from all folds at once")) == 2


def test_a_tie_has_two_sides():
    tie = Claim("is within one point", "a table", ("a", pooled(1)), ("b", pooled(1)), margin=0.01)
    ahead = Claim("beats", "a table", ("a", pooled(1)), ("b", pooled(1)))
    cases = {(0.936, 0.930): True, (0.930, 0.936): True, (0.936, 0.896): False, (0.896, 0.936): False}
    cases |= {(0.94, 0.95): True}  # one point is within one point
    for (left, right), tied in cases.items():
        sides = (Number(left, ("b",)), Number(right, ("b",)))
        assert holds(tie, *sides) == tied, (left, right)
        assert holds(ahead, *sides) == (left > right)


def test_tables_without_results_are_named_too(text):
    found = section(text, "Tables of the paper that hold no result")
    for place in ("agent500_prompt_examples", "math100_prompt_examples", "target_roster", "reproduction_map"):
        assert f"tab:{place}" in found
    families = [row for row in found.splitlines() if row.startswith("| ") and "<sup>" in row]
    assert families and lines_with(found, "| **all** |")


def test_an_empty_store_says_so_everywhere(tmp_path):
    path = tmp_path / "work.duckdb"
    open_work(path).close()
    with contextlib.closing(open_reading(path)) as cursor:
        text = "\n".join(report(cursor))
    assert "Published numbers are not imported: `python -m jobs reference`." in text
    assert "N-grams are not measured" in text
    assert "Not measured: `python -m jobs evaluate --roster 100-way --stage audit`." in text
    assert "Not measured: `python -m jobs evaluate --stage readouts`." in text
    assert "<sup>" not in text
    assert ".504" in text  # what the paper prints needs no store


def test_problems_are_sentences(tmp_path, capsys, work):
    assert verbs.main(["results", "--work", str(tmp_path / "none.duckdb")]) == 2
    assert "There is no database" in capsys.readouterr().err
    assert verbs.main(["results", "--work", str(work), "--data", str(tmp_path)]) == 2
    (tmp_path / "file").write_text("", "utf-8")
    assert verbs.main(["results", "--work", str(work), "--to", str(tmp_path / "file" / "r.md")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (plain(0.4814), ".481"),
        (plain(1.0), "1.000"),
        (plain(-0.0128), "-.013"),
        (plain(-0.0001), ".000"),
        (as_printed("435.2e6"), "435.2M"),
        (as_printed("24.18e9"), "24.18B"),
        (as_printed("438"), "438"),
        (as_printed("5.0"), "5.0"),
        (like(134_515_008.0, "962.4e6"), "135M"),
        (like(57_700.0, "819.3e3"), "57.7K"),
        (like(0.0123, ".00053"), ".01230"),
        (like(412.4, "438"), "412"),
    ],
)
def test_numbers_look_as_printed(shown, expected):
    assert shown == expected

"""The pages: what stands between their marks comes from the database, and no number stands elsewhere."""

import contextlib
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import AtlasError
from backend.reference.results_excerpts import DECLARED, MARKED, Excerpts, Value, changed_marks, fill, unmarked_tables
from backend.reference.results_tables import Uncited
from backend.store.database import default_data_folder, open_work, read_pointer
from backend.store.result_queries import matching_rows, open_reading
from jobs import __main__ as verbs
from jobs.results import all_texts, differences
from tests.commands import check
from tests.conftest import REPOSITORY

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
EXCEPTIONS = {
    ("audit.md", "| log10 ratio | words |"): "thresholds of the verbal scale",
    ("deployment.md", "| variable | meaning | default |"): "addresses",
    ("proxies.md", "| name | model | blocks | d |"): "versions of licences",
}
"""Tables with decimals that are no results: page and beginning of the header, and why."""


@pytest.fixture(scope="module")
def served():
    with contextlib.closing(open_reading(read_pointer(default_data_folder())[1])) as cursor:
        yield cursor


@pytest.fixture(scope="module")
def excerpts(served):
    return Excerpts(served, Uncited.read(served))


@pytest.fixture
def empty(tmp_path):
    """A store without a row."""
    path = tmp_path / "store" / "work.duckdb"
    path.parent.mkdir()
    open_work(path).close()
    return path


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """README and docs in a folder of their own, which is the current one."""
    (tmp_path / "docs").mkdir()
    for page in PAGES:
        shutil.copy(page, tmp_path / page.relative_to(REPOSITORY))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def texts(served):
    """Report and pages as the shipped database has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        return all_texts(served)


def test_pages_agree_with_the_shipped_database(texts, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    assert list(differences(texts)) == []
    assert set(texts) == {page.relative_to(REPOSITORY) for page in PAGES}
    for page, text in texts.items():
        assert page.read_text("utf-8") == text, f"python -m jobs results changes {page}"


def test_differences_name_file_and_table(texts, copied):
    readme, report = copied / "README.md", copied / "docs" / "results.md"
    text = readme.read_text("utf-8")
    found = next(found for found in MARKED.finditer(text) if found["names"] == "accuracy")
    readme.write_text(text.replace(found["body"], found["body"].replace(" ± ", " +- ")), "utf-8")
    report.write_text(report.read_text("utf-8").replace("## Blocks of READER\n", "## Blocks of READER\n\nx\n"), "utf-8")
    said = ["docs/results.md: section 'Blocks of READER' differs", "README.md: accuracy differs"]
    assert list(differences(texts)) == said


def test_check_writes_nothing_and_ends_with_1(copied, empty, capsys):
    readme = copied / "README.md"
    before = readme.read_bytes()
    assert verbs.main(["results", "--work", str(empty), "--check"]) == 1
    assert "README.md: accuracy differs" in capsys.readouterr().out.splitlines()
    assert readme.read_bytes() == before
    assert verbs.main(["results", "--work", str(empty), "--to", str(copied / "elsewhere.md")]) == 0
    assert readme.read_bytes() == before  # a report elsewhere leaves the pages alone
    assert verbs.main(["results", "--work", str(empty)]) == 0
    assert "not measured" in readme.read_text("utf-8")
    assert verbs.main(["results", "--work", str(empty), "--check"]) == 0


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "results.md"], ids=lambda page: page.name)
def test_no_decimals_stand_in_a_table_outside_marks(page):
    headers = [row for _, row in unmarked_tables(page.read_text("utf-8"))]
    allowed = tuple(header for name, header in EXCEPTIONS if name == page.name)
    assert [row for row in headers if not row.startswith(allowed or "\0")] == []


def test_the_readme_has_no_number_outside_marks():
    text = MARKED.sub("", (REPOSITORY / "README.md").read_text("utf-8"))
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|https?://\S+", "", text, flags=re.DOTALL)
    assert re.findall(r"(?<![\w.-])\.\d+", prose) == []
    assert not list(unmarked_tables((REPOSITORY / "README.md").read_text("utf-8")))


def test_everything_declared_is_shown(excerpts):
    entries = tomllib.loads(DECLARED.read_text("utf-8"))
    shown = {
        name for page in PAGES for found in MARKED.finditer(page.read_text("utf-8")) for name in found["names"].split()
    }
    assert {*entries["tables"], *entries["sentences"]} <= shown
    assert shown <= set(excerpts.names())


def test_published_numbers_name_their_file():
    for name, entry in tomllib.loads(DECLARED.read_text("utf-8"))["sentences"].items():
        origins = [entry.get("origin"), *(value.get("origin") for value in entry["values"].values())]
        if "published" in origins:
            assert "ublished*" in entry["text"], name
            assert ".file}" in entry["text"] or "`results/" in entry["text"], name


def test_what_is_missing_comes_with_a_command(empty):
    with contextlib.closing(open_reading(empty)) as cursor:
        excerpts = Excerpts(cursor, Uncited.read(cursor))
        for name in excerpts.names():
            text = excerpts.text(name)
            assert not re.search(r"(?<![\w.])\.\d{3}", text) or name.startswith("goals"), name
            if not name.startswith(("goals", "blocks", "costs")):
                assert "ot measured: `python -m jobs " in text, name
            for command in re.findall(r"`(python -m jobs [^`]*)`", text):
                check(command)
            for row in text.splitlines()[2:] if text.startswith("|") else ():
                assert row.count("|") == text.splitlines()[0].count("|"), row


def test_one_missing_row_leaves_the_others(excerpts, tmp_path):
    work = tmp_path / "work.duckdb"
    shutil.copy(read_pointer(default_data_folder())[1], work)
    with contextlib.closing(open_work(work)) as connection:
        connection.execute("DELETE FROM attribution_metrics WHERE reader = 'ngram-word' AND condition = 't64'")
    with contextlib.closing(open_reading(work)) as cursor:
        table = Excerpts(cursor, Uncited.read(cursor)).text("readers")
    changed = [
        (old, new)
        for old, new in zip(excerpts.text("readers").splitlines(), table.splitlines(), strict=True)
        if old != new
    ]
    ((old, new),) = changed
    assert new.startswith("| word n-grams")
    assert (
        "not measured: `python -m jobs evaluate --roster 100-way --stage baselines,stress --method ngram-word`" in new
    )
    cells = list(zip(old.split("|"), new.split("|"), strict=True))
    assert sum(before != after for before, after in cells) == 1


def test_cells_are_those_of_the_store(served, excerpts):
    where = {"reader": "fused-live/smollm2-135m/ur", "roster": "100-way", "benchmark": "agent500", "k": 100}
    where |= {"metric": "accuracy", "reduction": "pooled"}
    for condition, column in (("clean", 1), ("t64", 3)):
        (row,) = matching_rows(served, "attribution_metrics", where | {"condition": condition})
        (line,) = (line for line in excerpts.text("readers").splitlines() if line.startswith("| `fused-live`"))
        assert line.split("|")[column + 1].split("/")[1].strip() == f"{row['value']:.3f}".lstrip("0")


def test_rows_are_summaries_unless_a_fold_is_asked_for(served):
    where = {"reader": "fused/smollm2-135m/ur", "roster": "100-way", "benchmark": "agent500", "condition": "clean"}
    where |= {"k": 1, "metric": "accuracy", "reduction": "fold"}
    (summary,) = matching_rows(served, "attribution_metrics", where)
    folds = [matching_rows(served, "attribution_metrics", where | {"fold": fold}) for fold in range(5)]
    assert summary["value"] == pytest.approx(sum(row["value"] for (row,) in folds) / 5)
    published = matching_rows(served, "attribution_metrics", where | {"reader": "reader-paper/*_*/ur"})
    assert len(published) == 8
    with pytest.raises(ValueError, match="no column 'colour'"):
        matching_rows(served, "attribution_metrics", {"colour": "red"})


def test_published_best_on_math100_is_that_of_its_file(excerpts):
    text = excerpts.text("other-domain")
    assert "*Published* at best is .378 (`results/statistics/fold_variation/finetuned_qwen3emb.json`)" in " ".join(
        text.split()
    )


def test_unknown_and_unclosed_marks_are_named():
    def generate(names):
        raise KeyError(names)

    with pytest.raises(AtlasError, match=r"x\.md, line 2: nothing is called 'gone'"):
        fill(Path("x.md"), "a\n<!-- results: gone -->\n<!-- /results -->\n", generate)
    for text in ("a\n\n<!-- results: open -->\nb\n", "a\n\n<!-- /results -->\n"):
        with pytest.raises(AtlasError, match=r"x\.md, line 3: .* has no counterpart"):
            fill(Path("x.md"), text, generate)


def test_wrong_declarations_are_named(served, tmp_path):
    declared = tmp_path / "excerpts.toml"
    values = 'values = { a = { reader = "ngram-word", colour = 1 } }'
    entry = f'[defaults]\n[tables]\n[sentences.odd]\ntext = "{{a}}"\ncommand = "c"\n{values}\n'
    declared.write_text(entry, "utf-8")
    odd = Excerpts(served, Uncited.read(served), declared)
    with pytest.raises(AtlasError, match=r"excerpts\.toml: odd cannot be understood .*colour"):
        odd.text("odd")
    with pytest.raises(KeyError):
        odd.text("odd even")


LINE = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=20).filter(
    lambda line: "<!--" not in line
)


@given(st.lists(st.tuples(st.lists(LINE, max_size=3), st.sampled_from("abc"), st.lists(LINE, max_size=3)), max_size=4))
def test_filling_changes_only_what_is_marked(parts):
    def page(bodies):
        out = []
        for (before, name, _), body in zip(parts, bodies, strict=True):
            out += [*before, f"<!-- results: {name} -->", *body, "<!-- /results -->"]
        return "\n".join([*out, "end"])

    old, new = page([body for *_, body in parts]), page([[f"new {name}"] for _, name, _ in parts])
    filled = fill(Path("x.md"), old, "new {}".format)
    assert filled == new
    assert fill(Path("x.md"), filled, "new {}".format) == filled
    assert changed_marks(filled, filled) == []


@pytest.mark.parametrize(
    ("value", "form", "expected"),
    [
        (0.4814, "", ".481"),
        (-0.016, "", "-.016"),
        (0.004, "+", "+.004"),
        (-0.004, "+", "-.004"),
        (0.0002, "p", "< .001"),
        (0.0025, "p", "= .003"),
        (0.391, ".1%", "39.1\u00a0%"),
        (278.4, "0", "278"),
        (49.26, "1", "49.3"),
        (105.4e6, "M", "105M"),
    ],
)
def test_values_look_as_in_the_report(value, form, expected):
    assert format(Value(value, {}), form) == expected


def test_other_columns_of_a_value_are_attributes():
    value = Value(0.105, {"low": 0.0974, "n": 500})
    assert f"{value} ({value.low}, {value.n})" == ".105 (.097, 500)"
    with pytest.raises(AttributeError):
        value.high  # noqa: B018

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
from backend.store.database import open_work, read_pointer
from backend.store.result_queries import matching_rows, open_reading
from jobs import __main__ as verbs
from jobs._results.book import Uncited
from jobs._results.excerpts import DECLARED, Excerpts, Value
from jobs._results.marks import MARKED, changed_marks, fill, unmarked_tables
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
    with contextlib.closing(open_reading(read_pointer(REPOSITORY / "data")[1])) as cursor:
        yield cursor


@pytest.fixture(scope="module")
def excerpts(served):
    return Excerpts(served, Uncited.read(served))


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """README and docs in a folder of their own, which is the current one."""
    (tmp_path / "docs").mkdir()
    for page in PAGES:
        shutil.copy(page, tmp_path / page.relative_to(REPOSITORY))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pages_agree_with_the_shipped_database(copied, capsys):
    data = ["--data", str(REPOSITORY / "data")]
    assert verbs.main(["results", *data, "--check"]) == 0, capsys.readouterr().out
    before = {page: page.read_bytes() for page in copied.rglob("*.md")}
    assert verbs.main(["results", *data]) == 0
    assert {page: page.read_bytes() for page in copied.rglob("*") if page.is_file()} == before


def test_check_names_file_and_table(copied, capsys):
    readme, report = copied / "README.md", copied / "docs" / "results.md"
    text = readme.read_text("utf-8")
    found = next(found for found in MARKED.finditer(text) if found["names"] == "accuracy")
    readme.write_text(text.replace(found["body"], found["body"].replace(" ± ", " +- ")), "utf-8")
    report.write_text(report.read_text("utf-8").replace("## Blocks of READER\n", "## Blocks of READER\n\nx\n"), "utf-8")
    assert verbs.main(["results", "--data", str(REPOSITORY / "data"), "--check"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said == ["docs/results.md: section 'Blocks of READER' differs", "README.md: accuracy differs"]
    assert " +- " in readme.read_text("utf-8")  # a check writes nothing


def test_a_report_elsewhere_leaves_the_pages_alone(copied, tmp_path):
    readme = copied / "README.md"
    readme.write_text("<!-- results: accuracy -->\n<!-- /results -->\n", "utf-8")
    command = ["results", "--data", str(REPOSITORY / "data"), "--to", str(tmp_path / "elsewhere.md")]
    assert verbs.main(command) == 0
    assert "\n\n" not in readme.read_text("utf-8")
    assert "|" not in readme.read_text("utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "results.md"], ids=lambda page: page.name)
def test_no_decimals_stand_in_a_table_outside_marks(page):
    headers = [row for _, row in unmarked_tables(page.read_text("utf-8"))]
    allowed = tuple(header for name, header in EXCEPTIONS if name == page.name)
    assert [row for row in headers if not row.startswith(allowed or "\0")] == []


def test_every_exception_is_needed():
    for name, header in EXCEPTIONS:
        rows = [row for _, row in unmarked_tables((REPOSITORY / "docs" / name).read_text("utf-8"))]
        assert any(row.startswith(header) for row in rows), (name, header)


def test_the_readme_has_no_number_outside_marks():
    text = MARKED.sub("", (REPOSITORY / "README.md").read_text("utf-8"))
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|https?://\S+", "", text, flags=re.DOTALL)
    assert re.findall(r"(?<![\w.-])\.\d+|\d+\.\d{2,}", prose) == []
    assert not list(unmarked_tables((REPOSITORY / "README.md").read_text("utf-8")))


def test_everything_declared_is_shown(excerpts):
    entries = tomllib.loads(DECLARED.read_text("utf-8"))
    shown = {name for page in PAGES for found in MARKED.finditer(page.read_text("utf-8")) for name in found["names"].split()}
    assert {*entries["tables"], *entries["sentences"]} <= shown
    assert shown <= set(excerpts.names())


def test_published_numbers_name_their_file():
    for name, entry in tomllib.loads(DECLARED.read_text("utf-8"))["sentences"].items():
        origins = [entry.get("origin"), *(value.get("origin") for value in entry["values"].values())]
        if "published" in origins:
            assert "ublished*" in entry["text"], name
            assert ".file}" in entry["text"] or "`results/" in entry["text"], name


def test_what_is_missing_comes_with_a_command(tmp_path):
    path = tmp_path / "work.duckdb"
    open_work(path).close()
    with contextlib.closing(open_reading(path)) as cursor:
        empty = Excerpts(cursor, Uncited.read(cursor))
        for name in empty.names():
            text = empty.text(name)
            assert not re.search(r"(?<![\w.])\.\d{3}", text) or name.startswith("goals"), name
            if not name.startswith(("goals", "blocks", "costs")):
                assert "ot measured: `python -m jobs " in text, name
            for command in re.findall(r"`(python -m jobs [^`]*)`", text):
                check(command)
            for row in text.splitlines()[2:] if text.startswith("|") else ():
                assert row.count("|") == text.splitlines()[0].count("|"), row


def test_one_missing_row_leaves_the_others(served, tmp_path):
    work = tmp_path / "work.duckdb"
    shutil.copy(read_pointer(REPOSITORY / "data")[1], work)
    with contextlib.closing(open_work(work)) as connection:
        connection.execute("DELETE FROM attribution_metrics WHERE reader = 'ngram-word' AND condition = 't64'")
    with contextlib.closing(open_reading(work)) as cursor:
        table = Excerpts(cursor, Uncited.read(cursor)).text("readers")
    (row,) = (line for line in table.splitlines() if line.startswith("| word n-grams"))
    assert row.count("not measured: `python -m jobs evaluate --roster 100-way --stage baselines,stress") == 1
    assert len(re.findall(r"\.\d{3} / \.\d{3}", row)) == 4
    others = [line for line in table.splitlines()[2:] if not line.startswith("| word n-grams")]
    assert others
    assert all("not measured" not in line for line in others)


def test_cells_are_those_of_the_store(served, excerpts):
    where = {"reader": "fused-live/smollm2-135m/ur", "roster": "100-way", "benchmark": "agent500", "k": 100}
    where |= {"metric": "accuracy", "reduction": "pooled"}
    for condition, column in (("clean", 1), ("t64", 3)):
        (row,) = matching_rows(served, "attribution_metrics", where | {"condition": condition})
        (line,) = (line for line in excerpts.text("readers").splitlines() if line.startswith("| `fused-live`"))
        assert line.split("|")[column + 1].split("/")[1].strip() == f"{row['value']:.3f}".lstrip("0")


def test_published_best_on_math100_is_that_of_its_file(excerpts):
    text = excerpts.text("other-domain")
    assert "*Published* at best is .378 (`results/statistics/fold_variation/finetuned_qwen3emb.json`)" in " ".join(text.split())


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
    entry = '[defaults]\n[tables]\n[sentences.odd]\ntext = "{a}"\ncommand = "c"\n[sentences.odd.values]\na = { colour = 1 }\n'
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
        (0.391, ".1%", "39.1%"),
        (278.4, "0", "278"),
        (49.26, "1", "49.3"),
        (105.4e6, "M", "105M"),
    ],
)
def test_values_look_as_in_the_report(value, form, expected):
    assert format(Value(value, {}), form) == expected


def test_other_columns_of_a_value_are_attributes():
    value = Value(0.105, {"low": 0.0974, "n": 500})
    assert "{v} ({v.low}, {v.n})".format(v=value) == ".105 (.097, 500)"
    with pytest.raises(AttributeError):
        value.high  # noqa: B018

"""The release reader: counts and traps of the real release that everything else relies on, errors on a fake one."""

from __future__ import annotations

import gzip
import json
import os
import statistics
from collections import Counter
from pathlib import Path

import pytest

from backend.corpus.release import (
    ROSTERS,
    SPLIT_PAIRS,
    ListedFile,
    Release,
    Stamps,
    default_release,
    listed_files,
    parse_manifest,
    read_jsonl_gz,
)
from backend.errors import AtlasError
from tests.fake_release import fake_release, rewrite_manifest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def fake(tmp_path: Path) -> Release:
    return Release(fake_release(tmp_path / "fake"))


# The real release


@pytest.mark.release
class TestRealRelease:
    def test_manifest_lists_every_file_and_nothing_else(self, release: Release) -> None:
        on_disk = {p.relative_to(release.data).as_posix() for p in release.data.rglob("*") if p.is_file()}
        listed = {f.path for f in release.listed}
        assert len(release.listed) == 409
        assert on_disk - listed == {"manifests/release.json"} and listed <= on_disk
        kinds = Counter(
            (f.path.split("/")[0], f.jsonl_sha256 is not None and f.records is not None and f.size is not None)
            for f in release.listed
        )
        # 67 response files, prompts and two pair lists of Bench-A are gzipped; its models and three splits are not.
        assert kinds == {
            ("prompts", True): 2,
            ("rosters", False): 3,
            ("responses", True): 330,
            ("bench_a", True): 70,
            ("bench_a", False): 4,
        }

    def test_every_hash_is_right(self, release: Release) -> None:
        first = release.verify()
        assert (first.files, first.responses, first.hashed) == (409, 139_200, 409)
        assert first.size == sum((release.data / f.path).stat().st_size for f in release.listed)
        assert release.verify().hashed == 0

    def test_a_label_has_one_file_a_benchmark(self, release: Release) -> None:
        labels = set(release.roster()["label"])
        for benchmark in ("agent500", "math100"):
            files = {p.name.removesuffix(".jsonl.gz") for p in (release.data / "responses" / benchmark).iterdir()}
            assert files == labels and len(files) == 165

    def test_rosters_nest_as_prefixes_and_are_not_sorted(self, release: Release) -> None:
        rosters = [release.roster(name) for name in ROSTERS]
        longest = rosters[-1]["label"].tolist()
        assert release.roster_sizes() == (50, 100, 165) == tuple(len(r) for r in rosters)
        for roster in rosters:
            assert roster["label"].tolist() == longest[: len(roster)]
            assert roster["label"].is_unique and not roster["label"].is_monotonic_increasing
        assert [r["plot_family"].nunique() for r in rosters[1:]] == [16, 19]

    def test_agent500(self, release: Release) -> None:
        panel, records = release.prompts("agent500"), release.records("agent500")
        assert len(panel) == 500 and panel["category"].nunique() == 10 and panel["category"].notna().all()
        assert len(records.traces) == len(set(records.keys)) == 82_500 == 165 * len(records.prompt_ids)
        assert (
            records.prompt_ids == sorted(records.prompt_ids) and records.sources == release.roster()["label"].tolist()
        )
        lengths = [len(t.response) for t in records.traces]
        assert min(lengths) == 1, "one-character responses exist, empty ones do not"
        assert statistics.median(lengths) == 561
        start = 500 * records.sources.index("gpt_5_nano_2025_08_07")
        assert round(statistics.mean(lengths[start : start + 500])) == 5_166
        row = 7 * 500 + 123
        assert records.keys[row] == f"agent500/{records.sources[7]}/rand-000123"
        assert records.traces[row].prompt == panel["prompt"][123]

    def test_math100(self, release: Release) -> None:
        panel, records = release.prompts("math100"), release.records("math100")
        assert len(panel) == 100 and panel["category"].isna().all()
        assert len(records.traces) == len(set(records.keys)) == 16_500
        assert all(t.response for t in records.traces)

    def test_sample_ids_of_the_benchmarks_collide(self, release: Release) -> None:
        agent, math = release.prompts("agent500"), release.prompts("math100")
        assert set(math["sample_id"]) <= set(agent["sample_id"])
        both = agent.merge(math, on="sample_id")
        assert len(both) == 100 and (both["prompt_x"] != both["prompt_y"]).all()

    def test_bench_a(self, release: Release) -> None:
        models, records = release.bench_models(), release.bench_records()
        assert len(models) == 67 and models["parent_family"].nunique() == 9 and models["is_parent"].sum() == 9
        assert set(models.loc[models["is_parent"], "model"]) == set(models["parent_family"])
        assert len(records.traces) == 40_200 == 67 * 600
        assert records.sources == models["model"].tolist()
        empty = Counter(
            k.rsplit("/", 1)[0] for k, t in zip(records.keys, records.traces, strict=True) if not t.response
        )
        assert empty == {"bench_a/rudrashah/RLM-spell-checker": 600, "bench_a/nguyenthanhdo/phi-half": 1}
        for source in range(67):
            assert records.traces[source * 600 + 5].prompt == records.traces[5].prompt

    def test_pairs(self, release: Release) -> None:
        main, union = release.pairs("pair_disjoint"), release.pairs("disjoint_union")
        assert len(main) == 116 and main["related"].sum() == 58
        assert len(union) == 1_647
        assert not set(main["pair_id"]) & set(union["pair_id"])
        models = set(release.bench_models()["model"])
        for pairs in (main, union):
            assert set(pairs["model_a"]) | set(pairs["model_b"]) <= models
            assert ((pairs["parent_a"] == pairs["parent_b"]) == pairs["related"]).all()

    def test_splits(self, release: Release) -> None:
        splits = {name: release.splits(name) for name in SPLIT_PAIRS}
        assert {name: len(s) for name, s in splits.items()} == {
            "pair_disjoint": 20,
            "model_disjoint": 20,
            "family_disjoint": 36,
        }
        assert all((len(s.train), len(s.test)) == (92, 24) for s in splits["pair_disjoint"])
        for name, pair_set in SPLIT_PAIRS.items():
            pairs = release.pairs(pair_set).set_index("pair_id")
            for split in splits[name]:
                train, test = pairs.loc[split.train], pairs.loc[split.test]
                for side in (train, test):
                    assert side["related"].sum() * 2 == len(side) > 0, "every side is balanced"
                ends = [set(side["model_a"]) | set(side["model_b"]) for side in (train, test)]
                families = [set(side["parent_a"]) | set(side["parent_b"]) for side in (train, test)]
                if name != "pair_disjoint":
                    assert not ends[0] & ends[1]
                    assert len(split.held_out_families) == 2 and families[1] <= set(split.held_out_families)
                if name == "family_disjoint":
                    assert not families[0] & families[1]


# The fake release


def test_fake_release_reads_like_the_real_one(fake: Release) -> None:
    records = fake.records("agent500")
    assert fake.roster_sizes() == (2, 4, 6) and len(records.traces) == 6 * 20
    assert records.sources == fake.roster()["label"].tolist() != sorted(records.sources)
    assert "." in {t.response for t in records.traces}
    assert set(fake.prompts("math100")["sample_id"]) < set(fake.prompts("agent500")["sample_id"])
    bench = fake.bench_records()
    assert [t.response for t in bench.traces[-5:]] == [""] * 5
    assert {name: len(fake.splits(name)) for name in SPLIT_PAIRS} == dict.fromkeys(SPLIT_PAIRS, 3)
    assert fake.verify().responses == 6 * 20 + 6 * 10 + 6 * 5


def test_fake_release_is_reproducible_and_scales(tmp_path: Path) -> None:
    one, two = (Release(fake_release(tmp_path / name, sources=9, prompts=7)) for name in "ab")
    assert one.manifest_hash == two.manifest_hash
    assert one.roster_sizes() == (3, 6, 9)
    assert len({t.response for t in one.records("agent500").traces}) > 55
    assert Release(fake_release(tmp_path / "c", seed=1)).manifest_hash != one.manifest_hash


def test_fake_sources_can_be_told_apart(fake: Release) -> None:
    """Character counts alone and a nearest mean on other prompts: far above one in six."""
    records = fake.records("agent500")
    letters = sorted({c for t in records.traces for c in t.response})
    shares = [[t.response.count(c) / len(t.response) for c in letters] for t in records.traces]
    means = [[statistics.mean(c) for c in zip(*shares[s * 20 : s * 20 + 10], strict=True)] for s in range(6)]

    def nearest(row: list[float]) -> int:
        return min(range(6), key=lambda s: sum((a - b) ** 2 for a, b in zip(row, means[s], strict=True)))

    hits = [nearest(shares[s * 20 + p]) == s for s in range(6) for p in range(10, 20)]
    assert statistics.mean(hits) > 0.7


def test_default_release_follows_the_environment(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.delenv("ATLAS_RELEASE", raising=False)
    assert default_release() == cache / "release"
    monkeypatch.setenv("ATLAS_RELEASE", "~/somewhere")
    assert default_release() == Path.home() / "somewhere"


# Checking


def test_verify_reads_again_only_what_changed(fake: Release) -> None:
    first = fake.verify()
    assert first.hashed == first.files == 4 + 1 + 12 + 6 + 7
    assert fake.verify().hashed == 0
    path = fake.data / "rosters" / "50-way.json"
    os.utime(path, ns=(1, 1))
    assert fake.verify().hashed == 1
    assert fake.verify(remember=False).hashed == first.files


def test_verify_leaves_the_release_alone(fake: Release) -> None:
    before = {p: p.stat().st_mtime_ns for p in fake.root.rglob("*")}
    fake.verify()
    assert {p: p.stat().st_mtime_ns for p in fake.root.rglob("*")} == before


def test_verify_notices_a_new_manifest(fake: Release) -> None:
    fake.verify()
    manifest = json.loads(fake.manifest_path.read_text("utf-8"))
    label = fake.roster()["label"][0]
    manifest["responses"][label]["math100"]["jsonl_sha256"] = "0" * 64
    fake.manifest_path.write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(AtlasError, match=f"uncompressed content of .*{label}.jsonl.gz has the wrong checksum"):
        Release(fake.root).verify()


def test_verify_works_without_a_cache_that_can_be_written(
    fake: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder", "utf-8")
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "file"))
    assert fake.verify().hashed == fake.verify().hashed > 0


def test_damaged_stamps_are_ignored(fake: Release) -> None:
    fake.verify()
    Stamps(fake.root).path.write_text("{ torn", "utf-8")
    assert fake.verify().hashed == fake.verify(remember=False).hashed


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(raw)


def _recompress(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=1, mtime=0))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, "is missing"),
        (_truncate, "is a truncated gzip file"),
        (_flip, "is not an intact gzip file|is a truncated gzip file"),
        (_recompress, "the manifest says|wrong checksum"),
        (lambda path: path.write_bytes(b"no gzip at all"), "is not an intact gzip file"),
        (lambda path: path.write_bytes(b""), "the manifest says"),
    ],
    ids=["missing", "truncated", "flipped", "recompressed", "not gzip", "empty"],
)
def test_verify_names_the_damaged_file(fake: Release, damage, message: str) -> None:
    fake.verify()
    path = fake.data / "bench_a" / "responses" / "Org1__child1.jsonl.gz"
    damage(path)
    with pytest.raises(AtlasError, match=message) as caught:
        fake.verify()
    assert str(path) in caught.value.problem
    assert "python -m jobs fetch" in caught.value.remedy
    assert str(caught.value).count("\n") == 0


def test_verify_checks_plain_files_too(fake: Release) -> None:
    path = fake.data / "bench_a" / "splits" / "family_disjoint.json"
    path.write_text(path.read_text("utf-8") + " ", "utf-8")
    with pytest.raises(AtlasError, match=r"family_disjoint.json has the wrong checksum"):
        fake.verify()


def test_verify_counts_lines(fake: Release) -> None:
    manifest = json.loads(fake.manifest_path.read_text("utf-8"))
    manifest["benchmarks"]["math100"]["records"] = 11
    fake.manifest_path.write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(AtlasError, match=r"math100.jsonl.gz holds 10 records, and the manifest says 11"):
        Release(fake.root).verify()


def test_missing_release_is_one_sentence(tmp_path: Path) -> None:
    release = Release(tmp_path / "nowhere")
    with pytest.raises(AtlasError, match=r"There is no release in .*nowhere") as caught:
        release.verify()
    assert "python -m jobs fetch" in str(caught.value)
    with pytest.raises(AtlasError, match=r"agent500.jsonl.gz does not exist"):
        release.records("agent500")
    with pytest.raises(AtlasError, match=r"50-way.json cannot be read"):
        release.roster("50-way")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"schema_version": 2}', "schema version 2.*reads up to 1"),
    ],
)
def test_bad_manifests(raw: bytes, message: str) -> None:
    with pytest.raises(AtlasError, match=message):
        parse_manifest(raw, "release.json")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"path": "../secret", "sha256": "0" * 64}, "'../secret', which is not a path inside"),
        ({"path": "/etc/passwd", "sha256": "0" * 64}, "not a path inside"),
        ({"path": "a\\..\\b", "sha256": "0" * 64}, "not a path inside"),
        ({"roster": "rosters/../../x", "roster_sha256": "0" * 64}, "not a path inside"),
        ({"path": "a.json"}, "a.json without its sha256"),
        ({"path": "a.jsonl.gz", "gzip_sha256": "0" * 64}, "a.jsonl.gz without its jsonl_sha256"),
        ({"roster": "a.json", "roster_sha256": "short"}, "a.json without its roster_sha256"),
        ({"nothing": 1}, "lists no files"),
    ],
)
def test_bad_manifest_entries(entry: dict[str, str], message: str) -> None:
    with pytest.raises(AtlasError, match=message):
        listed_files({"somewhere": [{"deep": entry}]})


def test_a_file_listed_twice_must_agree() -> None:
    one, two = {"path": "a.json", "sha256": "0" * 64}, {"path": "a.json", "sha256": "1" * 64}
    assert listed_files({"x": [one, dict(one)]}) == [ListedFile("a.json", "0" * 64)]
    with pytest.raises(AtlasError, match="twice"):
        listed_files({"x": [one, two]})


# Reading what is wrong although its hash may be right


def _change(path: Path, line: int, **values: object) -> None:
    rows = [json.loads(text) for text in gzip.decompress(path.read_bytes()).splitlines()]
    rows[line] = {k: v for k, v in (rows[line] | values).items() if v is not None}
    path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode()))


@pytest.mark.parametrize(
    ("line", "values", "message"),
    [
        (3, {"response": None}, "line 4, has no text 'response'"),
        (3, {"response": 5}, "line 4, has no text 'response'"),
        (3, {"label": "someone_else"}, "line 4, is labelled 'someone_else'"),
        (3, {"prompt": "another question"}, "line 4, does not hold the prompt 'rand-000003'"),
        (3, {"sample_id": "rand-999999"}, "line 4, does not hold the prompt 'rand-999999'"),
    ],
)
def test_records_name_the_line(fake: Release, line: int, values: dict[str, object], message: str) -> None:
    path = fake.data / "responses" / "agent500" / f"{fake.roster()['label'][2]}.jsonl.gz"
    _change(path, line, **values)
    rewrite_manifest(fake.root)
    with pytest.raises(AtlasError, match=message) as caught:
        fake.records("agent500")
    assert str(path) in caught.value.problem


def test_records_must_answer_every_prompt_once(fake: Release) -> None:
    path = fake.data / "responses" / "agent500" / f"{fake.roster()['label'][2]}.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:4] + lines[5:])))
    with pytest.raises(AtlasError, match="lacks 1 of the 20 prompts, the first is 'rand-000004'"):
        fake.records("agent500")
    path.write_bytes(gzip.compress(b"".join([*lines, lines[4]])))
    with pytest.raises(AtlasError, match="line 21, answers the prompt 'rand-000004' a second time"):
        fake.records("agent500")


def test_row_order_does_not_depend_on_line_order(fake: Release) -> None:
    before = fake.records("agent500")
    path = fake.data / "responses" / "agent500" / f"{before.sources[1]}.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(reversed(lines))))
    assert fake.records("agent500") == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n[1]\n', "line 2, is not a JSON object"),
        (b'{"a": 1}\n{"a"\n', "line 2, is not valid JSON"),
        (b'{"a": "\xff"}\n', "not UTF-8"),
    ],
)
def test_jsonl_errors_name_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(AtlasError, match=message) as caught:
        list(read_jsonl_gz(path))
    assert str(path) in caught.value.problem


def test_jsonl_keeps_line_separators_inside_texts(tmp_path: Path) -> None:
    rows = [{"text": "a\u2028b\x85c\rd\n"}, {"text": ""}]
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()))
    assert [row for _, row in read_jsonl_gz(path)] == rows


def test_roster_and_split_errors(fake: Release) -> None:
    with pytest.raises(AtlasError, match="no roster '7-way'"):
        fake.roster("7-way")
    path = fake.data / "rosters" / "165-way.json"
    path.write_text('[{"label": "a"}]', "utf-8")
    with pytest.raises(AtlasError, match="entry 0, has no 'plot_family'"):
        fake.roster()
    path.write_text("{}", "utf-8")
    with pytest.raises(AtlasError, match="does not hold a list"):
        fake.roster()
    splits = fake.data / "bench_a" / "splits" / "pair_disjoint.json"
    whole = json.loads(splits.read_text("utf-8"))
    for change, message in (
        ({"train_pair_ids": ["pair_99999"]}, "split 0, names the unknown pair 'pair_99999'"),
        ({"train_pair_ids": whole["splits"][0]["test_pair_ids"]}, "on both sides"),
        ({"split_id": None}, "split 0, is not complete"),
    ):
        splits.write_text(json.dumps({"splits": [whole["splits"][0] | change]}), "utf-8")
        with pytest.raises(AtlasError, match=message):
            fake.splits("pair_disjoint")

"""A tiny release with invented text: the layout, the traps and the manifest of the real one, in a few kilobytes.

``fake_release(tmp_path)`` writes one and returns its folder; ``rewrite_manifest(folder)`` makes the hashes right again
after a test has changed a file. The sources differ in wording, punctuation and layout, so that attribution beats chance
already with a handful of prompts; sources of one family share their vocabulary and differ in habits only.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

CATEGORIES = ("Code review", "Deployment", "Data systems", "Testing")
_TASKS = ("Restart", "Describe", "Repair", "Test", "Move", "Measure", "Rename", "Protect", "Compare", "Schedule")
_THINGS = ("queue", "backup", "login page", "sensor log", "price table", "build cache", "mail filter", "index")
_PLACES = ("in the north depot", "before Friday", "without downtime", "for two tenants", "on a small machine")
_VOCABULARIES = (
    ("Alder", "sails kelp harbour anchor tide mast rope gull cargo lantern"),
    ("Birch", "function returns value index buffer null thread mutex pointer stack"),
    ("Cedar", "flour butter oven whisk sugar dough simmer pepper basil broth"),
    ("Dogwood", "orbit comet lens gravity telescope nebula crater solar drift probe"),
    ("Elm", "verdict clause treaty tenant statute appeal notary deed warrant oath"),
)


def _eager(words: Sequence[str]) -> str:
    return "Certainly! " + " ".join(words).capitalize() + ". I hope this helps!"


def _list_like(words: Sequence[str]) -> str:
    return "\n".join(f"- **{word}**" for word in words)


def _shouting(words: Sequence[str]) -> str:
    return " ".join(words).upper() + "!!!"


def _numbered(words: Sequence[str]) -> str:
    return "\n".join(f"{n}. {word};" for n, word in enumerate(words, start=1))


def _code(words: Sequence[str]) -> str:
    return "```python\n" + "\n".join(f"{word} = '{word}'" for word in words) + "\n```"


def _dashes(words: Sequence[str]) -> str:
    return " — ".join(words) + " …"


_HABITS = (_eager, _list_like, _shouting, _numbered, _code, _dashes)


def fake_release(
    root: Path,
    *,
    sources: int = 6,
    prompts: int = 20,
    math_prompts: int = 10,
    bench_models: int = 6,
    bench_prompts: int = 5,
    seed: int = 0,
) -> Path:
    """Write a valid release.

    Parameters
    ----------
    root : Path
        Folder to write to, made if need be.
    sources : int
        Sources of the longest roster; the three rosters hold a third, two thirds and all of them.
    prompts, math_prompts : int
        Prompts of Agent500 and Math100; their sample ids collide, as in the real release.
    bench_models, bench_prompts : int
        Size of Bench-A; its last model answers nothing at all.
    seed : int
        Of the invented text.

    Returns
    -------
    Path
        ``root``.
    """
    data = root / "data"
    labels, roster = [], []
    for i in range(sources):
        family, _ = _VOCABULARIES[(i // 2) % len(_VOCABULARIES)]
        # Descending labels: a roster is not sorted.
        labels.append(f"{chr(ord('z') - i % 26)}_{family.lower()}_{i:03d}")
        entry = {"label": labels[-1], "repo_id": f"{family}/{labels[-1]}", "family": family.lower()}
        entry |= {"plot_family": family, "source": "local_invented"}
        if i % 3 == 2:
            entry["model_id"] = f"api-{labels[-1]}"
        roster.append(entry)
    sizes = [max(1, sources // 3), max(1, 2 * sources // 3), sources]
    for name, size in zip(("50-way", "100-way", "165-way"), sizes, strict=True):
        _write_json(data / "rosters" / f"{name}.json", roster[:size])

    panels = {"agent500": prompts, "math100": math_prompts}
    for benchmark, count in panels.items():
        rng = random.Random(f"{seed}/{benchmark}")
        panel = [{"sample_id": f"rand-{i:06d}", "prompt": _prompt(rng, benchmark, i)} for i in range(count)]
        if benchmark == "agent500":
            for i, row in enumerate(panel):
                row["category"] = CATEGORIES[i % len(CATEGORIES)]
        _write_jsonl(data / "prompts" / f"{benchmark}.jsonl.gz", panel)
        for number, label in enumerate(labels):
            rows = []
            for i, row in enumerate(panel):
                response = _response(number, f"{seed}/{benchmark}/{label}/{i}")
                if benchmark == "agent500" and number == sources - 1 and i == count - 1:
                    response = "."  # one character, as in the real release
                rows.append(
                    {"sample_id": row["sample_id"], "prompt": row["prompt"], "response": response, "label": label}
                    | {"model_name": label, "run_id": "invented", "timestamp": "2026-01-01T00:00:00+00:00"}
                    | {"probe_category": "rand"}
                )
            _write_jsonl(data / "responses" / benchmark / f"{label}.jsonl.gz", rows)

    _bench_a(data, bench_models, bench_prompts, seed)
    budget = {"1": {"accuracy": 0.5, "macro_f1": 0.4, "nll": 1.5, "ece": 0.1, "n_fingerprints": sources * prompts}}
    published = {"configs": {"dct_dc_ac_fullrank": {"cv_metrics_by_grouping_seed": {"42": budget}}}}
    _write_json(root / "results" / "reader" / "agent500" / "invented_ur.json", published)
    rewrite_manifest(root)
    return root


def rewrite_manifest(root: Path) -> None:
    """Write the manifest that fits the files as they are now."""
    data = root / "data"
    names = ("50-way", "100-way", "165-way")
    rosters = {name: json.loads((data / "rosters" / f"{name}.json").read_text("utf-8")) for name in names}
    panels = {b: _gzip_entry(data, f"prompts/{b}.jsonl.gz") for b in ("agent500", "math100")}
    models = json.loads((data / "bench_a" / "models.json").read_text("utf-8"))
    manifest = {
        "schema_version": 1,
        "name": "invented release",
        "benchmarks": panels,
        "variants": {
            name: {
                "targets": len(rows),
                "roster": f"rosters/{name}.json",
                "roster_sha256": _sha256(data / "rosters" / f"{name}.json"),
                "labels": [row["label"] for row in rows],
            }
            for name, rows in rosters.items()
        },
        "responses": {
            row["label"]: {b: _gzip_entry(data, f"responses/{b}/{row['label']}.jsonl.gz") for b in panels}
            for row in rosters["165-way"]
        },
        "bench_a": {
            "models": len(models),
            "prompt_panel": _gzip_entry(data, "bench_a/prompts.jsonl.gz"),
            "model_roster": _plain_entry(data, "bench_a/models.json"),
            "responses": {m["model"]: _gzip_entry(data, m["response_path"]) for m in models},
            "main_pairs": _gzip_entry(data, "bench_a/pairs/pair_disjoint.jsonl.gz"),
            "disjoint_pairs": _gzip_entry(data, "bench_a/pairs/disjoint_union.jsonl.gz"),
            "splits": {
                name: _plain_entry(data, f"bench_a/splits/{name}.json")
                for name in ("pair_disjoint", "model_disjoint", "family_disjoint")
            },
        },
    }
    _write_json(data / "manifests" / "release.json", manifest)


def _prompt(rng: random.Random, benchmark: str, number: int) -> str:
    if benchmark == "math100":
        return (
            f"A cart holds {rng.randint(2, 90)} crates and loses {rng.randint(2, 90)}. Problem {number}: what is left?"
        )
    return f"{rng.choice(_TASKS)} the {rng.choice(_THINGS)} {rng.choice(_PLACES)} (ticket {number})."


def _response(number: int, seed: str) -> str:
    rng = random.Random(seed)
    _, words = _VOCABULARIES[(number // 2) % len(_VOCABULARIES)]
    choices = words.split()
    habit = _HABITS[(number + number // (2 * len(_VOCABULARIES))) % len(_HABITS)]
    return habit([rng.choice(choices) for _ in range(rng.randint(6, 14))])


def _bench_a(data: Path, models: int, prompts: int, seed: int) -> None:
    folder = data / "bench_a"
    panel = [
        {
            "prompt": f"The {_THINGS[i % len(_THINGS)]} was known for its",
            "prompt_index": i,
            "sample_id": f"bench-a-{i:06d}",
        }
        for i in range(prompts)
    ]
    _write_jsonl(folder / "prompts.jsonl.gz", panel)
    rows = []
    for i in range(models):
        family, name = f"Org{i // 2}/parent{i // 2}", f"Org{i // 2}/{'parent' if i % 2 == 0 else 'child'}{i // 2}"
        path = f"bench_a/responses/{name.replace('/', '__')}.jsonl.gz"
        rows.append({"model": name, "parent_family": family, "is_parent": i % 2 == 0, "response_path": path})
        silent = i == models - 1
        answers = []
        for j, row in enumerate(panel):
            response = "" if silent else _response(i, f"{seed}/bench_a/{i // 2}/{j}")
            answers.append(
                {**row, "label": name, "model_name": name, "response": response, "empty_response": not response}
            )
        _write_jsonl(data / path, answers)
    _write_json(folder / "models.json", rows)

    related, unrelated = [], []
    for a, b in itertools.combinations(rows, 2):
        pair = {
            "model_a": a["model"],
            "model_b": b["model"],
            "parent_a": a["parent_family"],
            "parent_b": b["parent_family"],
        }
        (related if a["parent_family"] == b["parent_family"] else unrelated).append(pair)
    main = [
        {"pair_id": f"pair_{i:05d}", "label": label, "label_name": ("unrelated", "related")[label], **pair}
        for i, (label, pair) in enumerate(
            [entry for both in zip(related, unrelated, strict=False) for entry in zip((1, 0), both, strict=True)]
        )
    ]
    union = [{**p, "pair_id": "pair_" + hashlib.sha256(p["pair_id"].encode()).hexdigest()[:16]} for p in main]
    _write_jsonl(folder / "pairs" / "pair_disjoint.jsonl.gz", main)
    _write_jsonl(folder / "pairs" / "disjoint_union.jsonl.gz", union)
    for name, pairs in (("pair_disjoint", main), ("model_disjoint", union), ("family_disjoint", union)):
        ids = [p["pair_id"] for p in pairs]
        splits = [
            {"split_id": i, "train_pair_ids": ids[:j] + ids[j + 2 :], "test_pair_ids": ids[j : j + 2]}
            | ({} if name == "pair_disjoint" else {"held_out_parent_families": [pairs[j]["parent_a"]]})
            for i, j in enumerate(range(0, len(ids), 2))
        ]
        _write_json(folder / "splits" / f"{name}.json", {"summary": {"n_splits": len(splits)}, "splits": splits})


def _gzip_entry(data: Path, path: str) -> dict[str, Any]:
    raw = (data / path).read_bytes()
    content = gzip.decompress(raw)
    return {
        "path": path,
        "records": content.count(b"\n"),
        "jsonl_sha256": hashlib.sha256(content).hexdigest(),
        "gzip_sha256": hashlib.sha256(raw).hexdigest(),
        "bytes": len(raw),
    }


def _plain_entry(data: Path, path: str) -> dict[str, Any]:
    return {"path": path, "sha256": _sha256(data / path)}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def _write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))

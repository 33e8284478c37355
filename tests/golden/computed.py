"""What is recorded: one function a part, each from inputs to a small document of hashes and numbers."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import dash
import duckdb
import torch
from flask.testing import FlaskClient
from plotly.utils import PlotlyJSONEncoder

from atlas.application import PAGES, create_application
from atlas.pages import compare
from backend.corpus.collection import RESPONSES
from backend.costs import stage as cost
from backend.enrolment.enrolment import Enrolment, arrays_of
from backend.enrolment.files import load_enrolment, save_enrolment
from backend.enrolment.fit import split_prompts
from backend.fingerprints import cache_folder
from backend.service.service import Service
from backend.store.database import publish
from jobs.__main__ import main
from tests.conftest import release_folder
from tests.fake_release import fake_release
from tests.golden.normal import components, digest, digests, normal
from tests.invented_atlas import MARKUP, publish_invented
from tests.invented_comparisons import write_comparisons
from tests.invented_relationships import write_relationships
from tests.served_api import HASH, serve, tiny_enrolment, tiny_reader, traces_of
from tests.tiny_models import save_tiny

Document = dict[str, Any]
PUBLISHED = Path(__file__).resolve().parents[2] / "data" / "enrolments"
PROXY, ENCODER = "smollm2-135m", "minilm-l6"
ENROLLED = ("smol-greedy", "smol-warm", "gemma-answer")
PROMPTS = 30
PROMPTS_TRIED = 10


def machine() -> Document:
    """What the last bits of a proxy's states depend on."""
    matrices = torch.cpu._is_amx_tile_supported()
    instructions = torch.backends.cpu.get_cpu_capability() + " and AMX" * matrices
    return {"torch": torch.__version__, "instructions": instructions, "machine": platform.machine()} | _processor()


def _processor() -> Document:
    """Its model and cache: oneDNN cuts products by them, so that sums are rounded in another order."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text("utf-8").splitlines() if known.exists() else []
    found = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
    return {name: found.get(name, "") for name in ("model", "stepping", "cache size")}


# tables


def tables(file: Path) -> Document:
    """Rows and hashes of every table of a database, by method, or what else tells its rows apart."""
    found: Document = {}
    with duckdb.connect(str(file), read_only=True) as connection:
        names = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY table_name").fetchall()
        for (table,) in names:
            if table != "schema_version":
                found[table] = _table(connection, table)
    return found


_LEFT_OUT = {"build_id", "command", "details", "engine", "hardware"}


def _table(connection: duckdb.DuckDBPyConnection, table: str) -> Document:
    cursor = connection.execute(f'SELECT * FROM "{table}"')
    columns = [column[0] for column in cursor.description or ()]
    groups: dict[str, list[str]] = {}
    for values in cursor.fetchall():
        row = {name: value for name, value in zip(columns, values, strict=True) if name not in _LEFT_OUT}
        if table == "costs" and row["measure"] not in ("trainable_parameters", "audit_parameters"):
            row["value"] = None
        method = str(row.get("reader") or "").partition("/")[0]
        group = method or str(row.get("hypotheses") or row.get("stage") or row.get("roster") or "rows")
        groups.setdefault(group, []).append(json.dumps(normal(row), sort_keys=True))
    found = {group: f"{len(rows)} {digest(sorted(rows), 12)}" for group, rows in sorted(groups.items())}
    return {"columns": " ".join(columns)} | found


def release(folder: Path) -> Document:
    """Tables of ``all`` on the first prompts of the release and its shortest roster, without a sentence encoder."""
    public = str(release_folder() or "")
    return _everything(folder, "--release", public, "--roster", "50-way", "--limit", "20")


def invented(folder: Path) -> Document:
    """Tables of ``all`` on an invented release, with every control and with what a sentence encoder reads."""
    made = fake_release(folder / "release", prompts=25)
    return _everything(folder, "--release", str(made), "--roster", "100-way,165-way", "--limit", "25")


def _everything(folder: Path, *options: str) -> Document:
    proxy = save_tiny(folder / "tiny")
    # Timings are not recorded, and a process for each of them is mostly start.
    with patch.object(cost, "in_fresh_process", lambda path, records: {"latency_ms": 1.0}):
        _run("all", "--proxy", str(proxy), "--layers", "1,3", *options, "--to", str(folder / "data"))
    return {
        "machine": machine(),
        "tables": tables(_generation(folder / "data")),
        "enrolments": {path.stem: load_enrolment(path).sha256 for path in _enrolments(folder / "data")},
    }


# enrolments and reports


def enrolment(found: Enrolment) -> Document:
    """Hash and facts of an enrolment, and a hash of every array."""
    arrays = arrays_of(found) | {f"attached.{name}": array for name, array in found.attachments.items()}
    return {
        "sha256": found.sha256,
        "facts": normal(dict(found.facts)),
        "arrays": {name: digest(array, 12) for name, array in sorted(arrays.items())},
    }


def sample(folder: Path) -> Document:
    """Published enrolments, the sample's made anew, and what they answer to responses that none of them has seen."""
    _run("enroll", "--sample", "--to", str(folder / "data"))
    (made,) = _enrolments(folder / "data")
    traces = _traces(folder, "gemma-answer", tried=True)
    both = _traces(folder, "smol-greedy", "gemma-answer", tried=True)
    shipped = {path.stem: path for path in sorted(PUBLISHED.glob("*.npz"))}
    reports = {name: _report(folder, traces, path) for name, path in shipped.items()}
    return {
        "machine": machine(),
        "published": {name: enrolment(load_enrolment(path)) for name, path in shipped.items()},
        "made": enrolment(load_enrolment(made)),
        "reports": reports
        | {
            "claimed": _report(folder, traces, made, "--claimed", "gemma-answer"),
            "wrong claim": _report(folder, traces, made, "--claimed", "smol-greedy", "--keep-text", "2"),
            "two sources": _report(folder, both, made, "--stop-level", ".01", "--prior-statement", "equal"),
        },
        "preview": _written(folder, "preview", str(traces)),
        "drift": _written(folder, "drift", str(both), "--enrolment", str(made)),
    }


def labelled(folder: Path) -> Document:
    """A small ecosystem of labelled traces: its rows, its enrolment, and its answer to traces of a known source."""
    file, tried = _traces(folder, *ENROLLED, tried=False), _traces(folder, ENROLLED[0], tried=True)
    work, data = folder / "work.duckdb", folder / "data"
    _run("enroll", str(file), "--label-column", "source", "--name", "golden", "--work", str(work), "--to", str(data))
    (made,) = _enrolments(data)
    return {
        "machine": machine(),
        "tables": tables(_generation(data)),
        "enrolment": enrolment(load_enrolment(made)),
        "reports": {"known source": _report(folder, tried, made, "--claimed", ENROLLED[0])},
    }


def _traces(folder: Path, *sources: str, tried: bool) -> Path:
    """A file of shipped responses to the first prompts that the sample enrols, or to those that it leaves out."""
    rows = [json.loads(line) for line in gzip.decompress(RESPONSES.read_bytes()).decode().splitlines()]
    some = split_prompts([row["sample_id"] for row in rows])[tried]
    prompts = set(some[: PROMPTS_TRIED if tried else PROMPTS])
    kept = [
        {name: row[name] for name in ("source", "prompt", "response")}
        for row in rows
        if row["source"] in sources and row["sample_id"] in prompts
    ]
    path = folder / f"{'-'.join(sources)}{'-tried' * tried}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in kept), "utf-8")
    return path


def _report(folder: Path, traces: Path, made: Path, *options: str) -> Document:
    page = folder / "report.html"
    _run("attribute", str(traces), "--enrolment", str(made), "--orders", "20", *options, "--report", str(page))
    report = json.loads(page.with_suffix(".json").read_text("utf-8"))
    _run("verify", str(page.with_suffix(".json")), "--traces", str(traces), "--enrolment", str(made))
    results = report["results"]
    verdict = {name: results[name] for name in ("verdict", "level", "reason", "leader", "claimed")}
    return {"verdict": normal(verdict), "parts": digests(report)}


def _written(folder: Path, verb: str, *options: str) -> Document:
    file = folder / f"{verb}.json"
    _run(verb, *options, "--json", str(file))
    return digests(json.loads(file.read_text("utf-8")))


def _enrolments(data: Path) -> list[Path]:
    return sorted((data / "enrolments").glob("*.npz"))


def _generation(data: Path) -> Path:
    return data / json.loads((data / "current.json").read_text("utf-8"))["file"]


def _run(*command: str) -> None:
    with patch.object(sys, "argv", ["jobs", *command]):  # reports and builds name their command
        code = main(list(command))
    assert code == 0, f"python -m jobs {' '.join(command)} ended with {code}"


# pages


def pages(folder: Path) -> Document:
    """Layout of every page in both themes, the frame around them, and the callbacks."""
    app = _application(folder)
    found: Document = {"layouts": {}}
    with app.server.test_request_context():
        found["frame"] = _layout(app.layout())
    addresses = list(itertools.product(_paths(), ("", "roster=12-way", "reader=ngram-word&roster=12-way&k=5")))
    for path, choice in [*addresses, *(("/compare", f"roster=12-way&figure={name}") for name in compare.FIGURES)]:
        address = f"{path}?{choice}".removesuffix("?")
        both = [_page(app, path, f"theme={theme}&{choice}".strip("&")) for theme in ("dark", "light")]
        dark, light = both
        changed = {name: text for name, text in light["ids"].items() if dark["ids"].get(name) != text}
        found["layouts"][address] = dark | {"light": {"sha256": light["sha256"], "ids": changed}}
        if choice:  # their ids are those of the page as it opens
            found["layouts"][address] = {"dark": dark["sha256"], "light": light["sha256"]}
    found["callbacks"] = {
        output: digest(
            {name: sorted(map(str, told.get(name, ()))) for name in ("inputs", "state")}
            | {"prevent_initial_call": told.get("prevent_initial_call")},
            8,
        )
        for output, told in sorted(app.callback_map.items())
    }
    return found


def _paths() -> list[str]:
    plain = [page.path for page in PAGES if "<" not in page.path]
    label, name = quote("gpt_1"), quote("GPT")
    filled = [
        page.path.replace("<label>", one).replace("<name>", other)
        for page in PAGES
        if "<" in page.path
        for one, other in ((label, name), ("hostile_1", "Qwen"))
    ]
    return [*plain, *dict.fromkeys(filled)]


def _page(app: Any, path: str, query: str) -> Document:
    """A page as the router lays it out: with the parts of its address, and the query."""
    with app.server.test_request_context(f"{path}?{query}"):
        page, variables = dash._pages._path_to_page(path.strip("/"))
        given = dict(part.split("=") for part in query.split("&"))
        layout = page["layout"]
        return _layout(layout(**(variables or {}), **given) if callable(layout) else layout)


def _layout(layout: Any) -> Document:
    told = json.loads(json.dumps(layout, cls=PlotlyJSONEncoder))
    return {"sha256": digest(told), "ids": {name: digest(held, 6) for name, held in sorted(components(told))}}


def _application(folder: Path) -> Any:
    """The atlas with everything that is invented for tests."""
    data, work = folder / "data", folder / "data" / "work" / "work.duckdb"
    publish_invented(data)
    write_comparisons(work)
    write_relationships(work)
    publish(work, data)
    save_enrolment(tiny_enrolment(), data / "enrolments" / "tiny.npz")
    with patch.object(Service, "warm", lambda self: None):  # it loads a proxy in the background
        return create_application(data, folder / "cache")


# REST


def rest(folder: Path) -> Document:
    """Answers of every GET route, of those about a job and a comparison that are done, and some refusals."""
    app = _application(folder)
    client = app.server.test_client()
    tables = ("sources", "neighbors", "attribution_metrics", "readers", "clusters", "nothing")
    addresses = [
        *("/health", "/ready", "/api/sources", "/api/sources?roster=12-way", "/api/sources?roster=none"),
        *(f"/api/neighbors/{quote(one, safe='')}?roster=27-way" for one in ("gpt_1", MARKUP, "hostile_2", "none")),
        *("/api/neighbors/gpt_1?top=3&domain=math100", "/api/neighbors/gpt_1?top=0", "/api/neighbors/gpt_1?roster=no"),
        *("/api/evaluations", "/api/evaluations?roster=12-way&k=5&metric=accuracy", "/api/evaluations?limit=x"),
        *("/api/ecosystems", "/api/openapi.json", "/api/jobs/none", "/api/jobs/none/report", "/api/drift/none"),
        *(f"/download/tables/{table}.csv" for table in tables),
        *("/download/generation.duckdb", "/api/none", "/none", "/_dash-dependencies"),
    ]
    found = {address: _answer(client, address) for address in addresses}
    routes = sorted(rule.rule for rule in app.server.url_map.iter_rules() if "GET" in (rule.methods or ()))
    return {"routes": routes, "answers": found}


def jobs(folder: Path) -> Document:
    """Answers about an attribution and a comparison by random weights, when both are done."""
    reader = tiny_reader()
    save_enrolment(tiny_enrolment(), folder / "data" / "enrolments" / "tiny.npz")
    server, _ = serve(folder / "data", folder / "live", lambda proxy: (reader, HASH))
    client = server.test_client()
    traces = {"traces": traces_of("shout", 20), "claimed": "shout", "orders": 20, "enrolment": "tiny"}
    windows = {"before": traces_of("shout", 20), "after": traces_of("plain", 20), "enrolment": "tiny"}
    return {
        "machine": machine(),
        "/api/jobs/JOB": _later(client, "/api/attribute", traces, ("", "/report")),
        "/api/drift/JOB": _later(client, "/api/drift", windows, ("",)),
    }


def _later(client: FlaskClient, address: str, body: Mapping[str, Any], endings: tuple[str, ...]) -> Document:
    """Answers about something that goes on behind a request, once it is done."""
    where = client.post(address, json=body, headers={"Prefer": "respond-async"}).headers["Location"]
    while (client.get(where).get_json() or {}).get("state") in ("waiting", "queued", "loading", "running"):
        time.sleep(0.05)
    return {ending: _answer(client, where + ending) for ending in endings}


def _answer(client: FlaskClient, address: str) -> Document:
    response = client.get(address)
    told: Document = {"status": response.status_code, "type": response.content_type}
    if response.is_json or "json" in response.content_type:
        body = response.get_json(force=True)
        for ecosystem in body.get("ecosystems", ()) if isinstance(body, dict) else ():
            del ecosystem["sha256"]  # last bits of heads that were fitted here are this machine's
        told["keys"] = " ".join(sorted(body)) if isinstance(body, dict) else f"{len(body)} entries"
        told["parts"] = digests(body, 1) if isinstance(body, dict) else digest(body)
    elif "csv" in response.content_type:
        first, *lines = response.get_data(as_text=True).splitlines()
        dropped = [place for place, name in enumerate(first.split(",")) if name == "build_id"]
        told["columns"], told["rows"] = first, len(lines)
        told["sha256"] = digest([_without(line, dropped) for line in sorted(lines)])
    elif "html" not in response.content_type and "text" in response.content_type:  # Dash's page holds times
        told["sha256"] = digest(response.get_data(as_text=True))
    return told


def _without(line: str, places: list[int]) -> str:
    return line if not places else line.rpartition(",")[0]


PARTS: Mapping[str, tuple[Callable[[Path], Document], tuple[str, ...]]] = {
    "release": (release, (PROXY,)),
    "invented": (invented, (PROXY, ENCODER)),
    "sample": (sample, (PROXY,)),
    "labelled": (labelled, (PROXY,)),
    "pages": (pages, ()),
    "rest": (rest, ()),
    "jobs": (jobs, ()),
}
"""Parts of the record, and the proxies that each reads with."""


def compute(part: str, folder: Path) -> Document:
    """A part of the record, with a cache that holds nothing but its proxies."""
    function, proxies = PARTS[part]
    links = folder / "cache" / "proxies"
    links.mkdir(parents=True)
    for name in proxies:
        (links / name).symlink_to(cache_folder() / "proxies" / name)
    os.environ["ATLAS_CACHE"] = str(folder / "cache")
    return function(folder)


if __name__ == "__main__":
    part, to = sys.argv[1], Path(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="golden-") as place:
        document = compute(part, Path(place).resolve())
    to.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True)
    (to / f"{part}.json").write_text(text + "\n", "utf-8")

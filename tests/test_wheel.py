"""A wheel in an empty environment: everything that it needs is in it, and it attributes by command and from Python."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from backend.corpus.collection import RESPONSES
from backend.proxies.registry import DEFAULT_PROXY, describe, installed
from tests.conftest import REPOSITORY

ENROLMENT = "samples-smollm2-135m-ur"
SOURCES = ("app.py", "assets", "atlas", "backend", "data", "jobs", "LICENSE", "pyproject.toml", "README.md")
API = f"""
import json, sys
from pathlib import Path
import atlas
assert "torch" not in sys.modules and "dash" not in sys.modules
from atlas import Attributor
from backend.shipped import shipped
from backend.store.database import Generation, default_data_folder
import app, jobs, pandas

with Generation.open(default_data_folder()).cursor() as cursor:
    assert cursor.execute("SELECT count(*) FROM sources").fetchone()[0] >= 165
assert shipped("assets").joinpath("atlas.css").is_file()
places = [atlas.__file__, app.__file__, jobs.__file__, str(default_data_folder()), str(shipped("assets"))]
found = Attributor.load("{ENROLMENT}").attribute(pandas.read_json("traces.jsonl", lines=True))
assert "dash" not in sys.modules
print(json.dumps([places, found.verdict, found.candidates["source"][0]]))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel alone; what the wheel requires is seen in the environment of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    copy, home = folder / "source", folder / "environment"
    copy.mkdir()
    for name in SOURCES:
        place = REPOSITORY / name
        if place.is_dir():
            shutil.copytree(place, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(place, copy / name)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str | Path) -> str:
        return subprocess.run(words, cwd=folder, env=clean, check=True, stdout=subprocess.PIPE, text=True).stdout

    pip, offline = [sys.executable, "-m", "pip", "-q"], ["--no-deps", "--no-index"]
    run(*pip, "wheel", *offline, "--no-build-isolation", "-w", folder, copy)
    run(sys.executable, "-m", "venv", "--without-pip", home)
    python = home / "bin" / "python"
    run(*pip, "--python", python, "install", *offline, *folder.glob("*.whl"))
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # A line of a .pth file becomes a path; the .pth of the editable install there is not read.
    site.joinpath("dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    shutil.rmtree(copy)
    return home


@pytest.mark.slow
def test_a_wheel_attributes_from_an_empty_folder(environment: Path, tmp_path: Path) -> None:
    if installed(describe(DEFAULT_PROXY)) is None:
        pytest.skip(f"the weights of {DEFAULT_PROXY} are missing")
    lines = [json.loads(line) for line in gzip.decompress(RESPONSES.read_bytes()).decode().splitlines()]
    lines = sorted(lines, key=lambda line: len(line["response"]))[:5]
    traces = [json.dumps({"prompt": line["prompt"], "response": line["response"]}) for line in lines]
    tmp_path.joinpath("traces.jsonl").write_text("\n".join(traces), "utf-8")
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ATLAS_DATA")}
    variables |= {"ATLAS_COMPILE": "0", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2")}

    def run(*words: str | Path) -> str:
        return subprocess.run(
            words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300, check=True
        ).stdout

    command = environment / "bin" / "provenance-atlas"
    said = run(command, "attribute", "traces.jsonl", "--enrolment", ENROLMENT, "--report", "out.html")
    places, verdict, leader = json.loads(run(environment / "bin" / "python", "-c", API).splitlines()[-1])
    assert all(Path(place).is_relative_to(environment) for place in places), places
    results = json.loads(tmp_path.joinpath("out.json").read_text("utf-8"))["results"]
    assert [results["verdict"], results["leader"]] == [verdict, leader] and f"{verdict}: " in said
    assert {path.name for path in tmp_path.iterdir()} == {"traces.jsonl", "out.html", "out.json", "out.csv"}

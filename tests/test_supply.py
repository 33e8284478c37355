"""What is installed: locked with hashes, checked requirements, licences of what pages load, and no address."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from atlas.application import create_application
from tests.conftest import REPOSITORY
from tests.locked_packages import pins

LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-torch.lock", "requirements-uv.lock")


def locked(name: str) -> dict[Requirement, list[str]]:
    """Requirements of a lock file and their hashes."""
    text = re.sub(r"^#.*\n", "", REPOSITORY.joinpath(name).read_text("utf-8"), flags=re.M).replace("\\\n", " ")
    return {
        Requirement(line.partition(" --hash")[0]): re.findall(r"--hash=sha256:([0-9a-f]{64})(?: |$)", line)
        for line in map(str.strip, text.splitlines())
        if line
    }


def test_everything_is_pinned_with_hashes() -> None:
    for name in LOCKS:
        for requirement, hashes in locked(name).items():
            assert hashes and re.fullmatch(r"==[^*]+", str(requirement.specifier)), (name, requirement)
        assert "://" not in REPOSITORY.joinpath(name).read_text("utf-8"), "an index is the installer's choice"


def test_the_lock_has_what_the_project_declares() -> None:
    declared = tomllib.loads(REPOSITORY.joinpath("pyproject.toml").read_text("utf-8"))["project"]
    needed = map(Requirement, [*declared["dependencies"], *declared["optional-dependencies"]["dev"]])
    pins = {canonicalize_name(one.name): one for name in LOCKS for one in locked(name)}
    for requirement in needed:
        pin = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(str(pin.specifier).removeprefix("==")), (requirement, pin)
    (torch,) = re.findall(r"^TORCH \?= (\S+)$", REPOSITORY.joinpath("Makefile").read_text("utf-8"), re.M)
    builds = {str(one.specifier): len(hashes) for one, hashes in locked("requirements-torch.lock").items()}
    assert builds == {
        f"=={torch}+cpu": 8,
        f"=={torch}": 4,
    }  # Python 3.11 to 3.14; Linux on two processors, macOS on one


def test_the_environment_is_what_the_lock_says() -> None:
    for requirement in [*locked("requirements.lock"), *locked("requirements-dev.lock")]:
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(metadata.version(requirement.name), prereleases=True), requirement


def test_the_locks_are_what_runs_the_atlas_and_what_only_checks_it() -> None:
    for kind, name in (("runtime", "requirements.lock"), ("dev", "requirements-dev.lock")):
        assert sorted(map(str, locked(name))) == sorted(str(Requirement(pin)) for pin in pins(kind)), name


def test_every_requirement_of_a_package_is_met() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "No broken requirements found.")


def test_licences_of_what_pages_load_are_here(tmp_path: Path) -> None:
    folder = REPOSITORY / "assets" / "LICENSES"
    index = folder.joinpath("README.md").read_text("utf-8")
    texts = {path.name for path in folder.glob("*.txt")}
    assert texts == set(re.findall(r"`([\w.-]+\.txt)`", index))
    for name in texts:
        assert len(folder.joinpath(name).read_text("utf-8")) > 1_000, name
    app = create_application(tmp_path, tmp_path / "cache")
    try:
        app.server.test_client().get("/")
        for package in app.registered_paths:
            assert f"`{package.replace('_', '-')}`" in index or package == "dash", package
    finally:
        app.server.extensions["attribution"].close()


@pytest.mark.slow
def test_the_bill_of_materials_lists_what_is_locked(tmp_path: Path) -> None:
    target = tmp_path / "a folder" / "sbom.json"
    subprocess.run(
        ["make", "-s", "sbom", "-o", f"{sys.prefix}/.dev", f"VENV={sys.prefix}", f"SBOM={target}"],
        cwd=REPOSITORY,
        check=True,
    )
    bill = json.loads(target.read_text("utf-8"))
    assert bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["name"] == "provenance-atlas"
    listed = {canonicalize_name(one["name"]): one["version"] for one in bill["components"]}
    for requirement in [*locked("requirements.lock"), *locked("requirements-dev.lock")]:
        if requirement.marker is None or requirement.marker.evaluate():
            assert f"=={listed[canonicalize_name(requirement.name)]}" == str(requirement.specifier)
    assert "torch" in listed

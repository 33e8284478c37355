"""Two web processes, two workers and a real Redis: nothing is lost when one of each is killed."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import yaml

from backend.fingerprints import cache_folder
from benchmarks import many_users

REPOSITORY = Path(__file__).resolve().parent.parent


def test_compose_starts_the_same_processes() -> None:
    services = yaml.safe_load((REPOSITORY / "compose.yaml").read_text("utf-8"))["services"]
    assert services["web"]["command"] == many_users.WEB
    assert services["worker"]["command"] == many_users.WORKER
    assert {name: services[name]["deploy"]["replicas"] for name in ("web", "worker")} == {"web": 2, "worker": 2}
    assert services["web"]["environment"]["ATLAS_QUEUE"] == services["worker"]["environment"]["ATLAS_QUEUE"]
    for service in services.values():
        for mounted in service.get("volumes", []):
            source = mounted.partition(":")[0]
            assert not source.startswith(".") or (REPOSITORY / source).exists()
    assert (REPOSITORY / services["web"]["build"]["dockerfile"]).is_file()


@pytest.mark.slow(60)
def test_no_job_is_lost_and_every_session_sees_its_own(tmp_path: Path) -> None:
    weights = cache_folder() / "proxies" / many_users.DEFAULT_PROXY
    if shutil.which("redis-server") is None or not weights.is_dir():
        pytest.skip("redis-server (make browser) or the weights of the default proxy are missing")
    lines = list[str]()
    started = time.monotonic()
    found = many_users.trial(tmp_path, users=6, minutes=0.4, think=2.0, say=lambda text, **_: lines.append(text))
    assert found.failures == []
    assert found.jobs >= 6 and time.monotonic() - started > 24
    assert sum("is killed" in line for line in lines) == 2
    assert "files of users that are left: 0" in lines[-1]

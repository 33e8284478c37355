"""Whether an installation says of real held-out traces what its evaluation says, by REST, command line and page.

    python benchmarks/cases.py [--cases 50] [--ways rest,command,page] [--roster 165-way] [--reader READER]

A case is a group of twenty responses of one source to prompts that the head which scores them has not seen: one of the
protocol's groups, drawn by a fixed seed over all folds and as many sources as there are cases. ``python app.py`` is
started; every case is posted to ``/api/attribute``, given to a ``python -m jobs attribute`` of its own, and put into
the page by a headless Chromium, which saves the report. Printed are, for every way, the accuracy beside the one that
the evaluation states for these very cases, the cases that are attributed to the same source as there, how far their
scores lie apart at most (nats; other engines round differently), and seconds with all starts; and for every two ways
the cases whose scores are identical: every log-posterior of every trace, and score and probability of every source.
Exit status 1 if an answer or a score differs, 2 without the release (ATLAS_RELEASE) or an enrolment.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.corpus.release import Release, default_release
from backend.enrolment.catalogue import Ecosystems
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments, load_enrolment
from backend.enrolment.held_out_answers import Answers
from backend.errors import AtlasError
from backend.store.database import Generation, default_data_folder
from backend.store.result_queries import seed_accuracy
from benchmarks.held_out_cases import Case, attributed, cases, load_answers, scores_of
from jobs.screenshots import chromium, served

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

ROOT = Path(__file__).resolve().parent.parent
Report = dict[str, Any]
Ask = Callable[[Case, Path], Report]
"""A case and a file with its traces, to the report."""
PATIENCE = 1800.0
"""Seconds that one answer may take on a busy machine."""


@contextlib.contextmanager
def by_rest(url: str, enrolment: str) -> Iterator[Ask]:
    """Post the traces; the stream also brings what takes longer than a request may wait."""
    headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}

    def ask(case: Case, file: Path) -> Report:
        traces = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        body = json.dumps({"traces": traces, "enrolment": enrolment, "claimed": case.source}).encode()
        request = urllib.request.Request(f"{url}/api/attribute", body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            *_, last = map(json.loads, answer)
        if last["event"] != "report":
            raise AtlasError(f"No report by REST: {json.dumps(last)[:400]}", "Read what the server said")
        report: Report = last["report"]
        return report

    yield ask


@contextlib.contextmanager
def by_command(url: str, enrolment: str) -> Iterator[Ask]:
    """A process a case; the server is not asked."""

    def ask(case: Case, file: Path) -> Report:
        page = file.with_suffix(".html")
        words = ["attribute", str(file), "--enrolment", enrolment, "--claimed", case.source, "--report", str(page)]
        done = subprocess.run([sys.executable, "-m", "jobs", *words], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise AtlasError(f"No report by command line: {done.stderr.strip()[-400:]}", "Run that command by hand")
        report: Report = json.loads(page.with_suffix(".json").read_text("utf-8"))
        return report

    yield ask


@contextlib.contextmanager
def by_page(url: str, enrolment: str) -> Iterator[Ask]:
    """Give the file to the page, press the button and save the report, as somebody new every time."""
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder)) as driver:

        def ask(case: Case, file: Path) -> Report:
            driver.get(f"{url}/attribute?{urlencode({'ecosystem': enrolment, 'claim': case.source})}")
            _until(driver, "return document.querySelector('#attr-claim')?.value")
            _until(driver, SETTLED)
            _until(driver, "return document.querySelector('#attr-drop input[type=file]')").send_keys(str(file))
            for button in ("#attr-go", ".exports .button[id*=json]"):
                _until(driver, PRESSED, button)
            saved = _wait(lambda: next(Path(folder).glob("attribution-*.json"), None), "the report, saved")
            report: Report = json.loads(saved.read_text("utf-8"))
            saved.unlink()
            driver.execute_script("sessionStorage.clear()")
            driver.delete_all_cookies()
            return report

        yield ask


SETTLED = (
    "return new URL(location.href).searchParams.has('roster') && window.atlasDropsWatched === true "
    "&& document.title !== 'Updating...' && !document.querySelector('[data-dash-is-loading=true]')"
)
"""The page has written its whole state into its address, and nothing is under way."""
PRESSED = "const e = document.querySelector(arguments[0]); if (!e || e.disabled) return false; e.click(); return true"
WAYS = {"rest": by_rest, "command": by_command, "page": by_page}


def _wait(look: Callable[[], Any], told: str) -> Any:
    """What a look finds as soon as it finds something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AtlasError(f"In the page waited in vain: {told}", "Open it in a browser")
        time.sleep(0.1)
    return found


def _until(driver: WebDriver, script: str, *arguments: str) -> Any:
    return _wait(lambda: driver.execute_script(script, *arguments), f"{script} {' '.join(arguments)}")


def chosen(roster: str, reader: str | None) -> tuple[Enrolment, Answers]:
    """The preferred enrolment of a roster, or that of a reader, and what is kept of its held-out groups.

    Raises
    ------
    AtlasError
        If there is none.
    """
    data = default_data_folder()
    fitting = [one for one in Ecosystems(data).all() if one.roster == roster and reader in (None, one.reader)]
    if not fitting:
        raise AtlasError(
            f"No enrolment of {reader or roster} is published here", f"Run: python -m jobs enroll --roster {roster}"
        )
    name = fitting[0].name
    return load_enrolment(enrolments(data)[name]), load_answers(name)


def introduce(enrolment: Enrolment, answers: Answers, held: list[Case]) -> None:
    """Say what is asked, and what the evaluation states."""
    roster, right = enrolment.facts["roster"], sum(case.answer == case.source for case in held)
    with Generation.open(default_data_folder()).cursor() as cursor:
        stated = seed_accuracy(cursor, enrolment.reader, roster, answers.k, answers.seed)
    folds = len({head.fold for head in enrolment.heads})
    print(f"{len(held)} cases of {answers.k} traces, {folds} folds, {len({case.source for case in held})} sources")
    print(f"{enrolment.reader} on {roster} ({enrolment.name})")
    print(f"the evaluation states {right / len(held):.3f} for these cases ({right} right)")
    print(
        f"  and {answers.right / len(answers.truth):.4f} for all {len(answers.truth):,} groups that they are drawn from"
        + (f"; its table {stated[0]:.4f} for these {stated[1]:,}" if stated else "")
    )


def written(held: list[Case], folder: Path) -> list[Path]:
    """A file of traces a case."""
    files = [folder / f"case-{number}.jsonl" for number in range(len(held))]
    for case, file in zip(held, files, strict=True):
        lines = [json.dumps({"prompt": trace.prompt, "response": trace.response}) for trace in case.traces]
        file.write_text("\n".join(lines), "utf-8")
    return files


def show(way: str, held: list[Case], reports: list[Report], seconds: float) -> bool:
    """Print what a way says; whether all of it is what is kept."""
    best = [attributed(report) for report in reports]
    right = sum(one["source"] == case.source for one, case in zip(best, held, strict=True))
    same = sum(one["source"] == case.answer for one, case in zip(best, held, strict=True))
    apart = max(abs(one["score"] - case.score) for one, case in zip(best, held, strict=True))
    print(f"{way:<10}{right / len(held):>9.3f}{f'{same} of {len(held)}':>13}{apart:>14.3f}{seconds:>9.0f}", flush=True)
    return all(case.as_evaluated(report) for case, report in zip(held, reports, strict=True))


def main() -> int:
    """Ask every way about every case, compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--ways", default=",".join(WAYS), help="comma separated (default: %(default)s)")
    parser.add_argument("--roster", default="165-way")
    parser.add_argument("--reader", help="id of a reader that is enrolled (default: the one that is preferred)")
    asked = parser.parse_args()
    ways = asked.ways.split(",")
    if not set(ways) <= set(WAYS):
        parser.error(f"--ways takes {', '.join(WAYS)}")
    enrolment, answers = chosen(asked.roster, asked.reader)
    held = cases(answers, enrolment, Release(default_release()).records("agent500"), asked.cases)
    introduce(enrolment, answers, held)
    print(f"\n{'way':<10}{'accuracy':>9}{'same source':>13}{'scores apart':>14}{'seconds':>9}")
    found: dict[str, list[Report]] = {}
    well = True
    with tempfile.TemporaryDirectory() as folder, served() as url:
        files = written(held, Path(folder))
        for way in ways:
            started = time.perf_counter()
            with WAYS[way](url, enrolment.name) as ask:
                found[way] = [ask(case, file) for case, file in zip(held, files, strict=True)]
            well &= show(way, held, found[way], time.perf_counter() - started)
    for one, other in itertools.combinations(ways, 2):
        pairs = zip(found[one], found[other], strict=True)
        identical = sum(scores_of(left) == scores_of(right) for left, right in pairs)
        well &= identical == len(held)
        print(f"identical scores by {one} and {other}: {identical} of {len(held)} cases")
    return 0 if well else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AtlasError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)

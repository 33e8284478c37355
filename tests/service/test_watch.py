"""A watch with a tiny proxy: folders, standard input and REST's inbox; restarts; alarms, their reports and webhooks."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.attribution.scoring import Attributor
from backend.attribution.verify import alterations, read_report
from backend.corpus.labelled import Labelled, labelled
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import enrolment_of_traces
from backend.errors import AtlasError
from backend.inference.e_process import evidence_text
from backend.intake import Received, trace_hash
from backend.service import webhook
from backend.service.uploads import MissingError
from backend.service.watch import OneHeadEnrolment, Watch, run
from backend.service.watch_sources import FolderOfLogs, Inbox, Lines
from backend.service.watch_state import INBOX, TEXTS, Question, Watched, WatchState, watches
from backend.traces import Trace
from tests.atlas.api.test_watches import export
from tests.served_api import HASH, tiny_reader

STYLES = {
    "plain": "First stop the service {i}, then start it again.",
    "shout": "STOP THE SERVICE {i} AND START IT AGAIN! 🚀 1234",
    "code": "```python\nqueue[{i}].restart()\n```\n\n\nprint('été')",
}
PROMPTS = [f"How do I restart queue {i}?" for i in range(40)]


@pytest.fixture(scope="module")
def reference() -> Labelled:
    rows = [(style, p, text.format(i=i)) for style, text in STYLES.items() for i, p in enumerate(PROMPTS)]
    received = [
        Received(place, 0, prompt, response, None, style, None, trace_hash(prompt, response))
        for place, (style, prompt, response) in enumerate(rows, start=1)
    ]
    return labelled(received, "0" * 64)


@pytest.fixture(scope="module")
def attributor(reference: Labelled) -> Attributor:
    reader = tiny_reader()
    names = [reference.sources[label] for label in reference.labels]
    enrolment = enrolment_of_traces(
        reference.traces, names, reader, name="tiny", proxy="tiny", weights_hash=HASH, view="ur", layer=2
    )
    return Attributor(reader, enrolment)


def question(enrolment: Enrolment, **more: Any) -> Question:
    about = {"rate": 0.01, "seed": 42, "source": "folder of logs"} | more
    return Question("plain", enrolment.name, enrolment.sha256, **about)


def lines_of(style: str, numbers: range, start: int = 0) -> str:
    traces = (
        {"prompt": PROMPTS[i % 40], "response": STYLES[style].format(i=i), "id": f"{style}-{i + start}"}
        for i in numbers
    )
    return "".join(json.dumps(trace) + "\n" for trace in traces)


@pytest.fixture
def begun(
    attributor: Attributor, reference: Labelled, tmp_path: Path
) -> Iterator[tuple[Watch, FolderOfLogs, list[str]]]:
    said: list[str] = []
    logs = tmp_path / "logs"
    logs.mkdir()
    with WatchState.begin("plain", question(attributor.enrolment), tmp_path / "watches") as state:
        watch = Watch(state, attributor, said.append)
        watch.refer_to(reference)
        yield watch, FolderOfLogs(logs), said


def test_no_alarm_without_a_change_and_one_with_its_report_after_it(begun) -> None:
    watch, folder, said = begun
    log = folder.folder / "app.jsonl"
    log.write_text(lines_of("plain", range(30)), "utf-8")
    assert run(watch, folder, 1, once=True) == 0
    assert len(watch.state.evidence()) == 30
    with log.open("a", encoding="utf-8") as stream:
        stream.write(lines_of("shout", range(12)))
    assert run(watch, folder, 1, once=True) == 1
    alarm = watch.state.alarm
    assert alarm.first > 28 and alarm.leader == "shout" and alarm.log10_e >= 2
    assert any(words.startswith("ALARM 1: After ") for words in said)
    report = read_report(watch.state.file(1, "json").read_text("utf-8"))
    assert alterations(report) == []
    assert report["results"]["claimed"] == "plain" and report["sha256"] == alarm.sha256
    assert report["input"]["sha256"]
    front = watch.state.file(1, "html").read_text("utf-8").partition('class="scale"')[0].replace("\xa0", " ")
    assert front.index(f"against plain is {evidence_text(alarm.log10_e)}") < front.index("Who answers now?</h2>")
    assert any("alarm, rate" in words for words in alterations({**report, "alarm": {**report["alarm"], "rate": "1"}}))
    lines = watch.state.file(1, "jsonl").read_text("utf-8").splitlines()
    assert 1 <= len(lines) == len(report["traces"]) <= TEXTS
    assert "STOP THE SERVICE" in lines[-1]
    with pytest.raises(MissingError):
        watch.state.file(1, "sqlite")
    # It stands, with one report, until somebody accepts it.
    assert run(watch, folder, 1, once=True) == 1
    assert len(watch.state.alarms()) == 1
    watch.state.accept()
    assert run(watch, folder, 1, once=True) == 0
    assert len(watch.state.evidence()) == 0


def test_a_restart_loses_nothing_and_counts_nothing_twice(begun, attributor: Attributor) -> None:
    watch, folder, _ = begun
    (folder.folder / "a.jsonl").write_text(lines_of("plain", range(15)), "utf-8")
    run(watch, folder, 1, once=True)
    before = watch.state.evidence()
    # The log is rotated and goes on; a second file repeats what was read.
    (folder.folder / "a.jsonl").rename(folder.folder / "a.jsonl.1")
    (folder.folder / "a.jsonl").write_text(lines_of("plain", range(15, 20)), "utf-8")
    again = Watch(WatchState(watch.state.folder), attributor, lambda _: None)
    run(again, folder, 1, once=True)
    assert len(again.state.evidence()) == 20
    assert np.array_equal(again.state.evidence()[:15], before)
    run(again, folder, 1, once=True)
    assert len(again.state.evidence()) == 20
    again.state.close()


def test_a_line_that_is_written_still_waits(begun) -> None:
    watch, folder, _ = begun
    log, text = folder.folder / "app.jsonl", lines_of("plain", range(3))
    log.write_text(text[:-20], "utf-8")
    run(watch, folder, 1, once=True)
    assert len(watch.state.evidence()) == 2
    log.write_text(text, "utf-8")
    run(watch, folder, 1, once=True)
    assert len(watch.state.evidence()) == 3


def test_what_a_killed_process_left_is_told_by_the_next(begun, attributor: Attributor) -> None:
    watch, folder, said = begun
    traces = [Watched(str(i), PROMPTS[i], STYLES["shout"].format(i=i)) for i in range(12)]
    watch._add(traces, {})  # it died before it raised the alarm
    assert watch.state.alarm is None
    assert run(watch, folder, 1, once=True) == 1
    assert any("ALARM" in words for words in said)


def test_other_traffic_is_no_evidence(begun) -> None:
    watch, folder, said = begun
    odd = [{"prompt": f"Напиши стихотворение об осени, строфа {i}!", "response": "ОСЕНЬ!"} for i in range(12)]
    (folder.folder / "odd.jsonl").write_text("".join(json.dumps(one) + "\n" for one in odd), "utf-8")
    assert run(watch, folder, 1, once=True) == 0
    assert watch.state.counts() == {"counted": 0, "other": 12}
    assert any("Other traffic, not counted" in words for words in said)
    assert len(watch.state.evidence()) == 0


def test_text_is_kept_of_the_last_traces_alone(begun) -> None:
    watch, _, _ = begun
    traces = [Watched(str(i), PROMPTS[i % 40], STYLES["plain"].format(i=i)) for i in range(TEXTS + 30)]
    watch._add(traces, {})
    first, texts = watch.state.texts(1)
    assert (first, len(texts)) == (31, TEXTS)
    assert watch.state.texts(TEXTS + 30)[1] == [(PROMPTS[(TEXTS + 29) % 40], traces[-1].response)]


def test_standard_input_is_read_to_its_end(begun) -> None:
    watch, _, _ = begun
    receiver, sender = os.pipe()
    text = lines_of("plain", range(25)).rstrip("\n")  # the last line has no end

    def write() -> None:
        with os.fdopen(sender, "w", encoding="utf-8") as stream:
            stream.write(text)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        assert run(watch, Lines(receiver, 30.0, most=10), 0.01) == 0
    finally:
        writing.join()
        os.close(receiver)
    assert len(watch.state.evidence()) == 25


def test_the_inbox_is_emptied_into_any_watch(begun) -> None:
    watch, folder, _ = begun
    inbox = watch.state.folder / INBOX
    body = export(STYLES["plain"].format(i=0), prompt=PROMPTS[0])
    (inbox / "1.json").write_text(json.dumps(body), "utf-8")
    run(watch, folder, 1, once=True)
    assert len(watch.state.evidence()) == 1
    assert list(inbox.iterdir()) == []
    run(watch, Inbox(), 1, once=True)
    assert len(watch.state.evidence()) == 1


@pytest.mark.usefixtures("begun")
def test_another_question_is_another_watch(attributor: Attributor, tmp_path: Path) -> None:
    place = tmp_path / "watches"
    with (
        pytest.raises(AtlasError, match="Another process watches 'plain'"),
        WatchState.begin("plain", question(attributor.enrolment), place),
    ):
        pass
    for name in ("", ".hidden", "a/b", "ä", "x" * 61):
        with (
            pytest.raises(AtlasError, match="is no name of a watch"),
            WatchState.begin(name, question(attributor.enrolment), place),
        ):
            pass
    with WatchState.begin("b", question(attributor.enrolment), place):
        pass
    with (
        pytest.raises(AtlasError, match=r"started with another rate \(0.01, not 0.1\)"),
        WatchState.begin("b", question(attributor.enrolment, rate=0.1), place),
    ):
        pass
    assert [state.name for state in watches(place)] == ["b", "plain"]
    with pytest.raises(MissingError, match="There is no watch"):
        WatchState.open("../plain", place)


def test_a_folder_that_is_not_there_and_logs_that_are_none(begun) -> None:
    watch, folder, _ = begun
    with pytest.raises(AtlasError, match="There is no folder"):
        run(watch, FolderOfLogs(folder.folder / "absent"), 1, once=True)
    (folder.folder / "bad.jsonl").write_text("this is no JSON\n", "utf-8")
    with pytest.raises(AtlasError, match="Nothing could be read"):
        run(watch, folder, 1, once=True)


def test_new_prompts_are_scored_by_one_head_as_enrolled_ones_are(attributor: Attributor) -> None:
    one = OneHeadEnrolment.of(attributor.enrolment)
    folds = one.folds_of([*PROMPTS[:3], "A new one?", "Another?"])
    assert folds[:3] == attributor.enrolment.folds_of(PROMPTS[:3])
    assert all(fold is not None and len(one.heads_for(fold)) == 1 for fold in folds)
    assert one.sha256 == attributor.enrolment.sha256
    traces = [Trace(PROMPTS[0], STYLES["plain"].format(i=0))]
    exact = Attributor(attributor.reader, one).score(traces).log_posteriors
    assert np.array_equal(exact, attributor.score(traces).log_posteriors)


@dataclass
class Receiver:
    """An address that takes messages."""

    address: str = ""
    statuses: list[int] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    state = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(state.statuses.pop(0) if state.statuses else 204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as live:
        threading.Thread(target=live.serve_forever, args=(0.05,), daemon=True).start()
        state.address = f"http://127.0.0.1:{live.server_port}/hook?secret=s3cret"
        yield state
        live.shutdown()


def test_an_alarm_is_told_once_and_again_where_nobody_took_it(begun, receiver: Receiver) -> None:
    watch, folder, said = begun
    watch.address, watch.first_pause = receiver.address, 0.01
    receiver.statuses = [503] * webhook.ATTEMPTS
    (folder.folder / "app.jsonl").write_text(lines_of("shout", range(12)), "utf-8")
    assert run(watch, folder, 1, once=True) == 1
    assert len(receiver.bodies) == webhook.ATTEMPTS and not watch.state.alarm.delivered
    receiver.statuses = [503, 429]
    assert run(watch, folder, 1, once=True) == 1
    assert len(receiver.bodies) == webhook.ATTEMPTS + 3 and watch.state.alarm.delivered
    run(watch, folder, 1, once=True)
    assert len(receiver.bodies) == webhook.ATTEMPTS + 3
    body = receiver.bodies[-1]
    assert (body["id"], body["claimed"], body["leader"]) == ("plain/1", "plain", "shout")
    assert body["report_sha256"] == watch.state.alarm.sha256
    assert "STOP" not in json.dumps(body)
    assert not any("s3cret" in words for words in said), "an address may hold a secret"


def test_an_address_that_refuses_is_not_asked_again(receiver: Receiver) -> None:
    receiver.statuses = [400]
    with pytest.raises(AtlasError, match=r"127.0.0.1 refused the message of the watch \(400\)"):
        webhook.send(receiver.address, {}, first_pause=0.01)
    assert len(receiver.bodies) == 1
    for address in ("", "ftp://host/x", "https://", "http://host:0/"):
        with pytest.raises(AtlasError, match="The webhook is no address"):
            webhook.check_address(address)

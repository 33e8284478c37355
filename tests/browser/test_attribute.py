"""What people do with their own traces, in a real Chromium, with the shipped proxy and the shipped sample ecosystem."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from backend.corpus.collection import sample_records
from jobs.__main__ import main
from tests.browser.attributing import (
    CALLED,
    SAMPLES,
    SCRIPT,
    chosen,
    downloaded,
    file_of,
    given,
    opened,
    sampled,
    start,
    weighed,
)
from tests.browser.conftest import Browser

pytestmark = [pytest.mark.browser, pytest.mark.proxy]


@pytest.fixture
def browser(samples_browser: Browser) -> Browser:
    return samples_browser


def test_a_reader_in_the_header_that_scores_nothing_here_is_said(browser: Browser) -> None:
    browser.driver.get(f"{browser.url}/attribute?theme=dark&reader=reader-paper/tiny/r")
    terms = "[...document.querySelectorAll('#attr-ecosystem-note .term')]"
    why = f"{terms}.find((one) => /Why another/.test(one.textContent))"
    browser.until(f"return {why} !== undefined")

    def told() -> str | None:
        # By the pointer: of several browsers not all have the focus. The note is drawn again when the ecosystem is
        # known, which may take an element or its answer away.
        with contextlib.suppress(StaleElementReferenceException):
            hover = ActionChains(browser.driver).move_by_offset(1, 1).move_to_element(browser.run(f"return {why}"))
            hover.perform()
        time.sleep(1)
        text: str | None = browser.run("return document.querySelector('.mantine-Tooltip-tooltip')?.textContent")
        return text

    said = browser.wait(told, "the reason, under the pointer")
    assert "not enrolled here" in said
    assert "python -m jobs enroll --readout reader-paper --proxy tiny --view r" in said
    opened(browser)
    assert browser.run(f"return {why} === undefined")


def test_a_presenter_without_a_case_shows_that_of_the_sample(browser: Browser) -> None:
    """The slide runs it, by the first story whose ecosystem is enrolled, and shows its answer in its own place."""
    browser.driver.get(f"{browser.url}/brief?theme=dark&figures=case&present=1")
    browser.until("return document.querySelector('#sample-run') !== null")
    browser.settled()  # a button that is drawn anew forgets that it was pressed
    ActionChains(browser.driver).send_keys("4").perform()
    browser.until("return document.activeElement.id === 'sample-run'")
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    browser.until("return document.querySelector('.sheet-case .verdict') !== null")
    shown = browser.text(".sheet-case")
    assert "Sample: A provider's qwen-brief" in shown and "SUPPORTS" in shown
    assert shown.index("Do these traces come from ") < shown.index("SUPPORTS") and shown.count("Judged by ") == 1
    assert browser.run("return document.querySelector('#sample-run') === null") and browser.query()["figures"] == "case"


def test_an_own_file_after_the_sample_is_not_judged_by_the_sample(browser: Browser, tmp_path: Path) -> None:
    browser.driver.get(f"{browser.url}/attribute?theme=dark")
    value = "const e = document.querySelector('#attr-ecosystem'); return e && e.value"
    own = browser.until(value)
    assert CALLED not in own
    sampled(browser, "A reseller's gpt-4o")
    sampled(browser)
    browser.until(value + ".includes(arguments[0])", CALLED)
    browser.until("return document.querySelector('#attr-judge').innerText.includes('10 sources')")
    assert "ecosystem" not in browser.query()
    given(browser, file_of(tmp_path, "own.jsonl", ["One.", "Two."]))
    browser.until(value + " === arguments[0]", own)
    assert "Judged by" in browser.text("#attr-judge")


def test_sample_to_result_to_tokens_to_export_to_verify(
    browser: Browser, downloads: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(browser)
    sampled(browser)
    assert "10 traces" in browser.text(".preview-facts") and "0 bad lines" in browser.text(".preview-facts")
    assert CALLED in browser.run("return document.querySelector('#attr-ecosystem').value")
    browser.click("#attr-sample-save")
    traces = downloaded(browser, downloads, "last-week*.jsonl")
    browser.until("return document.querySelector('#attr-claim').value === 'qwen-brief'")
    assert weighed(browser).split()[1] == "SUPPORTS"
    solution = browser.run("return document.querySelector('.verdict + .folded').textContent")
    written = "was written by qwen-brief, a source of the samples (qwen25-coder-1.5b)."
    assert f"{written} The answer should be: SUPPORTS." in solution
    assert "prove" not in browser.text(".verdict").lower() and "qwen-brief" in browser.text(".verdict")
    browser.until("return document.getElementById('content').scrollTop === 0")
    assert browser.query()["claim"] == "qwen-brief" and browser.query()["ecosystem"] == SAMPLES
    for figure in ("evidence", "adds", "without"):
        browser.until("return document.querySelector(arguments[0] + ' .main-svg')", f"#figure-{figure}")
    assert len(browser.run("return [...document.querySelectorAll('#figure-candidates .candidates tbody tr')]")) == 10

    # Token evidence: the pieces are the response, and their values are the sum that is printed, which is the score.
    spans = browser.until(
        "const s = [...document.querySelectorAll('.heat-text .token')].map(s => [s.textContent, s.title]); "
        "return s.length > 3 && s"
    )
    told = browser.text("#heat-sum").replace("−", "-")
    total, score = (float(part.split()[-1]) for part in told.split(" nats")[:2])
    assert abs(total - score) <= 1e-4
    assert sum(float(title.split()[0].replace("−", "-")) for _, title in spans) == pytest.approx(total, abs=0.02)
    logged = [json.loads(line)["response"] for line in traces.read_text("utf-8").splitlines()]
    responses = [answer["choices"][0]["message"]["content"] for answer in logged]
    assert "".join(text for text, _ in spans) in responses
    before = browser.text("#heat-sum")
    rows = (
        "const t = [...document.querySelectorAll('#figure-tokens .ag-center-cols-container [role=row]')]"
        ".map(row => row.innerText).join(); return t"
    )
    browser.click("#figure-tokens .tool[aria-pressed]")
    browser.until(rows)
    browser.settled()
    listed = browser.run(rows)
    browser.run(
        "const p = document.querySelector('#figure-adds .js-plotly-plot');"
        "const n = p.data[0].customdata.map(c => c[0]);"
        "const shown = +document.querySelector('#heat-trace').value.match(/Trace (\\d+)/)[1];"
        "const other = n.find(k => k !== shown);"
        "p.emit('plotly_click', {points: [{customdata: [other], pointNumber: 0, curveNumber: 0, x: 1, y: 1, "
        "data: p.data[0], fullData: p._fullData[0]}]})"
    )
    browser.until("return document.querySelector('#heat-sum') && document.querySelector('#heat-sum').innerText "
                  "!== arguments[0]", before)  # fmt: skip
    top = "const y = document.querySelector('#figure-tokens').getBoundingClientRect().top; return y >= 0 && y < 120"
    browser.until(top)
    assert browser.run("return document.activeElement.id") == "title-tokens"
    browser.until(rows + " && t !== arguments[0]", listed)  # the table in front of the heat map is of that trace too
    browser.click("#figure-tokens .tool[aria-pressed]")

    # Tables and CSV are those of this report.
    browser.click("#figure-evidence .tool[aria-pressed]")
    browser.until(
        "return document.querySelectorAll('#figure-evidence .ag-center-cols-container [role=row]').length > 2"
    )
    browser.click("#figure-adds .tools button:nth-child(2)")
    assert downloaded(browser, downloads, "attribution-*_adds.csv").read_text().count("\n") == 11

    # The exported report, recomputed from the same traces by the command line, is equal.
    saved = {}
    for kind in ("json", "html", "csv"):
        browser.run(
            "[...document.querySelectorAll('.exports .button')]"
            ".find(b => b.innerText.toLowerCase().includes(arguments[0])).click()",
            kind,
        )
        saved[kind] = downloaded(browser, downloads, f"attribution-????????.{kind}")
    report, page = saved["json"], saved["html"].read_text("utf-8")
    assert "<script" not in page and responses[0][:40] not in page
    assert report.name in browser.text("#attr-verify")
    assert main(["verify", str(report), "--traces", str(traces)]) == 0
    assert "EQUAL: 10 traces" in capsys.readouterr().out

    # So says the page itself, of the report and of a forged one.
    browser.click("#attr-mode input[value=check]")
    browser.until("return !document.querySelector('#attr-check').hidden")
    forged = json.loads(report.read_text("utf-8"))
    forged["results"]["unknown_p"] = 0.999
    false = downloads / "forged.json"
    false.write_text(json.dumps(forged), "utf-8")
    given(browser, traces, "#check-traces")
    browser.until("return document.querySelector('#check-traces-head .preview-facts') !== null")
    for path, word in ((report, "UNCHANGED"), (saved["html"], "UNCHANGED"), (false, "CHANGED")):
        given(browser, path, "#check-report")
        browser.until("return document.querySelector('#check-report-head').innerText.includes(arguments[0])", path.name)
        browser.until("return !document.querySelector('#check-go').disabled")
        browser.click("#check-go")
        browser.until("return document.querySelector('#check-verdict')?.innerText.endsWith('\\n' + arguments[0])", word)
    assert "results, unknown p" in (found := browser.text("#check-found")) and ".999" in found
    assert not browser.run("return document.querySelector('#check-go').checkVisibility()"), "its form is folded"
    # The answer is about the files that are there; another file takes it away.
    given(browser, file_of(downloads, "others.jsonl", ["Something else."] * 12), "#check-traces")
    browser.until("return document.querySelector('#check-verdict') === null")
    assert "not the report's own file" in browser.text("#check-traces-head .flag")
    browser.until("return !document.querySelector('#check-go').disabled")
    browser.click("#check-go")
    browser.until("return document.querySelector('#check-problem').innerText.includes('not the file of this report')")
    assert browser.run("return document.querySelector('#check-verdict') === null")
    browser.click("#attr-mode input[value=one]")
    browser.until("return document.querySelector('#figure-evidence .main-svg')?.checkVisibility()")

    # Another theme recolours the figures; going back keeps the traces; forgetting does not.
    line = "return document.querySelector('#figure-evidence .js-plotly-plot').data[1].line.color"
    dark = browser.run(line)
    browser.click("#theme-toggle")
    browser.until(line + " !== arguments[0]", dark)
    browser.click("#theme-toggle")
    browser.driver.refresh()
    browser.until("return document.querySelector('.verdict-word') !== null")
    # The next step takes traces and claim along.
    browser.run(
        "[...document.querySelectorAll('.verdict-next a')].find(a => a.innerText === 'Claim against reference').click()"
    )
    browser.until("return document.querySelector('#ref-traces-head .preview-facts') !== null")
    browser.until("return document.querySelector('#ref-claim').value === 'qwen-brief'")
    browser.click("#attr-mode input[value=one]")
    browser.until("return document.querySelector('.verdict-word')?.checkVisibility()")
    browser.click("#attr-forget")
    browser.until("return document.querySelector('.verdict') === null && document.querySelector('#attr-go').disabled")


def test_cancel_keeps_what_has_been_read(browser: Browser, tmp_path: Path) -> None:
    records = sample_records()
    responses = [start(trace.response) + f" ({i})" for i, trace in enumerate(records.traces)]
    opened(browser)
    given(browser, file_of(tmp_path, "many.jsonl", responses * 2))
    browser.until("return document.querySelector('.preview-facts') !== null")
    browser.until("return !document.querySelector('#attr-go').disabled")
    browser.click("#attr-go")
    browser.until("return /^[1-9]/.test(document.querySelector('#attr-words').innerText)")
    assert "not yet calibrated" in browser.text("#attr-so-far")
    browser.until("return document.querySelector('#attr-live .js-plotly-plot').data[0].x.length >= 8")

    # Whoever scrolls away while the work goes on is left there.
    browser.run("document.getElementById('content').scrollTo(0, 0)")
    before = browser.text("#attr-words")
    browser.until("return document.querySelector('#attr-words').innerText !== arguments[0]", before)
    assert browser.run("return document.getElementById('content').scrollTop") == 0
    browser.click("#attr-cancel")
    browser.until("return document.querySelector('.verdict') !== null")
    assert "stopped before the end" in browser.text(".verdict-sentence")


def test_bad_lines_are_named_before_anything_runs(browser: Browser, tmp_path: Path) -> None:
    opened(browser)
    bad = file_of(tmp_path, "bad.jsonl", ["one", "two", "one"], ["p", "q", "p"])
    bad.write_text(bad.read_text() + 'no json\n{"prompt": "no answer"}\n')
    given(browser, bad)
    facts = browser.text(".preview-facts")
    assert "3 traces" in facts and "2 bad lines" in facts and "1 duplicate" in facts
    browser.until("return document.querySelector('#attr-bad .ag-center-cols-container [role=row]') !== null")
    told = browser.text("#attr-bad")
    assert "4" in told and "no JSON" in told and "there is no response" in told
    assert browser.run("return document.querySelector('.verdict') === null")

    # A file without any trace: a sentence and a remedy. A mapping by hand mends it.
    table = tmp_path / "columns.csv"
    table.write_text("asked,said\nWhy?,Because.\nHow?,Slowly.\n")
    given(browser, table)
    problem = browser.text("#attr-problem .problem")
    assert "said" in problem or "no trace" in problem.lower() or "is named like a response" in problem
    browser.until("return document.querySelectorAll('#attr-peek .ag-center-cols-container [role=row]').length === 2")
    assert "Because." in browser.text("#attr-peek") and browser.run(
        "return document.querySelector('#attr-go').disabled"
    )
    chosen(browser, "attr-column-response", "said")
    browser.until("return document.querySelector('.preview-facts')?.innerText.includes('2 traces')")
    browser.until("return !document.querySelector('#attr-go').disabled && !document.querySelector('#attr-problem *')")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    given(browser, empty)
    browser.until("return document.querySelector('#attr-problem').innerText.includes('empty')")

    # The file before it is gone with it: nothing could be weighed in its place.
    given(browser, bad)
    browser.until("return !document.querySelector('#attr-go').disabled")
    given(browser, empty)
    browser.until("return document.querySelector('#attr-problem').innerText.includes('empty.jsonl was not taken')")
    browser.until("return document.querySelector('#attr-go').disabled && document.querySelector('#attr-read').hidden")


@pytest.mark.usefixtures("sized")
def test_on_a_phone_the_button_is_in_sight_below_the_claim(browser: Browser) -> None:
    browser.resize(390, 844)
    opened(browser)
    shown = "return document.querySelector('#attr-go-ask').checkVisibility()"
    assert not browser.run(shown), "nothing could be run"
    sampled(browser)
    browser.until("return !document.querySelector('#attr-go-ask').disabled")
    browser.run("document.querySelector('#attr-claim').scrollIntoView({ block: 'start' })")
    box = "const b = document.querySelector('#attr-go-ask').getBoundingClientRect(); "
    browser.until(box + "return b.top > 0 && b.bottom <= innerHeight / 2")
    browser.resize(1280, 900)
    assert not browser.run(shown), "a desk has two others in sight"


def test_every_kind_of_file_and_one_that_is_too_large(browser: Browser, tmp_path: Path) -> None:
    rows = [{"prompt": f"Question {i}?", "response": f"Answer {i}."} for i in range(6)]
    talk = [[{"role": "user", "content": r["prompt"]}, {"role": "assistant", "content": r["response"]}] for r in rows]
    text = "\n".join(map(json.dumps, rows)).encode()
    files = {
        "a.parquet": (None, "Parquet"),
        "a.jsonl.gz": (gzip.compress(text), "gzip"),
        "chat.jsonl": ("\n".join(json.dumps({"messages": one}) for one in talk).encode(), "JSON lines"),
        "a.csv": (b"prompt;response\n" + b"".join(b"q%d;a%d\n" % (i, i) for i in range(6)), "CSV"),
        "utf16.json": (json.dumps(rows).encode("utf-16"), "UTF-16"),
    }
    opened(browser)
    for name, (content, words) in files.items():
        path = tmp_path / name
        if content is None:
            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            path.write_bytes(content)
        given(browser, path)
        browser.until(
            "const f = document.querySelector('.preview-facts'); return f && f.innerText.startsWith(arguments[0])", name
        )
        facts = browser.text(".preview-facts")
        assert "6 traces" in facts and words in facts
    large = tmp_path / "large.jsonl"
    large.write_bytes(b"x" * 25_000_001)
    for mode, place, told in (("one", "#attr-drop", "#attr-problem"), ("two", "#win-before", "#win-problem"),
                              ("reference", "#ref-rival", "#ref-problem"),
                              ("check", "#check-report", "#check-problem")):  # fmt: skip
        if mode == "check":  # by its link
            browser.driver.get(f"{browser.url}/attribute?theme=dark&mode=check")
        else:
            browser.click(f"#attr-mode input[value={mode}]")
        browser.until(f"const e = document.querySelector('#attr-{mode}'); return e && !e.hidden")
        browser.until("return document.querySelector(arguments[0] + ' input') !== null", place)
        browser.until("return window.atlasDropsWatched === true")
        given(browser, large, place)
        browser.until("return document.querySelector(arguments[0]).innerText.includes('larger than 25 MB')", told)


def test_an_encoding_that_was_taken_for_another_is_named(browser: Browser, downloads: Path, tmp_path: Path) -> None:
    opened(browser)
    table = tmp_path / "cyrillic.csv"
    rows = [f"Вопрос номер {i}?;Ответ номер {i}: так оно и есть." for i in range(6)]
    table.write_bytes("\n".join(["prompt;response", *rows]).encode("cp1251"))
    given(browser, table)
    assert "cp1251" not in browser.text(".preview-facts")
    assert "Ответ" not in browser.text("#attr-rows")
    chosen(browser, "attr-encoding", "cp1251")
    browser.until("return document.querySelector('.preview-facts').innerText.includes('cp1251 (as given)')")
    browser.until("return document.querySelector('#attr-rows').innerText.includes('Ответ номер 0')")
    weighed(browser)
    pattern = "attribution-????????.json"
    before = set(downloads.glob(pattern))  # what other tests have saved
    browser.run("[...document.querySelectorAll('.exports .button')].find(b => b.innerText.includes('JSON')).click()")
    saved = browser.wait(lambda: next(iter(set(downloads.glob(pattern)) - before), None), f"a file {pattern}")
    report = json.loads(saved.read_text("utf-8"))
    assert "--encoding cp1251" in report["command"] and len(report["traces"]) == 6
    browser.click("#attr-back")
    chosen(browser, "attr-encoding", "utf-8")
    browser.until("return document.querySelector('#attr-problem').innerText.includes('cyrillic.csv was not taken')")
    plain = file_of(tmp_path, "plain.jsonl", ["one", "two"])
    given(browser, plain)
    browser.until("return document.querySelector('.preview-facts').innerText.startsWith('plain.jsonl')")
    browser.until("return document.querySelector('#attr-encoding').value === 'as recognised'")


def test_a_token_is_asked_for(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_TOKEN", "s3cret-ünïcode")
    texts = [f"Answer {i}." for i in range(6)]
    browser.driver.get(f"{browser.url}/attribute?theme=dark&ecosystem={SAMPLES}")
    browser.until("const n = document.querySelector('#attr-ecosystem-note'); return n && n.innerText.includes('token')")
    assert browser.run("return document.querySelector('#attr-ecosystem').value") == ""  # what is enrolled is private
    given(browser, file_of(tmp_path, "refused.jsonl", texts))
    assert "asks for a token" in browser.text("#attr-problem .problem")
    field = browser.driver.find_element(By.ID, "attr-token")
    field.send_keys("wrong")
    browser.click("#attr-token-go")
    browser.until("return document.querySelector('#attr-token-said').innerText.includes('not the token')")
    browser.until("return document.querySelector('#attr-token').value === ''")  # or what is typed is cleared with it
    field.send_keys("s3cret-ünïcode")
    browser.click("#attr-token-go")
    browser.until("return document.querySelector('#attr-token-said').innerText.includes('Welcome')")
    browser.until(
        "return document.querySelector('#attr-ecosystem').value.startsWith(arguments[0])", CALLED
    )  # without a reload
    given(browser, file_of(tmp_path, "taken.jsonl", texts))
    browser.until("return document.querySelector('.preview-facts') !== null")
    weighed(browser)
    assert browser.driver.get_cookie("atlas_access")["httpOnly"]


def test_two_sessions_at_once_or_one_after_the_other_do_not_see_each_other(browser: Browser, tmp_path: Path) -> None:
    # One machine by two names, so that one browser keeps two jars of cookies.
    one, two = browser, Browser(browser.driver, browser.url.replace("127.0.0.1", "localhost"))
    tabs = {}
    for person, name in ((one, "mine"), (two, "yours")):
        if tabs:
            browser.driver.switch_to.new_window("tab")
        tabs[name] = browser.driver.current_window_handle
        opened(person)
        given(person, file_of(tmp_path, f"{name}.jsonl", [f"The secret of {name} is {i}." for i in range(40)]))
        person.until("return document.querySelector('.preview-facts') && !document.querySelector('#attr-go').disabled")
    for tab in tabs.values():  # the second begins while the first one's traces are read
        browser.driver.switch_to.window(tab)
        browser.click("#attr-go")
    jobs = set()
    for name, tab in tabs.items():
        browser.driver.switch_to.window(tab)
        browser.until("return document.querySelector('.verdict-word') !== null")
        jobs.add(browser.run("return sessionStorage.getItem('attr-job')"))
        said = browser.run("return document.body.innerText")
        assert f"{name}.jsonl" in said
        assert not any(f"{other}.jsonl" in said for other in tabs if other != name)
    assert len(jobs) == 2
    browser.driver.delete_all_cookies()
    browser.driver.close()
    browser.driver.switch_to.window(tabs["mine"])
    # Somebody else at the same place, who even knows the job's name.
    assert browser.run("return sessionStorage.getItem('attr-job')") and "mine.jsonl" in browser.text(".again")
    browser.driver.delete_all_cookies()
    browser.driver.refresh()
    browser.until("const e = document.querySelector('#attr-ecosystem'); return e && e.value")
    browser.until("return !sessionStorage.getItem('attr-job') || sessionStorage.getItem('attr-job') === 'null'")
    assert browser.run("return document.querySelector('.verdict') === null")
    assert "mine.jsonl" not in browser.run("return document.body.innerText")


def test_hostile_names_and_text_stay_text(browser: Browser, tmp_path: Path) -> None:
    opened(browser, ecosystem="hostile")
    given(browser, file_of(tmp_path, "=cmd <b>.jsonl", [f"{SCRIPT} and more {i}" for i in range(6)]))
    browser.until("return document.querySelector('.preview-facts') !== null")
    browser.driver.find_element(By.ID, "attr-case").send_keys("<b>case</b>")
    weighed(browser)
    browser.until("return document.querySelectorAll('.heat-text .token').length > 3")
    heat = browser.run("return document.querySelector('.heat-text').textContent")
    assert heat.startswith(SCRIPT)
    assert browser.run("return document.querySelectorAll('.attr img, .attr .verdict b, .attr svg image').length") == 0
    assert browser.run("return document.title") != "owned"
    assert "<b>case</b>" in browser.text(".verdict .kicker")
    assert SCRIPT in browser.run("return document.querySelector('.candidates').textContent")


def test_a_deep_link_without_traces_opens_at_the_first_step(browser: Browser) -> None:
    opened(browser, "&claim=smol-warm")
    browser.until("return document.querySelector('#attr-claim').value === 'smol-warm'")
    assert browser.run("return document.querySelector('#attr-go').disabled")
    assert browser.query()["claim"] == "smol-warm"
    browser.driver.find_element(By.ID, "attr-paste").send_keys(
        "First answer.", Keys.ENTER, "---", Keys.ENTER, "Second."
    )
    browser.click("#attr-use")
    assert "2 traces" in browser.text(".preview-facts") and "pasted.txt" in browser.text(".preview-facts")
    browser.until("return !document.querySelector('#attr-go').disabled")


def test_an_unknown_claim_is_said_with_what_was_meant(browser: Browser) -> None:
    note = "const n = document.querySelector('#attr-claim-note'); return n && n.textContent"
    opened(browser, "&claim=smol-wram")
    assert "No source here is called “smol-wram”" in browser.until(note)
    assert "Did you mean smol-warm" in browser.run(note) and "python -m jobs enroll" in browser.run(note)
    field = browser.driver.find_element(By.ID, "attr-claim")
    field.click()
    field.send_keys("gema answer")
    browser.until("return [...document.querySelectorAll('[role=option]')].some(o => o.innerText === 'gemma-answer')")
    field.send_keys(Keys.TAB)
    browser.until(note + ".includes('gema answer')")
    assert "Did you mean gemma-answer" in browser.run(note)
    chosen(browser, "attr-claim", "gemma-answer")
    browser.until("return document.querySelector('#attr-claim-note').textContent === ''")


def test_a_family_is_chosen_as_the_candidates(browser: Browser) -> None:
    note = "return document.querySelector('#attr-candidates-note').textContent"
    opened(browser)
    browser.until(f"{note}.includes('all 10 enrolled sources')")
    sampled(browser)
    browser.click("#attr-candidates-kind label[for$=family]")
    browser.until("return !document.querySelector('#attr-candidates-place').hidden")
    chosen(browser, "attr-candidates", "qwen")
    count = int(
        browser.until(f"const n = {note.removeprefix('return ')}; return n.includes(' of the 10') && n").split()[2]
    )
    browser.driver.find_element(By.ID, "attr-candidates").send_keys(Keys.ESCAPE)
    missing = browser.driver.find_element(By.CSS_SELECTOR, "#attr-candidates-note ~ details > summary")
    missing.send_keys(Keys.ENTER)
    browser.until("return document.querySelector('#attr-candidates-note ~ details').open")
    assert "python -m jobs collect" in browser.text("#attr-candidates-note ~ details")
    assert weighed(browser).split()[1] in ("SUPPORTS", "INCONCLUSIVE")
    assert f"Weighed among {count} of the 10 enrolled sources" in browser.text(".verdict")
    assert "qwen-brief" in browser.text(".verdict-sentence")
    assert len(browser.run("return [...document.querySelectorAll('#figure-candidates .candidates tbody tr')]")) == count


def test_traffic_of_the_same_kind_is_added_and_taken_away(browser: Browser, tmp_path: Path) -> None:
    """Too little of it is refused and nothing is lost; with enough the answer says what was changed and checked."""
    rows = [(trace.prompt, start(trace.response)) for trace in sample_records().traces]
    asked = rows[::60][:6]
    short = ((" ".join(prompt.split()[:6]), " ".join(text.split()[:8])) for prompt, text in rows if text)
    pool = list(dict.fromkeys(short))[:210]
    few, many = (
        file_of(tmp_path, name, [row[1] for row in some], [row[0] for row in some])
        for name, some in (("few.jsonl", pool[:20]), ("many.jsonl", pool))
    )
    opened(browser)
    given(browser, file_of(tmp_path, "asked.jsonl", [row[1] for row in asked], [row[0] for row in asked]))
    browser.until("return document.querySelector('#attr-preview').textContent !== ''")
    browser.run("document.querySelector('#attr-background').closest('details').open = true")
    given(browser, few, "#attr-background")
    browser.until("return document.querySelector('#attr-background-head').textContent.includes('20 traces')")
    browser.until("return !document.querySelector('#attr-go').disabled")
    browser.click("#attr-go")
    browser.until("return document.body.innerText.includes('200 are needed')")
    browser.click("#attr-background-none")
    browser.until("return document.querySelector('#attr-background-head').textContent === ''")
    given(browser, many, "#attr-background")
    browser.until("return document.querySelector('#attr-background-head').textContent.includes('210 traces')")
    assert weighed(browser).split()[1] == "INCONCLUSIVE"
    told = browser.text(".verdict")
    assert "Scores were balanced by 2" in told and "unlabelled responses" in told and "Without them" in told


def test_a_log_fills_in_the_claim(browser: Browser) -> None:
    def used(model: str) -> None:
        body = {"model": "smol", "messages": [{"role": "user", "content": "Why?"}]}
        record = {"request": body, "response": {"model": model, "choices": [{"text": f"Because of {model}."}]}}
        browser.run("window.dash_clientside.set_props('attr-paste', {value: arguments[0]})", json.dumps(record))
        browser.click("#attr-use")
        browser.until(f"return document.querySelector('#attr-preview').textContent.includes('Because of {model}.')")

    value = "return document.querySelector('#attr-claim').value"
    opened(browser)
    used("smol-warm")
    browser.until(f"{value} === 'smol-warm'")
    reason = browser.until("return document.querySelector('#attr-claim-file').textContent")
    assert "smol-warm was returned in 1 of 1 traces" in reason
    assert "Requested smol, returned smol-warm in 1 of 1 traces" in browser.text("#attr-preview")
    used("gemma-answer")
    browser.until(f"{value} === 'gemma-answer'")
    chosen(browser, "attr-claim", "smol-warm")
    used("gemma-answer-latest")
    assert browser.run(value) == "smol-warm", "a person chose it"

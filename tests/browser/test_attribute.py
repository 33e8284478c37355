"""What people do with their own traces, in a real Chromium, with the shipped proxy and the shipped sample ecosystem."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import waitress
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

import backend.attribution.scoring
from atlas.application import create_application
from atlas.pages.attribute import HEADS
from backend.attribution.drift_report import SAME_RESPONSES
from backend.corpus.collection import sample_records
from backend.enrolment.files import enrolments, load_enrolment, save_enrolment
from backend.proxies.reader import Reader
from backend.proxies.registry import proxy_hash
from jobs.__main__ import main
from tests.browser.conftest import Browser, published
from tests.invented_atlas import publish_invented

pytestmark = [pytest.mark.browser, pytest.mark.proxy]

SAMPLES, CALLED = "samples-smollm2-135m-ur", "the samples"
SCRIPT = "<img src=x onerror=\"document.title='owned'\"> \u202eאבג\u202c {{7*7}}"
SHIPPED = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture(scope="module")
def place(smollm2: Reader, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A served atlas with the sample ecosystem, and one whose sources have hostile names."""
    if SAMPLES not in enrolments(SHIPPED):
        pytest.skip("the sample ecosystem is not enrolled: python -m jobs enroll --sample")
    folder = published(tmp_path_factory, publish_invented)
    (folder / "data" / "enrolments").mkdir()
    shutil.copy(enrolments(SHIPPED)[SAMPLES], folder / "data" / "enrolments")
    sample = load_enrolment(enrolments(SHIPPED)[SAMPLES])
    named = (f"{SCRIPT}", "=1+1", *sample.sources[2:])
    save_enrolment(
        replace(sample, name="hostile", sources=named, families=(SCRIPT, *sample.families[1:])),
        folder / "data" / "enrolments" / "hostile.npz",
    )
    patch = pytest.MonkeyPatch()
    loaded = smollm2, proxy_hash("smollm2-135m")
    patch.setattr(backend.attribution.scoring, "from_registry", lambda *_: loaded)
    patch.setenv("ATLAS_DATA", str(folder / "data"))
    app = create_application(folder / "data", folder / "cache")
    server = waitress.create_server(app.server, host="127.0.0.1", port=0, threads=6)
    threading.Thread(target=server.run, daemon=True).start()
    yield f"http://127.0.0.1:{server.effective_port}", folder
    server.close()
    patch.undo()


@pytest.fixture
def browser(driver: WebDriver, place: tuple[str, Path]) -> Iterator[Browser]:
    view = Browser(driver, place[0])
    view.complaints()
    yield view
    assert view.complaints() == []
    driver.get(f"{place[0]}/health")  # a test may end in a file, which has another storage
    driver.execute_script("sessionStorage.clear()")
    driver.delete_all_cookies()


def opened(browser: Browser, query: str = "", ecosystem: str = SAMPLES) -> None:
    called = CALLED if ecosystem == SAMPLES else ecosystem
    browser.driver.get(f"{browser.url}/attribute?theme=dark&ecosystem={ecosystem}{query}")
    browser.until(
        "const e = document.querySelector('#attr-ecosystem'); return e && e.value.startsWith(arguments[0])", called
    )


def sampled(browser: Browser, name: str = "A provider's qwen-brief") -> None:
    """Take a case of the sample; the ecosystem of the first one is not here."""
    press = "[...document.querySelectorAll('#attr-one .row .button')].find(b => b.innerText.startsWith(arguments[0]))"
    browser.until(f"const b = {press}; if (b) b.click(); return !!b", name)
    browser.until("return document.querySelector('#attr-sample-story').innerText.startsWith(arguments[0])", name)


def chosen(browser: Browser, identity: str, words: str) -> None:
    """Choose the option of a select that begins with some words."""
    browser.driver.find_element(By.ID, identity).click()
    browser.until(
        "const o = [...document.querySelectorAll('[role=option]')].find(o => o.innerText.startsWith(arguments[0]) "
        "&& o.offsetParent); if (o) o.click(); return !!o",
        words,
    )


def given(browser: Browser, path: Path, place: str = "#attr-drop") -> None:
    browser.until("return document.querySelector(arguments[0]) !== null", f"{place} input[type=file]")
    browser.driver.find_element(By.CSS_SELECTOR, f"{place} input[type=file]").send_keys(str(path))


def file_of(folder: Path, name: str, responses: list[str], prompts: list[str] | None = None) -> Path:
    asked = prompts or [f"Question {i}?" for i in range(len(responses))]
    lines = [json.dumps({"prompt": p, "response": r}) for p, r in zip(asked, responses, strict=True)]
    path = folder / name
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def start(text: str) -> str:
    """The first words of a response, which are read in a fraction of the time."""
    return " ".join(text.split()[:24])


def weighed(browser: Browser) -> str:
    """Press the button, wait for the answer, and return its word."""
    browser.until("return !document.querySelector('#attr-go').disabled")
    browser.click("#attr-go")
    browser.until("return document.querySelector('.verdict-word') !== null")
    return browser.text(".verdict-word")


def downloaded(browser: Browser, downloads: Path, pattern: str) -> Path:
    return browser.wait(lambda: next(iter(downloads.glob(pattern)), None), f"a file {pattern}")  # type: ignore[no-any-return]


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
    ActionChains(browser.driver).send_keys("4").perform()
    browser.until("return document.activeElement.id === 'sample-run'")
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    browser.until("return document.querySelector('.sheet-case .verdict') !== null")
    shown = browser.text(".sheet-case")
    assert "Sample: A provider's qwen-brief" in shown and "SUPPORTS" in shown
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


def test_two_windows_of_which_one_is_changed_differ(browser: Browser, tmp_path: Path) -> None:
    records = sample_records()
    count = len(records.prompt_ids)
    opened(browser, "&mode=two")
    browser.until("return document.querySelector('#attr-one').hidden && !document.querySelector('#attr-two').hidden")
    traces = records.traces[records.sources.index("smol-greedy") * count :][:12]
    changes = {"before": start, "after": lambda text: start(text).upper() + " \U0001f680 1234!" * 5}
    (tmp_path / "broken.jsonl").write_bytes(bytes(range(256)))
    for side, change in changes.items():
        path = file_of(tmp_path, f"{side}.jsonl", [change(t.response) for t in traces], [t.prompt for t in traces])
        if side == "after":  # a refused second window is not the same as none
            browser.until("return !document.querySelector('#win-go').disabled")
            given(browser, tmp_path / "broken.jsonl", f"#win-{side}")
            browser.until("return document.querySelector('#win-problem').innerText !== ''")
            browser.until("return document.querySelector('#win-go').disabled")
        given(browser, path, f"#win-{side}")
        browser.until("return document.querySelector(arguments[0] + ' .preview-facts') !== null", f"#win-{side}-head")
    browser.until("return !document.querySelector('#win-go').disabled")
    browser.click("#win-go")
    assert browser.text("#win-verdict").split()[-1] == "DIFFERENT"
    assert "12 and 12 traces" in browser.text("#win-result .verdict-sentence")
    assert "random swaps of answers within prompts" in browser.text("#win-result .verdict-facts")
    # The generation holds no drift test, so its power is that of the ecosystem's own validation.
    browser.until("return document.querySelector('#figure-power .main-svg') !== null")
    assert "sibling of its family" in browser.text("#figure-power .sentence")
    assert f"on sources of {CALLED}" in browser.text("#figure-power .sentence")
    # Files and answer are there after a visit to another page, and the second window becomes one set of traces.
    opened(browser)
    assert browser.text("h1") == HEADS["one"][0]
    browser.click("#attr-mode input[value=two]")
    assert browser.text("#win-verdict").split()[-1] == "DIFFERENT"
    browser.until("return document.querySelector('h1').innerText === arguments[0]", HEADS["two"][0])
    file = "return document.querySelector('#win-before-head').checkVisibility()"
    assert not browser.run(file), "the form is folded with its answer"
    browser.click("#win-back")
    browser.until(file)
    assert "before.jsonl" in browser.text("#win-before-head")
    browser.click("#win-go")
    browser.click("#win-result .verdict-next button")
    browser.until("return document.querySelector('#attr-preview-head').innerText.includes('after.jsonl')")
    assert browser.run("return document.querySelector('#attr-two').hidden")


def test_a_claim_is_compared_with_a_reference(browser: Browser, downloads: Path, tmp_path: Path) -> None:
    """Answers of another source to the same prompts are no reference; other prompts are refused at once."""
    records = sample_records()
    count = len(records.prompt_ids)

    def answers(source: str, more: str = "") -> tuple[list[str], list[str]]:
        traces = records.traces[records.sources.index(source) * count :][:12]
        return [start(trace.response) + more for trace in traces], [trace.prompt for trace in traces]

    opened(browser, "&mode=reference")
    browser.until("return !document.querySelector('#attr-reference').hidden")
    assert browser.text("h1") == HEADS["reference"][0]
    traces = file_of(tmp_path, "traces.jsonl", *answers("smol-greedy", " \U0001f680 1234!" * 5))
    given(browser, traces, "#ref-traces")
    browser.until("return document.querySelector('#ref-traces-head .preview-facts') !== null")
    assert browser.run("return document.querySelector('#ref-go').disabled"), "a reference is wanted"
    given(browser, traces, "#ref-reference")
    browser.until("return document.querySelector('#ref-common').innerText.includes(arguments[0])", SAME_RESPONSES)
    browser.until("return !document.querySelector('#ref-go').disabled")  # a warning, no refusal
    given(browser, file_of(tmp_path, "other.jsonl", ["Yes."] * 12), "#ref-reference")
    browser.until("return document.querySelector('#ref-common').innerText.includes('0 of 12 prompts in common')")
    browser.until("return document.querySelector('#ref-prompts').checkVisibility()")
    assert browser.run(
        "return document.querySelector('#ref-go').disabled && !document.querySelector('#ref-go-now').checkVisibility()"
    )
    for kind, source in (("reference", "gemma-answer"), ("rival", "smol-warm")):
        given(browser, file_of(tmp_path, f"{source}.jsonl", *answers(source)), f"#ref-{kind}")
        browser.until(f"return document.querySelector('#ref-{kind}-head').innerText.includes('{source}')")
    browser.until("return !document.querySelector('#ref-go').disabled")
    assert "12 of 12 prompts in common" in browser.text("#ref-common")
    browser.click("#ref-go")
    word, means = browser.text("#ref-verdict").split("\n")[-2:]
    assert word == "AGAINST" and means.startswith("traces.jsonl differs from gemma-answer.jsonl")
    told = browser.text("#ref-result")
    assert "12 prompts that both answered" in told and "smol-warm.jsonl" in told and "What to do next" in told
    assert "Whose they are is not said" not in told, "what the answers mean is folded"
    browser.click("#ref-result .verdict summary")
    browser.until("return document.querySelector('#ref-result').innerText.includes('Whose they are is not said')")
    browser.run("document.querySelectorAll('#ref-result .exports button')[1].click()")
    saved = downloaded(browser, downloads, "reference-*.txt").read_text("utf-8")
    assert "reference-check traces.jsonl --reference gemma-answer.jsonl --rival smol-warm.jsonl" in saved


def test_traces_with_odd_columns_are_read_wherever_they_are_dropped(
    browser: Browser, downloads: Path, tmp_path: Path
) -> None:
    """A proposal is taken by one click, also from One set of traces; the prompts to ask come as a file."""
    lines = "".join(f"{i};What about number {i}?;{'This is a long enough answer. ' * 3}{i}\n" for i in range(12))
    odd = tmp_path / "kochen.csv"
    odd.write_text("lfd;frage;antwort_text\n" + lines, "utf-8")

    opened(browser, "&mode=two")
    given(browser, odd, "#win-after")
    browser.until("return !document.querySelector('#win-after-take').hidden")
    assert browser.run("return document.querySelector('#win-go').disabled")
    browser.click("#win-after-take")
    browser.until("return document.querySelector('#win-after-rows').innerText.includes('The first 3 of 12 traces')")
    assert browser.run("return document.querySelector('#win-after-prompt').value") == "frage"
    browser.click("#win-after-remove")
    browser.until("return document.querySelector('#win-after-head').innerText === ''")

    # Both files at once fill both windows, in the order of their names.
    for name in ("week-2.csv", "week-1.csv"):
        (tmp_path / name).write_text("lfd;prompt;response\n" + lines.replace("long", name), "utf-8")
    field = browser.driver.find_element(By.CSS_SELECTOR, "#win-before input[type=file]")
    field.send_keys(f"{tmp_path / 'week-2.csv'}\n{tmp_path / 'week-1.csv'}")
    browser.until("return document.querySelectorAll('#attr-two .preview-facts').length === 2")
    assert "week-1.csv" in browser.text("#win-before-head") and "week-2.csv" in browser.text("#win-after-head")

    browser.click("#attr-mode input[value=one]")
    given(browser, odd)
    browser.click("#attr-propose")
    browser.until("return document.querySelectorAll('#attr-rows .ag-center-cols-container [role=row]').length > 0")
    browser.click("#attr-mode input[value=reference]")
    browser.until("return document.querySelector('#ref-carry')?.hidden === false")
    browser.click("#ref-carry")
    browser.until("return document.querySelector('#ref-traces-rows').innerText.includes('The first 3 of 12 traces')")
    browser.click("#ref-prompts")
    saved = downloaded(browser, downloads, "prompts-kochen.jsonl").read_text("utf-8")
    assert [json.loads(line)["prompt"] for line in saved.splitlines()] == [f"What about number {i}?" for i in range(12)]


@pytest.mark.parametrize(("forms", "keys"), [(("txt",), True), (("json", "html"), False)])
def test_an_operator_compares_two_windows_and_sends_the_result(
    browser: Browser, downloads: Path, forms: tuple[str, ...], keys: bool
) -> None:
    """Five clicks from the map: the page, two windows, the two files, compare, save; by keyboard alone too."""

    def press(selector: str) -> None:
        element = browser.driver.find_element(By.CSS_SELECTOR, selector)
        element.send_keys(Keys.ENTER) if keys else browser.click(selector)

    browser.open(f"/?theme=dark&ecosystem={SAMPLES}")
    press("#nav-attribute")
    browser.until("return document.querySelector('#attr-mode input[value=two]') !== null")
    if keys:
        browser.run("document.querySelector('#attr-mode input:checked').focus()")
        ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
    else:
        browser.click("#attr-mode input[value=two]")
    browser.until("return !document.querySelector('#attr-two').hidden")
    press("#win-sample")
    browser.until("return document.querySelectorAll('#attr-two .preview-facts').length === 2")
    assert "Did the endpoint change?" in browser.text("#win-sample-story")
    browser.until("return !document.querySelector('#win-go').disabled")
    press("#win-go")
    assert browser.text("#win-verdict").split()[-1] == "DIFFERENT"
    for form in forms:
        save = browser.driver.find_elements(By.CSS_SELECTOR, "#win-result .exports button")[
            ["html", "txt", "json"].index(form)
        ]
        save.send_keys(Keys.ENTER) if keys else browser.run("arguments[0].click()", save)
        saved = downloaded(browser, downloads, f"drift-*.{form}").read_text("utf-8")
        if form == "json":
            assert len(json.loads(saved)["windows"]) == 2 and "sha256" in json.loads(saved)
        elif form == "html":
            assert "<script" not in saved and "What to do next" in saved
            assert "python -m jobs drift week-1.jsonl" in saved
        else:
            assert "python -m jobs drift week-1.jsonl week-2.jsonl" in saved and "p = " in saved


def test_a_presenter_shows_map_accuracy_a_confusion_and_the_case_by_four_keys(browser: Browser) -> None:
    opened(browser)
    sampled(browser)
    browser.until("return document.querySelector('.preview-facts') !== null")
    word = weighed(browser).split()[1]
    browser.move("/?theme=dark&roster=12-way")

    def pressed(key: str) -> None:
        ActionChains(browser.driver).send_keys(key).perform()

    pressed("?")
    assert "/ Find a source" in browser.text("#present-keys")
    pressed("?")
    assert browser.run("return document.querySelector('#present-keys').hidden")
    pressed("p")
    browser.wait(lambda: browser.query().get("present") == "1", "the presentation")
    assert "4 Your case" in browser.text("#present-keys")
    pressed(Keys.PAGE_DOWN)
    assert browser.text("#present-keys").startswith("2 / 4")
    top = "const e = document.querySelector(arguments[0]); return e && Math.abs(e.getBoundingClientRect().top) < 60"
    browser.until("return document.querySelector('#budget-graph .main-svg') !== null")
    browser.until(top, ".first-screen .figure-head")  # the question, and below it the answer
    seen = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom <= innerHeight"
    browser.until(seen, "#budget-graph")
    assert browser.run(seen, "#answer")
    down = "return document.querySelector('.present-more').checkVisibility()"
    browser.until(down)
    assert browser.run("return getComputedStyle(document.querySelector('#present-off')).opacity") == "0"
    pressed(" ")
    browser.until(top, "#figure-confusion")
    assert browser.text("#present-keys").startswith("3 / 4 · figure 1 of 5")
    browser.until("return document.querySelector('#pair tbody') !== null")
    assert browser.query()["truth"] != browser.query()["answer"]
    browser.until("return document.querySelector('#figure-confusion .sentence').innerText.includes('is taken for')")
    assert browser.run(seen, "#confusion-graph")
    browser.wait(lambda: browser.query().get("zoom"), "the family of the confusion, whose cells can be told apart")
    pressed(Keys.ARROW_DOWN)
    assert browser.text("#present-keys").startswith("3 / 4 · figure 2 of 5")
    assert browser.run(down)
    has = "return document.querySelector('.present-place').textContent.includes(arguments[0])"
    for number in (3, 4, 5):
        pressed(Keys.ARROW_DOWN)
        browser.until(has, f"figure {number} of 5")
    browser.until(down.replace("return ", "return !"))  # no figure follows the last one
    for key in (Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT, "3"):
        pressed(key)
    browser.until("return document.querySelector('#pair tbody') !== null")
    browser.until(top, "#figure-confusion")
    pressed(Keys.ARROW_RIGHT)
    assert browser.text("#present-keys").startswith("4 / 4")
    browser.until(top, ".sheet-case")
    assert word in browser.text(".sheet-case .verdict-word")
    assert browser.run("return document.querySelectorAll('.verdict').length") == 1
    heads = browser.run("return [...document.querySelectorAll('.sheet-cover h3')].map(e => e.innerText)")
    assert heads[0] == "How often is this reader right?"
    assert not any(head.startswith("The atlas in general") for head in heads)  # none of its reader
    findings = browser.text(".sheet-cover .findings")
    such = "tests (10 traces of an enrolled source, no claim) that ended in SUPPORTS"
    assert 0 < findings.find(such) < findings.find("A false claim of the nearest other source")
    assert "With 10 traces the most probable source" in findings
    panel = "return getComputedStyle(document.querySelector(arguments[0])).getPropertyValue('--panel')"
    assert browser.run(panel, ".sheet-case") == browser.run(panel, ":root") != browser.run(panel, ".sheet-cover")
    assert browser.text(".sheet-cover .facts .mono").startswith("sha256 ")
    browser.until("return document.querySelector('.sheet-case .main-svg') !== null")
    assert browser.text("#present-keys").startswith("4 / 4")
    pressed(Keys.ESCAPE)
    # The presentation ends where it began, with the choices of then.
    browser.wait(lambda: "present" not in browser.query(), "the end of the presentation")
    browser.until("return location.pathname === '/' && document.querySelector('#map') !== null")
    assert browser.query()["roster"] == "12-way" and "zoom" not in browser.query()
    browser.settled()


def test_cancelled_windows_are_compared_as_far_as_they_were_read(browser: Browser, tmp_path: Path) -> None:
    records = sample_records()
    traces = records.traces[:12]
    opened(browser, "&mode=two")
    browser.until("return !document.querySelector('#attr-two').hidden")
    few = file_of(tmp_path, "few.jsonl", [start(trace.response) for trace in traces], [t.prompt for t in traces])
    texts = [f"{start(trace.response)} ({i})" for i, trace in enumerate(records.traces)]
    many = file_of(tmp_path, "many.jsonl", texts * 2)
    for side, path in (("before", few), ("after", many)):
        given(browser, path, f"#win-{side}")
        browser.until("return document.querySelector(arguments[0] + ' .preview-facts') !== null", f"#win-{side}-head")
    browser.until("return !document.querySelector('#win-go').disabled")
    browser.click("#win-go")
    # Beyond the 12 of the first window, so that the second one has begun.
    browser.until("return parseInt(document.querySelector('#win-words').innerText) > 12")
    browser.click("#win-cancel")
    browser.until("return document.querySelector('#win-verdict') !== null")
    assert "stopped when 12 of 12 traces of the first window and" in browser.text("#win-result .verdict")
    browser.until("return !document.querySelector('#win-go').disabled")

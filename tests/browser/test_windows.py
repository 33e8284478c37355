"""Two windows, a reference and a presentation, in a real Chromium, with the shipped proxy and sample ecosystem."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from atlas.pages.attribute import HEADS
from backend.attribution.drift_report import SAME_RESPONSES
from backend.corpus.collection import sample_records
from tests.browser.attributing import CALLED, SAMPLES, downloaded, file_of, given, opened, sampled, start, weighed
from tests.browser.conftest import Browser

pytestmark = [pytest.mark.browser, pytest.mark.proxy]


@pytest.fixture
def browser(samples_browser: Browser) -> Browser:
    return samples_browser


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


def test_a_next_step_opens_the_form_whatever_answer_is_kept(browser: Browser, tmp_path: Path) -> None:
    """And an answer that the server no longer has leaves the empty form, without a word."""
    records = sample_records()
    count = len(records.prompt_ids)
    for prefix, mode, kinds in (("win", "two", ("before", "after")), ("ref", "reference", ("traces", "reference"))):
        opened(browser, f"&mode={mode}")
        for kind, source in zip(kinds, ("smol-greedy", "gemma-answer"), strict=True):
            traces = records.traces[records.sources.index(source) * count :][:8]
            path = file_of(
                tmp_path, f"{kind}.jsonl", [start(trace.response) for trace in traces], [t.prompt for t in traces]
            )
            given(browser, path, f"#{prefix}-{kind}")
            browser.until(f"return document.querySelector('#{prefix}-{kind}-head').innerText.includes('{kind}')")
        browser.until(f"return !document.querySelector('#{prefix}-go').disabled")
        browser.click(f"#{prefix}-go")
        assert browser.text(f"#{prefix}-verdict")

    traces = records.traces[records.sources.index("smol-greedy") * count :][:8]
    path = file_of(tmp_path, "five.jsonl", [start(trace.response) for trace in traces], [t.prompt for t in traces])
    opened(browser)
    given(browser, path)
    browser.until("return document.querySelector('.preview-facts') !== null")
    weighed(browser)
    opened(browser, "&mode=reference&carry=1")
    browser.until("return (document.querySelector('#ref-traces-head')?.innerText || '').includes('five.jsonl')")
    browser.until("return document.querySelector('#ref-result').innerText === ''")
    assert browser.run("return document.querySelector('#ref-traces').checkVisibility()")
    assert browser.run("return document.querySelector('#ref-reference-head').innerText") == ""
    browser.wait(lambda: "carry" not in browser.query(), "a link that carries once")

    given(browser, tmp_path / "reference.jsonl", "#ref-reference")
    browser.until("return !document.querySelector('#ref-go').disabled")
    browser.click("#ref-go")
    assert browser.text("#ref-verdict")
    browser.driver.refresh()
    assert browser.text("#ref-verdict"), "an answer is there after a reload"
    opened(browser)
    browser.click("#attr-forget")
    browser.until("return document.querySelector('#attr-result').innerText === ''")
    for prefix, mode, kind in (("win", "two", "before"), ("ref", "reference", "traces")):
        opened(browser, f"&mode={mode}" + "&carry=1" * (prefix == "ref"))
        browser.until(f"return document.querySelector('#{prefix}-{kind}').checkVisibility()")
        browser.until(f"return sessionStorage.getItem('{prefix}-done') === 'null'")
        assert browser.run(f"return document.querySelector('#{prefix}-result').innerText") == ""


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
    pressed("1")
    browser.until("return location.pathname === '/' && document.querySelector('#map .main-svg') !== null")
    browser.settled()
    at = browser.run(
        "const c = document.getElementById('content'); return [c.scrollTop, c.scrollHeight - c.clientHeight]"
    )
    assert at == [0, 0]  # its question would be cut
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

"""Tasks that people must be able to do without help, in few clicks."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from backend.corpus.collection import RESPONSES, read_collected
from tests.browser.attributing import given
from tests.browser.conftest import Browser

pytestmark = [pytest.mark.browser, pytest.mark.proxy]

COUNTS = """
window.clicks = 0;
document.addEventListener('click', event => { if (event.isTrusted) window.clicks += 1; }, true);
"""
REPORT = "attribution-????????.html"
SENTENCE = "return document.querySelector('.verdict-sentence')?.innerText"


@pytest.fixture
def browser(samples_browser: Browser) -> Browser:
    return samples_browser


def odd_table(folder: Path) -> Path:
    """Answers of one sample source under names of columns that nobody recognises."""
    records = [one for one in read_collected(RESPONSES) if one.source == "smol-pirate"][:10]
    path = folder / "export.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["nr", "q_txt", "a_txt"])
        writer.writerows([i, one.prompt, one.response] for i, one in enumerate(records))
    return path


@pytest.mark.usefixtures("sized")
@pytest.mark.parametrize("width", [1280, 390])
def test_an_auditor_gets_an_answer_and_a_sheet_for_the_board(
    browser: Browser, downloads: Path, tmp_path: Path, width: int
) -> None:
    browser.resize(width, 900)
    browser.driver.get(f"{browser.url}/?theme=light")
    browser.until("return document.querySelector('#map') !== null || document.querySelector('h1') !== null")
    browser.run(COUNTS)
    if width <= 640:
        browser.driver.find_element(By.ID, "menu").click()
    browser.driver.find_element(By.CSS_SELECTOR, "a[href^='/attribute']").click()
    given(browser, odd_table(tmp_path))
    browser.until("return document.querySelector('#attr-propose') !== null")
    browser.click("#attr-propose")
    browser.until("return document.querySelector('.preview-facts')?.innerText.includes('10 traces')")
    assert browser.run("return document.querySelector('#attr-column-response').value") == "a_txt"
    assert browser.run("return document.querySelector('#attr-column-prompt').value") == "q_txt"
    claim = browser.driver.find_element(By.ID, "attr-claim")
    claim.click()
    claim.send_keys("smol-pirate", Keys.ARROW_DOWN, Keys.ENTER)
    browser.until("return document.querySelector('#attr-claim').value === 'smol-pirate'")
    browser.click("#attr-go")
    browser.until(SENTENCE)
    assert "smol-pirate" in browser.run(SENTENCE)
    assert browser.run("return document.querySelector('.verdict-next')?.innerText"), "what to do next is said"
    assert (clicks := browser.run("return window.clicks")) <= 6
    answer, before = browser.run(SENTENCE), set(downloads.glob(REPORT))
    report = next(
        one for one in browser.driver.find_elements(By.CSS_SELECTOR, ".exports .button") if "HTML" in one.text
    )
    report.click()
    sheet = browser.wait(lambda: next(iter(set(downloads.glob(REPORT)) - before), None), "a report")
    assert browser.run("return window.clicks") <= clicks + 2
    browser.driver.get(f"file://{sheet}")  # test_report.py looks at what stands on it, and that it is one sheet
    assert " ".join(answer.split()) in " ".join(browser.driver.find_element(By.CSS_SELECTOR, ".front").text.split())

"""The shipped sample ecosystem, served for the browser, and what people do with their own traces there."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import waitress
from selenium.webdriver.common.by import By

import backend.attribution.scoring
from atlas.application import create_application
from backend.enrolment.files import enrolments, load_enrolment, save_enrolment
from backend.proxies.reader import Reader
from backend.proxies.registry import proxy_hash
from tests.browser.conftest import Browser, published
from tests.invented_atlas import publish_invented

SAMPLES, CALLED = "samples-smollm2-135m-ur", "the samples"
SCRIPT = "<img src=x onerror=\"document.title='owned'\"> \u202eאבג\u202c {{7*7}}"
SHIPPED = Path(__file__).resolve().parents[2] / "data"


def serve_samples(smollm2: Reader, factory: pytest.TempPathFactory) -> Iterator[str]:
    """A served atlas with the sample ecosystem, and one whose sources have hostile names."""
    if SAMPLES not in enrolments(SHIPPED):
        pytest.skip("the sample ecosystem is not enrolled: python -m jobs enroll --sample")
    folder = published(factory, publish_invented)
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
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()
    patch.undo()


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

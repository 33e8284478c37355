"""The report on paper: a summary that fits on the first sheet, A4 and Letter, with numbered pages."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from backend.attribution.report import with_alarm
from backend.attribution.report_page import case_title, write_html
from backend.attribution.report_words import answer_sentence, keep_together, with_names
from backend.enrolment.stories import stories, story_files
from backend.inference.verdict import REFERENCE
from jobs.__main__ import main

pytestmark = [pytest.mark.browser, pytest.mark.proxy]
PAPERS = {"A4": (8.27, 11.69), "Letter": (8.5, 11.0)}  # inches
ALARM = {"watch": "reseller", "number": 1, "traces": 143, "first": 84, "log10_e": 2.57, "rate": 0.01}
MARGINS = (14 + 16, 32)  # of the page, mm: upper and lower, both sides


SIBLINGS = "an answer about a family, the longest"


def of_siblings(report):
    """The report as if it named a family with its chart, and two sources whose names differ by a date."""
    results, (claimed, other) = report["results"], ("an-endpoint-called-so", "an-endpoint-called-so-2024-11-20")
    kin = [{"source": name, "family": "GPT", "probability": share} for name, share in ((other, 0.579), (claimed, 0.4))]
    pairs = zip(results["candidates"], kin, strict=False)
    found = {
        "verdict": "SUPPORTS", "level": "family", "claimed": claimed, "subject": claimed, "siblings": [other, claimed],
        "candidates": [*({**one, **named} for one, named in pairs), *results["candidates"][2:]],
        "families": [{"family": "GPT", "probability": 0.9995}, *results["families"]],
        "running": [{**row, "probability": 0.4, "log10_ratio_others": 2.35} for row in results["running"]],
        "traces": 40, "capped": True, "stated": True, "interval": None,
        "next_steps": [f"To tell siblings of {claimed} apart, a{REFERENCE.format(who=f'genuine {claimed}')[1:]}"],
        "sentence": "The 40 traces support the family GPT: at least about 12,000 times more likely from that family "
        "than from the other families (log10 ratio 4.09).",
    }  # fmt: skip
    renamed = {old["source"]: new["source"] for old, new in zip(results["candidates"], kin, strict=False)}
    sources = [renamed.get(one, one) for one in report["reference"]["sources"]]
    rows = [
        {"source": one, "named": two, "traces": 100, "count": 43, "groups": 75}
        for one, two in ((claimed, other), (other, claimed))
    ]
    named = {"results": results | found, "reference": report["reference"] | {"sources": sources}}
    return report | named | {"confusions": rows}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of the served enrolment, which has the longest validation."""
    folder = tmp_path_factory.mktemp("report")
    (content,) = story_files(stories("attribute")[0], None).values()
    (folder / "traces.jsonl").write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATLAS_COMPILE", "0")
        options = ["--enrolment", "165-way-fused-live-smollm2-135m-ur", "--report", str(folder / "out.html")]
        assert main(["attribute", str(folder / "traces.jsonl"), *options]) == 0
    return json.loads((folder / "out.json").read_text("utf-8"))


@pytest.mark.parametrize("alarm", [None, ALARM, SIBLINGS], ids=["asked", "alarm", "siblings"])
@pytest.mark.parametrize("paper", PAPERS)
def test_the_summary_fits_on_the_first_sheet(driver, report, tmp_path: Path, paper, alarm):
    width, height = PAPERS[paper]
    if alarm is SIBLINGS:
        report, alarm = of_siblings(report), None
    named = report | {"case": "An endpoint that is sold under the name of another model, of the second quarter, appeal"}
    named = with_alarm(named, alarm) if alarm else named
    page = tmp_path / "report.html"
    page.write_text(write_html(named), "utf-8")
    driver.get(f"file://{page}")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    size = {
        "width": round(width * 96 - MARGINS[1] / 25.4 * 96),
        "height": 1000,
        "deviceScaleFactor": 1,
        "mobile": False,
    }
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        used = driver.execute_script(
            "return Math.max(...[...document.querySelectorAll('.front')].map(e => e.getBoundingClientRect().height))"
        )
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        chart = "return [...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect().width)"
        charts = driver.execute_script(chart)
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert used <= 0.98 * (height * 96 - MARGINS[0] / 25.4 * 96)  # so that another font does not push a line over
    assert wide <= size["width"] and all(chart >= 0.98 * wide for chart in charts)  # a scrollbar takes the rest
    printed = driver.execute_cdp_cmd(
        "Page.printToPDF", {"paperWidth": width, "paperHeight": height, "printBackground": True}
    )
    sheets = len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"])))
    assert 3 <= sheets <= 8


def test_the_first_sheet_has_what_a_board_asks_for(driver, report, tmp_path: Path):
    page = tmp_path / "report.html"
    page.write_text(write_html(report), "utf-8")
    driver.get(f"file://{page}")
    front = driver.find_element("css selector", ".front").text
    sentence = keep_together(answer_sentence(with_names(report)))
    for text in ("Provenance Atlas", case_title(report), report["question"], sentence):
        assert text in front
    for word in (
        "SUPPORTS",
        "AGAINST",
        "UNKNOWN",
        "INCONCLUSIVE",
        "Examined by",
        "Limits",
        "How often is such an answer",
    ):
        assert word in front
    headings = [one.text for one in driver.find_elements("css selector", "body > h2")]
    fields = ["Propositions", "Findings", "Uncertainty", "Validation", "Items and their integrity", "Method"]
    assert headings == [*fields, "For reviewers"]
    for jargon in ("python", "--", "log10 likelihood", report["method"]["reader"], report["method"]["proxy"]):
        assert jargon not in front
    review = driver.find_element("css selector", "body").text.split("For reviewers")[-1]
    assert "python -m jobs verify" in review

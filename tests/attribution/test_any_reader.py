"""Any reader that was measured scores live traces: what it says of enrolled prompts is what its evaluation kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

import backend.enrolment.fit
from backend.attribution.drift_report import standardised
from backend.attribution.scoring import Models
from backend.attribution.token_evidence import token_evidence
from backend.corpus.release import Release
from backend.enrolment.catalogue import Ecosystems
from backend.enrolment.enrolment import Enrolment, auxiliary_models
from backend.enrolment.files import load_enrolment
from backend.errors import AtlasError
from backend.evaluations.artifacts import artifact_folder, evaluation
from backend.evaluations.stages import readout_members, readouts
from backend.evaluations.stages.readout_members import tuned_settings
from backend.fingerprints import cache_folder
from backend.methods.network import NetworkSettings
from backend.methods.registry import ENCODED, ENCODER, ENROLLABLE, FUSED_TUNED, TEXT_TUNED, reads_text, why_not
from backend.proxies.registry import DEFAULT_PROXY
from backend.traces import Trace
from jobs.__main__ import main
from tests.commands import check
from tests.evaluations.test_baselines import save_tokenizer
from tests.fake_release import fake_release
from tests.tiny_models import save_tiny, tiny_encoder

SOURCES, PROMPTS = 6, 20
TUNED = replace(tuned_settings(), batch=8, learning_rate=5e-3, head_rate=5e-3)
TOGETHER = "tiny+other"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Release]]:
    """An invented release on which two tiny proxies and a tiny encoder were measured with every readout."""
    root = tmp_path_factory.mktemp("any")
    release = fake_release(root / "release", sources=SOURCES, prompts=PROMPTS)
    save_tiny(root / "tiny")
    save_tiny(root / "other", "gemma3", seed=1)
    tiny_encoder().save_pretrained(root / "bert")
    save_tokenizer(root / "bert")
    (root / "cache" / "proxies").mkdir(parents=True)
    (root / "cache" / "proxies" / DEFAULT_PROXY).symlink_to(cache_folder() / "proxies" / DEFAULT_PROXY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)  # a folder's name stands for the model in it
        patch.setenv("ATLAS_CACHE", str(root / "cache"))
        patch.setenv("ATLAS_DATA", str(root / "data"))
        patch.setenv("ATLAS_COMPILE", "0")
        patch.setattr(backend.enrolment.fit, "PLACED", ("tiny", "ur"))
        patch.setattr(readouts, "NetworkSettings", lambda: NetworkSettings(hidden=8, epochs=4, batch=16, rate=0.02))
        patch.setattr(readout_members, "tuned_settings", lambda: TUNED)
        shared = ["--release", str(release), "--roster", "165-way"]
        for proxy in ("tiny", "other"):
            read = ["extract", *shared, "--proxy", proxy, "--layers", "2-3"]
            assert main([*read, "--temporal", "3", "--positions", "3"]) == 0
            assert main([*read, "--benchmark", "math100", "--lengths", "full"]) == 0
            assert main(["evaluate", *shared, "--proxy", proxy]) == 0
        assert main(["evaluate", *shared, "--proxy", "tiny", "--stage", "controls", "--layers", "3"]) == 0
        for members in ("tiny:2+3,network,regression,experts,word,char,style", "tiny:2+3,other:2,network,word"):
            assert main(["evaluate", *shared, "--proxy", "tiny", "--stage", "readouts", "--members", members]) == 0
        tuned = ["--members", "tiny:2+3,network,word,bert:tuned"]
        tuned += ["--method", f"{ENCODER},{FUSED_TUNED},{TEXT_TUNED}"]
        assert main(["evaluate", *shared, "--proxy", "tiny", "--stage", "readouts", *tuned]) == 0
        texts = ["evaluate", *shared, "--stage", "baselines", "--method"]
        assert main([*texts, "ngram-word,ngram-char"]) == 0
        for view in ("ur", "r"):
            assert main([*texts, "dna,llmmap", "--model", "bert", "--view", view]) == 0
        yield root, Release(release)


def readers(root: Path) -> list[str]:
    with duckdb.connect(str(root / "cache" / "atlas-work.duckdb"), read_only=True) as work:
        return [reader for (reader,) in work.execute("SELECT reader FROM readers ORDER BY reader").fetchall()]


def enrolled(root: Path, release: Release, reader: str) -> Enrolment:
    method, proxy, view = (reader.split("/") + [None] * 2)[:3]
    asked = ["enroll", "--release", str(release.root), "--roster", "165-way", "--readout", method]
    asked += ["--proxy", proxy or "tiny", "--view", view or "ur"]
    assert main([*asked, *(["--layer", "3"] if why_not(method) is None else [])]) == 0, reader
    path = max((root / "data" / "enrolments").glob("*.npz"), key=lambda one: one.stat().st_mtime_ns)
    return load_enrolment(path)


@pytest.mark.slow(110)
@pytest.mark.proxy
def test_every_measured_reader_scores_as_its_evaluation_did(measured: tuple[Path, Release]) -> None:
    root, release = measured
    found = readers(root)
    assert {reader.partition("/")[0] for reader in found} == set(ENROLLABLE)
    assert {"fused/tiny/ur", f"fused/{TOGETHER}/ur", f"fused-states/{TOGETHER}/ur", "llmmap/bert/ur"} < set(found)
    assert {"encoder-lengths/bert/r", "fused-text-tuned", "fused-tuned/tiny/ur", "fused-style/tiny/ur"} < set(found)
    traces = release.records("agent500").traces[: SOURCES * PROMPTS]
    some = np.linspace(0, len(traces) - 1, 24).astype(np.intp)
    models = Models.on("cpu")
    for reader in found:
        if "/other/" in reader and not reader.startswith("reader-paper"):
            continue  # a second proxy of the same tables is read by the same code
        made = enrolled(root, release, reader)
        assert made.reader == reader
        method, proxy, view = (*reader.split("/"), None, None)[:3]
        kept = np.load(artifact_folder(method, proxy, view, "165-way", PROMPTS) / "log_posteriors.npy")[some]
        attributor = models.attributor(made)
        scored = attributor.score([traces[row] for row in some], keep_fingerprints=True)
        assert all(fold is not None for fold in scored.folds), reader
        # Half precision of states, scores and embeddings, which a tiny random model makes larger than a real one.
        assert np.abs(scored.log_posteriors - kept).max() < 0.05 + 0.02 * np.abs(kept).max(), reader
        assert scored.fingerprints is not None
        assert np.isfinite(standardised(scored.fingerprints, made)).all(), reader
        assert (made.landing is None) == (method == "reader-paper"), reader
        for trace in (traces[0], Trace("New?", ""), Trace("New?", "naïve 北京 🚀 \ud800 end " * 40)):
            evidence = token_evidence(attributor.reader, made, trace, 2, 0, attributor.others)
            live = attributor.score([trace]).log_posteriors[0]
            assert evidence.split.tokens.sum() == pytest.approx(evidence.log_odds, abs=1e-4, rel=1e-5), reader
            assert evidence.stored == pytest.approx(float(live[2] - live[0]), abs=1e-3, rel=1e-3), reader


@pytest.mark.slow
@pytest.mark.proxy
def test_what_reads_beside_has_to_be_there(measured: tuple[Path, Release], tmp_path: Path) -> None:
    root, release = measured
    made = enrolled(root, release, f"fused/{TOGETHER}/ur")
    assert (made.proxy, auxiliary_models(made)) == ("tiny", {"other": False})
    assert set(made.auxiliary) == {"other", "word"}
    assert set(made.facts["hashes_beside"]) == {"other"}
    with pytest.raises(AtlasError, match="other"):
        Models(lambda name: Models.on("cpu").load("tiny")).attributor(made)
    enrolled(root, release, "reader-dc/tiny/ur")
    known = Ecosystems(root / "data").all()
    assert known[0].live and not known[-1].live, "what answers soon comes before what reads more"
    encoded = enrolled(root, release, "dna/bert/r")
    assert (encoded.proxy, encoded.view, auxiliary_models(encoded)) == ("tiny", "ur", {"bert:r": True})
    (artifact_folder("dna", "bert", "r", "165-way", PROMPTS) / "model.2.npz").unlink()
    with pytest.raises(AssertionError):
        enrolled(root, release, "dna/bert/r")


def test_only_what_guesses_or_was_not_kept_cannot_score() -> None:
    assert [method for method in ENROLLABLE if why_not(method)] == []
    assert why_not("random") == "it guesses"
    assert "fine-tuned" in str(why_not("encoder"))
    assert "no single traces" in str(why_not("mpt"))
    assert [method for method in ENROLLABLE if reads_text(method)] == [
        "ngram-word", "ngram-char", "ngram-word-lengths", "ngram-char-lengths", "ngram-style-lengths", "fused-text",
        "fused-text-style", "fused-text-tuned",
    ]  # fmt: skip
    assert [method for method in ENROLLABLE if method in ENCODED] == ["dna", "llmmap", "encoder-lengths"]


def test_the_command_that_makes_a_reader_is_one_that_the_jobs_take() -> None:
    for method in ENROLLABLE:
        for proxy in ("smollm2-135m", "smollm2-135m+gemma3-270m", "minilm-l6"):
            check(evaluation(method, proxy, "ur", "100-way", limit=25))

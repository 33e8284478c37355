"""Baselines share folds, groups and accumulator; the stage keeps what stress needs and goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pytest
import torch
import transformers

from backend.evaluations import corpus
from backend.evaluations.artifacts import artifact_folder
from backend.evaluations.attribution import attribution_frames
from backend.evaluations.stages import baselines
from backend.evaluations.stages.baselines import assemble, score_fold
from backend.methods.baselines import random_guess
from backend.protocol import CLEAN, FOLDS, fold_of_prompts
from jobs.__main__ import main
from tests.fake_release import fake_release
from tests.tiny_models import tiny_encoder, tiny_tokenizer

SOURCES, PROMPTS, MATH = 6, 25, 10
CUT = ("t128", "t64", "t32")


def centroids(features: dict[str, np.ndarray], labels: np.ndarray, classes: int, seen: dict[int, np.ndarray]):
    """A nearest-centroid classifier as a fit."""

    def fit(rows, fold):
        seen[fold] = rows
        centres = np.stack([features[CLEAN][rows][labels[rows] == c].mean(0) for c in range(classes)])

        def predict(panel, wanted):
            distance = ((features[panel][wanted][:, None] - centres) ** 2).sum(2)
            return (-distance - np.log(np.exp(-distance).sum(1, keepdims=True))).astype(np.float32)

        return predict

    return fit


def test_every_row_is_scored_by_the_model_that_left_its_fold_out():
    rng = np.random.default_rng(0)
    labels, folds = np.repeat(np.arange(3), 10), np.tile(np.arange(10) % FOLDS, 3)
    features = {CLEAN: rng.normal(size=(30, 2)), "t32": rng.normal(size=(30, 2)), "math100": rng.normal(size=(6, 2))}
    seen: dict[int, np.ndarray] = {}
    fit = centroids(features, labels, 3, seen)
    by_fold = {fold: score_fold(fit, folds, fold, ["t32"], {"math100": 6}) for fold in range(FOLDS)}
    scores = assemble(by_fold, folds, ["math100"])
    # As many transfer rows as rows in a fold must not be taken for rows of a fold.
    assert {panel: s.shape for panel, s in scores.items()} == {CLEAN: (30, 3), "t32": (30, 3), "math100": (5, 6, 3)}
    for fold in range(FOLDS):
        assert set(seen[fold]) == set(np.flatnonzero(folds != fold))
        alone = fit(np.flatnonzero(folds != fold), fold)
        for panel in (CLEAN, "t32"):
            np.testing.assert_array_equal(scores[panel][folds == fold], alone(panel, np.flatnonzero(folds == fold)))
        np.testing.assert_array_equal(scores["math100"][fold], alone("math100", np.arange(6)))


def test_permuted_labels_give_chance_and_true_ones_do_not():
    rng = np.random.default_rng(1)
    labels, folds = np.repeat(np.arange(4), 100), np.tile(fold_of_prompts([f"{i:03d}" for i in range(100)]), 4)
    features = {CLEAN: 2 * np.eye(4)[labels] + rng.normal(size=(400, 4))}

    def accuracy(given: np.ndarray) -> float:
        fit = centroids(features, given, 4, {})
        scores = assemble({fold: score_fold(fit, folds, fold) for fold in range(FOLDS)}, folds)[CLEAN]
        return float((scores.argmax(1) == given).mean())

    assert accuracy(labels) > 0.7
    assert abs(accuracy(rng.permutation(labels)) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 400)


def test_scores_that_are_not_finite_and_empty_folds_are_refused():
    def broken(rows, fold):
        return lambda panel, wanted: np.full((len(wanted), 2), -np.inf, np.float32)

    with pytest.raises(ValueError, match=r"fold 1 .* 'clean'"):
        score_fold(broken, np.array([0, 1]), 1)
    with pytest.raises(ValueError, match="no row belongs to fold 3"):
        score_fold(broken, np.array([0, 1]), 3)


def test_random_guessing_is_normalised_repeatable_and_worth_chance():
    rows = np.arange(20_000)
    guess = random_guess(rows, 5, CLEAN, 0)
    np.testing.assert_allclose(np.exp(guess).sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(guess, random_guess(rows, 5, CLEAN, 0))
    for other in (random_guess(rows, 5, CLEAN, 1), random_guess(rows, 5, "t32", 0)):
        assert np.abs(guess - other).max() > 1
    share = np.bincount(guess.argmax(1), minlength=5) / len(rows)
    assert np.abs(share - 0.2).max() < 5 * np.sqrt(0.16 / len(rows))


def save_tokenizer(folder: Path) -> None:
    """The tokenizer of a model with 64 positions."""
    tokenizer = tiny_tokenizer(encoder=True)
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(folder)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """An invented release, an empty cache and tiny models."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus, "truncation_tokenizer", tiny_tokenizer)
    release = fake_release(tmp_path / "release", sources=SOURCES, prompts=PROMPTS, math_prompts=MATH)
    return release, tmp_path


def evaluate(world, *arguments: str, roster: str = "165-way") -> int:
    release, folder = world
    command = ["evaluate", "--stage", "baselines", "--release", str(release), "--work", str(folder / "work.duckdb")]
    return main([*command, "--roster", roster, *arguments])


def curve(world, reader: str, roster: str = "165-way", metric: str = "accuracy") -> dict[int, float]:
    """Accuracy, or an end of its interval, at every budget."""
    with duckdb.connect(str(world[1] / "work.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT k, value FROM attribution_metrics WHERE reader = ? AND roster = ? AND metric = ? AND "
            "reduction = 'pooled' AND seed IS NULL AND benchmark = 'agent500' AND condition = 'clean'",
            [reader, roster, metric],
        ).fetchall()
    return dict(rows)


def kept(reader: str, roster: str = "165-way", prompts: int = PROMPTS) -> Path:
    method, proxy, view = [*reader.split("/"), None, None][:3]
    return artifact_folder(method, proxy, view, roster, prompts)


def check_files(reader: str, sources: int = SOURCES, roster: str = "165-way") -> None:
    for panel in ("log_posteriors", *(f"log_posteriors.{cut}" for cut in CUT)):
        array = np.load(kept(reader, roster) / f"{panel}.npy")
        assert array.shape == (sources * PROMPTS, sources), panel
        np.testing.assert_allclose(np.exp(array).sum(1), 1, atol=1e-4)
    math = np.load(kept(reader, roster) / "math100.npy")
    assert math.shape == (FOLDS, sources * MATH, sources)
    assert np.abs(math[0] - math[1]).max() > 0, "five models"


def test_stage_end_to_end_without_models(world, capsys):
    assert evaluate(world, "--method", "random,ngram-word,ngram-char", roster="100-way,165-way") == 0
    printed = capsys.readouterr().out
    for reader in ("random", "ngram-word", "ngram-char"):
        assert f"{reader} on 165-way: accuracy K = 1" in printed
        for roster, sources in (("100-way", 4), ("165-way", 6)):
            check_files(reader, sources, roster)
            assert sorted(curve(world, reader, roster)) == [1, 5]
            low, value, high = (curve(world, reader, roster, f"accuracy{end}") for end in ("_low", "", "_high"))
            assert all(low[k] <= value[k] <= high[k] for k in (1, 5))
    assert curve(world, "random")[1] < 0.35
    assert curve(world, "ngram-word")[5] > 0.9
    assert curve(world, "ngram-char")[5] > 0.9

    labels = json.loads((world[0] / "data/rosters/165-way.json").read_text("utf-8"))
    prompt_folds = fold_of_prompts([f"rand-{i:06d}" for i in range(PROMPTS)])
    again = attribution_frames(
        np.load(kept("ngram-word") / "log_posteriors.npy"),
        [row["label"] for row in labels],
        [row["plot_family"] for row in labels],
        prompt_folds,
    ).metrics
    row = again[(again["metric"] == "accuracy") & (again["reduction"] == "pooled") & again["seed"].isna()]
    assert dict(zip(row["k"], row["value"], strict=True)) == pytest.approx(curve(world, "ngram-word"))
    with duckdb.connect(str(world[1] / "work.duckdb"), read_only=True) as connection:
        readers = connection.execute("SELECT reader, proxy, input_view, origin FROM readers ORDER BY reader").fetchall()
        details = [json.loads(d) for (d,) in connection.execute("SELECT details FROM builds").fetchall()]
    assert readers == [(name, None, None, "measured") for name in ("ngram-char", "ngram-word", "random")]
    assert any(fold["fit_seconds"] > 0 for d in details for fold in d.get("folds", []))


def test_an_interrupted_stage_goes_on_and_a_finished_one_is_not_repeated(world, monkeypatch):
    fitted: list[int] = []
    real = baselines.score_fold

    def counted(fit, folds, fold, *rest):
        if fold == 3 and fitted == [0, 1, 2]:
            fitted.append(-1)
            raise KeyboardInterrupt
        fitted.append(fold)
        return real(fit, folds, fold, *rest)

    monkeypatch.setattr(baselines, "score_fold", counted)
    assert evaluate(world, "--method", "ngram-word") == 130
    assert not (kept("ngram-word") / "log_posteriors.npy").exists()
    assert evaluate(world, "--method", "ngram-word") == 0
    assert fitted == [0, 1, 2, -1, 3, 4]
    resumed = np.load(kept("ngram-word") / "log_posteriors.npy")
    assert evaluate(world, "--method", "ngram-word") == 0
    assert len(fitted) == 6, "nothing is fitted twice"
    (kept("ngram-word") / "log_posteriors.t64.npy").unlink()
    assert evaluate(world, "--method", "ngram-word") == 0
    assert fitted[6:] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(resumed, np.load(kept("ngram-word") / "log_posteriors.npy"))


def test_whole_responses_alone_are_scored_first_and_the_altered_ones_later(world):
    assert evaluate(world, "--method", "ngram-word", "--clean-only") == 0
    whole, folder = curve(world, "ngram-word"), kept("ngram-word")
    clean = np.load(folder / "log_posteriors.npy")
    assert whole[5] > 0.9
    assert not list(folder.glob("log_posteriors.t*")) and not (folder / "math100.npy").exists()
    assert evaluate(world, "--method", "ngram-word") == 0
    check_files("ngram-word")
    np.testing.assert_array_equal(clean, np.load(folder / "log_posteriors.npy"))
    assert curve(world, "ngram-word") == whole
    (folder / "finished.json").unlink()
    assert evaluate(world, "--method", "ngram-word", "--clean-only") == 0
    assert not (folder / "math100.npy").exists(), "scores of another fit stay beside none"


def test_limit_takes_the_first_prompts_of_both_benchmarks(world):
    assert evaluate(world, "--method", "ngram-word", "--limit", "8") == 0
    folder = kept("ngram-word", prompts=8)
    assert np.load(folder / "log_posteriors.t32.npy").shape == (SOURCES * 8, SOURCES)
    assert np.load(folder / "math100.npy").shape == (FOLDS, SOURCES * 8, SOURCES)


def test_frozen_and_fine_tuned_encoders_end_to_end(world):
    folder = world[1] / "tiny-bert"
    tiny_encoder().save_pretrained(folder)
    save_tokenizer(folder)
    assert evaluate(world, "--method", "dna,llmmap,encoder", "--model", str(folder)) == 0
    for reader in ("dna/tiny-bert/ur", "llmmap/tiny-bert/ur", "encoder/tiny-bert/ur"):
        check_files(reader)
        assert not (kept(reader) / "checkpoints").exists()
    assert curve(world, "dna/tiny-bert/ur")[5] > 1.5 / SOURCES
    cached = {path.name for path in (world[1] / "cache" / "embeddings" / "tiny-bert" / "agent500").iterdir()}
    assert cached == {f"{kind}.{panel}" for kind in ("ur", "response650") for panel in (CLEAN, *CUT)}
    array = np.load(world[1] / "cache/embeddings/tiny-bert/agent500/ur.clean/embeddings.npy")
    assert array.shape == (SOURCES * PROMPTS, 32)


def test_a_text_classifier_from_a_folder_end_to_end(world):
    folder = world[1] / "tiny-deberta"
    torch.manual_seed(0)
    config = transformers.DebertaV2Config(
        vocab_size=400, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=64, type_vocab_size=0, pad_token_id=0, pooler_hidden_size=16,
    )  # fmt: skip
    transformers.DebertaV2Model(config).save_pretrained(folder)
    save_tokenizer(folder)
    assert evaluate(world, "--method", "deberta", "--model", str(folder), roster="50-way") == 0
    check_files("deberta/tiny-deberta/ur", 2, "50-way")


def test_unknown_baseline_lists_the_known_ones(world, capsys):
    assert evaluate(world, "--method", "bayes") == 2
    message = capsys.readouterr().err
    assert "no baseline 'bayes'" in message
    assert "ngram-word" in message


def test_the_published_classifier_goes_by_its_method_alone():
    names = [method.reader for method in baselines.method_of("deberta", ["ur", "r"], None)]
    assert names == ["deberta", "deberta/microsoft--deberta-v3-large/r"]


def test_what_an_encoder_pools_and_cuts_is_among_the_settings_of_what_reads_with_it(tmp_path):
    """Without its weights, where its card says so: a finished evaluation is not fitted again for want of them."""
    for name in ("dna", "llmmap", "encoder"):
        (packaged,) = baselines.method_of(name, ["ur"], None)
        assert "Recipe(pooling='mean', normalise=True, max_tokens=256)" in packaged.settings
    folder = tmp_path / "tiny-bert"
    tiny_encoder().save_pretrained(folder)
    save_tokenizer(folder)

    def settings() -> list[str]:
        return [baselines.method_of(name, ["ur"], str(folder))[0].settings for name in ("dna", "llmmap", "encoder")]

    plain = settings()
    modules = [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules), "utf-8")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}), "utf-8")
    assert not set(plain) & set(settings())

"""The kind of prompts: closed forms, levels on invented prompts, and the release's own benchmarks."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.corpus.collection import SAMPLES
from backend.corpus.release import Release
from backend.enrolment.fit import attached, prompt_attachments
from backend.inference import domain_shift as kinds
from backend.inference.domain_shift import (
    FEWEST,
    LEVEL,
    PART,
    PromptReference,
    PromptScores,
    Traffic,
    fit_prompt_reference,
    reference_of,
)

TOPICS = {
    "storage": "archive backup bucket cluster database index partition query replica shard snapshot table volume",
    "delivery": "branch build commit container deploy image pipeline registry release rollback runner staging tag",
    "watching": "alert dashboard incident latency metric outage pager sampling severity threshold trace uptime window",
    "checking": "assertion coverage failure fixture flaky harness mock regression report suite test timeout unit",
}
FORMS = (
    "How would you {verb} the {a} when the {b} of our {c} is {state}?",
    "Write a short plan to {verb} every {a} before the next {b}, and say what happens to the {c}.",
    "Our {a} was {state} after we touched the {b}. Explain what the {c} has to do with it.",
    "Give me the steps to {verb} a {a} with its {b} while the {c} stays {state}.",
)
VERBS = ("check", "compare", "explain", "limit", "merge", "move", "remove", "rename", "repair", "restore", "rotate")
STATES = ("broken", "empty", "full", "late", "locked", "missing", "old", "slow", "stale", "stopped", "stuck", "wrong")
COOKING = (
    "Describe how grandmother kneaded dough for sweet rolls on a snowy Sunday morning.",
    "Which herbs go with roasted lamb, and should garlic be crushed or sliced?",
    "My chocolate soufflé collapsed again; was the oven too cool or were egg whites overbeaten?",
    "Suggest a three course vegetarian menu for eight hungry guests in early autumn.",
    "How long may fresh mussels be kept on ice, and how do I clean their shells?",
    "Turn this recipe for lemon marmalade into one with bitter oranges and less sugar.",
    "Why does my sourdough taste flat although the starter bubbles happily?",
    "Name five cheeses for fondue and a dry white wine that goes well with them.",
    "What may replace butter in shortbread for somebody who cannot eat dairy?",
    "Explain to a child why popcorn pops and which kernels never do.",
)
GERMAN = (
    "Erkläre mir bitte, warum der Himmel abends rot wird und morgens manchmal auch.",
    "Schreibe einen kurzen Brief an meine Vermieterin wegen der kaputten Heizung.",
    "Welche Sehenswürdigkeiten sollte man in Leipzig an einem Wochenende gesehen haben?",
    "Wie unterscheiden sich die beiden Vergangenheitsformen im Deutschen voneinander?",
    "Nenne mir drei Gründe, weshalb Bienen für die Landwirtschaft wichtig sind.",
    "Fasse die Handlung des Märchens vom Fischer und seiner Frau in vier Sätzen zusammen.",
    "Übersetze das folgende Gedicht in einfache Sprache und erhalte den Reim.",
    "Was muss ich beachten, wenn ich im Frühling Tomaten auf dem Balkon pflanzen möchte?",
    "Berechne, wie viele Fliesen ich für ein Badezimmer von sechs Quadratmetern brauche.",
    "Gib mir einen Trainingsplan für die ersten zehn Wochen als Läufer.",
)
CHINESE = (
    "请解释为什么傍晚的天空会变成红色。", "给我的房东写一封关于暖气坏了的短信。", "周末在成都应该去看哪些景点？",
    "请用四句话概括这个童话故事的情节。", "蜜蜂为什么对农业很重要？请给出三个理由。", "把下面的诗翻译成简单的语言。",
    "春天在阳台上种西红柿要注意什么？", "六平方米的浴室需要多少块瓷砖？", "请给我一个十周的跑步训练计划。",
    "唐朝的诗歌有什么特点？",
)  # fmt: skip


def invented(n: int, seed: int, topics: Sequence[str] = tuple(TOPICS)) -> list[str]:
    """Distinct prompts of an engineer, each of one topic."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < n:
        words = TOPICS[str(rng.choice(topics))].split()
        a, b, c = rng.choice(words, 3, replace=False)
        form, verb, state = (str(rng.choice(options)) for options in (FORMS, VERBS, STATES))
        found[form.format(verb=verb, state=state, a=a, b=b, c=c)] = None
    return list(found)


@pytest.fixture(scope="module")
def enrolled() -> list[str]:
    return invented(160, 0)


@pytest.fixture(scope="module")
def reference(enrolled: list[str]) -> PromptReference:
    return fitted(enrolled)


def fitted(prompts: Sequence[str], folds: int = 5) -> PromptReference:
    found = fit_prompt_reference(prompts, np.arange(len(prompts)) % folds)
    assert found is not None
    return found


def flagged(reference: PromptReference, prompts: Sequence[str], size: int = 10, draws: int = 200) -> float:
    """Share of random groups of some prompts that are of another kind."""
    rng, scores = np.random.default_rng(5), reference.score(prompts)
    groups = [rng.choice(len(prompts), size, replace=False) for _ in range(draws)]
    return float(np.mean([reference.judge(some(scores, rows)).kind != "like" for rows in groups]))


def some(scores: PromptScores, rows: np.ndarray) -> PromptScores:
    return PromptScores(scores.novelty[rows], tuple(scores.languages[i] for i in rows), scores.keys[rows])


# Closed forms


def test_an_enrolled_prompt_is_its_own_neighbour(
    reference: PromptReference, enrolled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kinds.NEAREST == 5
    among_five = reference.novelty(enrolled)
    monkeypatch.setattr(kinds, "NEAREST", 1)
    np.testing.assert_allclose(reference.novelty(enrolled), 0, atol=0.03)
    assert (among_five <= 1 - 1 / 5).all(), "one of five cosines is 1"


def test_novelty_is_one_minus_the_mean_cosine_to_the_nearest(reference: PromptReference, enrolled: list[str]) -> None:
    """Of weighted n-grams that nobody folded or rounded."""
    asked = [*invented(20, 2), *COOKING]
    both = kinds._count([*asked, *enrolled])
    both = both[:, np.unique(both.indices)].toarray()
    counts, known = both[: len(asked)], both[len(asked) :]
    weights = np.log((1 + len(enrolled)) / (1 + (known > 0).sum(0))) + 1
    one, other = counts * weights, known * weights
    one, other = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (one, other))
    nearest = np.sort(one @ other.T, axis=1)[:, -kinds.NEAREST :]
    np.testing.assert_allclose(reference.novelty(asked), 1 - nearest.mean(1), atol=0.06)


def test_what_shares_nothing_is_all_new(reference: PromptReference) -> None:
    assert reference.novelty(["ψφχω ξθλδ σγβζ"])[0] == pytest.approx(1, abs=0.1)


def test_the_reference_holds_no_text(reference: PromptReference, enrolled: list[str]) -> None:
    arrays = reference.to_arrays()
    assert {name for name, array in arrays.items() if array.dtype.kind not in "iuf"} == {"languages"}
    assert arrays["languages"].tolist() == ["en"]
    held = b"".join(array.tobytes() for array in arrays.values())
    for word in {word for prompt in enrolled for word in re.findall(r"[A-Za-z]{5,}", prompt)}:
        for encoding in ("utf-8", "utf-16-le", "utf-32-le"):
            assert word.encode(encoding) not in held, word
            assert word.lower().encode(encoding) not in held, word


def test_a_reference_survives_its_arrays(reference: PromptReference, enrolled: list[str]) -> None:
    packed = io.BytesIO()
    np.savez(packed, **attached({PART: reference}))
    packed.seek(0)
    with np.load(packed) as arrays:
        again = reference_of(dict(arrays))
    assert again is not None
    np.testing.assert_array_equal(again.novelty(COOKING), reference.novelty(COOKING))
    assert (again.languages, again.unseen) == (reference.languages, reference.unseen)
    np.testing.assert_array_equal(again.budgets, reference.budgets)
    np.testing.assert_allclose(again.nulls, reference.nulls, atol=1e-6)
    assert again.judge(again.score(COOKING)).kind == reference.judge(reference.score(COOKING)).kind
    assert reference_of({"calibration.scale": np.ones(1)}) is None
    with pytest.raises(ValueError, match="wrong shape"):
        PromptReference.from_arrays(reference.to_arrays() | {"vectors": np.zeros((3, 5), np.int8)})


def test_an_enrolment_brings_it_along_whatever_is_repeated(enrolled: list[str], reference: PromptReference) -> None:
    folds = np.arange(len(enrolled)) % 5
    parts = prompt_attachments([*enrolled, *enrolled], np.concatenate([folds, folds]))
    again = reference_of(parts)
    assert again is not None
    np.testing.assert_array_equal(again.vectors, reference.vectors)
    assert prompt_attachments(enrolled[: FEWEST - 1], folds[: FEWEST - 1]) == {}


# Levels


@pytest.fixture(scope="module")
def several() -> list[PromptReference]:
    return [fitted(invented(120, 10 + seed)) for seed in range(3)]


@pytest.mark.parametrize("size", [2, 10, 20])
def test_held_out_groups_are_seldom_of_another_kind(several: list[PromptReference], size: int) -> None:
    """Random groups, and such of one topic alone: half of the null each, so that either keeps twice the level."""
    mixed, single = [], []
    for seed, reference in enumerate(several):
        mixed.append(flagged(reference, invented(80, 100 + seed), size))
        single += [flagged(reference, invented(40, 200 + seed, [topic]), size, draws=50) for topic in TOPICS]
    assert np.mean(mixed) <= LEVEL
    assert np.mean(single) <= 2 * LEVEL


def test_p_values_are_shares_of_the_null(reference: PromptReference) -> None:
    draws = reference.nulls.shape[1]
    for row, budget in enumerate(reference.budgets):
        middle = float(np.quantile(reference.nulls[row], 0.9))
        expected = (1 + (reference.nulls[row] >= middle).sum()) / (1 + draws)
        assert reference.p_value(middle, int(budget)) == pytest.approx(expected)
    assert reference.p_value(9.0, 7) == 1 / (1 + draws)
    assert reference.p_value(-9.0, 7) == 1
    last = float(np.median(reference.nulls[-1]))
    assert reference.p_value(last, 10 * int(reference.budgets[-1])) == reference.p_value(last, reference.budgets[-1])


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1.2), st.floats(0, 0.3), st.integers(1, 5_000))
def test_what_is_newer_has_a_smaller_p(novelty: float, more: float, count: int) -> None:
    rng = np.random.default_rng(0)
    nulls = np.sort(rng.normal(0.5, 0.1, (3, 99)), axis=1)
    made = PromptReference(
        np.arange(3, dtype=np.uint32), np.ones(3, np.float16), 1.0, np.zeros((1, kinds.WIDTH), np.int8),
        np.array([1, 10, 100]), nulls, ("en",),
    )  # fmt: skip
    assert 0 < made.p_value(novelty + more, count) <= made.p_value(novelty, count) <= 1


# Kinds


@pytest.mark.parametrize(
    ("asked", "kind"), [(COOKING, "other topic"), (GERMAN, "other language"), (CHINESE, "other language")]
)
def test_another_kind_is_told_by_its_prompts(reference: PromptReference, asked: Sequence[str], kind: str) -> None:
    found = reference.judge(reference.score(asked))
    assert (found.kind, found.prompts) == (kind, len(asked))
    assert found.p is not None and found.p <= LEVEL


def test_further_prompts_of_the_enrolled_kind_are_like(reference: PromptReference, enrolled: list[str]) -> None:
    for asked in (invented(20, 3), enrolled[:20], enrolled):
        found = reference.judge(reference.score(asked))
        assert (found.kind, found.prompts) == ("like", len(asked))
        assert found.p is not None and found.p > LEVEL


def test_a_language_that_was_enrolled_is_another_topic_at_most() -> None:
    both = fitted([*invented(60, 4), *GERMAN])
    assert both.languages == ("de", "en")
    assert both.judge(both.score(CHINESE)).kind == "other language"
    assert both.judge(both.score(GERMAN)).kind in ("like", "other topic")
    assert both.judge(both.score(COOKING)).kind in ("like", "other topic")


def test_the_sample_holds_two_kinds() -> None:
    rows = [json.loads(line) for line in (SAMPLES / "prompts.jsonl").read_text("utf-8").splitlines()]
    engineering, everyday = ([row["prompt"] for row in rows if row["category"] == name] for name in KINDS)
    assert flagged(fitted(engineering), everyday) >= 0.5
    assert flagged(fitted(engineering), engineering) == 0


KINDS = ("engineering", "everyday")


def test_repeated_prompts_count_once(reference: PromptReference) -> None:
    one = reference.judge(reference.score(COOKING[:1]))
    assert reference.judge(reference.score([COOKING[0]] * 30)) == one
    assert one.prompts == 1
    assert reference.judge(reference.score([f"  {COOKING[0]}\n"])).prompts == 1
    mixed = [COOKING[0], COOKING[1]]
    assert reference.judge(reference.score([*mixed, *[COOKING[0]] * 9])) == reference.judge(reference.score(mixed))


def test_without_prompts_nothing_is_said(reference: PromptReference) -> None:
    asked = invented(5, 6)
    for given_prompts in ([""] * 7, ["  ", "…", "?!"], [*asked[:4], *[""] * 5]):
        assert reference.judge(reference.score(given_prompts)) == Traffic("no prompts")
    half = reference.judge(reference.score([*asked, *[""] * 5]))
    assert (half.kind, half.prompts) == ("like", 5)


def test_too_few_prompts_make_no_reference() -> None:
    asked = invented(FEWEST, 7)
    folds = np.arange(FEWEST) % 2
    assert fit_prompt_reference(asked[:-1], folds[:-1]) is None
    assert fit_prompt_reference(asked, np.zeros(FEWEST, dtype=np.intp)) is None
    assert fit_prompt_reference([*asked[:-1], "…"], folds) is None
    assert fit_prompt_reference(asked, folds) is not None


def test_batches_add_up(reference: PromptReference) -> None:
    asked = [*invented(13, 8), "", *GERMAN]
    whole = reference.score(asked)
    joined = PromptScores.joined([reference.score(asked[:8]), reference.score(asked[8:])])
    np.testing.assert_allclose(joined.novelty, whole.novelty, atol=1e-6)
    assert joined.languages == whole.languages
    np.testing.assert_array_equal(joined.keys, whole.keys)
    assert reference.judge(joined).kind == reference.judge(whole).kind
    assert reference.judge(PromptScores.joined([])) == Traffic("no prompts")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=40), min_size=1, max_size=6))
def test_any_text_is_judged(asked: list[str]) -> None:
    """Also lone surrogates, controls and nothing at all; the order of prompts is nothing."""
    reference = ANY
    scores = reference.score(asked)
    lettered = [any(map(str.isalnum, prompt)) for prompt in asked]
    assert (~np.isnan(scores.novelty)).tolist() == lettered
    assert np.nanmax([*scores.novelty, 0]) <= 1.5
    found = reference.judge(scores)
    assert found.prompts <= len({prompt.strip() for prompt in asked})
    assert (found.kind == "no prompts") == (2 * sum(lettered) < len(asked)) == (found.p is None)
    backwards = reference.judge(reference.score(asked[::-1]))
    assert (backwards.prompts, backwards.p is None) == (found.prompts, found.p is None)


ANY = fitted(invented(40, 9), 2)


# The release


@pytest.fixture(scope="module")
def agent500(release: Release) -> list[str]:
    return release.prompts("agent500")["prompt"].tolist()


@pytest.fixture(scope="module")
def math100(release: Release) -> list[str]:
    return release.prompts("math100")["prompt"].tolist()


@pytest.mark.release
def test_benchmarks_are_of_two_kinds(agent500: list[str], math100: list[str]) -> None:
    rows = [json.loads(line) for line in (SAMPLES / "prompts.jsonl").read_text("utf-8").splitlines()]
    everyday, engineering = ([row["prompt"] for row in rows if row["category"] == name] for name in KINDS[::-1])
    agents, maths = fitted(agent500), fitted(math100)
    assert flagged(agents, math100) >= 0.95
    assert flagged(agents, everyday) >= 0.95
    assert flagged(agents, engineering) <= 0.05
    assert flagged(maths, agent500) >= 0.95
    assert flagged(maths, everyday) >= 0.95
    assert agents.judge(agents.score(math100)).kind == maths.judge(maths.score(agent500)).kind == "other topic"
    assert flagged(agents, agent500) == flagged(maths, math100) == 0


@pytest.mark.release
@pytest.mark.parametrize("name", ["agent500", "math100"])
def test_held_out_prompts_of_a_benchmark_are_like(name: str, request: pytest.FixtureRequest) -> None:
    asked = request.getfixturevalue(name)
    rng, shares = np.random.default_rng(0), []
    for _ in range(5):
        order = rng.permutation(len(asked))
        known, held = order[len(asked) // 5 :], order[: len(asked) // 5]
        shares.append(flagged(fitted([asked[i] for i in known]), [asked[i] for i in held]))
    assert np.mean(shares) <= 0.05

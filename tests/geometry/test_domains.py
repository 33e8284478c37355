"""Cross-domain retrieval by hand, against loops, and against the published ranks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from backend.corpus.release import Release
from backend.geometry.signatures import (
    centre,
    cosine_similarity,
    cross_domain,
    joint_signatures,
    retrieval_ranks,
    retrieval_summary,
    signatures,
)


def two_domains(n: int = 20, offset: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """The same sources twice, with noise and a shift that all sources share."""
    rng = np.random.default_rng(0)
    own, shift = rng.normal(size=(n, 40)), offset * rng.normal(size=40)
    first = signatures(own + 0.8 * rng.normal(size=(n, 40)))
    return first, signatures(own + shift + 0.8 * rng.normal(size=(n, 40)))


def test_by_hand() -> None:
    similarity = np.array(
        [
            [0.9, 0.1, 0.2],  # own first
            [0.5, 0.5, 0.5],  # ties do not push a source back
            [0.8, 0.3, 0.1],  # own last
        ]
    )
    assert retrieval_ranks(similarity).tolist() == [1, 1, 3]
    found = retrieval_summary(similarity)
    assert found["top1"] == pytest.approx(2 / 3)
    assert found["top5"] == 1.0
    assert found["mrr"] == pytest.approx((1 + 1 + 1 / 3) / 3)
    assert found["wins_other"] == pytest.approx(2 / 6)  # the ties win nothing
    assert found["cosine_same_median"] == 0.5
    assert found["cosine_other_median"] == pytest.approx(np.median([0.1, 0.2, 0.5, 0.5, 0.8, 0.3]))


def test_against_loops_in_both_spaces() -> None:
    query, gallery = two_domains()
    names, families = [f"s{i}" for i in range(20)], [f"f{i % 6}" for i in range(20)]
    frame = cross_domain(query, gallery, names, families)
    assert len(frame) == 2 * (3 * 20 + 9)
    for space, q, g in (("raw", query, gallery), ("centred", centre(query), centre(gallery))):
        ranks, wins, kin, same, other = [], [], [], [], []
        part = frame[frame["variant"] == space]
        of_source = part.dropna(subset="source").pivot(index="source", columns="metric", values="value")
        best_other = part[part["metric"] == "rank"].set_index("source")["best_other"]
        for i in range(20):
            cosines = [cosine_similarity(q[i : i + 1], g[j : j + 1])[0, 0] for j in range(20)]
            others = {j: cosines[j] for j in range(20) if j != i}
            ranks.append(1 + sum(o > cosines[i] for o in others.values()))
            wins += [cosines[i] > o for o in others.values()]
            kin.append(families[int(np.argmax(cosines))] == families[i])
            same.append(cosines[i])
            other += list(others.values())
            nearest = max(others, key=others.__getitem__)
            assert of_source.loc[names[i], "rank"] == ranks[-1]
            assert of_source.loc[names[i], "cosine"] == cosines[i]
            assert of_source.loc[names[i], "best_other_cosine"] == others[nearest]
            assert best_other[names[i]] == names[nearest]
        summary = part[part["source"].isna()].set_index("metric")["value"]
        assert part.loc[part["source"].isna(), "best_other"].isna().all()
        assert summary["top1"] == pytest.approx(np.mean([r == 1 for r in ranks]))
        assert summary["top5"] == pytest.approx(np.mean([r <= 5 for r in ranks]))
        assert summary["mrr"] == pytest.approx(np.mean([1 / r for r in ranks]))
        assert summary["wins_other"] == pytest.approx(np.mean(wins))
        assert summary["nearest_family_match"] == pytest.approx(np.mean(kin))
        assert summary["cosine_same_mean"] == pytest.approx(np.mean(same))
        assert summary["cosine_other_median"] == pytest.approx(np.median(other))
    summary = frame[frame["source"].isna()].pivot(index="variant", columns="metric", values="value")
    assert summary.loc["centred", "top1"] > summary.loc["raw", "top1"]


def test_centring_removes_the_shared_offset() -> None:
    first, _ = two_domains()
    centred = centre(first)
    np.testing.assert_allclose(np.linalg.norm(centred, axis=1), 1.0)
    moved = centre(first + 7.0)
    np.testing.assert_allclose(moved, centred, atol=1e-12)


def test_joint_signatures_keep_the_order_of_sources() -> None:
    query, gallery = two_domains(5)
    joint = joint_signatures(query, gallery, "raw")
    np.testing.assert_array_equal(joint, np.concatenate([query, gallery]))
    centred = joint_signatures(query, gallery, "centred")
    np.testing.assert_array_equal(centred[5:], centre(gallery))


def test_unequal_domains_are_refused() -> None:
    with pytest.raises(ValueError, match="same sources"):
        retrieval_ranks(np.ones((3, 4)))
    with pytest.raises(ValueError, match="two sources"):
        retrieval_summary(np.ones((1, 1)))


@pytest.mark.release
def test_published_ranks_give_the_published_retrieval(release: Release) -> None:
    path = release.root / "results/geometry/cross_domain/cross_domain_signature_summary.json"
    published = json.loads(path.read_text("utf-8"))
    for key in ("statistics", "domain_centered_statistics"):
        numbers = published[key]
        ranks = np.array(numbers["same_source_ranks"])
        n = len(ranks)
        # A similarity matrix with exactly these ranks: rank - 1 of the others above one's own.
        similarity = np.zeros((n, n))
        for i, rank in enumerate(ranks):
            others = [j for j in range(n) if j != i]
            similarity[i, others[: rank - 1]] = 1.0
            similarity[i, i] = 0.5
        found = retrieval_summary(similarity)
        assert found["top1"] == pytest.approx(numbers["same_source_top1_retrieval"])
        assert found["top5"] == pytest.approx(numbers["same_source_top5_retrieval"])
        assert found["mrr"] == pytest.approx(numbers["same_source_mrr"])
        assert found["wins_other"] == pytest.approx(numbers["same_source_beats_random_source"])

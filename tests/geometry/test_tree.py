"""The dendrogram against average linkage written out in loops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from backend.geometry.signatures import cosine_similarity, dendrogram, dendrogram_frame, signatures


def cosines(n: int = 20) -> np.ndarray:
    """Sources in four groups."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(4, 24))
    return cosine_similarity(signatures(centres[np.arange(n) % 4] + rng.normal(size=(n, 24))))


def test_relatives_lie_side_by_side() -> None:
    tree = dendrogram(cosines())
    assert sorted(tree.order.tolist()) == list(range(20))
    assert sum(a != b for a, b in pairwise((tree.order % 4).tolist())) == 3


def test_against_a_loop() -> None:
    cosine = cosines()
    frame = dendrogram_frame(dendrogram(cosine))
    assert frame.columns.tolist() == ["step", "left_node", "right_node", "height", "size"]
    clusters: dict[int, list[int]] = {i: [i] for i in range(20)}
    for row in frame.itertuples():
        pairs = [(a, b) for a in clusters for b in clusters if a < b]

        def mean(a: int, b: int, clusters: dict[int, list[int]] = clusters) -> float:
            return float(np.mean([1 - cosine[i, j] for i in clusters[a] for j in clusters[b]]))

        assert row.height == pytest.approx(min(mean(a, b) for a, b in pairs))
        assert row.height == pytest.approx(mean(row.left_node, row.right_node))
        merged = clusters.pop(row.left_node) + clusters.pop(row.right_node)
        assert row.size == len(merged)
        clusters[20 + row.step] = merged  # numbered as the table says
    assert len(clusters) == 1


def test_left_before_right_gives_the_order_of_leaves() -> None:
    tree = dendrogram(cosines(9))
    frame = dendrogram_frame(tree).set_index("step")

    def leaves(node: int) -> list[int]:
        if node < 9:
            return [node]
        return leaves(int(frame.loc[node - 9, "left_node"])) + leaves(int(frame.loc[node - 9, "right_node"]))

    assert leaves(16) == tree.order.tolist()


def test_two_sources() -> None:
    frame = dendrogram_frame(dendrogram(np.array([[1.0, 0.25], [0.25, 1.0]])))
    assert frame.to_numpy().tolist() == [[0, 0, 1, 0.75, 2]]

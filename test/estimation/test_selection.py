# SPDX-License-Identifier: Apache-2.0
"""Choosing measurements and ordering postures."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from robocal_ros.estimation.selection import d_optimal, short_tour


def log_det(blocks: np.ndarray, chosen) -> float:
    rows = np.vstack([blocks[i] for i in chosen])
    return float(np.linalg.slogdet(1e-6 * np.eye(blocks.shape[2]) + rows.T @ rows)[1])


@pytest.mark.parametrize('seed', range(10))
def test_the_choice_is_as_good_as_the_best_of_all(seed):
    blocks = np.random.default_rng(seed).normal(size=(11, 2, 4))
    chosen = d_optimal(blocks, 4)
    assert len(set(chosen)) == 4
    best = max(log_det(blocks, c) for c in combinations(range(11), 4))
    assert log_det(blocks, chosen) > best - 0.3
    # No exchange of a single measurement helps any more.
    for i in chosen:
        for j in set(range(11)) - set(chosen):
            other = [j if k == i else k for k in chosen]
            assert log_det(blocks, other) <= log_det(blocks, chosen) + 1e-5


@given(st.integers(1, 12), st.integers(0, 100))
def test_a_tour_passes_each_posture_once_and_starts_with_the_nearest(k, seed):
    generator = np.random.default_rng(seed)
    postures, start = generator.normal(size=(k, 3)), generator.normal(size=3)
    order = short_tour(postures, start)
    assert sorted(order) == list(range(k))
    assert order[0] == np.abs(postures - start).max(axis=1).argmin()


def test_a_tour_along_a_line_does_not_go_back_and_forth():
    postures = np.array([[3.0], [1.0], [4.0], [2.0]])
    assert short_tour(postures, np.zeros(1)) == [1, 3, 0, 2]


def test_directions_that_are_missing_are_chosen_first():
    blocks = np.zeros((6, 1, 3))
    for i, (axis, size) in enumerate([(0, 5.0), (0, 5.1), (0, 5.2), (1, 0.1), (2, 0.1),
                                      (1, 0.05)]):
        blocks[i, 0, axis] = size
    assert set(d_optimal(blocks, 3)) == {2, 3, 4}

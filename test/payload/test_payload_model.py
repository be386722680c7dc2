# SPDX-License-Identifier: Apache-2.0
"""Ten parameters of a body: Newton-Euler equations, change of frame, physical consistency."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given, strategies as st
from support.excitation_cell import random_tool, tensor_of, wrench_of

from robocal_ros.payload.model import centred, centred_jacobian, consistent, moving
from robocal_ros.robot.arm_model import NewtonEuler

SEEDS = st.integers(0, 10_000)


def dynamic(tool) -> np.ndarray:
    return pin.Inertia(tool.mass, tool.com, tool.inertia).toDynamicParameters()


def random_motion(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(generator.uniform(-1.5, 1.5, (3, 6)))


@given(SEEDS)
def test_the_wrench_is_that_of_newton_and_euler(robocal, seed):
    generator = np.random.default_rng(seed)
    tool, (q, v, a) = random_tool(generator), random_motion(generator)
    with_tool, without = (wrench_of('robocal', t, q[None], v[None], a[None])[0]
                          for t in (tool, None))
    move = np.linalg.inv(moving(robocal, 'ft_wrist'))
    found = NewtonEuler(robocal, 'ft_wrist').wrench(
        q[None], v[None], a[None], move @ dynamic(tool))[0]
    # The sensor reads the reaction.
    np.testing.assert_allclose(-found, with_tool - without, rtol=1e-7, atol=1e-8)


@given(SEEDS)
def test_centred_parameters_are_the_body_s_own(seed):
    tool = random_tool(np.random.default_rng(seed))
    np.testing.assert_allclose(centred(dynamic(tool)), tensor_of(tool), rtol=1e-9, atol=1e-12)


def test_the_covariance_of_centred_parameters_is_that_of_a_sample():
    generator = np.random.default_rng(3)
    body = dynamic(random_tool(generator))
    root = generator.normal(size=(10, 10)) * 1e-5
    sample = np.array([centred(body + root @ generator.normal(size=10)) for _ in range(4000)])
    ratio = sample.std(axis=0) / np.linalg.norm(centred_jacobian(body) @ root, axis=1)
    np.testing.assert_allclose(ratio, 1.0, atol=0.06)


@given(SEEDS)
def test_a_consistent_body_is_unchanged(seed):
    body = dynamic(random_tool(np.random.default_rng(seed)))
    found, distance = consistent(body, 1e-6 * np.eye(10))
    assert distance == 0.0
    np.testing.assert_array_equal(found, body)


@pytest.mark.parametrize('seed', range(6))
def test_an_inconsistent_body_becomes_a_consistent_one_nearby(seed):
    generator = np.random.default_rng(seed)
    body = dynamic(random_tool(generator))
    # A moment of inertia beyond what the others allow.
    impossible = body.copy()
    impossible[4] += 1.5 * (body[6] + body[9])
    covariance = np.diag(np.array([1e-4, *[1e-5] * 3, *[1e-3] * 6]) ** 2)
    found, stated = consistent(impossible, covariance)
    pseudo = pin.PseudoInertia.FromDynamicParameters(found).toMatrix()
    assert np.linalg.eigvalsh(pseudo)[0] > -1e-12
    # Well measured numbers hardly move, and the way is no longer than to the true body.
    assert found[0] == pytest.approx(body[0], abs=1e-3)

    def distance(other: np.ndarray) -> float:
        return float(np.linalg.norm((other - impossible) / np.sqrt(np.diag(covariance))))

    assert 0.0 < distance(found) <= distance(body) * 1.001
    assert stated == pytest.approx(distance(found), rel=1e-3)

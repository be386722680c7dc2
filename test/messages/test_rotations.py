# SPDX-License-Identifier: Apache-2.0
"""Quaternions of messages: order, sign, length, and both libraries alike."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pinocchio as pin
import pytest
from geometry_msgs.msg import Quaternion
from transforms3d import quaternions

from robocal_ros.messages import conversions

pytestmark = pytest.mark.usefixtures('ros')

SEEDS = range(10)


def stand_in() -> ModuleType:
    """Return what the distribution's package does, over the library that it wraps."""
    module = ModuleType('tf_transformations')

    def quaternion_from_matrix(matrix: np.ndarray) -> np.ndarray:
        w, x, y, z = quaternions.mat2quat(matrix[:3, :3])
        return np.array([x, y, z, w])

    module.quaternion_from_matrix = quaternion_from_matrix
    return module


@pytest.fixture(params=['transforms3d', 'tf_transformations'])
def backend(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The module as it is with, and without, the distribution's package."""
    kept = sys.modules.pop('tf_transformations', None)
    # None in the table makes the import fail.
    sys.modules['tf_transformations'] = (
        None if request.param == 'transforms3d' else kept or stand_in())  # type: ignore[assignment]
    yield importlib.reload(conversions)
    del sys.modules['tf_transformations']
    if kept is not None:
        sys.modules['tf_transformations'] = kept
    importlib.reload(conversions)


def test_a_quarter_turn_about_z(backend: ModuleType) -> None:
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    half = np.sqrt(0.5)
    assert backend.quaternion(turn) == pytest.approx([0.0, 0.0, half, half], abs=1e-12)


@pytest.mark.parametrize('seed', SEEDS)
def test_a_rotation_becomes_its_unit_quaternion(seed: int) -> None:
    rotation = pin.exp3(np.random.default_rng(seed).uniform(-3.0, 3.0, 3))
    found = conversions.quaternion(rotation)
    assert found[3] >= 0.0
    assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-12)
    assert np.abs(pin.Quaternion(rotation).coeffs() @ found) == pytest.approx(1.0, abs=1e-9)
    message = Quaternion()
    conversions.fill_message(message, rotation)
    assert [message.x, message.y, message.z, message.w] == found.tolist()

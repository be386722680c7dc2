# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the observer: streams of an arm that is not quite the one it believes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import seven_joints
from benchmarks.wrench import stream_case
from benchmarks.wrench_offline import measure
from benchmarks.wrench_peers import IdynTree, with_payload
from robocal_ros.robot.model import RigidBodyInertia, Robot
from robocal_ros.wrench.model import SensedArm, SensorMount

LOAD = RigidBodyInertia(1.5, np.array([0.0, 0.02, 0.08]), np.diag([2e-3, 3e-3, 4e-3]))


def sensed() -> SensedArm:
    return SensedArm(Robot(seven_joints.urdf()),
                     [SensorMount(frame) for frame in seven_joints.SENSORS])


def test_a_short_case_is_counted() -> None:
    case = stream_case(1, error=0.02, motion=3.0, impacts=8)
    assert (case.false_alarms, case.missed, case.impacts) == (0, 0, 8)
    assert case.ratio < 2.5 < case.weight_only


def test_others_get_the_same_payload() -> None:
    carrying = SensedArm(Robot(with_payload(seven_joints.urdf(), 'tool0', LOAD)),
                         [SensorMount(frame) for frame in seven_joints.SENSORS])
    cut = sensed()
    cut.carry(LOAD, 'tool0')
    motion = np.random.default_rng(0).normal(size=(3, 7))
    np.testing.assert_allclose(carrying.held(*motion), cut.held(*motion), atol=1e-9)


def test_idyntree_agrees() -> None:
    pytest.importorskip('idyntree')
    cut = sensed()
    peer = IdynTree(seven_joints.urdf(), seven_joints.JOINTS, seven_joints.SENSORS)
    draw = np.random.default_rng(1)
    for _ in range(20):
        motion, readings = draw.normal(size=(3, 7)), draw.normal(size=(4, 6))
        np.testing.assert_allclose(
            peer.wrenches(*motion, readings), cut.between(readings + cut.held(*motion)),
            atol=1e-9)


def test_a_bag_is_written_and_estimated(tmp_path: Path) -> None:
    case = measure(5.0, tmp_path)
    assert case.taken > 0.0
    assert case.memory > 0.0

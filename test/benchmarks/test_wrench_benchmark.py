# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the observer: streams of an arm that is not quite the one it believes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import seven_joints
from benchmarks.offline import measured
from benchmarks.wrench import figures, run_case
from robocal_ros.robot import RigidBodyInertia, Robot, with_payload
from robocal_ros.wrench import SensedArm, SensorMount

LOAD = RigidBodyInertia(1.5, np.array([0.0, 0.02, 0.08]), np.diag([2e-3, 3e-3, 4e-3]))


def test_a_short_case_is_counted() -> None:
    case = run_case(1, error=0.02, motion=3.0, impacts=8, pushes=2, weak=2)
    assert (case.false_alarms, case.missed, case.impacts) == (0, 0, 8)
    assert len(case.position) == len(case.force) == 2
    assert case.ratio < 2.5 < case.weight_only
    assert max(case.position) < 5.0
    assert max(case.delays) <= 20.0
    assert not [figure for figure in figures(0.02, [case]) if figure.met is False]


def test_others_get_the_same_payload() -> None:
    def sensed(urdf: str) -> SensedArm:
        return SensedArm(Robot(urdf), [SensorMount(frame) for frame in seven_joints.SENSORS])

    carrying = sensed(with_payload(seven_joints.urdf(), LOAD, 'tool0'))
    cut = sensed(seven_joints.urdf())
    cut.carry(LOAD, 'tool0')
    motion = np.random.default_rng(0).normal(size=(3, 7))
    np.testing.assert_allclose(carrying.held(*motion), cut.held(*motion), atol=1e-9)


def test_a_bag_is_written_and_estimated(tmp_path: Path) -> None:
    speed, memory = measured('wrench', 'mcap', 5.0, tmp_path)
    assert speed > 0.0
    assert memory > 0.0

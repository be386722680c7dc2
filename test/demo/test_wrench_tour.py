# SPDX-License-Identifier: Apache-2.0
"""Figures of the wrench tour, and the seven-joint arm of the speed benchmark."""

from __future__ import annotations

import numpy as np

from benchmarks import seven_joints
from demo import default_cell
from demo.wrench import ObservedPush, push_figures
from robocal_ros.robot.model import Robot
from robocal_ros.wrench.model import SensedArm, SensorMount


def test_arrows_end_at_the_point_of_application() -> None:
    robot = Robot(default_cell.urdf())
    point, force = np.array([0.055, 0.0, 0.2]), np.array([-30.0, 0.0, 0.0])
    push = ObservedPush('ft_link_2_proximal', point, force, 'ft_link_2_proximal',
                    point + [0.0, 0.0, 0.003], force + [0.0, 0.4, 0.0])
    assert abs(push.point_error - 0.003) < 1e-12
    assert abs(push.force_error - 0.4) < 1e-12
    made = push_figures(robot, np.zeros(6), ['base_link', 'link_2', 'flange'], [push])
    assert [title for title, _ in made] == ['Pushes, side view', 'Pushes, top view']
    side = made[0][1].layout.annotations
    assert len(side) == 2
    # In the zero posture the upper arm stands upright: a push backwards points to -x.
    assert side[0].ax > side[0].x
    assert abs(side[0].ay - side[0].y) < 1e-9


def test_the_benchmark_arm_has_the_required_joints_and_sensors() -> None:
    robot = Robot(seven_joints.urdf())
    assert robot.joint_names == seven_joints.JOINTS
    cut = SensedArm(robot, [SensorMount(frame) for frame in seven_joints.SENSORS])
    assert [chain.rigid for chain in cut.chains] == [True, False, False, True]

# SPDX-License-Identifier: Apache-2.0
"""The pictures of the wrench tour, and the made-up arm that speed is measured on."""

from __future__ import annotations

import numpy as np

from benchmarks import seven_joints
from demo import default_cell
from demo.wrench import SeenPush, pictures
from robocal_ros.robot.model import Robot
from robocal_ros.wrench.model import SensedArm, SensorMount


def test_arrows_end_where_the_arm_was_pushed() -> None:
    robot = Robot(default_cell.urdf())
    point, force = np.array([0.055, 0.0, 0.2]), np.array([-30.0, 0.0, 0.0])
    push = SeenPush('ft_link_2_proximal', point, force, 'ft_link_2_proximal',
                    point + [0.0, 0.0, 0.003], force + [0.0, 0.4, 0.0])
    assert abs(push.point_error - 0.003) < 1e-12
    assert abs(push.force_error - 0.4) < 1e-12
    made = pictures(robot, np.zeros(6), ['base_link', 'link_2', 'flange'], [push])
    assert [title for title, _ in made] == ['Pushes, side view', 'Pushes, top view']
    side = made[0][1].layout.annotations
    assert len(side) == 2
    # In the zero posture the upper arm stands upright: a push backwards points to -x.
    assert side[0].ax > side[0].x
    assert abs(side[0].ay - side[0].y) < 1e-9


def test_the_made_up_arm_has_what_the_bar_asks_for() -> None:
    robot = Robot(seven_joints.urdf())
    assert robot.joint_names == seven_joints.JOINTS
    cut = SensedArm(robot, [SensorMount(frame) for frame in seven_joints.SENSORS])
    assert [chain.rigid for chain in cut.chains] == [True, False, False, True]

# SPDX-License-Identifier: Apache-2.0
"""Conditions under which a motion is ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from support.ros_rig import arm_urdf

from robocal_ros.arm.protocols import MotionStatus
from robocal_ros.arm.stop_conditions import StopConditions
from robocal_ros.arm.waiting import Waiter
from robocal_ros.messages.stream import JointStateStream
from robocal_ros.parameters import ArmParameters
from robocal_ros.robot.model import Robot


@pytest.mark.parametrize(('efforts', 'joint'), [
    ({}, ''),
    ({1: 1e4}, 'joint_2'),
    ({1: -1e4, 2: np.nan}, 'joint_3'),
    # Neither names a joint that has no limit, whatever it says.
    ({0: np.nan}, ''),
    ({0: np.nan, 1: 1e4}, 'joint_2'),
    ({0: np.nan, 5: np.nan}, 'joint_6'),
])
def test_the_joint_with_too_large_an_effort_is_named(
    efforts: dict[int, float], joint: str
) -> None:
    torque = np.zeros(6)
    torque[list(efforts)] = list(efforts.values())
    conditions = StopConditions(
        cast(Waiter, SimpleNamespace(node=None, group=None, now=float)), Robot(arm_urdf()),
        cast(JointStateStream, SimpleNamespace(torque=lambda: torque)),
        lambda: ArmParameters(max_effort_share=(0.0, *5 * (0.9,)), effort_source='torque'))
    found = conditions.problem()
    if not joint:
        assert found is None
    else:
        assert found is not None
        status, message = found
        assert status is MotionStatus.OVERLOADED
        assert f"'{joint}'" in message

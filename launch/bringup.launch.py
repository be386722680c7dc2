# SPDX-License-Identifier: Apache-2.0
"""Start the nodes, and the arm they work on: simulated, mocked, in Gazebo, or a running driver's.

    ros2 launch robocal_ros bringup.launch.py hardware:=sim
    ros2 launch robocal_ros bringup.launch.py hardware:=real params_file:=my_robot.yaml
    ros2 launch robocal_ros bringup.launch.py --show-args
"""

from __future__ import annotations

from launch import LaunchContext, LaunchDescription
from launch.action import Action
from launch.actions import OpaqueFunction

from robocal_ros.launching.actions import actions_of, declared, given
from robocal_ros.launching.arguments import BRINGUP, BringupArguments
from robocal_ros.launching.bringup import bringup


def start(context: LaunchContext) -> list[Action]:
    """Return what the arguments ask for."""
    return actions_of(bringup(BringupArguments.of(given(context, BRINGUP))))


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, and what is started with them."""
    return LaunchDescription([*declared(BRINGUP), OpaqueFunction(function=start)])

# SPDX-License-Identifier: Apache-2.0
"""Play a bag to the nodes, on its own clock; call their service estimate when it has ended.

    ros2 launch robocal_ros replay.launch.py bag:=my_bag nodes:=payload_identification
    ros2 launch robocal_ros replay.launch.py --show-args
"""

from __future__ import annotations

from launch import LaunchContext, LaunchDescription
from launch.action import Action
from launch.actions import OpaqueFunction

from robocal_ros.launching.actions import declared, given, replay_actions
from robocal_ros.launching.arguments import REPLAY, ReplayArguments
from robocal_ros.launching.replay import replay


def start(context: LaunchContext) -> list[Action]:
    """Return what the arguments ask for."""
    return replay_actions(replay(ReplayArguments.of(given(context, REPLAY))))


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, and what is started with them."""
    return LaunchDescription([*declared(REPLAY), OpaqueFunction(function=start)])

# SPDX-License-Identifier: Apache-2.0
"""The default arm, and arms from the PyPI package example-robot-data if it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pinocchio

from demo import default_cell
from robocal_ros.robot import CollisionChecker, Robot

OWN = 'robocal arm'
_DATA = 'example-robot-data'
_FILES = {
    'UR5': ('ur_description/urdf/ur5_robot.urdf', 'tool0'),
    'Panda': ('panda_description/urdf/panda.urdf', 'panda_hand'),
    'xArm 7': ('xarm_description/urdf/xarm7.urdf', 'link_eef'),
}


@dataclass(frozen=True)
class ArmUnderTest:
    """An arm and its collision checker."""

    name: str
    robot: Robot
    checker: CollisionChecker


def _data_folder() -> Path | None:
    """Return the share folder of example-robot-data, or None if it is not installed."""
    shares = (parent / 'share' for parent in Path(pinocchio.__file__).parents)
    return next((share for share in shares if (share / _DATA).is_dir()), None)


def names() -> tuple[str, ...]:
    """Return the names of the available arms."""
    return (OWN, *(_FILES if _data_folder() is not None else ()))


@cache
def arm(name: str) -> ArmUnderTest:
    """Return an arm; each process loads it once."""
    if name == OWN:
        robot = Robot(default_cell.urdf())
        return ArmUnderTest(name, robot, CollisionChecker(robot.copy()))
    share = _data_folder() or Path()
    path, tool = _FILES[name]
    urdf = (share / _DATA / 'robots' / path).read_text(encoding='utf-8')
    robot = Robot(urdf, tool_frame=tool)
    return ArmUnderTest(name, robot, CollisionChecker(robot.copy(), package_dirs=[str(share)]))

# SPDX-License-Identifier: Apache-2.0
"""Arms and planners of the leveling tests."""

from __future__ import annotations

from functools import cache

import numpy as np

from robocal_ros.leveling.model import Tool
from robocal_ros.leveling.parameters import LevelingParameters
from robocal_ros.leveling.plan import LevelingPlanner
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.model import Robot
from robocal_ros.robot.trajectories import MotionLimits
from support.arms import arm
from support.fake_arm import HOME

UP = np.array([0.0, 0.0, 1.0])
TILTED = HOME
"""A posture of the default arm with a tool tilt of 26°."""


@cache
def checker(name: str) -> CollisionChecker:
    made = arm(name)
    return CollisionChecker(made.robot(), package_dirs=made.package_dirs)


def limits(robot: Robot) -> MotionLimits:
    return MotionLimits(robot.joint_names, robot.lower, robot.upper,
                        np.minimum(robot.velocity_limit, 1.0), np.full(robot.n, 2.0))


def planner(
    name: str, *, point: tuple[float, ...] = (0.0, 0.0, 0.0), axis: np.ndarray = UP,
    free: bool = False, **values: object,
) -> LevelingPlanner:
    """Return a planner of a named arm; ``free`` omits the collision check."""
    robot = arm(name).robot()
    return LevelingPlanner(
        Tool(robot, point), axis, limits(robot), LevelingParameters(**values),
        None if free else checker(name))


def urdf_planner(urdf: str, tool: str, **values: object) -> LevelingPlanner:
    """Return a planner of an arm given as URDF, without collision check."""
    robot = Robot(urdf, tool_frame=tool)
    return LevelingPlanner(Tool(robot), UP, limits(robot), LevelingParameters(**values))


def chain_urdf(
    axes: list[str], lengths: list[str], lower: float = -3.0, upper: float = 3.0
) -> str:
    """Return the URDF of a chain of revolute joints at offsets ``lengths`` [m]."""
    links = ''.join(f'<link name="l{i}"/>' for i in range(len(axes) + 1))
    joints = ''.join(
        f'<joint name="j{i + 1}" type="revolute"><parent link="l{i}"/><child link="l{i + 1}"/>'
        f'<origin xyz="{xyz}"/><axis xyz="{axis}"/>'
        f'<limit lower="{lower}" upper="{upper}" effort="10" velocity="2"/></joint>'
        for i, (axis, xyz) in enumerate(zip(axes, lengths, strict=True)))
    tip = ('<link name="tip"/><joint name="end" type="fixed">'
           f'<parent link="l{len(axes)}"/><child link="tip"/><origin xyz="0 0 0.2"/></joint>')
    return f'<robot name="chain">{links}{joints}{tip}</robot>'

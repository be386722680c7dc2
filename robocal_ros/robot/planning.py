# SPDX-License-Identifier: Apache-2.0
"""Ways from posture to posture: straight if nothing is touched, else by OMPL's RRT-Connect."""

from __future__ import annotations

import numpy as np
from ompl import base, geometric, util

from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.model import Robot

_STEP = 0.01
_SEED = 1


def straight(start: Array, goal: Array, step: float = _STEP) -> Array:
    """Return evenly spaced postures from start to goal, shape (k, n) [rad]."""
    count = int(np.ceil(np.abs(goal - start).max() / step)) + 1
    return np.linspace(start, goal, max(count, 2))


def connect(
    robot: Robot, checker: CollisionChecker, start: Array, goal: Array, timeout: float = 3.0
) -> Array:
    """Return postures to pass on a way that touches nothing, in straight lines.

    Args:
        robot: The arm.
        checker: Its collision geometry.
        start: Shape (n,) [rad].
        goal: Shape (n,) [rad].
        timeout: Longest search [s].

    Returns:
        Start, perhaps some postures between, goal; shape (k, n) [rad].

    Raises:
        MotionError: If start or goal touch something, or no way is found.

    """
    for what, posture in (('start', start), ('goal', goal)):
        pair = checker.touching(posture)
        if pair:
            raise MotionError(
                f"In the {what} posture of this motion '{pair[0]}' touches '{pair[1]}'. "
                'Move the arm clear by hand, or correct the collision geometry.'
            )
    if checker.first_contact(straight(start, goal)) is None:
        return np.stack((start, goal))
    return _search(robot, checker, start, goal, timeout)


def _search(
    robot: Robot, checker: CollisionChecker, start: Array, goal: Array, timeout: float
) -> Array:
    util.RNG.setSeed(_SEED)
    util.setLogLevel(util.LogLevel.LOG_NONE)
    space = base.RealVectorStateSpace(robot.n)
    bounds = base.RealVectorBounds(robot.n)
    lower, upper = robot.sampling_limits()
    for i in range(robot.n):
        bounds.setLow(i, float(min(lower[i], start[i], goal[i])))
        bounds.setHigh(i, float(max(upper[i], start[i], goal[i])))
    space.setBounds(bounds)
    setup = geometric.SimpleSetup(space)
    setup.setStateValidityChecker(
        lambda state: checker.is_free(np.array([state[i] for i in range(robot.n)]))
    )
    setup.getSpaceInformation().setStateValidityCheckingResolution(
        _STEP / float(space.getMaximumExtent())
    )
    ends = []
    for posture in (start, goal):
        state = space.allocState()
        for i in range(robot.n):
            state[i] = float(posture[i])
        ends.append(state)
    setup.setStartAndGoalStates(*ends)
    setup.setPlanner(geometric.RRTConnect(setup.getSpaceInformation()))
    if not setup.solve(timeout) or not setup.haveExactSolutionPath():
        raise MotionError(
            f'No way without touching anything was found in {timeout:.0f} s. Start the arm '
            'from a posture with more room around it.'
        )
    setup.simplifySolution()
    path = setup.getSolutionPath()
    return np.array([[state[i] for i in range(robot.n)] for state in path.getStates()])

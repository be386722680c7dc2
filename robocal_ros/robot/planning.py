# SPDX-License-Identifier: Apache-2.0
"""Collision-free paths between postures within the efforts of the drives.

A path is a straight line in joint space if possible, else found by OMPL's RRT-Connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from ompl import base, geometric, util

from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.friction_law import ArmFriction, SteadyFriction
from robocal_ros.robot.model import Robot
from robocal_ros.robot.trajectories import Trajectory

# Joint step between checked postures [rad].
_STEP = 0.01
_SEED = 1
# Shares of the planned speed at which efforts are checked.
_SPEEDS = np.geomspace(1.0, 0.02, 24)
# Speed at breakaway [rad/s].
_SLOW = 1e-9


@dataclass(frozen=True)
class EffortLimits:
    """Limits of the drive efforts in a motion.

    Attributes:
        robot: The arm with its payload.
        friction: Identified friction by joint name; other joints count as frictionless.
        share: Usable share of the URDF's effort limits; the rest is left to the controller.

    """

    robot: Robot
    friction: Mapping[str, SteadyFriction]
    share: float

    @property
    def limit(self) -> Array:
        """Largest effort of a motion, infinite where the URDF has no limit, shape (n,) [N·m]."""
        return self.share * self.robot.effort_limit

    def holding(self, postures: Array) -> Array:
        """Return the efforts that lift the arm slowly to postures, shape (k, n) [N·m].

        They are the holding torque plus the friction in its direction.

        Args:
            postures: Shape (k, n) [rad].

        """
        gravity = self.robot.gravity_torques(postures)
        return gravity + self._friction(np.where(gravity < 0.0, -_SLOW, _SLOW), gravity)

    def _friction(self, velocity: Array, load: Array) -> Array:
        """Return the friction of a motion, at least breakaway, shape (k, n) [N·m]."""
        friction, sign = ArmFriction(self.friction, self.robot.joint_names), np.sign(velocity)
        return np.asarray(sign * np.maximum(
            np.abs(friction.torque(velocity, load)),
            np.abs(friction.torque(sign * _SLOW, load))))

    def exceeded(self, postures: Array) -> str:
        """Return a clause about the joint that cannot hold one of the postures, empty for none.

        Args:
            postures: Shape (k, n) [rad].

        """
        return self._problem(np.abs(self.holding(postures)).max(axis=0))

    def _problem(self, needed: Array) -> str:
        excess = needed / self.limit
        joint = int(np.argmax(excess))
        if excess[joint] <= 1.0:
            return ''
        name = self.robot.joint_names[joint]
        unit = self.robot.unit(name, 'N·m')
        return (f"joint '{name}' needs {needed[joint]:.3g} {unit}, more "
                f'than {100.0 * self.share:.0f} % of its effort limit of '
                f'{self.robot.effort_limit[joint]:.3g} {unit}')

    def slowed(self, trajectory: Trajectory) -> Trajectory:
        """Return a motion within the limits, slower if necessary.

        Raises:
            MotionError: If a joint needs more at any speed.

        """
        position, velocity, acceleration = trajectory.sample(trajectory.dense())
        gravity = self.robot.gravity_torques(position)
        dynamic = np.array([self.robot.inverse_dynamics(q, v, a) for q, v, a in zip(
            position, velocity, acceleration, strict=True)]) - gravity
        problem = ''
        for speed in _SPEEDS:
            needed = np.abs(
                gravity + speed**2 * dynamic + self._friction(speed * velocity, gravity))
            problem = self._problem(needed.max(axis=0))
            if not problem:
                return trajectory if speed == 1.0 else trajectory.slowed(float(speed))
        raise MotionError(f'On this motion {problem}, at any speed. Nothing was sent.')


def straight(start: Array, goal: Array, step: float = _STEP) -> Array:
    """Return evenly spaced postures from start to goal, shape (k, n) [rad]."""
    count = int(np.ceil(np.abs(goal - start).max() / step)) + 1
    return np.linspace(start, goal, max(count, 2))


def connect(
    robot: Robot, checker: CollisionChecker, start: Array, goal: Array, timeout: float = 3.0,
    effort: EffortLimits | None = None,
) -> Array:
    """Return a collision-free path of straight lines in joint space.

    Args:
        robot: The arm.
        checker: Its collision geometry.
        start: Shape (n,) [rad].
        goal: Shape (n,) [rad].
        timeout: Longest search [s].
        effort: Limits within which the drives hold the arm on the whole path; None for no limits.

    Returns:
        Start, via postures and goal, shape (k, n) [rad].

    Raises:
        MotionError: If start or goal is in collision or cannot be held, or no path is found.

    """
    for what, posture in (('start', start), ('goal', goal)):
        if contact := checker.touching(posture):
            raise MotionError(f'In the {what} posture of this motion {contact}. Move the arm '
                              'clear by hand, or correct the collision geometry or clearance.')
        problem = effort.exceeded(posture[None]) if effort is not None else ''
        if problem:
            raise MotionError(f'In the {what} posture of this motion {problem}.')
    line = straight(start, goal)
    if checker.first_contact(line) is None and (effort is None or not effort.exceeded(line)):
        return np.stack((start, goal))
    return _search(robot, checker, start, goal, timeout, effort)


def _search(
    robot: Robot, checker: CollisionChecker, start: Array, goal: Array, timeout: float,
    effort: EffortLimits | None,
) -> Array:
    def is_valid(state: base.State) -> bool:
        posture = np.array([state[i] for i in range(robot.n)])
        return checker.is_free(posture) and (
            effort is None or not effort.exceeded(posture[None]))

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
    setup.setStateValidityChecker(is_valid)
    setup.getSpaceInformation().setStateValidityCheckingResolution(
        _STEP / float(space.getMaximumExtent()))
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
            'No collision-free path'
            + (' on which the drives hold the load' if effort is not None else '')
            + f' was found in {timeout:.0f} s. Start from a posture with more clearance.')
    setup.simplifySolution()
    path = setup.getSolutionPath()
    return np.array([[state[i] for i in range(robot.n)] for state in path.getStates()])

# SPDX-License-Identifier: Apache-2.0
"""Ways from posture to posture within the efforts of the drives.

They are straight if nothing is touched, else found by OMPL's RRT-Connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from ompl import base, geometric, util

from robocal_ros.arrays import Array
from robocal_ros.errors import MotionError
from robocal_ros.robot.collision import CollisionChecker
from robocal_ros.robot.friction_law import SteadyFriction
from robocal_ros.robot.model import Robot
from robocal_ros.robot.motion import Trajectory

_STEP = 0.01
_SEED = 1
# Speeds, as shares of the planned one, at which efforts are tried.
_SPEEDS = np.geomspace(1.0, 0.02, 24)
# Speed at breakaway [rad/s].
_SLOW = 1e-9


@dataclass(frozen=True)
class EffortLimits:
    """Drive efforts that a motion may need.

    Attributes:
        robot: The arm with what it carries.
        friction: Identified friction by joint name; other joints count as frictionless.
        share: Share of the effort limits of the URDF that a motion may need; the rest is left
            to the controller.

    """

    robot: Robot
    friction: Mapping[str, SteadyFriction]
    share: float

    @property
    def limit(self) -> Array:
        """Largest effort of a motion, infinite where the URDF has no limit, shape (n,) [N·m]."""
        return self.share * self.robot.effort_limit

    def holding(self, postures: Array) -> Array:
        """Return the efforts that raise the arm slowly to postures, shape (k, n) [N·m].

        They are the holding torque and the friction that the drive overcomes in its direction.

        Args:
            postures: Shape (k, n) [rad].

        """
        gravity = self.robot.gravity_torques(postures)
        return gravity + self._friction(np.where(gravity < 0.0, -_SLOW, _SLOW), gravity)

    def _friction(self, velocity: Array, load: Array) -> Array:
        """Return the friction that may be overcome, at least breakaway, shape (k, n) [N·m]."""
        torque = np.zeros_like(velocity)
        for joint, name in enumerate(self.robot.joint_names):
            law = self.friction.get(name)
            if law is not None:
                v, carried = velocity[:, joint], load[:, joint]
                slow = np.sign(v) * _SLOW
                torque[:, joint] = np.sign(v) * np.maximum(
                    np.abs(law.torque(v, carried)), np.abs(law.torque(slow, carried)))
        return torque

    def exceeded(self, postures: Array) -> str:
        """Return the joint that cannot hold one of the postures, empty if there is none.

        Args:
            postures: Shape (k, n) [rad].

        """
        return self._named(np.abs(self.holding(postures)).max(axis=0))

    def _named(self, needed: Array) -> str:
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
            problem = self._named(needed.max(axis=0))
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
    """Return postures to pass on a way that touches nothing, in straight lines.

    Args:
        robot: The arm.
        checker: Its collision geometry.
        start: Shape (n,) [rad].
        goal: Shape (n,) [rad].
        timeout: Longest search [s].
        effort: Efforts within which the arm is held everywhere on the way; None for any.

    Returns:
        Start, perhaps some postures between, goal; shape (k, n) [rad].

    Raises:
        MotionError: If start or goal touch something or cannot be held, or no way is found.

    """
    for what, posture in (('start', start), ('goal', goal)):
        pair = checker.touching(posture)
        if pair:
            raise MotionError(
                f"In the {what} posture of this motion '{pair[0]}' touches '{pair[1]}'. "
                'Move the arm clear by hand, or correct the collision geometry.'
            )
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
            'No way without touching anything'
            + (', and on which the drives hold the load,' if effort is not None else '')
            + f' was found in {timeout:.0f} s. Start the arm from a posture with more room around '
            'it.'
        )
    setup.simplifySolution()
    path = setup.getSolutionPath()
    return np.array([[state[i] for i in range(robot.n)] for state in path.getStates()])

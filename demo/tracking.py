# SPDX-License-Identifier: Apache-2.0
"""How the arm follows a motion to and fro, with and without friction compensation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from control_msgs.msg import JointTrajectoryControllerState
from rclpy.qos import QoSProfile
from trajectory_msgs.msg import JointTrajectory

from demo.stage import CONTROLLER, Stage
from robocal_ros.arrays import Array
from robocal_ros.messages import conversions, qos
from robocal_ros.results.report import Panel
from robocal_ros.robot import Trajectory

ABOUT = 0.15
"""Time about a reversal within which the tracking error counts [s]."""

_PERIOD, _CYCLES = 0.01, 4
_SIZE, _SPEED = 0.1, 0.1


def to_and_fro(posture: Array, joint: int, size: float, speed: float) -> tuple[Trajectory, Array]:
    """Return a motion of one joint as a sine from rest to rest, and the times of its reversals."""
    pulsation = speed / size
    end = _CYCLES * 2.0 * np.pi / pulsation
    time = np.linspace(0.0, end, round(end / _PERIOD) + 1)
    # 1 − cos starts and ends at rest; its first and last quarters are the approach.
    turn = pulsation * time
    unit = np.eye(len(posture))[joint]
    position = posture + np.outer(size * (1.0 - np.cos(turn)), unit)
    motion = Trajectory(time, position, np.outer(speed * np.sin(turn), unit),
                        np.outer(speed * pulsation * np.cos(turn), unit))
    return motion, np.pi / pulsation * np.arange(1.0, 2.0 * _CYCLES)


class _Follower:
    """Sends motions to the controller, and records how the arm follows them."""

    def __init__(self, stage: Stage) -> None:
        node = stage.session.node
        self._stage = stage
        self._move = node.create_publisher(JointTrajectory, f'{CONTROLLER}/joint_trajectory', 10)
        self._plain = node.create_publisher(
            JointTrajectory, 'friction_identification/trajectory_in', qos.RELIABLE)
        self._changed: list[JointTrajectory] = []
        self._states: list[JointTrajectoryControllerState] = []
        node.create_subscription(
            JointTrajectory, 'friction_identification/trajectory_out', self._changed.append,
            qos.RELIABLE)
        node.create_subscription(
            JointTrajectoryControllerState, f'{CONTROLLER}/controller_state',
            self._states.append, QoSProfile(depth=5000))

    def posture(self) -> Array:
        """Return the joint positions, shape (n,) [rad]."""
        self._stage.wait(lambda: self._states, 'state of the controller')
        return np.array(self._states[-1].reference.positions)

    def compensated(self, motion: Trajectory) -> JointTrajectory:
        """Return the motion with the efforts of the friction node."""
        self._stage.wait(self._plain.get_subscription_count, 'friction node')
        self._changed.clear()
        self._plain.publish(conversions.to_joint_trajectory(motion, self._stage.robot.joint_names))
        self._stage.wait(lambda: self._changed, 'trajectory with efforts')
        return self._changed[-1]

    def error(self, message: JointTrajectory, joint: int) -> float:
        """Follow a motion; return the RMS tracking error of a joint about reversals [rad]."""
        self._stage.wait(self._move.get_subscription_count, 'subscription of the controller')
        self._states.clear()
        self._move.publish(message)

        def ended() -> bool:
            speeds = [state.reference.velocities[joint] for state in self._states]
            return any(speeds) and not any(speeds[-50:])

        self._stage.wait(ended, 'end of the motion')
        time, speed, error = np.array([
            (state.header.stamp.sec + 1e-9 * state.header.stamp.nanosec,
             state.reference.velocities[joint], state.error.positions[joint])
            for state in self._states]).T
        moving = np.flatnonzero(speed)
        turned = moving[1:][np.diff(np.sign(speed[moving])) != 0]
        near = (np.abs(time[:, None] - time[turned]) < ABOUT).any(axis=1)
        return float(np.sqrt(np.mean(error[near]**2)))


def tracking_panel(stage: Stage, joint: str, bar: float) -> Panel:
    """Move a joint to and fro without and with friction compensation; return a table.

    Args:
        stage: The arm, whose controller commands efforts, with an active friction node.
        joint: Name of the joint.
        bar: Largest accepted share of the tracking error that compensation leaves.

    Raises:
        RobocalError: A message is missing, or the motion does not end.

    """
    follower, column = _Follower(stage), stage.robot.index(joint)
    motion, _ = to_and_fro(follower.posture(), column, _SIZE, _SPEED)
    errors: Mapping[str, float] = {
        'without compensation': follower.error(
            conversions.to_joint_trajectory(motion, stage.robot.joint_names), column),
        'with ~/trajectory_out': follower.error(follower.compensated(motion), column)}
    plain, compensated = errors.values()
    share = compensated / plain
    return Panel(
        f'Friction compensation of {joint}', share <= bar,
        f'The tracking error within {ABOUT} s of reversals falls to {100.0 * share:.0f} % '
        f'(limit {100.0 * bar:.0f} %) by the efforts of ~/trajectory_out.',
        (('', False), ('RMS error at reversals [mrad]', True)),
        tuple((name, f'{1e3 * error:.3f}') for name, error in errors.items()))

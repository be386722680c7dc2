# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a robot's topics, judged from what was heard of them; no ROS here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.robot.model import Robot

# Rates below the first are of no use to any method, below the second to some [Hz].
_USELESS_RATE, _LOW_RATE = 20.0, 100.0
_OLD = 1.0
# Holding torques below this tell nothing of an effort's scale [N·m].
_TELLING = 4.0
# Efforts at rest so far from what holds the arm, as a ratio, are no torques of this arm.
_FAR = 2.5


class Grade(str, Enum):
    """How serious a finding is."""

    GOOD = 'good'
    WARNING = 'warning'
    BAD = 'bad'


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        grade: How serious it is.
        what: What was looked at.
        told: What was found, as a sentence.
        cure: What to do about it, empty where nothing is to be done.

    """

    grade: Grade
    what: str
    told: str
    cure: str = ''


def good(what: str, told: str) -> Finding:
    """Return a finding that needs no cure."""
    return Finding(Grade.GOOD, what, told)


@dataclass
class HeardJoints:
    """Joint states that came while listening.

    Attributes:
        names: Names in the newest message.
        stamps: Stamps of the messages [s].
        arrivals: When they came by the node's clock [s].
        positions: Positions of each message [rad].
        efforts: Efforts of each message, empty ones where there are none.
        velocities: Number of velocities in the newest message.

    """

    names: tuple[str, ...] = ()
    stamps: list[float] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    positions: list[list[float]] = field(default_factory=list)
    efforts: list[list[float]] = field(default_factory=list)
    velocities: int = 0


def rate_finding(what: str, stamps: Sequence[float], duration: float) -> Finding:
    """Judge how often messages come.

    Args:
        what: Name of the topic.
        stamps: Their stamps [s].
        duration: How long was listened [s].

    """
    steps = np.diff(np.array(stamps))
    if len(stamps) < 2:
        return Finding(Grade.BAD, what, f'{len(stamps)} messages came in {duration:.0f} s.',
                       'Start its publisher, and check the namespace and ROS_DOMAIN_ID.')
    if (steps <= 0.0).mean() > 0.5:
        return Finding(Grade.BAD, what, f'Stamps do not increase ({stamps[-1]:.3f} s, again and '
                       'again).', 'Have the driver stamp each message.')
    rate = 1.0 / float(np.median(steps[steps > 0.0]))
    late, lost = int((steps <= 0.0).sum()), int((steps > 1.5 / rate).sum())
    told = f'{rate:.0f} Hz' + (f', {lost} gaps' if lost else '') + (
        f', {late} late or repeated' if late else '') + '.'
    if rate < _USELESS_RATE:
        return Finding(Grade.BAD, what, told, f'At least {_USELESS_RATE:.0f} Hz are needed: raise '
                       'update_rate or the publish rate.')
    if rate < _LOW_RATE:
        return Finding(Grade.WARNING, what, told, f'{_LOW_RATE:.0f} Hz and more tell more: raise '
                       'the publish rate.')
    if lost > 0.01 * len(steps):
        return Finding(Grade.WARNING, what, told, 'Messages are lost: lower the load of the '
                       'machine, or use a wired network.')
    return good(what, told)


def clock_finding(heard: HeardJoints, *, simulated: bool) -> Finding:
    """Judge stamps by the clock.

    Args:
        heard: Joint states.
        simulated: Whether somebody publishes ``/clock``.

    """
    if simulated:
        return good('clock', 'Somebody publishes /clock: every node needs use_sim_time.')
    ages = np.array(heard.arrivals) - np.array(heard.stamps)
    age = float(np.median(ages))
    told = f'Joint states are {age:.3f} s old when they come.'
    if abs(age) > 1e6:
        return Finding(Grade.WARNING, 'clock', told, "Their clock is not this machine's: a "
                       'simulation or a bag? Then set use_sim_time on every node.')
    if not -0.1 < age < _OLD:
        return Finding(Grade.WARNING, 'clock', told, 'Synchronize the clocks (chrony), or set '
                       'use_sim_time on every node if the robot is simulated.')
    return good('clock', told)


def joint_findings(robot: Robot, heard: HeardJoints) -> list[Finding]:
    """Judge names, velocities and efforts by the arm's description."""
    missing = [name for name in robot.joint_names if name not in heard.names]
    if missing:
        return [Finding(
            Grade.BAD, 'joint names', f'{", ".join(missing)} not in joint_states, which holds '
            f'{", ".join(heard.names) or "no names"}.',
            'Have joint_state_broadcaster publish them, or correct the namespace or the URDF.')]
    found = [good('joint names', f'All {robot.n} joints are there.')]
    if heard.velocities != len(heard.names):
        found.append(Finding(Grade.WARNING, 'velocities', 'Joint states hold no velocities.',
                             'Nothing has to be done; they are differentiated from positions.'))
    return [*found, _effort_finding(robot, heard)]


def _effort_finding(robot: Robot, heard: HeardJoints) -> Finding:
    rows = [(p, e) for p, e in zip(heard.positions, heard.efforts, strict=True)
            if len(p) == len(e) == len(heard.names)]
    if not rows:
        return Finding(
            Grade.BAD, 'efforts', 'Joint states hold no efforts.',
            'Give every joint an effort state interface in the ros2_control description. Without '
            'it, only methods that read an F/T sensor work.')
    order = [heard.names.index(name) for name in robot.joint_names]
    position = np.array([row[0] for row in rows])[:, order]
    effort = np.array([row[1] for row in rows])[:, order]
    for i, name in enumerate(robot.joint_names):
        column = effort[:, i]
        if not np.isfinite(column).all():
            return Finding(
                Grade.BAD, 'efforts', f"The effort of joint '{name}' is not a number.",
                'joint_state_broadcaster sends NaN for what the hardware interface does not '
                'export: give the joint an effort state interface.')
        if not column.any():
            return Finding(Grade.BAD, 'efforts', f"The effort of joint '{name}' is always zero.",
                           'Have the driver fill it in; check that the brakes are released.')
    return _scale_finding(robot, position, effort)


def _scale_finding(robot: Robot, position: Array, effort: Array) -> Finding:
    """Compare efforts at rest with what holds the arm by its description."""
    if float(np.ptp(position, axis=0).max()) > 0.01:
        return good('efforts', 'They come; the arm moves, so their size is not judged.')
    held = robot.gravity_torque(position.mean(axis=0))
    mean = effort.mean(axis=0)
    telling = np.abs(held) > _TELLING
    if not telling.any():
        return good('efforts', 'They come; in this posture gravity is too small to judge them.')
    ratio = mean[telling] / held[telling]
    told = ', '.join(
        f'{name} {value:+.2f}' for name, value in zip(
            np.array(robot.joint_names)[telling], ratio, strict=True))
    told = f'Effort over the torque that holds the bare arm: {told}.'
    if (ratio < -1.0 / _FAR).any():
        return Finding(Grade.WARNING, 'efforts', told, 'The sign of some is turned: correct the '
                       'driver, or the sign of torque_constants.')
    if (np.abs(ratio) < 1.0 / _FAR).any() or (ratio > _FAR).any():
        return Finding(
            Grade.WARNING, 'efforts', told, "They look like motor currents, or a heavy tool is "
            "mounted. For currents set effort_source to 'current', with torque_constants and "
            'gear_ratios.')
    return good('efforts', told)


def wrench_finding(
    topic: str, frames: Mapping[str, int], finite: bool, links: Sequence[str]
) -> Finding:
    """Judge an F/T sensor by what its messages name and hold.

    Args:
        topic: Its topic.
        frames: How many messages name each frame.
        finite: Whether all values are finite.
        links: Frames of the description.

    """
    frame = max(frames, key=lambda name: frames[name])
    if not finite:
        return Finding(Grade.BAD, topic, 'It sends values that are not finite numbers.',
                       'Check the sensor and its driver.')
    if links and frame not in links:
        return Finding(Grade.BAD, topic, f"Its frame '{frame}' is not in the robot description.",
                       'Add the frame to the URDF, or correct frame_id in the driver.')
    return good(topic, f"Frame '{frame}'.")

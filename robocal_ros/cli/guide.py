# SPDX-License-Identifier: Apache-2.0
"""`robocal guide`: write down postures of hand guiding, and report what they determine."""

from __future__ import annotations

import argparse
import os
import select
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic

import numpy as np
from sensor_msgs.msg import JointState

from robocal_ros.arrays import Array
from robocal_ros.cli.console import print_line
from robocal_ros.cli.node_client import RosSession, full_name
from robocal_ros.compliance import Advice, advise, mounted_of, read_guided
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.estimators import file_estimator
from robocal_ros.messages import qos
from robocal_ros.offline import read_parameters, results_for
from robocal_ros.robot import Robot, make_robot, read_urdf

# Time over which joint angles are averaged [s], and their largest range in it [rad]: a hand
# trembles by some tenths of a milliradian.
_AVERAGED, _STILL = 0.5, 2e-3


def run(options: argparse.Namespace) -> int:
    """Append a posture to the file with each Enter, until q or the end of the input.

    Raises:
        RobocalError: If parameters or files are unsuitable, or no joint states come.

    """
    chosen = file_estimator('geometry')
    folder = {} if options.results_dir is None else {'results_dir': str(options.results_dir)}
    values = read_parameters(chosen.table, chosen.node, options.params_file,
                             {**dict(options.param), **folder}, options.namespace)
    robot = make_robot(read_urdf(options.urdf), values)
    path = options.sets / f'{options.set}.csv'
    mounted = mounted_of(robot, values, results_for(robot, values, ())[1]('payload'))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Computed beside the reception: an Enter meets the angles of its own moment, not old ones.
    with RosSession('robocal_guide') as session, ThreadPoolExecutor(1) as worker:
        recent = _Recent(session, robot, full_name('joint_states', options.namespace))
        if not session.spin_until(lambda: bool(recent.samples), options.timeout):
            raise ConfigurationError(
                f"No joint states with {', '.join(robot.joint_names)} on '{recent.topic}'. Start "
                'the driver in this ROS domain, or set its namespace with --namespace.')
        print_line(f'Move the arm by hand, and press Enter where it is to be written to {path}. '
                   'q and Enter end.')
        answers, typed = deque[tuple[int, Future[Advice]]](), ''
        while True:
            session.spin_until(lambda: _typed() or (bool(answers) and answers[0][1].done()))
            if answers and answers[0][1].done():
                _show(robot, *answers.popleft())
                continue
            # Past Python's buffer, which would hide lines that come together.
            typed = os.read(sys.stdin.fileno(), 1024).decode(errors='replace')
            if typed and not typed.startswith('q'):
                try:
                    posture = recent.still()
                    # A line at once: nothing that was measured is lost.
                    with path.open('a', encoding='utf-8') as file:
                        file.write(', '.join(f'{angle:.6f}' for angle in posture) + '\n')
                    data = read_guided(robot, options.sets, path)
                    answers.append((len(data.sets[-1]), worker.submit(
                        advise, robot, data, values, mounted)))
                except DataError as error:
                    print_line(str(error), 'yellow')
            if not typed or typed.startswith('q') or typed.strip().endswith('q'):
                for answer in answers:
                    _show(robot, *answer)
                return 0


def _typed() -> bool:
    return bool(select.select([sys.stdin], [], [], 0.0)[0])


class _Recent:
    """Joint angles of the last moments."""

    def __init__(self, session: RosSession, robot: Robot, topic: str) -> None:
        self.topic, self.samples, self._arrived = topic, deque[tuple[float, Array]](), 0.0
        self._names = robot.joint_names
        session.node.create_subscription(JointState, topic, self._take, qos.SENSOR)

    def _take(self, message: JointState) -> None:
        if set(self._names) <= set(message.name):
            at = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
            self._arrived = monotonic()
            places = [message.name.index(name) for name in self._names]
            self.samples.append((at, np.array(message.position)[places]))
            while self.samples[0][0] < at - _AVERAGED:
                self.samples.popleft()

    def still(self) -> Array:
        """Return the mean angles, shape (n,) [rad]; raises DataError if it moves, or is silent."""
        if (silent := monotonic() - self._arrived) > _AVERAGED:
            raise DataError(
                f"No joint states on '{self.topic}' for {silent:.1f} s (limit {_AVERAGED} s). "
                'Nothing was written: look whether the driver runs, and press Enter again.')
        angles = np.array([angles for _, angles in self.samples])
        extent = np.ptp(angles, axis=0)
        joint = int(extent.argmax())
        if extent[joint] > _STILL:
            raise DataError(
                f"Joint '{self._names[joint]}' moved by {1e3 * extent[joint]:.1f} mrad within "
                f'{_AVERAGED} s (limit {1e3 * _STILL:.0f} mrad). Nothing was written: hold the '
                'arm still, and press Enter again.')
        return np.asarray(angles.mean(axis=0))


def _show(robot: Robot, count: int, answer: Future[Advice]) -> None:
    try:
        advice = answer.result()
    except DataError as error:
        print_line(str(error), 'yellow')
        return
    off = 'too few for an estimate' if advice.off is None else (
        f'{1e3 * advice.off:.2f} mm from the others')
    print_line(f'{count} written, {off}. {advice.known} of {advice.total} parameters are known; '
               f'more can be told of {", ".join(advice.least)}.')
    if advice.doubt:
        print_line(advice.doubt, 'yellow')
    for posture in np.degrees(advice.postures):
        print_line('  next, for example: ' + ', '.join(
            f'{name} {angle:.0f}°' for name, angle in zip(
                robot.joint_names, posture, strict=True)))

# SPDX-License-Identifier: Apache-2.0
"""A user's set of constant-speed runs as a YAML file.

The file is a list; each entry names a joint and gives ``start``, ``goal`` [rad], ``speed``
[rad/s] and ``duration`` [s] of one linear segment with parabolic blends::

    - {joint: joint_6, start: -0.4, goal: 0.4, speed: 0.25, duration: 3.4}
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robocal_ros.errors import FileFormatError, MotionError
from robocal_ros.files import Finite, Section, convert, load, read_text, refuse
from robocal_ros.friction.plan import FrictionRun
from robocal_ros.robot.model import Robot
from robocal_ros.robot.motion import Lspb


class _Run(Section):
    joint: str
    start: Finite
    goal: Finite
    speed: Finite
    duration: Finite


def load_trajectory_set(path: str, robot: Robot) -> list[FrictionRun]:
    """Read a trajectory set.

    The other joints stay where the arm is when the run begins; here they are set to zero.

    Args:
        path: The file.
        robot: The arm.

    Raises:
        FileFormatError: If the file is not such a list, or an entry's numbers don't fit.
        ConfigurationError: If the file can't be read or a joint is unknown.

    """
    file = Path(path).expanduser()
    document = load(read_text(file, 'trajectory set', 'Correct trajectory_file.'), file.name)
    if not isinstance(document, list) or not document:
        raise refuse(file.name, 'the whole file', 'a list of runs', document)
    runs = []
    for number, entry in enumerate(document, 1):
        item = convert(entry, _Run, file.name, f'run {number}')
        joint = robot.index(item.joint)
        try:
            segment = Lspb(item.start, item.goal, item.speed, item.duration)
        except MotionError as error:
            raise FileFormatError(f'{file.name}, run {number}: {error}') from error
        runs.append(FrictionRun(joint, np.zeros(robot.n), segment))
    return runs

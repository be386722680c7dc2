# SPDX-License-Identifier: Apache-2.0
"""A user's set of constant-speed runs as a YAML file.

The file is a list; each entry names a joint and gives ``start``, ``goal`` [rad], ``speed``
[rad/s] and ``duration`` [s] of one linear segment with parabolic blends::

    - {joint: joint_6, start: -0.4, goal: 0.4, speed: 0.25, duration: 3.4}
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robocal_ros.errors import ConfigurationError, FileFormatError, MotionError
from robocal_ros.friction.plan import FrictionRun
from robocal_ros.results.strict import Section, load, refuse
from robocal_ros.robot.model import Robot
from robocal_ros.robot.motion import Lspb

_KEYS = ('joint', 'start', 'goal', 'speed', 'duration')


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
    try:
        text = file.read_text(encoding='utf-8')
    except OSError as error:
        raise ConfigurationError(
            f'The trajectory set {file} cannot be read: {error.strerror}. Correct '
            'trajectory_file.') from error
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f'The trajectory set {file} is not text in UTF-8 ({error.reason} at byte '
            f'{error.start}); expected a YAML list of runs. Correct trajectory_file.') from error
    document = load(text, file.name)
    if not isinstance(document, list) or not document:
        raise refuse(file.name, 'the whole file', 'a list of runs', document)
    runs = []
    for number, entry in enumerate(document, 1):
        item = Section(file.name, f'run {number}', entry, _KEYS)
        joint = robot.index(item.text('joint'))
        try:
            segment = Lspb(item.number('start'), item.number('goal'), item.number('speed'),
                           item.number('duration'))
        except MotionError as error:
            raise FileFormatError(f'{file.name}, run {number}: {error}') from error
        runs.append(FrictionRun(joint, np.zeros(robot.n), segment))
    return runs

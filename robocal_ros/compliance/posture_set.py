# SPDX-License-Identifier: Apache-2.0
"""A user's own postures as a YAML file.

The file is a list of postures; each is a list of joint angles [rad]::

    - [0.0, 0.4, -0.6, 0.3, 0.5, 0.0]
    - [0.5, 0.2, -0.9, 0.0, 0.8, 1.0]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.results.strict import load, refuse
from robocal_ros.robot.model import Robot


def load_postures(path: str, robot: Robot) -> Array:
    """Read postures.

    Args:
        path: The file.
        robot: The arm.

    Returns:
        Shape (k, n) [rad].

    Raises:
        FileFormatError: If the file is not such a list.
        ConfigurationError: If the file can't be read, or a posture leaves the joint limits.

    """
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding='utf-8')
    except OSError as error:
        raise ConfigurationError(
            f'The postures {file} cannot be read: {error.strerror}. Correct '
            'posture_file.') from error
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f'The postures {file} are not text in UTF-8 ({error.reason} at byte {error.start}); '
            'expected a YAML list of postures. Correct posture_file.') from error
    document = load(text, file.name)
    if not isinstance(document, list) or not document:
        raise refuse(file.name, 'the whole file', 'a list of postures', document)
    return np.array([_posture(file.name, number, entry, robot)
                     for number, entry in enumerate(document, 1)])


def _posture(name: str, number: int, entry: object, robot: Robot) -> list[float]:
    place = f'posture {number}'
    wanted = f'{robot.n} angles [rad], of {", ".join(robot.joint_names)}'
    if not isinstance(entry, list) or len(entry) != robot.n:
        raise refuse(name, place, wanted, entry)
    angles = []
    for joint, angle in enumerate(entry):
        if isinstance(angle, bool) or not isinstance(angle, int | float):
            raise refuse(name, place, wanted, angle)
        if not robot.lower[joint] <= angle <= robot.upper[joint]:
            raise ConfigurationError(
                f"{name}, {place}: joint '{robot.joint_names[joint]}' is at {angle} rad; its "
                f'limits are {robot.lower[joint]:.4g} … {robot.upper[joint]:.4g} rad. Correct '
                'posture_file.')
        angles.append(float(angle))
    return angles

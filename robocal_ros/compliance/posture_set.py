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
from robocal_ros.errors import ConfigurationError
from robocal_ros.files import convert, load, read_text, refuse
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
    document = load(read_text(file, 'posture file', 'Correct posture_file.'), file.name)
    if not isinstance(document, list) or not document:
        raise refuse(file.name, 'the whole file', 'a list of postures', document)
    postures = [convert(entry, list[float], file.name, f'posture {number}')
                for number, entry in enumerate(document, 1)]
    for number, posture in enumerate(postures, 1):
        _check(posture, robot, file.name, f'posture {number}')
    return np.array(postures, dtype=float)


def _check(posture: list[float], robot: Robot, name: str, place: str) -> None:
    if len(posture) != robot.n:
        raise refuse(name, place, f'{robot.n} angles [rad], of {", ".join(robot.joint_names)}',
                     posture)
    for joint, lower, upper, angle in zip(
        robot.joint_names, robot.lower, robot.upper, posture, strict=True
    ):
        if not lower <= angle <= upper:
            raise ConfigurationError(
                f"{name}, {place}: joint '{joint}' is at {angle:g} rad; its limits are "
                f'{lower:.4g} … {upper:.4g} rad. Correct posture_file.')

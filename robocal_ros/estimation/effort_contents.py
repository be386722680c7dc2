# SPDX-License-Identifier: Apache-2.0
"""Contents of the efforts: all torques of the drives, or those without the arm's own dynamics."""

from __future__ import annotations

import numpy as np

from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.messages.samples import JointSamples
from robocal_ros.robot.model import Robot

# Samples that are compared with gravity, and joints that are: those that gravity loads [N·m].
_SAMPLES = 200
_LOADED = 5.0
# Share of rows without any effort from which on the driver gave none for a time.
_LOST = 0.02
# Share of the bare arm's weight that efforts must hold to contain it, and that efforts without it
# cannot hold: a payload adds up to two thirds (3 kg on a Franka arm), gains err by a fifth.
_CONTAINED, _TOO_MUCH = 0.5, 0.9


def torque_model(robot: Robot, contents: str) -> Robot:
    """Return the arm whose own dynamics the efforts contain.

    Args:
        robot: The arm.
        contents: ``all``; or ``external``, for which the arm counts as massless.

    """
    return robot.without_mass() if contents == 'external' else robot


def check_contents(samples: JointSamples, robot: Robot, contents: str) -> None:
    """Refuse efforts that hold the arm's own weight though they should not, or the reverse.

    The efforts are projected on the torques that hold the bare arm, over all joints that gravity
    loads by 5 N·m and more. Without such a joint, or any effort, nothing is checked.

    Args:
        samples: Joint states.
        robot: The arm without its payload.
        contents: ``all`` or ``external``, as the parameter ``effort_contains``.

    Raises:
        ConfigurationError: If the efforts contradict it.
        DataError: If the driver gave no effort for a part of the time.

    """
    lost = np.asarray(~samples.effort.any(axis=1))
    if lost.size and _LOST < lost.mean() < 1.0:
        raise DataError(
            f'Effort of all joints is exactly zero in {100.0 * lost.mean():.0f} % of the samples, '
            f'first {samples.time[lost.argmax()] - samples.time[0]:.2f} s after their begin; a '
            'live sensor scatters. The driver gave no effort for a time: check it and measure '
            'again.')
    rows = np.unique(np.linspace(0, len(samples) - 1, min(len(samples), _SAMPLES)).astype(int))
    held, effort = robot.gravity_torques(samples.position[rows]), samples.effort[rows]
    loaded = ~robot.prismatic & (np.abs(held).max(axis=0, initial=0.0) >= _LOADED)
    if not loaded.any():
        return
    held, effort = held[:, loaded], effort[:, loaded]
    if not effort.any():
        return
    share = float((held * effort).sum() / np.square(held).sum())
    if contents == 'all' and abs(share) < _CONTAINED:
        raise ConfigurationError(
            f'The efforts hold {100.0 * share:.0f} % of the weight of the bare arm; expected '
            'about 100 %, and more with a payload. If the driver publishes them without gravity '
            "(tau_ext, external torque, gravity compensation), set effort_contains to 'external'; "
            "if they are currents, set effort_source to 'current' with torque_constants and "
            'gear_ratios.')
    rest = float(np.sqrt(np.square(effort - share * held).mean() / np.square(effort).mean()))
    if contents == 'external' and share > _TOO_MUCH and rest < 0.3:
        raise ConfigurationError(
            f"effort_contains is 'external', but the efforts hold {100.0 * share:.0f} % of the "
            "weight of the bare arm; set it to 'all'.")

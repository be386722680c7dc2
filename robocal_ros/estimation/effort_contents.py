# SPDX-License-Identifier: Apache-2.0
"""Contents and units of the efforts.

They are all torques of the drives, or those without the arm's own dynamics, in N·m.
"""

from __future__ import annotations

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.messages.samples import JointSamples
from robocal_ros.robot.model import Robot

# Samples that are compared with gravity, and joints that are: those that gravity loads [N·m].
_SAMPLES = 200
_LOADED = 5.0
# Largest share of rows without any effort.
_LOST = 0.02
# Share of the bare arm's weight that efforts without it cannot hold: a payload adds up to two
# thirds (3 kg on a Franka arm), gains err by a fifth. Efforts with it hold more than half of it
# (min_weight_share): masses and gains are seldom off by more than a quarter each.
_TOO_MUCH = 0.9
# Efforts above this multiple of their limit are not in N·m: some URDFs state rated torques, and
# servo drives peak at up to three times those.
_IMPLAUSIBLE = 3.0
_SPIKES = 0.99


def torque_model(robot: Robot, contents: str) -> Robot:
    """Return the arm whose own dynamics the efforts contain.

    Args:
        robot: The arm.
        contents: ``all``; or ``external``, for which the arm counts as massless.

    """
    return robot.without_mass() if contents == 'external' else robot


def _check_units(effort: Array, held: Array, robot: Robot) -> None:
    """Raise a ConfigurationError with the likely unit if efforts far exceed the URDF's limits.

    Args:
        effort: Shape (k, n) [N·m].
        held: Torques that hold the bare arm, shape (k, n) [N·m].
        robot: The arm.

    """
    size = np.quantile(np.abs(effort), _SPIKES, axis=0)
    ratio = size / robot.effort_limit
    joint = int(np.argmax(ratio))
    if not ratio[joint] > _IMPLAUSIBLE:
        return
    name, limit = robot.joint_names[joint], robot.effort_limit[joint]
    unit = robot.unit(name, 'N·m')
    weighed = np.abs(held).max(axis=0) >= _LOADED
    scale = (held * effort).sum(axis=0)[weighed] / np.square(held).sum(axis=0)[weighed]
    # Torques hold the same share of the weight at every joint; motor constants differ.
    if len(scale) and (np.abs(scale / 1e3 - 1.0) < 0.5).all():
        fitting = (f'In {"mN" if unit == "N" else "N·mm"} they would hold the arm: set '
                   "effort_source to 'current' and torque_constants to 0.001.")
    else:
        fitting = (f'As currents in mA they would be plausible ({1e-3 * size[joint]:.2g} A): set '
                   "effort_source to 'current', with gear_ratios and torque_constants in "
                   f'{unit}/mA, a thousandth of {unit}/A.')
    raise ConfigurationError(
        f"The effort of joint '{name}' reaches {size[joint]:.4g} {unit}, {ratio[joint]:.0f} times "
        f'its limit of {limit:.4g} {unit} in the URDF. {fitting}')


def check_contents(
    samples: JointSamples, robot: Robot, contents: str, least: float
) -> None:
    """Check unit and contents of the efforts.

    The efforts are projected on the torques that hold the bare arm, over all joints that gravity
    loads by 5 N·m and more. Without such a joint, or any effort, nothing is checked.

    Args:
        samples: Joint states.
        robot: The arm without its payload.
        contents: ``all`` or ``external``, as the parameter ``effort_contains``.
        least: Least share of the weight in efforts that contain it, as the parameter
            ``min_weight_share``.

    Raises:
        ConfigurationError: If the efforts contradict ``contents``, or are in another unit.
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
    if len(rows):
        _check_units(effort, held, robot)
    loaded = ~robot.prismatic & (np.abs(held).max(axis=0, initial=0.0) >= _LOADED)
    if not loaded.any():
        return
    held, effort = held[:, loaded], effort[:, loaded]
    if not effort.any():
        return
    share = float((held * effort).sum() / np.square(held).sum())
    if contents == 'all' and abs(share) < least:
        raise ConfigurationError(
            f'The efforts hold {100.0 * share:.0f} % of the weight of the bare arm; expected '
            f'about 100 %, more with a payload, and at least {100.0 * least:.0f} % '
            '(min_weight_share). If the driver publishes them without gravity '
            "(tau_ext, external torque, gravity compensation), set effort_contains to 'external'; "
            "if they are currents, set effort_source to 'current' with torque_constants and "
            'gear_ratios.')
    rest = float(np.sqrt(np.square(effort - share * held).mean() / np.square(effort).mean()))
    if contents == 'external' and share > _TOO_MUCH and rest < 0.3:
        raise ConfigurationError(
            f"effort_contains is 'external', but the efforts hold {100.0 * share:.0f} % of the "
            "weight of the bare arm; set it to 'all'.")

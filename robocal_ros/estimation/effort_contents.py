# SPDX-License-Identifier: Apache-2.0
"""Contents and units of the efforts.

They are all torques of the drives, or those without the arm's own dynamics, in N·m.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.messages import JointSamples
from robocal_ros.robot import NewtonEuler, Robot

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
# A payload may hold as much as the arm's weight. Efforts lack that weight if the payload's alone,
# whatever its mass and centre, leaves less of them by this share than the payload's and the arm's.
_CLEARLY_LESS = 0.7
# Largest distance of a payload's centre from the flange [m]. Static friction of resting joints can
# look like a lever, but one of more than that is no payload's.
_FARTHEST = 1.0
# Without a known mass: share of the arm's weight that a payload of negative mass would have.
_NEGATIVE = 0.3
# Least condition of a payload's mass and centre by the postures: 0.08 and more for exciting
# motions and sweeps of two planes, at most 0.02 where one joint turns.
_DETERMINED = 0.05


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
                   "effort_source to 'current' and torque_constants to 0.001, or to a thousandth "
                   'of what they are.')
    else:
        fitting = (f'As currents in mA they would be plausible ({1e-3 * size[joint]:.2g} A): set '
                   "effort_source to 'current', with gear_ratios and torque_constants in "
                   f'{unit}/mA, a thousandth of {unit}/A. Where the constants are not known, set '
                   "it to 'unknown', and calibrate the drive gains with a load of known mass.")
    raise ConfigurationError(
        f"The effort of joint '{name}' reaches {size[joint]:.4g} {unit}, {ratio[joint]:.0f} times "
        f'its limit of {limit:.4g} {unit} in the URDF. {fitting}')


def check_contents(
    samples: JointSamples, robot: Robot, contents: str, least: float,
    mass: float | None = 0.0,
) -> None:
    """Check unit and contents of the efforts.

    The efforts are projected on the torques that hold the bare arm, over all joints that gravity
    loads by 5 N·m and more. Without such a joint, or any effort, nothing is checked.

    Args:
        samples: Joint states.
        robot: The arm without an unknown payload.
        contents: ``all`` or ``external``, as the parameter ``effort_contains``.
        least: Least share of the weight in efforts that contain it, as the parameter
            ``min_weight_share``.
        mass: Known mass of the payload [kg]; 0 if it is not known, None for no payload beside
            what the model of the arm holds.

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
    rows = _spread_rows(samples.position) if len(samples) else np.zeros(0, dtype=int)
    held, effort = robot.gravity_torques(samples.position[rows]), samples.effort[rows]
    if len(rows):
        _check_units(effort, held, robot)
    loaded = ~robot.prismatic & (np.abs(held).max(axis=0, initial=0.0) >= _LOADED)
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
            "if they are currents, set effort_source to 'current' with the torque_constants and "
            "gear_ratios of the drives, or to 'unknown' if these are not known, and calibrate the "
            'drive gains with a load of known mass.')
    if contents == 'all' and mass is not None and _lacks_weight(
            robot, samples.position[rows], effort, loaded, mass, least):
        raise ConfigurationError(
            f'The weight of a payload {f"of {mass:.3g} kg " if mass else ""}alone explains the '
            "efforts better than that of the arm and a payload. Set effort_contains to 'external' "
            'if the driver publishes efforts without gravity'
            f'{", and correct known_mass if it is wrong" if mass else ""}. Efforts that are far '
            'too small, by wrong torque_constants or gear_ratios, look the same.')
    rest = float(np.sqrt(np.square(effort - share * held).mean() / np.square(effort).mean()))
    if contents == 'external' and share > _TOO_MUCH and rest < 0.3:
        raise ConfigurationError(
            f"effort_contains is 'external', but the efforts hold {100.0 * share:.0f} % of the "
            "weight of the bare arm; set it to 'all'.")


def _spread_rows(position: Array) -> npt.NDArray[np.intp]:
    """Return rows at even distances along the path.

    Rests, in which static friction holds any part of the weight, then do not count by duration.

    Args:
        position: Joint angles, shape (k, n), k > 0 [rad].

    """
    count = min(len(position), 5 * _SAMPLES)
    rows = np.unique(np.linspace(0, len(position) - 1, count).astype(int))
    steps = np.diff(position[rows], axis=0, prepend=position[rows][:1])
    path = np.cumsum(np.linalg.norm(steps, axis=1) + 1e-9)
    return rows[np.unique(np.searchsorted(path, np.linspace(path[0], path[-1], _SAMPLES)))]


def _lacks_weight(
    robot: Robot, q: Array, effort: Array, loaded: Flags, mass: float, least: float
) -> bool:
    """Return whether efforts are explained better without the weight of the bare arm.

    Args:
        robot: The arm without its payload.
        q: Joint angles, shape (k, n) [rad].
        effort: Of the joints that gravity loads, shape (k, m) [N·m].
        loaded: Which they are, shape (n,).
        mass: Known mass of the payload [kg]; 0 if it is not known.
        least: As of ``check_contents``; efforts may be smaller by twice this share.

    """
    still = np.zeros_like(q)
    dynamics = NewtonEuler(robot, robot.tool_frame)
    payload = dynamics.torque_regressor(q, still, still)[:, loaded, :4].reshape(-1, 4)
    size = np.linalg.svd(payload / np.maximum(np.linalg.norm(payload, axis=0), 1e-9),
                         compute_uv=False)
    if size[-1] < _DETERMINED * size[0]:
        # Postures too few to tell a payload from the arm.
        return False
    own = min(1.0, 2.0 * least) * dynamics.torque(q, still, still)[:, loaded].ravel()
    known = min(1.0, 2.0 * least) * mass * payload[:, 0]
    free = payload[:, 1:] if mass > 0.0 else payload
    targets = np.column_stack((effort.ravel(), effort.ravel() - own)) - known[:, None]
    fitted = np.linalg.lstsq(free, targets)[0]
    without, included = np.sqrt(np.mean(np.square(targets - free @ fitted), axis=0))
    lever = float(np.linalg.norm(fitted[-3:, 0]))
    if without < _CLEARLY_LESS * included and lever < _FARTHEST * (mass or fitted[0, 0]):
        return True
    alone, beside = fitted[0]
    # A payload whose weight is that of the arm, and one that would have to be negative.
    return bool(mass <= 0.0 and beside < -_NEGATIVE * (alone - beside))

# SPDX-License-Identifier: Apache-2.0
"""Calibration matrix of a wrist F/T sensor, from postures at rest with a weighed tool.

reading = M w + b, with the wrench w of the tool, a bias b and the calibration matrix M (Chavez,
Traversaro, Pucci, Nori, Model Based In Situ Calibration of Six Axis Force Torque Sensors,
Humanoids 2016). Its elements are 1 or 0 but for errors of one relative size for force and one for
torque, which are estimated; the weighed mass sets the scale of the force. At rest, the torque of
one tool follows from its force: elements by torque and by force are known as one sum for this
tool, which leaves each of them uncertain, and so are those that resemble a shifted centre of mass.
Drift, scatter and the tilt of the base are estimated with them, as by ``static_poses``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError
from robocal_ros.messages import JointSamples, WrenchSamples
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.result import at_most, identified, make_result, settings_of
from robocal_ros.payload.static_poses import (
    PARTS,
    Estimate,
    fits,
    fitted,
    residual_checks,
    spike_checks,
)
from robocal_ros.results import CalibrationResult, State
from robocal_ros.robot import CALIBRATION_NAMES, SENSOR_CALIBRATION, Robot

_UNITS = [*['1'] * 3, *['1/m'] * 3] * 3 + [*['m'] * 3, *['1'] * 3] * 3
_GAINS = ('common gain of force', 'gain of force', 'common gain of torque', 'gain of torque')
# Largest share of the variance before the measurement that an identified gain has after it.
_TOLD = 0.5


def check_weighed(values: PayloadParameters) -> None:
    """Raise a ConfigurationError without a wrist sensor or the mass of the mounted tool."""
    if values.method != 'static_poses':
        raise ConfigurationError(
            "calibrate_sensor measures with the wrist sensor in the postures of method "
            f"'static_poses'; got method '{values.method}'. Set method to 'static_poses'.")
    if not values.known_mass > 0.0:
        raise ConfigurationError(
            'calibrate_sensor needs the mass of the mounted tool: set known_mass (kg, from a '
            f'scale), and known_mass_std; got {values.known_mass}.')


def estimate(
    robot: Robot, joints: JointSamples, sensor: WrenchSamples, values: PayloadParameters
) -> CalibrationResult:
    """Estimate the calibration matrix.

    Args:
        robot: The arm without the tool.
        joints: Joint states.
        sensor: Readings of the wrist sensor.
        values: The node's parameters, with the mass of the tool.

    Raises:
        ConfigurationError: If the mass of the tool is not given.
        DataError: If postures are too few, or the sensor's readings unusable.
        ExcitationError: If a direction is unobservable; it is named.

    """
    check_weighed(values)
    poses, noise, found = fitted(
        robot, joints, sensor, values, (values.known_mass, values.known_mass_std))
    fit, (told, variance) = found.fit, _gains(found)
    covariance = told @ fit.complete @ told.T
    parameters = tuple(
        p if float(p.std or 0.0) ** 2 < _TOLD * before else replace(
            p, state=State.NOT_IDENTIFIED, note='hardly known better than before')
        for p, before in zip(identified(
            CALIBRATION_NAMES, _UNITS, np.eye(6).ravel() + told @ found.value, covariance,
            [fit.freedom(row) for row in told]),
            (told**2 @ variance).tolist(), strict=True))
    left_out = found.left_out(_GAINS)
    force = np.arange(36).reshape(6, 6)[:3, :3].ravel()
    std, before = (float(np.sqrt(part[force].mean())) for part in (
        np.diag(covariance), told**2 @ variance))
    return make_result(
        robot, joints, kind=SENSOR_CALIBRATION, method='weighed_tool', frame=sensor.frame,
        parameters=parameters, covariance_names=CALIBRATION_NAMES, covariance=covariance,
        fit=fits(found.residual(), found.residual(_GAINS)),
        validation=fits(found.left_out(), left_out),
        checks=(
            at_most('gains of force', std, np.sqrt(_TOLD) * before, '1',
                    f'Gains of force are known to {100.0 * std:.2f} % (one standard deviation, '
                    f'RMS), {100.0 * before:.2f} % before. A heavier tool determines them '
                    'better, as do a better balance (known_mass_std) and a sensor right at the '
                    'tool: links between them are known to arm_model_std.', 'informative'),
            *residual_checks(found, left_out, noise, values), *spike_checks(poses)),
        counts={'poses': len(poses), 'spikes': sum(pose.spikes for pose in poses),
                **sensor.counted()},
        settings={**settings_of(values, 'known_mass', 'known_mass_std', 'sensor_gain_std',
                                'estimate_gravity', 'tilt_std', 'max_force_residual',
                                'max_torque_residual', 'max_residual_share'),
                  'sensor_frame': sensor.frame, 'random_effects': fit.std})


def _gains(found: Estimate) -> tuple[Array, Array]:
    """Return the matrix' errors by fixed parameters and coefficients, and prior variances.

    Returns:
        Rows of the errors, shape (36, p + q), and variances of the coefficients, shape (p + q,).

    """
    fit, places = found.fit, found.fit.places
    told = np.zeros((6, 6, len(fit.complete)))
    for what, _, rows in PARTS:
        # The columns of the coefficients are force and torque over the lever arm, by channel.
        size = np.repeat([1.0, 1.0 / found.lever], 3) * (
            1.0 if what == 'force' else found.lever)
        told[rows, :, places[f'gain of {what}']] = np.einsum(
            'ra,cb->rcab', np.eye(3), np.diag(size)).reshape(3, 6, 18)
        for channel in range(6)[rows]:
            told[channel, channel, places[f'common gain of {what}']] = 1.0
    variance = np.zeros(len(fit.complete))
    for name, part in places.items():
        variance[part] = fit.std[name] ** 2
    return told.reshape(36, -1), variance

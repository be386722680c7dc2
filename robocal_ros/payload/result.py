# SPDX-License-Identifier: Apache-2.0
"""Results of payload identification: common fields and checks of all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from robocal_ros import __version__
from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import DataError
from robocal_ros.messages import JointSamples
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.results import (
    Z95,
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    Series,
    State,
    spread,
)
from robocal_ros.robot import Robot

COM = ('com_x', 'com_y', 'com_z')
ARM_SOURCE = (
    "the arm's links and drive gains: identify the arm with a weighed load, calibrate the drive "
    'gains, or state what is known (gain_std, arm_model_std)')
"""Source of an interval's width, and its remedies."""
MAX_GAIN_STD = 0.05
"""Largest standard deviation of a drive gain that counts as known; it is in the intervals of what
is estimated with it."""

_PLOT_POINTS = 150
# Standard deviations below zero of a mass that only a wrong sign explains.
_SIGN = 4.0


def make_result(
    robot: Robot, samples: JointSamples, *, kind: str = 'payload', method: str,
    frame: str | None = None, parameters: tuple[Parameter, ...],
    covariance_names: tuple[str, ...], covariance: Array, fit: tuple[Fit, ...],
    validation: tuple[Fit, ...], checks: tuple[Check, ...], settings: Mapping[str, Any],
    counts: Mapping[str, int] | None = None, series: tuple[Series, ...] = (),
) -> CalibrationResult:
    """Return a result, with identity, counts and time from the arm and its joint states.

    Args:
        robot: The arm without the payload.
        samples: Joint states behind the result.
        kind: As for ``CalibrationResult``, like all that are not named here.
        method: Method.
        frame: Frame of the result; the tool frame by default.
        parameters: The numbers.
        covariance_names: Row order of the covariance.
        covariance: Covariance of the identified parameters.
        fit: Residuals on the data the model was fitted to.
        validation: Residuals on held-out data.
        checks: Checks behind the verdict.
        settings: Settings other than tool frame and gravity.
        counts: Counts other than those of the joint states.
        series: Plots.

    """
    return CalibrationResult(
        kind=kind, method=method,
        robot=robot.identity,
        frame=robot.tool_frame if frame is None else frame, parameters=parameters,
        covariance_names=covariance_names, covariance=covariance, fit=fit, validation=validation,
        checks=checks,
        counts={'samples': len(samples), **(counts or {}), **asdict(samples.counts)},
        settings={**settings, 'tool_frame': robot.tool_frame,
                  'urdf_payload_mass': robot.distal_inertia(robot.tool_frame).mass,
                  'gravity': [float(g) for g in robot.gravity]},
        source=samples.source, time=float(samples.time[-1]), software_version=__version__,
        series=series)


def identified(
    names: Sequence[str], units: Sequence[str], values: Array, covariance: Array,
    freedom: Sequence[float | None], notes: Sequence[str] = (),
) -> tuple[Parameter, ...]:
    """Return identified parameters.

    Args:
        names: Names of the p parameters.
        units: Their units.
        values: Shape (p,).
        covariance: Shape (p, p).
        freedom: Degrees of freedom of each standard deviation; None if it is known.
        notes: Note of each; none by default.

    """
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return tuple(
        Parameter(name, unit, float(value), float(sigma), freedom=count, note=note)
        for name, unit, value, sigma, count, note in zip(
            names, units, values, std, freedom, notes or [''] * len(names), strict=True))


def at_most(
    name: str, value: float, limit: float, unit: str, reason: str,
    question: Literal['', 'informative', 'adequate', 'trustworthy'] = '',
) -> Check:
    """Return the check that a figure does not exceed its limit; arguments as for ``Check``."""
    return Check(name, bool(value <= limit), float(value), float(limit), unit, reason, question)


def fit_series(
    title: str, label: str, measured: Array, residual: Array, used: Flags | None = None
) -> Series:
    """Return the plot of a channel over the blocks of a motion.

    Args:
        title: Title.
        label: Name and unit of the channel.
        measured: Shape (k,).
        residual: Shape (k,).
        used: Blocks that are shown, shape (k,); all by default.

    """
    places = np.flatnonzero(np.ones(len(measured), bool) if used is None else used)
    pick = places[spread(len(places), _PLOT_POINTS)]
    return Series(title, 'block', label, pick.astype(float), {
        'measured': measured[pick], 'fit': (measured - residual)[pick],
        'residual': residual[pick]})


def settings_of(values: PayloadParameters, *names: str) -> dict[str, Any]:
    """Return parameters by name, for the settings of a result."""
    return {name: getattr(values, name) for name in names}


def unidentified_inertia(note: str, state: State = State.NOT_EVALUATED) -> list[Parameter]:
    """Return the elements of inertia as not evaluated, or not identified, with the reason."""
    return [Parameter(f'inertia_{axes}', 'kg·m²', state=state, note=note)
            for axes in ('xx', 'xy', 'xz', 'yy', 'yz', 'zz')]


def check_payload_limit(mass: float, values: PayloadParameters) -> None:
    """Raise a DataError if the payload is heavier than max_payload."""
    if 0.0 < values.max_payload < mass:
        raise DataError(
            f'The payload weighs {mass:.2f} kg, more than max_payload '
            f'({values.max_payload} kg). Unmount it, or correct max_payload.')


def check_sign(mass: float, std: float, distal: float, values: PayloadParameters) -> None:
    """Raise a DataError if the load of a wrist sensor weighs less than nothing.

    Args:
        mass: Its mass [kg].
        std: Standard deviation of the mass [kg].
        distal: Mass of the URDF's links distal to the sensor [kg].
        values: The parameters.

    """
    if mass < -_SIGN * std:
        raise DataError(f'The estimated mass is {mass:.3f} ± {Z95 * std:.3f} kg. ' + (
            'The sensor reads the opposite of the weight that it carries: set sensor_sign to '
            f'{-values.sensor_sign:g}.' if mass + distal < 0.0 else
            f'The links distal to the sensor weigh {distal:.3f} kg by the URDF, and the sensor '
            f'carries {mass + distal:.3f} kg with them: correct the URDF, or mount what it has.'))


def links_cause(links: float, mass: Parameter, values: PayloadParameters) -> str:
    """Return a sentence if links distal to the wrist sensor widen the intervals most, else ''.

    Args:
        links: Mass of the URDF's links distal to the sensor [kg].
        mass: The payload's mass.
        values: The parameters.

    """
    if Z95 * values.arm_model_std * links < 0.5 * _half_width(mass):
        return ''
    return (f' Most of it is due to {links:.2f} kg of links distal to the sensor in the URDF, '
            f'known to {100.0 * values.arm_model_std:.1f} % (arm_model_std): weigh them and lower '
            'arm_model_std, or remove them from the URDF, so that they are part of the payload.')


def largest_source(variances: Mapping[str, float]) -> str:
    """Return a sentence on what contributes most to an interval, and what narrows it.

    Args:
        variances: By source and remedy, in words, its part of the variance.

    """
    source = max(variances, key=lambda name: variances[name])
    share = variances[source] / max(sum(variances.values()), 1e-300)
    return f' {100.0 * share:.0f} % of its variance is due to {source}.'


def mass_check(mass: Parameter, values: PayloadParameters, cause: str = '') -> Check:
    """Check the width of the mass's 95 % interval; the cause is named if it is too wide."""
    half, value, limit = _half_width(mass), mass.value or 0.0, values.max_mass_interval
    if value <= half:
        return Check('payload seen', False, value, half, 'kg',
                     f'The mass is {mass.text(3)} kg (95 %), which does not differ from none: '
                     f'mount the tool, or narrow the interval.{cause}', 'informative')
    share = half / value
    return at_most('95 % interval of the mass', share, limit, '1',
                   f"The mass's 95 % interval is ±{100 * share:.2f} % (limit "
                   f'±{100 * limit:.1f} %).'
                   + ('' if share <= limit else cause), 'informative')


def centre_checks(
    com: Sequence[Parameter], values: PayloadParameters, cause: str = ''
) -> list[Check]:
    """Check the intervals of the centre of mass and its distance from the tool frame."""
    half = max(_half_width(parameter) for parameter in com)
    distance = float(np.linalg.norm([parameter.value or 0.0 for parameter in com]))
    widest, farthest = values.max_com_interval, values.max_com_distance
    return [
        at_most('95 % interval of the centre', half, widest, 'm',
                f'The widest 95 % interval of the centre of mass is ±{1e3 * half:.2f} mm '
                f'(limit ±{1e3 * widest:.1f} mm).' + ('' if half <= widest else cause),
                'informative'),
        at_most('plausible place', distance, farthest, 'm',
                f'The centre of mass lies {1e3 * distance:.1f} mm from the tool frame '
                f'(limit {1e3 * farthest:.0f} mm).', 'trustworthy')]


def _half_width(parameter: Parameter) -> float:
    half = parameter.half_width()
    return np.nan if half is None else half


def motion_checks(
    fitted: Sequence[Fit], held_out: Sequence[Fit], where: Sequence[str], expected: Array,
    limit: float,
) -> list[Check]:
    """Check the prediction of the held-out part of an exciting motion.

    Args:
        fitted: Residuals of the fit, channel by channel.
        held_out: Residuals of the held-out part; empty where there is none.
        where: Names of the channels, for the text.
        expected: RMS error of the prediction by the covariance, shape (channels,).
        limit: Largest ratio of the residuals, as the parameter ``max_held_out_ratio``.

    """
    if not held_out:
        return []
    ratios = [after.after / max(float(np.hypot(before.after, part)), 1e-12)
              for after, before, part in zip(held_out, fitted, expected, strict=True)]
    worst = int(np.argmax(ratios))
    return [at_most(
        'held-out part of the motion', ratios[worst], limit, '1',
        f'The last part of the motion is predicted with residuals up to {ratios[worst]:.2f} '
        f'times those of the fit and of its uncertainty, {where[worst]} (limit '
        f'{limit:.1f}, max_held_out_ratio).', 'adequate')]


def centre_text(result: CalibrationResult) -> str:
    """Return the centre of mass with 95 % intervals as text."""
    found = [result.parameter(name) for name in COM]
    parts = ', '.join(f'{p.name[-1]} {p.text(2, 1e3)} mm' for p in found)
    return f'{parts} in {result.frame} (95 %)'


def mass_text(result: CalibrationResult) -> str:
    """Return the mass with its 95 % interval as text."""
    return f'{result.parameter("mass").text(4)} kg'


def mounted_text(result: CalibrationResult) -> str:
    """Return the URDF's inertia at the tool frame as text, empty without any."""
    mounted = result.settings.get('urdf_payload_mass', 0.0)
    if not mounted:
        return ''
    total = mounted + (result.parameter('mass').value or 0.0)
    return (f"; extra to the {mounted:.4f} kg that the URDF has distal to '{result.frame}', "
            f'{total:.4f} kg in total')

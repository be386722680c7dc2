# SPDX-License-Identifier: Apache-2.0
"""Results of payload identification: common fields and checks of all methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from robocal_ros import __version__
from robocal_ros.arrays import Array, Flags
from robocal_ros.errors import DataError
from robocal_ros.messages import JointSamples
from robocal_ros.payload.model import PARAMETERS, centred_jacobian
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.results import Z95, CalibrationResult, Check, Parameter, Series, State, spread
from robocal_ros.robot import REVERSED, NewtonEuler, Robot, body_of

COM = PARAMETERS[1:4]
ARM_SOURCE = (
    "the arm's links and drive gains: identify the arm with a weighed load, calibrate the drive "
    'gains, or state what is known (gain_std, arm_model_std)')
"""Source of an interval's width, and its remedies."""
MAX_GAIN_STD = 0.05
"""Largest standard deviation of a drive gain that counts as known; it is in the intervals of what
is estimated with it."""

PLAUSIBLE_GAINS = (0.3, 3.0)
"""Plausible range of drive gains."""

CERTAIN = 3.29
"""Standard deviations of a contradiction (two-sided probability 1e-3)."""

TORQUE_ERROR = 'torque error'
"""Name of the check of what a payload is fit for."""

_PLOT_POINTS = 150
# Random postures in which torques are compared.
_POSTURES = 200
# Standard deviations below zero of a mass that only a wrong sign explains.
_SIGN = 4.0


ACCURACY_SETTINGS = (
    'max_torque_error', 'torque_error_floor', 'max_velocity', 'max_acceleration',
    'max_mass_interval', 'max_com_interval', 'max_com_distance', 'max_payload')
"""Parameters behind the checks of accuracy."""


def make_result(
    robot: Robot, samples: JointSamples, *, settings: Mapping[str, Any],
    counts: Mapping[str, int] | None = None, kind: str = 'payload', frame: str | None = None,
    **fields: Any,
) -> CalibrationResult:
    """Return a result, with identity, counts and time from the arm and its joint states.

    Args:
        robot: The arm without the payload.
        samples: Joint states behind the result.
        settings: Settings other than tool frame and gravity.
        counts: Counts other than those of the joint states.
        kind: As for ``CalibrationResult``.
        frame: Frame of the result; the tool frame by default.
        fields: Further fields of ``CalibrationResult``.

    """
    return CalibrationResult(
        kind=kind, robot=robot.identity, frame=robot.tool_frame if frame is None else frame,
        counts={'samples': len(samples), **(counts or {}), **asdict(samples.counts)},
        settings={**settings, 'tool_frame': robot.tool_frame,
                  'urdf_payload_mass': robot.distal_inertia(robot.tool_frame).mass,
                  'gravity': [float(g) for g in robot.gravity]},
        source=samples.source, time=float(samples.time[-1]), software_version=__version__,
        **fields)


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
    pick = places[plotted(len(places))]
    return Series(title, 'block', label, pick.astype(float), {
        'measured': measured[pick], 'fit': (measured - residual)[pick],
        'residual': residual[pick]})


def plotted(count: int) -> npt.NDArray[np.intp]:
    """Return the indices of those of so many values that a plot shows."""
    return spread(count, _PLOT_POINTS)


def unidentified_inertia(note: str, state: State = State.NOT_EVALUATED) -> list[Parameter]:
    """Return the elements of inertia as not evaluated, or not identified, with the reason."""
    return [Parameter(name, 'kg·m²', state=state, note=note) for name in PARAMETERS[4:]]


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
            f'{-values.sensor_sign:g}. A sensor_frame that is turned by 180° may look alike.'
            if mass + distal < 0.0 else
            f'The links distal to the sensor weigh {distal:.3f} kg by the URDF, and the sensor '
            f'carries {mass + distal:.3f} kg with them: correct the URDF, or mount what it has.'))


def _links_cause(links: float, mass: Parameter, values: PayloadParameters) -> str:
    """Return a sentence if links distal to the wrist sensor widen the intervals most, else ''.

    Args:
        links: Mass of the URDF's links distal to the sensor [kg].
        mass: The payload's mass.
        values: The parameters.

    """
    if not links or Z95 * values.arm_model_std * links < 0.5 * _half_width(mass):
        return ''
    return (f' Most of it is due to {links:.2f} kg of links distal to the sensor in the URDF, '
            f'known to {100.0 * values.arm_model_std:.1f} % (arm_model_std): weigh them and lower '
            'arm_model_std, or remove them from the URDF, so that they are part of the payload.')


def braking_check(joint_names: Sequence[str], powers: Iterable[tuple[float, float]]) -> Check:
    """Check that friction brakes every joint, rather than driving it.

    Args:
        joint_names: Names of the joints.
        powers: Of each, the mean power or torque that friction takes, and its standard deviation,
            in any unit.

    """
    wrong = [name for name, (power, std) in zip(joint_names, powers, strict=True)
             if power < -CERTAIN * std]
    return Check('sign of efforts', not wrong, float(len(wrong)), 0.0, '1',
                 f'Friction would drive {", ".join(wrong)} instead of braking: the sign of the '
                 f'effort is wrong. {REVERSED}' if wrong else 'Friction brakes every joint.',
                 'trustworthy')


def largest_source(variances: Mapping[str, float]) -> str:
    """Return a sentence on what contributes most to an interval, and what narrows it.

    Args:
        variances: By source and remedy, in words, its part of the variance.

    """
    source = max(variances, key=lambda name: variances[name])
    share = variances[source] / max(sum(variances.values()), 1e-300)
    return f' {100.0 * share:.0f} % of its variance is due to {source}.'


def accuracy_checks(
    robot: Robot, parameters: Sequence[Parameter], covariance: Array, values: PayloadParameters,
    of_mass: str, of_centre: str, links: float = 0.0,
) -> list[Check]:
    """Check what errors of the payload do, and the intervals that the user limits.

    A wrist sensor carries payload and links. What the URDF's links are too heavy, the payload is
    too light, so that these errors cause no torque where both are used, as in drivers.

    Args:
        robot: The arm without the payload.
        parameters: The payload's parameters in the order of ``PARAMETERS``, at least four.
        covariance: Covariance of the first of them without errors of the links distal to the
            sensor, shape (p, p); the others are not identified.
        values: The parameters.
        of_mass: Sentence on what widens the interval of the mass.
        of_centre: Sentence on what widens those of the centre.
        links: Mass of the links distal to the sensor, which are subtracted by the URDF [kg].

    """
    mass, com = parameters[0], parameters[1:4]
    half, value = _half_width(mass), mass.value or 0.0
    of_links = _links_cause(links, mass, values)
    distance = float(np.linalg.norm([parameter.value or 0.0 for parameter in com]))
    checks = [at_most(
        'plausible place', distance, values.max_com_distance, 'm',
        f'The centre of mass lies {1e3 * distance:.1f} mm from the tool frame '
        f'(limit {1e3 * values.max_com_distance:.0f} mm).', 'trustworthy')]
    if value <= half:
        return [Check(
            'payload seen', False, value, half, 'kg',
            f'The mass is {mass.text(3)} kg (95 %), which does not differ from none: mount the '
            f'tool, or narrow the interval.{of_links or of_mass}', 'informative'), *checks]
    if values.max_mass_interval and mass.state is State.IDENTIFIED:
        share, limit = half / value, values.max_mass_interval
        checks.append(at_most(
            '95 % interval of the mass', share, limit, '1',
            f"The mass's 95 % interval is ±{100 * share:.2f} % (limit ±{100 * limit:.1f} %)."
            + ('' if share <= limit else of_links or of_mass), 'informative'))
    if values.max_com_interval:
        half, limit = max(map(_half_width, com)), values.max_com_interval
        checks.append(at_most(
            '95 % interval of the centre', half, limit, 'm',
            f'The widest 95 % interval of the centre of mass is ±{1e3 * half:.2f} mm '
            f'(limit ±{1e3 * limit:.1f} mm).' + (
                '' if half <= limit else of_links or of_centre), 'informative'))
    return [_torque_check(robot, parameters, covariance, values, of_mass, of_centre, links),
            *checks]


def same_tool(stored: CalibrationResult | None, tool: str, frame: str) -> bool:
    """Return whether a stored payload is that of a tool in a frame."""
    return stored is not None and (stored.settings.get('tool', ''), stored.frame) == (tool, frame)


def stored_load_checks(
    result: CalibrationResult, stored: CalibrationResult | None
) -> Iterator[Check]:
    """Check that a payload by torque is not none where a stored one of the same tool is.

    Args:
        result: The payload; a reference run is not checked.
        stored: The stored payload, None without one.

    """
    if stored is None or result.kind != stored.kind or not same_tool(
            stored, result.settings.get('tool', ''), result.frame):
        return
    mass, other = result.parameter('mass'), stored.parameter('mass')
    none = CERTAIN * (mass.std or 0.0)
    apart = abs((mass.value or 0.0) - (other.value or 0.0))
    limit = float(np.hypot(none, CERTAIN * (other.std or 0.0)))
    missing = (mass.value or 0.0) < none and apart > limit
    yield mounted_check(
        missing, apart, limit, 'kg',
        f'The payload weighs {mass.text(3)} kg by its torque, but {other.text(3)} kg by the '
        f'stored result ({stored.method}, {stored.source}).')


def mounted_check(missing: bool, apart: float, limit: float, unit: str, reason: str) -> Check:
    """Return the check that torques do not lack those of a stored payload.

    Args:
        missing: Whether they do.
        apart: How far the payload is from the stored one.
        limit: Largest distance by chance.
        unit: Unit of both.
        reason: Sentence for torques that do.

    """
    return Check(
        'torque of the payload', not missing, apart, limit, unit,
        f'{reason} Either it is not mounted, or the arm was identified with it: identify the arm '
        'without a tool. If the tool is another one, name it (tool).' if missing else
        'The torques do not contradict the stored result by being none.', 'trustworthy')


def rated_efforts(robot: Robot, torque: Array) -> Array:
    """Return the rated effort of each joint, shape (n,) [N·m].

    Args:
        robot: The arm; without a limit in its URDF, a joint's largest torque stands for it.
        torque: Torques in some postures, shape (k, n) [N·m].

    """
    return np.where(np.isfinite(robot.effort_limit), robot.effort_limit,
                    np.abs(torque).max(axis=0))


def _torque_check(
    robot: Robot, parameters: Sequence[Parameter], covariance: Array, values: PayloadParameters,
    of_mass: str, of_centre: str, links: float,
) -> Check:
    """Check the torque that errors of the payload cause; arguments as for ``accuracy_checks``.

    The half-width of the 95 % interval of each joint's torque, in the worst of random postures, at
    rest, and with random speeds and accelerations up to the limits of the parameters.
    """
    generator = np.random.default_rng(0)
    low, high = robot.sampling_limits()
    q = generator.uniform(low, high, (_POSTURES, robot.n))
    q = q[(np.abs(robot.gravity_torques(q)) <= robot.effort_limit).all(axis=1)]
    if not len(q):
        q = generator.uniform(low, high, (_POSTURES, robot.n))
    v, a = (limit * generator.choice((-1.0, 1.0), q.shape)
            for limit in (values.max_velocity, values.max_acceleration))
    dynamics, size = NewtonEuler(robot, robot.tool_frame), len(covariance)
    mean = np.zeros(10)
    mean[:len(parameters)] = [p.value or 0.0 for p in parameters]
    body = body_of(mean).to_pinocchio().toDynamicParameters()
    change = np.linalg.inv(centred_jacobian(body))[:, :size]
    factor = max((_half_width(p) / p.std for p in parameters if p.std), default=Z95)
    rated = rated_efforts(robot, dynamics.torque(q, v, a, body))
    limit = np.maximum(values.max_torque_error * rated, values.torque_error_floor)
    beside = (f', beside the {links:.3g} kg that the URDF has distal to the sensor' if links
              else '')
    texts, half = [], 0.0
    for motion, (speeds, changes) in (
            ('gravity compensation', (np.zeros_like(q), np.zeros_like(q))),
            (f'motions up to {values.max_velocity:g} rad/s and {values.max_acceleration:g} rad/s²',
             (v, a))):
        rows = dynamics.torque_regressor(q, speeds, changes) @ change
        error = factor * np.sqrt(np.maximum(
            np.einsum('knp,pr,knr->kn', rows, covariance, rows), 0.0))
        at, joint = np.unravel_index(int(np.argmax(error / limit)), error.shape)
        half = error[at, joint]
        texts.append(
            f'{"Fit" if half <= limit[joint] else "Not fit"} for {motion}{beside}: its error is '
            f'up to ±{half:.2g} {robot.unit(robot.joint_names[joint], "N·m")} at '
            f"'{robot.joint_names[joint]}', {100.0 * half / rated[joint]:.2g} % of "
            f'{rated[joint]:.3g} (limit {limit[joint]:.2g}, max_torque_error).')
    worst = rows[at, joint]
    parts = [worst[of] @ covariance[of, of] @ worst[of]
             for of in (slice(0, 1), slice(1, 4), slice(4, size))]
    of_worst = (of_mass, of_centre, ' Most of it is due to the inertia: use a faster motion.')[
        int(np.argmax(parts))]
    return at_most(
        TORQUE_ERROR, half, limit[joint], 'N·m', ' '.join(texts) + (
            '' if size > 4 else ' The inertia is not identified and counts as that of a point.')
        + ('' if half <= limit[joint] else of_worst), 'informative')


def _half_width(parameter: Parameter) -> float:
    half = parameter.half_width()
    return np.nan if half is None else half


def summary(result: CalibrationResult) -> str:
    """Return a payload, and what it is fit for and what not, in sentences."""
    if result.kind != 'payload':
        return ("Reference recorded: runs with reference_run 'subtract' subtract the error of "
                "the arm's own model.")
    mass = f'{result.parameter("mass").text(4)} kg'
    centre = ', '.join(f'{p.name[-1]} {p.text(2, 1e3)} mm' for p in map(result.parameter, COM))
    centre = f'{centre} in {result.frame} (95 %)'
    if result.method == 'two_plane':
        text = f'Centre of mass {centre} for a mass of {mass}.'
    else:
        inertia, mounted = '', result.settings.get('urdf_payload_mass', 0.0)
        if result.method == 'excitation':
            moments = [result.parameter(f'inertia_{axis}') for axis in ('xx', 'yy', 'zz')]
            inertia = ', inertia about it ' + (
                'not identified' if any(p.value is None for p in moments) else ', '.join(
                    f'{p.name[-2:]} {p.text(5)}' for p in moments) + ' kg·m²')
        text = f'Mass {mass}, centre of mass {centre}{inertia}' + (
            f"; extra to the {mounted:.4f} kg that the URDF has distal to '{result.frame}', "
            f'{mounted + (result.parameter("mass").value or 0.0):.4f} kg in total.'
            if mounted else '.')
    return text + ''.join(
        f' {check.reason}' for check in result.checks if check.name == TORQUE_ERROR)

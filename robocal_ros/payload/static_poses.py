# SPDX-License-Identifier: Apache-2.0
"""Payload and a wrist sensor's biases, or its calibration matrix, from postures at rest.

Samples → dwells, each averaged → linear mixed model → load in the tool frame → checks.

Readings of one posture scatter little, and more between postures: the sensor drifts, its
calibration matrix is inexact, cables pull. These are random effects whose sizes are estimated
with the load (``estimation.random_effects``); a gain error common to all channels looks like mass
and has a stated prior.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, ExcitationError
from robocal_ros.estimation import (
    Effect,
    MixedFit,
    autocorrelation_time,
    dwells,
    fit_mixed,
    grouped,
    likely_cause,
    solve,
)
from robocal_ros.messages import JointSamples, WrenchSamples, check_joints
from robocal_ros.payload.model import CHANNELS, WRENCH_PARAMETERS, moving, static_wrench_regressor
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.regression import CABLE_LEVER, lever_arm
from robocal_ros.payload.result import (
    ACCURACY_SETTINGS,
    COM,
    accuracy_checks,
    at_most,
    check_payload_limit,
    check_sign,
    identified,
    make_result,
    unidentified_inertia,
)
from robocal_ros.results import CalibrationResult, Check, Fit, Parameter, Series, State, rms
from robocal_ros.robot import (
    CALIBRATION_NAMES,
    SENSOR_CALIBRATION,
    RigidBodyInertia,
    Robot,
    body_covariance,
    level_axes,
)

PARAMETERS = ('mass', *COM, *WRENCH_PARAMETERS[4:])
TILT = ('tilt_1', 'tilt_2')
"""Rotations of gravity about two axes of the root frame that are perpendicular to it."""

_UNITS = ('kg', 'm', 'm', 'm', 'N', 'N', 'N', 'N·m', 'N·m', 'N·m', 'rad', 'rad')
MIN_POSES = 6
"""Fewest different postures."""

CHANGE = 'change of load after posture'
"""Start of the name of a change of the load; the number of postures before it follows."""

MIN_MASS = 0.02
"""Smallest mass that is distinguished from no payload [kg]."""

MAX_WORST = 3.0
"""Largest residual of one posture, as a multiple of the limit of the RMS residual."""

_SAME_POSTURE = 0.05
# Readings so many robust standard deviations off the median of their posture are spikes.
_SPIKE, _NORMAL_MAD = 8.0, 1.4826
# Share of spikes beyond which a sensor is faulty.
_MAX_SPIKES = 0.01
# Joint states farther apart hold one line per posture [s].
_ONE_LINE_GAP = 0.1
# Uncertainty of elements of the calibration matrix beyond which the stated error that all
# channels have in common is not credible.
_MAX_GAIN = 0.03
# Tilts of gravity beyond so many prior standard deviations contradict the prior.
_MAX_TILT = 4.0
# Standard deviation of tilts of which nothing is known [rad].
_ANY_TILT = 0.2
# The same for a cable; a stiffer one is not part of the model.
_MAX_CABLE = 4.0
# Drift is the start of the expansion of a random walk (Karhunen-Loève), with so many terms.
_DRIFT_TERMS = 4
_STEPS = 5
# Least deviation of the load's direction for a wrong posture rather than a push [°].
_LEAST_ANGLE = 1.0
# A channel is saturated if this number of postures read its extreme value within this share of
# its range.
_SATURATED, _SAME_READING = 3, 2e-3
PARTS = (('force', 'N', slice(0, 3)), ('torque', 'N·m', slice(3, 6)))
# Parameters that both results state.
_SETTINGS = ('sensor_gain_std', 'estimate_gravity', 'tilt_std', 'cable_stiffness_std',
             'max_force_residual', 'max_torque_residual', 'max_residual_share')
_HINT = ('The gravity directions seen by the sensor must span all three axes: tilt the sensor '
         'about both horizontal axes, also upside down if the arm allows it.')


@dataclass(frozen=True)
class PoseMeasurement:
    """The sensor's mean reading in one posture.

    Attributes:
        posture: Joint angles, shape (n,) [rad].
        rotation: Rotation from the sensor frame to the root frame, shape (3, 3).
        distal: Links of the URDF distal to the sensor, in its frame.
        wrench: Mean reading, shape (6,) [N, N·m].
        scatter: Standard deviation of single readings, NaN if there is one, shape (6,)
            [N, N·m].
        count: Number of readings divided by their autocorrelation time.
        time: Mean stamp [s].
        readings: Number of readings, with those that were left out.
        spikes: Number of those that were left out.

    """

    posture: Array
    rotation: Array
    distal: RigidBodyInertia
    wrench: Array
    scatter: Array
    count: float
    time: float
    readings: int = 1
    spikes: int = 0


def measure(robot: Robot, joints: JointSamples, sensor: WrenchSamples) -> list[PoseMeasurement]:
    """Average the sensor's readings over every dwell, or take one line per posture.

    Joint states that are more than 0.1 s apart are postures of their own, each with the
    reading closest in time.

    Args:
        robot: The arm without the payload.
        joints: Joint states.
        sensor: Readings of the wrist sensor.

    """
    gap = float(np.median(np.diff(joints.time))) if len(joints) > 1 else 0.0
    found = []
    if gap > _ONE_LINE_GAP:
        for time, posture in zip(joints.time, joints.position, strict=True):
            row = int(np.argmin(np.abs(sensor.time - time)))
            if abs(sensor.time[row] - time) <= 0.5 * gap:
                found.append((posture, sensor.wrench[row:row + 1], float(time)))
    else:
        for dwell in dwells(joints):
            begin, end = joints.time[dwell.start], joints.time[dwell.stop - 1]
            rows = slice(np.searchsorted(sensor.time, begin),
                         np.searchsorted(sensor.time, end, side='right'))
            if len(readings := sensor.wrench[rows]) >= 10:
                found.append((dwell.posture, readings, 0.5 * float(begin + end)))
    # Dwells of the same posture are pooled, so that leave-one-out omits all of them.
    return [_pooled(group) for group in grouped(
        [_pose(robot, *item, sensor.frame) for item in found],
        lambda a, b: bool(np.abs(a.posture - b.posture).max() < _SAME_POSTURE))]


def _pose(
    robot: Robot, posture: Array, readings: Array, time: float, frame: str
) -> PoseMeasurement:
    scatter, every = np.full(6, np.nan), len(readings)
    off = np.abs(readings - np.median(readings, axis=0))
    spread = _NORMAL_MAD * np.median(off, axis=0)
    readings = readings[~((off > _SPIKE * spread) & (spread > 0.0)).any(axis=1)]
    if len(readings) > 1:
        # Exactly zero for a constant channel, without rounding errors of the deviation.
        scatter = np.where(np.ptp(readings, axis=0) > 0.0, readings.std(axis=0, ddof=1), 0.0)
    return PoseMeasurement(
        posture, robot.transform_frame_to_root(posture, frame).rotation,
        robot.distal_inertia(frame, posture), readings.mean(axis=0), scatter,
        len(readings) / max(autocorrelation_time(column) for column in readings.T), time,
        every, every - len(readings))


def _pooled(poses: Sequence[PoseMeasurement]) -> PoseMeasurement:
    """Average dwells of one posture; the wrench is linear in the rotation."""
    if len(poses) == 1:
        return poses[0]

    def mean(values: Iterable[Array | float]) -> Any:
        return np.average(list(values), axis=0, weights=[pose.count for pose in poses])

    scatter = (np.std([pose.wrench for pose in poses], axis=0, ddof=1)
               if np.isnan(poses[0].scatter).any() else
               np.sqrt(mean(pose.scatter**2 for pose in poses)))
    return PoseMeasurement(
        mean(pose.posture for pose in poses), mean(pose.rotation for pose in poses),
        poses[0].distal, mean(pose.wrench for pose in poses), scatter,
        sum(pose.count for pose in poses), float(mean(pose.time for pose in poses)),
        sum(pose.readings for pose in poses), sum(pose.spikes for pose in poses))


# ------------------------------------------------------------------------------- model


@dataclass(frozen=True)
class Postures:
    """Postures with one direction of gravity.

    Attributes:
        poses: The n postures.
        gravity: Gravity in the root frame, shape (3,) [m/s²].
        noise: Noise of single readings by channel, NaN if it is unknown, shape (6,) [N, N·m].

    """

    poses: Sequence[PoseMeasurement]
    gravity: Array
    noise: Array

    def _rows(self, gravity: Array) -> Array:
        """Return the regressor under a gravity in the root frame, shape (n, 6, 10)."""
        return np.array([static_wrench_regressor(pose.rotation.T @ gravity)
                         for pose in self.poses])

    @property
    def wrench(self) -> Array:
        """Mean readings, shape (n, 6) [N, N·m]."""
        return np.array([pose.wrench for pose in self.poses])

    @property
    def time(self) -> Array:
        """Mean stamps, shape (n,) [s]."""
        return np.array([pose.time for pose in self.poses])

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of postures and of readings that were left out."""
        return {'poses': len(self.poses), 'spikes': sum(pose.spikes for pose in self.poses)}

    @property
    def regressor(self) -> Array:
        """Columns of mass, first moments and biases, shape (n, 6, 10)."""
        return self._rows(self.gravity)

    @property
    def measured(self) -> Array:
        """Reading minus the wrench of links distal to the sensor, shape (n, 6)."""
        return self.wrench - self.carried(np.zeros(4), self.gravity)

    @property
    def changes(self) -> dict[str, Array]:
        """Columns of loads that change once, from half less to half more, (n, 6, 4), by name.

        Of the mass, and of first moments over the arm of the load [kg].
        """
        load, number = self.regressor[:, :, :4] * self.scale, np.arange(len(self.poses))
        return {f'{CHANGE} {before}': load * np.where(number < before, -0.5, 0.5)[:, None, None]
                for before in number[1:]}

    @property
    def scale(self) -> Array:
        """Mass and first moments of one kilogram at the arm of the load, shape (4,)."""
        return np.array([1.0, *[lever_arm(self.measured)] * 3])

    def carried(self, value: Array, gravity: Array) -> Array:
        """Return the wrench of load and links, shape (n, 6).

        Args:
            value: Mass and first moments of the load, first of all.
            gravity: Gravity in the root frame, shape (3,) [m/s²].

        """
        links = np.array([(1.0, *pose.distal.com) for pose in self.poses])
        links *= [[pose.distal.mass] for pose in self.poses]
        return np.asarray(
            (self._rows(gravity)[:, :, :4] @ (value[:4] + links)[:, :, None])[:, :, 0])

    def tilt(self, value: Array) -> Array:
        """Return the derivative of the wrench by tilts of gravity, shape (n, 6, 2).

        Args:
            value: Mass, first moments and biases.

        """
        return np.stack([self.carried(value, np.cross(axis, self.gravity))
                         for axis in level_axes(self.gravity)], axis=2)

    def tilted(self, angles: Array) -> Postures:
        """Return the postures with gravity turned by small angles about ``level_axes`` [rad]."""
        turned = self.gravity + np.cross(angles @ level_axes(self.gravity), self.gravity)
        size = np.linalg.norm(self.gravity)
        return replace(self, gravity=size * turned / np.linalg.norm(turned))


@dataclass(frozen=True)
class Estimate:
    """A fitted set of postures.

    Attributes:
        postures: The postures, with the estimated direction of gravity.
        fit: Mixed model; fixed parameters are mass, first moments, biases and, if estimated,
            the remaining tilts.
        columns: Fixed columns, shape (n, 6, p).
        tilt: Columns of the tilts, shape (n, 6, 2).
        angles: Tilts of gravity against that of the parameters, shape (2,) [rad]. They are fixed
            parameters, or else a random effect.
        effects: Columns of the random effects by name, shape (n, 6, q).
        lever: Lever arm in the columns of the gains of torque [m].

    """

    postures: Postures
    fit: MixedFit
    columns: Array
    tilt: Array
    angles: Array
    effects: Mapping[str, Array]
    lever: float

    @property
    def value(self) -> Array:
        """Fixed parameters, and coefficients of the random effects, shape (p + q,)."""
        return np.concatenate((self.fit.value, *self.fit.coefficients.values()))

    @property
    def load(self) -> Array:
        """Wrench of the load, shape (n, 6) [N, N·m]."""
        return np.asarray(self.columns[:, :, :4] @ self.fit.value[:4])

    @property
    def change(self) -> tuple[str, Array]:
        """Name of the change of load, and by how much either load differs from their mean.

        The latter is the mean square of masses and first moments, shape (4, 4). Without a change,
        the name is empty and they are 0.
        """
        name = next((name for name in self.effects if name.startswith(CHANGE)), '')
        if not name:
            return '', np.zeros((4, 4))
        part, half, step = (self.fit.places[name], 0.5 * self.postures.scale,
                            self.fit.coefficients[name])
        return name, np.outer(half, half) * (self.fit.complete[part, part] + np.outer(step, step))

    def cable(self, stiffness: float) -> tuple[str, ...]:
        """Return the effects of a cable in the model, none if four times as stiff as expected.

        Args:
            stiffness: Expected torsional stiffness [N·m/rad].

        """
        fit, names = self.fit, ('cable of force', 'cable of torque')
        return names if names[0] in fit.places and all(
            np.abs(fit.coefficients[name]).max() <= _MAX_CABLE * most
            for name, most in zip(names, (stiffness / CABLE_LEVER, stiffness), strict=True)
        ) else ()

    def residual(self, also: Sequence[str] = ()) -> Array:
        """Return the residuals of the rigid load on the tilted base, shape (n, 6).

        Args:
            also: Random effects that are subtracted, too.

        """
        return self._left(slice(None), self.value, also)

    def left_out(self, also: Sequence[str] = ()) -> Array:
        """Return the residuals of each posture by the others alone; as ``residual``."""
        return np.concatenate([
            self._left(slice(number, number + 1),
                       self.fit.left_out(slice(6 * number, 6 * number + 6))[0], also)
            for number in range(len(self.columns))])

    def _left(self, rows: slice, value: Array, also: Sequence[str]) -> Array:
        left = self.postures.measured[rows] - self.columns[rows] @ value[:self.columns.shape[2]]
        for name in ('tilt', *also):
            if name in self.effects:
                left = left - self.effects[name][rows] @ value[self.fit.places[name]]
        return np.asarray(left)


def _effects(
    postures: Postures, carried: Array, values: PayloadParameters, arm: float, *, whole: bool
) -> list[Effect]:
    """Return the random effects: scatter between postures, drift, calibration matrix, cable.

    Each one separately for force and torque. Errors of the calibration matrix multiply the
    load's force, with a lever arm for the torque channels. The error that all force channels
    have in common looks like mass, a skew-symmetric one of the torque channels like a shifted
    centre: the former has the stated prior, which also adds to the size of all elements; what
    exceeds it is estimated from the elements that the load cannot explain. Errors by torque
    resemble those by force, with the load's own lever arm, and count only where the matrix is
    wanted as a ``whole``.
    """
    count, time = len(postures.poses), postures.time
    force, torque = carried[:, :3], carried[:, 3:]
    span = max(float(np.ptp(time)), 1e-9)
    order = np.pi * (np.arange(_DRIFT_TERMS) + 0.5)
    walk = np.sqrt(2.0) * np.sin(np.outer((time - time.min()) / span, order))
    walk = (walk - walk.mean(axis=0)) / order
    last = np.array([pose.posture[-1] for pose in postures.poses])
    effects = []
    for what, _, part in PARTS:
        here = np.zeros((6, 3))
        here[part] = np.eye(3)
        rows = np.broadcast_to(here.any(axis=1), (count, 6)).ravel()
        factor = 1.0 if what == 'force' else arm
        read = np.hstack((force, torque / arm)) if whole else force
        gains = np.einsum('ca,kb->kcab', here, factor * read).reshape(6 * count, -1)
        drift = np.einsum('ca,kb->kcab', here, walk).reshape(6 * count, -1)
        cable = ((last - last.mean())[:, None, None] * here).reshape(6 * count, -1)
        common = (force if what == 'force' else torque) @ here.T
        effects += [
            Effect(f'common gain of {what}', common.reshape(-1, 1),
                   prior_std=values.sensor_gain_std, estimated=False),
            Effect(f'scatter of {what}', np.empty((6 * count, 0)), rows, certain=True),
            Effect(f'drift of {what}', drift),
            Effect(f'gain of {what}', gains, prior_std=values.sensor_gain_std)]
        if values.cable_stiffness_std > 0.0 and np.ptp(last) > _SAME_POSTURE:
            effects.append(Effect(f'cable of {what}', cable))
    return effects


def fitted(
    robot: Robot, joints: JointSamples, sensor: WrenchSamples, values: PayloadParameters,
    mass: tuple[float, float] | None = None,
) -> Estimate:
    """Return the fitted model of the postures.

    Args:
        robot: The arm without the payload.
        joints: Joint states.
        sensor: Readings of the wrist sensor.
        values: The node's parameters.
        mass: Mass of the load and its standard deviation if it was weighed [kg].

    Raises:
        DataError: If postures are too few, or the sensor's readings unusable.
        ExcitationError: If a direction is unobservable; it is named.

    """
    check_joints(joints, robot.joint_names)
    if not len(sensor):
        raise DataError(
            f"No readings of F/T sensor '{sensor.frame}' are recorded; is its topic published?")
    poses = measure(robot, joints, sensor)
    if len(poses) < MIN_POSES:
        raise DataError(
            f'{len(poses)} different postures at rest are recorded; the method needs at least '
            f'{MIN_POSES}. Hold each for at least a second.')
    postures = Postures(poses, np.array(robot.gravity), _noise(poses, sensor.frame))
    if mass is not None:
        # Links between sensor and load are subtracted by the URDF.
        links = body_covariance(poses[0].distal, values.arm_model_std)[0, 0]
        mass = mass[0], float(np.hypot(mass[1], np.sqrt(links)))
    count, rows = len(postures.poses), postures.regressor.reshape(-1, 10)
    # Weights of a first solution: the scatter about plain least squares.
    left = postures.measured.ravel() - rows @ np.linalg.lstsq(
        rows, postures.measured.ravel(), rcond=None)[0]
    std = np.tile(np.repeat([max(rms(left.reshape(-1, 6)[:, part].ravel()), 1e-9)
                             for _, _, part in PARTS], 3), count)
    first = solve(rows, postures.measured.ravel(), std, WRENCH_PARAMETERS, max_condition=200.0,
                  hint=_HINT)
    value, angles, estimated = first.value, np.zeros(2), values.estimate_gravity
    for _ in range(_STEPS if values.estimate_gravity else 0):
        columns = np.concatenate((postures.regressor, postures.tilt(value)), axis=2)
        rows, read = columns.reshape(-1, 12), postures.measured.ravel()
        names = (*WRENCH_PARAMETERS, *TILT)
        try:
            whole = solve(rows, read, std, names, max_condition=1e3, hint=_HINT)
        except ExcitationError:
            # As far as the postures show it.
            estimated = False
            whole = solve(np.vstack((rows, np.eye(12)[10:])), np.append(read, -angles),
                          np.append(std, [_ANY_TILT] * 2), names, max_condition=1e8)
        value, step = whole.value[:10], whole.value[10:]
        postures, angles = postures.tilted(step), angles + step
    tilt = postures.tilt(value)
    columns = np.concatenate((postures.regressor, tilt), axis=2) if estimated else (
        postures.regressor)
    carried = postures.carried(value, postures.gravity)
    lever = lever_arm(carried)
    effects = _effects(postures, carried, values, lever, whole=mass is not None)
    if not estimated:
        # Where postures do not show how a base leans of which nothing is stated, it may be anyhow.
        effects.insert(0, Effect('tilt', tilt.reshape(-1, 2), prior_std=(
            _ANY_TILT if values.estimate_gravity else values.tilt_std), estimated=False))
    rows, read = columns.reshape(6 * count, -1), postures.measured.ravel()
    # Of the mean readings.
    noise = (np.nan_to_num(postures.noise) / np.sqrt([[pose.count] for pose in poses])).ravel()
    if mass is not None:
        # One more measurement, of the mass alone.
        rows, read, noise = (
            np.vstack((rows, np.eye(1, rows.shape[1]))), np.append(read, mass[0]),
            np.append(noise, max(mass[1], 1e-6 * mass[0])))
        effects = [replace(effect, columns=np.pad(effect.columns, ((0, 1), (0, 0))),
                           rows=None if effect.rows is None else np.append(effect.rows, False))
                   for effect in effects]
    fit = fit_mixed(rows, read, noise, effects)
    # A known mass is that of one of the two loads, and nothing shows of which.
    if mass is None:
        changes = [Effect(name, columns.reshape(-1, 4))
                   for name, columns in postures.changes.items()]
        change = max(changes, key=lambda effect: fit.explained(effect.columns))
        # It may be after any posture, each of which is as likely.
        other = fit_mixed(rows, read, noise, [*effects, change])
        if other.likelihood - fit.likelihood > np.log(count - 1):
            fit, effects = other, [*effects, change]
    angles = angles + (fit.value[10:] if estimated else fit.coefficients['tilt'])
    return Estimate(postures, fit, columns, tilt, angles, {
        effect.name: effect.columns[:6 * count].reshape(count, 6, -1) for effect in effects},
        lever)


def estimate(
    robot: Robot, joints: JointSamples, sensor: WrenchSamples, values: PayloadParameters
) -> CalibrationResult:
    """Estimate mass, centre of mass and the sensor's biases from postures at rest.

    Args:
        robot: The arm without the payload.
        joints: Joint states.
        sensor: Readings of the wrist sensor.
        values: The node's parameters.

    Raises:
        DataError: If postures are too few, or the sensor's readings unusable.
        ExcitationError: If a direction is unobservable; it is named.

    """
    found = fitted(robot, joints, sensor, values)
    mass, distal = float(found.fit.value[0]), found.postures.poses[0].distal
    check_sign(mass, float(np.sqrt(found.fit.covariance[0, 0])), distal.mass, values)
    if mass < MIN_MASS:
        raise DataError(
            f'The estimated mass is {mass:.3f} kg; at least {MIN_MASS} kg are needed to '
            'distinguish it from no payload. Is a tool mounted?')
    check_payload_limit(mass, values)
    change, off = found.change
    # As part of what the sensor carries, and as what is left of it without the URDF's links.
    (_, steady), (_, carried), (parameters, covariance) = (
        _load_in_tool_frame(robot, sensor.frame, found, part) for part in (
            0.0 * off, off, off + body_covariance(distal, values.arm_model_std)[:4, :4]))
    due = np.diag(carried - 2.0 * steady)[:4] > 0.0
    said = change and ' Most of it is due to ' + _sentence(
        change, found.effects[change], found.fit.coefficients[change], found.load,
        found.postures.time) + '.'
    if values.estimate_gravity and 'tilt' in found.effects:
        parameters += tuple(Parameter(
            name, 'rad', state=State.NOT_IDENTIFIED, note='these postures do not observe the '
            'direction of gravity, which may be any') for name in TILT)
    cable = found.cable(values.cable_stiffness_std)
    residual, left_out = found.residual(cable), found.left_out(cable)
    readings = found.postures.measured - found.fit.value[4:10]
    return make_result(
        robot, joints, method='static_poses',
        parameters=(*parameters[:4],
                    *unidentified_inertia('readings at rest do not depend on inertia'),
                    *parameters[4:]),
        covariance_names=tuple(p.name for p in parameters if p.std is not None),
        covariance=covariance,
        fit=fits(readings, residual), validation=fits(readings, left_out),
        checks=(
            *accuracy_checks(robot, parameters[:4], carried[:4, :4], values,
                             said if due[0] else '', said if due[1:].any() else '', distal.mass),
            *residual_checks(found, left_out, values), *_input_checks(found, values),
            *spike_checks(found)),
        counts={**found.postures.counts, **sensor.counted()},
        settings={
            'min_poses': MIN_POSES, 'min_mass': MIN_MASS,
            **values.settings('tool', 'arm_model_std', *_SETTINGS, *ACCURACY_SETTINGS),
            'sensor_frame': sensor.frame,
            'distal_mass': float(np.mean([p.distal.mass for p in found.postures.poses])),
            'random_effects': found.fit.std},
        series=_series(residual, left_out))


def _noise(poses: Sequence[PoseMeasurement], frame: str) -> Array:
    """Return the pooled standard deviation within postures by channel, NaN if unknown, (6,)."""
    scatter = np.array([pose.scatter for pose in poses])
    known = ~np.isnan(scatter[:, 0])
    noise = np.sqrt(np.mean(scatter[known]**2, axis=0)) if known.any() else np.full(6, np.nan)
    constant = (noise <= 0.0) | (np.ptp([pose.wrench for pose in poses], axis=0) <= 0.0)
    if constant.any():
        raise DataError(
            f"Channel {CHANNELS[int(np.argmax(constant))]} of F/T sensor '{frame}' is constant; "
            'a working sensor has noise. Check its driver and cable.')
    return np.asarray(noise)


def _load_in_tool_frame(
    robot: Robot, frame: str, found: Estimate, distal: Array
) -> tuple[tuple[Parameter, ...], Array]:
    """Convert (m, m c, biases, tilts) to parameters in the tool frame with covariance.

    Args:
        robot: The arm.
        frame: Frame of the sensor.
        found: The fitted postures.
        distal: Covariance of mass and first moments that the fit does not contain, shape (4, 4).

    """
    fit, move = found.fit, moving(robot, frame)[:4, :4]
    value = fit.value.copy()
    value[:4] = move @ value[:4]
    value[1:4] /= value[0]
    value[10:] = found.angles[:len(value) - 10]
    jacobian = np.eye(len(value))
    jacobian[1:4, :4] = move[1:] / value[0]
    jacobian[1:4, 0] -= value[1:4] / value[0]
    covariance = np.array(fit.covariance)
    covariance[:4, :4] += distal
    covariance = jacobian @ covariance @ jacobian.T
    names = (*PARAMETERS, *TILT)[:len(value)]
    notes = ('',) * 4 + (f'bias of {frame}',) * 6 + tuple(
        f'rotation of gravity about ({", ".join(f"{x:.3f}" for x in axis)}) of the root frame'
        for axis in level_axes(found.postures.gravity))
    return identified(names, _UNITS[:len(value)], value, covariance,
                      [fit.freedom(row) for row in jacobian], notes[:len(value)]), covariance


def fits(before: Array, after: Array) -> tuple[Fit, ...]:
    """Return the residuals of force and torque before and after a fit, shape (n, 6) each."""
    return tuple(Fit(what, unit, rms(before[:, part].ravel()), rms(after[:, part].ravel()),
                     3 * len(after)) for what, unit, part in PARTS)


def residual_checks(found: Estimate, left_out: Array, values: PayloadParameters) -> list[Check]:
    """Check each posture against its prediction from all others.

    Args:
        found: The fitted postures.
        left_out: Readings minus predictions, shape (n, 6) [N, N·m].
        values: The node's parameters, with the limits.

    """
    load = found.load
    limits = [max(limit, values.max_residual_share * rms(load[:, part].ravel()))
              for limit, (_, _, part) in zip(
                  (values.max_force_residual, values.max_torque_residual), PARTS, strict=True)]
    origin = (' Noise within postures is unknown: there is one reading per posture and no repeat.'
              if np.isnan(found.postures.noise).any() else '')
    checks = []
    for limit, (what, unit, part) in zip(limits, PARTS, strict=True):
        size = rms(left_out[:, part].ravel())
        by_posture = np.linalg.norm(left_out[:, part], axis=1)
        worst = int(np.argmax(by_posture))
        scatter = found.fit.std[f'scatter of {what}']
        checks += [
            at_most(f'held-out {what}', size, limit, unit,
                    f'Each posture predicted from the others: {what} differs by {size:.3g} {unit} '
                    f'RMS per axis from that of a rigid load (limit {limit:.3g} {unit}); scatter '
                    f'between postures {scatter:.2g} {unit}.{origin}', 'adequate'),
            at_most(f'worst posture, {what}', by_posture[worst], MAX_WORST * limit, unit,
                    f'The {what} of posture {worst + 1} differs by {by_posture[worst]:.3g} {unit} '
                    f'from that predicted from the others (limit {MAX_WORST * limit:.3g} {unit}).',
                    'adequate')]
    if all(check.passed for check in checks):
        return checks
    cause = _most_likely_cause(found, limits)
    return [replace(check, reason=f'{check.reason} Most likely cause: {cause}.')
            if not check.passed else check for check in checks]


def _input_checks(found: Estimate, values: PayloadParameters) -> list[Check]:
    """Check the calibration of the sensor and the direction of gravity."""
    gain, limit = found.fit.std['gain of force'], _MAX_GAIN
    checks = [at_most(
        'sensor calibration', gain, limit, '1',
        f'Elements of the calibration matrix of the force are uncertain by {100 * gain:.2f} % '
        f'(stated {100 * values.sensor_gain_std:.2f} %, limit {100 * limit:.1f} %); an error '
        'common to all channels looks like mass.', 'trustworthy')]
    if not values.estimate_gravity:
        tilt = float(np.linalg.norm(found.angles))
        most = _MAX_TILT * values.tilt_std
        checks.append(Check(
            'direction of gravity', tilt <= most or not most, tilt, most, 'rad',
            f'The data show a tilt of {np.degrees(tilt):.2f}° against gravity (limit '
            f'{np.degrees(most):.2f}°). Beyond it, set estimate_gravity, or correct gravity.',
            'trustworthy'))
    return checks


def spike_checks(found: Estimate) -> list[Check]:
    """Check that few readings are spikes, which are left out; no check without any."""
    spikes = found.postures.counts['spikes']
    readings = sum(pose.readings for pose in found.postures.poses)
    return [] if not spikes else [at_most(
        'spikes', spikes / readings, _MAX_SPIKES, '1',
        f'{spikes} of {readings} readings at rest are spikes, more than {_SPIKE:.0f} '
        'standard deviations off the others of their posture, and are left out (limit '
        f'{100.0 * _MAX_SPIKES:.0f} %). Beyond it, check its cable, shielding and driver.',
        'trustworthy')]


def _series(residual: Array, left_out: Array) -> tuple[Series, ...]:
    number = np.arange(1, len(residual) + 1, dtype=float)
    return tuple(
        Series(f'{what.capitalize()} residuals by posture', 'posture', f'residual [{unit}]',
               number, {**{axis: residual[:, part][:, i] for i, axis in enumerate('xyz')},
                **{f'{axis}, held out': left_out[:, part][:, i] for i, axis in enumerate('xyz')}})
        for what, unit, part in PARTS)

# ------------------------------------------------------------------------------ causes


def _most_likely_cause(found: Estimate, limits: Sequence[float]) -> str:
    """Return the most likely physical cause of the residuals, with figures and a remedy.

    Each cause adds columns to those of the rigid load; see ``likely_cause`` for the choice.

    Args:
        found: The fitted postures.
        limits: Limits of the RMS residuals of force [N] and torque [N·m], which weight them.

    """
    residual = found.postures.measured - found.columns @ found.fit.value
    if saturated := _saturation(found.postures.wrench, residual):
        return saturated
    weight = np.repeat(1.0 / np.maximum(limits, 1e-12), 3)

    def rows(columns: Array) -> Array:
        return np.asarray((columns * weight[:, None]).reshape(residual.size, -1))

    regressor, causes = found.postures.regressor, _causes(found)
    fitted, target = rows(regressor), (residual * weight).ravel()
    likely = likely_cause(
        target - fitted @ np.linalg.lstsq(fitted, target, rcond=None)[0], fitted,
        {name: rows(columns) for name, columns in causes.items()})
    if likely is None:
        return ('none of drift, calibration, orientation, cable or contact alone: check for '
                'several of them, and for a load that is not rigid')
    columns = causes[likely[0]]
    both = np.column_stack((fitted, rows(columns)))
    scale = np.maximum(np.linalg.norm(both, axis=0), 1e-300)
    value = np.linalg.lstsq(both / scale, target, rcond=1e-9)[0] / scale
    return _sentence(likely[0], columns, value[fitted.shape[1]:],
                     found.load + regressor[:, :, :4] @ value[:4], found.postures.time)


def _causes(found: Estimate) -> dict[str, Array]:
    """Return the columns of each cause, shape (n, 6, q), by its kind and number of posture."""
    load, time = found.load, found.postures.time
    count, channels = len(load), np.broadcast_to(np.eye(6), (len(load), 6, 6))
    last = np.array([pose.posture[-1] for pose in found.postures.poses])
    return {
        'drift': channels * ((time - time.mean()) / max(
            float(np.ptp(time)), 1e-12))[:, None, None],
        'gain': channels * load[:, :, None],
        'rotation': np.stack([np.cross(axis, load.reshape(-1, 2, 3)).reshape(-1, 6)
                              for axis in np.eye(3)], axis=2),
        'tilt': found.tilt,
        'cable': channels * (last - last.mean())[:, None, None],
        **{f'posture {number}': channels * (np.arange(count) == number)[:, None, None]
           for number in range(count)},
        **found.postures.changes,
    }


def _sentence(cause: str, columns: Array, value: Array, load: Array, time: Array) -> str:
    """Return a cause in physical units and the remedy.

    Args:
        cause: Kind, and number of the posture.
        columns: Its columns, shape (n, 6, q).
        value: Coefficients of the columns.
        load: Wrench of the load fitted jointly with the cause, shape (n, 6) [N, N·m].
        time: Stamps, shape (n,) [s].

    """
    effect = columns @ value
    force, torque = (float(np.linalg.norm(part, axis=1).max())
                     for part in (effect[:, :3], effect[:, 3:]))
    size = f'{force:.2f} N and {torque:.3f} N·m'
    angle = f'{np.degrees(np.linalg.norm(value)):.1f}°'
    if cause == 'gain':
        # A common gain of all three channels of a kind is not observable.
        value = (value.reshape(2, 3) - np.median(value.reshape(2, 3), axis=1)[:, None]).ravel()
        worst = int(np.argmax(np.abs(value)))
        return (f'a calibration error of the sensor: gain of {CHANNELS[worst]} '
                f'{100.0 * value[worst]:+.1f} % against the other channels, up to {size}: '
                'check its calibration file and units, or recalibrate it')
    if cause.startswith(CHANGE):
        before = int(cause.split()[-1])
        return (f'a load that changed between postures {before} and {before + 1} by '
                f'{value[0]:+.3f} kg, which is up to {2.0 * force:.2f} N and {2.0 * torque:.3f} '
                'N·m: fasten what is loose, hold hoses, and measure again')
    if cause.startswith('posture'):
        return _posture_sentence(int(cause.split()[1]), load, effect)
    return {
        'drift': f'a drift of the sensor over time, up to {size} within '
                 f'{float(np.ptp(time)):.0f} s: let it warm up, and measure again',
        'rotation': f'a wrong orientation of the sensor in the URDF, by {angle} about axis '
                    f'({", ".join(f"{v:.2f}" for v in value / np.linalg.norm(value))}) of its '
                    'frame: correct sensor_frame in the URDF',
        'tilt': f'a base tilted by {angle}: set estimate_gravity, or the parameter gravity',
        'cable': f'a cable or hose that pulls with the angle of the last joint, up to {size}: '
                 'route it with slack, or hold it'}[cause]


def _posture_sentence(number: int, load: Array, effect: Array) -> str:
    """Return the sentence for a posture that contradicts all others.

    In a wrong posture, the load has another direction but the same weight, and its torque
    follows from its force; neither is true of a push.
    """
    force, (extra, moment) = load[number, :3], effect[number].reshape(2, 3)
    lever = np.linalg.lstsq(load[:, :3], load[:, 3:], rcond=None)[0]
    turned = float(np.linalg.norm(moment - extra @ lever)) < 0.3 * float(
        np.linalg.norm(moment) + np.linalg.norm(extra @ lever))
    size, weight = float(np.linalg.norm(extra)), float(np.linalg.norm(force))
    where = f'posture {number + 1}'
    angle = 2.0 * float(np.degrees(np.arcsin(min(1.0, 0.5 * size / weight))))
    if turned and angle > _LEAST_ANGLE and (
        abs(float(np.linalg.norm(force + extra)) - weight) < 0.2 * size
    ):
        return (f'a wrong posture: in {where} the direction of the load is off by '
                f'{angle:.1f}°; measure it again, with positions and wrench on the same clock')
    return (f'a contact or push in {where} of {size:.2f} N and '
            f'{float(np.linalg.norm(moment)):.3f} N·m: clear the space, and measure again')


def _saturation(readings: Array, residual: Array) -> str:
    """Return a sentence if a channel reads the same extreme value in several postures."""
    for name, reading, left in zip(CHANNELS, readings.T, residual.T, strict=True):
        for sign in (1.0, -1.0):
            extreme = float((sign * reading).max())
            at = sign * reading > extreme - _SAME_READING * float(np.ptp(reading))
            expected = sign * (reading - left)[at]
            if at.sum() >= _SATURATED and np.ptp(expected) > 10.0 * np.ptp(reading[at]):
                unit = 'N' if name in CHANNELS[:3] else 'N·m'
                return (f'a saturated channel: {name} reads {sign * extreme:.2f} {unit} in '
                        f'{int(at.sum())} postures; use a lighter load, or a larger range')
    return ''


# ------------------------------------------------------------------ calibration matrix

_MATRIX_UNITS = [*['1'] * 3, *['1/m'] * 3] * 3 + [*['m'] * 3, *['1'] * 3] * 3
_GAINS = ('common gain of force', 'gain of force', 'common gain of torque', 'gain of torque')
# Largest share of the variance before the measurement that an identified gain has after it.
_TOLD = 0.5


def check_weighed(values: PayloadParameters) -> None:
    """Raise a ConfigurationError without a wrist sensor or the mass of the mounted tool."""
    if values.method != 'static_poses':
        raise ConfigurationError(
            "calibrate_sensor measures with the wrist sensor in the postures of method "
            f"'static_poses'; got method '{values.method}'. Set method to 'static_poses'.")
    values.check_weighed('calibrate_sensor', ', and known_mass_std')


def estimate_calibration(
    robot: Robot, joints: JointSamples, sensor: WrenchSamples, values: PayloadParameters
) -> CalibrationResult:
    """Estimate the calibration matrix of the sensor from postures with a weighed tool.

    reading = M w + b, with the wrench w of the tool, a bias b and the calibration matrix M
    (Chavez, Traversaro, Pucci, Nori, Model Based In Situ Calibration of Six Axis Force Torque
    Sensors, Humanoids 2016). Its elements are 1 or 0 but for errors of one relative size for
    force and one for torque, which are estimated; the weighed mass sets the scale of the force.
    At rest, the torque of one tool follows from its force: elements by torque and by force are
    known as one sum for this tool, which leaves each of them uncertain, and so are those that
    resemble a shifted centre of mass. Drift, scatter and the tilt of the base are estimated with
    them.

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
    found = fitted(robot, joints, sensor, values, (values.known_mass, values.known_mass_std))
    fit, (told, variance) = found.fit, _gains(found)
    covariance = told @ fit.complete @ told.T
    parameters = tuple(
        p if float(p.std or 0.0) ** 2 < _TOLD * before else replace(
            p, state=State.NOT_IDENTIFIED, note='hardly known better than before')
        for p, before in zip(identified(
            CALIBRATION_NAMES, _MATRIX_UNITS, np.eye(6).ravel() + told @ found.value, covariance,
            [fit.freedom(row) for row in told]),
            (told**2 @ variance).tolist(), strict=True))
    modelled = (*_GAINS, *found.cable(values.cable_stiffness_std))
    left_out = found.left_out(modelled)
    force = np.arange(36).reshape(6, 6)[:3, :3].ravel()
    std, before = (float(np.sqrt(part[force].mean())) for part in (
        np.diag(covariance), told**2 @ variance))
    return make_result(
        robot, joints, kind=SENSOR_CALIBRATION, method='weighed_tool', frame=sensor.frame,
        parameters=parameters, covariance_names=CALIBRATION_NAMES, covariance=covariance,
        fit=fits(found.residual(), found.residual(modelled)),
        validation=fits(found.left_out(), left_out),
        checks=(
            at_most('gains of force', std, np.sqrt(_TOLD) * before, '1',
                    f'Gains of force are known to {100.0 * std:.2f} % (one standard deviation, '
                    f'RMS), {100.0 * before:.2f} % before. A heavier tool determines them '
                    'better, as do a better balance (known_mass_std) and a sensor right at the '
                    'tool: links between them are known to arm_model_std.', 'informative'),
            *residual_checks(found, left_out, values), *spike_checks(found)),
        counts={**found.postures.counts, **sensor.counted()},
        settings={**values.settings('known_mass', 'known_mass_std', *_SETTINGS),
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
        size = np.repeat([1.0, 1.0 / found.lever], 3) * (1.0 if what == 'force' else found.lever)
        told[rows, :, places[f'gain of {what}']] = np.einsum(
            'ra,cb->rcab', np.eye(3), np.diag(size)).reshape(3, 6, 18)
        for channel in range(6)[rows]:
            told[channel, channel, places[f'common gain of {what}']] = 1.0
    variance = np.zeros(len(fit.complete))
    for name, part in places.items():
        variance[part] = fit.std[name] ** 2
    return told.reshape(36, -1), variance

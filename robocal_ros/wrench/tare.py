# SPDX-License-Identifier: Apache-2.0
"""Biases of F/T sensors at rest, with gravity compensated; wrong signs and swapped sensors.

At rest a sensor reads its bias and the weight of everything distal to it, which the model
predicts in every orientation. An implausibly large bias has another cause: a wrong sign, another
sensor's reading, or a load that the model lacks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.estimation import autocorrelation_time
from robocal_ros.messages import SECOND, to_seconds
from robocal_ros.results import (
    CalibrationResult,
    Check,
    Fit,
    Inputs,
    Load,
    Parameter,
    RobotIdentity,
    choose,
    rms,
)
from robocal_ros.robot import ARM, SENSOR_CALIBRATION, effort_units
from robocal_ros.wrench.model import LinkBias, SensedArm, TareReference
from robocal_ros.wrench.parameters import CHANNELS, WrenchParameters

KIND = 'tare'
METHOD = 'orientation_aware'
_UNITS = ('N', 'N', 'N', 'N·m', 'N·m', 'N·m')
_FEWEST = 20
# Largest joint travel [rad], and largest mean rate of an IMU [rad/s], at rest.
_MAX_TRAVEL, _MAX_RATE = 0.002, 0.02
# A change of posture reveals a sign if it changes the weight by this many standard deviations.
_CLEAR = 10.0
# Smallest fraction of the largest bias that all sensors share if a load is missing.
_LOAD = 0.3


class Instant(NamedTuple):
    """One instant of a record, or all of them, along a first axis.

    Attributes:
        stamp: Its stamp [ns].
        posture: Joint angles, shape (n,) [rad].
        readings: Of all sensors, in their measurement frames, shape (k, 6).
        held: As for ``SensedArm.held``, shape (k, 6).
        reasons: Why the reading of each sensor is not usable, empty if it is.
        torque: Drive torques, NaN without efforts, shape (n,) [N·m]; empty if not recorded.

    """

    stamp: Any
    posture: Array
    readings: Array
    held: Array
    reasons: Any
    torque: Array = np.empty(0)


class LinkInstant(NamedTuple):
    """One instant of a link with an IMU, or all of them, along a first axis.

    Attributes:
        stamp: The stamp [ns].
        net: Its net wrench, shape (6,) [N, N·m].
        rate: Its angular velocity, shape (3,) [rad/s].
        regressor: As from ``ImuLink.regressor``, shape (6, 10).

    """

    stamp: Any
    net: Array
    rate: Array
    regressor: Array


class TareRecord:
    """Samples at rest from which a tare is estimated.

    Attributes:
        span: First and last stamp that are recorded [s].
        rows: Instants of the arm.
        links: Instants of links with IMUs, by sub-chain.

    """

    def __init__(self, span: tuple[float, float] = (-np.inf, np.inf)) -> None:
        """Start empty."""
        self.span = span
        self.rows: list[Instant] = []
        self.links: defaultdict[int, list[LinkInstant]] = defaultdict(list)

    def add(self, instant: Instant | LinkInstant, index: int | None = None) -> None:
        """Add an instant if it is within the span, of a sub-chain if its index is given."""
        rows: list[Any] = self.rows if index is None else self.links[index]
        if self.span[0] <= to_seconds(instant.stamp) <= self.span[1]:
            rows.append(instant)

    def clear(self) -> None:
        """Discard all instants."""
        self.rows.clear()
        self.links.clear()

    def drop(self, duration: float) -> None:
        """Discard the first instants, over a time [s]."""
        every: list[list[Any]] = [self.rows, *self.links.values()]
        for rows in every:
            begin = rows[0].stamp if rows else 0
            rows[:] = [row for row in rows if row.stamp - begin >= duration * SECOND]

    @property
    def complete(self) -> bool:
        """True if the first and the last instant of the span were added."""
        return bool(self.rows) and self.span == (
            to_seconds(self.rows[0].stamp), to_seconds(self.rows[-1].stamp))

    @property
    def duration(self) -> float:
        """Time between the first and the last instant [s]."""
        return _duration(self.rows)

    @property
    def link_duration(self) -> float:
        """Shortest time recorded of a link with an IMU, 0 without one [s]."""
        return min(map(_duration, self.links.values()), default=0.0)

    def stacked(self) -> Instant:
        """Return all instants."""
        return Instant(*map(np.array, zip(*self.rows, strict=True)))


def _duration(rows: Sequence[Instant | LinkInstant]) -> float:
    return (rows[-1].stamp - rows[0].stamp) / SECOND if rows else 0.0


@dataclass(frozen=True)
class Tare:
    """Biases estimated by a tare.

    Attributes:
        bias: Bias of each sensor, in its measurement frame, shape (k, 6) [N, N·m].
        reference: Posture and mean readings from which it was computed.
        std: Standard deviations of the mean readings, which a filter in the sensor correlates,
            shape (k, 6).
        scatter: Scatter of single readings, shape (k, 6).
        agreement: RMS difference of the two halves of the record, shape (k, 6).
        count: Number of instants.
        stamp: Stamp of the last one [ns].
        remarks: Sentences on what could not be checked.

    """

    bias: Array
    reference: TareReference
    std: Array
    scatter: Array
    agreement: Array
    count: int
    stamp: int
    remarks: tuple[str, ...] = ()


class Taring:
    """Estimator of biases, with the postures of earlier tares to check signs of light loads.

    Attributes:
        arm: The arm cut at its sensors.
        names: Measurement frames of the sensors, for sentences and in results.
        seen: Mean and expected readings of earlier tares, shape (k, 6) each.

    """

    def __init__(self, arm: SensedArm) -> None:
        """Start without earlier postures."""
        self.arm = arm
        self.names = [mount.frame for mount in arm.mounts]
        self.seen: list[tuple[Array, Array]] = []

    def find(self, record: TareRecord, values: WrenchParameters) -> Tare:
        """Return the biases.

        Args:
            record: Samples at rest.
            values: The parameters, with the limits.

        Raises:
            DataError: If the arm moved, readings are missing or scatter, or no plausible bias
                explains a reading; names swapped or reversed sensors.

        """
        rest = self.at_rest(record, values)
        readings, posture = rest.readings, rest.posture.mean(axis=0)
        # Expected readings without bias, in measurement frames, (k, 6).
        expected = self.arm.in_measurement(-rest.held.mean(axis=0))
        mean = readings.mean(axis=0)
        limits = np.repeat([values.tare_force_limit, values.tare_torque_limit], 3)
        self._check_identity(mean, expected, posture, limits)
        remarks = self._check_signs(mean, expected, readings.std(axis=0) + 1e-3, limits)
        half = len(readings) // 2
        return Tare(
            bias=mean - expected,
            reference=TareReference(posture, mean),
            std=readings.std(axis=0, ddof=1) / np.sqrt(independent(readings)),
            scatter=readings.std(axis=0, ddof=1),
            agreement=np.abs(readings[:half].mean(axis=0) - readings[half:].mean(axis=0)),
            count=len(readings), stamp=int(rest.stamp[-1]), remarks=remarks)

    def find_links(self, record: TareRecord, values: WrenchParameters) -> dict[int, LinkBias]:
        """Return the net wrenches of links with IMUs at rest, for arms without joint states.

        They are the sum of model error and biases, valid while both rotate with the link.
        Arguments as for ``find``.

        Raises:
            DataError: If a link rotated or its wrench scatters.

        """
        found = {}
        for index, rows in record.links.items():
            link = self.arm.chains[index].link
            _, nets, rates, regressors = map(np.array, zip(*rows, strict=True))
            rate = float(np.linalg.norm(rates.mean(axis=0)))
            if rate > _MAX_RATE:
                raise DataError(
                    f"'{link}' rotated at {rate:.3f} rad/s during the tare; expected less than "
                    f'{_MAX_RATE:g} rad/s. Hold the arm still and call again.')
            _check_scatter(nets.std(axis=0), values, f"Link '{link}'")
            found[index] = LinkBias(nets.mean(axis=0), regressors.mean(axis=0))
        return found

    # ----------------------------------------------------------------------- checks

    def at_rest(self, record: TareRecord, values: WrenchParameters) -> Instant:
        """Return the instants of a record; arguments as for ``find``.

        Raises:
            DataError: If there are too few instants, the arm moved, or readings are missing or
                scatter.

        """
        if len(record.rows) < _FEWEST:
            raise DataError(
                f'Only {len(record.rows)} complete instants were received during the tare; '
                f'expected {_FEWEST} or more. Check joint states and sensors in ~/status.')
        rest = record.stacked()
        travel = float(np.ptp(rest.posture, axis=0).max())
        if travel > _MAX_TRAVEL:
            raise DataError(
                f'A joint moved by {travel:.4f} rad during the tare; expected less than '
                f'{_MAX_TRAVEL:g} rad. Hold the arm still and call again.')
        for name, reasons in zip(self.names, rest.reasons.T, strict=True):
            if reason := next(filter(None, reasons), ''):
                raise DataError(
                    f"Sensor '{name}' had unusable readings during the tare. {reason}")
        for i, name in enumerate(self.names):
            _check_scatter(rest.readings[:, i].std(axis=0), values, f"Sensor '{name}'")
        return rest

    def _check_identity(
        self, mean: Array, expected: Array, posture: Array, limits: Array
    ) -> None:
        """Raise DataError for readings that no plausible bias explains, with the likely cause."""
        bias = mean - expected
        odd = [i for i in range(len(mean)) if _share(bias[i], limits) > 1.0]
        if not odd:
            return
        explained = {i for i in odd if _share(mean[i] + expected[i], limits) <= 1.0}
        found = [f"'{self.names[i]}' reads the opposite of the weight that it carries: change "
                 'its sign in sensor_signs' for i in sorted(explained)]
        for i in odd:
            for j in range(len(mean)):
                if explained.isdisjoint({i, j}) and max(
                        _share(mean[i] - expected[j], limits),
                        _share(mean[j] - expected[i], limits)) <= 1.0:
                    found.append(f"'{self.names[i]}' and '{self.names[j]}' read each other's "
                                 'weight: they are swapped, exchange their topics or cables')
                    explained |= {i, j}
        if explained >= set(odd):
            raise DataError(f'The tare was refused: {"; ".join(found)}. Then call tare again.')
        rest = [i for i in odd if i not in explained]
        load = self._missing_load(bias, rest, posture, limits[0])
        if load:
            raise DataError(f'The tare was refused: {load}')
        worst = max(rest, key=lambda i: _share(bias[i], limits))
        force, torque = np.abs(bias[worst, :3]).max(), np.abs(bias[worst, 3:]).max()
        also = f' Besides, {"; ".join(found)}.' if found else ''
        raise DataError(
            f"The tare was refused: sensor '{self.names[worst]}' would have a bias of "
            f'{force:.1f} N and {torque:.2f} N·m; expected at most '
            f'{limits[0]:g} N and {limits[3]:g} N·m. '
            'Is something touching the arm, is its frame as in the robot description, is the '
            f'load identified? A larger bias is allowed by tare_force_limit.{also}')

    def _missing_load(
        self, bias: Array, odd: Sequence[int], posture: Array, limit: float
    ) -> str:
        """Return a sentence if one missing weight explains all implausible biases, else ''.

        Args:
            bias: Apparent biases, shape (k, 6) [N, N·m].
            odd: The sensors concerned.
            posture: Joint angles at rest, shape (n,) [rad].
            limit: Largest bias of a force component [N].

        """
        size = float(np.linalg.norm(self.arm.robot.gravity))
        if size == 0.0:
            return ''
        down = np.array(self.arm.robot.gravity) / size
        forces = self.arm.in_links(bias)[:, :3]
        turned = np.array([self.arm.robot.transform_frame_to_root(
            posture, self.arm.chains[i].link).rotation @ forces[i] for i in odd])
        weight = float((turned @ down).mean())
        left = turned - weight * down
        if weight < _LOAD * limit or np.abs(left).max() > limit:
            return ''
        outermost = min(odd, key=lambda i: len(self.arm.all_distal[i]))
        names = ', '.join(f"'{self.names[i]}'" for i in odd)
        return (f'{names} carry about {weight / size:.1f} kg more than the model contains, '
                f"distal to '{self.names[outermost]}'. Identify the payload first, or remove it.")

    def _check_signs(
        self, mean: Array, expected: Array, noise: Array, limits: Array
    ) -> tuple[str, ...]:
        """Check signs that one posture does not reveal against earlier postures."""
        open_signs = []
        for i, name in enumerate(self.names):
            if _share(mean[i] + expected[i], limits) > 1.0:
                continue
            changes = [((mean[i] - before[i]) / noise[i], (expected[i] - weight[i]) / noise[i])
                       for before, weight in self.seen]
            clear = [pair for pair in changes if np.linalg.norm(pair[1]) >= _CLEAR]
            if any(seen @ change < 0.0 for seen, change in clear):
                raise DataError(
                    f"The tare was refused: between two postures '{name}' changed by the "
                    'opposite of the weight distal to it: change its sign in sensor_signs. Then '
                    'call tare again.')
            if not clear:
                open_signs.append(name)
        self.seen.append((mean, expected))
        if not open_signs:
            return ()
        carry = 'carries' if len(open_signs) == 1 else 'carry'
        return (f'{", ".join(open_signs)} {carry} less than a bias may be, so the sign is '
                'unchecked: tare once more in another posture to check it.',)


def independent(readings: Array) -> Array:
    """Return the number of independent readings among correlated ones, shape (...).

    Args:
        readings: Successive readings, shape (m, ...).

    """
    count = len(readings)
    deviation = readings - readings.mean(axis=0)
    # Drift through the record is part of the mean's error, so lags up to a quarter are summed.
    times = [autocorrelation_time(column)
             for column in deviation.reshape(count, -1).T]
    return np.maximum(count / np.reshape(times, readings.shape[1:]), 1.0)


def _share(bias: Array, limits: Array) -> float:
    """Return the largest ratio of a component of a bias to its limit; both shape (6,)."""
    return float((np.abs(bias) / limits).max())


def _check_scatter(scatter: Array, values: WrenchParameters, who: str) -> None:
    limits = np.repeat([values.tare_force_std, values.tare_torque_std], 3)
    excess = scatter / limits
    worst = int(np.argmax(excess))
    if excess[worst] > 1.0:
        raise DataError(
            f'{who} scatters by {scatter[worst]:.3g} {_UNITS[worst]} ({CHANNELS[worst]}) during '
            f'the tare; expected at most {limits[worst]:g} {_UNITS[worst]}. Let nothing touch '
            'or shake the arm and call again.')


def inputs_of(values: WrenchParameters, load: Load, *, torques: bool = False) -> Inputs:
    """Choose the results that a tare is built on.

    Args:
        values: The parameters.
        load: Returns the current results.
        torques: Whether it is that of the joint torques, whose unit the drive gains set.

    """
    kinds = ['payload'] if values.use_payload else []
    if torques:
        return choose(load, kinds, effort_units(values))
    kinds.append(SENSOR_CALIBRATION)
    # Drive gains change efforts, not the readings of F/T sensors.
    gains = choose(load, (), effort_units(values)).gains
    if gains is not None and gains.kind == ARM and values.use_arm_model:
        kinds.append(ARM)
    return choose(load, kinds)


def kept(values: WrenchParameters, load: Load) -> CalibrationResult | None:
    """Return the stored tare if it may be used: with the same calibration of the sensors.

    Args:
        values: The parameters.
        load: Returns the current results.

    """
    found, calibration = load(KIND) if values.keep_tare else None, load(SENSOR_CALIBRATION)
    current = '' if calibration is None else calibration.sha256
    return None if found is None or current != next(
        (item.sha256 for item in found.inputs if item.kind == SENSOR_CALIBRATION), '') else found


def to_result(
    tare: Tare, frames: Sequence[str], robot: RobotIdentity, values: WrenchParameters,
    source: str,
) -> CalibrationResult:
    """Return a tare as a result.

    Args:
        tare: The biases.
        frames: The sensors' measurement frames.
        robot: Identity of the robot.
        values: The parameters, with the limits.
        source: ``live``, or the name of the bag.

    """
    parameters = tuple(map(
        Parameter, _names(frames), _UNITS * len(frames), tare.bias.ravel().tolist(),
        tare.std.ravel().tolist()))
    fits, held_out, checks = [], [], []
    for i, frame in enumerate(frames):
        for what, unit, part, limit in (
            ('force', 'N', slice(0, 3), values.tare_force_limit),
            ('torque', 'N·m', slice(3, 6), values.tare_torque_limit),
        ):
            before = rms(tare.bias[i, part])
            fits.append(Fit(f'{what} of {frame}', unit, before, rms(tare.scatter[i, part]),
                            tare.count))
            held_out.append(Fit(f'{what} of {frame}, one half against the other', unit, before,
                                rms(tare.agreement[i, part]), tare.count // 2))
            worst = float(np.abs(tare.bias[i, part]).max())
            checks.append(Check(f'{frame}: {what} bias', worst <= limit, worst, limit, unit,
                                f'The {what} bias of {frame} is {worst:.3g} {unit}.'))
    return CalibrationResult(
        kind=KIND, method=METHOD, robot=robot, frame='', parameters=parameters,
        covariance_names=_names(frames),
        covariance=np.diag(tare.std.ravel()**2), fit=tuple(fits), validation=tuple(held_out),
        checks=tuple(checks), counts={'samples': tare.count},
        settings={'duration': values.tare_duration, 'max_force_bias': values.tare_force_limit,
                  'max_torque_bias': values.tare_torque_limit,
                  'posture': tare.reference.posture.tolist(),
                  'readings': tare.reference.readings.tolist()},
        source=source, time=to_seconds(tare.stamp), software_version=__version__)


def biases(result: CalibrationResult, frames: Sequence[str]) -> Array:
    """Return the biases of a tare result, shape (k, 6) [N, N·m].

    Args:
        result: The result.
        frames: The sensors' measurement frames.

    Raises:
        DataError: If it is not a tare, or lacks a sensor.

    """
    result.check_kind(KIND)
    return result.values(_names(frames)).reshape(-1, 6)


def _names(frames: Sequence[str]) -> tuple[str, ...]:
    return tuple(f'{frame}.{axis}' for frame in frames for axis in CHANNELS)


def reference(result: CalibrationResult, frames: Sequence[str]) -> TareReference | None:
    """Return the readings of a tare result, None if it lacks them; arguments as for ``biases``."""
    posture, readings = (result.settings.get(name) for name in ('posture', 'readings'))
    if posture is None or readings is None or np.shape(readings) != (len(frames), 6):
        return None
    return TareReference(np.array(posture, dtype=float), np.array(readings, dtype=float))

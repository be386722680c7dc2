# SPDX-License-Identifier: Apache-2.0
"""Biases of F/T sensors and zeros of joint torques, from samples at rest.

At rest a sensor reads its bias and the weight of everything distal to it, which the model
predicts in every orientation. An implausibly large bias has another cause: a wrong sign, another
sensor's reading, or a load that the model lacks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from robocal_ros import __version__
from robocal_ros.arrays import Array, covariance_factor
from robocal_ros.errors import DataError
from robocal_ros.estimation import autocorrelation_time
from robocal_ros.messages import to_seconds
from robocal_ros.results import (
    CalibrationResult,
    Check,
    Fit,
    Inputs,
    Load,
    Parameter,
    Verdict,
    choose,
    rms,
)
from robocal_ros.robot import (
    ARM,
    SENSOR_CALIBRATION,
    TORQUE_ZERO,
    effort_units,
    per_joint,
    torque_zero,
    zero_names,
)
from robocal_ros.wrench.contact import contradicts
from robocal_ros.wrench.model import (
    Instant,
    LinkInstant,
    SensedArm,
    TareRecord,
    bias_names,
    tare_of,
)
from robocal_ros.wrench.observer import NO_EFFORT, WrenchObserver
from robocal_ros.wrench.parameters import CHANNELS, TARE, WrenchParameters, sensor_std

_UNITS = ('N', 'N', 'N', 'N·m', 'N·m', 'N·m')
_FEWEST = 20
# Largest joint travel [rad], and largest mean rate of an IMU [rad/s], at rest.
_MAX_TRAVEL, _MAX_RATE = 0.002, 0.02
# A change of posture reveals a sign if it changes the weight by this many standard deviations.
_CLEAR = 10.0
# What a sensor reads of its weight, and the factors of the components in it, shape (6,).
_REVERSALS = (
    ('reads the opposite of the weight that it carries: change its sign in sensor_signs',
     -np.ones(6)),
    *((f'reads the weight that it carries as if it were turned by 180° about its {axis} axis: '
       'correct its frame in the robot description', np.tile(2.0 * along - 1.0, 2))
      for axis, along in zip('xyz', np.eye(3), strict=True)))
# Smallest fraction of the largest bias that all sensors share if a load is missing.
_LOAD = 0.3

FEWEST_POSTURES = 3
"""Postures from which a zero can be told from what is left of the others' errors."""

# Postures differ by a joint that has turned this far at least [rad].
_APART = 0.3
# Least share of the variance of every zero that the rests must remove.
_MIN_SHARE = 0.5
# Largest ratio of the torques that are left to those that model, friction and torque_std explain.
_MAX_LEFT = 2.0
# Candidate shares of torque_std that the scatter between postures shows.
_SCALES = tuple(0.5**number for number in range(7))
# Standard deviation of zeros that are known, which keeps matrices regular [N·m].
_EXACT = 1e-6


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

    def find(
        self, record: TareRecord, values: WrenchParameters, source: str = 'live'
    ) -> tuple[CalibrationResult, tuple[str, ...]]:
        """Return the biases, and sentences on what could not be checked.

        Standard deviations are those of the mean readings, which a filter in the sensor
        correlates.

        Args:
            record: Samples at rest.
            values: The parameters, with the limits.
            source: ``live``, or the name of the bag.

        Raises:
            DataError: If the arm moved, readings are missing or scatter, or no plausible bias
                explains a reading; names swapped or reversed sensors.

        """
        rest = self.at_rest(record, values)
        readings, posture, count = rest.readings, rest.posture.mean(axis=0), len(rest.readings)
        # Expected readings without bias, in measurement frames, (k, 6).
        expected = self.arm.in_measurement(-rest.held.mean(axis=0))
        mean, scatter = readings.mean(axis=0), readings.std(axis=0, ddof=1)
        limits = np.repeat([values.tare_force_limit, values.tare_torque_limit], 3)
        self._check_identity(mean, expected, posture, limits)
        remarks = self._check_signs(mean, expected, readings.std(axis=0) + 1e-3, limits)
        bias, std = mean - expected, scatter / np.sqrt(independent(readings))
        halves = np.abs(readings[:count // 2].mean(axis=0) - readings[count // 2:].mean(axis=0))
        fits, held_out, checks = [], [], []
        for i, name in enumerate(self.names):
            for what, part in (('force', slice(0, 3)), ('torque', slice(3, 6))):
                unit, limit = _UNITS[part.start], float(limits[part.start])
                before, worst = rms(bias[i, part]), float(np.abs(bias[i, part]).max())
                fits.append(Fit(f'{what} of {name}', unit, before, rms(scatter[i, part]), count))
                held_out.append(Fit(f'{what} of {name}, one half against the other', unit, before,
                                    rms(halves[i, part]), count // 2))
                checks.append(Check(f'{name}: {what} bias', worst <= limit, worst, limit, unit,
                                    f'The {what} bias of {name} is {worst:.3g} {unit}.'))
        names = bias_names(self.names)
        return CalibrationResult(
            kind=TARE, method='orientation_aware', robot=self.arm.robot.identity, frame='',
            parameters=tuple(map(Parameter, names, _UNITS * len(self.names),
                                 bias.ravel().tolist(), std.ravel().tolist())),
            covariance_names=names, covariance=np.diag(std.ravel()**2), fit=tuple(fits),
            validation=tuple(held_out), checks=tuple(checks), counts={'samples': count},
            settings={'duration': values.tare_duration, 'max_force_bias': values.tare_force_limit,
                      'max_torque_bias': values.tare_torque_limit, 'posture': posture.tolist(),
                      'readings': mean.tolist()},
            source=source, time=to_seconds(int(rest.stamp[-1])),
            software_version=__version__), remarks

    def find_links(self, record: TareRecord, values: WrenchParameters) -> dict[int, LinkInstant]:
        """Return the means of links with IMUs at rest, for arms without joint states.

        Their net wrenches are the sum of model error and biases, valid while both rotate with the
        link. Arguments as for ``find``.

        Raises:
            DataError: If a link rotated or its wrench scatters.

        """
        found = {}
        for index, rows in record.links.items():
            link = self.arm.chains[index].link
            every = LinkInstant(*map(np.array, zip(*rows, strict=True)))
            found[index] = LinkInstant(*(part.mean(axis=0) for part in every))
            rate = float(np.linalg.norm(found[index].rate))
            if rate > _MAX_RATE:
                raise DataError(
                    f"'{link}' rotated at {rate:.3f} rad/s during the tare; expected less than "
                    f'{_MAX_RATE:g} rad/s. Hold the arm still and call again.')
            _check_scatter(every.net.std(axis=0), values, f"Link '{link}'")
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
                raise DataError(f"Sensor '{name}' had unusable readings during the tare. {reason}")
        for i, name in enumerate(self.names):
            _check_scatter(rest.readings[:, i].std(axis=0), values, f"Sensor '{name}'")
        return rest

    def _check_identity(self, mean: Array, expected: Array, posture: Array, limits: Array) -> None:
        """Raise DataError for readings that no plausible bias explains, with the likely cause."""
        bias = mean - expected
        odd = [i for i in range(len(mean)) if _share(bias[i], limits) > 1.0]
        if not odd:
            return
        words = {i: ', or '.join(
            words for words, factors in _REVERSALS
            if _share(mean[i] - factors * expected[i], limits) <= 1.0) for i in odd}
        explained = {i for i in odd if words[i]}
        found = [f"'{self.names[i]}' {words[i]}" for i in sorted(explained)]
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

    def _missing_load(self, bias: Array, odd: Sequence[int], posture: Array, limit: float) -> str:
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
                words, _ = min(_REVERSALS, key=lambda item: sum(
                    float(np.sum((seen - item[1] * change)**2)) for seen, change in clear))
                raise DataError(f"The tare was refused: between two postures '{name}' {words}. "
                                'Then call tare again.')
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
    times = [autocorrelation_time(column) for column in deviation.reshape(count, -1).T]
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


def contradictions(observer: WrenchObserver, result: CalibrationResult) -> tuple[str, ...]:
    """Return sentences on sensors that a tare before contradicts by more than is stated.

    The bias of before, with what links and load may be off by between the two postures, predicts
    the readings (χ² test of all components).

    Args:
        observer: The observer with the tare of before.
        result: The new tare.

    """
    bias, reference = tare_of(result, [sensor.frame for sensor in observer.sensors])
    if observer.reference is None or reference is None:
        return ()
    still, arm, change = np.zeros_like(reference.posture), observer.arm, bias - observer.bias
    errors, _ = observer.errors.outputs((reference.posture, still, still))
    noise = arm.noise(sensor_std(observer.values, len(bias)))
    return tuple(
        f"The bias of '{mount.frame}' has changed by {np.linalg.norm(own[:3]):.1f} N and "
        f'{np.linalg.norm(own[3:]):.2f} N·m since the last tare, by more than sensor_force_std, '
        'sensor_torque_std, and the deviations of links and load explain: the sensor drifts, or '
        'its load is not the identified one (moved, exchanged, a cable). Tare again where it was '
        'tared before: if the bias returns, identify the payload again.'
        for mount, own, left, error, square in zip(
            arm.mounts, change, arm.in_links(change), errors, noise, strict=True)
        if contradicts(left, square + error @ error.T))


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
    found, calibration = load(TARE) if values.keep_tare else None, load(SENSOR_CALIBRATION)
    current = '' if calibration is None else calibration.sha256
    return None if found is None or current != next(
        (item.sha256 for item in found.inputs if item.kind == SENSOR_CALIBRATION), '') else found


class Rest(NamedTuple):
    """A rest in one posture.

    Attributes:
        posture: Joint angles, shape (n,) [rad].
        torque: Mean drive torques, shape (n,) [N·m].
        variance: Variance of these means, shape (n,) [N²·m²].
        samples: Number of instants.
        stamp: Stamp of the last one [ns].

    """

    posture: Array
    torque: Array
    variance: Array
    samples: int
    stamp: int


class _Problem(NamedTuple):
    """Linear regression: value = regressor · (zeros, model, gains, tilts) + noise.

    Attributes:
        value: Of the r rests, shape (r, n) [N·m].
        regressor: Shape (r, n, u).
        variance: Of the noise, shape (r, n) [N²·m²].
        prior: Standard deviations of the unknowns, shape (u,).

    """

    value: Array
    regressor: Array
    variance: Array
    prior: Array

    def posterior(self, apart_from: int = -1) -> tuple[Array, Array]:
        """Return mean and covariance of the unknowns, shapes (u,) and (u, u).

        Args:
            apart_from: A rest that is left out; none if negative.

        """
        used = np.arange(len(self.value)) != apart_from
        regressor = self.regressor[used].reshape(-1, len(self.prior))
        weighted = regressor.T / self.variance[used].ravel()
        covariance = scipy.linalg.inv(
            np.diag(np.maximum(self.prior, _EXACT)**-2.0) + weighted @ regressor)
        return covariance @ (weighted @ self.value[used].ravel()), covariance

    def unexplained(self, number: int) -> tuple[Array, Array]:
        """Return what others leave of a rest's torques, and its covariance, (n,) and (n, n)."""
        mean, covariance = self.posterior(number)
        regressor = self.regressor[number]
        return self.value[number] - regressor @ mean, np.asarray(
            regressor @ covariance @ regressor.T + np.diag(self.variance[number]))

    def evidence(self) -> float:
        """Return the log-density of all torques, up to a constant."""
        value, columns = self.value.ravel(), (self.regressor * self.prior).reshape(
            self.value.size, -1)
        covariance = columns @ columns.T + np.diag(self.variance.ravel())
        return -0.5 * float(np.linalg.slogdet(covariance)[1]
                            + value @ np.linalg.solve(covariance, value))


class Zeroing:
    """Estimator of torque zeros from the rests so far: the tare of the joint torques.

    At rest a joint's torque is the weight by the model, its zero, and friction that holds it.
    One posture does not tell a zero from an error of the model; several do, because weight
    changes with the posture and the zero does not. So the zeros are estimated jointly with the
    errors of the dynamic parameters, of the drive gains, and of the direction of gravity, each
    with its prior covariance: τ − τ_model = o + J ε + τ γ + G t + friction, by Bayesian linear
    regression (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section
    2.1).

    Attributes:
        rests: The rests, one by posture.

    """

    def __init__(self, observer: WrenchObserver) -> None:
        """Start without rests."""
        self.rests: list[Rest] = []
        self._observer = observer
        self._robot = observer.arm.robot

    def add(self, samples: Instant, values: WrenchParameters) -> None:
        """Add a rest; it replaces one in nearly the same posture.

        Args:
            samples: The instants at rest, as from ``Taring.at_rest``.
            values: The parameters.

        Raises:
            DataError: If there are no efforts, or no plausible zero explains the torques.

        """
        if not np.isfinite(samples.torque).all():
            raise DataError(NO_EFFORT)
        rest = Rest(samples.posture.mean(axis=0), samples.torque.mean(axis=0),
                    samples.torque.var(axis=0, ddof=1) / independent(samples.torque),
                    len(samples.torque), int(samples.stamp[-1]))
        others = [other for other in self.rests
                  if np.abs(other.posture - rest.posture).max() >= _APART]
        left, covariance = self._problems([*others, rest], values)[0].unexplained(len(others))
        if contradicts(left, covariance):
            worst = int(np.argmax(np.abs(left) / np.sqrt(np.diag(covariance))))
            raise DataError(
                f"The zeros were refused: the torque of joint '{self._robot.joint_names[worst]}' "
                f'differs by {left[worst]:.2f} N·m from what its weight'
                f'{" and the other postures" if others else ""} explain; expected a standard '
                f'deviation of {np.sqrt(covariance[worst, worst]):.2f} N·m. Let nothing touch the '
                'arm, and identify a load that it carries; a larger zero is allowed by '
                'torque_zero_std.')
        self.rests = [*others, rest]

    def _problems(self, rests: list[Rest], values: WrenchParameters) -> list[_Problem]:
        """Return what rests tell with the whole of ``torque_std``, then with shares of it.

        There are no shares for few rests, whose scatter does not show them.
        """
        observer, n = self._observer, self._robot.n
        gains = covariance_factor(observer.gain_covariance)
        prior = np.concatenate((
            per_joint(values.torque_zero_std, n, 'torque_zero_std'),
            np.ones(observer.errors.parameters.shape[1] + gains.shape[1]),
            np.full(2, values.tilt_std)))
        value, regressor, variance = map(np.array, zip(*(
            self._rows(rest, gains) for rest in rests), strict=True))
        noise = per_joint(values.torque_std, n, 'torque_std')
        return [_Problem(value, regressor, variance + (scale * noise)**2, prior)
                for scale in (_SCALES[:1] if len(rests) < FEWEST_POSTURES else _SCALES)]

    def _rows(self, rest: Rest, gains: Array) -> tuple[Array, Array, Array]:
        """Return value, regressor and variance of a rest, as in ``_Problem``."""
        observer, still = self._observer, np.zeros_like(rest.posture)
        arm, torques = observer.arm, observer.torques
        if torques is None:
            raise DataError('Joint torques are not observed; set observe_torque.')
        arm.held(rest.posture, still, still)
        model = np.array(arm.torque)
        errors = observer.errors.outputs((rest.posture, still, still))[1]
        return (rest.torque - model,
                np.hstack((np.eye(len(model)), errors, model[:, None] * gains,
                           arm.tilted(rest.posture))),
                rest.variance + torques.friction.variance(still, model))

    def result(
        self, values: WrenchParameters, before: CalibrationResult | None = None
    ) -> CalibrationResult:
        """Return the zeros by the rests so far, averaged over the shares of ``torque_std``.

        From fewer than three postures they are not evaluated.

        Args:
            values: The parameters.
            before: Earlier zeros, which tell the drift since then; None without any.

        """
        rests, robot, names = self.rests, self._robot, zero_names(self._robot)
        problems, n = self._problems(rests, values), robot.n
        evidences = [problem.evidence() for problem in problems]
        weights, problem = scipy.special.softmax(evidences), problems[int(np.argmax(evidences))]
        means, covariances = zip(*(item.posterior() for item in problems), strict=True)
        every, within = np.array(means)[:, :n], np.array(covariances)[:, :n, :n]
        offset = weights @ every
        covariance = np.tensordot(weights, within, 1) + (
            (every - offset).T * weights @ (every - offset))
        kept = np.sqrt(np.diag(covariance))
        share = 1.0 - (kept / np.maximum(problem.prior[:n], _EXACT))**2
        count = sum(rest.samples for rest in rests)
        fit = tuple(Fit(f'torque of {joint}', 'N·m', rms(own), rms(own - zero), count)
                    for joint, own, zero in zip(
                        robot.joint_names, problem.value.T, offset, strict=True))
        validation: tuple[Fit, ...] = ()
        least = int(np.argmin(share))
        checks = [Check(
            'informative rests', bool(share[least] >= _MIN_SHARE), float(share[least]),
            _MIN_SHARE, '1',
            f"The rests remove {100.0 * share[least]:.0f} % of the variance of the zero of "
            f"'{robot.joint_names[least]}', to ±{kept[least]:.3f} N·m. Rest in further postures, "
            'in which the weight on the joint differs; friction that may hold the joint '
            '(friction result, unidentified_friction) and errors of links (an identified arm) '
            'limit it, too.', 'informative')]
        if len(rests) >= FEWEST_POSTURES:
            left, spread = zip(*map(problem.unexplained, range(len(rests))), strict=True)
            ratio = np.array(left) / np.sqrt(np.array(spread).diagonal(axis1=1, axis2=2))
            validation = tuple(
                Fit(f'{item.what}, each posture from the others', 'N·m', item.before, rms(own),
                    len(rests)) for item, own in zip(fit, np.array(left).T, strict=True))
            size = np.sqrt(np.mean(np.square(ratio), axis=0))
            worst = int(np.argmax(size))
            checks.append(Check(
                'one zero in all postures', bool(size[worst] <= _MAX_LEFT), float(size[worst]),
                _MAX_LEFT, '1',
                f"The torque of '{robot.joint_names[worst]}' in each posture differs from what "
                f'the other postures predict by {size[worst]:.1f} standard deviations, RMS (limit '
                f'{_MAX_LEFT:g}).', 'adequate'))
        parameters = [*map(Parameter, names, ('N·m',) * n, offset.tolist(), kept.tolist())]
        began = to_seconds(min(rest.stamp for rest in rests))
        if before is not None and before.time < began:
            earlier = torque_zero(robot, before)
            passed = to_seconds(rests[-1].stamp) - before.time
            rate = (offset - earlier.offset) / passed
            std = np.sqrt(np.diag(covariance + earlier.covariance)) / passed
            parameters += map(Parameter, (f'{name}_drift' for name in names),
                              ('N·m/s',) * n, rate.tolist(), std.tolist())
        return CalibrationResult(
            kind=TORQUE_ZERO, method='rest', robot=robot.identity, frame='',
            parameters=tuple(parameters), covariance_names=names, covariance=covariance, fit=fit,
            validation=validation, checks=tuple(checks),
            counts={'postures': len(rests), 'samples': count},
            settings={'torque_zero_std': values.torque_zero_std, 'tilt_std': values.tilt_std,
                      'postures': [rest.posture.tolist() for rest in rests],
                      'torques': [rest.torque.tolist() for rest in rests]},
            source='live', time=to_seconds(rests[-1].stamp), software_version=__version__)


# ------------------------------------------------------------------------- procedure

# Wall time allowed per second at rest, and at least [s]: a simulation may be slow.
_PATIENCE_FACTOR = 10.0
_LEAST_PATIENCE = 5.0
# Longest wait for the first sample [s].
_FIRST = 2.0


@dataclass(frozen=True)
class TareOutcome:
    """Outcome of a tare.

    Attributes:
        message: Sentence for the user.
        result: The biases; None where only links with IMUs were tared.
        span: Stamps of the first and the last instant used [ns].

    """

    message: str
    result: CalibrationResult | None = None
    span: tuple[int, int] = (0, 0)


class TareProcedure:
    """Tare of an observer.

    Attributes:
        taring: Estimates the biases.
        zeroing: Estimates the torque zeros.

    """

    def __init__(
        self, observer: WrenchObserver,
        until_stopped: Callable[[Callable[[], bool], float], Awaitable[bool]],
        why_silent: Callable[[], str],
    ) -> None:
        """Set the attributes.

        Args:
            observer: The observer.
            until_stopped: Waits until a condition holds, at most for a time [s]; returns whether
                it does, and raises CancelledError if the procedure was cancelled.
            why_silent: Returns why no wrench is valid, empty if unknown.

        """
        self.taring = Taring(observer.arm)
        self.zeroing = Zeroing(observer)
        self._observer = observer
        self._until_stopped = until_stopped
        self._why_silent = why_silent
        self._record = TareRecord()

    def clear(self) -> int:
        """Discard samples and earlier postures, as after a change of the load.

        Returns:
            Number of instants that were recorded.

        """
        count = len(self._record.rows)
        self._record = TareRecord()
        self.taring.seen.clear()
        self.zeroing.rests.clear()
        return count

    async def run(self, values: WrenchParameters) -> TareOutcome:
        """Collect samples at rest and tare with them.

        Args:
            values: The parameters.

        Raises:
            DataError: If the arm moves, readings are missing, or no plausible bias explains them.
            CancelledError: If the procedure was cancelled.

        """
        if not self._observer.sensors:
            raise DataError('The arm has no F/T sensor to tare; for the zeros of joint torques '
                            'call ~/zero.')
        await self._collect(values)
        return self.estimate(values)

    async def zero(
        self, values: WrenchParameters, before: CalibrationResult | None
    ) -> TareOutcome:
        """Collect samples at rest, and find torque zeros with those of earlier postures.

        Args:
            values: The parameters.
            before: Zeros in use, which tell the drift since then; None without any.

        Raises:
            DataError: If the arm moves, efforts are missing, or no plausible zeros explain them.
            CancelledError: If the procedure was cancelled.

        """
        observer = self._observer
        touched = [name for name, judge in zip(
            self.taring.names, observer.judges, strict=True) if judge.in_contact]
        if observer.tared and touched:
            raise DataError(f'Something touches the arm distal to {", ".join(touched)}. Let '
                            'nothing touch it and call again.')
        await self._collect(values)
        self.zeroing.add(self.taring.at_rest(self._record, values), values)
        result = self.zeroing.result(values, before)
        count = len(self.zeroing.rests)
        if result.verdict is not Verdict.PASS:
            reasons = '' if count < FEWEST_POSTURES else f'{" ".join(result.reasons)} '
            return TareOutcome(
                f'{count} postures so far, of {FEWEST_POSTURES} or more; the zeros are not used '
                f'yet. {reasons}Move the arm so that the weight on its joints differs, and call '
                'again.', result)
        observer.use_torque_zero(result)
        largest = abs(result.values(result.covariance_names)).max()
        return TareOutcome(
            f'Zeros of the joint torques from {count} postures, up to {largest:.3f} N·m, with '
            f'standard deviations up to {max(p.std or 0.0 for p in result.parameters):.3f} N·m.',
            result)

    async def _collect(self, values: WrenchParameters) -> None:
        """Collect samples at rest; errors as for ``run``."""
        observer, duration = self._observer, values.tare_duration
        record = self._record = observer.recorder = TareRecord()
        try:
            if await self._until_stopped(
                    lambda: bool(record.rows or record.link_duration), _FIRST):
                await self._until_stopped(
                    lambda: (record.duration if record.rows else record.link_duration)
                    >= duration,
                    max(_LEAST_PATIENCE, _PATIENCE_FACTOR * duration))
        finally:
            observer.recorder = None
        if not record.rows and record.link_duration < duration:
            why = observer.joint_chains.problem or self._why_silent()
            raise DataError(
                f'{why or "No joint states were received during the tare."} Nothing was tared.')

    def estimate(self, values: WrenchParameters) -> TareOutcome:
        """Tare with the samples collected last, and compensate the biases from now on.

        Args:
            values: The parameters.

        Raises:
            DataError: If there are none, or as for ``run``.

        """
        record, observer = self._record, self._observer
        if record.rows:
            result, remarks = self.taring.find(record, values)
            remarks += contradictions(observer, result)
            observer.use_tare(result)
            size = abs(observer.bias)
            message = ' '.join((
                f'{len(size)} sensors tared over {values.tare_duration:g} s with gravity '
                f'compensated; biases up to {size[:, :3].max():.2f} N and '
                f'{size[:, 3:].max():.3f} N·m.', *remarks))
            return TareOutcome(message, result, (record.rows[0].stamp, record.rows[-1].stamp))
        if record.link_duration == 0.0:
            raise DataError('No samples at rest are recorded; call run with the arm at rest.')
        # There are no joint states to predict weights.
        found = self.taring.find_links(record, values)
        observer.use_link_biases(found)
        names = ', '.join(observer.arm.chains[index].link for index in found)
        return TareOutcome(
            f'Without joint states only links with IMUs were tared, each as a whole: {names}. '
            'The tare is valid while their weight and biases rotate with them.')

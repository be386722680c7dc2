# SPDX-License-Identifier: Apache-2.0
"""Torque zeros from rests in several postures: the tare of the joint torques.

At rest a joint's torque is the weight by the model, its zero, and friction that holds it. One
posture does not tell a zero from an error of the model; several do, because weight changes with
the posture and the zero does not. So the zeros are estimated jointly with the errors of the
dynamic parameters and of the drive gains, each with its prior covariance:
τ − τ_model = o + J ε + τ γ + friction, by Bayesian linear regression (Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006, section 2.1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from robocal_ros import __version__
from robocal_ros.arrays import Array, covariance_factor
from robocal_ros.errors import DataError
from robocal_ros.messages import to_seconds
from robocal_ros.results import CalibrationResult, Check, Fit, Parameter, RobotIdentity, rms
from robocal_ros.robot import TORQUE_ZERO, TorqueZero, per_joint, torque_zero, zero_names
from robocal_ros.wrench.model_errors import RISK
from robocal_ros.wrench.observer import NO_EFFORT, WrenchObserver
from robocal_ros.wrench.parameters import WrenchParameters
from robocal_ros.wrench.tare import TareRecord, independent

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
    """Linear regression of all unknowns: value = regressor · (zeros, model, gains) + noise.

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
    """Estimator of torque zeros from the rests so far.

    Attributes:
        rests: The rests, one by posture.

    """

    def __init__(self, observer: WrenchObserver) -> None:
        """Start without rests."""
        self.rests: list[Rest] = []
        self._observer = observer

    def add(self, record: TareRecord, values: WrenchParameters) -> None:
        """Add a rest; it replaces one in nearly the same posture.

        Args:
            record: Samples at rest, checked by ``Taring.at_rest``.
            values: The parameters.

        Raises:
            DataError: If there are no efforts, or no plausible zero explains the torques.

        """
        samples = record.stacked()
        if not np.isfinite(samples.torque).all():
            raise DataError(NO_EFFORT)
        rest = Rest(samples.posture.mean(axis=0), samples.torque.mean(axis=0),
                    samples.torque.var(axis=0, ddof=1) / independent(samples.torque),
                    len(samples.torque), int(samples.stamp[-1]))
        others = [other for other in self.rests
                  if np.abs(other.posture - rest.posture).max() >= _APART]
        self._refuse_contact(others, rest, values)
        self.rests = [*others, rest]

    def _problems(self, rests: list[Rest], values: WrenchParameters) -> list[_Problem]:
        """Return what rests tell with the whole of ``torque_std``, then with shares of it.

        There are no shares for few rests, whose scatter does not show them.
        """
        observer, names = self._observer, self._observer.arm.robot.joint_names
        gains = covariance_factor(observer.gain_covariance)
        prior = np.concatenate((
            per_joint(values.torque_zero_std, len(names), 'torque_zero_std'),
            np.ones(observer.errors.parameters.shape[1] + gains.shape[1])))
        value, regressor, variance = map(np.array, zip(*(
            self._rows(rest, gains) for rest in rests), strict=True))
        noise = per_joint(values.torque_std, len(names), 'torque_std')
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
        errors = arm.regressors(rest.posture, still, still)[1] @ observer.errors.parameters
        return (rest.torque - model,
                np.hstack((np.eye(len(model)), errors, model[:, None] * gains)),
                rest.variance + torques.friction.variance(still, model))

    def _refuse_contact(
        self, others: list[Rest], rest: Rest, values: WrenchParameters
    ) -> None:
        left, covariance = self._problems([*others, rest], values)[0].unexplained(len(others))
        if left @ np.linalg.solve(covariance, left) <= scipy.special.chdtri(len(left), RISK):
            return
        worst = int(np.argmax(np.abs(left) / np.sqrt(np.diag(covariance))))
        name = self._observer.arm.robot.joint_names[worst]
        raise DataError(
            f"The zeros were refused: the torque of joint '{name}' differs by {left[worst]:.2f} "
            f'N·m from what its weight{" and the other postures" if others else ""} explain; '
            f'expected a standard deviation of {np.sqrt(covariance[worst, worst]):.2f} N·m. Let '
            'nothing touch the arm, and identify a load that it carries; a larger zero is '
            'allowed by torque_zero_std.')

    def find(self, values: WrenchParameters) -> TorqueZero:
        """Return the zeros by the rests so far, averaged over the shares of ``torque_std``."""
        problems, n = self._problems(self.rests, values), len(self.rests[0].posture)
        weights = scipy.special.softmax([problem.evidence() for problem in problems])
        means, covariances = zip(*(problem.posterior() for problem in problems), strict=True)
        every, within = np.array(means)[:, :n], np.array(covariances)[:, :n, :n]
        mean = weights @ every
        spread = (every - mean).T * weights @ (every - mean)
        return TorqueZero(mean, np.tensordot(weights, within, 1) + spread)

    def result(
        self, zero: TorqueZero, robot: RobotIdentity, values: WrenchParameters,
        before: CalibrationResult | None = None,
    ) -> CalibrationResult:
        """Return the zeros as a result; from fewer than three postures it is not evaluated.

        Args:
            zero: The zeros.
            robot: Identity of the robot.
            values: The parameters.
            before: Earlier zeros, which tell the drift since then; None without any.

        """
        rests, names = self.rests, zero_names(self._observer.arm.robot)
        problem = max(self._problems(rests, values), key=_Problem.evidence)
        kept = np.sqrt(np.diag(zero.covariance))
        share = 1.0 - (kept / np.maximum(problem.prior[:len(kept)], _EXACT))**2
        count = sum(rest.samples for rest in rests)
        fit = tuple(Fit(f'torque of {joint}', 'N·m', rms(own), rms(own - offset), count)
                    for joint, own, offset in zip(
                        robot.joint_names, problem.value.T, zero.offset, strict=True))
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
        parameters = [*map(
            Parameter, names, ('N·m',) * len(names), zero.offset.tolist(), kept.tolist())]
        began = to_seconds(min(rest.stamp for rest in rests))
        if before is not None and before.time < began:
            earlier = torque_zero(self._observer.arm.robot, before)
            passed = to_seconds(rests[-1].stamp) - before.time
            rate = (zero.offset - earlier.offset) / passed
            std = np.sqrt(np.diag(zero.covariance + earlier.covariance)) / passed
            parameters += map(Parameter, (f'{name}_drift' for name in names),
                              ('N·m/s',) * len(names), rate.tolist(), std.tolist())
        return CalibrationResult(
            kind=TORQUE_ZERO, method='rest', robot=robot, frame='', parameters=tuple(parameters),
            covariance_names=names, covariance=zero.covariance, fit=fit, validation=validation,
            checks=tuple(checks), counts={'postures': len(rests), 'samples': count},
            settings={'torque_zero_std': values.torque_zero_std,
                      'postures': [rest.posture.tolist() for rest in rests],
                      'torques': [rest.torque.tolist() for rest in rests]},
            source='live', time=to_seconds(rests[-1].stamp), software_version=__version__)

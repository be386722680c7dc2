# SPDX-License-Identifier: Apache-2.0
"""Errors of wrenches and joint torques that errors of the arm's model cause.

Wrenches and torques are linear in the dynamic parameters of the bodies. The errors of these
parameters are linear in p independent unknowns of unit variance: of each body by itself, of all
bodies together, since a robot description may be too light or too heavy as a whole, and of the
load. So the error of each output is a matrix of shape (..., p), and the product of two such
matrices is the covariance of these outputs.

A tare freezes the error of its posture in the biases. Afterwards the difference counts. It
includes what the distal sensors of a sub-chain have frozen, turned by the joints in between.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from robocal_ros.arrays import Array, covariance_factor
from robocal_ros.robot import (
    ArmModel,
    link_covariance,
    moved_parameters,
    physically_consistent,
)
from robocal_ros.wrench.model import SensedArm, TareReference

Motion = tuple[Array, Array, Array]
"""Joint angles [rad], velocities [rad/s] and accelerations [rad/s²], shape (n,) each; of a link
with an IMU specific force [m/s²], angular velocity [rad/s] and angular acceleration [rad/s²] as it
measures them, shape (3,) each."""

RISK = 1e-4
"""Probability that model errors and noise within their covariances begin a contact."""

EVERY = 50_000_000
"""Interval between the instants that are kept for comparison [ns]."""

# Time for which they are kept, and their least age when another one is compared with them [ns].
_KEPT, _LEAST_AGE = 2_000_000_000, 100_000_000
# Time for which a covariance is used for the next instants too [ns].
_FRESH = 10_000_000


class ModelErrors:
    """Errors of an arm's wrenches and torques, by the unknowns.

    Attributes:
        parameters: Errors of the dynamic parameters of the b bodies of the cut model, in the
            order of its joints, shape (10 b, p).

    """

    def __init__(self, arm: SensedArm, std: float) -> None:
        """Start with the arm by its robot description, without load and tare.

        Args:
            arm: The arm cut at its sensors.
            std: Standard deviation of the masses, as a share of them.

        """
        self._arm, self._std = arm, std
        self._reference: TareReference | None = None
        self._load = np.zeros((10 * arm.bodies, 0))
        self._weighed = True
        self._links_at_rest: Mapping[int, Array] = {}
        self.use_links(None)

    def use_links(self, identified: ArmModel | None) -> None:
        """Use the covariance of the links of an identified arm, or of the robot description."""
        arm, std = self._arm, self._std
        described = arm.described_parameters()
        own = scipy.linalg.block_diag(*(
            np.linalg.cholesky(link_covariance(body, std)) if mass > 0.0 < std
            else np.zeros((10, 10)) for mass, body in zip(
                described[:, 0].tolist(), physically_consistent(described), strict=True)))
        shared = std * described.reshape(-1, 1)
        if identified is not None:
            # Known is the whole of a link, not each of the parts into which sensors cut it.
            n = arm.robot.n
            factor = covariance_factor(identified.covariance[:10 * n, :10 * n])
            shared = np.zeros((len(own), factor.shape[1]))
            for index, (whole, *parts) in enumerate(arm.cut_links()):
                own[rows_of(whole)] = 0.0
                shared[rows_of(whole)] = factor[10 * index:10 * index + 10]
                for part in parts:
                    own[rows_of(whole)] -= arm.moved_parameters(part, whole) @ own[rows_of(part)]
        self._links = np.column_stack((own, shared))
        self._gather()

    def carry(self, frame: str, deviations: Array, *, weighed: bool) -> None:
        """Replace the errors of the load.

        Args:
            frame: Frame of the load, as for ``SensedArm.carry``.
            deviations: Errors of its dynamic parameters in that frame, shape (10, r).
            weighed: Whether the load was on the arm at the tare.

        """
        body, placement = self._arm.carrier(frame)
        self._load = np.zeros((10 * self._arm.bodies, deviations.shape[1]))
        self._load[rows_of(body)] = moved_parameters(placement) @ deviations
        self._weighed = weighed
        self._gather()

    def tare(self, reference: TareReference | None, links: Mapping[int, Array]) -> None:
        """Freeze the errors of a tare.

        Args:
            reference: Its posture; None without one, or if it is not known.
            links: Regressors of the links with IMUs that were tared as a whole, by sub-chain, as
                from ``ImuLink.regressor``.

        """
        self._reference, self._links_at_rest, self._weighed = reference, links, True
        self._gather()

    def _gather(self) -> None:
        """Combine the unknowns, and compute what the tare froze."""
        self.parameters = np.column_stack((self._links, self._load))
        self._then = self.parameters.copy()
        if not self._weighed:
            self._then[:, self._links.shape[1]:] = 0.0
        self._at_rest = np.zeros((len(self._arm.mounts), 6, len(self._then)))
        if self._reference is not None:
            rest = np.zeros_like(self._reference.posture)
            self._at_rest, _ = self._arm.regressors(self._reference.posture, rest, rest)
        self._frozen = np.asarray(self._at_rest @ self._then)
        self._torque_std: tuple[int, Array] = -_FRESH, np.zeros(0)

    def outputs(self, motion: Motion) -> tuple[Array, Array]:
        """Return the errors of held wrenches since the tare, and of joint torques.

        Returns:
            Shapes (k, 6, p) [N, N·m] and (n, p) [N·m].

        """
        held, torques = self._arm.regressors(*motion)
        return held @ self.parameters - self._frozen, torques @ self.parameters

    def torque_std(self, stamp: int, motion: Motion) -> Array:
        """Return the standard deviations of joint torques at a stamp [ns], shape (n,) [N·m].

        It may be one computed just before.
        """
        if not 0 <= stamp - self._torque_std[0] < _FRESH:
            torques = self._arm.regressors(*motion)[1] @ self.parameters
            self._torque_std = stamp, np.linalg.norm(torques, axis=1)
        return self._torque_std[1]

    def link(self, index: int, motion: Motion) -> Array:
        """Return the errors of the wrench on a sub-chain, in its frame, shape (6, p)."""
        arm = self._arm
        held, _ = arm.regressors(*motion)
        now, frozen = held[index], self._frozen[index]
        for outer in arm.chains[index].distal:
            lever = arm.transform(index, outer, aside=True)
            now, frozen = now - lever @ held[outer], frozen - lever @ self._frozen[outer]
        return np.asarray(now @ self.parameters - frozen)

    def rigid(self, index: int, regressor: Array) -> Array:
        """Return the errors of the wrench on a link with an IMU, in its frame, shape (6, p).

        Args:
            index: The sub-chain.
            regressor: As from ``ImuLink.regressor``, shape (6, 10).

        """
        (joint,) = self._arm.chains[index].bodies
        rows = rows_of(joint - 1)
        then = self._links_at_rest.get(index, self._at_rest[index][:, rows])
        return np.asarray(regressor @ self.parameters[rows] - then @ self._then[rows])


def rows_of(body: int) -> slice:
    """Return the rows of a body's dynamic parameters."""
    return slice(10 * body, 10 * body + 10)


class _Free(NamedTuple):
    """An instant with sub-chains that nothing touches.

    Attributes:
        stamp: Its stamp [ns].
        motion: Its motion.
        forces: Forces on the sub-chains, shape (k, 3) [N].
        quiet: By sub-chain, whether nothing touches it.

    """

    stamp: int
    motion: Motion
    forces: Array
    quiet: Sequence[bool]


class _Prediction(NamedTuple):
    """Prediction of the force that model errors cause, from an earlier instant.

    Attributes:
        instant: The earlier instant.
        errors: Errors of the force then, shape (3, p).
        weight: Inverse of the covariance of the force then, shape (3, 3).

    """

    instant: _Free
    errors: Array
    weight: Array


class _Explained(NamedTuple):
    """Forces on a sub-chain that model errors and noise explain.

    Attributes:
        stamp: Instant for which it was computed [ns].
        prediction: Prediction from an earlier instant; None for none.
        mean: Mean, shape (3,) [N].
        weight: Inverse of the covariance, divided by the limit of the test, shape (3, 3).
        enough: Size of forces that are not explained, whatever their direction [N].

    """

    stamp: int
    prediction: _Prediction | None
    mean: Array
    weight: Array
    enough: float


class ForceTest:
    """χ² test of forces on sub-chains against what model errors and noise explain.

    The error of the model that was there a moment ago is still there. So the error is predicted
    from the force at an earlier instant without contact in a similar posture, if there is one:
    the conditional distribution of jointly normal errors (Rasmussen and Williams, Gaussian
    Processes for Machine Learning, 2006, appendix A.2).
    """

    def __init__(
        self, errors: Callable[[int, Motion], Array], variances: Sequence[float],
        threshold: float, near: float,
    ) -> None:
        """Start without earlier instants.

        Args:
            errors: Returns the errors of the force on a sub-chain, shape (3, p) [N].
            variances: Of a force component on each sub-chain by its sensors [N²].
            threshold: Force below which nothing touches a sub-chain [N].
            near: Largest difference of any element of the first part of a motion in similar
                postures.

        """
        self._errors, self._variances = errors, variances
        self._threshold, self._near = threshold, near
        self._limit = float(scipy.special.chdtri(3, RISK))
        self.clear()

    def clear(self) -> None:
        """Discard earlier instants, as after a change of the biases."""
        self._free: deque[_Free] = deque()
        # Stamp from which the next instant is kept [ns].
        self._due = 0
        self._explained: dict[int, _Explained] = {}

    def note(
        self, stamp: int, motion: Motion, wrenches: Array, reasons: Sequence[str],
        touched: Container[int],
    ) -> None:
        """Keep the first instant of each interval.

        Args:
            stamp: Its stamp [ns].
            motion: Its motion.
            wrenches: On the sub-chains, shape (k, 6) [N, N·m].
            reasons: By sub-chain, why its wrench is invalid; empty if it is valid.
            touched: The sub-chains with a contact.

        """
        if stamp < self._due:
            return
        self._due = stamp - stamp % EVERY + EVERY
        forces = wrenches[:, :3].copy()
        quiet = (np.linalg.norm(forces, axis=1) < self._threshold).tolist()
        self._free.append(_Free(stamp, motion, forces, [
            calm and not reason and index not in touched
            for index, (calm, reason) in enumerate(zip(quiet, reasons, strict=True))]))
        while self._free[0].stamp < stamp - _KEPT:
            self._free.popleft()

    def size(
        self, stamp: int, motion: Motion, index: int, wrench: Array, force: float, begun: bool
    ) -> float:
        """Return the size of a force compared with the largest one that is explained.

        Args:
            stamp: The instant [ns].
            motion: Its motion.
            index: The sub-chain.
            wrench: On it, in its frame, shape (6,) or its force alone [N, N·m].
            force: Size of the force [N].
            begun: Whether a contact has begun, and with it the instant to compare with is fixed.

        Returns:
            Above 1 if the force is not explained; infinite if it is so by far.

        """
        known = self._explained.get(index)
        if known is None or not 0 <= stamp - known.stamp < _FRESH:
            known = self._explained[index] = self._explain(
                index, stamp, motion, known.prediction if known is not None else None, begun)
        if force > known.enough:
            return math.inf
        residual = wrench[:3] - known.mean
        return math.sqrt(residual.dot(known.weight).dot(residual))

    def _explain(
        self, index: int, stamp: int, motion: Motion, prediction: _Prediction | None, begun: bool
    ) -> _Explained:
        noise = self._variances[index] * np.eye(3)
        if not begun:
            # The oldest instant in a similar posture.
            instant = next((
                free for free in self._free if free.quiet[index]
                and _LEAST_AGE <= stamp - free.stamp <= _KEPT
                and np.abs(free.motion[0] - motion[0]).max() < self._near), None)
            if instant is None:
                prediction = None
            elif prediction is None or prediction.instant is not instant:
                errors = self._errors(index, instant.motion)
                prediction = _Prediction(
                    instant, errors, np.asarray(np.linalg.inv(errors @ errors.T + noise)))
        errors = self._errors(index, motion)
        mean, covariance = np.zeros(3), errors @ errors.T + noise
        if prediction is not None:
            shared = errors @ prediction.errors.T
            gain = shared @ prediction.weight
            mean = gain @ prediction.instant.forces[index]
            covariance = covariance - gain @ shared.T
        return _Explained(
            stamp, prediction, mean, np.asarray(np.linalg.inv(covariance) / self._limit),
            float(np.linalg.norm(mean)) + math.sqrt(self._limit * np.trace(covariance)))

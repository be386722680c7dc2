# SPDX-License-Identifier: Apache-2.0
"""Recursive update of an identified friction law while the arm works.

A Kalman filter on block means of joint states estimates by what share the friction of each joint
has changed, and its dependence on temperature. Nuisance parameters are the mass and first moment
of each link and of the load, the tilt of the base, the inertia of each rotor, the delay of each
effort, and a torque a + b sinθ + c cosθ of each joint, which stands for offsets and for slow
ripple. But for the delay, none of them changes sign with the direction of motion, so that only
torques that do so count as friction; both directions are expected to change by the same share.

The change is an Ornstein-Uhlenbeck process about the identified law, pauses included: the longer
ago the last samples, the wider the interval. The noise of each joint, with faster ripple, is the
mean square of what the blocks leave. The load changes at blocks with improbable innovations if the
load of the last link explains most of them; others are left out, and widen the noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array
from robocal_ros.results import Z95, CalibrationResult, Parameter, State
from robocal_ros.robot import (
    DIRECTIONS,
    ROTOR_SPREAD,
    TEMPERATURE_STD,
    Robot,
    SteadyFriction,
    expected_rotors,
    gravity_changes,
)

# Duration of a block [s], and longest gap in the joint states [s].
_BLOCK, _GAP = 0.1, 0.25
# Least speed [rad/s], and travel since a reversal or rest [rad], for the steady law: gears build
# up friction over up to a few hundredths of a radian.
_MOVING, _SETTLED = 0.05, 0.05
# Travel over which ripple repeats itself [rad]: slower blocks count as parts of one.
_GRAIN = 0.05
# Significance level of an improbable innovation, and number in a row that may mean a changed load.
_SURPRISE, _SURPRISES = 1e-5, 4
# Noise of a block as a share of Coulomb friction before anything is known, the number of blocks
# that this counts for, and the number of the newest blocks that the noise is learned from.
_NOISE, _PRIOR_BLOCKS, _MEMORY = 0.1, 10.0, 300.0
# Prior standard deviations: torques over the angle, as a share of Coulomb friction; delay of the
# efforts, by filters too [s]; load [kg], [kg·m].
_UNEVEN, _DELAY, _LOAD = 0.1, 0.01, (0.05, 0.01)
# Standard deviations of an unexpected change of the load [kg], [kg·m].
_LOAD_CHANGE = (10.0, 3.0)
# Time over which the standard deviation ``track_drift`` holds [s], and the standard deviation
# after a long time, as a multiple of it.
_DRIFT_TIME, _LARGEST = 600.0, 2.0


@dataclass(frozen=True)
class FrictionChange:
    """Change of a joint's friction in one direction since its identification.

    Attributes:
        scale: Factor of friction.
        std: Its standard deviation.

    """

    scale: float
    std: float

    def __str__(self) -> str:
        """Return it in percent, with its 95 % interval."""
        return f'{100.0 * (self.scale - 1.0):+.1f} ± {100.0 * Z95 * self.std:.1f} %'


class FrictionTracker:
    """Tracker of the friction of all identified joints.

    Attributes:
        load_changes: Number of detected changes of the load.

    """

    def __init__(
        self, robot: Robot, laws: Mapping[str, SteadyFriction], *, drift: float,
        model_std: float, tilt_std: float = 0.0, since: float = np.nan,
        temperature: float = np.nan,
    ) -> None:
        """Start from the identified laws.

        Args:
            robot: The arm with its payload.
            laws: Identified friction by joint name.
            drift: Standard deviation of the relative change of friction within 10 min.
            model_std: Relative standard deviation of the model's torques.
            tilt_std: Standard deviation of the tilt of the base about each horizontal axis [rad].
            since: Stamp of the identification [s]; NaN if unknown.
            temperature: Temperature of the identification [°C]; NaN if unknown.

        """
        robot.check_untied('Tracking of friction')
        self._robot = robot.copy()
        self._laws = {robot.index(name): law for name, law in laws.items()}
        self._joints = list(self._laws)
        self._drift, self._model_std, self._identified = drift, model_std, temperature
        count, n = len(self._joints), robot.n
        level = np.array([np.abs(law.coulomb).max() for law in self._laws.values()])
        speeds = [np.clip(0.2, *law.speeds) * np.array((1.0, -1.0)) for law in self._laws.values()]
        # Share to which the laws are known, forward and backward.
        self._known = np.array([
            np.abs(law.deviation(speed) / law.torque(speed))
            for law, speed in zip(self._laws.values(), speeds, strict=True)]).reshape(-1, 2)
        # Changes, temperature coefficients, rotors, torques over the angle, delays, links, tilts.
        self._load = slice(7 * count + 4 * n - 4, 7 * count + 4 * n)
        variance = np.concatenate((
            (self._known**2).mean(axis=1), np.full(count, TEMPERATURE_STD**2),
            (ROTOR_SPREAD * expected_rotors(robot)[self._joints]) ** 2,
            np.repeat((_UNEVEN * level) ** 2, 3), np.full(count, _DELAY**2),
            *map(self._body_variance, range(1, n + 1)),
            np.full(len(gravity_changes(robot)), tilt_std**2)))
        self._value, self._covariance = np.zeros(len(variance)), np.diag(variance)
        self._noise = np.maximum((_NOISE * level) ** 2, 1e-6)
        self._learned = np.full(count, _PRIOR_BLOCKS)
        self._block: list[tuple[float, Array, Array]] = []
        self._means: list[tuple[float, Array, Array, Array]] = []
        self._time, self._position = since, np.full(n, np.nan)
        self._travel = np.zeros(count)
        self._surprises: list[tuple[Array, Array, Array]] = []
        self.load_changes = 0
        self.use(robot)

    def _body_variance(self, body: int) -> Array:
        """Return prior variances of a link's mass and first moment, shape (4,)."""
        inertia = self._robot.model.inertias[body]
        extent = inertia.lever @ inertia.lever + 0.5 * np.trace(inertia.inertia) / max(
            inertia.mass, 1e-9)
        std = self._model_std * inertia.mass * np.append(1.0, np.full(3, np.sqrt(extent / 3.0)))
        return np.asarray(std if body < self._robot.n else np.maximum(
            std, np.repeat(_LOAD, (1, 3)))) ** 2

    def use(self, robot: Robot) -> None:
        """Replace the arm with its payload; the load may have changed."""
        self._robot, self._tilted = robot.copy(), gravity_changes(robot)
        self._value[self._load] = 0.0
        self._covariance[self._load, :] = 0.0
        self._covariance[:, self._load] = 0.0
        self._covariance[self._load, self._load] = np.diag(self._body_variance(robot.n))

    def add(
        self, stamp: float, position: Array, effort: Array, temperature: float = np.nan
    ) -> bool:
        """Add a joint state.

        Args:
            stamp: Its stamp [s].
            position: Joint angles, shape (n,) [rad].
            effort: Drive torques, shape (n,) [N·m].
            temperature: Newest temperature [°C]; NaN if unknown.

        Returns:
            Whether a block was used.

        """
        if self._block and not 0.0 < stamp - self._block[-1][0] < _GAP:
            self._block.clear()
            self._means.clear()
            self._travel[:] = 0.0
        self._block.append((stamp, position.copy(), effort.copy()))
        if stamp - self._block[0][0] < _BLOCK or len(self._block) < 3:
            return False
        times, positions, efforts = (np.array(part) for part in zip(*self._block, strict=True))
        self._block = self._block[-1:]
        centred = times - times.mean()
        velocity = centred @ positions / (centred @ centred)
        self._means.append((float(times.mean()), positions.mean(axis=0), velocity,
                            efforts.mean(axis=0)))
        if len(self._means) < 5:
            return False
        time, angle, speed, torque = map(np.array, zip(*self._means, strict=True))
        del self._means[0]
        acceleration = (speed[2:] - speed[:-2]) / (time[2:] - time[:-2])[:, None]
        before, rigid, after = (
            self._robot.inverse_dynamics(*state).copy()
            for state in zip(angle[1:4], speed[1:4], acceleration, strict=True))
        rates = [(last - first) / (time[3] - time[1]) for first, last in (
            (before, after), (acceleration[0], acceleration[2]))]
        return self._update(time[2], angle[2], speed[2], acceleration[1], torque[2], temperature,
                            rigid, rates)

    def _predict(self, stamp: float) -> None:
        """Let friction change until a block."""
        passed, changes = stamp - self._time, slice(len(self._joints))
        self._time = stamp
        # Any time may have passed if the clock was set back, or the identification has no stamp.
        left = np.exp(-passed / (2.0 * _LARGEST**2 * _DRIFT_TIME)) if passed >= 0.0 else 0.0
        self._value[changes] *= left
        self._covariance[changes, :] *= left
        self._covariance[:, changes] *= left
        self._covariance[changes, changes] += np.eye(len(self._joints)) * (
            (_LARGEST * self._drift) ** 2 * (1.0 - left**2))

    def _update(
        self, stamp: float, q: Array, v: Array, a: Array, effort: Array, temperature: float,
        rigid: Array, rates: Sequence[Array],
    ) -> bool:
        """Update the states by a block, unless its innovation is improbable; learn the noise.

        Joints that are not in steady motion take no part. Further arguments are the model's
        torques, shape (n,) [N·m], and the rates of these and of the accelerations.

        Returns:
            Whether the block was used.

        """
        robot, joints, count = self._robot, self._joints, len(self._joints)
        self._predict(stamp)
        way, self._position = np.nan_to_num(q - self._position)[joints], q
        self._travel = np.where(
            (np.abs(v[joints]) > _MOVING) & (v[joints] * self._travel >= 0.0),
            self._travel + way, 0.0)
        rows = np.flatnonzero(np.abs(self._travel) > _SETTLED)
        if not len(rows):
            return False
        gravity = robot.gravity_torque(q)
        bodies = pin.computeJointTorqueRegressor(robot.model, robot.data, q, v, a).reshape(
            robot.n, robot.n, 10)[:, :, :4].reshape(robot.n, -1)
        shared = np.column_stack((bodies, *(arm.gravity_torque(q) for arm in self._tilted)))
        columns, residual = np.zeros((len(rows), len(self._value))), np.zeros(len(rows))
        warmer = np.nan_to_num(temperature - self._identified)
        for at, row in enumerate(rows.tolist()):
            joint = joints[row]
            friction = float(self._laws[joint].torque(v[joint], rigid[joint]))
            columns[at, [row, count + row, 2 * count + row]] = (
                friction, friction * warmer, a[joint])
            columns[at, 3 * (count + row):3 * (count + row + 1)] = (
                1.0, np.sin(q[joint]), np.cos(q[joint]))
            # Of the rotor, as it is known by now.
            columns[at, 6 * count + row] = -(
                rates[0][joint] + self._value[2 * count + row] * rates[1][joint])
            columns[at, 7 * count:] = shared[joint]
            residual[at] = effort[joint] - rigid[joint] - friction
        unmodelled = (self._model_std * (rigid - gravity)[joints][rows]) ** 2
        # Ripple repeats itself within so many blocks.
        repeats = np.maximum(1.0, _GRAIN / np.abs(way[rows]))
        innovation = residual - columns @ self._value
        noise = np.diag(self._noise[rows] * repeats + unmodelled)
        size = columns @ self._covariance @ columns.T + noise
        used = not self._improbable(innovation, size, columns[:, self._load])
        if used:
            # The covariance may have grown with a changed load.
            part = columns @ self._covariance
            gain = np.linalg.solve(part @ columns.T + noise, part).T
            self._value = self._value + gain @ innovation
            self._covariance = self._covariance - gain @ part
            self._covariance = 0.5 * (self._covariance + self._covariance.T)
            square = (residual - columns @ self._value) ** 2 - unmodelled + np.einsum(
                'ij,jk,ik->i', columns, self._covariance, columns)
        else:
            square = np.minimum(innovation**2, 9.0 * size.diagonal())
        self._learned[rows] = np.minimum(self._learned[rows] + 1.0, _MEMORY)
        self._noise[rows] += (np.maximum(square, 1e-8) - self._noise[rows]) / self._learned[rows]
        return used

    def _improbable(self, innovation: Array, size: Array, load: Array) -> bool:
        """Return whether a block is left out; release the load if its change explains several.

        Args:
            innovation: Shape (m,) [N·m].
            size: Its covariance, shape (m, m).
            load: Its derivative by mass and first moment of the load, shape (m, 4).

        """
        if innovation @ np.linalg.solve(size, innovation) <= scipy.special.chdtri(
                len(innovation), _SURPRISE):
            self._surprises.clear()
            return False
        self._surprises.append((innovation, size, load))
        if len(self._surprises) < _SURPRISES:
            return True
        released = np.diag(np.repeat(_LOAD_CHANGE, (1, 3)) ** 2)
        information, shared, total = np.linalg.inv(released), np.zeros(4), 0.0
        for innovation, size, load in self._surprises:
            weighted = np.linalg.solve(size, load)
            information += load.T @ weighted
            shared += weighted.T @ innovation
            total += float(innovation @ np.linalg.solve(size, innovation))
        self._surprises.clear()
        if shared @ np.linalg.solve(information, shared) < 0.5 * total:
            return True
        self.load_changes += 1
        self._covariance[self._load, self._load] += released
        return False

    def changes(self, temperature: float = np.nan) -> dict[str, tuple[FrictionChange, ...]]:
        """Return the change of each joint's friction, forward and backward, by joint name.

        A change within its 95 % interval is none: the identified law is the better estimate, and
        the interval holds the difference.

        Args:
            temperature: Temperature of the friction [°C]; NaN for that of the identification.

        """
        warmer, count = np.nan_to_num(temperature - self._identified), len(self._joints)
        found = {}
        for row, joint in enumerate(self._joints):
            share = np.zeros(len(self._value))
            share[[row, count + row]] = 1.0, warmer
            change = float(share @ self._value)
            std = float(np.sqrt(np.maximum(share @ self._covariance @ share, 0.0)))
            if abs(change) < Z95 * std:
                change, std = 0.0, float(np.hypot(change, std))
            found[self._robot.joint_names[joint]] = tuple(
                FrictionChange(1.0 + change, float(np.hypot(std, known)))
                for known in self._known[row])
        return found


def tracked_result(
    result: CalibrationResult, changes: Mapping[str, tuple[FrictionChange, ...]], stamp: float
) -> CalibrationResult:
    """Return a friction result with its torques scaled, and the changes in its settings.

    Args:
        result: The identified friction.
        changes: Change of each joint, forward and backward.
        stamp: Stamp of the newest joint state [s].

    """
    def updated(parameter: Parameter) -> Parameter:
        joint, _, name = parameter.name.rpartition('.')
        if (parameter.state is not State.IDENTIFIED or joint not in changes
                or not name.startswith(('coulomb', 'static', 'viscous', 'load_factor'))):
            return parameter
        change = changes[joint][DIRECTIONS.index(name.rpartition('_')[2])]
        # The interval of the scale contains that of the identification.
        return replace(parameter, value=change.scale * (parameter.value or 0.0),
                       std=max(abs(parameter.value or 0.0) * change.std, parameter.std or 0.0))

    parameters = tuple(updated(parameter) for parameter in result.parameters)
    old, new = ({p.name: p.std or 0.0 for p in source}
                for source in (result.parameters, parameters))
    factor = np.array([new[name] / old[name] if old.get(name) else 1.0
                       for name in result.covariance_names])
    return replace(
        result, parameters=parameters, covariance=result.covariance * np.outer(factor, factor),
        time=stamp, settings={**result.settings, 'tracked': {
            joint: {name: [change.scale, change.std]
                    for name, change in zip(DIRECTIONS, sides, strict=True)}
            for joint, sides in changes.items()}})

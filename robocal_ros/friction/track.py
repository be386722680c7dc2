# SPDX-License-Identifier: Apache-2.0
"""Recursive update of an identified friction law while the arm works.

A Kalman filter on block means of joint states estimates a scale of each law per direction, its
dependence on temperature, and nuisance parameters: mass and first moment of an unknown change of
the load, and one torque offset per joint. Torques that follow gravity determine the nuisance
parameters, torques that change sign with the direction of motion the scales. The scales are random
walks; the load changes only at blocks with an improbable innovation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array
from robocal_ros.results import Z95, CalibrationResult, Parameter, State
from robocal_ros.robot import DIRECTIONS, Robot, SteadyFriction

# Duration of a block [s], and longest gap in the joint states [s].
_BLOCK, _GAP = 0.1, 0.25
# Least speed [rad/s] and number of blocks since a reversal or rest for the steady law.
_MOVING, _SETTLED = 0.05, 2
# Significance level of an improbable innovation, and number in a row that mean a changed load.
_SURPRISE, _SURPRISES = 1e-5, 4
# Prior standard deviations: temperature coefficient [1/K]; change of the load [kg], [kg·m].
_PER_KELVIN, _LOAD = 0.02, (0.05, 0.01)
# Standard deviations of an unexpected change of the load [kg], [kg·m].
_LOAD_CHANGE = (10.0, 3.0)
# Time over which the standard deviation ``track_drift`` holds [s].
_DRIFT_TIME = 600.0


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
        blocks: Number of blocks used.

    """

    def __init__(
        self, robot: Robot, laws: Mapping[str, SteadyFriction], *, drift: float,
        model_std: float, temperature: float = np.nan,
    ) -> None:
        """Start from the identified laws.

        Args:
            robot: The arm with its payload.
            laws: Identified friction by joint name.
            drift: Standard deviation of the relative change of friction within 10 min.
            model_std: Relative standard deviation of the model's torques.
            temperature: Temperature of the identification [°C]; NaN if unknown.

        """
        robot.check_untied('Tracking of friction')
        self._robot = robot.copy()
        self._laws = {robot.index(name): law for name, law in laws.items()}
        self._joints = list(self._laws)
        self._drift, self._model_std, self._identified = drift, model_std, temperature
        count = len(self._joints)
        # Scales forward and backward, temperature coefficients, offsets, load.
        self._offsets = slice(3 * count, 4 * count)
        self._load = slice(4 * count, 4 * count + 4)
        self._value = np.zeros(4 * count + 4)
        variance = np.zeros(4 * count + 4)
        self._noise = np.zeros(count)
        for row, law in enumerate(self._laws.values()):
            speed = float(np.clip(0.2, *law.speeds))
            for side, sign in enumerate((1.0, -1.0)):
                variance[2 * row + side] = float(
                    (law.deviation(sign * speed) / law.torque(sign * speed)) ** 2)
            self._noise[row] = max(law.std, 0.02 * float(np.abs(law.coulomb).max()), 1e-3) ** 2
        variance[2 * count:3 * count] = _PER_KELVIN**2
        variance[self._load] = np.repeat(_LOAD, (1, 3)) ** 2
        self._covariance = np.diag(variance)
        self._block: list[tuple[float, Array, Array]] = []
        self._means: list[tuple[float, Array, Array, Array]] = []
        self._steady = np.zeros(count, dtype=int)
        self._gravity: Array | None = None
        self._surprises = 0
        self.load_changes = 0
        self.blocks = 0

    def use(self, robot: Robot) -> None:
        """Replace the arm with its payload; the load may have changed."""
        self._robot = robot.copy()
        self._value[self._load] = 0.0
        self._covariance[self._load, :] = 0.0
        self._covariance[:, self._load] = 0.0
        self._covariance[self._load, self._load] = np.diag(np.repeat(_LOAD, (1, 3)) ** 2)

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
            self._steady[:] = 0
        self._block.append((stamp, position.copy(), effort.copy()))
        if stamp - self._block[0][0] < _BLOCK or len(self._block) < 3:
            return False
        times, positions, efforts = (np.array(part) for part in zip(*self._block, strict=True))
        self._block = self._block[-1:]
        centred = times - times.mean()
        velocity = centred @ positions / (centred @ centred)
        self._means.append((float(times.mean()), positions.mean(axis=0), velocity,
                            efforts.mean(axis=0)))
        if len(self._means) < 3:
            return False
        before, now, after = self._means[-3:]
        del self._means[:-2]
        acceleration = (after[2] - before[2]) / (after[0] - before[0])
        return self._update(now[1], now[2], acceleration, now[3], now[0] - before[0], temperature)

    def _update(
        self, q: Array, v: Array, a: Array, effort: Array, duration: float, temperature: float
    ) -> bool:
        """Predict the states over a block; update them by the joints in steady motion."""
        robot, joints = self._robot, self._joints
        count = len(joints)
        gravity = robot.gravity_torque(q)
        rigid = robot.inverse_dynamics(q, v, a)
        if self._gravity is not None:
            # An error proportional to gravity changes with gravity; the steps over the whole
            # range of gravity add up to the error.
            change = np.abs(gravity - self._gravity)
            size = np.maximum(np.maximum(np.abs(gravity), np.abs(self._gravity)), change)
            self._covariance[self._offsets, self._offsets] += np.diag(
                (self._model_std**2 * change * size)[joints])
        elif self._model_std:
            self._covariance[self._offsets, self._offsets] += np.diag(
                ((self._model_std * np.abs(gravity))[joints] + 0.01) ** 2)
        self._gravity = gravity
        walk = self._drift**2 * duration / _DRIFT_TIME
        self._covariance[range(2 * count), range(2 * count)] += walk
        sign = np.sign(v[joints])
        moving = np.abs(v[joints]) > _MOVING
        self._steady = np.where(moving & (sign * self._steady >= 0), self._steady + sign, 0
                                ).astype(int)
        rows = np.flatnonzero(np.abs(self._steady) > _SETTLED)
        if not len(rows):
            return False
        load = pin.computeJointTorqueRegressor(robot.model, robot.data, q, v, a)[:, -10:-6]
        columns, residual, noise = [], [], []
        for row in rows.tolist():
            joint = joints[row]
            friction = float(self._laws[joint].torque(v[joint], rigid[joint]))
            column = np.zeros(len(self._value))
            column[2 * row + (v[joint] < 0.0)] = friction
            warmer = temperature - self._identified
            column[2 * count + row] = friction * warmer if np.isfinite(warmer) else 0.0
            column[3 * count + row] = 1.0
            column[self._load] = load[joint]
            columns.append(column)
            residual.append(effort[joint] - rigid[joint] - friction)
            noise.append(self._noise[row] + (
                self._model_std * (rigid[joint] - gravity[joint])) ** 2)
        return self._corrected(np.array(columns), np.array(residual), np.diag(noise))

    def _corrected(self, columns: Array, residual: Array, noise: Array) -> bool:
        """Update by one block, unless its innovation is improbable."""
        innovation = residual - columns @ self._value
        size = columns @ self._covariance @ columns.T + noise
        surprise = float(innovation @ np.linalg.solve(size, innovation))
        if surprise > scipy.special.chdtri(len(residual), _SURPRISE):
            self._surprises += 1
            if self._surprises < _SURPRISES:
                return False
            self.load_changes += 1
            self._covariance[self._load, self._load] += np.diag(
                np.repeat(_LOAD_CHANGE, (1, 3)) ** 2)
            size = columns @ self._covariance @ columns.T + noise
        self._surprises = 0
        gain = np.linalg.solve(size, columns @ self._covariance).T
        self._value = self._value + gain @ innovation
        left = np.eye(len(self._value)) - gain @ columns
        # Joseph form, which stays positive definite.
        self._covariance = left @ self._covariance @ left.T + gain @ noise @ gain.T
        self.blocks += 1
        return True

    def changes(self, temperature: float = np.nan) -> dict[str, tuple[FrictionChange, ...]]:
        """Return the change of each joint's friction, forward and backward, by joint name.

        Args:
            temperature: Temperature of the friction [°C]; NaN for that of the identification.

        """
        warmer, count = temperature - self._identified, len(self._joints)
        found = {}
        for row, joint in enumerate(self._joints):
            sides = []
            for side in range(2):
                share = np.zeros(len(self._value))
                share[2 * row + side] = 1.0
                share[2 * count + row] = warmer if np.isfinite(warmer) else 0.0
                sides.append(FrictionChange(
                    1.0 + float(share @ self._value),
                    float(np.sqrt(np.maximum(share @ self._covariance @ share, 0.0)))))
            found[self._robot.joint_names[joint]] = tuple(sides)
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

# SPDX-License-Identifier: Apache-2.0
"""Drive gains: how much of its effort each joint really delivers, from one payload of known mass.

Many drivers publish motor current times a nominal constant, which is easily 15 % off. With the
arm's model and a known mass, the effort of an exciting motion tells one scale per joint:
effort_j = e_j (arm_j + payload_j) + losses_j, the payload's centre and inertia estimated along.
It is bilinear in scales and payload and solved by Gauss-Newton steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt

from robocal_ros import __version__
from robocal_ros.core.arrays import Array
from robocal_ros.core.least_squares import LinearFit, autocorrelation_time, solve
from robocal_ros.core.payload.dynamic import (
    LOSSES,
    DynamicSettings,
    TorqueColumns,
    torque_columns,
)
from robocal_ros.core.result import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    RobotIdentity,
    State,
    rms,
)
from robocal_ros.core.robot import Robot
from robocal_ros.core.samples import JointSamples
from robocal_ros.errors import ConfigurationError, ConvergenceError, DataError

KIND = 'drive_gains'
_SHARED = 9
_STEPS = 30
_CONVERGED = 1e-7
_HELD_OUT_SHARE = 0.25


@dataclass(frozen=True)
class GainSettings:
    """Settings of the calibration.

    Attributes:
        known_mass: Mass of the payload [kg].
        known_mass_std: Its standard deviation [kg].
        max_std: Largest standard deviation of a scale that counts as identified.
        plausible: Range of scales that a drive can have.
        max_held_out_ratio: Largest ratio of held-out to fitted residuals.
        dynamic: How the record is read.

    """

    known_mass: float
    known_mass_std: float = 0.0
    max_std: float = 0.02
    plausible: tuple[float, float] = (0.3, 3.0)
    max_held_out_ratio: float = 1.5
    dynamic: DynamicSettings = field(default_factory=DynamicSettings)

    def check(self) -> None:
        """Refuse a mass that is none; raises ConfigurationError."""
        if not (np.isfinite(self.known_mass) and self.known_mass > 0.0):
            raise ConfigurationError(
                f'calibrate_gains needs the mass of the mounted tool: set known_mass (kg, from '
                f'a scale); got {self.known_mass}.')


def effort_scales(result: CalibrationResult) -> dict[str, float]:
    """Return the identified scales of a drive-gain result by joint name.

    Raises:
        DataError: If the result is of another kind.

    """
    if result.kind != KIND:
        raise DataError(f"Expected a result of kind '{KIND}', got '{result.kind}'.")
    return {p.name.removesuffix('.effort_scale'): p.value for p in result.parameters
            if p.name.endswith('.effort_scale') and p.value is not None}


def estimate(robot: Robot, samples: JointSamples, settings: GainSettings) -> CalibrationResult:
    """Estimate one effort scale per joint.

    Args:
        robot: The arm without the payload.
        samples: Joint states of an exciting motion with the payload, efforts unscaled.
        settings: Settings of the calibration.

    Raises:
        ConfigurationError: If the mass is none.
        DataError: If the record is no excitation.
        ExcitationError: If a joint's scale stays blind.
        ConvergenceError: If the steps do not settle.

    """
    settings.check()
    columns = torque_columns(robot, samples, settings.dynamic, {})
    fit = _fit(robot, columns, settings.known_mass)
    n, mean_time = robot.n, _memory(columns, fit)
    covariance = fit.covariance[:n, :n] * fit.reduced_chi_square * mean_time
    if settings.known_mass_std > 0.0:
        step = 1e-3 * settings.known_mass
        moved = _fit(robot, columns, settings.known_mass + step).value[:n]
        slope = (moved - fit.value[:n]) / step
        covariance = covariance + np.outer(slope, slope) * settings.known_mass_std**2
    scale, std = fit.value[:n], np.sqrt(np.diag(covariance))
    residual = _by_joint(columns, fit.residual)
    held_out = _held_out(robot, columns, settings.known_mass)
    known = std <= settings.max_std
    rows = np.flatnonzero(known)
    return CalibrationResult(
        kind=KIND,
        method='known_mass',
        robot=RobotIdentity(robot.name, robot.urdf_hash, robot.joint_names),
        frame='',
        parameters=tuple(
            Parameter(f'{name}.effort_scale', '1', float(scale[i]), float(std[i]))
            if known[i] else
            Parameter(f'{name}.effort_scale', '1', state=State.NOT_IDENTIFIED,
                      note=f'standard deviation {100 * std[i]:.1f} % (limit '
                           f'{100 * settings.max_std:.1f} %)')
            for i, name in enumerate(robot.joint_names)),
        covariance_names=tuple(f'{robot.joint_names[i]}.effort_scale' for i in rows),
        covariance=covariance[np.ix_(rows, rows)],
        fit=_fits(robot, columns, residual),
        validation=() if held_out is None else _fits(robot, columns, held_out),
        checks=_checks(robot, settings, scale, known, columns, residual, held_out),
        counts={'samples': len(samples), **asdict(samples.counts)},
        settings={'known_mass': settings.known_mass, 'known_mass_std': settings.known_mass_std,
                  'band': settings.dynamic.band, 'tool_frame': robot.tool_frame,
                  'gravity': [float(g) for g in robot.gravity]},
        source=samples.source,
        time=float(samples.time[-1]),
        software_version=__version__,
    )


def _system(
    columns: TorqueColumns, mass: float, scale: Array, shared: Array
) -> tuple[Array, Array]:
    """Linearise about scales and payload.

    Returns:
        Regressor of (scales, shared payload parameters, losses of each joint), and what the
        current scales and payload explain; rows that count only.

    """
    n, count = columns.effort.shape
    extra = columns.losses.shape[2]
    regressor = np.zeros((n, count, n + _SHARED + n * extra))
    explained = np.empty((n, count))
    for joint in range(n):
        body = mass * columns.payload[joint, :, 0] + columns.payload[joint, :, 1:] @ shared
        torque = columns.arm[joint] + body
        regressor[joint, :, joint] = torque
        regressor[joint, :, n:n + _SHARED] = scale[joint] * columns.payload[joint, :, 1:]
        at = n + _SHARED + joint * extra
        regressor[joint, :, at:at + extra] = columns.losses[joint]
        # Written about the current payload: e (τ + Y dp) with unknowns e and p itself.
        explained[joint] = scale[joint] * (columns.payload[joint, :, 1:] @ shared)
    return regressor[columns.valid], explained[columns.valid]


def _fit(robot: Robot, columns: TorqueColumns, mass: float) -> LinearFit:
    n = robot.n
    names = [f'effort scale of {name}' for name in robot.joint_names]
    names += ['moment_x', 'moment_y', 'moment_z', 'I_xx', 'I_xy', 'I_yy', 'I_xz', 'I_yz', 'I_zz']
    names += [f'{loss} of {name}' for name in robot.joint_names for loss in LOSSES]
    joint_of_row = np.nonzero(columns.valid)[0]
    measured = columns.effort[columns.valid]
    scale, shared = np.ones(n), np.zeros(_SHARED)
    noise = np.ones(n)
    for _ in range(_STEPS):
        regressor, explained = _system(columns, mass, scale, shared)
        fit = solve(
            regressor, measured + explained, noise[joint_of_row], names, max_condition=1e6,
            hint='Excite the arm more: faster, farther, with all joints turned.')
        change = float(np.abs(fit.value[:n] - scale).max())
        scale, shared = fit.value[:n], fit.value[n:n + _SHARED]
        noise = np.array([max(rms(fit.residual[joint_of_row == j]), 1e-9) for j in range(n)])
        if change < _CONVERGED:
            return fit
    raise ConvergenceError(
        f'The effort scales did not settle in {_STEPS} steps (last change {change:.2g}); excite '
        'the arm more, or check known_mass.')


def _by_joint(columns: TorqueColumns, values: Array) -> Array:
    spread = np.zeros(columns.effort.shape)
    spread[columns.valid] = values
    return spread


def _memory(columns: TorqueColumns, fit: LinearFit) -> float:
    residual = _by_joint(columns, fit.residual)
    return float(np.mean([autocorrelation_time(row[valid]) for row, valid
                          in zip(residual, columns.valid, strict=True)]))


def _part(columns: TorqueColumns, rows: slice) -> TorqueColumns:
    return TorqueColumns(columns.effort[:, rows], columns.arm[:, rows], columns.payload[:, rows],
                         columns.losses[:, rows], columns.valid[:, rows])


def _held_out(robot: Robot, columns: TorqueColumns, mass: float) -> Array | None:
    """Fit the first part and predict the last; zeros where nothing was predicted."""
    count = columns.effort.shape[1]
    border = int((1.0 - _HELD_OUT_SHARE) * count)
    try:
        fit = _fit(robot, _part(columns, slice(0, border)), mass)
    except (DataError, ConvergenceError):
        return None
    n = robot.n
    last = _part(columns, slice(border, count))
    regressor, explained = _system(last, mass, fit.value[:n], fit.value[n:n + _SHARED])
    left = np.full(columns.effort.shape, np.nan)
    left[:, border:] = _by_joint(
        last, last.effort[last.valid] + explained - regressor @ fit.value)
    return left


def _fits(robot: Robot, columns: TorqueColumns, residual: Array) -> tuple[Fit, ...]:
    fits = []
    for joint, name in enumerate(robot.joint_names):
        rows = columns.valid[joint] & np.isfinite(residual[joint])
        fits.append(Fit(f'torque of {name}', 'N·m', rms(columns.effort[joint, rows]),
                        rms(residual[joint, rows]), int(rows.sum())))
    return tuple(fits)


def _checks(
    robot: Robot, settings: GainSettings, scale: Array, known: npt.NDArray[np.bool_],
    columns: TorqueColumns, residual: Array, held_out: Array | None,
) -> tuple[Check, ...]:
    low, high = settings.plausible
    far = np.where(known, np.maximum(scale / high, low / np.maximum(scale, 1e-9)), 0.0)
    worst = int(np.argmax(far))
    checks = [
        Check('scales identified', bool(known.any()), float(known.sum()), 1.0, '1',
              f'{int(known.sum())} of {robot.n} effort scales are identified.'),
        Check('plausible scales', bool(far[worst] <= 1.0), float(scale[worst]), high, '1',
              f"The scale farthest from 1 is that of '{robot.joint_names[worst]}', "
              f'{scale[worst]:.3f} (plausible: {low} … {high}).'),
    ]
    if held_out is not None:
        ratios = [after.after / max(before.after, 1e-12) for after, before in zip(
            _fits(robot, columns, held_out), _fits(robot, columns, residual), strict=True)]
        joint = int(np.argmax(ratios))
        limit = settings.max_held_out_ratio
        checks.append(Check(
            'held-out part of the motion', ratios[joint] <= limit, ratios[joint], limit, '1',
            f'The last part of the motion is predicted with residuals up to {ratios[joint]:.2f} '
            f"times those of the fit, at '{robot.joint_names[joint]}' (limit {limit:.1f})."))
    return tuple(checks)

# SPDX-License-Identifier: Apache-2.0
"""Drive gains: how much of its effort each joint really delivers, from one payload of known mass.

Many drivers publish motor current times a nominal constant, which is easily 15 % off. With the
arm's model and a known mass, the effort of an exciting motion tells one scale per joint:
effort_j = e_j (arm_j + payload_j) + losses_j, with the payload's centre and inertia, and what is
doubted of angles and delays, estimated along. It is bilinear in scales and payload and solved by
Gauss-Newton steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, ConvergenceError, DataError, ExcitationError
from robocal_ros.estimation.least_squares import solve
from robocal_ros.messages.samples import JointSamples
from robocal_ros.payload.excitation import HELD_OUT_SHARE
from robocal_ros.payload.model import BODY
from robocal_ros.payload.nuisance import Doubts
from robocal_ros.payload.regression import (
    LOSSES,
    DynamicSettings,
    Mask,
    TorqueColumns,
    condensed,
    scatter,
    torque_columns,
)
from robocal_ros.results.result import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    RobotIdentity,
    State,
    rms,
)
from robocal_ros.robot.effort_scales import KIND
from robocal_ros.robot.model import Robot

_SHARED = 9
_STEPS = 30
_CONVERGED = 1e-7
_MAX_CONDITION = 1e6


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
    n, mass = robot.n, settings.known_mass
    fit = _fit(robot, columns, mass)
    covariance = fit.covariance[:n, :n]
    if settings.known_mass_std > 0.0:
        step = 1e-3 * mass
        moved = _fit(robot, columns, mass + step, fit.doubts)
        slope = (moved.value[:n] - fit.value[:n]) / step
        covariance = covariance + np.outer(slope, slope) * settings.known_mass_std**2
    scale, std = fit.value[:n], np.sqrt(np.diag(covariance))
    fitted = _fits(robot, columns, fit.used, fit.residual)
    held_out = _held_out(robot, columns, mass, fit)
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
        fit=fitted,
        validation=held_out,
        checks=_checks(robot, settings, scale, known, fitted, held_out),
        counts={'samples': len(samples), **asdict(samples.counts)},
        settings={'known_mass': mass, 'known_mass_std': settings.known_mass_std,
                  **{name: getattr(settings.dynamic, name)
                     for name in ('band', 'posture_std', 'sag_std', 'delay_std')},
                  'tool_frame': robot.tool_frame,
                  'gravity': [float(g) for g in robot.gravity]},
        source=samples.source,
        time=float(samples.time[-1]),
        software_version=__version__,
    )


@dataclass(frozen=True)
class _GainFit:
    """A solved problem.

    Attributes:
        value: Scales, shared payload parameters, losses joint by joint, what was doubted.
        covariance: Of all of them.
        residual: Measured minus fitted, of all rows, shape (n, k) [N·m].
        used: Rows that count, shape (n, k).
        doubts: The shared columns that were used.

    """

    value: Array
    covariance: Array
    residual: Array
    used: Mask
    doubts: Doubts


def _system(
    columns: TorqueColumns, mass: float, value: Array, doubts: Doubts
) -> tuple[Array, Array]:
    """Linearise about an estimate.

    Returns:
        Regressor of scales, shared payload parameters, losses of each joint and what is
        doubted, shape (n, k, p), and what the current scales and payload explain twice, shape
        (n, k).

    """
    n, count = columns.effort.shape
    extra = columns.losses.shape[2]
    border = n + _SHARED + n * extra
    scale, shared = value[:n], value[n:n + _SHARED]
    doubted = value[border:] if len(value) > border else np.zeros(len(doubts.names))
    regressor = np.zeros((n, count, border + len(doubts.names)))
    variable = columns.payload[:, :, 1:] @ shared + doubts.columns @ doubted
    regressor[:, :, n:n + _SHARED] = scale[:, None, None] * columns.payload[:, :, 1:]
    regressor[:, :, border:] = scale[:, None, None] * doubts.columns
    for joint in range(n):
        regressor[joint, :, joint] = (
            columns.arm[joint] + mass * columns.payload[joint, :, 0] + variable[joint])
        at = n + _SHARED + joint * extra
        regressor[joint, :, at:at + extra] = columns.losses[joint]
    # Written about the current payload: e (τ + Y dp) with unknowns e and p itself.
    return regressor, scale[:, None] * variable


def _names(robot: Robot, doubts: Doubts) -> list[str]:
    return [*(f'effort scale of {name}' for name in robot.joint_names), *BODY[1:],
            *(f'{loss} of {name}' for name in robot.joint_names for loss in LOSSES),
            *doubts.names]


def _fit(
    robot: Robot, columns: TorqueColumns, mass: float, doubts: Doubts | None = None
) -> _GainFit:
    """Solve; what is doubted is worked out about the payload as it is found, unless given."""
    nothing = Doubts.none(*columns.effort.shape)
    start = np.concatenate((np.ones(robot.n), np.zeros(_SHARED)))
    found = _settled(robot, columns, mass, start, doubts or nothing)
    if doubts is not None:
        return found
    n = robot.n
    losses = found.value[n + _SHARED:].reshape(n, len(LOSSES)) / found.value[:n, None]
    body = np.concatenate(([mass], found.value[n:n + _SHARED]))
    return _settled(robot, columns, mass, found.value, columns.doubts(body, losses))


def _settled(
    robot: Robot, columns: TorqueColumns, mass: float, value: Array, doubts: Doubts
) -> _GainFit:
    noise = np.where(columns.valid, 1.0, np.inf)
    few: tuple[TorqueColumns, Doubts] | None = None
    used = np.isfinite(noise)
    for _ in range(_STEPS):
        if few is None or (np.isfinite(noise) != used).any():
            used = np.isfinite(noise)
            few = _condensed(columns, doubts, used)
        part, shared = few
        regressor, explained = _system(part, mass, value, shared)
        own = regressor.shape[2] - len(doubts.names)
        # Where rows of a joint count, they count alike.
        std = np.where(part.valid, noise.min(axis=1)[:, None], np.inf)
        fit = solve(
            np.vstack((regressor[part.valid], doubts.prior_rows(own))),
            np.concatenate(((part.effort + explained)[part.valid], np.zeros(len(doubts.names)))),
            np.concatenate((std[part.valid], doubts.std)), _names(robot, doubts),
            max_condition=_MAX_CONDITION,
            hint='Excite the arm more: faster, farther, with all joints turned.')
        change = float(np.abs(fit.value[:robot.n] - value[:robot.n]).max())
        value = fit.value
        residual = _left(columns, mass, value, doubts)
        if change < _CONVERGED:
            freedom = int(used.sum()) / max(int(used.sum()) - own, 1)
            return _GainFit(value, fit.covariance * freedom, residual, used, doubts)
        noise = scatter(residual, columns.valid, columns.shaken)
    raise ConvergenceError(
        f'The effort scales did not settle in {_STEPS} steps (last change {change:.2g}); excite '
        'the arm more, or check known_mass.')


def _condensed(
    columns: TorqueColumns, doubts: Doubts, used: Mask
) -> tuple[TorqueColumns, Doubts]:
    """Return a few rows of each joint in place of all of its rows.

    That may be done once for all steps: whatever the scales, an equation is a sum of columns.
    """
    payload = 2 + columns.payload.shape[2]
    losses = payload + columns.losses.shape[2]
    width = losses + len(doubts.names)
    unknowns = len(used) * (1 + columns.losses.shape[2]) + _SHARED + len(doubts.names)
    few = np.zeros((len(used), max(width, unknowns + 1), width))
    valid = np.zeros(few.shape[:2], dtype=bool)
    for joint, counted in enumerate(used):
        rows = condensed(np.column_stack([item[joint, counted] for item in (
            columns.effort, columns.arm, columns.payload, columns.losses, doubts.columns)]),
            unknowns)
        few[joint, :len(rows)] = rows
        valid[joint, :len(rows)] = True
    return (
        TorqueColumns(few[:, :, 0], few[:, :, 1], few[:, :, 2:payload],
                      few[:, :, payload:losses], valid, np.zeros_like(valid), columns.doubts),
        Doubts(doubts.names, doubts.std, few[:, :, losses:]))


def _left(columns: TorqueColumns, mass: float, value: Array, doubts: Doubts) -> Array:
    """Return measured minus fitted, shape (n, k) [N·m]."""
    n, _, extra = columns.losses.shape
    border = n + _SHARED + n * extra
    body = np.concatenate(([mass], value[n:n + _SHARED]))
    carried = columns.arm + columns.payload @ body + doubts.columns @ value[border:]
    lost = columns.losses @ value[n + _SHARED:border].reshape(n, extra, 1)
    return np.asarray(columns.effort - value[:n, None] * carried - lost[:, :, 0])


def _part(columns: TorqueColumns, rows: slice) -> TorqueColumns:
    return TorqueColumns(columns.effort[:, rows], columns.arm[:, rows], columns.payload[:, rows],
                         columns.losses[:, rows], columns.valid[:, rows],
                         columns.shaken[:, rows], columns.doubts)


def _held_out(
    robot: Robot, columns: TorqueColumns, mass: float, fit: _GainFit
) -> tuple[Fit, ...]:
    """Fit the first part and predict the last; nothing where that part is too short."""
    count = columns.effort.shape[1]
    border = int((1.0 - HELD_OUT_SHARE) * count)
    first, rest = slice(0, border), slice(border, count)
    try:
        part = _fit(robot, _part(columns, first), mass, fit.doubts.part(first))
    except (DataError, ExcitationError, ConvergenceError):
        return ()
    last = _part(columns, rest)
    return _fits(robot, last, fit.used[:, rest],
                 _left(last, mass, part.value, fit.doubts.part(rest)))


def _fits(
    robot: Robot, columns: TorqueColumns, used: Mask, residual: Array
) -> tuple[Fit, ...]:
    return tuple(
        Fit(f'torque of {name}', 'N·m', rms(effort[counted]), rms(left[counted]),
            int(counted.sum()))
        for name, effort, left, counted
        in zip(robot.joint_names, columns.effort, residual, used, strict=True))


def _checks(
    robot: Robot, settings: GainSettings, scale: Array, known: Mask,
    fitted: Sequence[Fit], held_out: Sequence[Fit],
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
    if held_out:
        ratios = [after.after / max(before.after, 1e-12)
                  for after, before in zip(held_out, fitted, strict=True)]
        joint = int(np.argmax(ratios))
        limit = settings.max_held_out_ratio
        checks.append(Check(
            'held-out part of the motion', ratios[joint] <= limit, ratios[joint], limit, '1',
            f'The last part of the motion is predicted with residuals up to {ratios[joint]:.2f} '
            f"times those of the fit, at '{robot.joint_names[joint]}' (limit {limit:.1f})."))
    return tuple(checks)

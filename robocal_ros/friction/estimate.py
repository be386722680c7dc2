# SPDX-License-Identifier: Apache-2.0
"""Friction of each joint from recorded runs: samples → points → laws → checks, per joint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import scipy

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.estimation.ripple import Ripple
from robocal_ros.friction import fit as laws
from robocal_ros.friction.fit import DirectionFit
from robocal_ros.friction.model import Presliding, estimate_presliding
from robocal_ros.friction.runs import (
    GravityComparison,
    SpeedPoint,
    compare_gravity,
    find_runs,
    read_run,
    ripple_of,
    without_ripple,
)
from robocal_ros.messages.samples import JointSamples, check_effort
from robocal_ros.results.result import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    RobotIdentity,
    Series,
    State,
    rms,
)
from robocal_ros.robot.friction_law import DIRECTIONS, SteadyFriction
from robocal_ros.robot.model import Robot

NAMES = ('coulomb', 'static', 'stribeck_velocity', 'viscous')
UNITS = {'coulomb': 'N·m', 'static': 'N·m', 'stribeck_velocity': 'rad/s',
         'viscous': 'N·m·s/rad'}
_HELD_OUT_EVERY = 4

BRISTLES = {'bristle_stiffness': 'N·m/rad', 'bristle_damping': 'N·m·s/rad'}
"""What the dynamic law has besides, with units."""

DYNAMIC = 'lugre_dynamic'
"""The steady law, chosen as by ``auto``, and stiffness and damping of the bristles besides."""


@dataclass(frozen=True)
class FrictionSettings:
    """Settings of the estimation.

    Attributes:
        joints: Names of the joints; empty for all that were run.
        model: One of ``fit.MODELS``, ``auto`` for the choice by information criterion, or
            ``DYNAMIC``.
        fit_threshold: Largest fit degree that passes, also on held-out speeds [%].
        min_points: Fewest usable runs in each direction.
        min_span: Shortest angle of a window [rad].
        angle_std: How far the links may be from where encoders and model say (zero offsets,
            sag of the joints), for the uncertainty of the gravity torque [rad].
        gravity_error: Largest gravity-like torque that the model may lack, as a share of the
            joint's friction.

    """

    joints: tuple[str, ...] = ()
    model: str = 'auto'
    fit_threshold: float = 5.0
    min_points: int = 3
    min_span: float = 0.004
    angle_std: float = 5e-4
    gravity_error: float = 0.2

    @property
    def steady_model(self) -> str:
        """Model of the steady law."""
        return 'auto' if self.model == DYNAMIC else self.model

    def check(self, robot: Robot) -> None:
        """Refuse settings that no data can answer; raises ConfigurationError."""
        if self.model not in ('auto', *laws.MODELS, DYNAMIC):
            raise ConfigurationError(
                f"model must be 'auto', '{DYNAMIC}' or one of {', '.join(laws.MODELS)}; got "
                f"'{self.model}'.")
        for name in self.joints:
            robot.index(name)


@dataclass(frozen=True)
class JointFriction:
    """What the runs of one joint told.

    Attributes:
        joint: Name of the joint.
        points: All its runs, rejected ones too.
        fits: Forward and backward fit; None where nothing could be fitted.
        doubt: Why the Stribeck part is not identified, empty if it is.
        ripples: Torque that repeats over the angle; it is taken out of the points.
        offset_std: What gravity may be off by, with one sign for both directions [N·m].
        extra_std: Scatter from run to run beyond that within runs [N·m].
        fit_degree: 100 · sqrt(Σ(f − f̂)²/Σf²) over the points [%].
        held_out_degree: The same for speeds predicted from the others; None if too few.
        gravity: Comparison of both ways of removing gravity.
        failures: What is wrong with its runs or its fit; empty if nothing is.
        gravity_failure: What the comparison of both ways says against the model's gravity,
            empty if nothing.
        presliding: What its reversals told; None if there were none, or nobody asked.

    """

    joint: str
    points: tuple[SpeedPoint, ...]
    fits: tuple[DirectionFit, DirectionFit] | None
    doubt: str
    ripples: tuple[Ripple, ...]
    offset_std: float
    extra_std: float
    fit_degree: float
    held_out_degree: float | None
    gravity: GravityComparison | None
    failures: tuple[str, ...]
    gravity_failure: str = ''
    presliding: Presliding | None = None

    @property
    def passed(self) -> bool:
        """Whether the joint's numbers can be vouched for."""
        return not self.objections

    @property
    def objections(self) -> tuple[str, ...]:
        """Everything that speaks against the joint's numbers, as sentences."""
        return (*self.failures, *filter(None, (self.gravity_failure,)))

    def law(self) -> SteadyFriction:
        """Return the fitted law; raises DataError where there is none."""
        if self.fits is None:
            raise DataError(f"Friction of joint '{self.joint}' was not fitted: "
                            f'{" ".join(self.objections)}')
        residual = np.concatenate([fit.residual for fit in self.fits])
        return laws.law(*self.fits, std=rms(residual))


def fit_degree(torque: Array, fitted: Array) -> float:
    """Return 100 · sqrt(Σ (f − f̂)² / Σ f²) [%]; smaller is better."""
    total = float((torque**2).sum())
    return 100.0 * float(np.sqrt(((torque - fitted) ** 2).sum() / total)) if total else np.inf


def _side(points: Sequence[SpeedPoint], sign: int) -> tuple[Array, Array, Array]:
    """Return |v|, |F| and standard deviations of one direction's usable points."""
    chosen = sorted((p for p in points if p.speed * sign > 0.0 and not p.rejected),
                    key=lambda p: abs(p.speed))
    return (np.array([abs(p.speed) for p in chosen]), np.array([sign * p.torque for p in chosen]),
            np.array([p.std for p in chosen]))


def _fit_model(
    sides: Sequence[tuple[Array, Array, Array]], model: str
) -> tuple[DirectionFit, DirectionFit]:
    forward, backward = (laws.fit_direction(*side, model) for side in sides)
    return forward, backward


def _choose(
    sides: Sequence[tuple[Array, Array, Array]], wanted: str
) -> tuple[tuple[DirectionFit, DirectionFit], str]:
    """Return the fits of the chosen model, and why Stribeck is not among it, if it is not."""
    candidates = laws.MODELS if wanted == 'auto' else (wanted,)
    fitted, refusal = {}, ''
    for model in candidates:
        try:
            fitted[model] = _fit_model(sides, model)
        except DataError as error:
            refusal = str(error)
    if not fitted:
        raise DataError(refusal)
    doubts = {
        model: '; '.join(filter(None, (
            f'{direction}: {doubt}' if doubt else ''
            for direction, fit, side in zip(DIRECTIONS, pair, sides, strict=True)
            for doubt in [laws.stribeck_doubt(fit, side[0])])))
        for model, pair in fitted.items()
    }
    if wanted != 'auto':
        return fitted[wanted], doubts[wanted] if wanted == 'stribeck' else 'not asked for'
    tellable = {model: pair for model, pair in fitted.items()
                if model != 'stribeck' or not doubts['stribeck']}
    best = min(tellable or fitted,
               key=lambda model: laws.information_criterion(fitted[model]))
    if best == 'stribeck':
        return fitted[best], doubts[best]
    return fitted[best], doubts.get('stribeck') or refusal or 'a simpler model explains as much'


def _extra_std(
    sides: Sequence[tuple[Array, Array, Array]], fits: Sequence[DirectionFit]
) -> float:
    """Return the scatter from run to run that scatter within the runs does not explain [N·m].

    Zero while the residuals are within chance; else what brings the reduced chi-square to one,
    as in random-effects analysis (Paule, Mandel, J. Res. NBS 87 (1982) 377).
    """
    residual = np.concatenate([fit.residual for fit in fits])
    std = np.concatenate([side[2] for side in sides])
    freedom = max(1, len(residual) - sum(len(fit.value) for fit in fits))

    def excess(extra: float) -> float:
        return float((residual**2 / (std**2 + extra**2)).sum()) / freedom - 1.0

    if excess(0.0) <= 3.0 * np.sqrt(2.0 / freedom):
        return 0.0
    return float(scipy.optimize.brentq(excess, 0.0, 10.0 * rms(residual) + 1e-9))


def _held_out_degree(
    sides: Sequence[tuple[Array, Array, Array]], model: str
) -> float | None:
    """Fit without every fourth speed and predict it; None if too few are left."""
    torque, predicted = [], []
    for side in sides:
        count = len(side[0])
        out = np.zeros(count, dtype=bool)
        # Interior speeds only: outside them a prediction would be an extrapolation.
        out[2:count - 1:_HELD_OUT_EVERY] = True
        if not out.any():
            return None
        try:
            speed, size, std = (column[~out] for column in side)
            fit = laws.fit_direction(speed, size, std, model)
        except DataError:
            return None
        torque.append(side[1][out])
        predicted.append(laws.evaluate(model, fit.value, side[0][out]))
    return fit_degree(np.concatenate(torque), np.concatenate(predicted))


def estimate_joint(
    joint: str, points: Sequence[SpeedPoint], settings: FrictionSettings
) -> JointFriction:
    """Fit one joint and judge it.

    Args:
        joint: Name of the joint.
        points: Its runs.
        settings: Settings of the estimation.

    """
    ripples = ripple_of(points)
    points = without_ripple(points, ripples)
    sides: tuple[tuple[Array, Array, Array], ...] = (_side(points, 1), _side(points, -1))
    gravity = compare_gravity(points)
    offset = rms(np.array([p.gravity_std for p in points]))
    few = [f'{len(side[0])} usable runs {direction} (at least {settings.min_points} needed)'
           for direction, side in zip(DIRECTIONS, sides, strict=True)
           if len(side[0]) < settings.min_points]
    rejected = [p for p in points if p.rejected]
    told = '' if not rejected else (
        f' {len(rejected)} of {len(points)} runs were rejected, first at '
        f'{rejected[0].speed:+.4g} rad/s: {rejected[0].rejected}.')
    if few:
        return JointFriction(joint, points, None, '', ripples, offset, 0.0, np.inf, None, gravity,
                             (f"Joint '{joint}': {' and '.join(few)}.{told}",))
    fits, doubt = _choose(sides, settings.steady_model)
    extra = _extra_std(sides, fits)
    if extra > 0.0:
        sides = tuple((speed, size, np.hypot(std, extra)) for speed, size, std in sides)
        fits, doubt = _choose(sides, settings.steady_model)
    torque = np.concatenate([side[1] for side in sides])
    fitted = torque - np.concatenate([fit.residual for fit in fits])
    degree = fit_degree(torque, fitted)
    held_out = _held_out_degree(sides, fits[0].model)
    return JointFriction(
        joint, points, fits, doubt, ripples, offset, extra, degree, held_out, gravity,
        _failures(joint, settings, degree, held_out, told),
        _gravity_failure(joint, settings, gravity, rms(fitted)))


def _failures(
    joint: str, settings: FrictionSettings, degree: float, held_out: float | None, told: str
) -> tuple[str, ...]:
    limit = settings.fit_threshold
    failures = []
    if degree > limit:
        failures.append(f"Joint '{joint}': fit degree {degree:.1f} % (limit {limit:.1f} %)."
                        f'{told}')
    if held_out is not None and held_out > limit:
        failures.append(f"Joint '{joint}': speeds left out of the fit are predicted with a fit "
                        f'degree of {held_out:.1f} % (limit {limit:.1f} %).')
    return tuple(failures)


def _gravity_failure(
    joint: str, settings: FrictionSettings, gravity: GravityComparison | None, size: float
) -> str:
    if gravity is None or not gravity.significant or gravity.error <= (
        settings.gravity_error * size
    ):
        return ''
    return (f"Joint '{joint}': the runs forward and back show {gravity.error:.2f} N·m of gravity "
            'that the model lacks: the payload it assumes is wrong. Identify the payload first, '
            'or take the tool off.')


def read_runs(
    robot: Robot, samples: JointSamples, joints: Sequence[int], settings: FrictionSettings,
    alternatives: Sequence[Robot] = (),
) -> list[SpeedPoint]:
    """Find and read all constant-speed runs of some joints.

    Args:
        robot: The arm with what it carries.
        samples: Joint states.
        joints: Columns of the joints.
        settings: Settings of the estimation.
        alternatives: As of ``read_run``.

    """
    return [read_run(robot, samples, run, angle_std=settings.angle_std,
                     alternatives=alternatives)
            for run in find_runs(samples, joints, settings.min_span)]


def estimate(
    robot: Robot, samples: JointSamples, settings: FrictionSettings,
    alternatives: Sequence[Robot] = (),
) -> tuple[CalibrationResult, tuple[JointFriction, ...]]:
    """Estimate friction from recorded runs.

    Args:
        robot: The arm with what it carries.
        samples: Joint states of the runs.
        settings: Settings of the estimation.
        alternatives: The arm with what it may carry instead; as of ``read_run``.

    Returns:
        The result, and what stands behind it, joint by joint.

    Raises:
        ConfigurationError: If the settings do not fit the arm.
        DataError: If no joint was run at constant speed, or effort is dead.

    """
    settings.check(robot)
    if not len(samples):
        raise DataError('No joint states are recorded; call run, or play a bag first.')
    wanted = [robot.index(name) for name in settings.joints] or list(range(robot.n))
    points = read_runs(robot, samples, wanted, settings, alternatives)
    if not points:
        raise DataError(
            'No constant-speed run of joint '
            f'{", ".join(robot.joint_names[joint] for joint in wanted)} is recorded, with all '
            'others at rest; expected runs in both directions. Call run, or record such motions.')
    moved = sorted({point.joint for point in points})
    check_effort(samples, [robot.joint_names[joint] for joint in moved])
    # A joint that was asked for and has no run fails; one that nobody asked for is left out.
    found = tuple(
        estimate_joint(robot.joint_names[joint], [p for p in points if p.joint == joint],
                       settings)
        for joint in (sorted(wanted) if settings.joints else moved))
    if settings.model == DYNAMIC:
        found = tuple(with_presliding(robot, samples, item) for item in found)
    return assemble(robot, samples, settings, found), found


def with_presliding(robot: Robot, samples: JointSamples, item: JointFriction) -> JointFriction:
    """Add what a joint's reversals tell, if its steady law can be vouched for.

    Args:
        robot: The arm with what it carries.
        samples: Joint states.
        item: What the joint's runs told.

    """
    if not item.passed:
        return item
    return replace(item, presliding=estimate_presliding(
        robot, samples, robot.index(item.joint), item.law()))


def assemble(
    robot: Robot,
    samples: JointSamples,
    settings: FrictionSettings,
    found: Sequence[JointFriction],
) -> CalibrationResult:
    """Put the joints together into one result."""
    parameters, names, blocks = [], [], []
    for item in found:
        parameters += _parameters(item)
        kept, block = _covariance(item)
        names += kept
        blocks.append(block)
        if settings.model == DYNAMIC:
            parameters += _bristles(item)
            kept, block = _bristle_covariance(item)
            names += kept
            blocks.append(block)
    size = len(names)
    covariance = np.zeros((size, size))
    at = 0
    for block in blocks:
        covariance[at:at + len(block), at:at + len(block)] = block
        at += len(block)
    return CalibrationResult(
        kind='friction',
        method=settings.model,
        robot=RobotIdentity(robot.name, robot.urdf_hash, robot.joint_names),
        frame='',
        parameters=tuple(parameters),
        covariance_names=tuple(names),
        covariance=covariance,
        fit=tuple(_fit(item) for item in found if item.fits is not None),
        validation=tuple(_validation(item) for item in found
                         if item.fits is not None and item.held_out_degree is not None),
        checks=tuple(check for item in found for check in _checks(item, settings)),
        counts={
            'samples': len(samples),
            'runs': sum(len(item.points) for item in found),
            'rejected_runs': sum(bool(p.rejected) for item in found for p in item.points),
            **asdict(samples.counts),
        },
        settings={**asdict(settings), 'joints': list(settings.joints),
                  'gravity': [float(g) for g in robot.gravity]},
        source=samples.source,
        time=float(samples.time[-1]),
        software_version=__version__,
        series=tuple(series for item in found for series in _series(item)),
    )


def _identified(item: JointFriction, name: str) -> bool:
    if item.fits is None or not item.passed:
        return False
    if name in ('static', 'stribeck_velocity'):
        return item.fits[0].model == 'stribeck' and not item.doubt
    return name in laws.parameter_names(item.fits[0].model)


def _parameters(item: JointFriction) -> list[Parameter]:
    parameters = []
    for side, direction in enumerate(DIRECTIONS):
        for name in NAMES:
            full = f'{item.joint}.{name}_{direction}'
            if not _identified(item, name) or item.fits is None:
                note = ' '.join(item.objections) or item.doubt or 'not part of the chosen model'
                parameters.append(Parameter(full, UNITS[name], state=State.NOT_IDENTIFIED,
                                            note=note))
                continue
            fit = item.fits[side]
            at = laws.parameter_names(fit.model).index(name)
            variance = fit.covariance[at, at] + (item.offset_std * _offset_share(full)) ** 2
            std = float(np.sqrt(max(variance, 0.0)))
            parameters.append(Parameter(full, UNITS[name], float(fit.value[at]), std))
    return parameters


def _bristles(item: JointFriction) -> list[Parameter]:
    found = item.presliding
    if found is None:
        note = ' '.join(item.objections) or 'no slow small reversals are recorded'
        return [Parameter(f'{item.joint}.{name}', unit, state=State.NOT_IDENTIFIED, note=note)
                for name, unit in BRISTLES.items()]
    values = (found.stiffness, found.damping)
    return [
        Parameter(f'{item.joint}.{name}', unit, state=State.NOT_IDENTIFIED, note=doubt) if doubt
        else Parameter(f'{item.joint}.{name}', unit, value, float(np.sqrt(variance)))
        for (name, unit), value, variance, doubt in zip(
            BRISTLES.items(), values, np.diag(found.covariance), found.doubts, strict=True)]


def _bristle_covariance(item: JointFriction) -> tuple[list[str], Array]:
    if item.presliding is None:
        return [], np.empty((0, 0))
    keep = [i for i, doubt in enumerate(item.presliding.doubts) if not doubt]
    names = list(BRISTLES)
    return ([f'{item.joint}.{names[i]}' for i in keep],
            item.presliding.covariance[np.ix_(keep, keep)])


def _covariance(item: JointFriction) -> tuple[list[str], Array]:
    names: list[str] = []
    blocks = []
    for side, direction in enumerate(DIRECTIONS):
        if item.fits is None:
            break
        fit = item.fits[side]
        columns = laws.parameter_names(fit.model)
        keep = [i for i, name in enumerate(columns) if _identified(item, name)]
        names += [f'{item.joint}.{columns[i]}_{direction}' for i in keep]
        blocks.append(fit.covariance[np.ix_(keep, keep)])
    covariance = np.zeros((len(names), len(names)))
    at = 0
    for block in blocks:
        covariance[at:at + len(block), at:at + len(block)] = block
        at += len(block)
    shares = np.array([_offset_share(name) for name in names])
    return names, covariance + item.offset_std**2 * np.outer(shares, shares)


def _offset_share(name: str) -> float:
    """Return by how much a parameter changes when gravity is off: it adds to one direction."""
    if name.rpartition('.')[2].startswith(('coulomb', 'static')):
        return 1.0 if name.endswith('forward') else -1.0
    return 0.0


def _usable(item: JointFriction) -> list[SpeedPoint]:
    return sorted((p for p in item.points if not p.rejected), key=lambda p: p.speed)


def _fit(item: JointFriction) -> Fit:
    points = _usable(item)
    torque = np.array([p.torque for p in points])
    residual = torque - item.law().torque(np.array([p.speed for p in points]))
    return Fit(item.joint, 'N·m', rms(torque), rms(residual), len(points))


def _validation(item: JointFriction) -> Fit:
    torque = np.array([p.torque for p in _usable(item)])
    share = 0.01 * float(item.held_out_degree or 0.0)
    return Fit(item.joint, 'N·m', rms(torque), share * rms(torque), len(torque))


def _checks(item: JointFriction, settings: FrictionSettings) -> list[Check]:
    limit = settings.fit_threshold
    degree = item.fit_degree if np.isfinite(item.fit_degree) else 100.0
    rejected = sum(bool(p.rejected) for p in item.points)
    held_out = ('not evaluated' if item.held_out_degree is None
                else f'{item.held_out_degree:.2f} %')
    model = item.fits[0].model if item.fits is not None else 'none'
    reason = ' '.join(item.failures) or (
        f"Joint '{item.joint}': model {model}, fit degree {degree:.2f} %, on left-out speeds "
        f'{held_out} (limit {limit:.1f} %), {len(item.points) - rejected} runs used, {rejected} '
        'rejected.')
    checks = [Check(f'{item.joint}: fit', not item.failures, degree, limit, '%', reason)]
    gravity = item.gravity
    if gravity is not None and item.fits is not None:
        size = rms(np.array([p.torque for p in _usable(item)]))
        reason = item.gravity_failure or (
            f"Joint '{item.joint}': gravity by the model and by averaging forward and backward "
            f'runs differ by {gravity.error:.3f} ± {1.96 * gravity.std:.3f} N·m over '
            f'{gravity.pairs} pairs.')
        checks.append(Check(f'{item.joint}: gravity', not item.gravity_failure, gravity.error,
                            settings.gravity_error * size, 'N·m', reason))
    return checks


def _series(item: JointFriction) -> list[Series]:
    points = _usable(item)
    if item.fits is None or not points:
        return []
    speed = np.array([p.speed for p in points])
    torque = np.array([p.torque for p in points])
    std = np.array([p.std for p in points])
    fitted = item.law().torque(speed)
    series = [
        Series(f'Friction of {item.joint}', f'{item.joint} speed [rad/s]', 'friction [N·m]', speed,
               {'measured': torque, 'fit': fitted}),
        Series(f'Residuals of {item.joint}', f'{item.joint} speed [rad/s]', 'residual [N·m]',
               speed, {'measured minus fit': torque - fitted, '+ 1.96 σ of the run': 1.96 * std,
                       '- 1.96 σ of the run': -1.96 * std}),
    ]
    if item.presliding is not None:
        told = item.presliding
        series.append(Series(
            f'Reversals of {item.joint}', f'{item.joint} [rad]', 'friction [N·m]', told.angle,
            {'measured': told.torque, 'fit': told.fitted}))
    return series


def summary(result: CalibrationResult) -> str:
    """Return Coulomb friction of every joint with its 95 % interval, and the worst fit degree."""
    joints = list(dict.fromkeys(p.name.rpartition('.')[0] for p in result.parameters))

    def coulomb(joint: str) -> str:
        sides = [result.parameter(f'{joint}.coulomb_{direction}') for direction in DIRECTIONS]
        return ' / '.join(f'{p.value or 0.0:.3f} ± {1.96 * (p.std or 0.0):.3f}' for p in sides)

    degrees = [check.value for check in result.checks if check.name.endswith(': fit')]
    return (f'Coulomb friction forward / backward in N·m (95 %): '
            f'{"; ".join(f"{joint} {coulomb(joint)}" for joint in joints)}. '
            f'Fit degree at most {max(degrees):.2f} %.')


def friction_temperature(result: CalibrationResult) -> float:
    """Return the mean temperature at which joints were identified [°C], NaN if unknown."""
    temperatures = result.settings.get('temperatures') or {}
    return float(np.mean(list(temperatures.values()))) if temperatures else float('nan')


def with_temperatures(
    result: CalibrationResult, temperatures: Mapping[str, float]
) -> CalibrationResult:
    """File temperatures with a result.

    Args:
        result: Friction result.
        temperatures: Mean temperature during the runs of each joint, by its name [°C].

    """
    if not temperatures:
        return result
    return replace(result, settings={**result.settings, 'temperatures': dict(temperatures)})


def select_joints(result: CalibrationResult, joints: Sequence[str]) -> CalibrationResult:
    """Return the part of a friction result that concerns some joints."""
    def concerned(name: str) -> bool:
        return name.split('.')[0].split(':')[0] in joints

    rows = [i for i, name in enumerate(result.covariance_names) if concerned(name)]
    return replace(
        result,
        parameters=tuple(p for p in result.parameters if concerned(p.name)),
        covariance_names=tuple(result.covariance_names[i] for i in rows),
        covariance=result.covariance[np.ix_(rows, rows)],
        fit=tuple(f for f in result.fit if concerned(f.what)),
        validation=tuple(f for f in result.validation if concerned(f.what)),
        checks=tuple(c for c in result.checks if concerned(c.name)),
        series=tuple(s for s in result.series if s.title.split()[-1] in joints),
    )


def merge(old: CalibrationResult | None, new: CalibrationResult) -> CalibrationResult | None:
    """Return the joints of a new result that passed, and the old ones of all others.

    A joint whose fit could not be held against left-out speeds counts as not passed.

    Returns:
        None if that leaves nothing.

    """
    judged = dict.fromkeys(check.name.split(':')[0] for check in new.checks)
    failed = {check.name.split(':')[0] for check in new.checks if not check.passed}
    validated = {fit.what for fit in new.validation}
    passed = [name for name in judged if name in validated and name not in failed]
    fresh = select_joints(new, passed)
    others = [] if old is None else [
        name for name in dict.fromkeys(p.name.split('.')[0] for p in old.parameters)
        if name not in passed]
    if old is None or not others:
        return fresh if passed else None
    kept = select_joints(old, others)
    size = len(kept.covariance_names) + len(fresh.covariance_names)
    covariance = np.zeros((size, size))
    border = len(kept.covariance_names)
    covariance[:border, :border] = kept.covariance
    covariance[border:, border:] = fresh.covariance
    order = {name: i for i, name in enumerate(new.robot.joint_names)}
    temperatures = {**(kept.settings.get('temperatures') or {}),
                    **(fresh.settings.get('temperatures') or {})}
    return replace(
        with_temperatures(fresh, temperatures),
        parameters=tuple(sorted((*kept.parameters, *fresh.parameters),
                                key=lambda p: order[p.name.split('.')[0]])),
        covariance_names=(*kept.covariance_names, *fresh.covariance_names),
        covariance=covariance,
        fit=(*kept.fit, *fresh.fit),
        validation=(*kept.validation, *fresh.validation),
        checks=(*kept.checks, *fresh.checks),
        series=(*kept.series, *fresh.series),
    )

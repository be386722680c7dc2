# SPDX-License-Identifier: Apache-2.0
"""Centre of mass of a payload of known mass, from static torques in two planes of rotation.

Samples → steady sweeps → one plane per joint (l cosγ, l sinγ, friction per direction) →
centre of mass in the tool frame → checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, ExcitationError
from robocal_ros.estimation import (
    LinearFit,
    RecursiveLeastSquares,
    Ripple,
    RippleRun,
    Sweep,
    autocorrelation_time,
    convergence,
    find_ripple,
    ripple_columns,
    solve,
    steady_sweeps,
)
from robocal_ros.messages import JointSamples, check_effort, check_joints
from robocal_ros.payload.model import Plane
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.result import (
    ARM_SOURCE,
    COM,
    centre_checks,
    largest_source,
    make_result,
    settings_of,
    unidentified_inertia,
)
from robocal_ros.results import (
    CalibrationResult,
    Check,
    Fit,
    Parameter,
    Series,
    State,
    rms,
    spread,
)
from robocal_ros.robot import ArmModel, RigidBodyInertia, Robot, SteadyFriction, on_leaning_base

MIN_SWEEP = float(np.radians(20.0))
"""Shortest sweep that counts [rad]."""

MAX_PLANE_DISAGREEMENT = 0.003
"""Largest difference between the two planes, and to the held-out sweeps, beyond chance [m]."""

MAX_SCALE_STD = 0.05
"""Largest standard deviation of an effort scale that counts as known."""

_SAME_POSTURE = 0.03
# Probability below which held-out levers contradict the fit beyond chance.
_SIGNIFICANCE = 0.05
# Steps of the mass, as a share, and of the tilt [rad] for numerical derivatives.
_STEP, _TILT = 1e-4, 1e-4
# Sweeps are wide enough to separate ripple of so few periods per turn from weight.
_FEWEST_CYCLES = 6.0
_PLOT_POINTS = 150
_TRACE_POINTS = 120
# Smallest noise of effort [N·m]; keeps the weights of noise-free recordings finite.
_LEAST_NOISE = 1e-6
# Smallest prior standard deviation of a share; 0 means that friction does not change.
_LEAST_SHARE = 1e-6
# Prior standard deviations of (x, y) [m] and of one friction torque per direction [N·m].
_PRIOR_STD = np.array([1.0, 1.0, 100.0, 100.0])


@dataclass(frozen=True)
class KnownMass:
    """Given mass of the payload.

    Attributes:
        value: Mass [kg].
        std: Standard deviation [kg].
        source: Its origin.

    """

    value: float
    std: float
    source: str


def known_mass(
    robot: Robot, values: PayloadParameters, stored: CalibrationResult | None,
    now: float = np.nan,
) -> KnownMass:
    """Return the mass from known_mass, else from a stored payload result of the same tool.

    Args:
        robot: The arm.
        values: The node's parameters.
        stored: Stored payload result, None without one.
        now: Present stamp, for the age of the stored result [s].

    Raises:
        ConfigurationError: If there is neither, the stored mass is that of another tool, the mass
            exceeds max_payload, or second_joint is invalid.

    """
    if values.known_mass > 0.0:
        mass = KnownMass(values.known_mass, values.known_mass_std, 'known_mass')
    else:
        found = None if stored is None else stored.parameter('mass')
        if stored is None or found is None or not (found.value and found.value > 0.0):
            raise ConfigurationError(
                "Method 'two_plane' needs the payload's mass: set known_mass (kg, from a scale), "
                "as by 'ros2 param set /payload_identification known_mass 2.0', or measure it "
                "with a wrist sensor first: "
                "'robocal run payload --configure -p method:=static_poses'; "
                'its result is then used.')
        tool = str(stored.settings.get('tool', ''))
        if tool != values.tool:
            raise ConfigurationError(
                f"The stored mass of {found.value:.3f} kg is that of tool '{tool}', but parameter "
                f"tool is '{values.tool}'. Set known_mass (kg, from a scale), or run method "
                "'static_poses' with this tool.")
        age = '' if not np.isfinite(now) else f', {(now - stored.time) / 3600.0:.1f} h old'
        mass = KnownMass(
            found.value, found.std or 0.0,
            f"the stored result of {stored.method} of tool '{tool}'{age}")
    if 0.0 < values.max_payload < mass.value:
        raise ConfigurationError(
            f'known_mass is {mass.value} kg, but max_payload allows '
            f'{values.max_payload} kg. Mount a lighter tool or correct the limit.')
    if values.second_joint and robot.index(values.second_joint) == robot.n - 1:
        raise ConfigurationError(
            f"second_joint '{values.second_joint}' is the last joint; name one before it.")
    return mass


@dataclass(frozen=True)
class PlaneFit:
    """Fit of the sweeps of one joint.

    Attributes:
        plane: Geometry.
        sweeps: The sweeps that were used.
        directions: Directions present, in the order of the fit's friction columns.
        fit: (x, y) and one friction torque per direction; covariance from the scatter and
            correlation of the residuals.
        target: Torque of payload and friction, shape (k,) [N·m].
        angle: Joint angles, shape (k,) [rad].
        ripple: Torque ripple that was detected and fitted jointly.
        lever_change: Derivative of (x, y) with respect to ``target``, shape (2, k).
        posture_std: Standard deviation of the rotation's zero against gravity [rad].

    """

    plane: Plane
    sweeps: tuple[Sweep, ...]
    directions: tuple[int, ...]
    fit: LinearFit
    target: Array
    angle: Array
    lever_change: Array
    ripple: tuple[Ripple, ...] = ()
    posture_std: float = 0.0

    @property
    def covariance(self) -> Array:
        """Covariance of (x, y), shape (2, 2) [m²]."""
        x, y = self.fit.value[:2]
        turn = self.posture_std * np.array([-y, x])
        return self.fit.covariance[:2, :2] + np.outer(turn, turn)

    def friction(self, direction: int) -> float:
        """Return the friction torque of a direction [N·m]."""
        return float(self.fit.value[2 + self.directions.index(direction)])


@dataclass(frozen=True)
class HeldOut:
    """Sweeps of one joint in other postures, predicted from the fit.

    Attributes:
        fit: Residuals.
        lever: Error of the lever that would explain them, shape (2,) [m]; empty if it is
            unobservable.
        std: Its standard deviation, prediction included, same shape [m].

    """

    fit: Fit
    lever: Array
    std: Array


@dataclass
class PlaneEstimator:
    """Recursive least squares of one plane while the joint turns.

    Estimates (x, y) and one friction torque per direction, so that friction, of opposite sign
    in the two directions, is not mistaken for weight.
    """

    plane: Plane
    mass: float
    noise: float
    filter: RecursiveLeastSquares = field(init=False)

    def __post_init__(self) -> None:
        """Initialise the filter with the prior."""
        self.filter = RecursiveLeastSquares(_PRIOR_STD, self.noise)

    def update(self, angle: float, torque: float, direction: int) -> None:
        """Update with one sample.

        Args:
            angle: Joint angle [rad].
            torque: Effort minus the arm's own gravity torque [N·m].
            direction: +1 or -1.

        """
        row = _plane_rows(self.plane, np.array([angle]), np.array([direction]), self.mass)[0]
        self.filter.update(row, torque)


def _plane_rows(plane: Plane, angle: Array, direction: Array, mass: float) -> Array:
    """Return the regressor of (x, y) and of one friction torque per direction, (k, 4)."""
    return np.column_stack((plane.regressor(angle, mass), direction > 0, direction < 0))


def _same_posture(a: Sweep, b: Sweep) -> bool:
    """Return whether the other joints have the same angles in two sweeps of a joint."""
    difference = np.abs(np.delete(a.posture - b.posture, a.joint))
    return bool((difference < _SAME_POSTURE).all())


def _groups(sweeps: Iterable[Sweep]) -> list[list[Sweep]]:
    """Group a joint's sweeps by the posture of the other joints, widest group first."""
    groups: list[list[Sweep]] = []
    for sweep in sweeps:
        for group in groups:
            if _same_posture(group[0], sweep):
                group.append(sweep)
                break
        else:
            groups.append([sweep])
    return sorted(groups, key=lambda group: -sum(sweep.span for sweep in group))


def _targets(
    robot: Robot, samples: JointSamples, sweeps: Sequence[Sweep], friction: SteadyFriction | None
) -> tuple[Array, Array, Array]:
    """Return joint angle, torque of payload and unmodelled friction, and direction."""
    joint = sweeps[0].joint
    rows = np.concatenate([np.arange(sweep.start, sweep.stop) for sweep in sweeps])
    position = samples.position[rows]
    torque = samples.effort[rows, joint] - robot.gravity_torques(position)[:, joint]
    speed = np.concatenate([np.full(s.stop - s.start, s.speed) for s in sweeps])
    if friction is not None:
        torque = torque - friction.torque_of_drive(speed, samples.effort[rows, joint])
    return position[:, joint], torque, np.sign(speed)


def _fit_plane(
    robot: Robot,
    samples: JointSamples,
    sweeps: Sequence[Sweep],
    mass: float,
    friction: SteadyFriction | None,
    values: PayloadParameters,
    duration: float,
) -> PlaneFit:
    joint = sweeps[0].joint
    name = robot.joint_names[joint]
    angle, target, sign = _targets(robot, samples, sweeps, friction)
    reference = np.mean([sweep.posture for sweep in sweeps], axis=0)
    reference[joint] = 0.5 * (angle.min() + angle.max())
    plane = Plane.at(robot, reference, joint)
    directions = tuple(d for d in (1, -1) if (sign == d).any())
    if len(directions) < 2 and friction is None:
        raise DataError(
            f"Joint '{name}' was swept in one direction only, so its friction cannot be separated "
            'from weight; sweep it in both directions, or identify friction first.'
        )
    columns = np.column_stack([sign == d for d in directions]).astype(float)
    regressor = np.hstack((plane.regressor(angle, mass), columns))
    names = ['x', 'y', *(f'friction_{"forward" if d > 0 else "backward"}' for d in directions)]
    hint = f"Sweep joint '{name}' over a wider angle."
    # The first fit provides the noise, which weights the prior of the friction.
    free = solve(regressor, target, 1.0, names, max_condition=1e6, hint=hint)
    ripples = find_ripple([RippleRun.of_samples(*part) for part in zip(
        _by_sweep(angle, sweeps), _by_sweep(free.residual, sweeps), strict=True)], _FEWEST_CYCLES)
    if ripples:
        regressor = np.hstack((regressor, ripple_columns(angle, ripples)))
        names += [f'ripple_{i}' for i in range(2 * len(ripples))]
        free = solve(regressor, target, 1.0, names, max_condition=1e6, hint=hint)
    noise = np.sqrt(free.reduced_chi_square * _inflation(free.residual, sweeps))
    speed = float(np.mean([abs(sweep.speed) for sweep in sweeps]))
    known = [0.0 if friction is None else float(friction.torque(d * speed)) for d in directions]
    level = columns @ (free.value[2:2 + len(directions)] + known)
    # Priors: friction changes during the sweeps, and the identified law is what is left of it.
    regressor = np.column_stack((regressor, level * _share_of_time(samples, sweeps, duration)))
    names += ['friction_drift']
    prior = np.eye(regressor.shape[1])[-1:]
    prior_std = [max(values.friction_change_std, _LEAST_SHARE)]
    if friction is not None:
        change = [values.friction_change_std * torque for torque in known]
        law = [max(float(friction.deviation(d * speed)), 1e-3) for d in directions]
        prior = np.vstack((prior, np.eye(len(directions), regressor.shape[1], 2)))
        prior_std += np.hypot(law, change).tolist()
    size = len(target)
    regressor = np.vstack((regressor, prior))
    measured = np.concatenate((target, np.zeros(len(prior))))
    std = np.concatenate((np.full(size, max(float(noise), _LEAST_NOISE)), prior_std))
    fit = solve(regressor, measured, std, names, max_condition=1e3, hint=hint)
    lever_change = fit.covariance[:2] @ (regressor / std[:, None]**2).T[:, :size]
    return PlaneFit(plane, tuple(sweeps), directions, fit, target, angle, lever_change, ripples,
                    values.posture_std)


def _share_of_time(samples: JointSamples, sweeps: Sequence[Sweep], duration: float) -> Array:
    """Return when samples of sweeps were taken, as a share of a duration [s], 0 in the middle."""
    time = np.concatenate([samples.time[sweep.start:sweep.stop] for sweep in sweeps])
    return np.asarray((time - 0.5 * (time.min() + time.max())) / duration)


def _inflation(residual: Array, sweeps: Sequence[Sweep]) -> float:
    """Return the mean autocorrelation time of the residuals, sweep by sweep."""
    times = [autocorrelation_time(part) for part in _by_sweep(residual, sweeps)]
    return float(np.average(times, weights=[sweep.stop - sweep.start for sweep in sweeps]))


def _by_sweep(values: Array, sweeps: Sequence[Sweep]) -> list[Array]:
    """Split values of all samples into those of each sweep."""
    lengths = [sweep.stop - sweep.start for sweep in sweeps]
    return np.split(values, np.cumsum(lengths)[:-1])


def _combine(robot: Robot, fits: Sequence[PlaneFit], between: float = 0.0) -> LinearFit:
    """Combine both planes' levers to a centre of mass in the tool frame by weighted LS.

    Args:
        robot: The arm.
        fits: Both planes.
        between: Standard deviation of levers between postures [m].

    """
    rows, right = [], []
    for fit in fits:
        a, b = fit.plane.lever_rows(robot)
        # Whitened by the plane's own covariance.
        whitening = np.linalg.inv(np.linalg.cholesky(
            fit.covariance + between**2 * np.eye(2)))
        rows.append(whitening @ a)
        right.append(whitening @ (fit.fit.value[:2] - b))
    return solve(
        np.vstack(rows), np.concatenate(right), 1.0, COM, max_condition=1e3,
        hint='The two joint axes are (nearly) parallel; set another second_joint.',
    )


def _second_joint(
    robot: Robot, by_joint: Mapping[int, list[Sweep]], values: PayloadParameters
) -> int:
    """Return the second plane's joint: second_joint, else the last one that was swept."""
    if values.second_joint:
        return robot.index(values.second_joint)
    swept = [joint for joint in by_joint if joint < robot.n - 1]
    return max(swept) if swept else robot.n - 2


def _swept_far_enough(
    robot: Robot, groups: Mapping[int, list[list[Sweep]]], joint: int
) -> list[Sweep]:
    """Return the sweeps of a joint's widest group; raises DataError if they are too short."""
    name = robot.joint_names[joint]
    if joint not in groups or not groups[joint]:
        raise DataError(
            f"Joint '{name}' did not turn at constant speed with all others at rest; expected "
            'sweeps in both directions. Record the sweeps of the method, or call run.'
        )
    widest = max(sweep.span for sweep in groups[joint][0])
    if widest < MIN_SWEEP:
        raise DataError(
            f"The longest sweep of joint '{name}' covers {np.degrees(widest):.1f}°; at least "
            f'{np.degrees(MIN_SWEEP):.0f}° are needed to separate weight from friction.'
        )
    return [sweep for sweep in groups[joint][0] if sweep.span >= MIN_SWEEP]


def estimate(
    robot: Robot,
    samples: JointSamples,
    values: PayloadParameters,
    friction: Mapping[str, SteadyFriction] | None = None,
    stored: CalibrationResult | None = None,
    arm: ArmModel | None = None,
) -> CalibrationResult:
    """Estimate the centre of mass from recorded sweeps.

    The sweeps are detected in the samples; those of each joint's widest posture group are
    fitted, those in other postures are held out.

    Args:
        robot: The arm without the payload.
        samples: Joint states of the sweeps.
        values: The node's parameters.
        friction: Identified friction by joint name.
        stored: Payload result that provides the mass if known_mass is 0.
        arm: What is not known of the arm's links and drive gains; None to take both for exact.

    Returns:
        The result with its verdict.

    Raises:
        ConfigurationError: If the parameters do not fit the arm.
        DataError: If the samples lack the sweeps that the method needs.
        ExcitationError: If a direction of the centre of mass is unobservable.

    """
    if not len(samples):
        raise DataError('No joint states are recorded; call run, or play a bag first.')
    mass = known_mass(robot, values, stored, float(samples.time[-1]))
    friction = friction or {}
    check_joints(samples, robot.joint_names)
    found = steady_sweeps(samples, min_span=0.17)
    by_joint = {
        joint: [sweep for sweep in found if sweep.joint == joint]
        for joint in {sweep.joint for sweep in found}
    }
    groups = {joint: _groups(sweeps) for joint, sweeps in by_joint.items()}
    second = _second_joint(robot, by_joint, values)
    joints = (robot.n - 1, second)
    used = [_swept_far_enough(robot, groups, joint) for joint in joints]
    for sweeps in used:
        for sweep in sweeps:
            check_effort(samples.rows(sweep.start, sweep.stop), [robot.joint_names[sweep.joint]])
    models = [friction.get(robot.joint_names[joint]) for joint in joints]
    duration = float(samples.time[max(sweep.stop for sweep in found) - 1]
                     - samples.time[min(sweep.start for sweep in found)])
    planes = [_fit_plane(robot, samples, sweeps, mass.value, model, values, duration)
              for sweeps, model in zip(used, models, strict=True)]
    com = _combine(robot, planes)
    held_out = [
        _held_out(robot, samples, plane, groups[joint][1:], mass.value, com.value, model)
        for plane, joint, model in zip(planes, joints, models, strict=True)
    ]
    disagreement, unlikely = _disagreement(robot, planes, com)
    own = com.covariance * (com.reduced_chi_square if unlikely else 1.0)
    between = _between_postures(held_out)
    covariance = own
    if between > 0.0:
        covariance = own + _combine(robot, planes, between).covariance - com.covariance
    freedom = _freedom(own, covariance, held_out)
    parts = {'noise of the sweeps: use wider or slower ones': own,
             'levers that differ between postures: friction or links depend on the posture':
             covariance - own}
    if mass.std > 0.0:
        heavier = [_fit_plane(robot, samples, sweeps, (1.0 + _STEP) * mass.value, model, values,
                              duration)
                   for sweeps, model in zip(used, models, strict=True)]
        change = (_combine(robot, heavier).value - com.value) / (_STEP * mass.value)
        parts['the mass: weigh the payload more accurately (known_mass_std)'] = (
            np.outer(change, change) * mass.std**2)
    if arm is not None:
        parts[ARM_SOURCE] = _propagated(robot, samples, planes, com, arm.uncertain_torques)
    if values.tilt_std > 0.0:
        loaded = robot.with_payload(RigidBodyInertia(mass.value, com.value, np.zeros((3, 3))))
        parts['the tilt of the base: level it, or state how level it is (tilt_std)'] = _propagated(
            robot, samples, planes, com, partial(_tilt_torques, loaded, values.tilt_std))
    covariance = np.sum(list(parts.values()), axis=0)
    widest = int(np.argmax(np.diag(covariance)))
    source = largest_source({name: float(part[widest, widest]) for name, part in parts.items()})
    parameters = _parameters(robot, mass, planes, com.value, covariance, freedom)
    return make_result(
        robot, samples, method='two_plane', parameters=parameters,
        covariance_names=COM,
        covariance=covariance,
        fit=tuple(
            Fit(f'torque of {robot.joint_names[p.plane.joint]}', 'N·m', rms(p.target),
                rms(p.fit.residual[:len(p.target)]), len(p.target))
            for p in planes
        ),
        validation=tuple(item.fit for item in held_out if item is not None),
        checks=(*centre_checks(parameters[1:4], values, source),
                *(() if arm is None else (_gain_check(robot, joints, arm),)),
                *_checks(planes, disagreement, unlikely, held_out),
                *_friction_checks(robot, planes, models)),
        counts={
            'fitted': sum(len(p.target) for p in planes),
            'sweeps': sum(len(p.sweeps) for p in planes),
            'held_out_sweeps': sum(len(g) for joint in joints for g in groups[joint][1:]),
        },
        settings={
            'known_mass': mass.value, 'known_mass_std': mass.std, 'mass_source': mass.source,
            'min_sweep': MIN_SWEEP, 'max_plane_disagreement': MAX_PLANE_DISAGREEMENT,
            **settings_of(values, 'tool', 'posture_std', 'friction_change_std', 'arm_model_std',
                          'tilt_std', 'gain_std', 'max_payload', 'max_com_distance',
                          'max_com_interval'),
            'lever_scatter': between,
            'second_joint': robot.joint_names[second],
            'friction_model': [robot.joint_names[j] for j, m in zip(joints, models, strict=True)
                               if m is not None]},
        series=_series(robot, planes, mass.value),
    )


def _between_postures(held_out: Sequence[HeldOut | None]) -> float:
    """Return the standard deviation of levers between postures [m], 0 if not significant.

    A moment estimate: what the errors of the levers in held-out postures exceed their own
    variance by.
    """
    found = [item for item in held_out if item is not None]
    if not found:
        return 0.0
    error, std = (np.concatenate(parts) for parts in zip(
        *((item.lever, item.std) for item in found), strict=True))
    if np.sum((error / std) ** 2) <= scipy.special.chdtri(len(error), _SIGNIFICANCE):
        return 0.0
    return float(np.sqrt(max(np.mean(error**2 - std**2), 0.0)))


def _freedom(own: Array, total: Array, held_out: Sequence[HeldOut | None]) -> list[float | None]:
    """Return the degrees of freedom of each element of the centre, by Satterthwaite."""
    count = sum(len(item.lever) for item in held_out if item is not None)
    shares = 1.0 - np.diag(own) / np.diag(total)
    return [float(count / share**2) if share > 1e-3 else None for share in shares]


def _propagated(
    robot: Robot, samples: JointSamples, planes: Sequence[PlaneFit], com: LinearFit,
    torques: Callable[[Array, Array, Array, Array], Array],
) -> Array:
    """Return what torques that are not known add to the covariance, shape (3, 3) [m²].

    Args:
        robot: The arm.
        samples: The joint states.
        planes: Both planes.
        com: The centre of mass.
        torques: As for ``ArmModel.uncertain_torques``.

    """
    shifts = []
    for plane in planes:
        ends = np.cumsum([sweep.stop - sweep.start for sweep in plane.sweeps])
        levers = []
        for sweep, change in zip(
                plane.sweeps, np.split(plane.lever_change, ends[:-1], axis=1), strict=True):
            position = samples.position[sweep.start:sweep.stop]
            still = np.zeros_like(position)
            torque = torques(position, still, still, samples.effort[sweep.start:sweep.stop])
            levers.append(change @ torque[:, plane.plane.joint])
        a, _ = plane.plane.lever_rows(robot)
        shifts.append(com.covariance @ a.T @ np.linalg.inv(plane.covariance)
                      @ np.sum(levers, axis=0))
    shift = np.sum(shifts, axis=0)
    return np.asarray(shift @ shift.T)


def _tilt_torques(robot: Robot, tilt_std: float, position: Array, *_: Array) -> Array:
    """Return the torques of one standard deviation of each tilt of the base, (k, n, 2) [N·m]."""
    level = robot.gravity_torques(position)
    return np.stack([
        (on_leaning_base(robot, _TILT * axis).gravity_torques(position) - level)
        * (tilt_std / _TILT) for axis in np.eye(2)], axis=2)


def _gain_check(robot: Robot, joints: Sequence[int], arm: ArmModel) -> Check:
    """Check that effort scales are known well enough; their deviation is in the intervals."""
    std = [float(np.sqrt(arm.covariance[at, at])) for at in (11 * robot.n + j for j in joints)]
    worst = int(np.argmax(std))
    return Check(
        'effort scale', std[worst] <= MAX_SCALE_STD, std[worst], MAX_SCALE_STD, '1',
        f"The effort scale of joint '{robot.joint_names[joints[worst]]}' is known to "
        f'{100 * std[worst]:.2g} % (limit {100 * MAX_SCALE_STD:.0f} %). Above it, calibrate the '
        'drive gains (calibrate_gains), or state a smaller gain_std if efforts come from joint '
        'torque sensors.', 'trustworthy')


def _disagreement(
    robot: Robot, planes: Sequence[PlaneFit], com: LinearFit
) -> tuple[float, bool]:
    """Return the largest difference between the planes [m], and whether it is significant."""
    worst = 0.0
    for plane in planes:
        rows, offset = plane.plane.lever_rows(robot)
        worst = max(worst, float(np.abs(
            plane.fit.value[:2] - rows @ com.value - offset).max()))
    return worst, com.reduced_chi_square > float(scipy.special.chdtri(1, 0.01))


def _held_out(
    robot: Robot,
    samples: JointSamples,
    plane: PlaneFit,
    groups: Sequence[Sequence[Sweep]],
    mass: float,
    com: Array,
    friction: SteadyFriction | None,
) -> HeldOut | None:
    """Predict a joint's sweeps in other postures; None without such sweeps."""
    measured, residual, rows = [], [], []
    for group in groups:
        usable = [sweep for sweep in group if sweep.direction in plane.directions]
        if not usable:
            continue
        angle, target, sign = _targets(robot, samples, usable, friction)
        reference = np.mean([sweep.posture for sweep in usable], axis=0)
        try:
            other = Plane.at(robot, reference, plane.plane.joint)
        except ExcitationError:
            # The axis is too close to vertical: there is no torque to predict.
            continue
        loss = np.where(sign > 0, plane.friction(1) if 1 in plane.directions else 0.0,
                        plane.friction(-1) if -1 in plane.directions else 0.0)
        predicted = other.torque(robot, angle, mass, com) + loss
        measured.append(target - loss)
        residual.append(target - predicted)
        rows.append(other.regressor(angle, mass))
    if not residual:
        return None
    left, regressor = np.concatenate(residual), np.vstack(rows)
    fit = Fit(f'torque of {robot.joint_names[plane.plane.joint]}', 'N·m',
              rms(np.concatenate(measured)), rms(left), len(left))
    try:
        lever = solve(regressor, left, rms(left) or 1.0, ('x', 'y'), max_condition=1e3)
    except ExcitationError:
        return HeldOut(fit, np.empty(0), np.empty(0))
    correlated = autocorrelation_time(lever.residual)
    std = np.sqrt(np.diag(lever.covariance) * correlated + np.diag(plane.covariance))
    return HeldOut(fit, lever.value, std)


def _checks(
    planes: Sequence[PlaneFit],
    disagreement: float,
    unlikely: bool,
    held_out: Sequence[HeldOut | None],
) -> tuple[Check, ...]:
    limit = MAX_PLANE_DISAGREEMENT
    checks = [
        Check('planes agree', not (unlikely and disagreement > limit), disagreement, limit, 'm',
              f'The two planes agree within {1e3 * disagreement:.2f} mm '
              f'(limit {1e3 * limit:.1f} mm beyond chance).', 'adequate'),
    ]
    for plane, item in zip(planes, held_out, strict=True):
        if item is None:
            continue
        fit = item.fit
        lever, std = (float(np.abs(part).max(initial=0.0)) for part in (item.lever, item.std))
        fitted = rms(plane.fit.residual[:len(plane.target)])
        ratio = fit.after / fitted if fitted > 0.0 else float('inf')
        checks.append(Check(
            f'held-out {fit.what}', ratio <= 2.0, ratio, 2.0, '1',
            f'Held-out {fit.what}: RMS residual {fit.after:.3f} N·m of {fit.before:.3f} N·m, '
            f'{ratio:.2f} times that of the fit (limit 2).', 'adequate'))
        checks.append(Check(
            f'held-out lever, {fit.what}', lever <= limit + 4.0 * std, lever, limit + 4.0 * std,
            'm', f'Held-out {fit.what}: {1e3 * lever:.2f} mm of lever unexplained '
            f'(limit {1e3 * (limit + 4.0 * std):.1f} mm).', 'adequate'))
    return tuple(checks)


def _friction_checks(
    robot: Robot, planes: Sequence[PlaneFit], models: Sequence[SteadyFriction | None]
) -> tuple[Check, ...]:
    """Check that friction dissipates power at each joint, which fails for a wrong effort sign."""
    checks = []
    for plane, model in zip(planes, models, strict=True):
        if len(plane.directions) < 2:
            continue
        loss = 0.5 * (plane.friction(1) - plane.friction(-1))
        if model is not None:
            speed = float(np.mean([abs(sweep.speed) for sweep in plane.sweeps]))
            loss += 0.5 * float(model.torque(speed) - model.torque(-speed))
        limit = -4.0 * 0.5 * float(np.hypot(*plane.fit.std()[2:2 + len(plane.directions)]))
        name = robot.joint_names[plane.plane.joint]
        checks.append(Check(
            f'sign of effort, {name}', loss >= limit, loss, limit, 'N·m',
            f"Friction of joint '{name}' is {loss:.3f} N·m; a significantly negative value means "
            'that the sign of its effort is wrong.', 'trustworthy'))
    return tuple(checks)


def _parameters(
    robot: Robot,
    mass: KnownMass,
    planes: Sequence[PlaneFit],
    com: Array,
    covariance: Array,
    freedom: Sequence[float | None],
) -> tuple[Parameter, ...]:
    std = np.sqrt(np.diag(covariance))
    given = Parameter('mass', 'kg', mass.value, mass.std or None,
                      State.NOT_EVALUATED, f'given: {mass.source}')
    found = [Parameter(name, 'm', float(value), float(sigma), freedom=count)
             for name, value, sigma, count in zip(COM, com, std, freedom, strict=True)]
    inertia = unidentified_inertia('static torques do not depend on inertia')
    losses = []
    for plane in planes:
        if len(plane.directions) < 2:
            continue
        name = robot.joint_names[plane.plane.joint]
        half = 0.5 * float(np.hypot(*plane.fit.std()[2:2 + len(plane.directions)]))
        forward, backward = plane.friction(1), plane.friction(-1)
        losses += [
            Parameter(f'{name}.friction_cancelled', 'N·m', 0.5 * (forward - backward), half,
                      note='opposite in the two directions'),
            Parameter(f'{name}.torque_offset', 'N·m', 0.5 * (forward + backward), half,
                      note='the same in both directions'),
        ]
    return (given, *found, *inertia, *losses)


def _series(
    robot: Robot, planes: Sequence[PlaneFit], mass: float
) -> tuple[Series, ...]:
    """Return plots of the fit, its residuals, and the recursive estimate."""
    series = []
    for plane in planes:
        name = robot.joint_names[plane.plane.joint]
        size = len(plane.target)
        pick = spread(size, _PLOT_POINTS)
        order = pick[np.argsort(plane.angle[pick], kind='stable')]
        residual = plane.fit.residual[:size]
        series.append(Series(
            f'Torque of {name}, arm and payload separated', f'{name} [rad]', 'torque [N·m]',
            plane.angle[order],
            {'measured minus the arm': plane.target[order],
             'fit with friction': (plane.target - residual)[order],
             'payload alone': plane.plane.regressor(plane.angle[order], mass)
             @ plane.fit.value[:2]}))
        series.append(Series(f'Residuals of {name}', f'{name} [rad]', 'residual [N·m]',
                             plane.angle[order], {'measured minus fit': residual[order]}))
        series.append(_convergence(name, plane, mass))
    return tuple(series)


def _convergence(name: str, plane: PlaneFit, mass: float) -> Series:
    signs = np.concatenate([np.full(s.stop - s.start, s.direction) for s in plane.sweeps])
    size = len(plane.target)
    count = np.unique(np.geomspace(min(10, size), size, _TRACE_POINTS).astype(int))
    value, sigma = convergence(
        _plane_rows(plane.plane, plane.angle, signs, mass), plane.target, _PRIOR_STD,
        max(rms(plane.fit.residual), _LEAST_NOISE), count.tolist())
    return Series(
        f'Recursive estimate, plane of {name}', 'samples', 'lever [m]', count.astype(float),
        {'along gravity': value[:, 0], 'sideways': value[:, 1],
         'along gravity, 95 % upper': value[:, 0] + 1.96 * sigma[:, 0],
         'along gravity, 95 % lower': value[:, 0] - 1.96 * sigma[:, 0],
         'sideways, 95 % upper': value[:, 1] + 1.96 * sigma[:, 1],
         'sideways, 95 % lower': value[:, 1] - 1.96 * sigma[:, 1]})

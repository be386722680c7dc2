# SPDX-License-Identifier: Apache-2.0
"""Centre of mass of a payload of known mass, from static torques in two planes of rotation.

Samples → steady sweeps → one plane per joint (l cosγ, l sinγ, friction per direction) →
centre of mass in the tool frame → checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, DataError, ExcitationError
from robocal_ros.estimation import (
    PERIODS,
    SLOWEST_SWEEP,
    Effect,
    LinearFit,
    RippleRun,
    Sweep,
    autocorrelation_time,
    find_ripple,
    fit_mixed,
    grouped,
    ripple_columns,
    scaled_inverse,
    solve,
    steady_sweeps,
)
from robocal_ros.messages import JointSamples, check_effort, check_joints
from robocal_ros.payload.model import Plane, second_plane
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.result import (
    ACCURACY_SETTINGS,
    ARM_SOURCE,
    COM,
    MAX_GAIN_STD,
    accuracy_checks,
    at_most,
    braking_check,
    identified,
    largest_source,
    make_result,
    mounted_check,
    plotted,
    same_tool,
    unidentified_inertia,
)
from robocal_ros.results import CalibrationResult, Check, Fit, Parameter, Series, State, rms
from robocal_ros.robot import ArmModel, RigidBodyInertia, Robot, SteadyFriction, gravity_changes

MIN_SWEEP = float(np.radians(20.0))
"""Shortest sweep that counts [rad]."""

MAX_PLANE_DISAGREEMENT = 0.003
"""Largest difference between the two planes, and to the held-out sweeps, beyond chance [m]."""

_SAME_POSTURE = 0.03
# Probability below which held-out levers contradict the fit beyond chance.
_SIGNIFICANCE = 0.05
# Sweeps must be faster than the slowest detectable one by this factor.
_LEAST_MARGIN = 1.1
# Probability of a contradiction between a stored result and this one by chance.
_CONTRADICTION = 1e-3
# Width of the bins of angle in which both directions are compared [rad]: small against the period
# of weight, and wide enough for several samples at usual speeds.
_BIN = 0.02
# Ripple of so many periods within the sweeps can be separated from weight.
_FEWEST_PERIODS = 3.0
# Share of the largest singular value below which columns of ripple are the same.
_SAME_COLUMN = 1e-4
# Smallest noise of effort [N·m]; keeps the weights of noise-free recordings finite.
_LEAST_NOISE = 1e-6
# Prior standard deviations of (x, y) [m] and of one friction torque per direction [N·m].
_PRIOR_STD = np.array([1.0, 1.0, 100.0, 100.0])


class KnownMass(NamedTuple):
    """Given mass of the payload.

    Attributes:
        value: Mass [kg].
        std: Standard deviation [kg].
        source: Its origin.

    """

    value: float
    std: float
    source: str


def check_sweeps(values: PayloadParameters) -> None:
    """Raise a ConfigurationError if sweeps are too slow to be distinguished from rest."""
    slowest = values.sweep_speed * values.speed_scale
    if slowest < _LEAST_MARGIN * SLOWEST_SWEEP:
        raise ConfigurationError(
            f'sweep_speed {values.sweep_speed} rad/s at speed_scale {values.speed_scale} makes '
            f'sweeps of {slowest:.4g} rad/s; at least {_LEAST_MARGIN * SLOWEST_SWEEP:.4g} rad/s '
            'are needed to distinguish them from rest. Raise one of the two.')


def known_mass(
    values: PayloadParameters, stored: CalibrationResult | None, now: float = np.nan
) -> KnownMass:
    """Return the mass from known_mass, else from a stored payload result of the same tool.

    Args:
        values: The node's parameters.
        stored: Stored payload result, None without one.
        now: Present stamp, for the age of the stored result [s].

    Raises:
        ConfigurationError: If there is neither, the stored mass is that of another tool, or the
            mass exceeds max_payload.

    """
    if values.known_mass > 0.0:
        mass = KnownMass(float(values.known_mass), float(values.known_mass_std), 'known_mass')
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
        whose = f" of tool '{tool}'" if tool else ''
        mass = KnownMass(found.value, found.std or 0.0,
                         f'the stored result of {stored.method}{whose}{age}')
    if 0.0 < values.max_payload < mass.value:
        raise ConfigurationError(
            f'known_mass is {mass.value} kg, but max_payload allows '
            f'{values.max_payload} kg. Mount a lighter tool or correct the limit.')
    return mass


@dataclass(frozen=True)
class PlaneFit:
    """Fit of the sweeps of one joint.

    Attributes:
        plane: Geometry.
        sweeps: The sweeps that were used.
        friction_model: Identified friction that was subtracted, None without.
        directions: Directions present, in the order of the fit's friction columns.
        fit: (x, y) and one friction torque per direction; covariance from the scatter and
            correlation of the residuals.
        freedom: Degrees of freedom of the residuals' scatter.
        target: Torque of payload and friction, shape (k,) [N·m].
        residual: Measured minus fitted torque, shape (k,) [N·m].
        angle: Joint angles, shape (k,) [rad].
        lever_change: Derivative of (x, y) with respect to ``target``, shape (2, k).

    """

    plane: Plane
    sweeps: tuple[Sweep, ...]
    friction_model: SteadyFriction | None
    directions: tuple[int, ...]
    fit: LinearFit
    freedom: float
    target: Array
    residual: Array
    angle: Array
    lever_change: Array

    @property
    def lever(self) -> Array:
        """(x, y), shape (2,) [m]."""
        return self.fit.value[:2]

    def friction(self, direction: int) -> float:
        """Return the friction torque of a direction [N·m], 0 if it is not present."""
        if direction not in self.directions:
            return 0.0
        return float(self.fit.value[2 + self.directions.index(direction)])


@dataclass(frozen=True)
class HeldOut:
    """Sweeps of one joint in other postures, predicted from the fit.

    Attributes:
        fit: Residuals.
        expected: RMS residual of the fitted sweeps and of the prediction's uncertainty [N·m].
        lever: Error of the lever that would explain them, shape (2,) [m]; empty if it is
            unobservable.
        std: Its standard deviation, prediction included, same shape [m].

    """

    fit: Fit
    expected: float
    lever: Array
    std: Array


Torques = Callable[[Array, Array, Array, Array], Array]
"""Uncertain torques in some states, as ``ArmModel.uncertain_torques`` returns them."""


class PlaneEstimator:
    """Estimate of one plane that is updated while the joint turns.

    Estimates (x, y) and one friction torque per direction, so that friction, of opposite sign
    in the two directions, is not mistaken for weight.
    """

    def __init__(self, plane: Plane, mass: float, noise: float) -> None:
        """Start from the prior.

        Args:
            plane: Geometry.
            mass: Mass of the payload [kg].
            noise: Standard deviation of one effort sample [N·m].

        """
        self.plane, self.count = plane, 0
        self._mass, self._noise = mass, noise
        self._information, self._right = np.diag(_PRIOR_STD**-2.0), np.zeros(4)

    def update(self, angle: float, torque: float, direction: int) -> None:
        """Update with one sample.

        Args:
            angle: Joint angle [rad].
            torque: Effort minus the arm's own gravity torque [N·m].
            direction: +1 or -1.

        """
        row = np.append(self.plane.regressor(np.array([angle]), self._mass),
                        (direction > 0, direction < 0))
        self._information += np.outer(row, row) / self._noise**2
        self._right += row * torque / self._noise**2
        self.count += 1

    def estimate(self) -> tuple[Array, Array]:
        """Return the unknowns and their standard deviations, shape (4,) each."""
        covariance = scaled_inverse(self._information)
        return covariance @ self._right, np.sqrt(np.diag(covariance))


def _groups(sweeps: Iterable[Sweep]) -> list[list[Sweep]]:
    """Group a joint's sweeps by the posture of the other joints, widest group first."""

    def alike(a: Sweep, b: Sweep) -> bool:
        apart = np.abs(np.delete(a.posture - b.posture, b.joint))
        return bool((apart < _SAME_POSTURE).all())

    return sorted(grouped(sweeps, alike), key=lambda group: -sum(sweep.span for sweep in group))


def _by_sweep(values: Array, sweeps: Sequence[Sweep]) -> list[Array]:
    """Split values of all samples, along the last axis, into those of each sweep."""
    lengths = [sweep.stop - sweep.start for sweep in sweeps]
    return np.split(values, np.cumsum(lengths)[:-1], axis=-1)


def _paired(angle: Array, sign: Array) -> tuple[scipy.sparse.csr_array, Array]:
    """Return how samples of equal angle are averaged, and what the averages are.

    In the mean of both directions (0) all friction cancels that is opposite in them, whatever its
    dependence on angle and load, and so do delays; in half of their difference (1) weight does.
    Where one direction is missing (2), neither does.

    Args:
        angle: Joint angles, shape (k,) [rad].
        sign: Directions, +1 or -1, shape (k,).

    Returns:
        Matrix of shape (m, k), and 0, 1 or 2 for each row, shape (m,).

    """
    bins = np.unique(np.floor(angle / _BIN), return_inverse=True)[1]
    means = []
    for direction in (1.0, -1.0):
        rows = np.flatnonzero(sign == direction)
        weight = 1.0 / np.bincount(bins[rows], minlength=bins.max() + 1)[bins[rows]]
        means.append(scipy.sparse.csr_array(
            (weight, (bins[rows], rows)), shape=(bins.max() + 1, len(angle))))
    forward, backward = means
    both = (np.diff(forward.indptr) > 0) & (np.diff(backward.indptr) > 0)
    found: Any = scipy.sparse.vstack([0.5 * (forward + backward)[both],
                                      0.5 * (forward - backward)[both],
                                      (forward + backward)[~both]], format='csr')
    return found, np.repeat((0, 1, 2), (both.sum(), both.sum(), (~both).sum()))


def _noise(residual: Array, kind: Array, unknowns: int) -> tuple[Array, float]:
    """Return the noise of averages by ``_paired`` and the degrees of freedom that weight has.

    Independent averages are fewer than all by their autocorrelation time.

    Args:
        residual: Residuals, shape (m,) [N·m].
        kind: Kind of each, shape (m,).
        unknowns: Number of estimated parameters.

    Returns:
        Standard deviation of each, shape (m,) [N·m], and the degrees of freedom.

    """
    variance, freedom = np.zeros(3), np.ones(3)
    for number in range(3):
        part = residual[kind == number]
        if len(part):
            freedom[number] = max(len(part) / autocorrelation_time(part) - unknowns, 1.0)
            variance[number] = part @ part / freedom[number]
    # One direction alone has the errors of both.
    variance[2] = max(variance[2], variance[0] + variance[1])
    return np.maximum(np.sqrt(variance), _LEAST_NOISE)[kind], float(
        freedom[0 if (kind == 0).any() else 2])


@dataclass(frozen=True)
class _Recording:
    """Recorded sweeps.

    Attributes:
        robot: The arm without the payload.
        samples: Joint states.
        values: The node's parameters.
        friction: Identified friction by joint name.
        duration: Time from the first to the last sweep [s].

    """

    robot: Robot
    samples: JointSamples
    values: PayloadParameters
    friction: Mapping[str, SteadyFriction]
    duration: float

    def targets(self, sweeps: Sequence[Sweep]) -> tuple[Array, Array, Array]:
        """Return joint angle, torque of payload and unmodelled friction, and direction."""
        joint = sweeps[0].joint
        rows = np.concatenate([np.arange(sweep.start, sweep.stop) for sweep in sweeps])
        position, effort = self.samples.position[rows], self.samples.effort[rows, joint]
        torque = effort - self.robot.gravity_torques(position)[:, joint]
        speed = np.concatenate([np.full(s.stop - s.start, s.speed) for s in sweeps])
        friction = self.friction.get(self.robot.joint_names[joint])
        if friction is not None:
            torque = torque - friction.torque_of_drive(speed, effort)
        return position[:, joint], torque, np.sign(speed)

    def plane_fit(self, sweeps: Sequence[Sweep], mass: float) -> PlaneFit:
        """Fit the sweeps of one joint.

        Args:
            sweeps: The sweeps.
            mass: Mass of the payload [kg].

        Raises:
            DataError: If there is one direction only, and no friction law.
            ExcitationError: If the lever is unobservable.

        """
        joint = sweeps[0].joint
        name = self.robot.joint_names[joint]
        friction = self.friction.get(name)
        angle, target, sign = self.targets(sweeps)
        reference = np.mean([sweep.posture for sweep in sweeps], axis=0)
        reference[joint] = 0.5 * (angle.min() + angle.max())
        plane = Plane.at(self.robot, reference, joint)
        directions = tuple(d for d in (1, -1) if (sign == d).any())
        if len(directions) < 2 and friction is None:
            raise DataError(
                f"Joint '{name}' was swept in one direction only, so its friction cannot be "
                'separated from weight; sweep it in both directions, or identify friction first.')
        columns = np.column_stack([sign == d for d in directions]).astype(float)
        regressor = np.hstack((plane.regressor(angle, mass), columns))
        names = ['x', 'y', *(f'friction_{"forward" if d > 0 else "backward"}' for d in directions)]
        hint = f"Sweep joint '{name}' over a wider angle."
        free = solve(regressor, target, 1.0, names, hint=hint)
        fewest = max(2.0 * np.pi * _FEWEST_PERIODS / float(np.ptp(angle)), PERIODS + 1.0)
        ripples = find_ripple([RippleRun.of_samples(*part) for part in zip(
            _by_sweep(angle, sweeps), _by_sweep(free.residual, sweeps), strict=True)], fewest)
        if ripples:
            regressor = np.hstack((regressor, ripple_columns(angle, ripples)))
            names += [f'ripple_{i}' for i in range(2 * len(ripples))]
            free = solve(regressor, target, 1.0, names, hint=hint)
        average, kind = _paired(angle, sign)
        # Noise is what is left beside ripple of fewer periods, too.
        cycles = np.arange(1.0, fewest).repeat(2)
        slow = np.sin(np.outer(angle, cycles) + 0.5 * np.pi * (np.arange(len(cycles)) % 2))
        rows, aims = average @ np.hstack((regressor, slow)), average @ target
        noise, freedom = np.ones(len(kind)), 1.0
        for _ in range(2):
            # With equal weights, then with those of the scatter.
            value, _, rank, _ = np.linalg.lstsq(
                rows / noise[:, None], aims / noise, rcond=_SAME_COLUMN)
            noise, freedom = _noise(aims - rows @ value, kind, int(rank))
        speed = float(np.mean([abs(sweep.speed) for sweep in sweeps]))
        known = [0.0 if friction is None else float(friction.torque(d * speed))
                 for d in directions]
        level = columns @ (free.value[2:2 + len(directions)] + known)
        # Priors: friction changes during the sweeps, and the identified law is what is left of it,
        # with a load factor that the load may contradict. Columns of one standard deviation.
        time, posture = (np.concatenate([values[s.start:s.stop] for s in sweeps])
                         for values in (self.samples.time, self.samples.position))
        change = self.values.friction_change_std
        changes = (change * level * (time - 0.5 * (time.min() + time.max())) / self.duration)[
            :, None]
        if friction is not None:
            # Without noise, which that of the measured torque would resemble.
            load = self.robot.gravity_torques(posture)[:, joint] + (
                plane.regressor(angle, mass) @ free.value[:2])
            std = np.sqrt(friction.covariance[[int(d < 0) for d in directions], -1, -1])
            changes = np.hstack((changes, columns * directions * std * (
                np.abs(load) - friction.reference_load)[:, None]))
        fixed, regressor = len(names), np.hstack((regressor, changes))
        names += [f'friction_change_{i}' for i in range(changes.shape[1])]
        priors = dict.fromkeys(range(fixed, len(names)), 1.0)
        # Where torque varies many times per turn, it varies a few times, too, by as much as the
        # data tell of the many: bearings and gears run out of true. Of any that is too slow to be
        # found, the data tell the size.
        size = rms(np.array([(item.sine, item.cosine) for item in ripples])) if ripples else 0.0
        slowest, means = cycles <= PERIODS, average @ slow
        mixed = fit_mixed(average @ regressor[:, :fixed], aims, noise, [
            Effect('friction', average @ changes, prior_std=1.0, estimated=False),
            Effect('expected', means[:, slowest], prior_std=size, estimated=False),
            Effect('ripple', means)])
        freedom = min(freedom, *(mixed.freedom(row) or np.inf
                                 for row in np.eye(fixed)[:2]))
        priors |= dict(enumerate(np.hypot(max(mixed.std['ripple'], _LEAST_NOISE),
                                          size * slowest), start=len(names)))
        regressor = np.hstack((regressor, slow))
        names += [f'slow_ripple_{i}' for i in range(slow.shape[1])]
        if friction is not None:
            for place, (d, torque) in enumerate(zip(directions, known, strict=True), start=2):
                priors[place] = float(np.hypot(
                    max(float(friction.deviation(d * speed)), 1e-3), change * torque))
        std = np.concatenate((noise, list(priors.values())))
        rows = np.vstack((average @ regressor, np.eye(len(names))[list(priors)]))
        # Means and differences of both directions may differ in noise by any factor.
        fit = solve(rows, np.append(aims, np.zeros(len(priors))), std, names, hint=hint)
        gain = fit.covariance[:2] @ (rows / std[:, None]**2).T[:, :len(noise)]
        return PlaneFit(plane, tuple(sweeps), friction, directions, fit, freedom, target,
                        target - regressor @ fit.value, angle, gain @ average)

    def lever_shift(self, sweeps: Sequence[Sweep], change: Array, torques: Torques) -> Array:
        """Return what torques that are not known change of a joint's lever, shape (2, p) [m].

        Args:
            sweeps: The sweeps.
            change: Derivative of the lever by their torques, shape (2, k).
            torques: As for ``ArmModel.uncertain_torques``.

        """
        shift: Array | float = 0.0
        for sweep, part in zip(sweeps, _by_sweep(change, sweeps), strict=True):
            rows = self.samples.rows(sweep.start, sweep.stop)
            still = np.zeros_like(rows.position)
            shift = shift + part @ torques(
                rows.position, still, still, rows.effort)[:, sweep.joint]
        return np.asarray(shift)

    def held_out(
        self, plane: PlaneFit, groups: Sequence[Sequence[Sweep]], mass: KnownMass, com: _Centre,
        unknown: Mapping[str, Torques],
    ) -> HeldOut | None:
        """Predict a joint's sweeps in other postures; None without such sweeps.

        Args:
            plane: Fit of the joint's widest group.
            groups: The other groups.
            mass: Mass of the payload.
            com: The centre of mass.
            unknown: Torques of inputs that are not known, by source.

        """
        used: list[Sweep] = []
        found: list[tuple[Array, ...]] = []
        for group in groups:
            usable = [sweep for sweep in group if sweep.direction in plane.directions]
            if not usable:
                continue
            angle, target, sign = self.targets(usable)
            reference = np.mean([sweep.posture for sweep in usable], axis=0)
            try:
                other = Plane.at(self.robot, reference, plane.plane.joint)
            except ExcitationError:
                # The axis is too close to vertical: there is no torque to predict.
                continue
            loss = np.where(sign > 0, plane.friction(1), plane.friction(-1))
            rows = other.regressor(angle, mass.value)
            used += usable
            # Groups are compared with themselves only.
            found.append((angle + 100.0 * len(found), sign, rows, rows @ other.rows,
                          target - loss, target - rows @ other.lever(com.value) - loss))
        if not found:
            return None
        angle, sign, regressor, places, measured, left = map(
            np.concatenate, zip(*found, strict=True))
        fit = Fit(f'torque of {plane.plane.name}', 'N·m', rms(measured), rms(left), len(left))
        average, kind = _paired(angle, sign)
        try:
            lever = solve(average @ regressor, average @ left, 1.0, ('x', 'y'), max_condition=1e3)
            noise, _ = _noise(lever.residual, kind, 2)
            lever = solve(average @ regressor, average @ left, noise, ('x', 'y'))
        except ExcitationError:
            return HeldOut(fit, rms(plane.residual), np.empty(0), np.empty(0))
        change = lever.covariance @ (average @ regressor / noise[:, None]**2).T @ average
        # Errors of the prediction and of these sweeps have common causes; that of the mass changes
        # what all levers mean.
        predicted = change @ places
        covariance = lever.covariance.copy()
        for name, shift in com.shifts.items():
            error = -predicted @ shift
            if name == _OF_MASS:
                error -= mass.std / mass.value * (change @ (measured - left))[:, None]
            elif name in unknown:
                error += self.lever_shift(used, change, unknown[name])
            covariance += error @ error.T
        by_lever = np.sum(regressor @ covariance * regressor, axis=1)
        return HeldOut(fit, float(np.sqrt(rms(plane.residual)**2 + by_lever.mean())), lever.value,
                       np.sqrt(np.diag(covariance)))


@dataclass(frozen=True)
class _Centre:
    """Centre of mass from both levers.

    Attributes:
        value: In the tool frame, shape (3,) [m].
        shifts: Its errors by independent causes of one standard deviation each, by source, shape
            (3, p) [m].
        chi_square: How far the levers are from those of one centre, with one degree of freedom.

    """

    value: Array
    shifts: Mapping[str, Array]
    chi_square: float

    @property
    def unlikely(self) -> bool:
        """Whether the levers contradict each other beyond chance."""
        return self.chi_square > float(scipy.special.chdtri(1, 0.01))

    @property
    def parts(self) -> dict[str, Array]:
        """Covariance by source, larger by what the levers contradict each other, (3, 3) [m²]."""
        return {name: (self.chi_square if self.unlikely else 1.0) * shift @ shift.T
                for name, shift in self.shifts.items()}


def _combine(fits: Sequence[PlaneFit], errors: Mapping[str, Array]) -> _Centre:
    """Combine both planes' levers to a centre of mass in the tool frame by weighted LS.

    Args:
        fits: Both planes.
        errors: Errors of both levers by independent causes of one standard deviation each, by
            source, shape (4, p) [m]. Noise and joint angles weight the levers.

    """
    places = np.vstack([fit.plane.rows for fit in fits])
    levers = np.concatenate([fit.lever - fit.plane.offset for fit in fits])
    whitening = np.linalg.inv(np.linalg.cholesky(
        sum(errors[name] @ errors[name].T for name in (_OF_NOISE, _OF_ANGLES))))
    fit = solve(
        whitening @ places, whitening @ levers, 1.0, COM, max_condition=1e3,
        hint='The two joint axes are (nearly) parallel; set another second_joint.')
    gain = fit.covariance @ (whitening @ places).T @ whitening
    # What no centre changes of the levers shows how far they contradict each other.
    odd = scipy.linalg.null_space(places.T)[:, 0]
    chance = odd @ np.hstack(list(errors.values()))
    return _Centre(fit.value, {name: gain @ error for name, error in errors.items()},
                   float((odd @ levers)**2 / (chance @ chance)))


def _planes(
    robot: Robot, sweeps: Sequence[Sweep], values: PayloadParameters
) -> tuple[dict[int, list[list[Sweep]]], int]:
    """Return the groups of sweeps by joint, and the second plane's joint.

    It is second_joint, else the one closest to the last joint that was swept.
    """
    groups = {joint: _groups(sweep for sweep in sweeps if sweep.joint == joint)
              for joint in {sweep.joint for sweep in sweeps}}
    second = second_plane(robot, values.second_joint)
    return groups, max((joint for joint in groups if joint < robot.n - 1),
                       default=robot.n - 2) if second is None else second


_OF_NOISE = 'noise of the sweeps: use wider or slower ones'
_OF_MASS = 'the mass: weigh the payload more accurately (known_mass_std)'
_OF_ANGLES = 'joint angles (posture_std)'
_OF_TILT = 'the tilt of the base: level it, or state how level it is (tilt_std)'
_OF_POSTURE = 'levers that differ between postures: friction or links depend on the posture'


def _swept_far_enough(
    robot: Robot, samples: JointSamples, groups: Mapping[int, list[list[Sweep]]], joint: int
) -> list[Sweep]:
    """Return the sweeps of a joint's widest group.

    Raises:
        DataError: If they are too short, or lack efforts.

    """
    name = robot.joint_names[joint]
    if joint not in groups:
        raise DataError(
            f"Joint '{name}' did not turn at constant speed with all others at rest; expected "
            'sweeps in both directions. Record the sweeps of the method, or call run.')
    widest = max(sweep.span for sweep in groups[joint][0])
    if widest < MIN_SWEEP:
        raise DataError(
            f"The longest sweep of joint '{name}' covers {np.degrees(widest):.1f}°; at least "
            f'{np.degrees(MIN_SWEEP):.0f}° are needed to separate weight from friction.')
    used = [sweep for sweep in groups[joint][0] if sweep.span >= MIN_SWEEP]
    for sweep in used:
        check_effort(samples.rows(sweep.start, sweep.stop), [name])
    return used


def estimate(
    robot: Robot, samples: JointSamples, values: PayloadParameters,
    friction: Mapping[str, SteadyFriction] | None = None,
    stored: CalibrationResult | None = None, arm: ArmModel | None = None,
) -> CalibrationResult:
    """Estimate the centre of mass from recorded sweeps.

    The sweeps are detected in the samples; those of each joint's widest posture group are
    fitted, those in other postures are held out.

    Args:
        robot: The arm without the payload.
        samples: Joint states of the sweeps.
        values: The node's parameters.
        friction: Identified friction by joint name.
        stored: Stored result; its mass is used if known_mass is 0, and it is compared.
        arm: What is not known of the arm's links and drive gains; None to take both for exact.

    Raises:
        ConfigurationError: If the parameters do not fit the arm.
        DataError: If the samples lack the sweeps that the method needs.
        ExcitationError: If a direction of the centre of mass is unobservable.

    """
    check_joints(samples, robot.joint_names)
    mass = known_mass(values, stored, float(samples.time[-1]))
    found = steady_sweeps(samples, min_span=0.17)
    groups, second = _planes(robot, found, values)
    joints = (robot.n - 1, second)
    used = [_swept_far_enough(robot, samples, groups, joint) for joint in joints]
    recording = _Recording(robot, samples, values, friction or {}, float(
        samples.time[max(s.stop for s in found) - 1] - samples.time[min(s.start for s in found)]))
    planes = [recording.plane_fit(sweeps, mass.value) for sweeps in used]
    errors = _own_errors(planes, mass, values)
    unknown = _unknown_torques(robot, _combine(planes, errors).value, mass, values, arm)
    errors |= {name: np.vstack([
        recording.lever_shift(plane.sweeps, plane.lever_change, torques) for plane in planes])
        for name, torques in unknown.items()}
    com = _combine(planes, errors)
    held_out = [item for plane, joint in zip(planes, joints, strict=True) if (
        item := recording.held_out(plane, groups[joint][1:], mass, com, unknown))]
    between = _between_postures(held_out)
    com = _combine(planes, {**errors, _OF_POSTURE: between * np.eye(4)})
    parts, covariance = com.parts, np.sum(list(com.parts.values()), axis=0)
    at = int(np.argmax(np.diag(covariance)))
    source = largest_source({name: float(part[at, at]) for name, part in parts.items()})
    centre = identified(COM, ['m'] * 3, com.value, covariance, _freedom(parts, planes, held_out))
    given = Parameter('mass', 'kg', mass.value, mass.std or None, State.NOT_EVALUATED,
                      f'given: {mass.source}')
    whole = np.pad(covariance, ((1, 0), (1, 0)))
    whole[0, 0] = mass.std**2
    whole[0, 1:] = whole[1:, 0] = mass.std * com.shifts[_OF_MASS][:, 0]
    swept = [plane for plane in planes if len(plane.directions) > 1]
    losses = [_losses(plane) for plane in swept]
    return make_result(
        robot, samples, method='two_plane',
        parameters=(
            given, *centre, *unidentified_inertia('static torques do not depend on inertia'),
            *(item for plane in planes for item in _lever(plane.plane, centre, covariance)),
            *(parameter for found, _ in losses for parameter in found)),
        covariance_names=COM, covariance=covariance,
        fit=tuple(Fit(f'torque of {p.plane.name}', 'N·m', rms(p.target), rms(p.residual),
                      len(p.target)) for p in planes),
        validation=tuple(item.fit for item in held_out),
        checks=(*accuracy_checks(robot, (given, *centre), whole, values, source, source),
                *(() if arm is None or arm.evidence else (_gain_check(planes, arm),)),
                *_checks(planes, com.value, com.unlikely, held_out),
                braking_check([plane.plane.name for plane in swept], [loss for _, loss in losses]),
                *_torque_check(robot, planes, com.value, covariance, stored, values)),
        counts={'fitted': sum(len(p.target) for p in planes),
                'sweeps': sum(len(p.sweeps) for p in planes),
                'held_out_sweeps': sum(len(g) for joint in joints for g in groups[joint][1:])},
        settings={
            **values.settings('tool', 'posture_std', 'friction_change_std', 'arm_model_std',
                              'tilt_std', 'gain_std', *ACCURACY_SETTINGS),
            'min_sweep': MIN_SWEEP, 'known_mass': mass.value, 'known_mass_std': mass.std,
            'mass_source': mass.source, 'max_plane_disagreement': MAX_PLANE_DISAGREEMENT,
            'second_joint': robot.joint_names[second],
            'friction_model': [p.plane.name for p in planes if p.friction_model is not None],
            'lever_scatter': between},
        series=tuple(item for plane in planes for item in _series(plane, mass.value)))


def _own_errors(
    planes: Sequence[PlaneFit], mass: KnownMass, values: PayloadParameters
) -> dict[str, Array]:
    """Return errors of both levers by noise, joint angles and mass, as for ``_combine``."""
    noise = [np.linalg.cholesky(plane.fit.covariance[:2, :2]) for plane in planes]
    turned = [values.posture_std * np.array([[-plane.lever[1]], [plane.lever[0]]])
              for plane in planes]
    return {
        _OF_NOISE: scipy.linalg.block_diag(*noise),
        _OF_ANGLES: scipy.linalg.block_diag(*turned),
        # Torques are products of mass and lever.
        _OF_MASS: -mass.std / mass.value * np.concatenate(
            [plane.lever for plane in planes])[:, None]}


def _unknown_torques(
    robot: Robot, com: Array, mass: KnownMass, values: PayloadParameters, arm: ArmModel | None
) -> dict[str, Torques]:
    """Return torques of one standard deviation of inputs that are not known, by source."""
    found: dict[str, Torques] = {} if arm is None else {ARM_SOURCE: arm.uncertain_torques}
    if values.tilt_std > 0.0:
        tilts = gravity_changes(robot.with_payload(
            RigidBodyInertia(mass.value, com, np.zeros((3, 3)))))
        found[_OF_TILT] = lambda position, *_: values.tilt_std * np.stack(
            [tilted.gravity_torques(position) for tilted in tilts], axis=2)
    return found


def _between_postures(held_out: Sequence[HeldOut]) -> float:
    """Return the standard deviation of levers between postures [m], 0 if not significant.

    A moment estimate: what the errors of the levers in held-out postures exceed their own
    variance by.
    """
    if not held_out:
        return 0.0
    error, std = (np.concatenate(parts) for parts in zip(
        *((item.lever, item.std) for item in held_out), strict=True))
    if np.sum((error / std) ** 2) <= scipy.special.chdtri(len(error), _SIGNIFICANCE):
        return 0.0
    return float(np.sqrt(max(np.mean(error**2 - std**2), 0.0)))


def _freedom(
    parts: Mapping[str, Array], planes: Sequence[PlaneFit], held_out: Sequence[HeldOut]
) -> list[float | None]:
    """Return the degrees of freedom of each element of the centre, by Satterthwaite."""
    total = np.diag(np.sum(list(parts.values()), axis=0))
    own, scatter = (np.diag(parts[name]) / total for name in (_OF_NOISE, _OF_POSTURE))
    inverse = own**2 / min(plane.freedom for plane in planes) + scatter**2 / max(
        sum(len(item.lever) for item in held_out), 1)
    return [float(1.0 / item) if item > 1e-6 else None for item in inverse]


def _gain_check(planes: Sequence[PlaneFit], arm: ArmModel) -> Check:
    """Check that drive gains without any evidence are stated to be known well enough.

    Where an arm was identified or gains were calibrated, the intervals alone judge.
    """
    gains = np.sqrt(np.diag(arm.covariance)[11 * arm.robot.n:])
    worst = max((item.plane for item in planes), key=lambda plane: float(gains[plane.joint]))
    std = gains[worst.joint]
    return at_most(
        'drive gain', std, MAX_GAIN_STD, '1',
        f"The drive gain of joint '{worst.name}' is known to {100 * std:.2g} % "
        f'(limit {100 * MAX_GAIN_STD:.0f} %). Above it, calibrate the '
        'drive gains (calibrate_gains), or state a smaller gain_std if efforts come from joint '
        'torque sensors.', 'trustworthy')


def _checks(
    planes: Sequence[PlaneFit], com: Array, unlikely: bool, held_out: Sequence[HeldOut]
) -> Iterator[Check]:
    limit = MAX_PLANE_DISAGREEMENT
    disagreement = max(float(np.abs(plane.lever - plane.plane.lever(com)).max())
                       for plane in planes)
    yield Check('planes agree', not (unlikely and disagreement > limit), disagreement, limit, 'm',
                f'The two planes agree within {1e3 * disagreement:.2f} mm '
                f'(limit {1e3 * limit:.1f} mm beyond chance).', 'adequate')
    for item in held_out:
        fit = item.fit
        lever, std = (float(np.abs(part).max(initial=0.0)) for part in (item.lever, item.std))
        ratio = fit.after / item.expected if item.expected > 0.0 else float('inf')
        yield at_most(
            f'held-out {fit.what}', ratio, 2.0, '1',
            f'Held-out {fit.what}: RMS residual {fit.after:.3f} N·m of {fit.before:.3f} N·m, '
            f'{ratio:.2f} times those of the fit and of its uncertainty (limit 2).', 'adequate')
        yield at_most(
            f'held-out lever, {fit.what}', lever, limit + 4.0 * std, 'm',
            f'Held-out {fit.what}: {1e3 * lever:.2f} mm of lever unexplained '
            f'(limit {1e3 * (limit + 4.0 * std):.1f} mm).', 'adequate')


def _torque_check(
    robot: Robot, planes: Sequence[PlaneFit], com: Array, covariance: Array,
    stored: CalibrationResult | None, values: PayloadParameters,
) -> Iterator[Check]:
    """Check that there are torques where a stored result of the same tool expects them."""
    if stored is None or not same_tool(stored, values.tool, robot.tool_frame):
        return
    off = com - stored.values(COM)
    apart = float(off @ np.linalg.solve(covariance + stored.covariance_of(COM), off))
    torque = sum(float(item.lever @ np.linalg.solve(
        item.fit.covariance[:2, :2] + item.plane.rows @ covariance @ item.plane.rows.T,
        item.lever))
        for item in planes)
    limit = float(scipy.special.chdtri(3, _CONTRADICTION))
    missing = apart > limit and torque < float(
        scipy.special.chdtri(2 * len(planes), _CONTRADICTION))
    yield mounted_check(
        missing, apart, limit, '1',
        f'The payload exerts no torque, but by the stored result ({stored.method}, '
        f'{stored.source}) its centre is {1e3 * float(np.linalg.norm(off)):.0f} mm off.')


def _losses(plane: PlaneFit) -> tuple[tuple[Parameter, ...], tuple[float, float]]:
    """Return what is opposite and the same in both directions of a joint, and its friction.

    The latter as for ``braking_check`` [N·m], with the identified law that was subtracted.
    """
    name, forward, backward = plane.plane.name, plane.friction(1), plane.friction(-1)
    both = 0.5 * np.array([[1.0, -1.0], [1.0, 1.0]])
    std, offset_std = np.sqrt(np.diag(both @ plane.fit.covariance[2:4, 2:4] @ both.T)).tolist()
    loss, model = 0.5 * (forward - backward), plane.friction_model
    parameters = (
        Parameter(f'{name}.friction_cancelled', 'N·m', loss, std,
                  note='opposite in the two directions'),
        Parameter(f'{name}.torque_offset', 'N·m', 0.5 * (forward + backward), offset_std,
                  note='the same in both directions'))
    if model is not None:
        speed = float(np.mean([abs(sweep.speed) for sweep in plane.sweeps]))
        loss += 0.5 * float(model.torque(speed) - model.torque(-speed))
    return parameters, (loss, std)


def _lever(
    plane: Plane, centre: Sequence[Parameter], covariance: Array
) -> tuple[Parameter, Parameter]:
    """Return distance and angle of the centre in a plane, the method's l and γ."""
    x, y = plane.lever(np.array([item.value for item in centre]))
    length, name = float(np.hypot(x, y)), plane.name
    along = np.array([[x, y], [-y, x]]) / length @ plane.rows
    std, across = np.sqrt(np.diag(along @ covariance @ along.T)).tolist()
    freedom = min((item.freedom for item in centre if item.freedom is not None), default=None)
    note = f'from gravity, at {name} = {plane.reference[plane.joint]:.4f} rad'
    found = (f'{name}.lever_angle', 'rad')
    return (Parameter(f'{name}.lever', 'm', length, std, note='from the axis', freedom=freedom),
            Parameter(*found, float(np.arctan2(y, x)), across / length, note=note,
                      freedom=freedom) if length > 2.0 * across else
            Parameter(*found, None, None, State.NOT_IDENTIFIED,
                      'the centre is within two deviations of the axis'))


def _series(plane: PlaneFit, mass: float) -> tuple[Series, ...]:
    """Return plots of the fit and its residuals."""
    name, pick = plane.plane.name, plotted(len(plane.target))
    order = pick[np.argsort(plane.angle[pick], kind='stable')]
    angle, target, residual = (x[order] for x in (plane.angle, plane.target, plane.residual))
    return (
        Series(f'Torque of {name}, arm and payload separated', f'{name} [rad]', 'torque [N·m]',
               angle, {'measured minus the arm': target, 'fit with friction': target - residual,
                       'payload alone': plane.plane.regressor(angle, mass) @ plane.lever}),
        Series(f'Residuals of {name}', f'{name} [rad]', 'residual [N·m]', angle,
               {'measured minus fit': residual}))

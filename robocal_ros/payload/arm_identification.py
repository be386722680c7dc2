# SPDX-License-Identifier: Apache-2.0
"""Result of an identification of the arm: links, rotors, friction, offsets, drive gains.

Samples → blocks → maximum a posteriori estimate (``arm_regression``) → base parameters, held-out
torque, checks. The prior of a second motion, with a weighed load, is the first one's result; the
load determines the drive gains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pinocchio as pin
import scipy

from robocal_ros.arrays import Array, Flags, covariance_factor
from robocal_ros.errors import ConfigurationError, ConvergenceError
from robocal_ros.estimation import autocorrelation_time, scaled_inverse
from robocal_ros.messages import JointSamples
from robocal_ros.payload.arm_regression import (
    EVIDENCE,
    WIDENINGS,
    ArmFit,
    ArmMotion,
    KnownFriction,
    Law,
    Prior,
    identify,
)
from robocal_ros.payload.parameters import PayloadParameters
from robocal_ros.payload.regression import BAND, MIN_MOTION, UNEVEN, on_found_base
from robocal_ros.payload.result import (
    CERTAIN,
    MAX_GAIN_STD,
    PLAUSIBLE_GAINS,
    at_most,
    braking_check,
    fit_series,
    identified,
    make_result,
    same_tool,
)
from robocal_ros.results import Z95, CalibrationResult, Check, Fit, Parameter, State, rms
from robocal_ros.robot import (
    ARM,
    DRIVEN_STD,
    GRAVITY,
    LINK_UNITS,
    ROTOR_SPREAD,
    URDF_FREEDOM,
    ArmFriction,
    Robot,
    SteadyFriction,
    carried_load,
    expected_rotors,
    gravity_changes,
    link_parameters,
    moved_parameters,
    on_leaning_base,
    parameter_names,
    physically_consistent,
    spring_names,
)

MIN_SHARE = 0.5
"""Least share of a base parameter's information that comes from the data, not from the URDF, for
the parameter to count as identified."""

# Share of the motion for the validation.
_HELD_OUT = 0.25
# Prior standard deviation of the centre of mass of a weighed load and of a tool that was left on
# [m], and least one of a load's mass (relative).
_LOAD_REACH, _TOOL_REACH = 0.5, 0.1
_LEAST_LOAD_STD = 1e-4
# Relative size of columns without influence, and of weights left out of base parameters.
_STRUCTURAL = 1e-7
_COMBINED = 1e-3
# Standard deviation of links, as a share, at which the URDF has no more influence.
_WIDE = 10.0
# Largest unexplained share of the held-out torque.
_MAX_UNEXPLAINED = 0.7
# Least share of base parameters identified from the motion.
_MIN_INFORMED = 0.25
_ROUGH_URDF = 0.2
# Orders of a load that is looked for, each as likely, as shares of the arm's mass.
_LOAD_SHARES = np.array([0.025, 0.1, 0.4])
# Standard deviation of load-dependent friction that is not to be estimated.
_FIXED = 1e-6
_FRICTION_UNITS = {'offset': 'N·m', 'coulomb': 'N·m', 'viscous': 'N·m·s/rad',
                   'sublinear': 'N·m·(s/rad)^0.5', 'load': '1', 'stribeck': 'N·m'}


_NO_ARM = (
    'No physically consistent arm near the URDF explains the torques of this motion (range {:.1f} '
    'to {:.1f} rad within {:.0f} s): {}. Check whether the masses in the URDF are placeholders, '
    'whether a tool is mounted, and the axes, order and signs of the joints and the unit of the '
    'efforts; or use a faster or longer motion.')


def estimate(
    robot: Robot, samples: JointSamples, values: PayloadParameters, *, scale: Array,
    scale_covariance: Array, calibrated: bool = False, before: CalibrationResult | None = None,
    stored: CalibrationResult | None = None, friction: Mapping[str, SteadyFriction] | None = None,
) -> CalibrationResult:
    """Identify the arm.

    Args:
        robot: The arm without load, by its URDF.
        samples: Joint states of an exciting motion, efforts divided by ``scale``.
        values: The node's parameters.
        scale: Drive gains in use, shape (n,).
        scale_covariance: Covariance of their relative errors, shape (n, n).
        calibrated: Whether they were calibrated by a motion of this arm.
        before: Result of a motion without load; required with ``arm_load``.
        stored: Stored payload, which must not be mounted; None without one.
        friction: Friction that was identified before with the same drive gains, by joint name.

    Raises:
        ConfigurationError: If ``arm_load`` is set without such a result.
        DataError: If the record is not an exciting motion or has no usable efforts.
        ConvergenceError: If no physically consistent arm near the URDF explains the torques.

    """
    check_load(values, before)
    loaded = values.arm_load > 0.0
    if not loaded:
        before = None
    given = {joint: known for joint, law in ArmFriction(friction, robot.joint_names).laws.items()
             if (known := KnownFriction.of(law)) is not None}

    prior_of = partial(_prior, scale=scale, scale_covariance=scale_covariance,
                       calibrated=calibrated, before=before, friction=given)
    with _refused_by_name(samples):
        base, motion, prior, fit = _fitted(robot, samples, values, prior_of, given)
        validation = _held_out(robot, motion, prior, fit)
    mounted = () if loaded else (
        _load_check(robot, motion, prior, fit),
        *_stored_load_check(robot, motion, prior, fit, values, stored))
    names, n = parameter_names(robot.joint_names), robot.n
    left = [column[trusted] for column, trusted in zip(
        fit.residual.T, (motion.trust == 1.0).T, strict=True)]
    sprung = _springs(robot, motion, fit)
    at, shown = [*range(12 * n), *sprung], np.concatenate((
        np.ones(11 * n), scale, np.ones(len(sprung))))
    covariance = fit.covariance[np.ix_(at, at)] * np.outer(shown, shown)
    combinations, told = zip(*_base_parameters(robot, motion, fit, prior), strict=True)
    return make_result(
        robot, samples, kind=ARM, method='loaded' if loaded else 'unloaded', frame='',
        parameters=(*_parameters(robot, names, fit.value[:12 * n] * shown[:12 * n],
                                 covariance[:12 * n, :12 * n], fit,
                                 _informed(robot, fit, prior, before)),
                    *sprung.values(),
                    *_friction(robot, fit), *_changes(robot, motion, fit, given), *combinations,
                    *_gravity(robot, base, motion, fit), _delay(motion)),
        covariance_names=(*names, *(item.name for item in sprung.values())),
        covariance=covariance,
        fit=_fits(robot, motion.effort, fit.residual, np.ones(motion.effort.shape, dtype=bool)),
        validation=validation,
        checks=(*_checks(robot, fit, validation, told, values),
                braking_check(robot.joint_names, _powers(motion, fit)), *mounted,
                motion.recording),
        counts={'rows': motion.effort.size},
        settings={'band': BAND, 'min_motion': MIN_MOTION, 'model_std': fit.std,
                  'unexplained': dict(zip(robot.joint_names, map(rms, left), strict=True)),
                  # The travel over which it stays the same.
                  'unexplained_travel': {joint: float(travel * autocorrelation_time(column))
                                         for joint, travel, column in zip(
                                             robot.joint_names, motion.travel, left, strict=True)},
                  # Where their torque is zero; the offset of the efforts contains the rest.
                  'spring_angle': motion.middle.tolist(),
                  'laws': {joint: [law.transition, *law.extras] for joint, law
                           in zip(robot.joint_names, fit.places.laws, strict=True)},
                  **values.settings('arm_model_std', 'gain_std', 'arm_load', 'arm_load_std',
                                    'load_friction_std', 'saturation_std',
                                    'max_unexplained_torque')},
        series=tuple(
            fit_series(f'Torque of {joint}', f'torque of {joint} [N·m]', measured, left)
            for joint, measured, left in zip(
                robot.joint_names, motion.effort.T, fit.residual.T, strict=True)))


def _fitted(
    robot: Robot, samples: JointSamples, values: PayloadParameters,
    prior_of: Callable[[Robot, ArmMotion, PayloadParameters], Prior],
    given: Iterable[int] = (), couplings: Iterable[tuple[int, int]] = (),
) -> tuple[Robot, ArmMotion, Prior, ArmFit]:
    """Return the arm on its base as the data find it, a motion, its prior and estimate.

    Args:
        robot: The arm.
        samples: Joint states.
        values: The parameters.
        prior_of: Returns the prior.
        given: Joints whose friction was identified before.
        couplings: Pairs of joints of which a motor turns the sum of their angles.

    Raises:
        ConvergenceError: If no arm with plausible gains explains the torques.

    """
    widenings = (1.0,) if values.arm_load > 0.0 else WIDENINGS

    def fitted_on(
        robot: Robot, values: PayloadParameters, load: Array
    ) -> tuple[Robot, ArmMotion, Prior, ArmFit]:
        motion = ArmMotion.of(robot, samples, values, load, given, couplings)
        prior = prior_of(robot, motion, values)
        try:
            fit = identify(motion, prior, widenings=widenings)
        except ConvergenceError:
            fit = identify(motion, prior, widenings=widenings, springs=False)
        low, high = PLAUSIBLE_GAINS
        gains = fit.value[fit.places.gains]
        if gains.min() < low or gains.max() > high:
            raise ConvergenceError(f'the drive gains would be {gains.min():.2g} to '
                                   f'{gains.max():.2g} (plausible: {low} … {high})')
        return robot, motion, prior, fit

    load = np.array([values.arm_load, *[0.0] * 9])
    first = _, motion, _, fit = fitted_on(robot, values, load)
    others = fit.value[fit.places.others]
    found = on_found_base(robot, others[:len(motion.tilts)][motion.tilts], values)
    if not values.arm_load and found is None:
        return first
    return fitted_on(*(found or (robot, values)), others[-len(load):] if values.arm_load else load)


@contextmanager
def _refused_by_name(samples: JointSamples) -> Iterator[None]:
    """Raise a ConvergenceError with what to check for one of the identification."""
    try:
        yield
    except ConvergenceError as error:
        spans = np.ptp(samples.position, axis=0)
        raise ConvergenceError(_NO_ARM.format(
            spans.min(), spans.max(), samples.time[-1] - samples.time[0], error)) from error


class MotionFriction(NamedTuple):
    """Friction of one joint in the blocks of an exciting motion in which it is one of speed.

    Attributes:
        velocity: Velocity of the joint, shape (k,) [rad/s].
        torque: Effort minus what moves the arm: friction and offset, shape (k,) [N·m].
        load: Torque that the gear transmits, shape (k,) [N·m].
        left: What the identified arm with its friction leaves of the effort, shape (k,) [N·m].
        place: Number of the block within one repeat of the motion, shape (k,).
        errors: Changes of ``torque`` by one standard deviation of each unknown that the joints
            have in common, shape (k, m) [N·m].
        own: The same by unknowns of this joint: gears that lose less when they are driven, and
            drives that saturate, shape (k, 2) [N·m].

    """

    velocity: Array
    torque: Array
    load: Array
    left: Array
    place: npt.NDArray[np.intp]
    errors: Array
    own: Array


def friction_in_motion(
    robot: Robot, samples: JointSamples, values: PayloadParameters,
    couplings: Sequence[tuple[int, int]] = (),
) -> tuple[list[MotionFriction], dict[str, tuple[float, Array]], Check]:
    """Return friction of all joints beside the identified arm.

    Args:
        robot: The arm, with what it carries.
        samples: Joint states of an exciting motion.
        values: The parameters.
        couplings: Pairs of joints of which a motor turns the sum of their angles.

    Returns:
        Friction of each joint; friction and inertia of the motors of coupled joints by name, with
        the changes by the same unknowns, shape (m,); and the check of the recording.

    Raises:
        DataError: If the record is not an exciting motion or has no usable efforts.
        ConvergenceError: If no physically consistent arm near the URDF explains the torques.

    """
    n = robot.n
    prior_of = partial(_prior, scale=np.ones(n), scale_covariance=values.gain_std**2 * np.eye(n),
                       calibrated=False, before=None, friction={})
    with _refused_by_name(samples):
        _, motion, _, fit = _fitted(robot, samples, values, prior_of, couplings=couplings)
    x, places = fit.value, fit.places
    # Friction that differs by direction is friction, too.
    uneven = places.common + np.flatnonzero(
        [name.startswith(UNEVEN) for name in motion.nuisances])
    rigid = np.flatnonzero(~np.isin(places.rigid, uneven))
    at = np.r_[places.rigid[rigid], places.gains]
    factor = covariance_factor(fit.covariance[np.ix_(at, at)])
    transmitted, gains = motion.transmitted(x, places), x[places.gains]
    bent = motion.bend_std * motion.bent(x, places, loaded=False)
    found = []
    for joint, gain in enumerate(gains):
        rows = np.flatnonzero(motion.trust[:, joint] == 1.0)
        regressor = motion.regressor[rows, joint][:, rigid]
        moving, load = regressor @ x[places.rigid[rigid]], transmitted[rows, joint]
        slopes = gain * regressor @ factor[:-n] + moving[:, None] * factor[len(rigid) + joint]
        by_load = places.load_friction[joint]
        driven = DRIVEN_STD * np.hypot(x[by_load], np.sqrt(fit.covariance[by_load, by_load]))
        found.append(MotionFriction(
            motion.velocity[:, rows, joint].mean(axis=0), motion.effort[rows, joint]
            - gain * moving, load, fit.residual[rows, joint],
            rows % (len(motion.effort) // motion.repeats), -slopes,
            np.column_stack((gain * driven * load, bent[rows, joint]))))
    coupled = {}
    for number, name in enumerate(motion.nuisances):
        if '+' in name:
            own = [robot.index(joint) for joint in name.partition('.')[0].split('+')]
            row, gain = int(np.flatnonzero(at == places.common + number)[0]), gains[own].mean()
            value = float(x[places.common + number])
            coupled[name] = value * float(gain), gain * factor[row] + value * factor[
                np.add(own, len(rigid))].mean(axis=0)
    return found, coupled, motion.recording


def check_load(
    values: PayloadParameters, before: CalibrationResult | None, absent: str = ''
) -> None:
    """Raise a ConfigurationError if there is a load and no result of a motion without load.

    Args:
        values: The parameters.
        before: The stored result, None without one.
        absent: Sentence on a result that did not pass, from ``absence``.

    """
    if values.arm_load > 0.0 and before is None:
        raise ConfigurationError(
            f'arm_load is {values.arm_load} kg, but no arm identified without load is stored.'
            f'{absent} Remove the load, set arm_load to 0 and identify the arm; then repeat with '
            'the load.')


def _prior(
    robot: Robot, motion: ArmMotion, values: PayloadParameters, *, scale: Array,
    scale_covariance: Array, calibrated: bool, before: CalibrationResult | None,
    friction: Mapping[int, KnownFriction],
) -> Prior:
    n = robot.n
    others = np.stack((np.zeros_like(motion.nuisance_std), motion.nuisance_std))
    if values.arm_load > 0.0:
        mass = values.arm_load
        others = np.hstack((others, _load_prior(
            mass, mass, max(values.arm_load_std, _LEAST_LOAD_STD * mass))))
    rotors = expected_rotors(robot)
    links = physically_consistent(link_parameters(robot))
    load_friction = np.tile([[0.0], [max(values.load_friction_std, _FIXED)]], n)
    for joint, known in friction.items():
        if known.load_factor[1] > 0.0 < values.load_friction_std:
            load_friction[:, joint] = known.load_factor
    if before is None:
        information = np.zeros((12 * n, 12 * n))
        information[10 * n:11 * n, 10 * n:11 * n] = np.diag((ROTOR_SPREAD * rotors) ** -2.0)
        information[11 * n:, 11 * n:] = np.linalg.inv(scale_covariance)
        mean = np.concatenate((links.ravel(), rotors, np.ones(n)))
        return Prior(values.arm_model_std, mean, information, others, load_friction,
                     information[11 * n:, 11 * n:] * (not calibrated), np.zeros((11 * n, n)),
                     np.zeros(n), friction)
    names = parameter_names(robot.joint_names)
    shown = np.concatenate((np.ones(11 * n), scale))
    mean = before.values(names) / shown
    covariance = before.covariance_of(names) / np.outer(shown, shown)
    # All gains and links by a common factor; rotors act on their own joint only.
    weights = np.linalg.solve(
        covariance[11 * n:, 11 * n:] / np.outer(mean[11 * n:], mean[11 * n:]), np.ones(n))
    # The covariance contains the URDF; the divergence only keeps the links consistent.
    prior = Prior(_WIDE, mean, np.zeros((12 * n, 12 * n)), others, load_friction,
                  np.zeros((n, n)), np.vstack((np.tile(weights / weights.sum(), (10 * n, 1)),
                                               np.eye(n))), np.zeros(n), friction)
    _, slopes = prior.counted(mean)
    covariance = slopes @ covariance @ slopes.T
    size = np.sqrt(np.diag(covariance))
    return replace(prior, information=np.linalg.inv(
        covariance / np.outer(size, size) + 1e-9 * np.eye(12 * n)) / np.outer(size, size))


def _load_prior(mean: float, size: float, std: float, reach: float = _LOAD_REACH) -> Array:
    """Return means and standard deviations of a load's parameters, shape (2, 10).

    Args:
        mean: Mean of its mass [kg].
        size: Mass of which first and second moments are expected [kg].
        std: Standard deviation of its mass [kg].
        reach: Standard deviation of its centre [m].

    """
    return np.array([[mean, *[0.0] * 9], [std, *[reach * size] * 3, *[reach**2 * size] * 6]])


def _load_check(robot: Robot, motion: ArmMotion, prior: Prior, fit: ArmFit) -> Check:
    """Check that the motion is not explained by links as in the URDF and a load at the tool frame.

    Where links beside a load leave the URDF, too, the data cannot tell a load from links.

    Args:
        robot: The arm by its URDF.
        motion: The motion.
        prior: Prior of an arm without load.
        fit: Its estimate.

    """
    frame = robot.model.frames[robot.frame_id(robot.tool_frame)]
    last = 10 * frame.parentJoint
    carried = motion.regressor[:, :, last - 10:last] @ moved_parameters(frame.placement)
    loaded = replace(motion, regressor=np.concatenate((motion.regressor, carried), axis=2))
    # Links so far off are rare: of the logarithm of a scaled inverse chi distribution.
    width = fit.std / prior.std
    rare = URDF_FREEDOM * (np.log(width) - 0.5 * (1.0 - width**-2.0))
    told = [(0.0, 0.0, np.inf)]
    for size in _LOAD_SHARES * float(prior.mean[fit.places.links][::10].sum()):
        with suppress(ConvergenceError):
            found = identify(loaded, replace(prior, others=np.hstack((
                prior.others, _load_prior(0.0, size, size, _TOOL_REACH)))),
                widenings=WIDENINGS[:2])
            at = found.places.others.stop - 10
            mass, std = float(found.value[at]), float(np.sqrt(found.covariance[at, at]))
            # Without a mass, the load's other parameters are errors of the last link.
            if mass > Z95 * std and found.std == prior.std:
                told.append((float(found.evidence - fit.evidence + rare
                                   - np.log(len(_LOAD_SHARES))), mass, std))
    gain, mass, std = max(told)
    return at_most(
        'no load', gain, EVIDENCE, '1',
        f'Links as in the URDF and a load of {mass:.2f} ± {Z95 * std:.2f} kg at the tool '
        'frame explain the torques, links alone only where they differ from the URDF by '
        f'{100.0 * fit.std:.0f} % (gain in log-evidence {gain:.1f}, limit {EVIDENCE:.0f}). Take '
        'off the tool; what stays mounted belongs into the URDF.'
        if gain > EVIDENCE else 'No load is needed to explain the torques.', 'trustworthy')


def _stored_load_check(
    robot: Robot, motion: ArmMotion, prior: Prior, fit: ArmFit, values: PayloadParameters,
    stored: CalibrationResult | None,
) -> Iterator[Check]:
    """Check that the motion is not explained better with the stored payload mounted.

    Args:
        robot: The arm by its URDF.
        motion: The motion.
        prior: Prior of an arm without load.
        fit: Its estimate.
        values: The parameters.
        stored: Stored payload, None without one.

    """
    if stored is None or not same_tool(stored, values.tool, robot.tool_frame):
        return
    load, frame = carried_load(stored), robot.model.frames[robot.frame_id(stored.frame)]
    body = frame.placement.act(pin.Inertia(load.mass, load.com, load.inertia))
    mean, last = prior.mean.copy(), 10 * frame.parentJoint
    mean[last - 10:last] += body.toDynamicParameters()
    try:
        evidence = identify(motion, replace(prior, mean=mean)).evidence
    except ConvergenceError:
        evidence = -np.inf
    yield at_most(
        'stored payload not mounted', evidence - fit.evidence, EVIDENCE, '1',
        f'The torques are explained better with the stored payload of {load.mass:.3f} kg mounted '
        f'({stored.method}, {stored.source}; gain in log-evidence {evidence - fit.evidence:.1f}, '
        f'limit {EVIDENCE:.0f}). Take off the tool; if it is off, remove the stored result, or '
        'name the tool (tool).' if evidence > fit.evidence + EVIDENCE else
        'The torques do not show the stored payload.', 'trustworthy')


def _fits(robot: Robot, before: Array, after: Array, counted: Flags) -> tuple[Fit, ...]:
    return tuple(
        Fit(f'torque of {joint}', 'N·m', rms(b[rows]), rms(a[rows]), int(rows.sum()))
        for joint, b, a, rows in zip(
            robot.joint_names, before.T, after.T, counted.T, strict=True))


def _held_out(robot: Robot, motion: ArmMotion, prior: Prior, fit: ArmFit) -> tuple[Fit, ...]:
    """Return residuals in the last part of a motion by an estimate from the first.

    Near reversals and at rest, as in pauses, friction is not a function of speed, and the model
    claims nothing: such blocks do not count. A joint that only rests in the last part has what
    the estimate leaves in the first one.
    """
    trusted = motion.trust == 1.0
    reached = np.cumsum(trusted.sum(axis=1))
    border = int(np.searchsorted(reached, (1.0 - _HELD_OUT) * reached[-1]))
    part = identify(motion.part(slice(0, border)), replace(prior, std=fit.std),
                    laws=fit.places.laws, widenings=(1.0,), start=fit.value)
    left = np.vstack((part.residual, motion.part(slice(border, None)).residual(
        part.value, part.places)))
    trusted[:border] &= ~trusted[border:].any(axis=0)
    return _fits(robot, motion.effort, left, trusted)


def _parameters(
    robot: Robot, names: Sequence[str], value: Array, covariance: Array, fit: ArmFit,
    informed: Flags,
) -> tuple[Parameter, ...]:
    """Return links, rotors and gains.

    Args:
        robot: The arm.
        names: Names of the parameters.
        value: Their values.
        covariance: Their covariance.
        fit: The estimate.
        informed: Link parameters that the motion identifies, shape (10 n,).

    """
    n, unknown = robot.n, value < np.sqrt(np.diag(covariance))
    found = identified(
        names, [*LINK_UNITS * n, *['kg·m²'] * n, *['1'] * n], value, covariance,
        [fit.freedom(direction) for direction in np.eye(len(names), len(fit.value))],
        ['not distinguished from zero' if 10 * n <= at < 11 * n and unknown[at] else ''
         for at in range(12 * n)])
    # What builds on the arm needs all values and their covariance.
    return tuple(
        replace(p, state=State.NOT_IDENTIFIED, note='not distinguished from zero')
        if p.name.endswith('.mass') and (p.interval() or (1.0,))[0] <= 0.0 else
        replace(p, state=State.NOT_IDENTIFIED, note='from the URDF, not identified by the motion')
        if at < 10 * n and not informed[at] else p for at, p in enumerate(found))


def _informed(robot: Robot, fit: ArmFit, prior: Prior, before: CalibrationResult | None) -> Flags:
    """Return the link parameters that are known better than the URDF states, shape (10 n,).

    Where the data contradict the URDF, its prior is wider than stated, and a single link may be
    known only as well as that, although its combinations with others are known.

    Args:
        robot: The arm.
        fit: The estimate.
        prior: Its prior.
        before: Result of the motion without load that is the prior, None without one.

    """
    places = slice(0, 10 * robot.n)
    if before is not None:
        return np.array([before.parameter(name).state is State.IDENTIFIED
                         for name in parameter_names(robot.joint_names)[places]])
    stated, _ = _with_and_without_data(replace(fit, std=prior.std), prior, 0.0)
    left = np.diag(fit.covariance)[places] / np.maximum(np.diag(stated)[places], 1e-300)
    return np.asarray(left <= 1.0 - MIN_SHARE)


def _friction(robot: Robot, fit: ArmFit) -> Iterator[Parameter]:
    for joint, law, at in zip(robot.joint_names, fit.places.laws, fit.places.friction,
                             strict=True):
        yield from identified(
            [f'{joint}.{name}' for name in law.names],
            [_FRICTION_UNITS[name] for name in law.names], fit.value[at], fit.covariance[at, at],
            [fit.freedom(direction) for direction in np.eye(len(fit.value))[at]])


def _powers(motion: ArmMotion, fit: ArmFit) -> Iterator[tuple[float, float]]:
    """Yield for each joint the mean power that its friction takes and its standard deviation."""
    for joint, (law, at) in enumerate(zip(fit.places.laws, fit.places.friction, strict=True)):
        velocity = motion.velocity[2][:, joint]
        columns = law.columns(velocity, np.zeros_like(velocity))
        # Without that of the offset.
        direction = np.append(0.0, velocity @ columns[:, 1:])
        yield (float(direction @ fit.value[at]),
               float(np.sqrt(direction @ fit.covariance[at, at] @ direction)))


def friction_of(result: CalibrationResult, velocity: Array, torque: Array) -> Array:
    """Return the friction and the offsets of an identified arm, shape (k, n) [N·m].

    Args:
        result: The result.
        velocity: Joint velocities, shape (k, n) [rad/s].
        torque: Torques that the joints transmit, shape (k, n) [N·m].

    """
    laws: Mapping[str, Sequence[Any]] = result.settings['laws']
    found = []
    for own, (joint, (transition, *extras)) in enumerate(laws.items()):
        law = Law(float(transition), tuple(extras))
        found.append(law.columns(velocity[:, own], torque[:, own]) @ result.values(
            [f'{joint}.{name}' for name in law.names]))
    return np.column_stack(found)


def _changes(
    robot: Robot, motion: ArmMotion, fit: ArmFit, friction: Mapping[int, KnownFriction]
) -> Iterator[Parameter]:
    """Yield the change of each joint's friction since it was identified, as a share of it.

    It is that of the mean over the compared speeds: what dry and viscous friction each have
    changed by depends on the law.
    """
    for place, (joint, known) in enumerate(friction.items()):
        name, direction = f'{robot.joint_names[joint]}.friction_change', np.zeros(len(fit.value))
        at = fit.places.changes(place)
        direction[at] = known.parts.mean(axis=0) / known.parts.sum(axis=1).mean()
        stated = motion.nuisance_std[at.start - fit.places.others.start]
        variance = float(direction @ fit.covariance @ direction)
        if variance < (1.0 - MIN_SHARE) * stated**2 * float(direction @ direction):
            yield Parameter(name, '1', float(direction @ fit.value), float(np.sqrt(variance)),
                            note='since it was identified', freedom=fit.freedom(direction))
        else:
            yield Parameter(name, '1', state=State.NOT_IDENTIFIED, note='not told by this motion')


def _springs(robot: Robot, motion: ArmMotion, fit: ArmFit) -> dict[int, Parameter]:
    """Return torques per joint angle, as of hoses, that the data call for, by their places.

    Smaller ones, and those that push away from the middle, may be ripple: they are none outside
    the motion.
    """
    found = {}
    for joint, name, number in zip(robot.joint_names, spring_names(robot.joint_names),
                                   motion.springs.tolist(), strict=True):
        place = fit.places.common + number
        value, std = float(fit.value[place]), float(np.sqrt(fit.covariance[place, place]))
        if value > CERTAIN * max(std, motion.nuisance_std[number]):
            found[place] = Parameter(
                name, robot.unit(joint, 'N·m/rad'), value, std, note='as of a hose or spring',
                freedom=fit.freedom(np.eye(len(fit.value))[place]))
    return found


def _gravity(
    robot: Robot, base: Robot, motion: ArmMotion, fit: ArmFit
) -> Iterator[Parameter]:
    """Yield gravity in the root frame if the base leans more than its prior allows.

    Args:
        robot: The arm with gravity as it is stated.
        base: The arm on its base as the data find it.
        motion: The motion on that base.
        fit: Its estimate.

    """
    if base is robot:
        return
    others = fit.places.others
    places = others.start + np.flatnonzero(motion.tilts)
    found = on_leaning_base(base, fit.value[places]).gravity
    slopes = np.stack([change.gravity for change in gravity_changes(base)], axis=1)
    lean = float(np.arccos(found @ robot.gravity / (
        np.linalg.norm(found) * np.linalg.norm(robot.gravity))))
    note = (f'the base leans by {np.degrees(lean):.1f}° against the gravity that is stated; '
            'what uses this arm reckons with it')
    for name, value, slope in zip(GRAVITY, found, slopes, strict=True):
        std = float(np.sqrt(slope @ fit.covariance[np.ix_(places, places)] @ slope))
        yield Parameter(name, 'm/s²', float(value), std, note=note)


def _delay(motion: ArmMotion) -> Parameter:
    if motion.delay.identified:
        return Parameter('delay', 's', motion.delay.value, motion.delay.std,
                         note='of the efforts against the positions')
    return Parameter('delay', 's', state=State.NOT_IDENTIFIED,
                     note=f'standard deviation {1e3 * motion.delay.std:.1f} ms')


def _base_parameters(
    robot: Robot, motion: ArmMotion, fit: ArmFit, prior: Prior
) -> Iterator[tuple[Parameter, bool]]:
    """Yield the base parameters: combinations of links and rotors that torques depend on.

    Beside each one stands whether the motion would identify it with a rough URDF
    (``_ROUGH_URDF``): a good one that the motion hardly improves is no fault of the motion.

    A pivoted QR selects columns of the regressor; the others are combinations of them (Gautier,
    Numerical Calculation of the Base Inertial Parameters of Robots, J. Robot. Syst. 8 (1991) 485,
    doi 10.1002/rob.4620080405).
    """
    n = robot.n
    width = 11 * n
    names = parameter_names(robot.joint_names)[:width]
    units = [*LINK_UNITS * n, *['kg·m²'] * n]
    rows = np.vstack([np.linalg.qr(motion.regressor[:, joint, :width], mode='r')
                      for joint in range(n)])
    norm = np.linalg.norm(rows, axis=0)
    moving = np.flatnonzero(norm > _STRUCTURAL * norm.max())
    _, triangle, order = scipy.linalg.qr(rows[:, moving] / norm[moving], pivoting=True,
                                         mode='economic')
    size = np.abs(np.diag(triangle))
    rank = int((size > _STRUCTURAL * size[0]).sum())
    weights = np.linalg.solve(triangle[:rank, :rank], triangle[:rank, rank:])
    kept, others = moving[order[:rank]], moving[order[rank:]]
    weights = weights * norm[others] / norm[kept][:, None]
    stated = fit.covariance[:width, :width]
    (before, after), (rough_before, rough_after) = (
        _with_and_without_data(fit, prior, std) for std in (0.0, _ROUGH_URDF))
    for row, column in sorted(enumerate(kept), key=lambda item: int(item[1])):
        combination = np.zeros(width)
        combination[column] = 1.0
        combination[others] = np.where(np.abs(weights[row]) > _COMBINED, weights[row], 0.0)
        text = ''.join(f' {"-" if weight < 0.0 else "+"} {abs(weight):.4g} {names[other]}'
                       for other, weight in zip(others, combination[others], strict=True)
                       if weight)
        share, told = (1.0 - float(combination @ found @ combination) / max(
            float(combination @ known @ combination), 1e-300) for known, found in (
                (before, after), (rough_before, rough_after)))
        informed = told >= MIN_SHARE
        name, note = f'base {names[column]}', f'{names[column]}{text}'
        if share < MIN_SHARE:
            yield Parameter(name, units[column], state=State.NOT_IDENTIFIED,
                            note=f'{note}: from the URDF, not identified by the motion'), informed
        else:
            direction = np.concatenate((combination, np.zeros(len(fit.value) - width)))
            yield Parameter(name, units[column], float(combination @ fit.value[:width]),
                            float(np.sqrt(combination @ stated @ combination)), note=note,
                            freedom=fit.freedom(direction)), informed


def _with_and_without_data(fit: ArmFit, prior: Prior, std: float) -> tuple[Array, Array]:
    """Return the covariances of links and rotors by the prior, and by prior and data.

    The links' common error counts as known: what identifies it says nothing of single links.

    Args:
        fit: The estimate.
        prior: Its prior.
        std: Least standard deviation of the URDF's links.

    """
    mode, places = fit.value.copy(), fit.places
    mode[:places.common], mode[places.common] = prior.mean, 0.0
    # Known friction follows any gain, and determines nothing without data.
    information, alone = (
        replace(prior, std=max(fit.std, std), friction=friction).cost(mode, places)[2]
        for friction in (prior.friction, {}))
    size, width = places.common, places.rotors.stop
    both = np.delete(np.delete(information + fit.data, size, 0), size, 1)
    # Other unknowns have priors of their own.
    return (scaled_inverse(alone[:size, :size])[:width, :width],
            scaled_inverse(both)[:width, :width])


def _checks(
    robot: Robot, fit: ArmFit, validation: Sequence[Fit], told: Sequence[bool],
    values: PayloadParameters,
) -> Iterator[Check]:
    if values.arm_load > 0.0:
        # Links are known from the motion without load.
        gains = np.sqrt(np.diag(fit.covariance)[fit.places.gains])
        best = int(np.argmin(gains))
        yield at_most(
            'drive gains', gains[best], MAX_GAIN_STD, '1',
            f"The best drive gain, of '{robot.joint_names[best]}', has a standard deviation of "
            f'{100.0 * gains[best]:.1f} % (limit {100.0 * MAX_GAIN_STD:.0f} %). A heavier load '
            'improves it.', 'informative')
    else:
        share = sum(told) / len(told)
        yield Check(
            'informative motion', share >= _MIN_INFORMED, share, _MIN_INFORMED, '1',
            f'The motion would identify {sum(told)} of {len(told)} base parameters if the masses '
            f'of the URDF were known to {100.0 * _ROUGH_URDF:.0f} % only (limit '
            f'{100.0 * _MIN_INFORMED:.0f} %). A longer, faster motion of all joints identifies '
            'more.', 'informative')
    limits = values.unexplained_torque(robot.effort_limit)
    left = np.array([item.after for item in validation])
    worst = int(np.argmax(left / limits))
    yield at_most(
        'unexplained torque', left[worst], limits[worst], 'N·m',
        f"At '{robot.joint_names[worst]}', {left[worst]:.2f} N·m RMS of the torque on the "
        f'held-out part, {validation[worst].before:.2f} N·m RMS, are not explained (limit '
        f'{limits[worst]:.2f} N·m, max_unexplained_torque).')
    explained = np.array([item.after / max(item.before, 1e-9) for item in validation])
    worst = int(np.argmax(explained))
    yield at_most(
        'explained share', explained[worst], _MAX_UNEXPLAINED, '1',
        f"At '{robot.joint_names[worst]}', {100.0 * explained[worst]:.0f} % of the torque on the "
        'held-out part of the motion is not explained (limit '
        f'{100.0 * _MAX_UNEXPLAINED:.0f} %). The motion is too slow or too short, or the efforts '
        'are not those of these joints.')

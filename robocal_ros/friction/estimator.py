# SPDX-License-Identifier: Apache-2.0
"""Friction result of all joints from recorded runs, and its merge with an older result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import scipy

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.errors import ConfigurationError, ConvergenceError, DataError, ExcitationError
from robocal_ros.estimation import check_contents
from robocal_ros.estimators import Estimator, Needs
from robocal_ros.friction.fit import FrictionFit, JointFit, estimate_presliding
from robocal_ros.friction.model import parameter_names
from robocal_ros.friction.motion_method import MotionFit
from robocal_ros.friction.parameters import DYNAMIC, FrictionParameters
from robocal_ros.friction.runs import UNSTEADY, read_runs
from robocal_ros.messages import JointSamples, Recording, check_effort, check_joints
from robocal_ros.payload import PayloadParameters, friction_in_motion
from robocal_ros.results import (
    CHECK,
    Z95,
    CalibrationResult,
    Check,
    Fit,
    Inputs,
    Parameter,
    Series,
    State,
    rms,
)
from robocal_ros.robot import (
    DIRECTIONS,
    EFFORT_UNITS,
    TEMPERATURE_FACTOR,
    TEMPERATURE_STD,
    TORQUE_ZERO,
    ArmModel,
    Robot,
    TorqueZero,
    alternative_loads,
    carried_load,
    check_effort_unit,
    friction_by_joint,
    identified_arm,
    relative_covariance,
    torque_zero,
    urdf_model,
)

UNITS = {'coulomb': 'N·m', 'static': 'N·m', 'stribeck_velocity': 'rad/s',
         'viscous': 'N·m·s/rad', 'exponent': '1', 'load_factor': '1'}
"""Parameters of a law by direction, with units."""
BRISTLES = {'bristle_stiffness': 'N·m/rad', 'bristle_damping': 'N·m·s/rad'}
"""Additional parameters of the dynamic law, with units."""
_COUPLED = {'coulomb': 'N·m', 'viscous': 'N·m·s/rad', 'inertia': 'kg·m²'}
# Least standard deviation of links that keeps them near the robot description.
_LEAST_MODEL_STD = 0.001
# Standard deviation of the change of friction between two results apart from that by temperature.
_OTHER_CHANGE = 0.1
# Settings by joint, and parts of a result with what names their joint.
_BY_JOINT = ('laws', 'temperatures')
_PARTS = {'parameters': 'name', 'fit': 'what', 'validation': 'what', 'checks': 'name',
          'series': 'title'}


def loaded(robot: Robot, payload: CalibrationResult | None) -> tuple[Robot, list[Robot]]:
    """Return the arm with its payload, and with payloads one standard deviation off."""
    if payload is None:
        return robot, []
    return (robot.with_payload(carried_load(payload), payload.frame),
            [robot.with_payload(load, payload.frame) for load in alternative_loads(payload)])


def estimate(
    robot: Robot, recording: Recording, values: FrictionParameters,
    alternatives: Sequence[Robot] = (), arm: ArmModel | None = None,
) -> CalibrationResult:
    """Estimate friction from recorded runs.

    Args:
        robot: The arm with its payload.
        recording: Joint states of the runs, and temperatures.
        values: The node's parameters. If they name no joints, those that the recording names
            are identified, otherwise all with runs.
        alternatives: The arm with payloads one standard deviation off; see ``SpeedPoint``.
        arm: What is known of the arm without payload; by default its URDF with ``arm_model_std``.

    Raises:
        ConfigurationError: If the arm lacks a joint that is asked for.
        DataError: If no joint was run at constant speed, or efforts are unusable.

    """
    if values.method == 'motion':
        return estimate_motion(robot, recording, values)
    try:
        found = fit_joints(robot, recording, values, alternatives, arm)
    except NoRunsError as no_runs:
        if values.method == 'runs' or recording.joints_wanted:
            raise
        try:
            found_in_motion = estimate_motion(robot, recording, values)
        except (ConvergenceError, DataError, ExcitationError) as error:
            raise NoRunsError(f'{no_runs} As such a motion, it fails: {error}') from error
        if not found_in_motion.covariance_names:
            raise
        return found_in_motion
    return assemble(robot, recording, values, found)


class NoRunsError(DataError):
    """No constant-speed run was found."""


def estimate_motion(
    robot: Robot, recording: Recording, values: FrictionParameters
) -> CalibrationResult:
    """Estimate friction from an arbitrary motion; arguments as for ``estimate``.

    Raises:
        ConfigurationError: If the arm lacks a joint that is asked for.
        DataError: If the motion is too short, or efforts are unusable.

    """
    samples = recording.joints
    wanted = values.joint_names or robot.joint_names
    _check_torques(robot, samples, values)
    check_effort(samples, wanted)
    check_contents(samples, robot, values.effort_contains, values.min_weight_share, None)
    motions, coupled, check = friction_in_motion(
        robot, samples, PayloadParameters(
            arm_model_std=max(values.arm_model_std, _LEAST_MODEL_STD), tilt_std=values.tilt_std),
        [(robot.index(a), robot.index(b)) for a, b in values.couplings])
    found = [MotionFit(joint, motions[robot.index(joint)], values, check) for joint in wanted]
    good = {item.joint for item in found if item.choice is not None and item.passed}
    return assemble(robot, recording, values, found, {
        name: item for name, item in coupled.items()
        if good.issuperset(name.partition('.')[0].split('+'))})


def _parameter(
    name: str, unit: str, numbers: Mapping[str, tuple[float, float]], note: str
) -> Parameter:
    """Return a parameter; ``note`` is the reason if it is not among the identified ones."""
    return Parameter(name, unit, *numbers[name]) if name in numbers else Parameter(
        name, unit, state=State.NOT_IDENTIFIED, note=note)


def _width_checks(result: CalibrationResult, limit: float) -> Iterator[Check]:
    """Yield a check of the width of each joint's friction torque.

    Args:
        result: Friction result.
        limit: Largest half-width of its 95 % interval, as a share of it.

    """
    for joint, law in friction_by_joint(result, one_sided=True).items():
        speed = np.linspace(law.speeds[0], law.speeds[1], 50)
        sides = [side for side, known in enumerate(np.isfinite(law.coulomb)) if known]
        speed = np.concatenate([speed * (1 - 2 * side) for side in sides])
        half = Z95 * rms(law.deviation(speed))
        share = half / max(rms(law.torque(speed)), 1e-12)
        between = result.covariance_of([f'{joint}.coulomb_{side}' for side in DIRECTIONS])
        alike = between[0, 1] / max(np.sqrt(between[0, 0] * between[1, 1]), 1e-12)
        cure = ('Gravity makes most of it: identify the payload and the arm, measure the tilt of '
                'the base, and lower arm_model_std and tilt_std accordingly.' if alike < -0.5 else
                'A change of friction during the runs, which the order of their speeds hides, '
                'makes most of it: mix slow and fast runs.' if alike > 0.5 else
                'Longer and repeated motions narrow it.')
        unit = result.parameter(f'{joint}.coulomb_{DIRECTIONS[sides[0]]}').unit
        widths = Z95 * np.sqrt(between.diagonal())
        # The sum with a viscous part may be known all the same.
        unknown = ', '.join(
            f'{DIRECTIONS[side]} {law.coulomb[side]:.3g} ± {widths[side]:.3g} {unit}'
            for side in sides if law.coulomb[side] < widths[side])
        yield Check(
            f'{joint}: width', share <= limit, 100.0 * share, 100.0 * limit, '%',
            f"Joint '{joint}': the 95 % interval of the friction torque is ±{half:.3g} {unit}, "
            f'{100.0 * share:.0f} % of it (RMS over the measured speeds; limit '
            f'{100.0 * limit:.0f} %, max_friction_interval).'
            + (f' Coulomb friction by itself is not known ({unknown}): use the whole law, and at '
               'the measured speeds only.' if unknown else '')
            + ('' if share <= limit else f' {cure}'), 'informative')


def _check_torques(robot: Robot, samples: JointSamples, values: FrictionParameters) -> None:
    """Check that recording and joints are usable; raises DataError or ConfigurationError."""
    if values.effort_contains == 'external':
        raise ConfigurationError(
            "effort_contains is 'external': such efforts hold no friction. Record all torques of "
            "the drives, and set it to 'all'.")
    check_joints(samples, robot.joint_names)


def fit_joints(
    robot: Robot, recording: Recording, values: FrictionParameters,
    alternatives: Sequence[Robot] = (), arm: ArmModel | None = None,
) -> list[FrictionFit]:
    """Fit each joint; arguments and errors as for ``estimate``."""
    samples, names = recording.joints, values.joint_names or recording.joints_wanted
    wanted = [robot.index(name) for name in names or robot.joint_names]
    _check_torques(robot, samples, values)
    points = read_runs(robot, samples, wanted, alternatives, arm or _described(robot, values))
    moved = sorted({point.joint for point in points if point.rejected != UNSTEADY})
    if not moved:
        raise NoRunsError(
            'No constant-speed run of joint '
            f'{", ".join(robot.joint_names[joint] for joint in wanted)} with all other joints '
            'at rest was found in the recording; expected runs in both directions. Call run, or '
            "record such motions; a recording of other motions suffices for method 'motion'.")
    check_effort(samples, [robot.joint_names[joint] for joint in moved])
    check_contents(samples, robot, values.effort_contains, values.min_weight_share, None)
    # A requested joint without runs fails; other joints without runs are left out.
    found = [FrictionFit(robot.joint_names[joint], [p for p in points if p.joint == joint], values)
             for joint in (sorted(wanted) if names else moved)]
    for item in found:
        if values.model == DYNAMIC and item.passed and not item.missing:
            item.presliding = estimate_presliding(
                robot, samples, robot.index(item.joint), item.law())
    return found


def assemble(
    robot: Robot, recording: Recording, values: FrictionParameters,
    found: Sequence[JointFit], coupled: Mapping[str, tuple[float, Array]] | None = None,
) -> CalibrationResult:
    """Assemble the result from the fitted joints; other arguments as for ``estimate``.

    Of a motion, ``coupled`` holds parameters of the motors of coupled joints by name, with their
    changes by what all joints have in common, shape (s,).
    """
    samples, motion = recording.joints, coupled is not None
    identified, covariance = _identified(found, coupled or {})
    stds = np.sqrt(np.maximum(np.diag(covariance), 0.0)).tolist()
    numbers = {name: (value, std)
               for (name, value), std in zip(identified.items(), stds, strict=True)}
    points = [p for item in found if isinstance(item, FrictionFit) for p in item.points]
    fitted = [item for item in found if item.choice]
    result = CalibrationResult(
        kind='friction', method='motion' if motion else values.model,
        robot=robot.identity, frame='',
        parameters=(
            *(parameter for item in found
              for parameter in _parameters(item, numbers, dynamic=values.model == DYNAMIC)),
            *(Parameter(name, _COUPLED[name.partition('.')[2]], *numbers[name])
              for name in coupled or {})),
        covariance_names=tuple(identified), covariance=covariance,
        fit=tuple(_fit(item, item.fit_degree) for item in fitted),
        validation=tuple(_fit(item, item.held_out_degree) for item in found
                         if item.held_out_degree is not None),
        checks=tuple(check for item in found for check in item.checks),
        counts={'samples': len(samples), **({} if motion else {
            'runs': len(points), 'rejected_runs': sum(bool(p.rejected) for p in points)}),
            **asdict(samples.counts)},
        settings={
            'model': values.model, 'fit_threshold': values.fit_threshold,
            'max_friction_interval': values.max_friction_interval,
            'gravity': [float(g) for g in robot.gravity],
            'joints': list(values.joint_names or recording.joints_wanted or (
                robot.joint_names if motion else ())),
            **({'method': 'motion', 'coupled_joints': list(values.coupled_joints)}
               if motion else {}),
            'arm_model_std': values.arm_model_std, 'tilt_std': values.tilt_std,
            'laws': {item.joint: _law(item) for item in fitted},
            'temperatures': _temperatures(recording, {
                item.joint: item.span for item in found if item.span})},
        source=samples.source, time=float(samples.time[-1]), software_version=__version__,
        series=tuple(series for item in fitted for series in _series(item)))
    return replace(result, checks=(
        *result.checks, *_width_checks(result, values.max_friction_interval)))


def _temperatures(
    recording: Recording, spans: Mapping[str, tuple[float, float]]
) -> dict[str, float]:
    """Return the mean temperature in the span of each joint [°C]; empty without readings."""
    readings = recording.temperatures[np.isfinite(recording.temperatures).all(axis=1)]
    found = {}
    for joint, (begin, end) in spans.items() if len(readings) else ():
        during = (readings[:, 0] >= begin) & (readings[:, 0] <= end)
        found[joint] = float(readings[during if during.any() else slice(None), 1].mean())
    return found


def _parameters(
    item: JointFit, numbers: Mapping[str, tuple[float, float]], *, dynamic: bool,
) -> Iterator[Parameter]:
    """Yield the parameters of a joint.

    Args:
        item: Its fit.
        numbers: Value and standard deviation of identified parameters, by name.
        dynamic: Whether the bristles are part of the model.

    """
    choice, objections = item.choice, ' '.join(item.objections)
    reasons = {'static': item.stribeck_unidentified} if choice is None else {
        **choice.unidentified, 'static': item.stribeck_unidentified,
        **{direction: item.missing for direction in DIRECTIONS if direction not in choice.fits}}
    for direction in DIRECTIONS:
        for name, unit in UNITS.items():
            if name == 'viscous' and f'{item.joint}.exponent_{direction}' in numbers:
                unit = 'N·m·(s/rad)^exponent'
            yield _parameter(f'{item.joint}.{name}_{direction}', unit, numbers, (
                objections or reasons.get(direction) or reasons.get(name)
                or 'not part of the chosen model'))
    notes = item.presliding.unidentified if item.presliding else (
        2 * (objections or 'no slow small reversals are recorded',))
    for (name, unit), note in zip(BRISTLES.items(), notes, strict=True) if dynamic else ():
        yield _parameter(f'{item.joint}.{name}', unit, numbers, note)


def _identified(
    found: Sequence[JointFit], coupled: Mapping[str, tuple[float, Array]]
) -> tuple[dict[str, float], Array]:
    """Return the identified parameters of all joints by name, and their covariance.

    Joints of runs have nothing in common but the tilt of the base.
    """
    values: dict[str, float] = {}
    blocks, shared = [], []
    for item in found:
        if item.choice is None or not item.passed:
            continue
        parts, effects = [], []
        for direction, fit in item.choice.fits.items():
            columns = parameter_names(fit.model)
            # A Stribeck part that is not identified leaves the law as it is, without numbers.
            keep = [i for i, name in enumerate(columns) if not (
                item.stribeck_unidentified and name in ('static', 'stribeck_velocity'))]
            values |= {f'{item.joint}.{columns[i]}_{direction}': float(fit.value[i]) for i in keep}
            parts.append(fit.covariance[np.ix_(keep, keep)])
            effects.append(item.effects[direction][keep])
            shared.append(item.shared[direction][keep])
        common = np.vstack(effects)
        blocks.append(scipy.linalg.block_diag(*parts) + common @ common.T)
        if (bristles := item.presliding) is not None:
            keep = [i for i, reason in enumerate(bristles.unidentified) if not reason]
            values |= {f'{item.joint}.{tuple(BRISTLES)[i]}': float(bristles.value[i])
                       for i in keep}
            blocks.append(bristles.covariance[np.ix_(keep, keep)])
            shared.append(np.zeros((len(keep), shared[-1].shape[1])))
    for name, (value, changes) in coupled.items():
        values[name] = value
        blocks.append(np.zeros((1, 1)))
        shared.append(changes[None])
    common = np.vstack(shared or [np.zeros((0, 0))])
    return values, scipy.linalg.block_diag(np.zeros((0, 0)), *blocks) + common @ common.T


def _offset_share(name: str) -> float:
    """Return the derivative of a parameter by an error of the gravity torque: 1, -1 or 0."""
    if name.rpartition('.')[2].startswith(('coulomb', 'static')):
        return 1.0 if name.endswith('forward') else -1.0
    return 0.0


def _fit(item: JointFit, degree: float) -> Fit:
    """Return the residual of a joint's law by its fit degree [%]."""
    _, torque, *_ = item.torques()
    return Fit(item.joint, 'N·m', rms(torque), 0.01 * degree * rms(torque), len(torque))


def _law(item: JointFit) -> dict[str, object]:
    """Return what a result states of a law besides its parameters."""
    choice = item.choice
    return {} if choice is None else {
        'model': choice.model, 'evidence': choice.evidence(),
        'criteria': {name: float(value) for name, value in choice.criteria.items()},
        'reference_load': item.reference_load,
        'load_factor_std': [fit.open_load_factor for fit in choice.fits.values()],
        'std': item.std, 'drift': item.drift,
        'speeds': item.speeds}


def _series(item: JointFit) -> Iterator[Series]:
    speed, torque, fitted, std = item.torques()
    yield Series(f'Friction of {item.joint}', f'{item.joint} speed [rad/s]', 'friction [N·m]',
                 speed, {'measured': torque, 'fit': fitted})
    yield Series(f'Residuals of {item.joint}', f'{item.joint} speed [rad/s]', 'residual [N·m]',
                 speed, {'measured minus fit': torque - fitted, '+ 1.96 σ of the run': Z95 * std,
                         '- 1.96 σ of the run': -Z95 * std})
    if item.presliding is not None:
        yield Series(
            f'Reversals of {item.joint}', f'{item.joint} [rad]', 'friction [N·m]',
            item.presliding.angle,
            {'measured': item.presliding.torque, 'fit': item.presliding.fitted})


def summary(result: CalibrationResult) -> str:
    """Return Coulomb friction of every joint with its 95 % interval, and the worst fit degree."""
    joints = [name for name in dict.fromkeys(
        p.name.rpartition('.')[0] for p in result.parameters) if '+' not in name]

    def coulomb(joint: str) -> str:
        sides = [result.parameter(f'{joint}.coulomb_{direction}') for direction in DIRECTIONS]
        return f'{joint} ' + ' / '.join(
            p.text(3) if p.value is None else f'{p.text(3)} {p.unit}' for p in sides)

    degree = max(check.value for check in result.checks if check.name.endswith(': fit'))
    return (f'Coulomb friction forward / backward (95 %): {"; ".join(map(coulomb, joints))}. '
            f'Fit degree at most {degree:.2f} %.')


def friction_temperature(result: CalibrationResult) -> float:
    """Return the mean temperature at which joints were identified [°C], NaN if unknown."""
    temperatures = result.settings.get('temperatures') or {}
    return float(np.mean(list(temperatures.values()))) if temperatures else float('nan')


def select_joints(result: CalibrationResult, joints: Sequence[str]) -> CalibrationResult:
    """Return the part of a friction result that belongs to some joints."""
    def selected(name: str) -> bool:
        return all(joint in joints for joint in _joint_of(name).split('+'))

    rows = [i for i, name in enumerate(result.covariance_names) if selected(name)]
    parts: dict[str, Any] = {
        part: tuple(item for item in getattr(result, part) if selected(getattr(item, name)))
        for part, name in _PARTS.items()}
    return replace(
        result, covariance_names=tuple(result.covariance_names[i] for i in rows),
        covariance=result.covariance[np.ix_(rows, rows)],
        settings={name: {joint: item for joint, item in value.items() if joint in joints}
                  if name in _BY_JOINT else value for name, value in result.settings.items()},
        **parts)


def _joint_of(name: str) -> str:
    """Return the joint, or the pair of joints, of a part of a result by its name."""
    return name.rpartition(' of ')[2].partition('.')[0].partition(':')[0]


def merge(old: CalibrationResult | None, new: CalibrationResult) -> CalibrationResult | None:
    """Return the joints of a new result that passed, and all other joints of the old result.

    A joint whose fit could not be validated on left-out speeds counts as not passed.

    Returns:
        None if no joint is left.

    """
    judged = dict.fromkeys(_joint_of(check.name) for check in new.checks)
    failed = {_joint_of(check.name) for check in new.checks if not check.passed}
    if CHECK in failed:
        return None
    if old is not None and (_units(old) != _units(new) or old.efforts not in (None, new.efforts)):
        # Torques of other drive gains or motor constants cannot be combined. Results of earlier
        # versions do not tell their constants.
        old = None
    validated = {fit.what for fit in new.validation}
    passed = [name for name in judged if name in validated and name not in failed]
    others = [] if old is None else [
        name for name in dict.fromkeys(_joint_of(p.name) for p in old.parameters)
        if name not in passed and '+' not in name]
    fresh = select_joints(new, passed)
    fresh = replace(fresh, checks=(
        *fresh.checks, *(check for check in new.checks if check.name == CHECK)))
    if not passed and not others:
        return None
    kept = select_joints(new if old is None else old, others)
    order = {name: i for i, name in enumerate(new.robot.joint_names)}
    joined: dict[str, Any] = {name: (*getattr(kept, name), *getattr(fresh, name))
                              for name in (*_PARTS, 'covariance_names')}
    if old is not None:
        joined['parameters'] += tuple(_temperature_factors(old, fresh))
    joined['parameters'] = tuple(sorted(
        joined['parameters'], key=lambda p: order[_joint_of(p.name).partition('+')[0]]))
    by_joint = {name: {**kept.settings.get(name, {}), **fresh.settings.get(name, {})}
                for name in _BY_JOINT if name in {**kept.settings, **fresh.settings}}
    return replace(fresh, settings={**fresh.settings, **by_joint},
                   covariance=scipy.linalg.block_diag(kept.covariance, fresh.covariance), **joined)


def _temperature_factors(old: CalibrationResult, new: CalibrationResult) -> Iterator[Parameter]:
    """Yield the change of friction per kelvin of each joint that two results have.

    The change between two temperatures is that by the temperature, and another one, by wear or a
    new gear, of ``_OTHER_CHANGE``. Each new temperature improves what the older results told.
    """
    before, after = friction_by_joint(old), friction_by_joint(new)
    for joint in [name for name in after if name in before]:
        laws = law, newer = before[joint], after[joint]
        factor, variance = law.temperature_factor, law.temperature_std**2
        low, high = (pick(law.speeds[end] for law in laws) for end, pick in ((0, max), (1, min)))
        warmer = newer.temperature - law.temperature
        if np.isfinite(warmer) and 0.0 < low < high < np.inf:
            speed = np.geomspace(low, high, 20)
            speed = np.concatenate((speed, -speed))
            sizes = [rms(item.torque(speed)) for item in laws]
            noise = _OTHER_CHANGE**2 + sum(
                (rms(item.deviation(speed)) / sizes[0])**2 for item in laws)
            change = sizes[1] / sizes[0] - 1.0
            told = 1.0 / variance + warmer**2 / noise
            factor, variance = (factor / variance + warmer * change / noise) / told, 1.0 / told
        if variance < TEMPERATURE_STD**2:
            known = variance < 0.5 * TEMPERATURE_STD**2
            yield Parameter(
                joint + TEMPERATURE_FACTOR, '1/K', factor, float(np.sqrt(variance)),
                state=State.IDENTIFIED if known else State.NOT_IDENTIFIED,
                note='' if known else 'measure at temperatures that differ more')


def _units(result: CalibrationResult) -> set[tuple[str, str]]:
    """Return the results that set the units of the efforts; none without drive gains."""
    return {(item.kind, item.sha256) for item in result.inputs
            if item.kind in EFFORT_UNITS and item.sha256}


def _described(
    robot: Robot, values: FrictionParameters, gains: CalibrationResult | None = None
) -> ArmModel:
    """Return the arm by its URDF, without doubt of efforts that are not scaled."""
    return urdf_model(robot, values.arm_model_std, relative_covariance(robot, gains, 0.0))


def known_arm(
    robot: Robot, values: FrictionParameters, inputs: Inputs
) -> tuple[Robot, list[Robot], ArmModel]:
    """Return the arms as by ``loaded``, and what is known of the arm as for ``estimate``."""
    arm = identified_arm(robot, values, inputs.gains) or _described(robot, values, inputs.gains)
    return *loaded(arm.robot, inputs.get('payload')), arm


def _estimate(
    robot: Robot, recording: Recording, values: FrictionParameters, inputs: Inputs
) -> CalibrationResult:
    check_effort_unit(values, inputs.gains)
    known, alternatives, arm = known_arm(robot, values, inputs)
    result = estimate(known, recording, values, alternatives, arm)
    zero = inputs.get(TORQUE_ZERO)
    if zero is not None:
        result = _of_zeroed_torques(result, torque_zero(robot, zero))
    # What the gains' errors do to gravity, the estimate contains.
    return _widened(result, _size, relative_covariance(robot, inputs.gains, 0.0))


def _size(name: str, value: float) -> float:
    """Return the change of a parameter of friction by the scale of all torques."""
    return 0.0 if 'stribeck_velocity' in name or 'exponent' in name or (
        'load_factor' in name) else value


def _widened(
    result: CalibrationResult, effect: Callable[[str, float], float], covariance: Array
) -> CalibrationResult:
    """Return a result with the covariance of something of each joint.

    Args:
        result: The result.
        effect: Returns the derivative of a parameter by it, given its name and value.
        covariance: Of all joints, shape (n, n).

    """
    names, joints = result.covariance_names, result.robot.joint_names
    effects = np.array([effect(name, value) * np.isin(joints, _joint_of(name).split('+'))
                        / (1 + _joint_of(name).count('+'))
                        for name, value in zip(names, result.values(names), strict=True)])
    effects = effects.reshape(-1, len(joints))
    covariance = result.covariance + effects @ covariance @ effects.T
    std = dict(zip(names, np.sqrt(np.diag(covariance)).tolist(), strict=True))
    return replace(result, covariance=covariance, parameters=tuple(
        replace(p, std=std[p.name]) if p.name in std and p.state is State.IDENTIFIED else p
        for p in result.parameters))


def _of_zeroed_torques(result: CalibrationResult, zero: TorqueZero) -> CalibrationResult:
    """Return a result from torques without their zeros, with the covariance of these."""
    joints = result.robot.joint_names
    laws = {joint: {**law, 'torque_zero': float(zero.offset[joints.index(joint)])}
            for joint, law in result.settings['laws'].items()}
    return replace(_widened(result, lambda name, _: _offset_share(name), zero.covariance),
                   settings={**result.settings, 'laws': laws})


FRICTION = Estimator(
    'friction', FrictionParameters, ('run', 'estimate'),
    lambda values: Needs(effort=True, temperature_topic=values.temperature_topic),
    lambda values: tuple(kind for kind, used in (
        ('payload', values.use_payload), (TORQUE_ZERO, values.use_torque_zero)) if used),
    _estimate, summary, merge=merge)

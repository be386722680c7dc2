# SPDX-License-Identifier: Apache-2.0
"""Estimation of joint compliance from end positions without and with a load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.compliance.fit import ComplianceFit, fit_compliance, shrunk_angles
from robocal_ros.compliance.geometry import tracked
from robocal_ros.compliance.geometry_estimator import estimate_geometry
from robocal_ros.compliance.measurement import (
    Displacements,
    EndPosition,
    Registration,
    Target,
    check_registration,
    displacements,
    find_end_positions,
    found_sets,
    marked_sets,
    register,
    visits,
)
from robocal_ros.compliance.model import UNIT, Mounted, check_arm, kinds, mounted_of, predicted
from robocal_ros.compliance.parameters import LOADED_UNLOADED, OF_GEOMETRY, ComplianceParameters
from robocal_ros.errors import DataError
from robocal_ros.estimators import Estimator, Needs, TrackerNeed
from robocal_ros.messages import Recording, StreamCounts
from robocal_ros.results import (
    CalibrationResult,
    Check,
    Fit,
    Inputs,
    Parameter,
    Series,
    State,
    rms,
)
from robocal_ros.robot import Robot

WEAK = 0.05
"""Relative standard deviation above which a compliance is called weak."""
CORRELATED = 0.8

_MAX_REJECTED = 0.2
_NEGATIVE = 3.0
_SEEN = 3.0
# Standard deviations beyond which a joint is said to bend across its axis.
_BENT = 3.0
# Degrees of freedom above which an interval is that of a normal distribution.
_NORMAL = 1e3


def estimate(
    robot: Robot, recording: Recording, values: ComplianceParameters, mounted: Mounted,
    registration: Registration | None = None,
) -> CalibrationResult:
    """Estimate from a recording of both measurements.

    Without marked rests, stationary intervals are found from the joint states, and the time at
    which the load was mounted from postures that were visited twice; other postures are ignored.

    Args:
        robot: The arm without anything mounted.
        recording: Joint states, tracker readings and marked rests.
        values: The node's parameters.
        mounted: What is mounted in both sets.
        registration: Tracker pose, for a recording without marked rests; None to estimate it
            from the unloaded set.

    Raises:
        RobocalError: See ``estimate_sets``; also if the recording lacks readings or rests.

    """
    if values.method != OF_GEOMETRY:
        mounted.known_load()
    joints, readings = recording.joints, recording.tracker
    if readings is None:
        raise DataError('The recording has no tracker readings; record the tracker topic too.')
    check_arm(robot, values)
    if recording.stationary:
        unloaded, loaded, registration = marked_sets(
            robot, joints, readings, recording.stationary, values)
    elif values.method == OF_GEOMETRY:
        unloaded, loaded = find_end_positions(joints, readings, values), []
    else:
        unloaded, loaded = found_sets(robot, joints, readings, values)
    return estimate_sets(
        robot, unloaded, loaded, mounted, values, registration,
        counts=stream_counts(joints.counts, readings.counts), source=joints.source)


def estimate_sets(
    robot: Robot, unloaded: Sequence[EndPosition], loaded: Sequence[EndPosition],
    mounted: Mounted, values: ComplianceParameters, registration: Registration | None = None, *,
    counts: Mapping[str, int] | None = None, source: str = 'live',
) -> CalibrationResult:
    """Estimate the compliance of every joint from both sets of end positions.

    By the method geometry, the geometry of the arm from one or both.

    Args:
        robot: The arm without anything mounted.
        unloaded: End positions without the load, in the order of time.
        loaded: End positions with the load, in the order of time.
        mounted: What is mounted in both sets.
        values: The node's parameters.
        registration: Tracker pose; None to estimate it from the unloaded set.
        counts: Further sample counts and drops of the result.
        source: ``live`` or the name of the bag.

    Raises:
        ConfigurationError: If the parameters do not fit the arm.
        DataError: If the sets do not match, the tracker drifted, or the tracker frame does not
            fit the arm.
        ExcitationError: If no joint's compliance is observable.

    """
    last = max((item.time for item in (*unloaded, *loaded)), default=0.0)
    if values.method == OF_GEOMETRY:
        return estimate_geometry(robot, tracked(unloaded, loaded), values, mounted, counts=counts,
                                 source=source, time=last)
    load, robot = mounted.known_load(), mounted.on(robot, loaded=False)
    registration = registration or register(robot, unloaded, values)
    target = Target.of(robot, values, registration)
    furthest = check_registration(robot, unloaded, registration, values)
    data = displacements(unloaded, loaded, registration, robot, values)
    arm = load.on(robot)
    fitted, held_out = (data.rows(which) for which in (~data.held_out, data.held_out))
    fit = fit_compliance(robot, arm, target, fitted, values.encoder_std, load)
    arm = load.moved(fit.centre).on(robot)
    sag, sag_held_out = (_sag(robot, arm, target, part, fit) for part in (fitted, held_out))
    everything, names, seen = [*unloaded, *loaded], robot.joint_names, list(fit.seen)
    return CalibrationResult(
        kind='compliance', method=LOADED_UNLOADED, robot=robot.identity,
        frame='', parameters=tuple(_parameters(names, fit)),
        covariance_names=tuple(f'{names[i]}.compliance' for i in seen),
        covariance=fit.covariance[np.ix_(seen, seen)],
        fit=(Fit('sag', 'm', rms(sag.before[fit.kept]), rms(sag.after[fit.kept]),
                 int(fit.kept.sum())),),
        validation=(Fit('sag', 'm', rms(sag_held_out.before), rms(sag_held_out.after),
                        len(held_out)),) if len(held_out) else (),
        checks=tuple(_checks(names, values, fit, sag_held_out, furthest)),
        counts={
            'unloaded_visits': len(unloaded), 'loaded_visits': len(loaded),
            'unloaded_postures': len(visits(unloaded, values.match_tolerance)),
            'postures_of_both_sets': len(data),
            'readings': sum(item.count for item in everything),
            'rejected_readings': sum(item.rejected for item in everything),
            'rejected_displacements': int((~fit.kept).sum()), **(counts or {})},
        settings={
            'load_mass': float(load.body.mass), 'load_com': load.body.com.tolist(),
            'load_com_found': (load.body.com + fit.centre).tolist(),
            'load_frame': load.frame, 'load_source': load.source,
            'mounted_unloaded': mounted.described(loaded=False),
            'mounted_loaded': mounted.described(loaded=True),
            'target_frame': target.frame, 'target_xyz': target.xyz.tolist(),
            'match_tolerance': values.match_tolerance, 'max_drift': values.max_drift,
            'gravity': np.asarray(robot.gravity).tolist(),
            'registration': registration.method, 'registration_rms': registration.rms,
            'tracker_rotation': registration.rotation.ravel().tolist(),
            'tracker_translation': registration.translation.tolist(),
            'largest_encoder_difference': float(np.abs(data.loaded - data.unloaded).max()),
            'offset_between_sets': (data.drift @ fit.drift)[:, :3].mean(axis=0).tolist(),
            'sizes': {name: float(value) for name, value in fit.size.items()},
            'encoder_share': fit.encoder_share, 'reduced_chi_square': fit.chi_square,
            'condition': fit.condition,
            'correction': {names[i]: float(fit.correction[i]) for i in seen},
            'bending': {place: [float(fit.bending[i]), float(fit.bending_std[i])]
                        for i, place in _bent(names, fit).items()}},
        source=source, time=last,
        software_version=__version__, series=_series(data, sag, sag_held_out))


def stream_counts(joints: StreamCounts, readings: StreamCounts) -> dict[str, int]:
    """Return the counts of both streams for the result."""
    return {**asdict(joints), 'tracker_received': readings.received,
            'tracker_dropped': readings.dropped}


@dataclass(frozen=True)
class Sag:
    """Lengths of displacements before and after correction, shape (k,) [m]."""

    before: Array
    after: Array

    @property
    def removed(self) -> float:
        """Share of the sag that the model removes."""
        return 1.0 - rms(self.after) / rms(self.before) if rms(self.before) > 0.0 else 0.0


def _sag(robot: Robot, arm: Robot, target: Target, data: Displacements, fit: ComplianceFit) -> Sag:
    """Return displacements without encoder motion and tracker drift, and the model residuals."""
    angles = shrunk_angles(data, fit.encoder_share)
    sag = (data.value - data.drift @ fit.drift)[:, :3]
    return Sag(*(np.array([
        np.linalg.norm(change - predicted(robot, arm, target, without, loaded, compliance)[0])
        for change, without, loaded in zip(sag, data.unloaded, angles, strict=True)])
        for compliance in (np.zeros(robot.n), fit.correction)))


def _parameters(names: Sequence[str], fit: ComplianceFit) -> Iterator[Parameter]:
    std = fit.std()
    correlation = fit.covariance / np.maximum(np.outer(std, std), 1e-300)
    for joint, name in enumerate(names):
        full = f'{name}.compliance'
        if joint not in fit.seen:
            yield Parameter(full, UNIT, state=State.NOT_IDENTIFIED,
                            note=f'unobservable: {fit.unobservable[joint]}')
            continue
        notes = []
        if joint in fit.clipped or fit.value[joint] <= 0.0:
            notes.append('at its bound of zero: too stiff to be observed')
        else:
            relative = std[joint] / fit.value[joint]
            weak = ', weak' if relative > WEAK else ''
            if weak and fit.by_bending[joint] > CORRELATED**2:
                alike = np.abs(fit.bending_covariance[joint] / fit.bending_std)
                weak += f': hardly told from bending {_place(names, int(alike.argmax()))}'
            notes.append(f'relative standard deviation {100.0 * relative:.2g} %{weak}')
        notes += [f'correlation {correlation[joint, other]:+.2f} with {names[other]}'
                  for other in fit.seen
                  if other != joint and abs(correlation[joint, other]) > CORRELATED]
        freedom = float(fit.freedom[joint])
        yield Parameter(
            full, UNIT, float(fit.value[joint]), float(std[joint]), note='; '.join(notes),
            freedom=freedom if freedom < _NORMAL else None)


def _place(names: Sequence[str], number: int) -> str:
    """Return in words where the arm bends: across a joint, or in the link behind it."""
    joint = names[number % len(names)]
    return f'across {joint}' if number < len(names) else f'of the link behind {joint}'


def _bent(names: Sequence[str], fit: ComplianceFit) -> dict[int, str]:
    """Return where the arm bends significantly, that of the most first, by its number."""
    return {number: _place(names, number) for number in np.argsort(-fit.bending).tolist()
            if fit.bending[number] > _BENT * fit.bending_std[number]}


def _cause(names: Sequence[str], fit: ComplianceFit) -> str:
    """Return in words what leaves sag that no compliance about the axes removes."""
    bent = _bent(names, fit).values()
    if bent:
        return (f' The arm bends {", ".join(bent)}, which joint angles cannot correct; check '
                'screws, stand and bearings.')
    return (f' The joint angles scatter by {1e6 * fit.size["angles"]:.0f} µrad between the sets; '
            'use a heavier load, or a controller that holds them better.')


def _checks(
    names: Sequence[str], values: ComplianceParameters, fit: ComplianceFit, sag: Sag,
    furthest: float,
) -> Iterator[Check]:
    if len(sag.before):
        yield Check(
            'sag removed on held-out postures', sag.removed >= values.min_sag_removed,
            sag.removed, values.min_sag_removed, '1',
            f'On {len(sag.before)} held-out postures the model removes '
            f'{100.0 * sag.removed:.1f} % of the sag: {1e6 * rms(sag.before):.0f} µm before, '
            f'{1e6 * rms(sag.after):.0f} µm after (at least '
            f'{100.0 * values.min_sag_removed:.0f} % wanted).'
            + ('' if sag.removed >= values.min_sag_removed else _cause(names, fit)))
        ratio = rms(sag.before) / max(rms(sag.after), 1e-12)
        yield Check(
            'load is seen', ratio >= _SEEN, ratio, _SEEN, '1',
            f'The load moves the target by {1e6 * rms(sag.before):.0f} µm (RMS), '
            f'{ratio:.1f} times what the model leaves (at least {_SEEN:.0f} times wanted)'
            + ('.' if ratio >= _SEEN else '; check the mass of the load, and '
               'that it was mounted between the sets.'))
    share = float((~fit.kept).mean())
    yield Check(
        'displacements that fit', share <= _MAX_REJECTED, share, _MAX_REJECTED, '1',
        f'{int((~fit.kept).sum())} of {len(fit.kept)} displacements do not fit the others and '
        f'were rejected (limit {100.0 * _MAX_REJECTED:.0f} %).')
    depths = {joint: -value / max(float(fit.std()[joint]), 1e-30)
              for joint, value in fit.clipped.items()}
    depth = max(depths.values(), default=0.0)
    reason = 'No compliance is negative.' if not depths else (
        f"The compliance of '{names[max(depths, key=depths.__getitem__)]}' is estimated "
        f'{depth:.1f} standard deviations below zero (limit {_NEGATIVE:.0f}); check the load, its '
        'centre of mass and the tracker frame.')
    yield Check('compliances not negative', depth <= _NEGATIVE, depth, _NEGATIVE, '1', reason)
    limit = values.max_registration_residual
    yield Check(
        'tracker frame', furthest <= limit, furthest, limit, 'm',
        f'The registered tracker measures the target at most {1e3 * furthest:.2f} mm from its '
        f'position by forward kinematics (limit {1e3 * limit:.2f} mm).')


def _series(data: Displacements, fitted: Sag, held_out: Sag) -> tuple[Series, ...]:
    number = np.arange(1.0, len(data) + 1.0)
    return tuple(
        Series(f'Sag before and after correction, {what}', 'posture', 'sag [mm]', number[which],
               {'measured before correction': 1e3 * sag.before,
                'measured after correction': 1e3 * sag.after})
        for what, which, sag in (('held-out postures', data.held_out, held_out),
                                 ('postures of the fit', ~data.held_out, fitted))
        if len(sag.before))


def summary(result: CalibrationResult) -> str:
    """Return compliances with 95 % intervals, the share of sag removed, unobservable joints."""
    joints = {item.name.rpartition('.')[0]: item for item in result.parameters}
    shown = [f'{joint} {item.text(2, 1e6)}' for joint, item in joints.items()
             if item.value is not None]
    unobservable = [joint for joint, item in joints.items() if item.value is None]
    sag = next((f for f in result.validation if f.what == 'sag'), None)
    removed = '' if sag is None or sag.before <= 0.0 else (
        f' Sag on held-out postures {1e6 * sag.before:.0f} µm, after correction '
        f'{1e6 * sag.after:.0f} µm ({100.0 * (1.0 - sag.after / sag.before):.1f} % removed).')
    unseen = f' Unobservable: {", ".join(unobservable)}.' if unobservable else ''
    mounted = ('Mounted in the unloaded set: {mounted_unloaded}; in the loaded set: '
               '{mounted_loaded}.').format_map(result.settings)
    return (f'Compliance in µrad/(N·m) (95 %): {"; ".join(shown)}.{removed}{unseen} {mounted}')


def tracker_of(values: ComplianceParameters) -> TrackerNeed:
    """Return topic and message type of the tracker."""
    return TrackerNeed(values.tracker_topic or f'tracker/{values.tracker_message}',
                       values.tracker_message == 'pose')


def needs(values: ComplianceParameters) -> Needs:
    """Return the topics that an estimation needs."""
    return Needs(effort=False, tracker=tracker_of(values))


def _estimate(
    robot: Robot, recording: Recording, values: ComplianceParameters, inputs: Inputs
) -> CalibrationResult:
    return estimate(robot, recording, values, mounted_of(robot, values, inputs.get('payload')))


COMPLIANCE = Estimator(
    'compliance', ComplianceParameters,
    ('run', 'estimate', 'register_tracker', 'measure_unloaded', 'measure_loaded'),
    needs, kinds, _estimate, summary)

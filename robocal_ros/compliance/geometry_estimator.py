# SPDX-License-Identifier: Apache-2.0
"""Result of the geometry and stiffness of the whole arm, from files of observations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from robocal_ros import __version__
from robocal_ros.arrays import Array
from robocal_ros.compliance.geometry import (
    UNKNOWN,
    ArmGeometry,
    GeometryFit,
    HeldOut,
    Observations,
    ObservedSet,
    Rows,
    absorbed,
    fit_geometry,
    hold_out,
    read_observations,
)
from robocal_ros.compliance.measurement import MAX_LOST, Target
from robocal_ros.compliance.model import UNIT, Mounted, check_arm, kinds, mounted_of
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import DataError
from robocal_ros.estimators import FileEstimator
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
from robocal_ros.robot import FRAME_AXES, Robot

OBSERVABLE = 0.5
"""Share of its prior's standard deviation below which a parameter is observable."""

_ALIKE = 0.4
# Standard deviations by which known distances may be missed, and compliances be negative.
_SURPRISING = 3.0
# Share of the sets that may contradict the others.
_MAX_ODD = 1.0 / 3.0
_SHOWN = 5
# Postures by which the error of the target in any posture is judged, and the least degrees of
# freedom of what has a variance worth stating.
_POSTURES, _FEW = 100, 3.0


def estimate_files(
    robot: Robot, files: Sequence[Path], values: ComplianceParameters, inputs: Inputs
) -> CalibrationResult:
    """Estimate frames and compliances of all joints from files; raises as ``estimate_geometry``.

    Args:
        robot: The nominal arm.
        files: CSV files of observations, and lists of such.
        values: The node's parameters.
        inputs: A payload result, of the tool or the load.

    """
    return estimate_geometry(
        robot, read_observations(files, robot), values,
        mounted_of(robot, values, inputs.get('payload')),
        source=', '.join('/'.join(path.resolve().parts[-2:]) for path in files))


def estimate_geometry(
    robot: Robot, data: Observations, values: ComplianceParameters, mounted: Mounted, *,
    counts: Mapping[str, int] | None = None, source: str = 'live', time: float = 0.0,
) -> CalibrationResult:
    """Estimate frames and compliances of all joints.

    Args:
        robot: The nominal arm.
        data: The observations.
        values: The node's parameters.
        mounted: What is mounted without and with the load.
        counts: Further counts of the result.
        source: ``live``, or names of bag or files.
        time: Stamp of the last observation [s]; 0 if it is unknown.

    Raises:
        ConfigurationError: If the parameters do not fit the arm.
        DataError: If the observations do not fit the arm even roughly.

    """
    check_arm(robot, values)
    robot.check_untied('Calibration of the geometry')
    geometry = ArmGeometry(robot, mounted, Target.of(robot, values), data, values)
    geometry.check_amount()
    before, limit = _nominal_rows(geometry).distances(), values.max_nominal_error
    if (middle := float(np.median(before))) > limit:
        raise DataError(
            f'By the URDF, observations are {1e3 * middle:.0f} mm (median) from '
            f'where they should be (limit {1e3 * limit:.0f} mm, max_nominal_error). Check that '
            'the URDF is of this robot, the order of the joints, target_frame and target_xyz, and '
            'that sets of one fixture belong together.')
    for item in geometry.known:
        apart = geometry.distance(*item.between)[0]
        # Both sockets may be off by the limit.
        if abs(apart - item.distance) > 2.0 * limit:
            raise DataError(
                f'By the URDF, the sockets {item.between[0]} and {item.between[1]} are '
                f'{1e3 * apart:.0f} mm apart, but stated to be {1e3 * item.distance:.0f} mm. '
                'Check whether files of other sockets have these names, and the unit of '
                'distances.')
    fit = fit_geometry(geometry)
    held_out = hold_out(fit)
    evaluated = np.isfinite(held_out.length) & fit.fits
    # Noise that is not white, and what differs between placements, widen all intervals.
    widening = fit.memory * max(1.0, held_out.ratio)
    covariance = widening * fit.mixed.complete
    change, missed = absorbed(fit, fit.used, geometry.value)
    after = replace(fit.rows, residual=fit.rows.residual - missed).distances()
    tip = _tip_error(fit, covariance, change)
    geometry.value[:6 * robot.n] += change[:6 * robot.n]
    geometry.move(change)
    # Whether frames or encoders are off, the values differ by that.
    covariance = covariance + np.outer(change, change)
    parameters = tuple(_parameters(fit, covariance))
    known, order = [item.name for item in parameters if item.value is not None], order_of(geometry)
    columns = [order[name][1] for name in known]
    return CalibrationResult(
        kind='geometry', method='whole_arm', robot=robot.identity, frame='',
        parameters=(*parameters, *_distances(fit, covariance)),
        covariance_names=tuple(known),
        covariance=covariance[np.ix_(columns, columns)],
        fit=(Fit('distance', 'm', rms(before[fit.kept]), rms(after[fit.kept]),
                 int(fit.kept.sum())),),
        validation=(Fit('distance', 'm', rms(before[evaluated]), rms(held_out.length[evaluated]),
                        int(evaluated.sum())),) if evaluated.any() else (),
        checks=tuple(_checks(fit, held_out, values, parameters, covariance, widening)),
        counts={'sets': len(data.sets), 'observations': len(fit.kept),
                'observations_that_do_not_fit': int((~fit.fits).sum()), **(counts or {})},
        settings={
            'tool_frame': robot.tool_frame, 'gravity': np.asarray(robot.gravity).tolist(),
            'mounted_unloaded': mounted.described(loaded=False),
            'target_frame': values.target_frame or robot.tool_frame,
            'tip_rms': tip, **_findings(fit, held_out, before)},
        source=source, time=time, software_version=__version__,
        series=_series(fit, held_out, before))


def _tip_error(fit: GeometryFit, covariance: Array, change: Array) -> float:
    """Return the expected error of the target in any posture, RMS [m].

    Within the ranges of the joints that were measured, with what encoders miss and frames do not
    hold, and apart from a pose of the whole, by which the fixture of a cell is placed anyway.

    Args:
        fit: The estimate.
        covariance: Its covariance, shape (width, width).
        change: Changes of frames by what encoders miss, shape (width,).

    """
    geometry, n = fit.geometry, fit.geometry.robot.n
    every = np.concatenate([item.posture for item in geometry.sets])
    postures = np.random.default_rng(0).uniform(
        every.min(axis=0), every.max(axis=0), (_POSTURES, n))
    item = replace(max(geometry.sets, key=len), posture=postures)
    at = geometry.kinematics(item)
    rows = geometry.jacobian(item, at)[:, :3].reshape(-1, geometry.width)
    # A rigid motion of everything: shift, and turn about the root's origin.
    rigid = np.concatenate((np.tile(np.eye(3), (_POSTURES, 1, 1)), np.cross(
        np.eye(3)[None], at.point[:, None]).transpose(0, 2, 1)), axis=2).reshape(-1, 6)
    rows = rows - rigid @ np.linalg.lstsq(rigid, rows, rcond=None)[0]
    factor = np.linalg.cholesky(covariance)
    sizes, axes = np.linalg.eigh((rows @ factor).T @ (rows @ factor) / _POSTURES)
    # One combination, such as the size of the arm, often makes up nearly all; its deviation is
    # known by few degrees of freedom, and it is Student's: its variance is larger by ν / (ν - 2).
    freedom = fit.mixed.freedom(np.linalg.solve(factor.T, axes[:, -1]))
    sizes[-1] *= 1.0 if freedom is None else max(freedom, _FEW) / (max(freedom, _FEW) - 2.0)
    missed = rows[:, geometry.encoders] @ geometry.value[geometry.encoders] - rows @ change
    return float(np.sqrt(sizes.sum() + missed @ missed / _POSTURES))


def _nominal_rows(geometry: ArmGeometry) -> Rows:
    """Return the residuals by the nominal arm with fixtures at their best."""
    rows = geometry.linearised()
    fixtures = np.concatenate([np.arange(geometry.width)[part] for (what, _), part
                               in geometry.columns.items() if what != 'target'])
    columns = rows.jacobian[:, fixtures]
    left = rows.residual - columns @ np.linalg.lstsq(columns, rows.residual, rcond=None)[0]
    return replace(rows, residual=left)


def before_and_after(
    robot: Robot, data: Observations, values: ComplianceParameters, mounted: Mounted
) -> tuple[Array, Array, Array]:
    """Return where a tracker's targets are, and how far the model is off there.

    Args:
        robot: The nominal arm.
        data: Sets of a tracker.
        values: The node's parameters.
        mounted: What is mounted without and with the load.

    Returns:
        Points in the root frame by the nominal arm, shape (k, 3) [m], and the residuals by it and
        by the calibrated one, likewise.

    """
    geometry = ArmGeometry(robot, mounted, Target.of(robot, values), data, values)
    points = np.concatenate([geometry.kinematics(item).point for item in data.sets])
    before, after = (rows.residual[rows.positions].reshape(-1, 3) for rows in (
        _nominal_rows(geometry), fit_geometry(geometry).rows))
    return points, before, after


def order_of(geometry: ArmGeometry) -> dict[str, tuple[str, int, float]]:
    """Return unit, column and value of frames, compliances and targets by name, by joint."""
    n, value, found = geometry.robot.n, geometry.value.tolist(), {}
    for joint, name in enumerate(geometry.robot.joint_names):
        for place, axis in enumerate(FRAME_AXES):
            column = 3 * joint + place % 3 + 3 * n * (place // 3)
            found[f'{name}.{axis}'] = ('m' if place < 3 else 'rad', column, value[column])
        found[f'{name}.compliance'] = (UNIT, 6 * n + joint, value[6 * n + joint])
    for name, column in geometry.intrinsics.items():
        length = name.rpartition('.')[2] in ('fx', 'fy', 'cx', 'cy')
        found[name] = ('px' if length else '1', column, value[column])
    for name, xyz in geometry.targets.items():
        begin = geometry.columns['target', name].start
        found |= {f'{name}.{axis}': ('m', begin + place, float(xyz[place]))
                  for place, axis in enumerate('xyz')}
    return found


def _parameters(fit: GeometryFit, covariance: Array) -> Iterator[Parameter]:
    """Yield frames, compliances and targets; those held by their prior are not identified."""
    geometry = fit.geometry
    order = order_of(geometry)
    names, columns = list(order), [column for _, column, _ in order.values()]
    own = covariance[np.ix_(columns, columns)]
    std = np.sqrt(np.diag(own))
    alike = own / np.outer(std, std)
    prior = np.full(geometry.width, np.inf)
    for name in (*geometry.intrinsics, 'frame shift', 'frame turn', 'compliance'):
        prior[fit.mixed.places[name]] = fit.mixed.std[name]
    moved = np.abs(fit.rows.jacobian).max(axis=0) > 0.0
    for row, (name, (unit, column, value)) in enumerate(order.items()):
        freedom = fit.mixed.freedom(np.eye(1, geometry.width, column)[0])
        if not moved[column]:
            yield Parameter(name, unit, state=State.NOT_IDENTIFIED, note=(
                'unobservable: no torque of the weights about it in these postures, or no masses '
                'in the URDF'))
        elif std[row] > OBSERVABLE * prior[column]:
            others = [names[other] for other in np.argsort(-np.abs(alike[row])).tolist()
                      if other != row and abs(alike[row, other]) > _ALIKE][:3]
            yield Parameter(
                name, unit, value, float(std[row]), State.NOT_IDENTIFIED, freedom=freedom,
                note='unobservable, held by its prior' + (
                    f'; same effect as {", ".join(others)}' if others else ''))
        else:
            yield Parameter(name, unit, value, float(std[row]), freedom=freedom)


def _distances(fit: GeometryFit, covariance: Array) -> Iterator[Parameter]:
    """Yield the distances between the sockets of each placement."""
    sockets = dict.fromkeys(
        (item.placement, item.fixture) for item in fit.geometry.sets if item.kind == 'socket')
    for (place, one), (other_place, other) in combinations(sockets, 2):
        if place == other_place and one != other:
            distance, slope = fit.geometry.distance(one, other)
            yield Parameter(
                f'{one} to {other}.distance', 'm', distance,
                float(np.sqrt(slope @ covariance @ slope)), note='between sockets',
                freedom=fit.mixed.freedom(slope))


def _misfits(fit: GeometryFit, held_out: HeldOut) -> Iterator[str]:
    """Yield the observations that do not fit in words, the farthest first."""
    at = [(item, row) for item in fit.geometry.sets for row in range(len(item))]
    for number in np.argsort(-np.nan_to_num(held_out.length)).tolist():
        if fit.fits[number]:
            continue
        item, row = at[number]
        yield (f'line {item.lines[row]} of {item.name} by '
               f'{1e3 * held_out.length[number]:.2f} mm'
               + other_socket(fit, item, row, float(held_out.length[number])))


def other_socket(fit: GeometryFit, item: ObservedSet, row: int, off: float) -> str:
    """Return the other socket that an observation fits, as a clause; empty without one."""
    if item.kind != 'socket':
        return ''
    one = replace(item, posture=item.posture[row:row + 1], reading=item.reading[row:row + 1])
    point = fit.geometry.kinematics(one).point[0]
    for name, place in fit.geometry.fixtures.items():
        if name != item.fixture and np.shape(place) == (3,):
            apart = float(np.linalg.norm(point - place))
            if apart < 0.1 * off:
                return f' ({1e3 * apart:.2f} mm from the socket {name}: a line of that file?)'
    return ''


def _checks(
    fit: GeometryFit, held_out: HeldOut, values: ComplianceParameters,
    parameters: Sequence[Parameter], covariance: Array, widening: float,
) -> Iterator[Check]:
    geometry, n = fit.geometry, fit.geometry.robot.n
    found = held_out.length[np.isfinite(held_out.length) & fit.fits]
    limit, seen = values.max_held_out_error, sum(
        item.state is State.IDENTIFIED for item in parameters)
    yield Check(
        'observable parameters', seen >= n, seen, n, '1',
        f'{seen} of {len(parameters)} parameters are observable (at least {n} wanted)'
        + ('.' if seen >= n else '; use postures that differ more, in all joints.'),
        'informative')
    if len(found):
        mean = float(found.mean())
        yield Check(
            'distance on held-out placements', mean <= limit, mean, limit, 'm',
            f'On placements that the estimate does not know ({len(held_out.names)}, each in '
            f'turn) observations are {1e3 * mean:.3f} mm (mean) from the model (limit '
            f'{1e3 * limit:.3f} mm, max_held_out_error).', 'adequate')
    misfits, share = list(_misfits(fit, held_out)), float((~fit.fits).mean())
    named = '' if not misfits else (
        f' Farthest: {"; ".join(misfits[:_SHOWN])}. A ball that slipped or a fixture that moved '
        'may be the cause; measure these again.')
    yield Check(
        'observations that fit', share <= MAX_LOST, share, MAX_LOST, '1',
        f'{len(misfits)} of {len(fit.fits)} observations do not fit the others (limit '
        f'{100.0 * MAX_LOST:.0f} %).{named}', 'trustworthy')
    odd = len(fit.odd) / len(geometry.sets)
    yield Check(
        'sets that fit', odd <= _MAX_ODD, odd, _MAX_ODD, '1',
        f'{len(fit.odd)} of {len(geometry.sets)} sets do not fit the others (limit '
        f'{100.0 * _MAX_ODD:.0f} %)' + (
            f': {", ".join(fit.odd)}. They hardly count in the estimate; their fixture, the '
            'tracker or the base moved.' if fit.odd else '.'), 'trustworthy')
    farthest = max(held_out.displaced.values(), default=0.0)
    yield Check(
        'placements that agree', not held_out.displaced, farthest, 0.0, 'm',
        'No placement is displaced as a whole.' if not held_out.displaced else (
            'All observations of a placement are displaced together from what the others '
            'predict: ' + ', '.join(f'{name} by {1e3 * off:.2f} mm'
                                    for name, off in held_out.displaced.items())
            + '. The base, the tracker or the target moved; name the fixture of each, or measure '
            'again.'), 'trustworthy')
    shifts = np.linalg.norm(geometry.value[:3 * n].reshape(n, 3), axis=1)
    joint, moved, largest = int(shifts.argmax()), float(shifts.max()), values.max_nominal_error
    yield Check(
        'frames near those of the URDF', moved <= largest, moved, largest,
        'm', f"The frame of '{geometry.robot.joint_names[joint]}' is displaced most, by "
        f'{1e3 * moved:.2f} mm (limit {1e3 * largest:.0f} mm, max_nominal_error)'
        + ('.' if moved <= largest else ': is the URDF that of another robot?'),
        'trustworthy')
    std = np.sqrt(np.maximum(np.diag(covariance)[6 * n:7 * n], 1e-30))
    depth = float((-geometry.value[6 * n:7 * n] / std).max())
    yield Check(
        'compliances not negative', depth <= _SURPRISING, depth, _SURPRISING, '1',
        'No compliance is significantly negative.' if depth <= _SURPRISING else
        f'A compliance is {depth:.1f} standard deviations below zero (limit {_SURPRISING:.0f}); '
        'check masses of the URDF, the load and gravity.', 'adequate')
    # As estimated with what encoders miss, which frames alone hold less well than a distance.
    missed = fit.rows.residual[fit.rows.owner < 0]
    for item, residual in zip(geometry.known, missed.tolist(), strict=True):
        slope = geometry.distance(*item.between)[1]
        # Variance by the observations alone, of which the estimate has the known distance, too.
        known, both = item.std**2, float(slope @ fit.mixed.complete @ slope)
        alone = both * known / max(known - both, 1e-12 * known)
        off = abs(residual) * (known + alone) / known / float(
            np.sqrt(known + widening * alone))
        yield Check(
            'known distance', off <= _SURPRISING, off, _SURPRISING, '1',
            f'The sockets {item.between[0]} and {item.between[1]} are estimated '
            f'{1e3 * (item.distance + residual):.3f} mm apart, {off:.1f} standard deviations from '
            f'the known {1e3 * item.distance:.3f} mm (limit {_SURPRISING:.0f}).', 'trustworthy')


def _findings(fit: GeometryFit, held_out: HeldOut, before: Array) -> dict[str, Any]:
    """Return what the fit found besides parameters, for the settings of the result."""
    by_placement = {}
    for number, name in enumerate(held_out.names):
        mine = (held_out.groups == number) & np.isfinite(held_out.length)
        good = mine & fit.fits
        if good.any():
            by_placement[name] = {
                'observations': int(mine.sum()), 'that_fit': int(good.sum()),
                'nominal_mean': float(before[mine].mean()),
                'held_out_mean': float(held_out.length[mine].mean()),
                'held_out_mean_of_those_that_fit': float(held_out.length[good].mean())}
    return {
        'placements': by_placement, 'misfits': list(_misfits(fit, held_out)),
        'sets_that_do_not_fit': list(fit.odd),
        'sizes': {name: float(size) for name, size in fit.mixed.std.items() if name != UNKNOWN},
        'correlation_time': fit.memory, 'held_out_ratio': held_out.ratio,
        'fixtures': {name: place.homogeneous.ravel().tolist() if isinstance(place, pin.SE3)
                     else place.tolist() for name, place in fit.geometry.fixtures.items()}}


def _series(fit: GeometryFit, held_out: HeldOut, before: Array) -> tuple[Series, ...]:
    known = np.isfinite(held_out.length)
    return (Series(
        'Distance from the model before and after, held-out placements', 'observation',
        'distance [mm]', np.flatnonzero(known).astype(np.float64) + 1.0,
        {'by the URDF': 1e3 * before[known], 'calibrated': 1e3 * held_out.length[known]}),)


def summary(result: CalibrationResult) -> str:
    """Return distances before and after, and the numbers of observable parameters."""
    seen = sum(item.state is State.IDENTIFIED for item in result.parameters)
    held_out = next(iter(result.validation), None)
    text = '' if held_out is None else (
        f'Distance on held-out placements {1e3 * held_out.before:.2f} mm, calibrated '
        f'{1e3 * held_out.after:.2f} mm (RMS). ')
    return (f'{text}Expected error of the tip in any posture, apart from a pose of the whole: '
            f'{1e3 * result.settings["tip_rms"]:.2f} mm (RMS). {seen} of {len(result.parameters)} '
            'parameters are observable; the others keep to the URDF as far as the data allow.')


GEOMETRY = FileEstimator('geometry', ComplianceParameters, (), kinds, estimate_files, summary)

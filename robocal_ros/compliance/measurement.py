# SPDX-License-Identifier: Apache-2.0
"""What the tracker measures: its registration, end positions, and displacements between both sets.

An end position is the mean of the tracker's readings while the arm rests in a posture. The
registration is the transform from the tracker's frame to the base frame.

Sources: Arun, Huang, Blostein, Least-Squares Fitting of Two 3-D Point Sets, IEEE Trans. PAMI 9
(1987) 698, doi 10.1109/TPAMI.1987.4767965; Umeyama, IEEE Trans. PAMI 13 (1991) 376, doi
10.1109/34.88573, for the sign of the determinant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise

import numpy as np
import scipy

from robocal_ros.arrays import Array, freeze
from robocal_ros.compliance.parameters import ComplianceParameters
from robocal_ros.errors import DataError, ExcitationError
from robocal_ros.estimation import dwells, grouped
from robocal_ros.messages import JointSamples, StationaryInterval, TrackerSamples
from robocal_ros.robot import Robot

UNLOADED, LOADED, REGISTRATION = 'unloaded', 'loaded', 'registration'
"""Purposes of end positions: one of the two sets, or registration of the tracker."""
HELD_OUT_EVERY = 5
"""Every n-th posture, in the order of measurement, is held out for validation."""

MAX_LOST = 0.2
"""Largest share of the postures that may lack a usable measurement."""

# Angular distance above which two postures count as different, not as a poor match [rad].
_ANOTHER = 0.02
# Readings this many robust standard deviations from the dwell's median are outliers.
_OUTLIER = 8.0
_NORMAL_MAD = 1.4826
# Dwells whose scatter is less probable than this are weighted by their own scatter.
_ODD_SCATTER = 1e-6
# Autocovariances less probable than this with white noise are those of correlated noise.
_ODD_CORRELATION = 1e-3
_MEMORIES = 40
# Probability with which noise alone counts as drift.
_NO_DRIFT = 1e-4
# Ratio of second to first extent below which points count as collinear.
_COLLINEAR = 0.02
_SMALLEST_EXTENT = 0.01

TargetMotion = Callable[[Array, Array], Array]
"""Displacement of the target between two postures in the tracker's axes, shape (3,) [m]."""

GEAR_ERROR = 0.02
"""Standard deviation of the share of an encoder's motion that the link does not follow.

The transmission error of a strain-wave gear of ratio 100 has an amplitude of some 0.1 mrad and two
periods per turn of the motor, so that its slope is about 0.1 mrad · 2 · 100.
"""


@dataclass(frozen=True)
class Registration:
    """Pose of the tracker in the base frame.

    Attributes:
        rotation: Rotation from tracker to base, shape (3, 3).
        translation: Origin of the tracker in the base frame, shape (3,) [m].
        residual: Distances between the points in the base frame and the transformed points of
            the tracker, shape (k,) [m].
        method: ``least_squares`` or ``three_point``.
        target: Position of the target in its frame where it was estimated too, else None [m].

    """

    rotation: Array
    translation: Array
    residual: Array
    method: str
    target: Array | None = None

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        freeze(self, 'rotation', 'translation', 'residual', 'target')

    @property
    def rms(self) -> float:
        """Root mean square of the residuals [m]."""
        return float(np.sqrt(np.mean(self.residual**2)))


@dataclass(frozen=True)
class Target:
    """Tracked target.

    Attributes:
        frame: Frame of the URDF to which it is fixed.
        xyz: Position in that frame, shape (3,) [m].

    """

    frame: str
    xyz: Array

    @classmethod
    def of(
        cls, robot: Robot, values: ComplianceParameters, registration: Registration | None = None
    ) -> Target:
        """Return the target as registered, else as given by the parameters."""
        found = None if registration is None else registration.target
        return cls(values.target_frame or robot.tool_frame,
                   np.array(values.target_xyz) if found is None else found)


def target_pose(robot: Robot, q: Array, target: Target) -> tuple[Array, Array]:
    """Return orientation (3, 3) of the target's frame and position (3,) [m], in root axes."""
    placement = robot.transform_frame_to_root(q, target.frame)
    return placement.rotation, placement.act(np.asarray(target.xyz))


def target_motion(
    robot: Robot, values: ComplianceParameters, registration: Registration
) -> TargetMotion:
    """Return the displacement of the target by forward kinematics.

    Args:
        robot: The arm.
        values: The node's parameters.
        registration: Tracker pose.

    """
    target = Target.of(robot, values, registration)

    def motion(one: Array, other: Array) -> Array:
        change = target_pose(robot, other, target)[1] - target_pose(robot, one, target)[1]
        return np.asarray(registration.rotation.T @ change)

    return motion


@dataclass(frozen=True, eq=False)
class EndPosition:
    """Mean of the readings of one dwell.

    Attributes:
        posture: Mean encoder angles, shape (n,) [rad].
        point: Mean of the readings in the tracker's frame, shape (3,) [m].
        rotation: Mean orientation, target's axes to tracker's, shape (3, 3), or None.
        scatter: Sum of the products of the readings' deviations from the mean: position [m],
            then rotation vector [rad] if orientation is measured, shape (d, d).
        succession: Sums of products of deviations in position, by lag as of ``lagged``, to
            distinguish correlated from white noise [m²].
        count: Readings averaged.
        rejected: Readings rejected as outliers.
        time: Stamp of the middle of the dwell [s].
        begin: First stamp of the dwell, NaN if unknown [s].
        end: Stamp past its end, NaN if unknown [s].

    """

    posture: Array
    point: Array
    rotation: Array | None
    scatter: Array
    succession: Array
    count: int
    rejected: int
    time: float
    begin: float = np.nan
    end: float = np.nan

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        freeze(self, 'posture', 'point', 'rotation', 'scatter', 'succession')


def average(posture: Array, readings: TrackerSamples) -> EndPosition:
    """Average the readings of one dwell without outliers.

    Args:
        posture: Mean joint angles, shape (n,) [rad].
        readings: At least two readings.

    Raises:
        DataError: If there are fewer than two readings.

    """
    if len(readings) < 2:
        raise DataError(f'The dwell has {len(readings)} tracker readings; expected at least 2.')
    deviation = readings.point - np.median(readings.point, axis=0)
    spread = _NORMAL_MAD * np.median(np.abs(deviation), axis=0)
    kept = (np.abs(deviation) <= _OUTLIER * np.maximum(spread, 1e-9)).all(axis=1)
    kept = kept if kept.sum() >= 2 else np.ones(len(readings), dtype=bool)
    point = readings.point[kept]
    centred = point - point.mean(axis=0)
    rotation = None
    if readings.orientation is not None:
        turns = scipy.spatial.transform.Rotation.from_quat(readings.orientation[kept])
        mean = turns.mean()
        rotation = mean.as_matrix()
        centred = np.hstack((centred, (turns * mean.inv()).as_rotvec()))
    return EndPosition(
        posture=posture, point=point.mean(axis=0), rotation=rotation,
        scatter=centred.T @ centred,
        succession=lagged(centred[:, :3]),
        count=int(kept.sum()), rejected=int((~kept).sum()),
        time=float(0.5 * (readings.time[0] + readings.time[-1])))


def end_position(
    joints: JointSamples, readings: TrackerSamples, begin: float, end: float
) -> EndPosition:
    """Average the joint angles and readings of one dwell.

    Args:
        joints: Joint states.
        readings: Tracker readings with stamps of the same clock.
        begin: First stamp of the dwell [s].
        end: Stamp past its end [s].

    Raises:
        DataError: If the dwell has no joint state or fewer than two readings.

    """
    rows = slice(*np.searchsorted(joints.time, (begin, end)).tolist())
    if rows.start == rows.stop:
        raise DataError(f'No joint state has a stamp from {begin:.3f} s to {end:.3f} s; expected '
                        'joint states of an arm at rest.')
    found = average(joints.position[rows].mean(axis=0), readings.between(begin, end))
    return replace(found, begin=begin, end=end)


def find_end_positions(
    joints: JointSamples, readings: TrackerSamples, values: ComplianceParameters
) -> list[EndPosition]:
    """Average the readings of each stationary interval that is long enough.

    Of each interval the first window of ``dwell`` seconds with enough readings is used; intervals
    without one are skipped. A window ends with the newest reading at the latest, so that readings
    received later do not change it.

    Args:
        joints: Joint states.
        readings: Tracker readings with stamps of the same clock.
        values: The node's parameters.

    Returns:
        The end positions in the order of time.

    """
    found = []
    newest = float(np.nextafter(readings.time[-1], np.inf)) if len(readings) else -np.inf
    for rest in dwells(joints, settle=0.0, min_duration=values.settle + values.dwell):
        begin = joints.time[rest.start] + values.settle
        last = joints.time[rest.stop - 1]
        while begin + values.dwell <= last + 1e-9:
            end = min(begin + values.dwell, newest)
            if len(readings.between(begin, end)) >= max(2, values.min_readings):
                found.append(end_position(joints, readings, float(begin), float(end)))
                break
            begin += 0.5 * values.dwell
    return found


def pooled_covariances(positions: Sequence[EndPosition]) -> Array:
    """Return the covariance of each mean, shape (k, d, d) [m², m·rad, rad²].

    The covariance of a reading is pooled over all dwells, because one dwell has too few readings;
    a dwell of significantly larger scatter is weighted by its own. Correlated noise averages out
    more slowly and inflates the result.

    Args:
        positions: End positions, all with or all without orientation.

    """
    freedom = np.array([item.count - 1 for item in positions])
    scatter = np.array([item.scatter for item in positions])
    size = scatter.shape[1]
    trace = np.trace(scatter[:, :3, :3], axis1=1, axis2=2)
    # The median dwell sets the scale: an outlier must not raise its own limit.
    typical = float(np.median(trace / np.maximum(freedom, 1)))
    limit = scipy.stats.chi2.isf(_ODD_SCATTER, 3 * freedom) / 3.0
    odd = trace > np.maximum(limit * typical, 1e-30)
    even = ~odd
    pooled = scatter[even].sum(axis=0) / max(int(freedom[even].sum()), 1)
    pooled = pooled + 1e-18 * np.eye(size)
    inflation = _inflation(list(compress(positions, even)))
    own = np.where(odd, np.maximum(1.0, trace / np.maximum(freedom, 1) / np.trace(pooled[:3, :3])),
                   1.0)
    return np.asarray(pooled * (own * inflation / (freedom + 1))[:, None, None])


def lagged(centred: Array) -> Array:
    """Return the sums of products of deviations by lag 1, 2, 4 … up to half their number [m²].

    Args:
        centred: Deviations of successive readings from their mean, shape (k, 3) [m].

    """
    lags = 2 ** np.arange(max(len(centred) // 2, 1).bit_length())
    return np.array([(centred[lag:] * centred[:-lag]).sum() for lag in lags])


def _inflation(positions: Sequence[EndPosition]) -> float:
    """Return the inflation of the variance of a mean by correlated noise, 1 for white noise.

    White noise and a first-order process are fitted to the autocovariances of the deviations,
    pooled over the dwells: by least squares, with the expectation of deviations from a dwell's own
    mean, for every memory up to twice a dwell.
    """
    size = int(np.median([item.count for item in positions]))
    whole = [item for item in positions if 2 * item.count >= size]
    lags = 2 ** np.arange(min(len(item.succession) for item in whole))
    total = sum(item.count for item in whole)
    seen = np.array([sum(float(np.trace(item.scatter[:3, :3])) for item in whole),
                     *np.sum([item.succession[:len(lags)] for item in whole], axis=0)]) / total
    if seen[0] <= 0.0:
        return 1.0
    pairs = size - np.array([0, *lags])

    def expected(rho: float) -> tuple[Array, float]:
        """Return the autocovariances of a process of variance 1, and the variance of its mean."""
        powers = np.cumsum(rho ** np.arange(size))
        means = (powers + powers[::-1] - 1.0) / size
        sums = np.concatenate(([0.0], np.cumsum(means)))
        ends = sums[pairs] + sums[size] - sums[size - pairs]
        return (pairs * (rho ** (size - pairs) + means.mean()) - ends) / size, means.mean()

    white, _ = expected(0.0)
    level = float(white @ seen / (white @ white))
    noise = level**2 / (3.0 * total)
    left = float(((seen - level * white)**2).sum())
    if left < noise * scipy.stats.chi2.isf(_ODD_CORRELATION, len(lags)):
        return 1.0
    best = 1.0
    for memory in np.geomspace(0.5, 2.0 * size, _MEMORIES):
        process, variance = expected(float(np.exp(-1.0 / memory)))
        parts, distance = scipy.optimize.nnls(np.column_stack((process, white)), seen)
        if distance**2 < left:
            left = distance**2
            best = (parts[0] * variance + parts[1] / size) / (seen[0] / (size - 1))
    return max(1.0, float(best))


def visits(positions: Sequence[EndPosition], tolerance: float) -> list[list[EndPosition]]:
    """Group end positions of one set by posture, in the order of the first visits.

    Args:
        positions: In the order of time.
        tolerance: Largest difference of joint angles within a group [rad].

    """
    return grouped(positions, lambda one, other: bool(
        np.abs(one.posture - other.posture).max() <= tolerance))


def check_drift(
    positions: Sequence[EndPosition], values: ComplianceParameters, motion: TargetMotion,
    which: str,
) -> float:
    """Return the largest drift of the tracker from the posture that was visited most often [m].

    Args:
        positions: End positions of one set, in the order of time.
        values: The node's parameters.
        motion: Forward kinematics, for visits at different joint angles.
        which: Name of the set.

    Raises:
        DataError: If a visit is surely off by more than ``max_drift``.

    """
    again = max(visits(positions, values.match_tolerance), key=len, default=[])
    if len(again) < 2:
        return 0.0
    covariance = pooled_covariances(list(positions))
    variance = np.trace(covariance[:, :3, :3], axis1=1, axis2=2) / 3.0
    rows = [positions.index(visit) for visit in again]
    moved = np.array([motion(again[0].posture, item.posture) for item in again])
    unsure = GEAR_ERROR * np.linalg.norm(moved, axis=1)
    std = np.sqrt(variance[rows] + variance[rows[0]] + unsure**2)
    shift = np.linalg.norm([item.point - again[0].point for item in again] - moved, axis=1)
    beyond = shift > values.max_drift + np.sqrt(scipy.stats.chi2.isf(_NO_DRIFT, 3)) * std
    if beyond.any():
        first = int(np.argmax(beyond))
        raise DataError(
            f'The tracker drifted: in the {which} set the reference posture reads '
            f'{1e6 * shift[first]:.0f} µm off its first reading after '
            f'{again[first].time - again[0].time:.0f} s (limit {1e6 * values.max_drift:.0f} µm). '
            'Let the tracker warm up, fix its stand and the target, then measure again. Play or '
            'hysteresis of the gears, unseen by the encoders, looks like that, too.')
    return float(shift.max())


@dataclass(frozen=True)
class Displacements:
    """Displacements of the target by the load.

    Attributes:
        unloaded: Encoder angles without the load, shape (k, n) [rad].
        loaded: Encoder angles with the load, shape (k, n) [rad].
        value: Displacement of the target in base axes: position [m], then rotation vector
            [rad] if orientation is measured, shape (k, d).
        covariance: Of each displacement, shape (k, d, d).
        held_out: Mask of the postures for validation, shape (k,).
        drift: Columns of tracker and target that move, as of ``drift_columns``, shape (k, d, 15).
        place: Target without the load as the tracker measures it, root frame, shape (k, 3) [m].

    """

    unloaded: Array
    loaded: Array
    value: Array
    covariance: Array
    held_out: np.ndarray
    drift: Array
    place: Array

    def __len__(self) -> int:
        """Return the number of postures."""
        return len(self.value)

    def rows(self, which: np.ndarray) -> Displacements:
        """Return a selection of the postures."""
        return Displacements(*(column[which] for column in vars(self).values()))


def drift_columns(arm: Array, tool: Array, time: Array, rows: int = 3) -> Array:
    """Return the displacements by tracker and target that move, per metre, shape (k, rows, 15).

    Shifts of the tracker between the sets, its turns between them about itself, by what they
    displace (RMS), its shifts by a linear drift without and with the load, and shifts of the
    target on its link between the sets.

    Args:
        arm: From the tracker to the target without the load, root axes, shape (k, 3) [m].
        tool: Rotation of the target's frame, shape (k, 3, 3).
        time: Stamps without and with the load, shape (k, 2) [s].
        rows: 3 for position, 6 for position and rotation vector.

    """
    middle, half = 0.5 * (time.min(axis=0) + time.max(axis=0)), 0.5 * np.ptp(time, axis=0)
    turned = np.concatenate((np.cross(np.eye(3), arm[:, None]), np.tile(
        np.eye(3), (len(arm), 1, 1))), axis=2) / max(np.linalg.norm(arm) / len(arm)**0.5, 1e-9)
    return np.concatenate((
        np.tile(np.eye(6, 3), (len(arm), 1, 1)), turned.transpose(0, 2, 1),
        np.kron(((time - middle) / np.maximum(half, 1e-9))[:, None], np.eye(6, 3)),
        np.concatenate((tool, 0.0 * tool), axis=1)), axis=2)[:, :rows]


def _pairs(
    unloaded: Sequence[EndPosition], loaded: Sequence[EndPosition], names: Sequence[str],
    tolerance: float,
) -> list[tuple[EndPosition, EndPosition]]:
    """Match the first visits of both sets by posture.

    Raises:
        DataError: If more than ``MAX_LOST`` of the postures do not match.

    """
    without, with_load = ([group[0] for group in visits(part, tolerance)]
                          for part in (unloaded, loaded))
    gaps = np.abs([[a.posture - b.posture for b in with_load] for a in without])
    apart = gaps.max(axis=2)
    pairs = [(item, with_load[int(np.argmax(row <= tolerance))])
             for item, row in zip(without, apart, strict=True) if row.min() <= tolerance]
    missing = np.flatnonzero(apart.min(axis=1) > tolerance)
    poor = next((
        f' Posture {row + 1} does not match: '
        f'{mismatch(gaps[row, np.argmin(apart[row])], names, tolerance)}.'
        for row in missing if apart[row].min() <= _ANOTHER), '')
    least = (1.0 - MAX_LOST) * len(without)
    if len(pairs) < least:
        raise DataError(
            f'{len(without)} postures are measured without the load, but only {len(pairs)} of '
            f'them with it; missing: {", ".join(map(str, missing[:10] + 1))}'
            f'{" …" if len(missing) > 10 else ""}.{poor} Call measure_loaded to continue.')
    if len(with_load) - len(pairs) > MAX_LOST * len(with_load):
        raise DataError(
            f'{len(with_load) - len(pairs)} postures are measured with the load only. Detach the '
            'load and call measure_unloaded to continue.')
    return pairs


def mismatch(gap: Array, names: Sequence[str], tolerance: float) -> str:
    """Return the joint with the largest difference between both sets, empty within a tolerance.

    Args:
        gap: Absolute differences of the joint angles, shape (n,) [rad].
        names: Names of the joints.
        tolerance: Largest difference [rad].

    """
    joint = int(np.argmax(gap))
    if gap[joint] <= tolerance:
        return ''
    return (f"joint '{names[joint]}' differs by {gap[joint]:.2e} rad between the sets (limit "
            f'{tolerance:.0e} rad)')


def displacements(
    unloaded: Sequence[EndPosition], loaded: Sequence[EndPosition], registration: Registration,
    robot: Robot, values: ComplianceParameters
) -> Displacements:
    """Return the displacements between two sets of end positions, in base axes.

    Every fifth posture, in the order of measurement, is held out.

    Args:
        unloaded: End positions without the load, in the order of time.
        loaded: End positions with the load, in the order of time.
        registration: Tracker pose.
        robot: The arm.
        values: The node's parameters.

    Raises:
        DataError: If a set is empty, postures are missing or do not match, or the tracker
            drifted.

    """
    for which, positions in (('unloaded', unloaded), ('loaded', loaded)):
        if not positions:
            raise DataError(f'No posture of the {which} set is measured; call '
                            f'measure_{which} first.')
    if len({item.rotation is None for item in (*unloaded, *loaded)}) > 1:
        raise DataError('Some end positions are poses, others points; measure both sets with one '
                        'kind of tracker message.')
    for which, positions in (('unloaded', unloaded), ('loaded', loaded)):
        check_drift(positions, values, target_motion(robot, values, registration), which)
    everything = [*unloaded, *loaded]
    covariance = dict(zip(everything, pooled_covariances(everything), strict=True))
    pairs = _pairs(unloaded, loaded, robot.joint_names, values.match_tolerance)
    change = np.array([b.point - a.point for a, b in pairs])
    turns = [b.rotation @ a.rotation.T for a, b in pairs
             if a.rotation is not None and b.rotation is not None]
    if turns:
        change = np.hstack((
            change, scipy.spatial.transform.Rotation.from_matrix(turns).as_rotvec()))
    to_base = np.kron(np.eye(change.shape[1] // 3), registration.rotation)
    time = np.array([(a.time, b.time) for a, b in pairs])
    arm = _points([a for a, _ in pairs]) @ registration.rotation.T
    target = Target.of(robot, values, registration)
    tool = np.array([target_pose(robot, a.posture, target)[0] for a, _ in pairs])
    return Displacements(
        np.array([a.posture for a, _ in pairs]), np.array([b.posture for _, b in pairs]),
        change @ to_base.T,
        to_base @ np.array([covariance[a] + covariance[b] for a, b in pairs]) @ to_base.T,
        np.arange(1, len(pairs) + 1) % HELD_OUT_EVERY == 0,
        drift_columns(arm, tool, time, change.shape[1]), arm + registration.translation)


def split_by_load(
    positions: Sequence[EndPosition], tolerance: float, motion: TargetMotion
) -> tuple[list[EndPosition], list[EndPosition]]:
    """Split end positions at the time when the load was mounted.

    Each posture that was visited at least twice brackets that time between the two successive
    visits with the largest displacement; the brackets of all postures are intersected.

    Args:
        positions: End positions of both sets, in the order of time.
        tolerance: Largest difference of joint angles between visits [rad].
        motion: Forward kinematics of the target, for visits at different joint angles.

    Returns:
        The sets without and with the load.

    Raises:
        DataError: If no posture was visited twice, or the brackets do not overlap.

    """
    begin, end = -np.inf, np.inf
    for group in visits(positions, tolerance):
        if len(group) < 2:
            continue
        step = [float(np.linalg.norm(b.point - a.point - motion(a.posture, b.posture)))
                for a, b in pairwise(group)]
        at = int(np.argmax(step))
        begin, end = max(begin, group[at].time), min(end, group[at + 1].time)
    if not np.isfinite(begin):
        raise DataError(
            'The recording has no posture that was visited twice, without and with the load; '
            'expected the same postures in both sets. Record both measurements.')
    if begin >= end:
        raise DataError(
            'The time at which the load was mounted is ambiguous: postures that were visited '
            'twice contradict each other. Expected all postures without the load first, then the '
            'same ones with it.')
    mounted = 0.5 * (begin + end)
    return ([item for item in positions if item.time < mounted],
            [item for item in positions if item.time >= mounted])


def rest_of(position: EndPosition, purpose: str, posture: int) -> StationaryInterval:
    """Return the mark of an end position."""
    return StationaryInterval(position.begin, position.end, purpose, posture)


def marked_sets(
    robot: Robot, joints: JointSamples, readings: TrackerSamples,
    rests: Sequence[StationaryInterval], values: ComplianceParameters,
) -> tuple[list[EndPosition], list[EndPosition], Registration | None]:
    """Return the end positions of both sets by marked rests, and the registration by such.

    Args:
        robot: The arm.
        joints: Joint states, or their averages over each rest.
        readings: Readings of the tracker.
        rests: Marked rests, in the order of measurement.
        values: The node's parameters.

    Returns:
        End positions without and with the load, in the order of measurement, and the tracker's
        pose, None without rests for it.

    Raises:
        DataError: If the recording lacks the samples of a rest, or the tracker cannot be placed.

    """
    found: dict[str, list[EndPosition]] = {UNLOADED: [], LOADED: [], REGISTRATION: []}
    for rest in rests:
        if rest.purpose not in found:
            continue
        try:
            found[rest.purpose].append(end_position(joints, readings, rest.begin, rest.end))
        except DataError as error:
            raise DataError(
                f'The samples of the marked rest in posture {rest.posture + 1} ({rest.purpose}) '
                f'from {rest.begin:.3f} s to {rest.end:.3f} s are not in the recording: {error} '
                'Record joint states and tracker from the beginning, or ignore the marks with '
                '--whole.') from error
    return found[UNLOADED], found[LOADED], (
        place_tracker(robot, found[REGISTRATION], values) if found[REGISTRATION] else None)


def found_sets(
    robot: Robot, joints: JointSamples, readings: TrackerSamples, values: ComplianceParameters
) -> tuple[list[EndPosition], list[EndPosition]]:
    """Return the end positions of both sets of a recording without marked rests.

    Stationary intervals are found from the joint states, and the time at which the load was
    mounted from postures that were visited twice; postures of one set alone are left out.

    Raises:
        DataError: If there are no such rests or sets.

    """
    found, tolerance = find_end_positions(joints, readings, values), values.match_tolerance
    if not found:
        raise DataError(
            f'The recording of {len(joints)} joint states and {len(readings)} tracker readings '
            f'has no rest of {values.settle + values.dwell:.1f} s with readings of the target; '
            'expected both sets of postures. Call measure_unloaded and measure_loaded, or play '
            'a bag of them.')
    # The sag is too small to matter for the rotation of the tracker.
    placed = register(robot, found, replace(values, max_registration_residual=np.inf))
    unloaded, loaded = split_by_load(found, tolerance, target_motion(robot, values, placed))
    both = [item for group in visits(found, tolerance) for item in group
            if any(a in unloaded for a in group) and any(b in loaded for b in group)]
    return [a for a in unloaded if a in both], [b for b in loaded if b in both]


def _check_spread(tracker: Array, base: Array) -> None:
    """Raise a DataError for points that are too few, not finite, too close, or collinear."""
    if len(tracker) < 3:
        raise DataError(
            f'{len(tracker)} points cannot register the tracker; at least 3 that are not '
            'collinear are needed. Measure more postures.')
    finite = np.isfinite(tracker + base).all(axis=1)
    if not finite.all():
        raise DataError(f'Point {int(np.argmin(finite)) + 1} of the registration is not finite; '
                        'remove it.')
    for points, where in ((tracker, "the tracker's"), (base, 'the base')):
        extent = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
        extent = extent / np.sqrt(len(points))
        if extent[0] < _SMALLEST_EXTENT:
            raise DataError(
                f'The points of the registration extend over {1e3 * extent[0]:.2f} mm in {where} '
                f'frame; expected at least {1e3 * _SMALLEST_EXTENT:.0f} mm. Spread them.')
        if extent[1] < _COLLINEAR * extent[0]:
            raise DataError(
                f'The {len(points)} points of the registration are collinear in {where} frame '
                f'({1e3 * extent[0]:.0f} mm long, {1e3 * extent[1]:.2f} mm wide), so the rotation '
                'about the line is unobservable. Add a point off the line.')


def _judged(
    rotation: Array, translation: Array, tracker: Array, base: Array, method: str, limit: float,
    target: Array | None = None,
) -> Registration:
    """Return a registration by points in both frames; raises DataError for a misfit."""
    registration = Registration(
        rotation, translation,
        np.linalg.norm(tracker @ rotation.T + translation - base, axis=1), method, target)
    worst = int(np.argmax(registration.residual))
    if registration.residual[worst] > limit:
        raise DataError(
            f'The tracker frame does not fit the arm: after registration point {worst + 1} is '
            f'{1e3 * registration.residual[worst]:.2f} mm from its position by forward kinematics '
            f'(limit {1e3 * limit:.2f} mm, RMS {1e3 * registration.rms:.2f} mm). Check '
            'target_frame and target_xyz, whether the tracker or the target was moved, and the '
            'units.')
    return registration


def three_point(tracker: Array, base: Array, limit: float = np.inf) -> Registration:
    """Register the tracker by origin, a point on +x and a point in the xy-plane of a user frame.

    Args:
        tracker: The points in the tracker's frame, shape (3, 3) [m].
        base: The same points in the base frame, shape (3, 3) [m].
        limit: Largest residual [m].

    Raises:
        DataError: If there are not three points, if they are collinear, or if a residual exceeds
            ``limit``.

    """
    _check_spread(tracker, base)
    if len(tracker) != 3:
        raise DataError(f'Registration three_point takes 3 points, got {len(tracker)}; use '
                        'least_squares for more.')
    # Of a weight that is infinite, the vector along +x agrees exactly.
    rotation = scipy.spatial.transform.Rotation.align_vectors(
        base[1:] - base[0], tracker[1:] - tracker[0], weights=[np.inf, 1.0])[0].as_matrix()
    return _judged(rotation, base[0] - rotation @ tracker[0], tracker, base, 'three_point', limit)


def least_squares_transform(tracker: Array, base: Array, limit: float = np.inf) -> Registration:
    """Register the tracker by the rigid transform of least squared distances.

    Args:
        tracker: Points in the tracker's frame, shape (k, 3), k ≥ 3 [m].
        base: The same points in the base frame, shape (k, 3) [m].
        limit: Largest residual [m].

    Raises:
        DataError: If there are fewer than 3 points, if they are collinear, or if a residual
            exceeds ``limit``.

    """
    _check_spread(tracker, base)
    return _judged(*_aligned(tracker, base), tracker, base, 'least_squares', limit)


def _aligned(tracker: Array, base: Array) -> tuple[Array, Array]:
    """Return rotation and translation of least squared distances (Arun, Umeyama)."""
    centre_tracker, centre_base = tracker.mean(axis=0), base.mean(axis=0)
    rotation = scipy.spatial.transform.Rotation.align_vectors(
        base - centre_base, tracker - centre_tracker)[0].as_matrix()
    return rotation, centre_base - rotation @ centre_tracker


def register_with_target(
    tracker: Array, rotations: Array, origins: Array, limit: float = np.inf
) -> Registration:
    """Register the tracker and estimate the target on its link jointly.

    Minimises |R y_k + t − (o_k + R_k x)| over R, t and the target x, with the link's poses from
    forward kinematics; the nine unknowns need at least four postures that turn the link about two
    axes.

    Args:
        tracker: Readings of the target, shape (k, 3) [m].
        rotations: The link's axes in the base frame, posture by posture, shape (k, 3, 3).
        origins: The link's origin in the base frame, shape (k, 3) [m].
        limit: Largest residual [m].

    Raises:
        DataError: If there are fewer than 4 points or a residual exceeds ``limit``.
        ExcitationError: If a direction of the target is unobservable.

    """
    if len(tracker) < 4:
        raise DataError(
            f'{len(tracker)} points cannot register tracker and target; at least 4 are needed.')
    _check_spread(tracker, origins + rotations[:, :, 0] * 1e-3)
    rotation, translation = _aligned(tracker, origins)

    def residual(values: Array) -> Array:
        turn = scipy.spatial.transform.Rotation.from_rotvec(values[:3]).as_matrix() @ rotation
        predicted = origins + rotations @ values[6:]
        return np.asarray((tracker @ turn.T + translation + values[3:6] - predicted).ravel())

    solution = scipy.optimize.least_squares(
        residual, np.zeros(9), x_scale='jac', xtol=1e-14, ftol=1e-14, gtol=1e-14)
    jacobian = np.asarray(solution.jac)
    columns = jacobian / np.linalg.norm(jacobian, axis=0)
    condition = float(np.linalg.cond(columns))
    if condition > 1e3:
        raise ExcitationError(
            'The postures of the registration turn the target too little to estimate its position '
            f'on its link (condition number {condition:.3g}, limit 1e3). Set target_xyz, or turn '
            'the wrist further.', rank=8, needed=9, condition=condition, unobservable=('target',))
    turn = scipy.spatial.transform.Rotation.from_rotvec(solution.x[:3]).as_matrix() @ rotation
    target = solution.x[6:]
    return _judged(turn, translation + solution.x[3:6], tracker, origins + rotations @ target,
                   'least_squares', limit, target)


def register(
    robot: Robot, positions: Sequence[EndPosition], values: ComplianceParameters
) -> Registration:
    """Register the tracker by end positions without the load, by least squares.

    Raises:
        DataError: If they are too few, collinear, or do not fit the arm.

    """
    if len(positions) < 3:
        raise DataError(
            f'{len(positions)} postures at rest with readings of the tracker were found; at least '
            f'3 are needed. A rest lasts {values.settle + values.dwell:.3g} s or more '
            f'(settle, dwell), with {max(2, values.min_readings)} readings (min_readings): hold '
            'each posture longer, or lower settle, dwell or min_readings.')
    return least_squares_transform(
        _points(positions), _target_points(robot, positions, values),
        values.max_registration_residual)


def place_tracker(
    robot: Robot, positions: Sequence[EndPosition], values: ComplianceParameters
) -> Registration:
    """Register the tracker by dedicated end positions without the load.

    Raises:
        DataError: If they are too few, collinear, or do not fit the arm.
        ExcitationError: If the target is to be found too and is not observable.

    """
    points, limit = _points(positions), values.max_registration_residual
    if values.find_target:
        frame = Target.of(robot, values).frame
        placements = [robot.transform_frame_to_root(item.posture, frame) for item in positions]
        return register_with_target(
            points, np.array([p.rotation for p in placements]),
            np.array([p.translation for p in placements]), limit)
    if values.registration == 'three_point':
        return three_point(points, _target_points(robot, positions, values), limit)
    return register(robot, positions, values)


def _points(positions: Sequence[EndPosition]) -> Array:
    """Return the target as measured, in the tracker's axes, shape (k, 3) [m]."""
    return np.array([item.point for item in positions]).reshape(-1, 3)


def _target_points(
    robot: Robot, positions: Sequence[EndPosition], values: ComplianceParameters,
    registration: Registration | None = None,
) -> Array:
    """Return the target by forward kinematics, root axes, shape (k, 3) [m]."""
    target = Target.of(robot, values, registration)
    return np.array([target_pose(robot, item.posture, target)[1]
                     for item in positions]).reshape(-1, 3)


def check_registration(
    robot: Robot, positions: Sequence[EndPosition], registration: Registration,
    values: ComplianceParameters,
) -> float:
    """Return the largest distance between tracked target and forward kinematics [m].

    Raises:
        DataError: If a distance exceeds the limit.

    """
    limit = values.max_registration_residual
    apart = np.linalg.norm(
        _points(positions) @ registration.rotation.T + registration.translation
        - _target_points(robot, positions, values, registration), axis=1)
    if (apart > limit).any():
        first = int(np.argmax(apart > limit))
        raise DataError(
            f'The tracker frame does not fit the arm: in posture {first + 1} the target is '
            f'measured {1e3 * apart[first]:.2f} mm from its position by forward kinematics '
            f'(limit {1e3 * limit:.2f} mm). Check whether the tracker or the target was moved. '
            'Call register_tracker.')
    return float(apart.max(initial=0.0))

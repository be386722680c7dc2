# SPDX-License-Identifier: Apache-2.0
"""End positions: what the tracker saw, on average, while the arm rested in a posture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from robocal_ros.core.arrays import Array, frozen
from robocal_ros.core.compliance.tracker import TrackerSamples
from robocal_ros.core.samples import JointSamples
from robocal_ros.core.signals import dwells
from robocal_ros.errors import DataError

# A reading this many robust standard deviations off the dwell's median is no reading.
_WILD = 8.0
_NORMAL_MAD = 1.4826
# Dwells whose scatter is this improbable among the others are weighed by their own.
_ODD_SCATTER = 1e-6
_ITERATIONS = 20
_MAX_RHO = 0.95


@dataclass(frozen=True)
class DwellSettings:
    """How rests become end positions.

    Attributes:
        settle: Time left out after the arm came to rest [s].
        dwell: Time over which readings are averaged [s].
        min_readings: Fewest readings that make an end position.

    """

    settle: float = 0.5
    dwell: float = 2.0
    min_readings: int = 5


@dataclass(frozen=True, eq=False)
class EndPosition:
    """Mean of a dwell.

    Attributes:
        posture: Mean joint angles by the encoders, shape (n,) [rad].
        point: Mean of the readings in the tracker's frame, shape (3,) [m].
        rotation: Mean orientation, target's axes to tracker's, shape (3, 3), or None.
        scatter: Sum of the products of the readings' deviations from the mean: position [m],
            then rotation vector [rad] if orientation is measured, shape (d, d).
        succession: Sum of the products of successive deviations (trace of the lag-one sum in
            position), for telling drifting noise from white [m²].
        count: Readings averaged.
        rejected: Readings left out as wild.
        time: Stamp of the middle of the dwell [s].
        begin: Stamp from which samples count; NaN if nobody said [s].
        end: Stamp before which they count; NaN if nobody said [s].

    """

    posture: Array
    point: Array
    rotation: Array | None
    scatter: Array
    succession: float
    count: int
    rejected: int
    time: float
    begin: float = np.nan
    end: float = np.nan

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for name in ('posture', 'point', 'scatter'):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        if self.rotation is not None:
            object.__setattr__(self, 'rotation', frozen(self.rotation))


def average(posture: Array, readings: TrackerSamples) -> EndPosition:
    """Average the readings of one dwell, without the wild ones.

    Args:
        posture: Mean joint angles, shape (n,) [rad].
        readings: At least two readings.

    Raises:
        DataError: If there are fewer than two readings.

    """
    if len(readings) < 2:
        raise DataError(f'{len(readings)} tracker readings have no scatter; expected at least 2.')
    deviation = readings.point - np.median(readings.point, axis=0)
    spread = _NORMAL_MAD * np.median(np.abs(deviation), axis=0)
    tame = (np.abs(deviation) <= _WILD * np.maximum(spread, 1e-9)).all(axis=1)
    # Readings without any scatter (a tracker that repeats itself) have no wild ones either.
    tame = tame if tame.sum() >= 2 else np.ones(len(readings), dtype=bool)
    point = readings.point[tame]
    centred = point - point.mean(axis=0)
    rotation = None
    if readings.orientation is not None:
        turns = scipy.spatial.transform.Rotation.from_quat(readings.orientation[tame])
        mean = turns.mean()
        rotation = mean.as_matrix()
        centred = np.hstack((centred, (turns * mean.inv()).as_rotvec()))
    return EndPosition(
        posture=posture, point=point.mean(axis=0), rotation=rotation,
        scatter=centred.T @ centred,
        succession=float((centred[1:, :3] * centred[:-1, :3]).sum()),
        count=int(tame.sum()), rejected=int((~tame).sum()),
        time=float(0.5 * (readings.time[0] + readings.time[-1])))


def end_position(
    joints: JointSamples, readings: TrackerSamples, begin: float, end: float
) -> EndPosition:
    """Average the joint angles and readings of one dwell.

    Args:
        joints: Joint states.
        readings: Readings of the tracker, with stamps of the same clock.
        begin: Stamp from which both count [s].
        end: Stamp before which both count [s].

    Raises:
        DataError: If no joint state or fewer than two readings count.

    """
    rows = slice(*np.searchsorted(joints.time, (begin, end)).tolist())
    if rows.start == rows.stop:
        raise DataError(f'No joint state has a stamp from {begin:.3f} s to {end:.3f} s; expected '
                        'those of an arm at rest.')
    found = average(joints.position[rows].mean(axis=0), readings.between(begin, end))
    return replace(found, begin=begin, end=end)


def find_end_positions(
    joints: JointSamples, readings: TrackerSamples, settings: DwellSettings
) -> list[EndPosition]:
    """Find where the arm rested long enough, and average the readings of each rest.

    Of each rest the first stretch of ``dwell`` seconds with enough readings counts; rests in
    which the target was not seen are left out. A stretch ends with the last of all readings at
    the latest: others may still be on their way, and what is told of a stretch is to hold when
    they have come.

    Args:
        joints: Joint states.
        readings: Readings of the tracker, with stamps of the same clock.
        settings: How rests become end positions.

    Returns:
        The end positions in the order of time.

    """
    found = []
    heard = float(np.nextafter(readings.time[-1], np.inf)) if len(readings) else -np.inf
    rests = dwells(joints, settle=0.0, min_duration=settings.settle + settings.dwell)
    for rest in rests:
        begin = joints.time[rest.start] + settings.settle
        last = joints.time[rest.stop - 1]
        while begin + settings.dwell <= last + 1e-9:
            end = min(begin + settings.dwell, heard)
            if len(readings.between(begin, end)) >= max(2, settings.min_readings):
                found.append(end_position(joints, readings, float(begin), float(end)))
                break
            begin += 0.5 * settings.dwell
    return found


def pooled_covariances(positions: Sequence[EndPosition]) -> Array:
    """Return the covariance of each mean, shape (k, d, d) [m², m·rad, rad²].

    The covariance of a reading is pooled over all dwells, because that of one dwell rests on
    too few readings to weigh by; a dwell that scatters far more than the others is given its
    own. Noise that drifts within a dwell (lag-one correlation, as of a first-order process)
    averages out more slowly and is counted as such.

    Args:
        positions: End positions, all with or all without orientation.

    """
    freedom = np.array([item.count - 1 for item in positions])
    scatter = np.array([item.scatter for item in positions])
    size = scatter.shape[1]
    trace = np.trace(scatter[:, :3, :3], axis1=1, axis2=2)
    # The median dwell tells the scale, so that an odd one cannot hide itself.
    typical = float(np.median(trace / np.maximum(freedom, 1)))
    limit = scipy.stats.chi2.isf(_ODD_SCATTER, 3 * freedom) / 3.0
    odd = trace > np.maximum(limit * typical, 1e-30)
    even = ~odd if (~odd).any() else np.ones(len(positions), dtype=bool)
    pooled = scatter[even].sum(axis=0) / max(int(freedom[even].sum()), 1)
    pooled = pooled + 1e-18 * np.eye(size)
    inflation = _inflation([item for item, good in zip(positions, even, strict=True) if good])
    means = np.empty_like(scatter)
    for row, item in enumerate(positions):
        own = pooled
        if odd[row]:
            own = pooled * max(1.0, trace[row] / (freedom[row] * np.trace(pooled[:3, :3])))
        means[row] = own * inflation / item.count
    return means


def _inflation(positions: Sequence[EndPosition]) -> float:
    """Return by how much correlated noise inflates the variance of a mean; 1 for white noise.

    (1 + ρ) / (1 − ρ) of a first-order process, where ρ stands out of its own scatter. The
    deviations are from the dwell's own mean, which takes the share w = inflation / n of the
    variance, and of the covariance of successive readings, with it.
    """
    total = sum(float(np.trace(item.scatter[:3, :3])) for item in positions)
    count = sum(item.count for item in positions)
    if total <= 0.0 or not count:
        return 1.0
    ratio = sum(item.succession for item in positions) / total
    size = count / len(positions)
    if ratio + 1.0 / size < 4.0 / np.sqrt(3.0 * count):
        return 1.0
    inflation = 1.0
    for _ in range(_ITERATIONS):
        share = min(inflation / size, 0.5)
        rho = min(ratio * size / (size - 1.0) * (1.0 - share) + share, _MAX_RHO)
        inflation = (1.0 + rho) / (1.0 - rho)
    share = min(inflation / size, 0.5)
    return float(inflation * (1.0 - 1.0 / size) / (1.0 - share))


def same_posture(one: EndPosition, other: EndPosition, tolerance: float) -> bool:
    """Tell whether two end positions were measured in one posture."""
    return bool(np.abs(one.posture - other.posture).max() <= tolerance)


def visits(positions: Sequence[EndPosition], tolerance: float) -> list[list[EndPosition]]:
    """Group end positions of one set by posture, in the order of the first visits.

    Args:
        positions: In the order of time.
        tolerance: Largest difference of joint angles within a group [rad].

    """
    groups: list[list[EndPosition]] = []
    for item in positions:
        for group in groups:
            if same_posture(group[0], item, tolerance):
                group.append(item)
                break
        else:
            groups.append([item])
    return groups

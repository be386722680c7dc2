# SPDX-License-Identifier: Apache-2.0
"""The two sets of end positions, without and with the load: drift, pairs, displacements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy

from robocal_ros.core.arrays import Array
from robocal_ros.core.compliance.positions import (
    EndPosition,
    pooled_covariances,
    same_posture,
    visits,
)
from robocal_ros.core.compliance.registration import Registration
from robocal_ros.errors import DataError

MATCH_TOLERANCE = 1e-4
"""Largest difference of joint angles between two visits of a posture [rad]."""

# Farther apart than this, two postures are two postures, and not one that was met badly [rad].
_ANOTHER = 0.02
_SIGNIFICANT = 1e-4
HELD_OUT_EVERY = 5


@dataclass(frozen=True)
class Drift:
    """How the tracker's frame moved during a set, by postures that were visited again.

    Attributes:
        time: Stamps of the visits, the first ones included, shape (k,) [s].
        shift: Change of the target's position since the first visit, in the tracker's frame,
            shape (k, 3) [m].
        std: Standard deviation of a shift's coordinate, shape (k,) [m].

    """

    time: Array
    shift: Array
    std: Array

    @property
    def largest(self) -> float:
        """Largest shift [m]."""
        return float(np.linalg.norm(self.shift, axis=1).max()) if len(self.time) else 0.0

    @property
    def significant(self) -> bool:
        """Whether the shifts stand out of the readings' noise."""
        moved = self.std > 0.0
        if not moved.any():
            return False
        square = float(((self.shift[moved] / self.std[moved, None]) ** 2).sum())
        return square > float(scipy.stats.chi2.isf(_SIGNIFICANT, 3 * int(moved.sum())))

    def at(self, time: float) -> Array:
        """Return the shift at a time, linear between the visits, shape (3,) [m]."""
        if not len(self.time):
            return np.zeros(3)
        return np.array([np.interp(time, self.time, column) for column in self.shift.T])


def drift_of(
    positions: Sequence[EndPosition], tolerance: float = MATCH_TOLERANCE
) -> Drift:
    """Return how the tracker moved, judged by the posture that was visited most often.

    Args:
        positions: End positions of one set, in the order of time.
        tolerance: Largest difference of joint angles between visits [rad].

    """
    groups = visits(positions, tolerance)
    again = max(groups, key=len, default=[])
    if len(again) < 2:
        return Drift(np.empty(0), np.empty((0, 3)), np.empty(0))
    covariance = pooled_covariances(list(positions))
    variance = np.trace(covariance[:, :3, :3], axis1=1, axis2=2) / 3.0
    rows = [next(i for i, item in enumerate(positions) if item is visit) for visit in again]
    std = np.sqrt(variance[rows] + variance[rows[0]])
    std[0] = 0.0
    return Drift(np.array([item.time for item in again]),
                 np.array([item.point - again[0].point for item in again]), std)


def check_drift(drift: Drift, limit: float, which: str) -> None:
    """Refuse a set during which the tracker moved.

    Args:
        drift: How it moved.
        limit: Largest shift [m].
        which: Which set, for the sentence.

    Raises:
        DataError: If a shift exceeds the limit.

    """
    if drift.largest <= limit:
        return
    first = int(np.argmax(np.linalg.norm(drift.shift, axis=1) > limit))
    raise DataError(
        f'The tracker drifted: in the {which} set the reference posture reads '
        f'{1e6 * float(np.linalg.norm(drift.shift[first])):.0f} µm off its first reading after '
        f'{drift.time[first] - drift.time[0]:.0f} s (limit {1e6 * limit:.0f} µm). Let the '
        'tracker warm up, fix its stand and the target, then measure again.')


@dataclass(frozen=True)
class Displacements:
    """How far the load moved the target, posture by posture.

    Attributes:
        unloaded: Joint angles by the encoders without the load, shape (k, n) [rad].
        loaded: The same with the load, shape (k, n) [rad].
        value: Displacement of the target in base axes: position [m], then rotation vector
            [rad] if orientation is measured, shape (k, d).
        covariance: Of each displacement, shape (k, d, d).
        held_out: Whether a posture is for validation only, shape (k,).
        drifted: Whether the tracker moved significantly within a set, so that it may have done
            so between the sets.

    """

    unloaded: Array
    loaded: Array
    value: Array
    covariance: Array
    held_out: np.ndarray
    drifted: bool = False

    def __len__(self) -> int:
        """Return the number of postures."""
        return len(self.value)

    def rows(self, which: np.ndarray) -> Displacements:
        """Return some of the postures."""
        return Displacements(self.unloaded[which], self.loaded[which], self.value[which],
                             self.covariance[which], self.held_out[which], self.drifted)


def _pairs(
    unloaded: Sequence[EndPosition], loaded: Sequence[EndPosition], names: Sequence[str],
    tolerance: float,
) -> list[tuple[EndPosition, EndPosition]]:
    """Match first visits of both sets by posture; refuse what does not match."""
    without = [group[0] for group in visits(unloaded, tolerance)]
    with_load = [group[0] for group in visits(loaded, tolerance)]
    pairs, missing = [], []
    for number, item in enumerate(without, 1):
        partner = next((p for p in with_load if same_posture(item, p, tolerance)), None)
        if partner is not None:
            pairs.append((item, partner))
            continue
        gaps = np.abs(np.array([p.posture for p in with_load]) - item.posture)
        gap = gaps[int(np.argmin(gaps.max(axis=1)))]
        if gap.max() <= _ANOTHER:
            joint = int(np.argmax(gap))
            raise DataError(
                f'Posture {number} does not match between the two sets: joint '
                f"'{names[joint]}' stands {gap[joint]:.2e} rad apart (limit {tolerance:.0e} "
                'rad). Measure it again, with a controller that holds the same angles under '
                'load.')
        missing.append(number)
    if missing:
        raise DataError(
            f'{len(without)} postures are measured without the load, but only {len(pairs)} of '
            f'them with it; missing: {", ".join(map(str, missing[:10]))}'
            f'{" …" if len(missing) > 10 else ""}. Call measure_loaded to go on.')
    if len(with_load) > len(pairs):
        raise DataError(
            f'{len(with_load) - len(pairs)} postures are measured with the load alone, without '
            'a counterpart. Detach the load and call measure_unloaded to go on.')
    return pairs


def displacements(
    unloaded: Sequence[EndPosition],
    loaded: Sequence[EndPosition],
    registration: Registration,
    joint_names: Sequence[str],
    *,
    tolerance: float = MATCH_TOLERANCE,
    max_drift: float = 5e-5,
) -> Displacements:
    """Turn two sets of end positions into displacements in base axes.

    Every fifth posture, in the order of measuring, is held out.

    Args:
        unloaded: End positions without the load, in the order of time.
        loaded: End positions with the load, in the order of time.
        registration: Where the tracker stands.
        joint_names: Names of the joints, for the sentences.
        tolerance: Largest difference of joint angles between the two sets [rad].
        max_drift: Largest shift of a reference posture within a set [m].

    Raises:
        DataError: If a set is empty, postures are missing or don't match, or the tracker
            drifted.

    """
    for which, positions in (('unloaded', unloaded), ('loaded', loaded)):
        if not positions:
            raise DataError(f'No posture of the {which} set is measured; call '
                            f'measure_{which} first.')
    if len({item.rotation is None for item in (*unloaded, *loaded)}) > 1:
        raise DataError('Some end positions are poses, others points; measure both sets with one '
                        'kind of tracker message.')
    shifts = []
    for which, positions in (('unloaded', unloaded), ('loaded', loaded)):
        shift = drift_of(positions, tolerance)
        check_drift(shift, max_drift, which)
        shifts.append(shift)
    drifted = any(shift.significant for shift in shifts)
    everything = [*unloaded, *loaded]
    covariance = {id(item): c for item, c in zip(
        everything, pooled_covariances(everything), strict=True)}
    pairs = _pairs(unloaded, loaded, joint_names, tolerance)
    values, covariances = [], []
    for without, with_load in pairs:
        change = with_load.point - without.point
        if drifted:
            change = change - shifts[1].at(with_load.time) + shifts[0].at(without.time)
        row = registration.rotation @ change
        turn = np.kron(np.eye(len(covariance[id(without)]) // 3), registration.rotation)
        if without.rotation is not None and with_load.rotation is not None:
            turned = scipy.spatial.transform.Rotation.from_matrix(
                with_load.rotation @ without.rotation.T).as_rotvec()
            row = np.concatenate((row, registration.rotation @ turned))
        both = covariance[id(without)] + covariance[id(with_load)]
        values.append(row)
        covariances.append(turn @ both @ turn.T)
    return Displacements(
        np.array([a.posture for a, _ in pairs]), np.array([b.posture for _, b in pairs]),
        np.array(values), np.array(covariances),
        np.arange(1, len(pairs) + 1) % HELD_OUT_EVERY == 0, drifted)


def split_by_load(
    positions: Sequence[EndPosition], tolerance: float = MATCH_TOLERANCE
) -> tuple[list[EndPosition], list[EndPosition]]:
    """Tell from the record alone when the load was mounted.

    Each posture that was visited at least twice brackets that moment between the two
    successive visits that lie farthest apart; where all brackets overlap, it was.

    Args:
        positions: End positions of both sets, in the order of time.
        tolerance: Largest difference of joint angles between visits [rad].

    Returns:
        The sets without and with the load.

    Raises:
        DataError: If no posture was visited twice, or the brackets don't overlap.

    """
    begin, end = -np.inf, np.inf
    for group in visits(positions, tolerance):
        if len(group) < 2:
            continue
        step = [float(np.linalg.norm(b.point - a.point))
                for a, b in pairwise(group)]
        at = int(np.argmax(step))
        begin, end = max(begin, group[at].time), min(end, group[at + 1].time)
    if not np.isfinite(begin):
        raise DataError(
            'No posture was visited twice in the record, once without and once with the load; '
            'expected the same postures in both sets. Record both measurements.')
    if begin >= end:
        raise DataError(
            'The record does not tell when the load was mounted: postures that were visited '
            'again do not agree on one moment. Expected all postures without the load first, '
            'then the same ones with it.')
    moment = 0.5 * (begin + end)
    return ([item for item in positions if item.time < moment],
            [item for item in positions if item.time >= moment])

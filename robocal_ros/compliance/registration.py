# SPDX-License-Identifier: Apache-2.0
"""Registration of the tracker: the transform from its frame to the base frame.

Sources: Arun, Huang, Blostein, Least-Squares Fitting of Two 3-D Point Sets, IEEE Trans. PAMI 9
(1987) 698, doi 10.1109/TPAMI.1987.4767965; Umeyama, IEEE Trans. PAMI 13 (1991) 376, doi
10.1109/34.88573, for the sign of the determinant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from robocal_ros.arrays import Array, freeze
from robocal_ros.errors import DataError, ExcitationError

METHODS = ('least_squares', 'three_point')

# Ratio of second to first extent below which points count as collinear.
_COLLINEAR = 0.02
_SMALLEST_EXTENT = 0.01


@dataclass(frozen=True)
class Registration:
    """Pose of the tracker in the base frame.

    Attributes:
        rotation: Rotation from tracker to base, shape (3, 3).
        translation: Origin of the tracker in the base frame, shape (3,) [m].
        residual: Distances between the points in the base frame and the transformed points of
            the tracker, shape (k,) [m].
        method: One of ``METHODS``.
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

    def to_base(self, points: Array) -> Array:
        """Map points from the tracker's frame to the base frame, shape (..., 3) [m]."""
        return np.asarray(points @ self.rotation.T + self.translation)


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


def least_squares_transform(
    tracker: Array, base: Array, limit: float = np.inf
) -> Registration:
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

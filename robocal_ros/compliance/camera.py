# SPDX-License-Identifier: Apache-2.0
"""Cameras that see a board: their intrinsics, and the residuals of images.

An image is one observation. Its corners determine the six coordinates of the pose between board
and camera, by P, the derivative of the pixels by small motions of one against the other: the
residual is (PᵀP)^(-1/2) Pᵀ of the pixels' residuals, whose noise is that of a corner in each
coordinate.
The camera model is that of OpenCV and of ROS (sensor_msgs/CameraInfo, ``plumb_bob`` and
``rational_polynomial``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pinocchio as pin

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError, FileFormatError
from robocal_ros.files import NonNegative, Section, read_as

INTRINSICS = ('fx', 'fy', 'cx', 'cy', 'k1', 'k2', 'p1', 'p2', 'k3', 'k4', 'k5', 'k6')
CORNERS = 4
"""Least number of corners in an image."""

# Standard deviations of intrinsics of which nothing is known: focal lengths and centre as shares
# of the focal length, coefficients of distortion.
_FOCAL, _DISTORTION = 0.01, 0.02
# Width over length of corners that count as a line.
_NARROW = 1e-3
_MODELS = {'plumb_bob': 5, 'rational_polynomial': 8}


class _Matrix(msgspec.Struct):
    data: tuple[float, ...]


class _CameraInfo(msgspec.Struct):
    """What camera_calibration writes and camera_info_manager reads."""

    camera_matrix: _Matrix
    distortion_coefficients: _Matrix
    distortion_model: str = 'plumb_bob'


class ListedCamera(Section):
    """Camera of a list of sets.

    Attributes:
        file: Its calibration as camera_calibration writes it, relative to the list.
        std: Standard deviations of fx, fy, cx, cy [px] and of the coefficients of distortion, in
            the order of the file; 0 for what is exact. Empty: little is known of any.

    """

    file: str
    std: tuple[NonNegative, ...] = ()


@dataclass(frozen=True, eq=False)
class Camera:
    """Intrinsics as calibrated.

    Attributes:
        value: fx, fy, cx, cy [px], then coefficients of distortion, shape (p,).
        std: Standard deviations, shape (p,).

    """

    value: Array
    std: Array

    @classmethod
    def read(cls, item: ListedCamera, folder: Path) -> Camera:
        """Read the calibration of a listed camera.

        Raises:
            ConfigurationError: If the file cannot be read.
            FileFormatError: If it has another camera model, or ``std`` another length.

        """
        path = folder / item.file
        info = read_as(path, 'calibration of a camera', _CameraInfo)
        matrix, distortion = info.camera_matrix.data, info.distortion_coefficients.data
        if len(matrix) != 9 or len(distortion) != _MODELS.get(info.distortion_model):
            raise FileFormatError(
                f'{path}: expected a camera_matrix of 9 numbers and the distortion_model '
                f'plumb_bob with 5 coefficients or rational_polynomial with 8, got '
                f"{len(matrix)} numbers and '{info.distortion_model}' with {len(distortion)}. "
                'Calibrate the camera with one of these models.')
        value = np.array((*(matrix[at] for at in (0, 4, 2, 5)), *distortion))
        std = np.array(item.std) if item.std else np.repeat(
            (_FOCAL * value[0], _DISTORTION), (4, len(distortion)))
        if len(std) != len(value):
            raise FileFormatError(
                f'{path}: std of the list has {len(std)} numbers, expected {len(value)}: of '
                f'{", ".join(INTRINSICS[:len(value)])}.')
        return cls(value, std)

    def projected(
        self, points: Array, changes: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Return the pixels of points, and their derivatives.

        Args:
            points: In the camera's frame, shape (m, 3) [m].
            changes: Of the intrinsics, shape (p,); None for none.

        Returns:
            Pixels, shape (m, 2); derivatives by the points, (m, 2, 3), and by the intrinsics,
            (m, 2, p).

        """
        from cv2 import projectPoints

        matrix, distortion = self._matrices(changes)
        found = projectPoints(points, np.zeros(3), np.zeros(3), matrix, distortion)
        pixels, slopes = (np.asarray(part, dtype=np.float64).reshape(len(points), 2, -1)
                          for part in found)
        return pixels[:, :, 0], slopes[:, :, 3:6], slopes[:, :, 6:6 + len(self.value)]

    def board(self, corners: Array) -> tuple[pin.SE3, Array]:
        """Return the pose of a board in the camera's frame, and the distances of its corners.

        Args:
            corners: Position on the board [m] and pixel of each corner, shape (m, 5).

        Returns:
            The pose that fits best, and the distances from its pixels, shape (m,) [px].

        Raises:
            DataError: If they determine no pose.

        """
        import cv2

        points, pixels = (np.ascontiguousarray(part) for part in np.hsplit(corners, [3]))
        for part in (points, pixels):
            length, width = np.linalg.svd(part - part.mean(axis=0), compute_uv=False)[:2]
            if width <= _NARROW * length:
                raise DataError('the corners of the image determine no pose; they are in a line '
                                'or at one place')
        _, turn, shift = cv2.solvePnP(points, pixels, *self._matrices(), flags=cv2.SOLVEPNP_SQPNP)
        turn, shift = cv2.solvePnPRefineLM(points, pixels, *self._matrices(), turn, shift)
        pose = pin.SE3(pin.exp3(np.asarray(turn).ravel()), np.asarray(shift).ravel())
        seen, _, _ = self.projected(points @ pose.rotation.T + pose.translation)
        return pose, np.linalg.norm(seen - pixels, axis=1)

    def _matrices(self, changes: Array | None = None) -> tuple[Any, Any]:
        fx, fy, cx, cy, *distortion = self.value if changes is None else self.value + changes
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]]), np.array(distortion)

    def residual(
        self, corners: Array, mounted: pin.SE3, fixed: pin.SE3, changes: Array, *, on_tool: bool
    ) -> tuple[Array, Array, Array]:
        """Return the residual of an image, and its derivatives.

        Args:
            corners: Position on the board [m] and pixel of each corner, shape (m, 5).
            mounted: Pose of what moves with the arm, board or camera, in root axes.
            fixed: Pose of the other one.
            changes: Of the intrinsics, shape (p,).
            on_tool: Whether the camera is what moves.

        Returns:
            The residual, predicted minus seen, shape (6,) [px]; its derivatives by shift and
            turn of ``mounted`` against ``fixed`` in root axes, about the origin of ``mounted``,
            (6, 6); and by the intrinsics, (6, p).

        """
        camera, board = (mounted, fixed) if on_tool else (fixed, mounted)
        points = corners[:, :3] @ board.rotation.T + board.translation
        seen = (points - camera.translation) @ camera.rotation
        pixels, slope, own = self.projected(seen, changes)
        lever = points - mounted.translation
        slope = (-slope if on_tool else slope) @ camera.rotation.T
        moved = np.concatenate((slope, np.cross(lever[:, None], slope)), axis=2).reshape(-1, 6)
        size, axes = np.linalg.eigh(moved.T @ moved)
        root = np.sqrt(np.maximum(size, 1e-12 * size[-1]))
        white = (axes / root) @ axes.T @ moved.T
        return (white @ (pixels - corners[:, 3:]).ravel(), (axes * root) @ axes.T,
                white @ own.reshape(len(moved), -1))

    def metres(self, corners: Array, board: pin.SE3) -> float:
        """Return the factor from the residual of an image [px] to a shift of the board [m]."""
        depth = float((corners[:, :3] @ board.rotation.T + board.translation)[:, 2].mean())
        return depth / float(self.value[0]) / np.sqrt(len(corners))

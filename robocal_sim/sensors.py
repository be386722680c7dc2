# SPDX-License-Identifier: Apache-2.0
"""Sensors of the simulated arm: noise, bias, quantisation, ripple, saturation, delay, loss.

Each sensor has a random generator of its own, so that adding or removing one does not change
the noise of another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from robocal_ros.errors import DataError
from robocal_sim.truth import (
    CameraTruth,
    ForceTorqueNoise,
    ForceTorqueTruth,
    ImuNoise,
    JointNoise,
    JointTruth,
    StreamNoise,
    TrackerNoise,
    TrackerTruth,
)

FloatArray = npt.NDArray[np.float64]
T = TypeVar('T')

_BLOCK = 1024

CROSS_SCALE = np.repeat([10.0, 1.0], 3)
"""Ratio of force [N] and torque [N·m] between which calibration errors act alike."""


class WhiteNoise:
    """White noise, drawn in blocks for speed."""

    def __init__(self, sigma: FloatArray, generator: np.random.Generator) -> None:
        self._sigma = sigma
        self._generator = generator
        self._block = np.empty((0, sigma.size))
        self._next = 0

    def draw(self, shape: tuple[int, ...] = ()) -> FloatArray:
        """Return one sample, or an array of samples of a given shape, along the last axis."""
        if shape:
            return self._generator.standard_normal((*shape, self._sigma.size)) * self._sigma
        if self._next == len(self._block):
            self._block = self._generator.standard_normal((_BLOCK, self._sigma.size))
            self._block *= self._sigma
            self._next = 0
        sample: FloatArray = self._block[self._next]
        self._next += 1
        return sample


def quantised(values: FloatArray, step: FloatArray | float) -> FloatArray:
    """Return values rounded to multiples of `step`; unchanged where the step is 0."""
    steps = np.broadcast_to(np.asarray(step), values.shape)
    ratio = np.divide(values, steps, out=values.copy(), where=steps > 0.0)
    return np.where(steps > 0.0, np.round(ratio) * steps, values)


class LowPass:
    """Cascade of equal first-order low-pass filters, discretised exactly for held inputs.

    Args:
        frequency: Corner frequency of each section [Hz]; 0 for no filter.
        order: Number of sections.
        step: Sampling period [s].

    """

    def __init__(self, frequency: float, order: int, step: float) -> None:
        self._kept = float(np.exp(-2.0 * np.pi * frequency * step)) if frequency else 0.0
        self._order = order if frequency else 0
        self._states: list[FloatArray] | None = None

    def step(self, value: FloatArray) -> FloatArray:
        """Return the filtered value of the next sample; the first one starts in equilibrium."""
        if self._states is None:
            self._states = [value.copy() for _ in range(self._order)]
        for index, state in enumerate(self._states):
            value = self._states[index] = value + self._kept * (state - value)
        return value

    def filtered(self, values: FloatArray) -> FloatArray:
        """Return filtered samples, shape (k, …); the first one starts in equilibrium."""
        # Imported late, like Rotation below: SciPy would double the time that the node loads.
        from scipy.signal import lfilter

        for _ in range(self._order):
            start = self._kept * values[:1]
            values, _ = lfilter([1.0 - self._kept], [1.0, -self._kept], values, axis=0, zi=start)
        return values


class Delay:
    """Values of a fixed number of steps ago; the first value before that."""

    def __init__(self, duration: float, step: float) -> None:
        self._values: deque[FloatArray] = deque(maxlen=round(duration / step) + 1)

    def step(self, value: FloatArray) -> FloatArray:
        """Add a value and return the delayed one."""
        self._values.append(value)
        return self._values[0]


class JointSensor:
    """Encoders and torque sensors of all joints; arrays have shape (n,) or (k, n)."""

    def __init__(
        self, noise: JointNoise, joints: Sequence[JointTruth], generator: np.random.Generator
    ) -> None:
        count = len(joints)
        self._step = noise.position_quantisation
        self._scale = np.array([joint.effort_scale for joint in joints])
        self._offset = np.array([joint.effort_offset for joint in joints])
        self._ripple = noise.effort_ripple
        self._cycles = noise.effort_ripple_cycles
        self._phase = generator.uniform(0.0, 2.0 * np.pi, count)
        self._wrapped = np.array([joint.wrapped for joint in joints])
        self._wraps = bool(self._wrapped.any())
        sigma = np.repeat([noise.velocity_sigma, noise.effort_sigma], count)
        self._white = WhiteNoise(sigma, generator)
        self._count = count

    def measure(
        self, position: FloatArray, velocity: FloatArray, effort: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return measured position [rad], velocity [rad/s] and effort [N·m]."""
        white = self._white.draw(position.shape[:-1])
        measured_effort = self._scale * effort + self._offset + white[..., self._count:]
        if self._ripple:
            measured_effort += self._ripple * np.sin(self._cycles * position + self._phase)
        return (self.read_positions(position), velocity + white[..., :self._count],
                measured_effort)

    def read_positions(self, position: FloatArray) -> FloatArray:
        """Return measured positions [rad], which have no noise but the encoders' steps."""
        if self._step:
            position = np.round(position / self._step) * self._step
        if self._wraps:
            turned = np.mod(position + np.pi, 2.0 * np.pi) - np.pi
            position = np.where(self._wrapped, turned, position)
        return position


class ForceTorqueSensor:
    """Six-axis force/torque sensor: force [N], then torque [N·m], shape (6,) or (k, 6)."""

    def __init__(
        self, noise: ForceTorqueNoise, truth: ForceTorqueTruth, generator: np.random.Generator
    ) -> None:
        bound = np.repeat([noise.force_bias, noise.torque_bias], 3)
        drawn = generator.uniform(-bound, bound)
        self._bias = drawn if truth.bias is None else np.array(truth.bias)
        drift = np.repeat([noise.force_drift, noise.torque_drift], 3)
        # Drawn only if there is drift, so that the noise of other cells stays the same.
        self._drift = generator.uniform(-drift, drift) if drift.any() else None
        self._calibration = np.eye(6)
        if truth.calibration_error:
            error = truth.calibration_error * generator.standard_normal((6, 6))
            self._calibration += error * CROSS_SCALE[:, None] / CROSS_SCALE
        self._distorts = bool(truth.calibration_error or truth.cable_stiffness)
        self._cable = np.zeros(6)
        if truth.cable_stiffness:
            axis = generator.standard_normal(3)
            self._cable[3:] = truth.cable_stiffness * axis / np.linalg.norm(axis)
        self._white = WhiteNoise(np.repeat([noise.force_sigma, noise.torque_sigma], 3), generator)
        self._step = np.repeat([noise.force_quantisation, noise.torque_quantisation], 3)
        ranges = np.repeat([noise.force_range, noise.torque_range], 3)
        self._range = np.where(ranges > 0.0, ranges, np.inf)
        self._plain = not self._step.any() and bool(np.isinf(self._range).all())

    @property
    def bias(self) -> FloatArray:
        """Hidden bias, shape (6,)."""
        return self._bias.copy()

    def measure(
        self, wrench: FloatArray, elapsed: FloatArray | float = 0.0,
        angle: FloatArray | float = 0.0,
    ) -> FloatArray:
        """Return the reading for a true wrench.

        Args:
            wrench: True wrench, shape (6,) or (k, 6).
            elapsed: Time since the drift started [s], scalar or (k,).
            angle: Position of the last joint, which bends the cable [rad], scalar or (k,).

        """
        if self._distorts:
            wrench = (wrench + np.multiply.outer(angle, self._cable)) @ self._calibration.T
        reading: FloatArray = wrench + self._bias + self._white.draw(wrench.shape[:-1])
        if self._drift is not None:
            reading += np.multiply.outer(elapsed, self._drift)
        if self._plain:
            return reading
        return np.clip(quantised(reading, self._step), -self._range, self._range)


class ImuSensor:
    """IMU: specific force [m/s²], then angular velocity [rad/s], shape (6,)."""

    def __init__(self, noise: ImuNoise, generator: np.random.Generator) -> None:
        self._white = WhiteNoise(
            np.repeat([noise.accelerometer_sigma, noise.gyro_sigma], 3), generator
        )

    def measure(self, inertial: FloatArray) -> FloatArray:
        """Return the reading for true values, shape (6,)."""
        return inertial + self._white.draw()


class TrackerSensor:
    """Laser tracker: position of a reflector, or pose of its link, in the tracker's frame."""

    def __init__(
        self, noise: TrackerNoise, truth: TrackerTruth, generator: np.random.Generator
    ) -> None:
        self._truth = truth
        self._rotation = rotation_from_rpy(*truth.rpy)
        self._origin = np.array(truth.xyz)
        self._target = np.array(truth.target_xyz)
        axis = np.array(truth.target_axis)
        self._axis = axis / np.linalg.norm(axis)
        self._limit = np.cos(min(truth.visibility_angle, np.pi))
        self._white = WhiteNoise(np.full(3, noise.position_sigma), generator)
        self._turn = WhiteNoise(np.full(3, noise.orientation_sigma), generator)
        self._drift_velocity = np.zeros(3)
        if noise.drift_rate > 0.0:
            direction = generator.standard_normal(3)
            self._drift_velocity = noise.drift_rate * direction / np.linalg.norm(direction)

    def measure(
        self, rotation: FloatArray, origin: FloatArray, time: float = 0.0
    ) -> FloatArray | None:
        """Return the reflector in the tracker's frame, or None if it is not visible.

        Args:
            rotation: Rotation of the target link in the root frame, shape (3, 3).
            origin: Origin of the target link in the root frame [m], shape (3,).
            time: Time since the drift started [s].

        Returns:
            Position [m], shape (3,); with orientation shape (7,), followed by the quaternion
            (x, y, z, w) of the link in the tracker's frame.

        """
        point = origin + rotation @ self._target
        sight = self._origin - point
        facing = (rotation @ self._axis) @ sight / np.linalg.norm(sight)
        if facing < self._limit:
            return None
        measured: FloatArray = (self._rotation.T @ (point - self._origin) + self._white.draw()
                                + self._drift_velocity * time)
        if not self._truth.orientation:
            return measured
        from scipy.spatial.transform import Rotation

        turned = Rotation.from_rotvec(self._turn.draw()) * Rotation.from_matrix(
            self._rotation.T @ rotation)
        return np.concatenate((measured, turned.as_quat()))


class CameraSensor:
    """Camera: pixels of a board's corners, by a pinhole and the distortion `plumb_bob`.

    Source: D. C. Brown, "Decentering distortion of lenses", Photogrammetric Engineering 32 (1966)
    444-462, with the coefficients in the order of sensor_msgs/CameraInfo.

    Attributes:
        truth: The camera.

    """

    def __init__(self, truth: CameraTruth, generator: np.random.Generator) -> None:
        self.truth = truth
        board = truth.board
        self._corners = board.square * np.array([
            (column, row, 0.0) for row in range(round(board.rows))
            for column in range(round(board.columns))])
        self._camera = rotation_from_rpy(*truth.rpy)
        self._board = rotation_from_rpy(*board.rpy)
        k1, k2, _, _, k3 = truth.distortion
        # Beyond the first extremum of the distorted radius, the model folds back into the image.
        roots = np.roots(np.trim_zeros((7.0 * k3, 5.0 * k2, 3.0 * k1, 1.0), 'f'))
        self._fold = min((float(root.real) for root in roots
                          if abs(root.imag) < 1.0e-9 and root.real > 0.0), default=np.inf)
        self._white = WhiteNoise(np.full(2, truth.corner_sigma), generator)

    def measure(
        self, camera: tuple[FloatArray, FloatArray], board: tuple[FloatArray, FloatArray],
    ) -> FloatArray:
        """Return the corners that are visible.

        Args:
            camera: Rotation (3, 3) and origin (3,) [m] of the camera's link in the root frame.
            board: Those of the board's link.

        Returns:
            x, y, z on the board [m], then u, v [px] of each corner, shape (k, 5).

        Raises:
            DataError: No corner is visible.

        """
        truth = self.truth
        eye = camera[1] + camera[0] @ truth.xyz
        turn = board[0] @ self._board
        sight = board[1] + board[0] @ truth.board.xyz + self._corners @ turn.T - eye
        x, y, depth = (sight @ camera[0] @ self._camera).T
        facing = -(sight @ turn[:, 2]) / np.linalg.norm(sight, axis=1)
        before = depth > 0.0
        turned = facing < np.cos(min(truth.board.visibility_angle, 0.5 * np.pi))
        pixel = self._project(x, y, np.where(before, depth, 1.0))
        inside = ((x**2 + y**2 < self._fold * depth**2) & (pixel >= 0.0).all(axis=1)
                  & (pixel <= (truth.width - 1.0, truth.height - 1.0)).all(axis=1))
        visible = before & ~turned & inside
        if not visible.any():
            raise DataError(
                f'The camera sees none of the {len(x)} corners of the board: {np.sum(~before)} '
                f'are behind it, {np.sum(before & turned)} are seen from behind or too obliquely, '
                f'{np.sum(before & ~turned & ~inside)} are outside the image. Move the arm so '
                'that the printed side faces the camera.')
        return np.column_stack((self._corners, pixel))[visible]

    def _project(self, x: FloatArray, y: FloatArray, depth: FloatArray) -> FloatArray:
        """Return measured pixels of points in the camera's frame [m], shape (k, 2)."""
        truth, (k1, k2, p1, p2, k3) = self.truth, self.truth.distortion
        x, y = x / depth, y / depth
        square = x**2 + y**2
        radial = 1.0 + square * (k1 + square * (k2 + square * k3))
        bent = np.column_stack((
            x * radial + 2.0 * p1 * x * y + p2 * (square + 2.0 * x**2),
            y * radial + p1 * (square + 2.0 * y**2) + 2.0 * p2 * x * y))
        exact = bent * (truth.fx, truth.fy) + (truth.cx, truth.cy)
        return exact + self._white.draw((len(x),))


class Stream(Generic[T]):
    """Transport of a sensor's samples to its topic, with loss and latency.

    Attributes:
        extra_latency: Latency added by a fault [s].

    """

    def __init__(self, noise: StreamNoise, generator: np.random.Generator) -> None:
        self.extra_latency = 0.0
        self._latency = noise.latency
        self._dropout = noise.dropout
        self._generator = generator
        self._waiting: deque[tuple[float, T]] = deque()

    @property
    def immediate(self) -> bool:
        """True if samples pass without loss and latency."""
        return not (self._latency or self._dropout or self.extra_latency or self._waiting)

    def push(self, time: float, sample: T) -> None:
        """Add a sample taken at `time` [s]."""
        if self._dropout and self._generator.random() < self._dropout:
            return
        self._waiting.append((time + self._latency + self.extra_latency, sample))

    def take(self, now: float) -> list[T]:
        """Remove and return the samples that have arrived by now, in order."""
        arrived = []
        while self._waiting and self._waiting[0][0] <= now + 1.0e-9:
            arrived.append(self._waiting.popleft()[1])
        return arrived


def rotation_from_rpy(roll: float, pitch: float, yaw: float) -> FloatArray:
    """Return the rotation of URDF roll, pitch, yaw [rad] (fixed axes x, y, z), (3, 3)."""
    cr, sr = np.cos(roll), np.sin(roll)
    cp, sp = np.cos(pitch), np.sin(pitch)
    cy, sy = np.cos(yaw), np.sin(yaw)
    return np.array((
        (cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr),
        (sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr),
        (-sp, cp * sr, cp * cr),
    ))

# SPDX-License-Identifier: Apache-2.0
"""Published fits of a joint's friction to runs at constant speeds."""

from __future__ import annotations

import numpy as np
import scipy

from robocal_ros.arrays import Array
from robocal_ros.estimation import low_passed
from robocal_ros.friction.runs import read_runs
from robocal_ros.messages import JointSamples
from robocal_ros.results import rms
from robocal_ros.robot import Robot

_CUTOFF = 10.0
_LEAST_SPEED = 0.005


def coulomb_viscous(robot: Robot, samples: JointSamples, joint: int, speeds: Array) -> Array:
    """Return friction at some speeds by least squares of Coulomb, viscous friction and offset.

    Args:
        robot: The arm with all that it carries.
        samples: Joint states of the runs.
        joint: Column of the joint.
        speeds: Signed speeds, shape (k,) [rad/s].

    """
    points = read_runs(robot, samples, [joint])

    def columns(speed: Array) -> Array:
        return np.column_stack((np.ones_like(speed), np.sign(speed), speed))

    value = np.linalg.lstsq(columns(np.array([point.speed for point in points])),
                            np.array([point.torque for point in points]), rcond=None)[0]
    return np.asarray(columns(speeds) @ value)


def load_dependent(robot: Robot, samples: JointSamples, joint: int, speeds: Array) -> Array:
    """Return the same by a law whose Coulomb and Stribeck friction grow with the load.

    Duclusaud et al., Extended Friction Models for the Physics Simulation of Servo Actuators, 2025,
    arXiv 2410.08650; fitted to all samples in motion, and evaluated at their mean load.
    """
    def friction(x: Array, speed: Array, torque: Array) -> Array:
        coulomb, by_load, extra, extra_by_load, stribeck, shape, viscous = x
        slow = np.exp(-(np.abs(speed) / stribeck) ** shape)
        level = coulomb + by_load * np.abs(torque) + slow * (
            extra + extra_by_load * np.abs(torque))
        return np.asarray(np.sign(speed) * level + viscous * speed)

    period = float(np.median(np.diff(samples.time)))
    cutoff = min(_CUTOFF, 0.2 / period)
    q = low_passed(samples.position, period, cutoff)
    v = np.gradient(q, period, axis=0)
    a = np.gradient(v, period, axis=0)
    effort = low_passed(samples.effort[:, [joint]], period, cutoff)[:, 0]
    rows = np.flatnonzero(np.abs(v[:, joint]) > _LEAST_SPEED)
    rows = rows[::max(1, len(rows) // 4000)]
    carried = np.array([robot.inverse_dynamics(*row)[joint]
                        for row in zip(q[rows], v[rows], a[rows], strict=True)])
    speed, left = v[rows, joint], effort[rows] - carried
    typical = rms(left)

    def residual(x: Array) -> Array:
        return friction(x, speed, carried) - left

    found = scipy.optimize.least_squares(
        residual, [typical, 0.0, typical, 0.0, 0.05, 1.0, 0.0],
        bounds=([0.0, 0.0, 0.0, 0.0, 1e-3, 0.2, 0.0],
                [np.inf, 1.0, np.inf, 1.0, 1.0, 3.0, np.inf]),
        x_scale=[typical, 0.1, typical, 0.1, 0.05, 1.0, typical], max_nfev=500)
    return friction(found.x, speeds, np.full(len(speeds), carried.mean()))

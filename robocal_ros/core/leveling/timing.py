# SPDX-License-Identifier: Apache-2.0
"""A path of postures made a motion: as fast as speed and acceleration limits allow, smoothly.

Postures are joined by a cubic spline over the joint travel, measured in seconds at full speed.
Along it runs one quintic from rest to rest, so that speed and acceleration are continuous and
both end at zero. (Time-optimal parameterisation, such as TOPP-RA's, would be faster, but its
acceleration jumps from limit to limit, which spills what a level tool is to carry.)
"""

from __future__ import annotations

import numpy as np
import scipy

from robocal_ros.core.arrays import Array
from robocal_ros.core.motion import Trajectory

_SAMPLES = 1000
# What interpolation between knots may add.
_RESERVE = 1.02
_MIN_DURATION = 0.2
# Knots closer than this say nothing new to a controller [s].
_SHORTEST_KNOT = 0.002


def timed(positions: Array, max_velocity: Array, max_acceleration: Array) -> Trajectory:
    """Return the motion along postures that reaches a limit somewhere, and passes none.

    Args:
        positions: Different postures in their order, shape (k, n) [rad].
        max_velocity: Speed that no joint exceeds, shape (n,) [rad/s].
        max_acceleration: Acceleration that no joint exceeds, shape (n,) [rad/s²].

    """
    steps = np.linalg.norm(np.diff(positions, axis=0) / max_velocity, axis=1)
    travel = np.concatenate(([0.0], np.cumsum(steps)))
    spline = scipy.interpolate.CubicSpline(travel / travel[-1], positions)
    duration = _duration(spline, max_velocity, max_acceleration)
    time = _knot_times(spline.x)
    # A knot of the path is one of the motion, but for those that would come too close.
    keep = _spaced(time * duration, _SHORTEST_KNOT)
    position, velocity, acceleration = _along(spline, time[keep])
    velocity[[0, -1]] = acceleration[[0, -1]] = 0.0
    position[0], position[-1] = positions[0], positions[-1]
    return Trajectory(time[keep] * duration, position, velocity / duration,
                      acceleration / duration**2)


def _along(spline: scipy.interpolate.CubicSpline, time: Array) -> tuple[Array, Array, Array]:
    """Return position and its derivatives by relative time, the quintic run along a spline."""
    x = time[:, None]
    way = (10.0 * x**3 - 15.0 * x**4 + 6.0 * x**5)[:, 0]
    speed = 30.0 * x**2 - 60.0 * x**3 + 30.0 * x**4
    change = 60.0 * x - 180.0 * x**2 + 120.0 * x**3
    slope, bend = spline(way, 1), spline(way, 2)
    return spline(way), slope * speed, bend * speed**2 + slope * change


def _duration(
    spline: scipy.interpolate.CubicSpline, max_velocity: Array, max_acceleration: Array
) -> float:
    """Return the shortest duration: speed falls with it, acceleration with its square."""
    _, velocity, acceleration = _along(spline, np.linspace(0.0, 1.0, _SAMPLES))
    by_velocity = float((np.abs(velocity) / max_velocity).max())
    by_acceleration = float(np.sqrt((np.abs(acceleration) / max_acceleration).max()))
    return max(_RESERVE * by_velocity, _RESERVE * by_acceleration, _MIN_DURATION)


def _knot_times(way: Array) -> Array:
    """Return the relative times at which the quintic has gone given parts of its way."""
    fine = np.linspace(0.0, 1.0, 20 * _SAMPLES)
    gone = 10.0 * fine**3 - 15.0 * fine**4 + 6.0 * fine**5
    time = np.interp(way, gone, fine)
    time[0], time[-1] = 0.0, 1.0
    return time


def _spaced(time: Array, shortest: float) -> list[int]:
    """Return the rows to keep so that times are not too close, the first and last included."""
    keep = [0]
    for row in range(1, len(time) - 1):
        if time[row] - time[keep[-1]] >= shortest and time[-1] - time[row] >= shortest:
            keep.append(row)
    return [*keep, len(time) - 1]

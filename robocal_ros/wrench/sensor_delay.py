# SPDX-License-Identifier: Apache-2.0
"""Delay of each F/T sensor, from its readings during motions of the arm.

A sensor with delay δ reads h(t − δ) ≈ h(t) − δ dh/dt of the wrench h. The difference is regressed
on dh/dt, with a bias for each component. Noise of velocities in dh/dt would bias least squares
towards shorter delays, so slopes over other instants are used as instrumental variables. The
standard deviation follows from the scatter of independent segments and includes model errors.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from robocal_ros.arrays import Array, Flags
from robocal_ros.messages import SECOND, Stamps

# Least time between the instants used [s], larger where their windows would overlap, and the
# largest one in multiples of it.
_APART = 0.025
_GAP = 1.5
# Values up to this number of steps from an instant are used; their weights in its slope, a central
# difference of fourth order, and in its instrument.
_BESIDE = 3
_SLOPE = np.array([0.0, 1.0, -8.0, 0.0, 8.0, -1.0, 0.0]) / 12.0
_INSTRUMENT = np.array([-1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]) / 6.0
# Duration of a segment [s], and least number of segments.
_STRETCH, _FEWEST = 2.0, 5
# Least RMS rate of change of forces [N/s], and of moments divided by a length [m], in a segment.
_LEAST_CHANGE = 5.0
_LENGTH = 0.1


class SensorDelays:
    """Estimator of the delays of all sensors."""

    def __init__(self, count: int, window: float) -> None:
        """Start empty.

        Args:
            count: Number of sensors.
            window: Length of the averaging window [s].

        """
        self._apart = max(_APART, 1.25 * window)
        # By sensor: delay and information of each segment.
        self._found: list[list[tuple[float, float]]] = [[] for _ in range(count)]

    def add(self, stamps: Stamps, held: Array, distal: Array, free: Flags) -> None:
        """Add successive instants.

        Args:
            stamps: Their stamps, shape (m,) [ns].
            held: Wrenches as from ``SensedArm.held``, shape (m, k, 6) [N, N·m].
            distal: Reading plus held wrench of each sensor, shape (m, k, 6) [N, N·m].
            free: Whether the arm has no contact and all readings are valid, shape (m,).

        """
        if len(stamps) < 2:
            return
        step = (stamps[-1] - stamps[0]) / SECOND / (len(stamps) - 1)
        rows = np.arange(0, len(stamps), max(1, round(self._apart / step)))
        if len(rows) <= 2 * _BESIDE:
            return
        time = (stamps[rows] - stamps[rows[0]]) / SECOND
        scale = np.array([1.0, 1.0, 1.0, *[1.0 / _LENGTH] * 3])
        force, lag = scale * held[rows], scale * distal[rows[_BESIDE:-_BESIDE]]
        times, forces, frees = (sliding_window_view(values, 2 * _BESIDE + 1, axis=0)
                                for values in (time, force, free[rows]))
        apart = (times[:, _BESIDE + 1] - times[:, _BESIDE - 1])[:, None, None] / 2.0
        slope, instrument = forces @ _SLOPE / apart, forces @ _INSTRUMENT / apart
        # All seven values of a slope and its instrument are free of contact and gaps.
        good = frees.all(axis=1) & (
            times[:, -1] - times[:, 0] < 2.0 * _BESIDE * _GAP * self._apart)
        stretch = (times[:, _BESIDE] / _STRETCH).astype(int)
        for number in range(int(stretch[-1]) + 1):
            chosen = good & (stretch == number)
            count = np.count_nonzero(chosen)
            if count * self._apart < 0.5 * _STRETCH:
                continue
            x, y, z = (part[chosen] - part[chosen].mean(axis=0)
                       for part in (slope, lag, instrument))
            power, shared = np.einsum('mkc,mkc->k', z, x), np.einsum('mkc,mkc->k', z, y)
            known = power > _LEAST_CHANGE**2 * count
            for sensor in np.flatnonzero(known).tolist():
                self._found[sensor].append(
                    (float(shared[sensor] / power[sensor]), float(power[sensor])))

    def estimates(self) -> list[tuple[float, float]]:
        """Return delay and standard deviation of each sensor [s], infinite if unobservable."""
        found = []
        for parts in self._found:
            if len(parts) < _FEWEST:
                found.append((0.0, np.inf))
                continue
            delay, power = np.array(parts).T
            share = power / power.sum()
            mean = float(share @ delay)
            # Variance of a weighted mean of independent segments.
            variance = float((share**2) @ (delay - mean)**2) * len(parts) / (len(parts) - 1)
            found.append((mean, float(np.sqrt(variance))))
        return found

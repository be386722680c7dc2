# SPDX-License-Identifier: Apache-2.0
"""Delay of each F/T sensor, from how its readings follow the motion of the arm.

A sensor that lags by δ reads h(t − δ) of what it would read at once, h(t) − δ dh/dt for short
delays. The difference is regressed on dh/dt, with a bias for each component. Noise of velocities
is in dh/dt, so that least squares would find too short a delay: slopes over other instants are the
instrument. The deviation comes from the scatter of independent stretches, so that errors of the
model are in it.
"""

from __future__ import annotations

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.messages.stamps import SECOND, Stamps

# Distance of the instants that are used, or more where their windows would overlap [s]; and the
# longest step between them, in multiples of it.
_APART = 0.025
_GAP = 1.5
# Slope from the values 1 and 2 steps beside an instant, and instrument from those 3 steps beside.
_BESIDE = 3
# Stretches that are compared with each other [s], and their least number.
_STRETCH, _FEWEST = 2.0, 5
# A stretch tells a delay if its forces, and moments over a length [m], change so fast [N/s].
_LEAST_CHANGE = 5.0
_LENGTH = 0.1


class SensorDelays:
    """Estimator of the delays, fed block by block."""

    def __init__(self, count: int, window: float) -> None:
        """Start empty.

        Args:
            count: Number of sensors.
            window: Length of the window over which values are means [s].

        """
        self._apart = max(_APART, 1.25 * window)
        # By sensor: the delay of each stretch, and the information that it holds.
        self._found: list[list[tuple[float, float]]] = [[] for _ in range(count)]

    def add(self, stamps: Stamps, held: Array, distal: Array, free: Array) -> None:
        """Add successive instants.

        Args:
            stamps: Their stamps, shape (m,) [ns].
            held: As of ``SensedArm.held``, shape (m, k, 6) [N, N·m].
            distal: Reading + held of each sensor, shape (m, k, 6) [N, N·m].
            free: Whether nothing touches the arm and all readings are valid, shape (m,).

        """
        if len(stamps) < 2:
            return
        step = (stamps[-1] - stamps[0]) / SECOND / (len(stamps) - 1)
        rows = np.arange(0, len(stamps), max(1, round(self._apart / step)))
        if len(rows) <= 2 * _BESIDE:
            return
        time = (stamps[rows] - stamps[rows[0]]) / SECOND
        scale = np.array([1.0, 1.0, 1.0, *[1.0 / _LENGTH] * 3])
        force, lag = scale * held[rows], scale * distal[rows]

        def beside(values: Array, steps: int) -> Array:
            count = len(rows) - 2 * _BESIDE
            at = _BESIDE + steps
            return values[at:at + count]

        apart = (beside(time, 1) - beside(time, -1))[:, None, None] / 2.0
        slope = (8.0 * (beside(force, 1) - beside(force, -1))
                 - beside(force, 2) + beside(force, -2)) / (12.0 * apart)
        instrument = (beside(force, 3) - beside(force, -3)) / (6.0 * apart)
        # All seven values of a slope and its instrument are there and free, without a gap.
        good = np.convolve(free[rows], np.ones(2 * _BESIDE + 1), 'valid') > 2 * _BESIDE + 0.5
        good &= beside(time, 3) - beside(time, -3) < 2.0 * _BESIDE * _GAP * self._apart
        stretch = (beside(time, 0) / _STRETCH).astype(int)
        for number in range(int(stretch[-1]) + 1):
            chosen = good & (stretch == number)
            count = np.count_nonzero(chosen)
            if count * self._apart < 0.5 * _STRETCH:
                continue
            x = slope[chosen] - slope[chosen].mean(axis=0)
            y = beside(lag, 0)[chosen] - beside(lag, 0)[chosen].mean(axis=0)
            z = instrument[chosen] - instrument[chosen].mean(axis=0)
            power, shared = np.einsum('mkc,mkc->k', z, x), np.einsum('mkc,mkc->k', z, y)
            known = power > _LEAST_CHANGE**2 * count
            for sensor in np.flatnonzero(known).tolist():
                self._found[sensor].append(
                    (float(shared[sensor] / power[sensor]), float(power[sensor])))

    def estimates(self) -> list[tuple[float, float]]:
        """Return delay and standard deviation of each sensor [s]; infinite if the data lack it."""
        found = []
        for parts in self._found:
            if len(parts) < _FEWEST:
                found.append((0.0, np.inf))
                continue
            delay, power = np.array(parts).T
            share = power / power.sum()
            mean = float(share @ delay)
            # Of a weighted mean of independent parts.
            variance = float((share**2) @ (delay - mean)**2) * len(parts) / (len(parts) - 1)
            found.append((mean, float(np.sqrt(variance))))
        return found

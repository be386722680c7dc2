# SPDX-License-Identifier: Apache-2.0
"""Quintic splines through evenly spaced samples, by a filter in place of a system of equations.

Source: Unser, Splines: A Perfect Fit for Signal and Image Processing, IEEE Signal Process. Mag.
16 (1999) 22, doi 10.1109/79.799930. SciPy's splines do the same on any knots, and take longer to
import than a record of ten minutes takes to fit.
"""

from __future__ import annotations

from math import comb, factorial

import numpy as np

from robocal_ros.core.arrays import Array

_DEGREE = 5
_TAPS = _DEGREE + 1
# The basis function at whole numbers.
_SAMPLES = np.array([1.0, 26.0, 66.0, 26.0, 1.0]) / 120.0
# Weights of the samples fall by 0.43 from one to the next: to 1e-18 over so many.
_REACH = 48


def _pieces() -> Array:
    """Return the six parts of the basis function, from its last one on: powers in rows."""
    parts = np.zeros((_TAPS, _TAPS))
    for tap in range(_TAPS):
        # At u of an interval the tap's basis function is at x = u + 5 - tap of its support:
        # Σ (-1)^j C(6, j) (x - j)^5 / 5!, over all j < x.
        for j in range(_TAPS - tap):
            weight = (-1) ** j * comb(_TAPS, j) / factorial(_DEGREE)
            for power in range(_TAPS):
                parts[power, tap] += weight * comb(_DEGREE, power) * (
                    float(_DEGREE - tap - j) ** (_DEGREE - power))
    return parts


def _inverse() -> Array:
    """Return the filter from samples to coefficients, shape (2 · reach + 1,)."""
    samples = np.zeros(4 * _REACH)
    samples[[-2, -1, 0, 1, 2]] = _SAMPLES
    response = np.fft.irfft(1.0 / np.fft.rfft(samples), len(samples))
    return np.concatenate((response[-_REACH:], response[:_REACH + 1]))


_PIECES, _INVERSE = _pieces(), _inverse()
_ROOTS = np.array(sorted(np.roots(_SAMPLES).real, key=abs)[:2])


class UniformSpline:
    """A quintic spline through values at evenly spaced times."""

    def __init__(self, start: float, period: float, values: Array) -> None:
        """Fit it.

        Args:
            start: Time of the first value [s].
            period: Time between values [s].
            values: Shape (k, c); some tens at least, so that the ends do not feel each other.

        """
        self._start, self._period, self._last = start, period, len(values) - 1
        # Two basis functions from beyond each end reach into the record.
        extended = np.pad(values, ((_REACH + 2, _REACH + 2), (0, 0)), mode='edge')
        # Channels in rows: operations on long rows are the fast ones.
        self._coefficients = np.stack([
            np.convolve(column, _INVERSE, mode='valid') for column in extended.T])
        for coefficients in (self._coefficients, self._coefficients[:, ::-1]):
            _end(coefficients)

    def at(self, time: Array) -> tuple[Array, Array, Array]:
        """Return values and their first two derivatives.

        Args:
            time: Between the first and the last, shape (m,) [s].

        Returns:
            Three arrays of shape (m, c).

        """
        place = (time - self._start) / self._period
        first = np.clip(np.floor(place).astype(int), 0, self._last - 1)
        powers = np.cumprod([np.ones(len(time)), *[place - first] * _DEGREE], axis=0)
        pieces, weights = _PIECES, []
        for order in range(3):
            weights.append(pieces.T @ powers[:_TAPS - order])
            pieces = np.arange(1, len(pieces))[:, None] * pieces[1:] / self._period
        found = np.zeros((3, len(self._coefficients), len(time)))
        for tap in range(_TAPS):
            coefficients = np.take(self._coefficients, first + tap, axis=1)
            for values, weight in zip(found, weights, strict=True):
                values += weight[tap] * coefficients
        position, velocity, acceleration = found.transpose(0, 2, 1)
        return position, velocity, acceleration


def _end(coefficients: Array) -> None:
    """Make the first three intervals one polynomial ("not a knot"), in place; shape (c, k)."""
    # These add nothing at any sample, and die away from the end.
    free = np.power(_ROOTS[:, None], np.arange(coefficients.shape[1]))
    # Where a sixth difference is zero, the fifth derivative has no step.
    steps, ours = (np.diff(item[:, :_TAPS + 2], n=_TAPS, axis=1) for item in (coefficients, free))
    coefficients -= np.linalg.solve(ours.T, steps.T).T @ free

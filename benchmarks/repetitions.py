# SPDX-License-Identifier: Apache-2.0
"""Efficiency and coverage of repeated estimates, in one shape for all methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.figures import Figure, mean_band, rms_band
from robocal_ros.arrays import Array

EFFICIENCY_BAR, COVERAGE_BAR = 1.10, 2.0
"""Largest RMSE over the Cramér-Rao bound, and coverage of 95 % intervals, percent off 95 %."""

_NORMAL = 1.959964
_CHANCE = 'The band contains the limit: it may be chance.'


@dataclass(frozen=True)
class Repetitions:
    """Errors of independent repetitions with random noise alone.

    Attributes:
        series: Method.
        names: Names of the parameters.
        errors: Errors, shape (r, p).
        std: Stated standard deviations, shape (r, p).
        bound: Standard deviations of the Cramér-Rao bound, shape (p,).

    """

    series: str
    names: Sequence[str]
    errors: Array
    std: Array
    bound: Array

    def figures(self, efficiency_reason: str = '', coverage_reason: str = '') -> list[Figure]:
        """Return efficiency of each parameter, and coverage of all, with bands by the bootstrap.

        Args:
            efficiency_reason: Why the limit of the efficiency is missed, in case it is.
            coverage_reason: The same of the coverage.

        """
        rows = []
        for name, error, bound in zip(
                self.names, self.errors.T, self.bound.tolist(), strict=True):
            low, high = rms_band(error**2)
            ratio = float(np.sqrt(np.mean(error**2)) / bound)
            rows.append(Figure(
                self.series, f'RMSE of {name} ÷ Cramér-Rao bound', '1', ratio, ratio,
                EFFICIENCY_BAR, band=(low / bound, high / bound),
                reason=_CHANCE if low / bound <= EFFICIENCY_BAR else efficiency_reason))
        # Parameters of one repetition err together: the bootstrap draws repetitions.
        inside = 100.0 * np.mean(np.abs(self.errors) <= _NORMAL * self.std, axis=1)
        share, band = float(inside.mean()), mean_band(inside)
        off = abs(share - 95.0)
        return [*rows, Figure(self.series, f'coverage of 95 % intervals, {len(inside)} '
                              'repetitions', '%', share, share, band=band),
                Figure(self.series, 'the same, off 95 %', '%', off, off, COVERAGE_BAR,
                       reason=coverage_reason)]

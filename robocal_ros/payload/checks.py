# SPDX-License-Identifier: Apache-2.0
"""What every payload method looks at before its verdict."""

from __future__ import annotations

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.results.result import Check

_HALF_WIDTH = 1.96


def mass_check(mass: float, std: float, limit: float) -> Check:
    """Look at the width of the mass's interval.

    Args:
        mass: Mass [kg].
        std: Its standard deviation [kg].
        limit: Widest acceptable half-width of the 95 % interval, as a share of the mass.

    """
    share = _HALF_WIDTH * std / abs(mass)
    return Check('95 % interval of the mass', share <= limit, share, limit, '1',
                 f"The mass's 95 % interval is ±{100 * share:.2f} % (limit ±{100 * limit:.1f} %).")


def centre_checks(
    com: Array, covariance: Array, max_interval: float, max_distance: float
) -> list[Check]:
    """Look at the width of the centre's intervals, and at where it lies.

    Args:
        com: Centre of mass in the tool frame, shape (3,) [m].
        covariance: Its covariance, shape (3, 3) [m²].
        max_interval: Widest acceptable half-width of a 95 % interval [m].
        max_distance: Farthest plausible place from the tool frame [m].

    """
    half = _HALF_WIDTH * float(np.sqrt(np.maximum(np.diag(covariance), 0.0)).max())
    distance = float(np.linalg.norm(com))
    return [
        Check('95 % interval of the centre', half <= max_interval, half, max_interval, 'm',
              f'The widest 95 % interval of the centre of mass is ±{1e3 * half:.2f} mm '
              f'(limit ±{1e3 * max_interval:.1f} mm).'),
        Check('plausible place', distance <= max_distance, distance, max_distance, 'm',
              f'The centre of mass lies {1e3 * distance:.1f} mm from the tool frame '
              f'(limit {1e3 * max_distance:.0f} mm).'),
    ]

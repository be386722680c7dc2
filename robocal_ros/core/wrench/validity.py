# SPDX-License-Identifier: Apache-2.0
"""Which sensors have been without a gap, and how much a vector varies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.wrench.alignment import Feed

if TYPE_CHECKING:
    from robocal_ros.core.wrench.observer import WrenchObserver


class Validity:
    """Which sensors have been without a gap for a whole window, and why others have not."""

    def __init__(self, observer: WrenchObserver, count: int) -> None:
        """Start with nothing missed."""
        self._observer = observer
        self._missed = [float('-inf')] * count
        self._why = [''] * count
        self._last = float('-inf')

    def clear(self) -> None:
        """Forget what was missed."""
        self._missed = [float('-inf')] * len(self._missed)
        self._last = float('-inf')

    def miss(self, index: int, instant: float, feed: Feed, lag: float) -> None:
        """Note that a sensor has no reading for an instant; arguments as of ``why_late``."""
        self._missed[index] = self._last = instant
        self._why[index] = self._observer.why_late(feed, lag)

    def reasons(self, oldest: float) -> list[str] | None:
        """Return why readings since a stamp are incomplete, by sensor; None if none are."""
        if self._last < oldest:
            return None
        return [why if missed >= oldest else ''
                for why, missed in zip(self._why, self._missed, strict=True)]


def spread(mean: Array, series: Array) -> float:
    """Return the standard deviation of a vector about its weighted mean."""
    deviation = series - mean @ series
    return float(np.sqrt((mean @ (deviation * deviation)).sum()))

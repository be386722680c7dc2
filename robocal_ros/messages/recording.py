# SPDX-License-Identifier: Apache-2.0
"""Everything that was recorded for one estimation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.errors import DataError
from robocal_ros.messages.marks import Rest
from robocal_ros.messages.samples import JointSamples, WrenchSamples

if TYPE_CHECKING:
    from robocal_ros.messages.tracker import TrackerSamples


def no_readings() -> Array:
    """Return an empty series of stamped readings, shape (0, 2)."""
    return np.empty((0, 2))


@dataclass(frozen=True)
class Recording:
    """Samples of all streams that a capability reads.

    Attributes:
        joints: Joint states.
        wrenches: Readings of F/T sensors by topic, as parameters name it.
        temperatures: Stamps and temperatures, shape (k, 2) [s, °C].
        joints_wanted: Names of the joints that were to be measured, empty if nobody said.
        tracker: Readings of the tracker, None where none is read.
        rests: Rests that were measured in, empty if nobody said.

    """

    joints: JointSamples
    wrenches: Mapping[str, WrenchSamples] = field(default_factory=dict)
    temperatures: Array = field(default_factory=no_readings)
    joints_wanted: tuple[str, ...] = ()
    tracker: TrackerSamples | None = None
    rests: tuple[Rest, ...] = ()

    def wrench(self, topic: str) -> WrenchSamples:
        """Return a sensor's readings; raises DataError where there are none."""
        if topic not in self.wrenches:
            raise DataError(f"F/T topic '{topic}' was not recorded; record it too.")
        return self.wrenches[topic]

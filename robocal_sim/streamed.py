# SPDX-License-Identifier: Apache-2.0
"""Commands of a controller in another process, such as ros2_control's, one in each cycle."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from robocal_sim.trajectory import Knot, Spline

FloatArray = npt.NDArray[np.float64]

KEPT = 4
"""Commands that a segment of the motion is made of: its ends, and their neighbours."""


class StreamedCommands:
    """Motion through the commands of a stream.

    Drives interpolate between the commands of their bus. These do it by cubics with continuous
    velocity (Catmull and Rom, in: Computer Aided Geometric Design (1974) 317), and so lag by two
    cycles. A cycle without a command repeats the last one.

    Attributes:
        started: Whether any command has come.
        awaited: Whether the command of this cycle has not come yet.

    Args:
        joints: Joint names.
        period: Time between two commands [s].
        start: Posture that is held before the first command, shape (n,) [rad].

    """

    def __init__(self, joints: tuple[str, ...], period: float, start: FloatArray) -> None:
        self._joints = joints
        self._period = period
        self._kept = deque([Knot(0.0, start, effort=np.zeros_like(start))] * KEPT, KEPT)
        self._next = self._kept[-1]
        self._time = 0.0
        self.started = False
        self.awaited = True
        self.begin_cycle()

    @property
    def moving(self) -> bool:
        """Whether the last commands differ."""
        return any((knot.position != self._next.position).any() for knot in self._kept)

    def take(self, position: Mapping[str, float], effort: Mapping[str, float]) -> None:
        """Take the command of this cycle.

        Args:
            position: Positions by joint [rad]; a joint without, or with one that is not finite,
                keeps its last one: controllers that are not active command nothing.
            effort: Efforts by joint [N·m]; likewise zero.

        """
        wanted = np.array([position.get(name, np.nan) for name in self._joints])
        pushed = np.array([effort.get(name, np.nan) for name in self._joints])
        self._next = Knot(
            0.0, np.where(np.isfinite(wanted), wanted, self._kept[-1].position),
            effort=np.where(np.isfinite(pushed), pushed, 0.0))
        self.started, self.awaited = True, False

    def begin_cycle(self) -> None:
        """Begin the motion of the next cycle; its command is awaited from now on."""
        self._kept.append(self._next)
        before, first, second, after = self._kept
        self._motion = Spline([
            Knot(0.0, first.position, (second.position - before.position) / (2.0 * self._period),
                 effort=first.effort),
            Knot(self._period, second.position,
                 (after.position - first.position) / (2.0 * self._period), effort=second.effort)])
        self._time, self.awaited = 0.0, True

    def step(self, period: float) -> tuple[FloatArray, FloatArray]:
        """Advance by a control step [s]; return position [rad] and effort [N·m], shapes (n,)."""
        now, self._time = self._time, self._time + period
        return self._motion.sample(now).position, self._motion.effort(now)

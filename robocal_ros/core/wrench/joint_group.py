# SPDX-License-Identifier: Apache-2.0
"""Sub-chains whose motion comes from joint states, all of them in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.wrench.alignment import Instants
from robocal_ros.core.wrench.observation import FILLING, Observation, ObserverSettings
from robocal_ros.core.wrench.smoothing import FEWEST, Window, leaps, slopes_without
from robocal_ros.core.wrench.validity import Validity, spread

if TYPE_CHECKING:
    from robocal_ros.core.wrench.observer import WrenchObserver

# Share of the usual threshold that a force must reach when leaps have been taken out.
_WITHOUT_LEAPS = 1.5


class JointGroup:
    """The sub-chains whose motion comes from joint states.

    Attributes:
        complaint: What is wrong with the newest joint state, empty if nothing is.

    """

    def __init__(
        self, observer: WrenchObserver, links: tuple[int, ...], settings: ObserverSettings
    ) -> None:
        """Prepare.

        Args:
            observer: Whose sub-chains they are.
            links: Their indices.
            settings: How samples become wrenches.

        """
        self._observer = observer
        self._links = links
        self._settings = settings
        self._n = observer.arm.robot.n
        self._count = len(observer.feeds)
        self._instants = Instants(observer.feeds, settings.max_delay)
        self._window = Window(settings.window, 3 * self._n + 6 * self._count)
        self._row = np.zeros(3 * self._n + 6 * self._count)
        self._validity = Validity(observer, self._count)
        self._without_effort = float('-inf')
        self.complaint = ''

    def clear(self) -> None:
        """Forget all samples."""
        self._instants.clear()
        self._window.clear()
        self._validity.clear()
        self._without_effort = float('-inf')
        if self._observer.momentum is not None:
            self._observer.momentum.clear()

    def add(self, stamp: float, q: Array, v: Array | None, effort: Array | None) -> None:
        """Take a joint state; arguments as of ``WrenchObserver.add_joint_state``."""
        n = self._n
        row = np.empty(3 * n)
        row[:n] = q
        row[n:2 * n] = np.nan if v is None or not self._settings.use_velocity else v
        if effort is None:
            row[2 * n:] = 0.0
            self._without_effort = stamp
        else:
            row[2 * n:] = effort
        self.complaint = ''
        self._instants.add(stamp, row)

    def take(self) -> Observation | None:
        """Return the next observation, None when more samples are needed first."""
        taken = self._instants.take()
        if taken is None:
            return None
        stamp, joints = taken
        row, n = self._row, self._n
        row[:3 * n] = joints
        column = 3 * n
        for index, feed in enumerate(self._observer.feeds):
            values = feed.at(stamp)
            if values is None:
                self._validity.miss(index, stamp, feed, self._instants.lag(feed))
            else:
                row[column:column + 6] = values
            column += 6
        self._window.add(stamp, row)
        if row[n] != row[n]:
            self._differentiate()
        return self._observe(stamp)

    def _differentiate(self) -> None:
        """Fill in velocities from positions: central once the next one is there."""
        time, rows, n = self._window.time, self._window.rows, self._n
        if len(rows) < 2:
            rows[-1, n:2 * n] = 0.0
            return
        rows[-1, n:2 * n] = (rows[-1, :n] - rows[-2, :n]) / (time[-1] - time[-2])
        if len(rows) > 2:
            rows[-2, n:2 * n] = (rows[-1, :n] - rows[-3, :n]) / (time[-1] - time[-3])

    def _observe(self, stamp: float) -> Observation:
        observer, window, n = self._observer, self._window, self._n
        count = self._count
        observation = Observation(
            stamp, 0.5 * window.length, self._links, np.empty((count, 6)), [''] * count,
            [False] * count, {})
        weights = window.weights()
        if weights is None:
            why = self._why_not_full()
            observation.reasons = [why] * count
            for index in self._links:
                observer.judges[index].clear()
            return observation
        mean, slope, observation.delay = weights
        rows = window.rows
        means = mean @ rows
        q, v = means[:n], means[n:2 * n]
        readings = means[3 * n:].reshape(count, 6)
        arm = observer.arm
        held = arm.held(q, v, slope @ rows[:, n:2 * n])
        observation.posture = q
        taken = arm.in_links(readings - observer.bias)
        observation.wrench = arm.between(taken + held)
        oldest = window.time[0]
        missing = self._validity.reasons(oldest)
        if missing is not None:
            for index in self._links:
                observation.reasons[index] = missing[index] or next(
                    (missing[d] for d in arm.chains[index].distal if missing[d]), '')
        instant = stamp - observation.delay
        observer.judge(observation, instant, _Doubt(self, mean, rows, taken))
        if observer.momentum is not None and self._without_effort < oldest:
            observation.external = observer.momentum.update(
                instant, q, v, means[2 * n:3 * n])
            observation.colliding = observer.momentum.colliding
        if observer.recorder is not None:
            observer.recorder.add(stamp, rows[-1, :n], rows[-1, 3 * n:].reshape(count, 6), held,
                                  [not why for why in missing or observation.reasons])
        return observation

    def without_leaps(self, rows: Array, taken: Array, means: Array) -> Array | None:
        """Return the wrenches that come out if leaps of single velocities don't count.

        Args:
            rows: The window's rows.
            taken: Mean readings without bias, in the links' frames, shape (k, 6).
            means: Mean of the rows.

        Returns:
            Shape (k, 6) [N, N·m]; None if there are no leaps.

        """
        if not self._settings.use_velocity:
            return None
        n, time = self._n, self._window.time
        velocity = rows[:, n:2 * n]
        leaping = leaps(time, rows[:, :n], velocity)
        if not leaping.any():
            return None
        arm = self._observer.arm
        return arm.between(taken + arm.held(
            means[:n], means[n:2 * n], slopes_without(time, velocity, leaping)))

    def scatter(self, mean: Array, rows: Array, index: int) -> float:
        """Return how much a sub-chain's force varied within the window [N]."""
        readings = rows[:, 3 * self._n:].reshape(len(rows), self._count, 6)
        return spread(mean, self._observer.arm.force_series(index, readings))

    @property
    def threshold(self) -> float:
        """Force that must be left without leaps [N]: what is left is less certain."""
        return _WITHOUT_LEAPS * self._settings.gates.force

    def _why_not_full(self) -> str:
        time, length = self._window.time, self._window.length
        if self.complaint:
            return self.complaint
        span = time[-1] - time[0]
        rate = (len(time) - 1) / span if span > 0.0 else 0.0
        step = self._window.step
        if length / (FEWEST - 1) < step < np.inf:
            return (f'Joint states came {1e3 * step:.0f} ms apart ({1.0 / step:.0f} Hz); a window '
                    f'of {length:g} s needs {(FEWEST - 1) / length:.0f} Hz for accelerations. '
                    'Raise their rate, or lengthen window.')
        return f'{FILLING} of {length:g} s ({rate:.0f} Hz).'


class _Doubt:
    """What speaks against a contact that seems to begin; computed only if one does."""

    def __init__(self, group: JointGroup, mean: Array, rows: Array, taken: Array) -> None:
        self._group = group
        self._mean, self._rows, self._taken = mean, rows, taken
        self._looked = False
        self._without: Array | None = None

    def __call__(self, index: int) -> float:
        """Return how much the force varied, infinite if nothing is left of it without leaps."""
        if not self._looked:
            self._looked = True
            self._without = self._group.without_leaps(
                self._rows, self._taken, self._mean @ self._rows)
        if self._without is not None \
                and np.linalg.norm(self._without[index, :3]) < self._group.threshold:
            return float('inf')
        return self._group.scatter(self._mean, self._rows, index)

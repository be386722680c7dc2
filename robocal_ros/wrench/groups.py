# SPDX-License-Identifier: Apache-2.0
"""Which sensors have been without a gap, and how much a vector varies.

A rigid link whose motion an IMU on it measures: no joint data needed.

Sub-chains whose motion comes from joint states, all of them in one pass.

A link whose motion an IMU measures, at the instants of its proximal sensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.wrench.alignment import Feed

if TYPE_CHECKING:
    from robocal_ros.wrench.observer import WrenchObserver
from functools import partial

import pinocchio as pin

from robocal_ros.wrench.alignment import Instants
from robocal_ros.wrench.chains import Chain, SensedArm
from robocal_ros.wrench.observation import FILLING, Observation, ObserverSettings
from robocal_ros.wrench.smoothing import FEWEST, Window, leaps, slopes_without


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


class ImuLink:
    """One rigid link between sensors, with an IMU.

    The accelerometer measures the specific force a − g at its place; it is moved to the link's
    origin by α × r + ω × (ω × r), and Newton's and Euler's equations do the rest.

    Attributes:
        chain: The link.

    """

    def __init__(self, arm: SensedArm, chain: Chain, frame: str) -> None:
        """Place the IMU.

        Args:
            arm: The arm cut at its sensors.
            chain: The sub-chain, which must be rigid.
            frame: The IMU's frame.

        Raises:
            ConfigurationError: If the sub-chain is not rigid, or the frame not on it.

        """
        arm.robot.frame_id(frame)
        arm.distal_transform(chain)
        self._arm = arm
        placement = arm.frame_in_chain(chain, frame)
        self._rotation = np.array(placement.rotation)
        self._place = np.array(placement.translation)
        self.use(chain)

    def use(self, chain: Chain) -> None:
        """Take the link with what it carries now."""
        self.chain = chain
        distal = self._arm.distal_transform(chain)
        self._over = None if distal is None else np.array(distal.toDualActionMatrix())
        inertia = chain.inertia
        self._inertia = pin.Inertia.Zero() if inertia is None else inertia.to_pinocchio()

    def inertial(self, specific: Array, omega: Array, alpha: Array) -> Array:
        """Return m (a − g) and the matching moment about the link's origin, shape (6,).

        Args:
            specific: Specific force at the IMU, in its axes, shape (3,) [m/s²].
            omega: Angular velocity, in its axes, shape (3,) [rad/s].
            alpha: Angular acceleration, in its axes, shape (3,) [rad/s²].

        """
        turned = self._rotation @ np.column_stack((specific, omega, alpha))
        # Seen from where the origin rests, spatial and classical acceleration agree.
        rotation = pin.Motion(np.zeros(3), turned[:, 1])
        lever = _spin(turned[:, 1]) @ self._place
        at_origin = (turned[:, 0] - _spin(turned[:, 2]) @ self._place
                     - _spin(turned[:, 1]) @ lever)
        acceleration = pin.Motion(at_origin, turned[:, 2])
        momentum = self._inertia * rotation
        return np.asarray((self._inertia * acceleration + rotation.cross(momentum)).vector)

    def net(self, inertial: Array, proximal: Array, distal: Array | None) -> Array:
        """Return the external wrench on the link, in its frame about its origin, shape (6,).

        Args:
            inertial: As of ``inertial``.
            proximal: Reading of its own sensor, in its frame, shape (6,).
            distal: Reading of the next sensor in that one's link frame; None at a free end.

        """
        net = inertial + proximal
        if self._over is not None and distal is not None:
            net -= self._over @ distal
        return net


def _spin(vector: Array) -> Array:
    """Return the matrix of the vector product with a vector, shape (3, 3)."""
    x, y, z = vector
    return np.array(((0.0, -z, y), (z, 0.0, -x), (-y, x, 0.0)))


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


class ImuGroup:
    """One link whose motion its IMU measures.

    Attributes:
        link: The link.
        instants: The instants of its proximal sensor.

    """

    def __init__(
        self, observer: WrenchObserver, link: ImuLink, feed: Feed, settings: ObserverSettings
    ) -> None:
        """Prepare.

        Args:
            observer: Whose sub-chain it is.
            link: The link.
            feed: Readings of its IMU.
            settings: How samples become wrenches.

        """
        self._observer = observer
        self.link = link
        self._index = link.chain.proximal
        self._imu = feed
        self._distal = link.chain.distal
        feeds = [feed, *(observer.feeds[d] for d in self._distal)]
        self.instants = Instants(feeds, settings.max_delay)
        self._feeds = feeds
        # Specific force, angular velocity, own reading, next sensor's reading.
        self._window = Window(settings.window, 18)
        self._validity = Validity(observer, len(feeds))

    def clear(self) -> None:
        """Forget all samples."""
        self.instants.clear()
        self._window.clear()
        self._validity.clear()

    def take(self) -> Observation | None:
        """Return the next observation, None when more samples are needed first."""
        taken = self.instants.take()
        if taken is None:
            return None
        stamp, reading = taken
        row = np.zeros(18)
        row[6:12] = reading
        for place, feed in enumerate(self._feeds):
            values = feed.at(stamp)
            if values is None:
                self._validity.miss(place, stamp, feed, self.instants.lag(feed))
            else:
                begin = 12 * place
                row[begin:begin + 6] = values
        self._window.add(stamp, row)
        return self._observe(stamp)

    def _observe(self, stamp: float) -> Observation:
        observer, window, index = self._observer, self._window, self._index
        count = len(observer.feeds)
        observation = Observation(
            stamp, 0.5 * window.length, (index,), np.empty((count, 6)), [''] * count,
            [False] * count, {})
        weights = window.weights()
        if weights is None:
            observation.reasons[index] = f'{FILLING} of {window.length:g} s.'
        else:
            oldest = window.time[0]
            missing = self._validity.reasons(oldest)
            if missing is not None:
                observation.reasons[index] = next(why for why in missing if why)
        if weights is None or observation.reasons[index]:
            observer.judges[index].clear()
            return observation
        mean, slope, observation.delay = weights
        rows = window.rows
        means = mean @ rows
        readings = np.zeros((count, 6))
        readings[index] = means[6:12] - observer.bias[index]
        for d in self._distal:
            readings[d] = means[12:] - observer.bias[d]
        readings = observer.arm.in_links(readings)
        net = self.link.net(
            self.link.inertial(means[:3], means[3:6], slope @ rows[:, 3:6]), readings[index],
            readings[self._distal[0]] if self._distal else None)
        if observer.recorder is not None:
            observer.recorder.add_link(index, stamp, net, means[3:6])
        offset = observer.link_bias.get(index)
        observation.wrench[index] = net if offset is None else net - offset
        observer.judge(observation, stamp - observation.delay,
                       partial(self._scatter, mean, rows))
        return observation

    def _scatter(self, mean: Array, rows: Array, index: int) -> float:
        readings = np.zeros((len(rows), len(self._observer.feeds), 6))
        readings[:, index] = rows[:, 6:12]
        for d in self._distal:
            readings[:, d] = rows[:, 12:]
        return spread(mean, self._observer.arm.force_series(index, readings))

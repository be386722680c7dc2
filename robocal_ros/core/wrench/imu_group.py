# SPDX-License-Identifier: Apache-2.0
"""A link whose motion an IMU measures, at the instants of its proximal sensor."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from robocal_ros.core.arrays import Array
from robocal_ros.core.wrench.alignment import Feed, Instants
from robocal_ros.core.wrench.imu import ImuLink
from robocal_ros.core.wrench.observation import FILLING, Observation, ObserverSettings
from robocal_ros.core.wrench.smoothing import Window
from robocal_ros.core.wrench.validity import Validity, spread

if TYPE_CHECKING:
    from robocal_ros.core.wrench.observer import WrenchObserver


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

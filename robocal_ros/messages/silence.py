# SPDX-License-Identifier: Apache-2.0
"""Judge of a stream that has fallen silent while another one goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SILENCE = 0.06
"""Shortest silence that counts [s]."""


@dataclass
class Silence:
    """Silence of a stream: what the stamps of another one advance while its own do not.

    Stamps may differ, and a machine that is late is late for both. Gaps that ended show how late
    messages can be on this machine: the limit is twice the longest, within bounds. A message of
    the other stream that is older than one before says nothing, as it came late.

    Attributes:
        newest: Returns the newest stamp of the stream [s].
        others: Returns that of the other stream [s].
        interval: Returns the usual interval of the stream's messages, 0 if it is not known yet
            [s].
        catch_up: Takes messages of the stream that have arrived and were not taken yet.
        missed: Number of messages that may be lost in a row, whatever their rate.
        longest: What gaps that ended may extend the limit to [s].

    """

    newest: Callable[[], float]
    others: Callable[[], float]
    interval: Callable[[], float]
    catch_up: Callable[[], object]
    missed: int
    longest: float
    _heard = _other = -np.inf
    _since = np.inf
    _gap = _longest = 0.0

    def begin(self) -> None:
        """Begin a motion."""
        self._heard = self._other = -np.inf
        self._since, self._gap = np.inf, 0.0

    def beyond(self) -> tuple[float, float] | None:
        """Return the silence and its limit if it is beyond it [s]."""
        interval = self.interval()
        limit = max(SILENCE, self.missed * interval, min(2.0 * self._longest, self.longest))
        # Before the stream's own: messages that come meanwhile are newer.
        self._other = max(self._other, self.others())
        if self._other - self._since > limit:
            self.catch_up()
        if self.newest() != self._heard:
            self._longest = max(self._longest, self._gap)
            self._heard, self._since, self._gap = self.newest(), self._other, 0.0
        else:
            self._gap = self._other - self._since
        return (self._gap, limit) if interval and limit < self._gap < np.inf else None

# SPDX-License-Identifier: Apache-2.0
"""Samples of several topics of a bag in the order of their stamps, in bounded memory.

A bag holds messages as they came in; what was measured first may have come later. Each topic is
decoded in blocks, by the same rule for stamps as live, then all are put in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.messages import layout
from robocal_ros.messages.bag import Bag
from robocal_ros.messages.decode import NO_POSITION, missing_joint
from robocal_ros.messages.layout import Batch
from robocal_ros.messages.marks import Span
from robocal_ros.messages.stamps import StampGuard

LATEST = 1.0
"""Samples that were recorded so much later than others of their stamp are put in order [s]."""

Take = Callable[[float, Any], None]
Sample = tuple[float, Take, Any]
"""A stamp [s], what takes the sample, and what it takes."""

Decode = Callable[[Sequence[bytes]], tuple[Array, list[Any]]]
"""Turns serialized messages into stamps, NaN for unreadable ones, and what is in them.

A complaint, as a text, stands where a message is of no use.
"""

_stamp_of = itemgetter(0)


class Channel:
    """One topic on its way to what takes its samples.

    Attributes:
        guard: Tells new stamps from others, and counts.

    """

    def __init__(self, decode: Decode, take: Take, span: Span) -> None:
        """Start with nothing heard.

        Args:
            decode: Reads the messages.
            take: Takes the samples.
            span: Which stamps count.

        """
        self.guard = StampGuard()
        self._decode = decode
        self._take = take
        self._span = span

    def read(self, raw: Sequence[bytes]) -> tuple[list[Sample | None], list[int]]:
        """Read messages.

        Returns:
            A sample for each, None for one that does not count; and the messages with which
            the clock jumped back.

        """
        stamps, contents = self._decode(raw)
        before = self.guard.newest
        readable = np.flatnonzero(np.isfinite(stamps))
        if len(readable) < len(raw):
            lost = len(raw) - len(readable)
            self.guard.count(received=lost, incomplete=lost)
        counts, _ = self.guard.admit_block(stamps[readable])
        counted = readable[counts]
        jumps = counted[np.diff(stamps[counted], prepend=before) < 0.0].tolist()
        samples: list[Sample | None] = [None] * len(raw)
        times = stamps.tolist()
        for row in counted[self._span.holds(stamps[counted])].tolist():
            samples[row] = (times[row], self._take, contents[row])
        return samples, jumps


def in_stamp_order(
    bag: Bag, channels: Mapping[str, Channel], progress: Callable[[int], None] | None = None
) -> Iterator[list[Sample] | None]:
    """Yield the samples of a bag in the order of their stamps, in blocks.

    Args:
        bag: The bag.
        channels: Topics to read, by name.
        progress: Called with the number of messages read so far, now and then.

    Yields:
        Samples; None where the clock jumps back: what came before is to be forgotten.

    Raises:
        FileFormatError: If the bag turns out to be broken.

    """
    held: list[Sample] = []
    count = 0
    for block in bag.blocks(channels):
        samples, jumps = _read(block, channels)
        begin = 0
        for jump in jumps:
            held += filter(None, samples[begin:jump])
            held.sort(key=_stamp_of)
            yield held
            yield None
            held, begin = [], jump
        held += filter(None, samples[begin:])
        held.sort(key=_stamp_of)
        ready = bisect_left(held, held[-1][0] - LATEST, key=_stamp_of) if held else 0
        yield held[:ready]
        held = held[ready:]
        count += len(block)
        if progress is not None:
            progress(count)
    yield held


def _read(
    block: Sequence[tuple[str, bytes]], channels: Mapping[str, Channel]
) -> tuple[list[Sample | None], list[int]]:
    """Return the samples of a block in its order, and where in it the clock jumps back."""
    places: dict[str, list[int]] = {topic: [] for topic in channels}
    for place, (topic, _) in enumerate(block):
        places[topic].append(place)
    samples: list[Sample | None] = [None] * len(block)
    jumps = []
    for topic, mine in places.items():
        if not mine:
            continue
        found, backwards = channels[topic].read([block[place][1] for place in mine])
        for place, sample in zip(mine, found, strict=True):
            samples[place] = sample
        jumps += [mine[row] for row in backwards]
    return samples, sorted(jumps)


# ---------------------------------------------------------------------------- decoding


def _spread(batch: Batch[Any], contents: Callable[[Any], list[Any]]) -> tuple[Array, list[Any]]:
    """Put what is in each group of messages at the messages' places."""
    found: list[Any] = [None] * len(batch.time)
    for group in batch.groups:
        for row, content in zip(group.rows.tolist(), contents(group), strict=True):
            found[row] = content
    return batch.time, found


def motions(names: Sequence[str], factor: Array) -> Decode:
    """Return what reads joint states as position, velocity and torque of each message.

    The latter two are None where one is absent or not finite.

    Args:
        names: Names of the n joints wanted.
        factor: From the driver's effort to torque, joint by joint, shape (n,).

    """
    wanted = tuple(names)

    def contents(group: layout.Group[tuple[str, ...]]) -> list[Any]:
        count = len(group.rows)
        complaint = missing_joint(wanted, group.layout)
        if complaint:
            return [complaint] * count
        columns = [group.layout.index(name) for name in wanted]

        def rows(block: Array) -> list[Array | None]:
            if block.shape[1] != len(group.layout):
                return [None] * count
            values = np.ascontiguousarray(block[:, columns])
            good: list[bool] = np.all(np.isfinite(values), axis=1).tolist()
            return [row if fine else None for row, fine in zip(values, good, strict=True)]

        position, velocity, effort = (rows(block) for block in group.blocks)
        torque = [None if row is None else row * factor for row in effort]
        return [NO_POSITION if q is None else (q, v, tau)
                for q, v, tau in zip(position, velocity, torque, strict=True)]

    return lambda raw: _spread(layout.joint_states(raw), contents)


def readings(sign: float) -> Decode:
    """Return what reads an F/T sensor's messages as frame, and force and torque as a tuple.

    Args:
        sign: +1, or -1 for a sensor that reports the opposite.

    """
    def contents(group: layout.Group[str]) -> list[Any]:
        values = group.blocks[0] if sign == 1.0 else -group.blocks[0]
        return [(group.layout, row) for row in map(tuple, values.tolist())]

    return lambda raw: _spread(layout.wrenches(raw), contents)


def imu_readings() -> Decode:
    """Return what reads IMU messages as frame, and specific force and rate as a tuple."""
    def contents(group: layout.Group[str]) -> list[Any]:
        values = group.blocks[0][:, [25, 26, 27, 13, 14, 15]]
        return [(group.layout, row) for row in map(tuple, values.tolist())]

    return lambda raw: _spread(layout.imus(raw), contents)

# SPDX-License-Identifier: Apache-2.0
"""What a tracker measures: readings of a target on the end effector, in the tracker's frame."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array, frozen
from robocal_ros.errors import DataError
from robocal_ros.messages.samples import StreamCounts
from robocal_ros.messages.stamps import StampGuard

_POINT, _POSE = 3, 7
_UNIT = 0.01


@dataclass(frozen=True)
class TrackerSamples:
    """Readings of one target.

    Attributes:
        frame: The tracker's frame, as its messages name it.
        time: Message stamps, strictly increasing, shape (k,) [s].
        point: The target in the tracker's frame, shape (k, 3) [m].
        orientation: Unit quaternions x, y, z, w that turn the target's axes into the tracker's,
            shape (k, 4); None where positions alone are measured.
        counts: What the stream went through.

    """

    frame: str
    time: Array
    point: Array
    orientation: Array | None = None
    counts: StreamCounts = field(default_factory=StreamCounts)

    def __post_init__(self) -> None:
        """Freeze the arrays and check them; raises DataError."""
        object.__setattr__(self, 'time', frozen(self.time))
        object.__setattr__(self, 'point', frozen(self.point).reshape(-1, 3))
        if self.orientation is not None:
            object.__setattr__(self, 'orientation', frozen(self.orientation).reshape(-1, 4))
        arrays = [self.point] if self.orientation is None else [self.point, self.orientation]
        if any(len(array) != len(self.time) for array in arrays):
            raise DataError('Tracker readings: every stamp needs one point (and one orientation).')
        if not all(np.isfinite(array).all() for array in (self.time, *arrays)):
            raise DataError('Tracker readings hold NaN or infinite values; leave them out.')
        if (np.diff(self.time) <= 0.0).any():
            raise DataError('Stamps of the tracker readings must increase; sort them.')

    def __len__(self) -> int:
        """Return the number of readings."""
        return len(self.time)

    @property
    def rows(self) -> int:
        """Coordinates of a reading: 3 for points, 6 for poses."""
        return 3 if self.orientation is None else 6

    def between(self, begin: float, end: float) -> TrackerSamples:
        """Return the readings with stamps from ``begin`` to before ``end`` [s]."""
        return self._part(slice(*np.searchsorted(self.time, (begin, end)).tolist()))

    def chosen(self, mask: npt.NDArray[np.bool_]) -> TrackerSamples:
        """Return the readings for which a mask, shape (k,), is true."""
        return self if mask.all() else self._part(mask)

    def _part(self, rows: slice | npt.NDArray[np.bool_]) -> TrackerSamples:
        turned = None if self.orientation is None else self.orientation[rows]
        return TrackerSamples(self.frame, self.time[rows], self.point[rows], turned, self.counts)


class TrackerRecord:
    """Takes in a tracker's messages one by one, and keeps those that are readings.

    Attributes:
        recording: Whether readings are kept.
        complaint: What is wrong with the newest message, empty if nothing.
        newest: Stamp of the newest reading, -inf before the first [s].
        latest: The newest reading: x, y, z [m] and, of poses, the quaternion x, y, z, w.

    """

    def __init__(self, orientation: bool) -> None:
        """Start empty.

        Args:
            orientation: Whether the messages are poses.

        """
        self._width = _POSE if orientation else _POINT
        self._guard = StampGuard()
        self._rows = array('d')
        self._frame = ''
        self.recording = False
        self.complaint = ''
        self.newest = -np.inf
        self.latest: tuple[float, ...] = ()

    def add(self, stamp: float, frame: str, values: Sequence[float]) -> bool:
        """Take in a message; return whether it is a reading.

        Args:
            stamp: Its stamp [s].
            frame: Frame that it names.
            values: x, y, z [m]; of poses also the quaternion x, y, z, w.

        """
        jumps = self._guard.counts.clock_jumps
        if not self._guard.admit(stamp):
            return False
        if self._guard.counts.clock_jumps > jumps:
            del self._rows[:]
        self.complaint = self._objection(stamp, frame, values)
        if self.complaint:
            return False
        self._frame = frame
        self.newest, self.latest = stamp, tuple(values)
        if self.recording:
            self._rows.append(stamp)
            self._rows.extend(values)
        return True

    def _objection(self, stamp: float, frame: str, values: Sequence[float]) -> str:
        if not np.isfinite([stamp, *values]).all():
            self._guard.count(not_finite=1)
            return 'sends values that are not finite numbers; check the tracker'
        if self._width == _POSE and abs(float(np.linalg.norm(values[3:])) - 1.0) > _UNIT:
            self._guard.count(incomplete=1)
            return (f'sends quaternions of length {float(np.linalg.norm(values[3:])):.3g}, '
                    "expected 1; is the orientation measured? Set tracker_message to 'point' if "
                    'it is not')
        if self._frame and frame != self._frame:
            self._guard.count(incomplete=1)
            return (f"names frame '{frame}' now and '{self._frame}' before; let one tracker "
                    'send, in one frame')
        return ''

    def clear(self) -> None:
        """Forget the readings and start counting anew; any frame is taken again."""
        del self._rows[:]
        self._frame = ''
        self._guard.reset_counts()

    def __len__(self) -> int:
        """Return the number of readings kept."""
        return len(self._rows) // (1 + self._width)

    @property
    def frame(self) -> str:
        """The frame that the readings name, empty before the first."""
        return self._frame

    @property
    def counts(self) -> StreamCounts:
        """What the stream went through since the last clear."""
        return self._guard.counts

    def samples(self, begin: float = -np.inf) -> TrackerSamples:
        """Return the readings from a stamp on."""
        rows = np.array(self._rows).reshape(-1, 1 + self._width)
        rows = rows[np.searchsorted(rows[:, 0], begin):]
        return TrackerSamples(self._frame, rows[:, 0], rows[:, 1:4],
                              rows[:, 4:] if self._width == _POSE else None,
                              self._guard.counts)

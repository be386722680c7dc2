# SPDX-License-Identifier: Apache-2.0
"""Measured samples: a record in bounded memory, and frozen arrays, which estimators read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from robocal_ros.arrays import Array, Flags, freeze
from robocal_ros.errors import DataError
from robocal_ros.messages.marks import StationaryInterval


@dataclass(frozen=True)
class StreamCounts:
    """Counts of messages of a stream by outcome.

    Attributes:
        received: Messages that arrived.
        dropped: Messages that are missing, judged by the gaps between stamps.
        out_of_order: Messages whose stamp did not increase, or jumped; they were left out.
        incomplete: Messages without one of the joints, or with arrays of unequal length.
        not_finite: Messages with a NaN or an infinite value.
        implausible: Messages with values that the arm cannot have; see ``PostureCheck``.
        foreign: Messages of other joints only, such as a gripper's; they are not faults.
        clock_jumps: Jumps of the clock; each one emptied the buffer.
        interruptions: Motions that were interrupted and repeated; what was recorded of the first
            attempt was discarded.

    """

    received: int = 0
    dropped: int = 0
    out_of_order: int = 0
    incomplete: int = 0
    not_finite: int = 0
    implausible: int = 0
    foreign: int = 0
    clock_jumps: int = 0
    interruptions: int = 0


S = TypeVar('S', bound='Samples')

# Least number of samples that differ from the one before to tell how often a device measures, and
# longest time between two of them; a rest is longer [s].
_STEPS, _LONGEST_STEP = 20, 0.1


class Samples:
    """Stamped rows of one stream, in arrays that are frozen and checked.

    Attributes:
        time: Message stamps, strictly increasing, shape (k,) [s].

    """

    time: Array

    def _check(self, what: str, **columns: int) -> None:
        """Freeze the arrays and check them; raises DataError.

        Args:
            what: Name of the stream in error texts.
            columns: Numbers of columns of the other arrays by name.

        """
        freeze(self, 'time', *columns)
        time = self.time
        if time.ndim != 1:
            raise DataError(f'{what}: time must have one axis, got shape {time.shape}.')
        if not np.isfinite(time).all():
            raise DataError(f'{what}: a time stamp is not finite; leave that sample out.')
        steps = np.diff(time)
        if (steps <= 0.0).any():
            row = int(np.argmax(steps <= 0.0)) + 1
            raise DataError(
                f'{what}: stamps must increase, but sample {row} has {time[row]:.6f} s after '
                f'{time[row - 1]:.6f} s; sort the samples or leave it out.')
        for name, count in columns.items():
            values, shape = getattr(self, name), (len(time), count)
            if values.shape != shape:
                raise DataError(f'{what}, {name}: expected shape {shape}, got {values.shape}.')
            finite = np.isfinite(values).all(axis=0)
            if not finite.all():
                raise DataError(
                    f'{what}, {name}: column {int(np.argmin(finite))} holds NaN or infinite '
                    'values; leave those samples out or have the driver send numbers.')

    @property
    def columns(self) -> dict[str, int]:
        """Numbers of columns of the other arrays by name."""
        return {name: item.shape[1] for name, item in vars(self).items()
                if isinstance(item, np.ndarray) and name != 'time'}

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.time)

    def chosen(self: S, mask: Flags) -> S:
        """Return the samples for which a mask, shape (k,), is true."""
        return self if mask.all() else self._part(mask)

    def measured_anew(self: S) -> S:
        """Return the samples that a device has measured, rather than repeated the one before.

        Drivers publish at the rate of their control loop, which may be a multiple of that at which
        the device measures. Only the first of equal samples is at its time then, and differences
        of positions are those of a staircase.

        Returns:
            All samples, unless each measurement is repeated about equally often, by which coarse
            readings of a device at rest differ, and for less than a rest lasts. Else the first
            sample of each measurement, and of longer stretches of equal samples, as at rest, one
            for the time of each measurement.

        """
        anew = np.ones(len(self), dtype=bool)
        anew[1:] = np.any([(values[1:] != values[:-1]).any(axis=1) for values in (
            getattr(self, name) for name in self.columns)], axis=0)
        at = np.flatnonzero(anew)
        if len(at) < _STEPS:
            return self
        least, most = np.quantile(np.diff(at), (0.1, 0.9))
        if not 2.0 <= least <= most <= 2.0 * least or (
                np.median(np.diff(self.time[at])) > _LONGEST_STEP):
            return self
        stretches = np.diff(np.append(at, len(anew)))
        age = np.arange(len(anew)) - np.repeat(at, stretches)
        # Where the two clocks slip, a measurement is repeated once more.
        rests = np.repeat(stretches >= 2.0 * most, stretches)
        return self.chosen(anew | (rests & (age % int(most) == 0)))

    def _part(self: S, rows: slice | Flags) -> S:
        whole: Any = self
        return replace(whole, **{name: getattr(self, name)[rows]
                                 for name in ('time', *self.columns)})


@dataclass(frozen=True)
class JointSamples(Samples):
    """Joint states of one arm, in the order of ``joint_names``.

    Attributes:
        joint_names: Names of the n joints.
        time: Message stamps, strictly increasing, shape (k,) [s].
        position: Joint angles, shape (k, n) [rad].
        velocity: Joint velocities, shape (k, n) [rad/s].
        effort: Link-side joint torques, shape (k, n) [N·m].
        counts: Counts of the stream's messages.
        source: ``live``, or the name of the bag.

    """

    joint_names: tuple[str, ...]
    time: Array
    position: Array
    velocity: Array
    effort: Array
    counts: StreamCounts = field(default_factory=StreamCounts)
    source: str = 'live'

    def __post_init__(self) -> None:
        """Freeze the arrays and check them; raises DataError."""
        n = len(self.joint_names)
        self._check('joint states', position=n, velocity=n, effort=n)

    def rows(self, start: int, stop: int) -> JointSamples:
        """Return samples ``start`` to ``stop`` (excluded)."""
        return self._part(slice(start, stop))


@dataclass(frozen=True)
class WrenchSamples(Samples):
    """Readings of one six-axis F/T sensor.

    Attributes:
        frame: Sensor frame, a frame of the URDF.
        time: Message stamps, strictly increasing, shape (k,) [s].
        wrench: Force, then torque about the sensor's origin, that the distal side exerts on
            the sensor, in the sensor frame, shape (k, 6) [N, N·m].
        counts: Counts of the stream's messages.

    """

    frame: str
    time: Array
    wrench: Array
    counts: StreamCounts = field(default_factory=StreamCounts)

    def __post_init__(self) -> None:
        """Freeze the arrays and check them; raises DataError."""
        self._check(f'F/T sensor {self.frame}', wrench=6)

    def counted(self) -> dict[str, int]:
        """Return the counts by the names that they have in results."""
        return {'readings': len(self),
                **{f'sensor_{name}': count for name, count in asdict(self.counts).items()}}


@dataclass(frozen=True)
class TrackerSamples(Samples):
    """Readings of one target.

    Attributes:
        frame: The tracker's frame in its messages.
        time: Message stamps, strictly increasing, shape (k,) [s].
        point: The target in the tracker's frame, shape (k, 3) [m].
        orientation: Unit quaternions x, y, z, w that turn the target's axes into the tracker's,
            shape (k, 4); None for points.
        counts: Counts of the stream's messages.

    """

    frame: str
    time: Array
    point: Array
    orientation: Array | None = None
    counts: StreamCounts = field(default_factory=StreamCounts)

    def __post_init__(self) -> None:
        """Freeze the arrays and check them; raises DataError."""
        self._check('tracker readings', point=3,
                    **({} if self.orientation is None else {'orientation': 4}))

    @property
    def rows(self) -> int:
        """Coordinates of a reading: 3 for points, 6 for poses."""
        return 3 if self.orientation is None else 6

    def between(self, begin: float, end: float) -> TrackerSamples:
        """Return the readings with stamps from ``begin`` to before ``end`` [s]."""
        return self._part(slice(*np.searchsorted(self.time, (begin, end)).tolist()))


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
        joints_wanted: Names of the joints that were to be measured, empty if unknown.
        tracker: Readings of the tracker, None without one.
        stationary: Intervals in which the arm was measured at rest, empty if unknown.

    """

    joints: JointSamples
    wrenches: Mapping[str, WrenchSamples] = field(default_factory=dict)
    temperatures: Array = field(default_factory=no_readings)
    joints_wanted: tuple[str, ...] = ()
    tracker: TrackerSamples | None = None
    stationary: tuple[StationaryInterval, ...] = ()

    @property
    def temperature(self) -> float:
        """Mean temperature [°C], NaN without readings."""
        known = self.temperatures[np.isfinite(self.temperatures).all(axis=1), 1]
        return float(known.mean()) if len(known) else float('nan')

    def measured_anew(self) -> Recording:
        """Return the recording without what drivers repeat between measurements."""
        return replace(
            self, joints=self.joints.measured_anew(),
            wrenches={topic: item.measured_anew() for topic, item in self.wrenches.items()},
            tracker=None if self.tracker is None else self.tracker.measured_anew())

    def wrench(self, topic: str) -> WrenchSamples:
        """Return a sensor's readings; raises DataError if there are none."""
        if topic not in self.wrenches:
            raise DataError(f"F/T topic '{topic}' was not recorded; record it too.")
        return self.wrenches[topic]


def check_joints(samples: JointSamples, joints: Sequence[str]) -> None:
    """Check that there are samples, and that their columns are the arm's joints in its order.

    Args:
        samples: Joint states.
        joints: Names of the arm's joints.

    Raises:
        DataError: If there are none, or the names or their order differ.

    """
    if not len(samples):
        raise DataError('No joint states are recorded; call run, or play a bag first.')
    if samples.joint_names != tuple(joints):
        raise DataError(
            f'The samples are of the joints {", ".join(samples.joint_names)}; expected '
            f'{", ".join(joints)}, in this order. Record the arm that the description is of.')


def check_effort(samples: JointSamples, joints: Sequence[str]) -> None:
    """Check that the efforts of joints contain information.

    Args:
        samples: Joint states.
        joints: Names of the joints whose effort is needed.

    Raises:
        DataError: If there are no samples, or a joint's effort is exactly zero, or the same value,
            throughout.

    """
    if not len(samples):
        raise DataError(
            'No joint state has numbers for the positions and efforts of all joints; expected '
            "drive torques in N·m. Does the hardware interface export effort? A mock's is NaN.")
    for name in joints:
        effort = samples.effort[:, samples.joint_names.index(name)]
        if not effort.any():
            raise DataError(
                f"Effort of joint '{name}' is zero in all {len(effort)} samples; expected the "
                'drive torque in N·m. Does the hardware interface export effort for it? A '
                'mock has none.')
        if len(effort) > 1 and np.ptp(effort) == 0.0:
            raise DataError(
                f"Effort of joint '{name}' is stuck at {effort[0]:.6g} N·m in all "
                f'{len(effort)} samples; a live sensor scatters. Check the driver.')


def check_range(
    samples: JointSamples, time: Array, values: Array, names: Sequence[str], unit: str
) -> None:
    """Check that no measured value stays at its largest or smallest one while the arm moves.

    Nothing can be said of coarse readings, which stay at other values, too.

    Args:
        samples: Joint states.
        time: Stamps of the values, shape (k,) [s].
        values: Measured values, shape (k, m).
        names: What they are, as in error texts.
        unit: Their unit.

    Raises:
        DataError: If a measurement saturates.

    """
    path = np.cumsum(np.abs(np.diff(samples.position, axis=0, prepend=samples.position[:1])).sum(
        axis=1))
    moving = np.diff(np.interp(time, samples.time, path)) > 0.0
    for name, column in zip(names, values.T, strict=True):
        ends = (column == column.max()) | (column == column.min())
        stays = moving & (column[1:] == column[:-1])
        flat, others = stays & ends[1:] & (column[1:] != 0.0), moving & ~ends[1:]
        if flat.sum() > max(_FLAT, _FLAT_SHARE * moving.sum()) and (
                (stays & others).sum() <= _COARSE * (others.sum() - _COARSE * moving.sum())):
            value = float(column[1:][flat][0])
            duration = flat.sum() * float(np.median(np.diff(time)))
            raise DataError(
                f'{name} stays at {value:.4g} {unit} for {duration:.2g} s of the motion, and is '
                f'never {"larger" if value > 0.0 else "smaller"}: the measurement saturates. Use '
                'a slower motion or a lighter load, or raise the limit in the driver.')


# ---------------------------------------------------------------------- bounded memory

BUDGET = 2**18
"""Largest number of rows of an estimation."""

LONGEST = 0.035
"""Longest time over which samples are averaged [s]; longer records lose their oldest samples.

With ``BUDGET`` that is more than two hours at 28 Hz, which suffices for every method.
"""

# Number and share of samples in motion that a saturated measurement at least repeats, and largest
# share of other values that are repeated if readings are not coarse.
_FLAT, _FLAT_SHARE, _COARSE = 10, 0.005, 0.1
# Longest gap over which neighbours are averaged [s].
_GAP = 0.1
# Pieces of a stretch that are thinned out for themselves: a power of two, so that pairs stay
# pairs whatever the pieces in which samples arrive.
_PIECE = 1024
_FIRST = 200


class BoundedBuffer:
    """Record of one stream in bounded memory; the first column is the stamp.

    Neighbours are averaged pairwise beyond a budget; models that are smooth over a few
    milliseconds are not affected. A record does not depend on whether its rows are added at once
    or in parts.

    Attributes:
        averaged: Number of received rows per row kept, a power of two.
        forgotten: Number of oldest rows discarded to stay within the budget.

    """

    def __init__(self, columns: int, budget: int = BUDGET, longest: float = LONGEST) -> None:
        """Start empty.

        Args:
            columns: Number of columns with the stamp.
            budget: Largest number of rows kept, plus one piece.
            longest: Longest time over which rows are averaged [s]; 0 to discard the oldest rows
                without averaging.

        """
        self._budget = budget
        self._longest = longest
        self._open = np.empty((_PIECE, columns))
        self._filled = 0
        self._pieces: list[Array] = []
        self.averaged = 1
        self._kept = 0
        self._start: list[float] = []
        self.forgotten = 0

    def add(self, rows: Array) -> None:
        """Add rows with increasing stamps, shape (k, columns)."""
        self._start += rows[:_FIRST - len(self._start), 0].tolist()
        for number, stretch in enumerate(np.split(rows, self._cuts(rows))):
            if number:
                self._close()
            while len(stretch):
                taken = stretch[:_PIECE - self._filled]
                self._open[self._filled:self._filled + len(taken)] = taken
                self._filled += len(taken)
                stretch = stretch[len(taken):]
                if self._filled == _PIECE:
                    self._close()

    def add_one(self, time: float, values: Sequence[float] | Array) -> None:
        """Add one row, equal to ``add`` at a tenth of its time: a newer stamp, and values."""
        if len(self._start) < _FIRST:
            self._start.append(time)
        if self._filled and time - self._open[self._filled - 1, 0] > _GAP:
            self._close()
        row = self._open[self._filled]
        row[0], row[1:] = time, values
        self._filled += 1
        if self._filled == _PIECE:
            self._close()

    @property
    def newest(self) -> float:
        """Newest stamp, -inf without rows [s]."""
        if self._filled:
            return float(self._open[self._filled - 1, 0])
        return float(self._pieces[-1][-1, 0]) if self._pieces else -np.inf

    def __len__(self) -> int:
        """Return the number of rows kept."""
        return self._kept - (-self._filled // self.averaged)

    def clear(self) -> None:
        """Discard all rows."""
        self._pieces.clear()
        self._filled = self._kept = self.forgotten = 0
        self.averaged = 1
        self._start.clear()

    def forget_after(self, time: float) -> None:
        """Discard rows with stamps after a time [s]; averaged rows stay averaged."""
        cut = [piece[:np.searchsorted(piece[:, 0], time, 'right')]
               for piece in (*self._pieces, self._open[:self._filled])]
        self._filled = len(cut.pop())
        self._pieces = [piece for piece in cut if len(piece)]
        self._kept = sum(map(len, self._pieces))
        if not self._filled and not self._pieces:
            self.clear()

    def restore(self, rows: Array, averaged: int, forgotten: int) -> None:
        """Go on from the rows of another record, with its counts of averaged and lost rows."""
        self.clear()
        self.averaged = averaged
        self._pieces = np.split(rows, self._cuts(rows)) if len(rows) else []
        self._kept, self.forgotten = len(rows), forgotten

    def rows(self, after: float = -np.inf) -> Array:
        """Return the rows with stamps after a time [s]."""
        pieces = [piece for piece in self._pieces if piece[-1, 0] > after]
        rows = np.concatenate((*pieces, _means(self._open[:self._filled], self.averaged)))
        return rows[np.searchsorted(rows[:, 0], after, 'right'):]

    def release(self) -> Array:
        """Return and release the rows; the counts of averaged and discarded rows stay."""
        rows = self.rows()
        self._pieces.clear()
        self._filled = 0
        return rows

    def _cuts(self, rows: Array) -> list[int]:
        """Return the rows that begin a new stretch."""
        before = self._open[self._filled - 1:self._filled, 0] if self._filled else rows[:1, 0]
        return np.flatnonzero(np.diff(rows[:, 0], prepend=before) > _GAP).tolist()

    def _close(self) -> None:
        """End a piece that is full or followed by a gap."""
        if not self._filled:
            return
        self._pieces.append(_means(self._open[:self._filled].copy(), self.averaged))
        self._filled = 0
        self._kept += len(self._pieces[-1])
        while self._kept > self._budget and self._may_average():
            self.averaged *= 2
            self._pieces = [_means(item, 2) for item in self._pieces]
            self._kept = sum(len(item) for item in self._pieces)
        while self._kept > self._budget and len(self._pieces) > 1:
            dropped = self._pieces.pop(0)
            self._kept -= len(dropped)
            self.forgotten += len(dropped)

    def _may_average(self) -> bool:
        # A piece must stay a multiple of two rows long.
        usual = float(np.median(np.diff(self._start))) if len(self._start) > 1 else 0.0
        return 2 * self.averaged < _PIECE and 2 * self.averaged * usual <= self._longest


def _means(rows: Array, count: int) -> Array:
    """Return means of neighbours, a power of two, by pairs; a last row without partner stays."""
    while count > 1:
        count //= 2
        even = len(rows) // 2 * 2
        pairs = 0.5 * (rows[:even:2] + rows[1:even:2])
        rows = np.concatenate((pairs, rows[even:])) if even < len(rows) else pairs
    return rows


def within_budget(samples: S, budget: int = BUDGET) -> S:
    """Return samples, averaged if they exceed the budget."""
    if len(samples) <= budget:
        return samples
    widths = samples.columns
    record = BoundedBuffer(1 + sum(widths.values()), budget)
    record.add(np.column_stack([getattr(samples, name) for name in ('time', *widths)]))
    time, *arrays = np.split(record.rows(), np.cumsum([1, *widths.values()])[:-1], axis=1)
    whole: Any = samples
    return replace(whole, time=time[:, 0], **dict(zip(widths, arrays, strict=True)))

# SPDX-License-Identifier: Apache-2.0
"""Checks of messages against those before them: their stamps, and the positions of joints.

Stamps are integer nanoseconds, so that comparisons are exact; samples contain seconds. Live
messages, one by one, and blocks of a bag follow the same rules, with equal samples and counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from statistics import median
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from robocal_ros.arrays import Array, Flags
from robocal_ros.messages.samples import StreamCounts

if TYPE_CHECKING:
    from robocal_ros.robot import Robot

SECOND = 10**9
"""Nanoseconds in a second."""

Stamps = npt.NDArray[np.int64]

# A stamp this much older, or this much newer, than the newest is neither late nor early: either
# the clock was set (simulated to wall time, a bag that restarts) or the stamp is corrupt. The
# clock was set if this number of stamps in a row is consistent; until then they are left out.
LEAP = 3600 * SECOND
_CLOCK_JUMP = SECOND
_FAR_IN_A_ROW = 3
# The same for stamps that are a little older, which also are late messages.
_LATE_IN_A_ROW = 10
# A stamp that is newer by more than this number of usual intervals is corrupt, too, or ends a gap:
# the latter, if that number of stamps in a row is consistent. It is smaller than _LATE_IN_A_ROW,
# so that stamps after a corrupt one that was believed are late, not those of another clock.
_DOUBTED = 8
# Streams with pauses have no such limit: those of whose intervals one in twenty is longer than
# this number of usual ones.
_BURSTS = 4
# A stamp is isolated if it is newer than the one before by more than this number of usual
# intervals, which is more than a swap of two messages. It is corrupt if the next stamp is in
# between: a clock that was set, and the end of a gap, show in all stamps that follow.
_ISOLATED = 2.5
# A longer gap is a pause of the recording or a clock that was set, not lost messages.
_PAUSE = 60 * SECOND
# The usual interval is updated after this number of stamps, at this place among them.
_LEARN_EVERY, _LEARN_AT = 50, 20
_REMEMBERED = 101
# Fewest intervals that show what is usual.
_FEWEST = 4
_GAP = 1.5


@overload
def to_seconds(stamp: int) -> float: ...


@overload
def to_seconds(stamp: Stamps) -> Array: ...


def to_seconds(stamp: Any) -> Any:
    """Return one or many stamps in seconds [s], given nanoseconds."""
    seconds, nanoseconds = divmod(stamp, SECOND)
    return seconds + 1e-9 * nanoseconds


def from_seconds(time: float) -> int:
    """Return a time in nanoseconds, given seconds [s]."""
    return round(time * 1e9)


class StampGuard:
    """Check of a stream's stamps, with counts of repeated, late, jumping and missing ones.

    Attributes:
        newest: Newest admitted stamp, None before the first [ns].
        jumped: Whether the newest one confirmed a jump of the clock, before which all samples must
            be discarded.
        withdrawn: Corrupt stamp that had been admitted and was replaced by the newest one, of a
            block one from before the block; its sample must be discarded. None without one [ns].

    """

    def __init__(self) -> None:
        """Start empty."""
        self.newest: int | None = None
        self._tally = vars(StreamCounts()).copy()
        self._intervals: deque[int] = deque(maxlen=_REMEMBERED)
        self._period = 0.0
        self._admitted = 0
        self._odd = 0
        self._odd_stamp: int | None = None
        self._limit = LEAP
        self.withdrawn: int | None = None
        self.jumped = False
        # The admitted stamp before the newest, and the messages counted as lost between them.
        self._before: int | None = None
        self._gap = 0

    @property
    def counts(self) -> StreamCounts:
        """Counts of messages since the last reset."""
        return StreamCounts(**self._tally)

    @property
    def period(self) -> float:
        """Usual interval between stamps, 0 until it is known [s]."""
        return to_seconds(round(self._period))

    def count(self, **more: int) -> None:
        """Add to the counts by name."""
        for name, number in more.items():
            self._tally[name] += number

    def reset_counts(self) -> None:
        """Reset the counts."""
        self._tally = dict.fromkeys(self._tally, 0)

    def admits(self, stamp: int) -> bool:
        """Return whether the message of a stamp [ns] is used if it is the next one."""
        odd = self._odd_with(stamp)
        return not odd or odd >= self._odd_allowed(stamp)

    def _odd_with(self, stamp: int) -> int:
        """Return the number of stamps in a row, with this one, that do not follow the newest."""
        if self.newest is None or 0 < stamp - self.newest <= self._limit:
            return 0
        follows = self._odd_stamp is not None and 0 < stamp - self._odd_stamp <= LEAP
        return self._odd + 1 if follows else 1

    def _odd_allowed(self, stamp: int) -> int:
        """Return the number of consistent ones in a row that are believed."""
        late = self.newest is not None and -_CLOCK_JUMP < stamp - self.newest <= 0
        return _LATE_IN_A_ROW if late else _FAR_IN_A_ROW

    @property
    def doubted(self) -> float:
        """Interval after which a stamp counts as used only once the next follows it [ns]."""
        if not self._period and len(self._intervals) < 2:
            return LEAP
        return _DOUBTED * (self._period or _usual([*self._intervals][:-1])[0])

    @property
    def is_doubted(self) -> bool:
        """True if the newest stamp ends a gap, or is corrupt, which is known with the next one."""
        return (self.newest is not None and self._before is not None
                and self.newest - self._before > self.doubted)

    def _was_corrupt(self, newest: int, stamp: int) -> bool:
        """Return whether the newest stamp was corrupt, given the next one."""
        before = self._before
        if before is None or not before < stamp < newest:
            return False
        usual = self.doubted / _DOUBTED if len(self._intervals) > 1 else stamp - before
        return newest - before > _ISOLATED * usual

    def _withdraw(self) -> None:
        """Count the newest stamp as corrupt."""
        self._tally['out_of_order'] += 1
        self._tally['dropped'] = max(self._tally['dropped'] - self._gap, 0)
        if self._before is not None:
            self._intervals.pop()
            self._admitted -= 1
        self.newest, self._before = self._before, None

    def admit(self, stamp: int) -> bool:
        """Process a stamp [ns]; return whether its message is used.

        The message that confirms a jump of the clock is used; see ``jumped``.
        """
        self.jumped = False
        newest, odd = self.newest, self._odd_with(stamp)
        # Two that agree outvote the first of all.
        self.withdrawn = None
        if newest is not None and odd > 0 and (
                self._was_corrupt(newest, stamp) or (odd > 1 and not self._admitted)):
            self.withdrawn = newest
            self._withdraw()
            newest, odd = self.newest, self._odd_with(stamp)
        tally = self._tally
        tally['received'] += 1
        if odd and odd < self._odd_allowed(stamp):
            tally['out_of_order'] += 1
            if tally['dropped'] and -_CLOCK_JUMP < stamp - (newest or 0) < 0:
                # A late message had been counted as lost when its successor came.
                tally['dropped'] -= 1
            self._odd, self._odd_stamp = odd, stamp
            return False
        before, self._gap = newest, 0
        if newest is not None and 0 < stamp - newest <= LEAP:
            step = stamp - newest
            if self._period and _GAP * self._period < step < _PAUSE:
                # Those that were left out until the gap was believed were not lost.
                self._gap = max(round(step / self._period) - 1 - max(odd - 1, 0), 0)
                tally['dropped'] += self._gap
            if odd and stamp - (self._odd_stamp or 0) > self._limit:
                # The stream has become slow.
                self._limit = LEAP
            self._intervals.append(step)
            self._admitted += 1
            if self._admitted < _LEARN_AT:
                if len(self._intervals) >= _FEWEST:
                    self._limit = _DOUBTED * max(self._intervals)
            elif self._admitted % _LEARN_EVERY == _LEARN_AT:
                self._period, self._limit = _usual(self._intervals)
        elif newest is not None:
            tally['clock_jumps'] += 1
            self.jumped = True
            self._intervals.clear()
        if odd:
            # Those before it, which were left out, confirm it.
            before = self._odd_stamp
        self.newest, self._before = stamp, before
        self._odd, self._odd_stamp = 0, None
        return True

    def admit_block(self, stamps: Stamps) -> tuple[Flags, list[int]]:
        """Process many stamps, equal to ``admit`` for each of them.

        Args:
            stamps: Stamps in the order of arrival, shape (k,) [ns].

        Returns:
            Mask of the messages to use, shape (k,), and the rows at which the clock jumped, before
            which samples must be discarded.

        """
        counts = np.zeros(len(stamps), dtype=bool)
        used, earlier = -1, None
        # Rows that do not follow their predecessor; all others increase.
        steps = np.diff(stamps)
        breaks = np.append(1 + np.flatnonzero((steps <= 0) | (steps > LEAP)), len(stamps))
        row, jumps = 0, list[int]()
        while row < len(stamps):
            counts[row] = self.admit(int(stamps[row]))
            if self.withdrawn is not None:
                if used >= 0:
                    counts[used] = False
                else:
                    earlier = self.withdrawn
            if self.jumped:
                jumps.append(row)
            used = row if counts[row] else used
            row += 1
            if not counts[row - 1] or len(self._intervals) < _REMEMBERED:
                continue
            stop = int(breaks[np.searchsorted(breaks, row)]) if row < len(stamps) else row
            if stop > row:
                stop = row + self._admit_increasing(stamps[row - 1:stop])
                counts[row:stop] = True
                row, used = stop, stop - 1
        self.withdrawn = earlier
        return counts, jumps

    def _admit_increasing(self, stamps: Stamps) -> int:
        """Admit stamps that increase, up to a doubted one, once the usual intervals are known.

        Args:
            stamps: Two stamps or more, shape (k,) [ns]; the first has been admitted already.

        Returns:
            The number of those admitted, without the first.

        """
        steps = np.diff(stamps)
        count = len(steps)
        # Steps after which the usual interval is updated.
        learnt = np.arange((_LEARN_AT - self._admitted - 1) % _LEARN_EVERY, count, _LEARN_EVERY)
        known = np.concatenate((np.array(self._intervals, dtype=np.int64), steps))
        windows = sliding_window_view(known, _REMEMBERED)[learnt + 1]
        places = [_REMEMBERED // 2, _long(_REMEMBERED)]
        usual = [(self._period, self._limit),
                 *map(_limited, *np.partition(windows, places, axis=1)[:, places].T.tolist())]
        dropped = gap = 0
        periods, limits = (np.array(part) for part in zip(*usual, strict=True))
        if steps.max() > min(_GAP * periods.min(), limits.min()):
            valid = np.searchsorted(learnt, np.arange(count))
            doubted = np.flatnonzero(steps > limits[valid])
            if len(doubted):
                return self._admit_increasing(stamps[:doubted[0] + 1]) if doubted[0] else 0
            period = periods[valid]
            wide = (period > 0.0) & (steps > _GAP * period) & (steps < _PAUSE)
            lost = np.where(wide, np.round(steps / np.maximum(period, 1.0)) - 1.0, 0.0)
            dropped, gap = int(lost.sum()), int(lost[-1])
        self._intervals.extend(steps[-_REMEMBERED:].tolist())
        self._period, self._limit = usual[-1]
        self._admitted += count
        self.count(received=count, dropped=dropped)
        self._before, self.newest = map(int, stamps[-2:])
        self._gap, self.withdrawn, self.jumped = gap, None, False
        return count


def _long(count: int) -> int:
    """Return the place of the interval that one in twenty exceeds among ordered ones."""
    return 19 * count // 20


def _usual(values: Collection[int]) -> tuple[float, int]:
    """Return the median, and the limit of intervals that are not doubted.

    It is much faster than NumPy for a hundred numbers.
    """
    ordered = sorted(values)
    return _limited(median(ordered), ordered[_long(len(ordered))])


def _limited(usual: float, long: int) -> tuple[float, int]:
    return float(usual), LEAP if long > _BURSTS * usual else round(_DOUBTED * usual)


# -------------------------------------------------------------------- positions of joints

_TURN = 2.0 * np.pi
# Positions beyond a limit by more than the range, and at least by this, are implausible [rad] or
# [m]; drivers may exceed the URDF's limits, and corrected offsets shift positions.
_MARGIN = {False: 1.0, True: 0.1}
# Speeds above this multiple of the URDF's limit, and above an absolute value, are implausible
# [rad/s] or [m/s]; URDFs often contain placeholders. Intervals of stamps shorter than the last
# figure [s] are not used, because stamps may be irregular.
_SPEED_FACTOR, _SPEED, _LEAST_INTERVAL = 3.0, {False: 10.0, True: 2.0}, 0.1
# A row of zeros was not filled in by the driver unless the arm was near zero before, within this
# [rad] or [m] and the travel at the speed limit.
_NEAR_ZERO = 0.01
# Positions of joints without limits beyond this are implausible [rad] or [m].
_FARTHEST = 1e6
# Velocities beyond this multiple of the URDF's limit, and beyond an absolute value [rad/s] or
# [m/s], are implausible: no arm is that fast, whatever the URDF says.
_OVERSPEED, _FASTEST = 10.0, {False: 100.0, True: 20.0}
# The same for efforts. Their unit may be unknown: some drivers send mA.
_OVERLOAD, _STRONGEST = 1e3, 1e5
_UNFILLED = ('Every position in joint_states is zero though the arm was not there: the row was '
             'never filled in; check the driver.')
# Number of consecutive consistent rows that are accepted although they contradict earlier ones.
_IN_A_ROW = 10


def largest_values(joints: Robot) -> Array:
    """Return the largest plausible velocities [rad/s] and efforts [N·m], shape (2 n,)."""
    fastest = np.where(joints.prismatic, _FASTEST[True], _FASTEST[False])
    return np.concatenate([
        np.maximum(factor * np.where(np.isfinite(limit), limit, 0.0), least)
        for factor, limit, least in ((_OVERSPEED, joints.velocity_limit, fastest),
                                     (_OVERLOAD, joints.effort_limit, _STRONGEST))])


class PostureCheck:
    """Check of the positions of one arm by the URDF's limits, and of continuous joints' turns.

    Attributes:
        restarted: Number of rows of zeros before the newest row that were accepted but turned out
            to have been sent before the driver had read the joints; 0 for none.

    """

    def __init__(self, joints: Robot) -> None:
        """Start before the first message.

        Args:
            joints: The joints of the arm, with limits and kinds.

        """
        slides = joints.prismatic
        self._names = joints.joint_names
        self._slides = slides
        self._wraps = np.flatnonzero(joints.continuous)
        span = joints.upper - joints.lower
        limited = np.isfinite(span) & (span > 0.0)
        margin = np.maximum(span, np.where(slides, _MARGIN[True], _MARGIN[False]))
        self._lower = np.where(limited, joints.lower - margin, -_FARTHEST)
        self._upper = np.where(limited, joints.upper + margin, _FARTHEST)
        self._limits = (np.where(limited, joints.lower, -_FARTHEST),
                        np.where(limited, joints.upper, _FARTHEST))
        least = np.where(slides, _SPEED[True], _SPEED[False])
        speed = np.where(np.isfinite(joints.velocity_limit), joints.velocity_limit, 0.0)
        self._speed = np.maximum(_SPEED_FACTOR * speed, least)
        self._turns = np.zeros(len(self._names))
        self._last: tuple[int, Array] | None = None
        self._zeros = 0
        self._odd: tuple[int, Array] | None = None
        self._odd_count = self._outside_count = 0
        self.restarted = 0

    def check(self, stamp: int, row: Array) -> str:
        """Check one message and unwrap its positions in place.

        Args:
            stamp: Its stamp [ns].
            row: Position, velocity and effort, shape (3 n,), positions finite.

        Returns:
            Its problem, empty for none.

        """
        position = row[:len(self._names)]
        self.restarted = 0
        if reason := self._doubt(stamp, position, row):
            return reason
        self._last = stamp, position.copy()
        if len(self._wraps):
            position[self._wraps] += _TURN * self._turns[self._wraps]
        return ''

    def _doubt(self, stamp: int, position: Array, row: Array) -> str:
        """Return the problem of a message, empty for none."""
        if (position < self._lower).any() or (position > self._upper).any():
            self._outside_count += 1
            return self._outside(position)
        self._outside_count = 0
        zeros = not position.any() and not np.nan_to_num(row).any()
        # The clock was set between stamps far apart: the time between them is unknown.
        if self._last is not None and 0 < stamp - self._last[0] <= LEAP:
            step, interval = self._step(self._last, stamp, position)
            far = (zeros or self._zeros) and (
                np.abs(step) > self._speed * interval + _NEAR_ZERO).any()
            if far and self._zeros:
                # All earlier rows were zeros: the driver had not read the joints yet.
                self.restarted, self._zeros = self._zeros, 0
            elif far:
                return _UNFILLED
            elif not (np.abs(step) <= self._speed * max(interval, _LEAST_INTERVAL)).all():
                if not self._believed(stamp, position):
                    return self._jump(step, interval)
            elif len(self._wraps):
                self._turns[self._wraps] -= np.round(
                    (position - self._last[1])[self._wraps] / _TURN)
        self._odd, self._odd_count = None, 0
        self._zeros = self._zeros + 1 if zeros and (self._zeros or self._last is None) else 0
        return ''

    def check_block(self, stamps: Stamps, rows: Array) -> tuple[dict[int, str], dict[int, int]]:
        """Check messages and unwrap them in place, equal to ``check`` for each of them.

        Args:
            stamps: Their stamps, shape (k,) [ns].
            rows: Position, velocity and effort, shape (k, 3 n), positions finite.

        Returns:
            Problems by row, and ``restarted`` by row where it is not zero.

        """
        reasons, restarts = dict[int, str](), dict[int, int]()
        # The first message of all has none before it.
        first = 1 if self._last is None else 0
        for part in (slice(first), slice(first, None)):
            if self._in_order(stamps[part], rows[part]):
                continue
            for place, stamp in enumerate(stamps[part].tolist(), part.start or 0):
                if reason := self.check(stamp, rows[place]):
                    reasons[place] = reason
                if self.restarted:
                    restarts[place] = self.restarted
        return reasons, restarts

    def _in_order(self, stamps: Stamps, rows: Array) -> bool:
        """Accept messages if all of them are plausible; return whether they are."""
        if self._last is None or self._zeros or not len(rows):
            return not len(rows)
        position = rows[:, :len(self._names)]
        before = np.vstack((self._last[1], position[:-1]))
        step, turns = position - before, np.zeros(position.shape)
        turns[:, self._wraps] = np.round(step[:, self._wraps] / _TURN)
        step -= _TURN * turns
        spacing = np.diff(stamps, prepend=self._last[0])
        interval = spacing / SECOND
        reach = self._speed * np.maximum(interval, _LEAST_INTERVAL)[:, None]
        if not ((spacing > 0).all() and (spacing <= LEAP).all() and (np.abs(step) <= reach).all()
                and (position >= self._lower).all() and (position <= self._upper).all()
                and position.any(axis=1).all()):
            return False
        self._odd, self._odd_count, self._outside_count = None, 0, 0
        self._last = int(stamps[-1]), position[-1].copy()
        if len(self._wraps):
            turned = self._turns - np.cumsum(turns, axis=0)
            self._turns = turned[-1]
            position[:, self._wraps] += _TURN * turned[:, self._wraps]
        return True

    def _step(self, before: tuple[int, Array], stamp: int, position: Array) -> tuple[Array, float]:
        """Return steps of the joints [rad] or [m] and their durations [s]."""
        step = position - before[1]
        if len(self._wraps):
            step[self._wraps] -= _TURN * np.round(step[self._wraps] / _TURN)
        return step, (stamp - before[0]) / SECOND

    def _believed(self, stamp: int, position: Array) -> bool:
        """Return whether enough consecutive rows are consistent, though not with earlier ones."""
        fits = False
        if self._odd is not None:
            step, interval = self._step(self._odd, stamp, position)
            fits = bool((np.abs(step) <= self._speed * max(interval, _LEAST_INTERVAL)).all())
        self._odd = stamp, position.copy()
        self._odd_count = self._odd_count + 1 if fits else 1
        return self._odd_count >= _IN_A_ROW

    # -------------------------------------------------------------------- sentences

    def _jump(self, step: Array, interval: float) -> str:
        joint = int(np.argmax(np.abs(step) / self._speed))
        return (f"Position of joint '{self._names[joint]}' jumps by {step[joint]:.4g} "
                f'{self._unit(joint)} within {interval:.3g} s in joint_states; the row is '
                'corrupt, or another arm publishes joints of the same names.')

    def _outside(self, position: Array) -> str:
        excess = np.maximum(self._lower - position, position - self._upper)
        joint = int(np.argmax(excess))
        lower, upper = (float(limit[joint]) for limit in self._limits)
        unit = self._unit(joint)
        sentence = (f"Position of joint '{self._names[joint]}' in joint_states is "
                    f'{position[joint]:.4g} {unit}, far beyond its limits {lower:.4g} … '
                    f'{upper:.4g} {unit}')
        if self._last is not None and self._outside_count < _IN_A_ROW:
            return f'{sentence}; the row is corrupt.'
        scale = np.where(self._slides, 1e-3, np.pi / 180.0)
        scaled = scale * position
        name, wanted = ('millimetres', 'metres') if self._slides[joint] else ('degrees', 'radians')
        if scaled[joint] < self._lower[joint] or scaled[joint] > self._upper[joint]:
            return f'{sentence}. Check the driver and the limits of the robot description.'
        return f'{sentence}. It would fit in {name}; have the driver or import give {wanted}.'

    def _unit(self, joint: int) -> str:
        return 'm' if self._slides[joint] else 'rad'

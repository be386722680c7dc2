# SPDX-License-Identifier: Apache-2.0
"""Vectorised observations of many instants, equal to those of the observer sample by sample.

Interpolation and windows depend on stamps only, so whole arrays are computed at once. Instants
with a contact are computed one by one, because a contact depends on earlier instants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from scipy.interpolate import CubicSpline

from robocal_ros.arrays import Array, Flags
from robocal_ros.estimation import find_delay
from robocal_ros.messages import SECOND, Stamps
from robocal_ros.wrench.alignment import (
    COLUMNS,
    GAP,
    NEVER,
    UNEVEN,
    Feed,
    Reading,
    Saturated,
    Window,
    even_weights,
    matched_weights,
    parabola_weights,
    scatter_of_accelerations,
)
from robocal_ros.wrench.contact import EVERY, Contact
from robocal_ros.wrench.fusion import Fused, Fusion
from robocal_ros.wrench.model import Instant, Motion, SensedArm
from robocal_ros.wrench.observer import (
    FILLING,
    IMPLAUSIBLE,
    IMPOSSIBLE,
    Observation,
    WrenchObserver,
    failure,
)

Rows = npt.NDArray[np.intp]

# Lag of a sensor behind the others above which it counts as silent [ns].
_SILENT = 200 * SECOND
# Largest lateness of a recorded message that is sorted by its stamp [ns].
_LATEST = SECOND

# Of delays of sensors: least time between the instants used [s], larger where their windows would
# overlap, and the largest one in multiples of it; speed of the joints below which they tell
# nothing [rad/s]; fewest instants, and as many as suffice.
_APART, _GAP = 0.025, 1.5
_MOVING = 0.1
_FEWEST, _MOST = 400, 2000


@dataclass
class Block:
    """Observations at m successive instants.

    Attributes:
        stamps: Stamps of the newest samples, shape (m,) [ns].
        delay: Delay of the estimates, shape (m,) [s].
        observed: Whether an instant observes a sub-chain, shape (m, k).
        valid: Whether the wrench is valid, shape (m, k).
        wrench: External wrenches, undefined if invalid, shape (m, k, 6) [N, N·m].
        external: External joint torques, NaN if unknown, shape (m, n) [N·m].
        colliding: Whether each joint's torque exceeds its threshold, shape (m, n).
        reasons: Reasons of the sub-chains by instant with invalid wrenches.
        contacts: Contacts by sub-chain, by instant with contacts.
        fused: Tool wrench and covariances; None if they were not asked for.

    """

    stamps: Stamps
    delay: Array
    observed: Flags
    valid: Flags
    wrench: Array
    external: Array
    colliding: Flags
    reasons: dict[int, list[str]] = field(default_factory=dict)
    contacts: dict[int, dict[int, Contact]] = field(default_factory=dict)
    fused: Fused | None = None

    @classmethod
    def empty(cls, stamps: Stamps, links: int, joints: int) -> Block:
        """Return a block of instants without estimates."""
        count = len(stamps)
        return cls(stamps, np.zeros(count), np.zeros((count, links), bool),
                   np.zeros((count, links), bool), np.zeros((count, links, COLUMNS)),
                   np.full((count, joints), np.nan), np.zeros((count, joints), bool))

    @classmethod
    def of(
        cls, observations: Sequence[Observation], joints: int, fusion: Fusion | None = None
    ) -> Block:
        """Return observations as a block."""
        stamps = np.array([item.nanoseconds for item in observations], dtype=np.int64)
        made = cls.empty(stamps, len(observations[0].reasons), joints)
        if fusion is not None:
            made.fused = fusion.all_of(observations)
        for row, item in enumerate(observations):
            made.delay[row], made.wrench[row] = item.delay, item.wrench
            for index in item.links:
                made.observed[row, index] = True
                made.valid[row, index] = not item.reasons[index]
            if any(item.reasons):
                made.reasons[row] = item.reasons
            if item.contacts:
                made.contacts[row] = item.contacts
            if item.external is not None and item.colliding is not None:
                made.external[row], made.colliding[row] = item.external, item.colliding
        return made

    def __len__(self) -> int:
        """Return the number of instants."""
        return len(self.stamps)

    def reasons_at(self, row: int) -> list[str]:
        """Return the reasons of all sub-chains at an instant, empty for valid wrenches."""
        return self.reasons.get(row) or [''] * self.valid.shape[1]

    @cached_property
    def force(self) -> Array:
        """Magnitudes of the forces, undefined if invalid, shape (m, k) [N]."""
        force = self.wrench[:, :, :3]
        return np.sqrt(np.einsum('mki,mki->mk', force, force))

    @cached_property
    def known(self) -> Flags:
        """Whether the external joint torques are known, shape (m,)."""
        # A product is faster than a reduction along short rows.
        return np.isfinite(self.external @ np.ones(self.external.shape[1]))


class _Samples:
    """Samples of one source, appended at the end and dropped at the beginning.

    Attributes:
        stamps: Their stamps, shape (m,) [ns].
        times: Times of their recording, shape (m,) [ns].
        rows: Their values, shape (m, columns).
        why: Why each is not usable, as an index of sentences, negative for a saturated sensor.

    """

    def __init__(self, columns: int, count: int = 0) -> None:
        # As if they had been refused long ago.
        stamps = np.full(count, NEVER)
        self._set(stamps, stamps, np.zeros((count, columns)), np.ones(count, np.intp))

    def _set(self, *columns: Any) -> None:
        self.stamps, self.times, self.rows, self.why = self._columns = columns

    @property
    def newest(self) -> int:
        """Newest stamp, ``NEVER`` before the first [ns]."""
        return int(self.stamps[-1]) if len(self.stamps) else NEVER

    def append(self, stamps: Stamps, times: Stamps, rows: Array, why: Rows) -> None:
        self._set(*map(np.concatenate, zip(
            self._columns, (stamps, times, rows, why), strict=True)))

    def drop(self, count: int) -> None:
        if count > 0:
            self._set(*(column[count:] for column in self._columns))


class _Readings(_Samples):
    """Readings of one sensor, with the checks of its feed."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(COLUMNS, 1)
        self.feed = feed
        self.sentences = ['', '']
        # By stamp of joint states: why those of the sensor were ahead of them.
        self.ahead: dict[int, str] = {}
        self._last: Array = np.full(COLUMNS, np.nan)
        self._same_since = NEVER

    def add(self, stamps: Stamps, times: Stamps, rows: Array, problems: Mapping[int, str]) -> None:
        """Add readings; problems by row."""
        feed = self.feed
        stamps = stamps - feed.delay
        why = np.zeros(len(stamps), np.intp)
        for row, problem in problems.items():
            why[row] = self._sentence(problem)
        suspicious = ~(np.abs(rows) < feed.inner)
        for row in np.unique(np.nonzero(suspicious)[0]).tolist() if suspicious.any() else ():
            problem, bounding = feed.beyond(rows[row].tolist())
            if problem and not why[row]:
                why[row] = self._sentence(problem) * (-1 if bounding else 1)
        self._find_stuck(stamps, rows, why)
        # What is not finite would spoil sums.
        self.append(stamps, times, np.where((why > 0)[:, None], 0.0, rows), why)

    def _find_stuck(self, stamps: Stamps, rows: Array, why: Rows) -> None:
        live = np.flatnonzero(why == 0)
        if not self.feed.stuck_time or not len(live):
            return
        values = np.vstack((self._last, rows[live]))
        changed = (values[1:] != values[:-1]).any(axis=1)
        since = np.maximum.accumulate(np.where(changed, stamps[live], self._same_since))
        for row in np.flatnonzero(stamps[live] - since > self.feed.stuck_time).tolist():
            why[live[row]] = self._sentence(self.feed.stuck(int(stamps[live[row]] - since[row])))
        self._last, self._same_since = values[-1], int(since[-1])

    def _sentence(self, text: str) -> int:
        if self.sentences[-1] != text:
            self.sentences.append(text)
        return len(self.sentences) - 1

    def at(self, time: Stamps) -> tuple[Array, Flags, Rows]:
        """Return values at instants, which of them are missing, and the row before each."""
        before = np.searchsorted(self.stamps, time, 'right') - 1
        after = np.minimum(before + 1, len(self.stamps) - 1)
        begin, good = self.stamps[before], self.why == 0
        elapsed, gap = time - begin, self.stamps[after] - begin
        between = good[before] & good[after] & (after > before) & (gap <= self.feed.max_gap)
        share = np.where(between, elapsed / np.maximum(gap, 1), 0.0)
        low, high = self.rows.take(before, axis=0), self.rows.take(after, axis=0)
        missing = ~(between | (good[before] & (elapsed == 0)))
        values = low + share[:, None] * (high - low)
        values[missing] = 0.0
        return values, missing, before

    def around(self, before: int) -> list[Reading | None]:
        """Return the readings at a row and the next one, as ``Feed.around``."""
        return [None if self.why[place] > 0 else
                (Saturated if self.why[place] else tuple)(self.rows[place].tolist())
                for place in range(before, min(before + 2, len(self.stamps)))]

    def saturated(self, before: Rows) -> Flags:
        """Return whether the reading at a row or the next one is saturated."""
        clipped = self.why < 0
        return np.asarray(clipped[before] | clipped[np.minimum(before + 1, len(clipped) - 1)])

    def reason(self, before: int, time: int) -> str:
        """Return why the values at an instant are missing [ns]."""
        if time in self.ahead:
            return self.ahead[time]
        first = max(0, before - 1000)
        for place in np.flatnonzero(self.why[first:before + 2])[-1:] + first:
            if time - int(self.stamps[place]) < self.feed.max_gap:
                return self.sentences[abs(self.why[place])]
        return self.feed.absence(
            np.inf if before == 0 else (time - int(self.stamps[before])) / SECOND)


class _Instants:
    """Motion and readings at m successive instants, smoothed, and the rows that they come from.

    Attributes:
        time: Stamps of the rows, shape (rows,) [ns].
        windows: Windows with their weights.
        stamps: Stamps of their newest rows, shape (m,) [ns].
        rows: Angles, velocities, torques and readings, shape (rows, 3 n + 6 k).
        missing: Whether the readings of a sensor are missing, shape (rows, k).
        lost: By instant whose windows lack readings, as for ``Observation.missing``.
        before: Row of each sensor's samples before each row, shape (rows, k).
        without_effort: Whether torques are unknown in a window, shape (m,).
        lacking: Whether velocities of a joint are not measured in a window, shape (m, n).
        full: Whether a window is full and its values are plausible, shape (m,).
        wild: Whether values of a full window are implausible, shape (m,).
        means: Means of the rows, shape (m, 3 n + 6 k).
        q: Joint angles, shape (m, n) [rad].
        v: Joint velocities, shape (m, n) [rad/s].
        a: Accelerations, shape (m, n) [rad/s²].
        held: As for ``SensedArm.held``, shape (m, k, 6).
        torque: Torques that the rigid arm takes, shape (m, n) [N·m].
        seen: Readings without bias in the links' frames, shape (m, k, 6).
        distal: Reading + held of each sensor, shape (m, k, 6).

    """

    def __init__(
        self, observer: WrenchObserver, joints: _Samples, sensors: Sequence[_Readings],
        begin: int, end: int,
    ) -> None:
        """Smooth over the windows that end in some joint states.

        Args:
            observer: The observer.
            joints: Joint states.
            sensors: Readings.
            begin: First joint state.
            end: The one after the last.

        """
        arm, window = observer.arm, observer.joint_chains.samples.window
        n, count = arm.robot.n, len(sensors)
        self._n = n
        time = self.time = joints.stamps[:end]
        windows = self.windows = _Windows(time, begin, window)
        new, first = windows.new, windows.first
        self.stamps = time[new]
        # Rows of zeros for windows that would begin before the first row.
        table = np.zeros((windows.before + end, 3 * n + count * COLUMNS))
        rows = self.rows = table[windows.before:]
        rows[:, :3 * n] = joints.rows[:end]
        # A product is faster than a reduction along short rows.
        unknown: Flags = ~np.isfinite(rows[:, 2 * n:3 * n] @ np.ones(n))
        rows[unknown, 2 * n:3 * n] = 0.0
        unmeasured = np.isnan(rows[:, n:2 * n])
        rows[:, n:2 * n][unmeasured] = 0.0
        readings = rows[:, 3 * n:].reshape(end, count, COLUMNS)
        self.missing: Flags = np.zeros((end, count), bool)
        self.lost: dict[int, list[str]] = {}
        self.before = np.zeros((end, count), np.intp)
        for index, sensor in enumerate(sensors):
            readings[:, index], self.missing[:, index], self.before[:, index] = sensor.at(time)
            if sensor.ahead:
                self.missing[:, index] |= np.isin(time, list(sensor.ahead))
        means = self.means = windows.sums(windows.mean, table)
        self.q, self.v = means[:, :n], means[:, n:2 * n]
        self.a = windows.rate[:, None] * windows.sums(windows.slope, table[:, n:2 * n])
        self.lacking = windows.hold(unmeasured)
        size, wanted = new - first + 1, windows.full & self.lacking.any(axis=1)
        for length in np.unique(size[wanted]).tolist():
            chosen = np.flatnonzero(wanted & (size == length))
            within = new[chosen, None] + np.arange(1 - length, 1)
            elapsed = (time[within] - time[new[chosen], None]) / SECOND
            found = parabola_weights(elapsed + windows.delay[chosen, None]) @ rows[within, :n]
            for own, fitted in ((self.v, found[:, 1]), (self.a, found[:, 2])):
                own[chosen] = np.where(self.lacking[chosen], fitted, own[chosen])
        excess = np.zeros((windows.before + end, count * COLUMNS))
        between = excess[windows.before:].reshape(end, count, COLUMNS)
        # All of them, because they mark rows as missing too.
        if sum(self._put_excess(between[:, index], index, sensor, readings[:, index])
               for index, sensor in enumerate(sensors)):
            means[:, 3 * n:] += windows.sums(windows.intervals, excess)
        self.held, self.torque = arm.held_many(self.q, self.v, self.a)
        self.seen = arm.in_links(
            means[:, 3 * n:].reshape(len(new), count, COLUMNS) - observer.bias)
        self.distal = self.seen + self.held
        outputs = np.hstack((self.distal.reshape(len(new), count * COLUMNS), self.torque))
        self.wild: Flags = windows.full & ~(np.abs(outputs) <= IMPOSSIBLE).all(axis=1)
        self.full = windows.full & ~self.wild
        self.without_effort = windows.hold(unknown)

    def _put_excess(self, excess: Array, index: int, sensor: _Readings, readings: Array) -> bool:
        """Set by how much means of readings between rows differ from the mean of both rows.

        Rows after refused readings are missing.

        Args:
            excess: Zeros to set, shape (rows, 6).
            index: The sensor.
            sensor: Its readings.
            readings: Values at the rows, shape (rows, 6).

        Returns:
            Whether any interval contains several readings.

        """
        time, before, missing = self.time, self.before[:, index], self.missing[:, index]
        stamps, rows = sensor.stamps, sensor.rows
        begin, end = before[:-1] + 1, before[1:] + 1
        end = end - (stamps[end - 1] == time[1:])
        several = (end - begin > 1) & ~missing[1:] & ~missing[:-1]
        refused = np.cumsum(sensor.why != 0)
        bad = several & (refused[end - 1] > refused[begin - 1])
        missing[1:] |= bad
        several &= ~bad
        if not several.any():
            return False
        # Integrals of the linear interpolation up to the readings, then up to the rows.
        area = np.zeros_like(rows)
        area[2:] = np.cumsum(
            0.5 * (np.diff(stamps[1:]) / SECOND)[:, None] * (rows[2:] + rows[1:-1]), axis=0)
        integral = area[before] + 0.5 * ((time - stamps[before]) / SECOND)[:, None] * (
            rows[before] + readings)
        means = np.diff(integral, axis=0) / (np.diff(time) / SECOND)[:, None]
        excess[1:][several] = (means - 0.5 * (readings[1:] + readings[:-1]))[several]
        return True

    def motion(self, row: int) -> Motion:
        """Return the motion at an instant."""
        return self.q[row], self.v[row], self.a[row]

    def torque_rate(self, row: int) -> Array:
        """Return the slope of the drive torques at an instant, shape (n,) [N·m/s]."""
        windows = self.windows
        inside = slice(windows.first[row], windows.new[row] + 1)
        return np.asarray(windows.rate[row] * windows.slope[row, inside.start - inside.stop:]
                          @ self.rows[inside, 2 * self._n:3 * self._n])

    def scatter(self, row: int) -> Array:
        """Return the errors of accelerations as for ``Observation.scatter``."""
        lacking, windows = self.lacking[row], self.windows
        if not lacking.any():
            return np.zeros((self._n, 0))
        inside = slice(windows.first[row], windows.new[row] + 1)
        elapsed = (self.time[inside] - self.stamps[row]) / SECOND + windows.delay[row]
        return lacking[:, None] * scatter_of_accelerations(elapsed, self.rows[inside, :self._n])


class OfflineObserver:
    """Observer of whole arrays, for sub-chains whose motion follows from joint states.

    Attributes:
        delays: Delays of the sensors in addition to those of the parameters.

    """

    def __init__(self, observer: WrenchObserver, fusion: Fusion | None = None) -> None:
        """Start empty.

        Args:
            observer: Observer with load, friction and biases.
            fusion: Gives the tool wrench and covariances; None for none.

        """
        self._observer = observer
        self._fusion = fusion
        self._chains = observer.joint_chains
        self._arm = observer.arm
        self._values = observer.values
        self._n = observer.arm.robot.n
        self._joints = _Samples(3 * self._n)
        self._sensors = [_Readings(feed) for feed in observer.feeds]
        self.delays = SensorDelays(observer.arm, observer.values.window)
        # Number of joint states that are already observed and kept for windows.
        self._begun = 0
        observer.clear()

    def add_joint_states(self, stamps: Stamps, rows: Array, times: Stamps | None = None) -> None:
        """Add joint states.

        Args:
            stamps: Increasing stamps, shape (m,) [ns].
            rows: As for ``JointChains.add``, shape (m, 3 n).
            times: Times of recording, shape (m,) [ns]; the stamps if None.

        """
        times = stamps if times is None else times
        if not self._values.use_velocity:
            rows = rows.copy()
            rows[:, self._n:2 * self._n] = np.nan
        self._joints.append(stamps, times, rows, np.zeros(len(stamps), np.intp))

    def add_readings(
        self, index: int, stamps: Stamps, rows: Array, problems: Mapping[int, str],
        times: Stamps | None = None,
    ) -> None:
        """Add readings of an F/T sensor.

        Args:
            index: The sensor.
            stamps: Increasing stamps, shape (m,) [ns].
            rows: Forces, then moments, shape (m, 6) [N, N·m].
            problems: Problems of unusable readings, by row.
            times: Times of recording, shape (m,) [ns]; the stamps if None.

        """
        self._sensors[index].add(stamps, stamps if times is None else times, rows, problems)

    def take(self, *, final: bool = False, until: int | None = None) -> Block | None:
        """Return the observations whose samples are complete, None for none.

        Args:
            final: Whether no more samples will be added.
            until: Newest stamp to be observed now [ns]; None for all.

        """
        stamps = self._joints.stamps
        end = self._complete(final)
        if until is not None:
            end = min(end, int(np.searchsorted(stamps, until, 'right')))
        if end <= self._begun:
            return None
        self._compare(self._begun, end)
        block = self._observed(self._begun, end)
        self._trim(end)
        return block

    def has_more(self, *, final: bool) -> bool:
        """Return whether there are complete samples that were not observed yet."""
        return self._complete(final) > self._begun

    def _complete(self, final: bool) -> int:
        """Return the number of joint states whose readings have all been added."""
        stamps, newest = self._joints.stamps, self._joints.newest
        if not final:
            all_newest = [newest, *(sensor.newest for sensor in self._sensors)]
            ready = max(min(all_newest), max(all_newest) - _SILENT) - _LATEST
            return int(np.searchsorted(stamps, ready, 'right'))
        patience = round(self._values.max_delay * SECOND)
        for sensor in self._sensors:
            if newest - sensor.newest <= patience:
                waiting = (stamps > sensor.newest) & (newest - stamps <= patience)
                stamps = stamps[:int(np.argmax(waiting))] if waiting.any() else stamps
        return len(stamps)

    def _compare(self, begin: int, end: int) -> None:
        """Find joint states at whose recording stamps of a sensor were ahead, as live."""
        window, joints = self._chains.samples, self._joints
        stamps, arrived = joints.stamps[begin:end], joints.times[begin:end]
        for index, sensor in enumerate(self._sensors):
            newest = sensor.stamps[np.searchsorted(sensor.times, arrived, 'right') - 1]
            skew = newest - stamps
            # In step throughout, the last one is enough.
            first = 0 if (skew > sensor.feed.max_gap).any() else -1
            for stamp, time, early in zip(*(
                    row[first:].tolist() for row in (stamps, arrived, skew)), strict=True):
                if why := window.judge(index, time / SECOND, early):
                    sensor.ahead[stamp] = why

    def _trim(self, done: int) -> None:
        """Drop samples that no later window contains."""
        stamps, window = self._joints.stamps, self._chains.samples.window
        first = int(np.searchsorted(stamps, stamps[done - 1] - window.slack))
        oldest = max(min(first, done - window.fewest) - 3, 0)
        since = int(stamps[oldest])
        self._joints.drop(oldest)
        self._begun = done - oldest
        for sensor in self._sensors:
            sensor.drop(int(np.searchsorted(sensor.stamps, since - sensor.feed.max_gap)) - 2)
            sensor.ahead = {stamp: why for stamp, why in sensor.ahead.items() if stamp >= since}

    # ------------------------------------------------------------------------ computing

    @np.errstate(over='ignore', invalid='ignore')
    def _observed(self, begin: int, end: int) -> Block:
        """Return the observations of some joint states, whose readings have all been added."""
        n, count, window = self._n, len(self._sensors), self._chains.samples.window
        at = _Instants(self._observer, self._joints, self._sensors, begin, end)
        block = Block.empty(at.stamps, count, n)
        block.observed[:] = True
        block.wrench = self._arm.between_many(at.q, at.distal)
        block.wrench[at.wild] = 0.0
        block.delay[:] = np.where(at.full, at.windows.delay, 0.5 * window.length / SECOND)
        self._judge_validity(block, at)
        loud = block.force >= self._values.force_threshold
        self.delays.add(block.stamps, (at.q, at.v, at.a), at.distal - at.held,
                        np.all(block.valid & ~loud, axis=1))
        torques = self._observer.torques
        if torques is not None:
            with_effort = np.flatnonzero(at.full & ~at.without_effort)
            block.external[with_effort] = torques.external_torque(
                at.torque, at.v, at.a, at.means[:, 2 * n:3 * n])[with_effort]
            for number in _until_over(
                    np.any(np.abs(block.external[with_effort]) > torques.threshold, axis=1),
                    lambda: torques.is_colliding):
                row = int(with_effort[number])
                torques.judge(
                    at.v[row], at.torque[row] - block.external[row], block.external[row],
                    self._chains.torque_std(
                        int(block.stamps[row]), at.motion(row), at.scatter(row)))
                block.colliding[row] = torques.colliding
        if self._observer.recorder is not None:
            for row in np.flatnonzero(at.full).tolist():
                newest = at.rows[at.windows.new[row]].copy()
                self._observer.recorder.add(Instant(
                    int(block.stamps[row]), newest[:n], newest[3 * n:].reshape(count, COLUMNS),
                    at.held[row].copy(), at.lost.get(row) or [''] * count))
        self._find_contacts(block, at, loud)
        if self._fusion is not None:
            block.fused = self._fusion.all_of([
                self._observation(block, at, row) for row in range(len(block))])
        return block

    def _find_contacts(self, block: Block, at: _Instants, loud: Flags) -> None:
        """Find contacts one by one, where a force is loud or a sensor saturated."""
        chains, test = self._chains, self._chains.test
        count, time, new = len(self._sensors), at.time, at.windows.new
        saturated = np.zeros(len(block), bool)
        for index, sensor in enumerate(self._sensors):
            saturated |= at.missing[new, index] & sensor.saturated(at.before[new, index])
        moving = np.flatnonzero(at.full)
        kept = deque(moving[np.diff(block.stamps[moving] // EVERY, prepend=-1) > 0].tolist())

        def keep(until: int) -> None:
            while kept and kept[0] < until:
                row = kept.popleft()
                test.note(int(block.stamps[row]), (*at.motion(row), at.scatter(row)),
                          block.wrench[row], block.reasons_at(row), block.contacts.get(row, {}))

        for row in _until_over(saturated | np.any(block.valid & loud, axis=1), lambda: any(
                judge.in_contact for judge in self._observer.judges)):
            keep(row)
            if not at.full[row]:
                chains.end_contacts()
                continue
            motion = at.motion(row)
            inside = slice(at.windows.first[row], new[row] + 1)
            try:
                # Puts the arm into the posture of the instant.
                self._arm.held(*motion)
                item = self._observation(block, at, row)
                if saturated[row]:
                    chains.bound(item, motion, [
                        sensor.around(int(at.before[new[row], index]))
                        for index, sensor in enumerate(self._sensors)])
                chains.find_contacts(item, motion, partial(
                    chains.consistency, at.windows.mean[row, inside.start - inside.stop:],
                    time[inside], at.rows[inside], at.means[row], at.seen[row],
                    exact=not item.scatter.size))
            except (ArithmeticError, ValueError) as error:
                chains.end_contacts()
                block.valid[row] = at.full[row] = False
                block.reasons[row] = [failure(error)] * count
                block.external[row] = np.nan
                continue
            if item.contacts:
                block.contacts[row] = item.contacts
        keep(len(block))

    def _observation(self, block: Block, at: _Instants, row: int) -> Observation:
        """Return one instant of a block as an observation."""
        count = len(self._sensors)
        item = Observation(
            int(block.stamps[row]), float(block.delay[row]), self._chains.links,
            block.wrench[row], block.reasons_at(row), block.contacts.get(row, {}),
            block.external[row] if block.known[row] else None, block.colliding[row])
        if not at.full[row]:
            item.problem = item.reasons[0] if count else FILLING
            return item
        item.motion, item.distal = at.motion(row), at.distal[row]
        item.held, item.needed = at.held[row], at.torque[row]
        item.missing, item.scatter = at.lost.get(row), at.scatter(row)
        item.torque_rate = at.torque_rate(row)
        return item

    def _judge_validity(self, block: Block, at: _Instants) -> None:
        """Set which sub-chains are valid, and why others and their sensors are not."""
        full, missing, new = at.full, at.missing, at.windows.new
        block.valid[:] = full[:, None]
        if not missing.any() and full.all():
            return
        count = len(self._sensors)
        lacking = at.windows.hold(missing)
        last = np.maximum.accumulate(
            np.where(missing, np.arange(len(missing))[:, None], -1), axis=0)
        filling = f'{FILLING} of {self._chains.samples.window.length / SECOND:g} s.'
        failed = failure(ArithmeticError(IMPLAUSIBLE))
        said: dict[tuple[int, int], str] = {}
        for row in np.flatnonzero(~full | lacking.any(axis=1)).tolist():
            if not full[row]:
                block.reasons[row] = [failed if at.wild[row] else filling] * count
                continue
            why = at.lost[row] = [''] * count
            for sensor in np.flatnonzero(lacking[row]).tolist():
                place = int(last[new[row], sensor])
                if (sensor, place) not in said:
                    said[sensor, place] = self._sensors[sensor].reason(
                        int(at.before[place, sensor]), int(at.time[place]))
                why[sensor] = said[sensor, place]
            reasons = block.reasons[row] = self._arm.reasons(why)
            block.valid[row] = [not reason for reason in reasons]


def _until_over(begins: Flags, lasts: Callable[[], bool]) -> Iterator[int]:
    """Yield the rows at which something may begin, and those after them while it lasts."""
    candidates, row = np.flatnonzero(begins), 0
    while row < len(begins):
        if not lasts():
            ahead = np.searchsorted(candidates, row)
            if ahead == len(candidates):
                return
            row = int(candidates[ahead])
        yield row
        row += 1


class _Windows:
    """Successive windows with weights equal to ``Window.weights``; zero before a window begins.

    Attributes:
        new: Newest row of each window, shape (m,).
        first: Its first row, shape (m,).
        full: Whether each window is full and has no gaps, shape (m,).
        before: Number of rows by which the longest window exceeds those before the first newest.
        mean: Weights of means, shape (m, longest).
        slope: Weights of slopes times ``rate``, shape (m, longest).
        rate: Factors of the slopes, shape (m,) [1/s].
        intervals: Weights of means over the intervals that end in each row, shape (m, longest).
        delay: Delays of the windows, shape (m,) [s].

    """

    def __init__(self, time: Stamps, begin: int, window: Window) -> None:
        """Compute the weights.

        Args:
            time: Increasing stamps, shape (rows,) [ns].
            begin: Newest row of the first window.
            window: A window with the length and number of rows that are wanted.

        """
        new = self.new = np.arange(begin, len(time))
        first = self.first = np.maximum(np.minimum(
            np.searchsorted(time, time[new] - window.slack), new - window.fewest + 1), 0)
        size, span = new - first + 1, time[new] - time[first]
        self.full = ((size >= window.fewest) & (window.shortest <= span)
                     & (span <= window.longest))
        steps = np.diff(time)
        leaps = np.zeros(len(time), bool)
        leaps[2:] = np.abs(np.diff(steps)) > UNEVEN * np.minimum(steps[1:], steps[:-1])
        last_leap = np.maximum.accumulate(np.where(leaps, np.arange(len(time)), -1))
        even = last_leap[new] <= first + 1
        longest = int(size[self.full].max(initial=1))
        self.before = max(0, longest - 1 - begin)
        self.rate, self.delay = np.ones(len(new)), 0.5 * span / SECOND
        weights = np.zeros((3, len(new), longest))
        self.mean, self.slope, self.intervals = weights
        for count in np.unique(size[self.full]).tolist():
            chosen = self.full & (size == count)
            found, rows = even_weights(count), chosen & even
            weights[:2, rows, -count:] = found.both[:, None]
            self.intervals[rows, -count:] = found.intervals
            self.rate[rows] = (count - 1) / (span[rows] / SECOND)
            uneven = np.flatnonzero(chosen & ~even)
            elapsed = time[new[uneven][:, None] + np.arange(1 - count, 1)] - time[
                new[uneven], None]
            self.full[uneven] = np.diff(elapsed, axis=1).max(axis=1) <= GAP * np.maximum(
                window.length, -elapsed[:, 0])
            found = matched_weights(elapsed / SECOND)
            weights[:2, uneven, -count:] = found.both.transpose(1, 0, 2)
            self.intervals[uneven, -count:] = found.intervals
            self.delay[uneven] = found.delay

    def hold(self, flags: Flags) -> Flags:
        """Return whether a flag of the rows is set within each window, shape (m, ...)."""
        if not flags.any():
            return np.zeros((len(self.new), *flags.shape[1:]), bool)
        counts = np.cumsum(flags, axis=0)
        return np.asarray(counts[self.new] - counts[self.first] + flags[self.first] > 0)

    def sums(self, weights: Array, rows: Array) -> Array:
        """Return weighted sums over the windows, shape (m, columns).

        Args:
            weights: Weights, shape (m, longest).
            rows: Rows after ``before`` rows of zeros, shape (before + rows, columns).

        """
        longest = weights.shape[1]
        begin = self.before + int(self.new[0]) - longest + 1
        views = sliding_window_view(rows, longest, axis=0)[begin:begin + len(weights)]
        return np.asarray(np.matmul(views, weights[:, :, None])[:, :, 0])


class SensorDelays:
    """Estimator of the delays of all F/T sensors, from readings during motions of the arm.

    Readings are fitted with all dynamic parameters of links and load and a bias, free for each
    component, so that neither errors of the model nor gains look like delays.

    """

    def __init__(self, arm: SensedArm, window: float) -> None:
        """Start empty.

        Args:
            arm: The arm cut at the sensors.
            window: Length of the averaging window [s].

        """
        self._arm = arm
        self._apart = max(_APART, 1.25 * window)
        # Stamps, motion, readings, and which instants are used.
        self._kept: list[tuple[Stamps, Array, Array, Flags]] = []
        self._told, self._newest = 0, -1

    def add(self, stamps: Stamps, motion: Motion, reading: Array, free: Flags) -> None:
        """Add successive instants, up to as many as suffice.

        Args:
            stamps: Their stamps, shape (m,) [ns].
            motion: Angles, velocities and accelerations of the joints, shape (m, n) each.
            reading: Readings, shape (m, k, 6) [N, N·m].
            free: Whether the arm has no contact and all readings are valid, shape (m,).

        """
        if len(stamps) < 2 or self._told > _MOST:
            return
        step = (stamps[-1] - stamps[0]) / SECOND / (len(stamps) - 1)
        rows = np.arange(0, len(stamps), max(1, round(self._apart / step)))
        if len(rows) < 2:
            return
        # After a clock has jumped back, from where it was before.
        before = np.maximum.accumulate(np.append(self._newest, stamps[rows]))
        self._newest = before[-1]
        good = free[rows] & (np.abs(motion[1][rows]).max(axis=1) > _MOVING) & (
            stamps[rows] > before[:-1])
        close = good[1:] & good[:-1] & (np.diff(stamps[rows]) < _GAP * self._apart * SECOND)
        # Both neighbours are good, too.
        used, at = np.pad(close[1:] & close[:-1], 1), rows[good]
        self._told += int(used.sum())
        self._kept.append((
            stamps[at], np.stack([part[at] for part in motion], axis=1), reading[at], used[good]))

    def estimates(self) -> list[tuple[float, float]]:
        """Return delay and standard deviation of each sensor [s], infinite if unobservable."""
        if self._told < _FEWEST:
            return [(0.0, np.inf)] * len(self._arm.mounts)
        stamps, motion, reading, used = map(np.concatenate, zip(*self._kept, strict=True))
        time = (stamps - stamps[0]) / SECOND
        shapes = np.array([self._arm.regressors(*row)[0] for row in motion])
        return [self._estimate(time, reading[:, sensor], shapes[:, sensor], used)
                for sensor in range(len(self._arm.mounts))]

    def _estimate(
        self, time: Array, reading: Array, shapes: Array, used: Flags
    ) -> tuple[float, float]:
        """Return the delay of a sensor and its standard deviation [s].

        Args:
            time: Times, shape (m,) [s].
            reading: Its readings, shape (m, 6) [N, N·m].
            shapes: Their columns of the dynamic parameters, shape (m, 6, p).
            used: Which ones are used, shape (m,).

        """
        course, bias = CubicSpline(time, reading), np.ones((len(time), 1))
        # Those of the links beyond the sensor.
        shapes = shapes[:, :, shapes.any(axis=(0, 1))]
        delay = find_delay(
            lambda value: np.asarray(course(time + value)),
            [np.hstack((bias, shapes[:, axis])) for axis in range(6)],
            np.zeros_like(reading), self._apart, np.tile(used[:, None], 6))
        return delay.value, delay.std

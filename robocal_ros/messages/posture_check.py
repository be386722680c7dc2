# SPDX-License-Identifier: Apache-2.0
"""Plausibility of joint states by the URDF's limits, and unwrapping of continuous joints.

Those of positions depend on the previous message, so messages are checked in order, with equal
results one by one and in blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robocal_ros.arrays import Array
from robocal_ros.messages.stamps import LEAP, SECOND, Stamps

if TYPE_CHECKING:
    from robocal_ros.robot import Robot

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
    """Check of the positions of one arm, message by message.

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


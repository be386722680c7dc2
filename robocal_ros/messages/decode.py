# SPDX-License-Identifier: Apache-2.0
"""Contents of joint-state and F/T messages into rows of numbers, with a sentence for misfits.

One rule for single messages over the network and for blocks of them out of a bag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array

_QUANTITIES = ('Position', 'Velocity', 'Effort')

NO_POSITION = ('joint_states holds no position for every joint, or one that is not a finite '
               'number; check the hardware interface.')
"""What is wrong with joint states that do not tell where the arm is."""


def missing_joint(wanted: Sequence[str], names: Sequence[str]) -> str:
    """Return what is wrong with joint states of some names, empty if they hold all wanted."""
    missing = [name for name in wanted if name not in names]
    if not missing:
        return ''
    return (f"Joint '{missing[0]}' is missing from joint_states, which holds "
            f'{", ".join(names) or "no names"}. Check joint_state_broadcaster.')


@dataclass(frozen=True)
class Rows:
    """What became of k messages.

    Attributes:
        values: One row per message; only the usable ones mean anything.
        usable: Which of them are usable, shape (k,).
        complaint: What is wrong with the last one that is not, empty if nothing is.
        incomplete: How many lack something.
        not_finite: How many hold NaN or an infinite value.

    """

    values: Array
    usable: npt.NDArray[np.bool_]
    complaint: str = ''
    incomplete: int = 0
    not_finite: int = 0


def _cure(quantity: int) -> str:
    name = _QUANTITIES[quantity].lower()
    return (f'If the hardware measures it, add <state_interface name="{name}"/> to each joint of '
            "the URDF's <ros2_control> block.")


def _useless(values: Array, complaint: str) -> Rows:
    return Rows(values, np.zeros(len(values), dtype=bool), complaint, incomplete=len(values))


class JointRows:
    """Turns joint states into rows of position, velocity and torque in the arm's order.

    Attributes:
        names: Names of the n joints wanted.
        factor: From the driver's effort to torque, joint by joint, shape (n,).
        need_effort: Whether a message without effort is unusable.

    """

    def __init__(self, names: Sequence[str], factor: Array, *, need_effort: bool = False) -> None:
        """Take the attributes."""
        self.names = tuple(names)
        self.factor = factor
        self.need_effort = need_effort
        self._order: tuple[tuple[str, ...], list[int]] | None = None

    def read(self, names: Sequence[str], position: Array, velocity: Array, effort: Array) -> Rows:
        """Read messages that name the same joints.

        A velocity that is absent or not finite is zero: it is differentiated from positions
        where it matters.

        Args:
            names: The messages' joint names.
            position: Shape (k, p), as many columns as the messages have positions [rad].
            velocity: Shape (k, v) [rad/s].
            effort: Shape (k, e), in the driver's unit.

        Returns:
            Rows of shape (k, 3 n). Positions are in place even where effort is missing.

        """
        count, n = len(position), len(self.names)
        values = np.zeros((count, 3 * n))
        columns = self._columns(tuple(names))
        if isinstance(columns, str):
            values[:, :n] = np.nan
            return _useless(values, columns)
        if position.shape[1] != len(names):
            values[:, :n] = np.nan
            return _useless(values, f'joint_states holds {position.shape[1]} positions for '
                            f'{len(names)} joints.')
        values[:, :n] = position[:, columns]
        if velocity.shape[1] == len(names):
            given = velocity[:, columns]
            given[~np.isfinite(given)] = 0.0
            values[:, n:2 * n] = given
        if self.need_effort:
            if effort.shape[1] != len(names):
                return _useless(values, (
                    f'joint_states holds {effort.shape[1]} efforts for {len(names)} joints; '
                    f'the method needs the drive torque of every joint. {_cure(2)}'))
            values[:, 2 * n:] = effort[:, columns] * self.factor
        finite = np.isfinite(values)
        usable: npt.NDArray[np.bool_] = np.all(finite, axis=1)
        if usable.all():
            return Rows(values, usable)
        last = finite[np.flatnonzero(~usable)[-1]]
        column = int(np.argmin(last))
        return Rows(values, usable, (
            f"{_QUANTITIES[column // n]} of joint '{self.names[column % n]}' is not a finite "
            'number in joint_states; joint_state_broadcaster sends NaN for what the hardware '
            f'interface does not export. {_cure(column // n)}'),
            not_finite=int((~usable).sum()))

    def _columns(self, names: tuple[str, ...]) -> list[int] | str:
        """Return the wanted joints' columns, or what is wrong."""
        if self._order is None or self._order[0] != names:
            complaint = missing_joint(self.names, names)
            if complaint:
                return complaint
            self._order = (names, [names.index(name) for name in self.names])
        return self._order[1]


class WrenchRows:
    """Turns readings of one F/T sensor into rows of force and torque."""

    def __init__(self, frame: str, sign: float) -> None:
        """Take what the sensor should say.

        Args:
            frame: The frame that its messages must name.
            sign: +1, or -1 for a sensor that reports what it exerts on the distal side.

        """
        self._frame = frame
        self._sign = sign

    def read(self, frame: str, wrench: Array, told: Callable[[str], str]) -> Rows:
        """Read messages that name the same frame.

        Args:
            frame: The frame that they name.
            wrench: Force, then torque, shape (k, 6) [N, N·m].
            told: Turns what is wrong into a sentence that names the topic.

        """
        values = self._sign * wrench
        if frame != self._frame:
            return _useless(values, told(
                f"names frame '{frame}', but sensor_frame is '{self._frame}'; correct "
                'sensor_frame or the driver'))
        usable: npt.NDArray[np.bool_] = np.all(np.isfinite(values), axis=1)
        if usable.all():
            return Rows(values, usable)
        return Rows(values, usable,
                    told('sends values that are not finite numbers; check the sensor'),
                    not_finite=int((~usable).sum()))

# SPDX-License-Identifier: Apache-2.0
"""Faults that the simulated arm shows on request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from robocal_ros.errors import ConfigurationError

WITHOUT_ARGUMENT = (
    'stamps_disordered',
    'joint_states_silent',
    'ft_silent',
    'ft_nan',
    'imu_silent',
    'tracker_silent',
    'controller_abort',
    'clock_jump_back',
)
WITH_JOINT = ('effort_zero', 'effort_nan', 'effort_stuck', 'joint_missing')

CLOCK_JUMP = 1.0
"""How far the clock jumps back [s]."""


@dataclass(frozen=True)
class Faults:
    """The faults that are on.

    Attributes:
        names: Faults without argument that are on.
        joints: Joint-related faults that are on, with the indices of their joints.
        latency: Extra delay of all sensor streams [s].

    """

    names: frozenset[str] = frozenset()
    joints: tuple[tuple[str, tuple[int, ...]], ...] = ()
    latency: float = 0.0

    def __contains__(self, name: object) -> bool:
        return name in self.names or any(fault == name for fault, _ in self.joints)

    def of(self, name: str) -> tuple[int, ...]:
        """Return the indices of the joints that a fault concerns; empty if it is off."""
        return tuple(index for fault, indices in self.joints if fault == name
                     for index in indices)


def parse_faults(text: str, joints: Sequence[str]) -> Faults:
    """Read the fault parameter.

    Args:
        text: Comma-separated faults, each `name` or `name:argument`; `none` or empty for none.
            The argument is a joint (all joints if left out; needed by joint_missing), or the
            delay in seconds for latency.
        joints: The controlled joints.

    Raises:
        ConfigurationError: Unknown fault, joint or value; the text lists what exists.

    """
    names: set[str] = set()
    of_joints: list[tuple[str, tuple[int, ...]]] = []
    latency = 0.0
    for entry in (part.strip() for part in text.split(',')):
        name, _, argument = entry.partition(':')
        if name in ('', 'none'):
            continue
        if name == 'latency':
            latency = _latency(argument)
        elif name in WITH_JOINT:
            of_joints.append((name, _joints(name, argument, joints)))
        elif name in WITHOUT_ARGUMENT and not argument:
            names.add(name)
        else:
            raise ConfigurationError(
                f'Unknown fault {entry!r}; expected none, {", ".join(WITHOUT_ARGUMENT)}, '
                f'{", ".join(f"{known}[:joint]" for known in WITH_JOINT)} or '
                'latency:<seconds>, several separated by commas.'
            )
    return Faults(frozenset(names), tuple(of_joints), latency)


def _latency(argument: str) -> float:
    try:
        value = float(argument)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise ConfigurationError(
            f'The fault latency has the argument {argument!r}; expected seconds, such as '
            'latency:0.05.'
        )
    return value


def _joints(name: str, argument: str, joints: Sequence[str]) -> tuple[int, ...]:
    if not argument and name != 'joint_missing':
        return tuple(range(len(joints)))
    if argument not in joints:
        raise ConfigurationError(
            f'The fault {name} names the joint {argument!r}; the robot has {", ".join(joints)}.'
        )
    return (tuple(joints).index(argument),)

# SPDX-License-Identifier: Apache-2.0
"""Faults of the simulated arm, activated by parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from robocal_ros.errors import ConfigurationError

WITHOUT_ARGUMENT = (
    'stamps_disordered',
    'joint_states_silent',
    'imu_silent',
    'tracker_silent',
    'controller_abort',
    'controller_gone',
    'controller_silent',
    'controller_slow',
    'clock_jump_back',
    'clock_jump_forward',
    'joint_states_slow',
)
WITH_JOINT = ('effort_zero', 'effort_nan', 'effort_stuck', 'joint_missing')
WITH_SENSOR = ('ft_silent', 'ft_nan', 'ft_stuck', 'ft_saturated', 'ft_late', 'ft_flipped',
               'ft_misframed', 'ft_drift')
SWAP = 'ft_swapped'

CLOCK_JUMP = 1.0
"""Size of the clock jumps [s]."""

SLOW_PERIOD = 0.1
"""Period of joint states with joint_states_slow [s]."""

ANSWER_DELAY = 1.0
"""Delay of the controller's answers to goals with controller_slow [s]."""

SENSOR_DELAY = 0.05
"""Delay of a force/torque sensor with ft_late [s]."""

SENSOR_RANGE = 500.0
"""Reading of a force component with ft_saturated [N]."""

SENSOR_DRIFT = 0.3
"""Drift rate of a force component with ft_drift [N/s]."""


@dataclass(frozen=True)
class Faults:
    """Active faults.

    Attributes:
        names: Active faults without argument.
        joints: Active faults of joints, with the joints' indices.
        latency: Additional latency of all sensor streams [s].
        sensors: Active faults of force/torque sensors, with the sensors' indices.

    """

    names: frozenset[str] = frozenset()
    joints: tuple[tuple[str, tuple[int, ...]], ...] = ()
    latency: float = 0.0
    sensors: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __contains__(self, name: object) -> bool:
        return name in self.names or any(
            fault == name for fault, _ in (*self.joints, *self.sensors))

    def of(self, name: str) -> tuple[int, ...]:
        """Return the indices of the joints or sensors that a fault affects; empty if inactive."""
        return tuple(index for fault, indices in (*self.joints, *self.sensors)
                     if fault == name for index in indices)


def parse_faults(text: str, joints: Sequence[str], sensors: Sequence[str] = ()) -> Faults:
    """Parse the parameter fault.

    Args:
        text: Comma-separated faults, each `name` or `name:argument`; `none` or empty for none.
            The argument is a joint (default: all; required by joint_missing), the frame of a
            force/torque sensor (default: all; two separated by a slash for ft_swapped), or
            the latency [s].
        joints: Controlled joints.
        sensors: Frames of the force/torque sensors.

    Raises:
        ConfigurationError: Unknown fault, joint, sensor or value; the message lists valid ones.

    """
    names: set[str] = set()
    of_joints: list[tuple[str, tuple[int, ...]]] = []
    of_sensors: list[tuple[str, tuple[int, ...]]] = []
    latency = 0.0
    for entry in (part.strip() for part in text.split(',')):
        name, _, argument = entry.partition(':')
        if name in ('', 'none'):
            continue
        if name == 'latency':
            latency = _latency(argument)
        elif name in WITH_JOINT:
            of_joints.append((name, _joints(name, argument, joints)))
        elif name in WITH_SENSOR:
            of_sensors.append((name, _sensors(name, argument, sensors)))
        elif name == SWAP:
            of_sensors.append((name, _swapped(argument, sensors)))
        elif name in WITHOUT_ARGUMENT and not argument:
            names.add(name)
        else:
            raise ConfigurationError(
                f'Unknown fault {entry!r}; expected none, {", ".join(WITHOUT_ARGUMENT)}, '
                f'{", ".join(f"{known}[:joint]" for known in WITH_JOINT)}, '
                f'{", ".join(f"{known}[:frame]" for known in WITH_SENSOR)}, '
                f'{SWAP}:frame/frame or latency:<seconds>, several separated by commas.'
            )
    return Faults(frozenset(names), tuple(of_joints), latency, tuple(of_sensors))


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


def _sensors(name: str, argument: str, sensors: Sequence[str]) -> tuple[int, ...]:
    if not argument:
        return tuple(range(len(sensors)))
    if argument not in sensors:
        raise ConfigurationError(
            f'Unknown fault {name}:{argument}: there is no force/torque sensor {argument!r}; the '
            f'robot has {", ".join(sensors) or "none"}.'
        )
    return (tuple(sensors).index(argument),)


def _swapped(argument: str, sensors: Sequence[str]) -> tuple[int, ...]:
    first, _, second = argument.partition('/')
    if first == second or not second:
        raise ConfigurationError(
            f'The fault {SWAP} has the argument {argument!r}; expected two different sensors, '
            'such as ft_swapped:ft_a/ft_b.'
        )
    return (*_sensors(SWAP, first, sensors), *_sensors(SWAP, second, sensors))

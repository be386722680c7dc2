# SPDX-License-Identifier: Apache-2.0
"""Measurements for the examples: the package's arm with a tool, computed and with noise.

Replace what these functions return by your own arrays and bags.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pinocchio as pin
import xacro
from rosbags.typesys import Stores, get_typestore

from robocal_ros.arrays import Array
from robocal_ros.messages import BagWriter, JointSamples, WrenchSamples
from robocal_ros.resources import share_directory
from robocal_ros.robot import NewtonEuler, RigidBodyInertia, Robot

TOOL = RigidBodyInertia(2.0, np.array([0.01, -0.02, 0.09]), np.diag([6e-3, 7e-3, 4e-3]))
"""The true tool, in tool0."""

SENSOR = 'ft_wrist'
RATE, PERIOD = 125.0, 8.0
COULOMB, VISCOUS = 1.2, 0.8
"""True friction of every joint [N·m, N·m·s/rad]."""

_BIAS = np.array([4.0, -3.0, 6.0, 0.2, -0.1, 0.15])
_FORCE_NOISE, _TORQUE_NOISE, _EFFORT_NOISE = 0.2, 0.01, 0.1
_MIDDLE = np.array([0.0, 0.2, -0.6, 0.0, 0.6, 0.0])
_STORE = get_typestore(Stores.LATEST)


def robot() -> Robot:
    """Return the package's arm; yours is Robot(Path('my_arm.urdf').read_text(), ...)."""
    path = share_directory() / 'urdf' / 'robocal_arm.urdf.xacro'
    return Robot(xacro.process_file(str(path)).toxml(), tool_frame='tool0')


def true_arm() -> Robot:
    """Return the arm with links that weigh up to 5 % more than the URDF states."""
    arm = robot()
    for number, share in enumerate((1.0, 1.03, 1.05, 0.97, 1.04, 1.02), start=1):
        inertia = arm.model.inertias[number]
        arm.model.inertias[number] = pin.Inertia(
            share * inertia.mass, inertia.lever, share * inertia.inertia)
    return arm


def exciting_motion(
    repeats: int = 2, rest: float = 2.0, seed: int = 1
) -> tuple[Array, Array, Array, Array]:
    """Return time, position, velocity, acceleration of a periodic motion between two rests."""
    order = np.arange(1, 6)
    size = np.random.default_rng(seed).normal(scale=0.12, size=(6, 5))
    # The acceleration begins at zero: Σ aₖ k² = 0.
    size[:, -1] -= (size @ order**2) / order[-1]**2
    still = round(rest * RATE)
    time = (np.arange(2 * still + round(repeats * PERIOD * RATE)) - still) / RATE
    phase = np.outer(np.clip(time, 0.0, repeats * PERIOD), 2.0 * np.pi / PERIOD * order)
    speed = 2.0 * np.pi / PERIOD * order
    return (1.0 + rest + time, _MIDDLE + (1.0 - np.cos(phase)) @ size.T,
            (np.sin(phase) * speed) @ size.T, (np.cos(phase) * speed**2) @ size.T)


def joint_states(
    time: Array, q: Array, v: Array, a: Array, *, arm: Robot | None = None,
    tool: RigidBodyInertia | None = None, seed: int = 1,
) -> JointSamples:
    """Return joint states of a motion with noise in the efforts."""
    arm = arm or true_arm()
    body = None if tool is None else tool.to_pinocchio().toDynamicParameters()
    effort = NewtonEuler(arm, 'tool0').torque(q, v, a, body)
    effort += COULOMB * np.sign(v) + VISCOUS * v
    effort += _EFFORT_NOISE * np.random.default_rng(seed).normal(size=effort.shape)
    return JointSamples(arm.joint_names, time, q, v, effort)


def readings(
    time: Array, q: Array, v: Array, a: Array, *, tool: RigidBodyInertia = TOOL, seed: int = 1
) -> WrenchSamples:
    """Return readings of the wrist sensor in a motion, with bias and noise."""
    arm, zero = robot(), np.zeros(6)
    tool_to_sensor = arm.transform_frame_to_root(zero, SENSOR).actInv(
        arm.transform_frame_to_root(zero, 'tool0'))
    body = arm.distal_inertia(SENSOR).to_pinocchio() + tool_to_sensor.act(tool.to_pinocchio())
    wrench = NewtonEuler(arm, SENSOR).wrench(q, v, a, body.toDynamicParameters())
    noise = np.random.default_rng(seed).normal(size=(len(time), 6))
    noise *= [_FORCE_NOISE] * 3 + [_TORQUE_NOISE] * 3
    # The wrench that the body exerts on the sensor is opposite to the one that carries it.
    return WrenchSamples(
        SENSOR, time, _BIAS - wrench + noise)


def postures(count: int = 12, seed: int = 1) -> Array:
    """Return postures that turn the wrist in all directions, shape (count, 6) [rad]."""
    return _MIDDLE + np.random.default_rng(seed).uniform(
        [-1.0, -0.4, -0.4, -2.0, -1.8, -2.0], [1.0, 0.4, 0.4, 2.0, 1.8, 2.0], (count, 6))


def constant_speed_runs(
    joint: int, speeds: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
) -> tuple[Array, Array, Array, Array]:
    """Return time, position, velocity, acceleration of runs of one joint in both directions."""
    pieces: list[Array] = []
    for signed in (sign * speed for speed in speeds for sign in (1.0, -1.0)):
        ramp = np.linspace(0.0, 1.0, 30, endpoint=False)
        cruise = np.ones(round(min(0.6 / abs(signed), 6.0) * RATE))
        pieces += [np.zeros(50), signed * np.concatenate((ramp, cruise, 1.0 - ramp))]
    velocity = np.concatenate((*pieces, np.zeros(50)))
    v = np.zeros((len(velocity), 6))
    v[:, joint] = velocity
    q = _MIDDLE + np.cumsum(v, axis=0) / RATE
    return 1.0 + np.arange(len(v)) / RATE, q, v, np.gradient(v, 1.0 / RATE, axis=0)


def write_bag(path: Path, joints: JointSamples, wrench: WrenchSamples | None = None) -> None:
    """Write samples to a bag of rosbag2, as `robocal record` does."""
    messages = sorted(_messages(joints, wrench), key=lambda item: item[0])
    with BagWriter(path) as bag:
        bag.add('/robot_description', 'std_msgs/msg/String')
        bag.add('/joint_states', 'sensor_msgs/msg/JointState')
        bag.add(f'/{SENSOR}/wrench', 'geometry_msgs/msg/WrenchStamped')
        text = _STORE.types['std_msgs/msg/String'](robot().urdf)
        bag.write('/robot_description', 0, bytes(
            _STORE.serialize_cdr(text, 'std_msgs/msg/String')))
        for stamp, topic, kind, message in messages:
            bag.write(topic, stamp, bytes(_STORE.serialize_cdr(message, kind)))


def _messages(
    joints: JointSamples, wrench: WrenchSamples | None
) -> Iterator[tuple[int, str, str, object]]:
    types = _STORE.types

    def header(stamp: int, frame: str) -> object:
        time = types['builtin_interfaces/msg/Time'](*divmod(stamp, 10**9))
        return types['std_msgs/msg/Header'](time, frame)

    for seconds, *row in zip(
            joints.time, joints.position, joints.velocity, joints.effort, strict=True):
        stamp, kind = round(1e9 * float(seconds)), 'sensor_msgs/msg/JointState'
        yield stamp, '/joint_states', kind, types[kind](
            header(stamp, ''), list(joints.joint_names), *row)
    if wrench is None:
        return
    vector = types['geometry_msgs/msg/Vector3']
    for seconds, values in zip(wrench.time, wrench.wrench.tolist(), strict=True):
        stamp, kind = round(1e9 * float(seconds)), 'geometry_msgs/msg/WrenchStamped'
        yield stamp, f'/{SENSOR}/wrench', kind, types[kind](
            header(stamp, wrench.frame),
            types['geometry_msgs/msg/Wrench'](vector(*values[:3]), vector(*values[3:])))

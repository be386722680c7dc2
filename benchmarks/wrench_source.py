# SPDX-License-Identifier: Apache-2.0
"""Publisher of joint states and F/T readings of a fictitious arm at 1 kHz.

Run as a module, it publishes for a number of seconds and saves the stamps of the samples.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import rclpy
from geometry_msgs.msg import WrenchStamped
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState

from benchmarks import seven_joints

PERIOD = 1e-3
"""Time between samples [s]."""

_QUEUE = QoSProfile(depth=2000)


def publish(duration: float) -> npt.NDArray[np.int64]:
    """Publish at 1 kHz by the wall clock and return the stamps [ns].

    Args:
        duration: Duration [s].

    """
    node = rclpy.create_node('wrench_source')
    joints = node.create_publisher(JointState, 'joint_states', _QUEUE)
    sensors = [node.create_publisher(WrenchStamped, f'{frame}/wrench', _QUEUE)
               for frame in seven_joints.SENSORS]
    count = len(seven_joints.JOINTS)
    state = JointState(name=list(seven_joints.JOINTS), position=[0.0] * count,
                       velocity=[0.0] * count, effort=[0.0] * count)
    readings = [WrenchStamped() for _ in sensors]
    for reading, frame in zip(readings, seven_joints.SENSORS, strict=True):
        reading.header.frame_id = frame
    while not all(p.get_subscription_count() for p in (joints, *sensors)):
        time.sleep(0.05)
    noise = np.random.default_rng(1).normal(size=(4096, count + 6 * len(sensors)))
    phases = np.arange(count)
    begin = time.monotonic() + 0.5
    stamps = np.zeros(round(duration / PERIOD), dtype=np.int64)
    for number in range(len(stamps)):
        wait = begin + number * PERIOD - time.monotonic()
        if wait > 0.0:
            time.sleep(wait)
        angle = 0.6 * number * PERIOD + phases
        chance = noise[number % len(noise)]
        now = stamps[number] = time.time_ns()
        for header in (state.header, *(reading.header for reading in readings)):
            header.stamp.sec, header.stamp.nanosec = divmod(int(now), 1_000_000_000)
        for place, (reading, publisher) in enumerate(zip(readings, sensors, strict=True)):
            values = (0.3 * chance[count + 6 * place:count + 6 * place + 6]).tolist()
            force, torque = reading.wrench.force, reading.wrench.torque
            force.x, force.y, force.z, torque.x, torque.y, torque.z = values
            publisher.publish(reading)
        state.position = np.sin(angle).tolist()
        state.velocity = (0.6 * np.cos(angle) + 1e-3 * chance[:count]).tolist()
        joints.publish(state)
    time.sleep(0.5)
    node.destroy_node()
    return stamps


def main() -> None:
    """Parse the command line, publish, and save the stamps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('duration', type=float, help='duration [s]')
    parser.add_argument('stamps', type=Path, help='file for the stamps')
    options = parser.parse_args()
    rclpy.init()
    try:
        np.save(options.stamps, publish(options.duration))
    finally:
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()

# SPDX-License-Identifier: Apache-2.0
"""Speed of `robocal estimate wrench` on a bag of four asynchronous F/T sensors at 1 kHz."""

from __future__ import annotations

import tempfile
from heapq import merge
from pathlib import Path

from benchmarks import seven_joints
from benchmarks.offline import Case, Task, measured
from benchmarks.offline_bag import (
    DESCRIPTION,
    JOINT_STATES,
    serialized_joint_states,
    serialized_wrenches,
    text_message,
)
from benchmarks.wrench_samples import SampledArm
from robocal_ros.messages import BagWriter, JointSamples, TopicQos, WrenchSamples

# Samples that are written at a time, and how long the arm rests first [s].
_PART, _REST = 20.0, 2.0
_TASK = Task('wrench', '', 'wrench', ('-p', 'require_tare:=false'))


def write_bag(path: Path, duration: float) -> None:
    """Write a bag of an arm with seven joints and four sensors in motion.

    Args:
        path: Folder of the bag; must not exist.
        duration: Duration [s].

    """
    arm = SampledArm(seven_joints.urdf(), seven_joints.SENSORS, seed=1)
    with BagWriter(path, 'mcap') as bag:
        bag.add(DESCRIPTION, 'std_msgs/msg/String', TopicQos(latched=True, depth=1))
        bag.write(DESCRIPTION, 0, text_message(arm.urdf))
        bag.add(JOINT_STATES, 'sensor_msgs/msg/JointState')
        topics = [f'/{frame}/wrench' for frame in seven_joints.SENSORS]
        for topic in topics:
            bag.add(topic, 'geometry_msgs/msg/WrenchStamped')
        while arm.now < duration:
            resting = arm.now == 0.0
            joints, sensors = arm.samples(_REST if resting else _PART, moving=not resting)
            n = len(seven_joints.JOINTS)
            states = JointSamples(
                seven_joints.JOINTS, joints.stamps / 1e9, joints.values[:, :n],
                joints.values[:, n:2 * n], joints.values[:, 2 * n:])
            streams = [[(stamp, JOINT_STATES, raw)
                        for stamp, raw in serialized_joint_states(states)]]
            for frame, topic, stream in zip(seven_joints.SENSORS, topics, sensors, strict=True):
                streams.append([(stamp, topic, raw) for stamp, raw in serialized_wrenches(
                    WrenchSamples(frame, stream.stamps / 1e9, stream.values))])
            for stamp, topic, raw in merge(*streams):
                bag.write(topic, stamp, raw)


def measure(duration: float, output: Path) -> Case:
    """Measure the command on a bag of some length [s], in a temporary folder below ``output``."""
    with tempfile.TemporaryDirectory(dir=output) as folder:
        bag = Path(folder) / 'bag'
        write_bag(bag, duration)
        return measured(_TASK, 'mcap', duration, bag)

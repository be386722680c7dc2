# SPDX-License-Identifier: Apache-2.0
"""Checks of F/T sensors against the weights distal to them for `robocal doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from geometry_msgs.msg import WrenchStamped
from sensor_msgs.msg import JointState

from robocal_ros.arrays import Array
from robocal_ros.cli.doctor_findings import Finding, bad, doubtful, good
from robocal_ros.errors import RobocalError
from robocal_ros.messages import conversions
from robocal_ros.robot import Robot
from robocal_ros.wrench import (
    Instant,
    SensedArm,
    SensorMount,
    TareRecord,
    Taring,
    WrenchParameters,
)

_WHAT = 'F/T sensors against weights'
# First and last part of what was received, as a share, in which the arm must rest, and the number
# of readings of it.
_PART, _READINGS = 0.15, 40
# Change of an expected force that shows a frame [N], and the largest share by which that of the
# readings may differ from it: 0.5 is 30° or half of the weight.
_CLEAR, _MAX_SHARE = 4.0, 0.5


def weight_findings(
    robot: Robot, states: Sequence[JointState], wrenches: Mapping[str, Sequence[WrenchStamped]]
) -> Iterator[Finding]:
    """Yield findings on signs, frames and order of F/T sensors, by the weights of the URDF.

    The first and the last part of the messages are compared with the weights as a tare would. If
    the arm has another posture in the last part, biases do not matter.

    Args:
        robot: The arm.
        states: Joint states of the arm.
        wrenches: Readings by topic.

    """
    links = {str(frame.name) for frame in robot.model.frames}
    frames = {topic: frame for topic, readings in sorted(wrenches.items()) if readings and (
        frame := Counter(item.header.frame_id for item in readings).most_common(1)[0][0]) in links}
    names = list(states[0].name) if states else []
    if not frames or not set(robot.joint_names) <= set(names):
        return
    order = [names.index(name) for name in robot.joint_names]
    posture = np.array([item.position for item in states if len(item.position) == len(names)])
    try:
        arm = SensedArm(robot, [SensorMount(frame) for frame in frames.values()])
        taring, seen = Taring(arm), []
        for last in (False, True):
            readings = np.stack([_part(np.array([
                conversions.wrench_row(item) for item in wrenches[topic]]), last)
                for topic in frames], axis=1)
            record, still = TareRecord(), np.zeros(robot.n)
            for number, (angles, values) in enumerate(zip(
                    _part(posture[:, order], last), readings, strict=True), 1):
                record.add(Instant(number, angles, values, arm.held(angles, still, still),
                                   [''] * len(values)))
            seen.append((record, taring.find(record, WrenchParameters())[1]))
    except RobocalError as error:
        text = str(error).replace('The tare was refused', 'A tare would be refused')
        wrong = 'swapped' in text or 'opposite' in text
        yield (bad if wrong else doubtful)(_WHAT, text, (
            'Correct it before the first procedure; topics in the order '
            + ', '.join(f'{topic} ({frame})' for topic, frame in frames.items()) + '.')
            if wrong else 'Let the arm rest without contact, and check again.')
        return
    yield from _frame_findings(arm, list(frames), [item[0] for item in seen])
    remarks = ' '.join(seen[-1][1])
    if remarks:
        yield doubtful(_WHAT, remarks.replace('tare once more in another posture', (
            'move the arm to another posture while robocal doctor --duration 30 receives')))
    else:
        yield good(_WHAT, 'Readings are those of the weights of the URDF, with plausible biases.')


def _part(rows: Array, last: bool) -> Array:
    """Return evenly spread rows of the first or last part."""
    count = max(2, int(_PART * len(rows)))
    part = rows[-count:] if last else rows[:count]
    return np.asarray(part[np.linspace(0, len(part) - 1, _READINGS).astype(int)])


def _frame_findings(
    arm: SensedArm, topics: Sequence[str], records: Sequence[TareRecord]
) -> Iterator[Finding]:
    """Yield sensors whose force changes in another direction than the weight between postures."""
    rests = [record.stacked() for record in records]
    change = rests[1].readings.mean(axis=0) - rests[0].readings.mean(axis=0)
    held = [arm.in_measurement(-rest.held.mean(axis=0)) for rest in rests]
    expected = held[1] - held[0]
    for topic, mount, seen, weight in zip(
            topics, arm.mounts, change[:, :3], expected[:, :3], strict=True):
        size = float(np.linalg.norm(weight))
        if size > _CLEAR and np.linalg.norm(seen - weight) > _MAX_SHARE * size:
            yield bad(
                topic, f'Between two postures its force changed by {_text(seen)} N, while the '
                f"weight distal to '{mount.frame}' changes by {_text(weight)} N there.",
                'Correct the orientation of that frame in the URDF, frame_id in the driver, or '
                'the masses distal to it; identify a tool that is mounted.')


def _text(vector: Array) -> str:
    return f'({", ".join(f"{value:.1f}" for value in vector)})'

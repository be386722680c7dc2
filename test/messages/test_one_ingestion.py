# SPDX-License-Identifier: Apache-2.0
"""The same awkward messages live, replayed from a bag, and read from the bag: the same samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from geometry_msgs.msg import PointStamped, PoseStamped, WrenchStamped
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Imu, JointState, Temperature
from support.joints import plain
from support.ros_rig import Spinner, pair

from robocal_ros.messages import decode, qos
from robocal_ros.messages.bag import Bag
from robocal_ros.messages.bag_writer import BagWriter
from robocal_ros.messages.intake import (
    Intake,
    JointIntake,
    TrackerIntake,
    WrenchIntake,
    temperature_intake,
)
from robocal_ros.messages.samples import StreamCounts
from robocal_ros.messages.stream import Stream

pytestmark = pytest.mark.usefixtures('ros')

NAMES = ('a', 'b')
NAN, INF = math.nan, math.inf
HUGE = (2**31 - 1, 999_999_999)
Stamp = tuple[int, int]


def at(step: float) -> Stamp:
    """Return the stamp of a step of 10 ms, in a time as of now."""
    return divmod(round((1_700_000_000 + 0.01 * step) * 1e9), 10**9)  # type: ignore[return-value]


def stamped(message: Any, when: Stamp, frame: str = '') -> bytes:
    message.header.stamp.sec, message.header.stamp.nanosec = when
    message.header.frame_id = frame
    return bytes(serialize_message(message))


def state(
    when: Stamp, names: Sequence[str] = NAMES, q: Sequence[float] = (0.1, 0.2),
    v: Sequence[float] = (0.3, 0.4), tau: Sequence[float] = (1.0, 2.0),
) -> bytes:
    return stamped(JointState(name=list(names), position=list(q), velocity=list(v),
                              effort=list(tau)), when)


def wrench(when: Stamp, frame: str = 'ft', first: float = 1.0) -> bytes:
    message = WrenchStamped()
    force, torque = message.wrench.force, message.wrench.torque
    force.x, force.y, force.z, torque.x, torque.y, torque.z = first, 2.0, 3.0, 4.0, 5.0, 6.0
    return stamped(message, when, frame)


def imu(when: Stamp, frame: str = 'imu', first: float = 1.0) -> bytes:
    message = Imu()
    message.linear_acceleration.x, message.angular_velocity.z = first, 0.5
    return stamped(message, when, frame)


def point(when: Stamp, frame: str = 'tracker', first: float = 1.0) -> bytes:
    message = PointStamped()
    message.point.x = first
    return stamped(message, when, frame)


def pose(when: Stamp, frame: str = 'tracker', first: float = 1.0) -> bytes:
    message = PoseStamped()
    message.pose.position.x = first
    message.pose.orientation.w = 1.0 if frame else 0.0
    return stamped(message, when, frame)


def temperature(when: Stamp, frame: str = '', first: float = 20.0) -> bytes:
    return stamped(Temperature(temperature=first), when, frame)


def awkward_states() -> list[bytes]:
    """Return joint states with everything that drivers and second publishers do."""
    finger = [state(when, ('finger',), (0.0,), (), ())
              for when in (at(5), (0, 0), HUGE, at(-5000))]
    return [
        *(state(at(step), q=(0.01 * step, 0.0)) for step in range(30)),
        # Another publisher, with clocks of its own, between the messages.
        *(message for step, other in zip(range(30, 34), finger, strict=True)
          for message in (state(at(step)), other)),
        state(at(34), ('x', 'b', 'a'), (9.0, 1.0, 2.0), (9.0, 3.0, 4.0), (9.0, 5.0, 6.0)),
        state(at(35), v=()), state(at(36), v=(NAN, 0.5)), state(at(37), v=(0.5,)),
        state(at(38), tau=(NAN, 1.0)), state(at(39), tau=()), state(at(40), tau=(INF, 1.0)),
        state(at(41), q=(NAN, 0.0)), state(at(42), q=(0.0,)), state(at(43), ('a',), (0.0,)),
        state(at(44)), state(at(44)), state(at(42)), state(at(43)),  # repeated and late
        state(at(49)),  # four lost
        state((0, 0), q=(5.0, 5.0)), state((0, 0), q=(6.0, 6.0)),  # never filled in
        *(state(at(step), q=(0.01 * step, 7.0)) for step in range(60, 75)),
        state(HUGE, q=(8.0, 8.0)),
        *(state(at(step), q=(0.01 * step, 9.0)) for step in range(80, 95)),
        # The clock is set back by half a second, then by hours.
        *(state(at(step), q=(0.01 * step, 10.0)) for step in range(45, 70)),
        *(state(at(step), q=(0.01 * step, 11.0)) for step in range(-90_000, -89_970)),
        b'\0\1\0\0nothing', state(at(-89_960), ('b', 'a')),
        state(at(-89_959), tau=(NAN, NAN), v=(INF, -INF)),
    ]


def awkward_readings(made: Any, other_frame: str) -> list[bytes]:
    """Return readings of a sensor with the same troubles."""
    return [
        *(made(at(step), first=0.1 * step) for step in range(30)),
        made(at(30), other_frame), made(at(31), first=NAN), made(at(32), first=INF),
        made(at(33)), made(at(33)), made(at(31)), made(at(38)), made((0, 0)),
        *(made(at(step), first=0.1 * step) for step in range(39, 55)),
        made(HUGE), *(made(at(step), first=0.2 * step) for step in range(60, 75)),
        *(made(at(step), first=0.3 * step) for step in range(-900, -880)),
        b'\0\1', made(at(-870)), made(at(-869), other_frame, first=NAN),
    ]


@dataclass(frozen=True)
class Case:
    """A topic of a type, its messages and what takes them in."""

    kind: Any
    messages: list[bytes]
    intake: Any

    @property
    def type_name(self) -> str:
        package, folder, *_ = self.kind.__module__.split('.')
        return f'{package}/{folder}/{self.kind.__name__}'


FACTOR = np.array([2.0, -1.0])
CASES = {
    'joint states with effort': Case(
        JointState, awkward_states(), lambda: JointIntake(plain(NAMES), FACTOR, need_effort=True)),
    'joint states without effort': Case(
        JointState, awkward_states(), lambda: JointIntake(plain(NAMES), FACTOR)),
    'wrenches': Case(
        WrenchStamped, awkward_readings(wrench, 'tool'), lambda: WrenchIntake('t', 'ft', -1.0)),
    'IMU': Case(Imu, awkward_readings(imu, 'base'), lambda: Intake(decode.imus('IMU', 'imu'))),
    'points': Case(PointStamped, awkward_readings(point, 'another'),
                   lambda: TrackerIntake('t', orientation=False)),
    'poses': Case(PoseStamped, awkward_readings(pose, ''),
                  lambda: TrackerIntake('t', orientation=True)),
    'temperatures': Case(Temperature, awkward_readings(temperature, 'x'),
                         lambda: temperature_intake('t')),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def bag(case: Case, tmp_path: Path) -> Iterator[Bag]:
    path = tmp_path / 'bag'
    with BagWriter(path) as writer:
        writer.add('/t', case.type_name)
        for number, raw in enumerate(case.messages):
            writer.write('/t', 10**6 * number, raw)
    with Bag(path) as opened:
        yield opened


def received(case: Case, messages: Sequence[bytes], at_once: int = 1) -> Intake:
    """Publish so many messages at a time, and return what a stream has made of them.

    More than one at a time are taken as by an idle node.
    """
    node, talker = pair()
    with Spinner(node, talker) as spinner:
        intake: Intake = case.intake()
        stream = Stream(node, ReentrantCallbackGroup(), case.kind, 't', intake,
                        busy=None if at_once == 1 else lambda: False)
        stream.recording = True
        stream.start()
        publisher = talker.create_publisher(case.kind, 't', qos.RELIABLE)
        spinner.until(lambda: publisher.get_subscription_count() > 0)
        for number, raw in enumerate(messages):
            publisher.publish(raw)
            if (number + 1) % at_once == 0 or number + 1 == len(messages):
                spinner.until(lambda number=number: stream.counts.received > number)
        stream.destroy()
    return intake


def contents(intake: Intake) -> tuple[np.ndarray, StreamCounts, str, int]:
    return intake.record.rows(), intake.counts, intake.problem, intake.recorded


def test_live_replayed_and_offline_are_the_same(case: Case, bag: Bag) -> None:
    live = received(case, case.messages)
    # Replaying publishes the bag's bytes, here some at a time, as to an idle node.
    replayed = received(case, [raw for _, raw in bag.raw('/t')], 37)
    offline: Intake = case.intake()
    bag.read({'/t': offline.take})
    rows, counts, problem, recorded = contents(offline)
    for other in (live, replayed):
        found = contents(other)
        assert np.array_equal(found[0], rows)
        assert asdict(found[1]) == asdict(counts)
        assert found[2:] == (problem, recorded)
    # That there is something to be the same.
    assert counts.received == len(case.messages)
    # Interruptions are of motions, not of messages.
    others = {'implausible', 'interruptions'} | (
        {'foreign'} if case.kind is not JointState else set())
    assert all(number > 0 for name, number in asdict(counts).items() if name not in others)
    assert len(rows) > 15


@pytest.mark.parametrize('size', [1, 2, 7, 64])
def test_blocks_of_any_size_are_the_same(case: Case, size: int) -> None:
    whole, parts = case.intake(), case.intake()
    whole.take(case.messages)
    for begin in range(0, len(case.messages), size):
        parts.take(case.messages[begin:begin + size])
    assert np.array_equal(parts.record.rows(), whole.record.rows())
    assert contents(parts)[1:] == contents(whole)[1:]


MAKERS = {JointState: state, WrenchStamped: wrench, Imu: imu, PointStamped: point,
          PoseStamped: pose, Temperature: temperature}


@pytest.mark.parametrize('place', [2, 3, 120, 150])
@pytest.mark.parametrize('ahead', [20, 300_000])
def test_a_corrupt_stamp_costs_its_message_alone_though_the_stream_has_gaps(
    case: Case, place: int, ahead: int
) -> None:
    # Every seventh interval is five times as long.
    steps = np.cumsum(np.where(np.arange(200) % 7 == 6, 5, 1)).tolist()
    messages = [MAKERS[case.kind](at(step)) for step in steps]
    messages.insert(place, MAKERS[case.kind](at(steps[place] + ahead)))
    live, *blocks = intakes = [case.intake() for _ in range(4)]
    for message in messages:
        live.take_one(message)
    for intake, size in zip(blocks, (1, 7, 1000), strict=True):
        for begin in range(0, len(messages), size):
            intake.take(messages[begin:begin + size])
    for intake in intakes:
        np.testing.assert_allclose(
            intake.record.rows()[:, 0] - 1_700_000_000, 0.01 * np.array(steps), atol=1e-6)
        assert intake.recorded == len(steps)
        assert (intake.counts.out_of_order, intake.counts.clock_jumps) == (1, 0)


@pytest.mark.parametrize('size', [0, 1, 7, 1000])
def test_a_first_stamp_of_zero_leaves_no_sample(case: Case, size: int) -> None:
    """Live (size 0) as from a bag; the next stamp is lost, too, since the third tells."""
    messages = [MAKERS[case.kind](at(step)) for step in range(50)]
    messages[0] = MAKERS[case.kind]((0, 0))
    intake = case.intake()
    for begin in range(0, len(messages), max(size, 1)):
        if size:
            intake.take(messages[begin:begin + size])
        else:
            intake.take_one(messages[begin])
    np.testing.assert_allclose(
        intake.record.rows()[:, 0] - 1_700_000_000, 0.01 * np.arange(2, 50), atol=1e-6)
    assert intake.recorded == 48


def test_what_becomes_of_the_joint_states() -> None:
    """The rules themselves, in numbers."""
    intake = JointIntake(plain(NAMES), FACTOR, need_effort=True)
    messages = awkward_states()
    intake.take(messages[:49])
    rows = intake.record.rows()
    counts = intake.counts
    # Four of the finger; one without joint b, one without efforts, one with too few positions.
    assert counts.foreign == 4
    assert counts.incomplete == 3
    assert counts.not_finite == 3
    assert counts.clock_jumps == 0
    assert len(rows) == counts.received - counts.foreign - counts.incomplete - counts.not_finite
    by_stamp = {round((row[0] - 1_700_000_000) / 0.01): row[1:].tolist() for row in rows}
    assert by_stamp[34] == [2.0, 1.0, 4.0, 3.0, 12.0, -5.0]
    assert by_stamp[35][2:4] == [0.0, 0.0]
    assert by_stamp[36][2:4] == [0.0, 0.5]
    assert by_stamp[37][2:4] == [0.0, 0.0]

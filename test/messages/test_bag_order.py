# SPDX-License-Identifier: Apache-2.0
"""Samples of several topics in the order of their stamps, however they were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bag_examples import IMU, JOINT_STATE, NAMES, WRENCH, joint_state, wrench

from robocal_ros.messages import bag
from robocal_ros.messages.bag import Bag, Channel, in_stamp_order
from robocal_ros.messages.bag_writer import BagWriter
from robocal_ros.messages.checks import to_seconds
from robocal_ros.messages.decode import JointDecoder, imus, wrenches
from robocal_ros.messages.intake import Intake
from robocal_ros.messages.marks import Span

KINDS = {'/joint_states': JOINT_STATE, '/f/wrench': WRENCH, '/imu': IMU}


def written(path: Path, messages: Sequence[tuple[str, bytes]]) -> Path:
    with BagWriter(path) as bag:
        for topic, kind in KINDS.items():
            bag.add(topic, kind)
        for i, (topic, raw) in enumerate(messages):
            bag.write(topic, 10**6 * i, raw)
    return path


def joint(stamp: float, **values: Any) -> tuple[str, bytes]:
    return '/joint_states', joint_state(stamp, **values)


def force(stamp: float, value: float = 1.0, frame: str = 'f') -> tuple[str, bytes]:
    return '/f/wrench', wrench(stamp, frame, (value, 0.0, 0.0, 0.0, 0.0, 0.0))


def read(path: Path, span: Span | None = None) -> list[Any]:
    """Return stamps with what was taken, and None where the clock jumped."""
    taken: list[Any] = []

    def take(stamp: int, content: Any) -> None:
        taken.append((to_seconds(stamp), content))

    with Bag(path) as bag:
        for samples in in_stamp_order(bag, {
            topic: Channel(Intake(decoder), take, span or Span()) for topic, decoder in (
                ('/joint_states', JointDecoder(NAMES, np.array([2.0, 3.0]))),
                ('/f/wrench', wrenches('The sensor', 'f', -1.0)), ('/imu', imus('The IMU', 'i')))
        }):
            if samples is None:
                taken.append(None)
                continue
            for stamp, taker, content in samples:
                taker(stamp, content)
    return taken


@pytest.fixture(params=[4096, 3], ids=['one block', 'many blocks'])
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bag, 'CHUNK', request.param)


@pytest.mark.usefixtures('_blocks')
class TestOrder:
    """Blocks may be of any size."""

    def test_what_was_recorded_late_comes_in_its_place(self, tmp_path: Path) -> None:
        stamps = 5.0 + 0.1 * np.arange(40)
        messages = [joint(stamp) for stamp in stamps]
        for number, stamp in enumerate(stamps - 0.05):
            # Half a second after the joint states of the same time.
            messages.insert(min(2 * number + 6, len(messages)), force(stamp))
        taken = read(written(tmp_path / 'bag', messages))
        found = [stamp for stamp, _ in taken]
        assert found == sorted(found)
        assert len(found) == 80

    def test_a_jump_of_the_clock_ends_what_came_before(self, tmp_path: Path) -> None:
        first = [item for stamp in (50.0, 50.1, 50.2) for item in (joint(stamp), force(stamp))]
        second = [item for stamp in (2.8, 2.9, 3.0, 3.1) for item in (joint(stamp), force(stamp))]
        taken = read(written(tmp_path / 'bag', [*first, *second]))
        stamps = [item and item[0] for item in taken]
        assert stamps[:6] == [50.0, 50.0, 50.1, 50.1, 50.2, 50.2]
        assert stamps[6:] == [None, 3.0, None, 3.0, 3.1, 3.1]

    def test_repeated_and_older_stamps_do_not_count(self, tmp_path: Path) -> None:
        taken = read(written(tmp_path / 'bag', [
            force(stamp) for stamp in (1.0, 1.1, 1.1, 1.05, 1.2)]))
        assert [stamp for stamp, _ in taken] == [1.0, 1.1, 1.2]

    def test_a_span_alone(self, tmp_path: Path) -> None:
        taken = read(written(tmp_path / 'bag', [joint(1.0 + i) for i in range(6)]), Span(2.0, 4.0))
        assert [stamp for stamp, _ in taken] == [3.0, 4.0]


class TestContents:
    """What is in the messages, and complaints where that is of no use."""

    def test_joint_states_of_others_have_no_say_in_the_order(self, tmp_path: Path) -> None:
        taken = read(written(tmp_path / 'bag', [
            joint(1.0), joint(900.0, names=('finger',), position=(0.0,)), joint(2.0)]))
        assert [stamp for stamp, _ in taken] == [1.0, 2.0]

    def test_what_is_unreadable_is_counted(self) -> None:
        channel = Channel(Intake(wrenches('The sensor', 'f', 1.0)), lambda stamp, content: None,
                          Span())
        jumps, samples = zip(*channel.read(
            [force(1.0)[1], b'\0\1\0\0nothing', force(2.0)[1]]), strict=True)
        assert [sample and sample[0] for sample in samples] == [10**9, 10**9, 2 * 10**9]
        assert samples[1]
        assert 'layout of their type' in samples[1][2]
        assert not any(jumps)
        assert channel.intake.counts.incomplete == 1

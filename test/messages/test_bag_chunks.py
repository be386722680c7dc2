# SPDX-License-Identifier: Apache-2.0
"""Chunks of MCAP files: the same messages in the same order as one by one, or a refusal."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from support.bag_examples import file_of, joint_state, recorded, without_summary, wrench

from robocal_ros.errors import FileFormatError
from robocal_ros.messages import bag
from robocal_ros.messages.bag import Bag, indexed_storages, listed
from robocal_ros.messages.bag_writer import BagWriter

KINDS = {'/joint_states': 'sensor_msgs/msg/JointState',
         '/wrench': 'geometry_msgs/msg/WrenchStamped',
         '/other': 'geometry_msgs/msg/WrenchStamped'}


def written(path: Path, times: list[int]) -> Path:
    """Write messages of three topics, at these times [ms], into chunks of a mebibyte."""
    with BagWriter(path) as bag:
        for topic, kind in KINDS.items():
            bag.add(topic, kind)
        for number, time in enumerate(times):
            bag.write('/joint_states', time * 1_000_000, joint_state(0.001 * number))
            for topic in ('/wrench', '/other'):
                bag.write(topic, time * 1_000_000, wrench(0.001 * number, 'ft', [number] * 6))
    return path


def read(path: Path) -> tuple[dict[str, list[bytes]], list[tuple[str, bytes]]]:
    """Read joint states and wrenches, by topic and all together."""
    topics = ('/joint_states', '/wrench')
    found: dict[str, list[bytes]] = {topic: [] for topic in topics}
    with Bag(path) as bag:
        bag.read({topic: lambda messages, mine=found[topic]: mine.extend(listed(messages))
                  for topic in topics})
        return found, list(recorded(bag, topics))


def one_by_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patched:
        patched.setattr(bag, 'indexed_storages', lambda reader: None)
        return read(path)


@pytest.mark.parametrize('order', ['in order', 'at one time', 'late', 'shuffled'])
def test_messages_are_the_same_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    times = list(range(8000))
    if order == 'at one time':
        times = [time // 2500 for time in times]
    elif order == 'late':
        times[2000:2400] = range(1000, 1400)
    elif order == 'shuffled':
        times = np.random.default_rng(1).permutation(times).tolist()
    path = written(tmp_path / 'bag', times)
    with Bag(path) as bag:
        (storage,) = indexed_storages(bag._readers[0]) or ()
        assert len(storage.chunks) > 2
    assert read(path) == one_by_one(path, monkeypatch)


def test_a_file_without_an_index_is_read_one_by_one(tmp_path: Path) -> None:
    path = written(tmp_path / 'bag', list(range(9)))
    before = read(path)
    bare = file_of(without_summary(path))
    with Bag(bare) as bag:
        assert indexed_storages(bag._readers[0]) is None
    assert read(bare) == before


def test_an_unknown_series_of_rosbags_reads_one_by_one_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / 'bag', list(range(9)))
    before = read(path)
    bag._is_known_series.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(bag, 'version', lambda name: '0.12.0')
        assert read(path) == before
        assert read(path) == before
    bag._is_known_series.cache_clear()
    assert [item.getMessage()[:14] for item in caplog.records] == ['rosbags 0.12.0']


@pytest.mark.parametrize(('place', 'kind', 'value', 'words'), [
    (23, '<Q', 12, 'index of a chunk.*mcap recover'),
    (23, '<Q', 1 << 40, 'index of a chunk.*mcap recover'),
    (23, '<Q', -5 % (1 << 64), 'index of a chunk.*mcap recover'),
    (9, '<H', 77, 'is not where it should be'),
])
def test_an_index_that_points_or_is_elsewhere_is_refused(
    tmp_path: Path, place: int, kind: str, value: int, words: str
) -> None:
    file = file_of(written(tmp_path / 'bag', list(range(50))))
    with Bag(file) as bag:
        (storage,) = indexed_storages(bag._readers[0]) or ()
        (at, *_) = storage.chunks[0].message_index_offsets.values()
    raw = bytearray(file.read_bytes())
    struct.pack_into(kind, raw, at + place, value)
    file.write_bytes(raw)
    with pytest.raises(FileFormatError, match=words):
        read(file)

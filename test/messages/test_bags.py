# SPDX-License-Identifier: Apache-2.0
"""Bags: every form that rosbag2 has, chunk by chunk, and a sentence for every broken one."""

from __future__ import annotations

import re
import shutil
import sqlite3
import struct
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.bag_examples import (
    JOINT_STATE,
    STORE,
    file_of,
    joint_state,
    recorded,
    without_summary,
    wrench,
    write,
)

from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.messages import bag
from robocal_ros.messages.bag import CHUNK, Bag, ahead, indexed_storages, listed
from robocal_ros.messages.bag_writer import BagWriter

COUNT = CHUNK + 7
STORAGES = ('mcap', 'sqlite3')


@pytest.fixture(scope='module')
def messages() -> list[bytes]:
    return [joint_state(1.0 + 0.001 * i) for i in range(COUNT)]


@pytest.fixture(params=STORAGES)
def good(request, tmp_path: Path, messages: list[bytes]) -> Path:
    return write(tmp_path / 'good', messages, storage=request.param)


def all_of(path: Path) -> list[bytes]:
    found: list[bytes] = []
    with Bag(path) as bag:
        bag.read({'/joint_states': lambda messages: found.extend(listed(messages))})
    return found


def test_a_folder_is_read_in_order_and_in_chunks(good: Path, messages: list[bytes]) -> None:
    sizes, told = [], []
    with Bag(good) as bag:
        assert bag.topics == {'/joint_states': JOINT_STATE}
        assert bag.counts == {'/joint_states': COUNT}
        bag.read({'/joint_states': lambda raw: sizes.append(len(raw))}, told.append)
    assert sum(sizes) == COUNT
    assert sizes[0] >= CHUNK
    assert told == sizes[:1]
    assert all_of(good) == messages


def test_a_file_alone_is_a_bag(good: Path, messages: list[bytes]) -> None:
    assert all_of(file_of(good)) == messages


def test_a_folder_without_metadata_is_a_bag(good: Path, messages: list[bytes]) -> None:
    (good / 'metadata.yaml').unlink()
    assert all_of(good) == messages


@pytest.mark.parametrize('spoil', [
    lambda text: text.replace('relative_file_paths', 'paths'),
    lambda text: text[:100],
    lambda text: re.sub(r'- (good_?\d*\.\w+)', '- renamed.db3', text),
])
def test_a_folder_with_wrong_metadata_is_a_bag(good: Path, messages: list[bytes], spoil) -> None:
    metadata = good / 'metadata.yaml'
    metadata.write_text(spoil(metadata.read_text()))
    assert all_of(good) == messages


def test_an_mcap_without_summary_is_a_bag(tmp_path: Path, messages: list[bytes]) -> None:
    path = without_summary(write(tmp_path / 'bare', messages))
    assert all_of(file_of(path)) == messages


def test_several_files_are_one_bag(tmp_path: Path, messages: list[bytes]) -> None:
    folder = tmp_path / 'split'
    folder.mkdir()
    for number, part in enumerate((messages[:100], messages[100:150])):
        shutil.move(file_of(write(tmp_path / f'part{number}', part)), folder / f'{number}.mcap')
    assert all_of(folder) == messages[:150]
    with Bag(folder) as bag:
        assert bag.counts == {'/joint_states': 150}


@pytest.mark.parametrize('storage', STORAGES)
@pytest.mark.parametrize('share', [0.0, 1e-4, 0.3, 0.7, 0.99])
def test_a_bag_that_was_cut_off_is_refused(
    tmp_path: Path, messages: list[bytes], storage: str, share: float
) -> None:
    file = file_of(write(tmp_path / 'cut', messages, storage=storage))
    raw = file.read_bytes()
    file.write_bytes(raw[:int(share * len(raw))])
    for path in (file, file.parent):
        with pytest.raises(FileFormatError) as caught:
            all_of(path)
        told = str(caught.value)
        assert file.name in told
        assert 'empty' in told or 'cut off' in told
        assert 'Recover' in told or 'anew' in told


@pytest.mark.parametrize('storage', STORAGES)
def test_noise_in_the_middle_is_refused_or_counted(
    tmp_path: Path, messages: list[bytes], storage: str
) -> None:
    file = file_of(write(tmp_path / 'noisy', messages, storage=storage))
    raw = bytearray(file.read_bytes())
    middle = len(raw) // 2
    raw[middle:middle + 20_000] = b'\xff' * 20_000
    file.write_bytes(raw)
    try:
        told, found = '', all_of(file)
    except FileFormatError as error:
        told, found = str(error), []
    assert found != messages
    assert found or 'broken' in told


def test_a_recorder_that_was_killed_left_a_journal(tmp_path: Path, messages) -> None:
    file = file_of(write(tmp_path / 'killed', messages[:9], storage='sqlite3'))
    file.with_name(f'{file.name}-wal').write_bytes(b'newest messages')
    with pytest.raises(FileFormatError, match='recorder was cut off.*sqlite3'):
        all_of(file)


@pytest.mark.parametrize(('name', 'words'), [
    ('nowhere', 'does not exist'),
    ('notes.txt', r'no bag of rosbag2; expected .* \.mcap'),
    ('old.bag', 'rosbags-convert'),
    ('folder', r'no metadata\.yaml, \.db3 or \.mcap'),
    ('text.mcap', 'broken or was cut off'),
    ('text.db3', 'broken or was cut off'),
])
def test_what_is_no_bag_is_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / 'folder').mkdir()
    for file in ('notes.txt', 'old.bag', 'text.mcap', 'text.db3'):
        (tmp_path / file).write_text('Not a bag at all.\n' * 30)
    with pytest.raises(FileFormatError, match=words):
        Bag(tmp_path / name)


def test_a_database_without_messages_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / 'other.db3') as database:
        database.execute('CREATE TABLE other (id INTEGER)')
    with pytest.raises(FileFormatError, match='missing tables'):
        Bag(tmp_path / 'other.db3')


class TestTopics:
    """Names in the bag and names that nodes know."""

    @pytest.fixture
    def bag(self, tmp_path: Path) -> Iterator[Bag]:
        with BagWriter(tmp_path / 'arms') as writer:
            for topic in ('/left/joint_states', '/right/joint_states', '/left/ft/wrench'):
                writer.add(topic, JOINT_STATE)
        with Bag(tmp_path / 'arms') as bag:
            yield bag

    def test_a_namespace_is_put_before_relative_names(self, bag: Bag) -> None:
        assert bag.find('joint_states', JOINT_STATE, '/left') == '/left/joint_states'
        assert bag.find('joint_states', JOINT_STATE, 'right/') == '/right/joint_states'
        assert bag.find('/left/joint_states', JOINT_STATE, '/right') == '/left/joint_states'

    def test_the_only_one_is_found_without_a_namespace(self, bag: Bag) -> None:
        assert bag.find('ft/wrench', JOINT_STATE) == '/left/ft/wrench'

    def test_two_are_told(self, bag: Bag) -> None:
        with pytest.raises(ConfigurationError, match='/left/joint_states, /right/joint_states'):
            bag.find('joint_states', JOINT_STATE)

    def test_none_is_told_with_what_is_there(self, bag: Bag) -> None:
        with pytest.raises(ConfigurationError, match=r"'/imu'.*/left/ft/wrench.*--remap"):
            bag.find('imu', JOINT_STATE)
        with pytest.raises(ConfigurationError, match=r'/middle/joint_states.*/left/joint_states'):
            bag.find('joint_states', JOINT_STATE, '/middle')

    def test_another_type_is_no_match(self, bag: Bag) -> None:
        with pytest.raises(ConfigurationError, match='of type geometry_msgs'):
            bag.find('ft/wrench', 'geometry_msgs/msg/WrenchStamped')


def test_single_messages_are_read(tmp_path: Path) -> None:
    text = STORE.types['std_msgs/msg/String']('hello')
    raw = bytes(STORE.serialize_cdr(text, 'std_msgs/msg/String'))
    path = write(tmp_path / 'text', [raw], topic='/said', kind='std_msgs/msg/String')
    with Bag(path) as bag:
        assert [message.data for message in bag.messages('/said')] == ['hello']
    path = write(tmp_path / 'torn', [raw[:7]], topic='/said', kind='std_msgs/msg/String')
    with Bag(path) as bag, pytest.raises(FileFormatError, match=r"'/said'.*is no std_msgs"):
        list(bag.messages('/said'))


class TestWriter:
    """What is written can be read, and what cannot be written is told."""

    def test_an_existing_folder_is_left_alone(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match='does not exist yet'):
            BagWriter(tmp_path)

    def test_it_is_whole_after_an_error(self, tmp_path: Path, messages: list[bytes]) -> None:
        def interrupted() -> None:
            with BagWriter(tmp_path / 'bag') as bag:
                bag.add('/joint_states', JOINT_STATE)
                bag.write('/joint_states', 1, messages[0])
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert all_of(tmp_path / 'bag') == messages[:1]

    def test_unknown_types_are_learnt_with_their_parts(self, tmp_path: Path) -> None:
        texts = {'my_msgs/msg/Outer': 'my_msgs/Inner[] parts\nstd_msgs/Header header\n',
                 'my_msgs/msg/Inner': 'float64 value\n'}
        with BagWriter(tmp_path / 'bag', definition=texts.get) as bag:
            bag.add('/outer', 'my_msgs/msg/Outer')
            bag.write('/outer', 1, b'\0\1\0\0')
        with Bag(tmp_path / 'bag') as bag:
            assert bag.topics == {'/outer': 'my_msgs/msg/Outer'}

    def test_types_that_nobody_knows_are_refused(self, tmp_path: Path) -> None:
        with (BagWriter(tmp_path / 'bag') as bag,
              pytest.raises(ConfigurationError, match="'my_msgs/msg/Outer' is not known")):
            bag.add('/outer', 'my_msgs/msg/Outer')


KINDS = {'/joint_states': 'sensor_msgs/msg/JointState',
         '/wrench': 'geometry_msgs/msg/WrenchStamped',
         '/other': 'geometry_msgs/msg/WrenchStamped'}


def chunked(path: Path, times: list[int]) -> Path:
    """Write messages of three topics, at these times [ms], into chunks of a mebibyte."""
    with BagWriter(path) as bag:
        for topic, kind in KINDS.items():
            bag.add(topic, kind)
        for number, time in enumerate(times):
            bag.write('/joint_states', time * 1_000_000, joint_state(0.001 * number))
            for topic in ('/wrench', '/other'):
                bag.write(topic, time * 1_000_000, wrench(0.001 * number, 'ft', [number] * 6))
    return path


def read_both(path: Path) -> tuple[dict[str, list[bytes]], list[tuple[str, bytes]]]:
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
        return read_both(path)


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
    path = chunked(tmp_path / 'bag', times)
    with Bag(path) as bag:
        (storage,) = indexed_storages(bag._readers[0]) or ()
        assert len(storage.chunks) > 2
    assert read_both(path) == one_by_one(path, monkeypatch)


def test_a_file_without_an_index_is_read_one_by_one(tmp_path: Path) -> None:
    path = chunked(tmp_path / 'bag', list(range(9)))
    before = read_both(path)
    bare = file_of(without_summary(path))
    with Bag(bare) as bag:
        assert indexed_storages(bag._readers[0]) is None
    assert read_both(bare) == before


def test_an_unknown_series_of_rosbags_reads_one_by_one_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = chunked(tmp_path / 'bag', list(range(9)))
    before = read_both(path)
    bag._is_known_series.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(bag, 'version', lambda name: '0.12.0')
        assert read_both(path) == before
        assert read_both(path) == before
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
    file = file_of(chunked(tmp_path / 'bag', list(range(50))))
    with Bag(file) as bag:
        (storage,) = indexed_storages(bag._readers[0]) or ()
        (at, *_) = storage.chunks[0].message_index_offsets.values()
    raw = bytearray(file.read_bytes())
    struct.pack_into(kind, raw, at + place, value)
    file.write_bytes(raw)
    with pytest.raises(FileFormatError, match=words):
        read_both(file)


def counted(closed: list[int], last: int = 50) -> Generator[int, None, None]:
    try:
        yield from range(1, last)
        raise ValueError('no more')
    finally:
        closed.append(threading.get_ident())


def noted(made: list[int], closed: list[int]) -> Generator[int, None, None]:
    for number in ahead(counted(closed)):
        made.append(number)
        yield number


def test_items_come_in_order_and_errors_after_them() -> None:
    seen, closed = [], list[int]()
    with pytest.raises(ValueError, match='no more'):
        list(ahead(noted(seen, closed)))
    assert seen == list(range(1, 50))
    assert closed != [threading.get_ident()]


def test_it_is_closed_with_its_reader_and_runs_four_ahead_at_most() -> None:
    closed = list[int]()
    made = list[int]()
    before = threading.active_count()
    reader = ahead(noted(made, closed))
    assert next(reader) == 1
    assert closed == []
    reader.close()
    assert len(closed) == 1
    assert len(made) <= 6
    assert threading.active_count() == before

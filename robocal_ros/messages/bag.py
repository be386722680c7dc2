# SPDX-License-Identifier: Apache-2.0
"""Bags of rosbag2: sqlite3 or MCAP, whole folders or single files, read in a stream.

Bags are read by PyPI's ``rosbags``. This module adds folders with missing or wrong metadata, names
without namespace, and error texts for broken files.

An MCAP file has an index of each chunk's messages (https://mcap.dev/spec). ``rosbags`` opens the
file, decompresses and checks the chunks; with the index, all messages of a chunk are then
extracted at once, in a tenth of the time. Files without an index are read by ``rosbags``.
"""

from __future__ import annotations

import logging
import sqlite3
import struct
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from itertools import accumulate, chain, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from rosbags.interfaces import Connection, Nodetype
from rosbags.rosbag2 import Reader, ReaderError, storage_mcap, storage_sqlite3
from rosbags.serde import SerdeError
from rosbags.typesys.store import Typestore

from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.messages.checks import SECOND, to_seconds
from robocal_ros.messages.decode import Messages, State
from robocal_ros.messages.intake import Intake
from robocal_ros.messages.marks import Mark, Span
from robocal_ros.results import grouped

CHUNK = 2**15
"""Number of messages that are passed on at once; what is read together stays together."""

JOINT_STATE = 'sensor_msgs/msg/JointState'
WRENCH = 'geometry_msgs/msg/WrenchStamped'
POINT = 'geometry_msgs/msg/PointStamped'
POSE = 'geometry_msgs/msg/PoseStamped'
TEMPERATURE = 'sensor_msgs/msg/Temperature'
STRING = 'std_msgs/msg/String'
MARKS = 'diagnostic_msgs/msg/DiagnosticArray'

_SUFFIXES = ('.db3', '.mcap')
# Groups that are read before they are used.
_DEPTH = 4
# Largest metadata that are read [bytes].
_METADATA_LIMIT = 10**6
# rosbags reads databases through apsw, older versions through sqlite3, and lets their exceptions
# and those of zstd pass. In a broken file anything may be missing or invalid.
_BROKEN: tuple[type[Exception], ...] = (
    ReaderError, getattr(storage_sqlite3, 'apsw', sqlite3).Error, sqlite3.Error, struct.error,
    getattr(getattr(storage_mcap, 'zstd', None), 'ZstdError', ReaderError),
    AssertionError, EOFError, LookupError, MemoryError, OSError, OverflowError, RuntimeError,
    TypeError, ValueError,
)
_UNREADABLE: tuple[type[Exception], ...] = (*_BROKEN, SerdeError)
_CURES = {
    '.db3': "Recover what there is with 'sqlite3 {0} .recover | sqlite3 recovered.db3', or record "
            'it anew.',
    '.mcap': "Recover what there is with 'mcap recover {0} -o recovered.mcap', or record it anew.",
}

T = TypeVar('T')
Sink = Callable[[Messages], None]


class Bag(AbstractContextManager['Bag']):
    """Bag opened for reading; a context manager.

    Attributes:
        path: Path of the bag.
        name: Name in texts and result files.
        topics: Type of each topic by name.
        counts: Number of messages of each topic by name.

    """

    def __init__(self, path: Path) -> None:
        """Open it.

        Args:
            path: A folder as rosbag2 writes it, or one of its files.

        Raises:
            FileFormatError: If it is not a bag, or broken.

        """
        self.path = path
        self.name = path.name
        self._stack = ExitStack()
        self._readers = self._opened_all()
        self.topics: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        for reader in self._readers:
            for connection in reader.connections:
                self.topics[connection.topic] = connection.msgtype
                self.counts[connection.topic] += connection.msgcount

    def __exit__(self, *_: object) -> None:
        """Close the files of the bag."""
        self._stack.close()

    def _opened_all(self) -> list[Reader]:
        """Open the folder if its metadata are valid, else its files one by one."""
        files = _files(self.path)
        for file in files:
            _refuse_leftovers(file)
        if _has_metadata(self.path):
            try:
                return [self._stack.enter_context(Reader(self.path))]
            except _BROKEN as error:
                if not files:
                    raise FileFormatError(
                        f"Bag '{self.path}' cannot be opened: {_told(error)} There is no .db3 or "
                        '.mcap file in it. Copy the whole folder.') from error
        return [self._opened(file) for file in files]

    def _opened(self, path: Path) -> Reader:
        try:
            return self._stack.enter_context(Reader(path))
        except _BROKEN as error:
            self._stack.close()
            raise _broken(path, error) from error

    @property
    def end(self) -> float:
        """Time of recording of the newest message, by the recorder's clock [s]."""
        return max((reader.end_time for reader in self._readers), default=0) / 1e9

    # ----------------------------------------------------------------------- topics

    def find(self, name: str, kind: str, namespace: str = '') -> str:
        """Return a topic's full name in the bag.

        Args:
            name: Its name, relative names within ``namespace``. Other namespaces are searched if
                it does not exist there.
            kind: Its type, such as ``sensor_msgs/msg/JointState``.
            namespace: The namespace of the nodes.

        Raises:
            ConfigurationError: If there is no such topic, or more than one namespace has it.

        """
        full = name if name.startswith('/') else f'{namespace.rstrip("/")}/{name}'
        full = f'/{full.lstrip("/")}'
        if self.topics.get(full) == kind:
            return full
        tail = f'/{name.strip("/")}'
        others = [topic for topic, other in self.topics.items()
                  if other == kind and topic.endswith(tail)]
        if not namespace and len(others) == 1:
            return others[0]
        if len(others) > 1 and full not in self.topics:
            raise ConfigurationError(
                f"Bag '{self.name}' has no '{full}', but {', '.join(others)}. Say which with "
                '--namespace or --remap.')
        there = ', '.join(f'{topic} ({kind})' for topic, kind in sorted(self.topics.items()))
        raise ConfigurationError(
            f"Bag '{self.name}' has no topic '{full}' of type {kind}; it has {there or 'none'}. "
            'Record it, or name the topic that holds it with --remap.')

    # --------------------------------------------------------------------- messages

    def read(self, sinks: Mapping[str, Sink], progress: Callable[[int], None] | None = None
             ) -> None:
        """Pass on serialized messages of some topics; arguments and errors as for ``groups``.

        Args:
            sinks: Functions by topic that receive many messages at a time.
            progress: As for ``groups``.

        """
        for group in self.groups(sinks, progress):
            for part in group:
                sinks[part.topic](part.messages)

    def groups(
        self, topics: Collection[str], progress: Callable[[int], None] | None = None
    ) -> Generator[list[Part], None, None]:
        """Yield messages of some topics, ``CHUNK`` or more at a time but for the last.

        Each topic is one part; ``in_order`` gives the order of all of them.

        Args:
            topics: Names of the topics.
            progress: Called from time to time with the number of messages read so far.

        Raises:
            FileFormatError: If the bag is broken.

        """
        held: list[Part] = []
        count = 0
        for group in chain.from_iterable(_groups(reader, topics) for reader in self._readers):
            held += group
            if (size := sum(len(part.times) for part in held)) >= CHUNK:
                yield _by_topic(held)
                held = []
                count += size
                if progress is not None:
                    progress(count)
        if held:
            yield _by_topic(held)

    def raw(self, topic: str) -> Iterator[tuple[int, bytes]]:
        """Yield times of recording [ns] and serialized messages of a topic."""
        for group in chain.from_iterable(_groups(reader, [topic]) for reader in self._readers):
            for part in group:
                yield from zip(part.times.tolist(), map(bytes, listed(part.messages)), strict=True)

    def messages(self, topic: str) -> Iterator[Any]:
        """Yield a topic's messages; for topics with few of them.

        Raises:
            FileFormatError: If a message does not match its type.

        """
        store = message_types()
        kind = self.topics[topic]
        for _, data in self.raw(topic):
            try:
                yield store.deserialize_cdr(data, kind)
            except _UNREADABLE as error:
                raise FileFormatError(
                    f"A message on '{topic}' of bag '{self.name}' is no {kind} ({error}). The "
                    'bag is broken, or its messages are of another version.') from error


@cache
def message_types() -> Typestore:
    """Return the definitions of messages; loading them takes a tenth of a second."""
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.LATEST)


def serialized(kind: str, **fields: Any) -> bytes:
    """Return a serialized message; fields that are not given are empty or zero."""
    return bytes(message_types().serialize_cdr(_filled(kind, fields), kind))


def _filled(kind: str, fields: Mapping[str, Any]) -> Any:
    values: dict[str, Any] = {}
    declared: Any = message_types().fielddefs[kind][1]
    for name, (node, detail) in declared:
        given = fields.get(name)
        if node == Nodetype.NAME:
            values[name] = _filled(detail, given or {})
        elif isinstance(given, list) and given and isinstance(given[0], dict):
            ((_, kind_within), _) = detail
            values[name] = [_filled(kind_within, item) for item in given]
        elif given is not None:
            values[name] = given
        elif node == Nodetype.BASE:
            values[name] = '' if detail[0] == 'string' else 0
        else:
            values[name] = np.zeros(0)
    return message_types().types[kind](**values)


def listed(messages: Messages) -> Sequence[bytes]:
    """Return messages one by one."""
    return messages.tolist() if isinstance(messages, np.ndarray) else messages


def _groups(reader: Reader, topics: Collection[str]) -> Iterator[list[Part]]:
    """Yield messages of some topics, a chunk or so at a time."""
    chosen = [item for item in reader.connections if item.topic in topics]
    storages = indexed_storages(reader)
    try:
        if storages is not None:
            yield from parts(storages, chosen)
        elif chosen:  # for none, rosbags would read all
            yield from _one_by_one(reader.messages(chosen))
    except _BROKEN as error:
        raise _broken(Path(str(reader.path)), error) from error


def _one_by_one(messages: Iterator[tuple[Connection, int, bytes]]) -> Iterator[list[Part]]:
    """Yield messages of files without an index, in the order in which rosbags yields them."""
    while block := list(islice(messages, CHUNK)):
        yield _by_topic([Part(connection.topic, np.array([time]), np.array([place]), [data])
                         for place, (connection, time, data) in enumerate(block)])


def _files(path: Path) -> list[Path]:
    """Return the files of a bag's messages; empty for a folder with metadata only."""
    if not path.exists():
        raise FileFormatError(
            f"Bag '{path}' does not exist. Name a folder that 'ros2 bag record' or 'robocal "
            "record' wrote, or a .db3 or .mcap file.")
    if path.is_file():
        if path.suffix not in _SUFFIXES:
            raise FileFormatError(
                f"'{path}' is no bag of rosbag2; expected a folder, or a .db3 or .mcap file. "
                "Bags of ROS 1 are turned into such by 'rosbags-convert'.")
        return [path]
    files = sorted(item for item in path.iterdir()
                   if item.suffix in _SUFFIXES) if path.is_dir() else [path]
    for file in files:
        # A named pipe would be waited for.
        if not file.is_file():
            raise FileFormatError(f"'{file}' is no regular file. Copy the bag, and name the copy.")
    if not files and not _has_metadata(path):
        raise FileFormatError(
            f"'{path}' is no bag: there is no metadata.yaml, .db3 or .mcap file in it. Name the "
            "folder that 'ros2 bag record' or 'robocal record' wrote.")
    return files


def _has_metadata(folder: Path) -> bool:
    """Return whether a folder has metadata that can be read at once; files work without, too."""
    path = folder / 'metadata.yaml'
    return path.is_file() and path.stat().st_size <= _METADATA_LIMIT


def _refuse_leftovers(path: Path) -> None:
    """Refuse a database whose newest messages are in a file beside it."""
    for journal in (path.with_name(f'{path.name}-wal'), path.with_name(f'{path.name}-journal')):
        if journal.exists() and (journal.stat().st_size or not journal.is_file()):
            raise FileFormatError(
                f"'{journal.name}' lies beside bag '{path}': the recorder was cut off, and the "
                f"newest messages are in there. Put them in place with 'sqlite3 {path} "
                '".schema"\', then try again.')


def _broken(path: Path, error: Exception) -> FileFormatError:
    if path.is_file() and not path.stat().st_size:
        return FileFormatError(f"'{path}' is empty: nothing was recorded. Record it anew.")
    cure = _CURES.get(path.suffix, 'Record it anew.').format(path.name)
    return FileFormatError(f"Bag '{path}' is broken or was cut off: {_told(error)} {cure}")


def _told(error: Exception) -> str:
    text = ' '.join(str(error).split()) or type(error).__name__
    return text if text.endswith('.') else f'{text}.'


# Series of rosbags whose reading of MCAP files is known here, by private attributes: rosbags lends
# neither the index nor the chunks, and takes ten times as long for a message.
_SERIES = '0.11.'

# Of a message record: operation, length, then channel, sequence number and two times.
_MESSAGE = 0x05
_LENGTH_AT = 1
_CONTENT_AT = 9
_DATA_AT = _CONTENT_AT + 22
# Of an index record: operation, length, channel and length of the list before the list.
_LIST_AT = 15

Offsets = npt.NDArray[np.int64]


class Part(NamedTuple):
    """Successive messages of a topic.

    Attributes:
        topic: The topic.
        times: Times of recording, shape (k,) [ns].
        places: Positions in the file, shape (k,): number of the chunk times 2³² plus the offset
            within it.
        messages: Serialized messages.

    """

    topic: str
    times: Offsets
    places: Offsets
    messages: Messages


def indexed_storages(reader: Reader) -> list[Any] | None:
    """Return a bag's files if each has an index."""
    if not _is_known_series() or reader.compression_mode == 'message':
        return None
    storages = list(getattr(reader.storage, 'storages', [reader.storage]))
    chunks = [getattr(storage, 'chunks', []) for storage in storages]
    return storages if all(chunks) and all(
        chunk.message_index_offsets for chunk in chain.from_iterable(chunks)) else None


@cache
def _is_known_series() -> bool:
    """Return whether the index of MCAP files is read; log a warning once if it is not."""
    if version('rosbags').startswith(_SERIES):
        return True
    logging.getLogger(__name__).warning(
        f"rosbags {version('rosbags')} reads bags message by message, which takes longer. Install "
        f"{_SERIES}x, with which MCAP files are read by their index: 'pip install "
        f"\"rosbags=={_SERIES}*\"'.")
    return False


def parts(storages: Sequence[Any], chosen: Sequence[Connection]) -> Iterator[list[Part]]:
    """Yield the messages of some topics by chunk, or by group of chunks that overlap in time.

    Args:
        storages: Files with an index, from ``indexed_storages``.
        chosen: The topics.

    Raises:
        ReaderError: If a chunk is broken or does not match its index.

    """
    wanted = {(item.topic, item.msgtype) for item in chosen}
    for storage in storages:
        topics = {item.id: item.topic for item in storage.connections
                  if (item.topic, item.msgtype) in wanted}
        chunks = [(number, chunk) for number, chunk in enumerate(storage.chunks)
                  if not topics.keys().isdisjoint(chunk.message_index_offsets)]
        for together in _stretches(chunks):
            found = [part for number, chunk in together
                     for part in _parts_of(storage.bio, number, chunk, topics)]
            yield found if len(together) == 1 else [*map(_sorted, _by_topic(found))]


def _stretches(chunks: Sequence[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
    """Yield groups of chunks that overlap in time."""
    ordered = sorted(chunks, key=lambda item: item[1].message_start_time)
    ends = accumulate((chunk.message_end_time for _, chunk in ordered), max)
    begins = [row for row, (end, (_, chunk)) in enumerate(zip(ends, ordered[1:], strict=False), 1)
              if chunk.message_start_time >= end]
    for first, last in pairwise((0, *begins, len(ordered))):
        yield ordered[first:last]


def _by_topic(found: Sequence[Part]) -> list[Part]:
    """Join the parts of each topic."""
    joined = []
    for topic, same in grouped(found, lambda part: part.topic).items():
        _, times, places, messages = zip(*same, strict=True)
        kinds = {getattr(piece, 'dtype', None) for piece in messages}
        # An array if all messages have the same length.
        joined.append(Part(topic, np.concatenate(times), np.concatenate(places), (
            np.concatenate(messages) if len(kinds) == 1 and None not in kinds
            else [message for piece in messages for message in listed(piece)])))
    return joined


def _sorted(part: Part) -> Part:
    """Return messages of a topic in the order of time."""
    order, messages = in_order([part]), part.messages
    return Part(part.topic, part.times[order], part.places[order],
                messages[order] if isinstance(messages, np.ndarray)
                else [messages[row] for row in order.tolist()])


def in_order(group: Sequence[Part]) -> npt.NDArray[np.intp]:
    """Return the rows of the messages of all parts in the order in which they were recorded."""
    return np.lexsort((np.concatenate([part.places for part in group]),
                       np.concatenate([part.times for part in group])))


def _parts_of(file: Any, number: int, chunk: Any, topics: Mapping[int, str]) -> list[Part]:
    raw = _unpacked(file, chunk)
    file.seek(chunk.chunk_start_offset + chunk.chunk_length)
    index = file.read(chunk.message_index_length)
    begin = chunk.chunk_start_offset + chunk.chunk_length
    found = []
    for channel, at in chunk.message_index_offsets.items():
        if channel not in topics:
            continue
        times, offsets = _index_of(index, at - begin, channel)
        if len(times):
            found.append(Part(topics[channel], times, offsets + (number << 32),
                              _cut(raw, channel, offsets)))
    return found


def _unpacked(file: Any, chunk: Any) -> bytes:
    # Operation and length; times, size and checksum; name of the compression; size of the rest.
    file.seek(chunk.chunk_start_offset + 9 + 24)
    checksum = int.from_bytes(file.read(4), 'little')
    file.seek(chunk.chunk_start_offset + 9 + 40 + len(chunk.compression))
    packed = file.read(chunk.compressed_size)
    return storage_mcap.decompress(packed, chunk.compression, chunk.uncompressed_size, checksum)


def _index_of(index: bytes, at: int, channel: int) -> tuple[Offsets, Offsets]:
    """Return times and offsets of a channel's messages, in the order of the times."""
    found, size = (struct.unpack_from('<HI', index, at + _CONTENT_AT)
                   if 0 <= at <= len(index) - _LIST_AT else (None, 0))
    if found != channel:
        raise ReaderError('The index of a chunk is not where it should be.')
    table = np.frombuffer(index, '<i8', size // 8, at + _LIST_AT).reshape(-1, 2)
    order = np.argsort(table[:, 0], kind='stable')
    return table[order, 0], table[order, 1]


def _cut(raw: bytes, channel: int, offsets: Offsets) -> Messages:
    """Return the messages at offsets within a chunk."""
    if offsets.min() < 0 or offsets.max() > len(raw) - _DATA_AT:
        raise ReaderError('The index of a chunk names places outside of it.')
    lengths = _read(raw, offsets + _LENGTH_AT, '<i8')
    ends = offsets + _CONTENT_AT + lengths
    if ((_read(raw, offsets, 'u1') != _MESSAGE).any() or (ends > len(raw)).any()
            or (ends < offsets + _DATA_AT).any()
            or (_read(raw, offsets + _CONTENT_AT, '<u2') != channel).any()):
        raise ReaderError('The index of a chunk does not fit its messages.')
    begins, size = offsets + _DATA_AT, int(ends[0] - offsets[0]) - _DATA_AT
    if size and (lengths == lengths[0]).all():
        return _read(raw, begins, f'V{size}')
    return [raw[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def _read(raw: bytes, places: Offsets, kind: str) -> npt.NDArray[Any]:
    """Return the values of a type at offsets, shape (k,)."""
    count = len(raw) - np.dtype(kind).itemsize + 1
    return np.ndarray((count,), kind, raw, strides=(1,))[places]


@dataclass(frozen=True)
class Selection:
    """Topics and times of the messages of a bag that are used.

    Attributes:
        namespace: Namespace of the robot's topics.
        remapped: Topics in the bag by the names that nodes use.
        begin: Stamp after which joint states and readings are used [s].
        end: Stamp up to which they are used [s].
        whole: True to ignore the marks of runs.

    """

    namespace: str = ''
    remapped: Mapping[str, str] = field(default_factory=dict)
    begin: float = -np.inf
    end: float = np.inf
    whole: bool = False

    def topic(self, bag: Bag, name: str, kind: str) -> str:
        """Return a topic's full name in a bag; errors as for ``Bag.find``."""
        return bag.find(self.remapped.get(name, name), kind, self.namespace)

    def known_topic(self, bag: Bag, name: str, kind: str) -> str | None:
        """Return a topic's full name, None if the bag does not have it."""
        try:
            return self.topic(bag, name, kind)
        except ConfigurationError:
            return None


def description_in(bag: Bag, selection: Selection) -> str:
    """Return the URDF text that a bag holds.

    Raises:
        ConfigurationError: If it holds none.

    """
    try:
        topic = selection.topic(bag, 'robot_description', STRING)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"Bag '{bag.name}' holds no robot description; give the URDF with --urdf. "
            f'({error})') from error
    texts = [text for message in bag.messages(topic) if (text := str(message.data)).strip()]
    if not texts:
        raise ConfigurationError(
            f"Topic '{topic}' of bag '{bag.name}' is empty; give the URDF with --urdf.")
    return texts[-1]


def marks_in(bag: Bag, topic: str) -> Iterator[Mark]:
    """Yield the marks of a topic, in the order in which they were recorded."""
    for message in bag.messages(topic):
        yield from map(Mark.of, message.status)


def ahead(items: Generator[T, None, None]) -> Iterator[T]:
    """Yield the items of a generator that runs in a thread, up to four items ahead.

    NumPy and files release the interpreter while they work, so reading, computing and writing
    overlap. Its errors are raised here; it is closed with this iterator.
    """
    with ThreadPoolExecutor(1) as thread:
        made = deque(thread.submit(next, items, None) for _ in range(_DEPTH))
        try:
            while (item := made.popleft().result()) is not None:
                made.append(thread.submit(next, items, None))
                yield item
        finally:
            thread.shutdown(cancel_futures=True)
            items.close()


# ------------------------------------------------------------------ in the order of stamps

LATEST = SECOND
"""Largest lateness of a recorded sample that is sorted by its stamp [ns]."""

Take = Callable[[int, Any], None]
Sample = tuple[int, Take, Any]
"""Stamp [ns], receiver of the sample, and the sample."""

_stamp_of = itemgetter(0)
# Stamp of messages without one, before the first one with [s].
_BEFORE_ALL = -1e9


class Channel(NamedTuple):
    """Topic of a bag whose samples are processed one by one.

    Attributes:
        intake: Decoder and check of the messages; records none of them.
        take: Receives a stamp [ns] and the row of values, or the problem as text.
        span: Stamps to use.

    """

    intake: Intake
    take: Take
    span: Span

    def read(self, raw: Messages) -> Iterator[tuple[bool, Sample | None]]:
        """Return of each message whether the clock jumped back, and its sample if it is used."""
        intake = self.intake
        newest = intake.newest
        decoded = intake.decoder(raw)
        counted, jumps = intake.judge(decoded, np.arange(len(raw)))
        times = np.full(len(raw), np.nan)
        times[counted] = to_seconds(decoded.stamps[counted])
        # An unreadable message has no stamp and keeps its place in the recording.
        stamps = decoded.stamps.copy()
        for row in np.flatnonzero(decoded.states == State.UNREADABLE).tolist():
            times[row] = newest if not row else np.nan_to_num(times[row - 1], nan=newest)
            stamps[row] = round(max(times[row], _BEFORE_ALL) * SECOND)
        samples: list[Sample | None] = [None] * len(raw)
        rows = np.flatnonzero(self.span.holds(times) | (times == -np.inf))
        for row, time, values, state in zip(
                rows.tolist(), stamps[rows].tolist(), decoded.values[rows],
                decoded.states[rows].tolist(), strict=True):
            samples[row] = (time, self.take,
                            values if state == State.USABLE else decoded.reasons[row])
        return zip(np.isin(np.arange(len(raw)), jumps).tolist(), samples, strict=True)


def in_stamp_order(
    bag: Bag, channels: Mapping[str, Channel], progress: Callable[[int], None] | None = None
) -> Iterator[list[Sample] | None]:
    """Yield the samples of a bag in the order of their stamps, in blocks and bounded memory.

    A bag contains messages in the order of arrival, which may differ from that of their stamps.

    Args:
        bag: The bag.
        channels: Topics to read, by name.
        progress: Called from time to time with the number of messages read so far.

    Yields:
        Samples; None where the clock jumps back, before which samples must be discarded.

    Raises:
        FileFormatError: If the bag is broken.

    """
    held: list[Sample] = []
    for group in bag.groups(channels, progress):
        found = [item for part in group for item in channels[part.topic].read(part.messages)]
        for row in in_order(group).tolist():
            jumped, sample = found[row]
            if jumped:
                yield sorted(held, key=_stamp_of)
                yield None
                held = []
            if sample is not None:
                held.append(sample)
        held.sort(key=_stamp_of)
        ready = bisect_left(held, held[-1][0] - LATEST, key=_stamp_of) if held else 0
        yield held[:ready]
        held = held[ready:]
    yield held

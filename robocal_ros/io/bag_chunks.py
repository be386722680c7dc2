# SPDX-License-Identifier: Apache-2.0
"""Messages of MCAP files, a chunk at a time instead of one by one.

An MCAP file has an index of each chunk's messages (https://mcap.dev/spec). ``rosbags`` opens the
file, decompresses and checks the chunks; with the index, all messages of a chunk are then cut out
at once, which takes a tenth of the time. Files without an index are left to ``rosbags``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
from rosbags.interfaces import Connection
from rosbags.rosbag2 import Reader, ReaderError

# What is used here of rosbags is that of this series; others read message by message.
_SERIES = '0.11.'

# Of a message record: operation, length, then channel, sequence number and two times.
_MESSAGE = 0x05
_LENGTH_AT = 1
_CONTENT_AT = 9
_CHANNEL_AT = 9
_DATA_AT = 9 + 22
# Of an index record: operation, length, channel and length of the list before the list.
_LIST_AT = 15

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A topic's messages in a stretch of time, in their order.

    Attributes:
        topic: The topic.
        times: When each was recorded, shape (k,) [ns].
        places: Where each stands in the file, shape (k,): number of the chunk times 2³²,
            and the place within it.
        messages: Serialized messages.

    """

    topic: str
    times: Offsets
    places: Offsets
    messages: list[bytes]


def indexed_storages(reader: Reader) -> list[Any] | None:
    """Return a bag's files if each has an index."""
    if not version('rosbags').startswith(_SERIES) or reader.compression_mode == 'message':
        return None
    storages = list(getattr(reader.storage, 'storages', [reader.storage]))
    return storages if all(_is_indexed(storage) for storage in storages) else None


def _is_indexed(storage: Any) -> bool:
    chunks = getattr(storage, 'chunks', [])
    return bool(chunks) and all(chunk.message_index_offsets for chunk in chunks)


def parts(storages: Sequence[Any], chosen: Sequence[Connection]) -> Iterator[list[Part]]:
    """Yield what is in each stretch of time of some topics; a chunk, or some that overlap.

    Args:
        storages: Files with an index, as ``indexed_storages`` returns them.
        chosen: The topics.

    Raises:
        ReaderError: If a chunk is broken, or not what its index says.

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
            yield found if len(together) == 1 else _joined(found)


def _stretches(chunks: Sequence[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
    """Yield chunks, those that overlap in time together."""
    together: list[tuple[int, Any]] = []
    end = 0
    for number, chunk in sorted(chunks, key=lambda item: item[1].message_start_time):
        if together and chunk.message_start_time >= end:
            yield together
            together = []
        together.append((number, chunk))
        end = max(end, chunk.message_end_time)
    if together:
        yield together


def _joined(found: Sequence[Part]) -> list[Part]:
    """Join the parts of each topic, in the order of their times."""
    joined = []
    for topic in dict.fromkeys(part.topic for part in found):
        mine = [part for part in found if part.topic == topic]
        times = np.concatenate([part.times for part in mine])
        places = np.concatenate([part.places for part in mine])
        messages = [message for part in mine for message in part.messages]
        order = in_order(times, places)
        joined.append(Part(topic, times[order], places[order],
                           [messages[row] for row in order.tolist()]))
    return joined


def in_order(times: Offsets, places: Offsets) -> npt.NDArray[np.intp]:
    """Return the order of messages by time, and by place where that is the same."""
    return np.lexsort((places, times))


def _parts_of(
    file: Any, number: int, chunk: Any, topics: Mapping[int, str]
) -> list[Part]:
    raw = _unpacked(file, chunk)
    numbers = np.frombuffer(raw, np.uint8)
    file.seek(chunk.chunk_start_offset + chunk.chunk_length)
    index = file.read(chunk.message_index_length)
    begin = chunk.chunk_start_offset + chunk.chunk_length
    found = []
    for channel, at in chunk.message_index_offsets.items():
        if channel in topics:
            times, offsets = _index_of(index, at - begin, channel)
            found.append(Part(topics[channel], times, offsets + (number << 32),
                              _cut(raw, numbers, channel, offsets)))
    return found


def _unpacked(file: Any, chunk: Any) -> bytes:
    from rosbags.rosbag2.storage_mcap import decompress

    # Operation and length; times, size and checksum; name of the compression; size of the rest.
    file.seek(chunk.chunk_start_offset + 9 + 24)
    checksum = int.from_bytes(file.read(4), 'little')
    file.seek(chunk.chunk_start_offset + 9 + 40 + len(chunk.compression))
    packed = file.read(chunk.compressed_size)
    return decompress(packed, chunk.compression, chunk.uncompressed_size, checksum)


def _index_of(index: bytes, at: int, channel: int) -> tuple[Offsets, Offsets]:
    """Return times and offsets of a channel's messages, in the order of the times."""
    if not 0 <= at <= len(index) - _LIST_AT or channel != _uint(index, at + 9, 2):
        raise ReaderError('The index of a chunk is not where it should be.')
    size = _uint(index, at + 11, 4)
    table = np.frombuffer(index, '<i8', size // 8, at + _LIST_AT).reshape(-1, 2)
    order = np.argsort(table[:, 0], kind='stable')
    return table[order, 0], table[order, 1]


def _cut(
    raw: bytes, numbers: npt.NDArray[np.uint8], channel: int, offsets: Offsets
) -> list[bytes]:
    """Return the messages that stand at offsets within a chunk."""
    if len(offsets) and (offsets.min() < 0 or offsets.max() > len(raw) - _DATA_AT):
        raise ReaderError('The index of a chunk names places outside of it.')
    lengths = _read(numbers, offsets + _LENGTH_AT, '<i8')
    ends = offsets + _CONTENT_AT + lengths
    if ((numbers[offsets] != _MESSAGE).any() or (ends > len(raw)).any()
            or (ends < offsets + _DATA_AT).any()
            or (_read(numbers, offsets + _CHANNEL_AT, '<u2') != channel).any()):
        raise ReaderError('The index of a chunk does not fit its messages.')
    return [raw[begin:end] for begin, end in zip(
        (offsets + _DATA_AT).tolist(), ends.tolist(), strict=True)]


def _read(numbers: npt.NDArray[np.uint8], places: Offsets, kind: str) -> Any:
    """Return the integers of a kind that stand at places, shape (k,)."""
    width = np.arange(np.dtype(kind).itemsize)
    return numbers[places[:, None] + width].view(kind)[:, 0]


def _uint(raw: bytes, at: int, size: int) -> int:
    return int.from_bytes(raw[at:at + size], 'little')

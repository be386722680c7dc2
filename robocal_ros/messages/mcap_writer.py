# SPDX-License-Identifier: Apache-2.0
"""MCAP files from arrays of numbers: thousands of messages of a topic at a time.

Messages of one topic differ in their stamps and in the doubles at their end, so a block of them is
one array. The layout is that of https://mcap.dev/spec, with an index of every chunk. rosbags
writes whole folders only, and message by message: 25 µs for each against 0.7 µs here (measured on
one busy core).
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from robocal_ros.arrays import Array
from robocal_ros.files import PartFile
from robocal_ros.messages.bag import message_types, serialized
from robocal_ros.messages.stamps import SECOND, Stamps

_MAGIC = b'\x89MCAP0\r\n'
_HEADER, _FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _INDEX, _CHUNK_INDEX = range(1, 9)
_STATISTICS, _DATA_END = 0x0B, 0x0F
# A message record before its data: operation, length, channel, number, and two times.
_RECORD = np.dtype([('operation', 'u1'), ('length', '<u8'), ('channel', '<u2'),
                    ('number', '<u4'), ('log', '<u8'), ('publish', '<u8')])
_STAMP_AT = 4


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack('<I', len(raw)) + raw


def _record(operation: int, content: bytes) -> bytes:
    return struct.pack('<BQ', operation, len(content)) + content


class McapWriter(PartFile):
    """MCAP file that is being written."""

    def _begin(self) -> None:
        self._schemas: dict[str, int] = {}
        self._channels: list[bytes] = []
        self._definitions: list[bytes] = []
        self._counts: list[int] = []
        self._chunks: list[bytes] = []
        self._pending: list[tuple[int, Stamps, npt.NDArray[np.uint8]]] = []
        self._span = (2**63 - 1, 0)
        self.file.write(_MAGIC + _record(_HEADER, _text('ros2') + _text('robocal_ros')))

    def message(self, kind: str, **fields: Any) -> npt.NDArray[np.uint8]:
        """Return a serialized message, as ``serialized`` does."""
        return np.frombuffer(serialized(kind, **fields), np.uint8)

    def add_topic(self, topic: str, kind: str) -> int:
        """Announce a topic of a type such as ``geometry_msgs/msg/WrenchStamped``."""
        if kind not in self._schemas:
            text, _ = message_types().generate_msgdef(kind, ros_version=2)
            self._schemas[kind] = len(self._schemas) + 1
            self._definitions.append(_record(_SCHEMA, struct.pack('<H', self._schemas[kind])
                                             + _text(kind) + _text('ros2msg') + _text(text)))
        number = len(self._channels)
        self._channels.append(_record(
            _CHANNEL, struct.pack('<HH', number, self._schemas[kind]) + _text(topic)
            + _text('cdr') + struct.pack('<I', 0)))
        self._counts.append(0)
        return number

    def write(
        self, topic: int, stamps: Stamps, template: npt.NDArray[np.uint8],
        values: Array | None = None, *, stamped: bool = True,
    ) -> None:
        """Write messages of a topic.

        Args:
            topic: The topic.
            stamps: When they were published, shape (m,) [ns].
            template: A serialized message, of which the others differ in stamp and last numbers.
            values: These numbers, shape (m, columns); None for none.
            stamped: Whether messages begin with their stamp.

        """
        count, size = len(stamps), len(template)
        if not count:
            return
        table = np.empty((count, _RECORD.itemsize + size), np.uint8)
        head = np.zeros(count, _RECORD)
        head['operation'], head['length'] = _MESSAGE, _RECORD.itemsize - 9 + size
        head['channel'] = topic
        head['number'] = self._counts[topic] + np.arange(count)
        head['log'] = head['publish'] = stamps
        table[:, :_RECORD.itemsize] = head.view(np.uint8).reshape(count, -1)
        table[:, _RECORD.itemsize:] = template
        if stamped:
            at = _RECORD.itemsize + _STAMP_AT
            seconds = np.column_stack((stamps // SECOND, stamps % SECOND)).astype('<u4')
            table[:, at:at + 8] = seconds.view(np.uint8)
        if values is not None:
            numbers = np.ascontiguousarray(values, '<f8')
            table[:, -8 * numbers.shape[1]:] = numbers.view(np.uint8).reshape(count, -1)
        self._counts[topic] += count
        self._pending.append((topic, stamps, table))

    def flush(self) -> None:
        """Write the messages since the last flush as one chunk."""
        if not self._pending:
            return
        first = min(int(stamps.min()) for _, stamps, _ in self._pending)
        last = max(int(stamps.max()) for _, stamps, _ in self._pending)
        self._span = min(first, self._span[0]), max(last, self._span[1])
        # Topics are announced in every chunk before their messages.
        records = b''.join((*self._definitions, *self._channels))
        at, parts = len(records), list[bytes | memoryview]([records])
        entries: dict[int, list[npt.NDArray[np.int64]]] = {}
        for topic, stamps, messages in self._pending:
            offsets = at + messages.shape[1] * np.arange(len(stamps))
            entries.setdefault(topic, []).append(np.column_stack((stamps, offsets)))
            parts.append(messages.data)
            at += messages.size
        # Of the records alone; ``at`` is their length.
        head = struct.pack('<QQQI', first, last, at, 0) + _text('') + struct.pack('<Q', at)
        begin = self.file.tell()
        self.file.write(struct.pack('<BQ', _CHUNK, len(head) + at) + head)
        self.file.writelines(parts)
        end = self.file.tell()
        places = []
        for topic, tables in entries.items():
            places.append(struct.pack('<HQ', topic, self.file.tell()))
            table = np.concatenate(tables).astype('<u8').tobytes()
            self.file.write(_record(_INDEX, struct.pack('<HI', topic, len(table)) + table))
        index = b''.join(places)
        self._chunks.append(_record(_CHUNK_INDEX, struct.pack(
            '<QQQQI', first, last, begin, end - begin, len(index)) + index + struct.pack(
                '<Q', self.file.tell() - end) + _text('') + struct.pack(
                    '<QQ', at, at)))
        self._pending.clear()

    def _finish(self) -> None:
        self.flush()
        self.file.write(_record(_DATA_END, struct.pack('<I', 0)))
        summary = self.file.tell()
        first, last = self._span if self._chunks else (0, 0)
        counts = b''.join(struct.pack('<HQ', i, count) for i, count in enumerate(self._counts))
        statistics = struct.pack(
            '<QHIIIIQQI', sum(self._counts), len(self._schemas), len(self._channels), 0, 0,
            len(self._chunks), first, last, len(counts)) + counts
        self.file.write(b''.join((*self._definitions, *self._channels, *self._chunks,
                                   _record(_STATISTICS, statistics))))
        self.file.write(_record(_FOOTER, struct.pack('<QQI', summary, 0, 0)) + _MAGIC)

# SPDX-License-Identifier: Apache-2.0
"""Writing bags of rosbag2 from serialized messages, by PyPI's ``rosbags``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from rosbags.interfaces import (
    Connection,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer, WriterError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from robocal_ros.errors import ConfigurationError

STORAGES = {'mcap': StoragePlugin.MCAP, 'sqlite3': StoragePlugin.SQLITE3}

# What rosbag2 writes for "no deadline" and the like.
_FOREVER = QosTime(9223372036, 854775807)


class BagWriter(AbstractContextManager['BagWriter']):
    """Writer of a bag; a context manager that closes it."""

    def __init__(
        self, path: Path, storage: str = 'mcap',
        definition: Callable[[str], str | None] = lambda kind: None,
    ) -> None:
        """Create a bag.

        Args:
            path: A folder that does not exist yet.
            storage: ``mcap`` or ``sqlite3``.
            definition: Returns the definition of a message type that rosbags does not know, as
                the text of its .msg file; None if there is none.

        Raises:
            ConfigurationError: If the folder exists or cannot be created.

        """
        self._definition = definition
        self._connections: dict[str, Connection] = {}
        self._store: Typestore = get_typestore(Stores.LATEST)
        try:
            self._writer = Writer(path, version=9, storage_plugin=STORAGES[storage])
            if storage == 'mcap':
                # Chunk by chunk, as rosbag2 does; messages one by one take longer to read.
                self._writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
            self._writer.open()
        except (WriterError, OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"The bag '{path}' cannot be written: {error} Name a folder that does not exist "
                'yet, where you may write.') from error

    def __exit__(self, *_: object) -> None:
        """Close the bag, also after an error, so that it can be read."""
        self._writer.close()

    def add(
        self, topic: str, kind: str, *, reliable: bool = True, latched: bool = False,
        depth: int = 10,
    ) -> None:
        """Add a topic.

        Args:
            topic: Its full name.
            kind: Its type, such as ``sensor_msgs/msg/JointState``.
            reliable: Whether its publishers send lost messages again.
            latched: Whether late subscribers receive earlier messages (transient local).
            depth: Number of messages that its publishers keep.

        Raises:
            ConfigurationError: If the type is unknown.

        """
        offered = Qos(
            QosHistory.KEEP_LAST, depth,
            QosReliability.RELIABLE if reliable else QosReliability.BEST_EFFORT,
            QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE,
            _FOREVER, _FOREVER, QosLiveliness.AUTOMATIC, _FOREVER, False)
        self._know(kind)
        self._connections[topic] = self._writer.add_connection(
            topic, kind, typestore=self._store, offered_qos_profiles=[offered])

    def write(self, topic: str, stamp: int, data: bytes) -> None:
        """Write a message.

        Args:
            topic: A topic that was added.
            stamp: Time of reception [ns].
            data: The serialized message.

        """
        self._writer.write(self._connections[topic], stamp, data)

    def _know(self, kind: str) -> None:
        """Register a type and the types of its fields."""
        if kind in self._store.types:
            return
        text = self._definition(kind)
        if text is None:
            raise ConfigurationError(
                f"The definition of message type '{kind}' is not known here. Source the "
                'workspace that has it, or leave its topic out.')
        learnt = get_types_from_msg(text, kind)
        for part in _named_types(learnt[kind][1]):
            self._know(part)
        self._store.register({kind: learnt[kind]})


def _named_types(description: object) -> list[str]:
    """Return the message types that a field's description names."""
    if isinstance(description, str):
        return [description] if description.count('/') == 2 else []
    if isinstance(description, tuple | list):
        return [name for part in description for name in _named_types(part)]
    return []

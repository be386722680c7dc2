# SPDX-License-Identifier: Apache-2.0
"""`robocal record`: record the topics that an estimation needs into a rosbag2 bag.

Messages are recorded in serialized form, with the QoS that the publishers offer.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from msgspec import structs
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy

from robocal_ros import registry
from robocal_ros.cli.console import ERRORS, OUT, ProgressView, print_line, table_of
from robocal_ros.cli.node_client import RosSession, foreign, full_name
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.files import Section, read_as, refuse
from robocal_ros.messages import BagWriter, StampGuard, qos, stamp_of
from robocal_ros.resources import share_directory

# Queue depth: two seconds of a 1 kHz stream.
_DEPTH = 2000
# Interval between two searches for new topics [s].
_SEARCH_PERIOD = 1.0


def run(options: argparse.Namespace) -> int:
    """Record.

    Raises:
        RobocalError: If a needed topic has no publisher, or nothing was recorded.

    """
    profile = read_profile(options.profile or share_directory() / 'config' / 'recorder.yaml')
    profile = structs.replace(profile, topics=(*profile.topics, *own_topics(), *options.topics))
    # Named as ros2 bag names its bags.
    folder = options.output or Path(time.strftime('robocal_%Y_%m_%d-%H_%M_%S'))
    with RosSession('robocal_recorder') as session:
        if not session.spin_until(
                lambda: not profile.missing(session.published(), options.namespace),
                options.timeout):
            published = session.published()
            raise ConfigurationError(
                f'No publisher of {", ".join(profile.missing(published, options.namespace))}. '
                f'Published topics: {", ".join(sorted(published)) or "none"}. Start the driver '
                '(or sim_arm) in this ROS domain, or set its namespace with --namespace.')
        with BagWriter(folder, options.storage, definition_of) as bag:
            recorder = BagRecorder(session, profile, options.namespace, bag)
            print_line(f'Recording into {folder}; Ctrl-C ends it.')
            # Ctrl-C is the regular end of a recording; an exception while a message is written
            # would break the bag.
            signals: list[int] = []
            before = {number: signal.signal(number, lambda got, _: signals.append(got))
                      for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                with ProgressView('Recording') as view:
                    def ended() -> bool:
                        if signals or options.duration is None:
                            return bool(signals)
                        view.update(min(100.0 * view.elapsed / options.duration, 100.0),
                                    f'{view.elapsed:.0f} s')
                        return bool(view.elapsed >= options.duration)

                    session.spin_until(ended)
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
        # The bag is closed, whatever this does.
        if signal.SIGTERM in signals:
            signal.raise_signal(signal.SIGTERM)
    _summarize(recorder, folder)
    return 0


def _summarize(recorder: BagRecorder, folder: Path) -> None:
    for name, reason in recorder.left_out.items():
        print_line(f'{name} was left out: {reason}', 'yellow', console=ERRORS)
    topics = dict(sorted(recorder.topics.items()))
    if not any(topic.count for topic in topics.values()):
        raise DataError(
            'No messages received on '
            f'{", ".join(topics) or "any topic"}; the bag {folder} is empty. Check that the '
            'driver is running.')
    OUT.print(table_of(
        (('topic', False), ('messages', True), ('Hz', True), ('lost', True), ('late', True),
         ('QoS', False)),
        ((name, str(topic.count), topic.rate,
          *((str(topic.guard.counts.dropped), str(topic.guard.counts.out_of_order))
            if topic.guard else ('', '')), 'reliable' if topic.reliable else 'best effort')
         for name, topic in topics.items())))
    silent = [name for name, topic in topics.items() if not topic.count]
    if silent:
        print_line(f'No messages received on {", ".join(silent)}.', 'yellow')
    print_line(f'Bag: {folder}')


def own_topics() -> list[str]:
    """Return the marks and results of all nodes, relative to the namespace."""
    return [topic for item in registry.capabilities() for topic in item.recorded]


class RecorderProfile(Section):
    """Topics to record.

    Attributes:
        topics: Topics by name, relative ones within the namespace.
        types: Types of which every topic in the namespace is recorded.
        needed: Topics without which there is nothing to record.

    """

    topics: tuple[str, ...]
    types: tuple[str, ...]
    needed: tuple[str, ...]

    def chosen(self, published: Mapping[str, Sequence[str]], namespace: str) -> dict[str, str]:
        """Return the topics to record, with their types.

        Args:
            published: Types of all topics of the graph by full name.
            namespace: Namespace of the robot.

        """
        named = self.named(namespace)
        space = full_name('', namespace)
        return {topic: kinds[0] for topic, kinds in published.items() if kinds and (
            topic in named or (kinds[0] in self.types and topic.startswith(space)))}

    def named(self, namespace: str) -> set[str]:
        """Return the full names of the topics by name."""
        return {full_name(name, namespace) for name in (*self.topics, *self.needed)}

    def missing(self, published: Mapping[str, Sequence[str]], namespace: str) -> list[str]:
        """Return the full names of needed topics without a publisher."""
        return [name for name in (full_name(item, namespace) for item in self.needed)
                if name not in published]


class _ProfileFile(Section):
    recorder: RecorderProfile


def read_profile(path: Path) -> RecorderProfile:
    """Read a profile.

    Raises:
        ConfigurationError: If the file cannot be read.
        FileFormatError: If it is not a profile.

    """
    profile = read_as(path, 'recorder profile', _ProfileFile).recorder
    for key in ('topics', 'types', 'needed'):
        names = getattr(profile, key)
        if len(set(names)) != len(names):
            raise refuse(str(path), f'recorder.{key}', 'names that all differ', list(names))
    return profile


@dataclass
class RecordedTopic:
    """Record of one topic.

    Attributes:
        reliable: Whether lost messages are sent again.
        guard: Stamps of its messages, None for types without a header.
        count: Number of messages.
        first: Arrival of the first one by the machine's clock [s].
        last: Arrival of the last one [s].

    """

    reliable: bool
    guard: StampGuard | None
    count: int = 0
    first: float = 0.0
    last: float = 0.0

    @property
    def rate(self) -> str:
        """Messages per second of the machine's clock, empty for fewer than two."""
        return '' if self.count < 2 else (
            f'{(self.count - 1) / max(self.last - self.first, 1e-9):.1f}')

    def take(self, raw: bytes) -> None:
        """Count a message."""
        self.last = time.monotonic()
        self.first = self.first or self.last
        self.count += 1
        if self.guard is not None and (stamp := stamp_of(raw)) is not None:
            self.guard.admit(stamp)


class BagRecorder:
    """Recorder that subscribes to a profile's topics as they appear and writes a bag.

    Attributes:
        topics: Recorded topics by name.
        left_out: Why topics are not recorded, by name.

    """

    def __init__(
        self, session: RosSession, profile: RecorderProfile, namespace: str, bag: BagWriter
    ) -> None:
        """Subscribe, and search for new topics from now on.

        Args:
            session: Session whose node subscribes.
            profile: Topics to record.
            namespace: Namespace of the robot.
            bag: Open bag.

        """
        self._session = session
        self._profile = profile
        self._namespace = namespace
        self._bag = bag
        self.topics: dict[str, RecordedTopic] = {}
        self.left_out: dict[str, str] = {}
        session.node.create_timer(_SEARCH_PERIOD, self._subscribe_to_new)
        self._subscribe_to_new()

    def _subscribe_to_new(self) -> None:
        """Subscribe to new topics."""
        topics = dict(self._session.node.get_topic_names_and_types())
        for name, kind in self._profile.chosen(topics, self._namespace).items():
            if name in self.topics or name in self.left_out:
                continue
            offers = self._session.node.get_publishers_info_by_topic(name)
            # Without a publisher, the offered QoS is unknown. What the nodes compute from the
            # recorded topics is computed again from them.
            if offers and (name in self._profile.named(self._namespace) or foreign(offers)):
                self._subscribe(name, kind, [item.qos_profile for item in offers])

    def _subscribe(self, name: str, kind: str, offered: list[QoSProfile]) -> None:
        best = qos.offered_by_all(offered, _DEPTH)
        reliable = best.reliability == QoSReliabilityPolicy.RELIABLE
        try:
            message = message_class(kind)
            self._bag.add(
                name, kind, reliable=reliable,
                latched=best.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL,
                depth=max([item.depth for item in offered if item.depth > 0], default=10))
        except ConfigurationError as error:
            self.left_out[name] = str(error)
            return
        stamped = 'header' in message.get_fields_and_field_types()
        topic = RecordedTopic(reliable, StampGuard() if stamped else None)
        self.topics[name] = topic

        def take(raw: bytes) -> None:
            topic.take(raw)
            self._bag.write(name, time.time_ns(), raw)

        self._session.node.create_subscription(message, name, take, best, raw=True)


def message_class(kind: str) -> Any:
    """Return the class of a message type; raises ConfigurationError if it is not installed."""
    try:
        return resolve_name(kind.replace('/', '.'))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"Message type '{kind}' is not installed here; source the workspace that has it."
        ) from error


def definition_of(kind: str) -> str | None:
    """Return the text of an installed message type's .msg file, None if there is none."""
    package, _, name = kind.partition('/msg/')
    # Folders of a distribution, then the environment, for packages from PyPI.
    prefixes = [*filter(None, os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)),
                sys.prefix]
    files = (Path(prefix) / 'share' / package / 'msg' / f'{name}.msg' for prefix in prefixes)
    return next((file.read_text(encoding='utf-8') for file in files if file.exists()), None)

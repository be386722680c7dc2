# SPDX-License-Identifier: Apache-2.0
"""`robocal record`: what an estimation needs, into a bag of rosbag2.

Messages are recorded raw, each topic with the quality that is offered.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from rclpy.qos import (
    QoSDurabilityPolicy,
    QoSHistoryPolicy,
    QoSProfile,
    QoSReliabilityPolicy,
)

from robocal_ros.cli.console import ERRORS, OUT, print_line, table_of
from robocal_ros.cli.node_client import RosSession, full_name
from robocal_ros.errors import ConfigurationError, DataError
from robocal_ros.files import Section, convert, load, read_text, refuse
from robocal_ros.messages.bag_writer import BagWriter, TopicQos
from robocal_ros.messages.decode import stamp_of
from robocal_ros.messages.samples import StreamCounts
from robocal_ros.messages.stamps import StampGuard
from robocal_ros.resources import share_directory

# Two seconds of a 1 kHz stream.
_DEPTH = 2000
_LOOK_EVERY = 1.0


def run(options: argparse.Namespace) -> int:
    """Record.

    Returns:
        0 if everything that is needed was recorded.

    Raises:
        RobocalError: If needed topics are not there, or nothing could be recorded.

    """
    profile = read_profile(
        options.profile or share_directory() / 'config' / 'recorder.yaml')
    profile = structs.replace(profile, topics=(*profile.topics, *options.topics))
    # Named as ros2 bag names its bags.
    folder = options.output or Path(time.strftime('robocal_%Y_%m_%d-%H_%M_%S'))
    with RosSession('robocal_recorder') as session:
        _wait_for_needed(session, profile, options)
        with BagWriter(folder, options.storage, definition_of) as bag:
            recorder = Recorder(session, profile, options.namespace, bag)
            print_line(f'Recording into {folder}; Ctrl-C ends it.')
            end = time.monotonic() + (
                float('inf') if options.duration is None else options.duration)
            # Ctrl-C is the way to end a recording; what was recorded is whole.
            with contextlib.suppress(KeyboardInterrupt):
                recorder.run(lambda: time.monotonic() >= end)
    _tell(recorder, folder)
    return 0


def _wait_for_needed(
    session: RosSession, profile: RecorderProfile, options: argparse.Namespace
) -> None:
    def there() -> dict[str, list[str]]:
        return {name: kinds for name, kinds in session.node.get_topic_names_and_types()
                if session.node.count_publishers(name)}

    if session.spin_until(
        lambda: not profile.missing(there(), options.namespace), options.timeout
    ):
        return
    missing = ', '.join(profile.missing(there(), options.namespace))
    names = ', '.join(sorted(there())) or 'none'
    raise ConfigurationError(
        f'Nobody publishes {missing}. Topics that are published: {names}. Start the driver (or '
        'sim_arm) in this ROS domain, or name its --namespace.')


def _tell(recorder: Recorder, folder: Path) -> None:
    for name, reason in recorder.left_out.items():
        print_line(f'{name} was left out: {reason}', 'yellow', console=ERRORS)
    topics = sorted(recorder.topics.values(), key=lambda topic: topic.name)
    if not any(topic.count for topic in topics):
        raise DataError(
            f'Nothing came on {", ".join(topic.name for topic in topics) or "any topic"}; the '
            f'bag {folder} is empty. Is the driver running?')
    table = table_of((('topic', False), ('messages', True), ('Hz', True), ('lost', True),
                      ('late', True), ('QoS', False)))
    for topic in topics:
        stamped = topic.guard is not None
        table.add_row(
            topic.name, str(topic.count), f'{topic.rate:.1f}' if topic.count > 1 else '',
            str(topic.counts.dropped) if stamped else '',
            str(topic.counts.out_of_order) if stamped else '',
            'reliable' if topic.reliable else 'best effort')
    OUT.print(table)
    silent = [topic.name for topic in topics if not topic.count]
    if silent:
        print_line(f'Nothing came on {", ".join(silent)}.', 'yellow')
    print_line(f'Bag: {folder}')


class RecorderProfile(Section):
    """What is recorded.

    Attributes:
        topics: Topics by name, relative ones within the namespace.
        types: Types of which every topic in the namespace is recorded.
        needed: Topics without which there is nothing to record.

    """

    topics: tuple[str, ...]
    types: tuple[str, ...]
    needed: tuple[str, ...]

    def chosen(self, there: Mapping[str, Sequence[str]], namespace: str) -> dict[str, str]:
        """Return the topics to record, with their types.

        Args:
            there: Types of every topic of the graph by its full name.
            namespace: Namespace of the robot.

        """
        named = {full_name(name, namespace) for name in (*self.topics, *self.needed)}
        space = full_name('', namespace)
        return {topic: kinds[0] for topic, kinds in there.items() if kinds and (
            topic in named or (kinds[0] in self.types and topic.startswith(space)))}

    def missing(self, there: Mapping[str, Sequence[str]], namespace: str) -> list[str]:
        """Return the needed topics that are not there."""
        return [name for name in (full_name(item, namespace) for item in self.needed)
                if name not in there]


class _ProfileFile(Section):
    recorder: RecorderProfile


def read_profile(path: Path) -> RecorderProfile:
    """Read a profile.

    Raises:
        ConfigurationError: If the file cannot be read.
        FileFormatError: If it is no profile.

    """
    name = str(path)
    profile = convert(load(read_text(path, 'recorder profile'), name), _ProfileFile, name).recorder
    for key in ('topics', 'types', 'needed'):
        names = getattr(profile, key)
        if len(set(names)) != len(names):
            raise refuse(name, f'recorder.{key}', 'names that all differ', list(names))
    return profile


@dataclass
class RecordedTopic:
    """What was recorded of one topic.

    Attributes:
        name: Full name.
        kind: Type.
        reliable: Whether lost messages are sent again.
        guard: Stamps of its messages, None for types without a header.
        count: Number of messages.

    """

    name: str
    kind: str
    reliable: bool
    guard: StampGuard | None
    count: int = 0
    _times: list[float] = field(default_factory=list)

    @property
    def counts(self) -> StreamCounts:
        """Gaps and the like; zeros for types without a header."""
        return StreamCounts() if self.guard is None else self.guard.counts

    @property
    def rate(self) -> float:
        """Messages per second of the machine's clock, NaN for fewer than two."""
        if self.count < 2:
            return float('nan')
        return (self.count - 1) / max(self._times[1] - self._times[0], 1e-9)

    def take(self, raw: bytes) -> None:
        """Note a message."""
        self.count += 1
        now = time.monotonic()
        self._times = [self._times[0] if self._times else now, now]
        stamp = None if self.guard is None else stamp_of(raw)
        if self.guard is not None and stamp is not None:
            self.guard.admit(stamp)


class Recorder:
    """Subscribes to what a profile names, as it appears, and writes it to a bag."""

    def __init__(
        self, session: RosSession, profile: RecorderProfile, namespace: str, bag: BagWriter
    ) -> None:
        """Prepare; nothing is subscribed yet.

        Args:
            session: Where to serve callbacks.
            profile: What to record.
            namespace: Namespace of the robot.
            bag: Where to write.

        """
        self._session = session
        self._profile = profile
        self._namespace = namespace
        self._bag = bag
        self._subscriptions: list[Any] = []
        self.topics: dict[str, RecordedTopic] = {}
        self.left_out: dict[str, str] = {}

    def run(self, done: Callable[[], bool]) -> None:
        """Record until something holds."""
        looked = -np.inf

        def turn() -> bool:
            nonlocal looked
            if time.monotonic() - looked > _LOOK_EVERY:
                looked = time.monotonic()
                self._look()
            return done()

        self._session.spin_until(turn)

    def _look(self) -> None:
        """Subscribe to what has appeared."""
        there = dict(self._session.node.get_topic_names_and_types())
        for name, kind in self._profile.chosen(there, self._namespace).items():
            if name in self.topics or name in self.left_out:
                continue
            offers = self._session.node.get_publishers_info_by_topic(name)
            # A topic that only has readers yet; what it offers is not known.
            if offers:
                self._subscribe(name, kind, [item.qos_profile for item in offers])

    def _subscribe(self, name: str, kind: str, offered: list[QoSProfile]) -> None:
        # The best QoS that all publishers offer matches every one of them.
        reliable = all(item.reliability == QoSReliabilityPolicy.RELIABLE for item in offered)
        latched = all(item.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL for item in offered)
        try:
            message = message_class(kind)
            self._bag.add(name, kind, TopicQos(reliable, latched, max(
                [item.depth for item in offered if item.depth > 0], default=10)))
        except ConfigurationError as error:
            self.left_out[name] = str(error)
            return
        stamped = 'header' in message.get_fields_and_field_types()
        topic = RecordedTopic(name, kind, reliable, StampGuard() if stamped else None)
        self.topics[name] = topic

        def take(raw: bytes) -> None:
            topic.take(raw)
            self._bag.write(name, time.time_ns(), raw)

        self._subscriptions.append(self._session.node.create_subscription(
            message, name, take, QoSProfile(
                history=QoSHistoryPolicy.KEEP_LAST, depth=_DEPTH,
                reliability=(QoSReliabilityPolicy.RELIABLE if reliable
                             else QoSReliabilityPolicy.BEST_EFFORT),
                durability=(QoSDurabilityPolicy.TRANSIENT_LOCAL if latched
                            else QoSDurabilityPolicy.VOLATILE)), raw=True))


def message_class(kind: str) -> Any:
    """Return the class of a message type; raises ConfigurationError if it is not installed."""
    package, _, name = kind.partition('/msg/')
    try:
        return getattr(importlib.import_module(f'{package}.msg'), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"Message type '{kind}' is not installed here; source the workspace that has it."
        ) from error


def definition_of(kind: str) -> str | None:
    """Return the text of an installed message type's .msg file, None if there is none."""
    package, _, name = kind.partition('/msg/')
    # A distribution names its folders; packages of PyPI are in the environment's own.
    prefixes = [*filter(None, os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)),
                sys.prefix]
    files = [Path(prefix) / 'share' / package / 'msg' / f'{name}.msg' for prefix in prefixes]
    found = next((file for file in files if file.exists()), None)
    return None if found is None else found.read_text(encoding='utf-8')

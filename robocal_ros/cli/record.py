# SPDX-License-Identifier: Apache-2.0
"""`robocal record`: what an estimation needs, into a bag of rosbag2."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from robocal_ros.cli.console import ERRORS, OUT
from robocal_ros.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from robocal_ros.cli.node_client import RosSession
    from robocal_ros.cli.recorder import Recorder, RecorderProfile


NAME = 'record'
SUMMARY = 'record the topics that an estimation needs into a bag, until Ctrl-C'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument('topics', nargs='*', metavar='TOPIC',
                        help='further topics besides those of the profile')
    parser.add_argument('-o', '--output', type=Path, metavar='FOLDER',
                        help='the bag, a folder that does not exist yet (default: named after '
                             'the time)')
    parser.add_argument('--storage', choices=('mcap', 'sqlite3'), default='mcap',
                        help='format of the bag (default: %(default)s)')
    parser.add_argument('--namespace', default='', metavar='NS', help="the robot's namespace")
    parser.add_argument('--profile', type=Path, metavar='FILE',
                        help='topics to record (default: config/recorder.yaml of the package)')
    parser.add_argument('--duration', type=float, metavar='SECONDS',
                        help='end by itself after so long')
    parser.add_argument('--timeout', type=float, default=10.0, metavar='SECONDS',
                        help='longest wait for needed topics (default: %(default)s)')


def run(options: argparse.Namespace) -> int:
    """Record.

    Returns:
        0 if everything that is needed was recorded.

    Raises:
        RobocalError: If needed topics are not there, or nothing could be recorded.

    """
    from robocal_ros.cli.node_client import RosSession
    from robocal_ros.cli.recorder import Recorder, default_folder, definition_of
    from robocal_ros.messages.bag_writer import BagWriter

    profile = _profile(options)
    folder = options.output or default_folder(time.time())
    with RosSession('robocal_recorder') as session:
        _wait_for_needed(session, profile, options)
        with BagWriter(folder, options.storage, definition_of) as bag:
            recorder = Recorder(session, profile, options.namespace, bag)
            OUT.print(f'Recording into {folder}; Ctrl-C ends it.', soft_wrap=True, markup=False)
            _record(recorder, options.duration)
    _tell(recorder, folder)
    return 0


def _profile(options: argparse.Namespace) -> RecorderProfile:
    from msgspec import structs

    from robocal_ros.cli.recorder import read_profile
    from robocal_ros.resources import share_directory

    path = options.profile or share_directory() / 'config' / 'recorder.yaml'
    profile = read_profile(path)
    return structs.replace(profile, topics=(*profile.topics, *options.topics))


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


def _record(recorder: Recorder, duration: float | None) -> None:
    end = time.monotonic() + (float('inf') if duration is None else duration)
    try:
        recorder.run(lambda: time.monotonic() >= end)
    except KeyboardInterrupt:
        # The way to end a recording; what was recorded is whole.
        return


def _tell(recorder: Recorder, folder: Path) -> None:
    from robocal_ros.cli.console import table_of

    for name, reason in recorder.left_out.items():
        ERRORS.print(f'{name} was left out: {reason}', style='yellow', soft_wrap=True,
                     markup=False)
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
        OUT.print(f'Nothing came on {", ".join(silent)}.', style='yellow', soft_wrap=True,
                  markup=False)
    OUT.print(f'Bag: {folder}', soft_wrap=True, markup=False)

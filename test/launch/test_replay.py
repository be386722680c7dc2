# SPDX-License-Identifier: Apache-2.0
"""What replays a bag: its arm, its namespace, its clock, and what a bag without them is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.launching.arguments import ReplayArguments
from robocal_ros.launching.replay import replay

ROOT = Path(__file__).resolve().parents[2]
URDF = (ROOT / 'test' / 'data' / 'two_joint.urdf').read_text(encoding='utf-8')
STORE = get_typestore(Stores.LATEST)
Make = Callable[..., ReplayArguments]


def everything(_: str) -> bool:
    return True


def write_bag(path: Path, topics: Sequence[str], *, namespace: str = '') -> Path:
    """Write a bag with one message on each of robot_description and joint_states."""
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for number, name in enumerate(topics):
            kind = ('std_msgs/msg/String' if name == 'robot_description'
                    else 'sensor_msgs/msg/JointState')
            connection = writer.add_connection(f'{namespace}/{name}', kind, typestore=STORE)
            writer.write(connection, number, STORE.serialize_cdr(message(kind), kind))
    return path


def message(kind: str) -> Any:
    types = STORE.types
    if kind == 'std_msgs/msg/String':
        return types[kind](data=URDF)
    stamp = types['builtin_interfaces/msg/Time'](sec=1, nanosec=0)
    header = types['std_msgs/msg/Header'](stamp=stamp, frame_id='')
    nothing = np.zeros(0)
    return types[kind](header=header, name=[], position=nothing, velocity=nothing, effort=nothing)


BOTH = ('robot_description', 'joint_states')


def test_the_nodes_take_the_arm_of_the_bag(replay_arguments: Make, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH)
    found = replay(replay_arguments(bag=str(bag), nodes='leveling', rate='2.5'), everything)
    (node,) = found.nodes
    assert node.lifecycle
    assert node.parameters == (
        {'use_sim_time': True, 'autostart': False, 'robot_description': URDF},)
    words = found.player.words
    assert words[:4] == ('ros2', 'bag', 'play', str(bag))
    assert '--clock' in words
    assert words[words.index('--rate') + 1] == '2.5'
    # Before the nodes have found the player, what it plays is lost.
    assert float(words[words.index('--delay') + 1]) > 3.0
    # The clock of a recorded simulator would be a second one.
    assert words[words.index('--exclude-topics') + 1] == '/clock'
    # It has nothing to estimate.
    assert found.advice == 'The bag has ended.'
    assert found.ended(0) == found.advice
    # The nodes may have heard a part of it, or nothing.
    assert 'has ended.' not in found.ended(1)
    assert 'exit code 1' in found.ended(1)


def test_an_arm_in_a_namespace(replay_arguments: Make, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH, namespace='/left')
    found = replay(
        replay_arguments(bag=str(bag), namespace='left', rviz='true'), everything)
    assert {node.namespace for node in found.nodes} == {'/left'}
    assert [item.executable for item in found.beside] == ['rviz2']
    assert '/left/payload_identification/estimate' in found.advice
    assert 'ros2 lifecycle set /left/payload_identification configure' in found.waits(
        found.nodes[0])


def test_the_wrong_namespace_is_told_the_right_one(
    replay_arguments: Make, tmp_path: Path
) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH, namespace='/left')
    for namespace in ('', 'right'):
        with pytest.raises(ConfigurationError, match='It is in the namespace /left'):
            replay(replay_arguments(bag=str(bag), namespace=namespace), everything)


def test_a_bag_without_an_arm_wants_one(replay_arguments: Make, tmp_path: Path) -> None:
    bag = str(write_bag(tmp_path / 'bag', ('joint_states',)))
    with pytest.raises(ConfigurationError, match='no std_msgs/msg/String on /robot_description'):
        replay(replay_arguments(bag=bag), everything)
    robot = str(ROOT / 'test' / 'data' / 'two_joint.urdf')
    found = replay(replay_arguments(bag=bag, robot=robot, nodes='leveling'), everything)
    assert '<robot' in found.nodes[0].parameters[0]['robot_description']  # type: ignore[index]


def test_a_bag_without_joint_states_is_refused(replay_arguments: Make, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', ('robot_description',))
    with pytest.raises(ConfigurationError, match='It holds /robot_description. Record joint_st'):
        replay(replay_arguments(bag=str(bag)), everything)


def test_what_is_no_bag_is_refused(replay_arguments: Make, tmp_path: Path) -> None:
    (tmp_path / 'bag.mcap').write_bytes(b'no bag')
    with pytest.raises(FileFormatError, match=r'bag\.mcap'):
        replay(replay_arguments(bag=str(tmp_path / 'bag.mcap')), everything)


def test_the_player_must_be_installed(replay_arguments: Make, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH)
    with pytest.raises(ConfigurationError, match='needs ros2bag, rosbag2_transport'):
        replay(replay_arguments(bag=str(bag)), lambda _: False)

# SPDX-License-Identifier: Apache-2.0
"""What replay.launch.py does: arm, namespace, clock and order, and the bags that it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from lifecycle_msgs.msg import Transition
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from support.launch_stand_in import Context, LifecycleNode

from robocal_ros.errors import ConfigurationError, FileFormatError

ROOT = Path(__file__).resolve().parents[2]
URDF = (ROOT / 'test' / 'data' / 'two_joint.urdf').read_text(encoding='utf-8')
STORE = get_typestore(Stores.LATEST)
Launch = Callable[..., Context]


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


def test_the_nodes_take_the_arm_of_the_bag(replay: Launch, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH)
    node = replay(bag=str(bag), nodes='leveling').process('leveling')
    assert isinstance(node.action, LifecycleNode)
    assert node.files == [str(ROOT / 'config' / 'leveling.yaml')]
    assert node.values == {'use_sim_time': True, 'autostart': False, 'robot_description': URDF}


def test_the_bag_is_played_on_its_own_clock(replay: Launch, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH)
    words = replay(bag=str(bag), nodes='none', rate='2.5').process('ros2').arguments
    assert words[:3] == ['bag', 'play', str(bag)]
    assert '--clock' in words
    assert words[words.index('--rate') + 1] == '2.5'
    # Before the nodes have found the player, what it plays is lost.
    assert float(words[words.index('--delay') + 1]) > 3.0
    # The clock of a recorded simulator would be a second one.
    assert words[words.index('--exclude-topics') + 1] == '/clock'


def reach(done: Context, name: str, goal: str, start: str = 'any') -> list[Any]:
    """Let a node reach a state; returns the events that follow."""
    done.events.clear()
    for handler in list(done.handlers):
        options = handler.options
        if options.get('goal_state') == goal and options.get('start_state', start) == start \
                and options['target_lifecycle_node'] is done.process(name).action:
            done.visit(options['entities'])
            if options.get('handle_once'):
                done.handlers.remove(handler)
    return done.events


def test_the_bag_waits_for_all_nodes(replay: Launch, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH)
    done = replay(bag=str(bag), nodes='leveling,wrench_observer')
    asked = {event.options['lifecycle_node_matcher']: event.options['transition_id']
             for event in done.events}
    names = ('leveling', 'wrench_observer')
    assert asked == {
        done.process(name).action: Transition.TRANSITION_CONFIGURE for name in names}
    for name in names:
        assert [item.executable for item in done.started if item.executable == 'ros2'] == []
        (event,) = reach(done, name, 'inactive', 'configuring')
        assert event.options['transition_id'] == Transition.TRANSITION_ACTIVATE
        assert event.options['lifecycle_node_matcher'] is done.process(name).action
        # Deactivated by someone: that is no reason to activate it.
        assert reach(done, name, 'inactive', 'deactivating') == []
        reach(done, name, 'active')
    assert done.process('ros2').arguments[:2] == ['bag', 'play']
    reach(done, 'leveling', 'active')
    assert done.process('ros2')


def test_a_node_that_is_not_configured_is_reported(replay: Launch, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH, namespace='/left')
    done = replay(bag=str(bag), namespace='left', nodes='payload_identification')
    assert done.said == []
    reach(done, 'payload_identification', 'unconfigured')
    (said,) = done.said
    assert 'The bag waits for /left/payload_identification, which is not configured' in said
    assert 'ros2 lifecycle set /left/payload_identification configure' in said


def test_the_end_of_the_bag_is_reported(replay: Launch, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH, namespace='/left')
    done = replay(bag=str(bag), namespace='left')
    (handler,) = [item for item in done.handlers if 'on_exit' in item.options]
    ended = handler.options['on_exit']
    for code in (0, 1):
        done.visit([ended(SimpleNamespace(returncode=code), done)])
    good, bad = done.said
    assert 'The bag has ended' in good
    assert 'ros2 service call /left/<node>/estimate' in good
    # The nodes may have received a part of it, or nothing.
    assert 'has ended' not in bad
    assert 'exit code 1' in bad
    done.is_shutdown = True
    assert ended(SimpleNamespace(returncode=2), done) is None


def test_an_arm_in_a_namespace(replay: Launch, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH, namespace='/left')
    done = replay(bag=str(bag), namespace='left', rviz='true')
    assert {item.namespace for item in done.started} == {'/left'}
    assert done.process('rviz2').remappings == {'/tf': 'tf', '/tf_static': 'tf_static'}


@pytest.mark.parametrize('namespace', ['', 'right'])
def test_the_wrong_namespace_is_told_what_there_is(
    replay: Launch, tmp_path: Path, namespace: str
) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH, namespace='/left')
    with pytest.raises(ConfigurationError, match='/left/joint_states.* namespace'):
        replay(bag=str(bag), namespace=namespace)


def test_a_bag_without_an_arm_wants_one(replay: Launch, tmp_path: Path) -> None:
    bag = str(write_bag(tmp_path / 'bag', ('joint_states',)))
    with pytest.raises(ConfigurationError, match='no std_msgs/msg/String on /robot_description'):
        replay(bag=bag)
    robot = str(ROOT / 'test' / 'data' / 'two_joint.urdf')
    node = replay(bag=bag, robot=robot, nodes='leveling').process('leveling')
    assert '<robot' in node.values['robot_description']


def test_a_bag_without_joint_states_is_refused(replay: Launch, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', ('robot_description',))
    with pytest.raises(ConfigurationError, match='It has /robot_description.*joint_states too'):
        replay(bag=str(bag))


def test_what_is_no_bag_is_refused(replay: Launch, tmp_path: Path) -> None:
    (tmp_path / 'bag.mcap').write_bytes(b'no bag')
    with pytest.raises(FileFormatError, match=r'bag\.mcap'):
        replay(bag=str(tmp_path / 'bag.mcap'))


def test_the_player_must_be_installed(replay: Launch, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', BOTH)
    with pytest.raises(ConfigurationError, match='needs ros2bag, rosbag2_transport'):
        replay(installed=False, bag=str(bag))


@pytest.mark.parametrize(('name', 'text', 'said'), [
    ('bag', '', 'bag:=my_bag'), ('bag', '/nowhere', "bag is '/nowhere'"),
    ('rate', '-1', 'a number that is not negative'), ('nodes', 'payload', '; all; or none'),
])
def test_a_replay_that_makes_no_sense_is_refused(
    replay: Launch, tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        replay(**{'bag': str(tmp_path), name: text})

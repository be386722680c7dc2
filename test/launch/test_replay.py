# SPDX-License-Identifier: Apache-2.0
"""What replay.launch.py does: arm, namespace, clock and order, and the bags that it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lifecycle_msgs.msg import Transition
from support.bag_examples import JOINT_STATE, STRING, joint_state, text
from support.launch_stand_in import ROOT, Context, LifecycleNode

from robocal_ros.errors import ConfigurationError, FileFormatError
from robocal_ros.messages import BagWriter

TWO_JOINTS = ROOT / 'test' / 'data' / 'two_joint.urdf'
URDF = TWO_JOINTS.read_text(encoding='utf-8')
TOPICS = {'robot_description': (STRING, text(URDF)),
          'joint_states': (JOINT_STATE, joint_state(1.0))}
Launch = Callable[..., Context]


@pytest.fixture
def played(replay: Launch, tmp_path: Path) -> Launch:
    """Evaluates the launch file with a bag of one message on each of some topics."""
    def play(*topics: str, inside: str = '', **arguments: Any) -> Context:
        with BagWriter(tmp_path / 'bag') as bag:
            for topic in topics or TOPICS:
                kind, message = TOPICS[topic]
                bag.add(f'{inside}/{topic}', kind)
                bag.write(f'{inside}/{topic}', 0, message)
        return replay(bag=str(tmp_path / 'bag'), **arguments)

    return play


def test_the_nodes_take_the_arm_of_the_bag(played: Launch) -> None:
    node = played(nodes='leveling').process('leveling')
    assert isinstance(node.action, LifecycleNode)
    assert node.files == [str(ROOT / 'config' / 'leveling.yaml')]
    assert node.values == {'use_sim_time': True, 'autostart': False, 'robot_description': URDF}


def test_the_bag_is_played_on_its_own_clock(played: Launch, tmp_path: Path) -> None:
    words = played(nodes='none', rate='2.5').process('ros2').arguments
    assert words[:3] == ['bag', 'play', str(tmp_path / 'bag')]
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


def test_the_bag_waits_for_all_nodes(played: Launch) -> None:
    done = played(nodes='leveling,wrench_observer')
    asked = {event.options['lifecycle_node_matcher']: event.options['transition_id']
             for event in done.events}
    names = ('leveling', 'wrench_observer')
    assert asked == {done.process(name).action: Transition.TRANSITION_CONFIGURE for name in names}
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


def test_a_node_that_is_not_configured_is_reported(played: Launch) -> None:
    done = played(inside='/left', namespace='left', nodes='payload_identification')
    assert done.said == []
    reach(done, 'payload_identification', 'unconfigured')
    (said,) = done.said
    assert 'The bag waits for /left/payload_identification, which is not configured' in said
    assert 'ros2 lifecycle set /left/payload_identification configure' in said


def test_the_end_of_the_bag_is_reported(played: Launch) -> None:
    done = played(inside='/left', namespace='left')
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


def test_an_arm_in_a_namespace(played: Launch) -> None:
    done = played(inside='/left', namespace='left', rviz='true')
    assert {item.namespace for item in done.started} == {'/left'}
    assert done.process('rviz2').remappings == {'/tf': 'tf', '/tf_static': 'tf_static'}


@pytest.mark.parametrize(('topics', 'arguments', 'said'), [
    ((), {'inside': '/left', 'namespace': ''}, '/left/joint_states.* namespace'),
    ((), {'inside': '/left', 'namespace': 'right'}, '/left/joint_states.* namespace'),
    (('joint_states',), {}, 'no std_msgs/msg/String on /robot_description'),
    (('robot_description',), {}, 'It has /robot_description.*joint_states too'),
    ((), {'installed': False}, 'needs ros2bag, rosbag2_transport'),
])
def test_a_bag_that_cannot_be_played_is_refused(
    played: Launch, topics: tuple[str, ...], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        played(*topics, **arguments)


def test_a_bag_without_an_arm_gets_one(played: Launch) -> None:
    node = played('joint_states', robot=str(TWO_JOINTS), nodes='leveling').process('leveling')
    assert '<robot' in node.values['robot_description']


def test_what_is_no_bag_is_refused(replay: Launch, tmp_path: Path) -> None:
    (tmp_path / 'bag.mcap').write_bytes(b'no bag')
    with pytest.raises(FileFormatError, match=r'bag\.mcap'):
        replay(bag=str(tmp_path / 'bag.mcap'))


@pytest.mark.parametrize(('name', 'text', 'said'), [
    ('bag', '', 'bag:=my_bag'), ('bag', '/nowhere', "bag is '/nowhere'"),
    ('rate', '-1', 'a number that is not negative'), ('nodes', 'payload', '; all; or none'),
])
def test_a_replay_that_makes_no_sense_is_refused(
    replay: Launch, tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        replay(**{'bag': str(tmp_path), name: text})

# SPDX-License-Identifier: Apache-2.0
"""Everything in the layouts for RViz, PlotJuggler and Foxglove exists, and RViz shows all."""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rclpy
import yaml
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from support.parameter_files import node_classes
from support.ros_rig import PATIENCE, ROOT, arm_urdf, overrides

from robocal_ros.node.calibration_node import SUCCESS
from robocal_sim.node import SimArm

pytestmark = pytest.mark.usefixtures('ros')

FILE = ROOT / 'config' / 'robocal.rviz'
# What each display subscribes to.
TYPES = {
    'rviz_default_plugins/Effort': 'sensor_msgs/msg/JointState',
    'rviz_default_plugins/MarkerArray': 'visualization_msgs/msg/MarkerArray',
    'rviz_default_plugins/PointStamped': 'geometry_msgs/msg/PointStamped',
    'rviz_default_plugins/Pose': 'geometry_msgs/msg/PoseStamped',
    'rviz_default_plugins/RobotModel': 'std_msgs/msg/String',
    'rviz_default_plugins/Wrench': 'geometry_msgs/msg/WrenchStamped',
}
WITHOUT_TOPIC = {'rviz_default_plugins/Grid', 'rviz_default_plugins/TF'}
# Types that have a display of their own and nothing else that could be meant.
SHOWN = set(TYPES.values()) - {'std_msgs/msg/String', 'sensor_msgs/msg/JointState'}


def displays(level: list[dict[str, Any]], group: str = '') -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every display with the group that it is in."""
    for item in level:
        if item['Class'] == 'rviz_common/Group':
            yield from displays(item['Displays'], group or item['Name'])
        else:
            yield group, item


def topic_of(display: dict[str, Any]) -> dict[str, Any]:
    found = display.get('Topic', display.get('Description Topic'))
    assert isinstance(found, dict), display['Name']
    return found


DISPLAYS = list(displays(yaml.safe_load(FILE.read_text())['Visualization Manager']['Displays']))
LISTENING = [item for _, item in DISPLAYS if item['Class'] not in WITHOUT_TOPIC]


@pytest.fixture(scope='module')
def published(ros: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What the nodes and the simulated arm publish: endpoints by topic."""
    results: Path = tmp_path_factory.mktemp('results')
    # The tracker of the default cell measures points alone; this one measures poses too.
    given = (ROOT / 'config' / 'sim' / 'hidden_truth.yaml').read_text()
    truth = results / 'truth.yaml'
    frame = '  frame: tracker\n'
    truth.write_text(given.replace(frame, f'{frame}  orientation: true\n'))
    arm = SimArm(overrides(truth_file=str(truth)))
    nodes = [
        kind(name, parameter_overrides=overrides(
            robot_description=arm_urdf(), results_dir=str(results)))
        for name, kind in node_classes().items()]
    for node in nodes:
        assert node.trigger_configure() == SUCCESS, node.get_name()
    found: dict[str, list[Any]] = {}
    watcher = rclpy.create_node('watcher')
    wanted = {publisher.topic_name for node in (arm, *nodes) for publisher in node.publishers}
    end = time.monotonic() + PATIENCE
    # Discovery takes its time on a busy machine.
    while wanted - found.keys() and time.monotonic() < end:
        for topic in wanted:
            endpoints = watcher.get_publishers_info_by_topic(topic)
            if endpoints:
                found[topic] = endpoints
        time.sleep(0.05)
    for node in nodes:
        node.trigger_cleanup()
    for node in (watcher, arm, *nodes):
        node.destroy_node()
    return found


def test_groups_are_those_of_the_suite() -> None:
    groups = {group for group, _ in DISPLAYS}
    assert groups == {'Scene', 'Payload', 'Friction', 'Compliance', 'External wrench', 'Leveling',
                      'Sensors'}


def test_every_display_is_one_of_rviz() -> None:
    assert {item['Class'] for _, item in DISPLAYS} <= set(TYPES) | WITHOUT_TOPIC


def test_topics_are_relative() -> None:
    """RViz started in an arm's namespace shows that arm."""
    for item in LISTENING:
        assert not topic_of(item)['Value'].startswith('/'), item['Name']


@pytest.mark.parametrize('display', LISTENING, ids=lambda item: item['Name'].replace(' ', '_'))
def test_its_topic_exists_with_its_type_and_quality(
    published: dict[str, list[Any]], display: dict[str, Any]
) -> None:
    topic = topic_of(display)
    senders = published.get('/' + topic['Value'], [])
    assert senders, topic['Value']
    for sender in senders:
        assert sender.topic_type == TYPES[display['Class']]
        profile = sender.qos_profile
        if topic['Reliability Policy'] == 'Reliable':
            assert profile.reliability == ReliabilityPolicy.RELIABLE
        if topic['Durability Policy'] == 'Transient Local':
            assert profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
        latched = profile.durability == DurabilityPolicy.TRANSIENT_LOCAL and profile.depth == 1
        # What is sent once must reach who comes late.
        assert not latched or topic['Durability Policy'] == 'Transient Local'


def test_everything_that_rviz_can_show_is_in_it(published: dict[str, list[Any]]) -> None:
    shown = {'/' + topic_of(item)['Value'] for item in LISTENING}
    there = {topic for topic, senders in published.items()
             if any(sender.topic_type in SHOWN for sender in senders)}
    assert there - shown == set()


# ------------------------------------------------------------------ PlotJuggler, Foxglove

# Fields of a curve below its topic, as PlotJuggler flattens messages and Foxglove paths name them.
FIELDS = {
    'sensor_msgs/msg/JointState': r'/joint_[1-6]/(position|velocity|effort)|'
                                  r'\.(position|velocity|effort)\[[0-5]\]',
    'geometry_msgs/msg/WrenchStamped': r'([/.])wrench\1(force|torque)\1[xyz]',
}


def panels(node: Any) -> Iterator[str]:
    """Yield the names of the panels in a Foxglove layout's tree."""
    if isinstance(node, str):
        yield node
    else:
        for side in ('first', 'second'):
            yield from panels(node[side])


def curves() -> list[str]:
    """Return the curves of both layouts."""
    juggled = ElementTree.parse(ROOT / 'config' / 'robocal.plotjuggler.xml')
    fox = json.loads((ROOT / 'config' / 'robocal.foxglove.json').read_text())
    return [curve.get('name', '') for curve in juggled.iter('curve')] + [
        path['value'] for panel in fox['configById'].values() for path in panel.get('paths', ())]


@pytest.mark.parametrize('curve', curves())
def test_every_curve_is_a_field_of_a_topic_that_exists(
    published: dict[str, list[Any]], curve: str
) -> None:
    topic = max((name for name in published if re.match(re.escape(name) + r'[./]', curve)),
                key=len, default='')
    assert topic, f'no node publishes {curve}'
    (kind,) = {sender.topic_type for sender in published[topic]}
    assert re.fullmatch(FIELDS[kind], curve.removeprefix(topic)), kind


def test_the_foxglove_layout_is_whole(published: dict[str, list[Any]]) -> None:
    fox = json.loads((ROOT / 'config' / 'robocal.foxglove.json').read_text())
    configured = fox['configById']
    tabs = [tab['layout'] for panel in configured.values() for tab in panel.get('tabs', ())]
    assert sorted([*panels(fox['layout']), *tabs]) == sorted(configured)
    topics = {topic for panel in configured.values() for topic in panel.get('topics', ())}
    topics |= {panel['topicPath'] for panel in configured.values() if 'topicPath' in panel}
    assert topics - published.keys() == set()


def test_the_plotjuggler_layout_is_whole() -> None:
    for splitter in ElementTree.parse(
            ROOT / 'config' / 'robocal.plotjuggler.xml').iter('DockSplitter'):
        areas = splitter.findall('DockArea')
        assert len(areas) == int(splitter.get('count', '0')) == len(
            splitter.get('sizes', '').split(';'))
        assert all(len(area.findall('plot')) == 1 for area in areas)

# SPDX-License-Identifier: Apache-2.0
"""The launch files through the real `launch`, where it is installed."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
REASON = ('launch and launch_ros are not installed: they come with ROS distributions, not from '
          'PyPI; what the launch files decide is tested without them')
# The folder of the launch files has the package's name, so that only a module of it can tell.
actions = pytest.importorskip('launch.actions', reason=REASON)
launch_ros = pytest.importorskip('launch_ros.actions', reason=REASON)


def loaded(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / 'launch' / name))


def started(name: str, **texts: str) -> list[Any]:
    """Return what a launch file starts with these arguments."""
    from launch import LaunchContext

    module = loaded(name)
    context = LaunchContext()
    for entity in module['generate_launch_description']().entities:
        if isinstance(entity, actions.DeclareLaunchArgument):
            context.launch_configurations.setdefault(entity.name, texts.get(
                entity.name, entity.default_value[0].text if entity.default_value else ''))
    return list(module['start'](context))


@pytest.mark.parametrize('name', ['bringup.launch.py', 'replay.launch.py'])
def test_every_argument_is_declared_with_a_description(name: str) -> None:
    entities = loaded(name)['generate_launch_description']().entities
    declared = [item for item in entities if isinstance(item, actions.DeclareLaunchArgument)]
    assert len(declared) > 5
    for item in declared:
        assert item.default_value is not None, item.name
        assert item.description.endswith('.') or item.choices, item.name


def test_bringup_makes_lifecycle_nodes_in_the_namespace() -> None:
    from launch import LaunchContext

    found = started('bringup.launch.py', namespace='left', nodes='leveling,wrench_observer')
    nodes = [item for item in found if isinstance(item, launch_ros.LifecycleNode)]
    for node in nodes:
        node._perform_substitutions(LaunchContext())
    assert [node.node_name for node in nodes] == ['/left/leveling', '/left/wrench_observer']


def test_a_refusal_is_a_sentence() -> None:
    from robocal_ros.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match='or all, or none'):
        started('bringup.launch.py', nodes='everything')

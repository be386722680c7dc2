# SPDX-License-Identifier: Apache-2.0
"""The launch files through the real `launch`, where it is installed."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
REASON = ('launch and launch_ros are not installed: they come with ROS distributions, not from '
          'PyPI; the other tests of this folder evaluate the launch files with a stand-in')
# The folder of the launch files has the package's name, so that only a module of it can tell.
pytest.importorskip('launch.actions', reason=REASON)
pytest.importorskip('launch_ros.actions', reason=REASON)


def described(name: str) -> Any:
    return runpy.run_path(str(ROOT / 'launch' / name))['generate_launch_description']()


@pytest.mark.parametrize('name', ['bringup.launch.py', 'replay.launch.py'])
def test_every_argument_is_declared_with_a_description(name: str) -> None:
    declared = described(name).get_launch_arguments()
    assert len(declared) == {'bringup.launch.py': 13, 'replay.launch.py': 8}[name]
    for item in declared:
        assert item.default_value is not None, item.name
        assert item.description.endswith('.') or item.choices, item.name


def run(name: str, *entities: Any, **arguments: str) -> int:
    """Launch a file with arguments, and further entities; returns the exit code."""
    from launch import LaunchDescription, LaunchService
    from launch.actions import IncludeLaunchDescription

    service = LaunchService(noninteractive=True)
    service.include_launch_description(LaunchDescription([
        IncludeLaunchDescription(
            str(ROOT / 'launch' / name), launch_arguments=arguments.items()),
        *entities]))
    return int(service.run())


@pytest.mark.parametrize(('name', 'arguments', 'said'), [
    ('bringup.launch.py', {'nodes': 'everything'}, '; all; or none'),
    ('bringup.launch.py', {'autostart': 'yes'}, "['true', 'false', 'True', 'False']"),
    ('replay.launch.py', {'nodes': 'all'}, 'bag:=my_bag'),
])
def test_a_refusal_is_a_sentence(
    name: str, arguments: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(name, **arguments) == 1
    assert said in caplog.text


def test_a_node_starts_on_the_simulated_arm_and_is_configured() -> None:
    from launch import Condition
    from launch.actions import EmitEvent, RegisterEventHandler, Shutdown, TimerAction
    from launch_ros.event_handlers import OnStateTransition
    from launch_ros.events import matches_node_name
    from launch_ros.events.lifecycle import ChangeState
    from lifecycle_msgs.msg import Transition

    reached: list[str] = []
    done = Shutdown(reason='configured', condition=Condition(
        predicate=lambda _: reached.append('inactive') is None))
    code = run(
        'bringup.launch.py',
        RegisterEventHandler(OnStateTransition(goal_state='inactive', entities=[done])),
        EmitEvent(event=ChangeState(
            lifecycle_node_matcher=matches_node_name('/left/leveling'),
            transition_id=Transition.TRANSITION_CONFIGURE)),
        TimerAction(period=60.0, actions=[Shutdown(reason='nothing happened')]),
        nodes='leveling', autostart='false', namespace='left')
    assert code == 0
    assert reached == ['inactive']

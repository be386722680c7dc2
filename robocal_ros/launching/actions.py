# SPDX-License-Identifier: Apache-2.0
"""From what there is to start to the actions of `launch`: the only part that needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from launch.action import Action
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    Shutdown,
)
from launch.event_handlers import OnProcessExit
from launch.events import matches_action
from launch.events.process import ProcessExited
from launch.launch_context import LaunchContext
from launch.launch_description_sources import AnyLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import LifecycleNode, Node
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare
from lifecycle_msgs.msg import Transition

from robocal_ros.launching.arguments import Argument
from robocal_ros.launching.processes import Command, Inclusion, Item, Process, Remark
from robocal_ros.launching.replay import Replay


def declared(arguments: Sequence[Argument]) -> list[Action]:
    """Return the declarations of launch arguments."""
    return [
        DeclareLaunchArgument(
            item.name, default_value=item.default, description=item.description,
            choices=list(item.choices) or None)
        for item in arguments
    ]


def given(context: LaunchContext, arguments: Sequence[Argument]) -> dict[str, str]:
    """Return the values of launch arguments by name."""
    return {item.name: LaunchConfiguration(item.name).perform(context) for item in arguments}


def actions_of(items: Iterable[Item]) -> list[Action]:
    """Return the actions that start everything."""
    return [_action(item) for item in items]


def replay_actions(replay: Replay) -> list[Action]:
    """Return the actions that start the nodes, and the bag once all of them are active."""
    nodes = [_node(process) for process in replay.nodes]
    player = ExecuteProcess(cmd=list(replay.player.words), name='player', output='screen')
    waiting = {process.name for process in replay.nodes}

    def started(name: str) -> OpaqueFunction:
        def begin(context: LaunchContext) -> list[Action]:
            if name not in waiting:
                return []
            waiting.discard(name)
            return [] if waiting else [player]

        return OpaqueFunction(function=begin)

    actions: list[Action] = []
    for process, node in zip(replay.nodes, nodes, strict=True):
        actions += [
            RegisterEventHandler(OnStateTransition(
                target_lifecycle_node=node, start_state='configuring', goal_state='inactive',
                entities=[_transition(node, Transition.TRANSITION_ACTIVATE)])),
            RegisterEventHandler(OnStateTransition(
                target_lifecycle_node=node, goal_state='active',
                entities=[started(process.name)])),
            RegisterEventHandler(OnStateTransition(
                target_lifecycle_node=node, goal_state='unconfigured',
                entities=[LogInfo(msg=replay.waits(process))])),
            node,
            _transition(node, Transition.TRANSITION_CONFIGURE),
        ]
    def ended(event: ProcessExited, context: LaunchContext) -> list[Action]:
        return [] if context.is_shutdown else [LogInfo(msg=replay.ended(event.returncode))]

    actions.append(RegisterEventHandler(OnProcessExit(target_action=player, on_exit=ended)))
    return [*actions, *actions_of(replay.beside), *([] if nodes else [player])]


def _transition(node: LifecycleNode, transition: int) -> EmitEvent:
    return EmitEvent(event=ChangeState(
        lifecycle_node_matcher=matches_action(node), transition_id=transition))


def _action(item: Item) -> Action:
    match item:
        case Process():
            return _node(item)
        case Inclusion():
            return IncludeLaunchDescription(
                AnyLaunchDescriptionSource(
                    PathJoinSubstitution([FindPackageShare(item.package), item.file])),
                launch_arguments=list(item.arguments.items()))
        case Command():
            return ExecuteProcess(cmd=list(item.words), output='screen')
        case Remark():
            return LogInfo(msg=item.text)


def _node(process: Process) -> Node:
    options: dict[str, Any] = {
        'package': process.package,
        'executable': process.executable,
        'namespace': process.namespace,
        'parameters': [_parameters(entry) for entry in process.parameters],
        'remappings': list(process.remappings),
        'arguments': list(process.arguments),
        'output': 'screen',
    }
    if process.name:
        options['name'] = process.name
    if process.required:
        options['on_exit'] = _ending(process.name or process.executable)
    return LifecycleNode(**options) if process.lifecycle else Node(**options)


def _ending(name: str) -> OpaqueFunction:
    """Return what ends everything, unless that is why the process ended."""
    def end(context: LaunchContext) -> list[Action]:
        return [] if context.is_shutdown else [Shutdown(reason=f'{name} has ended')]

    return OpaqueFunction(function=end)


def _parameters(entry: str | Mapping[str, Any]) -> Any:
    """Return a parameter file's path, or values whose types are kept: a URDF is no YAML."""
    if isinstance(entry, str):
        return entry
    return {name: ParameterValue(value, value_type=type(value)) for name, value in entry.items()}

# SPDX-License-Identifier: Apache-2.0
"""Play a bag to the nodes, with its clock; call their service estimate when it has ended.

    ros2 launch robocal_ros replay.launch.py bag:=my_bag nodes:=payload_identification
    ros2 launch robocal_ros replay.launch.py --show-args
"""

from launch import LaunchContext, LaunchDescription
from launch.action import Action
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    GroupAction,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    SetLaunchConfiguration,
)
from launch.conditions import IfCondition
from launch.event_handlers import OnProcessExit
from launch.events import matches_action
from launch.events.process import ProcessExited
from launch.substitutions import (
    Command,
    EqualsSubstitution,
    IfElseSubstitution,
    LaunchConfiguration,
    NotEqualsSubstitution,
    PathJoinSubstitution,
    PythonExpression,
)
from launch_ros.actions import LifecycleNode, Node
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare
from lifecycle_msgs.msg import Transition

from robocal_ros import launching, registry

ARGUMENTS = [
    DeclareLaunchArgument(
        'bag', default_value='',
        description='The bag to play: a rosbag2 folder or file. Must be given.'),
    DeclareLaunchArgument(
        'nodes', default_value='all',
        description=f'Nodes to start, separated by commas: {", ".join(registry.nodes())}; all; or '
        'none.'),
    DeclareLaunchArgument(
        'robot', default_value='',
        description='URDF or xacro file of the arm; empty for the robot_description in the bag.'),
    DeclareLaunchArgument(
        'robot_args', default_value='', description='Arguments of the xacro file.'),
    DeclareLaunchArgument(
        'namespace', default_value='',
        description='Namespace of the arm: of all nodes, topics and services.'),
    DeclareLaunchArgument(
        'params_file', default_value='',
        description='Parameter file of the nodes; empty for the defaults, config/<node>.yaml. '
        'Keys such as /**/payload_identification match every namespace.'),
    DeclareLaunchArgument(
        'rate', default_value='1.0',
        description='Playback speed; 1.0 is that of the recording.'),
    DeclareLaunchArgument(
        'rviz', default_value='false', choices=['true', 'false', 'True', 'False'],
        description='Whether to start RViz on config/robocal.rviz.'),
]

ROBOT = LaunchConfiguration('robot')
NAMESPACE = LaunchConfiguration('namespace')
NODES = LaunchConfiguration('nodes')
PARAMS_FILE = LaunchConfiguration('params_file')
CONFIG = PathJoinSubstitution([FindPackageShare('robocal_ros'), 'config'])


def check_arguments(context: LaunchContext) -> None:
    """Check the arguments and the bag, and complete the arguments."""
    texts = context.launch_configurations
    texts.update(launching.checked(texts))
    launching.require(('ros2bag', 'rosbag2_transport'), 'replay.launch.py')
    texts['robot_description'] = launching.description_in(
        texts['bag'], texts['namespace'], needed=not texts['robot'])


def transition(node: LifecycleNode, number: int) -> EmitEvent:
    """Return the request of a lifecycle transition."""
    return EmitEvent(event=ChangeState(
        lifecycle_node_matcher=matches_action(node), transition_id=number))


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and the actions."""
    # A recorded /clock would compete with the player's. The delay covers discovery: messages
    # played before the nodes have discovered the player are lost. Discovery takes a tenth of a
    # second, or DDS's period of announcements.
    player = ExecuteProcess(name='player', output='screen', cmd=[
        'ros2', 'bag', 'play', LaunchConfiguration('bag'), '--clock', '100',
        '--rate', LaunchConfiguration('rate'), '--delay', '4.0',
        '--exclude-topics', '/clock', '--disable-keyboard-controls'])

    def has_ended(event: ProcessExited, context: LaunchContext) -> LogInfo | None:
        """Return what is shown when the player has ended."""
        if context.is_shutdown:
            return None
        if event.returncode:
            return LogInfo(msg='The bag was not played to its end: the player ended with exit '
                               f'code {event.returncode}. See its output above.')
        return LogInfo(msg=[
            'The bag has ended. To estimate from the recorded samples: '
            'ros2 service call ', NAMESPACE, '/<node>/estimate std_srvs/srv/Trigger'])

    active: set[str] = set()

    def is_active(context: LaunchContext, name: str) -> list[Action]:
        """Return the player once all nodes are active."""
        active.add(name)
        return [player] if active == set(NODES.perform(context).split(',')) else []

    def replayed(name: str) -> GroupAction:
        """Return the actions that configure and activate a node; the last one starts the bag."""
        # Without autostart, so that the launch file knows when the node has subscribed.
        node = LifecycleNode(
            package='robocal_ros', executable=name, name=name, namespace=NAMESPACE,
            output='screen', parameters=[
                IfElseSubstitution(
                    EqualsSubstitution(PARAMS_FILE, ''),
                    PathJoinSubstitution([CONFIG, f'{name}.yaml']), PARAMS_FILE),
                {'robot_description': ParameterValue(
                    LaunchConfiguration('robot_description'), value_type=str),
                 'use_sim_time': True, 'autostart': False}])
        wanted = PythonExpression([f"'{name}' in '", NODES, "'"])
        return GroupAction(scoped=False, condition=IfCondition(wanted), actions=[
            RegisterEventHandler(OnStateTransition(
                target_lifecycle_node=node, start_state='configuring', goal_state='inactive',
                entities=[transition(node, Transition.TRANSITION_ACTIVATE)])),
            RegisterEventHandler(OnStateTransition(
                target_lifecycle_node=node, goal_state='active', handle_once=True,
                entities=[OpaqueFunction(function=is_active, args=[name])])),
            RegisterEventHandler(OnStateTransition(
                target_lifecycle_node=node, goal_state='unconfigured', entities=[LogInfo(msg=[
                    'The bag waits for ', NAMESPACE, f'/{name}, which is not configured. Correct '
                    'the error above, for instance with ros2 param set, and call: '
                    'ros2 lifecycle set ', NAMESPACE, f'/{name} configure'])])),
            node,
            transition(node, Transition.TRANSITION_CONFIGURE),
        ])

    return LaunchDescription([
        *ARGUMENTS,
        OpaqueFunction(function=check_arguments),
        SetLaunchConfiguration(
            'robot_description',
            Command(['xacro "', ROBOT, '" ', LaunchConfiguration('robot_args')],
                    on_stderr='warn'),
            condition=IfCondition(NotEqualsSubstitution(ROBOT, ''))),
        RegisterEventHandler(OnProcessExit(target_action=player, on_exit=has_ended)),
        *(replayed(name) for name in registry.nodes()),
        GroupAction(scoped=False, condition=IfCondition(EqualsSubstitution(NODES, '')),
                    actions=[player]),
        Node(package='rviz2', executable='rviz2', name='rviz', namespace=NAMESPACE,
             output='screen', remappings=[('/tf', 'tf'), ('/tf_static', 'tf_static')],
             arguments=['-d', PathJoinSubstitution([CONFIG, 'robocal.rviz'])],
             parameters=[{'use_sim_time': True}],
             condition=IfCondition(LaunchConfiguration('rviz'))),
    ])

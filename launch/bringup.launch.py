# SPDX-License-Identifier: Apache-2.0
"""Start the nodes and the arm they work on: simulated, mock, in Gazebo, or a running driver's.

    ros2 launch robocal_ros bringup.launch.py hardware:=sim
    ros2 launch robocal_ros bringup.launch.py hardware:=real params_file:=my_robot.yaml
    ros2 launch robocal_ros bringup.launch.py --show-args
"""

from launch import Condition, LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    GroupAction,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
    SetLaunchConfiguration,
    Shutdown,
)
from launch.conditions import IfCondition, UnlessCondition
from launch.events.process import ProcessExited
from launch.substitutions import (
    AndSubstitution,
    Command,
    EqualsSubstitution,
    IfElseSubstitution,
    LaunchConfiguration,
    PathJoinSubstitution,
    PythonExpression,
)
from launch_ros.actions import LifecycleNode, Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from robocal_ros import launching, registry

BOOLEAN = ['true', 'false', 'True', 'False']
ARGUMENTS = [
    DeclareLaunchArgument(
        'hardware', default_value='sim', choices=['sim', 'mock', 'gazebo', 'real'],
        description='sim: the simulated arm of this package. mock: ros2_control on '
        'mock_components. gazebo: ros2_control in Gazebo. real: the controllers of a running '
        'driver.'),
    DeclareLaunchArgument(
        'controller', default_value='simulated', choices=['simulated', 'real'],
        description='What moves the simulated arm. simulated: its own controller. real: '
        'ros2_control, with the arm as its hardware.'),
    DeclareLaunchArgument(
        'nodes', default_value='all',
        description=f'Nodes to start, separated by commas: {", ".join(registry.nodes())}; all; or '
        'none.'),
    DeclareLaunchArgument(
        'robot', default_value='',
        description="URDF or xacro file of the arm; empty for the package's own arm, or with "
        'hardware:=real for the topic robot_description.'),
    DeclareLaunchArgument(
        'robot_args', default_value='',
        description='Arguments of the xacro file, such as "ur_type:=ur10e name:=ur". hardware, '
        'namespace and controllers_file are passed automatically.'),
    DeclareLaunchArgument(
        'namespace', default_value='',
        description='Namespace of the arm: of all nodes, topics and services.'),
    DeclareLaunchArgument(
        'joint_states', default_value='joint_states',
        description='Topic of the joint states of the nodes, where another one has the efforts or '
        'the full rate, such as franka/joint_states.'),
    DeclareLaunchArgument(
        'params_file', default_value='',
        description='Parameter file of the nodes; empty for the defaults, config/<node>.yaml. '
        'Keys such as /**/payload_identification match every namespace.'),
    DeclareLaunchArgument(
        'controllers_file', default_value='',
        description='ros2_control parameter file for mock, gazebo and controller:=real; empty '
        "for config/controllers.yaml, which is for the package's own arm."),
    DeclareLaunchArgument(
        'use_sim_time', default_value='auto', choices=['auto', *BOOLEAN],
        description='Whether to use /clock; auto: with sim and gazebo.'),
    DeclareLaunchArgument(
        'autostart', default_value='true', choices=BOOLEAN,
        description='Whether the nodes configure and activate themselves.'),
    DeclareLaunchArgument(
        'rviz', default_value='false', choices=BOOLEAN,
        description='Whether to start RViz on config/robocal.rviz.'),
    DeclareLaunchArgument(
        'real_time_factor', default_value='1.0',
        description='Speed of the simulated arm; 0.0 for as fast as the nodes keep up.'),
    DeclareLaunchArgument(
        'truth_file', default_value='',
        description="Hidden parameters of the simulated arm; empty: config/sim/hidden_truth.yaml "
        "for the package's own arm, an ideal arm otherwise; none: an ideal arm."),
    DeclareLaunchArgument(
        'cell_file', default_value='reference',
        description='Noise of the simulated sensors; reference: config/sim/reference_cell.yaml; '
        'none: no noise.'),
]

SHARE = FindPackageShare('robocal_ros')
HARDWARE = LaunchConfiguration('hardware')
# As the xacro file has it, which chooses a <ros2_control> block by it.
CONTROL = IfElseSubstitution(
    EqualsSubstitution(LaunchConfiguration('controller'), 'real'), 'topic', HARDWARE)
ROBOT = LaunchConfiguration('robot')
NAMESPACE = LaunchConfiguration('namespace')
CONTROLLERS_FILE = LaunchConfiguration('controllers_file')
DESCRIPTION = LaunchConfiguration('robot_description')
# A process that ends during a shutdown does not request another one.
RUNNING = Condition(predicate=lambda context: not context.is_shutdown)
TF_IN_NAMESPACE = [('/tf', 'tf'), ('/tf_static', 'tf_static')]


def check_arguments(context: LaunchContext) -> None:
    """Check and complete the arguments."""
    context.launch_configurations.update(launching.checked(context.launch_configurations))


def spawn_controllers(context: LaunchContext) -> list[Node]:
    """Return the spawner of the controllers that the parameter file names."""
    names = launching.controllers(
        *(item.perform(context) for item in (CONTROL, CONTROLLERS_FILE, DESCRIPTION)))
    # The manager's name is relative to the spawner's namespace.
    return [Node(
        package='controller_manager', executable='spawner', namespace=NAMESPACE, output='screen',
        arguments=[*names, '--controller-manager', 'controller_manager'],
        on_exit=after_spawning)]


def set_command_rate(context: LaunchContext) -> None:
    """Tell the simulated arm how often it is commanded; never by its own controller."""
    real = CONTROL.perform(context) == 'topic'
    context.launch_configurations['command_rate'] = str(
        launching.update_rate(CONTROLLERS_FILE.perform(context)) if real else 0.0)


def after_spawning(event: ProcessExited, context: LaunchContext) -> Shutdown | None:
    """End the launch if a controller could not be loaded: no node could move the arm."""
    if event.returncode == 0 or context.is_shutdown:
        return None
    return Shutdown(reason=f'the spawner of the controllers failed (exit code {event.returncode});'
                           ' its last lines name the controller')


def bridge_gazebo(context: LaunchContext) -> list[Node]:
    """Return the bridge of Gazebo's clock and the arm's sensors to ROS."""
    return [Node(
        package='ros_gz_bridge', executable='parameter_bridge', name='gazebo_bridge',
        namespace=NAMESPACE, output='screen', parameters=[{'use_sim_time': True}],
        arguments=['/clock@rosgraph_msgs/msg/Clock[gz.msgs.Clock',
                   *launching.gazebo_bridges(DESCRIPTION.perform(context))],
        on_exit=Shutdown(reason='gazebo_bridge has ended', condition=RUNNING))]


def hardware_is(*names: str) -> PythonExpression:
    """Return whether the argument hardware is one of these names."""
    return PythonExpression(["'", HARDWARE, f"' in {names}"])


def config(*path: str) -> PathJoinSubstitution:
    """Return the path of one of the package's parameter files."""
    return PathJoinSubstitution([SHARE, 'config', *path])


def given_or(name: str, default: PathJoinSubstitution | IfElseSubstitution) -> IfElseSubstitution:
    """Return the file that an argument names, or a default if it is empty."""
    given = LaunchConfiguration(name)
    return IfElseSubstitution(EqualsSubstitution(given, ''), default, given)


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and the actions."""
    use_sim_time = IfElseSubstitution(
        EqualsSubstitution(LaunchConfiguration('use_sim_time'), 'auto'),
        hardware_is('sim', 'gazebo'), LaunchConfiguration('use_sim_time'))
    description = {'robot_description': ParameterValue(DESCRIPTION, value_type=str)}
    # Every simulated arm publishes its own clock.
    clock = [('/clock', IfElseSubstitution(hardware_is('sim'), 'clock', '/clock'))]

    prepare = [
        OpaqueFunction(function=check_arguments),
        SetLaunchConfiguration(
            'controllers_file', given_or('controllers_file', config('controllers.yaml'))),
        OpaqueFunction(function=set_command_rate),
        # Expanded once, not by every node; empty, for the topic, with real and no file.
        SetLaunchConfiguration('robot_description', ''),
        SetLaunchConfiguration(
            'robot_description',
            Command(['xacro "', given_or('robot', PathJoinSubstitution(
                [SHARE, 'urdf', 'robocal_arm.urdf.xacro'])),
                '" hardware:=', CONTROL, ' namespace:=', NAMESPACE,
                ' "controllers_file:=', CONTROLLERS_FILE, '" ', LaunchConfiguration('robot_args')],
                on_stderr='warn'),
            condition=UnlessCondition(AndSubstitution(
                EqualsSubstitution(HARDWARE, 'real'), EqualsSubstitution(ROBOT, '')))),
    ]

    cell_file = IfElseSubstitution(
        EqualsSubstitution(LaunchConfiguration('cell_file'), 'reference'),
        config('sim', 'reference_cell.yaml'), LaunchConfiguration('cell_file'))
    sim = Node(
        package='robocal_ros', executable='sim_arm', name='sim_arm', namespace=NAMESPACE,
        output='screen', remappings=clock,
        parameters=[given_or('params_file', config('sim', 'sim_arm.yaml')), {
            **description,
            'real_time_factor': ParameterValue(
                LaunchConfiguration('real_time_factor'), value_type=float),
            'command_rate': ParameterValue(
                LaunchConfiguration('command_rate'), value_type=float),
            'truth_file': ParameterValue(LaunchConfiguration('truth_file'), value_type=str),
            'cell_file': ParameterValue(cell_file, value_type=str)}],
        on_exit=Shutdown(reason='sim_arm has ended', condition=RUNNING),
        condition=IfCondition(hardware_is('sim')))

    def ros2_control(kind: str, remappings: list[tuple[str, IfElseSubstitution]]) -> GroupAction:
        # The manager subscribes to the robot's description in its own namespace. Its controllers
        # inherit its remappings, and it warns of them.
        return GroupAction(scoped=False, actions=[
            OpaqueFunction(function=spawn_controllers),
            Node(package='controller_manager', executable='ros2_control_node',
                 namespace=NAMESPACE, output='screen', remappings=remappings,
                 parameters=[CONTROLLERS_FILE, {'use_sim_time': use_sim_time}],
                 on_exit=Shutdown(reason='ros2_control_node has ended', condition=RUNNING)),
        ], condition=IfCondition(EqualsSubstitution(CONTROL, kind)))

    gazebo = GroupAction(scoped=False, condition=IfCondition(hardware_is('gazebo')), actions=[
        OpaqueFunction(function=spawn_controllers),
        IncludeLaunchDescription(
            PathJoinSubstitution([FindPackageShare('ros_gz_sim'), 'launch', 'gz_sim.launch.py']),
            launch_arguments={'gz_args': ['-r ', config('gazebo', 'world.sdf')]}.items()),
        Node(package='ros_gz_sim', executable='create', namespace=NAMESPACE, output='screen',
             arguments=['-topic', [NAMESPACE, '/robot_description'], '-name', 'arm',
                        '-allow_renaming', 'true']),
        OpaqueFunction(function=bridge_gazebo),
    ])

    if launching.is_installed('robot_state_publisher'):
        state_publisher = Node(
            package='robot_state_publisher', executable='robot_state_publisher',
            name='robot_state_publisher', namespace=NAMESPACE, output='screen',
            remappings=[*TF_IN_NAMESPACE, *clock],
            parameters=[{**description, 'use_sim_time': use_sim_time}],
            condition=UnlessCondition(hardware_is('real')))
    else:
        state_publisher = LogInfo(
            msg='robot_state_publisher is not installed, so /tf is not published. RViz needs it; '
            'the nodes do not.', condition=IfCondition(hardware_is('sim')))

    def defaults(name: str) -> IfElseSubstitution:
        return IfElseSubstitution(
            hardware_is('sim'), config('sim', 'nodes.yaml'), config(f'{name}.yaml'))

    nodes = [
        LifecycleNode(
            package='robocal_ros', executable=name, name=name, namespace=NAMESPACE,
            # Each has security artifacts of its own, without effect unless security is enabled.
            output='screen', ros_arguments=['--enclave', f'/{name}'],
            remappings=[*clock, ('joint_states', LaunchConfiguration('joint_states'))],
            # Arguments override the file.
            parameters=[given_or('params_file', defaults(name)), {
                **description, 'use_sim_time': use_sim_time,
                'autostart': LaunchConfiguration('autostart')}],
            condition=IfCondition(PythonExpression(
                [f"'{name}' in '", LaunchConfiguration('nodes'), "'"])))
        for name in registry.nodes()
    ]

    rviz = Node(
        package='rviz2', executable='rviz2', name='rviz', namespace=NAMESPACE, output='screen',
        arguments=['-d', config('robocal.rviz')], remappings=[*TF_IN_NAMESPACE, *clock],
        parameters=[{'use_sim_time': use_sim_time}],
        condition=IfCondition(LaunchConfiguration('rviz')))

    return LaunchDescription([
        *ARGUMENTS, *prepare, sim, ros2_control('mock', []), ros2_control('topic', clock), gazebo,
        state_publisher, *nodes, rviz])

# SPDX-License-Identifier: Apache-2.0
"""Start the payload node, and with ``hardware:=sim`` the simulated arm it works on.

    ros2 launch robocal_ros bringup.launch.py hardware:=sim
    ros2 launch robocal_ros bringup.launch.py hardware:=real params_file:=my_robot.yaml
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.conditions import LaunchConfigurationEquals
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode, Node
from launch_ros.parameter_descriptions import ParameterValue

CONFIG = Path(get_package_share_directory('robocal_ros')) / 'config'

ARGUMENTS = (
    ('hardware', 'sim', 'sim: start the simulated arm; real: use the running driver.'),
    ('namespace', '', 'Namespace of all nodes and topics.'),
    ('params_file', str(CONFIG / 'payload_identification.yaml'), 'Parameters of the node.'),
    ('use_sim_time', 'true', 'Follow /clock; false with hardware:=real.'),
    ('autostart', 'true', 'Configure and activate at start.'),
    ('real_time_factor', '1.0', 'Speed of the simulated arm; 0 as fast as can be.'),
)


def generate_launch_description() -> LaunchDescription:
    """Return what is to be started."""
    argument = LaunchConfiguration
    use_sim_time = ParameterValue(argument('use_sim_time'), value_type=bool)
    return LaunchDescription([
        *(DeclareLaunchArgument(name, default_value=default, description=description)
          for name, default, description in ARGUMENTS),
        Node(
            package='robocal_ros', executable='sim_arm', name='sim_arm', output='screen',
            namespace=argument('namespace'),
            condition=LaunchConfigurationEquals('hardware', 'sim'),
            parameters=[{
                'truth_file': str(CONFIG / 'sim' / 'hidden_truth.yaml'),
                'cell_file': str(CONFIG / 'sim' / 'reference_cell.yaml'),
                'real_time_factor': ParameterValue(argument('real_time_factor'), value_type=float),
            }],
        ),
        LifecycleNode(
            package='robocal_ros', executable='payload_identification',
            name='payload_identification', output='screen', namespace=argument('namespace'),
            parameters=[argument('params_file'), {
                'use_sim_time': use_sim_time,
                'autostart': ParameterValue(argument('autostart'), value_type=bool),
            }],
        ),
    ])

# SPDX-License-Identifier: Apache-2.0
"""Parameters that capabilities share: of all that know the robot, and of all that move it."""

from __future__ import annotations

from dataclasses import dataclass

from robocal_ros.core.parameters import parameter


@dataclass(frozen=True)
class RobotParameters:
    """Parameters of every node that knows the robot."""

    autostart: bool = parameter(
        False, 'Configure and activate at start, without a lifecycle manager.')
    robot_description: str = parameter(
        '', 'URDF text; when empty it is taken from the topic robot_description.')
    description_timeout: float = parameter(
        5.0, 'Longest wait for the topic robot_description.', unit='s', minimum=0.1,
        maximum=600.0)
    robot_name: str = parameter(
        '', 'Name under which results are filed; the name in the URDF when empty. Give two arms '
        'of one type two names.')
    tool_frame: str = parameter(
        'tool0', 'Frame of the flange or tool in which results are expressed; the arm is the '
        'chain from the root to it.')
    joints: list[str] = parameter(
        [''], "The arm's joints; [''] for all movable joints from the root to tool_frame.")
    gravity: list[float] = parameter(
        [0.0, 0.0, -9.81], 'Gravity in the root frame of the URDF, for bases that do not stand '
        'upright.', unit='m/s²', minimum=-30.0, maximum=30.0)
    effort_source: str = parameter(
        'torque', 'What the effort field of joint_states holds: link-side torque in N·m, or '
        'motor current in A.', choices=('torque', 'current'))
    torque_constants: list[float] = parameter(
        [1.0], 'With effort_source current: torque constants, one per joint or one for all.',
        unit='N·m/A', minimum=-1e4, maximum=1e4)
    gear_ratios: list[float] = parameter(
        [1.0], 'With effort_source current: gear ratios, one per joint or one for all.',
        minimum=-1e5, maximum=1e5)
    use_drive_gains: bool = parameter(
        True, 'Divide efforts by the effort scales of calibrate_gains, when there is a result.')
    results_dir: str = parameter(
        '', 'Folder of the result files; ~/.ros/robocal/<robot> when empty.')


@dataclass(frozen=True)
class ArmParameters(RobotParameters):
    """Parameters of every node that moves the arm."""

    controller: str = parameter(
        'joint_trajectory_controller', 'Name of the joint trajectory controller.')
    connect_timeout: float = parameter(
        5.0, 'Longest wait for joint states and controller when run is called.', unit='s',
        minimum=0.1, maximum=600.0)
    speed_scale: float = parameter(
        1.0, 'Scales the speed of every motion.', minimum=0.01, maximum=1.0)
    max_velocity: float = parameter(
        1.0, 'Fastest joint speed of moves between postures, besides the limits of the URDF.',
        unit='rad/s', minimum=0.01, maximum=10.0)
    max_acceleration: float = parameter(
        2.0, 'Largest joint acceleration.', unit='rad/s²', minimum=0.01, maximum=100.0)
    path_tolerance: float = parameter(
        0.1, 'Largest deviation from the path before the controller ends a motion; half as much '
        'again, and it is cancelled from here.', unit='rad', minimum=1e-4, maximum=1.0)
    goal_tolerance: float = parameter(
        0.01, 'Largest deviation from the goal at the end.', unit='rad', minimum=1e-5,
        maximum=0.5)
    goal_time: float = parameter(
        2.0, 'Time past the end of a motion within which the goal must be met.', unit='s',
        minimum=0.1, maximum=60.0)
    state_timeout: float = parameter(
        0.5, 'Longest silence of the joint states before a motion is cancelled.', unit='s',
        minimum=0.05, maximum=10.0)
    tool_box: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Size of a box around the mounted tool, x, y, z of tool_frame, for the '
        'collision check; zeros for none.', unit='m', minimum=0.0, maximum=5.0)
    floor: float = parameter(
        -1000.0, 'Height in the root frame, against gravity, below which the arm may not reach; '
        '-1000 for none.', unit='m', minimum=-1000.0, maximum=1000.0)
    mesh_folders: list[str] = parameter(
        [''], 'Further folders in which package:// meshes of the collision geometry are looked '
        'up, besides those of the ROS installation.')


@dataclass(frozen=True)
class ProcedureParameters(ArmParameters):
    """Parameters that all procedure nodes share."""

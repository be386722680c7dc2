# SPDX-License-Identifier: Apache-2.0
"""Parameters of leveling."""

from __future__ import annotations

from dataclasses import dataclass

from robocal_ros.leveling.model import DIRECTIONS, HEADINGS
from robocal_ros.parameters import ArmParameters, parameter


@dataclass(frozen=True)
class LevelingParameters(ArmParameters):
    """Parameters of leveling."""

    direction: str = parameter(
        'nearest', "Direction of the tool's z axis relative to the reference's z axis.",
        choices=DIRECTIONS, dynamic=True)
    heading: str = parameter(
        'nearest', 'Heading of the level tool: nearest: smallest turn; x or y: that axis of the '
        'tool keeps its projected direction; free: unconstrained.',
        choices=HEADINGS, dynamic=True)
    use_compliance: bool = parameter(
        True, 'Level the links instead of the encoders, by the identified joint compliance and '
        'payload, if there is a compliance result.')
    reference: str = parameter(
        'base', 'Reference of the z axis: base (link that carries the first joint), gravity '
        '(opposite to it), or a frame of the URDF that does not move with the arm.')
    tool_point: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Point that is held in place, in tool_frame.', unit='m',
        minimum=-5.0, maximum=5.0)
    tolerance: float = parameter(
        8.7e-4, 'Largest tilt that counts as level, before and after the motion (0.05°).',
        unit='rad', minimum=1e-5, maximum=0.5, dynamic=True)
    max_drift: float = parameter(
        5e-4, 'Largest drift of the tool point, planned and measured at the end.', unit='m',
        minimum=2e-5, maximum=0.1, dynamic=True)
    max_step: float = parameter(
        0.087, 'Largest turn of the tool and step of a joint between path points; a smaller one '
        'gives more points.', unit='rad',
        minimum=0.005, maximum=0.5, dynamic=True)
    singularity_margin: float = parameter(
        0.01, 'Smallest allowed singular value of the scaled Jacobian (0 at a singularity, about '
        '1 far from one).', minimum=1e-4, maximum=0.5, dynamic=True)
    search_time: float = parameter(
        3.0, 'Longest search for other paths of an arm with more than six joints.', unit='s',
        minimum=0.05, maximum=60.0, dynamic=True)
    verify_time: float = parameter(
        0.5, 'Time at rest over which joint states and IMU are averaged to verify the result.',
        unit='s', minimum=0.05, maximum=10.0, dynamic=True)
    imu_topic: str = parameter(
        '', 'Topic of an IMU on the tool (sensor_msgs/Imu) to verify the result; empty for none.')
    imu_frame: str = parameter(
        'imu_flange', 'Frame of the IMU, fixed to tool_frame.')
    imu_tolerance: float = parameter(
        8.7e-3, 'Largest accepted tilt measured by the IMU (0.5°, the bias of a good IMU).',
        unit='rad', minimum=1e-6, maximum=0.5, dynamic=True)
    auto_level_after: list[str] = parameter(
        [''], 'Rules that trigger leveling: frames (a motion of the controller ends with the tool '
        'point in the box about it) and names of tasks on ~/task; a prefix frame: or task: '
        'resolves ambiguous names.')
    auto_level_box: list[float] = parameter(
        [0.4, 0.4, 0.4], 'Size of the box about each frame of auto_level_after along its x, y, z '
        'axes.', unit='m', minimum=0.0, maximum=100.0)

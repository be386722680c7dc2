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
        'nearest', "Where the tool's z axis is to point along the reference's z axis.",
        choices=DIRECTIONS, dynamic=True)
    heading: str = parameter(
        'nearest', 'nearest: the least turn; x or y: that axis of the tool keeps its projected '
        'direction; free: the tool may turn about the vertical as suits the arm.',
        choices=HEADINGS, dynamic=True)
    reference: str = parameter(
        'base', 'Whose z axis: base (the link that carries the first joint), gravity (against '
        'it), or a frame of the URDF that stands still.')
    tool_point: list[float] = parameter(
        [0.0, 0.0, 0.0], 'Point of the tool that is held in place, in tool_frame.', unit='m',
        minimum=-5.0, maximum=5.0)
    tolerance: float = parameter(
        8.7e-4, 'Tilt that counts as level, before and after (0.05°).', unit='rad',
        minimum=1e-5, maximum=0.5, dynamic=True)
    max_drift: float = parameter(
        5e-4, 'Largest drift of the tool point, planned and at the end.', unit='m',
        minimum=2e-5, maximum=0.1, dynamic=True)
    max_step: float = parameter(
        0.087, 'Largest turn of the tool, and step of a joint, between two points.', unit='rad',
        minimum=0.005, maximum=0.5, dynamic=True)
    singularity_margin: float = parameter(
        0.01, 'Smallest singular value of the Jacobian on the way (0 in a singularity, about 1 '
        'far from one).', minimum=1e-4, maximum=0.5, dynamic=True)
    limit_margin: float = parameter(
        0.002, 'Distance that arms of more than six joints keep from their position limits.',
        unit='rad', minimum=0.0, maximum=0.5, dynamic=True)
    search_time: float = parameter(
        3.0, 'Longest search for other ways of an arm of more than six joints.', unit='s',
        minimum=0.05, maximum=60.0, dynamic=True)
    verify_time: float = parameter(
        0.5, 'Time at rest over which the result is verified.', unit='s', minimum=0.05,
        maximum=10.0, dynamic=True)
    imu_topic: str = parameter(
        '', 'sensor_msgs/Imu on the tool that verifies the result; empty for none.')
    imu_frame: str = parameter(
        'imu_flange', "The IMU's frame; it must be fixed to tool_frame.")
    imu_tolerance: float = parameter(
        8.7e-3, 'Largest tilt that the IMU may see (0.5°, the bias of a good one).', unit='rad',
        minimum=1e-6, maximum=0.5, dynamic=True)
    auto_level_after: list[str] = parameter(
        [''], "Level by rule: frames (a controller's motion ends with the tool point in the box "
        'about one) and names of tasks on ~/task; frame: or task: before a name says which it '
        'is.')
    auto_level_box: list[float] = parameter(
        [0.4, 0.4, 0.4], 'Size of the box about each frame of auto_level_after, x, y, z of the '
        'frame.', unit='m', minimum=0.0, maximum=100.0)

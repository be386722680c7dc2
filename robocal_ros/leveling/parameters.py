# SPDX-License-Identifier: Apache-2.0
"""Parameters of leveling."""

from __future__ import annotations

from dataclasses import dataclass

from robocal_ros.leveling.model import DIRECTIONS, HEADINGS
from robocal_ros.parameters import ArmParameters, parameter


@dataclass(frozen=True)
class LevelingParameters(ArmParameters):
    """Parameters of leveling.

    Attributes:
        direction: Direction of the tool's z axis relative to the reference's z axis.
        heading: Heading of the level tool: nearest: smallest turn; x or y: that axis of the tool
            keeps its projected direction; free: unconstrained.
        use_compliance: Level the links instead of the encoders, by the identified joint compliance
            and payload, if there is a compliance result.
        reference: Reference of the z axis: base (link that carries the first joint), gravity
            (opposite to it), or a frame of the URDF that does not move with the arm.
        tool_point: Point that is held in place, in tool_frame.
        tolerance: Largest tilt that counts as level, before and after the motion (0.05°).
        max_drift: Largest drift of the tool point, planned and measured at the end.
        max_step: Largest turn of the tool and step of a joint between path points; a smaller one
            gives more points.
        singularity_margin: Smallest allowed singular value of the scaled Jacobian (0 at a
            singularity, about 1 far from one).
        search_time: Longest search for other paths of an arm with more than six joints.
        verify_time: Time at rest over which joint states and IMU are averaged to verify the
            result.
        imu_topic: Topic of an IMU on the tool (sensor_msgs/Imu) to verify the result; empty for
            none.
        imu_frame: Frame of the IMU, fixed to tool_frame.
        imu_tolerance: Largest accepted tilt measured by the IMU (0.5°, the bias of a good IMU).
        auto_level_after: Rules that trigger leveling: frames (a motion of the controller ends with
            the tool point in the box about it) and names of tasks on ~/task; a prefix frame: or
            task: resolves ambiguous names.
        auto_level_box: Size of the box about each frame of auto_level_after along its x, y, z
            axes.

    """

    direction: str = parameter('nearest', choices=DIRECTIONS, dynamic=True)
    heading: str = parameter('nearest', choices=HEADINGS, dynamic=True)
    use_compliance: bool = parameter(True)
    reference: str = parameter('base')
    tool_point: list[float] = parameter([0.0, 0.0, 0.0], unit='m', minimum=-5.0, maximum=5.0)
    tolerance: float = parameter(8.7e-4, unit='rad', minimum=1e-5, maximum=0.5, dynamic=True)
    max_drift: float = parameter(5e-4, unit='m', minimum=2e-5, maximum=0.1, dynamic=True)
    max_step: float = parameter(0.087, unit='rad', minimum=0.005, maximum=0.5, dynamic=True)
    singularity_margin: float = parameter(0.01, minimum=1e-4, maximum=0.5, dynamic=True)
    search_time: float = parameter(3.0, unit='s', minimum=0.05, maximum=60.0, dynamic=True)
    verify_time: float = parameter(0.5, unit='s', minimum=0.05, maximum=10.0, dynamic=True)
    imu_topic: str = parameter('')
    imu_frame: str = parameter('imu_flange')
    imu_tolerance: float = parameter(8.7e-3, unit='rad', minimum=1e-6, maximum=0.5, dynamic=True)
    auto_level_after: list[str] = parameter([''])
    auto_level_box: list[float] = parameter([0.4, 0.4, 0.4], unit='m', minimum=0.0, maximum=100.0)
